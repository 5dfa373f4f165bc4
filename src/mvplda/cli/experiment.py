"""Commands that run everything: experiment and reproduce."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import QUIET, KeyValue, check_folder, labels_option, once, plain_value
from .extractors import extractor_option

if TYPE_CHECKING:
    from . import Pairs, Texts


class CorpusCommand(click.Command):
    """Shows the corpora of the registry below its help: what each is read from, and its options."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from ..speech.corpora import CORPORA

        with formatter.section("CORPUS, its ROOT, and its options under -s corpus.NAME=VALUE"):
            formatter.write_dl(
                [(name, f"{e.root} [{', '.join(e.options)}]") for name, e in CORPORA.items()]
            )


def corpus_options(command: Callable[..., None]) -> Callable[..., None]:
    """A corpus, its root, how vectors are made of it, and where all is left."""
    for option in (
        QUIET,
        click.option(
            "-s",
            "--set",
            "changes",
            multiple=True,
            type=KeyValue(),
            help="SECTION.NAME=VALUE: change one setting of the recipe or the file; may be repeated.",
        ),
        click.option(
            "-c",
            "--config",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Take the settings from this TOML file in place of a recipe.",
        ),
        click.option(
            "-r",
            "--recipe",
            help="Train a network by this recipe: small, paper or paper-without-pretraining.  "
            "[default: small; paper for reproduce]",
        ),
        click.option(
            "--vectors",
            multiple=True,
            help="Evaluate these vectors of the corpus (scp, npz, parquet ...), and train no network. Several files "
            "are several extractors' vectors, side by side.",
        ),
        click.option(
            "-o",
            "--output",
            type=click.Path(path_type=Path),
            help="Leave everything in this folder, which is made if need be.  [default: COMMAND-CORPUS]",
        ),
        click.argument("root", required=False, type=click.Path(path_type=Path)),
        click.argument("corpus"),
    ):
        command = option(command)
    return command


@click.command(cls=CorpusCommand)
@corpus_options
@labels_option(
    "VIEW=FILE: read the classes of a view from FILE, such as utt2spk, or from a column beside the vectors, the "
    "speaker first. Only for the corpus vectors.  [default: the columns speaker and phrase, or utt2spk and utt2phrase "
    "beside the vectors]"
)
@extractor_option(required=False)
@click.option(
    "--systems",
    multiple=True,
    help="Evaluate these systems, by name; paper stands for the paper's own and what does better, all for all. "
    "May be repeated.  [default: the usual ones]",
)
def experiment(corpus: str, labels: Pairs, recipe: str | None, **options: Any) -> None:
    """From a corpus to the table: extractor, vectors, every system, error rates, a page.

    \b
    Examples:
      mvplda experiment cvau C-VAU/ --extractor campplus --extractor words -o results
      mvplda experiment audiomnist AudioMNIST/ -o results
      mvplda experiment folder recordings/ -s 'corpus.pattern="{speaker}/{phrase}_{session}.wav"'
      mvplda experiment folder table.csv --vectors xvectors.scp
      mvplda experiment vectors xvectors.scp -l speaker=utt2spk -l phrase=utt2phrase
      mvplda experiment vectors vectors.npz        (with the arrays X, speaker and phrase)

    Options of the corpus go under its section: -s corpus.training=0.7 -s corpus.per_model=3.
    The configuration is saved with the results; the same configuration gives the same table. A network that was
    trained is extractor.onnx in the folder of the results, an extractor like any other.
    """
    if corpus != "vectors" and labels:
        raise click.UsageError(f"-l is for the corpus vectors; {corpus} has its own labels")
    if options["vectors"] and options["extractors"]:
        raise click.UsageError("--vectors are ready, --extractor makes them: give one of the two")
    _run("experiment", corpus, recipe or "small", once("--labels", labels), **options)


@click.command(cls=CorpusCommand)
@corpus_options
def reproduce(corpus: str, recipe: str | None, **options: Any) -> None:
    """The paper's experiment as published, from sound to its table, on a corpus.

    39 cepstral features, 11 frames, six layers of 2048 sigmoid units pre-trained as Boltzmann machines, cosine, PLDA
    (speaker x phrase) of rank 40, joint PLDA of ranks 20 + 20, 10 iterations, the mean of three enrolments; below
    them the exact model, the interaction and the best system.

    A line for every epoch shows how long the training will take; the same command goes on after an interruption.

    \b
    Examples:
      mvplda reproduce rsr2015 RSR2015/ -o rsr2015
      mvplda reproduce cvau C-VAU/ -s evaluation.seeds=5

    \b
    Readings that the paper leaves open:
      -s backend.e_step=body           the E step of the paper's body, in place of its appendix's
      -s backend.m_step=together       both loadings from one solve, in place of one after the other
      -s backend.start=moments         of EM for all systems alike, or random (published: random for its formulas alone)
      -s backend.noise=full            in place of a diagonal noise
      -s 'backend.priors=[1, 1, 1]'    p1, p2 and p3
      -s evaluation.seeds=5            random starts; intervals over speakers and seeds
      -s 'grid.priors=[[1, 1, 1], [1, 1, 100]]' -s 'grid.e_step=["appendix", "body"]'
                                       a row for every combination
    """
    _run("reproduce", corpus, recipe or "paper", {}, systems=("paper",), **options)


def _run(
    command: str,
    corpus: str,
    recipe: str,
    labels: dict[str, str],
    *,
    quiet: bool,
    root: Path | None,
    output: Path | None,
    config: Path | None,
    changes: Sequence[tuple[str, str]],
    vectors: Texts,
    systems: Texts,
    extractors: Texts = (),
) -> None:
    """What experiment and reproduce share: everything but the configuration."""
    from .._optional import load_entry_points
    from ..speech.corpora import CORPORA, load_corpus
    from ..speech.experiment import run_experiment
    from ..speech.settings import read_configuration, read_recipe

    output = output or Path(f"{command}-{corpus}")
    check_folder(output)
    load_entry_points("corpora")
    if corpus not in CORPORA:
        raise click.UsageError(f"there is no corpus {corpus!r}; there are {', '.join(CORPORA)}")
    settings = read_configuration(config) if config is not None else read_recipe(recipe, {})
    given = {name: plain_value(text) for name, text in changes}
    if systems:
        given["evaluation.systems"] = list(systems)
    settings = settings.with_changes({"corpus.name": corpus, **given})
    options = dict(settings.corpus)
    name = options.pop("name")
    if root is None:
        raise click.UsageError(f"{name} needs its ROOT: {CORPORA[name].root}")
    if labels:
        options["labels"] = labels
    loaded = load_corpus(name, root, **options)
    if loaded.clips is None:
        vectors = vectors or (str(root),)
    run_experiment(
        loaded,
        settings,
        output,
        click.echo,
        verbose=not quiet,
        vectors=vectors,
        extractors=extractors,
        inputs=[root, *vectors],
    )
