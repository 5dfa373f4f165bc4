"""Statistics of vectors that come block by block and never leave their device.

No result depends on the order in which threads happen to run: class sums are
sorted or are products with 0 and 1, and what is added by many at once are
integers. Blocks of other sizes round differently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from scipy import sparse

from .._optional import need
from .._typing import Array, IntArray
from ..backend import is_torch, to_host
from ..exceptions import DataError, LabelError, ParameterError
from ..labels import LabelTable, ViewClasses, base_columns, check_view_names, parts_of
from .device_products import ARITHMETICS, FEW_CLASSES, ROWS, Arithmetic, Plain, Split, add_class_sums, split, unit_of
from .record import SecondMoment, SufficientStatistics
from .sums import Sums

__all__ = ["DeviceAccumulator", "DeviceSums", "check_tensor", "device_of", "gather", "sums_on"]


WORK_BYTES = 2**30
"""Centred copies of so many bytes of vectors are made at a time."""


class DeviceAccumulator:
    """Sums of labelled vectors on a device; `result` makes statistics of them.

    Parameters
    ----------
    dimension : width of the vectors
    classes : of every view, interactions included, the number of its classes
    device : where the vectors are (default: where the first block is)
    second_moment : ``"full"`` for any noise, ``"diagonal"`` is enough for diagonal noise
    origin : (D,) point amid the data that sums are taken about (default: the mean of the first rows)
    arithmetic : of the products of float32 vectors (float64 vectors are always multiplied as such).
        ``"float32"``: second moments within about 4e-7 of the variances. ``"split"``: two float16
        parts, multiplied by tensor cores in less than half the time, within about 5e-6. ``"float64"``

    Examples
    --------
    >>> import torch
    >>> from mvplda.statistics.device import DeviceAccumulator
    >>> sums = DeviceAccumulator(2, {"speaker": 3, "phrase": 2})
    >>> for start in (0.0, 6.0):
    ...     block = start + torch.arange(6.0).reshape(3, 2)
    ...     sums.add(block, {"speaker": torch.arange(3), "phrase": [0, 1, 0]})
    >>> sums.result().counts["phrase"]
    array([4., 2.])
    """

    def __init__(
        self,
        dimension: int,
        classes: Mapping[str, int],
        *,
        device: Any = None,
        second_moment: SecondMoment = "full",
        origin: Any = None,
        arithmetic: Arithmetic = "float32",
    ) -> None:
        if second_moment not in ("full", "diagonal"):
            raise ParameterError(f"second_moment is 'full' or 'diagonal'; got {second_moment!r}")
        if arithmetic not in ARITHMETICS:
            raise ParameterError(f"arithmetic is one of {list(ARITHMETICS)}; got {arithmetic!r}")
        if not classes:
            raise ParameterError("there is no view: give the number of classes of at least one")
        check_view_names(tuple(classes))
        self.dimension, self.sizes = dimension, {view: int(size) for view, size in classes.items()}
        self.second_moment, self.arithmetic, self.n = second_moment, arithmetic, 0
        self.origin = None if origin is None else np.asarray(origin, dtype=np.float64)
        if self.origin is not None and self.origin.shape != (dimension,):
            raise DataError(f"origin has shape {self.origin.shape}, the vectors need ({dimension},)")
        self._device = None if device is None else as_device(device)

    def add(self, block: Any, codes: Mapping[str, Any]) -> None:
        """Add vectors (n, D) with the class numbers of every view, each (n,).

        A block of a million vectors and more keeps a GPU busy. A block that is refused leaves
        the accumulator as it was.
        """
        x = check_tensor(block)
        if x.shape[1] != self.dimension:
            raise DataError(f"the vectors have width {x.shape[1]}, the statistics {self.dimension}")
        if self.n == 0:
            self._begin(x)
        elif x.device != self._device:
            raise DataError(f"the vectors are on {x.device}, those before on {self._device}")
        if x.stride(1) != 1:
            x = x.contiguous()
        numbers = {view: self._numbers(view, codes, len(x)) for view in self.sizes}
        moments, few = self._products(x, numbers)
        self._moments += moments
        for view, sums in self._sums.items():
            if view in few:
                sums += few[view]
            else:
                add_class_sums(sums, numbers[view], x, self._shift(x))
        for view, counts in self._counts.items():
            counts += self._torch.bincount(numbers[view], minlength=self.sizes[view])
        for (a, b), pairs in self._pairs.items():
            pairs.add(numbers[a] * self.sizes[b] + numbers[b])
        self.n += len(x)

    def result(self, classes: Mapping[str, ViewClasses] | None = None) -> SufficientStatistics:
        """The statistics of everything that was added, with the class sums left on the device.

        Parameters
        ----------
        classes : what the class numbers of every view stand for; default: themselves. An interaction
            needs them, with its cells. Classes without a vector are left out
        """
        if self.n == 0:
            raise DataError("no vector was added: there are no statistics")
        views = tuple(self.sizes)
        tables = {pair: pairs.table() for pair, pairs in self._pairs.items()}
        counts = {view: self._count(view, tables) for view in views}
        given = self._classes(classes, counts)
        present = {view: np.flatnonzero(n) for view, n in counts.items()}
        sums = {}
        for view, tensor in self._sums.items():
            all_there = len(present[view]) == len(counts[view])
            sums[view] = tensor if all_there else tensor[self._torch.as_tensor(present[view], device=self._device)]
        if any(len(present[view]) < len(counts[view]) for view in views):
            tables = {(a, b): table[present[a]][:, present[b]] for (a, b), table in tables.items()}
            given = without_absent(given, present)
            counts = {view: n[present[view]] for view, n in counts.items()}
        scatter: Array = to_host(self._moments)
        if scatter.ndim == 2:
            scatter = (scatter + scatter.T) / 2
        total: Array = to_host(sums[views[0]].sum(dim=0))
        kept = cast(dict[str, Array], DeviceSums(sums))
        assert self.origin is not None
        return SufficientStatistics(views, self.n, self.origin, total, scatter, given, counts, kept, tables)

    # -- blocks ----------------------------------------------------------------

    def _begin(self, x: Any) -> None:
        self._torch, self._unit = need("torch"), None
        torch = self._torch
        if self._device is None:
            self._device = x.device
        elif x.device != self._device:
            raise DataError(f"the vectors are on {x.device}, the statistics on {self._device}")
        D, some = self.dimension, x[:ROWS].double()
        if self.origin is None:
            mean = some.mean(dim=0)
            self.origin = to_host(torch.where(mean.isfinite(), mean, 0.0).to(x.dtype).double())
        else:
            self.origin = to_host(torch.as_tensor(self.origin).to(x.dtype).double())
        self._origin = torch.as_tensor(self.origin, device=self._device)
        shape = (D, D) if self.second_moment == "full" else (D,)
        float64, int64 = (
            {"dtype": torch.float64, "device": self._device},
            {"dtype": torch.int64, "device": self._device},
        )
        self._moments = torch.zeros(shape, **float64)
        self._sums = {view: torch.zeros((size, D), **float64) for view, size in self.sizes.items()}
        views = tuple(self.sizes)
        self._pairs = {
            (a, b): Pairs((self.sizes[a], self.sizes[b]), self._device)
            for i, a in enumerate(views)
            for b in views[i + 1 :]
        }
        counted = {view for pair in self._pairs for view in pair}
        self._counts = {v: torch.zeros(size, **int64) for v, size in self.sizes.items() if v not in counted}

    def _shift(self, x: Any) -> Any:
        return self._origin.to(x.dtype)

    def _numbers(self, view: str, codes: Mapping[str, Any], n: int) -> Any:
        if view not in codes:
            raise LabelError(f"there are no class numbers of view {view!r}, only of {sorted(codes)}")
        torch, given = self._torch, codes[view]
        numbers = (given if is_torch(given) else torch.as_tensor(np.asarray(given))).to(self._device)
        if numbers.ndim != 1 or len(numbers) != n:
            raise LabelError(f"there are {n} vectors; class numbers of {view!r} have shape {tuple(numbers.shape)}")
        if numbers.is_floating_point() or numbers.dtype == torch.bool:
            raise LabelError(f"class numbers of {view!r} are whole numbers; got {numbers.dtype}")
        low, high = (int(value) for value in torch.aminmax(numbers))
        if low < 0 or high >= self.sizes[view]:
            raise LabelError(f"class numbers of {view!r} lie in 0 .. {self.sizes[view] - 1}; got {low} .. {high}")
        return numbers.long()

    def _products(self, x: Any, numbers: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Second moments, and sums of views with few classes: products of centred rows."""
        torch = self._torch
        step = max(ROWS, WORK_BYTES // (self.dimension * 4) // ROWS * ROWS)
        few = {v: torch.zeros_like(self._sums[v]) for v, size in self.sizes.items() if size <= FEW_CLASSES}
        moments = torch.zeros_like(self._moments)
        for start in range(0, len(x), step):
            part = x[start : start + step]
            centred, added = self._moments_of(part, start)
            moments += added
            for view, sums in few.items():
                classes = torch.arange(self.sizes[view], device=self._device)
                sums += centred.sums(numbers[view][start : start + step, None] == classes)
        return moments, few

    def _moments_of(self, part: Any, start: int) -> tuple[Plain | Split, Any]:
        """Centred rows and their second moment, which is finite."""
        torch, shift = self._torch, self._shift(part)
        if self.arithmetic == "split" and part.dtype == torch.float32 and self.second_moment == "full":
            if self._unit is None:
                self._unit = unit_of(part[:ROWS] - shift)
            halves = split(part, shift, self._unit)
            added = halves.gram()
            if bool(added.diagonal().isfinite().all()):
                return halves, added
        exact = self.arithmetic == "float64"
        plain = Plain(part.double() - self._origin if exact else part - shift)  # also if too large for float16
        added = plain.gram() if self.second_moment == "full" else plain.squares()
        if not bool((added.diagonal() if added.ndim == 2 else added).isfinite().all()):
            self._refuse(part, self.n + start)
        return plain, added

    def _refuse(self, part: Any, start: int) -> None:
        bad = (~part.isfinite().all(dim=1)).nonzero()
        if len(bad) == 0:
            raise DataError(
                f"vectors {start} to {start + len(part) - 1} are too large: their squares overflow {part.dtype}; "
                "scale the vectors down"
            )
        raise DataError(
            f"Input X contains NaN or infinity, first in row {start + int(bad[0])}: remove such vectors or repair them"
        )

    # -- classes ---------------------------------------------------------------

    def _count(self, view: str, tables: Mapping[tuple[str, str], sparse.csr_array]) -> Array:
        for (a, b), table in tables.items():
            if view in (a, b):
                return np.asarray(table.sum(axis=1 if view == a else 0), dtype=np.float64).reshape(-1)
        return to_host(self._counts[view]).astype(np.float64)

    def _classes(self, given: Mapping[str, ViewClasses] | None, counts: Mapping[str, Array]) -> dict[str, ViewClasses]:
        classes = dict(given or {})
        for name in base_columns(tuple(self.sizes)):
            if name not in classes and name in counts:
                classes[name] = ViewClasses(np.arange(len(counts[name])))
        for view, n in counts.items():
            if view not in classes or any(part not in classes for part in parts_of(view)):
                raise LabelError(
                    f"what the classes of {view!r} are is not known: give classes= with its cells and parts"
                )
            if len(classes[view]) != len(n):
                raise LabelError(f"view {view!r} has {len(n)} classes; classes= names {len(classes[view])}")
        return classes


def gather(
    X: Any,
    table: LabelTable,
    *,
    second_moment: SecondMoment = "full",
    origin: Any = None,
    arithmetic: Arithmetic = "float32",
) -> SufficientStatistics:
    """Statistics of a tensor with encoded labels, on its device."""
    X = check_tensor(X)
    if len(table) != len(X):
        raise LabelError(f"there are {len(X)} vectors and {len(table)} labels: give one label a vector")
    sizes = {view: len(table.classes[view]) for view in table.views}
    sums = DeviceAccumulator(
        X.shape[1], sizes, device=X.device, second_moment=second_moment, origin=origin, arithmetic=arithmetic
    )
    sums.add(X, {view: table.codes[view] for view in table.views})
    return sums.result(table.classes)


# Class sums on a device, and what a fit reads of statistics there.


class DeviceSums(Mapping[str, Array]):
    """Class sums by view, as the statistics keep them: NumPy arrays, copied from the device when first read.

    A fit on the device takes the `tensors` themselves, and nothing is copied.
    """

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        self.tensors = dict(tensors)
        self._host: dict[str, Array] = {}

    @property
    def device(self) -> Any:
        return next(iter(self.tensors.values())).device

    def __getitem__(self, view: str) -> Array:
        if view not in self._host:
            self._host[view] = to_host(self.tensors[view])
        return self._host[view]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)  # another process may have another device


