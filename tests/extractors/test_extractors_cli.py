"""From recordings to a verdict on the command line."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from extractor_problems import RATE, network, soundfile, voice, write

import mvplda
from mvplda import Bundle, MultiviewPLDA, load
from mvplda.cli import main
from mvplda.exceptions import LabelError, ParameterError
from mvplda.extractors import to_toml
from mvplda.extractors.recipe import Calibration
from mvplda.extractors.verdict import Limits, ProfileBook
from mvplda.io.vectors import VectorSet, read_vectors, write_vectors

load_extractor: Any = mvplda.load_extractor  # recipes are those of ONNX files only


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A network whose recipe has a calibration, and recordings of two voices."""
    monkeypatch.chdir(tmp_path)
    file = network(tmp_path / "net.onnx", dimension=24)
    recipe = load_extractor(file).recipe
    one, again, other = (voice(3.0, pitch, seed) for pitch, seed in ((1.0, 0), (1.0, 1), (1.35, 2)))
    for name, samples in (("one", one), ("again", again), ("other", other)):
        write(tmp_path / f"{name}.wav", samples)
    plain = load_extractor(file)
    unit = [v / np.linalg.norm(v) for v in (plain(x, RATE) for x in (one, again, other))]
    same, different = float(unit[0] @ unit[1]), float(unit[0] @ unit[2])
    assert same > different
    slope = 8 / (same - different)
    calibration = Calibration(
        slope, -slope * (same + different) / 2, most=20.0, basis="these very recordings"
    )
    (tmp_path / "net.toml").write_text(to_toml(replace(recipe, calibration=calibration)))
    return tmp_path


