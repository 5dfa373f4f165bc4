"""``mvplda reproduce`` from recordings to the paper's Table 1 on miniature corpora, and resumption of a run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from mvplda.cli import main
from mvplda.io.vectors import read_vectors
from mvplda.voice.extractors import load_extractor

pytestmark = pytest.mark.slow
for module in ("torch", "onnx", "onnxscript", "onnxruntime", "kaldi_native_fbank"):
    pytest.importorskip(module)
soundfile = pytest.importorskip("soundfile")

RATE = 16000
SMALL = [
    "-s", "network.hidden=16", "-s", "network.layers=2", "-s", "training.epochs=2",
    "-s", "network.pretraining.gaussian_epochs=1", "-s", "network.pretraining.epochs=1",
    "-s", "backend.paper_rank=4", "-s", "evaluation.resamples=5", "-q",
]  # fmt: skip
SPEAKERS, PHRASES = 12, 2


def write_recording(path, speaker, phrase, repetition):
    """Write a synthetic recording whose pitch depends on the speaker and whose modulation depends on the phrase."""
    rng = np.random.default_rng([speaker, phrase, repetition])
    time = np.arange(int(0.35 * RATE)) / RATE
    pitch = 100 + 25 * speaker + rng.normal(0, 2)
    wave = sum(np.sin(2 * np.pi * pitch * k * time) / k for k in range(1, 6))
    wave = wave * (1 + np.sin(2 * np.pi * (3 + 4 * phrase) * time)) + 0.1 * rng.normal(
        size=len(time)
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, (0.1 * wave).astype(np.float32), RATE)


def rsr2015(root):
    for gender, first in {"male": 97, "female": 91}.items():
        people = [f"{gender[0]}{first + k:03d}" for k in range(SPEAKERS)]
        files = {}
        for number, name in enumerate(people):
            for phrase in range(1, PHRASES + 1):
                for session in (1, 2, 4, 5, 7):
                    file = f"{gender}/{name}/{name}_{session:02d}_{phrase:03d}"
                    write_recording(root / "wav" / f"{file}.wav", number, phrase, session)
                    files[name, phrase, session] = f"{file}.sph"
        tested = [name for name in people if int(name[1:]) >= {"male": 101, "female": 95}[gender]]
        enrolments, trials = [], []
        for name in tested:
            for phrase in range(1, PHRASES + 1):
                model = f"{name}_{phrase:03d}"
                enrolled = [files[name, phrase, session] for session in (1, 4, 7)]
                enrolments.append(",".join([model, *enrolled]))
                for (test_name, test_phrase, session), file in files.items():
                    if test_name in tested and session in (2, 5):
                        kind = 2 * (test_name != name) + (test_phrase != phrase)
                        marks = ["Y" if k == kind else "N" for k in range(4)]
                        trials.append(",".join([model, file, *marks]))
        # the published names: the list of enrolments has no hyphen
        lists = {"trn/3sesspwd_eval": enrolments, "ndx/3sess-pwd_eval": trials}
        for name, lines in lists.items():
            path = root / f"key/part1/{name}_{gender[0]}.{name[:3]}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(lines) + "\n")


def by_name(pattern, repetitions):
    """Return a function that writes recordings under a pattern of speaker, phrase and repetition."""

    def write(root):
        for number in range(SPEAKERS):
            for phrase in range(PHRASES):
                for k, repetition in enumerate(repetitions):
                    speaker = f"{number + 1:02d}"
                    name = pattern.format(speaker=speaker, phrase=phrase, repetition=repetition)
                    write_recording(root / name, number, phrase, k)

    return write


SESSIONS = [f"{session}_{k}" for session in ("2014-11", "angles") for k in range(3)]
CORPORA = {
    "rsr2015": rsr2015,
    "audiomnist": by_name("data/{speaker}/{phrase}_{speaker}_{repetition}.wav", range(5)),
    "cvau": by_name("{speaker}/p{phrase}/{repetition}.wav", SESSIONS),
    "huiting": by_name("{speaker}/p{phrase}/{repetition}.wav", range(5)),
    "speech-commands": by_name("{speaker}/w{phrase}/{repetition}.wav", range(3)),
}


@pytest.mark.parametrize("name", CORPORA)
def test_from_recordings_to_the_papers_table(tmp_path, name):
    CORPORA[name](tmp_path / "corpus")
    output = tmp_path / "out"
    command = ["reproduce", name, str(tmp_path / "corpus"), "-o", str(output), *SMALL]
    done = CliRunner().invoke(main, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    table = (output / "table.txt").read_text()
    figures = {"2.37", "3.91"} if name == "huiting" else {"3.23", "6.50"}
    # published figures are shown next to corpora of phrases, not of single words
    assert (figures <= set(table.split())) == (name != "speech-commands")
    assert ("Enrolments of female speakers" in table) == (name == "rsr2015")
    results = json.loads((output / "results.json").read_text())
    assert list(results["systems"]) == [
        "cosine-plain", "plda-cell-raw", "jplda-printed-raw", "jplda-exact-raw", "jplda-interaction", "best",
    ]  # fmt: skip
    assert results["configuration"]["network"]["pretrained"]
    # the same command starts from the vectors and yields the same table
    again = CliRunner().invoke(main, command, catch_exceptions=False)
    assert "vectors of an earlier run" in again.output
    repeated = json.loads((output / "results.json").read_text())
    for system, values in results["systems"].items():
        assert repeated["systems"][system]["kinds"] == values["kinds"]


KILLED = """
import os, signal, sys
from mvplda.cli import main
from mvplda.paper import corpus_vectors, network_training
{module}.{function} = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
main(sys.argv[1:])
"""
STEPS = {
    "the extractor": "corpus_vectors.write_vectors",
    "the vectors": "corpus_vectors.VectorsRecord.write",
}
"""Functions that are called next, after a file was written."""


@pytest.mark.parametrize("written", STEPS)
def test_a_killed_run_never_leaves_vectors_of_other_settings(tmp_path, written):
    CORPORA["huiting"](tmp_path / "corpus")
    output = tmp_path / "out"
    command = ["reproduce", "huiting", str(tmp_path / "corpus"), "-o", str(output), *SMALL]
    other = [*command, "-s", "network.hidden=12"]
    assert CliRunner().invoke(main, command, catch_exceptions=False).exit_code == 0
    vectors = read_vectors(output / "vectors.npz")
    assert vectors.X.shape[1] == 16

    module, _, function = STEPS[written].partition(".")
    code = KILLED.format(module=module, function=function)
    killed = subprocess.run([sys.executable, "-c", code, *other], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr

    # neither the other settings nor the first ones have complete vectors now
    runs = [(other, 12), (command, 16)]
    if written == "the vectors":
        (output / "network.checkpoint").unlink()
        runs = [(command, 16)]
    for arguments, width in runs:
        done = CliRunner().invoke(main, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert "vectors of an earlier run" not in done.output
        written_vectors = read_vectors(output / "vectors.npz")
        assert written_vectors.X.shape[1] == width
        assert written_vectors.extractor == load_extractor(output / "extractor.onnx").name
    np.testing.assert_array_equal(written_vectors.X, vectors.X)


def test_vectors_are_used_again_for_other_systems_but_not_for_other_recordings(tmp_path):
    CORPORA["huiting"](tmp_path / "corpus")
    output = tmp_path / "out"
    command = ["reproduce", "huiting", str(tmp_path / "corpus"), "-o", str(output), *SMALL]
    for arguments, is_earlier in (
        (command, False),
        ([*command, "-s", "backend.paper_rank=3"], True),
    ):
        done = CliRunner().invoke(main, arguments, catch_exceptions=False)
        assert ("vectors of an earlier run" in done.output) == is_earlier
    write_recording(tmp_path / "corpus/01/p0/0.wav", 7, 1, 9)
    changed = CliRunner().invoke(main, command, catch_exceptions=False)
    assert "vectors of an earlier run" not in changed.output


def test_an_experiment_resumes_from_its_last_epoch(tmp_path, monkeypatch):
    from mvplda.paper import network_training as training

    CORPORA["huiting"](tmp_path / "corpus")
    output = tmp_path / "out"
    command = ["reproduce", "huiting", str(tmp_path / "corpus"), "-o", str(output), *SMALL]
    epoch = training.TrainingState.epoch
    epochs = []

    def stopped(run):
        if epochs == [0]:
            raise KeyboardInterrupt
        epochs.append(len(run.history))
        epoch(run)

    with monkeypatch.context() as patch:
        patch.setattr(training.TrainingState, "epoch", stopped)
        assert CliRunner().invoke(main, command).exit_code != 0
        assert (output / "network.checkpoint").is_file()
        epochs[:] = [-1]
        assert CliRunner().invoke(main, command).exit_code == 0
    assert epochs == [-1, 1]  # the second epoch alone
    assert not (output / "network.checkpoint").exists()
