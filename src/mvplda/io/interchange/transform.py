"""The diagonalised form of a PLDA model, as Kaldi and its relatives keep it.

They keep a mean m, a square transform A and variances psi: of u = A (x - m) the
covariance within a class is I, and between classes diag(psi). Hence

    x = m + A^-1 diag(psi)^(1/2) z + e,   e ~ N(0, A^-1 A^-T),

which is our model with the loading B = A^-1 diag(psi)^(1/2) (columns of psi = 0 left
out) and a full noise. The other way, with noise = L L' and the singular values
L^-1 B = U S V', the transform is A = U' L^-1 and psi = S^2, padded with zeros:
A noise A' = I and A B B' A' = diag(psi).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from ...estimators.multiview import MultiviewPLDA
from ...estimators.plda import PLDA
from ...exceptions import FileFormatError, ParameterError
from ...kernel.records import Array
from ..sources import PathLike, fail


class Transform(NamedTuple):
    """u = matrix (x - mean) has covariance I within classes and diag(psi) between."""

    mean: Array
    matrix: Array
    psi: Array


def model_of(path: PathLike, mean: Any, matrix: Any, psi: Any, view: str) -> PLDA:
    """The model with this transform; what does not fit together is an error that names the file."""
    m, A, p = (np.asarray(array, dtype=np.float64) for array in (mean, matrix, psi))
    D = m.size
    m, p = m.reshape(-1), p.reshape(-1)
    if D == 0 or A.shape != (D, D) or p.shape != (D,):
        fail(path, f"dimensions differ: mean ({D},), transform {A.shape}, psi {p.shape}; expected D, (D, D), D")
    if not all(np.isfinite(array).all() for array in (m, A, p)):
        fail(path, "the parameters are not all finite")
    if p.min() < -1e-9 * max(p.max(), 1.0):
        fail(path, f"psi holds variances between classes; the least is {p.min()}")
    between = p > 0
    if not between.any():
        fail(path, "psi is zero throughout: the model tells no classes apart")
    try:
        back = np.linalg.solve(A, np.eye(D))
    except np.linalg.LinAlgError:
        fail(path, "the transform is singular: it is not that of a PLDA model")
    return build(path, m, back[:, between] * np.sqrt(p[between]), back @ back.T, view)


def build(path: PathLike, mean: Any, loading: Any, noise: Any, view: str) -> PLDA:
    """The model with these parameters; an error about them names the file."""
    try:
        return PLDA.from_parameters(mean, {view: loading}, noise)
    except ValueError as error:
        raise FileFormatError(f"{path}: {error}") from error


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
    L = np.diag(np.sqrt(model.noise_)) if model.noise_.ndim == 1 else np.linalg.cholesky(model.noise_)
    white = solve_triangular(L, B, lower=True)
    U, S, _ = np.linalg.svd(white, full_matrices=True)
    psi = np.zeros(D)
    psi[: len(S)] = S**2
    return Transform(model.mean_, solve_triangular(L, U, lower=True, trans="T").T, psi)
