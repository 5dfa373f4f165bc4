"""Calibration: scores in, natural-log likelihood ratios out.

Every calibrator has ``fit(scores, kinds_or_targets)`` and ``transform(scores)``. Fit it on
trials that are not those of the evaluation.
"""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression, minimize
from scipy.special import expit
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ._typing import Array
from .costs import log_odds
from .exceptions import (
    DataError,
    FewSpeakersWarning,
    LabelError,
    NumericalError,
    ParameterError,
    ReversedScoresWarning,
    SeparableScoresWarning,
)
from .kinds import NONTARGETS, SPELLINGS, TARGETS
from .labels import as_array, encode_labels
from .persistence import Persistent, check_answers
from .scoring.question import Hypothesis, Question

__all__ = [
    "Answer",
    "HypothesisCalibrator",
    "KindCalibrator",
    "LinearCalibrator",
    "PAVCalibrator",
    "QualityCalibrator",
    "question_key",
]


class Calibrator(Persistent, BaseEstimator):
    """Has ``fit(scores, kinds_or_targets)`` and ``transform(scores)``, and takes `n_scores_` scores a trial."""

    KIND: ClassVar[str] = "calibrator"

    n_scores_: int
    n_speakers_: int | None = None

    def fit(self, scores: Any, kinds_or_targets: Any, *, speakers: Any = None) -> Self:
        raise NotImplementedError

    def transform(self, scores: Any) -> Array:
        raise NotImplementedError

    def check_state(self) -> None:
        super().check_state()
        check_answers(self, self._probe, self.n_scores_)

    def _probe(self, scores: Array) -> Array:
        return self.transform(scores)

    def fit_transform(
        self, scores: Any, kinds_or_targets: Any, *side: Any, speakers: Any = None, **named: Any
    ) -> Array:
        """Fit, and calibrate the same trials, with what both need besides: for looking at, not for reporting."""
        return self.fit(scores, kinds_or_targets, *side, speakers=speakers, **named).transform(
            scores, *side, **named
        )


class LinearCalibrator(Calibrator):
    """LLR = slopes . scores + intercept, by prior-weighted logistic regression.

    Targets together weigh `prior`, non-targets together 1 - prior, however many there are
    of each. Several scores a trial are fused.

    Parameters
    ----------
    prior : float in (0, 1)
        Where the calibration is to be best; 0.5 minimises Cllr.
    ridge : float
        Penalty on the slopes, used only if the training scores do not overlap (then with
        a `SeparableScoresWarning`) and the speakers are not known.

    Attributes
    ----------
    slopes_ : (m,)
    intercept_ : float
    n_scores_ : int, m
    n_speakers_ : int, speakers of the target trials; None where `fit` was not told

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda.calibration import LinearCalibrator
    >>> rng = np.random.default_rng(0)
    >>> targets = rng.random(10_000) < 0.5
    >>> scores = rng.normal(2.0 * targets - 1, 1.0) * 0.1 + 5     # LLR / 20 + 5
    >>> LinearCalibrator().fit(scores, targets).slopes_.round(-1)
    array([20.])
    """

    FITTED: ClassVar[Mapping[str, str]] = {
        "slopes_": "M",
        "intercept_": "number",
        "n_scores_": "= M",
        "n_speakers_": "count or None",
    }

    def __init__(self, prior: float = 0.5, ridge: float = 1e-4) -> None:
        self.prior = prior
        self.ridge = ridge

    def fit(self, scores: Any, kinds_or_targets: Any, *, speakers: Any = None) -> Self:
        """Fit to trials.

        Parameters
        ----------
        scores : (n,), or (n, m) for m scores a trial
        kinds_or_targets : (n,) TC, TW, IC, IW; or target, nontarget; or True and False
        speakers : (n,) speaker of every trial's enrolment. However many trials there are, few
            speakers tell little: the slopes are then drawn towards zero, which makes the LLRs
            less sure, and fewer than 30 speakers give a `FewSpeakersWarning`. None: not known,
            and nothing is said of them
        """
        scores = as_scores(scores)
        targets = as_targets(kinds_or_targets, len(scores))
        return self._fit(scores, targets, self._mass(targets), speakers)

    def transform(self, scores: Any) -> Array:
        """(n,) calibrated natural-log LLRs."""
        check_is_fitted(self, "slopes_")
        return np.asarray(as_scores(scores, self.n_scores_) @ self.slopes_ + self.intercept_)

    def _mass(self, targets: NDArray[np.bool_]) -> Array:
        share = targets.mean()
        return np.asarray(
            np.where(targets, self.prior / share, (1 - self.prior) / (1 - share)) / len(targets)
        )

    def _fit(
        self,
        scores: Array,
        targets: NDArray[np.bool_],
        mass: Array,
        speakers: Any,
        side: Any = None,
    ) -> Self:
        if not self.ridge > 0:
            raise ParameterError(f"ridge is positive; got {self.ridge}")
        self.n_speakers_, worth = count_speakers(speakers, targets, stacklevel=4)
        odds, used, inputs = log_odds(self.prior), mass > 0, self._inputs(scores, side)
        self.slopes_, self.intercept_ = fit_logistic(
            inputs[used], targets[used], mass[used], odds, self.ridge, worth
        )
        self.n_scores_ = scores.shape[1]
        if len(self.slopes_) == 1 and self.slopes_[0] < 0:
            warnings.warn(
                f"the slope is {self.slopes_[0]:.3g}: higher scores came with fewer targets. Is the score a distance, "
                "or are the labels turned round?",
                ReversedScoresWarning,
                stacklevel=3,
            )
        return self

    def _inputs(self, scores: Array, side: Any) -> Array:
        """(n, m) what the slopes belong to."""
        return scores


