"""Statistics of all shards."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..engines import Engine, map_reduce
from ..exceptions import DataError, MvpldaWarning, ParameterError
from ..io.ark import is_kaldi, parse_name
from ..io.batches import BATCH_BYTES
from ..io.lists import unlabelled
from ..io.sources import OnDisk, is_stream
from ..io.vectors import open_vectors
from ..labels import check_view_names
from ..progress import Progress
from ..statistics import SecondMoment
from ..statistics.accumulator import common_origin
from .identities import Identities, check_shards
from .pieces import Piece, cut
from .shard import BAD, BadShard, Gathered, OnBad, Partial, Plan, combine, shard_result

PathLike = str | os.PathLike[str]


def gather(
    paths: PathLike | Sequence[PathLike],
    labels: Mapping[str, PathLike] | None = None,
    views: Sequence[str] | None = None,
    *,
    vectors: str | None = None,
    ids: str | None = None,
    second_moment: SecondMoment = "full",
    missing: Any = None,
    origin: Any = None,
    on_bad_rows: OnBad = "raise",
    on_bad_shard: OnBad = "raise",
    work_dir: PathLike | None = None,
    engine: Engine = "serial",
    workers: int | None = None,
    scheduler: str | None = None,
    retries: int = 2,
    batch_bytes: int = BATCH_BYTES,
    rows_per_shard: int | None = None,
    verbose: int = 0,
) -> Gathered:
    """Statistics of shards on disk, and a report of what was left out.

    Every shard is read in batches and summed on its own about one common origin; the sums are
    then added in a tree whose shape depends on the number of shards alone. So the numbers are
    the same, bit for bit, for every engine and for a run that was killed and continued.

    Parameters
    ----------
    paths : the shards, each of a format that `mvplda.io.read_vectors` reads; streams are copied first
    labels : per label column a column of the table, or a file (see `mvplda.shards.labels`)
    views : the views, interactions included (default: every column of `labels`)
    vectors, ids : columns of tables; default: by their usual names
    second_moment : ``"full"`` for any noise, ``"diagonal"`` is enough for diagonal noise
    missing : a value that stands for "no label", besides None, NaN and null
    origin : (D,) point amid the data; default: the mean of the first batch of the first shard
    on_bad_rows : ``"skip"`` leaves out vectors that hold NaN or infinity, and counts them
    on_bad_shard : ``"skip"`` leaves out shards that cannot be used, and lists them
    work_dir : folder where finished shards are kept, so that a run can be continued
    engine : ``"serial"``, ``"threads"``, ``"processes"`` or ``"dask"``
    workers : of the engine; default: one a core
    scheduler : address of a Dask scheduler; default: a cluster of processes on this machine
    retries : how often a shard is tried again when a worker is lost
    batch_bytes : of vectors; two batches are held a worker
    rows_per_shard : files with more vectors are cut into shards of as many (.npy), or of as many
        whole row groups (.parquet) or record batches (.arrow) as fit; other files are not cut
    verbose : 1 shows progress on standard error
    """
    copies: list[OnDisk] = []
    shards = [os.fspath(paths)] if isinstance(paths, (str, os.PathLike)) else [os.fspath(path) for path in paths]
    _check(shards, labels, views, second_moment, on_bad_rows, on_bad_shard)
    if rows_per_shard is not None and rows_per_shard < 1:
        raise ParameterError(f"rows_per_shard is at least 1; got {rows_per_shard}")
    shards = [_kept(path, copies) for path in shards]
    sources = {name: _kept(os.fspath(place), copies) for name, place in (labels or {}).items()}
    plan = Plan(
        views=tuple(views if views is not None else sources),
        labels=tuple(sources.items()),
        vectors=vectors,
        ids=ids,
        second_moment=second_moment,
        missing=missing,
        on_bad_rows=on_bad_rows,
        on_bad_shard=on_bad_shard,
        batch_bytes=batch_bytes,
        work_dir=None if work_dir is None else os.path.abspath(work_dir),
    )
    if plan.work_dir is not None:
        Path(plan.work_dir).mkdir(parents=True, exist_ok=True)
    pieces = cut(shards, rows_per_shard, vectors, ids)
    if origin is None:
        plan = _with_origin(plan, pieces)
    else:
        plan = replace(plan, origin=np.asarray(origin, dtype=np.float64), first="the given origin")
    progress = Progress("shards", len(pieces)) if verbose else None
    seen = [0, 0]

    def done(part: Partial | None) -> None:
        seen[0] += 1
        seen[1] += 0 if part is None else sum(shard.vectors for shard in part.shards)
        if progress is not None:
            progress.step(seen[0], f"{seen[1]} vectors" if seen[1] else "")

    result = map_reduce(
        partial(shard_result, plan),
        pieces,
        combine,
        engine=engine,
        workers=workers,
        scheduler=scheduler,
        retries=retries,
        done=done,
    )
    _check_ids(plan, result)
    return _concluded(result)


def _kept(path: str, copies: list[OnDisk]) -> str:
    """A name under which a stream can be read more than once, and by other processes; files keep their own."""
    target = parse_name(path) if is_kaldi(path) else None
    name = path if target is None else str(target.scp or target.ark)
    if not is_stream(name):
        return path
    copies.append(OnDisk(name))
    return copies[-1].file if target is None else f"{'scp' if target.scp else 'ark'}:{copies[-1].file}"


def _check(
    shards: Sequence[str], labels: object, views: Sequence[str] | None, moment: str, rows: str, shard: str
) -> None:
    if not shards:
        raise ParameterError("there are no shards: give at least one file")
    again = sorted({path for path in shards if shards.count(path) > 1}) if len(set(shards)) < len(shards) else []
    if again:
        raise ParameterError(f"{len(again)} shard(s) are named twice and would be counted twice: {again[0]}")
    if views is None and not labels:
        raise ParameterError("name the views, or where their labels are found: views=, labels=")
    if views is not None:
        if isinstance(views, str) or not len(views):
            raise ParameterError(f"views is a list of names; got {views!r}")
        check_view_names(views)
    if moment not in ("full", "diagonal"):
        raise ParameterError(f"second_moment is 'full' or 'diagonal'; got {moment!r}")
    for name, value in (("on_bad_rows", rows), ("on_bad_shard", shard)):
        if value not in ("raise", "skip"):
            raise ParameterError(f"{name} is 'raise' or 'skip'; got {value!r}")


def _with_origin(plan: Plan, shards: Sequence[Piece]) -> Plan:
    """The plan with the mean of the first batch that can be read as the origin of all."""
    reasons: list[str] = []
    for piece in shards:
        try:
            reader = open_vectors(piece.path, plan.vectors, plan.ids)
            batches = reader.batches(plan.batch_bytes, [], False, piece.rows)
            batch = next((batch for batch in batches if batch.X.size), None)
            batches.close()  # type: ignore[attr-defined]
        except BAD as error:
            if plan.on_bad_shard == "raise":
                raise
            reasons.append(str(error))
            continue
        if batch is not None:
            return replace(plan, origin=common_origin(batch.X), first=piece.path)
        reasons.append(f"{piece.path}: the file holds no vectors")
        if plan.on_bad_shard == "raise":
            break
    raise DataError(f"no shard could be used: {reasons[0]}")


def _check_ids(plan: Plan, result: Partial) -> None:
    """No id stands twice: in no file, and in no two files where one list has the labels of both."""
    shards: dict[str, list[Identities]] = {}
    own = any("{" in source for _, source in plan.labels)
    for identities in result.ids:
        shards.setdefault(identities.piece.path if own else "", []).append(identities)
    for together in shards.values():
        check_shards(together, plan.vectors, plan.ids)


def _concluded(result: Partial) -> Gathered:
    bad: tuple[BadShard, ...] = result.bad_shards
    if result.statistics is None:
        reason = bad[0].reason if bad else "no vector is finite"
        raise DataError(f"none of the {len(bad) + len(result.shards)} shard(s) could be used: {reason}")
    gathered = Gathered(result.statistics, result.shards, bad)
    for view in dict.fromkeys(view for shard in result.shards for view in shard.unlisted):
        lists = [shard.unlisted[view] for shard in result.shards if view in shard.unlisted]
        total = sum(shard.vectors + shard.bad_rows for shard in result.shards)
        count = sum(found.vectors for found in lists)
        warnings.warn(unlabelled(view, lists[0].file, count, total, lists[0].first), stacklevel=3)
    if bad:
        warnings.warn(
            f"{len(bad)} of {len(bad) + len(result.shards)} shards were left out; the first: {bad[0].reason}",
            MvpldaWarning,
            stacklevel=3,
        )
    if gathered.bad_rows:
        first = next(shard for shard in result.shards if shard.bad_rows)
        warnings.warn(
            f"{gathered.bad_rows} vectors that hold NaN or infinity were left out; the first is row "
            f"{first.named_rows[0]} of {first.path}",
            MvpldaWarning,
            stacklevel=3,
        )
    return gathered
