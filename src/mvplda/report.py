"""Plots of scores, and a self-contained page of tables and plots: no network, light and dark, printable."""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from ._optional import need
from ._typing import FloatArray
from .exceptions import MissingExtraError, MissingPicturesWarning
from .metrics import ScoreCurve, bayes_error_rates
from .metrics.evaluation import Evaluation
from .persistence import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .metrics.intervals import Intervals

__all__ = ["Report", "write_report"]

KIND_COLOURS = {"TC": "#0072B2", "TW": "#E69F00", "IC": "#D55E00", "IW": "#999999"}
KIND_WORDS = {
    "TC": "same speaker, same phrase",
    "TW": "same speaker, other phrase",
    "IC": "other speaker, same phrase",
    "IW": "other speaker, other phrase",
}
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#999999")
SYSTEM_COLOURS = (
    *("#BBBBBB", "#56B4E9", "#CC79A7", "#E69F00", "#D55E00"),
    *("#88CCEE", "#009E73", "#DDCC77", "#882255", "#0072B2"),
)
DET_TICKS = (0.0001, 0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4)
INK = "#102030"
"""The colour of text and axes; the page makes it the reader's text colour."""
THIN: Any = {"color": INK, "linewidth": 0.5}
SMALL = "small"

Paint = Callable[["Axes"], None]
Pictures = Mapping[str, tuple[str, Paint]]
"""Name -> caption, and how to draw."""


def figure(width: float, height: float) -> tuple[Figure, Any]:
    """A figure that needs no display."""
    fig = need("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
    return fig, fig.subplots()


def system_colours(systems: Iterable[str]) -> dict[str, str]:
    """A colour for every system, to be used in all plots of a page."""
    return {name: SYSTEM_COLOURS[i % len(SYSTEM_COLOURS)] for i, name in enumerate(systems)}


def bars_of_systems(
    axes: Axes,
    table: Mapping[str, Mapping[str, float]],
    columns: tuple[str, ...],
) -> None:
    """EER of every system by kind of trial, on a log axis; no error at all is a written 0."""
    width = 0.8 / len(table)
    errors = 100 * np.array([[row[column] for column in columns] for row in table.values()])
    least = errors[errors > 0].min(initial=100.0) / 2
    colours = system_colours(table)
    axes.set_yscale("log")
    for i, system in enumerate(table):
        places = np.arange(len(columns)) + (i - (len(table) - 1) / 2) * width
        heights = np.where(errors[i] > 0, errors[i], np.nan)
        axes.bar(places, heights, width, label=system, color=colours[system])
        for place in places[errors[i] == 0]:
            axes.text(place, least, "0", ha="center", fontsize="x-small")
    axes.set_xticks(np.arange(len(columns)), columns)
    axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(least, None), ylabel="EER, % (log scale)")
    axes.legend(fontsize=SMALL, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False)


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


def colour_of(kind: str, place: int) -> str:
    """The colour of a kind of trials."""
    return KIND_COLOURS.get(kind, PALETTE[place % len(PALETTE)])


def det_curves(axes: Axes, scores: Mapping[str, FloatArray], result: Evaluation) -> None:
    """Misses against false alarms on probit axes, of the targets against every kind, with EER and minDCF.

    An error that did not happen has no place on the axes, so a curve ends in a square where a single
    error is left. How far it goes is a matter of how many trials there are, not of how good they are.
    """
    targets = scores[result.target]
    others = {kind: values for kind, values in scores.items() if kind != result.target}
    others["Total"] = np.concatenate(list(others.values()))
    cost = result.costs[0]
    for i, (kind, values) in enumerate(others.items()):
        curve = ScoreCurve(targets, values)
        colour = INK if kind == "Total" else colour_of(kind, i)
        eer = result[kind]["eer"]
        label = f"{kind} ({len(values):,}): EER {100 * eer:.2f} %"
        points = _probits(*curve.steps()[1:])
        axes.plot(*points, color=colour, label=label)
        axes.plot(*points[:, [0, -1][: points.shape[1]]], "s", color=colour, markersize=3.5)
        axes.plot(*_probits(eer, eer), "o", color=colour)
        best = curve.rates(result[kind][f"min_dcf_threshold/{cost.name}"])
        axes.plot(*_probits(*best), "x", color=colour)
    ticks = ndtri(np.array(DET_TICKS))
    span = ndtri(np.array([0.00005, 0.5]))
    labels = [f"{100 * t:g}" for t in DET_TICKS]
    axes.plot(span, span, linestyle=":", **THIN)
    axes.set(xlim=span, ylim=span, xlabel="false alarms, %", ylabel="misses, %", aspect="equal")
    axes.set_xticks(ticks, labels)
    axes.set_yticks(ticks, labels)
    axes.grid(alpha=0.25)
    axes.set_title(f"dot: EER; cross: minDCF {cost}", fontsize=SMALL)
    legend_below(axes, 2, f"against {len(targets):,} targets")


