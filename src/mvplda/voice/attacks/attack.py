"""Attacks as records: their kind, the programs that they need, and the function that makes them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..._optional import need
from ...exceptions import ParameterError

Sound = NDArray[np.floating]
Make = Callable[[Sound, np.random.Generator], Sound]
Kind = Literal["copy", "replay", "resynthesis", "speech synthesis"]

RATE = 16000
"""Samples per second of all recordings and attacks."""

PROGRAM_SECONDS = 60
"""Longest run of another program."""


@dataclass(frozen=True)
class Attack:
    """One way to attack with a recording of the owner.

    Attributes
    ----------
    name : name in tables
    kind : presentation attack instrument species of ISO/IEC 30107-3
    make : function that returns the attack for samples at `RATE` and a generator
    programs : programs that must be installed
    packages : Python packages that must be installed
    sox_formats : file formats that `sox` must support; Debian has some in packages apart
    """

    name: str
    kind: Kind
    make: Make
    programs: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    sox_formats: tuple[str, ...] = ()

    def missing(self) -> list[str]:
        """Return the programs, formats and packages that are not installed."""
        programs = [name for name in self.programs if shutil.which(name) is None]
        formats = [] if programs else sorted(set(self.sox_formats) - formats_of_sox())
        packages = [name for name in self.packages if not is_importable(name)]
        return programs + [f"the format {name} of sox" for name in formats] + packages

    def __call__(self, sound: Sound, rng: np.random.Generator) -> Sound:
        """Return the attack; raise if a program is missing."""
        missing = self.missing()
        if missing:
            raise ParameterError(f"{self.name} needs {', '.join(missing)}: install it")
        attack: Sound = np.asarray(self.make(np.asarray(sound, np.float64), rng), np.float64)
        # programs may add silence, but never return other than numbers of full scale 1
        return np.clip(np.nan_to_num(attack), -1.0, 1.0)


@cache
def is_importable(package: str) -> bool:
    """Return whether a package is installed, together with the packages that it imports."""
    try:
        import_module(package)
    except ImportError:
        return False
    return True


def formats_of_sox() -> frozenset[str]:
    """Return the file formats that the installed `sox` reads and writes; none without `sox`."""
    if shutil.which("sox") is None:
        return frozenset()
    help_text = subprocess.run(
        ["sox", "--help"], capture_output=True, check=False, timeout=PROGRAM_SECONDS
    ).stdout.decode(errors="replace")
    listed = re.search(r"^AUDIO FILE FORMATS:(.*)$", help_text, re.MULTILINE)
    return frozenset(listed.group(1).split()) if listed else frozenset()


def run_program(command: Sequence[str], data: bytes) -> bytes:
    """Return the standard output of a program for this standard input."""
    done = subprocess.run(
        list(command), input=data, capture_output=True, check=False, timeout=PROGRAM_SECONDS
    )
    if done.returncode:
        message = done.stderr.decode(errors="replace").strip()[-300:]
        raise ParameterError(f"{command[0]} failed: {message}")
    return done.stdout


def to_pcm(sound: Sound) -> bytes:
    """Return samples as 16-bit integers, as programs read them."""
    return (np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes()


def from_pcm(data: bytes) -> Sound:
    """Return samples from 16-bit integers."""
    return np.frombuffer(data[: len(data) // 2 * 2], "<i2").astype(np.float64) / 32768


def resample(sound: Sound, rate_in: float, rate_out: float) -> Sound:
    """Return samples at another rate."""
    changed: Sound = need("soxr").resample(sound, rate_in, rate_out)
    return changed
