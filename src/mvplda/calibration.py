"""Calibrators that are linear in the scores, trained by prior-weighted logistic regression."""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ..costs import log_odds
from ..exceptions import DataError, LabelError, ParameterError, ReversedScoresWarning
from ..kernel.records import Array
from .inputs import as_kinds, as_scores, as_side, as_targets, check_both, count_speakers
from .logistic import fit_logistic


class LinearCalibrator(BaseEstimator):
    """LLR = slopes . scores + intercept, by prior-weighted logistic regression.

    Targets together weigh `prior`, non-targets together 1 - prior, however many there are
    of each. Several scores a trial are fused.

    Parameters
    ----------
    prior : float in (0, 1)
        Where the calibration is to be best; 0.5 minimises Cllr.
    ridge : float
        Penalty on the slopes, used only if the training scores do not overlap (then with
        a `SeparableScoresWarning`) and the speakers are not known.

    Attributes
    ----------
    slopes_ : (m,)
    intercept_ : float
    n_scores_ : int, m
    n_speakers_ : int, speakers of the target trials; None where `fit` was not told

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda.calibration import LinearCalibrator
    >>> rng = np.random.default_rng(0)
    >>> targets = rng.random(10_000) < 0.5
    >>> scores = rng.normal(2.0 * targets - 1, 1.0) * 0.1 + 5     # LLR / 20 + 5
    >>> LinearCalibrator().fit(scores, targets).slopes_.round(-1)
    array([20.])
    """

    FITTED: ClassVar[tuple[str, ...]] = ("slopes_", "intercept_", "n_scores_", "n_speakers_")

    n_speakers_: int | None = None

    def __init__(self, prior: float = 0.5, ridge: float = 1e-4) -> None:
        self.prior = prior
        self.ridge = ridge

    def fit(self, scores: Any, kinds_or_targets: Any, *, speakers: Any = None) -> Self:
        """Fit to trials.

        Parameters
        ----------
        scores : (n,), or (n, m) for m scores a trial
        kinds_or_targets : (n,) TC, TW, IC, IW; or target, nontarget; or True and False
        speakers : (n,) speaker of every trial's enrolment. However many trials there are, few
            speakers tell little: the slopes are then drawn towards zero, which makes the LLRs
            less sure, and fewer than 30 speakers give a `FewSpeakersWarning`. None: not known,
            and nothing is said of them
        """
        scores = as_scores(scores)
        targets = as_targets(kinds_or_targets, len(scores))
        return self._fit(scores, targets, self._mass(targets), speakers)

    def transform(self, scores: Any) -> Array:
        """(n,) calibrated natural-log LLRs."""
        check_is_fitted(self, "slopes_")
        return np.asarray(as_scores(scores, self.n_scores_) @ self.slopes_ + self.intercept_)

    def fit_transform(self, scores: Any, kinds_or_targets: Any, *, speakers: Any = None) -> Array:
        """Fit, and calibrate the same trials: for looking at, not for reporting."""
        return self.fit(scores, kinds_or_targets, speakers=speakers).transform(scores)

    def _mass(self, targets: NDArray[np.bool_]) -> Array:
        log_odds(self.prior)
        share = targets.mean()
        return np.asarray(np.where(targets, self.prior / share, (1 - self.prior) / (1 - share)) / len(targets))

    def _fit(self, scores: Array, targets: NDArray[np.bool_], mass: Array, speakers: Any) -> Self:
        if not self.ridge > 0:
            raise ParameterError(f"ridge is positive; got {self.ridge}")
        self.n_speakers_, worth = count_speakers(speakers, targets, stacklevel=4)
        odds = log_odds(self.prior)
        used = mass > 0
        self.slopes_, self.intercept_ = fit_logistic(scores[used], targets[used], mass[used], odds, self.ridge, worth)
        self.n_scores_ = scores.shape[1]
        if self.n_scores_ == 1 and self.slopes_[0] < 0:
            warnings.warn(
                f"the slope is {self.slopes_[0]:.3g}: higher scores came with fewer targets. Is the score a distance, "
                "or are the labels turned round?",
                ReversedScoresWarning,
                stacklevel=3,
            )
        return self


