"""mvplda demo"""

from __future__ import annotations

from pathlib import Path

import click

from .options import SEED, check_folder

NEXT = """
What next (after `. .venv/bin/activate`, where make installed it):
  look at the page              {output}/report.html
  look inside the best model    mvplda info {output}/model.safetensors
  your own recordings           mvplda experiment folder recordings/   (<speaker>/<phrase>/<anything>.wav)
  vectors from elsewhere        mvplda experiment vectors xvectors.scp -l speaker=utt2spk -l phrase=utt2phrase
  real speech                   mvplda experiment audiomnist AudioMNIST/   (a download of 1 GB)
  vectors of new recordings     mvplda jvector extract {output}/extractor.safetensors recordings/ -o vectors.npz
  their scores                  mvplda score {output}/model.safetensors --help"""


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("demo-output"),
    help="Leave everything in this folder, which is made if need be.",
)
@click.option(
    "--seed",
    type=SEED,
    default=0,
    help="Make the speech, the network and the back-ends with this seed; the same seed gives the same table.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print no progress; tables and warnings are still shown.")
def demo(output: Path, seed: int, quiet: bool) -> None:
    """Synthetic speakers say pass-phrases; a network is trained; every system is judged; a page shows it.

    Takes two minutes on two cores. The same as: mvplda experiment synthetic -o demo-output
    """
    from ..datasets import load_corpus
    from ..experiment.configuration import read_recipe
    from ..experiment.run import run_experiment

    check_folder(output)
    settings = read_recipe("small", {"name": "synthetic", "seed": seed})
    settings = settings.with_changes({"training.seed": seed, "backend.seed": seed})
    click.echo("50 synthetic speakers say 8 pass-phrases 8 times each, in noise, in rooms, over channels ...")
    corpus = load_corpus("synthetic", output / "speech", seed=seed, progress=not quiet)
    run_experiment(corpus, settings, output, cache=output / "features", progress=not quiet, say=click.echo)
    click.echo(NEXT.format(output=output))
