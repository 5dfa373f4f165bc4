"""Figures as JSON, as a table and as a picture."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import scipy
from threadpoolctl import threadpool_info

import mvplda

PLAIN = {"facecolor": "white", "edgecolor": "none", "pad": 1}
OURS, BARE, OTHERS = "#c44e52", "#8c8c8c", "#4c72b0"


def machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    blas = [f"{b['internal_api']} {b['version']} {b.get('architecture', '')}" for b in threadpool_info()]
    return {
        "processor": next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), platform.machine()),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "mvplda": mvplda.__version__,
        "blas": sorted(set(blas)),
        "clock": "CPU seconds, one BLAS thread, best of several rounds that take turns",
    }


def write(name: str, figures: dict[str, Any], output: Path) -> list[Path]:
    """Write NAME.json and NAME.png."""
    output.mkdir(parents=True, exist_ok=True)
    text, picture = output / f"{name}.json", output / f"{name}.png"
    text.write_text(json.dumps({"benchmark": name, "machine": machine(), **figures}, indent=2) + "\n")
    PLOTS[name](figures, picture)
    return [text, picture]


def lines_of(figures: Any, depth: int = 0) -> list[str]:
    """Figures as indented lines."""
    lines: list[str] = []
    for name, value in figures.items():
        if isinstance(value, dict):
            lines += ["  " * depth + f"{name}:", *lines_of(value, depth + 1)]
        elif isinstance(value, list):
            lines += ["  " * depth + f"{name}:"]
            for item in value:
                lines += [*lines_of(item, depth + 1), ""]
        else:
            shown = f"{value:.3g}" if isinstance(value, float) else str(value)
            lines.append("  " * depth + f"{name:<40} {shown}")
    return lines


def _bars(axes: Any, values: dict[str, float], colours: list[str], label: str, *, log: bool) -> None:
    names = list(values)
    axes.barh(names[::-1], [values[n] for n in names[::-1]], color=colours[::-1])
    for i, n in enumerate(names[::-1]):
        shown = f"{values[n]:.3g}" if values[n] < 1000 else f"{values[n]:.0f}"
        axes.annotate(shown, (values[n], i), (4, 0), textcoords="offset points", va="center", fontsize=8, bbox=PLAIN)
    axes.set_xlabel(label)
    axes.margins(x=0.15)
    if log:
        axes.set_xscale("log")
    axes.spines[["top", "right"]].set_visible(False)


def _plot_train(figures: dict[str, Any], path: Path) -> None:
    case = figures["cases"][-1]
    seconds = case["seconds"]
    bare = seconds["bare X'X"]
    values = {"bare X'X": 1.0, "floor: X'X, class sums, products": seconds["floor"] / bare}
    colours = [BARE, BARE]
    for name in ("mvplda", "mvplda, uneven classes", "mvplda, float32"):
        values[name] = seconds[name] / bare
        colours.append(OURS)
    for name, found in case["peers measured here"].items():
        if "ratio" in found:
            values[f"{name} (measured)"] = found["ratio"]
            colours.append(OTHERS)
    for name, ratio in case["peers quoted, ratio to their bare X'X"].items():
        values[f"{name} (quoted)"] = ratio
        colours.append(OTHERS)
    figure, axes = plt.subplots(figsize=(7.5, 4), layout="constrained")
    _bars(axes, values, colours, "time in units of bare NumPy X'X (log scale)", log=True)
    quoted = case["peers quoted, ratio to their bare X'X"]
    if quoted:
        axes.axvline(
            0.45 * min(quoted.values()), color="black", linestyle=":", zorder=0, label="0.45 of the fastest peer"
        )
        axes.legend(fontsize=8)
    axes.set_title(f"PLDA, full noise, 10 iterations: {case['case']}", fontsize=10, loc="left")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _plot_joint(figures: dict[str, Any], path: Path) -> None:
    figure, panels = plt.subplots(len(figures["cases"]), 1, figsize=(7.5, 4.5), layout="constrained")
    for axes, case in zip(panels, figures["cases"], strict=True):
        seconds = case["seconds"]
        values = {
            "class sums": seconds["class sums"],
            "floor: class sums, products": seconds["floor"],
            "mvplda: statistics": seconds["of which statistics"],
            "mvplda: statistics and fit": seconds["mvplda"],
        }
        _bars(axes, values, [BARE, BARE, OURS, OURS], "seconds", log=False)
        axes.set_title(case["case"], fontsize=9, loc="left", x=-0.3)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _plot_growth(figures: dict[str, Any], path: Path) -> None:
    curves = {name: rows for name, rows in figures.items() if name.startswith("by ")}
    figure, panels = plt.subplots(1, len(curves), figsize=(9, 3.8), layout="constrained")
    for axes, (title, rows) in zip(panels, curves.items(), strict=True):
        what = title.split()[1]
        x = [row[what] for row in rows]
        axes.loglog(x, [r["seconds"]["statistics"] for r in rows], "o-", color=OURS, label="statistics, s")
        axes.loglog(x, [r["seconds"]["one iteration"] for r in rows], "s-", color=OTHERS, label="an EM iteration, s")
        gigabytes = [r["extra memory, MiB"] / 1024 for r in rows]
        axes.loglog(x, gigabytes, "^--", color=BARE, label="extra memory of the fit, GiB")
        axes.set_xlabel(what)
        axes.set_title(title, fontsize=10)
        axes.grid(alpha=0.3)
    panels[0].legend(fontsize=8)
    figure.suptitle(figures["case"], fontsize=9)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _plot_scoring(figures: dict[str, Any], path: Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    shares = {"bare float32 product": 1.0}
    colours = [BARE]
    for name, label in (("one view", "mvplda, one view"), ("two views", "mvplda, two views (of three products)")):
        shares[label] = figures[name]["share of the bare products"]["mvplda, out="]
        colours.append(OURS)
    for name, share in figures["peers quoted, share of their bare product (one view)"].items():
        shares[f"{name}, one view (quoted)"] = share
        colours.append(OTHERS)
    _bars(left, shares, colours, "share of the bare products' speed, one thread (log scale)", log=True)
    rows = figures["LLR a second by size"]
    for name, colour in zip([n for n in rows[0] if n != "size"], (OURS, OTHERS), strict=True):
        right.loglog([r["size"] for r in rows], [r[name] for r in rows], "o-", color=colour, label=name)
    right.set_xlabel("profiles, and tests")
    right.set_ylabel("LLR a second, one thread")
    right.grid(alpha=0.3)
    right.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


PLOTS: dict[str, Callable[[dict[str, Any], Path], None]] = {
    "train": _plot_train,
    "joint": _plot_joint,
    "growth": _plot_growth,
    "scoring": _plot_scoring,
}
