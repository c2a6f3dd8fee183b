-- Takes a hold, or nothing of it; with it, where there is room, what its attempts may need and what the node may serve from
-- without asking (its lease). KEYS: nodes, generation, meters. ARGV: node, generation, amount, tokens, the least amount that
-- will do and its tokens (-1: only all of it will), day, month; for each meter what comes back from lease (money, places,
-- minute and requests, minute and tokens) and what is wanted on lease (money and what one request takes of it, requests,
-- tokens and what one request takes of them, places); the count of limits, each: its meter's place, its kind, its bound; the
-- count of holds ahead, each: its meter's place, its amount, 'must' or 'far' (only where much is left), the count of its
-- limits, each: kind, bound.
-- Answers: 1 taken, 0 something does not suffice, -1 not a node of this generation; the time; nodes; each meter; the amount
-- taken; for each hold ahead 1 or 0; for each meter what is on lease now: money, requests, tokens, places.
if redis.call('GET', KEYS[2]) ~= ARGV[2] or not alive[ARGV[1]] then return {-1, now, nodes, {}, 0, {}, {}} end
local node, amount, tokens = ARGV[1], number(ARGV[3]), number(ARGV[4])
local least, least_tokens = number(ARGV[5]), number(ARGV[6])
local day, month = number(ARGV[7]), number(ARGV[8])
local at = 8
local function next_word()
    at = at + 1
    return ARGV[at]
end
local meters = {}
for place = 3, #KEYS do meters[place - 2] = meter(KEYS[place], day, month) end

local wants, leases = {}, {}
for place = 1, #meters do
    local key, m = KEYS[place + 2], meters[place]
    local money, places = number(next_word()), number(next_word())
    if money > 0 then
        m[5] = m[5] - money
        redis.call('HINCRBY', key, 'h:' .. node, text(-money))
    end
    if places > 0 then
        m[6] = m[6] - places
        redis.call('HINCRBY', key, 'c:' .. node, text(-places))
    end
    for _, of in ipairs({{7, 'r'}, {10, 't'}}) do
        local minute_of, unused, first, rate = number(next_word()), number(next_word()), of[1], of[2]
        if unused > 0 then
            if minute_of == m[first] then
                m[first + 1] = math.max(m[first + 1] - unused, 0)
            elseif minute_of + 1 == m[first] then
                m[first + 2] = math.max(m[first + 2] - unused, 0)
            end
            redis.call('HSET', key, rate .. 'b', text(m[first]), rate .. 'c', text(m[first + 1]), rate .. 'p', text(m[first + 2]))
        end
    end
    wants[place] = {}
    for part = 1, 6 do wants[place][part] = number(next_word()) end
    leases[place] = {0, 0, 0, 0}
end

-- What a lease may be: of what is left a part, that all nodes together leave most of it; nothing unless it is worth it.
local PART, WORTH = 8, 4
local function slice(left, want, unit)
    local part = math.min(want, math.floor(left / (PART * nodes)))
    if part < WORTH * unit then return 0 end
    return part
end

local function is_money(kind) return kind == 'day' or kind == 'month' or kind == 'total' or kind == 'balance' end

local function money_left(m, kind, bound)
    if kind == 'day' then return bound - m[1] - m[5] end
    if kind == 'month' then return bound - m[2] - m[5] end
    if kind == 'total' then return bound - m[3] - m[5] end
    return m[4] - m[3] - m[5]
end

