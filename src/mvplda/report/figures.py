"""Pictures of scores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from .._optional import need
from ..metrics import Evaluation, ScoreCurve, bayes_error_rates

KIND_COLOURS = {"TC": "#0072B2", "TW": "#E69F00", "IC": "#D55E00", "IW": "#999999"}
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#999999")
SYSTEM_COLOURS = (
    "#BBBBBB",
    "#56B4E9",
    "#CC79A7",
    "#E69F00",
    "#D55E00",
    "#88CCEE",
    "#009E73",
    "#DDCC77",
    "#882255",
    "#0072B2",
)
DET_TICKS = (0.0001, 0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4)
INK = "#102030"
"""The colour of text and axes; the page makes it the reader's text colour."""

KIND_WORDS = {
    "TC": "same speaker, same phrase",
    "TW": "same speaker, other phrase",
    "IC": "other speaker, same phrase",
    "IW": "other speaker, other phrase",
}


def figure(width: float, height: float, panels: int = 1) -> tuple[Any, Any]:
    """A figure that needs no display."""
    figures = need("matplotlib.figure")
    fig = figures.Figure(figsize=(width, height), layout="constrained")
    return fig, fig.subplots(1, panels)


def scatter_of_kinds(
    axes: Any,
    first: NDArray[Any],
    second: NDArray[Any],
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
            label=f"{kind}: {KIND_WORDS[kind]}",
        )
    axes.axhline(0, color=INK, linewidth=0.5)
    axes.axvline(0, color=INK, linewidth=0.5)
    axes.set_xlabel(f"LLR: same {names[0]}, whatever the {names[1]}")
    axes.set_ylabel(f"LLR: same {names[1]}, whatever the {names[0]}")
    legend = axes.legend(loc="best", fontsize="small", markerscale=3)
    for handle in legend.legend_handles:
        handle.set_alpha(1)


def bars_of_systems(axes: Any, table: Mapping[str, Mapping[str, float]], columns: tuple[str, ...]) -> None:
    """EER of every system, one group of bars a kind of trial, on a log axis; no error at all is a written 0."""
    width = 0.8 / len(table)
    axes.set_yscale("log")
    for i, (system, row) in enumerate(table.items()):
        errors = 100 * np.array([row[c] for c in columns])
        places = np.arange(len(columns)) + (i - (len(table) - 1) / 2) * width
        colour = SYSTEM_COLOURS[i % len(SYSTEM_COLOURS)]
        axes.bar(places, np.where(errors > 0, errors, np.nan), width, label=system, color=colour)
        for place in places[errors == 0]:
            across = axes.get_xaxis_transform()
            axes.text(place, 0.01, "0", transform=across, ha="center", fontsize="x-small", color=INK)
    axes.set_xticks(np.arange(len(columns)), columns)
    least = min((100 * row[c] for row in table.values() for c in columns if row[c] > 0), default=1.0)
    axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(least / 2, None), ylabel="EER, % (log scale)")
    axes.legend(fontsize="small", ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)


def colour_of(kind: str, place: int = 0) -> str:
    """The colour of a kind of trials."""
    return KIND_COLOURS.get(kind, PALETTE[place % len(PALETTE)])


def det_curve(axes: Any, curve: ScoreCurve, colour: str, label: str, linewidth: float = 1.5) -> None:
    """Misses against false alarms, as far as there are both: an error that did not happen has no place on the axes.

    A curve ends in a square where a single error is left. How far it goes is a matter of how many
    trials there are, not of how good they are.
    """
    _, miss, false_alarm = curve.steps()
    both = (miss > 0) & (miss < 1) & (false_alarm > 0) & (false_alarm < 1)
    x, y = ndtri(false_alarm[both]), ndtri(miss[both])
    axes.plot(x, y, color=colour, label=label, linewidth=linewidth)
    axes.plot(x[[0, -1][: len(x)]], y[[0, -1][: len(y)]], "s", color=colour, markersize=3.5)


