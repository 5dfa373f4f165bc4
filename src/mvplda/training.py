"""From vectors and labels to a model file that is ready for use: fitted, calibrated by question, with thresholds.

A committee by default: two models of all views for every extractor's block of columns, weighted by people who were
held out. The same held-out people calibrate every question, and show the errors at each operating point.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from ._typing import Array, IntArray
from .bundle import Bundle
from .calibration import HypothesisCalibrator, question_key
from .decisions import OperatingPoint
from .exceptions import DataError, LabelError, MvpldaWarning, ParameterError
from .labels import encode_labels
from .metrics import cllr, eer, min_cllr, threshold_for
from .models import SCORERS, Committee, CosineScorer, MultiviewPLDA
from .models.heldout import Fold, Trials, held_out_trials
from .preprocessing import RectifiedRoot, standard_chain, unit_chain
from .scoring.question import Hypothesis, Question

COMMITTEE = "committee"


def model_names() -> list[str]:
    """What `train` makes: a committee, and every scorer that is registered, by plugins too."""
    return [COMMITTEE, *SCORERS]


def needs_labels(model: str) -> bool:
    """Whether a model of this name is fitted to labels; an unknown one is refused elsewhere."""
    return model not in SCORERS or SCORERS[model].NEEDS_LABELS


FOLDS = 4
FEWEST_PEOPLE = 8
"""With fewer, nobody can be held out: two folds of four people are the least."""

ENOUGH_FOR_THRESHOLDS = 20
"""With fewer people a model that was trained elsewhere keeps the thresholds that it came with."""

FARS = (0.01, 0.05, 0.02, 0.005, 0.001)
"""Shares of false acceptances that operating points are measured for; the first is the default."""

TESTS, TRIALS = 1000, 10_000
"""Of every fold, and of every kind in every fold, so many are used."""

EXTRACTOR_WIDTHS = {"campplus": 192, "words": 288}
"""Columns of the extractors that have names of their own, by which blocks of joint vectors are told apart."""

WIDEST = 300
"""Columns of a block that is modelled as it is: covariances of wider ones cost more time than they tell."""

REDUCED = 150
"""Principal components that maximum-likelihood models are fitted to."""


def train(
    X: Any,
    labels: Mapping[str, Any],
    *,
    model: str = COMMITTEE,
    ranks: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    reduce: int | None = None,
    blocks: Mapping[str, int] | None = None,
    enrolment: int = 1,
    folds: int | None = None,
    fars: Sequence[float] = FARS,
    extractor: str | None = None,
) -> Bundle:
    """Fit a model to vectors and labels; calibrate it and choose its thresholds by people who are held out.

    Parameters
    ----------
    X : (n, D) vectors
    labels : {view: (n,) labels}; the classes of the first view are new when questions are asked, the speaker's say
    model : one of `model_names`
    ranks : {view: rank, or None for full} of a maximum-likelihood model. None: all views, full
    settings : of the model's class
    reduce : principal components, whitened, that a model other than a committee or cosine is fitted to
    blocks : {extractor: columns}, where the vectors of several stand side by side, in their order
    enrolment : vectors per profile in the held-out trials, as there will be in use
    folds : of held-out people; 0: neither calibration nor thresholds. None: 4 for a committee, 0 for other models
    fars : shares of false acceptances that thresholds are wanted for, the default first
    extractor : name of what made the vectors
    """
    vectors = np.asarray(X)
    views = list(labels)
    check_training_data(vectors, labels, needed=needs_labels(model) or bool(folds))
    bundle = make_bundle(
        model,
        views,
        int(vectors.shape[1]),
        labels=labels,
        ranks=ranks,
        settings=settings,
        reduce=reduce,
        blocks=blocks,
        enrolment=enrolment,
    )
    bundle.extractor = extractor
    columns = {view: np.asarray(column) for view, column in labels.items()}
    if folds is None:
        folds = FOLDS if model == COMMITTEE else 0
    with warnings.catch_warnings():
        if model == COMMITTEE:
            # Few people are told of by the card, once.
            warnings.simplefilter("ignore", MvpldaWarning)
        bundle.fit(vectors, columns or None)
    counts = {view: len(np.unique(column.astype(str))) for view, column in columns.items()}
    bundle.card = {"model": model, "vectors": len(vectors), "classes": counts}
    if folds:
        calibrate(bundle, vectors, columns, enrolment=enrolment, folds=folds, fars=fars)
    return bundle


def check_training_data(X: NDArray[Any], labels: Mapping[str, Any], *, needed: bool = True) -> None:
    """Refuse what no model can be trained on; all that is wrong in one message."""
    problems = []
    if X.ndim != 2 or len(X) < 2:
        problems.append(f"there is one vector, or none: vectors have shape (n, D); got {X.shape}")
    elif not np.isfinite(np.asarray(X, dtype=np.float64)).all():
        problems.append("the vectors contain NaN or infinity")
    if not labels and needed:
        problems.append("there are no labels: name the speaker of every vector")
    for view, column in labels.items():
        shape = np.shape(column)
        if shape != X.shape[:1]:
            problems.append(f"there are {len(X)} vectors and labels of {view} of shape {shape}")
            continue
        names = encode_labels({view: column}).classes[view].names
        if len(names) < 2:
            every = ", ".join(repr(name) for name in names.tolist())
            problems.append(f"{view} has one class ({every}): a model needs several to tell apart")
    if problems:
        raise DataError("; ".join(problems))


def make_bundle(
    model: str,
    views: Sequence[str],
    width: int,
    *,
    labels: Mapping[str, Any] | None = None,
    ranks: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    reduce: int | None = None,
    blocks: Mapping[str, int] | None = None,
    enrolment: int = 1,
) -> Bundle:
    """A bundle to be fitted, of a model by name."""
    options = dict(settings or {})
    if model == COMMITTEE:
        sizes = dict(blocks or {"vectors": width})
        if sum(sizes.values()) != width:
            raise ParameterError(
                f"the blocks have {sum(sizes.values())} columns together, the vectors {width}"
            )
        options.setdefault("enrolment", enrolment)
        return Bundle(None, make_committee(sizes, views, labels=labels, **options))
    if model not in SCORERS:
        raise ParameterError(f"there is no model {model!r}; there are {', '.join(model_names())}")
    kind = SCORERS[model]
    if not kind.NEEDS_LABELS:
        return Bundle(None, kind.with_ranks(dict.fromkeys(views), options))
    wanted = dict(ranks or dict.fromkeys(views))
    chain = standard_chain(reduce) if reduce is not None else None
    return Bundle(chain, kind.with_ranks(wanted, options))


def make_committee(
    blocks: Mapping[str, int],
    views: Sequence[str],
    *,
    labels: Any = None,
    dim: int = REDUCED,
    cosine: bool = False,
    **settings: Any,
) -> Committee:
    """A committee to be fitted, with two experts for every extractor's block of columns.

    Both model all views and, of two or more, their interaction, under the isotropic prior: one takes the block
    centred and of unit length, where classes of a public network vary alike in all directions; the other its
    principal components, whitened, where those of a network that was trained on the same people do.

    Parameters
    ----------
    blocks : {name of an extractor: how many columns are its}, in their order
    views : the first is the one whose classes are new when questions are asked, such as the speaker
    labels : of the vectors that it will be fitted to, if known: where they have too few combinations of classes to tell
        the interaction from the views, such as speakers who say one phrase each, it is left out
    dim : principal components that the second expert takes, at most
    cosine : let the cosine between vectors of each block be an expert, too; profiles then take no labels
    settings : of the committee

    Examples
    --------
    >>> from mvplda import make_committee
    >>> list(make_committee({"voice": 192, "words": 288}, ["speaker", "phrase"]).experts)
    ['voice', 'voice, whitened', 'words', 'words, whitened']
    """
    base = list(views)
    every = list(base)
    if len(base) > 1 and (labels is None or _are_crossed(labels, base)):
        every.append(":".join(base))
    # classes of the other views come again, so that training knows them, and there are few: less prior
    plain = {**dict.fromkeys([*every, "noise"], 0.6), **dict.fromkeys(base[1:], 0.2)}
    experts: dict[str, Any] = {}
    columns: dict[str, tuple[int, int]] = {}
    start = 0
    for name, width in blocks.items():
        whitened = standard_chain(min(dim, width), length="unit")
        whitened.steps.insert(0, ("root", RectifiedRoot()))
        unit = unit_chain(WIDEST if width > WIDEST else None)
        experts[name] = Bundle(unit, _prior_model(every, plain))
        experts[f"{name}, whitened"] = Bundle(whitened, _prior_model(every, 0.4))
        if cosine:
            experts[f"{name}, cosine"] = CosineScorer()
        for title in experts:
            columns.setdefault(title, (start, start + width))
        start += width
    return Committee(experts, columns=columns, **settings)


def blocks_of(extractor: str | None, width: int) -> dict[str, int] | None:
    """Columns of every extractor, where the note of the vectors names several whose widths are known."""
    names = [] if extractor is None else extractor.split("+")
    widths = {name: EXTRACTOR_WIDTHS.get(name.rpartition("-")[0] or name, 0) for name in names}
    if len(widths) < 2 or sum(widths.values()) != width or not all(widths.values()):
        return None
    return widths


def _prior_model(views: Sequence[str], strength: Any) -> MultiviewPLDA:
    return MultiviewPLDA(
        dict.fromkeys(views), prior="isotropic", prior_strength=strength, max_iter=0
    )


def _are_crossed(labels: Any, views: Sequence[str]) -> bool:
    """Whether combinations of classes are free enough of the classes themselves to learn an interaction from."""
    table = encode_labels(labels, [*views, ":".join(views)])
    *each, cells = (len(table.classes[view]) for view in table.views)
    return cells - sum(size - 1 for size in each) - 1 >= each[0] / 2


# -- calibration and thresholds ------------------------------------------------------------


@dataclass(frozen=True)
class HeldOutLogs:
    """Log-likelihoods in trials of people who were held out.

    logs : {hypothesis: (n,)}
    truth : (n,) place of the true hypothesis among them
    enrolled, tested : (n,) who speaks on either side
    """

    logs: dict[Hypothesis, Array]
    truth: IntArray
    enrolled: NDArray[Any]
    tested: NDArray[Any]

    def kinds(self, same: Sequence[str]) -> NDArray[Any]:
        """(n,) what every trial is to a question about some views: ``target``, or the views that it shares."""
        names = []
        for shared in self.logs:
            others = " and ".join(shared) or "nothing"
            names.append("target" if set(same) <= set(shared) else f"same {others}")
        return np.asarray(names)[self.truth]


def calibrate(
    bundle: Bundle,
    X: NDArray[Any],
    labels: Mapping[str, Any],
    *,
    enrolment: int = 1,
    folds: int = FOLDS,
    fars: Sequence[float] = FARS,
    groups: Any = None,
) -> None:
    """Give a fitted bundle calibrations, operating points and a card, by people who are held out in turn.

    Every fold's people are scored by a model of the others, factors of a committee included, so that all people
    evaluate and none has an influence on the model that scores them.

    groups : (n,) people who are held out together; None: the classes of the first view
    """
    views = tuple(view for view in labels if view in bundle.views)
    labels = {view: np.asarray(labels[view]) for view in views}
    card = dict(bundle.card or {})
    dealt = held_out_trials(
        labels,
        views,
        folds=folds,
        enrolment=enrolment,
        groups=groups,
        most_tests=TESTS,
        most_trials=TRIALS,
    )
    if not dealt:
        card["calibration"] = (
            f"none: it takes {FEWEST_PEOPLE} people or more with two recordings of the same, to hold some out"
        )
        bundle.card = card
        return
    people = np.asarray(labels[views[0]])
    models = [_fold_model(bundle, X, labels, fold) for fold, _ in dealt]
    calibrations: dict[str, HypothesisCalibrator] = {}
    points: dict[str, list[OperatingPoint]] = {}
    results: dict[str, Any] = {}
    for known in _known_views(bundle, views):
        try:
            held = _held_out_logs(models, dealt, X, labels, people, known)
        except LabelError:
            # phrases that one person alone says are in no model without that person
            if not known:
                raise
            continue
        calibrator = HypothesisCalibrator().fit(held.logs, held.truth, speakers=held.enrolled)
        for same in _questions_about(views, known):
            question = Question(same, known=known or None)
            key = question_key(question, views)
            calibrations[key] = calibrator
            scores = _scores(calibrator.transform(held.logs), question, views)
            points[key] = operating_points(scores, held, same, fars)
            results[key] = _result(scores, held.kinds(same))
    bundle.calibrations = calibrations
    bundle.points = points
    trials = {name: int(count) for name, count in _counted(held.kinds(views)).items()}
    bundle.card = {**card, "held_out": {"folds": len(dealt), "trials": trials, "errors": results}}


def deploy(
    bundle: Bundle,
    X: NDArray[Any],
    labels: Mapping[str, Any],
    *,
    enrolment: int = 1,
    folds: int = FOLDS,
    fars: Sequence[float] = FARS,
) -> Bundle:
    """A bundle that was trained elsewhere, in the domain of some people, and what it gets wrong among them.

    The people of every fold are scored in the domain that the others show; the calibration is that of the bundle. It
    keeps its own thresholds where fewer than `ENOUGH_FOR_THRESHOLDS` people are there to choose others by.

    labels : {view: (n,)} of the bundle's views, the speaker's first; views may be missing
    """
    views = tuple(view for view in labels if view in bundle.views)
    columns = {view: np.asarray(labels[view]) for view in views}
    people = columns[views[0]]
    everybody = np.ones(len(people), dtype=bool)
    there = _deployed_on(bundle, X, columns, everybody)
    there.scorer = there.fitted_scorer.settled()
    there.card = {**dict(bundle.card or {}), "deployed_on": len(np.unique(people))}
    dealt = held_out_trials(
        columns,
        views,
        folds=folds,
        enrolment=enrolment,
        most_tests=TESTS,
        most_trials=TRIALS,
    )
    if not dealt:
        return there
    every = [trials for _, trials in dealt]
    held = HeldOutLogs(
        {h: np.zeros(0) for h in every[0].hypotheses},
        np.concatenate([trials.kinds for trials in every]),
        np.concatenate([people[trials.profiles][trials.pairs[:, 0]] for trials in every]),
        np.concatenate([people[trials.test][trials.pairs[:, 1]] for trials in every]),
    )
    in_folds = [_deployed_on(bundle, X, columns, fold.train) for fold, _ in dealt]
    points: dict[str, list[OperatingPoint]] = {}
    results: dict[str, Any] = {}
    for same in _questions_about(views, ()):
        question = Question(same)
        key = question_key(question, bundle.views)
        scores = []
        for model, trials in zip(in_folds, every, strict=True):
            profiles = model.enrol(X[trials.enrol], trials.ids)
            answer = model.answer(profiles, model.enrol(X[trials.test]), question)
            scores.append(np.asarray(answer.llr).reshape(-1)[trials.places])
        llrs = np.concatenate(scores)
        points[key] = operating_points(llrs, held, same, fars)
        results[key] = _result(llrs, held.kinds(same))
    if len(np.unique(people)) >= ENOUGH_FOR_THRESHOLDS:
        there.points = {**dict(bundle.points or {}), **points}
    trials_of = {name: int(count) for name, count in _counted(held.kinds(views)).items()}
    there.card["held_out"] = {"folds": len(dealt), "trials": trials_of, "errors": results}
    return there


def _deployed_on(
    bundle: Bundle, X: NDArray[Any], labels: Mapping[str, NDArray[Any]], rows: NDArray[np.bool_]
) -> Bundle:
    """The bundle in the domain of some rows, whose labels are known."""
    speaker, *others = labels
    known = {view: labels[view][rows] for view in others}
    enrolled = bundle.enrol(X[rows], labels[speaker][rows], known or None)
    return copy(bundle.deployed(enrolled))


def worst_eer(card: Mapping[str, Any]) -> float:
    """EER of the worst kind of impostors, to the first question that was measured."""
    first = next(iter(card["held_out"]["errors"].values()))
    return float(max(first["eer"].values()))


def held_out_cllr(card: Mapping[str, Any]) -> float:
    first = next(iter(card["held_out"]["errors"].values()))
    return float(first["cllr"])


def _counted(names: NDArray[Any]) -> dict[str, int]:
    values, counts = np.unique(names, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def _known_views(bundle: Bundle, views: Sequence[str]) -> list[tuple[str, ...]]:
    """Which views may be known: none; and those after the first, whose classes come again."""
    known: list[tuple[str, ...]] = [()]
    if len(views) == 2 and views[1] in getattr(bundle.fitted_scorer, "classes_", {}):
        known.append((views[1],))
    return known


def _questions_about(views: Sequence[str], known: Sequence[str]) -> list[tuple[str, ...]]:
    """All views together; each alone, where nothing is known."""
    alone = [] if known or len(views) == 1 else [(view,) for view in views]
    return [tuple(views), *alone]


def _fold_model(bundle: Bundle, X: NDArray[Any], labels: Mapping[str, Any], fold: Fold) -> Bundle:
    """The same model without the people of a fold."""
    scorer = clone(bundle.scorer)
    factors = getattr(bundle.scorer, "factors_", None)
    people = np.asarray(next(iter(labels.values())))[fold.train]
    if factors is not None and len(np.unique(people)) < FEWEST_PEOPLE:
        # Too few to learn factors from: those of the whole are a dozen numbers of held-out people.
        scorer.set_params(factors=factors)
    elif factors is not None:
        scorer.set_params(folds=2)  # a fold in a fold: quicker, and hardly worse
    chain = None if bundle.preprocessing is None else clone(bundle.preprocessing)
    own = {view: np.asarray(column)[fold.train] for view, column in labels.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MvpldaWarning)
        return Bundle(chain, scorer).fit(X[fold.train], own)


def _held_out_logs(
    models: Sequence[Bundle],
    dealt: Sequence[tuple[Fold, Trials]],
    X: NDArray[Any],
    labels: Mapping[str, Any],
    people: NDArray[Any],
    known: Sequence[str],
) -> HeldOutLogs:
    logs: list[dict[Hypothesis, Array]] = []
    for model, (_, trials) in zip(models, dealt, strict=True):
        claims = {view: np.asarray(labels[view])[trials.profiles] for view in known}
        profiles = model.enrol(X[trials.enrol], trials.ids)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MvpldaWarning)
            answer = model.answer(
                profiles, model.enrol(X[trials.test]), Question(known=claims or None)
            )
        logs.append({h: values.reshape(-1)[trials.places] for h, values in answer.logs.items()})
    every = [trials for _, trials in dealt]
    return HeldOutLogs(
        {h: np.concatenate([part[h] for part in logs]) for h in every[0].hypotheses},
        np.concatenate([trials.kinds for trials in every]),
        np.concatenate([people[trials.profiles][trials.pairs[:, 0]] for trials in every]),
        np.concatenate([people[trials.test][trials.pairs[:, 1]] for trials in every]),
    )


def _scores(logs: Mapping[Hypothesis, Array], question: Question, views: Sequence[str]) -> Array:
    """The ratio that answers a question, from log-likelihoods of all hypotheses."""
    return question.ratio(tuple(views)).of(logs)


def operating_points(
    scores: Array, held: HeldOutLogs, same: Sequence[str], fars: Sequence[float]
) -> list[OperatingPoint]:
    """Thresholds for the worst kind of impostor, with what was measured there."""
    kinds = held.kinds(same)
    points = []
    for far in fars:
        point = threshold_for(scores, kinds, far, held.enrolled, held.tested, target="target")
        if not np.isfinite(point.threshold):
            continue
        rates = {kind: [rate.estimate, rate.low, rate.high] for kind, rate in point.far.items()}
        frr = point.frr
        measured = {
            "far": rates,
            "frr": [frr.estimate, frr.low, frr.high],
            "worst": point.worst,
            "warning": point.warning(),
        }
        basis = f"{round(point.speakers)} people who were held out in turn"
        points.append(
            OperatingPoint(
                point.threshold,
                far=far,
                measured=measured,
                people=round(point.speakers),
                basis=basis,
            )
        )
    return points


def _result(scores: Array, kinds: NDArray[Any]) -> dict[str, Any]:
    """What a card tells of one question."""
    targets = scores[kinds == "target"]
    others = {str(name): scores[kinds == name] for name in np.unique(kinds) if name != "target"}
    every = np.concatenate(list(others.values()))
    return {
        "eer": {name: eer(targets, own) for name, own in others.items()},
        "cllr": float(cllr(targets, every)),
        "min_cllr": float(min_cllr(targets, every)),
    }
