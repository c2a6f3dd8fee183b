-- Merges the health of accounts; the later end wins, and a passed test ends what began before it. All times are those of
-- Redis, so that the clocks of nodes do not matter. KEYS: the hash.
-- ARGV: the count of accounts whose rest a test ended, their ids; then for each account that rests: id, milliseconds since it
-- began, milliseconds until it ends, health.
-- Returns: the time in microseconds; then for each account: id, milliseconds since it began (or since the test), milliseconds
-- until it ends ('' for a test), health ('' for a test), the stored text.
local KEEP_TESTS_MS = 90000000
-- Ends that differ by less are the same: the time a message takes.
local SAME_MS = 1000
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function text(value) return string.format('%.0f', value) end

local last = 1
for _ = 1, tonumber(ARGV[1]) do
    last = last + 1
    redis.call('HSET', KEYS[1], ARGV[last], 'ended ' .. text(now))
end
for at = last + 1, #ARGV, 4 do
    local since, ends = now - tonumber(ARGV[at + 1]), now + tonumber(ARGV[at + 2])
    local stored, is_new = redis.call('HGET', KEYS[1], ARGV[at]), true
    if stored then
        local ended, known = string.match(stored, '^ended (%d+)$'), string.match(stored, '^(%d+) %d+ ')
        if ended then is_new = since > tonumber(ended) end
        if known then is_new = ends > tonumber(known) + SAME_MS end
    end
    if is_new then
        redis.call('HSET', KEYS[1], ARGV[at], text(ends) .. ' ' .. text(since) .. ' ' .. ARGV[at + 3])
    end
end

local raw, current = redis.call('HGETALL', KEYS[1]), {clock[1] * 1000000 + clock[2]}
local function add(...)
    for _, value in ipairs({...}) do current[#current + 1] = value end
end
for at = 1, #raw, 2 do
    local id, stored = raw[at], raw[at + 1]
    local ended = string.match(stored, '^ended (%d+)$')
    local ends, since, health = string.match(stored, '^(%d+) (%d+) (.*)$')
    if ended and now - tonumber(ended) < KEEP_TESTS_MS then
        add(id, text(now - tonumber(ended)), '', '', stored)
    elseif ends and tonumber(ends) > now then
        add(id, text(now - tonumber(since)), text(tonumber(ends) - now), health, stored)
    else
        redis.call('HDEL', KEYS[1], id)
    end
end
return current
