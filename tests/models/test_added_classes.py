"""Classes that are added to a fitted model, against the dense joint Gaussian."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dense import noise_matrix

from mvplda import MultiviewPLDA
from mvplda.exceptions import DataError, LabelError

VIEWS = {"speaker": 3, "domain": 2, "phrase": 2, "speaker:phrase": 2, "domain:phrase": 1}


def model_of(rng: np.random.Generator, views: dict[str, int], noise: str = "full") -> MultiviewPLDA:
    loadings = {view: rng.normal(size=(4, rank)) for view, rank in views.items()}
    sigma = np.cov(rng.normal(size=(4, 9))) if noise == "full" else rng.uniform(0.3, 2.0, 4)
    return MultiviewPLDA.from_parameters(rng.normal(size=4), loadings, sigma)


def dense_class(
    model: MultiviewPLDA, X: np.ndarray, columns: dict[str, list[Any]]
) -> tuple[np.ndarray, np.ndarray]:
    """Posterior of the domain's latent: vectors are A z + everything else, of covariance K."""
    n = len(X)
    columns = {
        v: [object() if x is None else x for x in column] for v, column in columns.items()
    } | {"domain": [0] * n}
    K = np.kron(np.eye(n), noise_matrix(model.parameters_))
    for view, loading in model.loadings_.items():
        if view == "domain":
            continue
        cells = list(zip(*(columns[part] for part in view.split(":")), strict=True))
        same = np.array([[a == b for b in cells] for a in cells], dtype=float)
        K += np.kron(same, loading @ loading.T)
    A = np.kron(np.ones((n, 1)), model.loadings_["domain"])
    solved = np.linalg.solve(K, A)
    covariance = np.linalg.inv(np.eye(A.shape[1]) + A.T @ solved)
    return covariance @ solved.T @ (X - model.mean_).reshape(-1), covariance


@pytest.mark.parametrize("views", [VIEWS, {"domain": 2}, {"speaker": 3, "domain": 2}])
@pytest.mark.parametrize("case", ["crossed", "missing", "one person", "one phrase", "one vector"])
def test_it_is_the_posterior_of_the_dense_joint(views: dict[str, int], case: str) -> None:
    rng = np.random.default_rng(0)
    n = 1 if case == "one vector" else 25
    model = model_of(rng, views, "full" if case == "crossed" else "diagonal")
    X = rng.normal(size=(n, 4)) + 2.0
    columns: dict[str, list[Any]] = {
        "speaker": rng.integers(6, size=n).tolist(),
        "phrase": rng.integers(3, size=n).tolist(),
    }
    if case == "one person":
        columns["speaker"] = ["ann"] * n
    if case == "one phrase":
        columns["phrase"] = ["hello"] * n
    if case == "missing":
        columns["speaker"] = [None if i % 4 == 0 else f"s{i % 6}" for i in range(n)]
        columns["phrase"] = [None] * n
    labels = {view: column for view, column in columns.items() if view in views}
    if case == "missing":
        labels.pop("phrase", None)
    mean, covariance = dense_class(model, X, columns)
    found = model.add_class("domain", "here", X, labels)
    np.testing.assert_allclose(found.class_means_["domain"], mean[None], atol=1e-9)
    np.testing.assert_allclose(found.class_covariances_["domain"], covariance[None], atol=1e-9)
    # the same from sums of the vectors of every cell
    cells: dict[Any, list[int]] = {}
    for i in range(n):
        key = tuple(
            object() if column[i] is None or view not in labels else column[i]
            for view, column in columns.items()
        )
        cells.setdefault(key if labels else 0, []).append(i)
    rows = list(cells.values())
    summed = model.add_class(
        "domain",
        "here",
        np.stack([X[own].sum(axis=0) for own in rows]),
        {view: [column[own[0]] for own in rows] for view, column in labels.items()},
        counts=[len(own) for own in rows],
    )
    np.testing.assert_allclose(summed.class_means_["domain"], mean[None], atol=1e-9)
    np.testing.assert_allclose(summed.class_covariances_["domain"], covariance[None], atol=1e-9)


def test_one_person_a_thousand_times_leaves_a_domain_wide() -> None:
    rng = np.random.default_rng(1)
    model = model_of(rng, {"speaker": 4, "domain": 2})
    X = rng.normal(size=(1, 4)) + 5.0
    often = model.add_class("domain", "here", 1000 * X, {"speaker": ["ann"]}, counts=[1000])
    B, S = model.loadings_["domain"], model.loadings_["speaker"]
    best = np.linalg.inv(np.eye(2) + B.T @ np.linalg.solve(S @ S.T, B))  # the person, without noise
    found = often.class_covariances_["domain"][0]
    assert np.linalg.eigvalsh(found - best).min() > 0
    many = model.add_class("domain", "here", np.tile(X, (1000, 1)))  # everybody another person
    assert np.trace(many.class_covariances_["domain"][0]) < 0.2 * np.trace(found)


