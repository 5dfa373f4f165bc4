"""Frames of utterances."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("kaldi_native_fbank")
soundfile = pytest.importorskip("soundfile")

from mvplda.exceptions import AudioError  # noqa: E402
from mvplda.paper import frames as frames_module  # noqa: E402
from mvplda.paper.frames import extract_features, frames_of  # noqa: E402
from mvplda.voice.audio.decode import FileSegment, read_audio  # noqa: E402
from mvplda.voice.extractors.recipe import Features, Recipe, Samples  # noqa: E402

RECIPE = Recipe(
    "test",
    samples=Samples(scale=32768.0, level="peak", level_value=1.0),
    features=Features(bins=20),
)
PAPER = Features(kind="mfcc", bins=23, normalisation="mean+variance")


def tone(seconds=0.5, hz=300.0, seed=0):
    rng = np.random.default_rng(seed)
    time = np.arange(int(16000 * seconds)) / 16000
    return 0.3 * np.sin(2 * np.pi * hz * time) + 0.01 * rng.standard_normal(len(time))


def test_the_papers_frames_are_39_cepstra_of_mean_0_and_variance_1():
    frames = frames_of(tone(), Recipe("paper", features=PAPER))
    assert frames.shape == (48, 39)
    np.testing.assert_allclose(frames.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(frames.std(axis=0), 1, atol=0.05)


def test_deltas_are_the_regression_over_time():
    from mvplda.voice.extractors.front_end import with_deltas

    static = np.random.default_rng(0).normal(size=(9, 2)).astype(np.float32)
    with_slopes = with_deltas(static, 1)
    padded = np.pad(static, ((2, 2), (0, 0)), mode="edge")
    slope = sum(k * padded[2 + k : 11 + k] for k in range(-2, 3)) / 10
    np.testing.assert_allclose(with_slopes, np.hstack([static, slope]), atol=1e-5)


def test_the_level_of_a_recording_does_not_matter():
    np.testing.assert_allclose(
        frames_of(tone(), RECIPE), frames_of(0.01 * tone(), RECIPE), atol=1e-3
    )


def test_a_recording_that_is_too_short_is_refused():
    with pytest.raises(AudioError, match="too short"):
        frames_of(tone(0.05), RECIPE)


def test_unusable_files_are_listed_or_raise(tmp_path):
    soundfile.write(tmp_path / "a.wav", tone(), 16000)
    (tmp_path / "b.wav").write_bytes(b"no sound")
    soundfile.write(tmp_path / "c.wav", tone(hz=500), 16000)
    clips = [FileSegment(tmp_path / f"{name}.wav") for name in "abc"]
    extracted = extract_features(list("abc"), clips, RECIPE)
    assert len(extracted.features) == 2
    assert extracted.rows.tolist() == [0, 2]
    assert [name for name, _ in extracted.skipped] == ["b"]
    assert "b.wav" in extracted.skipped[0][1]
    with pytest.raises(AudioError, match="none of 1"):
        extract_features(["b"], clips[1:2], RECIPE)


KILLED = """
import os, signal, sys
from pathlib import Path
from mvplda.paper import frames
from mvplda.voice.audio.decode import FileSegment
from mvplda.voice.extractors.recipe import Features, Recipe, Samples
read_audio = frames.read_audio
def killed(clip, rate):
    if clip.path.name == "6.wav":
        os.kill(os.getpid(), signal.SIGKILL)
    return read_audio(clip, rate)
frames.read_audio = killed
clips = [FileSegment(Path(sys.argv[1]) / f"{k}.wav") for k in range(9)]
recipe = Recipe("test", samples=Samples(scale=32768.0, level="peak", level_value=1.0), features=Features(bins=20))
frames.extract_features(list("abcdefghi"), clips, recipe, folder=Path(sys.argv[2]))
"""


def test_a_killed_extraction_continues_with_missing_files(tmp_path, monkeypatch):
    for k in range(9):
        soundfile.write(tmp_path / f"{k}.wav", tone(hz=200 + 50 * k), 16000)
    clips = [FileSegment(tmp_path / f"{k}.wav") for k in range(9)]
    code = [sys.executable, "-c", KILLED, str(tmp_path), str(tmp_path / "frames")]
    killed = subprocess.run(code, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr

    extracted: list[str] = []

    def counted(clip, rate):
        extracted.append(clip.path.stem)
        return read_audio(clip, rate)

    monkeypatch.setattr(frames_module, "read_audio", counted)
    names = list("abcdefghi")
    resumed = extract_features(names, clips, RECIPE, folder=tmp_path / "frames")
    assert extracted == ["6", "7", "8"]
    whole = extract_features(names, clips, RECIPE)
    np.testing.assert_array_equal(resumed.features.frames, whole.features.frames)
    # nothing is extracted if everything is there, and everything with another recipe
    del extracted[:]
    extract_features(names, clips, RECIPE, folder=tmp_path / "frames")
    assert not extracted
    extract_features(names, clips, replace(RECIPE, rate=8000), folder=tmp_path / "frames")
    assert len(extracted) == 9


@pytest.mark.slow
def test_workers_do_not_change_frames(tmp_path, monkeypatch):
    for k in range(4):
        soundfile.write(tmp_path / f"{k}.wav", tone(hz=200 + 50 * k), 16000)
    clips = [FileSegment(tmp_path / f"{k % 4}.wav") for k in range(401)]
    sets = []
    for min_parallel in (1, 1000):  # in several processes, and in this one
        monkeypatch.setattr(frames_module, "MIN_PARALLEL", min_parallel)
        sets.append(extract_features(np.arange(401).astype(str), clips, RECIPE).features)
    np.testing.assert_array_equal(sets[0].frames, sets[1].frames)
