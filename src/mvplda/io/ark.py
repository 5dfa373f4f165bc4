"""Kaldi archives of vectors: ``.ark`` and ``.scp``, binary and text.

Plain vectors are decoded here, with every length checked against the file; compressed
matrices of one row go through kaldiio. Nothing that a file holds is run: an entry that is
a command (``... |``) or a pickle is an error.

A path inside an ``.scp`` is tried as it stands, then beside the ``.scp``.
"""

from __future__ import annotations

import io
import mmap
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..exceptions import ParameterError
from ..extras import need
from ..files import whole_files
from .foreign import foreign
from .rows import Vectors, stacked
from .text import LONGEST_ID, STANDARD, PathLike, fail, read_bytes, read_lines

Buffer = bytes | mmap.mmap
PREFIX = re.compile(r"(ark|scp)((?:,\w+)*):(.*)", re.DOTALL)
BINARY = b"\0B"
FLOATS = {b"FV": "<f4", b"DV": "<f8", b"FM": "<f4", b"DM": "<f8"}


class Target(NamedTuple):
    """What a Kaldi name means: archive and script (either may be absent), and whether the archive is text."""

    ark: str | None
    scp: str | None
    text: bool


def is_kaldi(path: PathLike) -> bool:
    """Whether this names a Kaldi archive: a prefix such as ``ark:``, or a suffix ``.ark`` or ``.scp``."""
    return PREFIX.fullmatch(str(path)) is not None or Path(path).suffix.lower() in (".ark", ".scp")


def parse_name(path: PathLike) -> Target:
    """Take ``ark,t:x``, ``scp:x``, ``ark,scp:x,y`` or a bare path apart."""
    found = PREFIX.fullmatch(str(path))
    if found is None:
        name = str(path)
        return Target(None, name, False) if name.lower().endswith(".scp") else Target(name, None, False)
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


# -- reading -------------------------------------------------------------


def read_kaldi(path: PathLike) -> tuple[Sequence[str], Vectors]:
    """Ids and vectors of an archive, or of what a script names."""
    target = parse_name(path)
    return read_scp(target.scp) if target.scp is not None else read_ark(str(target.ark))


def read_ark(path: PathLike) -> tuple[Sequence[str], Vectors]:
    """Ids and vectors of an archive, in order."""
    data = _open(path)
    ids: list[str] = []
    rows: list[NDArray[Any]] = []
    place = 0
    while (place := _skip_blanks(data, place)) < len(data):
        end = data.find(b" ", place, place + 4 * LONGEST_ID)
        tab = data.find(b"\t", place, end if end >= 0 else place + 4 * LONGEST_ID)
        end = tab if tab >= 0 else end
        if end < 0:
            fail(path, f"entry {len(ids) + 1} (byte {place}): the file ends, or turns to noise, within an id")
        name = _name(path, data[place:end], len(ids) + 1)
        row, place = read_vector(data, end + 1, f"{path}, entry {len(ids) + 1} ({name!r})")
        ids.append(name)
        rows.append(row)
    if not ids:
        fail(path, "the archive is empty")
    return ids, stacked(path, ids, rows)


def read_scp(path: PathLike) -> tuple[Sequence[str], Vectors]:
    """Ids and vectors of a script: lines of ``id archive:offset``."""
    ids, rows = [], []
    opened: dict[str, Buffer] = {}
    for number, line in enumerate(read_lines(path), 1):
        fields = line.strip().split(None, 1)
        if not fields:
            continue
        if len(fields) != 2:
            fail(path, "one field; expected 'id archive:offset'", number)
        name, where = fields[0].decode(), fields[1].decode()
        if where.endswith("|") or where.startswith("|"):
            fail(path, f"{name!r} is the output of a command, which is not run: write it to an archive first", number)
        if where.endswith("]"):
            fail(path, f"{name!r} asks for a part of a matrix, {where!r}; expected a vector", number)
        file, colon, offset = where.rpartition(":")
        if not colon or not offset.isdecimal():
            file, offset = where, "0"
        if file not in opened:
            opened[file] = _open(_find(path, file, name, number))
        row, _ = read_vector(opened[file], int(offset), f"{path}, line {number} ({name!r} in {where})")
        ids.append(name)
        rows.append(row)
    if not ids:
        fail(path, "the script is empty; expected lines of 'id archive:offset'")
    return ids, stacked(path, ids, rows)


def read_vector(data: Buffer, place: int, where: str) -> tuple[NDArray[Any], int]:
    """The vector at a place, and the place behind it."""
    if data[place : place + 2] == BINARY:
        array, place = read_binary(data, place + 2, where)
    else:
        array, place = read_text(data, place, where)
    if array.ndim == 2:
        if len(array) != 1:
            fail(where, f"a matrix of shape {array.shape}; expected a vector")
        array = array[0]
    return array, place


