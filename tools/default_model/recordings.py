"""Training vectors of the default model (`tools.default_model`).

Vectors are extracted from the recordings of all corpora in `DOMAINS`, clean and with simulated
telephones, noise and rooms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from mvplda._optional import need
from mvplda._progress import Progress
from mvplda._typing import Array, BoolArray, Columns, IntArray, Json, Names
from mvplda.distributed.ordered import ordered_map
from mvplda.exceptions import DataError
from mvplda.io.streams import OnDisk
from mvplda.io.tables import read_table
from mvplda.paper.corpora.corpus import session_order
from mvplda.paper.corpora.folder import INDEX, Listing, match_files, read_listing
from mvplda.paper.frames import in_room, over_channel, with_noise
from mvplda.voice.audio.decode import read_audio
from mvplda.voice.audio.quality import measure
from mvplda.voice.audio.speech_detection import SoundSegment
from mvplda.voice.extractors import Extractor, load_extractor
from mvplda.voice.extractors.recipe import default_recipes
from mvplda.voice.sexes import HIGH_VOICE_HZ

Samples = NDArray[np.float32]
RATE = 16000
COLUMNS = (
    "vectors",
    "domain",
    "speaker",
    "phrase",
    "condition",
    "take",
    "pitch",
    "sex",
    "bandwidth",
    "snr",
    "usable",
)
EXTRACTORS = tuple(default_recipes())
CONDITIONS = ("telephone", "noise", "room", "mixed")
CALL = "call"
"""Condition of a simulated telephone call, in which profiles are enrolled too; the model is not fitted to it."""
ENROLLED_BY_CALL = {CALL: "calls on both sides", "clean": "enrolled by call"}
"""Condition in the results, by that of the tests, of trials whose profiles are enrolled in simulated calls."""
CALL_STEP = {"cvau": 2, "arabic": 2, "dspspeech": 2, "audiomnist": 4, "speech-commands": 4}
"""Every n-th person of a corpus is also recorded in simulated calls; the calls of WUW are real."""
CALL_LOW_HZ, CALL_HIGH_HZ, CALL_SNR_DB = (100.0, 350.0), (3100.0, 3800.0), (15.0, 35.0)
"""Ranges of the lowest and highest frequency and of the SNR of a simulated call."""
DOMAINS = {
    "audiomnist": ("digits", "digits joined"),
    "speech-commands": ("commands", "commands joined"),
    "cvau": ("pass-phrases",),
    "arabic": ("Arabic words", "Arabic joined"),
    "dspspeech": ("Chinese and English words", "Chinese and English joined"),
    "wuw": ("calls", "calls joined"),
}
"""Domains of each corpus. Leaving out a corpus leaves out all its domains."""
CALIBRATION_ONLY = ("wuw",)
"""Corpora that calibrations and thresholds are fitted to, but not the model: the licence of WUW is share-alike."""
NEAR_MATCH_DOMAINS = {
    "audiomnist": "digits, nearly",
    "speech-commands": "commands, nearly",
    "arabic": "Arabic, nearly",
    "dspspeech": "Chinese and English, nearly",
    "wuw": "calls, nearly",
}
"""Domains of near matches: one phrase per speaker, and its variants with one word replaced. They train the detection of
replaced words."""
LAYOUTS = {
    "audiomnist": "{speaker}/{phrase}_{speaker}_{session}",
    "speech-commands": "{speaker}/{phrase}/{session}",
    "cvau": "{speaker}/{phrase}/{session}",
    "arabic": "{speaker}/{phrase}/{session}",
    "dspspeech": "{speaker}/{phrase}/{session}",
    "wuw": "{speaker}/{phrase}/{session}",
}
"""Names of the sound files of a corpus, unless its folder has an index.csv."""
UNPHRASED = {"wuw": "sentence"}
"""Corpora with free sentences, which have no phrase, and the beginning of the names of their folders."""
SIMULATED_STEP = 2
"""Every n-th recording is used in a simulated condition too."""
MAX_REPETITIONS = {"audiomnist": 4, "wuw": 4}
"""Repetitions used per word: those of AudioMNIST are all alike, and a few people of WUW called up to ten times."""
DIGIT_PHRASES = ((1, 2, 3), (3, 2, 1), (1, 9), (4, 7, 0, 5))
"""Pass-phrases of joined digits; some are similar on purpose."""
NEAR_MATCH_WORDS = 3
"""Words of the phrases of which one word is replaced."""
SUBSTITUTES = 2
"""Words that replace each word of such a phrase, each in a variant of its own."""
MIN_WORD_PAUSE_S = 0.05
NARROW_STEP = 2
"""Step between the samples at `RATE` that real calls consist of: they have 8000 per second."""


class Recording(NamedTuple):
    """Recording of a phrase, or several recordings of words joined to a phrase.

    samples : (n,) samples at `RATE`
    domain, phrase : labels
    recording_id : id in the corpus; for joined words, the number of the repetition
    is_usable : whether the recording, or each of the joined recordings, has enough speech for
        commands such as `mvplda verify`
    """

    samples: Samples
    domain: str
    phrase: str
    recording_id: str
    is_usable: bool


class JoinedPhrase(NamedTuple):
    """Phrase that is to be joined from recordings of single words of one speaker.

    domain : label of the joined recording
    words : words in their order
    repetition : index, among the recordings of each word, of the one to use; -1: the last
    """

    domain: str
    words: list[str]
    repetition: int


def corpus_listing(name: str, root: Path) -> Listing:
    """List the recordings of a corpus, with the fields speaker, phrase and session.

    The field gender is added if the corpus has such labels.

    name : name of the corpus, a key of `DOMAINS`
    root : folder of the corpus
    """
    if name in UNPHRASED:
        # the table leaves the phrase of free sentences blank
        listing = match_files(root, LAYOUTS[name])
        header, columns = read_table(OnDisk(root / INDEX))
        table = dict(zip(header, columns, strict=True))
        gender = dict(zip(table["speaker"], table["gender"], strict=True))
        people = listing.fields["speaker"].tolist()
        fields = {**listing.fields, "gender": np.array([gender[person] for person in people])}
        listing = listing._replace(fields=fields)
        return listing.take(np.flatnonzero(_of_complete_calls(fields, UNPHRASED[name])))
    listing = read_listing(root, LAYOUTS[name])
    if "session" in listing.fields:
        return listing
    return listing._replace(fields={**listing.fields, "session": listing.fields["take"]})


def _of_complete_calls(fields: Columns, sentences: str) -> BoolArray:
    """Return a mask (n,) of the recordings of single words from complete calls.

    A call is complete if every word of the corpus occurs in it. Recordings of sentences are not
    words.

    fields : labels speaker, session (the call) and phrase of the n recordings
    sentences : text with which the labels of sentences begin
    """
    is_word = ~np.char.startswith(fields["phrase"], sentences)
    calls = np.char.add(np.char.add(fields["speaker"], "|"), fields["session"])
    names, counts = np.unique(calls[is_word], return_counts=True)
    complete = names[counts == len(np.unique(fields["phrase"][is_word]))]
    return np.asarray(is_word & np.isin(calls, complete))


def recordings_of_person(name: str, listing: Listing) -> Iterator[Recording]:
    """Yield all recordings of one speaker, then phrases joined from the recordings of single words.

    name : name of the corpus
    listing : recordings of the speaker
    """
    assert listing.files is not None
    word_domain = DOMAINS[name][0]
    words: dict[str, list[Samples]] = {}
    usable: dict[str, list[bool]] = {}
    for row in np.argsort(session_order(listing.fields["session"]), kind="stable"):
        word = str(listing.fields["phrase"][row])
        samples = words.setdefault(word, [])
        if len(samples) < MAX_REPETITIONS.get(name, len(listing.files)):
            samples.append(read_audio(listing.files[row], RATE))
            is_usable = measure(samples[-1], RATE).usable
            usable.setdefault(word, []).append(is_usable)
            session = f"{len(samples) - 1:03d} {listing.fields['session'][row]}"
            yield Recording(samples[-1], word_domain, word, session, is_usable)

    rng = np.random.default_rng(crc32(str(listing.fields["speaker"][0]).encode()))
    for phrase in _joined_phrases(name, words, rng):
        # cut the silence around each word: within a phrase, speakers do not pause that long
        pieces = [
            SoundSegment(words[word][phrase.repetition], RATE).cut(MIN_WORD_PAUSE_S)
            for word in phrase.words
        ]
        joined = join_recordings(pieces, rng, NARROW_STEP if name in CALIBRATION_ONLY else 1)
        is_usable = all(usable[word][phrase.repetition] for word in phrase.words)
        name_of_phrase = "-".join(phrase.words)
        yield Recording(joined, phrase.domain, name_of_phrase, str(phrase.repetition), is_usable)


def _joined_phrases(
    corpus: str, recordings: dict[str, list[Samples]], rng: Generator
) -> list[JoinedPhrase]:
    """Return the phrases to join from the words of one speaker, with near matches at the end.

    corpus : name of the corpus
    recordings : {word: samples of each of its recordings}
    rng : generator that draws the phrase for near matches
    """
    phrases = [
        JoinedPhrase(domain, words, repetition)
        for domain in DOMAINS[corpus][1:]
        for words in _phrases(corpus, recordings)
        for repetition in range(min(len(recordings[word]) for word in words))
    ]
    if corpus in NEAR_MATCH_DOMAINS:
        words, variants = _near_match_phrases(recordings, rng)
        domain = NEAR_MATCH_DOMAINS[corpus]
        repetitions = range(min((len(recordings[word]) for word in words), default=0))
        phrases += [JoinedPhrase(domain, words, repetition) for repetition in repetitions]
        phrases += [JoinedPhrase(domain, variant, -1) for variant in variants]
    return phrases


def _near_match_phrases(
    recordings: dict[str, list[Samples]], rng: Generator
) -> tuple[list[str], list[list[str]]]:
    """Draw a phrase of `NEAR_MATCH_WORDS` words, and its near matches.

    In each near match one word is replaced; every word of the phrase is replaced by up to
    `SUBSTITUTES` others. Only words with at least two recordings are used.

    recordings : {word: samples of each of its recordings}

    Returns
    -------
    words of the phrase, and words of each near match; two empty lists if there are too few words
    """
    repeated = sorted(word for word, samples in recordings.items() if len(samples) > 1)
    words = rng.permutation(repeated).tolist()
    phrase, substitutes = words[:NEAR_MATCH_WORDS], words[NEAR_MATCH_WORDS:]
    if not substitutes:
        return [], []
    variants = []
    for number in range(min(SUBSTITUTES, len(substitutes)) * NEAR_MATCH_WORDS):
        variant = list(phrase)
        variant[number % NEAR_MATCH_WORDS] = substitutes[number % len(substitutes)]
        if variant not in variants:
            variants.append(variant)
    return phrase, variants


def _phrases(corpus: str, recordings: dict[str, list[Samples]]) -> list[list[str]]:
    """Return the words of each phrase to join from recordings of one speaker, but no near matches.

    AudioMNIST has `DIGIT_PHRASES`. Other corpora have six phrases of two to four words; each word
    needs two recordings, or one in calls. The list is empty if there are fewer than four words.

    corpus : name of the corpus
    recordings : {word: samples of each of its recordings}
    """
    if corpus == "audiomnist":
        return [[str(digit) for digit in digits] for digits in DIGIT_PHRASES]
    # people of a single call are impostors only
    least = 1 if corpus == "wuw" else 2
    words = sorted(word for word, samples in recordings.items() if len(samples) >= least)
    if len(words) < 4:
        return []
    return [[words[(k + step) % len(words)] for step in range(2 + (k + 1) % 3)] for k in range(6)]


def join_recordings(recordings: Sequence[Samples], rng: Generator, step: int = 1) -> Samples:
    """Concatenate recordings with short random pauses, and add faint background noise.

    recordings : (n,) samples at `RATE` of each recording
    rng : generator of pauses and noise
    step : 1: the noise has the whole bandwidth; 2: half of it, as in telephone calls
    """
    pauses = rng.uniform(0.02, 0.15, len(recordings))
    pieces = []
    for pause, recording in zip(pauses, recordings, strict=True):
        pieces += [np.zeros(int(pause * RATE), dtype=np.float32), recording]
    pieces.append(np.zeros(int(rng.uniform(0.05, 0.3) * RATE), dtype=np.float32))
    samples = np.concatenate(pieces)

    # 45 to 65 dB below the peak
    level = float(np.abs(samples).max()) * 10 ** (-rng.uniform(45, 65) / 20)
    noise = rng.normal(0, level, -(-len(samples) // step))
    if step > 1:
        noise = need("soxr").resample(noise, RATE // step, RATE)[: len(samples)]
    return (samples + noise).astype(np.float32)


def simulate_condition(samples: Samples, name: str, rng: Generator) -> Samples:
    """Return a recording in a simulated condition `name`: one of `CONDITIONS`, `CALL` or "clean" (no change)."""
    wave = samples.astype(np.float64)
    wave *= 0.5 / max(float(np.abs(wave).max()), 1e-9)
    if name == "telephone":
        wave = over_telephone(wave)
    elif name == CALL:
        wave = with_noise(wave, rng.uniform(*CALL_SNR_DB), bool(rng.random() < 0.5), rng)
        wave = over_telephone(wave, rng.uniform(*CALL_LOW_HZ), rng.uniform(*CALL_HIGH_HZ))
    elif name == "noise":
        wave = with_noise(wave, 20.0, bool(rng.random() < 0.5), rng)
    elif name == "room":
        wave = in_room(wave, rng.uniform(0.2, 0.6), rng.uniform(0.0, 12.0), RATE, rng)
    elif name == "mixed":
        wave = over_channel(wave, rng.uniform(20, 300), rng.uniform(3400, 8000), RATE, rng)
        wave = with_noise(wave, rng.uniform(12, 30), bool(rng.random() < 0.5), rng)
    return wave.astype(np.float32)


def over_telephone(wave: Array, low_hz: float = 300.0, high_hz: float = 3400.0) -> Array:
    """Return a recording after transmission by a simulated telephone, (n,).

    The telephone limits the band, and transmits 8000 samples per second of 8 bits by the mu law
    (ITU-T G.711).

    wave : (n,) samples at `RATE`
    low_hz, high_hz : limits of the band
    """
    from scipy.signal import butter, sosfiltfilt

    soxr = need("soxr")
    band = butter(4, (low_hz, high_hz), "bandpass", fs=RATE, output="sos")
    narrow = sosfiltfilt(band, wave)
    low = soxr.resample(narrow, RATE, RATE // 2)
    low = low / max(float(np.abs(low).max()), 1e-9) * 0.5

    # compress, quantise and expand
    packed = np.sign(low) * np.log1p(255 * np.abs(low)) / np.log(256)
    packed = np.round(packed * 127) / 127
    unpacked = np.sign(packed) * np.expm1(np.abs(packed) * np.log(256)) / 255
    return np.asarray(soxr.resample(unpacked, RATE // 2, RATE))[: len(wave)]


@cache
def _extractor() -> Extractor:
    """Return the extractors of the default model as one extractor, loaded once per process."""
    return load_extractor(list(EXTRACTORS), check=False)


def vectors_of_person(name: str, listing: Listing) -> list[tuple[Any, ...]]:
    """Extract the vectors of all recordings of one person, including joined phrases.

    Every recording is used clean. Every second one is also used in a simulated condition, and those
    of some people in a simulated call. Real calls are used in no simulated condition.

    name : name of the corpus
    listing : recordings of the person

    Returns
    -------
    one tuple per vector, with the values of `COLUMNS`
    """
    speaker = str(listing.fields["speaker"][0])
    sex = str(listing.fields.get("gender", [""])[0])
    # a seed per person, so that the result does not depend on the order of people
    seed = crc32(speaker.encode())
    rng, call_rng = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    has_calls = name in CALL_STEP and seed % CALL_STEP[name] == 0
    table = []
    for number, recording in enumerate(recordings_of_person(name, listing)):
        # None: no voiced sound
        pitch = SoundSegment(recording.samples, RATE).pitch_hz() or float("nan")
        simulated = ()
        if name not in CALIBRATION_ONLY and number % SIMULATED_STEP == 0:
            # conditions are drawn, so that no repetition of all words has the same
            simulated = (str(rng.choice(CONDITIONS)),)
        for condition in ("clean", *simulated, *([CALL] if has_calls else [])):
            samples = simulate_condition(
                recording.samples, condition, call_rng if condition == CALL else rng
            )
            quality = measure(samples, RATE)
            # None: no sound between the speech
            snr = float("nan") if quality.snr_db is None else quality.snr_db
            labels = (recording.domain, speaker, recording.phrase, condition)
            facts = (recording.recording_id, pitch, sex, quality.bandwidth_hz, snr)
            vector = _extractor().embed(samples)
            table.append((vector, *labels, *facts, recording.is_usable))
    return table


def write_vectors(folder: Path, name: str, root: Path) -> None:
    """Extract the vectors of a corpus and write them to ``<name>.npz``, unless the file exists.

    folder : folder to write to
    name : name of the corpus, a key of `DOMAINS`
    root : folder of the corpus
    """
    path = folder / f"{name}.npz"
    if path.is_file():
        return
    listing = corpus_listing(name, root)
    people = listing.fields["speaker"]
    parts = [listing.take(np.flatnonzero(people == person)) for person in np.unique(people)]
    table: list[tuple[Any, ...]] = []
    progress = Progress(f"vectors of {name}", len(parts))
    for people_done, rows in enumerate(ordered_map(partial(vectors_of_person, name), parts), 1):
        table += rows
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
    pitch : (n,) median pitch in Hz
    sex : (n,) male, female, or empty if not labelled
    bandwidth : (n,) highest frequency in Hz
    snr : (n,) signal-to-noise ratio in dB; NaN if there is no sound between the speech
    """

    vectors: Array
    corpus: Names
    domain: Names
    speaker: Names
    phrase: Names
    condition: Names
    repetition: IntArray
    pitch: Array
    sex: Names
    bandwidth: Array
    snr: Array

    def is_high_voice(self, speakers: Names) -> BoolArray:
        """Return a (m,) mask of the speakers with a high voice.

        These are women or, if the sex is not labelled, speakers with a median pitch from
        `HIGH_VOICE_HZ` on.

        speakers : (m,) names of speakers, with repetitions or not
        """
        names, codes = np.unique(speakers, return_inverse=True)
        is_high = []
        for name in names:
            rows = self.speaker == name
            sex = self.sex[rows][0]
            is_high.append(
                sex == "female" if sex else np.nanmedian(self.pitch[rows]) >= HIGH_VOICE_HZ
            )
        return np.array(is_high)[codes]

    def select(self, rows: Names) -> LabelledVectors:
        """Return the vectors in some rows, with their labels.

        rows : indices, or a mask of all rows
        """
        return LabelledVectors(**{name: column[rows] for name, column in vars(self).items()})

    def labels(self) -> dict[str, Names]:
        """Return the labels for `DomainPLDA.fit`: speaker, phrase, domain and source_recording.

        The label source_recording is the same for a recording in all its simulated conditions.
        """
        labels = {"speaker": self.speaker, "phrase": self.phrase, "domain": self.domain}
        cells = zip(*labels.values(), self.repetition.astype(np.str_), strict=True)
        return {**labels, "source_recording": np.array(["|".join(cell) for cell in cells])}


