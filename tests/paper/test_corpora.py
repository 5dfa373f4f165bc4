"""Corpora of folders, tables, vectors and lists, and their protocols."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mvplda.exceptions import DataError, LabelError, ParameterError
from mvplda.paper.corpora import (
    CORPORA,
    Corpus,
    Protocol,
    build_corpus,
    enrolments,
    load_corpus,
    register_corpus,
)
from mvplda.paper.corpora.corpus import safe_ids, session_order
from mvplda.paper.corpora.folder import match_files, read_corpus_table
from mvplda.paper.systems import Task


def touch(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")


def crossed(speakers="abc", phrases="xy", sessions=4):
    names = [(s, p, k) for s in speakers for p in phrases for k in range(sessions)]
    labels = {
        "speaker": np.array([s for s, _, _ in names]),
        "phrase": np.array([p for _, p, _ in names]),
    }
    ids = np.array([f"{s}_{p}_{k}" for s, p, k in names])
    return ids, labels, np.array([k for _, _, k in names])


def test_speakers_who_are_trained_on_are_neither_enrolled_nor_tested():
    ids, labels, sessions = crossed("abcdef")
    corpus = build_corpus("toy", ids, labels, None, sessions, training=4)
    protocol = corpus.protocol
    trained = set(labels["speaker"][protocol.train])
    tested = set(labels["speaker"][protocol.test])
    assert len(trained) == 4
    assert not trained & tested
    assert all(len(rows) == 3 for rows in protocol.enrol.values())
    assert sessions[protocol.enrolled].max() == 2
    assert set(sessions[protocol.test]) == {3}
    assert corpus.model_labels()["speaker"].shape == (4,)
    assert "4 enrolments, 4 tests" in corpus.summary()


def test_utterances_without_a_vector_are_omitted_with_their_enrolments():
    ids, labels, sessions = crossed()
    corpus = build_corpus("toy", ids, labels, None, sessions, training=["a"])
    gone = [name for name in ids if name.startswith("b_x")] + ["c_y_0", "a_x_0"]
    left = corpus.without(gone)
    assert list(left.protocol.enrol) == ["b::y", "c::x", "c::y"]
    assert left.ids[left.protocol.enrol["c::y"]].tolist() == ["c_y_1", "c_y_2"]
    protocol = left.protocol
    used = np.concatenate([protocol.train, protocol.enrolled, protocol.test])
    assert not set(gone) & set(left.ids[used].tolist())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test": [0]}, "both for training and for evaluation"),
        ({"test": [4]}, "both enrolled and tested"),
    ],
)
def test_protocols_with_overlapping_subsets_are_refused(change, message):
    ids, labels, _ = crossed()
    rows = {"train": [0, 1], "enrol": {"m": [4]}, "test": [8], **change}
    enrol = {"m": np.array(rows["enrol"]["m"], dtype=np.int64)}
    protocol = Protocol(np.array(rows["train"]), enrol, np.array(rows["test"]))
    with pytest.raises(DataError, match=message):
        Corpus("toy", ids, labels, None, protocol)


def test_options_of_protocols():
    ids, labels, sessions = crossed()

    def make_protocol(**options):
        return build_corpus("toy", ids, labels, None, sessions, **options).protocol

    with pytest.raises(LabelError, match="zoe"):
        make_protocol(training=["zoe"])
    with pytest.raises(DataError, match="is left for evaluation"):
        make_protocol(training=list("abc"))
    with pytest.raises(DataError, match="Lower per_model"):
        make_protocol(training=["a"], per_model=4)


def test_enrolments_of_one_session_and_tests_of_another():
    labels = {"speaker": np.array(["a"] * 5 + ["b"] * 3), "phrase": np.array(["x"] * 8)}
    tests = np.array([False, False, True, True, False, False, False, False])
    enrol, tested = enrolments(labels, None, range(8), per_model=2, tests=tests)
    assert {name: rows.tolist() for name, rows in enrol.items()} == {"a::x": [0, 1]}
    assert tested.tolist() == [2, 3]


def test_sessions_that_are_numbers_are_ordered_as_numbers():
    assert session_order(["10", "9", "2"]).tolist() == [2, 1, 0]
    assert session_order(["b", "a", "b"]).tolist() == [1, 0, 1]


def test_safe_ids_contain_no_blanks_and_remain_distinct():
    assert safe_ids(["zoom in/1"]) == ["zoom_in/1"]
    with pytest.raises(LabelError, match="both yield the id"):
        safe_ids(["a b", "a_b"])


def test_a_folder_is_read_by_its_pattern(tmp_path, caplog):
    touch(
        tmp_path, *(f"{s}/{p}_{k}.wav" for s in "abc" for p in ("open it", "y") for k in range(4))
    )
    touch(tmp_path, "readme.txt", ".hidden/z.wav")
    corpus = load_corpus("folder", tmp_path, pattern="{speaker}/{phrase}_{session}.wav")
    assert corpus.views == ("speaker", "phrase")
    assert len(corpus) == 24
    assert "a/open_it_0" in corpus.ids
    assert "open it" in corpus.labels["phrase"]
    touch(tmp_path, "odd.wav")
    assert len(match_files(tmp_path, "{speaker}/{phrase}_{session}.wav").ids) == 24
    assert "skipped 1 file(s)" in caplog.text
    with pytest.raises(DataError, match="fits"):
        match_files(tmp_path, "{speaker}-{phrase}-{session}.wav")


def test_a_table_lists_segments_of_files(tmp_path):
    touch(tmp_path, "a.flac", "b.flac")
    lines = ["file,start,length,speaker,phrase,session"]
    lines += [f"{s}.flac,{100 * k},100,{s},{p},{k}" for s in "ab" for p in "x" for k in range(4)]
    (tmp_path / "index.csv").write_text("\n".join(lines) + "\n")
    listing = read_corpus_table(tmp_path / "index.csv")
    assert listing.ids[:2].tolist() == ["a-0", "a-100"]
    assert listing.files[1].start == 100
    assert listing.files[1].length == 100
    assert set(listing.fields) >= {"speaker", "phrase", "session"}
    corpus = load_corpus("folder", tmp_path, training=1)
    assert len(corpus.protocol.enrol) == 1
    (tmp_path / "index.csv").write_text("file,speaker\na.flac,\n")
    with pytest.raises(Exception, match="blank"):
        read_corpus_table(tmp_path / "index.csv")


def test_vectors_with_columns_are_a_corpus(tmp_path):
    ids, labels, sessions = crossed()
    X = np.random.default_rng(0).normal(size=(len(ids), 4)).astype(np.float32)
    np.savez(tmp_path / "v.npz", X=X, ids=ids, session=sessions, **labels)
    corpus = load_corpus("vectors", tmp_path / "v.npz", training=1)
    assert corpus.files is None
    assert corpus.views == ("speaker", "phrase")
    with pytest.raises(LabelError, match="have no labels"):
        load_corpus("vectors", tmp_path / "v.npz", labels={"phrase": "phrase"})


def test_audiomnist_trains_on_its_training_speakers(tmp_path):
    touch(
        tmp_path,
        *(
            f"data/{s}/{d}_{s}_{k}.wav"
            for s in ("01", "03", "05")
            for d in range(2)
            for k in range(4)
        ),
    )
    corpus = load_corpus("audiomnist", tmp_path)
    assert set(corpus.labels["speaker"][corpus.protocol.train]) == {"03", "05"}
    assert "0_01_3" in corpus.ids
    with pytest.raises(DataError, match="AudioMNIST was not found"):
        load_corpus("audiomnist", tmp_path / "elsewhere")


def cvau_files():
    for s in ("c1", "c2", "c3", "c4", "c5"):
        sessions = ("2014-05",) if s == "c5" else ("2014-05", "2014-11", "angles")
        for session in sessions:
            for take in (1, 2, 3, 10):
                yield s, "p1", session, take


def test_cvau_enrols_one_session_and_tests_another(tmp_path):
    rows = list(cvau_files())
    touch(tmp_path / "sound", *(f"{s}/{p}/{c}_{k}.flac" for s, p, c, k in rows))
    texts = {
        name: np.array([row[i] for row in rows])
        for i, name in enumerate(("speaker", "phrase", "session", "take"))
    }
    columns: dict[str, Any] = {
        name: np.append(values, values[:1]) for name, values in texts.items()
    }
    columns["phrase"][-1] = ""  # free speech
    np.savez(tmp_path / "cvau.npz", camp=np.zeros((len(rows) + 1, 3), np.float16), **columns)
    for root in (tmp_path / "sound", tmp_path / "cvau.npz"):
        corpus = load_corpus("cvau", root)
        protocol = corpus.protocol
        assert len(corpus) == len(rows)
        assert corpus.sessions is not None
        assert set(corpus.sessions[protocol.enrolled]) == {"2014-11"}
        assert set(corpus.sessions[protocol.test]) == {"angles"}
        assert len(protocol.enrol) == 2
        assert len(protocol.test) == 8
        trained = set(corpus.labels["speaker"][protocol.train])
        assert "c5" in trained
        assert len(trained) == 3
        assert not trained & set(corpus.labels["speaker"][protocol.test])
    assert (corpus.files is None) == (root.suffix == ".npz")
    with pytest.raises(ParameterError, match="unknown session 'mars'"):
        load_corpus("cvau", tmp_path / "sound", test="mars")


def test_cvau_within_one_session(tmp_path):
    touch(tmp_path, *(f"{s}/{p}/{c}_{k}.flac" for s, p, c, k in cvau_files()))
    corpus = load_corpus("cvau", tmp_path, test="2014-11")
    assert corpus.sessions is not None
    assert set(corpus.sessions[corpus.protocol.test]) == {"2014-11"}
    assert len(corpus.protocol.test) == len(corpus.protocol.enrol)


def test_huiting_trains_on_two_thirds_of_a_smaller_set(tmp_path):
    touch(tmp_path, *(f"{s}/{p}/{k}.wav" for s in "abc" for p in "xy" for k in range(5)))
    corpus = load_corpus("huiting", tmp_path)
    assert len(set(corpus.labels["speaker"][corpus.protocol.train])) == 2
    assert len(corpus.protocol.test) == 4


def test_speech_commands_enrols_one_recording(tmp_path):
    touch(
        tmp_path, *(f"{s}/{w}/{k:02d}.flac" for s in "abc" for w in ("go", "on") for k in range(3))
    )
    corpus = load_corpus("speech-commands", tmp_path)
    assert len(corpus.protocol.enrol) == 2
    assert len(corpus.protocol.test) == 4
    assert {len(rows) for rows in corpus.protocol.enrol.values()} == {1}


# RSR2015


def rsr2015_files(root, speakers=("m001", "m101", "m102"), phrases=2):
    for s in speakers:
        gender = {"m": "male", "f": "female"}[s[0]]
        names = [f"{s}_{k:02d}_{p:03d}" for k in range(1, 10) for p in range(1, phrases + 1)]
        touch(root, *(f"sph/{gender}/{s}/{name}.sph" for name in names))


MARKS = {"TC": "Y,N,N,N", "TW": "N,Y,N,N", "IC": "N,N,Y,N", "IW": "N,N,N,Y"}


def write_keys(root, names=("3sess-pwd_eval", "3sess-pwd_eval"), speakers=("m101", "m102")):
    """Write the lists of enrolments and trials of one gender in the form of the corpus's key."""
    gender = {"m": "male", "f": "female"}[speakers[0][0]]
    lists: dict[str, list[str]] = {"trn": [], "ndx": []}
    for s in speakers:
        files = ",".join(f"{gender}/{s}/{s}_{k:02d}_001.sph" for k in (1, 4, 7))
        lists["trn"].append(f"{s}_001 {files}")
        for t in speakers:
            mark = MARKS["TC" if s == t else "IC"]
            lists["ndx"].append(f"{s}_001,{t}/{t}_02_001.sph,{mark}")
    for (kind, lines), name in zip(lists.items(), names, strict=True):
        path = root / "key/part1" / kind / f"{name}_{gender[0]}.{kind}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")


