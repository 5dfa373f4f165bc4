"""Questions about trials, and the likelihood ratios of hypotheses that answer them."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import compress, product
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from .._typing import AnyArray, Array, IntArray, Json, Views
from ..backend import cast, dtype_name, is_torch, like, namespace
from ..exceptions import DataError, LabelError, ParameterError
from ..kinds import SPOOF
from .log_sums import log_sum

Hypothesis = tuple[str, ...]
"""Names of the base views whose classes the two sides share, in the model's order; () if they share nothing."""

LogLikelihoods = Mapping[Hypothesis, AnyArray]
"""Log-likelihood of each hypothesis, as arrays (profiles, tests) or (trials,)."""

HypothesisWeights = dict[Hypothesis, float]
"""Weight of each hypothesis, or the logarithm of its weight."""


@dataclass(frozen=True)
class Question:
    """Question that scores answer: in which views do both sides of a trial have the same class?

    Scoring methods accept a `Question`, or its parameters as keyword arguments.

    Parameters
    ----------
    same : view or views in question; None: all views that are neither in `given` nor labelled on
        both sides. Labels on both sides are taken as true, so that equal labels mean the same
        class. But if a view named in `same` has labels on both sides, the question is whether the
        labels of the tests are true
    given : {view: "same" or "different"} for views whose relation is known
    priors : {shared views: weight} of each hypothesis, not normalised, such as {("speaker",): 2,
        ("phrase",): 1, (): 1}; None: equal weights
    known : views in which the posteriors of training classes are used: {view: class of each
        profile}, or only the names of the views if the profiles have labels. Classes that were not
        seen in training are scored as new classes, with an `UnknownClassWarning`
    countermeasure : natural-log likelihood ratio of a person's voice against a spoof, such as a
        replay or a synthetic voice: one number per test, or one for all tests. Spoofs of the target
        then count as trials to be rejected. LLRs must be calibrated to be combined with it
    spoof_prior : proportion of spoofs among the trials that should be rejected; None: 0.5

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
        return f"Question({', '.join(f'{name}={value!r}' for name, value in self.arguments().items())})"

    def __post_init__(self) -> None:
        set_field = partial(object.__setattr__, self)
        if self.same is not None:
            set_field("same", view_names(self.same))
        if self.known is not None and not isinstance(self.known, Mapping):
            set_field("known", view_names(self.known))
        if self.countermeasure is not None:
            set_field("countermeasure", np.asarray(self.countermeasure, dtype=np.float64))
            if np.isnan(self.countermeasure).any():
                raise DataError(
                    "countermeasure contains NaN: pass one log-likelihood ratio per test"
                )
        if self.spoof_prior is not None:
            if self.countermeasure is None:
                raise ParameterError(
                    "spoof_prior= requires countermeasure=: pass both, or leave spoof_prior out"
                )
            if not 0 <= self.spoof_prior <= 1:
                raise ParameterError(
                    f"spoof_prior must be a number in [0, 1], the share of spoofs; got {self.spoof_prior!r}"
                )

    @property
    def known_views(self) -> Views:
        """Views whose training classes are used: the keys of `known`."""
        return tuple(self.known or ())

    def labelled(self, enrolled: Iterable[str], tested: Iterable[str]) -> list[str]:
        """Return the views in which both sides have labels; a class in `known` counts as a label.

        enrolled : views in which the profiles have labels
        tested : views in which the tests have labels
        """
        enrolled_or_known = {*enrolled, *self.known_views}
        return [view for view in tested if view in enrolled_or_known]

    def claims(self, view: str) -> Any:
        """Return the class of each profile in a view, as given in `known`; None: not given."""
        return self.known.get(view) if isinstance(self.known, Mapping) else None

    def arguments(self) -> Json:
        """Return the keyword arguments with which `Question` would return an equal question."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def ratio(self, base: Sequence[str], labelled: Iterable[str] = ()) -> LikelihoodRatio:
        """Return the likelihood ratio that answers the question.

        Hypotheses for the question (the numerator), and those against it (the denominator), are
        weighted by `priors`; hypotheses that are not in `priors` have weight 0. If no hypothesis of
        the numerator is in `priors`, all of them have equal weights; likewise in the denominator.

        Parameters
        ----------
        base : base views of the model
        labelled : views in which both sides have labels. In views of `same`, the labels of the
            tests may be false. In all other views they are true, and the view does not occur in
            hypotheses

        Returns
        -------
        LikelihoodRatio

        Raises
        ------
        ParameterError
            No view is in question, or `given`, `priors` and `labelled` contradict each other.
        LabelError
            The question names an unknown view.
        """
        given = self._check_given(base, labelled)
        asked = list(self.same or ())
        for view in asked:
            check_view(view, base, "same")
            if view in given:
                raise ParameterError(f"view {view!r} is both in same and in given: name it once")
        # labels on both sides decide a view, unless the question is whether they are true
        facts = [view for view in labelled if view not in asked]
        free = [view for view in base if view not in facts]
        if self.same is None:
            asked = [view for view in free if view not in given]
        if not asked:
            raise ParameterError(
                "no view is in question, because every view is in given= or has labels on both sides: pass the views "
                "in question in same="
            )
        sides: list[HypothesisWeights] = [{}, {}]
        possible = possible_hypotheses(free, given)
        weights = self._weights(possible, free, facts)
        for side, is_for in zip(sides, (True, False), strict=True):
            hypotheses = [h for h in possible if (set(asked) <= set(h)) == is_for]
            named = {h: weights[h] for h in hypotheses if h in weights}
            side_weights = named or dict.fromkeys(hypotheses, 1.0)
            # normalised per side: the prior probability of a target is not part of a likelihood ratio
            total = sum(side_weights.values())
            if not total > 0:
                which = "for" if is_for else "against"
                raise ParameterError(
                    f"priors must give a positive weight to at least one hypothesis {which} the question: {hypotheses}"
                )
            side |= {h: float(np.log(w / total)) for h, w in side_weights.items() if w > 0}
        return LikelihoodRatio(*sides)

    def alternatives(self, base: Sequence[str], labelled: Iterable[str] = ()) -> HypothesisWeights:
        """Return the prior weight of each possible hypothesis; without `priors` all weights are 1.

        base : base views of the model
        labelled : views in which both sides have labels, which are true; they do not occur in
            hypotheses
        """
        free = [view for view in base if view not in labelled]
        possible = possible_hypotheses(free, self._check_given(base, labelled))
        weights = self._weights(possible, free, labelled) or dict.fromkeys(possible, 1.0)
        if not sum(weights.values()) > 0:
            raise ParameterError(
                f"priors must give a positive weight to at least one hypothesis; got {weights}"
            )
        return {h: weights.get(h, 0.0) for h in possible}

    def _check_given(self, base: Sequence[str], labelled: Iterable[str]) -> dict[str, str]:
        """Return `given` as a dict.

        Raise `LabelError` for an unknown view, and `ParameterError` for a labelled view or a
        relation other than "same" and "different".
        """
        given = dict(self.given or {})
        for view, relation in given.items():
            check_view(view, base, "given")
            if view in labelled:
                raise ParameterError(
                    f"view {view!r} has labels on both sides, which decide it: leave it out of given="
                )
            if relation not in ("same", "different"):
                raise ParameterError(
                    f"given must be 'same' or 'different' per view; got {relation!r} for {view!r}"
                )
        return given

    def _weights(
        self, possible: Sequence[Hypothesis], free: Sequence[str], facts: Iterable[str]
    ) -> HypothesisWeights:
        """Return {hypothesis: weight} from `priors`.

        Raise `LabelError` for unknown views, and `ParameterError` for impossible hypotheses and for
        weights that are negative or not finite.

        possible : hypotheses that agree with `given`
        free : views that hypotheses may contain
        facts : views in which labels decide whether the classes are the same
        """
        weights: HypothesisWeights = {}
        for key, weight in (self.priors or {}).items():
            views = view_names(key)
            for view in sorted(set(views) & set(facts)):
                raise ParameterError(
                    f"view {view!r} has labels on both sides, which decide it: leave it out of the keys of priors"
                )
            if not set(views) <= set(free):
                raise LabelError(
                    f"a key of priors must be a tuple of the views that are shared, out of {list(free)}; got {key!r}"
                )
            hypothesis = tuple(view for view in free if view in views)
            if hypothesis not in possible:
                raise ParameterError(
                    f"priors has the key {key!r}, which given= excludes; possible keys: {list(possible)}"
                )
            if not (np.isfinite(weight) and weight >= 0):
                raise ParameterError(
                    f"a prior must be a finite number of at least 0; got {weight!r} for {key!r}"
                )
            weights[hypothesis] = float(weight)
        return weights

    @property
    def spoof_share(self) -> float:
        """Proportion of spoofs among the trials that should be rejected; 0.5 by default."""
        return 0.5 if self.spoof_prior is None else self.spoof_prior

    def countermeasure_llrs(self, n_tests: int) -> Array:
        """Return the LLR of the countermeasure for every test, (n_tests,).

        Raise `DataError` if it has another number of values.
        """
        ratios = np.asarray(self.countermeasure)
        if ratios.shape not in ((), (n_tests,)):
            raise DataError(
                f"countermeasure= must have one number per test, shape {(n_tests,)}; got shape {ratios.shape}"
            )
        return np.broadcast_to(ratios, (n_tests,))

    def with_spoofs(
        self, llrs: AnyArray, shape: tuple[int, ...], pairs: IntArray | None = None
    ) -> AnyArray:
        """Return LLRs for which spoofs count as trials to be rejected.

        Without a countermeasure, return the LLRs unchanged.

        llrs : (profiles, tests), or (n,) for listed pairs
        shape : shape of the whole matrix
        pairs : (n, 2) numbers of profile and test; None: `llrs` is the matrix
        """
        if self.countermeasure is None:
            return llrs
        spoof_llrs = self.countermeasure_llrs(shape[-1])
        if pairs is not None:
            spoof_llrs = spoof_llrs[pairs[:, 1]]
        return with_countermeasure(llrs, spoof_llrs, self.spoof_share)

    def posteriors(self, logs: LogLikelihoods, weights: HypothesisWeights) -> LogLikelihoods:
        """Return the posterior probability of each hypothesis, and with a countermeasure also of a spoof.

        A spoof imitates the target, which is the first hypothesis (docs/math.md, section 9.9).

        logs : {hypothesis: (profiles, tests) log-likelihoods}; a constant may be added to all
            hypotheses of a trial
        weights : {hypothesis: prior weight}
        """
        shares = dict(weights)
        log_terms = dict(logs)
        if self.countermeasure is not None:
            first, *others = weights
            rest = sum(weights[h] for h in others)
            if not rest > 0:
                raise ParameterError(
                    "countermeasure= needs a hypothesis against the question: give at least one of them a positive "
                    "weight in priors="
                )
            shares |= {h: weights[h] * (1 - self.spoof_share) for h in others}
            shares[SPOOF,] = self.spoof_share * rest
            # clip infinite ratios, which would become NaN below; the other posteriors are 0 in either case
            spoof_llrs = np.clip(np.asarray(self.countermeasure), -1e12, 1e12)
            log_terms[SPOOF,] = logs[first] - like(spoof_llrs, logs[first])
        with np.errstate(divide="ignore"):
            log_terms = {h: log + float(np.log(shares[h])) for h, log in log_terms.items()}
            # `log_sum` overwrites its arguments
            total = log_sum([term + 0 for term in log_terms.values()])
        return {h: namespace(term).exp(term - total) for h, term in log_terms.items()}


