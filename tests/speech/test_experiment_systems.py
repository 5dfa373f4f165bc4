"""Every system of the table: what it computes, on vectors whose model is known."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from experiment_problems import SMALL, drawn, drawn_task
from problems import there

from mvplda import PLDA, MultiviewPLDA, load
from mvplda.calibration import LinearCalibrator
from mvplda.exceptions import FewSpeakersWarning, ParameterError
from mvplda.io.vectors import VectorSet
from mvplda.metrics import cllr, evaluate
from mvplda.models.baselines import CascadeScorer
from mvplda.preprocessing import standard_chain
from mvplda.speech.experiment.extraction import Extra
from mvplda.speech.experiment.systems import (
    ALONE,
    PAPERS,
    SYSTEMS,
    BackendSettings,
    claims,
    development_task,
    run_system,
    systems_named,
    tune,
)
from mvplda.speech.experiment.task import Task

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

AVERAGED = tuple(
    f"{system.name}{vectors}" for system in (*PAPERS, ALONE) for vectors in ("", "-raw")
)


@pytest.fixture(scope="module")
def task():
    """Enrolments of different sizes, their models in an order that no sorting would give."""
    corpus, vectors = drawn({"speaker": 18, "phrase": 4}, noise=2.0)
    models = list(corpus.protocol.enrol.items())
    order = np.random.default_rng(3).permutation(len(models))
    enrol = {models[i][0]: models[i][1][: 1 + i % 3] for i in order}
    return Task.of(replace(corpus, protocol=replace(corpus.protocol, enrol=enrol)), vectors)


@pytest.fixture(scope="module")
def scored(task):
    return {name: run_system(system, task, SMALL) for name, system in SYSTEMS.items()}


def components(task, number):
    """The first principal components, by the singular vectors of the centred training vectors."""
    mean = task.train.mean(axis=0)
    _, _, directions = np.linalg.svd(task.train - mean, full_matrices=False)
    return [(X - mean) @ directions[:number].T for X in (task.train, task.enrol, task.test)]


def means(X, owner):
    return np.array([X[owner == i].mean(axis=0) for i in range(owner.max() + 1)])


def test_all_have_a_finite_score_for_every_trial(task, scored):
    assert list(scored) == list(SYSTEMS)
    for name, found in scored.items():
        assert found.scores.shape == (len(task.model_labels["speaker"]), len(task.test)), name
        assert np.isfinite(found.scores).all(), name
        assert found.scores.std() > 0, name


def test_cosine_is_the_cosine(task, scored):
    mean = task.train.mean(axis=0)
    enrol, test = means(task.enrol, task.enrol_ids) - mean, task.test - mean
    expected = (
        enrol @ test.T / np.linalg.norm(enrol, axis=1)[:, None] / np.linalg.norm(test, axis=1)
    )
    np.testing.assert_allclose(scored["cosine"].scores, expected, atol=1e-5)
    enrol, test = enrol + mean, task.test
    expected = (
        enrol @ test.T / np.linalg.norm(enrol, axis=1)[:, None] / np.linalg.norm(test, axis=1)
    )
    np.testing.assert_allclose(scored["cosine-plain"].scores, expected, atol=1e-5)


@pytest.mark.parametrize("name", SYSTEMS)
def test_rows_are_enrolments_in_their_order(task, scored, name):
    """Each enrolment on its own, claiming its own phrase, gives its row."""
    found = scored[name]
    lines: list[tuple[float, float]] = []
    for i in (0, 7, len(found.scores) - 1):
        question: dict[str, Any] = (
            dict(SYSTEMS[name].question(task))
            if name.startswith(("jplda-printed", "jplda-alone"))
            else {}
        )
        if name in ("jplda-known", "jplda-tuned", "best"):
            question["known"] = {"phrase": task.model_labels["phrase"][i : i + 1]}
        own = task.enrol[task.enrol_ids == i]
        ask = (
            found.model.llr
            if name == "jplda-tuned" or found.model.calibrator is None
            else found.model.calibrated
        )
        options = {"method": "average"} if name in AVERAGED else {}
        alone = np.asarray(
            ask(found.model.enrol(own, np.zeros(len(own)), **options), task.test, **question)
        )[0]
        if (
            name == "jplda-tuned"
        ):  # calibrated for the known phrase, the model's own calibration is for the plain question
            slope, shift = np.polyfit(alone, found.scores[i], 1)
            assert slope > 0
            alone = slope * alone + shift
            lines.append((slope, shift))
        np.testing.assert_allclose(found.scores[i], alone, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(lines, lines[:1] * len(lines), rtol=1e-3, atol=1e-3)


def test_the_papers_systems_are_fitted_to_plain_components(task, scored):
    """Ranks 4 + 3 and 8, ten iterations, diagonal noise, the mean of an enrolment scored as one vector."""
    train, enrol, test = components(task, SMALL.reduce)
    averaged = means(enrol, task.enrol_ids)
    for name, views in (
        ("jplda-exact", {"speaker": 4, "phrase": 3}),
        ("plda-cell", {"speaker:phrase": 8}),
    ):
        model = MultiviewPLDA(views, max_iter=10, tol=0, random_state=0).fit(
            train, task.train_labels
        )
        np.testing.assert_allclose(
            scored[name].scores, model.llr(averaged, test), rtol=1e-3, atol=2e-3
        )
    assert scored["jplda-exact"].note == "ranks 4 + 3"
    assert scored["plda-cell"].note == "rank 8"


def test_raw_rows_see_the_vectors_as_they_are(task, scored):
    """Whatever the settings reduce to; and without a reduction the other rows are the same and say so."""
    assert task.train.shape[1] > 9
    averaged = means(task.enrol, task.enrol_ids)
    for name, views in (
        ("jplda-exact", {"speaker": 4, "phrase": 3}),
        ("plda-cell", {"speaker:phrase": 8}),
    ):
        model = MultiviewPLDA(views, max_iter=10, tol=0, random_state=0).fit(
            task.train, task.train_labels
        )
        np.testing.assert_allclose(
            scored[f"{name}-raw"].scores, model.llr(averaged, task.test), rtol=1e-3, atol=2e-3
        )
    reduced, none = (replace(SMALL, reduce=number) for number in (9, None))
    system = SYSTEMS["jplda-printed"]
    raw = scored["jplda-printed-raw"].scores
    np.testing.assert_array_equal(
        run_system(SYSTEMS["jplda-printed-raw"], task, reduced).scores, raw
    )
    np.testing.assert_array_equal(run_system(system, task, none).scores, raw)
    assert np.abs(run_system(system, task, reduced).scores - raw).max() > 0.1
    assert [system.heading(settings) for settings in (reduced, none)] == [
        "jPLDA as printed, reduced",
        "jPLDA as printed, raw",
    ]
    assert BackendSettings.from_dict({"reduce": "none"}).reduce is None


def test_plda_by_speaker_and_the_cascade(task, scored):
    train, enrol, test = components(task, SMALL.reduce)
    model = PLDA(8, max_iter=10, tol=0).fit(train, task.train_labels["speaker"])
    expected = model.llr(model.enrol(enrol, task.enrol_ids), test)
    np.testing.assert_allclose(scored["plda-speaker"].scores, expected, rtol=1e-3, atol=2e-3)
    train, enrol, test = components(task, SMALL.components)
    scorer = CascadeScorer({"speaker": 5, "phrase": 3}, {"noise": "full", "max_iter": 20}).fit(
        train, task.train_labels
    )
    expected = scorer.llr(scorer.enrol(enrol, task.enrol_ids), test)
    np.testing.assert_allclose(scored["cascade"].scores, expected, rtol=1e-3, atol=2e-3)


def test_a_claim_of_another_phrase_is_another_score(task, scored):
    """What is claimed is the phrase of the enrolment: with the claims shifted, targets are no longer accepted."""
    other = {**task.model_labels, "phrase": np.roll(np.unique(task.model_labels["phrase"]), 1)[
        np.unique(task.model_labels["phrase"], return_inverse=True)[1]]}  # fmt: skip
    wrong = run_system(SYSTEMS["jplda-known"], replace(task, model_labels=other), SMALL).scores
    target = task.kinds["TC"]
    assert scored["jplda-known"].scores[target].mean() > wrong[target].mean() + 2
    assert (
        evaluate(wrong, task.kinds)["TW"]["eer"]
        > 2 * evaluate(scored["jplda-known"].scores, task.kinds)["TW"]["eer"]
    )


def test_a_phrase_that_was_not_trained_on_can_be_claimed():
    corpus, vectors = drawn({"speaker": 14, "phrase": 4})
    train = corpus.protocol.train
    kept = train[corpus.labels["phrase"][train] != "p03"]
    task = Task.of(replace(corpus, protocol=replace(corpus.protocol, train=kept)), vectors)
    for name in ("jplda-known", "best"):
        scores = run_system(SYSTEMS[name], task, SMALL).scores
        assert np.isfinite(scores).all()
        assert evaluate(scores, task.kinds)["Total"]["eer"] < 0.2


def test_three_views_go_through_every_system():
    task = drawn_task(
        {"speaker": 8, "phrase": 3, "channel": 2},
        sessions=4,
        training=5,
        views=("speaker", "phrase", "channel"),
        noise=0.5,
    )
    errors = {}
    for name, system in SYSTEMS.items():
        if not system.two_views:
            scores = run_system(system, task, SMALL).scores
            assert np.isfinite(scores).all(), name
            errors[name] = evaluate(scores, task.kinds)["Total"]["eer"]
    assert set(SYSTEMS) - set(errors) == {
        f"jplda-{name}{vectors}" for name in ("printed", "alone") for vectors in ("", "-raw")
    }
    assert errors["jplda-exact"] < 0.8 * errors["cosine"]


@pytest.mark.filterwarnings("error")
def test_a_handful_of_vectors_is_enough_for_all_of_them():
    """Ranks, components and folds shrink to what there is."""
    task = drawn_task({"speaker": 5, "phrase": 2}, sessions=3, training=3, per_model=1, dimension=6)
    for name, system in SYSTEMS.items():
        scores = run_system(system, task, BackendSettings()).scores
        assert np.isfinite(scores).all(), name
    assert run_system(SYSTEMS["jplda-exact"], task, BackendSettings()).note == "ranks 2 + 1"
    assert run_system(SYSTEMS["best"], task, BackendSettings()).note == "2 experts"
    assert (
        run_system(SYSTEMS["jplda-tuned"], task, BackendSettings()).note
        == "ranks 2 + 1 + 5, shrinkage 0.05"
    )


def by_hand(task, held, share):
    """Cllr of trials among held-out training speakers, calibrated on themselves; the others train."""
    out = np.isin(task.train_labels["speaker"], held)
    chain = standard_chain(SMALL.components).fit(task.train[~out])
    ranks = {"speaker": 5, "phrase": 3, "speaker:phrase": 6}
    model = MultiviewPLDA(ranks, noise="full", noise_shrinkage=share, max_iter=20, random_state=0)
    model.fit(
        chain.transform(task.train[~out]),
        {view: values[~out] for view, values in task.train_labels.items()},
    )
    ratios, same, speakers = [], [], []
    cells = sorted({(s, p) for s, p in zip(*task.train_labels.values(), strict=True) if s in held})
    rows = {
        cell: [i for i, c in enumerate(zip(*task.train_labels.values(), strict=True)) if c == cell]
        for cell in cells
    }
    for enrolled in cells:
        profile = model.enrol(chain.transform(task.train[rows[enrolled][:3]]), [0, 0, 0])
        tests = np.concatenate([rows[cell][3:] for cell in cells])
        llr = model.llr(
            profile, chain.transform(task.train[tests]), known={"phrase": [enrolled[1]]}
        )[0]
        ratios += llr.tolist()
        speakers += [enrolled[0]] * len(llr)
        same += [cell == enrolled for cell in cells for _ in rows[cell][3:]]
    targets = np.array(same)
    llrs = LinearCalibrator().fit(ratios, same, speakers=speakers).transform(ratios)
    return cllr(llrs[targets], llrs[~targets])


def test_a_tuned_system_is_chosen_by_trials_of_training_speakers_held_out():
    task = drawn_task({"speaker": 18, "phrase": 4}, noise=2.0)
    held = np.unique(task.train_labels["speaker"])[[1, 4, 8]].tolist()
    task = replace(task, unseen=np.isin(task.train_labels["speaker"], held))
    inner = there(development_task(task))
    assert set(inner.model_labels["speaker"]) == set(inner.test_labels["speaker"]) == set(held)
    assert not set(inner.train_labels["speaker"]) & set(held)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tuned = tune(
            task,
            SMALL.shrinkages,
            lambda some, share: SYSTEMS["jplda-tuned"].fit(some, SMALL, share),
            claims,
        )
        for share, cost in tuned.development.items():
            assert cost == pytest.approx(by_hand(task, held, share), rel=1e-3)
    assert tuned.shrinkage == min(tuned.development, key=tuned.development.__getitem__)
    assert set(tuned.bundle.scorer.classes_["speaker"]) == set(task.train_labels["speaker"])


def test_few_speakers_of_a_calibration_are_said():
    task = drawn_task({"speaker": 18, "phrase": 4}, noise=2.0)
    with pytest.warns(FewSpeakersWarning, match=r"rests on 2 speaker\(s\)"):
        found = run_system(SYSTEMS["jplda-tuned"], task, SMALL)
    assert found.note.endswith("calibrated on 2 speakers")
    assert found.model.calibrator.n_speakers_ == 2


def test_every_system_comes_back_from_its_file(task, scored, tmp_path):
    for name, found in scored.items():
        found.model.save(tmp_path / f"{name}.safetensors")
        again = load(tmp_path / f"{name}.safetensors")
        sides = found.model.enrol(task.enrol, task.enrol_ids), task.test
        np.testing.assert_array_equal(again.llr(*sides), found.model.llr(*sides), err_msg=name)


def test_the_tests_have_no_say_in_what_is_chosen():
    task = drawn_task({"speaker": 18, "phrase": 4}, noise=2.0)
    blind = replace(
        task,
        test=task.test[::-1] + 3,
        test_labels={v: c[::-1] for v, c in task.test_labels.items()},
    )
    one, other = (run_system(SYSTEMS["best"], t, SMALL) for t in (task, blind))
    assert one.model.scorer.factors_ == other.model.scorer.factors_
    assert one.note == other.note
    np.testing.assert_array_equal(
        one.model.calibrator.transform([0.0, 1.0]), other.model.calibrator.transform([0.0, 1.0])
    )


def test_other_voices_of_a_person_held_out_do_not_train():
    """Voices at another speed are other classes, but the same person."""
    corpus, vectors = drawn({"speaker": 18, "phrase": 4})
    rows = vectors.rows(corpus.ids[corpus.protocol.train])
    labels = corpus.labels_at(corpus.protocol.train)
    person = labels["speaker"]
    voiced = {**labels, "speaker": np.char.add(person, "@0.9")}
    extra = Extra(
        VectorSet(np.char.add(vectors.ids[rows], "@0.9#0"), vectors.X[rows] + 0.1), voiced, person
    )
    met = np.unique(person)[3:]
    task = Task.of(corpus, vectors, extra, met=[*met, *np.char.add(met, "@0.9")])
    inner = there(development_task(task))
    held = set(np.unique(person)[:3])
    assert {name.split("@")[0] for name in inner.train_labels["speaker"]} == set(met)
    assert len(inner.train) == 2 * np.isin(person, met).sum()
    assert set(inner.test_labels["speaker"]) == held  # in their own voices only
    alone = there(
        development_task(Task.of(corpus, vectors, extra))
    )  # nothing is known of the extractor: a share stands in
    assert not set(there(alone.people)) & set(alone.test_labels["speaker"])
    assert len(set(alone.test_labels["speaker"])) == 2
    strangers = development_task(Task.of(corpus, vectors, met=["somebody else"]))  # all are unseen
    assert strangers is not None
    assert len(set(strangers.test_labels["speaker"])) == 2


def test_copies_of_an_enrolled_utterance_are_no_trials():
    """A copy in noise keeps its speaker's name, and still is no other session."""
    corpus, vectors = drawn({"speaker": 18, "phrase": 4})
    rows = vectors.rows(corpus.ids[corpus.protocol.train])
    labels = corpus.labels_at(corpus.protocol.train)
    copies = VectorSet(np.char.add(vectors.ids[rows], "@1#1"), vectors.X[rows] + 0.01)
    met = np.unique(labels["speaker"])[3:]
    task = Task.of(corpus, vectors, Extra(copies, labels, labels["speaker"]), met=met)
    inner, plain = (
        there(development_task(task)),
        there(development_task(Task.of(corpus, vectors, met=met))),
    )
    for name in ("enrol", "enrol_ids", "test"):
        np.testing.assert_array_equal(getattr(inner, name), getattr(plain, name))
    assert len(inner.train) == 2 * len(plain.train)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_order_of_the_table_on_drawn_vectors(seed):
    task = drawn_task({"speaker": 40, "phrase": 6}, noise=2.0, seed=seed)
    errors = {
        name: evaluate(run_system(SYSTEMS[name], task, SMALL).scores, task.kinds)
        for name in (
            "jplda-printed",
            "jplda-exact",
            "jplda-interaction",
            "jplda-known",
            "plda-cell",
        )
    }
    total = {name: result["Total"]["eer"] for name, result in errors.items()}
    assert total["jplda-exact"] < 0.8 * total["jplda-printed"]
    assert total["jplda-interaction"] < 1.05 * total["jplda-exact"]
    assert total["jplda-known"] < 0.9 * total["plda-cell"]
    assert errors["jplda-known"]["TW"]["eer"] < 0.9 * errors["jplda-interaction"]["TW"]["eer"]


