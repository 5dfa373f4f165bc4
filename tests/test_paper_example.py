"""examples/paper.py gives the parameters and scores of the library."""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mvplda import MultiviewPLDA
from mvplda.inference.em import PublishedEM

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "paper.py"
ITERATIONS = 7


@pytest.fixture(scope="module")
def paper() -> ModuleType:
    spec = importlib.util.spec_from_file_location("paper_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Vectors of an unbalanced design: some cells are empty, others have one to four vectors."""
    rng = np.random.default_rng(0)
    speaker, phrase, take = (a.ravel() for a in np.indices((14, 5, 4)))
    kept = (rng.random(len(take)) < 0.7) & ((speaker != 3) | (phrase != 2))
    speaker, phrase = speaker[kept], phrase[kept]
    X = 3.0 + rng.normal(size=(14, 8))[speaker] + rng.normal(size=(5, 8))[phrase]
    return X + rng.normal(size=X.shape), {"speaker": speaker, "phrase": phrase}


def fitted(data: Any, max_iter: int, body: bool = False, **settings: Any) -> MultiviewPLDA:
    X, labels = data
    model = MultiviewPLDA(
        {"speaker": 3, "phrase": 2},
        init="random",
        random_state=1,
        max_iter=max_iter,
        tol=0,
        **settings,
    )
    model.published_em = partial(PublishedEM, body=body)
    return model.fit(X, labels)


def as_tuple(model: MultiviewPLDA) -> tuple[np.ndarray, ...]:
    return model.mean_, model.loadings_["speaker"], model.loadings_["phrase"], model.noise_


def assert_same_model(
    found: tuple[np.ndarray, ...], library: MultiviewPLDA, tolerance: float = 1e-8
) -> None:
    """Compare models up to a rotation of the latents of each view."""
    mean, S, T, noise = as_tuple(library)
    np.testing.assert_allclose(found[0], mean, rtol=tolerance)
    np.testing.assert_allclose(found[1] @ found[1].T, S @ S.T, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found[2] @ found[2].T, T @ T.T, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found[3], noise, rtol=tolerance)


def test_exact_em_is_the_librarys(paper: ModuleType, data: Any) -> None:
    X, labels = data
    start = as_tuple(fitted(data, 0))
    found = paper.exact_em(X, labels["speaker"], labels["phrase"], start, ITERATIONS)
    assert_same_model(found, fitted(data, ITERATIONS))


@pytest.mark.parametrize("reading", ["appendix", "body"])
def test_printed_em_is_the_librarys_in_both_readings(
    paper: ModuleType, data: Any, reading: str
) -> None:
    X, labels = data
    start = as_tuple(fitted(data, 0, algorithm="paper"))
    found = paper.printed_em(
        X, labels["speaker"], labels["phrase"], start, ITERATIONS, reading=reading
    )
    assert_same_model(found, fitted(data, ITERATIONS, algorithm="paper", body=reading == "body"))


@pytest.mark.parametrize("scoring", ["exact", "paper"])
def test_scores_are_the_librarys(paper: ModuleType, data: Any, scoring: str) -> None:
    X, _ = data
    model = fitted(data, ITERATIONS)
    enrolled, tests = X[:6], X[6:40]
    p = paper.log_densities(as_tuple(model), enrolled, tests, printed=scoring == "paper")
    profiles = model.enrol(enrolled)
    joint = model.llr(profiles, tests, scoring=scoring, dtype="float64")
    alone = model.llr(profiles, tests, scoring=scoring, same="speaker", dtype="float64")
    np.testing.assert_allclose(paper.joint_score(p), joint, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(paper.speaker_score(p), alone, rtol=1e-8, atol=1e-8)


def test_the_error_rate_is_where_both_errors_meet(paper: ModuleType) -> None:
    assert paper.eer(np.array([2.0, 3.0, 4.0, 5.0]), np.array([0.0, 1.0, 2.5, -1.0])) == 25
    assert paper.eer(np.array([1.0, 2.0]), np.array([-1.0, 0.0])) == 0


def test_the_table_shows_what_the_printed_formulas_cost(
    paper: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    paper.main()
    rows = [line.rsplit(maxsplit=4) for line in capsys.readouterr().out.splitlines()[1:]]
    ic = {" ".join(name.split()): float(row[1]) for name, *row in rows}
    assert len(ic) == 6
    assert min(ic, key=lambda name: ic[name]) == "exact exact"
    assert ic["exact printed"] > 1.5 * ic["exact exact"]
    assert ic["printed, body printed"] > 50
