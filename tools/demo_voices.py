"""Make the synthetic recordings of `mvplda demo`: two voices of espeak-ng say two phrases three times each.

    python -m tools.demo_voices

Nobody was recorded. Repetitions differ in rate, pitch, channel and noise. The encoder numbers its streams at random, so
another run gives the same sound in other bytes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.voices import RATE, Espeak, Speaker
from mvplda._optional import need
from mvplda.paper.frames import over_channel, with_noise
from mvplda.voice.demo import FOLDER, LABEL, PHRASES, VOICES

REPETITIONS = 3
ENGINE = {
    "alba": Speaker("alba", "en-gb-scotland", "anika", 160, 56, 60),
    "hugo": Speaker("hugo", "en-us", "m3", 165, 44, 50),
}


def write_voices(folder: Path) -> None:
    """Write all recordings to `folder` as VOICE/PHRASE/REPETITION.ogg, labelled as synthetic in their metadata."""
    soundfile = need("soundfile")
    espeak = Espeak(1)
    for number, name in enumerate(VOICES):
        for repetition in range(1, REPETITIONS + 1):
            rng = np.random.default_rng([7, number, repetition])
            speaker = ENGINE[name]
            mood = speaker._replace(
                rate=speaker.rate * rng.uniform(0.96, 1.04), pitch=speaker.pitch + rng.normal(0, 1)
            )
            low, high = rng.uniform(60, 120), rng.uniform(6000, 7600)
            for phrase in PHRASES:
                wave = over_channel(espeak.say(phrase, mood, rng), low, high, RATE, rng)
                wave = with_noise(wave, rng.uniform(22, 28), True, rng)
                path = folder / name / phrase.replace(" ", "-") / f"{repetition}.ogg"
                path.parent.mkdir(parents=True, exist_ok=True)
                with soundfile.SoundFile(path, "w", RATE, 1, "VORBIS", format="OGG") as file:
                    file.comment = LABEL
                    file.write((0.5 * wave / np.abs(wave).max()).astype(np.float32))


if __name__ == "__main__":
    write_voices(FOLDER)
