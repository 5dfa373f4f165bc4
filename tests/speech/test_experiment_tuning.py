"""Held-out training speakers choose the shrinkage and calibrate; nobody is on both sides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from problems import there

from mvplda.bundle import Bundle
from mvplda.metrics import cllr, min_cllr
from mvplda.models.baselines import CosineScorer
from mvplda.models.multiview import MultiviewPLDA
from mvplda.speech.experiment.systems import (
    SYSTEMS,
    BackendSettings,
    development_task,
    run_system,
    tune,
)
from mvplda.speech.experiment.task import Task
from mvplda.toy import known_model

pytestmark = [
    pytest.mark.filterwarnings("ignore::mvplda.exceptions.MvpldaWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


def a_task(
    people: int = 24, phrases: int = 4, sessions: int = 6, unseen: int = 6, seed: int = 0
) -> Task:
    """Vectors drawn from a model; the last third of the speakers is evaluated."""
    truth = known_model(seed, dimension=20, ranks=(4, 4))
    who, what, session = (a.reshape(-1) for a in np.indices((people, phrases, sessions)))
    X = truth.sample({"speaker": who, "phrase": what}, random_state=seed).astype(np.float32)
    labels = {
        "speaker": np.char.add("s", who.astype(str)),
        "phrase": np.char.add("p", what.astype(str)),
    }
    train = who < people - 8
    enrol, test = ~train & (session < 3), ~train & (session >= 3)
    models, ids = np.unique(
        np.char.add(labels["speaker"], labels["phrase"])[enrol], return_inverse=True
    )
    first = [np.flatnonzero(enrol)[np.flatnonzero(ids == i)[0]] for i in range(len(models))]
    return Task(
        ("speaker", "phrase"),
        X[train],
        {view: values[train] for view, values in labels.items()},
        X[enrol],
        ids,
        {view: values[first] for view, values in labels.items()},
        X[test],
        {view: values[test] for view, values in labels.items()},
        people=labels["speaker"][train],
        unseen=who[train] < unseen if unseen else None,
    )


def test_development_trials_are_of_the_unseen_and_training_is_of_the_others() -> None:
    task = a_task()
    inner = development_task(task)
    assert inner is not None
    unseen = set(task.train_labels["speaker"][task.unseen].tolist())
    assert set(inner.train_labels["speaker"].tolist()).isdisjoint(unseen)
    assert set(inner.model_labels["speaker"].tolist()) == unseen
    assert set(inner.test_labels["speaker"].tolist()) == unseen
    assert len(inner.enrol) == 3 * len(inner.model_labels["speaker"]) == 3 * 6 * 4
    assert len(inner.test) == 3 * 6 * 4
    rows = {row.tobytes() for row in inner.enrol} & {row.tobytes() for row in inner.test}
    assert not rows
    # every enrolment is of the class that it is said to be of
    known = {row.tobytes(): i for i, row in enumerate(task.train)}
    for i, row in enumerate(inner.enrol):
        for view in task.views:
            assert (
                task.train_labels[view][known[row.tobytes()]]
                == inner.model_labels[view][inner.enrol_ids[i]]
            )


def test_the_order_of_the_training_vectors_does_not_matter() -> None:
    task = a_task()
    order = np.random.default_rng(5).permutation(len(task.train))
    shuffled = replace(
        task,
        train=task.train[order],
        train_labels={view: values[order] for view, values in task.train_labels.items()},
        people=there(task.people)[order],
        unseen=there(task.unseen)[order],
    )
    inner = development_task(shuffled)
    assert inner is not None
    assert (np.diff(inner.enrol_ids) >= 0).all()
    known = {row.tobytes(): i for i, row in enumerate(task.train)}
    profiles = CosineScorer().fit(inner.train).enrol(inner.enrol, inner.enrol_ids)
    assert profiles.ids.tolist() == list(range(len(inner.model_labels["speaker"])))
    for i, row in enumerate(inner.enrol):
        for view in task.views:
            assert (
                task.train_labels[view][known[row.tobytes()]]
                == inner.model_labels[view][inner.enrol_ids[i]]
            )


def test_other_voices_of_a_held_out_person_are_left_out_too() -> None:
    task = a_task()
    voices = np.char.add(task.train_labels["speaker"], "@0.9")
    labels = {"speaker": voices, "phrase": task.train_labels["phrase"]}
    both = replace(
        task,
        train=np.concatenate([task.train, task.train + 1]),
        train_labels={
            view: np.concatenate([task.train_labels[view], labels[view]]) for view in task.views
        },
        people=np.concatenate([task.people, task.people]),
        unseen=np.concatenate([task.unseen, task.unseen]),
    )
    inner = development_task(both)
    assert inner is not None
    unseen = set(task.train_labels["speaker"][task.unseen].tolist())
    trained = {name.partition("@")[0] for name in inner.train_labels["speaker"].tolist()}
    assert trained.isdisjoint(unseen)
    assert not any("@" in name for name in inner.test_labels["speaker"].tolist())


def test_without_known_unseen_speakers_some_are_drawn_and_too_few_give_none() -> None:
    inner = development_task(a_task(unseen=0))
    assert inner is not None
    assert len(np.unique(inner.model_labels["speaker"])) == 3  # a fifth of sixteen
    assert development_task(a_task(people=12, unseen=0)) is None
    assert development_task(a_task(people=24, sessions=3)) is None  # nothing is left to test with


def test_tuning_takes_the_cheapest_candidate_and_its_calibration_lowers_the_cost() -> None:
    task = a_task(people=40, unseen=10)

    def fit(some: Task, share: float) -> Bundle:
        model = MultiviewPLDA({"speaker": 4, "phrase": 3}, max_iter=10)
        model.fit(some.train, some.train_labels)
        # scores too sure of themselves by a factor that only the calibration can know
        sharper = MultiviewPLDA.from_parameters(
            model.mean_, model.loadings_, model.noise_ * (0.2 + share)
        )
        return Bundle(None, sharper)

    tuned = tune(task, (0.0, 0.8), fit)
    cheapest = min(tuned.development.values())
    clearly = cheapest <= 0.95 * tuned.development[0.0]
    assert tuned.shrinkage == (0.8 if clearly else 0.0)
    assert set(tuned.development) == {0.0, 0.8}
    overconfident = tune(task, (0.0,), fit).bundle
    profiles = overconfident.enrol(task.enrol, task.enrol_ids)
    raw, calibrated = (
        overconfident.llr(profiles, task.test),
        overconfident.calibrated(profiles, task.test),
    )
    costs = [
        cllr(s[task.targets], s[~task.targets])
        for s in (np.asarray(raw, dtype=np.float64), calibrated)
    ]
    assert costs[1] < 0.9 * costs[0]


def test_the_first_candidate_stays_unless_another_is_clearly_better() -> None:
    task = a_task(people=40, unseen=10)

    def fit(some: Task, share: float) -> Bundle:
        noisy = np.random.default_rng(0).normal(size=some.train.shape) * 30 * share
        model = MultiviewPLDA({"speaker": 4, "phrase": 3}, max_iter=10)
        return Bundle(None, model.fit(some.train + noisy, some.train_labels))

    assert tune(task, (0.001, 0.0), fit).shrinkage == 0.001  # hardly worse
    assert tune(task, (1.0, 0.0), fit).shrinkage == 0.0  # much worse


def test_best_is_calibrated_and_says_what_was_chosen() -> None:
    task = a_task(people=40, unseen=10)
    found = run_system(SYSTEMS["best"], task, BackendSettings(components=20))
    assert found.model.calibrator is not None
    assert (
        found.note == "2 experts, calibrated on 10 speakers"
    )  # those that the extractor has not met
    assert found.scores.shape == task.targets.shape
    targets, others = found.scores[task.targets], found.scores[~task.targets]
    assert cllr(targets, others) < min_cllr(targets, others) + 0.1


@pytest.mark.parametrize(("cost", "chosen"), [(0.96, 0.5), (0.94, 0.1)])
def test_what_is_clearly_better_is_a_twentieth_of_the_cost(
    monkeypatch: pytest.MonkeyPatch, cost: float, chosen: float
) -> None:
    costs = iter([1.0, cost, 0.0])  # of the shrinkages, in their order, and of the plain question
    monkeypatch.setattr(
        "mvplda.speech.experiment.systems.cllr", lambda targets, nontargets: next(costs)
    )
    fitted: list[float] = []

    def fit(some: Task, share: float) -> Bundle:
        fitted.append(share)
        return Bundle(
            None, MultiviewPLDA({"speaker": 2}, max_iter=2).fit(some.train, some.train_labels)
        )

    tuned = tune(a_task(), (0.5, 0.1), fit)
    assert tuned.shrinkage == chosen
    assert fitted == [0.5, 0.1, chosen]
    assert tuned.development == {0.5: 1.0, 0.1: cost}


def test_enrolments_are_of_the_usual_size_and_all_of_them_are_tested() -> None:
    task = a_task()
    more = np.append(task.enrol_ids, [task.enrol_ids[-1]] * 4)  # one enrolment of seven
    held = np.flatnonzero(there(task.unseen))
    cell = [held[0] + i for i in range(6)]
    assert (
        len({(task.train_labels["speaker"][i], task.train_labels["phrase"][i]) for i in cell}) == 1
    )
    keep = np.setdiff1d(
        np.arange(len(task.train)), cell[3:]
    )  # a cell with enough to enrol and nothing to test
    few = replace(
        task,
        train=task.train[keep],
        train_labels={view: values[keep] for view, values in task.train_labels.items()},
        people=there(task.people)[keep],
        unseen=there(task.unseen)[keep],
        enrol=np.concatenate([task.enrol, task.enrol[:4]]),
        enrol_ids=more,
    )
    inner = development_task(few)
    assert inner is not None
    assert np.bincount(inner.enrol_ids).tolist() == [3] * (6 * 4 - 1)
    assert inner.targets.any(axis=1).all()
    assert inner.unseen is None
