"""Trial lists, scores of trials and enrolment lists; the kinds of trials are those of `mvplda.kinds`.

=========== ==========================================================================
kaldi       ``enrol test target`` (or nontarget, TC, TW, IC, IW, 1, 0), or without a key;
            scores ``enrol test score``
voxceleb    ``1 enrol test``, 0 for a nontarget
rsr2015     part I ``.ndx``: ``model,test.sph,Y,N,N,N``, the four marks in the order TC, TW,
            IC, IW; one of them is Y, or none if the kind is unknown
table       text with a header, separated by commas, tabs (NIST) or blanks (SdSV):
            columns for enrol, test and, with the key, kind; or score
parquet     the columns of a table
=========== ==========================================================================

Lists are written as kaldi, csv or parquet.

Lists are read and written in blocks, with ids as integer codes, so that 30 million trials fit into memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._typing import Array, BoolArray, FloatArray, IntArray, PathLike
from ..coded import Coded
from ..exceptions import DataError, LabelError
from ..kinds import NONTARGETS, SPELLINGS, TARGETS, recognised_kinds
from . import list_shards
from .lists import Groups, read_groups
from .streams import Names, OnDisk, as_text, check_ids, fail, filled_lines, write_text
from .tables import (
    ENROL,
    KIND,
    SCORE,
    TEST,
    Coder,
    Columns,
    as_numbers,
    column_blocks,
    column_of,
    is_table,
    required_column,
    rows_of,
    suffix_of,
    table_blocks,
    write_table,
)

PARQUET_SUFFIX = ".parquet"
TRIALS = ("kaldi", "voxceleb", "rsr2015", "table")
LINES = {
    "kaldi": ([2, 3], "'enrol test' or 'enrol test target|nontarget'"),
    "voxceleb": ([3], "'1 enrol test'"),
    "scores": ([3], "'enrol test score', or a table"),
}
"""Numbers of fields of a line, and their description."""
RSR2015_MARKS = {b"YNNN": "TC", b"NYNN": "TW", b"NNYN": "IC", b"NNNY": "IW", b"NNNN": ""}
RSR2015_LINE = "'model,test.sph' and four marks Y or N for TC, TW, IC, IW, at most one Y"


KINDS = f"{', '.join((*reversed(TARGETS), *NONTARGETS))}, or the views that agree, such as speaker+channel, or none"


@dataclass(frozen=True)
class Trials:
    """A list of trials. Columns of text in any form become `mvplda.coded.Coded`.

    enrol, test : (n,) ids of the model and of the test
    kind : (n,) target, nontarget, TC, TW, IC, IW, the shared views such as ``speaker+channel``, or empty if
        unknown; None if all are unknown
    """

    enrol: Coded
    test: Coded
    kind: Coded | None = None

    def __post_init__(self) -> None:
        _code(self, "enrol", "test", *["kind"] * (self.kind is not None))
        if self.kind is not None:
            unknown = set(self.kind.used) - recognised_kinds(self.kind.used) - {""}
            if unknown:
                raise LabelError(
                    f"the kind of a trial must be one of {KINDS}; got {min(unknown)!r}"
                )

    def __len__(self) -> int:
        return len(self.enrol)

    def __getitem__(self, rows: Any) -> Trials:
        """Return the trials in these rows."""
        kind = None if self.kind is None else self.kind[rows]
        return Trials(self.enrol[rows], self.test[rows], kind)

    @property
    def kinds(self) -> Coded:
        """Kind of every trial; raises `LabelError` if any is unknown."""
        unknown = self.counts.get("", 0)
        if self.kind is None or unknown:
            raise LabelError(
                f"the kind of {unknown} of {len(self)} trials is not known: every trial needs target or nontarget, or "
                "TC, TW, IC, IW"
            )
        return self.kind

    @property
    def target(self) -> BoolArray:
        """Mask of the target trials, which share all views."""
        shared = [kind for kind in self.kinds.used if "+" in kind]
        return self.kinds.isin([*TARGETS, max(shared, key=len, default="")])

    @property
    def counts(self) -> dict[str, int]:
        """Number of trials per kind."""
        if self.kind is None:
            return {"": len(self)}
        return {kind: int((self.kind == kind).sum()) for kind in self.kind.used}


@dataclass(frozen=True)
class Scores:
    """Scores of trials. Ids in any form become `mvplda.coded.Coded`.

    enrol, test : (n,) ids of the model and of the test
    score : (n,) numbers other than NaN; float32 stays float32, which has fewer digits
    """

    enrol: Coded
    test: Coded
    score: FloatArray

    def __post_init__(self) -> None:
        numbers = np.asarray(self.score)
        if numbers.dtype != np.float32:
            numbers = numbers.astype(np.float64, copy=False)
        object.__setattr__(self, "score", numbers)
        _code(self, "enrol", "test")
        if np.isnan(self.score).any():
            raise DataError(f"{int(np.isnan(self.score).sum())} score(s) are NaN")

    def __len__(self) -> int:
        return len(self.enrol)


def _code(record: Trials | Scores, *names: str) -> None:
    """Encode columns of text; raise `DataError` if columns differ in length."""
    for name in names:
        object.__setattr__(record, name, Coded.of(getattr(record, name)))
    shapes = [column.shape for column in vars(record).values() if hasattr(column, "shape")]
    if any(shape != (len(record.enrol),) for shape in shapes):
        raise DataError(
            f"a list must have equally many models, tests, kinds and scores; got the shapes {shapes}"
        )


def read_trials(path: PathLike) -> Trials:
    """Read a trial list from a file, a pipe or ``-`` (standard input), detecting its format."""
    if suffix_of(path) == PARQUET_SUFFIX:
        return _read_parquet_trials(path)
    source = OnDisk(path)
    format = _detect_format(source)
    kind = Coder()
    first_lines: dict[str, int] = {}  # line of the first trial of each kind

    def add(kinds: Sequence[Any], numbers: Sequence[int]) -> None:
        for name in dict.fromkeys(kinds):
            if name not in kind.table:
                first_lines[name] = numbers[kinds.index(name)]
        kind.add(kinds)

    enrol, test = _read_pairs(source, format, KIND, add)
    if not kind.blocks:
        return Trials(enrol, test)
    coded = kind.result(path)
    return Trials(enrol, test, _checked_kinds(path, coded, list(first_lines.values())))


def _read_parquet_trials(path: PathLike) -> Trials:
    """Read a trial list in Parquet."""
    enrol, test, kind = list_shards.read_pairs(path, KIND)
    if kind is None:
        return Trials(enrol, test)
    return Trials(enrol, test, _checked_kinds(path, kind))


def _checked_kinds(path: PathLike, kinds: Coded, lines: Sequence[int] = ()) -> Coded:
    """Return kinds in their usual spelling; raise `FileFormatError` for an unknown one.

    lines : line of the first trial of each kind, if there are lines
    """
    known = recognised_kinds(kinds.names.tolist())
    spelled = []
    for index, name in enumerate(kinds.names.tolist()):
        if name and name not in known and name.lower() not in SPELLINGS:
            line = lines[index] if lines else None
            fail(path, f"{name[:40]!r} is the kind; expected one of {KINDS}", line)
        spelled.append(name if name in known else SPELLINGS.get(name.lower(), ""))
    return kinds.renamed(spelled)


def read_scores(path: PathLike) -> Scores:
    """Read scores from a file, a pipe or ``-`` (standard input), detecting their format."""
    if suffix_of(path) == PARQUET_SUFFIX:
        return Scores(*list_shards.read_pairs(path, SCORE))
    source = OnDisk(path)
    scores = []

    def add(values: Sequence[Any], lines: Sequence[int]) -> None:
        scores.append(as_numbers(path, values, lines, "the score"))

    format = "table" if is_table(source, ENROL, SCORE) else "scores"
    pairs = _read_pairs(source, format, SCORE, add)
    if not scores:
        fail(path, "expected a column called score", 1)
    return Scores(*pairs, np.concatenate(scores))


def _read_pairs(
    source: OnDisk,
    format: str,
    third: Sequence[str],
    add: Callable[[Sequence[Any], Sequence[int]], None],
) -> tuple[Coded, Coded]:
    """Read models and tests, and pass each block of the third column, if present, to `add` with its line numbers.

    third : usual names of the third column in a table
    """
    path = source.name
    enrol_column, test_column = 0, 1
    third_column: int | None = 2
    if format == "voxceleb":
        third_column, enrol_column, test_column = 0, 1, 2
    if format == "rsr2015":
        blocks = _rsr2015_blocks(source)
    elif format == "table":
        header, blocks = table_blocks(source)
        enrol_column = required_column(path, header, ENROL)
        test_column = required_column(path, header, TEST)
        third_column = column_of(header, third)
    else:
        blocks = column_blocks(source, *LINES[format])
    enrol = Coder()
    test = Coder()
    for fields, lines in blocks:
        enrol.add(fields[enrol_column])
        test.add(fields[test_column])
        if third_column is not None and third_column < len(fields):
            add(fields[third_column], lines)
    return enrol.result(path), test.result(path)


def _detect_format(source: OnDisk) -> str:
    """Return the format of a trial list; raise `FileFormatError` if its fields allow several."""
    if is_table(source, ENROL, TEST):
        return "table"
    lines = filled_lines(source, 1000)
    marks = lines[0].replace(b",", b" ").split()[2:]
    if len(marks) == 4 and set(marks) <= {b"Y", b"N"}:
        return "rsr2015"
    rows = [[field.decode() for field in line.split()] for line in lines]
    if len(rows[0]) == 2:
        return "kaldi"
    rows = [row for row in rows if len(row) == 3] or [[""] * 3]
    known = {*SPELLINGS, *recognised_kinds(row[2] for row in rows)}
    is_first = [row[0] in ("0", "1") for row in rows]
    is_last = [row[2] in known or row[2].lower() in known for row in rows]
    if all(is_first) and all(is_last):
        fail(
            source.name,
            "both the first and the last field may be the key: add a first line with the header enrol test key",
        )
    if all(is_first) or (is_first[0] and not is_last[0]):
        return "voxceleb"
    if not is_last[0]:
        first = lines[0].decode()[:80]
        fail(
            source.name,
            f"unknown format of a trial list (expected {', '.join(TRIALS)}): {first!r}",
            1,
        )
    return "kaldi"


def _rsr2015_blocks(source: OnDisk) -> Iterator[Columns]:
    """Yield blocks of models, utterances and kinds from a trial list of RSR2015 part I."""
    for fields, lines in column_blocks(source, [6], RSR2015_LINE, commas=True):
        models, tests, *marks = fields
        kinds = []
        for line, row in zip(lines, zip(*marks, strict=True), strict=True):
            kind = RSR2015_MARKS.get(b"".join(row))
            if kind is None:
                text = b",".join(row).decode()
                fail(source.name, f"unknown marks {text!r}; expected {RSR2015_LINE}", line)
            kinds.append(kind)
        utterances = [rsr2015_utterance(as_text(name)) for name in tests]
        yield [models, utterances, kinds], lines


def write_trials(path: PathLike, trials: Trials) -> None:
    """Write a trial list atomically: as CSV or Parquet by the suffix, otherwise in Kaldi's format."""
    columns = {"enrol": trials.enrol, "test": trials.test}
    if trials.kind is not None:
        columns["kind"] = trials.kind
    _write(path, columns)


