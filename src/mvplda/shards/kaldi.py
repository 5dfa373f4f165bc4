"""Kaldi scripts and archives as shards.

Vectors of one archive that all have the header of the first are gathered in one step; others
(text, another type, compressed) one by one. Pages of an archive that were used are given back.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..io.ark import BINARY, FLOATS, Buffer, _find, _name, _open, _skip_blanks, parse_name, read_vector
from ..io.numpy_files import must_exist
from ..io.rows import stacked
from ..io.text import LONGEST_ID, fail
from .readers import RawBatch, Rows, rows_of_batch

FIRST_ROWS = 64
"""Of a script: the width of its vectors is not known before."""


class KaldiReader:
    """Lines of ``id archive:offset``, or an archive from its beginning to its end."""

    columns: tuple[str, ...] = ()
    has_ids = True

    def __init__(self, path: str) -> None:
        target = parse_name(path)
        self.scp = target.scp
        self.path = str(target.scp if target.scp is not None else target.ark)
        must_exist(self.path)
        self.opened: dict[str, Buffer] = {}
        self.places: dict[str, str] = {}

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(self.places.values())

    def cuts(self) -> Sequence[int]:
        return ()

    def batches(
        self, batch_bytes: int, columns: Sequence[str], ids: bool, rows: Rows | None = None
    ) -> Iterator[RawBatch]:
        entries = self._of_script() if self.scp is not None else self._of_archive()
        step, width, empty = FIRST_ROWS, None, True
        while batch := list(islice(entries, step)):
            names = [name for name, _, _ in batch]
            X = self._vectors(batch)
            if width is not None and X.shape[1] != width:
                fail(self.path, f"the vector of {names[0]!r} has width {X.shape[1]}; those before have {width}")
            width, empty = X.shape[1], False
            step = rows_of_batch(batch_bytes, X.shape[1] * X.itemsize)
            yield RawBatch(X, names)
            for data in self.opened.values():
                if isinstance(data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
                    data.madvise(mmap.MADV_DONTNEED)
        if empty:
            fail(self.path, "the file holds no vectors")

    def _of_script(self) -> Iterator[tuple[str, str, int]]:
        """Id, archive and place of every line."""
        with open(self.path, "rb") as file:
            for number, line in enumerate(file, 1):
                fields = line.removeprefix(b"\xef\xbb\xbf").strip().split(None, 1)
                if not fields:
                    continue
                if len(fields) != 2:
                    fail(self.path, "one field; expected 'id archive:offset'", number)
                name, where = _name(self.path, fields[0], number), fields[1].decode("utf-8", "replace")
                if where[-1] in "|]" or where[0] == "|":
                    fail(self.path, f"{name!r} is {where[:60]!r}: a command or a part; expected a vector", number)
                archive, colon, offset = where.rpartition(":")
                if not colon or not offset.isdecimal():
                    archive, offset = where, "0"
                if archive not in self.opened:
                    self.places[archive] = str(_find(self.path, archive, name, number))
                    self.opened[archive] = _open(self.places[archive])
                yield name, archive, int(offset)

    def _of_archive(self) -> Iterator[tuple[str, str, int]]:
        data = self.opened[self.path] = _open(self.path)
        place, number = 0, 0
        while (place := _skip_blanks(data, place)) < len(data):
            number += 1
            end = data.find(b" ", place, place + 4 * LONGEST_ID)
            if end < 0:
                fail(self.path, f"entry {number} (byte {place}): the file ends, or turns to noise, within an id")
            name = _name(self.path, data[place:end], number)
            yield name, self.path, end + 1
            size = _plain_size(data, end + 1)
            if size is None or end + 1 + size > len(data):
                place = read_vector(data, end + 1, f"{self.path}, entry {number} ({name!r})")[1]
            else:
                place = end + 1 + size

    def _vectors(self, batch: Sequence[tuple[str, str, int]]) -> NDArray[Any]:
        names = [name for name, _, _ in batch]
        parts: list[NDArray[Any]] = []
        for archive, group in groupby(batch, key=lambda entry: entry[1]):
            entries = list(group)
            places = np.array([place for _, _, place in entries])
            together = _gathered(self.opened[archive], places)
            if together is None:
                rows = [read_vector(self.opened[archive], p, f"{self.path} ({n!r} in {archive}:{p})")[0]
                        for n, _, p in entries]  # fmt: skip
                together = stacked(self.path, [name for name, _, _ in entries], rows)
            parts.append(together)
        if len({part.shape[1] for part in parts}) > 1:
            return stacked(self.path, names, [row for part in parts for row in part])  # for the error
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _plain_size(data: Buffer, place: int) -> int | None:
    """Bytes of a binary vector of floats with its header; None where something else stands."""
    head = bytes(data[place : place + 10])
    if len(head) < 10 or head[:2] != BINARY or head[2:4] not in (b"FV", b"DV") or head[4:6] != b" \4":
        return None
    count = int(struct.unpack("<i", head[6:10])[0])
    return 10 + count * np.dtype(FLOATS[head[2:4]]).itemsize if count > 0 else None


def _gathered(data: Buffer, places: NDArray[np.int64]) -> NDArray[Any] | None:
    """Binary vectors at these places, where all have one header; else None."""
    size = _plain_size(data, int(places[0]))
    if size is None or int(places.max()) + size > len(data):
        return None
    raw = np.frombuffer(data, dtype=np.uint8)
    rows = np.lib.stride_tricks.sliding_window_view(raw, size)[places]
    if not (rows[:, :10] == rows[0, :10]).all():
        return None
    dtype = np.dtype(FLOATS[bytes(rows[0, 2:4])])
    return np.ascontiguousarray(rows[:, 10:]).view(dtype).astype(dtype.newbyteorder("="), copy=False)
