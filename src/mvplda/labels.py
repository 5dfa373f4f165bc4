"""Encoding of labels of any type as integer codes, one column per view.

A *base view* is a column of the labels, such as the speaker. An *interaction view* ``"a:b"`` has a class for each
combination of classes of the base views a and b that occurs. A vector without a label (None, NaN, or empty text) is a
class of its own. Such *anonymous* classes are numbered after the named classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from ._typing import BoolArray, IntArray, LabelColumn, Labels, Names, Views
from .exceptions import LabelError

__all__ = ["label_rows"]


@dataclass(frozen=True)
class ViewClasses:
    """Classes of one view.

    names : names of the classes, sorted; empty for an interaction view
    anonymous : number of classes without a name, one per vector without a label, which are numbered last
    cells : (classes, base views) for an interaction view: number of the class in each of its base views; else None
    """

    names: Names
    anonymous: int = 0
    cells: IntArray | None = None

    def __len__(self) -> int:
        if self.cells is not None:
            return len(self.cells)
        return len(self.names) + self.anonymous


Classes = dict[str, ViewClasses]
"""Classes of each view, by the name of the view."""


def interaction(cells: IntArray) -> ViewClasses:
    """Return the classes of an interaction view.

    cells : (classes, base views) number of each class in the base views
    """
    return ViewClasses(np.empty(0, dtype=np.int64), 0, cells)


@dataclass(frozen=True)
class LabelTable:
    """Number of the class of each of n vectors in each view.

    views : the requested views, in order
    classes : classes of the views, and of the base views of interactions
    codes : {view: (n,) number of the class of each vector}, with the keys of `classes`
    """

    views: Views
    classes: Classes
    codes: dict[str, IntArray]

    def __len__(self) -> int:
        return len(next(iter(self.codes.values())))


def parts_of(view: str) -> Views:
    """Return the base views of a view: ``"a:b"`` -> ``("a", "b")``."""
    return tuple(view.split(":"))


def base_columns(views: Sequence[str]) -> Views:
    """Return the base views of several views, each once, in the order in which they occur first."""
    return tuple(dict.fromkeys(column for view in views for column in parts_of(view)))


RESERVED_VIEWS = {
    "nothing": "the hypothesis that no view is the same",
    "noise": "the noise of a model",
    "together": "the weight of joint evidence of several views",
    "parts of recordings": "the weight of evidence from parts of recordings",
    "spoof": "the hypothesis of an imitation by a machine",
    "none": "the kind of trial in which no view is the same",
    "target": "a kind of trial",
    "nontarget": "a kind of trial",
    "tc": "a kind of trial",
    "tw": "a kind of trial",
    "ic": "a kind of trial",
    "iw": "a kind of trial",
}
"""Names that no view may have, in capital or small letters, because results or files use them; with their meanings."""

JOINING = {
    "+": "joins the views of a hypothesis",
    "|": "separates the parts of a question",
}
"""Characters that the name of a view may not contain, with their purposes."""


def check_view_names(views: Sequence[str]) -> None:
    """Raise `LabelError` if the name of a view is invalid or reserved, or if two views are the same."""
    checked: set[frozenset[str]] = set()
    for view in views:
        columns = str(view).split(":")
        if not isinstance(view, str) or not view:
            raise LabelError(f"the name of a view must be text that is not empty; got {view!r}")
        if not all(columns) or len(set(columns)) < len(columns):
            raise LabelError(
                f"{view!r} is not an interaction: expected different names of views joined by ':', such as "
                "speaker:phrase"
            )
        for column in columns:
            _check_view_name(column)
        if frozenset(columns) in checked:
            raise LabelError(f"view {view!r} is named twice in {list(views)}: name it once")
        checked.add(frozenset(columns))


def check_no_interactions(views: Sequence[str], model: str) -> None:
    """Raise `LabelError` if one of the views is an interaction.

    model : name of the model, which does not support interactions, for the error
    """
    for view in views:
        if ":" in view:
            raise LabelError(
                f"a {model} does not support interactions such as the view {view!r}: pass its base views, or use "
                "MultiviewPLDA"
            )


def _check_view_name(name: str) -> None:
    """Raise `LabelError` if the name of a base view is reserved, or contains characters that are not allowed."""
    meaning = RESERVED_VIEWS.get(name.lower())
    if meaning is not None:
        raise LabelError(
            f"a view cannot be called {name!r}, because this name stands for {meaning}: rename the column of labels"
        )
    for character, purpose in JOINING.items():
        if character in name:
            raise LabelError(
                f"a view cannot be called {name!r}, because {character!r} {purpose}: rename the column of labels"
            )
    if name != name.strip() or not name.isprintable():
        raise LabelError(
            f"a view cannot be called {name!r}, because a name must not begin or end with a space, or contain tabs or "
            "line breaks: rename the column of labels"
        )


def are_named(labels: Labels) -> bool:
    """Return whether the labels have named columns, as a dict, table or structured array has."""
    return _names_of(labels) is not None


def _names_of(labels: Labels) -> list[str] | None:
    """Return the column names of a dict, Arrow table, DataFrame or structured array; None for other types."""
    if isinstance(labels, Mapping):
        return list(labels)
    if hasattr(labels, "column_names"):
        return list(labels.column_names)
    if hasattr(labels, "columns") and hasattr(labels, "__getitem__"):
        return list(labels.columns)
    names: Any = getattr(getattr(labels, "dtype", None), "names", None)
    return names and list(names)


def label_columns(labels: Labels | None, views: Sequence[str] | None) -> dict[str, LabelColumn]:
    """Return the label columns (n,) by name.

    labels : dict, DataFrame, Arrow table, structured array, or array (n,) or (n, columns)
    views : views whose base views are returned; the columns of an array are taken in their order. None: return all
        columns, those of an array as ``view0``, ``view1``, ...
    """
    if labels is None:
        raise LabelError(
            "requires y to be passed, but the target y is None: pass one label per vector and view"
        )
    names = _names_of(labels)
    if names is not None:
        table: Any = labels
        columns = {str(name): table[name] for name in names}
    else:
        array = as_array(labels)
        if array.ndim == 1:
            array = array[:, None]
        if array.ndim != 2:
            raise LabelError(
                f"an array of labels must have the shape (n,) or (n, number of views); got {array.shape}"
            )
        column_names = [f"view{k}" for k in range(array.shape[1])]
        if views is not None:
            column_names = list(base_columns(views))
        if array.shape[1] != len(column_names):
            raise LabelError(
                f"the labels have {array.shape[1]} column(s), but the views of the model need {len(column_names)}: "
                f"{column_names}"
            )
        columns = dict(zip(column_names, array.T, strict=True))
    if views is None:
        return columns
    for name in base_columns(views):
        if name not in columns:
            raise LabelError(
                f"the labels have no column for the view {name!r}; their columns are {sorted(columns)}"
            )
    return {name: columns[name] for name in base_columns(views)}


def label_rows(labels: Labels) -> Names:
    """Return labels as one structured array (n,), with a row per vector and a field per view.

    Every estimator of the package accepts the array in place of a dict. Unlike a dict, it can be indexed by row, as
    scikit-learn's searches and splits require.

    Parameters
    ----------
    labels : dict of arrays, DataFrame, Arrow table, or array (n,) or (n, columns)

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
        raise LabelError(
            f"columns of labels must be one-dimensional and of equal length; got the shapes {shapes}"
        )
    dtype = [(name, column.dtype) for name, column in columns.items()]
    rows = np.empty(next(iter(shapes.values())), dtype=dtype)
    for name, column in columns.items():
        rows[name] = column
    return rows