class KindCalibrator(LinearCalibrator):
    """A linear calibrator that weighs the kinds of non-target trials, not their numbers.

    All pairs of a list hold far more IW (impostor, wrong phrase) than IC or TW trials, and a
    plain calibration serves the many. Here every kind of non-target has an equal share of
    1 - prior, or the share that `kind_priors` gives it.

    Parameters
    ----------
    prior : float in (0, 1)
        Prior of a target.
    kind_priors : dict of {kind: weight} or None
        Weights of the kinds of non-targets, to be scaled to sum to one; a kind that is not
        named weighs nothing. None: all alike.
    target : str
        The kind that is to be accepted.
    ridge : float
        As in `LinearCalibrator`.

    Attributes
    ----------
    slopes_, intercept_, n_scores_, n_speakers_ : as in `LinearCalibrator`
    kinds_ : list of the kinds of non-targets that were trained on

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda.calibration import KindCalibrator
    >>> rng = np.random.default_rng(0)
    >>> kinds = np.repeat(["TC", "IC", "IW"], [500, 500, 20_000])
    >>> scores = rng.normal(np.select([kinds == "TC", kinds == "IC"], [3.0, 0.0], -6.0))
    >>> calibrator = KindCalibrator().fit(scores, kinds)
    >>> calibrator.kinds_
    ['IC', 'IW']
    """

    FITTED: ClassVar[Mapping[str, str]] = {**LinearCalibrator.FITTED, "kinds_": "texts"}

    def __init__(
        self,
        prior: float = 0.5,
        kind_priors: Mapping[str, float] | None = None,
        target: str = "TC",
        ridge: float = 1e-4,
    ) -> None:
        super().__init__(prior, ridge)
        self.kind_priors = kind_priors
        self.target = target

    def fit(self, scores: Any, kinds_or_targets: Any, *, speakers: Any = None) -> Self:
        """Fit to trials whose kinds are named.

        Parameters
        ----------
        scores : (n,), or (n, m), for example joint, speaker and phrase LLR of every trial
        kinds_or_targets : (n,) names of kinds, such as TC, TW, IC, IW
        speakers : as in `LinearCalibrator`
        """
        scores = as_scores(scores)
        kinds = as_kinds(kinds_or_targets, len(scores))
        if kinds.dtype.kind != "U":
            raise LabelError(
                "KindCalibrator needs the kind of every trial by name (TC, TW, IC, IW), not only targets"
            )
        targets = check_both(kinds == self.target)
        self.kinds_ = [str(kind) for kind in np.unique(kinds[~targets])]
        mass = np.where(targets, self.prior / targets.sum(), 0.0)
        for kind, share in self._shares().items():
            here = kinds == kind
            mass[here] = (1 - self.prior) * share / here.sum()
        return self._fit(scores, targets, mass, speakers)

    def _shares(self) -> dict[str, float]:
        weights = (
            dict.fromkeys(self.kinds_, 1.0) if self.kind_priors is None else dict(self.kind_priors)
        )
        absent = [
            kind for kind, weight in weights.items() if weight > 0 and kind not in self.kinds_
        ]
        if absent:
            raise LabelError(
                f"kind_priors names {absent[0]!r}, but the non-targets are of {self.kinds_}"
            )
        total = float(sum(weights.values()))
        if not weights or min(weights.values()) < 0 or not total > 0:
            raise ParameterError(
                f"kind_priors are not negative, and some are positive; got {weights}"
            )
        return {kind: float(weight) / total for kind, weight in weights.items() if weight > 0}


