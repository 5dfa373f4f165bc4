"""Shards in every format, of the same labelled vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from problems import there

from mvplda import SufficientStatistics
from mvplda.io.lists import write_map
from mvplda.io.vectors import VectorSet, write_vectors

VIEWS = ("speaker", "phrase", "phrase:speaker")


def corpus(
    n: int = 900, dimension: int = 6, seed: int = 0, dtype: Any = np.float64
) -> tuple[Any, dict[str, Any]]:
    """Vectors, speakers as text and phrases as numbers; one in twenty has no label."""
    rng = np.random.default_rng(seed)
    speaker = np.array([f"s{i:03d}" for i in np.sort(rng.integers(0, 60, size=n))], dtype=object)
    phrase = rng.integers(0, 7, size=n).astype(object)
    speaker[rng.random(n) < 0.05] = None
    phrase[rng.random(n) < 0.05] = None
    return (5.0 + rng.normal(size=(n, dimension))).astype(dtype), {
        "speaker": speaker,
        "phrase": phrase,
    }


def cut(X: Any, labels: dict[str, Any], parts: int) -> list[tuple[Any, dict[str, Any]]]:
    """Parts of uneven sizes, which know different classes."""
    ends = (np.linspace(0, 1, parts + 1)[1:-1] ** 1.3 * len(X)).astype(int)
    return [(X[r], {k: v[r] for k, v in labels.items()}) for r in np.split(np.arange(len(X)), ends)]


def as_list(X: Any) -> tuple[Any, Any]:
    array = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), X.shape[1])
    return array, pa.field("vector", array.type)


def as_lists(X: Any) -> tuple[Any, Any]:
    array = pa.array(list(X), type=pa.list_(pa.from_numpy_dtype(X.dtype)))
    return array, pa.field("vector", array.type)


VECTOR_COLUMNS = {"fixed list": as_list, "list": as_lists}


def table_of(X: Any, labels: dict[str, Any], vectors: str = "fixed list") -> Any:
    array, field = VECTOR_COLUMNS[vectors](X)
    columns = [array, *(pa.array(list(column)) for column in labels.values())]
    fields = [field, *(pa.field(name, c.type) for name, c in zip(labels, columns[1:], strict=True))]
    return pa.table(columns, schema=pa.schema(fields))


def write_shard(
    path: Path, X: Any, labels: dict[str, Any], vectors: str = "fixed list"
) -> dict[str, str]:
    """Write a shard; what `labels=` must say about it."""
    if path.suffix == ".parquet":
        table = table_of(X, labels, vectors)
        pq.write_table(table, path, row_group_size=50, write_page_checksum=True)
        return {}
    if path.suffix == ".npz":
        speaker = np.array(["" if s is None else s for s in labels["speaker"]])
        np.savez_compressed(path, X=X, speaker=speaker, phrase=labels["phrase"].astype(float))
        return {}
    ids = np.array([f"{path.stem}-{i:04d}" for i in range(len(X))])
    write_vectors(path, VectorSet(ids, X))
    for name, column in labels.items():
        write_map(
            path.with_suffix(f".{name}"),
            {i: v for i, v in zip(ids.tolist(), column, strict=True) if v is not None},
        )
    return {name: "{folder}/{stem}." + name for name in labels}


def write_shards(
    folder: Path, parts: list[Any], suffix: str = ".parquet", **options: Any
) -> tuple[list[Path], Any]:
    paths, sources = [], {}
    for i, (X, labels) in enumerate(parts):
        paths.append(folder / f"part{i}{suffix}")
        sources = write_shard(paths[-1], X, labels, **options)
    return paths, sources


def identical(a: SufficientStatistics, b: SufficientStatistics) -> None:
    """The same numbers, bit for bit."""
    assert (a.n, a.views, list(a.classes)) == (b.n, b.views, list(b.classes))
    assert all(
        x.tobytes() == y.tobytes()
        for x, y in ((a.origin, b.origin), (a.total, b.total), (a.scatter, b.scatter))
    )
    for name, classes in a.classes.items():
        other = b.classes[name]
        assert classes.names.dtype == other.names.dtype
        assert (classes.names.tolist(), classes.anonymous) == (
            other.names.tolist(),
            other.anonymous,
        )
        assert (classes.cells is None) == (other.cells is None)
        assert classes.cells is None or classes.cells.tolist() == there(other.cells).tolist()
    for view in a.views:
        assert a.counts[view].tobytes() == b.counts[view].tobytes()
        assert a.sums[view].tobytes() == b.sums[view].tobytes()
    assert list(a.cooccurrence) == list(b.cooccurrence)
    for pair, table in a.cooccurrence.items():
        assert (table.toarray() == b.cooccurrence[pair].toarray()).all()


def close(a: SufficientStatistics, b: SufficientStatistics, tolerance: float = 1e-11) -> None:
    """The same classes and counts, and sums up to rounding."""
    b = b.about(a.origin)
    assert (a.n, a.views) == (b.n, b.views)
    scale = tolerance * max(np.abs(a.scatter).max(), 1.0)
    np.testing.assert_allclose(b.total, a.total, rtol=0, atol=scale)
    np.testing.assert_allclose(b.scatter, a.scatter, rtol=0, atol=scale)
    for view in a.views:
        assert a.classes[view].names.tolist() == b.classes[view].names.tolist()
        assert a.classes[view].anonymous == b.classes[view].anonymous
        assert a.counts[view].tolist() == b.counts[view].tolist()
        np.testing.assert_allclose(b.sums[view], a.sums[view], rtol=0, atol=scale)
    for pair, table in a.cooccurrence.items():
        assert (table.toarray() == b.cooccurrence[pair].toarray()).all()
