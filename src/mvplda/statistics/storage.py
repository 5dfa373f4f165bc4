"""Statistics in ``.safetensors`` files, sealed as model files are."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..exceptions import FileFormatError
from ..labels import ViewClasses, base_columns
from ..persistence import atomic_write, packed_pieces, read_metadata, unpack
from .record import SufficientStatistics

FORMAT = "mvplda-statistics"
WHAT = "statistics file"

Tensors = dict[str, NDArray[Any]]
PathLike = str | os.PathLike[str]


def save_statistics(statistics: SufficientStatistics, path: PathLike, sources: Any = None) -> None:
    """Write statistics, all or nothing, and with them plain values about where they come from.

    The numbers go from memory to the file without a copy of the whole.
    """
    with atomic_write(path) as (part,), part.open("wb") as file:
        for piece in _sealed(statistics, sources):
            file.write(piece)


def load_statistics(path: PathLike) -> SufficientStatistics:
    """Read statistics; damaged, foreign and newer files give a `FileFormatError`."""
    return load_with_sources(path)[0]


def load_with_sources(path: PathLike) -> tuple[SufficientStatistics, Any]:
    """Statistics, and what was written with them about their sources."""
    tensors, about = unpack(path, FORMAT, WHAT)
    try:
        return _put_together(tensors, about), about["sources"]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise FileFormatError(f"{path} lacks parts of a {WHAT}: {error}") from error


def statistics_bytes(statistics: SufficientStatistics) -> bytes:
    return b"".join(_sealed(statistics, None))


def statistics_of_bytes(data: bytes) -> SufficientStatistics:
    with tempfile.TemporaryDirectory() as folder:  # one reader with one set of checks
        path = Path(folder) / "statistics"
        path.write_bytes(data)
        return load_statistics(path)


def holds_statistics(path: PathLike) -> bool:
    """Whether a file says that it holds statistics."""
    if not str(path).endswith(".safetensors"):
        return False
    return read_metadata(path).get("format") == FORMAT


def _sealed(statistics: SufficientStatistics, sources: Any) -> Iterator[bytes | memoryview]:
    tensors, about = _take_apart(statistics)
    return packed_pieces(FORMAT, WHAT, tensors, {**about, "sources": sources})


def _take_apart(s: SufficientStatistics) -> tuple[Tensors, dict[str, Any]]:
    tensors: Tensors = {"origin": s.origin, "total": s.total, "scatter": s.scatter}
    classes: dict[str, Any] = {}
    for column in base_columns(s.views):
        names = s.classes[column].names
        stored: Tensors
        if names.dtype.kind == "U":
            texts = names.tolist()
            stored = {
                "text": np.frombuffer("".join(texts).encode("utf-8", "surrogatepass"), dtype=np.uint8),
                "lengths": np.fromiter(map(len, texts), dtype=np.int64, count=len(texts)),
            }
        elif names.dtype.kind in "SMm":
            stored = {"raw": np.ascontiguousarray(names).view(np.uint8)}
        else:
            stored = {"numbers": names}
        tensors |= {f"names/{column}/{key}": value for key, value in stored.items()}
        classes[column] = {"dtype": names.dtype.str, "anonymous": s.classes[column].anonymous}
    for view in s.views:
        tensors[f"counts/{view}"], tensors[f"sums/{view}"] = s.counts[view], s.sums[view]
        cells = s.classes[view].cells
        if cells is not None:
            tensors[f"cells/{view}"] = cells
    for i, table in enumerate(s.cooccurrence.values()):
        tensors |= {f"pair/{i}/{key}": getattr(table, key) for key in ("indptr", "indices", "data")}
    about = {"views": list(s.views), "n": s.n, "classes": classes, "pairs": [list(pair) for pair in s.cooccurrence]}
    return {name: np.ascontiguousarray(value) for name, value in tensors.items()}, about


def _put_together(tensors: Tensors, about: dict[str, Any]) -> SufficientStatistics:
    views = tuple(about["views"])
    classes = {c: ViewClasses(_names(tensors, c, d["dtype"]), d["anonymous"]) for c, d in about["classes"].items()}
    for view in views:
        if ":" in view:
            classes[view] = ViewClasses(np.empty(0, dtype=np.int64), 0, tensors[f"cells/{view}"])
    counts = {view: tensors[f"counts/{view}"] for view in views}
    pairs = {}
    for i, (a, b) in enumerate(about["pairs"]):
        data, indices, indptr = (tensors[f"pair/{i}/{key}"] for key in ("data", "indices", "indptr"))
        pairs[a, b] = sparse.csr_array((data, indices, indptr), shape=(len(counts[a]), len(counts[b])))
    return SufficientStatistics(
        views,
        int(about["n"]),
        tensors["origin"],
        tensors["total"],
        tensors["scatter"],
        classes,
        counts,
        {view: tensors[f"sums/{view}"] for view in views},
        pairs,
    )


def _names(tensors: Tensors, column: str, dtype: str) -> NDArray[Any]:
    kind = np.dtype(dtype).kind
    if kind == "U":
        text = tensors[f"names/{column}/text"].tobytes().decode("utf-8", "surrogatepass")
        ends = np.cumsum(tensors[f"names/{column}/lengths"]).tolist()
        return np.array([text[i:j] for i, j in zip([0, *ends], ends, strict=False)], dtype=dtype)
    if kind in "SMm":
        return tensors[f"names/{column}/raw"].view(dtype)
    return tensors[f"names/{column}/numbers"].astype(dtype, copy=False)
