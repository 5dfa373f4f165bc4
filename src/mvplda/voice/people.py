"""People in recordings of several speakers: turns of a diariser, and whose they are."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .._typing import Array, FloatArray, IntArray, PathLike
from ..bundle import Bundle
from ..decisions import without_outliers
from ..exceptions import DataError, MvpldaWarning
from ..io.streams import OnDisk, fail, lines_of
from .evidence import leave_one_out, session_labels, speaker_question

# People across recordings: which turns are of the same person, by the exact LLRs of groups of turns.
#
# Groups are merged, the likeliest pairs first, by the LLR of all turns of one against all of the other, with their
# numbers and, where the model has the view ``recording``, with their recordings. What overlaps in time is never one
# person.


class Turn(NamedTuple):
    """A stretch of a recording in which one person speaks, in seconds.

    name : speaker within the recording, as a diariser has it; turns of one name are one person's. None or empty:
        unnamed
    """

    recording: str
    start: float
    end: float
    name: str | None = None

    def overlaps(self, other: Turn) -> bool:
        """Whether two people speak at the same time."""
        if self.recording != other.recording:
            return False
        if self.name and self.name == other.name:
            return False
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True)
class FoundPeople:
    """Whose every turn is.

    person : (n,) number of every turn's person; the one with the most turns has 0
    fits : (n,) LLR of a turn against the others of its person; NaN where there are none
    undecided_pairs : (LLR, person, person) of those who may be one person and may be two, the likeliest first
    """

    person: IntArray
    fits: Array
    undecided_pairs: list[tuple[float, int, int]]


RTTM_OTHER_TYPES = (
    *("SEGMENT", "NOSCORE", "NO_RT_METADATA", "LEXEME", "NON-LEX", "NON-SPEECH"),
    *("FILLER", "EDIT", "IP", "SU", "CB", "A/P"),
)
"""Types of lines of RTTM, besides SPEAKER, that have times."""

RTTM_MISSING = "<NA>"
"""Field of RTTM without a value: a voice activity detector names no speakers."""


def read_turns(path: PathLike) -> list[Turn]:
    """Turns of an RTTM file (of a diariser), or of a ``segments`` file of Kaldi.

    What an RTTM file holds besides turns, such as words, is passed over, and a warning counts it.
    """
    turns = []
    others = 0
    for number, line in enumerate(lines_of(OnDisk(path)), 1):
        fields = line.decode().split()
        # what RTTM tells of speakers, and comments, are no turns
        if not fields or fields[0].startswith((";;", "SPKR-INFO")):
            continue
        if fields[0] in RTTM_OTHER_TYPES:
            others += 1
            continue
        try:
            if fields[0] == "SPEAKER":
                start = float(fields[3])
                name = None if fields[7] == RTTM_MISSING else fields[7]
                turn = Turn(fields[1], start, start + float(fields[4]), name)
            else:
                turn = Turn(fields[1], float(fields[2]), float(fields[3]))
        except (IndexError, ValueError):
            fail(path, "expected SPEAKER lines of RTTM, or: utterance recording start end", number)
        if not 0 <= turn.start < turn.end < np.inf:
            fail(path, f"a turn from {turn.start:g} to {turn.end:g} s is none", number)
        turns.append(turn)
    if others:
        warnings.warn(
            MvpldaWarning(f"{path}: {others} line(s) of RTTM that are not SPEAKER are passed over"),
            stacklevel=2,
        )
    return turns


def read_named_turns(path: PathLike) -> list[Turn]:
    """Turns of the people who were named on the page of `people_page`, which saves them; each has that name."""
    try:
        saved = json.loads(Path(path).read_text(encoding="utf-8"))
        turns = [Turn(**{**turn, "name": who}) for who, spoken in saved.items() for turn in spoken]
    except (ValueError, TypeError, AttributeError):
        fail(path, "expected {name: turns}, as the page of mvplda people saves it")
    if not turns:
        fail(
            path,
            "nobody is named in it: name people on the page of mvplda people, and save the names",
        )
    for one, other in combinations(turns, 2):
        if one.name == other.name and one._replace(name=None).overlaps(other):
            raise DataError(
                f"{path}: {one.name!r} speaks twice at {other.start:g} s of {one.recording}: two people have one name"
            )
    return turns


def _first_owners(turns: Sequence[Turn]) -> IntArray:
    """(n,) number of every turn's speaker within its recording; a turn without a name is a speaker of its own."""
    # a number is never equal to a name, whatever the name is
    keys = [(turn.recording, turn.name or i) for i, turn in enumerate(turns)]
    numbers: dict[tuple[str, int | str], int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys])


def find_people(
    bundle: Bundle, X: FloatArray, turns: Sequence[Turn], **wanted: float | None
) -> FoundPeople:
    """The people of some turns, of which X are the vectors.

    wanted : of the operating point, as in `Bundle.point`: how sure a merge has to be
    """
    if len(X) != len(turns) or not turns:
        raise DataError(
            f"there are {len(turns)} turns that can be used, and {len(X)} vectors: give one of each at least"
        )
    question = speaker_question(bundle)
    sessions = [turn.recording for turn in turns]
    labels = session_labels(bundle, sessions) or None
    overlap = np.array([[one.overlaps(other) for other in turns] for one in turns])
    owner = _first_owners(turns)
    bundle = bundle.deployed(bundle.enrol(X, owner, labels))
    outlier_probability = bundle.outlier_probability(question)
    point = bundle.point(question, **wanted)
    # with more groups there are more chances to be wrong
    limits = without_outliers(np.array([point.threshold, point.reject]), outlier_probability)
    accept, reject = limits + np.log(max(int(owner.max()), 1))

    def compare(owner: IntArray, rows: IntArray) -> Array:
        """LLRs of some groups with all; minus infinity where turns overlap, and of a group with itself."""
        profiles = bundle.enrol(X, owner, labels)
        groups = np.arange(owner.max() + 1)
        every = profiles.take(profiles.number(groups))
        answer = bundle.answer(every.take(rows), every, question)
        llrs = without_outliers(np.asarray(answer.llr), outlier_probability)
        members = np.equal.outer(groups, owner)
        llrs[members[rows] @ overlap @ members.T] = -np.inf
        llrs[np.equal.outer(rows, groups)] = -np.inf
        return llrs

    llrs = compare(owner, np.arange(owner.max() + 1))
    while True:
        groups = np.arange(len(llrs))
        best = llrs.argmax(axis=1)
        is_mutual = (groups < best) & (best[best] == groups)
        merged = np.flatnonzero(is_mutual & (llrs.max(axis=1) >= accept))
        if not len(merged):
            break
        for i in merged:
            owner[owner == best[i]] = i
        left, owner = np.unique(owner, return_inverse=True)
        llrs = llrs[np.ix_(left, left)]
        changed = np.flatnonzero(np.isin(left, merged))
        llrs[changed] = compare(owner, changed)
        llrs[:, changed] = llrs[changed].T
    order = np.argsort(-np.bincount(owner), kind="stable")
    person = np.argsort(order)[owner]
    left = np.triu(llrs[np.ix_(order, order)], 1)
    ask = [(float(left[i, j]), int(i), int(j)) for i, j in np.argwhere(left > reject)]
    fits = leave_one_out(bundle, X, person.tolist(), sessions)
    return FoundPeople(person, fits, sorted(ask, reverse=True))
