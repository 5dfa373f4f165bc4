"""Pictures of scores, and a self-contained page of tables and pictures: no network, light and dark, printable."""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ._optional import need
from ._typing import FloatArray
from .exceptions import MissingExtraError, MissingPicturesWarning
from .metrics import Evaluation, Intervals, ScoreCurve, bayes_error_rates
from .persistence import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Report", "write_report"]

KIND_COLOURS = {"TC": "#0072B2", "TW": "#E69F00", "IC": "#D55E00", "IW": "#999999"}
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#999999")
SYSTEM_COLOURS = (
    *("#BBBBBB", "#56B4E9", "#CC79A7", "#E69F00", "#D55E00"),
    *("#88CCEE", "#009E73", "#DDCC77", "#882255", "#0072B2"),
)
DET_TICKS = (0.0001, 0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4)
INK = "#102030"
"""The colour of text and axes; the page makes it the reader's text colour."""


def kind_words(kind: str, views: Sequence[str]) -> str:
    """A kind of trials of two views in words: TW is "same speaker, other phrase"."""
    return f"{'same' if kind[0] == 'T' else 'other'} {views[0]}, {'same' if kind[1] == 'C' else 'other'} {views[1]}"


def figure(width: float, height: float, panels: int = 1) -> tuple[Figure, Any]:
    """A figure that needs no display."""
    figures = need("matplotlib.figure")
    fig = figures.Figure(figsize=(width, height), layout="constrained")
    return fig, fig.subplots(1, panels)


def scatter_of_kinds(
    axes: Axes,
    first: FloatArray,
    second: FloatArray,
    kinds: Mapping[str, NDArray[np.bool_]],
    names: tuple[str, str],
    points: int = 1500,
) -> None:
    """LLR of one view against LLR of the other, coloured by kind: the picture of the whole idea."""
    rng = np.random.default_rng(0)
    for kind in ("IW", "IC", "TW", "TC"):
        where = np.flatnonzero(kinds[kind].reshape(-1))
        some = rng.permutation(where)[:points]
        axes.scatter(
            first.reshape(-1)[some],
            second.reshape(-1)[some],
            s=9 if kind == "TC" else 5,
            alpha=0.8 if kind == "TC" else 0.5,
            color=KIND_COLOURS[kind],
            edgecolors="none",
            label=f"{kind}: {kind_words(kind, names)}",
        )
    axes.axhline(0, color=INK, linewidth=0.5)
    axes.axvline(0, color=INK, linewidth=0.5)
    axes.set_xlabel(f"LLR: same {names[0]}, whatever the {names[1]}")
    axes.set_ylabel(f"LLR: same {names[1]}, whatever the {names[0]}")
    legend = legend_below(axes, 2, markerscale=3)
    for handle in legend.legend_handles:
        handle.set_alpha(1)


def system_colours(systems: Iterable[str]) -> dict[str, str]:
    """A colour for every system, to be used in all plots of a page."""
    return {name: SYSTEM_COLOURS[i % len(SYSTEM_COLOURS)] for i, name in enumerate(systems)}


Ends = Mapping[str, Mapping[str, tuple[float, float]]]
"""Lower and upper end of an interval, by system and kind of trial."""


def bars_of_systems(
    axes: Axes,
    table: Mapping[str, Mapping[str, float]],
    columns: tuple[str, ...],
    ends: Ends | None = None,
) -> None:
    """EER of every system by kind of trial, on a log axis, with intervals where there are some.

    No error at all is a written 0.
    """
    width = 0.8 / len(table)
    axes.set_yscale("log")
    colours = system_colours(table)
    for i, (system, row) in enumerate(table.items()):
        errors = 100 * np.array([row[c] for c in columns])
        places = np.arange(len(columns)) + (i - (len(table) - 1) / 2) * width
        heights = np.where(errors > 0, errors, np.nan)
        axes.bar(places, heights, width, label=system, color=colours[system])
        for place, column in zip(places, columns, strict=True):
            around = (ends or {}).get(system, {}).get(column)
            if around is not None and row[column] > 0:
                low = max(100 * around[0], 1e-6)  # a log axis has no zero
                axes.plot([place, place], [low, 100 * around[1]], color=INK, linewidth=0.8)
        for place in places[errors == 0]:
            across = axes.get_xaxis_transform()
            axes.text(
                place, 0.01, "0", transform=across, ha="center", fontsize="x-small", color=INK
            )
    axes.set_xticks(np.arange(len(columns)), columns)
    least = min(
        (100 * row[c] for row in table.values() for c in columns if row[c] > 0), default=1.0
    )
    axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(least / 2, None), ylabel="EER, % (log scale)")
    axes.legend(
        fontsize="small", ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False
    )


