"""Spoofing: the mixture over hypotheses against densities of drawn scores, and a-DCF against counting."""

from typing import Any

import numpy as np
import pytest
from dense_scoring import all_patterns, hypothesis_log_density, log_mean
from problems import speakers_and_phrases
from scipy.stats import norm

from mvplda import Bundle, Committee, CosineScorer, MultiviewPLDA, Question
from mvplda.calibration.hypotheses import HypothesisCalibrator
from mvplda.exceptions import DataError, ParameterError
from mvplda.metrics import cllr, eer
from mvplda.scoring.question import with_countermeasure

VIEWS = {"speaker": 2, "phrase": 2, "speaker:phrase": 1}

# speaker scores: N(3, 1) of targets and of spoofs, N(0, 1) of others; traces: N(2, 1) of spoofs, N(0, 1) of people
SPEAKER, TRACES = 3.0, 2.0


def drawn(rng, n):
    speaker = {
        kind: rng.normal(mean, 1, n)
        for kind, mean in (("target", SPEAKER), ("non", 0), ("spoof", SPEAKER))
    }
    traces = {
        kind: rng.normal(mean, 1, n)
        for kind, mean in (("target", 0), ("non", 0), ("spoof", TRACES))
    }
    return speaker, traces


def llrs(speaker, traces, share):
    llr = SPEAKER * speaker - SPEAKER**2 / 2
    return with_countermeasure(llr, TRACES**2 / 2 - TRACES * traces, share)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 1.0])
def test_the_ratio_is_that_of_the_densities(share):
    rng = np.random.default_rng(0)
    s, a = rng.normal(1, 2, 200), rng.normal(1, 2, 200)
    target = norm.pdf(s, SPEAKER) * norm.pdf(a)
    rest = (1 - share) * norm.pdf(s) * norm.pdf(a) + share * norm.pdf(s, SPEAKER) * norm.pdf(
        a, TRACES
    )
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
    others = np.concatenate([alone["non"], alone["spoof"]])
    assert eer(fused["target"], rest) < 0.6 * eer(alone["target"], others)


def test_what_cannot_be_is_refused():
    with pytest.raises(ParameterError, match="share"):
        Question(countermeasure=[0.0], spoof_prior=1.5)
    with pytest.raises(DataError, match="one number per test"):
        Question(countermeasure=np.zeros(3)).countermeasure_llrs(4)
    with pytest.raises(DataError, match="NaN"):
        Question(countermeasure=[np.nan])


@pytest.fixture(scope="module")
def small():
    """A model with an interaction, three enrolled vectors of two profiles and four tests."""
    X, labels = speakers_and_phrases()
    model = MultiviewPLDA(VIEWS).fit(X, labels)
    rng = np.random.default_rng(5)
    return model, model.enrol(X[:3], ["a", "a", "b"]), X[:3], X[10:14], rng.normal(0, 2, 4)


def densities(model, sides):
    """{hypothesis: log-likelihood} of one trial, by dense Gaussians over all its vectors."""
    base = ["speaker", "phrase"]
    return {
        h: hypothesis_log_density(model.parameters_, list(VIEWS), base, h, *sides)
        for h in all_patterns(base)
    }


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("same", [None, "speaker"])
def test_llr_is_that_of_dense_densities_with_spoofs_among_the_rest(small, same, share):
    model, profiles, X, tests, traces = small
    asked = {"same": same, "countermeasure": traces, "spoof_prior": share, "dtype": np.float64}
    found = model.llr(profiles, tests, **asked)
    for i, enrolled in enumerate((X[:2], X[2:])):
        for j in range(len(tests)):
            log = densities(model, (enrolled, tests[j : j + 1]))
            yes = [h for h in log if set([same] if same else ["speaker", "phrase"]) <= set(h)]
            target = log_mean([log[h] for h in yes])
            ordinary = log_mean([log[h] for h in log if h not in yes])
            rest = log_mean([ordinary, target - traces[j]], [1 - share, share])
            assert found[i, j] == pytest.approx(target - rest, abs=1e-8)
    pairs = np.array([[1, 3], [0, 0], [1, 3]])
    np.testing.assert_allclose(
        model.llr_trials(profiles, tests, pairs, **asked), found[tuple(pairs.T)], atol=1e-9
    )
    best = model.identify(profiles, tests, top=1, **asked)
    np.testing.assert_allclose(best.scores[:, 0], found.max(axis=0), atol=1e-9)
    out = np.empty_like(found)
    assert model.llr(profiles, tests, **asked, out=out) is out
    np.testing.assert_array_equal(out, found)


