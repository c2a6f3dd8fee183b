-- The usage log on PostgreSQL. Refs are rows of `names`; codes are listed in `sql/codes.rs`. `usage`, `attempts`
-- and `removed` are partitioned by UTC days of arrival, with which the ids begin; what belongs to no partition is kept in `usage_other`,
-- `attempts_other` and `removed_other`.

-- Texts of the usage log, each once. `kind`: 1 key, 2 member, 3 group, 4 channel, 5 account (these with their id and the name at the
-- time), 6 model, 7 model of an upstream, 8 error id or exclusion code, 9 routing trace as JSON, 10 name of a tag, 11 value of a tag.
CREATE TABLE names (
    ref INTEGER NOT NULL,
    kind SMALLINT NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (ref)
);
CREATE UNIQUE INDEX names_text ON names (kind, id, name);

-- One row per request. `id`: the request id, which begins with the millisecond of arrival; `at_us`: microseconds below it. `booked`:
-- the ledger's last position after the batch that wrote the row. `attempts` counts the attempts; the one that answered, else the last one,
-- is in this row when it says nothing else than the record, and `channel` and `account` are its. `packed`: the numbers that no query
-- compares or adds up (`sql/usage_rows/packed.rs`). `extra`: rare values as JSON. `tags`: `sql/tags.rs`.
CREATE TABLE usage (
    id BYTEA NOT NULL,
    at_us SMALLINT NOT NULL,
    key INTEGER NOT NULL,
    member INTEGER NOT NULL,
    grp INTEGER,
    model INTEGER,
    channel INTEGER,
    account INTEGER,
    protocol_in SMALLINT NOT NULL,
    method SMALLINT NOT NULL,
    stream SMALLINT NOT NULL,
    finish SMALLINT,
    status SMALLINT NOT NULL,
    outcome SMALLINT NOT NULL,
    reason INTEGER,
    tokens_input BIGINT NOT NULL,
    tokens_output BIGINT NOT NULL,
    tokens_cache_read BIGINT NOT NULL,
    tokens_cache_write BIGINT NOT NULL,
    tokens_cache_write_1h BIGINT NOT NULL,
    tokens_thinking BIGINT NOT NULL,
    tokens_image BIGINT NOT NULL,
    tokens_audio BIGINT NOT NULL,
    cost BIGINT,
    sale BIGINT,
    ttft_us BIGINT,
    duration_us BIGINT NOT NULL,
    booked BIGINT NOT NULL,
    address TEXT,
    client_request_id TEXT,
    client TEXT,
    attempts SMALLINT NOT NULL,
    upstream_request_id TEXT,
    packed BYTEA NOT NULL,
    extra TEXT,
    tags TEXT,
    PRIMARY KEY (id)
) PARTITION BY RANGE (id);
CREATE INDEX usage_key ON usage (key, id);
CREATE INDEX usage_failed ON usage (outcome, id) WHERE outcome <> 0;
CREATE TABLE usage_other PARTITION OF usage DEFAULT;

-- Attempts that are not in the row of their request. `beside`: a hedged attempt that was abandoned when the other one answered.
CREATE TABLE attempts (
    request BYTEA NOT NULL,
    position SMALLINT NOT NULL,
    channel INTEGER NOT NULL,
    account INTEGER NOT NULL,
    upstream_model INTEGER NOT NULL,
    protocol SMALLINT NOT NULL,
    at BIGINT NOT NULL,
    status SMALLINT,
    result SMALLINT NOT NULL,
    error INTEGER,
    tokens_input BIGINT NOT NULL,
    tokens_output BIGINT NOT NULL,
    tokens_cache_read BIGINT NOT NULL,
    tokens_cache_write BIGINT NOT NULL,
    tokens_cache_write_1h BIGINT NOT NULL,
    tokens_thinking BIGINT NOT NULL,
    tokens_image BIGINT NOT NULL,
    tokens_audio BIGINT NOT NULL,
    tokens_source SMALLINT NOT NULL,
    web_searches INTEGER NOT NULL,
    cost BIGINT,
    first_byte_us BIGINT,
    duration_us BIGINT NOT NULL,
    upstream_request_id TEXT,
    beside SMALLINT NOT NULL,
    cost_multiplier BIGINT,
    message TEXT,
    sent_us BIGINT,
    PRIMARY KEY (request, position)
) PARTITION BY RANGE (request);
CREATE INDEX attempts_beside ON attempts (at) WHERE beside = 1;
CREATE TABLE attempts_other PARTITION OF attempts DEFAULT;

-- Ids of requests with a price whose records retention removed, so that a journal cannot book them a second time.
CREATE TABLE removed (
    id BYTEA NOT NULL,
    PRIMARY KEY (id)
) PARTITION BY RANGE (id);
CREATE TABLE removed_other PARTITION OF removed DEFAULT;