def legend_below(axes: Axes, columns: int, **options: Any) -> Any:
    """A legend under the axes, where it covers no data."""
    options |= {"loc": "upper center", "bbox_to_anchor": (0.5, -0.13), "frameon": False}
    return axes.legend(fontsize="small", ncols=columns, **options)


def colour_of(kind: str, place: int = 0) -> str:
    """The colour of a kind of trials."""
    return KIND_COLOURS.get(kind, PALETTE[place % len(PALETTE)])


def det_curve(
    axes: Axes, curve: ScoreCurve, colour: str, label: str, linewidth: float = 1.5
) -> None:
    """Misses against false alarms, as far as there are both: an error that did not happen has no place on the axes.

    A curve ends in a square where a single error is left. How far it goes is a matter of how many
    trials there are, not of how good they are.
    """
    _, miss, false_alarm = curve.steps()
    both = (miss > 0) & (miss < 1) & (false_alarm > 0) & (false_alarm < 1)
    x, y = ndtri(false_alarm[both]), ndtri(miss[both])
    axes.plot(x, y, color=colour, label=label, linewidth=linewidth)
    axes.plot(x[[0, -1][: len(x)]], y[[0, -1][: len(y)]], "s", color=colour, markersize=3.5)


def det_curves(axes: Axes, scores: Mapping[str, FloatArray], result: Evaluation) -> None:
    """Misses against false alarms on probit axes, of the targets against every kind, with EER and minDCF."""
    curves = {kind: {kind: values} for kind, values in scores.items() if kind != result.target}
    curves["Total"] = {kind: values for kind, values in scores.items() if kind != result.target}
    cost = result.costs[0]
    for i, (kind, parts) in enumerate(curves.items()):
        curve = ScoreCurve(scores[result.target], parts)
        colour = INK if kind == "Total" else colour_of(kind, i)
        det_curve(
            axes, curve, colour, f"{kind} ({curve.n_nontargets:,}): EER {100 * curve.eer():.2f} %"
        )
        if curve.eer() > 0:
            axes.plot(*[[ndtri(curve.eer())]] * 2, "o", color=colour, markersize=5)
        miss, false_alarm = curve.rates(result[kind][f"min_dcf_threshold/{cost.name}"])
        if 0 < miss < 1 and 0 < false_alarm < 1:
            axes.plot([ndtri(false_alarm)], [ndtri(miss)], "x", color=colour, markersize=7)
    det_axes(axes)
    axes.set_title(f"dot: EER; cross: minDCF {cost}", fontsize="small")
    legend_below(axes, 2, title=f"against {curve.n_targets:,} targets", title_fontsize="small")


def det_axes(axes: Axes) -> None:
    """Probit axes of misses against false alarms, both in percent."""
    ticks, span = ndtri(np.array(DET_TICKS)), ndtri(np.array([0.00005, 0.5]))
    labels = [f"{100 * t:g}" for t in DET_TICKS]
    axes.plot(span, span, color=INK, linewidth=0.5, linestyle=":")
    axes.set(xlim=span, ylim=span, xlabel="false alarms, %", ylabel="misses, %")
    axes.set_xticks(ticks, labels)
    axes.set_yticks(ticks, labels)
    axes.set_aspect("equal")
    axes.grid(alpha=0.25)


