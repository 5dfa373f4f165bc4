"""The reference of all commands, which the site shows: ``python tests/commands_page.py`` prints it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from mvplda.cli import main


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield a command and its subcommands with their full names."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command, **main.context_settings)
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from commands(found, f"{name} {inner}")


def page() -> str:
    """Return the reference as Markdown: the help text of every command."""
    parts = ["# Commands\n\nAs `mvplda COMMAND --help` prints them."]
    for name, command in commands(main, "mvplda"):
        width: dict[str, Any] = {"max_content_width": 100, "terminal_width": 100}
        settings = {**main.context_settings, **width}
        context = click.Context(command, info_name=name, **settings)
        text = command.get_help(context)
        parts.append(f"## {name}\n\n```text\n{text}\n```")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    print(page(), end="")
