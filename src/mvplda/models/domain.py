"""PLDA of unit-length embeddings with the recording domain as a view: for people and places that training did not see.

A vector is several extractors' embeddings side by side, each of them about one view: a network of voices about the
speaker, a network of words about the phrase. Scaled to length 1, a block is

    u = mean + d + (effect of its own view) + (effects of the other views) + noise,        d ~ N(0, delta / D I)

where all covariances are isotropic, and d is the same for all recordings of one domain: language, microphones, rooms,
length of the phrases. What is enrolled in a deployment tells d (`deployed`); what is left of it is integrated out.
Before that, directions in which telephones, noise and rooms move vectors are scaled down: training has copies of
recordings in several conditions.
Vectors are then scaled to length 1 again about mean + d, since embeddings of long phrases vary less than those of
single words.

Phrases that are enrolled by name are known classes of the deployment (`known=["phrase"]`): whoever says one of them
tells what it sounds like, and what it is not.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .._typing import (
    AnyArray,
    Array,
    BoolArray,
    Columns,
    IntArray,
    Json,
    Labels,
    Names,
)
from ..backend import as_vectors, check_feature_names, like, sum_rows, to_host
from ..exceptions import DataError, LabelError, ParameterError
from ..labels import check_view_names, exact_names, names_from_file
from ..persistence import fingerprint
from ..scoring.forms import JointForms, PairForm, Part, Quadratic, row_products
from ..scoring.profiles import Profiles
from ..scoring.question import Near
from ..scoring.worlds import Matches, Reading, Table
from .parts import PartMatcher
from .scorer import BaseScorer, frozen, kept, needed_labels, side_by_side

SITTING = "recording"
"""Labels of this name tell the sittings of a profile apart, whose takes share room, microphone and mood; without them
it is of one."""

SITTINGS = 0.33
"""Variance of one person's or phrase's sittings, relative to that of people or phrases: of voices in C-VAU, whose
recording campaigns lie months apart. Other corpora have one sitting of each, and do not show it."""

SLACK = 1e-9
"""Names of classes are believed unless that fits worse than classes of their own, by more than rounding."""

LARGEST = 4.0
"""No variance of vectors of length 1 is larger."""

CHANNELS = 40
"""Directions of a block in which rooms and channels move vectors, that are kept: the largest. Chosen on corpora that
were left out."""

VARIANCES = ("own", "other", "cell", "take", "domain")

SMALLEST_SQUARE = 0.05
"""No domain leaves vectors of length 1 a smaller mean square about its centre."""

MOST_CELLS = 600
"""Enrolled cells that a domain is learnt from, at most: more make no difference. Known classes are learnt from all
cells, in blocks of so many."""

NAMED_CELLS = 400
"""Cells of a block that are of its own classes, at most; the rest are others, which show the domain."""

CELLS_PER_CLASS = 8
"""Cells that a class is learnt from where all cells do not fit into one block."""

UNNAMED = 0.008
"""Variance of a domain where its classes, such as the phrases, have no names: where all may say one phrase, what is
the phrase and what the domain cannot be told apart."""

FEW = 4
"""Fewer people, who all say one phrase, do not tell it from the domain: its name is not used. Chosen on corpora that
were left out."""

NEAREST = 8
"""Known classes that a test may be of instead of its profile's: each takes time in every trial."""

