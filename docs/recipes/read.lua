-- read: read a field on behalf of a reader, and remember its fence.
--   KEYS[1]  what the lock protects, a hash     ARGV  the fence of the reader's lock, the field
--   {1, value}, {1} if there is no such field, {0} the reader is stale
local w = tonumber(redis.call('HGET', KEYS[1], 'written') or '0')
local r = tonumber(redis.call('HGET', KEYS[1], 'read') or '0')
local fence = tonumber(ARGV[1])
if fence < w then return {0} end
if fence > r then redis.call('HSET', KEYS[1], 'read', ARGV[1]) end
return {1, redis.call('HGET', KEYS[1], ARGV[2]) or nil}