def device_of(statistics: SufficientStatistics) -> Any:
    """Where statistics were gathered: a torch device, or None for the host."""
    sums = cast(object, statistics.sums)
    return sums.device if isinstance(sums, DeviceSums) else None


def sums_on(
    statistics: SufficientStatistics, views: Sequence[str], second_moment: SecondMoment, device: Any = None
) -> Sums:
    """What the kernel needs for these views, as float64 tensors on a device.

    Where `device` is None: on the device of the statistics, as NumPy arrays where they have none.
    """
    here = device_of(statistics)
    if device is None and here is None:
        return statistics.for_views(views, second_moment)
    torch = need("torch")
    wanted = here if device is None else as_device(device)
    missing = [v for v in views if v not in statistics.counts]
    names = [] if missing else views
    kept = cast(object, statistics.sums)
    tensors = {
        v: (kept.tensors[v] if isinstance(kept, DeviceSums) else torch.from_numpy(statistics.sums[v])).to(wanted)
        for v in names
    }
    sums = replace(statistics, sums=cast(dict[str, Array], tensors)).for_views(views, second_moment)
    total, scatter = (torch.as_tensor(np.ascontiguousarray(a), device=wanted) for a in (sums.total, sums.scatter))
    return replace(sums, total=total, scatter=scatter)


