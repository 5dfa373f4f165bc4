"""Connections to SQLite or PostgreSQL: timeouts, real transactions, locks between hosts and threads."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError

from .._optional import need
from ..exceptions import ParameterError
from .schemas import Problem
from .settings import Settings

# PostgreSQL: number of the lock under which hosts that start at the same time create tables in turn.
ADVISORY_LOCK = 7215843
# SQLite: seconds that a thread waits for the writers of its own process.
WRITER_S = 10.0


# SQLSTATE of PostgreSQL, and codes of SQLite, of a row or page that cannot be read.
CORRUPTED = ("XX001", "XX002")


def is_corruption(error: DBAPIError) -> bool:
    """Return whether the database reports that it cannot read its own rows."""
    state = getattr(error.orig, "sqlstate", None)
    code = getattr(error.orig, "sqlite_errorcode", None)
    return state in CORRUPTED or (code is not None and code & 0xFF == sqlite3.SQLITE_CORRUPT)


class UnreadableRows(Exception):
    """The database cannot read rows of some profiles; these were found, and are left out from now on."""


class Database:
    """One database with its connections.

    Parameters
    ----------
    url : ``sqlite:///folder/mvplda.sqlite`` or ``postgresql://...``
    settings : timeouts, and the number of threads that connect at the same time
    """

    def __init__(self, url: str, settings: Settings) -> None:
        self.engine = create_engine(url, settings)
        self.is_postgres = self.engine.dialect.name == "postgresql"
        # SQLite polls for its lock; threads of one process wait for each other here instead
        self._writer = None if self.is_postgres else threading.Lock()

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Open a transaction that writes."""
        lock = self._writer
        if lock is not None and not lock.acquire(timeout=WRITER_S):
            detail = "too many calls are waiting to write: nothing was changed"
            raise Problem(503, "database", detail, wait=2)
        try:
            with self.engine.connect() as connection:
                if lock is not None:
                    connection = connection.execution_options(writes=True)
                with connection.begin():
                    yield connection
        finally:
            if lock is not None:
                lock.release()

    def truncate_log(self) -> None:
        """Empty SQLite's write-ahead log, which still holds erased rows.

        While another connection reads, such as a back-up, the log stays; the next deletion or the end of the
        service then empties it.
        """
        if self._writer is None:
            return
        path = str(self.engine.url.database)
        with self._writer, closing(sqlite3.connect(path, timeout=0.2)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def create_engine(url: str, settings: Settings) -> Engine:
    """Return an engine with the timeouts of the settings."""
    kind = url.partition(":")[0].partition("+")[0]
    if kind not in ("sqlite", "postgresql"):
        raise ParameterError(
            f"expected a database sqlite:///FILE or postgresql://...; got the kind {kind!r}"
        )
    arguments: dict[str, object] = {"timeout": settings.lock_timeout_s}
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
        # PostgreSQL may have been restarted since the connection was opened
        pool_pre_ping=kind == "postgresql",
        connect_args=arguments,
    )
    if kind == "sqlite":
        prepare_sqlite(engine)
    return engine


def prepare_sqlite(engine: Engine) -> None:
    """Create the file, and set up its connections and transactions."""
    # with access for the owner alone; the files that SQLite creates beside it inherit the mode
    os.close(os.open(str(engine.url.database), os.O_RDWR | os.O_CREAT, 0o600))

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, record: object) -> None:
        # turn off the driver's own guess of where transactions begin; `_begin` does it
        connection.isolation_level = None
        pragmas = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON")
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}").close()

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # a writer takes its lock at once: a reader that turns into a writer fails if another has written
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def lock_hosts(connection: Connection) -> None:
    """Lock the set-up of the database, so that hosts that start at the same time do it one after the other.

    PostgreSQL only. Advisory locks have no timeout of their own, so the limits of the transaction are raised.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL lock_timeout = '60s'")
        connection.exec_driver_sql("SET LOCAL statement_timeout = '120s'")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})")
