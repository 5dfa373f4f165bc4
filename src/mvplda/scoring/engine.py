"""One engine over pair forms: matrices, lists, the best profiles, and log-likelihoods of hypotheses.

A question gives hypotheses with weights, labels and known classes give worlds of each hypothesis, a scorer gives a
pair form for every world, and

    LLR = log sum over worlds for (exp(F_w) weight) - log sum over worlds against (exp(F_w) weight)    (V4)
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import DTypeLike

from .._typing import AnyArray, FloatArray, IntArray
from ..backend import (
    cast,
    dtype_name,
    empty,
    largest,
    like,
    namespace,
    on_cuda,
    one_blas_thread,
    to_host,
)
from ..exceptions import DataError
from .assignments import (
    Assignment,
    CellTable,
    ProfileGroup,
    TrainingClasses,
    ViewLabels,
    enrolled_training_classes,
    group_profiles,
    possible_assignments,
)
from .log_sums import (
    AssignmentSum,
    BestRows,
    LogRatios,
    OffsetSum,
    TermProduct,
    fill_matrix,
    log_sum,
    row_bands,
)
from .pair_terms import PairTerm, PairTerms, QuadraticTerm, multiply, row_products
from .profiles import Profiles
from .question import Hypothesis, HypothesisWeights, LikelihoodRatio, LogLikelihoods

MAX_CACHED_TABLE_PAIRS = 2**12
"""What hypotheses leave possible is kept for this many pairs of tables."""

MAX_CACHED_ASSIGNMENTS = 2**6
"""More possibilities than these are not kept."""

MAX_CACHED_FACTORS = 8
"""Factors of profiles that are kept with them: those of one or two questions about three views."""

KNOWN_CLASS_NUMBERS = 2**22
"""Tests are seen as every known class in chunks of about this many numbers."""

FLOAT32_LIMIT = 2.0**16
"""Terms larger than this are not held in float32: their rounding would show in the LLRs."""

FLOAT64_LIMIT = 2.0**52
"""Terms larger than this are rounded to more than a nat even in float64."""

SINGLE_THREAD_SCORES = 2**12
"""So few scores need no care about threads."""

PAIR_CHUNK = 2**16
"""Trials of a list that are scored at a time."""


class SideFactor(NamedTuple):
    """One side's factor of one product: [E, row, 1] or [T, 1, column], and the largest number that it can bring in."""

    values: AnyArray
    size: float


class ScoringCache:
    """What scoring keeps of a scorer from call to call: nothing that it could not make again."""

    def __init__(self) -> None:
        # all three are bounded, or go with the profiles that they are of
        self.worlds: dict[Hashable, list[Assignment]] = {}
        self.groups: WeakKeyDictionary[Profiles, list[ProfileGroup]] = WeakKeyDictionary()
        self.halves: WeakKeyDictionary[Profiles, dict[Hashable, SideFactor]] = WeakKeyDictionary()


class ComparisonSide(NamedTuple):
    """One set of profiles in a comparison.

    names : {view: (cells,) number of every cell's class name}, of the views where names matter
    """

    profiles: Profiles
    names: dict[str, IntArray]


