"""Checks of labels and settings that scorers share."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np

from .._typing import AnyArray, Json, Labels, Names
from ..backend import (
    namespace,
)
from ..exceptions import LabelError, ParameterError
from ..labels import label_columns

if TYPE_CHECKING:
    from .base import BaseScorer


def require_labels(y: Labels | None) -> dict[str, Names]:
    """Return labels as {view: array}; raise `LabelError` if there are none."""
    if y is None:
        raise LabelError(
            "this scorer requires y to be passed, but the target y is None: pass y with the labels of every view"
        )
    return {view: np.asarray(column) for view, column in label_columns(y, None).items()}


def concatenate_columns(blocks: Sequence[AnyArray]) -> AnyArray:
    """Return one array (n, columns) with the columns of all blocks, arrays with n rows each."""
    joined: AnyArray = namespace(blocks[0]).concatenate(blocks, 1)
    return joined


def check_setting_names(kind: type[BaseScorer], settings: Json, reserved: Sequence[str]) -> None:
    """Raise `ParameterError` for settings that a scorer class does not have.

    kind : the class
    settings : {name: value} of its constructor
    reserved : names of the constructor that the caller sets itself, and that are therefore refused
        too
    """
    names = [name for name in signature(kind).parameters if name not in reserved]
    for name in settings:
        if name not in names:
            raise ParameterError(
                f"a {kind.__name__} has no setting {name!r}; it has {', '.join(names)}"
            )


def check_whole_number(name: str, value: object, least: int) -> int:
    """Return the value of an argument as an int; raise `ParameterError` unless it is a whole number
    of at least `least`.

    name : name of the argument, for the message
    """
    # bool is a subclass of Integral
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ParameterError(f"{name} must be a whole number of at least {least}; got {value!r}")
    return int(value)
