"""Profiles: what enrolled vectors say about their latents.

A profile is a sum: the evidence of its vectors, cell by cell, with the labels that the cells carry. What is the same
between two profiles is settled when they are compared.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._typing import AnyArray, Array, IntArray, Names
from ..backend import like, sum_rows
from ..exceptions import DataError, FileFormatError, LabelError, ParameterError, UnknownClassWarning
from ..labels import as_array, encode_labels, exact_names, label_columns, row_keys
from ..persistence import Persistent, State, Tensors
from .question import Recognised

Enrolment = Literal["exact", "average"]

ARRAYS = ("y", "weights", "owner", "counts")


@dataclass(frozen=True)
class CellLabels:
    """The labels of the cells in one view.

    names : (C,) class names in sorted order
    codes : (R,) class of every cell; -1 is a missing label, a class of its own
    """

    names: Names
    codes: IntArray


@dataclass(frozen=True, eq=False)
class Profiles(Persistent):
    """Enrolled sides, ready to be scored. One row of `y` is one cell of one profile.

    ids : (P,) names of the profiles
    counts : (P,) vectors behind every profile
    y : (R, r) evidence of every cell in the latent space, NumPy or torch
    weights : (R,) how many vectors a cell's evidence counts for
    owner : (R,) profile of every cell, in order
    model : fingerprint of the model that made them
    labels : of the cells, in the views that the enrolment named
    """

    KIND: ClassVar[str] = "profiles"

    ids: Names
    counts: NDArray[np.int64]
    y: AnyArray
    weights: Array
    owner: IntArray
    model: str
    labels: dict[str, CellLabels] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def number(self, ids: Any) -> IntArray:
        """Positions of some ids."""
        wanted = _plain_ids([ids] if np.ndim(ids) == 0 else ids)
        if (
            len(wanted)
            and len(self)
            and (wanted.dtype.kind in "US") != (self.ids.dtype.kind in "US")
        ):
            raise LabelError(
                f"profiles are called like {self.ids[0].item()!r}; got {wanted[0].item()!r}"
            )
        place = {name: number for number, name in reversed(list(enumerate(self.ids.tolist())))}
        found = [place.get(name, -1) for name in wanted.tolist()]
        if -1 in found:
            raise LabelError(
                f"there is no profile {wanted[found.index(-1)].item()!r} among {len(self)}"
            )
        return np.asarray(found, dtype=np.int64)

    def __getitem__(self, which: Any) -> Profiles:
        """Profiles by position: a slice, numbers or a mask; one number gives a set of one."""
        return self.take(np.atleast_1d(np.arange(len(self))[which]))

    def select(self, ids: Any) -> Profiles:
        """Some of the profiles, in the order asked for."""
        return self.take(self.number(ids))

    def take(self, numbers: Any) -> Profiles:
        """Profiles by position, repeated where a position is."""
        numbers = np.arange(len(self))[np.asarray(numbers, dtype=np.int64)]
        bounds = np.searchsorted(self.owner, np.arange(len(self) + 1))
        lengths = np.diff(bounds)[numbers]
        owner = np.repeat(np.arange(len(numbers)), lengths)
        rows = np.arange(len(owner)) + np.repeat(
            bounds[numbers] - np.cumsum(lengths) + lengths, lengths
        )
        return replace(
            self,
            ids=self.ids[numbers],
            counts=self.counts[numbers],
            y=self.y[like(rows, self.y)],
            weights=self.weights[rows],
            owner=owner,
            labels={
                view: CellLabels(cells.names, cells.codes[rows])
                for view, cells in self.labels.items()
            },
        )

    def get_state(self) -> State:
        arrays = {name: getattr(self, name) for name in ARRAYS}
        arrays |= {f"labels/{view}": cells.codes for view, cells in self.labels.items()}
        names = {view: cells.names.tolist() for view, cells in self.labels.items()}
        plain = {
            k: np.ascontiguousarray(v if isinstance(v, np.ndarray) else v.cpu().numpy())
            for k, v in arrays.items()
        }
        return plain, {"ids": self.ids.tolist(), "model": self.model, "labels": names}

    @classmethod
    def from_state(cls, arrays: Tensors, values: dict[str, Any]) -> Self:
        labels = {
            view: CellLabels(exact_names(names), arrays[f"labels/{view}"])
            for view, names in values["labels"].items()
        }
        parts: dict[str, Any] = {name: arrays[name] for name in ARRAYS}
        profiles = cls(
            ids=exact_names(values["ids"]), model=values["model"], labels=labels, **parts
        )
        rows = {
            len(profiles.y),
            len(profiles.weights),
            *(len(cells.codes) for cells in labels.values()),
        }
        owner = profiles.owner
        fits = (
            profiles.y.ndim == 2
            and rows == {len(owner)}
            and len(profiles.counts) == len(profiles)
            and np.array_equal(np.unique(owner), np.arange(len(profiles)))
            and (np.diff(owner) >= 0).all()
            and all(((c.codes >= -1) & (c.codes < len(c.names))).all() for c in labels.values())
        )
        if not fits:
            raise FileFormatError("its arrays do not make profiles")
        return profiles

    def check_state(self) -> None:
        numbers = {"y": self.y, "weights": self.weights}
        odd = [name for name, array in numbers.items() if np.asarray(array).dtype.kind != "f"]
        whole = {"counts": self.counts, "owner": self.owner}
        odd += [name for name, array in whole.items() if np.asarray(array).dtype.kind not in "iu"]
        if odd or self.weights.ndim != 1 or not (self.weights > 0).all() or (self.counts < 1).any():
            raise FileFormatError(f"its arrays do not make profiles: {odd or 'weights or counts'}")
        if len(set(self.ids.tolist())) != len(self):
            raise FileFormatError("its profiles have the same id twice")
        cells = np.stack([self.owner, *(cells.codes for cells in self.labels.values())], axis=1)
        cells = cells[(cells >= 0).all(axis=1)]  # a missing label is a class of its own
        if len(np.unique(cells, axis=0)) != len(cells):
            raise FileFormatError("a profile has two rows of the same labels")

    def describe(self) -> dict[str, Any]:
        first = {"first id": str(self.ids[0])} if len(self) else {}
        return {
            "profiles": len(self),
            "vectors": int(self.counts.sum()),
            **first,
            "model": self.model,
        }


SideLike = Profiles | ArrayLike
"""One side of a score: profiles, or single vectors (n, D)."""


def sum_evidence(
    y: AnyArray,
    ids: Any,
    labels: Any,
    base: tuple[str, ...],
    model: str,
    *,
    method: Enrolment = "exact",
    missing: Any = None,
    weights: ArrayLike | None = None,
) -> Profiles:
    """Profiles of vectors whose evidence is y: their sums, cell by cell.

    base : base views, in which vectors may have labels
    """
    if method not in ("exact", "average"):
        raise ParameterError(f"method is 'exact' or 'average'; got {method!r}")
    n = len(y)
    each = np.ones(n)
    if weights is not None:
        each = check_weights(weights, n)
        y = y * like(each[:, None], y)
    names = owner = np.arange(n)
    if ids is not None:
        names, owner = number_ids(ids, n)
    counts = np.bincount(owner, minlength=len(names))
    if labels is not None:
        if method == "average":
            raise ParameterError("enrolment with labels is exact: use method='exact'")
        first, cell, carried = _cells(owner, labels, base, missing)
        total = sum_rows(y, cell, len(first))
        return Profiles(names, counts, total, _totals(cell, each), owner[first], model, carried)
    total = y if ids is None else sum_rows(y, owner, len(names))
    amount = _totals(owner, each, len(names))
    if method == "average":
        total = total / like(amount[:, None], total)
        amount = np.ones_like(amount)
    return Profiles(names, counts, total, amount, np.arange(len(names)), model)


def _totals(number: IntArray, each: Array, size: int = 0) -> Array:
    return np.bincount(number, each, size).astype(np.float64)


def from_sums(
    y: AnyArray,
    weights: ArrayLike,
    owner: ArrayLike,
    ids: Any,
    labels: Any,
    base: tuple[str, ...],
    width: int,
    model: str,
) -> Profiles:
    """Profiles of sums that were made before: one row a cell, with how many vectors it counts for."""
    owners = np.asarray(owner)
    n = len(owners)
    if tuple(y.shape) != (n, width):
        raise DataError(f"evidence of {n} cells has shape {(n, width)}; got {tuple(y.shape)}")
    each = check_weights(weights, n)
    n_profiles = int(owners.max()) + 1 if n else 0
    in_order = n > 0 and owners.dtype.kind in "iu" and (np.diff(owners) >= 0).all()
    if not in_order or not np.array_equal(np.unique(owners), np.arange(n_profiles)):
        raise DataError(
            "owner numbers the profile of every cell: 0, 1, ... in order, each at least once"
        )
    names = np.arange(n_profiles) if ids is None else _plain_ids(ids)
    if len(names) != n_profiles:
        raise LabelError(f"there are {n_profiles} profiles and {len(names)} ids")
    counts = np.maximum(np.rint(np.bincount(owners, each)), 1).astype(np.int64)
    carried = {}
    if labels is not None:
        for view, column in label_columns(labels, None).items():
            _check_base(view, base)
            carried[view] = as_cell_labels(view, as_array(column), n)
    return Profiles(names, counts, y, each, owners.astype(np.int64), model, carried)


def as_cell_labels(view: str, array: Any, n: int) -> CellLabels:
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


def _check_base(view: str, base: tuple[str, ...]) -> None:
    if view not in base:
        raise LabelError(f"labels name no view of the model: {view!r}; it has {sorted(base)}")


def number_ids(ids: Any, n: int) -> tuple[Names, IntArray]:
    """Ids in order of first appearance, and the number of every vector's id."""
    array = _plain_ids(ids)
    if array.shape != (n,):
        raise LabelError(
            f"there are {n} vectors and ids of shape {array.shape}: give one id a vector"
        )
    names, first, inverse = np.unique(array, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return names[order], rank[inverse.reshape(-1)]


def _plain_ids(ids: Any) -> Names:
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


def check_weights(weights: ArrayLike, n: int) -> Array:
    """Positive numbers, one a vector."""
    each = np.asarray(weights, dtype=np.float64)
    if each.shape != (n,):
        raise DataError(
            f"there are {n} vectors and weights of shape {each.shape}: give one weight a vector"
        )
    if not (np.isfinite(each) & (each > 0)).all():
        raise DataError(
            "weights are positive numbers: the noise of a vector is divided by its weight"
        )
    return each


def _cells(
    owner: IntArray, labels: Any, base: tuple[str, ...], missing: Any
) -> tuple[IntArray, IntArray, dict[str, CellLabels]]:
    """First vector of every cell, cell of every vector, and the cells' labels; cells are in order of profiles."""
    table = encode_labels(labels, None, missing=missing)
    if len(table) != len(owner):
        raise LabelError(
            f"there are {len(owner)} vectors and {len(table)} labels: give one label a vector"
        )
    for view in table.views:
        _check_base(view, base)
    keys = row_keys([owner, *(table.codes[v] for v in table.views)])
    _, first, cell = np.unique(keys, return_index=True, return_inverse=True)
    carried = {}
    for view in table.views:
        names = table.classes[view].names
        codes = table.codes[view][first]
        carried[view] = CellLabels(names, np.where(codes < len(names), codes, -1))
    return first, cell.reshape(-1), carried


def check_sides(profiles: Profiles, model: str, which: str) -> None:
    if profiles.model != model:
        raise DataError(
            f"the {which} profiles were made by another model: enrol them again with this one"
        )
    if len(profiles) == 0:
        raise DataError(f"there are no {which} profiles")


def enrolled_names(profiles: Profiles, view: str, claims: Any) -> CellLabels:
    """The classes of enrolled cells: those that are claimed, one a profile, or the labels that they carry."""
    if claims is None:
        if view not in profiles.labels:
            raise ParameterError(
                f"known names view {view!r}, in which the profiles have no labels: give labels={{{view!r}: ...}} when "
                f"they are enrolled, or known={{{view!r}: the class of every profile}}"
            )
        return profiles.labels[view]
    if view in profiles.labels:
        raise ParameterError(
            f"the profiles have labels of view {view!r} already: say known=[{view!r}]"
        )
    array = as_array(claims)
    if array.shape != (len(profiles),):
        raise LabelError(
            f"known[{view!r}] names one class a profile: {len(profiles)}; got shape {array.shape}"
        )
    claimed = as_cell_labels(view, array, len(profiles))
    return CellLabels(claimed.names, claimed.codes[profiles.owner])


def heard_labels(
    view: str, said: Recognised, training: Names | None, tests: Profiles
) -> tuple[CellLabels, Array]:
    """The classes that a recogniser tells of, as labels of its columns, and the logarithms of what it says."""
    if view in tests.labels:
        raise ParameterError(
            f"the tests have labels of view {view!r}, and posteriors besides: give one of the two"
        )
    names = said.named(view, training)
    logs = said.logs(view, len(names), len(tests))
    known = exact_names([name for name in names if name is not None], f"classes of view {view!r}")
    codes = np.full(len(names), -1)
    codes[[name is not None for name in names]] = np.arange(len(known))
    return CellLabels(known, codes), logs


def match_names(
    view: str, enrol: CellLabels, test: CellLabels | None, training: Names | None
) -> tuple[IntArray, IntArray, IntArray | None]:
    """Numbers of the cells' names on both sides, and the training class of every number.

    -1 is a missing label among the numbers, and a class that was not seen among the training classes.
    """
    sides = [enrol] if test is None else [enrol, test]
    sources = [cells.names for cells in sides] + ([] if training is None else [training])
    _check_types(view, [names for names in sources if len(names)])
    every = np.unique(_joined(sources))
    numbers = [_numbers(cells, every) for cells in sides]
    trained = None
    if training is not None:
        known = training.astype(every.dtype)
        trained = np.full(len(every), -1)
        trained[np.searchsorted(every, known)] = np.arange(len(known))
        carried = np.unique(np.concatenate(numbers))
        carried = carried[carried >= 0]
        unseen = every[carried[trained[carried] < 0]]
        if len(carried) == 0:
            raise LabelError(
                f"known names view {view!r}, and no class of it: name one, or leave the view out"
            )
        if len(unseen) == len(carried):
            raise LabelError(
                f"none of the classes named in view {view!r} was seen in training: they are called like "
                f"{_some(unseen)}, the training classes like {_some(training)}"
            )
        if len(unseen):
            warnings.warn(
                f"{len(unseen)} of {len(carried)} classes named in view {view!r} were not seen in training, "
                f"such as {_some(unseen)}: they are taken as new classes",
                UnknownClassWarning,
                stacklevel=5,
            )
    return numbers[0], numbers[-1], trained


def _numbers(cells: CellLabels, every: Names) -> IntArray:
    place = np.append(
        np.searchsorted(every, cells.names.astype(every.dtype)), -1
    )  # a missing label has the code -1
    return np.asarray(place[cells.codes], dtype=np.int64)


def _joined(sources: list[Names]) -> Names:
    """All names one after the other, none changed by the types of the others."""
    return exact_names(name for names in sources for name in names.tolist())


def _check_types(view: str, sources: list[Names]) -> None:
    kinds: dict[str, Names] = {}
    for names in sources:
        kind = names.dtype.kind
        kinds["text" if kind == "U" else "numbers" if kind in "biuf" else names.dtype.name] = names
    if len(kinds) > 1:
        some = " and ".join(f"{what}, like {_some(names)}" for what, names in kinds.items())
        raise LabelError(
            f"classes of view {view!r} are named by {some}: give all names as one type"
        )


def _some(names: Names) -> str:
    return ", ".join(repr(name) for name in names[:3].tolist())
