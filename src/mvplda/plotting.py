"""Plots of scores, as displays in the style of scikit-learn; the extra ``plot`` installs matplotlib.

``from_predictions`` creates and draws a display. The attributes ``ax_`` and ``figure_`` are its axes and its figure.
Pass the same ``ax`` to several displays to draw them on shared axes.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from ._optional import need
from ._typing import FloatArray
from .costs import DetectionCost, detection_cost
from .kinds import Kinds, target_kind
from .metrics import ScoreCurve
from .metrics.curves import as_scores
from .metrics.evaluation import split_by_kind

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from .metrics.evaluation import Evaluation
    from .metrics.intervals import Intervals

__all__ = [
    "DetDisplay",
    "ScoreHistogramDisplay",
    "TippettDisplay",
]

INK = "#102030"
"""Colour of text and axes; a report page replaces it by the reader's text colour."""
KIND_COLOURS = {"TC": "#0072B2", "TW": "#E69F00", "IC": "#D55E00", "IW": "#999999", "Total": INK}
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#999999")
DET_TICKS = (0.0001, 0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4)
THIN: Any = {"color": INK, "linewidth": 0.5}
SMALL = "small"
LLR = "score (natural-log likelihood ratio)"


class Display:
    """Base class of plots.

    Attributes
    ----------
    ax_, figure_ : axes and figure of the plot, after `plot`
    """

    CAPTION = ""
    """Caption of the plot on a report page."""

    ax_: Axes
    figure_: Figure | SubFigure

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw the plot, and return the display.

        Parameters
        ----------
        ax : axes to draw on; None: those of a new figure
        """
        if ax is None:
            _, ax = need("matplotlib.pyplot").subplots(layout="constrained")
        self._draw(ax)
        self.ax_ = ax
        self.figure_ = ax.figure
        return self

    def _draw(self, axes: Axes) -> None:
        """Draw the plot on these axes."""
        raise NotImplementedError


class _ScoreDisplay(Display):
    """Base class of plots of scores by kind of trial.

    Parameters
    ----------
    scores : {kind: scores (n,)}, with at least the targets
    """

    def __init__(self, scores: Mapping[str, ArrayLike]) -> None:
        self.target = target_kind(scores)
        self.scores: dict[str, FloatArray] = {
            kind: as_scores(values, kind) for kind, values in scores.items()
        }

    @property
    def non_targets(self) -> dict[str, FloatArray]:
        """Scores by kind of non-target."""
        return {kind: scores for kind, scores in self.scores.items() if kind != self.target}

    @classmethod
    def from_predictions(cls, y_true: Kinds, y_score: ArrayLike, *, ax: Axes | None = None) -> Self:
        """Draw the plot from LLRs and the kind of each trial, and return the display.

        Parameters
        ----------
        y_true : kinds as for `mvplda.metrics.evaluate` (masks by kind, names or booleans), or numbers that are above 0
            for targets
        y_score : LLRs of any shape
        ax : axes to draw on; None: those of a new figure
        """
        if not isinstance(y_true, Mapping) and np.asarray(y_true).dtype.kind in "iuf":
            y_true = np.asarray(y_true) > 0
        target, target_scores, non_targets = split_by_kind(y_score, y_true)
        present = {kind: scores for kind, scores in non_targets.items() if len(scores)}
        return cls({target: target_scores, **present}).plot(ax)


class DetDisplay(_ScoreDisplay):
    """Detection error trade-off: misses over false alarms on probit axes, by kind of trial, with EER and minDCF.

    Probit axes cannot show an error rate of 0. Each curve therefore ends, with a square, at the
    rate of a single error: 1 / number of trials. A dot marks the EER, a cross the threshold of the
    minDCF.

    Parameters
    ----------
    scores : {kind: scores (n,)}, with at least the targets
    cost : detection cost of the minDCF; None: the preset "default"

    Examples
    --------
    >>> from mvplda.plotting import DetDisplay
    >>> display = DetDisplay.from_predictions(["TC", "TC", "IC", "IC"], [2.0, -0.5, 0.1, -3.0])
    >>> display.ax_.get_xlabel()
    'false alarms, %'
    """

    CAPTION = (
        "Detection error trade-off: misses against false alarms at every threshold, on probit axes. A "
        "square marks the end of a curve, where a single error is left."
    )

    def __init__(self, scores: Mapping[str, ArrayLike], cost: DetectionCost | None = None) -> None:
        super().__init__(scores)
        self.cost = detection_cost("default") if cost is None else cost

    def _draw(self, axes: Axes) -> None:
        targets = self.scores[self.target]
        pooled = np.concatenate(list(self.non_targets.values()))
        for i, (kind, scores) in enumerate({**self.non_targets, "Total": pooled}.items()):
            self._draw_curve(axes, kind, scores, colour_of(kind, i))

        set_probit_axes(axes)
        axes.set_title(f"dot: EER; cross: minDCF {self.cost}", fontsize=SMALL)
        legend_below(axes, 2, f"against {len(targets):,} targets")

    def _draw_curve(self, axes: Axes, kind: str, scores: FloatArray, colour: str) -> None:
        """Draw the curve of the targets against one kind of non-targets, with marks for its EER and minDCF.

        scores : scores of the non-targets
        """
        curve = ScoreCurve(self.scores[self.target], scores)
        eer = curve.eer()
        label = f"{kind} ({len(scores):,}): EER {100 * eer:.2f} %"
        points = _probits(*curve.steps()[1:])
        axes.plot(*points, color=colour, label=label)
        # a curve without any error has no points, and a curve of one point has a single end
        ends = points[:, [0, -1][: points.shape[1]]]
        axes.plot(*ends, "s", color=colour, markersize=3.5)
        axes.plot(*_probits(eer, eer), "o", color=colour)

        hull = curve.hull
        _, corner = hull.least(self.cost.miss_weight, self.cost.false_alarm_weight)
        least_cost = _probits(hull.miss[corner], hull.false_alarm[corner])
        axes.plot(*least_cost, "x", color=colour)


class ScoreHistogramDisplay(_ScoreDisplay):
    """Histogram of the scores of each kind of trial, as shares of the trials of this kind.

    The outermost bars include all scores beyond the axis, such as infinite scores.

    Parameters
    ----------
    scores : {kind: scores (n,)}, with at least the targets
    """

    CAPTION = "Scores by kind of trial; the outermost bars include all scores beyond the axis."

    def _draw(self, axes: Axes) -> None:
        pooled = np.concatenate(list(self.scores.values()))
        finite = pooled[np.isfinite(pooled)]
        span = np.array([np.min(finite, initial=0.0), np.max(finite, initial=0.0)])
        clipped = {kind: np.clip(scores, *span) for kind, scores in self.scores.items()}

        # outliers of a kind must not stretch the axis
        ends = np.array([np.quantile(scores, [0.002, 0.998]) for scores in clipped.values()])
        bins = np.linspace(ends[:, 0].min(), ends[:, 1].max(), 90)
        for i, (kind, scores) in enumerate(clipped.items()):
            values = np.clip(scores, bins[0], bins[-1])
            shares = np.full(len(scores), 1 / len(scores))
            colour = colour_of(kind, i)
            fill: dict[str, Any] = {"histtype": "stepfilled", "facecolor": (colour, 0.35)}
            axes.hist(values, bins.tolist(), weights=shares, label=kind, edgecolor=colour, **fill)
        axes.axvline(0, **THIN)
        axes.set(xlabel=LLR, ylabel="share of the trials of a kind")
        legend_below(axes, 4)


class TippettDisplay(_ScoreDisplay):
    """Tippett plot: share of the trials of each kind whose score is above a value.

    For reliable LLRs, few targets are below 0 and few non-targets are above 0.

    Parameters
    ----------
    scores : {kind: scores (n,)}, with at least the targets
    """

    CAPTION = (
        "Tippett plot: share of trials with a score above a value. Targets below 0 and non-targets above 0 "
        "are misleading evidence."
    )

    def _draw(self, axes: Axes) -> None:
        for i, (kind, scores) in enumerate(self.scores.items()):
            above = np.linspace(100, 0, len(scores), endpoint=False)
            axes.step(np.sort(scores), above, where="pre", color=colour_of(kind, i), label=kind)
        axes.axvline(0, **THIN)
        axes.set(xlabel=LLR, ylabel="trials with a higher score, %", ylim=(0, 100))
        legend_below(axes, 4)


class SystemsDisplay(Display):
    """Plot of the EER of each system by kind of trial, with intervals, on a logarithmic axis that includes 0.

    Parameters
    ----------
    systems : {title of the system: (evaluation, intervals or None)}
    columns : kinds of trials to show
    """

    CAPTION = "EER of each system by kind of trial; lines are the intervals over speakers."

    def __init__(
        self, systems: Mapping[str, tuple[Evaluation, Intervals | None]], columns: Sequence[str]
    ) -> None:
        self.systems = systems
        self.columns = columns

    def _draw(self, axes: Axes) -> None:
        rows = np.arange(len(self.systems))
        for i, kind in enumerate(self.columns):
            colour = colour_of(kind, i)
            # the kinds of a system are drawn below each other
            heights = rows + 0.15 * i
            errors = [100 * evaluation[kind]["eer"] for evaluation, _ in self.systems.values()]
            axes.plot(errors, heights, "o", color=colour, label=kind)
            for height, (_, intervals) in zip(heights, self.systems.values(), strict=True):
                interval = None if intervals is None else intervals.of(kind, "eer")
                if interval is not None:
                    axes.hlines(height, 100 * interval.low, 100 * interval.high, color=colour)
        axes.set_xscale("symlog", linthresh=0.1)
        axes.set(xlim=(-0.01, 50), xlabel="EER, % (log scale)")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_yticks(rows, list(self.systems))
        axes.invert_yaxis()
        axes.grid(alpha=0.25)
        legend_below(axes, 4)


def render(display: Display) -> str:
    """Return a plot as the text of an SVG file without a background; the same plot gives the same text."""
    settings = dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK
    )
    settings |= {"svg.fonttype": "none", "svg.hashsalt": "mvplda", "font.family": "sans-serif"}
    svg = io.StringIO()
    with need("matplotlib").rc_context(settings):
        # unlike pyplot, a Figure needs no display
        figure = need("matplotlib.figure").Figure(figsize=(6, 5), layout="constrained")
        axes = figure.subplots()
        display.plot(axes)
        axes.patch.set_alpha(0)
        plain = {"Date": None, "Creator": None}
        figure.savefig(svg, format="svg", transparent=True, metadata=plain)
    return svg.getvalue()


def colour_of(kind: str, index: int) -> str:
    """Return the colour of a kind of trial; without a fixed colour, colour `index` of a palette."""
    return KIND_COLOURS.get(kind, PALETTE[index % len(PALETTE)])


def legend_below(axes: Axes, columns: int, title: str | None = None) -> None:
    """Add a legend with this number of columns below the axes, where it covers no data."""
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.13),
        frameon=False,
        fontsize=SMALL,
        ncols=columns,
        title=title,
        title_fontsize=SMALL,
    )


def set_probit_axes(axes: Axes) -> None:
    """Set the scales and labels of the axes of a DET plot (error rates in %), and draw the line of equal rates."""
    ticks = ndtri(np.array(DET_TICKS))
    labels = [f"{100 * rate:g}" for rate in DET_TICKS]
    span = ndtri(np.array([0.00005, 0.5]))
    axes.plot(span, span, linestyle=":", **THIN)
    axes.set(xlim=span, ylim=span, xlabel="false alarms, %", ylabel="misses, %", aspect="equal")
    axes.set_xticks(ticks, labels)
    axes.set_yticks(ticks, labels)
    axes.grid(alpha=0.25)


def _probits(miss: ArrayLike, false_alarm: ArrayLike) -> FloatArray:
    """Return the points (2, n) of a DET plot as normal deviates (probits), false alarms in the first row.

    Points with a rate of 0 or 1, whose deviate is infinite, are left out.
    """
    rates = np.reshape([false_alarm, miss], (2, -1))
    points: FloatArray = ndtri(rates[:, ((rates > 0) & (rates < 1)).all(axis=0)])
    return points
