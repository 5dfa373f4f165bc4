"""Model files: ``.safetensors`` with a version and a fingerprint. No pickle."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from .exceptions import FileFormatError
from .kernel.records import Parameters

if TYPE_CHECKING:
    from .estimators.multiview import MultiviewPLDA

_T = TypeVar("_T")

FORMAT = "mvplda"
BUNDLE_FORMAT = "mvplda-bundle"
VERSION = 1
KEPT_CLASSES = 10_000
"""Views with at most so many classes keep their training posteriors in the file (for known classes)."""
TYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
STANDARD = "-"
"""Stands for standard input or output."""
DESCRIPTORS = ("/dev/fd/", "/dev/stdout", "/dev/stderr", "/proc/")
"""Names of open descriptors: links that lead to no name that could be replaced."""


def save_model(model: MultiviewPLDA, path: str | os.PathLike[str]) -> None:
    """Write a fitted model, atomically: the file is whole or not there."""
    tensors, about = model_parts(model)
    write_atomically(path, seal(FORMAT, "model", tensors, about))


def load_model(path: str | os.PathLike[str]) -> MultiviewPLDA:
    """Read a model, or that of a bundle without preprocessing; other files give a `FileFormatError`."""
    if file_format(path) == BUNDLE_FORMAT:
        from .bundle import load_bundle

        bundle = load_bundle(path)
        if bundle.preprocessing is not None:
            steps = ", ".join(bundle.describe()["preprocessing"])
            raise FileFormatError(
                f"{path} holds a bundle, whose model takes vectors after {steps}: use mvplda.load or Bundle.load"
            )
        return bundle.fitted_model
    tensors, about = unseal(path, FORMAT, "model")
    return restore_model(tensors, about, path)


def model_parts(model: MultiviewPLDA) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Everything of a fitted model that a file keeps: arrays by name, and plain values."""
    tensors: dict[str, NDArray[Any]] = {"mean": model.mean_, "noise": model.noise_}
    for view, loading in model.loadings_.items():
        tensors[f"loading/{view}"] = loading
    tensors["log_likelihoods"] = model.log_likelihoods_
    kept = [v for v in model.class_covariances_ if len(model.classes_[v]) <= KEPT_CLASSES]
    for view in kept:
        named = slice(0, len(model.classes_[view]))
        tensors[f"class_means/{view}"] = model.class_means_[view][named]
        tensors[f"class_covariances/{view}"] = model.class_covariances_[view][named]
    about = {
        "class": type(model).__name__,
        "settings": plain_settings(model.get_params(deep=False)),
        "views": model.views_,
        "dimension": len(model.mean_),
        "converged": bool(model.converged_),
        "n_iter": int(model.n_iter_),
        "algorithm_used": getattr(model, "algorithm_used_", None),
        "classes": {view: model.classes_[view].tolist() for view in kept},
    }
    return {name: np.ascontiguousarray(value, dtype=np.float64) for name, value in tensors.items()}, about


def restore_model(
    tensors: dict[str, NDArray[Any]], about: dict[str, Any], path: str | os.PathLike[str]
) -> MultiviewPLDA:
    """The model that `model_parts` took apart."""
    from .estimators.cross_validation import MultiviewPLDACV
    from .estimators.multiview import MultiviewPLDA
    from .estimators.plda import PLDA

    kinds: dict[str, type[MultiviewPLDA]] = {c.__name__: c for c in (MultiviewPLDA, PLDA, MultiviewPLDACV)}
    try:
        model = kinds[about["class"]](**about["settings"])
        loadings = tuple(tensors[f"loading/{view}"] for view in about["views"])
        model._take(tuple(about["views"]), Parameters(tensors["mean"], loadings, tensors["noise"]))
        model.views_ = {view: int(rank) for view, rank in about["views"].items()}
        model.log_likelihoods_ = tensors["log_likelihoods"]
        model.n_iter_, model.converged_ = about["n_iter"], about["converged"]
        if about.get("algorithm_used") is not None:
            model.algorithm_used_ = about["algorithm_used"]
        model.classes_ = {view: np.asarray(names) for view, names in about["classes"].items()}
        model.class_means_ = {view: tensors[f"class_means/{view}"] for view in model.classes_}
        model.class_covariances_ = {view: tensors[f"class_covariances/{view}"] for view in model.classes_}
        model.n_features_in_ = int(about["dimension"])
        model._n_features_out = sum(model.views_.values())
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"{path} lacks parts of a model: {error}") from error
    return model


