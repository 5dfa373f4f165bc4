"""Cache of values computed from profiles; a value is computed again if an array of the profiles changes."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from copy import deepcopy
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from .._typing import AnyArray
from .profiles import Profiles

V = TypeVar("V")


SMALL_ARRAY = 2**12
"""Largest number of elements for which a cached array is stored as bytes, which are faster to compare."""


COMPARED_ROWS = 2**10
"""Number of rows of a larger array that are compared with the cached copy at a time."""


class ContentCache(Generic[V]):
    """Cache of one value per set of profiles, valid until an array changes that it was computed from.

    A change of an array in place keeps its identity. So every call compares the content of the
    arrays with copies.
    """

    def __init__(self) -> None:
        self._entries: WeakKeyDictionary[Profiles, tuple[Hashable, list[Any], V]]
        self._entries = WeakKeyDictionary()

    def get(
        self,
        profiles: Profiles,
        key: Hashable,
        arrays: Sequence[AnyArray],
        compute: Callable[[], V],
    ) -> V:
        """Return the cached value of a set of profiles, computed anew if the key or an array changed.

        profiles : set of profiles that the value belongs to; if it is deleted, so is the value
        key : whatever else the value depends on; with equal keys, `arrays` has equal length
        arrays : arrays that the value depends on
        compute : function that returns the value
        """
        entry = self._entries.get(profiles)
        if entry is None or entry[0] != key or not all(map(_has_content, arrays, entry[1])):
            entry = self._entries[profiles] = key, list(map(_copy, arrays)), compute()
        return entry[2]


def _copy(array: Any) -> Any:
    """Return a copy of an array for later comparison with `_has_content`.

    For small arrays the copy is (shape, bytes), which is faster to compare.
    """
    if isinstance(array, np.ndarray) and array.size <= SMALL_ARRAY:
        return array.shape, array.tobytes()
    return deepcopy(array)


def _has_content(array: Any, copy: Any) -> bool:
    """Return whether an array still equals the copy that `_copy` made."""
    if isinstance(copy, tuple):
        shape, content = copy
        return bool(array.shape == shape and array.tobytes() == content)
    # in blocks, because the result of one large comparison would not fit in the processor's cache
    starts = range(0, len(copy), COMPARED_ROWS)
    blocks = [slice(start, start + COMPARED_ROWS) for start in starts]
    return array.shape == copy.shape and all(
        bool((array[rows] == copy[rows]).all()) for rows in blocks
    )