class QualityCalibrator(LinearCalibrator):
    """A calibrator that also sees side information: enrolment counts, durations, levels.

    With q the side information (its logarithm if `log`), centred on its training mean:

        LLR = a . s + b + c . q + sum over scores i and columns j of d_ij s_i q_j,

    the products only if `interactions`. Side information beyond the range seen in training
    is taken at the edge of that range, so that no slope runs away.

    Parameters
    ----------
    prior : float in (0, 1)
    log : bool
        Take logarithms of the side information: right for counts and durations.
    interactions : bool
        Let the side information change the slopes, not only the offset.
    ridge : float
        As in `LinearCalibrator`.

    Attributes
    ----------
    slopes_ : (m + q,) or (m + q + m q,), in the order of the formula
    intercept_ : float
    n_scores_ : int, m
    n_speakers_ : as in `LinearCalibrator`
    side_names_ : list of the q columns
    side_mean_, side_low_, side_high_ : (q,) after the logarithm
    """

    FITTED: ClassVar[Mapping[str, str]] = {
        **LinearCalibrator.FITTED,
        "n_scores_": "count",
        "side_names_": "texts",
        "side_mean_": "Q",
        "side_low_": "Q",
        "side_high_": "Q",
    }

    def __init__(
        self, prior: float = 0.5, log: bool = True, interactions: bool = True, ridge: float = 1e-4
    ) -> None:
        super().__init__(prior, ridge)
        self.log = log
        self.interactions = interactions

    def fit(
        self, scores: Any, kinds_or_targets: Any, side: Any = None, *, speakers: Any = None
    ) -> Self:
        """Fit to trials with side information.

        Parameters
        ----------
        scores, kinds_or_targets, speakers : as in `LinearCalibrator`
        side : (n, q) array, dict of {name: (n,)} or DataFrame
        """
        scores = as_scores(scores)
        targets = as_targets(kinds_or_targets, len(scores))
        return self._fit(scores, targets, self._mass(targets), speakers, side)

    def _probe(self, scores: Array) -> Array:
        return self.transform(scores, np.ones((len(scores), len(self.side_names_))))

    def transform(self, scores: Any, side: Any = None) -> Array:
        """(n,) calibrated natural-log LLRs."""
        check_is_fitted(self, "slopes_")
        scores = as_scores(scores, self.n_scores_)
        columns = self._scaled(as_side(side, len(scores), self.side_names_)[0])
        return self._features(scores, columns) @ self.slopes_ + self.intercept_

    def _inputs(self, scores: Array, side: Any) -> Array:
        columns, self.side_names_ = as_side(side, len(scores))
        columns = self._scaled(columns)
        self.side_mean_ = columns.mean(axis=0)
        self.side_low_, self.side_high_ = columns.min(axis=0), columns.max(axis=0)
        return self._features(scores, columns)

    def _scaled(self, columns: Array) -> Array:
        if not self.log:
            return columns
        if columns.size and columns.min() <= 0:
            raise DataError(
                f"log=True needs positive side information; the least is {columns.min()}. Use log=False"
            )
        return np.log(columns)

    def _features(self, scores: Array, columns: Array) -> Array:
        q = np.clip(columns, self.side_low_, self.side_high_) - self.side_mean_
        parts = [scores, q]
        if self.interactions:
            parts.append((scores[:, :, None] * q[:, None, :]).reshape(len(scores), -1))
        return np.concatenate(parts, axis=1)


