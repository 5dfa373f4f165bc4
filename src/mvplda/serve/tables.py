"""Tables of the service's database, and typed records of the rows that are read from them.

The columns of a table with a record are the fields of the record, so that ``ProfileRow(*row)`` converts a row.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, get_args, get_type_hints

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    bindparam,
    func,
    select,
    text,
)

from .schemas import State

COLUMN_TYPES = {str: Text, State: Text, int: Integer, float: Double, bytes: LargeBinary}
"""Type of a column by the type of its field."""


@dataclass
class ProfileRow:
    """Row of the table ``profiles``.

    state : created, enrolling, enrolled, opted_out or deleted; stale and expired follow from model and time
    phrases : JSON of {label: text}
    consent : JSON of the consent, with its time
    version : number of changes of this profile
    model : fingerprint of the model that computed its sums
    damaged : time at which its stored data were found to be unreadable; None: they are readable
    change : number of the last change, counted over all profiles
    rate_until : time until which earlier attempts use up the rate limit
    last_phrase : phrase of the last accepted challenge, which the next challenge avoids
    last_change : number of the last change of any profile; only of locked rows
    """

    id: str
    user_id: str | None
    state: State
    phrases: str
    consent: str | None
    version: int
    model: str | None
    model_version: str | None
    enrollments: int
    next_number: int
    speech_s: float
    failures: int
    locked_until: float | None
    created: float
    updated: float
    last_used: float | None
    change: int
    rate_until: float | None
    last_phrase: str | None
    damaged: float | None
    last_change: int | None = None

    def texts(self) -> dict[str, str]:
        """Return the phrases of the profile: {label: text}; raise `ValueError` if they are damaged."""
        texts = json.loads(self.phrases)
        if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
            raise ValueError(f"expected an object of phrases; got {self.phrases[:40]!r}")
        return texts

    def consent_record(self) -> dict[str, object] | None:
        """Return the consent; raise `ValueError` if it is damaged."""
        consent = json.loads(self.consent or "null")
        if consent is not None and not isinstance(consent, dict):
            raise ValueError(f"expected an object; got {consent!r}")
        return consent

    def damaged_columns(self) -> list[str]:
        """Return the names of columns with values that the service never writes."""
        names = [name for name in COUNTS if not is_count(getattr(self, name))]
        if not names and self.next_number <= self.enrollments:
            names.append("next_number")
        if self.state not in get_args(State):
            names.append("state")
        if not is_time(self.speech_s):
            names.append("speech_s")
        for name in TIMES:
            value = getattr(self, name)
            if not is_time(value) and (value is not None or name in ("created", "updated")):
                names.append(name)
        return names

    def repaired(self) -> ProfileRow:
        """Return a copy with plain values in damaged columns."""
        values: dict[str, Any] = {name: REPAIRED.get(name) for name in self.damaged_columns()}
        return replace(self, **values)


# Columns of a profile with numbers that count from zero, and with times.
COUNTS = ("version", "enrollments", "next_number", "failures")
TIMES = ("created", "updated", "last_used", "locked_until", "rate_until", "damaged")
# Values in place of damaged ones; those of all other columns are None.
REPAIRED: dict[str, Any] = {
    "version": 1,
    "enrollments": 0,
    "next_number": 1,
    "failures": 0,
    "state": "created",
    "speech_s": 0.0,
    "created": 0.0,
    "updated": 0.0,
}
# The end of the year 9999, in seconds.
LAST_TIME = 253_402_300_799.0


def is_count(value: object) -> bool:
    """Return whether a value is a plausible count: a whole number of at least 0 that fits a column."""
    return isinstance(value, int) and 0 <= value < 2**31 - 1


def is_time(value: object) -> bool:
    """Return whether a value is a number of seconds between 1970 and the year 9999."""
    return (
        isinstance(value, (int, float)) and math.isfinite(value) and 0 <= float(value) <= LAST_TIME
    )


def is_optional_number(value: object) -> bool:
    """Return whether a value is a finite number or missing."""
    return value is None or (isinstance(value, (int, float)) and math.isfinite(value))


class EnrolmentRow(NamedTuple):
    """Row of the table ``enrollments``: one recording of a profile.

    session : equal for recordings of one room, microphone and day
    share : encrypted summand of the sum of its phrase
    vector : encrypted vector, where vectors are stored
    master : first digits of the mark of the master key by which its share is rotated
    spoof_score : raw score by the detector of spoofs; None if it was off
    """

    profile: str
    number: int
    phrase: str
    session: str
    share: bytes
    vector: bytes | None
    extractor: str | None
    speech_s: float
    created: float
    master: str
    spoof_score: float | None = None

    def is_readable(self) -> bool:
        """Return whether the columns that are not encrypted have values that the service may have written."""
        return (
            is_time(self.speech_s)
            and is_time(self.created)
            and is_optional_number(self.spoof_score)
        )


class AuditRow(NamedTuple):
    """Row of the table ``audit``.

    detail : JSON
    chain, number, mac : chain of the entry, number in it, and keyed hash
    """

    id: int
    at: float
    caller: str
    action: str
    profile: str | None
    result_id: str | None
    detail: str
    chain: int | None = None
    number: int | None = None
    mac: str | None = None


def _columns(record: type, *detailed: Column[object]) -> list[Column[object]]:
    """Return one column per field of a record: that of `detailed` with the field's name, or else one of its type."""
    columns = {column.name: column for column in detailed}
    for name, hint in get_type_hints(record).items():
        alternatives = get_args(hint)
        is_optional = type(None) in alternatives
        field_type = alternatives[0] if is_optional else hint
        column: Column[object] = Column(name, COLUMN_TYPES[field_type], nullable=is_optional)
        columns.setdefault(name, column)
    return [columns[name] for name in get_type_hints(record)]


