"""Settings and calibration from speakers that the extractor has not met.

An extractor knows its own training speakers too well: their vectors hardly vary, and a
back-end that is judged on them believes that nobody's do. Speakers that were held out of
the extractor tell the truth. The back-end is trained without them for every candidate,
their trials choose the candidate and fit its calibration, and then all speakers train the
final one. Where none are known to be unseen, a share of the training speakers stands in:
unseen by the back-end at least.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..bundle import Bundle
from ..calibration import LinearCalibrator
from ..datasets.enrolment import cells_of, split_classes
from ..metrics import cllr
from .task import Task, score

SHARE = 0.2
"""Of the training speakers, held out where the extractor's unseen ones are not known."""

CLEARLY = 0.95
"""A candidate costs no more than this share of what the first one costs, or the first is taken: few speakers cannot
tell smaller differences from chance."""

Fit = Callable[[Task, float], Bundle]
"""Trains a back-end on a task's training vectors, with a shrinkage of the noise."""
Ask = Callable[[Bundle, Task], NDArray[Any]]
"""A back-end's scores (models, tests) of a task's trials."""


@dataclass(frozen=True)
class Tuned:
    """A back-end trained on all speakers, with the calibration found on others.

    bundle : its own calibrator is for the plain question, "same in every view?"
    calibrator : for the question that was asked; None where there were too few speakers
    development : Cllr of the held-out speakers' trials, calibrated, by shrinkage
    """

    bundle: Bundle
    shrinkage: float
    calibrator: LinearCalibrator | None
    development: dict[float, float]


def tune(task: Task, shrinkages: Sequence[float], fit: Fit, ask: Ask, seed: int = 0) -> Tuned:
    """Choose the shrinkage, the first unless another is clearly better, and calibrate; then train on all."""
    inner = development_task(task, seed)
    if inner is None:
        return Tuned(fit(task, shrinkages[0]), shrinkages[0], None, {})
    targets = inner.targets
    found: dict[float, tuple[float, LinearCalibrator, Bundle]] = {}
    for share in shrinkages:
        partial = fit(inner, share)
        calibrator, cost = _calibration(ask(partial, inner), targets)
        found[share] = (cost, calibrator, partial)
    chosen = min(found, key=lambda share: found[share][0])
    if found[chosen][0] > CLEARLY * found[shrinkages[0]][0]:
        chosen = shrinkages[0]
    _, calibrator, partial = found[chosen]
    bundle = fit(task, chosen)
    bundle.calibrator = _calibration(score(partial, inner), targets)[0]
    return Tuned(bundle, chosen, calibrator, {share: cost for share, (cost, *_) in found.items()})


def _calibration(scores: Any, targets: NDArray[np.bool_]) -> tuple[LinearCalibrator, float]:
    """The calibration of scores, and what they cost then."""
    flat = np.asarray(scores, dtype=np.float64).ravel()
    calibrator = LinearCalibrator().fit(flat, targets.ravel())
    llrs = calibrator.transform(flat)
    return calibrator, float(cllr(llrs[targets.ravel()], llrs[~targets.ravel()]))


def development_task(task: Task, seed: int = 0) -> Task | None:
    """Trials among held-out training speakers, and training vectors of the others; None where they are too few."""
    speaker = task.views[0]
    people = task.train_labels[speaker].astype(np.str_) if task.people is None else task.people
    names = np.unique(people)
    unseen = names[:0] if task.unseen is None else np.unique(people[task.unseen])
    if 2 <= len(unseen) <= len(names) - 3:  # an extractor from elsewhere has met nobody: then a share is held out
        held = unseen
    elif len(names) >= 6:
        held = split_classes(names, len(names) - max(2, round(SHARE * len(names))), seed)[1]
    else:
        return None
    out = np.isin(people, held)
    # a noisy copy of an enrolled utterance, or a voice at another speed, is no trial that anybody will make
    recorded = task.train_labels[speaker].astype(np.str_) == people if task.recorded is None else task.recorded
    own = np.flatnonzero(out & recorded)
    if len(np.unique(people[~out])) < 3:
        return None
    per_model = int(np.median(np.bincount(task.enrol_ids)))
    cells = [rows for rows in cells_of(task.train_labels, own, task.views).values() if len(rows) > per_model]
    test = np.sort(np.concatenate([own[:0], *(rows[per_model:] for rows in cells)]))
    if len(np.unique(people[test])) < 2:
        return None
    enrol = np.concatenate([rows[:per_model] for rows in cells])
    first = enrol[::per_model]
    return replace(
        task,
        train=task.train[~out],
        train_labels={view: values[~out] for view, values in task.train_labels.items()},
        enrol=task.train[enrol],
        enrol_ids=np.repeat(np.arange(len(cells)), per_model),
        model_labels={view: values[first] for view, values in task.train_labels.items()},
        test=task.train[test],
        test_labels={view: values[test] for view, values in task.train_labels.items()},
        mask=None,
        groups=None,
        people=people[~out],
        unseen=None,
        recorded=None,
    )
