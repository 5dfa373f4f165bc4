"""Two instances on one database behind a proxy, the clock of one an hour ahead; and several workers of one service."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest

pytest.importorskip("fastapi")

from free_ports import free_port
from service_client import Client, Refused
from service_problems import WORDS, make_world, write_model

from mvplda.serve.store import Store

pytestmark = pytest.mark.slow
KEY = "bWFzdGVyIGtleSBvZiBhIGJlbmNobWFyaywgMzIgYnk="
AHEAD = "import time; real = time.time; time.time = lambda: real() + {}; "


@contextmanager
def instance(folder, database: str, ahead_s: float, *options: str) -> Iterator[int]:
    """``mvplda serve`` whose own clock is wrong; its port, once it is ready."""
    port = free_port()
    words = ["mvplda", "serve", "--port", str(port), "--data", str(folder), "--database", database]
    words += ["--model", str(write_model(folder)), *options]
    code = f"{AHEAD.format(ahead_s)} import sys; sys.argv = {words}; from mvplda.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "MVPLDA_MASTER_KEY": KEY},
        stderr=subprocess.PIPE,
    )
    try:
        for _ in range(2400):
            time.sleep(0.1)
            assert process.poll() is None, process.stderr.read()[-2000:]
            try:
                if httpx.get(f"http://127.0.0.1:{port}/v1/ready").status_code == 200:
                    break
            except httpx.HTTPError:
                pass
        yield port
    finally:
        process.terminate()
        process.stderr.close()
        process.wait(120)


@contextmanager
def proxy(ports: list[int]) -> Iterator[int]:
    """Each connection goes to the next instance."""
    turn = itertools.cycle(ports)
    port = free_port()

    async def copy(reader, writer):
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def connect(reader, writer):
        there = await asyncio.open_connection("127.0.0.1", next(turn))
        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

    loop = asyncio.new_event_loop()
    loop.run_until_complete(asyncio.start_server(connect, "127.0.0.1", port))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield port
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


class OneByOne(Client):
    """A new connection for every call."""

    def __call__(self, method, path, **options):
        options["headers"] = {"Connection": "close", **options.get("headers", {})}
        return super().__call__(method, path, **options)


def test_two_instances_are_one_service_whatever_their_clocks_say(postgres, tmp_path):
    database = postgres.new_database()
    world = make_world()
    with ExitStack() as stack:
        folders = [tmp_path / name for name in ("a", "b")]
        for folder in folders:
            folder.mkdir()
        options = ("--lock-after", "4")
        ports = [
            stack.enter_context(instance(folder, database, ahead, *options))
            for folder, ahead in zip(folders, (0, 3600), strict=True)
        ]
        client = OneByOne(f"http://127.0.0.1:{stack.enter_context(proxy(ports))}")
        people = {}
        for speaker in (40, 41, 42):
            people[speaker] = client.create(f"speaker {speaker}", "open the door")
            for phrase, text in ((0, "open the door"), (5, "green garden gate")):
                for vector in world.say(speaker, phrase, 3):
                    client.enrol(people[speaker], vector, phrase=text)
        for speaker, name in people.items():
            for _ in range(2):  # on either instance
                said = world.say(speaker, 0)[0]
                answer = client.verify(name, said, phrase="open the door")
                assert answer["decision"] != "reject", answer
                assert client.identify(said)["candidates"][0]["profileId"] == name
        # a challenge of one instance is answered at the other, and once
        asked = client("POST", "challenges", json={"profileId": people[40]})
        label = asked["phrases"][0].replace(" ", "-")
        said = world.say(40, WORDS.index(label) if label in WORDS else 5)[0]
        given = {"challengeId": asked["challengeId"]}
        assert client.verify(people[40], said, **given)["resultId"]
        with pytest.raises(Refused, match="answered"):
            client.verify(people[40], said, **given)
        # rejections at both lock the profile at both, for a minute of the database
        for _ in range(4):
            client.verify(people[41], world.say(9, 3)[0], phrase="open the door")
        for _ in range(2):
            with pytest.raises(Refused, match="locked") as refused:
                client.verify(people[41], world.say(41, 0)[0])
            assert refused.value.status == 429
        client("POST", f"profiles/{people[41]}/unlock")
        assert client.verify(people[41], world.say(41, 0)[0])["decision"] != "reject"
        # who leaves at one is gone at the other
        client("DELETE", f"profiles/{people[42]}")
        for _ in range(2):
            assert client.identify(world.say(42, 0)[0])["profilesCount"] == 2
    stores = [Store(database) for _ in range(2)]
    # calls of a key are counted over all processes
    refused_calls = [stores[k % 2].api_keys.spend("shop", 10, 60) > 0 for k in range(8)]
    assert refused_calls == [False] * 6 + [True] * 2
    with stores[0].read() as work:
        refusals = work.run("SELECT profile, reason, count FROM refusals").all()
        assert [tuple(row) for row in refusals] == [(people[41], "locked", 2)]
        hours = work.value("SELECT (max(at) - min(at)) / 3600 FROM audit")
        assert hours < 0.5
    for store in stores:
        store.close()


def test_metrics_are_those_of_all_workers(postgres, tmp_path):
    with instance(tmp_path, postgres.new_database(), 0, "--workers", "2") as port:
        for _ in range(60):
            httpx.get(f"http://127.0.0.1:{port}/v1/health")
        for _ in range(4):  # whichever worker answers
            text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
            assert 'mvplda_requests_total{route="/v1/health",status="200"} 60.0' in text
            assert "\nmvplda_recordings 0.0" in text


def test_a_port_that_is_in_use_is_named(tmp_path):
    from click.testing import CliRunner

    from mvplda.cli import main

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        said = CliRunner().invoke(
            main, ["serve", "--demo", "--port", port, "--data", str(tmp_path)]
        )
    assert said.exit_code == 1
    assert f"port {port}" in said.output
    assert "another --port" in said.output
