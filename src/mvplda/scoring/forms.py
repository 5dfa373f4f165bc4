"""Pair forms: what a profile and a test say together in one world.

For profile e, test t and a world w every scorer has a log-ratio against "nothing shared, nothing known" of
one shape (docs/math.md, section 9.3)::

    F_w(e, t) = c + a(e) + b(t) + l(e) . r(t)

For models of latents its matrices are derived twice, from latents and from vectors, and once more as they were
published. Forms of scorers that see different columns add up in each world.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from .._typing import AnyArray, Array, Names
from ..backend import NUMPY, like, namespace
from ..exceptions import LabelError
from ..labels import base_columns, parts_of
from .evidence import (
    KEPT_NUMBERS,
    Evidence,
    Index,
    KnownClasses,
    LatentSide,
    LatentSpace,
    Layout,
    log_evidence_matrix,
    row_products,
)
from .worlds import FRESH, Matches, Reading, Table, reading_of

TOGETHER = "together"
"""Names the factor of what an expert says of several views at once, beyond what it says of each."""


class FormSide(NamedTuple):
    """One side of a pair form, over a group of profiles: sum of factor * left @ right' + row + column.

    blocks : of (factor, (n, w) array); factors stand on the left side
    own : (n,) row or column
    """

    blocks: tuple[tuple[float, AnyArray], ...]
    own: Any


class Forms(Protocol):
    """What a scorer has to say of worlds.

    base : base views
    is_llr : whether its answers are likelihood ratios
    """

    base: tuple[str, ...]

    @property
    def is_llr(self) -> bool: ...

    def classes(self, view: str) -> Names:
        """Names of the training classes of a view, by number; LabelError where the scorer keeps none."""
        ...

    def side(self, table: Table, y: AnyArray) -> Any:
        """Profiles with one table, from their cells' evidence (profiles, cells, r)."""
        ...

    def alone(self, side: Any, reading: Reading) -> Any:
        """(profiles,) log-likelihood as certain training classes against "nothing known"; None: all are alike."""
        ...

    def key(self, enrol: Any, test: Any, reading: Reading, matches: Matches) -> Hashable | None:
        """Of a world's form, where the enrolment has these training classes; None where the form is 0.

        Forms of the same two groups with equal keys have the same blocks.
        """
        ...

    def left(self, enrol: Any, test: Any, reading: Reading, matches: Matches) -> FormSide:
        """The enrolment's side of the form of a world."""
        ...

    def right(self, enrol: Any, test: Any, reading: Reading, matches: Matches) -> FormSide:
        """The test's side of it."""
        ...


# -- models of latents ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PairTerm:
    """log p(e, t | world) - log p(e) - log p(t) as a quadratic form of the two sides' evidence.

    value = (y_e left)(y_t right)' + y_e row y_e' + y_t column y_t' + constant

    left, right : (r_e, rho), (r_t, rho); None is the identity
    row, column : (r_e, r_e), (r_t, r_t) symmetric
    """

    left: Array
    right: Array | None
    row: Array
    column: Array
    constant: float

    @cached_property
    def diagonals(self) -> dict[str, Array]:
        """The diagonals of those matrices that have nothing else: of a canonical model with one view, all."""
        diagonals = {}
        for name in ("left", "right", "row", "column"):
            matrix = getattr(self, name)
            if matrix is None or matrix.shape != (len(matrix), len(matrix)):
                continue
            diagonal = np.diag(matrix)
            if np.count_nonzero(matrix) == np.count_nonzero(diagonal):
                diagonals[name] = diagonal.copy()
        return diagonals

    @property
    def size(self) -> int:
        matrices = self.left, self.right, self.row, self.column
        return sum(matrix.size for matrix in matrices if matrix is not None)


