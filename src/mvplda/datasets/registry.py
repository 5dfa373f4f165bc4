"""Data sets by name."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

from ..exceptions import ParameterError
from .arabic_commands import arabic_commands
from .audiomnist import audiomnist
from .corpus import Corpus
from .folder import folder
from .free_spoken_digits import free_spoken_digits
from .rsr2015 import rsr2015
from .synthetic import synthetic

CORPORA: dict[str, Callable[..., Corpus]] = {
    "audiomnist": audiomnist,
    "free-spoken-digits": free_spoken_digits,
    "arabic-commands": arabic_commands,
    "rsr2015": rsr2015,
    "folder": folder,
    "synthetic": synthetic,
}


def load_corpus(name: str, root: str | os.PathLike[str], **options: Any) -> Corpus:
    """A corpus by its name and the folder that it lies in.

    Parameters
    ----------
    name : audiomnist, free-spoken-digits, arabic-commands, rsr2015, folder or synthetic
    root : the folder (or, for "folder", a table; for "synthetic", where to write it)
    options : those of the data set's own function
    """
    load = CORPORA.get(name.replace("_", "-"))
    if load is None:
        raise ParameterError(f"there is no data set {name!r}; there are {', '.join(CORPORA)}")
    known = inspect.signature(load).parameters
    odd = [option for option in options if option not in known]
    if odd and not any(p.kind is p.VAR_KEYWORD for p in known.values()):
        raise ParameterError(f"{name} has no option {', '.join(odd)}; it has {', '.join(list(known)[1:])}")
    return load(root, **options)
