-- Begins a generation of data, and the gathering of its nodes. KEYS: nodes, generation, gathering.
-- ARGV: generation, the least and the longest time in milliseconds to wait for nodes.
if redis.call('GET', KEYS[2]) then return 0 end
redis.call('DEL', KEYS[3])
redis.call('HSET', KEYS[3], 'generation', ARGV[1], 'earliest', text(now / 1000 + ARGV[2]), 'latest', text(now / 1000 + ARGV[3]))
redis.call('SET', KEYS[2], ARGV[1])
return 1
