"""Answers to questions about trials: log-likelihoods of hypotheses, ratios and posteriors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from .._typing import AnyArray, Array, BoolArray, Names, Views
from ..exceptions import DataError, LabelError
from ..kinds import SPOOF
from .question import (
    Hypothesis,
    HypothesisWeights,
    LikelihoodRatio,
    LogLikelihoods,
    NearMatches,
    Question,
    with_countermeasure,
)

V = TypeVar("V")


def hypothesis_name(shared: Hypothesis) -> str:
    """Return the name of a hypothesis: ``speaker+phrase``, ``speaker``, ``nothing``."""
    return "+".join(shared) or "nothing"


def question_key(question: Question, views: Sequence[str]) -> str:
    """Return the canonical text of a question: ``speaker+phrase``, ``speaker``, ``speaker+phrase|phrase known``.

    views : the model's base views, in their order
    """
    given = dict(question.given or {})
    open_views = [view for view in views if view not in given]
    if question.same is not None:
        open_views = [view for view in views if view in question.same]
    facts = [f"{view} {given[view]}" for view in views if view in given]
    facts += [f"{view} known" for view in views if view in question.known_views]
    return "|".join(["+".join(open_views), *facts])


@dataclass(frozen=True, eq=False)
class Answer:
    """Log-likelihoods of weighted hypotheses for a matrix or a list of trials, with LLRs and posteriors.

    All values per trial have the shape of `llr`: (profiles, tests) for a matrix, (trials,) for a list. LLRs, posteriors
    and decisions use the same weighted hypotheses. The hypotheses for the question have a total prior of one half, and
    those against it the other half.

    Parameters
    ----------
    logs : {hypothesis: log-likelihoods}, up to a constant per trial
    ratio : hypotheses for and against, with their log weights
    question : question that the answer is for
    keys : key of each trial's question, see `question_key`; keys differ if profiles have different known classes
    is_calibrated : per trial, whether the log-likelihoods are calibrated for its question
    countermeasure : LLR of a person's voice against a spoof, per trial; None: no countermeasure
    claims : {view: class that the question claims for each trial's profile}
    near_matches : near-match evidence per trial; already included in `logs`
    inliers : log-likelihoods before the outlier probability of a calibration was mixed in, which limits every LLR;
        None: `logs`

    Attributes
    ----------
    llr : natural-log likelihood ratio of the question, including spoofs if there is a countermeasure
    """

    logs: LogLikelihoods
    ratio: LikelihoodRatio
    question: Question
    keys: Names
    is_calibrated: BoolArray
    countermeasure: Array | None = None
    claims: Mapping[str, Names] = field(default_factory=dict)
    near_matches: NearMatches | None = None
    inliers: LogLikelihoods | None = None
    llr: Array = field(init=False)

    def __post_init__(self) -> None:
        # Hypotheses that the question rules out are removed.
        logs = {h: np.asarray(self.logs[h]) for h in self.ratio.hypotheses}
        object.__setattr__(self, "logs", logs)
        if self.inliers is not None:
            inliers = {h: np.asarray(self.inliers[h]) for h in self.ratio.hypotheses}
            object.__setattr__(self, "inliers", inliers)
        self._check_shapes(self.ratio.of(logs).shape)
        object.__setattr__(self, "llr", self._llr(logs))

    def _llr(self, logs: LogLikelihoods) -> Array:
        """Return the LLR of the question from log-likelihoods, including spoofs if there is a countermeasure."""
        llr = self.ratio.of(logs)
        if self.countermeasure is None:
            return llr
        return np.asarray(with_countermeasure(llr, self.countermeasure, self.question.spoof_share))

    def _check_shapes(self, shape: tuple[int, ...]) -> None:
        """Raise `DataError` unless all values per trial have this shape."""
        values_by_name: dict[str, AnyArray] = {
            **{f"logs of {hypothesis_name(h)!r}": values for h, values in self.logs.items()},
            **{
                f"inliers of {hypothesis_name(h)!r}": values
                for h, values in (self.inliers or {}).items()
            },
            **{f"claims of {view!r}": names for view, names in self.claims.items()},
            "keys": self.keys,
            "is_calibrated": self.is_calibrated,
        }
        if self.countermeasure is not None:
            values_by_name["countermeasure"] = self.countermeasure
        if self.near_matches is not None:
            values_by_name |= {
                f"near {name}": getattr(self.near_matches, name)
                for name in ("prior", "llr", "same")
            }
        for name, values in values_by_name.items():
            if np.shape(values) != shape:
                raise DataError(
                    f"the answer is about trials of shape {shape}, but {name} has shape {np.shape(values)}: "
                    "give one value per trial"
                )

    @property
    def key(self) -> str:
        """Canonical text of the question (`question_key`), if it is the same for all trials."""
        keys = np.unique(self.keys)
        if len(keys) != 1:
            raise LabelError(
                f"the trials have different questions, {keys.tolist()}: use Answer.keys"
            )
        return str(keys[0])

    @property
    def calibrated(self) -> bool:
        """Whether all trials are calibrated for their question."""
        return bool(np.all(self.is_calibrated))

    @property
    def weights(self) -> HypothesisWeights:
        """Prior weight of every hypothesis: even odds for and against the question."""
        log_weights = self.ratio.numerator | self.ratio.denominator
        return {h: math.exp(weight) / 2 for h, weight in log_weights.items()}

    def posteriors(self) -> dict[Hypothesis, Array]:
        """Return the posterior of every hypothesis, including a spoof if there is a countermeasure."""
        weighted = self._weighted()
        total = np.logaddexp.reduce(list(weighted.values()), axis=0)
        return {h: np.exp(values - total) for h, values in weighted.items()}

    def log_odds_of(self, view: str) -> Array:
        """Return the posterior log odds of "same" against "different" in a view, without the spoof hypothesis."""
        weighted = self._weighted()
        weighted.pop((SPOOF,), None)
        same, different = self._split_by_view(view, weighted)
        ratio = np.logaddexp.reduce(same, axis=0) - np.logaddexp.reduce(different, axis=0)
        return np.asarray(ratio)

    def llr_of(self, view: str) -> Array:
        """Return the log ratio of "same" to "different" in a view, with the `weights` of the other views.

        Without a countermeasure, the posterior log odds of a view are this plus its prior log odds.
        """
        log_weights = {h: math.log(weight) for h, weight in self.weights.items()}
        joint = {h: self.logs[h] + weight for h, weight in log_weights.items()}
        same, different = self._split_by_view(view, joint)
        prior_same, prior_different = (
            np.logaddexp.reduce(weights) for weights in self._split_by_view(view, log_weights)
        )
        ratio = np.logaddexp.reduce(same, axis=0) - np.logaddexp.reduce(different, axis=0)
        return np.asarray(ratio - prior_same + prior_different)

    @property
    def inlier_llr(self) -> Array:
        """LLR of the question without the outlier probability of a calibration."""
        return self.llr if self.inliers is None else self._llr(self.inliers)

    def half_llr(self, view: str) -> Array:
        """Return the LLR of the question about this view alone, at even odds of the other views.

        Thresholds of halves (`OperatingPoint.halves`) apply to it. Unlike `llr_of`, it is the evidence about this view
        only, if the evidence about the views is independent, and no outlier probability limits it.
        """
        same, different = self._split_by_view(view, self.inliers or self.logs)
        counts = math.log(len(different)) - math.log(len(same))
        ratio = np.logaddexp.reduce(same, axis=0) - np.logaddexp.reduce(different, axis=0)
        return np.asarray(ratio + counts)  # (V19)

    def _weighted(self) -> dict[Hypothesis, AnyArray]:
        """Return the log of weight times likelihood per hypothesis; includes a spoof with a countermeasure."""
        target = {h: self.logs[h] + weight for h, weight in self.ratio.numerator.items()}
        alternatives = {h: self.logs[h] + weight for h, weight in self.ratio.denominator.items()}
        if self.countermeasure is None:
            return target | alternatives
        share = self.question.spoof_share
        with np.errstate(divide="ignore"):
            log_share, log_genuine_share = np.log([share, 1.0 - share])
        # An infinite ratio would give NaN; the posteriors of a ratio of 1e12 are the same.
        bona_fide_llr = np.clip(self.countermeasure, -1e12, 1e12)
        spoof = np.logaddexp.reduce(list(target.values()), axis=0) - bona_fide_llr + log_share
        genuine = {h: log_genuine_share + values for h, values in alternatives.items()}
        return target | genuine | {(SPOOF,): spoof}

    def _split_by_view(self, view: str, values: Mapping[Hypothesis, V]) -> tuple[list[V], list[V]]:
        """Return the values of the hypotheses with a view, and of those without it."""
        same = [value for h, value in values.items() if view in h]
        different = [value for h, value in values.items() if view not in h]
        if not same or not different:
            raise LabelError(
                f"the answer has no LLR of view {view!r}: the question fixes it, or the model has no such view"
            )
        return same, different

    @property
    def views(self) -> Views:
        """Views in which the hypotheses differ."""
        views = dict.fromkeys(view for h in self.logs for view in h)
        return tuple(view for view in views if not all(view in h for h in self.logs))

    def take(self, *index: int) -> Answer:
        """Return the answer for one trial of the matrix or list, as arrays without dimensions."""
        if len(index) != self.llr.ndim:
            raise DataError(
                f"expected {self.llr.ndim} indices for an answer of shape {self.llr.shape}; got {index}"
            )
        claims = {view: np.asarray(names[index]) for view, names in self.claims.items()}
        countermeasure = None
        if self.countermeasure is not None:
            countermeasure = np.asarray(self.countermeasure[index])
        near_matches = None
        if self.near_matches is not None:
            view, *columns = self.near_matches
            near_matches = NearMatches(view, *(np.asarray(column[index]) for column in columns))
        inliers = None
        if self.inliers is not None:
            inliers = {h: np.asarray(values[index]) for h, values in self.inliers.items()}
        return replace(
            self,
            logs={h: np.asarray(values[index]) for h, values in self.logs.items()},
            question=_question_for_trial(self.question, claims, countermeasure),
            keys=np.asarray(self.keys[index]),
            is_calibrated=np.asarray(self.is_calibrated[index]),
            countermeasure=countermeasure,
            claims=claims,
            near_matches=near_matches,
            inliers=inliers,
        )


def _question_for_trial(
    question: Question, claims: Mapping[str, Names], countermeasure: Array | None
) -> Question:
    """Return the question with its values per profile and per test replaced by those of one trial."""
    if claims:
        question = replace(question, known={view: [name.item()] for view, name in claims.items()})
    if countermeasure is not None:
        question = replace(question, countermeasure=float(countermeasure))
    return question