KEPT_TERMS = 2**10
"""Terms of forms that are kept, one for every known class and all counts of takes."""

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
        Blocks of columns in their order, and the view that each is about; several may be about the first view.
    domain : str
        The column of labels that names the domain (corpus) of training vectors.
    take : str
        The column of labels that names the recording, of which there are copies in several conditions.
    delta : dict of {name: variance of domains}
        Total variance of the means of domains, by block.
    factors : dict of {name: share of a block's columns that count}
        The noise of columns hangs together: as evidence they are worth fewer.
    points : dict of {name: settings of a `PartMatcher`}
        Blocks of points in time, which tell nearly the same from the same (`near`), and nothing else.

    Attributes
    ----------
    views_ : dict of {view: 0}
    channels_ : dict of {name: (directions, columns)} R, by which a block of length 1 becomes u - R' R u: how copies of
        one recording over telephones, in noise and in rooms differ most
    mean_ : (D,) mean of the training domains' means
    variances_ : dict of {name: total variances of the block's own view, of the other views, of cells (a person's way of
        saying a phrase) and of takes}, of vectors that are scaled to length 1 about their domain; and that of domains
    shift_ : (D,) posterior mean of the domain in use; zeros until it was `deployed`
    doubt_ : dict of {name: posterior variance of the domain in use, all columns together}
    names_ : dict of {view: names of the classes that the deployment knows}
    class_means_, class_doubts_ : dict of {view: (classes, columns) posterior means, (classes,) variances of one
        column}, of vectors scaled about the domain
    """

    nuisance_views = (SITTING,)

    FITTED = (
        "views_",
        "channels_",
        "mean_",
        "shift_",
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
        take: str = "take",
        delta: Mapping[str, float] | None = None,
        factors: Mapping[str, float] | None = None,
        points: Mapping[str, Json] | None = None,
    ) -> None:
        self.blocks = blocks
        self.domain = domain
        self.take = take
        self.delta = delta
        self.factors = factors
        self.points = points

    # -- training ------------------------------------------------------------

    def fit(self, X: ArrayLike, y: Labels | None = None) -> Self:
        """Fit to vectors of several domains.

        y : labels of the blocks' views and, where there are several, of the domain
        """
        vectors = as_vectors(X)
        check_feature_names(self, X, reset=True)
        width = sum(columns for columns, _ in self.blocks.values())
        if vectors.shape[1] != width:
            raise DataError(f"the blocks have {width} columns, the vectors {vectors.shape[1]}")
        labels = needed_labels(y)
        self._check_points()
        self._check_views()
        views = list(dict.fromkeys(view for _, _, view in self._columns()))
        told = [view for _, _, view in self._columns()]
        # classes that are known by name have one posterior; those of the first view have no names
        if any(told.count(view) > 1 for view in views[1:]):
            raise ParameterError(
                f"two blocks are about one view: put their columns into one block, or make {views[0]!r} that view"
            )
        missing = [view for view in views if view not in labels]
        if missing:
            raise LabelError(f"there are no labels of the view {missing[0]!r}")
        # without names of domains all vectors are of one
        domains = labels.get(self.domain, np.zeros(len(vectors), dtype=np.int64))
        self.views_ = dict.fromkeys(views, 0)
        self.mean_ = np.zeros(width)
        self.variances_: dict[str, dict[str, float]] = {}
        self.channels_: dict[str, Array] = {}
        if not np.isfinite(vectors).all():
            raise DataError("Input X contains NaN or infinity")
        # lengths of embeddings say how clear a recording is, not whose it is
        unit = self.project(vectors.astype(np.float64))
        if self.take in labels:
            for name, columns, _ in self._columns():
                self.channels_[name] = channels(unit[:, columns], labels[self.take], domains)
            unit = self.project(unit)
        for name, columns, view in self._columns():
            others = [labels[other] for other in views if other != view]
            rest = others[0] if others else np.zeros(len(vectors))
            self._fit_block(name, unit[:, columns], columns, labels[view], rest, domains)
        self._forget_domain()
        return self

    def _forget_domain(self) -> None:
        self.shift_ = np.zeros_like(self.mean_)
        self.doubt_ = {name: self._fresh_doubt(name) for name, _, _ in self._columns()}
        self.names_: dict[str, list[Any]] = {}
        self.class_means_: dict[str, Array] = {}
        self.class_doubts_: dict[str, Array] = {}

    def _fresh_doubt(self, name: str) -> float:
        """Variance of the domain where nothing is enrolled."""
        delta = self.variances_[name]["domain"]
        # profiles are people, whatever else has no names
        is_first = self.blocks[name][1] == next(iter(self.views_))
        return delta if is_first else min(delta, UNNAMED)

    def _fit_block(
        self,
        name: str,
        u: Array,
        columns: slice,
        own: Names,
        rest: Names,
        domains: Names,
    ) -> None:
        """Mean and variances of one block: moments within each domain, averaged over domains."""
        means, found = [], []
        for domain in np.unique(domains):
            rows = domains == domain
            # within a domain, so that domains are not taken for people
            centre = u[rows].mean(axis=0)
            means.append(centre)
            apart = u[rows] - centre
            # scaled about their domain, as in use
            scaled = apart / np.maximum(np.linalg.norm(apart, axis=1, keepdims=True), 1e-12)
            found.append(moments(scaled - scaled.mean(axis=0), own[rows], rest[rows]))
        self.mean_[columns] = np.mean(means, axis=0)
        spreads = np.mean(found, axis=0)
        if len(self.views_) == 1:
            # every class has one cell, which is the class itself
            spreads = spreads[[2, 1, 0, 3]]
        # one domain tells nothing of how domains differ: a usual value
        spread = float(np.sum(np.var(means, axis=0, ddof=1))) if len(means) > 1 else 0.1
        delta = (self.delta or {}).get(name, spread)
        numbers = np.clip([*spreads, delta], 1e-6, LARGEST)
        self.variances_[name] = dict(zip(VARIANCES, numbers.tolist(), strict=True))

    # -- evidence and the domain -----------------------------------------------

    def project(self, vectors: AnyArray) -> AnyArray:
        """(n, D) the vectors, each block scaled to length 1 without its channel. It does not depend on the domain."""
        made = []
        matchers = self._matchers()
        for name, columns in self._places().items():
            block = vectors[:, columns]
            if name in matchers:
                made.append(matchers[name].project(block))
                continue
            if name in self.channels_:
                R = like(self.channels_[name], block)
                block = block - (block @ R.T) @ R
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

        Exact under the model's variances: with C cells of means x, of which people and phrases recur, their
        covariance is V (C x C), and the domain has precision 1/delta + 1'V^-1 1 and mean 1'V^-1 (x - mean) over it.
        One person, or one phrase that all say, therefore moves it little, however many takes there are.
        None: nothing is enrolled.
        """
        check_is_fitted(self, "mean_")
        if profiles is None:
            return self
        # the posterior of the domain takes a solve of all cells with each other
        rows = _sample(np.arange(len(profiles.owner)), MOST_CELLS)
        other = copy(self)
        other._forget_domain()
        if not len(rows):
            return other
        views = tuple(self.views_)
        some = Enrolled.of(profiles, rows, views)
        for name, columns, view in self._columns():
            here = self._place(name, some)
            blocks = _blocks(profiles, some, rows, views, view)
            if blocks:
                named = [self._classes(name, block, here) for block in blocks]
                # a name may say nothing, where everybody says their own "password": then every cell is its own class
                unnamed = [self._classes(name, block.without_names(view), here) for block in blocks]
                gain = sum(one.evidence for one in named) - sum(one.evidence for one in unnamed)
                if gain >= -SLACK:
                    other._know(view, blocks, named)
                else:
                    here = self._place(name, some.without_names(view))
            other.shift_[columns] = here.shift
            other.doubt_[name] = here.doubt
        return other

    def _know(self, view: str, blocks: Sequence[Enrolled], classes: Sequence[Classes]) -> None:
        """Keep the posteriors of the blocks' own classes."""
        own = [block.own_classes(view) for block in blocks]
        pairs = list(zip(classes, own, strict=True))
        self.names_[view] = [
            block.names[view][i]
            for block, numbers in zip(blocks, own, strict=True)
            for i in numbers
        ]
        self.class_means_[view] = np.concatenate([made.means[numbers] for made, numbers in pairs])
        self.class_doubts_[view] = np.concatenate([made.doubts[numbers] for made, numbers in pairs])

    def _place(self, name: str, some: Enrolled) -> Place:
        """The posterior of the domain, from vectors as they are."""
        columns, view = next((c, view) for block, c, view in self._columns() if block == name)
        v = self.variances_[name]
        V = self._covariance(name, some, v["take"]) * mean_square(self.mean_[columns])
        # what recurs (people, phrases) counts once, however often it is recorded
        share = np.linalg.solve(V, np.ones(len(V)))  # V^-1 1
        # without labels it may be one phrase that all say: then little can be learnt of the domain
        delta = v["domain"] if view in some.same else min(v["domain"], UNNAMED)
        precision = 1.0 / delta + share.sum()
        means = some.means[:, columns]
        shift = share @ (means - self.mean_[columns]) / precision
        return Place(self.mean_[columns] + shift, shift, float(1.0 / precision))

    def _classes(self, name: str, some: Enrolled, place: Place) -> Classes:
        """The posterior of every class that is enrolled by name, of vectors scaled about the domain.

        With z the scaled cells, p the mean of training there and K their covariance, domain included, the class c has
        the mean p + k' K^-1 (z - p) and the variance k_cc - k' K^-1 k, where k is its covariance with the cells.
        """
        columns = self._places()[name]
        scaled, square = about(some.means[:, columns], place.centre)
        training = -place.shift / np.sqrt(square.mean())
        v = self.variances_[name]
        domain = v["domain"] / mean_square(place.centre)
        K = domain + self._covariance(name, some, KNOWN_NOISE * v["take"])
        K[np.diag_indices(len(K))] += SITTINGS * v["own"]
        k = domain + v["own"] * some.members(self.blocks[name][1])  # (classes, cells)
        # one factor of K serves means, variances and evidence
        root = np.linalg.cholesky(K)
        cells = solve_triangular(root, scaled - training, lower=True)
        shared = solve_triangular(root, k.T, lower=True)
        variances = domain + v["own"] - np.sum(shared**2, axis=0)
        misfit = 2.0 * np.log(np.diag(root)).sum() + np.sum(cells**2)
        return Classes(training + shared.T @ cells, variances / len(place.centre), -float(misfit))

    def _covariance(self, name: str, some: Enrolled, take: float) -> Array:
        """(C, C) of the means of cells in the scale of `variances_`, up to their domain."""
        v = self.variances_[name]
        is_first = self.blocks[name][1] == next(iter(self.views_))
        first, second = (v["own"], v["other"]) if is_first else (v["other"], v["own"])
        return some.covariance(first, second, v["cell"], take)

    @property
    def classes_(self) -> dict[str, Names]:
        return kept(self, "classes", (repr(self.names_),), self._make_classes)

    def _make_classes(self) -> dict[str, Names]:
        return {view: exact_names(names) for view, names in self.names_.items()}

    def known_names(self, view: str) -> Names:
        if view not in self.names_:
            raise LabelError(f"nothing that is enrolled has names of the view {view!r}")
        return self.classes_[view]

    def near_classes(self, view: str) -> IntArray:
        parts = frozen(self.class_means_[view])
        return kept(self, f"near {view}", parts, lambda: self._nearest(view))

    def _nearest(self, view: str) -> IntArray:
        """What is said instead of a phrase and taken for it sounds like it: the nearest few, of any number."""
        means = self.class_means_[view]
        squares = np.sum(means**2, axis=1)
        nearest = []
        for start in range(0, len(means), MOST_CELLS):
            rows = np.arange(start, min(start + MOST_CELLS, len(means)))
            distances = squares - 2.0 * means[rows] @ means.T
            distances[np.arange(len(rows)), rows] = np.inf
            nearest.append(np.argsort(distances, axis=1)[:, :NEAREST])
        return np.concatenate(nearest)

    # -- scoring -----------------------------------------------------------------

    def forms(self) -> JointForms:
        if not hasattr(self, "mean_"):
            check_is_fitted(self, "mean_")
        # the forms hold terms that are expensive to compute: reuse them until an input changes
        arrays = frozen(
            self.mean_, self.shift_, *self.class_means_.values(), *self.class_doubts_.values()
        )
        # small dicts may be changed in place, so they are compared by value
        sizes = {view: len(names) for view, names in self.names_.items()}
        plain = (
            self.blocks,
            self.points,
            self.factors,
            self.views_,
            self.variances_,
            self.doubt_,
            sizes,
        )
        return kept(self, "forms", (repr(plain), *arrays), self._make_forms)

    def _make_forms(self) -> JointForms:
        parts = []
        for name, columns, view in self._columns():
            centre = (self.mean_ + self.shift_)[columns]
            # vectors are scaled to length 1 about the centre, from a mean square of 1 - |centre|^2
            doubt = self.doubt_[name] / mean_square(centre)
            spreads = Spreads.of(self.variances_[name], doubt, len(centre))
            known = None
            numbers = {}
            if view in self.names_:
                known = self.class_means_[view], self.class_doubts_[view]
                numbers = {view: range(len(self.names_[view]))}
            forms = UnitForms(view, centre, spreads, known)
            factor = (self.factors or {}).get(name, 1.0)
            parts.append(Part(forms, columns, {view: factor}, numbers))
        return JointForms((*self.views_, SITTING), parts)

    @property
    def width_in(self) -> int:
        return len(self.mean_)

    def near(
        self, enrol: Profiles, test: Profiles, pairs: IntArray | None, views: Sequence[str]
    ) -> Near | None:
        for name, matcher in self._matchers().items():
            if matcher.view in views:
                columns = self._places()[name]
                one, other = (replace(side, y=side.y[:, columns]) for side in (enrol, test))
                return matcher.near(one, other, pairs)
        return None

    def _check_views(self) -> None:
        """Refuse views that the model cannot have."""
        views = tuple(dict.fromkeys(view for _, _, view in self._columns()))
        check_view_names(views)
        if len(views) > 2:
            # the variance of "the other view" is that of one view, and cells are of two
            raise ParameterError(
                f"a {type(self).__name__} has one or two views; its blocks are about {list(views)}. Use a Committee of "
                "models of single views for more"
            )
        taken = {
            SITTING: "sessions of a profile",
            self.domain: "domains of the training vectors",
            self.take: "recordings that have copies",
        }
        for view in views:
            if view in taken:
                raise ParameterError(
                    f"a block cannot be about {view!r}, the labels of the {taken[view]}: rename the view"
                )

    def _check_points(self) -> None:
        for name, matcher in self._matchers().items():
            if not matcher.fits(*self.blocks.get(name, (0, ""))):
                raise ParameterError(
                    f"the block {name!r} is not one of {matcher.points} points about the {matcher.view}, and seconds"
                )

    def _matchers(self) -> dict[str, PartMatcher]:
        return {name: PartMatcher(**settings) for name, settings in (self.points or {}).items()}

    def _places(self) -> dict[str, slice]:
        """Columns of every block."""
        stops = np.cumsum([columns for columns, _ in self.blocks.values()]).tolist()
        return {
            name: slice(stop - columns, stop)
            for (name, (columns, _)), stop in zip(self.blocks.items(), stops, strict=True)
        }

    def _columns(self) -> list[tuple[str, slice, str]]:
        """Columns of the blocks that are modelled, and the view that each is about."""
        return [
            (name, columns, self.blocks[name][1])
            for name, columns in self._places().items()
            if name not in (self.points or {})
        ]

    # -- files ---------------------------------------------------------------------

    def describe(self) -> Json:
        blocks = {
            name: f"{columns} columns, {view}" for name, (columns, view) in self.blocks.items()
        }
        return {**super().describe(), "views": list(self.views_), "blocks": blocks}

    def _key(self) -> str:
        """Profiles fit whatever domain the model is deployed in."""
        blocks = list(self.blocks)
        parts = (repr(blocks), *frozen(self.mean_))
        return kept(
            self, "key", parts, lambda: fingerprint({"mean": self.mean_}, {"blocks": blocks})
        )

    def check_state(self) -> None:
        self._check_views()
        width = sum(columns for columns, _ in self.blocks.values())
        fits = self.mean_.shape == self.shift_.shape == (width,)
        for name, place, view in self._columns():
            columns = place.stop - place.start
            R = self.channels_.get(name, np.zeros((0, columns)))
            fits = fits and R.shape[1:] == (columns,) and bool(np.isfinite(R).all())
            totals = self.variances_[name].values()
            # vectors of length 1 cannot vary by more, and what is enrolled only narrows the domain
            fits &= view in self.views_ and min(totals) > 0 and max(totals) <= LARGEST
            fits &= 0 <= self.doubt_[name] <= self.variances_[name]["domain"]
            if view in self.names_:
                names_from_file(self.names_[view], view)
                count = len(self.names_[view])
                fits &= self.class_means_[view].shape == (count, columns)
                fits &= self.class_doubts_[view].shape == (count,)
                fits = fits and bool(np.isfinite(self.class_means_[view]).all())
                fits = fits and bool((self.class_doubts_[view] >= 0).all())
        if not fits:
            raise DataError("its arrays do not make a model of domains")
        super().check_state()


