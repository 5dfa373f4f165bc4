"""Make the default models of the service: extractors' vectors of pass-phrases, a joint model, calibration and errors.

\b
python benchmarks/service_model.py digits AUDIOMNIST VECTORS.npz
    joins spoken digits (AudioMNIST, MIT licence) into pass-phrases of three to six, over rooms, noises and channels
    that are drawn, and makes their vectors with campplus and words
python benchmarks/service_model.py network CORPUS NETWORK.onnx VECTORS.npz
    trains the small network of the demo on synthetic speech (mvplda experiment synthetic makes it), and its vectors
python benchmarks/service_model.py fit MODEL.safetensors WORDS.json VECTORS.npz [MORE.npz]
    fits the model on all speakers, calibrates it and measures its errors on speakers that are held out in turn, and
    writes it, with what it rests on beside it (MODEL.json); WORDS.json says what is to be said about it

The model that comes with mvplda was made from part of this, for want of time: 42 of the 60 speakers of AudioMNIST, nine
of them with 20 of the 40 phrases, and 1,200 vectors of the synthetic corpus (30 speakers, 40 phrases, one session).
"""

from __future__ import annotations

import csv
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from mvplda import Bundle, MultiviewPLDA, load_extractor
from mvplda.extractors.frontends import make_frames
from mvplda.extractors.network import OnnxExtractor
from mvplda.extractors.recipe import Features, Network, Recipe, Samples, to_toml
from mvplda.models.experts import weigh_experts
from mvplda.preprocessing import LengthNormalisation, Reduction
from mvplda.serve.decisions import KINDS
from mvplda.serve.model import Calibration, Cell, ServiceModel, log_likelihoods, slug
from mvplda.speech.features import Channel, Gain, Noise, Room, augment, read_audio
from mvplda.speech.features import Recipe as Conditions

RATE = 16000
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
PHRASES, SESSIONS = 40, 4
CONDITIONS = Conditions(
    steps=(
        Room(probability=0.3, t60_s=(0.1, 0.5)),
        Channel(probability=0.5, gain_db=(-6.0, 6.0), low_hz=(20.0, 200.0), high_hz=(5000.0, 8000.0)),
        Noise(probability=0.6, snr_db=(12.0, 35.0), kinds=("white", "pink")),
        Gain(),
    )
)
SMALL = Recipe(
    name="small",
    description="A small network of mvplda, trained on 40 synthetic voices: it shows how things work, no more",
    licence="Apache-2.0",
    views=("speaker", "phrase"),
    samples=Samples(level="peak"),
    features=Features(bins=40),
    network=Network("frames", "lengths", "vectors"),
)

# -- vectors -------------------------------------------------------------------------------


