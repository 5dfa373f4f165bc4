"""Commands that make models: setup, train, stats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from . import (
    COUNT,
    QUIET,
    SEED,
    KeyValue,
    check_folder,
    labels_option,
    once,
    output_option,
    plain_value,
)
from .evaluate import RATE
from .extractors import extractor_option

if TYPE_CHECKING:
    from .._typing import Json, Names
    from ..bundle import Bundle
    from ..io.vectors import VectorSet
    from . import Pairs, Texts


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
    "multiview is the maximum-likelihood model of all views; plda is that of one view; cosine takes the angle "
    "between vectors, and needs no labels.  [default: committee; multiview where a rank is given, or statistics]",
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
    help="NAME=VALUE: a setting of the model's class, such as noise=full, max_iter=50, prior=isotropic, "
    "prior_strength=0.6.",
)
@click.option(
    "--reduce",
    type=COUNT,
    help="Fit a maximum-likelihood model to so many principal components of the vectors, whitened, of one length.",
)
@click.option(
    "--enrolment",
    type=COUNT,
    default=1,
    help="Make held-out trials of profiles with so many vectors, as yours will have.",
)
@click.option(
    "--folds",
    type=click.IntRange(min=0),
    help="Hold people out in so many folds, to calibrate every question and to measure thresholds; 0: do neither.  "
    "[default: 4 for a committee and a cosine with labels, 0 for other models]",
)
@output_option("Write the model to this file.")
@click.option(
    "--seed",
    type=SEED,
    default=0,
    help="Draw the start with this seed; the same seed gives the same model.",
)
@QUIET
def train(
    vectors: str,
    labels: Pairs,
    model: str | None,
    views: Pairs,
    blocks: Pairs,
    settings: Pairs,
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
      mvplda train x.npz --model multiview --set noise=full -o model.safetensors
      mvplda train stats.safetensors -o model.safetensors
      mvplda train xvector.scp --model plda -l speaker=utt2spk -o plda.safetensors
    """
    from .. import training
    from ..statistics.record import holds_statistics
    from ..voice.extractors.blocks import blocks_of, point_blocks

    ranks = _sizes(once("--view", views))
    options = {name: plain_value(text) for name, text in once("--set", settings).items()}
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
        bundle = _from_statistics(vectors, model, ranks, options, not quiet)
    else:
        needed = needs_labels or bool(sources or views or folds)
        data, table = read_labelled(vectors, sources, ranks, needed)
        widths = _sizes(once("--block", blocks), full=False)
        widths = widths or blocks_of(data.extractor, data.X.shape[1])
        bundle = training.train(
            data.X,
            table,
            model=model,
            ranks=ranks,
            settings=options,
            reduce=reduce,
            blocks=widths,
            point_blocks=point_blocks(widths),
            enrolment=enrolment,
            folds=folds,
            extractor=data.extractor,
            progress=not quiet,
        )
    bundle.save(output)
    if not quiet:
        click.echo("\n".join(summary(bundle)), err=True)


def _from_statistics(path: str, model: str, ranks: Json, options: Json, progress: bool) -> Bundle:
    from ..bundle import Bundle
    from ..models import find_scorers
    from ..statistics import SufficientStatistics
    from ..training import show_fit

    kind: Any = find_scorers().get(model)
    if not hasattr(kind, "fit_statistics"):
        raise click.UsageError(
            f"{path} holds statistics, which --model {model} cannot be fitted to: take multiview or plda"
        )
    statistics = SufficientStatistics.load(path)
    scorer = kind.with_ranks(ranks or dict.fromkeys(statistics.views), options)
    if progress:
        show_fit(f"fitting {model} to statistics of {statistics.n} vectors", scorer)
    return Bundle(None, scorer.fit_statistics(statistics), statistics.sources.get("extractor"))


def _sizes(given: Mapping[str, str], full: bool = True) -> Json:
    """Ranks, which may be full, or widths of blocks: positive whole numbers."""
    sizes: Json = {}
    for name, text in given.items():
        sizes[name] = None
        if not full or text != "full":
            if not text.isdecimal() or int(text) == 0:
                raise click.UsageError(
                    f"the size of {name} is a positive whole number, or full for a view; got {text!r}"
                )
            sizes[name] = int(text)
    return sizes


def read_labelled(
    path: str, sources: Mapping[str, str], views: Iterable[str] = (), needed: bool = True
) -> tuple[VectorSet, dict[str, Names]]:
    """Vectors, and their labels by view from columns beside them or from lists."""
    from ..io import vectors
    from ..io.streams import is_stream
    from ..labels import base_columns

    named = base_columns(tuple(views))
    wanted = named or tuple(sources) or ("speaker", "phrase")
    refuse_unused(sources, named)
    places = {**vectors.labels_beside(path, wanted), **sources}
    missing = [view for view in named or ("speaker",) if view not in places]
    if needed and missing and (named or not places):
        columns = () if is_stream(path) else vectors.open_vectors(path).columns
        there = ", ".join(column for column in columns if column not in ("ids", "X"))
        beside = f", or a column of {path}, which has {there}" if there else ""
        raise click.UsageError(
            f"name the labels of {missing[0]}: --labels {missing[0]}=FILE{beside}"
        )
    data, table = vectors.read_labelled(path, places)
    return data, {view: table[view] for view in wanted if view in table}


def refuse_unused(labels: Iterable[str], views: Sequence[str]) -> None:
    """Labels that no view uses are a slip of the pen."""
    for view in labels:
        if views and view not in views:
            used = ", ".join(views)
            raise click.UsageError(f"--labels {view}=...: no view uses it; the views are {used}")


