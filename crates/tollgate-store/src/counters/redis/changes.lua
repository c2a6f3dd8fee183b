-- Lists the meters whose money was reserved or spent since a time. KEYS: nodes, generation, changes.
-- ARGV: generation, the time in microseconds, the most to list. Those of the last minute are known, older ones are removed.
-- Returns: 1 done or -1 another generation; the time up to which they are listed; the meters.
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return {-1, 0, {}} end
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', text(now - 60000000))
-- A clock that stepped back does not hide what changes from now on.
local since, most = math.min(number(ARGV[2]), now), number(ARGV[3])
local found = redis.call('ZRANGEBYSCORE', KEYS[3], '(' .. text(since), '+inf', 'WITHSCORES', 'LIMIT', 0, most)
local meters = {}
for at = 1, #found, 2 do meters[#meters + 1] = found[at] end
-- Others may have changed at the time of the last one.
if #meters == most then return {1, number(found[#found]) - 1, meters} end
return {1, now, meters}
