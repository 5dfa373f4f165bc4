"""Labelled speech: what was recorded, who said what, and who is trained, enrolled and tested on."""

from .corpus import Clip, Corpus, Enrolments, Protocol, enrolments, split_classes
from .folder import table
from .protocol import build_corpus, listed_protocol, make_protocol
from .public import CORPORA, load_corpus
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
    "split_classes",
    "table",
]