def _read_table(folder: Path, name: str) -> dict[str, Any]:
    """Read the file that `write_vectors` wrote for a corpus, {name of `COLUMNS`: values}.

    Raise `DataError` if the file does not exist.
    """
    path = folder / f"{name}.npz"
    if not path.is_file():
        raise DataError(f"{path} does not exist: run python -m tools.default_model vectors first")
    with np.load(path) as arrays:
        return dict(arrays)


def refused_recordings(folder: Path) -> list[Json]:
    """Count the recordings of each domain with too little speech, which `mvplda verify` refuses.

    A joined phrase counts if one of its recordings has too little speech.

    Returns
    -------
    one dict per domain, with its name and the numbers "recordings" and "refused"
    """
    counts: list[Json] = []
    for name in DOMAINS:
        table = _read_table(folder, name)
        is_clean = table["condition"] == "clean"
        for domain in (*DOMAINS[name], NEAR_MATCH_DOMAINS.get(name)):
            usable = table["usable"][is_clean & (table["domain"] == domain)]
            if len(usable):
                refused = np.count_nonzero(~usable)
                counts.append(
                    {"domain": domain, "recordings": len(usable), "refused": int(refused)}
                )
    return counts


def read_labelled_vectors(folder: Path) -> LabelledVectors:
    """Read the vectors of all corpora that `write_vectors` wrote into a folder.

    Recordings with too little speech for commands such as `mvplda verify` are left out.
    """
    tables = []
    for name in DOMAINS:
        table = _read_table(folder, name)
        is_usable = table.pop("usable")
        table = {key: column[is_usable] for key, column in table.items()}
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
