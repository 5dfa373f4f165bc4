"""The audit: a log of changes and decisions that shows changed, removed, added and re-ordered entries.

The entries form several chains. Each entry has a number in its chain, and a keyed hash of its values and of the hash
before it. Transactions that end at the same time append to different chains, so that they do not wait for each other.
The key of the hashes is in the database, encrypted with the master key: somebody who can write to the database but does
not have the master key cannot make valid entries.
"""

from __future__ import annotations

import base64
import hmac
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import bindparam
from sqlalchemy.engine import Connection

from .database import lock_hosts
from .schemas import AuditEntry
from .tables import AUDIT, AUDIT_HEADS, META, AuditRow
from .times import stored_iso

if TYPE_CHECKING:
    from .keys import Vault
    from .store import Store, Transaction

# Number of chains. So many transactions can end at the same time without waiting.
CHAINS = 8
# Name of the audit's encrypted key in the table ``meta``, and the address that its encryption is bound to.
AUDIT_KEY = "audit key"
# Action of the entry that reports a changed head of a chain.
BROKEN = "audit-broken"
# Number of entries that are read at a time, and largest number of findings of one sort that are listed.
PAGE = 1000
NAMED = 100

PUT_KEY = sa.text(
    "INSERT INTO meta (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING"
)
GET_KEY = sa.select(META.c.value).where(META.c.name == AUDIT_KEY)
SET_KEY = META.update().where(META.c.name == AUDIT_KEY).values(value=bindparam("wrapped"))
HEADS = sa.select(AUDIT_HEADS).order_by(AUDIT_HEADS.c.chain)
FREE_HEAD = HEADS.limit(1).with_for_update(skip_locked=True)
LOCKED_HEAD = HEADS.where(AUDIT_HEADS.c.chain == bindparam("number")).with_for_update()
SET_HEAD = AUDIT_HEADS.update().where(AUDIT_HEADS.c.chain == bindparam("head"))
# PostgreSQL: numbers of new entries; SQLite counts them in a table of its own.
NEW_IDS = sa.text("SELECT nextval('audit_id_seq') FROM generate_series(1, :count)")
LAST_ID = sa.text("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'audit'")
CHAIN_PAGE = (
    sa.select(AUDIT)
    .where(AUDIT.c.chain == bindparam("chain_number"))
    .where(
        (AUDIT.c.number > bindparam("number_after"))
        | ((AUDIT.c.number == bindparam("number_after")) & (AUDIT.c.id > bindparam("id_after")))
    )
    .where(AUDIT.c.number <= bindparam("largest"))
    .order_by(AUDIT.c.number, AUDIT.c.id)
    .limit(PAGE)
)
UNCHAINED = (
    sa.select(AUDIT)
    .where(AUDIT.c.chain.is_(None))
    .where(AUDIT.c.id > bindparam("after"))
    .order_by(AUDIT.c.id)
    .limit(PAGE)
)
FOREIGN = (
    sa.select(AUDIT.c.id)
    .where(AUDIT.c.chain.is_(None) | AUDIT.c.number.is_(None) | AUDIT.c.chain.not_in(range(CHAINS)))
    .order_by(AUDIT.c.id)
    .limit(NAMED)
)
BEYOND = (
    sa.select(AUDIT.c.id)
    .where(AUDIT.c.chain == bindparam("chain_number"))
    .where((AUDIT.c.number < bindparam("first")) | (AUDIT.c.number > bindparam("last")))
    .order_by(AUDIT.c.id)
    .limit(NAMED)
)
REPORTED = sa.select(AUDIT.c.id).where(AUDIT.c.action == BROKEN).order_by(AUDIT.c.id).limit(NAMED)
FIRST_YOUNG = (
    sa.select(sa.func.min(AUDIT.c.number))
    .where(AUDIT.c.chain == bindparam("chain_number"))
    .where(AUDIT.c.at >= bindparam("oldest"))
)
DELETE_OLD = (
    AUDIT.delete()
    .where(AUDIT.c.chain == bindparam("chain_number"))
    .where(AUDIT.c.number < bindparam("first_young"))
)
ENTRIES = sa.select(AUDIT).where(AUDIT.c.id > bindparam("after")).order_by(AUDIT.c.id).limit(PAGE)
CHAIN_ENTRY = (
    AUDIT.update()
    .where(AUDIT.c.id == bindparam("entry"))
    .values(chain=bindparam("to_chain"), number=bindparam("to_number"), mac=bindparam("to_mac"))
)


