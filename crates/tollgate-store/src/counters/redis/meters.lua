-- Shared by the scripts that read meters. KEYS[1] is the set of registered nodes (score: expiry in milliseconds), KEYS[2] the
-- generation of the data.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local minute = math.floor(now / 60000000)

local alive, nodes = {}, 0
for _, node in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. text(now / 1000), '+inf')) do
    alive[node] = true
    nodes = nodes + 1
end

local function read_hash(key)
    local raw, fields = redis.call('HGETALL', key), {}
    for at = 1, #raw, 2 do fields[raw[at]] = raw[at + 1] end
    return fields
end

-- Notes that money of a meter was reserved or spent, for nodes that follow it.
local function note_change(changes, key) redis.call('ZADD', changes, text(now), key) end

-- A sliding window as of now: its bucket (the minute), the count in it and in the one before.
local function window(fields, bucket_field, current_field, previous_field)
    local bucket = number(fields[bucket_field])
    if bucket >= minute then return bucket, number(fields[current_field]), number(fields[previous_field]) end
    if bucket + 1 == minute then return minute, 0, number(fields[current_field]) end
    return minute, 0, 0
end

local function used(current, previous)
    return math.ceil(previous * (60000000 - now % 60000000) / 60000000) + current
end

-- The money spent in a day ('d:') or a month ('m:').
local function spent_in(fields, kind, period) return number(fields[kind .. text(period)]) end

-- A meter as the caller parses it. Reservations of nodes that are no longer registered are deleted.
local function meter(key, day, month)
    local fields, reserved, running = read_hash(key), 0, 0
    for name, value in pairs(fields) do
        local kind, node = string.sub(name, 1, 2), string.sub(name, 3)
        if kind == 'h:' or kind == 'c:' then
            if not alive[node] then
                redis.call('HDEL', key, name)
            elseif kind == 'h:' then
                reserved = reserved + number(value)
            else
                running = running + number(value)
            end
        end
    end
    local rb, rc, rp = window(fields, 'rb', 'rc', 'rp')
    local tb, tc, tp = window(fields, 'tb', 'tc', 'tp')
    return {
        spent_in(fields, 'd:', day), spent_in(fields, 'm:', month), number(fields['t']),
        number(fields['p']), reserved, running, rb, rc, rp, tb, tc, tp
    }
end
