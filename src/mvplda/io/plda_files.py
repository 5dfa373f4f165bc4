"""PLDA models of Kaldi, read into `PLDA` and written from it.

Kaldi's ``<Plda>`` keeps a mean m, a square transform A and variances psi: of u = A (x - m) the
covariance within a class is I, and between classes diag(psi). Hence

    x = m + A^-1 diag(psi)^(1/2) z + e,   e ~ N(0, A^-1 A^-T),

which is our model with the loading B = A^-1 diag(psi)^(1/2) (columns of psi = 0 left
out) and a full noise. The other way, with noise = L L' and the singular values
L^-1 B = U S V', the transform is A = U' L^-1 and psi = S^2, padded with zeros:
A noise A' = I and A B B' A' = diag(psi).

Only the model is exchanged. Kaldi's scoring also scales every vector to a length that
fits the model (``--normalize-length``, on by default) before it computes the ratio, so
its scores equal ours with ``--normalize-length=false``. It also scores several
enrolment utterances by their mean and ``num_utts``, which is our ``method="exact"``.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.pipeline import Pipeline

from .._typing import Array, PathLike
from ..bundle import Bundle
from ..exceptions import ParameterError
from ..models.multiview import PLDA, MultiviewPLDA
from ..persistence import atomic_write, write_atomically
from ..preprocessing import Centring, LengthNormalisation, Whitening
from .kaldi import behind_blanks, binary_array, read_binary, read_text
from .kaldi_names import BINARY
from .streams import fail, read_bytes, wrap_reader_errors

__all__ = ["read_kaldi_plda", "read_pyannote", "write_kaldi_plda", "write_pyannote"]

OPEN = b"<Plda>"
CLOSE = b"</Plda>"


class Transform(NamedTuple):
    """u = matrix (x - mean) has covariance I within classes and diag(psi) between."""

    mean: Array
    matrix: Array
    psi: Array


def read_kaldi_plda(path: PathLike, *, view: str = "class") -> PLDA:
    """Read a ``<Plda>`` file, binary or text, into a `PLDA`.

    Parameters
    ----------
    view : name of the model's view
    """
    data = read_bytes(path)
    binary = data[:2] == BINARY
    read = read_binary if binary else read_text
    place = _behind(path, data, 2 * binary, OPEN)
    arrays: list[Array] = []
    for name in Transform._fields:
        array, place = read(data, place, f"{path}, the {name}")
        arrays.append(array.astype(np.float64))
    _behind(path, data, place, CLOSE)
    mean, matrix, psi = arrays
    D = mean.size
    matrix = np.atleast_2d(matrix)
    shapes = (mean.shape, matrix.shape, psi.shape)
    finite = all(np.isfinite(array).all() for array in arrays)
    if D == 0 or shapes != ((D,), (D, D), (D,)) or not finite:
        fail(
            path,
            f"dimensions differ, or numbers are not finite: mean, transform and psi have shapes {shapes}; "
            "expected (D,), (D, D), (D,)",
        )
    with wrap_reader_errors(path, "a PLDA model of Kaldi"):
        return _model_of(path, Transform(mean, matrix, psi), view)


def _model_of(path: PathLike, transform: Transform, view: str) -> PLDA:
    mean, matrix, psi = transform
    between = psi > 0
    if not between.any() or psi.min() < -1e-9 * max(psi.max(), 1.0):
        fail(
            path,
            f"psi holds variances between classes, some above 0; got {psi.min()} to {psi.max()}",
        )
    back = np.linalg.solve(matrix, np.eye(len(mean)))
    loading = back[:, between] * np.sqrt(psi[between])
    return PLDA.from_parameters(mean, {view: loading}, back @ back.T)


def write_kaldi_plda(path: PathLike, model: object) -> None:
    """Write a model with one view as a binary ``<Plda>`` file, all or nothing."""
    body = b"".join(binary_array(array) for array in transform_of(model))
    write_atomically(path, BINARY + OPEN + b" " + body + CLOSE + b" ")


PYANNOTE = ("xvec_transform.npz", "plda.npz")
"""Files of pyannote.audio's VBx: mean1, mean2 and lda of the vectors, and mu, tr and psi of the model."""


