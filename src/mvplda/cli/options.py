"""Options that several commands share."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click


class KeyValue(click.ParamType):  # type: ignore[type-arg]
    """NAME=VALUE."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, sign, rest = str(value).partition("=")
        if not key or not sign or not rest:
            self.fail(f"expected NAME=VALUE, got {value!r}", param, ctx)
        return key, rest


def question_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What is asked of every trial."""
    for option in (
        click.option(
            "--scoring",
            type=click.Choice(["exact", "paper"]),
            default="exact",
            help="The likelihood ratio that follows from the model, or the one that the paper printed.",
        ),
        click.option(
            "--known",
            type=KeyValue(),
            help="VIEW=FILE: the class that every model claims (model id, class); seen classes stand for themselves.",
        ),
        click.option("--given", multiple=True, type=KeyValue(), help="VIEW=same or VIEW=different: what is known."),
        click.option("--same", multiple=True, help="The view or views in question; default: all that are not given."),
    ):
        command = option(command)
    return command


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Show warnings as single lines on standard error."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        click.echo(f"mvplda: warning: {message}", err=True)

    shown = warnings.showwarning
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        try:
            yield
        finally:
            warnings.showwarning = shown
