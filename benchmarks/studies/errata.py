"""What each error in the paper's formulas costs: EM, score and enrolment, as published or exact.

``python -m benchmarks.studies.errata DATA [-o results/errata]``. DATA holds audiomnist_jvectors.npz. On vectors that
are simulated from the model itself, and on j-vectors of AudioMNIST, as they are and on 200 principal components.
With the E step of the paper's body also with the sign of the score changed, because that score is worse than chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import study_command
from benchmarks.studies.readings import jvectors
from mvplda import MultiviewPLDA, make_two_views
from mvplda.inference.em import PublishedEM
from mvplda.metrics import evaluate, trial_kinds
from mvplda.paper.corpus_vectors import read_corpus_vectors
from mvplda.paper.systems import Task
from mvplda.preprocessing import Reduction

KINDS = ("IW", "IC", "TW", "Total")
RANDOM, MOMENTS = "paper, from a random start", "paper, from a moments start"
TEN = ", 10 iterations"
BODY = {
    "random": "body, from a random start",
    "random, 10": f"body, from a random start{TEN}",
    "moments": "body, from a moments start",
}
NEGATED = "paper, negated"
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
OF_BODY = [(em, score) for em in BODY.values() for score in ("exact", "paper", NEGATED)]
"""EM with the E step of the paper's body, and score; averaged enrolment."""
SHARES = ("exact", RANDOM, MOMENTS, *BODY.values(), TRUE)
"""Models whose shares of the variance are measured."""
ON_SPEECH = (("exact", "exact"), ("paper", "exact"), ("exact", "paper"), ("paper", "paper"))


def fitted(
    views: Mapping[str, int], X: np.ndarray, labels: Mapping[str, np.ndarray], em: str, rounds: int
) -> MultiviewPLDA:
    """A model by exact EM from moments, or by the paper's."""
    body = em in BODY.values()
    published = body or em.startswith("paper")
    moments = not published or em in (MOMENTS, BODY["moments"])
    model = MultiviewPLDA(
        dict(views),
        algorithm="paper" if published else "exact",
        init="moments" if moments else "random",
        noise="diagonal",
        max_iter=rounds,
        tol=0,
        random_state=0,
    )
    model.published_em = partial(PublishedEM, body=body)
    return model.fit(X, labels)


def errors_by_kind(scores: np.ndarray, kinds: Mapping[str, np.ndarray]) -> dict[str, float]:
    return {kind: row["eer"] for kind, row in evaluate(scores, kinds, far=()).rows.items()}


def simulated() -> dict[str, list[dict[str, Any]]]:
    """Errors of readings, errors of the body's E step, and the variance that models explain."""
    X, labels, unseen = make_two_views(held_out=70, random_state=0)
    claimed = {view: column[::3] for view, column in unseen.enrol_labels.items()}
    kinds = trial_kinds(claimed, unseen.test_labels)
    # as much rank as 20 phrases hold
    views = {"speaker": 20, "phrase": 19}
    models = {TRUE: unseen.truth}
    for em in SHARES:
        if em not in models:
            rounds = 10 if em == "exact" or em.endswith(TEN) else 100
            models[em] = fitted(views, X, labels, em, rounds)

    def errors(em: str, score: str, enrolment: str) -> dict[str, Any]:
        profiles = models[em].enrol(unseen.enrol, unseen.ids, method=enrolment)
        scoring = score.removesuffix(", negated")
        scores = models[em].llr(profiles, unseen.test, scoring=scoring)
        if score == NEGATED:
            scores = -scores
        return {"EM": em, "score": score, "enrolment": enrolment, **errors_by_kind(scores, kinds)}

    return {
        "simulated": [errors(*row) for row in SIMULATED],
        "body": [errors(*row, "average") for row in OF_BODY],
        "shares": [
            *(explained(em, models[em], models[TRUE]) for em in SHARES),
            {"EM": "drawn from the true parameters, pairs", **shares_of_pairs(models[TRUE])},
            {"EM": "drawn, the training vectors", **shares_of_means(X, labels)},
        ],
    }


def explained(em: str, model: MultiviewPLDA, truth: MultiviewPLDA) -> dict[str, Any]:
    """Shares of the variance, and the largest signal-to-noise ratio.

    A signal-to-noise ratio is an eigenvalue g of B' Sigma^-1 B, with B = [S, T]. Of H vectors per cell the fixed point
    of the body's EM has g / (1 + (H - 1) g) in place of g, and so less than 1 / (H - 1).
    """
    return {
        "EM": em,
        **{name: float(share) for name, share in model.explained_variance_ratio_.items()},
        "noise over true noise": float(model.noise_.sum() / truth.noise_.sum()),
        "largest ratio": float(signal_to_noise(model)[-1]),
    }


def shares_of_pairs(model: MultiviewPLDA, pairs: int = 50_000) -> dict[str, float]:
    """Shares of the variance by brute force: covariances of drawn pairs that share a speaker, or a phrase."""
    apart, together = np.arange(2 * pairs), np.repeat(np.arange(pairs), 2)
    found = {}
    for seed, view in enumerate(("speaker", "phrase")):
        labels = {"speaker": apart, "phrase": apart, view: together}
        X = model.sample(labels, random_state=seed)
        X -= X.mean(axis=0)
        covariance = (X[::2] * X[1::2]).sum() / pairs
        found[view] = float(covariance / (X**2).sum() * len(X))
    return {**found, "noise": 1 - sum(found.values())}


def shares_of_means(X: np.ndarray, labels: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Shares of the classes that were drawn, from their means; every speaker says every phrase equally often."""
    rest = X - X.mean(axis=0)
    total = (rest**2).sum()
    found = {}
    for view, codes in labels.items():
        sums = np.zeros((codes.max() + 1, X.shape[1]))
        np.add.at(sums, codes, X - X.mean(axis=0))
        effects = (sums / np.bincount(codes)[:, None])[codes]
        found[view] = (effects**2).sum()
        rest -= effects
    # the noise of a mean is part of the effect
    variance = (rest**2).sum() / (len(X) - sum(codes.max() for codes in labels.values()) - 1)
    shares = {
        view: float((found[view] - (codes.max() + 1) * variance) / total)
        for view, codes in labels.items()
    }
    return {**shares, "noise": 1 - sum(shares.values())}


def signal_to_noise(model: MultiviewPLDA) -> np.ndarray:
    """Return the eigenvalues of B' Sigma^-1 B, ascending."""
    B = np.hstack(list(model.loadings_.values()))
    return np.linalg.eigvalsh(B.T @ (B / model.noise_[:, None]))


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
    return {**simulated(), "j-vectors": on_speech(data)}


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


def share_rows(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Cells of the table of variances."""
    cells = [["EM", "speaker, %", "phrase, %", "noise, %", "noise / true noise", "largest SNR"]]
    for row in rows:
        shares = [f"{100 * row[name]:.1f}" for name in ("speaker", "phrase", "noise")]
        others = [
            f"{row[name]:.3f}" if name in row else ""
            for name in ("noise over true noise", "largest ratio")
        ]
        cells.append([row["EM"], *shares, *others])
    return cells


if __name__ == "__main__":
    study_command("errata", __doc__, study, reads=["audiomnist_jvectors.npz"])
