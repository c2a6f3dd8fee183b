-- Raises what was spent to what the database says. Both only ever grow and neither says too much, so that the larger one is
-- right. KEYS: meters. ARGV: day, month, place in the ledger, then for each meter: spent on the day, in the month, in all,
-- and what was posted ('' where it has no balance). What was posted is as of the place: a later one stays.
local function number(text) return tonumber(text or '0') or 0 end
local day, month, ledger = ARGV[1], ARGV[2], ARGV[3]

local function raise(key, at, amount, stored, current, previous)
    local have = number(redis.call('HGET', key, stored))
    if number(at) > have then
        local before = '0'
        if number(at) == have + 1 then before = redis.call('HGET', key, current) or '0' end
        redis.call('HSET', key, stored, at, previous, before, current, amount)
    elseif number(at) == have then
        if number(amount) > number(redis.call('HGET', key, current)) then redis.call('HSET', key, current, amount) end
    elseif number(at) + 1 == have then
        if number(amount) > number(redis.call('HGET', key, previous)) then redis.call('HSET', key, previous, amount) end
    end
end

for at = 1, #KEYS do
    local key, first = KEYS[at], 4 * at
    raise(key, day, ARGV[first], 'd', 'dc', 'dp')
    raise(key, month, ARGV[first + 1], 'm', 'mc', 'mp')
    if number(ARGV[first + 2]) > number(redis.call('HGET', key, 't')) then redis.call('HSET', key, 't', ARGV[first + 2]) end
    local posted = ARGV[first + 3]
    if posted ~= '' and number(ledger) >= number(redis.call('HGET', key, 'pl')) then
        redis.call('HSET', key, 'p', posted, 'pl', ledger)
    end
end
return #KEYS
