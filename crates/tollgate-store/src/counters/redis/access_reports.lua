-- Shares which keys are revoked, which keys and members are blocked, and which no longer are.
-- KEYS: a sorted set of ids by the time of their last report, in milliseconds of Redis' clock; a hash of their states.
-- ARGV: the time from which to return reports, how long reports are kept, an id that was there ('' for none), then for each report
-- the id, the revision of the catalog that it is of, and its state (revoked, blocked or allowed).
-- A report of an older revision than a stored one is ignored, and a revoked key stays revoked.
-- Returns: the time, 1 if that id is still there, and of at most 1,000 reports since the given time id, revision and state.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function text(value) return string.format('%.0f', value) end
local is_kept = ARGV[3] == '' or redis.call('ZSCORE', KEYS[1], ARGV[3])
for at = 4, #ARGV, 3 do
  local id, revision, state = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local stored = redis.call('HGET', KEYS[2], id)
  local is_new = true
  if stored then
    local stored_revision, stored_state = string.match(stored, '^(%d+) (%a+)$')
    local is_newer = tonumber(revision) > tonumber(stored_revision)
    is_new = stored_state ~= 'revoked' and stored_state ~= state and (is_newer or state == 'revoked')
    if is_newer and stored_state == state and state ~= 'revoked' then redis.call('HSET', KEYS[2], id, revision .. ' ' .. state) end
  end
  if is_new then
    redis.call('HSET', KEYS[2], id, revision .. ' ' .. state)
    redis.call('ZADD', KEYS[1], text(now), id)
  end
end
local expired = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', text(now - tonumber(ARGV[2])), 'LIMIT', 0, 1000)
if #expired > 0 then
  redis.call('ZREM', KEYS[1], unpack(expired))
  redis.call('HDEL', KEYS[2], unpack(expired))
end
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[1], '+inf', 'LIMIT', 0, 1000)
local until_ms = text(now)
if #ids == 1000 then until_ms = redis.call('ZSCORE', KEYS[1], ids[1000]) end
local reply = {until_ms, is_kept and '1' or '0'}
for _, id in ipairs(ids) do
  local revision, state = string.match(redis.call('HGET', KEYS[2], id) or '', '^(%d+) (%a+)$')
  if state then
    reply[#reply + 1] = id
    reply[#reply + 1] = revision
    reply[#reply + 1] = state
  end
end
return reply
