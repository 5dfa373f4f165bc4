"""The paper's systems on vectors of a known model, in the shape of its second corpus; and what each setting does."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...bundle import Bundle
from ...metrics import eer_by_kind
from ...metrics.evaluation import markdown_rows
from ...models.multiview import MultiviewPLDA
from ...persistence import write_atomically
from ...report import (
    PALETTE,
    bars_of_systems,
    figure,
    pictures_where_possible,
    save_figure,
    scatter_of_classes,
    scatter_of_kinds,
)
from ...toy import known_model, make_two_views
from .results import Results
from .run import run_systems
from .systems import (
    EXACT,
    PAPERS,
    PRINTED,
    SYSTEMS,
    BackendSettings,
    System,
    claims,
    run_system,
    whitened,
    whitened_by_cell,
    without_interaction,
)
from .task import Task

Say = Callable[[str], None]

TRAINED, OTHERS, PHRASES, DIMENSION, RANKS, ENROLLED = 132, 70, 20, 100, (20, 20), 3
"""Speakers to train on and others, phrases, and the model; the speakers and phrases are those of Huiting202."""


def drawn_task(
    sessions: int,
    tests: int,
    random_state: int,
    sizes: tuple[int, int, int] = (TRAINED, OTHERS, PHRASES),
) -> tuple[Task, MultiviewPLDA]:
    """Vectors drawn from a known model, and that model: three of a cell enrol, so many of the others test."""
    trained, others, phrases = sizes
    X, labels = make_two_views(
        trained + others, phrases, sessions, DIMENSION, RANKS, random_state=random_state
    )
    session = np.tile(np.arange(sessions), (trained + others) * phrases)
    train = labels["speaker"] < trained
    enrol, test = (
        ~train & (session < ENROLLED),
        ~train & (session >= ENROLLED) & (session < ENROLLED + tests),
    )

    def of(where: NDArray[np.bool_], each: int = 1) -> dict[str, NDArray[Any]]:
        return {view: values[where][::each] for view, values in labels.items()}

    ids = np.arange(enrol.sum()) // ENROLLED
    task = Task(
        ("speaker", "phrase"),
        X[train],
        of(train),
        X[enrol],
        ids,
        of(enrol, ENROLLED),
        X[test],
        of(test),
    )
    return task, known_model(random_state, DIMENSION, RANKS)


@dataclass(frozen=True)
class KnownSystem(System):
    """A model that need not be fitted."""

    model: Any = None

    def fit(self, task: Task, settings: BackendSettings, shrinkage: float = 0.0) -> Bundle:
        return Bundle(None, self.model)


def study_drawn(
    output: Path,
    *,
    sessions: int = 9,
    tests: int = 2,
    resamples: int = 200,
    random_state: int = 0,
    say: Say = print,
) -> Results:
    """Draw, fit, score; the table with its intervals, a picture and the model are left in a folder."""
    task, truth = drawn_task(sessions, tests, random_state)
    summary = (
        f"drawn from a known model: D = {DIMENSION}, ranks {RANKS[0]} + {RANKS[1]}, {PHRASES} phrases, {TRAINED} "
        f"speakers to train on, {OTHERS} others, {sessions} vectors a speaker and phrase\n"
        f"{len(task.train)} training vectors, {len(task.model_labels['speaker'])} profiles x {len(task.test)} tests"
    )
    say(summary + "\n")
    names = (
        "cosine-plain",
        "cosine",
        "plda-cell-raw",
        "cascade",
        "jplda-printed-raw",
        "jplda-exact-raw",
    )
    own = replace(SYSTEMS["jplda-exact-raw"], method=None)
    systems = [
        *(SYSTEMS[name] for name in names),
        replace(own, name="jplda-enrolment", title="  by-the-book enrolment"),
        replace(own, name="jplda-claimed", title="  and the {1} known", question=claims),
        KnownSystem("truth", "true parameters", own.build, method="average", model=truth),
    ]
    results, scored = run_systems(
        task,
        systems,
        BackendSettings(random_state=random_state),
        title="vectors of a known model",
        summary=summary,
        resamples=resamples,
        configuration={
            "drawn": {"sessions": sessions, "tests": tests, "random_state": random_state}
        },
        say=say,
    )
    results.save(output)
    model = scored["jplda-enrolment"].model.scorer
    model.save(output / "model.safetensors")
    shares = ", ".join(
        f"{view} {share:.0%}" for view, share in model.explained_variance_ratio_.items()
    )
    say(
        f"\n{results.claim()}\n\nvariance explained: {shares}\n\nwrote {output / 'model.safetensors'}"
    )
    with pictures_where_possible():
        fig, (left, right) = figure(11, 5, 2)
        ratios = [
            model.llr(model.enrol(task.enrol, task.enrol_ids), task.test, same=view)
            for view in task.views
        ]
        scatter_of_kinds(left, ratios[0], ratios[1], task.kinds, ("speaker", "phrase"))
        bars_of_systems(right, results.eers(), tuple(results.kinds))
        say(f"wrote {save_figure(fig, output / 'drawn.png')}")
        say(f"wrote {draw_latent_spaces(model, task, output / 'latent.png')}")
    say(f"look inside the model:  mvplda info {output / 'model.safetensors'}")
    return results


def draw_latent_spaces(model: MultiviewPLDA, task: Task, path: Path) -> Path:
    """Tests before, as vectors, and after, as posterior means of a view; by class of either view."""
    fig, axes = figure(17, 4.4, 4)
    ends = np.cumsum([0, *model.views_.values()])
    means = dict(
        zip(model.views_, np.split(model.transform(task.test), ends[1:-1], axis=1), strict=True)
    )
    for (before, after), view in zip((axes[:2], axes[2:]), task.views, strict=True):
        scatter_of_classes(before, task.test, task.test_labels[view])
        before.set_title(f"before: vectors, by {view}")
        scatter_of_classes(after, means[view], task.test_labels[view])
        after.set_title(f"after: posterior means of the {view}")
    return save_figure(fig, path)


# One setting at a time, the others as the paper has them.


@dataclass(frozen=True)
class Trial:
    """One value of one setting: what is run."""

    setting: str
    value: str
    task: Task
    settings: BackendSettings
    systems: tuple[System, ...] = PAPERS


PRIORS = ((1, 1, 1), (10, 1, 1), (1, 10, 1), (1, 1, 10), (1, 1, 100))
"""p1 (the second view shared), p2 (the first), p3 (neither), in proportion."""


def ablations(task: Task, settings: BackendSettings) -> Iterator[Trial]:
    """Ranks, iterations, priors, enrolled vectors, reduction, and which views there are."""
    for rank in (2, 5, 10, 20, 40):
        yield Trial("rank of each view", str(rank), task, replace(settings, paper_rank=rank))
    for number in (1, 2, 5, 10, 20, 50):
        yield Trial(
            "iterations of EM", str(number), task, replace(settings, paper_iterations=number)
        )
    for weights in PRIORS:
        yield Trial(
            "priors p1 : p2 : p3",
            " : ".join(map(str, weights)),
            task,
            settings,
            tuple(
                replace(system, question=_with_priors(system, weights))
                for system in (PRINTED, EXACT)
            ),
        )
    place = np.arange(len(task.enrol_ids)) - np.searchsorted(task.enrol_ids, task.enrol_ids)
    for number in range(1, int(np.bincount(task.enrol_ids).max()) + 1):
        kept = place < number
        some = replace(task, enrol=task.enrol[kept], enrol_ids=task.enrol_ids[kept])
        yield Trial("vectors of a profile", str(number), some, settings)
    dimension = int(task.train.shape[1])
    for components in (*(n for n in (25, 50, 100, 200, 400) if n < dimension), None):
        value = "raw" if components is None else str(components)
        yield Trial("principal components", value, task, replace(settings, reduce=components))
    for value, build in {
        "two views": without_interaction,
        "cells": whitened_by_cell,
        "both": whitened,
    }.items():
        alike = System("views", "as best, not tuned", partial(_shrunk, build))
        yield Trial("views", value, task, settings, (alike,))


def _shrunk(
    build: Callable[..., Bundle], task: Task, settings: BackendSettings, shrinkage: float
) -> Bundle:
    return build(task, settings, settings.shrinkages[0])


def _with_priors(system: System, weights: tuple[int, int, int]) -> Callable[[Task], dict[str, Any]]:
    def question(task: Task) -> dict[str, Any]:
        first, second = task.views
        return {
            **system.question(task),
            "priors": dict(zip([(second,), (first,), ()], weights, strict=True)),
        }

    return question


COLOURS = dict(zip((system.title for system in PAPERS), PALETTE, strict=False))


def study_ablations(
    task: Task, output: Path, settings: BackendSettings, *, say: Say = lambda text: None
) -> list[dict[str, Any]]:
    """Run every value of every setting; the figures are left as CSV, JSON and Markdown, with a picture a setting."""
    rows: list[dict[str, Any]] = []
    usual: dict[Any, dict[str, float]] = {}
    for trial in ablations(task, settings):
        for system in trial.systems:
            same = (system, trial.settings, len(trial.task.enrol))
            if same not in usual:
                usual[same] = eer_by_kind(
                    run_system(system, trial.task, trial.settings).scores, trial.task.kinds
                )
            title = system.title.format(*task.views)
            rows.append(
                {"setting": trial.setting, "value": trial.value, "system": title, **usual[same]}
            )
            errors = "".join(f"{100 * error:8.2f}" for error in usual[same].values())
            say(f"{trial.setting:26}{trial.value:>12}  {title:20}{errors}")
    kinds = [name for name in rows[0] if name not in ("setting", "value", "system")]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    shown = [
        [*list(row.values())[:3], *(f"{100 * row[kind]:.2f}" for kind in kinds)] for row in rows
    ]
    markdown = "\n".join(markdown_rows([["setting", "value", "system", *kinds], *shown])) + "\n"
    output.mkdir(parents=True, exist_ok=True)
    for suffix, text in (
        ("csv", out.getvalue()),
        ("json", json.dumps(rows, indent=1) + "\n"),
        ("md", markdown),
    ):
        write_atomically(output / f"ablations.{suffix}", text.encode())
    with pictures_where_possible():
        for number, setting in enumerate(dict.fromkeys(row["setting"] for row in rows), 1):
            path = output / f"ablation-{number}.png"
            say(f"wrote {_draw([row for row in rows if row['setting'] == setting], kinds, path)}")
    return rows


def _draw(rows: list[dict[str, Any]], kinds: list[str], path: Path) -> Path:
    """EER over the values of one setting, a line a system, or bars of one: the hard kind and all together."""
    fig, panels = figure(10, 4, 2)
    values = list(dict.fromkeys(row["value"] for row in rows))
    systems = list(dict.fromkeys(row["system"] for row in rows))
    for axes, kind in zip(panels, (kinds[1], kinds[-1]), strict=True):
        for system in systems:
            errors = [100 * row[kind] for row in rows if row["system"] == system]
            colour = COLOURS.get(system, PALETTE[0])
            if len(systems) == 1:
                axes.bar(values, errors, label=system, color=colour, width=0.6)
            else:
                axes.plot(values, errors, "o-", label=system, color=colour)
        axes.set(xlabel=rows[0]["setting"], ylabel="EER, %", ylim=(0, None), title=kind)
        axes.grid(alpha=0.25)
    panels[0].legend(fontsize="small")
    return save_figure(fig, path)
