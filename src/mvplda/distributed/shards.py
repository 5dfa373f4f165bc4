"""Sufficient statistics of data sets that are larger than memory, computed from shards on processes or a cluster.

`ordered_map` is the only function that starts processes or connects to a cluster. A `Tree` combines the results, up to
`FAN_IN` neighbours at a time. Its shape depends only on the number of results. The order of all additions, and with it
the rounding, is therefore the same for any number of workers.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Generic, NamedTuple

import numpy as np

from .._optional import need
from .._progress import Progress
from .._typing import IntArray, Names, PathLike, Views
from ..backend import one_blas_thread
from ..exceptions import DataError, FileFormatError, LabelError, ParameterError
from ..io.batches import Batch, Reader
from ..io.lists import read_map, unlabelled_warning
from ..io.tables import Numbers
from ..io.vectors import checked_names, main_file, open_vectors
from ..labels import base_columns, check_view_names
from ..statistics import Accumulator, SufficientStatistics, merge
from ..statistics.accumulator import SecondMoment
from ..statistics.classes import GrowingClasses, LabelCodes, label_codes
from .ordered import R, ordered_map
from .outputs import file_state

FAN_IN = 8
"""Largest number of results that are combined at a time."""

BATCH_BYTES = 16 * 2**20
"""Size in bytes of the vectors of a batch."""

CACHED_LISTS = 8
"""Number of label lists that a worker keeps in memory."""


class Tree(Generic[R]):
    """Combination of results in their order, `FAN_IN` at a time, so that few results are in memory.

    Full groups of results are replaced by their combination, which joins the next level. At most `FAN_IN` results wait
    on each level.

    combine : function that combines a list of results to one
    """

    def __init__(self, combine: Callable[[list[R]], R]) -> None:
        self.combine = combine
        self.levels: list[list[R]] = []

    def add(self, item: R) -> None:
        """Add the next result, and combine the results of every level that is full."""
        for level in self.levels:
            level.append(item)
            if len(level) < FAN_IN:
                return
            item = self.combine(level)
            level.clear()
        self.levels.append([item])

    def finish(self) -> R:
        """Return the combination of all added results, of which there must be at least one."""
        carried: list[R] = []
        for level in self.levels:
            group = level + carried
            carried = group if len(group) < 2 else [self.combine(group)]
        return carried[0]


class Shard(NamedTuple):
    """Statistics of one shard, or of several consecutive shards; `path` is the path of the first."""

    path: str
    statistics: SufficientStatistics


@dataclass(frozen=True)
class ShardJob:
    """Settings that apply to all shards; each field is the argument of `gather` with the same name."""

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
    """Compute the sufficient statistics of shards on disk.

    Every shard is read in batches and summed up separately. The sums are then added in a tree whose shape depends only
    on the number of shards. The result is therefore bit-identical for any number of workers, and for a run that was
    interrupted and continued. A warning counts the vectors without label.

    Parameters
    ----------
    paths : the shards, each in a format that `mvplda.io.read_vectors` reads
    labels : by view, the source of its labels: a column of the shards, or a file such as utt2spk. In the name of a
        file, ``{stem}`` and ``{folder}`` stand for the file name without suffix, and the folder, of the shard
    views : the views, including interactions such as ``speaker:phrase`` (default: every view of `labels`)
    second_moment : ``"full"`` for any noise model; ``"diagonal"`` takes less memory and suffices for diagonal noise
    work_dir : folder for the statistics of finished shards, so that an interrupted run can be continued
    workers : number of processes; 1 runs in this process
    scheduler : address of a Dask scheduler, whose workers replace the processes
    batch_bytes : bytes of vectors in a batch; every worker holds one batch in memory
    verbose : 1 shows progress on standard error
    """
    shards, job = shard_job(paths, labels, views, second_moment, work_dir, batch_bytes)
    progress = Progress("shards", len(shards))
    tree = Tree(combine)
    vectors = 0
    work = partial(shard_result, job)
    results = ordered_map(work, shards, workers=workers, scheduler=scheduler)
    for number, shard in enumerate(results, 1):
        tree.add(shard)
        vectors += shard.statistics.n
        if verbose:
            progress.step(number, f"{vectors} vectors")

    statistics = tree.finish().statistics
    warn_unlabelled(unlabelled_counts(statistics), statistics.n, job.labels)
    return statistics


def shard_job(
    paths: PathLike | Sequence[PathLike],
    labels: Mapping[str, PathLike] | None,
    views: Sequence[str] | None,
    second_moment: SecondMoment,
    work_dir: PathLike | None,
    batch_bytes: int,
) -> tuple[list[str], ShardJob]:
    """Return the paths of the shards, and the settings that apply to all of them; the arguments are those of `gather`.

    Raises `ParameterError` for missing or wrong views and for missing or repeated paths.
    """
    if views is None and not labels:
        raise ParameterError(
            "the views are missing: pass their names (views=) or the sources of their labels (labels=)"
        )
    if views is not None and (isinstance(views, str) or not len(views)):
        raise ParameterError(f"views must be a list of names with at least one; got {views!r}")
    sources = {name: os.fspath(source) for name, source in (labels or {}).items()}
    names = tuple(views or sources)
    check_view_names(names)
    shards = _listed(paths)
    if work_dir is not None:
        work_dir = os.fspath(work_dir)
        Path(work_dir).mkdir(parents=True, exist_ok=True)
    return shards, ShardJob(names, sources, second_moment, work_dir, batch_bytes)


def unlabelled_counts(statistics: SufficientStatistics) -> dict[str, int]:
    """Return {view: number of vectors without label}, for the views that have such vectors."""
    return {
        view: classes.anonymous for view, classes in statistics.classes.items() if classes.anonymous
    }


def warn_unlabelled(counts: Mapping[str, int], total: int, sources: Mapping[str, str]) -> None:
    """Warn of vectors without label, once per view.

    The warning's location is the call of the public function, `gather` or `gather_ranges`.

    counts : {view: number of vectors without label}
    total : number of all vectors
    sources : {view: source of its labels} that the user passed; there is no warning for views that are not in it
    """
    for view, source in sources.items():
        if view in counts:
            warnings.warn(unlabelled_warning(view, source, counts[view], total), stacklevel=3)


def _listed(paths: PathLike | Sequence[PathLike]) -> list[str]:
    """Return the paths as strings; raise `ParameterError` if there are none or a path occurs twice."""
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    shards = [os.fspath(path) for path in paths]
    if not shards:
        raise ParameterError("there are no shards of vectors: pass at least one file")
    path, occurrences = Counter(shards).most_common(1)[0]
    if occurrences > 1:
        raise ParameterError(f"{path} is passed twice and would be counted twice: pass it once")
    return shards


def combine(shards: Sequence[Shard]) -> Shard:
    """Return the sum of the statistics of consecutive shards, added in order; its path is that of the first."""
    statistics = merge([shard.statistics for shard in shards], [shard.path for shard in shards])
    return Shard(shards[0].path, statistics)


# The statistics of one shard: the function that every worker runs.
#
# Results of finished shards are stored in the work folder. Their file name is a digest of the shard's path and the
# settings; they contain size and modification time of every file that was read. A run that continues after an
# interruption reuses these results; a shard that was modified since is read again.


def shard_result(job: ShardJob, path: str) -> Shard:
    """Return the statistics of one shard.

    They are read from the work folder if an earlier run stored them there and the shard has not changed. Otherwise
    they are computed, and stored there.

    job : settings; without a work folder, nothing is read or stored
    path : the shard
    """
    if job.work_dir is None:
        return Shard(path, read_shard(job, path)[0][0])
    settings = [os.path.abspath(main_file(path)), asdict(replace(job, work_dir=None))]
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    finished = Path(job.work_dir) / f"{digest.hexdigest()[:32]}.safetensors"
    if finished.is_file():
        try:
            statistics = SufficientStatistics.load(finished)
            if all(file_state(file) == identity for file, identity in statistics.sources.items()):
                return Shard(path, statistics)
        except (FileFormatError, KeyError, TypeError, AttributeError):
            pass  # a result that is damaged or of another version is computed again
    sums_by_range, files = read_shard(job, path)
    sources = {file: file_state(file) for file in files}
    replace(sums_by_range[0], sources=sources).save(finished)
    return Shard(path, sums_by_range[0])


class RangeSums:
    """Accumulator of the statistics of one shard, or of those of its vectors whose classes are in one range.

    job : settings that apply to all shards
    width : dimension of the vectors
    """

    def __init__(self, job: ShardJob, width: int) -> None:
        self.classes = GrowingClasses(job.views)
        self.sums = Accumulator(width, job.views, second_moment=job.second_moment)

    def add(self, X: Numbers, labels: Mapping[str, LabelCodes]) -> None:
        """Add vectors to the statistics.

        X : vectors, (n, D)
        labels : {label column: codes of the labels (n,)}
        """
        self.sums.add(X, self.classes.number(labels))

    def result(self) -> SufficientStatistics:
        """Return the statistics of the added vectors; nothing may be added afterwards."""
        return SufficientStatistics.of(self.sums, *self.classes.sorted())


RowRanges = Callable[[Mapping[str, LabelCodes]], IntArray]
"""Function of the labels of a batch that returns the number of the range of each vector, (n,)."""


def read_shard(
    job: ShardJob, path: str, range_of_rows: RowRanges | None = None, ranges: int = 1
) -> tuple[dict[int, SufficientStatistics], list[str]]:
    """Read a shard, and compute the statistics of its vectors, separately for each range of classes.

    Parameters
    ----------
    job : settings that apply to all shards
    path : the shard
    range_of_rows : function that returns the range of each vector of a batch; None: one range with the number 0
    ranges : number of ranges

    Returns
    -------
    {number of the range: statistics}, for the ranges that have vectors
    paths of all files that were read
    """
    reader = open_vectors(path)
    sources = _label_sources(job, path, reader)
    columns = [source.location for source in sources.values() if source.numbers is None]
    lists = [source.location for source in sources.values() if source.numbers is not None]
    # The reader takes a single column of names as ids; if that column holds labels, the vectors have no ids.
    has_ids = reader.has_ids and reader.id_column not in columns
    sums: dict[int, RangeSums] = {}
    vectors = 0
    labelled = dict.fromkeys(sources, False)
    hashes: list[IntArray] = []
    try:
        # The workers provide the parallelism, and with one BLAS thread the sums do not depend on the number of cores.
        with one_blas_thread():
            for batch in reader.batches(job.batch_bytes, columns, bool(lists) or has_ids):
                n, width = batch.X.shape
                if not n:
                    continue
                if has_ids and batch.ids is not None:
                    names = checked_names(path, batch.ids, vectors).tolist()
                    hashes.append(np.fromiter(map(hash, names), np.int64, n))
                codes = {name: source.codes(batch) for name, source in sources.items()}
                for name, column in codes.items():
                    labelled[name] |= bool((column.codes >= 0).any())
                for number, X, labels in _by_range(batch.X, codes, range_of_rows, ranges):
                    if number not in sums:
                        sums[number] = RangeSums(job, width)
                    sums[number].add(X, labels)
                vectors += n
                del batch, codes, X, labels  # frees their memory before the next batch is read
        if not vectors:
            raise FileFormatError("the file contains no vectors: leave it out")
        _check_once(hashes)
        statistics = {number: sums.pop(number).result() for number in sorted(sums)}
        for name, source in sources.items():
            if source.numbers is not None and not labelled[name]:
                raise LabelError(
                    f"{source.location}, the list of labels of view {name!r}, has none of the {vectors} ids of the "
                    f"shard; the list begins with {next(iter(source.numbers))!r}: pass the list of this shard"
                )
    except (DataError, LabelError, FileFormatError) as error:
        raise error if path in str(error) else type(error)(f"{path}: {error}") from error
    return statistics, [str(main_file(path)), *reader.files, *lists]


def _by_range(
    X: Numbers,
    labels: Mapping[str, LabelCodes],
    range_of_rows: RowRanges | None,
    ranges: int,
) -> Iterator[tuple[int, Numbers, Mapping[str, LabelCodes]]]:
    """Yield (number of the range, vectors, labels) for each range of classes that has vectors in a batch.

    X : vectors of the batch, (n, D)
    labels : {label column: codes of the labels of the batch, (n,)}
    range_of_rows : function that returns the range of each vector; None: all vectors are in range 0
    ranges : number of ranges
    """
    if range_of_rows is None or ranges == 1:
        yield 0, X, labels
        return
    row_ranges = range_of_rows(labels)
    order = np.argsort(row_ranges, kind="stable")
    ends = np.searchsorted(row_ranges[order], np.arange(ranges + 1))
    for number in range(ranges):
        rows = order[ends[number] : ends[number + 1]]
        if len(rows):
            chosen = {
                name: LabelCodes(column.names, column.codes[rows])
                for name, column in labels.items()
            }
            yield number, X[rows], chosen


def _check_once(hashes: list[IntArray]) -> None:
    """Raise `LabelError` if an id occurs twice in a shard.

    hashes : for each batch the 64-bit hashes of its ids, (n,), which take less memory than the ids
    """
    ids = np.concatenate([np.empty(0, np.int64), *hashes])
    order = np.argsort(ids, kind="stable")
    duplicates = np.flatnonzero(np.diff(ids[order]) == 0)
    if len(duplicates):
        first, second = order[duplicates[0] : duplicates[0] + 2] + 1
        raise LabelError(
            f"entries {first} and {second} have the same id, and the vector would be counted twice: leave one of "
            "them out"
        )


# Sources of the labels of a shard.


@dataclass(frozen=True)
class LabelSource:
    """Source of the labels of one view: a column of the shard, or a file that lists ids and their labels.

    location : name of the column, or path of the file
    names : names of the classes in the file; empty for a column
    numbers : {id: index of its class in `names`} of a file; other ids have no label. None for a column
    """

    location: str
    names: Names
    numbers: dict[str, int] | None = None

    def codes(self, batch: Batch) -> LabelCodes:
        """Return the labels of the vectors of a batch: names of classes, and a code per vector (n,), -1 for no label.

        Raises `LabelError` if the labels are in a file and the shard has no ids.
        """
        if self.numbers is None:
            return column_codes(batch.columns[self.location])
        if batch.ids is None:
            raise LabelError(
                f"the shard has no ids, which are needed to find labels in {self.location}: store ids in the shard, or "
                "labels in a column"
            )
        codes = np.array([self.numbers.get(name, -1) for name in batch.ids], dtype=np.int64)
        return LabelCodes(self.names, codes)


def _label_sources(job: ShardJob, path: str, reader: Reader) -> dict[str, LabelSource]:
    """Return {base view: source of its labels}; raise `LabelError` for a view without labels.

    path : the shard
    reader : reader of the shard, which lists its columns
    """
    sources = {}
    shard = Path(main_file(path))
    for name in base_columns(job.views):
        location = job.labels.get(name, name)
        if location in reader.columns:
            sources[name] = LabelSource(location, np.empty(0))
            continue
        file = location.replace("{stem}", shard.stem).replace("{folder}", str(shard.parent))
        if not Path(file).is_file():
            raise LabelError(
                f"{path}: there are no labels of view {name!r}: {location!r} is neither a file nor a column of the "
                f"shard (columns: {', '.join(reader.columns) or 'none'}). Pass --labels {name}=COLUMN or --labels "
                f"{name}=FILE (in Python labels={{{name!r}: ...}})"
            )
        sources[name] = LabelSource(file, *_numbered(file, *file_state(file)))
    return sources


@lru_cache(CACHED_LISTS)
def _numbered(file: str, size: int, changed: int) -> tuple[Names, dict[str, int]]:
    """Return the names of the classes in a map such as utt2spk, and {id: index of its class in these names}.

    The result is cached until the size of the file, or the time at which it was `changed`, differs.
    """
    values = read_map(file)
    labels = label_codes(np.array(list(values.values())))
    return labels.names, dict(zip(values, labels.codes.tolist(), strict=True))


def column_codes(column: Any) -> LabelCodes:
    """Return the names of the classes in a column of labels, and a code per row, (n,); -1 stands for no label.

    column : labels, a NumPy or Arrow array (n,)

    Only the distinct labels of an Arrow column are converted to Python objects.
    """
    if isinstance(column, np.ndarray):
        return label_codes(column)
    arrow = need("pyarrow")
    encoded = column if arrow.types.is_dictionary(column.type) else column.dictionary_encode()
    labels = label_codes(encoded.dictionary.to_numpy(zero_copy_only=False))
    # A null gets the index after the last label, whose code is -1.
    indices = encoded.indices.fill_null(len(labels.codes)).cast(arrow.int64())
    codes = np.append(labels.codes, -1)[indices.to_numpy(zero_copy_only=False)]
    return LabelCodes(labels.names, codes)
