"""Class sums on a device, and what a fit reads of statistics there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from ..exceptions import DataError, ParameterError
from ..extras import need
from ..kernel.arrays import is_torch, to_host
from ..kernel.records import Array, Sums
from ..statistics import SecondMoment, SufficientStatistics


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