class Place(NamedTuple):
    """The posterior of a domain: mean and domain (D,), the domain itself, variance."""

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
    names : {view: names of its classes}, of views in which some have names
    codes : {view: (C,) class of every cell, -1 where its label is missing}
    own : numbers of the classes that the cells are there for, others show the domain; None: all classes
    """

    means: Array
    weights: Array
    views: tuple[str, ...]
    same: dict[str, BoolArray]
    names: dict[str, list[Any]]
    codes: dict[str, IntArray]
    own: IntArray | None = None

    @classmethod
    def of(cls, profiles: Profiles, rows: IntArray, views: tuple[str, ...]) -> Self:
        weights = profiles.weights[rows]
        means = to_host(profiles.y)[rows] / weights[:, None]
        # a profile is one person
        owner = profiles.owner[rows]
        same = {views[0]: np.equal.outer(owner, owner)}
        names: dict[str, list[Any]] = {}
        codes: dict[str, IntArray] = {}
        for view in views[1:]:
            if view not in profiles.labels:
                continue
            labels = profiles.labels[view]
            numbers, own = np.unique(labels.codes[rows], return_inverse=True)
            # one name that few people share says no more than none: nobody tells what it is not
            if len(numbers) == 1 and numbers[0] >= 0 and len(np.unique(owner)) < FEW:
                continue
            codes[view] = own.reshape(-1) - np.count_nonzero(numbers < 0)
            if (numbers >= 0).any():
                names[view] = labels.names[numbers[numbers >= 0]].tolist()
            # cells without a label are classes of their own
            apart = np.where(codes[view] < 0, -1 - np.arange(len(rows)), codes[view])
            same[view] = np.equal.outer(apart, apart)
        return cls(means, weights, views, same, names, codes)

    def covariance(self, first: float, second: float, cell: float, take: float) -> Array:
        """(C, C) of the cells' means, from total variances of the classes of two views, of cells, and of takes."""
        people = self.same[self.views[0]]
        others = self.same.get(self.views[-1], np.ones_like(people))
        V = first * people + second * others + cell * (people & others)
        V[np.diag_indices(len(V))] += take / self.weights
        return np.asarray(V)

    def without_names(self, view: str) -> Self:
        """The same where every cell is a class of its own."""
        same = {**self.same, view: np.eye(len(self.weights), dtype=bool)}
        return replace(self, same=same, names={**self.names, view: []})

    def own_classes(self, view: str) -> IntArray:
        return np.arange(len(self.names[view])) if self.own is None else self.own

    def members(self, view: str) -> BoolArray:
        """(classes, C) whether a cell is of a class."""
        return np.equal.outer(np.arange(len(self.names[view])), self.codes[view])


