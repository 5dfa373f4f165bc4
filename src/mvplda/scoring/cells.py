"""Profiles with the same table of cells, and the latents that such a profile has.

The matrices of a score depend on a profile through its table alone: how many vectors every cell holds, and which
cells share a class of which view. Profiles with equal tables are scored together (docs/math.md, section 9.6).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Literal

import numpy as np

from .._typing import AnyArray, Array, IntArray
from ..backend import like, namespace
from ..exceptions import ParameterError
from ..labels import base_columns, parts_of
from .evidence import Index, log_evidence_matrix, substitute
from .profiles import Profiles
from .question import Hypothesis

Known = tuple[tuple[int, ...], ...]
"""Training class of every class of a side, by base view; -1 where there is none."""


@dataclass(frozen=True)
class CellTable:
    """What profiles of one kind have in common.

    views : the model's views with their ranks
    weights : how many vectors every cell counts for
    classes : (base views) of (cells), class of every cell, numbered within the profile
    names : (base views) of (classes), number of every class's name; -1 where it has none
    """

    views: tuple[tuple[str, int], ...]
    weights: tuple[float, ...]
    classes: tuple[tuple[int, ...], ...]
    names: tuple[tuple[int, ...], ...]

    @cached_property
    def base(self) -> tuple[str, ...]:
        return base_columns([view for view, _ in self.views])

    @cached_property
    def blocks(self) -> dict[tuple[int, tuple[int, ...]], slice]:
        """Where the latents of every class of every view stand: {(view, classes of its parts): slice}."""
        found: dict[tuple[int, tuple[int, ...]], slice] = {}
        end = 0
        for k, (_, rank) in enumerate(self.views):
            for cell in range(len(self.weights)):
                key = (k, self._parts(k, cell))
                if key not in found:
                    found[key] = slice(end, end + rank)
                    end += rank
        return found

    @cached_property
    def width(self) -> int:
        return int(max(where.stop for where in self.blocks.values()))

    @cached_property
    def places(self) -> Index:
        """(cells, r): which of the side's latents are those of every cell."""
        views = range(len(self.views))
        rows = [
            np.concatenate([np.r_[self.blocks[k, self._parts(k, cell)]] for k in views])
            for cell in range(len(self.weights))
        ]
        return np.stack(rows).astype(np.int64)

    def _parts(self, view: int, cell: int) -> tuple[int, ...]:
        return tuple(
            self.classes[self.base.index(part)][cell] for part in parts_of(self.views[view][0])
        )

    def precision(self, gram: AnyArray) -> Any:
        """(width, width) N: the cells' evidence matrices, added where their latents stand."""
        total = namespace(gram).zeros((self.width, self.width))
        for place, weight in zip(self.places, self.weights, strict=True):
            total[np.ix_(place, place)] += weight * gram  # (V5)
        return total


@dataclass(frozen=True)
class Group:
    """Profiles of one kind: their numbers (p,), and (p, cells) rows of y.

    whole : these are all profiles, in their order, of one cell each
    """

    table: CellTable
    profiles: IntArray
    rows: IntArray
    whole: bool = False

    def gather(self, y: AnyArray) -> Any:
        """(profiles, width) evidence of the profiles, from the cells' y."""
        if self.whole:
            return y
        if len(self.table.weights) == 1:
            return y[like(self.rows[:, 0], y)]
        flat = y[like(self.rows.reshape(-1), y)].reshape(len(self.rows), -1)
        spread = np.zeros((flat.shape[1], self.table.width))
        spread[np.arange(len(spread)), self.table.places.reshape(-1)] = 1.0  # (V5)
        return flat @ like(spread, flat)

    def cut(self, which: slice | IntArray) -> Group:
        """Some of the profiles."""
        return Group(self.table, self.profiles[which], self.rows[which])