def test_a_spoof_is_a_fifth_hypothesis(small):
    model, profiles, X, tests, traces = small
    priors = {("speaker", "phrase"): 3.0, ("speaker",): 1.0, (): 2.0}
    asked = {"priors": priors, "countermeasure": traces, "spoof_prior": 0.4, "dtype": np.float64}
    found = model.hypotheses(profiles, tests, **asked)
    assert list(found)[-1] == ("spoof",)
    for j in range(len(tests)):
        log = densities(model, (X[:2], tests[j : j + 1]))
        weights = {h: priors.get(h, 0.0) * (1 if len(h) == 2 else 0.6) for h in log}
        parts = {h: weights[h] * np.exp(log[h] - log[()]) for h in log}
        parts[("spoof",)] = 0.4 * 3.0 * np.exp(log["speaker", "phrase"] - traces[j] - log[()])
        for h, part in parts.items():
            assert found[h][0, j] == pytest.approx(part / sum(parts.values()), abs=1e-9), h
    # the odds of the first against the rest are those of the LLR
    llr = model.llr(profiles, tests, **asked)
    odds = np.log(found["speaker", "phrase"]) - np.log1p(-found["speaker", "phrase"])
    np.testing.assert_allclose(odds, llr + np.log(3.0 / (3.0 * 0.6 + 3.0 * 0.4)), atol=1e-6)


def test_limits_of_a_countermeasure(small):
    model, profiles, _, tests, _ = small
    plain, llr = model.hypotheses(profiles, tests), model.llr(profiles, tests, dtype=np.float64)
    never = model.hypotheses(profiles, tests, countermeasure=np.inf)
    # spoofs ruled out: the four as they are, where priors of the ordinary ones are
    weights = {h: 1.0 if len(h) == 2 else 0.5 for h in plain}
    ordinary = model.hypotheses(profiles, tests, priors=weights)
    for h in plain:
        np.testing.assert_allclose(never[h], ordinary[h], atol=1e-6)
    assert (never["spoof",] == 0).all()
    surely = model.hypotheses(profiles, tests, countermeasure=-np.inf)
    assert (surely["spoof",] == 1).all()
    none = model.hypotheses(profiles, tests, countermeasure=-5.0, spoof_prior=0.0)
    for h in plain:
        np.testing.assert_allclose(none[h], plain[h], atol=1e-6)
    silent = model.hypotheses(
        profiles, tests, countermeasure=0.0
    )  # nothing told: the share of the prior is left
    np.testing.assert_allclose(silent["spoof",], 1.5 * silent["speaker", "phrase"], rtol=1e-5)
    asked = {"dtype": np.float64, "spoof_prior": 0.2}
    assert (model.llr(profiles, tests, countermeasure=-np.inf, **asked) == -np.inf).all()
    np.testing.assert_allclose(
        model.llr(profiles, tests, countermeasure=np.inf, **asked), llr - np.log(0.8)
    )
    np.testing.assert_array_equal(
        model.llr(profiles, tests, countermeasure=3.0, dtype=np.float64, spoof_prior=0), llr
    )


