-- Attempts that ran beside the one that went on and were given up for it: what second attempts cost.
ALTER TABLE attempts ADD COLUMN beside BIGINT NOT NULL DEFAULT 0;
CREATE INDEX attempts_beside ON attempts (at) WHERE beside = 1;
