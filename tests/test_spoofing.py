"""Spoofing: the mixture over hypotheses against densities of drawn scores, and a-DCF against counting."""

import numpy as np
import pytest
from scipy.stats import norm

from mvplda.exceptions import DataError, ParameterError
from mvplda.metrics import cllr
from mvplda.spoofing import SpoofingCost, with_countermeasure

# speaker scores: N(3, 1) of targets and of spoofs, N(0, 1) of others; traces: N(2, 1) of spoofs, N(0, 1) of people
SPEAKER, TRACES = 3.0, 2.0


def drawn(rng, n):
    speaker = {kind: rng.normal(mean, 1, n) for kind, mean in (("target", SPEAKER), ("non", 0), ("spoof", SPEAKER))}
    traces = {kind: rng.normal(mean, 1, n) for kind, mean in (("target", 0), ("non", 0), ("spoof", TRACES))}
    return speaker, traces


def llrs(speaker, traces, share):
    llr = SPEAKER * speaker - SPEAKER**2 / 2
    return with_countermeasure(llr, TRACES * traces - TRACES**2 / 2, share)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 1.0])
def test_the_ratio_is_that_of_the_densities(share):
    rng = np.random.default_rng(0)
    s, a = rng.normal(1, 2, 200), rng.normal(1, 2, 200)
    target = norm.pdf(s, SPEAKER) * norm.pdf(a)
    rest = (1 - share) * norm.pdf(s) * norm.pdf(a) + share * norm.pdf(s, SPEAKER) * norm.pdf(a, TRACES)
    np.testing.assert_allclose(llrs(s, a, share), np.log(target / rest), rtol=1e-9, atol=1e-9)


def test_the_ratios_are_calibrated_and_better_than_without():
    rng = np.random.default_rng(1)
    speaker, traces = drawn(rng, 40_000)
    share = 0.5
    fused = {kind: llrs(speaker[kind], traces[kind], share) for kind in speaker}
    rest = np.concatenate([fused["non"], fused["spoof"]])
    for factor in (0.8, 1.25):
        assert cllr(fused["target"], rest) < cllr(factor * fused["target"], factor * rest)
    alone = {kind: SPEAKER * speaker[kind] - SPEAKER**2 / 2 for kind in speaker}
    cost = SpoofingCost()
    best = {kind: llrs(speaker[kind], traces[kind], cost.share) for kind in speaker}
    assert cost.least(*best.values()) < 0.6 * cost.least(*alone.values())
    assert cost.at(cost.threshold, *best.values()) == pytest.approx(cost.least(*best.values()), rel=0.03)


def test_the_least_cost_is_that_of_the_best_threshold():
    rng = np.random.default_rng(2)
    sides = rng.normal(2, 1, 30), rng.normal(0, 1, 50), rng.normal(1, 1, 20)
    cost = SpoofingCost(0.3, 0.2, 1, 2, 5)
    thresholds = np.concatenate([*sides, [np.inf]])
    assert cost.least(*sides) == pytest.approx(min(cost.at(t, *sides) for t in thresholds), rel=1e-12)
    assert cost.at(np.inf, *sides) >= 1
    assert min(cost.at(np.inf, *sides), cost.at(-np.inf, *sides)) == pytest.approx(1)


def test_what_cannot_be_is_refused():
    with pytest.raises(ParameterError, match="share"):
        with_countermeasure([1.0], [0.0], 1.5)
    with pytest.raises(DataError, match="one number a test"):
        with_countermeasure(np.zeros((3, 4)), np.zeros(3))
    with pytest.raises(DataError, match="NaN"):
        with_countermeasure([np.nan], [0.0])
    with pytest.raises(ParameterError, match="add up to 1"):
        SpoofingCost(0.6, 0.5)
    with pytest.raises(DataError, match="both kinds"):
        SpoofingCost().least([1.0], [0.0], [])
