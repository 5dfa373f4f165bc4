"""Sufficient statistics of labelled vectors: all that training ever sees of them.

``record``       the statistics: gathered from arrays, added, subtracted, saved; many parts added at once
``accumulator``  gathered batch by batch, with classes that appear on the way
``subtraction``  vectors taken out again
``storage``      files and bytes
``sums``         what EM reads of them; the sums over a block of vectors
``device``       the same where torch tensors are, on a GPU or on the CPU (``device_products``, ``device_kernels``)
"""

from .._validation import as_vectors
from .accumulator import Accumulator, LabelCodes, label_codes
from .record import HARDLY_VARIES, SecondMoment, SufficientStatistics, hardly_vary, merge

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
