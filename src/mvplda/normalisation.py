"""Score normalisation against a cohort: Z, T, S and adaptive S norm, for any scorer.

A raw score is shifted and scaled by what its two sides score against a *cohort* of
impostors. The statistics come from the cohort alone. Other trials are never looked at, so
that a trial's score does not depend on which trials stand in the list beside it.
"""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ._typing import Array, IntArray
from .backend import is_torch, to_host
from .exceptions import DataError, FileFormatError, LabelError, ParameterError
from .models.scorer import Identification, check_top
from .persistence import Persistent, State, Tensors, get_part, put_part
from .scoring.blocks import Best, bands
from .scoring.profiles import Profiles, SideLike
from .scoring.question import Question

__all__ = ["CohortStatistics", "ScoreNormaliser"]

NormKind = Literal["z", "t", "s", "as"]
BLOCK_SCORES = 2**22
"""Scores against the cohort that are held at a time."""


class CohortStatistics(NamedTuple):
    """Mean and standard deviation of cohort scores: (groups, rows), one group of the cohort a label."""

    mean: Array
    deviation: Array

    def apply(self, scores: Array, groups: IntArray, rows: IntArray) -> Array:
        """Scores of some rows, shifted and scaled by a group's statistics; the numbers broadcast to the scores."""
        return np.asarray((scores - self.mean[groups, rows]) / self.deviation[groups, rows])


