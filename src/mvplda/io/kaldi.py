"""Kaldi archives of vectors: ``.ark`` and ``.scp``, binary and text.

Every length is checked against the file before it is believed. Nothing that a file holds is
run: an entry that is a command (``... |``) or a pickle is an error.

A path inside an ``.scp`` is tried as it stands, then beside the ``.scp``.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._typing import PathLike
from ..exceptions import ParameterError
from ..persistence import STANDARD
from .files import (
    LONGEST_ID,
    Batch,
    Names,
    OnDisk,
    Rows,
    Vectors,
    fail,
    is_stream,
    lines_of,
    rows_of_batch,
    stacked,
)

Buffer = bytes | mmap.mmap
PREFIX = re.compile(r"(ark|scp)((?:,\w+)*):(.*)", re.DOTALL)
BINARY = b"\0B"
FLOATS = {b"FV": "<f4", b"DV": "<f8", b"FM": "<f4", b"DM": "<f8"}
PACKED = {b"CM": "<u1", b"CM2": "<u2", b"CM3": "<u1"}
FIRST_ROWS = 64
"""Of a script or an archive: the width of its vectors is not known before."""


class Target(NamedTuple):
    """What a Kaldi name means: archive and script (either may be absent), and whether the archive is text."""

    ark: str | None
    scp: str | None
    text: bool


def is_kaldi(path: PathLike) -> bool:
    """Whether this names a Kaldi archive: a prefix such as ``ark:``, or a suffix ``.ark`` or ``.scp``."""
    name = str(path).lower().removesuffix(".gz")
    return PREFIX.fullmatch(str(path)) is not None or name.endswith((".ark", ".scp"))


def parse_name(path: PathLike) -> Target:
    """Take ``ark,t:x``, ``scp:x``, ``ark,scp:x,y`` or a bare path apart."""
    found = PREFIX.fullmatch(str(path))
    if found is None:
        name = str(path)
        is_script = name.lower().removesuffix(".gz").endswith(".scp")
        return Target(None, name, False) if is_script else Target(name, None, False)
    kind, options, name = found[1], found[2].split(",")[1:], found[3].strip()
    if not name or name.endswith("|") or name.startswith("|"):
        raise ParameterError(
            f"{path}: expected a file after the prefix; commands are not run. Write their output first"
        )
    text = "t" in options
    if kind == "ark" and "scp" in options:
        ark, comma, scp = name.partition(",")
        if not comma or not ark or not scp:
            raise ParameterError(f"{path}: expected two files, as in 'ark,scp:x.ark,x.scp'")
        return Target(ark, scp, text)
    return Target(name, None, text) if kind == "ark" else Target(None, name, text)


def looks_like_archive(head: bytes) -> bool:
    """Whether a file that begins so is an archive; else it may be a script."""
    return re.match(rb"\s*\S+[ \t]+(\0B|\[)", head) is not None


# -- reading -------------------------------------------------------------


Entry = tuple[str, str, int, int]
"""A vector that was found: its id, its archive, its place there, and the number of its line or entry."""


class KaldiReader:
    """Lines of ``id archive:offset``, or an archive from its beginning to its end.

    Vectors of one archive that all have the header of the first are gathered in one step; others
    (text, another type, compressed) one by one. Pages of an archive that were used are given back.
    """

    columns: tuple[str, ...] = ()
    has_ids = True
    id_column: str | None = None

    def __init__(self, path: PathLike, source: OnDisk | None = None) -> None:
        target = parse_name(path)
        self.scp = target.scp
        self.path = str(target.scp if target.scp is not None else target.ark)
        self.source = source or OnDisk(self.path)
        self.opened: dict[str, Buffer] = {}
        self.places: dict[str, str] = {}

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(self.places.values())

    def cuts(self) -> Sequence[int]:
        return ()

    def batches(
        self, batch_bytes: int, columns: Sequence[str], ids: bool, rows: Rows | None = None
    ) -> Iterator[Batch]:
        entries = self._of_script() if self.scp is not None else self._of_archive()
        step = FIRST_ROWS
        width: int | None = None
        while some := list(islice(entries, step)):
            X = self._vectors(some, width)
            width = X.shape[1]
            step = rows_of_batch(batch_bytes, width * X.itemsize)
            yield Batch(X, [name for name, _, _, _ in some])
            for data in self.opened.values():
                if isinstance(data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
                    data.madvise(mmap.MADV_DONTNEED)
        if width is None:
            what = (
                "archive is empty"
                if self.scp is None
                else "script is empty; expected lines of 'id archive:offset'"
            )
            fail(self.path, f"the {what}")

    def _of_script(self) -> Iterator[Entry]:
        for number, line in enumerate(lines_of(self.source), 1):
            fields = line.strip().split(None, 1)
            if not fields:
                continue
            if len(fields) != 2:
                fail(self.path, "one field; expected 'id archive:offset'", number)
            name, where = fields[0].decode(), fields[1].decode()
            if where.endswith("|") or where.startswith("|"):
                fail(
                    self.path,
                    f"{name!r} is the output of a command, which is not run: write it to an archive first",
                    number,
                )
            if where.endswith("]"):
                fail(
                    self.path,
                    f"{name!r} asks for a part of a matrix, {where!r}; expected a vector",
                    number,
                )
            archive, colon, offset = where.rpartition(":")
            if not colon or not (offset.isascii() and offset.isdecimal() and len(offset) < 19):
                archive, offset = where, "0"
            if archive not in self.opened:
                found = _find(self.path, archive, name, number)
                self.places[archive] = str(found)
                self.opened[archive] = _mapped(OnDisk(found))
            yield name, archive, int(offset), number

    def _of_archive(self) -> Iterator[Entry]:
        data = self.opened[self.path] = _mapped(self.source)
        place, number = 0, 0
        while (place := _skip_blanks(data, place)) < len(data):
            number += 1
            end = _end_of_id(data, place)
            if end < 0:
                fail(
                    self.path,
                    f"entry {number} (byte {place}): the file ends, or turns to noise, within an id",
                )
            name = _name(self.path, data[place:end], number)
            entry = name, self.path, end + 1, number
            yield entry
            head = _plain_header(data, end + 1)
            behind = end + 1 + head[1] if head is not None else len(data) + 1
            place = (
                behind if behind <= len(data) else end_of_vector(data, end + 1, self._where(entry))
            )

    def _where(self, entry: Entry) -> str:
        """How errors call an entry."""
        name, archive, place, number = entry
        if self.scp is None:
            return f"{self.path}, entry {number} ({name!r})"
        return f"{self.path}, line {number} ({name!r} in {archive}:{place})"

    def _vectors(self, entries: Sequence[Entry], width: int | None) -> NDArray[Any]:
        parts: list[NDArray[Any]] = []
        for archive, group in groupby(entries, key=itemgetter(1)):
            some = list(group)
            data = self.opened[archive]
            X = _gathered(data, [place for _, _, place, _ in some])
            if X is None:
                rows = [read_vector(data, entry[2], self._where(entry)) for entry in some]
                X = stacked(self.path, [name for name, _, _, _ in some], rows, width)
            parts.append(X)
            if width is not None and X.shape[1] != width:
                fail(
                    self.path,
                    f"the vector of {some[0][0]!r} has width {X.shape[1]}; those before have {width}",
                )
            width = X.shape[1]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


class _Header(NamedTuple):
    """A binary entry: its kind, its shape, where its numbers begin and end."""

    kind: bytes
    shape: tuple[int, ...]
    start: int
    end: int


def read_vector(data: Buffer, place: int, where: str) -> NDArray[Any]:
    """The vector at a place."""
    binary = data[place : place + 2] == BINARY
    array = read_binary(data, place + 2, where)[0] if binary else read_text(data, place, where)[0]
    if array.ndim == 2:
        if len(array) != 1:
            fail(where, f"a matrix of shape {array.shape}; expected a vector")
        array = array[0]
    return array


def end_of_vector(data: Buffer, place: int, where: str) -> int:
    """The place behind the entry at a place."""
    if data[place : place + 2] == BINARY:
        return _binary_header(data, place + 2, where).end
    return _brackets(data, place, where)[1] + 1


def _binary_header(data: Buffer, place: int, where: str) -> _Header:
    end = data.find(b" ", place, place + 5)
    kind = bytes(data[place:end]) if end >= 0 else b""
    if kind not in FLOATS and kind not in PACKED:
        found = bytes(data[place : place + 5])
        fail(
            where,
            f"expected a vector of floats (FV, DV); the entry begins with {found!r}, or the file ends there",
        )
    place, shape = end + 1, []
    if kind in PACKED:
        head = bytes(data[place : place + 16])
        if len(head) < 16:
            fail(where, "the file is truncated in the header of a compressed entry")
        shape = list(struct.unpack("<ii", head[8:]))
        place += 16
    else:
        for _ in range(2 if kind.endswith(b"M") else 1):
            mark = bytes(data[place : place + 5])
            if len(mark) < 5 or mark[0] != 4:
                fail(where, "the file is truncated or damaged in the size of the entry")
            shape.append(struct.unpack("<i", mark[1:])[0])
            place += 5
    size = np.dtype(FLOATS.get(kind) or PACKED[kind]).itemsize
    for length in shape:
        size *= max(length, 0)
    if kind == b"CM":
        size += 8 * max(shape[1], 0)
    if min(shape) < 0 or size > len(data) - place:
        fail(
            where,
            f"truncated: the entry has shape {tuple(shape)}, {len(data) - place} bytes are left in the file",
        )
    return _Header(kind, tuple(shape), place, place + size)


def read_binary(data: Buffer, place: int, where: str) -> tuple[NDArray[Any], int]:
    """The array at a place behind Kaldi's binary mark, and the place behind it."""
    kind, shape, start, end = _binary_header(data, place, where)
    if kind in PACKED:
        with np.errstate(all="ignore"):  # the bounds of a damaged entry may be anything
            return _unpacked(data, kind, shape, start, end), end
    dtype = np.dtype(FLOATS[kind])
    count = (end - start) // dtype.itemsize
    array = np.frombuffer(data, dtype=dtype, count=count, offset=start).reshape(shape)
    return array.astype(dtype.newbyteorder("=")), end