-- The ids of the records that were booked last, 16 bytes each and at most 4,096 a row, for those who follow the log. The oldest rows are
-- removed as others are added. Ids do not compress; trying to took 5 of the 150 ms of a batch of 4,096.
CREATE TABLE recent_batches (
    batch BIGINT NOT NULL,
    ids BYTEA NOT NULL,
    PRIMARY KEY (batch)
);
ALTER TABLE recent_batches ALTER COLUMN ids SET STORAGE EXTERNAL;

-- Sums by five minutes, UTC hours, UTC days and UTC months of arrival: `width` in minutes (a month has 44640), `minute` since 1970 at
-- which the time begins. Group and model are 0 for requests refused before a group was chosen, channel and account for requests without
-- an attempt. Sums by five minutes are removed with their records, those by days and months stay. `usage_sums` has the sums of all
-- keys, with histograms of the times to the first content and to the end and of the gateway's own time (`rollup/histogram.rs`), and
-- of complete answers that were streamed their number, their output tokens and the microseconds after their first content;
-- `account_sums` has those of each account, `tag_sums` those of each value of a tag. `key_days` has what each key used by days (its
-- `width` is always 1440), whatever it was used for, and finds what one key or one member has spent. The other sums of keys are packed
-- (`rollup/packed.rs`), those of 32 numbers of `names` in one value; `part` is the number of a key divided by 32. `key_sums` has those
-- of each key by member, group, model, channel, account, protocol, outcome and reason; `key_totals` those by member and outcome, by
-- hours, days and months; `key_tag_sums` has those of each value of a tag by what `key_sums` has.
-- Every batch updates the rows of the current time. A page that is half empty has room for their new versions, so that no index changes.
CREATE TABLE usage_sums (
    width INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    grp INTEGER NOT NULL,
    model INTEGER NOT NULL,
    channel INTEGER NOT NULL,
    protocol_in SMALLINT NOT NULL,
    outcome SMALLINT NOT NULL,
    reason INTEGER NOT NULL,
    requests BIGINT NOT NULL,
    tokens_input BIGINT NOT NULL,
    tokens_output BIGINT NOT NULL,
    tokens_cache_read BIGINT NOT NULL,
    tokens_cache_write BIGINT NOT NULL,
    tokens_cache_write_1h BIGINT NOT NULL,
    tokens_thinking BIGINT NOT NULL,
    tokens_image BIGINT NOT NULL,
    tokens_audio BIGINT NOT NULL,
    sale BIGINT NOT NULL,
    cost BIGINT NOT NULL,
    unpriced BIGINT NOT NULL,
    streamed BIGINT NOT NULL,
    streamed_tokens BIGINT NOT NULL,
    streamed_us BIGINT NOT NULL,
    ttft BYTEA NOT NULL,
    duration BYTEA NOT NULL,
    overhead BYTEA NOT NULL,
    PRIMARY KEY (width, minute, grp, model, channel, protocol_in, outcome, reason)
) WITH (fillfactor = 50);
CREATE TABLE key_sums (
    width INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    part INTEGER NOT NULL,
    sums BYTEA NOT NULL,
    PRIMARY KEY (width, minute, part)
);
ALTER TABLE key_sums ALTER COLUMN sums SET STORAGE EXTERNAL;
CREATE TABLE key_totals (
    width INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    part INTEGER NOT NULL,
    sums BYTEA NOT NULL,
    PRIMARY KEY (width, minute, part)
);
ALTER TABLE key_totals ALTER COLUMN sums SET STORAGE EXTERNAL;
CREATE TABLE key_days (
    width INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    key INTEGER NOT NULL,
    member INTEGER NOT NULL,
    outcome SMALLINT NOT NULL,
    requests BIGINT NOT NULL,
    tokens_input BIGINT NOT NULL,
    tokens_output BIGINT NOT NULL,
    tokens_cache_read BIGINT NOT NULL,
    tokens_cache_write BIGINT NOT NULL,
    tokens_cache_write_1h BIGINT NOT NULL,
    tokens_thinking BIGINT NOT NULL,
    tokens_image BIGINT NOT NULL,
    tokens_audio BIGINT NOT NULL,
    sale BIGINT NOT NULL,
    cost BIGINT NOT NULL,
    unpriced BIGINT NOT NULL,
    PRIMARY KEY (width, minute, key, member, outcome)
) WITH (fillfactor = 50);
CREATE INDEX key_days_key ON key_days (key, minute);
CREATE INDEX key_days_member ON key_days (member, minute);
CREATE TABLE account_sums (
    width INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    account INTEGER NOT NULL,
    grp INTEGER NOT NULL,
    model INTEGER NOT NULL,
    channel INTEGER NOT NULL,
    protocol_in SMALLINT NOT NULL,
    outcome SMALLINT NOT NULL,
    reason INTEGER NOT NULL,
    requests BIGINT NOT NULL,
    tokens_input BIGINT NOT NULL,
    tokens_output BIGINT NOT NULL,
    tokens_cache_read BIGINT NOT NULL,
    tokens_cache_write BIGINT NOT NULL,
    tokens_cache_write_1h BIGINT NOT NULL,
    tokens_thinking BIGINT NOT NULL,
    tokens_image BIGINT NOT NULL,
    tokens_audio BIGINT NOT NULL,
    sale BIGINT NOT NULL,
    cost BIGINT NOT NULL,
    unpriced BIGINT NOT NULL,
    PRIMARY KEY (width, minute, account, grp, model, channel, protocol_in, outcome, reason)
) WITH (fillfactor = 50);
CREATE TABLE tag_sums (
    width INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    tag INTEGER NOT NULL,
    value INTEGER NOT NULL,
    grp INTEGER NOT NULL,
    model INTEGER NOT NULL,
    outcome SMALLINT NOT NULL,
    requests BIGINT NOT NULL,
    tokens_input BIGINT NOT NULL,
    tokens_output BIGINT NOT NULL,
    tokens_cache_read BIGINT NOT NULL,
    tokens_cache_write BIGINT NOT NULL,
    tokens_cache_write_1h BIGINT NOT NULL,
    tokens_thinking BIGINT NOT NULL,
    tokens_image BIGINT NOT NULL,
    tokens_audio BIGINT NOT NULL,
    sale BIGINT NOT NULL,
    cost BIGINT NOT NULL,
    unpriced BIGINT NOT NULL,
    PRIMARY KEY (width, minute, tag, value, grp, model, outcome)
) WITH (fillfactor = 50);
CREATE TABLE key_tag_sums (
    width INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    part INTEGER NOT NULL,
    sums BYTEA NOT NULL,
    PRIMARY KEY (width, minute, part)
);
ALTER TABLE key_tag_sums ALTER COLUMN sums SET STORAGE EXTERNAL;
-- Names of tags that have sums in a month, and values of each, in the order in which they came: `month` is the minute in which the
-- month begins, `value` is 0 for the name itself, `member` is the member whose request brought it. Sums of other values have the value -1.
CREATE TABLE tag_values (
    month INTEGER NOT NULL,
    place INTEGER NOT NULL,
    tag INTEGER NOT NULL,
    value INTEGER NOT NULL,
    member INTEGER NOT NULL,
    PRIMARY KEY (month, place)
);