def _sample(rows: IntArray, most: int) -> IntArray:
    """At most so many rows, in their order: the same ones whenever it is asked."""
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(0).permutation(rows)[:most])


def _blocks(
    profiles: Profiles, some: Enrolled, sample: IntArray, views: tuple[str, ...], view: str
) -> list[Enrolled]:
    """Cells by which the named classes of a view are learnt; empty where it has none.

    Solving for all cells at once takes time by the cube of their number. More than `MOST_CELLS` are therefore learnt in
    blocks: each class is in one of them, with at most as many of its cells as make a difference, and cells of other
    classes fill the block up.

    some, sample : the cells that the domain is learnt from, and their rows
    """
    if view not in some.names:
        return []
    if len(sample) == len(profiles.owner):
        return [some]
    labels = profiles.labels[view]
    numbers, counts = np.unique(labels.codes[labels.codes >= 0], return_counts=True)
    each = max(CELLS_PER_CLASS, NAMED_CELLS // len(numbers))
    order = np.argsort(labels.codes, kind="stable")
    starts = np.searchsorted(labels.codes[order], numbers)
    cells = [
        _sample(order[start : start + count], each)
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True)
    ]
    blocks = []
    for group in _packed(np.minimum(counts, each), NAMED_CELLS):
        rows = np.concatenate([cells[i] for i in group])
        # of the block's own classes no other cells
        others = sample[~np.isin(labels.codes[sample], numbers[group])]
        others = _sample(others, MOST_CELLS - len(rows))
        block = Enrolled.of(profiles, np.sort(np.concatenate([rows, others])), views)
        names = labels.names[numbers[group]].tolist()
        own = [block.names[view].index(name) for name in names]
        blocks.append(replace(block, own=np.array(own)))
    return blocks


