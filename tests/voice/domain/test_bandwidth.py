"""The band of recordings, estimated from their evidence: a telephone on one side of a trial."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from mvplda import load
from mvplda.exceptions import LabelError
from mvplda.tensor_files import packed_chunks, unpack
from mvplda.voice.domain.bandwidth import DIFFERENT_BANDS, fit_band_weights
from mvplda.voice.domain.estimator import DomainPLDA
from mvplda.voice.phrases import PhraseMatcher

MATCHER = PhraseMatcher("phrase", 8)
BLOCKS = {"voice": (6, "speaker"), "words": (4, "phrase"), "row": (8 * 3 + 1, "phrase")}
TELEPHONE = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 4.0])


def recordings(seed: int = 0, n: int = 240) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Vectors of 12 speakers and 5 phrases, of which every other is over a telephone."""
    rng = np.random.default_rng(seed)
    speaker, phrase = np.arange(n) % 12, np.arange(n) % 5
    is_narrow = rng.random(n) < 0.5
    voice = 2 * np.eye(6)[speaker % 6] + speaker[:, None] % 2 + 0.3 * rng.normal(size=(n, 6))
    voice += is_narrow[:, None] * TELEPHONE
    words = 2 * np.eye(5, 4)[phrase] + 0.3 * rng.normal(size=(n, 4))
    points = rng.normal(size=(n, 8, 3))
    points /= np.linalg.norm(points, axis=2, keepdims=True)
    X = np.hstack([voice, words, points.reshape(n, -1), rng.uniform(0.5, 3, (n, 1))])
    labels = {"speaker": speaker.astype(str), "phrase": phrase.astype(str)}
    return X, labels, is_narrow


@pytest.fixture(scope="module")
def model() -> DomainPLDA:
    X, labels, is_narrow = recordings()
    fitted = DomainPLDA(BLOCKS, points={"row": asdict(MATCHER)}).fit(X, labels)
    return fitted.fit_bandwidth(X, is_narrow, np.zeros(len(X)))


def test_a_telephone_on_one_side_is_recognised(model: DomainPLDA) -> None:
    X, _, is_narrow = recordings(1)
    enrolled, tests = np.arange(60), np.arange(60, 240)
    profiles, sides = model.enrol(X[enrolled]), model.enrol(X[tests])
    found = model.evidence_measures(profiles, sides, None)[DIFFERENT_BANDS]
    differs = np.not_equal.outer(is_narrow[enrolled], is_narrow[tests])
    assert ((found >= 0) & (found <= 1)).all()
    assert np.mean((found > 0.5) == differs) > 0.8


def test_a_single_trial_and_a_list_have_the_measure_of_the_matrix(model: DomainPLDA) -> None:
    X, labels, _ = recordings(2)
    # profiles of several recordings in several cells
    profiles = model.enrol(X[:120], labels["speaker"][:120], {"phrase": labels["phrase"][:120]})
    tests = model.enrol(X[120:])
    matrix = model.evidence_measures(profiles, tests, None)[DIFFERENT_BANDS]
    pairs = np.array([[3, 7], [0, 0], [11, 50]])
    listed = model.evidence_measures(profiles, tests, pairs)[DIFFERENT_BANDS]
    np.testing.assert_allclose(listed, matrix[tuple(pairs.T)])
    for row, (profile, test) in enumerate(pairs):
        single = model.evidence_measures(profiles[profile], tests[test], None)[DIFFERENT_BANDS]
        np.testing.assert_allclose(single, [[listed[row]]])


def test_files_without_the_estimate_still_load(model: DomainPLDA, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    model.save(path)
    np.testing.assert_array_equal(load(path).band_weights_, model.band_weights_)
    arrays, about = unpack(path)
    arrays = {name: array for name, array in arrays.items() if name != "band_weights_"}
    path.write_bytes(b"".join(packed_chunks(arrays, about)))
    older = load(path)
    X, _, _ = recordings(1)
    profiles = older.enrol(X[:5])
    assert DIFFERENT_BANDS not in older.evidence_measures(profiles, profiles, None)


def test_recordings_of_one_band_are_refused() -> None:
    X, _, _ = recordings()
    with pytest.raises(LabelError, match="narrow band"):
        fit_band_weights(X, np.ones(len(X), dtype=bool), np.zeros(len(X)))