def write_scores(path: PathLike, scores: Scores) -> None:
    """Write scores atomically: as CSV or Parquet by the suffix, otherwise in Kaldi's format; ``-`` is standard output.

    Numbers have the shortest text that restores them: at most 9 digits for float32.
    """
    _write(path, {"enrol": scores.enrol, "test": scores.test, "score": scores.score})


def _write(path: PathLike, columns: Mapping[str, Any]) -> None:
    """Write columns in the format of the suffix."""
    if suffix_of(path) == PARQUET_SUFFIX:
        list_shards.write_columns(path, columns)
        return
    if suffix_of(path) == ".csv":
        write_table(path, columns)
        return
    for column in columns.values():
        if isinstance(column, Coded):
            check_ids(column.used)  # raises for unknown kinds, whose text is empty
    write_text(path, (" ".join(map(str, row)) for row in rows_of(*columns.values())))


class Matched(NamedTuple):
    """Scores in the order of a list of trials.

    score : (n,) score of every trial
    duplicates : number of scores that repeat an earlier one of the same trial with the same value
    unused : number of scores of trials that are not in the list
    """

    score: Array
    duplicates: int
    unused: int


def rows_in(names: Names, table: Sequence[str]) -> IntArray:
    """Return the row of every name in a table; -1 for absent names."""
    row_of = {name: row for row, name in enumerate(table)}
    return np.array([row_of.get(name, -1) for name in names.tolist()], dtype=np.int64)


