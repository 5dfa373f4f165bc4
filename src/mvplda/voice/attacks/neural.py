"""Resynthesis by a network: the MelGAN vocoder in the package ttskit."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.fft import rfft

from ...exceptions import ParameterError
from .attack import RATE, Attack, Sound, resample

MELGAN_RATE = 22050
WINDOW, HOP = 1024, 256
MEL_BANDS = 80
HIGHEST_HZ = 8000.0
FLOOR = 1e-5
"""Least energy of a mel band."""
SILENT_FRAMES = 10
"""Frames of silence after the recording, because the network distorts the end."""
LINEAR_HZ, HZ_PER_MEL = 1000.0, 200.0 / 3.0
LOG_STEP = float(np.log(6.4)) / 27.0
"""Slaney's mel scale: linear up to 1000 Hz, logarithmic above."""
GENERATOR = "melgan.model.generator", "Generator"
STACK = "melgan.model.res_stack", "ResStack"


def hz_of_mel(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return frequencies of Slaney's mel scale."""
    knee = LINEAR_HZ / HZ_PER_MEL
    above = LINEAR_HZ * np.exp(LOG_STEP * (mel - knee))
    return np.where(mel < knee, HZ_PER_MEL * mel, above)


@lru_cache(maxsize=1)
def melgan_bands() -> NDArray[np.float64]:
    """Return (bands, frequencies) triangular weights, each of the area 2 in Hz."""
    knee = LINEAR_HZ / HZ_PER_MEL
    highest = knee + np.log(HIGHEST_HZ / LINEAR_HZ) / LOG_STEP
    edges = hz_of_mel(np.linspace(0.0, highest, MEL_BANDS + 2))
    low, centre, high = (edges[start : start + MEL_BANDS, None] for start in range(3))
    hz = np.linspace(0.0, MELGAN_RATE / 2, WINDOW // 2 + 1)
    rising, falling = (hz - low) / (centre - low), (high - hz) / (high - centre)
    weights = np.maximum(0.0, np.minimum(rising, falling))
    return np.asarray(weights * 2.0 / (high - low))


@lru_cache(maxsize=1)
def melgan_network() -> Any:
    """Load the network of ttskit. Its file is a pickle, of which only the classes of layers are loaded."""
    torch = import_module("torch")
    classes = []
    for module, name in (GENERATOR, STACK):
        # the file names the modules as they were called before they became a part of ttskit
        found = getattr(import_module(f"ttskit.{module}"), name)
        classes.append((found, f"{module}.{name}"))
    layers = torch.nn.modules
    classes += [
        layers.activation.Tanh,
        layers.activation.LeakyReLU,
        layers.conv.Conv1d,
        layers.conv.ConvTranspose1d,
        layers.container.Sequential,
        layers.container.ModuleList,
        layers.padding.ReflectionPad1d,
        torch.nn.utils.weight_norm.__globals__["WeightNorm"],
    ]
    specification = find_spec("ttskit")
    if specification is None or specification.origin is None:
        raise ParameterError("MelGAN needs the package ttskit: install it")
    file = Path(specification.origin).parent / "resource" / "model" / "melgan.kuangdd.pt"
    with torch.serialization.safe_globals(classes):
        return torch.load(file, map_location="cpu", weights_only=True)


def melgan(sound: Sound, rng: np.random.Generator) -> Sound:
    """Reduce to 80 mel bands, and let MelGAN make a sound of them."""
    torch = import_module("torch")
    peak = max(float(np.abs(sound).max()), 1e-9)
    samples = resample(np.asarray(sound, np.float64) * (0.9 / peak), RATE, MELGAN_RATE)
    samples = np.pad(samples, WINDOW // 2, mode="reflect")
    windows = sliding_window_view(samples, WINDOW)[::HOP]
    magnitudes = np.abs(rfft(windows * np.hanning(WINDOW + 1)[:-1], axis=1))
    mel = np.log(np.maximum(magnitudes @ melgan_bands().T, FLOOR))
    mel = np.concatenate([mel, np.full((SILENT_FRAMES, MEL_BANDS), np.log(FLOOR))])
    with torch.inference_mode():
        # the network scales the bands itself
        made = melgan_network()(torch.from_numpy(mel.T[None].astype(np.float32)))
    made = made.numpy().ravel()[: -HOP * SILENT_FRAMES].astype(np.float64)
    narrow = resample(made, MELGAN_RATE, RATE)[: len(sound)]
    return np.asarray(narrow * peak / max(np.abs(narrow).max(), 1e-9))


MELGAN = Attack("MelGAN", "resynthesis", melgan, (), ("torch", "ttskit", "soxr"))
"""Vocoder of a text-to-speech system, a network (package ttskit)."""
