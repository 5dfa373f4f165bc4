"""Kaldi's lists: ``utt2spk`` and any ``utt2X``, ``spk2utt``, and labels from them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._typing import PathLike
from ..exceptions import LabelError, UnlabelledWarning
from .sources import fail
from .text import (
    LONGEST_ID,
    Names,
    as_names,
    check_id,
    column_of,
    needed,
    read_lines,
    read_separated,
    repeated,
    write_text,
)


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
