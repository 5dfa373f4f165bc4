"""Wrong settings and wrong use are named; estimators work inside scikit-learn's tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from problems import crossed, draw, random_parameters, speakers_and_phrases
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mvplda import PLDA, MultiviewPLDA, SufficientStatistics, load, make_two_views
from mvplda.exceptions import DataError, FileFormatError, LabelError, MvpldaError, ParameterError
from mvplda.labels import label_rows

VIEWS: dict[str, int | None] = {"speaker": 3, "phrase": 2}


@pytest.mark.parametrize(
    "settings",
    [
        {"noise": "pink"},
        {"algorithm": "guess"},
        {"init": "zero"},
        {"views": {}},
        {"views": {"speaker": 0}},
        {"views": {"speaker": 1.5}},
        {"views": {"speaker": True}},
        {"views": {"speaker": "auto"}},
        {"noise_shrinkage": 1.0},
        {"noise_shrinkage": -0.1},
        {"noise_floor": 0.0},
        {"noise_floor": 1e-15},
        {"max_iter": -1},
        {"max_iter": 1.5},
        {"max_iter": True},
        {"tol": -1},
        {"tol": float("nan")},
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any]) -> None:
    X, labels = speakers_and_phrases()
    name = next(iter(settings))
    with pytest.raises(ParameterError, match="rank of view 'speaker'|" + name):
        MultiviewPLDA(**{"views": VIEWS, **settings}).fit(X, labels)


def test_wrong_use_is_named() -> None:
    X, labels = speakers_and_phrases()
    model = MultiviewPLDA(VIEWS)
    for use in (
        lambda: model.transform(X),
        lambda: model.sample(labels),
        lambda: model.log_likelihood(X, labels),
    ):
        with pytest.raises(NotFittedError):
            use()
    with pytest.raises(LabelError, match="requires y"):
        model.fit(X)
    with pytest.raises(LabelError, match="270 vectors and 269 labels"):
        model.fit(X, {v: c[1:] for v, c in labels.items()})
    with pytest.raises(LabelError, match="no column for the view 'phrase'"):
        model.fit(X, {"speaker": labels["speaker"]})
    model.fit(X, labels)
    with pytest.raises(ValueError, match="7 features"):
        model.transform(X[:, 1:])
    with pytest.raises(LabelError, match="no view 'phrase'"):
        model.fit_statistics(SufficientStatistics.from_arrays(X, {"speaker": labels["speaker"]}))
    for error in (DataError, LabelError, ParameterError):
        assert issubclass(error, MvpldaError)
        assert issubclass(error, ValueError)


def test_statistics_are_as_good_as_vectors() -> None:
    X, labels = speakers_and_phrases()
    views = {"speaker": 2, "phrase": 2, "speaker:phrase": 1}
    model = MultiviewPLDA({**views}, noise="full", random_state=0).fit(X, labels)
    statistics = SufficientStatistics.from_arrays(X, labels, views=tuple(views))
    other = MultiviewPLDA({**views}, noise="full", random_state=0).fit_statistics(statistics)
    np.testing.assert_array_equal(model.log_likelihoods_, other.log_likelihoods_)
    assert other.n_features_in_ == 8
    with pytest.raises(ParameterError, match="second_moment='full'"):
        other.fit_statistics(
            SufficientStatistics.from_arrays(
                X, labels, views=tuple(views), second_moment="diagonal"
            )
        )


def test_float32_gives_the_same_parameters() -> None:
    X, labels = speakers_and_phrases()
    model, short = (
        MultiviewPLDA(VIEWS, random_state=0, max_iter=10, tol=0.0).fit(x, labels)
        for x in (X, X.astype("f"))
    )
    for mine, theirs in zip((model.mean_, model.noise_), (short.mean_, short.noise_), strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=1e-4)
    for view, loading in model.loadings_.items():
        np.testing.assert_allclose(
            short.loadings_[view], loading, atol=1e-4 * np.abs(loading).max()
        )
    assert short.mean_.dtype == short.transform(X.astype("f")).dtype == np.float64


@pytest.mark.parametrize("fitted", [False, True])
def test_models_are_cloned_without_their_fit(fitted: bool) -> None:
    X, labels = speakers_and_phrases()
    model = MultiviewPLDA({"speaker": 2}, noise="full", tol=0.1)
    if fitted:
        model.fit(X, labels)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "mean_")


def test_in_a_pipeline() -> None:
    X, labels = speakers_and_phrases()
    pipeline = make_pipeline(StandardScaler(), PCA(6), MultiviewPLDA(VIEWS, random_state=0))
    Z = pipeline.fit(X, labels).transform(X)
    reduced = PCA(6).fit_transform(StandardScaler().fit_transform(X))
    np.testing.assert_allclose(
        Z, MultiviewPLDA(VIEWS, random_state=0).fit(reduced, labels).transform(reduced), atol=1e-6
    )
    assert pipeline.score(X, labels) == pytest.approx(pipeline[-1].score(reduced, labels), rel=1e-6)


def test_output_columns_have_names() -> None:
    X, labels = speakers_and_phrases()
    model = MultiviewPLDA(VIEWS).fit(X, labels)
    names = ["speaker0", "speaker1", "speaker2", "phrase0", "phrase1"]
    assert model.get_feature_names_out().tolist() == names
    frame = model.set_output(transform="pandas").transform(X)
    assert isinstance(frame, pd.DataFrame)
    assert frame.columns.tolist() == names


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_grid_search_over_speaker_disjoint_folds() -> None:
    X, labels = speakers_and_phrases()
    frame = pd.DataFrame(labels)
    candidates = [{"speaker": r, "phrase": 2} for r in (1, 3)]
    search = GridSearchCV(
        MultiviewPLDA(random_state=0, max_iter=20), {"views": candidates}, cv=GroupKFold(3)
    )
    search.fit(X, frame, groups=labels["speaker"])
    assert search.best_params_["views"] == candidates[1]
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    train, test = next(GroupKFold(3).split(X, groups=labels["speaker"]))
    model = MultiviewPLDA(candidates[1], random_state=0, max_iter=20).fit(
        X[train], frame.iloc[train]
    )
    assert search.cv_results_["split0_test_score"][1] == pytest.approx(
        model.score(X[test], frame.iloc[test])
    )


@pytest.mark.parametrize("noise", ["diagonal", "full"])
def test_save_and_load(noise: Any, tmp_path: Path) -> None:
    X, labels = speakers_and_phrases()
    views: dict[str, Any] = {"speaker": np.int64(3), "phrase": None, "speaker:phrase": 1}
    model = MultiviewPLDA({**views}, noise=noise, noise_shrinkage=0.1, max_iter=3, tol=0.0)
    model.fit(X, labels).save(tmp_path / "m.safetensors")
    for again in (MultiviewPLDA.load(tmp_path / "m.safetensors"), load(tmp_path / "m.safetensors")):
        assert type(again) is MultiviewPLDA
        assert again.get_params() == model.get_params()
        assert (again.views_, again.n_iter_, again.converged_) == (
            model.views_,
            model.n_iter_,
            model.converged_,
        )
        assert list(again.loadings_) == list(views)
        for name in ("mean_", "noise_", "log_likelihoods_"):
            np.testing.assert_array_equal(getattr(again, name), getattr(model, name))
        assert again.log_likelihood(X, labels) == model.log_likelihood(X, labels)
        np.testing.assert_array_equal(again.transform(X), model.transform(X))
        np.testing.assert_array_equal(
            again.sample(labels, random_state=0), model.sample(labels, random_state=0)
        )
        assert again.get_feature_names_out().tolist() == model.get_feature_names_out().tolist()


def test_a_model_loads_as_what_it_is(tmp_path: Path) -> None:
    X, labels = speakers_and_phrases()
    PLDA(2).fit(X, labels["speaker"]).save(tmp_path / "plda.safetensors")
    assert type(load(tmp_path / "plda.safetensors")) is PLDA
    assert type(MultiviewPLDA.load(tmp_path / "plda.safetensors")) is PLDA
    MultiviewPLDA(VIEWS).fit(X, labels).save(tmp_path / "multi.safetensors")
    with pytest.raises(
        FileFormatError, match=r"contains a MultiviewPLDA, not a PLDA: use .* MultiviewPLDA\.load"
    ):
        PLDA.load(tmp_path / "multi.safetensors")
    with pytest.raises(NotFittedError):
        PLDA(2).save(tmp_path / "none.safetensors")


@pytest.mark.parametrize("noise", ["diagonal", "full"])
@pytest.mark.parametrize("views", [{"a": 6}, {"a": 6, "b": 4}, {"a": 6, "b": 4, "a:b": 3}])
def test_ten_iterations_recover_the_model(views: dict[str, int], noise: Any) -> None:
    """Held-out likelihood within 0.1 nat a vector of the true parameters'."""
    rng = np.random.default_rng(7)
    a, b = crossed(150, 20, 2)
    every = {"a": a, "b": b, "a:b": 20 * a + b}
    true = random_parameters(rng, 20, tuple(views.values()), noise)
    train, test = (draw(rng, [every[v] for v in views], true) for _ in range(2))
    labels = {"a": a, "b": b}
    model = MultiviewPLDA({**views}, noise=noise, max_iter=10, tol=0.0).fit(train, labels)
    reached = model.score(test, labels)
    model.mean_, model.loadings_, model.noise_ = (
        true.mean,
        dict(zip(views, true.loadings, strict=True)),
        true.noise,
    )
    assert reached == pytest.approx(model.score(test, labels), abs=0.1)


