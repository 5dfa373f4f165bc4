"""Pictures of scores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .extras import need

KIND_COLOURS = {"TC": "#0072B2", "TW": "#E69F00", "IC": "#D55E00", "IW": "#999999"}
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
            s=5,
            alpha=0.5,
            color=KIND_COLOURS[kind],
            edgecolors="none",
            label=f"{kind}: {KIND_WORDS[kind]}",
        )
    axes.axhline(0, color="black", linewidth=0.5)
    axes.axvline(0, color="black", linewidth=0.5)
    axes.set_xlabel(f"LLR: same {names[0]}, whatever the {names[1]}")
    axes.set_ylabel(f"LLR: same {names[1]}, whatever the {names[0]}")
    legend = axes.legend(loc="best", fontsize="small", markerscale=3)
    for handle in legend.legend_handles:
        handle.set_alpha(1)


def bars_of_systems(axes: Any, table: Mapping[str, Mapping[str, float]], columns: tuple[str, ...]) -> None:
    """EER of every system, one group of bars a kind of trial, on a log axis."""
    width = 0.8 / len(table)
    palette = ("#BBBBBB", "#56B4E9", "#CC79A7", "#D55E00", "#0072B2", "#009E73", "#F0E442", "#000000")
    for i, (system, row) in enumerate(table.items()):
        heights = [max(100 * row[c], 0.005) for c in columns]
        places = np.arange(len(columns)) + (i - (len(table) - 1) / 2) * width
        axes.bar(places, heights, width, label=system, color=palette[i % len(palette)])
    axes.set_yscale("log")
    axes.set_xticks(np.arange(len(columns)), columns)
    axes.set_ylabel("EER, % (log scale)")
    axes.legend(fontsize="small", ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)


def save_figure(fig: Any, path: str | Path) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, dpi=130)
    return path
