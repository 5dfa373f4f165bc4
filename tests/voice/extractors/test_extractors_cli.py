"""From recordings to a verdict on the command line."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import tomllib
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from extractor_problems import RATE, network, voice, write

import mvplda
from mvplda import load
from mvplda.cli import main
from mvplda.io.vectors import VectorSet, read_vectors, write_vectors
from mvplda.voice.extractors import Extractor
from mvplda.voice.extractors.recipe import recipe_to_toml

load_extractor: Any = mvplda.load_extractor  # recipes are those of ONNX files only


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A network with its recipe, and recordings of two voices."""
    monkeypatch.chdir(tmp_path)
    file = network(tmp_path / "net.onnx", dimension=24)
    for name, pitch, seed in (("one", 1.0, 0), ("again", 1.0, 1), ("other", 1.35, 2)):
        write(tmp_path / f"{name}.wav", voice(3.0, pitch, seed))
    (tmp_path / "net.toml").write_text(recipe_to_toml(load_extractor(file).recipe))
    return tmp_path


def run(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.mark.parametrize(
    "command", [("extractor", "check"), ("verify", "one.wav", "again.wav", "-x")]
)
def test_a_recipe_to_fill_in_keeps_its_lines(place, command):
    network(place / "odd.onnx", inputs=("stuff",), output="vec", family=None)
    done = run(*command, "odd.onnx")
    assert done.exit_code in (1, 3), done.output
    draft = done.output.partition("\n\n")[2]
    assert {"name", "views"} <= set(tomllib.loads(draft))


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
        run("stats", "a.safetensors", "b.safetensors", "-o", "ab.safetensors", "-q").exit_code == 0
    )
    assert (
        run("train", "ab.safetensors", "-v", "speaker=2", "-o", "model.safetensors", "-q").exit_code
        == 0
    )
    assert load("model.safetensors").extractor == "net-1"
    refused = run("stats", "a.safetensors", "c.safetensors", "-o", "ac.safetensors", "-q")
    assert refused.exit_code == 1
    assert "'net-1'" in refused.output
    assert "'other-2'" in refused.output


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
    assert "mvplda: skipped bad: " in found.output
    assert "warning: noise contains no speech (1 of 2 recordings)" in found.output


def test_what_a_table_does_not_name_has_no_label(place):
    (place / "list.csv").write_text("file,speaker,phrase\none.wav,ann,yes\nother.wav,bob,\n")
    found = run("extract", "list.csv", "-x", "net.onnx", "-o", "v.scp", "-q")
    assert found.exit_code == 0, found.output
    assert (place / "utt2phrase").read_text() == "one-0 yes\n"


def test_quality_names_files_that_cannot_be_read(place):
    (place / "bad.wav").write_bytes(b"RIFFnothing")
    found = run("quality", "one.wav", "bad.wav")
    assert found.exit_code == 1
    assert "bad.wav is damaged" in found.output
    (told,) = run("quality", "one.wav", "--json").stdout.splitlines()
    assert json.loads(told)["file"] == "one.wav"


def test_check_tells_what_was_understood(place):
    network(place / "new.onnx", seed=2)
    found = run("extractor", "check", "new.onnx")
    assert found.exit_code == 0, found.output
    assert "name: wespeaker-" in found.output
    assert "golden vector: not in the recipe" in found.output


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
@pytest.mark.parametrize("extractors", [("net.onnx",), ("net.onnx", "second.onnx")])
def test_an_experiment_on_vectors_of_extractors(place, extractors):
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
        "network.hidden": 8,
        "network.layers": 2,
        "training.epochs": 1,
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
        *changes,
        *chosen,
    )
    assert done.exit_code == 0, done.output
    vectors = read_vectors("out/vectors.npz")
    assert len(vectors) == 96
    given = list(extractors)
    assert vectors.extractor == load_extractor(given).name
    assert vectors.X.shape[1] == load_extractor(given).dimension
    assert (place / "out" / "results.json").stat().st_size > 100


