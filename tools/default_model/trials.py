"""Trials of deployments on corpora, their calibration and thresholds.

A deployment is a set of people who enrolled some phrases; tests of the same people then try every profile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from mvplda._typing import Array, BoolArray, IntArray, Names
from mvplda.calibration import AmountCalibrator, Calibrator
from mvplda.decisions import (
    LOWEST_THRESHOLD,
    HalfThreshold,
    MeasuredRates,
    OperatingPoint,
    RateInterval,
)
from mvplda.scoring.profiles import Profiles
from mvplda.scoring.question import Hypothesis, NearMatches, Question
from mvplda.voice.domain.bandwidth import DIFFERENT_BANDS
from mvplda.voice.domain.estimator import RECORDINGS, DomainPLDA
from mvplda.voice.extractors.recipe import default_recipes
from tools.default_model.recordings import (
    CALL,
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
"""Number of phrases of a deployment for one phrase per person, different between people if possible."""


class Deployment(NamedTuple):
    """Description of a deployment: how many people enrol, and what.

    people : number of people; None: every profile is alone in a deployment of its own, as in `Bundle.paired`
    phrases : number of phrases that every person enrols; None: all phrases; `OWN`: one phrase per
        person, different between people if possible
    recordings : number of enrolled recordings per phrase
    condition : condition of the enrolled recordings, "clean" or `CALL`
    """

    people: int | None
    phrases: int | None
    recordings: int = 2
    condition: str = "clean"


CALIBRATION_DEPLOYMENTS = (
    Deployment(20, None, 1),
    Deployment(20, None, 3),
    Deployment(10, 3, 2),
    Deployment(5, OWN, 1),
    Deployment(20, OWN, 3),
    Deployment(20, None, 1, CALL),
    Deployment(20, None, 3, CALL),
)
ALONE_DEPLOYMENTS = (
    Deployment(None, None, 1),
    Deployment(None, None, 3),
    Deployment(None, None, 1, CALL),
    Deployment(None, None, 3, CALL),
)
EVALUATION_DEPLOYMENTS = (
    Deployment(20, None, 1),
    Deployment(20, None, 3),
    Deployment(20, 1, 3),
    Deployment(5, OWN, 1),
    Deployment(5, OWN, 3),
    Deployment(20, None, 1, CALL),
    Deployment(20, None, 3, CALL),
)
TESTED = {"clean": ("clean", *CONDITIONS), CALL: (CALL, "clean")}
"""Conditions of the tests, by the condition of the enrolled recordings."""
MAX_ALONE = 80
"""Profiles per domain that are alone in a deployment."""
MAX_TESTS = 300
"""Tests per condition of a deployment."""
MAX_TRIALS = (500, 500, 1200, 200)
"""Trials per condition of a deployment, by kind."""
BOOTSTRAP = 500
KINDS = ("TC", "TW", "IC", "IW")
IMPOSTOR_KINDS = {VIEWS: (1, 2, 3), ("speaker",): (2, 3), ("phrase",): (1, 3)}
"""Indices into `KINDS` of the trials whose right answer is no, by the views of the question."""
SAME_SEX, SINGLE_WORD, NEARLY = "IC, same sex", "TW, single words", "TW, nearly the right words"
"""Kinds of impostors that are counted separately."""

NEAR_DOMAINS = tuple(NEAR_MATCH_DOMAINS.values())
SHARED_WORDS = "calls joined"
"""A domain whose phrases are nearly the same: every phrase has some of the same five words."""
SINGLE_WORDS = tuple(domains[0] for corpus, domains in DOMAINS.items() if len(domains) > 1)
WORDS_ALLOWED = {"TW": 0.01, SINGLE_WORD: 0.05, NEARLY: 0.1}
"""Shares of other words of the owner that may pass the half of words in the worst domain. Single words are no
pass-phrases."""
NARROW_CONDITIONS = ("telephone", CALL)
SAME_BAND, DIFFERENT, SIMULATED_CALLS = "same band", "different bands", "simulated calls"
"""Bands of the two sides of trials. No threshold is chosen on trials with simulated calls on both sides, because they
leave voices more alike than real calls do."""
BAND_FAR = 0.01
"""Share of impostors for which the threshold of trials with different bands is made that of the others."""
MIN_IMPOSTOR_TRIALS = 100
"""Fewest impostor trials of a domain that a threshold is chosen for."""
MAX_CALIBRATION_TRIALS = 800
"""Trials per domain and kind that a calibration is fitted to."""
BASIS = (
    "the worst of the corpora that were left out; twice the share for impostors of the owner's sex"
)


@dataclass(frozen=True)
class DeploymentTrials:
    """Trials of one deployment in one condition.

    Attributes
    ----------
    corpus, domain : corpus and domain of all recordings
    condition : condition of the tests, such as "noise"
    deployment : description of the deployment, with the condition of the enrolled recordings
    logs : {hypothesis: (n,) log-likelihoods}
    truth : (n,) kind of each trial, as an index into `KINDS`
    speaker, tester : (n,) speaker of the profile and of the test
    same_sex : (n,) whether both have the same sex or, if it is not labelled, similar pitch
    measures : {name of a quality measure, such as the seconds of the test: (n,) values}
    cosines : {block: (n,) cosines of the two sides}, scores of a baseline
    near_matches : prior probability and LLRs of near matches; None: the model detects none
    """

    corpus: str
    domain: str
    condition: str
    deployment: Deployment
    logs: Mapping[Hypothesis, Array]
    truth: IntArray
    speaker: Names
    tester: Names
    same_sex: BoolArray
    measures: Mapping[str, Array]
    cosines: Mapping[str, Array]
    near_matches: NearMatches | None = None

    @property
    def bands(self) -> str:
        """How the bands of the two sides compare: `SAME_BAND`, `DIFFERENT` or `SIMULATED_CALLS`.

        A telephone has a narrow band. Simulated calls are narrow on both sides.
        """
        sides = (self.deployment.condition, self.condition)
        narrow = sum(condition in NARROW_CONDITIONS for condition in sides)
        return (SAME_BAND, DIFFERENT, SIMULATED_CALLS)[narrow]

    def calibrated(self, calibrator: Calibrator, views: Sequence[str]) -> dict[Hypothesis, Array]:
        """Return calibrated log-likelihoods, {hypothesis: (n,)}, as `Bundle.answer` computes them.

        The outlier probability of the calibration is not applied, because thresholds of single
        views apply to such values.

        calibrator : fitted calibration of the question
        views : views of the question
        """
        near_matches = self.near_matches if "phrase" in views else None
        return dict(calibrator.without_outliers(self.logs, near_matches, self.measures))

    def take(self, rows: IntArray | BoolArray) -> DeploymentTrials:
        """Return some of the trials.

        rows : indices of the trials, or a mask of all trials
        """
        near_matches = self.near_matches
        if near_matches is not None:
            prior, llr, same = (values[rows] for values in near_matches[1:])
            near_matches = NearMatches(near_matches.view, prior, llr, same)
        columns = {name: getattr(self, name)[rows] for name in COLUMNS}
        tables = {
            name: {key: values[rows] for key, values in getattr(self, name).items()}
            for name in TABLES
        }
        return replace(self, near_matches=near_matches, **columns, **tables)


COLUMNS = ("truth", "speaker", "tester", "same_sex")
TABLES = ("logs", "measures", "cosines")
"""Fields of `DeploymentTrials` with values per trial."""


class CalibratedTrials:
    """Trials of several deployments, with a calibration for one question fitted to them.

    views : views of the question
    trials : the trials of all deployments
    domain, condition, bands : (n,) domain, condition and bands of each trial
    people : number of people among the owners and the testers
    calibrator : the fitted calibration
    halves : {view: (n,) calibrated LLRs of the view alone}; a view of the question is called a half
    """

    def __init__(
        self, deployments: Sequence[DeploymentTrials], views: tuple[str, ...] = VIEWS
    ) -> None:
        self.views = views
        self.trials = join_trials(deployments)
        sizes = [len(trials.truth) for trials in deployments]
        self.domain = np.repeat([trials.domain for trials in deployments], sizes)
        self.condition = np.repeat([trials.condition for trials in deployments], sizes)
        self.bands = np.repeat([trials.bands for trials in deployments], sizes)
        self.people = len(np.unique(np.concatenate([self.trials.speaker, self.trials.tester])))
        self.calibrator = fit_calibrator(
            [trials for trials in deployments if trials.deployment.condition != CALL], views
        )
        self.halves = self._calibrated_halves()
        if "speaker" in views:
            self._shift_bands()
            self.halves = self._calibrated_halves()

    def _calibrated_halves(self) -> dict[str, Array]:
        """Return {view: (n,) calibrated LLRs of the view alone}, for the views of the question."""
        return half_llrs(self.trials.calibrated(self.calibrator, self.views), self.views)

    def _shift_bands(self) -> None:
        """Let the calibration add a constant to the voice's LLR if the two sides differ in band.

        A narrow band on one side alone lowers the LLRs of owners and of impostors. With the
        constant, the proportion `BAND_FAR` of impostors passes at the same threshold as in trials
        with equal bands. The constant is at least 0.
        """
        same = self._voice_limit(BAND_FAR, self.bands == SAME_BAND)
        different = self._voice_limit(BAND_FAR, self.bands == DIFFERENT)
        shift = 0.0
        if same is not None and different is not None:
            shift = max(0.0, same - different)
        self.calibrator.shift(DIFFERENT_BANDS, {"speaker": shift})

    def _voice_limit(self, far: float, rows: BoolArray) -> float | None:
        """Return the LLR of the voice that the proportion `far` of impostors exceeds.

        far : proportion of impostors, from 0 to 1
        rows : (n,) mask of the trials to use; with too few impostors in them, the result is None
        """
        if self.views == ("speaker",):
            is_impostor = self._ordinary_impostors() & rows
            enough = np.count_nonzero(is_impostor) >= MIN_IMPOSTOR_TRIALS
            return self._threshold_of_mean(far, is_impostor) if enough else None
        return self._worst_limit("speaker", far, rows)

    def impostors(self, view: str) -> dict[str, BoolArray]:
        """Return the impostors on which the threshold of a view is measured, {kind: (n,) mask}.

        For "speaker" they are other people who say the right words: all of them, and those of the
        owner's sex. For "phrase" they are owners who say other words: phrases, single words, and
        near matches.
        """
        truth = self.trials.truth
        if view == "speaker":
            is_other = truth == KINDS.index("IC")
            return {"IC": is_other, SAME_SEX: is_other & self.trials.same_sex}
        is_other = truth == KINDS.index("TW")
        is_near = np.isin(self.domain, [*NEAR_DOMAINS, SHARED_WORDS])
        is_single = np.isin(self.domain, SINGLE_WORDS)
        kinds = {
            "TW": is_other & ~is_near & ~is_single,
            SINGLE_WORD: is_other & is_single,
            NEARLY: is_other & is_near,
        }
        return {kind: mask for kind, mask in kinds.items() if mask.any()}

    def threshold(self, view: str, far: float) -> float:
        """Return the LLR of a view from which the view is accepted, at least `LOWEST_THRESHOLD`.

        If the question is about both views, the limits hold in every domain: for the voice, at most
        the proportion `far` of impostors passes, and at most 2 `far` of those of the owner's sex.
        For the words, `WORDS_ALLOWED` has the limits; that for other phrases is at most `far`. If
        the question is about the words alone, `far` is the limit for phrases and single words.

        If it is about the voice alone, as in identification, the limit `far` holds for the mean
        over domains: identification divides `far` by the number of profiles, and the threshold of
        the worst domain would then reject nearly all owners.
        """
        if self.views == ("speaker",):
            rows = self._ordinary_impostors() & self._is_measured
            return max(LOWEST_THRESHOLD, self._threshold_of_mean(far, rows))
        limit = self._worst_limit(view, far, self._is_measured)
        return LOWEST_THRESHOLD if limit is None else max(LOWEST_THRESHOLD, limit)

    @property
    def _is_measured(self) -> BoolArray:
        """Mask (n,) of the trials from which thresholds are chosen: all but simulated calls."""
        return np.asarray(self.bands != SIMULATED_CALLS)

    def _allowed(self, far: float) -> dict[str, float]:
        """Return {kind of impostor: proportion that may be accepted}; of other kinds, `far` may."""
        allowed = WORDS_ALLOWED | {"TW": min(far, WORDS_ALLOWED["TW"]), SAME_SEX: 2.0 * far}
        if self.views == ("phrase",):
            allowed |= {"TW": far, SINGLE_WORD: far}
        return allowed

    def _worst_limit(self, view: str, far: float, rows: BoolArray) -> float | None:
        """Return the lowest threshold of a view that meets the limits in every domain.

        The limits of `_allowed` hold for each kind of impostor with at least `MIN_IMPOSTOR_TRIALS`
        trials in a domain. Without any such kind, the result is None.

        view : "speaker" or "phrase"
        far : limit of kinds that `_allowed` does not name
        rows : (n,) mask of the trials to use
        """
        allowed = self._allowed(far)
        limits = []
        for kind, is_impostor in self.impostors(view).items():
            for domain in np.unique(self.domain[is_impostor & rows]):
                llrs = self.halves[view][is_impostor & rows & (self.domain == domain)]
                if len(llrs) >= MIN_IMPOSTOR_TRIALS:
                    limits.append(threshold_exceeded_by(llrs, allowed.get(kind, far)))
        return max(limits, default=None)

    def _ordinary_impostors(self) -> BoolArray:
        """Return a mask (n,) of the trials of other people who say the right words.

        Domains of near matches are left out.
        """
        is_impostor = self.trials.truth == KINDS.index("IC")
        return np.asarray(is_impostor & ~np.isin(self.domain, NEAR_DOMAINS))

    def _threshold_of_mean(self, far: float, is_impostor: BoolArray) -> float:
        """Return the lowest LLR of the voice that at most a proportion `far` of impostors reaches.

        The proportion is the mean over domains, all with the same weight.

        far : proportion from 0 to 1
        is_impostor : (n,) mask of the impostors' trials
        """
        rows = np.flatnonzero(is_impostor)
        llrs = self.halves["speaker"][rows]
        order = np.argsort(llrs)
        # rate of acceptance if only higher LLRs than that of each row are accepted
        passed = 1.0 - np.cumsum(equal_weights(self.domain[rows])[order])
        return float(np.nextafter(llrs[order[np.searchsorted(-passed, -far)]], np.inf))

    def point(self, far: float) -> OperatingPoint:
        """Return the operating point for a rate of false acceptances, with measured error rates.

        The point has a threshold per view of the question. Error rates are means over domains, all
        with the same weight.

        far : rate of false acceptances from 0 to 1, see `threshold`
        """
        accepts = {view: self.threshold(view, far) for view in self.views}
        passed = {view: self.halves[view] >= accept for view, accept in accepts.items()}
        is_owner = ~np.isin(self.trials.truth, IMPOSTOR_KINDS[self.views])
        halves = {}
        for view, accept in accepts.items():
            rates = {
                kind: self._rate(passed[view], rows) for kind, rows in self.impostors(view).items()
            }
            missed = self._rate(~passed[view], is_owner)
            measured = MeasuredRates(far=rates, frr=missed)
            halves[view] = HalfThreshold(accept, 0.0, measured, self.people)
        accepted = np.all(list(passed.values()), axis=0)
        # nearly the right words are in the rates of the half
        is_ordinary = ~np.isin(self.domain, NEAR_DOMAINS)
        rates = {
            KINDS[kind]: self._rate(accepted, is_ordinary & (self.trials.truth == kind))
            for kind in IMPOSTOR_KINDS[self.views]
        }
        measured = MeasuredRates(far=rates, frr=self._rate(~accepted, is_owner))
        return OperatingPoint.from_halves(
            halves, far=far, measured=measured, people=self.people, basis=BASIS
        )

    def _rate(self, events: BoolArray, rows: BoolArray) -> RateInterval:
        """Return the proportion of trials with an event, with its 95 % interval.

        Domains have the same weight; simulated calls on both sides are left out.

        events : (n,) mask of the trials with the event, such as an acceptance
        rows : (n,) mask of the trials to use
        """
        rows = rows & self._is_measured
        weights = equal_weights(self.domain[rows])
        return share_over_people(events[rows], self.trials.speaker[rows], weights)


def fit_calibrator(
    deployments: Sequence[DeploymentTrials], views: tuple[str, ...]
) -> AmountCalibrator:
    """Fit a calibration for a question about some views; all corpora have the same weight.

    The LLR of the voice depends on the amount of evidence, such as the seconds of the test. That of
    the words does not: some languages have similar single words, which would make the LLRs of
    longer phrases too low. For a question about both views, impostors differ from the profile in
    one view only. Trials that differ in both are easy to reject, and would hide how similar two
    voices are that say the same words. Near matches are fitted by `fit_near_matches`.

    deployments : trials of all deployments
    views : views of the question
    """
    rng = np.random.default_rng(0)
    kinds = range(len(KINDS) - 1 if len(views) > 1 else len(KINDS))
    samples = []
    for domain in dict.fromkeys(trials.domain for trials in deployments):
        if domain not in NEAR_DOMAINS:
            trials = join_trials([trials for trials in deployments if trials.domain == domain])
            rows = [
                rng.permutation(np.flatnonzero(trials.truth == kind))[:MAX_CALIBRATION_TRIALS]
                for kind in kinds
            ]
            samples.append(trials.take(np.concatenate(rows)))
    trials = join_trials(samples)
    corpora = np.repeat(
        [sample.corpus for sample in samples], [len(sample.truth) for sample in samples]
    )
    logs = dict(trials.logs)
    if len(views) == 1:
        # the view that the question leaves open has no influence
        alone = logs[views] - logs[()]
        logs = {h: alone if views[0] in h else np.zeros_like(alone) for h in logs}
    amounts = {name: values for name, values in trials.measures.items() if name != DIFFERENT_BANDS}
    calibrators = [
        AmountCalibrator().fit(
            logs,
            trials.truth,
            speakers=trials.speaker,
            corpora=corpora,
            near_matches=trials.near_matches if "phrase" in views else None,
            measures=measures,
            test_speakers=trials.tester,
        )
        for measures in (amounts, {})
    ]
    calibrator, without_amounts = calibrators
    if "phrase" in views:
        fit_near_matches(calibrator, deployments)
        none = dict.fromkeys(calibrator.measures_, 0.0)
        calibrator.slopes_["phrase"] = without_amounts.slopes_["phrase"] | none
        calibrator.constants_["phrase"] = without_amounts.constants_["phrase"] | none
        calibrator.near_match_weight_ = without_amounts.near_match_weight_
    if len(views) == 1:
        calibrator.joint_weight_ = 0.0
        for view in set(VIEWS) - set(views):
            calibrator.slopes_[view] = dict.fromkeys(calibrator.slopes_[view], 0.0)
            calibrator.constants_[view] = dict.fromkeys(calibrator.constants_[view], 0.0)
    return calibrator


def fit_near_matches(calibrator: AmountCalibrator, deployments: Sequence[DeploymentTrials]) -> None:
    """Fit the LLR of the same phrase against near matches, and store it in a calibration.

    It is fitted to near matches and to owners' trials with phrases of several words. Without trials
    of near matches, the calibration stays unchanged.

    calibrator : fitted calibration, which is changed
    deployments : trials of all deployments
    """
    if not any(trials.domain in NEAR_DOMAINS for trials in deployments):
        return
    samples = [
        trials.take(
            (trials.truth == KINDS.index("TC"))
            | ((trials.truth == KINDS.index("TW")) & (trials.domain in NEAR_DOMAINS))
        )
        for trials in deployments
        if trials.domain not in SINGLE_WORDS
    ]
    trials = join_trials(samples)
    domains = np.repeat([sample.domain for sample in samples], [len(s.truth) for s in samples])
    assert trials.near_matches is not None
    calibrator.fit_near_matches(
        trials.logs,
        trials.near_matches,
        trials.truth == KINDS.index("TW"),
        corpora=domains,
        measures={RECORDINGS: trials.measures[RECORDINGS]},
    )


def half_llrs(logs: Mapping[Hypothesis, Array], views: Sequence[str]) -> dict[str, Array]:
    """Return {view: (n,) LLR of the view alone}, as `Answer.half_llr` computes it.

    logs : {hypothesis: (n,) calibrated log-likelihoods}
    views : the views
    """
    halves = {}
    for view in views:
        same = np.logaddexp.reduce([logs[h] for h in logs if view in h], axis=0)
        different = np.logaddexp.reduce([logs[h] for h in logs if view not in h], axis=0)
        halves[view] = np.asarray(same - different)
    return halves


def threshold_exceeded_by(llrs: Array, rate: float) -> float:
    """Return the lowest threshold that at most the proportion `rate` of the LLRs (n,) reaches."""
    ordered = np.sort(llrs)
    return float(np.nextafter(ordered[len(ordered) - 1 - int(rate * len(ordered))], np.inf))


def equal_weights(groups: Names) -> Array:
    """Return weights of trials (n,) such that all groups have the same total weight.

    groups : (n,) group of each trial, such as its domain; all weights sum to 1
    """
    names, codes, counts = np.unique(groups, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / (counts[codes] * len(names)))


def share_over_people(events: BoolArray, speakers: Names, weights: Array) -> RateInterval:
    """Return the weighted proportion of trials with an event, and its 95 % interval.

    The interval is that of a bootstrap over people. If no trial has the event, its upper limit is
    1 - 0.05^(1 / people), about 3 / people.

    events : (n,) mask of the trials with the event
    speakers : (n,) person whom each trial belongs to in the bootstrap
    weights : (n,) weight of each trial
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
    """Yield the trials of deployments in a domain, one item per deployment and condition of tests.

    People and phrases are drawn at random. People who are not enrolled are tested too, as
    impostors. `TESTED` has the conditions of the tests for each condition of enrolment.

    model : fitted model, which is adapted to each deployment
    vectors : vectors of all domains
    domain : name of the domain
    deployments : descriptions of the deployments
    seed : seed of the random draws
    named : whether profiles have the names of their phrases, which are known classes then
    """
    drawn = vectors.select(vectors.domain == domain)
    for deployment in deployments:
        people, phrases, recordings, enrolled_condition = deployment
        rng = np.random.default_rng([seed, people or 0, phrases or 0, recordings])
        enrol_rows, is_test = _split(drawn, domain, deployment, rng)
        if not len(enrol_rows):
            continue
        tests = {
            condition: rng.permutation(np.flatnonzero(is_test & (drawn.condition == condition)))
            for condition in TESTED[enrolled_condition]
        }
        enrolled = drawn.select(enrol_rows)
        labels = {"phrase": enrolled.phrase} if named else None
        cells = np.char.add(np.char.add(enrolled.speaker, "|"), enrolled.phrase)
        profiles = model.enrol(enrolled.vectors, cells, labels)
        if people is None:
            chosen_profiles = rng.permutation(len(profiles))[:MAX_ALONE]
            profiles = profiles.take(np.sort(chosen_profiles))
            scorers = [model.deployed(profiles[number]) for number in range(len(profiles))]
        else:
            # people are deployed with all their phrases; each phrase of a person is tried as a profile of its own
            scorers = [model.deployed(model.enrol(enrolled.vectors, enrolled.speaker, labels))]
        owner, phrase = np.char.partition(profiles.ids.astype(np.str_), "|")[:, [0, 2]].T
        for condition, all_rows in tests.items():
            rows = np.sort(all_rows[:MAX_TESTS])
            if not len(rows):
                continue
            tested = drawn.select(rows)
            test_profiles = model.enrol(tested.vectors)
            other_speaker = owner[:, None] != tested.speaker
            other_phrase = phrase[:, None] != tested.phrase
            truth = 2 * other_speaker.astype(np.int64) + other_phrase
            chosen = np.concatenate(
                [
                    rng.permutation(np.flatnonzero(truth == kind))[:most]
                    for kind, most in enumerate(MAX_TRIALS)
                ]
            )
            pairs = np.stack(np.unravel_index(np.sort(chosen), truth.shape), axis=1)
            cosines = _cosines(profiles.y, test_profiles.y, centred=people is not None)
            speakers, testers = owner[pairs[:, 0]], tested.speaker[pairs[:, 1]]
            yield DeploymentTrials(
                drawn.corpus[0],
                domain,
                condition,
                deployment,
                _logs_of_pairs(scorers, profiles, test_profiles, pairs),
                truth[tuple(pairs.T)],
                speakers,
                testers,
                drawn.is_high_voice(speakers) == drawn.is_high_voice(testers),
                model.evidence_measures(profiles, test_profiles, pairs) or {},
                {name: values[tuple(pairs.T)] for name, values in cosines.items()},
                scorers[0].near_matches(profiles, test_profiles, pairs, VIEWS),
            )


