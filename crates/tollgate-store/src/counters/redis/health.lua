-- What nodes learned of accounts: the later end wins. KEYS: the hash. ARGV: now, then for each account: its id, until when,
-- what is known. Answers every account with an end that is still to come, and what is known of it.
local now = tonumber(ARGV[1])
for at = 2, #ARGV, 3 do
    local have = redis.call('HGET', KEYS[1], ARGV[at])
    if not have or tonumber(string.match(have, '^%d+')) < tonumber(ARGV[at + 1]) then
        redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1] .. ' ' .. ARGV[at + 2])
    end
end
local raw, known = redis.call('HGETALL', KEYS[1]), {}
for at = 1, #raw, 2 do
    local till, what = string.match(raw[at + 1], '^(%d+) (.*)$')
    if tonumber(till) <= now then
        redis.call('HDEL', KEYS[1], raw[at])
    else
        known[#known + 1] = raw[at]
        known[#known + 1] = what
    end
end
return known
