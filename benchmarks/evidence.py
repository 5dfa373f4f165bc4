"""Factorial study of when the joint model has fewer errors: ``python -m benchmarks evidence DATA WORK [ROW ...]``.

Views (the combined label, which is PLDA; two; three, with the interaction) x noise (diagonal, full, isotropic prior) x
rank. Every system has the same reduction and exact enrolment, and its ranks are chosen on held-out training people by
`mvplda.select_model`; the cosine needs none. All data sets but the j-vectors are divided into training and test people
five times. Ratios of errors are paired: a bootstrap draws people, and measures both systems on the same draws.

DATA is the folder of the data sets; WORK keeps vectors that are extracted from sound. ROWs that are stored are not made
again without --again, so an interrupted study continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.evidence_data import DATA_SETS, SPLITS, LabelledVectors, Split, make_split
from benchmarks.evidence_errors import KINDS, Errors, Scores
from benchmarks.evidence_questions import QUESTIONS
from benchmarks.evidence_systems import (
    SHORT,
    Reduced,
    best_by,
    cosine_scores,
    quiet,
    train_scores,
)
from mvplda.models.selection import (
    NOISES,
    STRUCTURES,
    ModelCandidate,
    are_crossed,
    best_candidate,
)
from mvplda.paper.provenance import DATA, OUTPUT, WORK, provenance, update_rows

TITLE = "When does the joint model have fewer errors than PLDA?"
RESULTS = Path(__file__).parents[1] / "results" / "evidence"
VOICE = "cosine, voice alone"
PAIRS = (
    ("two views, full", "PLDA, full"),
    ("three views, full", "PLDA, full"),
    ("two views", "PLDA"),
    ("three views", "PLDA"),
    ("PLDA", "cosine"),
    ("chosen", "PLDA"),
    ("PLDA, full", "PLDA, diagonal"),
    ("train", "PLDA"),
    ("train", "cosine"),
)
"""Systems that are compared; without a noise, the noise too is chosen on held-out people."""
RIVALS = ("cosine", "PLDA", "two views", "three views")
"""Systems that `train` competes with."""
COMBINED = "train, combined label"
AGAIN = ("cvau", "speech-commands", "digilets")
"""Data sets of the front page, which are divided five more times: are its claims those of the first divisions?"""
OTHERS = "other divisions"
PEOPLE = (25, 50, 100, 200, 400, 1000)
TAKES = {"digilets": (1, 2, 3, 4), "audiomnist": (1, 2, 3, 5)}
CHARACTERS = (4, 8, 16, 32)


# The factorial.


def factorial(
    name: str, data: Path, work: Path, splits: int = SPLITS, first: int = 0
) -> dict[str, Any]:
    """Compare all systems on one data set; `first` is the seed of the first division."""
    dataset = DATA_SETS[name]
    vectors = dataset.read(data, work)
    divisions = divided(vectors, splits, first)
    scores: dict[str, list[np.ndarray]] = {}
    titles: dict[str, list[str]] = {}
    for split in divisions:
        found = systems_of(split, dataset.components)
        with quiet():
            found["train"] = train_scores(split, vectors)
        for system, (title, values) in found.items():
            scores.setdefault(system, []).append(values)
            titles.setdefault(system, []).append(title)
    row = measured(divisions, scores, PAIRS)
    for system, found in titles.items():
        row["systems"][system]["settings"] = found
    # the best of the systems that `train` competes with, chosen on the tests: to the disadvantage of `train`
    best = min(RIVALS, key=lambda system: np.mean(row["systems"][system]["EER, %"]["Total"]))
    row["best of four"] = best
    errors = Errors(divisions)
    row["ratios"]["train / best of four"] = errors.ratios(
        "train", scores["train"], best, scores[best]
    )
    return {"title": dataset.title, **row}


def divided(vectors: LabelledVectors, splits: int, first: int = 0) -> list[Split]:
    """Divide the people several times; vectors of a network that was trained on some of them have one division."""
    count = 1 if vectors.fixed else splits
    return [make_split(vectors, seed) for seed in range(first, first + count)]


def systems_of(split: Split, components: int) -> dict[str, tuple[str, np.ndarray]]:
    """Return the settings and the scores of all systems but `train` on one division."""
    found = {"cosine": ("", cosine_scores(split))}
    if len(split.blocks) > 1:
        found[VOICE] = ("", cosine_scores(split, slice(0, split.blocks["voice"])))
    with quiet():
        reduced = Reduced(split, components)
        selection = reduced.select()
        fitted: dict[str, np.ndarray] = {}

        def scored(candidate: ModelCandidate) -> tuple[str, np.ndarray]:
            if candidate.title not in fitted:
                fitted[candidate.title] = reduced.scores(reduced.fitted(candidate))
            return candidate.title, fitted[candidate.title]

        structures = {candidate.structure for candidate in selection.table}
        for structure in STRUCTURES:
            # without an interaction in the selection, three views are two
            present = structure if structure in structures else "views"
            for noise in NOISES:
                found[f"{SHORT[structure]}, {noise}"] = scored(best_by(selection, present, noise))
            found[SHORT[structure]] = scored(best_by(selection, present))
        found["chosen"] = scored(best_candidate(selection.table))
    return found


def measured(
    divisions: Sequence[Split],
    scores: dict[str, list[np.ndarray]],
    pairs: Sequence[tuple[str, str]],
    kinds: Sequence[str] = KINDS,
) -> dict[str, Any]:
    """Return the EER of every system by kind and division, and the paired ratios."""
    errors = Errors(divisions, kinds)
    chosen: list[tuple[str, Scores, str, Scores]] = [
        (a, scores[a], b, scores[b]) for a, b in pairs if a in scores and b in scores
    ]
    return {
        "divisions": len(divisions),
        "people tested": errors.n_people,
        "training vectors": [int(split.train.sum()) for split in divisions],
        "trials per division": divisions[0].trials,
        "systems": {
            system: {"EER, %": rounded(errors.values(values))} if values else {}
            for system, values in scores.items()
        },
        "ratios": {f"{a} / {b}": errors.ratios(a, x, b, y) for a, x, b, y in chosen},
    }


def rounded(values: dict[str, list[float]]) -> dict[str, list[float]]:
    """Round error rates to a ten-thousandth of a per cent."""
    return {kind: [round(value, 4) for value in column] for kind, column in values.items()}


def committees(name: str, data: Path, work: Path, splits: int = SPLITS) -> dict[str, Any]:
    """Compare `train` on both labels and on the combined label: what does a committee of PLDAs do?"""
    vectors = DATA_SETS[name].read(data, work)
    divisions = divided(vectors, splits)
    scores: dict[str, list[np.ndarray]] = {}
    titles: dict[str, list[str]] = {}
    with quiet():
        for split in divisions:
            for system, combined in (("train", False), (COMBINED, True)):
                title, values = train_scores(split, vectors, combined)
                scores.setdefault(system, []).append(values)
                titles.setdefault(system, []).append(title)
    row = measured(divisions, scores, (("train", COMBINED),))
    for system, found in titles.items():
        row["systems"][system]["settings"] = found
    return {"title": "committees of both labels and of the combined label", **row}


# Curves.


CURVE = (("two views", "PLDA"), ("three views", "PLDA"), ("PLDA", "cosine"), ("chosen", "PLDA"))


def curve_row(splits: Sequence[Split], components: int) -> dict[str, Any]:
    """Compare the cosine, PLDA, two and three views with full noise, with ranks chosen for the training vectors."""
    scores: dict[str, list[np.ndarray]] = {}
    ranks: dict[str, list[str]] = {}
    with quiet():
        for split in splits:
            scores.setdefault("cosine", []).append(cosine_scores(split))
            reduced = Reduced(split, components)
            selection = reduced.select(curve_structures(split), ["full"])
            structures = {candidate.structure for candidate in selection.table}
            candidates = {SHORT[name]: best_by(selection, name) for name in structures}
            candidates["chosen"] = best_candidate(selection.table)
            for system, candidate in candidates.items():
                values = reduced.scores(reduced.fitted(candidate))
                scores.setdefault(system, []).append(values)
                ranks.setdefault(system, []).append(candidate.title)
    complete = {system: values for system, values in scores.items() if len(values) == len(splits)}
    row = measured(splits, complete, CURVE, ("IC", "TW", "Total"))
    for system in complete:
        row["systems"][system]["settings"] = ranks.get(system, [])
    return row


def curve_structures(split: Split) -> list[str]:
    """Return the structures that the combinations of training classes allow."""
    labels = split.train_labels
    return list(STRUCTURES) if are_crossed(labels, list(labels)) else list(STRUCTURES[:2])


def people_curve(number: int, data: Path, work: Path, splits: int = SPLITS) -> dict[str, Any]:
    """Speech Commands by the number of training people; the same 100 people per division are tested."""
    dataset = DATA_SETS["speech-commands"]
    vectors = dataset.read(data, work)
    divisions = []
    for seed in range(splits):
        drawn = np.random.default_rng(seed).permutation(np.unique(vectors.person))
        tested = np.isin(vectors.person, drawn[:100])
        train = np.isin(vectors.person, drawn[100 : 100 + number])
        divisions.append(make_split(vectors, seed, train, tested))
    title = f"Speech Commands, {number} training people"
    return {"title": title, "people": number, **curve_row(divisions, dataset.components)}


def takes_curve(
    name: str, number: int, data: Path, work: Path, splits: int = SPLITS
) -> dict[str, Any]:
    """A data set by the number of training takes per cell; ranks for one take are those for two."""
    dataset = DATA_SETS[name]
    vectors = dataset.read(data, work)
    cells = np.unique(vectors.cell, return_inverse=True)[1]
    order = np.lexsort((vectors.take, cells))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) - np.searchsorted(cells[order], cells[order])
    divisions = []
    for seed in range(splits):
        whole = make_split(vectors, seed)
        divisions.append(replace(whole, train=whole.train & (rank < max(2, number))))
    title = f"{dataset.title}, {number} takes per cell in training"
    if number > 1:
        return {"title": title, "takes": number, **curve_row(divisions, dataset.components)}
    once = [split.train & (rank < 1) for split in divisions]
    row = single_take_row(divisions, once, dataset.components)
    return {"title": title, "takes": number, **row}


def single_take_row(
    splits: Sequence[Split], once: Sequence[np.ndarray], components: int
) -> dict[str, Any]:
    """Compare models that are trained on one take per cell, where PLDA has no variation within its classes.

    splits : divisions with two takes per cell, whose reductions and ranks are used
    once : training vectors of each division
    """
    scores: dict[str, list[np.ndarray]] = {"cosine": [], "two views": []}
    singles = []
    with quiet():
        for split, train in zip(splits, once, strict=True):
            reduced = Reduced(split, components)
            candidate = best_by(reduced.select(["views"], ["full"]), "views")
            singles.append(replace(split, train=train))
            reduced.split = singles[-1]
            scores["cosine"].append(cosine_scores(split))
            scores["two views"].append(reduced.scores(reduced.fitted(candidate)))
    return measured(singles, scores, (("two views", "cosine"),), ("IC", "TW", "Total"))


def labels_curve(number: int, data: Path, work: Path, splits: int = SPLITS) -> dict[str, Any]:
    """DigiLeTs by the number of characters, in training and in the tests."""
    dataset = DATA_SETS["digilets"]
    vectors = dataset.read(data, work)
    divisions = []
    for seed in range(splits):
        drawn = np.random.default_rng(seed).permutation(np.unique(vectors.second))[:number]
        few = vectors.select(np.isin(vectors.second, drawn))
        divisions.append(make_split(few, seed))
    title = f"{dataset.title}, {number} characters"
    return {"title": title, "characters": number, **curve_row(divisions, dataset.components)}


# Rows and the command.

Row = Callable[[Path, Path], dict[str, Any]]


def all_rows() -> dict[str, tuple[Row, str]]:
    """Return {name of a row: its function, and the data set that it reads}."""
    rows: dict[str, tuple[Row, str]] = {
        name: (partial(factorial, name), name) for name in DATA_SETS
    }
    for name in DATA_SETS:
        rows[f"{name}: committees"] = (partial(committees, name), name)
    for name in AGAIN:
        again = partial(factorial, name, first=SPLITS)
        rows[f"{name}: {OTHERS}"] = (again, name)
    for name in ("digilets", "cvau", "speech-commands"):
        for question, function in QUESTIONS.items():
            rows[f"{name}: {question}"] = (partial(function, name), name)
    for number in PEOPLE:
        rows[f"people: {number}"] = (partial(people_curve, number), "speech-commands")
    for number in CHARACTERS:
        rows[f"characters: {number}"] = (partial(labels_curve, number), "digilets")
    for name, numbers in TAKES.items():
        for number in numbers:
            rows[f"takes: {name} {number}"] = (partial(takes_curve, name, number), name)
    return rows


@click.command(help=__doc__)
@click.argument("data", type=click.Path(exists=True, path_type=Path))
@click.argument("work", type=click.Path(path_type=Path))
@click.argument("names", nargs=-1, metavar="[ROW ...]")
@click.option("--again", is_flag=True, help="Make stored rows again.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=RESULTS)
def main(data: Path, work: Path, names: tuple[str, ...], again: bool, output: Path) -> None:
    """Write results/evidence/results.json."""
    rows = all_rows()
    unknown = sorted(set(names) - set(rows))
    if unknown:
        raise click.UsageError(f"unknown rows {unknown}; available: {', '.join(rows)}")
    path = output / "results.json"
    stored = update_rows(path, TITLE, "rows", {}, list(rows))
    with threadpool_limits(1):
        for name in names or rows:
            if name in stored and not again:
                continue
            function, dataset = rows[name]
            inputs = [data / file for file in DATA_SETS[dataset].files]
            command = f"python -m benchmarks evidence {DATA} {WORK} '{name}' --output {OUTPUT}"
            first = SPLITS if name.endswith(OTHERS) else 0
            seeds = range(first, first + SPLITS)
            record = provenance(inputs, command=command, seeds=seeds, tolerance=0.05)
            begin = time.process_time()
            row = function(data, work)
            record["seconds"] = round(time.process_time() - begin)
            update_rows(path, TITLE, "rows", {name: {**row, "provenance": record}}, list(rows))
            click.echo(f"{name}: {record['seconds']} CPU s")


if __name__ == "__main__":
    main()
