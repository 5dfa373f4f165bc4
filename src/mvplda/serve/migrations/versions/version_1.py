"""The first tables, which databases from before Alembic have already."""

from alembic import op

revision = "1"
down_revision = None

TABLES = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
-- one row: how many transactions have changed profiles, under which master key
CREATE TABLE IF NOT EXISTS changes (id INTEGER PRIMARY KEY, number BIGINT NOT NULL, master TEXT);
CREATE TABLE IF NOT EXISTS profiles (
    id TEXT PRIMARY KEY,
    user_id TEXT,
    -- created, enrolling, enrolled, opted_out, deleted, while stale and expired follow from model and time
    state TEXT NOT NULL,
    -- JSON: {label: text}
    phrases TEXT NOT NULL,
    consent TEXT,
    version INTEGER NOT NULL,
    -- fingerprint of the model that its sums were made with
    model TEXT,
    model_version TEXT,
    enrollments INTEGER NOT NULL,
    next_number INTEGER NOT NULL,
    speech_s DOUBLE PRECISION NOT NULL,
    failures INTEGER NOT NULL,
    locked_until DOUBLE PRECISION,
    created DOUBLE PRECISION NOT NULL,
    updated DOUBLE PRECISION NOT NULL,
    last_used DOUBLE PRECISION,
    -- the number of its last change
    change BIGINT NOT NULL DEFAULT 0,
    -- when the attempts of the last minute are paid off
    rate_until DOUBLE PRECISION,
    -- of the last challenge that was accepted: it is not asked for next time
    last_phrase TEXT
);
CREATE INDEX IF NOT EXISTS profiles_change ON profiles (change);
CREATE INDEX IF NOT EXISTS profiles_user ON profiles (user_id);
CREATE INDEX IF NOT EXISTS profiles_used ON profiles (coalesce(last_used, created));
-- share: its part of the sum of its phrase, encrypted, and vector: encrypted, where vectors are kept
CREATE TABLE IF NOT EXISTS enrollments (
    profile TEXT NOT NULL REFERENCES profiles (id),
    number INTEGER NOT NULL,
    phrase TEXT NOT NULL,
    -- takes of one room, microphone and day share it
    sitting TEXT NOT NULL,
    share BYTEA NOT NULL,
    vector BYTEA,
    extractor TEXT,
    speech_s DOUBLE PRECISION NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (profile, number)
);
-- keyed hashes of recordings: one that comes again is a replay
CREATE TABLE IF NOT EXISTS marks (
    profile TEXT NOT NULL, mark TEXT NOT NULL, at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (profile, mark)
);
-- a row goes when it is answered
CREATE TABLE IF NOT EXISTS challenges (
    id TEXT PRIMARY KEY, profile TEXT NOT NULL, phrase TEXT NOT NULL, expires DOUBLE PRECISION NOT NULL
);
CREATE INDEX IF NOT EXISTS challenges_profile ON challenges (profile);
CREATE INDEX IF NOT EXISTS challenges_expires ON challenges (expires);
CREATE TABLE IF NOT EXISTS audit (
    id SERIAL PRIMARY KEY,
    at DOUBLE PRECISION NOT NULL,
    caller TEXT NOT NULL,
    action TEXT NOT NULL,
    profile TEXT,
    result_id TEXT,
    detail TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS audit_result ON audit (result_id);
CREATE INDEX IF NOT EXISTS audit_profile ON audit (profile);
CREATE INDEX IF NOT EXISTS audit_at ON audit (at);
CREATE TABLE IF NOT EXISTS api_keys (
    hash TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, role TEXT NOT NULL,
    created DOUBLE PRECISION NOT NULL
);
-- calls of a key: when those of the last minute are paid off
CREATE TABLE IF NOT EXISTS rates (name TEXT PRIMARY KEY, until DOUBLE PRECISION NOT NULL);
INSERT INTO changes (id, number) VALUES (1, 0) ON CONFLICT DO NOTHING;
-- the version lies in Alembic's own table
DELETE FROM meta WHERE name = 'schema'
"""


def upgrade() -> None:
    tables = TABLES
    if op.get_bind().dialect.name == "sqlite":
        tables = tables.replace("SERIAL PRIMARY KEY", "INTEGER PRIMARY KEY AUTOINCREMENT")
    for statement in tables.split(";"):
        op.execute(statement)
