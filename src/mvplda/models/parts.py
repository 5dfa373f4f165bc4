"""Nearly the right words: is every part of a test found in what was enrolled?

One word of a pass-phrase that is replaced leaves most of it as it was, so that a vector of the whole says little about
it. A block of points tells it: a recording as a row of points in time, each a vector of the sounds there, and its
seconds. Every point of one recording should be like some point of the other (docs/math.md, section 9.12).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from sklearn.linear_model import LogisticRegression

from .._typing import AnyArray, Array, BoolArray, IntArray
from ..backend import namespace, to_host
from ..exceptions import DataError
from ..scoring.forms import row_products
from ..scoring.profiles import Profiles
from ..scoring.question import Near

WINDOW = 4
"""Points in a row that are missing where a word was replaced. This and the two below were chosen on corpora that were
left out."""

PRIOR = 0.08
"""Share of nearly the right words among all others."""

ALONE = 0.3
"""The same where nothing is enrolled: what is usual here is not known, and vectors of whole phrases, which are alike to
the network, do not tell other words either."""

LEAST_S, LONGER_S = 0.8, 0.4
"""A recording up to the first is one word, of which no part is replaced; so much longer, the share is as above."""

SMALLEST = 1e-4
"""Distances below this are of copies."""

AT_ONCE = 2**12


@dataclass(frozen=True)
class PartMatcher:
    """Compares points, and tells the same words from nearly the same by the worst part beside the best places.

    view : what the block is about
    points : of length 1, in a recording; the last column of the block has its seconds
    constant, best, worst : LLR = constant + best log(lower quartile of distances) + worst log(distance of the worst
        part). The best places tell how alike two recordings of the same words are here.
    """

    view: str
    points: int
    constant: float = 0.0
    best: float = 0.0
    worst: float = -1.0

    def fits(self, columns: int, view: str) -> bool:
        """Whether a block can be of these points."""
        has_seconds = columns % self.points == 1 and columns > self.points
        return has_seconds and self.points >= WINDOW and view == self.view

    def project(self, block: AnyArray) -> AnyArray:
        """(n, D) every point with length 1, and the seconds of blocks that were scaled."""
        points = block[:, :-1].reshape(len(block) * self.points, -1)
        length = row_products(points, points) ** 0.5
        if isinstance(length, np.ndarray) and not length.all():
            raise DataError("Input X contains points of zeros, which have no direction")
        unit = (points / length[:, None]).reshape(len(block), -1)
        # extractors give points of length 1, and blocks that stand beside others are scaled to length 1
        scale = (row_products(block[:, :-1], block[:, :-1]) / self.points) ** 0.5
        seconds = block[:, -1] / scale
        return namespace(block).concatenate([unit, seconds[:, None]], 1)

    def distances(self, enrolled: Array, tested: Array) -> Array:
        """(n, 2) lower quartile of distances and that of the worst part, of pairs of unit points (n, points, d).

        A place is as far as its point is from the nearest of the other recording, in the worse of both directions.
        """
        products = enrolled @ tested.transpose(0, 2, 1)
        places = 1.0 - np.minimum(products.max(axis=2), products.max(axis=1))
        sums = np.cumsum(np.pad(places, ((0, 0), (1, 0))), axis=1)
        parts = (sums[:, WINDOW:] - sums[:, :-WINDOW]) / WINDOW
        both = [np.quantile(places, 0.25, axis=1), parts.max(axis=1)]
        return np.stack(both, axis=1).clip(SMALLEST)

    def fit(self, same: Sequence[Array], near: Sequence[Array]) -> PartMatcher:
        """By logistic regression on distances (n, 2) of the same and of nearly the same words, by domain.

        Domains weigh the same, and so do the two kinds.
        """
        parts = [*same, *near]
        truth = np.repeat([1] * len(same) + [0] * len(near), [len(part) for part in parts])
        shares = [1.0 / len(kind) / len(part) for kind in (same, near) for part in kind]
        weights = np.repeat(shares, [len(part) for part in parts])
        line = LogisticRegression(C=1e3, max_iter=1000)
        line.fit(np.log(np.concatenate(parts)), truth, sample_weight=1e3 * weights)
        best, worst = line.coef_[0].tolist()
        return replace(self, constant=float(line.intercept_[0]), best=best, worst=worst)

    def near(self, enrol: Profiles, test: Profiles, listed: IntArray | None, share: float) -> Near:
        """Of a list of trials, or of all: (profiles, tests).

        share : `PRIOR` or `ALONE`

        A profile of several phrases is compared by the one that fits best, or by the one that is claimed.
        """
        pairs = listed
        if pairs is None:
            pairs = np.argwhere(np.ones((len(enrol), len(test)), dtype=bool))
        templates, _ = self._points(to_host(enrol.y))
        # a test is one recording, or several of one phrase
        firsts = np.searchsorted(test.owner, np.arange(len(test)))
        totals = np.add.reduceat(to_host(test.y), firsts, axis=0)
        counts = np.add.reduceat(test.weights, firsts)
        tested, seconds = self._points(totals)
        # cells of a profile lie side by side: every trial is as many comparisons as its profile has cells
        bounds = np.searchsorted(enrol.owner, np.arange(len(enrol) + 1))
        lengths = np.diff(bounds)[pairs[:, 0]]
        starts = np.cumsum(lengths) - lengths
        trial = np.repeat(np.arange(len(pairs)), lengths)
        cells = np.arange(len(trial)) - starts[trial] + bounds[pairs[trial, 0]]
        llr = np.empty(len(trial))
        for start in range(0, len(trial), AT_ONCE):
            some = slice(start, start + AT_ONCE)
            both = self.distances(templates[cells[some]], tested[pairs[trial[some], 1]])
            llr[some] = self.constant + np.log(both) @ np.array([self.best, self.worst])
        claimed = self._is_claimed(enrol, test, cells, firsts[pairs[trial, 1]])
        # a claim that nothing enrolled has is compared with everything
        claimed |= ~np.logical_or.reduceat(claimed, starts)[trial]
        best = np.maximum.reduceat(np.where(claimed, llr, -np.inf), starts)
        longer = (seconds / counts)[pairs[:, 1]] - LEAST_S
        prior = share * np.clip(longer / LONGER_S, 0.0, 1.0)
        shape = (len(enrol), len(test)) if listed is None else (len(pairs),)
        return Near(self.view, prior.reshape(shape), best.reshape(shape))

    def _is_claimed(
        self, enrol: Profiles, test: Profiles, cells: IntArray, tested: IntArray
    ) -> BoolArray:
        """Whether a cell has the label of the test's; all do where one side has none."""
        own, other = enrol.labels.get(self.view), test.labels.get(self.view)
        if own is None or other is None:
            return np.ones(len(cells), dtype=bool)
        # the last name is that of cells without one
        names = np.append(own.names.astype(np.str_), "")[own.codes[cells]]
        claims = np.append(other.names.astype(np.str_), "")[other.codes[tested]]
        return np.asarray((names == claims) | (claims == ""))

    def _points(self, sums: Array) -> tuple[Array, Array]:
        """(n, points, d) of length 1, and (n,) seconds."""
        points = sums[:, :-1].reshape(len(sums), self.points, -1)
        lengths = np.linalg.norm(points, axis=2, keepdims=True)
        return points / np.maximum(lengths, SMALLEST), sums[:, -1]
