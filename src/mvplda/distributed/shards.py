"""Shards: where labels come from, files in pieces, ids of all of them, and batches that another engine hands over."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise, repeat
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .._optional import need
from ..exceptions import DataError, FileFormatError, LabelError, ParameterError
from ..io.arrow import as_rows, choose_columns
from ..io.files import (
    BATCH_BYTES,
    LONGEST_ID,
    Batch,
    Names,
    OnDisk,
    Reader,
    Rows,
    lines_of,
    read_map,
    texts_of,
    wrap_reader_errors,
)
from ..io.numpy_files import PARSING
from ..io.vectors import open_vectors
from ..labels import base_columns
from ..statistics import (
    GrowingClasses,
    HostAccumulator,
    LabelCodes,
    SufficientStatistics,
    label_codes,
)
from ..statistics.accumulator import SecondMoment, common_origin
from .engines import one_thread_each

CACHED_LISTS = 8
UNLISTED = -2


class Unlisted(NamedTuple):
    """Vectors that a list of labels does not name."""

    file: str
    vectors: int
    first: str


class Source(Protocol):
    """The labels of one view, batch after batch."""

    def codes(self, batch: Batch, start: int) -> LabelCodes: ...

    def finish(self, end: int, last: bool) -> None: ...


class Labels:
    """The labels of a shard, in all columns that the views need.

    columns : those that must be read from the table
    ids : whether ids are needed
    files : the files that the labels come from
    """

    def __init__(
        self,
        path: str,
        reader: Reader,
        names: Sequence[str],
        sources: Mapping[str, str],
        missing: Any,
        start: int = 0,
    ) -> None:
        self._sources: dict[str, Source] = {}
        self.columns: list[str] = []
        self.files: list[str] = []
        self.ids = False
        for name in names:
            place = sources.get(name, name)
            if place in reader.columns:
                self._sources[name] = _Column(name, place, missing)
                self.columns.append(place)
                continue
            file = label_file(path, name, sources.get(name))
            if file is None:
                listed = f" (it has {', '.join(reader.columns)})" if reader.columns else ""
                raise LabelError(
                    f"{path}: there are no labels of {name!r}: {place!r} is neither a column of it{listed} nor a file"
                )
            self.files.append(str(file))
            if file.suffix in (".npy", ".labels"):
                self._sources[name] = _Rows(path, file, missing, start)
            else:
                self._sources[name] = _List(path, name, file, missing)
                self.ids = True

    def codes(self, batch: Batch, start: int) -> dict[str, LabelCodes]:
        return {name: source.codes(batch, start) for name, source in self._sources.items()}

    @property
    def unlisted(self) -> dict[str, Unlisted]:
        """By view, the list that does not name all ids, how many of them, and the first."""
        lists = {
            name: source for name, source in self._sources.items() if isinstance(source, _List)
        }
        return {
            n: Unlisted(str(s.file), s.unlisted, s.first_unlisted)
            for n, s in lists.items()
            if s.unlisted
        }

    def finish(self, end: int, last: bool = True) -> None:
        """Whether the labels fit, now that all rows before `end` were read, which are the last of the file or not."""
        for source in self._sources.values():
            source.finish(end, last)


def label_file(path: str, name: str, source: str | None) -> Path | None:
    """The file of a view's labels for a shard, if there is one."""
    shard = Path(path.rpartition(":")[2] if path.startswith(("scp", "ark")) else path)
    if source is None:
        beside = [shard.with_name(f"{shard.stem}.{name}{suffix}") for suffix in (".npy", ".labels")]
        return next((file for file in beside if file.is_file()), None)
    file = Path(source.replace("{stem}", shard.stem).replace("{folder}", str(shard.parent)))
    return file if file.is_file() else None


class _Column:
    def __init__(self, name: str, column: str, missing: Any) -> None:
        self.name, self.column, self.missing = name, column, missing

    def codes(self, batch: Batch, start: int) -> LabelCodes:
        values = batch.columns[self.column]
        if isinstance(values, np.ndarray):
            return label_codes(values, missing=self.missing)
        return arrow_codes(self.name, values, self.missing)

    def finish(self, end: int, last: bool) -> None:
        pass


