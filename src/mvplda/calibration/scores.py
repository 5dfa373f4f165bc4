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
"""Standard deviation of the slope's normal prior, on scores of unit variance: it allows large but plausible LLRs."""

ENOUGH_SPEAKERS = 30
"""A fit with a smaller effective number of speakers warns."""


class LinearCalibrator(Persistent, Estimator):
    """Calibrates scores by logistic regression: LLR = slope * score + intercept.

    Targets and non-targets have the same total weight, whatever their numbers.

    The slope has a normal prior with mean 0 and standard deviation 30, on scores scaled to unit
    variance. The prior allows large LLRs, and keeps the slope finite if the scores separate targets
    from non-targets. Trials of one speaker are nearly redundant, so each speaker counts only as one
    target and one non-target trial against the prior. With few speakers the prior makes LLRs
    smaller; with many it has no effect.

    Parameters
    ----------
    by_kind : bool
        Give each kind of non-target trial (IW, IC, TW; see the glossary) the same total weight. If
        all pairs of a list are trials, most of them are IW (impostor, wrong phrase) and dominate a
        calibration with equal weights per trial.

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
        """Fit slope and intercept to trials.

        Parameters
        ----------
        scores : scores of any shape
        kinds : kind of each trial (TC, TW, IC, IW; target, nontarget), masks by kind, or a mask of
            the targets, as for `mvplda.metrics.evaluate`
        speakers : speaker of the enrolment of each trial, in the shape of `scores`. Fewer than 30
            speakers give a `FewSpeakersWarning`. None: unknown; each target trial counts as a
            speaker

        Returns
        -------
        self
        """
        # slow to import, and only a fit needs it
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        values = _finite(scores)
        groups = {kind: mask for kind, mask in as_masks(kinds, values.shape).items() if mask.any()}
        targets = groups.pop(target_kind(groups))
        if not groups:
            raise DataError(
                "calibration needs target and non-target trials; all trials given are targets"
            )
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
            raise NumericalError(
                "the fit of the calibration gave a NaN or infinite intercept: the scores are too large or too small; "
                "multiply them by a constant so that they are between -1000 and 1000"
            )
        if self.slope_ < 0:
            warnings.warn(
                f"the slope of the calibration is {self.slope_:.3g}: targets have lower scores than non-targets. "
                "Negate the scores if they are distances, or check whether the labels are swapped",
                ReversedScoresWarning,
                stacklevel=2,
            )
        return self

    def transform(self, scores: ArrayLike) -> Array:
        """Return calibrated natural-log LLRs, in the shape of `scores`."""
        check_is_fitted(self, "slope_")
        return np.asarray(self.slope_ * _finite(scores) + self.intercept_)

    def check_state(self) -> None:
        """Raise `FileFormatError` if a loaded calibrator returns NaN or infinity."""
        self.slope_, self.intercept_ = float(self.slope_), float(self.intercept_)
        check_answers(self, self.transform, 1)


def _finite(scores: ArrayLike) -> Array:
    """Return scores as a float64 array; raise `DataError` if any is NaN or infinite."""
    array = np.asarray(scores, dtype=np.float64)
    count = np.count_nonzero(~np.isfinite(array))
    if count:
        raise DataError(
            f"the scores of {count} of {array.size} trial(s) are NaN or infinite: leave these trials out"
        )
    return array


def _count_speakers(speakers: ArrayLike, targets: BoolArray) -> tuple[int, float]:
    """Return the number and the effective number of speakers of the target trials; warn if the latter is below 30.

    The effective number is (sum of n_s)**2 / sum of n_s**2, with n_s the target trials of speaker
    s.

    speakers : speaker of each trial, in the shape of `targets`
    targets : mask of the target trials
    """
    names = as_array(speakers)
    if names.shape != targets.shape:
        raise LabelError(
            f"there are {targets.size} trials and {names.size} speakers: pass one speaker per trial"
        )
    trials = np.unique(names[targets], return_counts=True)[1].astype(np.float64)
    effective_speakers = float(trials.sum() ** 2 / np.square(trials).sum())
    if effective_speakers < ENOUGH_SPEAKERS:
        warnings.warn(
            f"the calibration is fitted to {len(trials)} speaker(s), equivalent to {effective_speakers:.0f} with "
            "equal numbers of target trials: its LLRs can be far off for other speakers. "
            f"Calibrate on at least {ENOUGH_SPEAKERS} speakers",
            FewSpeakersWarning,
            stacklevel=3,
        )
    return len(trials), effective_speakers
