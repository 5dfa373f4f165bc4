"""Writing of measured results as JSON, as a table and as a plot."""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from threadpoolctl import threadpool_info

import mvplda
from benchmarks.timing import ROOT
from mvplda.paper.provenance import DATA, OUTPUT, provenance, with_provenance, write_results

# figures may be made where nothing can be drawn; --pictures draws them elsewhere
if find_spec("matplotlib") is not None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullLocator

PLAIN = {"facecolor": "white", "edgecolor": "none", "pad": 1}
OURS, BARE, OTHERS = "#c44e52", "#8c8c8c", "#4c72b0"


def machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    blas = [
        f"{b['internal_api']} {b['version']} {b.get('architecture', '')}" for b in threadpool_info()
    ]
    return {
        "processor": next(
            (x.split(":")[1].strip() for x in lines if x.startswith("model name")),
            platform.machine(),
        ),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "mvplda": mvplda.__version__,
        "blas": sorted(set(blas)),
        "date": datetime.now(UTC).date().isoformat(),
        "clock": "CPU seconds, one BLAS thread, best of several rounds that take turns",
    }


def write(name: str, command: str, figures: dict[str, Any], output: Path) -> list[Path]:
    """Write NAME.json, and NAME.png where there is a picture of it.

    command : the arguments of ``python -m benchmarks`` that make it
    """
    text = output / f"{name}.json"
    record = provenance(command=f"python -m benchmarks {command} --output {OUTPUT}")
    about = {"benchmark": name, "machine": {**machine(), **figures.get("machine", {})}}
    rest = {key: value for key, value in figures.items() if key != "machine"}
    write_results(text, name, **about, **rest, provenance=record)
    return [text, *draw(name, output)]


def results_files(root: Path = ROOT) -> list[Path]:
    """Return all results files of the project."""
    files = [
        *(root / "results").rglob("results.json"),
        *(root / "benchmarks/results").glob("*.json"),
    ]
    return sorted(files)


