-- Makes a reservation as a whole or not at all; with it, where enough is left, reservations for its attempts and leases that
-- the node may use without asking. KEYS: nodes, generation, changes, meters.
-- ARGV: node, generation, amount, tokens, the lowest sufficient amount and its tokens (-1 if it may not be lowered), day, month,
-- then for each meter:
--   leases returned: money, permits, minute and requests, minute and tokens,
--   leases wanted: money and money per request, requests, tokens and tokens per request, permits;
-- the count of limits, each: index of its meter, kind, bound;
-- the count of attempts, each: index of its meter, amount, 'must' or 'far' (only where much is left), the count of its limits,
-- each: kind, bound.
-- Returns: 1 reserved, 0 a limit is exceeded, -1 not a registered node of this generation; the time; the number of nodes; the
-- meters; the amount reserved; for each attempt 1 or 0; for each meter the leases granted: money, requests, tokens, permits.
if redis.call('GET', KEYS[2]) ~= ARGV[2] or not alive[ARGV[1]] then return {-1, now, nodes, {}, 0, {}, {}} end
local node, amount, tokens = ARGV[1], number(ARGV[3]), number(ARGV[4])
local min, min_tokens = number(ARGV[5]), number(ARGV[6])
local day, month = number(ARGV[7]), number(ARGV[8])
local last_read = 8
local function next_arg()
    last_read = last_read + 1
    return ARGV[last_read]
end
local meters = {}
for at = 4, #KEYS do meters[at - 3] = meter(KEYS[at], day, month) end

local wanted, leases = {}, {}
for index = 1, #meters do
    local key, m = KEYS[index + 3], meters[index]
    local money, permits = number(next_arg()), number(next_arg())
    if money > 0 then
        m[5] = m[5] - money
        redis.call('HINCRBY', key, 'h:' .. node, text(-money))
    end
    if permits > 0 then
        m[6] = m[6] - permits
        redis.call('HINCRBY', key, 'c:' .. node, text(-permits))
    end
    for _, window_of in ipairs({{7, 'r'}, {10, 't'}}) do
        local of_minute, unused, first, rate = number(next_arg()), number(next_arg()), window_of[1], window_of[2]
        if unused > 0 then
            if of_minute == m[first] then
                m[first + 1] = math.max(m[first + 1] - unused, 0)
            elseif of_minute + 1 == m[first] then
                m[first + 2] = math.max(m[first + 2] - unused, 0)
            end
            redis.call('HSET', key, rate .. 'b', text(m[first]), rate .. 'c', text(m[first + 1]), rate .. 'p', text(m[first + 2]))
        end
    end
    wanted[index] = {}
    for part = 1, 6 do wanted[index][part] = number(next_arg()) end
    leases[index] = {0, 0, 0, 0}
end

-- The size of a lease: at most 1/8 of what is left divided by the nodes, and nothing if that serves fewer than 4 requests.
local PART, MIN_REQUESTS = 8, 4
local function lease_size(left, want, unit)
    local size = math.min(want, math.floor(left / (PART * nodes)))
    if size < MIN_REQUESTS * unit then return 0 end
    return size
end

local function is_money(kind) return kind == 'day' or kind == 'month' or kind == 'total' or kind == 'balance' end

local function money_left(m, kind, bound)
    if kind == 'day' then return bound - m[1] - m[5] end
    if kind == 'month' then return bound - m[2] - m[5] end
    if kind == 'total' then return bound - m[3] - m[5] end
    return m[4] - m[3] - m[5]
end

