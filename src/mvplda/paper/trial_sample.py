"""Random sample of trials, the same for all systems of an experiment, for intervals and comparisons."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._typing import BoolArray, IntArray, Names
from ..exceptions import DataError
from ..metrics import compare_systems, speaker_intervals
from ..metrics.comparison import SystemComparison
from ..metrics.intervals import Intervals
from .experiment_settings import EvaluationSettings
from .systems import Task

MAX_TRIALS = 2_000_000
"""Maximum number of sampled trials per kind; error rates use all trials."""


@dataclass(frozen=True)
class TrialSample:
    """Sample of n trials for intervals and comparisons, the same for every system.

    positions : (n,) indices of the trials in the flattened (enrolments, tests) score matrix
    kinds : {kind of trial: (n,) mask of its trials}
    weights : {kind of trial: number of trials that each sampled trial represents}
    people : enrolled speaker, and tested speaker, of each trial, (n,) each, as integers that stand for their names
    """

    positions: IntArray
    kinds: dict[str, BoolArray]
    weights: dict[str, float]
    people: tuple[Names, Names]

    @classmethod
    def of(cls, task: Task, max_trials: int = MAX_TRIALS) -> TrialSample:
        """Draw at random at most `max_trials` trials of every kind from a verification task; the seed is fixed."""
        # a fixed seed: all systems are compared on the same trials
        rng = np.random.default_rng(0)
        sampled = []
        weights = {}
        for kind, mask in task.kinds.items():
            positions = np.flatnonzero(mask)
            count = len(positions)
            if count > max_trials:
                positions = positions[np.unique(rng.integers(count, size=max_trials))]
            # 1 for a kind without trials, whose weight is never used
            weights[kind] = max(1, count) / max(1, len(positions))
            sampled.append(positions)
        positions = np.concatenate(sampled)
        kinds = {kind: mask.reshape(-1)[positions] for kind, mask in task.kinds.items()}

        # speakers as numbers instead of names, because there are millions of trials
        speaker = task.views[0]
        enrolled = task.model_labels[speaker]
        speakers = np.concatenate([enrolled, task.test_labels[speaker]])
        codes = np.unique(speakers, return_inverse=True)[1].astype(np.int32)
        row, column = np.divmod(positions, len(task.test))
        return cls(positions, kinds, weights, (codes[row], codes[len(enrolled) + column]))

    def of_enrolments(self, mask: BoolArray, n_tests: int) -> TrialSample:
        """Return the part of the sample that belongs to the enrolments in a mask.

        mask : (enrolments,) True for the enrolments whose trials are returned
        n_tests : number of tests, the columns of the score matrix
        """
        chosen = mask[self.positions // n_tests]
        kinds = {kind: trials[chosen] for kind, trials in self.kinds.items()}
        enrolled, tested = self.people
        people = enrolled[chosen], tested[chosen]
        return TrialSample(self.positions[chosen], kinds, self.weights, people)

    def scores(self, matrix: Names) -> Names:
        """Return the (n,) scores of the sampled trials from the (enrolments, tests) score matrix."""
        return matrix.reshape(-1)[self.positions]

    def intervals(self, scores: Names, settings: EvaluationSettings) -> Intervals | None:
        """Return intervals of error rates over speakers; None if there are too few speakers.

        Returns None also if ``settings.resamples`` is 0, which disables intervals.

        scores : (n,) scores of the sampled trials
        """
        if not settings.resamples:
            return None
        try:
            return speaker_intervals(scores, self.kinds, *self.people, weights=self.weights)
        except DataError:
            return None

    def compare(
        self, scores: Names, reference: Names, settings: EvaluationSettings
    ) -> SystemComparison:
        """Compare the error rates of two systems on the same resamples of speakers.

        scores : (n,) scores of the sampled trials by the first system
        reference : (n,) scores by the system that it is compared with
        """
        return compare_systems(
            scores,
            reference,
            self.kinds,
            *self.people,
            weights=self.weights,
            n_resamples=settings.resamples,
            random_state=0,
        )
