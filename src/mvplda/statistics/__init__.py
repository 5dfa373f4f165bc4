"""Sufficient statistics of labelled vectors: all that training ever sees of them.

``record``       the statistics: gathered from arrays, named, saved
``accumulator``  sums that grow block by block, and what EM reads of them
``device``       the same where torch tensors are, on a GPU or on the CPU (``device_kernels`` needs Triton)
``combination``  statistics added, and vectors taken out again
"""

from .accumulator import Accumulator
from .combination import merge
from .device import DeviceAccumulator
from .record import SufficientStatistics

__all__ = [
    "Accumulator",
    "DeviceAccumulator",
    "SufficientStatistics",
    "merge",
]
