-- state: whether this node votes and takes writes, and the largest fence that it ever stored.
--   ARGV[5]  all: try the commands of LOCK, RENEW and UNLOCK on a key that is gone afterwards; empty: try one write that
--         changes nothing. That one is neither replicated nor saved, but refused like any other (OOM, READONLY, MISCONF,
--         NOREPLICAS, NOPERM)
--   {1, largest fence, max-ttl, epoch, word, list, next word or empty, next list or empty, ms, gen or empty}  it votes; leases may run for
--       max-ttl; its set, and the next one; for how long it is in doubt about some name. With an error as the last element it
--       would vote, but refuses writes. Else its refusal, with that error as one more element in quarantine and without a floor: neither
--       ends while writes are refused
-- It also notes that no proxy is left that may count votes later than rounds. Each proxy calls it every second.
local scratch, why = KEYS[3] .. ':probe', nil
local function try(...)
  local said = redis.pcall(...)
  if type(said) == 'table' and said.err then why = why or said.err end
end
if not refusal or refusal[1] < -1 and refusal[1] > -4 then
  spoke(redis.pcall) -- a node that may not write replies as well
  try('SET', scratch, '', 'XX')
  if not bounded then
    local all, record, older = redis.call('HGETALL', KEYS[3]), {}, false
    for i = 1, #all, 2 do
      local ttl = string.match(all[i], '^m(%d+) [23] ')
      older = older or ttl and all[i + 1] + ttl + 1000 > now
      record[all[i]] = all[i + 1]
    end
    if not older and now - (record.since or 0) >= 2500 then
      bounded = true
      redis.pcall('HSET', KEYS[3], 'word', plain(record.word))
      if record.next then redis.pcall('HSET', KEYS[3], 'next', plain(record.next)) end
    end
  end
end
if refusal then
  refusal[#refusal + 1] = why
  return refusal
end
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
  try('PTTL', scratch)
  try('DEL', scratch)
end
if had_readers and ARGV[5] == 'all' then
  try('ZADD', scratch, 1, 'o')
  try('ZRANGEBYSCORE', scratch, 2, 3)
  try('ZREVRANGE', scratch, 0, 1, 'WITHSCORES')
  try('ZCOUNT', scratch, 2, 3)
  try('ZSCORE', scratch, 'o')
  try('ZREMRANGEBYSCORE', scratch, 2, 3)
  try('ZREM', scratch, 'o')
end
local set = redis.call('HMGET', KEYS[3], 'epoch', 'word', 'list', 'next', 'nextlist')
return {1, math.max(largest, floor), maxttl, tonumber(set[1]), plain(set[2]), set[3], plain(set[4]) or '', set[5] or '',
  math.max(doubt - now, 0), gen or '', why}
