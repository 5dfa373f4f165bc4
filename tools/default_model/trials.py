"""Trials of deployments on corpora, their calibration and thresholds.

A deployment is a set of people who enrolled some phrases; tests of the same people then try every profile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from mvplda._typing import Array, BoolArray, IntArray, Names
from mvplda.calibration.hypotheses import JOINT_EVIDENCE, HypothesisCalibrator
from mvplda.decisions import LOWEST_THRESHOLD, MeasuredRates, OperatingPoint, RateInterval
from mvplda.scoring.question import Hypothesis, NearMatches, Question
from mvplda.voice.domain.estimator import DomainPLDA
from mvplda.voice.extractors.recipe import default_recipes
from tools.default_model.recordings import (
    CONDITIONS,
    DOMAINS,
    NEAR_MATCH_DOMAINS,
    LabelledVectors,
)

VIEWS = ("speaker", "phrase")
BLOCKS = {name: (recipe.width, recipe.views[0]) for name, recipe in default_recipes().items()}
"""Width and view of each extractor's block of columns."""
POINT_BLOCKS = [name for name, recipe in default_recipes().items() if recipe.has_points]
"""Blocks whose vectors are points in time."""

OWN = 0
"""Value of the number of phrases for one phrase per person, different between people if possible."""
Deployment = tuple[int, int | None]
"""Number of people, and number of phrases that all of them enrol; None for all phrases."""
CALIBRATION_DEPLOYMENTS: tuple[Deployment, ...] = (
    (3, None),
    (20, None),
    (20, 1),
    (10, 3),
    (3, OWN),
    (20, OWN),
)
EVALUATION_DEPLOYMENTS: tuple[Deployment, ...] = ((20, None), (20, 1), (5, 2), (20, OWN), (5, OWN))
SINGLE_ENROLMENT_DOMAINS = DOMAINS["speech-commands"]
"""Domains with few cells of more than two recordings: one recording enrols instead of two."""
MAX_TESTS = 300
"""Tests per condition of a deployment."""
MAX_TRIALS = 500
"""Trials per kind and condition of a deployment."""
BOOTSTRAP = 500

KINDS = ("TC", "TW", "IC", "IW")
IMPOSTOR_KINDS = {VIEWS: (1, 2, 3), ("speaker",): (2, 3), ("phrase",): (1, 3)}
"""Indices into `KINDS` of the trials whose right answer is no, by the views of the question."""


@dataclass(frozen=True)
class DeploymentTrials:
    """Trials of one deployment in one condition.

    Attributes
    ----------
    domain, condition : domain and simulated condition of the tests
    people, phrases : the deployment
    logs : {hypothesis: (n,) log-likelihoods}
    truth : (n,) index of the kind in `KINDS`
    speaker : (n,) speaker of the profile
    cosines : {view: (n,) sums of cosines}, the baseline
    near_matches : log-likelihoods that another phrase is a near match
    """

    domain: str
    condition: str
    people: int
    phrases: int | None
    logs: Mapping[Hypothesis, Array]
    truth: IntArray
    speaker: Names
    cosines: Mapping[str, Array]
    near_matches: NearMatches | None = None

    def calibrated(self, calibrator: HypothesisCalibrator) -> dict[Hypothesis, Array]:
        """Return calibrated log-likelihoods, as `Bundle.answer` computes them."""
        return calibrator.transform(self.logs, self.near_matches)


