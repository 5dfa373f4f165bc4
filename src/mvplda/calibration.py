"""Calibration: natural-log likelihood ratios of scores, and calibrated log-likelihoods of hypotheses.

`LinearCalibrator` is for score files, `HypothesisCalibrator` for what a model file holds by question. Fit either on
trials that are not those of the evaluation.
"""

# mypy: disallow-subclassing-any=False

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import Bounds, minimize
from scipy.special import expit
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted

from ._typing import Array, BoolArray, IntArray, Json, Names, Views
from .exceptions import (
    DataError,
    FewSpeakersWarning,
    LabelError,
    NumericalError,
    ReversedScoresWarning,
)
from .kinds import SPOOF, Kinds, as_masks, target_kind
from .labels import as_array
from .persistence import Persistent, check_answers
from .scoring.question import (
    Hypothesis,
    Logs,
    Near,
    Question,
    Ratio,
    Weights,
    with_countermeasure,
    with_near,
)

__all__ = ["LinearCalibrator"]

V = TypeVar("V")

LLR_DEVIATION = 30.0
"""Standard deviation over all trials that calibrated LLRs may well have: the prior of slopes."""

ENOUGH_SPEAKERS = 30
"""A calibration that rests on fewer is warned of."""


class LinearCalibrator(Persistent, BaseEstimator):
    """LLR = slope * score + intercept, by logistic regression.

    Targets together weigh as much as non-targets together, however many there are of each.

    The slope has a prior: on scores of unit variance, a Gaussian of mean 0 and deviation 30, which is as large as
    LLRs well may be. The trials weigh against it as two of every speaker, a target and a non-target: those of one
    speaker show nearly the same. Few speakers make LLRs smaller, many leave the plain fit, and scores that separate
    the trials have a finite optimum.

    Parameters
    ----------
    by_kind : bool
        Let every kind of non-target (IW, IC, TW) weigh the same. All pairs of a list hold far more IW (impostor, wrong
        phrase) than IC or TW trials, and a plain calibration serves the many.

    Attributes
    ----------
    slope_, intercept_ : float
    n_speakers_ : int, speakers of the target trials; None where `fit` was not given any

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda.calibration import LinearCalibrator
    >>> rng = np.random.default_rng(0)
    >>> targets = rng.random(10_000) < 0.5
    >>> scores = rng.normal(2.0 * targets - 1, 1.0) * 0.1 + 5     # LLR / 20 + 5
    >>> round(LinearCalibrator().fit(scores, targets).slope_, -1)
    20.0
    """

    KIND = "calibrator"
    FITTED = ("slope_", "intercept_", "n_speakers_")

    def __init__(self, by_kind: bool = False) -> None:
        self.by_kind = by_kind

    def fit(self, scores: ArrayLike, kinds: Kinds, *, speakers: ArrayLike | None = None) -> Self:
        """Fit to trials.

        Parameters
        ----------
        scores : of any shape
        kinds : as `mvplda.metrics.evaluate` takes them: the kind of every trial (TC, TW, IC, IW; target, nontarget),
            masks by kind, or which trials are targets
        speakers : speaker of every trial's enrolment; fewer than 30 give a `FewSpeakersWarning`. None: not known,
            and every target trial counts as a speaker
        """
        values = _finite(scores)
        groups = {kind: mask for kind, mask in as_masks(kinds, values.shape).items() if mask.any()}
        targets = groups.pop(target_kind(groups))
        if not groups:
            raise DataError("calibration needs target and non-target trials; all are targets")
        if not self.by_kind:
            groups = {"all": np.any(list(groups.values()), axis=0)}
        weights = 0.5 / targets.sum() * targets
        for mask in groups.values():
            weights[mask] = 0.5 / len(groups) / mask.sum()
        self.n_speakers_ = None
        worth = float(targets.sum())
        if speakers is not None:
            self.n_speakers_, worth = _count_speakers(speakers, targets)
        # The deviation that the prior is about is that of trials as they are weighted.
        centre = np.sum(weights * values)
        scale = np.sqrt(np.sum(weights * np.square(values - centre)))
        if scale <= 1e-12 * np.abs(centre):
            scale = np.float64(1.0)
        line = LogisticRegression(
            C=2 * worth * LLR_DEVIATION**2, solver="newton-cholesky", tol=1e-10, max_iter=300
        )
        with warnings.catch_warnings():
            # Scores that do not vary stop the search at its start, which is right for them.
            warnings.simplefilter("ignore", ConvergenceWarning)
            column = np.reshape((values - centre) / scale, (-1, 1))
            line.fit(column, targets.ravel(), sample_weight=weights.ravel())
        self.slope_ = float(line.coef_[0, 0] / scale)
        self.intercept_ = float(line.intercept_[0] - self.slope_ * centre)
        if not np.isfinite(self.intercept_):
            raise NumericalError("the calibration is not finite: scale the scores to ordinary size")
        if self.slope_ < 0:
            warnings.warn(
                f"the slope is {self.slope_:.3g}: higher scores came with fewer targets. Is the score a distance, "
                "or are the labels turned round?",
                ReversedScoresWarning,
                stacklevel=2,
            )
        return self

    def transform(self, scores: ArrayLike) -> Array:
        """Calibrated natural-log LLRs, of the shape of the scores."""
        check_is_fitted(self, "slope_")
        return np.asarray(self.slope_ * _finite(scores) + self.intercept_)

    def check_state(self) -> None:
        self.slope_, self.intercept_ = float(self.slope_), float(self.intercept_)
        check_answers(self, self.transform, 1)