def _probits(miss: ArrayLike, false_alarm: ArrayLike) -> FloatArray:
    """(2, n) points of a DET plot, false alarms first, where both errors happened and both did not always."""
    rates = np.reshape([false_alarm, miss], (2, -1))
    points: FloatArray = ndtri(rates[:, ((rates > 0) & (rates < 1)).all(axis=0)])
    return points


def score_histograms(axes: Axes, scores: Mapping[str, FloatArray]) -> None:
    """Shares of the trials of every kind by score; infinite scores lie in the last bars."""
    together = np.concatenate(list(scores.values()))
    finite = together[np.isfinite(together)]
    span = np.array([np.min(finite, initial=0.0), np.max(finite, initial=0.0)])
    shown = {kind: np.clip(values, *span) for kind, values in scores.items()}
    ends = np.array([np.quantile(values, [0.002, 0.998]) for values in shown.values()])
    bins = np.linspace(ends[:, 0].min(), ends[:, 1].max(), 90)
    for i, (kind, values) in enumerate(shown.items()):
        counts, edges = np.histogram(np.clip(values, bins[0], bins[-1]), bins)
        shares = counts / len(values)
        colour = colour_of(kind, i)
        axes.stairs(shares, edges, fill=True, alpha=0.35, label=kind, color=colour)
        axes.stairs(shares, edges, color=colour)
    axes.axvline(0, **THIN)
    axes.set(xlabel="score (natural-log likelihood ratio)", ylabel="share of the trials of a kind")
    legend_below(axes, 4)


def bayes_error_plot(axes: Axes, targets: FloatArray, others: FloatArray) -> None:
    """Normalised Bayes error over the prior: the gap between the curves is poor calibration."""
    rates = bayes_error_rates(targets, others)
    actual, minimum = rates.normalised()
    axes.plot(rates.log_odds, actual, color=PALETTE[4], label="actual")
    axes.plot(rates.log_odds, minimum, "--", color=PALETTE[0], label="after the best recalibration")
    axes.axhline(1, **THIN)
    axes.axvline(np.log(0.01 / 0.99), linestyle=":", **THIN)
    axes.set(
        xlabel="log prior odds of a target (dotted: prior 0.01)",
        ylabel="error / error without scores",
        ylim=(0, min(2.0, max(1.1, float(np.nanmax(actual)) * 1.05))),
    )
    legend_below(axes, 4)


def training_plot(axes: Axes, history: Sequence[Mapping[str, Any]]) -> None:
    """Loss of a network by epoch, and below it the errors on its own classes and on those held out, in per cent."""
    epochs = [record["epoch"] for record in history]
    losses = [record["loss"] for record in history]
    axes.plot(epochs, losses, "o-", color=INK, markersize=3, label="loss (left axis)")
    axes.set(xlabel="epoch", ylabel="loss", ylim=(0, None))
    axes.xaxis.set_major_locator(need("matplotlib.ticker").MaxNLocator(integer=True))
    right = axes.twinx()
    right.set(ylabel="error, %", ylim=(0, 100))
    errors = {
        f"{view} not told": [100 * (1 - record["accuracy"][view]) for record in history]
        for view in history[0]["accuracy"]
    }
    if all("held_out_eer" in record for record in history):
        held = [100 * record["held_out_eer"] for record in history]
        errors["EER of classes held out"] = held
    for i, (label, values) in enumerate(errors.items()):
        right.plot(epochs, values, "s--", color=PALETTE[i], markersize=3, label=label)
    lines = [*axes.get_lines(), *right.get_lines()]
    axes.legend(lines, [str(line.get_label()) for line in lines], fontsize=SMALL)


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


@dataclass(frozen=True)
class Report:
    """What a page shows.

    scores : by kind of trial
    """

    title: str
    result: Evaluation
    scores: Mapping[str, FloatArray]
    intervals: Intervals | None = None

    def pictures(self) -> dict[str, tuple[str, Paint]]:
        """Name, caption and how to draw, of every picture that there is data for."""
        target = self.scores[self.result.target]
        others = np.concatenate([v for k, v in self.scores.items() if k != self.result.target])
        return {
            "det": (
                "Detection error trade-off: misses against false alarms at every threshold, on probit axes. A curve "
                "ends, in a square, where a single error is left: how far it goes tells how many trials there are.",
                lambda axes: det_curves(axes, self.scores, self.result),
            ),
            "histograms": (
                "Scores by kind of trial; what lies beyond the axis is in its last bars.",
                lambda axes: score_histograms(axes, self.scores),
            ),
            "calibration": (
                "Bayes error over the prior: where the curves part, the scores are not calibrated.",
                lambda axes: bayes_error_plot(axes, target, others),
            ),
        }

    def finding(self) -> str:
        """The result in a sentence or two."""
        rows = dict(self.result.rows)
        total = rows.pop("Total")
        text = f"{100 * total['eer']:.2f} % errors"
        if self.intervals is not None and (ends := self.intervals.of("Total", "eer")) is not None:
            level = f"{100 * self.intervals.level:g} % interval over speakers"
            text += f" ({level}: {100 * ends.low:.2f} to {100 * ends.high:.2f})"
        text += (
            " where as many right speakers are rejected as impostors are accepted (equal error rate), over "
            f"{total.n_targets:,} targets and {total.n_nontargets:,} impostors."
        )
        others = {kind: row["eer"] for kind, row in rows.items() if row.n_nontargets}
        if len(others) > 1:
            hardest = max(others, key=lambda kind: others[kind])
            words = f"{hardest} ({KIND_WORDS[hardest]})" if hardest in KIND_WORDS else hardest
            text += (
                f" Hardest are the impostors of the kind {words}: {100 * others[hardest]:.2f} %."
            )
        return text

    def advice(self) -> list[str]:
        """What to do next."""
        cost = self.result.costs[0]
        actual = self.result["Total"][f"act_dcf/{cost.name}"]
        least = self.result["Total"][f"min_dcf/{cost.name}"]
        sentences = ["The scores are calibrated well enough to be read as likelihood ratios."]
        if actual > 1.5 * least + 0.02:
            sentences = [
                f"The scores are not calibrated: deciding by them costs {actual:.3f}, and {least:.3f} after the best "
                f"recalibration (DCF {cost}). Run mvplda calibrate on scores of other speakers."
            ]
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
        return [*sentences, "Choose a threshold from the table below by what an error costs you."]


