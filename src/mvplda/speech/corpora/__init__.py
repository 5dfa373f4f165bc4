"""Labelled speech: what was recorded, who said what, and who is trained, enrolled and tested on.

Importing a module with a corpus registers it: `CORPORA` has them all, `load_corpus` loads one by name.
"""

from ..features.reading import Clip
from . import arabic_commands, audiomnist, free_spoken_digits, rsr2015, synthetic  # noqa: F401
from .corpus import CORPORA, Corpus, Enrolments, Protocol, enrolments, load_corpus, register_corpus, split_classes
from .folder import table
from .protocol import build_corpus, listed_protocol, make_protocol
from .vectors import corpus_of_vectors

__all__ = [
    "CORPORA",
    "Clip",
    "Corpus",
    "Enrolments",
    "Protocol",
    "build_corpus",
    "corpus_of_vectors",
    "enrolments",
    "listed_protocol",
    "load_corpus",
    "make_protocol",
    "register_corpus",
    "split_classes",
    "table",
]
