-- fenced: write a value unless a later holder has written.
--   KEYS[1]  the data, a hash     ARGV  the value, the fence of the writer's lock
--   1 written, 0 the writer is stale
local last = tonumber(redis.call('HGET', KEYS[1], 'fence') or '0')
if last > tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], 'value', ARGV[1], 'fence', ARGV[2])
return 1