def match(trials: Trials, scores: Scores) -> Matched:
    """Return the score of every trial, matched by the ids of model and test.

    Raises `LabelError` for a trial without a score, with two different scores, or with two kinds.
    """
    # one integer key per pair of model and test, in the codes of the scores
    width = len(scores.test.names)
    keys = scores.enrol.codes.astype(np.int64) * width + scores.test.codes
    models = rows_in(trials.enrol.names, scores.enrol.names.tolist())[trials.enrol.codes]
    tests = rows_in(trials.test.names, scores.test.names.tolist())[trials.test.codes]
    trial_keys = np.where((models < 0) | (tests < 0), -1, models * width + tests)
    unique_keys, first_rows, key_index = np.unique(keys, return_index=True, return_inverse=True)
    values = scores.score[first_rows].astype(np.float64)
    _check_rows(
        scores,
        scores.score != values[key_index],
        "{} score(s) contradict an earlier one of the same trial, the first is {!r}",
    )
    position = np.searchsorted(unique_keys, trial_keys)
    # the appended key, which no trial has, stands for positions after the last
    missing = np.append(unique_keys, -2)[position] != trial_keys
    _check_rows(trials, missing, f"{{}} of {len(trials)} trials have no score, the first is {{!r}}")
    if trials.kind is not None:
        kinds = np.zeros(len(unique_keys), dtype=trials.kind.codes.dtype)
        kinds[position] = trials.kind.codes
        clash = kinds[position] != trials.kind.codes
        _check_rows(trials, clash, "{} trial(s) are listed with two kinds, the first is {!r}")
    used = np.zeros(len(unique_keys), dtype=bool)
    used[position] = True
    return Matched(values[position], len(scores) - len(unique_keys), int((~used).sum()))


def _check_rows(rows: Trials | Scores, wrong: BoolArray, message: str) -> None:
    """Raise `LabelError` with the number of wrong rows and the first of them, if there are any."""
    if wrong.any():
        first = int(wrong.argmax())
        raise LabelError(
            message.format(int(wrong.sum()), f"{rows.enrol[first]} {rows.test[first]}")
        )


def rsr2015_utterance(name: str) -> str:
    """Return the utterance id of an RSR2015 file: ``m051/m051_01_003`` for ``male/m051/m051_01_003.sph``."""
    return name.removesuffix(".sph").removeprefix("male/").removeprefix("female/")


def read_rsr2015_enrolment(path: PathLike) -> Groups:
    """Read a ``.trn``: lines of a model and its utterances, ``m051_003 male/m051/m051_01_003.sph,male/...``."""
    models = read_groups(path, commas=True)
    return {model: tuple(map(rsr2015_utterance, files)) for model, files in models.items()}
