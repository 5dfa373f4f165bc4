"""Files of this package: ``.safetensors`` with a version and a fingerprint, whole or not there. No pickle.

Below stand `packed_chunks` and `unpack`, from arrays and plain values to a file and back, and the one writer of whole
files. On them stands `Persistent`: a class that inherits from it enters itself in the registry, gives its state as
arrays and plain values, and is restored by `load`.

A fingerprint shows that a file is whole, not that it was made by this package. So every object that is read is checked
before anybody gets it (`restore`): numbers are finite, and `check_state` finds that the parts fit each other and give
a finite answer to ordinary input. What fails is a `FileFormatError`.
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
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
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
"""Arrays by name, and values that JSON can hold."""

FORMAT, DESCRIPTION_KEY = "mvplda", "object"
"""Of all files, and of the description in them."""
FEATURE_NAMES = "feature_names_in_"
"""Attribute of estimators that were fitted to a table: the names of its columns, as scikit-learn keeps them."""
VERSION = 1
SAFETENSORS_TYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
GZIP = b"\x1f\x8b"
MAX_WIDTH = 2**20
"""Columns of vectors that a file may speak of."""
STANDARD = "-"
"""Stands for standard input or output."""
EXTRACTOR_SUFFIX = ".extractor"
"""A file of this name beside vectors says what made them."""
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
"""What a file is that begins so."""
DESCRIPTORS = ("/dev/fd/", "/dev/stdout", "/dev/stderr", "/proc/")
"""Names of open descriptors: links that lead to no name that could be replaced."""


def packed_chunks(tensors: Tensors, about: Json) -> Iterator[bytes | memoryview]:
    """The bytes of a file, piece by piece: tensors, a description, version and fingerprint.

    The same contents always give the same bytes. The library of safetensors writes its
    metadata in an order that it draws anew every time.
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
    # large items first: all are aligned
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
    """The tensors and the description that `packed_chunks` put in a file, checked."""
    tensors, metadata = read_tensors(path)
    found = metadata.get("format")
    if found != FORMAT:
        raise FileFormatError(
            f"{path} is a safetensors file, but not one that mvplda wrote: it has the format {found!r}; expected "
            f"{FORMAT!r}, of models, calibrators and statistics"
        )
    version = metadata.get("version", "")
    if not version.isdigit() or int(version) > VERSION:
        raise FileFormatError(
            f"{path} has format version {version!r}, this mvplda reads up to {VERSION}: upgrade it"
        )
    try:
        about = json.loads(metadata[DESCRIPTION_KEY], parse_constant=_refuse_constant)
        whole = metadata["fingerprint"] == fingerprint(tensors, about)
    except (KeyError, ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} lacks parts of an {DESCRIPTION_KEY}: {error}") from error
    if not whole:
        raise FileFormatError(f"{path} is damaged: its contents do not match its fingerprint")
    return tensors, about


def _refuse_constant(name: str) -> Any:
    """JSON has no NaN and no infinity, and no file of this package has them among its values."""
    raise ValueError(f"a value is {name}")


def file_type(head: bytes) -> str:
    """What a file is that begins with these bytes, where that can be seen; else nothing."""
    return next((what for start, what in FILE_SIGNATURES.items() if head.startswith(start)), "")


def read_metadata(path: PathLike) -> dict[str, str]:
    """Metadata of a safetensors file; its tensors are not read."""
    return read_tensors(path, metadata_only=True)[1]


def read_tensors(path: PathLike, metadata_only: bool = False) -> tuple[Tensors, dict[str, str]]:
    """Tensors and metadata of a safetensors file."""
    path = Path(path)
    if path.is_dir():
        raise FileFormatError(f"{path} is a folder; a file was expected")
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
        came = file_type(head) or f"a file that begins with {head!r}"
        raise FileFormatError(
            f"{path} is truncated or not a safetensors file, which was expected: it is {came}"
        ) from error


def fingerprint(tensors: Tensors, about: Json) -> str:
    """SHA-256 of the parameters, names and settings."""
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(f"{name}{tensors[name].shape}{tensors[name].dtype}".encode())
        digest.update(np.ascontiguousarray(tensors[name]).tobytes())
    return digest.hexdigest()


