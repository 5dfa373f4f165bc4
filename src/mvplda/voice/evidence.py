"""Profiles, labels and questions of recordings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from .._typing import Array, FloatArray, IntArray
from ..bundle import Bundle
from ..scoring.profiles import Profiles, sum_evidence
from ..scoring.question import Question
from .domain.posterior import SESSION_VIEW
from .extractors.extractor import ExtractedVectors

PHRASE_VIEW = "phrase"
"""The view of what is said."""

FIT_PRIOR_LOG_ODDS = 3.0
"""Logarithm of the odds that a take is of the person whose it should be."""

MAX_CHUNK_NUMBERS = 2**22
"""Numbers of evidence of other takes that are held at a time (32 MiB)."""

MAX_CHUNK_RECORDINGS = 2**8
"""Takes that are compared with others at a time: where sessions have names, their pairs count."""

MAX_COMPARED = 20
"""A take is compared with at most so many others of its profile."""


def single_profile(bundle: Bundle, side: ExtractedVectors, name: str) -> Profiles:
    """One profile of all vectors of a side, which are of one session where none are named."""
    names = [name] * len(side.X)
    labels = session_labels(bundle, side.sessions or names) | phrase_labels(bundle, side.phrases)
    return bundle.enrol(side.X, names, labels or None)


def session_labels(bundle: Bundle, sessions: ArrayLike) -> dict[str, ArrayLike]:
    """Labels of vectors by their sessions; none for a model that has no such view."""
    return {SESSION_VIEW: sessions} if SESSION_VIEW in bundle.pair_terms().base else {}


def phrase_labels(bundle: Bundle, phrases: Sequence[str]) -> dict[str, ArrayLike]:
    """Labels of vectors by their phrases; none where no phrase is named, or for a model of voices."""
    if not any(phrases) or PHRASE_VIEW not in bundle.views:
        return {}
    return {PHRASE_VIEW: np.array([phrase or None for phrase in phrases], dtype=object)}


def leave_one_out(
    bundle: Bundle, X: FloatArray, owners: Sequence[str], sessions: Sequence[str]
) -> Array:
    """(n,) LLR that each take is of the same speaker as the others of its owner; NaN where there are none."""
    fits = np.full(len(X), np.nan)
    others = _others_of_owner(owners)
    tested = np.array([row for row, rest in enumerate(others) if len(rest)], dtype=np.int64)
    if not len(tested):
        return fits
    # a vector is in the sums of many others: its evidence is made once
    y = bundle.evidence(X)
    recorded = np.asarray(sessions)
    question = speaker_question(bundle)
    labelled = bool(session_labels(bundle, recorded))

    def enrol(rows: IntArray, owner: IntArray) -> Profiles:
        labels = session_labels(bundle, recorded[rows]) if labelled else None
        return sum_evidence(y[rows], owner, labels, bundle.pair_terms().base, bundle._key())

    # a few at a time: the evidence of all others of all takes would not fit into memory
    counts = np.array([len(others[row]) for row in tested])
    at_once = max(1, MAX_CHUNK_NUMBERS // y.shape[1])
    part = counts.cumsum() // at_once + np.arange(len(tested)) // MAX_CHUNK_RECORDINGS
    for some in np.split(tested, np.flatnonzero(np.diff(part)) + 1):
        rest = np.concatenate([others[row] for row in some])
        each = np.repeat(some, [len(others[row]) for row in some])
        pairs = np.arange(len(some))[:, None].repeat(2, axis=1)
        answer = bundle.answer(enrol(rest, each), enrol(some, some), question, pairs)
        fits[some] = answer.llr
    return fits


def _others_of_owner(owners: Sequence[str]) -> list[IntArray]:
    """For each take, the rows of the first few other takes of its owner."""
    rows_of: dict[str, list[int]] = {}
    for row, owner in enumerate(owners):
        rows_of.setdefault(owner, []).append(row)
    # one more than are compared, for the take itself may be among them
    first = {owner: np.array(rows[: MAX_COMPARED + 1]) for owner, rows in rows_of.items()}
    return [first[owner][first[owner] != row][:MAX_COMPARED] for row, owner in enumerate(owners)]


def recording_weights(fits: Array) -> Array:
    """(n,) how much takes count that fit the others so well: 1, or less down to a tenth; few different values."""
    chance = 1.0 / (1.0 + np.exp(-np.nan_to_num(fits, nan=np.inf) - FIT_PRIOR_LOG_ODDS))
    return np.maximum(np.round(chance, 1), 0.1)


def speaker_question(bundle: Bundle) -> Question:
    """Whether the speaker is the same, whatever the other views are."""
    return Question("speaker" if "speaker" in bundle.views else None)
