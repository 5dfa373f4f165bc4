"""Sufficient statistics of labelled vectors: all that training ever sees of them.

``record``       the statistics: gathered from arrays, added, subtracted, saved
``accumulator``  gathered batch by batch, with classes that appear on the way
``merging``      many parts added at once
``subtraction``  vectors taken out again
``storage``      files and bytes
``blocks``       the sums over a block of vectors
"""

from .accumulator import Accumulator, LabelCodes, label_codes
from .blocks import as_vectors
from .merging import merge
from .record import HARDLY_VARIES, SecondMoment, SufficientStatistics, hardly_vary

__all__ = [
    "HARDLY_VARIES",
    "Accumulator",
    "LabelCodes",
    "SecondMoment",
    "SufficientStatistics",
    "as_vectors",
    "hardly_vary",
    "label_codes",
    "merge",
]
