"""Tables of the service, on SQLite or PostgreSQL, and the transactions that keep them whole."""

# ruff: noqa: E402

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from .._optional import need
from ..exceptions import FileFormatError, ParameterError
from .keys import Caller, key_hash, new_api_key

need("sqlalchemy")

import sqlalchemy as sa
from sqlalchemy import Column, Float, Integer, LargeBinary, Text
from sqlalchemy.engine import Connection, Engine

BUSY_S = 20
"""So long a writer of SQLite waits for another."""

tables = sa.MetaData()
key_tables = sa.MetaData()

meta = sa.Table(
    "meta", tables, Column("name", Text, primary_key=True), Column("value", Text, nullable=False)
)
profiles = sa.Table(
    "profiles",
    tables,
    Column("id", Text, primary_key=True),
    Column("user_id", Text),
    Column(
        "state", Text, nullable=False
    ),  # created, enrolling, enrolled, opted_out, deleted; the others follow
    Column("phrases", Text, nullable=False),  # JSON: {label: text}
    Column("consent", Text),
    Column("version", Integer, nullable=False),
    Column("model", Text),  # the fingerprint of what its sums were made with
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
sa.Index("profiles_updated", profiles.c.updated)
sa.Index("profiles_user", profiles.c.user_id)
sa.Index("profiles_used", sa.func.coalesce(profiles.c.last_used, profiles.c.created))
templates = sa.Table(
    "templates",
    tables,
    Column("profile", Text, sa.ForeignKey("profiles.id"), primary_key=True),
    Column("phrase", Text, primary_key=True),
    Column("count", Integer, nullable=False),
    Column("total", LargeBinary, nullable=False),  # encrypted
)
enrollments = sa.Table(
    "enrollments",
    tables,
    Column("profile", Text, sa.ForeignKey("profiles.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("phrase", Text, nullable=False),
    Column("share", LargeBinary, nullable=False),  # encrypted: what it added to the sum
    Column("vector", LargeBinary),  # encrypted, where vectors are kept
    Column("extractor", Text),
    Column("speech_s", Float, nullable=False),
    Column("created", Float, nullable=False),
)
marks = sa.Table(
    "marks",  # keyed hashes of sound that was heard: a recording that comes again is a replay
    tables,
    Column("profile", Text, primary_key=True),
    Column("mark", Text, primary_key=True),
    Column("at", Float, nullable=False),
)
phrases = sa.Table(
    "phrases",
    tables,
    Column("id", Text, primary_key=True),
    Column("text", Text, nullable=False),
    Column("locale", Text),
    Column("created", Float, nullable=False),
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
api_keys = sa.Table(
    "api_keys",
    tables,
    Column("hash", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("role", Text, nullable=False),
    Column("created", Float, nullable=False),
)
answers = sa.Table(
    "answers",  # of requests with an Idempotency-Key
    tables,
    Column("caller", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("request", Text, nullable=False),
    Column("status", Integer),
    Column("body", Text),
    Column("headers", Text),
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
}
"""Version: statements that make of the tables of the version before those of this one; new tables make themselves."""
SCHEMA = 2


class Store:
    """A database, and the one in which data keys lie, which may be another.

    Parameters
    ----------
    url : of SQLAlchemy: ``sqlite:///folder/mvplda.sqlite`` or ``postgresql://...``
    key_url : of the data keys, so that they are not backed up with the data; None: in the same database
    """

    def __init__(self, url: str, key_url: str | None = None, *, pool: int = 10) -> None:
        self.engine = connect(url, pool)
        self.key_engine = self.engine if key_url is None else connect(key_url, pool)
        self.migrate()

    def migrate(self) -> None:
        """Make the tables, or bring those of an older version to this one; those of a newer one are refused."""
        with self.write() as connection:
            if connection.dialect.name == "postgresql":  # several hosts may start at once
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7215843)")
            found = None
            if sa.inspect(connection).has_table(meta.name):
                found = connection.execute(
                    sa.select(meta.c.value).where(meta.c.name == "schema")
                ).scalar()
            before = SCHEMA if found is None else int(found)
            if before > SCHEMA:
                raise FileFormatError(
                    f"the database has tables of version {before}, this mvplda knows {SCHEMA}: upgrade mvplda"
                )
            for version in range(before + 1, SCHEMA + 1):
                for statement in MIGRATIONS[version]:
                    connection.exec_driver_sql(statement)
            tables.create_all(connection)
            if found != str(SCHEMA):
                connection.execute(meta.delete().where(meta.c.name == "schema"))
                connection.execute(meta.insert().values(name="schema", value=str(SCHEMA)))
        with begin(self.key_engine) as connection:
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7215843)")
            key_tables.create_all(connection)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        with begin(self.engine) as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with self.engine.connect() as connection:
            yield connection

    def remember(self, name: str, value: str | None = None) -> str | None:
        """A value that is set once: what is there, or this."""
        with self.write() as connection:
            row = connection.execute(sa.select(meta.c.value).where(meta.c.name == name)).first()
            if row is None and value is not None:
                connection.execute(meta.insert().values(name=name, value=value))
            return value if row is None else str(row[0])

    def ping(self) -> None:
        with self.read() as connection:
            connection.exec_driver_sql("SELECT 1")

    def close(self) -> None:
        self.engine.dispose()
        self.key_engine.dispose()

    # -- keys of callers -----------------------------------------------------

    def put_api_key(self, name: str, role: str, key: str | None = None) -> str:
        """Keep the hash of a key, in place of one of the same name; the key itself is not kept."""
        key = key or new_api_key()
        row = {"hash": key_hash(key), "name": name, "role": role, "created": time.time()}
        with self.write() as connection:
            connection.execute(api_keys.delete().where(api_keys.c.name == name))
            same = connection.execute(
                sa.select(api_keys.c.name).where(api_keys.c.hash == row["hash"])
            ).scalar()
            if same is not None:
                raise ParameterError(
                    f"the API key of {name!r} is that of {same!r} already: each has one of its own"
                )
            connection.execute(api_keys.insert().values(**row))
        return key

    def drop_api_key(self, name: str) -> bool:
        with self.write() as connection:
            return bool(
                connection.execute(api_keys.delete().where(api_keys.c.name == name)).rowcount
            )

    def key_names(self) -> list[str]:
        with self.read() as connection:
            return list(
                connection.execute(sa.select(api_keys.c.name).order_by(api_keys.c.name)).scalars()
            )

    def find_caller(self, key: str) -> Caller | None:
        with self.read() as connection:
            query = sa.select(api_keys.c.name, api_keys.c.role).where(
                api_keys.c.hash == key_hash(key)
            )
            row = connection.execute(query).first()
        return None if row is None else Caller(row[0], row[1])

    # -- data keys -----------------------------------------------------------

    def put_key(self, profile: str, wrapped: bytes) -> None:
        with begin(self.key_engine) as connection:
            connection.execute(data_keys.insert().values(profile=profile, wrapped=wrapped))

    def get_key(self, profile: str) -> bytes | None:
        with self.key_engine.connect() as connection:
            row = connection.execute(
                sa.select(data_keys.c.wrapped).where(data_keys.c.profile == profile)
            ).first()
        return None if row is None else bytes(row[0])

    def destroy_key(self, profile: str, connection: Connection | None = None) -> None:
        """At once; or, where the keys lie with the data, together with the other changes of a connection."""
        gone = data_keys.delete().where(data_keys.c.profile == profile)
        if connection is not None and self.key_engine is self.engine:
            connection.execute(gone)
            return
        with begin(self.key_engine) as own:
            own.execute(gone)

    def some_keys(self, names: list[str] | None = None) -> dict[str, bytes]:
        """Wrapped keys of some profiles, or of all."""
        query = sa.select(data_keys)
        query = query if names is None else query.where(among(data_keys.c.profile, names))
        wanted = None if names is None else set(names)
        with self.key_engine.connect() as connection:
            return {
                name: bytes(key)
                for name, key in connection.execute(query)
                if wanted is None or name in wanted
            }

    def settle_files(self) -> None:
        """Bring SQLite's files up to date, for the log of changes still has what was erased.

        Where somebody reads for long, such as a back-up, the next deletion or the end of the service does it.
        """
        for engine in {self.engine, self.key_engine}:
            if engine.dialect.name == "sqlite":
                with _WRITERS[engine], closing(engine.raw_connection()) as connection:
                    for pragma in (
                        "busy_timeout=200",
                        "wal_checkpoint(TRUNCATE)",
                        f"busy_timeout={1000 * BUSY_S}",
                    ):
                        connection.cursor().execute(f"PRAGMA {pragma}").fetchall()

    # -- back-up -------------------------------------------------------------

    def backup(self, path: Path) -> int:
        """Write all rows as lines of JSON, without data keys: where a key is destroyed, the copy is lost too."""
        from ..persistence import atomic_write

        count = 0
        with (
            atomic_write(path) as (place,),
            place.open("wb") as file,
            self.engine.connect() as connection,
        ):
            os.chmod(place, 0o600)
            file.write(
                (
                    json.dumps({"mvplda": "backup", "schema": SCHEMA, "at": time.time()}) + "\n"
                ).encode()
            )
            for table in tables.sorted_tables:
                if table is answers:  # of use for a day, and full of names
                    continue
                for row in connection.execute(table.select()).mappings():
                    plain = {
                        k: {"hex": bytes(v).hex()} if isinstance(v, (bytes, memoryview)) else v
                        for k, v in row.items()
                    }
                    file.write((json.dumps([table.name, plain]) + "\n").encode())
                    count += 1
        return count

    def restore(self, path: Path, master: str | None = None) -> tuple[int, int]:
        """Put the rows of a back-up into tables that are empty.

        People whose data keys are not here come back as deleted. Where the master key is another, by its mark, nothing
        is restored.

        Returns
        -------
        rows, and people who come back as deleted
        """
        keys = set(self.some_keys())
        count = 0
        with path.open(encoding="utf-8") as file, self.write() as connection:
            head = json.loads(file.readline())
            if head.get("mvplda") != "backup" or head.get("schema", 0) > SCHEMA:
                raise FileFormatError(f"{path} is no back-up of this version of the service")
            if connection.execute(sa.select(profiles.c.id).limit(1)).first() is not None:
                raise ParameterError("the database has profiles already: restore into an empty one")
            for table in tables.sorted_tables:
                connection.execute(table.delete())
            gone: set[str] = set()
            for line in file:
                name, row = json.loads(line)
                if (name, row.get("name")) == (
                    "meta",
                    "schema",
                ):  # the tables are of this version, not of the copy's
                    row["value"] = str(SCHEMA)
                row = {
                    k: bytes.fromhex(v["hex"]) if isinstance(v, dict) else v for k, v in row.items()
                }
                if (name, row.get("name")) == ("meta", "master") and master not in (
                    None,
                    row["value"],
                ):
                    raise ParameterError(
                        "the back-up is of a service with another master key: bring that one along, from wherever it is"
                    )
                if (
                    name == "profiles"
                    and row["id"] not in keys
                    and row["state"] not in ("opted_out", "deleted")
                ):
                    gone.add(row["id"])
                    row |= {
                        "state": "deleted",
                        "user_id": None,
                        "phrases": "{}",
                        "consent": None,
                        "enrollments": 0,
                    }
                if name == "answers" or (
                    name in ("templates", "enrollments", "marks") and row["profile"] in gone
                ):
                    continue
                connection.execute(tables.tables[name].insert().values(**row))
                count += 1
            if self.engine.dialect.name == "postgresql":
                connection.exec_driver_sql(
                    "SELECT setval('audit_id_seq', (SELECT coalesce(max(id), 1) FROM audit))"
                )
        return count, len(gone)


def connect(url: str, pool: int) -> Engine:
    """An engine whose transactions are real ones, on either kind of database."""
    if url.startswith("postgresql://"):
        url = "postgresql+psycopg://" + url.partition("://")[2]
    kind = url.partition(":")[0].partition("+")[0]
    if kind not in ("sqlite", "postgresql"):
        raise ParameterError(
            f"a database is sqlite:///FILE or postgresql://...; got one of {kind!r}"
        )
    if kind == "postgresql":
        need("psycopg")
        return sa.create_engine(
            url, pool_size=pool, max_overflow=pool, pool_pre_ping=True, pool_timeout=10
        )
    engine = sa.create_engine(
        url, pool_size=pool, max_overflow=pool, connect_args={"timeout": BUSY_S}
    )
    if engine.url.database and not engine.url.database.startswith((":", "file:")):
        # made before SQLite makes it, for its owner alone; the files beside it take after it
        os.close(os.open(engine.url.database, os.O_RDWR | os.O_CREAT, 0o600))

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, record: Any) -> None:
        connection.isolation_level = (
            None  # transactions are begun below, and not by the driver's guess
        )
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            "foreign_keys=ON",
            "secure_delete=ON",
        ):
            connection.execute(f"PRAGMA {pragma}").close()

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # a writer takes its lock at once: one that began to read could not go on if another wrote meanwhile
        wants = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if wants else "BEGIN")

    _WRITERS[engine] = threading.Lock()
    return engine


def among(column: Column[str], names: Sequence[str]) -> sa.ColumnElement[bool]:
    """The column has one of the names; where they are too many to be listed, something between the first and last."""
    return column.in_(names) if len(names) <= 500 else column.between(min(names), max(names))


_WRITERS: WeakKeyDictionary[Engine, threading.Lock] = WeakKeyDictionary()
"""Of SQLite: threads of a process wait for each other here, and not in the database, which looks now and then."""


@contextmanager
def begin(engine: Engine) -> Iterator[Connection]:
    with (
        _WRITERS.get(engine, nullcontext()),
        engine.connect().execution_options(writes=True) as connection,
        connection.begin(),
    ):
        yield connection
