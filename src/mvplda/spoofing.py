"""Spoofing as one more hypothesis: what a countermeasure says, beside who spoke and what was said.

A trial is a target, an ordinary non-target (another speaker, another phrase, or both) or a *spoof*:
a replay or an imitation of the target by a machine. A countermeasure listens for the traces of
that, and gives a log-likelihood ratio a = log p(traces | spoof) / p(traces | a person). Of the
vectors of a spoof the worst is assumed, that nothing tells them from those of the target. With
pi the share of spoofs among all that should be rejected,

    LLR = log p(x, traces | target) / p(x, traces | the rest) = - log((1 - pi) exp(-llr) + pi exp(a))

where llr is the ratio of the target and the ordinary non-targets. No share of spoofs leaves llr as
it is, and where a tends to minus infinity llr - log(1 - pi) is left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .exceptions import DataError, ParameterError
from .metrics.curves import ScoreCurve


def with_countermeasure(llr: ArrayLike, countermeasure: ArrayLike, spoof_prior: float = 0.5) -> NDArray[np.float64]:
    """LLRs of target against everything that should be rejected, spoofs among it.

    Parameters
    ----------
    llr : (profiles, tests) or (trials,)
        Calibrated natural-log likelihood ratios against ordinary non-targets.
    countermeasure : one for every test, of a matrix, or for every trial, of a list
        Calibrated natural-log likelihood ratios of *spoof* against a person's voice: high is suspicious.
    spoof_prior : float
        Share of spoofs among the trials that should be rejected.

    Examples
    --------
    >>> from mvplda.spoofing import with_countermeasure
    >>> with_countermeasure([5.0, 5.0, -5.0], [-8.0, 3.0, -8.0], 0.2).round(2).tolist()
    [5.21, -1.39, -4.78]
    """
    scores, traces = np.asarray(llr, dtype=np.float64), np.asarray(countermeasure, dtype=np.float64)
    if not 0 <= spoof_prior <= 1:
        raise ParameterError(f"spoof_prior is a share, from 0 to 1; got {spoof_prior!r}")
    if traces.ndim > 1 or (traces.ndim and traces.shape != scores.shape[-1:]):
        raise DataError(
            f"a countermeasure says one number a test: {scores.shape[-1:]} for these scores; got shape {traces.shape}"
        )
    if np.isnan(scores).any() or np.isnan(traces).any():
        raise DataError("scores or the countermeasure's ratios contain NaN")
    if spoof_prior in (0, 1):  # one of the two says nothing, be it infinite
        return np.asarray(scores if spoof_prior == 0 else np.broadcast_to(-traces, scores.shape)) + 0.0
    ordinary, spoofed = np.log1p(-spoof_prior), np.log(spoof_prior)
    return np.asarray(-np.logaddexp(ordinary - scores, spoofed + traces), dtype=np.float64)


@dataclass(frozen=True)
class SpoofingCost:
    """What errors cost where spoofs are among the trials, and how often each sort of trial comes: a-DCF.

    a-DCF(t) = C_miss P_target miss(t) + C_fa P_nontarget fa(t) + C_spoof P_spoof fa_spoof(t),

    divided by the better of the two decisions that need no score (Shim et al., 2024). The
    defaults are those of the ASVspoof 5 challenge.

    Examples
    --------
    >>> from mvplda.spoofing import SpoofingCost
    >>> round(SpoofingCost().least([4.0, 5.0, 6.0], [-5.0, 0.0], [-2.0, 4.5]), 3)  # one spoof in two gets in
    0.42
    """

    nontarget_prior: float = 0.0095
    spoof_prior: float = 0.05
    miss_cost: float = 1.0
    false_alarm_cost: float = 10.0
    spoof_cost: float = 10.0

    def __post_init__(self) -> None:
        priors = (self.target_prior, self.nontarget_prior, self.spoof_prior)
        if not all(0 < prior < 1 for prior in priors):
            raise ParameterError(f"priors of target, non-target and spoof are positive and add up to 1; got {priors}")
        costs = (self.miss_cost, self.false_alarm_cost, self.spoof_cost)
        if not all(0 < cost < np.inf for cost in costs):
            raise ParameterError(f"costs must be positive and finite; got {costs}")

    @property
    def target_prior(self) -> float:
        return 1 - self.nontarget_prior - self.spoof_prior

    @property
    def weights(self) -> tuple[float, float, float]:
        """Normalised costs of missing every target, and of accepting every non-target and every spoof."""
        miss = self.miss_cost * self.target_prior
        accept = self.false_alarm_cost * self.nontarget_prior, self.spoof_cost * self.spoof_prior
        best = min(miss, sum(accept))
        return miss / best, accept[0] / best, accept[1] / best

    @property
    def share(self) -> float:
        """Share of spoofs in what false alarms cost: the ``spoof_prior`` of scores that are best for these costs."""
        _, nontarget, spoof = self.weights
        return spoof / (nontarget + spoof)

    @property
    def threshold(self) -> float:
        """Bayes' threshold for LLRs of `with_countermeasure` with this `share`: accept at or above it."""
        miss, nontarget, spoof = self.weights
        return float(np.log((nontarget + spoof) / miss))

    def at(self, threshold: float, targets: ArrayLike, nontargets: ArrayLike, spoofs: ArrayLike) -> float:
        """The cost at a threshold."""
        miss, nontarget, spoof = self.weights
        if np.isnan(threshold):
            raise ParameterError("the threshold is NaN")
        sorts = {"target": targets, "non-target": nontargets, "spoof": spoofs}
        scores = {name: np.asarray(values, dtype=np.float64) for name, values in sorts.items()}
        for name, values in scores.items():
            if not values.size or np.isnan(values).any():
                raise DataError(f"there are no {name} scores, or NaN among them")
        return float(
            miss * np.mean(scores["target"] < threshold)
            + nontarget * np.mean(scores["non-target"] >= threshold)
            + spoof * np.mean(scores["spoof"] >= threshold)
        )

    def least(self, targets: ArrayLike, nontargets: ArrayLike, spoofs: ArrayLike) -> float:
        """The cost at the best threshold, known afterwards."""
        miss, nontarget, spoof = self.weights
        parts = {"nontarget": np.ravel(nontargets), "spoof": np.ravel(spoofs)}
        if not all(len(part) for part in parts.values()):
            raise DataError(f"there must be scores of both kinds; got {[len(part) for part in parts.values()]}")
        # one curve whose false-alarm rate is the weighted mean of the two kinds
        each = {"nontarget": nontarget / len(parts["nontarget"]), "spoof": spoof / len(parts["spoof"])}
        curve = ScoreCurve(targets, parts, weights=each)
        return float(curve.hull.least(miss, nontarget + spoof)[0])
