"""Commands that make models: train, stats, adapt."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from . import (
    KeyValue,
    Number,
    labels_option,
    once,
    output_option,
    seed_option,
    warnings_as_lines,
)
from .score import read_side

if TYPE_CHECKING:
    from .._typing import Json, Names
    from ..bundle import Bundle
    from ..io.vectors import VectorSet
    from ..statistics import SufficientStatistics


@click.command()
@click.argument("vectors")
@labels_option(
    "VIEW=FILE: read the classes of a view from FILE, such as utt2spk (vector id, class); a vector that FILE does "
    "not list has no label in that view. VIEW=COLUMN: take them from a column beside the vectors (an array of an .npz, "
    "a column of a table).  [default: columns called speaker and phrase, or utt2spk and utt2phrase beside the vectors]"
)
@click.option(
    "--model",
    help="Train this model: committee has two models for every extractor's vectors, weighted by held-out people; "
    "multiview is the maximum-likelihood model of all views; plda is that of one view; cascade has a PLDA for every "
    "view; cosine takes the angle between vectors, and needs no labels.  [default: committee; multiview where a rank "
    "is given, or statistics]",
)
@click.option(
    "-v",
    "--view",
    "views",
    multiple=True,
    type=KeyValue(bare="full"),
    help="VIEW: use this view, and those named besides. VIEW=RANK: with so many dimensions. A:B is the interaction of "
    "A and B and needs no labels.  [default: all that have labels]",
)
@click.option(
    "--block",
    "blocks",
    multiple=True,
    type=KeyValue(),
    help="NAME=WIDTH: so many columns are this extractor's, where VECTORS are several extractors' side by side, in "
    "their order.  [default: as the note of the vectors' extractor tells]",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    type=KeyValue(),
    help="NAME=VALUE: a setting of the model's class, such as noise=full, max_iter=50, algorithm=variational, "
    "prior=isotropic, prior_strength=auto.",
)
@click.option(
    "--reduce",
    type=click.IntRange(min=1),
    help="Fit a maximum-likelihood model to so many principal components of the vectors, whitened, of one length.",
)
@click.option(
    "--enrolment",
    type=click.IntRange(min=1),
    default=1,
    help="Make held-out trials of profiles with so many vectors, as yours will have.",
)
@click.option(
    "--folds",
    type=click.IntRange(min=0),
    help="Hold people out in so many folds, to calibrate every question and to measure thresholds; 0: do neither.  "
    "[default: 4 for a committee, 0 for other models]",
)
@output_option("Write the model to this file.")
@seed_option("Draw the start with this seed; the same seed gives the same model.")
@click.option(
    "-q", "--quiet", is_flag=True, help="Show no progress and no summary; warnings are still shown."
)
def train(
    vectors: str,
    labels: tuple[tuple[str, str], ...],
    model: str | None,
    views: tuple[tuple[str, str], ...],
    blocks: tuple[tuple[str, str], ...],
    settings: tuple[tuple[str, str], ...],
    reduce: int | None,
    enrolment: int,
    folds: int | None,
    output: str,
    seed: int,
    quiet: bool,
) -> None:
    """Train a model on VECTORS (scp, ark, npz, parquet, csv, a Kaldi folder, or a file of mvplda stats).

    With nothing but vectors and labels: a committee, calibrated for every question by people who are held out, with
    thresholds measured on them. The file is what verify, identify, score, evaluate, serve and convert take.

    \b
    Examples:
      mvplda train vectors.npz -o model.safetensors             (arrays X, speaker and phrase)
      mvplda train data/train -o model.safetensors              (xvector.scp, utt2spk, utt2phrase)
      mvplda train x.npz --model multiview -v speaker=100 -v phrase=20 --set noise=full -o model.safetensors
      mvplda train stats.safetensors -v speaker=100 -v channel=50 -o model.safetensors
      mvplda train xvector.scp --model plda -l speaker=utt2spk -v speaker=150 -o plda.safetensors
    """
    from .. import training
    from ..statistics.record import holds_statistics

    ranks = _sizes(once("--view", views))
    options = {name: _value(text) for name, text in once("--set", settings).items()}
    sources = once("--labels", labels)
    gathered = holds_statistics(vectors)
    if model is None:
        ranked = any(rank is not None for rank in ranks.values())
        model = "multiview" if gathered or ranked else training.COMMITTEE
    if model not in training.model_names():
        names = ", ".join(training.model_names())
        raise click.UsageError(f"there is no model {model!r}: --model is one of {names}")
    needs_labels = training.needs_labels(model)
    if model != training.COMMITTEE and needs_labels:
        options.setdefault("random_state", seed)
    if gathered:
        if sources or reduce is not None or folds:
            raise click.UsageError(
                "statistics hold no vectors: leave out --labels, --reduce and --folds"
            )
        bundle = _from_statistics(vectors, model, ranks, options)
    else:
        needed = needs_labels or bool(sources or views or folds)
        data, table = read_labelled(vectors, sources, ranks, needed)
        widths = _sizes(once("--block", blocks), full=False)
        bundle = training.train(
            data.X,
            table,
            model=model,
            ranks=ranks,
            settings=options,
            reduce=reduce,
            blocks=widths or training.blocks_of(data.extractor, data.X.shape[1]),
            enrolment=enrolment,
            folds=folds,
            extractor=data.extractor,
            progress=not quiet,
        )
    bundle.save(output)
    if not quiet:
        click.echo("\n".join(summary(bundle)), err=True)


def _from_statistics(path: str, model: str, ranks: Json, options: Json) -> Bundle:
    from ..bundle import Bundle
    from ..models import SCORERS
    from ..statistics.record import load_with_sources

    kind: Any = SCORERS.get(model)
    if not hasattr(kind, "fit_statistics"):
        raise click.UsageError(
            f"{path} holds statistics, which --model {model} cannot be fitted to: take multiview or plda"
        )
    statistics, about = load_with_sources(path)
    scorer = kind.with_ranks(ranks or dict.fromkeys(statistics.views), options)
    return Bundle(None, scorer.fit_statistics(statistics), (about or {}).get("extractor"))


def _sizes(given: Mapping[str, str], *, full: bool = True) -> Json:
    """Ranks, which may be full, or widths of blocks: positive whole numbers."""
    sizes: Json = {}
    for name, text in given.items():
        if not (full and text == "full") and not (text.isdecimal() and int(text) > 0):
            raise click.UsageError(
                f"the size of {name} is a positive whole number, or full for a view; got {text!r}"
            )
        sizes[name] = None if text == "full" else int(text)
    return sizes


def _value(text: str) -> Any:
    """A setting as JSON, else as text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def read_labelled(
    path: str, sources: Mapping[str, str], views: Iterable[str] = (), needed: bool = True
) -> tuple[VectorSet, dict[str, Names]]:
    """Vectors, and their labels by view from columns beside them or from lists."""
    from ..io.files import is_stream, read_labels
    from ..io.vectors import labels_beside, open_vectors, read_columns, read_vectors
    from ..labels import base_columns

    named = base_columns(tuple(views))
    columns = () if is_stream(path) else open_vectors(path).columns
    wanted = named or tuple(sources) or ("speaker", "phrase")
    places: dict[str, str] = {}
    if needed:
        refuse_unused(sources, named)
        places = {**labels_beside(path, wanted), **sources}
        missing = [view for view in named or ("speaker",) if view not in places]
        if missing and (named or not places):
            there = ", ".join(column for column in columns if column not in ("ids", "X"))
            beside = f", or a column of {path}, which has {there}" if there else ""
            raise click.UsageError(
                f"name the labels of {missing[0]}: --labels {missing[0]}=FILE{beside}"
            )
    lists = {view: place for view, place in places.items() if place not in columns}
    data = read_vectors(path, named=bool(lists))
    beside_vectors = read_columns(path, [place for place in places.values() if place in columns])
    table = read_labels(lists, data.ids)
    for view, place in places.items():
        if place in columns:
            table[view] = beside_vectors[place]
    return data, {view: table[view] for view in wanted if view in table}