def write_public_list(folder, men=("m101", "m102"), women=("f095",)):
    """Write enrolments and trials in the form of github.com/Xflick/RSR2015_trials."""
    models, trials = [], []
    for s in (*women, *men):
        names = [f"{s}_001-{s}_{k:02d}_001" for k in (1, 4, 7)]
        models.append(f"{s}_001 {' '.join(names)} ")
        for t in (*women, *men):
            for p in ("001", "002"):
                mark = "target" if (s, "001") == (t, p) else "nontarget"
                trials.append(f"{s}_001 {t}_{p}-{t}_02_{p} {mark}")
    folder.mkdir(parents=True)
    (folder / "enroll_spk2utt").write_text("\n".join(models) + "\n")
    (folder / "trials_td").write_text("\n".join(trials) + "\n")


def test_rsr2015_without_lists_is_an_error_and_not_all_against_all(tmp_path):
    rsr2015_files(tmp_path)
    with pytest.raises(DataError) as refused:
        load_corpus("rsr2015", tmp_path, gender="male")
    message = str(refused.value)
    assert "2 list(s) are missing" in message
    assert "trn/3sess-pwd_eval_m.trn or 3sesspwd_eval_m.trn" in message
    assert "corpus.keys=FOLDER" in message
    assert "Xflick/RSR2015_trials" in message
    write_keys(tmp_path)
    corpus = load_corpus("rsr2015", tmp_path, gender="male")
    assert set(corpus.labels["speaker"][corpus.protocol.train]) == {"m001"}


