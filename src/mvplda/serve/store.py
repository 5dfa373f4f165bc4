"""The database of the service: transactions, audit entries, API keys of callers, and data keys of profiles."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from pydantic_core import to_json
from sqlalchemy import bindparam

from ..exceptions import FileFormatError, ParameterError
from .api_keys import ApiKeys
from .audit import AuditChain
from .database import Database, lock_hosts
from .erasure import bind_key_database
from .keys import MASTER, NEW_MASTER, Caller, KeyRing
from .schemas import Problem
from .settings import Settings
from .tables import (
    CHANGES,
    DATA_KEYS,
    KEY_METADATA,
    META,
    PROFILES,
    is_damaged,
)

DAY = 86400.0
MINUTE = 60.0
# Alembic: one file per version of the tables.
MIGRATIONS = Path(__file__).with_name("migrations")
# Largest number of profiles that one statement numbers.
NUMBERED = 500

Values = Mapping[str, object]
Row = TypeVar("Row")
# Caller of the transactions that the service starts itself.
SERVICE = Caller("service", "admin")

# -- statements --------------------------------------------------------------------------

# text for its ON CONFLICT, which both databases understand
PUT_MASTER = sa.text(
    "INSERT INTO meta (name, value) VALUES ('master', :master) ON CONFLICT (name) DO NOTHING"
)
DATABASE_TIME = sa.extract("epoch", sa.func.clock_timestamp())
COUNT_CHANGE = (
    CHANGES.update()
    .values(number=CHANGES.c.number + 1)
    .returning(CHANGES.c.number, CHANGES.c.master)
)
NUMBER_PROFILES = (
    PROFILES.update()
    .where(PROFILES.c.id.in_(bindparam("names", expanding=True)))
    .values(change=bindparam("number"))
)
COUNT_DAMAGED = sa.select(sa.func.count()).where(is_damaged)
# Name in the table ``meta`` of the previous master key's mark, while the master key is changed.
BEFORE = "master before"
MASTER_MARKS = sa.select(META.c.value).where(META.c.name.in_(["master", BEFORE]))
META_VALUE = sa.select(META.c.value).where(META.c.name == bindparam("name"))
# Only if no mark is set: a change of the master key may have set another one meanwhile.
SET_FIRST_MASTER = (
    CHANGES.update().where(CHANGES.c.master.is_(None)).values(master=bindparam("mark"))
)
DATA_KEY = sa.select(DATA_KEYS.c.wrapped).where(DATA_KEYS.c.profile == bindparam("profile"))
DESTROY_KEY = DATA_KEYS.delete().where(DATA_KEYS.c.profile == bindparam("profile"))

# -- transactions ------------------------------------------------------------------------


class Transaction:
    """One transaction of the database, for one caller.

    Parameters
    ----------
    connection : connection on which the transaction has begun
    clock : returns the present time; None: the clock of the database, because clocks of several hosts may differ
    caller : caller in the audit entries of the transaction
    master : mark of the master key with which new data are encrypted; None: the first key of the process

    Attributes
    ----------
    changed : ids of the profiles that the transaction changes; at its end they get a new change number
    notes : audit entries, which are written at its end
    """

    def __init__(
        self,
        connection: sa.Connection,
        clock: Callable[[], float] | None = None,
        caller: Caller = SERVICE,
        master: str | None = None,
    ) -> None:
        self.connection = connection
        self.caller = caller
        self.master = master
        self.changed: set[str] = set()
        self.notes: list[dict[str, object]] = []
        self._clock = clock

    @cached_property
    def now(self) -> float:
        """Time in seconds since 1970; read once, so that it is the same in the whole transaction."""
        if self._clock is not None:
            return self._clock()
        return float(self.value(sa.select(DATABASE_TIME)))

    def run(self, statement: sa.Executable | str, **values: object) -> sa.CursorResult[Any]:
        """Execute a statement and return its result.

        statement : statement of SQLAlchemy, or SQL with parameters written as ``:name``
        values : {name: value} of the parameters
        """
        if isinstance(statement, str):
            statement = sa.text(statement)
        return self.connection.execute(statement, values)

    def run_each(self, statement: sa.Executable, rows: Sequence[Values]) -> None:
        """Execute a statement once per row of values; all rows have the same columns."""
        self.connection.execute(statement, rows)

    def rows(self, record: Callable[..., Row], query: sa.Executable, **values: object) -> list[Row]:
        """Execute a query with `values` for its parameters, and return record(*columns) for each row."""
        return [record(*row) for row in self.run(query, **values).all()]

    def first(
        self, record: Callable[..., Row], query: sa.Executable, **values: object
    ) -> Row | None:
        """Execute a query, and return record(*columns) for the first row; None if there is no row."""
        row = self.run(query, **values).first()
        return None if row is None else record(*row)

    def value(self, query: sa.Executable | str, **values: object) -> Any:
        """Execute a query, and return the first column of the first row; None if there is no row."""
        return self.run(query, **values).scalar()

    def note(
        self, action: str, profile: str | None = None, result: str | None = None, **detail: object
    ) -> None:
        """Note an audit entry, which is written at the end of the transaction.

        Parameters
        ----------
        action : name of the action, such as "enrol"
        profile : id of the profile; None: the action is not about a profile
        result : id of a decision; None: there is none
        detail : further fields, without sound and vectors
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


