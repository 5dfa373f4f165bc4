"""From sound to vectors: voices, copies, who is held out, and files that cannot be used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from experiment_problems import hum
from problems import there

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("soundfile", reason="soundfile is not installed")
pytest.importorskip("soxr", reason="soxr is not installed")
pytest.importorskip("kaldi_native_fbank", reason="kaldi_native_fbank is not installed")

from mvplda.exceptions import AudioError, DataError  # noqa: E402
from mvplda.speech.corpora import load_corpus  # noqa: E402
from mvplda.speech.experiment.configuration import Configuration  # noqa: E402
from mvplda.speech.experiment.extraction import (  # noqa: E402
    Variants,
    extract_corpus_features,
    extract_everything,
    train_extractor,
)
from mvplda.speech.experiment.run import run_experiment  # noqa: E402
from mvplda.speech.features.frames import FeatureSettings  # noqa: E402
from mvplda.speech.networks import ModernNetwork, Training  # noqa: E402

PATTERN = "{speaker}/{phrase}_{session}.wav"
SPEAKERS = ["ann", "ann@home", "bob", "cat", "dan", "eve", "fay", "guy"]
SETTINGS = FeatureSettings.fbank(20)
TINY = ModernNetwork(channels=8, dilations=(1,), pooled=8, attention=4, embedding=6)
VARIANTS = Variants((0.9, 1.2), copies=1)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Eight speakers, two of which share the start of their names."""
    root = hum(tmp_path_factory.mktemp("hum"), SPEAKERS)
    return load_corpus(
        "folder", root, pattern=PATTERN, training=["ann", "ann@home", "bob", "cat", "dan"]
    )


@pytest.fixture(scope="module")
def material(corpus):
    return extract_corpus_features(corpus, SETTINGS, VARIANTS, workers=1)


def test_a_voice_is_another_speaker_and_a_copy_is_not(corpus, material):
    assert [(part.voice, part.copy) for part in material.variants] == [
        (1.0, 1), (0.9, 0), (0.9, 1), (1.2, 0), (1.2, 1),
    ]  # fmt: skip
    train = corpus.protocol.train
    own = corpus.labels_at(train)
    place = {name: i for i, name in enumerate(material.everything.ids)}
    for part in material.variants:
        np.testing.assert_array_equal(part.rows, train)
        suffix = "" if part.voice == 1 else f"@{part.voice:g}"
        assert part.labels["speaker"].tolist() == [name + suffix for name in own["speaker"]]
        assert part.labels["phrase"].tolist() == own["phrase"].tolist()
        assert part.features.ids.tolist() == [
            f"{name}@{part.voice:g}#{part.copy}" for name in corpus.ids[train]
        ]
        for k in (0, 7):
            before = material.everything[place[corpus.ids[train[k]]]]
            after = part.features[k]
            assert len(after) == pytest.approx(len(before) / part.voice, abs=2)
            if len(after) == len(before):
                assert np.abs(after - before).max() > 0.1
    ids = [name for part in material.variants for name in part.features.ids]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("seed", range(6))
def test_who_is_held_out_is_in_no_voice_and_no_copy(corpus, material, monkeypatch, seed):
    """With every seed others are held out: what the network gets is looked at, by ids."""
    given: dict[str, Any] = {}

    def spy(features, labels, network, training, *, held_out, **_):
        given.update(features=features, labels=labels, held=held_out, training=training)
        return "extractor"

    monkeypatch.setattr("mvplda.speech.networks.training.train", spy)
    training = Training(hold_out=0.4, random_state=seed)
    assert train_extractor(corpus, material, TINY, training, SETTINGS) == "extractor"
    speaker = dict(zip(corpus.ids.tolist(), corpus.labels["speaker"].tolist(), strict=True))
    source = [
        name if name in speaker else name.rpartition("@")[0]
        for name in given["features"].ids.tolist()
    ]
    people, held = {speaker[name] for name in source}, set(given["held"][1]["speaker"])
    assert len(held) == 2
    assert not people & held
    assert people | held == {"ann", "ann@home", "bob", "cat", "dan"}
    assert len(source) == 6 * 10 * len(people)  # nobody is lost either
    assert len(given["held"][0]) == 10 * len(held)  # in their own voices
    assert given["training"].hold_out == 0.0
    for name, label in zip(
        given["features"].ids.tolist(), given["labels"]["speaker"].tolist(), strict=True
    ):
        voice = "" if name in speaker else name.rpartition("@")[2].partition("#")[0]
        base = name if name in speaker else name.rpartition("@")[0]
        assert label == speaker[base] + (f"@{voice}" if voice not in ("", "1") else "")