def _unpacked(
    data: Buffer, kind: bytes, shape: tuple[int, ...], start: int, end: int
) -> NDArray[Any]:
    """A compressed matrix: numbers from 0 to 255 or 65535 between a least and a greatest value.

    In the kind CM every column has four such numbers, its quartiles, and its bytes lie between those.
    """
    least, span = struct.unpack("<ff", data[start - 16 : start - 8])
    if kind != b"CM":
        codes = np.frombuffer(
            data, PACKED[kind], (end - start) // np.dtype(PACKED[kind]).itemsize, start
        )
        top = 65535.0 if kind == b"CM2" else 255.0
        values: NDArray[Any] = least + codes.astype(np.float32) * span / top
        return values.astype(np.float32).reshape(shape)
    rows, columns = shape
    marks = np.frombuffer(data, "<u2", 4 * columns, start).astype(np.float32)
    p0, p25, p75, p100 = (
        (least + marks * span / 65535.0)
        .astype(np.float32)
        .reshape(columns, 4, 1)
        .transpose(1, 0, 2)
    )
    codes = (
        np.frombuffer(data, np.uint8, rows * columns, start + 8 * columns)
        .astype(np.float32)
        .reshape(columns, rows)
    )
    low, high = codes <= 64, codes > 192
    middle = p25 + (p75 - p25) * (codes - 64) / 128
    found = np.where(
        low,
        p0 + (p25 - p0) * codes / 64,
        np.where(high, p75 + (p100 - p75) * (codes - 192) / 63, middle),
    )
    return np.asarray(found.T, dtype=np.float32)


