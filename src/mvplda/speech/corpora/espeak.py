"""The speech synthesiser espeak-ng, called through its C library."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exceptions import DataError, ParameterError
from ..extras import need

SYNCHRONOUS = 2
"""Output mode: samples go to a callback, and `espeak_Synth` returns when all are made."""
UTF8 = 1
PARAMETERS = {"rate": 1, "volume": 2, "pitch": 3, "range": 4}
"""Words a minute; and volume, pitch and range of the pitch around 100, 50 and 50."""
ENGLISH = ("phontab", "phonindex", "phondata", "intonations", "en_dict")
VARIANTS = "voices/!v"

_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


class Espeak:
    """The synthesiser, of which a process has one.

    What it says depends on all that it said before: with the same seed, a fresh process that
    says the same things in the same order gets the same samples.

    Parameters
    ----------
    data : the folder of voices and dictionaries; None takes the one of `espeakng_loader`
    seed : of its random numbers, which make breath and flutter
    """

    def __init__(self, data: str | os.PathLike[str] | None = None, seed: int = 0) -> None:
        loader = need("espeakng_loader")
        self._library: Any = ctypes.CDLL(str(loader.get_library_path()))
        path = str(data if data is not None else loader.get_data_path())
        self._library.espeak_Synth.argtypes = [
            ctypes.c_char_p,
            ctypes.c_size_t,
            ctypes.c_uint,
            ctypes.c_int,
            ctypes.c_uint,
            ctypes.c_uint,
            ctypes.c_void_p,
            ctypes.c_void_p,
        ]
        self._library.espeak_Info.restype = ctypes.c_char_p
        self._library.espeak_ng_SetRandSeed.argtypes = [ctypes.c_long]
        self.sample_rate = int(self._library.espeak_Initialize(SYNCHRONOUS, 0, os.fsencode(path), 0))
        if self.sample_rate <= 0:
            raise DataError(f"espeak-ng does not start with the data in {path}")
        self._parts: list[bytes] = []
        self._callback = _Callback(self._take)  # kept, for the library does not
        self._library.espeak_SetSynthCallback(self._callback)
        self._library.espeak_ng_SetRandSeed(seed)

    def _take(self, samples: Any, number: int, events: Any) -> int:
        if samples and number > 0:
            self._parts.append(ctypes.string_at(samples, 2 * number))
        return 0

    @property
    def version(self) -> str:
        return str(self._library.espeak_Info(None).decode().split()[0])

    def voice(self, name: str) -> None:
        """Choose a language and a variant, such as ``en-us+f2``."""
        if self._library.espeak_SetVoiceByName(name.encode()):
            raise ParameterError(f"espeak-ng has no voice {name!r}")

    def set(self, **values: float) -> None:
        """Set rate, volume, pitch or range."""
        for name, value in values.items():
            if name not in PARAMETERS:
                raise ParameterError(f"espeak-ng has the parameters {', '.join(PARAMETERS)}; got {name!r}")
            self._library.espeak_SetParameter(PARAMETERS[name], round(value), 0)

    def say(self, text: str) -> NDArray[np.float64]:
        """The samples of a text, between -1 and 1, at `sample_rate`."""
        self._parts.clear()
        data = text.encode()
        if self._library.espeak_Synth(data, len(data) + 1, 0, 1, 0, UTF8, None, None):
            raise DataError(f"espeak-ng cannot say {text!r}")
        samples = np.frombuffer(b"".join(self._parts), dtype=np.int16) / 32768.0
        if not samples.any():
            raise DataError(f"espeak-ng says nothing for {text!r}")
        return samples


def english_data(folder: Path, variants: Mapping[str, str]) -> None:
    """Make a folder of data with English, its accents, and variants of one's own.

    Parameters
    ----------
    folder : to be made
    variants : name -> text of the variant's file
    """
    source = Path(need("espeakng_loader").get_data_path())
    folder.mkdir(parents=True)
    for name in ENGLISH:
        shutil.copyfile(source / name, folder / name)
    shutil.copytree(
        source / "lang" / "gmw", folder / "lang" / "gmw", ignore=lambda _, names: {n for n in names if n[:2] != "en"}
    )
    (folder / VARIANTS).mkdir(parents=True)
    for name, text in variants.items():
        (folder / VARIANTS / name).write_text(text, encoding="utf-8")


def shipped_variants() -> dict[str, str]:
    """The variants that come with espeak-ng, by name: the text of their files."""
    folder = Path(need("espeakng_loader").get_data_path()) / VARIANTS
    return {file.name: file.read_text(encoding="utf-8") for file in sorted(folder.iterdir()) if file.is_file()}
