"""HTML report of an evaluation with tables and plots: one file that works offline and can be printed."""

from __future__ import annotations

import html
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ._typing import FloatArray, PathLike
from .atomic_files import write_atomically
from .exceptions import MissingExtraError, MissingPicturesWarning
from .kinds import KIND_WORDS
from .metrics.catalogue import LEVEL, THRESHOLDS
from .metrics.evaluation import Evaluation
from .plotting import INK, DetDisplay, Display, ScoreHistogramDisplay, TippettDisplay, render

if TYPE_CHECKING:
    from .metrics.intervals import Intervals

__all__ = ["write_report"]

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
figure { margin: 1rem 0 0; max-width: 760px;
  background: var(--soft); border: 1px solid var(--line); border-radius: 8px; padding: .8rem; }
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
"""Number of speakers below which the report recommends more speakers."""

CALIBRATE = (
    "Use a threshold that was measured on trials like these, or calibrate scores of other speakers in such trials with "
    "mvplda calibrate."
)
"""Advice for scores whose actDCF is much larger than their minDCF."""

INTERVAL = '<small class="interval">{} to {}</small>'
"""Format of an interval in a cell of an HTML table."""


def headline(result: Evaluation, intervals: Intervals | None) -> str:
    """Return the equal error rate of all trials as text, with its interval if there is one."""
    text = f"{100 * result['Total']['eer']:.2f} % errors"
    ends = None if intervals is None else intervals.of("Total", "eer")
    if intervals is None or ends is None:
        return text
    return f"{text} ({100 * LEVEL:g} %: {100 * ends.low:.2f} to {100 * ends.high:.2f})"


def finding(result: Evaluation, intervals: Intervals | None) -> str:
    """Return a summary of an evaluation in a few sentences: EER, numbers of trials, hardest kind of impostor."""
    rows = dict(result.rows)
    total = rows.pop("Total")
    text = (
        f"{headline(result, intervals)}: share of rejected owners and of accepted impostors at the threshold where "
        f"both are equal (EER). {total.n_targets:,} targets, {total.n_nontargets:,} impostors."
    )
    eer_by_kind = {kind: row["eer"] for kind, row in rows.items() if row.n_nontargets}
    if len(eer_by_kind) > 1:
        hardest = max(eer_by_kind, key=lambda kind: eer_by_kind[kind])
        name = hardest
        if hardest in KIND_WORDS:
            name = f"{hardest} ({KIND_WORDS[hardest]})"
        text += f" Hardest kind of impostor: {name}, {100 * eer_by_kind[hardest]:.2f} %."
    return text


def advice(result: Evaluation, intervals: Intervals | None) -> list[str]:
    """Return sentences with advice: on calibration, on the number of speakers, on the choice of a threshold."""
    costs = "; ".join(map(result.actual_and_least, result.costs))
    sentences = [
        "As far as these trials show, the scores are calibrated well enough to be used as likelihood ratios: "
        f"{costs}."
    ]
    if finding_text := result.uncalibrated():
        sentences = [f"{_capitalised(finding_text)}. {CALIBRATE}"]
    if intervals is None:
        sentences.append(
            "There are no intervals: pass the speakers of both sides (--test-speakers) to see how much the error rates "
            "would vary with other speakers."
        )
    elif intervals.n_speakers < FEW_SPEAKERS:
        sentences.append(
            f"{intervals.n_speakers} speakers are few: measure with at least {FEW_SPEAKERS} before you trust "
            "small differences."
        )
    return [*sentences, "Choose a threshold from the next table by the costs of both errors."]


