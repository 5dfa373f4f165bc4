"""Calibration of each view's LLR by the amount of evidence: seconds of speech, number of recordings, sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from .._typing import Array, BoolArray, IntArray, Json, Names
from ..exceptions import DataError, NumericalError, ParameterError
from ..labels import as_array
from ..persistence import check_answers
from ..scoring.question import Hypothesis, LogLikelihoods, NearMatches, with_near_matches
from ..sklearn_interface import check_is_fitted
from ..tensor_files import Tensors
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
"""Key of `AmountCalibrator.slopes_` for a_0: the slope of a view's raw LLR at the smallest amounts of evidence."""

CONSTANT = "constant"
"""Key of `AmountCalibrator.constants_` for b_0: the constant of a view at the smallest amounts of evidence."""

NEAR_MATCH_REGULARISATION = 100.0
"""Inverse strength of the prior of the coefficients of near matches."""

NEAR_MATCH = "near match"
"""Key of the slope of the evidence against near matches, beside those of the measures."""

MAX_QUANTILE_TRIALS = 8000
"""Largest number of impostor trials from which quantiles are estimated; more are sampled at random."""


class AmountCalibrator(Calibrator):
    """Calibrates the LLR of each view by measures of how much evidence a trial has.

    A measure is one number per trial, such as the log of the seconds of speech. Let V be the
    uncalibrated (raw) LLR of one view, and m_k >= 0 the value of measure k above its smallest value
    in the fit, called its amount. The calibrated LLR of the view is

        (a_0 + sum over k of a_k m_k) V  +  b_0 + sum over k of b_k m_k

    with fitted slopes a and constants b. The log-likelihood of a hypothesis is the sum of the LLRs
    of its views, plus weighted joint evidence of several views and evidence of near matches, as in
    `HypothesisCalibrator`. Amounts outside the range of the fit are clipped to it. A trial without
    measures gets the typical amounts of the fit. `shift` adds constants for conditions of the
    recordings, such as a narrow band.

    All a_k are at least 0: the slope does not fall as evidence grows. The b_k are limited so that
    more speech or more recordings do not raise the proportion of impostors above a threshold. If
    the raw LLR of an impostor is at most the given `quantile` of all impostors, the calibrated LLR
    does not rise with any amount (docs/math.md, section 9.14).

    All parameters are fitted by multinomial logistic regression with normal priors on trials of
    held-out people. Every corpus has the same total weight; within a corpus, so has every
    hypothesis.

    Parameters
    ----------
    errors : float
        Number of uninformative trials assumed among the independent impostor pairs of the fit. The
        outlier probability is errors / pairs, and bounds every LLR. 0.5 is Jeffreys' prior.
    quantile : float
        Quantile of the impostors' raw LLRs, between 0 and 1. Up to it, a calibrated LLR does not
        rise with the amount of evidence.

    Attributes
    ----------
    measures_ : dict of {measure: [smallest, largest, typical amount in the fit]}
    slopes_ : dict of {view: {"llr" or measure: slope}}; a_0 is under "llr", a_k under the name of
        the measure
    constants_ : dict of {view: {"constant" or measure: constant}}; b_0 is under "constant", b_k
        under the name of the measure
    joint_weight_ : float, coefficient of the joint evidence of several views
    near_match_weight_ : float, coefficient of the evidence of near matches
    near_match_slopes_ : dict of {"near match", "llr", "constant" or measure: coefficient} of the LLR
        against near matches, see `fit_near_matches`; until that is called, {"near match": 1.0}
    outlier_probability_ : float, probability that the model is uninformative about a trial
    n_speakers_ : int, number of enrolled speakers in the fit

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
        "near_match_slopes_",
        "outlier_probability_",
        "n_speakers_",
    )
    STORED_KEYS: ClassVar[dict[str, str]] = {}

    measures_: dict[str, list[float]]
    slopes_: dict[str, dict[str, float]]
    constants_: dict[str, dict[str, float]]
    joint_weight_: float
    near_match_weight_: float
    near_match_slopes_: dict[str, float]

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
            raise ParameterError(f"quantile must be between 0 and 1; got {self.quantile}")
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
        self.near_match_slopes_ = {NEAR_MATCH: 1.0}
        return self

    def fit_near_matches(
        self,
        logs: LogLikelihoods,
        near_matches: NearMatches,
        is_near_match: ArrayLike,
        *,
        corpora: ArrayLike,
        measures: Measures | None = None,
    ) -> Self:
        """Fit the LLR of the same class against a near match, by logistic regression.

        The trials are near matches, and trials whose two sides have the same class. The LLR is a
        linear function of the near-match evidence, the raw LLR of the view, and the given measures.
        Near matches and other trials have the same total weight; within each, so have all corpora.

        Parameters
        ----------
        logs : {hypothesis: (n,) log-likelihoods}
        near_matches : near-match evidence of the trials
        is_near_match : (n,) True for near matches, False for trials of the same class
        corpora : (n,) corpus of each trial
        measures : {name: (n,) values}, a selection of the measures passed to `fit`; None: none

        Returns
        -------
        self
        """
        check_is_fitted(self, "slopes_")
        # slow to import, and only a fit needs it
        from sklearn.linear_model import LogisticRegression

        raw, _ = _raw_llrs(logs)
        names = list(measures or {})
        columns = self._near_match_columns(raw, near_matches, measures)
        chosen = [NEAR_MATCH, LLR, *names]
        groups = as_array(corpora)
        weights = np.zeros(len(groups))
        is_near = np.asarray(is_near_match, dtype=bool)
        for kind in (is_near, ~is_near):
            _, codes, counts = np.unique(groups[kind], return_inverse=True, return_counts=True)
            weights[kind] = len(groups) / (counts[codes] * len(counts))
        regression = LogisticRegression(C=NEAR_MATCH_REGULARISATION, max_iter=1000)
        regression.fit(
            np.stack([columns[name] for name in chosen], axis=1),
            ~is_near,
            sample_weight=weights,
        )
        slopes = dict(zip(chosen, regression.coef_[0].tolist(), strict=True))
        self.near_match_slopes_ = {**slopes, CONSTANT: float(regression.intercept_[0])}
        return self

    def _near_match_columns(
        self, raw: Mapping[str, Array], near_matches: NearMatches, measures: Measures | None
    ) -> dict[str, Array]:
        """Return the values that the coefficients in `near_match_slopes_` multiply.

        raw : {view: raw LLRs}
        near_matches : near-match evidence of the trials
        measures : {name: values}; a missing measure gets its typical amount
        return : {key of `near_match_slopes_`: one value per trial}
        """
        shape = np.shape(near_matches.llr)
        amounts = self._amounts(measures, shape)
        return {
            NEAR_MATCH: near_matches.llr,
            LLR: raw.get(near_matches.view, np.zeros(shape)),
            CONSTANT: np.ones(shape),
            **{name: amounts[..., k] for k, name in enumerate(self.measures_)},
        }

    def _fit_ranges(self, measures: Measures, weights: Array) -> Array:
        """Store range and weighted mean of each measure; return the amounts of all trials.

        measures : {name: (n,) values}
        weights : (n,) weights of the trials with sum 1
        return : (n, measures) values minus the smallest value of the measure
        """
        self.measures_ = {}
        for name, values in measures.items():
            column = np.asarray(values, dtype=np.float64)
            if column.shape != weights.shape or not np.isfinite(column).all():
                raise DataError(
                    f"measures[{name!r}] must have one finite number per trial, shape {weights.shape}; "
                    f"got shape {column.shape} with {np.count_nonzero(~np.isfinite(column))} NaN or infinite"
                )
            least, largest = float(column.min()), float(column.max())
            # rounding may move the mean of equal amounts out of their range
            typical = float(np.clip(weights @ column, least, largest))
            self.measures_[name] = [least, largest, typical]
        return self._amounts(measures, weights.shape)

    def _amounts(self, measures: Measures | None, shape: tuple[int, ...]) -> Array:
        """Return each measure minus its smallest value in the fit, clipped to the range of the fit.

        measures : {name: values that broadcast to `shape`}; a missing measure gets its typical
            amount
        shape : shape of the trials
        return : (*shape, measures)
        """
        columns = []
        for name, (least, largest, typical) in self.measures_.items():
            values = np.asarray((measures or {}).get(name, typical), dtype=np.float64)
            if np.isnan(values).any():
                raise DataError(
                    f"measures[{name!r}] is NaN for some trials: give a number for each trial, or leave out the "
                    "measure to use its typical amount"
                )
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
        """Fit all coefficients of the calibration and store them as fitted attributes.

        designs : {view: design matrix of n trials}
        shared : {view: (hypotheses,) mask of the hypotheses that contain the view}
        joint : (n, hypotheses) joint evidence, see `_raw_llrs`
        hypotheses : names of the hypotheses, in the order of the columns of `joint`
        truth : (n,) index of the true hypothesis
        weights : (n,) weights of the trials with sum 1
        """
        occurring = np.unique(truth)
        columns = {view: design.columns for view, design in designs.items()}
        priors = [design.prior() for design in designs.values()]
        # columns: mean, standard deviation and lower bound; the last row is the weight of the joint evidence
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
        """Return calibrated log-likelihoods, one array per hypothesis.

        Parameters
        ----------
        logs : {hypothesis: log-likelihoods}; must contain the hypothesis of each view alone, such
            as ("speaker",)
        near_matches : evidence whether each trial is a near match, such as a phrase with one word
            replaced; None: there is none
        measures : {name: values of the trials}; a missing measure gets its typical value in the fit

        Returns
        -------
        dict of {hypothesis: log-likelihoods}, arrays of the shape of those in `logs`
        """
        return self.add_outliers(self.without_outliers(logs, near_matches, measures))

    def without_outliers(
        self,
        logs: LogLikelihoods,
        near_matches: NearMatches | None = None,
        measures: Measures | None = None,
    ) -> LogLikelihoods:
        """Return calibrated log-likelihoods before the outlier probability is mixed in.

        The log-likelihood of a hypothesis is the sum of the calibrated LLRs of its views and its
        weighted joint evidence; hypotheses of different classes also allow for near matches
        (`with_near_matches`). The parameters are those of `transform`.
        """
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
        if near_matches is not None:
            columns = self._near_match_columns(raw, near_matches, measures)
            llr = sum(slope * columns[name] for name, slope in self.near_match_slopes_.items())
            near_matches = near_matches._replace(llr=np.asarray(llr))
        return with_near_matches(by_hypothesis, near_matches)

    def add_outliers(self, logs: LogLikelihoods) -> dict[Hypothesis, Array]:
        """Return log((1 - d) p(h) + d / n) per hypothesis h, with d the outlier probability.

        p(h) is the posterior of h if all n hypotheses have equal priors.

        logs : {hypothesis: log-likelihoods} from `without_outliers`
        """
        return with_outliers(logs, self.outlier_probability_)  # (V18)

    def shift(self, condition: str, constants: Mapping[str, float]) -> Self:
        """Add a condition of the recordings, such as a narrow band, which shifts the LLR of each view.

        A condition is a measure between 0 and 1. `transform` adds its constant times the measure;
        trials without the measure count as 0. Slopes do not depend on conditions.

        Parameters
        ----------
        condition : name of the new measure
        constants : {view: LLR added where the measure is 1}; 0 for views that are left out

        Returns
        -------
        self
        """
        check_is_fitted(self, "slopes_")
        if condition in self.measures_:
            raise ParameterError(
                f"the calibrator already has a measure or condition named {condition!r}: choose another name"
            )
        self.measures_[condition] = [0.0, 1.0, 0.0]
        for view, row in self.constants_.items():
            row[condition] = float(constants.get(view, 0.0))
        return self

    @classmethod
    def from_state(cls, arrays: Tensors, values: dict[str, Any]) -> Self:
        # files of earlier versions have no coefficients of near matches
        stored = {"near_match_slopes_": {NEAR_MATCH: 1.0}, **values["values"]}
        return super().from_state(arrays, {**values, "values": stored})

    def check_state(self) -> None:
        """Check a loaded calibrator.

        Raise `DataError` for inconsistent parameters, and `FileFormatError` if the calibrator
        returns NaN or infinity.
        """
        _check_numbers(self.slopes_, "slopes_")
        _check_numbers(self.constants_, "constants_")
        if set(self.slopes_) != set(self.constants_):
            raise DataError(
                f"the calibrator's slopes_ and constants_ must have the same views; got {list(self.slopes_)} and "
                f"{list(self.constants_)}"
            )
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
        _check_numbers({"near_match_slopes_": self.near_match_slopes_}, "near_match_slopes_")
        unknown = set(self.near_match_slopes_) - {NEAR_MATCH, LLR, CONSTANT, *self.measures_}
        if unknown:
            raise DataError(f"near_match_slopes_ has an unknown term: {sorted(unknown)[0]!r}")
        views = list(self.slopes_)
        hypotheses: list[Hypothesis] = [tuple(views), *((view,) for view in views), ()]
        check_answers(self, lambda X: [*self.transform(dict.fromkeys(hypotheses, X)).values()], 1)
        for least, largest, typical in self.measures_.values():
            if not -np.inf < least <= typical <= largest < np.inf:
                raise DataError(
                    "each row of the calibrator's measures_ must be finite with smallest <= typical <= largest; "
                    f"got smallest {least}, typical {typical}, largest {largest}"
                )

    @property
    def largest_llr(self) -> float:
        """Upper bound of the LLR of one hypothesis against the average of all others.

        It is implied by the outlier probability.
        """
        check_is_fitted(self, "slopes_")
        share = self.outlier_probability_ / 2 ** len(self.slopes_)
        return float(np.log1p(share - self.outlier_probability_) - np.log(share))

    def describe(self) -> Json:
        """Return the class name and the fitted parameters, {name: number, text or dict}."""
        return {
            "class": type(self).__name__,
            "measures": self.measures_,
            "slopes": self.slopes_,
            "constants": self.constants_,
            "together": self.joint_weight_,
            "parts of recordings": self.near_match_weight_,
            "near matches": self.near_match_slopes_,
            "outlier probability": self.outlier_probability_,
            "speakers": self.n_speakers_,
        }


class ViewDesign(NamedTuple):
    """Design matrix of one view; multiplied by fitted coefficients it gives the calibrated LLR.

    For measures k = 1..K, the LLR of the view is (a_0 + sum over k of a_k m_k) V + b_0 + sum over k
    of b_k m_k, with V the raw LLR and m_k the amount of measure k, at most M_k. The high quantile
    of the impostors' raw LLRs is q(m) = q_0 + sum over k of q_k m_k (`ImpostorGrowth`). For LLRs of
    impostors not to rise with the amounts, b_k must satisfy (V17 in docs/math.md, section 9.14)

        b_k = -a_k q(M) - q_k (a_0 + sum over j of a_j M_j) - c_k,   a_k >= 0,  c_k >= 0

    So the fit estimates a_0, a_k, b_0, c_k and, if there is near-match evidence, its coefficient;
    b_k is computed from them.

    columns : (n trials, coefficients) values that a_0, a_1..a_K, b_0, c_1..c_K and the coefficient
        of near-match evidence (if there is any) multiply
    ranges : (K,) largest amounts M_k
    growth : the quantile q(m)
    """

    columns: Array
    ranges: Array
    growth: ImpostorGrowth

    @classmethod
    def of(
        cls, raw: Array, amounts: Array, growth: ImpostorGrowth, same: Array | None
    ) -> ViewDesign:
        """Build the design matrix by which the LLR of one view is fitted (see the class).

        raw : (n,) raw LLRs of the view
        amounts : (n, measures) amounts of evidence above the smallest of the fit
        growth : high quantile of the impostors' raw LLRs as a function of the amounts
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
        """Return mean, standard deviation and lower bound of each coefficient, (coefficients, 3)."""
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
        """Convert the fitted coefficients of the design to slopes a and constants b.

        weights : (coefficients,) in the order of `columns`
        return : slopes [a_0, a_1 ...], constants [b_0, b_1 ...], and the coefficient of near-match
            evidence (None: there is no such evidence)
        """
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
    """High quantile of the impostors' raw LLRs as a linear function of the amounts of evidence.

    For amounts m_k, one per measure k, the quantile is q(m) = q_0 + sum over k of q_k m_k, with q_k
    >= 0.

    least : q_0, the quantile at the smallest amounts (all m_k = 0)
    slopes : (measures,) growth q_k of the quantile per unit of m_k
    """

    least: float
    slopes: Array

    def at(self, amounts: Array) -> float:
        """Return the quantile q(m) at the amounts m, (measures,)."""
        return float(self.least + self.slopes @ amounts)


