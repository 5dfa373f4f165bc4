"""Make the default model: recordings of several corpora in several conditions, each corpus judged by the others.

::

    python -m mvplda.speech.defaults vectors WORK --audiomnist A --speech-commands S --cvau C
    python -m mvplda.speech.defaults model WORK

The first step makes vectors of the recordings, clean and as they sound over a telephone, in noise and in rooms, and
can be interrupted. The second fits `DomainPLDA`, calibrates it on corpora that were left out, measures what it gets
wrong there, and writes the model file of the package and the results.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from .._optional import need
from .._progress import Progress
from .._typing import Array, IntArray
from ..bundle import Bundle
from ..calibration import HypothesisCalibrator
from ..decisions import OperatingPoint
from ..distributed.engines import ordered_map
from ..exceptions import DataError
from ..extractors.speech import Part
from ..metrics import eer
from ..models.domain import DomainPLDA
from ..persistence import write_atomically
from ..voices import DEFAULT_MODEL
from .augmentation import in_room, over_channel, with_noise
from .corpora import Corpus, load_corpus

RATE = 16000
EXTRACTORS = ("campplus", "words")
BLOCKS = {"campplus": (192, "speaker"), "words": (288, "phrase")}
DELTA = {"campplus": 0.08, "words": 0.008}
"""Variance of domains, by block. That of words is small on purpose: where all say one phrase, what is the phrase and
what the domain cannot be told apart, and a large variance would take the phrase away (docs/choose.md)."""

CONDITIONS = ("telephone", "noise", "room", "mixed")
EVERY = {"audiomnist": 2}
"""Of AudioMNIST every second person, so that its 60 do not outnumber the others."""

TAKES = 3
"""Of AudioMNIST, in which all takes are alike, so many."""

JOINED = ((1, 2, 3), (3, 2, 1), (1, 2, 9), (4, 7, 0, 5), (8, 6, 2, 9, 3), (0, 3, 5, 8))
"""Digits that are joined into pass-phrases; some are near to each other on purpose."""

DEPLOYMENTS = ((3, None), (20, None), (20, 1), (10, 3))
"""People and phrases that are enrolled together, in the trials that calibrate: None is all phrases."""

FARS = (0.01, 0.05, 0.02, 0.005)
TESTS = 300
TRIALS = 500
"""Tests of a condition, and trials of a kind, in one deployment."""

BOOTSTRAP = 500
FEWEST_OWNERS = 20
"""Trials of owners without which a row of results says nothing."""

BASIS = "the default model, of three corpora in five conditions, in the domain that enrolments show"
LICENCE = (
    "that of the package; trained on AudioMNIST (MIT), Speech Commands (CC BY 4.0) and C-VAU (MIT)"
)
"""What cards tell."""

KINDS = ("TC", "TW", "IC", "IW")


@dataclass(frozen=True)
class Recording:
    """One recording of somebody who says something."""

    samples: NDArray[np.float32]
    domain: str
    speaker: str
    phrase: str
    take: str


# -- recordings ------------------------------------------------------------------------------


def audiomnist(corpus: Corpus, rows: IntArray) -> Iterator[Recording]:
    """Digits of one person, and pass-phrases joined of them; each joined take is of one repetition of the digits."""
    clips: dict[tuple[int, int], NDArray[np.float32]] = {}
    speaker = str(corpus.labels["speaker"][rows[0]])
    sessions = corpus.sessions
    assert sessions is not None
    for row in rows:
        take = int(sessions[row])
        if take < TAKES:
            digit = str(corpus.labels["phrase"][row])
            samples = read(corpus, row)
            clips[int(digit), take] = samples
            yield Recording(samples, "digits", speaker, digit, str(take))
    rng = np.random.default_rng(int(speaker))
    for digits in JOINED:
        for take in range(TAKES):
            parts = [clips[digit, take] for digit in digits]
            phrase = "-".join(map(str, digits))
            yield Recording(joined(parts, rng), "digits joined", speaker, phrase, str(take))


def speech_commands(corpus: Corpus, rows: IntArray) -> Iterator[Recording]:
    """Words of one person, and phrases of three words where there are enough."""
    clips: dict[str, list[NDArray[np.float32]]] = {}
    speaker = str(corpus.labels["speaker"][rows[0]])
    for row in rows:
        word = str(corpus.labels["phrase"][row])
        samples = read(corpus, row)
        clips.setdefault(word, []).append(samples)
        yield Recording(samples, "commands", speaker, word, f"{len(clips[word]):02d}")
    words = sorted(word for word, takes in clips.items() if len(takes) > 1)
    rng = np.random.default_rng(len(rows))
    for k in range(6 if len(words) >= 4 else 0):
        phrase = [words[(k + step) % len(words)] for step in (0, 1, 2 + k % 2)]
        for take in range(2):
            # without the silence around every word, which nobody makes within a phrase
            parts = [Part(clips[word][take], RATE).cut(0.05) for word in phrase]
            name = "-".join(phrase)
            yield Recording(joined(parts, rng), "commands joined", speaker, name, str(take))


def cvau(corpus: Corpus, rows: IntArray) -> Iterator[Recording]:
    """Pass-phrases of one person, of all campaigns."""
    for row in rows:
        speaker = str(corpus.labels["speaker"][row])
        phrase = str(corpus.labels["phrase"][row])
        yield Recording(read(corpus, row), "pass-phrases", speaker, phrase, str(corpus.ids[row]))


SOURCES = {"audiomnist": audiomnist, "speech-commands": speech_commands, "cvau": cvau}
GROUPS = {
    "audiomnist": ("digits", "digits joined"),
    "speech-commands": ("commands", "commands joined"),
    "cvau": ("pass-phrases",),
}
"""Domains of every corpus: a corpus is left out with all of them."""


ONE_TAKE = GROUPS["speech-commands"]
"""Domains in which few cells have more than two takes: one of them enrols."""


def read(corpus: Corpus, row: int) -> NDArray[np.float32]:
    from ..extractors.sound import read_audio

    assert corpus.clips is not None
    return read_audio(corpus.clips[row], RATE)


def joined(clips: Sequence[NDArray[np.float32]], rng: np.random.Generator) -> NDArray[np.float32]:
    """Recordings one after the other with short pauses; between them lies what a quiet microphone picks up."""
    parts = []
    for clip in clips:
        parts += [np.zeros(int(rng.uniform(0.02, 0.15) * RATE), dtype=np.float32), clip]
    parts.append(np.zeros(int(rng.uniform(0.05, 0.3) * RATE), dtype=np.float32))
    samples = np.concatenate(parts)
    level = float(np.abs(samples).max()) * 10 ** (-rng.uniform(45, 65) / 20)
    return (samples + rng.normal(0, level, len(samples))).astype(np.float32)


def condition(samples: NDArray[Any], name: str, rng: np.random.Generator) -> NDArray[np.float32]:
    """The recording as it would sound in a condition."""
    wave = samples.astype(np.float64)
    wave *= 0.5 / max(float(np.abs(wave).max()), 1e-9)
    if name == "telephone":
        wave = telephone(wave)
    elif name == "noise":
        wave = with_noise(wave, 20.0, bool(rng.random() < 0.5), rng)
    elif name == "room":
        wave = in_room(wave, rng.uniform(0.2, 0.6), rng.uniform(0.0, 12.0), RATE, rng)
    elif name == "mixed":
        wave = over_channel(wave, rng.uniform(20, 300), rng.uniform(3400, 8000), RATE, rng)
        wave = with_noise(wave, rng.uniform(12, 30), bool(rng.random() < 0.5), rng)
    return wave.astype(np.float32)


def telephone(wave: Array) -> Array:
    """300 to 3400 Hz, 8000 samples per second of 8 bits by the mu law (ITU-T G.711)."""
    from scipy.signal import butter, sosfiltfilt

    soxr = need("soxr")
    narrow = sosfiltfilt(butter(4, (300, 3400), "bandpass", fs=RATE, output="sos"), wave)
    low = soxr.resample(narrow, RATE, RATE // 2)
    low = low / max(float(np.abs(low).max()), 1e-9) * 0.5
    packed = np.sign(low) * np.log1p(255 * np.abs(low)) / np.log(256)
    packed = np.round(packed * 127) / 127
    unpacked = np.sign(packed) * np.expm1(np.abs(packed) * np.log(256)) / 255
    return np.asarray(soxr.resample(unpacked, RATE // 2, RATE))[: len(wave)]


# -- vectors ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Material:
    """Vectors of recordings with their labels; `group` is the corpus, `number` counts the takes of a cell."""

    vectors: Array
    group: NDArray[Any]
    domain: NDArray[Any]
    speaker: NDArray[Any]
    phrase: NDArray[Any]
    condition: NDArray[Any]
    number: IntArray

    def take(self, rows: Any) -> Material:
        return Material(**{name: column[rows] for name, column in vars(self).items()})

    def labels(self) -> dict[str, NDArray[Any]]:
        return {"speaker": self.speaker, "phrase": self.phrase, "domain": self.domain}


@cache
def _extractor() -> Any:
    """One in every process; a telephone's band is left in its vectors, from which its shift is learnt."""
    from ..extractors import load_extractor

    extractor = load_extractor(list(EXTRACTORS), check=False)
    networks: list[Any] = list(extractor.networks)
    for network in networks:
        output = replace(network.recipe.output, narrow=())
        network.recipe = replace(network.recipe, output=output)
    return extractor


