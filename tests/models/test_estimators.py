"""MultiviewPLDA and PLDA as their users meet them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from dense import dense_posterior, log_normal
from problems import NOISES, speakers_and_phrases
from sklearn.exceptions import ConvergenceWarning

from mvplda import PLDA, Committee, MultiviewPLDA, SufficientStatistics
from mvplda.exceptions import DataError, LabelError, ParameterError
from mvplda.inference.em import Iteration

VIEWS: dict[str, int | None] = {"speaker": 3, "phrase": 2}


def test_the_session_of_the_readme(tmp_path: Path) -> None:
    X, labels = speakers_and_phrases()
    model = MultiviewPLDA(views={"speaker": 3, "phrase": 2})
    assert model.fit(X, {"speaker": labels["speaker"], "phrase": labels["phrase"]}) is model

    assert model.mean_.shape == (8,)
    assert model.loadings_["speaker"].shape == (8, 3)
    assert model.noise_.shape == (8,)
    assert len(model.log_likelihoods_) == model.n_iter_ + 1
    assert np.diff(model.log_likelihoods_).min() >= 0
    assert model.converged_
    shares = model.explained_variance_ratio_
    assert list(shares) == ["speaker", "phrase", "noise"]
    assert sum(shares.values()) == pytest.approx(1.0)
    assert model.log_likelihood(X, labels) == pytest.approx(model.log_likelihoods_[-1], rel=1e-9)
    assert model.score(X, labels) == pytest.approx(model.log_likelihoods_[-1] / len(X), rel=1e-9)
    assert model.transform(X).shape == (len(X), 5)
    assert model.sample({"speaker": ["x", "y"], "phrase": [1, 1]}, random_state=0).shape == (2, 8)
    assert model.classes_["speaker"].tolist() == sorted(set(labels["speaker"]))
    assert model.class_means_["phrase"].shape == (6, 2)
    assert model.views_ == {"speaker": 3, "phrase": 2}
    model.save(tmp_path / "model.safetensors")
    again = MultiviewPLDA.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.transform(X), model.transform(X))


@pytest.mark.parametrize("noise", NOISES)
def test_shares_of_variance_are_those_of_the_model(noise: Any) -> None:
    X, labels = speakers_and_phrases(noise)
    model = MultiviewPLDA(VIEWS, noise=noise).fit(X, labels)
    trace = {v: np.trace(b @ b.T) for v, b in model.loadings_.items()}
    trace["noise"] = np.trace(np.diag(model.noise_) if noise != "full" else model.noise_)
    for name, share in model.explained_variance_ratio_.items():
        assert share == pytest.approx(trace[name] / sum(trace.values()))
    assert model.noise_.shape == ((8, 8) if noise == "full" else (8,))


def test_every_form_of_labels_gives_the_same_model() -> None:
    X, labels = speakers_and_phrases()
    numbers = np.unique(labels["speaker"], return_inverse=True)[1]
    forms: list[Any] = [
        labels,
        pd.DataFrame(labels),
        {"speaker": pd.Series(labels["speaker"]), "phrase": labels["phrase"].tolist()},
        np.array([labels["speaker"], labels["phrase"]], dtype=object).T,
        np.array([labels["speaker"], labels["phrase"].astype(str)]).T,
        np.stack([numbers, labels["phrase"]], axis=1),
    ]
    models = [MultiviewPLDA(VIEWS, random_state=0).fit(X, form) for form in forms]
    for model, form in zip(models, forms, strict=True):
        np.testing.assert_allclose(model.log_likelihoods_, models[0].log_likelihoods_, rtol=1e-9)
        assert model.score(X, form) == pytest.approx(models[0].score(X, labels), rel=1e-9)


def test_without_views_every_column_is_one_of_the_largest_rank() -> None:
    X, labels = speakers_and_phrases()
    model = MultiviewPLDA(max_iter=2, tol=0.0).fit(X, pd.DataFrame(labels))
    assert model.views_ == {"speaker": 8, "phrase": 5}
    assert list(MultiviewPLDA(max_iter=2, tol=0.0).fit(X, labels["phrase"]).views_) == ["view0"]


@pytest.mark.parametrize("noise", NOISES)
def test_transform_is_the_posterior_mean_of_a_vector_alone(noise: Any) -> None:
    X, labels = speakers_and_phrases(noise)
    model = MultiviewPLDA(VIEWS, noise=noise).fit(X, labels)
    codes = [np.zeros(1, dtype=int)] * 2
    for x, z in zip(X[:5], model.transform(X[:5]), strict=True):
        dense = dense_posterior(x[None], codes, model.parameters_)
        np.testing.assert_allclose(z, np.concatenate(dense.means, axis=1)[0], rtol=1e-9)


def test_class_means_are_the_dense_ones() -> None:
    X, labels = speakers_and_phrases()
    model = MultiviewPLDA(VIEWS).fit(X, labels)
    codes = [np.unique(labels[v], return_inverse=True)[1] for v in VIEWS]
    dense = dense_posterior(X, codes, model.parameters_)
    for k, view in enumerate(VIEWS):
        np.testing.assert_allclose(model.class_means_[view], dense.means[k], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("noise", NOISES)
def test_samples_have_the_moments_of_the_model(noise: Any) -> None:
    X, labels = speakers_and_phrases(noise)
    model = MultiviewPLDA(VIEWS, noise=noise).fit(X, labels)
    pairs = np.repeat(np.arange(20_000), 2)
    S, P = (b @ b.T for b in model.loadings_.values())
    sigma = np.diag(model.noise_) if model.noise_.ndim == 1 else model.noise_
    for shared, cross in (("speaker", S), ("phrase", P)):
        drawn = {v: pairs if v == shared else np.arange(40_000) for v in VIEWS}
        Y = model.sample(drawn, random_state=1) - model.mean_
        size = np.sqrt(np.outer(np.diag(S + P + sigma), np.diag(S + P + sigma)))
        assert np.abs(Y.mean(axis=0) / np.sqrt(np.diag(size))).max() < 0.05
        assert np.abs((Y.T @ Y / len(Y) - S - P - sigma) / size).max() < 0.05
        assert np.abs((Y[::2].T @ Y[1::2] / 20_000 - cross) / size).max() < 0.05


def test_samples_can_be_repeated() -> None:
    X, labels = speakers_and_phrases()
    model = MultiviewPLDA(VIEWS).fit(X, labels)
    first, again, other = (model.sample(labels, random_state=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.1
    unlabelled = model.sample({"speaker": [None] * 50, "phrase": ["p"] * 50}, random_state=0)
    assert np.linalg.matrix_rank(unlabelled - unlabelled.mean(axis=0)) == 8


def test_the_callback_sees_every_iteration() -> None:
    X, labels = speakers_and_phrases()
    seen: list[Iteration] = []
    model = MultiviewPLDA(VIEWS, callback=seen.append).fit(X + 100.0, labels)
    assert [i.number for i in seen] == list(range(1, model.n_iter_ + 1))
    np.testing.assert_array_equal([i.log_likelihood for i in seen], model.log_likelihoods_[1:])
    np.testing.assert_allclose(
        [i.gain_per_vector for i in seen], np.diff(model.log_likelihoods_) / len(X)
    )


def test_verbose_writes_a_line_per_iteration(capsys: pytest.CaptureFixture[str]) -> None:
    X, labels = speakers_and_phrases()
    quiet = MultiviewPLDA(VIEWS).fit(X, labels)
    assert capsys.readouterr().err == ""
    shown: list[Iteration] = []
    model = MultiviewPLDA(VIEWS, verbose=1, callback=shown.append).fit(X, labels)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(shown) == model.n_iter_
    assert lines[0] == f"iteration 1: {shown[0].gain_per_vector:+.1e} nats per vector"
    np.testing.assert_array_equal(model.mean_, quiet.mean_)
    PLDA(2, verbose=2).fit(X, labels["speaker"])
    assert capsys.readouterr().err.startswith("iteration 1: ")
    with pytest.raises(ParameterError, match="verbose"):
        MultiviewPLDA(VIEWS, verbose=-1).fit(X, labels)


def test_a_verbose_model_has_the_file_of_a_quiet_one(tmp_path: Path) -> None:
    X, labels = speakers_and_phrases()
    files = [tmp_path / f"{verbose}.safetensors" for verbose in (0, 1)]
    for verbose, file in enumerate(files):
        MultiviewPLDA(VIEWS, verbose=verbose).fit(X, labels).save(file)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert MultiviewPLDA.load(files[1]).verbose == 0


def test_a_verbose_committee_writes_a_line_per_expert_and_fold(
    capsys: pytest.CaptureFixture[str],
) -> None:
    X, labels = speakers_and_phrases()
    expert = MultiviewPLDA(dict.fromkeys(labels), prior="isotropic")
    Committee({"all": expert}, folds=3, verbose=1).fit(X, labels)
    assert capsys.readouterr().err.splitlines() == [
        "fitted expert 'all' of 1 experts",
        *(f"learning the weights of experts: fold {number} of 3 scored" for number in (1, 2, 3)),
    ]


def test_stopping_early_is_said() -> None:
    X, labels = speakers_and_phrases()
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        model = MultiviewPLDA(VIEWS, max_iter=2, tol=1e-9).fit(X, labels)
    assert not model.converged_
    assert model.n_iter_ == 2
    assert any("max_iter=2" in message for message in model.diagnostics_.messages)
    model = MultiviewPLDA(VIEWS, init="random", random_state=0, max_iter=4, tol=0.0).fit(X, labels)
    gains = np.diff(model.log_likelihoods_) / len(X)
    assert (np.diff(gains) < 0).all()
    for factor, iterations in ((1.01, 3), (0.99, 4)):
        model = MultiviewPLDA(VIEWS, init="random", random_state=0, tol=factor * gains[2]).fit(
            X, labels
        )
        assert model.converged_
        assert model.n_iter_ == iterations


def test_a_random_start_finds_as_much() -> None:
    X, labels = speakers_and_phrases()
    moments, chance = (
        MultiviewPLDA(VIEWS, init=i, tol=1e-6, max_iter=500, random_state=0)
        for i in ("moments", "random")
    )
    moments.fit(X, labels)
    chance.fit(X, labels)
    assert chance.log_likelihoods_[-1] == pytest.approx(moments.log_likelihoods_[-1], abs=0.1)
    assert chance.n_iter_ > moments.n_iter_


def test_shrinkage_weighs_what_its_documentation_says() -> None:
    """Shrinkage s of the noise counts as n s / (1 - s) vectors."""
    X, labels = speakers_and_phrases()
    s = 0.3
    model = MultiviewPLDA(VIEWS, noise_shrinkage=s, tol=1e-11, max_iter=5000)
    model.fit(X, labels)

    def objective(noise: np.ndarray, loadings: dict[str, np.ndarray]) -> float:
        model.noise_, model.loadings_ = noise, loadings
        prior = len(X) * s / (1 - s) * (np.log(noise) + X.var(axis=0) / noise).sum()
        return model.log_likelihood(X, labels) - 0.5 * float(prior)

    noise, loadings = model.noise_, model.loadings_
    best = objective(noise, loadings)
    for factor in (0.99, 1.01):
        for d in range(8):
            assert objective(noise * np.where(np.arange(8) == d, factor, 1.0), loadings) < best
        for view in VIEWS:
            assert objective(noise, {**loadings, view: factor * loadings[view]}) < best


def test_missing_labels_by_any_sign() -> None:
    X, labels = speakers_and_phrases()
    plain = {"speaker": labels["speaker"].tolist(), "phrase": labels["phrase"].tolist()}
    plain["speaker"][5:20] = [None] * 15
    signed = {**plain, "speaker": ["" if s is None else s for s in plain["speaker"]]}
    model = MultiviewPLDA(VIEWS, random_state=0).fit(X, plain)
    other = MultiviewPLDA(VIEWS, random_state=0).fit(X, signed)
    np.testing.assert_allclose(model.log_likelihoods_, other.log_likelihoods_, rtol=1e-12)
    assert other.log_likelihood(X, signed) == pytest.approx(
        model.log_likelihood(X, plain), rel=1e-12
    )
    assert "and 15 without label" in str(model.diagnostics_)


def test_diagnostics_say_what_was_found() -> None:
    X, labels = speakers_and_phrases()
    kept = np.flatnonzero(~((labels["speaker"] == "s0") & (labels["phrase"] > 1)))
    model = MultiviewPLDA(VIEWS).fit(X[kept], {v: c[kept] for v, c in labels.items()})
    found = model.diagnostics_
    for words in (
        f"{len(kept)} vectors of dimension 8",
        "speaker: 15 classes, 6/18/18 vectors each",
        "95.6% of cells filled, connected",
        "solved exactly; dense system of 12 latents",
    ):
        assert words in str(found)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_fit_names_the_first_row_that_is_not_finite(bad: float) -> None:
    X, labels = speakers_and_phrases()
    X[7, 0] = bad
    with pytest.raises(DataError, match="Input X contains NaN or infinity, first in row 7"):
        MultiviewPLDA({"speaker": 2, "phrase": 1}, max_iter=2).fit(X, labels)


def test_plda_is_one_view() -> None:
    X, labels = speakers_and_phrases()
    plda = PLDA(3, random_state=0).fit(X, labels["speaker"])
    assert list(plda.loadings_) == ["class"]
    multi = MultiviewPLDA({"speaker": 3}, random_state=0).fit(X, labels)
    np.testing.assert_array_equal(plda.noise_, multi.noise_)
    assert plda.log_likelihood(X, labels["speaker"]) == multi.log_likelihood(X, labels)
    named = PLDA(3, random_state=0).fit(X, {"speaker": labels["speaker"]})
    assert named.log_likelihood(X, labels) == plda.log_likelihood(X, labels["speaker"])
    with pytest.raises(LabelError, match="PLDA has one view, the labels have 2"):
        PLDA(3).fit(X, pd.DataFrame(labels))


@pytest.mark.parametrize("view", ["phrase", "speaker:phrase"])
def test_vectors_without_label_hold_no_rank(view: str) -> None:
    rng = np.random.default_rng(0)
    speaker = np.arange(1200) % 30
    phrase = (np.arange(1200) // 30 % 6).astype(object)
    gone = rng.permutation(1200)[:21]
    phrase[gone] = None
    X = rng.normal(size=(1200, 250))
    model = MultiviewPLDA({"speaker": 5, view: None}, max_iter=1, tol=0.0)
    model.fit(X, {"speaker": speaker, "phrase": phrase})
    labelled = 6 if view == "phrase" else 180
    assert model.views_[view] == labelled - 1
    assert f"{labelled} classes and 21 without label" in str(model.diagnostics_)
    with pytest.raises(LabelError, match="'phrase' has no class"):
        MultiviewPLDA({"phrase": None}).fit(X, {"phrase": [None] * 1200})


def test_the_likelihood_of_statistics_is_the_dense_one(tmp_path: Path) -> None:
    X, labels = speakers_and_phrases()
    settings: Any = {"max_iter": 4, "tol": 0.0}
    plain = MultiviewPLDA(VIEWS, **settings).fit(X, labels)
    whole = SufficientStatistics.from_arrays(X, labels)
    joint = np.kron(np.eye(len(X)), np.diag(plain.noise_))
    for view, loading in plain.loadings_.items():
        same = np.equal.outer(labels[view], labels[view])
        joint += np.kron(same.astype(float), loading @ loading.T)
    dense = log_normal((X - plain.mean_).reshape(-1), joint)
    assert plain.log_likelihood(X, labels) == pytest.approx(dense, rel=1e-9)
    parts = [
        SufficientStatistics.from_arrays(X[rows], {v: c[rows] for v, c in labels.items()})
        for rows in (slice(0, 100), slice(100, None))
    ]
    whole.save(tmp_path / "s")
    back = SufficientStatistics.load(tmp_path / "s")
    for statistics in (whole, parts[0] + parts[1], back, (whole + parts[0]) - parts[0]):
        model = MultiviewPLDA(VIEWS, **settings).fit_statistics(statistics)
        assert model.log_likelihoods_[-1] == pytest.approx(dense, rel=1e-9)


def test_what_a_fit_says_of_its_classes_is_worked_out_when_it_is_asked() -> None:
    X, labels = speakers_and_phrases()
    settings: Any = {"prior": "isotropic", "prior_strength": 0.5, "max_iter": 0}
    with pytest.MonkeyPatch.context() as patch:

        def never(*_: Any) -> None:
            raise AssertionError("an E step that nobody asked for")

        patch.setattr("mvplda.inference.em.posterior", never)
        model = MultiviewPLDA(dict.fromkeys(VIEWS), **settings).fit(X, labels)
        model.llr(X[:3], X[3:6])
        repr(model)
        same = MultiviewPLDA(dict.fromkeys(VIEWS), **settings).fit(X, labels)
    eager = pickle.loads(pickle.dumps(same))
    assert not any(name.startswith("_fit") for name in vars(eager))
    assert len(model.log_likelihoods_) == 1
    assert model.log_likelihoods_[0] == pytest.approx(model.log_likelihood(X, labels), rel=1e-9)
    for view in VIEWS:
        np.testing.assert_array_equal(eager.class_means_[view], model.class_means_[view])
        np.testing.assert_array_equal(
            eager.class_covariances_[view], model.class_covariances_[view]
        )
    # what was read belongs to the fit before, not to the next one
    before = model.class_means_["speaker"]
    assert (model.fit(X**3, labels).class_means_["speaker"] != before).any()
