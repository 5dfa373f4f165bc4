"""The command line. Heavy imports happen inside the commands."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from . import __version__
from .exceptions import MvpldaError


class Tool(click.Group):
    """A group whose commands end in one line, not a traceback, when the input is at fault."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (MvpldaError, OSError) as error:
            if ctx.params.get("debug"):
                raise
            click.echo(f"mvplda: {error}", err=True)
            sys.exit(1)


@click.group(cls=Tool, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def main(debug: bool) -> None:
    """Multi-view (joint) PLDA: verification of vectors that carry several labels at once."""


@main.command()
@click.option("--output", type=click.Path(path_type=Path), default="demo-output", show_default=True, help="Folder.")
@click.option("--seed", default=0, show_default=True)
def demo(output: Path, seed: int) -> None:
    """Draw vectors from a known model, fit every system, print the table, write a picture."""
    from .demo import run

    run(output, seed, click.echo)


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def info(file: Path, as_json: bool) -> None:
    """Say what is in a model file.

    Example: mvplda info model.safetensors
    """
    from .files import describe_model

    about = describe_model(file)
    if as_json:
        click.echo(json.dumps(about, indent=2))
        return
    click.echo(f"{about['class']}, dimension {about['dimension']}, {about['noise']} noise")
    for view, share in about["explained_variance_ratio"].items():
        rank = f"rank {about['views'][view]}, " if view in about["views"] else ""
        click.echo(f"  {view}: {rank}{share:.1%} of the variance")
    state = "converged" if about["converged"] else "stopped"
    click.echo(f"{state} after {about['n_iter']} iterations")
    click.echo(f"fingerprint {about['fingerprint'][:16]}")
