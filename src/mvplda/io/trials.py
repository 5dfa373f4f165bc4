"""Trials: which model meets which test, of which kind (`mvplda.kinds`) the trial is, and its score; who is enrolled.

=========== ==========================================================================
kaldi       ``enrol test target`` (or nontarget, TC, TW, IC, IW, 1, 0), or without a key;
            scores ``enrol test score``
voxceleb    ``1 enrol test``, 0 for a nontarget
rsr2015     part I ``.ndx``: ``model,test.sph,Y,N,N,N``, the four marks in the order TC, TW,
            IC, IW, of which one is Y, none where the kind is not known
table       text with a header, between commas, tabs (NIST) or blanks (SdSV):
            columns for enrol, test and, with the key, kind; or score
=========== ==========================================================================

Written are kaldi and csv.

Lists are read and written some lines at a time, and their ids are held as numbers: 30 million trials fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._typing import Array, BoolArray, FloatArray, IntArray, PathLike
from ..coded import Coded
from ..exceptions import DataError, LabelError
from ..kinds import NONTARGETS, SPELLINGS, TARGETS, kinds_among
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
    needed,
    rows_of,
    suffix_of,
    table_blocks,
    write_table,
)

TRIALS = ("kaldi", "voxceleb", "rsr2015", "table")
LINES = {
    "kaldi": ([2, 3], "'enrol test' or 'enrol test target|nontarget'"),
    "voxceleb": ([3], "'1 enrol test'"),
    "scores": ([3], "'enrol test score', or a table"),
}
"""How many fields a line has, and what they are."""
RSR2015_MARKS = {b"YNNN": "TC", b"NYNN": "TW", b"NNYN": "IC", b"NNNY": "IW", b"NNNN": ""}
RSR2015_LINE = "'model,test.sph' and four marks Y or N for TC, TW, IC, IW, at most one Y"


KINDS = f"{', '.join((*reversed(TARGETS), *NONTARGETS))}, or the views that agree, such as speaker+channel, or none"


@dataclass(frozen=True)
class Trials:
    """A list of trials; columns of text are given in any form, and held as `mvplda.coded.Coded`.

    enrol, test : (n,) ids of the model and of the test
    kind : (n,) target, nontarget, TC, TW, IC, IW, the views that agree such as ``speaker+channel``, or empty where
        it is not known; None where no kind is known
    """

    enrol: Coded
    test: Coded
    kind: Coded | None = None

    def __post_init__(self) -> None:
        _code(self, "enrol", "test", *["kind"] * (self.kind is not None))
        if self.kind is not None:
            odd = set(self.kind.used) - kinds_among(self.kind.used) - {""}
            if odd:
                raise LabelError(f"the kind of a trial is one of {KINDS}; got {min(odd)!r}")

    def __len__(self) -> int:
        return len(self.enrol)

    def __getitem__(self, rows: Any) -> Trials:
        """The trials in some rows."""
        kind = None if self.kind is None else self.kind[rows]
        return Trials(self.enrol[rows], self.test[rows], kind)

    @property
    def kinds(self) -> Coded:
        """The kind of every trial, where all are known."""
        unknown = self.counts.get("", 0)
        if self.kind is None or unknown:
            raise LabelError(
                f"the kind of {unknown} of {len(self)} trials is not known: every trial needs target or nontarget, or "
                "TC, TW, IC, IW"
            )
        return self.kind

    @property
    def target(self) -> BoolArray:
        """Which trials are targets: the same in every view."""
        shared = [kind for kind in self.kinds.used if "+" in kind]
        return self.kinds.isin([*TARGETS, max(shared, key=len, default="")])

    @property
    def counts(self) -> dict[str, int]:
        """Trials of every kind."""
        if self.kind is None:
            return {"": len(self)}
        return {kind: int((self.kind == kind).sum()) for kind in self.kind.used}


@dataclass(frozen=True)
class Scores:
    """Scores of trials; ids are given in any form, and held as `mvplda.coded.Coded`.

    enrol, test : (n,) ids of the model and of the test
    score : (n,) numbers, none of them NaN; those of float32 stay so, for they have fewer digits
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
    """Number the text of some columns; all columns are equally long."""
    for name in names:
        object.__setattr__(record, name, Coded.of(getattr(record, name)))
    shapes = [column.shape for column in vars(record).values() if hasattr(column, "shape")]
    if any(shape != (len(record.enrol),) for shape in shapes):
        raise DataError(
            f"a list has as many models as tests, kinds and scores; got the shapes {shapes}"
        )


