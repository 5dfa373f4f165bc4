"""Centring, whitening and length normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from problems import speakers_and_phrases
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from mvplda.exceptions import DataError, ParameterError, RankCappedWarning
from mvplda.preprocessing import Centring, LengthNormalisation, Reduction, Whitening, standard_chain


@parametrize_with_checks(
    [
        Centring(),
        Reduction(),
        Whitening(),
        LengthNormalisation(),
    ]
)
def test_scikit_learn_check(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.fixture
def X() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(300, 5)) @ rng.normal(size=(5, 5)) + 7.0


def test_centring(X: np.ndarray) -> None:
    assert Centring().fit(X).transform(X + 2) == pytest.approx(X + 2 - X.mean(0))


def test_whitening_makes_the_covariance_the_identity(X: np.ndarray) -> None:
    assert np.cov(Whitening().fit_transform(X).T) == pytest.approx(np.eye(5), abs=1e-9)


def test_whitening_keeps_the_largest_axes(X: np.ndarray) -> None:
    some, every = Whitening(dim=2).fit(X), Whitening().fit(X)
    assert some.transform(X) == pytest.approx(every.transform(X)[:, :2])
    assert (np.diff(every.variances_) <= 0).all()


HARDLY = [0.0, 1e-9, 1e-4]
"""Deviations of columns that hardly vary: not at all, by rounding, and little, which may be a large unit."""


def with_columns_that_hardly_vary(X: np.ndarray) -> np.ndarray:
    return np.column_stack([X, *(h * np.sin(np.arange(len(X))) for h in HARDLY)])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_whitening_leaves_out_axes_that_hardly_vary(X: np.ndarray, dtype: Any) -> None:
    """Columns that are constant but for rounding, and one that differs from another by less than the floor."""
    more = with_columns_that_hardly_vary(X)
    more[:, 7] = X[:, 0] * (1 + more[:, 7])
    more = more.astype(dtype)
    white = Whitening().fit(more)
    assert white.variances_.shape == (5,)
    assert white.transform(more).shape == (300, 5)
    np.testing.assert_allclose(np.cov(white.transform(more).T), np.eye(5), atol=1e-4)
    alive = more.copy()
    alive[:, 5:7] = 1.0  # what never varied in training says nothing, whatever comes
    assert np.abs(white.transform(alive) - white.transform(more)).max() < 1e-2


def test_whitening_keeps_what_varies_in_whatever_unit() -> None:
    """Volts and microvolts; four columns that say what others say are still left out."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 46)) @ rng.normal(size=(46, 50))
    scaled = X * np.logspace(-4, 4, 50)
    plain, units = Whitening().fit(X), Whitening().fit(scaled)
    assert len(plain.variances_) == len(units.variances_) == 46
    spectrum = np.linalg.eigvalsh(np.cov(units.transform(scaled).T))
    assert spectrum == pytest.approx(np.ones(46), abs=1e-6)
    assert (np.diff(units.variances_) <= 0).all()


def test_reduction_leaves_out_what_only_rounding_varies(X: np.ndarray) -> None:
    assert Reduction().fit(with_columns_that_hardly_vary(X)).matrix_.shape == (8, 6)


@pytest.mark.parametrize("step", [Whitening(dim=7), Reduction(dim=7)])
def test_fewer_axes_than_asked_for_are_a_warning(X: np.ndarray, step: Any) -> None:
    with pytest.warns(RankCappedWarning, match=r"[56] of the 7 requested"):
        step.fit(with_columns_that_hardly_vary(X), np.arange(300) % 30)


def test_vectors_that_are_all_the_same(X: np.ndarray) -> None:
    for step in (Whitening(), Reduction()):
        with pytest.raises(DataError, match="all training vectors are equal"):
            step.fit(np.full((300, 5), 0.1), np.arange(300) % 3)


def test_length(X: np.ndarray) -> None:
    X = np.vstack([X, np.zeros(5)])
    for length, wanted in (("sqrt", np.sqrt(5)), ("unit", 1.0)):
        result = LengthNormalisation(length).fit_transform(X)
        assert np.linalg.norm(result[:-1], axis=1) == pytest.approx(wanted)
        assert (result[-1] == 0).all()
    huge = LengthNormalisation("unit").fit_transform(np.full((1, 4), 1e200))
    assert huge == pytest.approx(0.5)


def test_float32_stays_float32(X: np.ndarray) -> None:
    chain = standard_chain(3).fit(X)
    assert chain.transform(X.astype(np.float32)).dtype == np.float32
    assert chain.transform(X.astype(np.float32)) == pytest.approx(chain.transform(X), abs=1e-4)


def test_the_order_of_the_chain() -> None:
    X, labels = speakers_and_phrases()
    chain = standard_chain(3)
    assert [name for name, _ in chain.steps] == ["centre", "whiten", "length"]
    result = clone(chain).fit(X, labels).transform(X)
    assert result.shape == (270, 3)
    assert np.linalg.norm(result, axis=1) == pytest.approx(np.sqrt(3))
    assert [name for name, _ in standard_chain(whiten=False, length=None).steps] == ["centre"]


def test_errors(X: np.ndarray) -> None:
    with pytest.raises(ParameterError, match="dim must lie between 1 and 5, the number of columns"):
        Whitening(dim=6).fit(X)
    with pytest.raises(ParameterError, match="length must be"):
        LengthNormalisation("long").fit(X)


def test_reduction_keeps_the_largest_variances_and_all_distances_of_its_subspace() -> None:
    X = np.random.default_rng(3).normal(size=(200, 6)) * [1, 2, 3, 10, 20, 30] + 5
    reduced = Reduction(3).fit(X)
    Y = reduced.transform(X)
    covariance = np.cov(Y.T)
    np.testing.assert_allclose(covariance, np.diag(np.diag(covariance)), atol=1e-9)
    np.testing.assert_allclose(
        np.diag(covariance), np.sort(np.linalg.eigvalsh(np.cov(X.T)))[::-1][:3]
    )
    everything = Reduction().fit_transform(X)
    np.testing.assert_allclose(
        np.linalg.norm(everything[0] - everything[1]), np.linalg.norm(X[0] - X[1])
    )
    with pytest.raises(ParameterError, match="between 1 and 6"):
        Reduction(7).fit(X)


def test_fewer_vectors_than_columns_have_the_same_axes() -> None:
    X = np.random.default_rng(4).normal(size=(12, 30)) * np.linspace(1, 9, 30)
    few = Reduction(5).fit(X)
    variances, axes = np.linalg.eigh(np.cov(X.T))
    np.testing.assert_allclose(few.variances_, variances[::-1][:5])
    np.testing.assert_allclose(np.abs(np.sum(few.matrix_ * axes[:, ::-1][:, :5], axis=0)), 1.0)
    np.testing.assert_allclose(np.cov(Whitening(dim=11).fit_transform(X).T), np.eye(11), atol=1e-9)


@pytest.mark.parametrize("scale", [1e200, 1e307])
@pytest.mark.parametrize("step", [Whitening(), Reduction(3)])
def test_vectors_whose_squares_overflow_are_refused(X: np.ndarray, step: Any, scale: float) -> None:
    with pytest.raises(DataError, match="too large"):
        clone(step).fit(X * scale)
    with pytest.raises(DataError, match="too large"):
        clone(step).fit(X[:4] * scale)
