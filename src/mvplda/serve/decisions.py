"""From the evidence for four accounts of what happened to a decision, its reason and its odds.

TC: the owner says the phrase; TW: the owner says something else; IC: somebody else says the phrase; IW: somebody
else says something else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from .._typing import Array
from ..costs import log_odds, threshold_from_costs
from ..exceptions import ParameterError

KINDS = ("TC", "TW", "IC", "IW")
SPOOF = "SP"
"""A fifth account: an owner's voice and phrase, but played or made by a machine."""
REASONS: dict[str, str] = {"TW": "wrong_phrase", "IC": "wrong_speaker", "IW": "both", SPOOF: "suspected_replay"}
Verdict = Literal["accept", "reject", "inconclusive"]


@dataclass(frozen=True)
class Odds:
    """What the evidence says, whatever the costs: LLRs in nat, and posteriors of every account."""

    llr: float
    llr_speaker: float
    llr_phrase: float
    posteriors: dict[str, float]


def odds(evidence: Sequence[float] | Array, doubt: float, prior: float = 0.5, spoof_llr: float | None = None) -> Odds:
    """LLRs and posteriors of the accounts of one trial.

    Parameters
    ----------
    evidence : log-likelihoods of TC, TW, IC and IW, up to a constant
    doubt : probability that the model says nothing about this trial; no LLR is surer than this allows
    prior : of TC; the others share the rest evenly
    spoof_llr : what a countermeasure says for "played or made" against "alive", if there is one
    """
    log_odds(prior)  # which refuses what is no prior
    logs = np.asarray(evidence, dtype=np.float64)
    logs = np.logaddexp(math.log1p(-doubt) + logs - np.logaddexp.reduce(logs), math.log(doubt / 4))
    names: tuple[str, ...] = KINDS
    if spoof_llr is not None:
        names, logs = (*KINDS, SPOOF), np.append(logs, logs[0] + spoof_llr)
    tc, tw, ic, iw = logs[:4]
    weights = np.log([prior, *[(1 - prior) / (len(names) - 1)] * (len(names) - 1)])
    posterior = np.exp(logs + weights - np.logaddexp.reduce(logs + weights))
    return Odds(
        float(tc - np.logaddexp.reduce(logs[1:]) + math.log(len(names) - 1)),
        float(np.logaddexp(tc, tw) - np.logaddexp(ic, iw)),
        float(np.logaddexp(tc, ic) - np.logaddexp(tw, iw)),
        {name: float(p) for name, p in zip(names, posterior, strict=True)},
    )


@dataclass(frozen=True)
class Point:
    """An LLR that accepts from `threshold` on and rejects up to `reject`; what lies between decides nothing."""

    threshold: float
    reject: float
    prior: float = 0.5
    basis: str = ""

    def verdict(self, llr: float) -> Verdict:
        return "accept" if llr >= self.threshold else "reject" if llr <= self.reject else "inconclusive"


@dataclass(frozen=True)
class Errors:
    """Errors that were measured on people whom the model had not met, by threshold.

    thresholds : (T,) ascending
    far, frr : (T, 3) share of impostors accepted and of owners rejected: estimate, lower and upper end of 95 %
    people, trials : how many the figures rest on
    worst : (T,) the share accepted of that kind of impostors who pass most often
    """

    thresholds: Array
    far: Array
    frr: Array
    people: int
    trials: dict[str, int]
    worst: Array

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Errors:
        arrays = {name: np.asarray(values[name], dtype=np.float64) for name in ("thresholds", "far", "frr")}
        kinds = [kind["far"] for kind in values.get("byKind", {}).values()] or [arrays["far"][:, 0]]
        worst = np.max(np.asarray(kinds, dtype=np.float64), axis=0)
        return cls(**arrays, people=int(values["people"]), trials=dict(values["trials"]), worst=worst)

    def at(self, threshold: float) -> dict[str, Any]:
        """The operating point, as the service says it."""
        row = self._row(threshold)
        said: dict[str, Any] = {}
        for name, table in (("far", self.far), ("frr", self.frr)):
            said[name] = float(table[row, 0])
            said[f"{name}Interval"] = [float(table[row, 1]), float(table[row, 2])]
        return said

    def threshold_of(self, far: float) -> float:
        """The lowest threshold at which no larger a share of impostors was measured, of no kind, interval included.

        Where the people are too few to show it: that of a calibrated LLR, which exceeds t for at most exp(-t) of the
        impostors, unless more than that were measured.
        """
        good = np.flatnonzero((self.far[:, 2] <= far) & (self.worst <= far))
        if len(good):
            return float(self.thresholds[good[0]])
        row = self._row(-math.log(far))
        return -math.log(far) if max(self.far[row, 0], self.worst[row]) <= far else math.inf

    def _row(self, threshold: float) -> int:
        return int(np.clip(np.searchsorted(self.thresholds, threshold + 1e-9) - 1, 0, len(self.thresholds) - 1))


def choose_point(
    errors: Errors | None,
    most: float,
    *,
    far: float | None = None,
    prior: float | None = None,
    miss_cost: float = 1.0,
    false_alarm_cost: float = 1.0,
) -> Point:
    """From the false acceptances that one can bear, or from a prior and costs, to thresholds.

    most : the largest LLR that the model gives
    """
    if far is not None and prior is not None:
        raise ParameterError("give the false acceptances that you can bear, or a prior and costs, not both")
    if prior is not None:
        threshold = threshold_from_costs(prior, miss_cost, false_alarm_cost)
        return Point(threshold, threshold, prior, "costs")
    wanted = 0.01 if far is None else far
    if not 0 < wanted < 1:
        raise ParameterError(f"a share of false acceptances lies between 0 and 1; got {wanted}")
    threshold = -math.log(wanted) if errors is None else errors.threshold_of(wanted)
    if threshold > most:
        raise ParameterError(
            f"this model cannot promise a share of false acceptances of {wanted:g}: its data allow no LLR above "
            f"{most:.1f}. Ask for {math.exp(-most):.2g} or more, or give it a model of more people"
        )
    return Point(threshold, min(0.0, threshold), basis="far")


def reason_of(found: Odds, verdict: Verdict) -> str | None:
    """Which of the other accounts is the likeliest, where the owner was not accepted."""
    if verdict != "reject":
        return None
    return REASONS[max(REASONS, key=lambda name: found.posteriors.get(name, -1.0))]
