-- Every table but those of the usage log, in one text for SQLite and PostgreSQL: columns are BIGINT, TEXT or BYTEA. Times are microseconds
-- since 1970 (UTC), amounts are nano-USD, truth values are 0 and 1.

-- Single numbers. `revision`: of the catalog. `ledger`: the last `seq` of the ledger; incrementing it locks the row, so entries
-- become visible in the order of `seq`. `pruned_until`: usage records that arrived before this time were removed, their ledger
-- entries and sums were kept.
CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value BIGINT NOT NULL
);
INSERT INTO counters (name, value) VALUES ('revision', 0), ('ledger', 0), ('pruned_until', 0);

-- The data key, sealed with the master key; a check value and the pepper, sealed with the data key. While the master key is
-- rotated, `last_data_key` is the data key before, which still seals some rows.
CREATE TABLE data_keys (
    name TEXT PRIMARY KEY,
    sealed BYTEA NOT NULL
);

-- Master keys that are not used any more, by fingerprint.
CREATE TABLE retired_master_keys (
    fingerprint TEXT PRIMARY KEY
);

-- The running gateways, by the id of their journal: the master keys each can open with, by fingerprint, and the last request for
-- them that it answered (the counter `key_check`).
CREATE TABLE key_holders (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    answered BIGINT NOT NULL,
    master_keys TEXT NOT NULL
);

-- The journals whose records are booked here, by id. `booked` counts their records; `unfinished` is 1 from the start of a
-- gateway until it has stopped with nothing left to book.
CREATE TABLE journals (
    id TEXT PRIMARY KEY,
    booked BIGINT NOT NULL,
    unfinished BIGINT NOT NULL
);

-- Channels, accounts, models, groups, members, settings and destinations of alerts. `spec` is the row in JSON, with the field names of a catalog file (of a
-- setting: its value); `parent` is the channel of an account; `credential` is sealed. Removing a row sets `removed_at`.
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

-- Service keys. `hash` is HMAC-SHA-256 with the pepper; two live keys cannot have the same secret. `parent` is the member.
-- `previous_hash` is that of the secret before a rotation, which is valid until `previous_until`.
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
    removed_at BIGINT,
    previous_hash BYTEA,
    previous_until BIGINT
);
CREATE UNIQUE INDEX service_keys_live_hash ON service_keys (hash) WHERE removed_at IS NULL;
CREATE INDEX service_keys_hash ON service_keys (hash);
CREATE INDEX service_keys_previous_hash ON service_keys (previous_hash) WHERE previous_hash IS NOT NULL;
CREATE UNIQUE INDEX service_keys_name ON service_keys (parent, name) WHERE removed_at IS NULL;
-- Keys with a price limit of their own: changes of groups are checked against them.
CREATE INDEX service_keys_limited ON service_keys (id) WHERE removed_at IS NULL AND spec LIKE '%"price_limit":{%';

-- Keys of the admin API, never valid for model requests. `hash` is HMAC-SHA-256 with the pepper. `parent` is the member, or empty.
CREATE TABLE admin_keys (
    id TEXT PRIMARY KEY,
    parent TEXT NOT NULL,
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

-- What members sign in with. `totp` is sealed; `subject` is an OpenID provider's issuer and subject; `state` is JSON: the hash of the
-- password, the hashes of recovery codes, the last one-time code that was used, the last sign-in, and the version, which changes with
-- the password and the one-time codes. `told` is JSON: the subjects of what the member was told about by mail.
CREATE TABLE logins (
    member_id TEXT PRIMARY KEY,
    email TEXT,
    subject TEXT,
    totp BYTEA,
    state TEXT NOT NULL,
    told TEXT NOT NULL DEFAULT '[]'
);
CREATE UNIQUE INDEX logins_email ON logins (email) WHERE email IS NOT NULL;
CREATE UNIQUE INDEX logins_subject ON logins (subject) WHERE subject IS NOT NULL;

-- Sessions of the console. `hash` is HMAC-SHA-256 with the pepper. `spec` is JSON: method, client, and the member's role and the
-- login's version, with which the session is valid.
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    hash BYTEA NOT NULL,
    member_id TEXT NOT NULL,
    seen_at BIGINT NOT NULL,
    ends_at BIGINT NOT NULL,
    spec TEXT NOT NULL
);
CREATE UNIQUE INDEX sessions_hash ON sessions (hash);
CREATE INDEX sessions_member ON sessions (member_id, id);
CREATE INDEX sessions_end ON sessions (ends_at);

-- Invites to become a member; `is_open` until one is accepted or revoked. `hash` is HMAC-SHA-256 with the pepper.
CREATE TABLE invites (
    id TEXT PRIMARY KEY,
    hash BYTEA NOT NULL,
    expires_at BIGINT NOT NULL,
    is_open BIGINT NOT NULL,
    spec TEXT NOT NULL
);
CREATE UNIQUE INDEX invites_hash ON invites (hash);

