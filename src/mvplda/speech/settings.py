"""Settings: frozen dataclasses that check themselves when they are made, and their way to and from plain tables.

A field's declared type says what it can be; `number` gives it a range. Errors name the field:
``epochs is at least 1; got 0``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Self, Union, get_args, get_origin, get_type_hints

import numpy as np

from ..exceptions import ParameterError

NONE = "none"
"""What stands in a file for None: TOML has no word for it."""


def number(default: float | None, least: float, below: float = float("inf")) -> Any:
    """A field with a default that lies from `least` to below `below`."""
    return field(default=default, metadata={"range": (least, below)})


class Settings:
    """Base of the frozen dataclasses of settings."""

    def __post_init__(self) -> None:
        kind: Any = type(self)  # mypy does not take a type for hashable
        hints = _hints(kind)
        for item in fields(self):  # type: ignore[arg-type]
            value = _checked(item.name, getattr(self, item.name), hints[item.name])
            object.__setattr__(self, item.name, value)
            if "range" in item.metadata and value is not None:
                _check_range(item.name, value, *item.metadata["range"])

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for TOML and JSON; what is None is "none"."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """The settings of `to_dict`; what is left out has its default."""
        if isinstance(values, cls):
            return values
        if not isinstance(values, Mapping):
            raise ParameterError(f"{cls.__name__} is a section of settings; got {values!r}")
        kind: Any = cls
        known = list(_hints(kind))
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ParameterError(
                f"{cls.__name__} has no setting {unknown[0]!r}; it has {', '.join(known)}"
            )
        return cls(**values)


def in_section(name: str, error: ParameterError) -> ParameterError:
    """The same error, with the section that it is about."""
    return ParameterError(f"[{name}] {error}")


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {item.name: hints[item.name] for item in fields(kind)}


def _plain(value: Any) -> Any:
    if value is None:
        return NONE
    if isinstance(value, Settings):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _check_range(name: str, value: float, least: float, below: float) -> None:
    if value < least:
        raise ParameterError(f"{name} is at least {least:g}; got {value!r}")
    if value >= below:
        raise ParameterError(f"{name} is below {below:g}; got {value!r}")


def _checked(name: str, value: Any, hint: Any) -> Any:
    """The value as its declaration has it (25 and 25.0 are one setting), or an error."""
    if get_origin(hint) in (Union, UnionType):
        if value is None or value == NONE:
            return None
        hint = next(part for part in get_args(hint) if part is not NoneType)
    if isinstance(hint, type) and issubclass(hint, Settings):
        return hint.from_dict(value)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise ParameterError(f"{name} is one of {', '.join(get_args(hint))}; got {value!r}")
        return value
    if get_origin(hint) is tuple:
        if isinstance(value, str) or not isinstance(value, (list, tuple)):
            raise ParameterError(f"{name} is a list; got {value!r}")
        inner = get_args(hint)[0]
        return tuple(_checked(f"{name}.{i}", item, inner) for i, item in enumerate(value))
    return _checked_value(name, value, hint)


def _checked_value(name: str, value: Any, kind: type[Any]) -> Any:
    logical = isinstance(value, (bool, np.bool_))
    if kind is bool:
        fits = logical
    elif kind is str:
        fits = isinstance(value, str)
    else:
        fits = (
            isinstance(value, (int, float, np.number)) and not logical and bool(np.isfinite(value))
        )
        if fits and kind is int:
            fits = int(value) == value
    if not fits:
        words = {bool: "true or false", str: "a text", int: "a whole number", float: "a number"}
        raise ParameterError(f"{name} is {words[kind]}; got {value!r}")
    return kind(value)
