"""Readers and writers of PLDA models of Kaldi and of pyannote.audio.

Kaldi's ``<Plda>`` stores a mean m, a square transform A and variances psi: u = A (x - m) has covariance I within
classes and diag(psi) between classes. Hence

    x = m + A^-1 diag(psi)^(1/2) z + e,   e ~ N(0, A^-1 A^-T),

which is the model of `PLDA` with the loading B = A^-1 diag(psi)^(1/2) (without the columns of psi = 0) and full noise.
Conversely, with noise = L L' and the singular value decomposition L^-1 B = U S V', the transform is A = U' L^-1 and
psi = S^2, padded with zeros: A noise A' = I and A B B' A' = diag(psi).

Only the model is exchanged. Kaldi's scoring by default also scales every vector to a length that fits the model
(``--normalize-length``); its scores equal those of `PLDA` with ``--normalize-length=false``. It scores several
enrolment utterances by their mean and ``num_utts``, which is ``method="exact"`` here.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from .._typing import Array, PathLike
from ..atomic_files import atomic_write, write_atomically
from ..bundle import Bundle
from ..exceptions import ParameterError
from ..models.multiview import MultiviewPLDA
from ..models.plda import PLDA
from ..preprocessing import pyannote_chain
from .kaldi import binary_array, read_binary, read_text, shown_bytes, skip_blanks
from .kaldi_names import BINARY
from .streams import OnDisk, fail, is_stream, read_bytes, wrap_reader_errors

__all__ = [
    "pyannote_chain",
    "read_kaldi_plda",
    "read_pyannote",
    "write_kaldi_plda",
    "write_pyannote",
]

OPEN = b"<Plda>"
CLOSE = b"</Plda>"


class Transform(NamedTuple):
    """Kaldi's form of a PLDA model: u = matrix (x - mean) has covariance I within classes, diag(psi) between classes.

    mean : (D,) mean of the vectors x
    matrix : (D, D)
    psi : (D,) variances between classes
    """

    mean: Array
    matrix: Array
    psi: Array


def is_kaldi_plda(path: PathLike) -> bool:
    """Return whether a file begins like Kaldi's ``<Plda>``, binary or text; False for a stream, which is not read."""
    if is_stream(path) or not Path(path).is_file():
        return False
    head = OnDisk(path).head(2 * len(OPEN))
    return head.removeprefix(BINARY).lstrip().startswith(OPEN)


def read_kaldi_plda(path: PathLike, *, view: str = "class") -> PLDA:
    """Read a PLDA model from Kaldi's ``<Plda>`` file, binary or text.

    Parameters
    ----------
    path : the file
    view : name of the view of the returned model
    """
    data = read_bytes(path)
    binary = data[:2] == BINARY
    read = read_binary if binary else read_text
    offset = _skip_token(path, data, 2 * binary, OPEN)
    arrays: list[Array] = []
    for name in Transform._fields:
        array, offset = read(data, offset, f"{path}, the {name}")
        arrays.append(array.astype(np.float64))
    _skip_token(path, data, offset, CLOSE)
    mean, matrix, psi = arrays
    D = mean.size
    matrix = np.atleast_2d(matrix)
    shapes = (mean.shape, matrix.shape, psi.shape)
    if D == 0 or shapes != ((D,), (D, D), (D,)):
        fail(
            path,
            f"mean, transform and psi have the shapes {shapes}; expected (D,), (D, D), (D,) for vectors of D "
            "dimensions",
        )
    if not all(np.isfinite(array).all() for array in arrays):
        fail(path, "mean, transform or psi contain NaN or infinity")
    with wrap_reader_errors(path, "a PLDA model of Kaldi"):
        return _model_of(path, Transform(mean, matrix, psi), view)


def _model_of(path: PathLike, transform: Transform, view: str) -> PLDA:
    """Return the PLDA model that Kaldi's transform stands for; the module's docstring has the formulas.

    Raises `FileFormatError` if no variance in psi is positive, or if one is negative by more than rounding.

    path : file of the transform, for errors
    view : name of the model's view
    """
    mean, matrix, psi = transform
    between = psi > 0
    if not between.any() or psi.min() < -1e-9 * max(psi.max(), 1.0):
        fail(
            path,
            f"psi must contain variances between classes, at least one above 0 and none below 0; got numbers from "
            f"{psi.min()} to {psi.max()}",
        )
    inverse = np.linalg.solve(matrix, np.eye(len(mean)))
    loading = inverse[:, between] * np.sqrt(psi[between])
    return PLDA.from_parameters(mean, {view: loading}, inverse @ inverse.T)


