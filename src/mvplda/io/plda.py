"""PLDA models of Kaldi, read into `PLDA` and written from it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from .._typing import Array, PathLike
from ..exceptions import FileFormatError, ParameterError
from ..models.multiview import PLDA, MultiviewPLDA
from ..persistence import write_atomically
from .files import fail, read_bytes
from .kaldi import BINARY, binary_array, read_binary, read_text

__all__ = ["read_kaldi_plda", "write_kaldi_plda"]


# Kaldi's ``<Plda>``, binary and text.
#
# Only the model is exchanged. Kaldi's scoring also scales every vector to a length that
# fits the model (``--normalize-length``, on by default) before it computes the ratio, so
# its scores equal ours with ``--normalize-length=false``. It also scores several
# enrolment utterances by their mean and ``num_utts``, which is our ``method="exact"``.


OPEN, CLOSE = b"<Plda>", b"</Plda>"


def read_kaldi_plda(path: PathLike, *, view: str = "class") -> PLDA:
    """Read a ``<Plda>`` file, binary or text, into a `PLDA`.

    Parameters
    ----------
    view : name of the model's view
    """
    data = read_bytes(path)
    binary = data[:2] == BINARY
    place = _token(path, data, 2 if binary else 0, OPEN)
    arrays: list[NDArray[np.float64]] = []
    for name in ("mean", "transform", "psi"):
        read = read_binary if binary else read_text
        array, place = read(data, place, f"{path}, the {name}")
        arrays.append(array)
    _token(path, data, place, CLOSE)
    mean, matrix, psi = arrays
    if mean.ndim != 1 or psi.ndim != 1:
        fail(path, f"expected vectors for mean and psi; got shapes {mean.shape} and {psi.shape}")
    return model_of(path, mean, np.atleast_2d(matrix), psi, view)


def write_kaldi_plda(path: PathLike, model: MultiviewPLDA) -> None:
    """Write a model with one view as a binary ``<Plda>`` file, all or nothing."""
    body = b"".join(binary_array(array) for array in transform_of(model))
    write_atomically(path, BINARY + OPEN + b" " + body + CLOSE + b" ")


def _token(path: PathLike, data: bytes, place: int, token: bytes) -> int:
    while place < len(data) and data[place] in b" \t\r\n":
        place += 1
    if data[place : place + len(token)] != token:
        found = data[place : place + 12]
        fail(
            path,
            f"expected {token.decode()} at byte {place} of a Kaldi PLDA; got {found!r}, or the file ends there",
        )
    return place + len(token) + (data[place + len(token) : place + len(token) + 1] == b" ")


# The diagonalised form of a PLDA model, as Kaldi and its relatives keep it.
#
# They keep a mean m, a square transform A and variances psi: of u = A (x - m) the
# covariance within a class is I, and between classes diag(psi). Hence
#
#     x = m + A^-1 diag(psi)^(1/2) z + e,   e ~ N(0, A^-1 A^-T),
#
# which is our model with the loading B = A^-1 diag(psi)^(1/2) (columns of psi = 0 left
# out) and a full noise. The other way, with noise = L L' and the singular values
# L^-1 B = U S V', the transform is A = U' L^-1 and psi = S^2, padded with zeros:
# A noise A' = I and A B B' A' = diag(psi).


class Transform(NamedTuple):
    """u = matrix (x - mean) has covariance I within classes and diag(psi) between."""

    mean: Array
    matrix: Array
    psi: Array


def model_of(path: PathLike, mean: Array, matrix: Array, psi: Array, view: str) -> PLDA:
    """The model with this transform; what does not fit together is an error that names the file."""
    m, A, p = (np.asarray(array, dtype=np.float64) for array in (mean, matrix, psi))
    D = m.size
    if D == 0 or A.shape != (D, D) or p.shape != (D,):
        fail(
            path,
            f"dimensions differ: mean ({D},), transform {A.shape}, psi {p.shape}; expected D, (D, D), D",
        )
    if not all(np.isfinite(array).all() for array in (m, A, p)):
        fail(path, "the parameters are not all finite")
    if p.min() < -1e-9 * max(p.max(), 1.0):
        fail(path, f"psi holds variances between classes; the least is {p.min()}")
    between = p > 0
    if not between.any():
        fail(path, "psi is zero throughout: the model tells no classes apart")
    try:
        back = np.linalg.solve(A, np.eye(D))
        loading = back[:, between] * np.sqrt(p[between])
        return PLDA.from_parameters(m, {view: loading}, back @ back.T)
    except (np.linalg.LinAlgError, ValueError) as error:
        raise FileFormatError(
            f"{path}: these are not parameters of a PLDA model: {error}"
        ) from error


def transform_of(model: MultiviewPLDA) -> Transform:
    """The transform of a fitted model with one view."""
    if not hasattr(model, "loadings_"):
        raise ParameterError("the model is not fitted: fit it before it is written")
    if len(model.loadings_) != 1:
        raise ParameterError(
            f"this format holds one view, the model has {len(model.loadings_)}: {list(model.loadings_)}. "
            "Save it with model.save"
        )
    (B,) = model.loadings_.values()
    D = len(B)
    L = model.parameters_.sigma.lower
    white = solve_triangular(L, B, lower=True)
    U, S, _ = np.linalg.svd(white, full_matrices=True)
    psi = np.zeros(D)
    psi[: len(S)] = S**2
    return Transform(model.mean_, solve_triangular(L, U, lower=True, trans="T").T, psi)
