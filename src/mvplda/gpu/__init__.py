"""Training where torch tensors are, on a GPU or on the CPU.

``accumulator``  statistics of vectors that come block by block and never leave their device
``products``     second moments and class sums of a block
``pairs``        how often classes meet
``kernels``      the two passes over memory that torch has no single call for (Triton)
``sums``         class sums that stay on their device until the host asks for them; what a fit there reads
"""

from .accumulator import DeviceAccumulator, gather
from .sums import DeviceSums, check_tensor, device_of, sums_on

__all__ = ["DeviceAccumulator", "DeviceSums", "check_tensor", "device_of", "gather", "sums_on"]