def group_profiles(
    profiles: Profiles, views: Mapping[str, int], names: Mapping[str, IntArray]
) -> Iterator[Group]:
    """Groups of profiles with equal tables.

    names : {view: (R,) number of every cell's class name, the same on both sides of a comparison}, of the views
        where it matters which class it is
    """
    base = base_columns(tuple(views))
    ranks = tuple(views.items())
    if not profiles.labels and not names:  # one cell a profile, and only its weight can differ
        unnamed = ((-1,),) * len(base)
        weights = profiles.weights
        if (weights == weights[0]).all():
            every = np.arange(len(weights))
            table = CellTable(ranks, (float(weights[0]),), ((0,),) * len(base), unnamed)
            yield Group(table, every, every[:, None], whole=True)
            return
        sizes, kind = np.unique(weights, return_inverse=True)
        order, bounds = _sorted_groups(kind.reshape(-1), len(sizes))
        for i, size in enumerate(sizes):
            members = order[bounds[i] : bounds[i + 1]]
            table = CellTable(ranks, (float(size),), ((0,),) * len(base), unnamed)
            yield Group(table, members, members[:, None])
        return
    codes = {view: _own_codes(profiles, view) for view in base}
    order = np.lexsort([*codes.values(), profiles.weights, *names.values(), profiles.owner])
    starts = np.searchsorted(profiles.owner, np.arange(len(profiles) + 1))
    lengths = np.diff(starts)
    for length in np.unique(lengths):
        numbers = np.flatnonzero(lengths == length)
        rows = order[starts[numbers][:, None] + np.arange(length)]
        first = {v: _first_alike(codes[v][rows]) for v in base}
        key = [profiles.weights[rows], *(first[v] for v in base), *(names[v][rows] for v in names)]
        _, lead, kind = np.unique(
            np.concatenate(key, axis=1), axis=0, return_index=True, return_inverse=True
        )
        members, bounds = _sorted_groups(kind.reshape(-1), len(lead))
        for i, example in enumerate(lead):
            some = members[bounds[i] : bounds[i + 1]]
            classes, called = [], []
            for v in base:
                leaders, numbered = np.unique(first[v][example], return_inverse=True)
                classes.append(tuple(int(c) for c in numbered.reshape(-1)))
                called.append(
                    tuple(int(names[v][rows[example, j]]) if v in names else -1 for j in leaders)
                )
            counts = tuple(float(w) for w in profiles.weights[rows[example]])
            table = CellTable(ranks, counts, tuple(classes), tuple(called))
            yield Group(table, numbers[some], rows[some])


def _own_codes(profiles: Profiles, view: str) -> IntArray:
    """Codes that tell the classes of a profile apart: missing labels are classes of their own."""
    if view not in profiles.labels:
        return np.zeros(len(profiles.owner), dtype=np.int64)
    codes = profiles.labels[view].codes
    return np.where(codes < 0, -1 - np.arange(len(codes)), codes)


def _first_alike(codes: IntArray) -> IntArray:
    """(profiles, cells) number of the first cell of the same class."""
    return np.asarray((codes[:, :, None] == codes[:, None, :]).argmax(axis=2))


def _sorted_groups(kind: IntArray, size: int) -> tuple[IntArray, IntArray]:
    order = np.argsort(kind, kind="stable")
    return order, np.searchsorted(kind[order], np.arange(size + 1))


@dataclass(frozen=True)
class KnownClasses:
    """Training posteriors of the classes of one view.

    means, roots : (C, rank), (C, rank, rank) with covariance = root root'
    alike : (C,) number of the first class with the same covariance
    """

    means: Array
    roots: Array
    alike: IntArray

    @classmethod
    def of(cls, means: Array, covariances: Array) -> KnownClasses:
        scale = np.abs(covariances).max(initial=1e-300)
        alike = np.arange(len(means))
        leaders: list[int] = []
        for c, covariance in enumerate(covariances):
            same = [
                i for i in leaders if np.abs(covariances[i] - covariance).max() <= 1e-12 * scale
            ]
            alike[c] = same[0] if same else c
            leaders += [] if same else [c]
        roots = np.linalg.cholesky(covariances[alike])
        return cls(means, np.asarray(roots, dtype=np.float64), alike)


TermKey = tuple[Any, ...]
"""Counts, classes and known classes, by which matrices are kept."""


@dataclass(frozen=True)
class Standardised:
    """Evidence of profiles of one kind, seen from latents that are N(0, I) (docs/math.md, section 9.5).

    key : tells evidence matrices apart
    N : makes the (width, width) evidence matrix
    y : (profiles, width)
    log_evidence : (profiles,) what the profiles are worth on their own, or None where it is not asked for
    """

    key: TermKey
    N: Callable[[], Array]
    y: AnyArray
    log_evidence: AnyArray | None


