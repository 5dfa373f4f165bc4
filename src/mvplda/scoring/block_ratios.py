"""Comparison of two sets of profiles under a question, block by block.

A question consists of weighted hypotheses. Labels and training classes determine the assignments w
of each hypothesis: which classes are the same (see ``assignments``). A scorer gives the pair terms
of each assignment; their sum F_w is the log-ratio of profile and test against "nothing shared". The
LLR of the question is then

    LLR = log S(for) - log S(against),    S = sum over assignments w of weight_w exp(F_w)    (V4)
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from .._typing import AnyArray
from ..backend import (
    namespace,
)
from .assignments import (
    Assignment,
    CellTable,
    ClassMatches,
    ProfileGroup,
    TrainingClasses,
    ViewLabels,
    group_profiles,
    possible_assignments,
)
from .comparison_sides import ComparisonSide, GroupSide, ScoringCache, SideFactor
from .log_sums import (
    AssignmentSum,
    LogRatios,
    OffsetSum,
    TermProduct,
    log_sum,
)
from .pair_terms import PairTerm, PairTerms
from .question import Hypothesis, HypothesisWeights, LikelihoodRatio

MAX_CACHED_TABLE_PAIRS = 2**12
"""Number of (hypothesis, enrolled `CellTable`, test `CellTable`) whose assignments of classes are cached."""


MAX_CACHED_ASSIGNMENTS = 2**6
"""Length of the longest list of assignments (which classes are the same) that is cached."""


KNOWN_CLASS_NUMBERS = 2**22
"""Approximate number of elements of a chunk of tests, if every test is evaluated as every training class."""


FLOAT32_LIMIT = 2.0**16
"""Largest size of terms that float32 products are used for; beyond it rounding errors would show in the LLRs."""


class WeightedAssignment(NamedTuple):
    """Assignment of classes (which are the same) with its weight and pair terms.

    log_weight : log of the hypothesis' weight times the assignment's weight
    assignment : which classes are the same
    terms : pair terms whose sum is the log-ratio under the assignment; empty if the sides share
        nothing
    """

    log_weight: float
    assignment: Assignment
    terms: list[PairTerm]


@dataclass(frozen=True)
class Comparison:
    """Everything needed to score enrolled profiles against tests for one question.

    ratio : hypotheses for and against the question, with weights
    enrol, test : the two sides
    pair_terms : pair terms of the scorer: log-ratios of profile and test under an assignment of
        classes
    cache : results that the scorer reuses between calls
    view_labels : {base view: use of its labels}, with the training classes that have their names
    dtype : type of the scores, float32 or float64
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
        """Shape of the score matrix, (profiles, tests)."""
        return len(self.enrol.profiles), len(self.test.profiles)

    @property
    def reference(self) -> AnyArray:
        """Evidence of the enrolled cells, (R, r).

        Results are arrays of the same library (NumPy or torch) and on the same device.
        """
        return self.enrol.profiles.y

    @property
    def has_names(self) -> bool:
        """Whether names of classes affect the score.

        They do if both sides have labels of a view, or if training classes are used.
        """
        return bool(self.enrol.names)

    def blocks(self) -> Iterator[tuple[GroupSide, GroupSide]]:
        """Yield pairs (enrolled group, test group), which together cover the score matrix.

        All profiles of a group have equal cell tables (`CellTable`).
        """
        # every enrolled group is prepared once, for all groups of tests
        enrolled = [GroupSide(self, self.enrol, group) for group in self.groups(self.enrol)]
        for group in self._test_groups():
            test = GroupSide(self, self.test, group)
            for side in enrolled:
                yield side, test

    def _test_groups(self) -> Iterator[ProfileGroup]:
        """Yield the groups of tests with equal cell tables; large groups are yielded in parts.

        A part is so small that the log-likelihoods of its tests as each training class fit in
        memory.
        """
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
        """Return the profiles of a side in groups with equal cell tables (`CellTable`).

        The result is cached unless names of classes affect the score.
        """
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

    def cached_factors(
        self, side: ComparisonSide, group: ProfileGroup
    ) -> dict[Hashable, SideFactor] | None:
        """Return the dict in which the matrix factors of a group are cached, by their keys.

        Return None if they are not cached: for a part of a group, or if names of classes affect the
        score.
        """
        if self.has_names:
            return None
        is_enrolled = side is self.enrol
        if is_enrolled not in self._factors:
            groups = self.groups(side)
            # the value holds the groups, so that no other object can reuse their ids while it lives
            _, self._factors[is_enrolled] = self.cache.factors.get(
                side.profiles,
                id(groups),
                [side.profiles.y],
                lambda: (groups, {id(group): {} for group in groups}),
            )
        return self._factors[is_enrolled].get(id(group))

    @cached_property
    def _factors(self) -> dict[bool, dict[int, dict[Hashable, SideFactor]]]:
        """Cached matrix factors: {is the enrolled side: {id of a group: {key: factor}}}."""
        return {}

    def log_ratios(
        self, enrol: GroupSide, test: GroupSide, sums: Sequence[HypothesisWeights]
    ) -> LogRatios:
        """Return the log ratios of one block of trials, as matrix factors that are still to be multiplied.

        enrol, test : groups of profiles on the two sides
        sums : numerators, and last their common denominator: {hypothesis: log weight} each
        """
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
        """Return the assignments of classes that the hypotheses allow: one list per entry of `sums`.

        Each assignment has a weight and pair terms (log-ratios of profile and test).

        enrol, test : groups of profiles on the two sides
        sums : numerators, and last their common denominator: {hypothesis: log weight} each
        """
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
        """Return how likely each test is under the training classes of each assignment.

        Pair terms are relative to a test of new classes. So an offset is added to them: the
        log-likelihood of the test if its classes are the training classes of the assignment
        (lambda_t(d) of (V7) in docs/math.md), minus the largest such log-likelihood of the test.

        test : group of n tests
        assignments : all assignments of the ratio
        return : {training classes of the test: (n,) offsets}; empty if all assignments have the
            same training classes, because equal offsets cancel in the ratio
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
        """Return the assignments that hypothesis h allows for profiles with these cell tables.

        Lists of at most `MAX_CACHED_ASSIGNMENTS` are cached.
        """
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
    """Return the log-sum over assignments of classes for one block, as factors of matrix products.

    Assignments that differ only in training classes differ only in terms of one side. They share
    one product, so that there are as few products as possible.

    enrol, test : groups of profiles on the two sides
    weighted : assignments with weights and pair terms (log-ratios of profile and test)
    test_offsets : {training classes: (tests,) offsets}, see `Comparison._test_offsets`
    shift : number added to all log weights
    dtype : type of the factors, "float32" or "float64"
    sizes : output: an upper bound of the absolute terms is appended for each factor
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
    """Subtract the elementwise maximum from arrays.

    values : k arrays (n,)
    return : the maximum (n,), and the arrays minus the maximum as columns, (n, k)
    """
    xp = namespace(values[0])
    stacked = xp.stack(list(values), 1)
    top = stacked.max(1)
    # torch returns (values, indices)
    if not isinstance(top, np.ndarray):
        top = top.values
    return top, stacked - top[:, None]
