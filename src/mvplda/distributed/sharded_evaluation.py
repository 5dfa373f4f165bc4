"""Metrics of scores that are stored in shards; several processes, or the workers of a cluster, read the shards."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TypeVar

import numpy as np

from .._progress import Progress
from .._typing import BoolArray, FloatArray
from ..coded import Coded
from ..costs import Costs
from ..exceptions import FileFormatError, LabelError, ParameterError
from ..io.list_shards import column_names, read_columns_of
from ..io.lists import read_map
from ..io.tables import ENROL, KIND, SCORE, TEST, column_of
from ..kinds import kinds_by_pattern, recognised_kinds
from ..metrics.catalogue import FARS
from ..metrics.evaluation import Evaluation
from ..metrics.merged import (
    Bracket,
    CellCounts,
    ShardedEvaluation,
    ShardSummary,
    count_cells,
    summarise,
)
from .ordered import ordered_map
from .outputs import file_state

R = TypeVar("R")


@dataclass(frozen=True)
class LabelMaps:
    """Files with the class of each model and of each test in one view, such as utt2spk.

    view : name of the view
    test : file with the class of each test
    enrol : file with the class of each model; None: the ids of the models are their classes
    """

    view: str
    test: str
    enrol: str | None = None


def evaluate_shards(
    paths: Sequence[str],
    *,
    costs: Costs = ("default",),
    far: Iterable[float] = FARS,
    labels: Sequence[LabelMaps] = (),
    workers: int = 1,
    scheduler: str | None = None,
    progress: bool = False,
) -> Evaluation:
    """Measure the scores in shards by kind of trial; the values equal those of `mvplda.metrics.evaluate`.

    Every shard is read three times: for its kinds of trials, for the scores of its targets, and to count its
    non-targets between the scores of targets. The scores of all targets, and the non-targets of one shard, must fit
    into memory.

    Parameters
    ----------
    paths : Parquet files of `score_shards`, or with the columns enrol, test, score and kind
    costs, far : operating points, see `mvplda.metrics.evaluate`
    labels : classes of models and tests, from which the kinds of trials follow; empty: the shards contain the kinds
    workers : number of processes; 1 runs in this process
    scheduler : address of a Dask scheduler, whose workers replace the processes
    progress : write a line of progress per shard, in each of the three readings, to standard error
    """
    if not paths:
        raise ParameterError("there are no shards of scores: pass at least one file")
    files = [os.path.abspath(path) for path in paths]
    if len(set(files)) < len(files):
        path = Counter(files).most_common(1)[0][0]
        raise ParameterError(f"{path} is passed twice and would be counted twice: pass it once")
    maps = tuple(
        LabelMaps(item.view, os.path.abspath(item.test), item.enrol and os.path.abspath(item.enrol))
        for item in labels
    )

    def each(work: partial[R], title: str) -> Iterator[R]:
        """Yield ``work(file)`` for each shard in order, and write a line of progress per shard.

        title : start of the lines of progress, such as "targets of shards"
        """
        bar = Progress(title, len(files))
        results = ordered_map(work, files, workers=workers, scheduler=scheduler)
        for number, result in enumerate(results, 1):
            if progress:
                bar.step(number)
            yield result

    kinds: Counter[str] = Counter()
    for counts in each(partial(kinds_of_shard, maps), "kinds of shards"):
        kinds.update(counts)
    whole = ShardedEvaluation(kinds, costs, far)
    whole.add_summaries(each(partial(summary_of_shard, maps, whole.target), "targets of shards"))
    cuts, brackets = whole.cuts, tuple(whole.brackets)
    work = partial(counts_of_shard, maps, whole.target, cuts, brackets)
    return whole.add_counts(each(work, "non-targets of shards"))


# Functions that every worker runs.


def kinds_of_shard(labels: tuple[LabelMaps, ...], path: str) -> dict[str, int]:
    """Return {kind of trial: number of trials} of a shard, for the kinds that occur.

    labels : maps that define the kinds; empty: the shard has a column of kinds
    path : the shard
    """
    kinds = _kinds(labels, path)
    counts = np.bincount(kinds.codes, minlength=len(kinds.names)).tolist()
    return {kind: n for kind, n in zip(kinds.names.tolist(), counts, strict=True) if n}


def summary_of_shard(labels: tuple[LabelMaps, ...], target: str, path: str) -> ShardSummary:
    """Return the sorted scores of a shard's targets, and order statistics of each kind of its non-targets.

    labels : maps that define the kinds; empty: the shard has a column of kinds
    target : kind of the targets
    path : the shard
    """
    return summarise(scores_by_kind(labels, path), target)


def counts_of_shard(
    labels: tuple[LabelMaps, ...],
    target: str,
    cuts: FloatArray,
    brackets: tuple[Bracket, ...],
    path: str,
) -> CellCounts:
    """Count a shard's non-targets between neighbouring cuts, and collect their scores inside brackets.

    See `mvplda.metrics.merged.count_cells`.

    labels : maps that define the kinds; empty: the shard has a column of kinds
    target : kind of the targets
    cuts : ascending scores
    brackets : intervals of scores
    path : the shard
    """
    return count_cells(scores_by_kind(labels, path), target, cuts, brackets)


def scores_by_kind(labels: tuple[LabelMaps, ...], path: str) -> dict[str, FloatArray]:
    """Return {kind of trial: its scores} of a shard, for the kinds that occur.

    labels : maps that define the kinds; empty: the shard has a column of kinds
    path : the shard
    """
    kinds = _kinds(labels, path)
    (scores,) = read_columns_of(path, (SCORE,))
    if not isinstance(scores, np.ndarray):
        raise FileFormatError(f"{path}: expected a column of numbers called score")
    return {
        str(name): scores[kinds.codes == code]
        for code, name in enumerate(kinds.names)
        if (kinds.codes == code).any()
    }


def _kinds(labels: tuple[LabelMaps, ...], path: str) -> Coded:
    """Return the kind of each trial of a shard, (n,), from its column of kinds or from maps.

    Raises `LabelError` if there are both or neither, or if the column has an unknown kind.

    labels : maps that define the kinds; empty: the column is used
    path : the shard
    """
    has_kinds = column_of(column_names(path), KIND) is not None
    if labels and has_kinds:
        raise LabelError(
            f"{path}: the shard has a column with the kinds of its trials: leave out --test-speakers and the other "
            "maps (in Python labels=)"
        )
    if not labels:
        if not has_kinds:
            raise LabelError(
                f"{path}: the shard has no column with the kinds of its trials: score lists of trials with kinds, or "
                "pass maps of speakers with --test-speakers and --enrol-speakers (in Python labels=)"
            )
        (kinds,) = read_columns_of(path, (KIND,))
        assert isinstance(kinds, Coded)
        unknown = set(kinds.used) - recognised_kinds(kinds.used)
        if unknown:
            raise LabelError(
                f"{path}: the column kind must contain target, nontarget, TC, TW, IC or IW; got {min(unknown)!r}"
            )
        return kinds
    models, tests = read_columns_of(path, (ENROL, TEST))
    if not isinstance(models, Coded) or not isinstance(tests, Coded):
        raise FileFormatError(f"{path}: expected columns of text called enrol and test")
    names = kinds_by_pattern([item.view for item in labels])
    codes = np.zeros(len(models), np.int32)
    for item in labels:
        same = _same_class(item, models, tests)
        codes = 2 * codes + ~same
    return Coded(np.array(list(names.values())), codes)


def _same_class(labels: LabelMaps, models: Coded, tests: Coded) -> BoolArray:
    """Return the mask (n,) of the trials whose model and test have the same class in one view.

    labels : maps with the classes of that view
    models, tests : ids of the model and of the test of each trial, (n,)
    """
    model_names = models.names.tolist()
    if labels.enrol is not None:
        model_names = _classes(labels.enrol, model_names)
    test_names = _classes(labels.test, tests.names.tolist())
    _, codes = np.unique(np.array([*model_names, *test_names]), return_inverse=True)
    model_codes, test_codes = np.split(codes, [len(model_names)])
    return np.asarray(model_codes[models.codes] == test_codes[tests.codes])


def _classes(path: str, ids: Sequence[str]) -> list[str]:
    """Return the class of each id from a map such as utt2spk; raise `LabelError` if an id is not in the map."""
    classes = _read_map_once(path, tuple(file_state(path)))
    missing = [name for name in ids if name not in classes]
    if missing:
        raise LabelError(
            f"{path} does not list {len(missing)} of {len(ids)} ids, the first is {missing[0]!r}: add a line with the "
            "id and its class for each"
        )
    return [classes[name] for name in ids]


@lru_cache(maxsize=4)
def _read_map_once(path: str, state: tuple[int, ...]) -> dict[str, str]:
    """Return the contents of a map as {id: class}; cached until `state`, the file's `file_state`, changes."""
    return read_map(path)
