"""Synthetic speech: the same bytes from the same settings, and speakers and phrases that can be told apart."""

from __future__ import annotations

import json
import sys
from itertools import pairwise

import numpy as np
import pytest
from problems import there

from mvplda.exceptions import DataError, MissingExtraError, ParameterError
from mvplda.speech.corpora import load_corpus
from mvplda.speech.corpora.synthetic import MANIFEST, PHRASES, fingerprint, slug

soundfile = pytest.importorskip("soundfile")
pytest.importorskip("espeakng_loader")
pytest.importorskip("soxr")

SMALL = {"speakers": 7, "phrases": 2, "sessions": 2, "per_model": 1}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    root = tmp_path_factory.mktemp("synthetic") / "small"
    return root, load_corpus("synthetic", root, **SMALL, workers=1)


@pytest.fixture(scope="module")
def larger(tmp_path_factory):
    """Enough to tell speakers and phrases apart: corpus and mean and deviation of MFCCs of every eighth."""
    fbank = pytest.importorskip("kaldi_native_fbank")
    corpus = load_corpus(
        "synthetic", tmp_path_factory.mktemp("speech") / "c", speakers=15, phrases=6, sessions=6
    )
    options = fbank.MfccOptions()
    options.frame_opts.dither = 0
    options.num_ceps = 20
    options.use_energy = False
    rows, sounds = [], {}
    for clip in there(corpus.clips):
        if clip.path not in sounds:
            sounds[clip.path] = soundfile.read(str(clip.path), dtype="float32")[0]
        samples = sounds[clip.path][clip.start : clip.start + there(clip.length)]
        computer = fbank.OnlineMfcc(options)
        computer.accept_waveform(16000, (samples * 32768).tolist())
        computer.input_finished()
        frames = np.array([computer.get_frame(k) for k in range(computer.num_frames_ready)])[:, 1:]
        rows.append(
            np.concatenate([*(part.mean(0) for part in np.array_split(frames, 8)), frames.std(0)])
        )
    return corpus, np.array(rows)


def test_what_is_written(small):
    root, corpus = small
    assert len(corpus) == 7 * 2 * 2
    assert sorted(file.name for file in root.iterdir()) == sorted(
        ["index.csv", "manifest.json", "speakers.csv", *(f"s{k:03d}.flac" for k in range(1, 8))]
    )
    assert set(corpus.labels["phrase"]) == {slug(text) for text in PHRASES[:2]}
    for file in root.glob("*.flac"):
        clips = sorted((c.start, c.length) for c in corpus.clips if c.path == file)
        assert clips[0][0] == 0
        assert all(start + length == after for (start, length), (after, _) in pairwise(clips))
        assert sum(clips[-1]) == soundfile.info(str(file)).frames
    lengths = np.array([clip.length for clip in corpus.clips]) / 16000
    assert 0.5 < lengths.min() < lengths.max() < 3
    assert not list(root.parent.glob("*.part"))


def test_the_same_settings_make_the_same_bytes_in_fresh_processes(small, tmp_path):
    root, _ = small
    load_corpus("synthetic", tmp_path / "again", **SMALL, workers=2)
    assert fingerprint(tmp_path / "again") == fingerprint(root)
    assert (tmp_path / "again" / MANIFEST).read_bytes() == (root / MANIFEST).read_bytes()


def test_another_seed_makes_other_speakers_and_more_speakers_keep_the_first(small, tmp_path):
    root, _ = small
    load_corpus("synthetic", tmp_path / "seed", **{**SMALL, "speakers": 5, "random_state": 1})
    load_corpus("synthetic", tmp_path / "fewer", **{**SMALL, "speakers": 6})
    names = [f"s{k:03d}.flac" for k in range(1, 6)]
    assert all(
        (root / name).read_bytes() != (tmp_path / "seed" / name).read_bytes() for name in names
    )
    assert all(
        (root / name).read_bytes() == (tmp_path / "fewer" / name).read_bytes()
        for name in [*names, "s006.flac"]
    )


