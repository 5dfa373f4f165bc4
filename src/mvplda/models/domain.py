"""PLDA of unit-length embeddings with the recording domain as a view: for people and places that training did not see.

A vector is several extractors' embeddings side by side, each of them about one view: a network of voices about the
speaker, a network of words about the phrase. Scaled to length 1, a block is

    u = mean + d + (effect of its own view) + (effects of the other views) + noise,        d ~ N(0, delta / D I)

where d is the same for all recordings of one domain: language, microphones, rooms, length of the phrases. What is
enrolled in a deployment tells d (`deployed`); what is left of it is integrated out. Vectors are then scaled to length
1 again about mean + d, since embeddings of long phrases vary less than those of single words.

Phrases that are enrolled by name are known classes of the deployment (`known=["phrase"]`): whoever says one of them
tells what it sounds like, and what it is not.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .._typing import (
    AnyArray,
    Array,
    BoolArray,
    Columns,
    FloatArray,
    IntArray,
    Json,
    Labels,
    Names,
)
from ..backend import as_vectors, like, sum_rows
from ..exceptions import DataError, LabelError
from ..labels import exact_names
from ..persistence import fingerprint
from ..scoring.forms import JointForms, PairForm, Part, Quadratic, row_products
from ..scoring.latents import PairTerm, vector_term
from ..scoring.profiles import Profiles
from ..scoring.worlds import Matches, Reading, Table
from .scorer import BaseScorer, kept, needed_labels, side_by_side

OWN_STRENGTH, NOISE_STRENGTH = 0.85, 0.92
"""Share of the isotropic target in the covariance of a block's own view and of its noise; others are isotropic."""

LARGEST = 4.0
"""No variance of vectors of length 1 is larger."""

VARIANCES = ("speaker", "phrase", "cell", "take", "domain")

SMALLEST_SQUARE = 0.05
"""No domain leaves vectors of length 1 a smaller mean square about its centre."""

MOST_CELLS = 600
"""Enrolled cells that a domain is learnt from, at most: more make no difference."""

UNNAMED = 0.008
"""Variance of a domain about which nothing is learnt, for want of names of its classes, such as the phrases: where all
may say one phrase, what is the phrase and what the domain cannot be told apart."""

KNOWN_NOISE = 1.5
"""Tests of known classes are so much noisier than training: chosen on corpora that were left out."""


class InDomain:
    """A fitted model of domains as an expert of a committee: fitting moves it to the domain of the vectors."""

    def __init__(self, model: DomainPLDA) -> None:
        self.model = model

    def __sklearn_clone__(self) -> InDomain:
        return self

    def fit(self, X: Array, y: Columns) -> DomainPLDA:
        people, *others = y
        labels = {view: y[view] for view in others}
        return self.model.deployed(self.model.enrol(X, y[people], labels or None)).settled()


