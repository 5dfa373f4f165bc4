"""Histograms against the exact measures that they bound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mvplda.exceptions import DataError, ParameterError
from mvplda.metrics import ScoreHistogram, act_dcf, cllr, eer, min_cllr, min_dcf

values = st.lists(st.floats(-3, 3), min_size=1, max_size=15)


def filled(targets, nontargets, **bins):
    histogram = ScoreHistogram(**bins)
    histogram.add(targets, True)
    histogram.add(nontargets, False)
    return histogram


@given(values, values, st.integers(1, 12))
@settings(deadline=None, max_examples=100)
def test_bounds_hold_however_coarse_the_bins(targets, nontargets, bins):
    histogram = filled(targets, nontargets, low=-2, high=2, bins=bins)
    exact = {
        "eer": (eer(targets, nontargets), histogram.eer()),
        "min_cllr": (min_cllr(targets, nontargets), histogram.min_cllr()),
        "min": (min_dcf(targets, nontargets, "1,1,.3"), histogram.min_dcf("1,1,.3")),
        "act": (act_dcf(targets, nontargets, "1,1,.3"), histogram.act_dcf("1,1,.3")),
    }
    for value, bounds in exact.values():
        assert bounds.low - 1e-12 <= value <= bounds.high + 1e-12
        assert abs(bounds.value - value) <= bounds.error + 1e-12
    assert histogram.cllr() == pytest.approx(cllr(targets, nontargets))


def test_fine_bins_are_nearly_exact_in_batches_and_merged():
    rng = np.random.default_rng(0)
    targets, nontargets = rng.normal(8, 4, 20_000).astype(np.float32), rng.normal(-8, 4, 200_000).astype(np.float32)
    whole = filled(targets, nontargets)
    assert whole.resolution == pytest.approx(0.0005)
    for bounds, exact in (
        (whole.eer(), eer(targets, nontargets)),
        (whole.min_cllr(), min_cllr(targets, nontargets)),
        (whole.min_dcf("sdsv"), min_dcf(targets, nontargets, "sdsv")),
        (whole.act_dcf(".001"), act_dcf(targets, nontargets, ".001")),
    ):
        assert bounds.low <= exact <= bounds.high
        assert bounds.error < 2e-3 * exact
    left, right = ScoreHistogram(), ScoreHistogram()
    for batch in np.array_split(targets, 7):
        left.add(batch, True)
    mixed = rng.permutation(len(nontargets))
    for batch in np.array_split(nontargets[mixed], 5):
        right.add(batch, np.zeros(len(batch), dtype=bool))
    merged = left.merge(right)
    np.testing.assert_array_equal(merged.counts, whole.counts)
    assert merged.cllr() == pytest.approx(cllr(targets, nontargets))
    assert (merged.n_targets, merged.n_nontargets) == (20_000, 200_000)


def test_flags_ends_and_infinite_scores():
    histogram = ScoreHistogram(-1, 1, 4)
    histogram.add([[-np.inf, -1.0], [1.0, np.inf]], np.array([[False, False], [True, True]]))
    histogram.add([], True)
    assert histogram.counts.tolist() == [[1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 2]]
    assert histogram.eer().high == 0


def test_what_cannot_be_counted():
    histogram = ScoreHistogram(-1, 1, 4)
    with pytest.raises(DataError, match="both targets and non-targets"):
        histogram.eer()
    with pytest.raises(DataError, match="1 target score"):
        histogram.add([np.nan], True)
    with pytest.raises(DataError, match="is_target"):
        histogram.add([1.0, 2.0], [1, 0])
    with pytest.raises(ParameterError, match="same bins"):
        histogram.merge(ScoreHistogram(-1, 1, 5))
    with pytest.raises(ParameterError, match="low < high"):
        ScoreHistogram(1, 1, 4)
