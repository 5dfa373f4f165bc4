"""Trials: which model meets which test, of which kind (`mvplda.kinds`) the trial is, and its score; who is enrolled.

=========== ==========================================================================
kaldi       ``enrol test target`` (or nontarget, TC, TW, IC, IW, 1, 0), or without a key;
            scores ``enrol test score``
voxceleb    ``1 enrol test``, 0 for a nontarget
sdsv        header ``model-id segment-id`` (or ``evaluation-file-id``), blanks between the
            fields, and with the key a column ``trial-type``
rsr2015     part I ``.ndx``: ``model,test.sph,Y,N,N,N``, the four marks in the order TC, TW,
            IC, IW, of which one is Y, none where the kind is not known
nist        header ``modelid segmentid side``, tabs, and with the key ``targettype``;
            scores have a column ``LLR``
csv         header with columns for enrol, test and, with the key, kind; or score
parquet     the same columns
=========== ==========================================================================

Lists are read and written some lines at a time, and their ids are held as numbers: 30 million trials fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._typing import FloatArray, IntArray, PathLike
from ..exceptions import DataError, LabelError, ParameterError
from ..kinds import SPELLINGS, TARGETS, Coded, kinds_of, patterns, views_of
from ..labels import encode_labels
from .files import (
    ENROL,
    KIND,
    SCORE,
    TEST,
    Coder,
    Columns,
    Names,
    OnDisk,
    as_names,
    check_ids,
    column_blocks,
    column_of,
    fail,
    filled_lines,
    line_blocks,
    line_of,
    listed,
    needed,
    plain,
    problem,
    read_lines,
    read_table,
    repeated,
    rows_of,
    suffix_format,
    table_blocks,
    write_table,
    write_text,
)

TRIALS = ("kaldi", "voxceleb", "sdsv", "rsr2015", "nist", "csv", "parquet")
SCORES = ("kaldi", "nist", "csv", "parquet")
MARKS = ("TC", "TW", "IC", "IW")
PARQUET = b"PAR1"
STRETCH = 2**20
"""Trials that are looked up, and scores that are made text, at a time."""


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


def trials_from_labels(
    enrol_labels: Mapping[str, Any],
    test_labels: Mapping[str, Any],
    *,
    enrol_ids: Sequence[Any] | None = None,
    test_ids: Sequence[Any] | None = None,
    sample: int | None = None,
    random_state: int = 0,
) -> Trials:
    """Trials of every model against every test, or at most `sample` of every kind.

    Parameters
    ----------
    enrol_labels, test_labels : {view: labels} of the models and of the tests; two views in
        the order speaker, phrase give TC, TW, IC and IW
    enrol_ids, test_ids : names of the models and tests; None numbers them
    sample : how many trials of every kind, drawn without replacement; None takes all
    random_state : of the draw
    """
    views = tuple(enrol_labels)
    if set(views) != set(test_labels) or not views:
        raise LabelError(
            f"both sides need labels of the same views; got {list(views)} and {list(test_labels)}"
        )
    if sample is not None and sample < 1:
        raise ParameterError(
            f"sample is a positive number of trials of every kind, or None; got {sample}"
        )
    n, m = (len(side[views[0]]) for side in (enrol_labels, test_labels))
    if n == 0 or m == 0:
        raise LabelError(f"trials need models and tests; got {n} and {m}")
    together = {view: [*list(enrol_labels[view]), *list(test_labels[view])] for view in views}
    table = encode_labels(together, views)
    if len(table) != n + m:
        raise LabelError(
            f"the labels of the views differ in number; the first view has {n} and {m}"
        )
    codes = [(table.codes[view][:n], table.codes[view][n:]) for view in views]
    rng = np.random.default_rng(random_state)
    names = patterns(views)
    chosen = np.full((n, m), -1, dtype=np.int8 if len(names) < 128 else np.int32)
    chosen[:] = sum(
        (e[:, None] != t).astype(np.int32) << (len(views) - 1 - k) for k, (e, t) in enumerate(codes)
    )
    flat = chosen.reshape(-1)
    if sample is None:
        rows = np.arange(n * m)
    else:
        drawn = []
        for number in range(len(names)):
            found = np.flatnonzero(flat == number)
            drawn.append(
                rng.choice(found, size=min(sample, len(found)), replace=False)
                if len(found)
                else found
            )
        rows = np.sort(np.concatenate(drawn))
    first = Coded.of(np.arange(n) if enrol_ids is None else list(enrol_ids))
    second = Coded.of(np.arange(m) if test_ids is None else list(test_ids))
    if len(first) != n or len(second) != m:
        raise LabelError(
            f"{len(first)} and {len(second)} ids for {n} models and {m} tests; expected as many"
        )
    kind = Coded(np.array(list(names.values())), flat[rows])
    return Trials(first[rows // m], second[rows % m], kind, views if len(views) > 2 else ())


def read_trials(path: PathLike, format: str | None = None, *, views: Sequence[str] = ()) -> Trials:
    """Read a trial list.

    Parameters
    ----------
    path : file, pipe, or ``-`` for standard input
    format : one of kaldi, voxceleb, sdsv, rsr2015, nist, csv, parquet; None looks into the file
    views : the views of which kinds are patterns; unless given, those that the patterns of the list name
    """
    _check_format(format, TRIALS, "a trial list")
    source = OnDisk(path)
    format = _seen_trials(path, source, views) if format is None else format
    header, places = format not in ("kaldi", "voxceleb", "rsr2015"), (0, 1, 2)
    if format == "voxceleb":
        blocks, places = column_blocks(source, [3], "'1 enrol test' or '0 enrol test'"), (1, 2, 0)
    elif format == "kaldi":
        blocks = column_blocks(source, [2, 3], "'enrol test' or 'enrol test target|nontarget'")
    elif format == "rsr2015":
        blocks = _rsr2015_blocks(source)
    else:
        names, blocks = table_blocks(source, format)
        key = column_of(names, KIND)
        places = (
            needed(path, names, ENROL),
            needed(path, names, TEST),
            len(names) if key is None else key,
        )
    coders = [Coder() for _ in places]
    for block in blocks:
        for coder, place in zip(coders, places, strict=True):
            if place < len(block.fields):  # there may be no key
                coder.add(block.fields[place])
    enrol, test = (coder.result(path) for coder in coders[:2])
    if format == "rsr2015":
        test = test.renamed([rsr2015_utterance(name) for name in test.names.tolist()])
    if not coders[2].parts:
        return Trials(enrol, test)
    kind = coders[2].result(path)
    if format == "voxceleb":
        spelled, words, lower = {"1": "target", "0": "nontarget"}, "the key; expected 1 or 0", {}
    else:
        views = views or views_of(kind.names.tolist())
        hint = (
            ""
            if views
            else ", or in all lines the views that agree, such as speaker+channel, or none"
        )
        words = f"the kind; expected one of {', '.join(kinds_of(views))}{hint}"
        spelled, lower = {"": "", **{name: name for name in kinds_of(views)}}, SPELLINGS
    meant = [spelled.get(name, lower.get(name.strip().lower())) for name in kind.names.tolist()]
    if None in meant:
        entry = int((kind.codes == meant.index(None)).argmax())
        line = entry + 1 if format == "parquet" else line_of(source, entry + header)
        fail(path, f"{kind[entry][:40]!r} is {words}", line)
    return Trials(enrol, test, kind.renamed([str(name) for name in meant]), tuple(views))


def _seen_trials(path: PathLike, source: OnDisk, views: Sequence[str]) -> str:
    """The format of a trial list, from its suffix, header and fields; an ambiguous list is an error."""
    known = suffix_format(path)
    if known == "parquet" or source.head(4) == PARQUET:
        return "parquet"
    lines = filled_lines(source, 1000)
    line = lines[0].decode()
    by_comma = [field.strip() for field in line.split(",")]
    if (
        len(by_comma) > 1
        and column_of(by_comma, ENROL) is not None
        and column_of(by_comma, TEST) is not None
    ):
        return "csv"
    if known == "csv":
        fail(path, f"expected a header with the columns enrol and test; got {line[:80]!r}", 1)
    fields = line.replace(",", " ").split()
    if len(fields) == 6 and set(fields[2:]) <= {"Y", "N"}:
        return "rsr2015"
    fields = [field.decode() for field in line.encode().split()]
    if plain(fields[0]) in ("modelid", "model") and len(fields) > 1 and plain(fields[1]) in TEST:
        return "nist" if "\t" in line and fields[0].lower() == "modelid" else "sdsv"
    if len(fields) == 2:
        return "kaldi"
    if len(fields) == 3:
        rows = [
            row
            for row in ([field.decode() for field in other.split()] for other in lines)
            if len(row) == 3
        ]
        leading = [row[0] in ("0", "1") for row in rows]
        patterned = kinds_of(views or views_of(row[2] for row in rows))
        trailing = [row[2].lower() in SPELLINGS or row[2] in patterned for row in rows]
        if all(leading) and all(trailing):
            fail(
                path,
                "both the first and the last field may be the key: name the format, kaldi or voxceleb",
            )
        if all(leading) or (leading[0] and not trailing[0]):
            return "voxceleb"
        if trailing[0]:
            return "kaldi"
    raise problem(
        path,
        f"not a trial list that is known ({', '.join(TRIALS)}): the first line is {line[:80]!r}",
        1,
    )


def _rsr2015_blocks(source: OnDisk) -> Iterator[Columns]:
    expected = "'model,test.sph' and four marks Y or N for TC, TW, IC, IW"
    named = {
        tuple(b"Y" if k == place else b"N" for k in range(4)): mark
        for place, mark in enumerate(MARKS)
    }
    named[b"N", b"N", b"N", b"N"] = ""
    filled = False
    for first, lines in line_blocks(source):
        rows = []
        for number, line in enumerate(lines, first):
            fields = line.replace(b",", b" ").split()
            if fields and tuple(fields[2:]) not in named:
                marks = (
                    f"{len(fields)} field(s) with the marks {b','.join(fields[2:]).decode()[:40]!r}"
                )
                fail(source.name, f"{marks}; expected {expected}, at most one Y", number)
            if fields:
                rows.append((fields[0], fields[1], named[tuple(fields[2:])]))
        if rows:
            filled = True
            yield Columns(list(zip(*rows, strict=True)), ())
    if not filled:
        fail(source.name, f"the file is empty; expected lines of {expected}")


def write_trials(path: PathLike, trials: Trials, format: str | None = None) -> None:
    """Write a trial list, all or nothing; without a format, CSV or Parquet by the suffix, else Kaldi's.

    Kaldi's lists keep all kinds; VoxCeleb's and NIST's only target and nontarget, and RSR2015's
    only TC, TW, IC and IW.
    """
    format = format or suffix_format(path) or "kaldi"
    _check_format(format, TRIALS, "a trial list")
    check_ids(trials.enrol.used)
    check_ids(trials.test.used)
    sides = [trials.enrol, trials.test]
    fields = sides if trials.kind is None else [*sides, trials.kind]
    kinds = [] if trials.kind is None else trials.kind.used
    if format in ("parquet", "csv"):
        write_table(path, dict(zip(("enrol", "test", "kind"), fields, strict=False)), format)
    elif format == "rsr2015":
        odd = sorted(set(kinds) - {*MARKS, ""})
        if odd:
            raise LabelError(
                f"RSR2015's lists hold the kinds {', '.join(MARKS)}; these trials hold {odd[0]!r}"
            )
        marks = {k: ",".join("Y" if k == mark else "N" for mark in MARKS) for k in (*MARKS, "")}
        write_text(
            path, (f"{row[0]},{row[1]}.sph,{marks[''.join(row[2:])]}" for row in rows_of(*fields))
        )
    elif format == "voxceleb":
        write_text(path, (f"{int(k)} {e} {t}" for k, e, t in rows_of(trials.target, *sides)))
    elif format == "nist":
        columns: dict[str, Any] = {
            "modelid": sides[0],
            "segmentid": sides[1],
            "side": ["a"] * len(trials),
        }
        if trials.kind is not None:
            columns["targettype"] = Coded(
                np.array(["nontarget", "target"]), trials.target.astype(np.int8)
            )
        write_table(path, columns, "tsv")
    else:
        if "" in kinds:
            count = trials.counts[""]
            raise LabelError(
                f"{count} trial(s) are of unknown kind, which a {format} list cannot hold"
            )
        header = (
            ["model-id segment-id" + ("" if trials.kind is None else " trial-type")]
            if format == "sdsv"
            else []
        )
        write_text(path, chain(header, map(" ".join, rows_of(*fields))))


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
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = np.ones(len(keys), dtype=bool)
    first[1:] = keys[1:] != keys[:-1]
    values = scores.score[order].astype(np.float64, copy=False)
    if not first.all():
        different = order[values != values[first][np.cumsum(first) - 1]]
        if len(different):
            named = f"{scores.enrol[different.min()]} {scores.test[different.min()]}"
            raise LabelError(
                f"{len(different)} score(s) contradict an earlier one of the same trial, the first is {named!r}"
            )
        keys, values = keys[first], values[first]
    del order
    found = np.empty(len(trials))
    used = np.zeros(len(keys), dtype=bool)
    kinds = None if trials.kind is None else np.full(len(keys), -1, dtype=np.int16)
    missing, named = 0, ""
    sides = (trials.enrol, scores.enrol), (trials.test, scores.test)
    rows = [rows_in(wanted.names, known.names.tolist()) for wanted, known in sides]
    for start in range(0, len(trials), STRETCH):
        here = slice(start, start + STRETCH)
        wanted = _keys(rows[0][trials.enrol.codes[here]], rows[1][trials.test.codes[here]], width)
        place = (
            np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            if len(keys)
            else np.zeros(0, np.int64)
        )
        absent = keys[place] != wanted if len(keys) else np.ones(len(wanted), dtype=bool)
        if absent.any():
            row = start + int(absent.argmax())
            missing, named = (
                missing + int(absent.sum()),
                named or f"{trials.enrol[row]} {trials.test[row]}",
            )
            continue
        found[here], used[place] = values[place], True
        if trials.kind is not None and kinds is not None:
            kind = trials.kind.codes[here].astype(np.int16)
            earlier = kinds[place]
            kinds[place] = kind
            clash = (kinds[place] != kind) | ((earlier >= 0) & (earlier != kind))
            if clash.any():
                row = start + int(clash.argmax())
                raise LabelError(
                    f"the trial '{trials.enrol[row]} {trials.test[row]}' is listed with two kinds"
                )
    if missing:
        raise LabelError(f"{missing} of {len(trials)} trials have no score, the first is {named!r}")
    return Matched(found, len(scores) - len(keys), int((~used).sum()))


def read_scores(path: PathLike, format: str | None = None) -> Scores:
    """Read scores from a file, a pipe or ``-``, standard input; without a format, it is seen from the contents."""
    _check_format(format, SCORES, "a score file")
    source = OnDisk(path)
    format = _seen_scores(path, source) if format is None else format
    if format == "kaldi":
        blocks, places = column_blocks(source, [3], "'enrol test score'"), (0, 1, 2)
    else:
        header, blocks = table_blocks(source, format)
        places = (
            needed(path, header, ENROL),
            needed(path, header, TEST),
            needed(path, header, SCORE),
        )
    enrol, test = Coder(), Coder()
    scores = []
    for fields, lines in blocks:
        enrol.add(fields[places[0]])
        test.add(fields[places[1]])
        scores.append(_numbers(path, fields[places[2]], lines))
    return Scores(enrol.result(path), test.result(path), np.concatenate(scores))


def _seen_scores(path: PathLike, source: OnDisk) -> str:
    """The format of a score file, from its suffix and header."""
    if (known := suffix_format(path)) is not None or source.head(4) == PARQUET:
        return known or "parquet"
    line = filled_lines(source, 1)[0].decode()
    for separator, format in (("\t", "nist"), (",", "csv")):
        header = line.split(separator)
        if (
            len(header) > 2
            and column_of(header, ENROL) is not None
            and column_of(header, SCORE) is not None
        ):
            return format
    if len(line.encode().split()) != 3 or plain(line.encode().split()[0].decode()) == "modelid":
        fail(
            path,
            f"not a score file that is known ({', '.join(SCORES)}): the first line is {line[:80]!r}",
            1,
        )
    return "kaldi"


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


def has_few_digits(score: FloatArray) -> bool:
    """Whether numbers have no more digits than those of float32 are written with."""
    parts = (score[start : start + STRETCH] for start in range(0, len(score), STRETCH))
    with np.errstate(over="ignore"):
        return all(
            bool((np.array(listed(part.astype(np.float32))) == part).all()) for part in parts
        )


def write_scores(path: PathLike, scores: Scores, format: str | None = None) -> None:
    """Write scores, all or nothing; ``-`` is standard output.

    Without a format, CSV or Parquet by the suffix, else Kaldi's. Text holds the digits that
    give every number back, and no more: at most 9 for those of float32.
    """
    format = format or suffix_format(path) or "kaldi"
    _check_format(format, SCORES, "a score file")
    check_ids(scores.enrol.used)
    check_ids(scores.test.used)
    columns: list[Any] = [scores.enrol, scores.test, scores.score]
    if format == "kaldi":
        write_text(path, (f"{e} {t} {s!r}" for e, t, s in rows_of(*columns)))
    elif format == "nist":
        columns.insert(2, ["a"] * len(scores))
        write_table(
            path, dict(zip(("modelid", "segmentid", "side", "LLR"), columns, strict=True)), "tsv"
        )
    else:
        write_table(path, dict(zip(("enrol", "test", "score"), columns, strict=True)), format)


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


def _enrolments(
    path: PathLike, entries: list[tuple[int, str, str | None, tuple[str, ...]]]
) -> EnrolmentList:
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
                fail(
                    path,
                    f"expected a header 'model-id phrase-id ...'; got {line.decode()[:60]!r}",
                    number,
                )
            phrase = column_of(header[1:2], PHRASE) is not None
            continue
        rest = fields[1:]
        if phrase and not rest:
            fail(
                path,
                f"model {fields[0]!r} stands alone; expected its phrase and utterances",
                number,
            )
        entries.append(
            (number, fields[0], rest[0] if phrase else None, tuple(rest[1:] if phrase else rest))
        )
    if header is None:
        fail(path, "the file is empty; expected a header 'model-id phrase-id ...'")
    return _enrolments(path, entries)


def read_train_labels(path: PathLike) -> tuple[Names, dict[str, Names]]:
    """Read a ``train_labels.txt``: ids, and {"speaker": labels, "phrase": labels} aligned with them."""
    header, columns = read_table(path, "sdsv")
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
            fail(
                path,
                f"expected a model such as 'm051_003', speaker and phrase; got {model[:40]!r}",
                number,
            )
        entries.append(
            (number, model, model.rpartition("_")[2], tuple(map(rsr2015_utterance, fields[1:])))
        )
    return _enrolments(path, entries)
