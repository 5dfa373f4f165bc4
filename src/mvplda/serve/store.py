"""Databases of the service, SQLite or PostgreSQL, and their transactions."""

# ruff: noqa: E402

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from .._optional import need
from ..exceptions import FileFormatError, ParameterError
from .keys import Caller, key_hash, new_api_key

need("sqlalchemy")

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from .problems import Problem
from .settings import Settings
from .tables import (
    MIGRATIONS,
    SCHEMA,
    api_keys,
    changes,
    data_keys,
    key_tables,
    meta,
    profiles,
    tables,
)

ADVISORY_LOCK = 7215843
"""Of PostgreSQL: hosts that start at the same time create tables one after the other."""
WRITER_S = 10.0
"""Of SQLite: seconds that a thread waits for the writers of its own process."""
DATABASE_CLOCK = sa.func.extract("epoch", sa.func.clock_timestamp())


class Work:
    """One transaction.

    ``now`` is the time of the database where several hosts share it: their own clocks may differ. Profiles that were
    changed are numbered at the end of the transaction.
    """

    def __init__(self, connection: Connection, clock: Callable[[], float] | None) -> None:
        self.connection = connection
        self.execute = connection.execute
        self.changed: set[str] = set()
        self._clock = clock
        self._now: float | None = None

    @property
    def now(self) -> float:
        if self._now is None:
            if self._clock is None:
                self._now = float(self.execute(sa.select(DATABASE_CLOCK)).scalar_one())
            else:
                self._now = self._clock()
        return self._now

    def row(self, query: sa.Select[Any]) -> dict[str, Any] | None:
        """The first row of a query, and the database's time with it."""
        asks_time = self._now is None and self._clock is None
        if asks_time:
            query = query.add_columns(DATABASE_CLOCK.label("database_now"))
        found = self.execute(query).mappings().first()
        if found is None:
            return None
        row = dict(found)
        if asks_time:
            self._now = float(row.pop("database_now"))
        return row


