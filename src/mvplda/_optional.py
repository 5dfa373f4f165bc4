"""Late imports: optional dependencies and plugins.

A plugin is code outside of this package that adds scorers, calibrators, corpora or recipes of extractors. An installed
package lists its modules under the entry points ``mvplda.scorers``, ``mvplda.calibrators`` and ``mvplda.corpora``. They
are imported when a scorer or corpus is chosen by name, or when a file names a class that this package lacks. The entry
point ``mvplda.recipes`` lists packages with recipes, .toml files (a network of another project is an ONNX file with a
recipe). A module registers its classes as the modules of this package do: a scorer inherits from `BaseScorer` and has a
``NAME``, a calibrator inherits from `Calibrator`, others add a name to the registry.
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
"""Extra of this package that installs each optional module."""


# No telemetry of onnxruntime, unless the user sets the variable to 0.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


def need(module: str) -> Any:
    """Import an optional module; if it is missing, raise an error with the extra that installs it."""
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


def load_entry_points(group: str) -> None:
    """Import the plugins of installed packages in a group, once per process."""
    if group not in _LOADED:
        _LOADED.add(group)
        for entry in entry_points(group=f"mvplda.{group}"):
            _load_plugin(f"{entry.name} ({entry.value})", entry.load)


def load_plugin(module: str) -> None:
    """Import a module by its name, also from the current folder."""
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.append(folder)
    _load_plugin(module, lambda: import_module(module))


def _load_plugin(name: str, load: Callable[[], object]) -> None:
    """Import a plugin; turn its errors into a `ParameterError` with its name."""
    try:
        load()
    except MvpldaError:
        raise
    except Exception as error:  # a plugin may raise any type of error
        raise ParameterError(f"the plugin {name!r} cannot be imported: {error}") from error
