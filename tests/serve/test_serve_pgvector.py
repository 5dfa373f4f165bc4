"""Whose voice it is, searched in PostgreSQL by pgvector: the answers are those of the search in memory."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")

import service_postgres
from domain_problems import domain_bundle, make_place
from service_problems import (
    MASTER_KEY,
    SERVED,
    Bench,
    Calls,
    make_bench,
    make_bundle,
    sqlite_store,
)

from mvplda.exceptions import ParameterError
from mvplda.serve import index as index_module
from mvplda.serve import vector_table
from mvplda.serve.app import create_app
from mvplda.serve.keys import MasterKey
from mvplda.serve.master_rotation import rotate_database
from mvplda.serve.model import Model
from mvplda.serve.service import Service
from mvplda.serve.settings import Settings
from mvplda.serve.store import Store

FREE = {"key_rate": 0, "profile_rate": 0, "lock_after": 10**9, "expire_days": 10}
BY_VECTORS = Settings(**FREE, search="pgvector")
IN_MEMORY = Settings(**FREE)


@pytest.fixture(scope="module")
def vectors() -> Iterator[Any]:
    with service_postgres.running("vector") as server:
        if server is None:
            pytest.skip("there is no PostgreSQL with pgvector here: pip install pgserver has one")
        yield server


def other(bench: Bench, settings: Settings = IN_MEMORY) -> Service:
    """Another instance on the same database."""
    return Service(bench.service.store, MASTER_KEY, bench.model, settings)


def ask(service: Service, vector: np.ndarray, **more: Any) -> dict[str, Any]:
    body = {"vector": vector.tolist(), "top": 8, **more}
    answer = Calls(create_app(service, is_open=True))("POST", "/v1/identify", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def is_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name in ("identified", "profilesCount"):
        assert found[name] == expected[name]
    assert found["noneOfThem"] == pytest.approx(expected["noneOfThem"], abs=1e-3)
    for name in ("llr", "probability"):
        values = [[row[name] for row in one["candidates"]] for one in (found, expected)]
        np.testing.assert_allclose(*values, rtol=0, atol=1e-3 if name == "probability" else 1e-6)
    # those who are hardly possible all have the LLR of the calibration's doubt
    likely = [
        [row["profileId"] for row in one["candidates"] if row["llr"] > -5]
        for one in (found, expected)
    ]
    assert likely[0] == likely[1]


def stored(service: Service) -> list[dict[str, Any]]:
    with service.store.read() as work:
        rows = work.run(
            "SELECT profile, version, CAST(vector AS real[]) AS v FROM voice_vectors ORDER BY 1, 3"
        )
        return [dict(row) for row in rows.mappings()]


@pytest.mark.parametrize("name", SERVED)
def test_every_scorer_answers_as_in_memory(vectors, name):
    store = Store(vectors.new_database())
    with make_bench(store, BY_VECTORS, Model(make_bundle(1, name))) as bench:
        memory = other(bench)
        is_same(
            ask(bench.service, bench.world.say(40, 0)[0]), ask(memory, bench.world.say(40, 0)[0])
        )
        names = [bench.person(30 + k, k % 2) for k in range(14)]
        # another number of recordings
        bench.calls.enrol(names[3], bench.world.say(33, 0)[0])
        for speaker in (31, 33, 36, 55):
            heard = bench.world.say(speaker, 0)[0]
            is_same(ask(bench.service, heard), ask(memory, heard))
            some = {"candidates": names[:5]}
            is_same(ask(bench.service, heard, **some), ask(memory, heard, **some))
        assert {row["profile"] for row in stored(bench.service)} == set(names)


def test_whatever_happens_to_profiles_the_answer_is_the_exact_one(vectors, monkeypatch):
    """Enrolments, deletions, uses and expiry in any order, in batches that do not hold all."""
    monkeypatch.setattr(vector_table, "WRITE_LIMIT", 4)
    monkeypatch.setattr(index_module, "CANDIDATE_COUNT", 3)
    rng = np.random.default_rng(0)
    with make_bench(Store(vectors.new_database()), BY_VECTORS) as bench:
        names = [bench.person(30 + k) for k in range(12)]
        model, here, memory = bench.model, bench.service, other(bench)
        for _ in range(25):
            k = int(rng.integers(12))
            act = rng.integers(6)
            bench.clock.now += float(rng.uniform(0, 86400))
            if act == 0:
                bench.calls("DELETE", f"/v1/profiles/{names[k]}")
                assert names[k] not in {row["profile"] for row in stored(here)}
            elif act == 1:
                bench.calls("DELETE", f"/v1/profiles/{names[k]}/enrollments/{rng.integers(1, 5)}")
            elif act == 2:
                bench.calls.enrol(names[k], bench.world.say(30 + k, 0)[0])
            else:
                bench.calls.verify(names[k], bench.world.say(30 + k, 0)[0])
            heard = bench.world.say(int(rng.integers(30, 42)), 0)[0]
            found = ask(here, heard)
            is_same(found, ask(memory, heard))
            for row in found["candidates"]:
                with here.store.read() as work:
                    cells = here.templates.cells(work, here.profiles.row(work, row["profileId"]))
                alone = model.speaker_llrs(
                    model.side([cells], False), model.contributions(heard[None])[0]
                )[0]
                assert row["llr"] == pytest.approx(alone, abs=1e-5)


def test_vectors_follow_the_domain_of_what_is_enrolled(vectors):
    place = make_place(11, size=0.2)
    with make_bench(Store(vectors.new_database()), BY_VECTORS, Model(domain_bundle())) as bench:
        names = []
        versions = set()
        memory = other(bench)
        for person in range(6):
            names.append(bench.calls.create("open the door", f"person {person}"))
            for vector in place.say(person, 0, 3):
                assert bench.calls.enrol(names[-1], vector).status_code == 201
            heard = place.say(person, 2)[0]
            is_same(ask(bench.service, heard), ask(memory, heard))
            own = {row["version"] for row in stored(bench.service)}
            assert len(own) == 1
            versions |= own
        assert len(versions) == 6
        # a verification moves no domain
        before = stored(bench.service)
        bench.calls.verify(names[0], place.say(0, 0)[0])
        ask(bench.service, place.say(0, 2)[0])
        assert stored(bench.service) == before


def test_vectors_go_with_the_person_whoever_erases_and_with_the_master_key(vectors):
    url = vectors.new_database()
    with make_bench(Store(url), BY_VECTORS) as bench:
        names = [bench.person(30 + k) for k in range(4)]
        heard = bench.world.say(31, 0)[0]
        expected = ask(bench.service, heard)
        first = stored(bench.service)
        # by an instance that searches in memory
        Calls(create_app(other(bench), is_open=True))("DELETE", f"/v1/profiles/{names[0]}")
        assert {row["profile"] for row in stored(bench.service)} == set(names[1:])
        # what is stored is not the index, and products of profiles are as in the index
        kept = bench.calls("GET", f"/v1/profiles/{names[1]}/export").json()["kept"]
        assert "not encrypted" in kept
        search: Any = bench.service.index.search
        version = search._current[1]
        rows = np.array([row["v"] for row in first])
        assert np.abs(rows @ version.rotation.T - rows).max() > 0.1
        # somebody empties the table, as a crash does
        with bench.service.store.write() as work:
            work.run("TRUNCATE voice_vectors")
        assert ask(bench.service, heard)["identified"] == expected["identified"]
        new = MasterKey(b"n" * 32, "test")
        store = Store(url)
        rotate_database(store, MASTER_KEY, new)
        assert stored(bench.service) == []
        store.clock = bench.clock
        turned = Service(store, new, Model(make_bundle(1)), BY_VECTORS)
        again = ask(turned, heard)
        assert again["identified"] == expected["identified"]
        assert again["candidates"][0]["llr"] == pytest.approx(
            expected["candidates"][0]["llr"], abs=1e-5
        )
        after = np.array([row["v"] for row in stored(turned)])
        assert np.abs(after[:, None] - rows[None]).max(axis=2).min() > 1e-3
        store.close()


def test_questions_and_changes_at_once(vectors):
    url = vectors.new_database()
    with make_bench(Store(url), BY_VECTORS) as bench:
        names = [bench.person(30 + k) for k in range(8)]
        two = [bench.service, other(bench, BY_VECTORS)]
        tests = [bench.world.say(30 + k % 8, 0)[0] for k in range(24)]

        def act(k: int) -> None:
            if k % 3 == 0:
                bench.calls.enrol(names[k % 8], tests[k])
            found = ask(two[k % 2], tests[k])
            assert found["profilesCount"] == 8
            assert found["candidates"][0]["profileId"] == names[k % 8]

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(act, range(24)))
        memory = other(bench)
        for heard in tests[:3]:
            is_same(ask(two[1], heard), ask(memory, heard))


def test_without_postgresql_or_its_extension_it_says_what_is_missing(tmp_path, postgres):
    with pytest.raises(ParameterError, match="needs PostgreSQL, but the database is SQLite"):
        Service(sqlite_store(tmp_path), MASTER_KEY, Model(make_bundle(1)), BY_VECTORS)
    if service_postgres.has_extension(postgres.programs, "vector"):
        pytest.skip("this PostgreSQL has pgvector")
    store = Store(postgres.new_database())
    with pytest.raises(ParameterError, match=r"needs the extension pgvector.*CREATE EXTENSION"):
        Service(store, MASTER_KEY, Model(make_bundle(1)), BY_VECTORS)
    store.close()
