"""Back-ends on vectors of public extractors, few training speakers: cosine, PLDA, cascade, joint models, committees.

``python benchmarks/backends.py DATA [-o results/backends] [--only SET] [--workers N]``. DATA holds
audiomnist_campplus.npz, audiomnist_embeddings.npz and audiomnist_jvectors.npz: spoken digits of 60 speakers, of which
40 train and 20 evaluate. Profiles are of three sessions of a (speaker, phrase), tests are the sessions after them, all
against all. Factors, calibration and every other choice come from training speakers that are held out; the strengths
of priors and the form of the committee were chosen by folds of the 40 training speakers. The network of the j-vectors
has met these.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a process a row is quicker

import numpy as np
from sklearn.pipeline import Pipeline

from mvplda import PLDA, Bundle, CosineScorer, MultiviewPLDA
from mvplda.calibration import KindCalibrator
from mvplda.metrics import evaluate, speaker_intervals, trial_kinds
from mvplda.preprocessing import LDA, Centring, LengthNormalisation, RectifiedRoot, Reduction
from mvplda.speech.experiment.systems import (
    SYSTEMS,
    BackendSettings,
    claims,
    development_task,
    run_system,
)
from mvplda.speech.experiment.task import Task, score

ENROLMENT = 3
ACROSS: dict[str, Any] = {"same": "speaker", "given": {"phrase": "different"}}
SETS = {
    "campplus": ["campplus"],
    "resemblyzer": ["resemblyzer"],
    "campplus + words": ["campplus", "words"],
    "resemblyzer + words": ["resemblyzer", "words"],
    "campplus + words + resemblyzer": ["campplus", "words", "resemblyzer"],
    "jvector": ["jvector"],
    "campplus + words + jvector": ["campplus", "words", "jvector"],
    "campplus + words + resemblyzer + jvector": ["campplus", "words", "resemblyzer", "jvector"],
}
ROWS = {
    "cosine": "cosine",
    "cosines, fused": "fused",
    "cosines of roots, fused": "roots",
    "PLDA by speaker": "plda-speaker",
    "PLDA by cell": "plda-cell",
    "PLDA by cell, tuned": "plda-tuned",
    "cascade": "cascade",
    "joint, interaction": "jplda-interaction",
    "joint, interaction, phrase known, tuned": "jplda-tuned",
    "joint, prior": "prior",
    "best, phrase not known": "best-unknown",
    "best": "best",
}


@dataclass(frozen=True)
class Data:
    """Vectors by extractor, all in the order of one set of labels, and the training speakers."""

    X: dict[str, np.ndarray]
    labels: dict[str, np.ndarray]
    training: np.ndarray


@lru_cache(maxsize=1)
def read(folder: Path) -> Data:
    embeddings = np.load(folder / "audiomnist_embeddings.npz")
    others = {
        "campplus": np.load(folder / "audiomnist_campplus.npz"),
        "jvector": np.load(folder / "audiomnist_jvectors.npz"),
    }
    names = ("session", "phrase", "speaker")
    order = np.lexsort([embeddings[name] for name in names])
    labels = {name: embeddings[name][order] for name in names}
    X = {"resemblyzer": embeddings["voice"][order], "words": embeddings["words"][order]}
    for name, file in others.items():
        X[name] = file["X" if name == "jvector" else "voice"][np.lexsort([file[n] for n in names])]
    training = others["jvector"]["training_speakers"]
    own = np.isin(labels["speaker"], training)
    X = {name: x.astype(np.float32) for name, x in X.items()}
    X["jvector"] = Reduction(300).fit(X["jvector"][own]).transform(X["jvector"]).astype(np.float32)
    return Data(X, labels, training)


def task_of(data: Data, names: list[str]) -> Task:
    """The trials, with vectors side by side, each extractor's of unit length on average."""
    own = np.isin(data.labels["speaker"], data.training)
    blocks = [data.X[name] / np.linalg.norm(data.X[name][own], axis=1).mean() for name in names]
    X, labels = (
        np.hstack(blocks),
        {view: data.labels[view].astype(np.str_) for view in ("speaker", "phrase")},
    )
    session = data.labels["session"]
    rest = np.flatnonzero(~own)
    enrols, tests = rest[session[rest] < ENROLMENT], rest[session[rest] >= ENROLMENT]
    cell = np.char.add(np.char.add(labels["speaker"], " "), labels["phrase"])
    order = enrols[np.argsort(cell[enrols], kind="stable")]
    ids = np.unique(cell[order], return_inverse=True)[1]
    first = np.searchsorted(ids, np.arange(ids.max() + 1))
    return Task(
        ("speaker", "phrase"),
        X[own],
        {view: column[own] for view, column in labels.items()},
        X[order],
        ids,
        {view: column[order[first]] for view, column in labels.items()},
        X[tests],
        {view: column[tests] for view, column in labels.items()},
        blocks={name: data.X[name].shape[1] for name in names},
    )


