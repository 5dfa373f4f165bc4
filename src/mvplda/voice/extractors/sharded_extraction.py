"""Vectors of many recordings, in shards that processes or the workers of a cluster extract."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from ..._progress import Progress
from ...distributed.ordered import ordered_map
from ...distributed.outputs import (
    file_state,
    finished_summary,
    settings_digest,
    shard_paths,
    write_note,
)
from ...exceptions import DataError, FileFormatError, ParameterError
from ...io.streams import check_ids
from ...io.tables import suffix_of
from ...io.vectors import VectorSet, check_vectors_writable, write_vectors
from ..audio.folders import Recordings
from .extractor import Extractor, OnError, load_extractor
from .recipe import downloadable

SHARD_SIZE = 1000
"""Recordings per shard: some minutes of one core."""

SHARD_FORMATS = (".npz", ".parquet")
"""Formats that store labels beside the vectors."""


@dataclass(frozen=True)
class ExtractedShard:
    """Summary of an extracted shard.

    path : file of its vectors
    recordings, vectors, usable : numbers of recordings, of those with a vector, and of those with usable speech
    skipped : (id, reason) of each recording without a vector
    faults : per fault, the number of affected recordings and the id of the first
    """

    path: str
    recordings: int
    vectors: int
    usable: int
    skipped: list[tuple[str, str]]
    faults: dict[str, tuple[int, str]]

    @classmethod
    def of_note(cls, values: Mapping[str, Any]) -> ExtractedShard:
        """Return the summary that a shard's JSON note holds; the lists of two in it become tuples."""
        skipped = [(name, reason) for name, reason in values["skipped"]]
        faults = {fault: (count, name) for fault, (count, name) in values["faults"].items()}
        return cls(**{**values, "skipped": skipped, "faults": faults})


@dataclass(frozen=True)
class ExtractionJob:
    """Settings that apply to every shard: names or files of the networks, and the fingerprint of all of them."""

    networks: tuple[str, ...]
    fingerprint: str
    on_error: OnError


def extract_shards(
    recordings: Recordings,
    networks: Sequence[str],
    output: str,
    *,
    shard_size: int = SHARD_SIZE,
    on_error: OnError = "raise",
    workers: int = 1,
    scheduler: str | None = None,
    progress: bool = False,
) -> list[ExtractedShard]:
    """Extract the vectors of recordings in shards, and write each with its ids and labels.

    The files are bit-identical for any number of workers. After an interruption a call with the same arguments
    continues: shards whose file is finished and whose recordings are unchanged are not extracted again.

    Parameters
    ----------
    recordings : the recordings, of which consecutive ones form a shard
    networks : names or files of the networks, which every worker must have
    output : name of the files, .npz or .parquet, with ``{shard}`` for the number
    shard_size : number of recordings per shard
    on_error : "raise" stops at an unusable recording; "skip" leaves it out and lists it in the summary
    workers : number of processes; 1 runs in this process
    scheduler : address of a Dask scheduler, whose workers replace the processes
    progress : write a line per shard to standard error
    """
    if suffix_of(output) not in SHARD_FORMATS:
        raise ParameterError(
            f"expected shards in a format with labels, {' or '.join(SHARD_FORMATS)}; got {output}"
        )
    if shard_size < 1:
        raise ParameterError(f"a shard has at least one recording; got shard_size={shard_size}")
    check_ids(recordings.ids)
    extractor = load_extractor(list(networks))
    starts = range(0, len(recordings.ids), shard_size)
    paths = shard_paths(output, len(starts))
    check_vectors_writable(paths[0])
    shards = [
        (path, _selected(recordings, slice(start, start + shard_size)))
        for path, start in zip(paths, starts, strict=True)
    ]
    files = (name if name in downloadable() else os.path.abspath(name) for name in networks)
    job = ExtractionJob(tuple(files), extractor.fingerprint, on_error)
    bar = Progress("shards", len(shards))
    summaries: list[ExtractedShard] = []
    work = partial(extract_shard, job)
    for summary in ordered_map(work, shards, workers=workers, scheduler=scheduler):
        summaries.append(summary)
        if progress:
            bar.step(len(summaries), f"{sum(done.vectors for done in summaries)} vectors")
    return summaries