def vectors_of_person(corpus: Corpus, rows: IntArray) -> dict[str, list[Any]]:
    """Vectors of all recordings of one person, clean and in one condition each."""
    extractor = _extractor()
    columns: dict[str, list[Any]] = {
        name: [] for name in ("vectors", "domain", "speaker", "phrase", "condition", "take")
    }
    rng = np.random.default_rng(int(rows[0]))
    for number, one in enumerate(SOURCES[corpus.name](corpus, rows)):
        for name in ("clean", CONDITIONS[number % len(CONDITIONS)]):
            vector = extractor.embed(condition(one.samples, name, rng))
            values = (vector, one.domain, one.speaker, one.phrase, name, one.take)
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
    return columns


def write_vectors(folder: Path, name: str, root: Path) -> None:
    """Vectors of a corpus, in a file of the folder; nothing is done where it is there."""
    path = folder / f"{name}.npz"
    if path.is_file():
        return
    corpus = load_corpus(name, root)
    people = corpus.labels["speaker"]
    chosen = np.unique(people)[:: EVERY.get(name, 1)]
    rows = [np.flatnonzero(people == person) for person in chosen]
    found: list[dict[str, list[Any]]] = []
    progress = Progress(f"vectors of {name}", len(rows))
    work = partial(vectors_of_person, corpus)
    for columns in ordered_map(work, rows):
        found.append(columns)
        progress.step(len(found))
    progress.close()
    arrays = {key: np.asarray([x for part in found for x in part[key]]) for key in found[0]}
    arrays["vectors"] = arrays["vectors"].astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    saved: dict[str, Any] = dict(arrays)
    np.savez_compressed(path, **saved)


