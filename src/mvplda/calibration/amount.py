"""Calibration of each view by the amount of evidence: seconds of speech, number of recordings, sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from .._typing import Array, BoolArray, IntArray, Json, Names
from ..exceptions import DataError, NumericalError, ParameterError
from ..labels import as_array
from ..persistence import check_answers
from ..scoring.question import Hypothesis, LogLikelihoods, NearMatches, with_near_matches
from ..sklearn_interface import check_is_fitted
from .calibrator import Calibrator, Measures
from .hypotheses import (
    CONSTANT_DEVIATION,
    MAX_LOG_SCALE,
    SCALE_DEVIATION,
    WEIGHT_DEVIATION,
    check_truth,
    trial_weights,
    with_outliers,
)

LLR = "llr"
"""Key of the slope of a view's raw LLR at the least evidence, beside those of the measures."""

CONSTANT = "constant"
"""Key of the constant of a view at the least evidence, beside those of the measures."""

MAX_QUANTILE_TRIALS = 8000
"""Impostor trials that quantiles are estimated from."""


class AmountCalibrator(Calibrator):
    """Calibrates the LLR of each view by the amount of evidence on both sides.

    With V the raw LLR of a view alone and m_k >= 0 the amounts of evidence above the least of the fit, such as the log
    of the seconds of speech, the LLR of the view is

        (a_0 + sum over k of a_k m_k) V  +  b_0 + sum over k of b_k m_k

    and the log-likelihood of a hypothesis is the sum over its views, plus weighted joint evidence of several views and
    evidence of near matches, as in `HypothesisCalibrator`. The posterior of each view then follows from the LLR of the
    view alone. Amounts outside the range of the fit are clipped to it; trials without measures get the typical amounts.
    Conditions of the recordings add constants (`shift`).

    All a_k are at least 0: with more evidence the slope does not fall. The b_k are limited so that the LLR of an
    impostor at the `quantile` of the raw LLRs, or below it, does not rise with any amount of evidence (docs/math.md,
    section 9.14). So more speech or more recordings do not raise the share of impostors above a threshold.

    All parameters are fitted by multinomial logistic regression with normal priors on trials of held-out people. Each
    corpus has the same total weight, and each hypothesis within a corpus.

    Parameters
    ----------
    errors : float
        Uninformative trials that are assumed among the independent impostor pairs: the outlier probability is errors /
        pairs, and limits every LLR. 0.5 is Jeffreys' prior.
    quantile : float
        Quantile of the impostors' raw LLRs up to which a calibrated LLR does not rise with the amount of evidence.

    Attributes
    ----------
    measures_ : dict of {measure: (least, largest, typical amount of the fit)}
    slopes_ : dict of {view: {"llr" or measure: a}}
    constants_ : dict of {view: {"constant" or measure: b}}
    joint_weight_, near_match_weight_ : float
    outlier_probability_ : float, probability that the model is uninformative about a trial
    n_speakers_ : int, number of speakers in the fit

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda.calibration import AmountCalibrator
    >>> rng = np.random.default_rng(0)
    >>> same = np.arange(4000) % 2 == 0
    >>> seconds = rng.uniform(0.5, 4, 4000)
    >>> llr = rng.normal(np.where(same, 2, -2) * seconds, 2 * np.sqrt(seconds))
    >>> logs = {("speaker",): llr, (): np.zeros(4000)}
    >>> truth, speakers = np.where(same, 0, 1), np.arange(4000) // 4
    >>> calibrator = AmountCalibrator().fit(
    ...     logs, truth, speakers=speakers, measures={"log seconds": np.log(seconds)}
    ... )
    >>> calibrator.slopes_["speaker"]["log seconds"] >= 0
    True
    """

    FITTED = (
        "measures_",
        "slopes_",
        "constants_",
        "joint_weight_",
        "near_match_weight_",
        "outlier_probability_",
        "n_speakers_",
    )
    STORED_KEYS: ClassVar[dict[str, str]] = {}

    measures_: dict[str, list[float]]
    slopes_: dict[str, dict[str, float]]
    constants_: dict[str, dict[str, float]]
    joint_weight_: float
    near_match_weight_: float

    def __init__(self, errors: float = 0.5, quantile: float = 0.99) -> None:
        self.errors = errors
        self.quantile = quantile

    def fit(
        self,
        logs: LogLikelihoods,
        truth: ArrayLike,
        *,
        speakers: ArrayLike,
        corpora: ArrayLike | None = None,
        near_matches: NearMatches | None = None,
        measures: Measures | None = None,
        test_speakers: ArrayLike | None = None,
    ) -> Self:
        if not 0 < self.quantile < 1:
            raise ParameterError(f"expected a quantile between 0 and 1; got {self.quantile}")
        hypotheses = list(logs)
        raw, joint = _raw_llrs(logs)
        truth = check_truth(truth, len(joint), len(hypotheses))
        weights = trial_weights(truth, corpora)
        enrolled = as_array(speakers)
        corpus = np.zeros(len(truth)) if corpora is None else as_array(corpora)
        self.n_speakers_ = len(np.unique(enrolled))
        amounts = self._fit_ranges(measures or {}, weights)
        self.outlier_probability_ = self.errors / _impostor_pairs(enrolled, test_speakers)
        shared = {view: np.array([view in h for h in hypotheses]) for view in raw}
        designs = {
            view: ViewDesign.of(
                values,
                amounts,
                impostor_growth(
                    values, amounts, ~shared[view][truth], corpus, quantile=self.quantile
                ),
                near_matches.same
                if near_matches is not None and near_matches.view == view
                else None,
            )
            for view, values in raw.items()
        }
        self._fit_weights(designs, shared, joint, hypotheses, truth, weights)
        return self

    def _fit_ranges(self, measures: Measures, weights: Array) -> Array:
        """Set the range and the typical amount of each measure; return the amounts (n, measures) of the trials."""
        self.measures_ = {}
        for name, values in measures.items():
            column = np.asarray(values, dtype=np.float64)
            if column.shape != weights.shape or not np.isfinite(column).all():
                raise DataError(
                    f"expected one finite number of {name!r} per trial, {weights.shape}; got shape {column.shape}"
                )
            least, largest = float(column.min()), float(column.max())
            # rounding may move the mean of equal amounts out of their range
            typical = float(np.clip(weights @ column, least, largest))
            self.measures_[name] = [least, largest, typical]
        return self._amounts(measures, weights.shape)

    def _amounts(self, measures: Measures | None, shape: tuple[int, ...]) -> Array:
        """Return the amounts above the least of the fit, (*shape, measures), limited to its range."""
        columns = []
        for name, (least, largest, typical) in self.measures_.items():
            values = np.asarray((measures or {}).get(name, typical), dtype=np.float64)
            if np.isnan(values).any():
                raise DataError(f"the measure {name!r} is NaN for some trials: give a number")
            columns.append(np.broadcast_to(np.clip(values, least, largest) - least, shape))
        return np.stack(columns, axis=-1) if columns else np.zeros((*shape, 0))

    def _fit_weights(
        self,
        designs: Mapping[str, ViewDesign],
        shared: Mapping[str, BoolArray],
        joint: Array,
        hypotheses: Sequence[Hypothesis],
        truth: IntArray,
        weights: Array,
    ) -> None:
        """Fit the weights of the columns of all views and of the joint evidence, and store slopes and constants."""
        occurring = np.unique(truth)
        columns = {view: design.columns for view, design in designs.items()}
        priors = [design.prior() for design in designs.values()]
        # columns: centre, deviation and lower bound of each weight; the last is that of the joint evidence
        prior = np.concatenate([*priors, [[1.0, WEIGHT_DEVIATION, 0.0]]])
        fitted = _fit_additive(
            columns,
            {view: is_shared[occurring] for view, is_shared in shared.items()},
            joint[:, occurring],
            np.searchsorted(occurring, truth),
            weights,
            prior,
            self.n_speakers_,
            self.outlier_probability_,
        )
        self.slopes_, self.constants_ = {}, {}
        self.near_match_weight_ = 1.0
        stop = 0
        for view, design in designs.items():
            start, stop = stop, stop + design.columns.shape[1]
            slopes, constants, near_match_weight = design.coefficients(fitted[start:stop])
            self.slopes_[view] = dict(zip([LLR, *self.measures_], slopes, strict=True))
            self.constants_[view] = dict(zip([CONSTANT, *self.measures_], constants, strict=True))
            if near_match_weight is not None:
                self.near_match_weight_ = near_match_weight
        self.joint_weight_ = float(fitted[-1])

    def transform(
        self,
        logs: LogLikelihoods,
        near_matches: NearMatches | None = None,
        measures: Measures | None = None,
    ) -> dict[Hypothesis, Array]:
        """Return calibrated log-likelihoods; `logs` must contain the hypothesis of each view alone."""
        return self.add_outliers(self.without_outliers(logs, near_matches, measures))

    def without_outliers(
        self,
        logs: LogLikelihoods,
        near_matches: NearMatches | None = None,
        measures: Measures | None = None,
    ) -> LogLikelihoods:
        """Return sums of the LLRs of views, with near matches and without the outlier probability."""
        check_is_fitted(self, "slopes_")
        raw, joint = _raw_llrs(logs)
        amounts = self._amounts(measures, joint.shape[:-1])
        llrs = {}
        for view, values in raw.items():
            slopes = [*self.slopes_.get(view, {LLR: 1.0}).values()]
            constants = [*self.constants_.get(view, {CONSTANT: 0.0}).values()]
            slope = slopes[0] + amounts[..., : len(slopes) - 1] @ np.array(slopes[1:])
            constant = constants[0] + amounts[..., : len(constants) - 1] @ np.array(constants[1:])
            llrs[view] = slope * values + constant  # (V16)
            if near_matches is not None and near_matches.view == view:
                llrs[view] = llrs[view] + self.near_match_weight_ * near_matches.same
        by_hypothesis = {
            h: self.joint_weight_ * joint[..., k]
            + sum((llrs[view] for view in h), np.zeros(joint.shape[:-1]))
            for k, h in enumerate(logs)
        }
        return with_near_matches(by_hypothesis, near_matches)

    def add_outliers(self, logs: LogLikelihoods) -> dict[Hypothesis, Array]:
        """Return calibrated log-likelihoods from sums of the LLRs of views, mixed with the outlier probability."""
        return with_outliers(logs, self.outlier_probability_)  # (V18)

    def shift(self, condition: str, constants: Mapping[str, float]) -> Self:
        """Add a condition of the recordings, such as a narrow band: a measure between 0 and 1 that shifts LLRs.

        Trials without the measure count as 0. The slopes do not depend on conditions.

        constants : {view: LLR that is added where the measure is 1}
        """
        check_is_fitted(self, "slopes_")
        if condition in self.measures_:
            raise ParameterError(
                f"the calibration has the condition {condition!r} already: add each condition once"
            )
        self.measures_[condition] = [0.0, 1.0, 0.0]
        for view, row in self.constants_.items():
            row[condition] = float(constants.get(view, 0.0))
        return self

    def check_state(self) -> None:
        """Raise an error unless the calibrator gives finite log-likelihoods for ordinary input."""
        _check_numbers(self.slopes_, "slopes_")
        _check_numbers(self.constants_, "constants_")
        if set(self.slopes_) != set(self.constants_):
            raise DataError("slopes_ and constants_ must have the same views")
        if not isinstance(self.measures_, dict):
            raise DataError(
                f"measures_ must be a dict with a range per measure; got {type(self.measures_).__name__}"
            )
        allowed = len(self.measures_) + 1
        if any(len(row) > allowed for row in (*self.slopes_.values(), *self.constants_.values())):
            largest_row = max(
                len(row) for row in (*self.slopes_.values(), *self.constants_.values())
            )
            raise DataError(
                f"expected at most {allowed} coefficients per view in slopes_ and constants_, one per measure and one "
                f"constant; got {largest_row}"
            )
        views = list(self.slopes_)
        hypotheses: list[Hypothesis] = [tuple(views), *((view,) for view in views), ()]
        check_answers(self, lambda X: [*self.transform(dict.fromkeys(hypotheses, X)).values()], 1)
        for least, largest, typical in self.measures_.values():
            if not -np.inf < least <= typical <= largest < np.inf:
                raise DataError("the range of a measure is empty or infinite")

    @property
    def largest_llr(self) -> float:
        """Upper bound of the log ratio of the first hypothesis to the mean of the others."""
        check_is_fitted(self, "slopes_")
        share = self.outlier_probability_ / 2 ** len(self.slopes_)
        return float(np.log1p(share - self.outlier_probability_) - np.log(share))

    def describe(self) -> Json:
        """Return the parameters as plain values."""
        return {
            "class": type(self).__name__,
            "measures": self.measures_,
            "slopes": self.slopes_,
            "constants": self.constants_,
            "together": self.joint_weight_,
            "parts of recordings": self.near_match_weight_,
            "outlier probability": self.outlier_probability_,
            "speakers": self.n_speakers_,
        }


