"""Fit, calibrate and evaluate the default model on vectors of several corpora (`tools.default_model.recordings`).

`DomainPLDA` is fitted to all corpora but those of `CALIBRATION_ONLY`. Its calibrations and thresholds come from models
that leave out one corpus each; the results come from models that are fitted, calibrated and given thresholds without
the corpus that evaluates them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from mvplda._typing import Array, BoolArray, Json
from mvplda.bundle import UNDEPLOYED, Bundle
from mvplda.calibration import AmountCalibrator
from mvplda.decisions import OperatingPoint, distinct_points
from mvplda.metrics import cllr, eer
from mvplda.metrics.curves import min_cllr
from mvplda.scoring.answer import question_key
from mvplda.scoring.question import Hypothesis, Question
from mvplda.voice.audio.quality import QualitySettings
from mvplda.voice.domain.estimator import TEST_SECONDS, DomainPLDA
from mvplda.voice.extractors.recipe import default_recipes
from mvplda.voice.phrases import PhraseMatcher
from tools.default_model.recordings import (
    CALIBRATION_ONLY,
    CALL,
    DOMAINS,
    ENROLLED_BY_CALL,
    NEAR_MATCH_DOMAINS,
    LabelledVectors,
)
from tools.default_model.trials import (
    ALONE_DEPLOYMENTS,
    BLOCKS,
    CALIBRATION_DEPLOYMENTS,
    EVALUATION_DEPLOYMENTS,
    IMPOSTOR_KINDS,
    KINDS,
    OWN,
    POINT_BLOCKS,
    SAME_SEX,
    VIEWS,
    CalibratedTrials,
    Deployment,
    DeploymentTrials,
    deployment_trials,
    half_llrs,
    is_repeated,
    join_trials,
)

EMBEDDINGS = {
    name: recipe.default_model
    for name, recipe in default_recipes().items()
    if not recipe.has_points
}
DOMAIN_VARIANCES = {name: block.domain_variance for name, block in EMBEDDINGS.items()}
WEIGHTS = {name: block.weight for name, block in EMBEDDINGS.items()}
"""Variance of domains, and weight of the log-likelihoods, per block. They were chosen on corpora that
were left out. The variance of phrases exceeds the differences between these corpora, so that a
phrase shared by everyone is not absorbed into the domain."""
MAX_PAIRS = 400
"""Pairs of recordings of each kind and domain that the matcher of phrases is fitted to."""
SEEDS = (1,)
"""Draws of people and phrases in the evaluation."""
FARS = (0.01, 0.05, 0.02, 0.005, 0.001)
"""Rates of false acceptances of the operating points; the first is the default."""
CARD_KINDS = ("TC", "TW", SAME_SEX)
"""Kinds of trials whose shares are in the model card."""
COSINE_BLOCKS = {
    view: [name for name, (_, block_view) in BLOCKS.items() if block_view == view] for view in VIEWS
}
"""Blocks whose cosines are the baseline of each view."""
MIN_OWNER_TRIALS = 20
"""Results with fewer trials of owners are left out."""
BASIS = "the default model, of five corpora in five conditions, adapted to what is enrolled"
LICENCE = (
    "that of the package; trained on AudioMNIST (MIT), Speech Commands (CC BY 4.0), C-VAU (MIT), Arabic Speech "
    "Commands (CC BY 4.0) and DSPSpeech-20 (MIT); calibrations and thresholds are also figures of the calls of WUW "
    "Corpus II (V. Kepuska, CC BY-SA 4.0), on which nothing is trained"
)
EVIDENCE = "Among n independent pairs of people without a false acceptance, up to 3 / n may be accepted (rule of three)"


def fit_model(
    vectors: LabelledVectors, corpora: Sequence[str], matcher: PhraseMatcher
) -> DomainPLDA:
    """Fit a `DomainPLDA`, with its estimate of bandwidth, to the vectors of some corpora.

    vectors : vectors of all corpora
    corpora : names of the corpora to fit to; simulated calls serve only to estimate the bandwidth
    matcher : fitted matcher of phrases, from `fit_matcher`
    """
    domains = [domain for corpus in corpora for domain in DOMAINS[corpus]]
    of_corpora = vectors.select(np.isin(vectors.domain, domains))
    training = of_corpora.select(of_corpora.condition != CALL)
    model = DomainPLDA(
        BLOCKS,
        delta=DOMAIN_VARIANCES,
        weights=WEIGHTS,
        points={name: asdict(matcher) for name in POINT_BLOCKS},
    )
    model.fit(training.vectors, training.labels())
    is_narrow = of_corpora.bandwidth < QualitySettings().bandwidth_hz
    return model.fit_bandwidth(of_corpora.vectors, is_narrow, of_corpora.domain)


def fit_matcher(vectors: LabelledVectors, corpora: Sequence[str]) -> PhraseMatcher:
    """Fit a phrase matcher to pairs of recordings in some corpora.

    The two recordings have the same phrase, nearly the same (near matches), or different phrases.
    At most `MAX_PAIRS` pairs of each of the three are drawn per domain.

    vectors : vectors of all corpora
    corpora : names of the corpora to fit to
    """
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
        domain_vectors = vectors.select((vectors.domain == domain) & (vectors.condition != CALL))
        if not len(domain_vectors.repetition):
            continue
        rows = matcher.project(domain_vectors.vectors[:, start : start + width])
        # the last column is the duration
        points = rows[:, :-1].reshape(len(rows), count, -1)
        for kind, pairs in _pairs_by_kind(domain_vectors, domain).items():
            chosen = rng.permutation(np.argwhere(pairs))[:MAX_PAIRS]
            enrolled, tested = chosen.T
            distances[kind].append(
                matcher.distances(
                    points[enrolled], points[tested], rows[enrolled, -1], rows[tested, -1]
                )
            )
    return matcher.fit(*distances.values())


def _pairs_by_kind(vectors: LabelledVectors, domain: str) -> dict[str, BoolArray]:
    """Return pairs of recordings by how their phrases differ, {"same", "near" or "other": mask}.

    Both recordings of a pair are of one speaker, and the first is clean. A domain of near matches
    has the keys "same" and "near", any other domain "same" and "other".

    vectors : the n vectors of the domain
    domain : name of the domain

    Returns
    -------
    {key: (n, n) mask, with the first recording as row}
    """
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


class Design(NamedTuple):
    """Deployments whose trials serve for one calibration, or for one evaluation.

    name : "named": profiles have the names of their phrases; "unnamed": they do not; "alone": every
        profile is alone in its deployment, as in `Bundle.paired`, and has no names
    deployments : descriptions of the deployments
    """

    name: str
    deployments: tuple[Deployment, ...]

    @property
    def is_named(self) -> bool:
        """Whether profiles have the names of their phrases."""
        return self.name == "named"

    @property
    def key_suffix(self) -> str:
        """Suffix of the keys under which the bundle stores this design's calibrations and operating points."""
        return f"|{UNDEPLOYED}" if self.name == "alone" else ""