@dataclass(frozen=True)
class Head:
    """First and last entry of one chain of the audit, as stored in the table ``audit_heads``.

    Parameters
    ----------
    chain : number of the chain, from 0
    first, first_mac : number of the oldest stored entry, and hash of the deleted entry before it (empty: none)
    number, mac : number and hash of the latest entry (0 and empty: the chain has no entry)
    seal : keyed hash of the other fields
    """

    chain: int
    first: int
    first_mac: str
    number: int
    mac: str
    seal: str = ""


@dataclass
class AuditReport:
    """Result of a verification of the audit.

    Parameters
    ----------
    entries : number of stored entries
    findings : sentences about changed, removed, added and re-ordered entries; empty if the audit is intact
    receipt : {chain: (number, hash)} of the latest entry of each chain, to be stored outside the database
    """

    entries: int = 0
    findings: list[str] = field(default_factory=list)
    receipt: dict[int, tuple[int, str]] = field(default_factory=dict)


class AuditChain:
    """Appends entries to the audit, deletes old entries, and verifies the chains.

    Parameters
    ----------
    key : key of the hashes
    is_postgres : whether the database is PostgreSQL; it numbers entries in another way than SQLite
    """

    def __init__(self, key: bytes, is_postgres: bool) -> None:
        self._key = key
        self._is_postgres = is_postgres

    # -- hashes --------------------------------------------------------------

    def entry_mac(self, row: Mapping[str, object], previous: str) -> str:
        """Return the keyed hash of an entry and of `previous`, the hash of the entry before it.

        row : {column: value} of the entry; columns with None and the column ``mac`` are left out of the hash
        """
        values = {name: value for name, value in row.items() if value is not None and name != "mac"}
        return self._digest("entry", [previous, sorted(values.items())])

    def sealed(self, head: Head) -> Head:
        """Return a copy of a chain's head with its seal, the keyed hash of its other fields."""
        values = [head.chain, head.first, head.first_mac, head.number, head.mac]
        return replace(head, seal=self._digest("head", values))

    def _digest(self, purpose: str, values: object) -> str:
        """Return the keyed hash of JSON-serialisable `values` in hexadecimal.

        purpose : "entry" or "head", so that the same values have different hashes as an entry and as a head
        """
        text = json.dumps([purpose, values], default=repr)
        return hmac.digest(self._key, text.encode(), "sha256").hex()

    # -- writing -------------------------------------------------------------

    def append(self, work: Transaction, notes: Sequence[Mapping[str, object]]) -> None:
        """Write the audit entries of a transaction at its end, to a chain that no other transaction has locked.

        notes : per entry its columns ``at``, ``caller``, ``action``, ``profile``, ``result_id`` and ``detail``
        """
        row = work.run(FREE_HEAD).first()
        if row is None:
            # all chains are held: wait for one of them
            row = work.run(LOCKED_HEAD, number=secrets.randbelow(CHAINS)).first()
        head = self.sealed(Head(0, 1, "", 0, "")) if row is None else Head(*tuple(row))
        if row is None or self.sealed(head) != head:
            # somebody changed the head: the chain goes on, with an entry that reports the change
            detail = json.dumps({"chain": head.chain, "number": head.number})
            report = {"action": BROKEN, "profile": None, "result_id": None, "detail": detail}
            notes = [{**notes[0], **report}, *notes]
        rows = []
        number, mac = head.number, head.mac
        for entry_id, note in zip(self._new_ids(work, len(notes)), notes, strict=True):
            number += 1
            entry = {"id": entry_id, **note, "chain": head.chain, "number": number}
            mac = self.entry_mac(entry, mac)
            rows.append({**entry, "mac": mac})
        work.run_each(AUDIT.insert(), rows)
        self._put_head(work, replace(head, number=number, mac=mac))

    def _put_head(self, work: Transaction, head: Head) -> None:
        """Store the head of a chain with its seal."""
        values = vars(self.sealed(head))
        if not work.run(SET_HEAD, head=head.chain, **values).rowcount:
            work.run(AUDIT_HEADS.insert(), **values)

    def _new_ids(self, work: Transaction, count: int) -> list[int]:
        """Return the ids of the next `count` audit entries."""
        if self._is_postgres:
            return list(work.run(NEW_IDS, count=count).scalars())
        last = int(work.value(LAST_ID))
        return list(range(last + 1, last + 1 + count))

    def begin(self, work: Transaction) -> None:
        """Create the chains of a database; entries of older versions, which had no chains, are added to the first."""
        for chain in range(CHAINS):
            self._put_head(work, Head(chain, 1, "", 0, ""))
        number, mac = 0, ""
        last = 0
        while rows := work.run(UNCHAINED, after=last).mappings().all():
            changes = []
            for row in rows:
                number += 1
                mac = self.entry_mac({**row, "chain": 0, "number": number}, mac)
                changes.append(
                    {"entry": row["id"], "to_chain": 0, "to_number": number, "to_mac": mac}
                )
            work.run_each(CHAIN_ENTRY, changes)
            last = rows[-1]["id"]
        self._put_head(work, Head(0, 1, "", number, mac))

    def delete_old(self, work: Transaction, oldest: float) -> None:
        """Delete the entries that are older than the time `oldest`, in seconds since 1970.

        A chain stays as it is if verification finds a fault among the entries to be deleted.
        """
        for number in range(CHAINS):
            row = work.run(LOCKED_HEAD, number=number).first()
            if row is None or self.sealed(Head(*tuple(row))) != Head(*tuple(row)):
                continue
            head = Head(*tuple(row))
            found = work.value(FIRST_YOUNG, chain_number=number, oldest=oldest)
            first = head.number + 1 if found is None else int(found)
            if first <= head.first:
                continue
            walk = Walk(self, replace(head, number=first - 1), is_complete=False)
            for _ in walk.entries(work):
                pass
            if not walk.findings:
                work.run(DELETE_OLD, chain_number=number, first_young=first)
                self._put_head(work, replace(head, first=first, first_mac=walk.mac))

    # -- verification --------------------------------------------------------

    def verify(
        self, work: Transaction, receipt: Mapping[int, tuple[int, str]] | None = None
    ) -> AuditReport:
        """Verify the hashes and numbers of all entries.

        Parameters
        ----------
        work : transaction whose queries all read the state of the database at one moment
        receipt : {chain: (number, hash)} from an earlier `AuditReport`, to find out whether the audit was replaced by
            an earlier copy; None: no comparison

        Returns
        -------
        number of entries, faults, and a new receipt
        """
        report = AuditReport()
        heads = {row.chain: Head(*tuple(row)) for row in work.run(HEADS)}
        for number in range(CHAINS):
            head = heads.get(number)
            if head is None:
                report.findings.append(
                    f"removed: the record of first and last entry of chain {number}"
                )
                continue
            if self.sealed(head) != head:
                report.findings.append(
                    f"changed: the record of first and last entry of chain {number}"
                )
            if not isinstance(head.first, int) or not isinstance(head.number, int):
                # without its numbers the chain cannot be followed
                continue
            expected = (receipt or {}).get(number)
            walk = Walk(self, head, expected)
            report.entries += sum(1 for _ in walk.entries(work))
            report.findings += walk.findings
            report.receipt[number] = head.number, head.mac
        report.findings += [
            f"added: entry {entry} belongs to no chain, so the service did not write it"
            for entry in work.run(FOREIGN).scalars()
        ]
        report.findings += [
            f"changed: the record of first and last entry of a chain, before entry {entry} reported it"
            for entry in work.run(REPORTED).scalars()
        ]
        return report


