"""Statistics of torch tensors: NumPy's, however they come, and whatever is wrong with them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mvplda import MultiviewPLDA, SufficientStatistics
from mvplda.backend import to_host
from mvplda.exceptions import DataError, LabelError, ParameterError
from mvplda.labels import ViewClasses, encode_labels
from mvplda.statistics import accumulator, device, record
from mvplda.statistics.device import DeviceAccumulator

torch = pytest.importorskip("torch", reason="torch is not installed")

VIEWS = ("speaker", "phrase", "speaker:phrase")


def data(
    n: int = 900, dimension: int = 7, dtype: Any = np.float64
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Vectors far from zero, 150 speakers (more than are summed by a product) and 6 phrases."""
    rng = np.random.default_rng(0)
    labels = {
        "speaker": rng.permutation(np.arange(n) % 150),
        "phrase": rng.permutation(np.arange(n) % 6),
    }
    X = 100 + rng.normal(size=(n, dimension)) * np.logspace(-2, 2, dimension)
    return X.astype(dtype), labels


def same(got: SufficientStatistics, expected: SufficientStatistics, rtol: float = 1e-11) -> None:
    got = got.about(expected.origin)
    assert (got.views, got.n) == (expected.views, expected.n)
    deviation = np.sqrt(expected.variance + 1e-3)
    scale = np.outer(deviation, deviation) if expected.scatter.ndim == 2 else deviation**2
    np.testing.assert_allclose(
        got.scatter / scale, expected.scatter / scale, rtol=0, atol=rtol * expected.n * 4
    )
    np.testing.assert_allclose(
        got.total / deviation, expected.total / deviation, rtol=0, atol=rtol * expected.n
    )
    assert list(got.sums) == list(expected.sums)
    for view in expected.views:
        np.testing.assert_array_equal(got.counts[view], expected.counts[view])
        np.testing.assert_array_equal(got.classes[view].names, expected.classes[view].names)
        sums, wanted = to_host(got.sums[view]) / deviation, expected.sums[view] / deviation
        np.testing.assert_allclose(
            sums, wanted, rtol=0, atol=rtol * max(expected.counts[view].max(), 10) * 10
        )
    for (a, b), table in expected.cooccurrence.items():
        np.testing.assert_array_equal(got.together(a, b).toarray(), table.toarray())


