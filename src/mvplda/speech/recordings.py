"""Vectors of recordings of three corpora, clean and as they sound over a telephone, in noise and in rooms.

What the default model is made of (`mvplda.speech.defaults`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from .._optional import need
from .._progress import Progress
from .._typing import Array, IntArray, Json, Names
from ..distributed import ordered_map
from ..exceptions import DataError
from ..extractors import Extractor, load_extractor
from ..extractors.quality import Part
from ..extractors.sound import read_audio
from .corpora import Corpus, load_corpus
from .frames import in_room, over_channel, with_noise

Samples = NDArray[np.float32]
RATE = 16000
COLUMNS = ("vectors", "domain", "speaker", "phrase", "condition", "take")
EXTRACTORS = ("campplus", "resnet", "words", "sounds")
CONDITIONS = ("telephone", "noise", "room", "mixed")
DOMAINS = {
    "audiomnist": ("digits", "digits joined"),
    "speech-commands": ("commands", "commands joined"),
    "cvau": ("pass-phrases",),
}
"""Domains of every corpus: a corpus is left out with all of them."""
NEARLY = {"audiomnist": "digits, nearly", "speech-commands": "commands, nearly"}
"""Domains of a phrase of everybody's, and of the same with one word replaced: what tells them apart is learnt there."""
EVERY = {"audiomnist": 2}
"""Of AudioMNIST every second person, so that its 60 do not outnumber the others."""
TAKES = 3
"""Of AudioMNIST, in which all takes are alike, so many."""
JOINED = ((1, 2, 3), (3, 2, 1), (1, 2, 9), (4, 7, 0, 5), (8, 6, 2, 9, 3), (0, 3, 5, 8))
"""Digits that are joined into pass-phrases; some are near to each other on purpose."""


class Recording(NamedTuple):
    """Somebody says something."""

    samples: Samples
    domain: str
    phrase: str
    take: str


def recordings_of(corpus: Corpus, rows: IntArray) -> Iterator[Recording]:
    """All recordings of one person, and pass-phrases that are joined of words."""
    assert corpus.clips is not None
    assert corpus.sessions is not None
    are_digits = corpus.name == "audiomnist"
    single, *others = DOMAINS[corpus.name]
    clips: dict[str, list[Samples]] = {}
    for row in rows:
        if are_digits and int(corpus.sessions[row]) >= TAKES:
            continue
        word = str(corpus.labels["phrase"][row])
        samples = read_audio(corpus.clips[row], RATE)
        clips.setdefault(word, []).append(samples)
        yield Recording(samples, single, word, str(corpus.ids[row]))
    seed = int(corpus.labels["speaker"][rows[0]]) if are_digits else len(rows)
    rng = np.random.default_rng(seed)
    takes = TAKES if are_digits else 2
    said = [
        (others[0], phrase, take)
        for phrase in _phrases(corpus.name, clips)
        for take in range(takes)
    ]
    if corpus.name in NEARLY:
        phrase, variants = _nearly(clips, takes, np.random.default_rng(seed))
        said += [(NEARLY[corpus.name], phrase, take) for take in range(takes) if phrase]
        said += [(NEARLY[corpus.name], variant, takes - 1) for variant in variants]
    for domain, words, take in said:
        parts = [clips[word][take] for word in words]
        if not are_digits:
            # without the silence around every word, which nobody makes within a phrase
            parts = [Part(part, RATE).cut(0.05) for part in parts]
        yield Recording(joined(parts, rng), domain, "-".join(words), str(take))


def _nearly(
    clips: dict[str, list[Samples]], takes: int, rng: Generator
) -> tuple[list[str], list[list[str]]]:
    """Three or four words, and the same with each of them replaced; nothing where there are too few words."""
    words = rng.permutation(sorted(word for word, some in clips.items() if len(some) >= takes))
    count = int(rng.integers(3, 5))
    if len(words) < count + 3:
        return [], []
    phrase, rest = words[:count].tolist(), words[count:].tolist()
    return phrase, [
        [*phrase[:place], rest[place % len(rest)], *phrase[place + 1 :]] for place in range(count)
    ]


def _phrases(name: str, clips: dict[str, list[Samples]]) -> list[list[str]]:
    """Words to be joined: digits as they are chosen, three commands of those that were said twice."""
    if name == "audiomnist":
        return [[str(digit) for digit in digits] for digits in JOINED]
    words = sorted(word for word, takes in clips.items() if len(takes) > 1)
    if name != "speech-commands" or len(words) < 4:
        return []
    return [[words[(k + step) % len(words)] for step in (0, 1, 2 + k % 2)] for k in range(6)]


