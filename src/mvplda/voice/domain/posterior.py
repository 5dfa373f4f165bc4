"""Posteriors of the recording domain (language, microphones, rooms) and of named classes such as phrases.

They are computed from enrolled cells; a cell is one combination of classes, such as one speaker with one phrase. The
formulas are those of docs/math.md, section 9.11: `domain_posterior` is "The posterior of the domain",
`scale_about` is "Scaling about the domain", `class_posteriors` is "Phrases by name".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from scipy.linalg import solve_triangular

from ..._typing import AnyArray, Array, BoolArray, IntArray
from ...backend import to_host
from ...scoring.profiles import Profiles

SESSION_VIEW = "recording"
"""Name of the view whose labels are the sessions of a profile. The recordings of a session share room, microphone and
mood. Without labels a profile has one session."""

SESSION_VARIANCE_RATIO = 0.33
"""Variance between sessions of one person (or phrase), as a share of the variance between people (or phrases).
Measured on the corpus C-VAU, whose sessions are months apart; the other corpora have one session per person."""

MIN_MEAN_SQUARE = 0.05
"""Lower limit of the mean square distance of unit-length vectors from the mean of their recording domain."""

MIN_PEOPLE_PER_PHRASE = 4
"""Minimum number of people for using the name of a phrase if everybody says the same one: with fewer people, the effect
of the phrase cannot be separated from that of the domain. Chosen on held-out corpora."""

MAX_UNNAMED_VARIANCE = 0.008
"""Upper limit of the domain's variance for vectors about a view without labels. Unlabelled recordings may all be of one
phrase, whose effect the estimate of the domain would absorb."""

KNOWN_CLASS_NOISE = 1.5
"""Factor on the variance of recordings of known classes, which vary more than in training. Chosen on held-out
corpora."""


class DomainPosterior(NamedTuple):
    """Posterior of the effect that a recording domain has on the vectors of one extractor.

    centre : (D,) mean of the vectors in this domain: training mean + shift
    shift : (D,) posterior mean of the domain's effect
    variance : posterior variance of the domain's effect, summed over columns
    """

    centre: Array
    shift: Array
    variance: float


class ClassPosteriors(NamedTuple):
    """Posteriors of known classes, such as phrases with a name, in the scale of `scale_about`.

    means : (classes, D) posterior mean of each class
    variances : (classes,) posterior variance of each class in one column
    evidence : twice the log-likelihood of the enrolled cells per column, up to a constant
    """

    means: Array
    variances: Array
    evidence: float


class Block(NamedTuple):
    """Block of columns: the part of the vectors that one extractor computes, with its view and trained parameters.

    columns : columns of the block in the vectors
    view : view that the block models, such as "phrase"
    is_first_view : whether `view` is the first view of the model, whose classes are the profiles
    mean : (D,) mean over the training domains' means
    variances : {key of `VARIANCE_KEYS`: variance summed over columns}
    """

    columns: slice
    view: str
    is_first_view: bool
    mean: Array
    variances: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class EnrolledCells:
    """Enrolled cells from which a recording domain is estimated; a cell is, for example, one speaker with one phrase.

    C is the number of cells, and D the dimension of their vectors.

    means : (C, D) mean of the recordings of each cell
    weights : (C,) number of recordings of each cell
    views : views of the model
    same : {view: (C, C) mask of the pairs of cells with the same class}, for views with labels
    names : {view: names of its classes}, for views whose classes have names
    codes : {view: (C,) number of each cell's class, -1 if its label is missing}
    target_classes : numbers of the classes to estimate, in the view that is asked for; other cells only serve to
        estimate the domain;
        None: all classes
    """

    means: Array
    weights: Array
    views: tuple[str, ...]
    same: dict[str, BoolArray]
    names: dict[str, list[object]]
    codes: dict[str, IntArray]
    target_classes: IntArray | None = None

    @classmethod
    def of(cls, profiles: Profiles, rows: IntArray, views: tuple[str, ...]) -> Self:
        """Return the cells (such as one speaker with one phrase) of the profiles in the given rows.

        Parameters
        ----------
        profiles : enrolled profiles, with one row per cell
        rows : (C,) rows to use
        views : views of the model, the first one with the profiles as its classes
        """
        weights = profiles.weights[rows]
        means = to_host(profiles.y)[rows] / weights[:, None]
        # a profile is one person, the class of the first view
        owner = profiles.owner[rows]
        same = {views[0]: np.equal.outer(owner, owner)}
        names: dict[str, list[object]] = {}
        codes: dict[str, IntArray] = {}
        for view in views[1:]:
            if view not in profiles.labels:
                continue
            labels = profiles.labels[view]
            numbers, indices = np.unique(labels.codes[rows], return_inverse=True)
            # a single phrase of few people cannot be separated from the domain
            is_single = len(numbers) == 1 and numbers[0] >= 0
            if is_single and len(np.unique(owner)) < MIN_PEOPLE_PER_PHRASE:
                continue
            codes[view] = indices.reshape(-1) - np.count_nonzero(numbers < 0)
            if (numbers >= 0).any():
                names[view] = labels.names[numbers[numbers >= 0]].tolist()
            # each cell without a label is a class of its own
            distinct = np.where(codes[view] < 0, -1 - np.arange(len(rows)), codes[view])
            same[view] = np.equal.outer(distinct, distinct)
        return cls(means, weights, views, same, names, codes)

    def covariance(self, first: float, second: float, cell: float, recording: float) -> Array:
        """Return the (C, C) covariance of the cell means.

        Parameters
        ----------
        first, second : variances of the classes of the first and of the second view
        cell : variance of cells, beyond that of their two classes
        recording : variance of recordings, which is divided by the number of recordings of each cell
        """
        same_first = self.same[self.views[0]]
        # without labels all cells may be of one class of the second view
        same_second = self.same.get(self.views[-1], np.ones_like(same_first))
        V = first * same_first + second * same_second + cell * (same_first & same_second)
        V[np.diag_indices(len(V))] += recording / self.weights
        return np.asarray(V)

    def without_names(self, view: str) -> Self:
        """Return a copy in which the classes of a view have no names: each cell is a separate class."""
        same = {**self.same, view: np.eye(len(self.weights), dtype=bool)}
        return replace(self, same=same, names={**self.names, view: []})

    def classes_to_estimate(self, view: str) -> IntArray:
        """Return the numbers of the named classes of a view to estimate: `target_classes`, or else all."""
        if self.target_classes is None:
            return np.arange(len(self.names[view]))
        return self.target_classes

    def members(self, view: str) -> BoolArray:
        """Return the (classes, C) mask of the cells that belong to each named class of a view."""
        return np.equal.outer(np.arange(len(self.names[view])), self.codes[view])


def domain_posterior(block: Block, cells: EnrolledCells) -> DomainPosterior:
    """Compute the posterior of the effect that a recording domain (language, microphones, rooms) has on vectors.

    A cell is one combination of classes, such as one speaker with one phrase. Let x be the means of the C enrolled
    cells, V their covariance within a domain, m the training mean, delta the variance between domains and 1 a vector of
    ones. The posterior precision is p = 1/delta + 1'V^-1 1, and the centre of the domain is m + 1'V^-1 (x - m) / p.
    Because of V, people and phrases count once, however many recordings they have.

    Parameters
    ----------
    block : columns of one extractor with its trained parameters
    cells : enrolled cells
    """
    variances = block.variances
    V = _cell_covariance(block, cells, variances["take"]) * mean_square_about(block.mean)
    cell_weights = np.linalg.solve(V, np.ones(len(V)))  # V^-1 1
    delta = variances["domain"]
    if block.view not in cells.same:
        delta = min(delta, MAX_UNNAMED_VARIANCE)
    precision = 1.0 / delta + cell_weights.sum()
    means = cells.means[:, block.columns]
    shift = cell_weights @ (means - block.mean) / precision
    return DomainPosterior(block.mean + shift, shift, float(1.0 / precision))


def class_posteriors(
    block: Block, cells: EnrolledCells, domain: DomainPosterior
) -> ClassPosteriors:
    """Compute the posteriors of named classes, such as phrases, from enrolled cells scaled about their domain.

    Let z be the scaled means of the cells, r the training mean in this scale, and K the covariance of the cells,
    including that of their domain. A class with the prior variance s and the covariance k with the cells has the
    posterior mean r + k'K^-1 (z - r) and the posterior variance s - k'K^-1 k.

    Parameters
    ----------
    block : columns of one extractor with its trained parameters
    cells : enrolled cells, with names of the classes of the block's view
    domain : posterior of the domain, from `domain_posterior`
    """
    variances = block.variances
    z, squares = scale_about(cells.means[:, block.columns], domain.centre)
    r = -domain.shift / np.sqrt(squares.mean())
    domain_variance = variances["domain"] / mean_square_about(domain.centre)
    K = domain_variance + _cell_covariance(block, cells, KNOWN_CLASS_NOISE * variances["take"])
    K[np.diag_indices(len(K))] += SESSION_VARIANCE_RATIO * variances["own"]
    k = domain_variance + variances["own"] * cells.members(block.view)  # (classes, cells)

    # one Cholesky factor of K serves means, variances and evidence
    L = np.linalg.cholesky(K)
    whitened = solve_triangular(L, z - r, lower=True)
    whitened_k = solve_triangular(L, k.T, lower=True)
    total_variances = domain_variance + variances["own"] - np.sum(whitened_k**2, axis=0)
    misfit = 2.0 * np.log(np.diag(L)).sum() + np.sum(whitened**2)
    return ClassPosteriors(
        r + whitened_k.T @ whitened, total_variances / len(domain.centre), -float(misfit)
    )


def _cell_covariance(block: Block, cells: EnrolledCells, recording: float) -> Array:
    """Return the (C, C) covariance of the means of C enrolled cells within a domain, from trained variances.

    Parameters
    ----------
    block : columns of one extractor with its trained variances
    cells : enrolled cells, such as one speaker with one phrase each
    recording : variance of recordings to use instead of the trained one
    """
    variances = block.variances
    first, second = variances["other"], variances["own"]
    if block.is_first_view:
        first, second = second, first
    return cells.covariance(first, second, variances["cell"], recording)


def mean_square_about(centre: Array) -> float:
    """Return the mean square distance of unit-length vectors from their mean `centre`, at least `MIN_MEAN_SQUARE`."""
    return max(1.0 - float(centre @ centre), MIN_MEAN_SQUARE)


def scale_about(means: AnyArray, centre: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Subtract a centre from means of unit-length vectors, and scale to a mean square distance of 1.

    Parameters
    ----------
    means : (n, D) means of groups of unit-length vectors
    centre : (D,) vector to subtract, such as the mean of a recording domain

    Returns
    -------
    (n, D) scaled means, and (n,) mean square distances of each group's vectors from the centre, before scaling
    """
    # every vector has length 1, so the mean square distance follows from a group's mean u and the centre k
    squares = 1.0 - 2.0 * (means @ centre) + centre @ centre
    return (means - centre) / squares[:, None].clip(min=1e-6) ** 0.5, squares
