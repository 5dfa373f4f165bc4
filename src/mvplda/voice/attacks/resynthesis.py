"""Attacks by resynthesis: a recording is reduced to parameters, and a new sound is made from them, as vocoders do."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.fft import irfft, rfft
from scipy.linalg import solve_toeplitz
from scipy.signal import lfilter

from ..audio.decode import read_audio
from .attack import RATE, Attack, Sound, from_pcm, resample, run_program, to_pcm

Generator = np.random.Generator
Array = NDArray[np.float64]

WINDOW, HOP = 512, 128
"""Length of a window and distance between windows, in samples at 16 kHz: 32 and 8 ms."""
ROUNDS = 32
"""Number of iterations of Griffin and Lim's algorithm."""
MEL_BANDS = 80
ORDER = 18
"""Number of coefficients of the linear prediction of a frame."""
PITCHES_HZ = (60.0, 400.0)
VOICED = 0.4
"""Minimum autocorrelation of a voiced frame at its period."""
CODEC2_RATE = 8000


def short_time_spectra(sound: Sound) -> NDArray[np.complex128]:
    """Return the (windows, 257) complex spectra of overlapping windows of (n,) samples."""
    padded = np.pad(np.asarray(sound, np.float64), WINDOW)
    windows = sliding_window_view(padded, WINDOW)[::HOP]
    return np.asarray(rfft(windows * np.hanning(WINDOW), axis=1))


def overlap_add(windows: Array, length: int) -> Array:
    """Return the (length,) sound whose overlapping windows fit given windows best (least squares).

    windows : (windows, 512) samples of each window; positions are those of `short_time_spectra`
    length : number of samples of the sound
    """
    weights = np.hanning(WINDOW)
    sound = np.zeros(HOP * (len(windows) - 1) + WINDOW)
    total = np.zeros_like(sound)
    for number, window in enumerate(windows):
        columns = slice(number * HOP, number * HOP + WINDOW)
        sound[columns] += weights * window
        total[columns] += weights**2
    return np.asarray((sound / np.maximum(total, 1e-3))[WINDOW : WINDOW + length])


def griffin_lim(sound: Sound, rng: Generator, bands: int | None = None) -> Sound:
    """Discard the phases of a recording's spectra, and estimate new ones by Griffin and Lim's algorithm.

    Parameters
    ----------
    sound : (n,) samples at 16 kHz
    rng : generator of the phases to start from
    bands : number of mel bands to which the magnitudes are reduced, as in text-to-speech; None: all frequencies
    """
    magnitudes = np.abs(short_time_spectra(sound))
    if bands is not None:
        weights = mel_weights(bands)
        magnitudes = np.maximum(magnitudes @ weights.T @ np.linalg.pinv(weights).T, 0.0)
    phases = np.exp(2j * np.pi * rng.random(magnitudes.shape))
    for _ in range(ROUNDS):
        windows = irfft(magnitudes * phases, WINDOW, axis=1)
        spectra = short_time_spectra(overlap_add(windows, len(sound)))[: len(magnitudes)]
        phases = np.exp(1j * np.angle(spectra))
    return overlap_add(irfft(magnitudes * phases, WINDOW, axis=1), len(sound))