class ScoreNormaliser(Persistent, BaseEstimator):
    """Normalised scores of a scorer, or of a function ``f(enrol, test)`` that gives a matrix.

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
    cohort_ : profiles of the scorer; of a function, what it takes as either side
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

    KIND: ClassVar[str] = "normaliser"

    def __init__(self, kind: NormKind = "s", top: int = 200, strict: bool = True) -> None:
        self.kind = kind
        self.top = top
        self.strict = strict

    def fit(self, scorer: Any, cohort: Any, labels: Any = None) -> Self:
        """Take a scorer and a cohort.

        Parameters
        ----------
        scorer : a scorer, or a function of two sides that gives a matrix
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
        if not (hasattr(scorer, "llr") or callable(scorer)):
            raise ParameterError(
                f"the scorer is a function or has llr(enrol, test); got {type(scorer).__name__}"
            )
        self.scorer_ = scorer
        self.cohort_ = self._side(cohort)
        n = len(self.cohort_)
        self.groups_: NDArray[Any] | None = None
        self._codes: IntArray = np.zeros(n, dtype=np.int64)
        if labels is not None:
            names = np.asarray(labels)
            if names.shape != (n,):
                raise LabelError(
                    f"the cohort has {n} rows and labels of shape {names.shape}: give one label a row"
                )
            self.groups_, self._codes = np.unique(names, return_inverse=True)
        sizes = np.bincount(self._codes)
        smallest = int(np.argmin(sizes))
        if sizes[smallest] < 2:
            what = (
                "the cohort"
                if self.groups_ is None
                else f"the cohort of label {self.groups_.tolist()[smallest]!r}"
            )
            raise DataError(
                f"{what} has {sizes[smallest]} row(s); a standard deviation needs at least 2"
            )
        return self

    def get_state(self) -> State:
        check_is_fitted(self, "cohort_")
        arrays, values = super().get_state()
        values["cohort"] = put_part(arrays, "cohort", self.cohort_, Profiles)
        values["groups"] = None if self.groups_ is None else self.groups_.tolist()
        return {**arrays, "codes": self._codes}, values

    @classmethod
    def from_state(cls, arrays: Tensors, values: dict[str, Any]) -> Self:
        """The normaliser, without its scorer: set `scorer_` before it is used."""
        normaliser = super().from_state(arrays, values)
        normaliser.cohort_ = get_part(arrays, "cohort", values["cohort"], Profiles)
        normaliser.groups_ = None if values["groups"] is None else np.asarray(values["groups"])
        normaliser._codes = arrays["codes"]
        return normaliser

    def check_state(self) -> None:
        groups = 1 if self.groups_ is None else len(np.unique(self.groups_.astype(np.str_)))
        if self.groups_ is not None and self.groups_.dtype.kind not in "USiufb":
            raise FileFormatError("the labels of the cohort are neither text nor numbers")
        codes = self._codes
        fits = codes.shape == (len(self.cohort_),) and codes.dtype.kind in "iu"
        if not fits or not np.array_equal(np.unique(codes), np.arange(groups)):
            raise FileFormatError("the labels of the cohort do not fit it")
        if np.bincount(codes).min() < 2:
            raise FileFormatError("the cohort is too small")
        if self.kind not in ("z", "t", "s", "as") or not isinstance(self.top, int) or self.top < 2:
            raise FileFormatError(f"no normaliser has kind {self.kind!r} and top {self.top!r}")

    def llr(
        self,
        enrol: SideLike,
        test: SideLike,
        *,
        enrol_labels: Any = None,
        test_labels: Any = None,
        **options: Any,
    ) -> Array:
        """Score all pairs and normalise; `options`, a question among them, go to the scorer."""
        sides = self._sides(enrol, test, options)
        labels = {"enrol_labels": enrol_labels, "test_labels": test_labels}
        scores: Any = self._matrix(*sides, options)
        return self.normalise(scores, sides[0], sides[1], **labels, **options)

    def llr_trials(
        self, enrol: SideLike, test: SideLike, pairs: ArrayLike, **options: Any
    ) -> Array:
        """Normalised scores of a list of trials (row of a profile, row of a test), without the matrix."""
        profiles, tests = self._sides(enrol, test, options)
        scores = np.asarray(
            self.scorer_.llr_trials(profiles, tests, pairs, **options), dtype=np.float64
        )
        if not len(scores):
            return scores
        (rows, i), (columns, j) = (
            np.unique(side, return_inverse=True) for side in np.asarray(pairs).T
        )
        i, j = i.reshape(-1), j.reshape(-1)
        z, t = self._both(profiles.take(rows), tests.take(columns), options)
        claimed = self._groups_of(None, len(rows), "enrol_labels")
        return self._applied(scores, z, t, claimed[i], claimed[i], i, j)

    def identify(
        self, profiles: SideLike, test: SideLike, *, top: int = 10, **options: Any
    ) -> Identification:
        """The `top` profiles of every test by normalised scores, best first."""
        enrolled, tests = self._sides(profiles, test, options)
        z, t = self._both(enrolled, tests, options)
        claimed, columns = (
            self._groups_of(None, len(enrolled), "enrol_labels"),
            np.arange(len(tests))[None, :],
        )

        def band(rows: IntArray) -> Array:
            scores, group = (
                self._matrix(enrolled.take(rows), tests, options),
                claimed[rows][:, None],
            )
            return self._applied(scores, z, t, group, group, rows[:, None], columns)

        top = min(check_top(top), len(enrolled))
        best = Best(len(tests), top)
        for some in bands(len(enrolled), len(tests), top):
            rows = np.arange(some.start, some.stop)
            best.add(band(rows), rows)
        return Identification(enrolled.ids[best.numbers], best.scores)

    def normalise(
        self,
        scores: Any,
        enrol: SideLike,
        test: SideLike,
        *,
        enrol_labels: Any = None,
        test_labels: Any = None,
        **options: Any,
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
        sides = self._sides(enrol, test, options)
        scores = np.asarray(scores, dtype=np.float64)
        if scores.ndim != 2:
            raise DataError(f"scores have shape (profiles, tests); got {scores.shape}")
        rows, columns = np.arange(scores.shape[0])[:, None], np.arange(scores.shape[1])[None, :]
        claimed = self._groups_of(enrol_labels, scores.shape[0], "enrol_labels")[:, None]
        own = claimed
        if test_labels is not None:
            own = self._groups_of(test_labels, scores.shape[1], "test_labels")[None, :]
        return self._applied(scores, *self._both(*sides, options), claimed, own, rows, columns)

    def _applied(
        self,
        scores: Array,
        z: CohortStatistics | None,
        t: CohortStatistics | None,
        claimed: IntArray,
        own: IntArray,
        rows: IntArray,
        columns: IntArray,
    ) -> Array:
        """The mean of what the cohort says of either side; groups and numbers broadcast to the scores."""
        parts = [] if z is None else [z.apply(scores, claimed, rows)]
        parts += [] if t is None else [t.apply(scores, own, columns)]
        return np.asarray(sum(parts) / len(parts))

    def _both(
        self, enrol: Any, test: Any, options: dict[str, Any]
    ) -> tuple[CohortStatistics | None, CohortStatistics | None]:
        """Statistics of the profiles and of the tests, as far as the kind of normalisation needs them."""
        if self.strict:
            self._refuse_trials(enrol, "profiles")
            self._refuse_trials(test, "tests")
        return (
            None if self.kind == "t" else self._statistics(enrol, len(enrol), "profiles", options),
            None if self.kind == "z" else self._statistics(test, len(test), "tests", options),
        )

    def _matrix(self, enrol: SideLike, test: SideLike, options: dict[str, Any]) -> Array:
        score = getattr(self.scorer_, "llr", self.scorer_)
        return np.asarray(score(enrol, test, **options), dtype=np.float64)

    def _side(self, side: Any) -> Any:
        """Profiles, on the host as the cohort of a file is; of a function, whatever it takes."""
        if not isinstance(side, Profiles):
            if not hasattr(self.scorer_, "enrol"):
                return np.asarray(side)
            side = self.scorer_.enrol(side)
        return replace(side, y=to_host(side.y)) if is_torch(side.y) else side

    def _sides(self, enrol: SideLike, test: SideLike, options: dict[str, Any]) -> tuple[Any, Any]:
        check_is_fitted(self, "cohort_")
        if "out" in options:
            raise ParameterError("out= is for scores that are not normalised: leave it out")
        question = options.get("question")
        asked = question.parts() if isinstance(question, Question) else question
        told = {**options, **(asked if isinstance(asked, Mapping) else {})}
        if told.get("known") is not None:
            raise ParameterError(
                "known= names a class of every profile, which a cohort does not have: leave it out"
            )
        if told.get("recognised") is not None:
            raise ParameterError(
                "recognised= is of certain tests, and a cohort has no such: leave it out"
            )
        if told.get("countermeasure") is not None:
            raise ParameterError(
                "countermeasure= needs likelihood ratios, which normalised scores are not: calibrate them, and use "
                "Bundle.calibrated(..., countermeasure=)"
            )
        return self._side(enrol), self._side(test)

    def _statistics(
        self, side: Any, n: int, what: str, options: dict[str, Any]
    ) -> CohortStatistics:
        """Mean and deviation, for every group of the cohort, of the cohort scores of every row of a side."""
        members = [
            np.flatnonzero(self._codes == group) for group in range(int(self._codes.max()) + 1)
        ]
        mean, deviation = np.empty((2, len(members), n))
        size = len(self._codes)
        step = max(1, BLOCK_SCORES // size)
        for start in range(0, n, step):
            some = slice(start, min(start + step, n))
            sides = (side[some], self.cohort_) if what == "profiles" else (self.cohort_, side[some])
            scores = self._matrix(*sides, options)
            scores = scores if what == "profiles" else scores.T  # (rows of the side, cohort)
            if scores.shape != (some.stop - some.start, size):
                raise DataError(
                    f"the scorer gave {scores.shape} cohort scores for {what}; the sides ask for {size}"
                )
            for group, rows in enumerate(members):
                chosen = scores[:, rows]
                if self.kind == "as" and self.top < len(rows):
                    chosen = np.partition(chosen, len(rows) - self.top, axis=1)[:, -self.top :]
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
                raise LabelError(
                    f"{name} is given, but the cohort has no labels: give fit(..., labels=) too"
                )
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
        cohort, rows = _rows(self.cohort_), _rows(side)
        shared = count_shared(cohort, rows) if cohort.shape[1] == rows.shape[1] else 0
        if shared:
            raise DataError(
                f"{shared} row(s) of the cohort stand among the {what} of the trials: statistics must not come from "
                "the trials themselves. Take a cohort of other speakers (strict=False allows it all the same)"
            )


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
        bool(
            np.isclose(b[order[low[i] : high[i]]], a[i], rtol=1e-6, atol=1e-9 * np.abs(a[i]).max())
            .all(axis=1)
            .any()
        )
        for i in candidates
    )


def _rows(side: Any) -> Array:
    """The numbers behind a side."""
    values = side.y if isinstance(side, Profiles) else side
    return np.asarray(values.cpu() if hasattr(values, "cpu") else values, dtype=np.float64)