def phrases(rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Sequences of digits that all differ, of three to six."""
    found: dict[tuple[int, ...], None] = {}
    while len(found) < PHRASES:
        found[tuple(rng.integers(0, 10, rng.integers(3, 7)).tolist())] = None
    return list(found)


def said(clips: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """Digits one after the other, with short pauses; between them lies what a quiet microphone hears."""
    pauses = [np.zeros(int(rng.uniform(0.02, 0.15) * RATE), np.float32) for _ in range(len(clips) + 1)]
    joined = np.concatenate([part for pair in zip(pauses, [*clips, pauses[0]], strict=True) for part in pair])
    joined /= max(float(np.abs(joined).max()), 1e-6) * 2
    return augment(joined + rng.normal(0, 10 ** (-rng.uniform(55, 75) / 20), len(joined)), CONDITIONS, rng, rate=RATE)


def rows_of(root: Path) -> dict[str, list[dict[str, str]]]:
    by_speaker: dict[str, list[dict[str, str]]] = {}
    with (root / "index.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            by_speaker.setdefault(row["speaker"], []).append(row)
    return by_speaker


def digit_phrases(root: Path) -> Iterator[tuple[str, str, int, np.ndarray]]:
    texts = phrases(np.random.default_rng(0))
    for k, (speaker, rows) in enumerate(sorted(rows_of(root).items())):
        own = np.random.default_rng([1, k])
        samples = read_audio(root / f"{speaker}.flac", RATE)
        clips: dict[int, list[np.ndarray]] = {}
        for row in rows:
            start, length = int(row["start"]), int(row["length"])
            clips.setdefault(int(row["phrase"]), []).append(samples[start : start + length])
        for text in texts:
            for session in range(SESSIONS):
                # five takes of a digit a session: none is in two
                takes = [clips[d][int(own.integers(5 * session, 5 * session + 5))] for d in text]
                yield speaker, slug(" ".join(DIGITS[d] for d in text)), session, said(takes, own)


def synthetic_phrases(root: Path, sessions: int = 2) -> Iterator[tuple[str, str, int, np.ndarray]]:
    for k, (speaker, rows) in enumerate(sorted(rows_of(root).items())):
        own = np.random.default_rng([2, k])
        samples = read_audio(root / f"{speaker}.flac", RATE)
        for row in rows:
            if int(row["session"]) < sessions:
                start, length = int(row["start"]), int(row["length"])
                clip = samples[start : start + length]
                yield speaker, row["phrase"], int(row["session"]), augment(clip, CONDITIONS, own, rate=RATE)


def write(path: Path, X: list[np.ndarray], labels: list[tuple[str, str, int]], name: str) -> None:
    speaker, phrase, session = map(np.asarray, zip(*labels, strict=True))
    np.savez(path, X=np.asarray(X), speaker=speaker, phrase=phrase, session=session, extractor=name)


def make_digits(root: Path, output: Path) -> None:
    extractor = load_extractor(["campplus", "words"])
    X, labels = [], []
    for *label, samples in digit_phrases(root):
        X.append(extractor(samples, RATE))
        labels.append(tuple(label))
    write(output, X, labels, extractor.name)  # type: ignore[arg-type]


def make_network(root: Path, network: Path, output: Path) -> None:
    from mvplda.speech.features import FeatureSet
    from mvplda.speech.networks import ModernNetwork, default_training, export_onnx, train

    labels, frames = [], []
    for *label, samples in synthetic_phrases(root):
        levelled = samples * np.float32(SMALL.samples.level_value / max(float(np.abs(samples).max()), 1e-9))
        labels.append(tuple(label))
        frames.append(make_frames(levelled, SMALL))
    speaker, phrase, _ = map(np.asarray, zip(*labels, strict=True))
    trained = np.isin(speaker, np.unique(speaker)[:40])
    features = FeatureSet.from_utterances(
        np.arange(trained.sum()).astype(str), [f for f, t in zip(frames, trained, strict=True) if t]
    )
    small = ModernNetwork(channels=64, pooled=96, attention=48, embedding=128)
    training = default_training(small, epochs=10, batch=64, hold_out=0.2)
    made = train(features, {"speaker": speaker[trained], "phrase": phrase[trained]}, small, training, verbose=True)
    export_onnx(made, network)
    network.with_suffix(".toml").write_text(to_toml(SMALL), encoding="utf-8")
    extractor = OnnxExtractor(network)
    golden = extractor.golden()
    network.with_suffix(".toml").write_text(
        to_toml(SMALL.__class__(**{**vars(SMALL), "golden": golden})), encoding="utf-8"
    )
    extractor = load_extractor(network)  # type: ignore[assignment]
    X = [extractor._run(one[None])[0] for one in frames]
    write(output, X, labels, extractor.name)  # type: ignore[arg-type]


# -- model ---------------------------------------------------------------------------------

FOLDS = 3
GRID = np.arange(-6.0, 8.01, 0.25)
RESAMPLES = 200
DIMENSION, RANKS = 120, {"speaker": 40, "phrase": 30, "speaker:phrase": 30}


class Table:
    """Vectors with their labels; the first file is of real voices, and its mean is the model's."""

    def __init__(self, paths: list[Path]) -> None:
        parts = [np.load(path) for path in paths]
        self.mean = parts[0]["X"].mean(axis=0, dtype=np.float64)
        moved = [p["X"] - p["X"].mean(axis=0, dtype=np.float64) + self.mean for p in parts]
        self.X = np.concatenate(moved)
        self.speaker = np.concatenate([[f"{k} {name}" for name in p["speaker"]] for k, p in enumerate(parts)])
        self.phrase = np.concatenate([[slug(name) for name in p["phrase"]] for p in parts])
        self.session = np.concatenate([p["session"] for p in parts])
        self.real = np.char.startswith(self.speaker, "0 ")
        self.extractor = str(parts[0]["extractor"])
        assert all(str(p["extractor"]) == self.extractor for p in parts)

    def fit(self, rows: np.ndarray) -> Bundle:
        scorer = MultiviewPLDA(RANKS, noise="full", noise_shrinkage=0.1, max_iter=30, tol=1e-4)
        steps = [("reduce", Reduction(DIMENSION)), ("length", LengthNormalisation())]
        bundle = Bundle(Pipeline(steps), scorer, extractor=self.extractor)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of iterations and of sets that share no class
            bundle.fit(self.X[rows], {"speaker": self.speaker[rows], "phrase": self.phrase[rows]})
        return bundle


def fold_trials(table: Table, bundle: Bundle, out: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Evidence (n, 4), the number of the true account, and (n, 2) speakers, of all trials among rows held out."""
    first = table.session[out] < table.session[out].max()  # all sessions but the last
    enrol, test = out[first], out[~first]
    names = np.char.add(np.char.add(table.speaker[enrol], "|"), table.phrase[enrol])
    profiles = bundle.enrol(table.X[enrol], names)
    said = log_likelihoods(bundle.fitted_scorer, profiles, bundle.enrol(table.X[test]))
    owner, phrase = (np.array(part) for part in zip(*(name.split("|") for name in profiles.ids), strict=True))
    same = owner[:, None] == table.speaker[test], phrase[:, None] == table.phrase[test]
    truth = np.where(same[0], np.where(same[1], 0, 1), np.where(same[1], 2, 3))
    people = np.stack(np.broadcast_arrays(owner[:, None], table.speaker[test]), axis=-1)
    return said.reshape(4, -1).T, truth.ravel(), people.reshape(-1, 2)


def prompted_trials(
    table: Table, model: ServiceModel, out: np.ndarray, rng: Any, each: int
) -> tuple[np.ndarray, np.ndarray]:
    """Evidence of tests that were asked for a phrase that training knows and the profile has not said."""
    X = model.prepare(table.X[out])
    speaker, phrase, session = table.speaker[out], table.phrase[out], table.session[out]
    known = [p for p in np.unique(phrase) if p in model.phrases]
    said, truth = [], []
    while len(truth) < 4 * each:
        kind = len(truth) % 4
        own, asked, other = rng.choice(known, 3, replace=False)
        who, stranger = rng.choice(np.unique(speaker), 2, replace=False)
        enrolled = (speaker == who) & (phrase == own) & (session < session.max())
        heard = (speaker == (who if kind < 2 else stranger)) & (phrase == (asked if kind in (0, 2) else other))
        tests = X[heard & (session == session.max())]
        if len(tests) and enrolled.any():  # not everybody says everything
            cells = [Cell(own, X[enrolled].sum(axis=0), int(enrolled.sum()))]
            said.append(model.evidence(cells, [Cell(asked, tests[0], 1)], True))
            truth.append(kind)
    return np.array(said), np.array(truth)


def calibration_of(said: np.ndarray, truth: np.ndarray) -> Calibration:
    factors, offsets = weigh_experts(said[:, :, None], truth)
    return Calibration(float(factors[0]), tuple(float(o) for o in offsets))  # type: ignore[arg-type]


def llrs_of(evidence: np.ndarray, doubt: float) -> np.ndarray:
    logs = evidence - np.logaddexp.reduce(evidence, axis=1)[:, None]
    logs = np.logaddexp(np.log1p(-doubt) + logs, np.log(doubt / 4))
    return np.asarray(logs[:, 0] - np.logaddexp.reduce(logs[:, 1:], axis=1) + np.log(3))


def errors_of(llrs: np.ndarray, truth: np.ndarray, people: np.ndarray) -> dict[str, Any]:
    """Shares by threshold, with intervals over speakers; the kinds of impostors weigh the same."""
    names, codes = np.unique(people, return_inverse=True)
    codes = codes.reshape(people.shape)
    bins = np.searchsorted(GRID, llrs, side="right")  # thresholds at or below the LLR
    counts = np.zeros((4, len(names), len(names), len(GRID) + 1))
    np.add.at(counts, (truth, codes[:, 0], codes[:, 1], bins), 1)
    accepted = counts[..., ::-1].cumsum(axis=-1)[..., ::-1][..., 1:]
    totals = counts.sum(axis=-1)

    def shares(weights: np.ndarray) -> np.ndarray:
        pair = np.outer(weights, weights) if weights.max() > 1 or weights.min() < 1 else np.ones_like(totals[0])
        own = np.diag(weights)
        found = []
        for kind in range(4):
            w = own if kind < 2 else pair
            found.append(np.einsum("ij,ijt->t", w, accepted[kind]) / max((w * totals[kind]).sum(), 1e-9))
        return np.array(found)

    plain = shares(np.ones(len(names)))
    rng = np.random.default_rng(0)
    drawn = np.array(
        [
            shares(np.bincount(rng.integers(0, len(names), len(names)), minlength=len(names)).astype(float))
            for _ in range(RESAMPLES)
        ]
    )
    pairs = int((totals[2] > 0).sum())
    said = {}
    for name, of, trials in (
        ("far", lambda s: s[..., 1:, :].mean(axis=-2), pairs),
        ("frr", lambda s: 1 - s[..., 0, :], len(names)),
    ):
        low, high = np.quantile(of(drawn), [0.025, 0.975], axis=0)
        none = 1 - 0.025 ** (1 / trials)  # what so many people who never failed leave possible
        said[name] = np.round(np.stack([of(plain), low, np.maximum(high, none)], axis=1), 5).tolist()
    kinds = {k: {"far": np.round(plain[i], 5).tolist()} for i, k in enumerate(KINDS) if i}
    trials = {k: int((truth == i).sum()) for i, k in enumerate(KINDS)}
    return {
        "thresholds": GRID.tolist(),
        **said,
        "byKind": kinds,
        "people": len(names),
        "pairs": pairs,
        "trials": trials,
    }


def fit_model(output: Path, about: Path, *paths: Path) -> None:
    table = Table(list(paths))
    speakers, rng = np.unique(table.speaker), np.random.default_rng(0)
    dealt = dict(zip(speakers, rng.permutation(len(speakers)) % FOLDS, strict=True))
    fold = np.array([dealt[name] for name in table.speaker])
    kept = np.unique(table.phrase)[rng.permutation(len(np.unique(table.phrase))) % 3 > 0]
    seen = np.isin(table.phrase, kept)
    open_trials, prompted = [], []
    for f in range(FOLDS):
        bundle = table.fit(np.flatnonzero((fold != f) & seen))
        held = np.flatnonzero((fold == f) & table.real)
        open_trials.append(fold_trials(table, bundle, held[~seen[held]]))  # new people, who say new phrases
        _trim(bundle, table)
        model = ServiceModel(bundle, None, {}, b"")
        prompted.append(prompted_trials(table, model, held[seen[held]], rng, 40))
        print("fold", f, len(open_trials[-1][1]), flush=True)
    pairs = sum(len(np.unique(p[t == 2], axis=0)) for _, t, p in open_trials)
    doubt = 4 / (pairs / 3 + 3)
    llrs = []
    for f in range(FOLDS):  # each calibrated by the others
        others = [t for g, t in enumerate(open_trials) if g != f]
        own = calibration_of(np.concatenate([o[0] for o in others]), np.concatenate([o[1] for o in others]))
        llrs.append(llrs_of(own(open_trials[f][0]), doubt))
    truth, people = (np.concatenate([t[i] for t in open_trials]) for i in (1, 2))
    errors = errors_of(np.concatenate(llrs), truth, people)
    calibrations = {
        "enrolled": calibration_of(np.concatenate([t[0] for t in open_trials]), truth),
        "prompted": calibration_of(*(np.concatenate([t[i] for t in prompted]) for i in (0, 1))),
    }
    said, kinds = (np.concatenate([t[i] for t in prompted]) for i in (0, 1))
    right = llrs_of(calibrations["prompted"](said), doubt)
    print("prompted: accepted from 4.6 on", {k: float((right[kinds == i] >= 4.6).mean()) for i, k in enumerate(KINDS)})
    for t in (0.0, 2.5, 4.5):
        row = int(np.searchsorted(GRID, t))
        print(
            t,
            "far",
            errors["far"][row],
            "frr",
            errors["frr"][row],
            {k: v["far"][row] for k, v in errors["byKind"].items()},
        )
    bundle = table.fit(np.arange(len(table.X)))
    _trim(bundle, table)
    bundle.save(output)
    words = json.loads(about.read_text(encoding="utf-8"))
    plain = {mode: {"factor": c.factor, "offsets": list(c.offsets)} for mode, c in calibrations.items()}
    words |= {"name": output.stem, "doubt": doubt, "calibration": plain, "errors": errors}
    words["data"] |= {
        "speakers": len(np.unique(table.speaker[table.real])),
        "phrases": len(np.unique(table.phrase[table.real])),
    }
    words["data"]["trials"] = sum(errors["trials"].values())
    output.with_suffix(".json").write_text(json.dumps(words, separators=(",", ":")) + "\n", encoding="utf-8")
    print("factor and offsets", plain, "doubt", doubt, "bytes", output.stat().st_size)


def _trim(bundle: Bundle, table: Table) -> None:
    """Keep what is known of real people's phrases, and nothing of any speaker."""
    scorer = bundle.fitted_scorer
    for view in [view for view in scorer.class_covariances_ if view != "phrase"]:
        del scorer.class_covariances_[view], scorer.class_means_[view]
        scorer.classes_[view] = scorer.classes_[view][:0]
    names = scorer.classes_["phrase"]
    real = np.isin(names, np.unique(table.phrase[table.real]))
    scorer.class_means_["phrase"] = scorer.class_means_["phrase"][: len(names)][real]
    scorer.class_covariances_["phrase"] = scorer.class_covariances_["phrase"][: len(names)][real]
    scorer.classes_["phrase"] = names[real]


if __name__ == "__main__":
    {"digits": make_digits, "network": make_network, "fit": fit_model}[sys.argv[1]](*map(Path, sys.argv[2:]))
