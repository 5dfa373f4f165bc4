"""The detector of replays and resynthesis: its file, its score, and its LLR in a decision."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
from domain_problems import make_place
from spoken import say
from test_verification import Named, paired_bundle, side

from mvplda import Question
from mvplda.exceptions import DataError, FileFormatError, ParameterError
from mvplda.serve.model_loading import MODEL_FOLDER
from mvplda.voice.spoof_detector import (
    BINS,
    LEAST_FRAMES,
    MAX_LLR,
    SPOOF_PRIOR,
    SpoofCalibration,
    SpoofDetector,
    load_spoof_detector,
    spoof_channels,
    spoof_statistics,
)
from mvplda.voice.verification import VoiceModel


def test_the_shipped_file_scores_deterministically():
    detector = load_spoof_detector()
    score = detector.raw_score(say(1))
    assert np.isfinite(score)
    assert detector.raw_score(say(1)) == score != detector.raw_score(say(2))
    assert detector.raw_score_of(say(1), 16000) == score
    # the level of a recording depends on the microphone
    assert detector.raw_score(0.25 * say(1)) == pytest.approx(score, abs=0.1)


def test_the_llr_rises_with_the_test_and_falls_with_the_enrolments():
    detector = load_spoof_detector()
    llr = detector.llr(1.0, [0.5, 1.5])
    assert detector.llr(2.0, [0.5, 1.5]) > llr > detector.llr(1.0, [1.5, 2.5])
    assert SpoofCalibration(1e9, 0.0, 0.0).llr([1.0, -1.0], 0.0).tolist() == [MAX_LLR, -MAX_LLR]


def test_errors_name_what_is_missing():
    detector = load_spoof_detector()
    with pytest.raises(DataError, match="silence"):
        detector.raw_score(np.zeros(16000, np.float32))
    with pytest.raises(DataError, match="enrol"):
        detector.llr(0.0, [])
    with pytest.raises(FileFormatError, match="no calibration"):
        SpoofDetector(MODEL_FOLDER / "small.onnx")


@pytest.mark.parametrize("seconds", [0.05, 0.3, 1.0, 30.0])
def test_statistics_have_one_size_and_are_finite(seconds):
    sound = np.resize(say(3), int(16000 * seconds))
    assert spoof_statistics(sound).shape == spoof_statistics(say(4)).shape
    assert np.isfinite(spoof_statistics(sound)).all()
    channels = spoof_channels(sound)
    assert channels.shape[0] == 4
    assert channels.shape[1] >= LEAST_FRAMES
    assert channels.shape[2] == BINS
    assert np.abs(channels[1:]).max() <= 1 + 1e-5


def test_phases_of_a_steady_tone_change_steadily():
    time = np.arange(16000) / 16000
    tone = np.sin(2 * np.pi * 1000 * time).astype(np.float32)
    noise = np.random.default_rng(0).standard_normal(16000).astype(np.float32)
    near = slice(28, 34)
    over_time = {
        name: spoof_channels(x)[1][5:-5, near].mean() for name, x in (("t", tone), ("n", noise))
    }
    assert over_time["t"] > 0.99
    assert over_time["n"] < 0.8


def sides_of_one_person(enrolment_scores, test_scores):
    """Return a model with a detector whose LLR is a difference of raw scores, and the sides of a match."""
    place = make_place(21, size=0.2)
    detector = SimpleNamespace(llr=lambda test, enrolments: test - float(np.mean(enrolments)))
    voices = VoiceModel(paired_bundle(), Named(), detector)
    X = place.say(0, 0, 2)
    enrolled = replace(side(X[:1]), spoof_scores=enrolment_scores)
    return voices, enrolled, replace(side(X[1:]), spoof_scores=test_scores)


def test_the_llr_of_the_detector_enters_the_decision():
    voices, enrolled, tested = sides_of_one_person([1.0], [3.0])
    decision = voices.verify(enrolled, tested)
    asked = Question(countermeasure=2.0, spoof_prior=SPOOF_PRIOR)
    expected = VoiceModel(voices.bundle, voices.extractor).verify(enrolled, tested, asked)
    assert decision.llr == expected.llr
    assert "spoof" in decision.probabilities
    suspicious = replace(tested, spoof_scores=[-30.0])
    rejected = voices.verify(enrolled, suspicious)
    assert (rejected.answer, rejected.reason) == ("reject", "suspected_replay")
    # a countermeasure of the caller takes precedence
    assert voices.verify(enrolled, suspicious, asked).llr == expected.llr


def test_one_spoof_among_several_recordings_suffices():
    voices, enrolled, tested = sides_of_one_person([0.0, 2.0], [4.0, -4.0])
    assert voices.bona_fide_llr(enrolled, tested) == -5.0


def test_vectors_have_no_score():
    voices, enrolled, tested = sides_of_one_person([], [1.0])
    with pytest.raises(DataError, match="consists of vectors"):
        voices.verify(enrolled, tested)
    with pytest.raises(ParameterError, match="no detector"):
        VoiceModel(voices.bundle, voices.extractor).bona_fide_llr(enrolled, tested)
