"""Profiles: what enrolled vectors say about their latents."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..exceptions import DataError, LabelError, ParameterError
from ..kernel.evidence import LatentSpace, reduce_cells
from ..kernel.records import Array
from ..labels import IntArray, encode_labels, row_keys
from .backend import join_rows, like, project, sum_rows

Enrolment = Literal["book", "average"]


@dataclass(frozen=True)
class Profiles:
    """Enrolled sides, ready to be scored. One row of `y` is one cell of one profile.

    ids : (P,) names of the profiles
    counts : (P,) vectors behind every profile
    y : (R, r) evidence in the latent space, NumPy or torch
    kind : (R,) which evidence matrix a row has
    evidence : (kinds, r, r) the distinct matrices N
    owner : (R,) profile of every row
    model : fingerprint of the model that made them
    """

    ids: NDArray[Any]
    counts: NDArray[np.int64]
    y: Any
    kind: IntArray
    evidence: Array
    owner: IntArray
    model: str

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def mixed(self) -> bool:
        """Whether some profile holds several cells."""
        return len(self.kind) > len(self.ids)

    def number(self, ids: Any) -> IntArray:
        """Positions of some ids."""
        order = np.argsort(self.ids, kind="stable")
        wanted = np.atleast_1d(np.asarray(ids))
        place = np.minimum(np.searchsorted(self.ids, wanted, sorter=order), len(order) - 1)
        found = order[place]
        unknown = self.ids[found] != wanted
        if unknown.any():
            raise LabelError(f"there is no profile {wanted[unknown].tolist()[0]!r} among {len(self)}")
        return found

    def __getitem__(self, which: slice) -> Profiles:
        return self.take(np.arange(len(self))[which])

    def select(self, ids: Any) -> Profiles:
        """Some of the profiles, in the order asked for."""
        return self.take(self.number(ids))

    def take(self, numbers: IntArray) -> Profiles:
        """Profiles by position."""
        rows = np.concatenate([np.zeros(0, dtype=np.int64), *(np.flatnonzero(self.owner == i) for i in numbers)])
        if not self.mixed:
            rows = np.argsort(self.owner)[numbers]
        position = {int(p): i for i, p in enumerate(numbers)}
        owner = np.asarray([position[int(self.owner[r])] for r in rows], dtype=np.int64)
        return replace(
            self,
            ids=self.ids[numbers],
            counts=self.counts[numbers],
            y=self.y[like(rows, self.y)],
            kind=self.kind[rows],
            owner=owner,
        )


def make_profiles(
    X: Any,
    ids: Any,
    labels: Any,
    method: Enrolment,
    space: LatentSpace,
    views: dict[str, int],
    model: str,
    missing: Any = None,
) -> Profiles:
    """Sum the evidence of every profile's vectors, cell by cell."""
    if method not in ("book", "average"):
        raise ParameterError(f"method is 'book' or 'average'; got {method!r}")
    y = project(X, space)
    n = len(y)
    if ids is None:
        names, owner = np.arange(n), np.arange(n)
    else:
        names, owner = number_ids(ids, n)
    counts = np.bincount(owner, minlength=len(names))
    if labels is not None:
        if method == "average":
            raise ParameterError("enrolment with labels is exact: use method='book'")
        return _mixed_profiles(y, names, owner, counts, labels, space, views, model, missing)
    total = y if ids is None else sum_rows(y, owner, len(names))
    if method == "average":
        total = total / like(counts[:, None].astype(np.float64), total)
    sizes, kind = np.unique(counts if method == "book" else np.ones_like(counts), return_inverse=True)
    evidence = sizes[:, None, None] * space.gram
    return Profiles(names, counts, total, kind.reshape(-1), evidence, np.arange(len(names)), model)


def number_ids(ids: Any, n: int) -> tuple[NDArray[Any], IntArray]:
    """Ids in order of first appearance, and the number of every vector's id."""
    array = np.asarray(ids)
    if array.shape != (n,):
        raise LabelError(f"there are {n} vectors and ids of shape {array.shape}: give one id a vector")
    names, first, inverse = np.unique(array, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return names[order], rank[inverse.reshape(-1)]


def _mixed_profiles(
    y: Any,
    names: NDArray[Any],
    owner: IntArray,
    counts: NDArray[np.int64],
    labels: Any,
    space: LatentSpace,
    views: dict[str, int],
    model: str,
    missing: Any,
) -> Profiles:
    """Profiles whose vectors differ in the views that `labels` names."""
    table = encode_labels(labels, None, missing=missing)
    if len(table) != len(owner):
        raise LabelError(f"there are {len(owner)} vectors and {len(table)} labels: give one label a vector")
    base = [v for v in views if ":" not in v] + [p for v in views if ":" in v for p in v.split(":")]
    unknown = [v for v in table.views if v not in base]
    if unknown:
        raise LabelError(f"labels name no view of the model: {unknown[0]!r}; it has {sorted(set(base))}")
    named = list(table.views)
    sizes = [len(names), *(len(table.classes[v]) for v in named)]
    cell_key = row_keys([owner, *(table.codes[v] for v in named)], sizes)
    _, first, cell = np.unique(cell_key, return_index=True, return_inverse=True)
    cell = cell.reshape(-1)
    cell_counts = np.bincount(cell).astype(np.float64)
    cell_owner = owner[first]
    codes = {v: table.codes[v][first] for v in named}
    cell_y = sum_rows(y, cell, len(first))
    slices, end = [], 0
    for rank in views.values():
        slices.append(slice(end, end + rank))
        end += rank
    order = np.argsort(cell_owner, kind="stable")
    bounds = np.searchsorted(cell_owner[order], np.arange(len(names) + 1))
    alike: dict[tuple[Any, ...], list[IntArray]] = {}  # profiles with the same table of counts
    for p in range(len(names)):
        members = order[bounds[p] : bounds[p + 1]]
        local = _local_classes(members, codes, views)
        alike.setdefault((local.shape, *local.reshape(-1), *cell_counts[members]), []).append(members)
    rows, kinds, owners = [], [], []
    evidence: list[Array] = []
    for group in alike.values():
        cells = np.stack(group)  # (profiles, cells of each)
        flat = cell_y[like(cells.reshape(-1), cell_y)].reshape(len(cells), -1)
        local = _local_classes(cells[0], codes, views)
        for i in range(cells.shape[1]):
            N, gather = reduce_cells(space.gram, tuple(slices), local, cell_counts[cells[0]], i)
            rows.append(flat @ like(gather, flat))
            kinds.append(np.full(len(cells), len(evidence)))
            owners.append(cell_owner[cells[:, i]])
            evidence.append(N)
    return Profiles(
        names, counts, join_rows(rows), np.concatenate(kinds), np.stack(evidence), np.concatenate(owners), model
    )


def _local_classes(members: IntArray, codes: dict[str, IntArray], views: dict[str, int]) -> IntArray:
    """(m, K) classes of a profile's cells in every view, numbered within the profile."""
    columns = []
    for view in views:
        parts = [codes[p][members] for p in view.split(":") if p in codes]
        if not parts:
            columns.append(np.zeros(len(members), dtype=np.int64))
        else:
            rows = np.stack(parts, axis=1)
            columns.append(np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1))
    return np.stack(columns, axis=1)


def check_sides(profiles: Profiles, model: str, which: str) -> None:
    if profiles.model != model:
        raise DataError(f"the {which} profiles were made by another model: enrol them again with this one")
    if len(profiles) == 0:
        raise DataError(f"there are no {which} profiles")
