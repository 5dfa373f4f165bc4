"""Reader and writer of Kaldi's files of vectors: archives (``.ark``, binary or text) and scripts (``.scp``).

An archive contains vectors with their ids; a script lists, for each id, the archive and the offset of the vector. The
length of a vector is checked against the size of the file before the vector is read. Nothing in a file is executed: an
entry that is a command (``... |``) is an error. A path in a script is tried as it is, then relative to the folder of
the script.
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
from .batches import Batch, Reader, Vectors, rows_of_batch, stack_blocks
from .kaldi_names import BINARY, ID, kaldi_files, parse_name
from .streams import Names, OnDisk, fail, lines_of, wrap_reader_errors

Buffer = bytes | mmap.mmap
HEADER = re.compile(rb"([FD])(?:V \x04(....)|M \x04(....)\x04(....))", re.DOTALL)
"""Header of a binary array: F (float) or D (double), then V with a width, or M with a number of rows and of columns."""
BRACKETS = re.compile(rb"[ \t\r\n]*\[([^\]]*)\]")
"""Array in text: numbers in brackets, a row per line."""
FLOATS: dict[bytes, np.dtype[np.floating]] = {b"F": np.dtype("<f4"), b"D": np.dtype("<f8")}
FIRST_ROWS = 64
"""Number of vectors in the first batch of a file, when their width is not known yet."""


Entry = tuple[str, str, int, int]
"""Location of a vector: id, archive, offset in bytes, and number of its line in the script, or entry in the archive."""


class KaldiReader(Reader):
    """Reader of a script (lines of ``id archive:offset``) or of a whole archive.

    Binary vectors of one archive with equal types and widths are copied in one step; others are read one by one.
    Memory-mapped pages are released after every batch.

    path : name of the file, with or without a prefix such as ``scp:``
    source : the file, if the caller has opened it already; None: it is opened here
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
            while batch := list(islice(entries, step)):
                X = self._vectors(batch)
                step = rows_of_batch(batch_bytes, X.shape[1] * X.itemsize)
                yield Batch(X, [name for name, _, _, _ in batch])
                for data in self.opened.values():
                    if isinstance(data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
                        data.madvise(mmap.MADV_DONTNEED)
        if not any(self.opened.values()):
            fail(self.path, "the script or archive is empty")

    def _of_script(self) -> Iterator[Entry]:
        """Yield the `Entry` (id, archive, offset, line) of each line of a script, and open its archives."""
        for number, line in enumerate(lines_of(self.source), 1):
            fields = line.strip().split(None, 1)
            if not fields:
                continue
            name = fields[0].decode()
            location = fields[-1].decode()
            # brackets select rows of a matrix, bars are commands
            if len(fields) < 2 or location.endswith(("]", "|")) or location.startswith("|"):
                reason = (
                    "expected 'id archive:offset'; commands and ranges of rows are not supported: write the vectors "
                    "to an archive first"
                )
                fail(self.path, f"{line.decode()!r}; {reason}", number)
            archive, _, offset = location.rpartition(":")
            if not (offset.isdecimal() and offset.isascii() and len(offset) < 19 and archive):
                archive = location
                offset = "0"
            if archive not in self.opened:
                file = self._find(archive, name, number)
                self.files = (*self.files, file)
                self.opened[archive] = _mapped(OnDisk(file))
            yield name, archive, int(offset), number

    def _find(self, archive: str, name: str, number: int) -> str:
        """Return the path of an archive that a script names; raise `FileNotFoundError` if it is missing.

        name, number : id and line number of the entry of the script, for the error
        """
        for candidate in (Path(archive), Path(self.path).parent / archive):
            with suppress(OSError, ValueError):  # raised for names that no file can have
                if candidate.exists():
                    return str(candidate)
        raise FileNotFoundError(
            f"{self.path}, line {number}: the archive {archive} of {name!r} does not exist: correct its path, which "
            "may be relative to the folder of the script"
        )

    def _of_archive(self) -> Iterator[Entry]:
        """Yield the `Entry` (id, archive, offset, number of the entry) of each vector of an archive, in order."""
        data = self.opened[self.path] = _mapped(self.source)
        offset = skip_blanks(data, 0)
        number = 0
        while offset < len(data):
            number += 1
            match = ID.match(data, offset)
            if match is None:
                actual = bytes(data[offset : offset + 20])
                fail(self.path, f"entry {number} (byte {offset}): expected an id; got {actual!r}")
            start = match.end()
            entry = (match[1].decode(), self.path, start, number)
            yield entry
            # the numbers of binary vectors are read later, a batch at a time
            header = _vector_header(data, start)
            if header is None or start + header[1] > len(data):
                end = read_entry(data, start, self._describe(entry))[1]
            else:
                end = start + header[1]
            offset = skip_blanks(data, end)

    def _describe(self, entry: Entry) -> str:
        """Return the start of a message about an entry: the file, its line or entry number, and its id."""
        name, archive, offset, number = entry
        if not self.is_script:
            return f"{self.path}, entry {number} ({name!r})"
        return f"{self.path}, line {number} ({name!r} in {archive}:{offset})"

    def _vectors(self, entries: Sequence[Entry]) -> FloatArray:
        """Return the vectors of n entries, (n, D); raise `FileFormatError` if they differ in dimension."""
        blocks: list[tuple[str, FloatArray]] = []
        for archive, group in groupby(entries, key=itemgetter(1)):
            run = list(group)
            data = self.opened[archive]
            X = _gather_equal(data, [offset for _, _, offset, _ in run])
            if X is not None:
                blocks.append((run[0][0], X))
                continue
            for entry in run:
                array = np.atleast_2d(read_entry(data, entry[2], self._describe(entry))[0])
                if len(array) != 1:
                    fail(
                        self._describe(entry),
                        f"expected a vector; got a matrix of shape {array.shape}",
                    )
                blocks.append((entry[0], array))
        return np.asarray(stack_blocks(self.path, blocks), dtype=blocks[0][1].dtype)


def read_entry(data: Buffer, offset: int, description: str) -> tuple[FloatArray, int]:
    """Return the vector (D,) or matrix (rows, columns) at a byte offset, and the offset after it.

    The entry may be binary, after the mark ``\\0B``, or text in brackets.

    description : file and entry, for errors
    """
    if data[offset : offset + 2] == BINARY:
        return read_binary(data, offset + 2, description)
    return read_text(data, offset, description)


def read_binary(data: Buffer, offset: int, description: str) -> tuple[FloatArray, int]:
    """Return the binary vector or matrix at a byte offset, and the offset after it.

    offset : position after the mark ``\\0B`` of binary entries
    description : file and entry, for errors
    """
    match = HEADER.match(data, offset)
    if match is None:
        expected = "a vector or matrix of floats (FV, DV, FM, DM), not compressed"
        fail(description, f"expected {expected}; got {shown_bytes(data, offset, 5)}")
    sizes = [size for size in match.groups()[1:] if size is not None]
    shape = struct.unpack(f"<{len(sizes)}i", b"".join(sizes))
    dtype = FLOATS[match[1]]
    end = match.end() + math.prod(shape) * dtype.itemsize
    if min(shape) < 0 or end > len(data):
        left = len(data) - match.end()
        fail(
            description,
            f"truncated: the entry has shape {shape}, but the file has only {left} more bytes",
        )
    array = np.frombuffer(data[match.end() : end], dtype).reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=False), end


