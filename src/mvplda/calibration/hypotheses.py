"""Calibration: natural-log likelihood ratios of scores, and calibrated log-likelihoods of hypotheses.

`LinearCalibrator` is for score files, `HypothesisCalibrator` for what a model file holds by question. Fit either on
trials that are not those of the evaluation.
"""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import Bounds, minimize
from scipy.special import expit
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .._typing import Array, IntArray, Json
from ..exceptions import DataError, NumericalError
from ..labels import as_array
from ..persistence import Persistent, check_answers
from ..scoring.answer import hypothesis_name
from ..scoring.question import Hypothesis, LogLikelihoods, NearMatches, with_near_matches

JOINT_EVIDENCE = "together"
"""Names the factor of what is known of several views at once, beyond what is known of each."""

NEAR_MATCH_EVIDENCE = "parts of recordings"
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

    The factors f are at least 0; s(h) is the evidence of parts of the recordings about a view of h
    (`NearMatches.same`), if there is any. The doubt limits what any trial can claim: however many trials there are,
    few speakers cannot show that errors are rare, and it is hardly below ``errors`` / speakers.

    All are learnt by multinomial logistic regression on trials of people who were held out. Each hypothesis weighs
    the same, however many trials it has. Few speakers leave factors near 1 and constants near 0.

    Parameters
    ----------
    errors : float
        The prior of the doubt: so many trials that tell nothing are assumed beside those that were seen, of as many
        trials as there are speakers. 0.5 is Jeffreys' prior.

    Attributes
    ----------
    weights_ : dict of {view, "together" or "parts of recordings": factor}
    constants_ : dict of {"speaker+phrase", "speaker", ...: constant}; "nothing" has 0
    outlier_probability_ : float, probability that the model tells nothing about a trial
    n_speakers_ : int, speakers whose trials were used

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

    KIND = "calibrator"
    FITTED = ("weights_", "constants_", "outlier_probability_", "n_speakers_")
    STORED_KEYS: ClassVar[dict[str, str]] = {
        "weights_": "factors_",
        "outlier_probability_": "doubt_",
    }

    weights_: dict[str, float]
    constants_: dict[str, float]
    outlier_probability_: float
    n_speakers_: int

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
    ) -> Self:
        """Fit to trials of people who were held out.

        Parameters
        ----------
        logs : {hypothesis: (n,) log-likelihoods}, the first shares all views
        truth : (n,) place of the true hypothesis of every trial among the keys of `logs`
        speakers : (n,) speaker of every trial's enrolment
        corpora : (n,) where every trial comes from: all corpora then weigh the same. None: one corpus
        near_matches : of the trials, what parts of the recordings tell
        """
        hypotheses = list(logs)
        inputs, names = _parts_of_evidence(logs, near_matches)
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
        factors, constants, self.outlier_probability_ = _fit_multinomial(
            known, places, mass, self.n_speakers_, self.errors
        )
        self.weights_ = dict(zip(names, factors.tolist(), strict=True))
        self.constants_ = dict.fromkeys(map(hypothesis_name, hypotheses), 0.0)
        for place, constant in zip(occurring.tolist(), constants.tolist(), strict=True):
            self.constants_[hypothesis_name(hypotheses[place])] = constant
        return self

    def transform(
        self, logs: LogLikelihoods, near_matches: NearMatches | None = None
    ) -> dict[Hypothesis, Array]:
        """Calibrated log-likelihoods; those of the views alone must be among `logs`.

        near_matches : whether what differs may be nearly the same, which C(h) is told before the doubt
        """
        check_is_fitted(self, "weights_")
        inputs, names = _parts_of_evidence(logs, near_matches)
        factors = np.array([self.weights_.get(name, 1.0) for name in names])
        constants = [self.constants_.get(hypothesis_name(h), 0.0) for h in logs]
        evidence = inputs @ factors + np.array(constants)
        every = with_near_matches({h: evidence[..., k] for k, h in enumerate(logs)}, near_matches)
        raw = np.stack(list(every.values()), axis=-1)
        share = raw - np.logaddexp.reduce(raw, axis=-1, keepdims=True)
        uniform = np.log(self.outlier_probability_ / len(constants))
        calibrated = np.logaddexp(np.log1p(-self.outlier_probability_) + share, uniform)
        return {h: calibrated[..., place] for place, h in enumerate(logs)}

    def check_state(self) -> None:
        alone = [
            (view,) for view in self.weights_ if view not in (JOINT_EVIDENCE, NEAR_MATCH_EVIDENCE)
        ]
        every: list[Hypothesis] = [sum(alone, ()), *alone, ()]
        check_answers(self, lambda X: [*self.transform(dict.fromkeys(every, X)).values()], 1)

    @property
    def largest_llr(self) -> float:
        """No ratio of the first hypothesis to the mean of the others exceeds this."""
        check_is_fitted(self, "weights_")
        share = self.outlier_probability_ / len(self.constants_)
        return float(np.log1p(share - self.outlier_probability_) - np.log(share))

    def describe(self) -> Json:
        return {
            "class": type(self).__name__,
            "factors": self.weights_,
            "constants": self.constants_,
            "doubt": self.outlier_probability_,
            "speakers": self.n_speakers_,
        }


def _parts_of_evidence(
    logs: LogLikelihoods, near_matches: NearMatches | None
) -> tuple[Array, list[str]]:
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
        if near_matches is not None:
            columns.append(near_matches.same if near_matches.view in h else nothing)
        rows.append(np.stack(columns, axis=-1))
    names = [*views, JOINT_EVIDENCE] if len(views) > 1 else views
    if near_matches is not None:
        names.append(NEAR_MATCH_EVIDENCE)
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