def _finite(scores: ArrayLike) -> Array:
    array = np.asarray(scores, dtype=np.float64)
    odd = np.count_nonzero(~np.isfinite(array))
    if odd:
        raise DataError(f"{odd} trial(s) have a score that is NaN or infinite: leave them out")
    return array


def _count_speakers(speakers: ArrayLike, targets: BoolArray) -> tuple[int, float]:
    """Speakers of the target trials, and how many with as many trials each they are worth; few are warned of."""
    names = as_array(speakers)
    if names.shape != targets.shape:
        raise LabelError(
            f"there are {targets.size} trials and {names.size} speakers: give one speaker per trial"
        )
    trials = np.unique(names[targets], return_counts=True)[1].astype(np.float64)
    worth = float(trials.sum() ** 2 / np.square(trials).sum())
    if worth < ENOUGH_SPEAKERS:
        warnings.warn(
            f"the calibration rests on {len(trials)} speaker(s), worth {worth:.0f} with as many target trials each: it "
            f"can be far off for others. Calibrate on {ENOUGH_SPEAKERS} or more",
            FewSpeakersWarning,
            stacklevel=3,
        )
    return len(trials), worth


TOGETHER = "together"
"""Names the factor of what is known of several views at once, beyond what is known of each."""

PARTS = "parts of recordings"
"""Names that of what parts of recordings tell."""

FACTOR_DEVIATION = 0.5
CONSTANT_DEVIATION = 1.0
SCALE_DEVIATION = 3.0
"""The prior of a `HypothesisCalibrator`: how far factors lie from 1 and constants from 0, relative to a scale that
all have in common, and how far the logarithm of that scale lies from 0."""