class PAVCalibrator(Calibrator):
    """The best rising map from scores to LLRs: no shape is assumed but order.

    Pooling adjacent violators gives steps of constant LLR. Between the last score of a step
    and the first of the next the LLR is interpolated linearly; below the lowest and above
    the highest training score it stays as it is there. Ends are finite by this rule: one
    target is added below all scores and one non-target above all.

    Attributes
    ----------
    knots_ : (k,) scores, rising
    llrs_ : (k,) their LLRs, never falling
    n_scores_ : int, 1
    n_speakers_ : as in `LinearCalibrator`

    Examples
    --------
    >>> from mvplda.calibration import PAVCalibrator
    >>> pav = PAVCalibrator().fit([1, 2, 3, 4], [False, True, False, True])
    >>> pav.transform([2, 2.5, 3]).round(3)
    array([0., 0., 0.])
    """

    FITTED: ClassVar[Mapping[str, str]] = {
        "knots_": "K rising",
        "llrs_": "K rising",
        "n_scores_": "count",
        "n_speakers_": "count or None",
    }

    def fit(self, scores: Any, kinds_or_targets: Any, *, speakers: Any = None) -> Self:
        """Fit to trials: scores (n,), and what they are as in `LinearCalibrator`.

        Few `speakers` are warned of; the map, which has no slopes, stays as it is.
        """
        values = self._one(as_scores(scores))
        targets = as_targets(kinds_or_targets, len(values))
        self.n_speakers_, _ = count_speakers(speakers, targets, stacklevel=3)
        low, high = values.min(), values.max()
        values = np.concatenate([[low], values, [high]])
        labels = np.concatenate([[1.0], targets, [0.0]])
        order = np.lexsort(
            (-labels, values)
        )  # of equal scores the targets first, so that they are pooled
        fitted = isotonic_regression(labels[order])
        posterior = np.clip(fitted.x[fitted.blocks[:-1]], 0.0, 1.0)
        n_targets = labels.sum()
        llrs = (
            np.log(posterior) - np.log1p(-posterior) - np.log(n_targets / (len(labels) - n_targets))
        )
        sorted_values = values[order]
        edges = np.stack(
            [sorted_values[fitted.blocks[:-1]], sorted_values[fitted.blocks[1:] - 1]], axis=1
        ).reshape(-1)
        steps = np.repeat(llrs, 2)
        kept = np.append(True, (np.diff(edges) > 0) | (np.diff(steps) > 0))
        self.knots_, self.llrs_, self.n_scores_ = edges[kept], steps[kept], 1
        return self

    def transform(self, scores: Any) -> Array:
        """(n,) calibrated natural-log LLRs."""
        check_is_fitted(self, "knots_")
        return np.asarray(np.interp(self._one(as_scores(scores)), self.knots_, self.llrs_))

    @staticmethod
    def _one(scores: Array) -> Array:
        if scores.shape[1] != 1:
            raise DataError(
                f"PAV takes one score a trial, got {scores.shape[1]}: fuse them first (KindCalibrator)"
            )
        return scores[:, 0]


LLR_DEVIATION = 30.0
"""Standard deviation over all trials that calibrated LLRs may well have: the prior of slopes."""


def logistic_cost(
    weights: Array, inputs: Array, signs: Array, mass: Array, offset: float, ridge: float = 0.0
) -> tuple[float, Array]:
    """Cost sum_i mass_i log(1 + exp(-sign_i (inputs_i . weights + offset))) + ridge / 2 |slopes|^2, and its gradient.

    The last column of the inputs is the constant; the ridge leaves its weight alone.
    """
    margin = signs * (inputs @ weights + offset)
    slopes = np.append(weights[:-1], 0.0)
    cost = float(mass @ np.logaddexp(0.0, -margin)) + ridge / 2 * float(slopes @ slopes)
    gradient = -inputs.T @ (mass * signs * expit(-margin)) + ridge * slopes
    return cost, gradient


def curvature(
    weights: Array, inputs: Array, mass: Array, offset: float, ridge: float = 0.0
) -> Array:
    """Matrix of second derivatives of `logistic_cost`."""
    p = expit(inputs @ weights + offset)
    hessian = (inputs * (mass * p * (1 - p))[:, None]).T @ inputs
    hessian[np.arange(len(weights) - 1), np.arange(len(weights) - 1)] += ridge
    return np.asarray(hessian)


def least_cost(
    inputs: Array, signs: Array, mass: Array, offset: float, ridge: float = 0.0
) -> Array | None:
    """The weights of least cost, or None where they run away to infinity."""
    search: Any = minimize  # its stubs know no Hessian beside a cost that brings its gradient
    found = search(
        lambda w: logistic_cost(w, inputs, signs, mass, offset, ridge),
        np.zeros(inputs.shape[1]),
        jac=True,
        hess=lambda w: curvature(w, inputs, mass, offset, ridge),
        method="trust-exact",
        options={"gtol": 1e-10, "maxiter": 300},
    )
    weights = np.asarray(found.x)
    if not np.isfinite(weights).all():
        return None
    if ridge == 0 and (signs * (inputs @ weights + offset)).min() > 0:
        return None  # all on their own side: scaling up always helps
    # Rounding of the cost can hold the search up just before its goal: then the gradient is small all the same.
    return weights if np.abs(found.jac).max() < 1e-7 else None


