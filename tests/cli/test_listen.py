"""mvplda listen and record: sound from a pipe, or from a microphone that is made up."""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from extractor_problems import RATE, network, voice, write

import mvplda
from mvplda import Bundle, CosineScorer
from mvplda.calibration.hypotheses import HypothesisCalibrator
from mvplda.cli import main
from mvplda.decisions import OperatingPoint
from mvplda.exceptions import AudioError, ParameterError
from mvplda.voice.audio.decode import read_sound
from mvplda.voice.audio.microphone import microphone_blocks, pcm_blocks, samples_of_pcm
from mvplda.voice.spoof_detector import load_spoof_detector
from mvplda.voice.stream import LONGEST_S, SpeechStream
from mvplda.voice.verification import VoiceModel

BLOCK = RATE // 10
ENDLESS_SILENCE = 60 * 10
"""Blocks after which a microphone that nobody stops would end a test."""


def pcm(samples: np.ndarray) -> bytes:
    return np.round(32767 * np.clip(samples, -1, 1)).astype("<i2").tobytes()


OWNER = voice(3.0, 1.0, 0)
AGAIN, OTHER = voice(3.0, 1.06, 1), voice(3.0, 1.35, 2)
QUIET = 1e-4 * np.random.default_rng(0).normal(size=3 * RATE).astype(np.float32)


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A network, a calibrated cosine of its vectors, and a recording of the owner."""
    monkeypatch.chdir(tmp_path)
    load_extractor: Any = mvplda.load_extractor
    extractor = load_extractor(network(tmp_path / "net.onnx", dimension=24))
    unit = [v / np.linalg.norm(v) for v in (extractor(x, RATE) for x in (OWNER, AGAIN, OTHER))]
    same, different = float(unit[0] @ unit[1]), float(unit[0] @ unit[2])
    assert same > different
    slope = 12 / (same - different)
    calibrator = HypothesisCalibrator()
    calibrator.weights_ = {"speaker": slope}
    calibrator.constants_ = {"speaker": -slope * (same + different) / 2, "nothing": 0.0}
    calibrator.outlier_probability_ = 2 / (1 + np.exp(20.0))
    calibrator.n_speakers_ = 2
    scorer = CosineScorer(centre=False, views=["speaker"]).fit(np.zeros((1, 24)))
    points = {"speaker": [OperatingPoint(0.5, far=0.01), OperatingPoint(2.0, far=0.001)]}
    Bundle(None, scorer, extractor.name, {"speaker": calibrator}, points).save("cosine")
    write(tmp_path / "owner.wav", OWNER)
    return VoiceModel.load("cosine", ["net.onnx"])


def stream_of(model: VoiceModel, **options: float) -> SpeechStream:
    return SpeechStream(model, model.side("owner.wav"), RATE, **options)


def run(*words: str, sound: np.ndarray | None = None) -> Any:
    options = ("--model", "cosine", "-x", "net.onnx") if words[0] != "record" else ()
    data = None if sound is None else pcm(sound)
    return CliRunner().invoke(main, [*words, *options], input=data)


def test_the_last_decision_is_that_of_the_whole_recording(model):
    stream = stream_of(model)
    for start in range(0, len(AGAIN), BLOCK):
        stream.add(samples_of_pcm(pcm(AGAIN[start : start + BLOCK])))
    write("again.wav", samples_of_pcm(pcm(AGAIN)), subtype="PCM_16")
    assert stream.finish().decision == model.verify("owner.wav", "again.wav")


def test_a_decision_follows_every_half_second_of_speech_and_two_that_agree_decide(model):
    updates = []
    stream = stream_of(model)
    for start in range(0, len(OTHER), BLOCK):
        update = stream.add(OTHER[start : start + BLOCK])
        updates += [update] if update else []
    speech = [update.speech_s for update in updates]
    assert len(updates) >= 3
    assert speech[0] >= 0.5
    assert all(np.diff(speech) >= 0.5)
    assert [update.is_decided for update in updates] == [False] + (len(updates) - 1) * [True]
    assert {update.decision.answer for update in updates} == {"reject"}
    beginning = model.extractor(OTHER[: round(updates[1].seconds * RATE)], RATE)
    expected = model.bundle.answer(model.side("owner.wav").X, beginning[None]).llr[0, 0]
    assert updates[1].decision.llr == pytest.approx(expected)


def test_the_detector_of_a_model_decides_about_streams_too(model):
    with_detector = replace(model, detector=load_spoof_detector())
    enrolled = with_detector.side("owner.wav")
    stream = SpeechStream(with_detector, enrolled, RATE)
    updates = [stream.add(AGAIN[i : i + BLOCK]) for i in range(0, len(AGAIN), BLOCK)]
    assert any(updates)
    write("again.wav", AGAIN, subtype="FLOAT")
    decision = stream.finish().decision
    assert decision == with_detector.verify(enrolled, "again.wav")
    assert "spoof" in decision.probabilities


def test_a_short_step_gives_more_decisions(model):
    sound = [AGAIN[start : start + BLOCK] for start in range(0, len(AGAIN), BLOCK)]
    count = {}
    for step_s in (0.25, 1.0):
        stream = stream_of(model, step_s=step_s)
        count[step_s] = sum(stream.add(block) is not None for block in sound)
    assert count[0.25] > count[1.0] > 0
    with pytest.raises(ParameterError, match="must be positive; got"):
        stream_of(model, step_s=0.0)


def test_a_pause_ends_a_stream_but_silence_before_it_does_not(model):
    stream = stream_of(model)
    stream.add(QUIET)
    assert not stream.has_ended
    stream.add(AGAIN)
    assert not stream.has_ended
    stream.add(QUIET)
    assert stream.has_ended


def test_a_stream_has_limits(model):
    stream = stream_of(model)
    with pytest.raises(AudioError, match="the stream is empty"):
        stream.finish()
    with pytest.raises(AudioError, match="longer than 30 s"):
        stream.add(np.zeros(round((LONGEST_S + 1) * RATE), np.float32))


def test_a_copy_is_rejected_at_the_end(model):
    stream = stream_of(model)
    samples, _ = read_sound("owner.wav")
    stream.add(samples)
    assert stream.finish().decision.reason == "suspected_replay"


def test_the_exit_code_of_listen_is_the_decision(model):
    accepted = run("listen", "owner.wav", "--pipe", sound=AGAIN)
    assert accepted.exit_code == 0, accepted.output
    assert accepted.stdout.startswith("Accepted: same speaker")
    assert "s of speech: speaker LLR +" in accepted.stderr
    rejected = run("listen", "owner.wav", "--pipe", "--json", sound=OTHER)
    assert rejected.exit_code == 1
    report = json.loads(rejected.stdout)
    assert report["reason"] == "wrong_speaker"
    assert report["seconds"] < 3.0
    whole = run("listen", "owner.wav", "--pipe", "--json", "--whole", sound=OTHER)
    assert json.loads(whole.stdout)["seconds"] == pytest.approx(3.0)
    assert run("listen", "owner.wav", "--pipe", sound=0 * QUIET).exit_code == 3
    assert run("listen", "owner.wav", "--profile", "ann").exit_code == 3
    assert run("listen", "owner.wav", "--phrase", "hello").exit_code == 3


def test_listen_compares_with_a_profile(model):
    added = run("profiles", "add", "p.npz", "ann", "owner.wav")
    assert added.exit_code == 0, added.output
    words = ("listen", "--pipe", "--profiles", "p.npz", "--profile", "ann")
    assert run(*words, sound=AGAIN).exit_code == 0
    assert run(*words, sound=OTHER).exit_code == 1


def test_blocks_of_a_pipe_hold_whole_samples():
    class Pipe:
        """A pipe that returns 3 bytes at a time."""

        def __init__(self, data: bytes) -> None:
            self.data = data

        def read(self, size: int) -> bytes:
            first, self.data = self.data[:3], self.data[3:]
            return first

    data = bytes(range(17))
    pipe: Any = Pipe(data)
    blocks = list(pcm_blocks(pipe, RATE))
    assert all(len(block) % 2 == 0 for block in blocks)
    assert b"".join(blocks) == data[:16]


def test_record_writes_a_file_and_shows_the_level(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sound = np.concatenate([0.002 * AGAIN[:RATE], 5.0 * AGAIN[RATE:]])
    done = run("record", "new.wav", "--pipe", "--seconds", "2.5", sound=sound)
    assert done.exit_code == 0, done.output
    assert "new.wav: 2.5 s" in done.stdout
    assert "clipped" in done.stdout
    meters = done.stderr.split("\r")
    assert len({len(line.strip("\n")) for line in meters if line}) == 1
    assert any("too loud" in line for line in meters)
    assert any("quiet" in line for line in meters)
    samples, rate = read_sound("new.wav")
    assert rate == RATE
    assert np.array_equal(samples, samples_of_pcm(pcm(sound[: len(samples)])))
    assert len(samples) == 2.5 * RATE
    empty = run("record", "none.wav", "--pipe", sound=0 * QUIET)
    assert empty.exit_code == 1
    assert "nothing was recorded" in empty.output
    assert not (tmp_path / "none.wav").exists()


def made_up_library(sound: np.ndarray, problem: str = "") -> Any:
    """A sounddevice whose microphone hears a sound, then silence."""

    class PortAudioError(Exception):
        pass

    class RawInputStream:
        def __init__(self, **options: Any) -> None:
            if problem:
                raise PortAudioError(problem)
            assert (options["dtype"], options["channels"]) == ("int16", 1)
            self.options = options
            self.stop = threading.Event()

        def __enter__(self) -> None:
            self.thread = threading.Thread(target=self.play)
            self.thread.start()

        def __exit__(self, *_: object) -> None:
            self.stop.set()
            self.thread.join()

        def play(self) -> None:
            size = self.options["blocksize"]
            silence = np.zeros(ENDLESS_SILENCE * size)
            data = pcm(np.concatenate([sound, silence]))
            for start in range(0, len(data), 2 * size):
                if self.stop.is_set():
                    return
                self.options["callback"](data[start : start + 2 * size], size, None, None)

    return SimpleNamespace(RawInputStream=RawInputStream, PortAudioError=PortAudioError)


def test_listen_and_record_hear_a_microphone(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "sounddevice", made_up_library(AGAIN))
    heard = run("listen", "owner.wav")
    assert heard.exit_code == 0, heard.output
    assert "Speak now" in heard.stderr
    recorded = run("record", "mine.wav", "--seconds", "1.5")
    assert recorded.exit_code == 0, recorded.output
    samples, _ = read_sound("mine.wav")
    assert np.array_equal(samples, samples_of_pcm(pcm(AGAIN))[: len(samples)])


def test_a_microphone_that_cannot_be_used_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "sounddevice", made_up_library(AGAIN, "no device"))
    recorded = run("record", "mine.wav", "--seconds", "1.5")
    assert recorded.exit_code == 1
    assert "no device" in recorded.stderr
    assert "Speak now" not in recorded.stderr
    with pytest.raises(AudioError, match=r"cannot be opened: no device.*--pipe"):
        next(microphone_blocks(RATE))

    def without_portaudio(module: str) -> None:
        raise OSError("PortAudio library not found")

    monkeypatch.setattr("mvplda.voice.audio.microphone.need", without_portaudio)
    with pytest.raises(AudioError, match="libportaudio2"):
        next(microphone_blocks(RATE))