class HypothesisCalibrator(Persistent, BaseEstimator):
    """Calibrates the log-likelihoods of hypotheses, so that ratios and posteriors come from the same numbers.

    A hypothesis h is the set of views that two sides share. With L(h) its log-likelihood relative to "nothing is
    shared", L(v) that of the view v alone, and n hypotheses,

        C(h) = sum over v in h of f_v L(v)  +  f_together (L(h) - sum over v in h of L(v))  +  f_parts s(h)  +  c_h
        calibrated(h) = log((1 - doubt) exp C(h) / sum exp C  +  doubt / n)

    The factors f are at least 0; s(h) is what parts of the recordings tell of a view of h (`Near.same`), where there is
    such a thing. The doubt limits what any trial can claim: however many trials there are, few speakers cannot show
    that errors are rare, and it is hardly below ``errors`` / speakers.

    All are learnt by multinomial logistic regression on trials of people who were held out. Each hypothesis weighs
    the same, however many trials it has. Few speakers leave factors near 1 and constants near 0.

    Parameters
    ----------
    errors : float
        The prior of the doubt: so many trials that tell nothing are assumed beside those that were seen, of as many
        trials as there are speakers. 0.5 is Jeffreys' prior.

    Attributes
    ----------
    factors_ : dict of {view, "together" or "parts of recordings": factor}
    constants_ : dict of {"speaker+phrase", "speaker", ...: constant}; "nothing" has 0
    doubt_ : float, probability that the model tells nothing about a trial
    n_speakers_ : int, speakers whose trials were used

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda.calibration import HypothesisCalibrator
    >>> rng = np.random.default_rng(0)
    >>> same = np.arange(4000) % 2 == 0
    >>> llr = rng.normal(np.where(same, 2.0, -2.0), 2.0)                # calibrated
    >>> logs = {("speaker",): 3 * llr, (): np.zeros(4000)}              # three times too large
    >>> truth = np.where(same, 0, 1)
    >>> calibrator = HypothesisCalibrator().fit(logs, truth, speakers=np.arange(4000) // 4)
    >>> round(calibrator.factors_["speaker"], 2)
    0.34
    """

    KIND = "calibrator"
    FITTED = ("factors_", "constants_", "doubt_", "n_speakers_")

    factors_: dict[str, float]
    constants_: dict[str, float]
    doubt_: float
    n_speakers_: int

    def __init__(self, errors: float = 0.5) -> None:
        self.errors = errors

    def fit(
        self,
        logs: Logs,
        truth: ArrayLike,
        *,
        speakers: ArrayLike,
        corpora: ArrayLike | None = None,
        near: Near | None = None,
    ) -> Self:
        """Fit to trials of people who were held out.

        Parameters
        ----------
        logs : {hypothesis: (n,) log-likelihoods}, the first shares all views
        truth : (n,) place of the true hypothesis of every trial among the keys of `logs`
        speakers : (n,) speaker of every trial's enrolment
        corpora : (n,) where every trial comes from: all corpora then weigh the same. None: one corpus
        near : of the trials, what parts of the recordings tell
        """
        hypotheses = list(logs)
        inputs, names = _parts_of_evidence(logs, near)
        if not np.isfinite(inputs).all():
            raise NumericalError("some log-likelihoods are NaN or infinite: leave these trials out")
        truth = np.asarray(truth)
        if truth.shape != inputs.shape[:1] or truth.dtype.kind not in "iu":
            raise DataError(
                f"there are {len(inputs)} trials: truth names the place of each one's hypothesis; "
                f"got {truth.dtype} of shape {truth.shape}"
            )
        occurring = np.unique(truth)
        if len(occurring) < 2:
            raise DataError("calibration needs trials of at least two hypotheses")
        self.n_speakers_ = len(np.unique(as_array(speakers)))
        mass = _equal_shares(truth, corpora)
        # A hypothesis of which there are no trials is no alternative while factors are learnt: all that
        # speaks for it would be taken for an error.
        known = inputs[:, occurring]
        places = np.searchsorted(occurring, truth)
        factors, constants, self.doubt_ = _fit_multinomial(
            known, places, mass, self.n_speakers_, self.errors
        )
        self.factors_ = dict(zip(names, factors.tolist(), strict=True))
        self.constants_ = dict.fromkeys(map(hypothesis_name, hypotheses), 0.0)
        for place, constant in zip(occurring.tolist(), constants.tolist(), strict=True):
            self.constants_[hypothesis_name(hypotheses[place])] = constant
        return self

    def transform(self, logs: Logs, near: Near | None = None) -> dict[Hypothesis, Array]:
        """Calibrated log-likelihoods; those of the views alone must be among `logs`.

        near : whether what differs may be nearly the same, which C(h) is told before the doubt
        """
        check_is_fitted(self, "factors_")
        inputs, names = _parts_of_evidence(logs, near)
        factors = np.array([self.factors_.get(name, 1.0) for name in names])
        constants = [self.constants_.get(hypothesis_name(h), 0.0) for h in logs]
        evidence = inputs @ factors + np.array(constants)
        every = with_near({h: evidence[..., k] for k, h in enumerate(logs)}, near)
        raw = np.stack(list(every.values()), axis=-1)
        share = raw - np.logaddexp.reduce(raw, axis=-1, keepdims=True)
        uniform = np.log(self.doubt_ / len(constants))
        calibrated = np.logaddexp(np.log1p(-self.doubt_) + share, uniform)
        return {h: calibrated[..., place] for place, h in enumerate(logs)}

    def check_state(self) -> None:
        alone = [(view,) for view in self.factors_ if view not in (TOGETHER, PARTS)]
        every: list[Hypothesis] = [sum(alone, ()), *alone, ()]
        check_answers(self, lambda X: [*self.transform(dict.fromkeys(every, X)).values()], 1)

    @property
    def largest_llr(self) -> float:
        """No ratio of the first hypothesis to the mean of the others exceeds this."""
        check_is_fitted(self, "factors_")
        share = self.doubt_ / len(self.constants_)
        return float(np.log1p(share - self.doubt_) - np.log(share))

    def describe(self) -> Json:
        return {
            "class": type(self).__name__,
            "factors": self.factors_,
            "constants": self.constants_,
            "doubt": self.doubt_,
            "speakers": self.n_speakers_,
        }