def _apart(features: Array, targets: NDArray[np.bool_]) -> bool:
    """Whether one score alone separates the trials, in either direction; they may touch."""
    if features.shape[1] != 1:
        return False
    a, b = features[targets, 0], features[~targets, 0]
    if max(a.max(), b.max()) == min(a.min(), b.min()):
        return False  # one value for all: the slope is 0
    return bool(a.min() >= b.max() or a.max() <= b.min())


def fit_logistic(
    features: Array,
    targets: NDArray[np.bool_],
    mass: Array,
    offset: float,
    ridge: float,
    speakers: float | None = None,
) -> tuple[Array, float]:
    """Slopes (m,) and intercept of the LLR that costs least.

    Where the number of speakers is known, the slopes have a prior: on features of unit variance (which are then
    as large as the deviation of the LLRs) a Gaussian of mean 0 and deviation `LLR_DEVIATION`. The trials weigh
    against it as two of every speaker, a target and a non-target, however many there are: those of one speaker
    say nearly the same. Few speakers so make LLRs less sure, many leave the plain fit, and separable scores
    have a finite optimum.

    Parameters
    ----------
    features : (n, m)
    targets : (n,) bool
    mass : (n,) weights of the trials; those of the targets sum to the prior, the others to the rest
    offset : log odds of the prior
    ridge : used only where the features separate the trials and `speakers` is None, on features of unit variance
    speakers : how many the trials are worth
    """
    centre, scale = features.mean(axis=0), features.std(axis=0)
    scale = np.where(scale > 1e-12 * np.maximum(np.abs(centre), 1e-300), scale, 1.0)
    inputs = np.column_stack([(features - centre) / scale, np.ones(len(features))])
    signs = np.where(targets, 1.0, -1.0)
    if speakers is not None:
        # The deviation that the prior is about is that of trials as they are weighed, not as they are counted.
        spread = np.sqrt(mass @ np.square(inputs[:, :-1] - mass @ inputs[:, :-1]))
        scale = scale * np.where(spread > 0, spread, 1.0)
        inputs[:, :-1] = (features - centre) / scale
        weights = least_cost(inputs, signs, mass, offset, 1 / (2 * speakers * LLR_DEVIATION**2))
    else:
        weights = None if _apart(features, targets) else least_cost(inputs, signs, mass, offset)
    if weights is None:
        warnings.warn(
            f"the training scores separate targets from non-targets, so the best slope is infinite: a ridge of {ridge} "
            "keeps it finite. More or harder trials would calibrate better",
            SeparableScoresWarning,
            stacklevel=4,
        )
        weights = least_cost(inputs, signs, mass, offset, ridge)
    if weights is None or not np.isfinite(weights).all():
        raise NumericalError("the calibration is not finite: scale the scores to ordinary size")
    slopes = weights[:-1] / scale
    return slopes, float(weights[-1] - slopes @ centre)


ENOUGH_SPEAKERS = 30


def as_scores(scores: Any, width: int | None = None) -> Array:
    """Scores as (n, m) float64: m scores of every trial; one dimension is one score a trial."""
    array = np.asarray(scores, dtype=np.float64)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] == 0:
        raise DataError(
            f"scores have shape (n,), or (n, m) for m scores a trial; got {array.shape}. Flatten a matrix of trials"
        )
    if width is not None and array.shape[1] != width:
        raise DataError(
            f"there are {array.shape[1]} score(s) a trial; this calibrator was fitted to {width}"
        )
    if not np.isfinite(array).all():
        bad = int((~np.isfinite(array)).any(axis=1).sum())
        raise DataError(
            f"{bad} trial(s) have a score that is NaN or infinite: leave them out or mend the scorer"
        )
    return array


def as_kinds(kinds_or_targets: Any, n: int) -> NDArray[Any]:
    """(n,) what every trial is: text (kinds) or bool (targets)."""
    array = np.asarray(kinds_or_targets)
    if array.shape != (n,):
        raise LabelError(
            f"there are {n} trials and labels of shape {array.shape}: give one kind or target a trial"
        )
    if array.dtype.kind == "O":
        array = np.asarray([str(v) if isinstance(v, str) else v for v in array])
    if array.dtype.kind in "US":
        return array.astype(str)
    values = np.unique(array)
    if set(values.tolist()) <= {0, 1, -1} and not {0, -1} <= set(values.tolist()):
        return np.asarray(array == 1)
    raise LabelError(
        f"trials are named by kind (TC, TW, IC, IW; target, nontarget), or by True and False, 1 and 0, 1 and -1; "
        f"got {values[:5].tolist()}"
    )


