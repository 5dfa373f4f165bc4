"""Vectors that break naive code: always a finite model with a named warning, or a clear error."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hostile import LABELS, VIEWS, A, fit, vectors
from problems import NOISES

from mvplda import MultiviewPLDA
from mvplda.exceptions import DataError, UnidentifiableViewWarning
from mvplda.preprocessing import Whitening

every_noise = pytest.mark.parametrize("noise", NOISES)


@every_noise
@pytest.mark.parametrize("noise_shrinkage", [0.0, 0.1])
def test_fewer_vectors_than_dimensions(noise: str, noise_shrinkage: float) -> None:
    fit(vectors(200), noise=noise, noise_shrinkage=noise_shrinkage)
    model, _ = fit(
        vectors(200),
        noise=noise,
        noise_shrinkage=noise_shrinkage,
        views={"a": None, "b": None, "a:b": None},
    )
    assert model.views_ == {"a": 11, "b": 5, "a:b": 71}


@every_noise
@pytest.mark.parametrize("value", [0.0, 7.0, -1e9, 1 / 3])
def test_constant_columns(noise: str, value: float) -> None:
    X = vectors()
    X[:, 2] = value
    model, _ = fit(X, noise=noise)
    assert model.mean_[2] == pytest.approx(value, abs=1e-6)
    assert np.abs(model.loadings_["a"][2]).max() < 1e-2


@every_noise
def test_duplicate_columns(noise: str) -> None:
    X = vectors()
    X[:, 1] = X[:, 0]
    X[:, 2] = 2 * X[:, 0] - X[:, 3]
    fit(X, noise=noise)


@every_noise
def test_vectors_without_noise(noise: str) -> None:
    fit(vectors(noise=0.0), noise=noise, views={"a": 5, "b": 5})
    _, found = fit(vectors(noise=0.0), {"a": A, "b": A}, noise=noise)
    assert UnidentifiableViewWarning in found


@every_noise
@pytest.mark.parametrize("scale", [1e8, 1e-8, 1e100, 1e-100])
def test_any_scale(noise: str, scale: float) -> None:
    plain, _ = fit(vectors(), noise=noise)
    scaled, found = fit(scale * vectors(), noise=noise)
    assert found == set()
    expected = plain.log_likelihoods_ - vectors().size * np.log(scale)
    np.testing.assert_allclose(scaled.log_likelihoods_, expected, rtol=1e-9)


@pytest.mark.parametrize("noise", ["diagonal", "full"])
def test_columns_of_very_different_scale(noise: str) -> None:
    units = np.array([1e-5, 1e-2, 1.0, 1e4, 1e8])
    plain, _ = fit(vectors(), noise=noise)
    scaled, found = fit(vectors() * units, noise=noise)
    assert found == set()
    expected = plain.log_likelihoods_ - len(A) * np.log(units).sum()
    np.testing.assert_allclose(scaled.log_likelihoods_, expected, rtol=1e-6)


@every_noise
@pytest.mark.parametrize("mean", [1e6, -1e9])
def test_a_mean_far_from_zero(noise: str, mean: float) -> None:
    plain, _ = fit(vectors(), noise=noise)
    moved, found = fit(vectors() + mean, noise=noise)
    assert found == set()
    np.testing.assert_allclose(moved.log_likelihoods_, plain.log_likelihoods_, rtol=1e-5)
    np.testing.assert_allclose(moved.mean_, plain.mean_ + mean, rtol=1e-12, atol=1e-4)


@every_noise
def test_one_vector_far_from_the_others(noise: str) -> None:
    X = vectors()
    X[3] = 1e9
    fit(X, noise=noise)


@pytest.mark.parametrize(
    ("bad", "words"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")]
)
def test_not_a_number(bad: float, words: str) -> None:
    X = vectors()
    X[7, 2] = bad
    with pytest.raises(ValueError, match=words):
        fit(X)
    model, _ = fit(vectors())
    for use in (model.transform, lambda x: model.log_likelihood(x, LABELS)):
        with pytest.raises(ValueError, match=words):
            use(X)


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (np.full((len(A), 5), 3.3), "all vectors are equal"),
        (1e-170 * vectors(), "all vectors are equal, or so small"),
        (1e-150 * vectors(), "too small for floating-point"),
        (1e160 * vectors(), "scale the vectors down"),
        ((1e20 * vectors()).astype(np.float32), "scale the vectors down"),
    ],
)
def test_what_no_model_can_be_made_of(X: np.ndarray, words: str) -> None:
    with pytest.raises(DataError, match=words):
        fit(X)


@every_noise
def test_strong_shrinkage(noise: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = MultiviewPLDA(VIEWS, noise=noise, noise_shrinkage=0.99).fit(vectors(), LABELS)
    assert np.isfinite(model.log_likelihoods_).all()


def test_masked_numbers_are_not_taken_for_numbers() -> None:
    X = vectors()
    masked = np.ma.masked_array(X, mask=np.zeros(X.shape, dtype=bool))
    model, _ = fit(masked)  # a mask that hides nothing
    masked[3, 2] = np.ma.masked
    for call in (
        lambda: fit(masked),
        lambda: model.llr(masked, X),
        lambda: Whitening().fit(masked),
    ):
        with pytest.raises(DataError, match="some numbers of the vectors are masked"):
            call()
