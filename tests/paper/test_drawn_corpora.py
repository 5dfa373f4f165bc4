"""Corpora that are drawn from fitted covariances: their shares of variance, their trials, and a row."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.studies import drawn_corpora as study
from mvplda.metrics import eer

SIZE = study.Size(genders=(9, 8), tested=(3, 2), phrases=5, sessions=4, enrolled=(0, 2))


def covariances(**ranks):
    rng = np.random.default_rng(0)
    loadings = {view: rng.standard_normal((8, rank)) for view, rank in ranks.items()}
    root = np.linalg.cholesky(np.cov(rng.standard_normal((8, 50))))
    return study.Covariances(loadings, root)


ALL = {"speaker": 3, "phrase": 2, study.INTERACTION: 4, study.SESSION: 2}


@pytest.mark.parametrize("interaction", [0.0, 0.5, 2.0])
def test_drawn_vectors_have_the_covariances(interaction):
    """Class means of many people, phrases and sessions, by brute force."""
    world = covariances(**ALL).scaled(interaction=interaction, speaker=0.7)
    size = study.Size(genders=(120,), tested=(1,), phrases=60, sessions=20)
    X = study.draw(world, size, 0).astype(np.float64)
    # every effect is what remains of the means after those of coarser classes
    person, phrase = (X.mean(axis=axes, keepdims=True) for axes in ((1, 2), (0, 2)))
    grand = X.mean(axis=(0, 1, 2), keepdims=True)
    cells, sessions = (X.mean(axis=axis, keepdims=True) for axis in (2, 1))
    effects = {
        "speaker": person - grand,
        "phrase": phrase - grand,
        study.INTERACTION: cells - person - phrase + grand,
        study.SESSION: sessions - person,
    }
    rest = X - cells - sessions + person
    effects["noise"] = rest * np.sqrt(60 / 59 * 20 / 19)
    variances = {name: (effect**2).sum(axis=-1).mean() for name, effect in effects.items()}
    total = sum(world_variance(world).values())
    for name, variance in world_variance(world).items():
        assert variances[name] == pytest.approx(variance, rel=0.35, abs=0.03 * total), name
    assert world.shares[study.INTERACTION] == pytest.approx(
        world_variance(world)[study.INTERACTION] / total
    )
    noise = np.cov(effects["noise"].reshape(-1, 8), rowvar=False)
    np.testing.assert_allclose(noise, world.noise_root @ world.noise_root.T, atol=0.05)


def world_variance(world):
    found = {view: np.trace(loading @ loading.T) for view, loading in world.loadings.items()}
    return {**found, "noise": np.trace(world.noise_root @ world.noise_root.T)}


def test_interaction_and_speakers_are_scaled_alone():
    world = covariances(**ALL)
    scaled = world.scaled(interaction=0.5, speaker=0.2)
    factors = {"speaker": 0.2, "phrase": 1, study.INTERACTION: 0.1, study.SESSION: 1, "noise": 1}
    before, after = world_variance(world), world_variance(scaled)
    assert {name: after[name] / before[name] for name in before} == pytest.approx(factors)


def test_trials_are_those_of_the_corpus_within_a_gender():
    corpus = study.Corpus(study.draw(covariances(**ALL), SIZE, 0), SIZE)
    assert set(corpus.training) == {0, 1, 2, 3, 4, 5, 9, 10, 11, 12, 13, 14}
    assert [people.tolist() for people in corpus.tested] == [[6, 7, 8], [15, 16]]
    kinds = corpus.kinds()
    tests = 2
    counts = {"TC": 5 * 5 * tests, "TW": 5 * 5 * 4 * tests, "IC": (6 + 2) * 5 * tests}
    counts["IW"] = (6 + 2) * 5 * 4 * tests
    assert {kind: int(mask.sum()) for kind, mask in kinds.items()} == counts


def test_rsr2015_has_its_published_number_of_trials():
    people, phrases, tests = np.array(study.RSR2015.tested), 30, 6
    assert (people**2 * phrases**2 * tests).sum() == 30_510_000
    assert sum(study.RSR2015.genders) == 300


@pytest.mark.parametrize("name", ["PLDA", "two views", "appendix, printed score"])
def test_errors_are_those_of_trials_one_by_one(name):
    corpus = study.Corpus(study.draw(covariances(**ALL), SIZE, 0), SIZE)
    trials, system = study.Trials(corpus), study.SYSTEMS[name]
    model = system.fit(*corpus.training_data())
    scores = {True: [], False: []}
    for people in corpus.tested:
        for person in people:
            for phrase in range(5):
                enrol = corpus.X[person, phrase, [0, 2]].mean(axis=0, keepdims=True)
                for other in people:
                    tests = corpus.X[other][:, [1, 3]].reshape(-1, 8)
                    llr = model.llr(enrol, tests, scoring=system.score)[0]
                    is_phrase = np.repeat(np.arange(5), 2) == phrase
                    if person != other:
                        scores[False] += llr[is_phrase].tolist()
                    else:
                        scores[True] += llr[is_phrase].tolist()
    assert trials.errors(system)["IC"] == pytest.approx(eer(scores[True], scores[False]))


def test_speakers_are_moved_together_until_plda_has_the_level():
    size = study.Size(genders=(60,), tested=(20,), phrases=5, sessions=4, enrolled=(0, 2))
    world = covariances(**ALL)
    factor = study.speaker_factor(world, size, 0.2)
    corpus = study.Corpus(study.draw(world.scaled(speaker=factor), size, 0), size)
    found = study.Trials(corpus).errors(study.SYSTEMS["PLDA"])["IC"]
    assert found == pytest.approx(0.2, rel=0.15)


def test_a_row_has_the_ratios_of_its_errors(monkeypatch, tmp_path):
    monkeypatch.setitem(study.SOURCES, "C-VAU", lambda data: covariances(**ALL))
    study.covariances_of.cache_clear()
    condition = study.Condition("C-VAU", 0.5, None, seeds=2, systems=tuple(study.VARIANTS))
    row = study.measure(condition, tmp_path, SIZE)
    study.covariances_of.cache_clear()
    joint, plda = (
        np.array([each["IC"] for each in row["systems"][name]]) for name in ("two views", "PLDA")
    )
    expected = np.sqrt(np.prod(joint / plda))
    assert row["ratios"]["exact"]["IC"]["ratio"] == pytest.approx(expected)
    assert len(row["systems"]["two views"]) == 2
    assert len(row["systems"]["body, printed score"]) == 1
    assert set(row["chosen"]) == set(study.CHOICES)


def test_without_errors_there_is_no_ratio():
    assert study.ratio(np.array([0.1, 0.0]), np.array([0.1, 0.2])) == {}
    assert study.ratio(np.array([0.1]), np.array([0.2])) == {"ratio": pytest.approx(0.5)}
    found = study.ratio(np.array([0.1, 0.2]), np.array([0.2, 0.2]))
    assert found["low"] < found["ratio"] < found["high"]


def test_names_of_rows_are_unique(tmp_path):
    names = [condition.name for condition in study.CONDITIONS]
    names += map(study.setting_name, study.SETTINGS)
    assert sorted(names) == sorted(study.all_rows(tmp_path))
