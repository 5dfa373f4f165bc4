"""Synthetic speech: as many speakers, phrases and sessions as you like, made by espeak-ng on this machine."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._optional import need
from ..._progress import Progress
from ...distributed.engines import ordered_map
from ...exceptions import DataError, ParameterError
from ...io.files import write_table
from ...persistence import write_atomically
from ..augmentation import at_speed, in_room, over_channel, with_noise
from .corpus import Corpus, register_corpus
from .folder import read_table
from .protocol import build_corpus

SOURCE = "synthetic speech, espeak-ng"
VERSION = 2
"""Of the recipe: raised when the same settings would make other sound."""
INDEX = "index.csv"
MANIFEST = "manifest.json"
BLOCK = 5
"""Speakers a process. Fixed, for what espeak-ng says depends on what the process said before."""
PHRASES = (
    "open the garden door",
    "open the kitchen door",
    "my voice is my key",
    "my word is my key",
    "call my brother now",
    "call my mother today",
    "turn the lights down",
    "turn the radio down",
    "seven green apples",
    "eleven green bottles",
    "play the next song",
    "show the last order",
    "what time is dinner",
    "what time is the train",
    "send the letter today",
    "read the letter now",
    "the river runs fast",
    "the winter comes fast",
    "find a quiet place",
    "book a table for two",
)
"""Pass-phrases of about a second, in pairs that share words."""


@register_corpus(
    "synthetic", root="where the speech is written; made by espeak-ng if it is not there"
)
def synthetic(
    root: str | os.PathLike[str],
    *,
    speakers: int = 50,
    phrases: int | Sequence[str] = 8,
    sessions: int = 8,
    random_state: int = 0,
    rate: int = 16000,
    training: float | int | Sequence[str] | None = None,
    per_model: int = 3,
    workers: int | None = None,
    verbose: bool = False,
) -> Corpus:
    """A corpus of synthetic speech, made in a folder, or read from it when it is there already.

    A speaker is a voice and accent of espeak-ng with vocal tract, formants, pitch, rate and
    expression drawn; a session changes pitch, rate, microphone, room, noise and level. The same
    settings make the same files, byte for byte, with the same version of espeak-ng.

    Parameters
    ----------
    root : the folder to write: one FLAC per speaker, ``index.csv`` and ``manifest.json``
    speakers, sessions : how many
    phrases : how many of `PHRASES`, or English phrases of your own
    random_state : of everything that is drawn
    rate : samples a second
    training, per_model : the protocol (see `ProtocolOptions`)
    workers : processes at once; None takes a process a core
    verbose : show the progress on standard error
    """
    settings = _settings(speakers, phrases, sessions, random_state, rate)
    root = Path(root)
    if (root / MANIFEST).is_file():
        _check(root, settings)
    else:
        _make(root, settings, workers, verbose)
    listing = read_table(root / INDEX, views=("speaker", "phrase"))
    return build_corpus(
        "synthetic",
        listing.ids,
        listing.labels(("speaker", "phrase")),
        listing.clips,
        listing.session,
        source=SOURCE,
        training=training,
        random_state=random_state,
        per_model=per_model,
    )


def _settings(
    speakers: int, phrases: int | Sequence[str], sessions: int, random_state: int, rate: int
) -> dict[str, Any]:
    if isinstance(phrases, (int, np.integer)):
        if not 1 <= phrases <= len(PHRASES):
            raise ParameterError(
                f"there are {len(PHRASES)} phrases; got {phrases}: give phrases of your own"
            )
        phrases = PHRASES[:phrases]
    if isinstance(phrases, str):
        raise ParameterError(f"phrases is a number or a list of phrases; got the text {phrases!r}")
    texts = [" ".join(str(text).split()) for text in phrases]
    if not texts or not all(texts) or len(set(map(slug, texts))) < len(texts):
        raise ParameterError(f"phrases are texts that differ, and none is blank; got {texts}")
    settings = {
        "version": VERSION,
        "speakers": speakers,
        "sessions": sessions,
        "seed": random_state,
        "rate": rate,
    }
    least = {"speakers": 2, "sessions": 1, "rate": 8000}
    for name, value in settings.items():
        if value < least.get(name, 0):
            raise ParameterError(f"{name} is at least {least.get(name, 0)}; got {value}")
    return {**{name: int(value) for name, value in settings.items()}, "phrases": texts}


def slug(text: str) -> str:
    """A phrase as a label: ``my-voice-is-my-key``."""
    return "-".join("".join(c if c.isalnum() else " " for c in text.lower()).split())


def _make(root: Path, settings: dict[str, Any], workers: int | None, verbose: bool) -> None:
    """Write the corpus; the manifest comes last, so that a folder without it is not whole."""
    for module in ("espeakng_loader", "soundfile", "soxr"):
        need(module)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise DataError(
            f"{root} is not empty, and holds no {MANIFEST}: delete it, or choose another folder"
        )
    root.mkdir(parents=True, exist_ok=True)
    numbers = range(settings["speakers"])
    jobs = [
        {**settings, "folder": str(root), "numbers": list(numbers[k : k + BLOCK])}
        for k in numbers[::BLOCK]
    ]
    line = Progress("synthetic speech, speakers", len(numbers)) if verbose else None
    rows: list[dict[str, Any]] = []
    done = 0
    for job, made in zip(jobs, ordered_map(_run, jobs, workers=workers), strict=True):
        rows += made
        done += len(job["numbers"])
        if line is not None:
            line.step(done, f"{len(rows)} utterances")
    write_table(root / INDEX, {key: [row[key] for row in rows] for key in rows[0]})
    write_atomically(root / MANIFEST, json.dumps(settings, indent=1).encode())


def _run(job: dict[str, Any]) -> list[dict[str, Any]]:
    """One job in a fresh process, which finds this package where it lies: the rows of the index."""
    package = str(Path(__file__).resolve().parents[3])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1"}
    program = "import json, sys; from mvplda.speech.corpora.synthetic import say_all; "
    program += "json.dump(say_all(json.load(sys.stdin)), sys.stdout)"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if ended.returncode:
        reason = (ended.stderr.strip().splitlines() or ["no message"])[-1]
        raise DataError(f"synthetic speech was not made: {reason}")
    rows: list[dict[str, Any]] = json.loads(ended.stdout)
    return rows


def _check(root: Path, settings: dict[str, Any]) -> None:
    """The corpus in a folder is of these settings."""
    try:
        there = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{root / MANIFEST} is damaged: delete the folder") from error
    other = [f"{key} {there.get(key)!r}" for key in settings if there.get(key) != settings[key]]
    if other:
        raise DataError(
            f"{root} holds synthetic speech of other settings ({', '.join(other)}): choose another folder"
        )


# What runs in a fresh process: it says and records the phrases of some speakers.


SPEED = (0.98, 1.02)
LOW_HZ, HIGH_HZ = (40, 250), (3800, 7600)
ROOMS = 0.8
"""The share of sessions in a room that reverberates."""
T60_S, DIRECT_DB = (0.1, 0.5), (0, 12)
SNR_DB = (6.0, 25.0)
VOLUME = 60
QUIET = 0.01
PAD_S = (0.03, 0.12)


def say_all(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Make the files of a job, one FLAC per speaker, utterances joined: the rows of the index.

    job : `folder` to write in, `numbers` of the speakers, `phrases` (the texts), `sessions`, `rate` and `seed`
    """
    soundfile = need("soundfile")
    bases = people()
    speakers = [draw_speaker(number, job["seed"], bases) for number in job["numbers"]]
    labels = [slug(text) for text in job["phrases"]]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "data"
        english_data(data, {speaker.name: speaker.variant for speaker in speakers})
        espeak = Espeak(data, seed=job["seed"] % 2**31 + 1)
        for number, speaker in zip(job["numbers"], speakers, strict=True):
            file = f"{speaker.name}.flac"
            clips = []
            start = 0
            for session in range(job["sessions"]):
                said = _session(espeak, speaker, number, session, job)
                for label, clip in zip(labels, said, strict=True):
                    row = {"id": f"{speaker.name}_{label}_{session}", "file": file, "start": start}
                    row |= {"length": len(clip), "speaker": speaker.name, "phrase": label}
                    rows.append(row | {"session": session})
                    start += len(clip)
                clips += said
            path = str(Path(job["folder"]) / file)
            soundfile.write(path, np.concatenate(clips), job["rate"], subtype="PCM_16")
    return rows


