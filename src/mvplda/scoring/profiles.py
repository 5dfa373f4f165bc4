"""Profiles: what enrolled vectors say about their latents.

A profile is a sum: the evidence of its vectors, cell by cell, with the labels that the cells carry. What is the same
between two profiles is settled when they are compared.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from .._typing import AnyArray, Array, IntArray, Labels, Names, Views
from ..backend import like, sum_rows
from ..exceptions import DataError, LabelError, ParameterError, UnknownClassWarning
from ..labels import as_array, encode_labels, exact_names, label_columns, row_keys
from .question import check_view

Enrolment = Literal["exact", "average"]


@dataclass(frozen=True)
class CellLabels:
    """The labels of the cells in one view.

    names : (C,) class names in sorted order
    codes : (R,) class of every cell; -1 is a missing label, a class of its own
    """

    names: Names
    codes: IntArray


@dataclass(frozen=True, eq=False)
class Profiles:
    """Enrolled sides, ready to be scored. One row of `y` is one cell of one profile.

    ids : (P,) names of the profiles
    counts : (P,) vectors behind every profile
    y : (R, r) evidence of every cell in the latent space, NumPy or torch
    weights : (R,) how many vectors a cell's evidence counts for
    owner : (R,) profile of every cell, in order
    model : fingerprint of the model that made them
    labels : of the cells, in the views that the enrolment named
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
        """Positions of some ids."""
        wanted = _as_ids([ids] if np.ndim(ids) == 0 else ids).tolist()
        # of ids that occur twice the first counts
        place = {name: number for number, name in reversed(list(enumerate(self.ids.tolist())))}
        for name in wanted:
            if name not in place:
                like_these = ", ".join(map(repr, self.ids[:3].tolist()))
                raise LabelError(
                    f"there is no profile {name!r} among {len(self)}, which are called like {like_these}"
                )
        return np.asarray([place[name] for name in wanted], dtype=np.int64)

    def __getitem__(self, which: slice | AnyArray) -> Profiles:
        """Profiles by position: a slice, numbers or a mask; one number gives a set of one."""
        return self.take(np.atleast_1d(np.arange(len(self))[which]))

    def select(self, ids: ArrayLike) -> Profiles:
        """Some of the profiles, in the order asked for."""
        return self.take(self.number(ids))

    def take(self, numbers: ArrayLike) -> Profiles:
        """Profiles by position, repeated where a position is."""
        numbers = np.arange(len(self))[np.asarray(numbers, dtype=np.int64)]
        bounds = np.searchsorted(self.owner, np.arange(len(self) + 1))
        # cells of a profile lie side by side
        lengths = np.diff(bounds)[numbers]
        owner = np.repeat(np.arange(len(numbers)), lengths)
        first = bounds[numbers] - np.cumsum(lengths) + lengths
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
"""One side of a score: profiles, or single vectors (n, D)."""


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
    """Profiles of vectors whose evidence is y: their sums, cell by cell.

    base : base views, in which vectors may have labels
    """
    if weights is not None:
        weights = _check_weights(weights, len(y), "vectors")
        y = y * like(weights[:, None], y)
    if method not in ("exact", "average"):
        raise ParameterError(f"method is 'exact' or 'average'; got {method!r}")
    n = len(y)
    names = owner = cell = np.arange(n)
    if ids is not None:
        names, owner = encode_ids(ids, n)
        cell = owner
    owners = np.arange(len(names))
    carried: dict[str, CellLabels] = {}
    if labels is not None:
        if method == "average":
            raise ParameterError("enrolment with labels is exact: use method='exact'")
        first, cell, carried = _find_cells(owner, labels, base)
        owners = owner[first]
    # a profile of one vector is its evidence: nothing is added up
    total = y
    if len(owners) < n or ids is not None:
        total = sum_rows(y, cell, len(owners))
    amount = np.bincount(cell, weights, len(owners)).astype(np.float64)
    if method == "average":
        total = total / like(amount[:, None], total)
        amount = np.ones_like(amount)
    return Profiles(names, np.bincount(owner), total, amount, owners, model, carried)


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
    """Profiles of sums that were made before: one row a cell, with how many vectors it counts for."""
    owners = np.asarray(owner)
    n = len(owners)
    if tuple(y.shape) != (n, width):
        raise DataError(f"evidence of {n} cells has shape {(n, width)}; got {tuple(y.shape)}")
    each = _check_weights(weights, n, "cells")
    if n == 0 or owners.dtype.kind not in "iu" or not _is_consecutive(owners):
        raise DataError(
            "owner numbers the profile of every cell: 0, 1, ... in order, each at least once"
        )
    n_profiles = int(owners[-1]) + 1
    names = np.arange(n_profiles) if ids is None else _as_ids(ids)
    if len(names) != n_profiles:
        raise LabelError(f"there are {n_profiles} profiles and {len(names)} ids")
    # sums may be of weighted vectors: a count is of at least one
    counts = np.maximum(np.rint(np.bincount(owners, each)), 1).astype(np.int64)
    carried = {}
    for view, column in label_columns(labels or {}, None).items():
        check_view(view, base, "labels")
        carried[view] = as_cell_labels(view, as_array(column), n)
    return Profiles(names, counts, y, each, owners.astype(np.int64), model, carried)


def _check_weights(weights: ArrayLike, n: int, what: str) -> Array:
    each = np.asarray(weights)
    fits = each.shape == (n,) and each.dtype.kind in "iuf"
    if not fits or not (np.isfinite(each) & (each > 0)).all():
        raise DataError(f"weights are a positive number for each of {n} {what}; got {each}")
    return each.astype(np.float64)


