"""Names of classes on the two sides of a trial, and those seen in training, as one numbering."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exceptions import LabelError, ParameterError, UnknownClassWarning
from ..labels import IntArray, as_array
from .profiles import CellLabels, Profiles


def enrolled_names(profiles: Profiles, view: str, claims: Any) -> CellLabels:
    """The classes of enrolled cells: those that are claimed, one a profile, or the labels that they carry."""
    if claims is None:
        if view not in profiles.labels:
            raise ParameterError(
                f"known names view {view!r}, in which the profiles have no labels: give labels={{{view!r}: ...}} when "
                f"they are enrolled, or known={{{view!r}: the class of every profile}}"
            )
        return profiles.labels[view]
    if view in profiles.labels:
        raise ParameterError(f"the profiles have labels of view {view!r} already: say known=[{view!r}]")
    array = as_array(claims)
    if array.shape != (len(profiles),):
        raise LabelError(f"known[{view!r}] names one class a profile: {len(profiles)}; got shape {array.shape}")
    absent = np.asarray([value is None for value in array]) if array.dtype == object else np.zeros(len(array), bool)
    names, codes = np.unique(np.asarray(array[~absent].tolist()), return_inverse=True)
    numbers = np.full(len(array), -1)
    numbers[~absent] = codes.reshape(-1)
    return CellLabels(names, numbers[profiles.owner])


def match_names(
    view: str, enrol: CellLabels, test: CellLabels | None, training: NDArray[Any] | None
) -> tuple[tuple[IntArray, IntArray | None], IntArray | None]:
    """Numbers of the cells' names on both sides, and the training class of every number.

    -1 is a missing label among the numbers, and a class that was not seen among the training classes.
    """
    sides = [enrol] if test is None else [enrol, test]
    sources = [cells.names for cells in sides] + ([] if training is None else [training])
    _check_types(view, [names for names in sources if len(names)])
    dtype = np.result_type(*(names.dtype for names in sources if len(names)))
    every = np.unique(np.concatenate([names.astype(dtype) for names in sources]))
    carried = np.unique(np.concatenate([c.names[np.unique(c.codes[c.codes >= 0])].astype(dtype) for c in sides]))
    found = None
    if training is not None:
        found = _places(training, every)
        seen = np.isin(carried, training)
        if not seen.any():
            raise LabelError(
                f"none of the classes named in view {view!r} was seen in training: they are called like "
                f"{_some(carried)}, the training classes like {_some(training)}"
            )
        if not seen.all():
            names = carried[~seen]
            warnings.warn(
                f"{len(names)} of {len(carried)} classes named in view {view!r} were not seen in training, "
                f"such as {_some(names)}: they are taken as new classes",
                UnknownClassWarning,
                stacklevel=5,
            )
    numbers = _numbers(enrol, every), None if test is None else _numbers(test, every)
    return numbers, found


def _numbers(cells: CellLabels, every: NDArray[Any]) -> IntArray:
    place = np.append(np.searchsorted(every, cells.names), -1)  # a missing label has the code -1
    return np.asarray(place[cells.codes], dtype=np.int64)


def _places(names: NDArray[Any], wanted: NDArray[Any]) -> IntArray:
    """Place of every wanted name among sorted names; -1: it is not there."""
    place = np.minimum(np.searchsorted(names, wanted), len(names) - 1)
    return np.where(names[place] == wanted, place, -1)


def _check_types(view: str, sources: list[NDArray[Any]]) -> None:
    kinds: dict[str, NDArray[Any]] = {}
    for names in sources:
        kind = names.dtype.kind
        kinds["text" if kind == "U" else "numbers" if kind in "biuf" else names.dtype.name] = names
    if len(kinds) > 1:
        some = " and ".join(f"{what}, like {_some(names)}" for what, names in kinds.items())
        raise LabelError(f"classes of view {view!r} are named by {some}: give all names as one type")


def _some(names: NDArray[Any]) -> str:
    return ", ".join(repr(name) for name in names[:3].tolist())
