"""The tables by kind: every metric of the targets against each kind of non-targets, and in total."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

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
MISCALIBRATION_RATIO = 1.5
"""An actual cost of so many times the least one shows scores that are not calibrated for the cost and the trials."""
BRACKETS = " [{}, {}]"
"""How a table in text shows an interval."""


@dataclass(frozen=True)
class Measures:
    """What the targets against one set of non-targets give: ``row["eer"]``, ``row["min_dcf/default"]`` ...

    values : by name of the metric; NaN of what is not known
    """

    n_targets: int
    n_nontargets: int
    values: dict[str, float]

    def __getitem__(self, name: str) -> float:
        return self.values[name]


@dataclass(frozen=True)
class Evaluation:
    """Measures by kind of non-targets, each against the same targets, and in total.

    rows : by kind, then ``Total``
    metrics : what was measured
    costs : the operating points of minDCF and actDCF
    target : the kind that is to be accepted
    """

    rows: dict[str, Measures]
    metrics: list[Metric] = field(compare=False)
    costs: tuple[DetectionCost, ...]
    target: str

    def __getitem__(self, kind: str) -> Measures:
        return self.rows[kind]

    @property
    def weights(self) -> dict[str, float]:
        """The share of every kind in the false-alarm rate of the total."""
        total = self.rows[TOTAL].n_nontargets
        return {
            k: r.n_nontargets / total for k, r in self.rows.items() if r.n_nontargets and k != TOTAL
        }

    def uncalibrated(self) -> str:
        """Return how far actDCF is from minDCF for the first cost where it is far, in words; else nothing.

        This is about these trials at one prior: the scores may be calibrated on other trials, or for other priors.

        Of n trials without an error up to 3 / n may be errors among more of them (the rule of three): a difference
        that such errors might make up shows nothing.
        """
        total = self.rows[TOTAL]
        for cost in self.costs:
            least = total[f"min_dcf/{cost.name}"]
            actual = total[f"act_dcf/{cost.name}"]
            unseen = cost.at(3 / total.n_targets, 3 / total.n_nontargets)
            if actual > MISCALIBRATION_RATIO * least + unseen:
                return (
                    f"{self.actual_and_least(cost)}: Bayes' threshold of {cost.threshold:.2f} is not the best for "
                    "these trials"
                )
        return ""

    def actual_and_least(self, cost: DetectionCost) -> str:
        """Return actDCF, minDCF and their ratio with the prior that they are of, in words."""
        total = self.rows[TOTAL]
        least = total[f"min_dcf/{cost.name}"]
        actual = total[f"act_dcf/{cost.name}"]
        ratio = ""
        if least > 0 and math.isfinite(actual):
            ratio = f" ({actual / least:.1f} times as much)"
        return (
            f"at a target prior of {cost.prior:g} (cost {cost.name}) actDCF is {actual:.3f} and minDCF "
            f"{least:.3f}{ratio}"
        )

    def tables(self) -> dict[str, list[Metric]]:
        """The metrics of every table, by its title."""
        titles = dict.fromkeys(metric.table for metric in self.metrics)
        return {title: [m for m in self.metrics if m.table == title] for title in titles}

    def definitions(self, intervals: Intervals | None = None) -> list[str]:
        """What the columns mean, one sentence each, with every cost and weight."""
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
        """Plain values for JSON; what is not finite (an empty kind, an infinite cost) is None."""
        about: Json = {
            "target": self.target,
            "costs": {cost.name: asdict(cost) for cost in self.costs},
            "weights": self.weights,
            "definitions": self.definitions(),
            "kinds": {},
        }
        for kind, row in self.rows.items():
            values: Json = {"n_targets": row.n_targets, "n_nontargets": row.n_nontargets}
            for name, value in row.values.items():
                family, _, point = name.partition("/")
                place = values.setdefault(family, {}) if point else values
                place[point or family] = float(value) if math.isfinite(value) else None
            about["kinds"][kind] = values
        return about

    def table(self, intervals: Intervals | None = None) -> str:
        """The rows as text, shares in percent.

        With ``intervals`` (of :func:`speaker_intervals` on the same scores) a metric is
        followed by its interval where it has one.
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
        """The cells of a table of some metrics, its head first."""
        metrics = list(metrics)
        rows = [["kind", "targets", "non-targets", *(metric.heading for metric in metrics)]]
        for kind, row in self.rows.items():
            cells = [self.cell(metric, kind, intervals, form) for metric in metrics]
            rows.append([kind, f"{row.n_targets:,}", f"{row.n_nontargets:,}", *cells])
        return rows

    def cell(
        self, metric: Metric, kind: str, intervals: Intervals | None = None, form: str = BRACKETS
    ) -> str:
        """A metric of a kind as tables show it, with its interval in that form."""
        value = self.rows[kind][metric.name]
        around = None if intervals is None else intervals.of(kind, metric.name)
        shown = metric.show(value)
        if around is None or math.isnan(value):
            return shown
        ends = [metric.show(around.low), metric.show(around.high)]
        # an interval may show nothing but the number itself
        return shown if ends == [shown, shown] else shown + form.format(*ends)

    def summary(self) -> list[tuple[str, Metric, str]]:
        """What is shown of each of several systems: heading, metric and kind.

        The first metric of every kind, and the others that are headlines of the total.
        """
        first, *others = [metric for metric in self.metrics if metric.headline]
        totals = [(metric.heading, metric, TOTAL) for metric in others]
        return [(kind, first, kind) for kind in self.rows] + totals


