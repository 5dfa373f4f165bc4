"""Evidence in as many numbers as vectors have, for models with more latents than columns and one known view.

What `terms` does for any labels takes the latents of all views, one matrix for every training class that a test may
be of. With priors of full rank those are several times as many numbers as a vector has. Where every profile is of one
cell, all of it can be said of the whitened means of the two sides (docs/math.md, section 9.7).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from .._typing import Array, IntArray
from .evidence import log_sum
from .question import Hypothesis
from .terms import Comparison


def can_be_wide(comparison: Comparison) -> bool:
    """Whether one view is known, in the enrolments alone, and every profile is one cell of NumPy numbers."""
    sides = comparison.enrol.profiles, comparison.test.profiles
    return (
        len(comparison.posteriors) == 1
        and not comparison.heard
        and comparison.state.space.whitened is not None
        and not sides[1].labels
        and all(isinstance(side.y, np.ndarray) and len(side.owner) == len(side) for side in sides)
    )


def wide_evidence(
    comparison: Comparison, hypotheses: Sequence[Hypothesis], *, paired: bool = False
) -> dict[Hypothesis, Array]:
    """log p(e, t | h) - log p(e, t | nothing shared) of all pairs, (profiles, tests), or row by row where paired.

    A test of which the known class is not shared is of one of the other training classes or of none, each as likely.
    """
    (view, known), space = next(iter(comparison.posteriors.items())), comparison.state.space
    W: Array = space.whitened
    ends = np.cumsum([0, *comparison.ratio.views.values()])
    parts = {
        v: W[:, a:b] for v, a, b in zip(comparison.ratio.views, ends[:-1], ends[1:], strict=True)
    }
    spread = {v: part @ part.T for v, part in parts.items()}
    rest = np.sum([s for v, s in spread.items() if v != view], axis=0)
    means = np.vstack(
        [known.means @ parts[view].T, np.zeros(len(W))]
    )  # the last, number -1, is a new class
    alike = np.append(known.alike, -1)

    @cache
    def of_class(c: int) -> Array:
        """Covariance of the known view's effect."""
        return (
            spread[view]
            if c < 0
            else (parts[view] @ known.roots[c]) @ (parts[view] @ known.roots[c]).T
        )

    def sides(side: Any) -> tuple[Array, Array]:
        return (side.y @ space.unfold) / side.weights[:, None], side.weights

    (E, n_enrol), (T, n_test) = sides(comparison.enrol.profiles), sides(comparison.test.profiles)
    names, naming = comparison.enrol.names[view], comparison.namings[view]
    claimed = np.asarray([naming.seen(int(name)) for name in names])
    found = {h: np.zeros((len(E),) if paired else (len(E), len(T))) for h in hypotheses}
    for n_t in np.unique(n_test):
        tests = np.flatnonzero(n_test == n_t)
        t = _Tests(T[tests], n_t, rest, of_class, means, alike)
        for n_e, c in np.unique(np.stack([n_enrol, claimed.astype(float)]), axis=1).T:
            rows, own = np.flatnonzero((n_enrol == n_e) & (claimed == c)), int(c)
            where: Any = np.ix_(rows, tests)
            at: Any = slice(None)
            if paired:
                where = np.intersect1d(rows, tests)
                rows, at = where, np.searchsorted(tests, where)
            e = E[rows] - means[own]
            others = [j for j in range(len(known.means)) if j != own] if own >= 0 else []
            nothing = log_sum([t.alone(j)[at] for j in (-1, *others)])
            for h in hypotheses:
                shared = [s for v, s in spread.items() if v != view and set(v.split(":")) <= set(h)]
                R = np.sum(shared, axis=0) if shared else np.zeros_like(rest)
                if view in h:
                    total = t.alone(own)[at] + t.together(
                        e, n_e, own, own, R + of_class(alike[own]), h, at, paired
                    )
                    found[h][where] = total + np.log(1 + len(others)) - nothing
                elif shared:
                    terms = [
                        t.alone(j)[at] + t.together(e, n_e, own, j, R, h, at, paired)
                        for j in (-1, *others)
                    ]
                    found[h][where] = log_sum(terms) - nothing
    return found


class _Tests:
    """Whitened means of tests of one count, as every class that they may be of."""

    def __init__(
        self,
        T: Array,
        n: float,
        rest: Array,
        of_class: Callable[[int], Array],
        means: Array,
        alike: IntArray,
    ) -> None:
        self.T, self.n, self.rest, self.of_class, self.means, self.alike = (
            T,
            n,
            rest,
            of_class,
            means,
            alike,
        )
        self._alone: dict[int, tuple[Any, Array, Array, float]] = {}
        self._joint: dict[Any, tuple[Array, Array, Array, Array, Array, Array, float]] = {}

    def _covariance(self, c: int, n: float) -> Array:
        return np.asarray(
            self.rest + self.of_class(int(self.alike[c])) + np.eye(len(self.rest)) / n
        )

    def _form(self, matrix: Array, j: int, times: Array, own: Array) -> Array:
        """(t - m)' matrix (t - m), of times = T matrix and own = t' matrix t."""
        m = self.means[j]
        return np.asarray(own - 2 * times @ m + m @ matrix @ m)

    def alone(self, j: int) -> Array:
        """(tests,) log density as class j, up to a constant that all classes share."""
        key = int(self.alike[j])
        if key not in self._alone:
            factor = cho_factor(self._covariance(j, self.n), lower=True)
            inverse = cho_solve(factor, np.eye(len(self.rest)))
            times = self.T @ inverse
            own = np.einsum("td,td->t", times, self.T)
            self._alone[key] = inverse, times, own, -float(np.log(np.diag(factor[0])).sum())
        inverse, times, own, constant = self._alone[key]
        return constant - 0.5 * self._form(inverse, j, times, own)

    def together(
        self, e: Array, n_e: float, c: int, j: int, R: Array, h: Hypothesis, at: Any, paired: bool
    ) -> Array:
        """What e, of class c, and the tests as class j say by having R in common; e is about its mean."""
        key = float(n_e), int(self.alike[c]), int(self.alike[j]), h
        if key not in self._joint:
            alone_e, alone_t = (
                self._covariance(c, n_e),
                cho_factor(self._covariance(j, self.n), lower=True),
            )
            gain = cho_solve(alone_t, R)
            joint = cho_factor(alone_e - R @ gain, lower=True)
            cross = cho_solve(joint, gain.T)  # (V12)
            factor = cho_factor(alone_e, lower=True)
            row = (cho_solve(factor, np.eye(len(R))) - cho_solve(joint, np.eye(len(R)))) / 2
            column = -gain @ cross / 2
            constant = float(np.log(np.diag(factor[0])).sum() - np.log(np.diag(joint[0])).sum())
            times = self.T @ column
            own = np.einsum("td,td->t", times, self.T)
            self._joint[key] = row, column, cross, self.T @ cross.T, times, own, constant
        row, column, cross, right, times, own, constant = self._joint[key]
        ours = np.einsum("ed,ed->e", e @ row, e) + constant - e @ (cross @ self.means[j])
        theirs = self._form(column, j, times, own)[at]
        if paired:
            return np.asarray(ours + theirs + np.einsum("ed,ed->e", e, right[at]))
        return np.asarray(ours[:, None] + theirs + e @ right.T)
