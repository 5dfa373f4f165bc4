"""From vectors and labels to a model file that is ready for use: fitted, calibrated by question, with thresholds.

A committee by default: two models of all views for every extractor's block of columns, weighted by people who were
held out. The same held-out people calibrate every question, and show the errors at each operating point.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from ._progress import Progress
from ._typing import Array, BoolArray, Card, Columns, IntArray, Labels, Names, Ranks
from .bundle import Bundle
from .calibration import Calibrator, HypothesisCalibrator
from .decisions import (
    LOWEST_THRESHOLD,
    MeasuredRates,
    OperatingPoint,
    RateInterval,
    distinct_points,
)
from .exceptions import DataError, LabelError, MvpldaWarning, ParameterError
from .kinds import TARGET, kinds_by_pattern
from .labels import encode_labels
from .metrics import cllr, eer, threshold_for
from .metrics.curves import min_cllr
from .models import Committee, MultiviewPLDA, find_scorers
from .models.base import BaseScorer, release_caches
from .models.checks import check_setting_names
from .models.committee import scorer_of
from .models.deployment import AdaptedExpert, domain_as_prior
from .models.heldout import held_out_trials
from .preprocessing import RectifiedRoot, standard_chain, unit_chain
from .scoring.answer import question_key
from .scoring.profiles import Profiles
from .scoring.question import Hypothesis, LogLikelihoods, NearMatches, Question

R = TypeVar("R")

COMMITTEE = "committee"

FOLDS = 4
MIN_HELD_OUT_SPEAKERS = 8
"""Fewest speakers for held-out evaluation: at least two folds of four people are needed."""

OUTLIER_PRIOR = 0.05
"""Prior of the outlier probability of a calibration. It is smaller than Jeffreys' 0.5, because twenty held-out speakers
have hundreds of recordings, and most outliers are single recordings, not whole speakers."""

MIN_THRESHOLD_SPEAKERS = 20
"""Fewest speakers for measuring thresholds; with fewer, a pre-trained model keeps its thresholds."""

HELD_OUT = "people who were held out in turn"
"""Basis of thresholds that were measured on the speakers of the deployment."""

FARS = (0.01, 0.05, 0.02, 0.005, 0.001)
"""False-acceptance rates of the measured operating points; the first is the default."""

MAX_FOLD_TESTS, MAX_FOLD_TRIALS = 1000, 10_000
"""Largest numbers of tests per fold, and of trials per fold and kind."""

MAX_UNREDUCED_WIDTH = 300
"""Largest width of a block that is modelled without reduction: wider covariances take much time for little gain."""

DEFAULT_DIM = 150
"""Number of principal components for maximum-likelihood models."""


def model_names() -> list[str]:
    """Return the names of the models that `train` fits: a committee, and all scorers, including those of plug-ins."""
    return [COMMITTEE, *find_scorers()]


def needs_labels(model: str) -> bool:
    """Return whether a model is fitted to labels; True for unknown names, which `train` refuses."""
    scorer = find_scorers().get(model)
    return scorer is None or scorer.NEEDS_LABELS


def train(
    X: ArrayLike,
    labels: Mapping[str, ArrayLike],
    *,
    model: str = COMMITTEE,
    ranks: Ranks | None = None,
    settings: Card | None = None,
    reduce: int | None = None,
    blocks: Mapping[str, int] | None = None,
    point_blocks: Collection[str] = (),
    enrolment: int = 1,
    folds: int | None = None,
    fars: Sequence[float] = FARS,
    extractor: str | None = None,
    default: BaseScorer | None = None,
    calibrator: Calibrator | None = None,
    progress: bool = False,
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
    point_blocks : blocks whose vectors are points in time; no expert of a committee but `default` compares these
    enrolment : vectors per profile in the held-out trials, as there will be in use
    folds : of held-out people; 0: neither calibration nor thresholds. None: 4 for a committee and, where there are
        labels, for a cosine, whose scores are no likelihood ratios; 0 for other models
    fars : shares of false acceptances that thresholds are wanted for, the default first
    extractor : name of what made the vectors
    default : a fitted model of the same vectors, which becomes one more expert of a committee
    calibrator : copied and fitted for each question. None: a `HypothesisCalibrator`
    progress : write a line to standard error whenever people are held out
    """
    vectors = np.asarray(X)
    # the names of the columns of a table are checked whenever the model scores
    table = X if hasattr(X, "columns") else vectors
    columns = {view: np.asarray(column) for view, column in labels.items()}
    check_training_data(vectors, columns, needed=needs_labels(model) or bool(folds))
    options: dict[str, Any] = dict(settings or {})
    title = f"fitting {model} to {len(vectors)} vectors"
    if model == COMMITTEE:
        check_setting_names(Committee, options, ("experts", "columns"))
        options.setdefault("enrolment", enrolment)
        sizes = dict(blocks or {"vectors": vectors.shape[1]})
        if sum(sizes.values()) != vectors.shape[1]:
            raise ParameterError(
                f"the blocks have {sum(sizes.values())} columns together, the vectors {vectors.shape[1]}"
            )
        committee = make_committee(
            sizes, list(columns), labels=columns, point_blocks=point_blocks, **options
        )
        # where people have no phrases, it has nothing to say of them
        if default is not None and set(default.views_) <= set(columns):
            committee.experts = {**committee.experts, "default model": AdaptedExpert(default)}
        bundle = Bundle(None, committee, extractor)
        if progress:
            show_fit(title, committee)
        with warnings.catch_warnings():
            # The card says, once, that people are few.
            warnings.simplefilter("ignore", MvpldaWarning)
            bundle.fit(table, columns)
        _keep_few_posteriors(committee, next(iter(columns)))
    elif model in find_scorers():
        chain = None
        if reduce is not None and needs_labels(model):
            chain = standard_chain(reduce)
        wanted = ranks if ranks and needs_labels(model) else dict.fromkeys(columns)
        scorer = find_scorers()[model].with_ranks(wanted, options)
        bundle = Bundle(chain, scorer, extractor)
        if progress:
            show_fit(title, scorer)
        bundle.fit(table, columns or None)
    else:
        raise ParameterError(f"there is no model {model!r}; there are {', '.join(model_names())}")
    counts = {view: count_named(column) for view, column in columns.items()}
    bundle.card = {"model": model, "vectors": len(vectors), "classes": counts}
    if folds is None and columns and (model == COMMITTEE or not needs_labels(model)):
        folds = FOLDS
    if folds:
        options = {"enrolment": enrolment, "folds": folds, "fars": fars, "progress": progress}
        calibrate_on_held_out(bundle, vectors, columns, calibrator=calibrator, **options)
    return bundle


