"""The table by kind: every measure of the targets against each kind of non-targets, and in total."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..exceptions import ParameterError
from .costs import DetectionCost, curve_act_dcf, curve_min_dcf, detection_costs
from .curves import ScoreCurve, Scores
from .kinds import split_by_kind

if TYPE_CHECKING:
    from .intervals import Intervals


TOTAL, EQUAL = "Total", "Equal"
NAN = float("nan")


@dataclass(frozen=True)
class Measures:
    """What the targets against one set of non-targets give.

    eer, min_cllr : of the ROC's convex hull, as a share and in bits
    cllr : in bits, of the scores as log-likelihood ratios
    min_dcf, act_dcf : by name of the cost, normalised
    min_dcf_threshold : by name of the cost, the lowest score accepted at minDCF
    """

    kind: str
    n_targets: int
    n_nontargets: int
    eer: float
    min_dcf: dict[str, float]
    act_dcf: dict[str, float]
    cllr: float
    min_cllr: float
    min_dcf_threshold: dict[str, float]

    def flat(self) -> dict[str, float]:
        """By one name each: ``eer``, ``min_dcf/<cost>`` ..., ``act_dcf/<cost>`` ..., ``cllr``, ``min_cllr``."""
        costs = {f"min_dcf/{name}": value for name, value in self.min_dcf.items()}
        actual = {f"act_dcf/{name}": value for name, value in self.act_dcf.items()}
        return {"eer": self.eer, **costs, **actual, "cllr": self.cllr, "min_cllr": self.min_cllr}


@dataclass(frozen=True)
class Evaluation:
    """Measures by kind of non-targets, each against the same targets, and in total.

    rows : by kind, then ``Total`` (and ``Equal``)
    costs : the operating points of minDCF and actDCF
    target : the kind that is to be accepted
    weights : of ``Total`` and ``Equal``, the share of every kind in the false-alarm rate
    """

    rows: dict[str, Measures]
    costs: tuple[DetectionCost, ...]
    target: str
    weights: dict[str, dict[str, float]]

    def __getitem__(self, kind: str) -> Measures:
        return self.rows[kind]

    def definitions(self) -> list[str]:
        """What the columns mean, one sentence each, with every cost and weight."""
        lines = [
            f"Every row is {self.target} against the non-targets of that kind.",
            "EER: where the convex hull of the ROC meets miss = false alarm.",
            "minDCF, actDCF: divided by the best decision without a score; "
            "actDCF at Bayes' threshold for natural-log likelihood ratios.",
            *(f"DCF {cost}, threshold {cost.threshold:.4f}." for cost in self.costs),
            "Cllr, minCllr: bits.",
        ]
        shares = {name: ", ".join(f"{k} {w:.4g}" for k, w in parts.items()) for name, parts in self.weights.items()}
        lines.append(f"{TOTAL} pools all non-target trials as they come; shares: {shares[TOTAL]}.")
        if EQUAL in shares:
            lines.append(f"{EQUAL} weighs trials so that every kind counts the same; shares: {shares[EQUAL]}.")
        return lines

    def columns(self) -> dict[str, str]:
        """Titles of the measures in tables, by the names of `Measures.flat`."""
        columns = {"eer": "EER %"}
        for cost in self.costs:
            columns |= {f"min_dcf/{cost.name}": f"minDCF {cost.name}", f"act_dcf/{cost.name}": f"actDCF {cost.name}"}
        return {**columns, "cllr": "Cllr", "min_cllr": "minCllr"}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite (an empty kind, an infinite cost) is None."""
        return {
            "target": self.target,
            "costs": {c.name: {"c_miss": c.c_miss, "c_fa": c.c_fa, "p_target": c.prior} for c in self.costs},
            "weights": self.weights,
            "definitions": self.definitions(),
            "kinds": {
                kind: {
                    "n_targets": row.n_targets,
                    "n_nontargets": row.n_nontargets,
                    "eer": _plain(row.eer),
                    "min_dcf": {name: _plain(value) for name, value in row.min_dcf.items()},
                    "act_dcf": {name: _plain(value) for name, value in row.act_dcf.items()},
                    "min_dcf_threshold": {name: _plain(value) for name, value in row.min_dcf_threshold.items()},
                    "cllr": _plain(row.cllr),
                    "min_cllr": _plain(row.min_cllr),
                }
                for kind, row in self.rows.items()
            },
        }

    def table(self, format: str = "text", *, intervals: Intervals | None = None) -> str:
        """The rows as ``text``, ``markdown``, ``latex`` or ``csv``; EER in percent but in CSV, where it is a share.

        With ``intervals`` (of :func:`speaker_intervals` on the same scores) a measure is
        followed by its interval where it has one.
        """
        columns = self.columns()
        known = intervals.intervals if intervals is not None else {}
        rows = []
        for kind, row in self.rows.items():
            values, around = row.flat(), known.get(kind, {})
            cells = [(values[n], (around[n].low, around[n].high) if n in around else None) for n in columns]
            rows.append((kind, (row.n_targets, row.n_nontargets), cells))
        notes = self.definitions()
        if intervals is not None:
            notes.append(intervals.definition())
        return render(format, list(columns.items()), rows, notes)


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def measures(curve: ScoreCurve, kind: str, costs: Iterable[DetectionCost]) -> Measures:
    """All measures of one curve."""
    costs = list(costs)
    least = {cost.name: curve_min_dcf(curve, cost) for cost in costs}
    return Measures(
        kind=kind,
        n_targets=curve.n_targets,
        n_nontargets=curve.n_nontargets,
        eer=curve.eer(),
        min_dcf={name: value for name, (value, _) in least.items()},
        act_dcf={cost.name: curve_act_dcf(curve, cost) for cost in costs},
        cllr=curve.cllr(),
        min_cllr=curve.min_cllr(),
        min_dcf_threshold={name: threshold for name, (_, threshold) in least.items()},
    )