def refuse_unused(labels: Iterable[str], views: Sequence[str]) -> None:
    """Labels that no view uses are a slip of the pen."""
    for view in labels:
        if views and view not in views:
            used = ", ".join(views)
            raise click.UsageError(f"--labels {view}=...: no view uses it; the views are {used}")


def summary(bundle: Bundle) -> list[str]:
    """What was trained and how well it does on held-out people."""
    lines = []
    card = bundle.card or {}
    if card:
        classes = ", ".join(f"{count} of {view}" for view, count in card["classes"].items())
        lines.append(f"{card['model']}: {card['vectors']} vectors; classes: {classes}")
    held = card.get("held_out")
    if held:
        for key, result in held["errors"].items():
            errors = ", ".join(f"{100 * e:.2f} % {kind}" for kind, e in result["eer"].items())
            lines.append(f"{key}: EER {errors}; Cllr {result['cllr']:.3f}")
    elif not bundle.calibrations:
        lines.append(f"not calibrated: {card.get('calibration', '--folds 4 holds people out')}")
    scorer = bundle.fitted_scorer
    if hasattr(scorer, "diagnostics_"):
        lines.append(str(scorer.diagnostics_))
    return lines


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
    help="Go this share of the way to a model of the labelled vectors; for vectors with labels only.  [default: 0.5]",
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
    from ..voices import load_model

    bundle = load_model(model)
    data = read_side(bundle, vectors)
    sources = once("--labels", labels)
    refuse_unused(sources, bundle.views)
    table = read_labels(sources, data.ids) if labels else None
    bundle.adapt(data.X, table, weight).save(output)
    click.echo(f"wrote a model adapted to {len(data)} vectors to {output}", err=True)


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
@click.option(
    "--second-moment",
    type=click.Choice(["full", "diagonal"]),
    default="full",
    help="Keep all second moments, which serve any noise, or only the diagonal, for diagonal or isotropic noise.",
)
@click.option(
    "--on-error",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    help="Stop at what cannot be used (raise); or leave out vectors that hold NaN or infinity, and files that are "
    "damaged or do not fit (skip), and list them.",
)
@click.option(
    "--work-dir",
    help="Keep finished shards in this folder, so that a killed run goes on from them.",
)
@click.option(
    "--scheduler",
    help="Read shards on the workers of the Dask scheduler at this address.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=1,
    help="Read this many shards at a time, each in a process.",
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
    """Sum up SHARDS (parquet, npz, scp, ark, csv), however large, for mvplda train.

    SHARDS may also be statistics files, which are added as they are. An id that stands twice in
    one shard is an error: it would be counted twice.

    \b
    Examples:
      mvplda stats part-*.parquet -v speaker -v phrase -o stats.safetensors
      mvplda stats xvector.*.scp -l speaker=utt2spk -l phrase=utt2phrase \\
          --scheduler tcp://head:8786 --work-dir work -o stats.safetensors
      mvplda train stats.safetensors -v speaker=100 -v phrase=20 -o model.safetensors
      mvplda stats --add old.safetensors new.safetensors --subtract ann.safetensors -o now.safetensors
    """
    from ..distributed import gather
    from ..io.vectors import read_extractor
    from ..labels import base_columns
    from ..statistics import merge
    from ..statistics.record import holds_statistics, load_with_sources, save_statistics

    files = [*added, *(path for path in shards if holds_statistics(path))]
    rest = [path for path in shards if path not in files]
    places = once("--labels", labels)
    if not files and not rest:
        raise click.UsageError("give shards, or statistics files to --add")
    if rest and not views and not labels:
        raise click.UsageError("name the views: --view speaker, or --labels speaker=FILE")
    refuse_unused(places, base_columns(views))
    with warnings_as_lines():
        loaded = {path: load_with_sources(path) for path in (*files, *subtracted)}
        parts = [loaded[path][0] for path in files]
        noted = {path: (about or {}).get("extractor") for path, (_, about) in loaded.items()}
        noted |= {path: read_extractor(path) for path in rest}
        sources: Json = {"added": list(files), "subtracted": list(subtracted)}
        sources["extractor"] = _one_extractor(noted)
        if rest:
            gathered = gather(
                rest,
                places,
                views or None,
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
        for path in subtracted:
            result = result - loaded[path][0]
        save_statistics(result, output, sources)
    if not quiet:
        click.echo("\n".join(_described(result)), err=True)


def _one_extractor(noted: Mapping[str, str | None]) -> str | None:
    """What made all the vectors, by what every file tells; sums of vectors of different extractors mean nothing."""
    from ..persistence import compare_extractors

    first, *others = sorted(noted, key=lambda path: noted[path] is None)
    for path in others:
        compare_extractors(first, noted[first], path, noted[path])
    return noted[first]


def _described(statistics: SufficientStatistics) -> list[str]:
    lines = [f"{statistics.n} vectors of width {statistics.dimension}"]
    for view in statistics.views:
        unlabelled = statistics.classes[view].anonymous
        without = f", {unlabelled} vectors without label" if unlabelled else ""
        lines.append(f"{view}: {len(statistics.counts[view]) - unlabelled} classes{without}")
    return lines
