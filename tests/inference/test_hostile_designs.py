"""Labels that break naive code: always a finite model with a named warning, or a clear error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hostile import A, B, fit, vectors
from problems import NOISES

from mvplda import PLDA
from mvplda.exceptions import (
    DisconnectedDesignWarning,
    LabelError,
    RankCappedWarning,
    UnidentifiableViewWarning,
)

every_noise = pytest.mark.parametrize("noise", NOISES)


@every_noise
def test_one_vector_a_class(noise: str) -> None:
    X = vectors()
    _, found = fit(X, {"a": np.arange(len(X)), "b": B}, noise=noise)
    assert found == {UnidentifiableViewWarning}
    _, found = fit(X, {"a": np.arange(len(X)), "b": np.arange(len(X))}, noise=noise)
    assert found == {UnidentifiableViewWarning}
    with pytest.raises(LabelError, match="'a' has no class"):
        fit(X, {"a": [None] * len(X), "b": B}, noise=noise)


@pytest.mark.parametrize("labels", [{"a": A * 0, "b": B}, {"a": A, "b": ["only"] * len(A)}])
def test_a_view_with_one_class(labels: Any) -> None:
    view = "a" if labels["a"][3] == 0 and labels["a"][-1] == 0 else "b"
    with pytest.raises(
        LabelError, match=rf"view '{view}' has one class \((0|'only')\).*at least 2"
    ):
        fit(vectors(), labels)


@every_noise
def test_ranks_above_what_classes_can_hold(noise: str) -> None:
    model, found = fit(vectors(), views={"a": 30, "b": 5}, noise=noise)
    assert RankCappedWarning in found
    assert model.views_ == {"a": 5, "b": 5}
    assert (
        "rank 30 lowered to 5, the largest rank that 5 dimensions" in model.diagnostics_.messages[0]
    )
    model, _ = fit(vectors(20), views={"a": 3, "b": 6}, noise=noise)
    assert model.views_ == {"a": 3, "b": 5}
    assert "rank 6 lowered to 5, the largest rank that 6 classes" in model.diagnostics_.messages[0]


@every_noise
def test_a_disconnected_design(noise: str) -> None:
    together = (A < 6) == (B < 3)
    model, found = fit(vectors()[together], {"a": A[together], "b": B[together]}, noise=noise)
    assert found == {DisconnectedDesignWarning}
    assert "2 separate parts" in str(model.diagnostics_)


@every_noise
def test_nested_views_are_no_fault(noise: str) -> None:
    model, found = fit(vectors(), {"a": A, "b": A % 4}, noise=noise)
    assert found == set()
    assert model.diagnostics_.messages == ()


@every_noise
def test_a_view_that_is_a_copy_of_another(noise: str) -> None:
    names = np.array([f"class {i}" for i in range(12)])[::-1][A]
    _, found = fit(vectors(), {"a": A, "b": names}, noise=noise)
    assert found == {UnidentifiableViewWarning}
    cells = 6 * A + B  # an interaction whose classes are those of a base view
    _, found = fit(vectors(), {"a": cells, "b": B}, {"a": 2, "b": 2, "a:b": 2}, noise=noise)
    assert UnidentifiableViewWarning in found


@every_noise
def test_two_vectors(noise: str) -> None:
    fit(vectors()[:2], {"a": [0, 1], "b": [0, 1]}, noise=noise)


def test_warnings_point_at_the_caller() -> None:
    with pytest.warns(RankCappedWarning) as caught:
        PLDA(99).fit(vectors(), A)
    assert caught[0].filename == __file__
