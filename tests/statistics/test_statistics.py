"""Sufficient statistics against plain loops, and their sums against one pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mvplda import SufficientStatistics
from mvplda.exceptions import DataError, LabelError, ParameterError
from mvplda.statistics import accumulator as blocks

VIEWS = ("a", "b", "b:a")


def data(n: int = 60, dimension: int = 3, seed: int = 0) -> tuple[np.ndarray, dict[str, list[Any]]]:
    rng = np.random.default_rng(seed)
    a = [None if rng.random() < 0.1 else f"s{i}" for i in rng.integers(0, 12, size=n)]
    b = rng.integers(0, 4, size=n).astype(float)
    b[rng.random(n) < 0.1] = np.nan
    return 4.0 + rng.normal(size=(n, dimension)), {"a": a, "b": list(b)}


def part(
    X: np.ndarray, labels: dict[str, list[Any]], rows: Any, **options: Any
) -> SufficientStatistics:
    chosen = np.arange(len(X))[rows]
    some = {name: [column[i] for i in chosen] for name, column in labels.items()}
    return SufficientStatistics.from_arrays(X[chosen], some, views=VIEWS, **options)


def same(x: SufficientStatistics, y: SufficientStatistics, *, tolerance: float = 1e-12) -> None:
    """Equal about one origin; anonymous classes may be numbered differently."""
    y = y.about(x.origin)
    scale = np.abs(x.scatter).max()
    assert (x.n, x.views) == (y.n, y.views)
    np.testing.assert_allclose(x.total, y.total, rtol=0, atol=tolerance * scale)
    np.testing.assert_allclose(x.scatter, y.scatter, rtol=0, atol=tolerance * scale)
    order = {v: (canonical_order(x, v), canonical_order(y, v)) for v in x.views}
    for v, (i, j) in order.items():
        assert x.counts[v][i].tolist() == y.counts[v][j].tolist()
        np.testing.assert_allclose(x.sums[v][i], y.sums[v][j], rtol=0, atol=tolerance * scale)
    for a, b in x.cooccurrence:
        mine = x.together(a, b).toarray()[order[a][0]][:, order[b][0]]
        assert (mine == y.together(a, b).toarray()[order[a][1]][:, order[b][1]]).all()
    for v in ("a", "b"):
        assert x.classes[v].names.tolist() == y.classes[v].names.tolist()
        assert x.classes[v].anonymous == y.classes[v].anonymous


def canonical_order(s: SufficientStatistics, view: str) -> np.ndarray:
    """Classes by their first coordinate's sum, which no two classes share."""
    return np.argsort(np.round(s.sums[view][:, 0], 9))


@pytest.mark.parametrize("second_moment", ["full", "diagonal"])
def test_statistics_are_plain_sums(second_moment: Any) -> None:
    X, labels = data()
    found = SufficientStatistics.from_arrays(
        X, labels, views=VIEWS, second_moment=second_moment
    ).about(np.zeros(3))
    assert found.second_moment == second_moment
    squares = sum(np.outer(x, x) for x in X)
    np.testing.assert_allclose(found.total, sum(X))
    np.testing.assert_allclose(
        found.scatter, squares if second_moment == "full" else np.diag(squares)
    )
    np.testing.assert_allclose(found.variance, X.var(axis=0))
    for c, name in enumerate(found.classes["a"].names):
        rows = [x for x, label in zip(X, labels["a"], strict=True) if label == name]
        assert found.counts["a"][c] == len(rows)
        np.testing.assert_allclose(found.sums["a"][c], sum(rows))
        for d, other in enumerate(found.classes["b"].names):
            met = sum(
                x == name and y == other for x, y in zip(labels["a"], labels["b"], strict=True)
            )
            assert found.together("a", "b")[c, d] == found.together("b", "a")[d, c] == met
    assert found.counts["b:a"].sum() == len(X)


@pytest.mark.parametrize("second_moment", ["full", "diagonal"])
@pytest.mark.parametrize("cuts", [(20, 40), (1, 2), (59,)])
def test_shards_add_up(cuts: tuple[int, ...], second_moment: Any) -> None:
    X, labels = data()
    shards = [
        part(X, labels, rows, second_moment=second_moment) for rows in np.split(np.arange(60), cuts)
    ]
    assert len({s.classes["a"].names.tobytes() for s in shards}) > 1, (
        "shards should know different classes"
    )
    whole = part(X, labels, slice(None), second_moment=second_moment)
    total = shards[0]
    for shard in shards[1:]:
        total = total + shard
    same(whole, total)
    backwards = shards[-1]
    for shard in shards[-2::-1]:
        backwards = backwards + shard
    same(whole, backwards)


