"""Which stretches of a sound are speech, by silero's network: ``mvplda extractor get silero``."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._optional import need
from ..exceptions import NumericalError
from .frontends import cached_file, open_session
from .sound import golden_signal

RATE = 16000
STEP, BEFORE = 512, 64
"""Samples that have one probability, and samples before them that the network sees with them."""
AT_ONCE = 512
THRESHOLD = 0.5
PEAK = 0.5
"""Quiet sound is made this loud first: of a whisper at -60 dBFS the network hears nothing."""
GOLDEN = (
    0.3013,
    0.0183,
    0.0113,
    0.1888,
    0.0351,
    0.0096,
    0.3592,
    0.0342,
    0.0111,
    0.0309,
    0.0112,
    0.005,
    0.0232,
)
"""Every fifth probability of the code's own signal, which is no speech to it."""
AGREE = 2e-3


class Silero:
    """The network, and the probabilities of speech that it gives for every 32 ms."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        self._session = open_session(path, 1)

    def probabilities(self, samples: NDArray[Any]) -> NDArray[np.float32]:
        """(T,) of samples at 16 kHz; the last one may be of a stretch that is not full."""
        peak = max(float(np.abs(samples).max(initial=0.0)), 1e-30)
        count = -(-len(samples) // STEP)
        sound = np.zeros(BEFORE + count * STEP, dtype=np.float32)
        sound[BEFORE : BEFORE + len(samples)] = samples * (PEAK / peak)
        windows = np.lib.stride_tricks.sliding_window_view(sound, BEFORE + STEP)[::STEP]
        h = c = np.zeros((1, 1, 128), dtype=np.float32)
        found = []
        for start in range(0, count, AT_ONCE):
            block = np.ascontiguousarray(windows[start : start + AT_ONCE])
            p, h, c = self._session.run(
                ["speech_probs", "hn", "cn"], {"input": block, "h": h, "c": c}
            )
            found.append(p.reshape(-1))
        return np.concatenate(found) if found else np.empty(0, dtype=np.float32)

    def check(self) -> None:
        """Compare what the code's own signal gives with what it gave where this was written."""
        found = self.probabilities(golden_signal(RATE))[::5][: len(GOLDEN)]
        off = float(np.abs(found - np.array(GOLDEN)).max())
        if not off <= AGREE:
            raise NumericalError(
                f"{self.path}: the probabilities of the test signal differ by {off:.3g}: other weights"
            )


def silero_speech(
    samples: NDArray[Any], rate: int, centres: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether there is speech at places of the sound, counted in its samples."""
    if rate != RATE:
        samples = need("soxr").resample(
            np.asarray(samples, dtype=np.float32), rate, RATE, quality="HQ"
        )
        centres = centres * RATE // rate
    found = _loaded().probabilities(samples) >= THRESHOLD
    return np.asarray(found[np.minimum(centres // STEP, len(found) - 1)])


@lru_cache(maxsize=1)
def _loaded() -> Silero:
    return Silero(cached_file("silero"))
