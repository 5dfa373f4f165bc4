"""Labels in any form -> integer codes, one column a view.

A *base view* is a column of the labels. An *interaction view* ``"a:b"`` has a
class for every combination of classes of its parts that occurs.  A missing
label (None, NaN, or empty text) is a class of its own with that one vector:
such *anonymous* classes are numbered after the named ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from ._typing import BoolArray, IntArray, Labels, Names, Views
from .exceptions import LabelError

__all__ = ["label_rows"]


@dataclass(frozen=True)
class ViewClasses:
    """The classes of one view.

    names : named classes in sorted order (base views only, else empty)
    anonymous : how many classes have no name (missing labels), numbered last
    cells : (n_classes, n_parts) class numbers of the parts (interaction views only)
    """

    names: Names
    anonymous: int = 0
    cells: IntArray | None = None

    def __len__(self) -> int:
        if self.cells is not None:
            return len(self.cells)
        return len(self.names) + self.anonymous


Classes = dict[str, ViewClasses]
"""By view."""


def interaction(cells: IntArray) -> ViewClasses:
    """The classes of an interaction view."""
    return ViewClasses(np.empty(0, dtype=np.int64), 0, cells)


@dataclass(frozen=True)
class LabelTable:
    """Class numbers of every vector in every view, and what the numbers mean.

    views : the views asked for, in order
    classes : of every base column that a view needs, and of every view
    codes : (n,) class numbers for every key of ``classes``
    """

    views: Views
    classes: Classes
    codes: dict[str, IntArray]

    def __len__(self) -> int:
        return len(next(iter(self.codes.values())))


def parts_of(view: str) -> Views:
    """Base views that a view is made of: ``"a:b"`` -> ``("a", "b")``."""
    return tuple(view.split(":"))


def base_columns(views: Sequence[str]) -> Views:
    """Label columns that the views need, in order of first mention."""
    return tuple(dict.fromkeys(part for view in views for part in parts_of(view)))


RESERVED_VIEWS = {
    "nothing": "the hypothesis that no view is the same",
    "noise": "the noise of a model",
    "together": "the factor of several views at once",
    "parts of recordings": "the factor of comparisons part by part",
    "spoof": "the hypothesis of an imitation by a machine",
    "none": "the kind of trial in which no view is the same",
    "target": "a kind of trial",
    "nontarget": "a kind of trial",
    "tc": "a kind of trial",
    "tw": "a kind of trial",
    "ic": "a kind of trial",
    "iw": "a kind of trial",
}
"""Names in results, files and lists of trials that no view may have, whatever the case, and what each stands for."""

JOINING = {
    "+": "joins the views of a hypothesis",
    "|": "separates the parts of a question",
}
"""Characters that no view's name may contain, and what they are for."""


def check_view_names(views: Sequence[str]) -> None:
    """Refuse names of views that are empty, named twice, reserved, or could not be told apart in results."""
    seen: set[frozenset[str]] = set()
    for view in views:
        parts = str(view).split(":")
        if not isinstance(view, str) or not all(parts) or len(set(parts)) < len(parts):
            raise LabelError(
                f"a view's name is a non-empty string, or different names joined by ':'; got {view!r}"
            )
        for part in parts:
            _check_view_name(part)
        if frozenset(parts) in seen:
            raise LabelError(f"view {view!r} is named twice in {list(views)}")
        seen.add(frozenset(parts))


def _check_view_name(name: str) -> None:
    meaning = RESERVED_VIEWS.get(name.lower())
    if meaning is not None:
        raise LabelError(
            f"a view cannot be called {name!r}, which stands for {meaning}: rename the column of labels"
        )
    for character, purpose in JOINING.items():
        if character in name:
            raise LabelError(
                f"a view cannot be called {name!r}: {character!r} {purpose}; rename the column of labels"
            )
    if name != name.strip() or not name.isprintable():
        raise LabelError(
            f"a view cannot be called {name!r}: a name has no space at its ends, and no tabs or line breaks; rename "
            "the column of labels"
        )


def are_named(labels: Labels) -> bool:
    """Whether the columns of labels have names."""
    return _names_of(labels) is not None


def _names_of(labels: Labels) -> list[Any] | None:
    """Names of the columns of a dict, an Arrow table, a DataFrame or a structured array; None of anything else."""
    if isinstance(labels, Mapping):
        return list(labels)
    if hasattr(labels, "column_names"):
        return list(labels.column_names)
    if hasattr(labels, "columns") and hasattr(labels, "__getitem__"):
        return list(labels.columns)
    names: Any = getattr(getattr(labels, "dtype", None), "names", None)
    return names and list(names)


