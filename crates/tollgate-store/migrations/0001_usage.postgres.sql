-- PostgreSQL: usage records, one row per request, partitioned by the UTC month of arrival. The id makes appending idempotent; it is
-- part of the key together with `at`, which never changes either. Pages are ordered by (at, id). A month without a partition of
-- its own is kept in `usage_other`.
CREATE TABLE usage (
    id TEXT NOT NULL,
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
    trace TEXT NOT NULL,
    PRIMARY KEY (at, id)
) PARTITION BY RANGE (at);
CREATE INDEX usage_id ON usage (id);
CREATE INDEX usage_key ON usage (key_id, at, id);
CREATE INDEX usage_member ON usage (member_id, at, id);
CREATE INDEX usage_model ON usage (model, at, id);
CREATE INDEX usage_group ON usage (group_id, at, id);
CREATE INDEX usage_failed ON usage (outcome, at, id) WHERE outcome <> 'completed';
CREATE TABLE usage_other PARTITION OF usage DEFAULT;

-- Creates the partition of a month [first, next) and moves the month's rows from `usage_other` into it. Returns 1, or 0 if the
-- partition exists.
CREATE FUNCTION tollgate_usage_month(month TEXT, first BIGINT, next BIGINT) RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
    part TEXT := 'usage_' || month;
BEGIN
    IF to_regclass(part) IS NOT NULL THEN
        RETURN 0;
    END IF;
    -- One node at a time; the first number is "mont" in ASCII.
    PERFORM pg_advisory_xact_lock(1836019316, hashtext(current_schema()));
    IF to_regclass(part) IS NOT NULL THEN
        RETURN 0;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE usage INCLUDING DEFAULTS)', part);
    EXECUTE format(
        'WITH moved AS (DELETE FROM usage_other WHERE at >= %s AND at < %s RETURNING *) INSERT INTO %I SELECT * FROM moved',
        first, next, part
    );
    -- Attaching builds the indexes and does not block readers of other months.
    EXECUTE format('ALTER TABLE usage ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', part, first, next);
    RETURN 1;
END $$;
