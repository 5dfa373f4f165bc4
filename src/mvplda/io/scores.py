"""Score files, and the scores of a list of trials.

=========== ==================================================
kaldi       ``enrol test score``
nist        header ``modelid segmentid side LLR``, tabs
csv         header with columns for enrol, test and score
parquet     the same columns
=========== ==================================================
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._typing import PathLike
from ..exceptions import DataError, LabelError, ParameterError
from .files import (
    ENROL,
    SCORE,
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
    split_lines,
    suffix_format,
    write_table,
    write_text,
)
from .trials import Trials

FORMATS = ("kaldi", "nist", "csv", "parquet")


@dataclass(frozen=True)
class Scores:
    """Scores of trials.

    enrol, test : (n,) ids of the model and of the test
    score : (n,) numbers, none of them NaN; those of float32 stay so, for they have fewer digits
    """

    enrol: Names
    test: Names
    score: NDArray[Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "enrol", np.asarray(self.enrol, dtype=np.str_))
        object.__setattr__(self, "test", np.asarray(self.test, dtype=np.str_))
        score = np.asarray(self.score)
        object.__setattr__(self, "score", score if score.dtype == np.float32 else score.astype(np.float64))
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


def match(trials: Trials, scores: Scores) -> Matched:
    """The score of every trial, found by the ids of model and test.

    A trial without a score is an error that names it, and so is a trial with two different ones.
    """
    found: dict[tuple[str, str], float] = {}
    different: list[tuple[str, str]] = []
    rows = zip(scores.enrol.tolist(), scores.test.tolist(), strict=True)
    for pair, value in zip(rows, scores.score.tolist(), strict=True):
        if found.setdefault(pair, value) != value:
            different.append(pair)
    if different:
        first = " ".join(different[0])
        raise LabelError(
            f"{len(different)} score(s) contradict an earlier one of the same trial, the first is {first!r}"
        )
    pairs = list(zip(trials.enrol.tolist(), trials.test.tolist(), strict=True))
    missing = [pair for pair in pairs if pair not in found]
    if missing:
        first = " ".join(missing[0])
        raise LabelError(f"{len(missing)} of {len(pairs)} trials have no score, the first is {first!r}")
    values = np.fromiter((found[pair] for pair in pairs), dtype=np.float64, count=len(pairs))
    return Matched(values, len(scores) - len(found), len(found) - len(set(pairs)))


def read_scores(path: PathLike, format: str | None = None) -> Scores:
    """Read scores from a file, a pipe or ``-``, standard input; without a format, it is seen from the contents."""
    if format is not None:
        _check_format(format)
    data = read_bytes(path)
    if format == "parquet" or (format is None and (suffix_format(path) == "parquet" or is_parquet(data))):
        header, columns = read_parquet_columns(path, data)
        enrol, test, score = (columns[needed(path, header, names)] for names in (ENROL, TEST, SCORE))
        return Scores(as_names(path, map(str, enrol)), as_names(path, map(str, test)), _numbers(path, score))
    lines = split_lines(path, data)
    format = _seen_format(path, lines) if format is None else format
    if format == "kaldi":
        rows = fields_of(path, lines, [3], "'enrol test score'")
        enrol, test, score = zip(*rows, strict=True)
        return Scores(as_names(path, enrol), as_names(path, test), _numbers(path, score, lines))
    header, columns = read_separated(path, "," if format == "csv" else "\t", lines)
    enrol, test, score = (columns[needed(path, header, names)] for names in (ENROL, TEST, SCORE))
    return Scores(as_names(path, enrol), as_names(path, test), _numbers(path, score, lines, 1))


def _seen_format(path: PathLike, lines: Sequence[bytes]) -> str:
    """The format of a score file in text, from its suffix and header."""
    if (known := suffix_format(path)) is not None:
        return known
    line = filled_lines(path, lines, 1)[0].decode()
    for separator, format in (("\t", "nist"), (",", "csv")):
        header = line.split(separator)
        if len(header) > 2 and column_of(header, ENROL) is not None and column_of(header, SCORE) is not None:
            return format
    if len(line.encode().split()) != 3 or plain(line.encode().split()[0].decode()) == "modelid":
        fail(path, f"not a score file that is known ({', '.join(FORMATS)}): the first line is {line[:80]!r}", 1)
    return "kaldi"


def _numbers(
    path: PathLike, values: Sequence[Any], lines: Sequence[bytes] | None = None, header: int = 0
) -> NDArray[np.float64]:
    try:
        numbers = np.array([float(value) for value in values], dtype=np.float64)
        wrong = int(np.isnan(numbers).argmax()) if np.isnan(numbers).any() else None
    except (ValueError, TypeError):
        wrong = next(k for k, value in enumerate(values) if not _is_number(value))
    if wrong is None:
        return numbers
    line = wrong + 1 if lines is None else line_of(lines, wrong + header)
    value = values[wrong].decode() if isinstance(values[wrong], bytes) else values[wrong]
    raise problem(path, f"{str(value)[:40]!r} is the score; expected a number", line)


def _is_number(value: Any) -> bool:
    try:
        return not math.isnan(float(value))
    except (ValueError, TypeError):
        return False


def has_few_digits(score: NDArray[Any]) -> bool:
    """Whether numbers have no more digits than those of float32 are written with."""
    with np.errstate(over="ignore"):
        short = score.astype(np.float32)
    return bool((short.astype(np.str_).astype(np.float64) == score).all())


def write_scores(path: PathLike, scores: Scores, format: str | None = None) -> None:
    """Write scores, all or nothing; ``-`` is standard output.

    Without a format, CSV or Parquet by the suffix, else Kaldi's. Text holds the digits that
    give every number back, and no more: at most 9 for those of float32.
    """
    format = format or suffix_format(path) or "kaldi"
    _check_format(format)
    enrol, test = check_ids(scores.enrol.tolist()), check_ids(scores.test.tolist())
    values = scores.score.astype(np.str_).astype(np.float64).tolist()
    if format == "kaldi":
        write_text(path, [f"{e} {t} {s!r}" for e, t, s in zip(enrol, test, values, strict=True)])
    elif format == "nist":
        columns = {"modelid": enrol, "segmentid": test, "side": ["a"] * len(scores), "LLR": values}
        write_table(path, columns, "tsv")
    else:
        write_table(path, {"enrol": enrol, "test": test, "score": values}, format)


def _check_format(format: str) -> None:
    if format not in FORMATS:
        raise ParameterError(f"the format of a score file is one of {', '.join(FORMATS)}; got {format!r}")