local limits, left = {}, nil
for _ = 1, number(next_arg()) do
    local limit = {number(next_arg()), next_arg(), number(next_arg())}
    limits[#limits + 1] = limit
    if is_money(limit[2]) then
        local here = money_left(meters[limit[1]], limit[2], limit[3])
        if not left or here < left then left = here end
    end
end

-- Money first: all that is left if the reservation may be lowered to it.
local granted, fits = amount, true
if left and amount > 0 and amount > left then
    fits = min >= 0 and min <= left
    if fits then
        granted = left
        tokens = math.min(tokens, math.ceil(min_tokens + (left - min) * (tokens - min_tokens) / (amount - min)))
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

local function reserve_money(index, count)
    if count == 0 then return end
    meters[index][5] = meters[index][5] + count
    note_change(KEYS[3], KEYS[index + 3])
    redis.call('HINCRBY', KEYS[index + 3], 'h:' .. node, text(count))
end

local function count_requests(index, count)
    local m = meters[index]
    m[8] = m[8] + count
    redis.call('HSET', KEYS[index + 3], 'rb', text(m[7]), 'rc', text(m[8]), 'rp', text(m[9]))
end

local function count_tokens(index, count)
    local m = meters[index]
    m[11] = m[11] + count
    redis.call('HSET', KEYS[index + 3], 'tb', text(m[10]), 'tc', text(m[11]), 'tp', text(m[12]))
end

local function reserve_permits(index, count)
    meters[index][6] = meters[index][6] + count
    redis.call('HINCRBY', KEYS[index + 3], 'c:' .. node, text(count))
end

local has_reserved = {}
for _, limit in ipairs(limits) do
    local index, kind = limit[1], limit[2]
    if kind == 'requests' then
        count_requests(index, 1)
    elseif kind == 'tokens' then
        count_tokens(index, math.min(tokens, limit[3]))
    elseif kind == 'running' then
        reserve_permits(index, 1)
    elseif not has_reserved[index] then
        has_reserved[index] = true
        reserve_money(index, granted)
    end
end

-- Reservations for attempts. The limits of their channels apply to leases on the channels as well.
local prepared, channel_limits = {}, {}
for attempt = 1, number(next_arg()) do
    local index, cost, condition = number(next_arg()), number(next_arg()), next_arg()
    local available
    for _ = 1, number(next_arg()) do
        local limit = {index, next_arg(), number(next_arg())}
        local here = money_left(meters[index], limit[2], limit[3])
        if not available or here < available then available = here end
        channel_limits[#channel_limits + 1] = limit
    end
    local enough = cost == 0 or (available and cost <= available)
    if enough and condition == 'far' then enough = cost * PART * nodes <= available end
    prepared[attempt] = enough and 1 or 0
    if enough then reserve_money(index, cost) end
end

-- Leases: on all limits of the request or on none, and on each channel independently.
local function money_leases(of_limits)
    local sizes = {}
    for _, limit in ipairs(of_limits) do
        local index = limit[1]
        local want = wanted[index]
        if is_money(limit[2]) and want[1] > 0 then
            local size = lease_size(money_left(meters[index], limit[2], limit[3]), want[1], want[2])
            sizes[index] = math.min(sizes[index] or size, size)
        end
    end
    return sizes
end
local amounts, rates, all = money_leases(limits), {}, true
for _, size in pairs(amounts) do all = all and size > 0 end
for _, limit in ipairs(limits) do
    local index, kind, bound = limit[1], limit[2], limit[3]
    local m, want, size = meters[index], wanted[index], nil
    if kind == 'requests' and want[3] > 0 then
        size = lease_size(bound - used(m[8], m[9]), want[3], 1)
    elseif kind == 'tokens' and want[4] > 0 then
        size = lease_size(bound - used(m[11], m[12]), want[4], want[5])
    elseif kind == 'running' and want[6] > 0 then
        size = lease_size(bound - m[6], want[6], 1)
    end
    if size then
        rates[#rates + 1] = {index, kind, size}
        all = all and size > 0
    end
end
if all then
    for index, size in pairs(amounts) do
        reserve_money(index, size)
        leases[index][1] = size
    end
    for _, rate in ipairs(rates) do
        local index, kind, size = rate[1], rate[2], rate[3]
        if kind == 'requests' then
            count_requests(index, size)
            leases[index][2] = size
        elseif kind == 'tokens' then
            count_tokens(index, size)
            leases[index][3] = size
        else
            reserve_permits(index, size)
            leases[index][4] = size
        end
    end
end
for index, size in pairs(money_leases(channel_limits)) do
    if size > 0 then
        reserve_money(index, size)
        leases[index][1] = size
    end
end
return {1, now, nodes, meters, granted, prepared, leases}
