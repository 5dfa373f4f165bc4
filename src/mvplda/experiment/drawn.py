"""Vectors drawn from a known model, every system fitted to them, one table.

132 training speakers and 70 others say the same 20 phrases. A profile is three
vectors of one speaker and one phrase; every profile meets every test.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..estimators.baselines import CascadeScorer, CosineScorer
from ..estimators.multiview import MultiviewPLDA
from ..exceptions import LikelihoodFellWarning
from ..kernel.records import Array
from ..metrics import cllr, eer_by_kind, trial_kinds
from ..report.figures import bars_of_systems, figure, save_figure, scatter_of_kinds
from ..report.page import pictures_where_possible

KINDS = ("IW", "IC", "TW", "Total")


@dataclass(frozen=True)
class Drawn:
    """Vectors with their speakers and phrases, and the model they were drawn from."""

    truth: MultiviewPLDA
    train: Array
    train_labels: dict[str, Any]
    enrol: Array
    enrol_labels: dict[str, Any]
    enrol_ids: Any
    test: Array
    test_labels: dict[str, Any]


def known_model(seed: int, dimension: int = 100, rank: int = 20) -> MultiviewPLDA:
    """Two views with random loadings, phrases further apart than speakers, and noise that differs by column."""
    rng = np.random.default_rng(seed)
    sizes = {"speaker": 0.6, "phrase": 1.0}
    loadings = {view: size * rng.standard_normal((dimension, rank)) for view, size in sizes.items()}
    mean, variances = rng.standard_normal(dimension), 8 * rng.gamma(4.0, 1.0, dimension)
    return MultiviewPLDA.from_parameters(mean, loadings, variances)


def draw(seed: int, speakers: int = 132, unseen: int = 70, phrases: int = 20, sessions: int = 9) -> Drawn:
    """Training sessions of some speakers; three enrolment and two test sessions of others."""
    truth = known_model(seed)
    people = speakers + unseen
    who, what, session = (a.reshape(-1) for a in np.indices((people, phrases, sessions)))
    X = truth.sample({"speaker": who, "phrase": what}, random_state=seed)
    train, enrol, test = who < speakers, (who >= speakers) & (session < 3), (who >= speakers) & (session >= 3)
    test &= session < 5

    def labels(where: Any) -> dict[str, Any]:
        return {"speaker": who[where], "phrase": what[where]}

    return Drawn(
        truth,
        X[train],
        labels(train),
        X[enrol],
        labels(enrol),
        who[enrol] * phrases + what[enrol],
        X[test],
        labels(test),
    )


def systems(corpus: Drawn) -> dict[str, Callable[[], Array]]:
    """Every system as a function that fits it and scores all trials."""
    views = {"speaker": 20, "phrase": 19}
    training = (corpus.train, corpus.train_labels)

    def scores(model: Any, method: str | None = None, **question: Any) -> Array:
        options = {} if method is None else {"method": method}
        profiles = model.enrol(corpus.enrol, corpus.enrol_ids, **options)
        return np.asarray(model.llr(profiles, corpus.test, **question))

    def printed() -> Array:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LikelihoodFellWarning)
            model = MultiviewPLDA(views, algorithm="paper", init="random", max_iter=10, tol=0, random_state=0)
            model.fit(*training)
        return scores(model, method="average", scoring="paper")

    exact = MultiviewPLDA(views, max_iter=10, tol=0)
    claims = np.asarray(corpus.enrol_labels["phrase"]).reshape(-1, 3)[:, 0]
    return {
        "cosine": lambda: scores(CosineScorer().fit(*training)),
        "PLDA, class = cell, rank 40": lambda: scores(
            MultiviewPLDA({"speaker:phrase": 40}, max_iter=10, tol=0).fit(*training), method="average"
        ),
        "two PLDA in cascade": lambda: scores(CascadeScorer(views, {"max_iter": 10, "tol": 0}).fit(*training)),
        "the paper as printed": printed,
        "exact EM, exact score": lambda: scores(exact.fit(*training), method="average"),
        "  by-the-book enrolment": lambda: scores(exact),
        "  the phrase known": lambda: scores(exact, known={"phrase": claims}),
        "true parameters": lambda: scores(corpus.truth, method="average"),
    }


def run(output: Path, seed: int = 0, say: Callable[[str], None] = print) -> dict[str, dict[str, float]]:
    """Draw, fit, score, print the table, and leave the pictures and the model in a folder."""
    say("drawing vectors from a known model: D = 100, ranks 20 + 20, 132 + 70 speakers, 20 phrases ...")
    corpus = draw(seed)
    profiles = len(np.unique(corpus.enrol_ids))
    say(f"{len(corpus.train)} training vectors, {profiles} profiles x {len(corpus.test)} tests\n")
    first = {view: np.asarray(labels).reshape(-1, 3)[:, 0] for view, labels in corpus.enrol_labels.items()}
    kinds = trial_kinds(first, corpus.test_labels)
    say(f"{'EER, %':32}" + "".join(f"{kind:>8}" for kind in KINDS) + f"{'Cllr':>8}{'seconds':>9}")
    table: dict[str, dict[str, float]] = {}
    for name, fit_and_score in systems(corpus).items():
        started = time.perf_counter()
        scores = fit_and_score()
        row = eer_by_kind(scores, kinds)
        cost = "-" if name == "cosine" else f"{cllr(scores[kinds['TC']], scores[~kinds['TC']]):.3f}"
        table[name.strip()] = row
        seconds = time.perf_counter() - started
        cells = "".join(f"{100 * row[kind]:8.2f}" for kind in KINDS)
        say(f"{name:32}{cells}{cost:>8}{seconds:9.1f}")
    say("\nIW impostor, wrong phrase; IC impostor, correct phrase; TW target, wrong phrase.")
    model = MultiviewPLDA({"speaker": 20, "phrase": 19}, max_iter=10, tol=0).fit(corpus.train, corpus.train_labels)
    shares = ", ".join(f"{view} {share:.0%}" for view, share in model.explained_variance_ratio_.items())
    say(f"variance explained: {shares}")
    output.mkdir(parents=True, exist_ok=True)
    model.save(output / "model.safetensors")
    say(f"\nwrote {output / 'model.safetensors'}")
    with pictures_where_possible():
        fig, (left, right) = figure(11, 5, 2)
        enrolled = model.enrol(corpus.enrol, corpus.enrol_ids)
        ratios = [model.llr(enrolled, corpus.test, same=view) for view in ("speaker", "phrase")]
        scatter_of_kinds(left, ratios[0], ratios[1], kinds, ("speaker", "phrase"))
        bars_of_systems(right, table, KINDS)
        say(f"wrote {save_figure(fig, output / 'drawn.png')}")
    say(f"look inside the model:  mvplda info {output / 'model.safetensors'}")
    return table
