"""Profiles in files."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
from safetensors.numpy import save

from ..exceptions import FileFormatError
from ..files import read_tensors, write_atomically
from .profiles import Profiles

FORMAT = "mvplda-profiles"
VERSION = 1


def save_profiles(profiles: Profiles, path: str | os.PathLike[str]) -> None:
    """Write profiles to a ``.safetensors`` file, all or nothing."""
    y = profiles.y if isinstance(profiles.y, np.ndarray) else profiles.y.cpu().numpy()
    arrays: dict[str, Any] = {
        "y": y,
        "kind": profiles.kind,
        "evidence": profiles.evidence,
        "owner": profiles.owner,
        "counts": profiles.counts,
    }
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "ids": json.dumps(profiles.ids.tolist()),
        "model": profiles.model,
    }
    write_atomically(path, save({k: np.ascontiguousarray(v) for k, v in arrays.items()}, metadata=metadata))


def load_profiles(path: str | os.PathLike[str]) -> Profiles:
    """Read profiles that `save_profiles` wrote."""
    arrays, metadata = read_tensors(path)
    if metadata.get("format") != FORMAT:
        raise FileFormatError(f"{path} holds no profiles of mvplda")
    version = metadata.get("version", "")
    if not version.isdigit() or int(version) > VERSION:
        raise FileFormatError(f"{path} has format version {version!r}, this mvplda reads up to {VERSION}: upgrade it")
    try:
        ids = np.asarray(json.loads(metadata["ids"]))
        return Profiles(
            ids,
            arrays["counts"],
            arrays["y"],
            arrays["kind"],
            arrays["evidence"],
            arrays["owner"],
            metadata["model"],
        )
    except (KeyError, ValueError) as error:
        raise FileFormatError(f"{path} lacks parts of a profile file: {error}") from error
