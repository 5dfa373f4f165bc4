"""Command ``python -m benchmarks [NAME ...]``, which runs the named benchmarks, or all that are not `ON_REQUEST`."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import click
from threadpoolctl import threadpool_limits

from . import check, evidence
from .report import PLOTS, draw, lines_of, write
from .timing import ROOT

BENCHMARKS = {
    "train": "train",
    "joint": "joint",
    "scoring": "scoring",
    "certified": "certified_search",
    "committee": "committee",
    "scale": "scale",
    "crossed": "crossed",
    "mixed": "mixed_models",
    "io": "statistics_io",
    "intervals": "interval_coverage",
    "extractors": "extractors",
    "startup": "startup",
    "verification": "verification",
    "ranges": "ranges",
    "ranges-at-scale": "ranges_at_scale",
    "growth": "growth",
}
"""Modules by name; imported when they are run, so that one that lacks a package does not stop the others."""
ON_REQUEST = {"ranges-at-scale"}
"""Benchmarks that are only run if they are named, because they need much time and disk."""


@click.command(context_settings={"show_default": True})
@click.argument("names", nargs=-1, type=click.Choice([*BENCHMARKS, "tables"]))
@click.option(
    "--quick", is_flag=True, help="Small sizes, a few seconds in all: to see that everything runs."
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=5,
    help="Every row's figure is the best of so many.",
)
@click.option(
    "--peer-python", default=sys.executable, help="An interpreter that has the other packages."
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the JSON files and pictures.",
)
@click.option("--pictures", is_flag=True, help="Measure nothing: draw the figures that are there.")
def main(
    names: tuple[str, ...],
    quick: bool,
    rounds: int,
    peer_python: str,
    output: Path | None,
    pictures: bool,
) -> None:
    """Speed, memory and honesty: NAMES, or all. Writes a JSON file of each, and a picture.

    \b
      train    PLDA against other packages and the bare product (seconds)
      joint    two views, against their class sums and products
      scoring  likelihood ratios a second
      scale    time and peak memory by vectors, speakers and dimensions (minutes)
      crossed  two views with many classes each: time and memory (minutes)
      mixed    crossed random effects against a mixed-model package
      io       statistics of files, GB/s by format (minutes)
      intervals  how often 95 % intervals hold the truth in simulated evaluations (minutes)
      extractors  networks from elsewhere that were fetched: multiples of real time
      committee  fit of a committee with learnt weights
      certified  certified search against FAISS alone (minutes)
      verification  stages of a verification from 3 s of sound
      startup  start of commands: CPU seconds, multiples of Python with NumPy, memory
      ranges   statistics by ranges of classes on two workers (minutes)
      ranges-at-scale  the same at 100 million vectors (half an hour, 25 GB of disk; only by name)
      growth   exponents of time and memory as each size doubles (minutes)

      tables   measure nothing: make the tables of the documents anew from results/
      check    make a random sample of stored rows again and compare (see check --help)
      evidence when the joint model has fewer errors than PLDA (see evidence --help)
      attacks  which attacks on the people of a folder are accepted (see attacks --help)

    On a GPU: python benchmarks/gpu_scoring.py and python benchmarks/gpu_training.py.
    """
    if "tables" in names:
        from . import tables

        for page in tables.main():
            click.echo(f"wrote {page}")
        return
    output = output or (ROOT / "build/benchmarks" if quick else ROOT / "benchmarks/results")
    if pictures:
        for name in (name for name in PLOTS if (output / f"{name}.json").exists()):
            click.echo("wrote " + ", ".join(str(file) for file in draw(name, output)))
        return
    with threadpool_limits(1):
        for name in names or [name for name in BENCHMARKS if name not in ON_REQUEST]:
            module = import_module(f"benchmarks.{BENCHMARKS[name]}")
            figures = module.run(quick=quick, rounds=rounds, peer_python=peer_python)
            files = write(BENCHMARKS[name], name, figures, output)
            click.echo(f"== {name}\n" + "\n".join(lines_of(figures)))
            click.echo("wrote " + ", ".join(str(file) for file in files) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["check"]:
        check.main(sys.argv[2:], prog_name="python -m benchmarks check")
    if sys.argv[1:2] == ["evidence"]:
        evidence.main(sys.argv[2:], prog_name="python -m benchmarks evidence")
    if sys.argv[1:2] == ["attacks"]:
        from . import attacks

        attacks.main(sys.argv[2:], prog_name="python -m benchmarks attacks")
    main()
