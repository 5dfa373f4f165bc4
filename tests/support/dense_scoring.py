"""Verification with dense multivariate normals over all vectors of both sides: the oracle of the tests."""

from __future__ import annotations

from itertools import product

import numpy as np
from dense import log_normal, noise_matrix

from mvplda.inference.parameters import Parameters


def joint_log_density(
    p: Parameters, vectors: np.ndarray, classes: np.ndarray, latent_prior: dict | None = None
) -> float:
    """log N of vectors whose latents are shared where `classes` (n, K) agree.

    latent_prior : {(view, class): (mean, covariance)} in place of N(0, I)
    """
    n = len(vectors)
    prior = latent_prior or {}
    covariance = np.kron(np.eye(n), noise_matrix(p))
    mean = np.tile(p.mean, n)
    for k, B in enumerate(p.loadings):
        for c in np.unique(classes[:, k]):
            m, C = prior.get((k, c), (np.zeros(B.shape[1]), np.eye(B.shape[1])))
            has = (classes[:, k] == c).astype(float)
            covariance += np.kron(np.outer(has, has), B @ C @ B.T)
            mean += np.kron(has, B @ m)
    return log_normal(vectors.reshape(-1) - mean, covariance)


def cell_classes(views: list[str], base: list[str], labels: np.ndarray) -> np.ndarray:
    """(n, K) classes of every view from (n, n_base) labels; an interaction's class is the tuple of its parts."""
    columns = []
    for view in views:
        rows = labels[:, [base.index(part) for part in view.split(":")]]
        columns.append(np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1))
    return np.stack(columns, axis=1)


def hypothesis_log_density(
    p: Parameters,
    views: list[str],
    base: list[str],
    same: tuple[str, ...],
    enrol: np.ndarray,
    test: np.ndarray,
) -> float:
    """log p(enrol, test | same) where every side is one cell."""
    labels = np.zeros((len(enrol) + len(test), len(base)), dtype=int)
    labels[len(enrol) :] = [0 if view in same else 1 for view in base]
    return joint_log_density(p, np.concatenate([enrol, test]), cell_classes(views, base, labels))


def all_patterns(base: list[str]) -> list[tuple[str, ...]]:
    return [
        tuple(v for v, s in zip(base, bits, strict=True) if s)
        for bits in product((True, False), repeat=len(base))
    ]


def log_mean(values: list[float], weights: list[float] | None = None) -> float:
    w = np.ones(len(values)) if weights is None else np.asarray(weights, dtype=float)
    keep = w > 0
    return float(np.logaddexp.reduce(np.asarray(values)[keep] + np.log(w[keep] / w.sum())))