CALIBRATION = {
    name: Design(name, ALONE_DEPLOYMENTS if name == "alone" else CALIBRATION_DEPLOYMENTS)
    for name in ("named", "unnamed", "alone")
}
EVALUATION = {
    "named": Design("named", EVALUATION_DEPLOYMENTS),
    "alone": Design("alone", ALONE_DEPLOYMENTS),
}


class LeftOutTrials:
    """Trials of each corpus, scored by models that were fitted without it; both are cached.

    vectors : vectors of all corpora
    """

    def __init__(self, vectors: LabelledVectors) -> None:
        self.vectors = vectors
        self.corpora = [name for name in DOMAINS if name in set(vectors.corpus.tolist())]
        self._models: dict[frozenset[str], DomainPLDA] = {}
        self._trials: dict[tuple[object, ...], list[DeploymentTrials]] = {}

    def model(self, left_out: Iterable[str] = ()) -> DomainPLDA:
        """Return the model that is fitted to all corpora except `left_out` and `CALIBRATION_ONLY`.

        left_out : names of corpora
        """
        excluded = frozenset([*left_out, *CALIBRATION_ONLY])
        if excluded not in self._models:
            corpora = [name for name in self.corpora if name not in excluded]
            self._models[excluded] = fit_model(
                self.vectors, corpora, fit_matcher(self.vectors, corpora)
            )
        return self._models[excluded]

    def of(
        self, corpus: str, design: Design, left_out: Iterable[str] = (), seed: int = 0
    ) -> list[DeploymentTrials]:
        """Return the trials of a corpus, scored by a model that was fitted without it.

        corpus : name of the corpus
        design : deployments whose trials are made
        left_out : names of further corpora to which the model is not fitted
        seed : seed of the random draw of people, phrases and trials

        Returns
        -------
        one item per domain of the corpus, deployment and condition
        """
        excluded = frozenset([corpus, *left_out, *CALIBRATION_ONLY])
        key = (corpus, design, excluded, seed)
        if key not in self._trials:
            model = self.model(excluded)
            self._trials[key] = [
                trials
                for domain in (*DOMAINS[corpus], *_near_match_domain(corpus))
                for trials in deployment_trials(
                    model, self.vectors, domain, design.deployments, seed, design.is_named
                )
            ]
        return self._trials[key]

    def calibration(
        self, design: Design, views: tuple[str, ...] = VIEWS, left_out: str | None = None
    ) -> CalibratedTrials:
        """Return the trials of all corpora except one, with a calibration that is fitted to them.

        Each corpus is scored by a model that was fitted without it and without `left_out`.

        design : deployments whose trials are made
        views : views of the question
        left_out : name of the corpus without trials; None: all corpora have trials
        """
        others = [name for name in self.corpora if name != left_out]
        excluded = [] if left_out is None else [left_out]
        return CalibratedTrials(
            [trials for name in others for trials in self.of(name, design, excluded)], views
        )


