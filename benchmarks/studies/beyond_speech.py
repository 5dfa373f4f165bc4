"""Handwriting and faces: when two views pay, and why.

``python -m benchmarks.studies.beyond_speech DATA [-o results/beyond-speech]``. DATA holds digilets.npz (made by
examples/handwriting_features.py) and cmu_faces.npz. People are divided at random five times: 47 writers train and 30
are tested; 13 people train and 7 are tested. Three vectors enrol. Ranks of the handwriting are near those that
held-out writers choose, and for PLDA also 15, which is best on the tests; those of the faces are the largest that the
classes allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import kurtosis

from benchmarks.report import markdown_rows, study_command
from benchmarks.studies.errata import KINDS, errors_by_kind
from mvplda import PLDA, CosineScorer, MultiviewPLDA
from mvplda.metrics import trial_kinds
from mvplda.models.base import BaseScorer
from mvplda.preprocessing import Reduction, standard_chain

DIVISIONS, ENROLLED = 5, 3
NOISES = ("diagonal", "full", "prior")
ERRORS = ("system", *KINDS, "least", "most")
"""Entries of a row: means over divisions in per cent, and the range of Total."""


@dataclass(frozen=True)
class Division:
    """Vectors of two labels, divided by the classes of the first.

    train, labels : training vectors and their labels by view
    cells : the same labels as one
    enrol, ids : enrolled vectors, and the profile of each
    test, kinds : tested vectors, and the kind of every trial
    """

    train: np.ndarray
    labels: dict[str, np.ndarray]
    cells: np.ndarray
    enrol: np.ndarray
    ids: np.ndarray
    test: np.ndarray
    kinds: dict[str, np.ndarray]

    def errors(self, model: BaseScorer, **question: Any) -> dict[str, float]:
        scores = model.llr(model.enrol(self.enrol, self.ids), self.test, **question)
        return errors_by_kind(scores, self.kinds)


def divisions(
    X: np.ndarray, labels: Mapping[str, np.ndarray], takes: np.ndarray, trained: int, chain: Any
) -> Iterator[Division]:
    """Divide the classes of the first view at random; `chain` is fitted to the training vectors."""
    people, second = labels.values()
    width = second.max() + 1
    cells = people * width + second
    for seed in range(DIVISIONS):
        chosen = np.random.default_rng(seed).permutation(people.max() + 1)[:trained]
        train = np.isin(people, chosen)
        enrol, test = ~train & (takes < ENROLLED), ~train & (takes >= ENROLLED)
        Z = chain.fit(X[train]).transform(X)
        profiles = np.unique(cells[enrol])
        claimed = dict(zip(labels, np.divmod(profiles, width), strict=True))
        yield Division(
            Z[train],
            {view: classes[train] for view, classes in labels.items()},
            cells[train],
            Z[enrol],
            cells[enrol],
            Z[test],
            trial_kinds(claimed, {view: classes[test] for view, classes in labels.items()}),
        )


def means(errors: Mapping[str, list[dict[str, float]]]) -> list[dict[str, Any]]:
    rows = []
    for system, found in errors.items():
        row: dict[str, Any] = {"system": system}
        row |= {kind: 100 * float(np.mean([one[kind] for one in found])) for kind in KINDS}
        totals = [100 * one["Total"] for one in found]
        rows.append({**row, "least": min(totals), "most": max(totals)})
    return rows


def handwriting(data: Path) -> list[dict[str, Any]]:
    arrays = np.load(data / "digilets.npz")
    labels = {view: arrays[view].astype(np.int64) for view in ("writer", "character")}
    X = arrays["X"].astype(np.float64)
    ranks: dict[str, int | None] = {"writer": 20, "character": 20}
    nothing_shared = {("writer", "character"): 1, (): 1}
    errors: dict[str, list[dict[str, float]]] = {}
    for part in divisions(X, labels, arrays["take"], 47, Reduction(80)):
        plda = PLDA(20, noise="full").fit(part.train, part.cells)
        best_on_tests = PLDA(15, noise="full").fit(part.train, part.cells)
        two = MultiviewPLDA(ranks, noise="full").fit(part.train, part.labels)
        three = MultiviewPLDA({**ranks, "writer:character": 10}, noise="full")
        three.fit(part.train, part.labels)
        wide = MultiviewPLDA.from_parameters(three.mean_, three.loadings_, 4 * three.noise_)
        systems: dict[str, tuple[BaseScorer, dict[str, Any]]] = {
            "cosine": (CosineScorer().fit(part.train, part.labels), {}),
            "PLDA (writer x character), rank 15": (best_on_tests, {}),
            "PLDA (writer x character), rank 20": (plda, {}),
            "two views, ranks 20 + 20": (two, {}),
            "the same, compared with nothing shared": (two, {"priors": nothing_shared}),
            "three views, 20 + 20 + 10": (three, {}),
            "the same, noise x 4": (wide, {}),
        }
        for name, (model, question) in systems.items():
            errors.setdefault(name, []).append(part.errors(model, **question))
    return means(errors)


def shares(X: np.ndarray, labels: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return the share of each view, their interaction and the noise in the variance, by moments.

    Also the median over dimensions of the excess kurtosis inside cells, which is 0 in the model.
    """
    first, second = labels.values()
    rows, columns = first.max() + 1, second.max() + 1
    cell = first * columns + second
    counts = np.bincount(cell, minlength=rows * columns)[:, None]
    sums = np.zeros((rows * columns, X.shape[1]))
    np.add.at(sums, cell, X)
    cell_means = (sums / counts).reshape(rows, columns, -1)
    grand = cell_means.mean((0, 1))
    by_first, by_second = cell_means.mean(1) - grand, cell_means.mean(0) - grand
    together = cell_means - grand - by_first[:, None] - by_second
    residual = X - cell_means.reshape(rows * columns, -1)[cell]
    each = len(X) / (rows * columns)

    noise = (residual**2).sum() / (len(X) - rows * columns)
    mixed = each * (together**2).sum() / ((rows - 1) * (columns - 1))
    variances = {
        view: ((size * effects**2).sum() / (len(effects) - 1) - mixed) / size
        for view, effects, size in zip(
            labels, (by_first, by_second), (each * columns, each * rows), strict=True
        )
    }
    variances |= {"interaction": (mixed - noise) / each, "noise": noise}
    total = sum(variances.values())
    found = {view: 100 * float(variance / total) for view, variance in variances.items()}
    return {**found, "kurtosis": float(np.median(kurtosis(residual)))}


