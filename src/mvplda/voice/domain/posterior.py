"""Enrolled cells, and the posterior of their domain and classes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from ..._typing import AnyArray, Array, BoolArray, IntArray
from ...backend import to_host
from ...scoring.profiles import Profiles

SESSION_VIEW = "recording"
"""Labels of this name tell the sessions of a profile apart, whose takes share room, microphone and mood; without them
it is of one."""

SESSION_VARIANCE_RATIO = 0.33
"""Variance of one person's or phrase's sessions, relative to that of people or phrases: of voices in C-VAU, whose
recording campaigns lie months apart. Other corpora have one session of each, and do not show it."""

MIN_MEAN_SQUARE = 0.05
"""No domain leaves vectors of length 1 a smaller mean square about its centre."""

MIN_PEOPLE_PER_PHRASE = 4
"""Fewer people, who all say one phrase, do not tell it from the domain: its name is not used. Chosen on corpora that
were left out."""


class DomainPosterior(NamedTuple):
    """The posterior of a domain: mean and domain (D,), the domain itself, variance."""

    centre: Array
    shift: Array
    doubt: float


class ClassPosteriors(NamedTuple):
    """Posterior means (classes, D) and variances (classes,) of known classes; the larger evidence, the likelier."""

    means: Array
    doubts: Array
    evidence: float


@dataclass(frozen=True, eq=False)
class EnrolledCells:
    """Cells of profiles that a domain is learnt from.

    means, weights : (C, D), (C,) of the cells
    same : {view: (C, C) whether two cells are of one class}; a view without labels is missing
    names : {view: names of its classes}, of views in which some have names
    codes : {view: (C,) class of every cell, -1 where its label is missing}
    own : numbers of the classes that the cells are there for, others show the domain; None: all classes
    """

    means: Array
    weights: Array
    views: tuple[str, ...]
    same: dict[str, BoolArray]
    names: dict[str, list[Any]]
    codes: dict[str, IntArray]
    own: IntArray | None = None

    @classmethod
    def of(cls, profiles: Profiles, rows: IntArray, views: tuple[str, ...]) -> Self:
        weights = profiles.weights[rows]
        means = to_host(profiles.y)[rows] / weights[:, None]
        # a profile is one person
        owner = profiles.owner[rows]
        same = {views[0]: np.equal.outer(owner, owner)}
        names: dict[str, list[Any]] = {}
        codes: dict[str, IntArray] = {}
        for view in views[1:]:
            if view not in profiles.labels:
                continue
            labels = profiles.labels[view]
            numbers, own = np.unique(labels.codes[rows], return_inverse=True)
            # one name that few people share says no more than none: nobody tells what it is not
            if (
                len(numbers) == 1
                and numbers[0] >= 0
                and len(np.unique(owner)) < MIN_PEOPLE_PER_PHRASE
            ):
                continue
            codes[view] = own.reshape(-1) - np.count_nonzero(numbers < 0)
            if (numbers >= 0).any():
                names[view] = labels.names[numbers[numbers >= 0]].tolist()
            # cells without a label are classes of their own
            apart = np.where(codes[view] < 0, -1 - np.arange(len(rows)), codes[view])
            same[view] = np.equal.outer(apart, apart)
        return cls(means, weights, views, same, names, codes)

    def covariance(self, first: float, second: float, cell: float, take: float) -> Array:
        """(C, C) of the cells' means, from total variances of the classes of two views, of cells, and of takes."""
        people = self.same[self.views[0]]
        others = self.same.get(self.views[-1], np.ones_like(people))
        V = first * people + second * others + cell * (people & others)
        V[np.diag_indices(len(V))] += take / self.weights
        return np.asarray(V)

    def without_names(self, view: str) -> Self:
        """The same where every cell is a class of its own."""
        same = {**self.same, view: np.eye(len(self.weights), dtype=bool)}
        return replace(self, same=same, names={**self.names, view: []})

    def own_classes(self, view: str) -> IntArray:
        return np.arange(len(self.names[view])) if self.own is None else self.own

    def members(self, view: str) -> BoolArray:
        """(classes, C) whether a cell is of a class."""
        return np.equal.outer(np.arange(len(self.names[view])), self.codes[view])


def mean_square_about(centre: Array) -> float:
    """Of vectors of length 1 about their centre."""
    return max(1.0 - float(centre @ centre), MIN_MEAN_SQUARE)


def scale_about(means: AnyArray, centre: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Means of vectors of length 1 scaled about a centre, and the squares by which: the vectors' mean square there."""
    # |u| = 1 for every take, so that the mean square about the centre follows from their mean
    square = 1.0 - 2.0 * (means @ centre) + centre @ centre
    return (means - centre) / square[:, None].clip(min=1e-6) ** 0.5, square
