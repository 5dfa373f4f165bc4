"""Which classes of two profiles are the same: tables of cells, and all that a hypothesis leaves possible.

Nothing here depends on a model. A profile has cells; a table says how many vectors each of them holds and
which cells share a class of which base view. Profiles with equal tables are scored together (docs/math.md,
section 9.6). A hypothesis names views; what it means for the classes of two profiles is a set of worlds.
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

from .._typing import AnyArray, IntArray, Views
from ..backend import like
from ..exceptions import ParameterError
from .profiles import Profiles
from .question import Hypothesis

TrainingClasses = tuple[tuple[int, ...], ...]
"""Training class of every class of a side, by base view; -1 where there is none."""


@dataclass(frozen=True)
class CellTable:
    """What profiles that are scored together have in common.

    base : base views
    weights : how many vectors every cell counts for
    classes : (base views) of (cells), class of every cell, numbered within the profile
    names : (base views) of (classes), number of every class's name; -1 where it has none
    """

    base: Views
    weights: tuple[float, ...]
    classes: tuple[tuple[int, ...], ...]
    names: tuple[tuple[int, ...], ...]

    @classmethod
    def single_cell(cls, base: Views, weight: float) -> CellTable:
        """Of profiles with one cell and no names."""
        return cls(base, (weight,), ((0,),) * len(base), ((-1,),) * len(base))

    def without_training_classes(self) -> TrainingClasses:
        """No class is a training class."""
        return tuple((-1,) * len(names) for names in self.names)


@dataclass(frozen=True)
class ProfileGroup:
    """Profiles with one table: their numbers (p,), and (p, cells) rows of y.

    whole : these are all profiles, in their order, of one cell each
    """

    table: CellTable
    profiles: IntArray
    rows: IntArray
    is_complete: bool = False

    def gather(self, y: AnyArray) -> AnyArray:
        """(profiles, cells, r) evidence of the profiles, from the cells' y."""
        if self.is_complete:
            return y[:, None]
        return y[like(self.rows, y)]

    def subset(self, which: slice) -> ProfileGroup:
        """Some of the profiles."""
        return ProfileGroup(self.table, self.profiles[which], self.rows[which])

    def positions(self, numbers: IntArray) -> IntArray:
        """Where profiles stand in the group; -1 for those of other groups."""
        if self.is_complete:
            return numbers
        place = np.full(max(numbers.max(), self.profiles.max()) + 1, -1)
        place[self.profiles] = np.arange(len(self.profiles))
        return place[numbers]


def group_profiles(
    profiles: Profiles, base: Views, names: Mapping[str, IntArray]
) -> Iterator[ProfileGroup]:
    """Groups of profiles with equal tables.

    names : {view: (R,) number of every cell's class name, the same on both sides of a comparison}, of the
        views where it matters which class it is
    """
    weights = profiles.weights
    if not profiles.labels and not names and (weights == weights[0]).all():
        # one cell each, in which nothing but its weight could differ
        every = np.arange(len(weights))
        yield ProfileGroup(
            CellTable.single_cell(base, float(weights[0])), every, every[:, None], is_complete=True
        )
        return
    # cells are put in one order, so that equal tables look equal
    codes = {view: _profile_codes(profiles, view) for view in base}
    order = np.lexsort([*codes.values(), weights, *names.values(), profiles.owner])
    starts = np.searchsorted(profiles.owner, np.arange(len(profiles) + 1))
    lengths = np.diff(starts)
    for length in np.unique(lengths):
        numbers = np.flatnonzero(lengths == length)
        rows = order[starts[numbers][:, None] + np.arange(length)]
        # (profiles, cells) number of the first cell of the same class
        first = [np.argmax(c[rows][:, :, None] == c[rows][:, None, :], 2) for c in codes.values()]
        named = [names[view][rows] for view in names]
        key = np.concatenate([weights[rows], *first, *named], axis=1)
        # profiles are of one kind where weights, shared classes and names agree
        examples = np.zeros(1, dtype=np.int64)
        kind = np.zeros(len(key), dtype=np.int64)
        # few profiles at a time are often of one kind, and to sort them takes longer than to score them
        if not (key == key[0]).all():
            _, examples, kind = np.unique(key, axis=0, return_index=True, return_inverse=True)
        for example, some in zip(
            examples, _group_members(kind.reshape(-1), len(examples)), strict=True
        ):
            classes = []
            called = []
            for view, leaders in zip(base, first, strict=True):
                led = leaders[example].tolist()
                leading = sorted(set(led))
                place = {leader: number for number, leader in enumerate(leading)}
                classes.append(tuple(place[leader] for leader in led))
                known = [-1] * len(leading)
                if view in names:
                    known = names[view][rows[example, leading]].tolist()
                called.append(tuple(known))
            own_weights = tuple(weights[rows[example]].tolist())
            table = CellTable(base, own_weights, tuple(classes), tuple(called))
            yield ProfileGroup(table, numbers[some], rows[some])


