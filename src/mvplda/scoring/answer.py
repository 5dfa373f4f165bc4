"""The answer to a question about trials: log-likelihoods of hypotheses, ratios and posteriors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from .._typing import Array, BoolArray, Names, Views
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
    """A hypothesis in words: ``speaker+phrase``, ``speaker``, ``nothing``."""
    return "+".join(shared) or "nothing"


def question_key(question: Question, views: Sequence[str]) -> str:
    """The canonical text of a question: ``speaker+phrase``, ``speaker``, ``speaker+phrase|phrase known``.

    views : the model's base views, in their order
    """
    given = dict(question.given or {})
    asked = [view for view in views if view not in given]
    if question.same is not None:
        asked = [view for view in views if view in question.same]
    facts = [f"{view} {given[view]}" for view in views if view in given]
    facts += [f"{view} known" for view in views if view in question.known_views]
    return "|".join(["+".join(asked), *facts])


@dataclass(frozen=True, eq=False)
class Answer:
    """Log-likelihoods of weighted hypotheses for a matrix or a list of trials, and all that follows from them.

    Everything that belongs to a trial has the shape of `llr`, (profiles, tests) or (trials,), so that a matrix, a list
    and `take` cannot differ. LLR, half LLRs, probabilities and decisions come from one weighted set of hypotheses:
    those for the question weigh one half together, and so do those against it.

    Parameters
    ----------
    logs : {hypothesis: log-likelihoods}, up to a constant per trial
    ratio : hypotheses for and against, with their log weights
    question : the question, as it was asked
    keys : text of the question that each trial was answered by, see `question_key`; known classes may differ by profile
    is_calibrated : whether each trial is calibrated for its question
    countermeasure : LLR of a person's voice against a spoof, per trial; None: no countermeasure
    claims : {view: class that the question names for the trial's profile}
    near_matches : evidence of near matches, per trial; already part of `logs`

    Attributes
    ----------
    llr : natural-log likelihood ratio that answers the question, spoofs included
    """

    logs: LogLikelihoods
    ratio: LikelihoodRatio
    question: Question
    keys: Names
    is_calibrated: BoolArray
    countermeasure: Array | None = None
    claims: Mapping[str, Names] = field(default_factory=dict)
    near_matches: NearMatches | None = None
    llr: Array = field(init=False)

    def __post_init__(self) -> None:
        # what the question rules out is no part of the answer
        logs = {h: np.asarray(self.logs[h]) for h in self.ratio.hypotheses}
        object.__setattr__(self, "logs", logs)
        llr = self.ratio.of(logs)
        self._check_shapes(llr.shape)
        if self.countermeasure is not None:
            llr = np.asarray(
                with_countermeasure(llr, self.countermeasure, self.question.spoof_share)
            )
        object.__setattr__(self, "llr", llr)

    def _check_shapes(self, shape: tuple[int, ...]) -> None:
        parts: dict[str, Array | Names | BoolArray] = {
            **{f"logs of {hypothesis_name(h)!r}": values for h, values in self.logs.items()},
            **{f"claims of {view!r}": names for view, names in self.claims.items()},
            "keys": self.keys,
            "is_calibrated": self.is_calibrated,
        }
        if self.countermeasure is not None:
            parts["countermeasure"] = self.countermeasure
        if self.near_matches is not None:
            parts |= {
                f"near {name}": getattr(self.near_matches, name)
                for name in ("prior", "llr", "same")
            }
        for name, values in parts.items():
            if np.shape(values) != shape:
                raise DataError(
                    f"the answer is about trials of shape {shape}, {name} has shape {np.shape(values)}: give one value "
                    "per trial"
                )

    @property
    def key(self) -> str:
        """Text of the question, where all trials were answered by one."""
        keys = np.unique(self.keys)
        if len(keys) != 1:
            raise LabelError(
                f"the trials were answered by different questions, {keys.tolist()}: see Answer.keys"
            )
        return str(keys[0])

    @property
    def calibrated(self) -> bool:
        """Whether all trials are calibrated for their question."""
        return bool(np.all(self.is_calibrated))

    @property
    def weights(self) -> HypothesisWeights:
        """Prior weight of every hypothesis: even odds for and against the question."""
        both = self.ratio.numerator | self.ratio.denominator
        return {h: math.exp(weight) / 2 for h, weight in both.items()}

    def posteriors(self) -> dict[Hypothesis, Array]:
        """Posterior probability of every hypothesis, of a spoof where there is a countermeasure."""
        weighted = self._weighted()
        total = np.logaddexp.reduce(list(weighted.values()), axis=0)
        return {h: np.exp(values - total) for h, values in weighted.items()}

    def log_odds_of(self, view: str) -> Array:
        """Posterior log odds of "same in this view" against "different in it", of a recording that is no spoof."""
        weighted = self._weighted()
        weighted.pop((SPOOF,), None)
        same, other = self._sides(view, weighted)
        return np.asarray(np.logaddexp.reduce(same, axis=0) - np.logaddexp.reduce(other, axis=0))

    def llr_of(self, view: str) -> Array:
        """Log ratio of "same in this view" to "different in it": other views weigh as in `weights`.

        The posterior log odds of a view are this plus the prior log odds, without a countermeasure.
        """
        log_weights = {h: math.log(weight) for h, weight in self.weights.items()}
        same, other = self._sides(view, {h: self.logs[h] + w for h, w in log_weights.items()})
        priors = [np.logaddexp.reduce(side) for side in self._sides(view, log_weights)]
        ratio = np.logaddexp.reduce(same, axis=0) - np.logaddexp.reduce(other, axis=0)
        return np.asarray(ratio - priors[0] + priors[1])

    def _weighted(self) -> dict[Hypothesis, Array]:
        """Log of weight times likelihood of every hypothesis, and of a spoof where there is a countermeasure."""
        target = {h: self.logs[h] + weight for h, weight in self.ratio.numerator.items()}
        others = {h: self.logs[h] + weight for h, weight in self.ratio.denominator.items()}
        if self.countermeasure is None:
            return target | others
        share = self.question.spoof_share
        with np.errstate(divide="ignore"):
            log_share, log_rest = np.log([share, 1.0 - share])
        # infinite ratios: the others' posteriors are 0 all the same
        traces = np.clip(self.countermeasure, -1e12, 1e12)
        spoof = np.logaddexp.reduce(list(target.values()), axis=0) - traces + log_share
        return target | {h: log_rest + values for h, values in others.items()} | {(SPOOF,): spoof}

    def _sides(self, view: str, values: Mapping[Hypothesis, V]) -> tuple[list[V], list[V]]:
        """Values of the hypotheses with a view, and of those without it."""
        same = [value for h, value in values.items() if view in h]
        other = [value for h, value in values.items() if view not in h]
        if not same or not other:
            raise LabelError(f"nothing is open about view {view!r}: it is given, or no view")
        return same, other

    @property
    def views(self) -> Views:
        """Views that hypotheses differ in."""
        every = list(self.logs)
        named = dict.fromkeys(view for h in every for view in h)
        return tuple(view for view in named if not all(view in h for h in every))

    def take(self, *index: int) -> Answer:
        """The answer to one trial of the matrix or list, as arrays of no dimensions."""
        if len(index) != self.llr.ndim:
            raise DataError(
                f"a trial of an answer of shape {self.llr.shape} has {self.llr.ndim} numbers; got {index}"
            )
        claims = {view: np.asarray(names[index]) for view, names in self.claims.items()}
        countermeasure = None
        if self.countermeasure is not None:
            countermeasure = np.asarray(self.countermeasure[index])
        near_matches = None
        if self.near_matches is not None:
            view, *columns = self.near_matches
            near_matches = NearMatches(view, *(np.asarray(column[index]) for column in columns))
        return replace(
            self,
            logs={h: np.asarray(values[index]) for h, values in self.logs.items()},
            question=_question_for_trial(self.question, claims, countermeasure),
            keys=np.asarray(self.keys[index]),
            is_calibrated=np.asarray(self.is_calibrated[index]),
            countermeasure=countermeasure,
            claims=claims,
            near_matches=near_matches,
        )


def _question_for_trial(
    question: Question, claims: Mapping[str, Names], countermeasure: Array | None
) -> Question:
    """The question about one trial: what it gives per profile or per test is that of the trial."""
    if claims:
        question = replace(question, known={view: [name.item()] for view, name in claims.items()})
    if countermeasure is not None:
        question = replace(question, countermeasure=float(countermeasure))
    return question