class DomainPLDA(BaseScorer, BaseEstimator):
    """A model of blocks of unit-length embeddings, each about one view, in a domain that enrolments tell.

    Parameters
    ----------
    blocks : dict of {name: (columns, view)}
        Blocks of columns in their order, and the view that each is about.
    domain : str
        The column of labels that names the domain (corpus) of training vectors.
    delta : dict of {name: variance of domains}
        Total variance of the means of domains, by block.
    factors : dict of {name: share of a block's columns that count}
        The noise of columns hangs together: as evidence they are worth fewer.

    Attributes
    ----------
    views_ : dict of {view: 0}
    mean_ : (D,) mean of the training domains' means
    own_ : dict of {name: (D, D) covariance of the classes of the block's own view}, scaled to length 1
    other_ : dict of {name: variance per column of what the other views add to a class of cells}
    noise_ : dict of {name: (D, D) covariance of takes}
    variances_ : dict of {name: total variances of speakers, phrases, cells (a person's way of saying a phrase), takes
        and domains}, for the posterior of a domain
    shift_ : (D,) posterior mean of the domain in use; zeros until it was `deployed`
    doubt_ : dict of {name: posterior variance of the domain in use, all columns together}
    names_ : dict of {view: names of the classes that the deployment knows}
    class_means_, class_doubts_ : dict of {view: (classes, D) posterior means, (classes,) variances of one column}, of
        vectors scaled about the domain
    """

    FITTED = (
        "views_",
        "mean_",
        "shift_",
        "own_",
        "other_",
        "noise_",
        "variances_",
        "doubt_",
        "names_",
        "class_means_",
        "class_doubts_",
    )

    def __init__(
        self,
        blocks: Mapping[str, tuple[int, str]],
        domain: str = "domain",
        delta: Mapping[str, float] | None = None,
        factors: Mapping[str, float] | None = None,
    ) -> None:
        self.blocks = blocks
        self.domain = domain
        self.delta = delta
        self.factors = factors

    # -- training ------------------------------------------------------------

    def fit(self, X: ArrayLike, y: Labels | None = None) -> Self:
        """Fit to vectors of several domains.

        y : labels of the blocks' views and, where there are several, of the domain
        """
        vectors = as_vectors(X)
        width = sum(columns for columns, _ in self.blocks.values())
        if vectors.shape[1] != width:
            raise DataError(f"the blocks have {width} columns, the vectors {vectors.shape[1]}")
        labels = needed_labels(y)
        views = list(dict.fromkeys(view for _, view in self.blocks.values()))
        missing = [view for view in views if view not in labels]
        if missing:
            raise LabelError(f"there are no labels of the view {missing[0]!r}")
        # without names of domains all vectors are of one
        domains = labels.get(self.domain, np.zeros(len(vectors), dtype=np.int64))
        self.views_ = dict.fromkeys(views, 0)
        self.mean_ = np.zeros(width)
        self.own_: dict[str, FloatArray] = {}
        self.other_: dict[str, float] = {}
        self.noise_: dict[str, FloatArray] = {}
        self.variances_: dict[str, dict[str, float]] = {}
        # lengths of embeddings say how clear a recording is, not whose it is
        unit = self.project(vectors.astype(np.float64))
        for name, columns, view in self._columns():
            others = [labels[other] for other in views if other != view]
            rest = np.zeros(len(vectors)) if not others else others[0]
            self._fit_block(name, unit[:, columns], columns, labels[view], rest, domains)
        self._forget_domain()
        return self

    def _forget_domain(self) -> None:
        self.shift_ = np.zeros_like(self.mean_)
        first = next(iter(self.views_))
        self.doubt_ = {}
        for name, _, view in self._columns():
            delta = self.variances_[name]["domain"]
            # profiles are people, whatever else has no names
            self.doubt_[name] = delta if view == first else min(delta, UNNAMED)
        self.names_: dict[str, list[Any]] = {}
        self.class_means_: dict[str, Array] = {}
        self.class_doubts_: dict[str, Array] = {}

    def _fit_block(
        self,
        name: str,
        u: Array,
        columns: slice,
        own: Names,
        rest: Names,
        domains: Names,
    ) -> None:
        """Mean, spreads and variances of one block: moments within each domain, averaged over domains."""
        means, before, after = [], [], []
        for domain in np.unique(domains):
            rows = domains == domain
            # within a domain, so that domains are not taken for people
            centre = u[rows].mean(axis=0)
            means.append(centre)
            apart = u[rows] - centre
            before.append(moments(apart, own[rows], rest[rows]))
            # spreads are of vectors that are scaled about their domain, as in use
            scaled = apart / np.maximum(np.linalg.norm(apart, axis=1, keepdims=True), 1e-12)
            after.append(moments(scaled - scaled.mean(axis=0), own[rows], rest[rows]))
        D = u.shape[1]
        self.mean_[columns] = np.mean(means, axis=0)
        view, other, cell, noise = (np.mean(parts, axis=0) for parts in zip(*after, strict=True))
        # few classes overstate what sets classes apart: covariances are drawn to isotropic ones
        self.own_[name] = shrunk(view, OWN_STRENGTH)
        self.other_[name] = float(np.trace(other) + np.trace(cell)) / D
        self.noise_[name] = shrunk(noise, NOISE_STRENGTH)
        # the posterior of a domain is about vectors before they are scaled about it
        traces = np.mean([[np.trace(part) for part in parts] for parts in before], axis=0)
        is_speaker = next(iter(self.views_)) == self.blocks[name][1]
        speaker, phrase = traces[:2] if is_speaker else traces[1::-1]
        # one domain tells nothing of how domains differ: a usual value
        spread = float(np.sum(np.var(means, axis=0, ddof=1))) if len(means) > 1 else 0.1
        delta = (self.delta or {}).get(name, spread)
        numbers = np.clip([speaker, phrase, *traces[2:], delta], 1e-6, LARGEST)
        self.variances_[name] = dict(zip(VARIANCES, numbers.tolist(), strict=True))

    # -- evidence and the domain -----------------------------------------------

    def project(self, vectors: AnyArray) -> AnyArray:
        """(n, D) the vectors, each block scaled to length 1. It does not depend on the domain."""
        made = []
        for _, columns, _ in self._columns():
            block = vectors[:, columns]
            length = row_products(block, block) ** 0.5
            if isinstance(length, np.ndarray) and not length.all():
                raise DataError("Input X contains a block of zeros, which has no direction")
            made.append(block / length[:, None])
        return side_by_side(made)

    @property
    def has_domain(self) -> bool:
        return True

    def settled(self) -> Self:
        """The same model with the domain in use as the one that it is in before anything is enrolled."""
        # the fitted parts are shared: nothing writes to them
        other = copy(self)
        other.mean_ = self.mean_ + self.shift_
        other.shift_ = np.zeros_like(self.shift_)
        return other

    def deployed(self, profiles: Profiles | None) -> Self:
        """The same model in the domain of what is enrolled: whose means tell where recordings lie here.

        Exact under the isotropic variances: with C cells of means x, of which people and phrases recur, their
        covariance is V (C x C), and the domain has precision 1/delta + 1'V^-1 1 and mean 1'V^-1 (x - mean) over it.
        One person, or one phrase that all say, therefore moves it little, however many takes there are.
        None: nothing is enrolled.
        """
        check_is_fitted(self, "mean_")
        if profiles is None:
            return self
        # the posterior of the domain takes a solve of all cells with each other
        rows = np.arange(len(profiles.owner))
        if len(rows) > MOST_CELLS:
            rows = np.sort(np.random.default_rng(0).permutation(rows)[:MOST_CELLS])
        other = copy(self)
        other._forget_domain()
        if not len(rows):
            return other
        some = Enrolled.of(profiles, rows, tuple(self.views_))
        for name, columns, view in self._columns():
            here = self._place(name, some)
            if view in some.names:
                classes = self._classes(name, some, here)
                # a name may say nothing: then every cell is a class of its own
                unnamed = some.without_names(view)
                there = self._place(name, unnamed)
                if classes.evidence >= self._classes(name, unnamed, there).evidence:
                    other.names_[view] = some.names[view]
                    other.class_means_[view] = classes.means
                    other.class_doubts_[view] = classes.doubts
                else:
                    here = there
            other.shift_[columns] = here.shift
            other.doubt_[name] = here.doubt
        return other

    def _place(self, name: str, some: Enrolled) -> Place:
        """The posterior of the domain, from vectors as they are."""
        columns, view = next((c, view) for block, c, view in self._columns() if block == name)
        v = self.variances_[name]
        V = some.covariance(v["speaker"], v["phrase"], v["cell"], v["take"])
        # what recurs (people, phrases) counts once, however often it is recorded
        share = np.linalg.solve(V, np.ones(len(V)))  # V^-1 1
        # without labels it may be one phrase that all say: then little can be learnt of the domain
        delta = v["domain"] if view in some.same else min(v["domain"], UNNAMED)
        precision = 1.0 / delta + share.sum()
        means = some.means[:, columns]
        shift = share @ (means - self.mean_[columns]) / precision
        return Place(means, self.mean_[columns] + shift, shift, float(1.0 / precision))

    def _classes(self, name: str, some: Enrolled, place: Place) -> Classes:
        """The posterior of every class that is enrolled by name, of vectors scaled about the domain.

        With z the scaled cells, p the mean of training there and K their covariance, domain included, the class c has
        the mean p + k' K^-1 (z - p) and the variance k_cc - k' K^-1 k, where k is its covariance with the cells.
        """
        scaled, square = about(place.means, place.centre)
        training = -place.shift / np.sqrt(square.mean())
        own, other, cell, noise = self._known_variances(name)
        domain = self.variances_[name]["domain"] / _mean_square(place.centre)
        # names are of a view behind the first, whose classes are the profiles
        K = domain + some.covariance(other, own, cell, noise)
        k = domain + own * some.members(self.blocks[name][1])  # (classes, cells)
        weights = np.linalg.solve(K, k.T).T
        apart = scaled - training
        variances = domain + own - np.sum(weights * k, axis=1)
        misfit = np.linalg.slogdet(K)[1] + np.trace(np.linalg.solve(K, apart @ apart.T))
        return Classes(training + weights @ apart, variances / len(place.centre), -float(misfit))

    def _known_variances(self, name: str) -> tuple[float, float, float, float]:
        """Total variances of scaled vectors: the block's own view, the other, cells, and takes of tests."""
        v = self.variances_[name]
        D = len(self.own_[name])
        is_speaker = next(iter(self.views_)) == self.blocks[name][1]
        rest = v["phrase"] if is_speaker else v["speaker"]
        cell = self.other_[name] * D * v["cell"] / (rest + v["cell"])
        noise = KNOWN_NOISE * float(np.trace(self.noise_[name]))
        return float(np.trace(self.own_[name])), self.other_[name] * D - cell, cell, noise

    @property
    def classes_(self) -> dict[str, Names]:
        return {view: exact_names(names) for view, names in self.names_.items()}

    def known_names(self, view: str) -> Names:
        if view not in self.names_:
            raise LabelError(f"nothing that is enrolled has names of the view {view!r}")
        return self.classes_[view]

    # -- scoring -----------------------------------------------------------------

    def forms(self) -> JointForms:
        if not hasattr(self, "mean_"):
            check_is_fitted(self, "mean_")
        # kept with the matrices that they have made, for as long as mean and domain are these
        parts = (self.mean_, self.shift_, self.doubt_, self.class_means_)
        return kept(self, "forms", parts, self._make_forms)

    def _make_forms(self) -> JointForms:
        parts = []
        for name, columns, view in self._columns():
            centre = (self.mean_ + self.shift_)[columns]
            doubt = self.doubt_[name] / len(centre)
            covariances = self.own_[name], self.other_[name], self.noise_[name]
            known = None
            numbers = {}
            if view in self.names_:
                own, other, cell, noise = (v / len(centre) for v in self._known_variances(name))
                means, doubts = self.class_means_[view], self.class_doubts_[view]
                known = KnownClasses(means, doubts, own, other + cell, cell, noise)
                numbers = {view: range(len(means))}
            forms = UnitForms(view, centre, *covariances, doubt, known)
            factor = (self.factors or {}).get(name, 1.0)
            parts.append(Part(forms, columns, {view: factor}, numbers))
        return JointForms(tuple(self.views_), parts)

    @property
    def width_in(self) -> int:
        return len(self.mean_)

    def _columns(self) -> list[tuple[str, slice, str]]:
        stops = np.cumsum([columns for columns, _ in self.blocks.values()]).tolist()
        return [
            (name, slice(stop - columns, stop), view)
            for (name, (columns, view)), stop in zip(self.blocks.items(), stops, strict=True)
        ]

    # -- files ---------------------------------------------------------------------

    def describe(self) -> Json:
        blocks = {
            name: f"{columns} columns, {view}" for name, (columns, view) in self.blocks.items()
        }
        return {**super().describe(), "views": list(self.views_), "blocks": blocks}

    def _key(self) -> str:
        """Profiles fit whatever domain the model is deployed in."""
        blocks = {"blocks": list(self.blocks)}
        return kept(self, "key", (self.mean_,), lambda: fingerprint({"mean": self.mean_}, blocks))

    def check_state(self) -> None:
        width = sum(columns for columns, _ in self.blocks.values())
        fits = self.mean_.shape == self.shift_.shape == (width,)
        for name, (columns, view) in self.blocks.items():
            variances = self.variances_[name]
            # vectors of length 1 cannot vary by more, and what is enrolled only narrows the domain
            fits &= view in self.views_ and 0 <= self.other_[name] <= LARGEST
            fits &= min(variances.values()) > 0 and max(variances.values()) <= LARGEST
            fits &= 0 <= self.doubt_[name] <= variances["domain"]
            for matrix in (self.own_[name], self.noise_[name]):
                fits = fits and matrix.shape == (columns, columns)
                fits = fits and np.allclose(matrix, matrix.T) and np.linalg.eigvalsh(matrix)[0] > 0
        if not fits:
            raise DataError("its arrays do not make a model of domains")


