"""Kaldi archives of vectors: ``.ark`` and ``.scp``, binary and text.

Every length is checked against the file before it is believed. Nothing that a file holds is
run: an entry that is a command (``... |``) or a pickle is an error.

A path inside an ``.scp`` is tried as it stands, then beside the ``.scp``.
"""

from __future__ import annotations

import math
import mmap
import os
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path

import numpy as np

from .._typing import FloatArray, PathLike
from .batches import Batch, Reader, Vectors, joined, rows_of_batch
from .kaldi_names import BINARY, ID, kaldi_files, parse_name
from .streams import Names, OnDisk, fail, lines_of, wrap_reader_errors

Buffer = bytes | mmap.mmap
HEADER = re.compile(rb"([FD])(?:V \x04(....)|M \x04(....)\x04(....))", re.DOTALL)
"""Float or double, a vector with its width or a matrix with its shape."""
BRACKETS = re.compile(rb"[ \t\r\n]*\[([^\]]*)\]")
FLOATS: dict[bytes, np.dtype[np.floating]] = {b"F": np.dtype("<f4"), b"D": np.dtype("<f8")}
FIRST_ROWS = 64
"""Of a script or an archive: the width of its vectors is not known before."""


Entry = tuple[str, str, int, int]
"""A vector that was found: its id, its archive, its place there, and the number of its line or entry."""


class KaldiReader(Reader):
    """Lines of ``id archive:offset``, or an archive from its beginning to its end.

    Vectors of one archive that all have the header of the first are gathered in one step; others
    (text, another type) one by one. Pages of an archive that were used are given back.
    """

    def __init__(self, path: PathLike, source: OnDisk | None = None) -> None:
        self.path, self.is_script = parse_name(path)
        self.source = source or OnDisk(self.path)
        self.opened: dict[str, Buffer] = {}

    def batches(self, batch_bytes: int, columns: Sequence[str], ids: bool) -> Iterator[Batch]:
        entries = self._of_archive()
        if self.is_script:
            entries = self._of_script()
        step = FIRST_ROWS
        with wrap_reader_errors(self.path, "a Kaldi archive"):
            while some := list(islice(entries, step)):
                X = self._vectors(some)
                step = rows_of_batch(batch_bytes, X.shape[1] * X.itemsize)
                yield Batch(X, [name for name, _, _, _ in some])
                for data in self.opened.values():
                    if isinstance(data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
                        data.madvise(mmap.MADV_DONTNEED)
        if not any(self.opened.values()):
            fail(self.path, "the script or archive is empty")

    def _of_script(self) -> Iterator[Entry]:
        for number, line in enumerate(lines_of(self.source), 1):
            fields = line.strip().split(None, 1)
            if not fields:
                continue
            name = fields[0].decode()
            where = fields[-1].decode()
            # brackets: a part of a matrix; bars: a command
            if len(fields) < 2 or where.endswith(("]", "|")) or where.startswith("|"):
                reason = "expected 'id archive:offset'; commands are not run: write their output"
                fail(self.path, f"{line.decode()!r}; {reason}", number)
            archive, _, offset = where.rpartition(":")
            if not (offset.isdecimal() and offset.isascii() and len(offset) < 19 and archive):
                archive = where
                offset = "0"
            if archive not in self.opened:
                place = self._find(archive, name, number)
                self.files = (*self.files, place)
                self.opened[archive] = _mapped(OnDisk(place))
            yield name, archive, int(offset), number

    def _find(self, archive: str, name: str, number: int) -> str:
        for candidate in (Path(archive), Path(self.path).parent / archive):
            with suppress(OSError, ValueError):  # no name that a file can have
                if candidate.exists():
                    return str(candidate)
        raise FileNotFoundError(
            f"{self.path}, line {number}: there is no archive {archive} for {name!r}"
        )

    def _of_archive(self) -> Iterator[Entry]:
        data = self.opened[self.path] = _mapped(self.source)
        place = behind_blanks(data, 0)
        number = 0
        while place < len(data):
            number += 1
            found = ID.match(data, place)
            if found is None:
                came = bytes(data[place : place + 20])
                fail(self.path, f"entry {number} (byte {place}): expected an id; got {came!r}")
            start = found.end()
            entry = (found[1].decode(), self.path, start, number)
            yield entry
            # the numbers of most entries are read later, all at once
            plain = _plain(data, start)
            if plain is None or start + plain[1] > len(data):
                end = read_entry(data, start, self._where(entry))[1]
            else:
                end = start + plain[1]
            place = behind_blanks(data, end)

    def _where(self, entry: Entry) -> str:
        """How errors call an entry."""
        name, archive, place, number = entry
        if not self.is_script:
            return f"{self.path}, entry {number} ({name!r})"
        return f"{self.path}, line {number} ({name!r} in {archive}:{place})"

    def _vectors(self, entries: Sequence[Entry]) -> FloatArray:
        parts: list[tuple[str, FloatArray]] = []
        for archive, group in groupby(entries, key=itemgetter(1)):
            some = list(group)
            data = self.opened[archive]
            X = _gathered(data, [place for _, _, place, _ in some])
            if X is not None:
                parts.append((some[0][0], X))
                continue
            for entry in some:
                array = np.atleast_2d(read_entry(data, entry[2], self._where(entry))[0])
                if len(array) != 1:
                    fail(
                        self._where(entry),
                        f"a matrix of shape {array.shape}; expected a vector",
                    )
                parts.append((entry[0], array))
        return np.asarray(joined(self.path, parts), dtype=parts[0][1].dtype)


def read_entry(data: Buffer, place: int, where: str) -> tuple[FloatArray, int]:
    """The vector or matrix at a place, and the place behind it."""
    if data[place : place + 2] == BINARY:
        return read_binary(data, place + 2, where)
    return read_text(data, place, where)


def read_binary(data: Buffer, place: int, where: str) -> tuple[FloatArray, int]:
    """The array at a place behind Kaldi's binary mark, and the place behind it."""
    found = HEADER.match(data, place)
    if found is None:
        came = bytes(data[place : place + 5])
        wanted = "a vector or matrix of floats (FV, DV, FM, DM), not compressed"
        fail(where, f"expected {wanted}; the entry begins with {came!r}, or the file ends there")
    sizes = [size for size in found.groups()[1:] if size is not None]
    shape = struct.unpack(f"<{len(sizes)}i", b"".join(sizes))
    dtype = FLOATS[found[1]]
    end = found.end() + math.prod(shape) * dtype.itemsize
    if min(shape) < 0 or end > len(data):
        left = len(data) - found.end()
        fail(where, f"truncated: the entry has shape {shape}, {left} bytes are left in the file")
    array = np.frombuffer(data[found.end() : end], dtype).reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=False), end


