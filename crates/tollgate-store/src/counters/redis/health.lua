-- Merges the health of accounts; the later end wins. KEYS: the hash. ARGV: now, then for each account: id, end, health.
-- Returns the id and the health of every account whose end is in the future.
local now = tonumber(ARGV[1])
for at = 2, #ARGV, 3 do
    local stored = redis.call('HGET', KEYS[1], ARGV[at])
    if not stored or tonumber(string.match(stored, '^%d+')) < tonumber(ARGV[at + 1]) then
        redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1] .. ' ' .. ARGV[at + 2])
    end
end
local raw, current = redis.call('HGETALL', KEYS[1]), {}
for at = 1, #raw, 2 do
    local ends, health = string.match(raw[at + 1], '^(%d+) (.*)$')
    if tonumber(ends) <= now then
        redis.call('HDEL', KEYS[1], raw[at])
    else
        current[#current + 1] = raw[at]
        current[#current + 1] = health
    end
end
return current