class KindCalibrator(LinearCalibrator):
    """A linear calibrator that weighs the kinds of non-target trials, not their numbers.

    All pairs of a list hold far more IW (impostor, wrong phrase) than IC or TW trials, and a
    plain calibration serves the many. Here every kind of non-target has an equal share of
    1 - prior, or the share that `kind_priors` gives it.

    Parameters
    ----------
    prior : float in (0, 1)
        Prior of a target.
    kind_priors : dict of {kind: weight} or None
        Weights of the kinds of non-targets, to be scaled to sum to one; a kind that is not
        named weighs nothing. None: all alike.
    target : str
        The kind that is to be accepted.
    ridge : float
        As in `LinearCalibrator`.

    Attributes
    ----------
    slopes_, intercept_, n_scores_, n_speakers_ : as in `LinearCalibrator`
    kinds_ : list of the kinds of non-targets that were trained on

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda.calibration import KindCalibrator
    >>> rng = np.random.default_rng(0)
    >>> kinds = np.repeat(["TC", "IC", "IW"], [500, 500, 20_000])
    >>> scores = rng.normal(np.select([kinds == "TC", kinds == "IC"], [3.0, 0.0], -6.0))
    >>> calibrator = KindCalibrator().fit(scores, kinds)
    >>> calibrator.kinds_
    ['IC', 'IW']
    """

    FITTED: ClassVar[tuple[str, ...]] = (*LinearCalibrator.FITTED, "kinds_")

    def __init__(
        self,
        prior: float = 0.5,
        kind_priors: Mapping[str, float] | None = None,
        target: str = "TC",
        ridge: float = 1e-4,
    ) -> None:
        super().__init__(prior, ridge)
        self.kind_priors = kind_priors
        self.target = target

    def fit(self, scores: Any, kinds_or_targets: Any, *, speakers: Any = None) -> Self:
        """Fit to trials whose kinds are named.

        Parameters
        ----------
        scores : (n,), or (n, m), for example joint, speaker and phrase LLR of every trial
        kinds_or_targets : (n,) names of kinds, such as TC, TW, IC, IW
        speakers : as in `LinearCalibrator`
        """
        scores = as_scores(scores)
        kinds = as_kinds(kinds_or_targets, len(scores))
        if kinds.dtype.kind != "U":
            raise LabelError("KindCalibrator needs the kind of every trial by name (TC, TW, IC, IW), not only targets")
        targets = check_both(kinds == self.target)
        self.kinds_ = [str(kind) for kind in np.unique(kinds[~targets])]
        log_odds(self.prior)
        mass = np.where(targets, self.prior / targets.sum(), 0.0)
        for kind, share in self._shares().items():
            here = kinds == kind
            mass[here] = (1 - self.prior) * share / here.sum()
        return self._fit(scores, targets, mass, speakers)

    def _shares(self) -> dict[str, float]:
        weights = dict.fromkeys(self.kinds_, 1.0) if self.kind_priors is None else dict(self.kind_priors)
        absent = [kind for kind, weight in weights.items() if weight > 0 and kind not in self.kinds_]
        if absent:
            raise LabelError(f"kind_priors names {absent[0]!r}, but the non-targets are of {self.kinds_}")
        total = float(sum(weights.values()))
        if not weights or min(weights.values()) < 0 or not total > 0:
            raise ParameterError(f"kind_priors are not negative, and some are positive; got {weights}")
        return {kind: float(weight) / total for kind, weight in weights.items() if weight > 0}


class QualityCalibrator(LinearCalibrator):
    """A calibrator that also sees side information: enrolment counts, durations, levels.

    With q the side information (its logarithm if `log`), centred on its training mean:

        LLR = a . s + b + c . q + sum over scores i and columns j of d_ij s_i q_j,

    the products only if `interactions`. Side information beyond the range seen in training
    is taken at the edge of that range, so that no slope runs away.

    Parameters
    ----------
    prior : float in (0, 1)
    log : bool
        Take logarithms of the side information: right for counts and durations.
    interactions : bool
        Let the side information change the slopes, not only the offset.
    ridge : float
        As in `LinearCalibrator`.

    Attributes
    ----------
    slopes_ : (m + q,) or (m + q + m q,), in the order of the formula
    intercept_ : float
    n_scores_ : int, m
    n_speakers_ : as in `LinearCalibrator`
    side_names_ : list of the q columns
    side_mean_, side_low_, side_high_ : (q,) after the logarithm
    """

    FITTED: ClassVar[tuple[str, ...]] = (
        *LinearCalibrator.FITTED,
        "side_names_",
        "side_mean_",
        "side_low_",
        "side_high_",
    )

    def __init__(self, prior: float = 0.5, log: bool = True, interactions: bool = True, ridge: float = 1e-4) -> None:
        super().__init__(prior, ridge)
        self.log = log
        self.interactions = interactions

    def fit(self, scores: Any, kinds_or_targets: Any, side: Any = None, *, speakers: Any = None) -> Self:
        """Fit to trials with side information.

        Parameters
        ----------
        scores, kinds_or_targets, speakers : as in `LinearCalibrator`
        side : (n, q) array, dict of {name: (n,)} or DataFrame
        """
        scores = as_scores(scores)
        targets = as_targets(kinds_or_targets, len(scores))
        columns, self.side_names_ = as_side(side, len(scores))
        columns = self._scaled(columns)
        self.side_mean_ = columns.mean(axis=0)
        self.side_low_, self.side_high_ = columns.min(axis=0), columns.max(axis=0)
        self._fit(self._features(scores, columns), targets, self._mass(targets), speakers)
        self.n_scores_ = scores.shape[1]
        return self

    def transform(self, scores: Any, side: Any = None) -> Array:
        """(n,) calibrated natural-log LLRs."""
        check_is_fitted(self, "slopes_")
        scores = as_scores(scores, self.n_scores_)
        columns = self._scaled(as_side(side, len(scores), self.side_names_)[0])
        return self._features(scores, columns) @ self.slopes_ + self.intercept_

    def fit_transform(self, scores: Any, kinds_or_targets: Any, side: Any = None, *, speakers: Any = None) -> Array:
        """Fit, and calibrate the same trials."""
        return self.fit(scores, kinds_or_targets, side, speakers=speakers).transform(scores, side)

    def _scaled(self, columns: Array) -> Array:
        if not self.log:
            return columns
        if columns.size and columns.min() <= 0:
            raise DataError(f"log=True needs positive side information; the least is {columns.min()}. Use log=False")
        return np.log(columns)

    def _features(self, scores: Array, columns: Array) -> Array:
        q = np.clip(columns, self.side_low_, self.side_high_) - self.side_mean_
        parts = [scores, q]
        if self.interactions:
            parts.append((scores[:, :, None] * q[:, None, :]).reshape(len(scores), -1))
        return np.concatenate(parts, axis=1)
