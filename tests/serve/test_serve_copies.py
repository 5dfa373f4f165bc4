"""Copies of recordings that enrolled or decided something are suspected replays."""

from __future__ import annotations

import numpy as np
import pytest
from service_problems import decide, make_bench, sqlite_store
from spoken import say

from mvplda.serve.marks import Marks
from mvplda.serve.recordings import ProcessedRecording
from mvplda.serve.schemas import DamagedProfile, Problem, VerifyRequest
from mvplda.serve.settings import Settings
from mvplda.serve.store import DAY, SERVICE
from mvplda.voice.audio.decode import golden_signal
from mvplda.voice.fingerprint import RATE, CopyTest


@pytest.fixture
def bench(tmp_path):
    with make_bench(sqlite_store(tmp_path)) as found:
        yield found


def recording(vector: np.ndarray, sound: np.ndarray) -> ProcessedRecording:
    """Return a recording as the service has it: every change of a sample gives another digest."""
    digest = str(hash(sound.tobytes()))
    return ProcessedRecording(
        vector.astype(np.float32), digest=digest, speech_s=2.0, copy_test=CopyTest(sound)
    )


def test_a_changed_copy_of_an_enrolment_is_rejected(bench):
    name = bench.calls.create("open the door")
    vectors = bench.world.say(40, 0, 5)
    for seed in range(3):
        sound = recording(vectors[seed], say(seed))
        bench.service.change(SERVICE, bench.service.profiles.enrol, name, sound, None)
    copied = decide(bench.service, name, recording(vectors[3], 0.5 * say(1)), VerifyRequest())
    assert (copied["decision"], copied["reason"]) == ("reject", "suspected_replay")
    honest = decide(bench.service, name, recording(vectors[4], say(7)), VerifyRequest())
    assert (honest["decision"], honest["reason"]) == ("accept", None)
    again = recording(vectors[3], np.delete(say(7), 100))
    assert decide(bench.service, name, again, VerifyRequest())["reason"] == "suspected_replay"
    with pytest.raises(Problem) as refusal:
        bench.service.change(SERVICE, bench.service.profiles.enrol, name, again, None)
    assert "changed copy" in str(refusal.value.detail)


def test_fingerprints_are_encrypted_and_swept(tmp_path):
    with make_bench(sqlite_store(tmp_path), Settings(marks_days=10)) as bench:
        name, other = bench.person(40), bench.person(41)
        for person, speaker in ((name, 40), (other, 41)):
            sound = recording(bench.world.say(speaker, 0)[0], say(speaker))
            decide(bench.service, person, sound, VerifyRequest())
        with bench.service.store.read() as work:
            rows = work.run("SELECT profile, fingerprint FROM marks").all()
        plain = CopyTest(say(40)).fingerprint.to_bytes()
        assert {row.profile for row in rows} == {name, other}
        assert all(len(row.fingerprint) > 100 for row in rows)
        assert all(plain[2:20] not in row.fingerprint for row in rows)
        bench.clock.now += 11 * DAY
        with bench.service.store.write() as work:
            Marks(bench.service.templates).sweep(work)
            assert work.run("SELECT * FROM marks").all() == []


def test_a_damaged_fingerprint_is_damage_of_the_profile(bench):
    name = bench.person(40)
    sound = recording(bench.world.say(40, 0)[0], say(0))
    decide(bench.service, name, sound, VerifyRequest())
    with bench.service.store.write() as work:
        work.run("UPDATE marks SET fingerprint = :data", data=b"x" * 60)
    with pytest.raises(DamagedProfile):
        decide(bench.service, name, recording(bench.world.say(40, 0)[0], say(3)), VerifyRequest())


def test_the_service_makes_the_copy_test_of_a_sound():
    pytest.importorskip("soundfile")
    from test_serve_audio import _recording

    from mvplda.serve.model_loading import MODEL_FOLDER
    from mvplda.serve.recordings import process_recording
    from mvplda.voice.extractors import load_extractor

    extractor = load_extractor(MODEL_FOLDER / "small.onnx")
    processed = process_recording(extractor, _recording(0.5, 0.5), Settings())
    assert processed.copy_test is not None
    syllables = CopyTest(golden_signal(RATE)[: round(1.5 * RATE)])
    assert processed.copy_test.is_copy([syllables.fingerprint])