def _near_match_domain(corpus: str) -> list[str]:
    """Return the name of a corpus's domain of near matches in a list; empty if there is none."""
    return [NEAR_MATCH_DOMAINS[corpus]] if corpus in NEAR_MATCH_DOMAINS else []


def evaluate_left_out(material: LeftOutTrials, corpus: str) -> list[Json]:
    """Evaluate, on one corpus, models whose fit, calibration and thresholds exclude this corpus.

    Returns
    -------
    one row, see `result_row`, per design, domain, condition and deployment with enough owners
    """
    rows = []
    for name, design in EVALUATION.items():
        calibration = material.calibration(CALIBRATION[name], left_out=corpus)
        thresholds = {
            far: {view: calibration.threshold(view, far) for view in VIEWS} for far in FARS
        }
        groups: dict[tuple[object, ...], list[DeploymentTrials]] = {}
        for seed in SEEDS:
            for trials in material.of(corpus, design, seed=seed):
                key = (trials.domain, trials.condition, trials.deployment)
                groups.setdefault(key, []).append(trials)
        for drawn_trials in groups.values():
            trials = join_trials(drawn_trials)
            if np.count_nonzero(trials.truth == KINDS.index("TC")) >= MIN_OWNER_TRIALS:
                rows.append(result_row(trials, calibration.calibrator, thresholds))
    return rows


