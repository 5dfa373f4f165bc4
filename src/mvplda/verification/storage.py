"""Profiles in files."""

from __future__ import annotations

import os

import numpy as np

from ..exceptions import FileFormatError
from ..files import seal, unseal, write_atomically
from .profiles import Profiles

FORMAT = "mvplda-profiles"
WHAT = "profile file"
ARRAYS = ("y", "kind", "evidence", "owner", "counts")


def save_profiles(profiles: Profiles, path: str | os.PathLike[str]) -> None:
    """Write profiles to a ``.safetensors`` file, all or nothing."""
    arrays = {name: getattr(profiles, name) for name in ARRAYS}
    plain = {k: np.ascontiguousarray(v if isinstance(v, np.ndarray) else v.cpu().numpy()) for k, v in arrays.items()}
    about = {"ids": profiles.ids.tolist(), "model": profiles.model}
    write_atomically(path, seal(FORMAT, WHAT, plain, about))


def load_profiles(path: str | os.PathLike[str]) -> Profiles:
    """Read profiles that `save_profiles` wrote."""
    arrays, about = unseal(path, FORMAT, WHAT)
    try:
        return Profiles(ids=np.asarray(about["ids"]), model=about["model"], **{name: arrays[name] for name in ARRAYS})
    except KeyError as error:
        raise FileFormatError(f"{path} lacks parts of a {WHAT}: {error}") from error