# Rows: each gives scores for "the same in both?" and for "the same speaker, other phrase?".

Scores = tuple[Any, Any]


def unit_length(*first: Any) -> Pipeline:
    steps = [*first, Centring(), LengthNormalisation("unit")]
    return Pipeline([(str(i), step) for i, step in enumerate(steps)])


def cosines(task: Task, *, roots: bool = False) -> Scores:
    """Cosines of every block, fused by logistic regression on trials of held-out training speakers, by kind."""

    def each(some: Task) -> np.ndarray:
        found, start = [], 0
        for width in (some.blocks or {"all": some.train.shape[1]}).values():
            part = slice(start, start + width)
            start += width
            chain = unit_length(RectifiedRoot()) if roots else unit_length()
            bundle = Bundle(chain, CosineScorer(centre=False)).fit(some.train[:, part])
            found.append(
                score(bundle, replace(some, enrol=some.enrol[:, part], test=some.test[:, part]))
            )
        return np.stack(found, axis=-1)

    inner = development_task(task)
    assert inner is not None
    tried, kinds = each(inner), np.empty(inner.targets.shape, dtype="U2")
    for name, mask in inner.kinds.items():
        kinds[mask] = name
    fusion = KindCalibrator().fit(tried.reshape(-1, tried.shape[-1]), kinds.reshape(-1))
    across = KindCalibrator(target="TW").fit(
        tried[~inner.kinds["TC"] & ~inner.kinds["IC"]],
        kinds[~inner.kinds["TC"] & ~inner.kinds["IC"]],
    )
    scores = each(task)
    flat = scores.reshape(-1, scores.shape[-1])
    return fusion.transform(flat).reshape(scores.shape[:2]), across.transform(flat).reshape(
        scores.shape[:2]
    )


def joint(strength: Any = 0.6) -> MultiviewPLDA:
    views: dict[str, int | None] = {"speaker": None, "phrase": None, "speaker:phrase": None}
    return MultiviewPLDA(views, prior="isotropic", prior_strength=strength, max_iter=3)


def asked_both(bundle: Any, task: Task, **question: Any) -> Scores:
    return score(bundle, task, **question), score(bundle, task, **ACROSS, **question)


def run_row(name: str, task: Task) -> Scores:
    if name in ("fused", "roots"):
        return cosines(task, roots=name == "roots")
    if name == "prior":
        return asked_both(Bundle(unit_length(), joint()).fit(task.train, task.train_labels), task)
    if name == "best-unknown":
        # phrases that no enrolment claims by a name that training has met
        other = {**task.model_labels, "phrase": np.char.add("?", task.model_labels["phrase"])}
        tests = {**task.test_labels, "phrase": np.char.add("?", task.test_labels["phrase"])}
        task = replace(task, model_labels=other, test_labels=tests)
        return asked_both(SYSTEMS["best"].fit(task, BackendSettings()), task)
    found = run_system(SYSTEMS[name], task, BackendSettings())
    if name in ("jplda-interaction", "jplda-tuned", "best"):
        question = claims(task) if name != "jplda-interaction" else {}
        return found.scores, score(found.model, task, **ACROSS, **question)
    return found.scores, found.scores


def judge(scores: Scores, task: Task) -> dict[str, tuple[float, float, float]]:
    """EER in %, with its interval over speakers, by column."""
    kinds = trial_kinds(task.model_labels, task.test_labels)
    speakers = task.model_labels["speaker"], task.test_labels["speaker"]
    both, across = (np.asarray(s, dtype=np.float64) for s in scores)
    found = {}
    result, ends = evaluate(both, kinds), speaker_intervals(both, kinds, *speakers)
    for kind in ("IW", "IC", "TW", "Total"):
        end = ends.of(kind, "eer")
        found[kind] = (100 * result[kind]["eer"], 100 * end.low, 100 * end.high)
    told = {"TC": kinds["TW"], "IC": kinds["IW"]}
    end = speaker_intervals(across, told, *speakers).of("Total", "eer")
    found["other phrase"] = (
        100 * evaluate(across, told)["Total"]["eer"],
        100 * end.low,
        100 * end.high,
    )
    return found


def one_row(folder: Path, table: str, row: str) -> tuple[str, str, Any, float]:
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    data = read(folder)
    if table == "nuisance":
        return table, row, nuisance(data, row), time.perf_counter() - began
    task = task_of(data, SETS[table])
    return table, row, judge(run_row(ROWS[row], task), task), time.perf_counter() - began


# Speakers who say few phrases: the phrase as a nuisance.

NUISANCE = (
    "cosine", "cosine of roots", "cosine, centred by phrase", "LDA of speaker", "PLDA of speaker",
    "PLDA of speaker, prior", "joint, interaction", "joint, prior", "best, phrase not known",
)  # fmt: skip


