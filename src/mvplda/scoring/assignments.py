"""Assignments: which classes of two profiles are the same.

A hypothesis names the views whose classes the two sides of a trial share. If profiles have several
classes, it leaves open which of them are the same. An assignment fixes this for every class of the
test; a hypothesis is a weighted set of assignments.

A profile consists of cells, one per combination of classes. Its cell table holds the number of
vectors per cell, and which cells share a class of which base view. Profiles with equal tables have
equal assignments and are scored together (docs/math.md, section 9.6). Nothing in this module
depends on a model.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import product
from typing import Literal

import numpy as np

from .._typing import AnyArray, Array, IntArray, Views
from ..backend import like
from ..exceptions import ParameterError
from .profiles import Profiles
from .question import Hypothesis

TrainingClasses = tuple[tuple[int, ...], ...]
"""Number of the training class of each class of a side, per base view; -1: not a training class."""


@dataclass(frozen=True)
class CellTable:
    """Cells of a profile (one per combination of classes): numbers of vectors, classes and names.

    Numbers stand for class names; equal names have equal numbers on both sides of a comparison.

    base : base views
    weights : (cells,) number of vectors per cell
    classes : (base views, cells) class of each cell, numbered from 0 within the profile
    names : (base views, classes) name number of each class; -1: no name
    """

    base: Views
    weights: tuple[float, ...]
    classes: tuple[tuple[int, ...], ...]
    names: tuple[tuple[int, ...], ...]

    @classmethod
    def single_cell(cls, base: Views, weight: float) -> CellTable:
        """Return the table of a profile with one cell: all its vectors share all classes, without names.

        base : base views
        weight : number of vectors
        """
        return cls(base, (weight,), ((0,),) * len(base), ((-1,),) * len(base))

    def without_training_classes(self) -> TrainingClasses:
        """Return `TrainingClasses` in which no class is a training class.

        It has one tuple per base view, with -1 for each class of the table.
        """
        return tuple((-1,) * len(names) for names in self.names)


@dataclass(frozen=True)
class ProfileGroup:
    """Profiles with equal cell tables, which can be scored together.

    Their cells have equal numbers of vectors, and the same cells share a class.

    table : the cell table, equal for all profiles
    profiles : (p,) positions of the profiles in their set
    rows : (p, cells) row of each cell in `Profiles.y`
    is_complete : True if the group holds all profiles of the set, in order, with one cell each
    """

    table: CellTable
    profiles: IntArray
    rows: IntArray
    is_complete: bool = False

    def gather(self, y: AnyArray) -> AnyArray:
        """Return the evidence of the group's profiles, (p, cells, r).

        y : (R, r) evidence of all cells of the set, `Profiles.y`
        """
        if self.is_complete:
            return y[:, None]
        return y[like(self.rows, y)]

    def subset(self, which: slice) -> ProfileGroup:
        """Return the group reduced to a slice of its profiles."""
        return ProfileGroup(self.table, self.profiles[which], self.rows[which])

    def positions(self, numbers: IntArray) -> IntArray:
        """Return positions in this group, (n,); -1 for profiles that are not in the group.

        numbers : (n,) positions of profiles in their set
        """
        if self.is_complete:
            return numbers
        position_of = np.full(max(numbers.max(), self.profiles.max()) + 1, -1)
        position_of[self.profiles] = np.arange(len(self.profiles))
        return position_of[numbers]


def group_profiles(
    profiles: Profiles, base: Views, names: Mapping[str, IntArray]
) -> Iterator[ProfileGroup]:
    """Yield the groups of profiles with equal cell tables (`CellTable`).

    profiles : all profiles of a side
    base : base views
    names : {view: (R,) number of the class name of each of R cells}, for views in which names
        affect the score; equal names have equal numbers on both sides
    """
    weights = profiles.weights
    if not profiles.labels and not names and (weights == weights[0]).all():
        # without labels every profile has one cell: equal weights are equal tables
        numbers = np.arange(len(weights))
        table = CellTable.single_cell(base, float(weights[0]))
        yield ProfileGroup(table, numbers, numbers[:, None], is_complete=True)
        return
    # sort the cells within each profile, so that equal tables become equal rows of numbers
    codes = {view: _profile_codes(profiles, view) for view in base}
    order = np.lexsort([*codes.values(), weights, *names.values(), profiles.owner])
    starts = np.searchsorted(profiles.owner, np.arange(len(profiles) + 1))
    lengths = np.diff(starts)
    for length in np.unique(lengths):
        numbers = np.flatnonzero(lengths == length)
        rows = order[starts[numbers][:, None] + np.arange(length)]
        yield from _split_by_table(base, weights, codes, names, numbers, rows)


def _split_by_table(
    base: Views,
    weights: Array,
    codes: Mapping[str, IntArray],
    names: Mapping[str, IntArray],
    numbers: IntArray,
    rows: IntArray,
) -> Iterator[ProfileGroup]:
    """Divide profiles that have equally many cells into groups with equal cell tables.

    A cell table holds the number of vectors per cell, and which cells share a class.

    weights : (R,) number of vectors in each of the R cells of all profiles
    codes : {view: (R,) class code of each cell}
    names : {view: (R,) number of each cell's class name}, see `group_profiles`
    numbers : (p,) positions of the profiles to divide
    rows : (p, cells) indices of their cells among the R, each row sorted by code
    """
    # (p, cells) first cell of the same class, which is a canonical number of the class
    leaders = [np.argmax(c[rows][:, :, None] == c[rows][:, None, :], 2) for c in codes.values()]
    cell_names = [names[view][rows] for view in names]
    # tables with equal weights, shared classes and names are equal
    key = np.concatenate([weights[rows], *leaders, *cell_names], axis=1)
    examples = np.zeros(1, dtype=np.int64)
    group_numbers = np.zeros(len(key), dtype=np.int64)
    # small batches often have one table, and np.unique would take longer than scoring them
    if not (key == key[0]).all():
        _, examples, group_numbers = np.unique(key, axis=0, return_index=True, return_inverse=True)
    group_members = _group_members(group_numbers.reshape(-1), len(examples))
    for example, members in zip(examples, group_members, strict=True):
        classes = []
        class_names = []
        for view, view_leaders in zip(base, leaders, strict=True):
            leader_of_cell = view_leaders[example].tolist()
            leader_cells = sorted(set(leader_of_cell))
            class_of = {leader: number for number, leader in enumerate(leader_cells)}
            classes.append(tuple(class_of[leader] for leader in leader_of_cell))
            name_numbers = [-1] * len(leader_cells)
            if view in names:
                name_numbers = names[view][rows[example, leader_cells]].tolist()
            class_names.append(tuple(name_numbers))
        cell_weights = tuple(weights[rows[example]].tolist())
        table = CellTable(base, cell_weights, tuple(classes), tuple(class_names))
        yield ProfileGroup(table, numbers[members], rows[members])


def _profile_codes(profiles: Profiles, view: str) -> IntArray:
    """Return a class code for each cell in one view, (R,); cells of a class have equal codes.

    A cell without a label is a class of its own. If the view has no labels, all codes are 0.
    """
    if view not in profiles.labels:
        return np.zeros(len(profiles.owner), dtype=np.int64)
    codes = profiles.labels[view].codes
    return np.where(codes < 0, -1 - np.arange(len(codes)), codes)


def _group_members(group_numbers: IntArray, n_groups: int) -> list[IntArray]:
    """Return the ascending positions of the members of each group, one array per group.

    group_numbers : group of each member, from 0 to n_groups - 1
    """
    order = np.argsort(group_numbers, kind="stable")
    return np.split(order, np.searchsorted(group_numbers[order], np.arange(1, n_groups)))


LabelRole = Literal["plain", "fact", "claim"]
"""Role of the labels of a view.

plain: at most one side has labels. fact: both sides have labels, which are true. claim: both sides
have labels, and the question is whether those of the test are true.
"""

ClassMatch = tuple[int, int]
"""Numbers of the enrolled class and of the training class that equal a class of the test; -1: none."""

ClassMatches = tuple[tuple[ClassMatch, ...], ...]
"""Match (see `ClassMatch`) of every class of the test, per base view."""

NEW_CLASS: ClassMatch = (-1, -1)
"""Match of a class that is neither an enrolled nor a training class."""

MAX_ASSIGNMENTS = 2**13
"""Largest number of assignments of classes per trial and hypothesis; questions with more are refused."""


@dataclass(frozen=True)
class ViewLabels:
    """Use of the labels of one base view.

    role : "plain", "fact" or "claim", see `LabelRole`
    training : (names,) number of the training class with each class name, -1: not seen in training;
        None: training classes are not used
    nearest : (classes, k) the k training classes most similar to each; only they are considered as
        alternatives to it. None: all training classes are
    """

    role: LabelRole = "plain"
    training: IntArray | None = None
    nearest: IntArray | None = None

    @property
    def key(self) -> tuple[Hashable, ...]:
        """Role and digests of the arrays, as a cache key."""
        # digests, because with thousands of classes every cached key would hold hundreds of kB
        return self.role, _digest(self.training), _digest(self.nearest)

    def alternatives(self, names: Sequence[int]) -> IntArray:
        """Return the name numbers of training classes that are alternatives to the named classes.

        They are all other training classes, or only similar ones if `nearest` is given.

        names : name numbers of the classes, which are not in the result
        """
        assert self.training is not None
        numbers = np.flatnonzero(self.training >= 0)
        if self.nearest is not None:
            classes = [self.training_class(name) for name in names]
            nearest = self.nearest[[number for number in classes if number >= 0]]
            numbers = numbers[np.isin(self.training[numbers], nearest)]
        return np.setdiff1d(numbers, names)

    def training_class(self, name: int) -> int:
        """Return the training class of the class with this name number; -1: not a training class."""
        if self.training is None or name < 0:
            return -1
        return int(self.training[name])


def _digest(numbers: IntArray | None) -> tuple[Hashable, ...] | None:
    """Return shape and SHA-256 of an array as a cache key; None if there is no array."""
    if numbers is None:
        return None
    return numbers.shape, sha256(numbers.tobytes()).digest()


@dataclass(frozen=True)
class Assignment:
    """One way in which the classes of the test can equal classes of the enrolment or of training.

    matches : per base view, the enrolled class and the training class that equal each class of the
        test, see `ClassMatch`
    log_weight : log of the assignment's weight in its hypothesis; the weights of a hypothesis add
        up to 1
    """

    matches: ClassMatches
    log_weight: float

    @cached_property
    def test_classes(self) -> TrainingClasses:
        """Number of the training class of each class of the test, per base view; -1: none."""
        return training_classes_of(self.matches)


def training_classes_of(matches: ClassMatches) -> TrainingClasses:
    """Return the number of the training class of each class of the test, per base view; -1: none.

    matches : the enrolled class and the training class that equal each class of the test
    """
    return tuple(tuple(training_class for _, training_class in classes) for classes in matches)


def enrolled_training_classes(
    table: CellTable, view_labels: Mapping[str, ViewLabels]
) -> TrainingClasses:
    """Return the number of the training class of each class of a profile, per base view; -1: none.

    table : cell table of the profile, with its class names
    view_labels : {base view: use of its labels}
    """
    by_view = zip(table.base, table.names, strict=True)
    return tuple(
        tuple(view_labels[view].training_class(name) for name in names) for view, names in by_view
    )


def possible_assignments(
    hypothesis: Hypothesis,
    enrol: CellTable,
    test: CellTable,
    view_labels: Mapping[str, ViewLabels],
) -> list[Assignment]:
    """Return all assignments that a hypothesis allows, with weights that add up to 1.

    An assignment fixes which classes of the test equal classes of the enrolment or of training.

    Parameters
    ----------
    hypothesis : views whose classes the two sides share
    enrol, test : cell tables of the two sides
    view_labels : {base view: use of its labels}

    Raises
    ------
    ParameterError
        There are more than `MAX_ASSIGNMENTS` assignments.
    """
    base = enrol.base
    # possible matches per view; None for shared views without labels, where they follow from a pair of cells
    options: list[Sequence[tuple[ClassMatch, ...]] | None] = []
    for i, view in enumerate(base):
        labels = view_labels[view]
        names = enrol.names[i], test.names[i]
        if labels.role == "fact" or (labels.role == "claim" and view in hypothesis):
            options.append([_matches_by_name(*names, labels)])
        elif labels.role == "claim":
            options.append(_false_claims(*names, labels))
        elif view in hypothesis:
            options.append(None)
        else:
            options.append(_different_classes(*names, labels))

    # in shared views without labels, one cell of the test has the classes of one enrolled cell in all these views
    shared = [i for i, option in enumerate(options) if option is None]
    cell_pairs = Counter(
        tuple((enrol.classes[i][e], test.classes[i][t]) for i in shared)
        for e in range(len(enrol.weights))
        for t in range(len(test.weights))
    )
    sizes = [len(option) for option in options if option is not None]
    n_assignments = len(cell_pairs) * float(np.prod(sizes))
    if n_assignments > MAX_ASSIGNMENTS:
        raise ParameterError(
            f"a trial has {n_assignments:.0f} possible assignments of the test's classes to enrolled classes; the "
            f"limit is {MAX_ASSIGNMENTS}. Pass fewer labelled vectors per profile, or leave the labelled view out of "
            "same=: its labels are then taken as known, and not averaged over"
        )

    counts: Counter[ClassMatches] = Counter()
    for cell_pair, count in cell_pairs.items():
        chosen = list(options)
        for i, (e, t) in zip(shared, cell_pair, strict=True):
            match = (e, view_labels[base[i]].training_class(enrol.names[i][e]))
            n_classes = len(test.names[i])
            chosen[i] = [tuple(match if c == t else NEW_CLASS for c in range(n_classes))]
        for matches in product(*(option for option in chosen if option is not None)):
            counts[matches] += count
    # pairs of cells are equally likely, and several may lead to the same assignment
    total = sum(counts.values())
    return [Assignment(matches, float(np.log(n / total))) for matches, n in counts.items()]


def _matches_by_name(
    enrolled: Sequence[int], tested: Sequence[int], labels: ViewLabels
) -> tuple[ClassMatch, ...]:
    """Match each class of the test with the enrolled class and the training class of the same name.

    enrolled, tested : name number of each class of the enrolment and of the test; -1: no name
    return : (enrolled class, training class) per class of the test; -1: none
    """
    class_of = {name: e for e, name in enumerate(enrolled) if name >= 0}
    return tuple((class_of.get(name, -1), labels.training_class(name)) for name in tested)


def _false_claims(
    enrolled: Sequence[int], tested: Sequence[int], labels: ViewLabels
) -> list[tuple[ClassMatch, ...]]:
    """Return the ways to match the classes of the test if at least one of their labels is false.

    Either one class is not that of its label but another enrolled class, another training class or
    a new class; or all labelled classes are new.

    enrolled, tested : name number of each class of the enrolment and of the test; -1: no name
    return : list of tuples with one `ClassMatch` per class of the test
    """
    truth = _matches_by_name(enrolled, tested, labels)
    names = {name: e for e, name in enumerate(enrolled) if name >= 0}
    if labels.training is not None:
        for name in labels.alternatives(tested):
            names.setdefault(int(name), -1)
    replacements = [NEW_CLASS]
    replacements += [
        (e, labels.training_class(name)) for name, e in names.items() if name not in tested
    ]
    claimed = [c for c, name in enumerate(tested) if name >= 0]
    options = [
        (*truth[:c], replacement, *truth[c + 1 :]) for c in claimed for replacement in replacements
    ]
    if len(claimed) > 1:
        options.append(tuple(NEW_CLASS if c in claimed else match for c, match in enumerate(truth)))
    return options or [truth]


def _different_classes(
    enrolled: Sequence[int], tested: Sequence[int], labels: ViewLabels
) -> list[tuple[ClassMatch, ...]]:
    """Return the ways to match the classes of the test if none of them is enrolled.

    All classes are new. If the test has a single class and an enrolled class is a training class,
    the test may also be another training class (V7 in docs/math.md).

    enrolled, tested : name number of each class of the enrolment and of the test; -1: no name
    return : list of tuples with one `ClassMatch` per class of the test
    """
    new = (NEW_CLASS,) * len(tested)
    has_known_class = any(labels.training_class(name) >= 0 for name in enrolled)
    if labels.training is None or len(tested) > 1 or not has_known_class:
        return [new]
    # a new class is as likely as each of the known ones
    others = labels.alternatives(enrolled)
    return [new, *(((-1, labels.training_class(int(name))),) for name in others)]
