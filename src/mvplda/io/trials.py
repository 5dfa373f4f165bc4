"""Readers and writers of trial lists, scores of trials, and enrolment lists of RSR2015.

A trial compares a model (an enrolled profile) with a test. Its kind, such as target or nontarget, is one of those of
`mvplda.kinds`. The format of a file is detected:

=========== ==========================================================================
kaldi       lines ``enrol test target`` (or nontarget, TC, TW, IC, IW, 1, 0), or ``enrol test`` if
            kinds are unknown; scores ``enrol test score``
voxceleb    lines ``1 enrol test`` for targets, ``0 enrol test`` for nontargets
rsr2015     part I ``.ndx``: lines ``model,test.sph,Y,N,N,N``, the four marks in the order TC, TW,
            IC, IW; one mark is Y, or none if the kind is unknown
table       text with a header, separated by commas, tabs (NIST) or blanks (SdSV), with columns
            for enrol, test and, if known, kind; or score
parquet     the same columns as a table
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
"""Formats of trial lists in text files."""
LINES = {
    "kaldi": ([2, 3], "'enrol test' or 'enrol test target|nontarget'"),
    "voxceleb": ([3], "'1 enrol test'"),
    "scores": ([3], "'enrol test score', or a table"),
}
"""By format: allowed numbers of fields per line, and a description of a line for errors."""
RSR2015_MARKS = {b"YNNN": "TC", b"NYNN": "TW", b"NNYN": "IC", b"NNNY": "IW", b"NNNN": ""}
RSR2015_LINE = "'model,test.sph' and four marks Y or N for TC, TW, IC, IW, at most one Y"


KINDS = f"{', '.join((*reversed(TARGETS), *NONTARGETS))}, or the views that agree, such as speaker+channel, or none"


@dataclass(frozen=True)
class Trials:
    """List of n trials, each with a model, a test and, if known, a kind.

    Parameters
    ----------
    enrol, test : (n,) ids of the model and of the test of each trial; arrays of text become `mvplda.coded.Coded`
    kind : (n,) target, nontarget, TC, TW, IC, IW, the views that agree such as ``speaker+channel``, or empty text if
        the kind of a trial is unknown; None if all are unknown
    """

    enrol: Coded
    test: Coded
    kind: Coded | None = None

    def __post_init__(self) -> None:
        _encode_columns(self, "enrol", "test", *["kind"] * (self.kind is not None))
        if self.kind is not None:
            unknown = set(self.kind.used) - recognised_kinds(self.kind.used) - {""}
            if unknown:
                raise LabelError(
                    f"the kind of a trial must be one of {KINDS}; got {min(unknown)!r}"
                )

    def __len__(self) -> int:
        return len(self.enrol)

    def __getitem__(self, rows: Any) -> Trials:
        """Return the trials that `rows` selects: indices, a slice, or a mask (n,)."""
        kind = None if self.kind is None else self.kind[rows]
        return Trials(self.enrol[rows], self.test[rows], kind)

    @property
    def kinds(self) -> Coded:
        """Kind of each trial, (n,); raises `LabelError` if any is unknown."""
        unknown = self.counts.get("", 0)
        if self.kind is None or unknown:
            raise LabelError(
                f"{unknown} of {len(self)} trials have no kind: add target or nontarget, or TC, TW, IC, IW, to every "
                "trial of the list"
            )
        return self.kind

    @property
    def target(self) -> BoolArray:
        """Mask (n,) of the target trials, whose sides agree in all views."""
        shared = [kind for kind in self.kinds.used if "+" in kind]
        return self.kinds.isin([*TARGETS, max(shared, key=len, default="")])

    @property
    def counts(self) -> dict[str, int]:
        """Number of trials by kind; the key for an unknown kind is empty text."""
        if self.kind is None:
            return {"": len(self)}
        return {kind: int((self.kind == kind).sum()) for kind in self.kind.used}


@dataclass(frozen=True)
class Scores:
    """Scores of n trials.

    Parameters
    ----------
    enrol, test : (n,) ids of the model and of the test of each trial; arrays of text become `mvplda.coded.Coded`
    score : (n,) numbers other than NaN; float32 stays float32, other types become float64
    """

    enrol: Coded
    test: Coded
    score: FloatArray

    def __post_init__(self) -> None:
        numbers = np.asarray(self.score)
        if numbers.dtype != np.float32:
            numbers = numbers.astype(np.float64, copy=False)
        object.__setattr__(self, "score", numbers)
        _encode_columns(self, "enrol", "test")
        if np.isnan(self.score).any():
            count = int(np.isnan(self.score).sum())
            raise DataError(f"{count} of {len(self.score)} scores are NaN: leave their trials out")

    def __len__(self) -> int:
        return len(self.enrol)


def _encode_columns(record: Trials | Scores, *names: str) -> None:
    """Replace the attributes `names` of a record, arrays of text, by `Coded`.

    Raises `DataError` if any columns of the record differ in length.
    """
    for name in names:
        object.__setattr__(record, name, Coded.of(getattr(record, name)))
    shapes = [column.shape for column in vars(record).values() if hasattr(column, "shape")]
    if any(shape != (len(record.enrol),) for shape in shapes):
        raise DataError(
            f"models, tests, kinds and scores must be columns of one length; got the shapes {shapes}"
        )


def read_trials(path: PathLike) -> Trials:
    """Read a trial list from a file, a pipe or ``-`` (standard input); its format is detected.

    Raises `FileFormatError` with the line number of a line that cannot be read.
    """
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
    """Read a trial list from a Parquet file; without a column of kinds, the kinds are unknown."""
    enrol, test, kind = list_shards.read_pairs(path, KIND)
    if kind is None:
        return Trials(enrol, test)
    return Trials(enrol, test, _checked_kinds(path, kind))


def _checked_kinds(path: PathLike, kinds: Coded, lines: Sequence[int] = ()) -> Coded:
    """Return kinds in their usual spelling, such as target for ``tgt``; raise `FileFormatError` for an unknown kind.

    path : the trial list, for the error
    lines : number of the line where each kind occurs first; empty for formats without lines
    """
    known = recognised_kinds(kinds.names.tolist())
    spelled = []
    for index, name in enumerate(kinds.names.tolist()):
        if name and name not in known and name.lower() not in SPELLINGS:
            line = lines[index] if lines else None
            fail(path, f"{name[:40]!r} is not a kind of trial; expected one of {KINDS}", line)
        spelled.append(name if name in known else SPELLINGS.get(name.lower(), ""))
    return kinds.renamed(spelled)


def read_scores(path: PathLike) -> Scores:
    """Read scores of trials from a file, a pipe or ``-`` (standard input); the format is detected.

    Raises `FileFormatError` with the line number of a line that cannot be read.
    """
    if suffix_of(path) == PARQUET_SUFFIX:
        return Scores(*list_shards.read_pairs(path, SCORE))
    source = OnDisk(path)
    scores = []

    def add(values: Sequence[Any], lines: Sequence[int]) -> None:
        scores.append(as_numbers(path, values, lines, "the score"))

    format = "table" if is_table(source, ENROL, SCORE) else "scores"
    pairs = _read_pairs(source, format, SCORE, add)
    if not scores:
        fail(path, "the header has no column called score", 1)
    return Scores(*pairs, np.concatenate(scores))


def _read_pairs(
    source: OnDisk,
    format: str,
    third: Sequence[str],
    add: Callable[[Sequence[Any], Sequence[int]], None],
) -> tuple[Coded, Coded]:
    """Return the models and the tests of a list of trials or scores, and call `add` with its third column.

    format : a format of `LINES`, "rsr2015" or "table"
    third : names that the third column (kind or score) of a table may have
    add : function that is called once per block of rows with the fields of the third column and their line numbers;
        it is not called if there is no third column
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
    """Return the format of a trial list, one of `TRIALS`; raise `FileFormatError` if it is unknown or ambiguous."""
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
            "both the first and the last field of the lines may be the kind of the trial: add the header line 'enrol "
            "test kind', in the order of the fields",
        )
    if all(is_first) or (is_first[0] and not is_last[0]):
        return "voxceleb"
    if not is_last[0]:
        first = lines[0].decode()[:80]
        fail(
            source.name,
            f"{first!r} has no known format of a trial list; expected lines such as 'model test target', or one of the "
            f"formats {', '.join(TRIALS)}",
            1,
        )
    return "kaldi"