def write_kaldi_plda(path: PathLike, model: object) -> None:
    """Write a PLDA model with one view as a binary ``<Plda>`` file of Kaldi, atomically.

    Parameters
    ----------
    path : the file
    model : fitted `PLDA`, or `MultiviewPLDA` with one view
    """
    body = b"".join(binary_array(array) for array in transform_of(model))
    write_atomically(path, BINARY + OPEN + b" " + body + CLOSE + b" ")


PYANNOTE = ("xvec_transform.npz", "plda.npz")
"""Files of pyannote.audio's VBx: preprocessing (arrays mean1, mean2 and lda), and model (arrays mu, tr and psi)."""


def read_pyannote(folder: PathLike, *, view: str = "speaker") -> Bundle:
    """Read the preprocessing and the PLDA model of pyannote.audio's VBx.

    Parameters
    ----------
    folder : folder with the files xvec_transform.npz and plda.npz
    view : name of the view of the model

    Returns
    -------
    Bundle that scores raw vectors, without calibration
    """
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
        # `Whitening` subtracts its mean before the reduction, pyannote.audio after it
        reduction.mean_ = np.linalg.lstsq(lda.T, mean2, rcond=None)[0]
        reduction.variances_ = np.ones(lda.shape[1])
        for step in (centring, first, reduction):
            step.n_features_in_ = len(lda)
        second.n_features_in_ = lda.shape[1]
        return Bundle(chain, _model_of(folder, Transform(mu, tr, psi), view))


def write_pyannote(folder: PathLike, bundle: Bundle) -> None:
    """Write a model as the files xvec_transform.npz and plda.npz of pyannote.audio's VBx.

    If an error occurs, neither file is written or changed.

    Parameters
    ----------
    folder : folder for the files; it is created if it does not exist
    bundle : the preprocessing `pyannote_chain`, and a PLDA model with one view
    """
    steps = [step for _, step in (bundle.preprocessing or pyannote_chain()).steps]
    kinds = [type(step) for step in steps]
    required = [type(step) for _, step in pyannote_chain().steps]
    if bundle.preprocessing is None or kinds != required:
        raise ParameterError(
            "the model does not have the preprocessing of pyannote.audio (centring, length sqrt(D), whitening, length "
            "sqrt(dim)): train it with `mvplda train --chain pyannote`, or in a Bundle with "
            "mvplda.io.plda_files.pyannote_chain()"
        )
    mu, tr, psi = transform_of(bundle.fitted_scorer)
    lda = steps[2].matrix_
    arrays = (
        {"mean1": steps[0].mean_, "mean2": steps[2].mean_ @ lda, "lda": lda},
        # pyannote.audio divides by psi
        {"mu": mu, "tr": tr, "psi": np.maximum(psi, 1e-6)},
    )
    Path(folder).mkdir(parents=True, exist_ok=True)
    # a file of an earlier model beside one of this model would be read as one model
    with atomic_write(*(Path(folder) / name for name in PYANNOTE)) as scratch:
        for path, content in zip(scratch, arrays, strict=True):
            with path.open("wb") as file:
                np.savez(file, **content)


def _skip_token(path: PathLike, data: bytes, offset: int, token: bytes) -> int:
    """Return the byte offset after a token such as ``<Plda>`` and after one blank, if a blank follows it.

    Raises `FileFormatError` if the token is missing.

    path : file of `data`, for the error
    offset : position in `data`; blanks from here to the token are skipped
    """
    start = skip_blanks(data, offset)
    end = start + len(token)
    if data[start:end] != token:
        actual = shown_bytes(data, start, 12)
        fail(
            path,
            f"expected {token.decode()} at byte {start} of a <Plda> file of Kaldi; got {actual}",
        )
    return end + data.startswith(b" ", end)


def transform_of(model: object) -> Transform:
    """Return the mean, matrix and variances of Kaldi's ``<Plda>`` for a fitted model with one view."""
    if not isinstance(model, MultiviewPLDA):
        raise ParameterError(f"expected a PLDA model; got {type(model).__name__}")
    if not hasattr(model, "loadings_"):
        raise ParameterError("the model is not fitted: call fit before writing it")
    if len(model.loadings_) != 1:
        raise ParameterError(
            f"this format stores a model with one view; this model has {len(model.loadings_)}: "
            f"{list(model.loadings_)}. Save it with model.save instead"
        )
    (B,) = model.loadings_.values()
    L = model.parameters_.sigma.lower
    U, S, _ = np.linalg.svd(solve_triangular(L, B, lower=True), full_matrices=True)
    psi = np.append(S**2, np.zeros(len(B) - len(S)))
    return Transform(model.mean_, solve_triangular(L, U, lower=True, trans="T").T, psi)