class ViewDesign(NamedTuple):
    """Design matrix of one view; lower bounds of its weights keep LLRs of impostors from rising with the evidence.

    The fitted weights are a_0, a_k, b_0, c_k and, if there is near-match evidence, its weight. Every b_k follows from
    them (docs/math.md, section 9.14): with q the high quantile of `growth` and M the largest amounts,

        b_k = -a_k q(M) - q_k (a_0 + sum over j of a_j M_j) - c_k,   c_k >= 0

    columns : (n, weights)
    ranges : (measures,) largest amounts M_k
    growth : high quantile of impostors' raw LLRs, by amount
    """

    columns: Array
    ranges: Array
    growth: ImpostorGrowth

    @classmethod
    def of(
        cls, raw: Array, amounts: Array, growth: ImpostorGrowth, same: Array | None
    ) -> ViewDesign:
        """Return the design of a view from raw LLRs (n,) and amounts (n, measures).

        same : (n,) near-match evidence about the view; None: there is none
        """
        ranges = amounts.max(axis=0, initial=0.0)
        drift = amounts @ growth.slopes
        columns = [
            (raw - drift)[:, None],
            amounts * (raw - growth.at(ranges))[:, None] - np.outer(drift, ranges),
            np.ones((len(raw), 1)),
            -amounts,
        ]
        if same is not None:
            columns.append(np.asarray(same)[:, None])
        return cls(np.concatenate(columns, axis=1), ranges, growth)

    def prior(self) -> Array:
        """Return (columns, 3) centre, deviation and lower bound of each weight."""
        count = len(self.ranges)
        per_range = 1.0 / np.maximum(self.ranges, 1e-9)
        rows = [[1.0, WEIGHT_DEVIATION, 0.0]]
        rows += [[0.0, WEIGHT_DEVIATION * scale, 0.0] for scale in per_range]
        rows += [[0.0, CONSTANT_DEVIATION, -np.inf]]
        rows += [[0.0, CONSTANT_DEVIATION * scale, 0.0] for scale in per_range]
        if self.columns.shape[1] > 2 + 2 * count:
            rows.append([1.0, WEIGHT_DEVIATION, 0.0])
        return np.array(rows)

    def coefficients(self, weights: Array) -> tuple[list[float], list[float], float | None]:
        """Return (a_0, a_k ...), (b_0, b_k ...) and the weight of near-match evidence from the fitted weights."""
        count = len(self.ranges)
        slopes = weights[: count + 1]
        extra = weights[count + 2 : 2 * count + 2]
        largest_slope = slopes[0] + slopes[1:] @ self.ranges
        # (V17)
        constants = (
            -slopes[1:] * self.growth.at(self.ranges) - self.growth.slopes * largest_slope - extra
        )
        near = weights[2 * count + 2 :]
        return (
            slopes.tolist(),
            [float(weights[count + 1]), *constants.tolist()],
            float(near[0]) if len(near) else None,
        )


