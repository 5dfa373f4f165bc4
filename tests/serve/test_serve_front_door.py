"""Calls before they are admitted: keys before bodies, limits per address, unfinished bodies, proxies, file handles."""

from __future__ import annotations

import asyncio
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

pytest.importorskip("fastapi")

from service_problems import Bench, Calls, Server, make_bench, running_server, sqlite_store

from mvplda.exceptions import ParameterError
from mvplda.serve.access import problem_of
from mvplda.serve.addresses import AddressRate, RefusedCalls, UnfinishedBodies, client_address
from mvplda.serve.app import create_app
from mvplda.serve.connections import reserve_file_handles
from mvplda.serve.keys import Caller
from mvplda.serve.routes import SMALL_BODY
from mvplda.serve.settings import Settings

POSTS = (
    "/v1/profiles",
    "/v1/challenges",
    "/v1/identify",
    "/v1/profiles/{}/verify",
    "/v1/profiles/{}/enrollments",
    "/v1/profiles/{}/reset",
)
ADMIN_KEY = "admin-admin-admin-1"
KEYS = {"MVPLDA_API_KEYS": f"desk:admin:{ADMIN_KEY}"}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with make_bench(sqlite_store(tmp_path), is_open=False) as found:
        found.calls.headers = {"X-API-Key": found.service.store.api_keys.put("desk", "admin")}
        yield found


# -- keys before bodies --------------------------------------------------------------------


@pytest.mark.parametrize("path", POSTS)
def test_a_body_is_not_read_without_a_key(bench: Bench, path: str) -> None:
    async def never() -> Any:
        raise AssertionError("the body was read")
        yield b""

    calls = Calls(create_app(bench.service))
    place = path.format("0" * 32)
    headers = {"Content-Type": "application/json"}
    assert calls("POST", place, content=never(), headers=headers).status_code == 401
    role = bench.service.store.api_keys.put("shop", "verify")
    if path in ("/v1/profiles", "/v1/profiles/{}/enrollments", "/v1/profiles/{}/reset"):
        headers["X-API-Key"] = role
        assert calls("POST", place, content=never(), headers=headers).status_code == 403


@pytest.mark.parametrize("path", POSTS[:5])
@pytest.mark.parametrize("depth", [5_000, 30_000, 100_000])
def test_deeply_nested_json_is_refused_with_its_fault(bench: Bench, path: str, depth: int) -> None:
    headers = {"Content-Type": "application/json"}
    answer = bench.calls(
        "POST", path.format(bench.person(40)), content=b"[" * depth + b"]" * depth, headers=headers
    )
    problem = answer.json()
    if answer.status_code == 413:
        assert f"may have {SMALL_BODY} bytes at most" in problem["detail"]
    else:
        assert (answer.status_code, problem["type"]) == (400, "urn:mvplda:fields")
        assert "nested too deeply" in problem["detail"] or "recursion limit" in problem["detail"]


def test_a_recursion_error_is_a_fault_of_the_body() -> None:
    problem = problem_of(RecursionError("maximum recursion depth exceeded"))
    assert (problem.status_code, problem.kind) == (400, "fields")
    assert "nested too deeply" in str(problem.detail)


