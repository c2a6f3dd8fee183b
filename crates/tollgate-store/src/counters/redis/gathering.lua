-- After a loss of data all nodes meet here: each goes on with its share until the others have arrived, then stops and reports
-- what it has spent, and none uses the restored meters before all have reported. KEYS: nodes, generation, gathering.
-- ARGV: node, generation, 'arrived' or 'reported', the number of nodes it knew before.
-- Returns: 'lost' not a registered node of this generation; 'none' no gathering; 'wait'; 'report' all have arrived; 'open' all
-- have reported.
local REPORT_MS, OVER_MS = 10000, 60000
if redis.call('GET', KEYS[2]) ~= ARGV[2] or not alive[ARGV[1]] then return 'lost' end
local reports = ARGV[3] == 'reported'
local gathering, now_ms = read_hash(KEYS[3]), now / 1000
local is_over = now_ms > number(gathering['latest']) + OVER_MS
if gathering['generation'] ~= ARGV[2] or is_over then return 'none' end

local expected = math.max(number(gathering['expected']), number(ARGV[4]))
gathering['n:' .. ARGV[1]] = reports and '2' or '1'
redis.call('HSET', KEYS[3], 'n:' .. ARGV[1], reports and '2' or '1', 'expected', text(expected))
local arrived, reported = 0, 0
for name, phase in pairs(gathering) do
    if string.sub(name, 1, 2) == 'n:' and alive[string.sub(name, 3)] then
        arrived = arrived + 1
        if phase == '2' then reported = reported + 1 end
    end
end
local closed = number(gathering['closed'])
if closed == 0 then
    local all_here = arrived >= expected and now_ms >= number(gathering['earliest'])
    if not all_here and now_ms < number(gathering['latest']) then return 'wait' end
    closed = now_ms
    redis.call('HSET', KEYS[3], 'closed', text(closed))
end
if not reports then return 'report' end
if reported >= arrived or now_ms >= closed + REPORT_MS then return 'open' end
return 'wait'