def read_material(folder: Path) -> Material:
    parts = []
    for name in GROUPS:
        path = folder / f"{name}.npz"
        if not path.is_file():
            raise DataError(f"{path} is not there: make vectors of {name} first")
        with np.load(path) as arrays:
            columns = {key: arrays[key] for key in arrays.files}
        cells = [
            "|".join(cell)
            for cell in zip(
                columns["domain"],
                columns["speaker"],
                columns["phrase"],
                columns["condition"],
                strict=True,
            )
        ]
        number = np.empty(len(cells), dtype=np.int64)
        seen: dict[str, int] = {}
        for row in np.lexsort((columns["take"], cells)):
            seen[cells[row]] = seen.get(cells[row], -1) + 1
            number[row] = seen[cells[row]]
        group = np.full(len(cells), name)
        keys = ("domain", "speaker", "phrase", "condition")
        domain, speaker, phrase, condition_of = (columns[key] for key in keys)
        vectors_of = columns["vectors"].astype(np.float64)
        parts.append(Material(vectors_of, group, domain, speaker, phrase, condition_of, number))
    names = [field.name for field in fields(Material)]
    joined_parts = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return Material(**joined_parts)


# -- deployments that a model has not seen -------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """Trials of one deployment in one condition: log-likelihoods of hypotheses, kinds, people, and two cosines."""

    domain: str
    condition: str
    people: int
    phrases: int | None
    logs: Mapping[Any, Array]
    truth: IntArray
    speaker: NDArray[Any]
    cosines: Mapping[str, Array]


