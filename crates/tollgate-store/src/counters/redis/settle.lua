-- Applies the changes of many requests: releases reservations and counts spending. Spending counts once per message number,
-- however often the message is sent. KEYS: nodes, generation, this process's last message number, changes, meters.
-- ARGV: node, generation, message number, day, month, then for each meter:
--   reserved money and running requests (added to the node's),
--   the count of budgets to watch, each: window, day, month, amount,
--   the count of amounts spent, each: day, month, amount,
--   the count of windows to add, each: minute, requests in it and in the one before; minute, tokens in it and in the one before,
--   the count of token estimates to correct, each: minute, estimated, actual,
--   the count of leased requests that were not made, each: minute, number.
-- Returns: 1 done or -1 another generation; the time; the number of nodes; the meters; the crossed budgets (meter, watch,
-- spent).
if redis.call('GET', KEYS[2]) ~= ARGV[2] then return {-1, now, nodes, {}, {}} end
local node, counts = ARGV[1], number(redis.call('GET', KEYS[3])) < number(ARGV[3])
local day, month = number(ARGV[4]), number(ARGV[5])
local last_read = 5
local function next_arg()
    last_read = last_read + 1
    return ARGV[last_read]
end

local function spent_in_window(key, kind, of_day, of_month)
    local fields = read_hash(key)
    if kind == 'day' then return spent_in(fields, 'd:', of_day) end
    if kind == 'month' then return spent_in(fields, 'm:', of_month) end
    return number(fields['t'])
end

-- Replaces an estimate by the actual amount in a sliding window ('r' requests, 't' tokens).
local function correct(key, rate, of_minute, estimated, actual)
    local bucket_field, current_field, previous_field = rate .. 'b', rate .. 'c', rate .. 'p'
    local bucket, current, previous = window(read_hash(key), bucket_field, current_field, previous_field)
    current = current + math.max(actual - estimated, 0)
    local surplus = math.max(estimated - actual, 0)
    if of_minute == bucket then
        current = math.max(current - surplus, 0)
    elseif of_minute + 1 == bucket then
        previous = math.max(previous - surplus, 0)
    end
    redis.call('HSET', key, bucket_field, text(bucket), current_field, text(current), previous_field, text(previous))
end

-- Adds what the node has counted in a minute and the one before to a sliding window.
local function add(key, rate, of_minute, in_minute, before)
    local bucket_field, current_field, previous_field = rate .. 'b', rate .. 'c', rate .. 'p'
    local bucket, current, previous = window(read_hash(key), bucket_field, current_field, previous_field)
    if of_minute >= bucket then
        current, previous = current + in_minute, previous + before
    elseif of_minute + 1 == bucket then
        previous = previous + in_minute
    end
    redis.call('HSET', key, bucket_field, text(bucket), current_field, text(current), previous_field, text(previous))
end

local meters, crossed = {}, {}
for at = 5, #KEYS do
    local key, reserved, running = KEYS[at], next_arg(), next_arg()
    local has_changed = reserved ~= '0'
    if alive[node] then
        if reserved ~= '0' then redis.call('HINCRBY', key, 'h:' .. node, reserved) end
        if running ~= '0' then redis.call('HINCRBY', key, 'c:' .. node, running) end
    end
    local watches = {}
    for _ = 1, number(next_arg()) do
        local watch = {next_arg(), number(next_arg()), number(next_arg()), number(next_arg())}
        watch[5] = spent_in_window(key, watch[1], watch[2], watch[3])
        watches[#watches + 1] = watch
    end
    for _ = 1, number(next_arg()) do
        local of_day, of_month, amount = number(next_arg()), number(next_arg()), next_arg()
        if counts then
            redis.call('HINCRBY', key, period_field(key, 'd:', of_day), amount)
            redis.call('HINCRBY', key, period_field(key, 'm:', of_month), amount)
            redis.call('HINCRBY', key, 't', amount)
            has_changed = true
        end
    end
    for index, watch in ipairs(watches) do
        local after = spent_in_window(key, watch[1], watch[2], watch[3])
        if watch[5] < watch[4] and after >= watch[4] then
            crossed[#crossed + 1] = at - 4
            crossed[#crossed + 1] = index
            crossed[#crossed + 1] = after
        end
    end
    for _ = 1, number(next_arg()) do
        for _, rate in ipairs({'r', 't'}) do
            local of_minute, in_minute, before = number(next_arg()), number(next_arg()), number(next_arg())
            if counts and in_minute + before > 0 then add(key, rate, of_minute, in_minute, before) end
        end
    end
    for _ = 1, number(next_arg()) do
        local of_minute, estimated, actual = number(next_arg()), number(next_arg()), number(next_arg())
        if counts then correct(key, 't', of_minute, estimated, actual) end
    end
    for _ = 1, number(next_arg()) do
        local of_minute, unused = number(next_arg()), number(next_arg())
        if counts then correct(key, 'r', of_minute, unused, 0) end
    end
    if has_changed then note_change(KEYS[4], key) end
    meters[at - 4] = meter(key, day, month)
end
if counts then redis.call('SET', KEYS[3], ARGV[3], 'EX', 604800) end
return {1, now, nodes, meters, crossed}
