"""The accumulator of torch tensors: blocks of vectors that never leave their device.

No result depends on the order in which threads happen to run: class sums are sorted or are products with 0 and 1, and
what is added by many at once are integers. Blocks of other sizes round differently. Products of float32 numbers are
summed in float32 over `ROWS` rows at most, and from there on in float64: second moments are within about 4e-7 of the
variances. float64 vectors are multiplied as such.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from .._optional import LateModule
from .._typing import AnyArray, Device, IntArray
from ..backend import as_device, is_torch, to_host
from ..exceptions import DataError, LabelError, ParameterError
from ..labels import check_view_names
from .accumulator import (
    OnError,
    SecondMoment,
    Sums,
    amid,
    check_origin,
    check_second_moment,
    not_finite,
    too_large,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = LateModule("torch")

WORK_BYTES = 2**30
"""Centred copies of so many bytes of vectors are made at a time."""

ROWS = 4096
"""Rows whose products are summed in float32: more make fewer partial sums to write, fewer make smaller errors."""

COPIED = 2**26
FEW_CLASSES = 64
"""Sums of so few classes are a product with a matrix of 0 and 1; of more, sums of sorted rows."""


class DeviceAccumulator:
    """The `Accumulator` of tensors, on their device.

    Parameters
    ----------
    dimension : width of the vectors
    classes : of every view, interactions included, the number of its classes
    device : where the vectors are (default: where the first block is)
    second_moment : ``"full"`` for any noise, ``"diagonal"`` is enough for diagonal noise
    origin : (D,) point amid the data that sums are taken about (default: the mean of the first rows)

    Examples
    --------
    >>> import torch
    >>> from mvplda import SufficientStatistics
    >>> from mvplda.statistics import DeviceAccumulator
    >>> sums = DeviceAccumulator(2, {"speaker": 3, "phrase": 2})
    >>> for start in (0.0, 6.0):
    ...     block = start + torch.arange(6.0).reshape(3, 2)
    ...     left_out = sums.add(block, {"speaker": torch.arange(3), "phrase": [0, 1, 0]})
    >>> SufficientStatistics.of(sums).counts["phrase"]
    array([4., 2.])
    """

    def __init__(
        self,
        dimension: int,
        classes: Mapping[str, int],
        *,
        device: Device = None,
        second_moment: SecondMoment = "full",
        origin: Any = None,
    ) -> None:
        check_second_moment(second_moment)
        if not classes:
            raise ParameterError("there is no view: give the number of classes of at least one")
        check_view_names(tuple(classes))
        self.views, self.sizes = tuple(classes), {view: int(size) for view, size in classes.items()}
        self.dimension, self.second_moment, self.n, self._rows = dimension, second_moment, 0, 0
        self.origin = None if origin is None else check_origin(origin, dimension)
        self._device = None if device is None else as_device(device)

    def add(self, X: Any, codes: Mapping[str, Any], *, on_error: OnError = "raise") -> IntArray:
        """Add vectors (n, D) with the class numbers of every view, each (n,): see `Accumulator`.

        A block of a million vectors and more keeps a GPU busy. A block that is refused leaves
        the accumulator as it was.
        """
        x = check_tensor(X)
        if x.shape[1] != self.dimension:
            raise DataError(f"the vectors have width {x.shape[1]}, the statistics {self.dimension}")
        if self.n == 0:
            self._begin(x)
        elif x.device != self._device:
            raise DataError(f"the vectors are on {x.device}, those before on {self._device}")
        if x.stride(1) != 1:
            x = x.contiguous()
        n, bad = len(x), np.empty(0, dtype=np.int64)
        numbers = {view: self._numbers(view, codes, n) for view in self.views}
        moments, few = self._products(x, numbers)
        if not _all_finite(moments):
            finite = x.isfinite().all(dim=1)
            bad = np.flatnonzero(~to_host(finite))
            if len(bad) and on_error == "raise":
                raise not_finite(self._rows + int(bad[0]))
            x, numbers = x[finite], {view: number[finite] for view, number in numbers.items()}
            moments, few = self._products(x, numbers)
            if not _all_finite(moments):
                raise too_large(self._rows, n, x.dtype)
        if len(x):
            self._add_block(x, numbers, moments, few)
        self._rows += n
        return bad

    def _add_block(
        self, x: Tensor, numbers: Mapping[str, Tensor], moments: Tensor, few: Mapping[str, Tensor]
    ) -> None:
        self._moments += moments
        for view, sums in self._sums.items():
            if view in few:
                sums += few[view]
            else:
                add_class_sums(sums, numbers[view], x, self._shift(x))
        for k, counts in self._counts.items():
            counts += torch.bincount(numbers[self.views[k]], minlength=len(counts))
        for (k, l), pairs in self._pairs.items():
            a, b = self.views[k], self.views[l]
            pairs.add(numbers[a] * self.sizes[b] + numbers[b])
        self.n += len(x)

    def result(self) -> Sums[AnyArray]:
        tables = {pair: pairs.table() for pair, pairs in self._pairs.items()}
        counts = {k: to_host(found).astype(np.float64) for k, found in self._counts.items()}
        for (k, l), table in tables.items():
            counts[k], counts[l] = (
                np.asarray(table.sum(axis=axis), dtype=np.float64) for axis in (1, 0)
            )
        scatter = (
            (self._moments + self._moments.mT) / 2 if self._moments.ndim == 2 else self._moments
        )
        sums = tuple(self._sums[view] for view in self.views)
        n, self.n, self._rows = self.n, 0, 0
        return Sums(
            n, sums[0].sum(dim=0), scatter, tuple(counts[k] for k in range(len(sums))), sums, tables
        )

    def _begin(self, x: Tensor) -> None:
        if self._device is None:
            self._device = x.device
        elif x.device != self._device:
            raise DataError(f"the vectors are on {x.device}, the statistics on {self._device}")
        D, some = self.dimension, x[:ROWS].double()
        if self.origin is None:
            self.origin = amid(to_host(some))
        self._origin = torch.as_tensor(self.origin, device=self._device).to(x.dtype).double()
        self.origin = to_host(self._origin)
        shape = (D, D) if self.second_moment == "full" else (D,)
        there: dict[str, Any] = {"dtype": torch.float64, "device": self._device}
        self._moments = torch.zeros(shape, **there)
        self._sums = {view: torch.zeros((size, D), **there) for view, size in self.sizes.items()}
        sizes = list(self.sizes.values())
        self._pairs = {
            (k, l): Pairs((sizes[k], sizes[l]), self._device)
            for k in range(len(sizes))
            for l in range(k + 1, len(sizes))
        }
        met = {
            view for pair in self._pairs for view in pair
        }  # how often they meet says how many there are
        self._counts = {
            k: torch.zeros(size, **there).long() for k, size in enumerate(sizes) if k not in met
        }

    def _shift(self, x: Tensor) -> Tensor:
        return self._origin.to(x.dtype)

    def _numbers(self, view: str, codes: Mapping[str, Any], n: int) -> Tensor:
        if view not in codes:
            raise LabelError(
                f"there are no class numbers of view {view!r}, only of {sorted(codes)}"
            )
        given = codes[view]
        numbers = (given if is_torch(given) else torch.as_tensor(np.asarray(given))).to(
            self._device
        )
        if numbers.ndim != 1 or len(numbers) != n:
            raise LabelError(
                f"there are {n} vectors; class numbers of {view!r} have shape {tuple(numbers.shape)}"
            )
        if numbers.is_floating_point() or numbers.dtype == torch.bool:
            raise LabelError(f"class numbers of {view!r} are whole numbers; got {numbers.dtype}")
        low, high = (int(value) for value in torch.aminmax(numbers))
        if low < 0 or high >= self.sizes[view]:
            raise LabelError(
                f"class numbers of {view!r} lie in 0 .. {self.sizes[view] - 1}; got {low} .. {high}"
            )
        return numbers.long()

    def _products(
        self, x: Tensor, numbers: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Second moments, and sums of views with few classes: products of centred rows."""
        step = max(ROWS, WORK_BYTES // (self.dimension * 4) // ROWS * ROWS)
        few = {
            v: torch.zeros_like(self._sums[v])
            for v, size in self.sizes.items()
            if size <= FEW_CLASSES
        }
        moments = torch.zeros_like(self._moments)
        for start in range(0, len(x), step):
            part = x[start : start + step]
            centred = part - self._shift(part)
            moments += (
                sum_of_products(centred, centred)
                if self.second_moment == "full"
                else sum_of_squares(centred)
            )
            for view, sums in few.items():
                classes = torch.arange(self.sizes[view], device=self._device)
                one_hot = (numbers[view][start : start + step, None] == classes).to(part.dtype)
                sums += sum_of_products(one_hot, centred)
        return moments, few


def _all_finite(moments: Tensor) -> bool:
    return bool((moments.diagonal() if moments.ndim == 2 else moments).isfinite().all())


def sum_of_products(left: Tensor, right: Tensor) -> Tensor:
    """left' right in float64, of (n, p) and (n, q): float32 sums over a few rows, float64 over those."""
    if left.dtype == torch.float64:
        return left.T @ right
    total = torch.zeros((left.shape[1], right.shape[1]), dtype=torch.float64, device=left.device)
    for a, b in zip(_stacks(left), _stacks(right), strict=True):
        total += torch.bmm(a.mT, b).sum(dim=0, dtype=torch.float64)
    return total


def sum_of_squares(rows: Tensor) -> Tensor:
    """(D,) float64, sum of x^2."""
    total = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)
    for part in _stacks(rows):
        total += (part * part).sum(dim=1).sum(dim=0, dtype=torch.float64)
    return total