def read_trials(path: PathLike) -> Trials:
    """Read a trial list from a file, a pipe or ``-``, standard input; the format is seen from the contents."""
    source = OnDisk(path)
    format = _seen_trials(source)
    kind = Coder()
    lines: dict[str, int] = {}  # where each kind stands first

    def add(kinds: Sequence[Any], numbers: Sequence[int]) -> None:
        for name in dict.fromkeys(kinds):
            if name not in kind.table:
                lines[name] = numbers[kinds.index(name)]
        kind.add(kinds)

    enrol, test = _read_pairs(source, format, KIND, add)
    if not kind.parts:
        return Trials(enrol, test)
    coded = kind.result(path)
    known = kinds_among(coded.names.tolist())
    meant = []
    for name, line in zip(coded.names.tolist(), lines.values(), strict=True):
        if name and name not in known and name.lower() not in SPELLINGS:
            fail(path, f"{name[:40]!r} is the kind; expected one of {KINDS}", line)
        meant.append(name if name in known else SPELLINGS.get(name.lower(), ""))
    return Trials(enrol, test, coded.renamed(meant))


def read_scores(path: PathLike) -> Scores:
    """Read scores from a file, a pipe or ``-``, standard input; the format is seen from the contents."""
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
    """Models and tests; what stands in the third column, where there is one, is given to `add` with its lines.

    third : names of that column in a table
    """
    path = source.name
    places: tuple[int, int, int | None] = (1, 2, 0) if format == "voxceleb" else (0, 1, 2)
    if format == "rsr2015":
        blocks = _rsr2015_blocks(source)
    elif format == "table":
        header, blocks = table_blocks(source)
        places = (needed(path, header, ENROL), needed(path, header, TEST), column_of(header, third))
    else:
        blocks = column_blocks(source, *LINES[format])
    enrol = Coder()
    test = Coder()
    for fields, lines in blocks:
        enrol.add(fields[places[0]])
        test.add(fields[places[1]])
        if places[2] is not None and places[2] < len(fields):
            add(fields[places[2]], lines)
    return enrol.result(path), test.result(path)


def _seen_trials(source: OnDisk) -> str:
    """The format of a trial list, from its header and fields; an ambiguous list is an error."""
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
    known = {*SPELLINGS, *kinds_among(row[2] for row in rows)}
    is_first = [row[0] in ("0", "1") for row in rows]
    is_last = [row[2] in known or row[2].lower() in known for row in rows]
    if all(is_first) and all(is_last):
        fail(
            source.name,
            "both the first and the last field may be the key: begin the list with a header, enrol test key",
        )
    if all(is_first) or (is_first[0] and not is_last[0]):
        return "voxceleb"
    if not is_last[0]:
        first = lines[0].decode()[:80]
        fail(source.name, f"not a trial list that is known ({', '.join(TRIALS)}): {first!r}", 1)
    return "kaldi"


def _rsr2015_blocks(source: OnDisk) -> Iterator[Columns]:
    for fields, lines in column_blocks(source, [6], RSR2015_LINE, commas=True):
        models, tests, *marks = fields
        kinds = []
        for line, row in zip(lines, zip(*marks, strict=True), strict=True):
            kind = RSR2015_MARKS.get(b"".join(row))
            if kind is None:
                given = b",".join(row).decode()
                fail(source.name, f"the marks {given!r}; expected {RSR2015_LINE}", line)
            kinds.append(kind)
        utterances = [rsr2015_utterance(as_text(name)) for name in tests]
        yield [models, utterances, kinds], lines


