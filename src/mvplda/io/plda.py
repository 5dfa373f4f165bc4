"""PLDA models of other toolkits, read into `PLDA` and written from it. No pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular

from .._optional import need
from .._typing import Array, PathLike
from ..exceptions import FileFormatError, ParameterError
from ..models.multiview import PLDA, MultiviewPLDA
from ..persistence import atomic_write, write_atomically
from .arrow import read_hdf5_arrays
from .files import fail, must_exist, problem, read_bytes, wrap_reader_errors
from .kaldi import BINARY, binary_array, read_binary, read_text, text_vector
from .numpy_files import read_npz_arrays, write_npz_arrays

__all__ = ["read_kaldi_plda", "read_numpy_plda", "write_kaldi_plda", "write_numpy_plda"]


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


def write_kaldi_plda(path: PathLike, model: MultiviewPLDA, *, binary: bool = True) -> None:
    """Write a model with one view as a ``<Plda>`` file, all or nothing."""
    mean, matrix, psi = transform_of(model)
    if binary:
        body = b"".join(binary_array(array) for array in (mean, matrix, psi))
        write_atomically(path, BINARY + OPEN + b" " + body + CLOSE + b" ")
        return
    rows = b"\n".join(b"  " + text_vector(row)[3:-2] for row in matrix)
    parts = [
        OPEN + b" " + text_vector(mean),
        b" [\n" + rows + b" ]",
        text_vector(psi),
        CLOSE + b" ",
    ]
    write_atomically(path, b"\n".join(parts))


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


# PLDA models kept as named arrays in ``.npz`` or ``.h5`` files.
#
# Which arrays there are says how the model is kept:
#
# ``mu`` (or ``mean``), ``transform`` (or ``tr``), ``psi``
#     As Kaldi does: VBx, and wespeaker's two-covariance model, whose ``offset`` is
#     checked to be -transform @ mu.
# ``mean`` (or ``mu``), ``F``, ``Sigma``
#     Loading and noise, as SpeechBrain's and sidekit's PLDA have them. SpeechBrain
#     itself pickles its objects, which is not read: save the three arrays with `numpy.savez`.
# ``mean`` (or ``mu``), ``B``, ``W``
#     Covariances between and within classes.


SUFFIXES = (".npz", ".h5", ".hdf5")


def read_numpy_plda(path: PathLike, *, view: str = "class") -> PLDA:
    """Read a model of named arrays into a `PLDA`.

    Parameters
    ----------
    view : name of the model's view
    """
    arrays = _read(path)
    mean = arrays.get("mean", arrays.get("mu"))
    matrix = arrays.get("transform", arrays.get("tr"))
    found = f"the file has {', '.join(sorted(arrays)) or 'nothing'}"
    if mean is None:
        fail(path, f"expected an array mean or mu; {found}")
    if matrix is not None and "psi" in arrays:
        model = model_of(path, mean, matrix, arrays["psi"], view)
        offset = arrays.get("offset")
        if offset is not None:
            expected = -np.asarray(matrix, dtype=np.float64) @ mean.reshape(-1).astype(np.float64)
            if offset.size != len(expected) or not np.allclose(
                offset.reshape(-1), expected, rtol=1e-4, atol=1e-4 * (1 + np.abs(expected).max())
            ):
                fail(path, "the offset is not -transform @ mu: the parts are of different models")
        return model
    if "F" in arrays and "Sigma" in arrays:
        return build(path, mean.reshape(-1), arrays["F"], arrays["Sigma"], view)
    if "B" in arrays and "W" in arrays:
        return build(path, mean.reshape(-1), _factor(path, arrays["B"]), arrays["W"], view)
    raise problem(
        path,
        f"expected the arrays transform and psi, F and Sigma, or B and W besides the mean; {found}",
    )


def _read(path: PathLike) -> dict[str, NDArray[Any]]:
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        fail(
            path,
            f"models of named arrays are read from {', '.join(SUFFIXES)}; pickles and others are not",
        )
    must_exist(path)
    with wrap_reader_errors(path, "a NumPy archive" if suffix == ".npz" else "an HDF5 file"):
        arrays = read_npz_arrays(path) if suffix == ".npz" else read_hdf5_arrays(path)
    used = ("mean", "mu", "transform", "tr", "psi", "offset", "F", "Sigma", "B", "W")
    for name in used:
        if name in arrays and arrays[name].dtype.kind not in "fiu":
            fail(path, f"the array {name} holds {arrays[name].dtype}; expected floats")
    return arrays


def _factor(path: PathLike, between: NDArray[Any]) -> NDArray[np.float64]:
    """A loading whose product with itself is the covariance between classes."""
    B = np.asarray(between, dtype=np.float64)
    if B.ndim != 2 or B.shape[0] != B.shape[1] or not np.isfinite(B).all():
        fail(path, f"the covariance B between classes is square and finite; got shape {B.shape}")
    values, vectors = np.linalg.eigh((B + B.T) / 2)
    if values.size == 0 or values.max() <= 0 or values.min() < -1e-6 * values.max():
        fail(path, "the covariance B between classes is not positive semidefinite")
    kept = values > 1e-12 * values.max()
    factor: NDArray[np.float64] = vectors[:, kept] * np.sqrt(values[kept])
    return factor


def write_numpy_plda(path: PathLike, model: MultiviewPLDA) -> None:
    """Write a model with one view as mu, transform, psi and offset, all or nothing."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise ParameterError(
            f"models of named arrays are written to {', '.join(SUFFIXES)}; got {path}"
        )
    mean, matrix, psi = transform_of(model)
    arrays: dict[str, Any] = {"mu": mean, "transform": matrix, "psi": psi, "offset": -matrix @ mean}
    if suffix == ".npz":
        with atomic_write(path) as (part,):
            write_npz_arrays(part, arrays)
        return
    h5py = need("h5py")
    with atomic_write(path) as (part,), h5py.File(part, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array)


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


def model_of(path: PathLike, mean: ArrayLike, matrix: ArrayLike, psi: ArrayLike, view: str) -> PLDA:
    """The model with this transform; what does not fit together is an error that names the file."""
    m, A, p = (np.asarray(array, dtype=np.float64) for array in (mean, matrix, psi))
    D = m.size
    m, p = m.reshape(-1), p.reshape(-1)
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
    except np.linalg.LinAlgError:
        fail(path, "the transform is singular: it is not that of a PLDA model")
    return build(path, m, back[:, between] * np.sqrt(p[between]), back @ back.T, view)


def build(path: PathLike, mean: ArrayLike, loading: ArrayLike, noise: ArrayLike, view: str) -> PLDA:
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
    L = model.parameters_.sigma.lower
    white = solve_triangular(L, B, lower=True)
    U, S, _ = np.linalg.svd(white, full_matrices=True)
    psi = np.zeros(D)
    psi[: len(S)] = S**2
    return Transform(model.mean_, solve_triangular(L, U, lower=True, trans="T").T, psi)
