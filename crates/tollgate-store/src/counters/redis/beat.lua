-- A node's sign of life. KEYS: nodes, generation. ARGV: node, its life in milliseconds, 'new' or 'keep', a node it replaces.
-- Answers: 1 it lives, 0 it was given up; nodes; the generation ('': there is no data).
if ARGV[4] ~= '' then redis.call('ZREM', KEYS[1], ARGV[4]) end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now / 1000))
local lives = ARGV[3] == 'new' or redis.call('ZSCORE', KEYS[1], ARGV[1])
if lives then redis.call('ZADD', KEYS[1], text(now / 1000 + number(ARGV[2])), ARGV[1]) end
return {lives and 1 or 0, redis.call('ZCARD', KEYS[1]), redis.call('GET', KEYS[2]) or ''}
