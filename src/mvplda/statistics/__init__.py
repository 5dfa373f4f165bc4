"""Sufficient statistics of labelled vectors: all that training ever sees of them.

``record``       the statistics: gathered from arrays, named, saved
``accumulator``  sums that grow block by block, and what EM reads of them
``classes``      names of classes that come batch by batch, and statistics added and subtracted
``device``       the same where torch tensors are, on a GPU or on the CPU (``device_kernels`` needs Triton)
"""

from .accumulator import Accumulator
from .classes import merge
from .device import DeviceAccumulator
from .record import SufficientStatistics

__all__ = [
    "Accumulator",
    "DeviceAccumulator",
    "SufficientStatistics",
    "merge",
]