def _profile_codes(profiles: Profiles, view: str) -> IntArray:
    """Codes that tell the classes of a profile apart: missing labels are classes of their own."""
    if view not in profiles.labels:
        return np.zeros(len(profiles.owner), dtype=np.int64)
    codes = profiles.labels[view].codes
    return np.where(codes < 0, -1 - np.arange(len(codes)), codes)


def _group_members(kind: IntArray, size: int) -> list[IntArray]:
    """Members of every kind, 0 to size - 1, in their order."""
    order = np.argsort(kind, kind="stable")
    return np.split(order, np.searchsorted(kind[order], np.arange(1, size)))


LabelRole = Literal["plain", "fact", "claim"]
"""plain: named on one side at most; fact: named on both; claim: named on both, and asked about."""

ClassMatch = tuple[int, int]
"""Of a class of the test: the class of the enrolment that it is, and its training class; -1 for none."""

ClassMatches = tuple[tuple[ClassMatch, ...], ...]
"""By base view, of every class of the test."""

NEW_CLASS: ClassMatch = (-1, -1)
"""A class that is neither one of the enrolment's nor a training class."""

MAX_ASSIGNMENTS = 2**13


@dataclass(frozen=True)
class ViewLabels:
    """What is known of the classes' names in one base view.

    role : what labels on both sides mean
    training : (names,) training class of every name, -1: not seen; None: training plays no part in this view
    nearest : (classes, k) the training classes that may be meant instead of every one; None: all
    """

    role: LabelRole = "plain"
    training: IntArray | None = None
    nearest: IntArray | None = None

    @property
    def key(self) -> tuple[Hashable, ...]:
        """Key of the worlds that this leaves possible."""
        # digests: with thousands of known classes each kept key would hold hundreds of kB
        return self.role, _digest(self.training), _digest(self.nearest)

    def others(self, said: Sequence[int]) -> IntArray:
        """Numbers of the known names that may be meant instead of some."""
        assert self.training is not None
        numbers = np.flatnonzero(self.training >= 0)
        if self.nearest is not None:
            classes = [self.seen(name) for name in said]
            nearest = self.nearest[[number for number in classes if number >= 0]]
            numbers = numbers[np.isin(self.training[numbers], nearest)]
        return np.setdiff1d(numbers, said)

    def seen(self, name: int) -> int:
        """Training class of a name."""
        if self.training is None or name < 0:
            return -1
        return int(self.training[name])


def _digest(numbers: IntArray | None) -> tuple[Hashable, ...] | None:
    if numbers is None:
        return None
    return numbers.shape, sha256(numbers.tobytes()).digest()


@dataclass(frozen=True)
class Assignment:
    """One possibility: the match of every class of the test, by base view, and the log of its weight."""

    matches: ClassMatches
    log_weight: float

    @cached_property
    def test_classes(self) -> TrainingClasses:
        """What the world makes of a test by itself: its training classes."""
        return training_classes_of(self.matches)


def training_classes_of(matches: ClassMatches) -> TrainingClasses:
    """Training class of every class of the test."""
    return tuple(tuple(known for _, known in classes) for classes in matches)


def enrolled_training_classes(
    table: CellTable, view_labels: Mapping[str, ViewLabels]
) -> TrainingClasses:
    """Training class of every class of an enrolled profile."""
    by_view = zip(table.base, table.names, strict=True)
    return tuple(tuple(view_labels[view].seen(name) for name in names) for view, names in by_view)


