"""The command line. Commands load when they are called, and heavy imports happen inside them."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, NoReturn

import click

from .. import __version__
from ..exceptions import MvpldaError
from .options import warnings_as_lines

COMMANDS = {
    "stats": "stats",
    "train": "models",
    "enrol": "models",
    "score": "scores",
    "calibrate": "scores",
    "evaluate": "judge",
    "compare": "judge",
    "info": "files",
    "convert": "files",
    "completion": "files",
    "jvector": "jvector",
    "experiment": "experiment",
    "study": "study",
    "demo": "demo",
}


class Tool(click.Group):
    """Loads commands lazily, shows warnings as lines, and ends in one line when the input is at fault."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f".{COMMANDS[cmd_name]}", __name__), cmd_name)
        return command

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        try:
            return super().make_context(*args, **options)
        except BrokenPipeError:
            raise
        except OSError as error:  # this prints the help, which could not be written
            _end(error)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with warnings_as_lines():
                return super().invoke(ctx)
        except BrokenPipeError:
            raise  # click ends without a word: whoever read has gone
        except (MvpldaError, OSError, MemoryError) as error:
            if ctx.params.get("debug"):
                raise
            _end(error)


def _end(error: Exception) -> NoReturn:
    """One line on standard error, and exit code 1."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    elif isinstance(error, MemoryError):
        text = f"there is not enough memory: {error}"
    click.echo(f"mvplda: {' '.join(text.split())}", err=True)
    sys.exit(1)


@click.group(cls=Tool, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(__version__)
@click.option("--debug", is_flag=True, help="Show where in the program an error came from, and not only what it says.")
def main(debug: bool) -> None:
    """Multi-view (joint) PLDA: verification of vectors that carry several labels at once.

    \b
    From Kaldi files to a report in three lines:
      mvplda train xvector.scp -l speaker=utt2spk -l phrase=utt2phrase \\
          -v speaker=100 -v phrase=20 -o model.safetensors
      mvplda score model.safetensors --enrol enrol.scp --models spk2utt \\
          --test test.scp --trials trials -o scores
      mvplda evaluate scores --trials trials --report report.html

    Input that cannot be used ends with exit code 1 and one line on standard error; a wrong
    call with 2.
    """
