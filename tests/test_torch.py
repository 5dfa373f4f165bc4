"""torch tensors in, torch tensors out, the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
from test_scoring import D, any_model

from mvplda.exceptions import UnknownClassWarning

torch = pytest.importorskip("torch", reason="torch is not installed")

VIEWS = [{"a": 2}, {"a": 2, "b": 1, "a:b": 1}, {"a": 1, "b": 1, "c": 1}]


@pytest.mark.parametrize("views", VIEWS, ids=lambda v: "+".join(v))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_torch_and_numpy_agree(views, dtype):
    rng = np.random.default_rng(3)
    model = any_model(views)
    X, T = rng.normal(size=(30, D)) + 3, rng.normal(size=(20, D)) + 3
    ids = np.repeat(np.arange(10), [1, 5, 2, 4, 3, 3, 3, 3, 3, 3])
    tolerance = 1e-4 if dtype == np.float32 else 1e-9
    profiles, tensors = model.enrol(X, ids), model.enrol(torch.from_numpy(X), ids)
    got = model.llr(tensors, torch.from_numpy(T), dtype=dtype)
    assert isinstance(got, torch.Tensor)
    np.testing.assert_allclose(got.numpy(), model.llr(profiles, T, dtype=dtype), atol=tolerance)
    pairs = np.stack([rng.integers(0, 10, 40), rng.integers(0, 20, 40)], axis=1)
    listed = model.llr_trials(tensors, torch.from_numpy(T), pairs, same="a", dtype=dtype)
    np.testing.assert_allclose(
        listed, model.llr_trials(profiles, T, pairs, same="a", dtype=dtype), atol=tolerance
    )
    posterior = model.hypotheses(tensors, torch.from_numpy(T), dtype=dtype)
    for h, expected in model.hypotheses(profiles, T, dtype=dtype).items():
        np.testing.assert_allclose(posterior[h].numpy(), expected, atol=tolerance)
    best = model.identify(tensors, torch.from_numpy(T), top=3, dtype=dtype)
    expected = model.identify(profiles, T, top=3, dtype=dtype)
    np.testing.assert_allclose(best.scores, expected.scores, atol=tolerance)


def test_torch_with_known_classes_and_mixed_enrolment():
    rng = np.random.default_rng(4)
    model = any_model({"a": 2, "b": 1})
    X, T = rng.normal(size=(9, D)) + 3, rng.normal(size=(5, D)) + 3
    ids, phrases = np.repeat(np.arange(3), 3), np.array([0, 0, 1, 2, 2, 2, 1, 3, 3])
    mixed = model.llr(
        model.enrol(torch.from_numpy(X), ids, {"b": phrases}), torch.from_numpy(T), dtype=np.float64
    )
    expected = model.llr(model.enrol(X, ids, {"b": phrases}), T, dtype=np.float64)
    np.testing.assert_allclose(mixed.numpy(), expected, atol=1e-9)
    quick = model.llr(model.enrol(torch.from_numpy(X), ids, {"b": phrases}), torch.from_numpy(T))
    assert quick.dtype == torch.float32
    np.testing.assert_allclose(quick.numpy(), expected, atol=1e-4)
    known = {"b": np.array([0, 3, 99])}
    with pytest.warns(UnknownClassWarning):
        got = model.llr(
            model.enrol(torch.from_numpy(X), ids),
            torch.from_numpy(T),
            known=known,
            dtype=np.float64,
        )
    with pytest.warns(UnknownClassWarning):
        expected = model.llr(model.enrol(X, ids), T, known=known, dtype=np.float64)
    np.testing.assert_allclose(got.numpy(), expected, atol=1e-9)


def test_both_sides_must_be_of_one_kind():
    model = any_model({"a": 2})
    X = np.zeros((2, D))
    with pytest.raises(ValueError, match="torch tensor"):
        model.llr(torch.from_numpy(X), X)
