"""Tables of the service's database, and typed records of their rows.

A record has one field per column of its table, in the same order, so that ``ProfileRow(*row)`` converts a row.
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
"""{type of a record's field: type of its column}."""


@dataclass
class ProfileRow:
    """Row of the table ``profiles``; times are seconds since 1970.

    Parameters
    ----------
    id : random id of the profile
    user_id : name of the person
    state : created, enrolling, enrolled, opted_out or deleted; see `ProfileStore.state` for the other states
    phrases : phrases as JSON, {label: text}
    consent : consent and its time as JSON
    version : number of changes of this profile
    model, model_version : fingerprint and name of the model that computed its templates
    enrollments, speech_s : number of recordings, and seconds of speech in them
    next_number : number of the next recording
    failures : number of rejections in a row
    locked_until : time until which the profile is locked after too many rejections; None: not locked
    created, updated, last_used : times of creation, of the last change, and of the last enrolment or acceptance
    change : number of the last change of this profile; changes of all profiles are numbered in one sequence
    rate_until : time until which earlier attempts use up the limit of attempts per minute; None: none counts
    last_phrase : label of the phrase of the last accepted challenge, which the next challenge avoids
    damaged : time at which its stored data were found to be unreadable; None: they are readable
    last_change : number of the last change of any profile, read when the row is locked; None: it was not read
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
        """Return {label: text} of the phrases of the profile; raise `ValueError` if they cannot be read."""
        texts = json.loads(self.phrases)
        if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
            raise ValueError(
                f"expected the phrases of a profile as JSON; got {self.phrases[:40]!r}"
            )
        return texts

    def consent_record(self) -> dict[str, object] | None:
        """Return the consent; None if it was erased. Raise `ValueError` if it cannot be read."""
        consent = json.loads(self.consent or "null")
        if consent is not None and not isinstance(consent, dict):
            raise ValueError(f"expected the consent of a profile as JSON; got {consent!r}")
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
        """Return a copy of the row whose damaged columns have the values of an empty profile."""
        values: dict[str, Any] = {name: REPAIRED.get(name) for name in self.damaged_columns()}
        return replace(self, **values)


# Columns of a profile that contain counts, and columns that contain times.
COUNTS = ("version", "enrollments", "next_number", "failures")
TIMES = ("created", "updated", "last_used", "locked_until", "rate_until", "damaged")
# {column: value in place of a damaged one}; None for all other columns.
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
    """Return whether a stored value is a possible count: a whole number from 0 to the largest of the column."""
    return isinstance(value, int) and 0 <= value < 2**31 - 1


def is_time(value: object) -> bool:
    """Return whether a stored value is a possible time: seconds since 1970, up to the year 9999."""
    return (
        isinstance(value, (int, float)) and math.isfinite(value) and 0 <= float(value) <= LAST_TIME
    )


def is_optional_number(value: object) -> bool:
    """Return whether a stored value is None or a finite number."""
    return value is None or (isinstance(value, (int, float)) and math.isfinite(value))


class EnrolmentRow(NamedTuple):
    """Row of the table ``enrollments``: one recording of a profile.

    Parameters
    ----------
    profile : id of the profile
    number : number of the recording in its profile, from 1
    phrase : label of the phrase
    session : name of the session, equal for recordings of one room, microphone and day
    share : contribution of the recording to the profile's sums, rotated and encrypted, see `Templates`
    vector : encrypted vector of the extractor; None if vectors are not stored
    extractor : name of the extractor
    speech_s : seconds of speech
    created : time of the enrolment, in seconds since 1970
    master : first digits of the mark of the master key by which `share` is rotated
    spoof_score : raw score of the detector of spoofs; None if it was off
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
        """Return whether the columns that are not encrypted have values that the service can have written."""
        return (
            is_time(self.speech_s)
            and is_time(self.created)
            and is_optional_number(self.spoof_score)
        )


class AuditRow(NamedTuple):
    """Row of the table ``audit``: one entry.

    Parameters
    ----------
    at : time in seconds since 1970
    caller : name of the caller's API key
    action : name of the action, such as "enrol"
    profile, result_id : ids of the profile and of the decision; None: the entry is not about one
    detail : further fields as JSON
    chain, number, mac : chain of the entry, its number in the chain, and its keyed hash
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
    """Return one column per field of a record class, in the order of the fields.

    detailed : columns for the fields with their names; other columns are made from the type of their field
    """
    columns = {column.name: column for column in detailed}
    for name, hint in get_type_hints(record).items():
        alternatives = get_args(hint)
        is_optional = type(None) in alternatives
        field_type = alternatives[0] if is_optional else hint
        column: Column[object] = Column(name, COLUMN_TYPES[field_type], nullable=is_optional)
        columns.setdefault(name, column)
    return [columns[name] for name in get_type_hints(record)]


METADATA = MetaData()
# Data keys may be stored in a database of their own, which is left out of back-ups.
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

# The last field of the record, last_change, is not a column.
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
# Indexes for the search by the beginning of a name, in the order of code points.
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

# Answers to calls with an Idempotency-Key; kind and body are null while the transaction of the first call runs.
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

# Refused calls that are not in the audit yet: one row per caller, profile and reason. The profile is empty for calls
# that are not about a profile.
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

# Rate limits of API keys: each call moves the time of its key forward, and a time more than a minute ahead is refused.
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

# One row: the random mark of this database of data keys, by which a host notices that it uses the wrong database.
KEY_MARK = Table(
    "key_mark",
    KEY_METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("mark", Text, nullable=False),
)
