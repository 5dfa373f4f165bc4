"""One engine over pair forms: matrices, lists, the best profiles, and log-likelihoods of hypotheses.

A question gives hypotheses with weights, labels and known classes give worlds of each hypothesis, a scorer gives a
pair form for every world, and

    LLR = log sum over worlds for (exp(F_w) weight) - log sum over worlds against (exp(F_w) weight)    (V4)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import DTypeLike

from .._typing import AnyArray, Array, FloatArray, IntArray
from ..backend import (
    cast,
    dtype_name,
    empty,
    is_torch,
    largest,
    like,
    namespace,
    on_cuda,
    one_blas_thread,
    to_host,
)
from ..exceptions import DataError
from . import blocks
from .blocks import (
    Factors,
    PairEvaluation,
    Several,
    Terms,
    best_of,
    fill_matrix,
    log_sum,
    merge_best,
)
from .forms import Forms, FormSide
from .profiles import Profiles
from .question import Hypothesis, Ratio
from .worlds import (
    Group,
    Matches,
    Naming,
    Reading,
    Table,
    World,
    enrolled_reading,
    group_profiles,
    worlds,
)

KEPT_WORLDS = 2**12
"""What hypotheses leave possible is kept for this many pairs of tables."""

MADE_TIMES = 6
"""Factors of profiles are kept up to so many times the size of their evidence."""

READ_NUMBERS = 2**22
"""Tests are seen as every known class in chunks of about this many numbers."""

FLOAT32_TERMS = 2.0**16
"""Terms larger than this are not held in float32: their rounding would show in the LLRs."""

FLOAT64_TERMS = 2.0**52
"""Terms larger than this are rounded to more than a nat even in float64."""

PAIR_CHUNK = 2**16
"""Trials of a list that are scored at a time."""


class Memory:
    """What scoring keeps of a scorer from call to call: nothing that it could not make again."""

    def __init__(self) -> None:
        self.worlds: dict[tuple[Hypothesis, Table, Table], list[World]] = {}
        self.groups: WeakKeyDictionary[Profiles, list[Group]] = WeakKeyDictionary()
        self.halves: WeakKeyDictionary[Profiles, dict[Hashable, Half]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Half:
    """One side's factor of one form: [E, row, 1] or [T, 1, column].

    size : the largest number that it can bring into a score
    """

    values: AnyArray
    size: float

    @classmethod
    def of(
        cls, blocks: Sequence[tuple[float, AnyArray]], own: Any, dtype: str, *, row: bool
    ) -> Half:
        width = sum(block.shape[1] for _, block in blocks)
        values = empty((len(own), width + 2), dtype, own)
        start = 0
        sizes = abs(own)
        for factor, block in blocks:
            stop = start + block.shape[1]
            if factor == 1.0:
                values[:, start:stop] = block
            else:
                values[:, start:stop] = factor * block
            sizes = sizes + abs(factor) * namespace(block).einsum("ij,ij->i", block, block)
            start = stop
        values[:, width] = own if row else 1.0
        values[:, width + 1] = 1.0 if row else own
        return cls(values, largest(sizes))

    def far(self) -> IntArray:
        """Rows that are too large to be scored."""
        values = to_host(self.values).astype(np.float64)
        sizes = (values[:, :-2] ** 2).sum(axis=1) + np.abs(values[:, -2:]).sum(axis=1)
        return np.flatnonzero(~(sizes <= FLOAT64_TERMS))


@dataclass(frozen=True)
class Side:
    """One set of profiles in a comparison.

    names : {view: (cells,) number of every cell's class name}, of the views where names matter
    """

    profiles: Profiles
    names: dict[str, IntArray]


class _Enrolled:
    """Profiles of one table, with the training classes that they have."""

    def __init__(self, comparison: Comparison, group: Group) -> None:
        self.group = group
        self.reading: Reading = enrolled_reading(group.table, comparison.namings)
        self.y = group.gather(comparison.enrol.profiles.y)
        self.side = comparison.forms.side(group.table, self.y)


class _Tested:
    """Tests of one table, and their log-likelihoods as the training classes that they may be of."""

    def __init__(self, comparison: Comparison, group: Group) -> None:
        self.comparison = comparison
        self.group = group
        self.y = group.gather(comparison.test.profiles.y)
        self.side = comparison.forms.side(group.table, self.y)
        self._alone: dict[Reading, Any] = {}
        self._best: Any = None

    def read_as(self, readings: set[Reading]) -> None:
        """Make the log-likelihoods of the readings of all worlds, where there are several."""
        if len(readings) < 2:
            self._best = None
            return
        for reading in readings:
            if reading not in self._alone:
                alone = self.comparison.forms.alone(self.side, reading)
                self._alone[reading] = 0.0 * self.y[:, 0, 0] if alone is None else alone
        made = iter([self._alone[reading] for reading in readings])
        best = next(made)
        for alone in made:
            best = namespace(best).maximum(best, alone)
        self._best = best

    def extra(self, world: World) -> Any:
        """(tests,) what a world makes of the tests by themselves, less the best; None where all worlds are alike.

        The log-likelihood as the world's classes, and the logarithm of a recogniser's posteriors of them.
        """
        parts = []
        if self._best is not None:
            parts.append(self._alone[world.reading] - self._best)  # (V7)
        for view, column in zip(self.group.table.base, world.columns, strict=True):
            if column >= 0:
                logs = self.comparison.heard[view][self.group.profiles, column]  # (V14)
                parts.append(like(logs, self.y))
        return sum(parts[1:], parts[0]) if parts else None


@dataclass(frozen=True)
class Comparison:
    """A question put to two sets of profiles.

    ratio : hypotheses for and against
    namings : what is known of the classes' names, by base view
    heard : {view: (tests, classes + 2) logs of a recogniser's posteriors}, see `Naming.column`
    """

    ratio: Ratio
    enrol: Side
    test: Side
    forms: Forms
    memory: Memory
    namings: Mapping[str, Naming]
    dtype: DTypeLike = np.float32
    heard: Mapping[str, Array] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.enrol.profiles), len(self.test.profiles)

    @property
    def reference(self) -> AnyArray:
        """An array of the kind and on the device of the sides."""
        return self.enrol.profiles.y

    @property
    def knows(self) -> bool:
        """Whether classes have names that matter, or posteriors."""
        return bool(self.enrol.names or self.heard)

    def parts(self) -> Iterator[tuple[IntArray, IntArray, Terms]]:
        """Profiles, tests and terms of every part of the matrix whose sides have equal tables."""
        enrolled = [_Enrolled(self, group) for group in self.groups(self.enrol)]
        for group in self.groups(self.test):
            for chunk in self._chunks(group):
                tested = _Tested(self, chunk)
                for side in enrolled:
                    yield side.group.profiles, chunk.profiles, self._terms(side, tested)

    def parts_of_pairs(
        self, pairs: IntArray
    ) -> Iterator[tuple[IntArray, IntArray, IntArray, Terms]]:
        """Of a list of trials: positions in the list, their rows and columns in the terms, and the terms."""
        groups = self.groups(self.enrol), self.groups(self.test)
        if len(groups[0]) == len(groups[1]) == 1:
            terms = self._terms(_Enrolled(self, groups[0][0]), _Tested(self, groups[1][0]))
            yield np.arange(len(pairs)), pairs[:, 0], pairs[:, 1], terms
            return
        kind = np.zeros(len(pairs), dtype=np.int64)
        places = []
        for side, n, column in zip(groups, self.shape, pairs.T, strict=True):
            group_of = np.empty(n, dtype=np.int64)
            place = np.empty(n, dtype=np.int64)
            for i, group in enumerate(side):
                group_of[group.profiles] = i
                place[group.profiles] = np.arange(len(group.profiles))
            kind = kind * len(side) + group_of[column]
            places.append(place[column])
        order = np.argsort(kind, kind="stable")
        for here in np.split(order, np.flatnonzero(np.diff(kind[order])) + 1):
            numbers = divmod(int(kind[here[0]]), len(groups[1]))
            used = [np.unique(place[here], return_inverse=True) for place in places]
            cut = [
                side[number].cut(rows)
                for side, number, (rows, _) in zip(groups, numbers, used, strict=True)
            ]
            rows, columns = (position.reshape(-1) for _, position in used)
            yield here, rows, columns, self._terms(_Enrolled(self, cut[0]), _Tested(self, cut[1]))

    def groups(self, side: Side) -> list[Group]:
        """Profiles with equal tables; kept with the scorer where no names play a part."""
        profiles = side.profiles
        if side.names:
            return list(group_profiles(profiles, self.forms.base, side.names))
        kept = self.memory.groups.get(profiles)
        if kept is None:
            kept = list(group_profiles(profiles, self.forms.base, {}))
            self.memory.groups[profiles] = kept
        return kept

    def _chunks(self, group: Group) -> Iterator[Group]:
        """Tests, as many at a time as can be seen as every known class at once."""
        trained = [n.training for n in self.namings.values() if n.training is not None]
        readings = 1 + sum(len(numbers) for numbers in trained)
        step = max(256, READ_NUMBERS // (readings * self.test.profiles.y.shape[1]))
        if readings == 1 or step >= len(group.profiles):
            yield group
            return
        for start in range(0, len(group.profiles), step):
            yield group.cut(slice(start, start + step))

    def _terms(self, enrol: _Enrolled, test: _Tested) -> Terms:
        """Numerator and denominator over two groups."""
        ratio = self.ratio
        tables = enrol.group.table, test.group.table
        possible = {h: self._worlds(h, *tables) for h in ratio.hypotheses}
        test.read_as({world.reading for some in possible.values() for world in some})
        with np.errstate(over="ignore", invalid="ignore"):
            keys = self._keys(enrol, test, possible)
            # Relative to the other hypotheses' worlds in which the sides share nothing, their term is 0.
            apart = [
                weight + world.log_weight
                for h, weight in ratio.denominator.items()
                for world in possible[h]
                if keys[world.matches] is None
            ]
            shift = -float(np.logaddexp.reduce(apart)) if apart else 0.0
            name = np.dtype(self.dtype).name
            built = self._build(enrol, test, keys, possible, shift, name)
            if self._largest(enrol.group, test.group, built) > FLOAT32_TERMS and name != "float64":
                built = self._build(enrol, test, keys, possible, shift, "float64")
        return Terms(*(tuple(_factors(piece) for piece in side) for side in built))

    def _keys(
        self, enrol: _Enrolled, test: _Tested, possible: Mapping[Hypothesis, list[World]]
    ) -> dict[Matches, Hashable | None]:
        keys: dict[Matches, Hashable | None] = {}
        for some in possible.values():
            for world in some:
                if world.matches not in keys:
                    keys[world.matches] = self.forms.key(
                        enrol.side, test.side, enrol.reading, world.matches
                    )
        return keys

    def _build(
        self,
        enrol: _Enrolled,
        test: _Tested,
        keys: Mapping[Matches, Hashable | None],
        possible: Mapping[Hypothesis, list[World]],
        shift: float,
        dtype: str,
    ) -> list[list[_Piece]]:
        """Of numerator and denominator, the pieces of the sum over worlds: one for every product."""
        sides = []
        for weighted in (self.ratio.numerator, self.ratio.denominator):
            together: dict[Hashable, list[tuple[float, World]]] = {}
            for h, log_weight in weighted.items():
                for world in possible[h]:
                    weight = log_weight + world.log_weight + shift
                    together.setdefault(keys[world.matches], []).append((weight, world))
            pieces = []
            for key, some in together.items():
                if key is None:
                    pieces.append(self._apart(enrol, test, some, dtype))
                elif len(some) == 1:
                    pieces.append(self._single(enrol, test, key, *some[0], dtype))
                else:
                    pieces.append(self._several(enrol, test, some, dtype))
            # what shares nothing stands last, as the quick ways expect it
            sides.append(sorted(pieces, key=lambda piece: piece.left is None))
        return sides

    def _single(
        self,
        enrol: _Enrolled,
        test: _Tested,
        key: Hashable,
        weight: float,
        world: World,
        dtype: str,
    ) -> _Piece:
        """A form of one world; the halves of profiles that are scored as they are last from call to call."""
        sides = enrol.side, test.side, enrol.reading, world.matches
        kept = self._halves(self.enrol, enrol.group)
        name = ("left", key, weight, dtype)
        left = kept.get(name)
        if left is None:
            made = self.forms.left(*sides)
            left = Half.of(made.blocks, made.own + weight, dtype, row=True)
            self._keep(kept, name, left, self.enrol)
        kept = self._halves(self.test, test.group)
        name = ("right", key, 0.0, dtype)
        right = kept.get(name)
        if right is None:
            made = self.forms.right(*sides)
            extra = test.extra(world)
            column = made.own if extra is None else made.own + extra
            right = Half.of(made.blocks, column, dtype, row=False)
            self._keep(kept, name, right, self.test)
        return _Piece(left, right)

    def _halves(self, side: Side, group: Group) -> dict[Hashable, Half]:
        if not group.whole or self.knows:
            return {}
        return self.memory.halves.setdefault(side.profiles, {})

    def _keep(self, kept: dict[Hashable, Half], name: Hashable, half: Half, side: Side) -> None:
        """Keep a half, as long as all of them are not much larger than the evidence."""
        y = side.profiles.y
        size = half.values.shape[0] * half.values.shape[1]
        room = max(MADE_TIMES * y.shape[0] * y.shape[1], 4 * size)
        held = sum(one.values.shape[0] * one.values.shape[1] for one in list(kept.values()))
        if size + held > room:
            kept.clear()
        kept[name] = half

    def _several(
        self,
        enrol: _Enrolled,
        test: _Tested,
        some: Sequence[tuple[float, World]],
        dtype: str,
    ) -> _Piece:
        """Worlds that differ by their rows and columns only: one product, and a sum over worlds of the rest."""
        rows = []
        columns = []
        for weight, world in some:
            sides = enrol.side, test.side, enrol.reading, world.matches
            of_enrol: FormSide = self.forms.left(*sides)
            of_test: FormSide = self.forms.right(*sides)
            extra = test.extra(world)
            rows.append(of_enrol.own + weight)
            columns.append(of_test.own if extra is None else of_test.own + extra)
        xp = namespace(rows[0])
        by_row = xp.stack(rows, 1)
        by_column = xp.stack(columns, 1)
        top_row = by_row.max(1)
        top_column = by_column.max(1)
        if not isinstance(top_row, np.ndarray):  # torch gives places, too
            top_row, top_column = top_row.values, top_column.values
        left = Half.of(of_enrol.blocks, top_row, dtype, row=True)
        right = Half.of(of_test.blocks, top_column, dtype, row=False)
        return _Piece(
            left, right, Several(by_row - top_row[:, None], by_column - top_column[:, None])
        )

    def _apart(
        self, enrol: _Enrolled, test: _Tested, some: Sequence[tuple[float, World]], dtype: str
    ) -> _Piece:
        """Worlds in which the sides share nothing: one number, or one for every test."""
        if test.extra(some[0][1]) is None:
            total = float(np.logaddexp.reduce([weight for weight, _ in some]))
            return _Piece(None, None, log_weight=0.0 if abs(total) < 1e-15 else total)
        column = log_sum([test.extra(world) + weight for weight, world in some])
        zeros = 0.0 * enrol.y[:, 0, 0]
        return _Piece(Half.of([], zeros, dtype, row=True), Half.of([], column, dtype, row=False))

    def _worlds(self, h: Hypothesis, enrol: Table, test: Table) -> list[World]:
        """What a hypothesis leaves possible; kept where no names play a part."""
        if self.knows:
            return worlds(h, enrol, test, self.namings)
        kept = self.memory.worlds.get((h, enrol, test))
        if kept is None:
            kept = worlds(h, enrol, test, self.namings)
            if len(self.memory.worlds) < KEPT_WORLDS:
                self.memory.worlds[h, enrol, test] = kept
        return kept

    def _largest(self, enrol: Group, test: Group, built: list[list[_Piece]]) -> float:
        """The largest term; what even float64 would lose is an error."""
        most = 0.0
        for piece in (piece for side in built for piece in side):
            sides = (
                ("enrolled", self.enrol, enrol, piece.left),
                ("test", self.test, test, piece.right),
            )
            for which, side, group, half in sides:
                if half is None:
                    continue
                if not half.size <= FLOAT64_TERMS:
                    _refuse_far(which, side.profiles, group.profiles[half.far()])
                most = max(most, half.size)
        return most


@dataclass(frozen=True)
class _Piece:
    """One product of a sum over worlds, before it is a `Factors`."""

    left: Half | None
    right: Half | None
    several: Several | None = None
    log_weight: float = 0.0


def _factors(piece: _Piece) -> Factors:
    if piece.left is None or piece.right is None:
        return Factors(None, None, piece.log_weight)
    return Factors(piece.left.values, piece.right.values, 0.0, piece.several)


def _refuse_far(which: str, profiles: Profiles, rows: IntArray) -> None:
    some = ", ".join(f"{i} ({profiles.ids[i]!s})" for i in rows[:3])
    more = ", ..." if len(rows) > 3 else ""
    raise DataError(
        f"{len(rows)} {which} profile(s) lie too far from the training data to be scored, "
        f"rows {some}{more}: are the vectors scaled as in training?"
    )


# -- what is asked of a comparison -----------------------------------------------------------------------------


def fill(comparison: Comparison, result: AnyArray, threads: int | None = None) -> Any:
    """Write the LLR of every profile and test into `result`."""
    with one_blas_thread():
        for rows, columns, terms in comparison.parts():
            is_whole = (len(rows), len(columns)) == tuple(result.shape)
            if is_whole and terms.dtype in (None, dtype_name(result)):
                fill_whole(terms, result, threads)
            else:
                fill_part(terms, result, rows, columns, threads)
    return result


def fill_whole(terms: Terms, result: AnyArray, threads: int | None) -> None:
    """Every row and column of terms: by the fused kernel on CUDA where it fits, in blocks elsewhere."""
    if is_torch(result) and result.is_cuda and result.is_contiguous():
        from .cuda import JointScorer, fits

        if fits(terms):
            JointScorer(terms).fill(result)
            return
    fill_matrix(terms, result, threads)


def fill_part(
    terms: Terms, result: AnyArray, rows: IntArray, columns: IntArray, threads: int | None
) -> None:
    """Write some rows and columns of a matrix, a band at a time."""
    step = max(1, blocks.SCATTER_ELEMENTS // len(columns))
    for start in range(0, len(rows), step):
        some = slice(start, min(start + step, len(rows)))
        band = empty(
            (some.stop - some.start, len(columns)), terms.dtype or dtype_name(result), result
        )
        fill_whole(terms.rows(some), band, threads)
        where = like(rows[some][:, None], result), like(columns[None, :], result)
        result[where] = cast(band, dtype_name(result))


def score_pairs(comparison: Comparison, pairs: IntArray) -> Any:
    """LLRs of a list of (profile, test), without the matrix."""
    result = empty((len(pairs), 1), comparison.dtype, comparison.reference)[:, 0]
    if len(pairs) == 0:
        return result
    with one_blas_thread():
        for here, rows, columns, terms in comparison.parts_of_pairs(pairs):
            rows = np.ascontiguousarray(rows)
            columns = np.ascontiguousarray(columns)
            evaluate = PairEvaluation(terms, len(here))
            for start in range(0, len(here), PAIR_CHUNK):
                some = slice(start, start + PAIR_CHUNK)
                target = some if len(here) == len(pairs) else like(here[some], result)
                scores = evaluate(like(rows[some], result), like(columns[some], result))
                if not isinstance(scores, float):
                    scores = cast(scores, dtype_name(result))
                result[target] = scores
    return result


def best_profiles(comparison: Comparison, top: int) -> tuple[IntArray, FloatArray]:
    """(tests, top) numbers and LLRs of the best profiles, holding one band of the matrix at a time."""
    n_tests = comparison.shape[1]
    numbers: IntArray = np.empty((n_tests, 0), dtype=np.int64)
    scores: FloatArray = np.empty((n_tests, 0))
    for rows, columns, terms in comparison.parts():
        for here, best in _bands(comparison, rows, len(columns), terms, top):
            if len(columns) == n_tests and not numbers.shape[1]:
                numbers, scores = here, best  # the first of all tests
                continue
            if numbers.shape[1] < top:
                more = ((0, 0), (0, top - numbers.shape[1]))
                numbers = np.pad(numbers, more, constant_values=-1)
                scores = np.pad(scores, more, constant_values=-np.inf)
            numbers[columns], scores[columns] = merge_best(
                numbers[columns], scores[columns], here, best, top
            )
    return numbers, scores.astype(comparison.dtype)


def _fused_best(terms: Terms, top: int) -> tuple[IntArray, FloatArray] | None:
    """The best rows by the fused kernel, where it fits."""
    from .cuda import best_rows, fits

    if not fits(terms):
        return None
    numbers, scores = best_rows(terms, top)
    return numbers.cpu().numpy(), scores.cpu().numpy()


def _bands(
    comparison: Comparison, rows: IntArray, n_columns: int, terms: Terms, top: int
) -> Iterator[tuple[IntArray, FloatArray]]:
    """The best of every band of rows; of all rows at once where the fused kernel fits."""
    if on_cuda(comparison.reference):
        fused = _fused_best(terms, min(top, len(rows)))
        if fused is not None:
            yield rows[fused[0]], fused[1]
            return
    step = max(top, blocks.SCATTER_ELEMENTS // n_columns)
    for start in range(0, len(rows), step):
        some = slice(start, min(start + step, len(rows)))
        dtype = terms.dtype or comparison.dtype
        band = empty((some.stop - some.start, n_columns), dtype, comparison.reference)
        fill_matrix(terms.rows(some), band)
        yield best_of(band, rows[some], min(top, band.shape[0]))


def log_likelihoods(
    comparison: Comparison, hypotheses: Sequence[Hypothesis], pairs: IntArray | None = None
) -> dict[Hypothesis, Any]:
    """Log-likelihood of every hypothesis in float64, relative to the last: of all pairs, or of a list (n,)."""
    last = {hypotheses[-1]: 0.0}
    logs = {}
    for h in hypotheses[:-1]:
        ratio = Ratio({h: 0.0}, last)
        one = replace(comparison, ratio=ratio, dtype=np.float64)
        if pairs is None:
            logs[h] = fill(one, empty(one.shape, np.float64, one.reference))
        else:
            logs[h] = score_pairs(one, pairs)
    shape = comparison.shape if pairs is None else (len(pairs), 1)
    nothing = empty(shape, np.float64, comparison.reference)
    nothing[:] = 0.0
    if pairs is not None:
        nothing = nothing[:, 0]
    logs[hypotheses[-1]] = nothing
    return logs
