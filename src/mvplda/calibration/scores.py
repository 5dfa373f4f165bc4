"""Calibration of one score per trial: an affine map to log-likelihood ratios."""

from __future__ import annotations

import warnings
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

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
from ..sklearn_interface import Estimator, check_is_fitted

LLR_DEVIATION = 30.0
"""Standard deviation of the prior of the slope, for scores of unit variance: that of large but plausible LLRs."""

ENOUGH_SPEAKERS = 30
"""Effective number of speakers below which a fit warns."""


class LinearCalibrator(Persistent, Estimator):
    """Calibrates scores by logistic regression: LLR = slope * score + intercept.

    Targets and non-targets have the same total weight, whatever their numbers.

    The slope has a normal prior: mean 0 and standard deviation 30 on scores of unit variance, which allows for large
    LLRs. Trials of one speaker are nearly redundant, so that each speaker counts as two trials, a target and a
    non-target, against the prior. With few speakers the prior makes LLRs smaller; with many it has no effect. It
    keeps the slope finite if the scores separate targets from non-targets.

    Parameters
    ----------
    by_kind : bool
        Give each kind of non-target (IW, IC, TW) the same total weight. If all pairs of a list are trials, most of them
        are IW (impostor, wrong phrase), which then dominate a calibration with equal weights per trial.

    Attributes
    ----------
    slope_, intercept_ : float
    n_speakers_ : int, number of speakers of the target trials; None if `fit` had no speakers

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
        scores : scores of any shape
        kinds : kind of each trial (TC, TW, IC, IW; target, nontarget), masks by kind, or a mask of the targets, as for
            `mvplda.metrics.evaluate`
        speakers : speaker of the enrolment of each trial; fewer than 30 give a `FewSpeakersWarning`. None: unknown,
            and each target trial counts as a speaker
        """
        # slow to import, and only a fit needs it
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

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
        effective_speakers = float(targets.sum())
        if speakers is not None:
            self.n_speakers_, effective_speakers = _count_speakers(speakers, targets)
        # The prior refers to the standard deviation of the weighted trials.
        centre = np.sum(weights * values)
        scale = np.sqrt(np.sum(weights * np.square(values - centre)))
        if scale <= 1e-12 * np.abs(centre):
            scale = np.float64(1.0)
        regression = LogisticRegression(
            C=2 * effective_speakers * LLR_DEVIATION**2,
            solver="newton-cholesky",
            tol=1e-10,
            max_iter=300,
        )
        with warnings.catch_warnings():
            # For constant scores the solver stops at its start, which is the optimum.
            warnings.simplefilter("ignore", ConvergenceWarning)
            column = np.reshape((values - centre) / scale, (-1, 1))
            regression.fit(column, targets.ravel(), sample_weight=weights.ravel())
        self.slope_ = float(regression.coef_[0, 0] / scale)
        self.intercept_ = float(regression.intercept_[0] - self.slope_ * centre)
        if not np.isfinite(self.intercept_):
            raise NumericalError("the calibration is not finite: scale the scores to ordinary size")
        if self.slope_ < 0:
            warnings.warn(
                f"the slope is {self.slope_:.3g}: higher scores have fewer targets. Check whether the score is a "
                "distance (negate it), or whether the labels are swapped",
                ReversedScoresWarning,
                stacklevel=2,
            )
        return self

    def transform(self, scores: ArrayLike) -> Array:
        """Return calibrated natural-log LLRs of the shape of the scores."""
        check_is_fitted(self, "slope_")
        return np.asarray(self.slope_ * _finite(scores) + self.intercept_)

    def check_state(self) -> None:
        """Raise an error unless the calibrator gives finite LLRs for ordinary scores."""
        self.slope_, self.intercept_ = float(self.slope_), float(self.intercept_)
        check_answers(self, self.transform, 1)


def _finite(scores: ArrayLike) -> Array:
    """Return scores as float64; refuse NaN and infinity."""
    array = np.asarray(scores, dtype=np.float64)
    count = np.count_nonzero(~np.isfinite(array))
    if count:
        raise DataError(f"{count} trial(s) have a score that is NaN or infinite: leave them out")
    return array


def _count_speakers(speakers: ArrayLike, targets: BoolArray) -> tuple[int, float]:
    """Return the number and the effective number of speakers of the target trials; warn if they are few."""
    names = as_array(speakers)
    if names.shape != targets.shape:
        raise LabelError(
            f"there are {targets.size} trials and {names.size} speakers: pass one speaker per trial"
        )
    trials = np.unique(names[targets], return_counts=True)[1].astype(np.float64)
    effective_speakers = float(trials.sum() ** 2 / np.square(trials).sum())
    if effective_speakers < ENOUGH_SPEAKERS:
        warnings.warn(
            f"the calibration rests on {len(trials)} speaker(s), equivalent to {effective_speakers:.0f} with "
            "equal numbers of target trials: it can be far off for other speakers. "
            f"Calibrate on {ENOUGH_SPEAKERS} or more",
            FewSpeakersWarning,
            stacklevel=3,
        )
    return len(trials), effective_speakers
