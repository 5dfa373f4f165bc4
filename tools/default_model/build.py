"""Fit, calibrate and evaluate the default model on vectors of three corpora (`tools.default_model.recordings`).

`DomainPLDA` is fitted to all corpora. Its calibration and thresholds come from models that leave out one corpus each;
the results come from models that are fitted, calibrated and given a threshold without the corpus that evaluates them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from mvplda._typing import Array, BoolArray, Json
from mvplda.bundle import Bundle
from mvplda.decisions import distinct_points
from mvplda.metrics import eer
from mvplda.metrics.curves import min_cllr
from mvplda.scoring.answer import question_key
from mvplda.scoring.question import Hypothesis, Question
from mvplda.voice.domain.estimator import DomainPLDA
from mvplda.voice.extractors.recipe import default_recipes
from mvplda.voice.phrases import PhraseMatcher
from tools.default_model.recordings import DOMAINS, NEAR_MATCH_DOMAINS, LabelledVectors
from tools.default_model.trials import (
    BLOCKS,
    CALIBRATION_DEPLOYMENTS,
    EVALUATION_DEPLOYMENTS,
    IMPOSTOR_KINDS,
    KINDS,
    OWN,
    POINT_BLOCKS,
    VIEWS,
    CalibratedTrials,
    DeploymentTrials,
    deployment_trials,
    is_repeated,
    join_trials,
    ratios,
)

EMBEDDINGS = {
    name: recipe.default_model
    for name, recipe in default_recipes().items()
    if not recipe.has_points
}
DOMAIN_VARIANCES = {name: block.domain_variance for name, block in EMBEDDINGS.items()}
WEIGHTS = {name: block.weight for name, block in EMBEDDINGS.items()}
"""Variance of domains and share of columns per block. They were chosen on corpora that were left out. The variance of
phrases exceeds the differences between these corpora, so that a phrase shared by everyone is not absorbed into the
domain."""
MAX_PAIRS = 400
"""Pairs of recordings of each kind and domain that the matcher of phrases is fitted to."""
SEEDS = (1, 2, 3, 4)
"""Draws of people and phrases in the evaluation."""
FARS = (0.01, 0.05, 0.02, 0.005)
"""Rates of false acceptances of the operating points; the first is the default."""
MIN_OWNER_TRIALS = 20
"""Results with fewer trials of owners are left out."""
BASIS = "the default model, of three corpora in five conditions, adapted to what is enrolled"
LICENCE = (
    "that of the package; trained on AudioMNIST (MIT), Speech Commands (CC BY 4.0) and C-VAU (MIT)"
)


def fit_model(
    vectors: LabelledVectors, corpora: Sequence[str], matcher: PhraseMatcher
) -> DomainPLDA:
    """Fit the model to some corpora."""
    domains = [domain for corpus in corpora for domain in DOMAINS[corpus]]
    training = vectors.select(np.isin(vectors.domain, domains))
    model = DomainPLDA(
        BLOCKS,
        delta=DOMAIN_VARIANCES,
        weights=WEIGHTS,
        points={name: asdict(matcher) for name in POINT_BLOCKS},
    )
    return model.fit(training.vectors, training.labels())


def fit_matcher(vectors: LabelledVectors, corpora: Sequence[str]) -> PhraseMatcher:
    """Fit the phrase matcher to pairs of the same phrase, of near matches and of other phrases in some corpora."""
    (block,) = POINT_BLOCKS
    names = list(BLOCKS)
    start = sum(BLOCKS[name][0] for name in names[: names.index(block)])
    width, view = BLOCKS[block]
    count = default_recipes()[block].windows.points
    matcher = PhraseMatcher(view, count)
    distances: dict[str, list[Array]] = {"same": [], "near": [], "other": []}
    rng = np.random.default_rng(0)
    domains = [
        name for corpus in corpora for name in (*DOMAINS[corpus], NEAR_MATCH_DOMAINS.get(corpus))
    ]
    for domain in domains:
        domain_vectors = vectors.select(vectors.domain == domain)
        if not len(domain_vectors.repetition):
            continue
        rows = matcher.project(domain_vectors.vectors[:, start : start + width])
        # the last column is the duration
        points = rows[:, :-1].reshape(len(rows), count, -1)
        for kind, pairs in _pairs_by_kind(domain_vectors, domain).items():
            chosen = rng.permutation(np.argwhere(pairs))[:MAX_PAIRS]
            distances[kind].append(matcher.distances(points[chosen[:, 0]], points[chosen[:, 1]]))
    return matcher.fit(*distances.values())


def _pairs_by_kind(vectors: LabelledVectors, domain: str) -> dict[str, BoolArray]:
    """Return (n, n) masks of pairs of recordings of one speaker by kind; the first recording of a pair is clean."""
    same_speaker = np.equal.outer(vectors.speaker, vectors.speaker)
    candidates = same_speaker & (vectors.condition == "clean")[:, None]
    same_phrase = np.equal.outer(vectors.phrase, vectors.phrase)
    other_recording = np.not_equal.outer(vectors.repetition, vectors.repetition)
    pairs = {"same": candidates & same_phrase & other_recording}
    if domain == NEAR_MATCH_DOMAINS.get(vectors.corpus[0]):
        is_right = is_repeated(vectors)
        pairs["near"] = candidates & np.logical_and.outer(is_right, ~is_right)
    else:
        pairs["other"] = candidates & ~same_phrase
    return pairs


def left_out_trials(
    vectors: LabelledVectors, corpora: Sequence[str], named: bool = True
) -> list[DeploymentTrials]:
    """Return trials of each corpus, scored by a model of the other corpora; `named`: see `deployment_trials`."""
    trials: list[DeploymentTrials] = []
    # the matcher is fitted to all corpora, because some have no near matches
    matcher = fit_matcher(vectors, corpora)
    for corpus in corpora:
        model = fit_model(vectors, [other for other in corpora if other != corpus], matcher)
        for domain in DOMAINS[corpus]:
            trials += deployment_trials(
                model, vectors, domain, CALIBRATION_DEPLOYMENTS, named=named
            )
    return trials


def evaluate_left_out(vectors: LabelledVectors, corpus: str) -> list[Json]:
    """Evaluate on one corpus a model whose parameters, calibration and threshold come from the other corpora."""
    others = [name for name in DOMAINS if name != corpus]
    calibration = CalibratedTrials(left_out_trials(vectors, others))
    threshold = calibration.threshold(FARS[0])
    model = fit_model(vectors, others, fit_matcher(vectors, others))
    domains = [(domain, EVALUATION_DEPLOYMENTS) for domain in DOMAINS[corpus]]
    if corpus in NEAR_MATCH_DOMAINS:
        domains.append((NEAR_MATCH_DOMAINS[corpus], ((20, OWN), (5, OWN))))
    rows = []
    for domain, deployments in domains:
        draws: dict[tuple[str, int, int | None], list[DeploymentTrials]] = {}
        for seed in SEEDS:
            for drawn in deployment_trials(model, vectors, domain, deployments, seed):
                key = (drawn.condition, drawn.people, drawn.phrases)
                draws.setdefault(key, []).append(drawn)
        for drawn_trials in draws.values():
            trials = join_trials(drawn_trials)
            if np.count_nonzero(trials.truth == KINDS.index("TC")) >= MIN_OWNER_TRIALS:
                logs = trials.calibrated(calibration.calibrator)
                rows.append(result_row(trials, logs, threshold))
    return rows


def result_row(
    trials: DeploymentTrials, logs: Mapping[Hypothesis, Array], threshold: float
) -> Json:
    """Return the error rates and the cost of calibrated trials as a row of the results."""
    scores = ratios(logs, VIEWS)
    voice, phrase = (ratios(logs, (view,)) for view in VIEWS)
    by_kind = {KINDS[kind]: scores[trials.truth == kind] for kind in np.unique(trials.truth)}
    accepted = scores >= threshold
    only_phrase_differs = (phrase < 0) & (voice >= 0)
    row: Json = {
        "corpus left out": trials.domain,
        "condition": trials.condition,
        "people": trials.people,
        "phrases": {None: "all", OWN: "own"}.get(trials.phrases, trials.phrases),
        "threshold": threshold,
        "accepted": {
            kind: float(accepted[trials.truth == KINDS.index(kind)].mean()) for kind in by_kind
        },
        "right reason": float(only_phrase_differs[trials.truth == KINDS.index("TW")].mean()),
    }
    for view in VIEWS:
        is_target = ~np.isin(trials.truth, IMPOSTOR_KINDS[view,])
        if is_target.any() and not is_target.all():
            view_scores = {"": ratios(logs, (view,)), ", cosine": trials.cosines[view]}
            for suffix, values in view_scores.items():
                row[f"EER {view}{suffix}"] = float(eer(values[is_target], values[~is_target]))

    # Cllr in bits; the kinds of impostors weigh the same
    owners = by_kind.pop("TC")
    row["Cllr, least"] = float(min_cllr(owners, np.concatenate(list(by_kind.values()))))
    missed = np.logaddexp(0, -owners).mean()
    passed = np.mean([np.logaddexp(0, impostors).mean() for impostors in by_kind.values()])
    row["Cllr"] = float((missed + passed) / 2 / np.log(2))
    return row


def make_bundle(vectors: LabelledVectors, extractor: str) -> Bundle:
    """Return the model of all corpora, with calibrations and thresholds from models that leave out one corpus each."""
    corpora = list(DOMAINS)
    model = fit_model(vectors, corpora, fit_matcher(vectors, corpora))
    bundle = Bundle(None, model, extractor=extractor)
    bundle.calibrations = {}
    bundle.points = {}
    for known in (None, ["phrase"]):
        trials = left_out_trials(vectors, corpora, named=known is not None)
        for views in IMPOSTOR_KINDS:
            # known phrases matter for questions about phrases only
            if known is not None and "phrase" not in views:
                continue
            key = question_key(Question(views, known=known), VIEWS)
            calibrated = CalibratedTrials(trials, views)
            bundle.calibrations[key] = calibrated.calibrator
            bundle.points[key] = distinct_points([calibrated.point(far) for far in FARS])
    return bundle


def card(vectors: LabelledVectors, rows: list[Json]) -> dict[str, Any]:
    """Return the model card: name, basis, licence, people per corpus and the results on corpora that were left out."""
    people = {
        corpus: len(np.unique(vectors.speaker[vectors.corpus == corpus])) for corpus in DOMAINS
    }
    return {
        "name": "default",
        "basis": BASIS,
        "licence": LICENCE,
        "people": people,
        "left_out": rows,
    }
