"""Calibrator by isotonic regression, as an added package would have it: one module, and an entry point."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logit
from sklearn.isotonic import IsotonicRegression

from mvplda._typing import Array
from mvplda.calibration import Calibrator, Measures
from mvplda.exceptions import DataError
from mvplda.scoring.answer import hypothesis_name
from mvplda.scoring.question import Hypothesis, LogLikelihoods, NearMatches, with_near_matches


class IsotonicCalibrator(Calibrator):
    """Maps the log-likelihood of each hypothesis to a log ratio to "nothing is shared", by pool adjacent violators.

    Parameters
    ----------
    pseudo_count : trials of both kinds that are assumed in addition, so that ratios are finite

    Attributes
    ----------
    scores_, llrs_ : {hypothesis: (steps,)} knots of the rising map, linear in between
    """

    FITTED = ("scores_", "llrs_", "n_speakers_")

    def __init__(self, pseudo_count: float = 1.0) -> None:
        self.pseudo_count = pseudo_count

    def fit(
        self,
        logs: LogLikelihoods,
        truth: ArrayLike,
        *,
        speakers: ArrayLike,
        corpora: ArrayLike | None = None,
        near_matches: NearMatches | None = None,
        measures: Measures | None = None,
        test_speakers: ArrayLike | None = None,
    ) -> Self:
        hypotheses = list(logs)
        truth = np.asarray(truth)
        nothing = truth == hypotheses.index(())
        self.n_speakers_ = len(np.unique(np.asarray(speakers)))
        self.scores_: dict[str, Array] = {}
        self.llrs_: dict[str, Array] = {}
        for number, h in enumerate(hypotheses):
            if not h or not (truth == number).any():
                continue
            rows = nothing | (truth == number)
            is_true = truth[rows] == number
            weights = np.where(is_true, 0.5 / is_true.sum(), 0.5 / (~is_true).sum())
            regression = IsotonicRegression(out_of_bounds="clip")
            regression.fit(np.asarray(logs[h])[rows], is_true, sample_weight=weights)
            floor = self.pseudo_count / (len(is_true) + 2 * self.pseudo_count)
            name = hypothesis_name(h)
            self.scores_[name] = np.asarray(regression.X_thresholds_, dtype=np.float64)
            self.llrs_[name] = logit(np.clip(regression.y_thresholds_, floor, 1 - floor))
        return self

    def transform(
        self,
        logs: LogLikelihoods,
        near_matches: NearMatches | None = None,
        measures: Measures | None = None,
    ) -> LogLikelihoods:
        calibrated: dict[Hypothesis, Array] = {}
        for h, values in logs.items():
            name = hypothesis_name(h)
            calibrated[h] = np.asarray(values, dtype=np.float64)
            if name in self.scores_:
                calibrated[h] = np.interp(values, self.scores_[name], self.llrs_[name])
        return with_near_matches(calibrated, near_matches)

    @property
    def largest_llr(self) -> float:
        return max(float(llrs.max()) for llrs in self.llrs_.values())

    def check_state(self) -> None:
        for name, scores in self.scores_.items():
            if self.llrs_[name].shape != scores.shape or (np.diff(scores) < 0).any():
                raise DataError(f"the knots of {name!r} are not in order")