def score_histograms(axes: Axes, scores: Mapping[str, FloatArray]) -> None:
    """Shares of the trials of every kind by score."""
    ends = np.array([np.quantile(values, [0.002, 0.998]) for values in scores.values()])
    bins = np.linspace(ends[:, 0].min(), ends[:, 1].max(), 90)
    for i, (kind, values) in enumerate(scores.items()):
        share, edges = np.histogram(np.clip(values, bins[0], bins[-1]), bins)
        axes.stairs(
            share / max(values.size, 1),
            edges,
            fill=True,
            alpha=0.35,
            color=colour_of(kind, i),
            label=kind,
        )
        axes.stairs(share / max(values.size, 1), edges, color=colour_of(kind, i))
    axes.axvline(0, color=INK, linewidth=0.7)
    axes.set(xlabel="score (natural-log likelihood ratio)", ylabel="share of the trials of a kind")
    legend_below(axes, 4)


def bayes_error_plot(axes: Axes, targets: FloatArray, others: FloatArray) -> None:
    """Normalised Bayes error over the prior: the gap between the curves is poor calibration."""
    rates = bayes_error_rates(targets, others)
    actual, minimum = rates.normalised()
    axes.plot(rates.log_odds, actual, color="#D55E00", label="actual")
    axes.plot(
        rates.log_odds,
        minimum,
        color="#0072B2",
        linestyle="--",
        label="after the best recalibration",
    )
    axes.axhline(1, color=INK, linewidth=0.5)
    axes.axvline(np.log(0.01 / 0.99), color=INK, linewidth=0.5, linestyle=":")
    axes.set(
        xlabel="log prior odds of a target (dotted: prior 0.01)",
        ylabel="error / error without scores",
    )
    axes.set_ylim(0, min(2.0, max(1.1, float(np.nanmax(actual)) * 1.05)))
    legend_below(axes, 4)


def variance_bars(axes: Axes, shares: Mapping[str, float]) -> None:
    """How much of the vectors' variance every view explains."""
    names = list(shares)[::-1]
    values = [100 * shares[name] for name in names]
    axes.barh(names, values, color=[PALETTE[i % len(PALETTE)] for i in range(len(names))])
    for i, value in enumerate(values):
        axes.annotate(
            f"{value:.1f} %",
            (value, i),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize="small",
        )
    axes.set(xlabel="share of the variance, %", xlim=(0, 1.18 * max(values)))


def convergence_plot(axes: Axes, log_likelihoods: FloatArray) -> None:
    """Log-likelihood by iteration of EM, less its last value."""
    ticker = need("matplotlib.ticker")
    axes.plot(
        np.arange(len(log_likelihoods)),
        log_likelihoods - log_likelihoods[-1],
        "o-",
        color="#0072B2",
        markersize=3,
    )
    axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    axes.set(xlabel="iteration", ylabel="log-likelihood less the last one, nat")


def training_plot(axes: Axes, history: Sequence[Mapping[str, Any]]) -> None:
    """Loss of a network by epoch, and below it the errors on its own classes and on those held out, in per cent."""
    ticker = need("matplotlib.ticker")
    epochs = [record["epoch"] for record in history]
    axes.plot(
        epochs,
        [record["loss"] for record in history],
        "o-",
        color=INK,
        markersize=3,
        label="loss (left axis)",
    )
    axes.set(xlabel="epoch", ylabel="loss", ylim=(0, None))
    axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    right = axes.twinx()
    right.set(ylabel="error, %", ylim=(0, 100))
    for i, view in enumerate(history[0]["accuracy"]):
        errors = [100 * (1 - record["accuracy"][view]) for record in history]
        right.plot(
            epochs,
            errors,
            "s--",
            color=PALETTE[i % len(PALETTE)],
            markersize=3,
            label=f"{view} not told",
        )
    if all("held_out_eer" in record for record in history):
        held = [100 * record["held_out_eer"] for record in history]
        right.plot(
            epochs, held, "^-", color="#D55E00", markersize=4, label="EER of classes held out"
        )
    lines = [line for one in (axes, right) for line in one.get_lines()]
    axes.legend(lines, [str(line.get_label()) for line in lines], fontsize="small")


