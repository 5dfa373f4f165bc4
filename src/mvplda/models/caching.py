"""Values computed from fitted attributes, cached until the content of an attribute changes.

Scoring computes matrices from the fitted arrays of a scorer and uses them again in later calls. Fitted arrays are
writable, so a cached value must notice every change: an assignment, and a change in place by anybody who holds the
array, such as a copy of the scorer. The content is therefore compared in every call, which takes a few microseconds
per 100 kB.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, Self, TypeVar, cast, overload

import numpy as np

V = TypeVar("V")

CACHE = "_cache"
"""Attribute of a scorer that holds its `ScorerCache`; copies, clones and files leave it out."""


class Snapshot:
    """Private copy of a fitted attribute, or of the array of a view; part of the cache key of values computed from it.

    Snapshots are compared by identity: each new content is a new object, and therefore a new key.
    """

    def __init__(self, content: Any) -> None:
        self.content = content


class ScorerCache:
    """Cached values of one scorer, and snapshots of the fitted attributes that they were computed from."""

    def __init__(self) -> None:
        self._snapshots: dict[tuple[str, str | None], Snapshot] = {}
        self._values: dict[Hashable, tuple[object, object]] = {}

    def snapshot(
        self, attributes: Mapping[str, Any], name: str, view: str | None = None
    ) -> Snapshot:
        """Return a copy of an attribute; the same object as before if the content has not changed.

        view : for an attribute that is a dict, copy only the array of this view
        """
        value = attributes[name] if view is None else attributes[name][view]
        snapshot = self._snapshots.get((name, view))
        if snapshot is None or not have_equal_content(value, snapshot.content):
            snapshot = self._snapshots[name, view] = Snapshot(private_copy(value))
        return snapshot

    def get(self, name: Hashable, key: object, compute: Callable[[], V]) -> V:
        """Return a cached value; compute it again if its key has changed.

        key : everything that the value depends on, in tuples of immutable values
        """
        stored = self._values.get(name)
        if stored is None or stored[0] != key:
            stored = self._values[name] = key, compute()
        return cast(V, stored[1])


class FittedArrays(Generic[V]):
    """Descriptor of a fitted attribute that holds an array, or a dict of arrays, which callers may change.

    compute : returns the value of an attribute that was not set; None: reading it raises AttributeError
    """

    def __init__(self, compute: Callable[[Any], V] | None = None) -> None:
        self.compute = compute

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, scorer: None, owner: type) -> Self: ...
    @overload
    def __get__(self, scorer: object, owner: type) -> V: ...
    def __get__(self, scorer: object | None, owner: type) -> Self | V:
        if scorer is None:
            return self
        attributes = vars(scorer)
        if self.name not in attributes:
            if self.compute is None:
                raise AttributeError(
                    f"{type(scorer).__name__!r} object has no attribute {self.name!r}"
                )
            attributes[self.name] = self.compute(scorer)
        return cast(V, attributes[self.name])

    def __set__(self, scorer: object, value: V) -> None:
        vars(scorer)[self.name] = value

    def __delete__(self, scorer: object) -> None:
        del vars(scorer)[self.name]


def cache_of(scorer: object) -> ScorerCache:
    """Return the cache of a scorer; an empty one if it has none yet."""
    attributes = vars(scorer)
    cache: ScorerCache | None = attributes.get(CACHE)
    return attributes.setdefault(CACHE, ScorerCache()) if cache is None else cache


def have_equal_content(value: Any, other: Any) -> bool:
    """Return whether two arrays, or two dicts of arrays in the same order, are equal."""
    if isinstance(value, dict) and isinstance(other, dict):
        same_keys = list(value) == list(other)
        return same_keys and all(np.array_equal(value[key], other[key]) for key in value)
    return bool(np.array_equal(value, other))


def private_copy(value: Any) -> Any:
    """Return copies of an array, or of a dict of arrays."""
    if isinstance(value, dict):
        return {key: np.array(array) for key, array in value.items()}
    return np.array(value)


def as_key(value: object) -> Hashable:
    """Convert nested dicts, lists and arrays of plain values to tuples: an immutable copy for a cache key."""
    if isinstance(value, np.ndarray | np.generic):
        # also arrays without dimensions, which are mutable numbers
        value = value.tolist()
    if isinstance(value, Mapping):
        return tuple([(name, as_key(inner)) for name, inner in value.items()])
    if isinstance(value, list | tuple):
        return tuple([as_key(inner) for inner in value])
    return value