def _packed(sizes: IntArray, most: int) -> list[IntArray]:
    """Numbers of things in groups, in their order, whose sizes add up to at most `most` each."""
    groups: list[list[int]] = [[]]
    total = 0
    for number, size in enumerate(sizes.tolist()):
        if groups[-1] and total + size > most:
            groups.append([])
            total = 0
        groups[-1].append(number)
        total += size
    return [np.array(group, dtype=np.int64) for group in groups]


def mean_square(centre: Array) -> float:
    """Of vectors of length 1 about their centre."""
    return max(1.0 - float(centre @ centre), SMALLEST_SQUARE)


def about(means: AnyArray, centre: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Means of vectors of length 1 scaled about a centre, and the squares by which: the vectors' mean square there."""
    # |u| = 1 for every take, so that the mean square about the centre follows from their mean
    square = 1.0 - 2.0 * (means @ centre) + centre @ centre
    return (means - centre) / square[:, None].clip(min=1e-6) ** 0.5, square


def channels(u: Array, takes: Names, domains: Names) -> Array:
    """(directions, D) R, so that u - R' R u scales down the directions in which copies of one recording differ.

    Their covariance S, the mean over domains, is noise beside one of v in every direction: along its eigenvector of
    variance s vectors are scaled by sqrt(v / (s + v)), where v is the mean of s.
    """
    parts = []
    for domain in np.unique(domains):
        rows = domains == domain
        # takes may be numbered anew in every domain
        codes = np.unique(takes[rows], return_inverse=True)[1].reshape(-1)
        sums, counts = _sums(u[rows], codes)
        apart = u[rows] - (sums / counts[:, None])[codes]
        parts.append(apart.T @ apart / len(apart))
    s, V = np.linalg.eigh(np.mean(parts, axis=0))
    kept = min(CHANNELS, len(s) // 2)
    # no copies, or copies that are alike
    if not kept or s.mean() < 1e-12:
        return np.zeros((0, len(s)))
    scales = np.sqrt(s.mean() / (s.clip(min=0) + s.mean()))
    # relative to the directions that are not kept: lengths become 1 again
    ratio = scales[-kept:] / np.exp(np.log(scales[:-kept]).mean())
    return np.asarray((V[:, -kept:] * np.sqrt(1.0 - ratio.clip(max=1.0))).T)


def moments(X: Array, own: Names, rest: Names) -> tuple[float, float, float, float]:
    """Total variances of the classes of two crossed views, of their cells, and of takes, from centred vectors.

    Means of x . y over pairs that share one view, the other, or both, so that any numbers of takes will do; every
    class weighs the same.
    """
    first = np.unique(own, return_inverse=True)[1].reshape(-1)
    second = np.unique(rest, return_inverse=True)[1].reshape(-1)
    cell = np.unique(first * (second.max() + 1) + second, return_inverse=True)[1].reshape(-1)
    example = np.unique(cell, return_index=True)[1]
    sums, counts = _sums(X, cell)
    within = _pairs(X, np.ones(len(X)), cell, sums, counts)
    of_first = _pairs(sums, counts, first[example], *_sums(X, first))
    of_second = _pairs(sums, counts, second[example], *_sums(X, second))
    total = float(np.sum(X * X)) / len(X)
    # what a cell has beyond its two classes
    return of_first, of_second, within - of_first - of_second, total - within


def _sums(X: Array, codes: IntArray) -> tuple[Array, Array]:
    counts = np.bincount(codes)
    return sum_rows(X, codes, len(counts)), counts.astype(np.float64)


def _pairs(parts: Array, sizes: Array, of: IntArray, totals: Array, counts: Array) -> float:
    """Mean of x . y over pairs from different parts of one class, where a class is the total of its parts."""
    pairs = counts**2 - np.bincount(of, sizes**2, minlength=len(counts))
    several = pairs > 0
    if not several.any():
        return 0.0
    products = row_products(totals, totals)
    products = products - np.bincount(of, row_products(parts, parts), minlength=len(counts))
    # every class weighs the same, whatever the number of its pairs
    return float(np.mean(products[several] / pairs[several]))


class UnitSide(NamedTuple):
    """Profiles, as one class of the block's view: vectors of length about 1, and of how much they are means."""

    vectors: AnyArray
    takes: float
    sittings: float


class Spreads(NamedTuple):
    """Variances of one column: classes, what the other views and sittings add, cells, takes, the domain in doubt."""

    own: float
    other: float
    cell: float
    take: float
    doubt: float

    @classmethod
    def of(cls, totals: Mapping[str, float], doubt: float, columns: int) -> Self:
        other = totals["other"] + totals["cell"] + SITTINGS * totals["own"]
        numbers = totals["own"], other, totals["cell"], totals["take"], doubt
        return cls(*(number / columns for number in numbers))

    def within(self, side: UnitSide, noise: float = 1.0) -> float:
        """Of the mean of some takes of some sittings about their class."""
        # takes of one sitting vary together, whatever was said
        return self.other / side.sittings + noise * self.take / side.takes


class UnitForms:
    """Pair forms of one block about its own view, in a domain that is known up to a variance.

    A test of a known class c has the mean m_c; where the profile's own takes e are of the class, too, it is expected
    at m_c + g (e - m_c), for people have their own way of saying a phrase: g = cell / (variance of e about its class).

    centre : (D,) mean and domain
    known : (classes, D) posterior means m and (classes,) variances of the classes that the deployment knows
    """

    is_llr = True

    def __init__(
        self,
        view: str,
        centre: Array,
        spreads: Spreads,
        known: tuple[Array, Array] | None = None,
    ) -> None:
        self.base: tuple[str, ...] = (view, SITTING)
        self.centre = centre
        self.spreads = spreads
        self.known = known
        # unlike a number, it is never that of other forms
        self._name = object()
        self._ones = np.ones(len(centre))
        # terms by their keys: most trials have the same counts of takes
        self._terms: dict[Hashable, Term] = {}

    def side(self, table: Table, y: AnyArray) -> list[UnitSide]:
        """By class of the view."""
        sides = []
        for c in range(len(table.names[0])):
            cells = [cell for cell, own in enumerate(table.classes[0]) if own == c]
            weights = [table.weights[cell] for cell in cells]
            by_sitting = np.bincount([table.classes[1][cell] for cell in cells], weights)
            count = float(by_sitting.sum())
            mean = y[:, like(cells, y)].sum(1) / count
            scaled, _ = about(mean, like(self.centre, mean))
            sides.append(UnitSide(scaled, count, count**2 / float(by_sitting @ by_sitting)))
        return sides

    def alone(self, side: list[UnitSide], reading: Reading) -> list[Quadratic]:
        """log N(x; m, v) - log N(x; 0, u): as known classes, against nothing known."""
        made = []
        for one, number in zip(side, reading[0], strict=True):
            if self.known is None or number < 0:
                continue
            m = self.known[0][number]
            within = self.spreads.within(one, KNOWN_NOISE)
            u = self.spreads.own + self.spreads.doubt + within
            v = float(self.known[1][number]) + within
            constant = 0.5 * (len(m) * np.log(u / v) - float(m @ m) / v)
            squares = np.full(len(m), 0.5 / u - 0.5 / v)
            key = (self._name, number, *one[1:])
            made.append(Quadratic(key, one.vectors, squares, m / v, float(constant)))
        return made

    def form(
        self, enrol: list[UnitSide], test: list[UnitSide], reading: Reading, matches: Matches
    ) -> list[PairForm]:
        forms = []
        for number, (met, _) in enumerate(matches[0]):
            if met < 0:
                continue
            e, t = enrol[met], test[number]
            trained = reading[0][met]
            key = (self._name, trained, *e[1:], *t[1:])
            term = self._terms.get(key)
            if term is None:
                if len(self._terms) >= KEPT_TERMS:
                    self._terms.clear()
                # other threads may clear it again
                term = self._terms[key] = self._make_term(e, t, trained)
            ones = self._ones
            row = Quadratic((met, key), e.vectors, term.row * ones, term.enrolled, term.constant)
            column = Quadratic((number, key), t.vectors, term.column * ones, term.tested)
            forms.append(PairForm((met, number, key), term.product * ones, ones, row, column))
        return forms

    def _make_term(self, e: UnitSide, t: UnitSide, trained: int) -> Term:
        if self.known is not None and trained >= 0:
            return self._own_takes(e, t, self.known[0][trained], self.known[1][trained])
        return self._term(e, t)

    def _term(self, e: UnitSide, t: UnitSide) -> Term:
        """Sharing a class and the domain, less sharing the domain alone, which strangers share."""
        own, *_, doubt = self.spreads
        A = own + doubt + self.spreads.within(e)
        B = own + doubt + self.spreads.within(t)
        D = len(self.centre)
        both, apart = shared(A, B, own + doubt, D), shared(A, B, doubt, D)
        product, row, column, constant = (a - b for a, b in zip(both, apart, strict=True))
        return Term(product, row, column, constant)

    def _own_takes(self, e: UnitSide, t: UnitSide, m: Array, doubt: float) -> Term:
        """log N(t; m + g (e - m), s) - log N(t; m, v): the profile's own takes, against the class alone."""
        cell = self.spreads.cell / e.sittings
        g = cell / self.spreads.within(e, KNOWN_NOISE)
        within = self.spreads.within(t, KNOWN_NOISE)
        v = float(doubt) + within
        s = (1.0 - g) ** 2 * float(doubt) + within - g * cell
        size = float(m @ m)
        constant = 0.5 * (len(m) * np.log(v / s) + size / v - (1.0 - g) ** 2 * size / s)
        enrolled = -g * (1.0 - g) / s * m
        tested = ((1.0 - g) / s - 1.0 / v) * m
        squares = -0.5 * g**2 / s, 0.5 / v - 0.5 / s
        return Term(g / s, *squares, float(constant), enrolled, tested)


class Term(NamedTuple):
    """product e . t + row |e|^2 + column |t|^2 + constant + enrolled . e + tested . t"""

    product: float
    row: float
    column: float
    constant: float
    enrolled: Array | None = None
    tested: Array | None = None


def shared(A: float, B: float, R: float, D: int) -> tuple[float, float, float, float]:
    """log N(e, t) - log N(e) - log N(t) of vectors with variances A, B and covariance R, in D columns."""
    gain = R / B  # the mean of e given t is t gain
    rest = A - R * gain
    product = gain / rest
    row = 0.5 * (1.0 / A - 1.0 / rest)
    return product, row, -0.5 * gain * product, float(0.5 * D * np.log(A / rest))