def possible_assignments(
    hypothesis: Hypothesis, enrol: CellTable, test: CellTable, view_labels: Mapping[str, ViewLabels]
) -> list[Assignment]:
    """Everything that a hypothesis leaves possible; the weights add up to 1."""
    base = enrol.base
    options: list[Sequence[tuple[ClassMatch, ...]] | None] = []
    for i, view in enumerate(base):
        naming = view_labels[view]
        sides = enrol.names[i], test.names[i], naming
        if naming.role == "fact" or (naming.role == "claim" and view in hypothesis):
            options.append([_matches_by_name(*sides)])
        elif naming.role == "claim":
            options.append(_false_claims(*sides))
        elif view in hypothesis:
            options.append(None)
        else:
            options.append(_different_classes(*sides))
    met = [i for i, option in enumerate(options) if option is None]
    # the test meets the enrolment in one pair of cells, in all views of the hypothesis at once
    meetings = Counter(
        tuple((enrol.classes[i][e], test.classes[i][t]) for i in met)
        for e in range(len(enrol.weights))
        for t in range(len(test.weights))
    )
    sizes = [len(option) for option in options if option is not None]
    possibilities = len(meetings) * float(np.prod(sizes))
    if possibilities > MAX_ASSIGNMENTS:
        raise ParameterError(
            f"a trial leaves {possibilities:.0f} possibilities of which class is which, more than {MAX_ASSIGNMENTS}: "
            "ask about fewer labelled vectors at once, or leave the labelled view out of same= so that labels are facts"
        )
    times_of: Counter[ClassMatches] = Counter()
    for meeting, times in meetings.items():
        chosen = list(options)
        for i, (e, t) in zip(met, meeting, strict=True):
            match = (e, view_labels[base[i]].seen(enrol.names[i][e]))
            chosen[i] = [tuple(match if c == t else NEW_CLASS for c in range(len(test.names[i])))]
        for matches in product(*(option for option in chosen if option is not None)):
            times_of[matches] += times
    # meetings are equally likely; some lead to the same world
    total = sum(times_of.values())
    return [Assignment(matches, float(np.log(n / total))) for matches, n in times_of.items()]


def _matches_by_name(
    enrolled: Sequence[int], tested: Sequence[int], naming: ViewLabels
) -> tuple[ClassMatch, ...]:
    """Equal names are the same class."""
    at = {name: e for e, name in enumerate(enrolled) if name >= 0}
    return tuple((at.get(name, -1), naming.seen(name)) for name in tested)


def _false_claims(
    enrolled: Sequence[int], tested: Sequence[int], naming: ViewLabels
) -> list[tuple[ClassMatch, ...]]:
    """Not all labels of the test are true.

    One class is in truth another enrolled or known one, or none of them; or all are none of them.
    """
    truth = _matches_by_name(enrolled, tested, naming)
    names = {name: e for e, name in enumerate(enrolled) if name >= 0}
    if naming.training is not None:
        for name in naming.others(tested):
            names.setdefault(int(name), -1)
    # whoever it is instead: nobody known, or one of the others
    others = [NEW_CLASS]
    others += [(e, naming.seen(name)) for name, e in names.items() if name not in tested]
    claimed = [c for c, name in enumerate(tested) if name >= 0]
    ways = [(*truth[:c], other, *truth[c + 1 :]) for c in claimed for other in others]
    if len(claimed) > 1:
        ways.append(tuple(NEW_CLASS if c in claimed else match for c, match in enumerate(truth)))
    return ways or [truth]


def _different_classes(
    enrolled: Sequence[int], tested: Sequence[int], naming: ViewLabels
) -> list[tuple[ClassMatch, ...]]:
    """The test's classes are none of the enrolled: another known class where that is known, or a new one."""
    fresh = (NEW_CLASS,) * len(tested)
    unknown = all(naming.seen(name) < 0 for name in enrolled)
    if naming.training is None or len(tested) > 1 or unknown:
        return [fresh]
    # a new class is as likely as each of the known ones
    others = naming.others(enrolled)
    return [fresh, *(((-1, naming.seen(int(name))),) for name in others)]
