"""Commands that rebuild the default model: ``python -m tools.default_model --help``; see README.md in this folder."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from mvplda._typing import Json
from mvplda.distributed.ordered import ordered_map
from mvplda.model_files import load_model
from mvplda.paper.provenance import OUTPUT, WORK, provenance, with_provenance, write_results
from mvplda.voice.default_model import DEFAULT_MODEL, default_extractor
from tools.default_model.build import (
    CALIBRATION,
    DesignParts,
    LeftOutTrials,
    calibrate,
    card,
    evaluate_left_out,
    make_bundle,
)
from tools.default_model.comparison import TOLERANCE, differences
from tools.default_model.recordings import (
    DOMAINS,
    read_labelled_vectors,
    refused_recordings,
    write_vectors,
)

WORK_ARGUMENT = click.argument("work", type=click.Path(path_type=Path))
MODEL = click.Path(path_type=Path, dir_okay=False)


@click.group()
def main() -> None:
    """Rebuild the default model of the package."""


@main.command()
@WORK_ARGUMENT
@click.argument("roots", nargs=len(DOMAINS), metavar=" ".join(name.upper() for name in DOMAINS))
def vectors(work: Path, roots: tuple[str, ...]) -> None:
    """Extract the vectors of all corpora into the folder WORK. Corpora whose file exists are skipped."""
    for name, root in zip(DOMAINS, roots, strict=True):
        write_vectors(work, name, Path(root))


@main.command()
@WORK_ARGUMENT
@click.option(
    "-o", "--output", type=MODEL, help="File of the model; default: WORK/default.safetensors."
)
@click.option("--results", type=click.Path(path_type=Path), help="Write the results here too.")
@click.option("--workers", type=int, help="Processes; default: one per core.")
def model(work: Path, output: Path | None, results: Path | None, workers: int | None) -> None:
    """Fit the model to the vectors in WORK, calibrate it, and evaluate it on left-out corpora."""
    command = (
        f"python -m tools.default_model model {WORK} -o {WORK}/default.safetensors "
        f"--results {OUTPUT}"
    )
    record = provenance([work / f"{name}.npz" for name in DOMAINS], command=command)
    rows: list[Json] = []
    evaluated = ordered_map(partial(_evaluate, work), list(DOMAINS), workers=workers)
    for corpus, corpus_rows in zip(DOMAINS, evaluated, strict=True):
        rows += corpus_rows
        click.echo(f"{corpus} left out: done")
    designs = ordered_map(partial(_calibrate, work), list(CALIBRATION), workers=workers)
    labelled = read_labelled_vectors(work)
    scorer = LeftOutTrials(labelled).model()
    bundle = make_bundle(scorer, default_extractor().name, designs)
    bundle.card = card(labelled, rows)
    bundle.save(output or work / "default.safetensors")
    if results is not None:
        points = {
            key: [point.to_dict() for point in points]
            for key, points in (bundle.points or {}).items()
        }
        title = "The default model on corpora left out"
        figures = {
            "points": {**points, "provenance": record},
            "rows": with_provenance(rows, record),
            "refused": with_provenance(refused_recordings(work), record),
        }
        write_results(results / "results.json", title, **figures)


def _evaluate(work: Path, corpus: str) -> list[Json]:
    """Return the results on a corpus, of models fitted without it; runs in a worker process.

    work : folder with the vectors of all corpora
    corpus : name of the corpus
    """
    return evaluate_left_out(LeftOutTrials(read_labelled_vectors(work)), corpus)


def _calibrate(work: Path, design: str) -> DesignParts:
    """Return the calibrations and operating points of a design; runs in a worker process.

    work : folder with the vectors of all corpora
    design : name of the design, a key of `CALIBRATION`
    """
    return calibrate(LeftOutTrials(read_labelled_vectors(work)), CALIBRATION[design])


@main.command()
@click.argument("rebuilt", type=MODEL)
@click.argument("shipped", type=MODEL, default=DEFAULT_MODEL)
def check(rebuilt: Path, shipped: Path) -> None:
    """Compare the model file REBUILT with SHIPPED, by default the model of the package.

    Prints the largest difference of LLRs on drawn vectors and of thresholds per question; ends with 1 if one of them
    exceeds 1e-6.
    """
    largest = differences(load_model(rebuilt), load_model(shipped))
    for name, difference in largest.items():
        click.echo(f"{name}: {difference:.1e}")
    sys.exit(int(any(not value <= TOLERANCE for value in largest.values())))


if __name__ == "__main__":
    main()
