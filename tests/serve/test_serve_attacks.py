"""The service against callers who mean no good: what was answered, kept or promised must hold all the same."""

from __future__ import annotations

import base64
import os
import threading

import numpy as np
import pytest
from click.testing import CliRunner
from service_problems import WORDS, decide, make_bench, make_model, sqlite_store, write_model

from mvplda.cli import main
from mvplda.exceptions import ParameterError
from mvplda.serve.app import open_service
from mvplda.serve.keys import Caller, MasterKey
from mvplda.serve.recordings import ProcessedRecording
from mvplda.serve.schemas import Problem, VerifyRequest
from mvplda.serve.settings import Settings


@pytest.fixture
def bench(tmp_path):
    with make_bench(sqlite_store(tmp_path)) as found:
        yield found


def on_disk(folder) -> bytes:
    return b"".join(place.read_bytes() for place in sorted(folder.iterdir()) if place.is_file())


@pytest.mark.parametrize("way", ["delete", "opt-out"])
def test_who_has_left_is_not_accepted(bench, way):
    name = bench.person(40)
    vector = bench.world.say(40, 0)[0]
    assert bench.calls.verify(name, vector).json()["decision"] == "accept"
    if way == "delete":
        assert bench.calls("DELETE", f"/v1/profiles/{name}").status_code == 200
        assert bench.calls.verify(name, vector).status_code == 410
    else:
        assert bench.calls("POST", f"/v1/profiles/{name}/opt-out").status_code == 200
        assert bench.calls.verify(name, vector).json()["reason"] == "opted_out"


def test_deletion_leaves_no_name_and_no_key_in_any_file(bench, tmp_path):
    body = {
        "userId": "Zebedee Quux",
        "phrase": "open the door",
        "consent": {"given": True, "text": "yes"},
    }
    answer = bench.calls("POST", "/v1/profiles", json=body)
    name = answer.json()["profileId"]
    for vector in bench.world.say(41, 0, 3):
        assert bench.calls.enrol(name, vector).status_code == 201
    wrapped = bench.service.store.get_key(name)
    assert wrapped in on_disk(tmp_path)
    assert b"Zebedee" in on_disk(tmp_path)
    assert bench.calls("DELETE", f"/v1/profiles/{name}").status_code == 200
    assert wrapped not in on_disk(tmp_path)
    assert b"Zebedee" not in on_disk(tmp_path)


def test_nothing_is_kept_of_the_sound_of_one_who_opted_out(bench):
    name = bench.person(40)
    bench.calls("POST", f"/v1/profiles/{name}/opt-out")
    heard = ProcessedRecording(
        bench.world.say(40, 0)[0].astype(np.float32), None, None, "a digest", 1.0
    )
    assert decide(bench.service, name, heard, VerifyRequest())["reason"] == "opted_out"
    with bench.service.store.read() as work:
        assert work.run("SELECT * FROM marks").all() == []


def test_who_is_expired_is_not_identified(bench):
    old = bench.person(40)
    bench.clock.now += 300 * 86400
    young = bench.person(41)
    bench.clock.now += 100 * 86400
    answer = bench.calls(
        "POST", "/v1/identify", json={"vector": bench.world.say(40, 0)[0].tolist()}
    ).json()
    assert [c["profileId"] for c in answer["candidates"]] == [young]
    assert answer["profilesCount"] == 1
    assert bench.calls("GET", f"/v1/profiles/{old}").json()["state"] == "expired"


def test_identification_goes_on_while_somebody_leaves(bench):
    gone, here = bench.person(40), bench.person(41)
    vector = bench.world.say(41, 0)[0]
    bench.calls("POST", "/v1/identify", json={"vector": vector.tolist()})
    bench.service.store.destroy_key(gone)  # as leaving begins
    answer = bench.calls("POST", "/v1/identify", json={"vector": vector.tolist()})
    assert answer.status_code == 200, answer.text
    assert [c["profileId"] for c in answer.json()["candidates"]] == [here]
    assert answer.json()["noneOfThem"] + answer.json()["candidates"][0][
        "probability"
    ] == pytest.approx(1)


