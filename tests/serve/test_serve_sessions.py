"""Recordings of one enrolment session share room and microphone, and are weighted accordingly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi")

from service_problems import make_bench, sqlite_store

from mvplda import Bundle, MultiviewPLDA
from mvplda.serve import profiles
from mvplda.serve.model import Model

D = 12


def session_model(*, asked: bool) -> MultiviewPLDA:
    """asked : whether hypotheses are about sessions, too"""
    loadings = {"speaker": 1.5 * np.eye(D), "speaker:recording": 0.8 * np.eye(D)}
    model = MultiviewPLDA.from_parameters(np.zeros(D), loadings, 0.4 * np.eye(D))
    if not asked:
        model.nuisance_views = ("recording",)
    return model


@pytest.mark.parametrize("asked", [True, False])
def test_enrolment_sessions_are_scored_as_sessions(tmp_path: Path, asked: bool) -> None:
    scorer = session_model(asked=asked)
    bundle = Bundle(None, scorer)
    rng = np.random.default_rng(3)
    who = rng.normal(size=D) * 2
    recordings = who + 0.3 * rng.normal(size=(5, D))
    test = who + 0.5 * rng.normal(size=D)
    with make_bench(sqlite_store(tmp_path), model=Model(bundle)) as bench:
        name = bench.calls.create("open the door", "ann")
        for number, take in enumerate(recordings):
            if number == 2:
                bench.clock.now += profiles.SESSION_S + 1
            fields = {"session": "the car"} if number == 4 else {}
            answer = bench.calls.enrol(name, take, fields=fields)
            assert answer.status_code == 201, answer.text
        found = bench.calls.verify(name, test).json()
        ranked = bench.calls("POST", "/v1/identify", json={"vector": test.tolist()}).json()
        kept = bench.calls("GET", f"/v1/profiles/{name}/export").json()["enrollments"]
    assert found["reason"] is None
    sessions = [entry["session"] for entry in kept]
    assert sessions[0] == sessions[1] != sessions[2] == sessions[3]
    assert sessions[4] == "the car"
    enrolled = scorer.enrol(recordings, ["ann"] * 5, {"recording": sessions})
    tested = scorer.enrol(test[None], labels={"recording": ["today"]})
    expected = scorer.llr(enrolled, tested, same="speaker", dtype=np.float64)[0, 0]
    assert found["llr"] == pytest.approx(expected, abs=1e-5)
    assert ranked["candidates"][0]["llr"] == pytest.approx(expected, abs=1e-5)
    # five independent recordings would give another LLR
    plain = scorer.enrol(recordings, ["ann"] * 5, {"recording": list("abcde")})
    assert abs(scorer.llr(plain, tested, same="speaker")[0, 0] - expected) > 0.1
