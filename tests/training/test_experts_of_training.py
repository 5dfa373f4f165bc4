"""Experts that `train` adds to a committee: chosen on held-out people, and only if they gain."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mvplda
from mvplda import Bundle, MultiviewPLDA, _progress, make_committee, select_model
from mvplda.training import selection_lines, train
from mvplda.training.experts import choose_experts


def draw(
    speakers: int = 20, phrases: int = 8, each: int = 4, seed: int = 0
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Vectors with effects in few directions and much noise in the others: no vectors of an isotropic prior."""
    rng = np.random.default_rng(seed)
    speaker, phrase = (grid.ravel() for grid in np.indices((speakers, phrases, each))[:2])
    X = rng.normal(size=(len(speaker), 12)) * np.geomspace(0.3, 6.0, 12)
    X[:, :4] += rng.normal(size=(speakers, 4))[speaker]
    X[:, 3:6] += rng.normal(size=(phrases, 3))[phrase]
    return X, {"speaker": speaker, "phrase": phrase}


def test_chosen_expert_is_that_of_the_search_and_better_than_the_others() -> None:
    X, labels = draw()
    selections = choose_experts(X, labels, {"vectors": 12}, enrolment=2)
    selection = selections["vectors"]
    losses = {candidate.title: candidate.loss for candidate in selection.table}
    assert {candidate.noise for candidate in selection.table} == {"full", "diagonal", "prior"}
    assert selection.chosen.noise != "prior"
    assert selection.chosen.structure == "views"
    assert selection.chosen.loss < min(
        candidate.loss for candidate in selection.table if candidate.noise == "prior"
    )
    committee = make_committee({"vectors": 12}, list(labels), labels=labels, selections=selections)
    assert list(committee.experts) == ["vectors", "vectors, whitened", "vectors, chosen"]
    expert = committee.experts["vectors, chosen"].scorer
    assert isinstance(expert, MultiviewPLDA)
    assert expert.views == dict(selection.chosen.ranks)
    assert expert.noise == selection.chosen.noise
    # the same search without the two experts
    alone = select_model(
        X,
        labels,
        structures=["views", "interaction"],
        noises=["full", "diagonal"],
        enrolment=2,
        preprocessing=committee.experts["vectors, chosen"].preprocessing,
    )
    assert alone.chosen == selection.chosen
    assert all(losses[candidate.title] == candidate.loss for candidate in alone.table)


def test_no_expert_is_added_if_the_prior_has_the_lowest_loss() -> None:
    rng = np.random.default_rng(0)
    speaker, phrase = (grid.ravel() for grid in np.indices((10, 4, 3))[:2])
    X = rng.normal(size=(10, 40))[speaker] + rng.normal(size=(4, 40))[phrase]
    X += 0.8 * rng.normal(size=(10, 4, 40))[speaker, phrase]
    X += 2.0 * rng.normal(size=X.shape)
    labels = {"speaker": speaker, "phrase": phrase}
    selection = choose_experts(X, labels, {"vectors": 40})["vectors"]
    assert selection.chosen.noise == "prior"
    committee = make_committee(
        {"vectors": 40}, list(labels), labels=labels, selections={"vectors": selection}
    )
    assert list(committee.experts) == ["vectors", "vectors, whitened"]


def test_card_has_the_choice_and_every_loss(tmp_path: Path) -> None:
    X, labels = draw()
    bundle = train(X, labels, enrolment=2, blocks={"pen": 12}, folds=0)
    assert bundle.card is not None
    choice = bundle.card["choice"]["pen"]
    losses = {title: loss for title, (loss, _) in choice["table"].items()}
    assert choice["people"] == 20
    assert losses[choice["chosen"]] == pytest.approx(
        choose_experts(X, labels, {"pen": 12}, enrolment=2)["pen"].chosen.loss, abs=1e-5
    )
    assert list(losses.values()) == sorted(losses.values())
    line = selection_lines(bundle.card)[0]
    assert "Chosen for pen on 20 people" in line
    assert choice["chosen"] in line

    bundle.save(tmp_path / "model.safetensors")
    again = mvplda.load(tmp_path / "model.safetensors")
    assert isinstance(again, Bundle)
    assert selection_lines(again.card or {}) == [line]
    profiles = bundle.enrol(X[:6], np.arange(6))
    np.testing.assert_array_equal(
        bundle.llr(profiles, X[6:20]), again.llr(again.enrol(X[:6], np.arange(6)), X[6:20])
    )


