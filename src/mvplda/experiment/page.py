"""The page of an experiment: all systems in one table, and the best one looked at closely."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..metrics import ScoreCurve
from ..report import figures as draw
from ..report.page import Report, fold_away, folder_beside, notes_list, write_page, write_pictures
from .configuration import to_toml
from .results import Results, SystemResult
from .systems import BEST, Scored
from .task import Task


def write_experiment_page(
    results: Results, scored: Mapping[str, Scored], task: Task, path: Path, *, source: str = ""
) -> list[Path]:
    """Write the page and, beside it, its pictures."""
    folder = folder_beside(path)
    folder.mkdir(parents=True, exist_ok=True)
    pictures: dict[str, Any] = {
        "systems": ("EER of every system by kind of trial.", lambda axes: _bars(axes, results)),
        "systems-det": (
            "Every system against all impostors: misses against false alarms, on probit axes. "
            "A curve ends, in a square, where a single error is left: beyond, the trials tell nothing.",
            lambda axes: _det(axes, results, scored, task),
        ),
    }
    chosen = BEST if BEST in scored else results.systems[-1].name
    closely = _closely(results[chosen], scored[chosen], task)
    first, written = write_pictures(pictures, folder)
    second, more = write_pictures(closely.pictures(), folder)
    notes = [*results.systems[0].evaluation.definitions()]
    intervals = results.systems[0].intervals
    if intervals is not None:
        notes.append(intervals.definition())
    if source:
        notes.append(f"Data: {source}.")
    notes += [f"Not used: {note}" for note in results.notes[:20]]
    claim = "".join(f"<pre>{html.escape(part)}</pre>" for part in (results.claim(), results.groups_table()) if part)
    body = (
        f"<pre>{html.escape(results.summary)}</pre>"
        f'<h2>Systems</h2><div class="scroll">{_table(results)}</div>{claim}{notes_list(notes)}'
        f"{fold_away('The table as markdown', results.markdown())}"
        f"{fold_away('The configuration', to_toml(results.configuration))}"
        f"{first}<h2>{html.escape(results[chosen].title.strip())}, closely</h2>{second}"
    )
    write_page(path, results.title, body)
    return [path, *written, *more]


def _closely(result: SystemResult, scored: Scored, task: Task) -> Report:
    kinds = {kind: mask for kind, mask in task.kinds.items() if mask.any()}
    scores = {kind: scored.scores[mask] for kind, mask in kinds.items()}
    fitted = getattr(scored.model, "model", None)
    single: dict[str, dict[str, NDArray[Any]]] = {}
    if fitted is not None and set(task.views) <= set(fitted.views_) and len(task.views) == 2:
        profiles = scored.model.enrol(task.enrol, task.enrol_ids)
        for view in task.views:
            llr = np.asarray(scored.model.llr(profiles, task.test, same=view))
            single[view] = {kind: llr[mask] for kind, mask in kinds.items()}
    return Report(
        result.title.strip(),
        result.evaluation,
        scores,
        result.intervals,
        single if len(kinds) == 4 else {},
        variance=None if fitted is None else fitted.explained_variance_ratio_,
        log_likelihoods=None if fitted is None else fitted.log_likelihoods_,
    )


def _bars(axes: Any, results: Results) -> None:
    draw.bars_of_systems(axes, results.eers(), tuple(results.kinds))


def _det(axes: Any, results: Results, scored: Mapping[str, Scored], task: Task) -> None:
    kinds = task.kinds
    target = results.systems[0].evaluation.target
    others = np.zeros_like(kinds[target])
    for kind, mask in kinds.items():
        if kind != target:
            others |= mask
    for i, system in enumerate(results.systems):
        scores = scored[system.name].scores
        curve = ScoreCurve(scores[kinds[target]], {"Total": scores[others]})
        colour = draw.SYSTEM_COLOURS[i % len(draw.SYSTEM_COLOURS)]
        draw.det_curve(axes, curve, colour, system.title.strip(), 2.4 if system.name == BEST else 1.2)
    draw.det_axes(axes)
    axes.legend(fontsize="x-small", loc="upper right")


def _table(results: Results) -> str:
    cost = results.systems[0].evaluation.costs[0].name
    titles = ["", *(f"{kind} EER %" for kind in results.kinds), f"minDCF {cost}", "Cllr", "minCllr", "seconds"]
    head = "".join(f"<th>{html.escape(title)}</th>" for title in titles)
    rows = []
    for system in results.systems:
        total = system.evaluation["Total"]
        note = f'<small class="interval">{html.escape(system.note)}</small>' if system.note else ""
        line = f"<td>{html.escape(system.title.strip())}{note}</td>"
        for kind in results.kinds:
            line += f"<td>{_cell(system, kind)}</td>"
        cllr = f"{total.cllr:.3f}" if system.llr and math.isfinite(total.cllr) else "-"
        line += f"<td>{next(iter(total.min_dcf.values())):.3f}</td><td>{cllr}</td><td>{total.min_cllr:.3f}</td>"
        rows.append(f"<tr>{line}<td>{system.seconds:.1f}</td></tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _cell(system: SystemResult, kind: str) -> str:
    value, ends = system.evaluation[kind].eer, system.around(kind)
    text = "-" if math.isnan(value) else f"{100 * value:.2f}"
    if ends is not None:
        text += f'<small class="interval">{100 * ends.low:.2f} to {100 * ends.high:.2f}</small>'
    return text
