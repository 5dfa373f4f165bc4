"""Commands that train models: train, and stats for large data sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from .options import (
    COUNT,
    QUIET,
    SEED,
    KeyValue,
    OutputFile,
    first_passed,
    labels_option,
    output_option,
    parse_value,
    unique_pairs,
)

if TYPE_CHECKING:
    from .._typing import Json, Names
    from ..bundle import Bundle
    from ..io.vectors import VectorSet
    from ..statistics import SufficientStatistics
    from ..statistics.accumulator import SecondMoment
    from .options import Pairs, Texts


@click.command("train")
@click.argument("vectors")
@labels_option(
    "VIEW=FILE: read the classes of a view from FILE, such as utt2spk (vector id, class); a vector that is not in FILE "
    "has no label in that view. VIEW=COLUMN: read them from an array of an .npz file or a column of a table.  "
    "[default: columns speaker and phrase, or the files utt2spk and utt2phrase in the same folder]"
)
@click.option(
    "--model",
    help="Model to train: committee combines two models per extractor, and adds a third model with chosen "
    "interaction, noise and ranks if it clearly lowers the loss on held-out people; multiview is the "
    "maximum-likelihood model of all views; plda is that of one view; cosine compares angles and needs no labels.  "
    "[default: committee; multiview for ranks or statistics]",
)
@click.option(
    "-v",
    "--view",
    "views",
    multiple=True,
    type=KeyValue(bare="full"),
    help="VIEW: use this view; may be repeated. VIEW=RANK: also set the rank of its subspace, a number or full. The "
    "view A:B is the interaction of A and B and needs no labels of its own.  [default: all views with labels]",
)
@click.option(
    "--block",
    "blocks",
    multiple=True,
    type=KeyValue(),
    help="NAME=WIDTH: number of columns of an extractor, if VECTORS concatenate several extractors; repeat in the "
    "order of the columns.  [default: as stored with the vectors]",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    type=KeyValue(),
    help="NAME=VALUE: parameter of the model, such as noise=full, max_iter=50, prior=isotropic, "
    "prior_strength=0.6.",
)
@click.option(
    "--reduce",
    type=COUNT,
    help="Fit a maximum-likelihood model to this many principal components, whitened and length-normalised.",
)
@click.option(
    "--chain",
    type=click.Choice(["standard", "pyannote"]),
    help="Preprocess the vectors of a maximum-likelihood model: standard centres, whitens and normalises the length; "
    "pyannote is the preprocessing of pyannote.audio's VBx, which `mvplda convert --as pyannote` needs.  [default: "
    "standard with --reduce, else none]",
)
@click.option(
    "--enrolment",
    type=COUNT,
    default=1,
    help="Number of vectors per profile in later use; error rates are measured with the same number.",
)
@click.option(
    "--folds",
    type=click.IntRange(min=0),
    help="Number of folds of held-out people for calibration and thresholds; 0 omits both.  [default: 4 for committee, "
    "and for cosine with labels; 0 for other models]",
)
@output_option("Write the model to this file.")
@click.option(
    "--seed",
    type=SEED,
    default=0,
    help="Random seed of the initial parameters; the same seed gives the same model.",
)
@QUIET
def train_command(
    vectors: str,
    labels: Pairs,
    model: str | None,
    views: Pairs,
    blocks: Pairs,
    settings: Pairs,
    reduce: int | None,
    chain: str | None,
    enrolment: int,
    folds: int | None,
    output: str,
    seed: int,
    quiet: bool,
) -> None:
    """Train a model on labelled vectors.

    VECTORS is a file (.scp, .ark, .npz, .parquet, .csv), a Kaldi data folder, or a file of `mvplda stats`.

    The default model is a committee. It is calibrated for every question on held-out people, and its thresholds are
    measured on them. The commands verify, identify, score, serve, info and convert accept the output file.

    \b
    Examples:
      mvplda train vectors.npz -o model.safetensors             (arrays X, speaker and phrase)
      mvplda train data/train -o model.safetensors              (xvector.scp, utt2spk, utt2phrase)
      mvplda train x.npz --model multiview --set noise=full -o model.safetensors
      mvplda train stats.safetensors -o model.safetensors
      mvplda train xvector.scp --model plda -l speaker=utt2spk -o plda.safetensors
      mvplda train x.npz --model plda -v speaker --chain pyannote --reduce 128 --set noise=full -o vbx.safetensors
    """
    from .. import training
    from ..statistics.record import holds_statistics
    from ..voice.extractors.blocks import blocks_of, point_blocks

    ranks = _parse_ranks(unique_pairs("--view", views))
    options = {name: parse_value(text) for name, text in unique_pairs("--set", settings).items()}
    label_sources = unique_pairs("--labels", labels)
    from_statistics = holds_statistics(vectors)
    if model is None:
        has_ranks = any(rank is not None for rank in ranks.values())
        model = "multiview" if from_statistics or has_ranks else training.COMMITTEE
    if model not in training.model_names():
        names = ", ".join(training.model_names())
        raise click.UsageError(f"unknown model {model!r}: --model must be one of {names}")
    needs_labels = training.needs_labels(model)
    if model != training.COMMITTEE and needs_labels:
        options.setdefault("random_state", seed)
    if from_statistics:
        needs_vectors = {
            "--labels": bool(label_sources),
            "--reduce": reduce is not None,
            "--chain": chain is not None,
            "--folds": bool(folds),
        }
        if option := first_passed(needs_vectors):
            raise click.UsageError(
                f"{option} needs vectors, and {vectors} contains statistics: leave out {option}, or train on vectors"
            )
        bundle = _from_statistics(vectors, model, ranks, options, not quiet)
    else:
        required = needs_labels or bool(label_sources or views or folds)
        data, table = read_labelled_vectors(vectors, label_sources, ranks, required)
        passed_widths = _parse_sizes(unique_pairs("--block", blocks))
        widths = passed_widths or blocks_of(data.extractor, data.X.shape[1])
        bundle = training.train(
            data.X,
            table,
            model=model,
            ranks=ranks,
            settings=options,
            reduce=reduce,
            chain=chain,
            blocks=widths,
            point_blocks=point_blocks(widths),
            enrolment=enrolment,
            folds=folds,
            extractor=data.extractor,
            progress=not quiet,
        )
    bundle.save(output)
    if not quiet:
        click.echo("\n".join(summary_lines(bundle)), err=True)


def _from_statistics(
    path: str, model: str, ranks: Mapping[str, int | None], options: Json, progress: bool
) -> Bundle:
    """Fit a model to a file of statistics, and return it as an uncalibrated bundle without preprocessing.

    path : file of `mvplda stats`
    model : name of the model, from --model
    ranks : {view: rank, None for the largest}; empty: all views of the statistics with their largest ranks
    options : {parameter of the model: value}, from --set
    progress : show the progress of the fit on standard error
    """
    from ..bundle import Bundle
    from ..models import find_scorers
    from ..statistics import SufficientStatistics
    from ..training import show_fit

    scorer_class: Any = find_scorers().get(model)
    if not hasattr(scorer_class, "fit_statistics"):
        raise click.UsageError(
            f"--model {model} cannot be trained on statistics ({path}): pass --model multiview or plda, or train on "
            "vectors"
        )
    statistics = SufficientStatistics.load(path)
    scorer = scorer_class.with_ranks(ranks or dict.fromkeys(statistics.views), options)
    if progress:
        show_fit(f"fitting {model} to statistics of {statistics.n} vectors", scorer)
    return Bundle(None, scorer.fit_statistics(statistics), statistics.sources.get("extractor"))


def _parse_sizes(pairs: Mapping[str, str]) -> dict[str, int]:
    """Return {name: width} from the texts of --block NAME=WIDTH; raise a usage error unless widths are positive."""
    return {
        name: _parse_size("--block", name, text, "a positive integer")
        for name, text in pairs.items()
    }


def _parse_ranks(pairs: Mapping[str, str]) -> dict[str, int | None]:
    """Return {view: rank} from the texts of --view VIEW=RANK; "full" becomes None.

    Raises a usage error for a rank that is neither "full" nor a positive integer.
    """
    ranks: dict[str, int | None] = {}
    for view, text in pairs.items():
        ranks[view] = None
        if text != "full":
            ranks[view] = _parse_size("--view", view, text, "a positive integer or full")
    return ranks


def _parse_size(option: str, name: str, text: str, expected: str) -> int:
    """Return the positive integer that a text is; raise a usage error for any other text.

    option, name : option and name of its value, as in ``--view speaker=10``, for the error
    expected : description of the expected text, for the error
    """
    if not text.isdecimal() or int(text) == 0:
        raise click.UsageError(f"{option} {name}={text}: expected {expected} after {name}=")
    return int(text)


def read_labelled_vectors(
    path: str, sources: Mapping[str, str], views: Iterable[str] = (), required: bool = True
) -> tuple[VectorSet, dict[str, Names]]:
    """Read vectors, and their labels in each view.

    Parameters
    ----------
    path : file of vectors, or Kaldi data folder
    sources : {view: column of the file, or path of a list}, from --labels; the labels of other views are read from
        where they are stored with the vectors
    views : views of the model; empty: those of `sources`, else those of speaker and phrase that have labels
    required : whether missing labels of a view, or of the speakers if `views` is empty, are a usage error

    Returns
    -------
    vectors
    {view: labels, one per vector}
    """
    from ..io import vectors
    from ..io.streams import is_stream
    from ..labels import base_columns

    chosen_views = base_columns(tuple(views))
    candidates = chosen_views or tuple(sources) or ("speaker", "phrase")
    refuse_unused(sources, chosen_views)
    label_sources = {**vectors.labels_beside(path, candidates), **sources}

    missing = [view for view in chosen_views or ("speaker",) if view not in label_sources]
    if required and missing and (chosen_views or not label_sources):
        columns = () if is_stream(path) else vectors.open_vectors(path).columns
        available = ", ".join(column for column in columns if column not in ("ids", "X"))
        alternative = ""
        if available:
            alternative = f", or --labels {missing[0]}=COLUMN with a column of {path}: {available}"
        raise click.UsageError(
            f"the labels of {missing[0]} are missing: pass --labels {missing[0]}=FILE{alternative}"
        )
    data, table = vectors.read_labelled(path, label_sources)
    return data, {view: table[view] for view in candidates if view in table}


def refuse_unused(labels: Iterable[str], views: Sequence[str]) -> None:
    """Raise a usage error if --labels names a view that is not among the model's views.

    labels : views of --labels
    views : base views of the model; empty: no check
    """
    for view in labels:
        if views and view not in views:
            used = ", ".join(views)
            raise click.UsageError(
                f"--labels {view}=... is not used: the views of the model are {used}. Leave it out, or add --view "
                f"{view}"
            )


def summary_lines(bundle: Bundle) -> list[str]:
    """Return lines of text about a trained model: classes, chosen settings, and error rates on held-out people."""
    from ..training import selection_lines

    card = bundle.card or {}
    lines = []
    if card:
        classes = ", ".join(f"{count} of {view}" for view, count in card["classes"].items())
        lines.append(f"{card['model']}: {card['vectors']} vectors; classes: {classes}")
    lines += selection_lines(card)
    for key, result in card.get("held_out", {}).get("errors", {}).items():
        errors = ", ".join(f"{100 * eer:.2f} % {kind}" for kind, eer in result["eer"].items())
        lines.append(f"same {key.replace('+', ' and ')}? EER {errors}; Cllr {result['cllr']:.3f}")
    if not bundle.calibrations:
        advice = "to calibrate it, train again with --folds 4"
        if not card:
            advice = "statistics cannot calibrate a model: train on vectors, with --folds 4"
        lines.append(f"not calibrated: {card.get('calibration', advice)}")
    scorer = bundle.fitted_scorer
    if hasattr(scorer, "diagnostics_"):
        lines.append(str(scorer.diagnostics_))
    return lines


@click.command("stats")
@click.argument("shards", nargs=-1, required=True)
@click.option(
    "-v",
    "--view",
    "views",
    multiple=True,
    help="View, or interaction such as speaker:phrase, whose classes are summed up; may be repeated.  [default: the "
    "views of --labels]",
)
@labels_option(
    "VIEW=SOURCE: read the labels of VIEW from this column of the shards, or from this file, such as utt2spk. May be "
    "repeated."
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=OutputFile(sharded=True),
    help="Write the statistics to this file; with --ranges, to files with {shard} in their name.",
)
@click.option(
    "--ranges",
    type=COUNT,
    help="Divide the classes of the first view into this number of ranges, and write a file of statistics per range, "
    "so that no worker holds the sums of all classes. Use it if each shard has vectors of many speakers. Needs "
    "--work-dir.",
)
@click.option(
    "--second-moment",
    type=click.Choice(["full", "diagonal"]),
    default="full",
    help="Store all second moments, for any noise model, or only the diagonal, for diagonal noise.",
)
@click.option(
    "--work-dir",
    help="Store the statistics of finished shards in this folder; run the same command again to resume after an "
    "interruption.",
)
@click.option(
    "--scheduler",
    help="Read shards on the workers of the Dask scheduler at this address.",
)
@click.option(
    "--workers",
    type=COUNT,
    default=1,
    help="Number of processes that read shards.",
)
@QUIET
def stats_command(
    shards: Texts,
    views: Texts,
    labels: Pairs,
    output: str,
    ranges: int | None,
    quiet: bool,
    second_moment: SecondMoment,
    work_dir: str | None,
    scheduler: str | None,
    workers: int,
) -> None:
    """Sum up large sets of vectors in shards, for train.

    SHARDS are files of vectors (.parquet, .npz, .scp, .ark, .csv), or files of earlier statistics, which are added. A
    duplicate id in a shard is an error, because its vector would be counted twice.

    \b
    Examples:
      mvplda stats part-*.parquet -v speaker -v phrase -o stats.safetensors
      mvplda stats xvector.*.scp -l speaker=utt2spk -l phrase=utt2phrase \\
          --scheduler tcp://head:8786 --work-dir work -o stats.safetensors
      mvplda train stats.safetensors -o model.safetensors
      mvplda stats old.safetensors new.safetensors -o both.safetensors
    """
    from ..distributed.outputs import is_sharded
    from ..io.vectors import read_extractor
    from ..labels import base_columns
    from ..statistics import SufficientStatistics
    from ..statistics.record import holds_statistics

    statistics = {
        path: SufficientStatistics.load(path) for path in shards if holds_statistics(path)
    }
    vector_files = [path for path in shards if path not in statistics]
    label_sources = unique_pairs("--labels", labels)
    if vector_files and not views and not labels:
        raise click.UsageError(
            "the views are missing: pass --view speaker, or --labels speaker=FILE, to choose the labels by which the "
            "vectors are summed up"
        )
    refuse_unused(label_sources, base_columns(views))
    extractors = {path: sums.sources.get("extractor") for path, sums in statistics.items()}
    extractors |= {path: read_extractor(path) for path in vector_files}
    if ranges is not None and not is_sharded(output):
        raise click.UsageError(
            "--ranges writes a file per range: pass -o with {shard} in the name, such as 'stats-{shard}.safetensors'"
        )
    if ranges is None and is_sharded(output):
        raise click.UsageError(
            "-o with {shard} in the name needs the number of files: pass --ranges, or leave out {shard}"
        )
    options = StatsOptions(second_moment, work_dir, scheduler, workers, int(not quiet))
    extractor = _common_extractor(extractors)
    if ranges is None:
        _write_statistics(
            output, statistics, vector_files, label_sources, views, extractor, options
        )
        return
    if statistics:
        path = next(iter(statistics))
        raise click.UsageError(
            f"--ranges needs vectors, and {path} contains statistics: leave out {path}, or leave out --ranges"
        )
    _write_ranges(output, vector_files, label_sources, views, ranges, extractor, options)


class StatsOptions(NamedTuple):
    """Options of `mvplda stats`; they are passed to `gather` and `gather_ranges` as arguments of the same names."""

    second_moment: SecondMoment
    work_dir: str | None
    scheduler: str | None
    workers: int
    verbose: int


def _write_statistics(
    output: str,
    statistics: Mapping[str, SufficientStatistics],
    vector_files: Sequence[str],
    label_sources: Mapping[str, str],
    views: Texts,
    extractor: str | None,
    options: StatsOptions,
) -> None:
    """Add the statistics of shards of vectors to earlier statistics, and write the sum to one file.

    statistics : {path of the file: earlier statistics}
    vector_files : shards of vectors
    label_sources : {view: column of the shards, or path of a list}, from --labels
    views : views from --view; empty: the views of `label_sources`
    """
    from ..distributed.shards import gather
    from ..statistics import merge
    from .files import text_lines

    terms = dict(statistics)
    sources: Json = {"added": list(statistics), "extractor": extractor}
    if vector_files:
        gathered = gather(vector_files, label_sources, views or None, **options._asdict())
        terms[f"{len(vector_files)} shards"] = gathered
        sources |= {"vectors": gathered.n, "shards": len(vector_files)}
    result = replace(merge(list(terms.values()), list(terms)), sources=sources)
    result.save(output)
    if options.verbose:
        click.echo("\n".join(text_lines(result.describe())), err=True)


def _write_ranges(
    output: str,
    vector_files: Sequence[str],
    label_sources: Mapping[str, str],
    views: Texts,
    ranges: int,
    extractor: str | None,
    options: StatsOptions,
) -> None:
    """Write the statistics of shards of vectors to one file per range of classes."""
    from ..distributed.ranges import gather_ranges

    if options.work_dir is None:
        raise click.UsageError(
            "--ranges needs a folder for intermediate statistics of each shard: pass --work-dir"
        )
    files = gather_ranges(
        vector_files,
        output,
        label_sources,
        views or None,
        ranges=ranges,
        extractor=extractor,
        **options._asdict(),
    )
    if options.verbose:
        click.echo(f"wrote {len(files)} file(s) of statistics, one per range of classes", err=True)


def _common_extractor(extractors: Mapping[str, str | None]) -> str | None:
    """Return the extractor that all files have; None if it is unknown for all.

    Raises `DataError` if two files have different extractors; warns if only some extractors are known.

    extractors : {path of a file: extractor of its vectors, or None if it is unknown}
    """
    from ..persistence import check_same_extractor

    first, *remaining = sorted(extractors, key=lambda path: extractors[path] is None)
    for path in remaining:
        check_same_extractor(first, extractors[first], path, extractors[path])
    return extractors[first]