def hypothesis_name(shared: Hypothesis) -> str:
    """A hypothesis in words: ``speaker+phrase``, ``speaker``, ``nothing``."""
    return "+".join(shared) or "nothing"


def _parts_of_evidence(logs: Logs, near: Near | None) -> tuple[Array, list[str]]:
    """(..., hypotheses, parts) what factors multiply, and its names: the views, all together, parts of recordings."""
    views = list(dict.fromkeys(view for h in logs for view in h))
    missing = [view for view in views if (view,) not in logs]
    if missing:
        raise DataError(f"the log-likelihood of sharing {missing[0]!r} alone is not among the logs")
    arrays = {h: np.asarray(values, dtype=np.float64) for h, values in logs.items()}
    nothing = np.zeros_like(next(iter(arrays.values())))
    rows = []
    for h, values in arrays.items():
        alone = [arrays[view,] if view in h else nothing for view in views]
        together = nothing
        if len(h) > 1:
            together = values - sum((arrays[view,] for view in h), nothing)
        columns = [*alone, together] if len(views) > 1 else alone
        if near is not None:
            columns.append(near.same if near.view in h else nothing)
        rows.append(np.stack(columns, axis=-1))
    names = [*views, TOGETHER] if len(views) > 1 else views
    if near is not None:
        names.append(PARTS)
    return np.stack(rows, axis=-2), names


def _equal_shares(truth: IntArray, corpora: ArrayLike | None) -> Array:
    """(n,) weights that sum to 1: corpora weigh the same, and in each the hypotheses that occur."""
    places = np.zeros(len(truth), dtype=np.int64)
    if corpora is not None:
        places = np.unique(as_array(corpora), return_inverse=True)[1]
    mass = np.empty(len(truth))
    for corpus in np.unique(places):
        here = places == corpus
        counts = np.bincount(truth[here])
        mass[here] = 1.0 / (counts[truth[here]] * np.count_nonzero(counts))
    return mass / mass.sum()


def _fit_multinomial(
    inputs: Array, truth: IntArray, mass: Array, speakers: float, errors: float
) -> tuple[Array, Array, float]:
    """Factors, constants (0 for the last hypothesis) and doubt of least cost.

    inputs : (n, hypotheses, parts), truth : (n,), mass : (n,) weights that sum to 1
    speakers : what the trials weigh against the prior; errors : of the prior of the doubt
    """
    n, n_hypotheses, n_parts = inputs.shape
    rows = np.arange(n)
    # Factors and constants have a common scale, so that scores which are no log-likelihoods, cosines for
    # example, are calibrated as well: theta = (log scale, factors / scale, constants / scale, logit of doubt).
    first_constant = 1 + n_parts
    sizes = [1, n_parts, n_hypotheses - 1]
    centre = np.repeat([0.0, 1.0, 0.0], sizes)
    deviation = np.repeat([SCALE_DEVIATION, FACTOR_DEVIATION, CONSTANT_DEVIATION], sizes)

    def cost(theta: Array) -> tuple[float, Array]:
        scale = np.exp(theta[0])
        ratios = theta[1:first_constant]
        shifts = np.append(theta[first_constant:-1], 0.0)
        doubt = expit(theta[-1])
        unscaled = inputs @ ratios + shifts
        logs = scale * unscaled
        posterior = np.exp(logs - np.logaddexp.reduce(logs, axis=1, keepdims=True))
        right = posterior[rows, truth]
        likelihood = (1 - doubt) * right + doubt / n_hypotheses
        # d cost / d logs of every trial
        pull = mass * (1 - doubt) * right / likelihood
        slope = posterior * pull[:, None]
        slope[rows, truth] -= pull
        gradient = np.empty_like(theta)
        gradient[0] = scale * np.sum(slope * unscaled)
        gradient[1:first_constant] = scale * np.einsum("nhp,nh->p", inputs, slope)
        gradient[first_constant:-1] = scale * slope.sum(axis=0)[:-1]
        of_doubt = float(mass @ ((right - 1 / n_hypotheses) / likelihood))
        # The prior: normal around the model as it is; doubt ** errors for the doubt.
        apart = (theta[:-1] - centre) / deviation
        prior = 0.5 * float(apart @ apart) - errors * float(np.log(doubt))
        gradient[:-1] += apart / deviation / speakers
        gradient[-1] = (of_doubt * doubt - errors / speakers) * (1 - doubt)
        return prior / speakers - float(mass @ np.log(likelihood)), gradient

    start = np.append(centre, np.log(errors / speakers))
    least = np.full(len(start), -np.inf)
    least[1:first_constant] = 0.0
    least[-1] = -15.0
    most = np.append(np.full(len(centre), np.inf), 0.0)
    result = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=Bounds(least, most))
    if not np.isfinite(result.x).all():
        raise NumericalError("the calibration is not finite: are the log-likelihoods?")
    scaled = np.exp(result.x[0]) * result.x[1:-1]
    return scaled[:n_parts], np.append(scaled[n_parts:], 0.0), float(expit(result.x[-1]))


