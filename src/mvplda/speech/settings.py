"""Settings: frozen dataclasses that check themselves when they are made, and their way to and from plain tables.

A field's declared type says what it can be; `number` gives it a range. Errors name the field:
``epochs is at least 1; got 0``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field, fields
from typing import Any, Self

from ..exceptions import ParameterError

NONE = "none"
"""What stands in a file for None: TOML has no word for it."""
WORDS = {"str": "a text", "int": "a whole number", "float": "a number"}


def number(default: float | None, least: float, below: float = float("inf")) -> Any:
    """A field with a default that lies from `least` to below `below`."""
    return field(default=default, metadata={"range": (least, below)})


class Settings:
    """Base of the frozen dataclasses of settings."""

    def __post_init__(self) -> None:
        for item in fields(self):  # type: ignore[arg-type]
            value = _checked(item.name, getattr(self, item.name), str(item.type))
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


def _checked(name: str, value: Any, kind: str) -> Any:
    """The value as its declaration has it (25 and 25.0 are one setting), or an error."""
    kind, _, optional = kind.partition(" | ")
    if optional and value in (None, NONE):
        return None
    numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind == "int" and numeric and value % 1 == 0:
        return int(value)
    if kind == "float" and numeric:
        return float(value)
    if kind.startswith("tuple") and isinstance(value, (list, tuple)):
        return tuple(value)
    if (kind == "str" and isinstance(value, str)) or isinstance(value, Settings):
        return value
    raise ParameterError(f"{name} is {WORDS.get(kind, 'a table')}; got {value!r}")