def outcomes(
    model: DomainPLDA, material: Material, domain: str, deployments: Sequence[Any], seed: int = 0
) -> Iterator[Outcome]:
    """Trials of deployments in one domain: clean takes are enrolled, tests are of all conditions."""
    here = material.take(material.domain == domain)
    for people, phrases in deployments:
        rng = np.random.default_rng([seed, people, phrases or 0])
        chosen = rng.permutation(np.unique(here.speaker))[:people]
        some = here.take(np.isin(here.speaker, chosen))
        clean = some.condition == "clean"
        takes = 2 if some.number[clean].max() >= 2 and domain not in ONE_TAKE else 1
        enrol = np.flatnonzero(clean & (some.number < takes))
        if phrases is not None:
            names, counts = np.unique(some.phrase[enrol], return_counts=True)
            common = names[np.argsort(-counts, kind="stable")][: max(6, phrases)]
            enrol = enrol[np.isin(some.phrase[enrol], rng.permutation(common)[:phrases])]
        tests = {
            name: rng.permutation(
                np.flatnonzero(
                    (some.condition == name) & (some.number >= (takes if name == "clean" else 0))
                )
            )[:TESTS]
            for name in ("clean", *CONDITIONS)
        }
        yield from _deployment(model, some, enrol, tests, domain, (people, phrases), rng)


def _deployment(
    model: DomainPLDA,
    some: Material,
    enrol: IntArray,
    tests: Mapping[str, IntArray],
    domain: str,
    size: tuple[int, int | None],
    rng: np.random.Generator,
) -> Iterator[Outcome]:
    # people enrol with their phrases; each phrase of a person is tried as a profile of its own
    whole = model.enrol(some.vectors[enrol], some.speaker[enrol], {"phrase": some.phrase[enrol]})
    deployed = model.deployed(whole)
    cells = [f"{s}|{p}" for s, p in zip(some.speaker[enrol], some.phrase[enrol], strict=True)]
    profiles = model.enrol(some.vectors[enrol], cells)
    owner = np.asarray([name.split("|")[0] for name in profiles.ids.tolist()])
    phrase = np.asarray([name.split("|")[1] for name in profiles.ids.tolist()])
    for name, rows in tests.items():
        if not len(rows):
            continue
        against = model.enrol(some.vectors[rows])
        logs = deployed.log_likelihoods(profiles, against)
        same_speaker = np.equal.outer(owner, some.speaker[rows])
        same_phrase = np.equal.outer(phrase, some.phrase[rows])
        truth = np.where(same_speaker, np.where(same_phrase, 0, 1), np.where(same_phrase, 2, 3))
        places = [
            rng.permutation(np.flatnonzero(truth == kind))[:TRIALS] for kind in range(len(KINDS))
        ]
        kept = np.concatenate(places)
        yield Outcome(
            domain,
            name,
            *size,
            {h: np.asarray(values).ravel()[kept] for h, values in logs.items()},
            truth.ravel()[kept],
            np.repeat(owner, len(rows))[kept],
            {view: c.ravel()[kept] for view, c in _cosines(model, profiles.y, against.y).items()},
        )


def _cosines(model: DomainPLDA, enrolled: Any, tested: Any) -> dict[str, Array]:
    """Cosines about the mean of what is enrolled, by view: the floor."""
    found = {}
    for _, columns, view in model._columns():
        centre = (
            enrolled[:, columns] / np.linalg.norm(enrolled[:, columns], axis=1)[:, None]
        ).mean(0)
        sides = []
        for block in (enrolled[:, columns], tested[:, columns]):
            apart = block / np.linalg.norm(block, axis=1, keepdims=True) - centre
            sides.append(apart / np.maximum(np.linalg.norm(apart, axis=1, keepdims=True), 1e-9))
        found[view] = sides[0] @ sides[1].T
    return found


