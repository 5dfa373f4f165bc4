"""Checks of settings: errors that name the setting, what it can be and what came."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from .exceptions import ParameterError


def at_least(settings: Any, least: int, *names: str) -> None:
    for name in names:
        if not getattr(settings, name) >= least:
            raise ParameterError(f"{name} is at least {least}; got {getattr(settings, name)!r}")


def positive(settings: Any, *names: str) -> None:
    for name in names:
        if not getattr(settings, name) > 0:
            raise ParameterError(f"{name} is more than 0; got {getattr(settings, name)!r}")


def share(settings: Any, *names: str) -> None:
    for name in names:
        if not 0 <= getattr(settings, name) < 1:
            raise ParameterError(f"{name} is a share from 0 to below 1; got {getattr(settings, name)!r}")


def known_names(kind: type[Any], names: Iterable[str]) -> None:
    """Refuse names that are no settings of a record."""
    known = [item.name for item in fields(kind)]
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise ParameterError(f"{kind.__name__} has no setting {unknown[0]!r}; it has {', '.join(known)}")
