"""Clustering of the turns of a diariser by person, over several recordings.

Groups of turns are merged, the most likely pairs first, by the LLR of all turns of one group against all turns of the
other. Each recording counts as a session, if the model distinguishes sessions. Turns that overlap in time are never
merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .._typing import Array, FloatArray, IntArray
from ..bundle import Bundle
from ..decisions import DEFAULT_FAR, naming_point
from ..exceptions import DataError
from .evidence import leave_one_out, session_labels, speaker_question
from .extractors.extractor import ExtractedVectors
from .profile_file import ProfileBook
from .turns import Turn
from .verification import VoiceModel


@dataclass(frozen=True)
class FoundPeople:
    """People found in recordings: the person of each turn.

    person : (n,) number of each turn's person; person 0 has the most turns
    fits : (n,) LLR of each turn against the other turns of its person; NaN if there are no others
    undecided_pairs : (LLR, person, person) for two people who may be the same person, the most likely pair first
    """

    person: IntArray
    fits: Array
    undecided_pairs: list[tuple[float, int, int]]


def _initial_groups(turns: Sequence[Turn]) -> IntArray:
    """Return the (n,) number of each turn's group before clustering.

    Turns of one recording with the same name form a group; an unnamed turn is a group of its own.
    """
    # the number of an unnamed turn never equals a name, which is text
    keys = [(turn.recording, turn.name or i) for i, turn in enumerate(turns)]
    numbers: dict[tuple[str, int | str], int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys])


def find_people(
    bundle: Bundle, X: FloatArray, turns: Sequence[Turn], **point_options: float | None
) -> FoundPeople:
    """Cluster turns by speaker.

    Parameters
    ----------
    bundle : model
    X : (n, D) vector of each turn
    turns : n turns, at least one
    point_options : options of `mvplda.decisions.naming_point` for the threshold from which two groups are merged
    """
    if len(X) != len(turns) or not turns:
        raise DataError(
            f"expected at least one turn and a vector per turn; got {len(turns)} usable turns and {len(X)} vectors. "
            "Check that the recordings contain speech"
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
        """Return the (rows, groups) LLRs of the groups `rows` against all groups.

        They are -inf for a group against itself, and for groups with turns that overlap.

        group_of : (n,) group of each turn
        """
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


@dataclass(frozen=True)
class Suggestion:
    """Suggestion of a name for a person found in recordings; a user has to confirm the name.

    person : number of the person found, see `FoundPeople`
    name : name of the profile that the person may have
    llr : LLR of the person's turns against the profile
    is_probable : whether the LLR reaches the model's threshold for the number of profiles
    """

    person: int
    name: str
    llr: float
    is_probable: bool


def suggest_names(
    voices: VoiceModel,
    extracted: ExtractedVectors,
    turns: Sequence[Turn],
    people: FoundPeople,
    known: ProfileBook,
    far: float | None = None,
) -> list[Suggestion]:
    """Compare the people found in recordings with known profiles, and suggest a name for each who may have a profile.

    Parameters
    ----------
    voices : model
    extracted : vector and quality of each turn
    turns : n turns
    people : person of each turn, from `find_people`
    known : file of profiles
    far : rate at which people without a profile may get a name that is marked as probable, see
        `mvplda.decisions.naming_point`; None: the default there

    Returns
    -------
    at most one suggestion per person, with the most probable name
    """
    suggestions = []
    for person in range(int(people.person.max()) + 1):
        rows = np.flatnonzero(people.person == person).tolist()
        side = ExtractedVectors(
            extracted.X[rows],
            rows,
            [extracted.qualities[row] for row in rows],
            [],
            [turns[row].recording for row in rows],
        )
        ranking = voices.identify(side, known, far=far)
        if ranking.answer != "reject":
            name, llr, _ = ranking.candidates[0]
            suggestions.append(Suggestion(person, name, llr, ranking.answer == "accept"))
    return suggestions
