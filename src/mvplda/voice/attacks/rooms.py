"""Replay attacks: a recording played by a simulated loudspeaker in a simulated room."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.signal import butter, fftconvolve, sosfilt

from .attack import RATE, Attack, Sound

Generator = np.random.Generator
_DECAY_60_DB = float(np.log(1000.0))


def room_response(t60: float, direct_db: float, rate: int, rng: Generator) -> NDArray[np.float64]:
    """Return a random impulse response of a room, (n,): the direct sound, and from 2 ms on the reverberation.

    Parameters
    ----------
    t60 : seconds in which the reverberation falls by 60 dB
    direct_db : ratio of the energy of the direct sound to that of the reverberation, in dB
    rate : samples per second
    rng : generator of the reverberation, which is noise with falling level
    """
    gap = max(1, round(0.002 * rate))
    time = np.arange(max(gap + 1, round(1.2 * t60 * rate))) / rate
    response = rng.standard_normal(len(time)) * np.exp(-_DECAY_60_DB * time / t60)
    response[:gap] = 0.0
    response *= np.sqrt(10 ** (-direct_db / 10) / np.sum(response**2))
    response[0] = 1.0
    return np.asarray(response)


def play_in_room(sound: Sound, rng: Generator) -> Sound:
    """Play a recording by a loudspeaker with a limited band in a reverberant, noisy room.

    The reverberation takes 0.2 to 0.6 s to fall by 60 dB, and noise is 15 to 30 dB below the speech.
    """
    band = [rng.uniform(80, 300), rng.uniform(3400, 7500)]
    filtered = sosfilt(butter(2, band, "bandpass", fs=RATE, output="sos"), sound)
    response = room_response(rng.uniform(0.2, 0.6), rng.uniform(0, 12), RATE, rng)
    wet = fftconvolve(filtered, response)[: len(sound) + RATE // 5]
    wet = np.pad(wet, rng.integers(0, RATE // 2, 2))
    noise = np.sqrt(np.mean(wet**2)) * 10 ** (-rng.uniform(15, 30) / 20)
    wet = wet + noise * rng.standard_normal(len(wet))
    return np.asarray(0.5 * wet / np.abs(wet).max())


def play_near(sound: Sound, rng: Generator) -> Sound:
    """Play a recording by a small, distorting loudspeaker near the microphone, with little reverberation and noise."""
    band = [rng.uniform(200, 500), rng.uniform(5000, 7500)]
    filtered = sosfilt(butter(2, band, "bandpass", fs=RATE, output="sos"), sound)
    drive = rng.uniform(0.5, 2.0) / max(np.abs(filtered).max(), 1e-9)
    distorted = np.tanh(drive * filtered)
    response = room_response(rng.uniform(0.1, 0.2), rng.uniform(12, 20), RATE, rng)
    wet = fftconvolve(distorted, response)[: len(sound) + RATE // 5]
    wet = np.pad(wet, rng.integers(0, RATE // 2, 2))
    noise = np.sqrt(np.mean(wet**2)) * 10 ** (-rng.uniform(30, 45) / 20)
    wet = wet + noise * rng.standard_normal(len(wet))
    return np.asarray(0.5 * wet / np.abs(wet).max())


REPLAYS = {
    attack.name: attack
    for attack in (
        Attack("simulated loudspeaker and room", "replay", play_in_room),
        Attack("simulated loudspeaker at the microphone", "replay", play_near),
    )
}
"""All replay attacks, by name."""