def mel_weights(bands: int) -> Array:
    """Return the (bands, 257) weight of each frequency of a spectrum (0 to 8 kHz) in each mel band.

    The weights of a band form a triangle with the peak 1.
    """
    highest = 2595 * np.log10(1 + RATE / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, highest, bands + 2) / 2595) - 1)
    low, centre, high = (edges[start : start + bands, None] for start in range(3))
    hz = np.linspace(0, RATE / 2, WINDOW // 2 + 1)
    rising, falling = (hz - low) / (centre - low), (high - hz) / (high - centre)
    return np.asarray(np.maximum(0.0, np.minimum(rising, falling)))


def linear_prediction(sound: Sound, rng: Generator) -> Sound:
    """Resynthesise a recording as pulses at its pitch, or noise, that are filtered by its linear prediction.

    Parameters
    ----------
    sound : (n,) samples at 16 kHz
    rng : generator of the noise in frames without a voice
    """
    frames = sliding_window_view(np.pad(np.asarray(sound, np.float64), WINDOW), WINDOW)[::HOP]
    shortest, longest = (round(RATE / hz) for hz in reversed(PITCHES_HZ))
    windows = np.zeros(frames.shape)
    next_pulse = 0.0
    for number, frame in enumerate(frames * np.hanning(WINDOW)):
        correlation = irfft(np.abs(rfft(frame, 2 * WINDOW)) ** 2)[:WINDOW]
        if correlation[0] < 1e-9:
            continue
        # a little noise keeps the equations solvable
        ridge = correlation[: ORDER + 1] + np.eye(1, ORDER + 1)[0] * 1e-3 * correlation[0]
        prediction = solve_toeplitz(ridge[:ORDER], ridge[1:])
        period = shortest + int(correlation[shortest:longest].argmax())
        excitation = rng.standard_normal(WINDOW)
        if correlation[period] > VOICED * correlation[0]:
            # pulses continue from frame to frame
            begin = number * HOP
            first = max(next_pulse - begin, 0.0)
            pulses = np.arange(first, WINDOW, period).astype(int)
            excitation = np.zeros(WINDOW)
            excitation[pulses] = np.sqrt(period)
            passed = pulses[pulses < HOP]
            next_pulse = begin + (passed[-1] + period if len(passed) else first)
        filtered = lfilter([1.0], np.concatenate([[1.0], -prediction]), excitation)
        gain = np.sqrt(np.sum(frame**2) / max(np.sum((filtered * np.hanning(WINDOW)) ** 2), 1e-12))
        windows[number] = gain * filtered * np.hanning(WINDOW)
    resynthesised = overlap_add(windows, len(sound))
    peak = max(np.abs(resynthesised).max(), 1e-9)
    return np.asarray(resynthesised * np.abs(sound).max() / peak)


def codec2(sound: Sound, rng: Generator, mode: str) -> Sound:
    """Encode and decode a recording with Codec 2, which transmits only pitch, spectral envelope and voicing.

    Parameters
    ----------
    sound : (n,) samples at 16 kHz
    rng : not used, because the codec is deterministic
    mode : bit rate in bits per second, such as "3200"
    """
    narrow = resample(sound, RATE, CODEC2_RATE)
    with tempfile.TemporaryDirectory(prefix="mvplda-") as folder:
        files = [str(Path(folder) / name) for name in ("sound.raw", "coded.bit", "decoded.raw")]
        Path(files[0]).write_bytes(to_pcm(narrow))
        run_program(["c2enc", mode, *files[:2]], b"")
        run_program(["c2dec", mode, *files[1:]], b"")
        decoded = from_pcm(Path(files[2]).read_bytes())
    return resample(decoded, CODEC2_RATE, RATE)


def world(sound: Sound, rng: Generator) -> Sound:
    """Resynthesise a recording from its pitch, spectral envelope and aperiodicity, with the vocoder WORLD."""
    pyworld = import_module("pyworld")
    samples = np.ascontiguousarray(sound, np.float64)
    pitch, times = pyworld.harvest(samples, RATE)
    envelope = pyworld.cheaptrick(samples, pitch, times, RATE)
    aperiodicity = pyworld.d4c(samples, pitch, times, RATE)
    return np.asarray(pyworld.synthesize(pitch, envelope, aperiodicity, RATE))


RESYNTHESIS: Mapping[str, Attack] = {
    attack.name: attack
    for attack in (
        Attack("Griffin-Lim", "resynthesis", griffin_lim),
        Attack(
            "Griffin-Lim from 80 mel bands", "resynthesis", partial(griffin_lim, bands=MEL_BANDS)
        ),
        Attack("linear prediction", "resynthesis", linear_prediction),
        Attack(
            "Codec 2, 3200 bit/s",
            "resynthesis",
            partial(codec2, mode="3200"),
            ("c2enc", "c2dec"),
            ("soxr",),
        ),
        Attack(
            "Codec 2, 1300 bit/s",
            "resynthesis",
            partial(codec2, mode="1300"),
            ("c2enc", "c2dec"),
            ("soxr",),
        ),
        Attack("WORLD", "resynthesis", world, (), ("pyworld",)),
    )
}
"""All attacks by resynthesis without a neural network, by name."""


def espeak(text: str, rng: Generator, language: str = "en-us") -> Sound:
    """Return the (n,) sound at 16 kHz of a text in the generic voice of eSpeak NG, at a random pitch and pace.

    language : voice of eSpeak NG, such as "en-us"
    """
    settings = ["-v", language, "-p", str(rng.integers(20, 80)), "-s", str(rng.integers(120, 170))]
    with tempfile.TemporaryDirectory(prefix="mvplda-") as folder:
        path = Path(folder) / "speech.wav"
        run_program(["espeak-ng", *settings, "-w", str(path), text], b"")
        return np.asarray(read_audio(path, RATE), np.float64)
