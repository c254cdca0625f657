-- write: write a field on behalf of a writer, unless a later one has written, or somebody has read since.
--   KEYS[1]  what the lock protects, a hash     ARGV  the fence of the writer's lock, the field, the value
--   1 written, 0 the writer is stale
local w = tonumber(redis.call('HGET', KEYS[1], 'written') or '0')
local r = tonumber(redis.call('HGET', KEYS[1], 'read') or '0')
local fence = tonumber(ARGV[1])
if fence < w or fence <= r then return 0 end
redis.call('HSET', KEYS[1], 'written', ARGV[1], ARGV[2], ARGV[3])
return 1
