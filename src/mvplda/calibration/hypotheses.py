"""Calibration of the log-likelihoods of hypotheses by multinomial logistic regression.

`HypothesisCalibrator` calibrates a model's log-likelihoods of hypotheses;
`mvplda.calibration.scores.LinearCalibrator` calibrates one score per trial. Fit either of them on
trials that are not part of the evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from .._typing import Array, IntArray, Json
from ..exceptions import DataError, NumericalError
from ..labels import as_array
from ..persistence import check_answers
from ..scoring.answer import hypothesis_name
from ..scoring.question import Hypothesis, LogLikelihoods, NearMatches, with_near_matches
from ..sklearn_interface import check_is_fitted
from .calibrator import Calibrator, G, Measures

JOINT_EVIDENCE = "together"
"""Key in `weights_` of the weight of joint evidence: what several views add beyond the sum of the single views."""

NEAR_MATCH_EVIDENCE = "parts of recordings"
"""Key in `weights_` of the weight of near-match evidence, which comes from parts of the recordings
(`NearMatches.same`).
"""

WEIGHT_DEVIATION = 0.5
CONSTANT_DEVIATION = 1.0
SCALE_DEVIATION = 3.0
"""Standard deviations of the normal priors of a `HypothesisCalibrator`.

WEIGHT_DEVIATION: weights (mean 1). CONSTANT_DEVIATION: constants (mean 0). Both are relative to a
common scale. SCALE_DEVIATION: logarithm of that scale (mean 0).
"""


MAX_LOG_SCALE = 30.0
"""Bound of the logarithm of the scale, far beyond its prior, so that the optimiser's steps do not overflow."""


