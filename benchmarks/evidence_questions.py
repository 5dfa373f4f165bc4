"""Errors on questions that need both labels, compared with the best alternative from models with one label each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import log_expit, logsumexp

from benchmarks.evidence_data import DATA_SETS, SPLITS, Split, make_split
from benchmarks.evidence_errors import KINDS, Errors
from benchmarks.evidence_systems import ITERATIONS, Reduced, best_by, cosine_scores, quiet
from mvplda import PLDA
from mvplda.models.base import BaseScorer
from mvplda.models.selection import Selection

Array = np.ndarray
SYSTEMS = {"PLDA": "combined", "two views": "views", "three views": "interaction"}
"""Models of both labels by their structure, with full noise and ranks that are chosen on held-out people."""
NOISES = ("full",)
FEW_CLASSES = 8
"""Fewest classes of a label that can be held out."""
MISSING = 0.5
"""Share of the training vectors whose second label is deleted."""
MAX_MISSING_PEOPLE = 50
"""Largest number of training people of that question: exact inference couples all people whose labels are missing."""
ORDER = ("TC", "TW", "IC", "IW")
SHARED = {"TC": ("person", "second"), "TW": ("person",), "IC": ("second",), "IW": ()}


@dataclass(frozen=True)
class Fitted:
    """Models of both labels on one division.

    reduced : the division on its principal components
    selection : candidates with their losses on held-out people
    models : {system: fitted model}
    """

    reduced: Reduced
    selection: Selection
    models: dict[str, BaseScorer]

    @property
    def split(self) -> Split:
        """The division."""
        return self.reduced.split

    @property
    def joint(self) -> dict[str, BaseScorer]:
        """Models of two and three views."""
        return {system: model for system, model in self.models.items() if system != "PLDA"}


@cache
def fitted_models(name: str, data: Path, work: Path, splits: int) -> list[Fitted]:
    """Fit the models of a data set once for all questions."""
    vectors = DATA_SETS[name].read(data, work)
    fitted = []
    with quiet():
        for seed in range(splits):
            reduced = Reduced(make_split(vectors, seed), DATA_SETS[name].components)
            selection = reduced.select(noises=NOISES)
            fitted.append(Fitted(reduced, selection, _models(reduced, selection)))
    return fitted


def _models(reduced: Reduced, selection: Selection, **labels: Array) -> dict[str, BaseScorer]:
    """Fit the best candidate of each structure."""
    present = {candidate.structure for candidate in selection.table}
    return {
        system: reduced.fitted(best_by(selection, structure), **labels)
        for system, structure in SYSTEMS.items()
        if structure in present
    }


def _one_label(reduced: Reduced, view: str) -> BaseScorer:
    """Fit PLDA of one label with the rank that held-out classes of that label choose; few classes have full rank."""
    column = reduced.split.train_labels[view]
    if len(np.unique(column)) < FEW_CLASSES:
        return PLDA(noise="full", max_iter=ITERATIONS, tol=0).fit(
            reduced.X[reduced.split.train], column
        )
    selection = reduced.select(["views"], NOISES, **{view: column})
    return reduced.fitted(selection.chosen, **{view: column})


def voice_alone(name: str, data: Path, work: Path, splits: int = SPLITS) -> dict[str, Any]:
    """ "The same person, whatever the second label?": targets and impostors with another second label."""
    fitted = fitted_models(name, data, work, splits)
    divisions = [item.split for item in fitted]
    scores: dict[str, list[Array]] = {}
    with quiet():
        for item in fitted:
            scores.setdefault("cosine", []).append(cosine_scores(item.split))
            for system, model in item.joint.items():
                scores.setdefault(system, []).append(item.reduced.scores(model, same="person"))
            label = _one_label(item.reduced, "person")
            scores.setdefault("PLDA of one label", []).append(item.reduced.scores(label))
    # the same trials with one label: TW are targets, IW impostors
    renamed = []
    for split in divisions:
        few = split.restricted(("TW", "IW"))
        kinds = {"target": few.kinds["TW"], "nontarget": few.kinds["IW"]}
        weights = {"target": few.weights["TW"], "nontarget": few.weights["IW"]}
        renamed.append(replace(few, kinds=kinds, weights=weights))
    rows = [np.any([split.kinds[kind] for kind in ("TW", "IW")], axis=0) for split in divisions]
    few_scores = {
        system: [values[chosen] for values, chosen in zip(found, rows, strict=True)]
        for system, found in scores.items()
    }
    title = "the same person, another second label"
    return {
        "title": title,
        **_measured(renamed, few_scores, ["PLDA of one label", "cosine"], ["Total"]),
    }


def new_labels(name: str, data: Path, work: Path, splits: int = SPLITS) -> dict[str, Any]:
    """Second labels that are new to the models: half of them train, the others are tested."""
    dataset = DATA_SETS[name]
    vectors = dataset.read(data, work)
    divisions = []
    for seed in range(splits):
        whole = make_split(vectors, seed)
        classes = np.random.default_rng(seed).permutation(np.unique(vectors.second))
        seen = np.isin(vectors.second, classes[: len(classes) // 2])
        divisions.append(make_split(vectors, seed, whole.train & seen, ~whole.train & ~seen))
    title = "second labels that are new to the models"
    return {"title": title, **_compared(divisions, dataset.components)}


def known_labels(name: str, data: Path, work: Path, splits: int = SPLITS) -> dict[str, Any]:
    """The second label of each profile is a known class of the training data.

    Work-arounds: PLDA of the combined label, which ignores that; its LLRs plus those of PLDA of the second label, whose
    profiles are all training vectors of a class.
    """
    fitted = fitted_models(name, data, work, splits)
    divisions = [item.split for item in fitted]
    scores: dict[str, list[Array]] = {}
    with quiet():
        for item in fitted:
            reduced = item.reduced
            claims = item.split.labels["second"][item.split.profiles]
            for system, model in item.models.items():
                scores.setdefault(system, []).append(reduced.scores(model))
            for system, model in item.joint.items():
                values = reduced.scores(model, known={"second": claims})
                scores.setdefault(f"{system}, known", []).append(values)
            added = scores["PLDA"][-1] + _claimed(reduced, _one_label(reduced, "second"), claims)
            scores.setdefault("PLDA + PLDA of the second label", []).append(added)
    title = "the second label of each profile is known from training"
    references = ["PLDA", "PLDA + PLDA of the second label"]
    return {"title": title, **_measured(divisions, scores, references, KINDS)}


def _claimed(reduced: Reduced, model: BaseScorer, claims: Array) -> Array:
    """Return the LLR of the claimed class of the second label against all other training classes, per trial."""
    split = reduced.split
    names = split.labels["second"][split.train]
    profiles = model.enrol(reduced.X[split.train], names)
    logs = np.asarray(model.llr(profiles, reduced.X[split.test]), dtype=np.float64)
    order = {str(name): row for row, name in enumerate(profiles.ids)}
    number = np.array([order[str(claim)] for claim in claims])
    claimed = number[split.pairs[:, 0]]
    chosen = logs[:, split.pairs[:, 1]]
    target = chosen[claimed, np.arange(len(claimed))]
    chosen[claimed, np.arange(len(claimed))] = -np.inf
    return np.asarray(target - logsumexp(chosen, axis=0) + np.log(len(logs) - 1))


def missing_labels(name: str, data: Path, work: Path, splits: int = SPLITS) -> dict[str, Any]:
    """Half of the training vectors have no second label.

    Work-arounds: PLDA of the combined label without these vectors, or with the second labels that PLDA of the second
    label, trained on the others, guesses.
    """
    divisions = [
        _with_fewer_people(split, seed)
        for seed, split in enumerate(_divisions(name, data, work, splits))
    ]
    scores: dict[str, list[Array]] = {}
    with quiet():
        for seed, split in enumerate(divisions):
            labelled = split.train & (
                np.random.default_rng(seed).random(len(split.train)) >= MISSING
            )
            reduced = Reduced(replace(split, train=labelled), DATA_SETS[name].components)
            whole = Reduced(split, reduced.dim)
            # the reduction needs no labels
            reduced.X = whole.X
            selection = reduced.select(noises=NOISES)
            second = split.labels["second"].astype(object)
            second[~labelled] = None
            labels = {
                "person": split.labels["person"][split.train],
                "second": second[split.train],
            }
            for system, model in _models(reduced, selection).items():
                scores.setdefault(f"{system}, labelled half", []).append(reduced.scores(model))
            for system, model in _models(whole, selection, **labels).items():
                if system != "PLDA":
                    scores.setdefault(f"{system}, all vectors", []).append(whole.scores(model))
            labels["second"] = _guessed(reduced, whole)
            guessing = whole.fitted(best_by(selection, "combined"), **labels)
            scores.setdefault("PLDA, guessed labels", []).append(whole.scores(guessing))
    title = "half of the training vectors have no second label"
    people = [len(np.unique(split.train_labels["person"])) for split in divisions]
    return {
        "title": title,
        "training people": people,
        **_measured(divisions, scores, ["PLDA, labelled half", "PLDA, guessed labels"], KINDS),
    }


def _guessed(labelled: Reduced, whole: Reduced) -> Array:
    """Return the second labels of all training vectors; missing ones are the classes with the highest LLR.

    labelled, whole : the division without and with the training vectors that have no second label
    """
    known = labelled.split.train
    second = labelled.split.labels["second"]
    model = _one_label(labelled, "second")
    classes = model.enrol(labelled.X[known], second[known])
    missing = np.flatnonzero(whole.split.train & ~known)
    found = np.asarray(model.llr(classes, labelled.X[missing])).argmax(axis=0)
    filled = second.copy()
    filled[missing] = np.asarray(classes.ids)[found]
    return np.asarray(filled[whole.split.train])


def _with_fewer_people(split: Split, seed: int) -> Split:
    """Return the division with at most `MAX_MISSING_PEOPLE` training people."""
    people = np.unique(split.train_labels["person"])
    chosen = np.random.default_rng(seed).permutation(people)[:MAX_MISSING_PEOPLE]
    return replace(split, train=split.train & np.isin(split.labels["person"], chosen))


def four_hypotheses(name: str, data: Path, work: Path, splits: int = SPLITS) -> dict[str, Any]:
    """Posteriors of four hypotheses, equal a priori; work-around: two PLDAs of one label each, multiplied.

    "wrong, %" is the share of trials whose most probable hypothesis is wrong, "cross-entropy" that of the posteriors in
    bits; both are means over the four kinds of trials.
    """
    fitted = fitted_models(name, data, work, splits)
    divisions = [item.split for item in fitted]
    logs: dict[str, list[Array]] = {}
    with quiet():
        for item in fitted:
            for system, model in item.joint.items():
                logs.setdefault(system, []).append(_hypothesis_logs(item.reduced, model))
            person, second = (
                item.reduced.scores(_one_label(item.reduced, view)) for view in ("person", "second")
            )
            logs.setdefault("two PLDAs of one label", []).append(_product(person, second))
    errors = Errors(divisions)
    replicates = {
        system: {
            measure: errors.replicates(
                [
                    _balanced(split, cost(split, values))
                    for split, values in zip(divisions, found, strict=True)
                ]
            )
            for measure, cost in (("wrong, %", _wrong), ("cross-entropy, bits", _bits))
        }
        for system, found in logs.items()
    }
    reference = "two PLDAs of one label"
    systems = {
        system: {measure: round(float(values[0]), 4) for measure, values in found.items()}
        for system, found in replicates.items()
    }
    ratios = {
        f"{system} / {reference}": errors.ratios_of(found, replicates[reference])
        for system, found in replicates.items()
        if system != reference
    }
    row = {"divisions": splits, "people tested": errors.n_people}
    return {"title": "posteriors of four hypotheses", **row, "systems": systems, "ratios": ratios}


def _hypothesis_logs(reduced: Reduced, model: BaseScorer) -> Array:
    """Return log-likelihoods of the hypotheses in `ORDER`, (4, trials), up to a constant per trial."""
    logs = np.zeros((len(ORDER), len(reduced.split.pairs)))
    for row, kind in enumerate(ORDER[1:], start=1):
        priors = {SHARED["TC"]: 1.0, SHARED[kind]: 1.0}
        logs[row] = -reduced.scores(model, priors=priors)
    return logs


def _product(person: Array, second: Array) -> Array:
    """Return logs of the products of the posteriors of two independent questions, in the order of `ORDER`."""
    signs = ((1, 1), (1, -1), (-1, 1), (-1, -1))
    return np.stack([log_expit(a * person) + log_expit(b * second) for a, b in signs])


def _truth(split: Split) -> Array:
    return np.asarray(np.argmax(np.stack([split.kinds[kind] for kind in ORDER]), axis=0))


def _wrong(split: Split, logs: Array) -> Array:
    return 100.0 * (np.argmax(logs, axis=0) != _truth(split))


def _bits(split: Split, logs: Array) -> Array:
    posterior = logs - logsumexp(logs, axis=0)
    return np.asarray(-np.take_along_axis(posterior, _truth(split)[None], axis=0)[0] / np.log(2))


def _balanced(split: Split, costs: Array) -> Callable[[Array], float]:
    """Return the mean over kinds of the costs as a function of the multiplicities of the people."""
    present = np.unique(np.concatenate(split.people))
    first, second = (np.searchsorted(present, side) for side in split.people)
    second = np.where(first == second, len(present), second)
    truth = _truth(split)

    def measure(multiplicity: Array) -> float:
        weights = multiplicity[first] * multiplicity[second]
        totals = np.bincount(truth, weights, len(ORDER))
        with np.errstate(invalid="ignore", divide="ignore"):
            means = np.bincount(truth, weights * costs, len(ORDER)) / totals
        return float(means.mean())

    return measure


def _divisions(name: str, data: Path, work: Path, splits: int) -> list[Split]:
    vectors = DATA_SETS[name].read(data, work)
    return [make_split(vectors, seed) for seed in range(splits)]


def _compared(divisions: Sequence[Split], components: int) -> dict[str, Any]:
    """Compare the models of both labels and the cosine with the usual question."""
    scores: dict[str, list[Array]] = {}
    with quiet():
        for split in divisions:
            scores.setdefault("cosine", []).append(cosine_scores(split))
            reduced = Reduced(split, components)
            for system, model in _models(reduced, reduced.select(noises=NOISES)).items():
                scores.setdefault(system, []).append(reduced.scores(model))
    return _measured(divisions, scores, ["PLDA", "cosine"], KINDS)


def _measured(
    divisions: Sequence[Split],
    scores: Mapping[str, list[Array]],
    references: Sequence[str],
    kinds: Sequence[str],
) -> dict[str, Any]:
    """Return the errors of all systems, and the paired ratios of joint models to each of the references."""
    errors = Errors(divisions, kinds)
    complete = {name: values for name, values in scores.items() if len(values) == len(divisions)}
    systems = {}
    for name, values in complete.items():
        by_kind = errors.values(values)
        systems[name] = {
            "EER, %": {kind: [round(value, 4) for value in by_kind[kind]] for kind in kinds}
        }
    ratios = {
        f"{name} / {reference}": errors.ratios(name, values, reference, complete[reference])
        for reference in references
        for name, values in complete.items()
        if name not in references
    }
    row = {"divisions": len(divisions), "people tested": errors.n_people}
    return {**row, "work-arounds": list(references), "systems": systems, "ratios": ratios}


QUESTIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "one label alone": voice_alone,
    "new second labels": new_labels,
    "known second labels": known_labels,
    "missing second labels": missing_labels,
    "four hypotheses": four_hypotheses,
}
