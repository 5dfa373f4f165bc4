"""Start of commands: CPU seconds, as multiples of starting Python with NumPy, and peak memory.

``python -m benchmarks startup`` runs each command in a new process, in turns, and records the best of several rounds.
``verify`` needs the extractors of the default model (`mvplda extractor get`); without them its rows are left out.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from mvplda.exceptions import FetchError
from mvplda.voice.audio.decode import golden_signal
from mvplda.voice.default_model import default_extractor

from .timing import ONE_THREAD

RATE = 16000
PYTHON, NUMPY = "python", "python with NumPy"
MEMORY = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], capture_output=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
"""Program that prints the peak memory of a command in kB; that of this process would count as the command's."""


def cpu_seconds(command: Sequence[str]) -> float:
    """Return the CPU seconds of a command in a new process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env={**os.environ, **ONE_THREAD}, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def peak_mib(command: Sequence[str]) -> float:
    """Return the peak memory of a command in MiB."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, *command],
        env={**os.environ, **ONE_THREAD},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout) / 1024


def write_recordings(folder: Path) -> list[str]:
    """Write two recordings of a synthetic voice, of 2.4 s, and return their paths."""
    paths = []
    for number, gain in enumerate((1.0, 0.7)):
        noise = np.random.default_rng(number).normal(0, 1e-3, size=len(golden_signal(RATE)))
        path = folder / f"{number}.wav"
        soundfile.write(path, gain * golden_signal(RATE) + noise, RATE)
        paths.append(str(path))
    return paths


def run(*, quick: bool, rounds: int, peer_python: str) -> dict[str, Any]:
    """Return CPU seconds, ratios to the start of Python with NumPy, and MiB of each command."""
    mvplda = [sys.executable, "-m", "mvplda"]
    with tempfile.TemporaryDirectory() as folder:
        one, other = write_recordings(Path(folder))
        commands = {
            PYTHON: [sys.executable, "-c", "pass"],
            NUMPY: [sys.executable, "-c", "import numpy"],
            "mvplda --help": [*mvplda, "--help"],
            "mvplda verify --help": [*mvplda, "verify", "--help"],
            "mvplda quality a.wav": [*mvplda, "quality", one],
        }
        try:
            default_extractor()
            commands["mvplda verify a.wav b.wav"] = [*mvplda, "verify", one, other]
        except FetchError:
            pass
        best = dict.fromkeys(commands, float("inf"))
        for _ in range(1 if quick else rounds):
            for name, command in commands.items():
                best[name] = min(best[name], cpu_seconds(command))
        memory = {name: peak_mib(command) for name, command in commands.items()}
    return {
        "commands": {
            name: {
                "CPU seconds": round(seconds, 3),
                f"multiple of {NUMPY}": round(seconds / best[NUMPY], 2),
                "MiB": round(memory[name]),
            }
            for name, seconds in best.items()
        }
    }
