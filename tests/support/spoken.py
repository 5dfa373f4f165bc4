"""Sound like speech: vowels of a voice, at another pitch and pace for each seed."""

from __future__ import annotations

import numpy as np
from scipy.signal import lfilter

from mvplda.voice.fingerprint import RATE


def say(seed: int, seconds: float = 2.0) -> np.ndarray:
    """Return the same vowels in the same order, at another pitch and pace for each seed."""
    rng = np.random.default_rng(seed)
    vowels = [(700, 1200, 2600), (300, 2200, 3000), (450, 900, 2400), (550, 1800, 2500)] * 2
    sound = []
    for formants in vowels:
        length = round(seconds / len(vowels) * RATE * rng.uniform(0.9, 1.1))
        pitch = rng.uniform(110, 130) * (1 + 0.1 * np.linspace(-1, 1, length) * rng.normal())
        phase = np.cumsum(pitch / RATE)
        voice = np.diff(np.floor(phase), prepend=0.0) + 0.02 * rng.standard_normal(length)
        for formant in formants:
            radius = np.exp(-np.pi * 80 / RATE)
            angle = 2 * np.pi * formant * rng.uniform(0.97, 1.03) / RATE
            voice = lfilter([1 - radius], [1, -2 * radius * np.cos(angle), radius**2], voice)
        sound.append(voice * np.hanning(length))
    joined = np.concatenate(sound)
    return np.pad(0.5 * joined / np.abs(joined).max(), 2000)
