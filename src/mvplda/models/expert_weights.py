"""Weights of the experts of a committee, by logistic regression over hypotheses of held-out trials."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from .._typing import Array, IntArray

RIDGE = 3e-4
"""Weight of the squared weights, each times the size of what it multiplies: few people leave weights moderate."""

MAX_WEIGHT = 5.0
"""A part that says next to nothing of the people who were held out may say much of others."""

MIN_RELATIVE_SIZE = 1e-4
"""A part of the evidence that is smaller than this share of the largest has no weight."""

OUTLIER_PROBABILITY = 0.03
"""Probability that a held-out trial tells nothing: the few recordings that are far from all others of the same person,
or have the wrong name, do not decide what the experts count for."""


def weigh_experts(said: Array, truth: IntArray) -> tuple[Array, float]:
    """Weights that cost held-out trials least, and what they cost.

    said : (n, hypotheses, parts) evidence, 0 for the last hypothesis; truth : (n,) number of the true hypothesis. All
    hypotheses that occur weigh the same; one that does not, such as "same speaker, other phrase" where every speaker
    says one phrase, is no alternative either, or whatever speaks for it would be taken to err. The cost is the mean of
    -log((1 - DOUBT) posterior(truth) + DOUBT / hypotheses). There is no constant: it would serve the people who were
    held out, whom an extractor may have met, and no others.
    """
    occurring, truth = np.unique(truth, return_inverse=True)
    if len(occurring) < said.shape[1]:
        said = said[:, occurring]
    n, n_hypotheses, _ = said.shape
    # there are far more impostors than targets: each hypothesis weighs the same
    mass = (1.0 / np.bincount(truth))[truth]
    mass /= mass.sum()
    size = np.sqrt(np.einsum("nhe,nhe->e", said, said) / n)
    # parts of one size are easier for the optimiser
    scale = np.maximum(size, 1e-12)
    evidence = (said / scale).reshape(n * n_hypotheses, -1)
    rows = np.arange(n)

    def cost(theta: Array) -> tuple[float, Array]:
        """The cost of weights, and its slope."""
        logs = (evidence @ theta).reshape(n, n_hypotheses)
        posterior = np.exp(logs - logs.max(axis=1, keepdims=True))
        posterior /= posterior.sum(axis=1, keepdims=True)
        right = (1 - OUTLIER_PROBABILITY) * posterior[rows, truth]
        likelihood = right + OUTLIER_PROBABILITY / n_hypotheses
        # d cost / d logs of every trial
        pull = mass * right / likelihood
        slope = posterior * pull[:, None]
        slope[rows, truth] -= pull
        ridge = 0.5 * RIDGE * float(theta @ theta)
        return ridge - float(mass @ np.log(likelihood)), slope.ravel() @ evidence + RIDGE * theta

    # a part that says next to nothing of these people would get any weight, and ruin the answers to others
    tells = size > MIN_RELATIVE_SIZE * size.max()
    found = minimize(
        cost,
        np.where(tells, 0.3 * size, 0.0),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, bound) for bound in np.where(tells, MAX_WEIGHT * scale, 0.0)],
        options={"maxiter": 500},
    )  # (V11)
    return found.x / scale, float(found.fun)
