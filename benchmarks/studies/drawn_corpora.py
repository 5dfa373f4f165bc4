"""When does the joint model have half of PLDA's errors? Corpora of RSR2015's size, drawn from fitted covariances.

``python -m benchmarks.studies.drawn_corpora DATA [ROW ...] [--again]``. DATA holds speech_commands.npz, cvau.npz and
audiomnist_jvectors.npz. A model of speaker, phrase and interaction (for C-VAU also of sessions) with full noise is
fitted to real vectors; corpora of 300 people, 30 phrases and 9 sessions are drawn from it, with the covariance of the
interaction multiplied by 0, 1/4, ... 2. As in the paper, 194 people train, and 106 are tested: three sessions enrol,
six test, 30.5 million trials within a gender. PLDA and the joint model are compared in the paper's settings, in every
reading of the published formulas, with full noise, exact enrolment and one recording per profile, and, with full noise
and exact enrolment, with ranks that 30 held-out training people choose.

Drawn vectors are easier than real ones, so most rows are "at the paper's level": speakers are moved together (their
covariance and that of the interaction are multiplied by one factor) until PLDA has the paper's IC, 6.5 %. Rows of the
"simulator" use `make_two_views`, whose settings alone decide the ratio. Rows are kept in results/drawn-corpora; a row
that is there is not made again without --again.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal

import click
import numpy as np
from scipy import stats
from sklearn.exceptions import ConvergenceWarning

from mvplda import MultiviewPLDA, make_two_views
from mvplda.exceptions import MvpldaWarning
from mvplda.inference.em import PublishedEM
from mvplda.metrics import eer, trial_kinds
from mvplda.paper.provenance import DATA, OUTPUT, provenance, update_rows
from mvplda.preprocessing import Reduction, unit_chain

Array = np.ndarray
Labels = dict[str, Array]
Errors = dict[str, float]

TITLE = "Corpora of RSR2015's size, drawn from covariances of real vectors"
RESULTS = Path(__file__).parents[2] / "results" / "drawn-corpora"
KINDS = ("IW", "IC", "TW", "Total")
INTERACTION = "speaker:phrase"
SESSION = "speaker:session"
SEEDS = 3
"""Corpora per row."""
COMPONENTS = 100
FIT_ITERATIONS = 30
LEVEL = 0.065
"""IC of PLDA in the paper."""
CLOSE = 0.1
"""Relative difference from `LEVEL` that is near enough."""


@dataclass(frozen=True)
class Size:
    """People, phrases and sessions of a corpus, and who trains and enrols.

    genders : people per gender of whom all but the last `tested` train
    """

    genders: tuple[int, ...] = (157, 143)
    tested: tuple[int, ...] = (57, 49)
    phrases: int = 30
    sessions: int = 9
    enrolled: tuple[int, ...] = (0, 3, 6)
    """Sessions that enrol: 1, 4 and 7 of the corpus."""


RSR2015 = Size()


# Covariances of real vectors.


@dataclass(frozen=True)
class Covariances:
    """Loadings of the views and a root of the noise covariance, from which corpora are drawn."""

    loadings: dict[str, Array]
    noise_root: Array

    def scaled(self, interaction: float = 1.0, speaker: float = 1.0) -> Covariances:
        """Return covariances with that of the interaction multiplied, and with speakers closer together.

        speaker : factor of the covariances of speakers and of the interaction
        """
        factors = {"speaker": speaker, INTERACTION: interaction * speaker}
        loadings = {
            view: math.sqrt(factors.get(view, 1.0)) * loading
            for view, loading in self.loadings.items()
        }
        return replace(self, loadings=loadings)

    @property
    def shares(self) -> dict[str, float]:
        """Share of each view and of the noise in the variance of a vector."""
        traces = {view: float((loading**2).sum()) for view, loading in self.loadings.items()}
        traces["noise"] = float((self.noise_root**2).sum())
        total = sum(traces.values())
        return {name: trace / total for name, trace in traces.items()}


def fit_covariances(X: Array, labels: Labels, ranks: Mapping[str, int]) -> Covariances:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", MvpldaWarning)
        model = MultiviewPLDA(dict(ranks), noise="full", max_iter=FIT_ITERATIONS).fit(X, labels)
    return Covariances(dict(model.loadings_), np.linalg.cholesky(model.noise_))


def side_by_side(file: Path, columns: Iterable[str]) -> tuple[Array, Labels]:
    """Vectors of voices and of words, each of unit length, on principal components; and their labels."""
    with np.load(file) as arrays:
        rows = arrays["phrase"] != ""
        blocks = [arrays[name][rows].astype(np.float64) for name in ("camp", "words")]
        labels = {name: arrays[name][rows] for name in columns}
    joined = np.hstack([unit_chain().fit_transform(block) for block in blocks])
    return Reduction(COMPONENTS).fit_transform(joined), labels


def speech_commands(data: Path) -> Covariances:
    X, labels = side_by_side(data / "speech_commands.npz", ("speaker", "phrase"))
    return fit_covariances(X, labels, {"speaker": 60, "phrase": 12, INTERACTION: 60})


def cvau(data: Path) -> Covariances:
    X, labels = side_by_side(data / "cvau.npz", ("speaker", "phrase", "session"))
    ranks = {"speaker": 33, "phrase": 11, INTERACTION: 60, SESSION: 30}
    return fit_covariances(X, labels, ranks)


def j_vectors(data: Path) -> Covariances:
    with np.load(data / "audiomnist_jvectors.npz") as arrays:
        X = arrays["X"].astype(np.float64)
        labels = {view: arrays[view] for view in ("speaker", "phrase")}
    ranks = {"speaker": 59, "phrase": 9, INTERACTION: 100}
    return fit_covariances(Reduction(COMPONENTS).fit_transform(X), labels, ranks)


SOURCES: dict[str, Callable[[Path], Covariances]] = {
    "Speech Commands": speech_commands,
    "C-VAU": cvau,
    "AudioMNIST, j-vectors": j_vectors,
}
FILES = {
    "Speech Commands": "speech_commands.npz",
    "C-VAU": "cvau.npz",
    "AudioMNIST, j-vectors": "audiomnist_jvectors.npz",
}


@cache
def covariances_of(source: str, data: Path) -> Covariances:
    return SOURCES[source](data)


# Corpora.


def draw(covariances: Covariances, size: Size, seed: int) -> Array:
    """Return vectors (people, phrases, sessions, D), float32, drawn person by person."""
    rng = np.random.default_rng(seed)
    people = sum(size.genders)
    width = len(covariances.noise_root)
    loadings = covariances.loadings
    by_phrase = _effects(rng, loadings, "phrase", size.phrases, width)
    X = np.empty((people, size.phrases, size.sessions, width), dtype=np.float32)
    for person in range(people):
        x = rng.standard_normal((size.phrases, size.sessions, width)) @ covariances.noise_root.T
        x += _effects(rng, loadings, "speaker", 1, width) + by_phrase[:, None]
        x += _effects(rng, loadings, INTERACTION, size.phrases, width)[:, None]
        x += _effects(rng, loadings, SESSION, size.sessions, width)
        X[person] = x
    return X


def _effects(
    rng: np.random.Generator, loadings: Mapping[str, Array], view: str, classes: int, width: int
) -> Array:
    """Return one effect per class, (classes, width); zeros without such a view."""
    if view not in loadings:
        return np.zeros((classes, width))
    loading = loadings[view]
    return rng.standard_normal((classes, loading.shape[1])) @ loading.T


@dataclass
class Corpus:
    """Vectors of a corpus, divided into training people and tested people per gender."""

    X: Array
    size: Size
    training: Array = field(init=False)
    tested: list[Array] = field(init=False)

    def __post_init__(self) -> None:
        ends = np.cumsum(self.size.genders)
        self.tested = [
            np.arange(end - number, end) for end, number in zip(ends, self.size.tested, strict=True)
        ]
        self.training = np.setdiff1d(np.arange(ends[-1]), np.concatenate(self.tested))

    def training_data(self) -> tuple[Array, Labels]:
        X = self.X[self.training]
        people, phrase, _ = (codes.reshape(-1) for codes in np.indices(X.shape[:3]))
        labels = {"speaker": people, "phrase": phrase, "cell": people * X.shape[1] + phrase}
        return X.reshape(-1, X.shape[-1]), labels

    def held_out(self, number: int) -> Corpus:
        """Return the corpus of the training people, of whom so many, at even distances, are tested."""
        chosen = self.training[:: max(1, len(self.training) // number)][:number]
        order = np.concatenate([np.setdiff1d(self.training, chosen), chosen])
        size = replace(self.size, genders=(len(order),), tested=(len(chosen),))
        return Corpus(self.X[order], size)

    def sides(self, people: Array, recordings: int) -> tuple[Array, Array, Array]:
        """Return enrolment vectors, the profile of each, and test vectors of some people."""
        enrolled = list(self.size.enrolled[:recordings])
        others = np.setdiff1d(np.arange(self.size.sessions), self.size.enrolled)
        vectors = self.X[people]
        enrol = vectors[:, :, enrolled].reshape(-1, vectors.shape[-1])
        profiles = np.repeat(np.arange(len(people) * self.size.phrases), len(enrolled))
        return enrol, profiles, vectors[:, :, others].reshape(-1, vectors.shape[-1])

    def kinds(self) -> dict[str, Array]:
        """Return masks of all trials, those of one gender after those of another."""
        masks: dict[str, list[Array]] = {}
        tests = self.size.sessions - len(self.size.enrolled)
        for people in self.tested:
            person, phrase = (
                codes.reshape(-1) for codes in np.indices((len(people), self.size.phrases))
            )
            claimed = {"speaker": person, "phrase": phrase}
            tested = {view: np.repeat(codes, tests) for view, codes in claimed.items()}
            for kind, mask in trial_kinds(claimed, tested).items():
                masks.setdefault(kind, []).append(mask.ravel())
        return {kind: np.concatenate(parts) for kind, parts in masks.items()}


# Systems.


@dataclass(frozen=True)
class System:
    """A model with its scoring.

    ranks : {view: rank}, of "cell" alone (PLDA) or of "speaker", "phrase" and their interaction
    em : exact, or the published one with the E step of the paper's appendix or body, from a random start
    recordings : vectors per profile
    """

    ranks: Mapping[str, int]
    noise: Literal["diagonal", "full"] = "diagonal"
    em: Literal["exact", "appendix", "body"] = "exact"
    score: Literal["exact", "paper"] = "exact"
    enrolment: Literal["average", "exact"] = "average"
    recordings: int = 3

    def fit(self, X: Array, labels: Labels) -> MultiviewPLDA:
        limits = {view: len(np.unique(labels[view])) - 1 for view in self.ranks if view in labels}
        views = {
            view: min(rank, limits.get(view, rank), X.shape[1]) for view, rank in self.ranks.items()
        }
        published = self.em != "exact"
        model = MultiviewPLDA(
            views,
            noise=self.noise,
            algorithm="paper" if published else "exact",
            init="random" if published else "moments",
            max_iter=10,
            tol=0,
            random_state=0,
        )
        model.published_em = partial(PublishedEM, body=self.em == "body")
        base = {view: labels[view] for view in views if view in labels}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MvpldaWarning)
            return model.fit(X, base)

    @property
    def fitted_as(self) -> System:
        """Return the settings that the fit depends on."""
        return replace(self, score="exact", enrolment="average", recordings=3)


PLDA_RANK, VIEW_RANK = 40, 20
CELL = {"cell": PLDA_RANK}
TWO = {"speaker": VIEW_RANK, "phrase": VIEW_RANK}
THREE = {**TWO, INTERACTION: PLDA_RANK}
MAIN: dict[str, System] = {
    "PLDA": System(CELL),
    "two views": System(TWO),
}
"""Measured on every corpus of a row, as are the systems of `CHOICES`."""
VARIANTS: dict[str, System] = {
    "PLDA, full noise": System(CELL, noise="full"),
    "two views, full noise": System(TWO, noise="full"),
    "appendix, printed score": System(TWO, em="appendix", score="paper"),
    "appendix, exact score": System(TWO, em="appendix"),
    "body, printed score": System(TWO, em="body", score="paper"),
    "body, exact score": System(TWO, em="body"),
    "PLDA, exact enrolment": System(CELL, enrolment="exact"),
    "two views, exact enrolment": System(TWO, enrolment="exact"),
    "PLDA, one recording": System(CELL, recordings=1),
    "two views, one recording": System(TWO, recordings=1),
    "PLDA, rank 20": System({"cell": 20}),
    "two views, ranks 10 + 10": System({"speaker": 10, "phrase": 10}),
    "PLDA, rank 80": System({"cell": 80}),
    "two views, ranks 51 + 29": System({"speaker": 51, "phrase": 29}),
}
SYSTEMS = {**MAIN, **VARIANTS}
PLDA_RANKS = (40, 60, 80, 99)
SPEAKER_RANKS = (20, 40, 60)
CHOICES: dict[str, list[System]] = {
    "PLDA, chosen": [System({"cell": rank}, "full", enrolment="exact") for rank in PLDA_RANKS],
    "two views, chosen": [
        System({"speaker": rank, "phrase": 29}, "full", enrolment="exact") for rank in SPEAKER_RANKS
    ],
    "three views, chosen": [
        System({"speaker": 60, "phrase": 29, INTERACTION: cells}, "full", enrolment="exact")
        for cells in (20, 40, 80)
    ],
}
"""Candidates; that with the least Total on held-out training people is used."""
COMPARED = {
    "printed formulas, appendix": ("appendix, printed score", "PLDA"),
    "printed formulas, body": ("body, printed score", "PLDA"),
    "appendix, exact score": ("appendix, exact score", "PLDA"),
    "body, exact score": ("body, exact score", "PLDA"),
    "exact": ("two views", "PLDA"),
    "exact, full noise": ("two views, full noise", "PLDA, full noise"),
    "exact, exact enrolment": ("two views, exact enrolment", "PLDA, exact enrolment"),
    "exact, one recording": ("two views, one recording", "PLDA, one recording"),
    "exact, half the ranks": ("two views, ranks 10 + 10", "PLDA, rank 20"),
    "exact, twice the ranks": ("two views, ranks 51 + 29", "PLDA, rank 80"),
    "exact, all chosen": ("two views, chosen", "PLDA, chosen"),
    "three views, all chosen": ("three views, chosen", "PLDA, chosen"),
}
"""Ratios: errors of a joint model over those of PLDA in the same settings."""


def errors_by_kind(scores: Array, kinds: Mapping[str, Array]) -> Errors:
    """Return the EER of every kind and of all trials."""
    targets = scores[kinds["TC"]]
    others = [scores[kinds[kind]] for kind in KINDS[:-1]]
    errors = [eer(targets, part) for part in (*others, np.concatenate(others))]
    return dict(zip(KINDS, errors, strict=True))


class Trials:
    """Fits systems to a corpus, each settings once, and measures their errors."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.kinds = corpus.kinds()
        self.X, self.labels = corpus.training_data()
        self.models: dict[str, MultiviewPLDA] = {}
        self.scores = np.empty(len(self.kinds["TC"]), dtype=np.float32)

    def errors(self, system: System) -> Errors:
        key = repr(system.fitted_as)
        if key not in self.models:
            self.models[key] = system.fit(self.X, self.labels)
        model = self.models[key]
        done = 0
        for people in self.corpus.tested:
            enrol, ids, test = self.corpus.sides(people, system.recordings)
            profiles = model.enrol(enrol, ids, method=system.enrolment)
            shape = len(profiles), len(test)
            # one array for all systems: new memory for 30 million scores takes as long as the scores
            block = self.scores[done : done + shape[0] * shape[1]].reshape(shape)
            model.llr(profiles, test, scoring=system.score, out=block, threads=1)
            done += block.size
        return errors_by_kind(self.scores, self.kinds)


