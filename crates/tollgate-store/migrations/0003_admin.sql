-- Admin keys, batches that happen once, and the last change of a row. One text for SQLite and PostgreSQL.

-- Keys of the admin API, never valid for model requests. `hash` is HMAC-SHA-256 with the pepper.
CREATE TABLE admin_keys (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    spec TEXT NOT NULL,
    hash BYTEA NOT NULL,
    prefix TEXT NOT NULL,
    suffix TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    removed_at BIGINT
);
CREATE UNIQUE INDEX admin_keys_hash ON admin_keys (hash);
CREATE UNIQUE INDEX admin_keys_name ON admin_keys (name) WHERE removed_at IS NULL;

-- Changes that were asked for under an idempotency key, kept for a day, and the row each wrote first.
CREATE TABLE once (
    key TEXT PRIMARY KEY,
    fingerprint BYTEA NOT NULL,
    at BIGINT NOT NULL,
    kind TEXT NOT NULL,
    id TEXT NOT NULL
);
CREATE INDEX once_at ON once (at);

-- The revision of a single row.
CREATE INDEX changes_id ON changes (id, revision);