def test_what_is_there_is_used_again_or_refused(small, monkeypatch):
    root, corpus = small
    monkeypatch.setattr(
        "mvplda.speech.corpora.synthetic._make", lambda *_: pytest.fail("made again")
    )
    assert load_corpus("synthetic", root, **SMALL).ids.tolist() == corpus.ids.tolist()
    with pytest.raises(DataError, match=r"other settings \(sessions 2, not 3"):
        load_corpus("synthetic", root, **{**SMALL, "sessions": 3})
    victim = root / "s003.flac"
    whole = victim.read_bytes()
    victim.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    try:
        with pytest.raises(DataError, match="fingerprint"):
            load_corpus("synthetic", root, **SMALL)
    finally:
        victim.write_bytes(whole)
    manifest = (root / MANIFEST).read_text()
    (root / MANIFEST).write_text(manifest[:50])
    try:
        with pytest.raises(DataError, match="damaged"):
            load_corpus("synthetic", root, **SMALL)
    finally:
        (root / MANIFEST).write_text(manifest)
    assert json.loads(manifest)["settings"]["phrases"] == list(PHRASES[:2])


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(DataError, match="not an empty folder"):
        load_corpus("synthetic", tmp_path, **SMALL)
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


def test_a_run_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(DataError, match=r"not made: .*says nothing for '\?'"):
        load_corpus("synthetic", tmp_path / "c", **{**SMALL, "phrases": ["hello there", "?"]})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"speakers": 1}, "at least 2"),
        ({"sessions": 0}, "at least 1"),
        ({"phrases": 99}, "phrases of your own"),
        ({"phrases": []}, "none is blank"),
        ({"phrases": ["a b", "A  b"]}, "differ"),
        ({"phrases": "hello"}, "got the text"),
        ({"random_state": -1}, "from 0"),
        ({"rate": 100}, "8000"),
    ],
)
def test_settings_that_are_refused(tmp_path, changes, words):
    with pytest.raises(ParameterError, match=words):
        load_corpus("synthetic", tmp_path / "c", **{**SMALL, **changes})


def test_without_the_library_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    with pytest.raises(MissingExtraError, match=r"mvplda\[synthetic\]"):
        load_corpus("synthetic", tmp_path / "c", **SMALL)


def test_own_phrases(tmp_path):
    corpus = load_corpus(
        "synthetic", tmp_path / "c", speakers=2, phrases=["Hello, world!"], sessions=2, per_model=1
    )
    assert set(corpus.labels["phrase"]) == {"hello-world"}
    assert corpus.protocol.enrol.keys() <= {"s001_hello-world", "s002_hello-world"}


@pytest.mark.slow
def test_a_voice_is_more_like_itself_than_like_others_and_sessions_differ(larger):
    corpus, vectors = larger
    speakers, phrases = corpus.labels["speaker"], corpus.labels["phrase"]
    scaled = (vectors - vectors.mean(0)) / vectors.std(0)
    scaled /= np.linalg.norm(scaled, axis=1, keepdims=True)
    cosine = scaled @ scaled.T
    other = ~np.eye(len(scaled), dtype=bool)
    same_speaker = (speakers[:, None] == speakers) & other
    same_phrase = (phrases[:, None] == phrases) & other
    cell = same_speaker & same_phrase
    assert cosine[same_speaker].mean() > cosine[~same_speaker & other].mean() + 0.1
    assert cosine[same_phrase].mean() > cosine[~same_phrase & other].mean() + 0.05
    assert cosine[cell].mean() < 0.95  # sessions are no copies
    assert cosine[cell].min() < cosine[~same_speaker & same_phrase].max()  # and not trivial


@pytest.mark.slow
def test_speakers_and_phrases_are_told_apart_in_sessions_not_heard(larger):
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    corpus, vectors = larger
    heard = corpus.sessions.astype(int) < 4
    for view, least in (("speaker", 0.7), ("phrase", 0.9)):
        labels = corpus.labels[view]
        model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1).fit(
            vectors[heard], labels[heard]
        )
        right = (model.predict(vectors[~heard]) == labels[~heard]).mean()
        assert least < right, view
