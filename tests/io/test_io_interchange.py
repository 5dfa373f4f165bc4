"""Models of other toolkits: the same likelihood ratios, and whole files only."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from mvplda import PLDA, MultiviewPLDA
from mvplda.exceptions import DataError, FileFormatError, LabelError, MvpldaError, ParameterError
from mvplda.io.plda_files import read_kaldi_plda, transform_of, write_kaldi_plda

D = 5


def diagonalised(seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=D), rng.normal(size=(D, D)), np.array([3.0, 1.5, 0.7, 0.1, 0.0])


def two_covariance_llr(mean: Any, within: Any, between: Any, X: Any, Y: Any) -> Any:
    """log N([x, y]; same class) - log N([x, y]; two classes), from the dense joint covariance."""
    total = within + between
    same = multivariate_normal(np.r_[mean, mean], np.block([[total, between], [between, total]]))
    alone = multivariate_normal(mean, total)
    return np.array(
        [[same.logpdf(np.r_[x, y]) - alone.logpdf(x) - alone.logpdf(y) for y in Y] for x in X]
    )


def kaldi_llr(mean: Any, A: Any, psi: Any, X: Any, Y: Any) -> Any:
    """Kaldi's formula for one enrolment vector: the predictive of u given the other, against N(0, psi + 1)."""
    U, V = (X - mean) @ A.T, (Y - mean) @ A.T
    given = multivariate_normal_diagonal(
        V[None], (psi / (psi + 1)) * U[:, None], 1 + psi / (psi + 1)
    )
    return given - multivariate_normal_diagonal(V[None], np.zeros(D), 1 + psi)


def multivariate_normal_diagonal(x: Any, mean: Any, variance: Any) -> Any:
    return -0.5 * (np.log(2 * np.pi * variance) + (x - mean) ** 2 / variance).sum(axis=-1)


def kaldi_bytes(mean: Any, A: Any, psi: Any, letter: str = "D") -> bytes:
    """A binary <Plda> put together by hand."""
    real = "<f8" if letter == "D" else "<f4"
    vector = lambda v: (  # noqa: E731
        f"{letter}V ".encode() + b"\4" + struct.pack("<i", len(v)) + v.astype(real).tobytes()
    )
    sizes = b"\4" + struct.pack("<i", A.shape[0]) + b"\4" + struct.pack("<i", A.shape[1])
    matrix = f"{letter}M ".encode() + sizes + A.astype(real).tobytes()
    return b"\0B<Plda> " + vector(mean) + matrix + vector(psi) + b"</Plda> "


def kaldi_text(mean: Any, A: Any, psi: Any) -> str:
    """A text <Plda> put together by hand, laid out as Kaldi prints it."""
    row = lambda v: " ".join(repr(float(x)) for x in v)  # noqa: E731
    return (
        f"<Plda>  [ {row(mean)} ]\n [\n"
        + "\n".join(f"  {row(r)} " for r in A)
        + f"]\n [ {row(psi)} ]\n</Plda> "
    )


@pytest.mark.parametrize("layout", ["binary", "float", "text", "crlf"])
def test_kaldi_model_gives_the_dense_ratio(tmp_path: Path, layout: str) -> None:
    mean, A, psi = diagonalised()
    text = kaldi_text(mean, A, psi).encode()
    data = {
        "binary": kaldi_bytes(mean, A, psi),
        "float": kaldi_bytes(mean, A, psi, "F"),
        "text": text,
        "crlf": text.replace(b"\n", b"\r\n"),
    }[layout]
    (tmp_path / "plda").write_bytes(data)
    model = read_kaldi_plda(tmp_path / "plda", view="speaker")
    assert model.views_ == {"speaker": 4}
    X, Y = np.random.default_rng(1).normal(size=(2, 4, D))
    inverse = np.linalg.inv(A)
    expected = two_covariance_llr(mean, inverse @ inverse.T, inverse * psi @ inverse.T, X, Y)
    tolerance = 1e-4 if layout == "float" else 1e-8
    found = model.llr(X, Y, dtype=np.float64)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(kaldi_llr(mean, A, psi, X, Y), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("noise", ["full", "diagonal"])
def test_round_trip(tmp_path: Path, noise: Any) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(30), 6)
    X = rng.normal(size=(30, D))[y] @ rng.normal(size=(D, D)) + rng.normal(size=(180, D))
    model = PLDA(3, noise=noise, max_iter=20, tol=0).fit(X, y)
    path = tmp_path / "plda"
    write_kaldi_plda(path, model)
    found = read_kaldi_plda(path)
    assert list(tmp_path.iterdir()) == [path]
    B, C = model.loadings_["class"], found.loadings_["class"]
    np.testing.assert_allclose(found.mean_, model.mean_, atol=1e-12)
    np.testing.assert_allclose(C @ C.T, B @ B.T, atol=1e-9)
    np.testing.assert_allclose(
        found.noise_, model.noise_ if noise == "full" else np.diag(model.noise_), atol=1e-9
    )
    ratios = [m.llr(m.enrol(X[:12], y[:12]), X[6:20], dtype=np.float64) for m in (model, found)]
    np.testing.assert_allclose(ratios[1], ratios[0], atol=1e-7)


def test_the_transform_that_is_written(tmp_path: Path) -> None:
    """Within I, between diag(psi), psi falling: what Kaldi takes for granted."""
    mean, A, psi = diagonalised(3)
    (tmp_path / "a").write_bytes(kaldi_bytes(mean, A, psi))
    model = read_kaldi_plda(tmp_path / "a")
    _, T, found = transform_of(model)
    np.testing.assert_allclose(T @ model.noise_ @ T.T, np.eye(D), atol=1e-9)
    np.testing.assert_allclose(found, psi, atol=1e-9)


