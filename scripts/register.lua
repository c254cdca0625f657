-- register: write the node record of a node that has none.
--   ARGV[5..12]  new, forgot or force; for new: now in ms and master_replid, as the node gave them when no node had a
--         record; the set that the node is in: epoch, word, list, next word and next list
--   {1, largest fence, max-ttl}  the node votes     {0}  new, but too late: ask all nodes again     else its refusal
-- new     the node never took part. It votes at once, with its floor at the clock. Allowed within a second of the reply
--         that it has no record, so that a late call does not enlist a node that took part meanwhile and lost its memory.
-- forgot  the node took part and lost its memory: quarantine. Likewise, and with its fences kept, a node whose record has an
--         older format: it votes when all leases have ended whose records only older versions can read.
-- force   an operator declares the node new, also during a quarantine. Only this changes an existing record.
local how = ARGV[5]
if word and (how ~= 'force' or not refusal or refusal[1] == -4) then return refusal or {1, largest, maxttl} end
local function write(...)
  redis.call('HSET', KEYS[3], 'id', replid, 'ttl', maxttl, 'max', '0', 'epoch', ARGV[8], 'word', stored(ARGV[9]), 'list', ARGV[10],
    'about', 'The record of this lock node. Where it is missing, the node has forgotten its locks.', ...)
  if ARGV[11] ~= '' then
    redis.call('HSET', KEYS[3], 'next', stored(ARGV[11]), 'nextlist', ARGV[12])
  else
    redis.call('HDEL', KEYS[3], 'next', 'nextlist')
  end
end
if kept_id and how ~= 'force' then
  local before = tonumber(redis.call('HMGET', KEYS[3], 'max')[1] or '0')
  maxttl = math.max(maxttl, before)
  write('since', now, 'until', now + maxttl, 'sync', kept_id == replid and kept_sync or '0', 'm' .. int(maxttl) .. ' older', now)
  return {-2, maxttl, maxttl, '', -1}
end
if how == 'new' then
  local age = now - tonumber(ARGV[6])
  if age < 0 or age > 1000 or replid ~= ARGV[7] then return {0} end
end
if how == 'forgot' and not (lenient(ARGV[4]) and lenient(ARGV[9]) and (ARGV[11] == '' or lenient(ARGV[11]))) then
  write('since', now, 'until', now + maxttl, 'sync', '0', 'g', '0', 'floor', '0', 'gen', named_loss())
  return {-2, maxttl, maxttl, '', -1}
end
local at = how == 'forgot' and us + skew or us
write('since', '0', 'until', '0', 'sync', '1', 'g', int(at), 'floor', int(at), 'copied', '0', 'doubt', '0')
return {1, at, maxttl}
