"""Decisions by the thresholds of speaker and phrase, over HTTP: answers, shares, policies, and identification."""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")

import sqlalchemy as sa
from service_problems import KEY, KNOWN, ME, Bench, Calls, make_bench, make_bundle, sqlite_store

from mvplda.decisions import HalfThreshold, MeasuredRates, OperatingPoint, RateInterval, name_among
from mvplda.serve.app import create_app
from mvplda.serve.keys import KeyPolicy
from mvplda.serve.model import Model
from mvplda.serve.settings import Settings
from mvplda.serve.tables import PROFILES

FARS = (0.01, 0.05, 0.02, 0.005, 0.001)
LIMITS = {far: -0.6 * math.log(far) for far in FARS}
DOUBT = 0.2
LARGEST_LLR = math.log(2 * 4 / DOUBT)
PHRASE = "open the door"


def rates(far: float, kind: str) -> MeasuredRates:
    return MeasuredRates(
        far={
            kind: RateInterval(far / 2, 0.0, far),
            f"{kind}, same sex": RateInterval(far, 0.0, 1.0),
        },
        frr=RateInterval(0.03, 0.02, 0.05),
    )


def point(far: float, views: tuple[str, ...]) -> OperatingPoint:
    """A point; the strictest threshold of the speaker lies beyond the largest joint LLR."""
    halves = {
        "speaker": HalfThreshold(LIMITS[far], 0.0, rates(far, "IC"), 94),
        "phrase": HalfThreshold(1.0, 0.0, rates(far, "TW"), 60),
    }
    return OperatingPoint.from_halves(
        {view: halves[view] for view in views},
        far=far,
        measured=rates(far, "IC"),
        people=94,
        basis="left-out corpora",
    )


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bundle = copy(make_bundle())
    doubtful = copy((bundle.calibrations or {})["speaker"])
    doubtful.outlier_probability_ = DOUBT
    bundle.calibrations = dict.fromkeys(bundle.calibrations or {}, doubtful)
    both = [point(far, ("speaker", "phrase")) for far in FARS]
    bundle.points = {KEY: both, KNOWN: both, "speaker": [point(far, ("speaker",)) for far in FARS]}
    settings = Settings(profile_rate=0, lock_after=10**6)
    with make_bench(sqlite_store(tmp_path), settings, Model(bundle)) as found:
        yield found


def attempt(bench: Bench, who: int, what: int, **fields: Any) -> dict[str, Any]:
    vector = bench.world.say(who, what)[0]
    answer = bench.calls.verify(bench.person(40), vector, **fields)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize(
    ("who", "what", "decision", "reason"),
    [
        (40, 0, "accept", None),
        (41, 0, "reject", "wrong_speaker"),
        (40, 1, "reject", "wrong_phrase"),
        (41, 1, "reject", "both"),
    ],
)
def test_an_answer_has_the_decision_of_each_half(
    bench: Bench, who: int, what: int, decision: str, reason: str | None
) -> None:
    answer = attempt(bench, who, what, phrase=PHRASE)
    assert (answer["decision"], answer["reason"]) == (decision, reason)
    # no joint threshold decides
    assert answer["threshold"] is answer["rejectThreshold"] is None
    assert sum(answer["posteriors"].values()) == pytest.approx(1.0)
    assert abs(answer["llr"]) < LARGEST_LLR
    expected = {"speaker": (94, "IC", LIMITS[0.01]), "phrase": (60, "TW", 1.0)}
    for view, (people, kind, accept) in expected.items():
        half = answer["halves"][view]
        llr = answer["llrSpeaker" if view == "speaker" else "llrPhrase"]
        assert half["llr"] == llr
        assert half["decision"] == answer["voice" if view == "speaker" else "phrase"]
        assert half["accept"] == pytest.approx(accept)
        assert half["people"] == people
        assert half["farByKind"] == {kind: 0.005, f"{kind}, same sex": 0.01}
        assert half["frr"] == 0.03
        verdict = "accept" if llr >= half["accept"] else "inconclusive"
        assert half["decision"] == ("reject" if llr <= half["reject"] else verdict)
    assert answer["operatingPoint"]["halves"]["speaker"]["accept"] == pytest.approx(LIMITS[0.01])


