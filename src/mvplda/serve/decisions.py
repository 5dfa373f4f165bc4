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
SPOOF = "spoof"
"""A fifth account: the owner's voice and phrase, but played or made by a machine."""
REASONS: dict[str, str] = {
    "TW": "wrong_phrase",
    "IC": "wrong_speaker",
    "IW": "both",
    SPOOF: "suspected_replay",
}
EVEN: Mapping[str, float] = dict.fromkeys(REASONS, 1.0)
"""How often each account comes among what is to be turned away, where nobody says otherwise."""
Verdict = Literal["accept", "reject", "inconclusive"]


@dataclass(frozen=True)
class Odds:
    """What the evidence says, whatever the costs: LLRs in nat, and posteriors of every account."""

    llr: float
    llr_speaker: float
    llr_phrase: float
    posteriors: dict[str, float]


def odds(
    evidence: Sequence[float] | Array,
    doubt: float,
    prior: float = 0.5,
    countermeasure: float | None = None,
    weights: Mapping[str, float] = EVEN,
) -> Odds:
    """LLRs and posteriors of the accounts of one trial.

    Parameters
    ----------
    evidence : log-likelihoods of TC, TW, IC and IW, up to a constant
    doubt : probability that the model says nothing about this trial; no LLR is surer than this allows
    prior : of TC
    countermeasure : what it says for "a person" against "played or made", if there is one; of voice and words the
        worst is assumed, that they are the owner's (:mod:`mvplda.spoofing`)
    weights : of the other accounts, which share the rest of the prior by them
    """
    log_odds(prior)  # which refuses what is no prior
    logs = np.asarray(evidence, dtype=np.float64)
    logs = np.logaddexp(math.log1p(-doubt) + logs - np.logaddexp.reduce(logs), math.log(doubt / 4))
    tc, tw, ic, iw = logs
    names = KINDS if countermeasure is None else (*KINDS, SPOOF)
    logs = logs if countermeasure is None else np.append(logs, tc - countermeasure)
    others = np.log([weights[name] for name in names[1:]])
    others -= np.logaddexp.reduce(others)
    joint = logs + np.append(math.log(prior), math.log1p(-prior) + others)
    return Odds(
        float(tc - np.logaddexp.reduce(logs[1:] + others)),
        float(np.logaddexp(tc, tw) - np.logaddexp(ic, iw)),
        float(np.logaddexp(tc, ic) - np.logaddexp(tw, iw)),
        dict(zip(names, np.exp(joint - np.logaddexp.reduce(joint)).tolist(), strict=True)),
    )


def spoof_share(weights: Mapping[str, float]) -> float:
    """Of spoofs among all that is to be turned away."""
    return weights[SPOOF] / sum(weights.values())


@dataclass(frozen=True)
class Point:
    """An LLR that accepts from `threshold` on and rejects up to `reject`; what lies between decides nothing.

    measured : false acceptances and rejections there, with intervals, where they are known
    """

    threshold: float
    reject: float
    prior: float = 0.5
    measured: dict[str, Any] | None = None

    def verdict(self, llr: float) -> Verdict:
        return (
            "accept"
            if llr >= self.threshold
            else "reject"
            if llr <= self.reject
            else "inconclusive"
        )


@dataclass(frozen=True)
class Errors:
    """Errors that were measured on people and phrases which neither the model nor its calibration had met.

    thresholds : (T,) ascending
    far, frr : (T, 3) share of impostors accepted and of owners rejected: estimate, lower and upper end of 95 %
    by_kind : (T,) false acceptances of TW, IC and IW each
    people, trials : how many the figures rest on
    points : wanted false acceptances, the threshold that was chosen for them, and what was measured at thresholds that
        other people's trials had chosen so
    """

    thresholds: Array
    far: Array
    frr: Array
    by_kind: dict[str, Array]
    people: int
    trials: dict[str, int]
    points: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Errors:
        thresholds, far, frr = (
            np.asarray(values[name], dtype=np.float64) for name in ("thresholds", "far", "frr")
        )
        kinds = {
            kind: np.asarray(rates, dtype=np.float64)
            for kind, rates in values.get("byKind", {}).items()
        }
        counts = int(values["people"]), dict(values["trials"])
        return cls(thresholds, far, frr, kinds, *counts, values.get("points", ()))

    def at(self, threshold: float) -> dict[str, Any]:
        """What was measured at a threshold that no trial has chosen."""
        row = int(
            np.clip(
                np.searchsorted(self.thresholds, threshold + 1e-9) - 1, 0, len(self.thresholds) - 1
            )
        )
        (far, *far_ends), (frr, *frr_ends) = self.far[row].tolist(), self.frr[row].tolist()
        kinds = {kind: float(rates[row]) for kind, rates in self.by_kind.items()}
        return {
            "far": far,
            "farInterval": far_ends,
            "frr": frr,
            "frrInterval": frr_ends,
            "farByKind": kinds,
        }


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

    Where nothing was measured, a calibrated LLR exceeds t for at most exp(-t) of the impostors.

    most : the largest LLR that the model gives
    """
    if far is not None and prior is not None:
        raise ParameterError(
            "give the false acceptances that you can bear, or a prior and costs, not both"
        )
    if prior is not None:
        threshold = threshold_from_costs(prior, miss_cost, false_alarm_cost)
        return Point(threshold, threshold, prior, None if errors is None else errors.at(threshold))
    wanted = 0.01 if far is None else far
    if not 0 < wanted < 1:
        raise ParameterError(f"a share of false acceptances lies between 0 and 1; got {wanted}")
    if errors is not None and errors.points:
        best = max(
            (p for p in errors.points if p["wantedFar"] <= wanted),
            key=lambda p: p["wantedFar"],
            default=None,
        )
        if best is None:
            least = min(p["wantedFar"] for p in errors.points)
            raise ParameterError(
                f"this model cannot promise a share of false acceptances of {wanted:g}: it was measured on too few "
                f"people for that. Ask for {least:g} or more, or give it a model of more people"
            )
        measured = {
            name: value for name, value in best.items() if name not in ("wantedFar", "threshold")
        }
        return Point(best["threshold"], min(0.0, best["threshold"]), measured=measured)
    threshold = -math.log(wanted)
    if threshold > most:
        raise ParameterError(
            f"this model cannot promise a share of false acceptances of {wanted:g}: its data allow no LLR above "
            f"{most:.1f}. Ask for {math.exp(-most):.2g} or more, or give it a model of more people"
        )
    return Point(
        threshold, min(0.0, threshold), measured=None if errors is None else errors.at(threshold)
    )


def reason_of(found: Odds, verdict: Verdict) -> str | None:
    """Which of the other accounts is the likeliest, where the owner was not accepted."""
    if verdict != "reject":
        return None
    return REASONS[max(REASONS, key=lambda name: found.posteriors.get(name, -1.0))]