INTERRUPTED = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever starts the tests may ignore it
from mvplda.cli import main
from mvplda.voice.extractors import extractor

whole = extractor.ordered_map

def slow(*words, **options):
    for number, result in enumerate(whole(*words, **options)):
        # the last ones wait for the signal, however late it comes
        time.sleep(0.05 if number < 50 else 60)
        yield result

extractor.ordered_map = slow
if __name__ == "__main__":
    main(["extract", "many", "-x", "net.onnx", "-o", "made.npz", "--workers", "2"])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no group to signal")
def test_an_interrupt_ends_all_processes_and_keeps_what_is_done(place):
    """As from a terminal: every process of the group gets the signal."""
    for speaker in range(4):
        folder = place / "many" / f"s{speaker}"
        folder.mkdir(parents=True)
        for take in range(15):
            write(folder / f"{take}.wav", voice(0.6, 1 + speaker / 10, take))
    (place / "interrupted.py").write_text(INTERRUPTED)
    process = subprocess.Popen(
        [sys.executable, "interrupted.py"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path(mvplda.__file__).parents[1])},
    )
    kept = place / "made.npz.unfinished"
    _wait_until(lambda: _vectors_in(kept) > 4)
    os.killpg(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "Traceback" not in told
    _wait_until(lambda: not _alive(process.pid))
    assert not (place / "made.npz").exists()
    done = _vectors_in(kept)
    assert 5 <= done < 60

    # what is done is not made again, and nothing of the interruption is left in the result
    made = []
    with pytest.MonkeyPatch.context() as patch:
        utterance = Extractor.utterance

        def counted(*arguments, **options):
            made.append(arguments)
            return utterance(*arguments, **options)

        patch.setattr(Extractor, "utterance", counted)
        assert run("extract", "many", "-x", "net.onnx", "-o", "made.npz").exit_code == 0
    assert len(made) == 60 - done
    assert not kept.exists()
    assert run("extract", "many", "-x", "net.onnx", "-o", "whole.npz").exit_code == 0
    assert (place / "made.npz").read_bytes() == (place / "whole.npz").read_bytes()


def test_what_is_kept_is_of_the_same_extractor_and_files(place):
    run("extract", "one.wav", "-x", "net.onnx", "-o", "one.npz")
    extractor = load_extractor("net.onnx")
    other = load_extractor(network(place / "other.onnx", dimension=24, seed=5))
    first = extractor.extract(["one.wav"], unfinished="kept")
    again = extractor.extract(["one.wav", "again.wav"], unfinished="kept")
    assert np.array_equal(again.X[0], first.X[0])
    assert again.qualities[0] == first.qualities[0]
    assert np.array_equal(extractor.extract(["again.wav"], unfinished="kept").X[0], again.X[1])
    assert np.array_equal(
        other.extract(["one.wav"], unfinished="kept").X, other.extract(["one.wav"]).X
    )
    write(place / "one.wav", voice(2.0, 1.2))
    assert not np.array_equal(extractor.extract(["one.wav"], unfinished="kept").X, first.X)


def _vectors_in(kept):
    with closing(sqlite3.connect(kept)) as file, suppress(sqlite3.OperationalError):
        return file.execute("SELECT COUNT(*) FROM made").fetchone()[0]
    return 0


def _wait_until(true):
    for _ in range(600):
        if true():
            return
        time.sleep(0.1)
    pytest.fail("waited for a minute")


def _alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_extractors_by_name_are_listed(place, monkeypatch):
    monkeypatch.setenv("MVPLDA_CACHE", str(place / "empty"))
    lines = run("extractor", "list").output.splitlines()
    assert [line.split()[0] for line in lines] == ["campplus", "resnet", "words", "sounds"]
    assert lines[2].endswith("not fetched: mvplda extractor get words")
