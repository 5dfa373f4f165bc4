"""Known classes: a claimed phrase that was seen in training is no longer an unknown latent.

A side that is known to say class c has the training posterior N(m_c, C_c) in
place of the prior. A test that does not say the claimed class says one of the
other known ones, or none of them (docs/math.md, section 9).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cholesky

from ..kernel.blocks import Factors, Terms, log_sum
from ..kernel.evidence import log_evidence_matrix, pair_term, substitute
from ..kernel.hypotheses import Hypothesis, Question, shared_latents
from ..kernel.records import Array
from ..labels import IntArray
from .backend import like
from .factors import make_factors


@dataclass(frozen=True)
class KnownClass:
    """One view whose class is claimed.

    view : its name
    claimed : (R,) class number that every enrolled row claims; -1: not seen in training
    means, covariances : (C, rank), (C, rank, rank) training posteriors
    """

    view: str
    claimed: IntArray
    means: Array
    covariances: Array


@dataclass(frozen=True)
class _Seen:
    """A side's evidence, seen from the standardised latents of one class."""

    N: Array
    y: Any
    log_evidence: Any  # (n,), what this class makes of the side, on its own


def _as_class(known: KnownClass, views: dict[str, int], number: int | None, N: Array, y: Any) -> _Seen:
    r = len(N)
    shift, scale = np.zeros(r), np.eye(r)
    start = 0
    for view, rank in views.items():
        if view == known.view and number is not None:
            where = slice(start, start + rank)
            shift[where] = known.means[number]
            scale[where, where] = cholesky(known.covariances[number], lower=True)
        start += rank
    N_new, linear, offset, along, constant = substitute(N, shift, scale)
    y_new = y @ like(linear, y) - like(offset, y)
    W, k = log_evidence_matrix(N_new)
    log_evidence = y @ like(along, y) + (constant + k) + ((y_new @ like(W, y)) * y_new).sum(1)
    return _Seen(N_new, y_new, log_evidence)


@dataclass(frozen=True)
class SeenTests:
    """Tests seen as every known class and as none of them.

    as_class : evidence by class; best : (T,) the largest log evidence of any class
    """

    as_class: dict[int | None, _Seen]
    best: Any


def see_tests(known: KnownClass, views: dict[str, int], N_t: Array, y_t: Any) -> SeenTests:
    as_class = {c: _as_class(known, views, c, N_t, y_t) for c in (*range(len(known.means)), None)}
    best = as_class[None].log_evidence
    for seen in as_class.values():
        best = _larger(best, seen.log_evidence)
    return SeenTests(as_class, best)


def known_terms(
    question: Question, known: KnownClass, claimed: int, N_e: Array, y_e: Any, seen: SeenTests, dtype: Any
) -> Terms:
    """Terms for enrolled rows that all claim the same class."""
    views, tests, best = question.views, seen.as_class, seen.best
    others = [c for c in tests if c != claimed]
    enrol = _as_class(known, views, claimed, N_e, y_e)

    def side(weighted: dict[Hypothesis, float]) -> tuple[Factors, ...]:
        factors = []
        for hypothesis, weight in weighted.items():
            says: list[int | None] = [claimed] if known.view in hypothesis else others
            shared = shared_latents(views, hypothesis)
            weight -= float(np.log(len(says)))
            if len(shared) == 0:  # the two sides do not touch: one column term for all classes together
                extra = log_sum([tests[c].log_evidence - best for c in says])
                none = pair_term(enrol.N, tests[claimed].N, shared)
                factors.append(make_factors(none, enrol.y, tests[claimed].y, weight, dtype, extra))
                continue
            for c in says:
                term = pair_term(enrol.N, tests[c].N, shared)
                extra = tests[c].log_evidence - best
                factors.append(make_factors(term, enrol.y, tests[c].y, weight, dtype, extra))  # (V7)
        return tuple(factors)

    return Terms(side(question.numerator), side(question.denominator))


def _larger(a: Any, b: Any) -> Any:
    return np.maximum(a, b) if isinstance(a, np.ndarray) else a.maximum(b)