class Place(NamedTuple):
    """Means of cells (C, D), and the posterior of their domain: mean and domain (D,), the domain itself, variance."""

    means: Array
    centre: Array
    shift: Array
    doubt: float


class Classes(NamedTuple):
    """Posterior means (classes, D) and variances (classes,) of known classes; the larger evidence, the likelier."""

    means: Array
    doubts: Array
    evidence: float


@dataclass(frozen=True, eq=False)
class Enrolled:
    """Cells of profiles that a domain is learnt from.

    means, weights : (C, D), (C,) of the cells
    same : {view: (C, C) whether two cells are of one class}; a view without labels is missing
    names : {view: names of its classes}, of labelled views
    codes : {view: (C,) class of every cell, -1 where its label is missing}
    """

    means: Array
    weights: Array
    views: tuple[str, ...]
    same: dict[str, BoolArray]
    names: dict[str, list[Any]]
    codes: dict[str, IntArray]

    @classmethod
    def of(cls, profiles: Profiles, rows: IntArray, views: tuple[str, ...]) -> Self:
        weights = profiles.weights[rows]
        means = np.asarray(profiles.y)[rows] / weights[:, None]
        # a profile is one person
        owner = profiles.owner[rows]
        same = {views[0]: np.equal.outer(owner, owner)}
        names: dict[str, list[Any]] = {}
        codes: dict[str, IntArray] = {}
        for view in views[1:]:
            if view not in profiles.labels:
                continue
            labels = profiles.labels[view]
            numbers, codes[view] = np.unique(labels.codes[rows], return_inverse=True)
            codes[view] = codes[view].reshape(-1) - np.count_nonzero(numbers < 0)
            names[view] = labels.names[numbers[numbers >= 0]].tolist()
            # cells without a label are classes of their own
            own = np.where(codes[view] < 0, -1 - np.arange(len(rows)), codes[view])
            same[view] = np.equal.outer(own, own)
        return cls(means, weights, views, same, {v: n for v, n in names.items() if n}, codes)

    def covariance(self, first: float, second: float, cell: float, take: float) -> Array:
        """(C, C) of the cells' means, from total variances of the classes of two views, of cells, and of takes."""
        everything = np.ones((len(self.weights),) * 2)
        V = first * self.same[self.views[0]] + second * self.same.get(self.views[-1], everything)
        V[np.diag_indices(len(V))] += cell + take / self.weights
        return np.asarray(V)

    def without_names(self, view: str) -> Self:
        """The same where every cell is a class of its own."""
        same = {**self.same, view: np.eye(len(self.weights), dtype=bool)}
        return replace(self, same=same, names={**self.names, view: []})

    def members(self, view: str) -> BoolArray:
        """(classes, C) whether a cell is of a class."""
        return np.equal.outer(np.arange(len(self.names[view])), self.codes[view])


