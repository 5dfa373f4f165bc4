"""Scorer: what everything around a back-end knows of it, and what back-ends have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from sklearn.utils.validation import check_is_fitted

from .._typing import Array, IntArray, PathLike
from ..exceptions import DataError, ParameterError
from ..persistence import Persistent, check_answers
from ..scoring.matrix import SCATTER_ELEMENTS, best_in_bands
from ..scoring.profiles import Profiles, SideLike, check_sides
from ..scoring.question import Question, Recognised, make_question


class Identification(NamedTuple):
    """The best profiles for every test, best first: names and LLRs, both (tests, top)."""

    ids: NDArray[Any]
    scores: NDArray[Any]


@runtime_checkable
class Scorer(Protocol):
    """A back-end: makes profiles of vectors, and says how likely two profiles are of one class.

    `MultiviewPLDA`, `PLDA`, `CosineScorer`, `CascadeScorer` and `Bundle` are scorers. The sides of a
    score are profiles, or arrays of single vectors. A question is a `Question`, or the keyword
    arguments that make one; what a scorer cannot be asked, it refuses.
    """

    def fit(self, X: ArrayLike, y: Any = None) -> Self: ...

    def enrol(self, X: ArrayLike, ids: ArrayLike | None = None, labels: Any = None) -> Profiles: ...

    def llr(
        self, enrol: SideLike, test: SideLike, question: Question | None = None, **asked: Any
    ) -> Any: ...

    def llr_trials(
        self,
        enrol: SideLike,
        test: SideLike,
        pairs: ArrayLike,
        question: Question | None = None,
        **asked: Any,
    ) -> Any: ...

    def identify(
        self,
        profiles: Profiles,
        test: SideLike,
        question: Question | None = None,
        *,
        top: int = 10,
        **asked: Any,
    ) -> Identification: ...

    def save(self, path: PathLike) -> None: ...

    @classmethod
    def load(cls, path: PathLike) -> Self: ...


SCORERS: dict[str, type[BaseScorer]] = {}
"""The scorers that can be asked for by name. Each enters itself."""


class BaseScorer(Persistent):
    """What a file, a bundle and the command line have to know of a scorer besides.

    A new scorer is one file: a class that inherits from `MatrixScorer`, and a line in ``mvplda/models/__init__.py``
    that imports it. ``tests/test_scorers.py`` has one, and what every scorer promises.
    """

    KIND: ClassVar[str] = "model"

    NAME: ClassVar[str] = ""
    """Of ``mvplda train --model``; a scorer without a name is no choice there."""

    NEEDS_LABELS: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__dict__.get("NAME"):
            SCORERS[cls.NAME] = cls

    @classmethod
    def with_ranks(cls, ranks: Mapping[str, int | None], settings: Mapping[str, Any]) -> Self:
        """A scorer of views with these ranks, to be fitted; settings that it does not have are an error."""
        raise NotImplementedError

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        raise NotImplementedError

    @property
    def width_in(self) -> int:
        """Width of the vectors that a fitted scorer takes."""
        raise NotImplementedError

    def check_state(self) -> None:
        """Whether a scorer from a file has parts that fit each other, and finite scores."""
        super().check_state()
        check_answers(self, self._probe, self.width_in)

    def _probe(self, X: Array) -> Any:
        profiles = self.enrol(X)
        return self.llr(profiles, profiles)

    def _key(self) -> str:
        """Fingerprint of the fitted scorer."""
        raise NotImplementedError

    def enrol(self, X: ArrayLike, ids: ArrayLike | None = None, labels: Any = None) -> Profiles:
        raise NotImplementedError

    def recognise(self, test: SideLike, view: str, *, new: bool = True) -> Recognised:
        """What the vectors say of the class of every test in a view: posteriors of the training classes, all alike.

        Given to another scorer, of other vectors of the same recordings, it is what that one calls `recognised`.

        Parameters
        ----------
        test : Profiles, or an array of single vectors
        view : whose classes training knows
        new : count on classes that training has not met, too: the class None, as likely as each of the others
        """
        tests = self._sides(test, test)[1]
        if view in tests.labels:
            raise ParameterError(
                f"the tests have labels of view {view!r}: there is nothing to recognise"
            )
        logs = self._class_evidence(tests, view)
        names = tuple(getattr(self, "classes_", {})[view].tolist())
        logs, names = (logs, (*names, None)) if new else (logs[:, :-1], names)
        shares = np.exp(logs - logs.max(axis=1, keepdims=True))
        return Recognised(shares / shares.sum(axis=1, keepdims=True), names)

    def _class_evidence(self, tests: Profiles, view: str) -> Array:
        """(tests, classes + 1) log-likelihood as every training class, relative to that as a new one, the last."""
        raise ParameterError(
            f"a {type(self).__name__} keeps no classes of a view, and recognises none"
        )

    def _sides(self, enrol: SideLike, test: SideLike) -> tuple[Profiles, Profiles]:
        check_is_fitted(self)
        profiles, tests = (
            side if isinstance(side, Profiles) else self.enrol(side) for side in (enrol, test)
        )
        check_sides(profiles, self._key(), "enrolled")
        check_sides(tests, self._key(), "test")
        return profiles, tests


class MatrixScorer(BaseScorer):
    """Lists, bands and the best profiles, for a scorer that says what a matrix and a row of pairs are."""

    def _views(self, question: Question) -> tuple[str, ...] | None:
        """The views that a question is about; other questions are refused."""
        raise NotImplementedError

    def _matrix(
        self, enrol: Profiles, test: Profiles, views: tuple[str, ...] | None, dtype: DTypeLike
    ) -> NDArray[Any]:
        """Scores of every profile and test."""
        raise NotImplementedError

    def _pairs(
        self, enrol: Profiles, test: Profiles, views: tuple[str, ...] | None, dtype: DTypeLike
    ) -> NDArray[Any]:
        """Scores of the first with the first, the second with the second, and so on."""
        raise NotImplementedError

    def llr(
        self,
        enrol: SideLike,
        test: SideLike,
        question: Question | None = None,
        *,
        dtype: DTypeLike = np.float32,
        **asked: Any,
    ) -> NDArray[Any]:
        """Scores (profiles, tests), of profiles or of arrays of single vectors."""
        sides, question = self._sides(enrol, test), make_question(question, asked)
        scores = self._matrix(*sides, self._views(question), dtype)
        return np.asarray(question.with_spoofs(scores, scores.shape))

    def llr_trials(
        self,
        enrol: SideLike,
        test: SideLike,
        pairs: ArrayLike,
        question: Question | None = None,
        *,
        dtype: DTypeLike = np.float32,
        **asked: Any,
    ) -> NDArray[Any]:
        """Scores of a list of trials (row of a profile, row of a test), without the matrix."""
        profiles, tests = self._sides(enrol, test)
        question = make_question(question, asked)
        views = self._views(question)
        pairs = check_pairs(pairs, len(profiles), len(tests))
        result = np.empty(len(pairs), dtype=dtype)
        step = max(1, SCATTER_ELEMENTS // profiles.y.shape[1])
        for start in range(0, len(pairs), step):
            some = slice(start, start + step)
            result[some] = self._pairs(
                profiles.take(pairs[some, 0]), tests.take(pairs[some, 1]), views, dtype
            )
        return np.asarray(question.with_spoofs(result, (len(profiles), len(tests)), pairs))

    def identify(
        self,
        profiles: Profiles,
        test: SideLike,
        question: Question | None = None,
        *,
        top: int = 10,
        dtype: DTypeLike = np.float32,
        **asked: Any,
    ) -> Identification:
        """The `top` profiles of every test, best first, without ever holding the whole matrix."""
        enrolled, tests = self._sides(profiles, test)
        question = make_question(question, asked)
        views = self._views(question)
        top = min(check_top(top), len(enrolled))

        def band(rows: IntArray) -> NDArray[Any]:
            return self._matrix(enrolled.take(rows), tests, views, dtype)

        numbers, scores = best_in_bands(band, len(enrolled), len(tests), top, dtype)
        return Identification(enrolled.ids[numbers], question.best_with_spoofs(scores))


def check_top(top: int) -> int:
    if isinstance(top, bool) or not isinstance(top, (int, np.integer)) or top < 1:
        raise ParameterError(f"top is a whole number, at least 1; got {top!r}")
    return int(top)


def check_pairs(pairs: ArrayLike, n_enrol: int, n_test: int) -> IntArray:
    pairs = np.asarray(pairs)
    if pairs.size == 0 and pairs.ndim <= 2:
        return np.zeros((0, 2), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise DataError(
            f"pairs are integers (n, 2): row of a profile, row of a test; got {pairs.dtype} {pairs.shape}"
        )
    if pairs.min() < 0 or pairs[:, 0].max() >= n_enrol or pairs[:, 1].max() >= n_test:
        raise DataError(f"a pair names a row outside the {n_enrol} profiles and {n_test} tests")
    return np.asarray(pairs, dtype=np.int64)
