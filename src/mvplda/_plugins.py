"""Code outside of this package that adds scorers, corpora and recipes of extractors.

An installed package names its modules under the entry points ``mvplda.scorers``, ``mvplda.corpora``
and ``mvplda.recipes`` (a network of another project is an ONNX file with a recipe). They are imported when one of
these is chosen by its name, or a file names a class that this package does not have. A module registers what it has as
the modules of this package do: a scorer by inheriting from `BaseScorer` with a ``NAME``, others by entering a name in
the registry.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.metadata import entry_points

from .exceptions import MvpldaError, ParameterError

_LOADED: set[str] = set()


def load_entry_points(group: str) -> None:
    """Import what installed packages add to a group, once."""
    if group in _LOADED:
        return
    _LOADED.add(group)
    for entry in entry_points(group=f"mvplda.{group}"):
        try:
            entry.load()
        except MvpldaError:
            raise
        except Exception as error:  # somebody else's code
            raise ParameterError(
                f"the plugin {entry.name!r} ({entry.value}) cannot be imported: {error}"
            ) from error


def load_plugin(module: str) -> None:
    """Import a module by its name, from the current folder, too."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)
    try:
        import_module(module)
    except MvpldaError:
        raise
    except Exception as error:  # somebody else's code
        raise ParameterError(f"the plugin {module!r} cannot be imported: {error}") from error