def check_writable(*targets: PathLike) -> None:
    """Raise the error now that writing there would give later: before long work, not after it.

    ``-`` stands for standard output and can always be written.
    """
    for target in targets:
        path = Path(target)
        if str(path) == STANDARD:
            continue
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder; give the name of a file to write")
        folder = Path(os.path.realpath(path)).parent
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {folder} to write {path.name} in")
        if not os.access(path if _is_device(path) else folder, os.W_OK):
            raise PermissionError(
                f"{path} cannot be written: it, or its folder, may not be changed"
            )


@contextmanager
def atomic_write(*targets: PathLike) -> Iterator[list[Path]]:
    """Temporary files to write, which take the places of the targets when the block ends well.

    After an error the temporary files are gone and the targets are as they were. A link stays a link: what it points
    to is written. Devices, pipes and standard output (``-``), which cannot be replaced, get a copy. What is called
    ``.gz`` is compressed.
    """
    check_writable(*targets)
    parts: dict[Path, Path] = {}
    try:
        for target in targets:
            path = Path(target)
            folder = Path(tempfile.gettempdir())
            if not _is_device(path):
                path = Path(os.path.realpath(path))
                folder = path.parent
            # names of files end at 255 bytes
            part = folder / f"{path.name[:40]}.{secrets.token_hex(6)}.part"
            part.touch(0o600 if _is_device(path) else 0o666, exist_ok=False)
            parts[part] = path
            if path.is_file():
                shutil.copymode(path, part)
        yield list(parts)
        for part, path in parts.items():
            if path.suffix.lower() == ".gz":
                _compress(part)
            with part.open("r+b") as file:  # Windows syncs only what may be written
                os.fsync(file.fileno())
        for part, path in parts.items():
            if str(path) == STANDARD:
                sys.stdout.buffer.write(part.read_bytes())
                sys.stdout.buffer.flush()
            elif _is_device(path):
                path.write_bytes(part.read_bytes())
            else:
                os.replace(part, path)
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(
            error.errno, f"{error.strerror}: {', '.join(map(str, targets))} was not written"
        ) from error
    finally:
        for part in parts:
            part.unlink(missing_ok=True)


def _compress(part: Path) -> None:
    """Compress a file in its place, unless it is compressed already, as a download may be."""
    data = part.read_bytes()
    if not data.startswith(GZIP):
        # no name and no time: the same contents give the same bytes
        part.write_bytes(gzip.compress(data, mtime=0))


def write_atomically(path: PathLike, data: bytes) -> None:
    """Write a file, all or nothing."""
    with atomic_write(path) as (part,):
        part.write_bytes(data)


def _is_device(path: Path) -> bool:
    """Whether this is no file that another could replace: a device, a pipe, or a descriptor of this process."""
    name = str(path)
    return (
        name == STANDARD or name.startswith(DESCRIPTORS) or (path.exists() and not path.is_file())
    )


# Objects that a file can hold.


REGISTRY: dict[str, type[Persistent]] = {}
"""Classes by name. Each enters itself."""


