"""Where bytes come from, the lines and tables in them, lists of the field, and vectors as batches."""

from __future__ import annotations

import csv
import gzip
import io
import os
import shutil
import sys
import tempfile
import warnings
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from .._optional import need
from .._typing import PathLike
from ..exceptions import FileFormatError, LabelError, MvpldaError, UnlabelledWarning
from ..persistence import STANDARD, atomic_write, write_atomically

GZIP = b"\x1f\x8b"


def problem(path: PathLike, reason: str, line: int | None = None) -> FileFormatError:
    """The error that names the file, and the line counted from 1."""
    where = f"{path}, line {line}" if line is not None else f"{path}"
    return FileFormatError(f"{where}: {reason}")


def fail(path: PathLike, reason: str, line: int | None = None) -> NoReturn:
    """Raise the error that names the file and the line."""
    raise problem(path, reason, line)


@contextmanager
def wrap_reader_errors(path: PathLike, what: str) -> Iterator[None]:
    """Whatever a library raises on a damaged file becomes a `FileFormatError` that names the file."""
    try:
        yield
    except (MvpldaError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # parsers of damaged bytes raise anything
        reason = str(error).strip().splitlines()
        detail = reason[0] if reason else type(error).__name__
        raise FileFormatError(f"{path} is damaged or not {what}: {detail}") from error


def must_exist(path: PathLike) -> None:
    if str(path) == STANDARD:
        return
    if Path(path).is_dir():
        fail(path, "this is a folder; a file was expected")
    if not Path(path).exists():
        raise FileNotFoundError(f"there is no file {path}")


def is_stream(path: PathLike) -> bool:
    """Whether this can be read only once: standard input, a pipe, a device."""
    return str(path) == STANDARD or (Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir())


_DRAINED: list[Any] = []
"""Standard input, once it was read."""


def standard_input() -> Any:
    """The bytes of standard input, to be read to the end; a second time nothing would come."""
    stream = sys.stdin.buffer
    if any(stream is other for other in _DRAINED):
        raise FileFormatError("standard input (-) was read already: it can stand for one file only")
    _DRAINED[:] = [stream]
    return stream


def read_bytes(path: PathLike) -> bytes:
    """Everything in a file, or from standard input for ``-``; what was compressed with gzip is unpacked."""
    must_exist(path)
    data = standard_input().read() if str(path) == STANDARD else Path(path).read_bytes()
    if data[:2] != GZIP:
        return data
    with _unpacking(path):
        return gzip.decompress(data)


class OnDisk:
    """A file that can be opened by its name as often as needed; a stream or a gzip file is copied to one.

    name : what it was called by the user, for errors
    file : where its bytes are, as long as this object lives
    """

    def __init__(self, path: PathLike) -> None:
        must_exist(path)
        self.name = self.file = str(path)
        if is_stream(path):
            source: Any = standard_input() if self.name == STANDARD else open(path, "rb")  # noqa: SIM115
            self._keep(source)
            if self.name != STANDARD:
                source.close()
        if self.head(2) == GZIP:
            with _unpacking(path), gzip.open(self.file) as packed:
                self._keep(packed)

    def _keep(self, source: Any) -> None:
        handle, name = tempfile.mkstemp(prefix="mvplda-")
        weakref.finalize(self, os.unlink, name)
        with os.fdopen(handle, "wb") as copy:
            shutil.copyfileobj(source, copy)
        self.file = name

    def head(self, size: int) -> bytes:
        """The first bytes."""
        with open(self.file, "rb") as file:
            return file.read(size)


@contextmanager
def _unpacking(path: PathLike) -> Iterator[None]:
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise problem(path, f"the gzip file is truncated or damaged: {error}") from error


# Text files of the field: read whole, split on ASCII whitespace, errors with file and line.
#
# Kaldi separates fields with ASCII blanks, so an id may hold any other character: a
# no-break space or an ideographic space is part of it. Lines end in LF, CRLF or CR, a
# byte order mark is skipped, and blank lines are passed over but counted.


Names = NDArray[np.str_]

LONGEST_ID = 1000
BLOCK_BYTES = 2**18
BLANKS = " \t\n\r\v\f"
MARK = b"\xef\xbb\xbf"
"""The byte order mark."""


def read_lines(path: PathLike) -> list[bytes]:
    """Lines of a UTF-8 text file without their ends; text that is no UTF-8 is an error."""
    return split_lines(path, read_bytes(path))


def split_lines(path: PathLike, data: bytes, first: int = 1) -> list[bytes]:
    """Lines of text that was read from a file, of which the first has this number."""
    if first == 1:
        data = data.removeprefix(MARK)
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        fail(path, f"not UTF-8 text ({error.reason}): convert the file", first + data.count(b"\n", 0, error.start))
    if b"\0" in data:
        line = first + data.count(b"\n", 0, data.index(b"\0"))
        fail(path, "not a text file: it holds zero bytes", line)
    return data.split(b"\n")


def lines_of(source: OnDisk) -> Iterator[bytes]:
    """The lines of a text file one by one, for files that are not held in memory whole."""
    number = 1
    with open(source.file, "rb") as file:
        while block := file.read(BLOCK_BYTES) + file.readline():
            lines = split_lines(source.name, block, number)
            if not lines[-1]:
                lines.pop()  # what follows the last line end of the block
            yield from lines
            number += len(lines)


def texts_of(lines: Iterable[bytes], count: int) -> list[str]:
    """The next lines as text; decoded together, which is several times as fast as one by one."""
    some = list(islice(lines, count))
    return b"\n".join(some).decode().split("\n") if some else []


def filled_lines(path: PathLike, lines: Iterable[bytes], count: int) -> list[bytes]:
    """The first lines that are not blank."""
    filled = list(islice((line for line in lines if line.strip()), count))
    if not filled:
        fail(path, "the file is empty")
    return filled


def fields_of(path: PathLike, lines: Iterable[bytes], widths: Sequence[int], expected: str) -> list[list[bytes]]:
    """Fields of every line that is not blank; all lines have one of the widths, the same one.

    Parameters
    ----------
    widths : numbers of fields that a line may have
    expected : what a line should hold, for the error
    """
    rows = [line.split() for line in lines]
    check_widths(path, rows, widths, expected)
    return [row for row in rows if row]


def check_widths(path: PathLike, rows: Sequence[Sequence[object]], widths: Sequence[int], expected: str) -> None:
    """All rows that are not empty have the same number of fields, one of the widths; row i is line i + 1."""
    found = set(map(len, rows)) - {0}
    if not found:
        fail(path, f"the file is empty; expected lines of {expected}")
    if len(found) == 1 and found <= set(widths):
        return
    width = next((len(row) for row in rows if row), 0)
    for number, row in enumerate(rows, 1):
        if row and len(row) not in widths:
            fail(path, f"{len(row)} field(s); expected {expected}", number)
        if row and len(row) != width:
            fail(path, f"{len(row)} field(s) where the lines before have {width}; expected {expected}", number)


def line_of(lines: Sequence[bytes], entry: int) -> int:
    """Number of the line that holds an entry (from 0) when blank lines are passed over."""
    filled = [number for number, line in enumerate(lines, 1) if line.strip()]
    return filled[entry]


def as_names(path: PathLike, fields: Iterable[bytes | str]) -> Names:
    """Ids as an array of text; one that is absurdly long is an error."""
    names = [field.decode() if isinstance(field, bytes) else field for field in fields]
    longest = max(map(len, names), default=0)
    if longest > LONGEST_ID:
        name = next(name for name in names if len(name) == longest)
        fail(path, f"an id of {longest} characters ({name[:20]!r}...); expected at most {LONGEST_ID}")
    return np.array(names, dtype=f"U{max(longest, 1)}")  # told its width, NumPy need not look for it


def check_id(name: object) -> str:
    """An id as a line can hold it: text, not empty, without blanks."""
    text = str(name)
    if not text or len(text) > LONGEST_ID or any(c in BLANKS or c == "\0" for c in text):
        raise LabelError(
            f"{text[:40]!r} cannot be written as an id: it is empty, holds a blank, or is longer than "
            f"{LONGEST_ID} characters. Rename it"
        )
    return text


def check_ids(names: Iterable[object]) -> list[str]:
    """Ids that lines can hold."""
    texts = [str(name) for name in names]
    joined = "".join(texts)
    if not all(texts) or any(c in joined for c in BLANKS + "\0") or max(map(len, texts), default=0) > LONGEST_ID:
        for text in texts:
            check_id(text)
    return texts


def write_text(path: PathLike, lines: Iterable[str]) -> None:
    """Write lines, all or nothing, or to standard output for ``-``."""
    write_atomically(path, "".join(f"{line}\n" for line in lines).encode())


def repeated(names: Iterable[object]) -> tuple[int, object | None]:
    """How many entries repeat an earlier one, and the first that does."""
    seen: set[object] = set()
    count, first = 0, None
    for name in names:
        if name in seen:
            count, first = count + 1, name if first is None else first
        seen.add(name)
    return count, first


# Tables with a header: CSV, tab-separated text and Parquet, as columns of text.


ENROL = ("enrol", "enroll", "enrolment", "enrollment", "model", "modelid")
TEST = ("test", "segment", "segmentid", "testid", "evaluationfileid", "testsegment")
KIND = ("kind", "key", "label", "target", "targettype", "trialtype")
SCORE = ("score", "llr", "scores")


def plain(name: str) -> str:
    """A column's name without case, blanks, hyphens and underscores: ``Model-ID`` is ``modelid``."""
    return name.strip().lower().replace("-", "").replace("_", "").replace(" ", "")


def column_of(header: Sequence[str], names: Sequence[str]) -> int | None:
    """Where the first of these names stands in the header."""
    plains = [plain(name) for name in header]
    return next((plains.index(name) for name in names if name in plains), None)


def needed(path: PathLike, header: Sequence[str], names: Sequence[str]) -> int:
    """Where a column stands that must be there."""
    place = column_of(header, names)
    if place is None:
        fail(path, f"expected a column called {' or '.join(names[:4])}; the header has {', '.join(header)}", 1)
    return place


def read_separated(
    path: PathLike, separator: str | None, lines: Sequence[bytes] | None = None
) -> tuple[list[str], list[tuple[str, ...]]]:
    """Header and columns of a text table; the separator is ``,``, a tab, or None for any blanks.

    lines : those of the file, where they were read before
    """
    lines = read_lines(path) if lines is None else lines
    if separator == ",":
        rows = _comma_rows(path, lines)
    else:
        tab = None if separator is None else separator.encode()
        rows = [[field.decode() for field in line.split(tab)] if line.strip() else [] for line in lines]
    header = next((row for row in rows if row), [])
    if not header:
        fail(path, "the file is empty; expected a header")
    check_widths(path, rows, [len(header)], f"{len(header)} field(s), as in the header {', '.join(header)}")
    filled = [row for row in rows if row][1:]
    if not filled:
        fail(path, "the file has a header and no lines")
    return [name.strip() for name in header], list(zip(*filled, strict=True))


def _comma_rows(path: PathLike, lines: Sequence[bytes]) -> list[list[str]]:
    if not any(b'"' in line for line in lines):
        return [[field.strip(" \t") for field in line.decode().split(",")] if line.strip() else [] for line in lines]
    reader = csv.reader(io.StringIO(b"\n".join(lines).decode()), strict=True, skipinitialspace=True)
    rows: list[list[str]] = []
    try:
        for row in reader:
            rows.extend([[]] * (reader.line_num - 1 - len(rows)))  # a quoted line end: keep row i at line i + 1
            rows.append(row)
    except csv.Error as error:
        fail(path, f"not a table of comma-separated values: {error}", reader.line_num)
    return rows


def read_parquet_columns(path: PathLike, data: bytes | None = None) -> tuple[list[str], list[Any]]:
    """Header and columns of a Parquet table, as lists.

    data : the bytes of the file, where they were read before
    """
    arrow, parquet = need("pyarrow"), need("pyarrow.parquet")
    data = read_bytes(path) if data is None else data
    with wrap_reader_errors(path, "a Parquet file"):
        table = parquet.ParquetFile(arrow.BufferReader(data), page_checksum_verification=True).read()
        table.validate(full=True)
        if table.num_rows == 0:
            fail(path, "the table has no rows")
        for name, column in zip(table.column_names, table.columns, strict=True):
            if column.null_count:
                fail(path, f"{column.null_count} value(s) of column {name!r} are null")
        return list(table.column_names), [column.to_pylist() for column in table.columns]


def write_table(path: PathLike, columns: Mapping[str, Any], format: str) -> None:
    """Write columns as ``csv``, ``tsv`` or ``parquet``, all or nothing."""
    if format == "parquet":
        arrow, parquet = need("pyarrow"), need("pyarrow.parquet")
        table = arrow.table({k: arrow.array(_listed(v)) for k, v in columns.items()})
        with atomic_write(path) as (part,):
            parquet.write_table(table, part, write_page_checksum=True)
        return
    rows = zip(*(_texts(values) for values in columns.values()), strict=True)
    if format == "tsv":
        write_text(path, ["\t".join(columns), *map("\t".join, rows)])
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    write_text(path, text.getvalue().split("\n")[:-1])


def _listed(values: Names | Any) -> Any:
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def _texts(values: Any) -> list[str]:
    listed = _listed(values)
    return [value if isinstance(value, str) else repr(value) for value in listed]


def suffix_format(path: PathLike) -> str | None:
    """The format that a suffix names beyond doubt."""
    return {".parquet": "parquet", ".csv": "csv"}.get(Path(str(path).removesuffix(".gz")).suffix.lower())


def is_parquet(data: bytes) -> bool:
    return data.startswith(b"PAR1")


# Kaldi's lists: ``utt2spk`` and any ``utt2X``, ``spk2utt``, and labels from them.


def _entries(path: PathLike, what: str) -> list[tuple[int, str, str]]:
    """(line number, id, the rest of the line) of every line that is not blank; ids stand once."""
    entries: list[tuple[int, str, str]] = []
    seen: set[str] = set()
    again: list[tuple[int, str]] = []
    for number, line in enumerate(read_lines(path), 1):
        fields = line.split(None, 1)
        if not fields:
            continue
        if len(fields) == 1:
            fail(path, f"{fields[0].decode()[:60]!r} stands alone; expected {what}", number)
        name, rest = fields[0].decode(), fields[1].strip().decode()
        if len(name) > LONGEST_ID:
            fail(path, f"an id of {len(name)} characters; expected at most {LONGEST_ID}", number)
        if name in seen:
            again.append((number, name))
        seen.add(name)
        entries.append((number, name, rest))
    if not entries:
        fail(path, f"the file is empty; expected lines of {what}")
    if again:
        number, name = again[0]
        fail(path, f"{name!r} is listed again; {len(again)} line(s) repeat an id", number)
    return entries


def read_map(path: PathLike) -> dict[str, str]:
    """A map such as ``utt2spk``: id, then the value, which is the rest of the line."""
    return {name: rest for _, name, rest in _entries(path, "'id value'")}


def read_groups(path: PathLike) -> dict[str, tuple[str, ...]]:
    """Groups such as ``spk2utt`` or an enrolment list: name, then ids."""
    entries = _entries(path, "'name id id ...'")
    return {name: tuple(part.decode() for part in rest.encode().split()) for _, name, rest in entries}


def write_map(path: PathLike, values: Mapping[str, Any]) -> None:
    """Write ``id value`` lines, all or nothing."""
    lines = []
    for name, value in values.items():
        text = str(value)
        if not text or text.strip(" \t\r\n\v\f") != text or "\n" in text or "\0" in text:
            raise LabelError(
                f"the value {text[:40]!r} of {name!r} does not fit a line: it is empty or has outer blanks"
            )
        lines.append(f"{check_id(name)} {text}")
    write_text(path, lines)


def write_groups(path: PathLike, groups: Mapping[str, Sequence[str]]) -> None:
    """Write ``name id id ...`` lines, all or nothing."""
    lines = []
    for name, members in groups.items():
        if isinstance(members, str) or not len(members):
            raise LabelError(f"the group {name!r} has {members!r}; expected a sequence of at least one id")
        lines.append(" ".join([check_id(name), *map(check_id, members)]))
    write_text(path, lines)


def read_labels(paths: Mapping[str, PathLike], ids: Iterable[Any]) -> dict[str, NDArray[Any]]:
    """Labels of every view, aligned with the ids; None, and a warning, where a file does not list an id.

    Parameters
    ----------
    paths : {view: path of its ``utt2X``}
    ids : (n,) ids of the vectors
    """
    names = [str(name) for name in ids]
    labels: dict[str, NDArray[Any]] = {}
    for view, path in paths.items():
        values = read_map(path)
        column = np.array([values.get(name) for name in names] + [None], dtype=object)[:-1]
        if names and all(value is None for value in column):
            raise LabelError(
                f"{path} lists none of the {len(names)} ids for view {view!r}: the first is {names[0]!r}, "
                f"the file begins with {next(iter(values))!r}"
            )
        missing = [name for name, value in zip(names, column, strict=True) if value is None]
        if missing:
            warnings.warn(unlabelled(view, str(path), len(missing), len(names), missing[0]), stacklevel=2)
        labels[view] = column
    return labels


def unlabelled(view: str, where: str, count: int, total: int, first: str) -> UnlabelledWarning:
    """What is said of vectors that a list does not name."""
    return UnlabelledWarning(
        f"{count} of {total} vectors have no label of view {view!r} in {where}, the first is {first!r}; "
        "each of them is taken for a class of its own"
    )


# Enrolment and training lists of SdSV/TdSV and RSR2015 part I.
#
# The formats, as public recipes for these corpora use them:
#
# ``model_enrollment.txt``
#     A header, then blanks between the fields: model id, phrase id, the ids of the
#     enrolment utterances. Where the header's second column is no ``phrase-id`` (the
#     text-independent task), the utterances begin there.
# ``train_labels.txt``
#     A header ``train-file-id speaker-id phrase-id`` (the phrase may be absent), then
#     the fields.
# RSR2015 part I ``.trn``
#     ``m051_003 male/m051/m051_01_003.sph,male/...``: the model, a blank or a comma, the
#     utterances between commas. The phrase is what follows the last ``_`` of the model.
#     Utterances are read without ``.sph`` and without ``male/`` or ``female/``, as in the
#     ``.ndx`` lists of trials.


SPEAKER = ("speakerid", "speaker", "spk", "spkid")
PHRASE = ("phraseid", "phrase", "sentence", "sentenceid")
UTTERANCE = ("trainfileid", "fileid", "utterance", "utt", "uttid", "segmentid", "id")


@dataclass(frozen=True)
class EnrolmentList:
    """Which utterances make which model.

    models : {model: its utterances}
    phrases : {model: its phrase}, empty where the list has none
    """

    models: dict[str, tuple[str, ...]]
    phrases: dict[str, str]

    def __len__(self) -> int:
        return len(self.models)

    @property
    def pairs(self) -> tuple[Names, Names]:
        """Utterances and the model of each: what to select, and the ids for ``enrol(X, ids)``."""
        utterances = [name for members in self.models.values() for name in members]
        models = [model for model, members in self.models.items() for _ in members]
        return np.array(utterances, dtype=np.str_), np.array(models, dtype=np.str_)


def _enrolments(path: PathLike, entries: list[tuple[int, str, str | None, tuple[str, ...]]]) -> EnrolmentList:
    if not entries:
        fail(path, "the list has no models")
    count, first = repeated(model for _, model, _, _ in entries)
    if count:
        line = [number for number, model, _, _ in entries if model == first][1]
        fail(path, f"model {first!r} is listed again; {count} line(s) repeat a model", line)
    for number, model, _, utterances in entries:
        if not utterances:
            fail(path, f"model {model!r} has no utterances", number)
    as_names(path, (model for _, model, _, _ in entries))
    phrases = {model: phrase for _, model, phrase, _ in entries if phrase is not None}
    return EnrolmentList({model: utterances for _, model, _, utterances in entries}, phrases)


def read_model_enrolment(path: PathLike) -> EnrolmentList:
    """Read a ``model_enrollment.txt`` of SdSV or TdSV."""
    entries: list[tuple[int, str, str | None, tuple[str, ...]]] = []
    header: list[str] | None = None
    for number, line in enumerate(read_lines(path), 1):
        fields = [field.decode() for field in line.split()]
        if not fields:
            continue
        if header is None:
            header = fields
            if column_of(header[:1], ("modelid", "model")) is None:
                fail(path, f"expected a header 'model-id phrase-id ...'; got {line.decode()[:60]!r}", number)
            phrase = column_of(header[1:2], PHRASE) is not None
            continue
        rest = fields[1:]
        if phrase and not rest:
            fail(path, f"model {fields[0]!r} stands alone; expected its phrase and utterances", number)
        entries.append((number, fields[0], rest[0] if phrase else None, tuple(rest[1:] if phrase else rest)))
    if header is None:
        fail(path, "the file is empty; expected a header 'model-id phrase-id ...'")
    return _enrolments(path, entries)


def read_train_labels(path: PathLike) -> tuple[Names, dict[str, Names]]:
    """Read a ``train_labels.txt``: ids, and {"speaker": labels, "phrase": labels} aligned with them."""
    header, columns = read_separated(path, None)
    utterance = needed(path, header, UTTERANCE)
    ids = as_names(path, columns[utterance])
    count, first = repeated(ids.tolist())
    if count:
        fail(path, f"{count} utterance(s) repeat an earlier one, the first is {first!r}")
    labels = {"speaker": as_names(path, columns[needed(path, header, SPEAKER)])}
    phrase = column_of(header, PHRASE)
    if phrase is not None:
        labels["phrase"] = as_names(path, columns[phrase])
    return ids, labels


def rsr2015_utterance(name: str) -> str:
    """An RSR2015 file as the id of an utterance: ``male/m051/m051_01_003.sph`` is ``m051/m051_01_003``."""
    return name.removesuffix(".sph").removeprefix("male/").removeprefix("female/")


def read_rsr2015_enrolment(path: PathLike) -> EnrolmentList:
    """Read a ``.trn`` of RSR2015 part I."""
    entries: list[tuple[int, str, str | None, tuple[str, ...]]] = []
    for number, line in enumerate(read_lines(path), 1):
        fields = [field.decode() for field in line.replace(b",", b" ").split()]
        if not fields:
            continue
        model = fields[0]
        if "_" not in model or not model.rpartition("_")[2]:
            fail(path, f"expected a model such as 'm051_003', speaker and phrase; got {model[:40]!r}", number)
        entries.append((number, model, model.rpartition("_")[2], tuple(map(rsr2015_utterance, fields[1:]))))
    return _enrolments(path, entries)


# A file of vectors as batches, whatever its format: all of them together are the whole file.


Rows = tuple[int, int]
"""The first of some rows, and the one after the last."""

BATCH_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Batch:
    """Vectors as a file has them, with their ids and columns where they were asked for.

    A vector that is null is a row of NaN; where all are, and have no width, X is (n, 0).
    """

    X: NDArray[Any]
    ids: Sequence[str] | None = None
    columns: dict[str, Any] = field(default_factory=dict)


class Reader(Protocol):
    """A file of vectors that was opened.

    columns : the names of label columns that it can give
    has_ids : whether its vectors have ids of their own; else they are row numbers
    id_column : where ids are a column beside others: which
    files : what is read besides the file itself
    """

    columns: tuple[str, ...]
    has_ids: bool
    id_column: str | None

    @property
    def files(self) -> tuple[str, ...]: ...

    def cuts(self) -> Sequence[int]:
        """Rows at which the file can be cut, the last one its end; none where it must be read from its beginning."""

    def batches(self, batch_bytes: int, columns: Sequence[str], ids: bool, rows: Rows | None = None) -> Iterator[Batch]:
        """All rows, or those between two cuts."""


def rows_of_batch(batch_bytes: int, row_bytes: int) -> int:
    return max(1, batch_bytes // max(row_bytes, 1))


# Vectors of single entries, as one array.


Vectors = NDArray[np.floating[Any]]


def stacked(path: PathLike, ids: Sequence[str], rows: Sequence[NDArray[Any]], width: int | None = None) -> Vectors:
    """Rows of equal width as one array; one of another width than the first, or than the given, is named."""
    if not rows:
        fail(path, "the file holds no vectors")
    width = len(rows[0]) if width is None else width
    for name, row in zip(ids, rows, strict=True):
        if len(row) != width:
            fail(path, f"the vector of {name!r} has width {len(row)}; those before have {width}")
    return np.stack(rows)
