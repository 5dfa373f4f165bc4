"""Commands that run a whole experiment: experiment and reproduce."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, TypedDict, Unpack

import click

from .options import (
    QUIET,
    KeyValue,
    check_folder,
    extractor_option,
    labels_option,
    parse_value,
    unique_pairs,
)

if TYPE_CHECKING:
    from .options import Pairs, Texts


class ExperimentOptions(TypedDict):
    """Options of the commands experiment and reproduce.

    quiet : show no progress
    root : folder or file of the corpus
    output : folder of the results; None: COMMAND-CORPUS
    config : TOML file with the settings; None: the settings of a recipe
    changes : (name, new value) of single settings, from --set
    vectors : files of existing vectors; empty: vectors are extracted
    systems : names of systems, or of groups of systems, to evaluate
    extractors : names or files of extractors; an option of experiment only
    """

    quiet: bool
    root: Path | None
    output: Path | None
    config: Path | None
    changes: Pairs
    vectors: Texts
    systems: Texts
    extractors: NotRequired[Texts]


class CorpusCommand(click.Command):
    """Command whose help ends with a list of the corpora, with the meaning of ROOT and the options of each."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from ..paper.corpora import CORPORA

        with formatter.section("CORPUS, its ROOT, and its options under -s corpus.NAME=VALUE"):
            formatter.write_dl(
                [
                    (name, f"{entry.root} [{', '.join(entry.options)}]")
                    for name, entry in CORPORA.items()
                ]
            )


