"""The statistics of one shard and of all, where labels come from, and shards that are done, on disk."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from .._optional import need
from .._progress import Progress
from .._typing import Block as Column
from .._typing import Json, Names, PathLike, Setting
from ..backend import one_blas_thread
from ..exceptions import DataError, FileFormatError, LabelError, MvpldaWarning, ParameterError
from ..io.files import Batch, Reader, read_map, unlabelled
from ..io.vectors import checked_names, main_file, open_vectors
from ..labels import base_columns, check_view_names
from ..statistics import Accumulator, SufficientStatistics, merge
from ..statistics.accumulator import SecondMoment
from ..statistics.classes import GrowingClasses, LabelCodes, label_codes
from ..statistics.record import load_with_sources, save_statistics
from .engines import Tree, ordered_map

OnError = Literal["raise", "skip"]
BATCH_BYTES = 16 * 2**20
NAMED_ROWS = 10
CACHED_LISTS = 8
UNLISTED = -2
BAD = (FileFormatError, DataError, LabelError, OSError)
NOTHING = cast(SufficientStatistics, None)
"""The statistics of a shard without any vector that can be used; `gather` never gives it."""


@dataclass(frozen=True)
class ShardJob:
    """What is done with every shard.

    views : the views, interactions included (default: every column of `labels`)
    labels : per label column a column of the table, or a file; in its name ``{stem}`` and ``{folder}`` are the shard's
    second_moment : ``"full"`` for any noise, ``"diagonal"`` is enough for diagonal noise
    on_error : ``"raise"`` stops; ``"skip"`` leaves out vectors that hold NaN or infinity, and shards that cannot be
        used, and lists them
    batch_bytes : of vectors; one batch is held per worker
    work_dir : folder where finished shards are kept, so that a run can be continued
    """

    views: tuple[str, ...]
    labels: tuple[tuple[str, str], ...] = ()
    second_moment: SecondMoment = "full"
    on_error: OnError = "raise"
    batch_bytes: int = BATCH_BYTES
    work_dir: PathLike | None = None

    def __post_init__(self) -> None:
        check_view_names(self.views)
        if self.on_error not in ("raise", "skip"):
            raise ParameterError(f"on_error is 'raise' or 'skip'; got {self.on_error!r}")


class Unlisted(NamedTuple):
    """Vectors that a list of labels does not name."""

    file: str
    vectors: int
    first: str


@dataclass(frozen=True)
class ShardReport:
    """One shard that was read.

    path : the file
    vectors : how many were added
    bad_rows : how many were left out, because they are not finite
    named_rows : the first of those, counted from 0
    unlisted : by view, the list that does not name all of its vectors, how many of them, and the first
    resumed : whether its statistics were taken from the work folder
    """

    path: str
    vectors: int
    bad_rows: int = 0
    named_rows: tuple[int, ...] = ()
    unlisted: dict[str, Unlisted] = field(default_factory=dict)
    resumed: bool = False


class BadShard(NamedTuple):
    """One shard that was left out."""

    path: str
    reason: str


@dataclass(frozen=True)
class Gathered:
    """Statistics of some shards, and what was left out of them."""

    statistics: SufficientStatistics
    shards: tuple[ShardReport, ...]
    bad_shards: tuple[BadShard, ...] = ()

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
            "bad shards": dict(self.bad_shards),
        }


def gather(
    paths: PathLike | Sequence[PathLike],
    labels: Mapping[str, PathLike] | None = None,
    views: Sequence[str] | None = None,
    *,
    workers: int = 1,
    scheduler: str | None = None,
    verbose: int = 0,
    **settings: Setting,
) -> Gathered:
    """Statistics of shards on disk, and a report of what was left out.

    Every shard is read in batches and summed on its own; the sums are then added
    in a tree whose shape depends on the number of shards alone. So the numbers are
    the same, bit for bit, for any number of workers and for a run that was killed and continued.

    Parameters
    ----------
    paths : the shards, each of a format that `mvplda.io.read_vectors` reads
    labels, views, settings : what is done with every shard; the fields of `ShardJob`
    workers : processes; 1 works here
    scheduler : address of a Dask scheduler, whose workers do the work instead
    verbose : 1 shows progress on standard error
    """
    if views is None and not labels:
        raise ParameterError("name the views, or where their labels are found: views=, labels=")
    if views is not None and (isinstance(views, str) or not len(views)):
        raise ParameterError(f"views is a list of names; got {views!r}")
    shards = _listed(paths)
    sources = {name: os.fspath(source) for name, source in (labels or {}).items()}
    job = ShardJob(tuple(views or sources), tuple(sources.items()), **settings)
    if job.work_dir is not None:
        Path(job.work_dir).mkdir(parents=True, exist_ok=True)
    progress = Progress("shards", len(shards))
    tree = Tree(combine)
    work = partial(shard_result, job)
    read = 0
    for done, part in enumerate(ordered_map(work, shards, workers=workers, scheduler=scheduler)):
        tree.add(part)
        read += sum(shard.vectors for shard in part.shards)
        if verbose:
            progress.step(done + 1, f"{read} vectors")
    result = tree.finish()
    if result.statistics is NOTHING:
        reasons = [bad.reason for bad in result.bad_shards] or ["no vector is finite"]
        raise DataError(f"none of the {len(shards)} shard(s) could be used: {reasons[0]}")
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
    )


# The statistics of one shard: the function that every worker runs.


def shard_result(job: ShardJob, path: str) -> Gathered:
    """One shard, read or taken from the work folder."""
    finished = _finished_file(job, path)
    done = _load(finished, job)
    if done is not None:
        return done
    try:
        result, files = read_shard(job, path)
    except BAD as error:
        if job.on_error == "raise":
            raise
        return Gathered(NOTHING, (), (BadShard(path, str(error)),))
    if finished is not None and result.statistics is not NOTHING:
        sources = {
            "report": asdict(result.shards[0]),
            "files": {file: _identity(file) for file in files},
        }
        save_statistics(result.statistics, finished, sources)
    return result


def read_shard(job: ShardJob, path: str) -> tuple[Gathered, list[str]]:
    """Statistics of a shard, and the files that were read."""
    reader = open_vectors(path)
    sources = _label_sources(job, path, reader)
    columns = [source.place for source in sources.values() if type(source) is _Labels]
    # the only column of names is taken for ids; where it holds the labels of a view, the vectors have none
    has_ids = reader.has_ids and reader.id_column not in columns
    wants_ids = any(isinstance(source, _List) for source in sources.values())
    classes = GrowingClasses(job.views)
    sums: Accumulator | None = None
    rows = 0
    bad = 0
    named: list[int] = []
    hashes: list[NDArray[np.int64]] = []
    try:
        # Workers are the parallelism, and sums do not depend on how many threads BLAS had.
        with one_blas_thread():
            for batch in reader.batches(job.batch_bytes, columns, wants_ids or has_ids):
                n, width = batch.X.shape
                if has_ids and batch.ids is not None:
                    names = checked_names(path, batch.ids, rows).tolist()
                    hashes.append(np.fromiter(map(hash, names), np.int64, n))
                codes = {name: source.codes(batch) for name, source in sources.items()}
                sums = sums or Accumulator(width, job.views, second_moment=job.second_moment)
                finite = np.asarray(np.isfinite(batch.X).all(axis=1))
                left_out = np.flatnonzero(~finite)
                if len(left_out) < n:
                    numbers = classes.number({name: own[finite] for name, own in codes.items()})
                    sums.add(batch.X[finite] if len(left_out) else batch.X, numbers)
                bad += len(left_out)
                named += (rows + left_out[: NAMED_ROWS - len(named)]).tolist()
                rows += n
                del batch, codes  # before the next is made
        if not rows:
            raise FileFormatError("the file holds no vectors")
        for source in sources.values():
            source.finish(rows)
        _check_once(hashes)
    except (DataError, LabelError, FileFormatError) as error:
        raise error if path in str(error) else type(error)(f"{path}: {error}") from error
    if bad and job.on_error == "raise":
        which = ", ".join(map(str, named)) + ", ..." * (bad > len(named))
        raise DataError(
            f"{path}: {bad} of {rows} vectors hold NaN or infinity: row {which}, counted from 0. "
            "Repair them, or leave them out with on_error='skip'"
        )
    statistics = NOTHING
    if sums is not None and sums.n:
        statistics = SufficientStatistics.of(sums, *classes.sorted())
    unlisted = {name: source.unlisted for name, source in sources.items() if source.unlisted}
    report = ShardReport(path, rows - bad, bad, tuple(named), unlisted)
    lists = [source.place for source in sources.values() if type(source) is not _Labels]
    return Gathered(statistics, (report,)), [str(main_file(path)), *reader.files, *lists]


def _check_once(hashes: list[NDArray[np.int64]]) -> None:
    """An id that stands twice is an error that names both entries; eight bytes are held for each."""
    if not hashes:
        return
    every = np.concatenate(hashes)
    order = np.argsort(every, kind="stable")
    again = np.flatnonzero(every[order][1:] == every[order][:-1])
    if len(again):
        first, second = order[again[0] : again[0] + 2] + 1
        raise LabelError(
            f"an id stands twice and would be counted twice: entries {first} and {second}. "
            "Leave one of them out"
        )


# Where the labels of a shard come from.


class _Labels:
    """A column of the table, which the reader gives with every batch.

    place : the column, or the file
    unlisted : vectors that a list does not name
    """

    unlisted: Unlisted | None = None

    def __init__(self, path: str, name: str, place: str) -> None:
        self.path = path
        self.name = name
        self.place = place

    def codes(self, batch: Batch) -> LabelCodes:
        return column_codes(self.name, batch.columns[self.place])

    def finish(self, end: int) -> None:
        """Whether the labels fit, now that all vectors were read."""


class _List(_Labels):
    """Ids and their labels; an id that is not listed has no label."""

    def __init__(self, path: str, name: str, place: str) -> None:
        super().__init__(path, name, place)
        state = os.stat(place)
        self.names, self.numbers = _numbered(place, state.st_size, state.st_mtime_ns)

    def codes(self, batch: Batch) -> LabelCodes:
        if batch.ids is None:
            raise LabelError(f"{self.path} has no ids to look up in {self.place}")
        codes = np.array([self.numbers.get(name, UNLISTED) for name in batch.ids], dtype=np.int64)
        unlisted = np.flatnonzero(codes == UNLISTED)
        if len(unlisted):
            before = self.unlisted or Unlisted(self.place, 0, batch.ids[unlisted[0]])
            self.unlisted = before._replace(vectors=before.vectors + len(unlisted))
        return LabelCodes(self.names, np.maximum(codes, -1))

    def finish(self, end: int) -> None:
        if self.unlisted is not None and self.unlisted.vectors == end:
            raise LabelError(
                f"{self.place} lists none of the {end} ids of {self.path} for view {self.name!r}: "
                f"the first is {self.unlisted.first!r}, the file begins with {next(iter(self.numbers), '')!r}"
            )


def _label_sources(job: ShardJob, path: str, reader: Reader) -> dict[str, _Labels]:
    """Where the labels of every column that the views need are."""
    sources: dict[str, _Labels] = {}
    given = dict(job.labels)
    shard = Path(main_file(path))
    for name in base_columns(job.views):
        place = given.get(name, name)
        kind = _Labels
        if place not in reader.columns:
            text = place.replace("{stem}", shard.stem).replace("{folder}", str(shard.parent))
            if not Path(text).is_file():
                raise LabelError(
                    f"{path}: there are no labels of {name!r}: {place!r} is neither a file nor a column of it "
                    f"(it has {', '.join(reader.columns) or 'none'})"
                )
            kind = _List
            place = text
        sources[name] = kind(path, name, place)
    return sources


@lru_cache(CACHED_LISTS)
def _numbered(file: str, size: int, changed: int) -> tuple[Names, dict[str, int]]:
    """Names of the classes in a list, and the class of every id (size and time of change tell versions apart)."""
    values = read_map(file)
    labels = label_codes(np.array(list(values.values())))
    return labels.names, dict(zip(values, labels.codes.tolist(), strict=True))


def column_codes(name: str, column: Column) -> LabelCodes:
    """Labels of a column, numbered; of an Arrow column without making Python objects of the rows."""
    if isinstance(column, np.ndarray):
        return label_codes(column)
    arrow = need("pyarrow")
    encoded = column if arrow.types.is_dictionary(column.type) else column.dictionary_encode()
    kind = encoded.type.value_type
    if arrow.types.is_nested(kind) or arrow.types.is_decimal(kind):
        raise LabelError(f"labels of {name!r} are {kind}; expected text, numbers or dates")
    labels = label_codes(encoded.dictionary.to_numpy(zero_copy_only=False))
    places = encoded.indices.fill_null(len(labels.codes)).cast(arrow.int64())
    codes = np.append(labels.codes, -1)[places.to_numpy(zero_copy_only=False)]
    return LabelCodes(labels.names, codes)


# Finished shards in a work folder.
#
# The name of a file holds the shard's path and the settings; inside are size and time of change
# of every file that was read. A run that was killed, at any point, finds the shards that were done; a shard that
# changed since is read again.


def _finished_file(job: ShardJob, path: str) -> Path | None:
    if job.work_dir is None:
        return None
    settings = asdict(replace(job, work_dir=None, on_error="raise"))
    parts = [os.path.abspath(main_file(path)), settings]
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode())
    return Path(job.work_dir) / f"{digest.hexdigest()[:32]}.safetensors"


def _identity(path: str) -> list[int]:
    """What tells a version of a file from others: its size and time of change; nothing of one that is gone."""
    try:
        state = os.stat(path)
    except OSError:
        return []
    return [state.st_size, state.st_mtime_ns]


def _load(file: Path | None, job: ShardJob) -> Gathered | None:
    """What an earlier run left; None where there is nothing, or nothing that can be used."""
    if file is None or not file.is_file():
        return None
    try:
        statistics, sources = load_with_sources(file)
        report = sources["report"]
        report["unlisted"] = {view: Unlisted(*own) for view, own in report["unlisted"].items()}
        report["named_rows"] = tuple(report["named_rows"])
        changed = any(_identity(name) != known for name, known in sources["files"].items())
        if changed or (report["bad_rows"] and job.on_error == "raise"):
            return None
        return Gathered(statistics, (ShardReport(**{**report, "resumed": True}),))
    except (FileFormatError, KeyError, TypeError, ValueError, AttributeError):
        return None
