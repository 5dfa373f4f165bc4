"""Attack by resynthesis with a neural network, the MelGAN vocoder in the package ttskit."""

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
"""Lower limit of the magnitude of a mel band before the logarithm is taken."""
SILENT_FRAMES = 10
"""Number of silent frames after the recording, because the network distorts the end."""
LINEAR_HZ, HZ_PER_MEL = 1000.0, 200.0 / 3.0
LOG_STEP = float(np.log(6.4)) / 27.0
"""Step of the logarithm of the frequency per mel above 1000 Hz, in Slaney's mel scale; below, the scale is linear."""
GENERATOR = "melgan.model.generator", "Generator"
STACK = "melgan.model.res_stack", "ResStack"


def hz_of_mel(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    """Convert values of Slaney's mel scale to frequencies in Hz; arrays of any shape."""
    knee = LINEAR_HZ / HZ_PER_MEL
    above = LINEAR_HZ * np.exp(LOG_STEP * (mel - knee))
    return np.where(mel < knee, HZ_PER_MEL * mel, above)


@lru_cache(maxsize=1)
def melgan_bands() -> NDArray[np.float64]:
    """Return the (80, 513) weight of each frequency of a spectrum in each mel band.

    MelGAN was trained with these bands. The weights of a band form a triangle over frequencies in
    Hz, with the area 1.
    """
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
    """Load the MelGAN network from the package ttskit, as a PyTorch module.

    The file of the network is a pickle, which could run any code. Therefore only the classes of
    layers that MelGAN consists of may be loaded.
    """
    torch = import_module("torch")
    classes = []
    for module, name in (GENERATOR, STACK):
        # the file has the names of the modules from before they became a part of ttskit
        layer_class = getattr(import_module(f"ttskit.{module}"), name)
        classes.append((layer_class, f"{module}.{name}"))
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
        raise ParameterError("the attack MelGAN needs the package ttskit: pip install ttskit")
    file = Path(specification.origin).parent / "resource" / "model" / "melgan.kuangdd.pt"
    with torch.serialization.safe_globals(classes):
        return torch.load(file, map_location="cpu", weights_only=True)


def melgan(sound: Sound, rng: np.random.Generator) -> Sound:
    """Reduce a recording to 80 mel bands, and make a new sound from the bands with MelGAN.

    Parameters
    ----------
    sound : (n,) samples at 16 kHz
    rng : not used, because the network is deterministic

    Returns
    -------
    at most n samples with the peak of the recording
    """
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
        output = melgan_network()(torch.from_numpy(mel.T[None].astype(np.float32)))
    wide = output.numpy().ravel()[: -HOP * SILENT_FRAMES].astype(np.float64)
    narrow = resample(wide, MELGAN_RATE, RATE)[: len(sound)]
    return np.asarray(narrow * peak / max(np.abs(narrow).max(), 1e-9))


MELGAN = Attack("MelGAN", "resynthesis", melgan, (), ("torch", "ttskit", "soxr"))
"""Attack by the vocoder of a text-to-speech system, a neural network (package ttskit)."""
