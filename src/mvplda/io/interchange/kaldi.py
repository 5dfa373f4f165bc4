"""Kaldi's ``<Plda>``, binary and text.

Only the model is exchanged. Kaldi's scoring also scales every vector to a length that
fits the model (``--normalize-length``, on by default) before it computes the ratio, so
its scores equal ours with ``--normalize-length=false``. It also scores several
enrolment utterances by their mean and ``num_utts``, which is our ``method="book"``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...estimators.multiview import MultiviewPLDA
from ...estimators.plda import PLDA
from ...files import write_atomically
from ..ark import BINARY, binary_array, read_binary, read_text, text_vector
from ..sources import PathLike, fail, read_bytes
from .transform import model_of, transform_of

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
    parts = [OPEN + b" " + text_vector(mean), b" [\n" + rows + b" ]", text_vector(psi), CLOSE + b" "]
    write_atomically(path, b"\n".join(parts))


def _token(path: PathLike, data: bytes, place: int, token: bytes) -> int:
    while place < len(data) and data[place] in b" \t\r\n":
        place += 1
    if data[place : place + len(token)] != token:
        found = data[place : place + 12]
        fail(path, f"expected {token.decode()} at byte {place} of a Kaldi PLDA; got {found!r}, or the file ends there")
    return place + len(token) + (data[place + len(token) : place + len(token) + 1] == b" ")