def write_report(report: Report, path: str | Path) -> list[Path]:
    """Write the page, and beside it PNG and SVG of every picture and the tables as Markdown."""
    path = Path(path)
    folder = folder_beside(path)
    folder.mkdir(parents=True, exist_ok=True)
    cells, written = write_pictures(report.pictures(), folder)
    markdown = report.result.table("markdown", intervals=report.intervals)
    write_atomically(folder / "table.md", markdown.encode())
    write_page(path, report.title, _body(report, cells, markdown))
    return [path, *written, folder / "table.md"]


def folder_beside(path: Path) -> Path:
    """The folder of what belongs to a page."""
    return path.with_name(f"{path.stem}-files")


@contextmanager
def pictures_where_possible() -> Iterator[None]:
    """Draw in the block; where matplotlib is not installed, warn, and go on without what is drawn."""
    try:
        yield
    except MissingExtraError as error:
        warnings.warn(f"pictures are left out: {error}", MissingPicturesWarning, stacklevel=3)


def write_pictures(pictures: Pictures, folder: Path) -> tuple[str, list[Path]]:
    """Pictures as they stand in a page, and as PNG and SVG in a folder."""
    written = []
    cells = ""
    with pictures_where_possible():
        for name, (caption, paint) in pictures.items():
            svg, png = _render(paint)
            for suffix, data in (("svg", svg.encode()), ("png", png)):
                written.append(folder / f"{name}.{suffix}")
                write_atomically(written[-1], data)
            text = f"<figcaption>{html.escape(caption)}</figcaption>"
            cells += f"<figure>{_inline(svg, name)}{text}</figure>"
    if not cells:
        return "<p>There are no pictures here: matplotlib was not installed.</p>", []
    return f'<div class="figures">{cells}</div>', written


def write_page(path: Path, title: str, body: str) -> None:
    """A page with its style inside."""
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>"
        f"<h1>{html.escape(title)}</h1>{body}</body></html>\n"
    )
    write_atomically(path, page.encode())


def notes_list(notes: Iterable[str], style: str = "notes") -> str:
    """Sentences below a table."""
    items = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    return f'<ul class="{style}">{items}</ul>'


def fold_away(summary: str, text: str) -> str:
    """Text that shows when it is asked for."""
    return f"<details><summary>{html.escape(summary)}</summary><pre>{html.escape(text)}</pre></details>"


def _body(report: Report, cells: str, markdown: str) -> str:
    result = report.result
    there = [kind for kind in KIND_WORDS if kind in (result.target, *result.rows)]
    words = "".join(f"<dt>{kind}</dt><dd>{KIND_WORDS[kind]}</dd>" for kind in there)
    body = f'<p class="finding">{html.escape(report.finding())}</p>'
    if words:
        body += f'<dl class="kinds">{words}</dl>'
    body += f"<h2>What to do next</h2>{notes_list(report.advice(), 'advice')}"
    for title, metrics in result.tables().items():
        # the counts come last, so that what was asked for stands beside the kind on a narrow screen
        grid = result.grid(metrics, report.intervals, INTERVAL)
        head, *rows = [[html.escape(k), *rest, n, m] for k, n, m, *rest in grid]
        shown = html_table(head, rows, list(result.rows).index("Total"))
        body += f"<h2>{html.escape(title)} by kind of trial</h2>{shown}"
    body += notes_list(result.definitions(report.intervals))
    return f"{body}{fold_away('The tables as markdown', markdown)}<h2>Pictures</h2>{cells}"


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


def _render(paint: Paint) -> tuple[str, bytes]:
    """A picture as SVG without a background, and as PNG on white."""
    settings = dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK
    )
    settings |= {"svg.fonttype": "none", "svg.hashsalt": "mvplda", "font.family": "sans-serif"}
    svg = io.StringIO()
    png = io.BytesIO()
    with need("matplotlib").rc_context(settings):
        fig, axes = figure(6, 5)
        paint(axes)
        axes.patch.set_alpha(0)
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
