"""A whole experiment through the command line: speech that is made here, a tiny network, a table."""

from __future__ import annotations

import csv
import json
import re
import shutil

import pytest
from click.testing import CliRunner
from experiment_problems import hum

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("soundfile", reason="soundfile is not installed")
pytest.importorskip("soxr", reason="soxr is not installed")
pytest.importorskip("kaldi_native_fbank", reason="kaldi_native_fbank is not installed")

from mvplda import load
from mvplda.cli import main
from mvplda.io.vectors import read_vectors
from mvplda.speech.experiment.configuration import read_configuration
from mvplda.speech.experiment.systems import BackendSettings, systems_named
from mvplda.speech.networks import Extractor

SPEECH = {"corpus.speakers": 8, "corpus.phrases": 3, "corpus.sessions": 5, "corpus.training": 5}
TINY = {
    "features.mel_bins": 20,
    "variants.voices": "[0.9]",
    "network.channels": 12,
    "network.dilations": "[1]",
    "network.pooled": 12,
    "network.attention": 4,
    "network.embedding": 8,
    "training.epochs": 2,
    "training.hold_out": 0.4,
    "training.device": "cpu",
    "evaluation.resamples": 20,
}
FILES = ("configuration.toml", "extractor.safetensors", "model.safetensors", "results.json", "table.csv", "table.md",
         "table.txt", "vectors.npz")  # fmt: skip


