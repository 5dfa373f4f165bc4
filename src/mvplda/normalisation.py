"""Score normalisation against a cohort: Z, T, S and adaptive S norm, for any scorer.

A raw score is shifted and scaled by what its two sides score against a *cohort* of
impostors. The statistics come from the cohort alone. Other trials are never looked at, so
that a trial's score does not depend on which trials stand in the list beside it.
"""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ._typing import Array, IntArray
from .exceptions import DataError, LabelError, ParameterError

__all__ = ["CohortStatistics", "ScoreNormaliser"]

NormKind = Literal["z", "t", "s", "as"]
BLOCK_SCORES = 2**22
"""Scores against the cohort that are held at a time."""


class CohortStatistics(NamedTuple):
    """Mean and standard deviation of cohort scores: (groups, sides), one group of the cohort a label."""

    mean: Array
    deviation: Array


class ScoreNormaliser(BaseEstimator):
    """Normalised scores of a scorer: a function ``f(enrol, test)`` or an object with ``llr(enrol, test)``.

    With m and d the mean and the standard deviation (over n, not n - 1) of cohort scores:

    - ``"z"``: (s - m_e) / d_e, the profile against the cohort as tests;
    - ``"t"``: (s - m_t) / d_t, the cohort as profiles against the test;
    - ``"s"``: the mean of both;
    - ``"as"``: the same, of the `top` highest cohort scores of each side.

    The result is no likelihood ratio any more: calibrate it.

    Parameters
    ----------
    kind : {"z", "t", "s", "as"}
    top : int
        Cohort scores that ``"as"`` keeps of each side; all, where the cohort has fewer.
    strict : bool
        Refuse a cohort that holds vectors of the trials.

    Attributes
    ----------
    cohort_ : what the scorer takes as profiles and as tests
    groups_ : names of the cohort's labels, or None where the cohort is not matched

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda.normalisation import ScoreNormaliser
    >>> rng = np.random.default_rng(0)
    >>> cohort, enrol, test = (rng.normal(size=(n, 5)) for n in (100, 3, 4))
    >>> ScoreNormaliser("as", top=20).fit(lambda a, b: a @ b.T, cohort).llr(enrol, test).shape
    (3, 4)
    """

    def __init__(self, kind: NormKind = "s", top: int = 200, strict: bool = True) -> None:
        self.kind = kind
        self.top = top
        self.strict = strict

    def fit(self, scorer: Any, cohort: Any, labels: Any = None) -> Self:
        """Take a scorer and a cohort.

        Parameters
        ----------
        scorer : function of two sides that gives a matrix, or object with ``llr``
        cohort : (C, D) vectors, or profiles of the scorer: impostors to everyone
        labels : (C,) labels, phrases say, of the cohort; then only the cohort of a side's own
            label is used for it
        """
        if self.kind not in ("z", "t", "s", "as"):
            raise ParameterError(f"kind is one of ['z', 't', 's', 'as']; got {self.kind!r}")
        if self.kind == "as" and self.top < 2:
            raise ParameterError(f"top is at least 2; got {self.top}")
        if cohort is None:
            raise DataError(
                "there is no cohort: statistics are never taken from the trials themselves. "
                "Give vectors of speakers who are not in the trials, training speakers for example"
            )
        self.scorer_: Callable[..., Any] = scorer.llr if hasattr(scorer, "llr") else scorer
        if not callable(self.scorer_):
            raise ParameterError(f"the scorer is a function or has llr(enrol, test); got {type(scorer).__name__}")
        self._enrol = getattr(scorer, "enrol", None)
        self.cohort_ = cohort if hasattr(cohort, "ids") or isinstance(cohort, dict) else np.asarray(cohort)
        n = len(self.cohort_) if not isinstance(self.cohort_, dict) else _length(self.cohort_)
        self.groups_: NDArray[Any] | None = None
        groups = np.zeros(n, dtype=np.int64)
        if labels is not None:
            names = np.asarray(labels)
            if names.shape != (n,):
                raise LabelError(f"the cohort has {n} rows and labels of shape {names.shape}: give one label a row")
            self.groups_, groups = np.unique(names, return_inverse=True)
        self._members = [np.flatnonzero(groups == g) for g in range(int(groups.max(initial=0)) + 1)]
        smallest = int(np.argmin([len(m) for m in self._members]))
        if len(self._members[smallest]) < 2:
            what = "the cohort" if self.groups_ is None else f"the cohort of label {self.groups_.tolist()[smallest]!r}"
            raise DataError(f"{what} has {len(self._members[smallest])} row(s); a standard deviation needs at least 2")
        return self

    def llr(self, enrol: Any, test: Any, *, enrol_labels: Any = None, test_labels: Any = None, **options: Any) -> Array:
        """Score all pairs and normalise; `options` go to the scorer."""
        check_is_fitted(self, "cohort_")
        if "known" in options:
            raise ParameterError("known= names a class of every profile, which a cohort does not have: leave it out")
        scores = self.scorer_(enrol, test, **options)
        return self.normalise(scores, enrol, test, enrol_labels=enrol_labels, test_labels=test_labels, **options)

    def normalise(
        self, scores: Any, enrol: Any, test: Any, *, enrol_labels: Any = None, test_labels: Any = None, **options: Any
    ) -> Array:
        """Normalise the scores (profiles, tests) of these sides.

        Parameters
        ----------
        scores : (profiles, tests) raw scores
        enrol, test : the sides, as the scorer takes them
        enrol_labels : (profiles,) labels of the profiles, where the cohort has labels
        test_labels : (tests,) labels of the tests. None: a test is held against the cohort of
            the *claimed* label, that of the profile in the trial, as in use
        """
        check_is_fitted(self, "cohort_")
        scores = np.asarray(scores, dtype=np.float64)
        if scores.ndim != 2:
            raise DataError(f"scores have shape (profiles, tests); got {scores.shape}")
        if self.strict:
            self._refuse_trials(enrol, "profiles")
            self._refuse_trials(test, "tests")
        claimed = self._groups_of(enrol_labels, scores.shape[0], "enrol_labels")
        own = None if test_labels is None else self._groups_of(test_labels, scores.shape[1], "test_labels")
        parts = []
        if self.kind != "t":
            mean, deviation = self._statistics(enrol, scores.shape[0], "profiles", options)
            rows = np.arange(scores.shape[0])
            parts.append((scores - mean[claimed, rows][:, None]) / deviation[claimed, rows][:, None])
        if self.kind != "z":
            mean, deviation = self._statistics(test, scores.shape[1], "tests", options)
            columns = np.arange(scores.shape[1])
            where = (claimed[:, None], columns[None, :]) if own is None else (own[None, :], columns[None, :])
            parts.append((scores - mean[where]) / deviation[where])
        return np.asarray(sum(parts) / len(parts))

    def _statistics(self, side: Any, n: int, what: str, options: dict[str, Any]) -> CohortStatistics:
        """Mean and deviation, for every group of the cohort, of the cohort scores of every row of a side."""
        mean, deviation = np.empty((2, len(self._members), n))
        size = sum(map(len, self._members))
        for some, block in _blocks(side, n, max(1, BLOCK_SCORES // size)):
            sides = (block, self.cohort_) if what == "profiles" else (self.cohort_, block)
            scores = np.asarray(self.scorer_(*sides, **options), dtype=np.float64)
            scores = scores if what == "profiles" else scores.T  # (rows of the side, cohort)
            if scores.shape != (some.stop - some.start, size):
                raise DataError(f"the scorer gave {scores.shape} cohort scores for {what}; the sides ask for {size}")
            for group, members in enumerate(self._members):
                chosen = scores[:, members]
                if self.kind == "as" and self.top < len(members):
                    chosen = np.partition(chosen, len(members) - self.top, axis=1)[:, -self.top :]
                mean[group, some], deviation[group, some] = chosen.mean(axis=1), chosen.std(axis=1)
        flat = ~(deviation > 1e-12 * np.maximum(np.abs(mean), 1e-300))
        if flat.any():
            raise DataError(
                f"the cohort scores of {int(flat.any(axis=0).sum())} of {n} {what} do not vary, or are not finite: "
                "use a larger or more varied cohort"
            )
        return CohortStatistics(mean, deviation)

    def _groups_of(self, labels: Any, n: int, name: str) -> IntArray:
        if self.groups_ is None:
            if labels is not None:
                raise LabelError(f"{name} is given, but the cohort has no labels: give fit(..., labels=) too")
            return np.zeros(n, dtype=np.int64)
        if labels is None:
            raise LabelError(f"the cohort has labels: give {name}, one a row")
        names = np.asarray(labels)
        if names.shape != (n,):
            raise LabelError(f"{name} has shape {names.shape}; the scores ask for ({n},)")
        place = np.minimum(np.searchsorted(self.groups_, names), len(self.groups_) - 1)
        absent = self.groups_[place] != names
        if absent.any():
            raise LabelError(
                f"the cohort has no label {names[absent].tolist()[0]!r} of {name}: add some, or do not match"
            )
        return place

    def _refuse_trials(self, side: Any, what: str) -> None:
        shared = len(self.cohort_) if side is self.cohort_ else self._shared_rows(side)
        if shared:
            raise DataError(
                f"{shared} row(s) of the cohort stand among the {what} of the trials: statistics must not come from "
                "the trials themselves. Take a cohort of other speakers (strict=False allows it all the same)"
            )

    def _shared_rows(self, side: Any) -> int:
        a, b = (s if hasattr(s, "ids") or isinstance(s, dict) else np.asarray(s) for s in (self.cohort_, side))
        if isinstance(a, np.ndarray) != isinstance(b, np.ndarray) and self._enrol is not None:
            a, b = (self._enrol(s) if isinstance(s, np.ndarray) else s for s in (a, b))
        rows = [_rows(s) for s in (a, b)]
        if rows[0] is None or rows[1] is None or rows[0].shape[1] != rows[1].shape[1]:
            return 0
        return count_shared(rows[0], rows[1])


def count_shared(a: Array, b: Array) -> int:
    """How many rows of `a` stand in `b`, up to rounding."""
    width = a.shape[1]
    if not len(a) or not len(b) or not width:
        return 0
    direction = np.random.default_rng(0).normal(size=width)
    key_a, key_b = a @ direction, b @ direction
    order = np.argsort(key_b, kind="stable")
    slack = 1e-9 * (np.abs(a) @ np.abs(direction) + 1e-300)
    low = np.searchsorted(key_b[order], key_a - slack, side="left")
    high = np.searchsorted(key_b[order], key_a + slack, side="right")
    candidates = np.flatnonzero(high > low)
    return sum(
        bool(np.isclose(b[order[low[i] : high[i]]], a[i], rtol=1e-6, atol=1e-9 * np.abs(a[i]).max()).all(axis=1).any())
        for i in candidates
    )


def _rows(side: Any) -> Array | None:
    """The numbers behind a side, if it is an array or profiles with one row each."""
    values = side if isinstance(side, np.ndarray) else getattr(side, "y", getattr(side, "directions", None))
    if values is None or isinstance(side, dict):
        return None
    values = np.asarray(values.cpu() if hasattr(values, "cpu") else values)
    return values.astype(np.float64) if values.ndim == 2 and values.dtype.kind in "fiu" else None


def _length(side: dict[str, Any]) -> int:
    return len(next(iter(side.values())))


def _blocks(side: Any, n: int, step: int) -> Iterator[tuple[slice, Any]]:
    """A side in runs of rows, where it can be cut, else whole."""
    if step >= n or isinstance(side, dict) or not hasattr(side, "__getitem__"):
        yield slice(0, n), side
        return
    for start in range(0, n, step):
        some = slice(start, min(start + step, n))
        yield some, side[some]