def test_a_class_is_known_to_questions_and_stands_beside_others(tmp_path: Any) -> None:
    rng = np.random.default_rng(2)
    y = {"speaker": np.arange(240) % 12, "domain": np.array(["a", "c", "d"])[np.arange(240) // 80]}
    effects = {"speaker": rng.normal(size=(12, 5)), "domain": rng.normal(size=(3, 5))}
    X = effects["speaker"][y["speaker"]] + np.repeat(effects["domain"], 80, axis=0)
    X += 0.5 * rng.normal(size=X.shape)
    model = MultiviewPLDA({"speaker": 3, "domain": 2}).fit(X, y)
    here = X[:80] + 1.0
    wider = model.add_class("domain", "b, elsewhere", here, {"speaker": y["speaker"][:80]})
    assert model.classes_["domain"].tolist() == ["a", "c", "d"]
    assert wider.classes_["domain"].tolist() == ["a", "b, elsewhere", "c", "d"]
    for old, new in ((0, 0), (1, 2), (2, 3)):
        np.testing.assert_array_equal(
            wider.class_means_["domain"][new], model.class_means_["domain"][old]
        )
    sides = here[:4], here[40:50]
    asked: dict[str, Any] = {"known": {"domain": ["b, elsewhere"] * 4}, "same": "speaker"}
    llr = wider.llr(*sides, dtype=np.float64, **asked)
    assert np.isfinite(llr).all()
    again = wider.add_class("domain", "b, elsewhere", here[:5])
    assert len(again.classes_["domain"]) == 4
    assert not np.allclose(again.llr(*sides, dtype=np.float64, **asked), llr)
    wider.save(tmp_path / "wider.safetensors")
    back = MultiviewPLDA.load(tmp_path / "wider.safetensors")
    np.testing.assert_array_equal(back.llr(*sides, dtype=np.float64, **asked), llr)


@pytest.mark.slow
def test_full_rank_models_of_wide_vectors_take_it() -> None:
    rng = np.random.default_rng(3)
    D, people, takes = 192, 200, 3
    loadings = {view: np.eye(D) * s for view, s in (("speaker", 0.5), ("domain", 0.3))}
    model = MultiviewPLDA.from_parameters(np.zeros(D), loadings, np.full(D, 0.2))
    X = rng.normal(size=(people * takes, D))
    labels = {"speaker": np.repeat(np.arange(people), takes)}
    found = model.add_class("domain", "here", X, labels)
    # of isotropic parts every column is alone: n means of precision 1 / (.25 + .2 / 3)
    precision = people / (0.25 + 0.2 / takes)
    expected = 1 / (1 + precision * 0.09)
    np.testing.assert_allclose(
        found.class_covariances_["domain"][0], expected * np.eye(D), atol=1e-9
    )


def test_latents_without_effect_keep_their_prior() -> None:
    loadings = {"speaker": np.eye(4)[:, :2], "domain": np.array([[1.0, 0], [1, 0], [0, 0], [0, 0]])}
    model = MultiviewPLDA.from_parameters(np.zeros(4), loadings, np.ones(4))
    found = model.add_class("domain", "here", np.ones((9, 4)), {"speaker": np.arange(9) % 3})
    covariance = found.class_covariances_["domain"][0]
    assert covariance[0, 0] < 1
    np.testing.assert_allclose(covariance[1], [0, 1], atol=1e-12)
    assert np.isfinite(
        found.llr(np.ones((1, 4)), np.ones((1, 4)), known={"domain": ["here"]})
    ).all()


def test_wrong_use_is_named() -> None:
    model = model_of(np.random.default_rng(4), {"speaker": 2, "domain": 1, "speaker:domain": 1})
    X = np.zeros((3, 4))
    with pytest.raises(LabelError, match="base view of the model"):
        model.add_class("speaker:domain", "x", X)
    with pytest.raises(LabelError, match="labels are of the other views"):
        model.add_class("domain", "x", X, {"domain": [1, 2, 3]})
    with pytest.raises(LabelError, match="lengths"):
        model.add_class("domain", "x", X, {"speaker": [1, 2]})
    with pytest.raises(DataError, match="weights"):
        model.add_class("domain", "x", X, counts=[1, 0, 2])
