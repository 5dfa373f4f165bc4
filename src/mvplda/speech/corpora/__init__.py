"""Labelled speech: what was recorded, who said what, and who is trained, enrolled and tested on.

Importing a module with a corpus registers it: `CORPORA` has them all, `load_corpus` loads one by name.
"""

from ..features.reading import Clip
from . import public, rsr2015, synthetic  # noqa: F401
from .corpus import (
    CORPORA,
    Corpus,
    Enrolments,
    Protocol,
    ProtocolOptions,
    enrolments,
    load_corpus,
    register_corpus,
    split_classes,
)
from .folder import corpus_of_vectors, table
from .protocol import build_corpus, listed_protocol, make_protocol

__all__ = [
    "CORPORA",
    "Clip",
    "Corpus",
    "Enrolments",
    "Protocol",
    "ProtocolOptions",
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