def _logs_of_pairs(
    scorers: Sequence[DomainPLDA], profiles: Profiles, tests: Profiles, pairs: IntArray
) -> dict[Hypothesis, Array]:
    """Return the log-likelihoods of some pairs of a profile and a test, {hypothesis: (n,)}.

    scorers : one scorer for all profiles, or one per profile
    profiles, tests : enrolled profiles and tests
    pairs : (n, 2) numbers of profile and test of each pair, sorted by profile
    """
    if len(scorers) == 1:
        # without names, the deployment knows no classes
        question = Question(known=list(scorers[0].names_) or None)
        return dict(scorers[0].log_likelihoods(profiles, tests, question, pairs=pairs))
    # pairs are sorted by profile
    bounds = np.searchsorted(pairs[:, 0], np.arange(len(profiles) + 1))
    pieces = []
    for number, scorer in enumerate(scorers):
        listed = pairs[bounds[number] : bounds[number + 1]] - [number, 0]
        if len(listed):
            question = Question(known=list(scorer.names_) or None)
            profile = profiles[number]
            pieces.append(scorer.log_likelihoods(profile, tests, question, pairs=listed))
    return {h: np.concatenate([piece[h] for piece in pieces]) for h in pieces[0]}


def _split(
    drawn: LabelledVectors, domain: str, deployment: Deployment, rng: Generator
) -> tuple[IntArray, BoolArray]:
    """Divide the recordings of a domain into enrolled recordings and candidates for tests.

    drawn : vectors of the domain
    domain : name of the domain; in one of near matches, only unchanged phrases are enrolled
    deployment : description of what is enrolled
    rng : generator that draws people and phrases

    Returns
    -------
    indices of the enrolled recordings, and a mask of the recordings that may be tests
    """
    people, phrases, recordings, condition = deployment
    is_condition = drawn.condition == condition
    cells = np.char.add(np.char.add(drawn.speaker, "|"), drawn.phrase)
    is_enough = np.isin(cells, cells[drawn.repetition >= recordings - 1])
    is_right = np.ones(len(cells), dtype=bool)
    if domain in NEAR_MATCH_DOMAINS.values():
        is_right = is_repeated(drawn)
    can_enrol = is_enough & is_right & is_condition & (drawn.repetition < recordings)
    speakers = rng.permutation(np.unique(drawn.speaker[can_enrol]))[:people]
    is_enrolled = np.isin(drawn.speaker, speakers)
    enrol = np.flatnonzero(can_enrol & is_enrolled)
    is_test = (drawn.repetition >= recordings) | ~is_right | ~is_enrolled
    if phrases == OWN:
        enrol = enrol[own_phrases(drawn.speaker[enrol], drawn.phrase[enrol], rng)]
    elif phrases is not None:
        names, counts = np.unique(drawn.phrase[enrol], return_counts=True)
        common = names[np.argsort(-counts, kind="stable")][: max(6, phrases)]
        enrol = enrol[np.isin(drawn.phrase[enrol], rng.permutation(common)[:phrases])]
    return enrol, is_test


