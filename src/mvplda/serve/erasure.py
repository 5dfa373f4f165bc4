"""Erasure of remaining data of deleted people: a separate database of data keys, and scrubbing of PostgreSQL.

Without the data key of a profile, no copy of its voice can be decrypted. PostgreSQL does not overwrite deleted rows:
they stay in its tables until these are rewritten, and in its write-ahead log until old segments are removed.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy import bindparam
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from ..exceptions import ParameterError
from .database import Database, error_code, lock_hosts
from .tables import (
    ANSWERS,
    CHALLENGES,
    DATA_KEYS,
    ENROLMENTS,
    KEY_MARK,
    KEY_METADATA,
    MARKS,
    META,
    PROFILES,
)

if TYPE_CHECKING:
    from .store import Store

# Tables with data about people, besides the table of data keys.
PERSONAL_TABLES = (PROFILES, ENROLMENTS, MARKS, CHALLENGES, ANSWERS)
VECTOR_TABLE = "voice_vectors"
# Name in the table ``meta`` under which the mark of the key database is stored.
KEY_DATABASE = "key database"
PUT_MARK = sa.text("INSERT INTO key_mark (id, mark) VALUES (1, :mark) ON CONFLICT (id) DO NOTHING")
PUT_META = sa.text(
    "INSERT INTO meta (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING"
)
GET_META = sa.select(META.c.value).where(META.c.name == bindparam("key"))
SET_META = META.update().where(META.c.name == bindparam("key")).values(value=bindparam("new_value"))
# SQLSTATE of a missing privilege.
FORBIDDEN = "42501"


# -- the database of the data keys ---------------------------------------------------------


def bind_key_database(store: Store) -> None:
    """Check that a store has the database with the data keys of its profiles.

    The first call notes the mark of the key database in the database of the profiles; later calls compare the marks.

    Raises
    ------
    ParameterError : if the data keys of the profiles are in another database than `store.key_database`
    """
    is_apart = store.key_database is not store.database
    with store.database.begin() as connection:
        expected = connection.execute(GET_META, {"key": KEY_DATABASE}).scalar()
        if expected is None and is_apart and has_data_keys(connection):
            raise ParameterError(
                "the data keys are still in the database of the profiles, but --key-database names another database: "
                "move them there with `mvplda serve move-keys`"
            )
    with store.key_database.begin() as connection:
        mark = key_mark(connection, expected)
    with store.database.begin() as connection:
        connection.execute(PUT_META, {"name": KEY_DATABASE, "value": mark})
        expected = connection.execute(GET_META, {"key": KEY_DATABASE}).scalar()
    if mark != expected:
        raise ParameterError(
            f"the key database {store.key_database.engine.url} does not have the data keys of these profiles: pass the "
            "same --key-database (or MVPLDA_KEY_DATABASE) on all hosts, or restore the key database"
        )


def key_mark(connection: Connection, expected: str | None = None) -> str:
    """Return the mark of a database of data keys, a random id that is created if it is missing.

    expected : mark to store if the database has data keys but no mark, such as a restored old copy; None: a random one
    """
    new = secrets.token_hex(16)
    if expected is not None and has_data_keys(connection):
        new = expected
    connection.execute(PUT_MARK, {"mark": new})
    return str(connection.execute(sa.select(KEY_MARK.c.mark)).scalar_one())


def has_data_keys(connection: Connection) -> bool:
    """Return whether a database has a table of data keys with at least one row."""
    if not sa.inspect(connection).has_table(DATA_KEYS.name):
        return False
    return connection.execute(sa.select(DATA_KEYS.c.profile).limit(1)).first() is not None


def move_keys(store: Store, target: Database) -> int:
    """Move the data keys from the database of the profiles into another database.

    No service may run meanwhile. Call it again to complete an interrupted move.

    Parameters
    ----------
    store : store whose data keys are in the database of the profiles
    target : database that receives the data keys

    Returns
    -------
    number of moved data keys

    Raises
    ------
    ParameterError : if `target` has data keys of other profiles
    """
    with store.database.begin() as connection:
        lock_hosts(connection)
        keys = key_rows(connection)
        with target.begin() as key_connection:
            KEY_METADATA.create_all(key_connection)
            moved = key_rows(key_connection)
            if not moved.items() <= keys.items():
                raise ParameterError(
                    "the database of --key-database contains data keys of other profiles: pass an empty database"
                )
            mark = key_mark(key_connection)
            rows = [
                {"profile": name, "wrapped": key} for name, key in keys.items() if name not in moved
            ]
            if rows:
                key_connection.execute(DATA_KEYS.insert(), rows)
        connection.execute(DATA_KEYS.delete())
        connection.execute(SET_META, {"key": KEY_DATABASE, "new_value": mark})
    return len(keys)


def key_rows(connection: Connection) -> dict[str, bytes]:
    """Return {profile id: encrypted data key} of a database of data keys."""
    return {row.profile: row.wrapped for row in connection.execute(sa.select(DATA_KEYS))}


# -- scrubbing -----------------------------------------------------------------------------


@dataclass
class ScrubReport:
    """Result of scrubbing PostgreSQL.

    Parameters
    ----------
    tables : names of the rewritten tables
    remains : sentences about places that may still contain data of deleted people
    """

    tables: list[str] = field(default_factory=list)
    remains: list[str] = field(default_factory=list)


def scrub_store(store: Store) -> ScrubReport:
    """Remove deleted rows from the files of PostgreSQL: rewrite the tables about people, and remove old logs.

    Calls of a running service wait while a table is rewritten. SQLite overwrites deleted rows at once; only its
    write-ahead log is emptied.
    """
    report = ScrubReport()
    if not store.is_postgres:
        store.truncate_logs()
        return report
    scrub_database(store.database, [table.name for table in PERSONAL_TABLES], report)
    if store.key_database.is_postgres:
        if store.key_database is not store.database:
            scrub_database(store.key_database, [], report)
        if report.remains:
            report.remains.append(
                "there, somebody with the master key can still decrypt the data keys and voices of deleted people: "
                "store data keys in an SQLite file instead (`mvplda serve move-keys`)"
            )
    return report


def scrub_database(database: Database, tables: Sequence[str], report: ScrubReport) -> None:
    """Rewrite tables of one PostgreSQL database, and remove its old write-ahead log.

    tables : names of the tables to rewrite; the tables of data keys and voice vectors are rewritten in any case
    report : report to which the names of rewritten tables and the remaining places of data are added
    """
    with autocommit(database) as connection:
        existing = set(sa.inspect(connection).get_table_names())
        wanted = [*tables, DATA_KEYS.name, VECTOR_TABLE]
        for name in wanted:
            if name in existing:
                connection.exec_driver_sql(f"VACUUM (FULL) {name}")
                report.tables.append(name)
        names = ", ".join(f"'{name}'::regclass" for name in report.tables)
        # statistics hold sample values, such as names of people
        steps = [
            f"DELETE FROM pg_catalog.pg_statistic WHERE starelid IN ({names})",
            "VACUUM (FULL) pg_catalog.pg_statistic",
            *(f"ANALYZE {name}" for name in report.tables),
            # the first checkpoint removes the tables' old files, the second one the log before it
            "CHECKPOINT",
            "SELECT pg_switch_wal()",
            "CHECKPOINT",
        ]
        for step in steps:
            try:
                connection.exec_driver_sql(step)
            except DBAPIError as error:
                if error_code(error) != FORBIDDEN:
                    raise
                report.remains.append(
                    f"the role of the database user lacks the privilege for: {step.split(' WHERE')[0]}"
                )
        report.remains += log_copies(connection)


def log_copies(connection: Connection) -> Iterator[str]:
    """Yield a sentence for each reason why the PostgreSQL server keeps copies of its write-ahead log."""
    reasons = {
        "SELECT current_setting('wal_recycle') = 'on'": "old segments of the write-ahead log are reused without being "
        "overwritten first (set wal_recycle = off)",
        "SELECT current_setting('archive_mode') <> 'off'": "the write-ahead log is archived (archive_mode)",
        "SELECT current_setting('wal_keep_size') <> '0'": "old segments of the write-ahead log are kept "
        "(wal_keep_size)",
        "SELECT count(*) > 0 FROM pg_replication_slots": "replication slots keep the write-ahead log",
        "SELECT count(*) > 0 FROM pg_stat_replication": "replicas have copies of the write-ahead log",
    }
    for query, reason in reasons.items():
        if connection.exec_driver_sql(query).scalar():
            yield reason


@contextmanager
def autocommit(database: Database) -> Iterator[Connection]:
    """Open a connection that commits each statement at once.

    Statements have no time limit, except 60 s for waiting for a lock.
    """
    with database.engine.connect() as found:
        connection = found.execution_options(isolation_level="AUTOCOMMIT")
        connection.exec_driver_sql("SET statement_timeout = 0")
        connection.exec_driver_sql("SET lock_timeout = '60s'")
        # the client's own limit of an answer
        driver = connection.connection.driver_connection
        driver.limit_s = 24 * 3600.0  # type: ignore[union-attr]
        try:
            yield connection
        finally:
            # the settings of this session end with it
            connection.invalidate()