def _stacks(rows: Tensor) -> list[Tensor]:
    """(n, w) as (n // ROWS, ROWS, w), and what is left over."""
    whole = len(rows) // ROWS * ROWS
    stacks = [rows[:whole].reshape(-1, ROWS, rows.shape[1])] if whole else []
    return stacks + ([rows[whole:][None]] if whole < len(rows) else [])


def add_class_sums(sums: Tensor, codes: Tensor, x: Tensor, shift: Tensor) -> None:
    """Add x - shift to the float64 rows of many classes, in an order that does not depend on threads."""
    fused = x.is_cuda and has_triton()
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
            sums[classes] += torch.segment_reduce(
                (some[order] - shift).double(), "sum", lengths=lengths, axis=0
            )


@cache
def has_triton() -> bool:
    return find_spec("triton") is not None


def check_tensor(X: Tensor) -> Tensor:
    """Vectors as a float32 or float64 tensor (n, D), detached."""
    assert is_torch(X)
    if X.ndim != 2:
        raise DataError(
            f"vectors are a tensor (n, D); got shape {tuple(X.shape)}. Reshape your data to two dimensions"
        )
    if X.shape[0] == 0 or X.shape[1] == 0:
        raise DataError(f"there is nothing in vectors of shape {tuple(X.shape)}")
    if X.is_complex():
        raise DataError(f"vectors are real numbers; got {X.dtype}")
    X = X.detach()
    if X.dtype in (torch.float32, torch.float64):
        return X
    return X.to(torch.float32 if X.dtype in (torch.float16, torch.bfloat16) else torch.float64)