-- Sums over attempts by hours and days of their request's arrival.
CREATE TABLE attempt_sums (
    width INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    channel INTEGER NOT NULL,
    account INTEGER NOT NULL,
    model INTEGER NOT NULL,
    result SMALLINT NOT NULL,
    error INTEGER NOT NULL,
    attempts BIGINT NOT NULL,
    tokens_input BIGINT NOT NULL,
    tokens_output BIGINT NOT NULL,
    cost BIGINT NOT NULL,
    PRIMARY KEY (width, minute, channel, account, model, result, error)
) WITH (fillfactor = 50);

-- The partitions of a table without the default one, oldest first: the ids [first, next) of their requests.
CREATE FUNCTION tollgate_partitions(parent TEXT) RETURNS TABLE (first BYTEA, next BYTEA) LANGUAGE sql STABLE
SET bytea_output = 'hex' AS $$
    SELECT decode(bound[1], 'hex'), decode(bound[2], 'hex')
    FROM pg_inherits i
    JOIN pg_class c ON c.oid = i.inhrelid,
    regexp_match(pg_get_expr(c.relpartbound, c.oid), '\(''\\+x([0-9a-f]+)''\) TO \(''\\+x([0-9a-f]+)''\)') AS bound
    WHERE i.inhparent = to_regclass(parent) AND bound IS NOT NULL ORDER BY 1
$$;

-- Creates the partition of a table for the requests with the ids [first, next), and moves their rows from the default partition into
-- it. Returns 1, or 0 if the partition exists.
CREATE FUNCTION tollgate_create_partition(parent TEXT, suffix TEXT, first BYTEA, next BYTEA) RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
    part TEXT := parent || '_' || suffix;
    request TEXT := CASE parent WHEN 'attempts' THEN 'request' ELSE 'id' END;
BEGIN
    IF to_regclass(part) IS NOT NULL THEN
        RETURN 0;
    END IF;
    -- One node at a time; the first number is "part" in ASCII.
    PERFORM pg_advisory_xact_lock(1885434484, hashtext(current_schema()));
    IF to_regclass(part) IS NOT NULL THEN
        RETURN 0;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS)', part, parent);
    EXECUTE format(
        'WITH moved AS (DELETE FROM %1$I WHERE %2$I >= %3$L AND %2$I < %4$L RETURNING *) INSERT INTO %5$I SELECT * FROM moved',
        parent || '_other', request, first, next, part
    );
    -- Attaching builds the indexes and does not block readers of other partitions.
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, part, first, next);
    RETURN 1;
END $$;
