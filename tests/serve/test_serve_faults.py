"""What the service does when things go wrong: killed, out of disk, without its database, fed with nonsense."""

from __future__ import annotations

import base64
import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

pytest.importorskip("fastapi")

import sqlalchemy as sa
from service_client import Client
from service_problems import MASTER_KEY, Calls, make_bench, make_world, running_server, sqlite_store
from sqlalchemy.exc import OperationalError

from mvplda import load_extractor
from mvplda.serve.app import create_app
from mvplda.serve.model import Model
from mvplda.serve.model_loading import MODEL_FOLDER
from mvplda.serve.service import Service
from mvplda.serve.settings import Settings
from mvplda.serve.store import Store

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_what_was_acknowledged_survives_kill(kind, tmp_path, request, monkeypatch):
    """A thousand enrolments with some kills; benchmarks/service_faults.py does ten thousand."""
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setenv("MVPLDA_MASTER_KEY", base64.b64encode(b"k" * 32).decode())
    from benchmarks import service_faults

    database = request.getfixturevalue("postgres").new_database() if kind == "postgresql" else None
    found = service_faults.run(600, 150, database, tmp_path)
    assert found["acknowledged"] >= 600
    assert found["kills"] >= 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_two_processes_lose_no_update(kind, tmp_path, request):
    key = {"MVPLDA_MASTER_KEY": base64.b64encode(b"k" * 32).decode()}
    options: list[str] = []
    if kind == "postgresql":
        options = ["--database", request.getfixturevalue("postgres").new_database()]
    (tmp_path / "more").mkdir()
    shared = [*options] if options else ["--database", f"sqlite:///{tmp_path / 'shared.sqlite'}"]
    # processes poll for the lock of SQLite, without an order
    shared += ["--lock-timeout-s", "60", "--answer-s", "60"]
    with (
        running_server(tmp_path, *shared, environment=key) as one,
        running_server(tmp_path / "more", *shared, environment=key) as two,
    ):
        clients = [Client(server.url, timeout=120) for server in (one, two)]
        ann = clients[0].create("ann", "open the door")
        vectors = make_world().say(40, 0, 20)
        with ThreadPoolExecutor(4) as pool:
            numbers = list(
                pool.map(
                    lambda k: clients[k % 2].enrol(ann, vectors[k])["enrollmentId"],
                    range(len(vectors)),
                )
            )
        assert sorted(numbers) == list(range(1, 21))
        assert [client("GET", f"profiles/{ann}")["enrollmentsCount"] for client in clients] == [
            20,
            20,
        ]
        found = [
            client.identify(make_world(0).say(40, 0)[0])["candidates"][0]["llr"]
            for client in clients
        ]
        clients[1]("DELETE", f"profiles/{ann}")
        assert clients[0].identify(vectors[0])["candidates"] == []
        assert found[0] == found[1]


@pytest.mark.slow
def test_many_calls_at_once_have_connections_enough(tmp_path, postgres):
    """Where data keys lie in the same database, a decision holds one connection while it wants another."""
    key = {"MVPLDA_MASTER_KEY": base64.b64encode(b"k" * 32).decode()}
    with running_server(tmp_path, "--database", postgres.new_database(), environment=key) as server:
        client, world = Client(server.url, timeout=120), make_world()
        names = [client.create("ann", "open the door") for _ in range(4)]
        for name in names:
            for vector in world.say(40, 0, 3):
                client.enrol(name, vector)
        heard = world.say(40, 0, 120)
        with ThreadPoolExecutor(60) as pool:
            found = list(
                pool.map(lambda k: client.verify(names[k % 4], heard[k])["decision"], range(120))
            )
    assert len(found) == 120


