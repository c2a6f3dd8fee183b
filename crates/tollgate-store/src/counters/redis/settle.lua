-- Gives back and counts what was spent, for many requests at once. KEYS: nodes, generation, this process's last number,
-- meters. ARGV: node, generation, number, day, month, then for each meter: held and running (added to the node's), the count
-- of budgets to watch (each: window, day, month, amount), of amounts spent (each: day, month, amount), of token estimates to
-- put right (each: minute, taken, actual), and of requests that were on lease and not made (each: minute, how many). What was
-- spent counts once for a number, however often it is sent.
-- Answers: 1 done, -1 another generation; the time; nodes; each meter; what was crossed (meter, watch, spent).
if redis.call('GET', KEYS[2]) ~= ARGV[2] then return {-1, now, nodes, {}, {}} end
local node, counts = ARGV[1], number(redis.call('GET', KEYS[3])) < number(ARGV[3])
local day, month = number(ARGV[4]), number(ARGV[5])
local place = 5
local function next_word()
    place = place + 1
    return ARGV[place]
end

local function settled(key, window, of_day, of_month)
    local fields = all(key)
    if window == 'day' then return period(fields, 'd:', of_day) end
    if window == 'month' then return period(fields, 'm:', of_month) end
    return number(fields['t'])
end

-- A rate's bucket took too much, or too little.
local function put_right(key, rate, of, taken, actual)
    local at, now_in, before = rate .. 'b', rate .. 'c', rate .. 'p'
    local bucket, current, previous = rolled(all(key), at, now_in, before)
    current = current + math.max(actual - taken, 0)
    local over = math.max(taken - actual, 0)
    if of == bucket then
        current = math.max(current - over, 0)
    elseif of + 1 == bucket then
        previous = math.max(previous - over, 0)
    end
    redis.call('HSET', key, at, text(bucket), now_in, text(current), before, text(previous))
end

local meters, crossed = {}, {}
for at = 4, #KEYS do
    local key, held, running = KEYS[at], next_word(), next_word()
    if alive[node] then
        if held ~= '0' then redis.call('HINCRBY', key, 'h:' .. node, held) end
        if running ~= '0' then redis.call('HINCRBY', key, 'c:' .. node, running) end
    end
    local watches = {}
    for _ = 1, number(next_word()) do
        local watch = {next_word(), number(next_word()), number(next_word()), number(next_word())}
        watch[5] = settled(key, watch[1], watch[2], watch[3])
        watches[#watches + 1] = watch
    end
    for _ = 1, number(next_word()) do
        local of_day, of_month, amount = number(next_word()), number(next_word()), next_word()
        if counts then
            redis.call('HINCRBY', key, opened(key, 'd:', of_day), amount)
            redis.call('HINCRBY', key, opened(key, 'm:', of_month), amount)
            redis.call('HINCRBY', key, 't', amount)
        end
    end
    for number_of, watch in ipairs(watches) do
        local after = settled(key, watch[1], watch[2], watch[3])
        if watch[5] < watch[4] and after >= watch[4] then
            crossed[#crossed + 1] = at - 3
            crossed[#crossed + 1] = number_of
            crossed[#crossed + 1] = after
        end
    end
    for _ = 1, number(next_word()) do
        local of, taken, actual = number(next_word()), number(next_word()), number(next_word())
        if counts then put_right(key, 't', of, taken, actual) end
    end
    for _ = 1, number(next_word()) do
        local of, unused = number(next_word()), number(next_word())
        if counts then put_right(key, 'r', of, unused, 0) end
    end
    meters[at - 3] = meter(key, day, month)
end
if counts then redis.call('SET', KEYS[3], ARGV[3], 'EX', 604800) end
return {1, now, nodes, meters, crossed}
