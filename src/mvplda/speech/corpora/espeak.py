"""Says and records the phrases of some speakers: run in a fresh process, ``python -m mvplda.speech.corpora.espeak``.

Reads the job, a JSON object, from standard input: `folder` to write in, `numbers` of the speakers,
`phrases` (the texts), `sessions`, `rate` and `seed`. Writes one FLAC a speaker, utterances joined,
and to standard output a JSON object: the rows of the index and what the speakers are.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._optional import need
from ...exceptions import DataError, ParameterError
from ..features.augmentation import Channel, Noise, Recipe, Room, Speed, augment

SESSION = Recipe(
    (
        Speed(factor=(0.98, 1.02)),
        Channel(gain_db=(-7, 7), low_hz=(40, 250), high_hz=(3800, 7600)),
        Room(0.8, t60_s=(0.1, 0.5), direct_db=(0, 12)),
    )
)
"""A day's voice, microphone and room."""
SNR_DB = (6.0, 25.0)
VOLUME = 60
QUIET = 0.01
PAD_S = (0.03, 0.12)


def say_all(job: dict[str, Any]) -> dict[str, Any]:
    """Make the files of a job; what was made."""
    soundfile = need("soundfile")
    bases = people()
    speakers = [draw_speaker(number, job["seed"], bases) for number in job["numbers"]]
    rows: list[list[Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "data"
        english_data(data, {speaker.name: speaker.variant for speaker in speakers})
        espeak = Espeak(data, seed=job["seed"] % 2**31 + 1)
        for number, speaker in zip(job["numbers"], speakers, strict=True):
            clips = []
            for session in range(job["sessions"]):
                clips += _session(espeak, speaker, number, session, job)
            file = f"{speaker.name}.flac"
            soundfile.write(str(Path(job["folder"]) / file), np.concatenate(clips), job["rate"], subtype="PCM_16")
            start = 0
            labels = [(k, s) for s in range(job["sessions"]) for k in range(len(job["phrases"]))]
            for clip, (phrase, session) in zip(clips, labels, strict=True):
                rows.append([file, start, len(clip), speaker.name, phrase, session])
                start += len(clip)
        version = espeak.version
    about = [{key: value for key, value in asdict(speaker).items() if key != "variant"} for speaker in speakers]
    return {"rows": rows, "speakers": about, "espeak": version}


def _session(
    espeak: Espeak, speaker: Speaker, number: int, session: int, job: dict[str, Any]
) -> list[NDArray[np.float32]]:
    """Every phrase, said in one sitting: the same mood, microphone, room and noise."""
    key = [job["seed"], 2, number, session]
    rng = np.random.default_rng(key)
    rate = speaker.rate * rng.uniform(0.88, 1.14)
    pitch, expression = 50 + rng.normal(0, 5), speaker.expression + rng.normal(0, 8)
    snr, peak = rng.uniform(*SNR_DB), rng.uniform(0.05, 0.8)
    noise = Recipe((Noise(snr_db=(snr - 1, snr + 1), kinds=("pink",) if rng.random() < 0.5 else ("white",)),))
    clips = []
    for phrase, text in enumerate(job["phrases"]):
        own = np.random.default_rng([*key, phrase])
        # The library forgets nothing: every setting is set again before every phrase.
        espeak.voice(f"{speaker.accent}+{speaker.name}")
        espeak.set(
            rate=rate * own.uniform(0.95, 1.05),
            pitch=np.clip(pitch + own.normal(0, 2), 20, 80),
            range=np.clip(expression + own.normal(0, 4), 5, 95),
            volume=VOLUME,
        )
        said = _padded(_trimmed(espeak.say(text)), own, espeak.sample_rate)
        said = need("soxr").resample(said, espeak.sample_rate, job["rate"], quality="HQ")
        heard = augment(said, SESSION, np.random.default_rng([*key, 0, 0]), rate=job["rate"])
        heard = augment(heard, noise, own, rate=job["rate"])
        clips.append((heard * (peak / np.abs(heard).max())).astype(np.float32))
    return clips


def _trimmed(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    loud = np.flatnonzero(np.abs(samples) > QUIET * np.abs(samples).max())
    return samples[loud[0] : loud[-1] + 1]


def _padded(samples: NDArray[np.float64], rng: np.random.Generator, rate: int) -> NDArray[np.float64]:
    before, after = (round(rate * rng.uniform(*PAD_S)) for _ in range(2))
    return np.pad(samples, (before, after))


SYNCHRONOUS = 2
"""Output mode: samples go to a callback, and `espeak_Synth` returns when all are made."""
UTF8 = 1
PARAMETERS = {"rate": 1, "volume": 2, "pitch": 3, "range": 4}
"""Words a minute; and volume, pitch and range of the pitch around 100, 50 and 50."""
ENGLISH = ("phontab", "phonindex", "phondata", "intonations", "en_dict")
VARIANTS = "voices/!v"

_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


class Espeak:
    """The synthesiser, of which a process has one.

    What it says depends on all that it said before: with the same seed, a fresh process that
    says the same things in the same order gets the same samples.

    Parameters
    ----------
    data : the folder of voices and dictionaries; None takes the one of `espeakng_loader`
    seed : of its random numbers, which make breath and flutter
    """

    def __init__(self, data: str | os.PathLike[str] | None = None, seed: int = 0) -> None:
        loader = need("espeakng_loader")
        self._library: Any = ctypes.CDLL(str(loader.get_library_path()))
        path = str(data if data is not None else loader.get_data_path())
        self._library.espeak_Synth.argtypes = [
            ctypes.c_char_p,
            ctypes.c_size_t,
            ctypes.c_uint,
            ctypes.c_int,
            ctypes.c_uint,
            ctypes.c_uint,
            ctypes.c_void_p,
            ctypes.c_void_p,
        ]
        self._library.espeak_Info.restype = ctypes.c_char_p
        self._library.espeak_ng_SetRandSeed.argtypes = [ctypes.c_long]
        self.sample_rate = int(self._library.espeak_Initialize(SYNCHRONOUS, 0, os.fsencode(path), 0))
        if self.sample_rate <= 0:
            raise DataError(f"espeak-ng does not start with the data in {path}")
        self._parts: list[bytes] = []
        self._callback = _Callback(self._take)  # kept, for the library does not
        self._library.espeak_SetSynthCallback(self._callback)
        self._library.espeak_ng_SetRandSeed(seed)

    def _take(self, samples: Any, number: int, events: Any) -> int:
        if samples and number > 0:
            self._parts.append(ctypes.string_at(samples, 2 * number))
        return 0

    @property
    def version(self) -> str:
        return str(self._library.espeak_Info(None).decode().split()[0])

    def voice(self, name: str) -> None:
        """Choose a language and a variant, such as ``en-us+f2``."""
        if self._library.espeak_SetVoiceByName(name.encode()):
            raise ParameterError(f"espeak-ng has no voice {name!r}")

    def set(self, **values: float) -> None:
        """Set rate, volume, pitch or range."""
        for name, value in values.items():
            if name not in PARAMETERS:
                raise ParameterError(f"espeak-ng has the parameters {', '.join(PARAMETERS)}; got {name!r}")
            self._library.espeak_SetParameter(PARAMETERS[name], round(value), 0)

    def say(self, text: str) -> NDArray[np.float64]:
        """The samples of a text, between -1 and 1, at `sample_rate`."""
        self._parts.clear()
        data = text.encode()
        if self._library.espeak_Synth(data, len(data) + 1, 0, 1, 0, UTF8, None, None):
            raise DataError(f"espeak-ng cannot say {text!r}")
        samples = np.frombuffer(b"".join(self._parts), dtype=np.int16) / 32768.0
        if not samples.any():
            raise DataError(f"espeak-ng says nothing for {text!r}")
        return samples


def english_data(folder: Path, variants: Mapping[str, str]) -> None:
    """Make a folder of data with English, its accents, and variants of one's own.

    Parameters
    ----------
    folder : to be made
    variants : name -> text of the variant's file
    """
    source = Path(need("espeakng_loader").get_data_path())
    folder.mkdir(parents=True)
    for name in ENGLISH:
        shutil.copyfile(source / name, folder / name)
    shutil.copytree(
        source / "lang" / "gmw", folder / "lang" / "gmw", ignore=lambda _, names: {n for n in names if n[:2] != "en"}
    )
    (folder / VARIANTS).mkdir(parents=True)
    for name, text in variants.items():
        (folder / VARIANTS / name).write_text(text, encoding="utf-8")


def shipped_variants() -> dict[str, str]:
    """The variants that come with espeak-ng, by name: the text of their files."""
    folder = Path(need("espeakng_loader").get_data_path()) / VARIANTS
    return {file.name: file.read_text(encoding="utf-8") for file in sorted(folder.iterdir()) if file.is_file()}


ACCENTS = ("en", "en-us", "en-gb-scotland", "en-gb-x-rp", "en-029", "en-gb-x-gbclan", "en-gb-x-gbcwmd", "en-us-nyc")
UNLIKE_PEOPLE = ("robo", "whisper", "klatt", "demonic", "croak", "fast", "storm", "tweaky", "anxious", "announcer")
"""Robots, whispers and effects are told from people at once, and other speech engines too."""
FORMANTS = range(9)
KEPT = ("flutter", "roughness", "breath", "voicing", "consonants", "tone")
"""Lines of a shipped voice that stay. Echoes, stresses and changed phonemes would give a speaker away."""
LIKENESS = 0.4
"""How far a speaker is from the plain voice towards its shipped one."""
COMMON_SPREAD, FORMANT_SPREAD, SHAPE_SPREAD = 0.05, 0.035, 0.12
"""Standard deviations of the logarithm: length of the vocal tract, each formant besides, heights and widths."""


@dataclass(frozen=True)
class Speaker:
    """A voice: where it comes from, how it speaks, and the text of its espeak-ng variant."""

    name: str
    base: str
    accent: str
    gender: str
    pitch: int
    rate: float
    expression: float
    variant: str


def people() -> dict[str, str]:
    """The shipped variants that sound like people."""
    variants = shipped_variants()
    return {name: text for name, text in variants.items() if not any(word in name.lower() for word in UNLIKE_PEOPLE)}


def draw_speaker(number: int, seed: int, bases: dict[str, str]) -> Speaker:
    """The speaker of a number: the same whatever the number of speakers."""
    rng = np.random.default_rng([seed, 1, number])
    name = f"s{number + 1:03d}"
    base = sorted(bases)[rng.integers(len(bases))]
    accent = ACCENTS[rng.integers(len(ACCENTS))]
    known, kept = _read_variant(bases[base])
    gender = "female" if known.get("gender", "male").lower().startswith("f") else "male"
    pitch = int(rng.normal(*((195, 22) if gender == "female" else (112, 16))))
    tract = np.exp(rng.normal(0, COMMON_SPREAD))
    lines = [
        "language variant",
        f"name {name}",
        f"gender {gender}",
        f"pitch {pitch} {round(pitch * rng.uniform(1.25, 1.6))}",
    ]
    for k in FORMANTS:
        parts = [float(value) for value in known.get(f"formant {k}", "100 100 100").split()]
        parts += [100.0] * (3 - len(parts))
        spread = np.exp(rng.normal(0, (FORMANT_SPREAD, SHAPE_SPREAD, SHAPE_SPREAD)))
        frequency, height, width = np.round(
            (100 + LIKENESS * (np.array(parts[:3]) - 100)) * spread * (tract, 1, 1)
        ).astype(int)
        lines.append(f"formant {k} {frequency} {height} {width}")
    lines += kept
    rate, expression = rng.uniform(145, 195), rng.uniform(25, 75)
    return Speaker(name, base, accent, gender, pitch, rate, expression, "\n".join(lines) + "\n")


def _read_variant(text: str) -> tuple[dict[str, str], list[str]]:
    """What is drawn anew, by its name; and the lines that stay as they are."""
    known, kept = {}, []
    for line in text.splitlines():
        fields = line.split("//")[0].split()
        if not fields:
            continue
        if fields[0] == "formant" and len(fields) > 2:
            known[f"formant {fields[1]}"] = " ".join(fields[2:])
        elif fields[0] in ("name", "language", "gender", "pitch"):
            known[fields[0]] = " ".join(fields[1:])
        elif fields[0] in KEPT:
            kept.append(" ".join(fields))
    return known, kept


if __name__ == "__main__":
    json.dump(say_all(json.load(sys.stdin)), sys.stdout)