-- One-time links that set a password, one for each member. `kind` is `set_up` or `reset`.
CREATE TABLE password_links (
    member_id TEXT PRIMARY KEY,
    hash BYTEA NOT NULL,
    kind TEXT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX password_links_hash ON password_links (hash);

-- Passkeys of members. `credential` is the id that the authenticator gave it, `public_key` a COSE_Key. `spec` is JSON: name, signature
-- counter, backup flags and last use.
CREATE TABLE passkeys (
    id TEXT PRIMARY KEY,
    member_id TEXT NOT NULL,
    credential BYTEA NOT NULL,
    public_key BYTEA NOT NULL,
    spec TEXT NOT NULL
);
CREATE UNIQUE INDEX passkeys_credential ON passkeys (credential);
CREATE INDEX passkeys_member ON passkeys (member_id, id);

-- Challenges that a passkey has answered, until they are over: each is answered once. `hash` is HMAC-SHA-256 with the pepper.
CREATE TABLE used_challenges (
    hash BYTEA PRIMARY KEY,
    ends_at BIGINT NOT NULL
);
CREATE INDEX used_challenges_end ON used_challenges (ends_at);

-- Rows changed by each revision: what caches drop.
CREATE TABLE changes (
    revision BIGINT NOT NULL,
    position BIGINT NOT NULL,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    PRIMARY KEY (revision, position)
);
-- Finds the last change of a row.
CREATE INDEX changes_id ON changes (id, revision);

-- Idempotency keys of batches of changes, kept for a day, each with the first row its batch wrote.
CREATE TABLE once (
    key TEXT PRIMARY KEY,
    fingerprint BYTEA NOT NULL,
    at BIGINT NOT NULL,
    kind TEXT NOT NULL,
    id TEXT NOT NULL
);
CREATE INDEX once_at ON once (at);

-- The audit log, append-only.
CREATE TABLE audit (
    revision BIGINT NOT NULL,
    position BIGINT NOT NULL,
    at BIGINT NOT NULL,
    origin TEXT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    detail TEXT NOT NULL,
    address TEXT,
    PRIMARY KEY (revision, position)
);

-- Changes of prices, append-only, written in the transaction of the change. `channel` names the channel whose cost it is, and is empty
-- for the sale price of the model. `source` is what an imported price was imported from, NULL if it was set by hand. The prices are JSON,
-- NULL where there is none.
CREATE TABLE price_history (
    revision BIGINT NOT NULL,
    position BIGINT NOT NULL,
    at BIGINT NOT NULL,
    origin TEXT NOT NULL,
    actor TEXT NOT NULL,
    model TEXT NOT NULL,
    channel TEXT NOT NULL,
    source TEXT,
    old_price TEXT,
    new_price TEXT,
    PRIMARY KEY (revision, position)
);
-- Finds the history of a price, and its last change.
CREATE INDEX price_history_model ON price_history (model, channel, revision, position);
-- The latest changes of sale prices.
CREATE INDEX price_history_sales ON price_history (revision, position) WHERE channel = '';

-- What groups offer, append-only, written in the transaction of the change: a model that lists of a group begin (`offered` 1) or cease
-- (0) to show, or, with two multipliers, in millionths, another one of this model, or of the group where `model` is empty.
CREATE TABLE offer_history (
    revision BIGINT NOT NULL,
    position BIGINT NOT NULL,
    at BIGINT NOT NULL,
    group_id TEXT NOT NULL,
    model TEXT NOT NULL,
    offered BIGINT NOT NULL,
    old_multiplier BIGINT,
    new_multiplier BIGINT,
    PRIMARY KEY (revision, position)
);
-- Finds the last change of an offer.
CREATE INDEX offer_history_model ON offer_history (group_id, model, revision, position);

-- The ledger, append-only: `top_up` (paid in), `settle` (prices of requests, negative), `adjust` (correction). `balance` is the
-- member's balance after the entry. A `settle` entry charges one member for the requests of one batch: `batch` is the position that
-- the ledger reached with it (`usage.booked` of its requests), `requests` counts those with a price, which arrived from `first_at` to
-- `last_at`. `parts` splits the amount as a JSON list of `[key, group or 0, day since 1970, price]`; keys and groups are of `names`.
CREATE TABLE ledger (
    seq BIGINT PRIMARY KEY,
    member_id TEXT NOT NULL,
    at BIGINT NOT NULL,
    kind TEXT NOT NULL,
    amount BIGINT NOT NULL,
    balance BIGINT NOT NULL,
    batch BIGINT,
    requests BIGINT,
    first_at BIGINT,
    last_at BIGINT,
    parts TEXT,
    idempotency_key TEXT,
    note TEXT NOT NULL,
    actor TEXT NOT NULL,
    address TEXT
);
CREATE UNIQUE INDEX ledger_idempotency ON ledger (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX ledger_member ON ledger (member_id, seq);
CREATE INDEX ledger_posted ON ledger (seq) WHERE kind <> 'settle';
CREATE INDEX ledger_at ON ledger (at, seq);

-- Chains of MACs over the ledger (by `seq`) and the audit log (by `revision`): each link covers the rows `first` to `last`, which
-- one transaction wrote, and the link before. `seal` is the MAC of the head.
CREATE TABLE chain_links (
    chain TEXT NOT NULL,
    first BIGINT NOT NULL,
    last BIGINT NOT NULL,
    mac TEXT NOT NULL,
    PRIMARY KEY (chain, last)
);
CREATE TABLE chain_heads (
    chain TEXT PRIMARY KEY,
    last BIGINT NOT NULL,
    mac TEXT NOT NULL,
    seal TEXT NOT NULL
);

-- The balance after each member's last entry.
CREATE TABLE balances (
    member_id TEXT PRIMARY KEY,
    balance BIGINT NOT NULL
);

-- Bodies and answers of requests, by request id. `sealed` is their text, compressed and sealed with the data key; `bytes` is its length.
CREATE TABLE request_contents (
    id TEXT PRIMARY KEY,
    at BIGINT NOT NULL,
    key_id TEXT NOT NULL,
    member_id TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    sealed BYTEA NOT NULL
);
CREATE INDEX request_contents_at ON request_contents (at);
CREATE INDEX request_contents_key ON request_contents (key_id, at, bytes);

-- Days of usage records that were exported to object storage: the day counted from 1970-01-01 in UTC, and what its files hold.
CREATE TABLE usage_exports (
    day BIGINT PRIMARY KEY,
    records BIGINT NOT NULL,
    files BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    exported_at BIGINT NOT NULL
);

-- What exports days at present; another process does when that was not claimed for some time. And the last failure since a day was
-- exported, with the time of the first one. One row.
CREATE TABLE usage_export_state (
    id BIGINT PRIMARY KEY,
    holder TEXT NOT NULL,
    claimed_at BIGINT NOT NULL,
    failed_day BIGINT,
    failing_since BIGINT,
    failed_at BIGINT,
    failure TEXT
);

-- Health of accounts between starts, as JSON. `passed_at`: when the account last passed a test; separate from `health`, which
-- every process overwrites with its own view.
CREATE TABLE account_health (
    account_id TEXT PRIMARY KEY,
    health TEXT NOT NULL,
    updated_at BIGINT NOT NULL,
    passed_at BIGINT
);

-- How the last test of each account ended. `error` is NULL if it passed.
CREATE TABLE account_tests (
    account_id TEXT PRIMARY KEY,
    tested_at BIGINT NOT NULL,
    model TEXT NOT NULL,
    took_ms BIGINT NOT NULL,
    error TEXT
);

-- Health in time: states that kept requests away from an account or a channel (`account` is empty), as a node saw them. A state ends by
-- itself at `until`; `ended_at` is when the next one began, NULL while it lasts.
CREATE TABLE health_transitions (
    channel TEXT NOT NULL,
    account TEXT NOT NULL,
    node TEXT NOT NULL,
    since BIGINT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    cause TEXT NOT NULL,
    until BIGINT,
    ended_at BIGINT,
    PRIMARY KEY (channel, account, node, since)
);
-- Lists, the newest first.
CREATE INDEX health_transitions_since ON health_transitions (since, channel, account, node);
CREATE INDEX health_transitions_ended ON health_transitions (ended_at);
CREATE INDEX health_transitions_open ON health_transitions (node) WHERE ended_at IS NULL;

-- When each node ran, and in each run was seen last. A node that is seen again after three minutes or more begins another run.
CREATE TABLE health_nodes (
    node TEXT NOT NULL,
    since BIGINT NOT NULL,
    seen_at BIGINT NOT NULL,
    PRIMARY KEY (node, since)
);

-- The node that evaluates the rules about all nodes; another one does when it has not claimed that for some time. One row.
CREATE TABLE alert_evaluator (
    id BIGINT PRIMARY KEY,
    node TEXT NOT NULL,
    claimed_at BIGINT NOT NULL
);

-- What rules have found. `subject` names it: a rule has one alert about it that is not over. `detail` is a JSON object of texts.
CREATE TABLE alerts (
    id TEXT PRIMARY KEY,
    rule TEXT NOT NULL,
    subject TEXT NOT NULL,
    node TEXT NOT NULL,
    text TEXT NOT NULL,
    detail TEXT NOT NULL,
    raised_at BIGINT NOT NULL,
    ended_at BIGINT
);
CREATE UNIQUE INDEX alerts_open ON alerts (rule, subject) WHERE ended_at IS NULL;

-- Messages about alerts. `destination` is the id of a row, `kind` is `raised` or `ended`, `state` is `waiting`, `sent` or `failed`.
-- A waiting message is sent at `due_at`; the node that sends it sets a later time first.
CREATE TABLE alert_messages (
    alert TEXT NOT NULL,
    destination TEXT NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    due_at BIGINT NOT NULL,
    fault TEXT NOT NULL,
    PRIMARY KEY (alert, destination, kind)
);
CREATE INDEX alert_messages_due ON alert_messages (due_at) WHERE state = 'waiting';
