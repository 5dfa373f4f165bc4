"""Trials: which model meets which test, of which kind (`mvplda.kinds`) the trial is, and its score; who is enrolled.

=========== ==========================================================================
kaldi       ``enrol test target`` (or nontarget, TC, TW, IC, IW, 1, 0), or without a key;
            scores ``enrol test score``
voxceleb    ``1 enrol test``, 0 for a nontarget
rsr2015     part I ``.ndx``: ``model,test.sph,Y,N,N,N``, the four marks in the order TC, TW,
            IC, IW, of which one is Y, none where the kind is not known
table       Parquet, or text with a header, between commas, tabs (NIST) or blanks (SdSV):
            columns for enrol, test and, with the key, kind; or score
=========== ==========================================================================

Written are kaldi, csv and parquet.

Lists are read and written some lines at a time, and their ids are held as numbers: 30 million trials fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._typing import FloatArray, IntArray, PathLike
from ..exceptions import DataError, LabelError, ParameterError
from ..kinds import SPELLINGS, TARGETS, Coded, kinds_of, views_of
from .files import (
    ENROL,
    KIND,
    SCORE,
    TEST,
    Coder,
    Columns,
    Names,
    OnDisk,
    check_ids,
    column_blocks,
    column_of,
    fail,
    filled_lines,
    is_table,
    needed,
    problem,
    read_lines,
    rows_of,
    suffix_format,
    table_blocks,
    write_table,
    write_text,
)

TRIALS = ("kaldi", "voxceleb", "rsr2015", "table")
SCORES = ("kaldi", "table")
WRITTEN = ("kaldi", "csv", "parquet")


@dataclass(frozen=True, init=False)
class Trials:
    """A list of trials; columns of text are given in any form, and held as `mvplda.kinds.Coded`.

    enrol, test : (n,) ids of the model and of the test
    kind : (n,) target, nontarget, TC, TW, IC, IW, a pattern of `views`, or empty where it is
        not known; None where no kind is known
    views : names of the views of which the kinds are patterns
    """

    enrol: Coded
    test: Coded
    kind: Coded | None
    views: tuple[str, ...]

    def __init__(
        self,
        enrol: ArrayLike,
        test: ArrayLike,
        kind: ArrayLike | None = None,
        views: tuple[str, ...] = (),
    ) -> None:
        object.__setattr__(self, "enrol", Coded.of(enrol))
        object.__setattr__(self, "test", Coded.of(test))
        object.__setattr__(self, "kind", None if kind is None else Coded.of(kind))
        object.__setattr__(self, "views", views)
        shapes = [self.enrol.shape, self.test.shape] + (
            [] if self.kind is None else [self.kind.shape]
        )
        if any(shape != (len(self.enrol),) for shape in shapes):
            raise DataError(f"a trial list has as many models as tests and kinds; got {shapes}")
        if self.kind is not None:
            allowed = kinds_of(self.views)
            odd = [kind for kind in self.kind.used if kind and kind not in allowed]
            if odd:
                raise LabelError(
                    f"the kind of a trial is one of {', '.join(allowed)}; got {odd[0]!r}"
                )

    def __len__(self) -> int:
        return len(self.enrol)

    def __getitem__(self, rows: Any) -> Trials:
        """The trials in some rows."""
        return Trials(
            self.enrol[rows],
            self.test[rows],
            None if self.kind is None else self.kind[rows],
            self.views,
        )

    @property
    def kinds(self) -> Coded:
        """The kind of every trial, where all are known."""
        if self.kind is None:
            raise LabelError("the kinds of these trials are not known: read a list with a key")
        unknown = int((self.kind == "").sum())
        if unknown:
            raise LabelError(
                f"the kind of {unknown} trial(s) is not known: leave them out, or add the key"
            )
        return self.kind

    @property
    def target(self) -> NDArray[np.bool_]:
        """Which trials are targets: the same in every view."""
        return self.kinds.isin([*TARGETS, "+".join(self.views)])

    @property
    def counts(self) -> dict[str, int]:
        """Trials of every kind."""
        if self.kind is None:
            return {"": len(self)}
        return {kind: int((self.kind == kind).sum()) for kind in self.kind.used}

    @property
    def duplicates(self) -> int:
        """Trials that repeat an earlier one."""
        return len(self) - len(
            np.unique(_keys(self.enrol.codes, self.test.codes, len(self.test.names)))
        )


def read_trials(path: PathLike, format: str | None = None, *, views: Sequence[str] = ()) -> Trials:
    """Read a trial list.

    Parameters
    ----------
    path : file, pipe, or ``-`` for standard input
    format : one of kaldi, voxceleb, rsr2015, table; None looks into the file
    views : the views of which kinds are patterns; unless given, those that the patterns of the list name
    """
    _check_format(format, TRIALS, "a trial list")
    source = OnDisk(path)
    format = format or _seen_trials(source, views)
    places: tuple[int, int, int | None] = (0, 1, 2)
    if format == "voxceleb":
        blocks = column_blocks(source, [3], "'1 enrol test' or '0 enrol test'")
        places = (1, 2, 0)
    elif format == "kaldi":
        blocks = column_blocks(source, [2, 3], "'enrol test' or 'enrol test target|nontarget'")
    elif format == "rsr2015":
        blocks = _rsr2015_blocks(source)
    else:
        names, blocks = table_blocks(source)
        places = (needed(path, names, ENROL), needed(path, names, TEST), column_of(names, KIND))
    enrol = Coder()
    test = Coder()
    kind = Coder()
    lines: dict[Any, int] = {}  # where each kind stands first
    for block in blocks:
        enrol.add(block.fields[places[0]])
        test.add(block.fields[places[1]])
        if places[2] is None or places[2] >= len(block.fields):
            continue  # there is no key
        kinds = block.fields[places[2]]
        kind.add(kinds)
        for name in set(kinds) - lines.keys():
            lines[name] = block.lines[kinds.index(name)]
    if not kind.parts:
        return Trials(enrol.result(path), test.result(path))
    coded = kind.result(path)
    views = views or views_of(coded.names.tolist())
    meant = []
    for name, line in zip(coded.names.tolist(), map(lines.__getitem__, kind.table), strict=True):
        spelled = _kind_named(name, views, format)
        if spelled is None:
            fail(path, f"{name[:40]!r} is {_expected_kind(views, format)}", line)
        meant.append(spelled)
    views = () if format == "voxceleb" else tuple(views)
    return Trials(enrol.result(path), test.result(path), coded.renamed(meant), views)


def _kind_named(name: str, views: Sequence[str], format: str) -> str | None:
    """The kind that is spelled so; None where none is."""
    if format == "voxceleb":
        return {"1": "target", "0": "nontarget"}.get(name)
    if name == "" or name in kinds_of(views):
        return name
    return SPELLINGS.get(name.strip().lower())


def _expected_kind(views: Sequence[str], format: str) -> str:
    if format == "voxceleb":
        return "the key; expected 1 or 0"
    hint = ", or in all lines the views that agree, such as speaker+channel, or none"
    return f"the kind; expected one of {', '.join(kinds_of(views))}{'' if views else hint}"


def _seen_trials(source: OnDisk, views: Sequence[str]) -> str:
    """The format of a trial list, from its header and fields; an ambiguous list is an error."""
    if is_table(source, ENROL, TEST):
        return "table"
    lines = [line.decode() for line in filled_lines(source, 1000)]
    fields = lines[0].replace(",", " ").split()
    if len(fields) == 6 and set(fields[2:]) <= {"Y", "N"}:
        return "rsr2015"
    rows = [[field.decode() for field in line.encode().split()] for line in lines]
    if len(rows[0]) == 2:
        return "kaldi"
    if len(rows[0]) == 3:
        rows = [row for row in rows if len(row) == 3]
        leading = [row[0] in ("0", "1") for row in rows]
        patterned = kinds_of(views or views_of(row[2] for row in rows))
        trailing = [row[2].lower() in SPELLINGS or row[2] in patterned for row in rows]
        if all(leading) and all(trailing):
            fail(
                source.name,
                "both the first and the last field may be the key: name the format, kaldi or voxceleb",
            )
        if all(leading) or (leading[0] and not trailing[0]):
            return "voxceleb"
        if trailing[0]:
            return "kaldi"
    known = ", ".join(TRIALS)
    raise problem(
        source.name,
        f"not a trial list that is known ({known}): the first line is {lines[0][:80]!r}",
        1,
    )


def _rsr2015_blocks(source: OnDisk) -> Iterator[Columns]:
    expected = "'model,test.sph' and four marks Y or N for TC, TW, IC, IW, at most one Y"
    named = {"YNNN": "TC", "NYNN": "TW", "NNYN": "IC", "NNNY": "IW", "NNNN": ""}
    for fields, lines in column_blocks(source, [6], expected, commas=True):
        models, tests, *marks = fields
        kinds = []
        for line, row in zip(lines, zip(*marks, strict=True), strict=True):
            kind = named.get(b"".join(row).decode())
            if kind is None:
                fail(
                    source.name, f"the marks {b','.join(row).decode()!r}; expected {expected}", line
                )
            kinds.append(kind)
        utterances = [rsr2015_utterance(name.decode()) for name in tests]
        yield Columns([models, utterances, kinds], lines)


def write_trials(path: PathLike, trials: Trials, format: str | None = None) -> None:
    """Write a trial list, all or nothing: kaldi, csv or parquet; without a format, by the suffix, else Kaldi's."""
    format = format or suffix_format(path) or "kaldi"
    _check_format(format, WRITTEN, "a trial list")
    columns = {"enrol": trials.enrol, "test": trials.test}
    if trials.kind is not None:
        columns["kind"] = trials.kind
    if format != "kaldi":
        write_table(path, columns, format)
        return
    check_ids(trials.enrol.used)
    check_ids(trials.test.used)
    unknown = trials.counts.get("", 0)
    if trials.kind is not None and unknown:
        raise LabelError(f"{unknown} trial(s) are of unknown kind, which a kaldi list cannot hold")
    write_text(path, map(" ".join, rows_of(*columns.values())))


