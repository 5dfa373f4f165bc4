"""What each error in the paper's formulas costs: EM, score and enrolment, as published or exact.

``python -m benchmarks.studies.errata DATA [-o results/errata]``. DATA holds audiomnist_jvectors.npz. On vectors that
are simulated from the model itself, and on j-vectors of AudioMNIST, as they are and on 200 principal components.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import markdown_rows, study_command
from benchmarks.studies.readings import jvectors
from mvplda import MultiviewPLDA, make_two_views
from mvplda.metrics import evaluate, trial_kinds
from mvplda.paper.experiment import read_corpus_vectors
from mvplda.paper.systems import Task
from mvplda.preprocessing import Reduction

KINDS = ("IW", "IC", "TW", "Total")
RANDOM, MOMENTS = "paper, from a random start", "paper, from a moments start"
TRUE = "true parameters"
SIMULATED = (
    ("exact", "exact", "exact"),
    ("exact", "exact", "average"),
    (RANDOM, "exact", "average"),
    (MOMENTS, "exact", "average"),
    ("exact", "paper", "average"),
    (RANDOM, "paper", "average"),
    (TRUE, "exact", "average"),
)
"""EM, score, enrolment."""
ON_SPEECH = (("exact", "exact"), ("paper", "exact"), ("exact", "paper"), ("paper", "paper"))


def fitted(
    views: Mapping[str, int], X: np.ndarray, labels: Mapping[str, np.ndarray], em: str, rounds: int
) -> MultiviewPLDA:
    """A model by exact EM from moments, or by the paper's."""
    published = em.startswith("paper")
    model = MultiviewPLDA(
        dict(views),
        algorithm="paper" if published else "exact",
        init="random" if published and em != MOMENTS else "moments",
        noise="diagonal",
        max_iter=rounds,
        tol=0,
        random_state=0,
    )
    return model.fit(X, labels)


def errors_by_kind(scores: np.ndarray, kinds: Mapping[str, np.ndarray]) -> dict[str, float]:
    return {kind: row["eer"] for kind, row in evaluate(scores, kinds, far=()).rows.items()}


def simulated() -> list[dict[str, Any]]:
    X, labels, unseen = make_two_views(held_out=70, random_state=0)
    claimed = {view: own[::3] for view, own in unseen.enrol_labels.items()}
    kinds = trial_kinds(claimed, unseen.test_labels)
    # as much rank as 20 phrases hold
    views = {"speaker": 20, "phrase": 19}
    models = {TRUE: unseen.truth}
    rows = []
    for em, score, enrolment in SIMULATED:
        if em not in models:
            models[em] = fitted(views, X, labels, em, 10 if em == "exact" else 100)
        profiles = models[em].enrol(unseen.enrol, unseen.ids, method=enrolment)
        scores = models[em].llr(profiles, unseen.test, scoring=score)
        errors = errors_by_kind(scores, kinds)
        rows.append({"EM": em, "score": score, "enrolment": enrolment, **errors})
    return rows


def on_speech(data: Path) -> list[dict[str, Any]]:
    corpus, file = jvectors(data)
    task = Task(corpus, read_corpus_vectors(corpus, [file]).vectors.X)
    enrolled = task.X[corpus.protocol.enrolled]
    chain = Reduction(200).fit(task.train)
    rows: list[dict[str, Any]] = [{"EM": em, "score": score} for em, score in ON_SPEECH]
    for name in ("raw", "reduced"):
        parts = [task.train, enrolled, task.test]
        if name == "reduced":
            parts = [chain.transform(part) for part in parts]
        train, enrol, test = parts
        views = {"speaker": 20, "phrase": 9}
        models = {em: fitted(views, train, task.train_labels, em, 10) for em in ("exact", "paper")}
        for row in rows:
            profiles = models[row["EM"]].enrol(enrol, task.enrol_ids, method="average")
            scores = models[row["EM"]].llr(profiles, test, scoring=row["score"])
            row[name] = errors_by_kind(scores, task.kinds)
    return rows


def study(data: Path) -> dict[str, Any]:
    return {"simulated": simulated(), "j-vectors": on_speech(data)}


def simulated_rows(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Cells of the first table of docs/errata.md, its heading first."""
    head = ["EM", "score", "enrolment"]
    cells = [[*head, *KINDS]]
    for row in rows:
        errors = [f"{100 * row[kind]:.2f}" for kind in KINDS]
        cells.append([*(row[name] for name in head), *errors])
    return cells


def speech_rows(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Cells of the second table."""
    cells = [["EM", "score", "raw: IC", "Total", "reduced: IC", "Total"]]
    for row in rows:
        errors = [
            f"{100 * row[name][kind]:.2f}" for name in ("raw", "reduced") for kind in KINDS[1::2]
        ]
        cells.append([row["EM"], row["score"], *errors])
    return cells


def table(found: dict[str, Any]) -> str:
    parts = [simulated_rows(found["simulated"]), speech_rows(found["j-vectors"])]
    return "\n\n".join("\n".join(markdown_rows(part)) for part in parts) + "\n"


if __name__ == "__main__":
    study_command("errata", __doc__, study, table, reads=["audiomnist_jvectors.npz"])