def split_by_kind(scores: ArrayLike, kinds: Kinds) -> tuple[str, Scores, dict[str, Scores]]:
    """The name of the target kind, its scores, and the scores of the other kinds, IW, IC, TW first."""
    array = np.asarray(scores)
    masks = as_masks(kinds, array.shape)
    chosen = target_kind(masks)
    if TOTAL in masks:
        raise ParameterError(
            f"{TOTAL!r} names a row of the table; give that kind of trial another name"
        )
    targets = as_scores(array[masks[chosen]], f"target ({chosen})")
    parts = {}
    for kind in ordered_kinds(masks, chosen):
        some = array[masks[kind]]
        parts[kind] = as_scores(some, kind) if len(some) else np.empty(0, targets.dtype)
    if not any(map(len, parts.values())):
        raise DataError(
            f"there are no non-target scores: no trial has a kind other than {chosen!r}"
        )
    return chosen, targets, parts


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
        Masks by kind as :func:`trial_kinds` gives them, or the name of the kind of every
        trial, or booleans that say which trials are targets. TC, ``target`` or the same in every view is the
        kind to be accepted. Trials in no mask are left out.
    costs : names, triples or :class:`DetectionCost`
        Operating points of minDCF and actDCF.
    far : shares
        False-alarm rates at which misses are to be known, each with its threshold.

    Examples
    --------
    >>> from mvplda.metrics import evaluate
    >>> result = evaluate([4.0, 3.0, 1.0, 2.0, -1.0, 0.0], ["TC", "TC", "TC", "IC", "IW", "TW"])
    >>> {kind: round(row["eer"], 3) for kind, row in result.rows.items()}
    {'IW': 0.0, 'IC': 0.25, 'TW': 0.0, 'Total': 0.167}
    """
    costs = detection_costs(costs)
    metrics = metrics_of(costs, far)
    chosen, targets, parts = split_by_kind(scores, kinds)
    for array in (targets, *parts.values()):
        array.sort()  # copies of our own
    total = np.sort(np.concatenate(list(parts.values())), kind="stable")  # of sorted pieces
    accepted = SortedScores(targets)
    rows: dict[str, Measures] = {}
    for kind, scored in {**parts, TOTAL: total}.items():
        values = dict.fromkeys((metric.name for metric in metrics), math.nan)
        if len(scored):
            curve = Curve(accepted, SortedScores(scored))
            stated = [metric for metric in metrics if metric.enough(curve)]
            values |= {metric.name: metric.value(curve) for metric in stated}
        rows[kind] = Measures(len(targets), len(scored), values)
    return Evaluation(rows, metrics, costs, chosen)


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines whose columns are as wide as their widest cell, two spaces apart; the first column is flush left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *rest in rows:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return lines