def test_shards_may_name_their_views_in_another_order() -> None:
    X, labels = data()
    other = SufficientStatistics.from_arrays(
        X[30:], {v: c[30:] for v, c in labels.items()}, views=("b:a", "b", "a")
    ).about(np.ones(3))
    same(part(X, labels, slice(None)), part(X, labels, slice(30)) + other)


def test_a_shard_without_any_label() -> None:
    X, labels = data()
    labels["a"][:10] = [None] * 10
    labels["b"][:10] = [None] * 10
    same(
        part(X, labels, slice(None)), part(X, labels, slice(10)) + part(X, labels, slice(10, None))
    )
    same(
        part(X, labels, slice(None)), part(X, labels, slice(10, None)) + part(X, labels, slice(10))
    )


def test_origins_far_apart() -> None:
    X, labels = data()
    X[30:] += 1e6
    first, second = part(X, labels, slice(30)), part(X, labels, slice(30, None))
    assert np.abs(first.origin - second.origin).min() > 1e5
    same(part(X, labels, slice(None)), first + second)
    same(part(X, labels, slice(None)), second + first)


def test_vectors_far_from_zero_lose_no_digits() -> None:
    X, labels = data()
    near = part(X, labels, slice(None))
    far = part(X + 2.0**30, labels, slice(None))
    np.testing.assert_allclose(far.variance, near.variance, rtol=1e-6)
    np.testing.assert_allclose(far.origin + far.total / far.n - 2.0**30, X.mean(axis=0), rtol=1e-6)


def test_blocks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    X, labels = data(n=1000)
    whole = part(X, labels, slice(None))
    monkeypatch.setattr(blocks.Accumulator, "block_bytes", 1)
    same(whole, part(X, labels, slice(None)))


def test_float32_is_close_to_float64() -> None:
    X, labels = data(n=3000)
    exact, short = part(X, labels, slice(None)), part(X.astype(np.float32), labels, slice(None))
    assert short.scatter.dtype == short.total.dtype == short.sums["a"].dtype == np.float64
    same(exact, short, tolerance=1e-6)


@pytest.mark.parametrize("dtype", [np.int32, np.bool_, np.float16])
def test_other_numbers_are_taken(dtype: Any) -> None:
    X = np.random.default_rng(0).integers(0, 2, size=(60, 3))
    _, labels = data()
    found, exact = (
        part(x, labels, slice(None)).about(np.zeros(3)) for x in (X.astype(dtype), X.astype(float))
    )
    tolerance = 1e-5 if dtype == np.float16 else 1e-12
    np.testing.assert_allclose(found.scatter, exact.scatter, rtol=tolerance)
    np.testing.assert_allclose(found.sums["b:a"], exact.sums["b:a"], rtol=0, atol=tolerance)


def test_constant_columns() -> None:
    X, labels = data()
    X = np.concatenate(
        [X, X[:, :1] * 1e-5, np.full((60, 1), 0.1), np.zeros((60, 1)), X[:, :1] + 1e6], axis=1
    )
    for options in ({}, {"second_moment": "diagonal"}):
        statistics = part(X, labels, slice(None), **options)
        assert statistics.constant_columns.tolist() == [4, 5]
        assert statistics.about(np.zeros(7)).constant_columns.tolist() == [4, 5]
    assert (
        part(X, labels, slice(20)) + part(X, labels, slice(20, None))
    ).constant_columns.tolist() == [4, 5]


@pytest.mark.parametrize(("bad", "row"), [(np.nan, 700), (np.inf, 0), (-np.inf, 999)])
def test_the_first_bad_row_is_named(bad: float, row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks.Accumulator, "block_bytes", 1)
    X, labels = data(n=1000)
    X[row:, 1] = bad
    with pytest.raises(DataError, match=rf"NaN or infinity, first in row {row}:"):
        part(X, labels, slice(None))


