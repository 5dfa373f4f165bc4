"""Model files: ``.safetensors`` with a version and a fingerprint, written all or nothing, without pickle.

`packed_chunks` and `unpack` convert between arrays with plain values and a file; `atomic_write` writes whole files.
`Persistent` builds on them: its subclasses register themselves, return their state as arrays and plain values, and are
restored by `load`.

A fingerprint shows that a file is complete, not that this package wrote it. Every object from a file is therefore
checked before it is returned (`restore`): numbers are finite, and `check_state` verifies that arrays and values fit
each other and give finite results for ordinary input. A failed check raises `FileFormatError`.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import secrets
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from operator import methodcaller
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError, safe_open

from ._optional import load_entry_points
from ._typing import Array, Card, Json, PathLike
from .exceptions import (
    DataError,
    FileFormatError,
    MvpldaError,
    ParameterError,
    UnknownExtractorWarning,
)

Tensors = dict[str, NDArray[Any]]
State = tuple[Tensors, Json]
"""Arrays by name, and values for JSON."""

FORMAT, DESCRIPTION_KEY = "mvplda", "object"
"""Format name in the metadata of all files, and key of the JSON description there."""
FEATURE_NAMES = "feature_names_in_"
"""Attribute of estimators that were fitted to a table: the column names, as in scikit-learn."""
VERSION = 1
SAFETENSORS_TYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
GZIP = b"\x1f\x8b"
MAX_WIDTH = 2**20
"""Largest number of columns of vectors that a file may require."""
STANDARD = "-"
"""File name of standard input or output."""
EXTRACTOR_SUFFIX = ".extractor"
"""Suffix of the file beside vectors that contains the name of their extractor."""
FILE_SIGNATURES = {
    b"PAR1": "a Parquet file",
    b"\x93NUMPY": "a NumPy array (.npy)",
    b"PK\x03\x04": "a NumPy archive (.npz)",
    b"\x89HDF": "an HDF5 file",
    b"ARROW1": "an Arrow file",
    b"RIFF": "a WAV recording",
    b"fLaC": "a FLAC recording",
    b"OggS": "an Ogg recording",
    b"ID3": "an MP3 recording",
    b"<": "a page of HTML or XML",
    b"{": "a JSON file",
}
"""File types by their first bytes."""
DESCRIPTORS = ("/dev/fd/", "/dev/stdout", "/dev/stderr", "/proc/")
"""Prefixes of open descriptors, which cannot be replaced by another file."""


def packed_chunks(tensors: Tensors, about: Json) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a file: tensors, a description, version and fingerprint.

    The same contents always give the same bytes, unlike the safetensors library, which writes its
    metadata in random order.
    """
    header: Json = {
        "__metadata__": {
            "format": FORMAT,
            "version": str(VERSION),
            DESCRIPTION_KEY: json.dumps(about),
            "fingerprint": fingerprint(tensors, about),
        }
    }
    start = 0
    # Tensors with large items come first, so that all are aligned.
    order = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))
    for name in order:
        array = tensors[name]
        stop = start + array.nbytes
        header[name] = {
            "dtype": SAFETENSORS_TYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [start, stop],
        }
        start = stop
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in order:
        yield np.asarray(tensors[name], dtype=tensors[name].dtype.newbyteorder("<"), order="C").data


def unpack(path: PathLike) -> State:
    """Read the tensors and the description that `packed_chunks` wrote, and verify the fingerprint."""
    tensors, metadata = read_tensors(path)
    file_format = metadata.get("format")
    if file_format != FORMAT:
        raise FileFormatError(
            f"{path} is a safetensors file, but not one that mvplda wrote: it has the format {file_format!r}; expected "
            f"{FORMAT!r}, of models, calibrators and statistics"
        )
    version = metadata.get("version", "")
    if not version.isdigit() or int(version) > VERSION:
        raise FileFormatError(
            f"{path} has format version {version!r}, this mvplda reads up to {VERSION}: upgrade it"
        )
    try:
        about = json.loads(metadata[DESCRIPTION_KEY], parse_constant=_refuse_constant)
        is_complete = metadata["fingerprint"] == fingerprint(tensors, about)
    except (KeyError, ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} is incomplete or damaged: {error}") from error
    if not is_complete:
        raise FileFormatError(f"{path} is damaged: its contents do not match its fingerprint")
    return tensors, about


