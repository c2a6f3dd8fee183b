-- SQLite: usage records, one row per request. The id makes appending idempotent; pages are ordered by (at, id).
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
    tokens_cache_write_1h BIGINT NOT NULL,
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
CREATE INDEX usage_group ON usage (group_id, at, id);
CREATE INDEX usage_failed ON usage (outcome, at, id) WHERE outcome <> 'completed';
