"""The command line. Commands load when they are called, and heavy imports happen inside them."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from .. import __version__
from ..exceptions import MvpldaError

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
    """Loads commands lazily, and ends in one line, not a traceback, when the input is at fault."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f".{COMMANDS[cmd_name]}", __name__), cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            sys.stderr.close()
            sys.exit(1)
        except (MvpldaError, OSError) as error:
            if ctx.params.get("debug"):
                raise
            click.echo(f"mvplda: {error}", err=True)
            sys.exit(1)


@click.group(cls=Tool, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(__version__)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
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
