"""Tables of the service, and how those of an older version become those of this one."""

# ruff: noqa: E402

from __future__ import annotations

from .._optional import need

need("sqlalchemy")

import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, Float, Integer, LargeBinary, Text

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
    Column(
        "change", BigInteger, nullable=False, server_default="0"
    ),  # the number of its last change
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
}
"""Version: statements that bring tables of the version before to it; new tables are created without them."""
SCHEMA = 3
