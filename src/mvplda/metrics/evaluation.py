"""The tables by kind: every metric of the targets against each kind of non-targets, and in total."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..costs import Costs, DetectionCost, detection_costs
from ..exceptions import DataError, ParameterError
from ..kinds import Kinds, Mask, as_masks, ordered_kinds, target_kind
from ..spoofing import SPOOF, SpoofingCost
from .catalogue import ERRORS, FARS, Metric, metrics_of
from .curves import ScoreCurve, Scores, as_scores, eer, reject_nan

if TYPE_CHECKING:
    from .intervals import Intervals


TOTAL, EQUAL = "Total", "Equal"


@dataclass(frozen=True)
class Measures:
    """What the targets against one set of non-targets give: ``row["eer"]``, ``row["min_dcf/default"]`` ...

    values : by name of the metric; NaN of what is not known
    """

    kind: str
    n_targets: int
    n_nontargets: int
    values: dict[str, float]

    def __getitem__(self, name: str) -> float:
        return self.values[name]


@dataclass(frozen=True)
class Evaluation:
    """Measures by kind of non-targets, each against the same targets, and in total.

    rows : by kind, then ``Total`` (and ``Equal``)
    metrics : what was measured
    costs : the operating points of minDCF and actDCF
    target : the kind that is to be accepted
    weights : of ``Total`` and ``Equal``, the share of every kind in the false-alarm rate
    a_dcf : {"min" and "act": a-DCF at the best threshold and at Bayes'}, where spoofs are among the trials
    spoofing : the cost behind it
    """

    rows: dict[str, Measures]
    metrics: list[Metric] = field(compare=False)
    costs: tuple[DetectionCost, ...]
    target: str
    weights: dict[str, dict[str, float]]
    a_dcf: dict[str, float] = field(default_factory=dict)
    spoofing: SpoofingCost = field(default_factory=SpoofingCost)

    def __getitem__(self, kind: str) -> Measures:
        return self.rows[kind]

    def tables(self) -> dict[str, list[Metric]]:
        """The metrics of every table, by its title."""
        titles = dict.fromkeys(metric.table for metric in self.metrics if metric.table is not None)
        return {
            title: [metric for metric in self.metrics if metric.table == title] for title in titles
        }

    def definitions(self, intervals: Intervals | None = None) -> list[str]:
        """What the columns mean, one sentence each, with every cost and weight."""
        notes = dict.fromkeys(note for metric in self.metrics for note in metric.notes())
        lines = [f"Every row is {self.target} against the non-targets of that kind.", *notes]
        shares = {
            name: ", ".join(f"{k} {w:.4g}" for k, w in parts.items())
            for name, parts in self.weights.items()
        }
        lines.append(f"{TOTAL} pools all non-target trials as they come; shares: {shares[TOTAL]}.")
        if EQUAL in shares:
            lines.append(
                f"{EQUAL} weighs trials so that every kind counts the same; shares: {shares[EQUAL]}."
            )
        if self.a_dcf:
            lines.append(
                f"a-DCF {self.spoofing}: {self.a_dcf['min']:.4f} at the best threshold, {self.a_dcf['act']:.4f} at "
                f"{self.spoofing.threshold:.4f}, which is Bayes' for natural-log likelihood ratios against non-targets "
                f"of which a share of {self.spoofing.share:.4g} are spoofs, as their costs weigh."
            )
        return lines if intervals is None else [*lines, intervals.definition()]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite (an empty kind, an infinite cost) is None."""
        return {
            "target": self.target,
            "costs": {
                c.name: {
                    "miss_cost": c.miss_cost,
                    "false_alarm_cost": c.false_alarm_cost,
                    "prior": c.prior,
                }
                for c in self.costs
            },
            "weights": self.weights,
            **({"a_dcf": {**self.a_dcf, "cost": asdict(self.spoofing)}} if self.a_dcf else {}),
            "definitions": self.definitions(),
            "kinds": {
                kind: {
                    "n_targets": row.n_targets,
                    "n_nontargets": row.n_nontargets,
                    **_nested(row.values),
                }
                for kind, row in self.rows.items()
            },
        }

    def table(self, format: str = "text", *, intervals: Intervals | None = None) -> str:
        """The rows as ``text``, ``markdown``, ``latex`` or ``csv``, shares in percent but in CSV.

        With ``intervals`` (of :func:`speaker_intervals` on the same scores) a metric is
        followed by its interval where it has one.
        """
        if format == "csv":
            return self._csv(intervals)
        if format not in FORMATS:
            raise ParameterError(f"a table is one of {', '.join(FORMATS)}, csv; got {format!r}")
        tables = {title: self.grid(metrics, intervals) for title, metrics in self.tables().items()}
        return FORMATS[format](tables, self.definitions(intervals))

    def grid(
        self, metrics: Iterable[Metric], intervals: Intervals | None = None, form: str = " [{}, {}]"
    ) -> list[list[str]]:
        """The cells of a table of some metrics, its head first."""
        metrics = list(metrics)
        rows = [["kind", "targets", "non-targets", *(metric.heading for metric in metrics)]]
        for kind, row in self.rows.items():
            cells = [self.cell(metric, kind, intervals, form) for metric in metrics]
            rows.append([kind, f"{row.n_targets:,}", f"{row.n_nontargets:,}", *cells])
        return rows

    def cell(
        self, metric: Metric, kind: str, intervals: Intervals | None = None, form: str = " [{}, {}]"
    ) -> str:
        """A metric of a kind as tables show it, with its interval in that form."""
        value = self.rows[kind][metric.name]
        ends = None if intervals is None else intervals.of(kind, metric.name)
        shown = metric.show(value)
        if ends is None or math.isnan(value):
            return shown
        around = {metric.show(ends.low), metric.show(ends.high)}
        if around == {shown}:  # an interval that shows nothing but the number itself
            return shown
        return shown + metric.show_ends(ends, form)

    def summary(self) -> list[tuple[str, Metric, str]]:
        """What is shown of each of several systems: heading, metric and kind.

        The first metric of every kind, and the others that are headlines of the total.
        """
        first, *others = [metric for metric in self.metrics if metric.headline]
        return [(kind, first, kind) for kind in self.rows] + [
            (metric.heading, metric, TOTAL) for metric in others
        ]

    def _csv(self, intervals: Intervals | None) -> str:
        """Shares and bits in full precision; ``_low`` and ``_high`` where there are intervals."""
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(
            self.csv_rows(intervals, with_ends=intervals is not None)
        )
        return out.getvalue()

    def csv_rows(self, intervals: Intervals | None, *, with_ends: bool) -> list[list[str]]:
        """The head and a row a kind; numbers in full, ends of intervals behind each, nothing for what is not known."""
        ends = ("", "_low", "_high") if with_ends else ("",)
        rows = [
            [
                "kind",
                "n_targets",
                "n_nontargets",
                *(metric.name + end for metric in self.metrics for end in ends),
            ]
        ]
        for kind, row in self.rows.items():
            numbers: list[float] = []
            for name, value in row.values.items():
                found = None if intervals is None else intervals.of(kind, name)
                around = (math.nan, math.nan) if found is None else (found.low, found.high)
                numbers += (value, *around) if with_ends else (value,)
            cells = ["" if math.isnan(number) else repr(float(number)) for number in numbers]
            rows.append([kind, str(row.n_targets), str(row.n_nontargets), *cells])
        return rows


def _nested(values: Mapping[str, float]) -> dict[str, Any]:
    """``family/point`` as a dict in a dict."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        family, _, point = name.partition("/")
        plain = float(value) if math.isfinite(value) else None
        if point:
            found.setdefault(family, {})[point] = plain
        else:
            found[family] = plain
    return found


def measures(curve: ScoreCurve, kind: str, metrics: Sequence[Metric]) -> Measures:
    """All metrics of one curve."""
    values = {
        metric.name: metric.value(curve) if metric.enough(curve) else math.nan for metric in metrics
    }
    return Measures(kind, curve.n_targets, curve.n_nontargets, values)


def kind_weights(sizes: Mapping[str, int], equal: bool) -> dict[str, float]:
    """Share of every kind in the false-alarm rate; kinds without trials have none."""
    present = {kind: size for kind, size in sizes.items() if size}
    total = sum(present.values())
    return {kind: 1 / len(present) if equal else size / total for kind, size in present.items()}


def split_by_kind(
    scores: ArrayLike, kinds: Kinds, target: str | None = None
) -> tuple[str, Scores, dict[str, Scores]]:
    """The name of the target kind, its scores, and the scores of the other kinds, IW, IC, TW first."""
    array = np.asarray(scores)
    masks = as_masks(kinds, array.shape)
    chosen = target_kind(masks, target)
    targets = as_scores(array[masks[chosen]], f"target ({chosen})")
    others = ordered_kinds(masks, chosen)
    parts = {kind: as_scores(array[masks[kind]], kind) for kind in others if masks[kind].any()}
    if not parts:
        raise DataError(
            f"there are no non-target scores: no trial has a kind other than {chosen!r}"
        )
    for kind, part in {chosen: targets, **parts}.items():
        reject_nan(part, kind)
    empty = np.empty(0, dtype=targets.dtype)
    return chosen, targets, {kind: parts.get(kind, empty) for kind in others}


def eer_by_kind(scores: ArrayLike, kinds: Mapping[str, Mask]) -> dict[str, float]:
    """EER of the targets (TC) against every other kind, and against all of them (Total)."""
    scores = np.asarray(scores)
    target = target_kind(kinds)
    targets = scores[kinds[target]]
    result = {kind: eer(targets, scores[kinds[kind]]) for kind in ordered_kinds(kinds, target)}
    result[TOTAL] = eer(targets, scores[~kinds[target]])
    return result


def evaluate(
    scores: ArrayLike,
    kinds: Kinds,
    costs: Costs = ("default",),
    *,
    far: Iterable[float] = FARS,
    frr: Iterable[float] = (),
    target: str | None = None,
    equal_weights: bool = False,
    spoofing: SpoofingCost | None = None,
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
    far, frr : shares
        False-alarm rates at which misses, and miss rates at which false alarms are to be known,
        each with its threshold.
    target : str, optional
        The kind to be accepted; TC, ``target`` or the same in every view is found by itself.
    equal_weights : bool
        Add the row ``Equal``, in which every kind of non-targets has the same weight.
    spoofing : SpoofingCost, optional
        What errors cost where trials of the kind ``spoof`` are among the others, for a-DCF; by default those of the
        ASVspoof 5 challenge.

    Examples
    --------
    >>> from mvplda.metrics import evaluate
    >>> result = evaluate([4.0, 3.0, 1.0, 2.0, -1.0, 0.0], ["TC", "TC", "TC", "IC", "IW", "TW"])
    >>> {kind: round(row["eer"], 3) for kind, row in result.rows.items()}
    {'IW': 0.0, 'IC': 0.25, 'TW': 0.0, 'Total': 0.167}
    """
    costs = detection_costs(costs)
    metrics = metrics_of(costs, far, frr)
    chosen, targets, parts = split_by_kind(scores, kinds, target)
    taken = {TOTAL, EQUAL} & {chosen, *parts}
    if taken:
        raise ParameterError(
            f"{sorted(taken)[0]!r} names a row of the table; give that kind of trial another name"
        )
    targets.sort()  # copies of our own
    for part in parts.values():
        part.sort()
    sizes = {kind: len(part) for kind, part in parts.items()}
    nothing = {metric.name: math.nan for metric in metrics}
    rows = {
        kind: measures(ScoreCurve.from_sorted(targets, [part]), kind, metrics)
        if len(part)
        else Measures(kind, len(targets), 0, nothing)
        for kind, part in parts.items()
    }
    present = [part for part in parts.values() if len(part)]
    weights = {TOTAL: kind_weights(sizes, equal=False)}
    rows[TOTAL] = measures(ScoreCurve.from_sorted(targets, present), TOTAL, metrics)
    if equal_weights:
        weights[EQUAL] = kind_weights(sizes, equal=True)
        each = [share / sizes[kind] for kind, share in weights[EQUAL].items()]
        rows[EQUAL] = measures(ScoreCurve.from_sorted(targets, present, each), EQUAL, metrics)
    cost, a_dcf = spoofing or SpoofingCost(), {}
    ordinary = [part for kind, part in parts.items() if kind != SPOOF and len(part)]
    if len(parts.get(SPOOF, ())) and ordinary:
        sides = targets, np.concatenate(ordinary), parts[SPOOF]
        a_dcf = {"min": cost.least(*sides), "act": cost.at(cost.threshold, *sides)}
    return Evaluation(rows, metrics, costs, chosen, weights, a_dcf, cost)


# Tables as text, Markdown and LaTeX: by title, rows of cells of which the first is the head.


Tables = Mapping[str, Sequence[Sequence[str]]]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines whose columns are as wide as their widest cell, two spaces apart; the first column is flush left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            c.rjust(w) if i else c.ljust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def markdown_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    head, *body = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    rule = [":---", *["---:"] * (len(head) - 1)]
    return ["| " + " | ".join(row) + " |" for row in (head, rule, *body)]


def _text(tables: Tables, notes: Sequence[str]) -> str:
    lines: list[str] = []
    for title, rows in tables.items():
        lines += [*([] if title == ERRORS else [f"{title}:"]), *aligned(rows), ""]
    return "\n".join([*lines, *notes]) + "\n"


def _markdown(tables: Tables, notes: Sequence[str]) -> str:
    lines: list[str] = []
    for title, rows in tables.items():
        lines += [*([] if title == ERRORS else [f"{title}:", ""]), *markdown_rows(rows), ""]
    return "\n".join([*lines, *(f"- {note}" for note in notes)]) + "\n"


LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
LATEX |= {sign: "\\" + sign for sign in "&%$#_{}"}


def _latex(tables: Tables, notes: Sequence[str]) -> str:
    def line(row: Sequence[str]) -> str:
        return " & ".join("".join(LATEX.get(c, c) for c in cell) for cell in row) + r" \\"

    lines = ["% Needs \\usepackage{booktabs}.", *(f"% {note}" for note in notes)]
    for title, (head, *body) in tables.items():
        lines += [
            f"% {title}",
            r"\begin{tabular}{l" + "r" * (len(head) - 1) + "}",
            r"\toprule",
            line(head),
        ]
        lines += [r"\midrule", *map(line, body), r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


FORMATS: dict[str, Callable[[Tables, Sequence[str]], str]] = {
    "text": _text,
    "markdown": _markdown,
    "latex": _latex,
}
