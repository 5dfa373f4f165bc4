"""Kinds of trials, the table by kind, and its formats."""

from __future__ import annotations

import json

import numpy as np
import pytest
from evaluation_problems import act_dcf, min_dcf

from mvplda.coded import Coded
from mvplda.exceptions import DataError, LabelError, ParameterError
from mvplda.kinds import as_masks
from mvplda.metrics import cllr, eer, evaluate, speaker_intervals, trial_kinds
from mvplda.metrics.curves import min_cllr
from mvplda.metrics.intervals import speaker_codes


def trials(seed=0, profiles=30, tests=40):
    rng = np.random.default_rng(seed)
    enrol = {"speaker": rng.integers(6, size=profiles), "phrase": rng.integers(3, size=profiles)}
    test = {"speaker": rng.integers(6, size=tests), "phrase": rng.integers(3, size=tests)}
    kinds = trial_kinds(enrol, test)
    shift = {"TC": 4, "TW": 0, "IC": 1, "IW": -3}
    scores = rng.normal(0, 2, (profiles, tests)) + sum(
        shift[kind] * mask for kind, mask in kinds.items()
    )
    return scores, kinds, enrol, test


def test_every_measure_of_every_kind_is_that_of_its_own_trials():
    scores, kinds, _, _ = trials()
    costs = ("default", "sdsv")
    result = evaluate(scores, kinds, costs)
    assert list(result.rows) == ["IW", "IC", "TW", "Total"]
    targets = scores[kinds["TC"]]
    for kind in ("IW", "IC", "TW", "Total"):
        others = scores[~kinds["TC"]] if kind == "Total" else scores[kinds[kind]]
        row = result[kind]
        assert (row.n_targets, row.n_nontargets) == (len(targets), len(others))
        assert row["eer"] == pytest.approx(eer(targets, others), abs=1e-12)
        assert row["cllr"] == pytest.approx(cllr(targets, others))
        assert row["min_cllr"] == pytest.approx(min_cllr(targets, others))
        for cost in costs:
            assert row[f"min_dcf/{cost}"] == pytest.approx(min_dcf(targets, others, cost))
            assert row[f"act_dcf/{cost}"] == pytest.approx(act_dcf(targets, others, cost))


def test_total_pools_trials_as_they_come():
    """TC 1, 3; IC 2; IW -1 three times. Pooled false alarms weigh 1/4 each."""
    scores = [1.0, 3.0, 2.0, -1.0, -1.0, -1.0]
    kinds = ["TC", "TC", "IC", "IW", "IW", "IW"]
    result = evaluate(scores, kinds)
    assert result.weights == {"IW": 0.75, "IC": 0.25}
    # hull from (0, w) to (1/2, 0): miss = false alarm at w / (1 + 2 w), w the weight of the IC trial
    assert result["Total"]["eer"] == pytest.approx(0.25 / 1.5)
    targets = np.mean(np.log2(1 + np.exp([-1.0, -3.0])))
    false = np.log2(1 + np.exp([2.0, -1.0]))
    assert result["Total"]["cllr"] == pytest.approx((targets + false @ [0.25, 0.75]) / 2)


def test_kinds_may_be_masks_names_or_flags():
    scores, kinds, _, _ = trials()
    names = np.empty(scores.shape, dtype="U2")
    for kind, mask in kinds.items():
        names[mask] = kind
    assert evaluate(scores, names).to_dict() == evaluate(scores, kinds).to_dict()
    flags = evaluate(scores, kinds["TC"])
    assert list(flags.rows) == ["nontarget", "Total"]
    assert flags["Total"]["eer"] == evaluate(scores, kinds)["Total"]["eer"]


def test_patterns_of_one_and_three_views_and_lists():
    enrol = {"speaker": [1, 1], "phrase": ["a", "b"], "room": [0, 0]}
    test = {"speaker": [1, 2], "phrase": ["a", "a"], "room": [0, 1]}
    kinds = trial_kinds(enrol, test)
    shared = [
        "speaker+phrase+room",
        "speaker+phrase",
        "speaker+room",
        "speaker",
        "phrase+room",
        "phrase",
        "room",
        "none",
    ]
    assert list(kinds) == shared
    assert [kind for kind, mask in kinds.items() if mask[0, 0]] == ["speaker+phrase+room"]
    assert [kind for kind, mask in kinds.items() if mask[1, 1]] == ["none"]
    full = trial_kinds(enrol, test)
    assert np.sum(list(full.values()), axis=0).tolist() == [[1, 1], [1, 1]]
    assert full["speaker+room"].tolist() == [[False, False], [True, False]]
    result = evaluate(np.array([[3.0, 1.0], [0.0, -1.0]]), full)
    assert result.target == "speaker+phrase+room"
    assert result["phrase"].n_nontargets == 1
    assert list(trial_kinds({"speaker": [1]}, {"speaker": [1, 2]})) == ["target", "nontarget"]