def kind_weights(sizes: Mapping[str, int], equal: bool) -> dict[str, float]:
    """Share of every kind in the false-alarm rate; kinds without trials have none."""
    present = {kind: size for kind, size in sizes.items() if size}
    total = sum(present.values())
    return {kind: 1 / len(present) if equal else size / total for kind, size in present.items()}


def evaluate(
    scores: Any,
    kinds: Any,
    costs: str | DetectionCost | Iterable[str | DetectionCost] = ("default",),
    *,
    target: str | None = None,
    equal_weights: bool = False,
) -> Evaluation:
    """Measure scores by kind of trial.

    Parameters
    ----------
    scores : array-like
        Natural-log likelihood ratios, of any shape.
    kinds : mapping, or array-like
        Masks by kind as :func:`trial_kinds` gives them, or the name of the kind of every
        trial, or booleans that say which trials are targets. Trials in no mask are left out.
    costs : names, triples or :class:`DetectionCost`
        Operating points of minDCF and actDCF.
    target : str, optional
        The kind to be accepted; TC, ``target`` or the same in every view is found by itself.
    equal_weights : bool
        Add the row ``Equal``, in which every kind of non-targets has the same weight.

    Examples
    --------
    >>> from mvplda.metrics import evaluate
    >>> result = evaluate([4.0, 3.0, 1.0, 2.0, -1.0, 0.0], ["TC", "TC", "TC", "IC", "IW", "TW"])
    >>> {kind: round(row.eer, 3) for kind, row in result.rows.items()}
    {'IW': 0.0, 'IC': 0.25, 'TW': 0.0, 'Total': 0.167}
    """
    costs = detection_costs(costs)
    chosen, targets, parts = split_by_kind(scores, kinds, target)
    taken = {TOTAL, EQUAL} & {chosen, *parts}
    if taken:
        raise ParameterError(f"{sorted(taken)[0]!r} names a row of the table; give that kind of trial another name")
    targets.sort()  # copies of our own
    for part in parts.values():
        part.sort()
    sizes = {kind: len(part) for kind, part in parts.items()}
    rows = {kind: _row(targets, part, kind, costs) for kind, part in parts.items()}
    present = [part for part in parts.values() if len(part)]
    weights = {TOTAL: kind_weights(sizes, equal=False)}
    rows[TOTAL] = measures(ScoreCurve.from_sorted(targets, present), TOTAL, costs)
    if equal_weights:
        weights[EQUAL] = kind_weights(sizes, equal=True)
        each = [share / sizes[kind] for kind, share in weights[EQUAL].items()]
        rows[EQUAL] = measures(ScoreCurve.from_sorted(targets, present, np.asarray(each).tolist()), EQUAL, costs)
    return Evaluation(rows, costs, chosen, weights)


def _row(targets: Scores, part: Scores, kind: str, costs: tuple[DetectionCost, ...]) -> Measures:
    if len(part):
        return measures(ScoreCurve.from_sorted(targets, [part]), kind, costs)
    unknown = {cost.name: NAN for cost in costs}
    return Measures(kind, len(targets), 0, NAN, unknown, dict(unknown), NAN, NAN, dict(unknown))


# Tables of measures as text, Markdown, LaTeX and CSV.


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