def pyannote_chain(dim: int | None = None) -> Pipeline:
    """What pyannote.audio's VBx makes of vectors: centred, of length sqrt(D), reduced, of length sqrt(dim)."""
    steps = (Centring(), LengthNormalisation(), Whitening(dim), LengthNormalisation())
    return Pipeline([(f"step{number}", step) for number, step in enumerate(steps)])


def read_pyannote(folder: PathLike, *, view: str = "speaker") -> Bundle:
    """Read xvec_transform.npz and plda.npz of pyannote.audio's VBx from a folder."""
    with wrap_reader_errors(folder, "files of pyannote.audio's VBx"):
        mean1, mean2, lda, mu, tr, psi = (
            np.load(Path(folder) / name)[key].astype(np.float64)
            for name, keys in zip(
                PYANNOTE, (("mean1", "mean2", "lda"), ("mu", "tr", "psi")), strict=True
            )
            for key in keys
        )
        chain = pyannote_chain(lda.shape[1])
        centring, first, reduction, second = (step for _, step in chain.steps)
        centring.mean_ = mean1
        reduction.matrix_ = lda
        # the mean is taken off before the reduction here, and behind it there
        reduction.mean_ = np.linalg.lstsq(lda.T, mean2, rcond=None)[0]
        reduction.variances_ = np.ones(lda.shape[1])
        for step in (centring, first, reduction):
            step.n_features_in_ = len(lda)
        second.n_features_in_ = lda.shape[1]
        return Bundle(chain, _model_of(folder, Transform(mu, tr, psi), view))


def write_pyannote(folder: PathLike, bundle: Bundle) -> None:
    """Write a PLDA with `pyannote_chain` before it as pyannote.audio's VBx reads it, into a folder.

    Both files are written, or none.
    """
    steps = [step for _, step in (bundle.preprocessing or pyannote_chain()).steps]
    kinds = [type(step) for step in steps]
    wanted = [type(step) for _, step in pyannote_chain().steps]
    if bundle.preprocessing is None or kinds != wanted:
        raise ParameterError(
            "pyannote.audio centres vectors, scales them to length sqrt(D), reduces them and scales them again: train "
            "the PLDA in a Bundle with mvplda.io.plda_files.pyannote_chain() before it"
        )
    mu, tr, psi = transform_of(bundle.fitted_scorer)
    lda = steps[2].matrix_
    arrays = (
        {"mean1": steps[0].mean_, "mean2": steps[2].mean_ @ lda, "lda": lda},
        # it divides by psi
        {"mu": mu, "tr": tr, "psi": np.maximum(psi, 1e-6)},
    )
    Path(folder).mkdir(parents=True, exist_ok=True)
    # both files or none: one of an earlier model beside one of this would be read as a model
    with atomic_write(*(Path(folder) / name for name in PYANNOTE)) as parts:
        for part, some in zip(parts, arrays, strict=True):
            with part.open("wb") as file:
                np.savez(file, **some)


def _behind(path: PathLike, data: bytes, place: int, token: bytes) -> int:
    """The place behind a token, and the blank that follows it."""
    start = behind_blanks(data, place)
    end = start + len(token)
    if data[start:end] != token:
        came = f"{data[start : start + 12]!r}, or the file ends there"
        fail(path, f"expected {token.decode()} at byte {start} of a Kaldi PLDA; got {came}")
    return end + data.startswith(b" ", end)


def transform_of(model: object) -> Transform:
    """The transform of a fitted model with one view."""
    if not isinstance(model, MultiviewPLDA):
        raise ParameterError(f"a {type(model).__name__} is no PLDA model")
    if not hasattr(model, "loadings_"):
        raise ParameterError("the model is not fitted: fit it before it is written")
    if len(model.loadings_) != 1:
        raise ParameterError(
            f"this format holds one view, the model has {len(model.loadings_)}: {list(model.loadings_)}. "
            "Save it with model.save"
        )
    (B,) = model.loadings_.values()
    L = model.parameters_.sigma.lower
    U, S, _ = np.linalg.svd(solve_triangular(L, B, lower=True), full_matrices=True)
    psi = np.append(S**2, np.zeros(len(B) - len(S)))
    return Transform(model.mean_, solve_triangular(L, U, lower=True, trans="T").T, psi)
