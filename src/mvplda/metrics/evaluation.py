"""Evaluation of scores: all metrics of the targets against each kind of non-targets, and against all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from .._typing import Json
from ..costs import Costs, DetectionCost, detection_costs
from ..exceptions import DataError, ParameterError
from ..kinds import Kinds, as_masks, ordered_kinds, target_kind
from .catalogue import ERRORS, FARS, Metric, metrics_of
from .curves import Curve, Scores, SortedScores, as_scores

if TYPE_CHECKING:
    from .intervals import Intervals

TOTAL = "Total"
"""Name of the row of a table with the non-targets of all kinds."""
MISCALIBRATION_RATIO = 1.5
"""Ratio of actDCF to minDCF above which scores count as not calibrated for the cost and the trials."""
BRACKETS = " [{}, {}]"
"""Format of an interval in text tables."""


@dataclass(frozen=True)
class Measures:
    """Metrics of the targets against one kind of non-targets: ``row["eer"]``, ``row["min_dcf/default"]`` ...

    n_targets, n_nontargets : numbers of trials
    values : value of each metric by its name; NaN if it is unknown
    """

    n_targets: int
    n_nontargets: int
    values: dict[str, float]

    def __getitem__(self, name: str) -> float:
        return self.values[name]


@dataclass(frozen=True)
class Evaluation:
    """Metrics by kind of non-targets, each against the same targets, and in total.

    rows : metrics by kind of non-targets; the last row, ``Total``, has all non-targets
    metrics : definitions of the metrics, in the order of tables
    costs : detection costs of minDCF and actDCF
    target : name of the kind of the targets, such as TC
    """

    rows: dict[str, Measures]
    metrics: list[Metric] = field(compare=False)
    costs: tuple[DetectionCost, ...]
    target: str

    def __getitem__(self, kind: str) -> Measures:
        return self.rows[kind]

    @property
    def weights(self) -> dict[str, float]:
        """Share of each kind among all non-targets, {kind: share}.

        The false-alarm rate of the row ``Total`` is the mean over the kinds with these weights.
        """
        total = self.rows[TOTAL].n_nontargets
        return {
            kind: row.n_nontargets / total
            for kind, row in self.rows.items()
            if row.n_nontargets and kind != TOTAL
        }

    def uncalibrated(self) -> str:
        """Return a sentence about the first cost at which scores are badly calibrated; empty text if there is none.

        Scores are badly calibrated if actDCF is more than `MISCALIBRATION_RATIO` times minDCF, and if the difference
        is too large for chance: n trials without an error allow an error rate of up to 3 / n (rule of three). The
        result holds for these trials at the prior of the cost; scores may be calibrated for other trials or priors.
        """
        total = self.rows[TOTAL]
        for cost in self.costs:
            min_dcf = total[f"min_dcf/{cost.name}"]
            act_dcf = total[f"act_dcf/{cost.name}"]
            unseen_cost = cost.at(3 / total.n_targets, 3 / total.n_nontargets)
            if act_dcf > MISCALIBRATION_RATIO * min_dcf + unseen_cost:
                return (
                    f"{self.actual_and_least(cost)}: Bayes' threshold of {cost.threshold:.2f} is not the best for "
                    "these trials"
                )
        return ""

    def actual_and_least(self, cost: DetectionCost) -> str:
        """Return a clause with actDCF, minDCF and their ratio at the prior of a cost."""
        total = self.rows[TOTAL]
        min_dcf = total[f"min_dcf/{cost.name}"]
        act_dcf = total[f"act_dcf/{cost.name}"]
        ratio = ""
        if min_dcf > 0 and math.isfinite(act_dcf):
            ratio = f" ({act_dcf / min_dcf:.1f} times as much)"
        return (
            f"at a target prior of {cost.prior:g} (cost {cost.name}) actDCF is {act_dcf:.3f} and minDCF "
            f"{min_dcf:.3f}{ratio}"
        )

    def tables(self) -> dict[str, list[Metric]]:
        """Return the metrics of each table, by the title of the table."""
        titles = dict.fromkeys(metric.table for metric in self.metrics)
        return {title: [m for m in self.metrics if m.table == title] for title in titles}

    def definitions(self, intervals: Intervals | None = None) -> list[str]:
        """Return sentences for the foot of a table: definitions of the columns, costs, and shares of the kinds.

        intervals : intervals that the table shows; None: it shows none
        """
        shares = ", ".join(f"{kind} {share:.4g}" for kind, share in self.weights.items())
        lines = [
            f"Every row is {self.target} against the non-targets of that kind.",
            *dict.fromkeys(note for metric in self.metrics for note in metric.notes),
            f"{TOTAL} pools all non-target trials as they come; shares: {shares}.",
        ]
        if intervals is not None:
            lines.append(intervals.definition())
        return lines

    def to_dict(self) -> Json:
        """Return the evaluation as plain values for JSON; numbers that are not finite become None."""
        kinds: Json = {}
        about: Json = {
            "target": self.target,
            "costs": {cost.name: asdict(cost) for cost in self.costs},
            "weights": self.weights,
            "definitions": self.definitions(),
            "kinds": kinds,
        }
        for kind, row in self.rows.items():
            values: dict[str, Any] = {
                "n_targets": row.n_targets,
                "n_nontargets": row.n_nontargets,
            }
            for name, value in row.values.items():
                family, _, point = name.partition("/")
                record = values.setdefault(family, {}) if point else values
                record[point or family] = float(value) if math.isfinite(value) else None
            kinds[kind] = values
        return about

    def table(self, intervals: Intervals | None = None) -> str:
        """Return the tables as text, with shares in percent.

        intervals : result of :func:`speaker_intervals` for the same scores, which is shown behind the metrics that have
            an interval; None: show none
        """
        lines = []
        for title, metrics in self.tables().items():
            if title != ERRORS:
                lines.append(f"{title}:")
            lines += [*align_columns(self.grid(metrics, intervals)), ""]
        return "\n".join([*lines, *self.definitions(intervals)]) + "\n"

    def grid(
        self, metrics: Iterable[Metric], intervals: Intervals | None = None, form: str = BRACKETS
    ) -> list[list[str]]:
        """Return the cells of a table as rows of text: the headings, then a row per kind of trial.

        metrics : metrics of the columns after kind, targets and non-targets
        intervals : intervals to show behind the values; None: show none
        form : format of an interval, with placeholders for its lower and upper end
        """
        metrics = list(metrics)
        rows = [["kind", "targets", "non-targets", *(metric.heading for metric in metrics)]]
        for kind, row in self.rows.items():
            cells = [self.cell(metric, kind, intervals, form) for metric in metrics]
            rows.append([kind, f"{row.n_targets:,}", f"{row.n_nontargets:,}", *cells])
        return rows

    def cell(
        self, metric: Metric, kind: str, intervals: Intervals | None = None, form: str = BRACKETS
    ) -> str:
        """Return the value of a metric for a kind of trial as text.

        intervals : intervals; that of the metric is added to the text, unless both ends are shown
            with the same digits as the value. None: no interval is added
        form : format of an interval, with placeholders for its lower and upper end
        """
        value = self.rows[kind][metric.name]
        interval = None if intervals is None else intervals.of(kind, metric.name)
        shown = metric.show(value)
        if interval is None or math.isnan(value):
            return shown
        ends = [metric.show(interval.low), metric.show(interval.high)]
        if ends == [shown, shown]:
            return shown
        return shown + form.format(*ends)

    def summary(self) -> list[tuple[str, Metric, str]]:
        """Return the columns of a table that compares systems, as (heading, metric, kind of trial).

        The first metric, EER, has a column per kind of trial; further metrics have one column, for all trials.
        """
        first, *further = [metric for metric in self.metrics if metric.headline]
        totals = [(metric.heading, metric, TOTAL) for metric in further]
        return [(kind, first, kind) for kind in self.rows] + totals


def split_by_kind(scores: ArrayLike, kinds: Kinds) -> tuple[str, Scores, dict[str, Scores]]:
    """Divide scores by the kinds of their trials.

    Returns
    -------
    name of the kind of the targets
    scores of the targets
    scores by kind of non-target, in the order of table rows: IW, IC, TW, then others
    """
    array = np.asarray(scores)
    masks = as_masks(kinds, array.shape)
    target = target_kind(masks)
    if TOTAL in masks:
        raise ParameterError(
            f"a kind of trial is called {TOTAL!r}, which is the name of a row of the table: rename the kind"
        )
    targets = as_scores(array[masks[target]], f"target ({target})")
    nontargets = {}
    for kind in ordered_kinds(masks, target):
        kind_scores = array[masks[kind]]
        nontargets[kind] = np.empty(0, targets.dtype)
        if len(kind_scores):
            nontargets[kind] = as_scores(kind_scores, kind)
    if not any(map(len, nontargets.values())):
        raise DataError(
            f"there are no non-target scores: no trial has a kind other than {target!r}"
        )
    return target, targets, nontargets


def evaluate(
    scores: ArrayLike,
    kinds: Kinds,
    costs: Costs = ("default",),
    *,
    far: Iterable[float] = FARS,
) -> Evaluation:
    """Measure scores by kind of trial.

    Parameters
    ----------
    scores : array-like
        Natural-log likelihood ratios, of any shape.
    kinds : mapping, or array-like
        Masks by kind as :func:`trial_kinds` returns them, or the name of the kind of each
        trial, or booleans that are true for targets. Targets are the trials of the kind TC, ``target``, or the kind
        that names all views. Trials in no mask are ignored.
    costs : names, triples or :class:`DetectionCost`
        Operating points of minDCF and actDCF.
    far : shares in (0, 1)
        False-alarm rates at which the miss rate and the threshold are computed.

    Examples
    --------
    >>> from mvplda.metrics import evaluate
    >>> result = evaluate([4.0, 3.0, 1.0, 2.0, -1.0, 0.0], ["TC", "TC", "TC", "IC", "IW", "TW"])
    >>> {kind: round(row["eer"], 3) for kind, row in result.rows.items()}
    {'IW': 0.0, 'IC': 0.25, 'TW': 0.0, 'Total': 0.167}
    """
    costs = detection_costs(costs)
    metrics = metrics_of(costs, far)
    target, targets, nontargets = split_by_kind(scores, kinds)
    # These arrays are copies, so that sorting in place leaves the caller's scores unchanged.
    for array in (targets, *nontargets.values()):
        array.sort()
    # A stable sort merges sorted blocks in linear time.
    total = np.sort(np.concatenate(list(nontargets.values())), kind="stable")
    sorted_targets = SortedScores(targets)
    kind_scores = {**nontargets, TOTAL: total}
    curves = {
        kind: Curve(sorted_targets, SortedScores(others)) for kind, others in kind_scores.items()
    }
    sizes = {kind: len(others) for kind, others in kind_scores.items()}
    return evaluation_of_curves(curves, sizes, len(targets), metrics, costs, target)


def evaluation_of_curves(
    curves: Mapping[str, Curve],
    sizes: Mapping[str, int],
    n_targets: int,
    metrics: list[Metric],
    costs: tuple[DetectionCost, ...],
    target: str,
) -> Evaluation:
    """Return the metrics of the curve of each kind of non-targets.

    curves : sorted scores by kind; the last kind is ``Total``
    sizes : number of non-targets by kind; the metrics of a kind without any are NaN
    n_targets : number of targets
    target : name of the kind of the targets
    """
    rows: dict[str, Measures] = {}
    for kind, curve in curves.items():
        values = dict.fromkeys((metric.name for metric in metrics), math.nan)
        if sizes[kind]:
            reliable = [metric for metric in metrics if metric.has_enough_trials(curve)]
            values |= {metric.name: metric.value(curve) for metric in reliable}
        rows[kind] = Measures(n_targets, sizes[kind], values)
    return Evaluation(rows, metrics, costs, target)


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines of text with aligned columns: the first flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *rest in rows:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return lines