def reduce_evidence(N: Array, keep: Index) -> tuple[Array, Array]:
    """Evidence on some latents when the others are integrated out.

    Returns (rho, rho) N_kept and the map M, (r, rho), with y_kept = y M.
    """
    r = len(N)
    others = np.setdiff1d(np.arange(r), keep)
    M = np.zeros((r, len(keep)))
    M[keep, np.arange(len(keep))] = 1.0
    if len(others) == 0:
        return N[np.ix_(keep, keep)], M
    lower = NUMPY.cholesky(np.eye(len(others)) + N[np.ix_(others, others)])
    gain = NUMPY.cho_solve(lower, N[np.ix_(others, keep)])
    M[others] = -gain  # (V2)
    kept = N[np.ix_(keep, keep)] - N[np.ix_(keep, others)] @ gain
    return (kept + kept.T) / 2, M


def latent_term(N_e: Array, N_t: Array, keep_e: Index, keep_t: Index) -> PairTerm:
    """The term of sharing latents keep_e of one side, which are latents keep_t of the other, and no others."""
    # What is not shared is integrated out side by side (V2). What is left adds up where both sides have the same
    # latents: log p(e, t) has W of the sum, log p(e) and log p(t) have their own, and the cross term is 2 y_e W y_t'.
    kept_e, M_e = reduce_evidence(N_e, keep_e)
    kept_t, M_t = reduce_evidence(N_t, keep_t)
    joint, k_joint = log_evidence_matrix(kept_e + kept_t)
    own_e, k_e = log_evidence_matrix(kept_e)
    own_t, k_t = log_evidence_matrix(kept_t)
    root = NUMPY.cholesky(2 * joint)
    return PairTerm(  # (V3)
        M_e @ root,
        M_t @ root,
        M_e @ (joint - own_e) @ M_e.T,
        M_t @ (joint - own_t) @ M_t.T,
        k_joint - k_e - k_t,
    )


def vector_term(A: Array, B: Array, R: Array) -> PairTerm:
    """The same for two vectors with covariances A and B, of which R is what they share: p(e | t) against p(e)."""
    lower_e = NUMPY.cholesky(A)
    lower_t = NUMPY.cholesky(B)
    gain = NUMPY.cho_solve(lower_t, R.T)  # the mean of e given t is t gain
    lower = NUMPY.cholesky(A - R @ gain)
    cross = NUMPY.cho_solve(lower, gain.T)
    row = (NUMPY.inverse(lower_e) - NUMPY.inverse(lower)) / 2
    column = -gain @ cross / 2
    constant = float(np.log(lower_e.diagonal()).sum() - np.log(lower.diagonal()).sum())
    return PairTerm(cross, None, row, (column + column.T) / 2, constant)  # (V12)


def published_term(N_e: Array, N_t: Array, scale: Array) -> PairTerm:
    """The paper's covariance of a half-shared hypothesis, as published.

    The doubled view's covariance stands twice, and all of it in all four blocks
    (docs/errata.md): everything is shared, with that loading times sqrt 2.
    """
    joint, k_joint = log_evidence_matrix(scale[:, None] * (N_e + N_t) * scale)
    own_e, k_e = log_evidence_matrix(N_e)
    own_t, k_t = log_evidence_matrix(N_t)
    joint = scale[:, None] * joint * scale
    root = NUMPY.cholesky(2 * joint)
    return PairTerm(root, root, joint - own_e, joint - own_t, k_joint - k_e - k_t)  # (V8)


