"""Settings: frozen dataclasses that check themselves wherever they are made, and their way to and from plain tables.

A field's declared type says what it can be; what else must hold stands in the declaration as a
`Rule`: ``epochs: Count = 30`` is ``Annotated[int, Rule(...)]``. Errors name the field, and the
section that it stands in as TOML writes it: ``[training.augmentation] noise is at least 0; got -1``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from ..exceptions import ParameterError

NONE = "none"
"""What stands in a file for None: TOML has no word for it."""


class Rule(NamedTuple):
    """What must hold for a value, and how an error says it after the field's name."""

    holds: Callable[[Any], bool]
    says: str


def between(low: float, high: float) -> Rule:
    return Rule(lambda value: low <= value <= high, f"lies between {low} and {high}")


Whole = Annotated[int, Rule(lambda value: value >= 0, "is at least 0")]
Count = Annotated[int, Rule(lambda value: value >= 1, "is at least 1")]
NotNegative = Annotated[float, Rule(lambda value: value >= 0, "is at least 0")]
Positive = Annotated[float, Rule(lambda value: value > 0, "is more than 0")]
Share = Annotated[float, Rule(lambda value: 0 <= value < 1, "is a share from 0 to below 1")]


class Settings:
    """Base of the frozen dataclasses of settings."""

    def __post_init__(self) -> None:
        for name, hint in self._declared().items():
            object.__setattr__(self, name, _checked(name, getattr(self, name), hint))
        self.check()

    def check(self) -> None:
        """What no single field can tell: fields that have to fit each other."""

    @classmethod
    def _declared(cls) -> dict[str, Any]:
        """The fields and their types."""
        kind: Any = cls  # mypy does not take a type for hashable
        return _hints(kind)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {name: _plain(getattr(self, name)) for name in self._declared()}

    @classmethod
    def from_dict(cls, values: Any, start: Self | None = None) -> Self:
        """The settings of `to_dict`; what is left out is as in ``start``, or has its default."""
        if isinstance(values, cls):
            return values
        if not isinstance(values, Mapping):
            raise ParameterError(f"{cls.__name__} is a section of settings; got {values!r}")
        known = cls._declared()
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ParameterError(
                f"{cls.__name__} has no setting {unknown[0]!r}; it has {', '.join(known)}"
            )
        if start is None:
            return cls(**values)
        merged = {
            name: {**getattr(start, name).to_dict(), **value}
            if isinstance(value, Mapping) and isinstance(getattr(start, name), Settings)
            else value
            for name, value in values.items()
        }
        return replace(start, **merged)  # type: ignore[type-var]


class Tagged(Settings):
    """Settings of several kinds, of which a table names one under ``tag``."""

    tag: ClassVar[str] = "kind"
    kind: ClassVar[str] = ""

    @classmethod
    def registered(cls) -> Mapping[str, type[Any]]:
        """The kinds that there are, by name."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        return {self.tag: self.kind, **super().to_dict()}

    @classmethod
    def from_dict(cls, values: Any, start: Any = None) -> Any:
        """The settings of `to_dict`, of the kind that they name."""
        if isinstance(values, Tagged):
            return values
        plain = dict(values) if isinstance(values, Mapping) else {cls.tag: values}
        kind = plain.pop(cls.tag, None)
        if kind not in cls.registered():
            raise ParameterError(f"{cls.tag} is one of {', '.join(cls.registered())}; got {kind!r}")
        return super(Tagged, cls.registered()[kind]).from_dict(plain)


@contextmanager
def section(name: str) -> Iterator[None]:
    """Errors of settings inside say that they stand in this section."""
    try:
        yield
    except ParameterError as error:
        text = str(error)
        raise ParameterError(
            f"[{name}.{text[1:]}" if text.startswith("[") else f"[{name}] {text}"
        ) from error


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {item.name: hints[item.name] for item in fields(kind)}


def _plain(value: Any) -> Any:
    if isinstance(value, Settings):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _checked(name: str, value: Any, hint: Any) -> Any:
    """The value as its declaration has it (25 and 25.0 are one setting), or an error."""
    if get_origin(hint) is Annotated:
        hint, *rules = get_args(hint)
        value = _checked(name, value, hint)
        for rule in rules:
            if not rule.holds(value):
                raise ParameterError(f"{name} {rule.says}; got {value!r}")
        return value
    if get_origin(hint) in (Union, UnionType):
        if value is None or (isinstance(value, str) and value == NONE):
            return None
        return _checked(name, value, next(part for part in get_args(hint) if part is not NoneType))
    if isinstance(hint, type) and issubclass(hint, Settings):
        with section(name):
            return hint.from_dict(value)
    fits, word = _fits(value, hint)
    if not fits:
        raise ParameterError(f"{name} is {word}; got {value!r}")
    if get_origin(hint) is tuple:
        inner = [part for part in get_args(hint) if part is not Ellipsis]
        return tuple(
            _checked(f"{name}.{i}", item, inner[min(i, len(inner) - 1)])
            for i, item in enumerate(value)
        )
    if get_origin(hint) in _TABLES:
        return {
            key: _checked(f"{name}.{key}", item, get_args(hint)[1]) for key, item in value.items()
        }
    return hint(value) if hint in (bool, int, float) else value


_TABLES = (Mapping, dict)


def _fits(value: Any, hint: Any) -> tuple[bool, str]:
    """Whether a value is of a type, and the type in words."""
    logical = isinstance(value, (bool, np.bool_))
    number = (
        isinstance(value, (int, float, np.integer, np.floating))
        and not logical
        and math.isfinite(value)
    )
    if hint is bool:
        return logical, "true or false"
    if hint is int:
        return number and int(value) == value, "a whole number"
    if hint is float:
        return number, "a number"
    if hint is str:
        return isinstance(value, str), "a text"
    if get_origin(hint) is Literal:
        return value in get_args(hint), f"one of {', '.join(get_args(hint))}"
    if get_origin(hint) is tuple:
        row = isinstance(value, Sequence) and not isinstance(value, str)
        if Ellipsis in get_args(hint):
            return row, "a list"
        return row and len(value) == len(get_args(hint)), f"a list of {len(get_args(hint))}"
    if get_origin(hint) in _TABLES:
        return isinstance(value, Mapping), "a table"
    return True, ""
