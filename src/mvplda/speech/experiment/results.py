"""The table of an experiment: every system by kind of trial, with intervals, and the claim against the baseline."""

from __future__ import annotations

import csv
import html
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import report as draw
from ...metrics import Comparison, Evaluation, Intervals, PairedTest, ScoreCurve
from ...metrics.evaluation import aligned, markdown_rows
from ...models.committee import scorer_of
from ...persistence import write_atomically
from ...report import (
    INTERVAL,
    Report,
    finding,
    fold_away,
    folder_beside,
    html_table,
    notes_list,
    write_page,
    write_pictures,
)
from .configuration import to_toml
from .systems import BEST, SystemScores
from .task import Task

NAME_WIDTH = 32
HIGHLIGHTED = 5
"""Lines of a DET plot that have a colour; the others are grey."""


@dataclass(frozen=True)
class SystemResult:
    """What one system reached.

    intervals : over speakers, where they were asked for
    seconds : of fitting and scoring
    groups : the same by group, where the protocol keeps groups apart
    """

    name: str
    title: str
    evaluation: Evaluation
    intervals: Intervals | None
    seconds: float
    note: str = ""
    llr: bool = True
    groups: Mapping[str, Evaluation] = field(default_factory=dict)

    def cells(self, form: str = "", only: str | None = None) -> list[str]:
        """The columns of `Evaluation.summary`; with intervals in that form, in all or in one."""
        found = []
        for heading, metric, kind in self.evaluation.summary():
            around = self.intervals if form and only in (None, heading) else None
            known = self.llr or not metric.needs_llr
            found.append(
                self.evaluation.cell(metric, kind, around, form) if known else metric.unknown
            )
        return found


