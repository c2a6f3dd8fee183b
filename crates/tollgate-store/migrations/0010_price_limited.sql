-- Keys with price limits of their own, which changes of groups are weighed against.
CREATE INDEX service_keys_limited ON service_keys (id) WHERE removed_at IS NULL AND spec LIKE '%"price_limit":{%';
