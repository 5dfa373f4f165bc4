"""Metrics of shards equal those of all scores at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mvplda.exceptions import DataError
from mvplda.metrics import evaluate
from mvplda.metrics import merged as merging
from mvplda.metrics.evaluation import Evaluation
from mvplda.metrics.merged import ShardedEvaluation, Sketch, count_cells, count_kinds, summarise

COSTS = ("default", "sre08", "1,1,0.5")
FARS = (0.3, 0.05, 0.01)


def by_kind(scores: Any, kinds: Any) -> dict[str, Any]:
    return {str(kind): scores[kinds == kind] for kind in np.unique(kinds)}


def sharded(shards: list[Mapping[str, Any]]) -> Evaluation:
    sizes: dict[str, int] = {}
    for shard in shards:
        for kind, n in count_kinds(shard).items():
            sizes[kind] = sizes.get(kind, 0) + n
    whole = ShardedEvaluation(sizes, COSTS, FARS)
    whole.add_summaries(summarise(shard, whole.target) for shard in shards)
    return whole.add_counts(
        [count_cells(shard, whole.target, whole.cuts, whole.brackets) for shard in shards]
    )


def assert_equal(found: Evaluation, expected: Evaluation) -> None:
    assert list(found.rows) == list(expected.rows)
    assert (found.target, found.costs) == (expected.target, expected.costs)
    for kind, row in expected.rows.items():
        other = found.rows[kind]
        assert (other.n_targets, other.n_nontargets) == (row.n_targets, row.n_nontargets)
        for name, value in row.values.items():
            if name == "cllr" and math.isfinite(value):
                assert other[name] == pytest.approx(value, rel=1e-12)
            else:  # all others bit by bit
                assert other[name] == value or (math.isnan(value) and math.isnan(other[name])), (
                    kind,
                    name,
                )


def problem(n: int, seed: int, decimals: int | None, dtype: Any) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    kinds = rng.choice(["TC", "TW", "IC", "IW"], size=n, p=[0.1, 0.3, 0.2, 0.4])
    kinds[:2] = ["TC", "IW"]
    scores = rng.normal(size=n) + 3.0 * (kinds == "TC") - (kinds == "IW")
    if decimals is not None:
        scores = np.round(scores, decimals)
    return scores.astype(dtype), kinds


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("decimals", [None, 1, 0])
@pytest.mark.parametrize("parts", [1, 7])
def test_shards_have_the_metrics_of_all_scores(
    dtype: Any, decimals: int | None, parts: int
) -> None:
    scores, kinds = problem(6000, parts, decimals, dtype)
    cut = [
        by_kind(*pair)
        for pair in zip(np.array_split(scores, parts), np.array_split(kinds, parts), strict=True)
    ]
    assert_equal(sharded(cut), evaluate(scores, kinds, COSTS, far=FARS))


def test_a_coarse_sketch_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sketch bounds the thresholds; with fewer order statistics more scores are inside the bounds."""
    monkeypatch.setattr(merging, "SKETCH", 3)
    scores, kinds = problem(3000, 5, None, np.float32)
    order = np.argsort(scores)  # shards of disjoint scores, which sketches describe worst
    cut = [by_kind(scores[rows], kinds[rows]) for rows in np.array_split(order, 5)]
    assert_equal(sharded(cut), evaluate(scores, kinds, COSTS, far=FARS))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([-math.inf, -2.0, -1.0, 0.0, 0.5, 1.0, 3.0, math.inf]),
            st.booleans(),
            st.integers(0, 2),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_ties_and_infinite_scores(trials: list[tuple[float, bool, int]]) -> None:
    trials = [*trials, (0.0, True, 0), (0.0, False, 1)]
    scores, target, shard = map(np.array, zip(*trials, strict=True))
    kinds = np.where(target, "target", "nontarget")
    cut = [by_kind(scores[shard == k], kinds[shard == k]) for k in range(3)]
    assert_equal(sharded(cut), evaluate(scores, kinds, COSTS, far=FARS))


def test_bounds_of_a_sketch_hold() -> None:
    ordered = np.sort(np.random.default_rng(0).integers(0, 50, 9000)).astype(float)
    sketch = Sketch.of(ordered)
    for value in np.arange(-1, 52, 0.5):
        assert sketch.most_below(value) >= (ordered < value).sum()
        assert sketch.fewest_up_to(value) <= (ordered <= value).sum()


def test_only_a_small_share_of_the_scores_is_collected() -> None:
    rng = np.random.default_rng(1)
    shards = [
        {"target": rng.normal(3, 1, 50), "nontarget": rng.normal(size=50_000)} for _ in range(4)
    ]
    whole = ShardedEvaluation({"target": 200, "nontarget": 200_000}, far=[0.01])
    whole.add_summaries(summarise(shard, "target") for shard in shards)
    counts = [count_cells(shard, "target", whole.cuts, whole.brackets) for shard in shards]
    assert max(len(part.scores) for count in counts for part in count.inside) < 200
    assert max(len(cells) for count in counts for cells, _ in count.cells.values()) <= 2 * 202


def test_shards_without_nontargets_are_refused() -> None:
    with pytest.raises(DataError, match="no non-target scores"):
        ShardedEvaluation({"target": 3})
    with pytest.raises(DataError, match="NaN"):
        summarise({"nontarget": np.array([math.nan])}, "target")
