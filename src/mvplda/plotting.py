"""Plots of scores and models, as displays in scikit-learn's way; the extra ``plot`` brings matplotlib.

A display is made by ``from_estimator`` or ``from_predictions``, which draw at once, and has the axes
in ``ax_`` and the figure in ``figure_``. Given several displays the same ``ax``, they share it.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from ._optional import need
from ._typing import FloatArray, Json, Setting
from .exceptions import LabelError
from .kinds import DetectionCost, Kinds, detection_cost, target_kind
from .metrics import ScoreCurve
from .metrics.curves import as_scores
from .metrics.evaluation import split_by_kind

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from .metrics.evaluation import Evaluation
    from .metrics.intervals import Intervals
    from .models import BaseScorer, MultiviewPLDA
    from .scoring.profiles import SideLike

__all__ = [
    "DetDisplay",
    "ExplainedVarianceDisplay",
    "LatentSpaceDisplay",
    "ScoreHistogramDisplay",
    "TippettDisplay",
]

KIND_COLOURS = {"TC": "#0072B2", "TW": "#E69F00", "IC": "#D55E00", "IW": "#999999"}
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#999999")
SYSTEM_COLOURS = (
    *("#BBBBBB", "#56B4E9", "#CC79A7", "#E69F00", "#D55E00"),
    *("#88CCEE", "#009E73", "#DDCC77", "#882255", "#0072B2"),
)
DET_TICKS = (0.0001, 0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4)
INK = "#102030"
"""The colour of text and axes; a page makes it the reader's text colour."""
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

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseScorer,
        X: ArrayLike,
        y: Kinds,
        *,
        profiles: SideLike,
        ax: Axes | None = None,
        **question: Setting,
    ) -> Self:
        """From a fitted scorer: every profile against every vector of X.

        y : kinds of all trials (profiles, n)
        question : as `llr` takes it, such as ``same="speaker"``
        """
        return cls.from_predictions(y, estimator.llr(profiles, X, **question), ax=ax)


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
            colour = INK if kind == "Total" else colour_of(kind, i)
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


class ExplainedVarianceDisplay(Display):
    """The share of the variance of the vectors that belongs to every view, and to the noise.

    shares : mapping of {view or "noise": share}
    """

    def __init__(self, shares: Mapping[str, float]) -> None:
        self.shares = dict(shares)

    @classmethod
    def from_estimator(cls, estimator: MultiviewPLDA, *, ax: Axes | None = None) -> Self:
        """From a fitted `MultiviewPLDA` or `PLDA`."""
        return cls(estimator.explained_variance_ratio_).plot(ax)

    def _draw(self, axes: Axes) -> None:
        percent = 100 * np.array(list(self.shares.values()))
        bars = axes.barh(list(self.shares), percent, color=PALETTE[0])
        axes.bar_label(bars, fmt="%.0f %%", padding=3)
        axes.invert_yaxis()
        axes.set(xlabel="share of the variance, %", xlim=(0, 110))


class LatentSpaceDisplay(Display):
    """Vectors in the latent space of one view, in the colours of their classes.

    latents : (n, 2) two dimensions of the view
    classes : (n,) the class of every vector
    """

    def __init__(self, latents: ArrayLike, classes: ArrayLike, view: str) -> None:
        self.latents: FloatArray = np.asarray(latents)
        self.classes = np.asarray(classes)
        self.view = view

    @classmethod
    def from_estimator(
        cls,
        estimator: MultiviewPLDA,
        X: ArrayLike,
        y: Mapping[str, ArrayLike],
        *,
        view: str,
        ax: Axes | None = None,
    ) -> Self:
        """The first two dimensions, from a fitted `MultiviewPLDA` or `PLDA` and vectors with their labels by view."""
        ranks = estimator.views_
        if view not in y or ranks.get(view, 0) < 2:
            raise LabelError(
                f"there are no two dimensions of a labelled view {view!r}; the dimensions of each view: "
                + ", ".join(f"{name} {rank}" for name, rank in ranks.items())
            )
        first = list(estimator.get_feature_names_out()).index(f"{view}0")
        return cls(estimator.transform(X)[:, first : first + 2], y[view], view).plot(ax)

    def _draw(self, axes: Axes) -> None:
        names = np.unique(self.classes)
        for i, name in enumerate(names):
            x, y = self.latents[self.classes == name].T
            axes.scatter(x, y, s=12, color=PALETTE[i % len(PALETTE)], label=str(name))
        axes.set(xlabel=f"{self.view}, one dimension", ylabel=f"{self.view}, another")
        if len(names) <= len(PALETTE):  # more have no colour of their own
            legend_below(axes, len(names))


class SystemsDisplay(Display):
    """EER of every system by kind of trial with its interval, on a log axis; no error at all is a written 0."""

    CAPTION = "EER of every system by kind of trial; lines are the intervals over speakers."

    def __init__(
        self, systems: Mapping[str, tuple[Evaluation, Intervals | None]], columns: Sequence[str]
    ) -> None:
        self.systems = systems
        self.columns = columns

    def _draw(self, axes: Axes) -> None:
        count = len(self.systems)
        width = 0.8 / count
        rows = [[result[c]["eer"] for c in self.columns] for result, _ in self.systems.values()]
        errors = 100 * np.array(rows)
        least = errors[errors > 0].min(initial=100.0) / 2
        colours = system_colours(self.systems)
        axes.set_yscale("log")
        for i, (system, (_, intervals)) in enumerate(self.systems.items()):
            places = np.arange(len(self.columns)) + (i - (count - 1) / 2) * width
            heights = np.where(errors[i] > 0, errors[i], np.nan)
            axes.bar(places, heights, width, label=system, color=colours[system])
            for place in places[errors[i] == 0]:
                axes.text(place, least, "0", ha="center", fontsize="x-small")
            for place, kind in zip(places, self.columns, strict=True):
                ends = None if intervals is None else intervals.of(kind, "eer")
                if ends is not None:
                    axes.vlines(place, max(100 * ends.low, least), 100 * ends.high, **THIN)
        axes.set_xticks(np.arange(len(self.columns)), self.columns)
        axes.set(
            xlim=(-0.5, len(self.columns) - 0.5), ylim=(least, None), ylabel="EER, % (log scale)"
        )
        axes.yaxis.set_major_formatter("{x:g}")
        legend_below(axes, 2)


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


def system_colours(systems: Iterable[str]) -> dict[str, str]:
    """A colour for every system, to be used in all plots of a page."""
    return {name: SYSTEM_COLOURS[i % len(SYSTEM_COLOURS)] for i, name in enumerate(systems)}


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