def scatter_of_classes(axes: Axes, X: NDArray[Any], classes: NDArray[Any], most: int = 20) -> None:
    """The first two principal components, coloured by class; of many classes, the first ones."""
    names = np.unique(classes)[:most]
    centred = X - X.mean(axis=0)
    places = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T
    colours = need("matplotlib").colormaps["hsv"](np.arange(len(names)) / len(names))
    for i, name in enumerate(names):
        own = places[classes == name]
        axes.scatter(
            own[:, 0],
            own[:, 1],
            s=7,
            color=colours[i],
            marker="os^vD"[i % 5],
            edgecolors="none",
            alpha=0.7,
        )
    axes.set(xticks=[], yticks=[], xlabel=f"{len(names)} classes, first two principal components")


def save_figure(fig: Figure, path: str | Path) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, dpi=130)
    return path


# The page.


STYLE = """
:root { color-scheme: light dark; --ink: #16202b; --paper: #ffffff; --line: #d5dbe1; --soft: #f3f5f7; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e8ed; --paper: #14181d; --line: #38414b; --soft: #1d232a; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1100px; margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .6rem; }
.finding { font-size: 1.2rem; line-height: 1.45; margin: .8rem 0 1.2rem; max-width: 46rem; }
dl.kinds { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .9rem; font-size: .92rem; }
dl.kinds dt { font-weight: 600; } dl.kinds dd { margin: 0; }
table { border-collapse: separate; border-spacing: 0; font-variant-numeric: tabular-nums; font-size: .92rem; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; width: fit-content; max-width: 100%; }
.scroll:focus-visible { outline: 2px solid #0072b2; }
th, td { padding: .35rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
tr:last-child td { border-bottom: 0; } tr.best td { font-weight: 600; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--paper);
  border-right: 1px solid var(--line); white-space: normal; min-width: 5rem; }
.hint { display: none; font-size: .8rem; opacity: .75; margin: .2rem 0; }
small.interval { display: block; opacity: .75; font-weight: 400; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); gap: 1.4rem; }
figure { margin: 0; background: var(--soft); border: 1px solid var(--line); border-radius: 8px; padding: .8rem; }
figure svg { width: 100%; height: auto; color: var(--ink); } figcaption { font-size: .88rem; margin-top: .3rem; }
details { margin: .8rem 0; } pre { overflow-x: auto; background: var(--soft); padding: .8rem; border-radius: 6px; }
ul.notes { font-size: .85rem; opacity: .85; padding-left: 1.2rem; }
@media (max-width: 900px) { .hint { display: block; } }
@media (max-width: 500px) { body { padding: 0 .8rem; } th, td { padding: .3rem .5rem; } figure { padding: .3rem; }
  th:first-child, td:first-child { max-width: 8.5rem; } }
@media print { html, body { font-size: 11px; } body { margin: 0; padding: 0; max-width: none; }
  details, .hint { display: none; }
  h1 { font-size: 1.5rem; } h2 { margin: 1rem 0 .3rem; break-after: avoid; } .finding { margin: .3rem 0 .6rem; }
  .scroll { overflow: visible; border: 0; width: auto; } table { font-size: .78rem; } tr { break-inside: avoid; }
  th, td { padding: .12rem .35rem; white-space: normal; } th:first-child, td:first-child { position: static; }
  .figures { display: block; font-size: 0; } .figures figure { display: inline-block; box-sizing: border-box;
    width: 49%; margin: 0 .5% .6rem; padding: .3rem; vertical-align: top; break-inside: avoid; }
  figcaption { font-size: 9px; } }
"""


FEW_SPEAKERS = 50
"""With fewer the page advises to measure with more."""

INTERVAL = '<small class="interval">{} to {}</small>'
"""How a cell shows its interval."""

Pictures = Mapping[str, tuple[str, "Callable[[Axes], None]"]]
"""Name -> caption, and how to draw."""


