"""Folds of held-out people and their trials, against counting by loops."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from mvplda.exceptions import DataError, ParameterError
from mvplda.kinds import trial_kinds
from mvplda.models.heldout import held_out_trials

VIEWS = ("speaker", "phrase", "channel")


def labels_of(rng: np.random.Generator, n: int = 400, views: int = 2) -> dict[str, np.ndarray]:
    sizes = dict(zip(VIEWS, (23, 5, 3), strict=True))
    return {view: rng.integers(sizes[view], size=n) for view in VIEWS[:views]}


@pytest.mark.parametrize("views", [1, 2, 3])
@pytest.mark.parametrize("limited", [False, True])
def test_trials_are_those_of_naive_counting(views: int, limited: bool) -> None:
    labels = labels_of(np.random.default_rng(views), views=views)
    most: dict[str, Any] = {"most_tests": None, "most_trials": None}
    if limited:
        most = {"most_tests": 30, "most_trials": 40}
    dealt = held_out_trials(labels, folds=4, enrolment=2, **most)
    assert len(dealt) == 4
    for trials in dealt:
        rows_held = np.flatnonzero(~trials.train)
        held = set(labels["speaker"][rows_held].tolist())
        assert held.isdisjoint(labels["speaker"][trials.train].tolist())
        cells: dict[tuple[Any, ...], list[int]] = {}
        for row in rows_held.tolist():
            cells.setdefault(tuple(labels[v][row] for v in labels), []).append(row)
        enrolled = {row for rows in cells.values() for row in rows[: min(2, len(rows) // 2)]}
        assert set(trials.enrol.tolist()) == enrolled
        assert len(trials.enrol) == len(enrolled)
        tests = set(rows_held.tolist()) - enrolled
        assert set(trials.test.tolist()) <= tests
        assert len(trials.test) == (min(30, len(tests)) if limited else len(tests))
        # every profile is one cell, whole
        for number, first in enumerate(trials.profiles.tolist()):
            own = trials.enrol[trials.ids == number].tolist()
            cell = cells[tuple(labels[v][first] for v in labels)]
            assert own == cell[: min(2, len(cell) // 2)]
            assert own[0] == first
        every: Counter[int] = Counter()
        for first in trials.profiles.tolist():
            for test in trials.test.tolist():
                shared = tuple(v for v in labels if labels[v][first] == labels[v][test])
                every[trials.hypotheses.index(shared)] += 1
        drawn: Counter[int] = Counter()
        for (profile, test), kind in zip(trials.pairs.tolist(), trials.kinds.tolist(), strict=True):
            first, row = trials.profiles[profile], trials.test[test]
            shared = tuple(v for v in labels if labels[v][first] == labels[v][row])
            assert trials.hypotheses[kind] == shared
            drawn[kind] += 1
        assert len({tuple(pair) for pair in trials.pairs.tolist()}) == len(trials.pairs)
        assert drawn == {k: min(n, 40) if limited else n for k, n in every.items()}
        masks = trial_kinds(
            {v: labels[v][trials.profiles] for v in labels},
            {v: labels[v][trials.test] for v in labels},
        )
        for number, mask in enumerate(masks.values()):
            assert mask[tuple(trials.pairs[trials.kinds == number].T)].all()


def test_names_have_no_part_in_folds_or_trials() -> None:
    labels = labels_of(np.random.default_rng(1))
    renamed = {
        view: np.array([f"{(7 * code) % 101:03d}" for code in column])
        for view, column in labels.items()
    }
    for first, second in zip(held_out_trials(labels), held_out_trials(renamed), strict=True):
        for name in ("train", "enrol", "ids", "test", "pairs", "kinds"):
            np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def test_vectors_without_a_label_make_no_trial() -> None:
    labels = labels_of(np.random.default_rng(14))
    gone = np.random.default_rng(15).random(400) < 0.3
    none = labels["phrase"].astype(object)
    none[gone] = None
    dealt = held_out_trials({**labels, "phrase": none})
    assert dealt
    for trials in dealt:
        assert not gone[np.concatenate([trials.enrol, trials.test])].any()


def test_too_few_people_make_no_folds() -> None:
    assert held_out_trials({"speaker": np.repeat(np.arange(7), 4)}) == []
    # nobody has two vectors: no trial of the same person
    assert held_out_trials({"speaker": np.arange(40)}) == []


def test_folds_have_about_the_same_number_of_people() -> None:
    people = np.random.default_rng(3).integers(50, size=500)
    for some, expected in ((people, [12, 12, 13, 13]), (people % 9, [4, 5])):
        dealt = held_out_trials({"speaker": some}, folds=4)
        assert sorted(len(np.unique(some[~trials.train])) for trials in dealt) == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"folds": 1}, "folds must be a whole number"),
        ({"folds": True}, "folds must be a whole number"),
        ({"enrolment": 0}, "enrolment must be a whole number"),
        ({"enrolment": 1.5}, "enrolment must be a whole number"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises((ParameterError, DataError), match=message):
        held_out_trials(labels_of(np.random.default_rng(0)), **settings)
