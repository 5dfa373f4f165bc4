"""Model files, and the folders that a setup writes."""

from __future__ import annotations

from pathlib import Path

from ._typing import PathLike
from .bundle import Bundle
from .exceptions import FileFormatError
from .models import BaseScorer
from .persistence import load

MODEL_FILE = "model.safetensors"
PROFILES_FILE = "profiles.npz"
REPORT_FILE = "report.txt"
"""Names of the files in a folder that `setup` writes."""


def file_in_folder(path: PathLike, name: str) -> Path:
    """Return the path of a file, or of the file with this name in a folder that `setup` wrote."""
    location = Path(path)
    return location / name if location.is_dir() else location


def load_model(path: PathLike) -> Bundle:
    """Return the bundle in a file, or in a folder that `setup` wrote; a bare scorer is put into a bundle."""
    loaded = load(file_in_folder(path, MODEL_FILE))
    if isinstance(loaded, Bundle):
        return loaded
    if not isinstance(loaded, BaseScorer):
        raise FileFormatError(
            f"{path} holds a {type(loaded).__name__}; expected a model, such as mvplda train or setup writes"
        )
    return Bundle(None, loaded)