def _check_format(format: str | None, known: Sequence[str], what: str) -> None:
    if format is not None and format not in known:
        raise ParameterError(f"the format of {what} is one of {', '.join(known)}; got {format!r}")


# Scores.


@dataclass(frozen=True, init=False)
class Scores:
    """Scores of trials; ids are given in any form, and held as `mvplda.kinds.Coded`.

    enrol, test : (n,) ids of the model and of the test
    score : (n,) numbers, none of them NaN; those of float32 stay so, for they have fewer digits
    """

    enrol: Coded
    test: Coded
    score: FloatArray

    def __init__(self, enrol: ArrayLike, test: ArrayLike, score: ArrayLike) -> None:
        object.__setattr__(self, "enrol", Coded.of(enrol))
        object.__setattr__(self, "test", Coded.of(test))
        numbers = np.asarray(score)
        numbers = numbers if numbers.dtype == np.float32 else numbers.astype(np.float64, copy=False)
        object.__setattr__(self, "score", numbers)
        shapes = [self.enrol.shape, self.test.shape, self.score.shape]
        if any(shape != (len(self.enrol),) for shape in shapes):
            raise DataError(f"scores have as many models, tests and numbers; got {shapes}")
        if np.isnan(self.score).any():
            raise DataError(f"{int(np.isnan(self.score).sum())} score(s) are NaN")

    def __len__(self) -> int:
        return len(self.enrol)