class LatentForms:
    """Forms of one model of latents, which keeps the matrices that it has made.

    views : with their ranks
    names : {view: names of the training classes}, of views whose classes may be known
    posteriors : gives the `KnownClasses` of a view, when they are needed
    """

    def __init__(
        self,
        space: LatentSpace,
        views: Mapping[str, int],
        names: Callable[[str], Names],
        posteriors: Callable[[str], KnownClasses],
    ) -> None:
        self.space = space
        self.views = dict(views)
        self.base = base_columns(tuple(views))
        self.published = False
        self.known: dict[str, KnownClasses] = {}
        self._names = names
        self._posteriors = posteriors
        self._terms: OrderedDict[Hashable, PairTerm] = OrderedDict()
        self._kept = 0
        self._layouts: dict[Table, Layout] = {}
        self._shared: dict[Hashable, tuple[Index, Index]] = {}

    def classes(self, view: str) -> Names:
        names = self._names(view)
        self.learn(view)
        return names

    @property
    def is_llr(self) -> bool:
        return True

    def as_published(self) -> LatentForms:
        """The same with the covariances that the paper gives to half-shared hypotheses."""
        other = copy(self)
        other.published = True
        return other

    def learn(self, view: str) -> None:
        """Have the training posteriors of a view at hand; terms of earlier ones go where they have changed."""
        known = self._posteriors(view)
        if self.known.get(view) is not known:
            if view in self.known:
                self._terms.clear()
                self._kept = 0
            self.known[view] = known

    def side(self, table: Table, y: AnyArray) -> LatentSide:
        layout = self._layouts.get(table)
        if layout is None:
            if len(self._layouts) >= KEPT_LAYOUTS:
                self._layouts.clear()
                self._shared.clear()
            layout = Layout(table, self.views)
            self._layouts[table] = layout
        return LatentSide(self.space, layout, self.known, y)

    def alone(self, side: LatentSide, reading: Reading) -> Any:
        if not side.blocks_of(reading):
            return None
        return side.alone(reading) - side.alone(side.layout.table.unread())

    def key(
        self, enrol: LatentSide, test: LatentSide, reading: Reading, matches: Matches
    ) -> Hashable | None:
        made = self.term(enrol, test, reading, matches)
        return None if made is None else made[0]

    def left(
        self, enrol: LatentSide, test: LatentSide, reading: Reading, matches: Matches
    ) -> FormSide:
        key, term, in_vectors = _there(self.term(enrol, test, reading, matches))
        e = enrol.evidence(reading, in_vectors)
        shift = test.offset(reading_of(matches), in_vectors)
        left = enrol.times((key, "left"), e, term.left, term.diagonals.get("left"))
        if e.offset is not None:
            left = left - like(e.offset @ term.left, left)
        row = _own(term, "row", key, enrol, e, reading) + term.constant
        if shift is not None:
            # tests as classes with one covariance share the product: their means move the rows only
            shift = shift if term.right is None else shift @ term.right
            row = row - left @ like(shift, left)
        return FormSide(((1.0, left),), row)

    def right(
        self, enrol: LatentSide, test: LatentSide, reading: Reading, matches: Matches
    ) -> FormSide:
        key, term, in_vectors = _there(self.term(enrol, test, reading, matches))
        t = test.evidence(reading_of(matches), in_vectors)
        right = t.values
        if term.right is not None:
            right = test.times((key, "right"), t, term.right, term.diagonals.get("right"))
        return FormSide(((1.0, right),), _own(term, "column", key, test, t, reading_of(matches)))

    def term(
        self, enrol: LatentSide, test: LatentSide, reading: Reading, matches: Matches
    ) -> tuple[Hashable, PairTerm, bool] | None:
        """The matrices of a world with their key, and whether they are of vectors; None where nothing is shared."""
        name = (test.layout.table, reading, matches, self.published)
        if name not in enrol.terms:
            enrol.terms[name] = self._term(enrol, test, reading, matches)
        made: tuple[Hashable, PairTerm, bool] | None = enrol.terms[name]
        return made

    def _term(
        self, enrol: LatentSide, test: LatentSide, reading: Reading, matches: Matches
    ) -> tuple[Hashable, PairTerm, bool] | None:
        keep_e, keep_t = self._shared_latents(enrol.layout, test.layout, matches)
        if len(keep_e) == 0:
            return None
        in_vectors = enrol.is_cell and test.is_cell and self.space.is_wide and not self.published
        shared_views: tuple[str, ...] = ()
        if self.published:
            pairs = zip(self.base, matches, strict=True)
            shared_views = tuple(view for view, classes in pairs if classes[0][0] >= 0)
        keys = (
            enrol.key(reading, in_vectors),
            test.key(reading_of(matches), in_vectors),
            keep_e.tobytes(),
            keep_t.tobytes(),
            shared_views,
        )
        term = self._terms.get(keys)
        if term is None:
            sides = enrol.matrix(reading, in_vectors), test.matrix(reading_of(matches), in_vectors)
            if len(shared_views) == 1:
                term = published_term(*sides, self._doubled(shared_views[0]))
            elif in_vectors:
                term = vector_term(*sides, self._shared_covariance(enrol, reading, keep_e))
            else:
                term = latent_term(*sides, keep_e, keep_t)
            self._keep(keys, term)
        return keys, term, in_vectors

    def _keep(self, key: Hashable, term: PairTerm) -> None:
        self._terms[key] = term
        self._kept += term.size
        while self._kept > KEPT_NUMBERS and len(self._terms) > 1:
            _, oldest = self._terms.popitem(last=False)
            self._kept -= oldest.size

    def _doubled(self, view: str) -> Array:
        """Scale of every latent where the covariance of one view stands twice."""
        scales = [
            np.full(rank, np.sqrt(2.0) if v == view else 1.0) for v, rank in self.views.items()
        ]
        return np.concatenate(scales)

    def _shared_covariance(self, side: LatentSide, reading: Reading, keep: Index) -> Array:
        """What two vectors share that share some latents, of which some may be of training classes."""
        loading = self.space.whitened.copy()
        for block, known, c in side.blocks_of(reading):
            loading[:, block] = loading[:, block] @ known.roots[c]
        return np.asarray(loading[:, keep] @ loading[:, keep].T)

    def _shared_latents(self, enrol: Layout, test: Layout, matches: Matches) -> tuple[Index, Index]:
        """Numbers of the latents that the two sides share: in the enrolment, and the same ones in the test."""
        met_classes = tuple(tuple(match[0] for match in classes) for classes in matches)
        key = (enrol.table, test.table, met_classes)
        kept = self._shared.get(key)
        if kept is not None:
            return kept
        keep_e: list[int] = []
        keep_t: list[int] = []
        for (k, classes), block in test.blocks.items():
            parts = [self.base.index(part) for part in parts_of(test.views[k])]
            met = tuple(met_classes[i][c] for i, c in zip(parts, classes, strict=True))
            there = enrol.blocks.get((k, met))
            # an interaction is shared where all its parts are, and it was enrolled
            if min(met) >= 0 and there is not None:
                keep_e += range(there.start, there.stop)
                keep_t += range(block.start, block.stop)
        kept = np.asarray(keep_e, dtype=np.int64), np.asarray(keep_t, dtype=np.int64)
        self._shared[key] = kept
        return kept


