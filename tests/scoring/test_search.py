"""Search by inner products, against all LLRs: exact or a bound, with a certificate that holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from domain_problems import domain_bundle, make_place
from problems import speakers_and_phrases

from mvplda import PLDA, Bundle, Committee, CosineScorer, MultiviewPLDA
from mvplda.exceptions import DataError, ParameterError
from mvplda.preprocessing import standard_chain
from mvplda.scoring.search import SearchIndex

X, LABELS = speakers_and_phrases()
QUICK: Any = {"max_iter": 4, "tol": 0}
VIEWS = {"speaker": 3, "phrase": 2}
MODELS: dict[str, Any] = {
    "plda": lambda: PLDA(3, **QUICK),
    "wide": lambda: MultiviewPLDA({"speaker": 6, "phrase": 5}, noise="full", **QUICK),
    "multiview": lambda: MultiviewPLDA(VIEWS | {"speaker:phrase": 2}, noise="full", **QUICK),
    "cascade": lambda: Committee(
        {view: MultiviewPLDA({view: rank}, **QUICK) for view, rank in VIEWS.items()}, weights=None
    ),
    "cosine": lambda: CosineScorer(),
    "committee": lambda: Committee(
        {"all": MultiviewPLDA(VIEWS, **QUICK), "voice": MultiviewPLDA({"speaker": 2}, **QUICK)},
        weights={
            "all": {"speaker": 0.7, "phrase": 0.4, "together": 0.5},
            "voice": {"speaker": 0.3},
        },
    ),
}
ONE_VIEW = ("plda", "speaker")
EXACT = {("plda", None), ("cosine", None), ("cascade", "speaker")}


def fitted(name: str) -> Any:
    if name == "domain":
        return domain_bundle()
    y = LABELS["speaker"] if name == "plda" else LABELS
    return Bundle(standard_chain(7), MODELS[name]()).fit(X, y)


def people(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of n people with 1 to 4 vectors each."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 5, n)
    means = X[rng.integers(0, len(X), n)] + rng.normal(size=(n, X.shape[1]))
    owners = np.repeat(np.arange(n), counts)
    return means[owners] + 0.5 * rng.normal(size=(len(owners), X.shape[1])), owners


def largest(index: SearchIndex, queries: np.ndarray) -> np.ndarray:
    """(profiles, tests) the largest product of the rows of every profile."""
    best = np.full((index.owners.max() + 1, len(queries)), -np.inf)
    np.maximum.at(best, index.owners, index.vectors @ queries.T)
    return best


@pytest.mark.parametrize(
    ("name", "same"),
    [(name, same) for name in MODELS for same in (None, "speaker") if (name, same) != ONE_VIEW],
)
def test_products_are_llrs_or_bounds_of_them(name: str, same: str | None) -> None:
    model = fitted(name)
    enrolled = model.enrol(*people(60))
    tests = X[:25] + 0.1
    index = model.index(enrolled, same=same)
    queries = model.queries(tests, index)
    assert index.vectors.dtype == queries.dtype == np.float32
    llrs = model.llr(enrolled, tests, same=same, dtype=np.float64)
    products = largest(index, queries)
    assert (products >= llrs - 1e-4).all()
    assert index.exact == ((name, same) in EXACT)
    if index.exact:
        np.testing.assert_allclose(products, llrs, atol=1e-4)


def test_views_of_other_columns_are_exact_about_one_of_them() -> None:
    # words add the same to "same phrase" whoever speaks: the two possibilities are one row
    place = make_place(3)
    bundle = domain_bundle()
    vectors = np.concatenate([place.say(person, person % 3, 1 + person % 2) for person in range(9)])
    ids = np.repeat(np.arange(9), 1 + np.arange(9) % 2)
    profiles = bundle.enrol(vectors, ids)
    index = bundle.index(profiles, same="speaker")
    assert index.exact
    assert len(index.vectors) == 9
    tests = place.say(4, 5, 3)
    llrs = bundle.llr(profiles, tests, same="speaker", dtype=np.float64)
    products = largest(index, bundle.queries(tests, index))
    np.testing.assert_allclose(products, llrs, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_the_certificate_holds_for_every_engine(name: str) -> None:
    model = fitted(name)
    same = None if name == "plda" else "speaker"
    enrolled = model.enrol(*people(400, seed=1))
    tests = model.enrol(X[:30] + 0.2)
    index = model.index(enrolled, same=same)
    queries = model.queries(tests, index)
    true = np.sort(model.llr(enrolled, tests, same=same, dtype=np.float64), axis=0)[::-1][:10].T
    # an engine with all digits, and one with eight bits a number
    step = np.abs(index.vectors).max(axis=0) / 127
    coarse = np.round(index.vectors / np.where(step > 0, step, 1)) * step
    shares = {}
    for kind, stored in (("float32", index.vectors), ("int8", coarse.astype(np.float32))):
        products = queries @ stored.T
        rows = np.argsort(-products, axis=1)[:, :100]
        last = np.take_along_axis(products, rows, axis=1)[:, -1]
        error = index.error(queries, stored)
        exact = queries.astype(float) @ index.vectors.astype(float).T
        assert (np.abs(products - exact) <= error[:, None]).all()
        best = index.rerank(enrolled, tests, index.owners[rows], last + error)
        right = np.isclose(best.scores, true, atol=1e-6).all(axis=1)
        assert right[best.certified].all()
        shares[kind] = best.certified.mean()
    assert shares["float32"] == 1.0
    assert shares["int8"] > 0.5


def test_candidates_that_lack_the_best_are_not_certified() -> None:
    model = fitted("multiview")
    enrolled = model.enrol(*people(100))
    tests = model.enrol(X[:5])
    index = model.index(enrolled, same="speaker")
    llrs = model.llr(enrolled, tests, same="speaker")
    worst = np.argsort(llrs, axis=0)[:50].T
    unseen = largest(index, model.queries(tests, index)).max(axis=0)
    best = index.rerank(enrolled, tests, np.hstack([worst, worst, -np.ones_like(worst)]), unseen)
    assert not best.certified.any()
    # nothing is known of the others, and all are candidates
    assert not index.rerank(enrolled, tests, worst).certified.any()
    every = np.tile(np.arange(100), (5, 1))
    assert index.rerank(enrolled, tests, every, top=3).certified.all()
    few = index.rerank(enrolled, tests, every[:, :2], top=3)
    assert few.profiles.shape == (5, 2)


def test_without_candidates_nothing_is_found_or_certified() -> None:
    model = fitted("multiview")
    enrolled = model.enrol(*people(20))
    tests = model.enrol(X[:5])
    index = model.index(enrolled, same="speaker")
    none = np.full((5, 4), -1)
    best = index.rerank(enrolled, tests, none, np.zeros(5), top=3)
    assert not best.certified.any()
    assert (best.profiles == -1).all()
    assert (best.scores == -np.inf).all()


def test_more_profiles_tests_of_several_takes_and_labels() -> None:
    model = fitted("multiview")
    vectors, owners = people(80)
    phrases = {"phrase": np.arange(len(owners)) % 2}
    enrolled = model.enrol(vectors, owners, phrases)
    tests = model.enrol(X[:40], np.arange(40) // 2)
    index = model.index(enrolled, same="speaker", vectors_per_test=2)
    llrs = model.llr(enrolled, tests, same="speaker", dtype=np.float64)
    assert (largest(index, model.queries(tests, index)) >= llrs - 1e-4).all()
    # the examples make the same columns anywhere; rows can be made some at a time
    again = model.index(index.examples, same="speaker", vectors_per_test=2)
    np.testing.assert_array_equal(again.queries(tests), index.queries(tests))
    rows, numbers = again.encode(enrolled)
    np.testing.assert_array_equal(rows, index.vectors)
    np.testing.assert_array_equal(numbers, index.owners)
    with pytest.raises(DataError, match="tests of 2 vector"):
        model.queries(X[:3], index)
    with pytest.raises(DataError, match="same numbers of vectors and labels"):
        index.encode(model.enrol(X[:30], ["one"] * 30))
    with pytest.raises(ParameterError, match="score the candidates"):
        model.index(enrolled, known=["phrase"])


def test_tensors_are_indexed_as_arrays():
    torch = pytest.importorskip("torch")
    model = MultiviewPLDA(VIEWS, **QUICK).fit(X, LABELS)
    vectors, owners = people(20)
    profiles = model.enrol(vectors, owners)
    tensors = model.enrol(torch.from_numpy(vectors), owners)
    index = model.index(tensors, same="speaker")
    np.testing.assert_array_equal(index.vectors, model.index(profiles, same="speaker").vectors)
    tests = torch.from_numpy(X[:5])
    queries = model.queries(tests, index)
    np.testing.assert_array_equal(queries, model.queries(X[:5], index))
    every = np.tile(np.arange(20), (5, 1))
    best = index.rerank(tensors, model.enrol(tests), every, top=3)
    exact = model.identify(profiles, X[:5], same="speaker", top=3)
    np.testing.assert_allclose(best.scores, exact.scores, rtol=1e-5)


def test_the_error_bound_is_of_the_vectors_that_the_index_has() -> None:
    """Its column maxima are computed once, and again where the vectors are replaced."""
    model = fitted("plda")
    index = model.index(model.enrol(*people(50)))
    queries = model.queries(model.enrol(X[:5]), index)

    def expected() -> np.ndarray:
        largest = np.abs(index.vectors).max(axis=0).astype(np.float64)
        rounding = index.vectors.shape[1] * np.finfo(np.float32).eps
        return rounding * (np.abs(queries.astype(np.float64)) @ largest)

    for _ in range(2):
        np.testing.assert_allclose(index.error(queries), expected(), rtol=1e-12)
    assert index._largest_in_columns() is index._largest_in_columns()
    index.vectors = 3 * index.vectors
    np.testing.assert_allclose(index.error(queries), expected(), rtol=1e-12)


def test_a_candidate_with_several_rows_is_returned_once() -> None:
    model = fitted("multiview")
    enrolled, tests = model.enrol(*people(5)), model.enrol(X[:4])
    result = model.index(enrolled).rerank(enrolled, tests, np.array([[1, 1, 2, -1]] * 4), top=4)
    np.testing.assert_array_equal(np.sort(result.profiles, axis=1), [[-1, -1, 1, 2]] * 4)
    np.testing.assert_array_equal(result.profiles < 0, np.isinf(result.scores))
