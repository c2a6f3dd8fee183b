-- Takes a hold, or nothing of it. KEYS: nodes, generation, meters. ARGV: node, generation, amount, tokens, day, month, then
-- for each limit: its meter's place, its kind, its bound.
-- Answers: 1 taken, 0 something does not suffice, -1 not a node of this generation; the time; nodes; each meter.
if redis.call('GET', KEYS[2]) ~= ARGV[2] or not alive[ARGV[1]] then return {-1, now, nodes, {}} end
local node, amount, tokens = ARGV[1], number(ARGV[3]), number(ARGV[4])
local day, month = number(ARGV[5]), number(ARGV[6])
local meters = {}
for at = 3, #KEYS do meters[at - 2] = meter(KEYS[at], day, month) end

local fits = true
for at = 7, #ARGV, 3 do
    local m, kind, bound = meters[tonumber(ARGV[at])], ARGV[at + 1], number(ARGV[at + 2])
    if kind == 'day' or kind == 'month' or kind == 'total' then
        local spent = m[3]
        if kind == 'day' then spent = m[1] elseif kind == 'month' then spent = m[2] end
        fits = fits and (amount == 0 or amount <= bound - spent - m[5])
    elseif kind == 'balance' then
        fits = fits and (amount == 0 or amount <= m[4] - m[3] - m[5])
    elseif kind == 'requests' then
        fits = fits and used(m[8], m[9]) < bound
    elseif kind == 'tokens' then
        fits = fits and used(m[11], m[12]) + math.min(tokens, bound) <= bound
    elseif kind == 'running' then
        fits = fits and m[6] < bound
    end
end
if not fits then return {0, now, nodes, meters} end

local holding = {}
for at = 7, #ARGV, 3 do
    local place, kind, bound = tonumber(ARGV[at]), ARGV[at + 1], number(ARGV[at + 2])
    local key, m = KEYS[place + 2], meters[place]
    if kind == 'requests' then
        m[8] = m[8] + 1
        redis.call('HSET', key, 'rb', text(m[7]), 'rc', text(m[8]), 'rp', text(m[9]))
    elseif kind == 'tokens' then
        m[11] = m[11] + math.min(tokens, bound)
        redis.call('HSET', key, 'tb', text(m[10]), 'tc', text(m[11]), 'tp', text(m[12]))
    elseif kind == 'running' then
        m[6] = m[6] + 1
        redis.call('HINCRBY', key, 'c:' .. node, 1)
    elseif not holding[place] then
        holding[place] = true
        m[5] = m[5] + amount
        redis.call('HINCRBY', key, 'h:' .. node, ARGV[3])
    end
end
return {1, now, nodes, meters}
