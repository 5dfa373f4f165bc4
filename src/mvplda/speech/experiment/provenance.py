"""Where figures come from: program, machine, command and inputs, in every results.json."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ... import __version__
from ...backend import cores

SCHEMA = 1
PACKAGES = (
    "numpy",
    "scipy",
    "scikit-learn",
    "torch",
    "onnxruntime",
    "kaldi-native-fbank",
    "soundfile",
)


def provenance(inputs: Iterable[str | Path] = ()) -> dict[str, Any]:
    """Version, commit, date, platform, packages, threads, command and SHA-256 of the inputs."""
    return {
        "schema": SCHEMA,
        "mvplda": __version__,
        "commit": _commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES if _version(name)},
        "cores": cores(),
        "threads": os.environ.get("OMP_NUM_THREADS", ""),
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "inputs": {Path(path).name: digest_of(Path(path)) for path in inputs},
    }


def digest_of(path: Path) -> str:
    """SHA-256 of a file, or of the names and sizes of the files under a folder."""
    digest = hashlib.sha256()
    if path.is_file():
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    for file in sorted(path.rglob("*")):
        if file.is_file():
            digest.update(f"{file.relative_to(path)} {file.stat().st_size}\n".encode())
    return digest.hexdigest()


def _commit() -> str:
    """Of the source tree that is run, with a "+" where it has changes; empty for an installed package."""
    folder = Path(__file__).parent
    try:
        command = ["git", "-C", str(folder), "describe", "--always", "--dirty=+", "--abbrev=12"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return ended.stdout.strip() if ended.returncode == 0 else ""


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
