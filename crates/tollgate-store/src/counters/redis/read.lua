-- Shared by the scripts that read meters. KEYS[1] is the set of nodes (score: until when, in milliseconds), KEYS[2] the
-- generation of the data.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local minute = math.floor(now / 60000000)

local alive, nodes = {}, 0
for _, node in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. text(now / 1000), '+inf')) do
    alive[node] = true
    nodes = nodes + 1
end

local function all(key)
    local raw, fields = redis.call('HGETALL', key), {}
    for at = 1, #raw, 2 do fields[raw[at]] = raw[at + 1] end
    return fields
end

-- What a window has: its bucket, used in it and in the one before.
local function rolled(fields, bucket, current, previous)
    local at = number(fields[bucket])
    if at >= minute then return at, number(fields[current]), number(fields[previous]) end
    if at + 1 == minute then return minute, 0, number(fields[current]) end
    return minute, 0, 0
end

local function used(current, previous)
    return math.ceil(previous * (60000000 - now % 60000000) / 60000000) + current
end

-- What was spent in a day ('d:' and its number) or a month ('m:').
local function period(fields, kind, at) return number(fields[kind .. text(at)]) end

-- A meter as the caller reads it; what nodes that are gone held is dropped.
local function meter(key, day, month)
    local fields, held, running = all(key), 0, 0
    for name, value in pairs(fields) do
        local kind, node = string.sub(name, 1, 2), string.sub(name, 3)
        if kind == 'h:' or kind == 'c:' then
            if not alive[node] then
                redis.call('HDEL', key, name)
            elseif kind == 'h:' then
                held = held + number(value)
            else
                running = running + number(value)
            end
        end
    end
    local rb, rc, rp = rolled(fields, 'rb', 'rc', 'rp')
    local tb, tc, tp = rolled(fields, 'tb', 'tc', 'tp')
    return {
        period(fields, 'd:', day), period(fields, 'm:', month), number(fields['t']),
        number(fields['p']), held, running, rb, rc, rp, tb, tc, tp
    }
end