def test_labels_that_do_not_fit():
    with pytest.raises(LabelError, match="same views"):
        trial_kinds({"speaker": [1]}, {"phrase": [1]})
    with pytest.raises(LabelError, match="must be lists with one label"):
        trial_kinds({"speaker": [[1]]}, {"speaker": [1, 2]})
    with pytest.raises(LabelError, match="equal numbers of labels"):
        trial_kinds({"speaker": [1], "phrase": [1, 2]}, {"speaker": [1], "phrase": [1]})
    with pytest.raises(DataError, match="shape of the scores"):
        evaluate([1.0, 2.0], {"TC": np.array([True])})
    with pytest.raises(DataError, match="1 of the trials of kind 'IC' have another kind"):
        evaluate([1.0, 2.0], {"TC": np.array([True, True]), "IC": np.array([False, True])})
    with pytest.raises(DataError, match="name it TC, target"):
        evaluate([1.0, 2.0], ["yes", "no"])
    with pytest.raises(DataError, match="no non-target"):
        evaluate([1.0, 2.0], ["TC", "TC"])
    with pytest.raises(DataError, match="1 IC score"):
        evaluate([1.0, np.nan], ["TC", "IC"])
    with pytest.raises(ParameterError, match="rename the kind"):
        evaluate([1.0, 0.0], ["TC", "Total"])


def test_an_empty_kind_is_a_dash_and_none():
    kinds = {
        "TC": np.array([True, False]),
        "IC": np.array([False, True]),
        "TW": np.array([False, False]),
    }
    result = evaluate([2.0, 1.0], kinds)
    assert result.to_dict()["kinds"]["TW"]["eer"] is None
    assert result["TW"].n_nontargets == 0
    line = next(line for line in result.table().splitlines() if line.startswith("TW"))
    assert line.split() == ["TW", "1", "0", "-", "-", "-", "-", "-"]
    json.dumps(result.to_dict(), allow_nan=False)


def test_tables():
    scores, kinds, enrol, test = trials()
    result = evaluate(scores, kinds, ("default", "10,1,.01"))
    text = result.table()
    assert "C_miss=10, C_fa=1, P_target=0.01" in text
    assert "convex hull" in text
    assert f"{100 * result['IC']['eer']:.2f}" in text
    intervals = speaker_intervals(scores, kinds, enrol["speaker"], test["speaker"], result.costs)
    found = intervals.intervals["IC"]["eer"]
    table = result.table(intervals=intervals)
    assert f"{100 * found.estimate:.2f} [{100 * found.low:.2f}, {100 * found.high:.2f}]" in table


def test_coded_text_is_the_array_that_it_stands_for() -> None:
    text = np.array(["b", "a", "b", "cc"])
    coded = Coded.of(text)
    assert coded.names.tolist() == ["a", "b", "cc"]
    assert coded.tolist() == list(coded) == text.tolist()
    np.testing.assert_array_equal(coded, text)
    np.testing.assert_array_equal(coded == "b", text == "b")
    np.testing.assert_array_equal(coded == text, np.ones(4, dtype=bool))
    np.testing.assert_array_equal(coded.isin(["a", "x"]), text == "a")
    assert coded[1:3].used == ["a", "b"]
    assert coded[3] == "cc"
    assert coded.renamed(["x", "y", "x"]).tolist() == ["y", "x", "y", "x"]
    masks = as_masks(coded, (4,))
    assert {kind: mask.tolist() for kind, mask in masks.items()} == {
        kind: mask.tolist() for kind, mask in as_masks(text, (4,)).items()
    }


def test_speakers_are_numbered_alike_in_every_form() -> None:
    enrol, test = np.array(["ann", "bob", "ann"]), np.array(["bob", "bob", "cat"])
    for one, other in ((enrol, test), (Coded.of(enrol), test), (Coded.of(enrol), Coded.of(test))):
        first, second, count = speaker_codes(one, other, (3,))
        assert (first.tolist(), second.tolist(), count) == ([0, 1, 0], [1, 3, 2], 3)