def _capitalised(text: str) -> str:
    """Return text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def thresholds_table(result: Evaluation, intervals: Intervals | None) -> str:
    """Return an HTML table of thresholds for false-alarm rates, with their miss rates; empty if there are none."""
    rows = []
    for metric in result.metrics:
        family, _, rate = metric.name.partition("/")
        if family == "frr_at_far":
            threshold = next(m for m in result.metrics if m.name == f"threshold_at_far/{rate}")
            cells = [result.cell(m, "Total", intervals, INTERVAL) for m in (threshold, metric)]
            rows.append([f"1 in {1 / float(rate):,.0f}", *cells])
    head = ["impostors accepted", "threshold (LLR)", "owners rejected, %"]
    return f"<h2>Thresholds and their errors</h2>{html_table(head, rows)}" if rows else ""


def write_report(
    path: PathLike,
    title: str,
    result: Evaluation,
    scores: Mapping[str, FloatArray],
    intervals: Intervals | None = None,
) -> None:
    """Write an HTML report of one system, with tables and plots.

    Parameters
    ----------
    path : output file
    title : title of the page, such as the name of the system
    result : result of `mvplda.metrics.evaluate`
    scores : scores by kind of trial, including the targets
    intervals : result of `mvplda.metrics.speaker_intervals`; None: show no intervals
    """
    plots = figures(
        DetDisplay(scores, result.costs[0]), ScoreHistogramDisplay(scores), TippettDisplay(scores)
    )
    write_page(path, title, f"{tables(result, intervals)}<h2>Plots</h2>{plots}")


def figures(*displays: Display) -> str:
    """Return plots as HTML; without matplotlib, warn and return a note that there are no plots."""
    cells = ""
    try:
        for i, display in enumerate(displays):
            svg = inline_svg(render(display), f"{type(display).__name__}-{i}")
            text = f"<figcaption>{html.escape(display.CAPTION)}</figcaption>"
            cells += f"<figure>{svg}{text}</figure>"
    except MissingExtraError as error:
        message = f"the plots of the report are left out: {error}"
        warnings.warn(message, MissingPicturesWarning, stacklevel=3)
        return "<p>The plots are missing, because matplotlib was not installed.</p>"
    return f'<div class="figures">{cells}</div>'


def write_page(path: PathLike, title: str, body: str) -> None:
    """Write an HTML page with a title, a body of HTML, and an embedded style sheet."""
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>"
        f"<h1>{html.escape(title)}</h1>{body}</body></html>\n"
    )
    write_atomically(path, page.encode())


def notes_list(notes: Iterable[str], style: str = "notes") -> str:
    """Return sentences as an HTML list; `style` is the CSS class of the list."""
    items = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    return f'<ul class="{style}">{items}</ul>'


def definition_list(definitions: Mapping[str, str]) -> str:
    """Return names and their meanings as an HTML list of definitions."""
    rows = [f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in definitions.items()]
    return f'<dl class="kinds">{"".join(rows)}</dl>'


def collapsible(summary: str, text: str) -> str:
    """Return HTML that shows a summary, and preformatted text when the reader opens it."""
    return f"<details><summary>{html.escape(summary)}</summary><pre>{html.escape(text)}</pre></details>"


def tables(result: Evaluation, intervals: Intervals | None) -> str:
    """Return the HTML of one system's results: finding, advice, thresholds, and tables by kind of trial."""
    body = f'<p class="finding">{html.escape(finding(result, intervals))}</p>'
    body += definition_list(
        {k: w for k, w in KIND_WORDS.items() if k in (result.target, *result.rows)}
    )
    body += f"<h2>What to do next</h2>{notes_list(advice(result, intervals), 'advice')}"
    body += thresholds_table(result, intervals)
    for title, metrics in result.tables().items():
        if title == THRESHOLDS:
            # Those of the total are in the table above.
            continue
        # Counts come last, so that the metrics are next to the kind on a narrow screen.
        grid = result.grid(metrics, intervals, INTERVAL)
        head, *rows = [[html.escape(kind), *cells, n, m] for kind, n, m, *cells in grid]
        table = html_table(head, rows, list(result.rows).index("Total"))
        body += f"<h2>{html.escape(title)} by kind of trial</h2>{table}"
    return body + notes_list(result.definitions(intervals))


def html_table(head: Iterable[str], rows: Iterable[Iterable[str]], best: int | None = None) -> str:
    """Return an HTML table that scrolls sideways if it is too wide.

    head : headings, as text
    rows : cells, as HTML
    best : index of the row to emphasise; None: no row
    """
    top = "".join(f"<th>{html.escape(heading)}</th>" for heading in head)
    body = ""
    for i, row in enumerate(rows):
        mark = ' class="best"' if i == best else ""
        body += f"<tr{mark}>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>"
    return (
        '<p class="hint">The table scrolls sideways.</p><div class="scroll" tabindex="0" role="region" '
        f'aria-label="table"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def inline_svg(svg: str, name: str) -> str:
    """Return a plot (SVG) as HTML: its ids begin with `name`, and its text has the text colour of the page."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', body)
    body = re.sub(r'(url\(|href=")#', rf"\1#{name}-", body)
    return body.replace(INK, "currentColor")