local limits, left = {}, nil
for _ = 1, number(next_word()) do
    local limit = {number(next_word()), next_word(), number(next_word())}
    limits[#limits + 1] = limit
    if is_money(limit[2]) then
        local of_this = money_left(meters[limit[1]], limit[2], limit[3])
        if not left or of_this < left then left = of_this end
    end
end

-- Money first; where less will do, as much as there is.
local give, fits = amount, true
if left and amount > 0 and amount > left then
    fits = least >= 0 and least <= left
    if fits then
        give = left
        tokens = math.min(tokens, math.ceil(least_tokens + (left - least) * (tokens - least_tokens) / (amount - least)))
    end
end
for _, limit in ipairs(limits) do
    local m, kind, bound = meters[limit[1]], limit[2], limit[3]
    if kind == 'requests' then
        fits = fits and used(m[8], m[9]) < bound
    elseif kind == 'tokens' then
        fits = fits and used(m[11], m[12]) + math.min(tokens, bound) <= bound
    elseif kind == 'running' then
        fits = fits and m[6] < bound
    end
end
if not fits then return {0, now, nodes, meters, 0, {}, {}} end

local function take_money(place, taken)
    if taken == 0 then return end
    meters[place][5] = meters[place][5] + taken
    redis.call('HINCRBY', KEYS[place + 2], 'h:' .. node, text(taken))
end

local function take_requests(place, taken)
    local m = meters[place]
    m[8] = m[8] + taken
    redis.call('HSET', KEYS[place + 2], 'rb', text(m[7]), 'rc', text(m[8]), 'rp', text(m[9]))
end

local function take_tokens(place, taken)
    local m = meters[place]
    m[11] = m[11] + taken
    redis.call('HSET', KEYS[place + 2], 'tb', text(m[10]), 'tc', text(m[11]), 'tp', text(m[12]))
end

local function take_places(place, taken)
    meters[place][6] = meters[place][6] + taken
    redis.call('HINCRBY', KEYS[place + 2], 'c:' .. node, text(taken))
end

local holding = {}
for _, limit in ipairs(limits) do
    local place, kind = limit[1], limit[2]
    if kind == 'requests' then
        take_requests(place, 1)
    elseif kind == 'tokens' then
        take_tokens(place, math.min(tokens, limit[3]))
    elseif kind == 'running' then
        take_places(place, 1)
    elseif not holding[place] then
        holding[place] = true
        take_money(place, give)
    end
end

-- What attempts may need. Their channels' limits bound leases on the channels as well.
local ahead, channel_limits = {}, {}
for number_of = 1, number(next_word()) do
    local place, wanted, how = number(next_word()), number(next_word()), next_word()
    local room
    for _ = 1, number(next_word()) do
        local limit = {place, next_word(), number(next_word())}
        local of_this = money_left(meters[place], limit[2], limit[3])
        if not room or of_this < room then room = of_this end
        channel_limits[#channel_limits + 1] = limit
    end
    local enough = wanted == 0 or (room and wanted <= room)
    if enough and how == 'far' then enough = wanted * PART * nodes <= room end
    ahead[number_of] = enough and 1 or 0
    if enough then take_money(place, wanted) end
end

-- Leases: on all that bounds the request, or none; on a channel by itself.
local function money_slices(these)
    local slices = {}
    for _, limit in ipairs(these) do
        local place = limit[1]
        local want = wants[place]
        if is_money(limit[2]) and want[1] > 0 then
            local part = slice(money_left(meters[place], limit[2], limit[3]), want[1], want[2])
            slices[place] = math.min(slices[place] or part, part)
        end
    end
    return slices
end
local slices, rates, all = money_slices(limits), {}, true
for _, part in pairs(slices) do all = all and part > 0 end
for _, limit in ipairs(limits) do
    local place, kind, bound = limit[1], limit[2], limit[3]
    local m, want, part = meters[place], wants[limit[1]], nil
    if kind == 'requests' and want[3] > 0 then
        part = slice(bound - used(m[8], m[9]), want[3], 1)
    elseif kind == 'tokens' and want[4] > 0 then
        part = slice(bound - used(m[11], m[12]), want[4], want[5])
    elseif kind == 'running' and want[6] > 0 then
        part = slice(bound - m[6], want[6], 1)
    end
    if part then
        rates[#rates + 1] = {place, kind, part}
        all = all and part > 0
    end
end
if all then
    for place, part in pairs(slices) do
        take_money(place, part)
        leases[place][1] = part
    end
    for _, rate in ipairs(rates) do
        local place, kind, part = rate[1], rate[2], rate[3]
        if kind == 'requests' then
            take_requests(place, part)
            leases[place][2] = part
        elseif kind == 'tokens' then
            take_tokens(place, part)
            leases[place][3] = part
        else
            take_places(place, part)
            leases[place][4] = part
        end
    end
end
for place, part in pairs(money_slices(channel_limits)) do
    if part > 0 then
        take_money(place, part)
        leases[place][1] = part
    end
end
return {1, now, nodes, meters, give, ahead, leases}
