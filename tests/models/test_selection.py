"""The setting that is chosen on held-out speakers, against fits and losses that are computed in another way."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from mvplda import PLDA, MultiviewPLDA, select_model
from mvplda.exceptions import DataError, ParameterError
from mvplda.labels import encode_labels
from mvplda.metrics.curves import min_cllr
from mvplda.models import selection as module
from mvplda.models.heldout import held_out_trials
from mvplda.models.selection import ModelCandidate, held_out_loss
from mvplda.preprocessing import Reduction


def draw(
    *, interaction: float = 0.0, speakers: int = 24, phrases: int = 6, each: int = 3, seed: int = 0
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Vectors of the two-view model, plus an effect of each cell with this standard deviation."""
    rng = np.random.default_rng(seed)
    speaker, phrase = (index.ravel() for index in np.indices((speakers, phrases, each))[:2])
    width = 10
    X = rng.normal(size=(speakers, 4))[speaker] @ rng.normal(size=(4, width))
    X += rng.normal(size=(phrases, 3))[phrase] @ rng.normal(size=(3, width))
    X += interaction * rng.normal(size=(speakers, phrases, width))[speaker, phrase]
    return X + rng.normal(size=X.shape), {"speaker": speaker, "phrase": phrase}


def naive_loss(
    X: np.ndarray, labels: Mapping[str, np.ndarray], candidate: ModelCandidate, enrolment: int
) -> float:
    """Loss of models that are fitted to the vectors and labels of each fold, without shared statistics."""
    scores = []
    kinds = []
    for trials in held_out_trials(labels, enrolment=enrolment):
        training_labels = {view: column[trials.train] for view, column in labels.items()}
        options: dict[str, Any] = {"max_iter": 0, "prior": "isotropic"}
        if candidate.prior_strength is None:
            options = {"max_iter": module.ITERATIONS, "noise": candidate.noise}
        else:
            options["prior_strength"] = candidate.prior_strength
        if candidate.structure == "combined":
            # PLDA of the combined label, by a class of its own
            cells = np.unique(np.stack(list(training_labels.values())), axis=1, return_inverse=True)
            model = PLDA(next(iter(candidate.ranks.values())), **options)
            model.fit(X[trials.train], cells[1].reshape(-1))
        else:
            model = MultiviewPLDA(dict(candidate.ranks), **options)
            model.fit(X[trials.train], training_labels)
        profiles = model.enrol(X[trials.enrol], trials.ids)
        matrix = np.asarray(model.llr(profiles, X[trials.test], dtype=np.float64))
        rows = np.argsort(profiles.ids)
        scores.append(matrix[rows][tuple(trials.pairs.T)])
        kinds.append(trials.kinds)
    every, kind = np.concatenate(scores), np.concatenate(kinds)
    losses = [min_cllr(every[kind == 0], every[kind == k]) for k in np.unique(kind) if k]
    return float(np.mean(losses))


