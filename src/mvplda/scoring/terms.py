"""From a question and two sides to the factors of a score matrix."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike
from scipy.linalg import cholesky

from .._typing import AnyArray, Array, IntArray
from ..backend import empty, largest, like, namespace
from ..exceptions import DataError
from .cells import (
    CellTable,
    Group,
    Known,
    KnownClasses,
    Naming,
    Standardised,
    TermKey,
    World,
    enrolled_reading,
    group_profiles,
    shared_latents,
    standardise,
    worlds,
)
from .evidence import (
    Factors,
    Index,
    LatentSpace,
    PairTerm,
    Terms,
    log_evidence_matrix,
    log_sum,
    pair_term,
    wide_term,
)
from .profiles import Profiles
from .question import Hypothesis, Ratio

Scoring = Literal["exact", "paper"]

KEPT_NUMBERS = 2**24
"""Matrices of pair terms and factors of tests are kept up to this many numbers each (128 MiB)."""

KEPT_WORLDS = 2**12
"""What hypotheses leave possible is kept for this many pairs of tables."""

MADE_TIMES = 6
"""Factors of profiles are kept with them up to so many times the size of their evidence."""

READ_NUMBERS = 2**22
"""Tests are seen as every known class in chunks of about this many numbers."""

MakeHalf = Callable[[str], tuple[AnyArray, AnyArray]]
"""Makes a factor in some dtype, and the sizes of its rows."""

FLOAT32_TERMS = 2.0**16
"""Terms larger than this are not held in float32: their rounding would show in the LLRs."""

FLOAT64_TERMS = 2.0**52
"""Terms larger than this are rounded to more than a nat even in float64."""


class TermCache:
    """Pair terms by the sides that they belong to; the oldest go when there are too many."""

    def __init__(self) -> None:
        self._terms: OrderedDict[TermKey, PairTerm] = OrderedDict()
        self._numbers = 0

    def get(self, key: TermKey, make: Callable[[], PairTerm]) -> PairTerm:
        term = self._terms.get(key)
        if term is not None:
            return term
        term = make()
        self._terms[key] = term
        self._numbers += _numbers_of(term)
        while self._numbers > KEPT_NUMBERS and len(self._terms) > 1:
            _, oldest = self._terms.popitem(last=False)
            self._numbers -= _numbers_of(oldest)
        return term


def _numbers_of(term: PairTerm) -> int:
    return sum(
        int(np.prod(matrix.shape)) for matrix in (term.left, term.right, term.row, term.column)
    )


@dataclass(frozen=True)
class Linked:
    """A world, and the latents that the two sides share in it."""

    world: World
    keep: tuple[Index, Index]
    log_weight: float

    @property
    def apart(self) -> bool:
        """The sides share nothing."""
        return len(self.keep[0]) == 0


@dataclass
class ScoringState:
    """What scoring keeps of a model from call to call.

    key : fingerprint of the model
    arrays : the parameters that it was made of
    """

    key: str
    arrays: tuple[Array, ...]
    space: LatentSpace
    terms: TermCache = field(default_factory=TermCache)
    worlds: dict[tuple[Hypothesis, CellTable, CellTable], list[Linked]] = field(
        default_factory=dict
    )
    posteriors: dict[str, tuple[tuple[Array, Array], KnownClasses]] = field(default_factory=dict)


@dataclass(frozen=True)
class Side:
    """One set of profiles in a comparison.

    names : {view: (cells,) number of every cell's class name}, of the views where names matter
    """

    profiles: Profiles
    names: dict[str, IntArray]


class _Kind:
    """Profiles of one kind on one side of a comparison, as every training class that they may be of."""

    def __init__(self, comparison: Comparison, side: Side, group: Group) -> None:
        self.comparison, self.side, self.group = comparison, side, group
        self.y = group.gather(side.profiles.y)
        self._seen: dict[Known, Standardised] = {}
        self._narrow: dict[Known, AnyArray] = {}
        self._best: Any = None
        self._halves: dict[TermKey, _Half] = {}
        self._kept = 0

    def as_classes(self, readings: set[Known]) -> None:
        """Make the readings that a question needs; where there are several, what each makes of the vectors."""
        if readings <= self._seen.keys():
            return
        needed = readings | self._seen.keys()
        alone = len(needed) > 1
        table, gram, posteriors = (
            self.group.table,
            self.comparison.state.space.gram,
            self.comparison.posteriors,
        )
        for reading in needed:
            if reading not in self._seen or (alone and self._seen[reading].log_evidence is None):
                self._seen[reading] = standardise(
                    table, gram, self.y, reading, posteriors, alone=alone
                )
        if alone:
            self._best = None
            for seen in self._seen.values():
                own: Any = seen.log_evidence
                self._best = own if self._best is None else namespace(own).maximum(self._best, own)
            self._halves, self._kept = {}, 0  # their columns are relative to the best

    def seen(self, reading: Known) -> Standardised:
        return self._seen[reading]

    def y_for(self, term: PairTerm, reading: Known) -> AnyArray:
        """The evidence that a term is a form of."""
        y = self._seen[reading].y
        if term.basis is None:
            return y
        if reading not in self._narrow:
            self._narrow[reading] = y @ like(term.basis, y)
        return self._narrow[reading]

    def extra(self, world: World) -> Any:
        """What a world makes of the vectors and of what is heard in them; None where all are alike.

        Log evidence as the world's classes, less the best; and the logarithm of what a recogniser says of them.
        """
        parts = [] if self._best is None else [self._seen[world.reading].log_evidence - self._best]
        for view, column in zip(self.group.table.base, world.columns, strict=True):
            if column >= 0:
                parts.append(
                    like(self.comparison.heard[view][self.group.profiles, column], self.y)
                )  # (V14)
        return sum(parts[1:], parts[0]) if parts else None

    def half(self, key: TermKey, reading: Known, make: MakeHalf) -> _Half:
        """A factor of this side, made once a comparison; once for all where nothing but the profiles is in it."""
        lasting = self.group.whole and not self.comparison.posteriors and not self.comparison.heard
        halves = self.side.profiles.kept.setdefault("halves", {}) if lasting else self._halves
        half = halves.get((key, reading))
        if half is None:
            half = _Half(make, self.comparison.dtype)
            size = half.shape[0] * half.shape[1]
            if lasting:
                room = max(MADE_TIMES * self.y.shape[0] * self.y.shape[1], 4 * size)
                if size + sum(h.shape[0] * h.shape[1] for h in list(halves.values())) > room:
                    halves.clear()
                halves[key, reading] = half
            elif self._kept + size <= KEPT_NUMBERS:
                self._kept += size
                halves[key, reading] = half
        return half


class _Half:
    """One side's factor of one term, in the dtypes that were asked for.

    shape : of the factor
    size : the largest number that it can bring into a score
    """

    def __init__(self, make: MakeHalf, dtype: DTypeLike) -> None:
        self._make, name = make, np.dtype(dtype).name
        values, sizes = make(name)
        self._made = {name: values}
        self.shape, self.size = tuple(values.shape), largest(sizes)

    def sizes(self) -> AnyArray:
        return self._make("float64")[1]

    def as_dtype(self, dtype: DTypeLike) -> AnyArray:
        name = np.dtype(dtype).name
        if name not in self._made:
            self._made[name] = self._make(name)[0]
        return self._made[name]


def _left(
    term: PairTerm, of: Callable[[], AnyArray], log_weight: float, dtype: str
) -> tuple[AnyArray, AnyArray]:
    """[E, row, 1], and the sizes of its rows."""
    y = of()
    cross = _times(y, term, "left")
    return _with_own(
        cross, _own(term, "row", y, cross) + (term.constant + log_weight), dtype, row=True
    )


def _right(
    term: PairTerm, of: Callable[[], AnyArray], extra: AnyArray | None, dtype: str
) -> tuple[AnyArray, AnyArray]:
    """[T, 1, column], and the sizes of its rows."""
    y = of()
    cross = _times(y, term, "right")
    own = _own(term, "column", y, cross)
    return _with_own(cross, own if extra is None else own + extra, dtype, row=False)


def _own(term: PairTerm, name: str, y: AnyArray, cross: AnyArray) -> Any:
    """(n,) what a side says by itself."""
    weights = getattr(term, name)
    return (
        (cross * cross) @ like(weights, y)
        if weights.ndim == 1
        else _row_products(_times(y, term, name), y)
    )


def _with_own(
    cross: AnyArray, own: AnyArray, dtype: str, *, row: bool
) -> tuple[AnyArray, AnyArray]:
    width = cross.shape[1]
    values = empty((len(cross), width + 2), dtype, cross)
    values[:, :width] = cross
    values[:, width], values[:, width + 1] = (own, 1.0) if row else (1.0, own)
    return values, abs(own) + _row_products(cross, cross)


def _row_products(a: AnyArray, b: AnyArray) -> Any:
    """(n,) products of the rows of two (n, m), without an array of their size."""
    return namespace(a).einsum("ij,ij->i", a, b)


def _times(y: AnyArray, term: PairTerm, name: str) -> Any:
    diagonal = term.diagonals.get(name)
    return y @ like(getattr(term, name), y) if diagonal is None else y * like(diagonal, y)


@dataclass(frozen=True)
class Comparison:
    """A question put to two sets of profiles.

    namings : what is known of the classes' names, by base view
    posteriors : of training classes, by the views in which they are known
    heard : {view: (tests, classes + 2) logs of what a recogniser says of the tests}, see `Naming.column`
    """

    ratio: Ratio
    enrol: Side
    test: Side
    state: ScoringState
    namings: Mapping[str, Naming]
    posteriors: Mapping[str, KnownClasses]
    scoring: Scoring = "exact"
    dtype: DTypeLike = np.float32
    heard: Mapping[str, Array] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.enrol.profiles), len(self.test.profiles)

    @property
    def reference(self) -> AnyArray:
        """An array of the kind and on the device of the sides."""
        return self.enrol.profiles.y

    def parts(self) -> Iterator[tuple[IntArray, IntArray, Terms]]:
        """Profiles, tests and terms of every part of the matrix whose sides have equal tables."""
        enrolled = [self._enrolled(group) for group in self._groups(self.enrol)]
        for group in self._groups(self.test):
            for chunk in self._chunks(group):
                tested = _Kind(self, self.test, chunk)
                for side in enrolled:
                    yield side.group.profiles, chunk.profiles, self._terms(side, tested)

    def parts_of_pairs(
        self, pairs: IntArray
    ) -> Iterator[tuple[IntArray, IntArray, IntArray, Terms]]:
        """Of a list of trials: positions in the list, their rows and columns in the terms, and the terms."""
        groups = [list(self._groups(side)) for side in (self.enrol, self.test)]
        if len(groups[0]) == len(groups[1]) == 1:
            terms = self._terms(self._enrolled(groups[0][0]), _Kind(self, self.test, groups[1][0]))
            yield np.arange(len(pairs)), pairs[:, 0], pairs[:, 1], terms
            return
        kind = np.zeros(len(pairs), dtype=np.int64)
        place = []
        for side, n, column in zip(groups, self.shape, pairs.T, strict=True):
            of, at = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
            for i, group in enumerate(side):
                of[group.profiles], at[group.profiles] = i, np.arange(len(group.profiles))
            kind = kind * len(side) + of[column]
            place.append(at[column])
        order = np.argsort(kind, kind="stable")
        for here in np.split(order, np.flatnonzero(np.diff(kind[order])) + 1):
            numbers = divmod(int(kind[here[0]]), len(groups[1]))
            some, where = [], []
            for side, number, at in zip(groups, numbers, place, strict=True):
                used, position = np.unique(at[here], return_inverse=True)
                some.append(side[number].cut(used))
                where.append(position.reshape(-1))
            yield (
                here,
                where[0],
                where[1],
                self._terms(self._enrolled(some[0]), _Kind(self, self.test, some[1])),
            )

    def _groups(self, side: Side) -> list[Group]:
        if side.names:
            return list(group_profiles(side.profiles, self.ratio.views, side.names))
        kept = side.profiles.kept
        if "groups" not in kept:
            kept["groups"] = list(group_profiles(side.profiles, self.ratio.views, {}))
        return list(kept["groups"])

    def _chunks(self, group: Group) -> Iterator[Group]:
        """Tests, as many at a time as can be seen as every known class at once."""
        readings = 1 + sum(len(known.means) for known in self.posteriors.values())
        step = max(256, READ_NUMBERS // (readings * group.table.width))
        if readings == 1 or step >= len(group.profiles):
            yield group
            return
        for start in range(0, len(group.profiles), step):
            yield group.cut(slice(start, start + step))

    def _enrolled(self, group: Group) -> _Kind:
        kind = _Kind(self, self.enrol, group)
        kind.as_classes({enrolled_reading(group.table, self.namings)})
        return kind

    def _terms(self, enrol: _Kind, test: _Kind) -> Terms:
        tables = enrol.group.table, test.group.table
        own = enrolled_reading(tables[0], self.namings)
        ratio = self.ratio
        possible = {h: self._worlds(h, *tables) for h in ratio.hypotheses}
        test.as_classes({linked.world.reading for some in possible.values() for linked in some})
        # Relative to the other hypotheses' worlds in which the sides share nothing, their term is 0.
        apart = [
            w + x.log_weight for h, w in ratio.denominator.items() for x in possible[h] if x.apart
        ]
        shift = -float(np.logaddexp.reduce(apart)) if apart else 0.0
        halves: list[tuple[_Half, _Half]] = []

        # A side of the ratio is a sum over hypotheses, and within each over the worlds it leaves possible. Terms are
        # relative to p(e) p(t), the same in all of them; where tests may be of known classes, p(t) is that of the
        # likeliest, and `extra` says how much less likely the others make the test (9.5).
        def side(weighted: Mapping[Hypothesis, float]) -> list[tuple[_Half, _Half] | float]:
            made: list[tuple[_Half, _Half] | float] = []
            apart: list[tuple[float, World]] = []
            for h, log_weight in weighted.items():
                for linked in possible[h]:
                    weight = log_weight + linked.log_weight + shift
                    reading = linked.world.reading
                    key, found = self._pair_term(enrol.seen(own), test.seen(reading), h, linked)
                    if found is None:
                        apart.append((weight, linked.world))
                        continue
                    term = self.state.terms.get(key, found)
                    left = enrol.half(
                        (key, weight),
                        own,
                        partial(_left, term, partial(enrol.y_for, term, own), weight),
                    )
                    make = partial(
                        _right, term, partial(test.y_for, term, reading), test.extra(linked.world)
                    )
                    right = test.half((key, linked.world.columns), reading, make)
                    halves.append((left, right))  # (V7)
                    made.append((left, right))
            if apart:
                made.append(self._apart(enrol, test, apart, halves))
            return made

        with np.errstate(over="ignore", invalid="ignore"):
            sides = side(ratio.numerator), side(ratio.denominator)
            dtype = self._safe_dtype(enrol.group, test.group, halves)

        def factors(parts: list[tuple[_Half, _Half] | float]) -> tuple[Factors, ...]:
            return tuple(
                Factors(None, None, part)
                if isinstance(part, float)
                else Factors(part[0].as_dtype(dtype), part[1].as_dtype(dtype), 0.0)
                for part in parts
            )

        return Terms(factors(sides[0]), factors(sides[1]))

    def _apart(
        self,
        enrol: _Kind,
        test: _Kind,
        apart: list[tuple[float, World]],
        halves: list[tuple[_Half, _Half]],
    ) -> tuple[_Half, _Half] | float:
        """Worlds in which the sides share nothing: one number, or one for every test."""
        if test.extra(apart[0][1]) is None:
            total = float(np.logaddexp.reduce([weight for weight, _ in apart]))
            return 0.0 if abs(total) < 1e-15 else total
        column = log_sum([test.extra(world) + weight for weight, world in apart])
        zeros = 0.0 * enrol.y[:, 0]
        pair = (
            _Half(lambda dtype: _with_own(enrol.y[:, :0], zeros, dtype, row=True), self.dtype),
            _Half(lambda dtype: _with_own(test.y[:, :0], column, dtype, row=False), self.dtype),
        )
        halves.append(pair)
        return pair

    def _worlds(self, h: Hypothesis, enrol: CellTable, test: CellTable) -> list[Linked]:
        """What a hypothesis leaves possible; kept where no names play a part."""
        plain = not self.enrol.names
        kept = self.state.worlds.get((h, enrol, test)) if plain else None
        if kept is None:
            kept = [
                Linked(world, shared_latents(enrol, test, world), float(np.log(world.weight)))
                for world in worlds(h, enrol, test, self.namings)
            ]
            if plain and len(self.state.worlds) < KEPT_WORLDS:
                self.state.worlds[h, enrol, test] = kept
        return kept

    def _pair_term(
        self, e: Standardised, t: Standardised, h: Hypothesis, linked: Linked
    ) -> tuple[TermKey, Callable[[], PairTerm] | None]:
        """What a pair term is kept under, and how it is made; nothing where the sides share nothing."""
        if self.scoring == "paper" and len(h) == 1:
            scale = np.concatenate(
                [
                    np.full(rank, np.sqrt(2.0) if view in h else 1.0)
                    for view, rank in self.ratio.views.items()
                ]
            )
            return (e.key, t.key, h), lambda: printed_term(e.N(), t.N(), scale)
        keep = linked.keep
        if linked.apart:
            return (), None
        space = self.state.space
        if space.whitened is not None and all(
            len(side.key[0]) == 1 and not side.key[2] for side in (e, t)
        ):
            counts = e.key[0][0], t.key[0][0]
            return (counts, keep[0].tobytes()), lambda: wide_term(space, *counts, keep[0])
        return (e.key, t.key, keep[0].tobytes(), keep[1].tobytes()), lambda: pair_term(
            e.N(), t.N(), *keep
        )

    def _safe_dtype(
        self, enrol: Group, test: Group, halves: list[tuple[_Half, _Half]]
    ) -> DTypeLike:
        """The dtype asked for, or float64 where float32 would lose too much; what float64 loses is an error."""
        for which, side, group, number in (
            ("enrolled", self.enrol, enrol, 0),
            ("test", self.test, test, 1),
        ):
            for pair in halves:
                if not pair[number].size <= FLOAT64_TERMS:
                    sizes = pair[number].sizes()
                    far = np.flatnonzero(~np.asarray((sizes <= FLOAT64_TERMS).tolist()))
                    rows = group.profiles[far]
                    some = ", ".join(f"{i} ({side.profiles.ids[i]!s})" for i in rows[:3])
                    raise DataError(
                        f"{len(rows)} {which} profile(s) lie too far from the training data to be scored, "
                        f"rows {some}{', ...' if len(rows) > 3 else ''}: are the vectors scaled as in training?"
                    )
        largest_size = max((half.size for pair in halves for half in pair), default=0.0)
        return np.float64 if largest_size > FLOAT32_TERMS else self.dtype


def printed_term(N_e: Array, N_t: Array, scale: Array) -> PairTerm:
    """The paper's covariance of a half-shared hypothesis, as printed.

    The doubled view's covariance stands twice, and all of it in all four blocks
    (docs/errata.md): everything is shared, with that loading times sqrt 2.
    """
    joint, k_joint = log_evidence_matrix(scale[:, None] * (N_e + N_t) * scale)
    own_e, k_e = log_evidence_matrix(N_e)
    own_t, k_t = log_evidence_matrix(N_t)
    joint = scale[:, None] * joint * scale
    root = cholesky(2 * joint, lower=True)
    return PairTerm(root, root, joint - own_e, joint - own_t, k_joint - k_e - k_t)  # (V8)
