-- What one key or one member spent is asked for by name.
CREATE INDEX usage_days_key ON usage_days (key_id, bucket);
CREATE INDEX usage_days_member ON usage_days (member_id, bucket);
