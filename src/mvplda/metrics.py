"""Error rates and costs of scores.

Conventions are NIST's: a *miss* is a target below the threshold, a *false
alarm* a non-target at or above it; scores are natural-log likelihood ratios.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from .exceptions import DataError
from .kernel.records import Array


def _scores(values: Any, name: str) -> Array:
    array = np.asarray(values, dtype=np.float64).reshape(-1)
    if len(array) == 0:
        raise DataError(f"there are no {name} scores")
    if np.isnan(array).any():
        raise DataError(f"{int(np.isnan(array).sum())} {name} score(s) are NaN")
    return array


def convex_hull(targets: Any, nontargets: Any) -> tuple[Array, Array]:
    """Miss and false-alarm rates at the corners of the ROC's convex hull, misses rising.

    The hull is what pooling adjacent violators gives: equal scores, and runs
    where a higher score means fewer targets, become one step.
    """
    targets, nontargets = _scores(targets, "target"), _scores(nontargets, "non-target")
    scores = np.concatenate([targets, nontargets])
    is_target = np.concatenate([np.ones(len(targets)), np.zeros(len(nontargets))])
    order = np.lexsort((-is_target, scores))  # of equal scores the targets first, so that they are pooled
    fitted = isotonic_regression(is_target[order])
    ends = fitted.blocks[1:]
    n_below = np.concatenate([[0], ends])
    targets_below = np.concatenate([[0.0], np.cumsum(is_target[order])[ends - 1]])
    miss = targets_below / len(targets)
    false_alarm = 1 - (n_below - targets_below) / len(nontargets)
    return miss, false_alarm


def eer(targets: Any, nontargets: Any) -> float:
    """Equal error rate: where the convex hull of the ROC meets miss = false alarm.

    Examples
    --------
    >>> from mvplda.metrics import eer
    >>> eer([2.0, 3.0, 1.0, 4.0], [0.0, -1.0, 1.5, -2.0])
    0.125
    """
    miss, false_alarm = convex_hull(targets, nontargets)
    gap = miss - false_alarm  # rises from -1 to 1
    i = int(np.searchsorted(gap, 0.0))
    if gap[i] == 0:
        return float(miss[i])
    share = -gap[i - 1] / (gap[i] - gap[i - 1])
    return float(miss[i - 1] + share * (miss[i] - miss[i - 1]))


def cllr(targets: Any, nontargets: Any) -> float:
    """Cost of log-likelihood ratios, in bits: 0 is perfect, 1 is saying nothing."""
    targets, nontargets = _scores(targets, "target"), _scores(nontargets, "non-target")
    cost = np.logaddexp(0, -targets).mean() + np.logaddexp(0, nontargets).mean()
    return float(cost / (2 * np.log(2)))


def min_cllr(targets: Any, nontargets: Any) -> float:
    """Cllr after the best rising recalibration: what order alone is worth."""
    targets, nontargets = _scores(targets, "target"), _scores(nontargets, "non-target")
    scores = np.concatenate([targets, nontargets])
    is_target = np.concatenate([np.ones(len(targets)), np.zeros(len(nontargets))])
    order = np.lexsort((-is_target, scores))
    labels = is_target[order]
    posterior = np.clip(isotonic_regression(labels).x, 0.0, 1.0)
    with np.errstate(divide="ignore"):
        log_odds = np.log(posterior) - np.log1p(-posterior) - np.log(len(targets) / len(nontargets))
    return cllr(log_odds[labels == 1], log_odds[labels == 0])


def trial_kinds(enrol: dict[str, Any], test: dict[str, Any]) -> dict[str, NDArray[np.bool_]]:
    """Masks (enrol, test) of the four kinds of trials of two views, target first.

    The first view is the speaker, the second the phrase: TC target correct, TW target
    wrong phrase, IC impostor correct phrase, IW impostor wrong phrase.
    """
    if len(enrol) != 2:
        raise DataError(f"the four kinds of trials are of two views; got {list(enrol)}")
    first, second = (np.asarray(enrol[view])[:, None] == np.asarray(test[view])[None, :] for view in enrol)
    return {"TC": first & second, "TW": first & ~second, "IC": ~first & second, "IW": ~first & ~second}


def eer_by_kind(scores: Any, kinds: dict[str, NDArray[np.bool_]]) -> dict[str, float]:
    """EER of the targets (TC) against every other kind, and against all of them (Total)."""
    scores = np.asarray(scores)
    targets = scores[kinds["TC"]]
    result = {kind: eer(targets, scores[kinds[kind]]) for kind in ("IW", "IC", "TW")}
    result["Total"] = eer(targets, scores[~kinds["TC"]])
    return result
