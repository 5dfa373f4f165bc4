"""The command serve, with a service a service in a process of its own."""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("fastapi")

from service_client import Client, Refused
from service_problems import make_world, running_server, write_model

from mvplda.cli import main
from mvplda.serve.callers import KEYS_S

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running_server(tmp_path_factory.mktemp("served")) as found:
        yield found


def run(*arguments: Any, code: int = 0) -> str:
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def test_a_served_model_verifies_and_identifies(server):
    client, world = Client(server.url), make_world()
    ann = client.create("ann", "open the door")
    for vector in world.say(40, 0, 3):
        assert client.enrol(ann, vector)["enrollmentId"]
    assert client.verify(ann, world.say(40, 0)[0], far=0.01)["decision"] == "accept"
    assert client.verify(ann, world.say(41, 0)[0])["reason"] == "wrong_speaker"
    assert client.identify(world.say(40, 1)[0])["candidates"][0]["userId"] == "ann"
    assert client("DELETE", f"profiles/{ann}")["state"] == "deleted"
    with pytest.raises(Refused, match="deleted") as refused:
        client("GET", f"profiles/{ann}")
    assert refused.value.status == 410
    with pytest.raises(Refused, match="no extractor"):
        client(
            "POST",
            f"profiles/{ann}/enrollments",
            content=b"RIFF",
            headers={"content-type": "audio/wav"},
        )


def test_a_service_with_a_broken_key_does_not_start(tmp_path):
    (tmp_path / "master.key").write_text("nonsense")
    said = run("serve", "--data", tmp_path, "--model", write_model(tmp_path), code=1)
    assert "expected a key of 32 bytes" in said


def test_a_service_without_its_database_says_so(tmp_path):
    nowhere = "postgresql://ann@127.0.0.1:1/nothing"
    model = write_model(tmp_path)
    said = run("serve", "--data", tmp_path, "--model", model, "--database", nowhere, code=1)
    assert "the database cannot be used: connection failed" in said
    assert "Check that it runs" in said


def test_keys_are_made_and_taken_back_and_wanted(tmp_path):
    key = run("serve", "--data", tmp_path, "key", "shop", "--role", "verify").strip()
    model = write_model(tmp_path)
    with running_server(tmp_path) as server:
        with pytest.raises(Refused, match="API key"):
            Client(server.url)("GET", "profiles")
        shop = Client(server.url, key)
        assert shop("GET", "profiles", params={"userId": "ann"})["items"] == []
        with pytest.raises(Refused, match="whole name as userId"):
            shop("GET", "profiles")
        assert "revoked" in run("serve", "--data", tmp_path, "key", "shop", "--revoke")
        time.sleep(KEYS_S + 0.5)  # for so long a process remembers a key
        with pytest.raises(Refused, match="API key"):
            Client(server.url, key)("GET", "profiles")
    run("serve", "--data", tmp_path / "new", "--model", model, "--host", "0.0.0.0", code=2)


def test_a_copy_of_the_database_is_restored(tmp_path):
    new = tmp_path / "new"
    new.mkdir()
    with running_server(tmp_path) as server:
        client, world = Client(server.url), make_world()
        ann, bob = client.create("ann", "open the door"), client.create("bob", "open the door")
        for vector in world.say(40, 0, 3):
            client.enrol(ann, vector)
        with sqlite3.connect(tmp_path / "mvplda.sqlite") as file:
            file.execute("VACUUM INTO ?", [str(new / "mvplda.sqlite")])
        file.close()
        client("DELETE", f"profiles/{bob}")
    assert not list(tmp_path.glob("*-wal")), "the end of the service empties SQLite's log"
    assert "does not have the data keys of these profiles" in run(
        "serve", "--data", new, "sweep", code=1
    )
    for name in ("master.key", "keys.sqlite"):
        (new / name).write_bytes((tmp_path / name).read_bytes())
    assert "deleted 1 people without a data key" in run("serve", "--data", new, "sweep")
    with running_server(new) as server:
        client = Client(server.url)
        assert client.verify(ann, world.say(40, 0)[0])["decision"] == "accept"
        with pytest.raises(Refused, match="deleted"):
            client("GET", f"profiles/{bob}")


def test_a_stop_waits_for_what_has_begun_and_processes_share_a_port(tmp_path):
    with running_server(tmp_path, "--workers", "2") as server:
        client, world = Client(server.url), make_world()
        ann = client.create("ann", "open the door")
        for vector in world.say(40, 0, 6):
            client.enrol(ann, vector)
        assert client("GET", f"profiles/{ann}")["enrollmentsCount"] == 6
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(120) in (0, -signal.SIGTERM)
    lines = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("{")]
    assert {json.loads(line)["message"] for line in lines} >= {"request"}
    assert np.isfinite([json.loads(line)["at"] for line in lines]).all()
