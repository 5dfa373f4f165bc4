"""Calibration, thresholds and error rates of a model by cross-validation over people."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from sklearn.base import clone

from .._progress import Progress
from .._typing import Array, BoolArray, Card, Columns, IntArray, Names
from ..bundle import Bundle
from ..calibration import Calibrator, HypothesisCalibrator, Measures
from ..decisions import (
    LOWEST_THRESHOLD,
    HalfThreshold,
    MeasuredRates,
    OperatingPoint,
    RateInterval,
    distinct_points,
)
from ..exceptions import LabelError, MvpldaWarning
from ..kinds import TARGET, kinds_by_pattern
from ..metrics import cllr, eer, threshold_for
from ..metrics.curves import min_cllr
from ..metrics.thresholds import ThresholdPoint
from ..models.base import BaseScorer, release_caches
from ..models.deployment import domain_as_prior, find_evidence_measures
from ..models.heldout import held_out_trials
from ..scoring.answer import question_key
from ..scoring.profiles import Profiles
from ..scoring.question import Hypothesis, LogLikelihoods, NearMatches, Question
from .data import count_named

R = TypeVar("R")

Groups = Mapping[str, str]
"""Group of each speaker, {speaker: group}, such as the sex."""

SAME_SEX, OTHER_SEX = ", same sex", ", other sex"
"""Endings of the names of kinds of impostors if speakers have groups: same group as the owner, or another one."""

FOLDS = 4
MIN_HELD_OUT_SPEAKERS = 8
"""Smallest number of speakers for held-out evaluation: two folds of four people."""

OUTLIER_PRIOR = 0.05
"""Prior of the outlier probability of a calibration, in trials.