class _Rows:
    """One label a row, in a file of their own; read from row `start` on."""

    def __init__(self, path: str, file: Path, missing: Any, start: int) -> None:
        self.path, self.file, self.missing = path, file, missing
        self.lines: Iterator[bytes] = iter(())
        if file.suffix == ".npy":
            with wrap_reader_errors(file, "a NumPy array"), PARSING:
                array = np.load(
                    file, mmap_mode="r", allow_pickle=False
                )  # a map notices a file that is too short
            if array.ndim != 1:
                raise LabelError(f"{file}: labels have shape (n,); got {array.shape}")
            self.length, self.dtype, self.offset = len(array), array.dtype, array.offset
        else:
            self.lines = islice(lines_of(OnDisk(self.file)), start, None)

    def codes(self, batch: Batch, start: int) -> LabelCodes:
        n = len(batch.X)
        if self.file.suffix == ".npy":
            offset = (
                self.offset + start * self.dtype.itemsize
            )  # read, not mapped: pages that were used would stay
            values: Any = np.fromfile(
                self.file, self.dtype, min(n, max(self.length - start, 0)), offset=offset
            )
        else:
            values = np.array(
                [line or None for line in texts_of(self.lines, n)] + [None], dtype=object
            )[:-1]
        if len(values) < n:
            raise LabelError(
                f"{self.file} has {start + len(values)} labels, {self.path} has more vectors"
            )
        return label_codes(values, missing=self.missing)

    def finish(self, end: int, last: bool) -> None:
        if not last:
            return
        more = (
            self.length - end
            if self.file.suffix == ".npy"
            else sum(bool(line) for line in self.lines)
        )
        if more > 0:
            raise LabelError(
                f"{self.file} has {more} more labels than the {end} vectors of {self.path}"
            )


class _List:
    """Ids and their labels; an id that is not listed has no label."""

    def __init__(self, path: str, name: str, file: Path, missing: Any) -> None:
        self.path, self.name, self.file = path, name, file
        state = os.stat(file)
        self.names, self.numbers = _numbered(str(file), missing, state.st_size, state.st_mtime_ns)
        self.rows, self.first = 0, ""
        self.unlisted, self.first_unlisted = 0, ""

    def codes(self, batch: Batch, start: int) -> LabelCodes:
        ids = batch.ids
        if ids is None:
            raise LabelError(f"{self.path} has no ids to look up in {self.file}: name their column")
        if self.rows == 0 and len(ids):
            self.first = ids[0]
        self.rows += len(ids)
        codes = np.fromiter(
            map(self.numbers.get, ids, repeat(UNLISTED)), dtype=np.int64, count=len(ids)
        )
        unlisted = codes == UNLISTED
        if not self.unlisted and unlisted.any():
            self.first_unlisted = ids[int(unlisted.argmax())]
        self.unlisted += int(unlisted.sum())
        return LabelCodes(self.names, np.where(unlisted, -1, codes))

    def finish(self, end: int, last: bool) -> None:
        if self.rows and self.unlisted == self.rows:
            raise LabelError(
                f"{self.file} lists none of the {self.rows} ids of {self.path} for view {self.name!r}: "
                f"the first is {self.first!r}, the file begins with {next(iter(self.numbers), '')!r}"
            )


@lru_cache(CACHED_LISTS)
def _numbered(file: str, missing: Any, size: int, changed: int) -> tuple[Any, dict[str, int]]:
    """Names of the classes in a list, and the class of every id (size and time of change tell versions apart)."""
    values = read_map(file)
    labels = label_codes(np.array([*values.values(), None], dtype=object)[:-1], missing=missing)
    return labels.names, dict(zip(values, labels.codes.tolist(), strict=True))