def test_numbers_too_small_to_be_any_are_refused(bench):
    name = bench.person(40)
    vector = bench.world.say(40, 0)[0]
    assert bench.calls.verify(name, np.full(12, 1e-60)).status_code == 422
    assert bench.calls.verify(name, vector, far=5e-324).status_code in (200, 422)


def test_tries_at_the_same_time_do_not_pass_the_lock(tmp_path):
    with make_bench(sqlite_store(tmp_path), Settings(lock_after=3)) as bench:
        name = bench.person(40)
        heard = [bench.service.accept_vector(vector) for vector in bench.world.say(45, 3, 12)]
        said = []

        def attempt(one):
            try:
                said.append(decide(bench.service, name, one, VerifyRequest())["decision"])
            except Problem as problem:
                said.append(problem.kind)

        threads = [threading.Thread(target=attempt, args=[one]) for one in heard]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(said) == ["locked"] * 9 + ["reject"] * 3


def test_another_challenge_does_not_bring_back_what_was_said_last(bench):
    name = bench.person(40)
    for vector in bench.world.say(40, 1, 3):
        assert (
            bench.calls.enrol(name, vector, fields={"phrase": "close the door"}).status_code == 201
        )
    first = bench.calls("POST", "/v1/challenges", json={"profileId": name}).json()
    vector = bench.world.say(40, WORDS.index(first["phrases"][0].replace(" ", "-")))[0]
    answer = bench.calls.verify(name, vector, challengeId=first["challengeId"]).json()
    assert answer["decision"] == "accept"
    for _ in range(30):
        bench.clock.now += 3600
        drawn = bench.calls("POST", "/v1/challenges", json={"profileId": name}).json()
        assert drawn["phrases"] != first["phrases"]
        # it expires, which counts as a rejection
        assert bench.calls("POST", f"/v1/profiles/{name}/unlock").status_code == 200


def test_a_challenge_stays_the_same_until_it_is_answered_or_expires(bench):
    name = bench.person(40)
    for vector in bench.world.say(40, 1, 3):
        bench.calls.enrol(name, vector, fields={"phrase": "close the door"})
    ask = {"json": {"profileId": name}}
    first = bench.calls("POST", "/v1/challenges", **ask).json()
    bench.clock.now += 5
    assert [bench.calls("POST", "/v1/challenges", **ask).json() for _ in range(5)] == [first] * 5
    claim = VerifyRequest(challengeId=first["challengeId"])
    silence = ProcessedRecording(None, None, "not_enough_speech")
    assert decide(bench.service, name, silence, claim)["decision"] == "inconclusive"
    assert bench.calls("POST", "/v1/challenges", **ask).json() == first
    stranger = ProcessedRecording(bench.world.say(45, 0)[0].astype(np.float32))
    assert decide(bench.service, name, stranger, claim)["decision"] == "reject"
    assert bench.calls("POST", "/v1/challenges", **ask).json() != first


def test_expired_challenges_lock_a_profile(tmp_path):
    with make_bench(sqlite_store(tmp_path), Settings(lock_after=3, lock_s=600)) as bench:
        name = bench.person(40)
        ask = {"json": {"profileId": name}}
        answers = []
        for _ in range(4):
            answers.append(bench.calls("POST", "/v1/challenges", **ask))
            bench.clock.now += 61
        assert [answer.status_code for answer in answers] == [201, 201, 201, 429]
        assert answers[-1].json()["type"] == "urn:mvplda:locked"
        assert bench.calls("POST", f"/v1/profiles/{name}/unlock").status_code == 200
        late = bench.calls("POST", "/v1/challenges", **ask).json()["challengeId"]
        bench.clock.now += 61
        heard = bench.world.say(40, 0)[0]
        expired = bench.calls.verify(name, heard, challengeId=late)
        assert expired.json()["type"] == "urn:mvplda:challenge-expired"
        with bench.service.store.read() as work:
            row = bench.service.profiles.row(work, name)
        assert row.failures == 1


