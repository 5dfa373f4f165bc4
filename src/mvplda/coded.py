"""Repeated text, such as the ids of millions of trials, stored as distinct names and integer codes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._typing import BoolArray


@dataclass(frozen=True, eq=False)
class Coded:
    """Array (n,) of repeated text, such as the ids of millions of trials, stored as distinct names and codes.

    NumPy functions, ``==``, ``[...]`` and `tolist` treat it as an array of text.

    Parameters
    ----------
    names : (k,) distinct texts; some may have no entry
    codes : (n,) index into `names` of each entry
    """

    names: NDArray[np.str_]
    codes: NDArray[np.integer[Any]]

    @classmethod
    def of(cls, values: ArrayLike | Coded) -> Coded:
        """Return an array of text as `Coded`; a `Coded` is returned unchanged."""
        if isinstance(values, Coded):
            return values
        array = np.asarray(values, dtype=np.str_)
        names, codes = np.unique(array, return_inverse=True)
        return cls(names, codes.reshape(array.shape).astype(np.int32))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.codes.shape

    @property
    def dtype(self) -> np.dtype[np.str_]:
        return self.names.dtype

    @property
    def used(self) -> list[str]:
        """Names with at least one entry, sorted."""
        return [str(name) for name in self.names[np.unique(self.codes)]]

    def __len__(self) -> int:
        return len(self.codes)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.names[self.codes].astype(dtype or self.dtype, copy=False))

    def __getitem__(self, rows: Any) -> Any:
        codes = self.codes[rows]
        return Coded(self.names, codes) if np.ndim(codes) else self.names[codes]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    def __eq__(self, other: object) -> Any:
        return (
            self.isin([other]) if isinstance(other, str) else np.asarray(self) == np.asarray(other)
        )

    def tolist(self) -> list[str]:
        return list(map(self.names.tolist().__getitem__, self.codes.tolist()))

    def isin(self, names: Iterable[str]) -> BoolArray:
        """Return the (n,) mask of the entries that are among these names."""
        return np.asarray(np.isin(self.names, list(names))[self.codes])

    def renamed(self, names: Sequence[str]) -> Coded:
        """Return the array with each of its k names replaced; names that become equal are merged.

        names : (k,) new names in the order of the old names
        """
        table = Coded.of(names)
        return Coded(table.names, table.codes[self.codes])