class CalibratedTrials:
    """Trials of several deployments, and a calibration for one question fitted to them; domains weigh the same."""

    def __init__(
        self, deployments: Sequence[DeploymentTrials], views: tuple[str, ...] = VIEWS
    ) -> None:
        self.views = views
        trials = join_trials(deployments)
        if len(views) == 1:
            # the view that the question leaves open has no influence
            log_likelihoods = trials.logs[views]
            logs = {
                h: log_likelihoods if views[0] in h else 0.0 * log_likelihoods for h in trials.logs
            }
            trials = replace(trials, logs=logs)
        self.truth = trials.truth
        self.speaker = trials.speaker
        self.domain = np.repeat(
            [deployment.domain for deployment in deployments],
            [len(deployment.truth) for deployment in deployments],
        )
        self.calibrator = HypothesisCalibrator()
        if "phrase" not in views:
            trials = replace(trials, near_matches=None)
        self.calibrator.fit(
            trials.logs,
            self.truth,
            speakers=self.speaker,
            corpora=self.domain,
            near_matches=trials.near_matches,
        )
        if len(views) == 1:
            silent = [term for term in (*VIEWS, JOINT_EVIDENCE) if term not in views]
            self.calibrator.weights_ |= dict.fromkeys(silent, 0.0)
        self.logs = trials.calibrated(self.calibrator)

    def threshold(self, far: float) -> float:
        """Return the threshold that no kind of impostor passes at a rate above `far`; domains weigh the same."""
        scores = ratios(self.logs, self.views)
        limits = [LOWEST_THRESHOLD]
        for kind in IMPOSTOR_KINDS[self.views]:
            rows = np.flatnonzero(self.truth == kind)
            rows = rows[np.argsort(scores[rows])]
            # rate of acceptance if only higher scores than that of each row are accepted
            passed = 1.0 - np.cumsum(equal_weights(self.domain[rows]))
            highest_rejected = scores[rows[np.searchsorted(-passed, -far)]]
            limits.append(float(np.nextafter(highest_rejected, np.inf)))
        return max(limits)

    def point(self, far: float) -> OperatingPoint:
        """Return the operating point for a rate of false acceptances, with the rates measured there.

        Domains weigh the same in the rates, as they do in the threshold.
        """
        threshold = self.threshold(far)
        accepted = ratios(self.logs, self.views) >= threshold
        impostors = IMPOSTOR_KINDS[self.views]
        rates = {KINDS[kind]: self._rate(accepted, self.truth == kind) for kind in impostors}
        missed = self._rate(~accepted, ~np.isin(self.truth, impostors))
        basis = "corpora that were left out, in five conditions, all corpora weighing the same"
        people = len(np.unique(self.speaker))
        measured = MeasuredRates(far=rates, frr=missed)
        return OperatingPoint(threshold, 0.0, far, measured, people, basis)

    def _rate(self, events: BoolArray, rows: BoolArray) -> RateInterval:
        """Return the rate of events among some trials, with its interval."""
        weights = equal_weights(self.domain[rows])
        return share_over_people(events[rows], self.speaker[rows], weights)


def equal_weights(groups: Names) -> Array:
    """Return a weight per trial (n,), equal in sum for every group; all weights sum to 1."""
    names, codes, counts = np.unique(groups, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / (counts[codes] * len(names)))


def ratios(logs: Mapping[Hypothesis, Array], views: tuple[str, ...]) -> Array:
    """Return LLRs that some views are the same from calibrated log-likelihoods."""
    return Question(views).ratio(VIEWS).of(logs)


def share_over_people(events: BoolArray, speakers: Names, weights: Array) -> RateInterval:
    """Return the weighted share of events among trials, and its 95 % interval from a bootstrap over people.

    Without any event, the upper limit is 1 - 0.05^(1 / people), about 3 / people.
    """
    people, codes = np.unique(speakers, return_inverse=True)
    totals = np.bincount(codes, weights)
    hits = np.bincount(codes, weights * events)
    draws = np.random.default_rng(0).integers(0, len(people), (BOOTSTRAP, len(people)))
    shares = hits[draws].sum(axis=1) / totals[draws].sum(axis=1)
    low, high = np.quantile(shares, (0.025, 0.975))
    if not events.any():
        high = 1 - 0.05 ** (1 / len(people))
    return RateInterval(float(np.average(events, weights=weights)), float(low), float(high))


def deployment_trials(
    model: DomainPLDA,
    vectors: LabelledVectors,
    domain: str,
    deployments: Sequence[Deployment],
    seed: int = 0,
    named: bool = True,
) -> Iterator[DeploymentTrials]:
    """Yield the trials of deployments in one domain: clean recordings enrol, recordings in all conditions test.

    named : whether profiles have the names of their phrases, so that the deployment knows the phrases
    """
    domain_vectors = vectors.select(vectors.domain == domain)
    for people, phrases in deployments:
        rng = np.random.default_rng([seed, people, phrases or 0])
        speakers = rng.permutation(np.unique(domain_vectors.speaker))[:people]
        drawn = domain_vectors.select(np.isin(domain_vectors.speaker, speakers))
        enrol_rows, is_test = _split(drawn, domain, phrases, rng)
        tests = {
            condition: rng.permutation(np.flatnonzero(is_test & (drawn.condition == condition)))
            for condition in ("clean", *CONDITIONS)
        }

        # people are deployed with all their phrases; each phrase of a person is tried as a profile of its own
        enrolled = drawn.select(enrol_rows)
        labels = {"phrase": enrolled.phrase} if named else None
        deployed = model.deployed(model.enrol(enrolled.vectors, enrolled.speaker, labels))
        cells = np.char.add(np.char.add(enrolled.speaker, "|"), enrolled.phrase)
        profiles = model.enrol(enrolled.vectors, cells, labels)
        # without names, the deployment knows no classes
        question = Question(known=list(deployed.names_) or None)
        owner, phrase = np.char.partition(profiles.ids.astype(np.str_), "|")[:, [0, 2]].T
        for condition, all_rows in tests.items():
            rows = all_rows[:MAX_TESTS]
            if not len(rows):
                continue
            test_profiles = model.enrol(drawn.vectors[rows])
            other_speaker = owner[:, None] != drawn.speaker[rows]
            other_phrase = phrase[:, None] != drawn.phrase[rows]
            truth = 2 * other_speaker.astype(np.int64) + other_phrase
            chosen = np.concatenate(
                [
                    rng.permutation(np.flatnonzero(truth == kind))[:MAX_TRIALS]
                    for kind in range(len(KINDS))
                ]
            )
            pairs = np.stack(np.unravel_index(chosen, truth.shape), axis=1)
            near_matches = deployed.near_matches(profiles, test_profiles, pairs, VIEWS)
            logs = deployed.log_likelihoods(profiles, test_profiles, question)
            cosines = _cosines(profiles.y, test_profiles.y)
            yield DeploymentTrials(
                domain,
                condition,
                len(speakers),
                phrases,
                {h: np.asarray(values).ravel()[chosen] for h, values in logs.items()},
                truth.ravel()[chosen],
                np.repeat(owner, len(rows))[chosen],
                {view: values.ravel()[chosen] for view, values in cosines.items()},
                near_matches,
            )