def run(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


def test_the_exit_code_is_the_verdict(place):
    accepted = run("verify", "one.wav", "again.wav", "-x", "net.onnx")
    assert accepted.exit_code == 0, accepted.output
    assert accepted.output.startswith("The same voice")
    assert "default calibration, which is not yours: these very recordings" in accepted.output
    rejected = run("verify", "one.wav", "other.wav", "-x", "net.onnx")
    assert rejected.exit_code == 1
    assert rejected.output.startswith("Not the same voice")
    strict = run("verify", "one.wav", "again.wav", "-x", "net.onnx", "--far", "1e-6")
    assert strict.exit_code == 2
    assert strict.output.startswith("Nothing can be decided")


@pytest.mark.parametrize(
    "command", [("extractor", "check"), ("verify", "one.wav", "again.wav", "-x")]
)
def test_a_recipe_to_fill_in_keeps_its_lines(place, command):
    network(place / "odd.onnx", inputs=("stuff",), output="vec")
    done = run(*command, "odd.onnx")
    assert done.exit_code in (1, 3), done.output
    draft = done.output.partition("\n\n")[2]
    assert {"name", "views"} <= set(tomllib.loads(draft))


def test_limits_beyond_the_default_calibration_say_what_they_take(place):
    undecided = run("verify", "one.wav", "again.wav", "-x", "net.onnx", "--far", "1e-9")
    assert undecided.exit_code == 2
    assert "that takes a model of your own recordings" in undecided.output
    rejected = run("verify", "one.wav", "again.wav", "-x", "net.onnx", "--prior", "1e-9")
    assert rejected.exit_code == 1
    assert rejected.output.startswith("Not enough for the same voice")
    assert (
        "that takes a model" not in run("verify", "one.wav", "again.wav", "-x", "net.onnx").output
    )


def test_what_has_no_answer_ends_with_three_and_not_with_a_verdict(place):
    assert run("verify", "one.wav", "nobody.wav", "-x", "net.onnx").exit_code == 3
    assert run("verify", "one.wav", "-x", "net.onnx").exit_code == 3
    assert run("verify", "one.wav", "again.wav").exit_code == 3
    assert run("verify", "one.wav", "again.wav", "-x", "net.onnx", "--far", "2").exit_code == 3
    (place / "silent.wav").unlink(missing_ok=True)
    write(place / "silent.wav", np.zeros(RATE, np.float32))
    silent = run("verify", "one.wav", "silent.wav", "-x", "net.onnx")
    assert silent.exit_code == 3
    assert "silent.wav is silent" in silent.output


def test_noise_decides_nothing_whatever_its_score(place):
    write(place / "noise.wav", 0.1 * np.random.default_rng(0).normal(size=3 * RATE))
    found = run("verify", "one.wav", "noise.wav", "-x", "net.onnx", "--json")
    assert found.exit_code == 2
    told = json.loads(found.output)
    assert told["verdict"] == "inconclusive"
    assert any("holds no speech" in reason for reason in told["reasons"])
    assert "speechless" in told["quality"]["other"][0]["warnings"]


def test_a_folder_is_one_side_of_several_recordings(place):
    (place / "enrolled").mkdir()
    write(place / "enrolled" / "a.wav", voice(3.0, 1.0, 5))
    write(place / "enrolled" / "b.wav", voice(2.0, 1.0, 6))
    assert run("verify", "enrolled", "again.wav", "-x", "net.onnx").exit_code == 0
    assert run("verify", "other.wav", "enrolled/", "-x", "net.onnx").exit_code == 1


def test_profiles_are_added_listed_found_and_removed(place):
    assert run("profiles", "add", "voices.npz", "ann", "one.wav", "-x", "net.onnx").exit_code == 0
    assert run("profiles", "add", "voices.npz", "bob", "other.wav", "-x", "net.onnx").exit_code == 0
    assert run("profiles", "list", "voices.npz").stdout == "ann\t1\nbob\t1\n"
    found = run("identify", "again.wav", "--profiles", "voices.npz", "-x", "net.onnx")
    assert found.exit_code == 0
    assert found.output.startswith("This is ann.")
    claimed = ("--profiles", "voices.npz", "-x", "net.onnx", "--profile")
    assert run("verify", "again.wav", *claimed, "ann").exit_code == 0
    assert run("verify", "again.wav", *claimed, "bob").exit_code == 1
    nobody = run("verify", "again.wav", *claimed, "eve")
    assert nobody.exit_code == 3
    assert "there are ann, bob" in nobody.output
    twice = run("profiles", "add", "voices.npz", "ann", "one.wav", "-x", "net.onnx")
    assert twice.exit_code == 1
    assert "is given twice, or is in voices.npz already" in twice.output
    assert run("profiles", "remove", "voices.npz", "ann").exit_code == 0
    assert run("profiles", "list", "voices.npz").stdout == "bob\t1\n"
    assert run("profiles", "remove", "voices.npz", "bob").exit_code == 0
    assert not (place / "voices.npz").exists()
    with pytest.raises(LabelError, match="no blanks"):
        ProfileBook("voices.npz").add(
            "a b", load_extractor("net.onnx"), load_extractor("net.onnx").extract(["one.wav"])
        )


def test_profiles_want_speech_and_a_voice(place):
    write(place / "word.wav", voice(0.5))
    short = run("profiles", "add", "voices.npz", "ann", "word.wav", "-x", "net.onnx")
    assert short.exit_code == 1
    assert "--min-speech" in short.output
    write(place / "tone.wav", 0.3 * np.sin(np.arange(3 * RATE) * 0.2))
    tone = run("profiles", "add", "voices.npz", "ann", "tone.wav", "-x", "net.onnx")
    assert tone.exit_code == 1
    assert "tone.wav holds no voice" in tone.output
    assert not (place / "voices.npz").exists()


def test_another_extractor_is_refused_by_name_wherever_vectors_meet(place):
    network(place / "else.onnx", seed=9, dimension=24)
    mine, theirs = load_extractor("net.onnx"), load_extractor("else.onnx")
    run("profiles", "add", "voices.npz", "ann", "one.wav", "-x", "net.onnx")
    for words in (
        ("identify", "again.wav", "--profiles", "voices.npz", "-x", "else.onnx"),
        ("verify", "again.wav", "--profiles", "voices.npz", "--profile", "ann", "-x", "else.onnx"),
        ("profiles", "add", "voices.npz", "bob", "other.wav", "-x", "else.onnx"),
    ):
        found = run(*words)
        assert found.exit_code in (1, 3)
        assert mine.name in found.output
        assert theirs.name in found.output
        assert "with the same one" in found.output
    (place / "voices.npz.extractor").unlink()
    assert run("identify", "again.wav", "--profiles", "voices.npz", "-x", "net.onnx").exit_code == 3


def test_vectors_carry_the_fingerprint_into_models_and_verdicts(place):
    (place / "recordings").mkdir()
    for speaker in range(6):
        for session in range(4):
            write(
                place / "recordings" / f"s{speaker}_{session}.wav",
                voice(1.5, 1 + 0.08 * speaker, 10 * speaker + session),
            )
    words = ("extract", "recordings", "-x", "net.onnx", "-o", "v.npz", "-q", "--quality", "q.jsonl")
    assert run(*words).exit_code == 0
    vectors = read_vectors("v.npz")
    assert vectors.extractor == load_extractor("net.onnx").name
    assert len((place / "q.jsonl").read_text().splitlines()) == len(vectors) == 24
    speakers = [name.partition("_")[0] for name in vectors.ids.tolist()]
    bundle = Bundle(None, MultiviewPLDA({"speaker": 3}), extractor=vectors.extractor).fit(
        vectors.X, {"speaker": speakers}
    )
    bundle.save("model.safetensors")
    trained = ("-x", "net.onnx", "--model", "model.safetensors", "--prior", "0.5")
    accepted = run("verify", "one.wav", "again.wav", *trained)
    assert accepted.exit_code == 0, accepted.output
    assert run("verify", "one.wav", "other.wav", *trained).exit_code == 1
    network(place / "else.onnx", seed=9, dimension=24)
    refused = run(
        "verify", "one.wav", "again.wav", "-x", "else.onnx", "--model", "model.safetensors"
    )
    assert refused.exit_code == 3
    assert vectors.extractor in refused.output
    assert load_extractor("else.onnx").name in refused.output


def test_statistics_carry_the_extractor_into_the_model(place):
    for name, extractor, seed in (("a", "net-1", 0), ("b", "net-1", 1), ("c", "other-2", 2)):
        ids = np.array([f"{name}{i}" for i in range(40)])
        write_vectors(
            f"{name}.npz",
            VectorSet(ids, np.random.default_rng(seed).normal(size=(40, 5)), extractor),
        )
        (place / f"{name}.spk").write_text(
            "".join(f"{one} s{i % 4}\n" for i, one in enumerate(ids))
        )
        done = run(
            "stats", f"{name}.npz", "-l", f"speaker={name}.spk", "-o", f"{name}.safetensors", "-q"
        )
        assert done.exit_code == 0, done.output
    assert (
        run(
            "stats", "--add", "a.safetensors", "b.safetensors", "-o", "ab.safetensors", "-q"
        ).exit_code
        == 0
    )
    assert (
        run("train", "ab.safetensors", "-v", "speaker=2", "-o", "model.safetensors", "-q").exit_code
        == 0
    )
    assert load("model.safetensors").extractor == "net-1"
    for words in (
        ("--add", "a.safetensors", "c.safetensors"),
        ("a.safetensors", "--subtract", "c.safetensors"),
    ):
        refused = run("stats", *words, "-o", "ac.safetensors", "-q")
        assert refused.exit_code == 1
        assert "'net-1'" in refused.output
        assert "'other-2'" in refused.output


def test_a_model_of_two_views_tells_who_and_what(place):
    extractor = load_extractor("net.onnx")
    rng = np.random.default_rng(0)
    labels = {
        "speaker": np.array([f"s{i % 8}" for i in range(160)]),
        "phrase": np.array([f"p{i // 40}" for i in range(160)]),
    }
    codes = {view: np.unique(names, return_inverse=True)[1] for view, names in labels.items()}
    X = sum(rng.normal(size=(8, 24))[codes[view]] for view in labels) + 0.3 * rng.normal(
        size=(160, 24)
    )
    bundle = Bundle(None, MultiviewPLDA({"speaker": 4, "phrase": 3}), extractor=extractor.name).fit(
        X, labels
    )
    bundle.save("model.safetensors")
    words = (
        "verify",
        "one.wav",
        "again.wav",
        "-x",
        "net.onnx",
        "--model",
        "model.safetensors",
        "--json",
    )
    told = json.loads(run(*words).stdout)
    assert set(told["probabilities"]) == {"speaker and phrase", "speaker", "phrase", "nothing"}
    assert sum(told["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    said = run(*words[:-1]).stdout
    assert said.startswith(
        ("The same speaker and phrase", "Not the same speaker and phrase", "Nothing can be decided")
    )
    assert "the same speaker only: " in said
    assert told["views"] == ["speaker", "phrase"]
    assert "voice" not in said.partition(":")[0]
    assert json.loads(run(*words, "--same", "speaker").stdout)["views"] == ["speaker"]
    known = json.loads(run(*words, "--phrase", "p1").stdout)
    asked = json.loads(run(*words, "--same", "speaker").stdout)
    assert len({told["llr"], known["llr"], asked["llr"]}) == 3
    assert run("verify", "one.wav", "again.wav", "-x", "net.onnx", "--phrase", "p1").exit_code == 3
    spoof = json.loads(run(*words, "--countermeasure", "-40", "--spoof-prior", "0.1").stdout)
    assert spoof["verdict"] == "reject"
    assert spoof["llr"] == pytest.approx(
        -np.logaddexp(np.log(0.9) - told["llr"], np.log(0.1) + 40), abs=1e-4
    )
    assert spoof["probabilities"]["spoof"] == pytest.approx(1, abs=1e-6)


def test_a_countermeasure_has_a_word_in_the_verdict(place):
    words = ("verify", "one.wav", "again.wav", "-x", "net.onnx")
    llr = json.loads(run(*words, "--json").stdout)["llr"]
    told = run(*words, "--json", "--countermeasure", "-9")
    assert told.exit_code == 1
    assert json.loads(told.stdout)["llr"] == pytest.approx(-np.logaddexp(-llr, 9) + np.log(2))
    assert run(*words, "--countermeasure", "9").exit_code == 0
    assert run(*words, "--spoof-prior", "0.2").exit_code == 3
    assert run(*words, "--countermeasure", "nan").exit_code == 3


def test_two_extractors_make_one_file(place):
    network(place / "second.onnx", seed=4, dimension=5)
    assert (
        run(
            "extract", "one.wav", "other.wav", "-x", "net.onnx", "-x", "second.onnx", "-o", "v.npz"
        ).exit_code
        == 0
    )
    vectors = read_vectors("v.npz")
    assert vectors.X.shape == (2, 29)
    assert vectors.extractor == load_extractor(["net.onnx", "second.onnx"]).name


def test_extract_skips_what_cannot_be_used_and_warns_by_name(place):
    (place / "bad.wav").write_bytes(b"RIFFnothing")
    write(place / "noise.wav", 0.1 * np.random.default_rng(0).normal(size=3 * RATE))
    words = ("extract", "one.wav", "bad.wav", "noise.wav", "-x", "net.onnx", "-o", "v.npz", "-q")
    assert run(*words).exit_code == 1
    assert not (place / "v.npz").exists()
    found = run(*words, "--on-error", "skip")
    assert found.exit_code == 0
    assert "skipped" in found.output
    assert "warning: speechless: 1 of 2 recordings, such as noise" in found.output


def test_quality_names_copies_and_files_that_cannot_be_read(place):
    write(place / "copy.flac", soundfile.read(place / "one.wav", dtype="int16")[0])
    (place / "bad.wav").write_bytes(b"RIFFnothing")
    found = run("quality", "one.wav", "copy.flac", "bad.wav")
    assert found.exit_code == 1
    assert "copy.flac  [copy of one.wav]" in found.output
    assert "bad.wav is damaged" in found.output
    told = [
        json.loads(line)
        for line in run("quality", "one.wav", "copy.flac", "--json").stdout.splitlines()
    ]
    assert told[1]["copy_of"] == "one.wav"


def test_check_tells_what_was_understood_and_writes_a_recipe(place):
    network(place / "new.onnx", seed=2)
    found = run("extractor", "check", "new.onnx", "--write")
    assert found.exit_code == 0, found.output
    assert "recipe: wespeaker" in found.output
    assert "golden vector: agrees" in run("extractor", "check", "new.onnx").output
    network(place / "new.onnx", seed=3)
    assert run("extractor", "check", "new.onnx").exit_code == 1


def test_limits():
    assert Limits().verdict(2.4) == "accept"
    assert Limits().verdict(-2.4) == "reject"
    assert Limits().verdict(0.0) == "inconclusive"
    assert Limits.of(prior=0.01).accept == pytest.approx(np.log(99))
    with pytest.raises(ParameterError, match="not both"):
        Limits.of(far=0.1, prior=0.5)


def test_what_browsers_record_is_listed_and_not_passed_over(place):
    (place / "recordings").mkdir()
    write(place / "recordings" / "a.wav", voice())
    (place / "recordings" / "b.webm").write_bytes(b"\x1a\x45\xdf\xa3" + b"\0" * 100)
    found = run(
        "extract", "recordings", "-x", "net.onnx", "-o", "v.npz", "-q", "--on-error", "skip"
    )
    assert found.exit_code == 0, found.output
    assert "b.webm" in found.output
    assert read_vectors("v.npz").ids.tolist() == ["a"]
    assert "b.webm" in run("extract", "recordings/b.webm", "-x", "net.onnx", "-o", "v.npz").output


def test_stretches_of_a_table_are_recordings(place):
    samples = np.concatenate([voice(1.0, 1.0, 0), voice(1.2, 1.3, 1)])
    write(place / "joined.wav", samples, subtype="FLOAT")
    (place / "index.csv").write_text(
        "id,speaker,file,start,length\nx,a,joined.wav,0,16000\ny,b,joined.wav,16000,19200\n"
    )
    assert run("extract", "index.csv", "-x", "net.onnx", "-o", "v.npz", "-q").exit_code == 0
    vectors = read_vectors("v.npz")
    assert np.load("v.npz")["speaker"].tolist() == ["a", "b"]
    extractor = load_extractor("net.onnx")
    np.testing.assert_allclose(
        vectors.select(["y"]).X[0], extractor(samples[16000:], RATE), atol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "extractors", [("net.onnx",), ("net.onnx", "second.onnx"), ("train", "net.onnx")]
)
def test_an_experiment_on_vectors_of_extractors(place, extractors):
    if "train" in extractors:
        pytest.importorskip("torch", reason="torch is not installed, in which our networks are")
    network(place / "second.onnx", seed=4, dimension=9)
    for speaker in range(8):
        for phrase in range(3):
            (place / f"speech/s{speaker}/p{phrase}").mkdir(parents=True)
            for session in range(4):
                sound = voice(
                    0.6 + 0.1 * phrase, 1 + 0.06 * speaker, 100 * speaker + 10 * phrase + session
                )
                write(place / f"speech/s{speaker}/p{phrase}/{session}.wav", sound[2000 * phrase :])
    tiny = {
        "corpus.training": 5,
        "corpus.per_model": 2,
        "features.bins": 20,
        "network.channels": 8,
        "network.dilations": "[1]",
        "network.pooled": 8,
        "network.embedding": 6,
        "training.epochs": 1,
        "training.device": "cpu",
        "evaluation.resamples": 10,
        "evaluation.systems": '["cosine", "plda-cell"]',
    }
    changes = [word for name, value in tiny.items() for word in ("-s", f"{name}={value}")]
    chosen = [word for name in extractors for word in ("-x", name)]
    done = run(
        "experiment",
        "folder",
        "speech",
        "-o",
        "out",
        "-q",
        "--no-report",
        "--workers",
        1,
        *changes,
        *chosen,
    )
    assert done.exit_code == 0, done.output
    vectors = read_vectors("out/vectors.npz")
    assert len(vectors) == 96
    given = ["out/extractor.onnx" if name == "train" else name for name in extractors]
    assert vectors.extractor == load_extractor(given).name
    assert vectors.dimension == load_extractor(given).dimension
    assert (place / "out" / "results.json").stat().st_size > 100