def _refuse_constant(name: str) -> NoReturn:
    """Reject NaN and infinity, which JSON does not have and no file of this package contains."""
    raise ValueError(f"a value is {name}")


def file_type(head: bytes) -> str:
    """Return the type of a file by its first bytes; empty if it is unknown."""
    return next((name for start, name in FILE_SIGNATURES.items() if head.startswith(start)), "")


def read_metadata(path: PathLike) -> dict[str, str]:
    """Read the metadata of a safetensors file without its tensors."""
    return read_tensors(path, metadata_only=True)[1]


def read_tensors(path: PathLike, metadata_only: bool = False) -> tuple[Tensors, dict[str, str]]:
    """Read the tensors and the metadata of a safetensors file."""
    path = Path(path)
    if path.is_dir():
        raise FileFormatError(f"expected a file; {path} is a folder")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(path, framework="numpy") as file:
            names = [] if metadata_only else list(file.keys())
            return {name: np.array(file.get_tensor(name)) for name in names}, dict(
                file.metadata() or {}
            )
    except (SafetensorError, OSError) as error:
        with path.open("rb") as opened:
            head = opened.read(8)
        actual = file_type(head) or f"a file that begins with {head!r}"
        raise FileFormatError(
            f"{path} is truncated or not a safetensors file: it is {actual}"
        ) from error


def fingerprint(tensors: Tensors, about: Json) -> str:
    """Return the SHA-256 of tensors, names and description."""
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(f"{name}{tensors[name].shape}{tensors[name].dtype}".encode())
        digest.update(np.ascontiguousarray(tensors[name]).tobytes())
    return digest.hexdigest()


def check_writable(*targets: PathLike) -> None:
    """Raise an error if a target cannot be written, so that it is reported before long work.

    Standard output (``-``) is always accepted.
    """
    for target in targets:
        path = Path(target)
        if str(path) == STANDARD:
            continue
        if path.is_dir():
            raise IsADirectoryError(f"expected the name of a file to write; {path} is a folder")
        folder = Path(os.path.realpath(path)).parent
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {folder} to write {path.name} in")
        if not os.access(path if _is_device(path) else folder, os.W_OK):
            raise PermissionError(
                f"{path} cannot be written: no permission to change it or its folder"
            )


@contextmanager
def atomic_write(*targets: PathLike) -> Iterator[list[Path]]:
    """Yield temporary files that replace the targets if the block succeeds.

    After an error the temporary files are deleted and the targets are unchanged. A link is kept, and the file that it
    points to is replaced. Devices, pipes and standard output (``-``) cannot be replaced and receive a copy. Targets
    with the suffix ``.gz`` are compressed.
    """
    check_writable(*targets)
    targets_by_temporary: dict[Path, Path] = {}
    try:
        for target in targets:
            path = Path(target)
            folder = Path(tempfile.gettempdir())
            if not _is_device(path):
                path = Path(os.path.realpath(path))
                folder = path.parent
            # File names are limited to 255 bytes.
            temporary = folder / f"{path.name[:40]}.{secrets.token_hex(6)}.part"
            temporary.touch(0o600 if _is_device(path) else 0o666, exist_ok=False)
            targets_by_temporary[temporary] = path
            if path.is_file():
                shutil.copymode(path, temporary)
        yield list(targets_by_temporary)
        for temporary, path in targets_by_temporary.items():
            if path.suffix.lower() == ".gz":
                _compress(temporary)
            # Windows can only sync files that are open for writing.
            with temporary.open("r+b") as file:
                os.fsync(file.fileno())
        for temporary, path in targets_by_temporary.items():
            if str(path) == STANDARD:
                sys.stdout.buffer.write(temporary.read_bytes())
                sys.stdout.buffer.flush()
            elif _is_device(path):
                path.write_bytes(temporary.read_bytes())
            else:
                os.replace(temporary, path)
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(
            error.errno, f"{error.strerror}: {', '.join(map(str, targets))} was not written"
        ) from error
    finally:
        for temporary in targets_by_temporary:
            temporary.unlink(missing_ok=True)