def read_text(data: Buffer, place: int, where: str) -> tuple[FloatArray, int]:
    """The array in brackets at a place, and the place behind it."""
    found = BRACKETS.match(data, place)
    if found is None:
        start = bytes(data[place : place + 10])
        fail(where, f"expected '[', numbers and ']', or a binary vector; got {start!r}")
    rows = [line.split() for line in found[1].split(b"\n")]
    try:
        array = np.array([[float(number) for number in row] for row in rows if row])
    except ValueError as error:
        fail(where, f"expected numbers in brackets, as many in every row: {error}")
    if len(array) == 1:
        array = array[0]
    return array, found.end()


def _plain(data: Buffer, place: int) -> tuple[bytes, int] | None:
    """Type of a binary vector of floats, and its bytes with its header; None where something else stands."""
    found = HEADER.match(data, place + 2)
    if found is None or found[2] is None or data[place : place + 2] != BINARY:
        return None
    count = int.from_bytes(found[2], "little", signed=True)
    if count <= 0:
        return None
    return found[1], 10 + count * FLOATS[found[1]].itemsize


def _gathered(data: Buffer, places: Sequence[int]) -> FloatArray | None:
    """Binary vectors at these places, where all have one header; else None."""
    head = _plain(data, places[0])
    if head is None or max(places) + head[1] > len(data):
        return None
    dtype = FLOATS[head[0]]
    raw = np.frombuffer(data, dtype=np.uint8)
    rows = np.lib.stride_tricks.sliding_window_view(raw, head[1])[np.array(places)]
    if not (rows[:, :10] == rows[0, :10]).all():
        return None
    X = np.ascontiguousarray(rows[:, 10:]).view(dtype)
    return X.astype(dtype.newbyteorder("="), copy=False)


def _mapped(source: OnDisk) -> Buffer:
    if os.stat(source.file).st_size == 0:
        return b""  # cannot be mapped
    with open(source.file, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def behind_blanks(data: Buffer, place: int) -> int:
    while data[place : place + 1].isspace():
        place += 1
    return place


def write_kaldi(path: PathLike, parts: Sequence[Path], ids: Names, X: Vectors) -> None:
    """Write an archive, and a script where the name asks for one, to the files given."""
    archive = kaldi_files(path)[0]
    lines = []
    with parts[0].open("wb") as file:
        for name, row in zip(ids.tolist(), X, strict=True):
            file.write(f"{name} ".encode())
            lines.append(f"{name} {archive}:{file.tell()}\n")
            file.write(BINARY + binary_array(row))
    for script in parts[1:]:
        script.write_bytes("".join(lines).encode())


def binary_array(array: FloatArray) -> bytes:
    """A vector or matrix as Kaldi writes it, behind the binary mark."""
    kind = "F" if array.dtype == np.float32 else "D"
    sizes = b"".join(b"\4" + struct.pack("<i", size) for size in array.shape)
    numbers = array.astype(FLOATS[kind.encode()]).tobytes()
    return f"{kind}{'VM'[array.ndim - 1]} ".encode() + sizes + numbers