def encode_labels(labels: Labels | None, views: Sequence[str] | None = None) -> LabelTable:
    """Return the classes of each view, and the number of the class of each vector.

    Parameters
    ----------
    labels : dict of arrays, DataFrame, Arrow table, structured array, or array (n,) or (n, columns)
    views : names of base views and interactions; None: every column is a base view
    """
    if views is not None:
        check_view_names(views)
    columns = label_columns(labels, views)
    joined = [name for name in columns if ":" in name]
    if joined:
        raise LabelError(
            f"a column of labels cannot be called {joined[0]!r}: names with ':' are interactions, which are computed "
            "from the columns of their base views. Pass the interaction in views, or rename the column"
        )
    names = tuple(columns if views is None else views)
    if not names:
        raise LabelError("there is no view: pass at least one column of labels")
    classes: Classes = {}
    codes: dict[str, IntArray] = {}
    for name, column in columns.items():
        classes[name], codes[name] = _encode_column(name, column)
    lengths = {name: len(code) for name, code in codes.items()}
    if len(set(lengths.values())) > 1:
        raise LabelError(
            f"columns of labels have different lengths: {lengths}. Pass one label per vector and view"
        )
    for view in names:
        if ":" in view:
            cells, codes[view] = distinct_rows([codes[column] for column in parts_of(view)])
            classes[view] = interaction(cells)
    return LabelTable(names, classes, codes)


def row_keys(columns: Sequence[IntArray]) -> IntArray:
    """Return an integer key per row (n,): equal rows have equal keys, and keys sort as rows do.

    columns : class numbers (n,) of each view; row i has the numbers of vector i
    """
    sizes = [int(column.max(initial=0)) + 1 for column in columns]
    if math.prod(sizes) > 2**62:
        rows = np.stack(columns, axis=1)
        return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
    key = np.zeros(len(columns[0]), dtype=np.int64)
    for column, size in zip(columns, sizes, strict=True):
        key = key * size + column
    return key