class Walk:
    """Check of one chain, entry by entry, that collects the entries with a wrong number or hash.

    Parameters
    ----------
    chain : computes the hashes
    head : numbers of the first and last entry to check, and the hashes before the first and of the last
    expected : number and hash of an entry of the chain according to an earlier receipt; None: no receipt
    is_complete : whether the last entry to check is the last of the chain

    Attributes
    ----------
    mac : hash of the entry that was read last
    findings : sentences about the faults, complete after all entries were read
    """

    def __init__(
        self,
        chain: AuditChain,
        head: Head,
        expected: tuple[int, str] | None = None,
        is_complete: bool = True,
    ) -> None:
        self._chain = chain
        self._head = head
        self._expected = expected
        self._is_complete = is_complete
        self.mac = head.first_mac
        self.findings: list[str] = []
        # entries with a wrong hash, and the hash of the entry before each
        self._unfit: list[tuple[dict[str, Any], str]] = []

    def entries(self, work: Transaction) -> Iterator[dict[str, Any]]:
        """Yield the entries of the chain as {column: value}, after comparing each with the entry before it."""
        head = self._head
        number, last_id = head.first - 1, 0
        self._check_receipt(number)
        for row in self._rows(work):
            yield row
            if row["number"] <= number:
                self.findings.append(f"added: entry {row['id']} has the number of another entry")
                continue
            missing = row["number"] - number - 1
            if missing:
                place = f"between entries {last_id} and {row['id']}"
                if not last_id:
                    place = f"at the beginning of chain {head.chain}, before entry {row['id']}"
                self.findings.append(f"removed: {number_of_entries(missing)} {place}")
            elif self._chain.entry_mac(row, self.mac) != row["mac"]:
                self._unfit.append((row, self.mac))
            number, last_id, self.mac = row["number"], row["id"], str(row["mac"])
            self._check_receipt(number)
        if number < head.number:
            missing_text = number_of_entries(head.number - number)
            self.findings.append(
                f"removed: the last {missing_text} of chain {head.chain}, after entry {last_id}"
            )
        elif self._is_complete and self.mac != head.mac and not self._unfit:
            self.findings.append(f"changed: the hash of entry {last_id}")
        if self._expected is not None and self._expected[0] > head.number:
            self.findings.append(
                f"removed: {number_of_entries(self._expected[0] - head.number)} of chain {head.chain} since the receipt"
            )
        self._name_unfit()
        if self._is_complete:
            limits = {"chain_number": head.chain, "first": head.first, "last": head.number}
            self.findings += [
                f"added: entry {entry} has a number outside of its chain"
                for entry in work.run(BEYOND, **limits).scalars()
            ]

    def _rows(self, work: Transaction) -> Iterator[dict[str, Any]]:
        """Yield the entries of the chain as {column: value}, in the order of their numbers, page by page."""
        after, after_id = self._head.first - 1, 2**31 - 1
        while True:
            rows = (
                work.run(
                    CHAIN_PAGE,
                    chain_number=self._head.chain,
                    number_after=after,
                    id_after=after_id,
                    largest=self._head.number,
                )
                .mappings()
                .all()
            )
            if not rows:
                return
            yield from map(dict, rows)
            after, after_id = rows[-1]["number"], rows[-1]["id"]

    def _check_receipt(self, number: int) -> None:
        """Add a finding if the receipt has another hash for the entry with this number in the chain."""
        if self._expected is not None and self._expected[0] == number:
            if self._expected[1] != self.mac:
                self.findings.append(
                    f"changed: entry {number} of chain {self._head.chain} since the receipt"
                )

    def _name_unfit(self) -> None:
        """Add a finding per entry with a wrong hash.

        The entry counts as re-ordered if its hash is right with the id of another entry with a wrong hash, otherwise as
        changed.
        """
        ids = [row["id"] for row, _ in self._unfit[:NAMED]]
        for row, previous in self._unfit[:NAMED]:
            was = [
                other
                for other in ids
                if self._chain.entry_mac({**row, "id": other}, previous) == row["mac"]
            ]
            if was:
                self.findings.append(f"re-ordered: entry {row['id']} was entry {was[0]}")
            else:
                self.findings.append(f"changed: entry {row['id']}")
        if len(self._unfit) > NAMED:
            self.findings.append(f"changed: {len(self._unfit) - NAMED} more entries")


