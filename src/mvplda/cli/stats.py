"""mvplda stats"""

from __future__ import annotations

from typing import Any

import click

from .options import KeyValue, warnings_as_lines

Bad = click.Choice(["raise", "skip"])


@click.command()
@click.argument("shards", nargs=-1)
@click.option("-v", "--view", "views", multiple=True, help="A view, or an interaction such as speaker:phrase.")
@click.option("-l", "--labels", multiple=True, type=KeyValue(), help="VIEW=COLUMN of the tables, or VIEW=FILE.")
@click.option("-o", "--output", required=True, help="Statistics file to write.")
@click.option("--vectors", help="Column of the vectors in tables; default: by its name.")
@click.option("--ids", help="Column of the ids in tables; default: by its name.")
@click.option(
    "--second-moment",
    type=click.Choice(["full", "diagonal"]),
    default="full",
    help="full serves any noise; diagonal is smaller, for diagonal or isotropic noise.",
)
@click.option("--missing", help="A label that stands for no label.")
@click.option("--on-bad-rows", type=Bad, default="raise", help="Vectors that hold NaN or infinity.")
@click.option("--on-bad-shard", type=Bad, default="raise", help="Files that are damaged or do not fit.")
@click.option("--work-dir", help="Folder for finished shards: a killed run goes on from them.")
@click.option(
    "--engine",
    type=click.Choice(["serial", "threads", "processes", "dask"]),
    default="serial",
    help="What runs over shards.",
)
@click.option("--scheduler", help="Address of a Dask scheduler; default: a cluster on this machine.")
@click.option("--workers", type=click.IntRange(min=1), help="Default: one a core.")
@click.option("--rows-per-shard", type=click.IntRange(min=1), help="Cut larger .npy, .parquet and .arrow files.")
@click.option("--batch-mib", type=click.IntRange(min=1), default=16, help="Vectors that are read at a time.")
@click.option("--add", "added", multiple=True, help="A statistics file to add.")
@click.option("--subtract", "subtracted", multiple=True, help="A statistics file to subtract.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
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
    from ..files import check_writable
    from ..shards import gather
    from ..statistics import SufficientStatistics, merge
    from ..statistics.storage import holds_statistics, save_statistics

    check_writable(output)
    files = [*added, *(path for path in shards if holds_statistics(path))]
    rest = [path for path in shards if path not in files]
    if not files and not rest:
        raise click.UsageError("give shards, or statistics files to --add")
    with warnings_as_lines():
        parts = [SufficientStatistics.load(path) for path in files]
        sources: dict[str, Any] = {"added": list(files), "subtracted": list(subtracted)}
        if rest:
            if not views and not labels:
                raise click.UsageError("name the views: --view speaker, or --labels speaker=FILE")
            gathered = gather(
                rest,
                dict(labels),
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
        for path in subtracted:
            result = result - SufficientStatistics.load(path)
        save_statistics(result, output, sources)
    if not quiet:
        click.echo("\n".join(_described(result)), err=True)


def _described(statistics: Any) -> list[str]:
    lines = [f"{statistics.n} vectors of width {statistics.dimension}"]
    for view in statistics.views:
        classes, unlabelled = len(statistics.counts[view]), statistics.classes[view].anonymous
        lines.append(
            f"{view}: {classes - unlabelled} classes" + f", {unlabelled} vectors without label" * (unlabelled > 0)
        )
    return lines