KEPT_LAYOUTS = 2**12
"""Layouts of latents are kept for this many tables."""


def _there(made: tuple[Hashable, PairTerm, bool] | None) -> tuple[Hashable, PairTerm, bool]:
    if made is None:
        raise ValueError("a form that is 0 has no sides")
    return made


def _own(
    term: PairTerm,
    name: str,
    key: Hashable,
    side: LatentSide,
    evidence: Evidence,
    reading: Reading,
) -> Any:
    """(n,) what a side says by itself: its quadratic form about the offset."""
    form = getattr(term, name)
    values = evidence.values
    offset = evidence.offset
    kept = side.owns.get((key, name, reading))
    if kept is not None:
        return kept
    times = side.times((key, name), evidence, form, term.diagonals.get(name))
    total = row_products(times, values)
    if offset is not None:
        total = total - times @ like(2.0 * offset, values) + float(offset @ form @ offset)
    if side.keeps or offset is not None:
        # the same tests, as the same class, meet profiles of many classes
        side.owns[key, name, reading] = total
    return total


# -- scores that are no models -------------------------------------------------------------------------------


class ScoreForms:
    """A score l(e) . r(t) + a(e) + b(t) that counts, times a slope and with an intercept, where all views are shared.

    encode : gives of the sum of a profile's evidence (n, r) and its weights (n,) the vectors (n, w), and what is added
        for every profile (n,) or None
    """

    def __init__(
        self,
        base: Sequence[str],
        encode: Callable[[AnyArray, AnyArray], tuple[AnyArray, AnyArray | None]],
        line: tuple[float, float] = (1.0, 0.0),
        name: str = "a score",
    ) -> None:
        self.base = tuple(base)
        self.encode = encode
        self.line = line
        self.name = name

    @property
    def is_llr(self) -> bool:
        """Whether a line was learnt that makes likelihood ratios of the score."""
        return self.line != (1.0, 0.0)

    def classes(self, view: str) -> Names:
        raise LabelError(f"{self.name} keeps no classes of a view {view!r}")

    def side(self, table: Table, y: AnyArray) -> tuple[AnyArray, AnyArray | None]:
        total = y.sum(1)
        weights = like(np.full(len(total), sum(table.weights)), total)
        return self.encode(total, weights)

    def alone(self, side: Any, reading: Reading) -> None:
        return None

    def key(self, enrol: Any, test: Any, reading: Reading, matches: Matches) -> Hashable | None:
        if not all(match[0] >= 0 for classes in matches for match in classes):
            return None
        return "score", self.line

    def left(self, enrol: Any, test: Any, reading: Reading, matches: Matches) -> FormSide:
        slope, intercept = self.line
        vectors, own = enrol
        row = namespace(vectors).zeros(len(vectors)) + intercept
        if own is not None:
            row = row + slope * own
        return FormSide(((slope, vectors),), row)

    def right(self, enrol: Any, test: Any, reading: Reading, matches: Matches) -> FormSide:
        vectors, own = test
        column = namespace(vectors).zeros(len(vectors))
        if own is not None:
            column = column + self.line[0] * own
        return FormSide(((1.0, vectors),), column)