def _compress(path: Path) -> None:
    """Compress a file in place, unless it is already compressed, as a download may be."""
    data = path.read_bytes()
    if not data.startswith(GZIP):
        # Without a name and a time, the same contents give the same bytes.
        path.write_bytes(gzip.compress(data, mtime=0))


def write_atomically(path: PathLike, data: bytes) -> None:
    """Write a file, all or nothing."""
    with atomic_write(path) as (temporary,):
        temporary.write_bytes(data)


def _is_device(path: Path) -> bool:
    """Return whether a path is a device, a pipe or a descriptor of this process, which cannot be replaced."""
    name = str(path)
    return (
        name == STANDARD or name.startswith(DESCRIPTORS) or (path.exists() and not path.is_file())
    )


# Objects in files.


REGISTRY: dict[str, type[Persistent]] = {}
"""Subclasses of `Persistent` by name."""


class Persistent:
    """Base class of objects that can be saved to a file. Subclasses register themselves by name.

    The state of an estimator consists of its settings and its fitted attributes (`FITTED`). A class with another state
    overrides `get_state` and `from_state`.
    """

    KIND: ClassVar[str] = "object"
    """Kind of object in one word, for messages."""

    FITTED: ClassVar[tuple[str, ...]] = ()
    """Attributes set by fit."""

    STORED_KEYS: ClassVar[dict[str, str]] = {}
    """Keys in files of the settings and fitted attributes that are stored under another name."""

    COMPONENTS: ClassVar[tuple[str, ...]] = ()
    """Attributes set by fit that are dicts of `Persistent` objects."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        registered = REGISTRY.setdefault(cls.__name__, cls)
        if registered.__module__ != cls.__module__:
            raise TypeError(
                f"a class {cls.__name__} is already registered by {registered.__module__}: choose another name"
            )
        REGISTRY[cls.__name__] = cls

    def get_state(self) -> State:
        """Return the arrays and plain values from which `from_state` restores this object."""
        parameters = self.get_params(deep=False)  # type: ignore[attr-defined]
        settings = json_settings(
            {self.STORED_KEYS.get(name, name): value for name, value in parameters.items()}
        )
        arrays: Tensors = {}
        values: Json = {}
        for attribute in self.FITTED:
            if not hasattr(self, attribute):
                raise ParameterError(
                    f"the {type(self).__name__} is not fitted: it has no {attribute}"
                )
            value = getattr(self, attribute)
            stored = self.STORED_KEYS.get(attribute, attribute)
            entries = value if isinstance(value, dict) else {}
            if isinstance(value, np.ndarray):
                arrays[stored] = np.ascontiguousarray(value)
            elif any(isinstance(entry, np.ndarray) for entry in entries.values()):
                arrays |= {f"{stored}/{key}": entry for key, entry in entries.items()}
            else:
                values[stored] = plain_value(value)
        state: Json = {"settings": settings, "values": values}
        for attribute in self.COMPONENTS:
            components = getattr(self, attribute).items()
            state[attribute] = {
                name: put_component(arrays, f"{attribute}/{i}", component, Persistent)
                for i, (name, component) in enumerate(components)
            }
        return arrays, state

    @classmethod
    def from_state(cls, arrays: Tensors, values: dict[str, Any]) -> Self:
        """Restore an object from its state."""
        names = {stored: name for name, stored in cls.STORED_KEYS.items()}
        restored = cls(**{names.get(key, key): value for key, value in values["settings"].items()})
        fitted = {**values["values"], **arrays}
        for name, array in arrays.items():
            attribute, slash, key = name.partition("/")
            if slash:
                fitted.setdefault(attribute, {})[key] = array
        for attribute in cls.FITTED:
            stored = cls.STORED_KEYS.get(attribute, attribute)
            if stored not in fitted:
                raise FileFormatError(f"the {cls.__name__} has no {stored}")
            setattr(restored, attribute, fitted[stored])
        for attribute in cls.COMPONENTS:
            components = {
                name: get_component(arrays, f"{attribute}/{i}", about, Persistent)
                for i, (name, about) in enumerate(values[attribute].items())
            }
            setattr(restored, attribute, components)
        return restored

    def check_state(self) -> None:
        """Raise an error if the state is inconsistent or gives results that are not finite."""

    def save(self, path: PathLike) -> None:
        """Write the object to a ``.safetensors`` file, all or nothing."""
        arrays, about = state_of(self, Persistent)
        with atomic_write(path) as (temporary,), temporary.open("wb") as file:
            file.writelines(packed_chunks(arrays, about))

    @classmethod
    def load(cls, path: PathLike) -> Self:
        """Read an object of this class from a file; `mvplda.load` reads objects of any class."""
        loaded = load(path)
        if isinstance(loaded, cls):
            return loaded
        name = type(loaded).__name__
        raise FileFormatError(
            f"{path} holds a {name}, not a {cls.__name__}: use mvplda.load or {name}.load"
        )

    def describe(self) -> Json:
        """Return the class and the settings as plain values."""
        return {"class": type(self).__name__, "settings": self.get_params(deep=False)}  # type: ignore[attr-defined]


def load(path: PathLike) -> Any:
    """Read an object from a file: a `Bundle`, a scorer, a calibrator or statistics."""
    arrays, about = unpack(path)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            # Values that cause warnings are rejected by the checks.
            warnings.simplefilter("ignore")
            return restore(arrays, about, Persistent)
    except MemoryError:
        raise
    except Exception as error:  # values of unknown origin can cause any error
        reason = str(error) or type(error).__name__
        raise FileFormatError(
            f"{path} is incomplete, or its contents do not fit: {reason}. If another version of mvplda "
            "wrote it, create it again"
        ) from error


def state_of(component: object, kind: type[object]) -> State:
    """Return the checked state of a component of a class `kind`; the values include the name of its class."""
    if not (isinstance(component, Persistent) and isinstance(component, kind)):
        accepted = sorted(name for name, cls in REGISTRY.items() if issubclass(cls, kind))
        raise ParameterError(
            f"expected one of the classes {accepted} for a file; got a {type(component).__name__}"
        )
    arrays, values = component.get_state()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            _check_component(component, arrays)
    except (MvpldaError, ArithmeticError, np.linalg.LinAlgError) as error:
        raise DataError(
            f"the {type(component).__name__} is not written, because it could not be loaded again: {error}. Check the "
            "vectors that it was fitted to"
        ) from error
    # With the column names, a table in another order is refused after loading too.
    names = getattr(component, FEATURE_NAMES, None)
    if names is not None:
        values = {**values, FEATURE_NAMES: list(map(str, names))}
    return arrays, {"class": type(component).__name__, **values}


def _check_component(component: Persistent, arrays: Tensors) -> None:
    """Raise an error for numbers that are not finite, or arrays and values that do not fit each other."""
    for key, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise FileFormatError(
                f"the array {key} of its {type(component).__name__} holds NaN or infinity"
            )
    component.check_state()


def restore(arrays: Tensors, about: dict[str, Any], kind: type[Any]) -> Any:
    """Restore a component of a class `kind` from its state."""
    name = about["class"]
    if name not in REGISTRY:
        # The bundle imports all scorers, which register themselves.
        import_module(".bundle", __package__)
    if name not in REGISTRY:
        load_entry_points("scorers")
        load_entry_points("calibrators")
    cls = REGISTRY.get(name)
    if cls is None:
        raise FileFormatError(f"it contains a {name!r}, which is unknown to this version of mvplda")
    if not issubclass(cls, kind):
        raise FileFormatError(f"it contains a {name}; expected a {kind.__name__}")
    component: Persistent = cls.from_state(arrays, about)
    if FEATURE_NAMES in about:
        _restore_feature_names(component, about[FEATURE_NAMES])
    _check_component(component, arrays)
    return component


def _restore_feature_names(component: Any, names: Any) -> None:
    """Set the column names of the table that a component was fitted to."""
    are_names = isinstance(names, list) and all(isinstance(name, str) for name in names)
    width = getattr(component, "width_in", None) or getattr(component, "n_features_in_", None)
    if not are_names or len(names) != width:
        raise FileFormatError(f"expected a list of {width} column names; got {names!r}")
    component.feature_names_in_ = np.array(names, dtype=object)


def check_answers(component: object, answer: Callable[[Array], Any], width: int) -> None:
    """Raise an error if a component gives NaN or infinity for two ordinary vectors of this width."""
    check_width(component, width)
    check_finite(component, answer(ordinary_vectors(width)))


def check_width(component: object, width: int) -> None:
    """Raise an error if the width of vectors is 0 or larger than that of any extractor."""
    if not 0 < width <= MAX_WIDTH:
        raise FileFormatError(
            f"a {type(component).__name__} takes vectors of 1 to {MAX_WIDTH} columns; this one has a width of {width}"
        )


def check_finite(component: object, answers: ArrayLike) -> None:
    """Raise an error if the results of a component for ordinary input contain NaN or infinity."""
    if not np.isfinite(np.asarray(answers)).all():
        raise FileFormatError(
            f"the {type(component).__name__} returns NaN or infinity for typical vectors"
        )


def ordinary_vectors(width: int) -> Array:
    """Return two vectors (2, width) with values around 1."""
    return np.linspace(0.31, 1.73, 2 * width).reshape(2, width)


def put_component(arrays: Tensors, prefix: str, component: object, kind: type[object]) -> Json:
    """Add the arrays of a component to those of its container, under a prefix, and return its values."""
    component_arrays, about = state_of(component, kind)
    arrays.update({f"{prefix}/{name}": array for name, array in component_arrays.items()})
    return about


def get_component(arrays: Tensors, prefix: str, about: dict[str, Any], kind: type[Any]) -> Any:
    """Restore the component that `put_component` stored under a prefix."""
    component_arrays = {
        name[len(prefix) + 1 :]: array
        for name, array in arrays.items()
        if name.startswith(f"{prefix}/")
    }
    return restore(component_arrays, about, kind)


def json_settings(settings: Json) -> Json:
    """Return the settings that JSON can represent; callbacks and random generators are omitted."""
    plain = {}
    for name, value in settings.items():
        with suppress(TypeError, AttributeError):
            plain[name] = plain_value(value)
    return plain


def plain_value(value: Any) -> Any:
    """Return a value as JSON represents it; NumPy arrays and scalars become lists and numbers."""
    return json.loads(json.dumps(value, default=methodcaller("tolist")))


def check_same_extractor(
    name_a: str, extractor_a: str | None, name_b: str, extractor_b: str | None
) -> None:
    """Raise an error if two sources of vectors have different extractors; warn if one extractor is unknown.

    Parameters
    ----------
    name_a, name_b : names of a model or of files of vectors, for messages
    extractor_a, extractor_b : names of their extractors
    """
    if extractor_a == extractor_b:
        return
    if extractor_a and extractor_b:
        raise DataError(
            f"the extractor of {name_b} is {extractor_b!r}, that of {name_a} {extractor_a!r}: they do not fit. "
            "Make the vectors of both with the same one"
        )
    if extractor_a is None:
        name_a, name_b = name_b, name_a
    warnings.warn(
        f"{name_a} has the extractor {extractor_a or extractor_b!r}; {name_b} names no extractor (in a file ending in "
        f"{EXTRACTOR_SUFFIX}): whether they fit cannot be checked",
        UnknownExtractorWarning,
        stacklevel=3,
    )


def toml_pairs(values: Card) -> list[str]:
    """Return one TOML line ``key = value`` per entry."""
    bare = re.compile(r"[A-Za-z0-9_-]+")
    return [
        f"{key if bare.fullmatch(key) else toml_value(key)} = {toml_value(value)}"
        for key, value in values.items()
    ]


def toml_value(value: Any) -> str:
    """Format a plain value as TOML, which the standard library only reads; each table of a list has a line."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(toml_pairs(value)) + " }"
    if isinstance(value, (tuple, list)) and any(isinstance(item, Mapping) for item in value):
        return "[\n    " + ",\n    ".join(map(toml_value, value)) + ",\n]"
    # Text, numbers and lists are written as in JSON, except for the character DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
