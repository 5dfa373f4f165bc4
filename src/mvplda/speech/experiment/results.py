"""The table of an experiment: every system by kind of trial, with intervals, and the claim against the baseline."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..files import write_atomically
from ..metrics import Comparison, Evaluation, Interval, Intervals
from ..metrics.tables import aligned

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