def _session(
    espeak: Espeak, speaker: Speaker, number: int, session: int, job: dict[str, Any]
) -> list[NDArray[np.float32]]:
    """Every phrase, said in one sitting: the same mood, microphone, room and noise."""
    key = [job["seed"], 2, number, session]
    rng = np.random.default_rng(key)
    words_per_minute = speaker.rate * rng.uniform(0.88, 1.14)
    pitch = 50 + rng.normal(0, 5)
    expression = speaker.expression + rng.normal(0, 8)
    snr = rng.uniform(*SNR_DB)
    peak = rng.uniform(0.05, 0.8)
    pink = rng.random() < 0.5
    rate = job["rate"]
    clips = []
    for phrase, text in enumerate(job["phrases"]):
        own = np.random.default_rng([*key, phrase])
        # The library keeps every setting: all are set again before every phrase.
        espeak.voice(f"{speaker.accent}+{speaker.name}")
        espeak.set(
            rate=words_per_minute * own.uniform(0.95, 1.05),
            pitch=np.clip(pitch + own.normal(0, 2), 20, 80),
            range=np.clip(expression + own.normal(0, 4), 5, 95),
            volume=VOLUME,
        )
        said = _padded(_trimmed(espeak.say(text)), own, espeak.sample_rate)
        said = need("soxr").resample(said, espeak.sample_rate, rate, quality="HQ")
        heard = _recorded(said, rate, np.random.default_rng([*key, 0, 0]))
        heard = with_noise(heard, snr + own.uniform(-1, 1), pink, own)
        clips.append((heard * (peak / np.abs(heard).max())).astype(np.float32))
    return clips


