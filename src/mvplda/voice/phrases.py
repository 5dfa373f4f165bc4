"""Detection of near matches of a phrase: tests in which one word of the enrolled phrase was replaced.

A replaced word changes the vector of the whole recording only a little. Therefore another extractor represents a
recording by points in time and its duration. A point is a unit-length vector of the sounds at that time. Each point is
compared with the points of the other recording (docs/math.md, section 9.12). If their mean distance is small, the
phrase is the same; if consecutive points are far from all points of the other recording, it is a near match.
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
"""Number of consecutive points over which distances are averaged to find a replaced word. Chosen on held-out corpora,
as are the next two constants."""

NEAR_MATCH_PRIOR = 0.3
"""Prior probability that a test with another phrase is a near match. It is large, so that few near matches are
accepted; owners are rejected hardly more often."""

MAX_PHRASE_LLR = 1.5
"""Limit of the absolute LLR from the mean distance. It prevents rejections of truncated recordings, which differ from
other recordings of their phrase."""

ONE_WORD_S = 0.8
"""Seconds up to which a recording counts as a single word, so that near matches are impossible."""

RAMP_S = 0.4
"""Seconds beyond `ONE_WORD_S` over which the prior probability of a near match rises to `NEAR_MATCH_PRIOR`."""

MIN_SECONDS = 0.05
"""Lower limit in seconds of the durations whose ratio is computed."""

MIN_DISTANCE = 1e-4
"""Lower limit of distances before the logarithm is taken; copies of a recording have smaller ones."""

CHUNK_COMPARISONS = 2**12
"""Number of comparisons per chunk, which limits the memory."""


class _Templates(NamedTuple):
    """Enrolled templates, one per profile and phrase.

    points : (n, points, d) points in time, each of d columns
    seconds : (n,) mean seconds of each template's recordings
    owner : (n,) number of each template's profile
    phrase : (n,) code of each template's phrase
    """

    points: Array
    seconds: Array
    owner: IntArray
    phrase: IntArray


class _Tests(NamedTuple):
    """Means over the recordings of each test.

    points : (n, points, d) points in time, each of d columns
    seconds : (n,) mean seconds per recording
    first_cells : (n,) index of each test's first row in `y` and in the labels of `Profiles`
    """

    points: Array
    seconds: Array
    first_cells: IntArray


class _Comparisons(NamedTuple):
    """Comparisons of tests with templates: one per trial and template of its profile, sorted by trial.

    trial, template : (n,) index of each comparison's trial and template
    starts : (trials,) index of each trial's first comparison
    """

    trial: IntArray
    template: IntArray
    starts: IntArray


@dataclass(frozen=True)
class PhraseMatcher:
    """Comparison of phrases by the distances between points in time, with LLRs for other phrases and near matches.

    Parameters
    ----------
    view : view that the points describe, such as "phrase"
    points : number of unit-length points per recording; the column after them has the recording's seconds
    whole : constant a and weight b of the LLR of the same phrase against other phrases: a + b log(mean distance)
    part : constant a and weights b, c, d, e of the LLR of the same phrase against near matches:
        a + b log(lower quartile of distances) + c log(largest mean distance of four consecutive points) +
        d log(mean distance of points at the same time) + e |log(ratio of the seconds)|. The quartile measures how much
        two recordings of the same phrase differ under these conditions. Files of earlier versions lack d and e
    """

    view: str
    points: int
    whole: tuple[float, ...] = (0.0, -1.0)
    part: tuple[float, ...] = (0.0, 0.0, -1.0, 0.0, 0.0)

    def fits(self, columns: int, view: str) -> bool:
        """Return whether a number of columns and a view suit this matcher.

        The columns must be those of at least `WINDOW` points of equal length and one for the seconds.
        """
        has_seconds = columns % self.points == 1 and columns > self.points
        return has_seconds and self.points >= WINDOW and view == self.view

    def project(self, block: AnyArray) -> AnyArray:
        """Scale every point to length 1, and restore the seconds if the vector was scaled before.

        Points of extractors have length 1. If the whole vector was scaled to length 1, the present
        length of its points is the scale by which the seconds are divided.

        block : (n, D) points and seconds of n recordings, scaled or not

        Returns
        -------
        (n, D) points of length 1 and seconds

        Raises
        ------
        DataError
            A point is zero.
        """
        points = block[:, :-1].reshape(len(block) * self.points, -1)
        length = row_products(points, points) ** 0.5
        if isinstance(length, np.ndarray) and not length.all():
            raise DataError(
                "Input X contains points of zeros, which have no direction: extract the vectors from the recordings "
                "again"
            )
        unit = (points / length[:, None]).reshape(len(block), -1)
        # extractors return points of length 1, but with their seconds they may have been scaled to length 1 together
        scale = (row_products(block[:, :-1], block[:, :-1]) / self.points) ** 0.5
        seconds = block[:, -1] / scale
        projected: AnyArray = namespace(block).concatenate([unit, seconds[:, None]], 1)
        return projected

    def distances(
        self, enrolled: Array, tested: Array, enrolled_seconds: Array, tested_seconds: Array
    ) -> Array:
        """Summarise the distances between the points of pairs of recordings.

        The distance of a point is 1 minus its cosine with the nearest point of the other recording. At each position it
        is averaged over both recordings (docs/math.md, section 9.12).

        Parameters
        ----------
        enrolled, tested : (n, points, d) unit-length points of the n pairs
        enrolled_seconds, tested_seconds : (n,) seconds of both sides

        Returns
        -------
        (n, 5) mean, lower quartile, largest mean over `WINDOW` consecutive points, mean distance of points at the same
            time, and ratio of the longer to the shorter duration
        """
        products = enrolled @ tested.transpose(0, 2, 1)
        distances = 1.0 - (products.max(axis=2) + products.max(axis=1)) / 2
        sums = np.cumsum(np.pad(distances, ((0, 0), (1, 0))), axis=1)
        windows = (sums[:, WINDOW:] - sums[:, :-WINDOW]) / WINDOW
        statistics = [
            distances.mean(axis=1),
            np.quantile(distances, 0.25, axis=1),
            windows.max(axis=1),
            1.0 - np.trace(products, axis1=1, axis2=2) / self.points,
        ]
        log_ratio = np.log(
            np.maximum(tested_seconds, MIN_SECONDS) / np.maximum(enrolled_seconds, MIN_SECONDS)
        )
        clipped = np.stack(statistics, axis=1).clip(MIN_DISTANCE)
        return np.column_stack([clipped, np.exp(np.abs(log_ratio))])

    def fit(
        self, same: Sequence[Array], near_matches: Sequence[Array], other: Sequence[Array]
    ) -> PhraseMatcher:
        """Return a copy of this matcher with fitted constants and weights (`whole` and `part`).

        Both LLRs are logistic regressions.

        Parameters
        ----------
        same, near_matches, other : results of `distances`, one array (n, 5) per domain: for pairs
            of recordings with the same phrase, for near matches, and for pairs of different phrases
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
        """Compare the phrases of enrolments and tests.

        If a profile has several phrases, the phrase that the test claims is compared, or else the best-matching one.

        Parameters
        ----------
        enrol, test : profiles of the two sides
        listed : (n, 2) numbers of profile and test of each trial; None: all pairs

        Returns
        -------
        per trial, (n,) or (profiles, tests): prior probability of a near match, and the LLRs of the
        same phrase against near matches (`llr`) and against other phrases (`same`)
        """
        pairs = listed
        if pairs is None:
            pairs = np.argwhere(np.ones((len(enrol), len(test)), dtype=bool))
        templates = self._templates(enrol)
        tests = self._tests(test)
        comparisons = _list_comparisons(templates.owner, len(enrol), pairs)
        test_of_comparison = pairs[comparisons.trial, 1]
        same, llr = self._llrs(templates, comparisons.template, tests, test_of_comparison)

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

        # smooth limit to +-MAX_PHRASE_LLR: docs/math.md, section 9.12
        same = np.logaddexp(-np.logaddexp(-same, -MAX_PHRASE_LLR), -MAX_PHRASE_LLR)
        beyond_one_word = tests.seconds[pairs[:, 1]] - ONE_WORD_S
        prior = NEAR_MATCH_PRIOR * np.clip(beyond_one_word / RAMP_S, 0.0, 1.0)
        shape = (len(enrol), len(test)) if listed is None else (len(pairs),)
        return NearMatches(self.view, prior.reshape(shape), llr.reshape(shape), same.reshape(shape))

    def _templates(self, enrol: Profiles) -> _Templates:
        """Average the points of all recordings of each profile and phrase: one template per pair.

        The points of a template have length 1.
        """
        labels = enrol.labels.get(self.view)
        codes = np.zeros_like(enrol.owner) if labels is None else labels.codes
        keys = np.stack([enrol.owner, codes])
        (owner, phrase), template = np.unique(keys, axis=1, return_inverse=True)
        sums = sum_rows(to_host(enrol.y), template.reshape(-1), len(owner))
        counts = np.bincount(template.reshape(-1), enrol.weights)
        points, seconds = self._points(sums)
        return _Templates(points, seconds / counts, owner, phrase)

    def _tests(self, test: Profiles) -> _Tests:
        """Return the points and seconds of each test, both averaged over all its recordings."""
        first_cells = np.searchsorted(test.owner, np.arange(len(test)))
        sums = np.add.reduceat(to_host(test.y), first_cells, axis=0)
        counts = np.add.reduceat(test.weights, first_cells)
        points, seconds = self._points(sums)
        return _Tests(points, seconds / counts, first_cells)

    def _llrs(
        self, templates: _Templates, template_rows: IntArray, tests: _Tests, test_rows: IntArray
    ) -> tuple[Array, Array]:
        """Return two LLRs per comparison, (n,) each: the same phrase against other phrases, and against near matches.

        templates, tests : all templates and all tests
        template_rows, test_rows : (n,) index of the template and of the test in each comparison
        """
        same = np.empty(len(template_rows))
        llr = np.empty(len(template_rows))
        for start in range(0, len(template_rows), CHUNK_COMPARISONS):
            chunk = slice(start, start + CHUNK_COMPARISONS)
            enrolled, tested = template_rows[chunk], test_rows[chunk]
            distances = self.distances(
                templates.points[enrolled],
                tests.points[tested],
                templates.seconds[enrolled],
                tests.seconds[tested],
            )
            logs = np.column_stack([np.ones(len(distances)), np.log(distances)])
            # columns of logs: 1, log(mean), log(quartile), log(largest window), log(same time), |log(durations)|
            same[chunk] = logs[:, :2] @ np.array(self.whole)
            llr[chunk] = logs[:, [0, 2, 3, 4, 5][: len(self.part)]] @ np.array(self.part)
        return same, llr

    def _is_claimed(
        self, enrol: Profiles, test: Profiles, template_codes: IntArray, test_cells: IntArray
    ) -> BoolArray:
        """Return a (n,) mask of the comparisons whose template has the phrase that the test claims.

        The mask is True where the test claims no phrase, and everywhere if a side has no labels.

        template_codes : (n,) code of each comparison's phrase in `enrol`
        test_cells : (n,) first row of each comparison's test in `test`
        """
        enrolled, tested = enrol.labels.get(self.view), test.labels.get(self.view)
        if enrolled is None or tested is None:
            return np.ones(len(template_codes), dtype=bool)
        # code -1, no label, selects the appended empty name
        names = np.append(enrolled.names.astype(np.str_), "")[template_codes]
        claims = np.append(tested.names.astype(np.str_), "")[tested.codes[test_cells]]
        return np.asarray((names == claims) | (claims == ""))

    def _points(self, sums: Array) -> tuple[Array, Array]:
        """Divide sums of vectors into points (n, points, d), scaled to length 1, and seconds (n,).

        sums : (n, D) sums of the columns (points and seconds) over recordings
        """
        points = sums[:, :-1].reshape(len(sums), self.points, -1)
        lengths = np.linalg.norm(points, axis=2, keepdims=True)
        return points / np.maximum(lengths, MIN_DISTANCE), sums[:, -1]


def _list_comparisons(owner: IntArray, n_profiles: int, pairs: IntArray) -> _Comparisons:
    """Return the comparisons of each trial's test with every template of its profile.

    owner : (templates,) number of each template's profile, ascending
    pairs : (trials, 2) numbers of profile and test of each trial
    """
    # the templates of a profile are consecutive
    bounds = np.searchsorted(owner, np.arange(n_profiles + 1))
    counts = np.diff(bounds)[pairs[:, 0]]
    starts = np.cumsum(counts) - counts
    trial = np.repeat(np.arange(len(pairs)), counts)
    template = np.arange(len(trial)) - starts[trial] + bounds[pairs[trial, 0]]
    return _Comparisons(trial, template, starts)


def _fit_llr(positive: Sequence[Array], negative: Sequence[Array]) -> tuple[float, ...]:
    """Fit the constant and the weights of an LLR that is linear in the logarithms of k distances.

    The two kinds of pairs have the same influence, and so have the domains of each kind.

    positive, negative : (n, k) distances of pairs of recordings, one array per domain; pairs with
        the same phrase are positive

    Returns
    -------
    the constant, followed by k weights
    """
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
