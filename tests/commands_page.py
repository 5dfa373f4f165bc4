"""Writes docs/commands.md, the reference of all commands: python tests/commands_page.py"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from mvplda.cli import main

PAGE = Path(__file__).parents[1] / "docs" / "commands.md"


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """A command and those in it, by their whole names."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command, **main.context_settings)
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from commands(found, f"{name} {inner}")


def page() -> str:
    """The reference, as the commands describe themselves."""
    parts = ["# Commands\n\nAs `mvplda COMMAND --help` prints them."]
    for name, command in commands(main, "mvplda"):
        width: dict[str, Any] = {"max_content_width": 100, "terminal_width": 100}
        settings = {**main.context_settings, **width}
        context = click.Context(command, info_name=name, **settings)
        text = command.get_help(context)
        parts.append(f"## {name}\n\n```text\n{text}\n```")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
