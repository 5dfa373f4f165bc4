"""Calibration by pooling adjacent violators."""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from scipy.optimize import isotonic_regression
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ..exceptions import DataError
from ..kernel.records import Array
from .inputs import as_scores, as_targets, count_speakers


class PAVCalibrator(BaseEstimator):
    """The best rising map from scores to LLRs: no shape is assumed but order.

    Pooling adjacent violators gives steps of constant LLR. Between the last score of a step
    and the first of the next the LLR is interpolated linearly; below the lowest and above
    the highest training score it stays as it is there. Ends are finite by this rule: one
    target is added below all scores and one non-target above all.

    Attributes
    ----------
    knots_ : (k,) scores, rising
    llrs_ : (k,) their LLRs, never falling
    n_scores_ : int, 1
    n_speakers_ : as in `LinearCalibrator`

    Examples
    --------
    >>> from mvplda.calibration import PAVCalibrator
    >>> pav = PAVCalibrator().fit([1, 2, 3, 4], [False, True, False, True])
    >>> pav.transform([2, 2.5, 3]).round(3)
    array([0., 0., 0.])
    """

    FITTED: ClassVar[tuple[str, ...]] = ("knots_", "llrs_", "n_scores_", "n_speakers_")

    n_speakers_: int | None = None

    def fit(self, scores: Any, kinds_or_targets: Any, *, speakers: Any = None) -> Self:
        """Fit to trials: scores (n,), and what they are as in `LinearCalibrator`.

        Few `speakers` are warned of; the map, which has no slopes, stays as it is.
        """
        values = self._one(as_scores(scores))
        targets = as_targets(kinds_or_targets, len(values))
        self.n_speakers_, _ = count_speakers(speakers, targets, stacklevel=3)
        low, high = values.min(), values.max()
        values = np.concatenate([[low], values, [high]])
        labels = np.concatenate([[1.0], targets, [0.0]])
        order = np.lexsort((-labels, values))  # of equal scores the targets first, so that they are pooled
        fitted = isotonic_regression(labels[order])
        posterior = np.clip(fitted.x[fitted.blocks[:-1]], 0.0, 1.0)
        n_targets = labels.sum()
        llrs = np.log(posterior) - np.log1p(-posterior) - np.log(n_targets / (len(labels) - n_targets))
        sorted_values = values[order]
        edges = np.stack([sorted_values[fitted.blocks[:-1]], sorted_values[fitted.blocks[1:] - 1]], axis=1).reshape(-1)
        steps = np.repeat(llrs, 2)
        kept = np.append(True, (np.diff(edges) > 0) | (np.diff(steps) > 0))
        self.knots_, self.llrs_, self.n_scores_ = edges[kept], steps[kept], 1
        return self

    def transform(self, scores: Any) -> Array:
        """(n,) calibrated natural-log LLRs."""
        check_is_fitted(self, "knots_")
        return np.asarray(np.interp(self._one(as_scores(scores)), self.knots_, self.llrs_))

    def fit_transform(self, scores: Any, kinds_or_targets: Any, *, speakers: Any = None) -> Array:
        """Fit, and calibrate the same trials: for looking at, not for reporting."""
        return self.fit(scores, kinds_or_targets, speakers=speakers).transform(scores)

    @staticmethod
    def _one(scores: Array) -> Array:
        if scores.shape[1] != 1:
            raise DataError(f"PAV takes one score a trial, got {scores.shape[1]}: fuse them first (KindCalibrator)")
        return scores[:, 0]
