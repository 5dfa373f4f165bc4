"""Calibration of one score per trial: an affine map to log-likelihood ratios."""

from __future__ import annotations

import warnings
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted

from .._typing import Array, BoolArray
from ..exceptions import (
    DataError,
    FewSpeakersWarning,
    LabelError,
    NumericalError,
    ReversedScoresWarning,
)
from ..kinds import Kinds, as_masks, target_kind
from ..labels import as_array
from ..persistence import Persistent, check_answers

LLR_DEVIATION = 30.0
"""Standard deviation over all trials that calibrated LLRs may well have: the prior of slopes."""

ENOUGH_SPEAKERS = 30
"""A calibration that rests on fewer is warned of."""


class LinearCalibrator(Persistent, BaseEstimator):
    """LLR = slope * score + intercept, by logistic regression.

    Targets together weigh as much as non-targets together, however many there are of each.

    The slope has a prior: on scores of unit variance, a Gaussian of mean 0 and deviation 30, which is as large as
    LLRs well may be. The trials weigh against it as two of every speaker, a target and a non-target: those of one
    speaker show nearly the same. Few speakers make LLRs smaller, many leave the plain fit, and scores that separate
    the trials have a finite optimum.

    Parameters
    ----------
    by_kind : bool
        Let every kind of non-target (IW, IC, TW) weigh the same. All pairs of a list hold far more IW (impostor, wrong
        phrase) than IC or TW trials, and a plain calibration serves the many.

    Attributes
    ----------
    slope_, intercept_ : float
    n_speakers_ : int, speakers of the target trials; None where `fit` was not given any

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda.calibration.scores import LinearCalibrator
    >>> rng = np.random.default_rng(0)
    >>> targets = rng.random(10_000) < 0.5
    >>> scores = rng.normal(2.0 * targets - 1, 1.0) * 0.1 + 5     # LLR / 20 + 5
    >>> round(LinearCalibrator().fit(scores, targets).slope_, -1)
    20.0
    """

    KIND = "calibrator"
    FITTED = ("slope_", "intercept_", "n_speakers_")

    def __init__(self, by_kind: bool = False) -> None:
        self.by_kind = by_kind

    def fit(self, scores: ArrayLike, kinds: Kinds, *, speakers: ArrayLike | None = None) -> Self:
        """Fit to trials.

        Parameters
        ----------
        scores : of any shape
        kinds : as `mvplda.metrics.evaluate` takes them: the kind of every trial (TC, TW, IC, IW; target, nontarget),
            masks by kind, or which trials are targets
        speakers : speaker of every trial's enrolment; fewer than 30 give a `FewSpeakersWarning`. None: not known,
            and every target trial counts as a speaker
        """
        values = _finite(scores)
        groups = {kind: mask for kind, mask in as_masks(kinds, values.shape).items() if mask.any()}
        targets = groups.pop(target_kind(groups))
        if not groups:
            raise DataError("calibration needs target and non-target trials; all are targets")
        if not self.by_kind:
            groups = {"all": np.any(list(groups.values()), axis=0)}
        weights = 0.5 / targets.sum() * targets
        for mask in groups.values():
            weights[mask] = 0.5 / len(groups) / mask.sum()
        self.n_speakers_ = None
        worth = float(targets.sum())
        if speakers is not None:
            self.n_speakers_, worth = _count_speakers(speakers, targets)
        # The deviation that the prior is about is that of trials as they are weighted.
        centre = np.sum(weights * values)
        scale = np.sqrt(np.sum(weights * np.square(values - centre)))
        if scale <= 1e-12 * np.abs(centre):
            scale = np.float64(1.0)
        line = LogisticRegression(
            C=2 * worth * LLR_DEVIATION**2, solver="newton-cholesky", tol=1e-10, max_iter=300
        )
        with warnings.catch_warnings():
            # Scores that do not vary stop the search at its start, which is right for them.
            warnings.simplefilter("ignore", ConvergenceWarning)
            column = np.reshape((values - centre) / scale, (-1, 1))
            line.fit(column, targets.ravel(), sample_weight=weights.ravel())
        self.slope_ = float(line.coef_[0, 0] / scale)
        self.intercept_ = float(line.intercept_[0] - self.slope_ * centre)
        if not np.isfinite(self.intercept_):
            raise NumericalError("the calibration is not finite: scale the scores to ordinary size")
        if self.slope_ < 0:
            warnings.warn(
                f"the slope is {self.slope_:.3g}: higher scores came with fewer targets. Is the score a distance, "
                "or are the labels turned round?",
                ReversedScoresWarning,
                stacklevel=2,
            )
        return self

    def transform(self, scores: ArrayLike) -> Array:
        """Calibrated natural-log LLRs, of the shape of the scores."""
        check_is_fitted(self, "slope_")
        return np.asarray(self.slope_ * _finite(scores) + self.intercept_)

    def check_state(self) -> None:
        self.slope_, self.intercept_ = float(self.slope_), float(self.intercept_)
        check_answers(self, self.transform, 1)


def _finite(scores: ArrayLike) -> Array:
    array = np.asarray(scores, dtype=np.float64)
    odd = np.count_nonzero(~np.isfinite(array))
    if odd:
        raise DataError(f"{odd} trial(s) have a score that is NaN or infinite: leave them out")
    return array


def _count_speakers(speakers: ArrayLike, targets: BoolArray) -> tuple[int, float]:
    """Speakers of the target trials, and how many with as many trials each they are worth; few are warned of."""
    names = as_array(speakers)
    if names.shape != targets.shape:
        raise LabelError(
            f"there are {targets.size} trials and {names.size} speakers: give one speaker per trial"
        )
    trials = np.unique(names[targets], return_counts=True)[1].astype(np.float64)
    worth = float(trials.sum() ** 2 / np.square(trials).sum())
    if worth < ENOUGH_SPEAKERS:
        warnings.warn(
            f"the calibration rests on {len(trials)} speaker(s), worth {worth:.0f} with as many target trials each: it "
            f"can be far off for others. Calibrate on {ENOUGH_SPEAKERS} or more",
            FewSpeakersWarning,
            stacklevel=3,
        )
    return len(trials), worth
