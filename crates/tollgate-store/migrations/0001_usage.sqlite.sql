-- The usage log on SQLite. Refs are rows of `names`; codes are listed in `sql/codes.rs`.

-- Texts of the usage log, each once. `kind`: 1 key, 2 member, 3 group, 4 channel, 5 account (these with their id and the name at the
-- time), 6 model, 7 model of an upstream, 8 error id or exclusion code, 9 routing trace as JSON, 10 name of a tag, 11 value of a tag.
CREATE TABLE names (
    ref INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL
);
CREATE UNIQUE INDEX names_text ON names (kind, id, name);

-- One row per request. `id`: the request id, which begins with the millisecond of arrival; `at_us`: microseconds below it. `booked`:
-- the ledger's last position after the batch that wrote the row. `attempts` counts the attempts; the one that answered, else the last one,
-- is in this row when it says nothing else than the record, and `channel` and `account` are its. `packed`: the numbers that no query
-- compares or adds up (`sql/usage_rows/packed.rs`). `extra`: rare values as JSON. `tags`: `sql/tags.rs`.
CREATE TABLE usage (
    id BLOB NOT NULL,
    at_us INTEGER NOT NULL,
    key INTEGER NOT NULL,
    member INTEGER NOT NULL,
    grp INTEGER,
    model INTEGER,
    channel INTEGER,
    account INTEGER,
    protocol_in INTEGER NOT NULL,
    method INTEGER NOT NULL,
    stream INTEGER NOT NULL,
    finish INTEGER,
    status INTEGER NOT NULL,
    outcome INTEGER NOT NULL,
    reason INTEGER,
    tokens_input INTEGER NOT NULL,
    tokens_output INTEGER NOT NULL,
    tokens_cache_read INTEGER NOT NULL,
    tokens_cache_write INTEGER NOT NULL,
    tokens_cache_write_1h INTEGER NOT NULL,
    tokens_thinking INTEGER NOT NULL,
    tokens_image INTEGER NOT NULL,
    tokens_audio INTEGER NOT NULL,
    cost INTEGER,
    sale INTEGER,
    ttft_us INTEGER,
    duration_us INTEGER NOT NULL,
    booked INTEGER NOT NULL,
    address TEXT,
    client_request_id TEXT,
    client TEXT,
    attempts INTEGER NOT NULL,
    upstream_request_id TEXT,
    packed BLOB NOT NULL,
    extra TEXT,
    tags TEXT,
    PRIMARY KEY (id)
) WITHOUT ROWID;
CREATE INDEX usage_key ON usage (key, id);
CREATE INDEX usage_failed ON usage (outcome, id) WHERE outcome <> 0;

-- Attempts that are not in the row of their request. `beside`: a hedged attempt that was abandoned when the other one answered.
CREATE TABLE attempts (
    request BLOB NOT NULL,
    position INTEGER NOT NULL,
    channel INTEGER NOT NULL,
    account INTEGER NOT NULL,
    upstream_model INTEGER NOT NULL,
    protocol INTEGER NOT NULL,
    at INTEGER NOT NULL,
    status INTEGER,
    result INTEGER NOT NULL,
    error INTEGER,
    tokens_input INTEGER NOT NULL,
    tokens_output INTEGER NOT NULL,
    tokens_cache_read INTEGER NOT NULL,
    tokens_cache_write INTEGER NOT NULL,
    tokens_cache_write_1h INTEGER NOT NULL,
    tokens_thinking INTEGER NOT NULL,
    tokens_image INTEGER NOT NULL,
    tokens_audio INTEGER NOT NULL,
    tokens_source INTEGER NOT NULL,
    web_searches INTEGER NOT NULL,
    cost INTEGER,
    first_byte_us INTEGER,
    duration_us INTEGER NOT NULL,
    upstream_request_id TEXT,
    beside INTEGER NOT NULL,
    cost_multiplier INTEGER,
    message TEXT,
    sent_us INTEGER,
    PRIMARY KEY (request, position)
) WITHOUT ROWID;
CREATE INDEX attempts_beside ON attempts (at) WHERE beside = 1;

-- Ids of requests with a price whose records retention removed, so that a journal cannot book them a second time.
CREATE TABLE removed (
    id BLOB NOT NULL,
    PRIMARY KEY (id)
) WITHOUT ROWID;