def det_curves(axes: Any, scores: Mapping[str, NDArray[Any]], result: Evaluation) -> None:
    """Misses against false alarms on probit axes, of the targets against every kind, with EER and minDCF."""
    curves = {kind: {kind: values} for kind, values in scores.items() if kind != result.target}
    curves["Total"] = {kind: values for kind, values in scores.items() if kind != result.target}
    cost = result.costs[0]
    for i, (kind, parts) in enumerate(curves.items()):
        curve = ScoreCurve(scores[result.target], parts)
        colour = INK if kind == "Total" else colour_of(kind, i)
        det_curve(axes, curve, colour, f"{kind} ({curve.n_nontargets:,}): EER {100 * curve.eer():.2f} %")
        if curve.eer() > 0:
            axes.plot(*[[ndtri(curve.eer())]] * 2, "o", color=colour, markersize=5)
        miss, false_alarm = curve.rates(result[kind][f"min_dcf_threshold/{cost.name}"])
        if 0 < miss < 1 and 0 < false_alarm < 1:
            axes.plot([ndtri(false_alarm)], [ndtri(miss)], "x", color=colour, markersize=7)
    det_axes(axes)
    axes.set_title(f"dot: EER; cross: minDCF {cost}", fontsize="small")
    axes.legend(fontsize="small", loc="best", title=f"against {curve.n_targets:,} targets", title_fontsize="small")


def det_axes(axes: Any) -> None:
    """Probit axes of misses against false alarms, both in percent."""
    ticks, span = ndtri(np.array(DET_TICKS)), ndtri(np.array([0.00005, 0.5]))
    labels = [f"{100 * t:g}" for t in DET_TICKS]
    axes.plot(span, span, color=INK, linewidth=0.5, linestyle=":")
    axes.set(xlim=span, ylim=span, xlabel="false alarms, %", ylabel="misses, %")
    axes.set_xticks(ticks, labels)
    axes.set_yticks(ticks, labels)
    axes.set_aspect("equal")
    axes.grid(alpha=0.25)


def score_histograms(axes: Any, scores: Mapping[str, NDArray[Any]]) -> None:
    """Shares of the trials of every kind by score."""
    ends = np.array([np.quantile(values, [0.002, 0.998]) for values in scores.values()])
    bins = np.linspace(ends[:, 0].min(), ends[:, 1].max(), 90)
    for i, (kind, values) in enumerate(scores.items()):
        share, edges = np.histogram(np.clip(values, bins[0], bins[-1]), bins)
        axes.stairs(share / max(values.size, 1), edges, fill=True, alpha=0.35, color=colour_of(kind, i), label=kind)
        axes.stairs(share / max(values.size, 1), edges, color=colour_of(kind, i))
    axes.axvline(0, color=INK, linewidth=0.7)
    axes.set(xlabel="score (natural-log likelihood ratio)", ylabel="share of the trials of a kind")
    axes.legend(fontsize="small")


def bayes_error_plot(axes: Any, targets: NDArray[Any], others: NDArray[Any]) -> None:
    """Normalised Bayes error over the prior: the gap between the curves is poor calibration."""
    rates = bayes_error_rates(targets, others)
    actual, minimum = rates.normalised()
    axes.plot(rates.log_odds, actual, color="#D55E00", label="actual")
    axes.plot(rates.log_odds, minimum, color="#0072B2", linestyle="--", label="after the best recalibration")
    axes.axhline(1, color=INK, linewidth=0.5)
    axes.axvline(np.log(0.01 / 0.99), color=INK, linewidth=0.5, linestyle=":")
    axes.set(xlabel="log prior odds of a target (dotted: prior 0.01)", ylabel="error / error without scores")
    axes.set_ylim(0, min(2.0, max(1.1, float(np.nanmax(actual)) * 1.05)))
    axes.legend(fontsize="small")


def variance_bars(axes: Any, shares: Mapping[str, float]) -> None:
    """How much of the vectors' variance every view explains."""
    names = list(shares)[::-1]
    values = [100 * shares[name] for name in names]
    axes.barh(names, values, color=[PALETTE[i % len(PALETTE)] for i in range(len(names))])
    for i, value in enumerate(values):
        axes.annotate(f"{value:.1f} %", (value, i), (4, 0), textcoords="offset points", va="center", fontsize="small")
    axes.set(xlabel="share of the variance, %", xlim=(0, 1.18 * max(values)))


def convergence_plot(axes: Any, log_likelihoods: NDArray[Any]) -> None:
    """Log-likelihood by iteration of EM, less its last value."""
    ticker = need("matplotlib.ticker")
    axes.plot(
        np.arange(len(log_likelihoods)), log_likelihoods - log_likelihoods[-1], "o-", color="#0072B2", markersize=3
    )
    axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    axes.set(xlabel="iteration", ylabel="log-likelihood less the last one, nat")


def save_figure(fig: Any, path: str | Path) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, dpi=130)
    return path
