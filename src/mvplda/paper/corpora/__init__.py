"""Corpora of labelled speech: locations of recordings, labels per view, and protocols of experiments.

`load_corpus` loads a corpus by its name in `CORPORA`. Modules that define corpora add them when they are imported.
"""

from ...voice.audio.decode import FileSegment
from . import folder, public, rsr2015  # noqa: F401
from .corpus import (
    CORPORA,
    Corpus,
    Protocol,
    build_corpus,
    enrolments,
    load_corpus,
    register_corpus,
)
from .folder import read_corpus_table

__all__ = [
    "CORPORA",
    "Corpus",
    "FileSegment",
    "Protocol",
    "build_corpus",
    "enrolments",
    "load_corpus",
    "read_corpus_table",
    "register_corpus",
]