def choose(corpus: Corpus, number: int = 30) -> dict[str, System]:
    """Return the candidate of every choice with the least Total on held-out training people."""
    trials = Trials(corpus.held_out(min(number, len(corpus.training) // 3)))
    chosen = {}
    for name, candidates in CHOICES.items():
        errors = [trials.errors(system)["Total"] for system in candidates]
        chosen[name] = candidates[int(np.argmin(errors))]
    return chosen


def speaker_factor(covariances: Covariances, size: Size, level: float, steps: int = 6) -> float:
    """Return the factor of the speakers' covariance at which PLDA has this IC, by secant steps on one corpus."""
    probit = NormalDist().inv_cdf
    log_factor, slope = -1.0, -0.5
    before: tuple[float, float] | None = None
    for _ in range(steps):
        scaled = covariances.scaled(speaker=math.exp(log_factor))
        error = Trials(Corpus(draw(scaled, size, 0), size)).errors(SYSTEMS["PLDA"])["IC"]
        if abs(error / level - 1) < CLOSE:
            break
        deviate = probit(min(max(error, 1e-4), 0.49))
        if before is not None:
            slope = min((deviate - before[1]) / (log_factor - before[0]), -0.1)
        before = log_factor, deviate
        step = (probit(level) - deviate) / slope
        log_factor += min(max(step, -1.5), 1.5)
    return math.exp(log_factor)


# Rows.


@dataclass(frozen=True)
class Condition:
    """What a row is drawn from.

    interaction : factor of the fitted covariance of the interaction
    level : IC that PLDA shall have, or None for covariances as they were fitted
    seeds : number of corpora
    systems : measured beside those of `MAIN`, on the first corpus only
    choices : whether systems with chosen ranks are measured, too
    """

    source: str
    interaction: float
    level: float | None = LEVEL
    seeds: int = SEEDS
    systems: Collection[str] = ()
    choices: bool = True

    @property
    def name(self) -> str:
        level = "as fitted" if self.level is None else "at the paper's level"
        return f"{self.source}, {level}, interaction x {self.interaction:g}"


CONDITIONS = [
    *(Condition(source, x, systems=tuple(VARIANTS)) for x in (0.0, 1.0) for source in SOURCES),
    *(Condition(source, x, None, 2, choices=False) for x in (0.0, 1.0) for source in SOURCES),
    *(Condition(source, 0.25) for source in SOURCES),
    *(Condition(source, x) for x in (0.5, 2.0) for source in SOURCES),
]
"""The conditions that matter most come first: a run may be ended early."""
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"random_state": 1},
    {"random_state": 2},
    {"n_phrases": 5},
    {"n_phrases": 10},
    {"n_phrases": 40},
    {"n_speakers": 30},
    {"n_speakers": 400},
    {"n_each": 5},
    {"n_each": 20},
    {"dimension": 50},
    {"dimension": 200},
    {"ranks": (10, 10)},
    {"ranks": (40, 20)},
)
"""Of `make_two_views`."""


def setting_name(setting: Mapping[str, Any]) -> str:
    changed = ", ".join(f"{name}={value}" for name, value in setting.items())
    return f"simulator, {changed or 'as it is'}"


def ratio(values: Array, others: Array) -> dict[str, float]:
    """Return the geometric mean of ratios, and its 95 % interval over corpora (Student's t on logarithms).

    Without errors of one of the systems there is no ratio.
    """
    if not ((values > 0).all() and (others > 0).all()):
        return {}
    logs = np.log(values / others)
    found = {"ratio": float(np.exp(logs.mean()))}
    if len(logs) > 1:
        half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs))
        found |= {
            "low": float(np.exp(logs.mean() - half)),
            "high": float(np.exp(logs.mean() + half)),
        }
    return found


