"""Modules that are imported late: optional dependencies, public names of packages, and plugins.

A plugin is code outside of this package that adds scorers, corpora and recipes of extractors. An installed package
names its modules under the entry points ``mvplda.scorers`` and ``mvplda.corpora``. They are imported when one of these
is chosen by its name, or a file names a class that this package does not have. ``mvplda.recipes`` names a package that
holds recipes, .toml files (a network of another project is an ONNX file with a recipe). A module registers what it has
as the modules of this package do: a scorer by inheriting from `BaseScorer` with a ``NAME``, others by entering a
name in the registry.
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
    "kaldi_native_fbank": "audio",
    "matplotlib": "plot",
    "onnx": "train",
    "onnxruntime": "audio",
    "psycopg": "serve",
    "pyarrow": "scale",
    "pydantic_settings": "serve",
    "soundfile": "audio",
    "soxr": "audio",
    "sqlalchemy": "serve",
    "torch": "train",
    "uvicorn": "serve",
}


# onnxruntime would count its sessions for its makers; set it to 0 to let it
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


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


_LOADED: set[str] = set()


def load_entry_points(group: str) -> None:
    """Import what installed packages add to a group, once."""
    if group not in _LOADED:
        _LOADED.add(group)
        for entry in entry_points(group=f"mvplda.{group}"):
            _load_plugin(f"{entry.name} ({entry.value})", entry.load)


def load_plugin(module: str) -> None:
    """Import a module by its name, from the current folder, too."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)
    _load_plugin(module, lambda: import_module(module))


def _load_plugin(name: str, load: Callable[[], object]) -> None:
    try:
        load()
    except MvpldaError:
        raise
    except Exception as error:  # somebody else's code
        raise ParameterError(f"the plugin {name!r} cannot be imported: {error}") from error
