-- take: show one job that is due, and hide it from the other workers for a while.
--   KEYS[1]  the queue, a sorted set     ARGV[1]  ms until it is shown again
--   the job, or nil if none is due
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local job = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 1)[1]
if job then redis.call('ZADD', KEYS[1], now + ARGV[1], job) end
return job
