-- Raises spending to the totals of the database. Both sides only grow and neither overstates, so the larger one is right.
-- KEYS: meters. ARGV: day, month, ledger position, then for each meter: spent in the day, in the month, in all, and the sum of
-- postings as of the ledger position ('' if it has no balance). A sum from a later position is kept.
local day, month, position = ARGV[1], ARGV[2], ARGV[3]

local function raise(key, field, amount)
    if number(amount) > number(redis.call('HGET', key, field)) then redis.call('HSET', key, field, amount) end
end

for at = 1, #KEYS do
    local key, first = KEYS[at], 4 * at
    raise(key, period_field(key, 'd:', number(day)), ARGV[first])
    raise(key, period_field(key, 'm:', number(month)), ARGV[first + 1])
    raise(key, 't', ARGV[first + 2])
    local posted = ARGV[first + 3]
    if posted ~= '' and number(position) >= number(redis.call('HGET', key, 'pl')) then
        redis.call('HSET', key, 'p', posted, 'pl', position)
    end
end
return #KEYS
