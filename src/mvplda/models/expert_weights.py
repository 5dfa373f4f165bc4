"""Weights of the experts of a committee, by logistic regression over hypotheses of held-out trials."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from .._typing import Array, IntArray

RIDGE = 3e-4
"""Penalty on squared weights, relative to the size of the evidence; keeps weights moderate with few speakers."""

MAX_WEIGHT = 5.0
"""Upper bound of a weight, because a term with little evidence about held-out speakers may have much about others."""

MIN_RELATIVE_SIZE = 1e-4
"""Terms whose evidence is smaller than this share of the largest term's get the weight 0."""

OUTLIER_PROBABILITY = 0.03
"""Probability that a held-out trial is an outlier.

It keeps a few recordings that differ from all others of their speaker, or have a wrong label, from
determining the weights.
"""


def weigh_experts(evidence: Array, truth: IntArray) -> tuple[Array, float]:
    """Return the weights of the experts' terms that minimise the cost of held-out trials.

    The cost is the mean over trials of -log((1 - d) posterior of the true hypothesis + d /
    hypotheses), with d the outlier probability, plus a small penalty on squared weights. All
    hypotheses that occur have the same total weight. A hypothesis that does not occur, such as
    "same speaker, other phrase" if each speaker has one phrase, is left out: evidence for it would
    count as an error. The regression has no intercept: an extractor may have been trained on the
    held-out speakers, and an intercept fitted to them would be wrong for other speakers.

    Parameters
    ----------
    evidence : (n, hypotheses, terms) log-likelihoods by each term, 0 for the last hypothesis
    truth : (n,) number of the true hypothesis of each trial

    Returns
    -------
    weights : (terms,) from 0 to `MAX_WEIGHT`
    cost : minimum of the cost
    """
    occurring, truth = np.unique(truth, return_inverse=True)
    if len(occurring) < evidence.shape[1]:
        evidence = evidence[:, occurring]
    n, n_hypotheses, _ = evidence.shape
    # impostor trials far outnumber target trials: each hypothesis has the same total weight
    trial_weights = (1.0 / np.bincount(truth))[truth]
    trial_weights /= trial_weights.sum()

    # the optimiser needs fewer steps if all terms have the same size
    size = np.sqrt(np.einsum("nhe,nhe->e", evidence, evidence) / n)
    scale = np.maximum(size, 1e-12)
    scaled_evidence = (evidence / scale).reshape(n * n_hypotheses, -1)
    rows = np.arange(n)

    def cost(theta: Array) -> tuple[float, Array]:
        """Return the cost, and its gradient (terms,), at scaled weights.

        theta : (terms,) weight of each term times the root mean square of its evidence
        """
        logs = (scaled_evidence @ theta).reshape(n, n_hypotheses)
        posterior = np.exp(logs - logs.max(axis=1, keepdims=True))
        posterior /= posterior.sum(axis=1, keepdims=True)
        inlier_likelihood = (1 - OUTLIER_PROBABILITY) * posterior[rows, truth]
        likelihood = inlier_likelihood + OUTLIER_PROBABILITY / n_hypotheses

        # d cost / d logs of each trial
        pull = trial_weights * inlier_likelihood / likelihood
        slope = posterior * pull[:, None]
        slope[rows, truth] -= pull
        gradient = slope.ravel() @ scaled_evidence + RIDGE * theta
        ridge = 0.5 * RIDGE * float(theta @ theta)
        return ridge - float(trial_weights @ np.log(likelihood)), gradient

    # the weight of a term with almost no evidence is undetermined, and could spoil the answers to other questions
    is_weighted = size > MIN_RELATIVE_SIZE * size.max()
    upper_bounds = np.where(is_weighted, MAX_WEIGHT * scale, 0.0)
    result = minimize(
        cost,
        np.where(is_weighted, 0.3 * size, 0.0),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, bound) for bound in upper_bounds],
        options={"maxiter": 500},
    )  # (V11)
    return result.x / scale, float(result.fun)
