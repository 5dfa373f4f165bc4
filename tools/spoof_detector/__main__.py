"""Commands that make the detector of replays and resynthesis: ``python -m tools.spoof_detector --help``."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from mvplda._typing import Json
from mvplda.paper.provenance import OUTPUT, WORK, provenance, with_provenance, write_results
from tools.spoof_detector.material import RECORDINGS, make_items

WORK_ARGUMENT = click.argument("work", type=click.Path(path_type=Path))
TITLE = "A detector of replays and resynthesis"


@click.group()
def main() -> None:
    """Make, train and measure the detector of replayed and resynthesised voices."""


@main.command()
@WORK_ARGUMENT
@click.argument("roots", nargs=len(RECORDINGS), metavar=" ".join(map(str.upper, RECORDINGS)))
def attacks(work: Path, roots: tuple[str, ...]) -> None:
    """Make recordings and attacks of all corpora in the folder WORK. Corpora whose file exists are skipped."""
    for name, root in zip(RECORDINGS, roots, strict=True):
        make_items(work, name, Path(root))


@main.command()
@WORK_ARGUMENT
@click.option("--results", type=click.Path(path_type=Path), help="Write the results here.")
@click.option("--fold", "folds", type=int, multiple=True, help="Only these folds.  [default: all]")
def measure(work: Path, results: Path | None, folds: tuple[int, ...]) -> None:
    """Train a network per fold of WORK, and measure it on the attacks, corpora and people that are left out.

    Scores of a fold are stored in WORK; folds with stored scores are not trained again.
    """
    from tools.spoof_detector import experiment

    command = f"python -m tools.spoof_detector measure {WORK} --results {OUTPUT}"
    record = provenance([work / f"{name}.npz" for name in RECORDINGS], command=command)
    material = experiment.read_material(work)
    for number in folds or range(len(experiment.FOLDS)):
        experiment.score_fold(work, material, experiment.FOLDS[number], click.echo)
    if folds:
        return
    figures: Json = experiment.figures(work, material)
    for line in experiment.text_lines(figures):
        click.echo(line)
    if results is not None:
        rows = with_provenance(figures, record)
        write_results(results / "results.json", TITLE, rows=rows)


@main.command()
@WORK_ARGUMENT
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Default: WORK/spoof_detector.onnx."
)
def model(work: Path, output: Path | None) -> None:
    """Train the network that ships, and calibrate it with the folds of `measure`.

    It is trained on the people of all corpora except WUW.
    """
    from tools.spoof_detector import experiment
    from tools.spoof_detector.network import export

    material = experiment.read_material(work)
    calibration = experiment.calibration_of_folds(work, material)
    network = experiment.train_on_all(material)
    path = output or work / "spoof_detector.onnx"
    export(network, calibration, path)
    click.echo(f"{path}: {path.stat().st_size} bytes, {calibration}")


@main.command()
@WORK_ARGUMENT
@click.argument("rebuilt", type=click.Path(path_type=Path, exists=True))
def check(work: Path, rebuilt: Path) -> None:
    """Compare the file REBUILT with that of the package on recordings in WORK: raw scores and calibrations."""
    from mvplda.voice.spoof_detector import SpoofDetector, load_spoof_detector
    from tools.spoof_detector.material import Items

    shipped, other = load_spoof_detector(), SpoofDetector(rebuilt)
    items = Items.load(work / "arabic.npz")
    scores = np.array(
        [[d.raw_score(items.sound(row)) for d in (shipped, other)] for row in range(50)]
    )
    click.echo(f"largest difference of raw scores: {np.abs(np.diff(scores)).max():.1e}")
    click.echo(f"calibrations: {shipped.calibration}, {other.calibration}")


if __name__ == "__main__":
    main()
