-- PostgreSQL: usage records by month of their arrival, so that a month can be dropped without a scan. The id stands in the
-- key with the time: both are fixed when a request arrives. What has no month of its own yet is kept in `usage_other`.
ALTER TABLE usage RENAME TO usage_whole;
ALTER TABLE usage_whole DROP CONSTRAINT usage_pkey;
DROP INDEX usage_at;
DROP INDEX usage_key;
DROP INDEX usage_member;
DROP INDEX usage_model;
CREATE TABLE usage (LIKE usage_whole) PARTITION BY RANGE (at);
ALTER TABLE usage ADD PRIMARY KEY (at, id);
CREATE INDEX usage_id ON usage (id);
CREATE INDEX usage_key ON usage (key_id, at, id);
CREATE INDEX usage_member ON usage (member_id, at, id);
CREATE INDEX usage_model ON usage (model, at, id);
CREATE TABLE usage_other PARTITION OF usage DEFAULT;

-- Gives a month [first, next) a partition of its own, with what was kept in `usage_other` for it. 1 when it is new.
CREATE FUNCTION tollgate_usage_month(month TEXT, first BIGINT, next BIGINT) RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
    part TEXT := 'usage_' || month;
BEGIN
    IF to_regclass(part) IS NOT NULL THEN
        RETURN 0;
    END IF;
    -- One node at a time; "mont" in four bytes.
    PERFORM pg_advisory_xact_lock(1836019316, hashtext(current_schema()));
    IF to_regclass(part) IS NOT NULL THEN
        RETURN 0;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE usage INCLUDING DEFAULTS)', part);
    EXECUTE format(
        'WITH moved AS (DELETE FROM usage_other WHERE at >= %s AND at < %s RETURNING *) INSERT INTO %I SELECT * FROM moved',
        first, next, part
    );
    -- Attaching builds the indexes and does not hold readers of other months up.
    EXECUTE format('ALTER TABLE usage ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', part, first, next);
    RETURN 1;
END $$;

DO $$
DECLARE
    month TIMESTAMP;
    last TIMESTAMP;
BEGIN
    SELECT date_trunc('month', to_timestamp(MIN(at) / 1000000) AT TIME ZONE 'UTC'),
           date_trunc('month', to_timestamp(MAX(at) / 1000000) AT TIME ZONE 'UTC')
      INTO month, last FROM usage_whole;
    WHILE month <= last LOOP
        PERFORM tollgate_usage_month(
            to_char(month, 'YYYY_MM'),
            (EXTRACT(EPOCH FROM month AT TIME ZONE 'UTC') * 1000000)::BIGINT,
            (EXTRACT(EPOCH FROM (month + INTERVAL '1 month') AT TIME ZONE 'UTC') * 1000000)::BIGINT
        );
        month := month + INTERVAL '1 month';
    END LOOP;
END $$;
INSERT INTO usage SELECT * FROM usage_whole;
DROP TABLE usage_whole;
