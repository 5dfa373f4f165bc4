"""Transformers and calibrators as plain arrays and JSON, and back: no pickle.

A class that can be kept in a file says in ``FITTED`` which attributes a fit leaves.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._files import plain_settings, seal, unseal, write_atomically
from .adaptation import CORAL
from .calibration import KindCalibrator, LinearCalibrator, PAVCalibrator, QualityCalibrator
from .exceptions import FileFormatError, ParameterError
from .preprocessing import LDA, Centring, LengthNormalisation, Reduction, Whitening

Tensors = dict[str, NDArray[Any]]
CALIBRATOR_FORMAT = "mvplda-calibrator"

TRANSFORMERS: dict[str, type[Any]] = {
    c.__name__: c for c in (Centring, Reduction, Whitening, LengthNormalisation, LDA, CORAL)
}
CALIBRATORS: dict[str, type[Any]] = {
    c.__name__: c for c in (LinearCalibrator, PAVCalibrator, KindCalibrator, QualityCalibrator)
}


def take_apart(part: Any, registry: dict[str, type[Any]]) -> tuple[Tensors, dict[str, Any]]:
    """Arrays and plain values of a fitted part."""
    name = type(part).__name__
    if registry.get(name) is not type(part):
        raise ParameterError(f"a {name} cannot be kept in a bundle; these can: {sorted(registry)}")
    settings = plain_settings(part.get_params(deep=False))
    lost = sorted(set(part.get_params(deep=False)) - set(settings))
    if lost:
        raise ParameterError(
            f"the setting {lost[0]!r} of {name} cannot be written as text: use plain numbers and names"
        )
    tensors: Tensors = {}
    values: dict[str, Any] = {}
    for attribute in part.FITTED:
        if not hasattr(part, attribute):
            raise ParameterError(f"the {name} is not fitted: it has no {attribute}")
        value = getattr(part, attribute)
        if isinstance(value, np.ndarray):
            tensors[attribute] = np.ascontiguousarray(value, dtype=np.float64)
        else:
            values[attribute] = value.item() if isinstance(value, np.generic) else value
    return tensors, {"class": name, "settings": settings, "values": values}


def put_together(tensors: Tensors, about: dict[str, Any], registry: dict[str, type[Any]]) -> Any:
    """The part that `take_apart` took apart."""
    if about["class"] not in registry:
        raise FileFormatError(f"it names a part {about['class']!r}; known are {sorted(registry)}")
    kind = registry[about["class"]]
    part = kind(**about["settings"])
    for attribute in kind.FITTED:
        if attribute not in tensors and attribute not in about["values"]:
            if hasattr(kind, attribute):  # a file of before it was kept: the class says what that means
                continue
            raise FileFormatError(f"the {kind.__name__} has no {attribute}")
        setattr(part, attribute, tensors[attribute] if attribute in tensors else about["values"][attribute])
    return part


def save_calibrator(calibrator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted calibrator to a file of its own, all or nothing."""
    tensors, about = take_apart(calibrator, CALIBRATORS)
    write_atomically(path, seal(CALIBRATOR_FORMAT, "calibrator", tensors, about))


def load_calibrator(path: str | os.PathLike[str]) -> Any:
    """Read a calibrator that `save_calibrator` wrote."""
    tensors, about = unseal(path, CALIBRATOR_FORMAT, "calibrator")
    try:
        return put_together(tensors, about, CALIBRATORS)
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"{path} lacks parts of a calibrator: {error}") from error
