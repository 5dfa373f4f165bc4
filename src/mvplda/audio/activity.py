"""Which frames are speech, by their energy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .settings import ActivitySettings, FeatureSettings

FLOOR = float(np.finfo(np.float32).eps)


def log_energy(samples: NDArray[np.float32], settings: FeatureSettings) -> NDArray[np.float64]:
    """(T,) log of the sum of squares of every frame, its mean taken away."""
    if len(samples) < settings.frame_length:
        return np.empty(0)
    windows = np.lib.stride_tricks.sliding_window_view(samples, settings.frame_length)[:: settings.frame_shift]
    centred = windows - windows.mean(axis=1, keepdims=True, dtype=np.float64)
    return np.asarray(np.log(np.maximum(np.einsum("ij,ij->i", centred, centred), FLOOR)))


def speech_frames(energies: NDArray[np.float64], settings: ActivitySettings | None = None) -> NDArray[np.bool_]:
    """Which of an utterance's frames are speech, by their log energies.

    Nothing is speech where all is about equally loud and near the floor: the result may be
    all False, and what then is left to the caller (`mvplda.audio.features` keeps all frames).

    Examples
    --------
    >>> speech_frames(np.array([2.0, 2, 20, 20, 20, 2, 2]), ActivitySettings(context=1)).astype(int)
    array([0, 0, 1, 1, 1, 0, 0])
    """
    settings = settings or ActivitySettings()
    if not len(energies):
        return np.zeros(0, dtype=np.bool_)
    loud = energies > settings.threshold + settings.mean_scale * energies.mean()
    sums = np.concatenate([[0], np.cumsum(loud)])
    here = np.arange(len(loud))
    first = np.maximum(here - settings.context, 0)
    last = np.minimum(here + settings.context + 1, len(loud))
    return np.asarray(sums[last] - sums[first] >= settings.proportion * (last - first))
