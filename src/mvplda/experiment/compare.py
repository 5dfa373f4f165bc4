"""Every system on one task: fitted, scored, judged."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exceptions import DataError, ParameterError
from ..metrics import Comparison, Evaluation, Intervals, compare_systems, evaluate, speaker_intervals
from .results import Results, SystemResult
from .systems import BASELINE, BEST, BackendSettings, Scored, System, run_system
from .task import Task

MOST_TRIALS = 2_000_000
"""Of a kind with more trials, so many stand for all in intervals and comparison; error rates are of all."""


def run_systems(
    task: Task,
    systems: list[System],
    settings: BackendSettings,
    *,
    title: str,
    summary: str,
    costs: tuple[str, ...] = ("default",),
    resamples: int = 200,
    configuration: Mapping[str, Any] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[Results, dict[str, Scored]]:
    """Fit, score and judge; one line is said for every system as it is done.

    Parameters
    ----------
    task : vectors, labels, protocol
    systems, settings : which, and their sizes
    resamples : of speakers, for the comparison; 0 leaves it and the intervals out
    say : takes lines of text
    """
    kinds = task.kinds
    unfit = [system for system in systems if system.two_views and len(task.views) != 2]
    systems = [system for system in systems if system not in unfit]
    if unfit:
        say(f"left out, for two views only: {', '.join(system.name for system in unfit)}")
    if not systems:
        raise ParameterError(f"no system is left to try on the views {', '.join(task.views)}")
    drawn = _Drawn.of(task) if resamples else None
    done: list[SystemResult] = []
    scored: dict[str, Scored] = {}
    for system in systems:
        started = time.perf_counter()
        found = run_system(system, task, settings)
        seconds = time.perf_counter() - started
        result = evaluate(found.scores, kinds, costs)
        groups = _by_group(found.scores, kinds, task.groups, costs)
        intervals = None
        if drawn is not None:
            try:
                intervals = drawn.intervals(found.scores, costs)
            except DataError as error:
                drawn = None
                say(f"no intervals: {error}")
        done.append(SystemResult(system.name, system.title, result, intervals, seconds, found.note, system.llr, groups))
        scored[system.name] = found
        partial = Results(title, summary, tuple(done), None, None, {})
        if len(done) == 1:
            say(partial.table().splitlines()[0])
        say(partial.line(done[-1]))
    comparison, compared = None, None
    if drawn is not None and {BASELINE, BEST} <= set(scored):
        compared = (BEST, BASELINE)
        comparison = drawn.compare(scored[BEST].scores, scored[BASELINE].scores, costs, resamples)
    return Results(title, summary, tuple(done), comparison, compared, configuration or {}), scored


@dataclass(frozen=True)
class _Drawn:
    """Trials for intervals and comparison, the same for every system.

    where : (n,) places in the matrix of scores
    kinds : (n,) masks
    weights : how many trials one of a kind stands for
    people : (n,) numbers of the enrolled and of the tested speaker
    """

    where: NDArray[np.int64]
    kinds: dict[str, NDArray[np.bool_]]
    weights: dict[str, float]
    people: tuple[NDArray[np.int32], NDArray[np.int32]]

    @classmethod
    def of(cls, task: Task) -> _Drawn:
        rng = np.random.default_rng(0)
        every = [np.flatnonzero(mask) for mask in task.kinds.values()]
        places = [p if len(p) <= MOST_TRIALS else rng.choice(p, MOST_TRIALS, replace=False) for p in every]
        shares = [len(p) / max(len(some), 1) for p, some in zip(every, places, strict=True)]
        where = np.concatenate(places)
        number = np.repeat(np.arange(len(places)), [len(p) for p in places])
        sides = [labels[task.views[0]] for labels in (task.model_labels, task.test_labels)]
        codes = np.unique(np.concatenate(sides), return_inverse=True)[1].astype(np.int32)
        models, tests = codes[: len(sides[0])], codes[len(sides[0]) :]
        row, column = np.divmod(where, len(tests))
        kinds = {kind: number == i for i, kind in enumerate(task.kinds)}
        return cls(where, kinds, dict(zip(task.kinds, shares, strict=True)), (models[row], tests[column]))

    def intervals(self, scores: NDArray[Any], costs: tuple[str, ...]) -> Intervals:
        own = scores.reshape(-1)[self.where]
        return speaker_intervals(own, self.kinds, *self.people, costs, weights=self.weights)

    def compare(self, ours: NDArray[Any], theirs: NDArray[Any], costs: tuple[str, ...], resamples: int) -> Comparison:
        a, b = (scores.reshape(-1)[self.where] for scores in (ours, theirs))
        return compare_systems(
            a, b, self.kinds, *self.people, costs, weights=self.weights, n_resamples=resamples, random_state=0
        )


def _by_group(
    scores: NDArray[Any], kinds: Mapping[str, NDArray[np.bool_]], groups: NDArray[Any] | None, costs: tuple[str, ...]
) -> dict[str, Evaluation]:
    """Every group's own evaluation; groups without targets or without others have none."""
    found = {}
    for name in np.unique(groups) if groups is not None else ():
        rows = groups == name
        own = {kind: mask[rows] for kind, mask in kinds.items()}
        target, *others = (mask.any() for mask in own.values())
        if target and any(others):
            found[str(name)] = evaluate(scores[rows], own, costs)
    return found