def test_requests_for_challenges_are_limited(tmp_path):
    with make_bench(sqlite_store(tmp_path), Settings(profile_rate=5)) as bench:
        name = bench.person(40)
        answers = [
            bench.calls("POST", "/v1/challenges", json={"profileId": name}) for _ in range(8)
        ]
        assert [answer.status_code for answer in answers] == [201] * 5 + [429] * 3
        assert answers[-1].json()["type"] == "urn:mvplda:rate"


def test_a_profile_that_is_not_enrolled_says_that_takes_are_missing(bench):
    name = bench.calls.create()
    for phrase, text in enumerate(("open the door", "close the door", "my voice is my key")):
        answer = bench.calls.enrol(name, bench.world.say(40, phrase)[0], fields={"phrase": text})
    assert answer.json()["state"] == "enrolling"
    assert answer.json()["remainingEnrollmentsCount"] > 0


def test_an_answer_to_an_error_of_ours_has_the_headers_of_safety(bench, monkeypatch):
    monkeypatch.setattr(bench.service.profiles, "get", lambda name: 1 / 0)
    answer = bench.calls("GET", "/v1/profiles/x")
    assert answer.status_code == 500
    assert "ZeroDivision" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_phrase_that_was_named_and_never_said_is_not_asked_for(bench):
    name = bench.calls.create("a phrase of no recording")
    for vector in bench.world.say(40, 0, 3):
        assert (
            bench.calls.enrol(name, vector, fields={"phrase": "open the door"}).status_code == 201
        )
    drawn = [
        bench.calls("POST", "/v1/challenges", json={"profileId": name}).json() for _ in range(20)
    ]
    assert all("a phrase of no recording" not in one["phrases"] for one in drawn)


def test_the_data_folder_is_its_owners_alone(tmp_path, monkeypatch):
    monkeypatch.delenv("MVPLDA_MASTER_KEY", raising=False)
    MasterKey.find(tmp_path / "data")
    assert (tmp_path / "data").stat().st_mode & 0o077 == 0


def test_two_names_do_not_share_a_key(bench):
    store = bench.service.store
    store.api_keys.put("bob", "admin", "k" * 32)
    with pytest.raises(ParameterError, match="'bob'"):
        store.api_keys.put("eve", "verify", "k" * 32)
    store.api_keys.put("bob", "verify", "k" * 32)
    assert store.api_keys.find("k" * 32) == Caller("bob", "verify")


def test_deletion_does_not_wait_for_who_reads_for_long(bench):
    name = bench.person(40)
    # the reader ends only after the deletion: one that waited for it would never be answered
    with bench.service.store.read() as work:
        work.run("SELECT * FROM marks").mappings().all()
        assert bench.calls("DELETE", f"/v1/profiles/{name}").status_code == 200
        assert work.run("SELECT * FROM marks").all() == []


def test_a_body_without_a_length_is_measured_as_it_comes(bench):
    async def dribble():
        for _ in range(6):
            yield b"x" * 2**20

    answer = bench.calls(
        "POST", "/v1/profiles", content=dribble(), headers={"Content-Type": "application/json"}
    )
    assert (answer.status_code, answer.json()["type"]) == (413, "urn:mvplda:too-large")


def test_a_phrase_counts_from_as_many_takes_on_as_are_wanted(bench):
    name = bench.person(40, phrase=5, text="a phrase of my own")
    for take, left in enumerate((2, 1)):
        vector = bench.world.say(40, 6)[0]
        said = bench.calls.enrol(name, vector, fields={"phrase": "another of mine"}).json()
        assert said["remainingByPhrase"] == {"a phrase of my own": 0, "another of mine": left}
        assert (said["state"], said["remainingEnrollmentsCount"]) == ("enrolled", 0)
        answer = bench.calls.verify(
            name, bench.world.say(40, 6)[0], phrase="another of mine"
        ).json()
        assert (answer["decision"], answer["reason"]) == ("inconclusive", "not_enrolled"), take
        whatever = bench.calls.verify(name, bench.world.say(40, 6)[0]).json()
        assert whatever["reason"] == "wrong_phrase"
    bench.calls.enrol(name, bench.world.say(40, 6)[0], fields={"phrase": "another of mine"})
    assert (
        bench.calls.verify(name, bench.world.say(40, 6)[0], phrase="another of mine").json()[
            "decision"
        ]
        == "accept"
    )
    unheard = bench.calls.verify(name, bench.world.say(40, 6)[0], phrase="never said").json()
    assert (unheard["decision"], unheard["reason"]) == ("inconclusive", "not_enrolled")


