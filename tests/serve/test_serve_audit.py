"""The audit: changed, removed, added and re-ordered entries are named; floods of refusals are one entry."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

import sqlalchemy as sa
from click.testing import CliRunner
from service_problems import MASTER_KEY, Bench, make_bench, sqlite_store

from mvplda.cli import main
from mvplda.serve.audit import (
    AUDIT_KEY,
    CHAINS,
    open_audit,
    parse_receipt,
    receipt_text,
    rewrap_audit_key,
    verify_audit,
)
from mvplda.serve.keys import Caller, KeyRing, MasterKey, Vault
from mvplda.serve.service import Service
from mvplda.serve.settings import Settings
from mvplda.serve.store import DAY, Store, Transaction
from mvplda.serve.tables import AUDIT, AUDIT_HEADS, META

VAULT = Vault(MASTER_KEY)
LOCKING = Settings(lock_after=1, lock_s=600, profile_rate=0, key_rate=0)


@pytest.fixture(params=["sqlite", "postgresql"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "sqlite":
        store = sqlite_store(tmp_path)
    else:
        store = Store(request.getfixturevalue("postgres").new_database())
    with make_bench(store, LOCKING) as found:
        for k in range(3):
            found.person(40 + k)
        yield found


def findings(bench: Bench) -> list[str]:
    return verify_audit(bench.service.store, VAULT).findings


def rows(bench: Bench) -> list[Any]:
    """Return the entries of the first chain."""
    with bench.service.store.read() as work:
        return list(work.run(sa.select(AUDIT).where(AUDIT.c.chain == 0).order_by(AUDIT.c.id)))


def change(bench: Bench, *statements: sa.Executable) -> None:
    """Execute statements as somebody who can write to the database, and has no key."""
    with bench.service.store.database.begin() as connection:
        for statement in statements:
            connection.execute(statement)


def entry(number: int) -> sa.ColumnElement[bool]:
    return AUDIT.c.id == number


def test_an_untouched_audit_has_no_findings(bench: Bench) -> None:
    report = bench.service.verify_audit()
    assert report.findings == []
    assert report.entries == len(rows(bench)) >= 12
    assert set(report.receipt) == set(range(CHAINS))
    # another start goes on with the same chains
    Service(bench.service.store, MASTER_KEY, bench.model)
    bench.person(43)
    assert findings(bench) == []


CHANGES: dict[str, Callable[[Any], sa.Executable]] = {
    column: lambda row, column=column, value=value: (  # type: ignore[misc]
        AUDIT.update().where(entry(row.id)).values({column: value})
    )
    for column, value in {
        "at": 1.0,
        "caller": "nobody",
        "action": "create",
        "profile": "0" * 32,
        "result_id": "1" * 32,
        "detail": "{}",
        "mac": "0" * 64,
    }.items()
}


@pytest.mark.parametrize("column", CHANGES)
def test_a_changed_entry_is_named(bench: Bench, column: str) -> None:
    row = rows(bench)[5]
    change(bench, CHANGES[column](row))
    assert f"changed: entry {row.id}" in findings(bench)


def test_removed_entries_are_named(bench: Bench) -> None:
    found = rows(bench)
    change(bench, AUDIT.delete().where(AUDIT.c.id.in_([found[4].id, found[5].id])))
    assert findings(bench) == [
        f"removed: 2 entries between entries {found[3].id} and {found[6].id}"
    ]
    change(bench, AUDIT.delete().where(entry(found[0].id)))
    assert len(findings(bench)) == 2


def test_a_truncated_audit_is_named(bench: Bench) -> None:
    found = rows(bench)
    change(bench, AUDIT.delete().where(AUDIT.c.id >= found[-3].id))
    expected = f"removed: the last 3 entries of chain 0, after entry {found[-4].id}"
    assert findings(bench) == [expected]
    # a head that is moved back has no valid seal, also after the service has written another entry
    last = found[-4]
    back = AUDIT_HEADS.update().where(AUDIT_HEADS.c.chain == 0)
    change(bench, back.values(number=last.number, mac=last.mac))
    assert findings(bench) == ["changed: the record of first and last entry of chain 0"]
    bench.calls.create()
    assert any(
        "changed: the record of first and last entry of a chain, before" in line
        for line in findings(bench)
    )


@pytest.mark.parametrize("column", ["first", "number"])
def test_a_head_whose_number_is_a_text_is_named(bench: Bench, column: str) -> None:
    if bench.service.store.is_postgres:
        pytest.skip("PostgreSQL stores no text in a column of numbers")
    change(bench, sa.text(f"UPDATE audit_heads SET {column} = 'x' WHERE chain = 0"))
    assert findings(bench)[0] == "changed: the record of first and last entry of chain 0"


def test_reordered_entries_are_named(bench: Bench) -> None:
    one, other = rows(bench)[3], rows(bench)[6]
    ids = [(one.id, -1), (other.id, one.id), (-1, other.id)]
    change(bench, *(AUDIT.update().where(entry(a)).values(id=b) for a, b in ids))
    assert set(findings(bench)) == {
        f"re-ordered: entry {one.id} was entry {other.id}",
        f"re-ordered: entry {other.id} was entry {one.id}",
    }


def test_added_entries_are_named(bench: Bench) -> None:
    row = rows(bench)[-1]._asdict()
    values = {**row, "id": row["id"] + 100}
    change(bench, AUDIT.insert().values({**values, "chain": None, "number": None, "mac": None}))
    assert findings(bench) == [
        f"added: entry {values['id']} belongs to no chain, so the service did not write it"
    ]
    change(bench, AUDIT.delete().where(entry(values["id"])), AUDIT.insert().values(values))
    assert findings(bench) == [f"added: entry {values['id']} has the number of another entry"]
    change(bench, AUDIT.update().where(entry(values["id"])).values(number=row["number"] + 1))
    assert findings(bench) == [f"added: entry {values['id']} has a number outside of its chain"]


def test_removed_heads_are_named(bench: Bench) -> None:
    change(bench, AUDIT_HEADS.delete().where(AUDIT_HEADS.c.chain == 3))
    assert findings(bench) == ["removed: the record of first and last entry of chain 3"]
    change(bench, AUDIT_HEADS.delete(), META.delete().where(META.c.name == AUDIT_KEY))
    assert findings(bench)


def test_a_receipt_shows_that_the_whole_database_was_set_back(bench: Bench) -> None:
    with bench.service.store.read() as work:
        heads = [row._asdict() for row in work.run(sa.select(AUDIT_HEADS))]
    last = rows(bench)[-1].id
    bench.person(44)
    receipt = bench.service.verify_audit().receipt
    assert parse_receipt(receipt_text(receipt)) == receipt
    assert verify_audit(bench.service.store, VAULT, receipt).findings == []
    change(bench, AUDIT.delete().where(AUDIT.c.id > last))
    restore = [
        AUDIT_HEADS.update().where(AUDIT_HEADS.c.chain == head["chain"]).values(head)
        for head in heads
    ]
    change(bench, *restore)
    assert findings(bench) == []
    found = verify_audit(bench.service.store, VAULT, receipt).findings
    assert len(found) == 1
    assert "since the receipt" in found[0]


def test_transactions_that_end_together_make_complete_chains(postgres: Any) -> None:
    with make_bench(Store(postgres.new_database())) as bench:
        store = bench.service.store

        def note(k: int) -> None:
            with store.write(Caller(f"caller {k}", "admin")) as work:
                for _ in range(k % 3 + 1):
                    work.note("create", str(k))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(note, range(120)))
        report = bench.service.verify_audit()
        assert (report.entries, report.findings) == (240, [])
        # an undone transaction leaves no gap
        with pytest.raises(RuntimeError):
            note_and_fail(store)
        note(1)
        assert findings(bench) == []


def test_old_entries_are_deleted_and_the_chain_stays_complete(bench: Bench) -> None:
    audit = bench.service.store.audit
    assert audit is not None
    before = rows(bench)
    bench.clock.now += DAY
    bench.person(45)
    receipt = bench.service.verify_audit().receipt

    def delete_old(work: Transaction) -> None:
        audit.delete_old(work, bench.clock.now - DAY / 2)

    # an old time alone deletes nothing: the entry was changed
    change(bench, AUDIT.update().where(entry(before[0].id)).values(caller="nobody"))
    bench.service.change(Caller("me", "admin"), delete_old)
    assert len(rows(bench)) > len(before)
    change(bench, AUDIT.update().where(entry(before[0].id)).values(caller=before[0].caller))
    bench.service.change(Caller("me", "admin"), delete_old)
    assert 0 < len(rows(bench)) < len(before)
    assert verify_audit(bench.service.store, VAULT, receipt).findings == []
    bench.person(46)
    assert findings(bench) == []


def test_entries_from_before_there_were_chains_become_one(bench: Bench) -> None:
    columns = {"chain": None, "number": None, "mac": None}
    change(
        bench,
        AUDIT.update().values(columns),
        AUDIT_HEADS.delete(),
        META.delete().where(META.c.name == AUDIT_KEY),
    )
    bench.service.store.audit = open_audit(bench.service.store, VAULT)
    bench.person(47)
    assert findings(bench) == []
    change(bench, AUDIT.update().where(entry(rows(bench)[1].id)).values(caller="nobody"))
    assert findings(bench) == [f"changed: entry {rows(bench)[1].id}"]


def test_the_key_follows_a_change_of_the_master_key(bench: Bench) -> None:
    new = MasterKey(b"n" * 32, "test")
    store = bench.service.store
    with store.write() as work:
        work.run(META.update().where(META.c.name == "master").values(value=new.mark))
        rewrap_audit_key(work, store, Vault(KeyRing([new, MASTER_KEY])))
    assert verify_audit(store, Vault(new)).findings == []


def note_and_fail(store: Store) -> None:
    with store.write() as work:
        work.note("create")
        assert store.audit is not None
        store.audit.append(work, work.notes)
        raise RuntimeError


# -- refusals ------------------------------------------------------------------------------


def test_refusals_of_a_locked_profile_are_one_entry_with_their_number(bench: Bench) -> None:
    name = bench.person(50)
    assert bench.calls.verify(name, bench.world.say(51, 0)[0]).json()["decision"] == "reject"
    before = len(rows(bench))
    for _ in range(35):
        assert bench.calls.verify(name, bench.world.say(50, 0)[0]).status_code == 429
    assert len(rows(bench)) == before
    page = bench.calls("GET", "/v1/audit", params={"action": "refuse"}).json()["items"]
    assert [(row["profileId"], row["reason"], row["count"]) for row in page] == [
        (name, "locked", 35)
    ]
    assert page[0]["caller"] == "local"
    # counted from the begin again
    bench.calls.verify(name, bench.world.say(50, 0)[0])
    record = bench.calls("GET", f"/v1/profiles/{name}/export").json()["record"]
    assert [row["count"] for row in record if row["action"] == "refuse"] == [35, 1]
    assert findings(bench) == []


# -- the command ---------------------------------------------------------------------------


def test_the_command_prints_and_verifies_the_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MVPLDA_MASTER_KEY", "bW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW0=")
    store = Store(
        f"sqlite:///{tmp_path / 'mvplda.sqlite'}", f"sqlite:///{tmp_path / 'keys.sqlite'}"
    )
    receipt = tmp_path / "receipt.txt"
    with make_bench(store) as bench:
        name = bench.person(40)

    def run(*arguments: str) -> tuple[int, list[str]]:
        done = CliRunner().invoke(main, ["serve", "--data", str(tmp_path), *arguments])
        return done.exit_code, done.output.splitlines()

    code, lines = run("audit")
    assert (code, [json.loads(line)["action"] for line in lines]) == (0, ["create"] + ["enrol"] * 3)
    assert run("audit", "--verify", "--receipt", str(receipt)) == (0, ["verified 4 entries"])
    assert len(receipt.read_text().splitlines()) == CHAINS
    assert run("check") == (0, ["opened 1 profiles with 3 recordings"])
    connection = store.database.engine.connect()
    connection.execute(AUDIT.delete().where(AUDIT.c.profile == name).where(AUDIT.c.id == 2))
    connection.commit()
    connection.close()
    store.close()
    expected = "removed: 1 entry between entries 1 and 3"
    code, lines = run("audit", "--verify", "--receipt", str(receipt))
    assert (code, lines) == (1, ["verified 3 entries", expected])
    code, lines = run("check")
    assert (code, lines[-1]) == (1, f"audit: {expected}")
