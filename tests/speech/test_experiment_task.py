"""What a corpus and vectors make of an experiment: who trains, enrols and tests, and which trials there are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from experiment_problems import drawn, drawn_task, in_groups
from problems import there

from mvplda.exceptions import DataError, LabelError
from mvplda.io.trials import Trials
from mvplda.io.vectors import VectorSet, write_vectors
from mvplda.speech.corpora.folder import corpus_of_vectors
from mvplda.speech.experiment.configuration import Configuration
from mvplda.speech.experiment.extraction import Extra, other_voices
from mvplda.speech.experiment.run import _vectors
from mvplda.speech.experiment.task import Task
from mvplda.speech.features.reading import Clip

CLASSES = {"speaker": 9, "phrase": 3}


def test_trials_are_fair_of_recordings_of_people_that_the_extractor_has_not_met():
    task = drawn_task({"speaker": 6, "phrase": 2})
    people = task.train_labels["speaker"]
    copies = np.arange(len(people)) % 2 == 1
    assert task.fair.all()
    np.testing.assert_array_equal(replace(task, recorded=~copies).fair, ~copies)
    met = people == people[0]
    np.testing.assert_array_equal(replace(task, unseen=~met, recorded=~copies).fair, ~met & ~copies)
    assert replace(
        task, unseen=np.zeros(len(people), dtype=bool)
    ).fair.all()  # it has met everybody


def test_every_vector_goes_where_its_id_goes():
    corpus, vectors = drawn(CLASSES, training=6)
    task = Task.of(corpus, vectors)
    place = {name: vectors.X[i] for i, name in enumerate(vectors.ids)}
    label = {name: (s, p) for name, s, p in zip(corpus.ids, *corpus.labels.values(), strict=True)}

    trained = corpus.ids[corpus.protocol.train]
    np.testing.assert_array_equal(task.train, [place[name] for name in trained])
    assert list(zip(*task.train_labels.values(), strict=True)) == [label[name] for name in trained]
    models = list(corpus.protocol.enrol.values())
    for i, rows in enumerate(models):
        np.testing.assert_array_equal(
            task.enrol[task.enrol_ids == i], [place[name] for name in corpus.ids[rows]]
        )
        for row in rows:
            assert (
                tuple(str(values[i]) for values in task.model_labels.values())
                == label[corpus.ids[row]]
            )
    np.testing.assert_array_equal(
        task.test, [place[name] for name in corpus.ids[corpus.protocol.test]]
    )
    assert (len(task.train), len(models), len(task.test)) == (6 * 3 * 5, 9, 3 * 3 * 2)
    assert not set(task.train_labels["speaker"]) & {
        *task.model_labels["speaker"],
        *task.test_labels["speaker"],
    }
    assert task.classes == {"speaker": 6, "phrase": 3, "speaker:phrase": 18}
    assert task.mask is None
    assert {kind: int(mask.sum()) for kind, mask in task.kinds.items()} == corpus.trial_counts()


def test_groups_never_meet():
    corpus, vectors = drawn(CLASSES, training=3)
    group = np.where(np.isin(corpus.labels["speaker"], ["s00", "s01", "s02", "s03"]), "f", "m")
    task = Task.of(in_groups(corpus, group), vectors)
    of = dict(zip(corpus.labels["speaker"], group, strict=True))
    for kind, mask in task.kinds.items():
        for i, j in np.ndindex(mask.shape):
            same = [task.model_labels[view][i] == task.test_labels[view][j] for view in task.views]
            meets = of[task.model_labels["speaker"][i]] == of[task.test_labels["speaker"][j]]
            assert mask[i, j] == (meets and kind == ["IW", "IC", "TW", "TC"][2 * same[0] + same[1]])
    assert there(task.groups).tolist() == [of[s] for s in task.model_labels["speaker"]]
    assert set(there(task.groups)) == {"f", "m"}


def test_listed_trials_and_no_others():
    whole, vectors = drawn(CLASSES, training=6)
    models = {
        f"model{i}": whole.ids[rows].tolist()
        for i, rows in enumerate(whole.protocol.enrol.values())
    }
    tests = whole.ids[whole.protocol.test]
    rng = np.random.default_rng(0)
    pairs = [(m, t) for m in models for t in tests if rng.random() < 0.4]
    trials = Trials(np.array([m for m, _ in pairs]), np.array([t for _, t in pairs]))
    labels = dict(whole.labels)
    corpus = corpus_of_vectors(whole.ids, labels, models=models, trials=trials, name="listed")
    task = Task.of(corpus, vectors)
    assert int(sum(mask.sum() for mask in task.kinds.values())) == len(pairs)
    columns = {name: j for j, name in enumerate(corpus.ids[corpus.protocol.test])}
    rows = {name: i for i, name in enumerate(corpus.protocol.enrol)}
    wanted = np.zeros((len(rows), len(columns)), dtype=bool)
    for model, test in pairs:
        wanted[rows[model], columns[test]] = True
    np.testing.assert_array_equal(task.mask, wanted)
    used = {name for _, name in pairs} | {name for members in models.values() for name in members}
    assert len(task.train) == len(whole) - len(used)


def test_further_training_vectors_come_with_their_labels():
    corpus, vectors = drawn(CLASSES, training=6)
    labels = {"speaker": np.array(["new", "new"]), "phrase": np.array(["p00", "other"])}
    extra = VectorSet(np.array(["x", "y"]), np.full((2, 15), 7.0))
    plain = Task.of(corpus, vectors)
    task = Task.of(
        corpus,
        vectors,
        Extra(extra, labels, np.array(["new", "new"])),
        met=["s00", "s01", "s02", "s03"],
    )
    np.testing.assert_array_equal(task.train, np.vstack([plain.train, extra.X]))
    assert task.train_labels["speaker"].tolist() == [*plain.train_labels["speaker"], "new", "new"]
    assert task.classes == {"speaker": 7, "phrase": 4, "speaker:phrase": 20}
    np.testing.assert_array_equal(task.test, plain.test)
    met = ("s00", "s01", "s02", "s03")
    assert there(task.unseen).tolist() == [name not in met for name in there(task.people)]
    assert there(task.people).tolist() == task.train_labels["speaker"].tolist()


def test_three_views():
    corpus, vectors = drawn({"speaker": 6, "phrase": 2, "channel": 2}, training=4)
    task = Task.of(corpus, vectors)
    assert task.views == ("speaker", "phrase", "channel")
    assert task.cell == "speaker:phrase:channel"
    assert task.classes[task.cell] == 16
    assert next(iter(task.kinds)) == "speaker+phrase+channel"
    assert {kind: int(mask.sum()) for kind, mask in task.kinds.items()} == corpus.trial_counts()


def test_a_view_that_changes_within_an_enrolment_is_not_asked_for():
    corpus, vectors = drawn(CLASSES, training=6)
    mixed = {**corpus.labels, "day": np.array([name[-1] for name in corpus.ids])}
    models = {
        str(i): corpus.ids[rows].tolist() for i, rows in enumerate(corpus.protocol.enrol.values())
    }
    speakers = sorted(set(corpus.labels["speaker"][corpus.protocol.train]))
    again = corpus_of_vectors(corpus.ids, mixed, models=models, training=speakers)
    assert Task.of(again, vectors).views == ("speaker", "phrase")


def test_what_cannot_be_asked_is_refused():
    corpus, vectors = drawn(CLASSES, training=6)
    alone = corpus_of_vectors(corpus.ids, {"speaker": corpus.labels["speaker"]}, training=6)
    with pytest.raises(LabelError, match=r"needs two views.*speaker"):
        Task.of(alone, vectors)
    with pytest.raises(LabelError, match="no vector"):
        Task.of(corpus, VectorSet(vectors.ids[1:], vectors.X[1:]))
    one, few = drawn({"speaker": 3, "phrase": 1}, training=2)
    with pytest.raises(DataError, match="no non-target"):
        _ = Task.of(one, few).kinds


def test_files_of_vectors_stand_side_by_side_of_unit_length_each(tmp_path):
    corpus, vectors = drawn(CLASSES, training=6)
    write_vectors(tmp_path / "a.npz", vectors)
    write_vectors(tmp_path / "b.npz", VectorSet(vectors.ids[::-1], 7 * vectors.X[::-1, :3]))
    options: list[Any] = [None, None, None, "raise", False, lambda text: None]
    found = _vectors(
        corpus, Configuration(), tmp_path, [tmp_path / "a.npz", tmp_path / "b.npz"], *options
    )
    assert list(there(found.blocks).values()) == [vectors.X.shape[1], 3]
    x = vectors.X[vectors.rows(corpus.ids)]
    expected = [
        x / np.linalg.norm(x, axis=1)[:, None],
        x[:, :3] / np.linalg.norm(x[:, :3], axis=1)[:, None],
    ]
    np.testing.assert_allclose(found.everything.X, np.hstack(expected), rtol=1e-5)
    assert Task.of(corpus, found.everything, blocks=found.blocks).blocks == found.blocks


class Echo:
    """An extractor whose vector is how many samples there were, and their mean square."""

    name, dimension, rate = "echo", 2, 8000

    def __call__(self, samples, rate):
        assert rate == self.rate
        return np.asarray([len(samples), np.square(samples).mean()], dtype=np.float32)


def test_utterances_at_other_speeds_are_other_speakers(tmp_path):
    soundfile = pytest.importorskip("soundfile")
    corpus, _ = drawn({"speaker": 3, "phrase": 2}, training=2)
    soundfile.write(tmp_path / "tone.wav", np.sin(np.arange(8000) / 5), 8000)
    corpus = replace(corpus, clips=(Clip(tmp_path / "tone.wav"),) * len(corpus))
    rows = corpus.protocol.train[:3]
    extra = other_voices(corpus, rows, Echo(), (0.8, 1.25))
    np.testing.assert_allclose(extra.vectors.X[:, 0], np.repeat([10000, 6400], 3), atol=2)
    own = corpus.labels["speaker"][rows].astype(str).tolist()
    assert extra.labels["speaker"].tolist() == [f"{s}@0.8" for s in own] + [
        f"{s}@1.25" for s in own
    ]
    assert extra.people.tolist() == own * 2
    assert extra.labels["phrase"].tolist() == corpus.labels["phrase"][rows].tolist() * 2
