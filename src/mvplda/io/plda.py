"""PLDA models kept as named arrays in ``.npz`` or ``.h5`` files.

Which arrays there are says how the model is kept:

``mu`` (or ``mean``), ``transform`` (or ``tr``), ``psi``
    As Kaldi does: VBx, and wespeaker's two-covariance model, whose ``offset`` is
    checked to be -transform @ mu.
``mean`` (or ``mu``), ``F``, ``Sigma``
    Loading and noise, as SpeechBrain's and sidekit's PLDA have them. SpeechBrain
    itself pickles its objects, which is not read: save the three arrays with `numpy.savez`.
``mean`` (or ``mu``), ``B``, ``W``
    Covariances between and within classes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...estimators.multiview import MultiviewPLDA
from ...estimators.plda import PLDA
from ...exceptions import ParameterError
from ...extras import need
from ...files import whole_files
from ..columnar import read_hdf5_arrays
from ..numpy_files import read_npz_arrays, write_npz_arrays
from ..sources import PathLike, fail, foreign, must_exist, problem
from .transform import build, model_of, transform_of

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
    raise problem(path, f"expected the arrays transform and psi, F and Sigma, or B and W besides the mean; {found}")


def _read(path: PathLike) -> dict[str, NDArray[Any]]:
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        fail(path, f"models of named arrays are read from {', '.join(SUFFIXES)}; pickles and others are not")
    must_exist(path)
    with foreign(path, "a NumPy archive" if suffix == ".npz" else "an HDF5 file"):
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
        raise ParameterError(f"models of named arrays are written to {', '.join(SUFFIXES)}; got {path}")
    mean, matrix, psi = transform_of(model)
    arrays: dict[str, Any] = {"mu": mean, "transform": matrix, "psi": psi, "offset": -matrix @ mean}
    if suffix == ".npz":
        with whole_files(path) as (part,):
            write_npz_arrays(part, arrays)
        return
    h5py = need("h5py")
    with whole_files(path) as (part,), h5py.File(part, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array)