def standardise(
    table: CellTable,
    gram: Array,
    y: AnyArray,
    reading: Known,
    posteriors: Mapping[str, KnownClasses],
    *,
    alone: bool = False,
) -> Standardised:
    """Evidence of profiles whose classes are the training classes that `reading` names."""
    known = _known_blocks(table, reading, posteriors) if posteriors else {}
    key = (
        table.weights,
        table.classes,
        tuple((where.start, k.alike[c]) for where, (k, c) in known.values()),
    )
    if not known and not alone:
        return Standardised(key, lambda: table.precision(gram), y, None)
    N = table.precision(gram)
    shift, scale = np.zeros(table.width), np.eye(table.width)
    for where, (classes, c) in known.values():
        shift[where], scale[where, where] = classes.means[c], classes.roots[c]
    N, linear, offset, along, constant = substitute(N, shift, scale)
    y_new = y @ like(linear, y) - like(offset, y)
    log_evidence = None
    if alone:
        W, log_root = log_evidence_matrix(N)
        log_evidence = (
            y @ like(along, y) + (constant + log_root) + ((y_new @ like(W, y)) * y_new).sum(1)
        )
    return Standardised(key, lambda: N, y_new, log_evidence)


def _known_blocks(
    table: CellTable, reading: Known, posteriors: Mapping[str, KnownClasses]
) -> dict[tuple[int, tuple[int, ...]], tuple[slice, tuple[KnownClasses, int]]]:
    """The latents whose class was seen in training: where they stand, and which class it is."""
    found = {}
    for (k, parts), where in table.blocks.items():
        view = table.views[k][0]
        number = reading[table.base.index(view)][parts[0]] if view in posteriors else -1
        if number >= 0:
            found[k, parts] = where, (posteriors[view], number)
    return found


# Which classes of two profiles are the same: all that a hypothesis leaves possible.
#
# A hypothesis names views. What it says of the classes of two profiles follows from the labels that the profiles
# carry and from the training classes that are known (docs/math.md, sections 9.5 and 9.6); where it leaves several
# possibilities, their likelihoods are averaged.


Role = Literal["plain", "fact", "claim"]
"""plain: named on one side at most; fact: named on both; claim: named on both, and asked about."""

Match = tuple[int, int, int]
"""Of a class of the test: the class of the enrolment that it is, its training class, and the column of what a
recogniser says of it; -1 for none."""

FRESH: Match = (-1, -1, -1)

MOST_WORLDS = 2**13


@dataclass(frozen=True)
class Naming:
    """What is known of the classes' names in one base view.

    role : what labels on both sides mean
    training : (names,) training class of every name, -1: not seen; None: training plays no part in this view
    heard : names of the classes that a recogniser tells of, by number, -1 for "none of them"; None: there is no such
    """

    role: Role = "plain"
    training: IntArray | None = None
    heard: tuple[int, ...] | None = None

    def seen(self, name: int) -> int:
        return -1 if self.training is None or name < 0 else int(self.training[name])

    def column(self, name: int) -> int:
        """Of what the recogniser says: behind the classes come that of a class it does not list, and of any class."""
        if self.heard is None:
            return -1
        return (
            len(self.heard) + 1
            if name < 0
            else self.heard.index(name)
            if name in self.heard
            else len(self.heard)
        )


@dataclass(frozen=True)
class World:
    """One possibility: the match of every class of the test, by base view, and how much it weighs."""

    matches: tuple[tuple[Match, ...], ...]
    weight: float

    @property
    def reading(self) -> Known:
        """Training class of every class of the test."""
        return tuple(tuple(known for _, known, _ in classes) for classes in self.matches)

    @property
    def columns(self) -> tuple[int, ...]:
        """Column of what a recogniser says, by base view; a test of several classes has none."""
        return tuple(max(column for _, _, column in classes) for classes in self.matches)


def enrolled_reading(table: CellTable, namings: Mapping[str, Naming]) -> Known:
    """Training class of every class of an enrolled profile."""
    return tuple(
        tuple(namings[view].seen(name) for name in names)
        for view, names in zip(table.base, table.names, strict=True)
    )


