"""Sufficient statistics of labelled vectors: the only input of training.

``record``       the statistics: from arrays, with class names, loaded and saved
``accumulator``  sums that grow block by block, and the sums that EM reads
``classes``      classes that appear batch by batch, and sums and differences of statistics
``device``       accumulation of torch tensors, on a GPU or on the CPU (``device_kernels`` needs Triton)
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