def result_row(
    trials: DeploymentTrials,
    calibrator: AmountCalibrator,
    thresholds: Mapping[float, Mapping[str, float]],
) -> Json:
    """Return one row of the results: description of the trials, rates of acceptance, EER and Cllr.

    trials : trials of one deployment in one condition
    calibrator : calibration that was fitted to other corpora
    thresholds : {rate of false acceptances: {view: LLR of the view from which it is accepted}}
    """
    logs = trials.calibrated(calibrator, VIEWS)
    halves = half_llrs(logs, VIEWS)
    people, phrases, recordings, _ = trials.deployment
    kinds = _kind_masks(trials)
    row: Json = {
        "corpus left out": trials.domain,
        "condition": _condition(trials),
        "people": people or 1,
        "deployed": people is not None,
        "phrases": {None: "all", OWN: "own"}.get(phrases, phrases),
        "recordings": recordings,
        "seconds": float(np.exp(np.mean(trials.measures[TEST_SECONDS]))),
        "trials": {kind: int(np.count_nonzero(mask)) for kind, mask in kinds.items()},
    }
    for far, accepts in thresholds.items():
        passed = {view: halves[view] >= accept for view, accept in accepts.items()}
        accepted = np.all(list(passed.values()), axis=0)
        row[f"accepted at {100 * far:g} %"] = {
            kind: float(accepted[mask].mean()) for kind, mask in kinds.items()
        }
    row["thresholds"] = dict(thresholds[FARS[0]])
    only_phrase_differs = (halves["phrase"] < 0) & (halves["speaker"] >= 0)
    if "TW" in kinds:
        row["right reason"] = float(only_phrase_differs[kinds["TW"]].mean())
    return row | _errors(trials, logs, halves)


def _condition(trials: DeploymentTrials) -> str:
    """Return the text of the results for the conditions of both sides, such as "enrolled by call".

    If the profiles were enrolled clean, it is the condition of the tests.
    """
    if trials.deployment.condition == "clean":
        return trials.condition
    return ENROLLED_BY_CALL[trials.condition]


def _kind_masks(trials: DeploymentTrials) -> dict[str, BoolArray]:
    """Return {kind of trial, such as "TC": (n,) mask of its trials}, for the kinds that occur.

    Impostors of the owner's sex are a kind too, in addition to "IC".
    """
    masks = {kind: trials.truth == number for number, kind in enumerate(KINDS)}
    masks[SAME_SEX] = masks["IC"] & trials.same_sex
    return {kind: mask for kind, mask in masks.items() if mask.any()}


def _errors(
    trials: DeploymentTrials, logs: Mapping[Hypothesis, Array], halves: Mapping[str, Array]
) -> Json:
    """Return the error measures of a row of the results, {name, such as "EER speaker": value}.

    They are EER, Cllr, minimum Cllr, and the EER of the cosines as a baseline. Each is computed for
    the speaker (owners against IC), the phrase (owners against TW) and the total (against all
    impostors).

    trials : the trials
    logs : {hypothesis: (n,) calibrated log-likelihoods}
    halves : {view: (n,) LLR of the view alone}
    """
    cosines = {view: _mean_cosine(trials, blocks) for view, blocks in COSINE_BLOCKS.items()}
    cosines["total"] = sum(cosines.values())
    llrs = {**halves, "total": Question().ratio(VIEWS).of(logs)}
    masks = _kind_masks(trials)
    errors: Json = {}
    for view, kind in {"speaker": "IC", "phrase": "TW", "total": None}.items():
        owners = masks.get("TC", np.zeros(len(trials.truth), dtype=bool))
        impostors = trials.truth > 0 if kind is None else masks.get(kind, ~owners & owners)
        if not owners.any() or not impostors.any():
            continue
        errors[f"EER {view}"] = float(eer(llrs[view][owners], llrs[view][impostors]))
        errors[f"EER {view}, cosine"] = float(eer(cosines[view][owners], cosines[view][impostors]))
        errors[f"Cllr {view}"] = float(cllr(llrs[view][owners], llrs[view][impostors]))
        errors[f"Cllr {view}, least"] = float(min_cllr(llrs[view][owners], llrs[view][impostors]))
    return errors


def _mean_cosine(trials: DeploymentTrials, names: Sequence[str]) -> Array:
    """Return the (n,) sum of each trial's cosines over some extractors.

    The cosines of each extractor are first shifted and scaled to mean 0 and variance 1.

    names : names of the extractors
    """
    return np.sum([_standardised(trials.cosines[name]) for name in names], axis=0)


