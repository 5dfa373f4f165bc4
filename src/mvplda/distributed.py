"""Statistics of files that are larger than memory, on processes or a cluster: shards in, sums out.

`ordered_map` is the one place that knows processes and clusters. A `Tree` puts results together: it joins `FAN_IN`
neighbours at a time and depends on the number of items alone, so that the order of all additions is the same however
the work was spread.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from ._optional import need
from ._progress import Progress
from ._typing import Block as Column
from ._typing import IntArray, Names, PathLike, Views
from .backend import cores, one_blas_thread
from .exceptions import DataError, FileFormatError, LabelError, ParameterError
from .io.files import Batch, Reader, read_map, unlabelled
from .io.vectors import checked_names, main_file, open_vectors
from .labels import base_columns, check_view_names
from .statistics import Accumulator, SufficientStatistics, merge
from .statistics.accumulator import SecondMoment
from .statistics.classes import GrowingClasses, LabelCodes, label_codes

__all__ = ["gather"]

FAN_IN = 8
BATCH_BYTES = 16 * 2**20
CACHED_LISTS = 8

T = TypeVar("T")
R = TypeVar("R")


def ordered_map(
    work: Callable[[T], R],
    items: Sequence[T],
    *,
    workers: int | None = None,
    scheduler: str | None = None,
) -> Iterator[R]:
    """``work(item)`` in the order of the items, a few of which are under way or waiting at any time.

    Parameters
    ----------
    work : a function of a module, or a partial of one, so that it can travel
    workers : processes; 1 works here; default: one per core
    scheduler : address of a Dask scheduler, whose workers do the work instead
    """
    if workers is not None and workers < 1:
        raise ParameterError(f"workers is at least 1; got {workers}")
    count = min(workers or cores(), len(items))
    if scheduler is None and count <= 1:
        yield from map(work, items)
        return
    # joblib, which scikit-learn brings: its processes are not forked (a fork in the middle of another thread's work
    # can hang) and need no guard around the main module; one that dies is an error
    from joblib import Parallel, delayed, parallel_config  # type: ignore[import-untyped]

    with ExitStack() as stack:
        if scheduler is not None:
            stack.enter_context(need("distributed").Client(scheduler))
            stack.enter_context(parallel_config("dask"))
            count = -1
        in_order = Parallel(count, return_as="generator", batch_size=1, max_nbytes=None)
        yield from in_order(delayed(work)(item) for item in items)


class Tree(Generic[R]):
    """Results in their order, joined `FAN_IN` at a time; at most that many wait on each level."""

    def __init__(self, combine: Callable[[list[R]], R]) -> None:
        self.combine = combine
        self.levels: list[list[R]] = []

    def add(self, item: R) -> None:
        for level in self.levels:
            level.append(item)
            if len(level) < FAN_IN:
                return
            item = self.combine(level)
            level.clear()
        self.levels.append([item])

    def finish(self) -> R:
        rest: list[R] = []
        for level in self.levels:
            group = level + rest
            rest = group if len(group) < 2 else [self.combine(group)]
        return rest[0]


class Shard(NamedTuple):
    """The statistics of a shard, or of several from this one on."""

    path: str
    statistics: SufficientStatistics


@dataclass(frozen=True)
class ShardJob:
    """What is done with every shard; the parameters of `gather`."""

    views: Views
    labels: dict[str, str]
    second_moment: SecondMoment
    work_dir: str | None
    batch_bytes: int


def gather(
    paths: PathLike | Sequence[PathLike],
    labels: Mapping[str, PathLike] | None = None,
    views: Sequence[str] | None = None,
    *,
    second_moment: SecondMoment = "full",
    work_dir: PathLike | None = None,
    workers: int = 1,
    scheduler: str | None = None,
    batch_bytes: int = BATCH_BYTES,
    verbose: int = 0,
) -> SufficientStatistics:
    """Statistics of shards on disk.

    Every shard is read in batches and summed on its own; the sums are then added
    in a tree whose shape depends on the number of shards alone. So the numbers are
    the same, bit for bit, for any number of workers and for a run that was killed and continued.

    Parameters
    ----------
    paths : the shards, each of a format that `mvplda.io.read_vectors` reads
    labels : per label column a column of the table, or a file; in its name ``{stem}`` and ``{folder}`` are the shard's
    views : the views, interactions included (default: every column of `labels`)
    second_moment : ``"full"`` for any noise, ``"diagonal"`` is enough for diagonal noise
    work_dir : folder where finished shards are kept, so that a run can be continued
    workers : processes; 1 works here
    scheduler : address of a Dask scheduler, whose workers do the work instead
    batch_bytes : of vectors; one batch is held per worker
    verbose : 1 shows progress on standard error
    """
    if views is None and not labels:
        raise ParameterError("name the views, or where their labels are found: views=, labels=")
    if views is not None and (isinstance(views, str) or not len(views)):
        raise ParameterError(f"views is a list of names; got {views!r}")
    sources = {name: os.fspath(source) for name, source in (labels or {}).items()}
    names = tuple(views or sources)
    check_view_names(names)
    shards = _listed(paths)
    if work_dir is not None:
        work_dir = os.fspath(work_dir)
        Path(work_dir).mkdir(parents=True, exist_ok=True)
    job = ShardJob(names, sources, second_moment, work_dir, batch_bytes)
    progress = Progress("shards", len(shards))
    tree = Tree(combine)
    read = 0
    work = partial(shard_result, job)
    for done, shard in enumerate(ordered_map(work, shards, workers=workers, scheduler=scheduler)):
        tree.add(shard)
        read += shard.statistics.n
        if verbose:
            progress.step(done + 1, f"{read} vectors")
    statistics = tree.finish().statistics
    for view, source in sources.items():
        count = statistics.classes[view].anonymous
        if count:
            warnings.warn(unlabelled(view, source, count, statistics.n), stacklevel=2)
    return statistics


def _listed(paths: PathLike | Sequence[PathLike]) -> list[str]:
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    shards = [os.fspath(path) for path in paths]
    if not shards:
        raise ParameterError("there are no shards: give at least one file")
    path, times = Counter(shards).most_common(1)[0]
    if times > 1:
        raise ParameterError(f"{path} is named twice and would be counted twice")
    return shards


def combine(parts: Sequence[Shard]) -> Shard:
    """Results of several shards as one, in their order."""
    statistics = merge([part.statistics for part in parts], [part.path for part in parts])
    return Shard(parts[0].path, statistics)


# The statistics of one shard: the function that every worker runs.
#
# Finished shards lie in the work folder. The name of a file holds the shard's path and the settings; inside are size
# and time of change of every file that was read. A run that was killed, at any point, finds the shards that were done;
# a shard that changed since is read again.


def shard_result(job: ShardJob, path: str) -> Shard:
    """One shard, read or taken from the work folder."""
    if job.work_dir is None:
        return read_shard(job, path)[0]
    settings = [os.path.abspath(main_file(path)), asdict(replace(job, work_dir=None))]
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    finished = Path(job.work_dir) / f"{digest.hexdigest()[:32]}.safetensors"
    if finished.is_file():
        try:
            statistics = SufficientStatistics.load(finished)
            if all(_identity(file) == known for file, known in statistics.sources.items()):
                return Shard(path, statistics)
        except (FileFormatError, KeyError, TypeError, AttributeError):
            pass  # damaged, or of another version: as though it were not there
    shard, files = read_shard(job, path)
    read = {file: _identity(file) for file in files}
    replace(shard.statistics, sources=read).save(finished)
    return shard


def _identity(path: str) -> list[int]:
    """What tells a version of a file from others: its size and time of change; nothing of one that is gone."""
    try:
        state = os.stat(path)
    except OSError:
        return []
    return [state.st_size, state.st_mtime_ns]


def read_shard(job: ShardJob, path: str) -> tuple[Shard, list[str]]:
    """Statistics of a shard, and the files that were read."""
    reader = open_vectors(path)
    sources = _label_sources(job, path, reader)
    columns = [source.place for source in sources.values() if source.numbers is None]
    lists = [source.place for source in sources.values() if source.numbers is not None]
    # the only column of names is taken for ids; where it holds the labels of a view, the vectors have none
    has_ids = reader.has_ids and reader.id_column not in columns
    classes = GrowingClasses(job.views)
    sums: Accumulator | None = None
    hashes: list[IntArray] = []
    try:
        # Workers are the parallelism, and sums do not depend on how many threads BLAS had.
        with one_blas_thread():
            for batch in reader.batches(job.batch_bytes, columns, bool(lists) or has_ids):
                n, width = batch.X.shape
                if not n:
                    continue
                sums = sums or Accumulator(width, job.views, second_moment=job.second_moment)
                if has_ids and batch.ids is not None:
                    names = checked_names(path, batch.ids, sums.n).tolist()
                    hashes.append(np.fromiter(map(hash, names), np.int64, n))
                codes = {name: source.codes(batch) for name, source in sources.items()}
                sums.add(batch.X, classes.number(codes))
                del batch, codes  # before the next is made
        if sums is None or not sums.n:
            raise FileFormatError("the file holds no vectors")
        _check_once(hashes)
        statistics = SufficientStatistics.of(sums, *classes.sorted())
        for name, source in sources.items():
            if source.numbers is not None and not len(statistics.classes[name].names):
                raise LabelError(
                    f"{source.place} lists none of the {statistics.n} ids for view {name!r}; it begins with "
                    f"{next(iter(source.numbers))!r}"
                )
    except (DataError, LabelError, FileFormatError) as error:
        raise error if path in str(error) else type(error)(f"{path}: {error}") from error
    return Shard(path, statistics), [str(main_file(path)), *reader.files, *lists]


def _check_once(hashes: list[IntArray]) -> None:
    """An id that stands twice is an error that names both entries; eight bytes are held for each."""
    every = np.concatenate([np.empty(0, np.int64), *hashes])
    order = np.argsort(every, kind="stable")
    again = np.flatnonzero(np.diff(every[order]) == 0)
    if len(again):
        first, second = order[again[0] : again[0] + 2] + 1
        raise LabelError(
            f"an id stands twice and would be counted twice: entries {first} and {second}. "
            "Leave one of them out"
        )


# Where the labels of a shard come from.


@dataclass(frozen=True)
class LabelSource:
    """A column of the table, which the reader gives with every batch, or a list of ids and their labels.

    place : the column, or the file
    names, numbers : of a list, its classes, and the class of every id; an id that is not listed has no label
    """

    place: str
    names: Names
    numbers: dict[str, int] | None = None

    def codes(self, batch: Batch) -> LabelCodes:
        if self.numbers is None:
            return column_codes(batch.columns[self.place])
        if batch.ids is None:
            raise LabelError(f"there are no ids to look up in {self.place}")
        codes = np.array([self.numbers.get(name, -1) for name in batch.ids], dtype=np.int64)
        return LabelCodes(self.names, codes)


def _label_sources(job: ShardJob, path: str, reader: Reader) -> dict[str, LabelSource]:
    """Where the labels of every column that the views need are."""
    sources = {}
    shard = Path(main_file(path))
    for name in base_columns(job.views):
        place = job.labels.get(name, name)
        if place in reader.columns:
            sources[name] = LabelSource(place, np.empty(0))
            continue
        file = place.replace("{stem}", shard.stem).replace("{folder}", str(shard.parent))
        if not Path(file).is_file():
            raise LabelError(
                f"{path}: there are no labels of {name!r}: {place!r} is neither a file nor a column of it "
                f"(it has {', '.join(reader.columns) or 'none'})"
            )
        sources[name] = LabelSource(file, *_numbered(file, *_identity(file)))
    return sources


@lru_cache(CACHED_LISTS)
def _numbered(file: str, size: int, changed: int) -> tuple[Names, dict[str, int]]:
    """Names of the classes in a list, and the class of every id (size and time of change tell versions apart)."""
    values = read_map(file)
    labels = label_codes(np.array(list(values.values())))
    return labels.names, dict(zip(values, labels.codes.tolist(), strict=True))


def column_codes(column: Column) -> LabelCodes:
    """Labels of a column, numbered; of an Arrow column without making Python objects of the rows."""
    if isinstance(column, np.ndarray):
        return label_codes(column)
    arrow = need("pyarrow")
    encoded = column if arrow.types.is_dictionary(column.type) else column.dictionary_encode()
    labels = label_codes(encoded.dictionary.to_numpy(zero_copy_only=False))
    places = encoded.indices.fill_null(len(labels.codes)).cast(arrow.int64())
    codes = np.append(labels.codes, -1)[places.to_numpy(zero_copy_only=False)]
    return LabelCodes(labels.names, codes)
