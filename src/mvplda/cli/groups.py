"""Help of command groups: commands in sections with complete summaries, suggestions for mistyped names, colour."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import click


class ColourFormatter(click.HelpFormatter):
    """Formatter of help pages with bold headings and coloured names; click removes the colours outside a terminal."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(click.style(prog, bold=True), args, prefix)

    def write_heading(self, heading: str) -> None:
        super().write_heading(click.style(heading, bold=True))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        coloured = [(click.style(term, fg="cyan"), text) for term, text in rows]
        super().write_dl(coloured, col_max, col_spacing)


class ColourContext(click.Context):
    """Context of a command; its help has colours on a terminal, unless the variable NO_COLOR is set."""

    formatter_class = ColourFormatter

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if os.environ.get("NO_COLOR"):
            self.color = False


class CommandGroup(click.Group):
    """Group of commands whose help lists the commands in sections, with summaries that are never shortened."""

    context_class = ColourContext

    def sections(self, ctx: click.Context) -> Mapping[str, Mapping[str, str]]:
        """Return the summaries of commands as {title of the section: {name of the command: summary}}."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        summaries = {
            name: summary_of(command) for name, command in commands.items() if command is not None
        }
        return {"Commands": summaries}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            command.context_class = ColourContext
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and name not in self.list_commands(ctx):
            similar = get_close_matches(name, self.list_commands(ctx), n=1)
            suggestion = f" Did you mean {similar[0]!r}?" if similar else ""
            ctx.fail(f"No such command {name!r}.{suggestion}")
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, then that of the options, to a help page."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections = self.sections(ctx)
        width = max(len(name) for summaries in sections.values() for name in summaries)
        for section, summaries in sections.items():
            with formatter.section(section):
                # names of equal width align the summaries of all sections
                formatter.write_dl([(f"{name:{width}}", text) for name, text in summaries.items()])


def summary_of(command: click.Command) -> str:
    """Return the first paragraph of a command's help as one line."""
    first_paragraph = (command.help or "").partition("\n\n")[0]
    return " ".join(first_paragraph.split())