# -- several scorers -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Part:
    """One expert of several: its forms, the columns of y that are its own, and its factors.

    factors : {view that it speaks of, or "together": factor}
    numbers : {view: (classes,) its own number of every training class of the joint scorer, -1: it has not seen it}
    """

    forms: Forms
    columns: slice
    factors: Mapping[str, float]
    numbers: Mapping[str, Sequence[int]]


class JointForms:
    """Forms of experts that see different columns: they add up in each world, each with its factors (9.8).

    An expert has a factor for every view, and one for several views together beyond that. Where the world says
    something of views V, with G(S) the expert's form when only what it says of S is applied,

        F = sum of factor[v] G({v}) over v in V  +  together (G(V) - sum of G({v}))
    """

    def __init__(
        self, base: Sequence[str], parts: Sequence[Part], names: Mapping[str, Names]
    ) -> None:
        self.base = tuple(base)
        self.parts = tuple(parts)
        self.names = names
        self._said: dict[Hashable, list[tuple[int, float, Reading, Matches]]] = {}

    @property
    def is_llr(self) -> bool:
        return all(part.forms.is_llr for part in self.parts)

    def classes(self, view: str) -> Names:
        if view not in self.names:
            raise LabelError(
                f"the experts keep no classes of a view {view!r}; they do of {list(self.names)}"
            )
        for part in self.parts:
            if view in part.numbers:
                part.forms.classes(view)
        return self.names[view]

    def side(self, table: Table, y: AnyArray) -> list[Any]:
        sides = []
        for part in self.parts:
            side = part.forms.side(self.own_table(part, table), y[:, :, part.columns])
            if isinstance(side, LatentSide):
                side.keeps = True  # an expert's form stands in several worlds
            sides.append(side)
        return sides

    def own_table(self, part: Part, table: Table) -> Table:
        """The table as an expert with some of the views sees it; class names are of the joint scorer's."""
        where = [self.base.index(view) for view in part.forms.base]
        classes = tuple(table.classes[i] for i in where)
        return Table(part.forms.base, table.weights, classes, tuple(table.names[i] for i in where))

    def alone(self, side: list[Any], reading: Reading) -> Any:
        total = None
        for part, own in zip(self.parts, side, strict=True):
            numbers = self._read(part, reading)
            said = [v for v, c in zip(part.forms.base, numbers, strict=True) if max(c) >= 0]
            for views, factor in _weighted(part.factors, said):
                one = part.forms.alone(own, _restrict(part.forms.base, numbers, views, -1))
                if one is not None:
                    total = factor * one if total is None else total + factor * one
        return total

    def key(
        self, enrol: list[Any], test: list[Any], reading: Reading, matches: Matches
    ) -> Hashable | None:
        keys = []
        for k, factor, read, world in self.said(reading, matches):
            part = self.parts[k]
            key = part.forms.key(enrol[k], test[k], read, world)
            if key is not None:
                keys.append((factor, part.columns.start, key))
        return tuple(keys) or None

    def left(
        self, enrol: list[Any], test: list[Any], reading: Reading, matches: Matches
    ) -> FormSide:
        return self._sum(enrol, test, reading, matches, is_left=True)

    def right(
        self, enrol: list[Any], test: list[Any], reading: Reading, matches: Matches
    ) -> FormSide:
        return self._sum(enrol, test, reading, matches, is_left=False)

    def _sum(
        self,
        enrol: list[Any],
        test: list[Any],
        reading: Reading,
        matches: Matches,
        *,
        is_left: bool,
    ) -> FormSide:
        """The experts' blocks side by side, and the sum of what they add."""
        blocks: list[tuple[float, AnyArray]] = []
        own: Any = 0.0
        for k, factor, read, world in self.said(reading, matches):
            forms = self.parts[k].forms
            sides = enrol[k], test[k], read, world
            if forms.key(*sides) is None:
                continue
            one = forms.left(*sides) if is_left else forms.right(*sides)
            outside = factor if is_left else 1.0
            blocks += [(outside * times, block) for times, block in one.blocks]
            own = own + factor * one.own
        return FormSide(tuple(blocks), own)

    def said(self, reading: Reading, matches: Matches) -> list[tuple[int, float, Reading, Matches]]:
        """Of a world: number of an expert, factor, and the world as it is put to the expert."""
        kept = self._said.get((reading, matches))
        if kept is None:
            if len(self._said) >= KEPT_LAYOUTS:
                self._said.clear()
            kept = list(self._say(reading, matches))
            self._said[reading, matches] = kept
        return kept

    def _say(
        self, reading: Reading, matches: Matches
    ) -> Iterator[tuple[int, float, Reading, Matches]]:
        for k, part in enumerate(self.parts):
            base = part.forms.base
            read = self._read(part, reading)
            own = self._matched(part, matches)
            fresh = [all(match == FRESH for match in classes) for classes in own]
            views = [view for view, is_fresh in zip(base, fresh, strict=True) if not is_fresh]
            for some, factor in _weighted(part.factors, views):
                yield k, factor, read, _restrict(base, own, some, FRESH)

    def _number(self, part: Part, view: str, trained: int) -> int:
        """The expert's own number of a training class."""
        if trained < 0 or view not in part.numbers or view not in part.factors:
            return -1
        return int(part.numbers[view][trained])

    def _read(self, part: Part, reading: Reading) -> Reading:
        rows = []
        for view in part.forms.base:
            trained = reading[self.base.index(view)]
            rows.append(tuple(self._number(part, view, c) for c in trained))
        return tuple(rows)

    def _matched(self, part: Part, matches: Matches) -> Matches:
        rows = []
        for view in part.forms.base:
            own = []
            for met, trained, _ in matches[self.base.index(view)]:
                own.append((met, self._number(part, view, trained), -1))
            rows.append(tuple(own) if view in part.factors else (FRESH,) * len(own))
        return tuple(rows)


def _weighted(factors: Mapping[str, float], views: Sequence[str]) -> list[tuple[list[str], float]]:
    """Sets of views and the factors of their forms, of what a world says of some views (V10)."""
    if len(views) == 1:
        weighted = [(list(views), factors[views[0]])]
    elif views:
        together = factors[TOGETHER]
        weighted = [([view], factors[view] - together) for view in views]
        weighted.append((list(views), together))
    else:
        weighted = []
    return [(some, factor) for some, factor in weighted if factor != 0]


def _restrict(base: Sequence[str], rows: Any, views: Sequence[str], nothing: Any) -> Any:
    """What is said of some views only."""
    pairs = zip(base, rows, strict=True)
    return tuple(row if view in views else (nothing,) * len(row) for view, row in pairs)
