"""On pairs drawn from the model itself, likelihood ratios mean what they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mvplda.datasets import known_model
from mvplda.metrics import cllr
from mvplda.metrics.curves import min_cllr

N = 40_000


@pytest.fixture(scope="module")
def trials():
    """Pairs of every kind: vectors 0 and 1 of a pair share a speaker, a phrase, both or neither."""
    model = known_model(3, dimension=40, ranks=(5, 5))
    pair = np.arange(N)
    sides: dict[str, Any] = {}
    for kind, (same_speaker, same_phrase) in {
        "TC": (1, 1),
        "TW": (1, 0),
        "IC": (0, 1),
        "IW": (0, 0),
    }.items():
        speaker = np.concatenate([pair, pair if same_speaker else pair + N])
        phrase = np.concatenate([pair, pair if same_phrase else pair + N])
        X = model.sample({"speaker": speaker, "phrase": phrase}, random_state=len(sides))
        sides[kind] = np.stack([X[:N], X[N:]], axis=1)
    return model, sides


@pytest.mark.parametrize(
    ("same", "targets", "others"),
    [
        (None, ["TC"], ["TW", "IC", "IW"]),
        ("speaker", ["TC", "TW"], ["IC", "IW"]),
        ("phrase", ["TC", "IC"], ["TW", "IW"]),
    ],
)
def test_likelihood_ratios_are_calibrated(trials, same, targets, others):
    model, sides = trials
    both = np.repeat(np.arange(N)[:, None], 2, axis=1)
    scores = {
        kind: model.llr_trials(pairs[:, 0], pairs[:, 1], both, same=same, dtype=np.float64)
        for kind, pairs in sides.items()
    }
    target = np.concatenate([scores[kind] for kind in targets])
    other = np.concatenate([scores[kind] for kind in others])
    actual, least = cllr(target, other), min_cllr(target, other)
    assert 0.01 < least < 0.9
    assert actual < 1.01 * least + 0.002
    assert np.exp(-target).mean() == pytest.approx(1.0, abs=0.15)
    assert np.mean(np.exp(np.minimum(other, 30))) == pytest.approx(1.0, abs=0.3)


def test_posteriors_of_hypotheses_are_frequencies(trials):
    """Among pairs to which a hypothesis gives about p, a share of about p is of that kind."""
    model, sides = trials
    some = 3000
    pairs = np.concatenate([sides[kind][:some] for kind in ("TC", "TW", "IC", "IW")])
    truth = np.repeat(np.arange(4), some)
    given = np.empty((len(pairs), 4))
    for start in range(0, len(pairs), 500):
        block = pairs[start : start + 500]
        posterior = model.hypotheses(block[:, 0], block[:, 1], dtype=np.float64)
        given[start : start + 500] = np.stack([np.diag(posterior[h]) for h in posterior], axis=1)
    for kind in range(4):
        for low, high in ((0.2, 0.4), (0.4, 0.6), (0.6, 0.8)):
            chosen = (given[:, kind] >= low) & (given[:, kind] < high)
            expected = given[chosen, kind].mean()
            error = np.sqrt(expected * (1 - expected) / chosen.sum())
            assert abs((truth[chosen] == kind).mean() - expected) < 4 * error