def as_targets(kinds_or_targets: Any, n: int) -> NDArray[np.bool_]:
    """(n,) whether every trial is a target."""
    kinds = as_kinds(kinds_or_targets, n)
    if kinds.dtype.kind == "U":
        names, codes = np.unique(kinds, return_inverse=True)
        meant = [SPELLINGS.get(name.lower(), "") for name in names.tolist()]
        if "" in meant:
            raise LabelError(
                f"there is no kind of trial {str(names[meant.index('')])!r}; there are {[*TARGETS, *NONTARGETS]}, "
                "or give True for targets and False for the others"
            )
        kinds = np.isin(meant, TARGETS)[codes]
    return check_both(kinds)


def check_both(targets: NDArray[Any]) -> NDArray[np.bool_]:
    """Calibration needs trials of both sorts."""
    some = int(targets.sum())
    if some == 0 or some == len(targets):
        raise DataError(
            f"calibration needs target and non-target trials; got {some} target(s) and {len(targets) - some} other(s)"
        )
    return np.asarray(targets, dtype=bool)


def count_speakers(
    speakers: Any, targets: NDArray[np.bool_], *, stacklevel: int
) -> tuple[int, float] | tuple[None, None]:
    """Speakers of the target trials, and how many with as many trials each they are worth; few are warned of."""
    if speakers is None:
        return None, None
    found = encode_labels({"speaker": speakers}).codes["speaker"]
    if len(found) != len(targets):
        raise LabelError(
            f"there are {len(targets)} trials and {len(found)} speakers: give one speaker a trial"
        )
    trials = np.unique(found[targets], return_counts=True)[1].astype(np.float64)
    worth = float(trials.sum() ** 2 / np.square(trials).sum())
    if worth < ENOUGH_SPEAKERS:
        uneven = (
            ""
            if round(worth) == len(trials)
            else f", worth {worth:.0f} with as many target trials each"
        )
        warnings.warn(
            f"the calibration rests on {len(trials)} speaker(s){uneven}: it can be far off for others. Calibrate on "
            f"{ENOUGH_SPEAKERS} or more",
            FewSpeakersWarning,
            stacklevel=stacklevel,
        )
    return len(trials), worth


def as_side(side: Any, n: int, names: list[str] | None = None) -> tuple[Array, list[str]]:
    """Side information as (n, q) with the names of its columns, in the order of `names` where given."""
    if side is None:
        raise DataError("this calibrator needs side=: one row of side information a trial")
    if isinstance(side, Mapping) or hasattr(side, "columns"):
        columns = {str(name): np.asarray(side[name], dtype=np.float64).reshape(-1) for name in side}
        wanted = list(columns) if names is None else names
        missing = [name for name in wanted if name not in columns]
        if missing:
            raise DataError(
                f"the side information has no column {missing[0]!r}; it has {list(columns)}"
            )
        array = np.stack([columns[name] for name in wanted], axis=1)
    else:
        array = np.asarray(side, dtype=np.float64)
        array = array[:, None] if array.ndim == 1 else array
        wanted = [f"side{i}" for i in range(array.shape[-1])] if names is None else names
    if array.ndim != 2 or array.shape[0] != n or array.shape[1] != len(wanted):
        raise DataError(
            f"side information has shape ({n}, {len(wanted)}), one row a trial; got {array.shape}"
        )
    if not np.isfinite(array).all():
        raise DataError("the side information holds NaN or infinity")
    return array, list(wanted)


TOGETHER = "together"
"""Names the factor of what is known of several views at once, beyond what is known of each."""

FACTOR_DEVIATION = 0.5
CONSTANT_DEVIATION = 1.0
SCALE_DEVIATION = 3.0
"""The prior of a `HypothesisCalibrator`: how far factors lie from 1 and constants from 0, relative to a scale that
all have in common, and how far the logarithm of that scale lies from 0."""


