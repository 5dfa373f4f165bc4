"""The detector of replays and resynthesis in the service: off by default, centred on the enrolments of a profile."""

from __future__ import annotations

from dataclasses import replace

import pytest
from service_problems import decide, make_bench, sqlite_store

pytest.importorskip("onnxruntime")
from mvplda.serve.recordings import ProcessedRecording, process_recording
from mvplda.serve.schemas import VerifyRequest
from mvplda.serve.settings import Settings
from mvplda.serve.store import SERVICE
from mvplda.voice.extractors import load_extractor
from mvplda.voice.spoof_detector import load_spoof_detector


def enrol(bench, *scores):
    """Enrol a person with recordings of these scores, and return the profile and a test."""
    name = bench.calls.create("open the door")
    *enrolments, test = bench.world.say(40, 0, len(scores) + 1)
    for vector, score in zip(enrolments, scores, strict=True):
        recording = ProcessedRecording(vector.astype("f4"), speech_s=2.0, spoof_score=score)
        bench.service.change(SERVICE, bench.service.profiles.enrol, name, recording, None)
    return name, ProcessedRecording(test.astype("f4"), speech_s=2.0)


def test_the_llr_is_centred_on_the_enrolments(tmp_path):
    with make_bench(sqlite_store(tmp_path), Settings(detector=True)) as bench:
        name, test = enrol(bench, 1.0, 2.0, 3.0)
        reply = decide(bench.service, name, replace(test, spoof_score=1.5), VerifyRequest())
        expected = load_spoof_detector().llr(1.5, [1.0, 2.0, 3.0])
        assert reply["countermeasureLlr"] == pytest.approx(expected)
        assert "spoof" in reply["posteriors"]
        spoof = replace(test, spoof_score=-1e3)
        rejected = decide(bench.service, name, spoof, VerifyRequest())
        assert (rejected["decision"], rejected["reason"]) == ("reject", "suspected_replay")


def test_the_llr_of_the_caller_comes_first(tmp_path):
    with make_bench(sqlite_store(tmp_path), Settings(detector=True)) as bench:
        name, test = enrol(bench, 1.0, 2.0, 3.0)
        request = VerifyRequest(countermeasureLlr=9.0)
        reply = decide(bench.service, name, replace(test, spoof_score=-1e3), request)
        assert (reply["decision"], reply["countermeasureLlr"]) == ("accept", 9.0)


def test_profiles_from_before_the_detector_are_decided_without_it(tmp_path):
    with make_bench(sqlite_store(tmp_path), Settings(detector=True)) as bench:
        name, test = enrol(bench, None, None, None)
        reply = decide(bench.service, name, replace(test, spoof_score=-1e3), VerifyRequest())
        assert (reply["decision"], reply["countermeasureLlr"]) == ("accept", None)


def test_recordings_have_a_score_only_with_the_detector():
    pytest.importorskip("soundfile")
    from test_serve_audio import MODEL_FOLDER, _recording

    extractor = load_extractor(MODEL_FOLDER / "small.onnx")
    data = _recording(0.5, 0.5)
    assert process_recording(extractor, data, Settings()).spoof_score is None
    detector = load_spoof_detector()
    found = process_recording(extractor, data, Settings(), detector=detector)
    assert found.spoof_score is not None
    assert not Settings().detector
