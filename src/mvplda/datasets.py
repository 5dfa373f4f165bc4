"""Random vectors with labels, drawn from a known model, similar to scikit-learn's ``make_...`` functions."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import Bunch

from ._typing import Array, BoolArray, IntArray, RandomState
from .exceptions import ParameterError
from .models.multiview import MultiviewPLDA

__all__ = ["make_two_views"]

ENROLLED, TESTED = 3, 2
"""Number of vectors per held-out speaker and phrase that are enrolled, and number that are tests."""

Labels = dict[str, IntArray]
"""Class numbers by view."""


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
    """Draw vectors with labels of speaker and phrase from a random two-view model.

    Parameters
    ----------
    n_speakers, n_phrases : numbers of speakers and phrases; every speaker says every phrase
    n_each : number of vectors per speaker and phrase
    dimension : width of the vectors
    ranks : ranks of the speaker loading and of the phrase loading
    held_out : number of additional speakers for enrolment and tests; requires `n_each` of at least 5
    random_state : int, numpy.random.Generator or None

    Returns
    -------
    X : (n_speakers * n_phrases * n_each, dimension)
    labels : {"speaker": numbers, "phrase": numbers}, (n,) each
    unseen : only with `held_out`: a Bunch with the data of the additional speakers
        enrol, enrol_labels : three vectors per speaker and phrase, and their labels
        ids : profile of each vector of `enrol`, for ``model.enrol(enrol, ids)``; one profile per speaker and phrase
        test, test_labels : two other vectors per speaker and phrase, and their labels
        truth : the model that all vectors are drawn from

    Examples
    --------
    >>> from mvplda import make_two_views
    >>> X, labels = make_two_views(n_speakers=30, n_phrases=5, n_each=4, dimension=8, ranks=(3, 2), random_state=0)
    >>> X.shape, len(labels["phrase"])
    ((600, 8), 600)
    """
    least = 1 if held_out is None else ENROLLED + TESTED
    minima = {
        "n_speakers": (n_speakers, 1),
        "n_phrases": (n_phrases, 1),
        "n_each": (n_each, least),
        "dimension": (dimension, 1),
        "held_out": (held_out or 1, 1),
    }
    for name, (value, minimum) in minima.items():
        if value < minimum:
            condition = " with held_out" if name == "n_each" and held_out is not None else ""
            raise ParameterError(f"{name} must be at least {minimum}{condition}; got {value}")
    truth = known_model(random_state, dimension, ranks)
    shape = (n_speakers + (held_out or 0), n_phrases, n_each)
    speaker, phrase, repetition = (a.reshape(-1) for a in np.indices(shape))
    X = truth.sample({"speaker": speaker, "phrase": phrase}, random_state=random_state)

    def subset(rows: BoolArray) -> tuple[Array, Labels]:
        """Return the vectors and labels of the rows in a mask (n,)."""
        return X[rows], {"speaker": speaker[rows], "phrase": phrase[rows]}

    unseen = speaker >= n_speakers
    if held_out is None:
        return subset(~unseen)
    enrol = unseen & (repetition < ENROLLED)
    test = unseen & (repetition >= ENROLLED) & (repetition < ENROLLED + TESTED)
    ids = speaker[enrol] * n_phrases + phrase[enrol]
    enrol_vectors, enrol_labels = subset(enrol)
    test_vectors, test_labels = subset(test)
    bunch = Bunch(
        ids=ids,
        truth=truth,
        enrol=enrol_vectors,
        enrol_labels=enrol_labels,
        test=test_vectors,
        test_labels=test_labels,
    )
    return *subset(~unseen), bunch


def known_model(
    random_state: RandomState = None, dimension: int = 100, ranks: tuple[int, int] = (20, 20)
) -> MultiviewPLDA:
    """Return a model of speaker and phrase with random mean, loadings and noise variances.

    The loading of the phrase is larger than that of the speaker.

    dimension : number of columns of the vectors
    ranks : ranks of the speaker loading and of the phrase loading
    """
    rng = np.random.default_rng(random_state)
    sizes = {"speaker": (0.6, ranks[0]), "phrase": (1.0, ranks[1])}
    loadings = {
        view: size * rng.standard_normal((dimension, rank)) for view, (size, rank) in sizes.items()
    }
    mean, variances = rng.standard_normal(dimension), 8 * rng.gamma(4.0, 1.0, dimension)
    return MultiviewPLDA.from_parameters(mean, loadings, variances)
