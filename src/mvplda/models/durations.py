"""Vectors of short utterances are noisier: by how much, from their seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from .._typing import Array
from ..exceptions import DataError, LabelError, ParameterError
from ..labels import label_columns
from .multiview import MultiviewPLDA

SHARES = (0.0, 0.2, 0.4, 0.6, 0.8)
"""Of the noise that falls with the seconds, in the average training vector: what is tried. Some must be left that no
length takes away, or scores would grow with the seconds alone."""

STEP = 1 / 16
"""Weights are whole numbers of these, so that vectors of about the same length are scored together."""

LEAST_GAIN = 1e-3
"""Nat a vector that a dependence on seconds must be worth to be believed."""


@dataclass(frozen=True)
class DurationNoise:
    """The noise of a vector of t seconds is a + b / t times the model's.

    The weight 1 / (a + b / t) grows with t, but never beyond 1 / a: two utterances say more than one of twice the
    length, and a recording that is repeated within itself is not two.

    Parameters
    ----------
    a, b : float
        a is positive: what no length takes away, of the person's day, the room and the microphone. b is at least 0.

    Examples
    --------
    >>> from mvplda import DurationNoise
    >>> DurationNoise(0.5, 0.4).weights([0.4, 0.8, 8.0]).tolist()
    [0.6875, 1.0, 1.8125]
    """

    a: float = 1.0
    b: float = 0.0

    def __post_init__(self) -> None:
        if not (0 < self.a < np.inf and 0 <= self.b < np.inf):
            raise ParameterError(
                f"a is positive and b at least 0, both finite; got {self.a!r} and {self.b!r}"
            )

    def weights(self, seconds: ArrayLike) -> Array:
        """(n,) weights of vectors, for `fit` and `enrol`."""
        t = check_seconds(seconds)
        return np.asarray(np.maximum(np.rint(1 / (self.a + self.b / t) / STEP), 1.0) * STEP)

    @classmethod
    def choose(
        cls, model: MultiviewPLDA, X: Any, y: Any, seconds: ArrayLike, *, folds: int = 2
    ) -> DurationNoise:
        """a and b under which held-out classes of the model's first view are likeliest; b = 0 where none is better.

        The average training vector has about the model's own noise: a + b mean(1 / t) = 1.

        Parameters
        ----------
        model : to be fitted, with its settings
        X, y : vectors, and their labels by view
        seconds : (n,) of speech
        folds : into which the classes of the first view are dealt
        """
        vectors, t = np.asarray(X), check_seconds(seconds)
        if t.shape != (len(vectors),):
            raise DataError(f"there are {len(vectors)} vectors and seconds of shape {t.shape}")
        table = model._encode(y)
        first, people = table.views[0], table.codes[table.views[0]]
        labels = {
            name: np.asarray(column) for name, column in label_columns(y, table.views).items()
        }
        if people.max() + 1 < 2 * folds:
            raise LabelError(
                f"{people.max() + 1} classes of {first!r} are too few for {folds} folds to hold out"
            )
        fold = (np.random.default_rng(0).permutation(people.max() + 1) % folds)[people]
        found = []
        for share in SHARES:
            tried = cls(1 - share, share / float(np.mean(1 / t)))
            weights, total = tried.weights(t), 0.0
            for f in range(folds):
                out = fold == f
                fitted = clone(model).fit(
                    vectors[~out], {v: c[~out] for v, c in labels.items()}, weights=weights[~out]
                )
                held = {v: c[out] for v, c in labels.items()}
                total += fitted.log_likelihood(vectors[out], held, weights=weights[out])
            found.append((total / len(vectors), tried))
        best, chosen = max(found, key=lambda pair: pair[0])
        return chosen if best > found[0][0] + LEAST_GAIN else cls()


def check_seconds(seconds: ArrayLike) -> Array:
    t = np.asarray(seconds, dtype=np.float64)
    if t.ndim != 1 or not (np.isfinite(t) & (t > 0)).all():
        raise DataError("seconds are positive numbers, one a vector")
    return t
