"""Triton kernel for the class sums of a block of vectors: one pass, limited by memory bandwidth alone.

Imported only for CUDA tensors (or with Triton's interpreter, for tests).
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

WIDEST = 1024
"""Largest number of columns per program of the kernel."""


@triton.jit  # type: ignore[untyped-decorator]
def _segment_kernel(x, order, starts, classes, sums, stride, D, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add the rows of one class of a block to its sum; each class is one program of the kernel.

    No other program writes to the sum of this class, so that results do not depend on the order of
    programs. The arguments are those of `add_segments`, with the row stride and the width of x.
    """
    segment = tl.program_id(0)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = columns < D
    total = tl.zeros((WIDTH,), dtype=tl.float64)
    first = tl.load(starts + segment)
    last = tl.load(starts + segment + 1)
    for i in range(first, last):
        row = tl.load(order + i)
        total += tl.load(x + row * stride + columns, mask=inside, other=0.0).to(tl.float64)
    address = sums + tl.load(classes + segment) * D + columns
    tl.store(address, tl.load(address, mask=inside, other=0.0) + total, mask=inside)


def add_segments(sums: Any, x: Any, order: Any, starts: Any, classes: Any) -> None:
    """Add the rows of x to float64 class sums.

    The rows order[starts[i]:starts[i + 1]] belong to class classes[i].

    sums : (classes, D), changed in place
    x : (n, D) vectors
    order : (n,) row numbers, sorted by class
    starts : (m + 1,) position in `order` of the first row of each of m classes, and last n
    classes : (m,) class numbers
    """
    D = x.shape[1]
    width = min(WIDEST, triton.next_power_of_2(D))
    grid = (len(classes), triton.cdiv(D, width))
    _segment_kernel[grid](x, order, starts, classes, sums, x.stride(0), D, WIDTH=width)
