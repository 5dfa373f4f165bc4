"""Scoring of two sets of profiles: matrices, lists, best profiles, and log-likelihoods of hypotheses.

A question gives weighted hypotheses, labels and known classes give the assignments of each hypothesis, a scorer gives
the pair terms F_w of each assignment w, and

    LLR = log sum over assignments for (weight exp(F_w)) - log sum over assignments against (weight exp(F_w))    (V4)
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import DTypeLike

from .._typing import AnyArray, FloatArray, IntArray
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
from .assignments import (
    Assignment,
    CellTable,
    ClassMatches,
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

V = TypeVar("V")

MAX_CACHED_TABLE_PAIRS = 2**12
"""Number of (hypothesis, enrolment table, test table) whose assignments are cached."""

MAX_CACHED_ASSIGNMENTS = 2**6
"""Longer lists of assignments are not cached."""

SMALL_ARRAY = 2**12
"""Arrays of up to this many numbers are compared with their cached content as bytes."""

COMPARED_ROWS = 2**10
"""Number of rows that are compared with their cached content at a time."""

MAX_CACHED_FACTORS = 8
"""Number of factors cached per set of profiles: those of one or two questions about three views."""

KNOWN_CLASS_NUMBERS = 2**22
"""Approximate size of a chunk of tests, in numbers, when every test is evaluated as every known class."""

FLOAT32_LIMIT = 2.0**16
"""Terms above this are computed in float64: the rounding of float32 would show in the LLRs."""

FLOAT64_LIMIT = 2.0**52
"""Terms above this are refused: even float64 rounds them to more than one nat."""

SINGLE_THREAD_SCORES = 2**12
"""Below this number of scores, BLAS threads are left as they are."""

PAIR_CHUNK = 2**16
"""Number of trials of a list that are scored at a time."""


class SideFactor(NamedTuple):
    """One side's factor of a product: [E, row, 1] or [T, 1, column].

    size : bound of the terms that the factor contributes, which decides on float32 or float64
    """

    values: AnyArray
    size: float


class ContentCache(Generic[V]):
    """Values by profiles; a value is valid as long as the arrays that it was computed from have the same content.

    The arrays of profiles are writable. A change in place leaves the identity of the profiles and of their arrays as
    it was, so that the content is compared with a copy in every call.
    """

    def __init__(self) -> None:
        self._entries: WeakKeyDictionary[Profiles, tuple[Hashable, list[Any], V]]
        self._entries = WeakKeyDictionary()

    def get(
        self,
        profiles: Profiles,
        key: Hashable,
        arrays: Sequence[AnyArray],
        compute: Callable[[], V],
    ) -> V:
        """Return the value of the profiles; compute it again if the key or the content of an array has changed."""
        entry = self._entries.get(profiles)
        if entry is None or entry[0] != key or not _have_content(arrays, entry[1]):
            entry = self._entries[profiles] = key, list(map(_copy, arrays)), compute()
        return entry[2]


def _copy(array: Any) -> Any:
    """Return a copy to compare with: bytes of a small array, which are compared faster."""
    is_small = isinstance(array, np.ndarray) and array.size <= SMALL_ARRAY
    return array.tobytes() if is_small else deepcopy(array)


def _have_content(arrays: Sequence[Any], copies: Sequence[Any]) -> bool:
    """Return whether arrays have the content of their copies."""
    if len(arrays) != len(copies):
        return False
    for array, copy in zip(arrays, copies, strict=True):
        if isinstance(copy, bytes):
            is_same = array.size <= SMALL_ARRAY and array.tobytes() == copy
        else:
            # in blocks, because the result of one large comparison would not fit in the processor's cache
            starts = range(0, len(copy), COMPARED_ROWS)
            blocks = (slice(start, start + COMPARED_ROWS) for start in starts)
            is_same = array.shape == copy.shape and all(
                bool((array[rows] == copy[rows]).all()) for rows in blocks
            )
        if not is_same:
            return False
    return True


class ScoringCache:
    """Results that a scorer reuses between calls; all of them can be computed again.

    assignments : by hypothesis, tables and labels
    groups, factors : by profiles; entries live as long as the profiles
    """

    def __init__(self) -> None:
        self.assignments: dict[Hashable, list[Assignment]] = {}
        self.groups: ContentCache[list[ProfileGroup]] = ContentCache()
        self.factors: ContentCache[dict[Hashable, SideFactor]] = ContentCache()


class ComparisonSide(NamedTuple):
    """One set of profiles in a comparison.

    names : {view: (cells,) number of each cell's class name}, for views whose names affect the score
    """

    profiles: Profiles
    names: dict[str, IntArray]


class GroupSide:
    """Profiles of one side that have equal tables, prepared by the scorer.

    prepared : representation of the scorer, see `PairTerms.prepare`
    training_classes : training class of each class of the profiles, by its name
    class_log_likelihoods : (n,) log-likelihoods of tests as training classes, filled by `Comparison`
    """

    def __init__(self, comparison: Comparison, side: ComparisonSide, group: ProfileGroup) -> None:
        self.is_enrolled = side is comparison.enrol
        self.profiles = side.profiles
        self.group = group
        y = group.gather(side.profiles.y)
        self.zeros: AnyArray = 0.0 * y[:, 0, 0]
        self.prepared = comparison.pair_terms.prepare(group.table, y)
        self.training_classes = enrolled_training_classes(group.table, comparison.view_labels)
        self.class_log_likelihoods: dict[TrainingClasses, AnyArray] = {}
        # factors outlive the call only if the profiles are scored as they are, without names
        self._cached_factors: dict[Hashable, SideFactor] | None = None
        if group.is_complete and not comparison.has_names:
            # weights and labels are in the keys of the terms
            evidence = [side.profiles.y]
            self._cached_factors = comparison.cache.factors.get(side.profiles, None, evidence, dict)
        # assignments with equal keys share squares
        self._squares: dict[Hashable, AnyArray] = {}
        self._one_sided: dict[Hashable, tuple[list[QuadraticTerm], AnyArray]] = {}

    def evaluate(self, terms: Iterable[QuadraticTerm]) -> AnyArray:
        """Return the (n,) sum of terms."""
        return sum((term.evaluate(self._squares) for term in terms), self.zeros)

    def one_sided(self, terms: Sequence[PairTerm]) -> AnyArray:
        """Return the (n,) row or column terms of this side, a(e) or b(t)."""
        quadratics = [term.row if self.is_enrolled else term.column for term in terms]
        key = tuple((term.key, id(term.linear), term.constant) for term in quadratics)
        if key not in self._one_sided:
            # the entry holds the terms, so that no new array can reuse an id in the key
            self._one_sided[key] = quadratics, self.evaluate(quadratics)
        return self._one_sided[key][1]

    def factor(self, terms: Sequence[PairTerm], offset: AnyArray | float, dtype: str) -> SideFactor:
        """Return the side's factor of one product, with an offset added to its one-sided term."""
        # array offsets belong to one call
        if self._cached_factors is None or not isinstance(offset, float):
            return self._make_factor(terms, offset, dtype)
        key = (self.is_enrolled, dtype, offset, *(term.key for term in terms))
        factor = self._cached_factors.get(key)
        if factor is None:
            if len(self._cached_factors) >= MAX_CACHED_FACTORS:
                self._cached_factors.clear()
            # another thread may clear the cache in between: do not read the entry back
            factor = self._cached_factors[key] = self._make_factor(terms, offset, dtype)
        return factor

    def _make_factor(
        self, terms: Sequence[PairTerm], offset: AnyArray | float, dtype: str
    ) -> SideFactor:
        one_sided = self.one_sided(terms)
        blocks = []
        sizes = abs(one_sided)
        for term in terms:
            if self.is_enrolled:
                block = multiply(term.row.values, term.left)
            else:
                block = multiply(term.column.values, term.right)
            sizes = sizes + abs(term.weight) * row_products(block, block)
            # the weight multiplies the enrolled side only
            if self.is_enrolled and term.weight != 1:
                block = term.weight * block
            blocks.append(block)
        size = largest(sizes)
        # written so that NaN is refused, too
        if not size <= FLOAT64_LIMIT:
            self._refuse(np.flatnonzero(~(to_host(sizes) <= FLOAT64_LIMIT)))
        width = sum(block.shape[1] for block in blocks)
        values = empty((len(one_sided), width + 2), dtype, one_sided)
        start = 0
        for block in blocks:
            values[:, start : start + block.shape[1]] = block
            start += block.shape[1]
        # two more columns add the one-sided terms: [E, row, 1] [T, 1, column]'  (V3)
        values[:, width:] = 1.0
        values[:, width if self.is_enrolled else width + 1] = one_sided + offset
        return SideFactor(values, size)

    def _refuse(self, rows: IntArray) -> None:
        numbers = self.group.profiles[rows]
        examples = ", ".join(f"{i} ({self.profiles.ids[i]!s})" for i in numbers[:3])
        dots = ", ..." if len(rows) > 3 else ""
        raise DataError(
            f"{len(rows)} {'enrolled' if self.is_enrolled else 'test'} profile(s) lie too far from the training data "
            f"to be scored, rows {examples}{dots}: are the vectors scaled as in training?"
        )


class WeightedAssignment(NamedTuple):
    """An assignment with its pair terms.

    log_weight : log of the hypothesis' weight times the assignment's
    """

    log_weight: float
    assignment: Assignment
    terms: list[PairTerm]


@dataclass(frozen=True)
class Comparison:
    """Comparison of two sets of profiles under a question.

    ratio : hypotheses for and against
    view_labels : role of labels and training classes, per base view
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
        """Array whose kind and device are those of the sides."""
        return self.enrol.profiles.y

    @property
    def has_names(self) -> bool:
        """Whether names of classes affect the score."""
        return bool(self.enrol.names)

    def blocks(self) -> Iterator[tuple[GroupSide, GroupSide]]:
        """Yield the two sides of every block of the matrix; within a block, the tables of each side are equal."""
        # every enrolled group is prepared once, for all groups of tests
        enrolled = [GroupSide(self, self.enrol, group) for group in self.groups(self.enrol)]
        for group in self._test_groups():
            test = GroupSide(self, self.test, group)
            for side in enrolled:
                yield side, test

    def _test_groups(self) -> Iterator[ProfileGroup]:
        """Yield groups of tests, small enough for the log-likelihoods of all known classes to fit in memory."""
        training = [labels.training for labels in self.view_labels.values()]
        class_counts = [len(numbers) for numbers in training if numbers is not None]
        numbers_per_test = (1 + sum(class_counts)) * self.test.profiles.y.shape[1]
        step = max(256, KNOWN_CLASS_NUMBERS // numbers_per_test)
        for group in self.groups(self.test):
            if not class_counts or len(group.profiles) <= step:
                yield group
                continue
            for start in range(0, len(group.profiles), step):
                yield group.subset(slice(start, start + step))

    def groups(self, side: ComparisonSide) -> list[ProfileGroup]:
        """Group profiles by cell table; cache the groups unless classes have names."""
        profiles = side.profiles
        if side.names:
            return list(group_profiles(profiles, self.pair_terms.base, side.names))
        codes = [labels.codes for labels in profiles.labels.values()]
        return self.cache.groups.get(
            profiles,
            tuple(profiles.labels),
            [profiles.weights, profiles.owner, *codes],
            lambda: list(group_profiles(profiles, self.pair_terms.base, {})),
        )

    def log_ratios(
        self, enrol: GroupSide, test: GroupSide, sums: Sequence[HypothesisWeights]
    ) -> LogRatios:
        """Return the log sums over hypotheses for one block; results are ratios to the last sum."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            weighted_sums = self.weighted_assignments(enrol, test, sums)
            test_offsets: dict[TrainingClasses, AnyArray] = {}
            if self.has_names:
                test_offsets = self._test_offsets(
                    test, [w.assignment for weighted in weighted_sums for w in weighted]
                )
            # shift all sums so that assignments that share nothing contribute exp(0) to the reference
            unshared = [w.log_weight for w in weighted_sums[-1] if not w.terms]
            shift = -float(np.logaddexp.reduce(unshared)) if unshared else 0.0
            # float32 first, because most terms are small; their sizes are known only afterwards
            dtype = "float32" if self.dtype == np.float32 else "float64"
            while True:
                sizes = [0.0]
                log_ratios = LogRatios(
                    *(
                        _assignment_sum(enrol, test, weighted, test_offsets, shift, dtype, sizes)
                        for weighted in weighted_sums
                    )
                )
                if dtype == "float64" or max(sizes) <= FLOAT32_LIMIT:
                    return log_ratios
                dtype = "float64"

    def weighted_assignments(
        self, enrol: GroupSide, test: GroupSide, sums: Sequence[HypothesisWeights]
    ) -> list[list[WeightedAssignment]]:
        """Return the assignments of every sum, with their pair terms."""
        terms_of: dict[ClassMatches, list[PairTerm]] = {}
        weighted_sums: list[list[WeightedAssignment]] = []
        for weights in sums:
            weighted: list[WeightedAssignment] = []
            for h, weight in weights.items():
                for assignment in self._assignments(h, enrol.group.table, test.group.table):
                    matches = assignment.matches
                    # hypotheses may have assignments in common
                    if matches not in terms_of:
                        terms_of[matches] = self.pair_terms.assignment_terms(
                            enrol.prepared, test.prepared, enrol.training_classes, matches
                        )
                    log_weight = weight + assignment.log_weight
                    weighted.append(WeightedAssignment(log_weight, assignment, terms_of[matches]))
            weighted_sums.append(weighted)
        return weighted_sums

    def _test_offsets(
        self, test: GroupSide, assignments: Sequence[Assignment]
    ) -> dict[TrainingClasses, AnyArray]:
        """Return (tests,) log-likelihoods as training classes, relative to the largest; empty if there is one only.

        Pair terms are relative to a test without known classes, so that this is lambda_t(d) of (V7).
        """
        offsets: dict[TrainingClasses, AnyArray] = {}
        for assignment in assignments:
            classes = assignment.test_classes
            if classes not in test.class_log_likelihoods:
                terms = self.pair_terms.side_terms(test.prepared, classes)
                test.class_log_likelihoods[classes] = test.evaluate(terms)
            offsets[classes] = test.class_log_likelihoods[classes]
        # an offset that all assignments have cancels in the ratio
        if len(offsets) < 2:
            return {}
        _, below_top = _split_largest(list(offsets.values()))
        return {classes: below_top[:, k] for k, classes in enumerate(offsets)}

    def _assignments(self, h: Hypothesis, enrol: CellTable, test: CellTable) -> list[Assignment]:
        """Return the assignments of a hypothesis; short lists are cached, because the same tables recur."""
        cache = self.cache.assignments
        key = (h, enrol, test, self._label_keys)
        assignments = cache.get(key)
        if assignments is None:
            assignments = possible_assignments(h, enrol, test, self.view_labels)
            if len(cache) >= MAX_CACHED_TABLE_PAIRS:
                cache.clear()
            if len(assignments) <= MAX_CACHED_ASSIGNMENTS:
                cache[key] = assignments
        return assignments

    @cached_property
    def _label_keys(self) -> tuple[Hashable, ...]:
        return tuple(labels.key for labels in self.view_labels.values())


def _assignment_sum(
    enrol: GroupSide,
    test: GroupSide,
    weighted: Sequence[WeightedAssignment],
    test_offsets: dict[TrainingClasses, AnyArray],
    shift: float,
    dtype: str,
    sizes: list[float],
) -> AssignmentSum:
    """Return the sum over assignments, with one product for all assignments whose terms have equal keys.

    sizes : output; the sizes of all factors are appended
    """
    # products dominate the cost; assignments that differ only in training classes share one
    by_product: dict[tuple[Hashable, ...], list[WeightedAssignment]] = {}
    for w in weighted:
        key = tuple([term.key for term in w.terms])
        by_product.setdefault(key, []).append(w)

    constant = None
    products = []
    for key, members in by_product.items():
        weights = [log_weight + shift for log_weight, _, _ in members]
        if not key and not test_offsets:
            # nothing is shared: one number for all trials
            total = float(np.logaddexp.reduce(weights))
            constant = 0.0 if abs(total) < 1e-15 else total
            continue
        offsets = [test_offsets[a.test_classes] if test_offsets else 0.0 for _, a, _ in members]
        terms = members[0].terms
        offset_sum = None
        if not key:
            # nothing is shared: one number per test
            test_columns = [test_offsets[a.test_classes] for _, a, _ in members]
            column = log_sum([a + b for a, b in zip(test_columns, weights, strict=True)])
            left = enrol.factor((), 0.0, dtype)
            right = test.factor((), column, dtype)
        elif len(members) == 1:
            left = enrol.factor(terms, weights[0], dtype)
            right = test.factor(terms, offsets[0], dtype)
        else:
            # the product holds the largest one-sided terms; `OffsetSum` adds the assignments relative to it
            rows = [enrol.one_sided(w.terms) + weights[k] for k, w in enumerate(members)]
            columns = [test.one_sided(w.terms) + offsets[k] for k, w in enumerate(members)]
            top_row, row_offsets = _split_largest(rows)
            top_column, column_offsets = _split_largest(columns)
            left = enrol.factor(terms, top_row - enrol.one_sided(terms), dtype)
            right = test.factor(terms, top_column - test.one_sided(terms), dtype)
            offset_sum = OffsetSum(row_offsets, column_offsets)
        sizes += [left.size, right.size]
        products.append(TermProduct(left.values, right.values, offset_sum))
    return AssignmentSum(tuple(products), constant)


def _split_largest(values: Sequence[AnyArray]) -> tuple[AnyArray, AnyArray]:
    """Return the (n,) elementwise maximum of k arrays (n,), and the (n, k) arrays relative to it."""
    xp = namespace(values[0])
    stacked = xp.stack(list(values), 1)
    top = stacked.max(1)
    # torch returns (values, indices)
    if not isinstance(top, np.ndarray):
        top = top.values
    return top, stacked - top[:, None]


# -- matrices, lists and best profiles -------------------------------------------------------------------------


def fill_results(
    comparison: Comparison,
    sums: Sequence[HypothesisWeights],
    results: Sequence[AnyArray],
    threads: int | None = None,
) -> None:
    """Write the log ratio of every sum to the last sum into (profiles, tests) results."""
    dtype = dtype_name(results[0])
    shape = tuple(results[0].shape)
    # blocks are spread over Python threads, which BLAS threads would slow down
    with _blas_threads(shape[0] * shape[1]):
        for enrol, test in comparison.blocks():
            log_ratios = comparison.log_ratios(enrol, test, sums)
            rows = enrol.group.profiles
            columns = test.group.profiles
            # a block that covers the matrix is written in place
            if (len(rows), len(columns)) == shape and log_ratios.dtype in (None, dtype):
                _fill_block(log_ratios, results, threads)
                continue
            for band in row_bands(len(rows), len(columns)):
                scores = _score_rows(log_ratios, band, len(columns), dtype, results[0], threads)
                row_indices = like(rows[band][:, None], scores[0])
                column_indices = like(columns[None, :], scores[0])
                for result, values in zip(results, scores, strict=True):
                    result[row_indices, column_indices] = cast(values, dtype)


def _blas_threads(n_scores: int) -> AbstractContextManager[object]:
    """Return a context with one BLAS thread; for few scores, entering it would take longer than scoring."""
    return nullcontext() if n_scores < SINGLE_THREAD_SCORES else one_blas_thread()


def _fill_block(
    log_ratios: LogRatios, outs: Sequence[AnyArray], threads: int | None = None
) -> None:
    """Write all rows and columns: with the fused kernel where it applies on CUDA, in cache-sized blocks elsewhere."""
    out = outs[0]
    if is_torch(out) and out.is_cuda and out.is_contiguous():
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
    reference: AnyArray,
    threads: int | None = None,
) -> list[AnyArray]:
    """Return (rows, columns) scores per sum, as arrays of the kind and on the device of `reference`."""
    shape = (rows.stop - rows.start, n_columns)
    scores: list[AnyArray] = [
        empty(shape, log_ratios.dtype or dtype, reference) for _ in log_ratios.sums[:-1]
    ]
    _fill_block(log_ratios.rows(rows), scores, threads)
    return scores


