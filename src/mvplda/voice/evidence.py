"""Enrolment of recordings in profiles, with less weight for those that do not match the others of their profile."""

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
"""Name of the view of phrases."""

FIT_PRIOR_LOG_ODDS = 3.0
"""Prior log odds that a recording is of the person whose name it has as label."""

MAX_CHUNK_NUMBERS = 2**22
"""Maximum number of float64 values in a chunk of `leave_one_out` (32 MiB)."""

MAX_CHUNK_RECORDINGS = 2**8
"""Maximum number of recordings per chunk of `leave_one_out`, because time grows with its square if sessions are
named."""

MAX_COMPARED = 20
"""Maximum number of other recordings of its profile with which a recording is compared."""


def single_profile(bundle: Bundle, side: ExtractedVectors, name: str) -> Profiles:
    """Enrol all vectors of one side of a comparison as a single profile.

    Parameters
    ----------
    bundle : model
    side : vectors, with their sessions and phrases if these are named; otherwise they belong to one session
    name : id of the profile
    """
    names = [name] * len(side.X)
    labels = session_labels(bundle, side.sessions or names) | phrase_labels(bundle, side.phrases)
    return bundle.enrol(side.X, names, labels or None)


def session_labels(bundle: Bundle, sessions: ArrayLike) -> dict[str, ArrayLike]:
    """Return the labels of vectors in the view of sessions, as {view: labels}; {} if the model lacks this view.

    bundle : model
    sessions : (n,) session of each vector
    """
    return {SESSION_VIEW: sessions} if SESSION_VIEW in bundle.pair_terms().base else {}


def phrase_labels(bundle: Bundle, phrases: Sequence[str]) -> dict[str, ArrayLike]:
    """Return the labels of vectors in the view of phrases, as {view: labels}.

    bundle : model
    phrases : (n,) name of each vector's phrase, "" if it is unknown

    Returns
    -------
    {"phrase": labels}; {} if no phrase has a name, or if the model lacks this view
    """
    if not any(phrases) or PHRASE_VIEW not in bundle.views:
        return {}
    return {PHRASE_VIEW: np.array([phrase or None for phrase in phrases], dtype=object)}


def leave_one_out(
    bundle: Bundle, X: FloatArray, owners: Sequence[str], sessions: Sequence[str]
) -> Array:
    """Compare each recording with the other recordings of its owner.

    Parameters
    ----------
    bundle : model
    X : (n, D) vector of each recording
    owners, sessions : (n,) owner and session of each recording

    Returns
    -------
    (n,) LLR of the same speaker for each recording; NaN if its owner has no other recording
    """
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

    # in chunks, because the compared recordings of all recordings together may not fit into memory
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
    """Return, for each recording, the indices of at most `MAX_COMPARED` other recordings of its owner."""
    rows_of: dict[str, list[int]] = {}
    for row, owner in enumerate(owners):
        rows_of.setdefault(owner, []).append(row)
    # one more than are compared, because the recording itself may be among them
    first = {owner: np.array(rows[: MAX_COMPARED + 1]) for owner, rows in rows_of.items()}
    return [first[owner][first[owner] != row][:MAX_COMPARED] for row, owner in enumerate(owners)]


def recording_weights(fit_llrs: Array) -> Array:
    """Return the weight of each recording in its profile, (n,), from 0.1 to 1.

    Recordings that do not match the others of their profile have a low weight. Weights are rounded to multiples of 0.1,
    because equal weights are faster to score.

    fit_llrs : (n,) LLRs of `leave_one_out`; NaN has the weight 1
    """
    chance = 1.0 / (1.0 + np.exp(-np.nan_to_num(fit_llrs, nan=np.inf) - FIT_PRIOR_LOG_ODDS))
    return np.maximum(np.round(chance, 1), 0.1)


def speaker_question(bundle: Bundle) -> Question:
    """Return the question whether the speaker is the same, regardless of other views such as the phrase.

    A model without a view named "speaker" gets the question about all its views.
    """
    return Question("speaker" if "speaker" in bundle.views else None)