def arrow_codes(name: str, column: Any, missing: Any) -> LabelCodes:
    """Labels of an Arrow column, numbered without making Python objects of the rows."""
    arrow = need("pyarrow")
    encoded = column if arrow.types.is_dictionary(column.type) else column.dictionary_encode()
    kind = encoded.type.value_type
    if arrow.types.is_nested(kind) or arrow.types.is_decimal(kind):
        raise LabelError(f"labels of {name!r} are {kind}; expected text, numbers or dates")
    labels = label_codes(encoded.dictionary.to_numpy(zero_copy_only=False), missing=missing)
    known = np.append(labels.codes, -1)
    indices = (
        encoded.indices.fill_null(len(labels.codes))
        .cast(arrow.int64())
        .to_numpy(zero_copy_only=False)
    )
    return LabelCodes(labels.names, known[indices])


# Files cut by rows, so that one huge file is many shards.


@dataclass(frozen=True)
class Piece:
    """A shard: a file, or the vectors `start` to `stop` - 1 of its `total`."""

    path: str
    start: int = 0
    stop: int | None = None
    total: int | None = None

    def __str__(self) -> str:
        return (
            self.path
            if self.stop is None
            else f"{self.path} (rows {self.start} to {self.stop - 1})"
        )

    @property
    def rows(self) -> Rows | None:
        return None if self.stop is None else (self.start, self.stop)

    @property
    def last(self) -> bool:
        """Whether the file ends with this piece."""
        return self.stop == self.total

    def check(self, reader: Reader) -> None:
        """Whether the file still is what it was when it was cut."""
        if self.stop is None:
            return
        cuts = reader.cuts()
        found = cuts[-1] if len(cuts) else 0
        if found != self.total:
            raise FileFormatError(
                f"the file has {found} vectors; when the run began it had {self.total}"
            )


def cut(
    paths: Sequence[str], rows: int | None, vectors: str | None, ids: str | None
) -> list[Piece]:
    """Every file in pieces of at most so many rows, as far as its format can be cut there."""
    if rows is None:
        return [Piece(path) for path in paths]
    return [piece for path in paths for piece in _cut_file(path, rows, vectors, ids)]


def _cut_file(path: str, rows: int, vectors: str | None, ids: str | None) -> list[Piece]:
    try:
        cuts = open_vectors(path, vectors, ids).cuts()
    except (FileFormatError, OSError):
        return [Piece(path)]  # whoever reads it will tell
    bounds = [0, *_bounds(cuts, rows)]
    if len(bounds) < 3:
        return [Piece(path)]
    return [Piece(path, start, stop, bounds[-1]) for start, stop in pairwise(bounds)]


def _bounds(cuts: Sequence[int], rows: int) -> Iterator[int]:
    """The last cut within `rows` of the one before, or the next where there is none."""
    place, start = 0, 0
    while place < len(cuts):
        place = max(bisect_right(cuts, start + rows, lo=place), place + 1)
        if cuts[place - 1] > start:  # there are row groups without rows
            start = cuts[place - 1]
            yield start


# Ids of all shards, so that none is counted twice.
#
# Ids are kept as one number each, eight bytes, since workers are
# other processes and ids are many. Where two numbers are equal the files are read again for the ids.


WEIGHTS = np.random.default_rng(0).integers(2**64, size=LONGEST_ID, dtype=np.uint64) | np.uint64(1)


class Identities(NamedTuple):
    """The ids of a shard: a number for each, equal for equal ids in every process."""

    piece: Piece
    numbers: NDArray[np.uint64]


def numbers_of(names: Names) -> NDArray[np.uint64]:
    letters = names.view(np.uint32).reshape(len(names), -1)
    return np.asarray((letters * WEIGHTS[: letters.shape[1]]).sum(axis=1, dtype=np.uint64))


def some_twice(numbers: NDArray[np.uint64]) -> bool:
    ordered = np.sort(numbers)  # several times as fast as np.unique
    return bool((ordered[1:] == ordered[:-1]).any())


