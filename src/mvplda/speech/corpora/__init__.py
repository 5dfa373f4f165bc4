"""Labelled speech: what was recorded, who said what, and who is trained, enrolled and tested on.

Importing a module with a corpus registers it: `CORPORA` has them all, `load_corpus` loads one by name.
"""

from ...extractors.sound import Clip
from . import folder, public  # noqa: F401
from .corpus import (
    CORPORA,
    Corpus,
    Protocol,
    build_corpus,
    enrolments,
    load_corpus,
    register_corpus,
)
from .folder import read_table

__all__ = [
    "CORPORA",
    "Clip",
    "Corpus",
    "Protocol",
    "build_corpus",
    "enrolments",
    "load_corpus",
    "read_table",
    "register_corpus",
]