def ratios(errors: Mapping[str, list[Errors]]) -> dict[str, dict[str, dict[str, float]]]:
    """Return the ratios of `COMPARED` by kind, over the corpora on which both systems were measured."""
    found = {}
    for name, pair in COMPARED.items():
        if not all(system in errors for system in pair):
            continue
        corpora = min(len(errors[system]) for system in pair)
        found[name] = {
            kind: ratio(*(np.array([each[kind] for each in errors[s][:corpora]]) for s in pair))
            for kind in KINDS
        }
    return found


def measure(condition: Condition, data: Path, size: Size = RSR2015) -> dict[str, Any]:
    """Errors and ratios of one condition."""
    covariances = covariances_of(condition.source, data).scaled(condition.interaction)
    factor = 1.0
    if condition.level is not None:
        factor = speaker_factor(covariances, size, condition.level)
    covariances = covariances.scaled(speaker=factor)
    systems: dict[str, System] = dict(MAIN)
    chosen: dict[str, System] = {}
    errors: dict[str, list[Errors]] = {}
    for seed in range(condition.seeds):
        corpus = Corpus(draw(covariances, size, seed), size)
        if seed == 0 and condition.choices:
            chosen = choose(corpus)
            systems |= chosen
        more = {name: VARIANTS[name] for name in condition.systems if seed == 0}
        trials = Trials(corpus)
        for name, system in {**systems, **more}.items():
            errors.setdefault(name, []).append(trials.errors(system))
    return {
        "source": condition.source,
        "interaction": condition.interaction,
        "level": condition.level,
        "speaker factor": factor,
        "shares": covariances.shares,
        "chosen": {name: f"{dict(s.ranks)}, {s.noise} noise" for name, s in chosen.items()},
        "systems": errors,
        "ratios": ratios(errors),
    }


