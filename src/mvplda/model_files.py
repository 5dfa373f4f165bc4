"""Paths and loading of models, from model files and from the folders that `mvplda setup` writes."""

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
"""Names of the files in a folder that `mvplda setup` writes."""


def file_in_folder(path: PathLike, name: str) -> Path:
    """Return the path itself if it is not a folder, else the path of the file `name` in the folder."""
    location = Path(path)
    return location / name if location.is_dir() else location


def load_model(path: PathLike) -> Bundle:
    """Load a model from a file, or from a folder that `mvplda setup` wrote.

    A file with a scorer alone gives a bundle of this scorer without preprocessing and calibration.
    """
    loaded = load(file_in_folder(path, MODEL_FILE))
    if isinstance(loaded, Bundle):
        return loaded
    if not isinstance(loaded, BaseScorer):
        raise FileFormatError(
            f"{path} contains an object of the type {type(loaded).__name__}; expected a model of mvplda train or setup"
        )
    return Bundle(None, loaded)
