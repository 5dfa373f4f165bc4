"""Scores, posteriors and rankings of random questions against dense densities of the raw vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from fuzz_scoring import Discrepancy, check, draw

from mvplda import MultiviewPLDA
from mvplda.exceptions import LabelError

CASES = 2000
CHUNK = 50
QUICK = range(0, CASES, 20)


@pytest.mark.parametrize("seed", QUICK)
def test_a_random_question_has_the_dense_answer(seed: int) -> None:
    check(draw(seed))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, CASES, CHUNK))
def test_many_random_questions_have_the_dense_answers(first: int) -> None:
    wrong = {}
    for seed in range(first, first + CHUNK):
        try:
            check(draw(seed))
        except Discrepancy as found:
            wrong[seed] = str(found)
    if wrong:
        seeds = " ".join(map(str, wrong))
        pytest.fail("\n\n".join([f"run alone: python tests/fuzz_scoring.py {seeds}", *wrong.values()]))


@pytest.fixture(scope="module")
def model() -> MultiviewPLDA:
    rng = np.random.default_rng(5)
    loadings = {"speaker": rng.normal(size=(4, 2)), "phrase": rng.normal(size=(4, 2))}
    return MultiviewPLDA.from_parameters(np.zeros(4), loadings, np.full(4, 0.5))


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("top", [1, 2, 9])
def test_identify_gives_the_best_first(model: MultiviewPLDA, labelled: bool, top: int) -> None:
    rng = np.random.default_rng(6)
    ids = np.repeat(rng.permutation(9) + 100, [1, 2, 3, 1, 4, 2, 1, 3, 2])
    labels = {"phrase": rng.integers(0, 3, len(ids))} if labelled else None
    profiles = model.enrol(3 * rng.normal(size=(len(ids), 4)), ids, labels)
    tests = 3 * rng.normal(size=(5, 4))
    llr = model.llr(profiles, tests, same="speaker", dtype=np.float64)
    best = np.argsort(-llr, axis=0)[:top].T
    found = model.identify(profiles, tests, top=top, same="speaker", dtype=np.float64)
    np.testing.assert_array_equal(found.ids, profiles.ids[best])
    np.testing.assert_allclose(found.scores, np.take_along_axis(llr.T, best, axis=1), rtol=1e-9)


@pytest.mark.parametrize(
    ("ids", "unknown"),
    [([30, 10, 20], (40, 15, 5)), (["max", "ann", "bob"], ("zoe", "bea", "al"))],
    ids=["numbers", "names"],
)
@pytest.mark.parametrize("beside", [False, True])
def test_an_unknown_id_is_refused_wherever_it_would_sort(
    model: MultiviewPLDA, ids: Sequence[Any], unknown: Sequence[Any], beside: bool
) -> None:
    profiles = model.enrol(np.eye(4)[:3], ids)
    np.testing.assert_array_equal(profiles.number(ids[::-1]), [2, 1, 0])
    for stranger in unknown:
        wanted = [ids[0], stranger, ids[2]] if beside else [stranger]
        for choose in (profiles.select, profiles.number):
            with pytest.raises(LabelError, match=str(stranger)):
                choose(wanted)