def score_pairs(
    comparison: Comparison, sums: Sequence[HypothesisWeights], pairs: IntArray
) -> list[AnyArray]:
    """Return the log ratio of every sum to the last sum, (n,) each, for (n, 2) pairs of profile and test."""
    shape = (len(pairs), 1)
    reference = comparison.reference
    results = [empty(shape, comparison.dtype, reference)[:, 0] for _ in sums[:-1]]
    if len(pairs) == 0:
        return results
    with _blas_threads(len(pairs)), np.errstate(divide="ignore"):
        for enrol, test in comparison.blocks():
            rows = enrol.group.positions(pairs[:, 0])
            columns = test.group.positions(pairs[:, 1])
            in_block = np.arange(len(pairs))
            if not (enrol.group.is_complete and test.group.is_complete):
                in_block = np.flatnonzero((rows >= 0) & (columns >= 0))
            if not len(in_block):
                continue
            log_ratios = comparison.log_ratios(enrol, test, sums)
            for start in range(0, len(in_block), PAIR_CHUNK):
                chunk = in_block[start : start + PAIR_CHUNK]
                scores = log_ratios.pairs(
                    like(rows[chunk], reference), like(columns[chunk], reference)
                )
                for result, values in zip(results, scores, strict=True):
                    if not isinstance(values, float):
                        values = cast(values, dtype_name(result))
                    result[like(chunk, result)] = values
    return results


