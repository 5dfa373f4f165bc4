"""Checks that an answer is a function of its trial, whatever else is asked about at the same time."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from mvplda import Bundle, Question
from mvplda.decisions import OperatingPoint, decide, decide_each
from mvplda.exceptions import MvpldaWarning
from mvplda.scoring.answer import Answer
from mvplda.scoring.profiles import Profiles


def about_one(question: Question, i: int, j: int) -> Question:
    """The question about profile i and test j alone."""
    known: Any = question.known
    if isinstance(known, dict):
        known = {view: [classes[i]] for view, classes in known.items()}
    countermeasure = question.countermeasure
    if countermeasure is not None and np.ndim(countermeasure) == 1:
        countermeasure = np.asarray(countermeasure)[[j]]
    return replace(question, known=known, countermeasure=countermeasure)


def assert_same(one: Answer, other: Answer, tolerance: float) -> None:
    """Everything that two answers to one trial hold is the same."""
    np.testing.assert_allclose(one.llr, other.llr, atol=tolerance)
    assert list(one.logs) == list(other.logs)
    posteriors = other.posteriors()
    for hypothesis, values in one.posteriors().items():
        np.testing.assert_allclose(values, posteriors[hypothesis], atol=tolerance)
    for view in one.views:
        np.testing.assert_allclose(one.llr_of(view), other.llr_of(view), atol=tolerance)
        np.testing.assert_allclose(one.log_odds_of(view), other.log_odds_of(view), atol=tolerance)
    assert (one.keys == other.keys).all()
    assert (one.is_calibrated == other.is_calibrated).all()
    assert one.claims.keys() == other.claims.keys()
    for view, names in one.claims.items():
        assert (names == other.claims[view]).all()
    assert (one.countermeasure is None) == (other.countermeasure is None)
    if one.countermeasure is not None:
        np.testing.assert_array_equal(one.countermeasure, other.countermeasure)
    assert (one.near_matches is None) == (other.near_matches is None)
    if one.near_matches is not None and other.near_matches is not None:
        for column, expected in zip(one.near_matches[1:], other.near_matches[1:], strict=True):
            np.testing.assert_allclose(column, expected, atol=tolerance)
    point = OperatingPoint(1.0)
    assert decide(one, point).answer == decide(other, point).answer
    assert decide(one, point).reason == decide(other, point).reason


def check_trials(
    bundle: Bundle,
    profiles: Profiles,
    tests: Profiles,
    question: Question | None = None,
    *,
    seed: int = 0,
    trials: int = 12,
) -> Answer:
    """Compare a matrix, its subsets and a list with answers to single trials; the answer to all of them."""
    asked = question or Question()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MvpldaWarning)
        whole = bundle.answer(profiles, tests, asked)
        tolerance = 1e-9 * max(
            1.0, *(float(np.abs(values).max()) for values in whole.logs.values())
        )
        rng = np.random.default_rng(seed)
        pairs = np.argwhere(np.ones(whole.llr.shape, dtype=bool))
        pairs = pairs[rng.integers(0, len(pairs), trials)]
        pairs = np.concatenate([pairs, pairs[:2]])
        listed = bundle.answer(profiles, tests, asked, pairs)
        assert listed.llr.shape == (len(pairs),)
        listed_decisions = decide_each(listed, [OperatingPoint(1.0)] * len(pairs))
        for k, (i, j) in enumerate(pairs.tolist()):
            single = about_one(asked, i, j)
            alone = bundle.answer(profiles.take([i]), tests.take([j]), single).take(0, 0)
            assert_same(whole.take(i, j), alone, tolerance)
            assert_same(listed.take(k), alone, tolerance)
            assert listed_decisions[k].answer == decide(alone, OperatingPoint(1.0)).answer
        some = np.sort(rng.permutation(len(profiles))[: max(1, len(profiles) // 2)])
        claimed: Any = asked.known
        if isinstance(claimed, dict):
            claimed = {view: np.asarray(names)[some] for view, names in claimed.items()}
        part = bundle.answer(profiles.take(some), tests, replace(asked, known=claimed))
        np.testing.assert_allclose(part.llr, whole.llr[some], atol=tolerance)
    return whole
