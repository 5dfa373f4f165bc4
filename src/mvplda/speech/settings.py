"""Settings: frozen dataclasses that check themselves when they are made, and their way to and from plain tables.

A field's declared type says what it can be; `number` gives it a range. Errors name the field:
``epochs is at least 1; got 0``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field, fields
from types import NoneType
from typing import Any, Self, get_args, get_type_hints

from ..exceptions import ParameterError

NONE = "none"
"""What stands in a file for None: TOML has no word for it."""
WORDS = {str: "a text", int: "a whole number", float: "a number"}


def number(default: float | None, least: float, below: float = float("inf")) -> Any:
    """A field with a default that lies from `least` to below `below`."""
    return field(default=default, metadata={"range": (least, below)})


class Settings:
    """Base of the frozen dataclasses of settings."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for item in fields(self):  # type: ignore[arg-type]
            value = _checked(item.name, getattr(self, item.name), hints[item.name])
            least, below = item.metadata.get("range", (None, None))
            if least is not None and value is not None and not least <= value < below:
                bound = f"at least {least:g}" if value < least else f"below {below:g}"
                raise ParameterError(f"{item.name} is {bound}; got {value!r}")
            object.__setattr__(self, item.name, value)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for TOML and JSON; what is None is "none"."""
        return _plain(asdict(self))  # type: ignore[call-overload,no-any-return]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The settings of `to_dict`; what is left out has its default."""
        names = [item.name for item in fields(cls)]  # type: ignore[arg-type]
        unknown = sorted(set(values) - set(names))
        if unknown:
            raise ParameterError(
                f"{cls.__name__} has no setting {unknown[0]!r}; it has {', '.join(names)}"
            )
        return cls(**values)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return list(value)
    return NONE if value is None else value


def _checked(name: str, value: Any, hint: Any) -> Any:
    """The value as its declaration has it (25 and 25.0 are one setting), or an error."""
    kinds = get_args(hint)
    if NoneType in kinds:
        return None if value in (None, NONE) else _checked(name, value, kinds[0])
    if kinds:  # a tuple of one type
        if not isinstance(value, (list, tuple)):
            raise ParameterError(f"{name} is a list; got {value!r}")
        return tuple(_checked(name, item, kinds[0]) for item in value)
    if issubclass(hint, Settings):
        return hint.from_dict(value) if isinstance(value, Mapping) else value
    numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
    whole = numeric and value % 1 == 0
    fits = {str: isinstance(value, str), int: whole, float: numeric}[hint]
    if not fits:
        raise ParameterError(f"{name} is {WORDS[hint]}; got {value!r}")
    return hint(value)
