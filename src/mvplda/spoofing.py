"""Spoofing as one more hypothesis: what a countermeasure says, beside who spoke and what was said.

A trial is a target, an ordinary non-target (another speaker, another phrase, or both) or a *spoof*:
a replay or an imitation of the target by a machine. A countermeasure listens for the traces of
that, and gives a log-likelihood ratio c = log p(traces | a person) / p(traces | spoof). Of the
vectors of a spoof the worst is assumed, that nothing tells them from those of the target. With
pi the share of spoofs among all that should be rejected,

    LLR = log p(x, traces | target) / p(x, traces | the rest) = - log((1 - pi) exp(-llr) + pi exp(-c))

where llr is the ratio of the target and the ordinary non-targets. No share of spoofs leaves llr as
it is, and where c tends to infinity llr - log(1 - pi) is left. Every scoring call takes a countermeasure's
ratios, ``llr(..., countermeasure=, spoof_prior=)``; docs/math.md, section 9.9, derives it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ._typing import Array
from .backend import cast, dtype_name, is_torch, like, namespace
from .exceptions import DataError, ParameterError

__all__ = ["SpoofingCost", "with_countermeasure"]

SPOOF = "spoof"
"""The kind of trial, and the fifth hypothesis: a machine that imitates the target."""


def with_countermeasure(llr: Any, countermeasure: Any, spoof_prior: float = 0.5) -> Any:
    """LLRs of target against everything that should be rejected, spoofs among it.

    Parameters
    ----------
    llr : (profiles, tests) or (trials,), array or torch tensor
        Calibrated natural-log likelihood ratios against ordinary non-targets.
    countermeasure : one for every test, of a matrix, or for every trial
        Calibrated natural-log likelihood ratios of a person's voice against a spoof: low is suspicious.
    spoof_prior : float
        Share of spoofs among the trials that should be rejected.

    Examples
    --------
    >>> from mvplda.spoofing import with_countermeasure
    >>> with_countermeasure([5.0, 5.0, -5.0], [8.0, -3.0, 8.0], 0.2).round(2).tolist()
    [5.21, -1.39, -4.78]
    """
    scores: Any = llr if is_torch(llr) else np.asarray(llr)
    if "float" not in str(scores.dtype):
        scores = scores.astype(np.float64)
    traces = np.asarray(countermeasure, dtype=np.float64)
    share = check_share(spoof_prior)
    shape = tuple(scores.shape)
    if traces.shape not in ((), shape[-1:], shape):
        raise DataError(
            f"a countermeasure says one number a test: {shape[-1:]} for these scores; got {traces.shape}"
        )
    xp = namespace(scores)
    if np.isnan(traces).any() or xp.isnan(scores).any():
        raise DataError("scores or the countermeasure's ratios contain NaN")
    traces = cast(like(traces, scores), dtype_name(scores)) + 0.0 * scores.clip(-1, 1)
    # one of the two says nothing, be it infinite
    if share in (0, 1):
        return traces if share else scores + 0.0
    return -xp.logaddexp(np.log1p(-share) - scores, np.log(share) - traces)  # (V13)


def check_share(spoof_prior: float) -> float:
    """A share of spoofs among the trials that should be rejected."""
    if not 0 <= spoof_prior <= 1:
        raise ParameterError(f"spoof_prior is a share, from 0 to 1; got {spoof_prior!r}")
    return float(spoof_prior)


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
        values = (*vars(self).values(), self.target_prior)
        if not all(0 < value < np.inf for value in values):
            raise ParameterError(
                f"costs and priors of target, non-target and spoof are positive, and priors add up to 1; got {self}"
            )

    @classmethod
    def parse(cls, text: str) -> SpoofingCost:
        """From ``"C_miss,C_fa,C_spoof,P_nontarget,P_spoof"``."""
        try:
            miss, false_alarm, spoofed, nontarget, spoof = (float(part) for part in text.split(","))
        except ValueError:
            raise ParameterError(
                f"expected C_miss,C_fa,C_spoof,P_nontarget,P_spoof, such as 1,10,10,0.0095,0.05; got {text!r}"
            ) from None
        return cls(nontarget, spoof, miss, false_alarm, spoofed)

    def __str__(self) -> str:
        return (
            f"(C_miss={self.miss_cost:g}, C_fa={self.false_alarm_cost:g}, C_spoof={self.spoof_cost:g}, "
            f"P_nontarget={self.nontarget_prior:g}, P_spoof={self.spoof_prior:g})"
        )

    @property
    def target_prior(self) -> float:
        return 1 - self.nontarget_prior - self.spoof_prior

    @property
    def weights(self) -> tuple[float, float, float]:
        """Normalised costs of missing every target, and of accepting every non-target and every spoof."""
        miss = self.miss_cost * self.target_prior
        nontarget = self.false_alarm_cost * self.nontarget_prior
        spoof = self.spoof_cost * self.spoof_prior
        best = min(miss, nontarget + spoof)
        return miss / best, nontarget / best, spoof / best

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

    def at(
        self, threshold: float, targets: ArrayLike, nontargets: ArrayLike, spoofs: ArrayLike
    ) -> float:
        """The cost at a threshold."""
        if np.isnan(threshold):
            raise ParameterError("the threshold is NaN")
        return float(self._costs(np.asarray([threshold]), targets, nontargets, spoofs)[0])

    def least(self, targets: ArrayLike, nontargets: ArrayLike, spoofs: ArrayLike) -> float:
        """The cost at the best threshold, known afterwards."""
        # raising a threshold to the next target's score misses no more
        thresholds = np.append(np.unique(targets), np.inf)
        return float(self._costs(thresholds, targets, nontargets, spoofs).min())

    def _costs(
        self, thresholds: Array, targets: ArrayLike, nontargets: ArrayLike, spoofs: ArrayLike
    ) -> Array:
        total = np.zeros(len(thresholds))
        sorts = {"target": targets, "non-target": nontargets, "spoof": spoofs}
        for weight, (name, values) in zip(self.weights, sorts.items(), strict=True):
            scores = np.sort(np.ravel(np.asarray(values, dtype=np.float64)))
            if not scores.size or np.isnan(scores).any():
                raise DataError(f"there are no {name} scores, or NaN among them")
            below = np.searchsorted(scores, thresholds) / len(scores)
            total += weight * (below if name == "target" else 1 - below)
        return total