def joined(clips: Sequence[Samples], rng: Generator) -> Samples:
    """Recordings one after the other with short pauses; between them lies what a quiet microphone picks up."""
    pauses = rng.uniform(0.02, 0.15, len(clips))
    parts = []
    for pause, clip in zip(pauses, clips, strict=True):
        parts += [np.zeros(int(pause * RATE), dtype=np.float32), clip]
    parts.append(np.zeros(int(rng.uniform(0.05, 0.3) * RATE), dtype=np.float32))
    samples = np.concatenate(parts)
    level = float(np.abs(samples).max()) * 10 ** (-rng.uniform(45, 65) / 20)
    return (samples + rng.normal(0, level, len(samples))).astype(np.float32)


def condition(samples: Samples, name: str, rng: Generator) -> Samples:
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


@cache
def _extractor() -> Extractor:
    """One in every process."""
    return load_extractor(list(EXTRACTORS), check=False)


def vectors_of_person(corpus: Corpus, rows: IntArray) -> list[tuple[Any, ...]]:
    """Columns of a file, row by row: all recordings of one person, clean and in one condition each."""
    # a seed of the person's own: the order in which people are done does not matter
    rng = np.random.default_rng(int(rows[0]))
    speaker = str(corpus.labels["speaker"][rows[0]])
    table = []
    for number, one in enumerate(recordings_of(corpus, rows)):
        for name in ("clean", CONDITIONS[number % len(CONDITIONS)]):
            vector = _extractor().embed(condition(one.samples, name, rng))
            table.append((vector, one.domain, speaker, one.phrase, name, one.take))
    return table


def write_vectors(folder: Path, name: str, root: Path) -> None:
    """Vectors of a corpus, in a file of the folder; nothing is done where it is there."""
    path = folder / f"{name}.npz"
    if path.is_file():
        return
    corpus = load_corpus(name, root)
    people = corpus.labels["speaker"]
    chosen = np.unique(people)[:: EVERY.get(name, 1)]
    rows = [np.flatnonzero(people == person) for person in chosen]
    table: list[tuple[Any, ...]] = []
    progress = Progress(f"vectors of {name}", len(rows))
    work = partial(vectors_of_person, corpus)
    for done, part in enumerate(ordered_map(work, rows), 1):
        table += part
        progress.step(done)
    columns: Json = dict(zip(COLUMNS, zip(*table, strict=True), strict=True))
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **columns)


@dataclass(frozen=True)
class Material:
    """Vectors of recordings with their labels; `group` is the corpus, `number` counts the takes of a cell."""

    vectors: Array
    group: Names
    domain: Names
    speaker: Names
    phrase: Names
    condition: Names
    number: IntArray

    def take(self, rows: Names) -> Material:
        return Material(**{name: column[rows] for name, column in vars(self).items()})

    def labels(self) -> dict[str, Names]:
        labels = {"speaker": self.speaker, "phrase": self.phrase, "domain": self.domain}
        cells = zip(*labels.values(), self.number.astype(np.str_), strict=True)
        return {**labels, "take": np.array(["|".join(cell) for cell in cells])}


def read_material(folder: Path) -> Material:
    """All vectors of a folder."""
    tables = []
    for name in DOMAINS:
        path = folder / f"{name}.npz"
        if not path.is_file():
            raise DataError(f"{path} is not there: make vectors of {name} first")
        with np.load(path) as arrays:
            table = dict(arrays)
        labels = [table[key] for key in ("domain", "speaker", "phrase")]
        cells = np.array(["|".join(cell) for cell in zip(*labels, strict=True)])
        # a take has one number in all conditions: who enrols it is not tested by a copy
        takes = np.array(["|".join(take) for take in zip(cells, table.pop("take"), strict=True)])
        _, example, take = np.unique(takes, return_index=True, return_inverse=True)
        owner = cells[example]
        number = (np.arange(len(owner)) - np.searchsorted(owner, owner))[take]
        table |= {"number": number, "group": np.full(len(cells), name)}
        tables.append(table)
    columns = {key: np.concatenate([table[key] for table in tables]) for key in tables[0]}
    columns["vectors"] = columns["vectors"].astype(np.float64)
    return Material(**columns)