def best_profiles(
    comparison: Comparison, sums: Sequence[HypothesisWeights], top: int
) -> tuple[IntArray, FloatArray]:
    """Return (tests, top) numbers and LLRs of the best profiles; memory holds one band of the matrix at a time."""
    best = BestRows(comparison.shape[1], top)
    reference = comparison.reference
    for enrol, test in comparison.blocks():
        log_ratios = comparison.log_ratios(enrol, test, sums)
        rows = enrol.group.profiles
        columns = test.group.profiles
        if on_cuda(reference):
            from .cuda import best_rows, fits

            if fits(log_ratios):
                numbers, scores = best_rows(log_ratios, min(top, len(rows)))
                best.merge(rows[to_host(numbers)], to_host(scores), columns)
                continue
        for band in row_bands(len(rows), len(columns), top):
            (band_scores,) = _score_rows(
                log_ratios, band, len(columns), comparison.dtype, reference
            )
            best.add(band_scores, rows[band], columns)
    return best.numbers, best.scores.astype(comparison.dtype)


def log_likelihoods(
    comparison: Comparison, hypotheses: Sequence[Hypothesis], pairs: IntArray | None = None
) -> LogLikelihoods:
    """Return float64 log-likelihoods of hypotheses, relative to the last: (profiles, tests), or (n,) for pairs."""
    *others, last = hypotheses
    shape = comparison.shape if pairs is None else (len(pairs),)
    logs: dict[Hypothesis, AnyArray] = {}
    if others:
        sums = [{h: 0.0} for h in hypotheses]
        if pairs is None:
            values = [empty(comparison.shape, np.float64, comparison.reference) for _ in others]
            fill_results(comparison, sums, values)
        else:
            values = score_pairs(comparison, sums, pairs)
        logs |= zip(others, values, strict=True)
    logs[last] = namespace(comparison.reference).zeros(shape)
    return logs
