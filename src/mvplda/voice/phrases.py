"""Detection of near matches of a phrase: tests with a stretch that no enrolled recording contains.

A phrase with one word replaced changes the vector of the whole recording only a little. A block of points detects it:
a recording as a row of points in time, each a unit-length vector of the sounds there, and its seconds. Each point is
compared with the points of the other recording (docs/math.md, section 9.12): if all are near, on average, the phrase
is the same; if one stretch is far, it is a near match.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from .._typing import AnyArray, Array, BoolArray, IntArray
from ..backend import namespace, sum_rows, to_host
from ..exceptions import DataError
from ..scoring.pair_terms import row_products
from ..scoring.profiles import Profiles
from ..scoring.question import NearMatches

WINDOW = 4
"""Consecutive points that differ where a word was replaced. Chosen on held-out corpora, as are the next two."""

NEAR_MATCH_PRIOR = 0.3
"""Share of near matches among all other phrases. Large, so that few are accepted; owners hardly notice."""

MAX_PHRASE_LLR = 1.5
"""Limit of the LLR from the mean distance, for or against the same phrase: truncated recordings differ from others of
their phrase."""

ONE_WORD_S = 0.8
"""Seconds of a recording that is a single word, which cannot have one word replaced."""

RAMP_S = 0.4
"""Seconds beyond `ONE_WORD_S` over which the prior of a near match rises to `NEAR_MATCH_PRIOR`."""

MIN_DISTANCE = 1e-4
"""Smallest distance: below it recordings are copies."""

CHUNK_COMPARISONS = 2**12
"""Comparisons per chunk: limits the memory."""


class _Templates(NamedTuple):
    """Points (n, points, d), profile (n,) and phrase code (n,) of each enrolled template."""

    points: Array
    owner: IntArray
    phrase: IntArray


class _Tests(NamedTuple):
    """Points (n, points, d), seconds per recording (n,) and first cell (n,) of each test."""

    points: Array
    seconds: Array
    first_cells: IntArray


class _Comparisons(NamedTuple):
    """Trial and template of every comparison, sorted by trial, and index of the first comparison of each trial."""

    trial: IntArray
    template: IntArray
    starts: IntArray


@dataclass(frozen=True)
class PhraseMatcher:
    """LLRs of the same phrase against others and against near matches, from distances between points.

    view : view that the block models
    points : number of unit-length points per recording; the last column of the block has its seconds
    whole : (constant, weight): LLR of the same phrase against others = constant + weight log(mean distance)
    part : (constant, quartile, worst): LLR of the same phrase against near matches = constant + quartile
        log(lower quartile of distances) + worst log(distance of the worst window). The quartile measures how
        much two recordings of the same phrase differ under these conditions
    """

    view: str
    points: int
    whole: tuple[float, ...] = (0.0, -1.0)
    part: tuple[float, ...] = (0.0, 0.0, -1.0)

    def fits(self, columns: int, view: str) -> bool:
        """Return whether a block has the view, and the number of columns for these points and the duration."""
        has_seconds = columns % self.points == 1 and columns > self.points
        return has_seconds and self.points >= WINDOW and view == self.view

    def project(self, block: AnyArray) -> AnyArray:
        """Scale every point to length 1 and restore the seconds, (n, D)."""
        points = block[:, :-1].reshape(len(block) * self.points, -1)
        length = row_products(points, points) ** 0.5
        if isinstance(length, np.ndarray) and not length.all():
            raise DataError("Input X contains points of zeros, which have no direction")
        unit = (points / length[:, None]).reshape(len(block), -1)
        # points come with length 1, but a block among others may have been scaled to length 1 as a whole
        scale = (row_products(block[:, :-1], block[:, :-1]) / self.points) ** 0.5
        seconds = block[:, -1] / scale
        projected: AnyArray = namespace(block).concatenate([unit, seconds[:, None]], 1)
        return projected

    def distances(self, enrolled: Array, tested: Array) -> Array:
        """Return (n, 3) mean, lower quartile and worst window of the distances between pairs of recordings.

        The distance g_k of point k is that to the nearest point of the other recording, on average over the two
        directions: docs/math.md, section 9.12.
        """
        products = enrolled @ tested.transpose(0, 2, 1)
        distances = 1.0 - (products.max(axis=2) + products.max(axis=1)) / 2
        sums = np.cumsum(np.pad(distances, ((0, 0), (1, 0))), axis=1)
        windows = (sums[:, WINDOW:] - sums[:, :-WINDOW]) / WINDOW
        statistics = [
            distances.mean(axis=1),
            np.quantile(distances, 0.25, axis=1),
            windows.max(axis=1),
        ]
        return np.stack(statistics, axis=1).clip(MIN_DISTANCE)

    def fit(
        self, same: Sequence[Array], near_matches: Sequence[Array], other: Sequence[Array]
    ) -> PhraseMatcher:
        """Fit the LLRs by logistic regression.

        same, near_matches, other : per domain, (n, 3) distances between recordings of the same phrase, near matches and
            other phrases
        """
        phrase_weights = _fit_llr(
            [distances[:, :1] for distances in same], [distances[:, :1] for distances in other]
        )
        near_match_weights = _fit_llr(
            [distances[:, 1:] for distances in same],
            [distances[:, 1:] for distances in near_matches],
        )
        return replace(self, whole=phrase_weights, part=near_match_weights)

    def near_matches(self, enrol: Profiles, test: Profiles, listed: IntArray | None) -> NearMatches:
        """Return near-match evidence for the listed trials, (n,), or for all trials, (profiles, tests).

        If a profile has several phrases, the claimed phrase is compared; without a claim, the best-matching phrase.
        """
        pairs = listed
        if pairs is None:
            pairs = np.argwhere(np.ones((len(enrol), len(test)), dtype=bool))
        templates = self._templates(enrol)
        tests = self._tests(test)
        comparisons = _list_comparisons(templates.owner, len(enrol), pairs)
        test_of_comparison = pairs[comparisons.trial, 1]
        same, llr = self._llrs(
            templates.points, comparisons.template, tests.points, test_of_comparison
        )

        claimed = self._is_claimed(
            enrol,
            test,
            templates.phrase[comparisons.template],
            tests.first_cells[test_of_comparison],
        )
        # a claimed phrase that the profile does not have is compared with all of its phrases
        has_claimed = np.logical_or.reduceat(claimed, comparisons.starts)
        claimed |= ~has_claimed[comparisons.trial]
        candidates = np.where(claimed, np.stack([same, llr]), -np.inf)
        same, llr = np.maximum.reduceat(candidates, comparisons.starts, axis=1)

        # s limited to +-1.5 without a corner: docs/math.md, section 9.12
        same = np.logaddexp(-np.logaddexp(-same, -MAX_PHRASE_LLR), -MAX_PHRASE_LLR)
        beyond_one_word = tests.seconds[pairs[:, 1]] - ONE_WORD_S
        prior = NEAR_MATCH_PRIOR * np.clip(beyond_one_word / RAMP_S, 0.0, 1.0)
        shape = (len(enrol), len(test)) if listed is None else (len(pairs),)
        return NearMatches(self.view, prior.reshape(shape), llr.reshape(shape), same.reshape(shape))

    def _templates(self, enrol: Profiles) -> _Templates:
        """Return one template per profile and phrase: the sum of its recordings over all sessions."""
        labels = enrol.labels.get(self.view)
        codes = np.zeros_like(enrol.owner) if labels is None else labels.codes
        keys = np.stack([enrol.owner, codes])
        (owner, phrase), template = np.unique(keys, axis=1, return_inverse=True)
        sums = sum_rows(to_host(enrol.y), template.reshape(-1), len(owner))
        points, _ = self._points(sums)
        return _Templates(points, owner, phrase)

    def _tests(self, test: Profiles) -> _Tests:
        """Return the points of each test, summed over its recordings of the same phrase."""
        first_cells = np.searchsorted(test.owner, np.arange(len(test)))
        sums = np.add.reduceat(to_host(test.y), first_cells, axis=0)
        counts = np.add.reduceat(test.weights, first_cells)
        points, seconds = self._points(sums)
        return _Tests(points, seconds / counts, first_cells)

    def _llrs(
        self, templates: Array, template_rows: IntArray, tests: Array, test_rows: IntArray
    ) -> tuple[Array, Array]:
        """Return two LLRs per comparison, (n,): same phrase against other phrases (s), and against near matches (r)."""
        same = np.empty(len(template_rows))
        llr = np.empty(len(template_rows))
        for start in range(0, len(template_rows), CHUNK_COMPARISONS):
            chunk = slice(start, start + CHUNK_COMPARISONS)
            distances = self.distances(templates[template_rows[chunk]], tests[test_rows[chunk]])
            logs = np.column_stack([np.ones(len(distances)), np.log(distances)])
            # s = a0 + b0 log(mean); r = a + b log(quartile) + c log(worst window)
            same[chunk] = logs[:, :2] @ np.array(self.whole)
            llr[chunk] = logs[:, [0, 2, 3]] @ np.array(self.part)
        return same, llr

    def _is_claimed(
        self, enrol: Profiles, test: Profiles, template_codes: IntArray, test_cells: IntArray
    ) -> BoolArray:
        """Return a mask of the templates with the phrase claimed by the test; True if either side has no label."""
        enrolled, tested = enrol.labels.get(self.view), test.labels.get(self.view)
        if enrolled is None or tested is None:
            return np.ones(len(template_codes), dtype=bool)
        # code -1, no label, selects the appended empty name
        names = np.append(enrolled.names.astype(np.str_), "")[template_codes]
        claims = np.append(tested.names.astype(np.str_), "")[tested.codes[test_cells]]
        return np.asarray((names == claims) | (claims == ""))

    def _points(self, sums: Array) -> tuple[Array, Array]:
        """Return unit-length points (n, points, d) and total seconds (n,) from summed blocks."""
        points = sums[:, :-1].reshape(len(sums), self.points, -1)
        lengths = np.linalg.norm(points, axis=2, keepdims=True)
        return points / np.maximum(lengths, MIN_DISTANCE), sums[:, -1]


def _list_comparisons(owner: IntArray, n_profiles: int, pairs: IntArray) -> _Comparisons:
    """Return the comparisons of each trial: its test with every template of its profile."""
    # the templates of a profile are consecutive
    bounds = np.searchsorted(owner, np.arange(n_profiles + 1))
    counts = np.diff(bounds)[pairs[:, 0]]
    starts = np.cumsum(counts) - counts
    trial = np.repeat(np.arange(len(pairs)), counts)
    template = np.arange(len(trial)) - starts[trial] + bounds[pairs[trial, 0]]
    return _Comparisons(trial, template, starts)


def _fit_llr(positive: Sequence[Array], negative: Sequence[Array]) -> tuple[float, ...]:
    """Fit constant and weights of an LLR that is linear in log distances; give domains and classes equal weight."""
    # slow to import, and only a fit needs it
    from sklearn.linear_model import LogisticRegression

    samples = [*positive, *negative]
    sizes = [len(sample) for sample in samples]
    is_positive = np.repeat([1] * len(positive) + [0] * len(negative), sizes)
    shares = [1.0 / len(group) / len(sample) for group in (positive, negative) for sample in group]
    regression = LogisticRegression(C=1e3, max_iter=1000)
    weights = 1e3 * np.repeat(shares, sizes)
    regression.fit(np.log(np.concatenate(samples)), is_positive, sample_weight=weights)
    return (float(regression.intercept_[0]), *regression.coef_[0].tolist())