class QuestionArguments(TypedDict, total=False):
    """Keyword arguments of `Question`; scoring methods accept the same."""

    same: str | Iterable[str] | None
    given: Mapping[str, str] | None
    priors: Mapping[str | Iterable[str], float] | None
    known: Mapping[str, object] | Iterable[str] | str | None
    countermeasure: ArrayLike | None
    spoof_prior: float | None


def make_question(
    question: Question | QuestionArguments | None, asked: QuestionArguments
) -> Question:
    """Return a `Question` from one of the forms that scoring methods accept.

    Raise `ParameterError` if both arguments are given.

    question : a `Question`, or a dict of its arguments; None: use `asked`
    asked : keyword arguments of `Question`; may be empty
    """
    if question is None:
        return Question(**asked)
    if asked:
        raise ParameterError(
            f"got both a question and {', '.join(f'{name}=' for name in asked)}: "
            "pass either a Question or its arguments"
        )
    if isinstance(question, Question):
        return question
    if not isinstance(question, Mapping):
        raise ParameterError(
            f"question must be a Question, or a dict of its arguments such as same; got {question!r}"
        )
    return Question(**question)


@dataclass(frozen=True)
class LikelihoodRatio:
    """Likelihood ratio: weighted hypotheses for and against a question.

    numerator : {hypothesis for the question: log of its weight}; the weights add up to 1
    denominator : {hypothesis against the question: log of its weight}; the weights add up to 1
    """

    numerator: HypothesisWeights
    denominator: HypothesisWeights

    @property
    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """All hypotheses: those for the question, then those against it."""
        return (*self.numerator, *self.denominator)

    @property
    def sums(self) -> tuple[HypothesisWeights, HypothesisWeights]:
        """Numerator and denominator of the ratio, {hypothesis: log weight} each."""
        return self.numerator, self.denominator

    def of(self, logs: LogLikelihoods) -> Array:
        """Return the log-likelihood ratio, (...); see V4 in docs/math.md.

        logs : {hypothesis: (...) log-likelihoods}, with all hypotheses of the ratio
        """
        above = [logs[h] + weight for h, weight in self.numerator.items()]
        below = [logs[h] + weight for h, weight in self.denominator.items()]
        return np.asarray(np.logaddexp.reduce(above) - np.logaddexp.reduce(below))


