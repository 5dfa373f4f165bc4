"""Evaluations that are drawn, with effects of the speakers on both sides."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from mvplda.costs import detection_cost
from mvplda.metrics import ScoreCurve, trial_kinds
from mvplda.metrics.catalogue import ActDCF, MinDCF
from mvplda.metrics.curves import Curve, SortedScores, softplus

SPREAD = 0.7


def simulate(rng, speakers=30, tests=4, mean=4.0, noise=1.0):
    """Scores (profiles, tests), which are of targets, and the speakers of both sides."""
    who = np.arange(speakers)
    test = np.repeat(who, tests)
    same = who[:, None] == test[None, :]
    own, enrolled, tested = rng.normal(0, SPREAD, (3, speakers))
    effect = np.where(same, mean + own[:, None], enrolled[:, None] + tested[test][None, :])
    return effect + rng.normal(0, noise, same.shape), same, who, test


def population(mean=4.0, noise=1.0, points=20_001):
    """Scores that stand for all speakers that there might be: even quantiles of targets and of others."""
    z = np.linspace(-6, 6, points)
    shares = np.diff(ndtr(z), prepend=0.0)
    return mean + np.hypot(SPREAD, noise) * z, np.sqrt(2 * SPREAD**2 + noise**2) * z, shares


def phrase_blind(rng, speakers=60, phrases=5, mean=9.0):
    """Scores of a model of voices alone, to which a right speaker with a wrong phrase is a target.

    Returns scores (profiles, tests), masks of the kinds, and the speakers of both sides.
    """
    speaker = np.repeat(np.arange(speakers), phrases)
    phrase = np.tile(np.arange(phrases), speakers)
    labels = {"speaker": speaker, "phrase": phrase}
    own, enrolled, tested = rng.normal(0, SPREAD, (3, speakers))
    same = speaker[:, None] == speaker[None, :]
    effect = np.where(
        same, mean + own[speaker][:, None], enrolled[speaker][:, None] + tested[speaker][None, :]
    )
    scores = effect + rng.normal(0, 1.0, same.shape)
    return scores, trial_kinds(labels, labels), speaker, speaker


def weighted_curve(targets, parts, weights):
    """The curve where one trial of a kind weighs as much as is said of the kind."""
    scores = np.concatenate([np.asarray(part, float) for part in parts.values()])
    each = np.repeat([float(weights[kind]) for kind in parts], [len(p) for p in parts.values()])
    order = np.argsort(scores)
    others = SortedScores(scores[order], each[order], softplus(scores[order]))
    return Curve(SortedScores(np.sort(np.asarray(targets, float))), others)


def min_dcf(targets, nontargets, cost="default"):
    return MinDCF(detection_cost(cost)).value(ScoreCurve(targets, nontargets))


def act_dcf(targets, nontargets, cost="default"):
    return ActDCF(detection_cost(cost)).value(ScoreCurve(targets, nontargets))
