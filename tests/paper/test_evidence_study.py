"""The study of views, noise and ranks on miniatures: trials, ratios, questions and stored rows."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.special import logsumexp

from benchmarks import evidence
from benchmarks import evidence_data as data
from benchmarks import evidence_questions as questions
from benchmarks.evidence_errors import KINDS, Errors
from benchmarks.evidence_systems import Reduced, cosine_scores
from mvplda import make_two_views
from mvplda.metrics import compare_systems, eer

NOWHERE = Path("nowhere")


def miniature(dataset_folder=NOWHERE, work=NOWHERE, people=20, takes=4):
    """Vectors of 20 people, 5 second labels and four takes, without an interaction."""
    X, labels = make_two_views(people, 5, takes, dimension=10, ranks=(4, 3), random_state=0)
    rank = np.tile(np.arange(takes), people * 5)
    order = np.lexsort((labels["phrase"], labels["speaker"]))
    person, second = (labels[view][order].astype(str) for view in ("speaker", "phrase"))
    blocks = {"voice": X[order][:, :6], "words": X[order][:, 6:]}
    return data.LabelledVectors(
        blocks, person, second, rank, enrolment=2, training=12, is_unit=False
    )


@pytest.fixture
def small(monkeypatch):
    """One data set that needs no file, under the names of the study."""
    dataset = data.DataSet("miniature", 8, (), miniature)
    for module in (data, evidence, questions):
        monkeypatch.setattr(module, "DATA_SETS", dict.fromkeys(data.DATA_SETS, dataset))
    monkeypatch.setattr(evidence, "Errors", partial(Errors, resamples=10))
    monkeypatch.setattr(questions, "Errors", partial(Errors, resamples=10))
    questions.fitted_models.cache_clear()
    yield dataset
    questions.fitted_models.cache_clear()


def test_split_holds_out_people_and_enrols_first_takes():
    vectors = miniature()
    split = data.make_split(vectors, 0)
    assert len(np.unique(vectors.person[split.train])) == 12
    tested = np.unique(vectors.person[split.test])
    assert not set(tested) & set(vectors.person[split.train])
    assert set(vectors.take[split.enrol]) == {0, 1}
    assert set(vectors.take[split.test]) == {2, 3}
    assert split.trials == {"TC": 80, "TW": 320, "IC": 560, "IW": 2240}
    rows, tests = split.profiles[split.pairs[:, 0]], split.test[split.pairs[:, 1]]
    same_person = vectors.person[rows] == vectors.person[tests]
    same_second = vectors.second[rows] == vectors.second[tests]
    np.testing.assert_array_equal(split.kinds["IC"], ~same_person & same_second)
    np.testing.assert_array_equal(split.people[0] == split.people[1], same_person)
    # profile numbers of the enrolled vectors belong to their cells
    np.testing.assert_array_equal(
        vectors.cell[split.profiles][split.ids], vectors.cell[split.enrol]
    )


def test_trials_are_sampled_with_weights(monkeypatch):
    monkeypatch.setattr(data, "MAX_TRIALS", 100)
    split = data.make_split(miniature(), 0)
    assert {kind: mask.sum() for kind, mask in split.kinds.items()} == {
        "TC": 80,
        "TW": 100,
        "IC": 100,
        "IW": 100,
    }
    assert split.weights == {"TC": 1.0, "TW": 3.2, "IC": 5.6, "IW": 22.4}


def test_errors_and_ratios_of_one_division_are_those_of_the_package():
    split = data.make_split(miniature(), 0)
    rng = np.random.default_rng(0)
    target = split.kinds["TC"].astype(float)
    a, b = (2 * target + rng.standard_normal(len(target)) for _ in range(2))
    errors = Errors([split], resamples=100)
    values = errors.values([a])
    for kind in KINDS[:3]:
        expected = eer(a[split.kinds["TC"]], a[split.kinds[kind]])
        assert values[kind] == [pytest.approx(100 * expected)]
    assert values["Total"] == [pytest.approx(100 * eer(a[target > 0], a[target == 0]))]
    found = errors.ratios("a", [a], "b", [b])
    package = compare_systems(
        a, b, split.kinds, *split.people, n_resamples=100, random_state=0
    ).tests
    for kind in ("IC", "TW", "Total"):
        test = package[kind]["eer"]
        assert found[kind]["ratio"] == pytest.approx(test.ratio)
        # other draws, the same distribution
        assert found[kind]["low"] == pytest.approx(test.ratio_low, rel=0.2)
        assert found[kind]["high"] == pytest.approx(test.ratio_high, rel=0.2)


def test_ratio_of_a_system_with_itself_is_one():
    splits = [data.make_split(miniature(), seed) for seed in range(2)]
    scores = [cosine_scores(split) for split in splits]
    found = Errors(splits, resamples=20).ratios("a", scores, "the same", scores)
    assert found["Total"] == {"ratio": 1.0, "low": 1.0, "high": 1.0}


def test_reduction_has_enough_variation_within_cells():
    split = data.make_split(miniature(), 0)
    # 240 vectors of 60 cells: 180 degrees of freedom within, 10 columns
    assert Reduced(split, 150).dim == 10
    few = replace(split, train=split.train & (np.arange(len(split.train)) % 4 < 2))
    assert Reduced(few, 150).dim == 10
    assert Reduced(split, 4).X.shape == (400, 4)


def test_factorial_compares_every_structure_and_noise(small):
    row = evidence.factorial("digilets", NOWHERE, NOWHERE, splits=2)
    names = {
        f"{views}, {noise}"
        for views in ("PLDA", "two views", "three views")
        for noise in ("full", "diagonal", "prior")
    }
    assert names <= set(row["systems"])
    assert row["divisions"] == 2
    assert all(len(system["EER, %"]["Total"]) == 2 for system in row["systems"].values())
    assert row["best of four"] in ("cosine", "PLDA", "two views", "three views")
    assert set(row["ratios"]["train / best of four"]) == {"IC", "TW", "Total"}
    # drawn without interaction: two views have fewer errors than PLDA
    assert row["ratios"]["two views, full / PLDA, full"]["Total"]["ratio"] < 1


def test_committees_of_both_labels_and_of_the_combined_one(small):
    row = evidence.committees("digilets", NOWHERE, NOWHERE, splits=1)
    pair = row["ratios"][f"train / {evidence.COMBINED}"]
    assert set(pair) == {"IC", "TW", "Total"}
    combined, both = (row["systems"][name]["settings"] for name in (evidence.COMBINED, "train"))
    assert combined != both


def test_vectors_of_a_trained_network_are_divided_once():
    vectors = miniature()
    trained = tuple(np.unique(vectors.person)[:12].tolist())
    assert len(evidence.divided(vectors, 3)) == 3
    (split,) = evidence.divided(replace(vectors, fixed=trained), 3)
    assert set(vectors.person[split.train]) == set(trained)


def test_other_divisions_have_other_seeds(small):
    first, other = (
        evidence.factorial("digilets", NOWHERE, NOWHERE, splits=1, first=first) for first in (0, 5)
    )
    assert first["systems"]["cosine"] != other["systems"]["cosine"]


def test_questions_beat_or_equal_their_work_arounds(small):
    rows = {
        name: question("digilets", NOWHERE, NOWHERE, splits=2)
        for name, question in questions.QUESTIONS.items()
        if name != "new second labels"
    }
    alone = rows["one label alone"]["systems"]
    assert set(alone) >= {"cosine", "two views", "PLDA of one label"}
    assert np.mean(alone["two views"]["EER, %"]["Total"]) < np.mean(
        alone["cosine"]["EER, %"]["Total"]
    )
    known = rows["known second labels"]["systems"]
    assert np.mean(known["two views, known"]["EER, %"]["Total"]) < np.mean(
        known["two views"]["EER, %"]["Total"]
    )
    four = rows["four hypotheses"]
    assert set(four["ratios"]["two views / two PLDAs of one label"]) == {
        "wrong, %",
        "cross-entropy, bits",
    }
    for system in four["systems"].values():
        # the posteriors of no evidence have 2 bits, and miss 75 % of the trials
        assert 0 < system["cross-entropy, bits"] < 2
        assert 0 < system["wrong, %"] < 75
    assert "two views, all vectors" in rows["missing second labels"]["systems"]
    assert rows["missing second labels"]["training people"] == [12, 12]
    for row in (rows["known second labels"], rows["missing second labels"]):
        # each joint model beside each work-around
        assert len(row["work-arounds"]) == 2
        assert {pair.partition(" / ")[2] for pair in row["ratios"]} == set(row["work-arounds"])


def test_second_labels_that_are_missing_are_guessed(small):
    split = data.make_split(miniature(), 0)
    labelled = split.train & (np.arange(len(split.train)) % 3 > 0)
    known, whole = (Reduced(replace(split, train=rows), 8) for rows in (labelled, split.train))
    known.X = whole.X
    guessed = questions._guessed(known, whole)
    truth = split.labels["second"][split.train]
    is_known = labelled[split.train]
    assert (guessed == truth)[is_known].all()
    assert 0.5 < np.mean(guessed[~is_known] == truth[~is_known]) <= 1


def test_missing_labels_train_on_few_people(monkeypatch):
    monkeypatch.setattr(questions, "MAX_MISSING_PEOPLE", 9)
    split = data.make_split(miniature(), 0)
    few = questions._with_fewer_people(split, 0)
    assert len(np.unique(few.train_labels["person"])) == 9
    assert not (few.train & ~split.train).any()
    np.testing.assert_array_equal(few.pairs, split.pairs)


def test_hypotheses_are_those_of_the_model(small):
    """Pairs of log-likelihoods give the posteriors of `MultiviewPLDA.hypotheses`."""
    (fitted,) = questions.fitted_models("digilets", NOWHERE, NOWHERE, 1)
    split, X, model = fitted.split, fitted.reduced.X, fitted.models["two views"]
    logs = questions._hypothesis_logs(fitted.reduced, model)
    found = np.exp(logs - logsumexp(logs, axis=0))
    posteriors = model.hypotheses(model.enrol(X[split.enrol], split.ids), X[split.test])
    for kind, values in zip(questions.ORDER, found, strict=True):
        expected = posteriors[questions.SHARED[kind]][tuple(split.pairs.T)]
        np.testing.assert_allclose(values, expected, atol=1e-4)


def test_one_take_per_cell_has_no_plda(small):
    row = evidence.takes_curve("digilets", 1, NOWHERE, NOWHERE, splits=2)
    assert set(row["systems"]) == {"cosine", "two views"}
    assert row["training vectors"] == [60, 60]
    row = evidence.takes_curve("digilets", 3, NOWHERE, NOWHERE, splits=2)
    assert {"PLDA", "two views"} <= set(row["systems"])
    assert row["training vectors"] == [180, 180]


def test_command_writes_rows_and_continues(small, monkeypatch, tmp_path):
    monkeypatch.setattr(evidence, "SPLITS", 1)
    calls = []

    def row(folder, work):
        calls.append(folder)
        return {"title": "row", "systems": {}}

    monkeypatch.setattr(evidence, "all_rows", lambda: dict.fromkeys("ab", (row, "cvau")))
    words = [str(tmp_path), str(tmp_path), "--output", str(tmp_path)]
    for _ in range(2):
        result = CliRunner().invoke(evidence.main, words)
        assert result.exit_code == 0, result.output
    stored = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert list(stored) == ["a", "b"]
    assert len(calls) == 2
    assert stored["a"]["provenance"]["command"].startswith("python -m benchmarks evidence {data}")
    result = CliRunner().invoke(evidence.main, [*words[:2], "c"])
    assert "unknown rows ['c']" in result.output
