"""Frames of many utterances in a memory-mapped file, which is written utterance by utterance.

The frames of a large corpus need more memory than its network: RSR2015 part I has about 4 GB of them. They are mapped
from a file, so that only the frames of recent batches are in memory, and an interrupted extraction continues after the
last utterance of the index.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from .._typing import FloatArray, IntArray

BLOCK_FRAMES = 1 << 16
"""Frames that are processed together, such as those of a mean."""
BYTES = np.dtype(np.float32).itemsize


@dataclass(frozen=True)
class FeatureSet:
    """Frames of many utterances.

    Attributes
    ----------
    frames : (total, D) float32, frames of these and possibly of other utterances
    first : (n,) index of the first frame of each utterance
    lengths : (n,) number of frames of each utterance
    mapping : the memory map that contains the frames; None for an array in memory
    """

    frames: FloatArray
    first: IntArray
    lengths: IntArray
    mapping: mmap.mmap | None = field(default=None, repr=False)

    @classmethod
    def of(cls, utterances: Iterable[FloatArray]) -> FeatureSet:
        """Concatenate utterances, one (T, D) array of frames per utterance."""
        arrays = list(utterances)
        lengths = np.array([len(frames) for frames in arrays], dtype=np.int64)
        return cls(np.concatenate(arrays), np.cumsum(lengths) - lengths, lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i: int) -> FloatArray:
        return self.frames[self.first[i] : self.first[i] + self.lengths[i]]

    @property
    def n_frames(self) -> int:
        """Number of frames of all utterances."""
        return int(self.lengths.sum())

    def take(self, rows: IntArray) -> FeatureSet:
        """Return the utterances at `rows`, in that order, without a copy of their frames."""
        return FeatureSet(self.frames, self.first[rows], self.lengths[rows], self.mapping)

    def blocks(self) -> Iterator[FloatArray]:
        """Yield the frames in order, in blocks of whole utterances with about `BLOCK_FRAMES` frames."""
        block = (np.cumsum(self.lengths) - 1) // BLOCK_FRAMES
        for rows in np.split(np.arange(len(self)), np.flatnonzero(np.diff(block)) + 1):
            yield np.concatenate([self[i] for i in rows])
            self.release()

    def release(self) -> None:
        """Allow the system to take back the memory of the mapped frames; they are read again when needed."""
        if self.mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
            self.mapping.madvise(mmap.MADV_DONTNEED)


@dataclass(frozen=True)
class IndexEntry:
    """Entry of the index of a `FrameStore`.

    stamp : description of the recording and of its processing
    frames, width : number of frames and their dimension; 0 for an unusable recording
    reason : reason why the recording is unusable, or an empty text
    """

    stamp: str
    frames: int = 0
    width: int = 0
    reason: str = ""

    @property
    def size(self) -> int:
        """Number of bytes of the frames."""
        return self.frames * self.width * BYTES


class FrameStore:
    """Frames of utterances in a folder: the file ``frames.f32`` and its index, one line per utterance.

    The frames of an utterance are written before its line of the index, so that a process that is killed loses at most
    the last utterance.

    Parameters
    ----------
    folder : folder of the files; it is created
    stamps : description of each utterance that will be stored, in order. Utterances that an earlier process stored are
        kept up to the first with another description

    Attributes
    ----------
    entries : entries of the stored utterances
    """

    def __init__(self, folder: Path, stamps: Sequence[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "frames.f32"
        self.index = folder / "frames.index"
        self.entries: list[IndexEntry] = []
        self.path.touch()
        self.index.touch()
        remaining = self.path.stat().st_size
        lines = self.index.read_bytes().splitlines(keepends=True)
        for line, stamp in zip(lines, stamps, strict=False):
            try:
                entry = IndexEntry(*json.loads(line))
            except (ValueError, TypeError):
                # an incomplete line
                break
            remaining -= entry.size
            if entry.stamp != stamp or remaining < 0 or not line.endswith(b"\n"):
                break
            self.entries.append(entry)
        kept_lines = lines[: len(self.entries)]
        for path, size in (
            (self.path, sum(entry.size for entry in self.entries)),
            (self.index, sum(map(len, kept_lines))),
        ):
            with path.open("r+b") as file:
                file.truncate(size)

    def add(self, stamps: Iterable[str], utterances: Iterable[FloatArray | str]) -> Iterator[int]:
        """Store further utterances, given by their frames or by the reason why they are unusable; yield the count."""
        # unbuffered: a killed process must not lose the frames of an utterance in the index
        with (
            self.path.open("ab", buffering=0) as frames_file,
            self.index.open("ab", buffering=0) as index_file,
        ):
            for stamp, frames in zip(stamps, utterances, strict=True):
                if isinstance(frames, str):
                    entry = IndexEntry(stamp, reason=frames)
                else:
                    frames_file.write(np.ascontiguousarray(frames, dtype=np.float32).data)
                    entry = IndexEntry(stamp, *frames.shape)
                index_file.write(f"{json.dumps(list(vars(entry).values()))}\n".encode())
                self.entries.append(entry)
                yield len(self.entries)

    def features(self) -> FeatureSet:
        """Return the usable utterances; their frames are mapped from the file."""
        usable = [entry for entry in self.entries if not entry.reason]
        lengths = np.array([entry.frames for entry in usable], dtype=np.int64)
        with self.path.open("rb") as file:
            # a private map: torch warns of arrays that are not writable
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        frames = np.frombuffer(mapping, dtype=np.float32).reshape(-1, usable[0].width)
        return FeatureSet(frames, np.cumsum(lengths) - lengths, lengths, mapping)
