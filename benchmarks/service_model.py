"""Make the default models of the service, and measure what they get wrong (benchmarks/service_trials.py).

\b
python -m benchmarks.service_model campplus-words WORK --audiomnist FOLDER
    AudioMNIST (MIT licence; the downloaded repository, or a packed folder): its digits are joined into pass-phrases of
    three to six, over rooms, noises and channels that are drawn. Every second person says 40 of them, four times each.
    Vectors are made by campplus and words (`mvplda extractor get campplus words`)
python -m benchmarks.service_model small WORK
    synthetic voices of espeak-ng alone; trains the small network of the demo first (needs torch)

WORK keeps what was made, and is gone on with after an interruption. MODEL.safetensors and MODEL.json go to OUTPUT, by
default where the service looks for them, and what was measured to results/service-model.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mvplda import load_extractor
from mvplda.extractors.frontends import make_frames
from mvplda.extractors.network import OnnxNetwork
from mvplda.extractors.reading import read_audio
from mvplda.extractors.recipe import Features, Network, Recipe, Samples, to_toml
from mvplda.metrics.evaluation import markdown_rows
from mvplda.serve.decisions import KINDS
from mvplda.serve.model import slug
from mvplda.speech.corpora import load_corpus
from mvplda.speech.corpora.synthetic import PHRASES
from mvplda.speech.frames import FeatureSet

from .augmentation import Channel, Gain, Noise, Room, augment
from .augmentation import Recipe as Conditions
from .service_trials import SESSIONS, Material, Table, measure

RATE = 16000
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TEXTS = (
    *PHRASES,
    "the blue boat sails home",
    "three small birds sing",
    "coffee with milk please",
    "good morning my friend",
    "a warm summer evening",
    "never lose your hat",
    "under the old bridge",
    "paper beats the rock",
    "follow the white rabbit",
    "bring me some water",
    "zero one two one eight",
    "five zero zero three four",
    "four two one six",
    "zero one four three eight",
    "four four six five",
    "seven seven nine",
    "two three six six six",
    "two nine zero zero nine",
    "two one three zero eight",
    "five two four one",
)
"""What the synthetic voices say."""
CONDITIONS = Conditions(
    steps=(
        Room(probability=0.3, t60_s=(0.1, 0.5)),
        Channel(
            probability=0.5, gain_db=(-6.0, 6.0), low_hz=(20.0, 200.0), high_hz=(5000.0, 8000.0)
        ),
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
TRAINED = 40
"""Of the 60 synthetic voices, those that the small network is trained on, by two sessions."""
Said = tuple[str, str, int, np.ndarray]
"""Speaker, label of the phrase, session and samples of a recording."""

# -- recordings ----------------------------------------------------------------------------


def sequences(rng: np.random.Generator) -> list[tuple[int, ...]]:
    """40 sequences of three to six digits that all differ."""
    found: dict[tuple[int, ...], None] = {}
    while len(found) < 40:
        found[tuple(rng.integers(0, 10, rng.integers(3, 7)).tolist())] = None
    return list(found)


def joined(clips: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """Digits one after the other, with short pauses; between them lies what a quiet microphone hears."""
    pauses = [
        np.zeros(int(rng.uniform(0.02, 0.15) * RATE), np.float32) for _ in range(len(clips) + 1)
    ]
    found = np.concatenate(
        [part for pair in zip(pauses, [*clips, pauses[0]], strict=True) for part in pair]
    )
    found /= max(float(np.abs(found).max()), 1e-6) * 2
    return augment(
        found + rng.normal(0, 10 ** (-rng.uniform(55, 75) / 20), len(found)),
        CONDITIONS,
        rng,
        rate=RATE,
    )


def digit_phrases(corpus: Any, k: int, speaker: str) -> Iterator[Said]:
    """The pass-phrases of a person; a session has five takes of a digit to draw from, none is in two."""
    own = np.random.default_rng([1, k])
    clips: dict[str, list[np.ndarray]] = {}
    for row in np.flatnonzero(corpus.labels["speaker"] == speaker):
        takes = clips.setdefault(str(corpus.labels["phrase"][row]), [])
        if len(takes) < 5 * SESSIONS:
            takes.append(read_audio(corpus.clips[row], RATE))
    for digits in sequences(np.random.default_rng(0)):
        for session in range(SESSIONS):
            takes = [clips[str(d)][int(own.integers(5 * session, 5 * session + 5))] for d in digits]
            yield speaker, slug(" ".join(DIGITS[d] for d in digits)), session, joined(takes, own)


def synthetic_phrases(corpus: Any, k: int, speaker: str, sessions: int) -> Iterator[Said]:
    own = np.random.default_rng([2, k])
    for row in np.flatnonzero(corpus.labels["speaker"] == speaker):
        if int(corpus.sessions[row]) < sessions:
            samples = augment(read_audio(corpus.clips[row], RATE), CONDITIONS, own, rate=RATE)
            yield speaker, str(corpus.labels["phrase"][row]), int(corpus.sessions[row]), samples


def synthetic(work: Path) -> Any:
    """60 voices that say 40 phrases four times."""
    settings = {"speakers": 60, "phrases": list(TEXTS), "sessions": SESSIONS, "random_state": 0}
    return load_corpus("synthetic", work / "synthetic-corpus", **settings, workers=1, verbose=True)


# -- vectors -------------------------------------------------------------------------------


def vectors_of(
    folder: Path,
    extractor: Any,
    corpus: Any,
    speakers: slice,
    phrases: Callable[[Any, int, str], Iterator[Said]],
) -> Table:
    """Vectors of some of the people of a corpus, a file a person."""
    folder.mkdir(parents=True, exist_ok=True)
    names = np.unique(corpus.labels["speaker"]).tolist()
    for k, name in list(enumerate(names))[speakers]:
        place = folder / f"{name}.npz"
        if not place.is_file():
            *labels, samples = zip(*phrases(corpus, k, name), strict=True)
            X = np.stack([extractor(one, RATE) for one in samples])
            np.savez(place, X=X, **dict(zip(("speaker", "phrase", "session"), labels, strict=True)))
            print(folder.name, name, flush=True)
    parts = [np.load(folder / f"{name}.npz") for name in names[speakers]]
    return Table(
        *(
            np.concatenate([part[what] for part in parts])
            for what in ("X", "speaker", "phrase", "session")
        )
    )


def make_network(work: Path, corpus: Any) -> Any:
    """The small network as an extractor, with values to check it by."""
    from mvplda.speech.networks import ModernNetwork, train, write_extractor

    network = work / "small.onnx"
    if not network.with_suffix(".toml").is_file():
        labels, frames = [], []
        for k, name in enumerate(np.unique(corpus.labels["speaker"])[:TRAINED].tolist()):
            for speaker, phrase, _, samples in synthetic_phrases(corpus, k, name, 2):
                level = SMALL.samples.level_value / max(float(np.abs(samples).max()), 1e-9)
                labels.append((speaker, phrase))
                frames.append(make_frames(samples * np.float32(level), SMALL))
        speakers, phrases = map(np.asarray, zip(*labels, strict=True))
        features = FeatureSet.of(np.arange(len(frames)).astype(str), frames)
        small = ModernNetwork(channels=64, pooled=96, attention=48, embedding=128)
        training = replace(small.usual_training(), epochs=10, batch=64)
        made = train(
            features, {"speaker": speakers, "phrase": phrases}, small, training, verbose=True
        )
        write_extractor(made, SMALL, network)
        golden = OnnxNetwork(network, SMALL).golden()
        network.with_suffix(".toml").write_text(
            to_toml(replace(SMALL, golden=golden)), encoding="utf-8"
        )
    return load_extractor(network)


# -- files ---------------------------------------------------------------------------------

HERE = Path(__file__).resolve().parents[1]
ABOUT: dict[str, dict[str, Any]] = {
    "campplus-words": {
        "notice": None,
        "far": {"prompted": 0.05, "sequence": 0.05},
        "basis": "AudioMNIST speakers saying sequences of digits. Half of the people choose calibrations and "
        "thresholds, and shares are of the other half, both ways: of people and phrases that neither the model nor "
        "these choices had met. No figure says how it carries over to other recordings",
        "data": {
            "name": "AudioMNIST: every second of its 60 people, who read digits in quiet rooms, each in one sitting; "
            "digits are joined into phrases of three to six, over drawn rooms, noises and channels. Training has "
            "synthetic speech of espeak-ng besides, for phrases that are no digits",
            "licence": "MIT (AudioMNIST), Apache-2.0 (extractors)",
        },
    },
    "small": {
        "demoNetwork": True,
        "notice": "A small network listens here that has only ever heard 40 synthetic voices: it shows how the service "
        "works, and protects nothing. Fetch real ones with: mvplda extractor get campplus words",
        "far": {"enrolled": 0.05, "prompted": 0.05, "sequence": 0.05},
        "basis": "20 synthetic people of espeak-ng whom neither the network nor the model nor its calibration nor the "
        "choice of thresholds had met, saying phrases that the network alone had met, from others; of real people "
        "nothing is known",
        "data": {
            "name": "Synthetic speech of espeak-ng, in drawn rooms, noises and channels",
            "licence": "Apache-2.0",
        },
    },
}


def write(name: str, material: Material, output: Path, results: Path) -> None:
    said, cases = measure(material)
    place = output / f"{name}.safetensors"
    material.fit(np.ones(len(material.X), dtype=bool)).bundle.save(place)
    about = ABOUT[name] | {"name": name, **said}
    people, phrases = (
        len(np.unique(labels[material.own])) for labels in (material.speaker, material.phrase)
    )
    about["data"] |= {
        "speakers": people,
        "phrases": phrases,
        "madeBy": "benchmarks/service_model.py",
    }
    place.with_suffix(".json").write_text(
        json.dumps(about, separators=(",", ":")) + "\n", encoding="utf-8"
    )
    results.mkdir(parents=True, exist_ok=True)
    found = {
        "data": about["data"],
        "doubt": about["doubt"],
        "calibration": about["calibration"],
        "cases": cases,
    }
    found["points"] = {mode: errors["points"] for mode, errors in about["errors"].items()}
    (results / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (results / f"{name}.md").write_text(page(name, found), encoding="utf-8")
    print(page(name, found), place.stat().st_size, "bytes")


def page(name: str, found: dict[str, Any]) -> str:
    """Tables for people: what was wanted and what was measured, and who passed whom."""

    def share(value: float, ends: list[float]) -> str:
        return f"{100 * value:.2f} [{100 * ends[0]:.2f}, {100 * ends[1]:.2f}]"

    lines = [f"# {name}", "", "Shares in %, with 95 % intervals over people.", ""]
    for mode, points in found["points"].items():
        rows = [["wanted FAR", "threshold", "FAR", "TW", "IC", "IW", "FRR"]]
        for p in points:
            kinds = [f"{100 * p['farByKind'][kind]:.2f}" for kind in KINDS[1:]]
            own = [
                f"{100 * p['wantedFar']:g}",
                f"{p['threshold']:.2f}",
                share(p["far"], p["farInterval"]),
            ]
            rows.append([*own, *kinds, share(p["frr"], p["frrInterval"])])
        lines += [f"## {mode}", "", *markdown_rows(rows), ""]
    rows = [["who speaks", "wanted FAR", "", "share", "trials"]]
    for c in found["cases"]:
        wanted = f"{100 * c['wantedFar']:g}"
        rows.append(
            [c["case"], wanted, c["wrong"], share(c["share"], c["interval"]), f"{c['trials']:,}"]
        )
    return "\n".join([*lines, "## By who speaks", "", *markdown_rows(rows), ""])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", choices=list(ABOUT))
    parser.add_argument("work", type=Path)
    parser.add_argument("--audiomnist", type=Path)
    parser.add_argument("--output", type=Path, default=HERE / "src/mvplda/serve/models")
    parser.add_argument("--results", type=Path, default=HERE / "results/service-model")
    given = parser.parse_args()
    voices = synthetic(given.work)
    if given.model == "small":
        extractor = make_network(given.work, voices)
        folder, new = given.work / "small", slice(TRAINED, None)
        other = vectors_of(
            folder, extractor, voices, slice(TRAINED), lambda *of: synthetic_phrases(*of, 2)
        )
        table = vectors_of(
            folder, extractor, voices, new, lambda *of: synthetic_phrases(*of, SESSIONS)
        )
        for suffix in (".onnx", ".toml"):
            shutil.copy(given.work / f"small{suffix}", given.output)
        material = Material.of(table, other, extractor.name, every_phrase=True)
    else:
        extractor = load_extractor(["campplus", "words"])
        folder, corpus = given.work / "audiomnist", load_corpus("audiomnist", given.audiomnist)
        table = vectors_of(folder, extractor, corpus, slice(None, None, 2), digit_phrases)
        folder = given.work / "synthetic-campplus-words"
        other = vectors_of(
            folder, extractor, voices, slice(1, None, 2), lambda *of: synthetic_phrases(*of, 1)
        )
        material = Material.of(table, other, extractor.name)
    write(given.model, material, given.output, given.results)


if __name__ == "__main__":
    main()
