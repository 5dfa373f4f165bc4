"""Statistics of shards by ranges of classes, so that no machine holds the sums of all classes.

If speakers are in random order, a shard has nearly as many classes as vectors, and the class sums of all shards take
more memory than the vectors. The classes of one view are therefore divided into ranges by a hash of their names. A
worker that reads a shard writes one file of statistics per range; then each worker adds up the files of one range. The
results are statistics of disjoint classes: a model can be trained on one of the files, or on their sum.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .._progress import Progress
from .._typing import IntArray, PathLike
from ..exceptions import ParameterError
from ..io.tables import suffix_of
from ..io.vectors import main_file
from ..labels import base_columns
from ..statistics import SufficientStatistics
from ..statistics.accumulator import SecondMoment
from ..statistics.classes import LabelCodes
from .ordered import ordered_map
from .outputs import file_state, finished_summary, settings_digest, shard_paths, write_note
from .shards import (
    BATCH_BYTES,
    Shard,
    ShardJob,
    Tree,
    combine,
    read_shard,
    shard_job,
    unlabelled_counts,
    warn_unlabelled,
)


@dataclass(frozen=True)
class RangeJob:
    """Settings that apply to all shards and ranges.

    shard : settings for reading shards
    column : label column, such as "speaker", whose classes are divided into ranges
    ranges : number of ranges
    folder : folder for the statistics of each shard and range
    """

    shard: ShardJob
    column: str
    ranges: int
    folder: str

    def range_of_rows(self, labels: Mapping[str, LabelCodes]) -> IntArray:
        """Return the number of the range of each vector of a batch, (n,), from 0.

        Vectors of one class are in the same range. Vectors without label are distributed evenly over the ranges.

        labels : {label column: codes of the labels of the batch}
        """
        column = labels[self.column]
        hashes = [zlib.crc32(str(name).encode()) % self.ranges for name in column.names.tolist()]
        by_code = np.array([*hashes, 0], dtype=np.int64)
        rows = by_code[column.codes]
        absent = np.flatnonzero(column.codes < 0)
        rows[absent] = absent % self.ranges
        return rows

    def split_path(self, path: str) -> str:
        """Return the common start of the paths of a shard's files of statistics.

        The file of range 3 is ``<result>-3.safetensors``. The result depends on all settings.

        path : the shard
        """
        settings = [os.path.abspath(main_file(path)), asdict(self)]
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        return os.path.join(self.folder, digest[:32])


def gather_ranges(
    paths: PathLike | Sequence[PathLike],
    output: str,
    labels: Mapping[str, PathLike] | None = None,
    views: Sequence[str] | None = None,
    *,
    ranges: int,
    work_dir: PathLike,
    second_moment: SecondMoment = "full",
    workers: int = 1,
    scheduler: str | None = None,
    batch_bytes: int = BATCH_BYTES,
    extractor: str | None = None,
    verbose: int = 0,
) -> list[str]:
    """Write the statistics of shards to one file per range of the classes of the first view.

    The sum of the files equals the statistics of `gather`, up to rounding. The files are bit-identical for any number
    of workers. Each file contains a random sample of the classes.

    Parameters
    ----------
    paths, labels, views, second_moment, workers, scheduler, batch_bytes, verbose : see `gather`
    output : path of the files (.safetensors), with ``{shard}`` for the number of the range
    ranges : number of ranges; a worker holds the sums of one range at a time
    work_dir : folder for the statistics of every shard and range, which may take as much space as the vectors; all
        workers of a scheduler must share it. A later call continues an interrupted one from there
    extractor : name of the extractor of the vectors, stored in the files

    Returns
    -------
    paths of the files; ranges without vectors have none
    """
    if suffix_of(output) != ".safetensors":
        raise ParameterError(
            f"statistics are written to files with the suffix .safetensors; got the name {output}"
        )
    if ranges < 1:
        raise ParameterError(f"the number of ranges of classes must be at least 1; got {ranges}")
    shards, settings = shard_job(paths, labels, views, second_moment, None, batch_bytes)
    folder = os.path.abspath(work_dir)
    Path(folder).mkdir(parents=True, exist_ok=True)
    outputs = shard_paths(output, ranges)
    job = RangeJob(settings, base_columns(settings.views)[0], ranges, folder)

    vectors = 0
    bar = Progress("shards", len(shards))
    split = ordered_map(partial(split_shard, job), shards, workers=workers, scheduler=scheduler)
    for number, count in enumerate(split, 1):
        vectors += count
        if verbose:
            bar.step(number, f"{vectors} vectors")
    bar = Progress("ranges", ranges)
    items = list(enumerate(outputs))
    added = ordered_map(
        partial(add_range, job, tuple(shards), extractor),
        items,
        workers=workers,
        scheduler=scheduler,
    )
    files = []
    unlabelled: Counter[str] = Counter()
    for number, summary in enumerate(added, 1):
        unlabelled.update(summary.unlabelled)
        if summary.classes:
            files.append(outputs[number - 1])
        if verbose:
            bar.step(number, f"{summary.classes} classes")
    warn_unlabelled(unlabelled, vectors, settings.labels)
    return files


# Functions that every worker runs.


def split_shard(job: RangeJob, path: str) -> int:
    """Write the statistics of a shard to one file per range of classes; return its number of vectors.

    Files that an earlier run wrote are kept if the shard and the settings have not changed.

    path : the shard
    """
    base = job.split_path(path)
    summary = _split_summary(base)
    if summary is not None:
        return sum(n for _, n in summary.values())
    sums_by_range, files = read_shard(job.shard, path, job.range_of_rows, job.ranges)
    written = {}
    for number, statistics in sums_by_range.items():
        file = f"{base}-{number}.safetensors"
        statistics.save(file)
        written[str(number)] = (file_state(file), statistics.n)
    sources = {file: file_state(file) for file in files}
    write_note(base, "", {"sources": sources, "ranges": written})
    return sum(n for _, n in written.values())


def _split_summary(base: str) -> dict[str, tuple[list[int], int]] | None:
    """Return {number of a range: (`file_state`, number of vectors)} of the files that `split_shard` wrote for a shard.

    Returns None if it wrote none, or if any of these files, or a file that was read to make them, has changed since.

    base : common start of the paths of the files, from `RangeJob.split_path`
    """
    summary = finished_summary(base, "")
    if summary is None:
        return None
    ranges: dict[str, tuple[list[int], int]] = summary["ranges"]
    states = [
        *summary["sources"].items(),
        *((f"{base}-{number}.safetensors", state) for number, (state, _) in ranges.items()),
    ]
    unchanged = all(file_state(file) == state for file, state in states)
    return ranges if unchanged else None


class RangeSummary(NamedTuple):
    """Summary of the statistics of one range of classes.

    classes : number of classes in the range; 0 if the range has no vectors
    unlabelled : {view: number of vectors without label}, for the views that have such vectors
    """

    classes: int
    unlabelled: dict[str, int]


def add_range(
    job: RangeJob, shards: tuple[str, ...], extractor: str | None, item: tuple[int, str]
) -> RangeSummary:
    """Add up the statistics of one range over all shards, and write the sum to the output file of the range.

    A file that an earlier run wrote from the same statistics is kept.

    shards : paths of the shards, in the order in which their statistics are added
    extractor : name of the extractor of the vectors, stored in the file; None if it is unknown
    item : number of the range, and path of its output file; the file is deleted if the range has no vectors
    """
    number, output = item
    files = list(_files_of_range(job, shards, number))
    states = [[file, file_state(file)] for file, _ in files]
    digest = settings_digest(states, extractor, RangeSummary._fields)
    finished = finished_summary(output, digest)
    if finished is not None:
        return RangeSummary(*finished)
    tree = Tree(combine)
    for file, path in files:
        tree.add(Shard(path, SufficientStatistics.load(file)))
    summary = RangeSummary(0, {})
    if files:
        statistics = tree.finish().statistics
        replace(statistics, sources={"extractor": extractor}).save(output)
        summary = RangeSummary(len(statistics.classes[job.column]), unlabelled_counts(statistics))
    else:
        Path(output).unlink(missing_ok=True)  # of an earlier run with other shards
    write_note(output, digest, summary)
    return summary


def _files_of_range(
    job: RangeJob, shards: tuple[str, ...], number: int
) -> Iterator[tuple[str, str]]:
    """Yield (path of the statistics file, path of the shard) for each shard with vectors of one range of classes.

    A range is a random part of the classes of the first view, which one job adds up. Raises `ParameterError` if a
    file is missing, or has changed since `split_shard` wrote it.

    number : which range, counted from 0
    """
    for path in shards:
        base = job.split_path(path)
        summary = _split_summary(base)
        if summary is None:
            raise ParameterError(
                f"the statistics of {path} in the folder {job.folder} are missing or were changed during the run: run "
                "the same command again, with a folder that all workers share"
            )
        if str(number) in summary:
            yield f"{base}-{number}.safetensors", path