@pytest.mark.parametrize(
    ("mean", "transform", "psi", "error"),
    [
        (np.ones(3), np.eye(4), np.ones(3), "have the shapes .* expected"),
        (np.ones(3), np.eye(3), np.ones(2), "have the shapes .* expected"),
        (np.ones(3), np.ones((3, 3)), np.ones(3), "not a PLDA model of Kaldi"),
        (np.ones(3), np.eye(3), -np.ones(3), "psi must contain variances"),
        (np.ones(3), np.eye(3), np.zeros(3), "variances between classes, at least one above 0"),
        (np.full(3, np.nan), np.eye(3), np.ones(3), "contain NaN or infinity"),
    ],
)
def test_parts_that_do_not_fit(
    tmp_path: Path, mean: Any, transform: Any, psi: Any, error: str
) -> None:
    (tmp_path / "plda").write_bytes(kaldi_bytes(mean, transform, psi))
    with pytest.raises(FileFormatError, match=error) as caught:
        read_kaldi_plda(tmp_path / "plda")
    assert str(tmp_path / "plda") in str(caught.value)


@pytest.mark.parametrize("layout", ["binary", "text"])
def test_kaldi_model_truncated_at_every_byte(tmp_path: Path, layout: str) -> None:
    model = diagonalised()
    data = kaldi_bytes(*model) if layout == "binary" else kaldi_text(*model).encode()
    path = tmp_path / "plda"
    for kept in range(len(data) - 1):  # the last byte is a blank
        path.write_bytes(data[:kept])
        with pytest.raises(FileFormatError, match="plda"):
            read_kaldi_plda(path)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    noise=st.binary(min_size=1, max_size=12),
    at=st.floats(0, 1),
    cut=st.integers(0, 12),
    text=st.booleans(),
)
def test_noise_ends_in_our_errors(
    tmp_path: Path, noise: bytes, at: float, cut: int, text: bool
) -> None:
    data = kaldi_text(*diagonalised()).encode() if text else kaldi_bytes(*diagonalised())
    place = int(at * len(data))
    (tmp_path / "plda").write_bytes(data[:place] + noise + data[place + cut :])
    try:
        read_kaldi_plda(tmp_path / "plda")
    except MvpldaError as error:
        assert str(tmp_path / "plda") in str(error)  # noqa: PT017


def test_what_cannot_be_exchanged(tmp_path: Path) -> None:
    two = MultiviewPLDA.from_parameters(
        np.zeros(3), {"a": np.eye(3)[:, :1], "b": np.eye(3)[:, 1:]}, np.ones(3)
    )
    with pytest.raises(ParameterError, match="stores a model with one view; this model has 2"):
        write_kaldi_plda(tmp_path / "x", two)
    with pytest.raises(ParameterError, match="not fitted"):
        write_kaldi_plda(tmp_path / "x", PLDA())
    with pytest.raises(FileNotFoundError, match="x"):
        read_kaldi_plda(tmp_path / "x")
    assert not list(tmp_path.iterdir())


# -- from_parameters -------------------------------------------------------


def test_a_model_of_given_parameters_is_saved_and_scores(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    loadings = {"speaker": rng.normal(size=(4, 2)), "phrase": rng.normal(size=(4, 1))}
    model = MultiviewPLDA.from_parameters(rng.normal(size=4), loadings, rng.gamma(2.0, size=4))
    assert (model.views, model.noise, model.n_features_in_) == (
        {"speaker": 2, "phrase": 1},
        "diagonal",
        4,
    )
    X = rng.normal(size=(5, 4))
    model.save(tmp_path / "m.safetensors")
    again = MultiviewPLDA.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.llr(X, X), model.llr(X, X))
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    loadings["speaker"][:] = 0
    assert model.loadings_["speaker"].any()  # a copy


@pytest.mark.parametrize(
    ("mean", "loadings", "noise", "error"),
    [
        (np.zeros((3, 1)), {"a": np.ones((3, 1))}, np.ones(3), "the mean must have shape"),
        (np.zeros(3), {}, np.ones(3), "loadings is empty"),
        (np.zeros(3), {"a": np.ones((2, 1))}, np.ones(3), "the loading of 'a' must have shape"),
        (np.zeros(3), {"a": np.ones((3, 4))}, np.ones(3), "the loading of 'a' must have shape"),
        (np.zeros(3), {"a": np.ones((3, 1))}, np.ones(2), "the noise must have shape"),
        (np.zeros(3), {"a": np.ones((3, 1))}, np.zeros(3), "variances must be positive"),
        (np.zeros(3), {"a": np.ones((3, 1))}, np.triu(np.ones((3, 3))), "not symmetric"),
        (np.zeros(3), {"a": np.ones((3, 1))}, np.ones((3, 3)), "positive definite"),
        (np.full(3, np.inf), {"a": np.ones((3, 1))}, np.ones(3), "finite"),
    ],
)
def test_parameters_are_checked(mean: Any, loadings: Any, noise: Any, error: str) -> None:
    with pytest.raises(DataError, match=error):
        MultiviewPLDA.from_parameters(mean, loadings, noise)


def test_views_of_given_parameters() -> None:
    with pytest.raises(LabelError, match="PLDA has one view"):
        PLDA.from_parameters(np.zeros(3), {"a": np.ones((3, 1)), "b": np.ones((3, 1))}, np.ones(3))
    with pytest.raises(LabelError, match="must be text that is not empty"):
        MultiviewPLDA.from_parameters(np.zeros(3), {"": np.ones((3, 1))}, np.ones(3))
    assert PLDA.from_parameters(np.zeros(3), {"a": np.ones((3, 1))}, np.eye(3)).n_components == 1
