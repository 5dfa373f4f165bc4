"""The statistics of one shard: the function that every engine runs, and the one that puts results together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..engines import one_thread_each
from ..exceptions import DataError, FileFormatError, LabelError
from ..io.batches import BATCH_BYTES, Batch
from ..io.vectors import check_once, checked_names, open_vectors
from ..kernel.records import Array
from ..labels import base_columns
from ..statistics import Accumulator, LabelCodes, SecondMoment, SufficientStatistics, merge
from .identities import Identities, names_of, numbers_of
from .labels import Labels, Unlisted
from .pieces import Piece

T = TypeVar("T")
OnBad = Literal["raise", "skip"]
NAMED_ROWS = 10
BAD = (FileFormatError, DataError, LabelError, OSError)


@dataclass(frozen=True)
class Plan:
    """What is done with every shard; see `gather` for the meaning of the fields."""

    views: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    vectors: str | None = None
    ids: str | None = None
    second_moment: SecondMoment = "full"
    missing: Any = None
    on_bad_rows: OnBad = "raise"
    on_bad_shard: OnBad = "raise"
    batch_bytes: int = BATCH_BYTES
    work_dir: str | None = None
    origin: Array | None = None
    first: str = ""


@dataclass(frozen=True)
class ShardReport:
    """One shard that was read.

    path : the file, and which of its rows where these are a piece
    vectors : how many were added
    bad_rows : how many were left out, because they are not finite
    named_rows : the first of those, counted from 0 in the file
    unlisted : by view, the list that does not name all of its vectors, how many of them, and the first
    resumed : whether its statistics were taken from the work folder
    """

    path: str
    vectors: int
    bad_rows: int = 0
    named_rows: tuple[int, ...] = ()
    unlisted: dict[str, Unlisted] = field(default_factory=dict)
    resumed: bool = False


@dataclass(frozen=True)
class BadShard:
    """One shard that was left out."""

    path: str
    reason: str


@dataclass(frozen=True)
class Partial:
    """What some shards give together: `statistics` is None where none of them could be used."""

    statistics: SufficientStatistics | None
    shards: tuple[ShardReport, ...]
    bad_shards: tuple[BadShard, ...]
    ids: tuple[Identities, ...] = ()


@dataclass(frozen=True)
class Gathered:
    """Statistics of many shards, and what was left out of them."""

    statistics: SufficientStatistics
    shards: tuple[ShardReport, ...]
    bad_shards: tuple[BadShard, ...] = ()

    @property
    def bad_rows(self) -> int:
        """How many vectors were left out of the shards that were read."""
        return sum(shard.bad_rows for shard in self.shards)

    def describe(self) -> dict[str, Any]:
        """What went in and what did not, in plain values."""
        return {
            "vectors": self.statistics.n,
            "shards": len(self.shards),
            "bad rows": {s.path: {"count": s.bad_rows, "first": list(s.named_rows)} for s in self.shards if s.bad_rows},
            "bad shards": {shard.path: shard.reason for shard in self.bad_shards},
        }


def shard_result(plan: Plan, piece: Piece) -> Partial:
    """One shard, read or taken from the work folder."""
    from .finished import Finished

    finished = Finished(plan, piece)
    if (done := finished.load()) is not None:
        return done
    try:
        statistics, report, files, ids = read_shard(plan, piece)
    except BAD as error:
        if plan.on_bad_shard == "raise":
            raise
        return Partial(None, (), (BadShard(str(piece), str(error)),))
    result = Partial(statistics, (report,), (), ids)
    finished.save(result, files)
    return result


def read_shard(
    plan: Plan, piece: Piece
) -> tuple[SufficientStatistics | None, ShardReport, tuple[str, ...], tuple[Identities, ...]]:
    """Statistics of a shard about the common origin, the files that were read besides it, and its ids if they count."""
    assert plan.origin is not None
    path = piece.path
    reader = open_vectors(path, plan.vectors, plan.ids)
    labels = Labels(path, reader, base_columns(plan.views), dict(plan.labels), plan.missing, piece.start)
    sums = Accumulator(plan.views, plan.origin, plan.second_moment)
    rows, bad = piece.start, 0
    named: list[int] = []
    numbers: list[NDArray[np.uint64]] = []
    batches = reader.batches(plan.batch_bytes, labels.columns, labels.ids, piece.rows)
    try:
        piece.check(reader)
        with one_thread_each():
            for batch, codes in ahead(_labelled(batches, labels, piece.start)):
                n, width = batch.X.shape
                if width not in (0, len(plan.origin)):
                    raise DataError(
                        f"vectors of width {width}; those of the first shard, {plan.first}, have {len(plan.origin)}"
                    )
                if labels.ids and reader.has_ids and batch.ids is not None:
                    numbers.append(numbers_of(checked_names(path, batch.ids, rows)))
                out = sums.add(batch.X, codes) if batch.X.size else np.arange(n)
                bad += len(out)
                named += (rows + out[: NAMED_ROWS - len(named)]).tolist()
                rows += n
                del batch, codes  # before the next is made
        labels.finish(rows, piece.last)
        if rows == piece.start:
            raise FileFormatError("the file holds no vectors")
        ids = (Identities(piece, np.concatenate(numbers)),) if numbers else ()
        for own in ids:
            if len(np.unique(own.numbers)) < len(own.numbers):
                check_once(path, np.array(names_of(piece, plan.vectors, plan.ids)), piece.start)
    except (DataError, LabelError, FileFormatError) as error:
        raise error if path in str(error) else type(error)(f"{path}: {error}") from error
    if bad and plan.on_bad_rows == "raise":
        which = ", ".join(map(str, named)) + (", ..." if bad > len(named) else "")
        raise DataError(
            f"{piece}: {bad} of {rows - piece.start} vectors hold NaN or infinity: row {which}, counted from 0. "
            "Repair them, or leave them out with on_bad_rows='skip'"
        )
    statistics = sums.result() if sums.n else None
    files = (*reader.files, *labels.files)
    report = ShardReport(str(piece), rows - piece.start - bad, bad, tuple(named), labels.unlisted)
    return statistics, report, files, ids


def _labelled(batches: Iterator[Batch], labels: Labels, start: int) -> Iterator[tuple[Batch, dict[str, LabelCodes]]]:
    for batch in batches:
        yield batch, labels.codes(batch, start)
        start += len(batch.X)


def ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items; while one is used, a second thread makes the next."""
    with ThreadPoolExecutor(1) as pool:
        end: Any = object()
        following = pool.submit(next, items, end)
        while (item := following.result()) is not end:
            following = pool.submit(next, items, end)
            yield item


def combine(parts: Sequence[Partial]) -> Partial:
    """Results of several shards as one, in their order."""
    usable = [part for part in parts if part.statistics is not None]
    names = [part.shards[0].path for part in usable]
    statistics = merge([s for part in usable if (s := part.statistics) is not None], names) if usable else None
    return Partial(
        statistics,
        tuple(shard for part in parts for shard in part.shards),
        tuple(shard for part in parts for shard in part.bad_shards),
        tuple(shard for part in parts for shard in part.ids),
    )


def taken_up(result: Partial) -> Partial:
    """The same result, marked as one of an earlier run."""
    return replace(result, shards=tuple(replace(shard, resumed=True) for shard in result.shards))