class HypothesisCalibrator(Calibrator):
    """Calibrates the log-likelihoods of hypotheses, so that LLRs and posteriors come from the same numbers.

    A hypothesis h is the set of views that both sides share. Let L(h) be its log-likelihood minus
    that of sharing nothing, L(v) the same for the view v alone, s(h) the near-match evidence about
    a view of h (`NearMatches.same`; 0 if there is none), d the outlier probability and n the number
    of hypotheses. Then

        C(h) = sum over v in h of w_v L(v)  +  w_together (L(h) - sum over v in h of L(v))  +
        w_parts s(h)  +  c_h
        calibrated(h) = log((1 - d) exp C(h) / sum over g of exp C(g)  +  d / n)

    with fitted coefficients w >= 0 and constants c_h. w_together multiplies the joint evidence
    (what L(h) has beyond the sum over its views), and w_parts the near-match evidence. The outlier
    probability bounds the LLR of every trial. It is seldom below ``errors`` / speakers, because few
    speakers cannot show that errors are rare, however many trials they have.

    All parameters are fitted by multinomial logistic regression on trials of held-out people. The
    trials of each hypothesis have the same total weight. With few speakers, the w stay near 1 and
    the constants near 0.

    Parameters
    ----------
    errors : float
        Number of uninformative trials that the prior of the outlier probability adds to the
        observed trials. All trials of one speaker together count as a single observation. 0.5 is
        Jeffreys' prior.

    Attributes
    ----------
    weights_ : dict of {view, "together" or "parts of recordings": coefficient w}
    constants_ : dict of {"speaker+phrase", "speaker", ...: constant c_h}; that of "nothing" is 0
    outlier_probability_ : float, probability that the model is uninformative about a trial
    n_speakers_ : int, number of enrolled speakers in the fit

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda.calibration.hypotheses import HypothesisCalibrator
    >>> rng = np.random.default_rng(0)
    >>> same = np.arange(4000) % 2 == 0
    >>> llr = rng.normal(np.where(same, 2.0, -2.0), 2.0)                # calibrated
    >>> logs = {("speaker",): 3 * llr, (): np.zeros(4000)}              # three times too large
    >>> truth = np.where(same, 0, 1)
    >>> calibrator = HypothesisCalibrator().fit(logs, truth, speakers=np.arange(4000) // 4)
    >>> round(calibrator.weights_["speaker"], 2)
    0.34
    """

    FITTED = ("weights_", "constants_", "outlier_probability_", "n_speakers_")
    STORED_KEYS: ClassVar[dict[str, str]] = {
        "weights_": "factors_",
        "outlier_probability_": "doubt_",
    }

    weights_: dict[str, float]
    constants_: dict[str, float]

    def __init__(self, errors: float = 0.5) -> None:
        self.errors = errors

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
        hypotheses = list(logs)
        evidence, names = _evidence_columns(logs, near_matches)
        if not np.isfinite(evidence).all():
            raise NumericalError(
                "some log-likelihoods in logs are NaN or infinite: leave these trials out of the calibration"
            )
        truth = check_truth(truth, len(evidence), len(hypotheses))
        occurring = np.unique(truth)
        self.n_speakers_ = len(np.unique(as_array(speakers)))

        # A hypothesis without trials is left out of the fit: all evidence for it would count as an error.
        weights, constants, self.outlier_probability_ = _fit_multinomial(
            evidence[:, occurring],
            np.searchsorted(occurring, truth),
            trial_weights(truth, corpora),
            self.n_speakers_,
            self.errors,
        )
        self.weights_ = dict(zip(names, weights.tolist(), strict=True))
        self.constants_ = dict.fromkeys(map(hypothesis_name, hypotheses), 0.0)
        for index, constant in zip(occurring.tolist(), constants.tolist(), strict=True):
            self.constants_[hypothesis_name(hypotheses[index])] = constant
        return self

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
        measures : not used

        Returns
        -------
        dict of {hypothesis: log-likelihoods}, arrays of the shape of those in `logs`
        """
        return self.add_outliers(self.without_outliers(logs, near_matches))

    def without_outliers(
        self,
        logs: LogLikelihoods,
        near_matches: NearMatches | None = None,
        measures: Measures | None = None,
    ) -> LogLikelihoods:
        """Return calibrated log-likelihoods before the outlier probability is mixed in.

        They are C(h) in the class description; hypotheses of different classes also allow for near
        matches (`with_near_matches`). The parameters are those of `transform`.
        """
        check_is_fitted(self, "weights_")
        evidence, names = _evidence_columns(logs, near_matches)
        weights = np.array([self.weights_.get(name, 1.0) for name in names])
        constants = [self.constants_.get(hypothesis_name(h), 0.0) for h in logs]
        weighted = evidence @ weights + np.array(constants)

        # Near matches add hypotheses, which the softmax has to include.
        by_hypothesis = {h: weighted[..., k] for k, h in enumerate(logs)}
        return with_near_matches(by_hypothesis, near_matches)

    def add_outliers(self, logs: LogLikelihoods) -> dict[Hypothesis, Array]:
        """Return log((1 - d) p(h) + d / n) per hypothesis h, with d the outlier probability.

        p(h) is the posterior of h if all n hypotheses have equal priors.

        logs : {hypothesis: log-likelihoods} from `without_outliers`
        """
        return with_outliers(logs, self.outlier_probability_)

    def check_state(self) -> None:
        """Raise `FileFormatError` if a loaded calibrator returns NaN or infinity."""
        views = [
            view for view in self.weights_ if view not in (JOINT_EVIDENCE, NEAR_MATCH_EVIDENCE)
        ]
        hypotheses: list[Hypothesis] = [tuple(views), *((view,) for view in views), ()]
        check_answers(self, lambda X: [*self.transform(dict.fromkeys(hypotheses, X)).values()], 1)

    @property
    def largest_llr(self) -> float:
        """Upper bound of the LLR of one hypothesis against the average of all others.

        It is implied by the outlier probability.
        """
        check_is_fitted(self, "weights_")
        share = self.outlier_probability_ / len(self.constants_)
        return float(np.log1p(share - self.outlier_probability_) - np.log(share))

    def graph(
        self, logs: Mapping[Hypothesis, G], log_sum: Callable[[Sequence[G]], G]
    ) -> dict[Hypothesis, G]:
        joint_weight = self.weights_.get(JOINT_EVIDENCE, 1.0)
        weighted: dict[Hypothesis, G] = {}
        for h, values in logs.items():
            total = values * 0.0 + self.constants_.get(hypothesis_name(h), 0.0)
            subtracted = joint_weight if len(h) > 1 else 0.0
            for view in h:
                total = total + logs[view,] * (self.weights_.get(view, 1.0) - subtracted)
            if len(h) > 1:
                total = total + values * joint_weight
            weighted[h] = total
        total = log_sum(list(weighted.values()))
        log_inlier = float(np.log1p(-self.outlier_probability_))
        log_outlier = float(np.log(self.outlier_probability_ / len(weighted)))
        return {
            h: log_sum([values - total + log_inlier, values * 0.0 + log_outlier])
            for h, values in weighted.items()
        }

    def describe(self) -> Json:
        """Return the class name and the fitted parameters, {name: number, text or dict}."""
        return {
            "class": type(self).__name__,
            "weights": self.weights_,
            "constants": self.constants_,
            "outlier probability": self.outlier_probability_,
            "speakers": self.n_speakers_,
        }


def _evidence_columns(
    logs: LogLikelihoods, near_matches: NearMatches | None
) -> tuple[Array, list[str]]:
    """Return the evidence for each hypothesis, one column per coefficient, and the column names.

    There is one column per view: the log-likelihood of sharing this view alone, or 0 if the
    hypothesis does not contain the view. With several views, a column of joint evidence follows;
    with `near_matches`, one of near-match evidence.

    logs : {hypothesis: (...) log-likelihoods}
    near_matches : near-match evidence of the trials; None: there is none
    return : (..., hypotheses, columns), and the names of the columns
    """
    views = list(dict.fromkeys(view for h in logs for view in h))
    missing = [view for view in views if (view,) not in logs]
    if missing:
        raise DataError(
            f"logs must contain the hypothesis {(missing[0],)}: the log-likelihood that the two sides share "
            f"{missing[0]!r} and nothing else"
        )
    arrays = {h: np.asarray(values, dtype=np.float64) for h, values in logs.items()}
    zeros = np.zeros_like(next(iter(arrays.values())))

    rows = []
    for h, values in arrays.items():
        columns = [arrays[view,] if view in h else zeros for view in views]
        if len(views) > 1:
            joint = zeros
            if len(h) > 1:
                joint = values - sum((arrays[view,] for view in h), zeros)
            columns.append(joint)
        if near_matches is not None:
            columns.append(near_matches.same if near_matches.view in h else zeros)
        rows.append(np.stack(columns, axis=-1))

    names = [*views, JOINT_EVIDENCE] if len(views) > 1 else views
    if near_matches is not None:
        names.append(NEAR_MATCH_EVIDENCE)
    return np.stack(rows, axis=-2), names


def with_outliers(logs: LogLikelihoods, outlier_probability: float) -> dict[Hypothesis, Array]:
    """Return log((1 - d) p(h) + d / n) for each hypothesis h.

    p(h) is the posterior of h if all hypotheses have equal priors, d the outlier probability and n
    the number of hypotheses.

    logs : {h: log-likelihoods}
    outlier_probability : d, between 0 and 1
    """
    stacked = np.stack(list(logs.values()), axis=-1)
    log_posterior = stacked - np.logaddexp.reduce(stacked, axis=-1, keepdims=True)
    log_outlier = np.log(outlier_probability / len(logs))
    mixed = np.logaddexp(np.log1p(-outlier_probability) + log_posterior, log_outlier)
    return {h: mixed[..., k] for k, h in enumerate(logs)}


def check_truth(truth: ArrayLike, n_trials: int, n_hypotheses: int) -> IntArray:
    """Return `truth` as an integer array; raise `DataError` if it is invalid.

    It must have `n_trials` integers from 0 to `n_hypotheses` - 1, at least two of them distinct.
    """
    indices = np.asarray(truth)
    if indices.shape != (n_trials,) or indices.dtype.kind not in "iu":
        raise DataError(
            f"truth must be an integer array of shape ({n_trials},), the index of each trial's true hypothesis; "
            f"got shape {indices.shape} of type {indices.dtype}"
        )
    if len(np.unique(indices)) < 2:
        raise DataError(
            "truth must contain at least two hypotheses, such as targets and impostors; all trials have the same one"
        )
    if indices.min() < 0 or indices.max() >= n_hypotheses:
        raise DataError(
            f"truth must hold indices from 0 to {n_hypotheses - 1}, one per hypothesis of logs; got {indices.min()} "
            f"to {indices.max()}"
        )
    return indices


def trial_weights(truth: IntArray, corpora: ArrayLike | None) -> Array:
    """Return the weight of each trial in a fit, (n,) with sum 1.

    All corpora have the same total weight; within a corpus, so have all hypotheses that occur in
    it.

    truth : (n,) index of the true hypothesis
    corpora : (n,) corpus of each trial; None: a single corpus
    """
    corpus_codes = np.zeros(len(truth), dtype=np.int64)
    if corpora is not None:
        corpus_codes = np.unique(as_array(corpora), return_inverse=True)[1]
    weights = np.empty(len(truth))
    for corpus in np.unique(corpus_codes):
        in_corpus = corpus_codes == corpus
        counts = np.bincount(truth[in_corpus])
        weights[in_corpus] = 1.0 / (counts[truth[in_corpus]] * np.count_nonzero(counts))
    return np.asarray(weights / weights.sum())


def _fit_multinomial(
    evidence: Array, truth: IntArray, trial_weights: Array, speakers: float, errors: float
) -> tuple[Array, Array, float]:
    """Fit coefficients, constants and outlier probability by multinomial logistic regression.

    evidence : (n, hypotheses, columns), see `_evidence_columns`
    truth : (n,) index of the true hypothesis
    trial_weights : (n,) weights of the trials with sum 1
    speakers : number of independent observations, relative to which the prior is weighted
    errors : number of uninformative trials in the prior of the outlier probability
    return : (columns,) coefficients, (hypotheses,) constants (0 for the last hypothesis), and the
        outlier probability
    """
    n, n_hypotheses, n_columns = evidence.shape
    rows = np.arange(n)
    # A common scale of weights and constants makes the fit suit scores of any size, such as cosines:
    # theta = (log scale, weights / scale, constants / scale, logit of the outlier probability).
    first_constant = 1 + n_columns
    sizes = [1, n_columns, n_hypotheses - 1]
    centre = np.repeat([0.0, 1.0, 0.0], sizes)
    deviation = np.repeat([SCALE_DEVIATION, WEIGHT_DEVIATION, CONSTANT_DEVIATION], sizes)

    def cost(theta: Array) -> tuple[float, Array]:
        """Return the penalised negative log-likelihood per trial, and its gradient.

        theta : log of a common scale, coefficients and constants divided by this scale, and the
            logit of the outlier probability
        """
        scale = np.exp(theta[0])
        weights = theta[1:first_constant]
        constants = np.append(theta[first_constant:-1], 0.0)
        d = expit(theta[-1])

        unscaled = evidence @ weights + constants
        logs = scale * unscaled
        posterior = np.exp(logs - np.logaddexp.reduce(logs, axis=1, keepdims=True))
        true_posterior = posterior[rows, truth]
        likelihood = (1 - d) * true_posterior + d / n_hypotheses

        # Gradient with respect to the log-likelihoods of each trial; the chain rule gives that of theta.
        responsibility = trial_weights * (1 - d) * true_posterior / likelihood
        slope = posterior * responsibility[:, None]
        slope[rows, truth] -= responsibility
        gradient = np.empty_like(theta)
        gradient[0] = scale * np.sum(slope * unscaled)
        gradient[1:first_constant] = scale * np.einsum("nhp,nh->p", evidence, slope)
        gradient[first_constant:-1] = scale * slope.sum(axis=0)[:-1]
        d_slope = float(trial_weights @ ((true_posterior - 1 / n_hypotheses) / likelihood))

        # The prior: normal around the uncalibrated model, d ** errors for the outlier probability.
        standardised = (theta[:-1] - centre) / deviation
        penalty = 0.5 * float(standardised @ standardised) - errors * float(np.log(d))
        gradient[:-1] += standardised / deviation / speakers
        gradient[-1] = (d_slope * d - errors / speakers) * (1 - d)
        return penalty / speakers - float(trial_weights @ np.log(likelihood)), gradient

    start = np.append(centre, np.log(errors / speakers))
    lower = np.full(len(start), -np.inf)
    lower[0] = -MAX_LOG_SCALE
    lower[1:first_constant] = 0.0
    lower[-1] = -15.0
    upper = np.append(np.full(len(centre), np.inf), 0.0)
    upper[0] = MAX_LOG_SCALE
    # slow to import, and only a fit needs it
    from scipy.optimize import Bounds, minimize

    result = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=Bounds(lower, upper))
    if not np.isfinite(result.x).all():
        raise NumericalError(
            "the fit of the calibration gave NaN or infinite weights: check the log-likelihoods for extreme values"
        )

    scaled = np.exp(result.x[0]) * result.x[1:-1]
    weights = scaled[:n_columns]
    constants = np.append(scaled[n_columns:], 0.0)
    return weights, constants, float(expit(result.x[-1]))
