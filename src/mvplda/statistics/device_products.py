"""Second moments and class sums of a block of vectors on its device.

Products of float32 numbers are summed in float32 over `ROWS` rows at most, and
from there on in float64. ``"split"`` takes every number as the sum of two of
float16, x = high + low with 11 bits each, and x'x as high'high + high'low +
low'high: what is left out is 2^-24 of x'x. The tensor cores multiply float16 at
ten times the speed of float32. But they cut off, where float32 rounds, whenever
they add to a sum: what they lose grows with the rows that are summed, all in one
direction. Measured on an H200, relative to the variances (benchmarks/gpu_training.py):
5.0e-6 over 1024 rows, 2.3e-5 over 4096; float32 3.4e-7 over 4096.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any, Literal

from .._optional import need

Arithmetic = Literal["float32", "split", "float64"]
ARITHMETICS = ("float32", "split", "float64")

ROWS = 4096
"""Rows whose products are summed in float32: more make fewer partial sums to write, fewer make smaller errors."""

SPLIT_ROWS = 1024
"""The same on tensor cores, whose errors are larger."""

TOP = 64.0
"""Size of a column's largest number in units of float16 splitting: a thousandth of what float16 can hold."""

COPIED = 2**26
FEW_CLASSES = 64
"""Sums of so few classes are a product with a matrix of 0 and 1; of more, sums of sorted rows."""


class Plain:
    """Centred rows as they are, float32 or float64."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def gram(self) -> Any:
        """(D, D) float64, sum of x x'."""
        return sum_of_products(self.rows, self.rows)

    def squares(self) -> Any:
        """(D,) float64, sum of x^2."""
        total = 0.0
        for part in _stacks(self.rows, ROWS):
            total = total + (part * part).sum(dim=1).sum(dim=0, dtype=need("torch").float64)
        return total

    def sums(self, one_hot: Any) -> Any:
        """(C, D) float64, class sums by a matrix of 0 and 1."""
        return sum_of_products(one_hot.to(self.rows.dtype), self.rows)


class Split:
    """Centred rows as [high, low] in float16, in units of every column."""

    def __init__(self, parts: Any, unit: Any) -> None:
        self.parts, self.unit = parts, unit.double()
        self.D = len(unit)

    def gram(self) -> Any:
        both = sum_of_products(self.parts[:, : self.D], self.parts)
        high, cross = both[:, : self.D], both[:, self.D :]
        return (high + cross + cross.T) * (self.unit[:, None] * self.unit)

    def sums(self, one_hot: Any) -> Any:
        both = sum_of_products(one_hot.to(self.parts.dtype), self.parts)
        return (both[:, : self.D] + both[:, self.D :]) * self.unit


def split(x: Any, shift: Any, unit: Any) -> Split:
    """float32 rows less a shift, split."""
    if x.is_cuda and has_triton():
        from .device_kernels import split as fused

        return Split(fused(x, shift, 1.0 / unit), unit)
    y = (x - shift) * (1.0 / unit)
    high = y.half()
    return Split(need("torch").cat([high, (y - high).half()], dim=1), unit)


def unit_of(rows: Any) -> Any:
    """Units for splitting, by the largest number of every column."""
    torch = need("torch")
    largest = rows.abs().amax(dim=0)
    largest = torch.where(largest > 0, largest, largest.max())
    return (largest / TOP).clamp(min=1e-30)


def sum_of_products(left: Any, right: Any) -> Any:
    """left' right in float64, of (n, p) and (n, q): float32 sums over a few rows, float64 over those."""
    float64 = need("torch").float64
    if left.dtype == float64:
        return left.T @ right
    total = 0.0
    rows = SPLIT_ROWS if left.dtype == need("torch").float16 else ROWS
    for a, b in zip(_stacks(left, rows), _stacks(right, rows), strict=True):
        total = total + _batched(a.mT, b).sum(dim=0, dtype=float64)
    return total


def _batched(left: Any, right: Any) -> Any:
    torch = need("torch")
    if left.dtype != torch.float16:
        return torch.bmm(left, right)
    if left.is_cuda and _keeps_float32():
        return torch.bmm(left, right, out_dtype=torch.float32)
    return torch.bmm(left.float(), right.float())


def _stacks(rows: Any, height: int) -> list[Any]:
    """(n, w) as (n // height, height, w), and what is left over."""
    whole = len(rows) // height * height
    stacks = [rows[:whole].unflatten(0, (-1, height))] if whole else []
    return stacks + ([rows[whole:][None]] if whole < len(rows) else [])


def add_class_sums(sums: Any, codes: Any, x: Any, shift: Any) -> None:
    """Add x - shift to the float64 rows of many classes, in an order that does not depend on threads."""
    torch, fused = need("torch"), x.is_cuda and has_triton()
    step = len(x) if fused else max(1, COPIED // x.shape[1])
    for start in range(0, len(x), step):
        some = x[start : start + step]
        ordered, order = torch.sort(codes[start : start + step], stable=True)
        classes, lengths = torch.unique_consecutive(ordered, return_counts=True)
        if fused:
            from .device_kernels import add_segments

            starts = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
            add_segments(sums, some, shift, order, starts, classes)
        else:
            sums[classes] += torch.segment_reduce((some[order] - shift).double(), "sum", lengths=lengths, axis=0)


@cache
def has_triton() -> bool:
    return find_spec("triton") is not None


@cache
def _keeps_float32() -> bool:
    """Whether torch gives the float32 sums of float16 products as they are (2.8 and later)."""
    torch = need("torch")
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    return (major, minor) >= (2, 8)
