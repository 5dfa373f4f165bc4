"""algorithm="auto", "exact" and "variational" at the estimators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from problems import crossed, draw, random_parameters

from mvplda import PLDA, MultiviewPLDA, SufficientStatistics, load
from mvplda.exceptions import DesignTooLargeError, LabelError, MvpldaWarning, ParameterError
from mvplda.inference import design as design_module
from mvplda.inference.design import Design, exact_pays, make_plan

VIEWS = {"speaker": 3, "channel": 2}


def data(n: int = 400, *, missing: bool = False) -> tuple[np.ndarray, dict[str, Any]]:
    rng = np.random.default_rng(0)
    codes = [
        np.concatenate([np.arange(40), rng.integers(0, 40, size=n - 40)]),
        rng.permutation(np.concatenate([np.arange(30), rng.integers(0, 30, size=n - 30)])),
    ]
    X = draw(rng, codes, random_parameters(rng, 8, (3, 2), "diagonal"))
    labels: dict[str, Any] = dict(zip(VIEWS, codes, strict=True))
    if missing:
        labels["channel"] = [None if i % 5 == 0 else int(c) for i, c in enumerate(codes[1])]
    return X, labels


@pytest.mark.parametrize("noise", ["diagonal", "full", "isotropic"])
@pytest.mark.parametrize("interaction", [False, True])
@pytest.mark.parametrize("missing", [False, True])
def test_variational_fits_are_close_to_exact_ones_and_say_what_they_are(
    noise: Any, interaction: bool, missing: bool
) -> None:
    X, labels = data(missing=missing)
    views = {**VIEWS, **({"speaker:channel": 1} if interaction else {})}
    settings: dict[str, Any] = {
        "noise": noise,
        "noise_shrinkage": 0.02,
        "tol": 1e-4,
        "max_iter": 500,
    }
    exact = MultiviewPLDA(views, algorithm="exact", **settings).fit(X, labels)
    model = MultiviewPLDA(views, algorithm="variational", **settings).fit(X, labels)
    assert (exact.algorithm_used_, model.algorithm_used_) == ("exact", "variational")
    assert "variational" in model.diagnostics_.solver
    assert "bound" in str(model.diagnostics_)
    assert "bound" not in str(exact.diagnostics_)
    assert model.diagnostics_.likelihood_fell == ()
    truth = exact.set_params(algorithm="exact").log_likelihood(X, labels)
    assert model.log_likelihoods_[-1] < truth
    judged = MultiviewPLDA.from_parameters(
        model.mean_, model.loadings_, model.noise_
    ).log_likelihood(X, labels)
    gap = (judged - model.log_likelihoods_[-1]) / len(X)
    assert 0 < gap < 0.05  # thirteen vectors a class: not even medium
    assert abs(judged - truth) / len(X) < 0.02
    for view in VIEWS:
        assert model.class_covariances_[view].shape == (
            *model.class_means_[view].shape,
            VIEWS[view],
        )


def test_auto_is_exact_where_that_is_quick_and_the_same_to_the_last_digit() -> None:
    X, labels = data()
    auto, exact = (MultiviewPLDA(VIEWS, algorithm=a).fit(X, labels) for a in ("auto", "exact"))
    assert MultiviewPLDA().algorithm == PLDA().algorithm == "auto"
    assert auto.algorithm_used_ == "exact"
    np.testing.assert_array_equal(auto.log_likelihoods_, exact.log_likelihoods_)
    np.testing.assert_array_equal(auto.noise_, exact.noise_)


def test_auto_no_longer_refuses_and_exact_still_does(monkeypatch: pytest.MonkeyPatch) -> None:
    X, labels = data()
    monkeypatch.setattr(design_module, "MAX_DENSE", 10)
    model = MultiviewPLDA(VIEWS).fit(X, labels)
    assert model.algorithm_used_ == "variational"
    with pytest.warns(MvpldaWarning, match="lower bound"):
        assert np.isfinite(model.log_likelihood(X, labels))
    with pytest.raises(DesignTooLargeError, match="algorithm='variational'"):
        MultiviewPLDA(VIEWS, algorithm="exact").fit(X, labels)
    with pytest.raises(DesignTooLargeError):
        MultiviewPLDA(VIEWS, algorithm="paper").fit(X, labels)


def test_auto_weighs_time_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    X, labels = data()
    statistics = SufficientStatistics.from_arrays(X, labels, views=(*VIEWS, "speaker:channel"))
    for views, ranks in ((tuple(VIEWS), (3, 2)), ((*VIEWS, "speaker:channel"), (3, 2, 1))):
        sums = statistics.for_views(views, "diagonal")
        design = Design.of(sums, ranks, method="auto")
        assert not design.plan.factorised
        R = make_plan(sums, ranks).dense_size
        with monkeypatch.context() as patch:
            patch.setattr(design_module, "AUTO_OPERATIONS", 2.0 * R**3 + 1)
            assert exact_pays(design, ranks) == (
                design.plan.root is None
            )  # many root groups are work too
            patch.setattr(design_module, "AUTO_OPERATIONS", 2.0 * R**3 - 1)
            assert Design.of(sums, ranks, method="auto").plan.factorised
        with monkeypatch.context() as patch:
            patch.setattr(design_module, "AUTO_GRAM_ENTRIES", 10.0)
            assert Design.of(sums, ranks, method="auto").plan.factorised
    one = statistics.for_views(("speaker",), "diagonal")
    assert not Design.of(one, (3,), method="auto").plan.factorised


def test_file_keeps_which_algorithm_it_was(tmp_path: Path) -> None:
    X, labels = data()
    model = MultiviewPLDA(VIEWS, algorithm="variational").fit(X, labels)
    model.save(tmp_path / "model.safetensors")
    loaded = MultiviewPLDA.load(tmp_path / "model.safetensors")
    assert loaded.algorithm_used_ == "variational"
    assert load(tmp_path / "model.safetensors").describe()["algorithm_used"] == "variational"


def test_known_classes_take_the_variational_posteriors(monkeypatch: pytest.MonkeyPatch) -> None:
    X, labels = data()
    scores = [
        MultiviewPLDA(VIEWS, algorithm=algorithm, tol=1e-5)
        .fit(X, labels)
        .llr(X[:20], X[20:40], known={"channel": labels["channel"][:20]})
        for algorithm in ("exact", "variational")
    ]
    np.testing.assert_allclose(scores[1], scores[0], rtol=0.05, atol=0.1)
    monkeypatch.setattr("mvplda.models.multiview.KEPT_COVARIANCES", 10)
    model = MultiviewPLDA(VIEWS, algorithm="variational").fit(X, labels)
    with pytest.raises((LabelError, ParameterError), match="keeps no class posteriors"):
        model.llr(X[:20], X[20:40], known={"channel": labels["channel"][:20]})


def test_one_view_takes_it_too() -> None:
    X, labels = data()
    exact, model = (
        PLDA(3, algorithm=a).fit(X, labels["speaker"]) for a in ("exact", "variational")
    )
    np.testing.assert_allclose(model.log_likelihoods_, exact.log_likelihoods_, rtol=1e-10)


def test_progress_and_callback_speak_of_a_bound(capsys: pytest.CaptureFixture[str]) -> None:
    X, labels = data()
    MultiviewPLDA(VIEWS, algorithm="variational", verbose=1).fit(X, labels)
    assert "lower bound" in capsys.readouterr().err


@pytest.mark.slow
def test_thousands_of_classes_in_both_views_fit_by_default() -> None:
    rng = np.random.default_rng(0)
    codes = [rng.permutation(np.arange(20_000) % 4000), rng.permutation(np.arange(20_000) % 3000)]
    X = draw(rng, codes, random_parameters(rng, 10, (5, 4), "diagonal"))
    model = MultiviewPLDA({"a": 5, "b": 4}, max_iter=5, tol=0.0).fit(
        X, dict(zip("ab", codes, strict=True))
    )
    assert model.algorithm_used_ == "variational"
    assert np.diff(model.log_likelihoods_).min() >= 0


def test_dense_crossing_at_the_estimator() -> None:
    rng = np.random.default_rng(0)
    codes = list(crossed(60, 12, 2))
    X = draw(rng, codes, random_parameters(rng, 10, (4, 3), "full"))
    labels = dict(zip("ab", codes, strict=True))
    model = MultiviewPLDA({"a": 4, "b": 3}, noise="full", algorithm="variational").fit(X, labels)
    truth = MultiviewPLDA.from_parameters(
        model.mean_, model.loadings_, model.noise_
    ).log_likelihood(X, labels)
    assert 0 < (truth - model.log_likelihoods_[-1]) / len(X) < 0.01


def test_a_bound_is_never_taken_for_the_log_likelihood() -> None:
    X, labels = data()
    model = MultiviewPLDA(VIEWS, algorithm="variational", max_iter=3, tol=0.0).fit(X, labels)
    with pytest.warns(MvpldaWarning, match="a lower bound of the log-likelihood"):
        bound = model.log_likelihood(X, labels)
    assert bound == pytest.approx(model.log_likelihoods_[-1], rel=1e-9)
    printed = str(model.diagnostics_)
    assert "log-likelihoods are lower bounds" in printed
    assert "nat a vector below" not in printed  # by how much is an estimate, for those who ask
    exact = MultiviewPLDA(VIEWS, algorithm="exact", max_iter=3, tol=0.0).fit(X, labels)
    assert "bound" not in str(exact.diagnostics_)
