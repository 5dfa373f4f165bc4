"""Files of finished shards: numbered outputs, each with a note of the inputs and settings that made it.

A run that continues after an interruption compares the notes, and computes only shards whose output is missing or was
made from other inputs.
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
"""Field of an output's name that is replaced by the number of the shard."""

NOTE_SUFFIX = ".finished"


def is_sharded(pattern: str) -> bool:
    """Return whether the name of an output contains the field for the number of a shard."""
    return SHARD in pattern


def shard_paths(pattern: str, count: int) -> list[str]:
    """Return the absolute paths of the outputs of a number of shards; make their folder.

    Files of further shards, of an earlier run with more of them, are an error: readers of the whole folder would
    count them.
    """
    if not is_sharded(Path(pattern).name) or pattern.count(SHARD) > 1:
        raise ParameterError(
            f"expected a file name with one field {SHARD} for the number of the shard, such as "
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
            f"{unrelated[0]} is not a shard of this run, which has {count}: delete it, or choose another name for "
            "the output"
        )
    check_writable(paths[0])
    return paths


def file_state(path: PathLike) -> list[int]:
    """Return size and modification time of a file, to detect changes; empty if the file does not exist."""
    try:
        state = os.stat(path)
    except OSError:
        return []
    return [state.st_size, state.st_mtime_ns]


def settings_digest(*values: Any) -> str:
    """Return a digest of plain values: the inputs and settings of a shard."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def finished_summary(path: str, digest: str) -> Any:
    """Return the summary in the note of a finished shard; None if it must be computed."""
    try:
        note = json.loads(Path(path + NOTE_SUFFIX).read_bytes())
        if note["digest"] == digest and note["output"] == file_state(path):
            return note["summary"]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # a damaged note is written again with its shard
    return None


def write_note(path: str, digest: str, summary: Any) -> None:
    """Record that a shard is finished; call it after the output is written.

    summary : plain values; a shard without an output file, such as one without a usable recording, has a note too
    """
    note = {"digest": digest, "output": file_state(path), "summary": summary}
    write_atomically(path + NOTE_SUFFIX, json.dumps(note).encode())