def mvplda(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def experiment(corpus, root, output, *arguments, **changes):
    options = [part for name, value in changes.items() for part in ("-s", f"{name}={value}")]
    command = [
        "experiment",
        corpus,
        root,
        "-o",
        output,
        "-q",
        "--no-report",
        "--workers",
        1,
        *options,
        *arguments,
    ]
    return mvplda(*command)


def ok(*arguments, **changes):
    done = experiment(*arguments, **changes)
    assert done.exit_code == 0, done.output
    return done


def numbers(folder):
    """Everything in the tables but the seconds."""
    text = re.sub(r" +\d+\.\d$", "", (folder / "table.txt").read_text(), flags=re.M)
    plain = json.loads((folder / "results.json").read_text())
    for system in plain["systems"].values():
        system.pop("seconds")
    return (folder / "table.csv").read_bytes(), (folder / "table.md").read_bytes(), text, plain


def rows(folder, *systems):
    with open(folder / "table.csv", newline="") as file:
        return [row for row in csv.DictReader(file) if row["system"] in systems or not systems]


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The speech and what the first run left."""
    pytest.importorskip("espeakng_loader", reason="espeakng_loader is not installed")
    place = tmp_path_factory.mktemp("experiment")
    done = ok(
        "synthetic", place / "speech", place / "first", "--cache", place / "cache", **SPEECH, **TINY
    )
    return place, done


@pytest.mark.slow
def test_a_run_leaves_all_that_it_made(first):
    place, done = first
    for name in FILES:
        assert (place / "first" / name).stat().st_size > 100, name
    usual = systems_named(())
    assert {row["system"] for row in rows(place / "first")} == {system.name for system in usual}
    for row in rows(place / "first"):
        assert 0 <= float(row["eer"]) <= 0.75
        assert int(row["n_targets"]) == 3 * 3 * 2
    for system in usual:
        assert system.heading(BackendSettings()) in done.output
    assert "training on 90 utterances of 6 speakers; 2 speakers held out" in done.output
    assert len(read_vectors(place / "first" / "vectors.npz")) == 120
    extractor = Extractor.load(place / "first" / "extractor.safetensors")
    assert len(extractor.classes["speaker"]) == 6
    assert read_vectors(place / "first" / "vectors.npz").extractor == extractor.name
    assert load(place / "first" / "model.safetensors").scorer.views_ is not None


@pytest.mark.slow
def test_the_same_seed_gives_the_same_table(first):
    place, _ = first
    ok("synthetic", place / "speech", place / "again", **SPEECH, **TINY)  # without the cache
    assert numbers(place / "again") == numbers(place / "first")
    ok(
        "synthetic",
        place / "speech",
        place / "other",
        "--cache",
        place / "cache",
        **SPEECH,
        **{**TINY, "training.random_state": 1},
    )
    assert numbers(place / "other")[0] != numbers(place / "first")[0]


@pytest.mark.slow
def test_a_saved_configuration_is_the_run(first):
    place, _ = first
    saved = place / "first" / "configuration.toml"
    ok("synthetic", place / "speech", place / "saved", "-c", saved, "--cache", place / "cache")
    assert numbers(place / "saved") == numbers(place / "first")
    assert read_configuration(place / "saved" / "configuration.toml") == read_configuration(saved)
    assert str(place) not in saved.read_text()


@pytest.mark.slow
def test_an_extractor_or_vectors_instead_of_a_training(first):
    place, _ = first
    trained = place / "first" / "extractor.safetensors"
    options = ["--extractor", trained, "--cache", place / "cache"]
    done = ok("synthetic", place / "speech", place / "extracted", *options, **SPEECH, **TINY)
    assert "training on" not in done.output
    assert rows(place / "extracted") == rows(place / "first")
    given = place / "first" / "vectors.npz"
    done = ok("synthetic", place / "speech", place / "given", "--vectors", given, **SPEECH, **TINY)
    assert "features of" not in done.output
    plain = [
        system.name for system in systems_named(()) if not system.tuned
    ]  # those know less of the extractor here
    assert rows(place / "given", *plain) == rows(place / "first", *plain)
    assert not (place / "given" / "extractor.safetensors").exists()


@pytest.mark.slow
def test_a_table_of_your_own(first):
    """The same sound, listed in a table, with the same protocol: the same vectors give the same errors."""
    place, _ = first
    training = sorted({row for row in _speakers(place) if row not in _tested(place)})
    done = ok("folder", place / "speech" / "index.csv", place / "listed", "--vectors", place / "first" / "vectors.npz",
              **{"corpus.training": json.dumps(training), "evaluation.systems": '["cosine", "plda-cell"]',
                 "evaluation.resamples": 0})  # fmt: skip
    assert "index: 120 utterances" in done.output
    mine, theirs = rows(place / "listed"), rows(place / "first", "cosine", "plda-cell")
    assert [row["eer"] for row in mine] == [row["eer"] for row in theirs]


def _speakers(place):
    with open(place / "speech" / "index.csv", newline="") as file:
        return {row["speaker"] for row in csv.DictReader(file)}


def _tested(place):
    from mvplda.speech.corpora import load_corpus

    corpus = load_corpus(
        "synthetic", place / "speech", speakers=8, phrases=3, sessions=5, training=5
    )
    return set(corpus.labels["speaker"][corpus.protocol.test].tolist())


@pytest.mark.slow
def test_a_folder_of_your_own_with_a_damaged_file_and_a_page(tmp_path):
    root = hum(tmp_path / "sound", [f"voice{i}" for i in range(8)], tunes=2, sessions=5)
    (root / "voice3" / "tune0_1.wav").write_bytes(b"RIFF")
    changes = {**TINY, "corpus.pattern": '"{speaker}/{phrase}_{session}.wav"', "corpus.training": 5}
    options = [part for name, value in changes.items() for part in ("-s", f"{name}={value}")]
    done = mvplda(
        "experiment", "folder", root, "-o", tmp_path / "out", "-q", "--workers", 1, *options
    )
    assert done.exit_code == 0, done.output
    assert "1 utterance(s) could not be used:\n  voice3/tune0_1" in done.output
    page = (tmp_path / "out" / "report.html").read_text()
    assert "voice3/tune0_1" in page
    assert not re.search(r'(src|href)="https?:', page)
    done = mvplda(
        "experiment",
        "folder",
        root,
        "-o",
        tmp_path / "strict",
        "-q",
        "--on-error",
        "raise",
        "--workers",
        1,
        *options,
    )
    assert done.exit_code == 1
    assert "voice3/tune0_1" in done.output.splitlines()[-1]


@pytest.fixture
def small(tmp_path):
    return hum(tmp_path / "sound", ["ann", "bob", "cat"], tunes=2, sessions=2)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["folder"], 2, "folder needs its ROOT: a folder of sound files"),
        (["folder", "nowhere"], 1, "there is no folder or table nowhere"),
        (["audiomnist", "nowhere"], 1, "nowhere"),
        (["nonsense", "sound"], 2, "nonsense"),
        (
            ["folder", "sound", "-c", "other.toml"],
            2,
            "other.toml is for the corpus 'synthetic', not 'folder'",
        ),
        (["folder", "sound", "-c", "missing.toml"], 2, "missing.toml"),
        (
            ["folder", "sound", "-c", "other.toml", "-r", "small"],
            2,
            "a recipe or a configuration file, not both",
        ),
        (["folder", "sound", "-r", "huge"], 1, "no recipe 'huge'; there are"),
        (
            ["folder", "sound", "-s", 'evaluation.systems=["worst"]'],
            1,
            "no system 'worst'; there are cosine",
        ),
        (
            ["folder", "sound", "-s", "training.epochs=many"],
            1,
            "epochs is a whole number; got 'many'",
        ),
        (["folder", "sound", "-s", "training"], 2, "expected NAME=VALUE"),
        (["folder", "sound", "-s", "corpus.colour=red"], 1, "folder has no option colour"),
        (["folder", "sound", "-s", "corpus.pattern={speaker}.wav"], 1, "sound"),
        (
            ["folder", "sound", "-s", "corpus.pattern={speaker}/{phrase}_{session}.wav"],
            1,
            "Lower per_model",
        ),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    small, tmp_path, monkeypatch, arguments, code, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.toml").write_text('[corpus]\nname = "synthetic"\n')
    done = mvplda("experiment", *arguments, "-o", "out", "-q")
    assert done.exit_code == code, done.output
    assert message in done.output
    assert "Traceback" not in done.output
    assert not (tmp_path / "out").exists()


def test_vectors_of_something_else(small, tmp_path):
    import numpy as np

    from mvplda.io.vectors import VectorSet, write_vectors

    write_vectors(tmp_path / "x.npz", VectorSet(np.array(["a", "b"]), np.ones((2, 3))))
    shutil.copytree(small / "ann", small / "dan")
    done = experiment("folder", small, tmp_path / "out", "--vectors", tmp_path / "x.npz",
                      **{"corpus.pattern": '"{speaker}/{phrase}_{session}.wav"', "corpus.per_model": 1})  # fmt: skip
    assert done.exit_code == 1
    assert (
        "none of the corpus's 16 utterances, such as 'ann/tune0_0', is among the 2 vectors, such as 'a'"
        in done.output
    )


def test_keywords_with_blanks_and_a_configuration_for_both_commands(tmp_path):
    """From sound to a table where words are called as in Arabic Speech Commands; then the same network again."""
    people = [f"{number:08d}" for number in range(1, 7)]
    hum(tmp_path / "hum", people, sessions=4)
    for speaker in people:
        for k, word in enumerate(("zoom in", "zoom out")):
            (tmp_path / "dataset" / word).mkdir(parents=True, exist_ok=True)
            for session in range(4):
                file = tmp_path / "hum" / speaker / f"tune{k}_{session}.wav"
                file.rename(tmp_path / "dataset" / word / f"{speaker}_NO_{session:02d}.wav")
    small = {
        **TINY,
        "variants.voices": "[]",
        "evaluation.systems": '["cosine"]',
        "evaluation.resamples": 0,
    }
    ok("arabic-commands", tmp_path, tmp_path / "out", **small)
    assert "zoom_in/00000001_NO_00" in read_vectors(tmp_path / "out" / "vectors.npz").ids
    words = Extractor.load(tmp_path / "out" / "extractor.safetensors").classes["phrase"]
    assert list(words) == ["zoom in", "zoom out"]

    config = [
        "--config",
        tmp_path / "out" / "configuration.toml",
        "--epochs",
        1,
        "--monitor",
        "speaker",
    ]
    pattern = ["--pattern", "{phrase}/{speaker}_NO_{session}.wav"]
    net = tmp_path / "net.safetensors"
    done = mvplda("jvector", "train", tmp_path / "dataset", *pattern, *config, "-q", "-o", net)
    assert done.exit_code == 0, done.output
    assert (
        Extractor.load(net).network
        == Extractor.load(tmp_path / "out" / "extractor.safetensors").network
    )
    assert Extractor.load(net).feature_settings["mel_bins"] == 20
    done = mvplda(
        "jvector", "extract", net, tmp_path / "dataset", "-q", "-o", tmp_path / "again.npz"
    )
    assert done.exit_code == 0, done.output
    assert set(read_vectors(tmp_path / "again.npz").ids) == set(
        read_vectors(tmp_path / "out" / "vectors.npz").ids
    )


@pytest.mark.slow
def test_exact_beats_printed_on_synthetic_speech(tmp_path):
    """The claim of the whole: on speech, with a network of our own, on speakers that it has not seen."""
    pytest.importorskip("espeakng_loader", reason="espeakng_loader is not installed")
    changes = {
        "corpus.speakers": 24,
        "corpus.phrases": 5,
        "corpus.sessions": 6,
        "features.mel_bins": 30,
        "variants.voices": "[]",
        "network.channels": 32,
        "network.pooled": 48,
        "network.embedding": 48,
        "training.epochs": 6,
        "training.batch": 32,
        "training.device": "cpu",
        "evaluation.systems": '["jplda-printed", "jplda-exact"]',
        "evaluation.resamples": 0,
    }
    done = ok("synthetic", tmp_path / "speech", tmp_path / "out", **changes)
    kinds = {
        s: {r["kind"]: float(r["eer"]) for r in rows(tmp_path / "out", s)}
        for s in ("jplda-printed", "jplda-exact")
    }
    assert kinds["jplda-exact"]["Total"] < 0.8 * kinds["jplda-printed"]["Total"], done.output
    assert kinds["jplda-exact"]["IC"] < kinds["jplda-printed"]["IC"], done.output
    assert kinds["jplda-exact"]["Total"] < 0.35, done.output


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("corpus.per_model=abc", "per_model='abc'"),
        ("corpus.training=abc", "training is a number of speakers"),
        ('backend.shrinkages=["a"]', "[backend] shrinkages.0 is a number; got 'a'"),
        ('variants.voices=["a"]', "[variants] voices.0 is a number; got 'a'"),
    ],
)
def test_settings_of_a_wrong_type_end_in_one_line(tmp_path, change, words):
    for speaker in ("ann", "bob", "cat"):
        sound = tmp_path / "rec" / speaker / "hello"
        sound.mkdir(parents=True)
        for number in range(5):
            (sound / f"{number}.wav").write_bytes(b"no sound is read before the settings are")
    done = CliRunner().invoke(
        main, ["experiment", "folder", str(tmp_path / "rec"), "-s", change, "-o", str(tmp_path)]
    )
    assert done.exit_code == 1
    assert words in done.output
    assert "Traceback" not in done.output
