"""Labelled vectors of a known model, to try things on: as scikit-learn's ``make_...`` functions."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import Bunch

from ._typing import Array, BoolArray, IntArray, RandomState
from .exceptions import ParameterError
from .models.multiview import MultiviewPLDA

__all__ = ["make_two_views"]

ENROLLED, TESTED = 3, 2
"""Vectors of a held-out speaker and a phrase that make a profile, and that are tested."""

Labels = dict[str, IntArray]


def make_two_views(
    n_speakers: int = 132,
    n_phrases: int = 20,
    n_each: int = 9,
    dimension: int = 100,
    ranks: tuple[int, int] = (20, 20),
    *,
    held_out: int | None = None,
    random_state: RandomState = None,
) -> tuple[Any, ...]:
    """Vectors of speakers who say phrases, drawn from a two-view model.

    Parameters
    ----------
    n_speakers, n_phrases : every speaker says every phrase
    n_each : vectors a speaker and phrase
    dimension : of the vectors
    ranks : of the speakers' and of the phrases' loading
    held_out : so many more speakers, to enrol and to test; they need `n_each` of 5 or more
    random_state : int, numpy.random.Generator or None

    Returns
    -------
    X : (n_speakers * n_phrases * n_each, dimension)
    labels : {"speaker": numbers, "phrase": numbers}
    unseen : where `held_out` is given, a Bunch of the speakers that are not trained on
        enrol, enrol_labels : three vectors a speaker and phrase, and their labels
        ids : the profile of every vector of `enrol`, one a speaker and phrase: ``enrol(X, ids)``
        test, test_labels : two more vectors a speaker and phrase, and their labels
        truth : the model that all vectors were drawn from

    Examples
    --------
    >>> from mvplda import make_two_views
    >>> X, labels = make_two_views(n_speakers=30, n_phrases=5, n_each=4, dimension=8, ranks=(3, 2), random_state=0)
    >>> X.shape, len(labels["phrase"])
    ((600, 8), 600)
    """
    least = 1 if held_out is None else ENROLLED + TESTED
    if min(n_speakers, n_phrases, dimension, held_out or 1) < 1 or n_each < least:
        raise ParameterError(f"sizes are 1 or more, and n_each at least {least}; got {n_each}")
    truth = known_model(random_state, dimension, ranks)
    shape = (n_speakers + (held_out or 0), n_phrases, n_each)
    who, what, session = (a.reshape(-1) for a in np.indices(shape))
    X = truth.sample({"speaker": who, "phrase": what}, random_state=random_state)

    def part(chosen: BoolArray) -> tuple[Array, Labels]:
        return X[chosen], {"speaker": who[chosen], "phrase": what[chosen]}

    unseen = who >= n_speakers
    if held_out is None:
        return part(~unseen)
    enrol = unseen & (session < ENROLLED)
    test = unseen & (session >= ENROLLED) & (session < ENROLLED + TESTED)
    ids = who[enrol] * n_phrases + what[enrol]
    names = ("enrol", "enrol_labels", "test", "test_labels")
    parts = dict(zip(names, part(enrol) + part(test), strict=True))
    return *part(~unseen), Bunch(ids=ids, truth=truth, **parts)


def known_model(
    random_state: RandomState = None, dimension: int = 100, ranks: tuple[int, int] = (20, 20)
) -> MultiviewPLDA:
    """Two views with random loadings, phrases further apart than speakers, and noise that differs by column."""
    rng = np.random.default_rng(random_state)
    sizes = {"speaker": (0.6, ranks[0]), "phrase": (1.0, ranks[1])}
    loadings = {
        view: size * rng.standard_normal((dimension, rank)) for view, (size, rank) in sizes.items()
    }
    mean, variances = rng.standard_normal(dimension), 8 * rng.gamma(4.0, 1.0, dimension)
    return MultiviewPLDA.from_parameters(mean, loadings, variances)