def _brackets(data: Buffer, place: int, where: str) -> tuple[int, int]:
    """Places of ``[`` and ``]`` of an entry in text."""
    start = _skip_blanks(data, place)
    if bytes(data[start : start + 1]) != b"[":
        found = bytes(data[start : start + 10])
        fail(
            where,
            f"expected '[' or a binary vector; got {found!r}"
            if found
            else "truncated: the entry has no vector",
        )
    end = data.find(b"]", start)
    if end < 0:
        fail(where, "truncated: '[' has no ']'")
    return start, end


def read_text(data: Buffer, place: int, where: str) -> tuple[NDArray[Any], int]:
    """The array in brackets at a place, and the place behind it."""
    start, end = _brackets(data, place, where)
    lines = bytes(data[start + 1 : end]).split(b"\n")
    rows = [fields for line in lines if (fields := line.split())]
    try:
        values = [[float(field) for field in row] for row in rows]
    except ValueError as error:
        fail(where, f"expected numbers in brackets: {error}")
    if len({len(row) for row in values}) > 1:
        fail(where, "the rows of the matrix differ in length")
    array = np.array(values, dtype=np.float64)
    return array[0] if len(rows) == 1 else array.reshape(len(rows), -1) if rows else np.empty(
        0
    ), end + 1