def test_names_and_sizes():
    assert [s.name for s in systems_named(("best", "cosine"))] == ["cosine", "best"]
    usual, paper = ([s.name for s in systems_named(names)] for names in ((), ("paper",)))
    assert not [name for name in usual if name.endswith(("-raw", "-plain"))]
    assert paper[:4] == ["cosine-plain", "cosine", "plda-cell-raw", "plda-cell"]
    assert set(paper) | set(usual) | {"jplda-tuned"} == set(SYSTEMS)
    assert len(systems_named(("paper", "cascade"))) == len(paper) + 1
    raw = systems_named(
        ("paper",), BackendSettings(reduce=None)
    )  # where nothing is reduced, no row stands twice
    assert len({s.heading(BackendSettings(reduce=None)) for s in raw}) == len(raw) == len(paper) - 4
    assert [s.name for s in systems_named(("plda-cell-raw",), BackendSettings(reduce=None))] == [
        "plda-cell-raw"
    ]
    with pytest.raises(
        ParameterError, match=r"no system 'worst'; there are cosine-plain, .* and the group paper"
    ):
        systems_named(("worst",))
    for wrong in (
        {"paper_rank": 0},
        {"shrinkages": ()},
        {"shrinkages": (-0.1,)},
        {"components": -1},
    ):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            BackendSettings(**wrong)


def test_other_voices_train_best_only_where_held_out_speakers_are_the_better_for_it():
    task = drawn_task({"speaker": 18, "phrase": 4}, noise=1.0)
    n, speaker = len(task.train), task.train_labels["speaker"].astype(str)
    copies = {"speaker": np.char.add(speaker, "@1.1"), "phrase": task.train_labels["phrase"]}
    rubbish = np.random.default_rng(0).normal(scale=5.0, size=task.train.shape).astype(np.float32)
    more = replace(
        task,
        train=np.concatenate([task.train, rubbish]),
        train_labels={
            view: np.concatenate([task.train_labels[view], copies[view]]) for view in task.views
        },
        people=np.concatenate([speaker, speaker]),
        recorded=np.arange(2 * n) < n,
    )
    plain, other = (run_system(SYSTEMS["best"], t, SMALL) for t in (task, more))
    np.testing.assert_allclose(other.scores, plain.scores)