def write_trials(path: PathLike, trials: Trials) -> None:
    """Write a trial list, all or nothing: as CSV by the suffix, else as Kaldi's."""
    columns = {"enrol": trials.enrol, "test": trials.test}
    if trials.kind is not None:
        columns["kind"] = trials.kind
    _write(path, columns)


def write_scores(path: PathLike, scores: Scores) -> None:
    """Write scores, all or nothing: as CSV by the suffix, else as Kaldi's; ``-`` is standard output.

    Text holds the digits that give every number back, and no more: at most 9 for those of float32.
    """
    _write(path, {"enrol": scores.enrol, "test": scores.test, "score": scores.score})


def _write(path: PathLike, columns: Mapping[str, Any]) -> None:
    if suffix_of(path) == ".csv":
        write_table(path, columns)
        return
    for column in columns.values():
        if isinstance(column, Coded):
            check_ids(column.used)  # a kind that is not known is empty, which a line cannot hold
    write_text(path, (" ".join(map(str, row)) for row in rows_of(*columns.values())))


class Matched(NamedTuple):
    """Scores in the order of a list of trials.

    score : (n,) score of every trial
    duplicates : scores that repeat another of the same trial, with the same number
    unused : scores of trials that the list does not have
    """

    score: Array
    duplicates: int
    unused: int


def rows_in(names: Names, table: Sequence[str]) -> IntArray:
    """Where names stand in a table; -1 of those that do not."""
    place = {name: row for row, name in enumerate(table)}
    return np.array([place.get(name, -1) for name in names.tolist()], dtype=np.int64)


def match(trials: Trials, scores: Scores) -> Matched:
    """The score of every trial, found by the ids of model and test.

    A trial without a score is an error that names it, and so is a trial with two different ones, or two kinds.
    """
    # One number for every pair of a model and a test, as the scores number them.
    width = len(scores.test.names)
    keys = scores.enrol.codes.astype(np.int64) * width + scores.test.codes
    models = rows_in(trials.enrol.names, scores.enrol.names.tolist())[trials.enrol.codes]
    tests = rows_in(trials.test.names, scores.test.names.tolist())[trials.test.codes]
    wanted = np.where((models < 0) | (tests < 0), -1, models * width + tests)
    known, first, numbers = np.unique(keys, return_index=True, return_inverse=True)
    values = scores.score[first].astype(np.float64)
    _refuse(
        scores,
        scores.score != values[numbers],
        "{} score(s) contradict an earlier one of the same trial, the first is {!r}",
    )
    place = np.searchsorted(known, wanted)
    # Behind the last key stands one that no trial has.
    missing = np.append(known, -2)[place] != wanted
    _refuse(trials, missing, f"{{}} of {len(trials)} trials have no score, the first is {{!r}}")
    if trials.kind is not None:
        kinds = np.zeros(len(known), dtype=trials.kind.codes.dtype)
        kinds[place] = trials.kind.codes
        clash = kinds[place] != trials.kind.codes
        _refuse(trials, clash, "{} trial(s) are listed with two kinds, the first is {!r}")
    used = np.zeros(len(known), dtype=bool)
    used[place] = True
    return Matched(values[place], len(scores) - len(known), int((~used).sum()))


def _refuse(rows: Trials | Scores, wrong: BoolArray, said: str) -> None:
    """An error with their number and the first of them, where any row is wrong."""
    if wrong.any():
        first = int(wrong.argmax())
        raise LabelError(said.format(int(wrong.sum()), f"{rows.enrol[first]} {rows.test[first]}"))


# Lists of RSR2015 part I.


def rsr2015_utterance(name: str) -> str:
    """An RSR2015 file as the id of an utterance: ``male/m051/m051_01_003.sph`` is ``m051/m051_01_003``."""
    return name.removesuffix(".sph").removeprefix("male/").removeprefix("female/")


def read_rsr2015_enrolment(path: PathLike) -> Groups:
    """Read a ``.trn``: lines of a model and its utterances, ``m051_003 male/m051/m051_01_003.sph,male/...``."""
    models = read_groups(path, commas=True)
    return {model: tuple(map(rsr2015_utterance, files)) for model, files in models.items()}
