"""mvplda demo"""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option("--output", type=click.Path(path_type=Path), default=Path("demo-output"), help="Folder.")
@click.option("--seed", default=0)
def demo(output: Path, seed: int) -> None:
    """Draw vectors from a known model, fit every system, print the table, write a picture."""
    from ..demo import run

    run(output, seed, click.echo)
