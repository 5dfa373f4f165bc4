"""Errors over several divisions of the people, and paired ratios of two systems with intervals over people.

The EER of a system is the mean over divisions. An interval comes from a bootstrap over people: a person who is tested
in several divisions is drawn, or not, in all of them, and both systems are measured on the same draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.evidence_data import Split
from mvplda.metrics.catalogue import metrics_of
from mvplda.metrics.comparison import paired_test
from mvplda.metrics.intervals import WeightedTrials, weighted_trials

Array = np.ndarray
Scores = Sequence[Array]
"""Scores of the trials of each division."""
KINDS = ("IW", "IC", "TW", "Total")
RESAMPLES = 200
EER = next(metric for metric in metrics_of(("default",), ()) if metric.name == "eer")


class Errors:
    """Error rates of systems on the trials of several divisions.

    splits : the divisions
    kinds : rows of the table, such as `KINDS`
    resamples : number of draws of the people
    """

    def __init__(
        self, splits: Sequence[Split], kinds: Sequence[str] = KINDS, resamples: int = RESAMPLES
    ) -> None:
        self.splits = splits
        self.kinds = kinds
        self.present = [np.unique(np.concatenate(split.people)) for split in splits]
        everybody = np.unique(np.concatenate(self.present))
        rng = np.random.default_rng(0)
        draws = np.zeros((resamples, everybody.max() + 1))
        for row in draws:
            drawn = rng.choice(everybody, len(everybody))
            row += np.bincount(drawn, minlength=len(row))
        self.draws = draws
        self.n_people = len(everybody)
        self._replicates: dict[str, dict[str, Array]] = {}

    def trials(self, scores: Scores) -> list[dict[str, WeightedTrials]]:
        """Return the trials of each division, sorted by the scores."""
        return [
            weighted_trials(values, split.kinds, split.people, split.weights)
            for values, split in zip(scores, self.splits, strict=True)
        ]

    def values(self, scores: Scores) -> dict[str, list[float]]:
        """Return the EER of each kind in every division, in per cent."""
        by_split = self.trials(scores)
        return {
            kind: [100 * float(EER.value(trials[kind].whole())) for trials in by_split]
            for kind in self.kinds
        }

    def ratios(self, name_a: str, a: Scores, name_b: str, b: Scores) -> dict[str, Any]:
        """Return the ratio of the mean EERs of two systems with its interval, by kind other than IW.

        IW has too few errors for a ratio in most data sets.

        name_a, name_b : names under which the replicates of a system are cached
        """
        return self.ratios_of(self._cached(name_a, a), self._cached(name_b, b))

    def ratios_of(self, a: Mapping[str, Array], b: Mapping[str, Array]) -> dict[str, Any]:
        """Return the ratios of two systems from their replicates, the value on everybody first."""
        rows = {}
        for kind in a:
            test = paired_test(a[kind], b[kind], self.n_people)
            ends = (test.ratio_low, test.ratio_high)
            row = {"ratio": test.ratio if np.isfinite(test.ratio) else None}
            if np.isfinite(ends).all():
                row |= {"low": ends[0], "high": ends[1]}
            rows[kind] = row
        return rows

    def _cached(self, name: str, scores: Scores) -> dict[str, Array]:
        if name not in self._replicates:
            by_split = self.trials(scores)
            self._replicates[name] = {
                kind: self.replicates([_eer_under(trials[kind]) for trials in by_split])
                for kind in self.kinds
                if kind != "IW"
            }
        return self._replicates[name]

    def replicates(self, measures: Sequence[Callable[[Array], float]]) -> Array:
        """Return the mean over divisions of a measure, for everybody and for each draw of the people.

        measures : function per division of the multiplicities of its people; the last entry, 1, is "the same person"
        """
        values = np.empty((len(self.draws) + 1, len(measures)))
        for column, (present, measure) in enumerate(zip(self.present, measures, strict=True)):
            values[0, column] = measure(np.ones(len(present) + 1))
            for row, draw in enumerate(self.draws, start=1):
                values[row, column] = measure(np.append(draw[present], 1.0))
        return np.asarray(values.mean(axis=1))


def _eer_under(trials: WeightedTrials) -> Callable[[Array], float]:
    """Return the EER as a function of the multiplicities of the people."""

    def measure(multiplicity: Array) -> float:
        curve = trials.under(multiplicity)
        return float("nan") if curve is None else float(EER.value(curve))

    return measure
