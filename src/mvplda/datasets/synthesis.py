"""Says and records the phrases of some speakers: run in a fresh process, ``python -m mvplda.datasets.synthesis``.

Reads the job, a JSON object, from standard input: `folder` to write in, `numbers` of the speakers,
`phrases` (the texts), `sessions`, `rate` and `seed`. Writes one FLAC a speaker, utterances joined,
and to standard output a JSON object: the rows of the index and what the speakers are.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..audio.augmentation import Channel, Noise, Recipe, Room, Speed, augment
from ..extras import need
from .espeak import Espeak, english_data
from .voices import Speaker, draw_speaker, people

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


if __name__ == "__main__":
    json.dump(say_all(json.load(sys.stdin)), sys.stdout)
