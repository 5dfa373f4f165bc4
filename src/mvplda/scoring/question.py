"""Questions: which hypotheses speak for "same", and which against."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ..exceptions import LabelError, ParameterError
from ..labels import base_columns

Hypothesis = tuple[str, ...]
"""The base views that two sides share, in the model's order."""


@dataclass(frozen=True)
class Question:
    """A likelihood ratio: weighted hypotheses for and against.

    views : the model's views with their ranks
    numerator, denominator : hypotheses with their log weights, normalised on either side
    """

    views: dict[str, int]
    numerator: dict[Hypothesis, float]
    denominator: dict[Hypothesis, float]

    @property
    def hypotheses(self) -> tuple[Hypothesis, ...]:
        return (*self.numerator, *self.denominator)


def possible_hypotheses(base: Sequence[str], given: Mapping[str, str]) -> list[Hypothesis]:
    """All that agree with what is given, from everything shared to nothing."""
    patterns = product((True, False), repeat=len(base))
    every = [tuple(view for view, same in zip(base, pattern, strict=True) if same) for pattern in patterns]
    return [h for h in every if all((v in h) == (what == "same") for v, what in given.items())]


def ask(
    views: Mapping[str, int],
    same: str | Iterable[str] | None = None,
    given: Mapping[str, str] | None = None,
    priors: Mapping[Any, float] | None = None,
    labelled: Iterable[str] = (),
) -> Question:
    """The question "same in these views?", where others are known or not.

    same : a view or several; None: all views that are neither given nor labelled
    given : {view: "same" or "different"}, what is known
    labelled : views in which both sides have labels. Where one is asked about by name, its labels are claims;
        elsewhere they are facts, and the view is no part of any hypothesis
    priors : {hypothesis: weight}; hypotheses that are not named have none, except that a side
        of the ratio where none is named has equal weights
    """
    base = base_columns(tuple(views))
    asked = [] if same is None else [same] if isinstance(same, str) else list(same)
    for view in asked:
        _check_view(view, base, "same")
    facts = [v for v in base if v in labelled and v not in asked]
    known = check_given(given, base, labelled)
    if same is None:
        asked = [v for v in base if v not in known and v not in facts]
    for view in asked:
        if view in known:
            raise ParameterError(f"view {view!r} is asked about and given at once")
    if not asked:
        raise ParameterError("there is nothing to ask: every view is given, or labelled on both sides")
    free = [v for v in base if v not in facts]
    possible = possible_hypotheses(free, known)
    weights = hypothesis_weights(possible, free, priors, facts)
    numerator = {h: weights.get(h) for h in possible if set(asked) <= set(h)}
    denominator = {h: weights.get(h) for h in possible if not set(asked) <= set(h)}
    return Question(
        dict(views), _normalised(numerator, "the hypotheses that say same"), _normalised(denominator, "the others")
    )


def check_given(given: Mapping[str, str] | None, base: Sequence[str], labelled: Iterable[str]) -> dict[str, str]:
    """What is given of views, if it can be."""
    known = dict(given or {})
    for view, what in known.items():
        _check_view(view, base, "given")
        if view in labelled:
            raise ParameterError(
                f"the labels of both sides say already what is the same in view {view!r}: leave it out of given"
            )
        if what not in ("same", "different"):
            raise ParameterError(f"given says 'same' or 'different' of a view; got {what!r} of {view!r}")
    return known


def _check_view(view: str, base: Sequence[str], where: str) -> None:
    if view not in base:
        raise LabelError(f"{where} names no view of the model: {view!r}; it has {list(base)}")


def hypothesis_weights(
    possible: Sequence[Hypothesis],
    base: Sequence[str],
    priors: Mapping[Any, float] | None,
    facts: Sequence[str] = (),
) -> dict[Hypothesis, float]:
    """The priors that are named, by hypothesis."""
    weights: dict[Hypothesis, float] = {}
    for key, weight in (priors or {}).items():
        told = sorted(({key} if isinstance(key, str) else set(key)) & set(facts))
        if told:
            raise ParameterError(f"priors name view {told[0]!r}, of which the labels of both sides tell: leave it out")
        hypothesis = as_hypothesis(key, base)
        if hypothesis not in possible:
            raise ParameterError(f"priors name {key!r}, which what is given rules out; possible: {list(possible)}")
        if not (np.isfinite(weight) and weight >= 0):
            raise ParameterError(f"a prior is a number of at least 0; got {weight!r} for {key!r}")
        weights[hypothesis] = float(weight)
    return weights


def as_hypothesis(key: Any, base: Sequence[str]) -> Hypothesis:
    """A hypothesis from the views it shares: a tuple or set of names, one name, or () for none."""
    names = {key} if isinstance(key, str) else set(key)
    unknown = names - set(base)
    if unknown:
        raise LabelError(f"a hypothesis is the tuple of the views that are the same, of {list(base)}; got {key!r}")
    return tuple(view for view in base if view in names)


def _normalised(weights: dict[Hypothesis, float | None], which: str) -> dict[Hypothesis, float]:
    named = {h: w for h, w in weights.items() if w is not None} or dict.fromkeys(weights, 1.0)
    total = sum(named.values())
    if not total > 0:
        raise ParameterError(f"priors give no weight to {which}: {list(weights)}")
    return {h: float(np.log(w / total)) for h, w in named.items() if w > 0}
