"""Words, part by part: is every part of a test found in what was enrolled?

One word of a pass-phrase that is replaced leaves most of it as it was, so that a vector of the whole says little about
it. A block of points tells it: a recording as a row of points in time, each a vector of the sounds there, and its
seconds. Every point of one recording should be like some point of the other (docs/math.md, section 9.12): where all
are, on average, the words are the same; where one stretch is not, they are nearly the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from sklearn.linear_model import LogisticRegression

from .._typing import AnyArray, Array, BoolArray, IntArray
from ..backend import namespace, sum_rows, to_host
from ..exceptions import DataError
from ..scoring.pair_terms import row_products
from ..scoring.profiles import Profiles
from ..scoring.question import NearMatches

WINDOW = 4
"""Points in a row that are missing where a word was replaced. This and the two below were chosen on corpora that were
left out."""

NEAR_MATCH_PRIOR = 0.3
"""Share of nearly the right words among all others. Large, so that few of them pass; owners hardly notice."""

MAX_PHRASE_LLR = 1.5
"""What the mean distance may say at most of the same words against others, for or against: recordings that were cut off
are unlike others of the same words. Chosen on corpora that were left out."""

LEAST_S, LONGER_S = 0.8, 0.4
"""A recording up to the first is one word, of which no part is replaced; so much longer, the share is as above."""

MIN_DISTANCE = 1e-4
"""Distances below this are of copies."""

CHUNK_COMPARISONS = 2**12


@dataclass(frozen=True)
class PhraseMatcher:
    """Compares points, and tells the same words from others, and from nearly the same.

    view : what the block is about
    points : of length 1, in a recording; the last column of the block has its seconds
    whole : (constant, factor): LLR of the same words against others = constant + factor log(mean distance)
    part : (constant, best, worst): LLR of the same words against nearly the same = constant + best log(lower quartile
        of distances) + worst log(distance of the worst part). The best places tell how alike two recordings of the same
        words are here
    """

    view: str
    points: int
    whole: tuple[float, ...] = (0.0, -1.0)
    part: tuple[float, ...] = (0.0, 0.0, -1.0)

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
        """(n, 3) mean and lower quartile of distances, and that of the worst part, of pairs of points (n, points, d).

        A place is as far as its point is from the nearest of the other recording, in the worse of both directions.
        """
        products = enrolled @ tested.transpose(0, 2, 1)
        places = 1.0 - np.minimum(products.max(axis=2), products.max(axis=1))
        sums = np.cumsum(np.pad(places, ((0, 0), (1, 0))), axis=1)
        parts = (sums[:, WINDOW:] - sums[:, :-WINDOW]) / WINDOW
        found = [places.mean(axis=1), np.quantile(places, 0.25, axis=1), parts.max(axis=1)]
        return np.stack(found, axis=1).clip(MIN_DISTANCE)

    def fit(
        self, same: Sequence[Array], near_matches: Sequence[Array], other: Sequence[Array]
    ) -> PhraseMatcher:
        """By logistic regression on distances (n, 3) of the same, nearly the same and other words, by domain."""
        whole = _line([one[:, :1] for one in same], [one[:, :1] for one in other])
        part = _line([one[:, 1:] for one in same], [one[:, 1:] for one in near_matches])
        return replace(self, whole=whole, part=part)

    def near_matches(self, enrol: Profiles, test: Profiles, listed: IntArray | None) -> NearMatches:
        """Of a list of trials, or of all: (profiles, tests).

        A profile of several phrases is compared by the one that fits best, or by the one that is claimed.
        """
        pairs = listed
        if pairs is None:
            pairs = np.argwhere(np.ones((len(enrol), len(test)), dtype=bool))
        # takes of one phrase are one template, whatever their sessions
        own = enrol.labels.get(self.view)
        codes = np.zeros_like(enrol.owner) if own is None else own.codes
        both = np.stack([enrol.owner, codes])
        (owner, phrase), template = np.unique(both, axis=1, return_inverse=True)
        sums = sum_rows(to_host(enrol.y), template.reshape(-1), len(owner))
        templates, _ = self._points(sums)
        # a test is one recording, or several of one phrase
        firsts = np.searchsorted(test.owner, np.arange(len(test)))
        totals = np.add.reduceat(to_host(test.y), firsts, axis=0)
        counts = np.add.reduceat(test.weights, firsts)
        tested, seconds = self._points(totals)
        # templates of a profile lie side by side: every trial is as many comparisons as its profile has
        bounds = np.searchsorted(owner, np.arange(len(enrol) + 1))
        lengths = np.diff(bounds)[pairs[:, 0]]
        starts = np.cumsum(lengths) - lengths
        trial = np.repeat(np.arange(len(pairs)), lengths)
        cells = np.arange(len(trial)) - starts[trial] + bounds[pairs[trial, 0]]
        whole = np.empty(len(trial))
        part = np.empty(len(trial))
        for start in range(0, len(trial), CHUNK_COMPARISONS):
            some = slice(start, start + CHUNK_COMPARISONS)
            found = self.distances(templates[cells[some]], tested[pairs[trial[some], 1]])
            logs = np.column_stack([np.ones(len(found)), np.log(found)])
            whole[some] = logs[:, :2] @ np.array(self.whole)
            part[some] = logs[:, [0, 2, 3]] @ np.array(self.part)
        claimed = self._is_claimed(enrol, test, phrase[cells], firsts[pairs[trial, 1]])
        # a claim that nothing enrolled has is compared with everything
        claimed |= ~np.logical_or.reduceat(claimed, starts)[trial]
        told = np.where(claimed, np.stack([whole, part]), -np.inf)
        same, llr = np.maximum.reduceat(told, starts, axis=1)
        same = np.logaddexp(-np.logaddexp(-same, -MAX_PHRASE_LLR), -MAX_PHRASE_LLR)
        longer = (seconds / counts)[pairs[:, 1]] - LEAST_S
        prior = NEAR_MATCH_PRIOR * np.clip(longer / LONGER_S, 0.0, 1.0)
        shape = (len(enrol), len(test)) if listed is None else (len(pairs),)
        return NearMatches(self.view, prior.reshape(shape), llr.reshape(shape), same.reshape(shape))

    def _is_claimed(
        self, enrol: Profiles, test: Profiles, codes: IntArray, tested: IntArray
    ) -> BoolArray:
        """Whether a template has the label of the test's; all do where one side has none."""
        own, other = enrol.labels.get(self.view), test.labels.get(self.view)
        if own is None or other is None:
            return np.ones(len(codes), dtype=bool)
        # the last name is that of templates without one
        names = np.append(own.names.astype(np.str_), "")[codes]
        claims = np.append(other.names.astype(np.str_), "")[other.codes[tested]]
        return np.asarray((names == claims) | (claims == ""))

    def _points(self, sums: Array) -> tuple[Array, Array]:
        """(n, points, d) of length 1, and (n,) seconds."""
        points = sums[:, :-1].reshape(len(sums), self.points, -1)
        lengths = np.linalg.norm(points, axis=2, keepdims=True)
        return points / np.maximum(lengths, MIN_DISTANCE), sums[:, -1]


def _line(same: Sequence[Array], others: Sequence[Array]) -> tuple[float, ...]:
    """Constant and factors of an LLR of logarithms; domains weigh the same, and so do the two kinds."""
    parts = [*same, *others]
    sizes = [len(part) for part in parts]
    truth = np.repeat([1] * len(same) + [0] * len(others), sizes)
    shares = [1.0 / len(kind) / len(part) for kind in (same, others) for part in kind]
    line = LogisticRegression(C=1e3, max_iter=1000)
    weights = 1e3 * np.repeat(shares, sizes)
    line.fit(np.log(np.concatenate(parts)), truth, sample_weight=weights)
    return (float(line.intercept_[0]), *line.coef_[0].tolist())
