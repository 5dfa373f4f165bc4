"""Connections to SQLite or PostgreSQL: time limits, transactions, and locks between hosts, processes and threads."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError

from .._optional import need
from ..exceptions import ParameterError
from .deadlines import no_answer
from .schemas import Problem
from .settings import Settings
from .turns import Turns, too_many_writers

# PostgreSQL: number of the lock that makes hosts create tables one after the other if they start at the same time.
ADVISORY_LOCK = 7215843
# PostgreSQL: seconds beyond its own time limit after which a connection without an answer is closed.
GRACE_S = 1.0
# Number of threads that decide batches of verifications.
BATCH_THREADS = 5
# PostgreSQL: a host that is gone is noticed after about 20 s without an answer to the system's own messages.
KEEPALIVES = {
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}


# SQLSTATE of a full disk and of a lock that is not granted in time; codes of SQLite for the same.
FULL = {"53100", sqlite3.SQLITE_FULL}
LOCKED = {"55P03", "40P01", sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
# Codes of both databases for a row or page that cannot be read.
CORRUPTED = {"XX001", "XX002", sqlite3.SQLITE_CORRUPT}


def is_corruption(error: DBAPIError) -> bool:
    """Return whether the database reports that it cannot read its own rows."""
    return error_code(error) in CORRUPTED


def error_code(error: Exception) -> str | int | None:
    """Return the code of a database error: PostgreSQL's SQLSTATE or SQLite's result code; None if it has neither."""
    cause = getattr(error, "orig", None)
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None:
        # the upper bits of the code are details
        return int(code) & 0xFF
    state: str | None = getattr(cause, "sqlstate", None)
    return state


def database_problem(error: Exception) -> Problem:
    """Return the problem of a call whose transaction failed by `error` and was undone."""
    code = error_code(error)
    if code in FULL:
        detail = (
            "the disk of the database is full: nothing was changed; its operator must free space"
        )
        return Problem(507, "storage", detail)
    if code in LOCKED:
        detail = "another connection has locked rows of the database: nothing was changed, send the call again"
        return Problem(503, "database", detail, wait=2)
    return no_answer(is_unchanged=True)


class RowHeld(Problem):
    """Problem (503) of a call that changed nothing, because another connection has locked the row of its profile."""

    def __init__(self) -> None:
        detail = "another connection has locked this profile in the database: nothing was changed, send the call again"
        super().__init__(503, "held", detail, wait=2)


class UncertainCommit(Problem):
    """Problem (503) of a call that lost its connection to the database during the commit.

    It is unknown whether the call has changed anything.
    """

    def __init__(self) -> None:
        problem = no_answer(is_unchanged=False)
        super().__init__(503, "database", str(problem.detail), wait=2)


class UnreadableRows(Exception):
    """Error of a query about several profiles: the database cannot read the rows of some of them.

    Before it is raised, these profiles are noted as damaged, so that the query can be repeated without them.
    """


class Database:
    """One database with its connections.

    Parameters
    ----------
    url : ``sqlite:///folder/mvplda.sqlite`` or ``postgresql://...``
    settings : time limits, and the number of threads that connect at the same time
    is_urgent : whether this process may write to SQLite before processes that are not urgent
    schema : schema of PostgreSQL, created if it does not exist; None: the default schema
    """

    def __init__(
        self, url: str, settings: Settings, is_urgent: bool = False, schema: str | None = None
    ) -> None:
        self.engine = create_engine(url, settings, schema)
        self.is_postgres = self.engine.dialect.name == "postgresql"
        # SQLite polls for its lock; threads of one process wait for each other here instead
        self._writer = None if self.is_postgres else threading.Lock()
        self._lock_s = settings.lock_timeout_s
        self._turns: Turns | None = None
        if not self.is_postgres:
            self._turns = Turns(Path(str(self.engine.url.database)), is_urgent)

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Open a transaction that may write; SQLite allows only one such transaction at a time.

        Raises
        ------
        Problem : 503 if too many others wait to write to SQLite
        """
        lock = self._writer
        if lock is not None and not lock.acquire(timeout=self._lock_s):
            raise too_many_writers()
        try:
            turn = nullcontext() if self._turns is None else self._turns.next(self._lock_s)
            with turn, self.engine.connect() as connection:
                if lock is not None:
                    connection = connection.execution_options(writes=True)
                with self._transaction(connection):
                    yield connection
        finally:
            if lock is not None:
                lock.release()

    @contextmanager
    def _transaction(self, connection: Connection) -> Iterator[None]:
        """Commit a transaction at the end of the block; raise `UncertainCommit` if the connection is lost meanwhile."""
        is_complete = False
        try:
            with connection.begin():
                yield
                is_complete = True
        except DBAPIError as error:
            # an error that the database reports has a code, and undoes the transaction
            if is_complete and self.is_postgres and error_code(error) is None:
                raise UncertainCommit from error
            raise

    def truncate_log(self) -> None:
        """Empty SQLite's write-ahead log, because it still contains erased rows; PostgreSQL is left as it is.

        The log stays while another connection reads, such as a back-up. The next deletion, or the end of the service,
        then empties it.
        """
        if self._writer is None:
            return
        path = str(self.engine.url.database)
        with self._writer, closing(sqlite3.connect(path, timeout=0.2)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def create_engine(url: str, settings: Settings, schema: str | None = None) -> Engine:
    """Return SQLAlchemy's engine for a database, with the time limits of the settings.

    Parameters
    ----------
    url : ``sqlite:///FILE`` or ``postgresql://...``
    settings : time limits, and the number of threads that connect at the same time
    schema : schema of PostgreSQL, created if it does not exist; None: the default schema

    Raises
    ------
    ParameterError : if the address names another kind of database
    """
    kind = url.partition(":")[0].partition("+")[0]
    if kind not in ("sqlite", "postgresql"):
        raise ParameterError(
            f"expected the address of a database as sqlite:///FILE or postgresql://USER@HOST/NAME; got one that begins "
            f"with {kind!r}"
        )
    arguments: dict[str, object] = {"timeout": settings.lock_timeout_s}
    if kind == "postgresql":
        need("psycopg")
        url = url.replace("postgresql://", "postgresql+psycopg://")
        lock_ms = round(1000 * settings.lock_timeout_s)
        statement_ms = round(1000 * settings.statement_timeout_s)
        limits = f"-c lock_timeout={lock_ms} -c statement_timeout={statement_ms}"
        if schema is not None:
            # the extension is in the default schema
            limits += f" -c search_path={schema}" + ",public" * (settings.search == "pgvector")
        arguments = {"connect_timeout": round(settings.connect_timeout_s), "options": limits}
        arguments |= KEEPALIVES
    engine = sa.create_engine(
        url,
        pool_size=settings.threads + 2,
        # batches of verifications have threads of their own
        max_overflow=settings.at_once + settings.threads + BATCH_THREADS,
        pool_timeout=settings.connect_timeout_s,
        # PostgreSQL may have been restarted since the connection was opened
        pool_pre_ping=kind == "postgresql",
        connect_args=arguments,
    )
    if kind == "sqlite":
        prepare_sqlite(engine)
    else:
        limit_answers(engine, settings.statement_timeout_s + GRACE_S)
        if schema is not None:
            with engine.begin() as connection:
                connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    return engine


def limit_answers(engine: Engine, default_s: float) -> None:
    """Make an engine close connections to PostgreSQL that do not answer for `default_s` seconds.

    PostgreSQL's own time limits do not help if its process is frozen or its host is gone.
    """
    psycopg = need("psycopg")

    class LimitedConnection(psycopg.Connection):  # type: ignore[name-defined, misc]
        """Connection to PostgreSQL that waits for an answer for `limit_s` seconds at most."""

        limit_s = default_s

        def wait(self, statement: Any, *arguments: Any, **options: Any) -> Any:
            return super().wait(self._limited(statement), *arguments, **options)

        def _limited(self, statement: Any) -> Generator[Any, Any, Any]:
            """Run a statement; close the connection and raise if the server sends nothing for `limit_s` seconds."""
            until = time.monotonic() + self.limit_s
            try:
                step = next(statement)
                while True:
                    event = yield step
                    if event:
                        until = time.monotonic() + self.limit_s
                    elif time.monotonic() > until:
                        self.pgconn.finish()
                        detail = f"PostgreSQL did not answer within {self.limit_s:g} s"
                        raise psycopg.OperationalError(detail)
                    step = statement.send(event)
            except StopIteration as end:
                return end.value

    @sa.event.listens_for(engine, "do_connect")
    def _connect(
        dialect: object, record: object, arguments: Any, options: dict[str, Any]
    ) -> LimitedConnection:
        connection: LimitedConnection = LimitedConnection.connect(*arguments, **options)
        return connection

    @sa.event.listens_for(engine, "checkin")
    def _reset(connection: LimitedConnection | None, record: object) -> None:
        if connection is not None:
            connection.limit_s = default_s


def allow_long_statements(connection: Connection, limit_s: float, lock_s: float) -> None:
    """Extend the time limits of the present transaction in PostgreSQL; do nothing in SQLite.

    limit_s : seconds that one statement may take
    lock_s : seconds that one statement may wait for a lock
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{lock_s:g}s'")
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = '{limit_s:g}s'")
        driver: Any = connection.connection.driver_connection
        driver.limit_s = limit_s + GRACE_S


def prepare_sqlite(engine: Engine) -> None:
    """Create the file of an SQLite database if it does not exist, and set up its connections and transactions."""
    # with access for the owner alone; the files that SQLite creates beside it inherit the mode
    os.close(os.open(str(engine.url.database), os.O_RDWR | os.O_CREAT, 0o600))

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, record: object) -> None:
        # turn off the driver's own guess of where transactions begin; `_begin` does it
        connection.isolation_level = None
        # a damaged text is read with replacement characters, so that one row does not fail a query about many; what
        # was encrypted or signed for the original text is then found to be damaged
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        pragmas = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON")
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}").close()

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # a writer takes its lock at once: a reader that turns into a writer fails if another has written
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def lock_hosts(connection: Connection) -> None:
    """Lock a PostgreSQL database, so that hosts that start at the same time set it up one after the other.

    The lock lasts until the end of the transaction. The time limits of the transaction are extended, because it may
    wait for other hosts.
    """
    if connection.dialect.name == "postgresql":
        allow_long_statements(connection, 120, 60)
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})")