def _plain_header(data: Buffer, place: int) -> tuple[str, int] | None:
    """Type and bytes, with its header, of a binary vector of floats; None where something else stands."""
    head = data[place : place + 10]
    if (
        len(head) < 10
        or head[:2] != BINARY
        or head[2:4] not in (b"FV", b"DV")
        or head[4:6] != b" \4"
    ):
        return None
    count = int.from_bytes(head[6:], "little", signed=True)
    return (FLOATS[head[2:4]], 10 + count * (4 if head[2:4] == b"FV" else 8)) if count > 0 else None


def _gathered(data: Buffer, places: Sequence[int]) -> NDArray[Any] | None:
    """Binary vectors at these places, where all have one header; else None."""
    head = _plain_header(data, places[0])
    if head is None or max(places) + head[1] > len(data):
        return None
    dtype, size = np.dtype(head[0]), head[1]
    raw = np.frombuffer(data, dtype=np.uint8)
    rows = np.lib.stride_tricks.sliding_window_view(raw, size)[np.array(places)]
    if not (rows[:, :10] == rows[0, :10]).all():
        return None
    return (
        np.ascontiguousarray(rows[:, 10:]).view(dtype).astype(dtype.newbyteorder("="), copy=False)
    )


def _mapped(source: OnDisk) -> Buffer:
    if os.stat(source.file).st_size == 0:
        return b""  # cannot be mapped
    with open(source.file, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _find(scp: PathLike, file: str, name: str, number: int) -> PathLike:
    if file == STANDARD:
        fail(scp, f"{name!r} is on standard input; expected an archive", number)
    for candidate in (Path(file), Path(scp).parent / file):
        try:
            if candidate.is_file() or is_stream(candidate):
                return candidate
        except (OSError, ValueError):  # no name that a file can have
            break
    raise FileNotFoundError(f"{scp}, line {number}: there is no archive {file} for {name!r}")


def _skip_blanks(data: Buffer, place: int) -> int:
    while place < len(data) and data[place] in b" \t\r\n":
        place += 1
    return place


def _end_of_id(data: Buffer, place: int) -> int:
    end = data.find(b" ", place, place + 4 * LONGEST_ID)
    tab = data.find(b"\t", place, end if end >= 0 else place + 4 * LONGEST_ID)
    return tab if tab >= 0 else end


def _name(path: PathLike, raw: bytes, number: int) -> str:
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        name = ""
    if not name or any(c < " " for c in name):
        fail(path, f"entry {number}: expected an id; got the bytes {raw[:20]!r}")
    return name


# -- writing -------------------------------------------------------------


def kaldi_files(path: PathLike) -> list[Path]:
    """What is written under a name: the archive, and the script where the name asks for one."""
    ark, scp, _ = parse_name(path)
    if STANDARD in (ark, scp):
        raise ParameterError(f"{path}: archives are written to files, not to standard output")
    archive = Path(str(scp)).with_suffix(".ark") if ark is None else Path(ark)
    return [archive] if scp is None else [archive, Path(scp)]


def write_kaldi(path: PathLike, parts: Sequence[Path], ids: Names, X: Vectors) -> None:
    """Write an archive, and a script where the name asks for one, to the files given."""
    text = parse_name(path).text
    names = ids.tolist()
    with parts[0].open("wb") as file:
        places = []
        for name, row in zip(names, X, strict=True):
            file.write(f"{name} ".encode())
            places.append(file.tell())
            file.write(text_vector(row) + b"\n" if text else BINARY + binary_array(row))
    for script in parts[1:]:
        ark = kaldi_files(path)[0]
        lines = (f"{name} {ark}:{place}\n" for name, place in zip(names, places, strict=True))
        script.write_bytes("".join(lines).encode())


def binary_array(array: NDArray[Any]) -> bytes:
    """A vector or matrix as Kaldi writes it, behind the binary mark."""
    double = array.dtype != np.float32
    kind = ("D" if double else "F") + ("V" if array.ndim == 1 else "M")
    sizes = b"".join(b"\4" + struct.pack("<i", size) for size in array.shape)
    return f"{kind} ".encode() + sizes + array.astype("<f8" if double else "<f4").tobytes()


def text_vector(row: NDArray[Any]) -> bytes:
    """A vector in brackets, with the shortest digits that give every number back."""
    return b" [ " + " ".join(map(_digits, row)).encode() + b" ]"


def _digits(value: Any) -> str:
    return np.format_float_positional(value, trim="-") if 1e-4 <= abs(value) < 1e6 else str(value)