METADATA = MetaData()
# Data keys may be stored in a database of their own, apart from what is backed up.
KEY_METADATA = MetaData()

META = Table(
    "meta",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

# One row: the number of transactions that have changed profiles, and the mark of the master key.
CHANGES = Table(
    "changes",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False),
    Column("master", Text),
)

# The last field is not stored.
PROFILES = Table(
    "profiles",
    METADATA,
    *_columns(
        ProfileRow,
        Column("id", Text, primary_key=True),
        Column("user_id", Text, index=True),
        Column("change", BigInteger, nullable=False, server_default=text("0"), index=True),
    )[:-1],
)
IDS_OF_USER = (
    select(PROFILES.c.id)
    .where(PROFILES.c.user_id == bindparam("user"))
    .where(PROFILES.c.state != "deleted")
)
is_damaged = PROFILES.c.damaged.is_not(None)
PROFILES_DAMAGED = Index(
    "profiles_damaged",
    PROFILES.c.damaged,
    postgresql_where=is_damaged,
    sqlite_where=is_damaged,
)
# For the search by the beginning of a name, whose order is that of code points.
user_name = func.lower(PROFILES.c.user_id)
NAME_INDEXES = {
    "sqlite": Index("profiles_name", user_name),
    "postgresql": Index("profiles_name_c", user_name.collate("C")),
}
for dialect, index in NAME_INDEXES.items():
    index.ddl_if(dialect=dialect)
# The time from which the days until expiry are counted.
last_use = func.coalesce(PROFILES.c.last_used, PROFILES.c.created)
Index("profiles_used", last_use)

ENROLMENTS = Table(
    "enrollments",
    METADATA,
    *_columns(
        EnrolmentRow,
        Column("profile", ForeignKey(PROFILES.c.id), primary_key=True),
        Column("number", Integer, primary_key=True),
    ),
)

# Keyed hashes of recordings and their encrypted fingerprints: a recording that is sent again is a replay.
MARKS = Table(
    "marks",
    METADATA,
    Column("profile", Text, primary_key=True),
    Column("mark", Text, primary_key=True),
    Column("at", Double, nullable=False, index=True),
    Column("fingerprint", LargeBinary),
)

# A profile has at most one open challenge. A row is deleted when its challenge is answered, or counted as expired.
# Rows whose profile does not exist are decoys; see the module ``decoys``.
CHALLENGES = Table(
    "challenges",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("profile", Text, nullable=False, index=True),
    Column("phrase", Text, nullable=False),
    Column("expires", Double, nullable=False, index=True),
)

# Answers of calls with an Idempotency-Key; kind and body are null while the first call is in its transaction.
ANSWERS = Table(
    "answers",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("profile", Text, index=True),
    Column("kind", Text),
    Column("body", Text),
    Column("at", Double, nullable=False, index=True),
)

AUDIT = Table(
    "audit",
    METADATA,
    *_columns(
        AuditRow,
        Column("id", Integer, primary_key=True),
        Column("at", Double, nullable=False, index=True),
        Column("profile", Text, index=True),
        Column("result_id", Text, index=True),
        Column("number", BigInteger),
    ),
    # the number of a deleted row is never used again
    sqlite_autoincrement=True,
)
AUDIT_CHAINS = Index("audit_chains", AUDIT.c.chain, AUDIT.c.number)

# Heads of the chains of the audit; see the module ``audit``.
AUDIT_HEADS = Table(
    "audit_heads",
    METADATA,
    Column("chain", Integer, primary_key=True, autoincrement=False),
    Column("first", BigInteger, nullable=False),
    Column("first_mac", Text, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("mac", Text, nullable=False),
    Column("seal", Text, nullable=False),
)

# Refused calls that are not in the audit yet: one row per caller, profile and reason. Empty: calls without a profile.
REFUSALS = Table(
    "refusals",
    METADATA,
    Column("caller", Text, primary_key=True),
    Column("profile", Text, primary_key=True),
    Column("reason", Text, primary_key=True),
    Column("count", Integer, nullable=False),
    Column("first", Double, nullable=False),
    Column("last", Double, nullable=False),
)

# The policy of a key is null where the default of its role applies.
API_KEYS = Table(
    "api_keys",
    METADATA,
    Column("hash", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("role", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("detail", Text),
    Column("far", Double),
    Column("require", Text),
    Column("tenant", Text),
)

# Tenants: each has a database of its own, or a schema of PostgreSQL; settings is JSON.
TENANTS = Table(
    "tenants",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("id", Text, nullable=False),
    Column("settings", Text, nullable=False),
    Column("created", Double, nullable=False),
)

# Time at which the calls of a key in the last minute are paid off.
RATES = Table(
    "rates",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("until", Double, nullable=False),
)

DATA_KEYS = Table(
    "data_keys",
    KEY_METADATA,
    Column("profile", Text, primary_key=True),
    Column("wrapped", LargeBinary, nullable=False),
)

# One row: the random mark of this database of data keys, by which hosts notice that they use another one.
KEY_MARK = Table(
    "key_mark",
    KEY_METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("mark", Text, nullable=False),
)