class Matched(NamedTuple):
    """Scores in the order of a list of trials.

    score : (n,) score of every trial
    duplicates : scores that repeat another of the same trial, with the same number
    unused : scores of trials that the list does not have
    """

    score: NDArray[np.float64]
    duplicates: int
    unused: int


def _keys(enrol: NDArray[np.integer[Any]], test: NDArray[np.integer[Any]], width: int) -> IntArray:
    """One number a pair of codes; -1 where one of them is."""
    keys = enrol.astype(np.int64) * width + test
    keys[(enrol < 0) | (test < 0)] = -1
    return keys


def rows_in(names: Names, table: Sequence[str]) -> IntArray:
    """Where names stand in a table; -1 of those that do not."""
    place = {name: row for row, name in enumerate(table)}
    return np.array([place.get(name, -1) for name in names.tolist()], dtype=np.int64)


def match(trials: Trials, scores: Scores) -> Matched:
    """The score of every trial, found by the ids of model and test.

    A trial without a score is an error that names it, and so is a trial with two different ones, or two kinds.
    """
    width = len(scores.test.names)
    keys = _keys(scores.enrol.codes, scores.test.codes, width)
    known, first, numbers = np.unique(keys, return_index=True, return_inverse=True)
    values = scores.score[first].astype(np.float64)
    different = np.flatnonzero(scores.score != values[numbers])
    if len(different):
        pair = f"{scores.enrol[different[0]]} {scores.test[different[0]]}"
        raise LabelError(
            f"{len(different)} score(s) contradict an earlier one of the same trial, the first is {pair!r}"
        )
    models = rows_in(trials.enrol.names, scores.enrol.names.tolist())
    tests = rows_in(trials.test.names, scores.test.names.tolist())
    wanted = _keys(models[trials.enrol.codes], tests[trials.test.codes], width)
    place = np.searchsorted(known, wanted)
    # Behind the last key stands one that no trial has.
    missing = np.flatnonzero(np.append(known, -2)[place] != wanted)
    if len(missing):
        pair = f"{trials.enrol[missing[0]]} {trials.test[missing[0]]}"
        raise LabelError(
            f"{len(missing)} of {len(trials)} trials have no score, the first is {pair!r}"
        )
    if trials.kind is not None:
        kinds = np.zeros(len(known), dtype=trials.kind.codes.dtype)
        kinds[place] = trials.kind.codes
        clash = np.flatnonzero(kinds[place] != trials.kind.codes)
        if len(clash):
            pair = f"{trials.enrol[clash[0]]} {trials.test[clash[0]]}"
            raise LabelError(f"the trial {pair!r} is listed with two kinds")
    used = np.zeros(len(known), dtype=bool)
    used[place] = True
    return Matched(values[place], len(scores) - len(known), int((~used).sum()))


