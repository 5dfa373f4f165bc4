"""The convex hull of the ROC: pooled blocks of scores, and what follows from them.

Sort all scores, and walk a threshold up through them. The pairs (targets below,
non-targets below) trace the ROC. Pooling adjacent violators (PAV) joins
neighbouring groups of scores as long as a higher group holds a smaller share of
targets; the corners between the pools that remain are the lower convex hull.
EER, minDCF and minCllr depend on nothing but these corners.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression

from ..kernel.records import Array


def pool(targets_below: Array, nontargets_below: Array) -> tuple[Array, Array]:
    """The corners of the convex hull among points that rise in both coordinates.

    The first point is where nothing is rejected so far, the last where all of this
    stretch is. Pooling a stretch first and the whole afterwards gives the same
    corners as pooling at once, so long curves can be pooled piece by piece.
    """
    targets, nontargets = np.diff(targets_below), np.diff(nontargets_below)
    total = targets + nontargets
    filled = total > 0
    if not filled.all():  # scores of weight zero are no step at all
        targets, total = targets[filled], total[filled]
        keep = np.concatenate([[True], filled])
        targets_below, nontargets_below = targets_below[keep], nontargets_below[keep]
    if len(total) == 0:
        return targets_below[:1], nontargets_below[:1]
    corners = isotonic_regression(targets / total, weights=total).blocks
    return targets_below[corners], nontargets_below[corners]


@dataclass(frozen=True)
class Hull:
    """Corners of the ROC's convex hull, from accepting every trial to rejecting every trial.

    targets_below : (corners,) number, or weight, of the targets rejected; rises from 0 to all
    nontargets_below : (corners,) the same of the non-targets
    """

    targets_below: Array
    nontargets_below: Array

    @property
    def miss(self) -> Array:
        """Share of the targets rejected at every corner, rising from 0 to 1."""
        return np.asarray(self.targets_below / self.targets_below[-1])

    @property
    def false_alarm(self) -> Array:
        """Share of the non-targets accepted at every corner, falling from 1 to 0."""
        return np.asarray(1 - self.nontargets_below / self.nontargets_below[-1])

    def eer(self) -> float:
        """Where the hull meets miss = false alarm."""
        miss, false_alarm = self.miss, self.false_alarm
        gap = miss - false_alarm  # rises from -1 to 1
        i = int(np.searchsorted(gap, 0.0))
        if gap[i] == 0:
            return float(miss[i])
        share = -gap[i - 1] / (gap[i] - gap[i - 1])
        return float(miss[i - 1] + share * (miss[i] - miss[i - 1]))

    def least(self, miss_weight: Any, false_alarm_weight: Any) -> tuple[Array, Any]:
        """Least of miss_weight miss + false_alarm_weight false_alarm, and the corner where it is reached.

        A linear cost is least at a corner of the hull, so nothing else need be tried.
        Weights may be arrays; the answer then has their shape.
        """
        a, b = np.broadcast_arrays(np.asarray(miss_weight, float), np.asarray(false_alarm_weight, float))
        costs = a[..., None] * self.miss + b[..., None] * self.false_alarm
        return costs.min(-1), costs.argmin(-1)

    def min_cllr(self) -> float:
        """Cllr, in bits, when every pool says its own likelihood ratio.

        A pool with shares m of the targets and f of the non-targets says m / f, and costs
        m log2(1 + f/m) + f log2(1 + m/f), halved.
        """
        m, f = np.diff(self.miss), -np.diff(self.false_alarm)
        mixed = (m > 0) & (f > 0)  # a pure pool says +-infinity, rightly, and costs nothing
        m, f = m[mixed], f[mixed]
        cost = m * np.log1p(f / m) + f * np.log1p(m / f)
        return float(cost.sum() / (2 * np.log(2)))
