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

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ..._typing import AnyArray, Array, IntArray, Json, Labels, Names
from ...backend import as_vectors, check_feature_names, like
from ...exceptions import DataError, LabelError, ParameterError
from ...labels import check_view_names, exact_names, names_from_file
from ...models.base import BaseScorer
from ...models.caching import FittedArrays, as_key, cache_of
from ...models.checks import concatenate_columns, require_labels
from ...models.deployment import Deployable
from ...persistence import fingerprint
from ...scoring.pair_terms import ExpertTerms, JointTerms, row_products
from ...scoring.profiles import Profiles
from ...scoring.question import NearMatches
from ..phrases import PhraseMatcher
from .known_classes import MAX_CELLS, class_blocks, sample_rows
from .moments import VARIANCE_KEYS, channel_directions, variance_components
from .posterior import (
    SESSION_VARIANCE_RATIO,
    SESSION_VIEW,
    ClassPosteriors,
    DomainPosterior,
    EnrolledCells,
    mean_square_about,
    scale_about,
)
from .unit_terms import KNOWN_CLASS_NOISE, MAX_VARIANCE, ColumnVariances, UnitTerms

NAME_TOLERANCE = 1e-9
"""Names of classes are believed unless that fits worse than classes of their own, by more than rounding."""

MAX_UNNAMED_VARIANCE = 0.008
"""Variance of a domain where its classes, such as the phrases, have no names: where all may say one phrase, what is
the phrase and what the domain cannot be told apart."""

NEAREST_CLASSES = 8
"""Known classes that a test may be of instead of its profile's: each takes time in every trial."""