def read_scores(path: PathLike, format: str | None = None) -> Scores:
    """Read scores from a file, a pipe or ``-``, standard input; without a format, it is seen from the contents."""
    _check_format(format, SCORES, "a score file")
    source = OnDisk(path)
    places = (0, 1, 2)
    if (format or _seen_scores(source)) == "kaldi":
        blocks = column_blocks(source, [3], "'enrol test score'")
    else:
        header, blocks = table_blocks(source)
        places = (
            needed(path, header, ENROL),
            needed(path, header, TEST),
            needed(path, header, SCORE),
        )
    enrol = Coder()
    test = Coder()
    scores = []
    for fields, lines in blocks:
        enrol.add(fields[places[0]])
        test.add(fields[places[1]])
        scores.append(_numbers(path, fields[places[2]], lines))
    return Scores(enrol.result(path), test.result(path), np.concatenate(scores))


def _seen_scores(source: OnDisk) -> str:
    """The format of a score file, from its header."""
    if is_table(source, ENROL, SCORE):
        return "table"
    line = filled_lines(source, 1)[0].decode()
    if len(line.encode().split()) == 3:
        return "kaldi"
    raise problem(
        source.name,
        f"not a score file that is known ({', '.join(SCORES)}): the first line is {line[:80]!r}",
        1,
    )


def _numbers(path: PathLike, values: Sequence[Any], lines: Sequence[int]) -> NDArray[np.float64]:
    try:
        numbers = np.fromiter(map(float, values), np.float64, len(values))
        wrong = int(np.isnan(numbers).argmax()) if np.isnan(numbers).any() else None
    except (ValueError, TypeError):
        wrong = next(k for k, value in enumerate(values) if not _is_number(value))
    if wrong is None:
        return numbers
    value = values[wrong].decode() if isinstance(values[wrong], bytes) else values[wrong]
    raise problem(path, f"{str(value)[:40]!r} is the score; expected a number", lines[wrong])


def _is_number(value: Any) -> bool:
    try:
        return not math.isnan(float(value))
    except (ValueError, TypeError):
        return False


def write_scores(path: PathLike, scores: Scores, format: str | None = None) -> None:
    """Write scores as kaldi, csv or parquet, all or nothing; ``-`` is standard output.

    Without a format, CSV or Parquet by the suffix, else Kaldi's. Text holds the digits that
    give every number back, and no more: at most 9 for those of float32.
    """
    format = format or suffix_format(path) or "kaldi"
    _check_format(format, WRITTEN, "a score file")
    columns = {"enrol": scores.enrol, "test": scores.test, "score": scores.score}
    if format == "kaldi":
        check_ids(scores.enrol.used)
        check_ids(scores.test.used)
        write_text(path, (f"{e} {t} {s!r}" for e, t, s in rows_of(*columns.values())))
    else:
        write_table(path, columns, format)


# Lists of RSR2015 part I.


def rsr2015_utterance(name: str) -> str:
    """An RSR2015 file as the id of an utterance: ``male/m051/m051_01_003.sph`` is ``m051/m051_01_003``."""
    return name.removesuffix(".sph").removeprefix("male/").removeprefix("female/")


def read_rsr2015_enrolment(path: PathLike) -> dict[str, tuple[str, ...]]:
    """Read a ``.trn``: lines of a model and its utterances, ``m051_003 male/m051/m051_01_003.sph,male/...``."""
    models: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(read_lines(path), 1):
        fields = line.replace(b",", b" ").decode().split()
        if not fields:
            continue
        if len(fields) == 1:
            fail(path, f"model {fields[0][:40]!r} has no utterances", number)
        if fields[0] in models:
            fail(path, f"model {fields[0][:40]!r} is listed again", number)
        models[fields[0]] = tuple(rsr2015_utterance(name) for name in fields[1:])
    if not models:
        fail(path, "the list has no models")
    return models