def distinct_rows(columns: Sequence[IntArray]) -> tuple[IntArray, IntArray]:
    """Return the distinct rows (k, columns), sorted, and the index of each row among them, (n,).

    columns : class numbers (n,) of each view; row i has the numbers of vector i
    """
    _, first, inverse = np.unique(row_keys(columns), return_index=True, return_inverse=True)
    return np.stack([column[first] for column in columns], axis=1), inverse.reshape(-1)


def distinct(values: Names) -> tuple[Names, IntArray, IntArray]:
    """Return the distinct values in an array (n,), their positions and their frequencies.

    Returns
    -------
    distinct values (k,), sorted
    index of each of the n values among the distinct values (n,)
    number of times that each distinct value occurs (k,)
    """
    if values.dtype.kind in "iu" and len(values):
        first = int(values.min())
        last = int(values.max())
        # For numbers in a small range counting is faster than sorting.
        if last - first <= 4 * len(values) and max(last, -first) < 2**62:
            offsets = values.astype(np.int64) - first
            histogram = np.bincount(offsets)
            present = np.flatnonzero(histogram)
            ranks = np.cumsum(histogram > 0) - 1
            return (present + first).astype(values.dtype), ranks[offsets], histogram[present]
    names, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return names, inverse.reshape(-1), counts


def by_appearance(codes: IntArray) -> IntArray:
    """Return class numbers (n,) that are renumbered in the order in which the classes occur first."""
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse.reshape(-1)]


def _encode_column(name: str, column: LabelColumn) -> tuple[ViewClasses, IntArray]:
    """Return the classes of a column of labels, and the number of the class of each vector (n,).

    name : name of the view, for errors
    """
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
                f"the labels of a view must be all text or all numbers; those of {name!r} are of the types {kinds}: "
                "convert them to text"
            )
        present = exact_names(present, f"labels of view {name!r}")
    names, inverse, _ = distinct(present)
    codes = np.empty(len(array), dtype=np.int64)
    codes[~absent] = inverse
    n_absent = int(absent.sum())
    codes[absent] = len(names) + np.arange(n_absent)
    return ViewClasses(names, n_absent), codes


def as_array(column: LabelColumn) -> Names:
    """Return a column of labels as an array (n,).

    A list that mixes text with None or numbers becomes an array of objects, so that no value is
    converted to text. Masked labels become None.
    """
    if isinstance(column, np.ma.MaskedArray) and np.ma.is_masked(column):
        present = np.array(column.data, dtype=object)
        present[np.ma.getmaskarray(column)] = None
        return present
    if hasattr(column, "__array__"):
        return np.asarray(column)
    if isinstance(column, (str, bytes)) or not isinstance(column, Iterable):
        raise LabelError(f"labels must be a sequence with one label per vector; got {column!r}")
    values = list(column)
    kinds = set(map(type, values))
    texts = {issubclass(kind, (str, bytes)) for kind in kinds}
    if len(texts) > 1 or any(issubclass(kind, (list, tuple, type(None))) for kind in kinds):
        # NumPy would convert all values to text, None and NaN included.
        return np.array(values, dtype=object)
    return exact_names(values)


def exact_names(values: Iterable[Any], description: str = "labels") -> Names:
    """Return names as an array (n,) in which whole numbers stay exact.

    NumPy would convert whole numbers to floats if some of them do not fit into int64.

    description : name of the values in errors
    """
    names = list(values)
    array = np.asarray(names)
    if array.dtype.kind in "fO" and all(isinstance(value, (int, np.integer)) for value in names):
        if names and (min(names) < 0 or max(names) >= 2**64):
            raise LabelError(
                f"{description} are too large for 64-bit numbers: convert them to text"
            )
        return np.asarray(names, dtype=np.uint64)
    return array


def names_from_file(values: object, view: str) -> Names:
    """Return class names read from a file; raise `LabelError` unless they are a list of texts or of numbers."""
    names = exact_names(values) if isinstance(values, list) else None
    if names is None or names.ndim != 1 or names.dtype.kind not in "iufUb":
        raise LabelError(
            f"the names of the classes of view {view!r} must be a list of texts or of numbers; got {values!r:.100}"
        )
    return names


def is_missing(array: Names) -> BoolArray:
    """Return the (n,) mask of the missing labels: None, NaN and empty text."""
    if array.dtype == object:
        return np.array([_no_label(value) for value in array], dtype=bool)
    if array.dtype.kind in "fcMm":
        return np.isnan(array)
    if array.dtype.kind in "SU":
        return np.asarray(np.char.str_len(array) == 0)
    return np.zeros(len(array), dtype=bool)


def _no_label(value: object) -> bool:
    """Return whether a value stands for a missing label."""
    # NaN of any library differs from itself.
    return (
        value is None
        or type(value).__name__ == "NAType"
        or bool(value != value)
        or value in ("", b"")
    )
