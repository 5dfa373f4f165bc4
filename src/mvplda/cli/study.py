"""mvplda study"""

from __future__ import annotations

from pathlib import Path

import click

from .options import KeyValue, warnings_as_lines

OUTPUT = click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("study"), help="Folder.")
SEED = click.option("--seed", default=0, help="Of folds and of what is left out.")


@click.group()
def study() -> None:
    """What several views are good for beside pass-phrases: one command, a table and a picture each."""


@study.command()
@OUTPUT
@SEED
def drawn(output: Path, seed: int) -> None:
    """Vectors drawn from a known model: what every system reaches, the true parameters included.

    Example: mvplda study drawn -o study
    """
    from ..experiment.drawn import run

    run(output, seed, click.echo)


@study.command()
@click.argument("images", type=click.Path(exists=True, path_type=Path))
@OUTPUT
@SEED
def faces(images: Path, output: Path, seed: int) -> None:
    """Person, pose, expression and eyes in IMAGES: how much each explains; verify the person, ignoring the pose.

    IMAGES is the folder of CMU Face Images as it is unpacked, or an .npz of it.

    Example: mvplda study faces faces/ -o study
    """
    from ..experiment.faces import study_faces

    with warnings_as_lines():
        study_faces(images, output, seed=seed, say=click.echo)


@study.command()
@click.argument("vectors")
@click.option("-l", "--labels", multiple=True, required=True, type=KeyValue(), help="VIEW=FILE such as utt2spk.")
@click.option("--verify", required=True, help="The view in question.")
@click.option("--ignore", required=True, help="The view that must not matter.")
@click.option("--keep", multiple=True, type=int, help="Ignored classes a training class is seen with; may be repeated.")
@click.option("--components", default=150, help="Principal components.")
@click.option("--folds", default=4, help="Of the classes to verify; each is tested once.")
@OUTPUT
@SEED
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

    with warnings_as_lines():
        data = read_vectors(vectors)
        table = read_labels(dict(labels), data.ids)
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
        fig, axes = figure(6.5, 5)
        draw_errors(axes, result)
        click.echo(f"\nwrote {save_figure(fig, output / 'nuisance.png')}")
