"""Fine-tuning against EM and the prior: does moving a fitted model by trials help people whom it has not met?

``python -m benchmarks.finetuning DATA [-o results/finetuning] [--only TABLE] [--workers N]``. DATA holds the
AudioMNIST vectors of ``benchmarks/backends.py``, whose protocol and trials these are, ``audiomnist/index.csv`` for the
lengths of the clips, and cmu_faces.npz: 20 people, of whom five at a time are tested, enrolled with three images of a
pose. Drawn vectors are those of ``make_two_views`` with 70 unseen speakers: as drawn, where EM has the right model;
each one scaled by a heavy-tailed factor of its own; and with more noise in what is short. A job is one table, model,
level and seed.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # a process a job is quicker, and torch asks only for this

import numpy as np

from benchmarks.backends import ENROLMENT, SETS, read, task_of
from mvplda import MultiviewPLDA, fine_tune, make_two_views
from mvplda.metrics import evaluate, speaker_intervals, trial_kinds
from mvplda.preprocessing import Reduction, standard_chain
from mvplda.speech.experiment.studies import read_faces

SPOKEN = ("campplus + words", "jvector", "resemblyzer + words")
DRAWN = (
    "drawn, 40 speakers",
    "drawn, 132 speakers",
    "heavy tails, 40 speakers",
    "short and long, 40 speakers",
)
MODELS = ("joint", "joint, prior", "PLDA by cell")
LEVELS = ("none", "scales", "columns", "full", "none, apart", "scales, apart")
"""What moves; apart: people who are held out are held out of the preprocessing, too, where there is one."""

PENALTIES = (0.001, 0.01)
STEPS, FEW_STEPS = 60, 30
"""At most; fewer where every fold has a preprocessing of its own, since all curves were flat by then."""


@dataclass(frozen=True)
class Problem:
    """Vectors to train on, profiles and tests of others, all with labels, speakers first, and seconds."""

    train: np.ndarray
    labels: dict[str, np.ndarray]
    seconds: np.ndarray | None
    enrol: np.ndarray
    ids: np.ndarray
    model_labels: dict[str, np.ndarray]
    enrol_seconds: np.ndarray | None
    test: np.ndarray
    test_labels: dict[str, np.ndarray]
    test_seconds: np.ndarray | None
    whiten: int | None


def problems(folder: Path, table: str, seed: int) -> Iterator[Problem]:
    if table == "faces":
        yield from faces(folder / "cmu_faces.npz")
    elif table in DRAWN:
        yield drawn(table, seed)
    else:
        yield spoken(folder, table)


def spoken(folder: Path, table: str) -> Problem:
    data = read(folder)
    with open(folder / "audiomnist" / "index.csv", newline="") as file:
        length = {
            (int(r["speaker"]), int(r["phrase"]), int(r["session"])): int(r["length"])
            for r in csv.DictReader(file)
        }
    names = ("speaker", "phrase", "session")
    keys = zip(*(data.labels[name].astype(int).tolist() for name in names), strict=True)
    seconds = np.array([length[key] for key in keys]) / 16000
    task = task_of(data, SETS[table])
    own = np.isin(data.labels["speaker"], data.training)
    rest = np.flatnonzero(~own)
    enrols = rest[data.labels["session"][rest] < ENROLMENT]
    cell = np.char.add(
        np.char.add(data.labels["speaker"].astype(str), " "), data.labels["phrase"].astype(str)
    )
    enrols = enrols[np.argsort(cell[enrols], kind="stable")]  # as task_of has them
    tests = rest[data.labels["session"][rest] >= ENROLMENT]
    return Problem(task.train, task.train_labels, seconds[own], task.enrol, task.enrol_ids, task.model_labels,
                   seconds[enrols], task.test, task.test_labels, seconds[tests], 150)  # fmt: skip


def faces(path: Path) -> Iterator[Problem]:
    images, labels = read_faces(path)
    X = images[:, ::2, ::2].reshape(len(images), -1).astype(np.float64)
    views = {"person": labels["person"], "pose": labels["pose"]}
    people = np.random.default_rng(0).permutation(np.unique(views["person"]))
    for unseen in np.array_split(people, 4):
        out = np.isin(views["person"], unseen)
        reduction = Reduction(60).fit(X[~out])
        Y = reduction.transform(X)
        rows = np.random.default_rng(0).permutation(np.flatnonzero(out))
        cell = np.unique(np.stack([v[rows] for v in views.values()]), axis=1, return_inverse=True)[
            1
        ].reshape(-1)
        order = np.argsort(cell, kind="stable")
        rows, cell = rows[order], cell[order]
        place = np.arange(len(rows)) - np.searchsorted(cell, cell)
        enrol, test = rows[place < ENROLMENT], rows[place >= ENROLMENT]
        ids = cell[place < ENROLMENT]
        first = np.searchsorted(ids, np.arange(ids.max() + 1))
        yield Problem(Y[~out], {v: c[~out] for v, c in views.items()}, None, Y[enrol], ids,
                      {v: c[enrol[first]] for v, c in views.items()}, None, Y[test],
                      {v: c[test] for v, c in views.items()}, None, None)  # fmt: skip


def drawn(table: str, seed: int) -> Problem:
    speakers = 132 if "132" in table else 40
    X, labels, unseen = make_two_views(speakers, held_out=70, random_state=100 + seed)
    rng = np.random.default_rng(200 + seed)
    parts, seconds = [X, unseen.enrol, unseen.test], [None, None, None]
    if table.startswith("heavy"):
        parts = [part * np.sqrt(3.0 / rng.chisquare(3.0, (len(part), 1))) for part in parts]
    if table.startswith("short"):
        seconds = [rng.choice([0.5, 1.0, 4.0], len(part)) for part in parts]
        noise = X.std(axis=0)
        parts = [
            x + rng.normal(size=x.shape) * noise / np.sqrt(s)[:, None]
            for x, s in zip(parts, seconds, strict=True)
        ]
    own = {view: column[::ENROLMENT] for view, column in unseen.enrol_labels.items()}
    ids = np.repeat(np.arange(len(own["speaker"])), ENROLMENT)
    return Problem(parts[0], labels, seconds[0], parts[1], ids, own, seconds[1], parts[2], unseen.test_labels,
                   seconds[2], None)  # fmt: skip


def build(name: str, views: tuple[str, ...], problem: Problem) -> MultiviewPLDA:
    cell = ":".join(views)
    classes = {view: len(np.unique(problem.labels[view])) for view in views}
    most = min(150, problem.train.shape[1], problem.whiten or 10**9)
    if name == "joint, prior":
        settings: dict[str, Any] = {"prior": "isotropic", "prior_strength": 0.4, "max_iter": 0}
        return MultiviewPLDA(dict.fromkeys((*views, cell)), **settings)
    ranks = {view: min(40, classes[view] - 1, most) for view in views}
    cells = min(120, most - 1, int(np.prod(list(classes.values()))) - 1)
    if name == "PLDA by cell":
        return MultiviewPLDA({cell: cells}, noise="full", max_iter=20)
    return MultiviewPLDA({**ranks, cell: cells}, noise="full", max_iter=20)


def judged(scores: np.ndarray, problem: Problem, *, intervals: bool) -> dict[str, Any]:
    kinds = trial_kinds(problem.model_labels, problem.test_labels)
    found = evaluate(scores, kinds)
    result: dict[str, Any] = {
        kind: 100 * found[kind]["eer"] for kind in ("IW", "IC", "TW", "Total")
    }
    result["Cllr"] = found["Total"]["cllr"]
    alarms = np.mean([np.logaddexp(0, scores[kinds[kind]]).mean() for kind in ("IW", "IC", "TW")])
    result["Cllr by kind"] = float(
        (np.logaddexp(0, -scores[kinds["TC"]]).mean() + alarms) / (2 * np.log(2))
    )
    if intervals:
        person = next(iter(problem.test_labels))
        ends = speaker_intervals(
            scores, kinds, problem.model_labels[person], problem.test_labels[person]
        )
        for name, measure, unit in (("Total", "eer", 100.0), ("Cllr", "cllr", 1.0)):
            end = ends.of("Total", measure)
            result[f"{name}, interval"] = (unit * end.low, unit * end.high)
    return result


def run(
    folder: Path, table: str, name: str, level: str, seed: int, device: str | None = None
) -> dict[str, Any]:
    """Rows of one job: {row: judgement}, means over the folds of people where there are several."""
    warnings.simplefilter("ignore")
    began, parts = time.perf_counter(), []
    for problem in problems(folder, table, seed):
        parts.append(
            rows_of(problem, name, level, seed, device, intervals=table in SPOKEN and seed == 0)
        )
    result = {
        row: {key: _mean([part[row][key] for part in parts]) for key in parts[0][row]}
        for row in parts[0]
    }
    for row in result.values():
        row["job seconds"] = time.perf_counter() - began
    return result


def rows_of(
    problem: Problem, name: str, level: str, seed: int, device: str | None, *, intervals: bool
) -> dict[str, dict[str, Any]]:
    given, enrol, test = problem.train, problem.enrol, problem.test
    chain, train = None, given
    if problem.whiten is not None:
        chain = standard_chain(problem.whiten, length="unit" if "prior" in name else "sqrt").fit(
            given
        )
        train, enrol, test = (chain.transform(x) for x in (given, enrol, test))
    model = build(name, tuple(problem.labels), problem).fit(train, problem.labels)
    moving, apart = level.removesuffix(", apart"), level.endswith("apart")
    common: dict[str, Any] = {
        "enrolment": ENROLMENT,
        "random_state": seed,
        "device": device,
        "penalties": PENALTIES,
    }
    common |= {
        "X": given if apart else train,
        "y": problem.labels,
        "preprocessing": chain if apart else None,
    }
    steps = 0 if moving == "none" else FEW_STEPS if apart else STEPS
    moving = "scales" if moving == "none" else moving
    fitted = time.perf_counter()
    found = fine_tune(model, levels=[moving], steps=steps, **common)
    took = time.perf_counter() - fitted

    def answers(scorer: MultiviewPLDA) -> np.ndarray:
        return np.asarray(scorer.llr(scorer.enrol(enrol, problem.ids), test, dtype=np.float64))

    def row(scores: np.ndarray, calibrator: Any, **side: Any) -> dict[str, Any]:
        llrs = (
            scores
            if calibrator is None
            else calibrator.transform(scores.ravel(), **side).reshape(scores.shape)
        )
        return judged(llrs, problem, intervals=intervals)

    scores = answers(model)
    plain = row(scores, found.start_calibrator) | {"steps": 0.0, "held out": found.start_cost}
    if not steps:
        return {"as it is": row(scores, None), "calibrated": plain} | by_seconds(
            problem, model, scores, common, row
        )
    moved = row(answers(found.model), found.calibrator)
    moved |= {"steps": float(found.steps), "held out": found.cost, "seconds": took}
    moved["curves"] = {f"{p}": found.costs[moving, p].mean(axis=0).tolist() for p in PENALTIES}
    return {"calibrated": plain, "fine-tuned": moved}


def by_seconds(
    problem: Problem, model: MultiviewPLDA, scores: np.ndarray, common: Any, row: Any
) -> dict[str, Any]:
    """The same scores, calibrated by what is known of the lengths of both sides."""
    if problem.seconds is None or problem.enrol_seconds is None:
        return {}
    aware = fine_tune(model, levels=["scales"], steps=0, side={"s": problem.seconds}, **common)
    mean = np.bincount(problem.ids, problem.enrol_seconds) / np.bincount(problem.ids)
    sides = np.broadcast_arrays(mean[:, None], problem.test_seconds)
    side = dict(zip(("s, enrolled", "s, test"), (part.ravel() for part in sides), strict=True))
    return {
        "calibrated by seconds": row(scores, aware.calibrator, side=side) | {"held out": aware.cost}
    }


def _mean(values: list[Any]) -> Any:
    if isinstance(values[0], dict):
        return {
            key: np.mean([value[key] for value in values], axis=0).tolist() for key in values[0]
        }
    return np.mean(values, axis=0).tolist()


def jobs() -> list[tuple[str, str, str, int]]:
    """Tables, models, levels and seeds; what fails for the joint model is not tried of the others."""
    every = []
    for table in (*SPOKEN, "faces", *DRAWN):
        for name in MODELS:
            for level in LEVELS:
                more = (
                    level in ("columns", "full")
                    and name != "joint"
                    and (level == "full" or table not in SPOKEN)
                )
                if not more and (table in SPOKEN or not level.endswith("apart")):
                    every.append((table, name, level, 0))
    return every


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("results/finetuning"))
    parser.add_argument(
        "--only", action="append", help="table, or table/model/level/seed; may be repeated"
    )
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument(
        "--seconds", type=float, default=1e9, help="begin no job after so many seconds"
    )
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    kept = options.output / "results.json"
    results: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() and options.only else {}
    began = time.monotonic()
    named = {"/".join(map(str, job)): job for job in jobs()}
    wanted = [n for n, job in named.items() if not options.only or {job[0], n} & set(options.only)]
    with ProcessPoolExecutor(options.workers) as pool:
        running = {
            pool.submit(_in_time, began + options.seconds, options.data, *named[n]): n
            for n in wanted
        }
        for job in as_completed(running):
            try:
                found = job.result()
            except Exception as error:
                print(f"{running[job]}: {type(error).__name__}: {error}", flush=True)
                continue
            if found is not None:
                results[running[job]] = found
                row = found.get("fine-tuned", found["calibrated"])
                print(
                    running[job],
                    {k: round(v, 4) for k, v in row.items() if isinstance(v, float)},
                    flush=True,
                )
                kept.write_text(
                    json.dumps({n: results[n] for n in named if n in results}, indent=1)
                )
    (options.output / "table.md").write_text(markdown(results))


def _in_time(until: float, *job: Any) -> dict[str, Any] | None:
    return run(*job) if time.monotonic() < until else None


def markdown(results: dict[str, Any]) -> str:
    """A table a set, a row a model and level; with several seeds, the mean, and the ends in brackets."""
    lines = [
        "EER in %, Cllr in bits, on people who did not train; of the first seed [the 95 % interval over speakers]."
    ]
    columns = ("IW", "IC", "TW", "Total", "Cllr", "Cllr by kind")
    for table in (*SPOKEN, "faces", *DRAWN):
        rows = []
        for name in MODELS:
            for level in LEVELS:
                found = [
                    results[n] for s in range(3) if (n := f"{table}/{name}/{level}/{s}") in results
                ]
                for row in found[0] if found else ():
                    if row == "fine-tuned":
                        rows.append((f"{name}, fine-tuned: {level}", [f[row] for f in found]))
                    elif level.startswith("none"):
                        rows.append(
                            (f"{name}, {row}{level.removeprefix('none')}", [f[row] for f in found])
                        )
        if not rows:
            continue
        lines += [
            "",
            f"**{table}**",
            "",
            "| system | " + " | ".join(columns) + " | steps | held out |",
        ]
        lines.append("|:---|" + "---:|" * (len(columns) + 2))
        for title, found in rows:
            cells = []
            for column in columns:
                values = [f[column] for f in found]
                digits = 4 if "Cllr" in column else 2
                text = f"{np.mean(values):.{digits}f}"
                if len(values) > 1:
                    text += f" ({min(values):.{digits}f} to {max(values):.{digits}f})"
                if f"{column}, interval" in found[0]:
                    low, high = found[0][f"{column}, interval"]
                    text += f" [{low:.{digits}f}, {high:.{digits}f}]"
                cells.append(text)
            steps = ", ".join(f"{f['steps']:.0f}" for f in found) if "steps" in found[0] else "-"
            held = f"{found[0]['held out']:.4f}" if "held out" in found[0] else "-"
            lines.append(f"| {title} | " + " | ".join(cells) + f" | {steps} | {held} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
