"""The database of the service, SQLite or PostgreSQL: tables, transactions, keys of callers and data keys."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from pydantic_core import to_json
from sqlalchemy.engine import Connection, Engine

from .._optional import need
from ..exceptions import FileFormatError, ParameterError
from .keys import Caller, key_hash, new_api_key
from .schemas import Json, Problem
from .settings import Settings

DAY = 86400.0
MINUTE = 60.0
# Of PostgreSQL: hosts that start at the same time create tables one after the other.
ADVISORY_LOCK = 7215843
# Of SQLite: seconds that a thread waits for the writers of its own process.
WRITER_S = 10.0
# Of Alembic: one file per version of the tables.
MIGRATIONS = Path(__file__).with_name("migrations")

# -- statements --------------------------------------------------------------------------

# Which may lie in another database.
KEY_TABLES = (
    "CREATE TABLE IF NOT EXISTS data_keys (profile TEXT PRIMARY KEY, wrapped BYTEA NOT NULL)"
)
PUT_MASTER = (
    "INSERT INTO meta (name, value) VALUES ('master', :master) ON CONFLICT (name) DO NOTHING"
)
PUT_KEY = (
    "INSERT INTO api_keys (hash, name, role, created) VALUES (:hash, :name, :role, :created) "
    "ON CONFLICT (hash) DO UPDATE SET role = excluded.role"
)
# Take calls out of a minute's share, if so many are left; what lies beyond a minute was written by a wrong
# clock.
SPEND = (
    "INSERT INTO rates (name, until) VALUES (:name, :now + :cost) ON CONFLICT (name) DO UPDATE "
    "SET until = CASE WHEN rates.until BETWEEN :now AND :end THEN rates.until ELSE :now END + :cost "
    "WHERE rates.until <= :end - :cost OR rates.until > :end"
)

# -- transactions ------------------------------------------------------------------------


# What the service does by itself.
SERVICE = Caller("service", "admin")


class Transaction:
    """One transaction, for one caller.

    ``now`` is the time of the database where several hosts share it: their own clocks may differ. Profiles that were
    changed are numbered at the end of the transaction.
    """

    def __init__(
        self,
        connection: Connection,
        clock: Callable[[], float] | None = None,
        caller: Caller = SERVICE,
    ) -> None:
        self.connection = connection
        self.caller = caller
        self.changed: set[str] = set()
        self.notes: list[Json] = []
        self._clock = clock

    @cached_property
    def now(self) -> float:
        if self._clock is not None:
            return self._clock()
        return float(self.value("SELECT extract(epoch FROM clock_timestamp())"))

    def run(self, statement: str, **values: Any) -> sa.CursorResult[Any]:
        return self.connection.execute(prepared(statement), values)

    def all(self, query: str, **values: Any) -> list[Json]:
        result = self.run(query, **values)
        names = list(result.keys())
        return [dict(zip(names, row, strict=True)) for row in result]

    def first(self, query: str, **values: Any) -> Json | None:
        row = self.run(query, **values).mappings().first()
        return None if row is None else dict(row)

    def value(self, query: str, **values: Any) -> Any:
        return self.run(query, **values).scalar()

    def insert(self, table: str, **values: Any) -> None:
        self.insert_all(table, [values])

    def insert_all(self, table: str, rows: Sequence[Json]) -> None:
        """Add rows that have the same columns."""
        names = ", ".join(f":{name}" for name in rows[0])
        statement = f"INSERT INTO {table} ({', '.join(rows[0])}) VALUES ({names})"
        self.connection.execute(prepared(statement), rows)

    def update(self, table: str, id: str, **values: Any) -> None:
        """Change a row that has an id."""
        self.update_all(table, [{"id": id, **values}])

    def update_all(self, table: str, rows: Sequence[Json]) -> None:
        """Change rows, each by its id; all have the same columns."""
        pairs = ", ".join(f"{name} = :{name}" for name in rows[0] if name != "id")
        self.connection.execute(prepared(f"UPDATE {table} SET {pairs} WHERE id = :id"), rows)

    def note(
        self, action: str, profile: str | None = None, result: str | None = None, **detail: Any
    ) -> None:
        """What was done or decided, for the audit: without sound and without vectors.

        All notes of a transaction are written at its end.
        """
        self.notes.append(
            {
                "at": self.now,
                "caller": self.caller.name,
                "action": action,
                "profile": profile,
                "result_id": result,
                "detail": to_json(detail).decode(),
            }
        )


@lru_cache(500)
def prepared(statement: str) -> sa.TextClause:
    """A statement with values called :name; ``IN :names`` takes a list."""
    text = sa.text(statement)
    if ":names" in statement:
        return text.bindparams(sa.bindparam("names", type_=sa.Text, expanding=True))
    return text


def iso(at: float | None) -> str | None:
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def page(items: Sequence[Json], top: int, by: str) -> Json:
    """One page of a list; `next` is what `after` names for the next one."""
    following = str(items[top - 1][by]) if len(items) > top else None
    return {"items": list(items[:top]), "next": following}


class Store:
    """A database, and that of the data keys, which may be another.

    Parameters
    ----------
    url : of SQLAlchemy: ``sqlite:///folder/mvplda.sqlite`` or ``postgresql://...``
    key_url : of the data keys, so that they are not backed up with the data; None: the same database
    settings : timeouts
    """

    def __init__(
        self, url: str, key_url: str | None = None, settings: Settings | None = None
    ) -> None:
        settings = settings or Settings()
        self.engine = connect(url, settings)
        self.key_engine = self.engine
        if key_url is not None:
            self.key_engine = connect(key_url, settings)
        self.is_postgres = self.engine.dialect.name == "postgresql"
        # None: that of the database
        self.clock: Callable[[], float] | None = None if self.is_postgres else time.time
        self.master: str | None = None
        self._migrate()

    def _migrate(self) -> None:
        """Create the tables, or bring older ones to this version; newer ones are refused."""
        with begin(self.engine) as connection:
            lock_hosts(connection)
            config = Config(attributes={"connection": connection})
            config.set_main_option("script_location", str(MIGRATIONS))
            try:
                command.upgrade(config, "head")
            except CommandError as error:
                raise FileFormatError(
                    f"the database has tables of another version ({error}): upgrade mvplda"
                ) from error
        with begin(self.key_engine) as connection:
            lock_hosts(connection)
            connection.exec_driver_sql(KEY_TABLES)

    @contextmanager
    def write(self, caller: Caller = SERVICE) -> Iterator[Transaction]:
        with begin(self.engine) as connection:
            work = Transaction(connection, self.clock, caller)
            yield work
            if work.notes:
                work.insert_all("audit", work.notes)
            if work.changed:
                self._number(work)

    @contextmanager
    def read(self, caller: Caller = SERVICE) -> Iterator[Transaction]:
        with self.engine.connect() as connection:
            yield Transaction(connection, self.clock, caller)

    def _number(self, work: Transaction) -> None:
        """Give changed profiles the next number.

        The row of the counter stays locked until the transaction ends, so that numbers are committed in their order:
        who has seen a number has seen all before it. It is the last lock that is taken, and held for a commit only.
        """
        row = work.first("UPDATE changes SET number = number + 1 RETURNING number, master")
        if row is None or self.master not in (None, row["master"]):
            raise rotated()
        names = sorted(work.changed)
        for start in range(0, len(names), 500):
            update = "UPDATE profiles SET change = :number WHERE id IN :names"
            work.run(update, number=row["number"], names=names[start : start + 500])

    def bind(self, master: str) -> None:
        """Remember the mark of the master key, or refuse another one than was remembered."""
        with self.write() as work:
            # of instances that start at once, one puts it
            work.run(PUT_MASTER, master=master)
            if self.meta("master", work) != master:
                raise ParameterError(
                    "the master key is another one than that which this database was made with"
                )
            work.run("UPDATE changes SET master = :master", master=master)
        self.master = master

    def meta(self, name: str, work: Transaction | None = None) -> str | None:
        """What the table `meta` has of a name."""
        if work is None:
            with self.read() as work:
                return self.meta(name, work)
        found: str | None = work.value("SELECT value FROM meta WHERE name = :name", name=name)
        return found

    def ping(self) -> None:
        with self.read() as work:
            work.run("SELECT 1")

    def close(self) -> None:
        self.engine.dispose()
        self.key_engine.dispose()

    # -- keys of callers -----------------------------------------------------

    def put_api_key(self, name: str, role: str, key: str | None = None) -> str:
        """Store the hash of a key, in place of one of the same name; the key itself is not stored."""
        key = key or new_api_key()
        own = {"hash": key_hash(key), "name": name}
        with self.write() as work:
            work.run("DELETE FROM api_keys WHERE name = :name AND hash <> :hash", **own)
            same = work.value("SELECT name FROM api_keys WHERE hash = :hash", hash=own["hash"])
            if same not in (None, name):
                raise ParameterError(
                    f"the API key of {name!r} is that of {same!r} already: each has one of its own"
                )
            # instances that start at once have the same keys in their environment
            work.run(PUT_KEY, **own, role=role, created=work.now)
        return key

    def drop_api_key(self, name: str) -> bool:
        with self.write() as work:
            return bool(work.run("DELETE FROM api_keys WHERE name = :name", name=name).rowcount)

    def key_names(self) -> list[str]:
        with self.read() as work:
            return [row["name"] for row in work.all("SELECT name FROM api_keys")]

    def find_caller(self, key: str) -> Caller | None:
        query = "SELECT name, role FROM api_keys WHERE hash = :hash"
        with self.read() as work:
            row = work.first(query, hash=key_hash(key))
        return None if row is None else Caller(**row)

    def spend(self, name: str, calls: int, per_minute: float) -> float:
        """Take calls out of a key's share of a minute, for all processes; else the seconds to wait."""
        cost = 60 * calls / per_minute
        with self.write() as work:
            end = work.now + MINUTE
            if work.run(SPEND, name=name, now=work.now, cost=cost, end=end).rowcount:
                return 0.0
            until = work.value("SELECT until FROM rates WHERE name = :name", name=name)
            return float(until) + cost - end

    # -- data keys -----------------------------------------------------------

    @contextmanager
    def keys(self, work: Transaction | None = None) -> Iterator[Transaction]:
        """The database of data keys: a part of the transaction where they lie with the data, else at once."""
        if work is not None and self.key_engine is self.engine:
            yield work
        else:
            with begin(self.key_engine) as connection:
                yield Transaction(connection)

    def get_key(self, profile: str, work: Transaction | None = None) -> bytes | None:
        with self.keys(work) as keys:
            found: bytes | None = keys.value(
                "SELECT wrapped FROM data_keys WHERE profile = :profile", profile=profile
            )
        return found

    def destroy_key(self, profile: str, work: Transaction | None = None) -> None:
        with self.keys(work) as keys:
            keys.run("DELETE FROM data_keys WHERE profile = :profile", profile=profile)

    def all_keys(self, names: Sequence[str] | None = None) -> dict[str, bytes]:
        """Wrapped keys of all profiles, or of some."""
        query = "SELECT profile, wrapped FROM data_keys"
        values = {}
        if names is not None:
            query += " WHERE profile IN :names"
            values["names"] = names
        with self.key_engine.connect() as connection:
            return {
                row["profile"]: row["wrapped"]
                for row in Transaction(connection).all(query, **values)
            }

    def settle_files(self) -> None:
        """Empty SQLite's log of changes, which still has what was erased.

        Where somebody reads for long, such as a back-up, the next deletion or the end of the service does it.
        """
        for engine in {self.engine, self.key_engine} & set(_WRITERS):
            path = str(engine.url.database)
            with _WRITERS[engine], closing(sqlite3.connect(path, timeout=0.2)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def rotated() -> Problem:
    return Problem(503, "master-key", "the master key was rotated: this service must be restarted")


# -- engines -----------------------------------------------------------------------------


def connect(url: str, settings: Settings) -> Engine:
    """An engine with timeouts, whose transactions are real ones on either kind of database."""
    kind = url.partition(":")[0].partition("+")[0]
    if kind not in ("sqlite", "postgresql"):
        raise ParameterError(
            f"a database is sqlite:///FILE or postgresql://...; got one of {kind!r}"
        )
    arguments: Json = {"timeout": settings.lock_timeout_s}
    if kind == "postgresql":
        need("psycopg")
        url = url.replace("postgresql://", "postgresql+psycopg://")
        lock_ms = round(1000 * settings.lock_timeout_s)
        statement_ms = round(1000 * settings.statement_timeout_s)
        limits = f"-c lock_timeout={lock_ms} -c statement_timeout={statement_ms}"
        arguments = {"connect_timeout": round(settings.connect_timeout_s), "options": limits}
    engine = sa.create_engine(
        url,
        pool_size=settings.threads + 2,
        max_overflow=settings.at_once + settings.threads,
        pool_timeout=settings.connect_timeout_s,
        pool_pre_ping=kind == "postgresql",  # which may have been started anew
        connect_args=arguments,
    )
    if kind == "sqlite":
        prepare_sqlite(engine)
    return engine


def prepare_sqlite(engine: Engine) -> None:
    # created before SQLite does it, for its owner alone; the files beside it take its mode
    os.close(os.open(str(engine.url.database), os.O_RDWR | os.O_CREAT, 0o600))

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, record: Any) -> None:
        # transactions are begun below, and not where the driver guesses
        connection.isolation_level = None
        pragmas = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON")
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}").close()

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # a writer takes its lock at once: one that began to read could not go on if another wrote
        wants = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if wants else "BEGIN")

    _WRITERS[engine] = threading.Lock()


# Of SQLite: threads of a process wait for each other here, and not in the database, which polls.
_WRITERS: WeakKeyDictionary[Engine, threading.Lock] = WeakKeyDictionary()


@contextmanager
def begin(engine: Engine) -> Iterator[Connection]:
    """A transaction that writes."""
    lock = _WRITERS.get(engine)
    if lock is not None and not lock.acquire(timeout=WRITER_S):
        raise Problem(503, "database", "too many calls wait to write: nothing was changed", wait=2)
    try:
        with engine.connect() as connection:
            if lock is not None:
                connection = connection.execution_options(writes=True)
            with connection.begin():
                yield connection
    finally:
        if lock is not None:
            lock.release()


def lock_hosts(connection: Connection) -> None:
    """Several hosts may start at once on PostgreSQL, which has no lock timeout for this."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL lock_timeout = '60s'")
        connection.exec_driver_sql("SET LOCAL statement_timeout = '120s'")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})")
