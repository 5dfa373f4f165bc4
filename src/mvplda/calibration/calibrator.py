"""Base class of the calibrators that a bundle (a trained model file) applies to log-likelihoods of hypotheses."""

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
"""Amounts of evidence per trial by name, {name: (n,) values}, such as log seconds of speech.

See `Deployable.evidence_measures`.
"""


class GraphArray(Protocol):
    """Array in an ONNX graph: each arithmetic operation adds a node to the graph."""

    def __add__(self, other: Self | float, /) -> Self: ...
    def __sub__(self, other: Self | float, /) -> Self: ...
    def __mul__(self, other: Self | float, /) -> Self: ...


G = TypeVar("G", bound=GraphArray)


class Calibrator(Persistent, Estimator, ABC):
    """Base class: maps log-likelihoods of hypotheses to calibrated log-likelihoods.

    To add a calibrator, write one module with a class that has `fit`, `transform` and `FITTED` (the
    names of its fitted attributes). Import it in ``mvplda/calibration/__init__.py``, or register it
    as an entry point of the group ``mvplda.calibrators``. Pass an instance to `mvplda.train`:
    bundles apply and save it, and `mvplda.load` finds its class by name.
    ``tests/calibration/test_calibrators.py`` has an example.
    """

    KIND: ClassVar[str] = "calibrator"

    n_speakers_: int
    """Number of enrolled speakers in the fit."""

    outlier_probability_: float = 0.0
    """Probability that the model is uninformative about a trial; 0 for calibrators without outliers."""

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
        logs : {hypothesis: (n,) log-likelihoods}; the first hypothesis shares all views
        truth : (n,) index of the true hypothesis of each trial among the keys of `logs`
        speakers : (n,) speaker of the enrolment of each trial
        corpora : (n,) corpus of each trial; all corpora have the same total weight. None: a single
            corpus
        near_matches : evidence whether each trial is a near match, such as a phrase with one word
            replaced; None: the scorer has no such evidence
        measures : {name: (n,) value per trial}, such as the log of the seconds of speech; None: no
            measures
        test_speakers : (n,) speaker of the test of each trial, if known

        Returns
        -------
        self
        """

    @abstractmethod
    def transform(
        self,
        logs: LogLikelihoods,
        near_matches: NearMatches | None = None,
        measures: Measures | None = None,
    ) -> LogLikelihoods:
        """Return calibrated log-likelihoods.

        Parameters
        ----------
        logs : {hypothesis: log-likelihoods}, arrays of one shape
        near_matches : evidence whether each trial is a near match, such as a phrase with one word
            replaced; None: there is none
        measures : {name: one value per trial}, such as the log of the seconds of speech; None: no
            measures

        Returns
        -------
        dict of {hypothesis: log-likelihoods}, arrays of the shape of those in `logs`
        """

    def without_outliers(
        self,
        logs: LogLikelihoods,
        near_matches: NearMatches | None = None,
        measures: Measures | None = None,
    ) -> LogLikelihoods:
        """Return calibrated log-likelihoods before the outlier probability is mixed in.

        The outlier probability bounds every LLR. Thresholds of a single view apply to LLRs without
        this bound (`Answer.half_llr`), which are computed from the result of this method.
        Calibrators without an outlier probability need not override it: it returns the result of
        `transform`. The parameters are those of `transform`.
        """
        return self.transform(logs, near_matches, measures)

    def add_outliers(self, logs: LogLikelihoods) -> LogLikelihoods:
        """Mix the outlier probability into the log-likelihoods that `without_outliers` returned.

        The result equals that of `transform`. Calibrators without an outlier probability need not
        override this method: it returns `logs` unchanged.

        logs : {hypothesis: log-likelihoods}
        """
        return logs

    @property
    def largest_llr(self) -> float:
        """Upper bound of calibrated LLRs; infinity if there is none."""
        return np.inf

    def graph(
        self, logs: Mapping[Hypothesis, G], log_sum: Callable[[Sequence[G]], G]
    ) -> dict[Hypothesis, G]:
        """Return the calibrated log-likelihoods of `transform` as operations of an ONNX graph.

        Optional: a model can be exported only if its calibrator overrides this method.

        Parameters
        ----------
        logs : {hypothesis: graph array of log-likelihoods}
        log_sum : function from a list of graph arrays to the logarithm of the sum of their
            exponentials

        Raises
        ------
        ParameterError
            The calibrator cannot be exported to ONNX.
        """
        raise ParameterError(
            f"a model with {type(self).__name__} cannot be exported to ONNX: calibrate it with a HypothesisCalibrator"
        )

    def describe(self) -> Json:
        """Return the settings and the outlier probability, {name: number or text}."""
        return {**super().describe(), "outlier probability": self.outlier_probability_}