def read_binary(data: Buffer, place: int, where: str) -> tuple[NDArray[Any], int]:
    """The array at a place behind Kaldi's binary mark, and the place behind it."""
    end = data.find(b" ", place, place + 5)
    kind = bytes(data[place:end]) if end >= 0 else b""
    if kind in (b"CM", b"CM2", b"CM3"):
        return _read_compressed(data, place, where)
    if kind not in FLOATS:
        found = bytes(data[place : place + 5])
        fail(where, f"expected a vector of floats (FV, DV); the entry begins with {found!r}, or the file ends there")
    place, shape = end + 1, []
    for _ in range(2 if kind.endswith(b"M") else 1):
        mark = bytes(data[place : place + 5])
        if len(mark) < 5 or mark[0] != 4:
            fail(where, "the file is truncated or damaged in the size of the entry")
        shape.append(struct.unpack("<i", mark[1:])[0])
        place += 5
    dtype = np.dtype(FLOATS[kind])
    count = int(np.prod([max(size, 0) for size in shape], dtype=object))
    if min(shape) < 0 or count * dtype.itemsize > len(data) - place:
        fail(where, f"truncated: the entry has shape {tuple(shape)}, {len(data) - place} bytes are left in the file")
    array = np.frombuffer(data, dtype=dtype, count=count, offset=place).reshape(shape)
    return array.astype(dtype.newbyteorder("=")), place + count * dtype.itemsize


def read_text(data: Buffer, place: int, where: str) -> tuple[NDArray[Any], int]:
    """The array in brackets at a place, and the place behind it."""
    start = _skip_blanks(data, place)
    if bytes(data[start : start + 1]) != b"[":
        found = bytes(data[start : start + 10])
        fail(
            where, f"expected '[' or a binary vector; got {found!r}" if found else "truncated: the entry has no vector"
        )
    end = data.find(b"]", start)
    if end < 0:
        fail(where, "truncated: '[' has no ']'")
    lines = bytes(data[start + 1 : end]).split(b"\n")
    rows = [fields for line in lines if (fields := line.split())]
    try:
        values = [[float(field) for field in row] for row in rows]
    except ValueError as error:
        fail(where, f"expected numbers in brackets: {error}")
    if len({len(row) for row in values}) > 1:
        fail(where, "the rows of the matrix differ in length")
    array = np.array(values, dtype=np.float64)
    return array[0] if len(rows) == 1 else array.reshape(len(rows), -1) if rows else np.empty(0), end + 1


def _read_compressed(data: Buffer, place: int, where: str) -> tuple[NDArray[Any], int]:
    kaldiio = need("kaldiio")
    stream = io.BytesIO(bytes(data[place - 2 :]))
    with foreign(where, "a compressed matrix"):
        array = kaldiio.matio.read_matrix_or_vector(stream)
        if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
            raise ValueError(f"it holds {type(array).__name__}")
    return array, place - 2 + stream.tell()


def _open(path: PathLike) -> Buffer:
    if str(path) == STANDARD or not Path(path).is_file() or Path(path).stat().st_size == 0:
        return read_bytes(path)  # also where the error about a missing file comes from
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _find(scp: PathLike, file: str, name: str, number: int) -> PathLike:
    if file == STANDARD:
        fail(scp, f"{name!r} is on standard input; expected an archive", number)
    for candidate in (Path(file), Path(scp).parent / file):
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(f"{scp}, line {number}: there is no archive {file} for {name!r}")


def _skip_blanks(data: Buffer, place: int) -> int:
    while place < len(data) and data[place] in b" \t\r\n":
        place += 1
    return place


def _name(path: PathLike, raw: bytes, number: int) -> str:
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        name = ""
    if not name or any(c < " " for c in name):
        fail(path, f"entry {number}: expected an id; got the bytes {raw[:20]!r}")
    return name


# -- writing -------------------------------------------------------------


def write_kaldi(path: PathLike, ids: Sequence[str], X: Vectors) -> None:
    """Write an archive, and a script where the name asks for one."""
    target = parse_name(path)
    ark, scp = target.ark, target.scp
    if STANDARD in (ark, scp):
        raise ParameterError(f"{path}: archives are written to files, not to standard output")
    if ark is None:
        ark = str(Path(str(scp)).with_suffix(".ark"))
    with whole_files(*([ark] if scp is None else [ark, scp])) as parts:
        with parts[0].open("wb") as file:
            places = []
            for name, row in zip(ids, X, strict=True):
                file.write(f"{name} ".encode())
                places.append(file.tell())
                file.write(text_vector(row) + b"\n" if target.text else BINARY + binary_array(row))
        if scp is not None:
            lines = (f"{name} {ark}:{place}\n" for name, place in zip(ids, places, strict=True))
            parts[1].write_bytes("".join(lines).encode())


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