def _is_consecutive(owner: IntArray) -> bool:
    """Whether cells are in the order of their profiles, of which none is left out."""
    steps = np.diff(owner)
    return bool(owner[0] == 0 and steps.min(initial=0) >= 0 and steps.max(initial=0) <= 1)


def as_cell_labels(view: str, array: Names, n: int) -> CellLabels:
    """Labels of n cells; None is a missing one."""
    if array.shape != (n,):
        raise LabelError(
            f"labels of view {view!r} are one for each of {n}; got shape {array.shape}"
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
    """Ids in order of first appearance, and the number of every vector's id."""
    array = _as_ids(ids)
    if array.shape != (n,):
        raise LabelError(
            f"there are {n} vectors and ids of shape {array.shape}: give one id a vector"
        )
    names, first, inverse = np.unique(array, return_index=True, return_inverse=True)
    # profiles are in the order in which their ids appear
    order = np.argsort(first)
    return names[order], np.argsort(order)[inverse.reshape(-1)]


def _as_ids(ids: Labels) -> Names:
    """Ids as text or numbers."""
    array = as_array(ids)
    if array.dtype == object:
        kinds = sorted({type(name).__name__ for name in array.reshape(-1)})
        if len(kinds) > 1 or kinds == ["NoneType"]:
            raise LabelError(f"ids are all strings or all numbers; these are {kinds}")
        array = exact_names(array, "ids")
    if array.dtype.kind not in "USbiuf":
        raise LabelError(
            f"ids are strings or numbers; got {array.dtype.name}, like {array.reshape(-1)[:1].tolist()}"
        )
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise LabelError("an id is NaN, which equals no other id: name every profile")
    return array.astype(np.str_) if array.dtype.kind == "S" else array


def _find_cells(
    owner: IntArray, labels: Labels, base: Views
) -> tuple[IntArray, IntArray, dict[str, CellLabels]]:
    """First vector of every cell, cell of every vector, and the cells' labels; cells are in order of profiles."""
    table = encode_labels(labels)
    if len(table) != len(owner):
        raise LabelError(
            f"there are {len(owner)} vectors and {len(table)} labels: give one label a vector"
        )
    keys = row_keys([owner, *(table.codes[v] for v in table.views)])
    _, first, cell = np.unique(keys, return_index=True, return_inverse=True)
    carried = {}
    for view in table.views:
        check_view(view, base, "labels")
        names = table.classes[view].names
        codes = table.codes[view][first]
        carried[view] = CellLabels(names, np.where(codes < len(names), codes, -1))
    return first, cell.reshape(-1), carried


def enrolled_names(profiles: Profiles, view: str, claims: ArrayLike | None) -> CellLabels:
    """The classes of enrolled cells: those that are claimed, one a profile, or the labels that they carry."""
    carried = profiles.labels.get(view)
    if claims is None and carried is not None:
        return carried
    if claims is None:
        raise ParameterError(
            f"known names view {view!r}, in which the profiles have no labels: give labels={{{view!r}: ...}} when "
            f"they are enrolled, or known={{{view!r}: the class of every profile}}"
        )
    if carried is not None:
        raise ParameterError(
            f"the profiles have labels of view {view!r} already: say known=[{view!r}]"
        )
    claimed = as_cell_labels(view, as_array(claims), len(profiles))
    return CellLabels(claimed.names, claimed.codes[profiles.owner])


def match_names(
    view: str, enrol: CellLabels, test: CellLabels | None, training: Names | None
) -> tuple[IntArray, IntArray, IntArray | None]:
    """Numbers of the cells' names on both sides, and the training class of every number.

    -1 is a missing label among the numbers, and a class that was not seen among the training classes.
    """
    sides = [enrol] if test is None else [enrol, test]
    sources = [cells.names for cells in sides]
    if training is not None:
        sources.append(training)
    named = {names.dtype.kind == "U": names for names in sources if len(names)}
    if len(named) > 1:
        raise LabelError(
            f"classes of view {view!r} are named by text, like {_examples(named[True])} and numbers, like "
            f"{_examples(named[False])}: give all names as one type"
        )
    # all names one after the other, none changed by the types of the others
    every = np.unique(exact_names(name for names in sources for name in names.tolist()))
    numbers = []
    for cells in sides:
        place = np.searchsorted(every, cells.names.astype(every.dtype))
        numbers.append(np.append(place, -1)[cells.codes])  # a missing label has the code -1
    trained = None
    if training is not None:
        trained = np.full(len(every), -1)
        trained[np.searchsorted(every, training.astype(every.dtype))] = np.arange(len(training))
        _check_training_names(view, every, np.unique(np.concatenate(numbers)), trained)
    return numbers[0], numbers[-1], trained


def _check_training_names(view: str, every: Names, carried: IntArray, trained: IntArray) -> None:
    """Refuse names of which training has seen none, and warn of those that it has not."""
    carried = carried[carried >= 0]
    if len(carried) == 0:
        raise LabelError(
            f"known names view {view!r}, and no class of it: name one, or leave the view out"
        )
    unseen = every[carried[trained[carried] < 0]]
    if len(unseen) == len(carried):
        raise LabelError(
            f"none of the classes named in view {view!r} was seen in training: they are called like "
            f"{_examples(unseen)}, the training classes like {_examples(every[trained >= 0])}"
        )
    if len(unseen):
        warnings.warn(
            f"{len(unseen)} of {len(carried)} classes named in view {view!r} were not seen in training, "
            f"such as {_examples(unseen)}: they are taken as new classes",
            UnknownClassWarning,
            stacklevel=6,
        )


def _examples(names: Names) -> str:
    return ", ".join(repr(name) for name in names[:3].tolist())