DENSE_PAIRS = 2**27
"""Co-occurrence tables of up to so many cells are dense while they grow (1 GiB)."""

PENDING = 2**24


class Pairs:
    """How often classes of two views meet."""

    def __init__(self, shape: tuple[int, int], device: Device) -> None:
        self.shape, cells = shape, shape[0] * shape[1]
        self.dense = (
            torch.zeros(cells, dtype=torch.int64, device=device) if cells <= DENSE_PAIRS else None
        )
        self.keys: list[Tensor] = []
        self.numbers: list[Tensor] = []
        self.settled = 0

    def add(self, keys: Tensor) -> None:
        if self.dense is not None:
            self.dense.scatter_add_(0, keys, torch.ones_like(keys))
            return
        found, numbers = torch.unique(keys, return_counts=True)
        self.keys.append(found)
        self.numbers.append(numbers)
        if sum(map(len, self.keys)) > PENDING + 2 * self.settled:
            self._settle()

    def _settle(self) -> None:
        keys, inverse = torch.unique(torch.cat(self.keys), return_inverse=True)
        numbers = torch.zeros_like(keys).scatter_add_(0, inverse, torch.cat(self.numbers))
        self.keys, self.numbers, self.settled = [keys], [numbers], len(keys)

    def table(self) -> sparse.csr_array:
        if self.dense is not None:
            keys = self.dense.nonzero()[:, 0]
            numbers = self.dense[keys]
        else:
            self._settle()
            keys, numbers = self.keys[0], self.numbers[0]
        rows, columns = to_host(keys // self.shape[1]), to_host(keys % self.shape[1])
        ends = np.searchsorted(rows, np.arange(self.shape[0] + 1))  # the keys are sorted
        return sparse.csr_array(
            (to_host(numbers).astype(np.float64), columns, ends), shape=self.shape
        )
