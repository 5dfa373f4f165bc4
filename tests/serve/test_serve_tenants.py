"""Tenants: no call of one reaches people, domain, thresholds, audit or limits of another."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

import sqlalchemy as sa
from click.testing import CliRunner
from fastapi.routing import APIRoute
from service_problems import (
    MASTER_KEY,
    Bench,
    Calls,
    make_bench,
    make_model,
    sqlite_store,
    write_model,
)

from mvplda.cli import main
from mvplda.exceptions import ParameterError
from mvplda.serve.audit import verify_audit
from mvplda.serve.keys import Vault
from mvplda.serve.settings import Settings
from mvplda.serve.store import Store
from mvplda.serve.tables import AUDIT, ENROLMENTS, PROFILES
from mvplda.serve.tenants import (
    apply_settings,
    erase_tenant,
    export_lines,
    list_tenants,
    open_tenant_store,
    put_tenant,
)

FREE = {"key_rate": 0, "profile_rate": 0}


@pytest.fixture(params=["sqlite", "postgresql", "postgresql with keys in a file"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    if request.param == "sqlite":
        return Settings(data=tmp_path, **FREE)
    url = request.getfixturevalue("postgres").new_database()
    key_url = f"sqlite:///{tmp_path / 'keys.sqlite'}" if "file" in request.param else None
    return Settings(data=tmp_path, database=url, key_database=key_url, **FREE)


@pytest.fixture
def shared(settings: Settings) -> Iterator[tuple[Bench, dict[str, Calls]]]:
    """A service with calls of two tenants, and of the service itself."""
    store = Store(settings.database_url, settings.key_url, settings)
    with make_bench(store, settings, is_open=False) as bench:
        calls = {}
        for tenant in ("acme", "globex", None):
            if tenant is not None:
                assert put_tenant(store, settings, tenant, {})
            key = store.api_keys.put(f"key of {tenant}", "admin", tenant=tenant)
            calls[str(tenant)] = Calls(bench.calls.app, {"X-API-Key": key})
        yield bench, calls
        bench.calls.app.state.runtime.close()


def enrolled(bench: Bench, calls: Calls, speaker: int, user: str) -> str:
    name = calls.create("open the door", user)
    for vector in bench.world.say(speaker, 0, 3):
        assert calls.enrol(name, vector).status_code == 201
    return name


def routes() -> list[tuple[str, str]]:
    """Return method and path of every endpoint."""
    from mvplda.serve.routes import router

    return sorted(
        (method, route.path)
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods
    )


def test_no_route_reaches_the_people_of_another_tenant(
    shared: tuple[Bench, dict[str, Calls]],
) -> None:
    bench, calls = shared
    name = enrolled(bench, calls["acme"], 40, "zebedee-of-acme")
    vector = bench.world.say(40, 0)[0].tolist()
    decision = calls["acme"].verify(name, bench.world.say(40, 0)[0]).json()
    asked = calls["acme"]("POST", "/v1/challenges", json={"profileId": name}).json()
    challenge = asked["challengeId"]
    secrets = (name, "zebedee-of-acme", decision["resultId"], challenge)
    bodies: dict[str, Any] = {
        "/v1/profiles/{profile_id}/verify": {"vector": vector, "challengeId": challenge},
        "/v1/profiles/{profile_id}/enrollments": {"vector": vector, "phrase": "open the door"},
        "/v1/identify": {"vector": vector, "candidates": [name], "top": 100},
        "/v1/challenges": {"profileId": name},
        "/v1/profiles": {"consent": {"given": True}},
    }
    queries = ("", "?userId=zebedee-of-acme", "?search=zebedee", f"?profileId={name}")
    for stranger in ("globex", "None"):
        for method, path in routes():
            url = path.format(profile_id=name, number=1)
            body = {"json": bodies[path]} if method == "POST" and path in bodies else {}
            for query in queries if method == "GET" else ("",):
                answer = calls[stranger](method, url + query, **body)
                assert answer.status_code < 500, (method, url)
                found = answer.text.replace(f'"instance":"{url}"', "")
                assert not any(secret in found for secret in secrets), (method, url, found)
                if "{profile_id}" in path:
                    assert answer.status_code == 404, (method, url, answer.text)
    # everything of the owner is as before
    after = calls["acme"]("GET", f"/v1/profiles/{name}").json()
    assert (after["state"], after["enrollmentsCount"]) == ("enrolled", 3)
    again = calls["acme"]("POST", "/v1/challenges", json={"profileId": name}).json()
    assert again["challengeId"] == challenge
    found = calls["acme"]("POST", "/v1/identify", json={"vector": vector}).json()
    assert [row["profileId"] for row in found["candidates"]] == [name]


def test_the_domain_of_a_tenant_is_that_of_its_people(
    shared: tuple[Bench, dict[str, Calls]], tmp_path: Path
) -> None:
    bench, calls = shared
    name = enrolled(bench, calls["acme"], 40, "ann")
    test = bench.world.say(40, 0)[0]
    before = calls["acme"].verify(name, test).json()["llr"]
    for k in range(6):
        enrolled(bench, calls["globex"], 41 + k, f"person {k}")
        enrolled(bench, calls["None"], 41 + k, f"person {k}")
    other = bench.world.say(40, 0)[0]
    llrs = [calls["acme"].verify(name, other).json()["llr"]]
    assert llrs[0] != before
    # a tenant with one person decides as a service with one person
    folder = tmp_path / "alone"
    folder.mkdir()
    with make_bench(sqlite_store(folder), Settings(**FREE)) as alone:
        # the world draws the same recordings again
        twin = enrolled(alone, alone.calls, 40, "ann")
        assert alone.calls.verify(twin, test).status_code == 200
        llrs.append(alone.calls.verify(twin, other).json()["llr"])
    assert llrs[0] == pytest.approx(llrs[1], abs=1e-4)


def test_thresholds_and_limits_are_those_of_the_tenant(
    shared: tuple[Bench, dict[str, Calls]], settings: Settings
) -> None:
    bench, calls = shared
    store = bench.service.store
    put_tenant(store, settings, "acme", {"far": 0.05, "lock_after": 1, "enrolments": 2})
    put_tenant(store, settings, "globex", {"key_rate": 60})
    bench.calls.app.state.runtime._tenants._checked.clear()
    thresholds = {tenant: calls[tenant]("GET", "/v1/model").json()["threshold"] for tenant in calls}
    assert thresholds["acme"] == 2.0
    assert thresholds["globex"] == thresholds["None"] == 4.0
    name = enrolled(bench, calls["acme"], 40, "ann")
    assert calls["acme"].verify(name, bench.world.say(9, 3)[0]).json()["decision"] == "reject"
    assert calls["acme"].verify(name, bench.world.say(40, 0)[0]).status_code == 429
    statuses = [calls["globex"]("GET", "/v1/profiles").status_code for _ in range(70)]
    assert statuses[0] == 200
    assert statuses[-1] == 429
    assert calls["None"]("GET", "/v1/profiles").status_code == 200
    refused = calls["acme"]("GET", "/v1/audit?action=refuse").json()["items"]
    assert [row["reason"] for row in refused] == ["locked"]


def test_audits_are_chains_of_their_own(
    shared: tuple[Bench, dict[str, Calls]], settings: Settings
) -> None:
    bench, calls = shared
    enrolled(bench, calls["acme"], 40, "ann")
    enrolled(bench, calls["globex"], 41, "bob")
    actions = [row["action"] for row in calls["acme"]("GET", "/v1/audit").json()["items"]]
    assert actions == ["enrol"] * 3 + ["create"]
    vault = Vault(MASTER_KEY)
    changed = open_tenant_store(settings, "acme")
    with changed.database.begin() as connection:
        connection.execute(AUDIT.update().where(AUDIT.c.id == 2).values(caller="nobody"))
    assert verify_audit(changed, vault).findings == ["changed: entry 2"]
    other = open_tenant_store(settings, "globex")
    assert verify_audit(other, vault).findings == []
    for store in (changed, other):
        store.close()


def test_a_tenant_is_exported_and_erased(
    shared: tuple[Bench, dict[str, Calls]], settings: Settings
) -> None:
    bench, calls = shared
    store, runtime = bench.service.store, bench.calls.app.state.runtime
    names = {enrolled(bench, calls["acme"], 40 + k, f"person {k}") for k in range(2)}
    other = enrolled(bench, calls["globex"], 40, "bob")
    lines = [json.loads(line) for line in export_lines(runtime._tenants.find("acme"))]
    people = [line for line in lines if "profile" in line]
    assert {line["profile"]["profileId"] for line in people} == names
    assert {line["profile"]["userId"] for line in people} == {"person 0", "person 1"}
    assert [line["audit"]["action"] for line in lines if "audit" in line].count("enrol") == 6
    runtime.callers._cache.clear()
    erase_tenant(store, settings, "acme")
    assert [tenant.name for tenant in list_tenants(store)] == ["globex"]
    assert calls["acme"]("GET", "/v1/profiles").status_code == 401
    assert calls["globex"]("GET", f"/v1/profiles/{other}").status_code == 200
    assert not list(settings.data.rglob("acme"))
    if store.is_postgres:
        with store.read() as work:
            schemas = work.run("SELECT schema_name FROM information_schema.schemata").scalars()
            assert "tenant_acme" not in set(schemas)
    # the same name is another tenant
    assert put_tenant(store, settings, "acme", {})
    calls["acme"].headers["X-API-Key"] = store.api_keys.put("new", "admin", tenant="acme")
    runtime._tenants._checked.clear()
    assert calls["acme"]("GET", "/v1/profiles").json()["items"] == []
    enrolled(bench, calls["acme"], 40, "ann")
    with pytest.raises(ParameterError, match="no tenant"):
        erase_tenant(store, settings, "umbrella")


def test_a_key_of_a_missing_tenant_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mvplda.serve.api_keys import environment_keys

    monkeypatch.setenv("MVPLDA_API_KEYS", "shop:admin,tenant=acme:0123456789abcdef")
    settings = Settings(data=tmp_path, **FREE)
    with make_bench(
        Store(settings.database_url, settings.key_url), settings, is_open=False
    ) as bench:
        bench.service.store.api_keys.environment = environment_keys()
        calls = Calls(bench.calls.app, {"X-API-Key": "0123456789abcdef"})
        answer = calls("GET", "/v1/profiles")
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:mvplda:tenant")
        put_tenant(bench.service.store, settings, "acme", {})
        assert calls("GET", "/v1/profiles").status_code == 200
        bench.calls.app.state.runtime.close()


@pytest.mark.parametrize("name", ["", "Acme", "a b", "../x", "1a", "a" * 41, "a_b"])
def test_names_of_tenants_are_plain(tmp_path: Path, name: str) -> None:
    store = sqlite_store(tmp_path)
    with pytest.raises(ParameterError, match="expected a name"):
        put_tenant(store, Settings(), name, {})
    store.close()


def test_settings_of_tenants_are_checked() -> None:
    assert apply_settings(Settings(), {"far": "0.001"}).far == 0.001
    with pytest.raises(ParameterError, match="got 'database'"):
        apply_settings(Settings(), {"database": "sqlite:///other"})
    with pytest.raises(ParameterError, match="far"):
        apply_settings(Settings(), {"far": 2})


def test_commands_make_check_rotate_export_and_erase_tenants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (base64.b64encode(bytes([k]) * 32).decode() for k in b"mn")
    monkeypatch.setenv("MVPLDA_MASTER_KEY", old)
    data = tmp_path / "data"
    model = str(write_model(tmp_path))

    def run(*arguments: str, code: int = 0) -> str:
        options = ["--data", str(data), "--model", model]
        done = CliRunner().invoke(main, ["serve", *options, *arguments])
        assert done.exit_code == code, (done.output, done.exception)
        return done.output

    assert run("tenant", "acme", "--set", "far=0.05") == "the tenant acme is created\n"
    assert run("tenant", "acme", "--set", "lock-after=9") == "the tenant acme is changed\n"
    assert run("tenant", "acme", "--set", "far=") == "the tenant acme is changed\n"
    assert run("tenant") == 'acme {"lock_after": "9"}\n'
    assert "expected a setting that a tenant can have" in run(
        "tenant", "acme", "--set", "port=1", code=1
    )
    assert "no tenant" in run("key", "shop", "--tenant", "umbrella", code=2)
    key = run("key", "shop", "--role", "admin", "--tenant", "acme").strip()
    settings = Settings(data=data, key_rate=0)
    with make_bench(
        Store(settings.database_url, settings.key_url), settings, make_model(), is_open=False
    ) as bench:
        calls = Calls(bench.calls.app, {"X-API-Key": key})
        name = enrolled(bench, calls, 40, "ann")
        bench.calls.app.state.runtime.close()
    lines = run("check").splitlines()
    assert lines == [
        "opened 0 profiles with 0 recordings",
        "tenant acme: opened 1 profiles with 3 recordings",
    ]
    assert (
        json.loads(run("tenant", "acme", "--export").splitlines()[0])["profile"]["userId"] == "ann"
    )
    assert len(run("audit", "--tenant", "acme").splitlines()) == 5
    assert "verified 5 entries" in run("audit", "--tenant", "acme", "--verify")
    monkeypatch.setenv("MVPLDA_NEW_MASTER_KEY", new)
    assert "1 profiles are encrypted with the new master key" in run("rotate")
    monkeypatch.delenv("MVPLDA_NEW_MASTER_KEY")
    monkeypatch.setenv("MVPLDA_MASTER_KEY", new)
    assert run("check").splitlines() == lines
    store = open_tenant_store(settings, "acme")
    with store.database.begin() as connection:
        masters = connection.execute(sa.select(ENROLMENTS.c.master).distinct()).scalars().all()
        assert connection.execute(sa.select(PROFILES.c.id)).scalars().all() == [name]
    assert len(masters) == 1
    store.close()
    assert run("tenant", "acme", "--erase") == "the tenant acme is erased\n"
    assert run("tenant") == ""
