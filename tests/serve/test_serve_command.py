"""The command serve, and the client, against a service in a process of its own."""

from __future__ import annotations

import base64
import json
import signal
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("fastapi")

from service_problems import make_world, running_server, write_model

import mvplda
from mvplda.cli import main

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running_server(tmp_path_factory.mktemp("served")) as found:
        yield found


def run(*arguments: Any, code: int = 0) -> str:
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def test_the_client_does_what_the_service_does(server):
    client, world = mvplda.Client(server.url), make_world()
    ann = client.create("ann", "open the door", consent="yes")["profileId"]
    for vector in world.say(40, 0, 3):
        assert client.enrol(ann, vector=vector)["enrollmentId"]
    assert client.verify(ann, vector=world.say(40, 0)[0], far=0.01)["decision"] == "accept"
    assert client.verify(ann, vector=world.say(41, 0)[0])["reason"] == "wrong_speaker"
    assert client.identify(vector=world.say(40, 1)[0])["candidates"][0]["userId"] == "ann"
    assert client.challenge(ann)["phrases"]
    assert [p["userId"] for p in client.profiles("ann")] == ["ann"]
    assert client.remove_enrolment(ann, 1)["enrollmentsCount"] == 2
    assert next(client.audit(profileId=ann))["action"] == "remove-enrolment"
    assert client.export(ann)["consent"]["text"] == "yes"
    assert {p["id"] for p in client.phrases()} >= {"my-voice-is-my-key"}
    assert client.model()["modelVersion"] == client.health()["modelVersion"]
    assert client.reset(ann)["state"] == "created"
    assert client.opt_out(ann)["state"] == "opted_out"
    assert client.delete(ann)["state"] == "deleted"
    with pytest.raises(mvplda.ServiceError, match="deleted") as refused:
        client.profile(ann)
    assert refused.value.status == 410
    with pytest.raises(mvplda.ServiceError, match="no extractor"):
        client.enrol(ann, b"RIFF")


def test_nobody_answers():
    with pytest.raises(mvplda.ServiceError, match="does not answer") as refused:
        mvplda.Client("http://127.0.0.1:9").health()
    assert refused.value.status == 0


def test_serve_says_what_is_in_order(tmp_path):
    model = write_model(tmp_path)
    said = run("serve", "--data", tmp_path, "--model", model, "--check")
    assert said.count("ok ") == 4
    assert "MVPLDA_MASTER_KEY" in said
    (tmp_path / "master.key").write_text("nonsense")
    assert "WRONG    master key" in run(
        "serve", "--data", tmp_path, "--model", model, "--check", code=1
    )


def test_keys_are_made_and_taken_back_and_wanted(tmp_path):
    key = run("serve", "--data", tmp_path, "key", "shop", "--role", "verify").strip()
    model = write_model(tmp_path)
    with running_server(tmp_path) as server:
        with pytest.raises(mvplda.ServiceError, match="API key"):
            next(mvplda.Client(server.url, key="").profiles())
        assert list(mvplda.Client(server.url, key=key).profiles()) == []
        assert "revoked" in run("serve", "--data", tmp_path, "key", "shop", "--revoke")
        with pytest.raises(mvplda.ServiceError, match="API key"):
            next(mvplda.Client(server.url, key=key).profiles())
    run("serve", "--data", tmp_path / "new", "--model", model, "--host", "0.0.0.0", code=2)


def test_back_up_and_restore(tmp_path):
    copy = tmp_path / "copy.jsonl"
    with running_server(tmp_path) as server:
        client, world = mvplda.Client(server.url), make_world()
        ann = client.create("ann", "open the door", consent="yes")["profileId"]
        for vector in world.say(40, 0, 3):
            client.enrol(ann, vector=vector)
        run("serve", "--data", tmp_path, "backup", copy)
    assert not list(tmp_path.glob("*-wal")), "the end of the service empties SQLite's log"
    new, other = tmp_path / "new", tmp_path / "other"
    new.mkdir()
    for name in ("master.key", "keys.sqlite"):
        (new / name).write_bytes((tmp_path / name).read_bytes())
    assert "deleted" not in run("serve", "--data", new, "restore", copy)
    with running_server(new) as server:
        assert (
            mvplda.Client(server.url).verify(ann, vector=world.say(40, 0)[0])["decision"]
            == "accept"
        )
    assert "there is no master key" in run("serve", "--data", other, "restore", copy, code=1)
    (other / "master.key").write_bytes(base64.b64encode(b"k" * 32))
    assert "another master key" in run("serve", "--data", other, "restore", copy, code=1)
    (other / "master.key").write_bytes((tmp_path / "master.key").read_bytes())
    assert "1 people have no data key here" in run("serve", "--data", other, "restore", copy)


def test_a_stop_waits_for_what_has_begun_and_processes_share_a_port(tmp_path):
    with running_server(tmp_path, "--workers", "2") as server:
        client, world = mvplda.Client(server.url), make_world()
        ann = client.create("ann", "open the door", consent="yes")["profileId"]
        for vector in world.say(40, 0, 6):
            client.enrol(ann, vector=vector)
        assert client.profile(ann)["enrollmentsCount"] == 6
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) in (0, -signal.SIGTERM)
    lines = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("{")]
    assert {json.loads(line)["message"] for line in lines} >= {"request"}
    assert np.isfinite([json.loads(line)["at"] for line in lines]).all()