@dataclass(frozen=True)
class Report:
    """What a page shows.

    scores : by kind of trial
    view_scores : of two views, their own scores by kind (for the scatter, of the kinds TC, TW, IC and IW)
    variance, log_likelihoods : of the model, where it is known
    """

    title: str
    result: Evaluation
    scores: Mapping[str, FloatArray]
    intervals: Intervals | None = None
    view_scores: Mapping[str, Mapping[str, FloatArray]] = field(default_factory=dict)
    variance: Mapping[str, float] | None = None
    log_likelihoods: FloatArray | None = None

    def pictures(self) -> dict[str, tuple[str, Callable[[Axes], None]]]:
        """Name, caption and how to draw, of every picture that there is data for."""
        target = self.scores[self.result.target]
        others = np.concatenate([v for k, v in self.scores.items() if k != self.result.target])
        found: dict[str, tuple[str, Callable[[Axes], None]]] = {
            "det": (
                "Detection error trade-off: misses against false alarms at every threshold, on probit axes. A curve "
                "ends, in a square, where a single error is left: how far it goes tells how many trials there are.",
                lambda axes: det_curves(axes, self.scores, self.result),
            ),
            "histograms": (
                "Scores by kind of trial; what lies beyond the axis is in its last bars.",
                lambda axes: score_histograms(axes, _finite(self.scores)),
            ),
            "calibration": (
                "Bayes error over the prior: where the curves part, the scores are not calibrated.",
                lambda axes: bayes_error_plot(axes, target, others),
            ),
        }
        if len(self.view_scores) == 2 and all(
            set(KIND_COLOURS) <= set(own) for own in self.view_scores.values()
        ):
            found["views"] = (
                "One view's score against the other's, by kind of trial.",
                self._scatter,
            )
        if self.variance is not None:
            shares = self.variance
            found["variance"] = (
                "How much of the vectors' variance every view explains.",
                lambda axes: variance_bars(axes, shares),
            )
        if self.log_likelihoods is not None and len(self.log_likelihoods) > 1:
            values = self.log_likelihoods
            found["convergence"] = (
                "Log-likelihood of the training data by iteration.",
                lambda axes: convergence_plot(axes, values),
            )
        return found

    def finding(self) -> str:
        """The result in a sentence or two."""
        rows = self.result.rows
        total = rows["Total"]
        text = f"{100 * total['eer']:.2f} % errors"
        if self.intervals is not None and (ends := self.intervals.of("Total", "eer")) is not None:
            level = f"{100 * self.intervals.level:g} % interval over speakers"
            text += f" ({level}: {100 * ends.low:.2f} to {100 * ends.high:.2f})"
        text += " where as many right speakers are rejected as impostors are accepted (equal error rate), "
        text += f"over {total.n_targets:,} targets and {total.n_nontargets:,} impostors"
        others = {
            kind: row["eer"]
            for kind, row in rows.items()
            if kind not in ("Total", "Equal") and row.n_nontargets
        }
        if len(others) > 1:
            hardest = max(others, key=lambda kind: others[kind])
            views = tuple(self.view_scores) or ("speaker", "phrase")
            words = f" ({kind_words(hardest, views)})" if hardest in KIND_COLOURS else ""
            text += f". Hardest are the impostors of the kind {hardest}{words}: {100 * others[hardest]:.2f} %"
        return text + "."

    def thresholds(self) -> list[list[str]]:
        """What a threshold costs: a head, and a row for every false-alarm rate that was asked for."""
        total = self.result["Total"]
        head = ["accept at most, of impostors", "threshold", "then rejected, of right speakers"]
        rows = [head]
        for metric in self.result.metrics:
            family, _, rate = metric.name.partition("/")
            if family != "frr_at_far":
                continue
            threshold = total[f"threshold_at_far/{rate}"]
            wanted = f"{100 * float(rate):g} %"
            if np.isnan(total[metric.name]):
                rows.append([wanted, "too few trials to say", ""])
                continue
            rejected = self.result.cell(metric, "Total", self.intervals, INTERVAL)
            rows.append([wanted, f"{threshold:.3f}", f"{rejected} %"])
        return rows

    def advice(self) -> list[str]:
        """What to do next."""
        total = self.result["Total"]
        sentences = []
        cost = self.result.costs[0]
        actual = total[f"act_dcf/{cost.name}"]
        least = total[f"min_dcf/{cost.name}"]
        if actual > 1.5 * least + 0.02:
            sentences.append(
                f"The scores are not calibrated: deciding by them costs {actual:.3f}, and {least:.3f} after the best "
                f"recalibration (DCF {cost}). Run mvplda calibrate on scores of other speakers."
            )
        else:
            sentences.append(
                "The scores are calibrated well enough to be read as likelihood ratios."
            )
        if self.intervals is None:
            sentences.append(
                "There are no intervals: give the speakers of both sides to see how far the errors would change with "
                "other speakers."
            )
        elif self.intervals.n_speakers < FEW_SPEAKERS:
            sentences.append(
                f"{self.intervals.n_speakers} speakers are few: measure with at least {FEW_SPEAKERS} before you trust "
                "small differences."
            )
        sentences.append("Choose a threshold from the table below by what an error costs you.")
        return sentences

    def _scatter(self, axes: Axes) -> None:
        (first, a), (second, b) = (
            (view, _finite(scores)) for view, scores in self.view_scores.items()
        )
        kinds = list(a)
        x, y = (np.concatenate([part[k] for k in kinds]) for part in (a, b))
        names = np.repeat(kinds, [len(a[k]) for k in kinds])
        scatter_of_kinds(axes, x, y, {k: names == k for k in kinds}, (first, second))


