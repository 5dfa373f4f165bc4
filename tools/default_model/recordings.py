"""Training vectors of the default model (`tools.default_model`).

Recordings of three corpora are embedded clean and with simulated telephones, noise and rooms.
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

from mvplda._optional import need
from mvplda._progress import Progress
from mvplda._typing import Array, IntArray, Json, Names
from mvplda.distributed.ordered import ordered_map
from mvplda.exceptions import DataError
from mvplda.paper.corpora import Corpus, load_corpus
from mvplda.paper.frames import in_room, over_channel, with_noise
from mvplda.voice.audio.decode import read_audio
from mvplda.voice.audio.speech_detection import SoundSegment
from mvplda.voice.extractors import Extractor, load_extractor
from mvplda.voice.extractors.recipe import default_recipes

Samples = NDArray[np.float32]
RATE = 16000
COLUMNS = ("vectors", "domain", "speaker", "phrase", "condition", "take")
EXTRACTORS = tuple(default_recipes())
CONDITIONS = ("telephone", "noise", "room", "mixed")
DOMAINS = {
    "audiomnist": ("digits", "digits joined"),
    "speech-commands": ("commands", "commands joined"),
    "cvau": ("pass-phrases",),
}
"""Domains of each corpus. Leaving out a corpus leaves out all its domains."""
NEAR_MATCH_DOMAINS = {"audiomnist": "digits, nearly", "speech-commands": "commands, nearly"}
"""Domains of near matches: one phrase per speaker, and its variants with one word replaced. They train the detection of
replaced words."""
SPEAKER_STEP = {"audiomnist": 2}
"""Every n-th speaker is used; every second one of AudioMNIST, so that its 60 do not outnumber the others."""
MAX_REPETITIONS = 3
"""Repetitions used per digit of AudioMNIST, whose repetitions are all alike."""
DIGIT_PHRASES = ((1, 2, 3), (3, 2, 1), (1, 2, 9), (4, 7, 0, 5), (8, 6, 2, 9, 3), (0, 3, 5, 8))
"""Pass-phrases of joined digits; some are similar on purpose."""
MIN_WORD_PAUSE_S = 0.05


class Recording(NamedTuple):
    """A recording of a phrase.

    recording_id : id in the corpus, or number of the repetition if its words were joined
    """

    samples: Samples
    domain: str
    phrase: str
    recording_id: str


class JoinedPhrase(NamedTuple):
    """A phrase to be joined from the recordings of its words.

    repetition : index of the recording that is used of each word
    """

    domain: str
    words: list[str]
    repetition: int


def recordings_of_person(corpus: Corpus, rows: IntArray) -> Iterator[Recording]:
    """Yield all recordings of one speaker, then pass-phrases joined from recordings of single words."""
    assert corpus.files is not None
    assert corpus.sessions is not None
    are_digits = corpus.name == "audiomnist"
    word_domain = DOMAINS[corpus.name][0]
    recordings: dict[str, list[Samples]] = {}
    for row in rows:
        if are_digits and int(corpus.sessions[row]) >= MAX_REPETITIONS:
            continue
        word = str(corpus.labels["phrase"][row])
        samples = read_audio(corpus.files[row], RATE)
        recordings.setdefault(word, []).append(samples)
        yield Recording(samples, word_domain, word, str(corpus.ids[row]))

    seed = int(corpus.labels["speaker"][rows[0]]) if are_digits else len(rows)
    rng = np.random.default_rng(seed)
    for phrase in _joined_phrases(corpus.name, recordings, np.random.default_rng(seed)):
        words = [recordings[word][phrase.repetition] for word in phrase.words]
        if not are_digits:
            # cut the silence around each word: within a phrase, speakers do not pause that long
            words = [SoundSegment(samples, RATE).cut(MIN_WORD_PAUSE_S) for samples in words]
        name = "-".join(phrase.words)
        yield Recording(join_recordings(words, rng), phrase.domain, name, str(phrase.repetition))


def _joined_phrases(
    corpus: str, recordings: dict[str, list[Samples]], rng: Generator
) -> list[JoinedPhrase]:
    """Return the phrases to join for one speaker, including near matches."""
    repetitions = range(MAX_REPETITIONS if corpus == "audiomnist" else 2)
    joined_domains = DOMAINS[corpus][1:]
    phrases = [
        JoinedPhrase(joined_domains[0], words, repetition)
        for words in _phrases(corpus, recordings)
        for repetition in repetitions
    ]
    if corpus in NEAR_MATCH_DOMAINS:
        words, variants = _near_match_phrases(recordings, len(repetitions), rng)
        domain = NEAR_MATCH_DOMAINS[corpus]
        if words:
            phrases += [JoinedPhrase(domain, words, repetition) for repetition in repetitions]
        phrases += [JoinedPhrase(domain, variant, repetitions[-1]) for variant in variants]
    return phrases


def _near_match_phrases(
    recordings: dict[str, list[Samples]], repetitions: int, rng: Generator
) -> tuple[list[str], list[list[str]]]:
    """Draw a phrase of three or four words, and one variant per word in which that word is replaced.

    Both lists are empty if too few words were recorded `repetitions` times.
    """
    repeated = sorted(word for word, samples in recordings.items() if len(samples) >= repetitions)
    words = rng.permutation(repeated)
    count = int(rng.integers(3, 5))
    if len(words) < count + 3:
        return [], []
    phrase = words[:count].tolist()
    substitutes = words[count:].tolist()
    variants = []
    for position in range(count):
        variant = list(phrase)
        variant[position] = substitutes[position % len(substitutes)]
        variants.append(variant)
    return phrase, variants


def _phrases(corpus: str, recordings: dict[str, list[Samples]]) -> list[list[str]]:
    """Return phrases to join: `DIGIT_PHRASES`, or six triples of commands that were recorded at least twice."""
    if corpus == "audiomnist":
        return [[str(digit) for digit in digits] for digits in DIGIT_PHRASES]
    words = sorted(word for word, samples in recordings.items() if len(samples) > 1)
    if corpus != "speech-commands" or len(words) < 4:
        return []
    return [[words[(k + step) % len(words)] for step in (0, 1, 2 + k % 2)] for k in range(6)]


def join_recordings(recordings: Sequence[Samples], rng: Generator) -> Samples:
    """Concatenate recordings with short random pauses, and add faint background noise."""
    pauses = rng.uniform(0.02, 0.15, len(recordings))
    pieces = []
    for pause, recording in zip(pauses, recordings, strict=True):
        pieces += [np.zeros(int(pause * RATE), dtype=np.float32), recording]
    pieces.append(np.zeros(int(rng.uniform(0.05, 0.3) * RATE), dtype=np.float32))
    samples = np.concatenate(pieces)

    # 45 to 65 dB below the peak
    level = float(np.abs(samples).max()) * 10 ** (-rng.uniform(45, 65) / 20)
    return (samples + rng.normal(0, level, len(samples))).astype(np.float32)


def simulate_condition(samples: Samples, name: str, rng: Generator) -> Samples:
    """Simulate a recording condition: one of `CONDITIONS`, or "clean"."""
    wave = samples.astype(np.float64)
    wave *= 0.5 / max(float(np.abs(wave).max()), 1e-9)
    if name == "telephone":
        wave = over_telephone(wave)
    elif name == "noise":
        wave = with_noise(wave, 20.0, bool(rng.random() < 0.5), rng)
    elif name == "room":
        wave = in_room(wave, rng.uniform(0.2, 0.6), rng.uniform(0.0, 12.0), RATE, rng)
    elif name == "mixed":
        wave = over_channel(wave, rng.uniform(20, 300), rng.uniform(3400, 8000), RATE, rng)
        wave = with_noise(wave, rng.uniform(12, 30), bool(rng.random() < 0.5), rng)
    return wave.astype(np.float32)


def over_telephone(wave: Array) -> Array:
    """Simulate a telephone: 300 to 3400 Hz, 8000 samples per second, 8 bits by the mu law (ITU-T G.711)."""
    from scipy.signal import butter, sosfiltfilt

    soxr = need("soxr")
    narrow = sosfiltfilt(butter(4, (300, 3400), "bandpass", fs=RATE, output="sos"), wave)
    low = soxr.resample(narrow, RATE, RATE // 2)
    low = low / max(float(np.abs(low).max()), 1e-9) * 0.5

    # compress, quantise and expand
    packed = np.sign(low) * np.log1p(255 * np.abs(low)) / np.log(256)
    packed = np.round(packed * 127) / 127
    unpacked = np.sign(packed) * np.expm1(np.abs(packed) * np.log(256)) / 255
    return np.asarray(soxr.resample(unpacked, RATE // 2, RATE))[: len(wave)]


@cache
def _extractor() -> Extractor:
    """Return the extractors, loaded once per process."""
    return load_extractor(list(EXTRACTORS), check=False)


def vectors_of_person(corpus: Corpus, rows: IntArray) -> list[tuple[Any, ...]]:
    """Embed all recordings of one person, each clean and in one other condition.

    Returns
    -------
    one tuple of `COLUMNS` per vector
    """
    # a seed per person, so that the result does not depend on the order of people
    rng = np.random.default_rng(int(rows[0]))
    speaker = str(corpus.labels["speaker"][rows[0]])
    table = []
    for number, recording in enumerate(recordings_of_person(corpus, rows)):
        for name in ("clean", CONDITIONS[number % len(CONDITIONS)]):
            vector = _extractor().embed(simulate_condition(recording.samples, name, rng))
            labels = (recording.domain, speaker, recording.phrase, name, recording.recording_id)
            table.append((vector, *labels))
    return table


def write_vectors(folder: Path, name: str, root: Path) -> None:
    """Embed the corpus at `root` and write ``<name>.npz`` into a folder; do nothing if the file exists."""
    path = folder / f"{name}.npz"
    if path.is_file():
        return
    corpus = load_corpus(name, root)
    people = corpus.labels["speaker"]
    chosen = np.unique(people)[:: SPEAKER_STEP.get(name, 1)]
    rows = [np.flatnonzero(people == person) for person in chosen]
    table: list[tuple[Any, ...]] = []
    progress = Progress(f"vectors of {name}", len(rows))
    embed_person = partial(vectors_of_person, corpus)
    for people_done, person_table in enumerate(ordered_map(embed_person, rows), 1):
        table += person_table
        progress.step(people_done)
    columns: Json = dict(zip(COLUMNS, zip(*table, strict=True), strict=True))
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **columns)


@dataclass(frozen=True)
class LabelledVectors:
    """Vectors of recordings with their labels.

    Attributes
    ----------
    vectors : (n, D) vectors
    corpus : (n,) name of the corpus
    domain, speaker, phrase, condition : (n,) labels
    repetition : (n,) index of the recording within its cell of domain, speaker and phrase
    """

    vectors: Array
    corpus: Names
    domain: Names
    speaker: Names
    phrase: Names
    condition: Names
    repetition: IntArray

    def select(self, rows: Names) -> LabelledVectors:
        """Return the vectors at `rows`, indices or a mask."""
        return LabelledVectors(**{name: column[rows] for name, column in vars(self).items()})

    def labels(self) -> dict[str, Names]:
        """Return the labels for training; each class of "source_recording" is one recording in all its conditions."""
        labels = {"speaker": self.speaker, "phrase": self.phrase, "domain": self.domain}
        cells = zip(*labels.values(), self.repetition.astype(np.str_), strict=True)
        return {**labels, "source_recording": np.array(["|".join(cell) for cell in cells])}


def read_labelled_vectors(folder: Path) -> LabelledVectors:
    """Read the vectors that `write_vectors` wrote into a folder."""
    tables = []
    for name in DOMAINS:
        path = folder / f"{name}.npz"
        if not path.is_file():
            raise DataError(
                f"{path} does not exist: run python -m tools.default_model vectors first"
            )
        with np.load(path) as arrays:
            table = dict(arrays)
        labels = [table[key] for key in ("domain", "speaker", "phrase")]
        cells = np.array(["|".join(cell) for cell in zip(*labels, strict=True)])

        # all conditions of a recording share one number, so that a profile is never tested with a copy of its recording
        keys = np.array(["|".join(key) for key in zip(cells, table.pop("take"), strict=True)])
        _, first_rows, recording = np.unique(keys, return_index=True, return_inverse=True)
        cell_of_recording = cells[first_rows]
        first_of_cell = np.searchsorted(cell_of_recording, cell_of_recording)
        number = (np.arange(len(cell_of_recording)) - first_of_cell)[recording]
        table |= {"repetition": number, "corpus": np.full(len(cells), name)}
        tables.append(table)
    columns = {key: np.concatenate([table[key] for table in tables]) for key in tables[0]}
    columns["vectors"] = columns["vectors"].astype(np.float64)
    return LabelledVectors(**columns)
