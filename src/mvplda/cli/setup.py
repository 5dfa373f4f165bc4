"""mvplda setup"""

from __future__ import annotations

from pathlib import Path

import click

from . import Number, check_folder, labels_option, once
from .extractors import extractor_option
from .train import read_labelled


@click.command()
@click.argument("source")
@click.option(
    "-o", "--output", required=True, help="Write the model, profiles and report into this folder."
)
@click.option(
    "--far",
    type=Number(0, 1, min_open=True, max_open=True),
    default=0.01,
    help="Choose the threshold so that at most this share of the worst kind of impostors passes.",
)
@click.option(
    "--pattern",
    help="How paths are to be read: fields are views, * is anything, as in {speaker}/{phrase}_*.  [default: guessed]",
)
@click.option(
    "--enrolment",
    type=click.IntRange(min=1),
    default=1,
    help="Recordings per profile, as there will be in use.",
)
@labels_option("VIEW=FILE or VIEW=COLUMN: labels of vectors, as in mvplda train.")
@extractor_option(required=False)
@click.option("-q", "--quiet", is_flag=True, help="Show no line for every step that is done.")
def setup(
    source: str,
    output: str,
    far: float,
    pattern: str | None,
    enrolment: int,
    labels: tuple[tuple[str, str], ...],
    extractors: tuple[str, ...],
    quiet: bool,
) -> None:
    """Make a model of your own people, with its threshold: SOURCE is a folder of recordings, or vectors with labels.

    All people are held out in turn, so that all of them show how often the model errs. The folder that is written is
    what verify, identify, profiles, serve, evaluate and convert take.

    \b
    Examples:
      mvplda setup recordings/ --far 0.01 -o voices/            (recordings/ann/hello/1.wav)
      mvplda setup recordings/ --pattern "{speaker}_{phrase}_*" -o voices/
      mvplda setup vectors.npz -o voices/                       (arrays X, speaker and phrase)
    """
    from ..recordings import setup as set_up
    from ..recordings import setup_vectors

    check_folder(Path(output))
    folder = Path(source)
    # a folder of Kaldi's lists its vectors; any other holds sound
    if folder.is_dir() and not any(folder.glob("*.scp")):
        result = set_up(
            source,
            pattern=pattern,
            extractors=extractors,
            far=far,
            enrolment=enrolment,
            progress=not quiet,
        )
    else:
        data, table = read_labelled(source, once("--labels", labels))
        result = setup_vectors(
            data.X,
            table,
            marks=[str(name) for name in data.ids],
            name=data.extractor,
            far=far,
            enrolment=enrolment,
            progress=not quiet,
        )
    result.save(output)
    click.echo(result.report)
    click.echo(f"wrote {output}: mvplda verify a.wav b.wav --model {output}", err=True)