def test_a_full_disk_is_an_answer_and_changes_nothing(tmp_path):
    with make_bench(sqlite_store(tmp_path)) as bench:
        name = bench.person(40)
        before = bench.calls("GET", f"/v1/profiles/{name}").json()

        @sa.event.listens_for(bench.service.store.database.engine, "checkout")
        def small(connection, record, proxy):
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count={pages}").close()

        statuses = [bench.calls.enrol(name, v).status_code for v in bench.world.say(40, 0, 30)]
        assert statuses[-1] == 507
        full = statuses.index(507)
        sa.event.remove(bench.service.store.database.engine, "checkout", small)

        @sa.event.listens_for(bench.service.store.database.engine, "checkout")
        def large(connection, record, proxy):
            connection.execute("PRAGMA max_page_count=1000000").close()

        after = bench.calls("GET", f"/v1/profiles/{name}").json()
        assert after["enrollmentsCount"] == before["enrollmentsCount"] + full
        assert bench.calls.enrol(name, bench.world.say(40, 0)[0]).status_code == 201


@pytest.mark.slow
def test_a_database_that_goes_away_and_comes_back(postgres):
    store = Store(postgres.new_database())
    with make_bench(store) as bench:
        name = bench.person(40)
        postgres.stop("immediate")
        try:
            gone = bench.calls.verify(name, bench.world.say(40, 0)[0])
            assert (gone.status_code, gone.json()["type"]) == (503, "urn:mvplda:database")
            assert "retry-after" in gone.headers
            assert bench.calls("GET", "/v1/ready").status_code == 503
            assert bench.calls("GET", "/v1/health").status_code == 200
        finally:
            postgres.start()
        assert bench.calls("GET", "/v1/ready").status_code == 200
        assert bench.calls.verify(name, bench.world.say(40, 0)[0]).json()["decision"] == "accept"


