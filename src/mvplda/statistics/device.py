"""Statistics of torch tensors, computed on their device.

Results do not depend on the order in which threads run: class sums come from sorted rows or from
products with 0 and 1, and concurrent additions are of integers only. They do depend on block sizes,
through rounding. Products of float32 numbers are summed in float32 over at most `ROWS` rows, and
these sums in float64: the error of second moments is about 4e-7 of the variances. float64 vectors
are multiplied in float64.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from .._optional import LateModule
from .._typing import AnyArray, IntArray
from ..backend import is_torch, to_host
from ..exceptions import DataError, LabelError
from ..vector_checks import check_shape
from .accumulator import SHIFT, Accumulator

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = LateModule("torch")

ROWS = 4096
"""Number of rows whose products are summed in float32; more rows need fewer partial sums, fewer
rows give smaller errors.
"""

COPIED = 2**26
"""Number of elements that are copied at a time when rows are sorted by class."""

FEW_CLASSES = 64
"""Largest number of classes for sums as a product with a 0-1 matrix; for more, rows are sorted by class."""


class DeviceAccumulator(Accumulator):
    """`Accumulator` for torch tensors: the sums are computed and stored on their device.

    The number of classes of each view must be given at construction.

    Examples
    --------
    >>> import torch
    >>> from mvplda import SufficientStatistics
    >>> from mvplda.statistics import DeviceAccumulator
    >>> sums = DeviceAccumulator(2, {"speaker": 3, "phrase": 2})
    >>> for start in (0.0, 6.0):
    ...     block = start + torch.arange(6.0).reshape(3, 2)
    ...     sums.add(block, {"speaker": torch.arange(3), "phrase": [0, 1, 0]})
    >>> SufficientStatistics.of(sums).counts["phrase"]
    array([4., 2.])
    """

    block_bytes = 2**30

    def _vectors(self, X: Tensor) -> Tensor:
        x = check_tensor(X)
        if self._sums and x.device != self._sums[0].device:
            raise DataError(
                f"vectors must be on the device of those added before, {self._sums[0].device}; got {x.device}"
            )
        self._device = x.device
        return x if x.stride(1) == 1 else x.contiguous()

    def _numbers(self, view: str, codes: Mapping[str, AnyArray], n: int) -> Tensor:
        numbers = super()._numbers(view, codes, n)
        if not is_torch(numbers):
            numbers = torch.as_tensor(np.asarray(numbers))
        if numbers.is_floating_point() or numbers.dtype == torch.bool:
            raise LabelError(
                f"class numbers of {view!r} must be whole numbers; got {numbers.dtype}"
            )
        low, high = (int(value) for value in torch.aminmax(numbers))
        if low < 0 or high >= self.sizes[view]:  # a GPU would write outside the sums
            raise LabelError(
                f"class numbers of {view!r} must lie in 0 .. {self.sizes[view] - 1}; got {low} .. {high}"
            )
        return numbers.to(self._device).long()

    def _zeros(self, vectors: Tensor, *shape: int) -> Tensor:
        return vectors.new_zeros(shape, dtype=torch.float64)

    def _shift(self, first: Tensor) -> Tensor:
        return super()._shift(first[:ROWS])  # a whole block is too large to copy to the host

    def _squares(self, block: Tensor) -> Tensor:
        if self.second_moment == "diagonal":
            return sum_of_squares(block)
        return sum_of_products(block, block)

    def _add_classes(self, k: int, codes: Tensor, block: Tensor) -> None:
        sums = self._sums[k]
        self._counts[k] += to_host(torch.bincount(codes, minlength=len(sums)))
        if len(sums) <= FEW_CLASSES:
            one_hot = codes[:, None] == torch.arange(len(sums), device=codes.device)
            sums += sum_of_products(one_hot.to(block.dtype), block)
        else:
            add_class_sums(sums, codes, block)

    def _cells(self, rows: Tensor, columns: Tensor) -> tuple[IntArray, IntArray]:
        keys, counts = torch.unique((rows << SHIFT) | columns, return_counts=True)
        return to_host(keys), to_host(counts)


def sum_of_products(left: Tensor, right: Tensor) -> Tensor:
    """Return left' right, (p, q), in float64.

    Products of float32 numbers are summed in float32 over `ROWS` rows, and these sums in float64.

    left, right : (n, p) and (n, q)
    """
    if left.dtype == torch.float64:
        return left.T @ right
    total = torch.zeros((left.shape[1], right.shape[1]), dtype=torch.float64, device=left.device)
    for a, b in zip(_stacks(left), _stacks(right), strict=True):
        total += torch.bmm(a.mT, b).sum(dim=0, dtype=torch.float64)
    return total


def sum_of_squares(rows: Tensor) -> Tensor:
    """Return the sum of the squares of each column of (n, D) rows, in float64, (D,)."""
    total = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)
    for stack in _stacks(rows):
        total += (stack * stack).sum(dim=1).sum(dim=0, dtype=torch.float64)
    return total


def _stacks(rows: Tensor) -> list[Tensor]:
    """Return rows (n, w) as stacks of at most `ROWS` rows: a list of one or two 3-D tensors.

    The first has the shape (n // ROWS, ROWS, w), the second holds the remaining rows, (1, rows, w).
    Empty tensors are left out.
    """
    whole = len(rows) // ROWS * ROWS
    stacks = [rows[:whole].reshape(-1, ROWS, rows.shape[1]), rows[whole:][None]]
    return [stack for stack in stacks if stack.numel()]


def add_class_sums(sums: Tensor, codes: Tensor, rows: Tensor) -> None:
    """Add rows to class sums, in an order that does not depend on threads.

    sums : (classes, D) float64 sums, changed in place
    codes : (n,) class number of each row
    rows : (n, D) vectors
    """
    fused = rows.is_cuda and find_spec("triton") is not None
    step = len(rows) if fused else max(1, COPIED // rows.shape[1])
    for start in range(0, len(rows), step):
        chunk = rows[start : start + step]
        ordered, order = torch.sort(codes[start : start + step], stable=True)
        classes, lengths = torch.unique_consecutive(ordered, return_counts=True)
        if fused:
            from .device_kernels import add_segments

            starts = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
            add_segments(sums, chunk, order, starts, classes)
        else:
            sums[classes] += torch.segment_reduce(
                chunk[order].double(), "sum", lengths=lengths, axis=0
            )


def check_tensor(X: Tensor) -> Tensor:
    """Return vectors as a detached float32 or float64 tensor, (n, D).

    Raise `DataError` unless the shape is (n, D) and the numbers are real.
    """
    assert is_torch(X)
    check_shape(X)
    if X.is_complex():
        raise DataError(f"vectors must be real numbers; got {X.dtype}")
    X = X.detach()
    if X.dtype in (torch.float32, torch.float64):
        return X
    return X.to(torch.float32 if X.dtype in (torch.float16, torch.bfloat16) else torch.float64)