@pytest.mark.parametrize(("backend", "parts"), [("speakers", 0), ("voices", 2), ("copies", 5)])
def test_what_the_backend_trains_on(corpus, material, backend, parts):
    training = Training(epochs=1, hold_out=0.4, device="cpu")
    extractor = train_extractor(corpus, material, TINY, training, SETTINGS)
    found = extract_everything(
        corpus, material, extractor, Variants((0.9, 1.2), 1, backend=backend), device="cpu"
    )
    assert found.everything.ids.tolist() == corpus.ids.tolist()
    np.testing.assert_array_equal(
        found.everything.X, extractor.extract(material.everything, device="cpu")
    )
    if parts == 0:
        assert found.extra is None
        return
    n = parts * len(corpus.protocol.train)
    extra = there(found.extra)
    assert len(extra.vectors) == len(extra.people) == len(extra.labels["speaker"]) == n
    assert set(extra.people) == {"ann", "ann@home", "bob", "cat", "dan"}
    for label, person in zip(extra.labels["speaker"], extra.people, strict=True):
        assert label in (person, f"{person}@0.9", f"{person}@1.2")


def test_a_corpus_without_sound(corpus):
    from dataclasses import replace

    with pytest.raises(DataError, match="no sound: give its vectors"):
        extract_corpus_features(replace(corpus, clips=None), SETTINGS, Variants())


def test_damaged_files_are_named_and_passed_over(tmp_path):
    """One of the training, one of an enrolment and one test; the rest gives a table."""
    root = hum(tmp_path / "sound", SPEAKERS)
    (root / "ann" / "tune0_0.wav").write_bytes(b"RIFF....")
    (root / "fay" / "tune1_0.wav").write_bytes(b"")
    (root / "guy" / "tune0_4.wav").write_bytes(b"nothing of the kind")
    corpus = load_corpus(
        "folder", root, pattern=PATTERN, training=["ann", "ann@home", "bob", "cat", "dan"]
    )
    changes = {"training.epochs": 1, "training.device": "cpu", "evaluation.systems": ["cosine", "jplda-exact"],
               "evaluation.resamples": 0, "variants.voices": [0.9], "features.mel_bins": 20}  # fmt: skip
    tiny = {
        f"network.{name}": getattr(TINY, name)
        for name in ("channels", "dilations", "pooled", "attention", "embedding")
    }
    tiny["network.dilations"] = [1]
    settings = Configuration().with_changes({**changes, **tiny})
    said: list[str] = []
    results = run_experiment(
        corpus, settings, tmp_path / "out", workers=1, verbose=False, report=False, say=said.append
    )
    bad = {"ann/tune0_0", "fay/tune1_0", "guy/tune0_4"}
    assert {note.split(":")[0] for note in results.notes} == bad
    assert any(line.startswith("3 utterance(s) could not be used") for line in said)
    total = results["cosine"].evaluation["Total"]
    assert total.n_targets == 3 * 2 * 2 - 1
    assert total.n_targets + total.n_nontargets == 6 * 11
    with pytest.raises(AudioError, match="tune"):
        run_experiment(
            corpus, settings, tmp_path / "no", workers=1, verbose=False, on_error="raise"
        )
