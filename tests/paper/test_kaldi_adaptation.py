"""The study of Kaldi's adaptation: its update of a PLDA, and the normalisation of scores."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.studies.kaldi_adaptation import (
    BETWEEN_SCALE,
    WITHIN_SCALE,
    Corpus,
    halves,
    kaldi_adapted,
    s_norm,
)
from mvplda import PLDA


def model() -> PLDA:
    rng = np.random.default_rng(0)
    within = np.diag([0.5, 1.0, 2.0])
    return PLDA.from_parameters(rng.normal(size=3), {"speaker": rng.normal(size=(3, 2))}, within)


def covariances(plda: PLDA) -> tuple[np.ndarray, np.ndarray]:
    (B,) = plda.loadings_.values()
    return B @ B.T, np.asarray(plda.parameters_.sigma.covariance)


def vectors(mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Return vectors with exactly this mean and covariance."""
    Z = np.random.default_rng(1).normal(size=(50, len(mean)))
    Z -= Z.mean(axis=0)
    Z = Z @ np.linalg.inv(np.linalg.cholesky(Z.T @ Z / len(Z))).T
    return mean + Z @ np.linalg.cholesky(covariance).T


def test_vectors_with_the_variance_of_the_model_move_its_mean_alone() -> None:
    plda = model()
    between, within = covariances(plda)
    X = vectors(plda.mean_, between + within)
    found = kaldi_adapted(plda, X)
    np.testing.assert_allclose(found.mean_, plda.mean_, atol=1e-12)
    np.testing.assert_allclose(covariances(found), (between, within), atol=1e-10)


@pytest.mark.parametrize("factor", [4.0, 0.25])
def test_excess_variance_is_divided_between_and_within_speakers(factor: float) -> None:
    """Four times the variance has an excess of three times; too little variance changes nothing."""
    plda = model()
    between, within = covariances(plda)
    total = between + within
    found = kaldi_adapted(plda, vectors(plda.mean_, factor * total))
    excess = max(factor - 1, 0) * total
    expected = between + BETWEEN_SCALE * excess, within + WITHIN_SCALE * excess
    np.testing.assert_allclose(covariances(found), expected, atol=1e-9)


def test_a_shift_of_the_mean_counts_as_variance() -> None:
    plda = model()
    between, within = covariances(plda)
    shift = np.array([3.0, -1.0, 2.0])
    found = kaldi_adapted(plda, vectors(plda.mean_ + shift, between + within))
    np.testing.assert_allclose(found.mean_, plda.mean_ + shift)
    # second moment about the old mean: total + shift shift', whose excess has one direction
    excess = np.outer(shift, shift)
    expected = between + BETWEEN_SCALE * excess, within + WITHIN_SCALE * excess
    np.testing.assert_allclose(covariances(found), expected, atol=1e-9)


def test_normalised_scores_ignore_offset_and_scale_of_profiles_and_tests() -> None:
    rng = np.random.default_rng(2)
    scores, of_e, of_t = rng.normal(size=(2, 3)), rng.normal(size=(2, 40)), rng.normal(size=(40, 3))
    found = s_norm(scores, of_e, of_t, top=10)
    moved = s_norm(5 * scores + 2, 5 * of_e + 2, 5 * of_t + 2, top=10)
    np.testing.assert_allclose(moved, found)
    best_e, best_t = np.sort(of_e[1])[-10:], np.sort(of_t[:, 2])[-10:]
    expected = (scores[1, 2] - best_e.mean()) / best_e.std()
    expected += (scores[1, 2] - best_t.mean()) / best_t.std()
    assert found[1, 2] == pytest.approx(expected / 2)


def test_no_speaker_is_in_the_trials_and_in_the_unlabelled_vectors_of_a_half() -> None:
    speaker = np.repeat(np.arange(6), 10)
    enrol = np.tile(np.arange(10) < 4, 6)
    X = speaker[:, None].astype(float)
    corpus = Corpus(X, speaker, np.zeros(60, int), enrol, ~enrol)
    found = list(halves(corpus))
    assert len(found) == 2
    for half in found:
        assert set(half.owners) == set(half.speakers)
        assert not set(half.speakers) & set(half.unlabelled[:, 0])
        np.testing.assert_array_equal(half.enrol[:, 0], half.owners[half.ids])
        np.testing.assert_array_equal(half.test[:, 0], half.speakers)
    assert set(found[0].owners) | set(found[1].owners) == set(range(6))