def test_a_call_chooses_among_the_offered_shares(bench: Bench) -> None:
    for far in sorted(FARS):
        answer = attempt(bench, 40, 0, far=far)
        half = answer["halves"]["speaker"]
        assert half["accept"] == pytest.approx(LIMITS[far])
        # the doubt limits the joint LLR, and not the LLR that decides
        assert answer["decision"] == "accept"
        assert half["llr"] >= LIMITS[0.001] > LARGEST_LLR > answer["llr"]
    between = attempt(bench, 40, 0, far=0.004)
    assert between["operatingPoint"]["wantedFar"] == 0.001
    refused = bench.calls.verify(bench.person(40), bench.world.say(40, 0)[0], far=0.0005)
    assert refused.status_code == 422
    detail = refused.json()["detail"]
    assert "measured on 94 people" in detail
    assert "Choose one of 5, 2, 1, 0.5, 0.1 %" in detail


def test_the_audit_has_both_halves_and_a_policy_hides_their_llrs(bench: Bench) -> None:
    name = bench.person(40)
    body = {"vector": bench.world.say(41, 0)[0].tolist(), "phrase": PHRASE}
    for detail in ("verdict", "halves", "evidence"):
        key = bench.service.store.api_keys.put(detail, "verify", policy=KeyPolicy(detail=detail))
        calls = Calls(create_app(bench.service), {"X-API-Key": key})
        answer = calls("POST", f"/v1/profiles/{name}/verify", json=body).json()
        assert answer["decision"] == "reject"
        shows_evidence = detail == "evidence"
        shows_halves = detail != "verdict"
        for field in ("halves", "llr", "llrSpeaker", "llrPhrase", "posteriors", "operatingPoint"):
            assert (answer[field] is not None) == shows_evidence, field
        for field in ("voice", "phrase", "reason"):
            assert (answer[field] is not None) == shows_halves, field
    entries = bench.service.find_audit(3, 2**31 - 1, action="verify").items
    assert all(dict(entry)["halves"]["speaker"]["decision"] == "reject" for entry in entries)


def test_the_model_offers_its_points(bench: Bench) -> None:
    model = bench.calls("GET", "/v1/model").json()
    assert [point["wantedFar"] for point in model["operatingPoints"]] == list(FARS)
    for offered in model["operatingPoints"]:
        assert offered["halves"]["speaker"]["people"] == 94


def test_identification_uses_the_speakers_threshold_for_so_many_people(bench: Bench) -> None:
    names = {who: bench.person(who) for who in range(40, 46)}
    body = {"vector": bench.world.say(42, 3)[0].tolist(), "top": 6}
    answer = bench.calls("POST", "/v1/identify", json=body).json()
    assert answer["identified"] == names[42]
    llrs = [candidate["llr"] for candidate in answer["candidates"]]
    # six people: 2 % / 6 each, so that the point for 0.1 % decides
    expected = name_among(llrs, point(0.001, ("speaker",)), count=6, outlier_probability=DOUBT)
    assert expected.best == 0
    assert llrs[0] > LIMITS[0.001]
    assert answer["noneOfThem"] == pytest.approx(expected.none)
    stranger = {"vector": bench.world.say(50, 0)[0].tolist()}
    assert bench.calls("POST", "/v1/identify", json=stranger).json()["identified"] is None


def test_too_little_evidence_has_advice(bench: Bench) -> None:
    name = bench.person(40)
    ours, theirs = (bench.world.say(who, 0, 5).mean(axis=0) for who in (40, 43))
    for share in np.linspace(0.0, 1.0, 41):
        answer = bench.calls.verify(name, ours + share * (theirs - ours), far=0.001).json()
        # three recordings are enrolled, and vectors have no seconds of speech
        assert answer["advice"] is None
        if answer["reason"] == "not_enough_evidence":
            break
    assert answer["reason"] == "not_enough_evidence"
    with bench.service.store.write(ME) as work:
        work.run(sa.update(PROFILES).where(PROFILES.c.id == name).values(speech_s=1.5))
    again = ours + (share + 1e-3) * (theirs - ours)
    short = bench.calls.verify(name, again, far=0.001).json()
    assert short["reason"] == "not_enough_evidence"
    assert "3 recordings with 1.5 s of speech" in short["advice"]
    assert short["advice"].endswith("use a longer phrase.")