def check_shards(shards: Sequence[Identities], vectors: str | None, ids: str | None) -> None:
    """An id that stands in two shards is an error that names it and both places."""
    if len(shards) < 2:
        return
    numbers, counts = np.unique(
        np.concatenate([shard.numbers for shard in shards]), return_counts=True
    )
    again = numbers[counts > 1]
    if not len(again):
        return
    places: dict[str, str] = {}
    for shard in shards:
        rows = np.flatnonzero(np.isin(shard.numbers, again))
        if not len(rows):
            continue
        names = names_of(shard.piece, vectors, ids)
        for row in rows.tolist():
            here = f"{shard.piece.path}, entry {shard.piece.start + row + 1}"
            if (other := places.setdefault(names[row], here)) != here:
                raise LabelError(
                    f"the id {names[row]!r} stands twice and would be counted twice: {other}, and {here}. "
                    "Leave one of them out"
                )


def names_of(piece: Piece, vectors: str | None, ids: str | None) -> list[str]:
    """The ids of a shard."""
    batches = open_vectors(piece.path, vectors, ids).batches(BATCH_BYTES, (), True, piece.rows)
    return [name for batch in batches for name in batch.ids or ()]


# Record batches that another engine hands over, as Spark's ``mapInArrow`` does.


SPARK_SCHEMA = "statistics binary, vectors long"
"""What `statistics_of_batches` yields, as Spark writes schemas."""


def statistics_of_batches(
    batches: Iterable[Any],
    views: Sequence[str],
    *,
    labels: Mapping[str, str] | None = None,
    vectors: str | None = None,
    second_moment: SecondMoment = "full",
    missing: Any = None,
    origin: Any = None,
    on_error: str = "raise",
) -> Iterator[Any]:
    """One row with the statistics of all batches, as bytes; no row where there are no vectors.

    Parameters
    ----------
    batches : pyarrow record batches with a column of vectors and columns of labels
    views : the views, interactions included
    labels : columns of the views' labels, where they have other names
    origin : (D,) point amid the data, the same for all parts; default: the mean of the first batch

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> from mvplda import SufficientStatistics
    >>> from mvplda.distributed import statistics_of_batches
    >>> X = np.arange(8, dtype=np.float32).reshape(4, 2)
    >>> vectors = pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), 4, [None, pa.py_buffer(X)])
    >>> batch = pa.record_batch({"vector": vectors, "speaker": ["a", "a", "b", "b"]})
    >>> [row] = statistics_of_batches([batch], ["speaker"])
    >>> SufficientStatistics.from_bytes(row["statistics"][0].as_py()).counts
    {'speaker': array([2., 2.])}
    """
    arrow = need("pyarrow")
    if on_error not in ("raise", "skip"):
        raise ParameterError(f"on_error is 'raise' or 'skip'; got {on_error!r}")
    columns = {name: (labels or {}).get(name, name) for name in base_columns(views)}
    classes = GrowingClasses(views)
    sums: HostAccumulator | None = None
    rows = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        field, _ = choose_columns("the batch", batch.schema, vectors, None)
        absent = [column for column in columns.values() if column not in batch.schema.names]
        if absent:
            raise LabelError(
                f"the batches have no column {absent[0]!r}; they have {', '.join(batch.schema.names)}"
            )
        X = as_rows("the batch", batch.column(field.name), field)
        if sums is None:
            amid = common_origin(X) if origin is None else origin
            sums = HostAccumulator(X.shape[1], views, second_moment=second_moment, origin=amid)
        codes = {
            name: arrow_codes(name, batch.column(column), missing)
            for name, column in columns.items()
        }
        with one_thread_each():
            bad = sums.add(X, classes.number(codes), on_error="skip")
        if len(bad) and on_error == "raise":
            raise DataError(
                f"{len(bad)} vectors of a batch hold NaN or infinity, the first is row {rows + bad[0]} of this part: "
                "repair them, or leave them out with on_error='skip'"
            )
        rows += batch.num_rows
    if sums is not None and sums.n:
        statistics = SufficientStatistics.of(sums, *classes.sorted())
        yield arrow.record_batch({
            "statistics": arrow.array([statistics.to_bytes()], type=arrow.binary()),
            "vectors": arrow.array([statistics.n], type=arrow.int64()),
        })  # fmt: skip
