-- announce: keep a record of one proxy for a while, and return the records of all proxies. It is about no lock.
--   KEYS[1]  this proxy's record, a string: a prefix and the proxy's id    KEYS[2]  the ids, a hash: '' by id
--   ARGV[5]  the id   [6] the record; empty: remove it   [7] how long it stays, in ms
--   {1, id, record, id, record, ...}  done; all records that are kept, this proxy's too
-- Repeating it changes nothing but the time when the record expires.
if refusal then return refusal end
local id, record = ARGV[5], ARGV[6]
if record == '' then
  redis.call('DEL', KEYS[1])
  redis.call('HDEL', KEYS[2], id)
else
  redis.call('SET', KEYS[1], record, 'PX', ARGV[7])
  redis.call('HSET', KEYS[2], id, '')
  redis.call('PEXPIRE', KEYS[2], ARGV[7])
end
local prefix, reply = string.sub(KEYS[1], 1, -#id - 1), {1}
for _, other in ipairs(redis.call('HKEYS', KEYS[2])) do
  local kept = redis.call('GET', prefix .. other)
  if kept then
    reply[#reply + 1] = other
    reply[#reply + 1] = kept
  else
    redis.call('HDEL', KEYS[2], other)
  end
end
return reply