def scorers():
    X, y = speakers_and_phrases()
    two = MultiviewPLDA({"speaker": 2, "phrase": 2})
    yield MultiviewPLDA({"speaker": 2, "phrase": 2}).fit(X, y), X
    yield Committee({view: MultiviewPLDA({view: 2}) for view in y}, weights=None).fit(X, y), X
    yield Committee({"one": two, "other": two}, weights=None).fit(X, y), X
    yield Bundle(None, MultiviewPLDA({"speaker": 2, "phrase": 2})).fit(X, y), X


@pytest.mark.parametrize("number", range(4))
def test_every_scorer_of_likelihood_ratios_takes_a_countermeasure(number):
    scorer, X = list(scorers())[number]
    traces = np.linspace(-3, 3, 5)
    plain = scorer.llr(X[:3], X[20:25])
    asked: dict[str, Any] = {"countermeasure": traces, "spoof_prior": 0.3}
    want = with_countermeasure(plain, traces, 0.3)
    np.testing.assert_allclose(scorer.llr(X[:3], X[20:25], **asked), want, rtol=1e-5)
    np.testing.assert_allclose(
        scorer.llr(X[:3], X[20:25], question=Question(**asked)), want, rtol=1e-5
    )
    pairs = np.array([[2, 0], [1, 4]])
    np.testing.assert_allclose(
        scorer.llr_trials(X[:3], X[20:25], pairs, **asked), want[tuple(pairs.T)], rtol=1e-4
    )
    best = scorer.identify(scorer.enrol(X[:3]), X[20:25], top=3, **asked)
    np.testing.assert_allclose(best.scores, -np.sort(-want.T, axis=1), rtol=1e-4)
    if hasattr(scorer, "hypotheses"):
        odd = scorer.hypotheses(X[:3], X[20:25], **asked)
        assert sum(odd.values()) == pytest.approx(1, abs=1e-5)
        tc = odd["speaker", "phrase"].astype(float)
        np.testing.assert_allclose(np.log(tc / (1 - tc)), want - np.log(3), atol=1e-3)
    for wrong in (np.zeros(3), np.zeros((2, 5)), [0, 0, np.nan, 0, 0]):
        with pytest.raises(DataError, match="countermeasure"):
            scorer.llr(X[:3], X[20:25], countermeasure=wrong)
    with pytest.raises(DataError, match="one number per test"):
        scorer.identify(scorer.enrol(X[:3]), X[20:25], countermeasure=np.zeros((3, 5)))


def test_a_bundle_puts_the_countermeasure_behind_the_calibration():
    X, y = speakers_and_phrases()
    bundle = Bundle(None, MultiviewPLDA({"speaker": 2, "phrase": 2})).fit(X, y)
    calibrator = HypothesisCalibrator()
    calibrator.weights_ = {"speaker": 0.5, "phrase": 0.4, "together": 0.3}
    calibrator.constants_ = {"speaker+phrase": -1.0}
    calibrator.outlier_probability_ = 0.01
    bundle.calibrations = {"speaker+phrase": calibrator}
    traces = np.linspace(-2, 2, 60)
    plain = bundle.answer(X[:60], X[60:120])
    question = Question(countermeasure=traces, spoof_prior=0.1)
    mixed = bundle.answer(X[:60], X[60:120], question)
    assert plain.calibrated
    assert mixed.calibrated
    np.testing.assert_allclose(mixed.llr, with_countermeasure(plain.llr, traces, 0.1))
    pairs = np.array([[3, 50], [7, 0]])
    some = bundle.answer(X[:60], X[60:120], question, pairs)
    np.testing.assert_allclose(some.llr, mixed.llr[tuple(pairs.T)])


def test_what_is_no_likelihood_ratio_takes_no_countermeasure():
    X, _ = speakers_and_phrases()
    with pytest.raises(ParameterError, match="are not likelihood ratios"):
        CosineScorer().fit(X).llr(X[:2], X[2:4], countermeasure=[0, 0])
    with pytest.raises(ParameterError, match="requires countermeasure="):
        Question(spoof_prior=0.1)