def show_fit(title: str, scorer: Any) -> None:
    """Write a line to standard error, and one per iteration of a scorer that iterates."""
    print(title, file=sys.stderr, flush=True)
    if hasattr(scorer, "callback"):
        scorer.callback = lambda step: print(
            f"iteration {step.number}: {step.gain_per_vector:+.1e} nats per vector", file=sys.stderr
        )


def count_named(column: ArrayLike) -> int:
    """Return the number of classes in the labels of a view, without missing labels."""
    return len(encode_labels({"": column}).classes[""].names)


def check_training_data(X: Array, labels: Columns, *, needed: bool = True) -> None:
    """Refuse data that no model can be trained on."""
    if X.ndim != 2 or len(X) < 2:
        raise DataError(f"training needs at least two vectors, shape (n, D); got {X.shape}")
    if not labels and needed:
        raise DataError("there are no labels: name the speaker of every vector")
    for view, column in labels.items():
        if column.shape != X.shape[:1]:
            raise DataError(f"there are {len(X)} vectors and {column.shape} labels of {view}")
        if count_named(column) < 2:
            raise DataError(f"{view} has one class ({column[0]!r}): a model needs several")


def make_committee(
    blocks: Mapping[str, int],
    views: Sequence[str],
    *,
    labels: Labels | None = None,
    dim: int = DEFAULT_DIM,
    point_blocks: Collection[str] = (),
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
    point_blocks : blocks whose vectors are points in time; they have no experts, unless there is no other block
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
    # other views have few classes, most of which recur in use: less prior
    plain = {**dict.fromkeys([*every, "noise"], 0.6), **dict.fromkeys(base[1:], 0.2)}
    experts: dict[str, Any] = {}
    columns: dict[str, tuple[int, int]] = {}
    start = 0
    for name, width in blocks.items():
        if len(blocks) > 1 and name in point_blocks:
            start += width
            continue
        whitened = standard_chain(min(dim, width), length="unit")
        whitened.steps.insert(0, ("root", RectifiedRoot()))
        unit = unit_chain(MAX_UNREDUCED_WIDTH if width > MAX_UNREDUCED_WIDTH else None)
        kinds: dict[str, Any] = {name: (unit, plain), f"{name}, whitened": (whitened, 0.4)}
        for title, (chain, strength) in kinds.items():
            model = MultiviewPLDA(
                dict.fromkeys(every), prior="isotropic", prior_strength=strength, max_iter=0
            )
            experts[title] = Bundle(chain, model)
            columns[title] = (start, start + width)
        start += width
    return Committee(experts, columns=columns, **settings)


def _keep_few_posteriors(committee: Committee, view: str) -> None:
    """Delete class posteriors of the first view, whose classes are always new in use."""
    for expert in committee.experts_.values():
        scorer: Any = scorer_of(expert)
        covariances = dict(getattr(scorer, "class_covariances_", {}))
        covariances.pop(view, None)
        scorer.class_covariances_ = covariances


def _are_crossed(labels: Labels, views: Sequence[str]) -> bool:
    """Return whether there are enough combinations of classes to separate an interaction from its views."""
    table = encode_labels(labels, [*views, ":".join(views)])
    *each, cells = (len(table.classes[view]) for view in table.views)
    return cells - sum(size - 1 for size in each) - 1 >= each[0] / 2


# -- calibration and thresholds ------------------------------------------------------------


class HeldOutModels:
    """Trials among held-out speakers, and one model per fold, trained without the fold's speakers.

    There are no trials if there are too few speakers.

    truth : (n,) number of the true hypothesis of each trial
    people : (2, n) speaker of the enrolment and of the test of each trial

    Parameters
    ----------
    fit_model : returns a model fitted to vectors and labels
    title : start of the lines that show progress; empty: no progress
    """

    def __init__(
        self,
        fit_model: Callable[[Array, Columns], Bundle],
        X: Array,
        labels: Columns,
        enrolment: int,
        folds: int,
        title: str = "",
    ) -> None:
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
        """Return the kind of each trial (n,), see `mvplda.kinds.kinds_by_pattern`: TC, TW, IC or IW for two views."""
        views = list(self.labels)
        names = kinds_by_pattern(views)
        hypotheses = self.trials[0].hypotheses
        kinds = [names[tuple(view in shared for view in views)] for shared in hypotheses]
        return np.take(kinds, self.truth)

    def is_target(self, same: Sequence[str]) -> BoolArray:
        """Return (n,) whether a trial agrees in all views of a question."""
        agrees = [set(same) <= set(shared) for shared in self.trials[0].hypotheses]
        return np.take(agrees, self.truth)

    def evidence(self, known: Sequence[str] = ()) -> tuple[LogLikelihoods, NearMatches | None]:
        """Return log-likelihoods {hypothesis: (n,)} to be calibrated, and evidence of near matches.

        known : views in which a profile claims its class
        """

        def measure(
            model: Bundle, enrol: Profiles, test: Profiles, question: Question, pairs: IntArray
        ) -> tuple[LogLikelihoods, NearMatches | None]:
            logs = model.fitted_scorer.log_likelihoods(enrol, test, question, pairs=pairs)
            return logs, model.near_matches(enrol, test, pairs, model.views)

        folds = self._ask_folds(measure, None, known, ())
        first_logs, _ = folds[0]
        logs = {h: np.concatenate([fold_logs[h] for fold_logs, _ in folds]) for h in first_logs}
        return logs, NearMatches.concatenate([near_matches for _, near_matches in folds])

    def llrs(self, same: Sequence[str] | None, named: Sequence[str]) -> Array:
        """Return the LLRs (n,) of the models' answers.

        named : views in which profiles are enrolled with labels
        """

        def answer(
            model: Bundle, enrol: Profiles, test: Profiles, question: Question, pairs: IntArray
        ) -> Array:
            return model.answer(enrol, test, question, pairs).llr

        return np.concatenate(self._ask_folds(answer, same, (), named))

    def _ask_folds(
        self,
        ask: Callable[[Bundle, Profiles, Profiles, Question, IntArray], R],
        same: Sequence[str] | None,
        known: Sequence[str],
        named: Sequence[str],
    ) -> list[R]:
        """Return the answer of each fold's model to a question about the trials of the fold."""
        answers = []
        for model, trials in zip(self.models, self.trials, strict=True):
            claims = {view: self.labels[view][trials.profiles] for view in known}
            question = Question(same, known=claims or None)
            labels = {view: self.labels[view][trials.enrol] for view in named}
            profiles = model.enrol(self.X[trials.enrol], trials.ids, labels or None)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", MvpldaWarning)
                tests = model.enrol(self.X[trials.test])
                answers.append(ask(model, profiles, tests, question, trials.pairs))
            # the cached values of all folds together may not fit into memory
            release_caches(model)
        return answers

    def measure(
        self, scores: dict[str, Any], fars: Sequence[float]
    ) -> tuple[dict[str, Any], Mapping[str, Any]]:
        """Return operating points for the worst kind of impostor, and error rates for the card.

        scores : {key of a question: (views of the question, LLRs (n,))}
        """
        points: dict[str, Any] = {}
        errors: dict[str, Any] = {}
        trial_kinds = self.kinds()
        for key, (same, llrs) in scores.items():
            is_target = self.is_target(same)
            kinds = np.where(is_target, TARGET, trial_kinds)
            candidates = [self._point(llrs, kinds, far) for far in fars]
            usable = [point for point in candidates if np.isfinite(point.threshold)]
            points[key] = distinct_points(usable)
            targets = llrs[is_target]
            impostors = llrs[~is_target]
            names = np.unique(kinds[~is_target]).tolist()
            errors[key] = {
                "eer": {name: eer(targets, llrs[kinds == name]) for name in names},
                "cllr": float(cllr(targets, impostors)),
                "min_cllr": float(min_cllr(targets, impostors)),
            }
        trials = dict(Counter(trial_kinds.tolist()))
        card = {"folds": len(self.trials), "trials": trials, "errors": errors}
        return points, {"held_out": card}

    def _point(self, llrs: Array, kinds: Names, far: float) -> OperatingPoint:
        """Return the threshold for a false-acceptance rate of the worst kind of impostor, and the error rates at it."""
        point = threshold_for(llrs, kinds, far, *self.people, lowest=LOWEST_THRESHOLD)
        people = len(np.unique(self.people))
        measured = MeasuredRates(
            far={
                kind: RateInterval(rate.estimate, rate.low, rate.high)
                for kind, rate in point.far.items()
            },
            frr=RateInterval(point.frr.estimate, point.frr.low, point.frr.high),
            # The warning names the number of held-out people, not their effective number.
            warning=replace(point, speakers=people).warning(),
        )
        return OperatingPoint(point.threshold, 0.0, far, measured, people, HELD_OUT)


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
) -> None:
    """Add calibrations, operating points and a card to a fitted bundle, from held-out speakers.

    The speakers of each fold are scored by a model of the others, with its own weights if it is a committee. All
    speakers are evaluated, and none has an influence on the model that scores them.

    calibrator : copied and fitted for each question. None: a `HypothesisCalibrator`
    """
    card = dict(bundle.card or {})
    columns = {view: column for view, column in labels.items() if view in bundle.views}
    views = tuple(columns)
    title = str(card.get("model", "model")) if progress else ""
    held = HeldOutModels(partial(_fold_model, bundle), X, columns, enrolment, folds, title)
    if not held.trials:
        none = (
            f"none: it takes {MIN_HELD_OUT_SPEAKERS} people or more with two recordings of the same, "
            "to hold some out"
        )
        bundle.card = {**card, "calibration": none}
        return
    calibrations: dict[str, Calibrator] = {}
    scores: dict[str, Any] = {}
    # nothing is known of a trial, or the class of the second view, whose classes occur again in use
    questions_by_known: dict[Hypothesis, list[Hypothesis]] = {(): questions_about(views)}
    if len(views) == 2:
        questions_by_known[views[1:]] = [views]
    for known, questions in questions_by_known.items():
        try:
            logs, near_matches = held.evidence(known)
        except LabelError:
            # the scorer has no known classes, or each phrase has a single speaker, who is held out
            if not known:
                raise
            continue
        fitted = clone(calibrator or HypothesisCalibrator(errors=OUTLIER_PRIOR))
        fitted.fit(logs, held.truth, speakers=held.people[0], near_matches=near_matches)
        for same in questions:
            question = Question(same, known=known or None)
            key = question_key(question, views)
            calibrations[key] = fitted
            # as in `Bundle.answer`
            usable_matches = (
                near_matches if near_matches is not None and near_matches.view in same else None
            )
            scores[key] = (
                same,
                question.ratio(views).of(fitted.transform(logs, usable_matches)),
            )
    bundle.calibrations = calibrations
    bundle.points, measured = held.measure(scores, fars)
    bundle.card = {**card, **measured}