def label_columns(labels: Labels, views: Sequence[str] | None) -> dict[str, Labels]:
    """The label columns by name, from a dict, a DataFrame, an Arrow table, a structured array, or an array.

    With ``views=None`` every column is taken; columns of an array are then called ``view0``, ``view1``, ...
    """
    if labels is None:
        raise LabelError(
            "requires y to be passed, but the target y is None: give one label a vector and view"
        )
    names = _names_of(labels)
    if names is not None:
        columns = {str(name): labels[name] for name in names}
    else:
        array = as_array(labels)
        if array.ndim == 1:
            array = array[:, None]
        if array.ndim != 2:
            raise LabelError(
                f"labels as an array have shape (n,) or (n, n_views); got {array.shape}"
            )
        called = [f"view{k}" for k in range(array.shape[1])]
        if views is not None:
            called = list(base_columns(views))
        if array.shape[1] != len(called):
            raise LabelError(
                f"labels have {array.shape[1]} column(s), the model's views need {len(called)}: {called}"
            )
        columns = dict(zip(called, array.T, strict=True))
    if views is None:
        return columns
    for name in base_columns(views):
        if name not in columns:
            raise LabelError(f"labels have no view {name!r}; they have {sorted(columns)}")
    return {name: columns[name] for name in base_columns(views)}


def label_rows(labels: Labels) -> Names:
    """Labels as one structured array, a row a vector and a field a view.

    Every estimator here takes it as it takes a dict, and unlike a dict it can be cut into rows, as
    scikit-learn's searches and splits do.

    Examples
    --------
    >>> from mvplda.labels import label_rows
    >>> rows = label_rows({"speaker": ["ann", "bob", "ann"], "phrase": [1, 1, 2]})
    >>> rows[1:]["speaker"].tolist(), rows[1:]["phrase"].tolist()
    (['bob', 'ann'], [1, 2])
    """
    columns = {name: as_array(column) for name, column in label_columns(labels, None).items()}
    shapes = {name: column.shape for name, column in columns.items()}
    if len(set(shapes.values())) != 1 or len(shapes[next(iter(shapes))]) != 1:
        raise LabelError(f"label columns are one-dimensional and of one length; got {shapes}")
    dtype = [(name, column.dtype) for name, column in columns.items()]
    rows = np.empty(next(iter(shapes.values())), dtype=dtype)
    for name, column in columns.items():
        rows[name] = column
    return rows


def encode_labels(labels: Labels, views: Sequence[str] | None = None) -> LabelTable:
    """Number the classes of every view.

    Parameters
    ----------
    labels : dict of arrays, DataFrame, Arrow table, structured array, or array (n,) or (n, n_columns)
    views : names of base and interaction views; None takes every column
    """
    if views is not None:
        check_view_names(views)
    columns = label_columns(labels, views)
    joined = [name for name in columns if ":" in name]
    if joined:
        raise LabelError(
            f"a label column cannot be called {joined[0]!r}: names with ':' are interactions, made from the "
            "columns of their parts; name it in views, or rename the column"
        )
    names = tuple(columns if views is None else views)
    if not names:
        raise LabelError("there is no view: give at least one column of labels")
    classes: Classes = {}
    codes: dict[str, IntArray] = {}
    for name, column in columns.items():
        classes[name], codes[name] = _encode_column(name, column)
    lengths = {name: len(code) for name, code in codes.items()}
    if len(set(lengths.values())) > 1:
        raise LabelError(f"label columns have different lengths: {lengths}")
    for view in names:
        if ":" in view:
            cells, codes[view] = distinct_rows([codes[part] for part in parts_of(view)])
            classes[view] = interaction(cells)
    return LabelTable(names, classes, codes)


def row_keys(columns: Sequence[IntArray]) -> IntArray:
    """One integer for every row of several columns of class numbers, in the order of the rows."""
    sizes = [int(column.max(initial=0)) + 1 for column in columns]
    if math.prod(sizes) > 2**62:
        rows = np.stack(columns, axis=1)
        return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
    key = np.zeros(len(columns[0]), dtype=np.int64)
    for column, size in zip(columns, sizes, strict=True):
        key = key * size + column
    return key


def distinct_rows(columns: Sequence[IntArray]) -> tuple[IntArray, IntArray]:
    """The rows of several columns of class numbers that occur, sorted, and which of them stands at every place."""
    _, first, which = np.unique(row_keys(columns), return_index=True, return_inverse=True)
    return np.stack([column[first] for column in columns], axis=1), which.reshape(-1)


