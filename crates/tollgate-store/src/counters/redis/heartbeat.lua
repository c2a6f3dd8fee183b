-- Registers a node or extends its registration. KEYS: nodes, generation. ARGV: node, time to live in milliseconds, 'new' or
-- 'keep', a node whose registration it replaces ('' for none).
-- Returns: 1 registered or 0 expired; the number of nodes; the generation ('' if there is no data).
if ARGV[4] ~= '' then redis.call('ZREM', KEYS[1], ARGV[4]) end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now / 1000))
local registered = ARGV[3] == 'new' or redis.call('ZSCORE', KEYS[1], ARGV[1])
if registered then redis.call('ZADD', KEYS[1], text(now / 1000 + number(ARGV[2])), ARGV[1]) end
return {registered and 1 or 0, redis.call('ZCARD', KEYS[1]), redis.call('GET', KEYS[2]) or ''}
