"""Make the default model of recordings of several corpora in several conditions, each corpus evaluated by the others.

::

    python -m tools.default_model.build vectors WORK AUDIOMNIST SPEECH_COMMANDS CVAU
    python -m tools.default_model.build model WORK

The first step makes vectors (`tools.default_model.recordings`) and can be interrupted. The second fits `DomainPLDA`,
calibrates it on corpora that were left out, measures what it gets wrong there, and writes the model file of the
package and the results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from mvplda._typing import Array, IntArray
from mvplda.bundle import Bundle
from mvplda.calibration.hypotheses import JOINT_EVIDENCE, HypothesisCalibrator
from mvplda.decisions import (
    LOWEST_THRESHOLD,
    MeasuredRates,
    OperatingPoint,
    RateInterval,
    distinct_points,
)
from mvplda.metrics import eer
from mvplda.metrics.curves import min_cllr
from mvplda.paper.provenance import OUTPUT, WORK, provenance, with_provenance, write_results
from mvplda.scoring.answer import question_key
from mvplda.scoring.question import Hypothesis, NearMatches, Question
from mvplda.voice.default_model import DEFAULT_MODEL
from mvplda.voice.domain.estimator import DomainPLDA
from mvplda.voice.extractors import load_extractor
from mvplda.voice.phrases import PhraseMatcher
from tools.default_model.recordings import (
    CONDITIONS,
    DOMAINS,
    EXTRACTORS,
    NEAR_MATCH_DOMAINS,
    LabelledVectors,
    read_labelled_vectors,
    write_vectors,
)

VIEWS = ("speaker", "phrase")
POINTS, SOUNDS = 24, 32
BLOCKS = {
    "campplus": (192, "speaker"),
    "resnet": (256, "speaker"),
    "words": (288, "phrase"),
    "sounds": (POINTS * SOUNDS + 1, "phrase"),
}
DELTA = {"campplus": 0.08, "resnet": 0.15, "words": 0.1}
FACTORS = {"campplus": 0.18, "resnet": 0.09, "words": 0.08}
"""Variance of domains, and the share of its columns that count, by block: chosen on corpora that were left out. That
of words is larger than corpora differ here, so that one phrase that all say is not taken for what is usual."""
PAIRS = 400
"""Of the same and of nearly the same words in a domain, that are learnt from."""
OWN = 0
"""Everybody enrols one phrase, in place of the number of phrases that all enrol."""
DEPLOYMENTS: tuple[tuple[int, int | None], ...] = (
    (3, None),
    (20, None),
    (20, 1),
    (10, 3),
    (3, OWN),
    (20, OWN),
)
"""People and phrases that are enrolled together, in the trials that calibrate: None is all phrases."""
JUDGED: tuple[tuple[int, int | None], ...] = ((20, None), (20, 1), (5, 2), (20, OWN), (5, OWN))
"""The same of trials on a corpus that was left out."""
DRAWS = (1, 2, 3, 4)
"""Seeds of the people and phrases who are drawn there."""
ONE_TAKE = DOMAINS["speech-commands"]
"""Domains in which few cells have more than two takes: one of them enrols."""
FARS = (0.01, 0.05, 0.02, 0.005)
TESTS = 300
TRIALS = 500
"""Tests of a condition, and trials of a kind, in one deployment."""
BOOTSTRAP = 500
FEWEST_OWNERS = 20
"""Trials of owners without which a row of results says nothing."""
BASIS = "the default model, of three corpora in five conditions, adapted to what is enrolled"
LICENCE = (
    "that of the package; trained on AudioMNIST (MIT), Speech Commands (CC BY 4.0) and C-VAU (MIT)"
)
Mask = NDArray[np.bool_]
KINDS = ("TC", "TW", "IC", "IW")
IMPOSTORS = {VIEWS: (1, 2, 3), ("speaker",): (2, 3), ("phrase",): (1, 3)}
"""Questions, and the kinds of trials to which the answer is no."""


@dataclass(frozen=True)
class Outcome:
    """Trials of one deployment in one condition: log-likelihoods of hypotheses, kinds, people, and two cosines.

    near_matches : whether other words are nearly the same
    """

    domain: str
    condition: str
    people: int
    phrases: int | None
    logs: Mapping[Hypothesis, Array]
    truth: IntArray
    speaker: NDArray[Any]
    cosines: Mapping[str, Array]
    near_matches: NearMatches | None = None

    def calibrated(self, calibrator: HypothesisCalibrator) -> dict[Hypothesis, Array]:
        """As in `Bundle.answer`."""
        return calibrator.transform(self.logs, self.near_matches)


class Calibrated:
    """Trials of many deployments, calibrated on themselves for a question, all domains weighing the same."""

    def __init__(self, trials: Sequence[Outcome], views: tuple[str, ...] = VIEWS) -> None:
        self.views = views
        every = together(trials)
        if len(views) == 1:
            # to a question about the voice the words say nothing, and the reverse
            own = every.logs[views]
            logs = {h: own if views[0] in h else 0.0 * own for h in every.logs}
            every = replace(every, logs=logs)
        self.truth = every.truth
        self.speaker = every.speaker
        self.domain = np.repeat([one.domain for one in trials], [len(one.truth) for one in trials])
        self.calibrator = HypothesisCalibrator()
        if "phrase" not in views:
            every = replace(every, near_matches=None)
        self.calibrator.fit(
            every.logs,
            self.truth,
            speakers=self.speaker,
            corpora=self.domain,
            near_matches=every.near_matches,
        )
        if len(views) == 1:
            silent = [part for part in (*VIEWS, JOINT_EVIDENCE) if part not in views]
            self.calibrator.weights_ |= dict.fromkeys(silent, 0.0)
        self.logs = every.calibrated(self.calibrator)

    def threshold(self, far: float) -> float:
        """The threshold that no kind of impostor passes more often than `far`; domains weigh the same."""
        scores = ratios(self.logs, self.views)
        limits = [LOWEST_THRESHOLD]
        for kind in IMPOSTORS[self.views]:
            rows = np.flatnonzero(self.truth == kind)
            rows = rows[np.argsort(scores[rows])]
            names, code = np.unique(self.domain[rows], return_inverse=True)
            share = 1.0 / (np.bincount(code)[code] * len(names))
            passed = 1.0 - np.cumsum(share)
            limits.append(float(scores[rows[np.searchsorted(-passed, -far)]]))
        return max(limits)

    def point(self, far: float) -> OperatingPoint:
        """The threshold, and what was measured there."""
        threshold = self.threshold(far)
        accepted = ratios(self.logs, self.views) >= threshold
        impostors = IMPOSTORS[self.views]
        rates = {
            KINDS[kind]: share_over_people(accepted, self.speaker, self.truth == kind)
            for kind in impostors
        }
        owners = ~np.isin(self.truth, impostors)
        missed = share_over_people(~accepted, self.speaker, owners)
        basis = "corpora that were left out, in five conditions, all corpora weighing the same"
        people = len(np.unique(self.speaker))
        measured = MeasuredRates(far=rates, frr=missed)
        return OperatingPoint(threshold, 0.0, far, measured, people, basis)


def ratios(logs: Mapping[Hypothesis, Array], views: tuple[str, ...]) -> Array:
    """LLR of sharing some views, of calibrated log-likelihoods."""
    return Question(views).ratio(VIEWS).of(logs)


def share_over_people(happened: Mask, speakers: NDArray[Any], rows: Mask) -> RateInterval:
    """A share of some trials, and the 95 % interval of a bootstrap over people; 3 / people where nothing happened."""
    happened = happened[rows]
    people, codes = np.unique(speakers[rows], return_inverse=True)
    counts = np.bincount(codes)
    hits = np.bincount(codes, happened)
    draws = np.random.default_rng(0).integers(0, len(people), (BOOTSTRAP, len(people)))
    shares = hits[draws].sum(axis=1) / counts[draws].sum(axis=1)
    low, high = np.quantile(shares, (0.025, 0.975))
    if not happened.any():
        high = 1 - 0.05 ** (1 / len(people))
    return RateInterval(float(happened.mean()), float(low), float(high))


def outcomes(
    model: DomainPLDA,
    material: LabelledVectors,
    domain: str,
    deployments: Sequence[tuple[int, int | None]],
    seed: int = 0,
    named: bool = True,
) -> Iterator[Outcome]:
    """Trials of deployments in one domain: clean takes are enrolled, tests are of all conditions.

    named : whether the phrases are enrolled by name, and are then known
    """
    here = material.select(material.domain == domain)
    for people, phrases in deployments:
        rng = np.random.default_rng([seed, people, phrases or 0])
        chosen = rng.permutation(np.unique(here.speaker))[:people]
        some = here.select(np.isin(here.speaker, chosen))
        clean = some.condition == "clean"
        takes = 2 if some.repetition.max() >= 2 and domain not in ONE_TAKE else 1
        enrol = np.flatnonzero(clean & (some.repetition < takes))
        free = some.repetition >= takes
        if domain in NEAR_MATCH_DOMAINS.values():
            is_right = has_several_takes(some)
            enrol = enrol[is_right[enrol]]
            free |= ~is_right
        if phrases == OWN:
            enrol = enrol[own_phrases(some.speaker[enrol], some.phrase[enrol], rng)]
        elif phrases is not None:
            names, counts = np.unique(some.phrase[enrol], return_counts=True)
            common = names[np.argsort(-counts, kind="stable")][: max(6, phrases)]
            enrol = enrol[np.isin(some.phrase[enrol], rng.permutation(common)[:phrases])]
        tests = {
            name: rng.permutation(np.flatnonzero(free & (some.condition == name)))[:TESTS]
            for name in ("clean", *CONDITIONS)
        }
        # people enrol with their phrases; each phrase of a person is tried as a profile of its own
        enrolled = some.select(enrol)
        labels = {"phrase": enrolled.phrase} if named else None
        deployed = model.deployed(model.enrol(enrolled.vectors, enrolled.speaker, labels))
        cells = np.char.add(np.char.add(enrolled.speaker, "|"), enrolled.phrase)
        profiles = model.enrol(enrolled.vectors, cells, labels)
        # names that say nothing are not known
        question = Question(known=list(deployed.names_) or None)
        owner, phrase = np.char.partition(profiles.ids.astype(np.str_), "|")[:, [0, 2]].T
        for name, rows in tests.items():
            if not len(rows):
                continue
            against = model.enrol(some.vectors[rows])
            other_speaker = owner[:, None] != some.speaker[rows]
            other_phrase = phrase[:, None] != some.phrase[rows]
            truth = 2 * other_speaker.astype(np.int64) + other_phrase
            places = [rng.permutation(np.flatnonzero(truth == kind))[:TRIALS] for kind in range(4)]
            kept = np.concatenate(places)
            pairs = np.stack(np.unravel_index(kept, truth.shape), axis=1)
            near_matches = deployed.near_matches(profiles, against, pairs, VIEWS)
            logs = deployed.log_likelihoods(profiles, against, question)
            cosines = _cosines(profiles.y, against.y)
            yield Outcome(
                domain,
                name,
                len(chosen),
                phrases,
                {h: np.asarray(values).ravel()[kept] for h, values in logs.items()},
                truth.ravel()[kept],
                np.repeat(owner, len(rows))[kept],
                {view: values.ravel()[kept] for view, values in cosines.items()},
                near_matches,
            )


def own_phrases(people: NDArray[Any], phrases: NDArray[Any], rng: np.random.Generator) -> Mask:
    """The rows of one phrase a person, that nobody else has where there are enough."""
    rows = np.zeros(len(people), dtype=bool)
    for person in np.unique(people):
        mine = people == person
        free = np.setdiff1d(phrases[mine], phrases[rows])
        chosen = rng.choice(free if len(free) else phrases[mine])
        rows |= mine & (phrases == chosen)
    return rows


def _cosines(enrolled: Any, tested: Any) -> dict[str, Array]:
    """Cosines about the mean of what is enrolled, by view: the floor."""
    stops = np.cumsum([columns for columns, _ in BLOCKS.values()])
    cosines = {view: np.zeros((len(enrolled), len(tested))) for view in VIEWS}
    for (name, (width, view)), stop in zip(BLOCKS.items(), stops, strict=True):
        if name == "sounds":
            continue
        columns = slice(stop - width, stop)
        centre = unit(enrolled[:, columns]).mean(axis=0)
        sides = [unit(unit(side[:, columns]) - centre) for side in (enrolled, tested)]
        cosines[view] += sides[0] @ sides[1].T
    return cosines


def unit(vectors: Array) -> Array:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-9))


def model_of(
    material: LabelledVectors, groups: Sequence[str], matcher: PhraseMatcher
) -> DomainPLDA:
    domains = [domain for group in groups for domain in DOMAINS[group]]
    some = material.select(np.isin(material.domain, domains))
    points = {"sounds": asdict(matcher)}
    model = DomainPLDA(BLOCKS, delta=DELTA, weights=FACTORS, points=points)
    return model.fit(some.vectors, some.labels())


def matcher_of(material: LabelledVectors, groups: Sequence[str]) -> PhraseMatcher:
    """What tells other words, and nearly the right ones, from the right ones in some corpora."""
    matcher = PhraseMatcher("phrase", POINTS)
    found: dict[str, list[Array]] = {"same": [], "near": [], "other": []}
    rng = np.random.default_rng(0)
    for domain in [
        name for group in groups for name in (*DOMAINS[group], NEAR_MATCH_DOMAINS.get(group))
    ]:
        here = material.select(material.domain == domain)
        if not len(here.repetition):
            continue
        columns = slice(-BLOCKS["sounds"][0], None)
        points = matcher.project(here.vectors[:, columns])[:, :-1].reshape(-1, POINTS, SOUNDS)
        # a clean take is enrolled, the others are tested
        own = np.equal.outer(here.speaker, here.speaker) & (here.condition == "clean")[:, None]
        equal = np.equal.outer(here.phrase, here.phrase)
        kinds = {"same": equal & np.not_equal.outer(here.repetition, here.repetition)}
        if domain == NEAR_MATCH_DOMAINS.get(here.corpus[0]):
            is_right = has_several_takes(here)
            kinds["near"] = np.logical_and.outer(is_right, ~is_right)
        else:
            kinds["other"] = ~equal
        for kind, pairs in kinds.items():
            some = rng.permutation(np.argwhere(own & pairs))[:PAIRS]
            distances = matcher.distances(points[some[:, 0]], points[some[:, 1]])
            found[kind].append(distances)
    return matcher.fit(*found.values())


def has_several_takes(some: LabelledVectors) -> Mask:
    """Rows of phrases that somebody says more than once: where words are replaced, the right ones."""
    cells = np.char.add(np.char.add(some.speaker, "|"), some.phrase)
    return np.isin(cells, cells[some.repetition > 0])


def left_out(material: LabelledVectors, groups: Sequence[str], named: bool = True) -> list[Outcome]:
    """Trials of every corpus of some, by a model of the others; named: see `outcomes`."""
    trials: list[Outcome] = []
    # some corpora have no phrases that are nearly the same: this part is of all of them
    matcher = matcher_of(material, groups)
    for group in groups:
        model = model_of(material, [other for other in groups if other != group], matcher)
        for domain in DOMAINS[group]:
            trials += outcomes(model, material, domain, DEPLOYMENTS, named=named)
    return trials


def evaluated(material: LabelledVectors, group: str) -> list[dict[str, Any]]:
    """What a model that was fitted, calibrated and given its threshold by the other corpora does on one."""
    others = [name for name in DOMAINS if name != group]
    trials = Calibrated(left_out(material, others))
    threshold = trials.threshold(FARS[0])
    model = model_of(material, others, matcher_of(material, others))
    rows = []
    domains = [(domain, JUDGED) for domain in DOMAINS[group]]
    if group in NEAR_MATCH_DOMAINS:
        domains.append((NEAR_MATCH_DOMAINS[group], ((20, OWN), (5, OWN))))
    for domain, deployments in domains:
        draws: dict[tuple[str, int, int | None], list[Outcome]] = {}
        for seed in DRAWS:
            for one in outcomes(model, material, domain, deployments, seed):
                draws.setdefault((one.condition, one.people, one.phrases), []).append(one)
        for some in draws.values():
            one = together(some)
            if np.count_nonzero(one.truth == 0) >= FEWEST_OWNERS:
                logs = one.calibrated(trials.calibrator)
                rows.append(result_row(one, logs, threshold))
    return rows


def together(draws: Sequence[Outcome]) -> Outcome:
    """Trials of several deployments, as those of the first."""
    return replace(
        draws[0],
        logs={h: np.concatenate([one.logs[h] for one in draws]) for h in draws[0].logs},
        truth=np.concatenate([one.truth for one in draws]),
        speaker=np.concatenate([one.speaker for one in draws]),
        cosines={v: np.concatenate([one.cosines[v] for one in draws]) for v in draws[0].cosines},
        near_matches=NearMatches.together([one.near_matches for one in draws]),
    )


def result_row(one: Outcome, logs: Mapping[Hypothesis, Array], threshold: float) -> dict[str, Any]:
    scores = ratios(logs, VIEWS)
    voice, words = (ratios(logs, (view,)) for view in VIEWS)
    by_kind = {KINDS[kind]: scores[one.truth == kind] for kind in np.unique(one.truth)}
    # decided as in use: no half may be more likely different than the same
    accepted = (scores >= threshold) & (voice >= 0) & (words >= 0)
    only_words = (words < 0) & (voice >= 0)
    row: dict[str, Any] = {
        "corpus left out": one.domain,
        "condition": one.condition,
        "people": one.people,
        "phrases": {None: "all", OWN: "own"}.get(one.phrases, one.phrases),
        "threshold": threshold,
        "accepted": {
            kind: float(accepted[one.truth == KINDS.index(kind)].mean()) for kind in by_kind
        },
        "right reason": float(only_words[one.truth == KINDS.index("TW")].mean()),
    }
    for view in VIEWS:
        same = ~np.isin(one.truth, IMPOSTORS[view,])
        if same.any() and not same.all():
            rates = {"": ratios(logs, (view,)), ", cosine": one.cosines[view]}
            for name, own in rates.items():
                row[f"EER {view}{name}"] = float(eer(own[same], own[~same]))
    # Cllr in bits, in which the kinds of impostors weigh the same
    owners = by_kind.pop("TC")
    row["Cllr, least"] = float(min_cllr(owners, np.concatenate(list(by_kind.values()))))
    missed = np.logaddexp(0, -owners).mean()
    passed = np.mean([np.logaddexp(0, own).mean() for own in by_kind.values()])
    row["Cllr"] = float((missed + passed) / 2 / np.log(2))
    return row


def make_bundle(material: LabelledVectors, extractor: str) -> Bundle:
    """The model of all corpora, calibrated and given thresholds by leaving each of them out."""
    groups = list(DOMAINS)
    model = model_of(material, groups, matcher_of(material, groups))
    bundle = Bundle(None, model, extractor=extractor)
    bundle.calibrations = {}
    bundle.points = {}
    for known in (None, ["phrase"]):
        trials = left_out(material, groups, named=known is not None)
        for views in IMPOSTORS:
            # what is known of phrases is of use to questions about them
            if known is not None and "phrase" not in views:
                continue
            key = question_key(Question(views, known=known), VIEWS)
            calibrated = Calibrated(trials, views)
            bundle.calibrations[key] = calibrated.calibrator
            bundle.points[key] = distinct_points([calibrated.point(far) for far in FARS])
    return bundle


WORK_ARGUMENT = click.argument("work", type=click.Path(path_type=Path))


@click.group()
def main() -> None:
    """Make the default model of the package."""


@main.command()
@WORK_ARGUMENT
@click.argument("roots", nargs=len(DOMAINS), metavar="AUDIOMNIST SPEECH-COMMANDS CVAU")
def vectors(work: Path, roots: tuple[str, ...]) -> None:
    """Make vectors of the recordings of three corpora, in WORK."""
    for name, root in zip(DOMAINS, roots, strict=True):
        write_vectors(work, name, Path(root))


@main.command()
@WORK_ARGUMENT
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=DEFAULT_MODEL, show_default=False
)
@click.option("--results", type=click.Path(path_type=Path), help="Where the results are written.")
def model(work: Path, output: Path, results: Path | None) -> None:
    """Fit, calibrate and measure the model of vectors in WORK."""
    command = f"python -m tools.default_model.build model {WORK} -o {WORK}/default.safetensors --results {OUTPUT}"
    record = provenance([work / f"{name}.npz" for name in DOMAINS], command=command)
    material = read_labelled_vectors(work)
    rows = []
    for group in DOMAINS:
        rows += evaluated(material, group)
        click.echo(f"{group} left out: done")
    bundle = make_bundle(material, load_extractor(list(EXTRACTORS)).name)
    people = {g: len(np.unique(material.speaker[material.corpus == g])) for g in DOMAINS}
    about = {"name": "default", "basis": BASIS, "licence": LICENCE}
    bundle.card = {**about, "people": people, "left_out": rows}
    bundle.save(output)
    if results is not None:
        points = {
            key: [one.to_dict() for one in some] for key, some in (bundle.points or {}).items()
        }
        title = "The default model on corpora left out"
        figures = {
            "points": {**points, "provenance": record},
            "rows": with_provenance(rows, record),
        }
        write_results(results / "results.json", title, **figures)


if __name__ == "__main__":
    # by its own name, under which other processes find what they are to do
    from tools.default_model.build import main as run

    run()