def seal(format: str, what: str, tensors: dict[str, NDArray[Any]], about: dict[str, Any]) -> bytes:
    """The bytes of a file: tensors, a description under the key `what`, version and fingerprint."""
    return b"".join(sealed_pieces(format, what, tensors, about))


def sealed_pieces(
    format: str, what: str, tensors: dict[str, NDArray[Any]], about: dict[str, Any]
) -> Iterator[bytes | memoryview]:
    """The bytes that `seal` gives, piece by piece, without a copy of the tensors.

    The same contents always give the same bytes. The library of safetensors writes its
    metadata in an order that it draws anew every time.
    """
    header: dict[str, Any] = {
        "__metadata__": {
            "format": format,
            "version": str(VERSION),
            what: json.dumps(about),
            "fingerprint": fingerprint(tensors, about),
        }
    }
    place = 0
    order = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))  # large items first: all are aligned
    for name in order:
        array = tensors[name]
        ends = [place, place + array.nbytes]
        header[name] = {"dtype": TYPES[array.dtype.name], "shape": list(array.shape), "data_offsets": ends}
        place = ends[1]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in order:
        yield np.asarray(tensors[name], dtype=tensors[name].dtype.newbyteorder("<"), order="C").data


def unseal(path: str | os.PathLike[str], format: str, what: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The tensors and the description that `seal` put in a file, checked."""
    tensors, metadata = read_tensors(path)
    found = metadata.get("format")
    if found != format and found in (FORMAT, BUNDLE_FORMAT):
        raise FileFormatError(f"{path} holds a {'bundle' if found == BUNDLE_FORMAT else 'model'}: use mvplda.load")
    if found != format:
        raise FileFormatError(f"{path} is a safetensors file, but not a {what} of mvplda")
    version = metadata.get("version", "")
    if not version.isdigit() or int(version) > VERSION:
        raise FileFormatError(f"{path} has format version {version!r}, this mvplda reads up to {VERSION}: upgrade it")
    try:
        about = json.loads(metadata[what])
        whole = metadata["fingerprint"] == fingerprint(tensors, about)
    except (KeyError, ValueError) as error:
        raise FileFormatError(f"{path} lacks parts of a {what}: {error}") from error
    except RecursionError as error:
        raise FileFormatError(f"{path} is damaged: its description is nested too deeply for a {what}") from error
    if not whole:
        raise FileFormatError(f"{path} is damaged: its contents do not match its fingerprint")
    return tensors, about


def file_format(path: str | os.PathLike[str]) -> str | None:
    """Which format of mvplda a file says it has; None for a safetensors file of something else."""
    found = read_metadata(path).get("format")
    return found if found in (FORMAT, BUNDLE_FORMAT) else None


def describe_model(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What is in a model file, or in a bundle, in plain values."""
    extra: dict[str, Any] = {}
    if file_format(path) == BUNDLE_FORMAT:
        from .bundle import load_bundle

        bundle = load_bundle(path)
        model, extra = bundle.fitted_model, {"bundle": bundle.describe()}
    else:
        model = load_model(path)
    return {
        **extra,
        "class": type(model).__name__,
        "dimension": model.n_features_in_,
        "noise": model.noise,
        "views": model.views_,
        "explained_variance_ratio": model.explained_variance_ratio_,
        "classes": {view: len(names) for view, names in model.classes_.items()},
        "converged": model.converged_,
        "n_iter": model.n_iter_,
        "algorithm_used": getattr(model, "algorithm_used_", None),
        "fingerprint": read_metadata(path)["fingerprint"],
    }


def read_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """Metadata of a safetensors file; its tensors are not read."""
    return _read(path, lambda _: None)[1]


def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Tensors and metadata of a safetensors file."""
    return _read(path, lambda file: {name: file.get_tensor(name) for name in list(file.keys())})


def _read(path: str | os.PathLike[str], tensors: Callable[[Any], _T]) -> tuple[_T, dict[str, str]]:
    path = Path(path)
    if path.is_dir():
        raise FileFormatError(f"{path} is a folder; a file was expected")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(path, framework="numpy") as file:
            return tensors(file), dict(file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise FileFormatError(f"{path} is truncated or not a safetensors file: {error}") from error


def fingerprint(tensors: dict[str, NDArray[Any]], about: dict[str, Any]) -> str:
    """SHA-256 of the parameters, names and settings."""
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(f"{name}{tensors[name].shape}{tensors[name].dtype}".encode())
        digest.update(np.ascontiguousarray(tensors[name]).tobytes())
    return digest.hexdigest()


def check_writable(*targets: str | os.PathLike[str]) -> None:
    """Raise the error now that writing there would give later: before long work, not after it.

    ``-`` stands for standard output and can always be written.
    """
    for target in targets:
        path = Path(target)
        if str(path) == STANDARD:
            continue
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder; give the name of a file to write")
        if _written_straight(path):
            if not os.access(path, os.W_OK):
                raise PermissionError(f"{path} may not be written")
            continue
        folder = Path(os.path.realpath(path)).parent if path.is_symlink() else path.parent
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {folder} to write {path.name} in")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(f"{path} cannot be written: its folder {folder} may not be changed")


@contextmanager
def whole_files(*targets: str | os.PathLike[str]) -> Iterator[list[Path]]:
    """Temporary files to write, which take the places of the targets when the block ends well.

    After an error the temporary files are gone and the targets are as they were. A link stays a
    link: what it points to is written. Devices, pipes and standard output (``-``), which cannot
    be replaced, get a copy.
    """
    check_writable(*targets)
    paths = [Path(target) if _written_straight(Path(target)) else Path(os.path.realpath(target)) for target in targets]
    straight = [_written_straight(path) for path in paths]
    temporary: list[Path] = []
    try:
        for path, copied in zip(paths, straight, strict=True):
            folder = Path(tempfile.gettempdir()) if copied else path.parent
            part = folder / f"{path.name[:40]}.{secrets.token_hex(6)}.part"  # names of files end at 255 bytes
            temporary.append(part)
            os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600 if copied else 0o666))
            if path.is_file():
                os.chmod(part, stat.S_IMODE(path.stat().st_mode))
        yield temporary
        for part in temporary:
            with part.open("rb") as file:
                os.fsync(file.fileno())
        for part, path, copied in zip(temporary, paths, straight, strict=True):
            if str(path) == STANDARD:
                sys.stdout.buffer.write(part.read_bytes())
                sys.stdout.buffer.flush()
            elif copied:
                with part.open("rb") as source, path.open("wb") as sink:
                    shutil.copyfileobj(source, sink)
            else:
                os.replace(part, path)
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, f"{error.strerror}: {', '.join(map(str, targets))} was not written") from error
    finally:
        for part in temporary:
            part.unlink(missing_ok=True)


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file, all or nothing."""
    with whole_files(path) as (part,):
        part.write_bytes(data)


def _written_straight(path: Path) -> bool:
    """Whether this is no file that another could replace: a device, a pipe, or a descriptor of this process."""
    name = str(path)
    return name == STANDARD or name.startswith(DESCRIPTORS) or (path.exists() and not path.is_file())


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