def read_text(data: Buffer, offset: int, description: str) -> tuple[FloatArray, int]:
    """Return the vector or matrix that is written as text in brackets at a byte offset, and the offset after it.

    description : file and entry, for errors
    """
    match = BRACKETS.match(data, offset)
    if match is None:
        actual = shown_bytes(data, offset, 10)
        fail(description, f"expected numbers in brackets [ ], or a binary vector; got {actual}")
    rows = [line.split() for line in match[1].split(b"\n")]
    try:
        array = np.array([[float(number) for number in row] for row in rows if row])
    except ValueError as error:
        fail(description, f"expected numbers in brackets, the same number in each row: {error}")
    if len(array) == 1:
        array = array[0]
    return array, match.end()


def _vector_header(data: Buffer, offset: int) -> tuple[bytes, int] | None:
    """Return the type (b"F" or b"D") of the binary vector at a byte offset, and its size in bytes.

    The size includes the mark ``\\0B`` and the header. Returns None if the entry is not a binary vector with at least
    one number.
    """
    match = HEADER.match(data, offset + 2)
    if match is None or match[2] is None or data[offset : offset + 2] != BINARY:
        return None
    count = int.from_bytes(match[2], "little", signed=True)
    if count <= 0:
        return None
    return match[1], 10 + count * FLOATS[match[1]].itemsize


def _gather_equal(data: Buffer, offsets: Sequence[int]) -> FloatArray | None:
    """Return the binary vectors at n byte offsets, (n, D).

    Returns None if an entry is not a binary vector, or if the vectors differ in type or dimension.
    """
    head = _vector_header(data, offsets[0])
    if head is None or max(offsets) + head[1] > len(data):
        return None
    dtype = FLOATS[head[0]]
    raw = np.frombuffer(data, dtype=np.uint8)
    rows = np.lib.stride_tricks.sliding_window_view(raw, head[1])[np.array(offsets)]
    if not (rows[:, :10] == rows[0, :10]).all():
        return None
    X = np.ascontiguousarray(rows[:, 10:]).view(dtype)
    return X.astype(dtype.newbyteorder("="), copy=False)


def _mapped(source: OnDisk) -> Buffer:
    """Return the bytes of a file as a memory map; an empty file, which cannot be mapped, gives b""."""
    if os.stat(source.file).st_size == 0:
        return b""
    with open(source.file, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def shown_bytes(data: Buffer, offset: int, count: int) -> str:
    """Return at most `count` bytes at an offset as text for a message; "the end of the file" if there are none."""
    actual = bytes(data[offset : offset + count])
    return repr(actual) if actual else "the end of the file"


def skip_blanks(data: Buffer, offset: int) -> int:
    """Return the offset of the first byte, at or after `offset`, that is not blank."""
    while data[offset : offset + 1].isspace():
        offset += 1
    return offset


def write_kaldi(path: PathLike, files: Sequence[Path], ids: Names, X: Vectors) -> None:
    """Write a binary archive and, for the name of a script, also the script.

    path : output that the user named, such as ``x.scp``; the script refers to the archive ``x.ark`` beside it
    files : files to write, in the order of `kaldi_files`; they may be temporary files that the caller renames later
    ids, X : ids (n,) and vectors (n, D)
    """
    archive = kaldi_files(path)[0]
    lines = []
    with files[0].open("wb") as file:
        for name, row in zip(ids.tolist(), X, strict=True):
            file.write(f"{name} ".encode())
            lines.append(f"{name} {archive}:{file.tell()}\n")
            file.write(BINARY + binary_array(row))
    for script in files[1:]:
        script.write_bytes("".join(lines).encode())


def binary_array(array: FloatArray) -> bytes:
    """Return a vector or matrix as bytes in Kaldi's binary format, without the mark ``\\0B`` before it."""
    kind = "F" if array.dtype == np.float32 else "D"
    sizes = b"".join(b"\4" + struct.pack("<i", size) for size in array.shape)
    numbers = array.astype(FLOATS[kind.encode()]).tobytes()
    return f"{kind}{'VM'[array.ndim - 1]} ".encode() + sizes + numbers
