"""The table of an experiment: every system by kind of trial, with intervals, and the systems compared."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import report as draw
from ...metrics import Evaluation, ScoreCurve
from ...metrics.comparison import Comparison, PairedTest
from ...metrics.evaluation import aligned, markdown_rows
from ...metrics.intervals import Intervals
from ...persistence import write_atomically
from .configuration import to_toml
from .systems import BEST

NAME_WIDTH = 40
COLOURED = 5
"""Curves of a DET plot that have a colour; the others are grey."""


@dataclass(frozen=True)
class SystemResult:
    """What one system reached.

    intervals : over speakers, where they were asked for
    seconds : of fitting and scoring
    groups : the same by group, where the protocol keeps groups apart
    sample : (n,) scores of the trials of intervals and plots
    """

    name: str
    title: str
    evaluation: Evaluation
    intervals: Intervals | None
    seconds: float
    note: str = ""
    llr: bool = True
    groups: Mapping[str, Evaluation] = field(default_factory=dict)
    sample: NDArray[Any] = field(default_factory=lambda: np.zeros(0))

    def cells(self, form: str = "", only: str | None = None) -> list[str]:
        """The columns of `Evaluation.summary`; with intervals in that form, in all or in one."""
        texts = []
        for heading, metric, kind in self.evaluation.summary():
            around = self.intervals if form and only in (None, heading) else None
            if metric.needs_llr and not self.llr:
                texts.append(metric.unknown)
            else:
                texts.append(self.evaluation.cell(metric, kind, around, form))
        return texts


@dataclass(frozen=True)
class Results:
    """All systems on one corpus.

    summary : the corpus and its protocol in words
    comparisons : of pairs of systems, by name, on the same resamples of speakers
    configuration : what made it, as plain values
    provenance : program, machine, command and inputs
    """

    title: str
    summary: str
    systems: tuple[SystemResult, ...]
    comparisons: Mapping[tuple[str, str], Comparison]
    configuration: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def kinds(self) -> list[str]:
        """IW, IC, TW, Total; or the kinds that other views make."""
        return list(self.systems[0].evaluation.rows)

    def __getitem__(self, name: str) -> SystemResult:
        return next(system for system in self.systems if system.name == name)

    @property
    def columns(self) -> list[str]:
        return [heading for heading, _, _ in self.systems[0].evaluation.summary()]

    def head(self) -> str:
        """The first line of `table`."""
        return self._row("EER, %", [*self.columns, "s"])

    def line(self, system: SystemResult) -> str:
        """One line of `table`."""
        return self._row(system.title, [*system.cells(), f"{system.seconds:.1f}"])

    def _row(self, name: str, cells: list[str]) -> str:
        """Widths cannot wait for the last system: lines are shown one by one."""
        widths = [max(6, len(heading)) for heading in [*self.columns, "s"]]
        columns = zip(cells, widths, strict=True)
        return f"{name:{NAME_WIDTH}}" + "".join(f"  {cell:>{width}}" for cell, width in columns)

    def table(self) -> str:
        """The paper's table, for a terminal."""
        first = self.systems[0].evaluation
        counts = ", ".join(
            f"{kind} {row.n_nontargets}" for kind, row in first.rows.items() if kind != "Total"
        )
        note = f"{first['Total'].n_targets} target trials; non-targets: {counts}. What is not EER is of Total."
        return "\n".join([self.head(), *map(self.line, self.systems), "", note])

    def intervals_table(self, group: str | None = None) -> str:
        """EER with intervals, one row per system; of one group, without."""
        rows = [[f"EER, %, {group}" if group else "EER, %", *self.kinds]]
        for system in self.systems:
            if group is not None:
                system = replace(system, evaluation=system.groups[group], intervals=None)
            rows.append([system.title, *system.cells(" [{}, {}]")[: len(self.kinds)]])
        return "\n".join(aligned(rows))

    def claims(self) -> list[list[str]]:
        """Rows of cells, the head first: one system's errors as shares of another's."""
        rows = [["EER as a share of another system's; + fewer, - more", *self.kinds]]
        for (ours, theirs), compared in self.comparisons.items():
            name = f"{self[ours].title.strip()} / {self[theirs].title.strip()}"
            rows.append([name, *(_ratio(tests["eer"]) for tests in compared.tests.values())])
        return rows

    def markdown(self) -> str:
        """The table for a README."""
        rows = [["system", *self.columns]]
        for system in self.systems:
            rows.append([system.title.strip(), *system.cells(" [{}, {}]", only="Total")])
        return "\n".join(markdown_rows(rows)) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        systems = {}
        for system in self.systems:
            values: dict[str, Any] = {"title": system.title.strip(), "note": system.note}
            values |= {"seconds": round(system.seconds, 2), **system.evaluation.to_dict()}
            if system.intervals is not None:
                values["intervals"] = system.intervals.to_dict()
            if system.groups:
                values["groups"] = {name: own.to_dict() for name, own in system.groups.items()}
            systems[system.name] = values
        compared = [
            {"of": ours, "with": theirs, **comparison.to_dict()}
            for (ours, theirs), comparison in self.comparisons.items()
        ]
        return {
            "title": self.title,
            "corpus": self.summary,
            "provenance": dict(self.provenance),
            "configuration": dict(self.configuration),
            "notes": list(self.notes),
            "systems": systems,
            "comparisons": compared,
        }

    def save(self, folder: Path) -> None:
        """table.txt, table.md and results.json."""
        folder.mkdir(parents=True, exist_ok=True)
        parts = [self.summary, self.table(), self.intervals_table()]
        parts += [self.intervals_table(group) for group in self.systems[0].groups]
        if self.comparisons:
            parts.append("\n".join(aligned(self.claims())))
        files = {
            "table.txt": "\n\n".join(parts) + "\n",
            "table.md": self.markdown(),
            "results.json": json.dumps(self.to_dict(), indent=1) + "\n",
        }
        for name, content in files.items():
            write_atomically(folder / name, content.encode())