def nuisance(data: Data, row: str) -> dict[str, float]:
    """EER in % of "same speaker, other phrase", by how many phrases a training speaker says."""
    whole = task_of(data, ["campplus"])
    code = np.unique(whole.train_labels["speaker"], return_inverse=True)[1]
    phrase = whole.train_labels["phrase"].astype(int)
    kinds = trial_kinds(whole.model_labels, whole.test_labels)
    found = {}
    for phrases in (10, 5, 3, 2, 1):
        kept = (phrase - code) % 10 < phrases
        labels = {view: column[kept] for view, column in whole.train_labels.items()}
        across = _ignoring(row, replace(whole, train=whole.train[kept], train_labels=labels))
        found[str(phrases)] = (
            100 * evaluate(across, {"TC": kinds["TW"], "IC": kinds["IW"]})["Total"]["eer"]
        )
    return found


def _ignoring(row: str, task: Task) -> Any:
    full = {"noise": "full", "max_iter": 20}
    few = {"prior": "isotropic", "prior_strength": 0.6, "max_iter": 3}
    speakers = task.train_labels["speaker"]
    if row == "cosine, centred by phrase":
        names = np.unique(task.train_labels["phrase"])
        means = np.stack([task.train[task.train_labels["phrase"] == p].mean(axis=0) for p in names])

        def centred(X: np.ndarray, phrase: np.ndarray) -> np.ndarray:
            return np.asarray(X - means[np.searchsorted(names, phrase)])

        # the phrase of an enrolment or a test is told: this row knows more than the others
        task = replace(
            task,
            train=centred(task.train, task.train_labels["phrase"]),
            enrol=centred(task.enrol, task.model_labels["phrase"][task.enrol_ids]),
            test=centred(task.test, task.test_labels["phrase"]),
        )
    if row in ("cosine", "cosine of roots", "cosine, centred by phrase"):
        chain = unit_length(RectifiedRoot()) if "roots" in row else unit_length()
        return score(Bundle(chain, CosineScorer(centre=False)).fit(task.train), task)
    if row == "LDA of speaker":
        chain = unit_length(Centring(), LDA(view="speaker", shrinkage=0.1))
        return score(
            Bundle(chain, CosineScorer(centre=False)).fit(task.train, task.train_labels), task
        )
    if row.startswith("PLDA"):
        return score(
            Bundle(unit_length(), PLDA(**(few if "prior" in row else full))).fit(
                task.train, speakers
            ),
            task,
        )
    if row == "best, phrase not known":
        return run_row("best-unknown", task)[1]
    model = joint() if "prior" in row else MultiviewPLDA(dict.fromkeys(joint().views or {}), **full)
    return score(Bundle(unit_length(), model).fit(task.train, task.train_labels), task, **ACROSS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("results/backends"))
    parser.add_argument("--only", action="append", help="a set, or set/row; may be repeated")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    kept = options.output / "results.json"
    results: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() and options.only else {}
    every = [
        (t, row) for t in SETS for row in ROWS if ROWS[row] != "prior" or len(SETS[t]) == 1
    ]  # else it takes long
    every += [("nuisance", row) for row in NUISANCE]
    wanted = [
        (table, row)
        for table, row in every
        if not options.only or {table, f"{table}/{row}"} & set(options.only)
    ]
    with ProcessPoolExecutor(options.workers) as pool:
        jobs = [
            pool.submit(one_row, options.data, *place) for place in reversed(wanted)
        ]  # the long ones first
        for job in jobs[::-1]:
            table, row, found, seconds = job.result()
            results.setdefault(table, {})[row] = found
            shown = "  ".join(
                f"{k} {v:.2f}"
                if isinstance(v, float)
                else f"{k} {v[0]:.2f} [{v[1]:.2f}, {v[2]:.2f}]"
                for k, v in found.items()
            )
            print(f"{table:32s} {row:32s} {shown}  ({seconds:.0f} s)", flush=True)
            kept.write_text(json.dumps(results, indent=1))
    order = {table: [row for t, row in every if t == table] for table, _ in every}
    results = {
        t: {r: results[t][r] for r in rows if r in results[t]}
        for t, rows in order.items()
        if t in results
    }
    kept.write_text(json.dumps(results, indent=1))
    (options.output / "table.md").write_text(markdown(results))


def markdown(results: dict[str, Any]) -> str:
    lines = [
        "EER in %, with the 95 % interval over speakers; 40 training and 20 evaluation speakers, 3 enrolments.",
        "",
    ]
    for table, rows in results.items():
        columns = list(next(iter(rows.values())))
        lines += [
            f"**{table}**",
            "",
            "| system | " + " | ".join(columns) + " |",
            "|:---|" + "---:|" * len(columns),
        ]
        for row, found in rows.items():
            cells = [
                f"{v:.2f}" if isinstance(v, float) else f"{v[0]:.2f} [{v[1]:.2f}, {v[2]:.2f}]"
                for v in found.values()
            ]
            lines.append(f"| {row} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
