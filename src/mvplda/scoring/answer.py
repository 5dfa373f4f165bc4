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
    """Return the name of a hypothesis: its shared views joined by "+", such as ``speaker+phrase``;
    ``nothing`` without any.
    """
    return "+".join(shared) or "nothing"


def question_key(question: Question, views: Sequence[str]) -> str:
    """Return the canonical text of a question, such as ``speaker+phrase`` or ``speaker|phrase same|speaker known``.

    The views in question come first, then the relations of `given`, and last the views whose
    training classes are used (`known`).

    question : the question
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
    """Log-likelihoods of weighted hypotheses for a matrix or a list of trials, with LLRs and posteriors.

    All values per trial have the shape of `llr`: (profiles, tests) for a matrix, (trials,) for a
    list. LLRs, posteriors and decisions use the same weighted hypotheses. The hypotheses for the
    question have a total prior of one half, and those against it the other half.

    Parameters
    ----------
    logs : {hypothesis: log-likelihoods}, up to a constant per trial
    ratio : hypotheses for and against, with their log weights
    question : the question that was asked
    keys : key of each trial's question, see `question_key`; keys differ if profiles have different
        known classes
    is_calibrated : per trial, whether the log-likelihoods are calibrated for its question
    countermeasure : per trial, LLR of a person's voice against a spoof; None: no countermeasure
    claims : {view: class that the question claims for each trial's profile}
    near_matches : near-match evidence per trial, already included in `logs`
    inliers : log-likelihoods before the calibration mixed in its outlier probability, which bounds
        every LLR; None: the same as `logs`

    Attributes
    ----------
    llr : natural-log likelihood ratio of the question, including spoofs if there is a
        countermeasure
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
        """Return the LLR of the question from log-likelihoods, including spoofs if there is a countermeasure.

        logs : {hypothesis: log-likelihoods} of all hypotheses of the ratio
        """
        llr = self.ratio.of(logs)
        if self.countermeasure is None:
            return llr
        return np.asarray(with_countermeasure(llr, self.countermeasure, self.question.spoof_share))

    def _check_shapes(self, shape: tuple[int, ...]) -> None:
        """Raise `DataError` unless all values per trial have the given shape."""
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
        """Canonical text of the question (`question_key`) if all trials have the same; else raises `LabelError`."""
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
        """Prior weight of every hypothesis; those for the question add up to 1/2, those against it to 1/2."""
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
        """Return per trial the posterior log odds of "same" against "different" in one view.

        The spoof hypothesis is left out. Raises `LabelError` if the hypotheses do not differ in the
        view.
        """
        weighted = self._weighted()
        weighted.pop((SPOOF,), None)
        same, different = self._split_by_view(view, weighted)
        ratio = np.logaddexp.reduce(same, axis=0) - np.logaddexp.reduce(different, axis=0)
        return np.asarray(ratio)

    def llr_of(self, view: str) -> Array:
        """Return per trial the log ratio of "same" to "different" in one view.

        The hypotheses on each side keep their `weights`. Without a countermeasure, the posterior
        log odds of the view are this ratio plus the prior log odds. Raises `LabelError` if the
        hypotheses do not differ in the view.
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
        """LLR of the question without the outlier probability of a calibration; `llr` if there is none."""
        return self.llr if self.inliers is None else self._llr(self.inliers)

    def half_llr(self, view: str) -> Array:
        """Return per trial the LLR of one half of the question: one view alone, such as the voice or the words.

        All hypotheses with the view have equal weights, and so have all without it. Thresholds of
        halves (`OperatingPoint.halves`) apply to this LLR. No outlier probability bounds it. If the
        evidence about the views is independent, it is the evidence about this view only, in
        contrast to `llr_of`.
        """
        same, different = self._split_by_view(view, self.inliers or self.logs)
        counts = math.log(len(different)) - math.log(len(same))
        ratio = np.logaddexp.reduce(same, axis=0) - np.logaddexp.reduce(different, axis=0)
        return np.asarray(ratio + counts)  # (V19)

    def _weighted(self) -> dict[Hypothesis, AnyArray]:
        """Return the log of weight times likelihood per hypothesis; with a countermeasure, also of a spoof."""
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
        """Split values of hypotheses into those of hypotheses that share the view, and the others.

        Raise `LabelError` if one of the lists would be empty.
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
        """Views that some hypotheses share and others do not."""
        views = dict.fromkeys(view for h in self.logs for view in h)
        return tuple(view for view in views if not all(view in h for h in self.logs))

    def take(self, *index: int) -> Answer:
        """Return the answer for one trial, with 0-dimensional arrays.

        index : row and column of a matrix, or position in a list
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
    """Return the question for a single trial.

    claims : {view: class claimed in this trial}; replaces the classes per profile
    countermeasure : LLR of this trial's test; replaces those of all tests
    """
    if claims:
        question = replace(question, known={view: [name.item()] for view, name in claims.items()})
    if countermeasure is not None:
        question = replace(question, countermeasure=float(countermeasure))
    return question
