"""One dimension is a mixed model: the same maximum as statsmodels' MixedLM (see golden/make_mixedlm.py)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mvplda import MultiviewPLDA

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "mixedlm.json").read_text())


@pytest.mark.parametrize("noise", ["diagonal", "full"])
@pytest.mark.parametrize("name", GOLDEN)
def test_variance_components_are_those_of_mixedlm(name: str, noise: str) -> None:
    labels, expected = GOLDEN[name]["labels"], GOLDEN[name]["expected"]
    X = np.array(GOLDEN[name]["values"])[:, None]
    model = MultiviewPLDA(
        dict.fromkeys(expected["variances"], 1), noise=noise, tol=1e-12, max_iter=20_000
    )
    model.fit(X, labels)
    assert model.converged_
    assert model.log_likelihood(X, labels) == pytest.approx(expected["log_likelihood"], abs=1e-6)
    assert model.mean_[0] == pytest.approx(expected["mean"], abs=1e-4)
    assert model.noise_.item() == pytest.approx(expected["noise"], rel=1e-4)
    for view, variance in expected["variances"].items():
        assert model.loadings_[view].item() ** 2 == pytest.approx(variance, rel=1e-3), view