def test_json_in_another_encoding_is_named(bench: Bench) -> None:
    headers = {"Content-Type": "application/json"}
    answer = bench.calls("POST", "/v1/profiles", content=b'{"userId": "\xff"}', headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:mvplda:fields")
    assert "UTF-8" in answer.json()["detail"]


def test_json_without_a_vector_is_small(bench: Bench) -> None:
    body = b'{"userId": "' + b"x" * SMALL_BODY + b'"}'
    headers = {"Content-Type": "application/json"}
    answer = bench.calls("POST", "/v1/profiles", content=body, headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (413, "urn:mvplda:too-large")

    async def pieces() -> Any:
        for start in range(0, len(body), 1000):
            yield body[start : start + 1000]

    answer = bench.calls("POST", "/v1/challenges", content=pieces(), headers=headers)
    assert answer.status_code == 413
    # a vector may be longer
    name = bench.person(40)
    padding = {"vector": bench.world.say(40, 0)[0].tolist()}
    text = httpx.Request("POST", "http://x", json=padding).content + b" " * SMALL_BODY
    answer = bench.calls("POST", f"/v1/profiles/{name}/verify", content=text, headers=headers)
    assert answer.status_code == 200


# -- addresses -----------------------------------------------------------------------------


def test_invalid_keys_of_one_address_are_limited_and_valid_ones_work(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(address_failures=10)
    with make_bench(sqlite_store(tmp_path), settings, is_open=False) as bench:
        key = bench.service.store.api_keys.put("desk", "admin")
        lookups: list[str] = []
        find = bench.service.store.api_keys.find

        def counted(key: str) -> Caller | None:
            lookups.append(key)
            return find(key)

        monkeypatch.setattr(bench.service.store.api_keys, "find", counted)
        wrong = [
            bench.calls("GET", "/v1/profiles", headers={"X-API-Key": f"wrong {k}"})
            for k in range(40)
        ]
        statuses = [answer.status_code for answer in wrong]
        assert statuses == [401] * 10 + [429] * 30
        assert int(wrong[-1].headers["retry-after"]) >= 1
        assert len(lookups) == 10
        right = bench.calls("GET", "/v1/profiles", headers={"X-API-Key": key})
        assert right.status_code == 200
    lines = [record for record in caplog.records if record.message == "invalid key"]
    assert 1 <= len(lines) < 10
    assert all("127.0.0.1" in str(record.__dict__["fields"]) for record in lines)
    assert "wrong" not in caplog.text


def test_calls_without_a_key_are_limited_per_address(tmp_path: Path) -> None:
    with make_bench(sqlite_store(tmp_path), Settings(address_rate=5), is_open=False) as bench:
        found = [bench.calls("GET", "/v1/health").status_code for _ in range(7)]
        assert found == [200] * 5 + [429] * 2
        key = bench.service.store.api_keys.put("desk", "admin")
        answer = bench.calls("GET", "/v1/health", headers={"X-API-Key": key})
        assert answer.status_code == 200


def test_a_rate_is_per_address_and_paid_off_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr("mvplda.serve.addresses.time", clock)
    rate = AddressRate(4)
    assert [rate.spend("a") for _ in range(5)] == [0, 0, 0, 0, 15]
    assert rate.spend("b") == 0
    now[0] += 15
    assert [rate.spend("a") for _ in range(2)] == [0, 15]
    # nothing is saved up
    now[0] += 3600
    assert [rate.spend("a") > 0 for _ in range(5)] == [False] * 4 + [True]
    assert AddressRate(0).spend("a") == 0


def test_counts_of_many_addresses_take_limited_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mvplda.serve.addresses.LARGEST_COUNT", 10)
    rate, refused = AddressRate(4), RefusedCalls()
    for k in range(100):
        rate.spend(str(k))
        refused.count(str(k))
    assert len(rate._until) == 10
    assert len(refused._next) <= 10
    assert len(refused._counts) <= 10


def test_addresses_of_ipv6_are_counted_by_network() -> None:
    found = [
        client_address({"client": (host, 1)})
        for host in ("10.0.0.7", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::2", "fe80::1%eth0")
    ]
    assert found[0] == "10.0.0.7"
    assert found[1] == found[2] == "2001:db8::/64"
    assert found[3] != found[1]
    assert client_address({"client": None}) == "unknown"


# -- unfinished bodies ---------------------------------------------------------------------


class Reading:
    """Stands for a request whose body is being read."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_stopped = False

    def stop_reading(self) -> None:
        self.is_stopped = True


def test_the_oldest_unfinished_bodies_are_refused_when_memory_is_short() -> None:
    bodies = UnfinishedBodies(Settings(body_memory=100, address_bodies=3))
    requests = [cast("Any", Reading(f"10.0.0.{k}")) for k in range(4)]
    for request in requests:
        bodies.add(request)
        bodies.count(request, 30)
    assert [request.is_stopped for request in requests] == [True, False, False, False]
    bodies.remove(requests[1])
    assert bodies.size == 60
    bodies.count(requests[3], 200)
    # also the largest itself, if nothing else is left
    assert [request.is_stopped for request in requests[2:]] == [True, True]
    assert bodies.size == 0
    assert not bodies.refuse_oldest()


def test_one_address_has_few_unfinished_bodies() -> None:
    bodies = UnfinishedBodies(Settings(address_bodies=2))
    first, second, third, other = (cast("Any", Reading(a)) for a in ("a", "a", "a", "b"))
    bodies.add(first)
    bodies.add(second)
    bodies.add(other)
    # the oldest makes room: the newest may be the quick one
    bodies.add(third)
    assert [request.is_stopped for request in (first, second, third, other)] == [True, *[False] * 3]
    for request in (first, second, third, other):
        bodies.remove(request)
    assert not bodies.refuse_oldest()


# -- without keys --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header", ["Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "Via", "X-Real-IP"]
)
def test_without_keys_calls_through_a_proxy_are_refused(tmp_path: Path, header: str) -> None:
    with make_bench(sqlite_store(tmp_path)) as bench:
        assert bench.calls("GET", "/v1/profiles").status_code == 200
        answer = bench.calls("GET", "/v1/profiles", headers={header: "for=10.0.0.1"})
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:mvplda:proxy")
        # the first key admits them, at once
        key = bench.service.store.api_keys.put("desk", "admin")
        runtime = bench.calls.app.state.runtime
        runtime.callers._is_open_until = 0.0
        answer = bench.calls(
            "GET", "/v1/profiles", headers={header: "for=10.0.0.1", "X-API-Key": key}
        )
        assert answer.status_code == 200


# -- attacks on a running service ----------------------------------------------------------


def resident(pid: int) -> float:
    """Memory of a process in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no memory")


def request_head(length: int, key: str = "") -> bytes:
    sent_key = f"X-API-Key: {key}\r\n" if key else ""
    return (
        f"POST /v1/profiles/{'0' * 32}/verify HTTP/1.1\r\nHost: 127.0.0.1\r\n{sent_key}"
        f"Content-Type: audio/wav\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def connect(server: Server, count: int, data: bytes) -> list[socket.socket]:
    """Open connections that send some data and stay open."""
    found = []
    for _ in range(count):
        try:
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=2)
            connection.sendall(data)
        except OSError:
            continue
        found.append(connection)
    return found


def count_ready(server: Server, calls: int = 5) -> int:
    """Number of calls with a key that are answered within 10 s; a closed service answers none for 30 s."""
    count = 0
    for _ in range(calls):
        try:
            headers = {"X-API-Key": ADMIN_KEY}
            answer = httpx.get(f"{server.url}/v1/model", headers=headers, timeout=10)
            count += answer.status_code == 200
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    return count


@pytest.fixture
def many_handles() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 5000:
        pytest.skip(f"2,300 connections need 5,000 file handles; the system allows {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 5000), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["half-headers", "no-key", "key"])
def test_thousands_of_slow_bodies_do_not_close_the_service(
    tmp_path: Path, many_handles: None, attack: str
) -> None:
    half = b"POST /v1/profiles HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: "
    heads = {
        "half-headers": half,
        "no-key": request_head(100_000) + b"{",
        "key": request_head(100_000, ADMIN_KEY) + b"{",
    }
    with running_server(tmp_path, "--key-rate", "0", environment=KEYS) as server:
        connections = connect(server, 2300, heads[attack])
        assert count_ready(server) == 5
        for connection in connections:
            connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("key", ["", ADMIN_KEY], ids=["no-key", "key"])
def test_unfinished_bodies_take_limited_memory(tmp_path: Path, key: str) -> None:
    size = 4 * 2**20
    limit = 32 * 2**20
    options = ("--body-memory", str(limit), "--address-bodies", "1000", "--key-rate", "0")
    with running_server(tmp_path, *options, environment=KEYS) as server:
        before = resident(server.process.pid)
        connections = []
        for _ in range(150):
            connection = socket.create_connection(("127.0.0.1", server.port))
            connection.setblocking(False)
            connections.append(connection)
        asyncio.run(send_to_all(connections, request_head(size, key) + b"x" * (size - 10)))
        assert count_ready(server) == 5
        # twice the limit, because a body is joined from its pieces
        assert resident(server.process.pid) - before < 2 * limit / 2**20 + 40
        for connection in connections:
            connection.close()


async def send_to_all(connections: list[socket.socket], data: bytes) -> None:
    """Send data as far as each connection takes it within 20 s."""
    loop = asyncio.get_running_loop()

    async def send(connection: socket.socket) -> None:
        try:
            async with asyncio.timeout(20):
                await loop.sock_sendall(connection, data)
        except (OSError, TimeoutError):
            pass

    await asyncio.gather(*(send(connection) for connection in connections))


# -- file handles --------------------------------------------------------------------------


def test_file_handles_are_checked_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(1024, 1024)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, values: limits.append(values))
    with pytest.raises(ParameterError, match=r"--connections 2000 needs \d+ open files"):
        reserve_file_handles(Settings(connections=2000))
    reserve_file_handles(Settings(connections=500))
    assert len(limits) == 1
    limits[0] = (1024, 524_288)
    reserve_file_handles(Settings(connections=2000))
    assert limits[-1][0] > 2000
    assert limits[-1][1] == 524_288