class Store:
    """A database, and that of the data keys, which may be another.

    Parameters
    ----------
    url : of SQLAlchemy: ``sqlite:///folder/mvplda.sqlite`` or ``postgresql://...``
    key_url : of the data keys, so that they are not backed up with the data; None: the same database
    settings : timeouts
    clock : None: that of PostgreSQL, or of this machine for SQLite
    """

    def __init__(
        self,
        url: str,
        key_url: str | None = None,
        settings: Settings | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        settings = settings or Settings()
        self.engine = connect(url, settings)
        self.key_engine = self.engine
        if key_url is not None:
            self.key_engine = connect(key_url, settings)
        self.clock = clock
        if clock is None and not self.is_postgres:
            self.clock = time.time
        self.master: str | None = None
        self.migrate()

    @property
    def is_postgres(self) -> bool:
        return self.engine.dialect.name == "postgresql"

    def migrate(self) -> None:
        """Create the tables, or bring older ones to this version; newer ones are refused."""
        with begin(self.engine) as connection:
            lock_hosts(connection)
            found = None
            if sa.inspect(connection).has_table(meta.name):
                query = sa.select(meta.c.value).where(meta.c.name == "schema")
                found = connection.execute(query).scalar()
            before = SCHEMA if found is None else int(found)
            if before > SCHEMA:
                raise FileFormatError(
                    f"the database has tables of version {before}, this mvplda has {SCHEMA}: "
                    "upgrade mvplda"
                )
            for version in range(before + 1, SCHEMA + 1):
                for statement in MIGRATIONS[version]:
                    connection.exec_driver_sql(statement)
            tables.create_all(connection)
            if found != str(SCHEMA):
                connection.execute(meta.delete().where(meta.c.name == "schema"))
                connection.execute(meta.insert().values(name="schema", value=str(SCHEMA)))
            if connection.execute(sa.select(changes.c.id)).first() is None:
                connection.execute(changes.insert().values(id=1, number=0, master=None))
                connection.execute(profiles.update().values(change=0))
        with begin(self.key_engine) as connection:
            lock_hosts(connection)
            key_tables.create_all(connection)

    # -- transactions --------------------------------------------------------

    @contextmanager
    def write(self) -> Iterator[Work]:
        with begin(self.engine) as connection:
            work = Work(connection, self.clock)
            yield work
            if work.changed:
                self._number(work)

    @contextmanager
    def read(self) -> Iterator[Work]:
        with self.engine.connect() as connection:
            yield Work(connection, self.clock)

    def _number(self, work: Work) -> None:
        """Give changed profiles the next number.

        The row of the counter stays locked until the transaction ends, so that numbers are committed in their order:
        who has seen a number has seen all before it. It is the last lock that is taken, and held for a commit only.
        """
        count = changes.update().values(number=changes.c.number + 1)
        if self.master is not None:
            count = count.where(changes.c.master == self.master)
        number = work.execute(count.returning(changes.c.number)).scalar()
        if number is None:
            raise Problem(
                503, "master-key", "the master key was rotated: this service must be restarted"
            )
        names = sorted(work.changed)
        for start in range(0, len(names), 500):
            some = profiles.c.id.in_(names[start : start + 500])
            work.execute(profiles.update().where(some).values(change=number))

    def bind(self, master: str) -> None:
        """Remember the mark of the master key, or refuse another one than was remembered."""
        with self.write() as work:
            known = work.execute(sa.select(meta.c.value).where(meta.c.name == "master")).scalar()
            if known is None:
                work.execute(meta.insert().values(name="master", value=master))
            elif known != master:
                raise ParameterError(
                    "the master key is another one than that which this database was made with"
                )
            work.execute(changes.update().values(master=master))
        self.master = master

    def value(self, name: str) -> str | None:
        """What the table `meta` has of a name."""
        with self.read() as work:
            return work.execute(sa.select(meta.c.value).where(meta.c.name == name)).scalar()

    def ping(self) -> None:
        with self.engine.connect() as connection:
            connection.exec_driver_sql("SELECT 1")

    def close(self) -> None:
        self.engine.dispose()
        self.key_engine.dispose()

    # -- keys of callers -----------------------------------------------------

    def put_api_key(self, name: str, role: str, key: str | None = None) -> str:
        """Store the hash of a key, in place of one of the same name; the key itself is not stored."""
        key = key or new_api_key()
        hashed = key_hash(key)
        with self.write() as work:
            work.execute(api_keys.delete().where(api_keys.c.name == name))
            query = sa.select(api_keys.c.name).where(api_keys.c.hash == hashed)
            same = work.execute(query).scalar()
            if same is not None:
                raise ParameterError(
                    f"the API key of {name!r} is that of {same!r} already: each has one of its own"
                )
            row = {"hash": hashed, "name": name, "role": role, "created": work.now}
            work.execute(api_keys.insert().values(**row))
        return key

    def drop_api_key(self, name: str) -> bool:
        with self.write() as work:
            gone = work.execute(api_keys.delete().where(api_keys.c.name == name))
            return bool(gone.rowcount)

    def key_names(self) -> list[str]:
        with self.read() as work:
            return list(
                work.execute(sa.select(api_keys.c.name).order_by(api_keys.c.name)).scalars()
            )

    def find_caller(self, key: str) -> Caller | None:
        query = sa.select(api_keys.c.name, api_keys.c.role).where(api_keys.c.hash == key_hash(key))
        with self.read() as work:
            row = work.execute(query).first()
        return None if row is None else Caller(row[0], row[1])

    # -- data keys -----------------------------------------------------------

    def put_key(self, profile: str, wrapped: bytes, work: Work | None = None) -> None:
        """At once; or, where the keys lie with the data, with the other changes of a transaction."""
        self._change_keys(data_keys.insert().values(profile=profile, wrapped=wrapped), work)

    def get_key(self, profile: str, work: Work | None = None) -> bytes | None:
        query = sa.select(data_keys.c.wrapped).where(data_keys.c.profile == profile)
        if work is not None and self.key_engine is self.engine:
            row = work.execute(query).first()
        else:
            with self.key_engine.connect() as connection:
                row = connection.execute(query).first()
        return None if row is None else bytes(row[0])

    def destroy_key(self, profile: str, work: Work | None = None) -> None:
        """At once; or, where the keys lie with the data, with the other changes of a transaction."""
        self._change_keys(data_keys.delete().where(data_keys.c.profile == profile), work)

    def _change_keys(self, statement: sa.Executable, work: Work | None) -> None:
        if work is not None and self.key_engine is self.engine:
            work.execute(statement)
            return
        with begin(self.key_engine) as connection:
            connection.execute(statement)

    def some_keys(self, names: list[str] | None = None) -> dict[str, bytes]:
        """Wrapped keys of some profiles, or of all."""
        query = sa.select(data_keys)
        if names is not None:
            query = query.where(among(data_keys.c.profile, names))
        wanted = None if names is None else set(names)
        with self.key_engine.connect() as connection:
            rows = connection.execute(query)
            return {row[0]: bytes(row[1]) for row in rows if wanted is None or row[0] in wanted}

    def settle_files(self) -> None:
        """Empty SQLite's log of changes, which still has what was erased.

        Where somebody reads for long, such as a back-up, the next deletion or the end of the service does it.
        """
        for engine in {self.engine, self.key_engine}:
            if engine.dialect.name == "sqlite":
                with _WRITERS[engine], closing(engine.raw_connection()) as connection:
                    cursor = connection.cursor()
                    before = cursor.execute("PRAGMA busy_timeout").fetchone()[0]
                    cursor.execute("PRAGMA busy_timeout=200").fetchall()
                    cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                    cursor.execute(f"PRAGMA busy_timeout={before}").fetchall()


# -- engines -----------------------------------------------------------------------------


def connect(url: str, settings: Settings) -> Engine:
    """An engine with timeouts, whose transactions are real ones on either kind of database."""
    kind = url.partition(":")[0].partition("+")[0]
    if kind == "postgresql":
        return connect_postgres(url, settings)
    if kind != "sqlite":
        raise ParameterError(
            f"a database is sqlite:///FILE or postgresql://...; got one of {kind!r}"
        )
    return connect_sqlite(url, settings)


def connect_postgres(url: str, settings: Settings) -> Engine:
    need("psycopg")
    if url.startswith("postgresql://"):
        url = "postgresql+psycopg://" + url.partition("://")[2]
    lock_ms = round(1000 * settings.lock_timeout_s)
    statement_ms = round(1000 * settings.statement_timeout_s)
    limits = f"-c lock_timeout={lock_ms} -c statement_timeout={statement_ms}"
    options = {"connect_timeout": round(settings.connect_timeout_s), "options": limits}
    return sa.create_engine(
        url,
        pool_size=settings.threads + 2,
        max_overflow=settings.at_once + settings.threads,
        pool_pre_ping=True,
        pool_timeout=settings.connect_timeout_s,
        connect_args=options,
    )


def connect_sqlite(url: str, settings: Settings) -> Engine:
    engine = sa.create_engine(
        url,
        pool_size=settings.threads + 2,
        max_overflow=settings.at_once + settings.threads,
        pool_timeout=settings.connect_timeout_s,
        connect_args={"timeout": settings.lock_timeout_s},
    )
    if engine.url.database and not engine.url.database.startswith((":", "file:")):
        # created before SQLite does it, for its owner alone; the files beside it take its mode
        os.close(os.open(engine.url.database, os.O_RDWR | os.O_CREAT, 0o600))

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
    return engine


_WRITERS: WeakKeyDictionary[Engine, threading.Lock] = WeakKeyDictionary()
"""Of SQLite: threads of a process wait for each other here, and not in the database, which polls."""


@contextmanager
def begin(engine: Engine) -> Iterator[Connection]:
    with _one_writer(engine), engine.connect() as connection:
        connection = connection.execution_options(writes=True)
        with connection.begin():
            yield connection


@contextmanager
def _one_writer(engine: Engine) -> Iterator[None]:
    lock = _WRITERS.get(engine)
    if lock is None:
        yield
        return
    if not lock.acquire(timeout=WRITER_S):
        raise Problem(503, "database", "too many calls wait to write: nothing was changed", wait=2)
    try:
        yield
    finally:
        lock.release()


def lock_hosts(connection: Connection) -> None:
    """Several hosts may start at once on PostgreSQL, which has no lock timeout for this."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL lock_timeout = '60s'")
        connection.exec_driver_sql("SET LOCAL statement_timeout = '120s'")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})")


def among(column: sa.Column[str], names: Sequence[str]) -> sa.ColumnElement[bool]:
    """The column has one of the names; of too many to list, something between the first and the last."""
    if len(names) <= 500:
        return column.in_(names)
    return column.between(min(names), max(names))
