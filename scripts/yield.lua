-- yield: a writer that waited for readers waits no longer: readers are let in again, and told on the channel KEYS[1].
--   ARGV[5]  owner
--   {1}  done     {0}  another writer keeps them out, or nobody does
local intent = redis.call('HMGET', KEYS[2], 'w')[1]
if not intent or string.match(intent, '^%d+ (.*)$') ~= ARGV[5] then return refusal or {0} end
redis.call('HDEL', KEYS[2], 'w')
redis.pcall('PUBLISH', KEYS[1], '1 yield')
return refusal or {1}
