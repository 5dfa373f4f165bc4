"""Profiles: the evidence of enrolled vectors, ready to be scored.

A profile holds, per cell (combination of classes), the sum of the evidence of its vectors, and the
labels of the cell. A comparison decides which classes of two profiles are the same.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from .._typing import AnyArray, Array, IntArray, LabelColumn, Labels, Names, Views
from ..backend import like, sum_rows
from ..exceptions import DataError, LabelError, ParameterError, UnknownClassWarning
from ..labels import as_array, encode_labels, exact_names, label_columns, row_keys
from .question import check_view

Enrolment = Literal["exact", "average"]
"""Method of enrolment. exact: evidence of all vectors is added up; average: vectors are averaged and count as one."""


@dataclass(frozen=True)
class CellLabels:
    """Labels of R cells in one view.

    names : (C,) class names in sorted order
    codes : (R,) number of each cell's class name; -1: missing label, which is a class of its own
    """

    names: Names
    codes: IntArray


@dataclass(frozen=True, eq=False)
class Profiles:
    """Set of P profiles, which are enrolments or tests of trials, with R cells in total.

    Each row of `y` holds one cell (combination of classes) of one profile; `len(profiles)` is P.

    ids : (P,) names of the profiles
    counts : (P,) number of vectors per profile
    y : (R, r) evidence of each cell in the latent space, NumPy array or torch tensor
    weights : (R,) number of vectors that a cell's evidence counts as
    owner : (R,) position of each cell's profile, ascending
    model : fingerprint of the model that computed the evidence
    labels : {view: labels of the cells}, for views that were labelled at enrolment
    """

    ids: Names
    counts: IntArray
    y: AnyArray
    weights: Array
    owner: IntArray
    model: str
    labels: dict[str, CellLabels] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def number(self, ids: ArrayLike) -> IntArray:
        """Return the positions of the profiles with these ids, (n,).

        If several profiles have the same id, it is the first of them. Raise `LabelError` for an
        unknown id.
        """
        names = _as_ids([ids] if np.ndim(ids) == 0 else ids).tolist()
        # in reverse, so that the first of repeated ids counts
        position_of = {name: i for i, name in reversed(list(enumerate(self.ids.tolist())))}
        for name in names:
            if name not in position_of:
                raise LabelError(
                    f"there is no profile {name!r}; the {len(self)} profiles have ids such as {_examples(self.ids)}"
                )
        return np.asarray([position_of[name] for name in names], dtype=np.int64)

    def __getitem__(self, which: slice | AnyArray) -> Profiles:
        """Return the profiles at these positions as a new set.

        which : slice, position, array of positions, or mask of the profiles
        """
        return self.take(np.atleast_1d(np.arange(len(self))[which]))

    def select(self, ids: ArrayLike) -> Profiles:
        """Return the profiles with these ids, in the order of the ids.

        Raise `LabelError` for an unknown id.
        """
        return self.take(self.number(ids))

    def take(self, numbers: ArrayLike) -> Profiles:
        """Return the profiles at these positions, which may repeat."""
        numbers = np.arange(len(self))[np.asarray(numbers, dtype=np.int64)]
        # the cells of a profile are consecutive rows
        starts = np.searchsorted(self.owner, numbers)
        lengths = np.searchsorted(self.owner, numbers, side="right") - starts
        owner = np.repeat(np.arange(len(numbers)), lengths)
        first = starts - np.cumsum(lengths) + lengths
        rows = np.arange(len(owner)) + np.repeat(first, lengths)
        return replace(
            self,
            ids=self.ids[numbers],
            counts=self.counts[numbers],
            y=self.y[like(rows, self.y)],
            weights=self.weights[rows],
            owner=owner,
            labels={v: CellLabels(c.names, c.codes[rows]) for v, c in self.labels.items()},
        )


ProfilesLike = Profiles | ArrayLike
"""One side of a comparison: profiles, or single vectors (n, D)."""


def sum_evidence(
    y: AnyArray,
    ids: ArrayLike | None,
    labels: Labels | None,
    base: Views,
    model: str,
    *,
    method: Enrolment = "exact",
    weights: Array | None = None,
) -> Profiles:
    """Return profiles from the evidence of single vectors, summed per profile and cell.

    Parameters
    ----------
    y : (n, r) evidence of the vectors
    ids : profile of each vector; None: one profile per vector
    labels : {view: label of each vector}; None: all vectors of a profile are one cell
    base : base views of the model, the possible views of `labels`
    model : fingerprint of the model that computed the evidence
    method : "exact" to add up the evidence, or "average" to take its weighted mean, so that the
        profile counts as one vector
    weights : (n,) number of vectors that each vector counts as; None: 1

    Returns
    -------
    Profiles
    """
    if weights is not None:
        weights = _check_weights(weights, len(y), "vectors")
        y = y * like(weights[:, None], y)
    if method not in ("exact", "average"):
        raise ParameterError(f"method must be 'exact' or 'average'; got {method!r}")
    n = len(y)
    names = owner = cell = np.arange(n)
    if ids is not None:
        names, owner = encode_ids(ids, n)
        cell = owner
    owners = np.arange(len(names))
    cell_labels: dict[str, CellLabels] = {}
    if labels is not None:
        if method == "average":
            raise ParameterError("method='average' does not support labels: use method='exact'")
        first, cell, cell_labels = _find_cells(owner, labels, base)
        owners = owner[first]
    # without ids every vector is a profile: its evidence is used as it is
    total = y
    if len(owners) < n or ids is not None:
        total = sum_rows(y, cell, len(owners))
    cell_weights = np.bincount(cell, weights, len(owners)).astype(np.float64)
    if method == "average":
        total = total / like(cell_weights[:, None], total)
        cell_weights = np.ones_like(cell_weights)
    return Profiles(names, np.bincount(owner), total, cell_weights, owners, model, cell_labels)


def from_sums(
    y: AnyArray,
    weights: ArrayLike,
    owner: ArrayLike,
    ids: ArrayLike | None,
    labels: Labels | None,
    base: Views,
    width: int,
    model: str,
) -> Profiles:
    """Return profiles from precomputed sums of evidence.

    Parameters
    ----------
    y : (cells, width) evidence of each cell
    weights : (cells,) number of vectors that each cell counts as
    owner : (cells,) position of each cell's profile: 0, 1, ... ascending, without gaps
    ids : (profiles,) names of the profiles; None: 0, 1, ...
    labels : {view: label of each cell}
    base : base views of the model, the possible views of `labels`
    width : expected number of columns
    model : fingerprint of the model that computed the evidence

    Returns
    -------
    Profiles
    """
    owners = np.asarray(owner)
    n = len(owners)
    if tuple(y.shape) != (n, width):
        raise DataError(
            f"y must have one row of evidence per cell, shape {(n, width)}; got shape {tuple(y.shape)}"
        )
    cell_weights = _check_weights(weights, n, "cells")
    if n == 0 or owners.dtype.kind not in "iu" or not _is_consecutive(owners):
        raise DataError(
            "owner must hold the profile number of every cell: 0, 1, ... in order, each at least once"
        )
    n_profiles = int(owners[-1]) + 1
    names = np.arange(n_profiles) if ids is None else _as_ids(ids)
    if len(names) != n_profiles:
        raise LabelError(
            f"ids must have one name per profile; got {len(names)} ids for {n_profiles} profiles in owner"
        )
    # the weights of a profile's vectors may add up to less than one vector
    counts = np.maximum(np.rint(np.bincount(owners, cell_weights)), 1).astype(np.int64)
    cell_labels = {}
    for view, column in label_columns(labels or {}, None).items():
        check_view(view, base, "labels")
        cell_labels[view] = as_cell_labels(view, as_array(column), n)
    return Profiles(names, counts, y, cell_weights, owners.astype(np.int64), model, cell_labels)


def _check_weights(weights: ArrayLike, n: int, what: str) -> Array:
    """Return weights as float64; raise `DataError` unless they are n positive finite numbers.

    what : "vectors" or "cells", for the message
    """
    values = np.asarray(weights)
    is_numeric = values.shape == (n,) and values.dtype.kind in "iuf"
    if not is_numeric or not (np.isfinite(values) & (values > 0)).all():
        raise DataError(f"weights must be a positive number for each of {n} {what}; got {values}")
    return values.astype(np.float64)


def _is_consecutive(owner: IntArray) -> bool:
    """Return whether the owners of cells are 0, 1, ... in order, without gaps."""
    steps = np.diff(owner)
    return bool(owner[0] == 0 and steps.min(initial=0) >= 0 and steps.max(initial=0) <= 1)


def as_cell_labels(view: str, array: Names, n: int) -> CellLabels:
    """Return the labels of n cells in one view; None in the array is a missing label.

    view : name of the view, for messages
    array : (n,) class names
    """
    if array.shape != (n,):
        raise LabelError(
            f"labels of view {view!r} must be one for each of {n} cells; got shape {array.shape}"
        )
    absent = np.zeros(n, dtype=bool)
    if array.dtype == object:
        absent = np.asarray([value is None for value in array], dtype=bool)
    present = exact_names(array[~absent], f"classes of view {view!r}")
    names, codes = np.unique(present, return_inverse=True)
    numbers = np.full(n, -1)
    numbers[~absent] = codes.reshape(-1)
    return CellLabels(names, numbers)


def encode_ids(ids: ArrayLike, n: int) -> tuple[Names, IntArray]:
    """Return the distinct ids in order of first appearance, and the position of each vector's id.

    ids : id of each of n vectors
    return : (distinct,) ids, and (n,) positions among them
    """
    array = _as_ids(ids)
    if array.shape != (n,):
        raise LabelError(f"ids must have one id for each of {n} vectors; got shape {array.shape}")
    names, first, inverse = np.unique(array, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return names[order], np.argsort(order)[inverse.reshape(-1)]


def _as_ids(ids: LabelColumn) -> Names:
    """Return ids as an array of strings or numbers; raise `LabelError` for others and NaN."""
    array = as_array(ids)
    if array.dtype == object:
        kinds = sorted({type(name).__name__ for name in array.reshape(-1)})
        if len(kinds) > 1 or kinds == ["NoneType"]:
            raise LabelError(f"ids must be all strings or all numbers; got {kinds}")
        array = exact_names(array, "ids")
    if array.dtype.kind not in "USbiuf":
        raise LabelError(
            f"ids must be strings or numbers; got {array.dtype.name}, like {array.reshape(-1)[:1].tolist()}"
        )
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise LabelError("ids contain NaN: pass a profile id for every vector")
    return array.astype(np.str_) if array.dtype.kind == "S" else array


def _find_cells(
    owner: IntArray, labels: Labels, base: Views
) -> tuple[IntArray, IntArray, dict[str, CellLabels]]:
    """Divide vectors into cells: combinations of a profile and one class per labelled view.

    owner : (n,) position of each vector's profile
    labels : {view: label of each vector}
    base : base views of the model
    return : (cells,) index of the first vector of each cell, (n,) cell of each vector, and {view:
        labels of the cells}; cells are sorted by profile
    """
    table = encode_labels(labels)
    if len(table) != len(owner):
        raise LabelError(
            f"labels must have one label per view for each of {len(owner)} vectors; got {len(table)} labels per view"
        )
    keys = row_keys([owner, *(table.codes[v] for v in table.views)])
    _, first, cell = np.unique(keys, return_index=True, return_inverse=True)
    cell_labels = {}
    for view in table.views:
        check_view(view, base, "labels")
        names = table.classes[view].names
        codes = table.codes[view][first]
        cell_labels[view] = CellLabels(names, np.where(codes < len(names), codes, -1))
    return first, cell.reshape(-1), cell_labels


def enrolled_names(profiles: Profiles, view: str, claims: ArrayLike | None) -> CellLabels:
    """Return the class names of enrolled cells in a view.

    Raise `ParameterError` unless either the profiles have labels of the view or `claims` is given.

    claims : (profiles,) class of each profile, from ``known={view: ...}``; None: the names are the
        profiles' labels
    """
    cell_labels = profiles.labels.get(view)
    if claims is None and cell_labels is not None:
        return cell_labels
    if claims is None:
        raise ParameterError(
            f"known= contains view {view!r}, but the profiles have no labels of this view: pass "
            f"labels={{{view!r}: ...}} to the enrolment, or known={{{view!r}: the class of every profile}}"
        )
    if cell_labels is not None:
        raise ParameterError(
            f"known= contains classes of view {view!r}, but the profiles already have labels of it: pass "
            f"known=[{view!r}]"
        )
    claimed = as_cell_labels(view, as_array(claims), len(profiles))
    return CellLabels(claimed.names, claimed.codes[profiles.owner])


def match_names(
    view: str, enrol: CellLabels, test: CellLabels | None, training: Names | None
) -> tuple[IntArray, IntArray, IntArray | None]:
    """Give each class name of a view one number, whether it occurs on either side or in training.

    Parameters
    ----------
    view : name of the view, for messages
    enrol : labels of the enrolled cells
    test : labels of the test cells; None: the tests have no labels
    training : names of the training classes; None: training classes are not used

    Returns
    -------
    enrolled numbers : (cells,) number of each enrolled cell's name; -1: missing label
    test numbers : (cells,) number of each test cell's name; the enrolled numbers if `test` is None
    training classes : (names,) number of the training class with each name, -1: not seen in
        training; None if `training` is None
    """
    sides = [enrol] if test is None else [enrol, test]
    sources = [cells.names for cells in sides]
    if training is not None:
        sources.append(training)
    named = {names.dtype.kind == "U": names for names in sources if len(names)}
    if len(named) > 1:
        raise LabelError(
            f"some class names of view {view!r} are text, such as {_examples(named[True])}, and some are numbers, "
            f"such as {_examples(named[False])}: use one type for all names"
        )
    # as Python values, because joining arrays of different dtypes would change names
    all_names = np.unique(exact_names(name for names in sources for name in names.tolist()))
    numbers = []
    for cells in sides:
        positions = np.searchsorted(all_names, cells.names.astype(all_names.dtype))
        # the code of a missing label is -1, which selects the -1 at the end
        numbers.append(np.append(positions, -1)[cells.codes])
    trained = None
    if training is not None:
        trained = np.full(len(all_names), -1)
        trained[np.searchsorted(all_names, training.astype(all_names.dtype))] = np.arange(
            len(training)
        )
        _warn_of_unseen_names(view, all_names, np.concatenate(numbers), trained)
    return numbers[0], numbers[-1], trained


def _warn_of_unseen_names(
    view: str, all_names: Names, numbers: IntArray, training: IntArray
) -> None:
    """Warn with `UnknownClassWarning` if some labels name classes that were not seen in training.

    It is not an error even if all classes are unseen, because the score of a trial must not depend
    on other profiles.

    all_names : names in the order of their numbers
    numbers : (cells,) name numbers of the cells
    training : (names,) training class of each name; -1: not seen
    """
    named = np.unique(numbers[numbers >= 0])
    unseen = all_names[named[training[named] < 0]]
    if len(unseen) == 0:
        return
    trained = all_names[training >= 0]
    how = f"the training classes have names such as {_examples(trained)}"
    if len(trained) == 0:
        how = "there are no training classes"
    warnings.warn(
        f"{len(unseen)} of {len(named)} classes named in view {view!r} were not seen in training, "
        f"such as {_examples(unseen)}: they are scored as new classes; {how}",
        UnknownClassWarning,
        stacklevel=6,
    )


def _examples(names: Names) -> str:
    """Return the first three names, quoted, as text for a message."""
    return ", ".join(repr(name) for name in names[:3].tolist())