def number_of_entries(count: int) -> str:
    """Return a number with its noun, "1 entry" or "2 entries"."""
    return f"{count} entry" if count == 1 else f"{count} entries"


# -- the key -------------------------------------------------------------------------------


def open_audit(store: Store, vault: Vault) -> AuditChain:
    """Return the audit of a database; if it has no key yet, create a key and empty chains.

    vault : decrypts the key of the audit
    """
    with store.write() as work:
        lock_hosts(work.connection)
        is_new = not work.value(sa.select(sa.func.count()).where(META.c.name == AUDIT_KEY))
        if is_new:
            wrapped = wrap_key(work, store, vault, secrets.token_bytes(32))
            work.run(PUT_KEY, name=AUDIT_KEY, value=wrapped)
        stored = base64.b64decode(str(work.value(GET_KEY)))
        audit = AuditChain(vault.unwrap(stored, AUDIT_KEY), store.is_postgres)
        if is_new and not work.run(HEADS).first():
            audit.begin(work)
    return audit


def wrap_key(work: Transaction, store: Store, vault: Vault, key: bytes) -> str:
    """Return the key of the audit as text in base64, encrypted ("wrapped") with the present master key."""
    mark = store.meta("master", work)
    return base64.b64encode(vault.wrap(key, AUDIT_KEY, mark)).decode()