def _rsr2015_blocks(source: OnDisk) -> Iterator[Columns]:
    """Yield blocks of the columns model, utterance and kind from a trial list of RSR2015 part I (``.ndx``)."""
    for fields, lines in column_blocks(source, [6], RSR2015_LINE, commas=True):
        models, tests, *marks = fields
        kinds = []
        for line, row in zip(lines, zip(*marks, strict=True), strict=True):
            kind = RSR2015_MARKS.get(b"".join(row))
            if kind is None:
                text = b",".join(row).decode()
                fail(source.name, f"expected {RSR2015_LINE}; got the marks {text!r}", line)
            kinds.append(kind)
        utterances = [rsr2015_utterance(as_text(name)) for name in tests]
        yield [models, utterances, kinds], lines


def write_trials(path: PathLike, trials: Trials) -> None:
    """Write a trial list atomically: as CSV or Parquet by the suffix of the path, otherwise in Kaldi's format."""
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
    """Write columns as Parquet or CSV by the suffix of the path, otherwise as lines in Kaldi's format.

    columns : {name: values}; lines in Kaldi's format have no header, so the names are not written
    """
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
    """Scores of a list of n trials, in the order of the list.

    score : (n,) score of each trial
    duplicates : number of scores that repeat an earlier one of the same trial with the same value
    unused : number of scores of trials that are not in the list
    """

    score: Array
    duplicates: int
    unused: int