def calibrator_of(trials: Sequence[Outcome]) -> HypothesisCalibrator:
    """Calibration on deployments of left-out corpora, all domains weighing the same."""
    logs = {h: np.concatenate([one.logs[h] for one in trials]) for h in trials[0].logs}
    truth = np.concatenate([one.truth for one in trials])
    speakers = np.concatenate([one.speaker for one in trials])
    domains = np.concatenate([np.full(len(one.truth), one.domain) for one in trials])
    return HypothesisCalibrator().fit(logs, truth, speakers=speakers, corpora=domains)


def ratios(logs: Mapping[Any, Array], views: Sequence[str]) -> Array:
    """LLR of sharing some views, of calibrated log-likelihoods."""
    same = [values for h, values in logs.items() if set(views) <= set(h)]
    other = [values for h, values in logs.items() if not set(views) <= set(h)]
    above = np.logaddexp.reduce(same, axis=0) - np.log(len(same))
    return np.asarray(above - np.logaddexp.reduce(other, axis=0) + np.log(len(other)))


def worst_threshold(
    trials: Sequence[Outcome], calibrator: HypothesisCalibrator, views: Sequence[str], far: float
) -> float:
    """The threshold that no kind of impostor passes more often than `far`; domains weigh the same."""
    scores = np.concatenate([ratios(calibrator.transform(one.logs), views) for one in trials])
    truth = np.concatenate([one.truth for one in trials])
    domains = np.concatenate([np.full(len(one.truth), one.domain) for one in trials])
    limits = [0.0]
    for kind in impostor_kinds(views):
        rows = truth == kind
        names, counts = np.unique(domains[rows], return_counts=True)
        share = 1.0 / (counts[np.searchsorted(names, domains[rows])] * len(names))
        order = np.argsort(scores[rows])
        passed = 1.0 - np.cumsum(share[order])
        limits.append(float(scores[rows][order][np.searchsorted(-passed, -far)]))
    return max(limits)


def impostor_kinds(views: Sequence[str]) -> tuple[int, ...]:
    if set(views) == {"speaker", "phrase"}:
        return 1, 2, 3
    return (2, 3) if "speaker" in views else (1, 3)


QUESTIONS = (("speaker", "phrase"), ("speaker",), ("phrase",))


def telephone_shift(material: Material, groups: Sequence[str]) -> Array:
    """What a telephone's band adds to vectors of voices of length 1: the mean over the domains of some corpora."""
    width = BLOCKS["campplus"][0]
    shifts = []
    for group in groups:
        for domain in GROUPS[group]:
            here = material.domain == domain
            means = [
                unit(material.vectors[here & (material.condition == name), :width]).mean(axis=0)
                for name in ("telephone", "clean")
            ]
            shifts.append(means[0] - means[1])
    return np.asarray(np.mean(shifts, axis=0))


def without_telephone(material: Material, shift: Array) -> Material:
    """The vectors as the extractor gives them that takes the shift off."""
    vectors = material.vectors.copy()
    rows = material.condition == "telephone"
    vectors[rows, : len(shift)] = unit(vectors[rows, : len(shift)]) - shift
    return replace(material, vectors=vectors)


def unit(vectors: Array) -> Array:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def model_of(material: Material, groups: Sequence[str]) -> DomainPLDA:
    some = material.take(np.isin(material.group, groups))
    return DomainPLDA(BLOCKS, delta=DELTA).fit(some.vectors, some.labels())


def left_out(material: Material, groups: Sequence[str]) -> list[Outcome]:
    """Trials of every corpus of some, by a model of the others."""
    found: list[Outcome] = []
    for group in groups:
        model = model_of(material, [other for other in groups if other != group])
        for domain in GROUPS[group]:
            found += outcomes(model, material, domain, DEPLOYMENTS)
    return found