class GroupSide:
    """Profiles of one table, as the scorer sees them.

    kept : factors that last from call to call, where the profiles are scored as they are
    """

    def __init__(self, comparison: Comparison, side: ComparisonSide, group: ProfileGroup) -> None:
        self.comparison = comparison
        self.is_enrolled = side is comparison.enrol
        self.profiles = side.profiles
        self.group = group
        y = group.gather(side.profiles.y)
        self.zeros: AnyArray = 0.0 * y[:, 0, 0]
        self.side = comparison.pair_terms.prepare(group.table, y)
        self.training_classes: TrainingClasses = enrolled_training_classes(
            group.table, comparison.view_labels
        )
        self.kept: dict[Hashable, SideFactor] | None = None
        if group.whole and not comparison.has_names:
            self.kept = comparison.cache.halves.setdefault(side.profiles, {})
        # quadratic forms, which all worlds with equal keys have in common
        self._squares: dict[Hashable, AnyArray] = {}
        self._own: dict[Hashable, tuple[list[QuadraticTerm], AnyArray]] = {}
        # log-likelihoods as certain training classes, whatever is enrolled
        self.side_terms: dict[TrainingClasses, AnyArray] = {}

    def total(self, quadratics: Iterable[QuadraticTerm]) -> AnyArray:
        return sum((one.evaluate(self._squares) for one in quadratics), self.zeros)

    def own(self, terms: Sequence[PairTerm]) -> AnyArray:
        """(n,) what the side adds by itself: once for all worlds in which it adds the same."""
        quadratics = [term.row if self.is_enrolled else term.column for term in terms]
        key = tuple((one.key, id(one.linear), one.constant) for one in quadratics)
        if key not in self._own:
            # with the quadratics, so that no other array gets the number of one of theirs
            self._own[key] = quadratics, self.total(quadratics)
        return self._own[key][1]

    def half(self, terms: Sequence[PairTerm], more: AnyArray | float, dtype: str) -> SideFactor:
        """The factor of one world, whose own term has something added."""
        # what is added for every test by itself is of one call only
        if self.kept is None or not isinstance(more, float):
            return self.make(terms, more, dtype)
        name = (self.is_enrolled, dtype, more, *(term.key for term in terms))
        half = self.kept.get(name)
        if half is None:
            if len(self.kept) >= MAX_CACHED_FACTORS:
                self.kept.clear()
            # other threads may clear it again
            half = self.kept[name] = self.make(terms, more, dtype)
        return half

    def make(self, terms: Sequence[PairTerm], more: AnyArray | float, dtype: str) -> SideFactor:
        own = self.own(terms)
        blocks = []
        sizes = abs(own)
        for term in terms:
            if self.is_enrolled:
                block = multiply(term.row.values, term.left)
            else:
                block = multiply(term.column.values, term.right)
            sizes = sizes + abs(term.weight) * row_products(block, block)
            # factors of experts stand on the left
            if self.is_enrolled and term.weight != 1:
                block = term.weight * block
            blocks.append(block)
        size = largest(sizes)
        if not size <= FLOAT64_LIMIT:
            self._refuse(np.flatnonzero(~(to_host(sizes) <= FLOAT64_LIMIT)))
        width = sum(block.shape[1] for block in blocks)
        values = empty((len(own), width + 2), dtype, own)
        start = 0
        for block in blocks:
            values[:, start : start + block.shape[1]] = block
            start += block.shape[1]
        # own terms ride along as two more columns: [E, row, 1] [T, 1, column]'
        values[:, width:] = 1.0
        values[:, width if self.is_enrolled else width + 1] = own + more
        return SideFactor(values, size)

    def _refuse(self, rows: IntArray) -> None:
        numbers = self.group.profiles[rows]
        some = ", ".join(f"{i} ({self.profiles.ids[i]!s})" for i in numbers[:3])
        more = ", ..." if len(rows) > 3 else ""
        raise DataError(
            f"{len(rows)} {'enrolled' if self.is_enrolled else 'test'} profile(s) lie too far from the training data "
            f"to be scored, rows {some}{more}: are the vectors scaled as in training?"
        )


Extra = dict[TrainingClasses, AnyArray]
"""(tests,) log-likelihoods of tests by themselves, by their training classes."""

Possible = list[tuple[float, Assignment, list[PairTerm]]]
"""Worlds with the logarithms of their weights and their forms."""