class HypothesisCalibrator(Persistent, BaseEstimator):
    """Calibrates the log-likelihoods of hypotheses, so that ratios and posteriors come from the same numbers.

    A hypothesis h is the set of views that two sides share. With L(h) its log-likelihood relative to "nothing is
    shared", L(v) that of the view v alone, and n hypotheses,

        C(h) = sum over v in h of f_v L(v)  +  f_together (L(h) - sum over v in h of L(v))  +  c_h
        calibrated(h) = log((1 - doubt) exp C(h) / sum exp C  +  doubt / n)

    The factors f are at least 0. The doubt limits what any trial can claim: however many trials there are, few
    speakers cannot show that an error is rarer than about one in as many trials as there are speakers.

    All are learnt by multinomial logistic regression on trials of people who were held out. Each hypothesis weighs
    the same, however many trials it has. Few speakers leave factors near 1 and constants near 0.

    Parameters
    ----------
    strength : float
        Of the prior on factors and constants: it weighs as many speakers.

    Attributes
    ----------
    factors_ : dict of {view or "together": factor}
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

    KIND: ClassVar[str] = "calibrator"
    FITTED: ClassVar[Mapping[str, str]] = {
        "factors_": "numbers",
        "constants_": "numbers",
        "doubt_": "share",
        "n_speakers_": "count",
    }

    factors_: dict[str, float]
    constants_: dict[str, float]
    doubt_: float
    n_speakers_: int

    def __init__(self, strength: float = 1.0) -> None:
        self.strength = strength

    def fit(
        self,
        logs: Mapping[Hypothesis, Any],
        truth: Any,
        *,
        speakers: Any,
        corpora: Any = None,
    ) -> Self:
        """Fit to trials of people who were held out.

        Parameters
        ----------
        logs : {hypothesis: (n,) log-likelihoods}, the first shares all views
        truth : (n,) place of the true hypothesis of every trial among the keys of `logs`
        speakers : (n,) speaker of every trial's enrolment
        corpora : (n,) where every trial comes from: all corpora then weigh the same. None: one corpus
        """
        if not self.strength > 0:
            raise ParameterError(f"strength is positive; got {self.strength}")
        hypotheses = list(logs)
        inputs, names = _parts_of_evidence(logs)
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
            known, places, mass, self.n_speakers_ / self.strength
        )
        self.factors_ = dict(zip(names, factors.tolist(), strict=True))
        self.constants_ = dict.fromkeys(map(hypothesis_name, hypotheses), 0.0)
        for place, constant in zip(occurring.tolist(), constants.tolist(), strict=True):
            self.constants_[hypothesis_name(hypotheses[place])] = constant
        return self

    def transform(self, logs: Mapping[Hypothesis, Any]) -> dict[Hypothesis, Array]:
        """Calibrated log-likelihoods; those of the views alone must be among `logs`."""
        check_is_fitted(self, "factors_")
        inputs, names = _parts_of_evidence(logs)
        factors = np.array([self.factors_.get(name, 1.0) for name in names])
        constants = [self.constants_.get(hypothesis_name(h), 0.0) for h in logs]
        raw = inputs @ factors + np.array(constants)
        share = raw - np.logaddexp.reduce(raw, axis=-1, keepdims=True)
        uniform = np.log(self.doubt_ / len(constants))
        calibrated = np.logaddexp(np.log1p(-self.doubt_) + share, uniform)
        return {h: calibrated[..., place] for place, h in enumerate(logs)}

    @property
    def largest_llr(self) -> float:
        """No ratio of the first hypothesis to the mean of the others exceeds this."""
        check_is_fitted(self, "factors_")
        share = self.doubt_ / len(self.constants_)
        return float(np.log1p(share - self.doubt_) - np.log(share))

    def describe(self) -> dict[str, Any]:
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


def _parts_of_evidence(logs: Mapping[Hypothesis, Any]) -> tuple[Array, list[str]]:
    """(..., hypotheses, parts) what factors multiply, and the parts' names: the views, and all together."""
    views = list(dict.fromkeys(view for h in logs for view in h))
    missing = [view for view in views if (view,) not in logs]
    if missing:
        raise DataError(f"the log-likelihood of sharing {missing[0]!r} alone is not among the logs")
    arrays = {h: np.asarray(values, dtype=np.float64) for h, values in logs.items()}
    nothing = np.zeros_like(next(iter(arrays.values())))
    rows = []
    for h, values in arrays.items():
        alone = [arrays[(view,)] if view in h else nothing for view in views]
        together = values - sum(alone, nothing) if len(h) > 1 else nothing
        rows.append(np.stack([*alone, together], axis=-1))
    inputs = np.stack(rows, axis=-2)
    names = [*views, TOGETHER]
    if len(views) == 1:
        return inputs[..., :1], names[:1]
    return inputs, names


