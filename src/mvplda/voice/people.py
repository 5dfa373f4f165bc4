"""Clustering of the turns of a diariser by person, over several recordings.

Groups of turns are merged, the most likely pairs first, by the exact LLR of all turns of one group against all turns of
the other. Each recording is a session where the model has that view. Turns that overlap in time are never merged.
"""

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
from ..decisions import DEFAULT_FAR, naming_point
from ..exceptions import DataError, MvpldaWarning
from ..io.streams import OnDisk, fail, lines_of
from .evidence import leave_one_out, session_labels, speaker_question


class Turn(NamedTuple):
    """Stretch of a recording in which one person speaks, in seconds.

    name : speaker within the recording, given by a diariser; turns with one name are of one person. None or empty:
        unnamed
    """

    recording: str
    start: float
    end: float
    name: str | None = None

    def overlaps(self, other: Turn) -> bool:
        """Return whether two turns overlap in time with different speakers."""
        if self.recording != other.recording:
            return False
        if self.name and self.name == other.name:
            return False
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True)
class FoundPeople:
    """The person of each turn.

    person : (n,) number of each turn's person, in descending order of their numbers of turns
    fits : (n,) LLR of each turn against the others of its person; NaN if there are no others
    undecided_pairs : (LLR, person, person) of pairs that may be one person or two, the most likely first
    """

    person: IntArray
    fits: Array
    undecided_pairs: list[tuple[float, int, int]]


RTTM_OTHER_TYPES = (
    *("SEGMENT", "NOSCORE", "NO_RT_METADATA", "LEXEME", "NON-LEX", "NON-SPEECH"),
    *("FILLER", "EDIT", "IP", "SU", "CB", "A/P"),
)
"""Types of RTTM lines with times other than SPEAKER."""

RTTM_MISSING = "<NA>"
"""RTTM field without a value, such as the speaker name of a voice activity detector."""


def read_turns(path: PathLike) -> list[Turn]:
    """Read the turns of an RTTM file (of a diariser), or of a ``segments`` file of Kaldi.

    Other lines of an RTTM file, such as words, are skipped with a warning.
    """
    turns = []
    n_skipped = 0
    for number, line in enumerate(lines_of(OnDisk(path)), 1):
        fields = line.decode().split()
        # comments and descriptions of speakers are not turns
        if not fields or fields[0].startswith((";;", "SPKR-INFO")):
            continue
        if fields[0] in RTTM_OTHER_TYPES:
            n_skipped += 1
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
            fail(
                path,
                f"expected a turn that ends after its start; got {turn.start:g} to {turn.end:g} s",
                number,
            )
        turns.append(turn)
    if n_skipped:
        warnings.warn(
            MvpldaWarning(f"{path}: skipped {n_skipped} line(s) of RTTM that are not SPEAKER"),
            stacklevel=2,
        )
    return turns


def read_named_turns(path: PathLike) -> list[Turn]:
    """Read the turns of the people named on the page of `people_page`; each has that name."""
    try:
        saved = json.loads(Path(path).read_text(encoding="utf-8"))
        turns = [
            Turn(**{**turn, "name": name}) for name, spoken in saved.items() for turn in spoken
        ]
    except (ValueError, TypeError, AttributeError):
        fail(path, "expected {name: turns}, as the page of mvplda people saves it")
    if not turns:
        fail(
            path,
            "there are no names: enter names on the page of mvplda people, and save them",
        )
    for turn, other in combinations(turns, 2):
        if turn.name == other.name and turn._replace(name=None).overlaps(other):
            raise DataError(
                f"{path}: {turn.name!r} speaks twice at {other.start:g} s of {turn.recording}: use two names"
            )
    return turns


def _initial_groups(turns: Sequence[Turn]) -> IntArray:
    """Return the initial group of each turn, (n,): its named speaker in its recording, else a group of one turn."""
    # the number of an unnamed turn never equals a name, which is text
    keys = [(turn.recording, turn.name or i) for i, turn in enumerate(turns)]
    numbers: dict[tuple[str, int | str], int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys])


def find_people(
    bundle: Bundle, X: FloatArray, turns: Sequence[Turn], **point_options: float | None
) -> FoundPeople:
    """Cluster turns by speaker, given their vectors X.

    point_options : options of `mvplda.decisions.naming_point` for the threshold of merging two clusters
    """
    if len(X) != len(turns) or not turns:
        raise DataError(
            f"expected at least one turn and a vector per turn; got {len(turns)} usable turns and {len(X)} vectors"
        )
    question = speaker_question(bundle)
    sessions = [turn.recording for turn in turns]
    labels = session_labels(bundle, sessions) or None
    overlap = np.array([[turn.overlaps(other) for other in turns] for turn in turns])
    group_of = _initial_groups(turns)
    bundle = bundle.deployed(bundle.enrol(X, group_of, labels))
    outlier_probability = bundle.outlier_probability(question)
    # more groups are more chances of a false merge: thresholds grow with their number
    n_others = max(int(group_of.max()), 1)
    point = naming_point(
        bundle.operating_points(question),
        n_others,
        outlier_probability=outlier_probability,
        default_far=DEFAULT_FAR,
        **point_options,
    )
    accept, reject = point.threshold, point.reject + np.log(n_others)

    def compare(group_of: IntArray, rows: IntArray) -> Array:
        """Return the LLRs of groups `rows` against all; -inf for groups with overlapping turns and on the diagonal."""
        profiles = bundle.enrol(X, group_of, labels)
        groups = np.arange(group_of.max() + 1)
        ordered = profiles.take(profiles.number(groups))
        answer = bundle.answer(ordered.take(rows), ordered, question)
        llrs = np.array(answer.inlier_llr)
        members = np.equal.outer(groups, group_of)
        llrs[members[rows] @ overlap @ members.T] = -np.inf
        llrs[np.equal.outer(rows, groups)] = -np.inf
        return llrs

    llrs = compare(group_of, np.arange(group_of.max() + 1))
    while True:
        groups = np.arange(len(llrs))
        best = llrs.argmax(axis=1)
        # pairs of groups that are each other's best are merged in one pass
        is_mutual = (groups < best) & (best[best] == groups)
        merged = np.flatnonzero(is_mutual & (llrs.max(axis=1) >= accept))
        if not len(merged):
            break
        for group in merged:
            group_of[group_of == best[group]] = group
        remaining, group_of = np.unique(group_of, return_inverse=True)
        llrs = llrs[np.ix_(remaining, remaining)]
        changed = np.flatnonzero(np.isin(remaining, merged))
        llrs[changed] = compare(group_of, changed)
        llrs[:, changed] = llrs[changed].T

    order = np.argsort(-np.bincount(group_of), kind="stable")
    person = np.argsort(order)[group_of]
    pair_llrs = llrs[np.ix_(order, order)]
    # each pair once, whatever the sign of the threshold
    is_undecided = np.triu(pair_llrs > reject, 1)
    undecided = [(float(pair_llrs[i, j]), int(i), int(j)) for i, j in np.argwhere(is_undecided)]
    fits = leave_one_out(bundle, X, person.tolist(), sessions)
    return FoundPeople(person, fits, sorted(undecided, reverse=True))