def _finite(scores: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Scores for an axis: infinite ones at the ends of the others."""
    together = np.concatenate(list(scores.values()))
    ends = together[np.isfinite(together)] if np.isfinite(together).any() else np.zeros(1)
    return {kind: np.clip(values, ends.min(), ends.max()) for kind, values in scores.items()}


def write_report(report: Report, path: str | Path) -> list[Path]:
    """Write the page, and beside it PNG and SVG of every picture and the table as Markdown and LaTeX."""
    path = Path(path)
    folder = folder_beside(path)
    folder.mkdir(parents=True, exist_ok=True)
    cells, written = write_pictures(report.pictures(), folder)
    tables = {
        form: report.result.table(form, intervals=report.intervals)
        for form in ("markdown", "latex")
    }
    for form, suffix in (("markdown", "md"), ("latex", "tex")):
        file = folder / f"table.{suffix}"
        write_atomically(file, tables[form].encode())
        written.append(file)
    write_page(path, report.title, _body(report, cells, tables))
    return [path, *written]


def folder_beside(path: Path) -> Path:
    """The folder of what belongs to a page."""
    folder = path.with_suffix("")
    return folder.with_name(folder.name + "-files")


@contextmanager
def pictures_where_possible() -> Iterator[None]:
    """Draw in the block; where matplotlib is not installed, warn, and go on without what is drawn."""
    try:
        yield
    except MissingExtraError as error:
        warnings.warn(f"pictures are left out: {error}", MissingPicturesWarning, stacklevel=3)


def write_pictures(pictures: Pictures, folder: Path) -> tuple[str, list[Path]]:
    """Pictures as they stand in a page, and as PNG and SVG in a folder."""
    written, cells = [], []
    with pictures_where_possible():
        for name, (caption, paint) in pictures.items():
            svg, png = _render(paint)
            for suffix, data in (("svg", svg.encode()), ("png", png)):
                file = folder / f"{name}.{suffix}"
                write_atomically(file, data)
                written.append(file)
            cells.append(
                f"<figure>{_inline(svg, name)}<figcaption>{html.escape(caption)}</figcaption></figure>"
            )
    if pictures and not cells:
        return "<p>There are no pictures here: matplotlib was not installed.</p>", []
    return f'<div class="figures">{"".join(cells)}</div>', written


def write_page(path: Path, title: str, body: str) -> None:
    """A page with its style inside."""
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>"
        f"<h1>{html.escape(title)}</h1>{body}</body></html>\n"
    )
    write_atomically(path, page.encode())


def notes_list(notes: Iterable[str]) -> str:
    """Sentences below a table."""
    return (
        '<ul class="notes">' + "".join(f"<li>{html.escape(note)}</li>" for note in notes) + "</ul>"
    )


def fold_away(summary: str, text: str) -> str:
    """Text that shows when it is asked for."""
    return f"<details><summary>{html.escape(summary)}</summary><pre>{html.escape(text)}</pre></details>"


def finding(text: str, kinds: Iterable[str], views: Sequence[str] = ("speaker", "phrase")) -> str:
    """What a page says first, and what its kinds of trials mean."""
    words = {kind: html.escape(kind_words(kind, views)) for kind in KIND_COLOURS if kind in kinds}
    known = "".join(f"<dt>{kind}</dt><dd>{said}</dd>" for kind, said in words.items())
    return f'<p class="finding">{html.escape(text)}</p>' + (
        f'<dl class="kinds">{known}</dl>' if known else ""
    )


def _body(report: Report, cells: str, tables: Mapping[str, str]) -> str:
    result, intervals = report.result, report.intervals
    parts = []
    for title, metrics in result.tables().items():
        # the counts come last, so that what was asked for stands beside the kind on a narrow screen
        head, *rows = [
            [html.escape(k), *rest, n, m]
            for k, n, m, *rest in result.grid(metrics, intervals, INTERVAL)
        ]
        shown = html_table(head, rows, list(result.rows).index("Total"))
        parts.append(f"<h2>{html.escape(title)} by kind of trial</h2>{shown}")
    copies = "".join(fold_away(f"The tables as {form}", text) for form, text in tables.items())
    said = finding(report.finding(), [result.target, *result.rows])
    advice = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in report.advice())
    said += f"<h2>What to do next</h2><ul>{advice}</ul>"
    head, *costs = report.thresholds()
    if costs:
        said += f"<h2>Thresholds and what they cost</h2>{html_table(head, costs)}"
    return f"{said}{''.join(parts)}{notes_list(result.definitions(intervals))}{copies}<h2>Pictures</h2>{cells}"


def html_table(head: Iterable[str], rows: Iterable[Iterable[str]], best: int | None = None) -> str:
    """A table, of headings and of cells that are HTML; it scrolls in itself where it is too wide."""
    top = "".join(f"<th>{html.escape(heading)}</th>" for heading in head)
    body = ""
    for i, row in enumerate(rows):
        mark = ' class="best"' if i == best else ""
        body += f"<tr{mark}>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>"
    return (
        '<p class="hint">The table scrolls sideways.</p><div class="scroll" tabindex="0" role="region" '
        f'aria-label="table"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _render(paint: Callable[[Axes], None]) -> tuple[str, bytes]:
    """A picture as SVG without a background, and as PNG on white."""
    matplotlib = need("matplotlib")
    ink = dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK
    )
    plain = {
        "svg.fonttype": "none",
        "svg.hashsalt": "mvplda",
        "font.family": "sans-serif",
        "legend.framealpha": 0.4,
    }
    with matplotlib.rc_context({**ink, **plain}):
        fig, axes = figure(6, 5)
        paint(axes)
        axes.patch.set_alpha(0)
        if (legend := axes.get_legend()) is not None:
            legend.get_frame().set_facecolor("none")
        svg, png = io.StringIO(), io.BytesIO()
        fig.savefig(svg, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        fig.savefig(png, format="png", dpi=130, facecolor="white")
    return svg.getvalue(), png.getvalue()


def _inline(svg: str, name: str) -> str:
    """An SVG inside the page: ids of its own, and ink in the reader's text colour."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', body)
    body = re.sub(r'(url\(|href=")#', rf"\1#{name}-", body)
    return body.replace(INK, "currentColor")
