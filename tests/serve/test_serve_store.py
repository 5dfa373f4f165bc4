"""Tables of older and newer versions, and the voices in memory against what the database says."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi")

from service_problems import make_bench, sqlite_store
from sqlalchemy.exc import DBAPIError

from mvplda.exceptions import FileFormatError
from mvplda.serve import store as store_module
from mvplda.serve import voice_memory
from mvplda.serve.cells import Cell
from mvplda.serve.model import VOICE
from mvplda.serve.settings import Settings
from mvplda.serve.store import Store
from mvplda.serve.tables import META

STEP = """from alembic import op

revision = "{next}"
down_revision = "{last}"


def upgrade() -> None:
    op.execute("ALTER TABLE profiles ADD COLUMN colour TEXT")
    op.execute("UPDATE profiles SET colour = 'blue'")
"""


LAST = max(
    int(path.stem.rpartition("_")[2])
    for path in (store_module.MIGRATIONS / "versions").glob("version_*.py")
)
NEXT = str(LAST + 1)


def version_of(store: Store) -> str:
    with store.read() as work:
        return work.value("SELECT version_num FROM alembic_version")


def write_step(folder: Path, text: str) -> None:
    path = folder / "versions" / f"version_{NEXT}.py"
    path.write_text(text.format(next=NEXT, last=LAST), encoding="utf-8")


def new_database(kind: str, folder: Path, request: pytest.FixtureRequest) -> str:
    if kind == "postgresql":
        return request.getfixturevalue("postgres").new_database()
    return f"sqlite:///{folder / 'data.sqlite'}"


def check_person(bench, name: str) -> None:
    answer = bench.calls.verify(name, bench.world.say(40, 0)[0]).json()
    assert answer["decision"] == "accept"


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_tables_with_data_are_brought_to_the_next_version(kind, tmp_path, request, monkeypatch):
    url = new_database(kind, tmp_path, request)
    with make_bench(Store(url)) as bench:
        name = bench.person(40)
        assert version_of(bench.service.store) == str(LAST)
    folder = tmp_path / "migrations"
    shutil.copytree(store_module.MIGRATIONS, folder)
    write_step(folder, STEP)
    with monkeypatch.context() as later:
        later.setattr(store_module, "MIGRATIONS", folder)
        for _ in range(2):  # the second start finds nothing to do
            with make_bench(Store(url)) as bench:
                assert version_of(bench.service.store) == NEXT
                with bench.service.store.read() as work:
                    rows = work.run("SELECT id, colour FROM profiles").mappings().all()
                assert rows == [{"id": name, "colour": "blue"}]
                check_person(bench, name)
    # a service of the version before leaves it alone
    with pytest.raises(FileFormatError, match=r"a newer version .*upgrade mvplda"):
        Store(url)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_tables_from_before_alembic_are_taken_over_with_their_data(kind, tmp_path, request):
    url = new_database(kind, tmp_path, request)
    with make_bench(Store(url)) as bench:
        name = bench.person(40)
        with bench.service.store.write() as work:
            work.run("DROP TABLE alembic_version")
            work.run(META.insert(), name="schema", value="1")
    with make_bench(Store(url)) as bench:
        assert version_of(bench.service.store) == str(LAST)
        assert bench.service.store.meta("schema") is None
        check_person(bench, name)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_step_that_fails_changes_nothing(kind, tmp_path, request, monkeypatch):
    url = new_database(kind, tmp_path, request)
    with make_bench(Store(url)) as bench:
        name = bench.person(40)
    folder = tmp_path / "migrations"
    shutil.copytree(store_module.MIGRATIONS, folder)
    write_step(folder, STEP + '    op.execute("UPDATE nothing SET colour = 1")\n')
    with monkeypatch.context() as later:
        later.setattr(store_module, "MIGRATIONS", folder)
        with pytest.raises(DBAPIError):
            Store(url)
    with make_bench(Store(url)) as bench:
        assert version_of(bench.service.store) == str(LAST)
        with bench.service.store.read() as work:
            assert "colour" not in work.run("SELECT * FROM profiles").mappings().all()[0]
        check_person(bench, name)


def test_several_hosts_start_at_once_on_an_empty_database(postgres):
    url = postgres.new_database()
    with ThreadPoolExecutor(6) as pool:
        stores = list(pool.map(lambda _: Store(url), range(6)))
    assert {version_of(store) for store in stores} == {str(LAST)}
    for store in stores:
        store.close()


def test_the_search_for_who_expired_uses_its_index(tmp_path):
    store = sqlite_store(tmp_path)
    with store.read() as work:
        query = voice_memory.EXPIRED.params(since=2.0, before=1.0)
        text = query.compile(compile_kwargs={"literal_binds": True})
        plan = work.run(f"EXPLAIN QUERY PLAN {text}").all()
        assert "profiles_used" in str(plan)
    store.close()


@pytest.mark.slow
def test_voices_in_memory_are_those_of_the_database_whatever_happens_to_them(tmp_path, monkeypatch):
    """Enrolments, uses, deletions and expiry in any order, against scores of what the database holds."""
    monkeypatch.setattr(voice_memory, "GROWTH", 3)
    monkeypatch.setattr(voice_memory, "BATCH", 2)
    rng = np.random.default_rng(0)
    free = Settings(key_rate=0, profile_rate=0, lock_after=10**9, expire_days=10)
    with make_bench(sqlite_store(tmp_path), free) as bench:
        names = [bench.person(30 + k) for k in range(12)]
        model, here = bench.model, bench.service
        for _ in range(60):
            name, speaker = (lambda k: (names[k], 30 + k))(int(rng.integers(12)))
            act = rng.integers(6)
            bench.clock.now += float(rng.uniform(0, 86400))
            if act == 0:
                bench.calls("DELETE", f"/v1/profiles/{name}")
            elif act == 1:
                bench.calls("DELETE", f"/v1/profiles/{name}/enrollments/{rng.integers(1, 5)}")
            elif act == 2:
                bench.calls.enrol(name, bench.world.say(speaker, 0)[0])
            else:
                bench.calls.verify(name, bench.world.say(speaker, 0)[0])
            heard = bench.world.say(int(rng.integers(30, 42)), 0)[0]
            body = {"vector": heard.tolist(), "top": 100}
            asked = rng.choice(names, 5, replace=False).tolist() if rng.integers(2) else names
            body |= {} if asked is names else {"candidates": asked}
            found = bench.calls("POST", "/v1/identify", json=body).json()
            states = {n: bench.calls("GET", f"/v1/profiles/{n}").json() for n in asked}
            there = {n for n, said in states.items() if said.get("state") == "enrolled"}
            assert {row["profileId"] for row in found["candidates"]} == there
            assert found["profilesCount"] == len(there)
            share = model.contributions(heard[None])[0]
            given = {row["profileId"]: row["llr"] for row in found["candidates"]}
            _, ids, llrs = here.index.search.scores(share)
            places = np.flatnonzero(np.isfinite(llrs)).tolist()
            quick = {ids[place]: llrs[place] for place in places}
            for n in there:
                with here.store.read() as work:
                    cells = here.templates.cells(work, here.profiles.row(work, n))
                alone = model.speaker_llrs(model.side([cells], False), share)[0]
                assert given[n] == pytest.approx(alone, abs=1e-5)
                # it chooses whom to score exactly: never below the LLR of the voice, calibrated without the words
                heard_alone = model.side([[Cell("", share, 1)]], False)
                raw = model.scorer.llr(model.side([cells], False), heard_alone, VOICE, dtype=float)
                exact = model.calibrated(raw[0])[0]
                # the lower the LLR, the coarser the bound; such profiles are not named
                size = max(0.0, -exact)
                assert -1e-4 - 5e-4 * size <= quick[n] - exact <= 1.0 + 0.1 * size
