"""Plots of scores, as displays in scikit-learn's way; the extra ``plot`` brings matplotlib.

A display is made by ``from_predictions``, which draws at once, and has the axes
in ``ax_`` and the figure in ``figure_``. Given several displays the same ``ax``, they share it.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from ._optional import need
from ._typing import FloatArray, Json
from .kinds import DetectionCost, Kinds, detection_cost, target_kind
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
"""The colour of text and axes; a page makes it the reader's text colour."""
KIND_COLOURS = {"TC": "#0072B2", "TW": "#E69F00", "IC": "#D55E00", "IW": "#999999", "Total": INK}
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#999999")
DET_TICKS = (0.0001, 0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4)
THIN: Any = {"color": INK, "linewidth": 0.5}
SMALL = "small"
LLR = "score (natural-log likelihood ratio)"


class Display:
    """Draws itself on axes, its own where none are given."""

    CAPTION = ""
    """What a page writes below it."""

    ax_: Axes
    figure_: Figure | SubFigure

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw, on these axes or on new ones."""
        if ax is None:
            _, ax = need("matplotlib.pyplot").subplots(layout="constrained")
        self._draw(ax)
        self.ax_ = ax
        self.figure_ = ax.figure
        return self

    def _draw(self, axes: Axes) -> None:
        raise NotImplementedError


class _ScoreDisplay(Display):
    """A display of scores by kind of trial.

    scores : mapping of {kind: (n,) scores}, the targets among them
    """

    def __init__(self, scores: Mapping[str, ArrayLike]) -> None:
        self.target = target_kind(scores)
        self.scores: dict[str, FloatArray] = {k: as_scores(v, k) for k, v in scores.items()}

    @property
    def others(self) -> dict[str, FloatArray]:
        """The scores of the kinds that are to be rejected."""
        return {kind: own for kind, own in self.scores.items() if kind != self.target}

    @classmethod
    def from_predictions(cls, y_true: Kinds, y_score: ArrayLike, *, ax: Axes | None = None) -> Self:
        """From LLRs of any shape and what every trial is.

        y_true : kinds as `mvplda.metrics.evaluate` takes them (masks by kind, names, booleans), or numbers
            above 0 for the same and others for not the same
        """
        if not isinstance(y_true, Mapping) and np.asarray(y_true).dtype.kind in "iuf":
            y_true = np.asarray(y_true) > 0
        target, accepted, others = split_by_kind(y_score, y_true)
        present = {kind: own for kind, own in others.items() if len(own)}
        return cls({target: accepted, **present}).plot(ax)


class DetDisplay(_ScoreDisplay):
    """Detection error trade-off: misses over false alarms on probit axes, by kind of trial, with EER and minDCF.

    An error that did not happen has no place on these axes, so a curve ends in a square where a single
    error is left. How far it goes is a matter of how many trials there are, not of how good they are.

    scores : mapping of {kind: (n,) scores}, the targets among them
    cost : the operating point that a cross marks

    Examples
    --------
    >>> from mvplda.plotting import DetDisplay
    >>> display = DetDisplay.from_predictions(["TC", "TC", "IC", "IC"], [2.0, -0.5, 0.1, -3.0])
    >>> display.ax_.get_xlabel()
    'false alarms, %'
    """

    CAPTION = (
        "Detection error trade-off: misses against false alarms at every threshold, on probit axes. A curve "
        "ends, in a square, where a single error is left."
    )

    def __init__(self, scores: Mapping[str, ArrayLike], cost: DetectionCost | None = None) -> None:
        super().__init__(scores)
        self.cost = detection_cost("default") if cost is None else cost

    def _draw(self, axes: Axes) -> None:
        targets = self.scores[self.target]
        pooled = np.concatenate(list(self.others.values()))
        for i, (kind, scores) in enumerate({**self.others, "Total": pooled}.items()):
            curve = ScoreCurve(targets, scores)
            colour = colour_of(kind, i)
            eer = curve.eer()
            label = f"{kind} ({len(scores):,}): EER {100 * eer:.2f} %"
            points = _probits(*curve.steps()[1:])
            axes.plot(*points, color=colour, label=label)
            axes.plot(*points[:, [0, -1][: points.shape[1]]], "s", color=colour, markersize=3.5)
            axes.plot(*_probits(eer, eer), "o", color=colour)
            hull = curve.hull
            _, corner = hull.least(self.cost.miss_weight, self.cost.false_alarm_weight)
            least = _probits(hull.miss[corner], hull.false_alarm[corner])
            axes.plot(*least, "x", color=colour)
        ticks = ndtri(np.array(DET_TICKS))
        span = ndtri(np.array([0.00005, 0.5]))
        labels = [f"{100 * t:g}" for t in DET_TICKS]
        axes.plot(span, span, linestyle=":", **THIN)
        axes.set(xlim=span, ylim=span, xlabel="false alarms, %", ylabel="misses, %", aspect="equal")
        axes.set_xticks(ticks, labels)
        axes.set_yticks(ticks, labels)
        axes.grid(alpha=0.25)
        axes.set_title(f"dot: EER; cross: minDCF {self.cost}", fontsize=SMALL)
        legend_below(axes, 2, f"against {len(targets):,} targets")


class ScoreHistogramDisplay(_ScoreDisplay):
    """Shares of the trials of every kind by score; infinite scores lie in the last bars.

    scores : mapping of {kind: (n,) scores}, the targets among them
    """

    CAPTION = "Scores by kind of trial; what lies beyond the axis is in its last bars."

    def _draw(self, axes: Axes) -> None:
        together = np.concatenate(list(self.scores.values()))
        finite = together[np.isfinite(together)]
        span = np.array([np.min(finite, initial=0.0), np.max(finite, initial=0.0)])
        shown = {kind: np.clip(own, *span) for kind, own in self.scores.items()}
        ends = np.array([np.quantile(own, [0.002, 0.998]) for own in shown.values()])
        bins = np.linspace(ends[:, 0].min(), ends[:, 1].max(), 90)
        for i, (kind, own) in enumerate(shown.items()):
            values = np.clip(own, bins[0], bins[-1])
            shares = np.full(len(own), 1 / len(own))
            colour = colour_of(kind, i)
            fill: Json = {"histtype": "stepfilled", "facecolor": (colour, 0.35)}
            axes.hist(values, bins.tolist(), weights=shares, label=kind, edgecolor=colour, **fill)
        axes.axvline(0, **THIN)
        axes.set(xlabel=LLR, ylabel="share of the trials of a kind")
        legend_below(axes, 4)


class TippettDisplay(_ScoreDisplay):
    """Tippett plot: the share of the trials of every kind whose score is above a value.

    Of likelihood ratios that can be used as evidence, few targets are left of 0 and few others right of it.

    scores : mapping of {kind: (n,) scores}, the targets among them
    """

    CAPTION = (
        "Tippett plot: trials with a score above a value. Targets left of 0, and others right of it, "
        "are evidence for the wrong side."
    )

    def _draw(self, axes: Axes) -> None:
        for i, (kind, own) in enumerate(self.scores.items()):
            above = np.linspace(100, 0, len(own), endpoint=False)
            axes.step(np.sort(own), above, where="pre", color=colour_of(kind, i), label=kind)
        axes.axvline(0, **THIN)
        axes.set(xlabel=LLR, ylabel="trials with a higher score, %", ylim=(0, 100))
        legend_below(axes, 4)


class SystemsDisplay(Display):
    """EER of every system by kind of trial with its interval, on a log axis that ends in 0."""

    CAPTION = "EER of every system by kind of trial; lines are the intervals over speakers."

    def __init__(
        self, systems: Mapping[str, tuple[Evaluation, Intervals | None]], columns: Sequence[str]
    ) -> None:
        self.systems = systems
        self.columns = columns

    def _draw(self, axes: Axes) -> None:
        places = np.arange(len(self.systems))
        for i, kind in enumerate(self.columns):
            colour = colour_of(kind, i)
            below = places + 0.15 * i
            errors = [100 * result[kind]["eer"] for result, _ in self.systems.values()]
            axes.plot(errors, below, "o", color=colour, label=kind)
            for place, (_, intervals) in zip(below, self.systems.values(), strict=True):
                ends = None if intervals is None else intervals.of(kind, "eer")
                if ends is not None:
                    axes.hlines(place, 100 * ends.low, 100 * ends.high, color=colour)
        axes.set_xscale("symlog", linthresh=0.1)
        axes.set(xlim=(-0.01, 50), xlabel="EER, % (log scale)")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_yticks(places, list(self.systems))
        axes.invert_yaxis()
        axes.grid(alpha=0.25)
        legend_below(axes, 4)


def render(display: Display) -> str:
    """A plot as SVG without a background."""
    settings = dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK
    )
    settings |= {"svg.fonttype": "none", "svg.hashsalt": "mvplda", "font.family": "sans-serif"}
    svg = io.StringIO()
    with need("matplotlib").rc_context(settings):
        # needs no screen, unlike one of pyplot
        figure = need("matplotlib.figure").Figure(figsize=(6, 5), layout="constrained")
        axes = figure.subplots()
        display.plot(axes)
        axes.patch.set_alpha(0)
        plain = {"Date": None, "Creator": None}
        figure.savefig(svg, format="svg", transparent=True, metadata=plain)
    return svg.getvalue()


def colour_of(kind: str, place: int) -> str:
    """The colour of a kind of trials."""
    return KIND_COLOURS.get(kind, PALETTE[place % len(PALETTE)])


def legend_below(axes: Axes, columns: int, title: str | None = None) -> None:
    """A legend under the axes, where it covers no data."""
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.13),
        frameon=False,
        fontsize=SMALL,
        ncols=columns,
        title=title,
        title_fontsize=SMALL,
    )


def _probits(miss: ArrayLike, false_alarm: ArrayLike) -> FloatArray:
    """(2, n) points of a DET plot, false alarms first, where both errors happened and both did not always."""
    rates = np.reshape([false_alarm, miss], (2, -1))
    points: FloatArray = ndtri(rates[:, ((rates > 0) & (rates < 1)).all(axis=0)])
    return points