def _equal_shares(truth: NDArray[Any], corpora: Any) -> Array:
    """(n,) weights that sum to 1: corpora weigh the same, and in each the hypotheses that occur."""
    places = np.zeros(len(truth), dtype=np.int64)
    if corpora is not None:
        places = np.unique(as_array(corpora), return_inverse=True)[1]
    mass = np.empty(len(truth))
    for corpus in np.unique(places):
        here = places == corpus
        counts = np.bincount(truth[here])
        mass[here] = 1.0 / (counts[truth[here]] * np.count_nonzero(counts))
    return np.asarray(mass / mass.sum())


def _fit_multinomial(
    inputs: Array, truth: NDArray[Any], mass: Array, speakers: float
) -> tuple[Array, Array, float]:
    """Factors, constants (0 for the last hypothesis) and doubt of least cost.

    inputs : (n, hypotheses, parts), truth : (n,), mass : (n,) weights that sum to 1
    speakers : what the trials weigh against the prior
    """
    n, n_hypotheses, n_parts = inputs.shape
    rows = np.arange(n)
    # Factors and constants have a common scale, so that scores which are no log-likelihoods, cosines for
    # example, are calibrated as well: theta = (log scale, factors / scale, constants / scale, logit of doubt).
    first_constant = 1 + n_parts
    centre = np.concatenate([[0.0], np.ones(n_parts), np.zeros(n_hypotheses - 1)])
    deviation = np.concatenate(
        [
            [SCALE_DEVIATION],
            np.full(n_parts, FACTOR_DEVIATION),
            np.full(n_hypotheses - 1, CONSTANT_DEVIATION),
        ]
    )

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
        # The prior: normal around the model as it is; Jeffreys' for the doubt.
        apart = (theta[:-1] - centre) / deviation
        prior = 0.5 * float(apart @ apart) - 0.5 * float(np.log(doubt))
        gradient[:-1] += apart / deviation / speakers
        gradient[-1] = (of_doubt * doubt - 0.5 / speakers) * (1 - doubt)
        return prior / speakers - float(mass @ np.log(likelihood)), gradient

    start = np.append(centre, np.log(0.5 / speakers))
    bounds: list[tuple[float | None, float | None]] = [(None, None)] * len(start)
    bounds[1:first_constant] = [(0.0, None)] * n_parts
    bounds[-1] = (-15.0, 0.0)
    result = minimize(
        cost, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 1000}
    )
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
    facts += [f"{view} shared" for view in views if view in (question.shared or {})]
    return "|".join(["+".join(asked), *facts])


@dataclass(frozen=True, eq=False)
class Answer:
    """What a model returns for trials: log-likelihoods of hypotheses, and all that follows from them.

    logs : {hypothesis: (profiles, tests) or (trials,)}, up to a constant of each trial
    llr : of the same shape: natural-log likelihood ratio that answers the question
    question : what was asked
    key : its text, see `question_key`
    calibrated : whether `logs` and `llr` are calibrated for this question
    weights : {hypothesis: prior weight}
    """

    logs: Mapping[Hypothesis, Array]
    llr: Array
    question: Question
    key: str
    calibrated: bool
    weights: Mapping[Hypothesis, float]

    def posteriors(self) -> dict[Hypothesis, Array]:
        """Posterior probability of every hypothesis, of a spoof where there is a countermeasure."""
        return self.question.posteriors(self.logs, self.weights)

    def llr_of(self, view: str) -> Array:
        """The ratio of "same in this view, whatever the others" to "different in it", other views alike."""
        same = [values for h, values in self.logs.items() if view in h]
        other = [values for h, values in self.logs.items() if view not in h]
        if not same or not other:
            raise LabelError(f"nothing is open about view {view!r}: it is given, or no view")
        gain = np.logaddexp.reduce(same, axis=0) - np.log(len(same))
        return np.asarray(gain - np.logaddexp.reduce(other, axis=0) + np.log(len(other)))

    @property
    def views(self) -> tuple[str, ...]:
        """Views that hypotheses differ in."""
        every = list(self.logs)
        named = dict.fromkeys(view for h in every for view in h)
        return tuple(view for view in named if not all(view in h for h in every))

    def take(self, *place: int) -> Answer:
        """The answer to one trial of the matrix or list, as arrays of no dimensions."""
        logs = {h: values[place] for h, values in self.logs.items()}
        question = self.question
        if question.countermeasure is not None:
            traces = np.broadcast_to(question.countermeasure, self.llr.shape)
            question = replace(question, countermeasure=float(traces[place]))
        return replace(self, logs=logs, llr=self.llr[place], question=question)