def worlds(
    hypothesis: Hypothesis, enrol: CellTable, test: CellTable, namings: Mapping[str, Naming]
) -> list[World]:
    """Everything that a hypothesis leaves possible; the weights add up to 1."""
    base = enrol.base
    options: list[Sequence[tuple[Match, ...]] | None] = []
    for i, view in enumerate(base):
        naming = namings[view]
        if naming.role == "fact" or (naming.role == "claim" and view in hypothesis):
            options.append([_by_name(enrol.names[i], test.names[i], naming)])
        elif naming.role == "claim":
            options.append(_otherwise(enrol.names[i], test.names[i], naming))
        elif view in hypothesis:
            options.append(None)
        else:
            options.append(_outside(enrol.names[i], test.names[i], naming))
    met = [i for i, option in enumerate(options) if option is None]
    meetings = Counter(
        tuple((enrol.classes[i][e], test.classes[i][t]) for i in met)
        for e in range(len(enrol.weights))
        for t in range(len(test.weights))
    )
    _refuse_too_many(
        len(meetings) * float(np.prod([len(option) for option in options if option is not None]))
    )
    found: Counter[tuple[tuple[Match, ...], ...]] = Counter()
    for meeting, times in meetings.items():
        chosen = list(options)
        for i, (e, t) in zip(met, meeting, strict=True):
            name = enrol.names[i][e]
            match = (e, namings[base[i]].seen(name), namings[base[i]].column(name))
            chosen[i] = [tuple(match if c == t else FRESH for c in range(len(test.names[i])))]
        for matches in product(*(option for option in chosen if option is not None)):
            found[matches] += times
    total = sum(found.values())
    return [World(matches, times / total) for matches, times in found.items()]


def _refuse_too_many(possibilities: float) -> None:
    if possibilities > MOST_WORLDS:
        raise ParameterError(
            f"a trial leaves {possibilities:.0f} possibilities of which class is which, more than {MOST_WORLDS}: "
            "ask about fewer labelled vectors at once, or leave the labelled view out of same= so that labels are facts"
        )


def _by_name(enrolled: Sequence[int], tested: Sequence[int], naming: Naming) -> tuple[Match, ...]:
    """Equal names are the same class."""
    at = {name: e for e, name in enumerate(enrolled) if name >= 0}
    return tuple((at.get(name, -1), naming.seen(name), -1) for name in tested)


def _otherwise(
    enrolled: Sequence[int], tested: Sequence[int], naming: Naming
) -> list[tuple[Match, ...]]:
    """Not all labels of the test are true: one class is in truth another enrolled or known one, or none of them; or
    all are none of them."""
    truth = _by_name(enrolled, tested, naming)
    names = {name: e for e, name in enumerate(enrolled) if name >= 0}
    if naming.training is not None:
        names |= {
            int(name): names.get(int(name), -1) for name in np.flatnonzero(naming.training >= 0)
        }
    others = [
        FRESH,
        *((e, naming.seen(name), -1) for name, e in names.items() if name not in tested),
    ]
    claimed = [c for c, name in enumerate(tested) if name >= 0]
    found = [(*truth[:c], other, *truth[c + 1 :]) for c in claimed for other in others]
    if len(claimed) > 1:
        found.append(tuple(FRESH if c in claimed else match for c, match in enumerate(truth)))
    return found or [truth]


def _outside(
    enrolled: Sequence[int], tested: Sequence[int], naming: Naming
) -> list[tuple[Match, ...]]:
    """The test's classes are none of the enrolled: another known class where that is known, or a new one."""
    fresh = (FRESH,) * len(tested)
    if naming.heard is not None:
        left = [name for name in naming.heard if name < 0 or name not in enrolled]
        heard: list[tuple[Match, ...]] = [
            ((-1, naming.seen(name), naming.heard.index(name)),) for name in left
        ]
        return heard or [((-1, -1, len(naming.heard)),)]
    if (
        naming.training is None
        or len(tested) > 1
        or all(naming.seen(name) < 0 for name in enrolled)
    ):
        return [fresh]
    others = np.setdiff1d(np.flatnonzero(naming.training >= 0), enrolled)
    return [fresh, *(((-1, naming.seen(int(name)), -1),) for name in others)]


def shared_latents(enrol: CellTable, test: CellTable, world: World) -> tuple[Index, Index]:
    """Numbers of the latents that the two sides share: in the enrolment, and the same ones in the test."""
    keep_e: list[int] = []
    keep_t: list[int] = []
    for (k, classes), where in test.blocks.items():
        parts = [test.base.index(part) for part in parts_of(test.views[k][0])]
        met = tuple(world.matches[i][c][0] for i, c in zip(parts, classes, strict=True))
        there = enrol.blocks.get(
            (k, met)
        )  # an interaction is shared where all its parts are, and it was enrolled
        if min(met) >= 0 and there is not None:
            keep_e += range(there.start, there.stop)
            keep_t += range(where.start, where.stop)
    return np.asarray(keep_e, dtype=np.int64), np.asarray(keep_t, dtype=np.int64)
