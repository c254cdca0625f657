-- finish: take a job off the queue and do what it is about, both or neither.
--   KEYS  the queue, the balance     ARGV  the job, what it adds to the balance
--   1 done, 0 it was done before
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('INCRBY', KEYS[2], ARGV[2])
return 1
