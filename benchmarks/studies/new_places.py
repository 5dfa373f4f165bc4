"""A model moves to a new place with recordings that nobody labelled: what helps, and after how many minutes.

``python -m benchmarks.studies.new_places PLACES [-o results/places] [--workers N]``. PLACES holds what ``python -m
benchmarks.studies.sounds places`` made: AudioMNIST's digits as they are ("clean") and through telephones, rooms
and noise. 25 speakers train where it is clean; 15 others give recordings of the new place, of which some
minutes are drawn; 20 others are enrolled and tested there, 3 and 2 repetitions of a digit. All minutes are of sound,
at 0.64 s a clip.
"""

from __future__ import annotations

import argparse
import os
import shlex
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.report import markdown_rows
from mvplda import Bundle, CosineScorer, MultiviewPLDA
from mvplda.metrics import eer, speaker_intervals, trial_kinds
from mvplda.paper.provenance import OUTPUT, WORK, provenance, with_provenance, write_results
from mvplda.preprocessing import standard_chain, unit_chain

from .adaptation import adapt, moved, recentred, shift_mean

MINUTES = (0.5, 1, 2, 5, 10)
VIEWS = ("speaker", "phrase")
ACROSS: dict[str, Any] = {"same": "speaker", "given": {"phrase": "different"}}
ENROLLED = 3
NONE, MOVED = "no adaptation", "centring, by amount"
COLOURS = (
    *("#BBBBBB", "#56B4E9", "#CC79A7", "#E69F00", "#D55E00"),
    *("#88CCEE", "#009E73", "#DDCC77", "#882255", "#0072B2"),
)