@dataclass(frozen=True)
class Results:
    """All systems on one corpus.

    summary : the corpus and its protocol in words
    comparisons : of pairs of systems, by name, on the same resamples of speakers
    configuration : what made it, as plain values
    """

    title: str
    summary: str
    systems: tuple[SystemResult, ...]
    comparisons: Mapping[tuple[str, str], Comparison]
    configuration: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def kinds(self) -> list[str]:
        """IW, IC, TW, Total; or the kinds that other views make."""
        return list(self.systems[0].evaluation.rows)

    def __getitem__(self, name: str) -> SystemResult:
        return next(system for system in self.systems if system.name == name)

    def eers(self) -> dict[str, dict[str, float]]:
        """EER by title of the system and kind of trial."""
        return {
            s.title.strip(): {k: s.evaluation[k]["eer"] for k in self.kinds} for s in self.systems
        }

    # -- as text -------------------------------------------------------------

    def table(self) -> str:
        """The paper's table, for a terminal."""
        lines = [
            self._row("EER, %", self._columns),
            *(self.line(system) for system in self.systems),
        ]
        counts = ", ".join(
            f"{kind} {row.n_nontargets}"
            for kind, row in self.systems[0].evaluation.rows.items()
            if kind != "Total"
        )
        first = self.systems[0].evaluation["Total"]
        lines += [
            "",
            f"{first.n_targets} target trials; non-targets: {counts}. What is not EER is of Total.",
        ]
        return "\n".join(lines)

    def line(self, system: SystemResult) -> str:
        """One row of `table`."""
        return self._row(system.title, [*system.cells(), f"{system.seconds:.1f}"])

    @property
    def _columns(self) -> list[str]:
        """Headings of `table`."""
        return [*(heading for heading, _, _ in self.systems[0].evaluation.summary()), "s"]

    def _row(self, name: str, cells: list[str]) -> str:
        """Widths cannot wait for the last system: lines are shown one by one."""
        columns = zip(cells, self._columns, strict=True)
        return f"{name:{NAME_WIDTH}}" + "".join(
            f"  {cell:>{max(6, len(heading))}}" for cell, heading in columns
        )

    def finding(self, chosen: str) -> str:
        """The result in a sentence or two: what the chosen system reaches, and how much better that is."""
        system = self[chosen]
        total = system.cells(" % [{}, {}]", only="Total")[self.kinds.index("Total")]
        text = f"{system.title.strip().capitalize()}: an equal error rate of {total if '%' in total else total + ' %'}"
        for (ours, theirs), found in self.comparisons.items():
            if ours == chosen and (test := found.tests["Total"]["eer"]).ratio > 0:
                share = f"{test.ratio:.2f} [{test.ratio_low:.2f}, {test.ratio_high:.2f}]"
                text += f", {share} of the errors of {self[theirs].title.strip()}"
                break
        return text + "."

    def claims(self) -> tuple[str, list[list[str]]]:
        """A heading, and rows of cells: one system's errors as shares of another's."""
        first = next(iter(self.comparisons.values()))
        rows = [["", *first.tests]]
        for (ours, theirs), found in self.comparisons.items():
            name = f"{self[ours].title.strip()} / {self[theirs].title.strip()}"
            rows.append([name, *(_ratio(tests["eer"]) for tests in found.tests.values())])
        level = f"{100 * first.level:g}"
        return (
            f"EER as a share of another system's, {level} % intervals over speakers; + fewer, - more",
            rows,
        )

    def claim(self) -> str:
        """One system's errors as shares of another's, with intervals, one row a pair."""
        if not self.comparisons:
            return ""
        head, rows = self.claims()
        return "\n".join([head, *aligned(rows)])

    def intervals_table(self) -> str:
        """EER with intervals, one row a system."""
        rows = [
            [system.title, *system.cells(" [{}, {}]")[: len(self.kinds)]] for system in self.systems
        ]
        return "\n".join(aligned([["EER, %", *self.kinds], *rows]))

    def by_group(self) -> dict[str, list[list[str]]]:
        """EER of every group, one row a system, the head first; nothing where there are no groups."""
        found = {}
        for group in dict.fromkeys(group for system in self.systems for group in system.groups):
            own = [replace(system, evaluation=system.groups[group]) for system in self.systems]
            rows = [[system.title, *system.cells()[: len(self.kinds)]] for system in own]
            found[group] = [[f"EER, %, {group}", *self.kinds], *rows]
        return found

    def groups_table(self) -> str:
        return "\n\n".join("\n".join(aligned(rows)) for rows in self.by_group().values())

    def markdown(self) -> str:
        """The table for a README."""
        rows = [
            [system.title.strip(), *system.cells(" [{}, {}]", only="Total")]
            for system in self.systems
        ]
        return "\n".join(markdown_rows([["system", *self._columns[:-1]], *rows])) + "\n"

    # -- as data -------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "title": self.title,
            "corpus": self.summary,
            "configuration": dict(self.configuration),
            "notes": list(self.notes),
            "systems": {
                s.name: {
                    "title": s.title.strip(),
                    "note": s.note,
                    "seconds": round(s.seconds, 2),
                    **s.evaluation.to_dict(),
                    **({} if s.intervals is None else {"intervals": s.intervals.to_dict()}),
                    **(
                        {"groups": {g: e.to_dict() for g, e in s.groups.items()}}
                        if s.groups
                        else {}
                    ),
                }
                for s in self.systems
            },
            "comparisons": [
                {"of": ours, "with": theirs, **found.to_dict()}
                for (ours, theirs), found in self.comparisons.items()
            ],
        }

    def csv(self) -> str:
        """One line a system and kind, full precision."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        with_ends = any(system.intervals is not None for system in self.systems)
        for i, system in enumerate(self.systems):
            head, *rows = system.evaluation.csv_rows(system.intervals, with_ends=with_ends)
            writer.writerows([] if i else [["system", *head]])
            writer.writerows([system.name, *row] for row in rows)
        return out.getvalue()

    def save(self, folder: Path) -> list[Path]:
        """table.txt, table.md, table.csv and results.json."""
        folder.mkdir(parents=True, exist_ok=True)
        parts = (
            self.summary,
            self.table(),
            self.intervals_table(),
            self.groups_table(),
            self.claim(),
        )
        text = "\n\n".join(part for part in parts if part)
        found = {
            "table.txt": text + "\n",
            "table.md": self.markdown(),
            "table.csv": self.csv(),
            "results.json": json.dumps(self.to_dict(), indent=1) + "\n",
        }
        for name, content in found.items():
            write_atomically(folder / name, content.encode())
        return [folder / name for name in found]


def _ratio(test: PairedTest) -> str:
    sign = {"A": " +", "B": " -"}.get(test.verdict, "  ")
    return f"{_number(test.ratio)} [{_number(test.ratio_low)}, {_number(test.ratio_high)}]{sign}"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


def write_experiment_page(
    results: Results,
    scored: Mapping[str, SystemScores],
    task: Task,
    path: Path,
    *,
    source: str = "",
    history: Sequence[Mapping[str, Any]] = (),
) -> list[Path]:
    """Write the page and, beside it, its pictures; `history` is that of the network that made the vectors."""
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
    if history:
        pictures["training"] = (
            "The network by epoch: its loss, and how often it errs on its own classes and on those held out.",
            lambda axes: draw.training_plot(axes, history),
        )
    chosen = BEST if BEST in scored else results.systems[-1].name
    closely = _closely(results[chosen], scored[chosen], task)
    first, written = write_pictures(pictures, folder)
    second, more = write_pictures({**closely.pictures(), **latent_spaces(scored, task)}, folder)
    notes = results.systems[0].evaluation.definitions(results.systems[0].intervals)
    if source:
        notes.append(f"Data: {source}.")
    notes += [f"Not used: {note}" for note in results.notes[:20]]
    body = (
        f"{finding(results.finding(chosen), [results.systems[0].evaluation.target, *results.kinds], task.views)}"
        f"<p>{'<br>'.join(map(html.escape, results.summary.splitlines()))}</p>"
        f"<h2>Systems</h2>{_table(results, chosen)}{_claim(results)}{_groups(results)}{notes_list(notes)}"
        f"{fold_away('The table as markdown', results.markdown())}"
        f"{fold_away('The configuration', to_toml(results.configuration))}"
        f"{first}<h2>{html.escape(results[chosen].title.strip())}, closely</h2>{second}"
    )
    write_page(path, results.title, body)
    return [path, *written, *more]


def _closely(result: SystemResult, scored: SystemScores, task: Task) -> Report:
    kinds = {kind: mask for kind, mask in task.kinds.items() if mask.any()}
    scores = {kind: scored.scores[mask] for kind, mask in kinds.items()}
    fitted = scored.model.scorer
    model = scorer_of(
        next(iter(getattr(fitted, "experts_", {"": fitted}).values()))
    )  # of a committee, the first
    single: dict[str, dict[str, NDArray[Any]]] = {}
    if set(task.views) <= set(getattr(fitted, "views_", ())) and len(task.views) == 2:
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
        variance=getattr(model, "explained_variance_ratio_", None),
        log_likelihoods=getattr(fitted, "log_likelihoods_", None),
    )


def latent_spaces(scored: Mapping[str, SystemScores], task: Task) -> dict[str, tuple[str, Any]]:
    """Tests as their vectors have them and as each view's latents have them, coloured by class of that view.

    Of the last system that is a single model of all views; a committee has no latents of its own.
    """
    bundles = (found.model for found in reversed(list(scored.values())))
    bundle = next((b for b in bundles if set(task.views) <= set(getattr(b.scorer, "views_", ()))
                   and hasattr(b.scorer, "transform")), None)  # fmt: skip
    if bundle is None:
        return {}
    model, X = bundle.scorer, bundle.prepare(task.test)
    ends = np.cumsum([0, *model.views_.values()])
    means = np.split(model.transform(X), ends[1:-1], axis=1)
    found: dict[str, tuple[str, Any]] = {}
    for view, own in zip(model.views_, means, strict=True):
        if view not in task.test_labels or own.shape[1] < 2:
            continue
        classes = task.test_labels[view]
        for name, what, points in (
            (f"before-{view}", "the model sees them, all views in one", X),
            (f"after-{view}", f"posterior means of the {view} have them", own),
        ):
            found[name] = (
                f"Tests coloured by {view}, as {what}.",
                partial(draw.scatter_of_classes, X=points, classes=classes),
            )
    return found


def _bars(axes: Any, results: Results) -> None:
    draw.bars_of_systems(axes, results.eers(), tuple(results.kinds))


def _det(axes: Any, results: Results, scored: Mapping[str, SystemScores], task: Task) -> None:
    kinds = task.kinds
    target = results.systems[0].evaluation.target
    others = np.zeros_like(kinds[target])
    for kind, mask in kinds.items():
        if kind != target:
            others |= mask
    first = [BEST, *(name for pair in results.comparisons for name in pair)]
    shown = sorted(
        results.systems, key=lambda s: (s.name not in first, s.evaluation["Total"]["eer"])
    )[:HIGHLIGHTED]
    for system in results.systems:
        scores = scored[system.name].scores
        curve = ScoreCurve(scores[kinds[target]], {"Total": scores[others]})
        place = next((i for i, one in enumerate(shown) if one is system), None)
        if place is None:
            draw.det_curve(axes, curve, "#BBBBBB", "", 0.8)
        else:
            draw.det_curve(
                axes,
                curve,
                draw.PALETTE[place],
                system.title.strip(),
                2.4 if system.name == BEST else 1.4,
            )
    draw.det_axes(axes)
    draw.legend_below(
        axes, 1, title="in grey: the others" if len(shown) < len(results.systems) else None
    )


def _claim(results: Results) -> str:
    if not results.comparisons:
        return ""
    head, rows = results.claims()
    said = f"<p>{html.escape(head)}.</p>"
    return f"<h2>One against another</h2>{said}{html_table(rows[0], [[html.escape(c) for c in row] for row in rows[1:]])}"  # noqa: E501


def _groups(results: Results) -> str:
    parts = []
    for group, rows in results.by_group().items():
        shown = html_table(rows[0], [[html.escape(cell) for cell in row] for row in rows[1:]])
        parts.append(f"<h2>{html.escape(group)}</h2>{shown}")
    return "".join(parts)


def _table(results: Results, chosen: str) -> str:
    rows = []
    for system in results.systems:
        note = f'<small class="interval">{html.escape(system.note)}</small>' if system.note else ""
        rows.append(
            [
                html.escape(system.title.strip()) + note,
                *system.cells(INTERVAL),
                f"{system.seconds:.1f}",
            ]
        )
    best = [system.name for system in results.systems].index(chosen)
    return html_table(["EER, %", *results._columns], rows, best)