def test_few_people_keep_the_experts_without_a_choice() -> None:
    X, labels = draw()
    few = labels["speaker"] < 7
    bundle = train(X[few], {view: column[few] for view, column in labels.items()})
    names = list(bundle.fitted_scorer.experts_)
    assert names == ["vectors", "vectors, whitened"]
    assert (
        "none: no speakers can be held out: expected at least 8"
        in selection_lines(bundle.card or {})[0]
    )


def test_a_phrase_of_held_out_people_alone_keeps_the_experts_without_a_choice() -> None:
    X, labels = draw(each=2)
    # two phrases, one of which a single person says: without that person one phrase is left
    labels["phrase"] = (labels["speaker"] == 3).astype(int)
    bundle = train(X, labels)
    assert "none: view 'phrase' has one class" in selection_lines(bundle.card or {})[0]
    assert list(bundle.fitted_scorer.experts_) == ["vectors", "vectors, whitened"]


def test_a_choice_can_be_left_out() -> None:
    X, labels = draw()
    bundle = train(X, labels, folds=0, choose=False)
    assert list(bundle.fitted_scorer.experts_) == ["vectors", "vectors, whitened"]
    assert selection_lines(bundle.card or {}) == []


def test_points_in_time_have_no_chosen_expert() -> None:
    X, labels = draw()
    selections = choose_experts(X, labels, {"voice": 6, "sounds": 6}, ["sounds"])
    assert list(selections) == ["voice"]


def test_one_view_is_chosen_a_rank_only() -> None:
    X, labels = draw()
    selection = choose_experts(X, {"speaker": labels["speaker"]}, {"vectors": 12})["vectors"]
    assert {candidate.structure for candidate in selection.table} == {"views"}
    assert all("one view, " in candidate.title for candidate in selection.table)
    bundle = train(X, {"speaker": labels["speaker"]}, folds=0)
    assert tuple(bundle.fitted_scorer.views_) == ("speaker",)


def test_choice_has_fewer_errors_on_speakers_that_took_no_part() -> None:
    """Minimum Cllr of new speakers, of committees with and without the chosen expert."""
    from mvplda.metrics.curves import min_cllr

    X, labels = draw(speakers=40)
    is_training = labels["speaker"] < 20
    training = {view: column[is_training] for view, column in labels.items()}
    costs = []
    for choose in (True, False):
        bundle = train(X[is_training], training, enrolment=2, folds=0, choose=choose)
        rows = np.flatnonzero(~is_training)
        cells = labels["speaker"][rows] * 100 + labels["phrase"][rows]
        enrolled = np.arange(len(rows)) % 4 < 2
        profiles = bundle.enrol(X[rows[enrolled]], cells[enrolled])
        scores = bundle.llr(profiles, X[rows[~enrolled]])
        same = profiles.ids[:, None] == cells[~enrolled]
        costs.append(min_cllr(scores[same], scores[~same]))
    assert costs[0] < 0.9 * costs[1]


def test_progress_names_every_expert_fold_and_candidate_search(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_progress, "INTERVAL_S", 0.0)
    X, labels = draw(speakers=12, phrases=4)
    bundle = train(X, labels, blocks={"pen": 12}, folds=0, settings={"folds": 3}, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "choosing a model of pen on held-out people"
    assert lines[1].startswith("choosing a model of pen on held-out people: candidates 1 ")
    experts = len(bundle.fitted_scorer.experts)
    assert f"fitted expert 'pen' of {experts} experts" in lines
    folds = [line for line in lines if line.startswith("learning the weights of experts: fold")]
    assert folds == [
        f"learning the weights of experts: fold {number} of 3 scored" for number in (1, 2, 3)
    ]
    assert bundle.scorer.verbose == 0
