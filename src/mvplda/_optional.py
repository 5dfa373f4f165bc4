"""Late imports: optional dependencies and plugins.

A plugin is a module of another package that adds scorers, calibrators or corpora to this one. The other package lists
its modules under the entry points ``mvplda.scorers``, ``mvplda.calibrators`` and ``mvplda.corpora``. They are imported
when a scorer or corpus is chosen by name, or when a file names a class that this package lacks. The modules register
their classes like those of this package: a scorer inherits from `BaseScorer` and has a ``NAME``, a calibrator inherits
from `Calibrator`, a corpus is added to the dictionary of corpora. The entry point ``mvplda.recipes`` lists packages
that contain recipes of extractors (.toml files).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from .exceptions import MissingExtraError, MvpldaError, ParameterError

EXTRAS = {
    "av": "audio",
    "cryptography": "serve",
    "distributed": "scale",
    "fastapi": "serve",
    "httpx": "client",
    "kaldi_native_fbank": "audio",
    "matplotlib": "plot",
    "onnx": "train",
    "onnxruntime": "audio",
    "psycopg": "serve",
    "pyarrow": "scale",
    "pydantic_settings": "serve",
    "sounddevice": "microphone",
    "soundfile": "audio",
    "soxr": "audio",
    "sqlalchemy": "serve",
    "torch": "train",
    "uvicorn": "serve",
    "websockets": "client",
}
"""Extra of this package (``pip install 'mvplda[EXTRA]'``) that installs each optional module."""


# No telemetry of onnxruntime, unless the user sets the variable to 0.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


def need(module: str) -> Any:
    """Return an optional module; if it is not installed, raise `MissingExtraError` with the extra that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        extra = EXTRAS[module.partition(".")[0]]
        raise MissingExtraError(
            f"this feature needs {module}, which is not installed: pip install 'mvplda[{extra}]', "
            f"or '.[{extra}]' in a copy of the sources",
            name=module,
        ) from error


class LateModule:
    """Optional module that is imported on first access to an attribute."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(need(self._name), name)


_LOADED: set[str] = set()
"""Groups of entry points whose plugins were imported."""


def load_entry_points(group: str) -> None:
    """Import the plugins that installed packages list under the entry point ``mvplda.GROUP``, once per process."""
    if group not in _LOADED:
        _LOADED.add(group)
        for entry in entry_points(group=f"mvplda.{group}"):
            _load_plugin(f"{entry.name} ({entry.value})", entry.load)


def load_plugin(module: str) -> None:
    """Import a plugin by the name of its module; the current folder is searched too.

    Raise `ParameterError` if the module is not found or cannot be imported.
    """
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.append(folder)
    _load_plugin(module, lambda: import_module(module))


def _load_plugin(name: str, load: Callable[[], object]) -> None:
    """Import a plugin by calling `load`; raise `ParameterError` with the plugin's name if this fails."""
    try:
        load()
    except MvpldaError:
        raise
    except Exception as error:  # a plugin may raise any type of error
        raise ParameterError(
            f"the plugin {name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