def _split(
    drawn: LabelledVectors, domain: str, phrases: int | None, rng: Generator
) -> tuple[IntArray, BoolArray]:
    """Return the rows that enrol, and a mask of the rows that may test."""
    is_clean = drawn.condition == "clean"
    has_third = drawn.repetition.max() >= 2
    per_profile = 2 if has_third and domain not in SINGLE_ENROLMENT_DOMAINS else 1
    enrol = np.flatnonzero(is_clean & (drawn.repetition < per_profile))
    is_test = drawn.repetition >= per_profile
    if domain in NEAR_MATCH_DOMAINS.values():
        is_right = is_repeated(drawn)
        enrol = enrol[is_right[enrol]]
        is_test |= ~is_right
    if phrases == OWN:
        enrol = enrol[own_phrases(drawn.speaker[enrol], drawn.phrase[enrol], rng)]
    elif phrases is not None:
        names, counts = np.unique(drawn.phrase[enrol], return_counts=True)
        common = names[np.argsort(-counts, kind="stable")][: max(6, phrases)]
        enrol = enrol[np.isin(drawn.phrase[enrol], rng.permutation(common)[:phrases])]
    return enrol, is_test


def own_phrases(people: Names, phrases: Names, rng: Generator) -> BoolArray:
    """Return a mask of the rows of one phrase per person, different between people if there are enough phrases."""
    rows = np.zeros(len(people), dtype=bool)
    for person in np.unique(people):
        is_person = people == person
        free = np.setdiff1d(phrases[is_person], phrases[rows])
        phrase = rng.choice(free if len(free) else phrases[is_person])
        rows |= is_person & (phrases == phrase)
    return rows


def is_repeated(vectors: LabelledVectors) -> BoolArray:
    """Return a mask of the phrases that a person recorded repeatedly; variants with a replaced word occur once."""
    cells = np.char.add(np.char.add(vectors.speaker, "|"), vectors.phrase)
    return np.isin(cells, cells[vectors.repetition > 0])


def join_trials(deployments: Sequence[DeploymentTrials]) -> DeploymentTrials:
    """Concatenate the trials of several deployments; the result has the description of the first."""
    first = deployments[0]
    return replace(
        first,
        logs={h: np.concatenate([trials.logs[h] for trials in deployments]) for h in first.logs},
        truth=np.concatenate([trials.truth for trials in deployments]),
        speaker=np.concatenate([trials.speaker for trials in deployments]),
        cosines={
            view: np.concatenate([trials.cosines[view] for trials in deployments])
            for view in first.cosines
        },
        near_matches=NearMatches.concatenate([trials.near_matches for trials in deployments]),
    )


def _cosines(enrolled: Any, tested: Any) -> dict[str, Array]:
    """Return (profiles, tests) cosines of each view, after centring by the profiles; a view sums its embeddings."""
    stops = np.cumsum([width for width, _ in BLOCKS.values()])
    cosines = {view: np.zeros((len(enrolled), len(tested))) for view in VIEWS}
    for (name, (width, view)), stop in zip(BLOCKS.items(), stops, strict=True):
        if name in POINT_BLOCKS:
            continue
        columns = slice(stop - width, stop)
        centre = _unit(enrolled[:, columns]).mean(axis=0)
        sides = [_unit(_unit(side[:, columns]) - centre) for side in (enrolled, tested)]
        cosines[view] += sides[0] @ sides[1].T
    return cosines


def _unit(vectors: NDArray[np.float64]) -> Array:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-9))
