"""Challenges of prompted words: the text is checked by a recogniser, the voice by the model."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from service_problems import decide, make_bench, make_model, sqlite_store
from spoken import say

from mvplda.model_files import load_model
from mvplda.serve.keys import Caller
from mvplda.serve.model import Model
from mvplda.serve.model_loading import MODEL_FOLDER
from mvplda.serve.policies import visible_decision
from mvplda.serve.recordings import ProcessedRecording
from mvplda.serve.schemas import Problem, VerifyReply, VerifyRequest
from mvplda.serve.settings import Settings
from mvplda.voice.fingerprint import RATE
from mvplda.voice.prompts import DIGITS, VOCABULARY, renderings


class Listener:
    """Recogniser that hears these words in every recording."""

    def __init__(self) -> None:
        self.heard: tuple[str, ...] = ()
        self.samples = 0

    def log_probabilities(self, sound, texts):
        self.samples = len(sound.samples)
        said = renderings(self.heard)[0] if self.heard else ""
        return np.array([-0.5 if text == said else -40.0 for text in texts])


@pytest.fixture
def bench(tmp_path):
    model = make_model()
    model.text_model = Listener()
    with make_bench(sqlite_store(tmp_path), model=model) as found:
        yield found


def ask(bench, name: str, kind: str = "words"):
    return bench.calls("POST", "/v1/challenges", json={"profileId": name, "kind": kind})


def heard(bench, speaker: int, words: tuple[str, ...], log_probability: float | None = -0.5):
    """Return a recording of a speaker in whom a recogniser has looked for words."""
    vector = bench.world.say(speaker, 0)[0].astype(np.float32)
    return ProcessedRecording(
        vector,
        digest=str(vector[0]),
        speech_s=2.0,
        prompt=words,
        prompt_log_probability=log_probability,
    )


def test_words_are_accepted_by_text_and_voice(bench):
    name = bench.person(40)
    made = ask(bench, name).json()
    words = tuple(made["phrases"][0].split())
    assert made["kind"] == "words"
    assert len(set(words)) == 4
    assert set(words) <= set(VOCABULARY["words"])
    claim = VerifyRequest(challengeId=made["challengeId"])
    reply = decide(bench.service, name, heard(bench, 40, words), claim)
    assert (reply["decision"], reply["voice"], reply["phrase"]) == ("accept", "accept", "accept")
    assert reply["promptLogProbability"] == -0.5
    assert reply["llrPhrase"] is None
    with pytest.raises(Problem, match="no challenge with this challengeId"):
        decide(bench.service, name, heard(bench, 40, words), claim)


@pytest.mark.parametrize(
    ("speaker", "log_probability", "reason"),
    [(40, -20.0, "wrong_phrase"), (50, -0.5, "wrong_speaker"), (50, -20.0, "both")],
)
def test_other_words_and_other_voices_are_rejected(bench, speaker, log_probability, reason):
    name = bench.person(40)
    made = ask(bench, name, "digits").json()
    words = tuple(made["phrases"][0].split())
    assert set(words) <= set(DIGITS)
    claim = VerifyRequest(challengeId=made["challengeId"])
    reply = decide(bench.service, name, heard(bench, speaker, words, log_probability), claim)
    assert (reply["decision"], reply["reason"]) == ("reject", reason)
    # a rejection uses up the challenge: the next one has other words
    assert ask(bench, name).json()["challengeId"] != made["challengeId"]


def test_words_stay_the_same_until_they_are_answered(bench):
    name = bench.person(40)
    first = ask(bench, name).json()
    assert [ask(bench, name, kind).json() for kind in ("words", "digits", "phrase")] == [first] * 3
    claim = VerifyRequest(challengeId=first["challengeId"])
    silence = ProcessedRecording(None, None, "not_enough_speech")
    assert decide(bench.service, name, silence, claim)["decision"] == "inconclusive"
    assert ask(bench, name).json() == first


def test_a_recording_in_which_nobody_looked_for_the_words_is_refused(bench):
    name = bench.person(40)
    made = ask(bench, name).json()
    words = tuple(made["phrases"][0].split())
    claim = VerifyRequest(challengeId=made["challengeId"])
    vector = bench.calls.verify(name, bench.world.say(40, 5)[0], challengeId=made["challengeId"])
    assert (vector.status_code, vector.json()["type"]) == (422, "urn:mvplda:prompt")
    for recording in (heard(bench, 40, ("one",)), heard(bench, 40, words, None)):
        with pytest.raises(Problem) as refusal:
            decide(bench.service, name, recording, claim)
        assert refusal.value.kind == "challenge-used"
    assert decide(bench.service, name, heard(bench, 40, words), claim)["decision"] == "accept"


def test_an_accepted_prompt_leaves_the_last_phrase_alone(bench):
    name = bench.person(40)
    for vector in bench.world.say(40, 1, 3):
        bench.calls.enrol(name, vector, fields={"phrase": "close the door"})
    made = ask(bench, name).json()
    words = tuple(made["phrases"][0].split())
    claim = VerifyRequest(challengeId=made["challengeId"])
    assert decide(bench.service, name, heard(bench, 40, words), claim)["decision"] == "accept"
    assert ask(bench, name, "phrase").json()["kind"] == "phrase"


def test_without_a_decoder_there_are_no_words(tmp_path):
    with make_bench(sqlite_store(tmp_path)) as bench:
        name = bench.person(40)
        assert bench.calls("GET", "/v1/model").json()["challengeKinds"] == ["phrase"]
        refused = ask(bench, name)
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:mvplda:no-decoder")
        assert "extractor get sounds --decoder" in refused.json()["detail"]
        bad = ask(bench, name, "song")
        assert bad.status_code == 422


def test_the_probability_of_words_is_evidence(bench):
    name = bench.person(40)
    made = ask(bench, name).json()
    words = tuple(made["phrases"][0].split())
    claim = VerifyRequest(challengeId=made["challengeId"])
    reply = VerifyReply(**decide(bench.service, name, heard(bench, 40, words), claim))
    for detail in ("verdict", "halves"):
        caller = Caller("shop", "verify")
        caller = replace(caller, policy=replace(caller.policy, detail=detail))
        assert visible_decision(caller, reply).promptLogProbability is None
    assert visible_decision(Caller("me", "admin"), reply).promptLogProbability == -0.5


def test_the_service_looks_for_the_words_in_a_sound(tmp_path):
    soundfile = pytest.importorskip("soundfile")
    from mvplda.voice.extractors import load_extractor

    def sound(seed: int) -> bytes:
        file = io.BytesIO()
        soundfile.write(file, say(seed), RATE, format="WAV")
        return file.getvalue()

    listener = Listener()
    extractor = load_extractor(MODEL_FOLDER / "small.onnx")
    model = Model(load_model(MODEL_FOLDER / "small.safetensors"), extractor, text_model=listener)
    settings = Settings(enrolments=1, lock_after=100)
    with make_bench(sqlite_store(tmp_path), settings, model) as bench:
        name = bench.calls.create()
        wav = {"content-type": "audio/wav"}
        enrolled = bench.calls(
            "POST", f"/v1/profiles/{name}/enrollments", content=sound(0), headers=wav
        )
        assert enrolled.status_code == 201, enrolled.text
        found = []
        for seed in (1, 2):
            made = ask(bench, name).json()
            words = tuple(made["phrases"][0].split())
            listener.heard = words if seed == 1 else words[::-1]
            path = f"/v1/profiles/{name}/verify?challengeId={made['challengeId']}"
            found.append(bench.calls("POST", path, content=sound(seed), headers=wav).json())
        assert [reply["phrase"] for reply in found] == ["accept", "reject"]
        assert [reply["promptLogProbability"] for reply in found] == [
            pytest.approx(-0.5),
            pytest.approx(-40 + np.log(len(renderings(words)))),
        ]
        assert found[1]["decision"] == "reject"
        assert listener.samples == len(say(2))
