"""Errors of groups at a common threshold."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from evaluation_problems import simulate

from mvplda.exceptions import DataError, LabelError
from mvplda.metrics import group_errors


def problem(seed: int = 0, drop: float = 2.5):
    """Thirty speakers; the targets of the last ten, group b, score lower."""
    scores, same, who, test = simulate(np.random.default_rng(seed), speakers=30)
    group = np.where(who < 20, "a", "b")
    scores = scores - drop * (same & (group == "b")[:, None])
    return scores, same, who, test, group


def test_rates_by_hand():
    scores, same, who, test, group = problem()
    found = group_errors(scores, same, 2.0, who, test, group, group[test])
    for name in "ab":
        rows, columns = group == name, group[test] == name
        part, own = scores[np.ix_(rows, columns)], same[np.ix_(rows, columns)]
        assert found.frr[name].estimate == pytest.approx((part[own] < 2).mean())
        assert found.far[name].estimate == pytest.approx((part[~own] >= 2).mean())
    ratio = found.largest_ratio["frr"]
    misses, targets = np.array([found.frr[g].estimate for g in "ab"]), np.array([80, 40])
    assert found.between["frr"] == ("b", "a")
    assert ratio.estimate == pytest.approx(np.divide(*((misses + 0.5 / targets)[::-1])))
    assert 1 < ratio.low < ratio.estimate < ratio.high
    flat = [x.reshape(-1) for x in np.broadcast_arrays(scores, who[:, None], test[None, :])]
    listed = group_errors(
        flat[0], same.reshape(-1), 2.0, flat[1], flat[2], group[flat[1]], group[flat[2]]
    )
    assert listed.to_dict() == found.to_dict()
    json.dumps(found.to_dict(), allow_nan=False)


def test_equal_groups_are_seldom_called_different():
    different = 0
    for seed in range(40):
        scores, same, who, test, group = problem(seed, drop=0.0)
        found = group_errors(scores, same, 2.0, who, test, group, group[test])
        different += found.largest_ratio["frr"].low > 1
    assert different <= 4  # 2 expected


def test_a_group_of_one_speaker_has_no_impostors_of_its_own():
    scores, same, who, test, _ = problem()
    group = np.where(who < 29, "a", "b")
    found = group_errors(scores, same, 2.0, who, test, group, group[test])
    assert math.isnan(found.far["b"].estimate)
    assert "far" not in found.largest_ratio
    assert (found.frr["b"].low, found.frr["b"].high) == (0.0, 1.0)
    assert math.isinf(found.largest_ratio["frr"].high)


def test_what_cannot_be_compared():
    scores, same, who, test, group = problem()
    with pytest.raises(DataError, match="at least 2"):
        group_errors(scores, same, 2.0, who, test, np.full(30, "a"), np.full(120, "a"))
    with pytest.raises(LabelError, match="groups must have one label per trial"):
        group_errors(scores, same, 2.0, who, test, group[1:], group[test])