def _mean_square(centre: Array) -> float:
    """Of vectors of length 1 about their centre."""
    return max(1.0 - float(centre @ centre), SMALLEST_SQUARE)


def about(means: AnyArray, centre: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Means of vectors of length 1 scaled about a centre, and the squares by which: the vectors' mean square there."""
    # |u| = 1 for every take, so that the mean square about the centre follows from their mean
    square = 1.0 - 2.0 * (means @ centre) + centre @ centre
    return (means - centre) / square[:, None].clip(min=1e-6) ** 0.5, square


def moments(X: Array, own: Names, rest: Names) -> tuple[Array, Array, Array, Array]:
    """Covariances of the classes of two crossed views, of their cells, and of takes, from centred vectors.

    Means of x y' over pairs that share one view, the other, or both, so that any numbers of takes will do; every
    class weighs the same. Negative directions, which come of chance, are cut off.
    """
    first = np.unique(own, return_inverse=True)[1].reshape(-1)
    second = np.unique(rest, return_inverse=True)[1].reshape(-1)
    cell = np.unique(first * (second.max() + 1) + second, return_inverse=True)[1].reshape(-1)
    example = np.unique(cell, return_index=True)[1]
    sums, counts = _sums(X, cell)
    within = _pairs(X, np.ones(len(X)), cell, sums, counts)
    of_first = _pairs(sums, counts, first[example], *_sums(X, first))
    of_second = _pairs(sums, counts, second[example], *_sums(X, second))
    total = X.T @ X / len(X)
    # what a cell has beyond its two classes
    cells = _positive(within - of_first - of_second)
    return _positive(of_first), _positive(of_second), cells, _positive(total - within)


def _sums(X: Array, codes: IntArray) -> tuple[Array, Array]:
    counts = np.bincount(codes)
    return sum_rows(X, codes, len(counts)), counts.astype(np.float64)


def _pairs(parts: Array, sizes: Array, of: IntArray, totals: Array, counts: Array) -> Array:
    """Mean of x y' over pairs from different parts of one class, where a class is the total of its parts."""
    pairs = counts**2 - np.bincount(of, sizes**2, minlength=len(counts))
    several = pairs > 0
    if not several.any():
        return np.zeros((parts.shape[1], parts.shape[1]))
    # every class weighs the same, whatever the number of its pairs
    weight = np.where(several, 1.0 / np.where(several, pairs, 1.0), 0.0)
    products = (totals * weight[:, None]).T @ totals - (parts * weight[of][:, None]).T @ parts
    return np.asarray(products / np.count_nonzero(several))


def _positive(matrix: Array) -> Array:
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.asarray((vectors * np.maximum(values, 1e-9)) @ vectors.T)


def shrunk(matrix: Array, strength: float) -> FloatArray:
    """The matrix drawn towards the isotropic one of equal trace, in the precision of files."""
    D = len(matrix)
    drawn = (1 - strength) * matrix + strength * np.trace(matrix) / D * np.eye(D)
    return np.asarray(drawn, dtype=np.float32)


class UnitSide(NamedTuple):
    """Profiles, as one class of the block's view: vectors of length about 1, and of how much they are means."""

    vectors: AnyArray
    takes: float
    cells: float


class KnownClasses(NamedTuple):
    """Classes of a deployment, in a model whose covariances are isotropic.

    A test of the class c has the mean m_c; where the profile's own takes e are of the class, too, it is expected at
    m_c + g (e - m_c), for people have their own way of saying a phrase: g = cell / (variance of e about its class).

    means : (classes, D) posterior means m
    doubts : (classes,) their variances, of one column, as are all of the following
    own : of a class of which nothing is known
    within : of cells about their class
    cell : of what all takes of a person and a class share
    noise : of takes
    """

    means: Array
    doubts: Array
    own: float
    within: float
    cell: float
    noise: float

    def alone(self, side: UnitSide, number: int) -> Quadratic:
        """log N(x; m, v) - log N(x; 0, u): as a class, against nothing known."""
        m = self.means[number]
        D = len(m)
        v = float(self.doubts[number]) + self._spread(side)
        u = self.own + self._spread(side)
        constant = 0.5 * D * np.log(u / v) - 0.5 * float(m @ m) / v
        squares = np.full(D, 0.5 / u - 0.5 / v)
        key = ("known", number, *side[1:])
        return Quadratic(key, side.vectors, squares, m / v, float(constant))

    def form(self, e: UnitSide, t: UnitSide, number: int, where: tuple[int, int]) -> PairForm:
        """log N(t; m + g (e - m), s) - log N(t; m, v): the profile's own takes, against the class alone."""
        m = self.means[number]
        D = len(m)
        shared = self.cell / e.cells
        g = shared / self._spread(e)
        doubt = float(self.doubts[number])
        v = doubt + self._spread(t)
        s = (1.0 - g) ** 2 * doubt + self._spread(t) - g * shared
        size = float(m @ m)
        constant = 0.5 * (D * np.log(v / s) + size / v - (1.0 - g) ** 2 * size / s)
        key = ("known", number, *e[1:], *t[1:])
        one = np.ones(D)
        row = Quadratic(
            (where[0], key),
            e.vectors,
            -0.5 * g**2 / s * one,
            -g * (1.0 - g) / s * m,
            float(constant),
        )
        column = Quadratic(
            (where[1], key), t.vectors, (0.5 / v - 0.5 / s) * one, ((1.0 - g) / s - 1.0 / v) * m
        )
        return PairForm((*where, key), g / s * one, one, row, column)

    def _spread(self, side: UnitSide) -> float:
        """Variance of the mean of some takes of some cells about their class."""
        return self.within / side.cells + self.noise / side.takes


class UnitForms:
    """Pair forms of one block about its own view, in a domain that is known up to a variance.

    centre : (D,) mean and domain
    known : classes that the deployment knows
    own, other, noise : covariances, as `DomainPLDA` has them
    doubt : posterior variance of the domain, per column
    """

    is_llr = True

    def __init__(
        self,
        view: str,
        centre: Array,
        own: FloatArray,
        other: float,
        noise: FloatArray,
        doubt: float,
        known: KnownClasses | None = None,
    ) -> None:
        self.base: tuple[str, ...] = (view,)
        self.centre = centre
        self.own = own.astype(np.float64)
        self.other = other
        self.noise = noise.astype(np.float64)
        # vectors are scaled to length 1 about the centre, from a mean square of 1 - |centre|^2
        self.doubt = doubt / _mean_square(centre)
        if known is not None:
            known = known._replace(own=known.own + self.doubt)
        self.known = known
        # unlike a number, it is never that of other forms
        self._name = object()
        self._terms: dict[Hashable, PairTerm] = {}

    def side(self, table: Table, y: AnyArray) -> list[UnitSide]:
        """By class of the view."""
        sides = []
        for c in range(len(table.names[0])):
            cells = [cell for cell, own in enumerate(table.classes[0]) if own == c]
            weights = [table.weights[cell] for cell in cells]
            count = sum(weights)
            mean = y[:, like(cells, y)].sum(1) / count
            scaled, _ = about(mean, like(self.centre, mean))
            sides.append(UnitSide(scaled, count, count**2 / sum(w**2 for w in weights)))
        return sides

    def alone(self, side: list[UnitSide], reading: Reading) -> list[Quadratic]:
        if self.known is None:
            return []
        classes = zip(side, reading[0], strict=True)
        return [self.known.alone(one, number) for one, number in classes if number >= 0]

    def form(
        self, enrol: list[UnitSide], test: list[UnitSide], reading: Reading, matches: Matches
    ) -> list[PairForm]:
        """Sharing a class and the domain, less sharing the domain alone."""
        forms = []
        for number, (met, _, _) in enumerate(matches[0]):
            if met < 0:
                continue
            e, t = enrol[met], test[number]
            trained = reading[0][met]
            if self.known is not None and trained >= 0:
                forms.append(self.known.form(e, t, trained, (met, number)))
                continue
            key = (self._name, *e[1:], *t[1:])
            if key not in self._terms:
                self._terms[key] = self._term(e, t)
            term = self._terms[key]
            row = Quadratic((met, key), e.vectors, term.row, None, term.constant)
            column = Quadratic((number, key), t.vectors, term.column)
            forms.append(PairForm((met, number, key), term.left, term.right, row, column))
        return forms

    def _term(self, e: UnitSide, t: UnitSide) -> PairTerm:
        """Of all profiles that are means of so many takes and cells."""
        domain = self.doubt * np.eye(len(self.centre))
        A = self._covariance(*e[1:]) + domain
        B = self._covariance(*t[1:]) + domain
        both = vector_term(A, B, domain + self.own)
        # the domain is shared by people who have nothing else in common
        apart = vector_term(A, B, domain)
        return PairTerm(
            both.left - apart.left,
            both.right,
            both.row - apart.row,
            both.column - apart.column,
            both.constant - apart.constant,
        )

    def _covariance(self, takes: float, cells: float) -> Array:
        """Of the mean of some takes of some cells."""
        other = self.other / cells * np.eye(len(self.centre))
        return np.asarray(self.own + other + self.noise / takes)
