"""How often classes meet, counted on a device; and classes that hold no vector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse

from ..extras import need
from ..kernel.arrays import to_host
from ..labels import IntArray, ViewClasses, parts_of

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
