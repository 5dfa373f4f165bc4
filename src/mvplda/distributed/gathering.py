"""The statistics of one shard and of all, and shards that are done, on disk."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from .._progress import Progress
from .._typing import Json, PathLike, Setting
from ..backend import one_blas_thread
from ..exceptions import DataError, FileFormatError, LabelError, MvpldaWarning, ParameterError
from ..io.files import BATCH_BYTES, Batch, OnDisk, is_stream, unlabelled
from ..io.kaldi import is_kaldi, parse_name
from ..io.vectors import checked_names, open_vectors
from ..labels import base_columns, check_view_names
from ..statistics import Accumulator, SufficientStatistics, merge
from ..statistics.accumulator import GrowingClasses, LabelCodes, SecondMoment
from ..statistics.record import load_with_sources, save_statistics
from .engines import Tree, ordered_map
from .shards import Ids, Labels, Piece, Unlisted, check_ids, cut, numbers_of

T = TypeVar("T")
OnError = Literal["raise", "skip"]
NAMED_ROWS = 10
BAD = (FileFormatError, DataError, LabelError, OSError)
NOTHING = cast(SufficientStatistics, None)
"""The statistics of a shard without any vector that can be used; `gather` never gives it."""


@dataclass(frozen=True)
class ShardJob:
    """What is done with every shard.

    views : the views, interactions included (default: every column of `labels`)
    labels : per label column a column of the table, or a file (see `mvplda.distributed.shards`)
    vectors, ids : columns of tables; default: by their usual names
    second_moment : ``"full"`` for any noise, ``"diagonal"`` is enough for diagonal noise
    missing : a value that stands for "no label", besides None, NaN and null
    on_error : ``"raise"`` stops; ``"skip"`` leaves out vectors that hold NaN or infinity, and shards that cannot be
        used, and lists them
    batch_bytes : of vectors; two batches are held per worker
    work_dir : folder where finished shards are kept, so that a run can be continued
    """

    views: tuple[str, ...]
    labels: tuple[tuple[str, str], ...] = ()
    vectors: str | None = None
    ids: str | None = None
    second_moment: SecondMoment = "full"
    missing: object = None
    on_error: OnError = "raise"
    batch_bytes: int = BATCH_BYTES
    work_dir: PathLike | None = None

    def __post_init__(self) -> None:
        check_view_names(self.views)
        if self.on_error not in ("raise", "skip"):
            raise ParameterError(f"on_error is 'raise' or 'skip'; got {self.on_error!r}")

    @property
    def skips(self) -> bool:
        return self.on_error == "skip"


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
class Gathered:
    """Statistics of some shards, and what was left out of them.

    ids : of shards whose vectors have ids, a number for each of these
    """

    statistics: SufficientStatistics
    shards: tuple[ShardReport, ...]
    bad_shards: tuple[BadShard, ...] = ()
    ids: tuple[Ids, ...] = ()

    @property
    def bad_rows(self) -> int:
        """How many vectors were left out of the shards that were read."""
        return sum(shard.bad_rows for shard in self.shards)

    def describe(self) -> Json:
        """What went in and what did not, in plain values."""
        bad = [shard for shard in self.shards if shard.bad_rows]
        return {
            "vectors": self.statistics.n,
            "shards": len(self.shards),
            "bad rows": {s.path: {"count": s.bad_rows, "first": list(s.named_rows)} for s in bad},
            "bad shards": {shard.path: shard.reason for shard in self.bad_shards},
        }


def gather(
    paths: PathLike | Sequence[PathLike],
    labels: Mapping[str, PathLike] | None = None,
    views: Sequence[str] | None = None,
    *,
    workers: int = 1,
    scheduler: str | None = None,
    rows_per_shard: int | None = None,
    verbose: int = 0,
    **settings: Setting,
) -> Gathered:
    """Statistics of shards on disk, and a report of what was left out.

    Every shard is read in batches and summed on its own; the sums are then added
    in a tree whose shape depends on the number of shards alone. So the numbers are
    the same, bit for bit, for any number of workers and for a run that was killed and continued.

    Parameters
    ----------
    paths : the shards, each of a format that `mvplda.io.read_vectors` reads; streams are copied first
    labels, views, settings : what is done with every shard; the fields of `ShardJob`
    workers : processes; 1 works here
    scheduler : address of a Dask scheduler, whose workers do the work instead
    rows_per_shard : files with more vectors are cut into shards of as many (.npy), or of as many
        whole row groups (.parquet) or record batches (.arrow) as fit; other files are not cut
    verbose : 1 shows progress on standard error
    """
    if views is None and not labels:
        raise ParameterError("name the views, or where their labels are found: views=, labels=")
    if views is not None and (isinstance(views, str) or not len(views)):
        raise ParameterError(f"views is a list of names; got {views!r}")
    if rows_per_shard is not None and rows_per_shard < 1:
        raise ParameterError(f"rows_per_shard is at least 1; got {rows_per_shard}")
    copies: list[OnDisk] = []  # which live as long as this function
    shards = [_on_disk(path, copies) for path in _listed(paths)]
    sources = {name: _on_disk(os.fspath(s), copies) for name, s in (labels or {}).items()}
    job = ShardJob(tuple(views or sources), tuple(sources.items()), **settings)
    if job.work_dir is not None:
        Path(job.work_dir).mkdir(parents=True, exist_ok=True)
    pieces = cut(shards, rows_per_shard, job.vectors, job.ids)
    progress = Progress("shards", len(pieces)) if verbose else None
    tree = Tree(combine)
    work = partial(shard_result, job)
    read = 0
    for done, part in enumerate(ordered_map(work, pieces, workers=workers, scheduler=scheduler)):
        tree.add(part)
        read += sum(shard.vectors for shard in part.shards)
        if progress is not None:
            progress.step(done + 1, f"{read} vectors")
    result = tree.finish()
    if result.statistics is NOTHING:
        reason = result.bad_shards[0].reason if result.bad_shards else "no vector is finite"
        raise DataError(f"none of the {len(pieces)} shard(s) could be used: {reason}")
    # Files that share a list of labels share its ids; others may have the same ids for different vectors.
    together = any(Path(source).is_file() for source in sources.values())
    together = together and not any("{" in source for source in sources.values())
    check_ids(result.ids, across_files=together)
    _warn_of(result)
    return result


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


def _file_of(path: str) -> tuple[str, str]:
    """The file behind a name, and what stands before it ("scp:" of Kaldi's names)."""
    if not is_kaldi(path):
        return path, ""
    ark, scp = parse_name(path)
    return str(scp or ark), "scp:" if scp else "ark:"


def _on_disk(path: str, copies: list[OnDisk]) -> str:
    """A name under which a stream can be read more than once, and by other processes; files keep their own."""
    file, prefix = _file_of(path)
    if not is_stream(file):
        return path
    copies.append(OnDisk(file))
    return prefix + copies[-1].file


def _warn_of(result: Gathered) -> None:
    """Warn of what was left out."""
    read = result.shards
    for view in dict.fromkeys(view for shard in read for view in shard.unlisted):
        lists = [shard.unlisted[view] for shard in read if view in shard.unlisted]
        vectors = sum(shard.vectors + shard.bad_rows for shard in read)
        count = sum(own.vectors for own in lists)
        warnings.warn(unlabelled(view, lists[0].file, count, vectors, lists[0].first), stacklevel=3)
    messages = []
    if result.bad_shards:
        total = len(result.bad_shards) + len(read)
        reason = result.bad_shards[0].reason
        messages.append(
            f"{len(result.bad_shards)} of {total} shards were left out; the first: {reason}"
        )
    if result.bad_rows:
        first = next(shard for shard in read if shard.bad_rows)
        messages.append(
            f"{result.bad_rows} vectors that hold NaN or infinity were left out; the first is row "
            f"{first.named_rows[0]} of {first.path}"
        )
    for message in messages:
        warnings.warn(message, MvpldaWarning, stacklevel=3)


def combine(parts: Sequence[Gathered]) -> Gathered:
    """Results of several shards as one, in their order."""
    usable = {
        part.shards[0].path: part.statistics for part in parts if part.statistics is not NOTHING
    }
    return Gathered(
        merge(list(usable.values()), list(usable)) if usable else NOTHING,
        tuple(shard for part in parts for shard in part.shards),
        tuple(shard for part in parts for shard in part.bad_shards),
        tuple(ids for part in parts for ids in part.ids),
    )


# The statistics of one shard: the function that every worker runs.


def shard_result(job: ShardJob, piece: Piece) -> Gathered:
    """One shard, read or taken from the work folder."""
    finished = _finished_file(job, piece)
    done = _load(finished, job, piece)
    if done is not None:
        return done
    try:
        result, files = read_shard(job, piece)
    except BAD as error:
        if not job.skips:
            raise
        return Gathered(NOTHING, (), (BadShard(str(piece), str(error)),))
    if finished is not None and result.statistics is not NOTHING:
        sources = {
            "report": asdict(result.shards[0]),
            "files": {file: _identity(file) for file in files},
            "ids": [numbers.tolist() for _, numbers in result.ids],
        }
        save_statistics(result.statistics, finished, sources)
    return result


def read_shard(job: ShardJob, piece: Piece) -> tuple[Gathered, tuple[str, ...]]:
    """Statistics of a shard, and the files that were read."""
    path = piece.path
    reader = open_vectors(path, job.vectors, job.ids)
    labels = Labels(path, reader, base_columns(job.views), dict(job.labels), job.missing)
    classes = GrowingClasses(job.views)
    sums: Accumulator | None = None
    rows = piece.start
    bad = 0
    named: list[int] = []
    numbers: list[NDArray[np.uint64]] = []
    # the only column of names is taken for ids; where it holds the labels of a view, the vectors have none
    has_ids = reader.has_ids and (labels.ids or reader.id_column not in labels.columns)
    batches = reader.batches(job.batch_bytes, labels.columns, labels.ids or has_ids, piece.rows)
    try:
        piece.check(reader)
        # Workers are the parallelism, and sums do not depend on how many threads BLAS had.
        with one_blas_thread():
            for batch, codes in prefetch(_labelled(batches, labels, piece.start)):
                n, width = batch.X.shape
                if has_ids and batch.ids is not None:
                    numbers.append(numbers_of(checked_names(path, batch.ids, rows)))
                left_out = np.arange(n)
                if width:  # none where every vector of the batch is null
                    sums = sums or Accumulator(width, job.views, second_moment=job.second_moment)
                    left_out = sums.add(batch.X, classes.number(codes), on_error="skip")
                bad += len(left_out)
                named += (rows + left_out[: NAMED_ROWS - len(named)]).tolist()
                rows += n
                del batch, codes  # before the next is made
        labels.finish(rows, piece.last)
        if rows == piece.start:
            raise FileFormatError("the file holds no vectors")
        ids = ((piece, np.concatenate(numbers)),) if numbers else ()
        check_ids(ids)
    except (DataError, LabelError, FileFormatError) as error:
        raise error if path in str(error) else type(error)(f"{path}: {error}") from error
    if bad and not job.skips:
        which = ", ".join(map(str, named)) + ", ..." * (bad > len(named))
        raise DataError(
            f"{piece}: {bad} of {rows - piece.start} vectors hold NaN or infinity: row {which}, counted from 0. "
            "Repair them, or leave them out with on_error='skip'"
        )
    statistics = NOTHING
    if sums is not None and sums.n:
        statistics = SufficientStatistics.of(sums, *classes.sorted())
    report = ShardReport(str(piece), rows - piece.start - bad, bad, tuple(named), labels.unlisted)
    files = (_file_of(path)[0], *reader.files, *labels.files)
    return Gathered(statistics, (report,), (), ids), files


def _labelled(
    batches: Iterator[Batch], labels: Labels, start: int
) -> Iterator[tuple[Batch, dict[str, LabelCodes]]]:
    for batch in batches:
        yield batch, labels.codes(batch, start)
        start += len(batch.X)


def prefetch(items: Iterator[T]) -> Iterator[T]:
    """The same items; while one is used, a second thread makes the next."""
    with ThreadPoolExecutor(1) as pool:
        end = cast(T, object())
        following = pool.submit(next, items, end)
        while (item := following.result()) is not end:
            following = pool.submit(next, items, end)
            yield item


# Finished shards in a work folder.
#
# The name of a file holds the shard's path and rows, and the settings; inside are size and time of change
# of every file that was read. A run that was killed, at any point, finds the shards that were done; a shard that
# changed since is read again.


def _finished_file(job: ShardJob, piece: Piece) -> Path | None:
    if job.work_dir is None:
        return None
    settings = asdict(replace(job, work_dir=None, on_error="raise"))
    parts = [os.path.abspath(_file_of(piece.path)[0]), piece.rows, settings]
    digest = hashlib.sha256(json.dumps(parts, default=repr, sort_keys=True).encode())
    return Path(job.work_dir) / f"{digest.hexdigest()[:32]}.safetensors"


def _identity(path: str) -> list[int | None]:
    """What tells a version of a file from others: its size and time of change."""
    try:
        state = os.stat(path)
    except OSError:
        return [None, None]
    return [state.st_size, state.st_mtime_ns]


def _load(file: Path | None, job: ShardJob, piece: Piece) -> Gathered | None:
    """What an earlier run left; None where there is nothing, or nothing that can be used."""
    if file is None or not file.is_file():
        return None
    try:
        statistics, sources = load_with_sources(file)
        report = sources["report"]
        unlisted = {view: Unlisted(*found) for view, found in report["unlisted"].items()}
        rows = tuple(report["named_rows"])
        ids = tuple((piece, np.array(own, dtype=np.uint64)) for own in sources["ids"])
        changed = any(_identity(name) != found for name, found in sources["files"].items())
        if changed or (report["bad_rows"] and not job.skips):
            return None
        shard = ShardReport(**{**report, "unlisted": unlisted, "named_rows": rows, "resumed": True})
    except (FileFormatError, KeyError, TypeError, ValueError, AttributeError):
        return None
    return Gathered(statistics, (shard,), (), ids)
