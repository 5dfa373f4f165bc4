"""The statistics of one shard and of all, and shards that are done, on disk."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from .._progress import Progress
from .._typing import Array, PathLike
from ..exceptions import DataError, FileFormatError, LabelError, MvpldaWarning, ParameterError
from ..io.files import BATCH_BYTES, Batch, OnDisk, is_stream, unlabelled
from ..io.kaldi import is_kaldi, parse_name
from ..io.vectors import check_once, checked_names, open_vectors
from ..labels import base_columns, check_view_names
from ..statistics import Accumulator, GrowingClasses, LabelCodes, SufficientStatistics, merge
from ..statistics.accumulator import SecondMoment, common_origin
from ..statistics.record import load_with_sources, save_statistics
from .engines import Engine, map_reduce, one_thread_each
from .shards import (
    Identities,
    Labels,
    Piece,
    Unlisted,
    check_shards,
    cut,
    label_file,
    names_of,
    numbers_of,
    some_twice,
)

T = TypeVar("T")
OnError = Literal["raise", "skip-vectors", "skip-shards", "skip"]
NAMED_ROWS = 10
BAD = (FileFormatError, DataError, LabelError, OSError)


@dataclass(frozen=True)
class ShardJob:
    """What is done with every shard.

    views : the views, interactions included (default: every column of `labels`)
    labels : per label column a column of the table, or a file (see `mvplda.distributed.shards`)
    vectors, ids : columns of tables; default: by their usual names
    second_moment : ``"full"`` for any noise, ``"diagonal"`` is enough for diagonal noise
    missing : a value that stands for "no label", besides None, NaN and null
    on_error : ``"raise"`` stops; ``"skip-vectors"`` leaves out vectors that hold NaN or infinity, and counts them;
        ``"skip-shards"`` leaves out shards that cannot be used, and lists them; ``"skip"`` does both
    batch_bytes : of vectors; two batches are held a worker
    work_dir : folder where finished shards are kept, so that a run can be continued
    origin : (D,) point amid the data; default: the mean of the first batch of the first shard
    """

    views: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    vectors: str | None = None
    ids: str | None = None
    second_moment: SecondMoment = "full"
    missing: Any = None
    on_error: OnError = "raise"
    batch_bytes: int = BATCH_BYTES
    work_dir: str | None = None
    origin: Array | None = None
    origin_of: str = "the given origin"

    def __post_init__(self) -> None:
        check_view_names(self.views)
        if self.second_moment not in ("full", "diagonal"):
            raise ParameterError(
                f"second_moment is 'full' or 'diagonal'; got {self.second_moment!r}"
            )
        if self.on_error not in get_args(OnError):
            raise ParameterError(
                f"on_error is one of {', '.join(get_args(OnError))}; got {self.on_error!r}"
            )
        if self.origin is not None:
            object.__setattr__(self, "origin", np.asarray(self.origin, dtype=np.float64))
        if self.work_dir is not None:
            object.__setattr__(self, "work_dir", os.path.abspath(self.work_dir))

    def skips(self, what: str) -> bool:
        """Whether vectors, or shards, that cannot be used are left out."""
        return self.on_error in ("skip", f"skip-{what}")


def gather(
    paths: PathLike | Sequence[PathLike],
    labels: Mapping[str, PathLike] | None = None,
    views: Sequence[str] | None = None,
    *,
    engine: Engine = "serial",
    workers: int | None = None,
    scheduler: str | None = None,
    retries: int = 2,
    rows_per_shard: int | None = None,
    verbose: int = 0,
    **settings: Any,
) -> Gathered:
    """Statistics of shards on disk, and a report of what was left out.

    Every shard is read in batches and summed on its own about one common origin; the sums are
    then added in a tree whose shape depends on the number of shards alone. So the numbers are
    the same, bit for bit, for every engine and for a run that was killed and continued.

    Parameters
    ----------
    paths : the shards, each of a format that `mvplda.io.read_vectors` reads; streams are copied first
    labels, views, settings : what is done with every shard; the fields of `ShardJob`
    engine : ``"serial"``, ``"threads"``, ``"processes"`` or ``"dask"``
    workers : of the engine; default: one a core
    scheduler : address of a Dask scheduler; default: a cluster of processes on this machine
    retries : how often a shard is tried again when a worker is lost
    rows_per_shard : files with more vectors are cut into shards of as many (.npy), or of as many
        whole row groups (.parquet) as fit; other files are not cut
    verbose : 1 shows progress on standard error
    """
    shards = _listed(paths)
    if views is None and not labels:
        raise ParameterError("name the views, or where their labels are found: views=, labels=")
    if views is not None and (isinstance(views, str) or not len(views)):
        raise ParameterError(f"views is a list of names; got {views!r}")
    if rows_per_shard is not None and rows_per_shard < 1:
        raise ParameterError(f"rows_per_shard is at least 1; got {rows_per_shard}")
    sources = {name: os.fspath(place) for name, place in (labels or {}).items()}
    job = ShardJob(tuple(views or sources), tuple(sources.items()), **settings)
    copies: list[OnDisk] = []  # which live as long as this function
    shards = [_kept(path, copies) for path in shards]
    kept = tuple((name, _kept(place, copies)) for name, place in sources.items())
    job = replace(job, labels=kept)
    if job.work_dir is not None:
        Path(job.work_dir).mkdir(parents=True, exist_ok=True)
    pieces = cut(shards, rows_per_shard, job.vectors, job.ids)
    if job.origin is None:
        job = _with_origin(job, pieces)
    progress = Progress("shards", len(pieces)) if verbose else None
    read: list[int] = []

    def done(part: Partial) -> None:
        read.append(sum(shard.vectors for shard in part.shards))
        if progress is not None:
            progress.step(len(read), f"{sum(read)} vectors")

    work = partial(shard_result, job)
    result = map_reduce(
        work,
        pieces,
        combine,
        done=done,
        engine=engine,
        workers=workers,
        scheduler=scheduler,
        retries=retries,
    )
    _check_ids(job, result)
    return _concluded(result)


def _listed(paths: PathLike | Sequence[PathLike]) -> list[str]:
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    shards = [os.fspath(path) for path in paths]
    if not shards:
        raise ParameterError("there are no shards: give at least one file")
    again = [path for path, count in Counter(shards).items() if count > 1]
    if again:
        raise ParameterError(
            f"{len(again)} shard(s) are named twice and would be counted twice: {min(again)}"
        )
    return shards


def _kept(path: str, copies: list[OnDisk]) -> str:
    """A name under which a stream can be read more than once, and by other processes; files keep their own."""
    target = parse_name(path) if is_kaldi(path) else None
    name = path if target is None else str(target.scp or target.ark)
    if not is_stream(name):
        return path
    copies.append(OnDisk(name))
    return (
        copies[-1].file if target is None else f"{'scp' if target.scp else 'ark'}:{copies[-1].file}"
    )


def _with_origin(job: ShardJob, shards: Sequence[Piece]) -> ShardJob:
    """The job with the mean of the first batch that can be read as the origin of all."""
    reasons: list[str] = []
    for piece in shards:
        try:
            reader = open_vectors(piece.path, job.vectors, job.ids)
            batches = reader.batches(job.batch_bytes, [], False, piece.rows)
            batch = next((batch for batch in batches if batch.X.size), None)
            batches.close()  # type: ignore[attr-defined]
        except BAD as error:
            if not job.skips("shards"):
                raise
            reasons.append(str(error))
            continue
        if batch is not None:
            return replace(job, origin=common_origin(batch.X), origin_of=piece.path)
        reasons.append(f"{piece.path}: the file holds no vectors")
        if not job.skips("shards"):
            break
    raise DataError(f"no shard could be used: {reasons[0]}")


def _check_ids(job: ShardJob, result: Partial) -> None:
    """No id stands twice: in no file, and in no two files where one list has the labels of both."""
    shards: dict[str, list[Identities]] = {}
    shared = any(Path(source).is_file() for _, source in job.labels)
    own = not shared or any("{" in source for _, source in job.labels)
    for identities in result.ids:
        shards.setdefault(identities.piece.path if own else "", []).append(identities)
    for together in shards.values():
        check_shards(together, job.vectors, job.ids)


def _concluded(result: Partial) -> Gathered:
    bad: tuple[BadShard, ...] = result.bad_shards
    if result.statistics is None:
        reason = bad[0].reason if bad else "no vector is finite"
        raise DataError(
            f"none of the {len(bad) + len(result.shards)} shard(s) could be used: {reason}"
        )
    gathered = Gathered(result.statistics, result.shards, bad)
    for view in dict.fromkeys(view for shard in result.shards for view in shard.unlisted):
        lists = [shard.unlisted[view] for shard in result.shards if view in shard.unlisted]
        total = sum(shard.vectors + shard.bad_rows for shard in result.shards)
        count = sum(found.vectors for found in lists)
        warnings.warn(unlabelled(view, lists[0].file, count, total, lists[0].first), stacklevel=3)
    if bad:
        warnings.warn(
            f"{len(bad)} of {len(bad) + len(result.shards)} shards were left out; the first: {bad[0].reason}",
            MvpldaWarning,
            stacklevel=3,
        )
    if gathered.bad_rows:
        first = next(shard for shard in result.shards if shard.bad_rows)
        warnings.warn(
            f"{gathered.bad_rows} vectors that hold NaN or infinity were left out; the first is row "
            f"{first.named_rows[0]} of {first.path}",
            MvpldaWarning,
            stacklevel=3,
        )
    return gathered


# The statistics of one shard: the function that every engine runs, and the one that puts results together.


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
            "bad rows": {
                s.path: {"count": s.bad_rows, "first": list(s.named_rows)}
                for s in self.shards
                if s.bad_rows
            },
            "bad shards": {shard.path: shard.reason for shard in self.bad_shards},
        }


def shard_result(job: ShardJob, piece: Piece) -> Partial:
    """One shard, read or taken from the work folder."""

    finished = Finished(job, piece)
    if (done := finished.load()) is not None:
        return done
    try:
        statistics, report, files, ids = read_shard(job, piece)
    except BAD as error:
        if not job.skips("shards"):
            raise
        return Partial(None, (), (BadShard(str(piece), str(error)),))
    result = Partial(statistics, (report,), (), ids)
    finished.save(result, files)
    return result


def read_shard(
    job: ShardJob, piece: Piece
) -> tuple[SufficientStatistics | None, ShardReport, tuple[str, ...], tuple[Identities, ...]]:
    """Statistics of a shard about the common origin, the files that were read besides it, and its ids if they count."""
    assert job.origin is not None
    path = piece.path
    reader = open_vectors(path, job.vectors, job.ids)
    labels = Labels(path, reader, base_columns(job.views), dict(job.labels), job.missing)
    classes = GrowingClasses(job.views)
    sums = Accumulator(
        len(job.origin), job.views, second_moment=job.second_moment, origin=job.origin
    )
    rows, bad = piece.start, 0
    named: list[int] = []
    numbers: list[NDArray[np.uint64]] = []
    # the only column of names is taken for ids; where it holds the labels of a view, the vectors have none
    named_once = reader.has_ids and (labels.ids or reader.id_column not in labels.columns)
    batches = reader.batches(job.batch_bytes, labels.columns, labels.ids or named_once, piece.rows)
    try:
        piece.check(reader)
        with one_thread_each():
            for batch, codes in prefetch(_labelled(batches, labels, piece.start)):
                n, width = batch.X.shape
                if width not in (0, len(job.origin)):
                    raise DataError(
                        f"vectors of width {width}; those of the first shard, {job.origin_of}, have {len(job.origin)}"
                    )
                if named_once and batch.ids is not None:
                    numbers.append(numbers_of(checked_names(path, batch.ids, rows)))
                out = (
                    sums.add(batch.X, classes.number(codes), on_error="skip")
                    if batch.X.size
                    else np.arange(n)
                )
                bad += len(out)
                named += (rows + out[: NAMED_ROWS - len(named)]).tolist()
                rows += n
                del batch, codes  # before the next is made
        labels.finish(rows, piece.last)
        if rows == piece.start:
            raise FileFormatError("the file holds no vectors")
        ids = (Identities(piece, np.concatenate(numbers)),) if numbers else ()
        for own in ids:
            if some_twice(own.numbers):
                check_once(path, np.array(names_of(piece, job.vectors, job.ids)), piece.start)
    except (DataError, LabelError, FileFormatError) as error:
        raise error if path in str(error) else type(error)(f"{path}: {error}") from error
    if bad and not job.skips("vectors"):
        which = ", ".join(map(str, named)) + (", ..." if bad > len(named) else "")
        raise DataError(
            f"{piece}: {bad} of {rows - piece.start} vectors hold NaN or infinity: row {which}, counted from 0. "
            "Repair them, or leave them out with on_error='skip-vectors'"
        )
    statistics = SufficientStatistics.of(sums, *classes.sorted()) if sums.n else None
    files = (*reader.files, *labels.files)
    report = ShardReport(str(piece), rows - piece.start - bad, bad, tuple(named), labels.unlisted)
    return statistics, report, files, ids


def _labelled(
    batches: Iterator[Batch], labels: Labels, start: int
) -> Iterator[tuple[Batch, dict[str, LabelCodes]]]:
    for batch in batches:
        yield batch, labels.codes(batch, start)
        start += len(batch.X)


def prefetch(items: Iterator[T]) -> Iterator[T]:
    """The same items; while one is used, a second thread makes the next."""
    with ThreadPoolExecutor(1) as pool:
        end: Any = object()
        following = pool.submit(next, items, end)
        while (item := following.result()) is not end:
            following = pool.submit(next, items, end)
            yield item


def combine(parts: Sequence[Partial]) -> Partial:
    """Results of several shards as one, in their order."""
    usable: list[SufficientStatistics] = []
    names: list[str] = []
    for part in parts:
        if part.statistics is not None:
            usable.append(part.statistics)
            names.append(part.shards[0].path)
    statistics = merge(usable, names) if usable else None
    return Partial(
        statistics,
        tuple(shard for part in parts for shard in part.shards),
        tuple(shard for part in parts for shard in part.bad_shards),
        tuple(shard for part in parts for shard in part.ids),
    )


# Finished shards in a work folder.
#
# The name of a file holds everything that its numbers depend on: the shard's path, size, time
# of change and rows, its lists of labels, the settings and the origin. A run that was killed, at any point,
# finds the shards that were done; a shard that changed since has another name and is read again.


class Finished:
    """The place of one shard's statistics in the work folder, if there is one."""

    def __init__(self, job: ShardJob, piece: Piece) -> None:
        self.name, self.piece, self.job = str(piece), piece, job
        self.file = (
            None if job.work_dir is None else Path(job.work_dir) / f"{_key(job, piece)}.safetensors"
        )

    def load(self) -> Partial | None:
        """What an earlier run left; None where there is nothing, or nothing that can be used."""
        if self.file is None or not self.file.is_file():
            return None
        try:
            statistics, sources = load_with_sources(self.file)
            if any(identity(file) != found for file, found in sources["files"].items()):
                return None
            report = sources["report"]
            ids = tuple(
                Identities(self.piece, np.frombuffer(b64decode(text), "<u8"))
                for text in sources["ids"]
            )
            unlisted = {view: Unlisted(*found) for view, found in report["unlisted"].items()}
            rows = tuple(report["named_rows"])
            shard = ShardReport(
                self.name, report["vectors"], report["bad_rows"], rows, unlisted, resumed=True
            )
        except (FileFormatError, KeyError, TypeError, ValueError, AttributeError):
            return None
        if shard.bad_rows and not self.job.skips("vectors"):
            return None
        return Partial(statistics, (shard,), (), ids)

    def save(self, result: Partial, files: tuple[str, ...]) -> None:
        if self.file is None or result.statistics is None:
            return
        sources = {
            "report": asdict(result.shards[0]),
            "files": {file: identity(file) for file in files},
            "ids": [b64encode(ids.numbers.astype("<u8").tobytes()).decode() for ids in result.ids],
        }
        save_statistics(result.statistics, self.file, sources)


def identity(path: str) -> list[Any]:
    """What tells a version of a file from others: its place, size and time of change."""
    try:
        state = os.stat(path)
    except OSError:
        return [os.path.abspath(path), None, None]
    return [os.path.abspath(path), state.st_size, state.st_mtime_ns]


def _key(job: ShardJob, piece: Piece) -> str:
    path = piece.path
    target = parse_name(path) if is_kaldi(path) else None
    shard = path if target is None else str(target.scp or target.ark)
    sources = dict(job.labels)
    lists = [label_file(path, name, sources.get(name)) for name in base_columns(job.views)]
    settings = asdict(replace(job, origin=None, work_dir=None, origin_of="", on_error="raise"))
    digest = hashlib.sha256()
    parts = [
        identity(shard),
        piece.rows,
        [None if f is None else identity(str(f)) for f in lists],
        settings,
    ]
    digest.update(json.dumps(parts, default=repr, sort_keys=True).encode())
    digest.update(b"" if job.origin is None else job.origin.tobytes())
    return digest.hexdigest()[:32]
