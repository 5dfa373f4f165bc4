"""Scores, posteriors and rankings of random questions against dense densities of the raw vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from fuzz_cases import Case, Question, Side, draw, fitted
from fuzz_scoring import Discrepancy, check

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
        pytest.fail(
            "\n\n".join(
                [f"run alone: python tests/support/fuzz_scoring.py {seeds}", *wrong.values()]
            )
        )


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


@pytest.mark.parametrize("dtype", [object, "str", "string"])
def test_ids_of_a_table_are_found(model: MultiviewPLDA, dtype: Any) -> None:
    profiles = model.enrol(np.eye(4)[:3], pd.Series(["max", "ann", "bob"], dtype=dtype))
    assert profiles.select(["bob", "max"]).ids.tolist() == ["bob", "max"]
    assert profiles.number("ann").tolist() == [1]
    with pytest.raises(LabelError, match="zoe"):
        profiles.select(["zoe"])


@pytest.mark.parametrize("missing", ["enrol", "test"])
def test_vectors_without_labels_are_of_different_classes_where_both_sides_have_labels(
    model: MultiviewPLDA, missing: str
) -> None:
    vectors = np.random.default_rng(7).normal(size=(5, 4)).round(3)
    labels: list[tuple[Any, ...]] = [("hi", None, None), ("hi", "hi")]
    if missing == "test":
        labels = [("hi", "hi", "hi"), (None, None)]
    enrol = Side(vectors[:3], ("ann",) * 3, {"phrase": labels[0]})
    test = Side(vectors[3:], ("t",) * 2, {"phrase": labels[1]})
    question = Question()
    expected = question.llr(
        Case(0, model, enrol, test, question, None, {}).trial("ann", "t", question)
    )
    sides = [model.enrol(side.X, side.ids, side.labels) for side in (enrol, test)]
    np.testing.assert_allclose(model.llr(sides[0], sides[1], dtype=np.float64), expected, rtol=1e-9)


def test_vectors_without_labels_are_of_different_classes_in_a_known_view() -> None:
    model, vocabulary = next(fitted(k) for k in range(24) if "speaker" in fitted(k)[0].classes_)
    vectors = np.random.default_rng(8).normal(size=(4, len(model.mean_))).round(3)
    enrol = Side(vectors[:3], ("ann",) * 3, {"speaker": (vocabulary["speaker"][0], None, None)})
    test = Side(vectors[3:], None, {})
    question = Question("speaker")
    expected = question.llr(
        Case(0, model, enrol, test, question, ["speaker"], {}).trial("ann", 0, question)
    )
    profiles = model.enrol(enrol.X, enrol.ids, enrol.labels)
    found = model.llr(profiles, test.X, same="speaker", known="speaker", dtype=np.float64)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_trials_of_far_tensors_are_scored_in_float32(
    model: MultiviewPLDA, dtype: torch.dtype
) -> None:
    vectors = torch.tensor(np.random.default_rng(9).normal(size=(3, 4)) * 1e3, dtype=dtype)
    profiles = model.enrol(vectors, [0, 0, 1])
    pairs = [(0, 0), (1, 2)]
    expected = model.llr(profiles, vectors, dtype=np.float64)[[0, 1], [0, 2]]
    found = model.llr_trials(profiles, vectors, pairs)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6)
