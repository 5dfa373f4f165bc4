"""The model written out as one dense Gaussian: slow, plain, and the oracle of the tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mvplda.inference.parameters import Parameters


@dataclass
class DensePosterior:
    log_likelihood: float
    means: list[np.ndarray]  # per view (C_k, r_k)
    covariances: list[np.ndarray]  # per view (C_k, r_k, r_k)
    sum_z: np.ndarray
    sum_zz: np.ndarray


def latent_matrix(codes: list[np.ndarray], p: Parameters) -> tuple[np.ndarray, list[int]]:
    """A with vec(X) = mean + A z + e, rows vector by vector, latents view by view, class by class."""
    n, D = len(codes[0]), len(p.mean)
    sizes = [int(c.max()) + 1 for c in codes]
    starts = np.concatenate([[0], np.cumsum([s * r for s, r in zip(sizes, p.ranks, strict=True)])])
    A = np.zeros((n * D, starts[-1]))
    for i in range(n):
        for k, code in enumerate(codes):
            r = p.ranks[k]
            column = starts[k] + code[i] * r
            A[i * D : (i + 1) * D, column : column + r] += p.loadings[k]
    return A, list(starts)


def noise_matrix(p: Parameters) -> np.ndarray:
    noise = np.asarray(p.noise)
    return np.diag(noise) if noise.ndim == 1 else noise


def log_normal(x: np.ndarray, covariance: np.ndarray) -> float:
    sign, logdet = np.linalg.slogdet(covariance)
    assert sign > 0
    return float(-0.5 * (len(x) * np.log(2 * np.pi) + logdet + x @ np.linalg.solve(covariance, x)))


def dense_posterior(X: np.ndarray, codes: list[np.ndarray], p: Parameters) -> DensePosterior:
    n = len(X)
    A, starts = latent_matrix(codes, p)
    x = (X - p.mean).reshape(-1)
    covariance = A @ A.T + np.kron(np.eye(n), noise_matrix(p))
    gain = np.linalg.solve(covariance, A).T
    mean = gain @ x
    cov = np.eye(A.shape[1]) - gain @ A
    cov = (cov + cov.T) / 2
    means, covs = [], []
    for k, r in enumerate(p.ranks):
        C = (starts[k + 1] - starts[k]) // r
        means.append(mean[starts[k] : starts[k + 1]].reshape(C, r))
        block = cov[starts[k] : starts[k + 1], starts[k] : starts[k + 1]].reshape(C, r, C, r)
        covs.append(block[np.arange(C), :, np.arange(C), :])
    second = np.outer(mean, mean) + cov
    total = sum(p.ranks)
    sum_z, sum_zz = np.zeros(total), np.zeros((total, total))
    for i in range(n):
        columns = np.concatenate(
            [
                starts[k] + code[i] * r + np.arange(r)
                for k, (code, r) in enumerate(zip(codes, p.ranks, strict=True))
            ]
        )
        sum_z += mean[columns]
        sum_zz += second[np.ix_(columns, columns)]
    return DensePosterior(log_normal(x, covariance), means, covs, sum_z, sum_zz)
