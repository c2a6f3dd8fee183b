-- Raises what was spent to what the database says. Both only ever grow and neither says too much, so that the larger one is
-- right. KEYS: meters. ARGV: day, month, place in the ledger, then for each meter: spent on the day, in the month, in all,
-- and what was posted ('' where it has no balance). What was posted is as of the place: a later one stays.
local day, month, ledger = ARGV[1], ARGV[2], ARGV[3]

local function raise(key, field, amount)
    if number(amount) > number(redis.call('HGET', key, field)) then redis.call('HSET', key, field, amount) end
end

for at = 1, #KEYS do
    local key, first = KEYS[at], 4 * at
    raise(key, opened(key, 'd:', number(day)), ARGV[first])
    raise(key, opened(key, 'm:', number(month)), ARGV[first + 1])
    raise(key, 't', ARGV[first + 2])
    local posted = ARGV[first + 3]
    if posted ~= '' and number(ledger) >= number(redis.call('HGET', key, 'pl')) then
        redis.call('HSET', key, 'p', posted, 'pl', ledger)
    end
end
return #KEYS
