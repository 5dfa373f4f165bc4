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
"""What a folder of `setup` holds."""


def file_in_folder(path: PathLike, name: str) -> Path:
    """A file, or the one of this name in a folder that `setup` wrote."""
    place = Path(path)
    return place / name if place.is_dir() else place


def load_model(path: PathLike) -> Bundle:
    """The bundle of a file, or of a folder that `setup` wrote; a scorer alone becomes one."""
    held = load(file_in_folder(path, MODEL_FILE))
    if isinstance(held, Bundle):
        return held
    if not isinstance(held, BaseScorer):
        raise FileFormatError(
            f"{path} holds a {type(held).__name__}; expected a model, such as mvplda train or setup writes"
        )
    return Bundle(None, held)