def test_takes_that_are_missing_are_counted_by_phrase(bench):
    name = bench.calls.create("a phrase of my own")
    bench.calls.enrol(name, bench.world.say(40, 5)[0])
    said = bench.calls.enrol(
        name, bench.world.say(40, 6)[0], fields={"phrase": "another of mine"}
    ).json()
    assert (said["state"], said["enrollmentsCount"], said["remainingEnrollmentsCount"]) == (
        "enrolling",
        2,
        2,
    )


def test_a_start_that_is_refused_leaves_no_key(tmp_path, monkeypatch):
    monkeypatch.delenv("MVPLDA_MASTER_KEY", raising=False)
    run, data = CliRunner().invoke, tmp_path / "data"
    at = ["serve", "--data", str(data)]
    assert "first make one with" in run(main, [*at, "--host", "0.0.0.0"]).output
    (tmp_path / "no.safetensors").write_bytes(b"nothing")
    assert run(main, [*at, "--model", str(tmp_path / "no.safetensors")]).exit_code == 1
    assert run(main, [*at, "--spoof-prior", "2"]).exit_code == 2
    assert not (data / "master.key").exists()
    monkeypatch.setenv("MVPLDA_MASTER_KEY", base64.b64encode(b"e" * 32).decode())
    setup = Settings(data=data, model=write_model(tmp_path))
    open_service(setup).store.close()
    monkeypatch.delenv("MVPLDA_MASTER_KEY")
    with pytest.raises(ParameterError, match="master key of this database is missing"):
        open_service(setup)  # the database has one already: another would be of no use
    assert not (data / "master.key").exists()


@pytest.mark.skipif(os.name != "posix", reason="files have other rights there")
def test_databases_are_their_owners_alone(tmp_path):
    with make_bench(sqlite_store(tmp_path)) as bench:
        bench.person(40)
        modes = {place.name: place.stat().st_mode & 0o777 for place in tmp_path.iterdir()}
    assert {"data.sqlite", "keys.sqlite", "data.sqlite-wal"} <= set(modes)
    assert set(modes.values()) == {0o600}, modes


def test_a_suspicious_recording_is_rejected_whatever_voice_and_words_are(bench):
    name = bench.person(40)
    heard = ProcessedRecording(bench.world.say(40, 0)[0].astype(np.float32))
    said = decide(bench.service, name, heard, VerifyRequest(countermeasureLlr=-6.0))
    assert (said["decision"], said["reason"], said["countermeasureLlr"]) == (
        "reject",
        "suspected_replay",
        -6.0,
    )
    assert said["operatingPoint"] is None  # errors were measured without it
    assert max(said["posteriors"], key=said["posteriors"].get) == "spoof"
    alive = decide(bench.service, name, heard, VerifyRequest(countermeasureLlr=6.0))
    assert (alive["decision"], alive["reason"]) == ("accept", None)


