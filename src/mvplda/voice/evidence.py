"""Profiles of recordings: labels, weights and how well each recording fits the others."""

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
"""View of the phrase."""

FIT_PRIOR_LOG_ODDS = 3.0
"""Prior log odds that a recording is of the person that it is labelled with."""

MAX_CHUNK_NUMBERS = 2**22
"""Largest size of the evidence in a chunk of `leave_one_out`, in float64 numbers (32 MiB)."""

MAX_CHUNK_RECORDINGS = 2**8
"""Most recordings per chunk of `leave_one_out`: with named sessions, time grows with the pairs in a chunk."""

MAX_COMPARED = 20
"""Most other recordings of its profile that a recording is compared with."""


def single_profile(bundle: Bundle, side: ExtractedVectors, name: str) -> Profiles:
    """Return one profile of all vectors of a side; without session names they belong to one session."""
    names = [name] * len(side.X)
    labels = session_labels(bundle, side.sessions or names) | phrase_labels(bundle, side.phrases)
    return bundle.enrol(side.X, names, labels or None)


def session_labels(bundle: Bundle, sessions: ArrayLike) -> dict[str, ArrayLike]:
    """Return labels of vectors by session; empty for a model without that view."""
    return {SESSION_VIEW: sessions} if SESSION_VIEW in bundle.pair_terms().base else {}


def phrase_labels(bundle: Bundle, phrases: Sequence[str]) -> dict[str, ArrayLike]:
    """Return labels of vectors by phrase; empty without names, or for a model without that view."""
    if not any(phrases) or PHRASE_VIEW not in bundle.views:
        return {}
    return {PHRASE_VIEW: np.array([phrase or None for phrase in phrases], dtype=object)}


def leave_one_out(
    bundle: Bundle, X: FloatArray, owners: Sequence[str], sessions: Sequence[str]
) -> Array:
    """Return the LLR of each recording against the other recordings of its owner, (n,); NaN if there are none."""
    fit_llrs = np.full(len(X), np.nan)
    other_rows = _others_of_owner(owners)
    tested = np.array([row for row, rows in enumerate(other_rows) if len(rows)], dtype=np.int64)
    if not len(tested):
        return fit_llrs
    # a vector is in many sums: compute its evidence once
    y = bundle.evidence(X)
    session_of = np.asarray(sessions)
    question = speaker_question(bundle)
    has_sessions = bool(session_labels(bundle, session_of))

    def enrol(rows: IntArray, profile: IntArray) -> Profiles:
        labels = session_labels(bundle, session_of[rows]) if has_sessions else None
        return sum_evidence(y[rows], profile, labels, bundle.pair_terms().base, bundle._key())

    # in chunks, because the evidence of all others of all recordings would not fit into memory
    counts = np.array([len(other_rows[row]) for row in tested])
    rows_per_chunk = max(1, MAX_CHUNK_NUMBERS // y.shape[1])
    chunk_of = counts.cumsum() // rows_per_chunk + np.arange(len(tested)) // MAX_CHUNK_RECORDINGS
    for chunk in np.split(tested, np.flatnonzero(np.diff(chunk_of)) + 1):
        compared = np.concatenate([other_rows[row] for row in chunk])
        profile_of = np.repeat(chunk, [len(other_rows[row]) for row in chunk])
        pairs = np.arange(len(chunk))[:, None].repeat(2, axis=1)
        answer = bundle.answer(enrol(compared, profile_of), enrol(chunk, chunk), question, pairs)
        fit_llrs[chunk] = answer.llr
    return fit_llrs


def _others_of_owner(owners: Sequence[str]) -> list[IntArray]:
    """Return, for each recording, the rows of the first other recordings of its owner."""
    rows_of: dict[str, list[int]] = {}
    for row, owner in enumerate(owners):
        rows_of.setdefault(owner, []).append(row)
    # one more than are compared, because the recording itself may be among them
    first = {owner: np.array(rows[: MAX_COMPARED + 1]) for owner, rows in rows_of.items()}
    return [first[owner][first[owner] != row][:MAX_COMPARED] for row, owner in enumerate(owners)]


def recording_weights(fit_llrs: Array) -> Array:
    """Weight of each recording in [0.1, 1]; recordings that do not match the profile are down-weighted.

    fit_llrs : of `leave_one_out`; NaN has the weight 1. Weights are multiples of 0.1, so that few differ
    """
    chance = 1.0 / (1.0 + np.exp(-np.nan_to_num(fit_llrs, nan=np.inf) - FIT_PRIOR_LOG_ODDS))
    return np.maximum(np.round(chance, 1), 0.1)


def speaker_question(bundle: Bundle) -> Question:
    """Return the question whether the speaker is the same, whatever the other views are."""
    return Question("speaker" if "speaker" in bundle.views else None)
