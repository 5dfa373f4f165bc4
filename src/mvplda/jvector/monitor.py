"""How well vectors of classes that the network has not seen tell these classes apart."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..metrics import eer
from .data import IntArray

MOST = 2000
REDUCED = 100


def cosine_scores(X: NDArray[Any]) -> NDArray[np.float64]:
    """(n, n) cosines of the centred vectors."""
    centred = np.asarray(X, dtype=np.float64)
    centred = centred - centred.mean(axis=0)
    centred /= np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
    return np.asarray(centred @ centred.T)


def plda_scores(X: NDArray[Any], X_train: NDArray[Any], codes: IntArray) -> NDArray[np.float64]:
    """(n, n) likelihood ratios of PLDA with the cell as its class, trained on the network's own vectors."""
    from ..estimators.plda import PLDA
    from ..preprocessing import standard_chain

    _, cells = np.unique(codes, axis=0, return_inverse=True)
    rank = min(REDUCED, X.shape[1], len(X_train) - 1)
    chain = standard_chain(rank)
    model = PLDA(n_components=max(1, min(40, rank - 1, int(cells.max()))), max_iter=10, tol=0)
    with warnings.catch_warnings():
        # Ten iterations are enough to compare epochs by, and a young network's vectors may have few axes.
        warnings.simplefilter("ignore")
        reduced = chain.fit_transform(np.asarray(X_train, dtype=np.float64), cells.ravel())
        model.fit(reduced, cells.ravel())
    side = chain.transform(np.asarray(X, dtype=np.float64))
    return np.asarray(model.llr(model.enrol(side, np.arange(len(side))), side), dtype=np.float64)


def held_out_eer(scores: NDArray[Any], codes: IntArray, view: int) -> float:
    """EER of one view, the others shared: same cell against another class of the view only.

    Where no two vectors share all other views, every pair counts. NaN where there are no
    pairs of one kind.
    """
    first, second = np.triu_indices(len(codes), k=1)
    same = codes[first] == codes[second]
    others = np.delete(same, view, axis=1).all(axis=1)
    if not (others & same[:, view]).any() or not (others & ~same[:, view]).any():
        others = np.ones_like(others)
    targets = scores[first, second][others & same[:, view]]
    nontargets = scores[first, second][others & ~same[:, view]]
    return eer(targets, nontargets) if len(targets) and len(nontargets) else math.nan


def some_rows(count: int, seed: int, most: int = MOST) -> IntArray:
    """At most so many rows, the same ones in every epoch."""
    rows = np.random.default_rng([seed, 3]).permutation(count)[:most]
    return np.sort(rows).astype(np.int64)
