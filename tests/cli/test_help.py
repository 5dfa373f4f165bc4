"""Help of the program: its table of commands, sections, suggestions and colours."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from mvplda.cli import main
from mvplda.cli.groups import summary_of
from mvplda.cli.program import COMMANDS, SECTIONS

PROGRAM = [sys.executable, "-m", "mvplda"]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_agrees_with_the_docstrings(name):
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name
    assert summary_of(command) == COMMANDS[name].summary


def test_help_shows_sections_with_whole_summaries_on_one_line_each():
    text = CliRunner().invoke(main, ["--help"], terminal_width=80).output
    lines = text.splitlines()
    for section, entries in SECTIONS.items():
        first = lines.index(f"{section}:") + 1
        listed = [line.split(maxsplit=1) for line in lines[first : first + len(entries)]]
        assert listed == [[name, entry.summary] for name, entry in entries.items()]
    assert lines.index("Verify recordings:") < lines.index("Options:")


def test_help_imports_no_command_and_no_numpy():
    code = (
        "import sys; from mvplda.cli import main; main(['--help'], standalone_mode=False)\n"
        "print('LOADED', *(name for name in sys.modules if name.startswith(('mvplda', 'numpy'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split()[1:])
    shared = {"program", "groups", "options"}
    assert loaded == {
        "mvplda",
        "mvplda.cli",
        "mvplda.exceptions",
        *(f"mvplda.cli.{module}" for module in shared),
    }


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (["verfy"], "No such command 'verfy'. Did you mean 'verify'?"),
        (["profiles", "ad"], "No such command 'ad'. Did you mean 'add'?"),
        (["xyzzy"], "No such command 'xyzzy'.\n"),
    ],
)
def test_an_unknown_command_gets_a_suggestion(words, suggestion):
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert suggestion in result.output


def terminal_output(arguments, **variables):
    """Return what the program prints to a terminal."""
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    reader, writer = pty.openpty()
    subprocess.run(
        [*PROGRAM, *arguments], stdout=writer, env={**environment, **variables}, check=True
    )
    os.close(writer)
    chunks = []
    while True:
        try:
            chunk = os.read(reader, 65536)
        except OSError:  # Linux: the other end is closed
            chunk = b""
        if not chunk:
            break
        chunks.append(chunk)
    os.close(reader)
    return b"".join(chunks).decode()


@pytest.mark.parametrize("arguments", [["--help"], ["profiles", "--help"], ["score", "--help"]])
def test_help_has_colours_on_a_terminal_only(arguments):
    coloured = terminal_output(arguments)
    plain = terminal_output(arguments, NO_COLOR="1")
    assert "\x1b[1m" in coloured
    assert "\x1b" not in plain
    assert click.unstyle(coloured) == plain
    piped = subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, check=True)
    assert "\x1b" not in piped.stdout
