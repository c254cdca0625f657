-- dropintent: an owner waits no longer, so that its intents are over, that of a writer for readers and that of a LOCK for several names: others
-- are let in again, and told on the channel KEYS[1].
--   ARGV[5]  owner
--   {1}  done     {0}  others keep them out, or nobody does
local refusal = abstains()
local intents = redis.call('HMGET', KEYS[2], 'w', 'x')
local reader = intents[1] and string.match(intents[1], '^%d+ (.*)$') == ARGV[5]
local several = intents[2] and string.match(intents[2], '^%d+ %d+ (.*)$') == ARGV[5]
if not reader and not several then return refusal or {0} end
if reader then redis.call('HDEL', KEYS[2], 'w') end
if several then redis.call('HDEL', KEYS[2], 'x') end
redis.pcall('PUBLISH', KEYS[1], '1 yield')
return refusal or {1}