def test_a_generator_of_numpys_is_a_random_state() -> None:
    X, labels = speakers_and_phrases()
    settings: dict[str, Any] = {"init": "random", "max_iter": 2, "tol": 0.0}
    first, same, other = (
        MultiviewPLDA(VIEWS, random_state=np.random.default_rng(seed), **settings).fit(X, labels)
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.loadings_["speaker"], same.loadings_["speaker"])
    assert np.abs(first.loadings_["speaker"] - other.loadings_["speaker"]).max() > 1e-6
    drawn = [first.sample(labels, random_state=np.random.default_rng(seed)) for seed in (3, 3, 4)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).any()
    rng = np.random.default_rng(5)  # goes on, as a generator does
    assert (first.sample(labels, random_state=rng) != first.sample(labels, random_state=rng)).any()


def test_sparse_vectors_are_refused_in_words() -> None:
    X, labels = speakers_and_phrases()
    model = MultiviewPLDA(VIEWS).fit(X, labels)
    for use in (
        lambda x: MultiviewPLDA(VIEWS).fit(x, labels),
        lambda x: SufficientStatistics.from_arrays(x, labels),
        model.enrol,
        model.transform,
        lambda x: model.llr(x, X),
    ):
        with pytest.raises((DataError, TypeError), match=r"(?i)sparse.*toarray\(\)"):
            use(sparse.csr_array(X))


