"""Synthetic speech of espeak-ng: parameters of the speakers, and the synthesiser."""

from __future__ import annotations

import ctypes
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from mvplda._optional import need
from mvplda._typing import Array
from mvplda.exceptions import DataError, ParameterError

RATE = 16000
ACCENTS = ("en", "en-us", "en-gb-scotland", "en-gb-x-rp", "en-029", "en-gb-x-gbclan", "en-us-nyc")
VOICES = """\
Alex
Alicia
Andrea
Andy
Annie
Denis
Diogo
Gene
Henrique
Hugo
Jacky
Lee
Marco
Mario
Michael
Mike
Nguyen
Reed
adam
anika
antonio
aunty
belinda
benjamin
boris
caleb
david
ed
edward
f1
f2
f3
f4
f5
grandma
grandpa
gustave
ian
iven
john
linda
m1
m2
m3
m4
m5
m6
m7
m8
marcelo
max
michel
miguel
norbert
pablo
paul
pedro
quincy
rob
robert
sandro
shelby
steph
travis
victor
zac
""".splitlines()
"""Those of espeak-ng that sound like people."""


class Speaker(NamedTuple):
    """A voice of espeak-ng and how it speaks: words per minute, and the pitch and its range around 50."""

    name: str
    accent: str
    voice: str
    rate: float
    pitch: float
    expression: float


def draw_speaker(number: int, seed: int) -> Speaker:
    """The speaker of a number: the same whatever the number of speakers."""
    voices = np.random.default_rng([seed, 1]).permutation(VOICES).tolist()
    rng = np.random.default_rng([seed, 1, number])
    accent = ACCENTS[rng.integers(len(ACCENTS))]
    voice = voices[number % len(voices)]
    rate, pitch, expression = rng.uniform([145, 40, 25], [195, 60, 75])
    return Speaker(f"s{number + 1:03d}", accent, voice, rate, pitch, expression)


SYNCHRONOUS = 2
"""Output mode: samples go to a callback, and `espeak_Synth` returns when all are made."""
UTF8 = 1
RATE_SETTING, VOLUME_SETTING, PITCH_SETTING, RANGE_SETTING = 1, 2, 3, 4
VOLUME = 60
_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p
)


class Espeak:
    """The synthesiser, of which a process has one.

    What it says depends on all that it said before: with the same seed, a fresh process that
    says the same things in the same order gets the same samples.
    """

    def __init__(self, seed: int) -> None:
        loader = import_module("espeakng_loader")
        self._library = ctypes.CDLL(str(loader.get_library_path()))
        data = str(loader.get_data_path())
        self.sample_rate = int(self._library.espeak_Initialize(SYNCHRONOUS, 0, data.encode(), 0))
        if self.sample_rate <= 0:
            raise DataError(f"espeak-ng does not start with the data in {data}")
        self._parts: list[bytes] = []
        self._callback = _Callback(self._take)  # kept, for the library does not
        self._library.espeak_SetSynthCallback(self._callback)
        self._library.espeak_ng_SetRandSeed(ctypes.c_long(seed))

    def _take(self, samples: Any, number: int, events: Any) -> int:
        if samples and number > 0:
            self._parts.append(ctypes.string_at(samples, 2 * number))
        return 0

    def say(self, text: str, speaker: Speaker, rng: np.random.Generator) -> Array:
        """The samples of a text, between -1 and 1, at 16 kHz; every time a little different, as people's are."""
        # the library keeps every setting: all are set again
        name = f"{speaker.accent}+{speaker.voice}"
        if self._library.espeak_SetVoiceByName(name.encode()):
            raise ParameterError(f"espeak-ng has no voice {name!r}")
        values = {
            RATE_SETTING: speaker.rate * rng.uniform(0.95, 1.05),
            VOLUME_SETTING: VOLUME,
            PITCH_SETTING: np.clip(speaker.pitch + rng.normal(0, 2), 20, 80),
            RANGE_SETTING: np.clip(speaker.expression + rng.normal(0, 4), 5, 95),
        }
        for setting, value in values.items():
            self._library.espeak_SetParameter(setting, round(value), 0)
        self._parts.clear()
        data = text.encode()
        size = ctypes.c_size_t(len(data) + 1)
        self._library.espeak_Synth(data, size, 0, 1, 0, UTF8, None, None)
        samples = np.frombuffer(b"".join(self._parts), dtype=np.int16) / 32768.0
        if not samples.any():
            raise DataError(f"espeak-ng says nothing for {text!r}")
        loud = np.flatnonzero(np.abs(samples) > 0.01 * np.abs(samples).max())
        padded = np.pad(samples[loud[0] : loud[-1] + 1], round(0.05 * self.sample_rate))
        return np.asarray(need("soxr").resample(padded, self.sample_rate, RATE, quality="HQ"))
