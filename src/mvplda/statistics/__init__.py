"""Sufficient statistics of labelled vectors: all that training ever sees of them.

``record``       the statistics: gathered from arrays, named, saved
``accumulator``  sums that grow block by block: the protocol, the host's, and what EM reads of them
``device``       the same where torch tensors are, on a GPU or on the CPU (``device_kernels`` needs Triton)
``combination``  statistics added, and vectors taken out again
"""

from .._validation import as_vectors
from .accumulator import Accumulator, GrowingClasses, HostAccumulator, LabelCodes, SecondMoment, Sums, label_codes
from .combination import merge
from .record import HARDLY_VARIES, SufficientStatistics, hardly_vary

__all__ = [
    "HARDLY_VARIES",
    "Accumulator",
    "GrowingClasses",
    "HostAccumulator",
    "LabelCodes",
    "SecondMoment",
    "SufficientStatistics",
    "Sums",
    "as_vectors",
    "hardly_vary",
    "label_codes",
    "merge",
]
