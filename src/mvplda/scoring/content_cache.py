"""Values computed from profiles, cached until the content of an array changes."""

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
"""Arrays of up to this many numbers are compared with their cached content as bytes."""


COMPARED_ROWS = 2**10
"""Number of rows that are compared with their cached content at a time."""


class ContentCache(Generic[V]):
    """Values by profiles; a value is valid as long as the arrays that it was computed from have the same content.

    The arrays of profiles are writable. A change in place leaves the identity of the profiles and of their arrays as
    it was, so that the content is compared with a copy in every call.
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
        """Return the value of the profiles; compute it again if the key or the content of an array has changed."""
        entry = self._entries.get(profiles)
        if entry is None or entry[0] != key or not _have_content(arrays, entry[1]):
            entry = self._entries[profiles] = key, list(map(_copy, arrays)), compute()
        return entry[2]


def _copy(array: Any) -> Any:
    """Return a copy to compare with: bytes of a small array, which are compared faster."""
    is_small = isinstance(array, np.ndarray) and array.size <= SMALL_ARRAY
    return array.tobytes() if is_small else deepcopy(array)


def _have_content(arrays: Sequence[Any], copies: Sequence[Any]) -> bool:
    """Return whether arrays have the content of their copies."""
    if len(arrays) != len(copies):
        return False
    for array, copy in zip(arrays, copies, strict=True):
        if isinstance(copy, bytes):
            is_same = array.size <= SMALL_ARRAY and array.tobytes() == copy
        else:
            # in blocks, because the result of one large comparison would not fit in the processor's cache
            starts = range(0, len(copy), COMPARED_ROWS)
            blocks = (slice(start, start + COMPARED_ROWS) for start in starts)
            is_same = array.shape == copy.shape and all(
                bool((array[rows] == copy[rows]).all()) for rows in blocks
            )
        if not is_same:
            return False
    return True