class Store:
    """Database of the service and database of its data keys, which may be the same database.

    Parameters
    ----------
    url : ``sqlite:///folder/mvplda.sqlite`` or ``postgresql://...``
    key_url : address of a separate database of the data keys, which must not be backed up together with the data; None:
        the data keys are in the database `url`
    settings : time limits; None: defaults and environment
    is_urgent : whether this process may write to SQLite before processes that are not urgent
    schema : schema of PostgreSQL; None: the default schema

    Raises
    ------
    ParameterError : if an address is wrong, or if the data keys of the profiles are in another database than `key_url`
    FileFormatError : if a newer version of mvplda made the tables
    """

    def __init__(
        self,
        url: str,
        key_url: str | None = None,
        settings: Settings | None = None,
        is_urgent: bool = False,
        schema: str | None = None,
    ) -> None:
        settings = settings or Settings()
        self.database = Database(url, settings, is_urgent, schema)
        self.key_database = self.database
        if key_url is not None:
            self.key_database = Database(key_url, settings, is_urgent, schema)
        self.is_postgres = self.database.is_postgres
        # None: the clock of the database
        self.clock: Callable[[], float] | None = None if self.is_postgres else time.time
        self.master: str | None = None
        self._masters: KeyRing | None = None
        # set by `Service`, because the audit needs the master key
        self.audit: AuditChain | None = None
        self.api_keys = ApiKeys(self)
        self._migrate()

    def _migrate(self) -> None:
        """Create the tables, or upgrade those of older versions; raise `FileFormatError` if they are newer."""
        with self.database.begin() as connection:
            lock_hosts(connection)
            config = Config(attributes={"connection": connection})
            config.set_main_option("script_location", str(MIGRATIONS))
            try:
                command.upgrade(config, "head")
            except CommandError as error:
                raise FileFormatError(
                    f"a newer version of mvplda made the tables of the database ({error}): upgrade mvplda"
                ) from error
        with self.key_database.begin() as connection:
            lock_hosts(connection)
            KEY_METADATA.create_all(connection)
        try:
            bind_key_database(self)
        except ParameterError:
            # closing makes SQLite remove its log, which must not stay beside a file that is restored afterwards
            self.close()
            raise

    @contextmanager
    def write(self, caller: Caller = SERVICE) -> Iterator[Transaction]:
        """Open a transaction that may change rows; an exception in the block undoes all changes.

        At its end, audit entries are written and changed profiles are numbered.
        """
        with self.database.begin() as connection:
            work = Transaction(connection, self.clock, caller, self.master)
            yield work
            if work.notes:
                if self.audit is None:
                    raise RuntimeError(
                        "the audit is not open: set Store.audit before entries are added"
                    )
                self.audit.append(work, work.notes)
            if work.changed:
                self._number(work)

    @contextmanager
    def read(self, caller: Caller = SERVICE) -> Iterator[Transaction]:
        """Open a transaction that only reads, without waiting for transactions that write."""
        with self.database.engine.connect() as connection:
            yield Transaction(connection, self.clock, caller)

    def _number(self, work: Transaction) -> None:
        """Assign the next change number to the profiles that a transaction changed.

        The row of the counter stays locked until the transaction ends, so that numbers are committed in ascending
        order: a reader that sees a number also sees all changes with smaller numbers. This lock is the last one to be
        taken, and is held only for the commit.
        """
        counter = work.run(COUNT_CHANGE).one()
        if work.master not in (None, counter.master):
            raise self._changed_master(counter.master)
        names = sorted(work.changed)
        for start in range(0, len(names), NUMBERED):
            work.run(NUMBER_PROFILES, number=counter.number, names=names[start : start + NUMBERED])

    def _changed_master(self, mark: str) -> Problem:
        """Return the problem (503) of a transaction that has encrypted data with the previous master key.

        It is `MasterKeyChanged` if this process has the new key with the given `mark`: the transaction can be repeated.
        """
        if self._masters is None or self._masters.find(mark) is None:
            return rotated()
        self.master = mark
        return MasterKeyChanged()

    def bind(self, masters: KeyRing) -> None:
        """Use the master keys of this process for the database; a new database uses the first of them from now on.

        Raises
        ------
        ParameterError : if a master key of the database is missing
        """
        with self.write() as work:
            # if several instances start at the same time, the first of them stores its mark
            work.run(PUT_MASTER, master=masters.first.mark)
            self.check_masters(masters, work)
            master = self.meta("master", work)
            work.run(SET_FIRST_MASTER, mark=master)
        self.master = master
        self._masters = masters

    def check_masters(self, masters: KeyRing, work: Transaction) -> None:
        """Raise `ParameterError` unless `masters` has all master keys with which data of the database are encrypted."""
        marks = list(work.run(MASTER_MARKS).scalars())
        missing = [mark for mark in marks if masters.find(mark) is None]
        if len(missing) == 1 and len(marks) == 2:
            raise ParameterError(
                "a change of the master key was interrupted, and one of its two keys is missing: run `mvplda serve "
                f"rotate` again; if the keys come from the environment, with the same {MASTER} and {NEW_MASTER}"
            )
        if missing:
            raise ParameterError(
                "the given master key differs from the one that this database was created with: use that key"
            )

    def meta(self, name: str, work: Transaction | None = None) -> str | None:
        """Return the value of the entry `name` in the table ``meta``; None if there is no such entry.

        work : transaction to read in; None: a new one
        """
        if work is None:
            with self.read() as work:
                return self.meta(name, work)
        value: str | None = work.value(META_VALUE, name=name)
        return value

    def is_master(self, work: Transaction, mark: str) -> bool:
        """Return whether a master key of the database has a mark that is `mark` or begins with it."""
        marks = work.run(MASTER_MARKS).scalars()
        return mark != "" and any(str(known).startswith(mark) for known in marks)

    def count_damaged(self) -> int:
        """Return the number of profiles that are marked as damaged."""
        with self.read() as work:
            return int(work.value(COUNT_DAMAGED))

    def close(self) -> None:
        """Close all connections to both databases."""
        for database in (self.database, self.key_database):
            database.engine.dispose()

    def truncate_logs(self) -> None:
        """Empty the write-ahead logs of SQLite, because they still contain erased rows."""
        for database in {self.database, self.key_database}:
            database.truncate_log()

    # -- data keys -----------------------------------------------------------

    @contextmanager
    def keys(self, work: Transaction | None = None) -> Iterator[Transaction]:
        """Open a transaction on the data keys.

        If the data keys are in the database of the profiles, `work` itself is yielded. Otherwise a separate transaction
        is yielded, which is committed at the end of the block, before `work`.
        """
        if work is not None and self.key_database is self.database:
            yield work
        else:
            with self.key_database.begin() as connection:
                yield Transaction(connection)

    @contextmanager
    def _read_keys(self, work: Transaction | None) -> Iterator[Transaction]:
        """Open a transaction that only reads data keys; see `keys`."""
        if work is not None and self.key_database is self.database:
            yield work
        else:
            with self.key_database.engine.connect() as connection:
                yield Transaction(connection)

    def get_key(self, profile: str, work: Transaction | None = None) -> bytes | None:
        """Return the encrypted data key of the profile with this id; None if it has none."""
        with self._read_keys(work) as keys:
            wrapped: bytes | None = keys.value(DATA_KEY, profile=profile)
        return wrapped

    def destroy_key(self, profile: str, work: Transaction | None = None) -> None:
        """Delete the data key of the profile with this id, after which its data cannot be decrypted."""
        with self.keys(work) as keys:
            keys.run(DESTROY_KEY, profile=profile)

    def all_keys(
        self, names: Sequence[str] | None = None, work: Transaction | None = None
    ) -> dict[str, bytes]:
        """Return {profile id: encrypted data key} of the profiles `names`; None: of all profiles."""
        query = sa.select(DATA_KEYS)
        if names is not None:
            query = query.where(DATA_KEYS.c.profile.in_(names))
        with self._read_keys(work) as keys:
            return {row.profile: row.wrapped for row in keys.run(query)}


class MasterKeyChanged(Problem):
    """Problem (503) of a transaction during which the master key was changed; the service repeats the transaction."""

    def __init__(self) -> None:
        detail = (
            "the master key was changed during this call: nothing was stored, send the call again"
        )
        super().__init__(503, "master-key", detail, wait=1)


def rotated() -> Problem:
    """Return the problem (503) of a call to a process that does not have the new master key."""
    detail = (
        "the master key was changed: the operator of this service must restart it with the new key"
    )
    return Problem(503, "master-key", detail)