class ImpostorGrowth(NamedTuple):
    """High quantile of impostors' raw LLRs as a linear function of the amounts of evidence.

    For amounts m_k, one per measure, the quantile is q(m) = q_0 + sum over k of q_k m_k, with q_k >= 0.

    least : q_0, the quantile at the least amounts
    slopes : (measures,) q_k
    """

    least: float
    slopes: Array

    def at(self, amounts: Array) -> float:
        """Return q(m) for amounts m, (measures,)."""
        return float(self.least + self.slopes @ amounts)


def impostor_growth(
    raw: Array, amounts: Array, is_impostor: BoolArray, corpora: Names, quantile: float
) -> ImpostorGrowth:
    """Estimate how a high quantile of impostors' raw LLRs grows with the amount of evidence.

    The slopes come from a quantile regression with a constant per corpus; q_0 is the largest of these constants.
    """
    # slow to import, and only a fit needs it
    from sklearn.linear_model import QuantileRegressor

    count = amounts.shape[1]
    names, codes = np.unique(corpora, return_inverse=True)
    rng = np.random.default_rng(0)
    per_corpus = max(1, MAX_QUANTILE_TRIALS // len(names))
    rows = np.concatenate(
        [
            rng.permutation(np.flatnonzero(is_impostor & (codes == code)))[:per_corpus]
            for code in range(len(names))
        ]
    )
    if not len(rows):
        return ImpostorGrowth(0.0, np.zeros(count))
    slopes = np.zeros(count)
    varies = np.ptp(amounts[rows], axis=0) > 0
    if varies.any():
        indicators = (codes[rows, None] == np.arange(len(names))).astype(np.float64)
        regression = QuantileRegressor(
            quantile=quantile, alpha=0.0, fit_intercept=False, solver="highs"
        )
        regression.fit(np.hstack([amounts[rows][:, varies], indicators]), raw[rows])
        slopes[varies] = np.maximum(regression.coef_[: np.count_nonzero(varies)], 0.0)
    rest = raw - amounts @ slopes
    limits = [
        np.quantile(rest[is_impostor & (codes == code)], quantile)
        for code in np.unique(codes[rows])
    ]
    return ImpostorGrowth(float(max(limits)), slopes)


def _raw_llrs(logs: LogLikelihoods) -> tuple[dict[str, Array], Array]:
    """Return the raw LLR of each view alone, and the joint evidence, (..., hypotheses).

    The joint evidence of a hypothesis is its log-likelihood minus the raw LLRs of its views.
    """
    views = list(dict.fromkeys(view for h in logs for view in h))
    missing = [view for view in views if (view,) not in logs]
    if missing:
        raise DataError(
            f"logs: the hypothesis {(missing[0],)} is missing, the log-likelihood that the sides share {missing[0]!r} "
            "alone"
        )
    arrays = {h: np.asarray(values, dtype=np.float64) for h, values in logs.items()}
    nothing = arrays.get((), np.zeros_like(next(iter(arrays.values()))))
    raw = {view: arrays[view,] - nothing for view in views}
    joint = [
        values - nothing - sum((raw[view] for view in h), np.zeros_like(values))
        for h, values in arrays.items()
    ]
    stacked = np.stack(joint, axis=-1)
    if not np.isfinite(stacked).all():
        raise NumericalError("some log-likelihoods are NaN or infinite: leave these trials out")
    return raw, stacked


def _impostor_pairs(enrolled: Names, test_speakers: ArrayLike | None) -> int:
    """Return the number of pairs of different people; without the speakers of the tests, the number of people."""
    people = len(np.unique(enrolled))
    if test_speakers is None:
        return people
    sides = zip(enrolled.tolist(), as_array(test_speakers).tolist(), strict=True)
    pairs = {frozenset(pair) for pair in sides if pair[0] != pair[1]}
    return max(len(pairs), people)


def _fit_additive(
    columns: Mapping[str, Array],
    shared: Mapping[str, BoolArray],
    joint: Array,
    truth: IntArray,
    trial_weights: Array,
    prior: Array,
    speakers: float,
    outlier_probability: float,
) -> Array:
    """Fit weights of columns by multinomial regression of log-likelihoods that are sums over views.

    columns : {view: (n, columns)}
    shared : {view: (hypotheses,) mask of the hypotheses that share it}
    joint : (n, hypotheses) evidence whose weight is the last
    truth : (n,) index of the true hypothesis
    trial_weights : (n,) weights with sum 1
    prior : (weights, 3) centre, standard deviation and lower bound of each weight, relative to a common scale
    speakers : weight of all trials relative to the prior
    """
    n, n_hypotheses = joint.shape
    rows = np.arange(n)
    centre, deviation, lower = prior.T
    d = outlier_probability
    stops = np.cumsum([block.shape[1] for block in columns.values()]).tolist()
    blocks = [
        (block, slice(stop - block.shape[1], stop), shared[view].astype(np.float64))
        for (view, block), stop in zip(columns.items(), stops, strict=True)
    ]

    def cost(theta: Array) -> tuple[float, Array]:
        """Return the penalised negative log-likelihood per trial, and its gradient.

        theta : log scale, weights relative to the scale
        """
        scale = np.exp(theta[0])
        weights = theta[1:]
        unscaled = weights[-1] * joint
        for block, part, is_shared in blocks:
            unscaled = unscaled + np.outer(block @ weights[part], is_shared)
        log_posterior = scale * unscaled
        log_posterior -= np.logaddexp.reduce(log_posterior, axis=1, keepdims=True)
        posterior = np.exp(log_posterior)
        true_posterior = posterior[rows, truth]
        likelihood = (1 - d) * true_posterior + d / n_hypotheses
        responsibility = trial_weights * (1 - d) * true_posterior / likelihood
        slope = posterior * responsibility[:, None]
        slope[rows, truth] -= responsibility
        gradient = np.empty_like(theta)
        gradient[0] = scale * np.sum(slope * unscaled)
        for block, part, is_shared in blocks:
            gradient[1:][part] = scale * (slope @ is_shared) @ block
        gradient[-1] = scale * np.sum(slope * joint)
        standardised = np.append(theta[0], weights - centre) / np.append(SCALE_DEVIATION, deviation)
        gradient += standardised / np.append(SCALE_DEVIATION, deviation) / speakers
        penalty = 0.5 * float(standardised @ standardised) / speakers
        return penalty - float(trial_weights @ np.log(likelihood)), gradient

    # slow to import, and only a fit needs it
    from scipy.optimize import Bounds, minimize

    result = minimize(
        cost,
        np.append(0.0, centre),
        jac=True,
        method="L-BFGS-B",
        bounds=Bounds(
            np.append(-MAX_LOG_SCALE, lower),
            np.append(MAX_LOG_SCALE, np.full(len(prior), np.inf)),
        ),
        options={"maxiter": 2000, "maxfun": 5000},
    )
    if not np.isfinite(result.x).all():
        raise NumericalError("the calibration is not finite: check that the log-likelihoods are")
    fitted: Array = np.exp(result.x[0]) * result.x[1:]
    return fitted


def _check_numbers(table: object, name: str) -> None:
    """Raise an error unless a table has at least one finite number for each view."""
    if not isinstance(table, dict) or not all(
        isinstance(row, dict)
        and row
        and all(isinstance(x, int | float) and np.isfinite(x) for x in row.values())
        for row in table.values()
    ):
        raise DataError(f"{name} must give finite coefficients for each view")