def question_key(question: Question, views: Sequence[str]) -> str:
    """The canonical text of a question: ``speaker+phrase``, ``speaker``, ``speaker+phrase|phrase known``.

    views : the model's base views, in their order
    """
    given = dict(question.given or {})
    asked = [view for view in views if view not in given]
    if question.same is not None:
        asked = [view for view in views if view in question.same]
    facts = [f"{view} {given[view]}" for view in views if view in given]
    facts += [f"{view} known" for view in views if view in question.known_views]
    return "|".join(["+".join(asked), *facts])


@dataclass(frozen=True, eq=False)
class Answer:
    """Log-likelihoods of weighted hypotheses for a matrix or a list of trials, and all that follows from them.

    Everything that belongs to a trial has the shape of `llr`, (profiles, tests) or (trials,), so that a matrix, a list
    and `take` cannot differ. LLR, half LLRs, probabilities and decisions come from one weighted set of hypotheses:
    those for the question weigh one half together, and so do those against it.

    Parameters
    ----------
    logs : {hypothesis: log-likelihoods}, up to a constant per trial
    ratio : hypotheses for and against, with their log weights
    question : the question, as it was asked
    keys : text of the question that each trial was answered by, see `question_key`; known classes may differ by profile
    is_calibrated : whether each trial is calibrated for its question
    countermeasure : LLR of a person's voice against a spoof, per trial; None: no countermeasure
    claims : {view: class that the question names for the trial's profile}
    near : evidence of near matches, per trial; already part of `logs`

    Attributes
    ----------
    llr : natural-log likelihood ratio that answers the question, spoofs included
    """

    logs: Logs
    ratio: Ratio
    question: Question
    keys: Names
    is_calibrated: BoolArray
    countermeasure: Array | None = None
    claims: Mapping[str, Names] = field(default_factory=dict)
    near: Near | None = None
    llr: Array = field(init=False)

    def __post_init__(self) -> None:
        # what the question rules out is no part of the answer
        logs = {h: np.asarray(self.logs[h]) for h in self.ratio.hypotheses}
        object.__setattr__(self, "logs", logs)
        llr = self.ratio.of(logs)
        self._check_shapes(llr.shape)
        if self.countermeasure is not None:
            llr = np.asarray(
                with_countermeasure(llr, self.countermeasure, self.question.spoof_share)
            )
        object.__setattr__(self, "llr", llr)

    def _check_shapes(self, shape: tuple[int, ...]) -> None:
        parts: dict[str, Array | Names | BoolArray] = {
            **{f"logs of {hypothesis_name(h)!r}": values for h, values in self.logs.items()},
            **{f"claims of {view!r}": names for view, names in self.claims.items()},
            "keys": self.keys,
            "is_calibrated": self.is_calibrated,
        }
        if self.countermeasure is not None:
            parts["countermeasure"] = self.countermeasure
        if self.near is not None:
            parts |= {f"near {name}": getattr(self.near, name) for name in ("prior", "llr", "same")}
        for name, values in parts.items():
            if np.shape(values) != shape:
                raise DataError(
                    f"the answer is about trials of shape {shape}, {name} has shape {np.shape(values)}: give one value "
                    "per trial"
                )

    @property
    def key(self) -> str:
        """Text of the question, where all trials were answered by one."""
        keys = np.unique(self.keys)
        if len(keys) != 1:
            raise LabelError(
                f"the trials were answered by different questions, {keys.tolist()}: see Answer.keys"
            )
        return str(keys[0])

    @property
    def calibrated(self) -> bool:
        """Whether all trials are calibrated for their question."""
        return bool(np.all(self.is_calibrated))

    @property
    def weights(self) -> Weights:
        """Prior weight of every hypothesis: even odds for and against the question."""
        both = self.ratio.numerator | self.ratio.denominator
        return {h: math.exp(weight) / 2 for h, weight in both.items()}

    def posteriors(self) -> dict[Hypothesis, Array]:
        """Posterior probability of every hypothesis, of a spoof where there is a countermeasure."""
        weighted = self._weighted()
        total = np.logaddexp.reduce(list(weighted.values()), axis=0)
        return {h: np.exp(values - total) for h, values in weighted.items()}

    def log_odds_of(self, view: str) -> Array:
        """Posterior log odds of "same in this view" against "different in it", of a recording that is no spoof."""
        weighted = self._weighted()
        weighted.pop((SPOOF,), None)
        same, other = self._sides(view, weighted)
        return np.asarray(np.logaddexp.reduce(same, axis=0) - np.logaddexp.reduce(other, axis=0))

    def llr_of(self, view: str) -> Array:
        """Log ratio of "same in this view" to "different in it": other views weigh as in `weights`.

        The posterior log odds of a view are this plus the prior log odds, without a countermeasure.
        """
        log_weights = {h: math.log(weight) for h, weight in self.weights.items()}
        same, other = self._sides(view, {h: self.logs[h] + w for h, w in log_weights.items()})
        priors = [np.logaddexp.reduce(side) for side in self._sides(view, log_weights)]
        ratio = np.logaddexp.reduce(same, axis=0) - np.logaddexp.reduce(other, axis=0)
        return np.asarray(ratio - priors[0] + priors[1])

    def _weighted(self) -> dict[Hypothesis, Array]:
        """Log of weight times likelihood of every hypothesis, and of a spoof where there is a countermeasure."""
        target = {h: self.logs[h] + weight for h, weight in self.ratio.numerator.items()}
        others = {h: self.logs[h] + weight for h, weight in self.ratio.denominator.items()}
        if self.countermeasure is None:
            return target | others
        share = self.question.spoof_share
        with np.errstate(divide="ignore"):
            log_share, log_rest = np.log([share, 1.0 - share])
        # infinite ratios: the others' posteriors are 0 all the same
        traces = np.clip(self.countermeasure, -1e12, 1e12)
        spoof = np.logaddexp.reduce(list(target.values()), axis=0) - traces + log_share
        return target | {h: log_rest + values for h, values in others.items()} | {(SPOOF,): spoof}

    def _sides(self, view: str, values: Mapping[Hypothesis, V]) -> tuple[list[V], list[V]]:
        """Values of the hypotheses with a view, and of those without it."""
        same = [value for h, value in values.items() if view in h]
        other = [value for h, value in values.items() if view not in h]
        if not same or not other:
            raise LabelError(f"nothing is open about view {view!r}: it is given, or no view")
        return same, other

    @property
    def views(self) -> Views:
        """Views that hypotheses differ in."""
        every = list(self.logs)
        named = dict.fromkeys(view for h in every for view in h)
        return tuple(view for view in named if not all(view in h for h in every))

    def take(self, *index: int) -> Answer:
        """The answer to one trial of the matrix or list, as arrays of no dimensions."""
        if len(index) != self.llr.ndim:
            raise DataError(
                f"a trial of an answer of shape {self.llr.shape} has {self.llr.ndim} numbers; got {index}"
            )
        claims = {view: np.asarray(names[index]) for view, names in self.claims.items()}
        countermeasure = None
        if self.countermeasure is not None:
            countermeasure = np.asarray(self.countermeasure[index])
        near = None
        if self.near is not None:
            view, *columns = self.near
            near = Near(view, *(np.asarray(column[index]) for column in columns))
        return replace(
            self,
            logs={h: np.asarray(values[index]) for h, values in self.logs.items()},
            question=_about_one(self.question, claims, countermeasure),
            keys=np.asarray(self.keys[index]),
            is_calibrated=np.asarray(self.is_calibrated[index]),
            countermeasure=countermeasure,
            claims=claims,
            near=near,
        )


def _about_one(
    question: Question, claims: Mapping[str, Names], countermeasure: Array | None
) -> Question:
    """The question about one trial: what it gives per profile or per test is that of the trial."""
    if claims:
        question = replace(question, known={view: [name.item()] for view, name in claims.items()})
    if countermeasure is not None:
        question = replace(question, countermeasure=float(countermeasure))
    return question