def _recorded(
    samples: NDArray[np.float64], rate: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Samples as the voice, the microphone and the room of a session have them."""
    samples = at_speed(samples, rng.uniform(*SPEED), rate)
    samples = over_channel(samples, rng.uniform(*LOW_HZ), rng.uniform(*HIGH_HZ), rate, rng)
    if rng.random() < ROOMS:
        samples = in_room(samples, rng.uniform(*T60_S), rng.uniform(*DIRECT_DB), rate, rng)
    return samples


def _trimmed(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    loud = np.flatnonzero(np.abs(samples) > QUIET * np.abs(samples).max())
    return samples[loud[0] : loud[-1] + 1]


def _padded(
    samples: NDArray[np.float64], rng: np.random.Generator, rate: int
) -> NDArray[np.float64]:
    before, after = (round(rate * rng.uniform(*PAD_S)) for _ in range(2))
    return np.pad(samples, (before, after))


SYNCHRONOUS = 2
"""Output mode: samples go to a callback, and `espeak_Synth` returns when all are made."""
UTF8 = 1
PARAMETERS = {"rate": 1, "volume": 2, "pitch": 3, "range": 4}
"""Words a minute; and volume, pitch and range of the pitch around 100, 50 and 50."""
ENGLISH = ("phontab", "phonindex", "phondata", "intonations", "en_dict")
VARIANTS = "voices/!v"

_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p
)


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
        self._library.espeak_ng_SetRandSeed.argtypes = [ctypes.c_long]
        self.sample_rate = int(
            self._library.espeak_Initialize(SYNCHRONOUS, 0, os.fsencode(path), 0)
        )
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

    def voice(self, name: str) -> None:
        """Choose a language and a variant, such as ``en-us+f2``."""
        if self._library.espeak_SetVoiceByName(name.encode()):
            raise ParameterError(f"espeak-ng has no voice {name!r}")

    def set(self, **values: float) -> None:
        """Set rate, volume, pitch or range."""
        for name, value in values.items():
            if name not in PARAMETERS:
                raise ParameterError(
                    f"espeak-ng has the parameters {', '.join(PARAMETERS)}; got {name!r}"
                )
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
        source / "lang" / "gmw",
        folder / "lang" / "gmw",
        ignore=lambda _, names: {n for n in names if n[:2] != "en"},
    )
    (folder / VARIANTS).mkdir(parents=True)
    for name, text in variants.items():
        (folder / VARIANTS / name).write_text(text, encoding="utf-8")


def shipped_variants() -> dict[str, str]:
    """The variants that come with espeak-ng, by name: the text of their files."""
    folder = Path(need("espeakng_loader").get_data_path()) / VARIANTS
    return {
        file.name: file.read_text(encoding="utf-8")
        for file in sorted(folder.iterdir())
        if file.is_file()
    }


ACCENTS = (
    "en",
    "en-us",
    "en-gb-scotland",
    "en-gb-x-rp",
    "en-029",
    "en-gb-x-gbclan",
    "en-gb-x-gbcwmd",
    "en-us-nyc",
)
UNLIKE_PEOPLE = (
    "robo",
    "whisper",
    "klatt",
    "demonic",
    "croak",
    "fast",
    "storm",
    "tweaky",
    "anxious",
    "announcer",
)
"""Robots, whispers and effects are told from people at once, and other speech engines too."""
FORMANTS = range(9)
KEPT = ("flutter", "roughness", "breath", "voicing", "consonants", "tone")
"""Lines of a shipped voice that stay. Echoes, stresses and changed phonemes would give a speaker away."""
LIKENESS = 0.4
"""How far a speaker is from the plain voice towards its shipped one."""
COMMON_SPREAD = 0.05
FORMANT_SPREAD = 0.035
SHAPE_SPREAD = 0.12
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
    return {
        name: text
        for name, text in variants.items()
        if not any(word in name.lower() for word in UNLIKE_PEOPLE)
    }


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