def impostor_growth(
    raw: Array, amounts: Array, is_impostor: BoolArray, corpora: Names, quantile: float
) -> ImpostorGrowth:
    """Estimate how a high quantile of the impostors' raw LLRs grows with the amounts of evidence.

    A quantile regression with one constant per corpus gives the slopes; negative slopes become 0.
    q_0, the quantile at the smallest amounts, is the largest among the corpora. Without impostors,
    q_0 and all slopes are 0.

    raw : (n,) raw LLRs of one view
    amounts : (n, measures) amounts above the smallest of the fit
    is_impostor : (n,) mask of the trials that do not share the view
    corpora : (n,) corpus of each trial
    quantile : which quantile, between 0 and 1
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
    """Split log-likelihoods of hypotheses into a raw LLR per view, and joint evidence of views.

    The raw LLR of a view is the log-likelihood of sharing this view alone minus that of sharing
    nothing. The joint evidence of a hypothesis is its log-likelihood minus that of sharing nothing
    and minus the raw LLRs of its views.

    logs : {hypothesis: (...) log-likelihoods}
    return : {view: (...) raw LLRs}, and (..., hypotheses) joint evidence
    """
    views = list(dict.fromkeys(view for h in logs for view in h))
    missing = [view for view in views if (view,) not in logs]
    if missing:
        raise DataError(
            f"logs must contain the hypothesis {(missing[0],)}: the log-likelihood that the two sides share "
            f"{missing[0]!r} and nothing else"
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
        raise NumericalError(
            "some log-likelihoods in logs are NaN or infinite: leave these trials out of the calibration"
        )
    return raw, stacked


def _impostor_pairs(enrolled: Names, test_speakers: ArrayLike | None) -> int:
    """Return the number of distinct pairs of different people among the trials.

    The result is at least the number of enrolled people.

    enrolled : (n,) speaker of the enrolment of each trial
    test_speakers : (n,) speaker of the test of each trial; None: not known, the result is the
        number of enrolled people
    """
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
    """Fit the coefficients of all views' designs and of the joint evidence, by logistic regression.

    The log-likelihood of a hypothesis is the sum of the LLRs of its views, each the product of a
    design matrix with its coefficients, and of its weighted joint evidence. All coefficients are
    multiplied by one scale, which is fitted too.

    columns : {view: (n, coefficients of the view) design matrix}
    shared : {view: (hypotheses,) mask of the hypotheses that contain the view}
    joint : (n, hypotheses) joint evidence; its coefficient is the last one
    truth : (n,) index of the true hypothesis
    trial_weights : (n,) weights of the trials with sum 1
    prior : (coefficients, 3) mean, standard deviation and lower bound of each coefficient before
        multiplication by the scale
    speakers : number of independent observations, relative to which the prior is weighted
    outlier_probability : probability that a trial is uninformative
    return : (coefficients,) in the order of `prior`, multiplied by the scale
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

        theta : log of the common scale, then all coefficients divided by it
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
        raise NumericalError(
            "the fit of the calibration gave NaN or infinite weights: check the log-likelihoods for extreme values"
        )
    fitted: Array = np.exp(result.x[0]) * result.x[1:]
    return fitted


def _check_numbers(table: object, name: str) -> None:
    """Raise `DataError` unless `table` is a dict of non-empty dicts of finite numbers.

    table : value of an attribute loaded from a file, expected as {view: {name: number}}
    name : name of the attribute, for the message
    """
    if not isinstance(table, dict) or not all(
        isinstance(row, dict)
        and row
        and all(isinstance(x, int | float) and np.isfinite(x) for x in row.values())
        for row in table.values()
    ):
        raise DataError(
            f"the calibrator's {name} must map each view to finite coefficients by name; got {table!r}"
        )