@pytest.mark.parametrize("enrolments", ["3sess-pwd_eval", "3sesspwd_eval"])
@pytest.mark.parametrize("trials", ["3sess-pwd_eval", "3sesspwd_eval"])
def test_rsr2015_lists_have_two_spellings(tmp_path, enrolments, trials):
    rsr2015_files(tmp_path)
    write_keys(tmp_path, (enrolments, trials))
    corpus = load_corpus("rsr2015", tmp_path, gender="male")
    protocol = corpus.protocol
    assert list(protocol.enrol) == ["m101_001", "m102_001"]
    assert corpus.sessions is not None
    assert set(corpus.sessions[protocol.enrolled]) == {"01", "04", "07"}
    assert corpus.ids[protocol.test].tolist() == ["m101/m101_02_001", "m102/m102_02_001"]


@pytest.mark.parametrize("folder", ["", "trials", "trials/text_dependent"])
def test_rsr2015_has_a_public_list_of_trials(tmp_path, folder, caplog):
    people = ("f001", "f095", "m001", "m101", "m102")
    rsr2015_files(tmp_path, people)
    write_public_list(tmp_path / "lists/trials/text_dependent")
    corpus = load_corpus("rsr2015", tmp_path, keys=tmp_path / "lists" / folder)
    protocol = corpus.protocol
    assert set(corpus.labels["speaker"][protocol.train]) == {"f001", "m001"}
    assert corpus.ids[protocol.enrol["f095_001"]].tolist() == [
        f"f095/f095_{session}_001" for session in ("01", "04", "07")
    ]
    assert len(protocol.trials or ()) == 18
    task = Task(corpus, np.zeros((len(corpus), 2)))
    counts = {kind: int(mask.sum()) for kind, mask in task.kinds.items()}
    assert counts == {"TC": 3, "TW": 3, "IC": 6, "IW": 6}
    men = load_corpus("rsr2015", tmp_path, keys=tmp_path / "lists" / folder, gender="male")
    assert list(men.protocol.enrol) == ["m101_001", "m102_001"]
    # impostors of the public list may be of the other gender
    assert len(men.protocol.trials or ()) == 12
    assert not caplog.text