def dense_evidence(model, takes, labels, test, said):
    """Log-likelihoods of TC, TW, IC, IW: joint Gaussians of all recordings, a test that says any one of the phrases."""
    scorer = model.bundle.fitted_scorer
    X = (
        np.asarray(model.bundle.prepare(np.vstack([takes, test]).astype(np.float32).astype(float)))
        - scorer.mean_
    )
    voice, words = (
        scorer.loadings_[view] @ scorer.loadings_[view].T for view in ("speaker", "phrase")
    )

    def log_density(speakers, phrases):
        blocks = [
            [
                (s == t) * voice + (p == q) * words + (i == j) * scorer.noise_
                for j, (t, q) in enumerate(people)
            ]
            for people in [list(zip(speakers, phrases, strict=True))]
            for i, (s, p) in enumerate(people)
        ]
        C = np.block(blocks)
        return -0.5 * (X.ravel() @ np.linalg.solve(C, X.ravel()) + np.linalg.slogdet(C)[1])

    def account(speaker, phrases):
        logs = [log_density([0] * len(labels) + [speaker], [*labels, phrase]) for phrase in phrases]
        return np.logaddexp.reduce(logs) - np.log(len(logs))

    return np.array([account(s, phrases) for s in (0, 1) for phrases in (said, ["another"])])


def with_doubt(logs, doubt):
    """Calibrated log-likelihoods where factors are 1."""
    share = logs - np.logaddexp.reduce(logs)
    return np.logaddexp(np.log1p(-doubt) + share, np.log(doubt / len(logs)))


@pytest.mark.parametrize(
    ("speaker", "phrase", "decision"), [(40, 5, "accept"), (40, 6, "accept"), (40, 7, "reject")]
)
def test_a_test_that_names_no_phrase_says_any_one_of_several(tmp_path, speaker, phrase, decision):
    with make_bench(sqlite_store(tmp_path)) as bench:
        takes = np.vstack([bench.world.say(40, words, 3) for words in (5, 6)])
        labels = ["blue-moon"] * 3 + ["red-sun"] * 3
        name = bench.calls.create("blue moon")
        for label, vector in zip(labels, takes, strict=True):
            assert bench.calls.enrol(name, vector, fields={"phrase": label}).status_code == 201
        test = bench.world.say(speaker, phrase)[0]
        found = bench.calls.verify(name, test).json()
        logs = dense_evidence(bench.model, takes, labels, test, sorted(set(labels)))
        tc, tw, ic, iw = with_doubt(logs, 0.001)
        others = np.logaddexp.reduce([tw, ic, iw]) - np.log(3)
        weights = np.log([1 / 2, 1 / 6, 1 / 6, 1 / 6])
        posteriors = np.exp(np.array([tc, tw, ic, iw]) + weights)
        assert found["decision"] == decision
        assert found["llr"] == pytest.approx(tc - others, abs=1e-5)
        kinds = dict(zip(("TC", "TW", "IC", "IW"), posteriors / posteriors.sum(), strict=True))
        assert found["posteriors"] == pytest.approx(kinds, abs=1e-8)
        named = bench.calls("POST", "/v1/identify", json={"vector": test.tolist()}).json()[
            "candidates"
        ]
        # no outlier probability limits the LLR of a half
        tc, tw, ic, iw = logs
        assert named[0]["llr"] == pytest.approx(
            np.logaddexp(tc, tw) - np.logaddexp(ic, iw), abs=1e-5
        )


@pytest.mark.parametrize("fields", [{}, {"phrase": "open the door"}, {"phrase": "close the door"}])
def test_an_operator_who_wants_more_takes_makes_profiles_inconclusive(tmp_path, fields):
    with make_bench(sqlite_store(tmp_path)) as bench:
        name = bench.person(40)
    with make_bench(sqlite_store(tmp_path), Settings(enrolments=5)) as bench:
        answer = bench.calls.verify(name, bench.world.say(40, 0)[0], **fields)
        assert (answer.status_code, answer.json().get("reason")) == (200, "not_enrolled")


def test_a_stale_profile_whose_vectors_are_kept_is_challenged(tmp_path):
    with make_bench(sqlite_store(tmp_path)) as bench:
        name = bench.person(40)
    with make_bench(sqlite_store(tmp_path), model=make_model(seed=2)) as bench:
        assert bench.calls("GET", f"/v1/profiles/{name}").json()["state"] == "stale"
        assert bench.calls("POST", "/v1/challenges", json={"profileId": name}).status_code == 201
        assert bench.calls("GET", f"/v1/profiles/{name}").json()["state"] == "enrolled"
