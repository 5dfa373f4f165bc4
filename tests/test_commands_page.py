"""The reference lists every command, and documents call only commands and options that exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest
from commands_page import commands, page
from pages import PAGES, blocks, spans

from mvplda.cli import main


def test_the_reference_has_the_help_of_every_command() -> None:
    sections = dict(
        re.findall(r"^## (.+?)\n\n```text\n(.*?)\n```$", page(), re.DOTALL | re.MULTILINE)
    )
    names = dict(commands(main, "mvplda"))
    assert list(sections) == list(names)
    assert len(names) > 20
    for name, command in names.items():
        assert sections[name].startswith(f"Usage: {name} ")
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert max(parameter.opts, key=len) in sections[name]


def calls(page: str) -> Iterator[list[str]]:
    """The words of every call of the tool in the blocks and in the inline code of a document."""
    names = main.list_commands(click.Context(main))
    starts = tuple(f"{name} --" for name in names)
    lines = [line for block in blocks(page) for line in block.commands]
    lines += [f"mvplda {span}" if span.startswith(starts) else span for span in spans(page)]
    for line in lines:
        for call in re.split(r"[|;]|&&", line):
            if call.strip().startswith("mvplda "):
                # a word in capitals stands for a command or a file
                words = shlex.split(call.split(" > ")[0])[1:]
                yield [word for word in words if word != "..." and not re.fullmatch("[A-Z]+", word)]


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


@pytest.mark.parametrize("path", PAGES)
def test_documents_call_commands_and_options_that_are_there(path: str) -> None:
    wrong = {call for words in calls(path) for call in unknown(words)}
    assert wrong == set()
