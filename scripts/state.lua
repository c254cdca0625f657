-- state: whether this node votes and takes writes, and the largest fence that it ever stored.
--   ARGV[5]  all: try the commands of LOCK, RENEW and UNLOCK on a key that is gone afterwards; empty: try one write that
--         changes nothing. That one is neither replicated nor saved, but refused like any other (OOM, READONLY, MISCONF,
--         NOREPLICAS, NOPERM)
--   {1, largest fence, max-ttl, epoch, word, list, next word or empty, next list or empty}  it votes; leases may run for
--       max-ttl; its set, and the next one. With an error as the last element it would vote, but refuses writes. Else its
--       refusal
if not refusal or refusal[1] < -1 and refusal[1] > -4 then
  spoke(redis.pcall) -- a node that may not write replies as well
end
if refusal then return refusal end
local scratch, why = KEYS[3] .. ':probe', nil
local function try(...)
  local said = redis.pcall(...)
  if type(said) == 'table' and said.err then why = why or said.err end
end
try('SET', scratch, '', 'XX')
if ARGV[5] == 'all' then
  try('DEL', scratch) -- left behind only by a call that was not allowed to remove it
  try('HSET', scratch, 'f', 'v')
  try('PEXPIREAT', scratch, now + 60000)
  try('HLEN', scratch)
  try('HKEYS', scratch)
  try('HGETALL', scratch)
  try('HDEL', scratch, 'f')
  try('SET', scratch, '', 'PX', 60000)
  try('GET', scratch)
  try('PEXPIRE', scratch, 60000)
  try('DEL', scratch)
end
if rec[9] and ARGV[5] == 'all' then
  try('ZADD', scratch, 1, 'o')
  try('ZRANGEBYSCORE', scratch, 2, 3)
  try('ZREVRANGE', scratch, 0, 1, 'WITHSCORES')
  try('ZCOUNT', scratch, 2, 3)
  try('ZSCORE', scratch, 'o')
  try('ZREMRANGEBYSCORE', scratch, 2, 3)
  try('ZREM', scratch, 'o')
end
local set = redis.call('HMGET', KEYS[3], 'epoch', 'word', 'list', 'next', 'nextlist')
return {1, math.max(largest, floor), maxttl, tonumber(set[1]), plain(set[2]), set[3], plain(set[4]) or '', set[5] or '', why}