def study_arguments(about: str | None, inputs: Iterable[str], output: Path) -> tuple[Any, Path]:
    """The files or folders that a study is given, by name, and where what it makes goes."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in inputs:
        parser.add_argument(name, type=Path)
    parser.add_argument("-o", "--output", type=Path, default=output)
    given = vars(parser.parse_args())
    return [given[name] for name in inputs], given["output"]


def study_command(
    name: str,
    about: str | None,
    study: Callable[..., Any],
    table: Callable[[Any], str] | None = None,
    *,
    inputs: Mapping[str, str] = {"data": DATA},
    reads: Sequence[str] = (),
    title: str | None = None,
) -> None:
    """The command line of a study: its results, and its table where it has one, go to results/NAME.

    study : called with the paths that the command is given
    table : makes Markdown of the results
    inputs : {name of an argument in the help: the argument as the command is recorded}
    reads : files below the first input that the study reads, if it does not read all of it
    """
    spec = study.__globals__["__spec__"]
    if spec is None:
        raise SystemExit("run a study with python -m, from the root of the project")
    paths, folder = study_arguments(about, inputs, Path("results") / name)
    command = " ".join(["python -m", spec.name, *inputs.values(), "--output", OUTPUT])
    files = [paths[0] / file for file in reads] if reads else paths
    record = provenance(files, command=command)
    begin = time.process_time()
    found = study(*paths)
    record["seconds"] = round(time.process_time() - begin)
    rows = with_provenance(found, record)
    write_results(folder / "results.json", title or name, rows=rows)
    text = json.dumps(found, indent=2)
    if table is not None:
        text = table(found)
        (folder / "table.md").write_text(text, encoding="utf-8")
    print(text)


def draw(name: str, output: Path) -> list[Path]:
    """Draw NAME.png from the figures in NAME.json, where matplotlib is installed."""
    if name not in PLOTS or find_spec("matplotlib") is None:
        return []
    picture = output / f"{name}.png"
    PLOTS[name](json.loads((output / f"{name}.json").read_text()), picture)
    return [picture]


def lines_of(figures: Any, depth: int = 0) -> list[str]:
    """Figures as indented lines."""
    lines: list[str] = []
    for name, value in figures.items():
        if isinstance(value, dict):
            lines += ["  " * depth + f"{name}:", *lines_of(value, depth + 1)]
        elif isinstance(value, list):
            lines += ["  " * depth + f"{name}:"]
            for item in value:
                lines += [
                    *(
                        lines_of(item, depth + 1)
                        if isinstance(item, dict)
                        else ["  " * depth + str(item)]
                    ),
                    "",
                ]
        else:
            shown = f"{value:.3g}" if isinstance(value, float) else str(value)
            lines.append("  " * depth + f"{name:<40} {shown}")
    return lines


def _bars(
    axes: Any, values: dict[str, float], colours: list[str], label: str, *, log: bool
) -> None:
    names = list(values)
    axes.barh(names[::-1], [values[n] for n in names[::-1]], color=colours[::-1])
    for i, n in enumerate(names[::-1]):
        shown = f"{values[n]:.3g}" if values[n] < 1000 else f"{values[n]:.0f}"
        axes.annotate(
            shown,
            (values[n], i),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            bbox=PLAIN,
        )
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
            0.45 * min(quoted.values()),
            color="black",
            linestyle=":",
            zorder=0,
            label="0.45 of the fastest peer",
        )
        axes.legend(fontsize=8)
    axes.set_title(f"PLDA, full noise, 10 iterations: {case['case']}", fontsize=10, loc="left")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _plot_joint(figures: dict[str, Any], path: Path) -> None:
    figure, panels = plt.subplots(
        len(figures["cases"]), 1, figsize=(7.5, 4.5), layout="constrained"
    )
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


def _plot_scale(figures: dict[str, Any], path: Path) -> None:
    curves = {"by vectors": "vectors", "by speakers": "speakers", "by dimension": "dimension"}
    figure, panels = plt.subplots(2, 3, figsize=(12, 6.4), layout="constrained")
    for (above, below), (title, what) in zip(panels.T, curves.items(), strict=True):
        rows = figures[title]
        x = [row[what] for row in rows]
        times = (("statistics", "o-", OURS), ("bare X'X", ":", BARE), ("generation", "--", BARE))
        iterations = (
            ("an iteration, diagonal noise", "s-", OTHERS),
            ("an iteration, full noise", "s--", OTHERS),
        )
        for name, style, colour in (*times, *iterations):
            above.loglog(x, [row["seconds"][name] for row in rows], style, color=colour, label=name)
        memory = [row["peak memory above the libraries, MiB"] for row in rows]
        below.loglog(
            x, [m["statistics"] for m in memory], "o-", color=OURS, label="statistics, peak"
        )
        below.loglog(
            x,
            [m["EM, full noise"] for m in memory],
            "s--",
            color=OTHERS,
            label="EM with full noise, more",
        )
        for name, style in (("vectors themselves, MiB", "--"), ("class sums themselves, MiB", ":")):
            below.loglog(
                x, [row[name] for row in rows], style, color=BARE, label=name.removesuffix(", MiB")
            )
        fixed = {
            k: rows[0][k] for k in ("vectors", "speakers", "dimension") if rows[0][k] == rows[-1][k]
        }
        words = [
            f"D = {v}" if name == "dimension" else f"{v:,} {name}" for name, v in fixed.items()
        ]
        above.set_title(f"{title}: {', '.join(words)}", fontsize=9)
        below.set_ylim(bottom=1)
        below.set_xlabel(what)
        for axes in (above, below):
            axes.grid(alpha=0.3)
    panels[0, 0].set_ylabel("seconds of one thread")
    panels[1, 0].set_ylabel("MiB")
    for axes in panels[:, 0]:
        axes.legend(fontsize=7)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _plot_crossed(figures: dict[str, Any], path: Path) -> None:
    rows = figures["growth"]
    size = [r["dense size"] for r in rows]
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    wanted = {
        "seconds": "seconds an iteration, one thread",
        "extra memory, MiB": "extra memory of an E step, MiB",
    }
    for axes, (key, label) in zip(panels, wanted.items(), strict=True):
        axes.loglog(size, [r[key] for r in rows], "o-", color=OURS)
        axes.set(xlabel="latents after elimination", ylabel=label)
        axes.set_xticks(size[::2], [str(x) for x in size[::2]])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _plot_gpu_training(figures: dict[str, Any], path: Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 4.2), layout="constrained")
    of = figures["statistics of"]
    titles = (
        f"statistics of {of['vectors']:.3g} vectors, D = {of['dimension']}",
        "EM, {speakers:.0e} speakers, {phrases} phrases, ranks {ranks[0]}+{ranks[1]}".format(
            **figures["EM of"]
        ),
    )
    for axes, part, title in zip((left, right), ("statistics", "EM"), titles, strict=True):
        if part == "statistics":
            rows = {
                row["name"].removesuffix(", all chunks"): row["seconds"] for row in figures[part]
            }
            rows = {name: value for name, value in rows.items() if "one chunk" not in name}
        else:
            rows = {
                row["name"]: 1e3 * row["seconds"]
                for row in figures[part]
                if "iteration" in row["name"][-40:]
            }
            rows = {
                name: value
                for name, value in rows.items()
                if "first iteration" not in name and "10" not in name
            }
        colours = [BARE if name.startswith(("bare", "generation")) else OURS for name in rows]
        _bars(axes, rows, colours, "seconds" if part == "statistics" else "milliseconds", log=False)
        axes.set_title(f"{title}, {figures['device']}", fontsize=9, loc="left", x=-0.4)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _plot_scoring(figures: dict[str, Any], path: Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    shares = {"bare float32 product": 1.0}
    colours = [BARE]
    for name, label in (
        ("one view", "mvplda, one view"),
        ("two views", "mvplda, two views (of three products)"),
    ):
        shares[label] = figures[name]["share of the bare products"]["mvplda, out="]
        colours.append(OURS)
    for name, share in figures["peers quoted, share of their bare product (one view)"].items():
        shares[f"{name}, one view (quoted)"] = share
        colours.append(OTHERS)
    _bars(
        left, shares, colours, "share of the bare products' speed, one thread (log scale)", log=True
    )
    rows = figures["LLR a second by size"]
    for name, colour in zip([n for n in rows[0] if n != "size"], (OURS, OTHERS), strict=True):
        right.loglog(
            [r["size"] for r in rows], [r[name] for r in rows], "o-", color=colour, label=name
        )
    right.set_xlabel("profiles, and tests")
    right.set_ylabel("LLR a second, one thread")
    right.grid(alpha=0.3)
    right.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


PLOTS: dict[str, Callable[[dict[str, Any], Path], None]] = {
    "train": _plot_train,
    "joint": _plot_joint,
    "scoring": _plot_scoring,
    "scale": _plot_scale,
    "crossed": _plot_crossed,
    "gpu_training": _plot_gpu_training,
}


def markdown_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    head, *body = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    rule = [":---", *["---:"] * (len(head) - 1)]
    return ["| " + " | ".join(row) + " |" for row in (head, rule, *body)]