Smaller than Jeffreys' 0.5, because twenty held-out speakers have hundreds of recordings, and most
outliers are single recordings, not whole speakers.
"""

MIN_THRESHOLD_SPEAKERS = 20
"""Smallest number of speakers for new thresholds of a pre-trained model; with fewer, it keeps its thresholds."""

HELD_OUT = "people who were held out in turn"
"""Origin of measured thresholds, in words, for `OperatingPoint.basis`."""

FARS = (0.01, 0.05, 0.02, 0.005, 0.001)
"""False-acceptance rates of the measured operating points; the first is the default."""

MAX_FOLD_TESTS, MAX_FOLD_TRIALS = 1000, 10_000
"""Largest numbers of tests per fold, and of trials per fold and kind."""


class HeldOutEvidence(NamedTuple):
    """Inputs of a calibration for n trials.

    logs : {hypothesis: (n,) uncalibrated log-likelihoods}
    near_matches : near-match evidence; None: the model has none
    measures : {name: (n,)}, such as log seconds of speech: how much information each trial has
    """

    logs: LogLikelihoods
    near_matches: NearMatches | None
    measures: Measures


class HeldOutScores(NamedTuple):
    """Calibrated LLRs of held-out trials for one question.

    same : views in question
    llrs : (n,) joint LLRs
    halves : {view: (n,) LLRs of the view alone}, see `Answer.half_llr`
    """

    same: Hypothesis
    llrs: Array
    halves: dict[str, Array]


class HeldOutModels:
    """Trials among held-out speakers, with one model per fold that is trained without the fold's speakers.

    Parameters
    ----------
    fit_model : function that fits a model to vectors and labels, and returns it
    X : (n, D) vectors
    labels : {view: (n,) labels}; classes of the first view are held out
    enrolment : vectors per profile
    folds : largest number of folds
    title : start of the lines that show progress; empty: no progress
    groups : {speaker: sex, or another group}: impostors of the owner's group are a kind of their
        own; None: no groups

    Attributes
    ----------
    trials : list of HeldOutTrials, one per fold; empty if there are too few speakers
    models : list of Bundle, one per fold
    truth : (trials,) number of the true hypothesis of each trial
    people : (2, trials) speaker of the enrolment and of the test of each trial
    """

    def __init__(
        self,
        fit_model: Callable[[Array, Columns], Bundle],
        X: Array,
        labels: Columns,
        enrolment: int,
        folds: int,
        title: str = "",
        groups: Groups | None = None,
    ) -> None:
        self.groups = groups
        self.title = title
        fold_trials = held_out_trials(
            labels,
            folds=folds,
            enrolment=enrolment,
            most_tests=MAX_FOLD_TESTS,
            most_trials=MAX_FOLD_TRIALS,
        )
        self.X = X
        self.labels = labels
        self.trials = fold_trials
        self.models = []
        line = Progress(f"{title}: holding people out", len(fold_trials))
        for number, trials in enumerate(fold_trials, 1):
            if title:
                line.step(number)
            training_labels = {view: column[trials.train] for view, column in labels.items()}
            self.models.append(fit_model(X[trials.train], training_labels))
        if not fold_trials:
            return
        self.truth = np.concatenate([trials.kinds for trials in self.trials])
        speakers = next(iter(labels.values()))
        enrolled = [speakers[trials.profiles][trials.pairs[:, 0]] for trials in self.trials]
        tested = [speakers[trials.test][trials.pairs[:, 1]] for trials in self.trials]
        self.people = np.stack([np.concatenate(enrolled), np.concatenate(tested)])

    def kinds(self) -> Names:
        """Return the kind of each trial, (trials,): TC, TW, IC or IW for two views (see
        `mvplda.kinds.kinds_by_pattern`).
        """
        views = list(self.labels)
        names = kinds_by_pattern(views)
        hypotheses = self.trials[0].hypotheses
        kinds = [names[tuple(view in shared for view in views)] for shared in hypotheses]
        return np.take(kinds, self.truth)

    def kinds_by_group(self) -> Names:
        """Return the kind of each trial, (trials,), where kinds of impostors end in ", same sex" or ", other sex".

        Without groups, and for speakers of unknown group, kinds have no ending.
        """
        kinds = self.kinds()
        if self.groups is None:
            return kinds
        enrolled, tested = (
            np.array([str(self.groups.get(str(name), "")) for name in side]) for side in self.people
        )
        is_known = (enrolled != "") & (tested != "")
        endings = np.select([~is_known, enrolled == tested], ["", SAME_SEX], OTHER_SEX)
        endings[self.people[0] == self.people[1]] = ""
        return np.char.add(kinds.astype(np.str_), endings)

    def is_target(self, same: Sequence[str]) -> BoolArray:
        """Return a mask (trials,) of the trials whose two sides have the same class in each of the views `same`."""
        agrees = [set(same) <= set(shared) for shared in self.trials[0].hypotheses]
        return np.take(agrees, self.truth)

    def evidence(self, known: Sequence[str] = ()) -> HeldOutEvidence:
        """Return the inputs of a calibration for all trials, each by the model of its fold.

        known : views in which classes are known: each profile claims the class of its labels
        """

        def measure(
            model: Bundle, enrol: Profiles, test: Profiles, question: Question, pairs: IntArray
        ) -> HeldOutEvidence:
            logs = model.fitted_scorer.log_likelihoods(enrol, test, question, pairs=pairs)
            near_matches = model.near_matches(enrol, test, pairs, model.views)
            measures = find_evidence_measures(model.fitted_scorer, enrol, test, pairs) or {}
            return HeldOutEvidence(logs, near_matches, measures)

        folds = self._evaluate_folds(measure, None, known, ())
        return HeldOutEvidence(
            {h: np.concatenate([fold.logs[h] for fold in folds]) for h in folds[0].logs},
            NearMatches.concatenate([fold.near_matches for fold in folds]),
            {
                name: np.concatenate([fold.measures[name] for fold in folds])
                for name in folds[0].measures
            },
        )

    def scores(self, same: Hypothesis, named: Sequence[str]) -> HeldOutScores:
        """Return the LLRs of all trials for a question, each by the model of its fold.

        same : views in question
        named : views in which profiles are enrolled with labels
        """

        def score(
            model: Bundle, enrol: Profiles, test: Profiles, question: Question, pairs: IntArray
        ) -> HeldOutScores:
            answer = model.answer(enrol, test, question, pairs)
            return HeldOutScores(same, answer.llr, {view: answer.half_llr(view) for view in same})

        folds = self._evaluate_folds(score, same, (), named)
        return HeldOutScores(
            same,
            np.concatenate([fold.llrs for fold in folds]),
            {view: np.concatenate([fold.halves[view] for fold in folds]) for view in same},
        )

    def _evaluate_folds(
        self,
        evaluate: Callable[[Bundle, Profiles, Profiles, Question, IntArray], R],
        same: Sequence[str] | None,
        known: Sequence[str],
        named: Sequence[str],
    ) -> list[R]:
        """Return, per fold, the result of `evaluate` for the fold's model and trials.

        evaluate : function of model, enrolled profiles, tests, question and pairs
        same : views in question; None: all
        known : views in which each profile claims a known class
        named : views in which profiles are enrolled with labels
        """
        answers = []
        line = Progress(f"{self.title}: scoring held-out people", len(self.trials))
        for number, (model, trials) in enumerate(zip(self.models, self.trials, strict=True), 1):
            if self.title:
                line.step(number)
            claims = {view: self.labels[view][trials.profiles] for view in known}
            question = Question(same, known=claims or None)
            labels = {view: self.labels[view][trials.enrol] for view in named}
            profiles = model.enrol(self.X[trials.enrol], trials.ids, labels or None)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", MvpldaWarning)
                tests = model.enrol(self.X[trials.test])
                answers.append(evaluate(model, profiles, tests, question, trials.pairs))
            # the cached values of all folds together may not fit into memory
            release_caches(model)
            forget_posteriors(model, next(iter(self.labels)))
        return answers

    def measure(
        self, scores: Mapping[str, HeldOutScores], fars: Sequence[float]
    ) -> tuple[dict[str, list[OperatingPoint]], Card]:
        """Return operating points and error rates on the held-out trials.

        scores : {key of a question: its LLRs}
        fars : false-acceptance rates of the worst kind of impostor, one per operating point
        return : {key of a question: operating points}, and entries for the model's description
            (`Bundle.card`)
        """
        points: dict[str, list[OperatingPoint]] = {}
        errors: dict[str, Card] = {}
        trial_kinds = self.kinds()
        kinds_by_group = self.kinds_by_group()
        for key, question_scores in scores.items():
            is_target = self.is_target(question_scores.same)
            kinds = np.where(is_target, TARGET, trial_kinds)
            grouped = np.where(is_target, TARGET, kinds_by_group)
            candidates = [self._point(question_scores, grouped, far) for far in fars]
            usable = [point for point in candidates if np.isfinite(point.threshold)]
            points[key] = distinct_points(usable)
            llrs = question_scores.llrs
            targets = llrs[is_target]
            impostors = llrs[~is_target]
            errors[key] = {
                "eer": self._eers(question_scores, kinds),
                "cllr": float(cllr(targets, impostors)),
                "min_cllr": float(min_cllr(targets, impostors)),
            }
        trials = dict(Counter(trial_kinds.tolist()))
        card = {"folds": len(self.trials), "trials": trials, "errors": errors}
        return points, {"held_out": card}

    def _eers(self, scores: HeldOutScores, kinds: Names) -> dict[str, float]:
        """Return the EER of each kind of impostor, {kind: EER}.

        It is measured on the LLRs of the view in which these impostors differ from the owner; on
        joint LLRs if they differ in several views.

        scores : LLRs for one question
        kinds : (trials,) kind of each trial, targets first
        """
        eers = {}
        for name in np.unique(kinds[kinds != TARGET]).tolist():
            rows = kinds == name
            differing = [view for view in scores.same if not self.is_target([view])[rows].any()]
            llrs = scores.halves[differing[0]] if len(differing) == 1 else scores.llrs
            eers[name] = eer(llrs[kinds == TARGET], llrs[rows])
        return eers

    def _point(self, scores: HeldOutScores, kinds: Names, far: float) -> OperatingPoint:
        """Return the operating point for a false-acceptance rate of the worst kind of impostor,
        with measured error rates.

        It has one threshold per view if for every view there are impostors who differ in this view
        only, else a joint threshold.

        scores : LLRs for one question
        kinds : (trials,) kind of each trial
        far : largest false-acceptance rate
        """
        agreements = {
            view: self.is_target([other for other in scores.same if other != view])
            for view in scores.same
        }
        if all((kinds[rows] != TARGET).any() for rows in agreements.values()):
            return self._point_of_halves(scores, kinds, agreements, far)
        point = threshold_for(scores.llrs, kinds, far, *self.people, lowest=LOWEST_THRESHOLD)
        people = len(np.unique(self.people))
        return OperatingPoint(point.threshold, 0.0, far, _rates(point, people), people, HELD_OUT)

    def _point_of_halves(
        self, scores: HeldOutScores, kinds: Names, agreements: Mapping[str, BoolArray], far: float
    ) -> OperatingPoint:
        """Return the point with a threshold per view, each measured on impostors who differ in this view only.

        scores, kinds, far : see `_point`
        agreements : {view: (trials,) mask of the trials whose other views are the same}
        """
        people = len(np.unique(self.people))
        accepts = {}
        for view, rows in agreements.items():
            llrs = scores.halves[view][rows]
            point = threshold_for(
                llrs, kinds[rows], far, *self.people[:, rows], lowest=LOWEST_THRESHOLD
            )
            accepts[view] = point.threshold
        # impostors who differ in several views may be accepted more often: then raise all thresholds
        whole = self._decisions(scores, accepts, kinds, far)
        while 0 < whole.threshold < np.inf:
            accepts = {
                view: float(np.nextafter(accept + whole.threshold, np.inf))
                for view, accept in accepts.items()
            }
            whole = self._decisions(scores, accepts, kinds, far)
        halves = {}
        for view, rows in agreements.items():
            accept = accepts[view] if np.isfinite(whole.threshold) else np.inf
            point = threshold_for(
                scores.halves[view][rows], kinds[rows], far, *self.people[:, rows], lowest=accept
            )
            halves[view] = HalfThreshold(accept, 0.0, _rates(point, people), people)
        return OperatingPoint.from_halves(
            halves, far=far, measured=_rates(whole, people), people=people, basis=HELD_OUT
        )

    def _decisions(
        self, scores: HeldOutScores, accepts: Mapping[str, float], kinds: Names, far: float
    ) -> ThresholdPoint:
        """Return the error rates if trials are accepted whose LLRs reach the thresholds of all views.

        The `threshold` of the result is the number that must be added to all thresholds so that no
        kind of impostor is accepted more often than `far`; 0 if this is the case already.

        accepts : {view: threshold}
        kinds, far : see `_point`
        """
        margins = np.min([scores.halves[view] - accept for view, accept in accepts.items()], axis=0)
        return threshold_for(margins, kinds, far, *self.people, lowest=0.0)


def _rates(point: ThresholdPoint, people: int) -> MeasuredRates:
    """Return the error rates measured at a threshold, in the form of operating points.

    point : threshold with its error rates
    people : number of held-out people, named in the warning if they are too few for the rate
    """
    return MeasuredRates(
        far={
            kind: RateInterval(rate.estimate, rate.low, rate.high)
            for kind, rate in point.far.items()
        },
        frr=RateInterval(point.frr.estimate, point.frr.low, point.frr.high),
        warning=replace(point, speakers=people).warning(),
    )


def calibrate_on_held_out(
    bundle: Bundle,
    X: Array,
    labels: Columns,
    *,
    enrolment: int = 1,
    folds: int = FOLDS,
    fars: Sequence[float] = FARS,
    calibrator: Calibrator | None = None,
    progress: bool = False,
    groups: Groups | None = None,
) -> None:
    """Add calibrations, operating points and error rates from held-out speakers to a fitted bundle.

    The speakers of each fold are scored by a model trained on the other folds, including the
    weights of a committee. So every speaker is evaluated by a model without data of that speaker.
    With too few speakers, the bundle's `card` (description) states that there is no calibration.

    Parameters
    ----------
    bundle : fitted bundle, changed in place
    X : (n, D) vectors that it was fitted to
    labels : {view: (n,) labels}; classes of the first view are held out
    enrolment : vectors per profile
    folds : largest number of folds
    fars : false-acceptance rates of the operating points, the default first
    calibrator : unfitted calibrator; a copy is fitted for each question. None: a
        `HypothesisCalibrator`
    progress : whether to write progress to standard error
    groups : {speaker: sex}: impostors of the same sex and of the other sex are separate kinds of
        impostors, and thresholds limit the false acceptances of each kind. None: the sex does not
        matter
    """
    card = dict(bundle.card or {})
    columns = {view: column for view, column in labels.items() if view in bundle.views}
    views = tuple(columns)
    title = str(card.get("model", "model")) if progress else ""
    fold_models = HeldOutModels(
        partial(_fold_model, bundle), X, columns, enrolment, folds, title, groups
    )
    if not fold_models.trials:
        none = (
            f"none: it needs at least {MIN_HELD_OUT_SPEAKERS} people with two recordings of the same labels each, "
            "to hold some out"
        )
        bundle.card = {**card, "calibration": none}
        return
    calibrations: dict[str, Calibrator] = {}
    scores: dict[str, HeldOutScores] = {}
    # two cases: no known classes, or known classes of the second view, which occur again in use
    questions_by_known: dict[Hypothesis, list[Hypothesis]] = {(): questions_about(views)}
    if len(views) == 2:
        questions_by_known[views[1:]] = [views]
    for known, questions in questions_by_known.items():
        try:
            logs, near_matches, measures = fold_models.evidence(known)
        except LabelError:
            # LabelError: the scorer has no known classes, or each phrase has a single speaker, who is held out
            if not known:
                raise
            continue
        fitted = clone(calibrator or HypothesisCalibrator(errors=OUTLIER_PRIOR))
        fitted.fit(
            logs,
            fold_models.truth,
            speakers=fold_models.people[0],
            near_matches=near_matches,
            measures=measures,
            test_speakers=fold_models.people[1],
        )
        for same in questions:
            question = Question(same, known=known or None)
            key = question_key(question, views)
            calibrations[key] = fitted
            # near matches count only if their view is in question, as in `Bundle.answer`
            usable_matches = (
                near_matches if near_matches is not None and near_matches.view in same else None
            )
            inliers = fitted.without_outliers(logs, usable_matches, measures)
            scores[key] = HeldOutScores(
                same,
                question.ratio(views).of(fitted.add_outliers(inliers)),
                {view: Question(view).ratio(views).of(inliers) for view in same},
            )
    bundle.calibrations = calibrations
    bundle.points, measured = fold_models.measure(scores, fars)
    bundle.card = {**card, **measured}


def deploy_on_speakers(
    bundle: Bundle,
    X: Array,
    labels: Columns,
    *,
    enrolment: int = 1,
    fars: Sequence[float] = FARS,
    progress: bool = False,
    groups: Groups | None = None,
) -> Bundle:
    """Adapt a bundle that was trained on other data to the domain of these speakers, and measure
    its error rates on them.

    The speakers of each fold are scored by the bundle adapted to the other folds. The calibration
    of the bundle is kept. Its thresholds are chosen anew on these speakers if there are at least
    `MIN_THRESHOLD_SPEAKERS`, else they are kept too.

    Parameters
    ----------
    bundle : fitted bundle
    X : (n, D) vectors
    labels : {view: (n,)} of the bundle's views, the speaker first; views may be missing
    enrolment, fars, progress, groups : as for `calibrate_on_held_out`

    Returns
    -------
    Bundle, a new one
    """
    columns = {view: column for view, column in labels.items() if view in bundle.views}
    views = tuple(columns)
    people = count_named(columns[views[0]])
    deployed = _deployed_on(bundle, X, columns)
    deployed.scorer = domain_as_prior(deployed.fitted_scorer)
    deployed.card = {**dict(bundle.card or {}), "deployed_on": people}
    title = "default model" if progress else ""
    fold_models = HeldOutModels(
        partial(_deployed_on, bundle), X, columns, enrolment, FOLDS, title, groups
    )
    if not fold_models.trials:
        return deployed
    scores: dict[str, HeldOutScores] = {}
    for same in questions_about(views):
        key = question_key(deployed.informed(Question(same)), bundle.views)
        scores[key] = fold_models.scores(same, views[1:])
    points, measured = fold_models.measure(scores, fars)
    if people >= MIN_THRESHOLD_SPEAKERS:
        deployed.points = {**(deployed.points or {}), **points}
    deployed.card = {**deployed.card, **measured}
    return deployed


def _deployed_on(bundle: Bundle, X: Array, labels: Columns) -> Bundle:
    """Return the bundle, adapted to the domain of labelled vectors (the first view is the speaker)."""
    speaker, *other_views = labels
    known = {view: labels[view] for view in other_views}
    return bundle.deployed(bundle.enrol(X, labels[speaker], known or None))


def forget_posteriors(scorer: BaseScorer, view: str) -> None:
    """Delete the class covariances of a view that were computed, in a scorer and its components.

    For views whose training classes no question names, such as the speakers of the other folds.
    """
    covariances = vars(scorer).get("class_covariances_", {})
    covariances.pop(view, None)
    inner = getattr(scorer, "fitted_scorer", None)
    components = [component for component, _ in scorer.components()] if inner is None else [inner]
    for component in components:
        forget_posteriors(component, view)


def questions_about(views: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the views of each question: all views together, and each view alone."""
    return list(dict.fromkeys([tuple(views), *((view,) for view in views)]))


def _fold_model(bundle: Bundle, X: Array, labels: Columns) -> Bundle:
    """Return a model with the settings of `bundle`, fitted to the vectors of a fold."""
    model = Bundle(clone(bundle.preprocessing, safe=False), clone(bundle.scorer))
    is_learnt = getattr(bundle.scorer, "weights", None) == "learnt"
    people = count_named(next(iter(labels.values())))
    if is_learnt and people < MIN_HELD_OUT_SPEAKERS:
        # too few to learn weights: use those of all speakers, which are only a dozen numbers
        model.scorer.set_params(weights=bundle.scorer.weights_)
    elif is_learnt:
        model.scorer.set_params(folds=2)  # folds within a fold: two are faster and hardly worse
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MvpldaWarning)
        return model.fit(X, labels)
