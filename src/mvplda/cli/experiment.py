"""Commands that run everything: experiment, demo, study."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import click

from . import SEED, KeyValue, Registered, check_folder, once


class CorpusCommand(click.Command):
    """Shows the corpora of the registry below its help: what each is read from, and its options."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from ..speech.corpora import CORPORA

        with formatter.section("CORPUS, its ROOT, and its options under -s corpus.NAME=VALUE"):
            formatter.write_dl(
                [(name, f"{e.root} [{', '.join(e.options)}]") for name, e in CORPORA.items()]
            )


@click.command(cls=CorpusCommand)
@click.argument("corpus", type=Registered("corpus", "speech.corpora.CORPORA"), metavar="CORPUS")
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
    help="VIEW=FILE: read the classes of a view from FILE, such as utt2spk, or from a column beside the vectors, the "
    "speaker first. Only for the corpus vectors.  [default: the columns speaker and phrase, or utt2spk and utt2phrase "
    "beside the vectors]",
)
@click.option(
    "--vectors",
    multiple=True,
    help="Judge these vectors of the corpus (scp, npz, parquet ...), and train no network for others. Several files "
    "are several extractors' vectors, side by side: best has experts of each.",
)
@click.option(
    "-x",
    "--extractor",
    multiple=True,
    help="Make the vectors with this extractor, which is trained already: a name such as campplus, a file, or train, "
    "which is a network trained on the corpus. Several stand side by side.",
)
@click.option(
    "--systems",
    multiple=True,
    help="Judge these systems, by name; paper stands for the paper's own on raw and on reduced vectors, and what does "
    "better. May be repeated.  [default: the usual ones]",
)
@click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep features in this folder, so that the next run need not make them.  [default: OUTPUT/features]",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Make features in so many processes.  [default: one a core]",
)
@click.option(
    "--on-error",
    type=click.Choice(["raise", "skip"]),
    default="skip",
    help="Stop at a sound file that cannot be used, or name it and go on without it.",
)
@click.option("--no-report", is_flag=True, help="Write tables only, and no page with pictures.")
@click.option(
    "-q", "--quiet", is_flag=True, help="Print no progress; tables and warnings are still shown."
)
def experiment(
    corpus: str,
    root: Path | None,
    output: Path | None,
    recipe: str | None,
    config: Path | None,
    changes: tuple[tuple[str, str], ...],
    labels: tuple[tuple[str, str], ...],
    vectors: tuple[str, ...],
    extractor: tuple[str, ...],
    systems: tuple[str, ...],
    cache: Path | None,
    workers: int | None,
    on_error: str,
    no_report: bool,
    quiet: bool,
) -> None:
    """From a corpus to the table: extractor, vectors, every system, error rates, a page.

    \b
    Examples:
      mvplda experiment synthetic
      mvplda experiment audiomnist AudioMNIST/ -o results
      mvplda experiment audiomnist AudioMNIST/ --recipe paper --systems paper -o results-paper
      mvplda experiment folder recordings/ -s 'corpus.pattern="{speaker}/{phrase}_{session}.wav"'
      mvplda experiment folder table.csv --vectors xvectors.scp
      mvplda experiment audiomnist AudioMNIST/ --extractor campplus --extractor words
      mvplda experiment vectors xvectors.scp -l speaker=utt2spk -l phrase=utt2phrase
      mvplda experiment vectors vectors.npz        (with the arrays X, speaker and phrase)

    Options of the corpus go under its section: -s corpus.training=0.7 -s corpus.per_model=3.
    The configuration is saved with the results; the same configuration gives the same table.
    """
    from ..exceptions import MvpldaError, ParameterError
    from ..speech.corpora import CORPORA, load_corpus
    from ..speech.experiment.configuration import read_configuration, read_recipe
    from ..speech.experiment.run import run_experiment

    if corpus != "vectors" and labels:
        raise click.UsageError(f"-l is for the corpus vectors; {corpus} has its own labels")
    if corpus == "vectors" and (vectors or extractor):
        raise click.UsageError(
            "the corpus vectors has its vectors in ROOT: leave out --vectors and --extractor"
        )
    if vectors and extractor:
        raise click.UsageError("--vectors are ready, --extractor makes them: give one of the two")
    if recipe is not None and config is not None:
        raise click.UsageError("give a recipe or a configuration file, not both")
    output = output or Path(f"experiment-{corpus}")
    check_folder(output)
    if root is None:
        if corpus != "synthetic":
            raise click.UsageError(f"{corpus} needs its ROOT: {CORPORA[corpus].root}")
        root = output / "speech"
    if config is not None:
        settings = read_configuration(config, corpus=corpus)
    else:
        usual = "small" if corpus == "synthetic" else "modern"
        settings = read_recipe(recipe or usual, {"name": corpus})
    named = {"evaluation.systems": list(systems)} if systems else {}
    settings = settings.with_changes({**{name: _value(text) for name, text in changes}, **named})
    if settings.corpus["name"] != corpus:
        raise click.UsageError(
            f"{config or '-s'} is for the corpus {settings.corpus['name']!r}, not {corpus!r}"
        )
    options = {name: value for name, value in settings.corpus.items() if name != "name"}
    if "verbose" in CORPORA[corpus].options:
        options.setdefault("verbose", not quiet)
    if corpus == "vectors":
        vectors, options["labels"] = (str(root),), once("--labels", labels) or None
    try:
        loaded = load_corpus(corpus, root, **options)
    except MvpldaError:
        raise
    except (TypeError, AttributeError) as error:
        given = ", ".join(f"{name}={value!r}" for name, value in options.items())
        raise ParameterError(
            f"options of {corpus} are of another type than expected ({given}): {error}"
        ) from error
    run_experiment(
        loaded,
        settings,
        output,
        vectors=vectors or None,
        extractor=extractor or None,
        cache=cache or output / "features",
        workers=workers,
        on_error=on_error,
        report=not no_report,
        verbose=not quiet,
        say=click.echo,
    )