@pytest.mark.parametrize("form", ["rows", "frame", "array"])
def test_labels_with_rows_go_through_a_grid_search(form: str) -> None:
    X, labels = speakers_and_phrases()
    y = {
        "rows": label_rows(labels),
        "frame": pd.DataFrame(labels),
        "array": pd.DataFrame(labels).to_numpy(),
    }[form]
    search = GridSearchCV(
        MultiviewPLDA(VIEWS, max_iter=5, tol=0.0),
        {"noise_shrinkage": [0.0, 0.1, 0.9]},
        cv=GroupKFold(3),
    )
    search.fit(X, y, groups=labels["speaker"])
    assert search.best_params_["noise_shrinkage"] < 0.9
    best = MultiviewPLDA(VIEWS, max_iter=5, tol=0.0, **search.best_params_).fit(X, labels)
    np.testing.assert_array_equal(search.best_estimator_.mean_, best.mean_)
    np.testing.assert_array_equal(
        search.best_estimator_.loadings_["phrase"], best.loadings_["phrase"]
    )


def test_a_list_of_views_has_the_ranks_that_classes_allow():
    X, labels, _ = make_two_views(12, 5, 5, 10, (3, 2), held_out=2, random_state=0)
    listed = MultiviewPLDA(["speaker", "phrase"]).fit(X, labels)
    named = MultiviewPLDA({"speaker": None, "phrase": None}).fit(X, labels)
    assert listed.views_ == named.views_
    for view, loading in named.loadings_.items():
        np.testing.assert_array_equal(listed.loadings_[view], loading)