def test_rsr2015_evaluates_men_women_and_both(tmp_path):
    rsr2015_files(tmp_path, ("f001", "f095", "f096", "m001", "m101", "m102"))
    write_keys(tmp_path)
    write_keys(tmp_path, speakers=("f095", "f096"))
    corpus = load_corpus("rsr2015", tmp_path)
    assert corpus.groups is not None
    groups = Task(corpus, np.zeros((len(corpus), 2))).groups
    assert {name: mask.tolist() for name, mask in groups.items()} == {
        "female": [False, False, True, True],
        "male": [True, True, False, False],
    }
    # a single group is not evaluated separately
    men = load_corpus("rsr2015", tmp_path, gender="male")
    assert not Task(men, np.zeros((len(men), 2))).groups


def test_marks_that_contradict_the_ids_are_counted(tmp_path, caplog):
    rsr2015_files(tmp_path, ("f001", "f095", "f096", "m001", "m101", "m102"))
    write_keys(tmp_path)
    write_keys(tmp_path, speakers=("f095", "f096"))
    load_corpus("rsr2015", tmp_path)
    assert not caplog.text
    men = tmp_path / "key/part1/ndx/3sess-pwd_eval_m.ndx"
    swapped = men.read_text().replace(MARKS["TC"], "?").replace(MARKS["IC"], MARKS["IW"])
    men.write_text(swapped.replace("?", MARKS["TW"]))
    corpus = load_corpus("rsr2015", tmp_path)
    assert "4 of 4 marks in 3sess-pwd_eval_m.ndx contradict" in caplog.text
    assert "2 TC marked TW" in caplog.text
    assert "2 IC marked IW" in caplog.text
    assert "eval_f" not in caplog.text
    # the ids are used
    kinds = Task(corpus, np.zeros((len(corpus), 2))).kinds
    assert {kind: int(mask.sum()) for kind, mask in kinds.items()}["TC"] == 4
    # a mark that is missing contradicts nothing
    caplog.clear()
    men.write_text(men.read_text().replace("Y", "N"))
    load_corpus("rsr2015", tmp_path)
    assert not caplog.text