def simulate(setting: Mapping[str, Any]) -> dict[str, Any]:
    """Errors and ratios on vectors of `make_two_views`, 70 people tested."""
    X, labels, unseen = make_two_views(**{"held_out": 70, "random_state": 0, **setting})
    training = {**labels, "cell": labels["speaker"] * 1000 + labels["phrase"]}
    claimed = {view: codes[::3] for view, codes in unseen.enrol_labels.items()}
    kinds = trial_kinds(claimed, unseen.test_labels)
    errors: dict[str, list[Errors]] = {}
    for name in ("PLDA", "two views", "appendix, printed score"):
        system = SYSTEMS[name]
        model = system.fit(X, training)
        profiles = model.enrol(unseen.enrol, unseen.ids, method=system.enrolment)
        scores = model.llr(profiles, unseen.test, scoring=system.score)
        errors[name] = [errors_by_kind(scores, kinds)]
    return {"setting": dict(setting), "systems": errors, "ratios": ratios(errors)}


def all_rows(data: Path) -> dict[str, tuple[str, Callable[[], dict[str, Any]]]]:
    """Return what makes each row, and the file that it reads, by name."""
    rows: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
        setting_name(setting): ("", partial(simulate, setting)) for setting in SETTINGS
    }
    for condition in CONDITIONS:
        rows[condition.name] = (FILES[condition.source], partial(measure, condition, data))
    return rows


