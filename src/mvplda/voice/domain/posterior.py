"""Posteriors of the recording domain and of the named classes, from enrolled cells.

The formulas are those of docs/math.md, section 9.11: `domain_posterior` is "The posterior of the domain",
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
"""View whose labels separate the sessions of a profile. The recordings of a session share room, microphone and mood;
without labels a profile has one session."""

SESSION_VARIANCE_RATIO = 0.33
"""Variance of the sessions of one person or phrase, relative to that of people or phrases. Measured on the voices of
C-VAU, whose sessions are months apart; the other corpora have one session per person."""

MIN_MEAN_SQUARE = 0.05
"""Lower limit of the mean square of unit-length vectors about the centre of their domain."""

MIN_PEOPLE_PER_PHRASE = 4
"""Fewest people for using the name of a phrase that everybody says: with fewer, phrase and domain cannot be separated.
Chosen on held-out corpora."""

MAX_UNNAMED_VARIANCE = 0.008
"""Upper limit of the domain's variance in a view without labels: if everybody may say one phrase, phrase and domain
cannot be separated."""

KNOWN_CLASS_NOISE = 1.5
"""Noise of recordings of known classes, relative to training. Chosen on held-out corpora."""


class DomainPosterior(NamedTuple):
    """Posterior of a domain.

    centre : (D,) mean of the vectors in this domain, mean + shift
    shift : (D,) posterior mean of the domain effect d
    variance : posterior variance of d, summed over columns
    """

    centre: Array
    shift: Array
    variance: float


class ClassPosteriors(NamedTuple):
    """Posteriors of known classes.

    means : (classes, D)
    variances : (classes,) of one column
    evidence : log-likelihood of the cells up to a constant and the factor 1/2
    """

    means: Array
    variances: Array
    evidence: float


class Block(NamedTuple):
    """A modelled block of columns.

    columns : slice of the vectors
    view : view that the block models
    is_first_view : whether that is the first view, whose classes are the profiles
    mean : (D,) mean of the training domains
    variances : total variances by the keys of `VARIANCE_KEYS`
    """

    columns: slice
    view: str
    is_first_view: bool
    mean: Array
    variances: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class EnrolledCells:
    """Cells of profiles from which a domain is estimated.

    means, weights : (C, D), (C,) mean and number of the recordings of each cell
    same : {view: (C, C) mask of the pairs of cells with the same class}; without views that have no labels
    names : {view: names of its classes}; without views that have no names
    codes : {view: (C,) class of each cell, -1 if its label is missing}
    target_classes : numbers of the classes to estimate; cells of other classes serve only to estimate the domain;
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
        """Return the cells of profiles that `rows` selects."""
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
        """Return the covariance V (C, C) of the cell means from the total variances of views, cells and recordings."""
        same_first = self.same[self.views[0]]
        # without labels all cells may be of one class of the second view
        same_second = self.same.get(self.views[-1], np.ones_like(same_first))
        V = first * same_first + second * same_second + cell * (same_first & same_second)
        V[np.diag_indices(len(V))] += recording / self.weights
        return np.asarray(V)

    def without_names(self, view: str) -> Self:
        """Return the cells without the names of a view: each cell is a separate class in this view."""
        same = {**self.same, view: np.eye(len(self.weights), dtype=bool)}
        return replace(self, same=same, names={**self.names, view: []})

    def classes_to_estimate(self, view: str) -> IntArray:
        """Return the numbers of the named classes to estimate from these cells."""
        if self.target_classes is None:
            return np.arange(len(self.names[view]))
        return self.target_classes

    def members(self, view: str) -> BoolArray:
        """Return the (classes, C) mask of the cells of each class."""
        return np.equal.outer(np.arange(len(self.names[view])), self.codes[view])


def domain_posterior(block: Block, cells: EnrolledCells) -> DomainPosterior:
    """Compute the posterior of the domain from cells in the scale of the vectors.

    With V the covariance of the C cell means x within a domain, m the mean of training and delta the variance of
    domains, the precision is p = 1/delta + 1'V^-1 1, and the domain is at m + 1'V^-1 (x - m) / p. People and phrases
    that recur are counted once, however many recordings they have.
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
    """Compute the posteriors of the named classes, of vectors scaled about the domain.

    With z the scaled cells, r the training mean in this scale and K the covariance of the cells, domain included, the
    class b has the mean r + k'K^-1 (z - r) and the variance k_bb - k'K^-1 k, where k is its covariance with the cells.
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
    """Return the covariance (C, C) of the cell means in the scale of the block's variances, without the domain."""
    variances = block.variances
    first, second = variances["other"], variances["own"]
    if block.is_first_view:
        first, second = second, first
    return cells.covariance(first, second, variances["cell"], recording)


def mean_square_about(centre: Array) -> float:
    """Return the mean square distance of unit-length vectors from their mean `centre`, with a lower limit."""
    return max(1.0 - float(centre @ centre), MIN_MEAN_SQUARE)


def scale_about(means: AnyArray, centre: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Scale means of unit-length vectors about a centre: (n, D) scaled means and (n,) mean square distances."""
    # every recording has |u| = 1, so that the mean square distance follows from the mean: 1 - 2 u'k + k'k
    squares = 1.0 - 2.0 * (means @ centre) + centre @ centre
    return (means - centre) / squares[:, None].clip(min=1e-6) ** 0.5, squares