def _selected(recordings: Recordings, rows: slice) -> Recordings:
    """Return the recordings in these rows, with absolute paths: a worker may run in another folder."""
    files = [
        replace(item, path=Path(os.path.abspath(item.path))) for item in recordings.files[rows]
    ]
    labels = {view: column[rows] for view, column in recordings.labels.items()}
    return Recordings(recordings.ids[rows], files, labels)


def extract_shard(job: ExtractionJob, shard: tuple[str, Recordings]) -> ExtractedShard:
    """Extract and write one shard, unless it is finished: the function that every worker runs."""
    path, recordings = shard
    files = [[str(item.path), item.start, item.length] for item in recordings.files]
    states = [file_state(item.path) for item in recordings.files]
    digest = settings_digest(
        job.fingerprint, job.on_error, recordings.ids, recordings.labels, files, states
    )
    finished = finished_summary(path, digest)
    if finished is not None:
        return ExtractedShard.of_note(finished)
    extractor = _load_once(job.networks)
    if extractor.fingerprint != job.fingerprint:
        raise FileFormatError(
            f"the extractor {'+'.join(job.networks)} of this worker differs from that of the process that started the "
            "work: install the same version of mvplda and the same weights on every machine"
        )
    summary = _extract(extractor, job.on_error, path, recordings)
    write_note(path, digest, asdict(summary))
    return summary


def _extract(
    extractor: Extractor, on_error: OnError, path: str, recordings: Recordings
) -> ExtractedShard:
    """Extract the vectors of recordings and write them with their labels."""
    extracted = extractor.extract(recordings.files, on_error=on_error)
    ids = [recordings.ids[row] for row in extracted.rows]
    labels = {
        view: [column[row] for row in extracted.rows] for view, column in recordings.labels.items()
    }
    if ids:
        write_vectors(path, VectorSet(np.array(ids), extracted.X, extractor.name), labels)
    else:
        Path(path).unlink(missing_ok=True)  # an earlier run may have had other recordings
    has_vector = set(extracted.rows)
    without = [name for row, name in enumerate(recordings.ids) if row not in has_vector]
    reasons = [" ".join(reason.split()) for _, reason in extracted.skipped]
    counts: Counter[str] = Counter()
    first: dict[str, str] = {}
    for name, quality in zip(ids, extracted.qualities, strict=True):
        counts.update(quality.warnings)
        for fault in quality.warnings:
            first.setdefault(fault, name)
    return ExtractedShard(
        path,
        len(recordings.ids),
        len(ids),
        sum(quality.usable for quality in extracted.qualities),
        list(zip(without, reasons, strict=True)),
        {fault: (count, first[fault]) for fault, count in counts.items()},
    )


@lru_cache(maxsize=1)
def _load_once(networks: tuple[str, ...]) -> Extractor:
    """Load an extractor once per process."""
    return load_extractor(list(networks), check=False)


def merged(summaries: Sequence[ExtractedShard], output: str) -> ExtractedShard:
    """Add up the summaries of shards; raise `DataError` if there is no vector."""
    faults: dict[str, tuple[int, str]] = {}
    for summary in summaries:
        for fault, (count, name) in summary.faults.items():
            earlier, first = faults.get(fault, (0, name))
            faults[fault] = (earlier + count, first)
    whole = ExtractedShard(
        output,
        sum(summary.recordings for summary in summaries),
        sum(summary.vectors for summary in summaries),
        sum(summary.usable for summary in summaries),
        [pair for summary in summaries for pair in summary.skipped],
        faults,
    )
    if not whole.vectors:
        raise DataError(f"none of {whole.recordings} recordings is usable: no vectors were written")
    return whole
