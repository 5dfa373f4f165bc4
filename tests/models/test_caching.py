"""Fitted arrays stay writable, and every change of their content changes the scores."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from copy import copy, deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mvplda
from mvplda import PLDA, Committee, CosineScorer, MultiviewPLDA
from mvplda.exceptions import DataError
from mvplda.models import caching
from mvplda.models.base import BaseScorer, release_caches
from mvplda.models.caching import CACHE, ScorerCache

VIEWS = {"speaker": 3, "phrase": 2}


def problem(seed: int = 0) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    labels = {"speaker": np.arange(240) % 12, "phrase": np.arange(240) // 60}
    X = rng.normal(size=(12, 5))[labels["speaker"]] + rng.normal(size=(4, 5))[labels["phrase"]]
    return X + rng.normal(size=X.shape), labels


X, LABELS = problem()


def fitted() -> MultiviewPLDA:
    return MultiviewPLDA(VIEWS, max_iter=2, tol=0).fit(X, LABELS)


def known_scores(model: BaseScorer) -> np.ndarray:
    claims = {"phrase": LABELS["phrase"][:20]}
    return np.asarray(model.llr(X[:20], X[20:40], known=claims, dtype=np.float64))


def scores(model: BaseScorer) -> np.ndarray:
    return np.asarray(model.llr(X[:20], X[20:40], dtype=np.float64))


def assign(name: str, value: Any) -> Callable[[Any], None]:
    return lambda model: setattr(model, name, value(getattr(model, name)))


CHANGES: dict[str, Callable[[Any], None]] = {
    "augmented assignment": lambda m: m.__setattr__("mean_", m.mean_.__iadd__(0.5)),
    "one element": lambda m: m.mean_.__setitem__(0, 3.0),
    "assigned mean": assign("mean_", lambda mean: mean + 0.5),
    "loading in place": lambda m: np.multiply(
        m.loadings_["speaker"], 1.5, out=m.loadings_["speaker"]
    ),
    "replaced loading": lambda m: m.loadings_.update(phrase=0.5 * m.loadings_["phrase"]),
    "assigned loadings": assign("loadings_", lambda B: {v: 0.5 * b for v, b in B.items()}),
    "noise in place": lambda m: m.noise_.__imul__(2.0),
}

CLASS_CHANGES: dict[str, Callable[[Any], None]] = {
    "class mean in place": lambda m: m.class_means_["phrase"].__imul__(2.0),
    "covariance in place": lambda m: m.class_covariances_["phrase"].__imul__(2.0),
    "assigned covariances": assign(
        "class_covariances_", lambda V: {v: 2 * c for v, c in V.items()}
    ),
    "names in place": lambda m: m.classes_["phrase"].__setitem__(slice(None), [3, 2, 1, 0]),
}


@pytest.mark.parametrize("name", [*CHANGES, *CLASS_CHANGES])
def test_a_change_after_scoring_changes_the_scores(name: str) -> None:
    model = fitted()
    score = known_scores if name in CLASS_CHANGES else scores
    before = score(model)
    {**CHANGES, **CLASS_CHANGES}[name](model)
    after = score(model)
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_array_equal(after, score(deepcopy(model)))


def test_a_reference_from_before_scoring_may_change_the_model() -> None:
    """A reference that was read long ago still reaches the fitted array."""
    model = fitted()
    mean = model.mean_
    row = model.loadings_["speaker"][0]
    for change in (lambda: mean.__iadd__(0.5), lambda: row.__imul__(3.0)):
        before = [scores(model) for _ in range(3)][-1]
        change()
        after = scores(model)
        assert np.abs(after - before).max() > 1e-3
        np.testing.assert_array_equal(after, scores(deepcopy(model)))


def test_a_change_through_a_copy_is_noticed() -> None:
    """A shallow copy, a state and a restored state share the arrays of the model."""
    model = fitted()
    for change in (
        lambda: copy(model).mean_.__iadd__(0.5),
        lambda: model.__getstate__()["loadings_"]["speaker"].__imul__(2.0),
        lambda: model.__setstate__(fitted().__getstate__()),
    ):
        before = scores(model)
        change()
        after = scores(model)
        assert np.abs(after - before).max() > 1e-3
        np.testing.assert_array_equal(after, scores(deepcopy(model)))


def test_a_changed_assigned_view_is_noticed() -> None:
    model = fitted()
    both = np.stack([model.mean_, model.mean_])
    model.mean_ = both[0]
    before = [scores(model) for _ in range(3)][-1]
    both += 1.0
    assert np.abs(scores(model) - before).max() > 1e-3


def test_a_committee_notices_changes_of_its_experts() -> None:
    expert = MultiviewPLDA(VIEWS, max_iter=2, tol=0)
    model = Committee({"one": expert, "two": expert}, weights=None).fit(X, LABELS)
    before = scores(model), known_scores(model)
    model.experts_["one"].mean_ += 0.5
    model.experts_["two"].class_means_["phrase"] *= 2.0
    after = scores(model), known_scores(model)
    fresh = deepcopy(model)
    for old, new, expected in zip(before, after, (scores(fresh), known_scores(fresh)), strict=True):
        assert np.abs(new - old).max() > 1e-3
        np.testing.assert_array_equal(new, expected)


def test_weights_that_are_exchanged_after_scoring_change_the_scores() -> None:
    """An expert without weight has no terms: those of the next one have its number."""
    expert = MultiviewPLDA({"speaker": 2, "phrase": 1}, max_iter=2, tol=0)
    columns = {"one": (0, 2), "two": (2, 4)}
    model = Committee({"one": expert, "two": expert}, columns=columns, weights={"one": 0.0})
    model.fit(X, LABELS)
    profiles, tests = model.enrol(X[:20]), model.enrol(X[20:40])
    before = model.llr(profiles, tests)
    weights = model.weights_
    weights["one"], weights["two"] = weights["two"], weights["one"]
    after = model.llr(profiles, tests)
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_array_equal(after, deepcopy(model).llr(profiles, tests))


def loaded(model: BaseScorer, folder: Path) -> BaseScorer:
    path = folder / "model.safetensors"
    model.save(path)
    scorer: BaseScorer = mvplda.load(path)
    return scorer


@pytest.mark.parametrize("from_file", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_fitted_arrays_stay_writable(from_file: bool, known: bool, tmp_path: Path) -> None:
    model: Any = loaded(fitted(), tmp_path) if from_file else fitted()
    expected = scores(model)
    if known:
        known_scores(model)
    model.mean_ += 0
    model.noise_ *= 1
    for name in ("loadings_", "class_means_", "class_covariances_"):
        for array in getattr(model, name).values():
            array += 0
    np.testing.assert_array_equal(scores(model), expected)
    cosine = CosineScorer().fit(X)
    cosine.llr(X[:2], X[2:4])
    cosine.mean_ += 0


def test_the_arrays_of_a_user_stay_as_they_are() -> None:
    rng = np.random.default_rng(1)
    mean, noise = rng.normal(size=4), np.ones(4)
    loadings = {"speaker": rng.normal(size=(4, 2)), "phrase": rng.normal(size=(4, 1))}
    model = MultiviewPLDA.from_parameters(mean, loadings, noise)
    Y = rng.normal(size=(3, 4))
    before = model.llr(Y, Y)
    mean += 1.0
    noise *= 2.0
    loadings["speaker"] *= 2.0
    np.testing.assert_array_equal(model.llr(Y, Y), before)


def test_copies_clones_and_files_have_no_cache(tmp_path: Path) -> None:
    model = fitted()
    known_scores(model)
    assert CACHE in vars(model)
    for other in (copy(model), deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert CACHE not in vars(other)
        np.testing.assert_array_equal(known_scores(other), known_scores(model))
    arrays, values = model.get_state()
    assert not any(CACHE in name for name in (*arrays, *values))


def test_values_are_computed_once_while_nothing_changes() -> None:
    model = fitted()
    profiles, tests = model.enrol(X[:2]), model.enrol(X[2:4])
    claims = {"phrase": LABELS["phrase"][:2]}
    model.llr(profiles, tests, known=claims)
    terms, known = model.pair_terms(), model.pair_terms_with_known(("phrase",))
    assert model.mean_.shape == (5,)
    assert model.class_means_["phrase"].shape == (4, 2)
    model.llr(profiles, tests, known=claims)
    assert model.pair_terms() is terms
    assert model.pair_terms_with_known(("phrase",)) is known
    release_caches(model)
    assert model.pair_terms() is not terms


def test_names_of_known_classes_are_read_without_effect() -> None:
    """Reading the names of the training classes leaves the pair terms as they are."""
    model = fitted()
    terms = model.pair_terms()
    assert model.known_names("phrase").tolist() == [0, 1, 2, 3]
    assert model.pair_terms() is terms
    assert not terms.known


def test_a_second_fit_replaces_cached_values() -> None:
    model = PLDA(2, max_iter=2, tol=0).fit(X, LABELS["speaker"])
    before = scores(model)
    model.fit(X[::2] ** 2, LABELS["speaker"][::2])
    np.testing.assert_array_equal(scores(model), scores(deepcopy(model)))
    assert np.abs(scores(model) - before).max() > 1e-3


class ArrayReadByTwo:
    """One number whose conversion to an array waits until another thread converts one, too."""

    def __init__(self, number: float, barrier: threading.Barrier) -> None:
        self.number = number
        self.barrier = barrier

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        self.barrier.wait(timeout=30)
        return np.array([self.number])


def test_contents_copied_by_two_threads_at_once_have_different_snapshots() -> None:
    cache = ScorerCache()
    barrier = threading.Barrier(2)
    contents: dict[float, Any] = {}

    def copy_number(number: float) -> None:
        attributes = {"mean_": ArrayReadByTwo(number, barrier)}
        contents[number] = cache.snapshot(attributes, "mean_")

    threads = [threading.Thread(target=copy_number, args=(number,)) for number in (1.0, 2.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert contents[1.0] != contents[2.0]
    assert [contents[number].content.tolist() for number in (1.0, 2.0)] == [[1.0], [2.0]]


def test_numbers_in_arrays_without_dimensions_can_be_weights(tmp_path: Path) -> None:
    expert = MultiviewPLDA(VIEWS, max_iter=2, tol=0)
    half: Any = np.array(0.5)
    model = Committee({"one": expert, "two": expert}, weights={"one": half}).fit(X, LABELS)
    weight: Any = np.array(0.5)
    model.weights_["two"]["speaker"] = weight
    before = scores(model)
    weight *= 3
    after = scores(model)
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_array_equal(scores(loaded(model, tmp_path)), after)
    model.weights_["two"]["speaker"] = 1.5
    np.testing.assert_array_equal(scores(model), after)


@pytest.mark.parametrize("part", ["weights", "evidence"])
def test_profiles_of_several_sizes_are_scored_anew_after_a_change(part: str) -> None:
    model = fitted()
    owners = np.repeat(np.arange(20), np.arange(20) % 3 + 1)
    profiles = model.enrol(X[: len(owners)], owners)
    before = np.array(model.llr(profiles, X[60:70]))
    np.testing.assert_array_equal(model.llr(profiles, X[60:70]), before)
    if part == "weights":
        profiles.weights[:] = profiles.weights[::-1].copy()
    else:
        profiles.y[3] += 1.0
    after = model.llr(profiles, X[60:70])
    assert not np.array_equal(after, before)
    # other objects have no cached values
    np.testing.assert_array_equal(after, model.llr(deepcopy(profiles), X[60:70]))


def test_a_call_compares_every_attribute_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted()
    profiles = model.enrol(X[:4], [0, 0, 1, 1])
    model.llr(profiles, X[4:6])
    compared: list[int] = []
    compare = caching.have_equal_content

    def count(value: Any, other: Any) -> bool:
        compared.append(id(value))
        return compare(value, other)

    monkeypatch.setattr(caching, "have_equal_content", count)
    model.llr(profiles, X[4:6])
    assert len(compared) == len(set(compared)) > 0
    # the next call compares again, and finds that the profiles are those of another model
    model.mean_[0] += 1.0
    with pytest.raises(DataError):
        model.llr(profiles, X[4:6])