def possible_hypotheses(base: Sequence[str], given: Mapping[str, str]) -> list[Hypothesis]:
    """Return the hypotheses that agree with `given`, ordered from everything shared to nothing shared.

    base : views that hypotheses may contain
    given : {view: "same" or "different"}
    """
    return [
        h
        for h in all_hypotheses(tuple(base))
        if all((view in h) == (relation == "same") for view, relation in given.items())
    ]


@cache
def all_hypotheses(base: Views) -> tuple[Hypothesis, ...]:
    """Return all subsets of the base views as hypotheses, ordered from everything shared to nothing shared."""
    patterns = product((True, False), repeat=len(base))
    return tuple(tuple(compress(base, pattern)) for pattern in patterns)


def check_view(view: str, base: Sequence[str], where: str) -> None:
    """Raise `LabelError` if `view` is not one of the base views.

    base : base views of the model
    where : name of the argument, for the message
    """
    if view not in base:
        raise LabelError(
            f"{where} has an unknown view, {view!r}; the views of the model are {list(base)}"
        )


def view_names(views: str | Iterable[str]) -> Views:
    """Return one name of a view, or several names, as a tuple."""
    return (views,) if isinstance(views, str) else tuple(views)


# A spoof is a replay or a machine's imitation of the target. A countermeasure detects its traces and returns a
# log-likelihood ratio c = log p(traces | a person) / p(traces | spoof). The vectors of a spoof are assumed to have the
# distribution of the target's, which is the worst case; docs/math.md, section 9.9, derives the formula.


