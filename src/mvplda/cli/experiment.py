"""mvplda experiment"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import click

from .options import KeyValue, check_folder, once

ROOTS = {
    "audiomnist": "the downloaded repository, or a packed folder with an index.csv",
    "free-spoken-digits": "the downloaded repository",
    "arabic-commands": "the downloaded repository",
    "rsr2015": "the licensed corpus, with sph/ and key/",
    "folder": "a folder of sound files, or a table (.csv, .tsv, .parquet) of paths and labels",
    "synthetic": "where the speech is written; made by espeak-ng if it is not there",
    "vectors": "vectors from elsewhere (scp, npz, parquet ...), their labels given by -l",
}


@click.command(epilog="CORPUS is one of: " + ", ".join(ROOTS) + ".")
@click.argument("corpus", type=click.Choice(list(ROOTS)), metavar="CORPUS")
@click.argument("root", required=False, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Leave everything in this folder, which is made if need be.  [default: experiment-CORPUS]",
)
@click.option(
    "-r",
    "--recipe",
    help="Make vectors by this recipe: modern, small, paper or paper-rbm.  [default: modern; small for synthetic]",
)
@click.option(
    "-c",
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Take the settings from this file (TOML, or JSON by its suffix) in place of a recipe.",
)
@click.option(
    "-s",
    "--set",
    "changes",
    multiple=True,
    type=KeyValue(),
    help="SECTION.NAME=VALUE: change one setting of the recipe or the file; may be repeated.",
)
@click.option(
    "-l",
    "--labels",
    multiple=True,
    type=KeyValue(),
    help="VIEW=FILE: read the classes of a view from FILE, such as utt2spk, the speaker first. "
    "Only the corpus vectors needs it.",
)
@click.option(
    "--vectors", help="Judge these vectors of the corpus (scp, npz, parquet ...), and train no network for others."
)
@click.option("--extractor", help="Make the vectors with this extractor, which is trained already.")
@click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep features in this folder, so that the next run need not make them.  [default: OUTPUT/features]",
)
@click.option(
    "--workers", type=click.IntRange(min=1), help="Make features in so many processes.  [default: one a core]"
)
@click.option("--strict", is_flag=True, help="Stop at the first sound file that cannot be used, and do not skip it.")
@click.option("--no-report", is_flag=True, help="Write tables only, and no page with pictures.")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress; tables and warnings are still shown.")
def experiment(
    corpus: str,
    root: Path | None,
    output: Path | None,
    recipe: str | None,
    config: Path | None,
    changes: tuple[tuple[str, str], ...],
    labels: tuple[tuple[str, str], ...],
    vectors: str | None,
    extractor: str | None,
    cache: Path | None,
    workers: int | None,
    strict: bool,
    no_report: bool,
    quiet: bool,
) -> None:
    """From a corpus to the table: extractor, vectors, every system, error rates, a page.

    \b
    Examples:
      mvplda experiment synthetic
      mvplda experiment audiomnist AudioMNIST/ -o results
      mvplda experiment audiomnist AudioMNIST/ --recipe paper -o results-paper
      mvplda experiment folder recordings/ -s 'corpus.pattern="{speaker}/{phrase}_{session}.wav"'
      mvplda experiment folder table.csv --vectors xvectors.scp
      mvplda experiment vectors xvectors.scp -l speaker=utt2spk -l phrase=utt2phrase

    Options of the corpus go under its section: -s corpus.training=0.7 -s corpus.per_model=3.
    The configuration is saved with the results; the same configuration gives the same table.
    """
    from ..datasets import corpus_of_vectors, load_corpus
    from ..exceptions import MvpldaError, ParameterError
    from ..experiment.configuration import read_configuration, read_recipe
    from ..experiment.run import run_experiment
    from ..io.vectors import read_vectors

    if corpus == "vectors" and not labels:
        raise click.UsageError("vectors need labels: -l speaker=utt2spk -l phrase=utt2phrase")
    if corpus != "vectors" and labels:
        raise click.UsageError(f"-l is for the corpus vectors; {corpus} has its own labels")
    if corpus == "vectors" and (vectors is not None or extractor is not None):
        raise click.UsageError("the corpus vectors has its vectors in ROOT: leave out --vectors and --extractor")
    if vectors is not None and extractor is not None:
        raise click.UsageError("--vectors are ready, --extractor makes them: give one of the two")
    if recipe is not None and config is not None:
        raise click.UsageError("give a recipe or a configuration file, not both")
    output = output or Path(f"experiment-{corpus}")
    check_folder(output)
    if root is None:
        if corpus != "synthetic":
            raise click.UsageError(f"{corpus} needs its ROOT: {ROOTS[corpus]}")
        root = output / "speech"
    if config is not None:
        settings = read_configuration(config, corpus=corpus)
    else:
        usual = "small" if corpus == "synthetic" else "modern"
        settings = read_recipe(recipe or usual, {"name": corpus})
    found: dict[str, Any] = {name: _value(text) for name, text in changes}
    try:
        settings = settings.with_changes(found)
    except MvpldaError:
        raise
    except (TypeError, AttributeError, ValueError) as error:
        raise ParameterError(f"the settings given by -s do not fit: {error}") from error
    if settings.corpus["name"] != corpus:
        raise click.UsageError(f"{config or '-s'} is for the corpus {settings.corpus['name']!r}, not {corpus!r}")
    options = {name: value for name, value in settings.corpus.items() if name != "name"}
    if corpus == "synthetic" and not quiet:
        options["progress"] = True
    try:
        if corpus == "vectors":
            vectors = str(root)
            loaded = corpus_of_vectors(read_vectors(vectors).ids, once("--labels", labels), **options)
        else:
            loaded = load_corpus(corpus, root, **options)
    except MvpldaError:
        raise
    except (TypeError, AttributeError) as error:
        given = ", ".join(f"{name}={value!r}" for name, value in options.items())
        raise ParameterError(f"options of {corpus} are of another type than expected ({given}): {error}") from error
    run_experiment(
        loaded,
        settings,
        output,
        vectors=vectors,
        extractor=extractor,
        cache=cache or output / "features",
        workers=workers,
        on_error="raise" if strict else "skip",
        report=not no_report,
        progress=not quiet,
        say=click.echo,
    )


def _value(text: str) -> Any:
    """A TOML value; what is none is text."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text
