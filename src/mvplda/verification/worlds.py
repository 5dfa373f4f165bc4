"""Which classes of two profiles are the same: all that a hypothesis leaves possible.

A hypothesis names views. What it says of the classes of two profiles follows
from the labels that the profiles carry and from the training classes that are
known (docs/math.md, sections 9.5 and 9.6); where it leaves several
possibilities, their likelihoods are averaged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from ..exceptions import ParameterError
from ..kernel.evidence import Index
from ..kernel.hypotheses import Hypothesis
from ..labels import IntArray, parts_of
from .cells import CellTable, Known

Role = Literal["plain", "fact", "claim"]
"""plain: named on one side at most; fact: named on both; claim: named on both, and asked about."""

Match = tuple[int, int]
"""Of a class of the test: the class of the enrolment that it is, and its training class; -1 for none."""

FRESH: Match = (-1, -1)

MOST_WORLDS = 2**13


@dataclass(frozen=True)
class Naming:
    """What is known of the classes' names in one base view.

    role : what labels on both sides mean
    training : (names,) training class of every name, -1: not seen; None: training plays no part in this view
    """

    role: Role = "plain"
    training: IntArray | None = None

    def seen(self, name: int) -> int:
        return -1 if self.training is None or name < 0 else int(self.training[name])


@dataclass(frozen=True)
class World:
    """One possibility: the match of every class of the test, by base view, and how much it weighs."""

    matches: tuple[tuple[Match, ...], ...]
    weight: float

    @property
    def reading(self) -> Known:
        """Training class of every class of the test."""
        return tuple(tuple(known for _, known in classes) for classes in self.matches)


def enrolled_reading(table: CellTable, namings: Mapping[str, Naming]) -> Known:
    """Training class of every class of an enrolled profile."""
    return tuple(
        tuple(namings[view].seen(name) for name in names) for view, names in zip(table.base, table.names, strict=True)
    )


def worlds(hypothesis: Hypothesis, enrol: CellTable, test: CellTable, namings: Mapping[str, Naming]) -> list[World]:
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
    _refuse_too_many(len(meetings) * float(np.prod([len(option) for option in options if option is not None])))
    found: Counter[tuple[tuple[Match, ...], ...]] = Counter()
    for meeting, times in meetings.items():
        chosen = list(options)
        for i, (e, t) in zip(met, meeting, strict=True):
            match = (e, namings[base[i]].seen(enrol.names[i][e]))
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
    return tuple((at.get(name, -1), naming.seen(name)) for name in tested)


def _otherwise(enrolled: Sequence[int], tested: Sequence[int], naming: Naming) -> list[tuple[Match, ...]]:
    """Every named class of the test is in truth another enrolled or known class, or none of them."""
    candidates = {name: (e, naming.seen(name)) for e, name in enumerate(enrolled) if name >= 0}
    if naming.training is not None:
        for name in np.flatnonzero(naming.training >= 0):
            candidates.setdefault(int(name), (-1, naming.seen(int(name))))
    choices = [[n for n in candidates if n != name] if name >= 0 else [] for name in tested]
    _refuse_too_many(float(np.prod([len(some) + 1 for some in choices])))
    found = []
    for chosen in product(*([None, *some] for some in choices)):
        named = [name for name in chosen if name is not None]
        if len(set(named)) == len(named):
            found.append(tuple(FRESH if name is None else candidates[name] for name in chosen))
    return found


def _outside(enrolled: Sequence[int], tested: Sequence[int], naming: Naming) -> list[tuple[Match, ...]]:
    """The test's classes are none of the enrolled: another known class where that is known, or a new one."""
    fresh = (FRESH,) * len(tested)
    if naming.training is None or len(tested) > 1 or all(naming.seen(name) < 0 for name in enrolled):
        return [fresh]
    others = np.setdiff1d(np.flatnonzero(naming.training >= 0), enrolled)
    return [fresh, *(((-1, naming.seen(int(name))),) for name in others)]


def shared_latents(enrol: CellTable, test: CellTable, world: World) -> tuple[Index, Index]:
    """Numbers of the latents that the two sides share: in the enrolment, and the same ones in the test."""
    keep_e: list[int] = []
    keep_t: list[int] = []
    for (k, classes), where in test.blocks.items():
        parts = [test.base.index(part) for part in parts_of(test.views[k][0])]
        met = tuple(world.matches[i][c][0] for i, c in zip(parts, classes, strict=True))
        there = enrol.blocks.get((k, met))  # an interaction is shared where all its parts are, and it was enrolled
        if min(met) >= 0 and there is not None:
            keep_e += range(there.start, there.stop)
            keep_t += range(where.start, where.stop)
    return np.asarray(keep_e, dtype=np.int64), np.asarray(keep_t, dtype=np.int64)