def deploy_on_speakers(
    bundle: Bundle,
    X: Array,
    labels: Columns,
    *,
    enrolment: int = 1,
    fars: Sequence[float] = FARS,
    progress: bool = False,
) -> Bundle:
    """Return a bundle that was trained elsewhere in the domain of these speakers, with its error rates among them.

    The speakers of each fold are scored in the domain of the others. The calibration stays that of the bundle, and so
    do the thresholds if there are fewer than `MIN_THRESHOLD_SPEAKERS` speakers.

    labels : {view: (n,)} of the bundle's views, the speaker's first; views may be missing
    """
    columns = {view: column for view, column in labels.items() if view in bundle.views}
    views = tuple(columns)
    people = count_named(columns[views[0]])
    deployed = _deployed_on(bundle, X, columns)
    deployed.scorer = domain_as_prior(deployed.fitted_scorer)
    deployed.card = {**dict(bundle.card or {}), "deployed_on": people}
    title = "default model" if progress else ""
    held = HeldOutModels(partial(_deployed_on, bundle), X, columns, enrolment, FOLDS, title)
    if not held.trials:
        return deployed
    scores: dict[str, Any] = {}
    for same in questions_about(views):
        key = question_key(deployed.informed(Question(same)), bundle.views)
        scores[key] = (same, held.llrs(same, views[1:]))
    points, measured = held.measure(scores, fars)
    if people >= MIN_THRESHOLD_SPEAKERS:
        deployed.points = {**(bundle.points or {}), **points}
    deployed.card = {**deployed.card, **measured}
    return deployed


def _deployed_on(bundle: Bundle, X: Array, labels: Columns) -> Bundle:
    """Return the bundle in the domain of labelled vectors."""
    speaker, *other_views = labels
    known = {view: labels[view] for view in other_views}
    return bundle.deployed(bundle.enrol(X, labels[speaker], known or None))


def questions_about(views: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the views of each question: all views together, and each alone."""
    return list(dict.fromkeys([tuple(views), *((view,) for view in views)]))


def _fold_model(bundle: Bundle, X: Array, labels: Columns) -> Bundle:
    """Return the same kind of model fitted to the vectors of a fold."""
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
