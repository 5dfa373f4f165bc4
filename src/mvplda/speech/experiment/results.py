"""The table of an experiment: every system by kind of trial, with intervals, and the claim against the baseline."""

from __future__ import annotations

import csv
import html
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...metrics import Comparison, Evaluation, Interval, Intervals, ScoreCurve
from ...metrics.evaluation import aligned
from ...persistence import write_atomically
from ...report import figures as draw
from ...report.page import Report, fold_away, folder_beside, notes_list, write_page, write_pictures
from .configuration import to_toml
from .systems import BEST, SystemScores
from .task import Task

NAME_WIDTH = 32


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

    def around(self, kind: str) -> Interval | None:
        """The interval of the EER of a kind; kinds without trials have none."""
        return None if self.intervals is None else self.intervals.intervals.get(kind, {}).get("eer")

    def shown(self, kind: str) -> str:
        """The EER of a kind in percent, with its interval."""
        ends = self.around(kind)
        text = _percent(self.evaluation[kind].eer)
        return text if ends is None else f"{text} [{_percent(ends.low)}, {_percent(ends.high)}]"


@dataclass(frozen=True)
class Results:
    """All systems on one corpus.

    summary : the corpus and its protocol in words
    comparison : the best system against the baseline, on the same resamples of speakers
    configuration : what made it, as plain values
    """

    title: str
    summary: str
    systems: tuple[SystemResult, ...]
    comparison: Comparison | None
    compared: tuple[str, str] | None
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
        return {s.title.strip(): {k: s.evaluation[k].eer for k in self.kinds} for s in self.systems}

    # -- as text -------------------------------------------------------------

    def table(self) -> str:
        """The paper's table, for a terminal."""
        cost = next(iter(self.systems[0].evaluation.costs)).name
        lines = [
            self._row("EER, %", [heading for heading, _ in self._columns]),
            *(self.line(system) for system in self.systems),
        ]
        counts = ", ".join(
            f"{kind} {row.n_nontargets}" for kind, row in self.systems[0].evaluation.rows.items() if kind != "Total"
        )
        first = self.systems[0].evaluation["Total"]
        lines += ["", f"{first.n_targets} target trials; non-targets: {counts}. minDCF ({cost}), Cllr: of Total."]
        return "\n".join(lines)

    def line(self, system: SystemResult) -> str:
        """One row of `table`."""
        total = system.evaluation["Total"]
        cost = next(iter(total.min_dcf.values()))
        cllr = _cost(total.cllr) if system.llr and math.isfinite(total.cllr) else "-"
        errors = [_percent(system.evaluation[kind].eer) for kind in self.kinds]
        return self._row(system.title, [*errors, f"{cost:.3f}", cllr, f"{total.min_cllr:.3f}", f"{system.seconds:.1f}"])

    @property
    def _columns(self) -> list[tuple[str, int]]:
        """Headings of `table` and their widths, which cannot wait for the last system: lines are shown one by one."""
        least = [*((kind, 6) for kind in self.kinds), ("minDCF", 7), ("Cllr", 6), ("minCllr", 7), ("s", 5)]
        return [(heading, max(width, len(heading))) for heading, width in least]

    def _row(self, name: str, cells: list[str]) -> str:
        columns = zip(cells, self._columns, strict=True)
        return f"{name:{NAME_WIDTH}}" + "".join(f"  {cell:>{width}}" for cell, (_, width) in columns)

    def claim(self) -> str:
        """The best system's errors as shares of the baseline's, with intervals."""
        if self.comparison is None or self.compared is None:
            return ""
        ours, theirs = (self[name].title.strip() for name in self.compared)
        level = 100 * self.comparison.level
        lines = [f"{ours} against {theirs}: EER as a share, with its {level:g} % interval over speakers"]
        width = max(6, *map(len, self.comparison.tests))
        for kind, tests in self.comparison.tests.items():
            test = tests["eer"]
            word = {"A": "better", "B": "worse"}.get(test.verdict, "undecided")
            lines.append(
                f"  {kind:>{width}}  {_number(test.ratio)}  [{_number(test.ratio_low)}, {_number(test.ratio_high)}]  "
                f"p = {test.p_value:.3f}  {word}"
            )
        return "\n".join(lines)

    def intervals_table(self) -> str:
        """EER with intervals, one row a system."""
        rows = [[system.title, *map(system.shown, self.kinds)] for system in self.systems]
        return "\n".join(aligned([["EER, %", *self.kinds], *rows]))

    def groups_table(self) -> str:
        """EER of every group, one row a system; nothing where there are no groups."""
        parts = []
        for group in dict.fromkeys(group for system in self.systems for group in system.groups):
            found = [(system.title, system.groups[group].rows) for system in self.systems]
            rows = [[title, *(_percent(rows[kind].eer) for kind in self.kinds)] for title, rows in found]
            parts.append("\n".join(aligned([[f"EER, %, {group}", *self.kinds], *rows])))
        return "\n\n".join(parts)

    def markdown(self) -> str:
        """The table for a README."""
        cost = self.systems[0].evaluation.costs[0].name
        head = ["system", *self.kinds, f"minDCF {cost}", "Cllr"]
        lines = ["| " + " | ".join(head) + " |", "|:---|" + "---:|" * (len(head) - 1)]
        for system in self.systems:
            total = system.evaluation["Total"]
            cells = [
                system.shown(kind) if kind == "Total" else _percent(system.evaluation[kind].eer) for kind in self.kinds
            ]
            cllr = _cost(total.cllr) if system.llr and math.isfinite(total.cllr) else "-"
            row = [system.title.strip(), *cells, f"{next(iter(total.min_dcf.values())):.3f}", cllr]
            lines.append("| " + " | ".join(row) + " |")
        return "\n".join(lines) + "\n"

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
                    **({"groups": {g: e.to_dict() for g, e in s.groups.items()}} if s.groups else {}),
                }
                for s in self.systems
            },
            "comparison": None
            if self.comparison is None or self.compared is None
            else {"of": self.compared[0], "with": self.compared[1], **self.comparison.to_dict()},
        }

    def csv(self) -> str:
        """One line a system and kind, full precision."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        names = list(next(iter(self.systems[0].evaluation.rows.values())).flat())
        writer.writerow(["system", "kind", "n_targets", "n_nontargets", *names, "eer_low", "eer_high"])
        for system in self.systems:
            for kind, row in system.evaluation.rows.items():
                ends = system.around(kind)
                interval = ["", ""] if ends is None else [repr(ends.low), repr(ends.high)]
                values = ["" if math.isnan(v) else repr(float(v)) for v in row.flat().values()]
                writer.writerow([system.name, kind, row.n_targets, row.n_nontargets, *values, *interval])
        return out.getvalue()

    def save(self, folder: Path) -> list[Path]:
        """table.txt, table.md, table.csv and results.json."""
        folder.mkdir(parents=True, exist_ok=True)
        parts = (self.summary, self.table(), self.intervals_table(), self.groups_table(), self.claim())
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


def _cost(value: float) -> str:
    """Bits; a thousand or more is only said to be that."""
    return f"{value:.3f}" if value < 1000 else ">=1000"


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.2f}"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


# The page of an experiment: all systems in one table, and the best one looked at closely.


def write_experiment_page(
    results: Results, scored: Mapping[str, SystemScores], task: Task, path: Path, *, source: str = ""
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


def _closely(result: SystemResult, scored: SystemScores, task: Task) -> Report:
    kinds = {kind: mask for kind, mask in task.kinds.items() if mask.any()}
    scores = {kind: scored.scores[mask] for kind, mask in kinds.items()}
    fitted = scored.model.scorer
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
        variance=getattr(fitted, "explained_variance_ratio_", None),
        log_likelihoods=getattr(fitted, "log_likelihoods_", None),
    )


def _bars(axes: Any, results: Results) -> None:
    draw.bars_of_systems(axes, results.eers(), tuple(results.kinds))


def _det(axes: Any, results: Results, scored: Mapping[str, SystemScores], task: Task) -> None:
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