def rewrap_audit_key(work: Transaction, store: Store, vault: Vault) -> None:
    """Encrypt the key of the audit with the present master key, after the master key was changed.

    vault : has the present and the previous master key
    """
    wrapped = work.value(GET_KEY)
    if wrapped is not None:
        key = vault.unwrap(base64.b64decode(str(wrapped)), AUDIT_KEY)
        work.run(SET_KEY, wrapped=wrap_key(work, store, vault, key))


def verify_audit(
    store: Store, vault: Vault, receipt: Mapping[int, tuple[int, str]] | None = None
) -> AuditReport:
    """Verify the audit of a database; a service may run at the same time.

    Parameters
    ----------
    store : database
    vault : decrypts the key of the audit
    receipt : {chain: (number, hash)} from an earlier verification; None: no comparison

    Returns
    -------
    number of entries, faults, and a new receipt
    """
    audit = open_audit(store, vault)
    with snapshot(store) as work:
        return audit.verify(work, receipt)


@contextmanager
def snapshot(store: Store) -> Iterator[Transaction]:
    """Open a transaction that only reads; all its queries read the state of the database at one moment."""
    with store.read() as work:
        if store.is_postgres:
            work.connection = repeatable(work.connection)
        yield work


def repeatable(connection: Connection) -> Connection:
    """Return a connection to PostgreSQL with the isolation level REPEATABLE READ.

    All queries of a transaction then read the state of the database at one moment.
    """
    return connection.execution_options(isolation_level="REPEATABLE READ")


def all_entries(store: Store) -> Iterator[AuditEntry]:
    """Yield all entries of the audit of a database, oldest first."""
    last = 0
    while True:
        with store.read() as work:
            rows = work.rows(AuditRow, ENTRIES, after=last)
        if not rows:
            return
        yield from map(audit_entry, rows)
        last = rows[-1].id


def audit_entry(row: AuditRow) -> AuditEntry:
    """Return an audit entry with the field names of the API, and its details as further fields.

    A damaged entry is returned with empty fields and ``damaged: true``, so that one of them does not hide all others.
    """
    try:
        return AuditEntry(
            id=str(row.id),
            at=stored_iso(row.at),
            caller=row.caller,
            action=row.action,
            profileId=row.profile,
            resultId=row.result_id,
            **audit_detail(row),
        )
    except (TypeError, ValueError):
        # a value of another type, or a detail with the name of a field
        damaged: dict[str, Any] = {"damaged": True}
        return AuditEntry(
            id=str(row.id),
            at=stored_iso(row.at),
            caller="",
            action="",
            profileId=None,
            resultId=None,
            **damaged,
        )


def audit_detail(row: AuditRow) -> dict[str, Any]:
    """Return the details of an audit entry; {"damaged": True} if they cannot be read."""
    try:
        return dict(json.loads(row.detail))
    except (ValueError, TypeError):
        return {"damaged": True}


def receipt_text(receipt: Mapping[int, tuple[int, str]]) -> str:
    """Return the receipt of a verification, {chain: (number, hash)}, as text: a line "CHAIN NUMBER HASH" per chain."""
    return "".join(f"{chain} {number} {mac}\n" for chain, (number, mac) in sorted(receipt.items()))


def parse_receipt(text: str) -> dict[int, tuple[int, str]]:
    """Return {chain: (number, hash)} from the text of a receipt; raise `ValueError` if it is not a receipt."""
    receipt = {}
    for line in text.splitlines():
        chain, number, mac = line.split(" ")
        receipt[int(chain)] = int(number), mac
    return receipt
