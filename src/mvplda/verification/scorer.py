"""Scorer: what everything around a back-end knows of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ..exceptions import DataError, ParameterError
from ..labels import IntArray
from .matrices import SCATTER_ELEMENTS, best_of, merge_best
from .profiles import Profiles, check_sides


class Identification(NamedTuple):
    """The best profiles for every test, best first: names and LLRs, both (tests, top)."""

    ids: NDArray[Any]
    scores: NDArray[Any]


@runtime_checkable
class Scorer(Protocol):
    """A back-end: makes profiles of vectors, and says how likely two profiles are of one class.

    `MultiviewPLDA`, `PLDA`, `CosineScorer`, `CascadeScorer` and `Bundle` are scorers. The sides of a
    score are profiles, or arrays of single vectors. `question` stands for what a scorer can be asked:
    ``same``, and for models of several views ``given``, ``priors`` and ``known``.
    """

    def fit(self, X: Any, y: Any) -> Self: ...

    def enrol(self, X: Any, ids: Any = None, labels: Any = None) -> Profiles: ...

    def llr(self, enrol: Any, test: Any, **question: Any) -> Any: ...

    def llr_trials(self, enrol: Any, test: Any, pairs: Any, **question: Any) -> Any: ...

    def identify(self, profiles: Profiles, test: Any, *, top: int = 10, **question: Any) -> Identification: ...

    def save(self, path: Any) -> None: ...


class MatrixScorer:
    """Lists, bands and the best profiles, for a scorer that says what a matrix and a row of pairs are."""

    def _key(self) -> str:
        """Fingerprint of the fitted scorer."""
        raise NotImplementedError

    def enrol(self, X: Any, ids: Any = None, labels: Any = None) -> Profiles:
        raise NotImplementedError

    def _matrix(self, enrol: Profiles, test: Profiles, same: tuple[str, ...] | None, dtype: Any) -> NDArray[Any]:
        """Scores of every profile and test."""
        raise NotImplementedError

    def _pairs(self, enrol: Profiles, test: Profiles, same: tuple[str, ...] | None, dtype: Any) -> NDArray[Any]:
        """Scores of the first with the first, the second with the second, and so on."""
        raise NotImplementedError

    def llr(
        self, enrol: Any, test: Any, *, same: str | Iterable[str] | None = None, dtype: Any = np.float32
    ) -> NDArray[Any]:
        """Scores (profiles, tests), of profiles or of arrays of single vectors."""
        return self._matrix(*self._sides(enrol, test), _asked(same), dtype)

    def llr_trials(
        self, enrol: Any, test: Any, pairs: Any, *, same: str | Iterable[str] | None = None, dtype: Any = np.float32
    ) -> NDArray[Any]:
        """Scores of a list of trials (row of a profile, row of a test), without the matrix."""
        profiles, tests = self._sides(enrol, test)
        pairs = check_pairs(pairs, len(profiles), len(tests))
        result = np.empty(len(pairs), dtype=dtype)
        step = max(1, SCATTER_ELEMENTS // profiles.y.shape[1])
        for start in range(0, len(pairs), step):
            some = slice(start, start + step)
            sides = profiles.take(pairs[some, 0]), tests.take(pairs[some, 1])
            result[some] = self._pairs(*sides, _asked(same), dtype)
        return result

    def identify(
        self,
        profiles: Profiles,
        test: Any,
        *,
        top: int = 10,
        same: str | Iterable[str] | None = None,
        dtype: Any = np.float32,
    ) -> Identification:
        """The `top` profiles of every test, best first, without ever holding the whole matrix."""
        enrolled, tests = self._sides(profiles, test)
        top = min(check_top(top), len(enrolled))
        numbers: IntArray = np.empty((len(tests), 0), dtype=np.int64)
        scores: NDArray[Any] = np.empty((len(tests), 0), dtype=dtype)
        step = max(top, SCATTER_ELEMENTS // len(tests))
        for start in range(0, len(enrolled), step):
            rows = np.arange(start, min(start + step, len(enrolled)))
            band = self._matrix(enrolled.take(rows), tests, _asked(same), dtype)
            numbers, scores = merge_best(numbers, scores, *best_of(band, rows, min(top, len(rows))), top)
        return Identification(enrolled.ids[numbers], scores)

    def _sides(self, enrol: Any, test: Any) -> tuple[Profiles, Profiles]:
        check_is_fitted(self)
        profiles, tests = (side if isinstance(side, Profiles) else self.enrol(side) for side in (enrol, test))
        check_sides(profiles, self._key(), "enrolled")
        check_sides(tests, self._key(), "test")
        return profiles, tests


def _asked(same: str | Iterable[str] | None) -> tuple[str, ...] | None:
    return None if same is None else (same,) if isinstance(same, str) else tuple(same)


def check_top(top: int) -> int:
    if top < 1:
        raise ParameterError(f"top is at least 1; got {top}")
    return top


def check_pairs(pairs: Any, n_enrol: int, n_test: int) -> IntArray:
    pairs = np.asarray(pairs)
    if pairs.size == 0 and pairs.ndim <= 2:
        return np.zeros((0, 2), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise DataError(f"pairs are integers (n, 2): row of a profile, row of a test; got {pairs.dtype} {pairs.shape}")
    if pairs.min() < 0 or pairs[:, 0].max() >= n_enrol or pairs[:, 1].max() >= n_test:
        raise DataError(f"a pair names a row outside the {n_enrol} profiles and {n_test} tests")
    return np.asarray(pairs, dtype=np.int64)


def fingerprint(arrays: Iterable[NDArray[Any]]) -> str:
    """A name for parameters: the same for the same numbers."""
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
