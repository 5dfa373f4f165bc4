"""Modules imported where they are needed: optional dependencies, and what packages of ours show to the world."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from .exceptions import MissingExtraError

EXTRAS = {
    "av": "audio",
    "cryptography": "serve",
    "dask": "scale",
    "distributed": "scale",
    "espeakng_loader": "train",
    "fastapi": "serve",
    "kaldi_native_fbank": "audio",
    "PIL": "plot",
    "matplotlib": "plot",
    "onnx": "train",
    "onnxruntime": "audio",
    "onnxscript": "train",
    "psycopg": "serve",
    "pyarrow": "scale",
    "pydantic_settings": "serve",
    "python_multipart": "serve",
    "soundfile": "audio",
    "soxr": "audio",
    "sqlalchemy": "serve",
    "torch": "train",
    "uvicorn": "serve",
}


def need(module: str) -> Any:
    """Import an optional module, or say which extra brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        extra = EXTRAS[module.partition(".")[0]]
        raise MissingExtraError(
            f"{module} is not installed, which this needs: pip install 'mvplda[{extra}]', "
            f"or '.[{extra}]' in a copy of the sources",
            name=module,
        ) from error


class LateModule:
    """An optional module that is imported when something of it is first asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(need(self._name), name)


def import_late(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's ``__getattr__`` and ``__dir__``, with names that are imported when they are first used.

    Parameters
    ----------
    package : its ``__name__``
    homes : {module inside the package: names that it has}
    """
    modules = {name: module for module, names in homes.items() for name in names}

    def getattr_(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f".{modules[name]}", package), name)
        setattr(sys.modules[package], name, value)
        return value

    def dir_() -> list[str]:
        return sorted(sys.modules[package].__all__)

    return getattr_, dir_
