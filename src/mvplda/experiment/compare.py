"""Every system on one task: fitted, scored, judged."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..metrics import compare_systems, evaluate, speaker_bootstrap
from .results import Results, SystemResult
from .systems import BASELINE, BEST, BackendSettings, Scored, System, run_system
from .task import Task


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
    resamples : of speakers, for the intervals; 0 leaves them out
    say : takes lines of text
    """
    kinds = task.kinds
    speaker = task.views[0]
    people = (task.model_labels[speaker], task.test_labels[speaker])
    done: list[SystemResult] = []
    scored: dict[str, Scored] = {}
    for system in systems:
        started = time.perf_counter()
        found = run_system(system, task, settings)
        seconds = time.perf_counter() - started
        result = evaluate(found.scores, kinds, costs)
        groups = {
            str(name): evaluate(found.scores, _within(kinds, task.groups == name), costs)
            for name in (np.unique(task.groups) if task.groups is not None else ())
        }
        intervals = None
        if resamples:
            intervals = speaker_bootstrap(found.scores, kinds, *people, costs, n_resamples=resamples, random_state=0)
        done.append(SystemResult(system.name, system.title, result, intervals, seconds, found.note, system.llr, groups))
        scored[system.name] = found
        partial = Results(title, summary, tuple(done), None, None, {})
        if len(done) == 1:
            say(partial.table().splitlines()[0])
        say(partial.line(done[-1]))
    comparison, compared = None, None
    if resamples and {BASELINE, BEST} <= set(scored):
        compared = (BEST, BASELINE)
        ours, theirs = (scored[name].scores for name in compared)
        comparison = compare_systems(ours, theirs, kinds, *people, costs, n_resamples=resamples, random_state=0)
    return Results(title, summary, tuple(done), comparison, compared, configuration or {}), scored


def _within(kinds: Mapping[str, NDArray[np.bool_]], rows: Any) -> dict[str, NDArray[np.bool_]]:
    return {kind: mask & rows[:, None] for kind, mask in kinds.items()}