def distinct(values: Names) -> tuple[Names, IntArray, IntArray]:
    """The values that occur in sorted order, which of them stands at every place, and how often each does."""
    if values.dtype.kind in "iu" and len(values):
        first = int(values.min())
        last = int(values.max())
        # where numbers lie close, counting is faster than sorting
        if last - first <= 4 * len(values) and max(last, -first) < 2**62:
            places = values.astype(np.int64) - first
            every = np.bincount(places)
            present = np.flatnonzero(every)
            ranks = np.cumsum(every > 0) - 1
            return (present + first).astype(values.dtype), ranks[places], every[present]
    names, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return names, inverse.reshape(-1), counts


def by_appearance(codes: IntArray) -> IntArray:
    """The same classes, numbered as they first appear: what is dealt by these numbers does not hang on names."""
    _, first, places = np.unique(codes, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[places.reshape(-1)]


def _encode_column(name: str, column: Labels) -> tuple[ViewClasses, IntArray]:
    array = as_array(column)
    if array.ndim != 1:
        raise LabelError(
            f"labels of view {name!r} must be one-dimensional; got shape {array.shape}"
        )
    absent = is_missing(array)
    present = array[~absent]
    if present.dtype == object:
        one_type = any(
            all(isinstance(value, kind) for value in present)
            for kind in (str, bytes, (Real, np.bool_), np.datetime64)
        )
        if not one_type:
            kinds = sorted({type(value).__name__ for value in present})
            raise LabelError(
                f"labels of one view are all strings or all numbers; those of {name!r} are {kinds}"
            )
        present = exact_names(present, f"labels of view {name!r}")
    names, inverse, _ = distinct(present)
    codes = np.empty(len(array), dtype=np.int64)
    codes[~absent] = inverse
    n_absent = int(absent.sum())
    codes[absent] = len(names) + np.arange(n_absent)
    return ViewClasses(names, n_absent), codes


def as_array(column: Labels) -> Names:
    """Labels as an array that keeps None, NaN and numbers beside text what they are; masked ones are missing."""
    if isinstance(column, np.ma.MaskedArray) and np.ma.is_masked(column):
        present = np.array(column.data, dtype=object)
        present[np.ma.getmaskarray(column)] = None
        return present
    if hasattr(column, "__array__"):
        return np.asarray(column)
    if isinstance(column, (str, bytes)) or not isinstance(column, Iterable):
        raise LabelError(f"labels must be a sequence with one label a vector; got {column!r}")
    values = list(column)
    kinds = set(map(type, values))
    texts = {issubclass(kind, (str, bytes)) for kind in kinds}
    if len(texts) > 1 or any(issubclass(kind, (list, tuple, type(None))) for kind in kinds):
        # NumPy would make text of everything, None and NaN included
        return np.array(values, dtype=object)
    return exact_names(values)


def exact_names(values: Labels, what: str = "labels") -> Names:
    """Names in one array; whole numbers stay whole, where NumPy would make real numbers of large ones beside small."""
    listed = list(values)
    array = np.asarray(listed)
    if array.dtype.kind in "fO" and all(isinstance(value, (int, np.integer)) for value in listed):
        if listed and (min(listed) < 0 or max(listed) >= 2**64):
            raise LabelError(f"{what} are too large for 64-bit numbers: make them strings")
        return np.asarray(listed, dtype=np.uint64)
    return array


def names_from_file(values: Any, view: str) -> Names:
    """Names of classes out of a file: a list of texts, or of numbers."""
    names = exact_names(values) if isinstance(values, list) else None
    if names is None or names.ndim != 1 or names.dtype.kind not in "iufUb":
        raise LabelError(
            f"the names of the classes of view {view!r} are a list of texts or of numbers; got {values!r:.100}"
        )
    return names


def is_missing(array: Names) -> BoolArray:
    """None, NaN and empty text name no class."""
    if array.dtype == object:
        return np.array([_no_label(value) for value in array], dtype=bool)
    if array.dtype.kind in "fcMm":
        return np.isnan(array)
    if array.dtype.kind in "SU":
        return np.asarray(np.char.str_len(array) == 0)
    return np.zeros(len(array), dtype=bool)


def _no_label(value: Any) -> bool:
    # what is not itself is NaN, of whatever library
    return (
        value is None
        or type(value).__name__ == "NAType"
        or bool(value != value)
        or value in ("", b"")
    )
