"""Model files: ``.safetensors`` with a version and a fingerprint. No pickle."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from .exceptions import FileFormatError

if TYPE_CHECKING:
    from .estimators.multiview import MultiviewPLDA

FORMAT = "mvplda"
VERSION = 1
KEPT_CLASSES = 10_000
"""Views with at most so many classes keep their training posteriors in the file (for known classes)."""


def save_model(model: MultiviewPLDA, path: str | os.PathLike[str]) -> None:
    """Write a fitted model, atomically: the file is whole or not there."""
    tensors: dict[str, NDArray[Any]] = {"mean": model.mean_, "noise": model.noise_}
    for view, loading in model.loadings_.items():
        tensors[f"loading/{view}"] = loading
    tensors["log_likelihoods"] = model.log_likelihoods_
    kept = [v for v in model.class_covariances_ if len(model.classes_[v]) <= KEPT_CLASSES]
    for view in kept:
        named = slice(0, len(model.classes_[view]))
        tensors[f"class_means/{view}"] = model.class_means_[view][named]
        tensors[f"class_covariances/{view}"] = model.class_covariances_[view][named]
    tensors = {name: np.ascontiguousarray(value, dtype=np.float64) for name, value in tensors.items()}
    settings = plain_settings(model.get_params(deep=False))
    about = {
        "class": type(model).__name__,
        "settings": settings,
        "views": model.views_,
        "dimension": len(model.mean_),
        "converged": bool(model.converged_),
        "n_iter": int(model.n_iter_),
        "classes": {view: model.classes_[view].tolist() for view in kept},
    }
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "model": json.dumps(about),
        "fingerprint": fingerprint(tensors, about),
    }
    write_atomically(path, save(tensors, metadata=metadata))


def load_model(path: str | os.PathLike[str]) -> MultiviewPLDA:
    """Read a model; damaged, foreign and newer files give a `FileFormatError`."""
    from .estimators.cross_validation import MultiviewPLDACV
    from .estimators.multiview import MultiviewPLDA
    from .estimators.plda import PLDA

    kinds: dict[str, type[MultiviewPLDA]] = {c.__name__: c for c in (MultiviewPLDA, PLDA, MultiviewPLDACV)}
    tensors, metadata = read_tensors(path)
    if metadata.get("format") != FORMAT:
        raise FileFormatError(f"{path} is a safetensors file, but not a model of mvplda")
    version = metadata.get("version", "")
    if not version.isdigit() or int(version) > VERSION:
        raise FileFormatError(f"{path} has format version {version!r}, this mvplda reads up to {VERSION}: upgrade it")
    try:
        about = json.loads(metadata["model"])
        if metadata["fingerprint"] != fingerprint(tensors, about):
            raise FileFormatError(f"{path} is damaged: its contents do not match its fingerprint")
        model = kinds[about["class"]](**about["settings"])
        model.mean_, model.noise_ = tensors["mean"], tensors["noise"]
        model.loadings_ = {view: tensors[f"loading/{view}"] for view in about["views"]}
        model.views_ = {view: int(rank) for view, rank in about["views"].items()}
        model.log_likelihoods_ = tensors["log_likelihoods"]
        model.n_iter_, model.converged_ = about["n_iter"], about["converged"]
        model.classes_ = {view: np.asarray(names) for view, names in about["classes"].items()}
        model.class_means_ = {view: tensors[f"class_means/{view}"] for view in model.classes_}
        model.class_covariances_ = {view: tensors[f"class_covariances/{view}"] for view in model.classes_}
        model.n_features_in_ = int(about["dimension"])
        model._n_features_out = sum(model.views_.values())
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(f"{path} lacks parts of a model: {error}") from error
    return model


def describe_model(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What is in a model file, in plain values."""
    model = load_model(path)
    return {
        "class": type(model).__name__,
        "dimension": model.n_features_in_,
        "noise": model.noise,
        "views": model.views_,
        "explained_variance_ratio": model.explained_variance_ratio_,
        "classes": {view: len(names) for view, names in model.classes_.items()},
        "converged": model.converged_,
        "n_iter": model.n_iter_,
        "fingerprint": read_tensors(path)[1]["fingerprint"],
    }


def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Tensors and metadata of a safetensors file."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(path, framework="numpy") as file:
            names = list(file.keys())
            return {name: file.get_tensor(name) for name in names}, dict(file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise FileFormatError(f"{path} is truncated or not a safetensors file: {error}") from error


def fingerprint(tensors: dict[str, NDArray[Any]], about: dict[str, Any]) -> str:
    """SHA-256 of the parameters, names and settings."""
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(f"{name}{tensors[name].shape}{tensors[name].dtype}".encode())
        digest.update(np.ascontiguousarray(tensors[name]).tobytes())
    return digest.hexdigest()


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write beside the target, then rename over it."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} in")
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def plain_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that a text can hold; callbacks and random generators are left out."""

    def convert(value: Any) -> Any:
        if isinstance(value, (np.generic, np.ndarray)):
            return value.tolist()
        raise TypeError

    plain = {}
    for name, value in settings.items():
        try:
            plain[name] = json.loads(json.dumps(value, default=convert))
        except TypeError:
            continue
    return plain
