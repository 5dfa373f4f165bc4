"""Labelled speech: what was recorded, who said what, and who is trained, enrolled and tested on."""

from .corpus import Clip, Corpus, Protocol
from .enrolment import Enrolments, enrolments, split_classes
from .protocol import build_corpus, listed_protocol, make_protocol
from .registry import CORPORA, load_corpus
from .tables import table
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