-- The ids of the records that were booked last, 16 bytes each and at most 4,096 a row, for those who follow the log. The oldest rows are
-- removed as others are added.
CREATE TABLE recent_batches (
    batch INTEGER NOT NULL,
    ids BLOB NOT NULL,
    PRIMARY KEY (batch)
);

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
CREATE TABLE usage_sums (
    width INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    grp INTEGER NOT NULL,
    model INTEGER NOT NULL,
    channel INTEGER NOT NULL,
    protocol_in INTEGER NOT NULL,
    outcome INTEGER NOT NULL,
    reason INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    tokens_input INTEGER NOT NULL,
    tokens_output INTEGER NOT NULL,
    tokens_cache_read INTEGER NOT NULL,
    tokens_cache_write INTEGER NOT NULL,
    tokens_cache_write_1h INTEGER NOT NULL,
    tokens_thinking INTEGER NOT NULL,
    tokens_image INTEGER NOT NULL,
    tokens_audio INTEGER NOT NULL,
    sale INTEGER NOT NULL,
    cost INTEGER NOT NULL,
    unpriced INTEGER NOT NULL,
    streamed INTEGER NOT NULL,
    streamed_tokens INTEGER NOT NULL,
    streamed_us INTEGER NOT NULL,
    ttft BLOB NOT NULL,
    duration BLOB NOT NULL,
    overhead BLOB NOT NULL,
    PRIMARY KEY (width, minute, grp, model, channel, protocol_in, outcome, reason)
) WITHOUT ROWID;
CREATE TABLE key_sums (
    width INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    part INTEGER NOT NULL,
    sums BLOB NOT NULL,
    PRIMARY KEY (width, minute, part)
) WITHOUT ROWID;
CREATE TABLE key_totals (
    width INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    part INTEGER NOT NULL,
    sums BLOB NOT NULL,
    PRIMARY KEY (width, minute, part)
) WITHOUT ROWID;
CREATE TABLE key_days (
    width INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    key INTEGER NOT NULL,
    member INTEGER NOT NULL,
    outcome INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    tokens_input INTEGER NOT NULL,
    tokens_output INTEGER NOT NULL,
    tokens_cache_read INTEGER NOT NULL,
    tokens_cache_write INTEGER NOT NULL,
    tokens_cache_write_1h INTEGER NOT NULL,
    tokens_thinking INTEGER NOT NULL,
    tokens_image INTEGER NOT NULL,
    tokens_audio INTEGER NOT NULL,
    sale INTEGER NOT NULL,
    cost INTEGER NOT NULL,
    unpriced INTEGER NOT NULL,
    PRIMARY KEY (width, minute, key, member, outcome)
) WITHOUT ROWID;
CREATE INDEX key_days_key ON key_days (key, minute);
CREATE INDEX key_days_member ON key_days (member, minute);
CREATE TABLE account_sums (
    width INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    account INTEGER NOT NULL,
    grp INTEGER NOT NULL,
    model INTEGER NOT NULL,
    channel INTEGER NOT NULL,
    protocol_in INTEGER NOT NULL,
    outcome INTEGER NOT NULL,
    reason INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    tokens_input INTEGER NOT NULL,
    tokens_output INTEGER NOT NULL,
    tokens_cache_read INTEGER NOT NULL,
    tokens_cache_write INTEGER NOT NULL,
    tokens_cache_write_1h INTEGER NOT NULL,
    tokens_thinking INTEGER NOT NULL,
    tokens_image INTEGER NOT NULL,
    tokens_audio INTEGER NOT NULL,
    sale INTEGER NOT NULL,
    cost INTEGER NOT NULL,
    unpriced INTEGER NOT NULL,
    PRIMARY KEY (width, minute, account, grp, model, channel, protocol_in, outcome, reason)
) WITHOUT ROWID;
CREATE TABLE tag_sums (
    width INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    tag INTEGER NOT NULL,
    value INTEGER NOT NULL,
    grp INTEGER NOT NULL,
    model INTEGER NOT NULL,
    outcome INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    tokens_input INTEGER NOT NULL,
    tokens_output INTEGER NOT NULL,
    tokens_cache_read INTEGER NOT NULL,
    tokens_cache_write INTEGER NOT NULL,
    tokens_cache_write_1h INTEGER NOT NULL,
    tokens_thinking INTEGER NOT NULL,
    tokens_image INTEGER NOT NULL,
    tokens_audio INTEGER NOT NULL,
    sale INTEGER NOT NULL,
    cost INTEGER NOT NULL,
    unpriced INTEGER NOT NULL,
    PRIMARY KEY (width, minute, tag, value, grp, model, outcome)
) WITHOUT ROWID;
CREATE TABLE key_tag_sums (
    width INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    part INTEGER NOT NULL,
    sums BLOB NOT NULL,
    PRIMARY KEY (width, minute, part)
) WITHOUT ROWID;
-- Names of tags that have sums in a month, and values of each, in the order in which they came: `month` is the minute in which the
-- month begins, `value` is 0 for the name itself, `member` is the member whose request brought it. Sums of other values have the value -1.
CREATE TABLE tag_values (
    month INTEGER NOT NULL,
    place INTEGER NOT NULL,
    tag INTEGER NOT NULL,
    value INTEGER NOT NULL,
    member INTEGER NOT NULL,
    PRIMARY KEY (month, place)
) WITHOUT ROWID;

-- Sums over attempts by hours and days of their request's arrival.
CREATE TABLE attempt_sums (
    width INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    channel INTEGER NOT NULL,
    account INTEGER NOT NULL,
    model INTEGER NOT NULL,
    result INTEGER NOT NULL,
    error INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    tokens_input INTEGER NOT NULL,
    tokens_output INTEGER NOT NULL,
    cost INTEGER NOT NULL,
    PRIMARY KEY (width, minute, channel, account, model, result, error)
) WITHOUT ROWID;
