"""Interface of the calibrators that a bundle applies to the log-likelihoods of hypotheses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from .._typing import Array, Json
from ..exceptions import ParameterError
from ..persistence import Persistent
from ..scoring.question import Hypothesis, LogLikelihoods, NearMatches
from ..sklearn_interface import Estimator

Measures = Mapping[str, Array]
"""Amounts of evidence per trial by name, such as log seconds of speech; see `Deployable.evidence_measures`."""


class GraphArray(Protocol):
    """Array of an ONNX graph: an operation on it adds a node."""

    def __add__(self, other: Self | float, /) -> Self: ...
    def __sub__(self, other: Self | float, /) -> Self: ...
    def __mul__(self, other: Self | float, /) -> Self: ...


G = TypeVar("G", bound=GraphArray)


class Calibrator(Persistent, Estimator, ABC):
    """Maps the log-likelihoods of hypotheses to calibrated ones, for one question.

    A new calibrator is one file: a class with `fit`, `transform` and `FITTED`, and a line that imports it in
    ``mvplda/calibration/__init__.py``, or an entry point of the group ``mvplda.calibrators``. Pass an instance to
    `mvplda.train`; bundles apply and save it, and `mvplda.load` finds its class by name. The test of all calibrators,
    ``tests/calibration/test_calibrators.py``, has an example.
    """

    KIND: ClassVar[str] = "calibrator"

    n_speakers_: int
    """Number of speakers of the fit."""

    outlier_probability_: float = 0.0
    """Probability that the model is uninformative about a trial; 0 if the calibrator has none."""

    @abstractmethod
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
        """Fit to trials of held-out people.

        Parameters
        ----------
        logs : {hypothesis: (n,) log-likelihoods}, the first hypothesis shares all views
        truth : (n,) index of the true hypothesis of each trial among the keys of `logs`
        speakers : (n,) speaker of the enrolment of each trial
        corpora : (n,) corpus of each trial; all corpora have the same total weight. None: a single corpus
        near_matches : evidence from parts of the recordings, per trial
        measures : amounts of evidence, {name: (n,)}
        test_speakers : (n,) speaker of the test of each trial, if known
        """

    @abstractmethod
    def transform(
        self,
        logs: LogLikelihoods,
        near_matches: NearMatches | None = None,
        measures: Measures | None = None,
    ) -> LogLikelihoods:
        """Return calibrated log-likelihoods, of the shape of those in `logs`.

        near_matches, measures : near-match evidence and amounts of evidence of the trials, if the scorer has them
        """

    def without_outliers(
        self,
        logs: LogLikelihoods,
        near_matches: NearMatches | None = None,
        measures: Measures | None = None,
    ) -> LogLikelihoods:
        """Return calibrated log-likelihoods before the outlier probability is mixed in (`add_outliers`).

        The outlier probability limits every LLR, so thresholds of halves apply to these (`Answer.half_llr`). Default:
        those of `transform`, for a calibrator without an outlier probability.
        """
        return self.transform(logs, near_matches, measures)

    def add_outliers(self, logs: LogLikelihoods) -> LogLikelihoods:
        """Include the outlier probability in the log-likelihoods of `without_outliers`.

        The result is that of `transform`. Default: return `logs`, for a calibrator without an outlier probability.
        """
        return logs

    @property
    def largest_llr(self) -> float:
        """Upper bound of calibrated log ratios; infinity if there is none."""
        return np.inf

    def graph(
        self, logs: Mapping[Hypothesis, G], log_sum: Callable[[Sequence[G]], G]
    ) -> dict[Hypothesis, G]:
        """Return calibrated log-likelihoods as `transform` does, by operations of an ONNX graph.

        Optional; models with other calibrators cannot be exported.

        log_sum : returns the log of the sum of exponentials, element by element
        """
        raise ParameterError(
            f"{type(self).__name__} has no form as a graph: calibrate the model with a HypothesisCalibrator"
        )

    def describe(self) -> Json:
        """Return the parameters as plain values."""
        return {**super().describe(), "outlier probability": self.outlier_probability_}
