"""mvplda study"""

from __future__ import annotations

from pathlib import Path

import click

from .options import SEED, KeyValue, check_folder, once

OUTPUT = click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("study"),
    help="Leave tables and pictures in this folder, which is made if need be.",
)
SEED_OPTION = click.option(
    "--seed",
    type=SEED,
    default=0,
    help="Draw what is drawn with this seed; the same seed gives the same table.",
)


@click.group()
def study() -> None:
    """What several views are good for beside pass-phrases: one command, a table and a picture each."""


@study.command()
@OUTPUT
@SEED_OPTION
def drawn(output: Path, seed: int) -> None:
    """Vectors drawn from a known model: what every system reaches, the true parameters included.

    Example: mvplda study drawn -o study
    """
    from ..experiment.drawn import run

    check_folder(output)
    run(output, seed, click.echo)


@study.command()
@click.argument("images", type=click.Path(exists=True, path_type=Path))
@OUTPUT
@SEED_OPTION
def faces(images: Path, output: Path, seed: int) -> None:
    """Person, pose, expression and eyes in IMAGES: how much each explains; verify the person, ignoring the pose.

    IMAGES is the folder of CMU Face Images as it is unpacked, or an .npz of it.

    Example: mvplda study faces faces/ -o study
    """
    from ..experiment.faces import study_faces

    check_folder(output)
    study_faces(images, output, seed=seed, say=click.echo)


@study.command()
@click.argument("vectors")
@click.option(
    "-l",
    "--labels",
    multiple=True,
    required=True,
    type=KeyValue(),
    help="VIEW=FILE: read the classes of a view from FILE, such as utt2spk (vector id, class). Give one for every "
    "view.",
)
@click.option("--verify", required=True, help="Ask whether two vectors are of one class of this view.")
@click.option("--ignore", required=True, help="Keep this view from mattering.")
@click.option(
    "--keep",
    multiple=True,
    type=click.IntRange(min=1),
    help="Train with so many ignored classes a verified class; may be repeated.  "
    "[default: all, half of them, two and one]",
)
@click.option(
    "--components", type=click.IntRange(min=1), default=150, help="Keep so many principal components of the vectors."
)
@click.option(
    "--folds",
    type=click.IntRange(min=2),
    default=4,
    help="Divide the classes to verify into so many parts; each is tested once with models of the others.",
)
@OUTPUT
@SEED_OPTION
def nuisance(
    vectors: str,
    labels: tuple[tuple[str, str], ...],
    verify: str,
    ignore: str,
    keep: tuple[int, ...],
    components: int,
    folds: int,
    output: Path,
    seed: int,
) -> None:
    """Verify one view of VECTORS, ignore another: models of both views against PLDA of one.

    \b
    Example:
      mvplda study nuisance vectors.npz -l speaker=utt2spk -l phrase=utt2phrase --verify speaker --ignore phrase
    """
    from ..experiment.nuisance import draw_errors, study_nuisance
    from ..io.lists import read_labels
    from ..io.vectors import read_vectors
    from ..report.figures import figure, save_figure
    from ..report.page import pictures_where_possible

    check_folder(output)
    data = read_vectors(vectors)
    table = read_labels(once("--labels", labels), data.ids)
    result = study_nuisance(
        data.X,
        table,
        verify=verify,
        ignore=ignore,
        keep=keep or None,
        components=components,
        folds=folds,
        seed=seed,
        say=click.echo,
    )
    output.mkdir(parents=True, exist_ok=True)
    click.echo("\n" + result.table())
    (output / "nuisance.txt").write_text(result.table() + "\n", encoding="utf-8")
    with pictures_where_possible():
        fig, axes = figure(6.5, 5)
        draw_errors(axes, result)
        click.echo(f"\nwrote {save_figure(fig, output / 'nuisance.png')}")