def test_marks_of_the_public_list_are_compared_too(tmp_path, caplog):
    rsr2015_files(tmp_path, ("f095", "m001", "m101", "m102"))
    write_public_list(tmp_path / "lists")
    file = tmp_path / "lists/trials_td"
    file.write_text(file.read_text().replace("m101_02_001 target", "m101_02_001 nontarget"))
    load_corpus("rsr2015", tmp_path, keys=tmp_path / "lists")
    assert "1 of 18 marks in trials_td contradict" in caplog.text
    assert "1 TC marked nontarget" in caplog.text


def test_rsr2015_lists_stay_coded(tmp_path, monkeypatch):
    from mvplda.coded import Coded

    rsr2015_files(tmp_path)
    write_keys(tmp_path)
    monkeypatch.setattr(Coded, "__array__", lambda *_, **__: pytest.fail("decoded"))
    monkeypatch.setattr(Coded, "tolist", lambda *_: pytest.fail("decoded"))
    corpus = load_corpus("rsr2015", tmp_path, gender="male")
    trials = corpus.protocol.trials
    mask = corpus.trial_mask()
    assert trials is not None
    assert mask is not None
    assert len(trials) == 4
    assert mask.all()


def test_missing_listed_utterances_are_counted(tmp_path, caplog):
    rsr2015_files(tmp_path)
    write_keys(tmp_path)
    (tmp_path / "sph/male/m102/m102_02_001.sph").unlink()
    corpus = load_corpus("rsr2015", tmp_path, gender="male")
    assert len(corpus.protocol.test) == 1
    assert "left out: 1 listed" in caplog.text


def test_the_registry_accepts_user_corpora():
    @register_corpus("mine", root="anything")
    def mine(root, *, training=None):
        ids, labels, sessions = crossed()
        return build_corpus("mine", ids, labels, None, sessions, training=training)

    try:
        assert len(load_corpus("mine", "x", training=1)) == 24
        assert CORPORA["mine"].options == ["training"]
        with pytest.raises(
            ParameterError, match=r"wrong options of mine; it accepts training.*odd"
        ):
            load_corpus("mine", "x", odd=1)
    finally:
        CORPORA.pop("mine")
    with pytest.raises(ParameterError, match="unknown corpus 'mine'"):
        load_corpus("mine", "x")
