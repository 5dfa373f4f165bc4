"""Tables of measures as text, Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

from ..exceptions import ParameterError

Cell = tuple[float, tuple[float, float] | None]
Row = tuple[str, tuple[int, int], list[Cell]]
COUNTS = ("targets", "non-targets")
FORMATS = ("text", "markdown", "latex", "csv")


def render(format: str, columns: Sequence[tuple[str, str]], rows: Sequence[Row], notes: Sequence[str]) -> str:
    """Columns are (name, heading); a cell is a value and perhaps its interval."""
    if format not in FORMATS:
        raise ParameterError(f"a table is one of {', '.join(FORMATS)}; got {format!r}")
    if format == "csv":
        return _csv(columns, rows)
    head = ["kind", *COUNTS, *(heading for _, heading in columns)]
    body = [
        [kind, *map(str, counts), *(_cell(name, cell) for (name, _), cell in zip(columns, cells, strict=True))]
        for kind, counts, cells in rows
    ]
    return {"text": _text, "markdown": _markdown, "latex": _latex}[format](head, body, notes)


def _number(name: str, value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{100 * value:.2f}" if name == "eer" else f"{value:.4f}"


def _cell(name: str, cell: Cell) -> str:
    value, interval = cell
    if interval is None:
        return _number(name, value)
    return f"{_number(name, value)} [{_number(name, interval[0])}, {_number(name, interval[1])}]"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines whose columns are as wide as their widest cell, two spaces apart; the first column is flush left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]


def _text(head: list[str], body: list[list[str]], notes: Sequence[str]) -> str:
    return "\n".join([*aligned([head, *body]), "", *notes]) + "\n"


def _markdown(head: list[str], body: list[list[str]], notes: Sequence[str]) -> str:
    rows = [[cell.replace("|", r"\|") for cell in row] for row in (head, *body)]
    rule = [":---", *["---:"] * (len(head) - 1)]
    lines = ["| " + " | ".join(row) + " |" for row in (rows[0], rule, *rows[1:])]
    return "\n".join([*lines, "", *(f"- {note}" for note in notes)]) + "\n"


LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
LATEX |= {sign: "\\" + sign for sign in "&%$#_{}"}


def _latex(head: list[str], body: list[list[str]], notes: Sequence[str]) -> str:
    def line(row: list[str]) -> str:
        return " & ".join("".join(LATEX.get(c, c) for c in cell) for cell in row) + r" \\"

    comments = ["% Needs \\usepackage{booktabs}.", *(f"% {note}" for note in notes)]
    opening = [r"\begin{tabular}{l" + "r" * (len(head) - 1) + "}", r"\toprule", line(head), r"\midrule"]
    return "\n".join([*comments, *opening, *map(line, body), r"\bottomrule", r"\end{tabular}"]) + "\n"


def _csv(columns: Sequence[tuple[str, str]], rows: Sequence[Row]) -> str:
    """Shares and bits in full precision; ``_low`` and ``_high`` where there are intervals."""
    with_intervals = any(interval is not None for _, _, cells in rows for _, interval in cells)
    names = [name for name, _ in columns]
    head = [f"{name}{end}" for name in names for end in (("", "_low", "_high") if with_intervals else ("",))]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["kind", "n_targets", "n_nontargets", *head])
    for kind, counts, cells in rows:
        values: list[float] = []
        for value, interval in cells:
            values += [value, *(interval or (math.nan, math.nan))] if with_intervals else [value]
        writer.writerow([kind, *counts, *("" if math.isnan(v) else repr(float(v)) for v in values)])
    return out.getvalue()