@pytest.fixture(scope="module")
def speech():
    """Bytes of something like speech, in several formats."""
    soundfile = pytest.importorskip("soundfile")
    import io

    from test_serve_security import speechlike

    found = []
    for kind, subtype in (("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("OGG", "VORBIS")):
        file = io.BytesIO()
        soundfile.write(file, speechlike(1.5), 16000, format=kind, subtype=subtype)
        found.append(file.getvalue())
    return found


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Cut, with bytes changed, or with a stretch repeated."""
    how = rng.integers(4)
    if how == 0:
        return data[: int(rng.integers(0, len(data)))]
    changed = bytearray(data)
    top = 64 if how == 1 else len(data)
    for place in rng.integers(0, top, 1 + int(rng.integers(8))):
        changed[place] = int(rng.integers(256))
    if how == 3:
        start = int(rng.integers(0, len(data)))
        return bytes(changed[:start]) + data[: int(rng.integers(0, 400))] + bytes(changed[start:])
    return bytes(changed)


def small_service(store: Store) -> Service:
    """With the small network, and a model of drawn vectors of its width: what is decided does not matter."""
    from mvplda import Bundle, MultiviewPLDA

    extractor = load_extractor(MODEL_FOLDER / "small.onnx")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, extractor.dimension))
    labels = {"speaker": np.arange(80) % 8, "phrase": np.arange(80) // 8 % 5}
    scorer = MultiviewPLDA({"speaker": 2, "phrase": 2}, max_iter=1, tol=0)
    bundle = Bundle(None, scorer, extractor=extractor.name).fit(X, labels)
    rules = Settings(key_rate=0, profile_rate=0, lock_after=10**9)
    return Service(store, MASTER_KEY, Model(bundle, extractor), rules)


@pytest.mark.filterwarnings("ignore")
def test_damaged_recordings_are_refused_or_heard_and_never_crash(tmp_path, speech):
    service = small_service(sqlite_store(tmp_path))
    calls = Calls(create_app(service, is_open=True))
    name, rng = calls.create(), np.random.default_rng(0)
    seen = set()
    for k in range(60):
        body = damaged(speech[k % len(speech)], rng)
        path = f"/v1/profiles/{name}/" + ("enrollments" if k % 2 else "verify")
        seen.add(
            calls("POST", path, content=body, headers={"Content-Type": "audio/wav"}).status_code
        )
    assert seen <= {200, 201, 422}
    assert 422 in seen
    service.store.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_schemathesis_finds_no_server_error(tmp_path):
    schemathesis = pytest.importorskip("schemathesis")
    rules = Settings(key_rate=0, profile_rate=0, lock_after=10**9)
    with make_bench(sqlite_store(tmp_path), rules) as bench:
        name = bench.person(40)
        seen: list[int] = []

        def check(case):
            if "profile_id" in (case.path_parameters or {}) and len(seen) % 2:
                case.path_parameters["profile_id"] = name
            sent = case.as_transport_kwargs(base_url="http://localhost")
            options = {
                k: sent[k]
                for k in ("params", "headers", "json", "data", "files", "cookies")
                if sent.get(k)
            }
            if isinstance(options.get("data"), bytes):
                options["content"] = options.pop("data")
            try:
                request = httpx.Request(sent["method"], sent["url"], **options)
                body, headers = request.read(), dict(request.headers)
            except (httpx.InvalidURL, AttributeError, UnicodeError, TypeError, ValueError):
                return  # what no client can send
            answer = bench.calls(sent["method"], str(request.url), content=body, headers=headers)
            seen.append(answer.status_code)
            assert answer.status_code < 500, (sent, answer.text)

        for found in schemathesis.openapi.from_dict(
            bench.calls("GET", "/openapi.json").json()
        ).get_all_operations():
            strategy = found.ok().as_strategy()
            settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))(
                given(strategy)(check)
            )()
        assert len(seen) > 100
        assert {200, 404, 422} <= set(seen)


def test_callers_cannot_make_counters(tmp_path):
    with make_bench(sqlite_store(tmp_path)) as bench:
        for k in range(30):
            bench.calls(f"ODD{k}", f"/v1/odd{k}")
        assert "ODD" not in bench.calls("GET", "/metrics").text


@pytest.mark.slow
def test_memory_does_not_grow(tmp_path):
    """Some hundred decisions; a soak of minutes is in benchmarks/service.py."""
    resource = pytest.importorskip("resource")
    with make_bench(sqlite_store(tmp_path), Settings(key_rate=0, profile_rate=0)) as bench:
        name = bench.person(40)

        def some(count: int) -> None:
            for _ in range(count):
                bench.calls.verify(name, bench.world.say(40, 0)[0])

        some(40)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        some(120)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 20_000 * (1 if sys.platform == "linux" else 1024)


@pytest.mark.parametrize("are_keys_apart", [True, False])
def test_a_deletion_that_fails_says_what_is_gone(tmp_path, are_keys_apart, monkeypatch):
    store = sqlite_store(tmp_path)
    if not are_keys_apart:
        store.close()
        store = Store(f"sqlite:///{tmp_path / 'alone.sqlite'}")
    with make_bench(store) as bench:
        name = bench.person(40)
        with monkeypatch.context() as patched:
            failure = OperationalError("DELETE", {}, sqlite3.OperationalError("disk I/O error"))
            patched.setattr(bench.service.templates, "wipe", Mock(side_effect=failure))
            answer = bench.calls("DELETE", f"/v1/profiles/{name}")
        assert answer.status_code == 503
        detail = answer.json()["detail"]
        found = bench.calls.verify(name, bench.world.say(40, 0)[0])
        if are_keys_apart:
            assert detail.startswith("the voice is erased")
            # its sums may still be in memory; nothing reads them again
            bench.service.templates.forget(name)
            assert bench.calls.verify(name, bench.world.say(40, 0)[0]).status_code == 409
        else:
            assert "nothing was changed" in detail
            assert found.status_code == 200
        assert bench.calls("DELETE", f"/v1/profiles/{name}").status_code == 200
        assert bench.calls("GET", f"/v1/profiles/{name}").status_code == 410
