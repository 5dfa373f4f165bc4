"""``python -m benchmarks``: run all benchmarks, or those named."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from threadpoolctl import threadpool_limits

from . import growth, joint, scoring, train
from .report import lines_of, write
from .timing import ROOT

BENCHMARKS = {"train": train.run, "joint": joint.run, "growth": growth.run, "scoring": scoring.run}


@click.command(context_settings={"show_default": True})
@click.argument("names", nargs=-1, type=click.Choice(list(BENCHMARKS)))
@click.option("--quick", is_flag=True, help="Small sizes, a few seconds in all: to see that everything runs.")
@click.option("--rounds", type=click.IntRange(min=1), default=5, help="Every row's figure is the best of so many.")
@click.option("--peer-python", default=sys.executable, help="An interpreter that has the other packages.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), help="Where the figures go.")
def main(names: tuple[str, ...], quick: bool, rounds: int, peer_python: str, output: Path | None) -> None:
    """Speed and memory: NAMES, or all. Writes a JSON file and a picture of each."""
    output = output or (ROOT / "build/benchmarks" if quick else ROOT / "benchmarks/results")
    with threadpool_limits(1):
        for name in names or BENCHMARKS:
            figures = BENCHMARKS[name](quick=quick, rounds=rounds, peer_python=peer_python)
            files = write(name, figures, output)
            click.echo(f"== {name}\n" + "\n".join(lines_of(figures)))
            click.echo("wrote " + ", ".join(str(file) for file in files) + "\n")


if __name__ == "__main__":
    main()
