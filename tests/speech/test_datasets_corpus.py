"""Corpora: enrolments, splits, selections and counts of trials, against plain loops."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import there, trials_of

from mvplda.exceptions import DataError, LabelError, MvpldaError, ParameterError
from mvplda.io import Trials, trials_from_labels, write_groups, write_map, write_trials
from mvplda.speech.corpora import (
    Clip,
    Corpus,
    Protocol,
    build_corpus,
    corpus_of_vectors,
    enrolments,
    listed_protocol,
    make_protocol,
    split_classes,
)


def grid(speakers=4, phrases=3, sessions=5, shuffle=None):
    cells = list(product(range(speakers), range(phrases), range(sessions)))
    if shuffle is not None:
        cells = [cells[k] for k in np.random.default_rng(shuffle).permutation(len(cells))]
    ids = np.array([f"s{s}-p{p}-{k}" for s, p, k in cells])
    labels = {
        "speaker": np.array([f"s{s}" for s, _, _ in cells]),
        "phrase": np.array([f"p{p}" for _, p, _ in cells]),
    }
    return ids, labels, np.array([str(k) for _, _, k in cells])


def corpus(**options):
    ids, labels, sessions = grid(
        **{k: options.pop(k) for k in ("speakers", "phrases", "sessions") if k in options}
    )
    return build_corpus("grid", ids, labels, None, sessions, **{"training": 2, **options})


@given(st.integers(0, 1000), st.integers(1, 4))
def test_enrolments_against_a_plain_loop(seed, per_model):
    rng = np.random.default_rng(seed)
    n = 60
    labels = {"speaker": rng.choice(list("abc"), n), "phrase": rng.choice(["x", "y"], n)}
    sessions = np.array([str(k) for k in rng.permutation(n)])
    rows = np.sort(rng.choice(n, 45, replace=False))
    found = enrolments(np.arange(n), labels, sessions, rows, per_model=per_model)
    tests = []
    for s, p in product("abc", "xy"):
        members = [r for r in rows if labels["speaker"][r] == s and labels["phrase"][r] == p]
        members.sort(key=lambda r: int(sessions[r]))
        name = f"{s}_{p}"
        if len(members) <= per_model:
            assert name not in found.enrol
            assert (name in found.left_out) == bool(members)
            continue
        assert found.enrol[name].tolist() == members[:per_model]
        tests += members[per_model:]
    assert found.test.tolist() == sorted(tests)


def test_sessions_that_are_numbers_are_ordered_as_numbers_and_others_as_text():
    labels = {"speaker": ["a"] * 4, "phrase": ["x"] * 4}
    ids = list("abcd")
    assert enrolments(ids, labels, ["10", "9", "2", "1"], range(4), per_model=2).enrol[
        "a_x"
    ].tolist() == [3, 2]
    assert enrolments(ids, labels, ["10b", "9", "2", "1"], range(4), per_model=2).enrol[
        "a_x"
    ].tolist() == [3, 0]
    assert enrolments(ids, labels, None, range(4), per_model=2).enrol["a_x"].tolist() == [0, 1]


def test_names_of_cells_stay_distinct():
    labels = {"speaker": ["a_b", "a"] * 3, "phrase": ["c", "b_c"] * 3}
    found = enrolments(range(6), labels, None, range(6), per_model=1)
    assert sorted(found.enrol) == ["a-b_c", "a_b-c"]


def test_too_few_utterances_are_named(caplog):
    labels = {"speaker": ["a"] * 4 + ["b"] * 3, "phrase": ["x"] * 7}
    assert enrolments(range(7), labels, None, range(7)).left_out == ("b_x",)
    assert "b_x" in caplog.text
    with pytest.raises(DataError, match=r"none of the 2 cells .* a_x, b_x"):
        enrolments(range(7), labels, None, range(7), per_model=4)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"views": ("speaker", "word")}, LabelError, "no view 'word'"),
        ({"per_model": 0}, ParameterError, "at least 1"),
        ({"rows": []}, DataError, "views and utterances"),
        ({"sessions": [1]}, LabelError, "1 sessions for 7"),
    ],
)
def test_enrolments_refuse(changes, error, words):
    labels = {"speaker": ["a"] * 7, "phrase": ["x"] * 7}
    arguments = {"ids": range(7), "labels": labels, "sessions": None, "rows": range(7), **changes}
    with pytest.raises(error, match=words):
        enrolments(**arguments)


@given(st.integers(2, 30), st.integers(0, 99), st.data())
def test_split_classes_is_a_partition_and_repeatable(number, seed, data):
    classes = [f"c{k}" for k in range(number)]
    training = data.draw(st.one_of(st.integers(1, number - 1), st.floats(0.01, 0.99)))
    first, second = split_classes(classes * 2, training, seed)
    assert sorted([*first, *second]) == sorted(classes)
    assert len(first)
    assert len(second)
    if isinstance(training, int):
        assert len(first) == training
    again = split_classes(classes[::-1], training, seed)
    assert [a.tolist() for a in again] == [first.tolist(), second.tolist()]


@pytest.mark.parametrize("training", [0, 3, 1.5, True, -1])
def test_split_classes_refuses(training):
    with pytest.raises(MvpldaError):
        split_classes(["a", "b", "c"], training)


def test_one_speaker_only():
    ids, labels, sessions = grid(speakers=1)
    with pytest.raises(DataError, match="leaves none"):
        make_protocol(ids, labels, sessions)
    with pytest.raises(DataError, match="leaves none for evaluation"):
        make_protocol(ids, labels, sessions, training=["s0"])


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("views", [1, 2, 3])
def test_trial_counts_against_all_trials(views, groups):
    rng = np.random.default_rng(views)
    n = 80
    names = ("speaker", "phrase", "room")[:views]
    labels = {view: rng.choice(list("abc"), n) for view in names}
    test = np.arange(40, n)
    found = enrolments(np.arange(n), labels, None, np.arange(10, 40), names, per_model=1)
    group = rng.choice(["m", "f"], n) if groups else None
    made = Corpus(
        "c",
        np.arange(n).astype(str),
        labels,
        None,
        Protocol(np.arange(10), found.enrol, test, group),
    )
    mask = made.trial_mask()
    trials = trials_from_labels(made.model_labels(), made.labels_at(test))
    kept = trials if mask is None else trials[mask.reshape(-1)]
    assert {kind: n for kind, n in made.trial_counts().items() if n} == kept.counts
    assert sum(made.trial_counts().values()) == len(kept)


def test_listed_trials_are_counted_and_masked():
    ids, labels, _ = grid()
    models = {"m0": ["s2-p0-0", "s2-p0-1"], "m1": ["s3-p1-0"]}
    trials = trials_of(["m0", "m0", "m1", "m1"], ["s2-p0-3", "s2-p1-3", "s2-p1-3", "s2-p2-4"])
    protocol = listed_protocol(
        ids, models, trials, train=np.flatnonzero(np.isin(labels["speaker"], ["s0", "s1"]))
    )
    made = Corpus("listed", ids, labels, None, protocol)
    assert made.trial_counts() == {"TC": 1, "TW": 1, "IC": 1, "IW": 1}
    assert there(made.trial_mask()).astype(int).tolist() == [[1, 1, 0], [0, 1, 1]]
    assert "4 trials (listed)" in made.summary()
    fewer = made.select(ids != "s3-p1-0")
    assert fewer.trial_counts() == {"TC": 1, "TW": 1, "IC": 0, "IW": 0}
    with pytest.raises(DataError, match=r"name 1 utterance\(s\) that are not there: nobody"):
        listed_protocol(ids, {"m0": ["nobody"]}, trials)


def test_models_of_mixed_phrases_are_of_the_speaker_view_alone():
    ids, labels, sessions = grid()
    found = enrolments(ids, labels, sessions, np.arange(30, 60), views=("speaker",), per_model=3)
    made = Corpus("mixed", ids, labels, None, Protocol(np.arange(30), found.enrol, found.test))
    assert list(made.model_labels()) == ["speaker"]
    assert made.trial_counts() == {"target": 24, "nontarget": 24}


def test_usual_protocol_keeps_speakers_apart_and_sums_up():
    made = corpus()
    protocol = made.protocol
    trained = set(made.labels["speaker"][protocol.train])
    evaluated = set(made.labels["speaker"][np.union1d(made.enrolled, protocol.test)])
    assert len(trained) == 2
    assert not trained & evaluated
    assert len(protocol.enrol) == 6
    assert made.summary().splitlines() == [
        "grid: 60 utterances; classes: 4 of speaker, 3 of phrase",
        "training: 30 utterances; 2 of speaker, 3 of phrase",
        "evaluation: 30 utterances; 2 of speaker, 3 of phrase",
        "6 enrolments, 12 tests",
        "72 trials: TC 12, TW 24, IC 12, IW 24",
    ]


def test_limit_takes_the_first_sessions_whatever_the_order():
    ids, labels, sessions = grid(sessions=6, shuffle=3)
    made = build_corpus("grid", ids, labels, None, sessions, training=2, sessions=4, per_model=2)
    assert len(made) == 4 * 3 * 4
    assert set(there(made.sessions)) == {"0", "1", "2", "3"}
    assert set(there(made.sessions)[made.enrolled]) == {"0", "1"}
    with pytest.raises(ParameterError, match="at least 1"):
        build_corpus("grid", ids, labels, None, sessions, sessions=0)


def test_select_keeps_the_protocol_as_far_as_it_reaches():
    made = corpus()
    some = made.select(where={"phrase": ["p0", "p2"]})
    assert len(some) == 40
    assert len(some.protocol.enrol) == 4
    for name, rows in some.protocol.enrol.items():
        assert some.ids[rows].tolist() == made.ids[made.protocol.enrol[name]].tolist()
    assert set(some.ids[some.protocol.test]) < set(made.ids[made.protocol.test])
    assert set(some.labels["phrase"]) == {"p0", "p2"}
    first = next(iter(made.protocol.enrol.values()))
    damaged = made.select(np.setdiff1d(np.arange(len(made)), first[:1]))
    assert len(next(iter(damaged.protocol.enrol.values()))) == 2
    assert len(made.select(np.setdiff1d(np.arange(len(made)), first)).protocol.enrol) == 5
    with pytest.raises(LabelError, match="no view"):
        made.select(where={"word": "p0"})
    with pytest.raises(DataError, match="no utterances"):
        made.select([])


@pytest.mark.parametrize(
    ("protocol", "words"),
    [
        (Protocol(np.array([99]), {}, np.array([1])), "beyond"),
        (
            Protocol(np.array([0, 1]), {"m": np.array([1])}, np.array([2])),
            "trained on and evaluated",
        ),
        (Protocol(np.array([0]), {"m": np.array([1])}, np.array([1])), "enrolled and tested"),
        (Protocol(np.array([0]), {"m": np.array([], int)}, np.array([1])), "no utterances: m"),
        (Protocol(np.array([0]), {"m": np.array([1])}, np.array([2]), np.array(["f"])), "1 groups"),
        (
            Protocol(
                np.array([0]),
                {"m": np.array([1])},
                np.array([2]),
                None,
                Trials(np.array(["x"]), np.array(["s0-p0-2"])),
            ),
            r"1 enrolment\(s\) .* x",
        ),
    ],
)
def test_a_corpus_refuses_a_protocol_that_does_not_fit(protocol, words):
    ids, labels, _ = grid()
    with pytest.raises(MvpldaError, match=words):
        Corpus("bad", ids, labels, None, protocol)


def test_a_corpus_refuses_what_does_not_match():
    ids, labels, sessions = grid()
    good = make_protocol(ids, labels, sessions)
    with pytest.raises(DataError, match="there 2 times"):
        Corpus("bad", np.where(ids == ids[1], ids[0], ids), labels, None, good)
    with pytest.raises(DataError, match="places of sound"):
        Corpus("bad", ids, labels, (Clip(Path("a")),), good)
    with pytest.raises(DataError, match="sessions"):
        Corpus("bad", ids, labels, None, good, sessions=sessions[1:])
    with pytest.raises(DataError, match=r"grid: 1 utterance\(s\) have the id of another.*s0-p0-0"):
        build_corpus("grid", np.where(ids == ids[1], ids[0], ids), labels, None, sessions)


def test_splits_in_a_column():
    ids, labels, sessions = grid()
    number = sessions.astype(int)
    trained = np.isin(labels["speaker"], ["s0", "s1"])
    split = np.where(trained, "train", np.where(number < 2, "Enroll", "test"))
    split[~trained & (number == 4)] = ""
    protocol = make_protocol(ids, labels, sessions, split=split)
    assert len(protocol.enrol) == 6
    assert all(len(rows) == 2 for rows in protocol.enrol.values())
    assert len(protocol.test) == 12
    by_session = make_protocol(
        ids, labels, sessions, split=np.where(trained, "train", "evaluation")
    )
    usual = make_protocol(ids, labels, sessions, training=["s0", "s1"])
    assert by_session.test.tolist() == usual.test.tolist()
    for wrong, words in (
        (np.where(trained, "train", "dev"), "got dev"),
        (np.where(trained, "train", "test"), "enrol"),
        (np.where(split == "test", "evaluation", split), "beside enrol"),
    ):
        with pytest.raises(MvpldaError, match=words):
            make_protocol(ids, labels, sessions, split=wrong)
    with pytest.raises(DataError, match="leave training out"):
        make_protocol(ids, labels, sessions, split=split, training=2)


def test_vectors_from_elsewhere_have_no_sound(tmp_path):
    ids, labels, sessions = grid()
    write_map(tmp_path / "utt2spk", dict(zip(ids, labels["speaker"], strict=True)))
    write_map(tmp_path / "utt2phrase", dict(zip(ids, labels["phrase"], strict=True)))
    paths = {"speaker": tmp_path / "utt2spk", "phrase": str(tmp_path / "utt2phrase")}
    made = corpus_of_vectors(ids, paths, sessions, training=2, random_state=3)
    plain = corpus_of_vectors(ids, labels, sessions, training=2, random_state=3)
    assert made.clips is None
    assert made.protocol.test.tolist() == plain.protocol.test.tolist()
    assert made.models.tolist() == plain.models.tolist()
    with pytest.raises(LabelError, match=r"1 id\(s\) have no speaker: other"):
        corpus_of_vectors([*ids, "other"], paths)
    with pytest.raises(LabelError, match="2 values of 'speaker' for 60"):
        corpus_of_vectors(ids, {"speaker": ["a", "b"]})
    with pytest.raises(LabelError, match="at least one view"):
        corpus_of_vectors(ids, {})


def test_vectors_with_models_and_trials_as_listed(tmp_path):
    ids, labels, _ = grid()
    write_groups(tmp_path / "models", {"m0": ["s2-p0-0", "s2-p0-1"], "m1": ["s3-p1-0"]})
    write_trials(tmp_path / "trials", trials_of(["m0", "m1"], ["s2-p0-3", "s2-p1-3"], ["TC", "IC"]))
    made = corpus_of_vectors(
        ids, labels, training=["s0", "s1"], models=tmp_path / "models", trials=tmp_path / "trials"
    )
    assert made.trial_counts() == {"TC": 1, "TW": 0, "IC": 1, "IW": 0}
    assert len(made.protocol.train) == 30
    rest = corpus_of_vectors(ids, labels, models=tmp_path / "models", trials=tmp_path / "trials")
    assert len(rest.protocol.train) == 60 - 3 - 2
    every = corpus_of_vectors(ids, labels, training=["s0", "s1"], models=tmp_path / "models")
    assert len(every.protocol.test) == 30 - 3
    with pytest.raises(LabelError, match="need models"):
        corpus_of_vectors(ids, labels, trials=tmp_path / "trials")
    with pytest.raises(DataError, match="what to train on"):
        corpus_of_vectors(ids, labels, models=tmp_path / "models")
    with pytest.raises(ParameterError, match="names the classes"):
        corpus_of_vectors(ids, labels, training=0.5, models=tmp_path / "models")