@pytest.mark.parametrize("second_moment", ["full", "diagonal"])
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-11), (np.float32, 2e-6)])
@pytest.mark.parametrize("small", [False, True])
def test_tensors_have_the_statistics_of_arrays(
    second_moment: Any, dtype: Any, rtol: float, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if small:
        monkeypatch.setattr(device, "ROWS", 64)
        monkeypatch.setattr(DeviceAccumulator, "block_bytes", 1)
        monkeypatch.setattr(accumulator, "PENDING", 0)
        monkeypatch.setattr(device, "COPIED", 100)
    X, labels = data(dtype=dtype)
    exact = X.astype(np.float64)
    expected = SufficientStatistics.from_arrays(
        exact, labels, views=VIEWS, second_moment=second_moment
    )
    tensor = torch.from_numpy(X)
    got = SufficientStatistics.from_arrays(tensor, labels, views=VIEWS, second_moment=second_moment)
    assert got.device == tensor.device
    assert got.sums["speaker"].dtype == torch.float64
    same(got, expected, rtol)


@pytest.mark.parametrize(
    ("dtype", "least", "most"), [(np.float32, 1e-12, 1e-5), (np.float64, 0.0, 1e-13)]
)
def test_second_moments_are_as_accurate_as_the_docs_say(
    dtype: Any, least: float, most: float
) -> None:
    X, labels = data(20_000, dtype=dtype)
    table = encode_labels(labels)
    exact = SufficientStatistics.from_arrays(X.astype(np.float64), table)
    got = SufficientStatistics.from_arrays(torch.from_numpy(X), table)
    exact = exact.about(got.origin)
    scale = np.sqrt(np.outer(exact.scatter.diagonal(), exact.scatter.diagonal()))
    assert least <= np.abs((got.scatter - exact.scatter) / scale).max() < most
    phrases = np.abs(to_host(got.sums["phrase"]) - exact.sums["phrase"]) / np.sqrt(
        exact.scatter.diagonal()
    )
    assert phrases.max() < 1e-4


def test_blocks_add_up_whatever_their_size() -> None:
    X, labels = data()
    table = encode_labels(labels, VIEWS)
    expected = SufficientStatistics.from_arrays(X, table)
    sums = DeviceAccumulator(X.shape[1], {view: len(table.classes[view]) for view in VIEWS})
    for rows in np.split(np.arange(len(X)), [1, 2, 300, 850]):
        part = {view: torch.from_numpy(table.codes[view][rows]).to(torch.int32) for view in VIEWS}
        sums.add(torch.from_numpy(X[rows]), part)
    same(SufficientStatistics.of(sums, table.classes), expected)


def test_classes_without_a_vector_are_left_out() -> None:
    X, labels = data(40)
    there = labels["speaker"] // 10 * 2  # even numbers only
    sums = DeviceAccumulator(X.shape[1], {"speaker": 31, "phrase": 9})
    sums.add(torch.from_numpy(X), {"speaker": there, "phrase": labels["phrase"]})
    same(
        SufficientStatistics.of(sums),
        SufficientStatistics.from_arrays(X, {"speaker": there, "phrase": labels["phrase"]}),
    )


def test_absent_cells_and_anonymous_classes_are_renumbered() -> None:
    X, _ = data(6)
    a, b = np.array([0, 0, 2, 2, 4, 4]), np.array([0, 2, 0, 2, 2, 2])
    cells = np.array([[i, j] for i in range(5) for j in range(3)])
    classes = {
        "a": ViewClasses(np.array(["p", "q", "r"]), anonymous=2),
        "b": ViewClasses(np.arange(3)),
        "a:b": ViewClasses(np.empty(0, dtype=np.int64), 0, cells),
    }
    sums = DeviceAccumulator(X.shape[1], {"a": 5, "b": 3, "a:b": 15})
    sums.add(torch.from_numpy(X), {"a": a, "b": b, "a:b": 3 * a + b})
    got = SufficientStatistics.of(sums, classes)
    assert got.classes["a"].names.tolist() == ["p", "r"]
    assert got.classes["a"].anonymous == 1
    assert got.classes["b"].names.tolist() == [0, 2]
    assert got.classes["a:b"].cells is not None
    assert got.classes["a:b"].cells.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [2, 1]]
    np.testing.assert_allclose(to_host(got.sums["a:b"])[4], (X - got.origin)[4:].sum(axis=0))
    np.testing.assert_array_equal(got.together("a", "b").toarray(), [[1, 1], [1, 1], [0, 2]])


@settings(max_examples=30, deadline=None)
@given(
    codes=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 99)), min_size=1, max_size=40),
    cut=st.integers(0, 40),
)
def test_any_blocks_any_codes(codes: list[tuple[int, int]], cut: int) -> None:
    few, many = np.array(codes).T
    X = np.random.default_rng(len(codes)).normal(size=(len(codes), 3))
    sums = DeviceAccumulator(3, {"few": 4, "many": 100})
    for rows in (slice(0, cut), slice(cut, None)):
        if len(X[rows]):
            sums.add(torch.from_numpy(X[rows]), {"few": few[rows], "many": many[rows]})
    same(
        SufficientStatistics.of(sums).about(np.zeros(3)),
        SufficientStatistics.from_arrays(X, {"few": few, "many": many}).about(np.zeros(3)),
        1e-10,
    )