class Persistent:
    """What a file can keep. A subclass is found again by its name, and needs no table to be entered in.

    The state of an estimator is its settings, and the attributes of `FITTED` that a fit leaves. A class whose state
    is something else says so in `get_state` and `from_state`.
    """

    KIND: ClassVar[str] = "object"
    """What this is, in one word, for people."""

    FITTED: ClassVar[tuple[str, ...]] = ()
    """Attributes that a fit leaves."""

    STORED_KEYS: ClassVar[dict[str, str]] = {}
    """Keys in files of those settings and attributes of `FITTED` that are stored under another name."""

    COMPONENTS: ClassVar[tuple[str, ...]] = ()
    """Attributes that a fit leaves, and which are dicts of objects that a file can keep themselves."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        other = REGISTRY.setdefault(cls.__name__, cls)
        if other.__module__ != cls.__module__:
            raise TypeError(
                f"files know a class {cls.__name__} already, that of {other.__module__}: take another name"
            )
        REGISTRY[cls.__name__] = cls

    def get_state(self) -> State:
        """Arrays and plain values from which `from_state` makes this object again."""
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
            named = value if isinstance(value, dict) else {}
            if isinstance(value, np.ndarray):
                arrays[stored] = np.ascontiguousarray(value)
            elif any(isinstance(part, np.ndarray) for part in named.values()):
                arrays |= {f"{stored}/{key}": part for key, part in named.items()}
            else:
                values[stored] = value.item() if isinstance(value, np.generic) else value
        state: Json = {"settings": settings, "values": values}
        for attribute in self.COMPONENTS:
            parts = getattr(self, attribute).items()
            state[attribute] = {
                name: put_component(arrays, f"{attribute}/{i}", part, Persistent)
                for i, (name, part) in enumerate(parts)
            }
        return arrays, state

    @classmethod
    def from_state(cls, arrays: Tensors, values: Json) -> Self:
        """The object whose state this is."""
        names = {stored: name for name, stored in cls.STORED_KEYS.items()}
        part = cls(**{names.get(key, key): value for key, value in values["settings"].items()})
        fitted = {**values["values"], **arrays}
        for name, array in arrays.items():
            attribute, slash, key = name.partition("/")
            if slash:
                fitted.setdefault(attribute, {})[key] = array
        for attribute in cls.FITTED:
            stored = cls.STORED_KEYS.get(attribute, attribute)
            if stored not in fitted:
                raise FileFormatError(f"the {cls.__name__} has no {stored}")
            setattr(part, attribute, fitted[stored])
        for attribute in cls.COMPONENTS:
            parts = {
                name: get_component(arrays, f"{attribute}/{i}", about, Persistent)
                for i, (name, about) in enumerate(values[attribute].items())
            }
            setattr(part, attribute, parts)
        return part

    def check_state(self) -> None:
        """Raise an error where what a file holds makes no such object, or one without finite answers."""

    def save(self, path: PathLike) -> None:
        """Write this to a ``.safetensors`` file, all or nothing."""
        arrays, about = state_of(self, Persistent)
        with atomic_write(path) as (part,), part.open("wb") as file:
            file.writelines(packed_chunks(arrays, about))

    @classmethod
    def load(cls, path: PathLike) -> Self:
        """Read what `save` wrote; `mvplda.load` reads whatever a file holds."""
        held = load(path)
        if isinstance(held, cls):
            return held
        name = type(held).__name__
        raise FileFormatError(
            f"{path} holds a {name}, not a {cls.__name__}: use mvplda.load or {name}.load"
        )

    def describe(self) -> Json:
        """What this is, in plain values."""
        return {"class": type(self).__name__, "settings": self.get_params(deep=False)}  # type: ignore[attr-defined]


def load(path: PathLike) -> Any:
    """Read what a file of mvplda holds: a `Bundle`, a scorer, a calibrator or statistics."""
    arrays, about = unpack(path)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # about numbers that are refused here
            return restore(arrays, about, Persistent)
    except MemoryError:
        raise
    except Exception as error:  # foreign values lead to any error there is
        reason = str(error) or type(error).__name__
        raise FileFormatError(
            f"{path} lacks parts of what it should hold, or they do not fit: {reason}. If another version of mvplda "
            "wrote it, make it again"
        ) from error


def state_of(part: Any, kind: type[Any]) -> State:
    """The state of a part that must be of a kind; its class is among the values."""
    if not (isinstance(part, Persistent) and isinstance(part, kind)):
        known = sorted(name for name, cls in REGISTRY.items() if issubclass(cls, kind))
        raise ParameterError(
            f"a {type(part).__name__} cannot be kept in a file here; these can: {known}"
        )
    arrays, values = part.get_state()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            _check_part(part, arrays)
    except (MvpldaError, ArithmeticError, np.linalg.LinAlgError) as error:
        raise DataError(
            f"the {type(part).__name__} is not written, because it could not be loaded again: {error}. Check the "
            "vectors that it was fitted to"
        ) from error
    # a table with its columns in another order is refused after loading, too
    names = getattr(part, FEATURE_NAMES, None)
    if names is not None:
        values = {**values, FEATURE_NAMES: list(map(str, names))}
    return arrays, {"class": type(part).__name__, **values}


def _check_part(part: Persistent, arrays: Tensors) -> None:
    """Refuse a part with numbers that are not finite, or whose arrays and values do not fit each other."""
    for key, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise FileFormatError(
                f"the array {key} of its {type(part).__name__} holds NaN or infinity"
            )
    part.check_state()


def restore(arrays: Tensors, about: Json, kind: type[Any]) -> Any:
    """The part whose state `state_of` gave; it must be of a kind."""
    name = about["class"]
    if name not in REGISTRY:
        # which imports whatever stands around a scorer, and the scorers
        import_module(".bundle", __package__)
    if name not in REGISTRY:
        load_entry_points("scorers")
    cls = REGISTRY.get(name)
    if cls is None:
        raise FileFormatError(f"it names a part {name!r}, which this mvplda does not know")
    if not issubclass(cls, kind):
        raise FileFormatError(f"it has a {name} in the place of a {kind.__name__}")
    part: Persistent = cls.from_state(arrays, about)
    if FEATURE_NAMES in about:
        _restore_feature_names(part, about[FEATURE_NAMES])
    _check_part(part, arrays)
    return part


def _restore_feature_names(part: Any, names: Any) -> None:
    """Give a part from a file the column names that it was fitted with."""
    are_names = isinstance(names, list) and all(isinstance(name, str) for name in names)
    width = getattr(part, "width_in", None) or getattr(part, "n_features_in_", None)
    if not are_names or len(names) != width:
        raise FileFormatError(
            f"the names of its columns are a list of {width} texts; got {names!r}"
        )
    part.feature_names_in_ = np.array(names, dtype=object)


def check_answers(part: Any, answer: Callable[[Array], Any], width: int) -> None:
    """Refuse an object that gives NaN or infinity for two ordinary vectors of this width."""
    check_width(part, width)
    check_finite(part, answer(ordinary_vectors(width)))


def check_width(part: Any, width: int) -> None:
    """Refuse an object whose vectors would have no column, or more than any extractor gives."""
    if not 0 < width <= MAX_WIDTH:
        raise FileFormatError(
            f"a {type(part).__name__} takes vectors of 1 to {MAX_WIDTH} columns; this one has a width of {width}"
        )


def check_finite(part: Any, answers: Any) -> None:
    """Refuse an object that gives NaN or infinity for ordinary input."""
    if not np.isfinite(np.asarray(answers)).all():
        raise FileFormatError(f"the {type(part).__name__} gives NaN or infinity for ordinary input")


def ordinary_vectors(width: int) -> Array:
    """(2, width) vectors of numbers around 1."""
    return np.linspace(0.31, 1.73, 2 * width).reshape(2, width)


def put_component(arrays: Tensors, prefix: str, part: Any, kind: type[Any]) -> Json:
    """Put the arrays of a part among those of the whole, under a prefix; gives its values."""
    own, about = state_of(part, kind)
    arrays.update({f"{prefix}/{name}": array for name, array in own.items()})
    return about


def get_component(arrays: Tensors, prefix: str, about: Json, kind: type[Any]) -> Any:
    """The part that `put_component` put under a prefix."""
    own = {
        name[len(prefix) + 1 :]: array
        for name, array in arrays.items()
        if name.startswith(f"{prefix}/")
    }
    return restore(own, about, kind)


def json_settings(settings: Json) -> Json:
    """The settings that a text can hold; callbacks and random generators are left out."""
    plain = {}
    for name, value in settings.items():
        # NumPy's arrays and numbers become lists and numbers
        with suppress(TypeError, AttributeError):
            plain[name] = json.loads(json.dumps(value, default=methodcaller("tolist")))
    return plain


def check_same_extractor(one: str, of_one: str | None, other: str, of_other: str | None) -> None:
    """Refuse what different extractors made; warn where only one of them is known.

    Parameters
    ----------
    one, other : a model, or files of vectors, as errors call them
    of_one, of_other : the names of their extractors
    """
    if of_one == of_other:
        return
    if of_one and of_other:
        raise DataError(
            f"the extractor of {other} is {of_other!r}, that of {one} {of_one!r}: they do not fit. "
            "Make the vectors of both with the same one"
        )
    if of_one is None:
        one, other = other, one
    warnings.warn(
        f"{one} has the extractor {of_one or of_other!r}, {other} has no note of its own (a file ending in "
        f"{EXTRACTOR_SUFFIX}): whether they fit cannot be checked",
        UnknownExtractorWarning,
        stacklevel=3,
    )


def toml_pairs(values: Card) -> list[str]:
    """key = value, as TOML."""
    bare = re.compile(r"[A-Za-z0-9_-]+")
    return [
        f"{k if bare.fullmatch(k) else toml_value(k)} = {toml_value(v)}" for k, v in values.items()
    ]


def toml_value(value: Any) -> str:
    """A plain value as TOML, which Python reads and does not write; a list of tables has a line for each."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(toml_pairs(value)) + " }"
    if isinstance(value, (tuple, list)) and any(isinstance(part, Mapping) for part in value):
        return "[\n    " + ",\n    ".join(map(toml_value, value)) + ",\n]"
    # text, numbers and lists of them are the same in JSON, but for the character that ends ASCII
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