class DomainPLDA(Deployable, BaseScorer, BaseEstimator):
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
    weights : dict of {name: share of a block's columns that count}
        The noise of columns hangs together: as evidence they are worth fewer.
    points : dict of {name: settings of a `PhraseMatcher`}
        Blocks of points in time, which tell nearly the same from the same (`near_matches`), and nothing else.

    Attributes
    ----------
    views_ : dict of {view: 0}
    channels_ : dict of {name: (directions, columns)} R, by which a block of length 1 becomes u - R' R u: how copies of
        one recording over telephones, in noise and in rooms differ most
    mean_ : (D,) mean of the training domains' means
    variances_ : dict of {name: total variances of the block's own view, of the other views, of cells (a person's way of
        saying a phrase) and of takes}, of vectors that are scaled to length 1 about their domain; and that of domains
    shift_ : (D,) posterior mean of the domain in use; zeros until it was `deployed`
    domain_variances_ : dict of {name: posterior variance of the domain in use, all columns together}
    names_ : dict of {view: names of the classes that the deployment knows}
    class_means_, class_variances_ : dict of {view: (classes, columns) posterior means, (classes,) variances of one
        column}, of vectors scaled about the domain
    """

    nuisance_views = (SESSION_VIEW,)

    mean_ = FittedArrays[Array]()
    shift_ = FittedArrays[Array]()
    class_means_ = FittedArrays[dict[str, Array]]()
    class_variances_ = FittedArrays[dict[str, Array]]()

    FITTED = (
        "views_",
        "channels_",
        "mean_",
        "shift_",
        "variances_",
        "domain_variances_",
        "names_",
        "class_means_",
        "class_variances_",
    )

    STORED_KEYS: ClassVar[dict[str, str]] = {
        "recording": "take",
        "weights": "factors",
        "domain_variances_": "doubt_",
        "class_variances_": "class_doubts_",
    }

    def __init__(
        self,
        blocks: Mapping[str, tuple[int, str]],
        domain: str = "domain",
        recording: str = "source_recording",
        delta: Mapping[str, float] | None = None,
        weights: Mapping[str, float] | None = None,
        points: Mapping[str, Json] | None = None,
    ) -> None:
        self.blocks = blocks
        self.domain = domain
        self.recording = recording
        self.delta = delta
        self.weights = weights
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
        labels = require_labels(y)
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
        if self.recording in labels:
            for name, columns, _ in self._columns():
                self.channels_[name] = channel_directions(
                    unit[:, columns], labels[self.recording], domains
                )
            unit = self.project(unit)
        for name, columns, view in self._columns():
            others = [labels[other] for other in views if other != view]
            rest = others[0] if others else np.zeros(len(vectors))
            self._fit_block(name, unit[:, columns], columns, labels[view], rest, domains)
        self._forget_domain()
        return self

    def _forget_domain(self) -> None:
        self.shift_ = np.zeros_like(self.mean_)
        self.domain_variances_ = {name: self._fresh_doubt(name) for name, _, _ in self._columns()}
        self.names_: dict[str, list[Any]] = {}
        self.class_means_ = {}
        self.class_variances_ = {}

    def _fresh_doubt(self, name: str) -> float:
        """Variance of the domain where nothing is enrolled."""
        delta = self.variances_[name]["domain"]
        # profiles are people, whatever else has no names
        is_first = self.blocks[name][1] == next(iter(self.views_))
        return delta if is_first else min(delta, MAX_UNNAMED_VARIANCE)

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
            found.append(variance_components(scaled - scaled.mean(axis=0), own[rows], rest[rows]))
        self.mean_[columns] = np.mean(means, axis=0)
        spreads = np.mean(found, axis=0)
        if len(self.views_) == 1:
            # every class has one cell, which is the class itself
            spreads = spreads[[2, 1, 0, 3]]
        # one domain tells nothing of how domains differ: a usual value
        spread = float(np.sum(np.var(means, axis=0, ddof=1))) if len(means) > 1 else 0.1
        delta = (self.delta or {}).get(name, spread)
        numbers = np.clip([*spreads, delta], 1e-6, MAX_VARIANCE)
        self.variances_[name] = dict(zip(VARIANCE_KEYS, numbers.tolist(), strict=True))

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
        return concatenate_columns(made)

    def with_domain_as_prior(self) -> Self:
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
        rows = sample_rows(np.arange(len(profiles.owner)), MAX_CELLS)
        other = copy(self)
        other._forget_domain()
        if not len(rows):
            return other
        views = tuple(self.views_)
        some = EnrolledCells.of(profiles, rows, views)
        for name, columns, view in self._columns():
            here = self._place(name, some)
            blocks = class_blocks(profiles, some, rows, views, view)
            if blocks:
                named = [self._classes(name, block, here) for block in blocks]
                # a name may say nothing, where everybody says their own "password": then every cell is its own class
                unnamed = [self._classes(name, block.without_names(view), here) for block in blocks]
                gain = sum(one.evidence for one in named) - sum(one.evidence for one in unnamed)
                if gain >= -NAME_TOLERANCE:
                    other._know(view, blocks, named)
                else:
                    here = self._place(name, some.without_names(view))
            other.shift_[columns] = here.shift
            other.domain_variances_[name] = here.doubt
        return other

    def _know(
        self, view: str, blocks: Sequence[EnrolledCells], classes: Sequence[ClassPosteriors]
    ) -> None:
        """Keep the posteriors of the blocks' own classes."""
        own = [block.own_classes(view) for block in blocks]
        pairs = list(zip(classes, own, strict=True))
        self.names_[view] = [
            block.names[view][i]
            for block, numbers in zip(blocks, own, strict=True)
            for i in numbers
        ]
        self.class_means_[view] = np.concatenate([made.means[numbers] for made, numbers in pairs])
        self.class_variances_[view] = np.concatenate(
            [made.doubts[numbers] for made, numbers in pairs]
        )

    def _place(self, name: str, some: EnrolledCells) -> DomainPosterior:
        """The posterior of the domain, from vectors as they are."""
        columns, view = next((c, view) for block, c, view in self._columns() if block == name)
        v = self.variances_[name]
        V = self._covariance(name, some, v["take"]) * mean_square_about(self.mean_[columns])
        # what recurs (people, phrases) counts once, however often it is recorded
        share = np.linalg.solve(V, np.ones(len(V)))  # V^-1 1
        # without labels it may be one phrase that all say: then little can be learnt of the domain
        delta = v["domain"] if view in some.same else min(v["domain"], MAX_UNNAMED_VARIANCE)
        precision = 1.0 / delta + share.sum()
        means = some.means[:, columns]
        shift = share @ (means - self.mean_[columns]) / precision
        return DomainPosterior(self.mean_[columns] + shift, shift, float(1.0 / precision))

    def _classes(self, name: str, some: EnrolledCells, place: DomainPosterior) -> ClassPosteriors:
        """The posterior of every class that is enrolled by name, of vectors scaled about the domain.

        With z the scaled cells, p the mean of training there and K their covariance, domain included, the class c has
        the mean p + k' K^-1 (z - p) and the variance k_cc - k' K^-1 k, where k is its covariance with the cells.
        """
        columns = self._places()[name]
        scaled, square = scale_about(some.means[:, columns], place.centre)
        training = -place.shift / np.sqrt(square.mean())
        v = self.variances_[name]
        domain = v["domain"] / mean_square_about(place.centre)
        K = domain + self._covariance(name, some, KNOWN_CLASS_NOISE * v["take"])
        K[np.diag_indices(len(K))] += SESSION_VARIANCE_RATIO * v["own"]
        k = domain + v["own"] * some.members(self.blocks[name][1])  # (classes, cells)
        # one factor of K serves means, variances and evidence
        root = np.linalg.cholesky(K)
        cells = solve_triangular(root, scaled - training, lower=True)
        shared = solve_triangular(root, k.T, lower=True)
        variances = domain + v["own"] - np.sum(shared**2, axis=0)
        misfit = 2.0 * np.log(np.diag(root)).sum() + np.sum(cells**2)
        return ClassPosteriors(
            training + shared.T @ cells, variances / len(place.centre), -float(misfit)
        )

    def _covariance(self, name: str, some: EnrolledCells, take: float) -> Array:
        """(C, C) of the means of cells in the scale of `variances_`, up to their domain."""
        v = self.variances_[name]
        is_first = self.blocks[name][1] == next(iter(self.views_))
        first, second = (v["own"], v["other"]) if is_first else (v["other"], v["own"])
        return some.covariance(first, second, v["cell"], take)

    @property
    def classes_(self) -> dict[str, Names]:
        """Names of the classes that the deployment knows, by view."""
        return {view: exact_names(names) for view, names in self.names_.items()}

    def known_names(self, view: str) -> Names:
        if view not in self.names_:
            raise LabelError(f"nothing that is enrolled has names of the view {view!r}")
        return self.classes_[view]

    def nearest_classes(self, view: str) -> IntArray:
        version = self._version("class_means_")
        return cache_of(self).get(("near", view), version, lambda: self._nearest(view))

    def _nearest(self, view: str) -> IntArray:
        """What is said instead of a phrase and taken for it sounds like it: the nearest few, of any number."""
        means = self.class_means_[view]
        squares = np.sum(means**2, axis=1)
        nearest = []
        for start in range(0, len(means), MAX_CELLS):
            rows = np.arange(start, min(start + MAX_CELLS, len(means)))
            distances = squares - 2.0 * means[rows] @ means.T
            distances[np.arange(len(rows)), rows] = np.inf
            nearest.append(np.argsort(distances, axis=1)[:, :NEAREST_CLASSES])
        return np.concatenate(nearest)

    # -- scoring -----------------------------------------------------------------

    def _version(self, name: str) -> int:
        """Content version of a fitted attribute."""
        return cache_of(self).version(vars(self), name)

    def pair_terms(self) -> JointTerms:
        if "mean_" not in vars(self):
            check_is_fitted(self, "mean_")
        # pair terms are expensive to compute: use them again until an input changes
        arrays = tuple(map(self._version, ("mean_", "shift_", "class_means_", "class_variances_")))
        plain = (
            self.blocks,
            self.points,
            self.weights,
            self.views_,
            self.variances_,
            self.domain_variances_,
            {view: len(names) for view, names in self.names_.items()},
        )
        return cache_of(self).get("pair_terms", (arrays, as_key(plain)), self._make_pair_terms)

    def _make_pair_terms(self) -> JointTerms:
        # pair terms hold private copies, which no later change reaches
        class_means = cache_of(self).copy_of("class_means_")
        class_variances = cache_of(self).copy_of("class_variances_")
        parts = []
        for name, columns, view in self._columns():
            centre = (self.mean_ + self.shift_)[columns]
            # vectors are scaled to length 1 about the centre, from a mean square of 1 - |centre|^2
            doubt = self.domain_variances_[name] / mean_square_about(centre)
            spreads = ColumnVariances.of(self.variances_[name], doubt, len(centre))
            known = None
            numbers = {}
            if view in self.names_:
                known = class_means[view], class_variances[view]
                numbers = {view: range(len(self.names_[view]))}
            pair_terms = UnitTerms(view, centre, spreads, known)
            factor = (self.weights or {}).get(name, 1.0)
            parts.append(ExpertTerms(pair_terms, columns, {view: factor}, numbers))
        return JointTerms((*self.views_, SESSION_VIEW), parts)

    @property
    def width_in(self) -> int:
        return len(type(self).mean_.peek(self))

    def near_matches(
        self, enrol: Profiles, test: Profiles, pairs: IntArray | None, views: Sequence[str]
    ) -> NearMatches | None:
        for name, matcher in self._matchers().items():
            if matcher.view in views:
                columns = self._places()[name]
                one, other = (replace(side, y=side.y[:, columns]) for side in (enrol, test))
                return matcher.near_matches(one, other, pairs)
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
            SESSION_VIEW: "sessions of a profile",
            self.domain: "domains of the training vectors",
            self.recording: "recordings that have copies",
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

    def _matchers(self) -> dict[str, PhraseMatcher]:
        return {name: PhraseMatcher(**settings) for name, settings in (self.points or {}).items()}

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
        return cache_of(self).get(
            "key",
            (self._version("mean_"), tuple(blocks)),
            lambda: fingerprint({"mean": self.mean_}, {"blocks": blocks}),
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
            fits &= view in self.views_ and min(totals) > 0 and max(totals) <= MAX_VARIANCE
            fits &= 0 <= self.domain_variances_[name] <= self.variances_[name]["domain"]
            if view in self.names_:
                names_from_file(self.names_[view], view)
                count = len(self.names_[view])
                fits &= self.class_means_[view].shape == (count, columns)
                fits &= self.class_variances_[view].shape == (count,)
                fits = fits and bool(np.isfinite(self.class_means_[view]).all())
                fits = fits and bool((self.class_variances_[view] >= 0).all())
        if not fits:
            raise DataError("its arrays do not make a model of domains")
        super().check_state()