@click.command()
@click.argument("data", type=click.Path(exists=True, path_type=Path))
@click.argument("names", nargs=-1)
@click.option("--again", is_flag=True, help="Make rows again that are stored.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=RESULTS, show_default=True)
def main(data: Path, names: tuple[str, ...], again: bool, output: Path) -> None:
    file = output / "results.json"
    rows = all_rows(data)
    unknown = set(names) - set(rows)
    if unknown:
        raise click.UsageError(f"unknown row {min(unknown)!r}; rows: {'; '.join(rows)}")
    stored = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.is_file() else {}
    for name in names or rows:
        if name in stored and not again:
            continue
        reads, make = rows[name]
        record = provenance(
            [data / reads] if reads else [],
            command=f'python -m {__spec__.name} {DATA} "{name}" --again --output {OUTPUT}',
        )
        begin = time.process_time()
        row = make()
        record["seconds"] = round(time.process_time() - begin)
        update_rows(file, TITLE, "rows", {name: {**row, "provenance": record}}, list(rows))
        click.echo(f"{name}: {record['seconds']} s, {short(row)}")


def short(row: Mapping[str, Any]) -> str:
    """Return the main ratios of a row."""
    found = row["ratios"]["exact"]
    return ", ".join(f"{kind} {cell(found[kind])}" for kind in ("IC", "Total"))


# Tables.


Cells = list[list[str]]
Rows = Mapping[str, Mapping[str, Any]]

MAIN_RATIOS = ("exact", "exact, all chosen", "three views, all chosen")
SETTING_RATIOS = {
    "the paper's settings": "exact",
    "full noise": "exact, full noise",
    "exact enrolment": "exact, exact enrolment",
    "one recording": "exact, one recording",
    "half the ranks": "exact, half the ranks",
    "twice the ranks": "exact, twice the ranks",
    "full noise, exact enrolment, chosen ranks": "exact, all chosen",
}
READINGS = {
    "appendix, printed": "printed formulas, appendix",
    "body, printed": "printed formulas, body",
    "appendix, exact score": "appendix, exact score",
    "body, exact score": "body, exact score",
    "exact": "exact",
}


def cell(found: Mapping[str, float], interval: bool = True) -> str:
    """Return a ratio with its interval, if it has one."""
    if not found:
        return "-"
    text = f"{found['ratio']:.2f}"
    if not interval or "low" not in found:
        return text
    return f"{text} [{found['low']:.2f}, {found['high']:.2f}]"


def drawn(rows: Rows) -> list[Mapping[str, Any]]:
    """Return the rows of drawn corpora: by vectors, at the paper's level first, then by interaction."""
    order = list(SOURCES)
    found = [row for row in rows.values() if "source" in row]
    return sorted(
        found,
        key=lambda row: (row["level"] is None, order.index(row["source"]), row["interaction"]),
    )


def heads(row: Mapping[str, Any]) -> list[str]:
    """Return the first cells of a row: vectors, factor of the interaction, its variance over the speakers'."""
    source = row["source"] + (", as fitted" if row["level"] is None else "")
    of_speaker = row["shares"][INTERACTION] / row["shares"]["speaker"]
    return [source, f"{row['interaction']:g}", f"{of_speaker:.2f}"]


HEAD = ["vectors", "interaction x", "interaction / speaker"]


def ratio_rows(rows: Rows) -> Cells:
    """Cells of the main table, its heading first: errors of the joint model over those of PLDA."""
    head = [*HEAD, "IC", "TW", "Total", "chosen: IC", "chosen: Total", "three views: Total"]
    cells = [head]
    for row in drawn(rows):
        paper, chosen, three = (row["ratios"].get(name, {}) for name in MAIN_RATIOS)
        found = [paper[kind] for kind in ("IC", "TW", "Total")]
        found += [chosen.get(kind, {}) for kind in ("IC", "Total")]
        found.append(three.get("Total", {}))
        # two corpora do not show how much corpora differ
        interval = len(row["systems"]["PLDA"]) > 2
        cells.append([*heads(row), *(cell(each, interval) for each in found)])
    return cells


def error_rows(rows: Rows) -> Cells:
    """Cells of the table of errors: means over corpora."""
    cells = [[*HEAD, "system", *KINDS]]
    names = ("PLDA", "two views", *CHOICES)
    for row in drawn(rows):
        for name in (name for name in names if name in row["systems"]):
            corpora = row["systems"][name]
            means = [f"{100 * np.mean([each[kind] for each in corpora]):.2f}" for kind in KINDS]
            cells.append([*heads(row), name, *means])
    return cells


def setting_rows(rows: Rows, kind: str) -> Cells:
    """Cells of the table of settings at the paper's level, one corpus each: exact inference over PLDA."""
    return _ratios_on_first(rows, SETTING_RATIOS, kind)


def reading_rows(rows: Rows, kind: str) -> Cells:
    """Cells of the table of readings of the published formulas, one corpus each."""
    return _ratios_on_first(rows, READINGS, kind)


def _ratios_on_first(rows: Rows, names: Mapping[str, str], kind: str) -> Cells:
    cells = [[*HEAD, *names]]
    for row in drawn(rows):
        if row["level"] is None:
            continue
        found = [first_ratio(row["systems"], *COMPARED[name], kind) for name in names.values()]
        cells.append([*heads(row), *found])
    return cells


def first_ratio(systems: Mapping[str, Any], joint: str, plda: str, kind: str) -> str:
    """Return the ratio of two systems on the first corpus."""
    if joint not in systems or plda not in systems:
        return "-"
    return cell(ratio(*(np.array([systems[name][0][kind]]) for name in (joint, plda))))


def simulator_rows(rows: Rows) -> Cells:
    """Cells of the table of the simulator's settings."""
    head = ["setting", "PLDA: IC", "Total", "exact / PLDA: IC", "Total", "printed / PLDA: IC"]
    cells = [head]
    for name, row in rows.items():
        if "setting" not in row:
            continue
        plda = [f"{100 * row['systems']['PLDA'][0][kind]:.2f}" for kind in ("IC", "Total")]
        exact = [cell(row["ratios"]["exact"][kind]) for kind in ("IC", "Total")]
        printed = cell(row["ratios"]["printed formulas, appendix"]["IC"])
        cells.append([name.removeprefix("simulator, "), *plda, *exact, printed])
    return cells


if __name__ == "__main__":
    main()
