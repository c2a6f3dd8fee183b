-- One text for SQLite and PostgreSQL: BIGINT, TEXT and BYTEA only; times are microseconds UTC, amounts nano-USD.

-- Single numbers: the revision.
CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value BIGINT NOT NULL
);
INSERT INTO counters (name, value) VALUES ('revision', 0);

-- The data key, sealed with the master key; the check value and the pepper, sealed with the data key.
CREATE TABLE vault (
    name TEXT PRIMARY KEY,
    sealed BYTEA NOT NULL
);

-- Channels, accounts, models, groups, members. `spec` is the row as a catalog file states it, as JSON; `parent` is the
-- channel of an account. Removing is soft.
CREATE TABLE catalog_rows (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    parent TEXT NOT NULL,
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    spec TEXT NOT NULL,
    credential BYTEA,
    created_at BIGINT NOT NULL,
    removed_at BIGINT
);
CREATE UNIQUE INDEX catalog_rows_name ON catalog_rows (kind, parent, name) WHERE removed_at IS NULL;

-- Service keys. `hash` is HMAC-SHA-256 with the pepper; a secret belongs to one live key.
CREATE TABLE service_keys (
    id TEXT PRIMARY KEY,
    parent TEXT NOT NULL,
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    spec TEXT NOT NULL,
    hash BYTEA NOT NULL,
    prefix TEXT NOT NULL,
    suffix TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    removed_at BIGINT
);
CREATE UNIQUE INDEX service_keys_live_hash ON service_keys (hash) WHERE removed_at IS NULL;
CREATE INDEX service_keys_hash ON service_keys (hash);
CREATE UNIQUE INDEX service_keys_name ON service_keys (parent, name) WHERE removed_at IS NULL;

-- What changed with which revision: what caches drop.
CREATE TABLE changes (
    revision BIGINT NOT NULL,
    position BIGINT NOT NULL,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    PRIMARY KEY (revision, position)
);

-- Who did what, append-only.
CREATE TABLE audit (
    revision BIGINT NOT NULL,
    position BIGINT NOT NULL,
    at BIGINT NOT NULL,
    door TEXT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (revision, position)
);

-- One row a request. The id makes it exactly once; pages go by (at, id).
CREATE TABLE usage (
    id TEXT PRIMARY KEY,
    at BIGINT NOT NULL,
    key_id TEXT NOT NULL,
    key_name TEXT NOT NULL,
    member_id TEXT NOT NULL,
    group_id TEXT,
    group_name TEXT,
    protocol_in TEXT NOT NULL,
    protocol_out TEXT,
    method TEXT NOT NULL,
    model TEXT,
    stream BIGINT NOT NULL,
    status BIGINT NOT NULL,
    outcome TEXT NOT NULL,
    reason TEXT,
    detail TEXT,
    tokens_input BIGINT NOT NULL,
    tokens_output BIGINT NOT NULL,
    tokens_cache_read BIGINT NOT NULL,
    tokens_cache_write BIGINT NOT NULL,
    tokens_thinking BIGINT NOT NULL,
    tokens_image BIGINT NOT NULL,
    tokens_audio BIGINT NOT NULL,
    tokens_source TEXT NOT NULL,
    cost BIGINT,
    sale BIGINT,
    price_version BIGINT NOT NULL,
    ttft_us BIGINT,
    duration_us BIGINT NOT NULL,
    address TEXT,
    client_request_id TEXT,
    dropped TEXT NOT NULL,
    trace TEXT NOT NULL
);
CREATE INDEX usage_at ON usage (at, id);
CREATE INDEX usage_key ON usage (key_id, at, id);
CREATE INDEX usage_member ON usage (member_id, at, id);
CREATE INDEX usage_model ON usage (model, at, id);

-- One row a try.
CREATE TABLE attempts (
    request_id TEXT NOT NULL,
    position BIGINT NOT NULL,
    channel_id TEXT NOT NULL,
    channel_name TEXT NOT NULL,
    account_id TEXT NOT NULL,
    account_name TEXT NOT NULL,
    protocol TEXT NOT NULL,
    upstream_model TEXT NOT NULL,
    at BIGINT NOT NULL,
    status BIGINT,
    result TEXT NOT NULL,
    error TEXT,
    tokens_input BIGINT NOT NULL,
    tokens_output BIGINT NOT NULL,
    tokens_cache_read BIGINT NOT NULL,
    tokens_cache_write BIGINT NOT NULL,
    tokens_thinking BIGINT NOT NULL,
    tokens_image BIGINT NOT NULL,
    tokens_audio BIGINT NOT NULL,
    tokens_source TEXT NOT NULL,
    cost BIGINT,
    first_byte_us BIGINT,
    duration_us BIGINT NOT NULL,
    upstream_request_id TEXT,
    PRIMARY KEY (request_id, position)
);

-- Health of accounts between starts, as JSON.
CREATE TABLE account_health (
    account_id TEXT PRIMARY KEY,
    health TEXT NOT NULL,
    updated_at BIGINT NOT NULL
);
