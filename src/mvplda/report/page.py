"""One self-contained page: tables and pictures, no network, light and dark, printable."""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._optional import need
from ..exceptions import MissingExtraError, MissingPicturesWarning
from ..metrics import Evaluation, Intervals
from ..persistence import write_atomically
from . import figures as draw

STYLE = """
:root { color-scheme: light dark; --ink: #16202b; --paper: #ffffff; --line: #d5dbe1; --soft: #f3f5f7; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e8ed; --paper: #14181d; --line: #38414b; --soft: #1d232a; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1100px; margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .6rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
.scroll { overflow-x: auto; }
th, td { padding: .35rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } tr:last-child td { font-weight: 600; }
small.interval { display: block; opacity: .75; font-weight: 400; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(430px, 1fr)); gap: 1.4rem; }
figure { margin: 0; background: var(--soft); border: 1px solid var(--line); border-radius: 8px; padding: .8rem; }
figure svg { width: 100%; height: auto; color: var(--ink); } figcaption { font-size: .88rem; margin-top: .3rem; }
details { margin: .8rem 0; } pre { overflow-x: auto; background: var(--soft); padding: .8rem; border-radius: 6px; }
ul.notes { font-size: .85rem; opacity: .85; padding-left: 1.2rem; }
@media print { body { margin: 0; padding: 0; max-width: none; font-size: 12px; } details { display: none; }
  .scroll { overflow: visible; } table { font-size: .8rem; } th, td { padding: .2rem .4rem; white-space: normal; }
  h2 { break-after: avoid; } figure { break-inside: avoid; padding: .4rem; } .figures { display: block; }
  .figures figure { display: inline-block; width: 46%; margin: .5%; vertical-align: top; } }
@media (max-width: 500px) { .figures { grid-template-columns: 1fr; } }
"""


INTERVAL = '<small class="interval">{} to {}</small>'
"""How a cell shows its interval."""

Pictures = Mapping[str, tuple[str, Callable[[Any], None]]]
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
    scores: Mapping[str, NDArray[Any]]
    intervals: Intervals | None = None
    view_scores: Mapping[str, Mapping[str, NDArray[Any]]] = field(default_factory=dict)
    variance: Mapping[str, float] | None = None
    log_likelihoods: NDArray[Any] | None = None

    def pictures(self) -> dict[str, tuple[str, Callable[[Any], None]]]:
        """Name, caption and how to draw, of every picture that there is data for."""
        target = self.scores[self.result.target]
        others = np.concatenate([v for k, v in self.scores.items() if k != self.result.target])
        found: dict[str, tuple[str, Callable[[Any], None]]] = {
            "det": (
                "Detection error trade-off: misses against false alarms at every threshold, on probit axes. A curve "
                "ends, in a square, where a single error is left: how far it goes tells how many trials there are.",
                lambda axes: draw.det_curves(axes, self.scores, self.result),
            ),
            "histograms": (
                "Scores by kind of trial; what lies beyond the axis is in its last bars.",
                lambda axes: draw.score_histograms(axes, _finite(self.scores)),
            ),
            "calibration": (
                "Bayes error over the prior: where the curves part, the scores are not calibrated.",
                lambda axes: draw.bayes_error_plot(axes, target, others),
            ),
        }
        if len(self.view_scores) == 2 and all(set(draw.KIND_WORDS) <= set(own) for own in self.view_scores.values()):
            found["views"] = ("One view's score against the other's, by kind of trial.", self._scatter)
        if self.variance is not None:
            shares = self.variance
            found["variance"] = (
                "How much of the vectors' variance every view explains.",
                lambda axes: draw.variance_bars(axes, shares),
            )
        if self.log_likelihoods is not None and len(self.log_likelihoods) > 1:
            values = self.log_likelihoods
            found["convergence"] = (
                "Log-likelihood of the training data by iteration.",
                lambda axes: draw.convergence_plot(axes, values),
            )
        return found

    def _scatter(self, axes: Any) -> None:
        (first, a), (second, b) = ((view, _finite(scores)) for view, scores in self.view_scores.items())
        kinds = list(a)
        x, y = (np.concatenate([part[k] for k in kinds]) for part in (a, b))
        names = np.repeat(kinds, [len(a[k]) for k in kinds])
        draw.scatter_of_kinds(axes, x, y, {k: names == k for k in kinds}, (first, second))


def _finite(scores: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
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
    tables = {form: report.result.table(form, intervals=report.intervals) for form in ("markdown", "latex")}
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
            cells.append(f"<figure>{_inline(svg, name)}<figcaption>{html.escape(caption)}</figcaption></figure>")
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
    return '<ul class="notes">' + "".join(f"<li>{html.escape(note)}</li>" for note in notes) + "</ul>"


def fold_away(summary: str, text: str) -> str:
    """Text that shows when it is asked for."""
    return f"<details><summary>{html.escape(summary)}</summary><pre>{html.escape(text)}</pre></details>"


def _body(report: Report, cells: str, tables: Mapping[str, str]) -> str:
    result, intervals = report.result, report.intervals
    parts = []
    for title, metrics in result.tables().items():
        head, *rows = result.grid(metrics, intervals, INTERVAL)
        shown = html_table(head, [[html.escape(kind), *numbers] for kind, *numbers in rows])
        parts.append(f"<h2>{html.escape(title)} by kind of trial</h2>{shown}")
    copies = "".join(fold_away(f"The tables as {form}", text) for form, text in tables.items())
    return f"{''.join(parts)}{notes_list(result.definitions(intervals))}{copies}<h2>Pictures</h2>{cells}"


def html_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table, of headings and of cells that are HTML."""
    top = "".join(f"<th>{html.escape(heading)}</th>" for heading in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _render(paint: Callable[[Any], None]) -> tuple[str, bytes]:
    """A picture as SVG without a background, and as PNG on white."""
    matplotlib = need("matplotlib")
    ink = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), draw.INK)
    plain = {"svg.fonttype": "none", "svg.hashsalt": "mvplda", "font.family": "sans-serif", "legend.framealpha": 0.4}
    with matplotlib.rc_context({**ink, **plain}):
        fig, axes = draw.figure(6, 5)
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
    return body.replace(draw.INK, "currentColor")