def judged(material: Material, group: str) -> list[dict[str, Any]]:
    """What a model that was fitted, calibrated and given its threshold by the other corpora does on one."""
    others = [name for name in GROUPS if name != group]
    material = without_telephone(material, telephone_shift(material, others))
    trials = left_out(material, others)
    calibrator = calibrator_of(trials)
    threshold = worst_threshold(trials, calibrator, QUESTIONS[0], FARS[0])
    model = model_of(material, others)
    rows = []
    for domain in GROUPS[group]:
        for one in outcomes(model, material, domain, DEPLOYMENTS[1:3], seed=1):
            if np.count_nonzero(one.truth == 0) >= FEWEST_OWNERS:
                rows.append(judged_row(one, calibrator, threshold))
    return rows


def judged_row(one: Outcome, calibrator: HypothesisCalibrator, threshold: float) -> dict[str, Any]:
    logs = calibrator.transform(one.logs)
    both = ratios(logs, QUESTIONS[0])
    row: dict[str, Any] = {
        "corpus left out": one.domain,
        "condition": one.condition,
        "people": one.people,
        "phrases": one.phrases or "all",
        "threshold": threshold,
        "accepted": {
            kind: float((both[one.truth == k] >= threshold).mean())
            for k, kind in enumerate(KINDS)
            if (one.truth == k).any()
        },
    }
    for view, same in (("speaker", (0, 1)), ("phrase", (0, 2))):
        truth = np.isin(one.truth, same)
        if truth.all() or not truth.any():
            continue
        scores = ratios(logs, (view,))
        row[f"EER {view}"] = float(eer(scores[truth], scores[~truth]))
        cosine = one.cosines[view]
        row[f"EER {view}, cosine"] = float(eer(cosine[truth], cosine[~truth]))
    words = ratios(logs, ("phrase",))
    if (one.truth == 1).any():
        row["other words noticed"] = float((words[one.truth == 1] < 0).mean())
    row["Cllr"] = cllr_by_kind(both, one.truth)
    return row


def cllr_by_kind(llrs: Array, truth: IntArray) -> float:
    """Cllr in bits, in which the kinds of impostors weigh the same."""
    costs = [np.logaddexp(0, llrs[truth == k]).mean() for k in (1, 2, 3) if (truth == k).any()]
    return float((np.logaddexp(0, -llrs[truth == 0]).mean() + np.mean(costs)) / 2 / np.log(2))


def make_bundle(material: Material, extractor: str) -> Bundle:
    """The model of all corpora, calibrated and given thresholds by leaving each of them out."""
    material = without_telephone(material, telephone_shift(material, list(GROUPS)))
    trials = left_out(material, list(GROUPS))
    calibrator = calibrator_of(trials)
    points = {}
    for views in QUESTIONS:
        points["+".join(views)] = [operating_point(trials, calibrator, views, far) for far in FARS]
    bundle = Bundle(None, model_of(material, list(GROUPS)), extractor=extractor)
    bundle.calibrations = dict.fromkeys(points, calibrator)
    bundle.points = points
    return bundle


def operating_point(
    trials: Sequence[Outcome], calibrator: HypothesisCalibrator, views: Sequence[str], far: float
) -> OperatingPoint:
    threshold = worst_threshold(trials, calibrator, views, far)
    scores = np.concatenate([ratios(calibrator.transform(one.logs), views) for one in trials])
    truth = np.concatenate([one.truth for one in trials])
    speakers = np.concatenate([one.speaker for one in trials])
    accepted = scores >= threshold
    rates = {}
    for kind in impostor_kinds(views):
        rows = truth == kind
        rates[KINDS[kind]] = share_over_people(accepted[rows], speakers[rows])
    owners = ~np.isin(truth, impostor_kinds(views))
    measured = {"far": rates, "frr": share_over_people(~accepted[owners], speakers[owners])}
    people = len(np.unique(speakers))
    basis = "corpora that were left out, in five conditions, all corpora weighing the same"
    return OperatingPoint(threshold, 0.0, far, measured, people, basis)