def own_phrases(people: Names, phrases: Names, rng: Generator) -> BoolArray:
    """Draw one phrase per person, and return a mask (n,) of the recordings with these phrases.

    People get different phrases if there are enough.

    people, phrases : (n,) person and phrase of each recording
    """
    rows = np.zeros(len(people), dtype=bool)
    for person in np.unique(people):
        is_person = people == person
        free = np.setdiff1d(phrases[is_person], phrases[rows])
        phrase = rng.choice(free if len(free) else phrases[is_person])
        rows |= is_person & (phrases == phrase)
    return rows


def is_repeated(vectors: LabelledVectors) -> BoolArray:
    """Return a mask (n,) of the recordings whose person has several recordings of their phrase.

    Near matches are not among them, because each is recorded once.
    """
    cells = np.char.add(np.char.add(vectors.speaker, "|"), vectors.phrase)
    return np.isin(cells, cells[vectors.repetition > 0])


def join_trials(deployments: Sequence[DeploymentTrials]) -> DeploymentTrials:
    """Concatenate the trials of several deployments.

    Corpus, domain, condition and deployment of the result are those of the first item.
    """
    first = deployments[0]
    columns = {
        name: np.concatenate([getattr(trials, name) for trials in deployments]) for name in COLUMNS
    }
    tables = {
        name: {
            key: np.concatenate([getattr(trials, name)[key] for trials in deployments])
            for key in getattr(first, name)
        }
        for name in TABLES
    }
    near_matches = NearMatches.concatenate([trials.near_matches for trials in deployments])
    return replace(first, near_matches=near_matches, **columns, **tables)


def _cosines(enrolled: Any, tested: Any, centred: bool) -> dict[str, Array]:
    """Return the cosine of every profile with every test, {block: (profiles, tests)}.

    enrolled, tested : (profiles, D) and (tests, D) sums of projected vectors
    centred : whether the mean of the profiles is subtracted from both sides first
    """
    stops = np.cumsum([width for width, _ in BLOCKS.values()])
    cosines = {}
    for (name, (width, _)), stop in zip(BLOCKS.items(), stops, strict=True):
        # the last column of points is the duration
        columns = slice(stop - width, stop - 1 if name in POINT_BLOCKS else stop)
        centre = _unit(enrolled[:, columns]).mean(axis=0) if centred else 0.0
        sides = [_unit(_unit(side[:, columns]) - centre) for side in (enrolled, tested)]
        cosines[name] = sides[0] @ sides[1].T
    return cosines


def _unit(vectors: NDArray[np.float64]) -> Array:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-9))
