"""The reference of commands is that of the commands as they are, and documents call only what is there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from commands_page import PAGE, page

from mvplda.cli import main

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_reference_of_commands_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python tests/commands_page.py"


def calls(text: str) -> Iterator[list[str]]:
    """The words of every call of the tool in the shell blocks of a document."""
    for block in re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            for call in re.split(r"[|;]|&&", line.partition(" #")[0]):
                if call.strip().startswith("mvplda "):
                    yield shlex.split(call.split(" > ")[0])[1:]


def unknown(words: list[str]) -> list[str]:
    """Commands and options of a call that do not exist."""
    command: click.Command = main
    for number, word in enumerate(words):
        context = click.Context(command, **main.context_settings)
        options = {o for p in command.get_params(context) for o in (*p.opts, *p.secondary_opts)}
        if isinstance(command, click.Group) and not word.startswith("-"):
            found = command.get_command(context, word)
            if found is not None:
                command = found
                continue
            if not command.invoke_without_command:
                return [" ".join(words[: number + 1])]
        name = word.partition("=")[0]
        is_number = re.fullmatch(r"-[\d.]+", word)
        if name.startswith("-") and name != "-" and name not in options and not is_number:
            return [" ".join(words[: number + 1])]
    return []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_documents_call_commands_and_options_that_are_there(path: Path) -> None:
    wrong = [unknown(words) for words in calls(path.read_text(encoding="utf-8"))]
    assert [one for some in wrong for one in some] == []
