-- The ledger, balances, and roll-ups; all of them change in the transaction that books usage records. One text for SQLite
-- and PostgreSQL. Amounts are nano-USD, times microseconds UTC.

-- How far the ledger has come. Taking the next number locks the row, so entries become visible in the order of `seq`.
INSERT INTO counters (name, value) VALUES ('ledger', 0);

-- Money, append-only: what was paid in (top_up), what requests cost (settle, negative), corrections (adjust).
CREATE TABLE ledger (
    seq BIGINT PRIMARY KEY,
    member_id TEXT NOT NULL,
    at BIGINT NOT NULL,
    kind TEXT NOT NULL,
    amount BIGINT NOT NULL,
    balance BIGINT NOT NULL,
    request_id TEXT,
    idempotency_key TEXT,
    note TEXT NOT NULL,
    actor TEXT NOT NULL
);
CREATE UNIQUE INDEX ledger_request ON ledger (request_id) WHERE request_id IS NOT NULL;
CREATE UNIQUE INDEX ledger_idempotency ON ledger (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX ledger_member ON ledger (member_id, seq);

-- The balance after each member's last entry.
CREATE TABLE balances (
    member_id TEXT PRIMARY KEY,
    balance BIGINT NOT NULL
);

-- Sums over usage records, by the UTC hour and day of their arrival. `group_id` and `model` are empty for requests that
-- were refused before a group offered the model: names that exist nowhere must not make rows.
CREATE TABLE usage_hours (
    bucket BIGINT NOT NULL,
    key_id TEXT NOT NULL,
    member_id TEXT NOT NULL,
    group_id TEXT NOT NULL,
    model TEXT NOT NULL,
    requests BIGINT NOT NULL,
    completed BIGINT NOT NULL,
    tokens_input BIGINT NOT NULL,
    tokens_output BIGINT NOT NULL,
    sale BIGINT NOT NULL,
    cost BIGINT NOT NULL,
    unpriced BIGINT NOT NULL,
    PRIMARY KEY (bucket, key_id, member_id, group_id, model)
);
CREATE TABLE usage_days (
    bucket BIGINT NOT NULL,
    key_id TEXT NOT NULL,
    member_id TEXT NOT NULL,
    group_id TEXT NOT NULL,
    model TEXT NOT NULL,
    requests BIGINT NOT NULL,
    completed BIGINT NOT NULL,
    tokens_input BIGINT NOT NULL,
    tokens_output BIGINT NOT NULL,
    sale BIGINT NOT NULL,
    cost BIGINT NOT NULL,
    unpriced BIGINT NOT NULL,
    PRIMARY KEY (bucket, key_id, member_id, group_id, model)
);

-- Sums over attempts, by the hour and day of their request's arrival.
CREATE TABLE attempt_hours (
    bucket BIGINT NOT NULL,
    channel_id TEXT NOT NULL,
    account_id TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    answered BIGINT NOT NULL,
    tokens_input BIGINT NOT NULL,
    tokens_output BIGINT NOT NULL,
    cost BIGINT NOT NULL,
    PRIMARY KEY (bucket, channel_id, account_id)
);
CREATE TABLE attempt_days (
    bucket BIGINT NOT NULL,
    channel_id TEXT NOT NULL,
    account_id TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    answered BIGINT NOT NULL,
    tokens_input BIGINT NOT NULL,
    tokens_output BIGINT NOT NULL,
    cost BIGINT NOT NULL,
    PRIMARY KEY (bucket, channel_id, account_id)
);

-- What was recorded before there was a ledger.
INSERT INTO ledger (seq, member_id, at, kind, amount, balance, request_id, idempotency_key, note, actor)
SELECT ROW_NUMBER() OVER (ORDER BY at, id), member_id, at, 'settle', -sale,
    -SUM(sale) OVER (PARTITION BY member_id ORDER BY at, id ROWS UNBOUNDED PRECEDING), id, NULL, '', ''
FROM usage WHERE sale <> 0;
UPDATE counters SET value = (SELECT COUNT(*) FROM ledger) WHERE name = 'ledger';
INSERT INTO balances (member_id, balance) SELECT member_id, SUM(amount) FROM ledger GROUP BY member_id;
INSERT INTO usage_hours
SELECT at / 3600000000 * 3600000000, key_id, member_id, COALESCE(group_id, ''),
    CASE WHEN group_id IS NULL THEN '' ELSE COALESCE(model, '') END, COUNT(*),
    SUM(CASE WHEN outcome = 'completed' THEN 1 ELSE 0 END),
    SUM(tokens_input + tokens_cache_read + tokens_cache_write + tokens_image + tokens_audio), SUM(tokens_output + tokens_thinking),
    SUM(COALESCE(sale, 0)), SUM(COALESCE(cost, 0)), SUM(CASE WHEN sale IS NULL THEN 1 ELSE 0 END)
FROM usage GROUP BY 1, 2, 3, 4, 5;
INSERT INTO usage_days
SELECT bucket / 86400000000 * 86400000000, key_id, member_id, group_id, model, SUM(requests), SUM(completed), SUM(tokens_input),
    SUM(tokens_output), SUM(sale), SUM(cost), SUM(unpriced)
FROM usage_hours GROUP BY 1, 2, 3, 4, 5;
INSERT INTO attempt_hours
SELECT u.at / 3600000000 * 3600000000, a.channel_id, a.account_id, COUNT(*),
    SUM(CASE WHEN a.result = 'answered' THEN 1 ELSE 0 END),
    SUM(a.tokens_input + a.tokens_cache_read + a.tokens_cache_write + a.tokens_image + a.tokens_audio),
    SUM(a.tokens_output + a.tokens_thinking), SUM(COALESCE(a.cost, 0))
FROM attempts a JOIN usage u ON u.id = a.request_id GROUP BY 1, 2, 3;
INSERT INTO attempt_days
SELECT bucket / 86400000000 * 86400000000, channel_id, account_id, SUM(attempts), SUM(answered), SUM(tokens_input),
    SUM(tokens_output), SUM(cost)
FROM attempt_hours GROUP BY 1, 2, 3;
