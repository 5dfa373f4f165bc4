"""What a run has made so far: a file that grows with every vector, so that a run which was ended goes on from there."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from .quality import Quality
from .reading import Clip
from .sound import Source

Made = tuple[NDArray[np.float32], Quality]


class Unfinished:
    """Vectors of a run by recording, one JSON line each; the first line names what they were made with.

    Parameters
    ----------
    path : the file; one of another extractor or other settings is begun anew
    made_with : all that the vectors depend on besides the recordings
    """

    def __init__(self, path: str | os.PathLike[str], made_with: str) -> None:
        self.path = Path(path)
        self._made: dict[str, Made] = {}
        self._header = json.dumps({"made_with": made_with})
        self._file: IO[str] | None = None
        if self.path.is_file():
            self._read()

    def __len__(self) -> int:
        return len(self._made)

    def get(self, source: Source) -> Made | None:
        """What was made of a recording, where that has not changed since."""
        key = _key(source)
        return None if key is None else self._made.get(key)

    def add(self, source: Source, vector: NDArray[np.float32], quality: Quality) -> None:
        """Keep what was made of a recording; samples that lie in no file are not kept."""
        key = _key(source)
        if key is None:
            return
        if self._file is None:
            # lines that are there are kept; what a kill left of the last one ends with a line of its own
            self._file = self.path.open("a" if self._made else "w", encoding="utf-8")
            self._file.write("\n" if self._made else self._header + "\n")
        line = {
            "of": key,
            "vector": base64.b64encode(vector.astype("<f4").tobytes()).decode(),
            "quality": quality.to_dict(),
        }
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Write no more; the file stays."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self) -> None:
        header, *lines = self.path.read_text(encoding="utf-8").split("\n")
        if header != self._header:
            return
        for text in lines:
            try:
                line = json.loads(text)
            except ValueError:
                continue
            values: dict[str, Any] = line["quality"]
            quality = Quality(**{**values, "warnings": tuple(values["warnings"])})
            vector = np.frombuffer(base64.b64decode(line["vector"]), "<f4").astype(np.float32)
            self._made[line["of"]] = vector, quality


def _key(source: Source) -> str | None:
    """Of a recording: where it is, how long its file is and when that was written; None where it is not in a file."""
    if isinstance(source, np.ndarray):
        return None
    clip = source if isinstance(source, Clip) else Clip(Path(str(source)))
    path = clip.path.resolve()
    try:
        state = path.stat()
    except OSError:
        return None
    parts = [str(path), str(clip.stretch), str(state.st_size), str(state.st_mtime_ns)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