def _value(text: str) -> Any:
    """A TOML value; what is none is text."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


NEXT = """
What next (after `. .venv/bin/activate`, where make installed it):
  look at the page              {output}/report.html
  look inside the best model    mvplda info {output}/model.safetensors
  your own recordings           mvplda experiment folder recordings/   (<speaker>/<phrase>/<anything>.wav)
  vectors from elsewhere        mvplda experiment vectors xvectors.scp -l speaker=utt2spk -l phrase=utt2phrase
  real speech                   mvplda experiment audiomnist AudioMNIST/   (a download of 1 GB)
  vectors of new recordings     mvplda jvector extract {output}/extractor.safetensors recordings/ -o vectors.npz
  their scores                  mvplda score {output}/model.safetensors --help
  a voice log-in to try         make serve, or mvplda serve --people 4 --browse   (http://127.0.0.1:8765/)"""


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
@click.option(
    "-q", "--quiet", is_flag=True, help="Print no progress; tables and warnings are still shown."
)
def demo(output: Path, seed: int, quiet: bool) -> None:
    """Synthetic speakers say pass-phrases; a network is trained; every system is judged; a page shows it.

    Takes two minutes on two cores. The same as: mvplda experiment synthetic -o demo-output
    """
    from ..speech.corpora import load_corpus
    from ..speech.experiment.configuration import read_recipe
    from ..speech.experiment.run import run_experiment

    check_folder(output)
    settings = read_recipe("small", {"name": "synthetic", "random_state": seed})
    settings = settings.with_changes({"training.random_state": seed, "backend.random_state": seed})
    click.echo(
        "50 synthetic speakers say 8 pass-phrases 8 times each, in noise, in rooms, over channels ..."
    )
    corpus = load_corpus("synthetic", output / "speech", random_state=seed, verbose=not quiet)
    run_experiment(
        corpus, settings, output, cache=output / "features", verbose=not quiet, say=click.echo
    )
    click.echo(NEXT.format(output=output))


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


SESSIONS = click.option(
    "--sessions",
    type=click.IntRange(min=4),
    default=9,
    help="Draw so many vectors a speaker and phrase; the paper's second corpus has 20.",
)
TESTS = click.option(
    "--tests",
    type=click.IntRange(min=1),
    default=2,
    help="Test with at most so many vectors of an unseen speaker and phrase, beside the three that enrol.",
)


@study.command()
@SESSIONS
@TESTS
@OUTPUT
@SEED_OPTION
def drawn(sessions: int, tests: int, output: Path, seed: int) -> None:
    """Vectors drawn from a known model: what every system reaches, the true parameters included.

    132 speakers train and 70 others are tested, all with the same 20 phrases, as in the paper's second corpus.

    \b
    Examples:
      mvplda study drawn -o study
      mvplda study drawn --sessions 20 --tests 17
    """
    from ..speech.experiment.ablations import study_drawn

    check_folder(output)
    study_drawn(output, sessions=sessions, tests=tests, random_state=seed, say=click.echo)


TWO_VIEWS = click.option(
    "-l",
    "--labels",
    multiple=True,
    type=KeyValue(),
    help="VIEW=FILE: read the classes of a view of VECTORS from FILE, such as utt2spk; the speaker first, then the "
    "phrase, the language or another condition.",
)
PROTOCOL = click.option(
    "-s",
    "--set",
    "changes",
    multiple=True,
    type=KeyValue(),
    help="NAME=VALUE: change one option of the protocol of VECTORS, such as training=40; may be repeated.",
)


@study.command()
@click.argument("vectors", required=False)
@TWO_VIEWS
@PROTOCOL
@OUTPUT
@SEED_OPTION
def ablations(
    vectors: str | None,
    labels: tuple[tuple[str, str], ...],
    changes: tuple[tuple[str, str], ...],
    output: Path,
    seed: int,
) -> None:
    """One setting of the paper's systems at a time: ranks, iterations, priors, enrolment, reduction, views.

    Without VECTORS, on those of `mvplda study drawn`. Every other setting is the paper's: 20 latents a view,
    10 iterations, equal priors, profiles of three vectors, and the vectors as they are.

    \b
    Examples:
      mvplda study ablations -o study
      mvplda study ablations vectors.npz -l speaker=utt2spk -l phrase=utt2phrase -s training=40
    """
    from ..speech.experiment.ablations import study_ablations
    from ..speech.experiment.systems import BackendSettings

    check_folder(output)
    task, _ = _drawn_or_given(vectors, labels, changes, (9, 2, seed))
    study_ablations(task, output, BackendSettings(reduce=None, random_state=seed), say=click.echo)


@study.command()
@click.argument("images", type=click.Path(exists=True, path_type=Path))
@OUTPUT
@SEED_OPTION
def faces(images: Path, output: Path, seed: int) -> None:
    """Person, pose, expression and eyes in IMAGES: how much each explains; who it is, in any pose and in a given one.

    IMAGES is the folder of CMU Face Images as it is unpacked, or an .npz of it.

    Example: mvplda study faces faces/ -o study
    """
    from ..speech.experiment.studies import study_faces

    check_folder(output)
    study_faces(images, output, random_state=seed, say=click.echo)


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
@click.option(
    "--verify", required=True, help="Ask whether two vectors are of one class of this view."
)
@click.option("--ignore", required=True, help="Keep this view from mattering.")
@click.option(
    "--keep",
    multiple=True,
    type=click.IntRange(min=1),
    help="Train with so many ignored classes a verified class; may be repeated.  "
    "[default: all, half of them, two and one]",
)
@click.option(
    "--components",
    type=click.IntRange(min=1),
    default=150,
    help="Keep so many principal components of the vectors.",
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
    from ..io.files import read_labels
    from ..io.vectors import read_vectors
    from ..report import figure, pictures_where_possible, save_figure
    from ..speech.experiment.studies import draw_errors, study_nuisance

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
        random_state=seed,
        say=click.echo,
    )
    output.mkdir(parents=True, exist_ok=True)
    click.echo("\n" + result.table())
    (output / "nuisance.txt").write_text(result.table() + "\n", encoding="utf-8")
    with pictures_where_possible():
        fig, axes = figure(6.5, 5)
        draw_errors(axes, result)
        click.echo(f"\nwrote {save_figure(fig, output / 'nuisance.png')}")


@study.command()
@click.argument("vectors", required=False)
@TWO_VIEWS
@PROTOCOL
@click.option(
    "--draws",
    type=click.IntRange(min=1),
    default=3,
    help="Draw so many times which training speakers are heard in what, and show means.",
)
@click.option(
    "--workers", type=click.IntRange(min=1), default=1, help="Judge so many draws at a time."
)
@OUTPUT
@SEED_OPTION
def languages(
    vectors: str | None,
    labels: tuple[tuple[str, str], ...],
    changes: tuple[tuple[str, str], ...],
    draws: int,
    workers: int,
    output: Path,
    seed: int,
) -> None:
    """Train on speakers of whom few or none are heard in two conditions: models of both views against PLDA.

    Without VECTORS, on vectors drawn from a known model. A third of the speakers is not trained on, and judged
    within a condition and across.

    \b
    Examples:
      mvplda study languages -o study
      mvplda study languages vectors.npz -l speaker=utt2spk -l language=utt2lang
    """
    from ..speech.experiment.languages import SIZES, study_languages

    check_folder(output)
    task, truth = _drawn_or_given(vectors, labels, changes, (10, 7, seed, SIZES))
    study_languages(task, output, drawn=truth, draws=draws, workers=workers, say=click.echo)


def _drawn_or_given(
    vectors: str | None,
    labels: tuple[tuple[str, str], ...],
    changes: tuple[tuple[str, str], ...],
    drawn: Any,
) -> tuple[Any, Any]:
    """The task of vectors with labels of two views, and None; without vectors that of a known model, and this."""
    from ..speech.corpora import load_corpus
    from ..speech.experiment.ablations import drawn_task
    from ..speech.experiment.task import Task

    if vectors is None:
        if labels or changes:
            raise click.UsageError("-l and -s are for VECTORS, which are missing")
        return drawn_task(*drawn)
    from ..io.vectors import read_vectors

    options = {name: _value(text) for name, text in changes}
    corpus = load_corpus("vectors", vectors, labels=once("--labels", labels), **options)
    task = Task.of(corpus, read_vectors(vectors))
    if len(task.views) != 2:
        raise click.UsageError(f"this study has two views; got {', '.join(task.views)}")
    return task, None