def rows_in(names: Names, table: Sequence[str]) -> IntArray:
    """Return the index in `table` of each name, (n,); -1 for a name that is not in `table`."""
    row_of = {name: row for row, name in enumerate(table)}
    return np.array([row_of.get(name, -1) for name in names.tolist()], dtype=np.int64)


def match(trials: Trials, scores: Scores) -> Matched:
    """Return the score of each trial of a list, found by the ids of model and test.

    Raises `LabelError` for a trial without a score, with two different scores, or with two different kinds.

    Parameters
    ----------
    trials : list of trials; a trial may occur several times
    scores : scores in any order; scores of other trials are ignored
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
        "{} score(s) differ from an earlier score of the same trial; the first such trial is {!r}: keep one score "
        "per trial",
    )
    position = np.searchsorted(unique_keys, trial_keys)
    # the appended key, which no trial has, stands for positions after the last
    missing = np.append(unique_keys, -2)[position] != trial_keys
    _check_rows(
        trials,
        missing,
        f"{{}} of {len(trials)} trials have no score; the first is {{!r}}: score all trials of this list",
    )
    if trials.kind is not None:
        kinds = np.zeros(len(unique_keys), dtype=trials.kind.codes.dtype)
        kinds[position] = trials.kind.codes
        clash = kinds[position] != trials.kind.codes
        _check_rows(
            trials,
            clash,
            "{} trial(s) are listed with two kinds; the first is {!r}: keep the right kind only",
        )
    used = np.zeros(len(unique_keys), dtype=bool)
    used[position] = True
    return Matched(values[position], len(scores) - len(unique_keys), int((~used).sum()))


def _check_rows(rows: Trials | Scores, wrong: BoolArray, message: str) -> None:
    """Raise `LabelError` with a message if any trial is wrong.

    wrong : mask of the wrong trials, (n,)
    message : text with two placeholders ``{}``: the number of wrong trials, and the ids of the first of them
    """
    if wrong.any():
        first = int(wrong.argmax())
        raise LabelError(
            message.format(int(wrong.sum()), f"{rows.enrol[first]} {rows.test[first]}")
        )


def rsr2015_utterance(name: str) -> str:
    """Return the utterance id of a file of RSR2015: ``m051/m051_01_003`` for ``male/m051/m051_01_003.sph``."""
    return name.removesuffix(".sph").removeprefix("male/").removeprefix("female/")


def read_rsr2015_enrolment(path: PathLike) -> Groups:
    """Read the utterances of each model from an enrolment list of RSR2015 (``.trn``).

    Each line has a model and its files: ``m051_003 male/m051/m051_01_003.sph,male/...``.
    """
    models = read_groups(path, commas=True)
    return {model: tuple(map(rsr2015_utterance, files)) for model, files in models.items()}