def face_vectors(data: Path) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Return images of a quarter of the size, their labels, and the order within a cell, drawn once."""
    arrays = np.load(data / "cmu_faces.npz")
    images = arrays["X120x128"].astype(np.float64)
    X = images.reshape(len(images), 30, 4, 32, 4).mean(axis=(2, 4)).reshape(len(images), -1)
    labels = {view: np.unique(arrays[view], return_inverse=True)[1] for view in ("person", "pose")}
    cells = labels["person"] * 4 + labels["pose"]
    order = np.lexsort((np.random.default_rng(0).permutation(len(X)), cells))
    first = np.searchsorted(cells[order], cells[order])
    return X[order], {v: c[order] for v, c in labels.items()}, np.arange(len(X)) - first


def face_system(views: Any, noise: str) -> PLDA | MultiviewPLDA:
    settings: dict[str, Any] = {"prior": "isotropic"} if noise == "prior" else {"noise": noise}
    return PLDA(**settings) if views is None else MultiviewPLDA(views, **settings)


STRUCTURES: dict[str, Any] = {
    "PLDA (person x pose)": None,
    "two views": ["person", "pose"],
    "three views": ["person", "pose", "person:pose"],
}


def faces(data: Path) -> list[dict[str, Any]]:
    errors: dict[str, list[dict[str, float]]] = {}
    for part in divisions(*face_vectors(data), 13, standard_chain(40)):
        cosine = CosineScorer().fit(part.train, part.labels)
        errors.setdefault("cosine", []).append(part.errors(cosine))
        for noise in NOISES:
            for name, views in STRUCTURES.items():
                model = face_system(views, noise)
                model.fit(part.train, part.cells if views is None else part.labels)
                errors.setdefault(f"{name}, {noise}", []).append(part.errors(model))
    return means(errors)


def variances(data: Path) -> list[dict[str, Any]]:
    """Return the shares of variance on the vectors that the systems see, fitted to everybody."""
    arrays = np.load(data / "digilets.npz")
    writing = {view: arrays[view].astype(np.int64) for view in ("writer", "character")}
    X, labels, _ = face_vectors(data)
    sets = {
        "handwriting": (Reduction(80).fit_transform(arrays["X"].astype(np.float64)), writing),
        "faces": (standard_chain(40).fit_transform(X), labels),
    }
    rows = []
    for name, (vectors, own) in sets.items():
        found = shares(np.asarray(vectors), own)
        renamed = dict(zip(("person", "other label"), found.values(), strict=False))
        rest = {key: found[key] for key in ("interaction", "noise", "kurtosis")}
        rows.append({"data": name, **renamed, **rest})
    return rows


def study(data: Path) -> dict[str, Any]:
    parts: dict[str, Callable[[Path], list[dict[str, Any]]]] = {
        "handwriting": handwriting,
        "faces": faces,
        "variances": variances,
    }
    return {name: part(data) for name, part in parts.items()}


def error_rows(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Cells of a table of errors, its heading first."""
    cells = [["EER, %", *KINDS[:3], "Total (range of divisions)"]]
    for row in rows:
        span = f"{row['Total']:.2f} ({row['least']:.2f} to {row['most']:.2f})"
        cells.append([row["system"], *(f"{row[kind]:.2f}" for kind in KINDS[:3]), span])
    return cells


def variance_rows(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Cells of the table of variances, its heading first."""
    parts = ("person", "other label", "interaction", "noise")
    cells = [["share of the variance, %", *parts, "excess kurtosis inside cells"]]
    for row in rows:
        cells.append([row["data"], *(f"{row[k]:.0f}" for k in parts), f"{row['kurtosis']:.1f}"])
    return cells


def table(found: dict[str, Any]) -> str:
    parts = [error_rows(found["handwriting"]), error_rows(found["faces"])]
    parts.append(variance_rows(found["variances"]))
    return "\n\n".join("\n".join(markdown_rows(part)) for part in parts) + "\n"


if __name__ == "__main__":
    study_command("beyond-speech", __doc__, study, table, reads=["digilets.npz", "cmu_faces.npz"])