def test_statistics_of_a_device_add_up_with_those_of_the_host(tmp_path: Any) -> None:
    X, labels = data()
    half = (
        {view: column[:400] for view, column in labels.items()},
        {view: column[400:] for view, column in labels.items()},
    )
    there = SufficientStatistics.from_arrays(torch.from_numpy(X[:400]), half[0])
    here = SufficientStatistics.from_arrays(X[400:], half[1])
    whole = SufficientStatistics.from_arrays(X, labels)
    same(there + here, whole)
    same(here + there, whole)
    same(pickle.loads(pickle.dumps(there)) + here, whole)
    views = {"speaker": 3, "phrase": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record, "to_host", lambda *_: pytest.fail("the class sums were copied"))
        MultiviewPLDA(views, max_iter=2, tol=0.0).fit_statistics(there)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_rows_that_are_no_numbers_are_named_and_nothing_is_added(value: float) -> None:
    X, labels = data()
    bad = X.copy()
    bad[123, 4] = value
    with pytest.raises(DataError, match="NaN or infinity, first in row 123"):
        SufficientStatistics.from_arrays(torch.from_numpy(bad), labels)
    table = encode_labels(labels)
    sums = DeviceAccumulator(X.shape[1], {"speaker": 150, "phrase": 6})
    first, second = slice(0, 100), slice(100, None)
    sums.add(
        torch.from_numpy(X[first]), {view: codes[first] for view, codes in table.codes.items()}
    )
    rest = {view: codes[second] for view, codes in table.codes.items()}
    with pytest.raises(DataError, match="first in row 123"):
        sums.add(torch.from_numpy(bad[second]), rest)
    sums.add(torch.from_numpy(X[second]), rest)
    same(SufficientStatistics.of(sums, table.classes), SufficientStatistics.from_arrays(X, table))


def test_what_does_not_fit_is_named() -> None:
    block = torch.zeros((3, 2))
    new: Any = DeviceAccumulator
    codes = {"a": [0, 1, 2]}
    with pytest.raises(ParameterError, match="second_moment"):
        new(2, {"a": 3}, second_moment="half")
    with pytest.raises(ParameterError, match="classes is empty"):
        new(2, {})
    with pytest.raises(DataError, match=r"must have 5 dimensions, .*; got 2"):
        new(5, {"a": 3}).add(block, codes)
    with pytest.raises(DataError, match="two dimensions"):
        new(2, {"a": 3}).add(block[0], codes)
    with pytest.raises(DataError, match="at least one vector"):
        new(2, {"a": 3}).add(block[:0], {"a": []})
    with pytest.raises(DataError, match="real numbers"):
        new(2, {"a": 3}).add(block.to(torch.complex64), codes)
    with pytest.raises(LabelError, match=r"0 \.\. 2; got 0 \.\. 3"):
        new(2, {"a": 3}).add(block, {"a": [0, 1, 3]})
    with pytest.raises(LabelError, match="whole numbers"):
        new(2, {"a": 3}).add(block, {"a": [0.0, 1.0, 2.0]})
    with pytest.raises(LabelError, match="and 2 labels"):
        new(2, {"a": 3}).add(block, {"a": [0, 1]})
    with pytest.raises(LabelError, match="no class numbers of view 'b'"):
        new(2, {"a": 3, "b": 2}).add(block, codes)
    with pytest.raises(DataError, match="accumulator is empty"):
        SufficientStatistics.of(new(2, {"a": 3}))
    cells = new(2, {"a": 3, "a:b": 3})
    cells.add(block, {"a": [0, 1, 2], "a:b": [0, 1, 2]})
    with pytest.raises(LabelError, match="classes= must contain 'a:b'"):
        SufficientStatistics.of(cells)
    with pytest.raises(LabelError, match="one label per vector"):
        SufficientStatistics.from_arrays(block, {"a": [0, 1]})
    large = torch.full((3, 2), 1e30)
    large[0] = 0
    with pytest.raises(DataError, match="overflow"):
        new(2, {"a": 3}).add(large, codes)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int16])
def test_other_numbers_are_widened(dtype: Any) -> None:
    whole = torch.arange(-30, 30).reshape(20, 3).to(dtype)
    labels = {"a": np.arange(20) % 4}
    got = SufficientStatistics.from_arrays(whole, labels)
    same(got, SufficientStatistics.from_arrays(whole.double().numpy(), labels), 1e-6)
