"""Labelled speech: what was recorded, who said what, and who is trained, enrolled and tested on.

Importing a module with a corpus registers it: `CORPORA` has them all, `load_corpus` loads one by name.
"""

from ..frames import Clip
from . import public, rsr2015, synthetic  # noqa: F401
from .corpus import CORPORA, Corpus, Protocol, ProtocolOptions, load_corpus, register_corpus
from .folder import corpus_of_vectors, read_table
from .protocol import build_corpus, enrolments, listed_protocol, make_protocol, split_classes

__all__ = [
    "CORPORA",
    "Clip",
    "Corpus",
    "Protocol",
    "ProtocolOptions",
    "build_corpus",
    "corpus_of_vectors",
    "enrolments",
    "listed_protocol",
    "load_corpus",
    "make_protocol",
    "read_table",
    "register_corpus",
    "split_classes",
]
