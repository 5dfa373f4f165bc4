"""Numbered output files of shards, each with a note of the inputs and settings that it was made from.

A run that continues after an interruption reads the notes, and computes only the shards whose output is missing or was
made from other inputs or settings. The note of PART is the file PART.finished.
"""

from __future__ import annotations

import hashlib
import json
import os
from glob import escape, glob
from pathlib import Path
from typing import Any

from .._typing import PathLike
from ..atomic_files import check_writable, write_atomically
from ..exceptions import ParameterError

SHARD = "{shard}"
"""Placeholder for the number of the shard in the name of an output."""

NOTE_SUFFIX = ".finished"


def is_sharded(pattern: str) -> bool:
    """Return whether the name of an output contains the placeholder {shard}."""
    return SHARD in pattern


def shard_paths(pattern: str, count: int) -> list[str]:
    """Return the absolute output path of each shard, and create their folder.

    Raises `ParameterError` if files of an earlier run match the pattern with other numbers: a reader of all files that
    match would mix both runs.

    pattern : path with {shard} once in the file name; the numbers of the shards, from 00000, replace it
    count : number of shards
    """
    if not is_sharded(Path(pattern).name) or pattern.count(SHARD) > 1:
        raise ParameterError(
            f"expected a file name with one {SHARD}, which stands for the number of the shard, such as "
            f"vectors/part-{SHARD}.npz; got {pattern}"
        )
    pattern = os.path.abspath(pattern)
    digits = max(5, len(str(count - 1)))
    paths = [pattern.replace(SHARD, f"{number:0{digits}}") for number in range(count)]
    Path(pattern).parent.mkdir(parents=True, exist_ok=True)
    before, after = map(escape, pattern.split(SHARD))
    unrelated = sorted({*glob(f"{before}[0-9]*{after}")} - set(paths))
    if unrelated:
        raise ParameterError(
            f"{unrelated[0]} is not a shard of this run, which has {count} shard(s); it is probably of an earlier run: "
            "delete it, or choose another name for the output"
        )
    check_writable(paths[0])
    return paths


def file_state(path: PathLike) -> list[int]:
    """Return [size in bytes, modification time in ns] of a file; [] if the file does not exist.

    If two calls give different results, the file has changed in between.
    """
    try:
        state = os.stat(path)
    except OSError:
        return []
    return [state.st_size, state.st_mtime_ns]


def settings_digest(*values: Any) -> str:
    """Return the SHA-256 digest, in hexadecimal, of plain values such as the inputs and settings of a shard."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def finished_summary(path: str, digest: str) -> Any:
    """Return the summary that `write_note` stored for a finished shard, or None if the shard must be computed.

    A shard must be computed if it has no note, if its output has changed since the note was written, or if the note
    has another digest.

    path : path of the shard's output
    digest : `settings_digest` of the inputs and settings
    """
    try:
        note = json.loads(Path(path + NOTE_SUFFIX).read_bytes())
        if note["digest"] == digest and note["output"] == file_state(path):
            return note["summary"]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # a damaged note is written again with its shard
    return None


def write_note(path: str, digest: str, summary: Any) -> None:
    """Record in a note that a shard is finished; call it after the output is written.

    path : path of the shard's output. The file need not exist: a shard without usable recordings has none
    digest : `settings_digest` of the inputs and settings
    summary : values that JSON can store; a later run gets them from `finished_summary`
    """
    note = {"digest": digest, "output": file_state(path), "summary": summary}
    write_atomically(path + NOTE_SUFFIX, json.dumps(note).encode())
