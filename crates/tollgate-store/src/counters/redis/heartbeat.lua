-- Registers a node or extends its registration. KEYS: nodes, generation, the process's last message number. ARGV: node, time to
-- live in milliseconds, 'new' or 'keep', the beginning of the names of the registrations that a new one replaces, the generation it
-- counted in, the last message of the process that was answered there.
-- If Redis has that generation and has forgotten an answered message, it has returned with older data, which counts as none.
-- Returns: 1 registered or 0 expired; the number of nodes; the generation ('' if there is no data).
local is_new, own = ARGV[3] == 'new', ARGV[4]
if is_new then
    for _, name in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
        if name ~= ARGV[1] and string.sub(name, 1, #own) == own then redis.call('ZREM', KEYS[1], name) end
    end
    local is_known = redis.call('GET', KEYS[2]) == ARGV[5]
    if is_known and number(redis.call('GET', KEYS[3])) < number(ARGV[6]) then redis.call('DEL', KEYS[2]) end
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now / 1000))
local registered = is_new or redis.call('ZSCORE', KEYS[1], ARGV[1])
if registered then redis.call('ZADD', KEYS[1], text(now / 1000 + number(ARGV[2])), ARGV[1]) end
return {registered and 1 or 0, redis.call('ZCARD', KEYS[1]), redis.call('GET', KEYS[2]) or ''}