def share_over_people(happened: NDArray[np.bool_], speakers: NDArray[Any]) -> list[float]:
    """A share of trials, and the 95 % interval of a bootstrap over people; 3 / people where nothing happened."""
    people, codes = np.unique(speakers, return_inverse=True)
    counts = np.bincount(codes)
    hits = np.bincount(codes, happened)
    rng = np.random.default_rng(0)
    draws = rng.integers(0, len(people), (BOOTSTRAP, len(people)))
    shares = hits[draws].sum(axis=1) / counts[draws].sum(axis=1)
    low, high = np.quantile(shares, (0.025, 0.975))
    if not happened.any():
        high = 1 - 0.05 ** (1 / len(people))
    return [float(happened.mean()), float(low), float(high)]


@click.group()
def main() -> None:
    """Make the default model of the package."""


@main.command()
@click.argument("work", type=click.Path(path_type=Path))
@click.option("--audiomnist", type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--speech-commands", type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--cvau", type=click.Path(exists=True, path_type=Path), required=True)
def vectors(work: Path, **roots: Path) -> None:
    """Make vectors of the recordings of three corpora, in WORK."""
    for name, root in roots.items():
        write_vectors(work, name.replace("_", "-"), root)


@main.command()
@click.argument("work", type=click.Path(exists=True, path_type=Path))
def telephone_band(work: Path) -> None:
    """Write what a telephone's band adds to vectors of voices into the recipe of campplus.

    Fetch campplus again after that: its fingerprint changes.
    """
    shift = telephone_shift(read_material(work), list(GROUPS))
    path = Path(str(files("mvplda.extractors") / "recipes" / "campplus.toml"))
    text = path.read_text(encoding="utf-8")
    numbers = ", ".join(f"{number:.5f}" for number in shift)
    line = f"narrow = [{numbers}]"
    if re.search(r"(?m)^narrow = .*$", text):
        text = re.sub(r"(?m)^narrow = .*$", line, text)
    else:
        text = text.replace("[golden]", f"[output]\n{line}\n\n[golden]")
    write_atomically(path, text.encode())


@main.command()
@click.argument("work", type=click.Path(exists=True, path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=DEFAULT_MODEL, show_default=False
)
@click.option("--results", type=click.Path(path_type=Path), help="Where the results are written.")
def model(work: Path, output: Path, results: Path | None) -> None:
    """Fit, calibrate and measure the model of vectors in WORK."""
    from ..extractors import load_extractor
    from .experiment.provenance import provenance

    material = read_material(work)
    rows = []
    for group in GROUPS:
        rows += judged(material, group)
        click.echo(f"{group} left out: done")
    bundle = make_bundle(material, load_extractor(list(EXTRACTORS)).name)
    people = {g: len(np.unique(material.speaker[material.group == g])) for g in GROUPS}
    about_it = {"basis": BASIS, "licence": LICENCE}
    bundle.card = {"name": "default", **about_it, "people": people, "left_out": rows}
    bundle.save(output)
    click.echo("\n".join(table(rows)))
    if results is not None:
        results.mkdir(parents=True, exist_ok=True)
        about = provenance([work / f"{name}.npz" for name in GROUPS])
        points = {
            key: [point.to_dict() for point in some] for key, some in (bundle.points or {}).items()
        }
        text = json.dumps({"provenance": about, "points": points, "rows": rows}, indent=1)
        write_atomically(results / "results.json", text.encode())


HEAD = (
    "corpus left out",
    "condition",
    "owners accepted",
    "owners, other words",
    "impostors, right words",
    "voices: EER (cosine)",
    "words: EER (cosine)",
    "Cllr",
)


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines of a table: shares of trials that are accepted and EERs in %, of deployments with all phrases."""
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    for row in rows:
        if row["phrases"] != "all":
            continue
        accepted = row["accepted"]
        cells = [row["corpus left out"], row["condition"]]
        cells += [_percent(accepted.get(kind)) for kind in ("TC", "TW", "IC")]
        for view in ("speaker", "phrase"):
            own = _percent(row.get(f"EER {view}"))
            cells.append(f"{own} ({_percent(row.get(f'EER {view}, cosine'))})")
        cells.append(f"{row['Cllr']:.2f}")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"


if __name__ == "__main__":
    # by its own name, under which other processes find what they are to do
    from mvplda.speech.defaults import main as run

    run()
