"""Cache of values computed from fitted attributes, valid until the content of an attribute changes.

Scoring computes matrices from the fitted arrays of a scorer and uses them again in later calls.
Fitted arrays are writable: they can be replaced, or changed in place through any reference, such as
a copy of the scorer. So every call compares their content with a copy, which takes a few
microseconds per 100 kB.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, Self, TypeVar, cast, overload

import numpy as np

V = TypeVar("V")

CACHE = "_cache"
"""Attribute of a scorer that holds its `ScorerCache`; copies, clones and files leave it out."""


_compared: ContextVar[dict[tuple[int, str, str | None], tuple[object, object]] | None]
_compared = ContextVar("_compared", default=None)
"""Attributes that were compared within a block of `comparing_once`, with their caches: {(id, name, view): both}."""


@contextmanager
def comparing_once() -> Iterator[None]:
    """Return a context (or decorator) in which a fitted attribute is checked for changes only once.

    Outside of it, an attribute is compared with its snapshot whenever it is read, which takes
    longer than scoring a pair. Only for code that changes no fitted attribute.
    """
    if _compared.get() is not None:
        yield
        return
    token = _compared.set({})
    try:
        yield
    finally:
        _compared.reset(token)


class Snapshot:
    """Private copy of a fitted attribute, or of one view's array in it, as part of cache keys.

    Snapshots are compared by identity. After a change of the attribute, `ScorerCache.snapshot`
    returns a new snapshot, so that values cached under the old one are computed again.
    """

    def __init__(self, content: Any) -> None:
        self.content = content


class ScorerCache:
    """Cached values of one scorer, and snapshots of the fitted attributes from which they were computed."""

    def __init__(self) -> None:
        self._snapshots: dict[tuple[str, str | None], Snapshot] = {}
        self._values: dict[Hashable, tuple[object, object]] = {}

    def snapshot(
        self, attributes: Mapping[str, Any], name: str, view: str | None = None
    ) -> Snapshot:
        """Return a snapshot of an attribute: the same object as before if the content has not changed.

        attributes : attributes of the scorer by name
        name : name of the attribute
        view : for an attribute that is a dict, copy only the array of this view
        """
        value = attributes[name] if view is None else attributes[name][view]
        snapshot = self._snapshots.get((name, view))
        compared = _compared.get()
        if compared is not None:
            key = (id(self), name, view)
            # the entry holds both objects, so that no other object can reuse their ids
            if snapshot is not None and key in compared and compared[key][1] is value:
                return snapshot
            compared[key] = self, value
        if snapshot is None or not have_equal_content(value, snapshot.content):
            snapshot = self._snapshots[name, view] = Snapshot(private_copy(value))
        return snapshot

    def get(self, name: Hashable, key: object, compute: Callable[[], V]) -> V:
        """Return the value cached under a name; compute it if it is missing or its key has changed.

        name : name of the value; only its latest key and value are stored
        key : everything on which the value depends, in tuples of immutable values
        compute : function that returns the value
        """
        stored = self._values.get(name)
        if stored is None or stored[0] != key:
            stored = self._values[name] = key, compute()
        return cast(V, stored[1])


class FittedArrays(Generic[V]):
    """Descriptor of a fitted attribute: an array, or a dict of arrays, which callers may change.

    compute : function of the scorer that returns the value of an attribute that is not set; None:
        reading an attribute that is not set raises AttributeError
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
    """Return the cache of a scorer; create it if the scorer has none."""
    attributes = vars(scorer)
    cache: ScorerCache | None = attributes.get(CACHE)
    return attributes.setdefault(CACHE, ScorerCache()) if cache is None else cache


def have_equal_content(value: Any, other: Any) -> bool:
    """Return whether two arrays are equal, or two dicts have equal arrays in the same order."""
    if isinstance(value, dict) and isinstance(other, dict):
        same_keys = list(value) == list(other)
        return same_keys and all(np.array_equal(value[key], other[key]) for key in value)
    return bool(np.array_equal(value, other))


def private_copy(value: Any) -> Any:
    """Return a copy of an array, or of a dict with its arrays."""
    if isinstance(value, dict):
        return {key: np.array(array) for key, array in value.items()}
    return np.array(value)


def as_key(value: object) -> Hashable:
    """Convert nested dicts, lists and arrays of plain values to nested tuples, which are immutable cache keys."""
    if isinstance(value, np.ndarray | np.generic):
        # also arrays without dimensions, which are mutable numbers
        value = value.tolist()
    if isinstance(value, Mapping):
        return tuple([(name, as_key(inner)) for name, inner in value.items()])
    if isinstance(value, list | tuple):
        return tuple([as_key(inner) for inner in value])
    return value