@lru_cache(maxsize=2)
def read(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as data:
        return {
            name: data[name].astype(np.float64) if name == "X" else data[name]
            for name in data.files
        }


@lru_cache(maxsize=1)
def models(folder: Path) -> dict[str, Bundle]:
    """What is trained where it is clean."""
    data = read(folder / "clean.npz")
    own = data["role"] == "train"
    X, labels = data["X"][own], {view: data[view][own] for view in VIEWS}
    views: dict[str, int | None] = dict.fromkeys((*VIEWS, ":".join(VIEWS)))
    few = MultiviewPLDA(views, prior="isotropic", prior_strength=0.6, max_iter=3)
    return {
        "cosine": Bundle(unit_chain(), CosineScorer(centre=False)).fit(X),
        "joint, prior": Bundle(unit_chain(), few).fit(X, labels),
        "joint": Bundle(standard_chain(100), MultiviewPLDA(views, noise="full", max_iter=15)).fit(
            X, labels
        ),
    }


# What is tried: a bundle of the old place and vectors of the new one give a bundle for it.


def centred(
    bundle: Bundle,
    X: np.ndarray,
    change: Callable[..., Any] | None = None,
    weight: float | None = None,
) -> Bundle:
    """The preprocessing centred on the new place, then something done to the model."""
    result = Bundle(recentred(bundle.preprocessing, X, weight), bundle.scorer)
    if change is not None:
        result.scorer = change(
            shift_mean(bundle.scorer, result.prepare(X), weight), result.prepare(X)
        )
    return result


ROWS: dict[str, tuple[str, Callable[..., Bundle] | None]] = {
    "cosine": ("cosine", None),
    "cosine, centring, by amount": ("cosine", lambda bundle, X, y: moved(bundle, X)),
    NONE: ("joint, prior", None),
    "centring, all the way": ("joint, prior", lambda bundle, X, y: centred(bundle, X, weight=1.0)),
    MOVED: ("joint, prior", lambda bundle, X, y: moved(bundle, X)),
    "and a model of these, with labels": (
        "joint, prior", lambda bundle, X, y: centred(bundle, X, lambda model, Z: adapt(model, Z, y))),
    "without prior: no adaptation": ("joint", None),
    "without prior: centring, by amount": ("joint", lambda bundle, X, y: moved(bundle, X)),
}  # fmt: skip
"""All of them tell themselves how far to go by the amount of recordings, unless they say otherwise."""
FEW = (
    "cosine",
    "cosine, centring, by amount",
    NONE,
    MOVED,
)
"""Rows of the picture."""


def judge(
    folder: Path, place: str, draw: int, wanted: tuple[str, ...], intervals: bool
) -> dict[str, dict[str, list[Any]]]:
    """EER in % of "the same speaker and phrase?" and "the same speaker, other phrase?", with intervals, by minutes."""
    warnings.simplefilter("ignore")
    data, trained = read(folder / f"{place}.npz"), models(folder)
    session = data["session"].astype(int)
    enrol = np.flatnonzero((data["role"] == "evaluate") & (session < ENROLLED))
    test = np.flatnonzero((data["role"] == "evaluate") & (session >= ENROLLED))
    cell = np.char.add(np.char.add(data["speaker"], " "), data["phrase"])
    enrol = enrol[np.argsort(cell[enrol], kind="stable")]
    first, ids = np.unique(cell[enrol], return_index=True, return_inverse=True)[1:]
    sides = [{view: data[view][rows] for view in VIEWS} for rows in (enrol[first], test)]
    kinds = trial_kinds(*sides)
    people = sides[0]["speaker"], sides[1]["speaker"]
    given = np.flatnonzero(data["role"] == "adapt")
    order = np.random.default_rng(draw).permutation(given)
    spent = np.cumsum(data["seconds"][order].astype(float)) / 60

    def measured(bundle: Bundle, interval: bool = True) -> list[Any]:
        profiles = bundle.enrol(data["X"][enrol], ids)
        both = bundle.llr(profiles, data["X"][test])
        across = (
            both
            if isinstance(bundle.scorer, CosineScorer)
            else bundle.llr(profiles, data["X"][test], **ACROSS)
        )
        found = []
        for scores, targets, others in (
            (both, kinds["TC"], ~kinds["TC"]),
            (across, kinds["TW"], kinds["IW"]),
        ):
            found.append([100 * float(eer(scores[targets], scores[others]))])
            if interval:
                split = {"TC": targets, "IC": others}
                end = speaker_intervals(
                    np.asarray(scores, dtype=np.float64), split, *people, far=()
                ).of("Total", "eer")
                found[-1] += [100 * end.low, 100 * end.high]
        return found

    result: dict[str, dict[str, list[Any]]] = {}
    before = {name: measured(bundle, intervals) for name, bundle in trained.items()}
    for row, (model, change) in ((name, ROWS[name]) for name in wanted):
        result[row] = {"0": before[model]}
        for minutes in (m for m in MINUTES if m <= spent[-1]):
            rows = order[: np.searchsorted(spent, minutes) + 1]
            labels = {view: data[view][rows] for view in VIEWS}
            moved = None if change is None else change(trained[model], data["X"][rows], labels)
            result[row][str(minutes)] = (
                before[model] if moved is None else measured(moved, intervals and row == MOVED)
            )
    return result


def whole(results: dict[str, Any]) -> list[str]:
    """New places that have recordings for every number of minutes."""
    return [
        place
        for place, draws in results.items()
        if place != "clean" and str(MINUTES[-1]) in draws[0][NONE]
    ]


def table(results: dict[str, Any]) -> str:
    """Means over new places, and every place for itself."""
    together = whole(results)
    lines = [
        f"EER in %, means over draws of the recordings; all new places: {', '.join(together)}.",
        "",
    ]
    for question, title in enumerate(("Same speaker and phrase", "Same speaker, other phrase")):
        for name in ("all new places", *results):
            places = together if name == "all new places" else [name]
            times = list(results[places[0]][0][NONE])
            rows = [["minutes of recordings", *times]]
            for row in results[places[0]][0]:
                cells = []
                for time in times:
                    values = [
                        draw[row][time][question] for place in places for draw in results[place]
                    ]
                    mean, *ends = np.mean(values, axis=0)
                    interval = (
                        f" [{ends[0]:.2f}, {ends[1]:.2f}]" if ends and len(places) == 1 else ""
                    )
                    cells.append(f"{mean:.2f}{interval}")
                rows.append([row, *cells])
            lines += [f"**{title}: {name}**", "", *markdown_rows(rows), ""]
    return "\n".join(lines)


def draw_minutes(results: dict[str, Any], path: Path) -> Path:
    from matplotlib.figure import Figure

    fig = Figure(figsize=(12, 5), layout="constrained")
    panels = fig.subplots(1, 2)
    places, times = whole(results), ["0", *map(str, MINUTES)]
    for question, axes in enumerate(panels):
        for k, row in enumerate(name for name in FEW if name in results[places[0]][0]):
            values = [
                np.mean([draw[row][t][question][0] for p in places for draw in results[p]])
                for t in times
            ]
            axes.plot(
                times,
                values,
                "o-",
                label=row,
                color=COLOURS[(3 * k) % len(COLOURS)],
                ms=4,
            )
        axes.set(xlabel="minutes of unlabelled recordings", ylabel="EER, %", ylim=(0, None))
        axes.set_title(("same speaker and phrase", "same speaker, other phrase")[question])
        axes.grid(alpha=0.25)
    fig.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3,
        fontsize="small",
    )
    fig.savefig(path, dpi=130)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("places", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("results/places"))
    parser.add_argument(
        "--draws", type=int, default=3, help="draw so many times which recordings come first"
    )
    parser.add_argument(
        "--row", action="append", choices=list(ROWS), help="judge only this; may be repeated"
    )
    parser.add_argument(
        "--no-intervals",
        action="store_true",
        help="leave out intervals, which take most of the time",
    )
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    names = sorted(path.stem for path in options.places.glob("*.npz"))
    wanted = tuple(row for row in ROWS if row in (NONE, *(options.row or ROWS)))
    asked = wanted, not options.no_intervals
    jobs = [(options.places, name, draw, *asked) for name in names for draw in range(options.draws)]
    command = f"python -m benchmarks.studies.new_places {WORK}/places --output {OUTPUT}"
    command += "".join(f" --row {shlex.quote(row)}" for row in options.row or ())
    command += f" --draws {options.draws}" + " --no-intervals" * options.no_intervals
    record = provenance([options.places], command=command)
    results: dict[str, Any] = {name: [] for name in names}
    with ProcessPoolExecutor(options.workers) as pool:
        for (_, name, draw, *_), found in zip(
            jobs, pool.map(judge, *zip(*jobs, strict=True)), strict=True
        ):
            results[name].append(found)
            print(name, draw, {row: round(found[row]["2"][0][0], 2) for row in wanted}, flush=True)
    rows = with_provenance(results, record)
    write_results(options.output / "results.json", "A new domain", rows=rows)
    (options.output / "table.md").write_text(table(results))
    draw_minutes(results, options.output / "places.png")


if __name__ == "__main__":
    main()
