"""Storage of the frames (acoustic features) of many utterances in a memory-mapped file.

The frames of a large corpus take much memory: those of RSR2015 part I about 4 GB. They are mapped from a file, so that
only the frames of recent batches are in memory. The file is written utterance by utterance, so that an interrupted
extraction continues after the last utterance in the index.
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
"""Approximate number of frames that are processed together, for example when their mean is computed."""
BYTES = np.dtype(np.float32).itemsize


@dataclass(frozen=True)
class FeatureSet:
    """Frames of n utterances; indexing with i returns the (T, D) frames of utterance i.

    Attributes
    ----------
    frames : (total, D) float32 frames of the utterances; there may be frames of others between them
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
        """Select the utterances with the given indices, in that order, without copying frames."""
        return FeatureSet(self.frames, self.first[rows], self.lengths[rows], self.mapping)

    def blocks(self) -> Iterator[FloatArray]:
        """Yield all frames in blocks (frames, D) of whole utterances, with about `BLOCK_FRAMES` frames each."""
        block = (np.cumsum(self.lengths) - 1) // BLOCK_FRAMES
        for rows in np.split(np.arange(len(self)), np.flatnonzero(np.diff(block)) + 1):
            yield np.concatenate([self[i] for i in rows])
            self.release()

    def release(self) -> None:
        """Let the operating system free the memory of mapped frames, which are read from the file again when used."""
        if self.mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
            self.mapping.madvise(mmap.MADV_DONTNEED)


@dataclass(frozen=True)
class IndexEntry:
    """Entry of the index of a `FrameStore`, about one utterance.

    stamp : digest by which a later run detects that the recording or its processing has changed
    frames, width : number of frames and their dimension; 0 for an unusable recording
    reason : reason why the recording is unusable; "" for a usable recording
    """

    stamp: str
    frames: int = 0
    width: int = 0
    reason: str = ""

    @property
    def size(self) -> int:
        """Size of the frames in the file, in bytes."""
        return self.frames * self.width * BYTES


class FrameStore:
    """Frames of utterances in a folder: the file ``frames.f32``, and an index with one line per utterance.

    The frames of an utterance are written before its line of the index. A process that is killed therefore loses at
    most one utterance.

    Parameters
    ----------
    folder : folder of the files; it is created
    stamps : digest of each utterance that will be stored, in order. Utterances that an earlier process stored remain,
        up to the first one whose digest differs

    Attributes
    ----------
    path, index : files of the frames and of the index
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
        """Return an iterator that stores one further utterance per step.

        Parameters
        ----------
        stamps : digest of each utterance
        utterances : (T, D) frames of each utterance, or the reason why it is unusable

        Returns
        -------
        number of stored utterances after each step
        """
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
        """Return the frames of the usable utterances, mapped from the file; at least one utterance must be usable."""
        usable = [entry for entry in self.entries if not entry.reason]
        lengths = np.array([entry.frames for entry in usable], dtype=np.int64)
        with self.path.open("rb") as file:
            # a private map: torch warns of arrays that are not writable
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        frames = np.frombuffer(mapping, dtype=np.float32).reshape(-1, usable[0].width)
        return FeatureSet(frames, np.cumsum(lengths) - lengths, lengths, mapping)
