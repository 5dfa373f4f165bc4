"""The database of the service, SQLite or PostgreSQL: tables, transactions, keys of callers and data keys."""

# ruff: noqa: E402

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from weakref import WeakKeyDictionary

from .._optional import need
from ..exceptions import FileFormatError, ParameterError
from .keys import Caller, key_hash, new_api_key

need("sqlalchemy")

import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, Float, Integer, LargeBinary, Text
from sqlalchemy.engine import Connection, Engine

from .problems import Json, Problem
from .settings import Settings

DAY = 86400.0
ADVISORY_LOCK = 7215843
"""Of PostgreSQL: hosts that start at the same time create tables one after the other."""
WRITER_S = 10.0
"""Of SQLite: seconds that a thread waits for the writers of its own process."""
IDLE_S = 1.0
"""Seconds after which a connection is tried before it is used again."""
DATABASE_CLOCK = sa.func.extract("epoch", sa.func.clock_timestamp())

# -- tables ------------------------------------------------------------------------------

tables = sa.MetaData()
key_tables = sa.MetaData()

meta = sa.Table(
    "meta", tables, Column("name", Text, primary_key=True), Column("value", Text, nullable=False)
)
changes = sa.Table(
    "changes",  # one row: how many transactions have changed profiles, under which master key
    tables,
    Column("id", Integer, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("master", Text),
)
profiles = sa.Table(
    "profiles",
    tables,
    Column("id", Text, primary_key=True),
    Column("user_id", Text),
    # created, enrolling, enrolled, opted_out, deleted; stale and expired follow from model and time
    Column("state", Text, nullable=False),
    Column("phrases", Text, nullable=False),  # JSON: {label: text}
    Column("consent", Text),
    Column("version", Integer, nullable=False),
    # the number of its last change
    Column("change", BigInteger, nullable=False, server_default="0"),
    Column("model", Text),  # fingerprint of the model that its sums were made with
    Column("model_version", Text),
    Column("extractor", Text),
    Column("enrollments", Integer, nullable=False),
    Column("next_number", Integer, nullable=False),
    Column("speech_s", Float, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("locked_until", Float),
    Column("created", Float, nullable=False),
    Column("updated", Float, nullable=False),
    Column("last_used", Float),
)
used = sa.func.coalesce(profiles.c.last_used, profiles.c.created)
"""When a profile was last used."""
sa.Index("profiles_change", profiles.c.change)
sa.Index("profiles_user", profiles.c.user_id)
sa.Index("profiles_used", used)
enrollments = sa.Table(
    "enrollments",
    tables,
    Column("profile", Text, sa.ForeignKey("profiles.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("phrase", Text, nullable=False),
    Column("share", LargeBinary, nullable=False),  # encrypted: its part of the sum
    Column("vector", LargeBinary),  # encrypted, where vectors are kept
    Column("extractor", Text),
    Column("speech_s", Float, nullable=False),
    Column("created", Float, nullable=False),
)
marks = sa.Table(
    "marks",  # keyed hashes of recordings: one that comes again is a replay
    tables,
    Column("profile", Text, primary_key=True),
    Column("mark", Text, primary_key=True),
    Column("at", Float, nullable=False),
)
challenges = sa.Table(
    "challenges",
    tables,
    Column("id", Text, primary_key=True),
    Column("profile", Text, nullable=False),
    Column("phrases", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("expires", Float, nullable=False),
    Column("used", Float),  # when it was answered; below 0 where that was not accepted
)
sa.Index("challenges_profile", challenges.c.profile, challenges.c.created)
sa.Index("challenges_expires", challenges.c.expires)
audit = sa.Table(
    "audit",
    tables,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("at", Float, nullable=False),
    Column("caller", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("profile", Text),
    Column("result_id", Text),
    Column("detail", Text, nullable=False),
)
sa.Index("audit_result", audit.c.result_id)
sa.Index("audit_profile", audit.c.profile)
sa.Index("audit_at", audit.c.at)
api_keys = sa.Table(
    "api_keys",
    tables,
    Column("hash", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("role", Text, nullable=False),
    Column("created", Float, nullable=False),
)
answers = sa.Table(
    "answers",  # to requests with an Idempotency-Key
    tables,
    Column("caller", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("request", Text, nullable=False),
    Column("body", Text),
    Column("at", Float, nullable=False),
)
sa.Index("answers_at", answers.c.at)
data_keys = sa.Table(
    "data_keys",
    key_tables,
    Column("profile", Text, primary_key=True),
    Column("wrapped", LargeBinary, nullable=False),
)

MIGRATIONS: dict[int, list[str]] = {
    2: [
        "CREATE INDEX IF NOT EXISTS profiles_used ON profiles (coalesce(last_used, created))",
        "CREATE INDEX IF NOT EXISTS challenges_expires ON challenges (expires)",
        "CREATE INDEX IF NOT EXISTS answers_at ON answers (at)",
    ],
    3: [
        "ALTER TABLE profiles ADD COLUMN change BIGINT NOT NULL DEFAULT 0",
        "CREATE INDEX IF NOT EXISTS profiles_change ON profiles (change)",
        "CREATE INDEX IF NOT EXISTS audit_at ON audit (at)",
        "DROP INDEX IF EXISTS profiles_updated",
        "DELETE FROM answers",
    ],
    # sums are made of the shares of recordings, which were stored beside them; phrases are free
    4: ["DROP TABLE IF EXISTS templates", "DROP TABLE IF EXISTS phrases"],
}
"""Version: statements that bring tables of the version before to it; new tables are created without them."""
SCHEMA = 4

# -- transactions ------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """Who asks for something, and on what terms.

    etag : version of the profile that the caller has read; another one is a conflict
    once : Idempotency-Key: the request is done once, and answered as often as it comes
    request : what makes it this request
    """

    caller: Caller
    etag: str | None = None
    once: str | None = None
    request: str = ""


SERVICE = Call(Caller("service", "admin"))
"""What the service does by itself."""


class Work:
    """One transaction, for one call.

    ``now`` is the time of the database where several hosts share it: their own clocks may differ. Profiles that were
    changed are numbered at the end of the transaction.
    """

    def __init__(self, connection: Connection, clock: Callable[[], float] | None, call: Call):
        self.connection = connection
        self.execute = connection.execute
        self.call = call
        self.changed: set[str] = set()
        self._now = None if clock is None else clock()

    @property
    def now(self) -> float:
        if self._now is None:
            self._now = float(self.execute(sa.select(DATABASE_CLOCK)).scalar_one())
        return self._now

    def set_time(self, at: float | None) -> None:
        """The database's time, where a query brought it."""
        if self._now is None and at is not None:
            self._now = float(at)

    def first(self, query: sa.Select[Any], parameters: Json | None = None) -> Json | None:
        row = self.execute(query, parameters).mappings().first()
        return None if row is None else dict(row)

    def all(self, query: sa.Select[Any]) -> list[Json]:
        return [dict(row) for row in self.execute(query).mappings()]

    def insert(self, table: sa.Table, **values: Any) -> None:
        self.execute(table.insert(), values)

    def delete(self, table: sa.Table, **keys: Any) -> int:
        """Delete the rows whose columns have these values; how many they were."""
        return self.execute(table.delete().where(matches(table, keys))).rowcount

    def update(self, table: sa.Table, keys: Json, **values: Any) -> None:
        self.execute(table.update().where(matches(table, keys)), values)

    def note(
        self, action: str, profile: str | None = None, result: str | None = None, **detail: Any
    ) -> None:
        """Write what was done or decided into the audit, without sound and without vectors."""
        self.insert(
            audit,
            at=self.now,
            caller=self.call.caller.name,
            action=action,
            profile=profile,
            result_id=result,
            detail=json.dumps(detail),
        )


def matches(table: sa.Table, keys: Json) -> sa.ColumnElement[bool]:
    return sa.and_(sa.true(), *(table.c[name] == value for name, value in keys.items()))


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
            version = SCHEMA
            if sa.inspect(connection).has_table(meta.name):
                stored = sa.select(meta.c.value).where(meta.c.name == "schema")
                version = int(connection.execute(stored).scalar() or SCHEMA)
            if version > SCHEMA:
                raise FileFormatError(
                    f"the database has tables of version {version}, this mvplda has {SCHEMA}: "
                    "upgrade mvplda"
                )
            for after in range(version + 1, SCHEMA + 1):
                for statement in MIGRATIONS[after]:
                    connection.exec_driver_sql(statement)
            tables.create_all(connection)
            connection.execute(meta.delete().where(meta.c.name == "schema"))
            connection.execute(meta.insert(), {"name": "schema", "value": str(SCHEMA)})
            if connection.execute(sa.select(changes.c.id)).first() is None:
                connection.execute(changes.insert(), {"id": 1, "number": 0})
        with begin(self.key_engine) as connection:
            lock_hosts(connection)
            key_tables.create_all(connection)

    @contextmanager
    def write(self, call: Call = SERVICE) -> Iterator[Work]:
        with begin(self.engine) as connection:
            work = Work(connection, self.clock, call)
            yield work
            if work.changed:
                self._number(work)

    @contextmanager
    def read(self, call: Call = SERVICE) -> Iterator[Work]:
        with self.engine.connect() as connection:
            yield Work(connection, self.clock, call)

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
            raise rotated()
        names = sorted(work.changed)
        for start in range(0, len(names), 500):
            some = profiles.c.id.in_(names[start : start + 500])
            work.execute(profiles.update().where(some), {"change": number})

    def bind(self, master: str) -> None:
        """Remember the mark of the master key, or refuse another one than was remembered."""
        with self.write() as work:
            known = self.value("master", work)
            if known is None:
                work.insert(meta, name="master", value=master)
            elif known != master:
                raise ParameterError(
                    "the master key is another one than that which this database was made with"
                )
            work.update(changes, {}, master=master)
        self.master = master

    def value(self, name: str, work: Work | None = None) -> str | None:
        """What the table `meta` has of a name."""
        query = sa.select(meta.c.value).where(meta.c.name == name)
        if work is not None:
            return work.execute(query).scalar()
        with self.read() as reading:
            return reading.execute(query).scalar()

    def count(self) -> int:
        """How many people there are."""
        query = sa.select(sa.func.count()).where(profiles.c.state != "deleted")
        with self.read() as work:
            return int(work.execute(query).scalar_one())

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
        with self.write() as work:
            work.delete(api_keys, name=name)
            same = work.first(sa.select(api_keys).where(api_keys.c.hash == key_hash(key)))
            if same is not None:
                raise ParameterError(
                    f"the API key of {name!r} is that of {same['name']!r} already: each has one of "
                    "its own"
                )
            work.insert(api_keys, hash=key_hash(key), name=name, role=role, created=work.now)
        return key

    def drop_api_key(self, name: str) -> bool:
        with self.write() as work:
            return bool(work.delete(api_keys, name=name))

    def key_names(self) -> list[str]:
        with self.read() as work:
            return [row["name"] for row in work.all(sa.select(api_keys))]

    def find_caller(self, key: str) -> Caller | None:
        query = sa.select(api_keys.c.name, api_keys.c.role).where(api_keys.c.hash == key_hash(key))
        with self.read() as work:
            row = work.execute(query).first()
        return None if row is None else Caller(*row)

    # -- data keys -----------------------------------------------------------

    @contextmanager
    def keys(self, work: Work | None = None) -> Iterator[Connection]:
        """The database of data keys: a part of the transaction where they lie with the data, else at once."""
        if work is not None and self.key_engine is self.engine:
            yield work.connection
        else:
            with begin(self.key_engine) as connection:
                yield connection

    def put_key(self, profile: str, wrapped: bytes, work: Work | None = None) -> None:
        with self.keys(work) as connection:
            connection.execute(data_keys.insert(), {"profile": profile, "wrapped": wrapped})

    def get_key(self, profile: str, work: Work | None = None) -> bytes | None:
        query = sa.select(data_keys.c.wrapped).where(data_keys.c.profile == profile)
        with self.keys(work) as connection:
            return connection.execute(query).scalar()

    def destroy_key(self, profile: str, work: Work | None = None) -> None:
        with self.keys(work) as connection:
            connection.execute(data_keys.delete().where(data_keys.c.profile == profile))

    def some_keys(self, names: Sequence[str] | None = None) -> dict[str, bytes]:
        """Wrapped keys of some profiles, or of all."""
        query = sa.select(data_keys)
        if names is not None:
            query = query.where(data_keys.c.profile.in_(names))
        with self.key_engine.connect() as connection:
            return {name: bytes(wrapped) for name, wrapped in connection.execute(query)}

    def settle_files(self) -> None:
        """Empty SQLite's log of changes, which still has what was erased.

        Where somebody reads for long, such as a back-up, the next deletion or the end of the service does it.
        """
        for engine in {self.engine, self.key_engine} & set(_WRITERS):
            with _WRITERS[engine], closing(engine.raw_connection()) as connection:
                cursor = connection.cursor()
                before = cursor.execute("PRAGMA busy_timeout").fetchone()[0]
                for pragma in ("busy_timeout=200", "wal_checkpoint(TRUNCATE)"):
                    cursor.execute(f"PRAGMA {pragma}").fetchall()
                cursor.execute(f"PRAGMA busy_timeout={before}").fetchall()


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
        if url.startswith("postgresql://"):
            url = "postgresql+psycopg://" + url.partition("://")[2]
        lock_ms = round(1000 * settings.lock_timeout_s)
        statement_ms = round(1000 * settings.statement_timeout_s)
        limits = f"-c lock_timeout={lock_ms} -c statement_timeout={statement_ms}"
        arguments = {"connect_timeout": round(settings.connect_timeout_s), "options": limits}
    engine = sa.create_engine(
        url,
        pool_size=settings.threads + 2,
        max_overflow=settings.at_once + settings.threads,
        pool_timeout=settings.connect_timeout_s,
        connect_args=arguments,
    )
    if kind == "sqlite":
        prepare_sqlite(engine)
    else:
        try_idle_connections(engine)
    return engine


def try_idle_connections(engine: Engine) -> None:
    """Find out that a database was restarted; a connection that was used just now is not tried."""

    @sa.event.listens_for(engine, "checkin")
    def _used(connection: Any, record: Any) -> None:
        record.info["used"] = time.monotonic()

    @sa.event.listens_for(engine, "checkout")
    def _try(connection: Any, record: Any, proxy: Any) -> None:
        if time.monotonic() - record.info.get("used", 0.0) < IDLE_S:
            return
        try:
            engine.dialect.do_ping(connection)
        except Exception as error:
            raise sa.exc.InvalidatePoolError from error


def prepare_sqlite(engine: Engine) -> None:
    path = engine.url.database
    if path and not path.startswith((":", "file:")):
        # created before SQLite does it, for its owner alone; the files beside it take its mode
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))

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


_WRITERS: WeakKeyDictionary[Engine, threading.Lock] = WeakKeyDictionary()
"""Of SQLite: threads of a process wait for each other here, and not in the database, which polls."""


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