def as_device(device: Any) -> Any:
    """A torch device that exists."""
    torch = need("torch")
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ParameterError(
            f"device {device!r} cannot be used: {error}. Give 'cuda', 'cuda:1', 'cpu' or a torch device that is "
            "there, or None for NumPy"
        ) from error


def check_tensor(X: Any) -> Any:
    """Vectors as a float32 or float64 tensor (n, D), detached."""
    assert is_torch(X)
    torch = need("torch")
    if X.ndim != 2:
        raise DataError(f"vectors are a tensor (n, D); got shape {tuple(X.shape)}. Reshape your data to two dimensions")
    if X.shape[0] == 0 or X.shape[1] == 0:
        raise DataError(f"there is nothing in vectors of shape {tuple(X.shape)}")
    if X.is_complex():
        raise DataError(f"vectors are real numbers; got {X.dtype}")
    X = X.detach()
    if X.dtype in (torch.float32, torch.float64):
        return X
    return X.to(torch.float32 if X.dtype in (torch.float16, torch.bfloat16) else torch.float64)


# How often classes meet, counted on a device; and classes that hold no vector.


DENSE_PAIRS = 2**27
"""Co-occurrence tables of up to so many cells are dense while they grow (1 GiB)."""

PENDING = 2**24


class Pairs:
    """How often classes of two views meet."""

    def __init__(self, shape: tuple[int, int], device: Any) -> None:
        self.shape, torch = shape, need("torch")
        self._torch, cells = torch, shape[0] * shape[1]
        self.dense = torch.zeros(cells, dtype=torch.int64, device=device) if cells <= DENSE_PAIRS else None
        self.keys: list[Any] = []
        self.numbers: list[Any] = []
        self.settled = 0

    def add(self, keys: Any) -> None:
        if self.dense is not None:
            self.dense.scatter_add_(0, keys, self._torch.ones_like(keys))
            return
        found, numbers = self._torch.unique(keys, return_counts=True)
        self.keys.append(found)
        self.numbers.append(numbers)
        if sum(map(len, self.keys)) > PENDING + 2 * self.settled:
            self._settle()

    def _settle(self) -> None:
        torch = self._torch
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
        return sparse.csr_array((to_host(numbers).astype(np.float64), columns, ends), shape=self.shape)


def without_absent(classes: Mapping[str, ViewClasses], present: Mapping[str, IntArray]) -> dict[str, ViewClasses]:
    """The classes that hold a vector, renumbered; a column that is no view itself keeps all of its own."""
    new = {name: np.full(len(c), -1) for name, c in classes.items()}
    for name, numbers in new.items():
        there = present.get(name, np.arange(len(numbers)))
        numbers[there] = np.arange(len(there))
    kept: dict[str, ViewClasses] = {}
    for name, found in classes.items():
        there = present.get(name, np.arange(len(found)))
        if found.cells is not None:
            cells = np.stack([new[part][found.cells[there, i]] for i, part in enumerate(parts_of(name))], axis=1)
            kept[name] = ViewClasses(found.names, 0, cells)
        else:
            named = there[there < len(found.names)]
            kept[name] = ViewClasses(found.names[named], len(there) - len(named))
    return kept
