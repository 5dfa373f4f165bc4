"""Fingerprints of recordings: changed copies that are recognised, and honest recordings that are taken for copies.

``python -m benchmarks.studies.copies DATA [-o results/copies]``. DATA holds audiomnist/, cvau/, speech_commands/ and
wuw/. Honest pairs are all pairs of recordings of one phrase by one person. Copies are recordings of C-VAU (pass-phrases
of about 3 s) and of Speech Commands (single words of 1 s), changed in one way, in two ways one after the other, or
played in a simulated room. Codecs need the program ffmpeg.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from scipy.signal import butter, fftconvolve, sosfilt

from benchmarks.augmentation import room_response
from benchmarks.clips import Clips
from benchmarks.report import markdown_rows, study_command
from mvplda._optional import need
from mvplda.voice.audio.decode import read_audio
from mvplda.voice.fingerprint import CopyTest, Fingerprint, copy_threshold

RATE = 16000
Sound = np.ndarray
Change = Callable[[Sound, np.random.Generator], Sound]
Recordings = Mapping[tuple[str, ...], Callable[[], Sound]]
"""Functions that read a recording, by (person, phrase, name of the recording)."""

COPIED = 50
"""Recordings per corpus that are changed in each way; three times as many in two ways."""


# -- changes -----------------------------------------------------------------------------


def half_gain(sound: Sound, rng: np.random.Generator) -> Sound:
    return 0.5 * sound


def drop_sample(sound: Sound, rng: np.random.Generator) -> Sound:
    return np.delete(sound, rng.integers(len(sound)))


def add_noise(sound: Sound, rng: np.random.Generator) -> Sound:
    """Add white noise at -60 dB of the peak."""
    return sound + 1e-3 * np.abs(sound).max() * rng.standard_normal(len(sound))


def change_speed(sound: Sound, rng: np.random.Generator) -> Sound:
    """Play 0.3 % faster or slower."""
    return _resample(sound, RATE * rng.choice([0.997, 1.003]), RATE)


def opus(sound: Sound, rng: np.random.Generator) -> Sound:
    return _through_ffmpeg(sound, "libopus", "ogg", rng.choice(["16k", "24k", "32k"]))


def mp3(sound: Sound, rng: np.random.Generator) -> Sound:
    return _through_ffmpeg(sound, "libmp3lame", "mp3", rng.choice(["24k", "32k", "64k"]))


def telephone(sound: Sound, rng: np.random.Generator) -> Sound:
    """Transmit 300 to 3400 Hz at 8 kHz with the mu-law of G.711."""
    band = butter(4, [300, 3400], "bandpass", fs=RATE, output="sos")
    narrow = _resample(sosfilt(band, sound), RATE, 8000)
    narrow *= 0.7 / max(np.abs(narrow).max(), 1e-9)
    levels = np.round(127 * np.sign(narrow) * np.log1p(255 * np.abs(narrow)) / np.log(256)) / 127
    return _resample(np.sign(levels) * np.expm1(np.abs(levels) * np.log(256)) / 255, 8000, RATE)


CHANGES: Mapping[str, Change] = {
    "half the gain": half_gain,
    "one sample dropped": drop_sample,
    "noise at -60 dB": add_noise,
    "0.3 % speed": change_speed,
    "Opus": opus,
    "MP3": mp3,
    "telephone": telephone,
}


def two_changes(sound: Sound, rng: np.random.Generator) -> Sound:
    first, second = rng.choice(list(CHANGES), 2, replace=False)
    return CHANGES[second](CHANGES[first](sound, rng), rng)


def larger_speed(sound: Sound, rng: np.random.Generator) -> Sound:
    """Play up to 2 % faster or slower."""
    return _resample(sound, RATE * rng.uniform(0.98, 1.02), RATE)


def loudspeaker_and_room(sound: Sound, rng: np.random.Generator) -> Sound:
    """Play in a room of 0.2 to 0.6 s through a loudspeaker with a limited band, with noise 15 to 30 dB below."""
    band = [rng.uniform(80, 300), rng.uniform(3400, 7500)]
    filtered = sosfilt(butter(2, band, "bandpass", fs=RATE, output="sos"), sound)
    response = room_response(rng.uniform(0.2, 0.6), rng.uniform(0, 12), RATE, rng)
    wet = fftconvolve(filtered, response)[: len(sound) + RATE // 5]
    wet = np.pad(wet, rng.integers(0, RATE // 2, 2))
    noise = np.sqrt(np.mean(wet**2)) * 10 ** (-rng.uniform(15, 30) / 20)
    wet = wet + noise * rng.standard_normal(len(wet))
    return 0.5 * wet / np.abs(wet).max()


OTHER_CHANGES: Mapping[str, Change] = {
    "two of these changes": two_changes,
    "up to 2 % speed": larger_speed,
    "simulated loudspeaker and room": loudspeaker_and_room,
}


def _resample(sound: Sound, rate_in: float, rate_out: float) -> Sound:
    changed: Sound = need("soxr").resample(sound, rate_in, rate_out)
    return changed


def _through_ffmpeg(sound: Sound, codec: str, container: str, bit_rate: str) -> Sound:
    raw = ["-f", "s16le", "-ar", str(RATE), "-ac", "1"]
    program = ["ffmpeg", "-v", "error"]
    encode = [*program, *raw, "-i", "-", "-c:a", codec, "-b:a", bit_rate, "-f", container, "-"]
    decode = [*program, "-f", container, "-i", "-", *raw, "-"]
    samples = (np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes()
    encoded = subprocess.run(encode, input=samples, capture_output=True, check=True).stdout
    decoded = subprocess.run(decode, input=encoded, capture_output=True, check=True).stdout
    return np.frombuffer(decoded, "<i2").astype(np.float32) / 32768


# -- recordings --------------------------------------------------------------------------


def digits(folder: Path) -> Recordings:
    """Return the recordings of AudioMNIST."""
    clips = Clips(folder)
    return {
        (f"{speaker:02d}", str(phrase), f"{session:02d}"): lambda key=key: 0.5 * clips[key]  # type: ignore[misc]
        for key in sorted(clips.rows)
        for speaker, phrase, session in [key]
    }


def files(folder: Path) -> Recordings:
    """Return the recordings PERSON/PHRASE/NAME.flac of a folder."""
    return {
        (*path.parts[-3:-1], path.stem): lambda path=path: read_audio(path, RATE)  # type: ignore[misc]
        for path in sorted(folder.glob("*/*/*.flac"))
    }


def honest_similarities(recordings: Recordings) -> Iterator[tuple[float, int]]:
    """Yield the similarity and the frames of speech of each pair of recordings of one phrase by one person."""
    for _, group in groupby(recordings, key=lambda key: key[:2]):
        tests = [CopyTest(recordings[key]()) for key in group]
        for number, test in enumerate(tests):
            others = [other.fingerprint for other in tests[number + 1 :]]
            if others:
                yield from compared(test, others)


def compared(test: CopyTest, others: Sequence[Fingerprint]) -> Iterator[tuple[float, int]]:
    """Yield the similarity of a recording with each other one, and the frames of speech of the shorter."""
    for other, similarity in zip(others, test.similarities(others), strict=True):
        yield float(similarity), min(test.fingerprint.frames, other.frames)


def copy_similarities(
    recordings: Recordings, change: Change, count: int, seed: int
) -> Iterator[tuple[float, int]]:
    """Yield the similarity of changed copies with their recordings, and the frames of speech."""
    rng = np.random.default_rng(seed)
    keys = list(recordings)
    for number in rng.choice(len(keys), count, replace=count > len(keys)):
        sound = np.asarray(recordings[keys[number]](), np.float64)
        original = CopyTest(sound).fingerprint
        yield from compared(CopyTest(change(sound, rng)), [original])


# -- the study ---------------------------------------------------------------------------

HONEST = {
    "C-VAU, pass-phrases": ("cvau", files),
    "WUW, telephone": ("wuw", files),
    "Speech Commands": ("speech_commands", files),
    "AudioMNIST, one sitting": ("audiomnist", digits),
}
COPIES = ("C-VAU, pass-phrases", "Speech Commands")


def study(data: Path) -> dict[str, Any]:
    """Measure honest pairs and changed copies."""
    corpora = {name: read(data / folder) for name, (folder, read) in HONEST.items()}
    found: dict[str, Any] = {"honest pairs": {}, "copies": {}}
    for name, recordings in corpora.items():
        found["honest pairs"][name] = summary(list(honest_similarities(recordings)))
    for name in COPIES:
        for number, (title, change) in enumerate((CHANGES | OTHER_CHANGES).items()):
            count = 3 * COPIED if change is two_changes else COPIED
            pairs = list(copy_similarities(corpora[name], change, count, number))
            found["copies"].setdefault(name, {})[title] = summary(pairs)
    return found


def summary(pairs: Sequence[tuple[float, int]]) -> dict[str, float]:
    """Return how many of the pairs are taken for copies, and the distribution of their similarities."""
    similarities, frames = np.array(pairs).T
    flagged = similarities >= copy_threshold(frames)
    return {
        "pairs": len(pairs),
        "recognised as copies": int(flagged.sum()),
        "smallest": float(similarities.min()),
        "median": float(np.median(similarities)),
        "largest": float(similarities.max()),
        "median frames": float(np.median(frames)),
    }


def table(found: dict[str, Any]) -> str:
    head = ["recordings", "", "pairs", "taken for copies", "similarity", "largest"]
    rows = []
    for name, row in found["honest pairs"].items():
        rows.append([name, "honest, same person and phrase", *_cells(row)])
    for name, changes in found["copies"].items():
        rows += [[name, change, *_cells(row)] for change, row in changes.items()]
    return "\n".join(markdown_rows([head, *rows])) + "\n"


def _cells(row: Mapping[str, float]) -> list[str]:
    numbers = [f"{row['pairs']:,}", f"{row['recognised as copies']:,}"]
    return [*numbers, f"{row['smallest']:.2f}, median {row['median']:.2f}", f"{row['largest']:.2f}"]


if __name__ == "__main__":
    study_command("copies", __doc__, study, table)