def _ratio(test: PairedTest) -> str:
    sign = {"A": " +", "B": " -"}.get(test.verdict, "  ")
    ends = [test.ratio, test.ratio_low, test.ratio_high]
    ratio, low, high = ("-" if math.isnan(value) else f"{value:.2f}" for value in ends)
    return f"{ratio} [{low}, {high}]{sign}"


def write_experiment_page(
    results: Results,
    kinds: Mapping[str, NDArray[np.bool_]],
    path: Path,
    *,
    source: str = "",
    history: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Write the page and, beside it, its plots.

    kinds : masks of the trials of every system's `sample`
    history : of the network that made the vectors
    """
    folder = draw.folder_beside(path)
    folder.mkdir(parents=True, exist_ok=True)
    errors = {
        system.title.strip(): {kind: system.evaluation[kind]["eer"] for kind in results.kinds}
        for system in results.systems
    }

    def bars(axes: Any) -> None:
        draw.bars_of_systems(axes, errors, tuple(results.kinds))

    def det(axes: Any) -> None:
        _det(axes, results, kinds)

    def training(axes: Any) -> None:
        draw.training_plot(axes, history)

    plots: dict[str, Any] = {"systems": ("EER of every system by kind of trial.", bars)}
    if len(results.systems[0].sample):
        plots["systems-det"] = (
            "Every system against all impostors: misses against false alarms, on probit axes.",
            det,
        )
    if history:
        plots["training"] = ("The network by epoch: its loss, and its errors.", training)
    shown, _ = draw.write_pictures(plots, folder)
    chosen = BEST if BEST in {system.name for system in results.systems} else ""
    rows = []
    for system in results.systems:
        title = html.escape(system.title.strip())
        if system.note:
            title += f'<small class="interval">{html.escape(system.note)}</small>'
        rows.append([title, *system.cells(draw.INTERVAL), f"{system.seconds:.1f}"])
    best = [system.name for system in results.systems].index(chosen) if chosen else None
    table = draw.html_table(["EER, %", *results.columns, "s"], rows, best)
    compared = ""
    if results.comparisons:
        head, *others = results.claims()
        cells = [[html.escape(cell) for cell in row] for row in others]
        compared = f"<h2>Compared</h2>{draw.html_table(head, cells)}"
    notes = results.systems[0].evaluation.definitions(results.systems[0].intervals)
    notes += [f"Data: {source}."] if source else []
    notes += [f"Not used: {note}" for note in results.notes[:20]]
    body = (
        f"<p>{'<br>'.join(map(html.escape, results.summary.splitlines()))}</p>"
        f"<h2>Systems</h2>{table}{compared}{draw.notes_list(notes)}"
        f"{draw.fold_away('The table as markdown', results.markdown())}"
        f"{draw.fold_away('The configuration', to_toml(results.configuration))}{shown}"
    )
    draw.write_page(path, results.title, body)


def _det(axes: Any, results: Results, kinds: Mapping[str, NDArray[np.bool_]]) -> None:
    targets, *others = kinds.values()
    nontargets = np.logical_or.reduce(others)
    ranked = sorted(results.systems, key=lambda system: system.evaluation["Total"]["eer"])
    for system in results.systems:
        curve = ScoreCurve(system.sample[targets], {"Total": system.sample[nontargets]})
        place = ranked.index(system)
        if place < COLOURED:
            draw.det_curve(axes, curve, draw.PALETTE[place], system.title.strip(), 1.6)
        else:
            draw.det_curve(axes, curve, "#BBBBBB", "", 0.8)
    draw.det_axes(axes)
    draw.legend_below(axes, 1)
