-- Shares which keys are revoked. KEYS: a sorted set of key ids by the time they became known, in milliseconds of Redis' clock.
-- ARGV: the time from which to return keys, how long keys are kept, a key that was there ('' for none), then the ids of newly
-- revoked keys.
-- Returns: the time, 1 if that key is still there, and at most 1,000 ids since the given time.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function text(value) return string.format('%.0f', value) end
local is_kept = ARGV[3] == '' or redis.call('ZSCORE', KEYS[1], ARGV[3])
for at = 4, #ARGV do redis.call('ZADD', KEYS[1], 'NX', text(now), ARGV[at]) end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now - tonumber(ARGV[2])))
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[1], '+inf', 'LIMIT', 0, 1000)
local until_ms = text(now)
if #ids == 1000 then until_ms = redis.call('ZSCORE', KEYS[1], ids[1000]) end
table.insert(ids, 1, is_kept and '1' or '0')
table.insert(ids, 1, until_ms)
return ids
