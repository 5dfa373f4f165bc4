"""PLDA of unit-length embeddings that adapts to people and recording conditions absent from training.

A vector concatenates the embeddings of several extractors. The columns of one extractor are a block. Each block is
about one view: a network of voices about the speaker, a network of words about the phrase. A block of D columns, scaled
to length 1, is modelled as

    u = mean + d + (effect of its view) + (effects of the other views) + noise,        d ~ N(0, delta / D I)

with isotropic covariances. All recordings of a deployment share the effect d of their domain: language, microphones,
rooms, length of the phrases. delta is its total variance. `DomainPLDA.deployed` computes the posterior of d, given the
enrolled profiles; every score is an integral over this posterior.

Two steps come before the model. Directions in which telephones, noise and rooms move vectors are scaled down; they are
estimated from copies of training recordings in several conditions. Vectors are then scaled to length 1 about mean + d,
because embeddings of long phrases vary less than those of single words.

Phrases enrolled by name are known classes of the deployment (`known=["phrase"]`): all recordings of a phrase, from any
speaker, contribute to the estimate of its mean.

The model is that of docs/math.md, section 9.11; posterior.py computes the posteriors, unit_terms.py the pair terms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from ..._typing import AnyArray, Array, IntArray, Json, Labels, Names
from ...backend import like, to_host
from ...exceptions import DataError, LabelError, ParameterError
from ...labels import (
    as_array,
    check_no_interactions,
    check_view_names,
    exact_names,
    names_from_file,
)
from ...models.base import BaseScorer
from ...models.caching import FittedArrays, Snapshot, as_key, cache_of
from ...models.checks import concatenate_columns, require_labels
from ...models.deployment import Deployable
from ...scoring.pair_terms import ExpertTerms, JointTerms, row_products
from ...scoring.profiles import Profiles
from ...scoring.question import NearMatches
from ...sklearn_interface import Estimator, check_is_fitted
from ...tensor_files import Tensors, fingerprint
from ...vector_checks import as_vectors, check_feature_names
from ..phrases import WINDOW, PhraseMatcher
from .bandwidth import DIFFERENT_BANDS, different_bands, fit_band_weights
from .known_classes import MAX_CELLS, adapt_block, class_blocks, nearest_to_each, sample_rows
from .moments import block_moments, channel_directions
from .posterior import (
    MAX_UNNAMED_VARIANCE,
    SESSION_VIEW,
    Block,
    ClassPosteriors,
    EnrolledCells,
    mean_square_about,
)
from .unit_terms import MAX_VARIANCE, ColumnVariances, UnitTerms

TEST_SECONDS = "log seconds of the test"
RECORDINGS = "log recordings enrolled"
"""Names of quality measures of a trial, see `DomainPLDA.evidence_measures`."""

MIN_SECONDS = 0.05
"""Lower limit of the seconds of a recording before the logarithm is taken."""


def _total_seconds(profiles: Profiles, column: int) -> Array:
    """Return the (P,) total seconds of the recordings of each profile.

    profiles : P profiles
    column : column of `profiles.y` with the sum of the seconds of each row's recordings
    """
    starts = np.searchsorted(profiles.owner, np.arange(len(profiles)))
    sums = np.add.reduceat(to_host(profiles.y[:, column]), starts)
    # the evidence of many recordings of a cell may count as fewer
    per_recording = sums / np.add.reduceat(profiles.weights, starts)
    return np.asarray(np.maximum(per_recording, MIN_SECONDS) * profiles.counts)


class DomainPLDA(Deployable, BaseScorer, Estimator):
    """PLDA of unit-length embeddings that adapts to the domain (language, microphones, rooms) of enrolled recordings.

    A vector consists of blocks of columns, one per extractor; each block models one view, such as speaker or phrase.

    Parameters
    ----------
    blocks : dict of {name: (columns, view)}
        Number of columns and view of each block, in order; several blocks may have the first view.
    domain : str
        Key of `y` in `fit` with the domain (corpus) of each training vector.
    recording : str
        Key of `y` in `fit` with the original recording of each training vector. Vectors of one
        recording and of its simulated copies (noise, telephone, room) have the same label.
    delta : dict of {block: variance} or None
        Variance between the means of domains, summed over columns. It is estimated for blocks without an entry.
    weights : dict of {block: weight} or None
        Factor on the log-likelihoods of a block. Use a weight below 1 if its columns have correlated noise, because
        they then carry less evidence than independent columns. Default: 1.
    points : dict of {block: settings of a `PhraseMatcher`} or None
        Blocks that hold points in time instead of an embedding. They serve only to detect near matches of a phrase, in
        which one word was replaced (`near_matches`).

    Attributes
    ----------
    views_ : dict of {view: 0}
        Views of the blocks, in order. Zeros, because views have no latent dimensions here.
    channels_ : dict of {block: (directions, columns)}
        Matrix R with the directions in which copies of a recording differ most; a unit-length block u becomes
        u - R'R u.
    mean_ : (D,)
        Mean over the training domains' means.
    variances_ : dict of {block: {key: variance summed over columns}}
        Variances within domains, by key: classes of the block's view (own), classes of the other view (other), cells
        (cell) and recordings (take); variance between domains (domain).
    shift_ : (D,)
        Posterior mean of the effect of the current domain; zeros before `deployed`.
    domain_variances_ : dict of {block: variance}
        Posterior variance of the effect of the current domain, summed over columns.
    names_ : dict of {view: names of the known classes}
    band_weights_ : (D + 1,)
        Weights of the evidence, and a constant, for the log odds of a narrow band; empty before `fit_bandwidth`.
    class_means_ : dict of {view: (classes, columns)}
        Posterior means of the known classes, scaled about the domain.
    class_variances_ : dict of {view: (classes,)}
        Posterior variances of the known classes in one column, scaled about the domain.
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
        "band_weights_",
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
        points: Mapping[str, dict[str, Any]] | None = None,
    ) -> None:
        self.blocks = blocks
        self.domain = domain
        self.recording = recording
        self.delta = delta
        self.weights = weights
        self.points = points

    # -- training ------------------------------------------------------------

    def fit(self, X: ArrayLike, y: Labels | None = None) -> Self:
        """Fit the model to vectors of several domains.

        Parameters
        ----------
        X : (n, D) vectors, with the columns of all blocks side by side
        y : dict of {view: (n,) labels}, for every view of the blocks; optionally also with the domain and the original
            recording of each vector, under the keys that the parameters `domain` and `recording` name

        Returns
        -------
        self
        """
        vectors = as_vectors(X)
        check_feature_names(self, X, reset=True)
        width = sum(columns for columns, _ in self.blocks.values())
        if vectors.shape[1] != width:
            raise DataError(
                f"expected vectors of {width} columns, the sum of the columns in blocks; got {vectors.shape[1]}"
            )
        labels = require_labels(y)
        self._check_points()
        self._check_views()
        views = list(dict.fromkeys(view for _, _, view in self._columns()))
        block_views = [view for _, _, view in self._columns()]
        # a known class has one posterior, in one block; classes of the first view are never known by name
        for view in views[1:]:
            if block_views.count(view) > 1:
                raise ParameterError(
                    f"two blocks are about the view {view!r}, but only the first view ({views[0]!r}) may have several "
                    "blocks: put the columns of both into one block"
                )
        missing = [view for view in views if view not in labels]
        if missing:
            raise LabelError(
                f"y has no labels of the view {missing[0]!r}, which blocks are about; it has {list(labels)}: add them"
            )
        # without labels all vectors are of one domain
        domains = labels.get(self.domain, np.zeros(len(vectors), dtype=np.int64))
        self.views_ = dict.fromkeys(views, 0)
        self.mean_ = np.zeros(width)
        self.variances_: dict[str, dict[str, float]] = {}
        self.channels_: dict[str, Array] = {}
        if not np.isfinite(vectors).all():
            raise DataError("Input X contains NaN or infinity: leave out such rows")
        # the length of an embedding depends on the recording's quality, not on its classes
        unit = self.project(vectors.astype(np.float64))
        if self.recording in labels:
            for name, columns, _ in self._columns():
                self.channels_[name] = channel_directions(
                    unit[:, columns], labels[self.recording], domains
                )
            unit = self.project(unit)
        for name, columns, view in self._columns():
            other_labels = next((labels[other] for other in views if other != view), None)
            self.mean_[columns], self.variances_[name] = block_moments(
                unit[:, columns], labels[view], other_labels, domains, (self.delta or {}).get(name)
            )
        self.band_weights_ = np.zeros(0)
        self._reset_domain()
        return self

    def fit_bandwidth(self, X: ArrayLike, is_narrow: ArrayLike, domains: ArrayLike) -> Self:
        """Fit an estimate of bandwidth, by which `evidence_measures` compares the two sides of a trial.

        Parameters
        ----------
        X : (n, D) vectors; the model must be fitted
        is_narrow : (n,) whether the recording has a narrow band, such as a telephone call
        domains : (n,) domain of each vector

        Returns
        -------
        self
        """
        check_is_fitted(self, "mean_")
        evidence = self.project(as_vectors(X).astype(np.float64))
        columns = np.concatenate(
            [np.arange(block.start, block.stop) for _, block, _ in self._columns()]
        )
        weights = fit_band_weights(evidence[:, columns], np.asarray(is_narrow), as_array(domains))
        self.band_weights_ = np.zeros(len(self.mean_) + 1)
        self.band_weights_[columns] = weights[:-1]
        self.band_weights_[-1] = weights[-1]
        return self

    def _reset_domain(self) -> None:
        """Undo an adaptation: set the effect of the domain to its prior, remove known classes."""
        self.shift_ = np.zeros_like(self.mean_)
        self.domain_variances_ = {
            name: self._prior_domain_variance(name) for name, _, _ in self._columns()
        }
        self.names_: dict[str, list[object]] = {}
        self.class_means_ = {}
        self.class_variances_ = {}

    def _prior_domain_variance(self, name: str) -> float:
        """Return the variance of the recording domain's effect before anything is enrolled, summed over columns.

        name : block, the columns of one extractor
        """
        delta = self.variances_[name]["domain"]
        # profiles separate the classes of the first view; other classes have no labels yet
        return delta if self._is_first_view(name) else min(delta, MAX_UNNAMED_VARIANCE)

    def _is_first_view(self, name: str) -> bool:
        """Return whether the block `name` (the columns of one extractor) models the first view.

        A profile has one class of the first view, such as its speaker.
        """
        return self.blocks[name][1] == next(iter(self.views_))

    # -- evidence and the domain -----------------------------------------------

    def project(self, vectors: AnyArray) -> AnyArray:
        """Remove channel directions from vectors, and scale the columns of each extractor to length 1.

        If an extractor represents recordings by points in time, each point is scaled instead. The result (evidence)
        does not depend on the enrolled profiles.

        Parameters
        ----------
        vectors : (n, D) vectors

        Returns
        -------
        (n, D) projected vectors
        """
        projected = []
        matchers = self._matchers()
        for name, columns in self._block_columns().items():
            block = vectors[:, columns]
            if name in matchers:
                projected.append(matchers[name].project(block))
                continue
            if name in self.channels_:
                R = like(self.channels_[name], block)
                block = block - (block @ R.T) @ R
            length = row_products(block, block) ** 0.5
            if isinstance(length, np.ndarray) and not length.all():
                row = int(np.flatnonzero(length == 0)[0])
                raise DataError(
                    f"Input X contains a block of zeros, which has no direction: {name!r} in row {row}. Leave out "
                    "recordings without speech"
                )
            projected.append(block / length[:, None])
        return concatenate_columns(projected)

    def with_domain_as_prior(self) -> Self:
        """Return a copy that starts every later adaptation (`deployed`) from the recording domain of this model.

        The posterior mean of the current domain becomes the training mean of the copy.
        """
        # fitted attributes are shared: nothing writes to them
        other = copy(self)
        other.mean_ = self.mean_ + self.shift_
        other.shift_ = np.zeros_like(self.shift_)
        return other

    def deployed(self, profiles: Profiles | None) -> Self:
        """Return a copy of the model that is adapted to the recording domain of the enrolled profiles.

        The posterior of the domain (language, microphones, rooms) is exact under the model's variances, given a sample
        of at most `MAX_CELLS` enrolled cells, combinations of a speaker and a phrase. Names of phrases are used if they
        explain the cells at least as well as separate phrases, one per cell.

        Parameters
        ----------
        profiles : enrolled profiles; None returns this model unchanged
        """
        check_is_fitted(self, "mean_")
        if profiles is None:
            return self
        # bounded, because the posterior solves a system of all cells
        rows = sample_rows(np.arange(len(profiles.owner)), MAX_CELLS)
        deployed = copy(self)
        deployed._reset_domain()
        if not len(rows):
            return deployed
        views = tuple(self.views_)
        cells = EnrolledCells.of(profiles, rows, views)
        for name, columns, view in self._columns():
            block = Block(
                columns,
                view,
                self._is_first_view(name),
                self.mean_[columns],
                self.variances_[name],
            )
            groups = class_blocks(profiles, cells, rows, views, view)
            domain, known_classes = adapt_block(block, cells, groups)
            if known_classes:
                deployed._set_known_classes(view, groups, known_classes)
            deployed.shift_[columns] = domain.shift
            deployed.domain_variances_[name] = domain.variance
        return deployed

    def _set_known_classes(
        self, view: str, groups: Sequence[EnrolledCells], posteriors: Sequence[ClassPosteriors]
    ) -> None:
        """Store the names and posteriors of known classes, such as phrases that were enrolled by name.

        Parameters
        ----------
        view : view of the classes
        groups : groups of enrolled cells (combinations of a speaker and a phrase)
        posteriors : posteriors of the classes, per group from which they were estimated
        """
        classes = [group.classes_to_estimate(view) for group in groups]
        pairs = list(zip(posteriors, classes, strict=True))
        self.names_[view] = [
            group.names[view][i]
            for group, numbers in zip(groups, classes, strict=True)
            for i in numbers
        ]
        self.class_means_[view] = np.concatenate(
            [posterior.means[numbers] for posterior, numbers in pairs]
        )
        self.class_variances_[view] = np.concatenate(
            [posterior.variances[numbers] for posterior, numbers in pairs]
        )

    @property
    def classes_(self) -> dict[str, Names]:
        """Names of the known classes, such as phrases that were enrolled by name, by view."""
        return {view: exact_names(names) for view, names in self.names_.items()}

    def known_names(self, view: str) -> Names:
        _, *nameable = self.views_
        if view not in nameable:
            raise LabelError(
                f"classes of the view {view!r} cannot be known by name in this model; only those of {nameable} can: "
                "remove the view from known"
            )
        return self.classes_.get(view, np.empty(0, dtype=np.str_))

    def nearest_classes(self, view: str) -> IntArray | None:
        if view not in self.names_:
            return None
        snapshot = self._snapshot("class_means_")
        return cache_of(self).get(
            ("nearest", view), snapshot, lambda: nearest_to_each(snapshot.content[view])
        )

    # -- scoring -----------------------------------------------------------------

    def _snapshot(self, name: str) -> Snapshot:
        """Return a private copy of the fitted attribute `name`, to be part of a cache key.

        As long as the attribute is unchanged, the result is the same object, otherwise a new one.
        """
        return cache_of(self).snapshot(vars(self), name)

    def pair_terms(self) -> JointTerms:
        if "mean_" not in vars(self):
            check_is_fitted(self, "mean_")
        # pair terms are expensive to compute: use them again until an input changes
        names = ("mean_", "shift_", "class_means_", "class_variances_")
        arrays = tuple(map(self._snapshot, names))
        plain = (
            self.blocks,
            self.points,
            self.weights,
            self.views_,
            self.variances_,
            self.domain_variances_,
            {view: len(names) for view, names in self.names_.items()},
        )
        return cache_of(self).get(
            "pair_terms", (arrays, as_key(plain)), lambda: self._make_pair_terms(*arrays)
        )

    def _make_pair_terms(self, *snapshots: Snapshot) -> JointTerms:
        # pair terms hold private copies, which no later change reaches
        mean, shift, class_means, class_variances = (snapshot.content for snapshot in snapshots)
        experts = []
        for name, columns, view in self._columns():
            centre = (mean + shift)[columns]
            # scaled vectors have length 1 about the centre, instead of a mean square of 1 - |centre|^2
            domain_variance = self.domain_variances_[name] / mean_square_about(centre)
            variances = ColumnVariances.of(self.variances_[name], domain_variance, len(centre))
            known = None
            numbers = {}
            if view in self.names_:
                known = class_means[view], class_variances[view]
                numbers = {view: range(len(self.names_[view]))}
            pair_terms = UnitTerms(view, centre, variances, known)
            weight = float((self.weights or {}).get(name, 1.0))
            experts.append(ExpertTerms(pair_terms, columns, {view: weight}, numbers))
        return JointTerms((*self.views_, SESSION_VIEW), experts)

    @property
    def width_in(self) -> int:
        return len(self.mean_)

    def near_matches(
        self, enrol: Profiles, test: Profiles, pairs: IntArray | None, views: Sequence[str]
    ) -> NearMatches | None:
        for name, matcher in self._matchers().items():
            if matcher.view in views:
                columns = self._block_columns()[name]
                enrolled = replace(enrol, y=enrol.y[:, columns])
                tested = replace(test, y=test.y[:, columns])
                return matcher.near_matches(enrolled, tested, pairs)
        return None

    def evidence_measures(
        self, enrol: Profiles, test: Profiles, pairs: IntArray | None
    ) -> dict[str, Array] | None:
        """Return quality measures of trials, on which a calibration can depend.

        They are the logarithm of the seconds of the test, the logarithm of the number of enrolled recordings and, after
        `fit_bandwidth`, the probability that the two sides have different bandwidths.

        Parameters
        ----------
        enrol, test : profiles of the two sides
        pairs : (trials, 2) numbers of profile and test of each trial; None: all pairs

        Returns
        -------
        {name of the measure: value per trial, (trials,) or (profiles, tests)}. None without blocks
        in `points`, because only these contain the seconds of recordings
        """
        for name in self._matchers():
            column = self._block_columns()[name].stop - 1
            profiles, tests = np.indices((len(enrol), len(test)))
            if pairs is not None:
                profiles, tests = np.asarray(pairs).T
            measures = {
                TEST_SECONDS: np.log(_total_seconds(test, column))[tests],
                RECORDINGS: np.log(enrol.counts.astype(np.float64))[profiles],
            }
            if len(self.band_weights_):
                measures[DIFFERENT_BANDS] = different_bands(
                    enrol, test, self.band_weights_, profiles, tests
                )
            return measures
        return None

    def _check_views(self) -> None:
        """Check the views of the blocks.

        Raises
        ------
        ParameterError
            There are more than two views, or a view has a reserved name, such as that of sessions.
        """
        views = tuple(dict.fromkeys(view for _, _, view in self._columns()))
        check_view_names(views)
        check_no_interactions(views, type(self).__name__)
        if len(views) > 2:
            # the variances are those of one other view and of cells of two views
            raise ParameterError(
                f"a {type(self).__name__} has one or two views; its blocks are about {list(views)}. For more views, "
                "use a Committee with one model per view"
            )
        reserved = {
            SESSION_VIEW: "a profile's sessions",
            self.domain: "the training vectors' domains",
            self.recording: "original recordings with copies",
        }
        for view in views:
            if view in reserved:
                raise ParameterError(
                    f"a block cannot be about {view!r}, a name that is reserved for the labels of {reserved[view]}: "
                    "rename the view"
                )

    def _check_points(self) -> None:
        for name, matcher in self._matchers().items():
            if name not in self.blocks:
                raise ParameterError(
                    f"points has settings of the block {name!r}, which is not in blocks: expected one of "
                    f"{list(self.blocks)}"
                )
            columns, view = self.blocks[name]
            if matcher.fits(columns, view):
                continue
            if view != matcher.view:
                raise ParameterError(
                    f"the block {name!r} has the view {view!r}, but its points describe the view {matcher.view!r}: "
                    "use the same view in blocks and points"
                )
            raise ParameterError(
                f"the block {name!r} must have a multiple of {matcher.points} columns plus one (points in time, and "
                f"seconds), with at least {WINDOW} points; got {columns} columns"
            )

    def _matchers(self) -> dict[str, PhraseMatcher]:
        return {name: PhraseMatcher(**settings) for name, settings in (self.points or {}).items()}

    def _block_columns(self) -> dict[str, slice]:
        """Return the columns of each extractor in the vectors, {block: slice}."""
        stops = np.cumsum([columns for columns, _ in self.blocks.values()]).tolist()
        return {
            name: slice(stop - columns, stop)
            for (name, (columns, _)), stop in zip(self.blocks.items(), stops, strict=True)
        }

    def _columns(self) -> list[tuple[str, slice, str]]:
        """Return (name, columns, view) of each block that holds embeddings; blocks of points in time are left out."""
        return [
            (name, columns, self.blocks[name][1])
            for name, columns in self._block_columns().items()
            if name not in (self.points or {})
        ]

    # -- files ---------------------------------------------------------------------

    def describe(self) -> Json:
        blocks = {
            name: f"{columns} columns, {view}" for name, (columns, view) in self.blocks.items()
        }
        return {**super().describe(), "views": list(self.views_), "blocks": blocks}

    def _key(self) -> str:
        """Return a hash of the training mean and the names of the blocks, which profiles store.

        It is the same before and after `deployed`, so that profiles remain valid.
        """
        blocks = list(self.blocks)
        mean = self._snapshot("mean_")
        return cache_of(self).get(
            "key",
            (mean, tuple(blocks)),
            lambda: fingerprint({"mean": mean.content}, {"blocks": blocks}),
        )

    @classmethod
    def from_state(cls, arrays: Tensors, values: dict[str, Any]) -> Self:
        # files of earlier versions have no estimate of the bandwidth
        return super().from_state({"band_weights_": np.zeros(0), **arrays}, values)

    def check_state(self) -> None:
        self._check_views()
        width = sum(columns for columns, _ in self.blocks.values())
        fits = self.mean_.shape == self.shift_.shape == (width,)
        fits = fits and self.band_weights_.shape in {(0,), (width + 1,)}
        fits = fits and bool(np.isfinite(self.band_weights_).all())
        for name, block, view in self._columns():
            columns = block.stop - block.start
            R = self.channels_.get(name, np.zeros((0, columns)))
            fits = fits and R.shape[1:] == (columns,) and bool(np.isfinite(R).all())
            totals = self.variances_[name].values()
            # bounds of unit-length vectors; enrolment can only reduce the variance of the domain
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
            raise DataError(
                "the model file is damaged, because its arrays have contradictory shapes or impossible values: copy it "
                "again or fit the model again"
            )
        super().check_state()
