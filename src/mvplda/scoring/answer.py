"""Answers to questions about trials: log-likelihoods of hypotheses, LLRs and posteriors."""

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
    """Return the name of a hypothesis: its shared views, joined by "+".

    An example is ``speaker+phrase``. The name of the hypothesis without shared views is ``nothing``.
    """
    return "+".join(shared) or "nothing"


def question_key(question: Question, views: Sequence[str]) -> str:
    """Return a question as text; equal questions have equal texts.

    An example is ``speaker|phrase same|speaker known``: first the views in question, then the given
    relations (``Question.given``), and last the views whose training classes are used
    (``Question.known``).

    views : base views of the model, in order
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
    """Log-likelihoods of the hypotheses of a question for each trial, with LLRs and posteriors.

    All arrays have one value per trial: shape (profiles, tests) for a matrix of trials, (trials,)
    for a list. Hypotheses for the question have a total prior probability of 1/2, and so have those
    against it.

    Parameters
    ----------
    logs : {hypothesis: log-likelihoods}; a constant may be added to all hypotheses of a trial
    ratio : hypotheses for and against the question, with their log weights
    question : the question that was asked
    keys : text of each trial's question, see `question_key`; it depends on which profiles belong to
        training classes
    is_calibrated : per trial, whether the log-likelihoods are calibrated for its question
    countermeasure : per trial, LLR of a person's voice against a spoof; None: no countermeasure
    claims : {view: class that the question claims for each trial's profile}
    near_matches : near-match evidence per trial, already included in `logs`
    inliers : {hypothesis: log-likelihoods} before the calibration mixed in its outlier probability,
        so that LLRs have no bound; None: the same as `logs`

    Attributes
    ----------
    llr : natural-log likelihood ratio of the question; if there is a countermeasure, spoofs count
        as trials to be rejected
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
        # drop hypotheses that the question rules out
        logs = {h: np.asarray(self.logs[h]) for h in self.ratio.hypotheses}
        object.__setattr__(self, "logs", logs)
        if self.inliers is not None:
            inliers = {h: np.asarray(self.inliers[h]) for h in self.ratio.hypotheses}
            object.__setattr__(self, "inliers", inliers)
        self._check_shapes(self.ratio.of(logs).shape)
        object.__setattr__(self, "llr", self._llr(logs))

    def _llr(self, logs: LogLikelihoods) -> Array:
        """Return the LLR of the question; with a countermeasure, spoofs count as trials to be rejected.

        logs : {hypothesis: log-likelihoods} of all hypotheses of the ratio
        """
        llr = self.ratio.of(logs)
        if self.countermeasure is None:
            return llr
        return np.asarray(with_countermeasure(llr, self.countermeasure, self.question.spoof_share))

    def _check_shapes(self, shape: tuple[int, ...]) -> None:
        """Raise `DataError` unless all arrays with one value per trial have the given shape."""
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
                f"near_matches.{name}": getattr(self.near_matches, name)
                for name in ("prior", "llr", "same")
            }
        for name, values in values_by_name.items():
            if np.shape(values) != shape:
                raise DataError(
                    f"{name} must have one value per trial, shape {shape}; got shape {np.shape(values)}"
                )

    @property
    def key(self) -> str:
        """Text of the question, see `question_key`; raises `LabelError` if it differs between trials."""
        keys = np.unique(self.keys)
        if len(keys) != 1:
            raise LabelError(
                f"Answer.key requires trials with a single question; these have {keys.tolist()}. Use Answer.keys, "
                "with one key per trial"
            )
        return str(keys[0])

    @property
    def calibrated(self) -> bool:
        """Whether the log-likelihoods of all trials are calibrated for their question."""
        return bool(np.all(self.is_calibrated))

    @property
    def weights(self) -> HypothesisWeights:
        """Prior probability of every hypothesis.

        Hypotheses for the question add up to 1/2, and so do hypotheses against it.
        """
        log_weights = self.ratio.numerator | self.ratio.denominator
        return {h: math.exp(weight) / 2 for h, weight in log_weights.items()}

    def posteriors(self) -> dict[Hypothesis, Array]:
        """Return the posterior probability of every hypothesis, per trial.

        With a countermeasure, a spoof is one of the hypotheses, under the key ("spoof",).
        """
        weighted = self._weighted()
        total = np.logaddexp.reduce(list(weighted.values()), axis=0)
        return {h: np.exp(values - total) for h, values in weighted.items()}

    def log_odds_of(self, view: str) -> Array:
        """Return, per trial, the posterior log odds that both sides have the same class in a view.

        Spoofs are not considered. Raises `LabelError` if all hypotheses share the view, or none.
        """
        weighted = self._weighted()
        weighted.pop((SPOOF,), None)
        same, different = self._split_by_view(view, weighted)
        ratio = np.logaddexp.reduce(same, axis=0) - np.logaddexp.reduce(different, axis=0)
        return np.asarray(ratio)

    def llr_of(self, view: str) -> Array:
        """Return, per trial, the LLR that both sides have the same class in a view.

        Hypotheses that share the view, and the others, are averaged with their `weights`. Without a
        countermeasure, adding the prior log odds of the view gives `log_odds_of`. Raises
        `LabelError` if all hypotheses share the view, or none.
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
        """LLR of the question before the calibration mixed in its outlier probability.

        It equals `llr` if the calibration has no outlier probability.
        """
        return self.llr if self.inliers is None else self._llr(self.inliers)

    def half_llr(self, view: str) -> Array:
        """Return, per trial, the LLR of one half of the question: of the voice or of the words alone.

        The LLR is that both sides have the same class in `view`. It averages the hypotheses that
        share the view with equal weights, and likewise the others, whatever the priors of the
        question. If the evidence about the views is independent, it contains the evidence about
        this view only, unlike `llr_of`. No outlier probability bounds it. The thresholds in
        `OperatingPoint.halves` apply to it. Raises `LabelError` if all hypotheses share the view,
        or none.
        """
        same, different = self._split_by_view(view, self.inliers or self.logs)
        counts = math.log(len(different)) - math.log(len(same))
        ratio = np.logaddexp.reduce(same, axis=0) - np.logaddexp.reduce(different, axis=0)
        return np.asarray(ratio + counts)  # (V19)

    def _weighted(self) -> dict[Hypothesis, AnyArray]:
        """Return log(prior weight times likelihood) per hypothesis, {hypothesis: one value per trial}.

        With a countermeasure, a spoof is one of the hypotheses, under the key ("spoof",).
        """
        target = {h: self.logs[h] + weight for h, weight in self.ratio.numerator.items()}
        alternatives = {h: self.logs[h] + weight for h, weight in self.ratio.denominator.items()}
        if self.countermeasure is None:
            return target | alternatives
        share = self.question.spoof_share
        with np.errstate(divide="ignore"):
            log_share, log_genuine_share = np.log([share, 1.0 - share])
        # An infinite LLR would give NaN; an LLR of 1e12 has the same posteriors.
        bona_fide_llr = np.clip(self.countermeasure, -1e12, 1e12)
        spoof = np.logaddexp.reduce(list(target.values()), axis=0) - bona_fide_llr + log_share
        genuine = {h: log_genuine_share + values for h, values in alternatives.items()}
        return target | genuine | {(SPOOF,): spoof}

    def _split_by_view(self, view: str, values: Mapping[Hypothesis, V]) -> tuple[list[V], list[V]]:
        """Return two lists of values: of the hypotheses that share the view, and of the others.

        Raise `LabelError` if one of the lists would be empty.

        values : {hypothesis: value}
        """
        same = [value for h, value in values.items() if view in h]
        different = [value for h, value in values.items() if view not in h]
        if not same or not different:
            raise LabelError(
                f"the answer has no LLR of view {view!r}, because the question fixes the view or the model has no such "
                f"view; views with an LLR: {list(self.views)}"
            )
        return same, different

    @property
    def views(self) -> Views:
        """Views in which the hypotheses differ: some contain the view, others do not."""
        views = dict.fromkeys(view for h in self.logs for view in h)
        return tuple(view for view in views if not all(view in h for h in self.logs))

    def take(self, *index: int) -> Answer:
        """Return the answer for one trial, with 0-dimensional arrays.

        index : row and column if the trials are a matrix, position if they are a list
        """
        if len(index) != self.llr.ndim:
            raise DataError(
                f"Answer.take expects {self.llr.ndim} number(s) for an answer of shape {self.llr.shape}; got {index}"
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
    """Return the question reduced to a single trial.

    claims : {view: class claimed in this trial}, which replaces the classes of all profiles
    countermeasure : LLR of this trial's test, which replaces the LLRs of all tests; None: there is
        no countermeasure
    """
    if claims:
        question = replace(question, known={view: [name.item()] for view, name in claims.items()})
    if countermeasure is not None:
        question = replace(question, countermeasure=float(countermeasure))
    return question