@dataclass(frozen=True)
class Comparison:
    """A question put to two sets of profiles.

    ratio : hypotheses for and against
    namings : what is known of the classes' names, by base view
    """

    ratio: LikelihoodRatio
    enrol: ComparisonSide
    test: ComparisonSide
    pair_terms: PairTerms
    cache: ScoringCache
    view_labels: dict[str, ViewLabels]
    dtype: DTypeLike = np.float32

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.enrol.profiles), len(self.test.profiles)

    @property
    def reference(self) -> AnyArray:
        """An array of the kind and on the device of the sides."""
        return self.enrol.profiles.y

    @property
    def has_names(self) -> bool:
        """Whether classes have names that matter."""
        return bool(self.enrol.names)

    def parts(self) -> Iterator[tuple[GroupSide, GroupSide]]:
        """Profiles and tests of every part of the matrix whose sides have equal tables."""
        # the enrolled side is made once, whatever the tests' tables are
        enrolled = [GroupSide(self, self.enrol, group) for group in self.groups(self.enrol)]
        for group in self._groups_of_tests():
            tested = GroupSide(self, self.test, group)
            for side in enrolled:
                yield side, tested

    def _groups_of_tests(self) -> Iterator[ProfileGroup]:
        """Tests with equal tables, as many at a time as can be seen as every known class at once."""
        trained = [n.training for n in self.view_labels.values() if n.training is not None]
        readings = 1 + sum(len(numbers) for numbers in trained)
        step = max(256, KNOWN_CLASS_NUMBERS // (readings * self.test.profiles.y.shape[1]))
        for group in self.groups(self.test):
            if not trained or len(group.profiles) <= step:
                yield group
                continue
            for start in range(0, len(group.profiles), step):
                yield group.cut(slice(start, start + step))

    def groups(self, side: ComparisonSide) -> list[ProfileGroup]:
        """Profiles with equal tables; kept with the scorer where no names play a part."""
        profiles = side.profiles
        if side.names:
            return list(group_profiles(profiles, self.pair_terms.base, side.names))
        # profiles that are scored again and again are grouped once
        if profiles not in self.cache.groups:
            self.cache.groups[profiles] = list(group_profiles(profiles, self.pair_terms.base, {}))
        return self.cache.groups[profiles]

    def log_ratios(
        self, enrol: GroupSide, test: GroupSide, sums: Sequence[HypothesisWeights]
    ) -> LogRatios:
        """Sums of hypotheses over two groups; the last is what the others are relative to."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            every = self.possible(enrol, test, sums)
            # forms are relative to tests of which nothing is known; what is known of them adds to this
            extra: Extra = {}
            if self.has_names:
                extra = self._extra(test, [world for some in every for _, world, _ in some])
            # relative to the last hypotheses' worlds in which the sides share nothing, their term is 0
            apart = [weight for weight, _, terms in every[-1] if not terms]
            shift = -float(np.logaddexp.reduce(apart)) if apart else 0.0
            # float32 first: most terms are small, and the sizes come with the products
            dtype = "float32" if self.dtype == np.float32 else "float64"
            while True:
                sizes = [0.0]
                log_ratios = LogRatios(
                    *(_log_sum(enrol, test, some, extra, shift, dtype, sizes) for some in every)
                )
                if dtype == "float64" or max(sizes) <= FLOAT32_LIMIT:
                    return log_ratios
                dtype = "float64"

    def possible(
        self, enrol: GroupSide, test: GroupSide, sums: Sequence[HypothesisWeights]
    ) -> list[Possible]:
        """The worlds of every sum."""
        made: dict[Hashable, list[PairTerm]] = {}
        every: list[Possible] = []
        for weighted in sums:
            possible: Possible = []
            for h, weight in weighted.items():
                for world in self._worlds(h, enrol.group.table, test.group.table):
                    key = world.matches
                    if key not in made:
                        made[key] = self.pair_terms.assignment_terms(
                            enrol.side, test.side, enrol.training_classes, key
                        )
                    possible.append((weight + world.log_weight, world, made[key]))
            every.append(possible)
        return every

    def _extra(self, test: GroupSide, every: Sequence[Assignment]) -> Extra:
        """(tests,) log-likelihoods as the worlds' classes, less the best; nothing where all are alike."""
        extra: Extra = {}
        for world in every:
            if world.own not in test.side_terms:
                test.side_terms[world.own] = test.total(
                    self.pair_terms.side_terms(test.side, world.own)
                )
            extra[world.own] = test.side_terms[world.own]
        # what all worlds add cancels in the ratio
        if len(extra) < 2:
            return {}
        rest = _top_and_rest(list(extra.values()))[1]
        return {own: rest[:, k] for k, own in enumerate(extra)}  # (V7)

    def _worlds(self, h: Hypothesis, enrol: CellTable, test: CellTable) -> list[Assignment]:
        """What a hypothesis leaves possible; kept, for the same tables come again in most calls."""
        kept = self.cache.worlds
        key = (h, enrol, test, self._naming_keys)
        made = kept.get(key)
        if made is None:
            made = possible_assignments(h, enrol, test, self.view_labels)
            if len(kept) >= MAX_CACHED_TABLE_PAIRS:
                kept.clear()
            # those of many known classes would fill the memory
            if len(made) <= MAX_CACHED_ASSIGNMENTS:
                kept[key] = made
        return made

    @cached_property
    def _naming_keys(self) -> tuple[Hashable, ...]:
        return tuple(naming.key for naming in self.view_labels.values())


def _log_sum(
    enrol: GroupSide,
    test: GroupSide,
    possible: Possible,
    extra: Extra,
    shift: float,
    dtype: str,
    sizes: list[float],
) -> AssignmentSum:
    """The sum over worlds: one product for all worlds whose forms have equal keys. Their sizes go into `sizes`."""
    # products are what costs: worlds that differ in known classes alone share one
    together: dict[tuple[Hashable, ...], Possible] = {}
    for weight, world, terms in possible:
        key = tuple(term.key for term in terms)
        together.setdefault(key, []).append((weight + shift, world, terms))
    constant = None
    products = []
    for key, some in together.items():
        more = [extra[world.own] if extra else 0.0 for _, world, _ in some]
        weights = [weight for weight, _, _ in some]
        several = None
        if not key:
            # worlds in which the sides share nothing: one number, or one for every test
            if not extra:
                total = float(np.logaddexp.reduce(weights))
                constant = 0.0 if abs(total) < 1e-15 else total
                continue
            column = log_sum([extra[world.own] + weight for weight, world, _ in some])
            left = enrol.half((), 0.0, dtype)
            right = test.half((), column, dtype)
        elif len(some) == 1:
            left = enrol.half(some[0][2], weights[0], dtype)
            right = test.half(some[0][2], more[0], dtype)
        else:
            # worlds that differ by rows and columns only: the largest go into the product
            rows = [enrol.own(terms) + weight for weight, _, terms in some]
            columns = [test.own(some[k][2]) + one for k, one in enumerate(more)]
            top_row, other_rows = _top_and_rest(rows)
            top_column, other_columns = _top_and_rest(columns)
            left = enrol.half(some[0][2], top_row - enrol.own(some[0][2]), dtype)
            right = test.half(some[0][2], top_column - test.own(some[0][2]), dtype)
            several = OffsetSum(other_rows, other_columns)
        sizes += [left.size, right.size]
        products.append(TermProduct(left.values, right.values, several))
    return AssignmentSum(tuple(products), constant)


def _top_and_rest(values: Sequence[AnyArray]) -> tuple[AnyArray, AnyArray]:
    """(n,) the largest of some (n,), and (n, k) how much lower each of them is."""
    xp = namespace(values[0])
    stacked = xp.stack(list(values), 1)
    top = stacked.max(1)
    if not isinstance(top, np.ndarray):  # torch gives places, too
        top = top.values
    return top, stacked - top[:, None]


# -- what is asked of a comparison -----------------------------------------------------------------------------


def fill_results(
    comparison: Comparison,
    sums: Sequence[HypothesisWeights],
    results: Sequence[AnyArray],
    threads: int | None = None,
) -> None:
    """Write every sum but the last, relative to it, of every profile and test into the results."""
    dtype = dtype_name(results[0])
    shape = tuple(results[0].shape)
    # Python threads work on blocks: BLAS threads beside them would wait for each other
    with _blas_threads(shape[0] * shape[1]):
        for enrol, test in comparison.parts():
            log_ratios = comparison.log_ratios(enrol, test, sums)
            rows = enrol.group.profiles
            columns = test.group.profiles
            # one group on either side writes into the result, without a copy
            if (len(rows), len(columns)) == shape and log_ratios.dtype in (None, dtype):
                _fill_group(log_ratios, results, threads)
                continue
            for some in row_bands(len(rows), len(columns)):
                made = _score_rows(log_ratios, some, len(columns), dtype, results[0], threads)
                where = like(rows[some][:, None], made[0]), like(columns[None, :], made[0])
                for result, band in zip(results, made, strict=True):
                    result[where] = cast(band, dtype)


def _blas_threads(size: int) -> AbstractContextManager[object]:
    """BLAS has no use for threads where there is little to do, and setting them takes longer than a score."""
    return nullcontext() if size < SINGLE_THREAD_SCORES else one_blas_thread()


def _fill_group(
    log_ratios: LogRatios, outs: Sequence[AnyArray], threads: int | None = None
) -> None:
    """Every row and column of terms: by the fused kernel on CUDA where it fits, in blocks elsewhere."""
    out = outs[0]
    if on_cuda(out) and out.is_contiguous():
        from .cuda import JointScorer, fits

        if fits(log_ratios):
            JointScorer(log_ratios).fill(out)
            return
    fill_matrix(log_ratios, outs, threads)


def _score_rows(
    log_ratios: LogRatios,
    rows: slice,
    n_columns: int,
    dtype: DTypeLike,
    on: AnyArray,
    threads: int | None = None,
) -> list[AnyArray]:
    """(rows, columns) of some rows, one for each sum; on : an array of the kind and on the device that is wanted."""
    shape = (rows.stop - rows.start, n_columns)
    made: list[AnyArray] = [
        empty(shape, log_ratios.dtype or dtype, on) for _ in log_ratios.sums[:-1]
    ]
    _fill_group(log_ratios.rows(rows), made, threads)
    return made


def score_pairs(
    comparison: Comparison, sums: Sequence[HypothesisWeights], pairs: IntArray
) -> list[AnyArray]:
    """Every sum but the last, relative to it, of a list of (profile, test): (n,) each, without the matrix."""
    shape = (len(pairs), 1)
    reference = comparison.reference
    results = [empty(shape, comparison.dtype, reference)[:, 0] for _ in sums[:-1]]
    if len(pairs) == 0:
        return results
    with _blas_threads(len(pairs)), np.errstate(divide="ignore"):
        for enrol, test in comparison.parts():
            rows = enrol.group.places(pairs[:, 0])
            columns = test.group.places(pairs[:, 1])
            here = np.arange(len(pairs))
            if not (enrol.group.whole and test.group.whole):
                here = np.flatnonzero((rows >= 0) & (columns >= 0))
            if not len(here):
                continue
            log_ratios = comparison.log_ratios(enrol, test, sums)
            for start in range(0, len(here), PAIR_CHUNK):
                some = here[start : start + PAIR_CHUNK]
                made = log_ratios.pairs(like(rows[some], reference), like(columns[some], reference))
                for result, scores in zip(results, made, strict=True):
                    if not isinstance(scores, float):
                        scores = cast(scores, dtype_name(result))
                    result[like(some, result)] = scores
    return results


def best_profiles(
    comparison: Comparison, sums: Sequence[HypothesisWeights], top: int
) -> tuple[IntArray, FloatArray]:
    """(tests, top) numbers and LLRs of the best profiles, holding one band of the matrix at a time."""
    best = BestRows(comparison.shape[1], top)
    on = comparison.reference
    for enrol, test in comparison.parts():
        log_ratios = comparison.log_ratios(enrol, test, sums)
        rows = enrol.group.profiles
        columns = test.group.profiles
        if on_cuda(on):
            from .cuda import best_rows, fits

            if fits(log_ratios):
                numbers, scores = best_rows(log_ratios, min(top, len(rows)))
                best.merge(rows[to_host(numbers)], to_host(scores), columns)
                continue
        for some in row_bands(len(rows), len(columns), top):
            (band,) = _score_rows(log_ratios, some, len(columns), comparison.dtype, on)
            # a band is forgotten as soon as its best are known
            best.add(band, rows[some], columns)
    return best.numbers, best.scores.astype(comparison.dtype)


def log_likelihoods(
    comparison: Comparison, hypotheses: Sequence[Hypothesis], pairs: IntArray | None = None
) -> LogLikelihoods:
    """Log-likelihood of every hypothesis in float64, relative to the last: of all pairs, or of a list (n,)."""
    *others, last = hypotheses
    shape = comparison.shape if pairs is None else (len(pairs),)
    logs: dict[Hypothesis, AnyArray] = {}
    if others:
        sums = [{h: 0.0} for h in hypotheses]
        if pairs is None:
            made = [empty(comparison.shape, np.float64, comparison.reference) for _ in others]
            fill_results(comparison, sums, made)
        else:
            made = score_pairs(comparison, sums, pairs)
        logs |= zip(others, made, strict=True)
    # relative to itself, whatever worlds it has
    logs[last] = namespace(comparison.reference).zeros(shape)
    return logs