def corpus_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add to a command the arguments and options that experiment and reproduce share, see `ExperimentOptions`."""
    for option in (
        QUIET,
        click.option(
            "-s",
            "--set",
            "changes",
            multiple=True,
            type=KeyValue(),
            help="SECTION.NAME=VALUE: change one setting of the recipe, or of the file of --config. May be repeated.",
        ),
        click.option(
            "-c",
            "--config",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Read the settings from this TOML file instead of from a recipe.",
        ),
        click.option(
            "-r",
            "--recipe",
            help="Train a network with the settings of this recipe: small, paper or paper-without-pretraining.  "
            "[default: small; paper for reproduce]",
        ),
        click.option(
            "--vectors",
            multiple=True,
            help="Evaluate existing vectors of the corpus (scp, npz, parquet ...) instead of training a network. "
            "Vectors of several files, one per extractor, are concatenated. May be repeated.",
        ),
        click.option(
            "-o",
            "--output",
            type=click.Path(path_type=Path),
            help="Write all results to this folder; it is created if it does not exist.  [default: COMMAND-CORPUS]",
        ),
        click.argument("root", required=False, type=click.Path(path_type=Path)),
        click.argument("corpus"),
    ):
        command = option(command)
    return command


@click.command("experiment", cls=CorpusCommand)
@corpus_options
@labels_option(
    "VIEW=FILE: read the classes of a view from FILE, such as utt2spk; VIEW=COLUMN: from a column of the file of "
    "vectors. Pass the view of speakers first. Only for the corpus named vectors.  [default: the columns speaker and "
    "phrase, or the files utt2spk and utt2phrase in the same folder]"
)
@extractor_option(required=False)
@click.option(
    "--systems",
    multiple=True,
    help="Evaluate this system, or this group of systems: paper stands for the paper's systems, jplda-interaction and "
    "best; all stands for every system. May be repeated.  [default: cosine, plda-cell, jplda-printed, jplda-exact, "
    "jplda-interaction, plda-prior, jplda-prior and best]",
)
def experiment_command(
    corpus: str, labels: Pairs, recipe: str | None, **options: Unpack[ExperimentOptions]
) -> None:
    """Run an experiment from a corpus to error rates.

    Writes a table of error rates and a report to the output folder.

    \b
    Examples:
      mvplda experiment cvau C-VAU/ --extractor campplus --extractor words -o results
      mvplda experiment audiomnist AudioMNIST/ -o results
      mvplda experiment folder recordings/ -s 'corpus.pattern="{speaker}/{phrase}_{session}.wav"'
      mvplda experiment folder table.csv --vectors xvectors.scp
      mvplda experiment vectors xvectors.scp -l speaker=utt2spk -l phrase=utt2phrase
      mvplda experiment vectors vectors.npz        (with the arrays X, speaker and phrase)

    Set options of the corpus in its section: -s corpus.training=0.7 -s corpus.per_model=3.
    The configuration is saved with the results; the same configuration gives the same table. A trained network is
    saved as extractor.onnx in the output folder and can be used like any other extractor.
    """
    if corpus != "vectors" and labels:
        raise click.UsageError(
            f"--labels applies only to the corpus named vectors; the corpus {corpus} defines its labels itself: leave "
            "--labels out"
        )
    if options["vectors"] and options["extractors"]:
        raise click.UsageError(
            "--vectors and --extractor exclude each other: pass existing vectors, or an extractor that makes them"
        )
    _run("experiment", corpus, recipe or "small", unique_pairs("--labels", labels), options)


@click.command("reproduce", cls=CorpusCommand)
@corpus_options
def reproduce_command(
    corpus: str, recipe: str | None, **options: Unpack[ExperimentOptions]
) -> None:
    """Reproduce the paper's experiment on a corpus.

    The experiment uses 39 cepstral features, 11 stacked frames, six layers of 2048 sigmoid units pre-trained as
    Boltzmann machines, cosine scores, PLDA (speaker x phrase) of rank 40, and joint PLDA of ranks 20 + 20 with 10
    iterations, scored with the mean of three enrolment vectors. The table also has the exact model, the model with
    interaction and the best system.

    The duration of the training is estimated before it starts, and one line per epoch shows its progress. Run the same
    command again to resume after an interruption.

    \b
    Examples:
      mvplda reproduce rsr2015 RSR2015/ -o rsr2015
      mvplda reproduce cvau C-VAU/ -s evaluation.seeds=5

    \b
    Settings where the paper is ambiguous:
      -s backend.e_step=body           E step of the paper's body instead of its appendix
      -s backend.m_step=together       both loadings from one solve instead of one after the other
      -s backend.start=moments         start of EM for all systems: moments or random
                                       (published: random for the published formulas only)
      -s backend.noise=full            full instead of diagonal noise
      -s 'backend.priors=[1, 1, 1]'    p1, p2 and p3
      -s evaluation.seeds=5            several random starts; intervals over speakers and seeds
      -s 'grid.priors=[[1, 1, 1], [1, 1, 100]]' -s 'grid.e_step=["appendix", "body"]'
                                       one row per combination
    """
    options["systems"] = ("paper",)
    _run("reproduce", corpus, recipe or "paper", {}, options)


def _run(
    command: str,
    corpus: str,
    recipe: str,
    labels: dict[str, str],
    options: ExperimentOptions,
) -> None:
    """Run an experiment with the settings of a recipe or a file, changed by the options of the command line.

    command : "experiment" or "reproduce", the start of the default name of the output folder
    labels : source of the labels by view, for the corpus named vectors
    """
    from .._optional import load_entry_points
    from ..paper.corpora import CORPORA, load_corpus
    from ..paper.experiment import run_experiment
    from ..paper.experiment_settings import read_configuration, read_recipe

    output = options["output"] or Path(f"{command}-{corpus}")
    check_folder(output)
    load_entry_points("corpora")
    if corpus not in CORPORA:
        raise click.UsageError(
            f"unknown corpus {corpus!r}; available corpora: {', '.join(CORPORA)}"
        )

    config = options["config"]
    settings = read_configuration(config) if config is not None else read_recipe(recipe, {})
    overrides = {name: parse_value(text) for name, text in options["changes"]}
    if options["systems"]:
        overrides["evaluation.systems"] = list(options["systems"])
    settings = settings.with_changes({"corpus.name": corpus, **overrides})

    corpus_settings = dict(settings.corpus)
    name = str(corpus_settings.pop("name"))
    root = options["root"]
    if root is None:
        raise click.UsageError(f"the corpus {name} needs the argument ROOT: {CORPORA[name].root}")
    if labels:
        corpus_settings["labels"] = labels
    loaded = load_corpus(name, root, **corpus_settings)
    vectors = options["vectors"]
    if loaded.files is None:
        vectors = vectors or (str(root),)
    run_experiment(
        loaded,
        settings,
        output,
        click.echo,
        verbose=not options["quiet"],
        vectors=vectors,
        extractors=options.get("extractors", ()),
        inputs=[root, *vectors],
    )
