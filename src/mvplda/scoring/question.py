"""Questions: what is asked of a trial, and which hypotheses then speak for "same", and which against."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import compress, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._typing import AnyArray, Array, IntArray, Json, Views
from ..backend import cast, dtype_name, is_torch, like, namespace
from ..exceptions import DataError, LabelError, ParameterError
from ..kinds import SPOOF
from .log_sums import log_sum

Hypothesis = tuple[str, ...]
"""The base views that two sides share, in the model's order."""

LogLikelihoods = Mapping[Hypothesis, AnyArray]
"""Log-likelihoods of hypotheses: (profiles, tests), or (trials,)."""

HypothesisWeights = dict[Hypothesis, float]
"""Of hypotheses."""


@dataclass(frozen=True)
class Question:
    """What is asked of every trial; each scoring call takes one, or the keyword arguments that make one.

    Parameters
    ----------
    same : the view or views in question; None: all that are neither given nor labelled on both sides.
        In a view that is labelled on both sides, equal labels are the same class; where it is asked about
        by name, the test's labels are claims, and the question is whether they are true
    given : {view: "same" or "different"}, what is known of other views
    priors : {views that are the same: weight} over hypotheses, e.g. {("speaker",): 2, ("phrase",): 1, (): 1}
    known : views whose classes were seen in training and stand for themselves: {view: class of every
        profile}, or the names of views in which the profiles have labels
    countermeasure : one number for every test, or one for all: natural-log likelihood ratio of a person's
        voice against a spoof, such as a replay or a synthetic voice. Spoofs of the target are then among what should
        be rejected, and the LLR must be calibrated for the sum to mean anything
    spoof_prior : share of spoofs among the trials that should be rejected; 0.5 if nothing is said

    Examples
    --------
    >>> from mvplda import Question
    >>> Question("speaker", given={"phrase": "different"})
    Question(same=('speaker',), given={'phrase': 'different'})
    """

    same: str | Iterable[str] | None = None
    given: Mapping[str, str] | None = None
    priors: Mapping[str | Iterable[str], float] | None = None
    known: Mapping[str, object] | Iterable[str] | str | None = None
    countermeasure: ArrayLike | None = None
    spoof_prior: float | None = None

    def __repr__(self) -> str:
        return f"Question({', '.join(f'{name}={value!r}' for name, value in self.parts().items())})"

    def __post_init__(self) -> None:
        keep = partial(object.__setattr__, self)
        if self.same is not None:
            keep("same", view_names(self.same))
        if self.known is not None and not isinstance(self.known, Mapping):
            keep("known", view_names(self.known))
        if self.countermeasure is not None:
            keep("countermeasure", np.asarray(self.countermeasure, dtype=np.float64))
            if np.isnan(self.countermeasure).any():
                raise DataError("the countermeasure's ratios contain NaN")
        if self.spoof_prior is not None:
            if self.countermeasure is None:
                raise ParameterError(
                    "spoof_prior is a share of spoofs, of which a countermeasure= tells: give it too"
                )
            if not 0 <= self.spoof_prior <= 1:
                raise ParameterError(
                    f"spoof_prior is a share, from 0 to 1; got {self.spoof_prior!r}"
                )

    @property
    def known_views(self) -> Views:
        return tuple(self.known or ())

    def labelled(self, enrolled: Iterable[str], tested: Iterable[str]) -> list[str]:
        """Views in which the classes of both sides have names: there is nothing to be found out about them."""
        named = {*enrolled, *self.known_views}
        return [view for view in tested if view in named]

    def claims(self, view: str) -> Any:
        """The class of every profile in a known view; None where it is the label that the profile carries."""
        return self.known.get(view) if isinstance(self.known, Mapping) else None

    def parts(self) -> Json:
        """What is asked: the keyword arguments that make the question."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def ratio(self, base: Sequence[str], labelled: Iterable[str] = ()) -> LikelihoodRatio:
        """The likelihood ratio that answers this question.

        labelled : views in which both sides have labels. Where one is asked about by name, its labels are claims;
            elsewhere they are facts, and the view is no part of any hypothesis

        Hypotheses that `priors` do not name have none, except that a side of the ratio where none is named has
        equal weights.
        """
        given = self._check_given(base, labelled)
        asked = list(self.same or ())
        for view in asked:
            check_view(view, base, "same")
            if view in given:
                raise ParameterError(f"view {view!r} is asked about and given at once")
        # labels settle a view, unless it is just their truth that is asked about
        facts = [view for view in labelled if view not in asked]
        free = [view for view in base if view not in facts]
        if self.same is None:
            asked = [view for view in free if view not in given]
        if not asked:
            raise ParameterError(
                "there is nothing to ask: every view is given, or labelled on both sides"
            )
        sides: list[HypothesisWeights] = [{}, {}]
        possible = possible_hypotheses(free, given)
        weights = self._weights(possible, free, facts)
        for side, is_for in zip(sides, (True, False), strict=True):
            here = [h for h in possible if (set(asked) <= set(h)) == is_for]
            # weights are normalised on either side: a prior of targets is no part of a ratio
            named = {h: weights[h] for h in here if h in weights} or dict.fromkeys(here, 1.0)
            total = sum(named.values())
            if not total > 0:
                which = "the hypotheses that say same" if is_for else "the others"
                raise ParameterError(f"priors give no weight to {which}: {here}")
            side |= {h: float(np.log(w / total)) for h, w in named.items() if w > 0}
        return LikelihoodRatio(*sides)

    def alternatives(self, base: Sequence[str], labelled: Iterable[str] = ()) -> HypothesisWeights:
        """Every hypothesis that is possible, with its weight: equal ones, where `priors` name none."""
        free = [view for view in base if view not in labelled]
        possible = possible_hypotheses(free, self._check_given(base, labelled))
        weights = self._weights(possible, free, labelled) or dict.fromkeys(possible, 1.0)
        if not sum(weights.values()) > 0:
            raise ParameterError(f"priors give no weight to any hypothesis: {weights}")
        return {h: weights.get(h, 0.0) for h in possible}

    def _check_given(self, base: Sequence[str], labelled: Iterable[str]) -> dict[str, str]:
        """What is given of views, if it can be."""
        given = dict(self.given or {})
        for view, what in given.items():
            check_view(view, base, "given")
            if view in labelled:
                raise ParameterError(
                    f"the labels of both sides say already what is the same in view {view!r}: leave it out of given"
                )
            if what not in ("same", "different"):
                raise ParameterError(
                    f"given says 'same' or 'different' of a view; got {what!r} of {view!r}"
                )
        return given

    def _weights(
        self, possible: Sequence[Hypothesis], free: Sequence[str], facts: Iterable[str]
    ) -> HypothesisWeights:
        """The priors that are named, by hypothesis."""
        weights: HypothesisWeights = {}
        for key, weight in (self.priors or {}).items():
            views = view_names(key)
            for view in sorted(set(views) & set(facts)):
                raise ParameterError(
                    f"priors name view {view!r}, of which the labels of both sides tell: leave it out"
                )
            if not set(views) <= set(free):
                raise LabelError(
                    f"a hypothesis is the tuple of the views that are the same, of {list(free)}; got {key!r}"
                )
            hypothesis = tuple(view for view in free if view in views)
            if hypothesis not in possible:
                raise ParameterError(
                    f"priors name {key!r}, which what is given rules out; possible: {list(possible)}"
                )
            if not (np.isfinite(weight) and weight >= 0):
                raise ParameterError(
                    f"a prior is a number of at least 0; got {weight!r} for {key!r}"
                )
            weights[hypothesis] = float(weight)
        return weights

    @property
    def spoof_share(self) -> float:
        return 0.5 if self.spoof_prior is None else self.spoof_prior

    def traces(self, n_tests: int) -> Array:
        """(tests,) log-likelihood ratios of the countermeasure."""
        ratios = np.asarray(self.countermeasure)
        if ratios.shape not in ((), (n_tests,)):
            raise DataError(
                f"countermeasure= is one number per test, {(n_tests,)}; got shape {ratios.shape}"
            )
        return np.broadcast_to(ratios, (n_tests,))

    def with_spoofs(
        self, llrs: AnyArray, shape: tuple[int, ...], pairs: IntArray | None = None
    ) -> AnyArray:
        """LLRs of a matrix of this shape, or of a list of its trials, with spoofs among what should be rejected."""
        if self.countermeasure is None:
            return llrs
        traces = self.traces(shape[-1])
        if pairs is not None:
            traces = traces[pairs[:, 1]]
        return with_countermeasure(llrs, traces, self.spoof_share)

    def posteriors(self, logs: LogLikelihoods, weights: HypothesisWeights) -> LogLikelihoods:
        """Posterior probability of every hypothesis, a spoof of the first among them where there is a countermeasure.

        logs : log-likelihoods, (profiles, tests), up to what all of them share
        """
        shares = dict(weights)
        parts = dict(logs)
        if self.countermeasure is not None:
            first, *others = weights
            rest = sum(weights[h] for h in others)
            if not rest > 0:
                raise ParameterError(
                    "nothing but the first hypothesis has a prior: spoofs are a share of the others"
                )
            shares |= {h: weights[h] * (1 - self.spoof_share) for h in others}
            shares[SPOOF,] = self.spoof_share * rest
            # infinite ratios: the others' posteriors are 0 all the same
            traces = np.clip(np.asarray(self.countermeasure), -1e12, 1e12)
            parts[SPOOF,] = logs[first] - like(traces, logs[first])
        with np.errstate(divide="ignore"):
            parts = {h: log + float(np.log(shares[h])) for h, log in parts.items()}
            total = log_sum([part + 0 for part in parts.values()])
        return {h: namespace(part).exp(part - total) for h, part in parts.items()}


def make_question(question: Question | Json | None, asked: Json) -> Question:
    """The question that a call was given: as such, or by the keyword arguments that make one."""
    if question is None:
        return Question(**asked)
    if asked:
        raise ParameterError(
            f"a question was given, and {', '.join(asked)} besides: put everything into the question"
        )
    if isinstance(question, Question):
        return question
    if not isinstance(question, Mapping):
        raise ParameterError(
            f"question: expected a Question, or a dict of its parts, such as same=; got {question!r}"
        )
    return Question(**question)


@dataclass(frozen=True)
class LikelihoodRatio:
    """A likelihood ratio: weighted hypotheses for and against.

    numerator, denominator : hypotheses with their log weights, normalised on either side
    """

    numerator: HypothesisWeights
    denominator: HypothesisWeights

    @property
    def hypotheses(self) -> tuple[Hypothesis, ...]:
        return (*self.numerator, *self.denominator)

    @property
    def sums(self) -> tuple[HypothesisWeights, HypothesisWeights]:
        return self.numerator, self.denominator

    def of(self, logs: LogLikelihoods) -> Array:
        """The log-likelihood ratio, from log-likelihoods of its hypotheses."""
        above = [logs[h] + weight for h, weight in self.numerator.items()]
        below = [logs[h] + weight for h, weight in self.denominator.items()]
        return np.asarray(np.logaddexp.reduce(above) - np.logaddexp.reduce(below))


def possible_hypotheses(base: Sequence[str], given: Mapping[str, str]) -> list[Hypothesis]:
    """All that agree with what is given, from everything shared to nothing."""
    every = all_hypotheses(tuple(base))
    return [h for h in every if all((v in h) == (what == "same") for v, what in given.items())]


@cache
def all_hypotheses(base: Views) -> list[Hypothesis]:
    patterns = product((True, False), repeat=len(base))
    return [tuple(compress(base, pattern)) for pattern in patterns]


def check_view(view: str, base: Sequence[str], where: str) -> None:
    if view not in base:
        raise LabelError(f"{where} names no view of the model: {view!r}; it has {list(base)}")


def view_names(views: str | Iterable[str]) -> Views:
    """Names of views, of which one may stand alone."""
    return (views,) if isinstance(views, str) else tuple(views)


# Spoofs: a replay or an imitation of the target by a machine. A countermeasure listens for traces of that, and gives
# a log-likelihood ratio c = log p(traces | a person) / p(traces | spoof). Of the vectors of a spoof the worst is
# assumed, that nothing tells them from those of the target; docs/math.md, section 9.9, derives the formula.


def with_countermeasure(llr: Any, countermeasure: ArrayLike, spoof_prior: float = 0.5) -> Any:
    """LLRs of target against everything that should be rejected, spoofs among it.

    Parameters
    ----------
    llr : (profiles, tests) or (trials,), array or torch tensor
        Calibrated natural-log likelihood ratios against ordinary non-targets.
    countermeasure : one for every test, of a matrix, or for every trial
        Calibrated natural-log likelihood ratios of a person's voice against a spoof: low is suspicious.
    spoof_prior : float
        Share of spoofs among the trials that should be rejected.

    Examples
    --------
    >>> from mvplda.scoring.question import with_countermeasure
    >>> with_countermeasure([5.0, 5.0, -5.0], [8.0, -3.0, 8.0], 0.2).round(2).tolist()
    [5.21, -1.39, -4.78]
    """
    scores = llr if is_torch(llr) else np.asarray(llr)
    xp = namespace(scores)
    traces = cast(like(np.asarray(countermeasure, np.float64), scores), dtype_name(scores))
    # one of the two says nothing, be it infinite
    if spoof_prior == 0:
        return scores + 0.0
    if spoof_prior == 1:
        return traces + 0.0 * scores.clip(-1, 1)
    return -xp.logaddexp(np.log1p(-spoof_prior) - scores, np.log(spoof_prior) - traces)  # (V13)


class NearMatches(NamedTuple):
    """Of trials, what parts of recordings tell of a view beside vectors of the whole.

    prior : how likely nearly the same class is beforehand
    llr : of the same class against nearly the same
    same : of the same class against others, as evidence that a calibration weighs
    """

    view: str
    prior: Array
    llr: Array
    same: Array

    @classmethod
    def together(cls, near_match_lists: Sequence[NearMatches | None]) -> NearMatches | None:
        """Of trials one after the other."""
        told = [near_matches for near_matches in near_match_lists if near_matches is not None]
        if not told:
            return None
        views, *columns = zip(*told, strict=True)
        return cls(views[0], *(np.concatenate(column) for column in columns))


def with_near_matches(
    logs: LogLikelihoods, near_matches: NearMatches | None
) -> dict[Hypothesis, Array]:
    """Log-likelihoods where what is not the same may be nearly the same.

    With L(h) of a hypothesis without the view and L(h+) of the same with it, p the prior and m the LLR of the same
    against nearly the same, L(h) becomes log((1 - p) exp L(h) + p exp(L(h+) - m)): the vectors of the whole do not tell
    nearly the same words from the same.
    """
    changed = dict(logs)
    if near_matches is None:
        return changed
    with np.errstate(divide="ignore"):
        likelier = np.log(near_matches.prior) - near_matches.llr
    for h in logs:
        same = next((one for one in logs if set(one) == {*h, near_matches.view}), h)
        if near_matches.view not in h and same != h:
            changed[h] = np.logaddexp(
                np.log1p(-near_matches.prior) + logs[h], likelier + logs[same]
            )
    return changed