def _standardised(values: Array) -> Array:
    return np.asarray((values - values.mean()) / max(float(values.std()), 1e-9))


class DesignParts(NamedTuple):
    """Calibrations and operating points that were fitted to the trials of one design.

    calibrations : {key of a question in the bundle: calibration}
    points : {key of a question in the bundle: operating points, the default first}
    """

    calibrations: dict[str, AmountCalibrator]
    points: dict[str, list[OperatingPoint]]


def calibrate(material: LeftOutTrials, design: Design) -> DesignParts:
    """Return calibrations and operating points for the questions of a design.

    They are fitted to the trials of all corpora, each scored by a model without this corpus.

    material : trials of all corpora
    design : deployments whose trials are made
    """
    parts = DesignParts({}, {})
    known = ["phrase"] if design.is_named else None
    for views in IMPOSTOR_KINDS:
        # known phrases matter for questions about phrases only
        if known is not None and "phrase" not in views:
            continue
        key = question_key(Question(views, known=known), VIEWS) + design.key_suffix
        calibrated = material.calibration(design, views)
        parts.calibrations[key] = calibrated.calibrator
        parts.points[key] = distinct_points([calibrated.point(far) for far in FARS])
    return parts


def make_bundle(model: DomainPLDA, extractor: str, designs: Iterable[DesignParts]) -> Bundle:
    """Return a bundle of a fitted model, its extractor's name, and calibrations of all designs."""
    bundle = Bundle(None, model, extractor=extractor)
    bundle.calibrations = {}
    bundle.points = {}
    for parts in designs:
        bundle.calibrations |= parts.calibrations
        bundle.points |= parts.points
    return bundle


def card_rows(rows: Sequence[Json]) -> list[Json]:
    """Return a short form of the results for the model card.

    Each row has the proportions of accepted owners and impostors for one domain, one number of
    enrolled recordings, and profiles that are alone or not, over all deployments and conditions.
    Profiles that are enrolled in simulated calls are left out. The complete results are in
    results/default-model.

    rows : rows of `result_row`
    """
    cases: dict[tuple[Any, ...], list[Json]] = {}
    for row in rows:
        if row["condition"] in ENROLLED_BY_CALL.values():
            continue
        key = (row["corpus left out"], row["deployed"], row["recordings"])
        cases.setdefault(key, []).append(row)
    summary = []
    for (domain, deployed, recordings), members in cases.items():
        case: Json = {
            "corpus left out": domain,
            "deployed": deployed,
            "recordings": recordings,
        }
        for far in FARS:
            key = f"accepted at {100 * far:g} %"
            case[key] = {kind: _pooled(members, key, kind) for kind in CARD_KINDS}
        summary.append(case)
    return summary


def _pooled(rows: Sequence[Json], key: str, kind: str) -> float | None:
    """Return the proportion of accepted trials of one kind, over all rows of results together.

    rows : rows of `result_row`
    key : key of a row for the proportions of accepted trials, such as "accepted at 1 %"
    kind : kind of trial, such as "TC"; if no row has such trials, the result is None
    """
    counts = [(row["trials"][kind], row[key][kind]) for row in rows if kind in row["trials"]]
    trials = sum(count for count, _ in counts)
    return round(sum(count * share for count, share in counts) / trials, 4) if trials else None


def card(vectors: LabelledVectors, rows: list[Json]) -> dict[str, Any]:
    """Return the model card, a summary of training data, licence and results on left-out corpora.

    vectors : vectors of all corpora, of which people are counted
    rows : rows of `result_row`
    """
    people = {
        corpus: len(np.unique(vectors.speaker[vectors.corpus == corpus]))
        for corpus in DOMAINS
        if (vectors.corpus == corpus).any()
    }
    return {
        "name": "default",
        "basis": BASIS,
        "licence": LICENCE,
        "evidence": f"{sum(people.values())} people. {EVIDENCE}.",
        "people": people,
        "left_out": card_rows(rows),
    }