def summary(bundle: Bundle) -> list[str]:
    """What was trained and how well it does on held-out people."""
    card = bundle.card or {}
    lines = []
    if card:
        classes = ", ".join(f"{count} of {view}" for view, count in card["classes"].items())
        lines.append(f"{card['model']}: {card['vectors']} vectors; classes: {classes}")
    for key, result in card.get("held_out", {}).get("errors", {}).items():
        errors = ", ".join(f"{100 * e:.2f} % {kind}" for kind, e in result["eer"].items())
        lines.append(f"same {key.replace('+', ' and ')}? EER {errors}; Cllr {result['cllr']:.3f}")
    if not bundle.calibrations:
        lines.append(f"not calibrated: {card.get('calibration', '--folds 4 holds people out')}")
    scorer = bundle.fitted_scorer
    if hasattr(scorer, "diagnostics_"):
        lines.append(str(scorer.diagnostics_))
    return lines


@click.command()
@click.argument("shards", nargs=-1, required=True)
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
    help="Keep all second moments, which serve any noise, or only the diagonal, for diagonal noise.",
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
    type=COUNT,
    default=1,
    help="Read this many shards at a time, each in a process.",
)
@QUIET
def stats(
    shards: Texts,
    views: Texts,
    labels: Pairs,
    output: str,
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
      mvplda train stats.safetensors -o model.safetensors
      mvplda stats old.safetensors new.safetensors -o both.safetensors
    """
    from ..distributed.shards import gather
    from ..io.vectors import read_extractor
    from ..labels import base_columns
    from ..statistics import SufficientStatistics, merge
    from ..statistics.record import holds_statistics
    from .files import text_lines

    parts = {path: SufficientStatistics.load(path) for path in shards if holds_statistics(path)}
    rest = [path for path in shards if path not in parts]
    places = once("--labels", labels)
    if rest and not views and not labels:
        raise click.UsageError("name the views: --view speaker, or --labels speaker=FILE")
    refuse_unused(places, base_columns(views))
    noted = {path: statistics.sources.get("extractor") for path, statistics in parts.items()}
    noted |= {path: read_extractor(path) for path in rest}
    sources: Json = {"added": list(parts), "extractor": _one_extractor(noted)}
    if rest:
        gathered = gather(rest, places, views or None, verbose=int(not quiet), **options)
        parts[f"{len(rest)} shards"] = gathered
        sources |= {"vectors": gathered.n, "shards": len(rest)}
    result = merge(list(parts.values()), list(parts))
    result = replace(result, sources=sources)
    result.save(output)
    if not quiet:
        click.echo("\n".join(text_lines(result.describe())), err=True)


def _one_extractor(noted: Mapping[str, str | None]) -> str | None:
    """What made all the vectors, by what every file tells; sums of vectors of different extractors mean nothing."""
    from ..persistence import check_same_extractor

    first, *others = sorted(noted, key=lambda path: noted[path] is None)
    for path in others:
        check_same_extractor(first, noted[first], path, noted[path])
    return noted[first]


@click.command()
@click.argument("source")
@click.option(
    "-o", "--output", required=True, help="Write the model, profiles and report into this folder."
)
@click.option(
    "--far",
    type=RATE,
    default=0.01,
    help="Choose the threshold so that at most this share of the worst kind of impostors passes.",
)
@click.option(
    "--pattern",
    help="How paths are to be read: fields are views, * is anything, as in {speaker}/{phrase}_*.  [default: folders]",
)
@click.option(
    "--enrolment",
    type=COUNT,
    default=1,
    help="Recordings per profile, as there will be in use.",
)
@labels_option("VIEW=FILE or VIEW=COLUMN: labels of vectors, as in mvplda train.")
@extractor_option(required=False)
@QUIET
def setup(
    source: str,
    output: str,
    pattern: str | None,
    labels: Pairs,
    extractors: Texts,
    quiet: bool,
    **options: Any,
) -> None:
    """Make a model of your own people, with its threshold: SOURCE is a folder of recordings, or vectors with labels.

    Recordings may also be listed in a table (.csv) with columns file, speaker and phrase.

    All people are held out in turn, so that all of them show how often the model errs. The folder that is written is
    what verify, identify, profiles, serve, evaluate and convert take.

    \b
    Examples:
      mvplda setup recordings/ --far 0.01 -o voices/            (recordings/ann/hello/1.wav)
      mvplda setup recordings/ --pattern "{speaker}_{phrase}_*" -o voices/
      mvplda setup vectors.npz -o voices/                       (arrays X, speaker and phrase)
    """
    from ..voice.setup import has_table, setup_vectors
    from ..voice.setup import setup as set_up

    check_folder(Path(output))
    folder = Path(source)
    options["progress"] = not quiet
    # a folder of Kaldi's lists its vectors; any other holds sound
    if has_table(source, "file") or (folder.is_dir() and not any(folder.glob("*.scp"))):
        if labels:
            raise click.UsageError(f"{source} holds recordings: --labels are for vectors")
        result = set_up(source, pattern=pattern, extractors=extractors, **options)
    else:
        if folder.exists() and (extractors or pattern):
            raise click.UsageError(
                f"{source} is taken for vectors: --extractor and --pattern are for recordings, in a folder without "
                "lists of Kaldi (.scp) or in a table with a column called file"
            )
        data, table = read_labelled(source, once("--labels", labels))
        marks = [str(name) for name in data.ids]
        result = setup_vectors(data.X, table, marks=marks, name=data.extractor, **options)
    result.save(output)
    click.echo(result.report)
    click.echo(f"wrote {output}: mvplda verify a.wav b.wav --model {quote(output)}", err=True)
