"""Commands that make models: stats, train, adapt, normalise, enrol."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click
from click.core import ParameterSource

from . import (
    MODELS,
    KeyValue,
    Number,
    Registered,
    labels_option,
    load_bundle,
    once,
    output_option,
    read_seconds,
    seed_option,
    warnings_as_lines,
)
from .score import enrolled_profiles, read_side


@click.command()
@click.argument("vectors")
@labels_option(
    "VIEW=FILE: read the classes of a view from FILE, such as utt2spk (vector id, class); a vector that FILE does "
    "not list has no label in that view. VIEW=COLUMN: take them from a column beside the vectors (an array of an .npz, "
    "a column of a table).  [default: the column called like the view, or utt2spk, utt2VIEW beside the vectors] "
    "Statistics have their own."
)
@click.option(
    "-v",
    "--view",
    "views",
    multiple=True,
    type=KeyValue(bare="full"),
    help="VIEW=RANK: model this view with so many dimensions; VIEW alone: with as many as its classes allow; "
    "VIEW=auto: choose on held-out classes. "
    "A:B is the interaction of A and B and needs no labels of its own. With --prior a rank is full, and the views that "
    "have labels and their interaction are modelled if none is named.",
)
@click.option(
    "--model",
    "name",
    type=Registered("model", "models.SCORERS"),
    default="multiview",
    help="Train this kind of model: multiview models all views together; plda models one view; cascade has a PLDA for "
    "every view and fuses their scores; cosine takes the angle between vectors, and needs neither views nor labels.",
)
@click.option(
    "--fuse",
    is_flag=True,
    help="Train a committee: for the vectors of every extractor two models of all views under the isotropic prior, and "
    "the cosine, weighed and calibrated by classes that are held out. For few classes and vectors of strong networks; "
    "it needs labels, the first of those whose classes will be new, and nothing else.",
)
@click.option(
    "--block",
    "blocks",
    multiple=True,
    type=KeyValue(),
    help="NAME=WIDTH: so many columns are this extractor's, where VECTORS are several extractors' side by side, in "
    "their order. For --fuse.",
)
@click.option(
    "--enrolment",
    type=click.IntRange(min=1),
    default=1,
    help="Weigh the experts of --fuse by trials whose profiles are of so many vectors, as yours will "
    "be.",
)
@click.option(
    "--prior",
    metavar="STRENGTH",
    help="Draw all covariances towards isotropic ones, for few classes: 0 does not, 1 ranks like the cosine, and "
    "auto lets held-out classes choose; VIEW=STRENGTH,...,noise=STRENGTH is one for each. Vectors are centred and "
    "scaled to unit length, unless you say how; those behind statistics are taken as they are.",
)
@click.option(
    "--no-centre",
    is_flag=True,
    help="Leave the mean of the training vectors in, for --model cosine.",
)
@output_option("Write the model to this file.")
@click.option(
    "--noise",
    type=click.Choice(["diagonal", "full", "isotropic"]),
    default="diagonal",
    help="Give what no view explains a covariance of this shape; full fits best and needs the most vectors.",
)
@click.option(
    "--shrinkage",
    help="Mix this share of the total variance, from 0 to below 1, into the noise, which steadies it where classes "
    "are few; auto chooses the share on held-out classes.  [default: 0; auto where a rank is auto]",
)
@click.option(
    "--reduce",
    type=click.IntRange(min=1),
    help="Keep only so many principal components of the vectors, whitened.",
)
@click.option(
    "--whiten", is_flag=True, help="Give the vectors zero mean and unit covariance first."
)
@click.option(
    "--length-norm", is_flag=True, help="Scale all vectors to one length, after whitening."
)
@click.option(
    "--iterations",
    type=click.IntRange(min=1),
    default=100,
    help="Stop after this many EM iterations at the latest.",
)
@click.option(
    "--tolerance",
    type=Number(min=0),
    default=1e-3,
    help="Stop when an iteration raises the log-likelihood by less than this, in nats a vector.",
)
@click.option(
    "--algorithm",
    type=click.Choice(["auto", "exact", "variational", "paper"]),
    default="auto",
    help="Solve the model by this algorithm. exact refuses what does not fit in memory; variational maximises a lower "
    "bound, for two views with many classes each; auto takes exact where that is quick, else variational; paper uses "
    "the formulas as printed in arXiv 1704.06061.",
)
@click.option(
    "--folds",
    type=click.IntRange(min=2),
    default=5,
    help="Hold classes out in so many folds, where a rank or the shrinkage is auto.",
)
@click.option(
    "--criterion",
    type=click.Choice(["likelihood", "cllr"]),
    default="cllr",
    help="Choose an auto rank or shrinkage by the likelihood of held-out classes, or by the cost of their scores.",
)
@click.option(
    "--durations",
    help="Read the seconds of speech behind every vector from this file (id, seconds, as in utt2dur), and learn on "
    "held-out classes how far vectors of short utterances are noisier; `mvplda score` then takes --durations, too.",
)
@seed_option("Draw the start and the folds with this seed; the same seed gives the same model.")
@click.option(
    "-q",
    "--quiet",
    is_flag=True,
    help="Print neither progress nor a summary; warnings are still shown.",
)
def train(
    vectors: str,
    labels: tuple[tuple[str, str], ...],
    views: tuple[tuple[str, str], ...],
    name: str,
    fuse: bool,
    blocks: tuple[tuple[str, str], ...],
    enrolment: int,
    prior: str | None,
    no_centre: bool,
    output: str,
    shrinkage: str | None,
    reduce: int | None,
    whiten: bool,
    length_norm: bool,
    folds: int,
    criterion: Any,
    durations: str | None,
    seed: int,
    quiet: bool,
    **fit: Any,
) -> None:
    """Fit a model to VECTORS (scp, ark, npy, npz, parquet, arrow, h5) and labels, or to a file of mvplda stats.

    A summary of the data and of the fit goes to standard error: classes, cells filled, which algorithm was used and,
    of a bound, about how far it lies below the log-likelihood.

    \b
    Examples:
      mvplda train xvector.scp -l speaker=utt2spk -l phrase=utt2phrase -v speaker=100 -v phrase=20 -o model.safetensors
      mvplda train x.npz -v speaker=auto -v phrase=auto -v speaker:phrase=auto --noise full --whiten --length-norm \\
          -o model.safetensors        (x.npz has the arrays X, speaker and phrase)
      mvplda train stats.safetensors -v speaker=100 -v channel=50 --algorithm variational -o model.safetensors
      mvplda train vectors.npz -l speaker=utt2spk -l phrase=utt2phrase --fuse --block campplus=192 --block words=288 \\
          --enrolment 3 -o model.safetensors
      mvplda train campplus.npz -l speaker=utt2spk -l phrase=utt2phrase --prior auto -o model.safetensors
      mvplda train xvector.scp --model plda -l speaker=utt2spk -v speaker=150 -o plda.safetensors
      mvplda train xvector.scp --model cosine -o cosine.safetensors
    """
    from ..bundle import Bundle
    from ..exceptions import DataError
    from ..io.vectors import read_vectors
    from ..models import SCORERS
    from ..preprocessing import standard_chain, unit_chain
    from ..statistics.record import holds_statistics, load_with_sources

    kind, gathered = SCORERS[name], holds_statistics(vectors)
    if fuse and gathered:
        raise click.UsageError(
            "--fuse weighs experts by trials between vectors, which statistics do not hold"
        )
    if fuse:
        _train_committee(vectors, labels, blocks, enrolment, output, quiet)
        return
    if blocks or _given("enrolment"):
        raise click.UsageError("--block and --enrolment are for --fuse")
    ranks: dict[str, Any] = {view: _rank(value) for view, value in once("--view", views).items()}
    if prior is not None:
        if (
            name != "multiview"
            or any(isinstance(rank, int) for rank in ranks.values())
            or _given("noise", "shrinkage")
        ):
            raise click.UsageError(
                "--prior is for multiview, makes every rank full and the noise with it: leave ranks, --noise and "
                "--shrinkage out, or name views without a rank"
            )
        if gathered and prior == "auto":
            raise click.UsageError(
                "--prior auto holds classes out, which needs vectors: train on some of them, and give the strengths "
                "that it finds, as --prior VIEW=STRENGTH,...,noise=STRENGTH"
            )
        own = [view for view, _ in labels]
        every = (
            load_with_sources(vectors)[0].views
            if gathered
            else [*own, ":".join(own)]
            if len(own) > 1
            else own
        )
        ranks = dict.fromkeys(ranks or every)
    automatic = "auto" in ranks.values() or shrinkage == "auto"
    if automatic and name != "multiview":
        raise click.UsageError(
            f"--model {name} has its ranks and shrinkage from you: auto is for multiview"
        )
    if automatic and fit["algorithm"] == "paper":
        raise click.UsageError(
            "--algorithm paper has nothing to choose: give ranks, and no --shrinkage auto"
        )
    share = 0.0 if shrinkage in (None, "auto") else _share(str(shrinkage))
    settings: dict[str, Any] = {LIBRARY[option]: value for option, value in fit.items()}
    settings |= {"noise_shrinkage": share, "random_state": seed, "verbose": 0 if quiet else 1}
    if prior is not None:
        settings |= {
            "prior": "isotropic",
            "prior_strength": _strengths(prior),
        }
    if no_centre and name != "cosine":
        raise click.UsageError("--no-centre is for --model cosine")
    if not kind.NEEDS_LABELS:
        foreign = _given("views", "labels", "shrinkage", *LIBRARY)
        if foreign:
            raise click.UsageError(
                f"--model {name} takes vectors alone: leave out {', '.join(foreign)}"
            )
        settings = {"centre": False} if no_centre else {}
    elif not ranks:
        raise click.UsageError("name the views: --view speaker=100")
    if gathered and not hasattr(kind, "fit_statistics"):
        raise click.UsageError(f"--model {name} needs vectors: it cannot be fitted to statistics")
    if gathered and (automatic or labels or reduce is not None or whiten or length_norm):
        raise click.UsageError(
            "statistics hold no vectors: leave out --labels, --reduce, --whiten, --length-norm and auto"
        )
    check_used(once("--labels", labels), ranks)
    if durations is not None and (gathered or automatic or name != "multiview"):
        raise click.UsageError(
            "--durations is for --model multiview, vectors, and ranks that are not auto"
        )
    model: Any
    if gathered:
        model = kind.with_ranks(ranks, settings)
        statistics, about = load_with_sources(vectors)
        model.fit_statistics(statistics)
        bundle = Bundle(None, model, extractor=(about or {}).get("extractor"))
    else:
        table: Any = None
        if kind.NEEDS_LABELS:
            data, table = _labelled(
                vectors, once("--labels", labels), ranks, named=durations is not None
            )
        else:
            data = read_vectors(vectors, named=False)
        if len(data) < 2:
            raise DataError(
                f"{vectors} holds one vector: a model is trained on several of every class"
            )
        chain = None
        if reduce is not None or whiten or length_norm:
            whitening: Any = "pca" if whiten or reduce is not None else None
            chain = standard_chain(
                reduce, whitening=whitening, length="sqrt" if length_norm else None
            )
        elif prior is not None:
            chain = unit_chain()
        X = data.X if chain is None else chain.fit_transform(data.X, table)
        if automatic:
            from ..models.search import MultiviewPLDACV

            tried: dict[str, Any] = (
                {} if shrinkage in (None, "auto") else {"noise_shrinkages": (share,)}
            )
            tried |= {
                "model": kind.with_ranks({}, settings),
                "random_state": seed,
                "verbose": settings["verbose"],
            }
            model = (
                MultiviewPLDACV(ranks, cv=folds, criterion=criterion, **tried).fit(X, table).model_
            )
        else:
            model = kind.with_ranks(ranks, settings)
        bundle = Bundle(None, model, extractor=data.extractor)
        if not automatic:
            seconds = {} if durations is None else {"seconds": read_seconds(durations, data.ids)}
            bundle.fit(X, table, **seconds)
        bundle.preprocessing = chain
    bundle.save(output)
    if not quiet:
        if bundle.durations is not None:
            a, b = bundle.durations.a, bundle.durations.b
            click.echo(
                f"mvplda: the noise of a vector of t seconds is {a:.2f} + {b:.3f} / t times the model's",
                err=True,
            )
        if prior is not None:
            told = ",".join(
                f"{view}={strength:g}" for view, strength in model.prior_strength_.items()
            )
            click.echo(f"mvplda: the prior's strengths are {told}", err=True)
        for part in getattr(model, "models_", {"": model}).values():
            if hasattr(part, "diagnostics_"):
                click.echo(str(part.diagnostics_), err=True)


def _train_committee(
    vectors: str,
    labels: tuple[tuple[str, str], ...],
    blocks: tuple[tuple[str, str], ...],
    enrolment: int,
    output: str,
    quiet: bool,
) -> None:
    from ..bundle import Bundle, make_committee

    foreign = _given(
        "views",
        "name",
        "prior",
        "no_centre",
        "shrinkage",
        "reduce",
        "whiten",
        "length_norm",
        *LIBRARY,
    )
    if foreign:
        raise click.UsageError(f"--fuse chooses by itself: leave out {', '.join(foreign)}")
    if not labels:
        raise click.UsageError(
            "name the labels: --labels speaker=utt2spk --labels phrase=utt2phrase"
        )
    sources = once("--labels", labels)
    data, found = _labelled(vectors, sources, sources)
    table = {view: found[view] for view in sources}
    named = once("--block", blocks)
    for name, width in named.items():
        if not width.isdigit() or int(width) < 1:
            raise click.BadParameter(
                f"a width is a positive whole number; got {width!r} for {name}",
                param_hint="--block",
            )
    sizes = {name: int(width) for name, width in named.items()} or {"vectors": int(data.X.shape[1])}
    if sum(sizes.values()) != data.X.shape[1]:
        raise click.UsageError(
            f"the blocks have {sum(sizes.values())} columns together, the vectors {data.X.shape[1]}"
        )
    committee = make_committee(
        sizes, list(table), labels=table, cosine=True, enrolment=enrolment
    ).fit(data.X, table)
    Bundle(None, committee, calibrator=committee.calibrator_, extractor=data.extractor).save(output)
    if not quiet:
        for expert, factors in committee.factors_.items():
            click.echo(
                f"{expert}: "
                + ", ".join(f"{part} {factor:.2f}" for part, factor in factors.items()),
                err=True,
            )


def _labelled(
    path: str, sources: dict[str, str], views: Iterable[str], *, named: bool = False
) -> tuple[Any, dict[str, Any]]:
    """Vectors, and their labels from lists and from columns beside them."""
    from ..io.files import read_labels
    from ..io.vectors import read_vectors

    beside = _columns_of(path, sources, views)
    lists = {view: place for view, place in sources.items() if view not in beside}
    data = read_vectors(path, named=named or bool(lists))
    return data, beside | read_labels(lists, data.ids)


def _columns_of(path: str, sources: dict[str, str], views: Iterable[str]) -> dict[str, Any]:
    """Labels that are columns beside the vectors; `sources` gets what lies there for views that it does not name."""
    from ..io.files import is_stream
    from ..io.vectors import labels_beside, open_vectors, read_columns
    from ..labels import base_columns

    wanted = base_columns(tuple(views))
    columns = () if is_stream(path) else open_vectors(path).columns
    sources |= {
        view: place for view, place in labels_beside(path, wanted).items() if view not in sources
    }
    missing = [view for view in wanted if view not in sources]
    if missing:
        beside = f", or a column of {path}, which has {', '.join(columns)}" if columns else ""
        raise click.UsageError(
            f"name the labels of {missing[0]}: --labels {missing[0]}=FILE{beside}"
        )
    found = read_columns(path, [place for place in sources.values() if place in columns])
    return {view: found[place] for view, place in sources.items() if place in found}


def check_used(labels: Iterable[str], views: Iterable[str]) -> None:
    """Labels that no view uses are a slip of the pen."""
    from ..labels import base_columns

    unused = set(labels).difference(base_columns(tuple(views)))
    if unused:
        raise click.UsageError(
            f"--labels {min(unused)}=...: no view uses it; the views are {', '.join(views)}"
        )


LIBRARY = {"noise": "noise", "iterations": "max_iter", "tolerance": "tol", "algorithm": "algorithm"}
"""Options of a fit by EM, and what the library calls them."""


def _given(*names: str) -> list[str]:
    """Those of some options that stand in the call, as they are written there."""
    context = click.get_current_context()
    called = {
        name for name in names if context.get_parameter_source(name) is not ParameterSource.DEFAULT
    }
    return [option.opts[-1] for option in context.command.params if option.name in called]


def _rank(text: str) -> int | str | None:
    if text in ("auto", "full"):
        return text if text == "auto" else None
    if not text.isdigit() or int(text) < 1:
        raise click.BadParameter(
            f"a rank is a positive whole number, auto or full; got {text!r}", param_hint="--view"
        )
    return int(text)


def _strengths(text: str) -> Any:
    """Of a prior: auto, one number, or one for every view and the noise."""
    if text == "auto":
        return text
    if "=" not in text:
        return _share(text, "--prior", one=True)
    parts = [part.partition("=") for part in text.split(",")]
    return {name: _share(strength, "--prior", one=True) for name, _, strength in parts}


def _share(text: str, option: str = "--shrinkage", *, one: bool = False) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (0 <= value < 1 or (one and value == 1)):
        end = "1" if one else "below 1"
        raise click.BadParameter(
            f"expected a number from 0 to {end}, or auto; got {text!r}", param_hint=option
        )
    return value


@click.command()
@click.argument("model")
@click.argument("vectors")
@click.option("--models", help=MODELS)
@output_option("Write the profiles to this file.")
def enrol(model: str, vectors: str, models: str | None, output: str) -> None:
    """Make profiles of VECTORS with MODEL, to be scored later (mvplda score --profiles).

    \b
    Example:
      mvplda enrol model.safetensors enrol.scp --models spk2utt -o profiles.safetensors
    """

    profiles = enrolled_profiles(load_bundle(model), vectors, models, None, None)
    profiles.save(output)
    click.echo(f"wrote {len(profiles)} profiles to {output}", err=True)


@click.command()
@click.argument("model")
@click.argument("vectors")
@labels_option(
    "VIEW=FILE: read the classes of a view of the new vectors from FILE. Without labels only means move, as far as "
    "so many vectors bear it out; with labels for every view a model of the new vectors is mixed in."
)
@click.option(
    "--weight",
    type=Number(0, 1),
    help="Go this share of the way to a model of the labelled vectors; without labels, let covariances grow by this "
    "share of what CORAL+ finds, which seldom pays.  [default: 0.5 with labels, 0 without]",
)
@output_option("Write the adapted model to this file.")
def adapt(
    model: str, vectors: str, labels: tuple[tuple[str, str], ...], weight: float | None, output: str
) -> None:
    """Adapt MODEL to the domain of VECTORS.

    Normalisation and calibration do not come along, for they were made of the scores of MODEL: train them anew.

    \b
    Examples:
      mvplda adapt model.safetensors new.scp -o adapted.safetensors
      mvplda adapt model.safetensors new.scp -l speaker=utt2spk -l phrase=utt2phrase --weight 0.3 -o adapted.safetensors
    """
    from ..io.files import read_labels

    bundle = load_bundle(model)
    data = read_side(bundle, vectors)
    if labels and hasattr(bundle.fitted_scorer, "views_"):
        check_used(once("--labels", labels), bundle.fitted_scorer.views_)
    table = read_labels(once("--labels", labels), data.ids) if labels else None
    bundle.adapt(data.X, table, weight).save(output)
    click.echo(f"wrote a model adapted to {len(data)} vectors to {output}", err=True)


@click.command()
@click.argument("model")
@click.argument("cohort")
@click.option(
    "--kind",
    type=click.Choice(["z", "t", "s", "as"]),
    default="as",
    help="Normalise by what the models (z), the tests (t), or both (s) score against the cohort, or by the highest "
    "of these scores (as).",
)
@click.option(
    "--top",
    type=click.IntRange(min=2),
    default=200,
    help="Use so many of the highest scores of each side, for as.",
)
@click.option(
    "--models",
    help="Make a cohort of several vectors each, as this list says (model id, then ids of its vectors, as in spk2utt)."
    "  [default: every vector is one of the cohort]",
)
@output_option("Write the model with its cohort to this file.")
def normalise(
    model: str, cohort: str, kind: Any, top: int, models: str | None, output: str
) -> None:
    """Let MODEL normalise its scores against a COHORT: vectors of people who are in no trial.

    `mvplda score` then writes normalised scores. They are no likelihood ratios: calibrate them.

    \b
    Examples:
      mvplda normalise model.safetensors training.scp --kind as --top 200 -o normalised.safetensors
      mvplda score normalised.safetensors --enrol enrol.scp --test test.scp --trials trials -o scores
    """
    from ..normalisation import ScoreNormaliser

    bundle = load_bundle(model)
    bundle.normaliser, bundle.calibrator = ScoreNormaliser(kind, top), None
    profiles = enrolled_profiles(bundle, cohort, models, None, None)
    bundle.normaliser.fit(bundle.fitted_scorer, profiles)
    bundle.save(output)
    click.echo(f"wrote a model with a cohort of {len(profiles)} to {output}", err=True)


@click.command()
@click.argument("shards", nargs=-1)
@click.option(
    "-v",
    "--view",
    "views",
    multiple=True,
    help="Count classes of this view, or interaction such as speaker:phrase.",
)
@labels_option(
    "VIEW=SOURCE: take the labels of VIEW from this column of the tables, or from this file."
)
@output_option("Write the statistics to this file.")
@click.option("--vectors", help="Read vectors from this column of tables.  [default: by its name]")
@click.option("--ids", help="Read ids from this column of tables.  [default: by its name]")
@click.option(
    "--second-moment",
    type=click.Choice(["full", "diagonal"]),
    default="full",
    help="Keep all second moments, which serve any noise, or only the diagonal, for diagonal or isotropic noise.",
)
@click.option("--missing", help="Take this label to mean that a vector has none.")
@click.option(
    "--on-error",
    type=click.Choice(["raise", "skip-vectors", "skip-shards", "skip"]),
    default="raise",
    help="Stop at what cannot be used (raise); or leave out vectors that hold NaN or infinity (skip-vectors), files "
    "that are damaged or do not fit (skip-shards), or both (skip), and say so.",
)
@click.option(
    "--work-dir",
    help="Keep finished shards in this folder, so that a killed run goes on from them.",
)
@click.option(
    "--engine",
    type=click.Choice(["serial", "threads", "processes", "dask"]),
    default="serial",
    help="Read shards one after the other, or several at a time in this way.",
)
@click.option(
    "--scheduler",
    help="Use the Dask scheduler at this address.  [default: a cluster on this machine]",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Read this many shards at a time.  [default: one a core]",
)
@click.option(
    "--rows-per-shard",
    type=click.IntRange(min=1),
    help="Cut .npy, .parquet and .arrow files with more vectors than this into several shards.",
)
@click.option(
    "--batch-mib",
    type=click.IntRange(min=1),
    default=16,
    help="Read this many MiB of vectors at a time in a worker.",
)
@click.option(
    "--add", "added", multiple=True, help="Add the statistics in this file; may be repeated."
)
@click.option(
    "--subtract",
    "subtracted",
    multiple=True,
    help="Subtract the statistics in this file; may be repeated.",
)
@click.option("-q", "--quiet", is_flag=True, help="Show no progress and no summary.")
def stats(
    shards: tuple[str, ...],
    views: tuple[str, ...],
    labels: tuple[tuple[str, str], ...],
    output: str,
    added: tuple[str, ...],
    subtracted: tuple[str, ...],
    batch_mib: int,
    quiet: bool,
    **options: Any,
) -> None:
    """Sum up SHARDS (parquet, arrow, npy, npz, h5, scp, ark), however large, for mvplda train.

    SHARDS may also be statistics files, which are added as they are. An id that stands twice, in
    one shard or in two that share a list of labels, is an error: it would be counted twice.

    \b
    Examples:
      mvplda stats part-*.parquet -v speaker -v phrase -o stats.safetensors
      mvplda stats xvector.*.scp -l speaker=utt2spk -l phrase=utt2phrase \\
          --engine dask --scheduler tcp://head:8786 --work-dir work -o stats.safetensors
      mvplda train stats.safetensors -v speaker=100 -v phrase=20 -o model.safetensors
      mvplda stats --add old.safetensors new.safetensors --subtract ann.safetensors -o now.safetensors
    """
    from ..distributed import gather
    from ..io.vectors import read_extractor
    from ..statistics import merge
    from ..statistics.record import holds_statistics, load_with_sources, save_statistics

    files = [*added, *(path for path in shards if holds_statistics(path))]
    rest = [path for path in shards if path not in files]
    if not files and not rest:
        raise click.UsageError("give shards, or statistics files to --add")
    with warnings_as_lines():
        loaded = [load_with_sources(path) for path in (*files, *subtracted)]
        parts = [statistics for statistics, _ in loaded[: len(files)]]
        less = [statistics for statistics, _ in loaded[len(files) :]]
        sources: dict[str, Any] = {"added": list(files), "subtracted": list(subtracted)}
        told = {
            path: (about or {}).get("extractor")
            for path, (_, about) in zip((*files, *subtracted), loaded, strict=True)
        }
        sources["extractor"] = _one_extractor(told | {path: read_extractor(path) for path in rest})
        if rest:
            if not views and not labels:
                raise click.UsageError("name the views: --view speaker, or --labels speaker=FILE")
            sources_of_labels = once("--labels", labels)
            check_used(sources_of_labels, views or sources_of_labels)
            gathered = gather(
                rest,
                sources_of_labels,
                views or None,
                origin=parts[0].origin if parts else None,
                batch_bytes=batch_mib * 2**20,
                verbose=0 if quiet else 1,
                **options,
            )
            parts.append(gathered.statistics)
            files.append(f"{len(rest)} shards")
            sources |= gathered.describe()
            for bad in gathered.bad_shards:
                click.echo(f"mvplda: left out {bad.path}: {bad.reason}", err=True)
        result = merge(parts, files)
        for statistics in less:
            result = result - statistics
        save_statistics(result, output, sources)
    if not quiet:
        click.echo("\n".join(_described(result)), err=True)


def _one_extractor(told: dict[str, str | None]) -> str | None:
    """What made all the vectors, by what every file tells; sums of vectors of different extractors mean nothing."""
    from ..persistence import compare_extractors

    (first, found), *others = told.items()
    for path, extractor in others:
        compare_extractors(first, found, path, extractor)
        first, found = (path, extractor) if found is None else (first, found)
    return found


def _described(statistics: Any) -> list[str]:
    lines = [f"{statistics.n} vectors of width {statistics.dimension}"]
    for view in statistics.views:
        classes, unlabelled = len(statistics.counts[view]), statistics.classes[view].anonymous
        lines.append(
            f"{view}: {classes - unlabelled} classes"
            + f", {unlabelled} vectors without label" * (unlabelled > 0)
        )
    return lines
