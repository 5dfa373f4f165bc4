"""A training that was interrupted goes on where it was."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..audio.featureset import FeatureSet
from ..exceptions import FileFormatError, ParameterError
from ..files import write_atomically
from .data import IntArray
from .settings import NetworkSettings, Training, network_to_dict, training_to_dict
from .tensors import torch

FORMAT = "mvplda-jvector-checkpoint"
FREE = ("checkpoint", "checkpoint_every", "device", "patience")
"""Settings that may differ when a training goes on."""


def setting_of(features: FeatureSet, codes: IntArray, network: NetworkSettings, training: Training) -> dict[str, Any]:
    """What must be the same for a checkpoint to be of this training."""
    digest = hashlib.sha256(np.ascontiguousarray(codes).tobytes())
    digest.update(np.ascontiguousarray(features.offsets).tobytes())
    digest.update(np.ascontiguousarray(features.frames).tobytes())
    plain = {f"training.{k}": v for k, v in training_to_dict(training).items() if k not in FREE}
    plain |= {f"network.{k}": v for k, v in network_to_dict(network).items()}
    return {name: _plain(value) for name, value in plain.items()} | {"data": digest.hexdigest()}


def write_checkpoint(path: str | os.PathLike[str], setting: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """All of the state, or nothing."""
    stream = io.BytesIO()
    torch.save({"format": FORMAT, "setting": dict(setting), **state}, stream)
    write_atomically(path, stream.getvalue())


def read_checkpoint(path: str | os.PathLike[str], setting: Mapping[str, Any]) -> dict[str, Any] | None:
    """The state in a file, None where there is no file; of another training it is refused."""
    if not Path(path).is_file():
        return None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(state, dict) or state.get("format") != FORMAT:
            raise FileFormatError(f"{path} is not a checkpoint of a j-vector training")
    except FileFormatError:
        raise
    except Exception as error:  # torch raises what its parts raise: pickle, zip, runtime and end-of-file errors
        raise FileFormatError(
            f"{path} is truncated or not a checkpoint of a j-vector training: remove it to start anew"
        ) from error
    for name, value in setting.items():
        if state["setting"].get(name) != value:
            what = "other data" if name == "data" else f"{name} = {state['setting'].get(name)!r}, not {value!r}"
            raise ParameterError(f"the checkpoint {path} is of a training with {what}: give another path, or remove it")
    return state


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (tuple, list)) else value
