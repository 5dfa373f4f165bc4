"""Extraction of the vectors of many recordings, split into shards among processes or the workers of a cluster.

A shard is a file with the vectors of consecutive recordings.
"""

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
"""Default number of recordings per shard; their vectors take one core some minutes."""

SHARD_FORMATS = (".npz", ".parquet")
"""File formats of shards, which store labels beside the vectors."""


@dataclass(frozen=True)
class ExtractedShard:
    """Summary of an extracted shard.

    path : file with the vectors
    recordings : number of recordings
    vectors : number of recordings with a vector
    usable : number of recordings with usable speech
    skipped : (id, reason) of each recording without a vector
    faults : {name of a fault, such as "noisy": (number of recordings with it, id of the first)}
    """

    path: str
    recordings: int
    vectors: int
    usable: int
    skipped: list[tuple[str, str]]
    faults: dict[str, tuple[int, str]]

    @classmethod
    def of_note(cls, values: Mapping[str, Any]) -> ExtractedShard:
        """Build the summary of a shard from its note, a JSON file beside the shard.

        values : content of the note; its lists become the tuples of the summary
        """
        skipped = [(name, reason) for name, reason in values["skipped"]]
        faults = {fault: (count, name) for fault, (count, name) in values["faults"].items()}
        return cls(**{**values, "skipped": skipped, "faults": faults})


@dataclass(frozen=True)
class ExtractionJob:
    """Settings of an extraction that apply to every shard.

    networks : names or files of the networks
    fingerprint : SHA-256 of all networks and their recipes, which every worker must reproduce
    on_error : "raise" stops at an unusable recording; "skip" leaves it out
    """

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
    """Extract the vectors of recordings in shards, and write one file of vectors, ids and labels per shard.

    The files are bit-identical for any number of workers. After an interruption a call with the same arguments
    continues: shards whose file is finished and whose recordings are unchanged are not extracted again.

    Parameters
    ----------
    recordings : the recordings; each shard takes the next `shard_size` of them
    networks : names or files of the networks, which every worker must have
    output : name of the files, .npz or .parquet, with ``{shard}`` for the number
    shard_size : number of recordings per shard
    on_error : "raise" stops at an unusable recording; "skip" leaves it out and lists it in the summary
    workers : number of processes; 1 runs in this process
    scheduler : address of a Dask scheduler, whose workers replace the processes
    progress : write a line per shard to standard error

    Returns
    -------
    one summary per shard, in order; `merged` adds them up

    Raises
    ------
    ParameterError
        The format of `output` cannot store labels, or `shard_size` is below 1.
    AudioError
        A recording is unusable, and `on_error` is "raise".
    """
    if suffix_of(output) not in SHARD_FORMATS:
        raise ParameterError(
            f"expected shards in a format with labels: the output must end in {' or '.join(SHARD_FORMATS)}; got "
            f"{output}"
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
    """Select recordings by their rows and make their paths absolute, because workers may run in another folder."""
    files = [
        replace(item, path=Path(os.path.abspath(item.path))) for item in recordings.files[rows]
    ]
    labels = {view: column[rows] for view, column in recordings.labels.items()}
    return Recordings(recordings.ids[rows], files, labels)


def extract_shard(job: ExtractionJob, shard: tuple[str, Recordings]) -> ExtractedShard:
    """Extract the vectors of one shard and write its file, unless a finished file exists; workers run this function.

    Parameters
    ----------
    job : settings of the extraction
    shard : path of the file to write, and the recordings

    Returns
    -------
    summary of the shard, which is read from its note if the file was finished

    Raises
    ------
    FileFormatError
        The networks of this worker have another fingerprint than those of the job.
    """
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
    """Extract the vectors of recordings and write them, with ids and labels, to the file `path`.

    No file is written if no recording has a vector.
    """
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
    """Load the extractor of the given networks, once per process."""
    return load_extractor(list(networks), check=False)


def merged(summaries: Sequence[ExtractedShard], output: str) -> ExtractedShard:
    """Return the summary of all shards together: numbers are added, lists are joined.

    Parameters
    ----------
    summaries : one summary per shard
    output : value of `path` in the result, such as the pattern of the shards' names

    Raises
    ------
    DataError
        No recording has a vector.
    """
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
        reason = (
            f", for example {whole.skipped[0][0]}: {whole.skipped[0][1]}" if whole.skipped else ""
        )
        raise DataError(
            f"none of {whole.recordings} recordings is usable{reason}. No vectors were written"
        )
    return whole