def test_blocks_of_few_sorted_classes_give_the_sums_of_one_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, _ = data(n=1000)
    codes = np.repeat(np.arange(25), 40)
    expected = np.add.reduceat(X, np.arange(0, 1000, 40))
    monkeypatch.setattr(blocks.Accumulator, "block_bytes", 1)
    sums = blocks.Accumulator(X.shape[1], {"a": 25})
    sums.add(X, {"a": codes})
    origin = sums.origin
    result = sums.result()
    assert result.counts[0].tolist() == [40] * 25
    np.testing.assert_allclose(result.sums[0] + 40 * origin, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("dtype", "scale"), [(np.float64, 1e160), (np.float32, 1e20)])
@pytest.mark.parametrize("second_moment", ["full", "diagonal"])
def test_overflow_is_named(dtype: Any, scale: float, second_moment: Any) -> None:
    X, labels = data()
    with pytest.raises(DataError, match="scale the vectors down"):
        part((X * scale).astype(dtype), labels, slice(None), second_moment=second_moment)


@pytest.mark.parametrize(
    ("X", "labels", "options", "error", "words"),
    [
        (np.zeros((4, 2)), {"a": [1, 2, 3]}, {}, LabelError, "4 vectors and 3 labels"),
        (np.zeros(4), {"a": [1] * 4}, {}, DataError, r"\(4,\)"),
        (np.zeros((0, 2)), {"a": []}, {}, DataError, r"\(0, 2\)"),
        (np.full((4, 2), "x"), {"a": [1] * 4}, {}, DataError, "real numbers"),
        (np.zeros((4, 2)), {"a": [1] * 4}, {"second_moment": "none"}, ParameterError, "'none'"),
    ],
)
def test_wrong_input_is_named(X: Any, labels: Any, options: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        SufficientStatistics.from_arrays(X, labels, **options)


def test_what_does_not_fit_does_not_add() -> None:
    X, labels = data()
    whole = part(X, labels, slice(None))
    with pytest.raises(DataError, match="got 3 and 2"):
        whole + part(X[:, :2], labels, slice(None))
    with pytest.raises(LabelError, match="same views"):
        whole + SufficientStatistics.from_arrays(X, labels)
    with pytest.raises(ParameterError, match="same second_moment"):
        whole + part(X, labels, slice(None), second_moment="diagonal")
    with pytest.raises(LabelError, match=r"'a'.*text and numbers"):
        whole + part(X, {**labels, "a": list(range(60))}, slice(None))
    number: Any = 1
    with pytest.raises(TypeError):
        whole + number


def test_views_that_were_not_gathered_are_named() -> None:
    X, labels = data()
    whole = part(X, labels, slice(None), second_moment="diagonal")
    with pytest.raises(LabelError, match="no view 'a:b'"):
        whole.for_views(("a:b",), "diagonal")
    with pytest.raises(ParameterError, match="second_moment='full'"):
        whole.for_views(("a",), "full")


@pytest.mark.parametrize("classes", [(7, 3), (7, 400), (900, 900), (10**6, 3)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_of_few_and_of_many_classes_batch_by_batch(
    classes: tuple[int, int], dtype: Any
) -> None:
    rng = np.random.default_rng(5)
    sums = blocks.Accumulator(4, ("a", "b"))
    sums.origin = np.zeros(4)
    seen: list[Any] = []
    for n in (300, 1, 70):
        X = rng.integers(-9, 9, size=(n, 4)).astype(dtype)
        codes = {
            view: rng.integers(0, size, size=n) for view, size in zip("ab", classes, strict=True)
        }
        sums.add(X, codes)
        seen += zip(codes["a"].tolist(), codes["b"].tolist(), X.astype(float), strict=True)
    found = sums.result()
    for k, view in enumerate(("a", "b")):
        for c in {row[k] for row in seen}:
            mine = [row[2] for row in seen if row[k] == c]
            assert found.counts[k][c] == len(mine), view
            np.testing.assert_array_equal(found.sums[k][c], np.sum(mine, axis=0))
        assert found.counts[k].sum() == len(seen)
    met = [row[:2] for row in seen]
    table = found.cooccurrence[0, 1]
    assert all(table[pair] == met.count(pair) for pair in met)
    assert table.nnz == len(set(met))