def with_countermeasure(llr: Any, countermeasure: ArrayLike, spoof_prior: float = 0.5) -> Any:
    """Return LLRs of the target against all trials that should be rejected, including spoofs.

    Parameters
    ----------
    llr : (profiles, tests) or (trials,), array or torch tensor
        Calibrated natural-log likelihood ratios against ordinary non-targets.
    countermeasure : array_like, one number per test of a matrix, or per trial of a list
        Calibrated natural-log likelihood ratios of a person's voice against a spoof; low values
        indicate a spoof.
    spoof_prior : float
        Share of spoofs among the trials that should be rejected.

    Returns
    -------
    array or torch tensor of the shape of `llr`

    Examples
    --------
    >>> from mvplda.scoring.question import with_countermeasure
    >>> with_countermeasure([5.0, 5.0, -5.0], [8.0, -3.0, 8.0], 0.2).round(2).tolist()
    [5.21, -1.39, -4.78]
    """
    scores = llr if is_torch(llr) else np.asarray(llr)
    xp = namespace(scores)
    spoof_llrs = cast(like(np.asarray(countermeasure, np.float64), scores), dtype_name(scores))
    # at the ends of the range one of the two ratios has no weight, even if it is infinite
    if spoof_prior == 0:
        return scores + 0.0
    if spoof_prior == 1:
        return spoof_llrs + 0.0 * scores.clip(-1, 1)
    return -xp.logaddexp(np.log1p(-spoof_prior) - scores, np.log(spoof_prior) - spoof_llrs)  # (V13)


class NearMatches(NamedTuple):
    """Evidence about near matches in one view, such as phrases in which one word is replaced.

    It is computed from segments of recordings, because the vectors of whole recordings hardly
    differ between near matches (docs/math.md, section 9.12). All arrays have one value per trial.

    view : the view
    prior : prior probability that a different class is a near match
    llr : log-likelihood ratio of the same class against a near match
    same : log-likelihood ratio of the same class against other classes, further evidence about the
        view; a calibrator fits its coefficient
    """

    view: str
    prior: Array
    llr: Array
    same: Array

    @classmethod
    def concatenate(cls, evidence: Sequence[NearMatches | None]) -> NearMatches | None:
        """Join the near-match evidence of several lists of trials.

        Entries that are None are skipped; the result is None if all entries are None.
        """
        present = [near_matches for near_matches in evidence if near_matches is not None]
        if not present:
            return None
        views, *columns = zip(*present, strict=True)
        return cls(views[0], *(np.concatenate(column) for column in columns))


def with_near_matches(
    logs: LogLikelihoods, near_matches: NearMatches | None
) -> dict[Hypothesis, AnyArray]:
    """Return log-likelihoods of hypotheses under which a different class may be a near match.

    Let h be a hypothesis without the view of `near_matches`, and h+ the same hypothesis with the
    view. Vectors of whole recordings do not separate near matches from the same class. So the
    log-likelihood L(h) becomes log((1 - p) exp L(h) + p exp(L(h+) - m)), with p the prior of a near
    match and m the LLR of the same class against a near match. L(h+) does not change.

    logs : {hypothesis: log-likelihoods}
    near_matches : evidence of near matches; None: `logs` are returned unchanged
    """
    mixed = dict(logs)
    if near_matches is None:
        return mixed
    with np.errstate(divide="ignore"):
        near_weight = np.log(near_matches.prior) - near_matches.llr
    view = near_matches.view
    for h in logs:
        with_view = next((other for other in logs if set(other) == {*h, view}), h)
        if view not in h and with_view != h:
            different = np.log1p(-near_matches.prior) + logs[h]
            mixed[h] = np.logaddexp(different, near_weight + logs[with_view])
    return mixed