@pytest.mark.parametrize("interaction", [0.0, 1.0])
def test_chosen_setting_has_the_lowest_loss_of_models_fitted_naively(interaction: float) -> None:
    X, labels = draw(interaction=interaction)
    selection = select_model(X, labels, enrolment=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        losses = [naive_loss(X, labels, candidate, 2) for candidate in selection.table]
    np.testing.assert_allclose([candidate.loss for candidate in selection.table], losses, atol=2e-3)
    assert losses[0] <= min(losses) + 2e-3
    best = selection.table[0]
    if best is not selection.chosen:
        # an interaction that gains less than chance
        simpler = [each for each in selection.table if each.structure != "interaction"]
        assert selection.chosen is simpler[0]
        assert best.structure == "interaction"
        difference = np.linalg.norm(selection.chosen.influence - best.influence)
        assert selection.chosen.loss - best.loss < 2 * difference
    assert [each.loss for each in selection.table] == sorted(each.loss for each in selection.table)
    structures = {candidate.structure for candidate in selection.table}
    assert structures == {"combined", "views", "interaction"}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_interaction_is_chosen_if_the_data_have_one(seed: int) -> None:
    for interaction, structures in ((0.0, ["views"]), (1.5, ["combined", "interaction"])):
        X, labels = draw(interaction=interaction, seed=seed)
        chosen = select_model(X, labels, noises=["full"], enrolment=2).chosen
        assert chosen.structure in structures


def test_rank_of_the_data_is_chosen() -> None:
    rng = np.random.default_rng(0)
    speaker = np.repeat(np.arange(60), 6)
    X = rng.normal(size=(60, 5))[speaker] @ rng.normal(size=(5, 30)) / 2
    X += rng.normal(size=(360, 30))
    selection = select_model(X, {"speaker": speaker}, noises=["diagonal"], ranks=[1, 2, 5, 10, 20])
    assert selection.chosen.ranks == {"speaker": 5}
    assert {candidate.structure for candidate in selection.table} == {"views"}


def test_result_depends_on_the_data_alone() -> None:
    X, labels = draw()
    first = select_model(X, labels)
    second = select_model(X, labels)
    assert first == second
    renamed = {
        view: np.array([f"{(7 * code) % 101:03d}" for code in column.tolist()])
        for view, column in labels.items()
    }
    assert [each.loss for each in select_model(X, renamed).table] == pytest.approx(
        [each.loss for each in first.table], abs=1e-9
    )


def test_held_out_speakers_have_no_influence_on_models(monkeypatch: pytest.MonkeyPatch) -> None:
    X, labels = draw()
    seen = []
    from_arrays = module.SufficientStatistics.from_arrays

    def record(vectors: np.ndarray, table: Any, **options: Any) -> Any:
        seen.append(vectors)
        return from_arrays(vectors, table, **options)

    monkeypatch.setattr(module.SufficientStatistics, "from_arrays", record)
    select_model(X, labels, noises=["diagonal"], structures=["views"])
    folds = held_out_trials(labels)
    assert len(seen) == len(folds)
    for vectors, trials in zip(seen, folds, strict=True):
        tested = labels["speaker"][np.concatenate([trials.enrol, trials.test])]
        np.testing.assert_array_equal(vectors, X[trials.train])
        assert not np.isin(labels["speaker"][trials.train], tested).any()


def test_preprocessing_is_fitted_to_training_vectors_of_each_fold() -> None:
    X, labels = draw()
    selection = select_model(
        X, labels, noises=["diagonal"], structures=["views"], preprocessing=Reduction(4)
    )
    losses = []
    for candidate in selection.table:
        scores, kinds = [], []
        for trials in held_out_trials(labels):
            chain = Reduction(4).fit(X[trials.train])
            model = candidate.make_model(max_iter=module.ITERATIONS)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(
                    chain.transform(X[trials.train]),
                    {view: column[trials.train] for view, column in labels.items()},
                )
            profiles = model.enrol(chain.transform(X[trials.enrol]), trials.ids)
            tests = chain.transform(X[trials.test])
            scores.append(model.llr_trials(profiles, tests, trials.pairs))
            kinds.append(trials.kinds)
        every, kind = np.concatenate(scores), np.concatenate(kinds)
        losses.append(np.mean([min_cllr(every[kind == 0], every[kind == k]) for k in (1, 2, 3)]))
    assert [each.loss for each in selection.table] == pytest.approx(losses, abs=2e-3)


def test_one_structure_and_noise_can_be_asked_for() -> None:
    X, labels = draw()
    reported: list[ModelCandidate] = []
    selection = select_model(
        X, labels, structures=["combined"], noises=["diagonal"], progress=reported.append
    )
    assert {each.structure for each in selection.table} == {"combined"}
    assert {each.noise for each in selection.table} == {"diagonal"}
    assert sorted(reported, key=lambda each: each.loss) == list(selection.table)
    assert list(selection.chosen.ranks) == ["speaker:phrase"]
    assert selection.speakers == 24


def test_interaction_is_left_out_where_each_speaker_has_one_phrase() -> None:
    X, labels = draw()
    labels["phrase"] = labels["speaker"] % 3
    selection = select_model(X, labels, noises=["diagonal"])
    assert {each.structure for each in selection.table} == {"combined", "views"}


def test_unknown_choices_and_few_speakers_are_refused() -> None:
    X, labels = draw()
    with pytest.raises(ParameterError, match="structures"):
        select_model(X, labels, structures=["joint"])
    with pytest.raises(ParameterError, match="noises"):
        select_model(X, labels, noises="full")
    few = labels["speaker"] < 7
    with pytest.raises(DataError, match="at least 8 speakers"):
        select_model(X[few], {view: column[few] for view, column in labels.items()})


def test_standard_error_is_that_of_resampled_speakers() -> None:
    """Bootstrap over speakers: each trial is weighted by the product of how often its two speakers were drawn."""
    rng = np.random.default_rng(0)
    n_people, per_pair = 60, 2
    first, second = (index.ravel() for index in np.indices((n_people, n_people, per_pair))[:2])
    people = np.stack([first, second])
    kinds = np.where(first == second, 0, 1)
    quality = rng.normal(size=n_people)
    scores = np.where(kinds == 0, 2.0, -1.0) + quality[first] * np.where(kinds == 0, 1, 0.5)
    scores = scores + rng.normal(size=len(scores))
    loss, influence = held_out_loss(scores, kinds, people)
    assert loss == pytest.approx(min_cllr(scores[kinds == 0], scores[kinds == 1]))
    assert influence.sum() == pytest.approx(0, abs=1e-9)
    resampled = []
    for _ in range(200):
        drawn = np.bincount(rng.integers(n_people, size=n_people), minlength=n_people)
        count = np.where(kinds == 0, drawn[first], drawn[first] * drawn[second])
        rows = np.repeat(np.arange(len(scores)), count)
        some = scores[rows]
        target = kinds[rows] == 0
        resampled.append(min_cllr(some[target], some[~target]))
    assert np.linalg.norm(influence) == pytest.approx(np.std(resampled), rel=0.25)


def test_missing_labels_are_allowed() -> None:
    X, labels = draw()
    phrase = labels["phrase"].astype(object)
    phrase[::7] = None
    selection = select_model(
        X, {"speaker": labels["speaker"], "phrase": phrase}, noises=["diagonal"]
    )
    table = encode_labels({"speaker": labels["speaker"], "phrase": phrase}, ["phrase"])
    assert max(each.ranks.get("phrase") or 0 for each in selection.table) < len(
        table.classes["phrase"].names
    )
