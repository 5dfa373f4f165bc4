"""Description of an attack: its kind, the programs that it needs, and the function that makes its sound."""

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
"""Maximum duration in seconds of one run of another program."""


@dataclass(frozen=True)
class Attack:
    """One way to attack a log-in with a recording of its owner.

    Calling the attack with a recording returns the sound to attack with.

    Attributes
    ----------
    name : name of the attack in tables of results
    kind : what makes the sound, such as "replay" (presentation attack instrument species of
        ISO/IEC 30107-3)
    make : function that returns the sound of the attack, given a recording at 16 kHz and a random generator
    programs : programs that must be installed
    packages : Python packages that must be installed
    sox_formats : file formats that the program `sox` must support; Debian has some in separate packages
    """

    name: str
    kind: Kind
    make: Make
    programs: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    sox_formats: tuple[str, ...] = ()

    def missing(self) -> list[str]:
        """Return what the attack needs and is not installed: programs, formats of sox, packages.

        The result is a list of names; it is empty if the attack can be made.
        """
        programs = [name for name in self.programs if shutil.which(name) is None]
        formats = [] if programs else sorted(set(self.sox_formats) - formats_of_sox())
        packages = [name for name in self.packages if not is_importable(name)]
        return programs + [f"the format {name} of sox" for name in formats] + packages

    def __call__(self, sound: Sound, rng: np.random.Generator) -> Sound:
        """Return the sound of the attack.

        Parameters
        ----------
        sound : (n,) samples of the owner's recording at 16 kHz, full scale 1
        rng : generator of the attack's random choices

        Raises
        ------
        ParameterError
            A program or package is not installed.
        """
        missing = self.missing()
        if missing:
            raise ParameterError(
                f"the attack {self.name!r} needs {', '.join(missing)}: install it, or leave this attack out"
            )
        attack: Sound = np.asarray(self.make(np.asarray(sound, np.float64), rng), np.float64)
        # programs may add silence, but the result must be finite with full scale 1
        return np.clip(np.nan_to_num(attack), -1.0, 1.0)


@cache
def is_importable(package: str) -> bool:
    """Return whether a Python package and all that it imports are installed."""
    try:
        import_module(package)
    except ImportError:
        return False
    return True


def formats_of_sox() -> frozenset[str]:
    """Return the file formats that the installed program `sox` supports; none if it is not installed."""
    if shutil.which("sox") is None:
        return frozenset()
    help_text = subprocess.run(
        ["sox", "--help"], capture_output=True, check=False, timeout=PROGRAM_SECONDS
    ).stdout.decode(errors="replace")
    listed = re.search(r"^AUDIO FILE FORMATS:(.*)$", help_text, re.MULTILINE)
    return frozenset(listed.group(1).split()) if listed else frozenset()


def run_program(command: Sequence[str], data: bytes) -> bytes:
    """Run a program and return its standard output.

    Parameters
    ----------
    command : program and arguments
    data : standard input

    Raises
    ------
    ParameterError
        The program returned an exit code other than 0.
    """
    done = subprocess.run(
        list(command), input=data, capture_output=True, check=False, timeout=PROGRAM_SECONDS
    )
    if done.returncode:
        message = done.stderr.decode(errors="replace").strip()[-300:]
        raise ParameterError(
            f"the program {command[0]} failed with exit code {done.returncode}: {message}"
        )
    return done.stdout


def to_pcm(sound: Sound) -> bytes:
    """Convert (n,) samples with full scale 1 to the bytes of 16-bit integers (little-endian), which programs read."""
    return (np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes()


def from_pcm(data: bytes) -> Sound:
    """Convert the bytes of 16-bit integers (little-endian) to (n,) samples with full scale 1."""
    return np.frombuffer(data[: len(data) // 2 * 2], "<i2").astype(np.float64) / 32768


def resample(sound: Sound, rate_in: float, rate_out: float) -> Sound:
    """Convert (n,) samples from `rate_in` to `rate_out` samples per second."""
    changed: Sound = need("soxr").resample(sound, rate_in, rate_out)
    return changed
