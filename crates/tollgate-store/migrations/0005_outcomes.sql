-- Roll-ups by outcome too, so that every chart is answered by them, and indexes for pages of one group or of what went
-- wrong. `completed` becomes an outcome like the others.
DROP TABLE usage_hours;
DROP TABLE usage_days;
CREATE TABLE usage_hours (
    bucket BIGINT NOT NULL,
    key_id TEXT NOT NULL,
    member_id TEXT NOT NULL,
    group_id TEXT NOT NULL,
    model TEXT NOT NULL,
    outcome TEXT NOT NULL,
    requests BIGINT NOT NULL,
    tokens_input BIGINT NOT NULL,
    tokens_output BIGINT NOT NULL,
    sale BIGINT NOT NULL,
    cost BIGINT NOT NULL,
    unpriced BIGINT NOT NULL,
    PRIMARY KEY (bucket, key_id, member_id, group_id, model, outcome)
);
CREATE TABLE usage_days (
    bucket BIGINT NOT NULL,
    key_id TEXT NOT NULL,
    member_id TEXT NOT NULL,
    group_id TEXT NOT NULL,
    model TEXT NOT NULL,
    outcome TEXT NOT NULL,
    requests BIGINT NOT NULL,
    tokens_input BIGINT NOT NULL,
    tokens_output BIGINT NOT NULL,
    sale BIGINT NOT NULL,
    cost BIGINT NOT NULL,
    unpriced BIGINT NOT NULL,
    PRIMARY KEY (bucket, key_id, member_id, group_id, model, outcome)
);
INSERT INTO usage_hours
SELECT at / 3600000000 * 3600000000, key_id, member_id, COALESCE(group_id, ''),
    CASE WHEN group_id IS NULL THEN '' ELSE COALESCE(model, '') END, outcome, COUNT(*),
    SUM(tokens_input + tokens_cache_read + tokens_cache_write + tokens_image + tokens_audio), SUM(tokens_output + tokens_thinking),
    SUM(COALESCE(sale, 0)), SUM(COALESCE(cost, 0)), SUM(CASE WHEN sale IS NULL THEN 1 ELSE 0 END)
FROM usage GROUP BY 1, 2, 3, 4, 5, 6;
INSERT INTO usage_days
SELECT bucket / 86400000000 * 86400000000, key_id, member_id, group_id, model, outcome, SUM(requests), SUM(tokens_input),
    SUM(tokens_output), SUM(sale), SUM(cost), SUM(unpriced)
FROM usage_hours GROUP BY 1, 2, 3, 4, 5, 6;

CREATE INDEX usage_group ON usage (group_id, at, id);
CREATE INDEX usage_failed ON usage (outcome, at, id) WHERE outcome <> 'completed';

-- Records of requests that arrived before this time were removed; their money and sums stay.
INSERT INTO counters (name, value) VALUES ('pruned_until', 0);
