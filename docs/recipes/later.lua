-- later: put a job off.
--   KEYS[1]  the queue     ARGV  the job, in how many ms it is due, "NX" if it is new,
--                                "XX" if it may have been finished meanwhile
local t = redis.call('TIME')
local due = t[1] * 1000 + math.floor(t[2] / 1000) + ARGV[2]
return redis.call('ZADD', KEYS[1], ARGV[3], due, ARGV[1])
