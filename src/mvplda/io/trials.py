"""Trials: which model meets which test, and of which kind (`mvplda.kinds`) the trial is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._typing import PathLike
from ..exceptions import DataError, LabelError, ParameterError
from ..kinds import SPELLINGS, TARGETS, kinds_of, patterns, views_of
from ..labels import encode_labels
from .files import (
    ENROL,
    KIND,
    TEST,
    Names,
    as_names,
    check_ids,
    column_of,
    fail,
    fields_of,
    filled_lines,
    is_parquet,
    line_of,
    needed,
    plain,
    problem,
    read_bytes,
    read_parquet_columns,
    read_separated,
    rsr2015_utterance,
    split_lines,
    suffix_format,
    write_table,
    write_text,
)


@dataclass(frozen=True)
class Trials:
    """A list of trials.

    enrol, test : (n,) ids of the model and of the test
    kind : (n,) target, nontarget, TC, TW, IC, IW, a pattern of `views`, or empty where it is
        not known; None where no kind is known
    views : names of the views of which the kinds are patterns
    """

    enrol: Names
    test: Names
    kind: Names | None = None
    views: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("enrol", "test") if self.kind is None else ("enrol", "test", "kind"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.str_))
        shapes = [self.enrol.shape, self.test.shape] + ([] if self.kind is None else [self.kind.shape])
        if any(shape != (len(self.enrol),) for shape in shapes):
            raise DataError(f"a trial list has as many models as tests and kinds; got {shapes}")
        if self.kind is not None:
            allowed = kinds_of(self.views)
            odd = [kind for kind in np.unique(self.kind).tolist() if kind and kind not in allowed]
            if odd:
                raise LabelError(f"the kind of a trial is one of {', '.join(allowed)}; got {odd[0]!r}")

    def __len__(self) -> int:
        return len(self.enrol)

    def __getitem__(self, rows: Any) -> Trials:
        """The trials in some rows."""
        return Trials(self.enrol[rows], self.test[rows], None if self.kind is None else self.kind[rows], self.views)

    @property
    def target(self) -> NDArray[np.bool_]:
        """Which trials are targets: the same in every view."""
        if self.kind is None:
            raise LabelError("the kinds of these trials are not known: read a list with a key")
        unknown = int((self.kind == "").sum())
        if unknown:
            raise LabelError(f"the kind of {unknown} trial(s) is not known: leave them out, or add the key")
        return np.isin(self.kind, [*TARGETS, "+".join(self.views)])

    @property
    def counts(self) -> dict[str, int]:
        """Trials of every kind."""
        if self.kind is None:
            return {"": len(self)}
        return dict(Counter(self.kind.tolist()))

    @property
    def duplicates(self) -> int:
        """Trials that repeat an earlier one."""
        return len(self) - len(set(zip(self.enrol.tolist(), self.test.tolist(), strict=True)))


def trials_from_labels(
    enrol_labels: Mapping[str, Any],
    test_labels: Mapping[str, Any],
    *,
    enrol_ids: Sequence[Any] | None = None,
    test_ids: Sequence[Any] | None = None,
    sample: int | None = None,
    seed: int = 0,
) -> Trials:
    """Trials of every model against every test, or at most `sample` of every kind.

    Parameters
    ----------
    enrol_labels, test_labels : {view: labels} of the models and of the tests; two views in
        the order speaker, phrase give TC, TW, IC and IW
    enrol_ids, test_ids : names of the models and tests; None numbers them
    sample : how many trials of every kind, drawn without replacement; None takes all
    seed : of the draw
    """
    views = tuple(enrol_labels)
    if set(views) != set(test_labels) or not views:
        raise LabelError(f"both sides need labels of the same views; got {list(views)} and {list(test_labels)}")
    if sample is not None and sample < 1:
        raise ParameterError(f"sample is a positive number of trials of every kind, or None; got {sample}")
    n, m = (len(side[views[0]]) for side in (enrol_labels, test_labels))
    if n == 0 or m == 0:
        raise LabelError(f"trials need models and tests; got {n} and {m}")
    together = {view: [*list(enrol_labels[view]), *list(test_labels[view])] for view in views}
    table = encode_labels(together, views)
    if len(table) != n + m:
        raise LabelError(f"the labels of the views differ in number; the first view has {n} and {m}")
    codes = [(table.codes[view][:n], table.codes[view][n:]) for view in views]
    rng = np.random.default_rng(seed)
    names = patterns(views)
    chosen = np.full((n, m), -1, dtype=np.int8 if len(names) < 128 else np.int32)
    chosen[:] = sum((e[:, None] != t).astype(np.int32) << (len(views) - 1 - k) for k, (e, t) in enumerate(codes))
    flat = chosen.reshape(-1)
    if sample is None:
        rows = np.arange(n * m)
    else:
        drawn = []
        for number in range(len(names)):
            found = np.flatnonzero(flat == number)
            drawn.append(rng.choice(found, size=min(sample, len(found)), replace=False) if len(found) else found)
        rows = np.sort(np.concatenate(drawn))
    first = np.asarray(np.arange(n) if enrol_ids is None else list(enrol_ids)).astype(np.str_)
    second = np.asarray(np.arange(m) if test_ids is None else list(test_ids)).astype(np.str_)
    if len(first) != n or len(second) != m:
        raise LabelError(f"{len(first)} and {len(second)} ids for {n} models and {m} tests; expected as many")
    kind = np.array(list(names.values()))[flat[rows]]
    return Trials(first[rows // m], second[rows % m], kind, views if len(views) > 2 else ())


# Trial lists in the field's formats.
#
# =========== ==========================================================================
# kaldi       ``enrol test target`` (or nontarget, TC, TW, IC, IW, 1, 0), or without a key
# voxceleb    ``1 enrol test``, 0 for a nontarget
# sdsv        header ``model-id segment-id`` (or ``evaluation-file-id``), blanks between the
#             fields, and with the key a column ``trial-type``
# rsr2015     part I ``.ndx``: ``model,test.sph,Y,N,N,N``, the four marks in the order TC, TW,
#             IC, IW, of which one is Y, none where the kind is not known
# nist        header ``modelid segmentid side``, tabs, and with the key ``targettype``
# csv         header with columns for enrol, test and, with the key, kind
# parquet     the same columns
# =========== ==========================================================================


FORMATS = ("kaldi", "voxceleb", "sdsv", "rsr2015", "nist", "csv", "parquet")
MARKS = ("TC", "TW", "IC", "IW")


def read_trials(path: PathLike, format: str | None = None, *, views: Sequence[str] = ()) -> Trials:
    """Read a trial list.

    Parameters
    ----------
    path : file, pipe, or ``-`` for standard input
    format : one of kaldi, voxceleb, sdsv, rsr2015, nist, csv, parquet; None looks into the file
    views : the views of which kinds are patterns; unless given, those that the patterns of the list name
    """
    if format is not None:
        _check_format(format)
    data = read_bytes(path)
    lines: list[bytes] | None = None
    if format == "parquet" or (format is None and (suffix_format(path) == "parquet" or is_parquet(data))):
        header, columns = read_parquet_columns(path, data)
        columns = [[str(int(v)) if isinstance(v, bool) else str(v) for v in column] for column in columns]
    else:
        lines = split_lines(path, data)
        format = _seen_format(path, lines, views) if format is None else format
        if format in ("kaldi", "voxceleb"):
            return _plain_trials(path, lines, format, views)
        if format == "rsr2015":
            return _rsr2015_trials(path, lines)
        header, columns = read_separated(path, {"csv": ",", "nist": "\t", "sdsv": None}[format], lines)
    enrol, test = needed(path, header, ENROL), needed(path, header, TEST)
    key = column_of(header, KIND)
    kind, views = (None, ()) if key is None else _kinds(path, columns[key], views, lines, 1)
    return Trials(as_names(path, columns[enrol]), as_names(path, columns[test]), kind, tuple(views))


def _seen_format(path: PathLike, every: Sequence[bytes], views: Sequence[str]) -> str:
    """The format of a trial list in text, from its suffix, header and fields; an ambiguous list is an error."""
    known = suffix_format(path)
    lines = filled_lines(path, every, 1000)
    line = lines[0].decode()
    by_comma = [field.strip() for field in line.split(",")]
    if len(by_comma) > 1 and column_of(by_comma, ENROL) is not None and column_of(by_comma, TEST) is not None:
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
        rows = [row for row in ([field.decode() for field in other.split()] for other in lines) if len(row) == 3]
        leading = [row[0] in ("0", "1") for row in rows]
        patterned = kinds_of(views or views_of(row[2] for row in rows))
        trailing = [row[2].lower() in SPELLINGS or row[2] in patterned for row in rows]
        if all(leading) and all(trailing):
            fail(path, "both the first and the last field may be the key: name the format, kaldi or voxceleb")
        if all(leading) or (leading[0] and not trailing[0]):
            return "voxceleb"
        if trailing[0]:
            return "kaldi"
    raise problem(path, f"not a trial list that is known ({', '.join(FORMATS)}): the first line is {line[:80]!r}", 1)


def _plain_trials(path: PathLike, lines: Sequence[bytes], format: str, views: Sequence[str]) -> Trials:
    if format == "voxceleb":
        rows = fields_of(path, lines, [3], "'1 enrol test' or '0 enrol test'")
        key, enrol, test = zip(*rows, strict=True)
        for number, value in enumerate(key):
            if value not in (b"0", b"1"):
                fail(path, f"{value.decode()[:40]!r} is the key; expected 1 or 0", line_of(lines, number))
        kind = np.where(np.array(key) == b"1", "target", "nontarget")
        return Trials(as_names(path, enrol), as_names(path, test), kind)
    rows = fields_of(path, lines, [2, 3], "'enrol test' or 'enrol test target|nontarget'")
    columns = list(zip(*rows, strict=True))
    kinds = None
    if len(columns) == 3:
        kinds, views = _kinds(path, [value.decode() for value in columns[2]], views, lines, 0)
    return Trials(as_names(path, columns[0]), as_names(path, columns[1]), kinds, tuple(views))


def _rsr2015_trials(path: PathLike, lines: Sequence[bytes]) -> Trials:
    enrol, test, kind = [], [], []
    expected = "'model,test.sph' and four marks Y or N for TC, TW, IC, IW"
    named = {tuple(b"Y" if k == place else b"N" for k in range(4)): mark for place, mark in enumerate(MARKS)}
    named[b"N", b"N", b"N", b"N"] = ""
    for number, line in enumerate(lines, 1):
        fields = line.replace(b",", b" ").split()
        if not fields:
            continue
        mark = named.get(tuple(fields[2:]))
        if mark is None:
            marks = b",".join(fields[2:]).decode()
            fail(
                path,
                f"{len(fields)} field(s) with the marks {marks[:40]!r}; expected {expected}, at most one Y",
                number,
            )
        enrol.append(fields[0])
        test.append(fields[1].decode())
        kind.append(mark)
    if not enrol:
        fail(path, f"the file is empty; expected lines of {expected}")
    tests = {name: rsr2015_utterance(name) for name in set(test)}
    return Trials(as_names(path, enrol), as_names(path, [tests[name] for name in test]), np.array(kind))


def _kinds(
    path: PathLike, values: Iterable[Any], views: Sequence[str], lines: Sequence[bytes] | None, header: int
) -> tuple[Names, Sequence[str]]:
    """The kinds as we spell them, and the views of which they are patterns."""
    listed = list(values)
    views = views or views_of(listed)
    exact = {name: name for name in kinds_of(views)}
    spelled = {value: exact.get(value) or SPELLINGS.get(str(value).strip().lower()) for value in set(listed)}
    spelled[""] = ""
    wrong = [listed.index(value) for value, kind in spelled.items() if kind is None]
    if wrong:
        entry = min(wrong)
        line = line_of(lines, entry + header) if lines is not None else entry + 1
        hint = "" if views else ", or in all lines the views that agree, such as speaker+channel, or none"
        expected = f"expected one of {', '.join(kinds_of(views))}{hint}"
        fail(path, f"{str(listed[entry])[:40]!r} is the kind; {expected}", line)
    return np.array([spelled[value] for value in listed], dtype=np.str_), views


def write_trials(path: PathLike, trials: Trials, format: str | None = None) -> None:
    """Write a trial list, all or nothing; without a format, CSV or Parquet by the suffix, else Kaldi's.

    Kaldi's lists keep all kinds; VoxCeleb's and NIST's only target and nontarget, and RSR2015's
    only TC, TW, IC and IW.
    """
    format = format or suffix_format(path) or "kaldi"
    _check_format(format)
    enrol, test = check_ids(trials.enrol.tolist()), check_ids(trials.test.tolist())
    kind = None if trials.kind is None else trials.kind.tolist()
    if format == "parquet" or format == "csv":
        columns: dict[str, Any] = {"enrol": enrol, "test": test}
        write_table(path, columns if kind is None else {**columns, "kind": kind}, format)
    elif format == "rsr2015":
        odd = sorted(set(kind or [""]) - {*MARKS, ""})
        if odd:
            raise LabelError(f"RSR2015's lists hold the kinds {', '.join(MARKS)}; these trials hold {odd[0]!r}")
        marks = {k: ",".join("Y" if k == mark else "N" for mark in MARKS) for k in (*MARKS, "")}
        rows = zip(enrol, test, kind or [""] * len(trials), strict=True)
        write_text(path, [f"{e},{t}.sph,{marks[k]}" for e, t, k in rows])
    elif format == "voxceleb":
        write_text(path, [f"{int(k)} {e} {t}" for k, e, t in zip(trials.target, enrol, test, strict=True)])
    elif format == "nist":
        columns = {"modelid": enrol, "segmentid": test, "side": ["a"] * len(trials)}
        if kind is not None:
            columns["targettype"] = np.where(trials.target, "target", "nontarget")
        write_table(path, columns, "tsv")
    else:
        if kind is not None and "" in kind:
            raise LabelError(f"{kind.count('')} trial(s) are of unknown kind, which a {format} list cannot hold")
        fields = [enrol, test] if kind is None else [enrol, test, kind]
        header = ["model-id segment-id" + ("" if kind is None else " trial-type")] if format == "sdsv" else []
        write_text(path, [*header, *map(" ".join, zip(*fields, strict=True))])


def _check_format(format: str) -> None:
    if format not in FORMATS:
        raise ParameterError(f"the format of a trial list is one of {', '.join(FORMATS)}; got {format!r}")
