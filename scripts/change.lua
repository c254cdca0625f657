-- change: an operator's decision about the set of lock nodes that this node is in.
--   ARGV[5..]  look
--         or   set, epoch, word, list, next word or empty, next list or empty. The largest epoch wins; proxies with
--              either list get votes
--         or   floor, a fence: this node issues no smaller fence from now on
--         or   leases, cursor of SCAN, pattern of the keys, epoch: for how long leases run here that may be from before the last change,
--              which has this epoch
--         or   over, epoch, ms, key: leases from before the last change, which had this epoch, are over then, that of this key last. The
--              earliest time counts
--   {1, largest fence, max-ttl, votes, ms since the last change, now, then all fields of the node record and their values}
--   {1, next cursor, ms, key}  of leases: the key on this page of a lock, a reading or a doubt that lasts longest, without the prefix
--   {0, epoch}  the node has a larger epoch, or another set with this one     {-1, ...}  there is no node record
-- Repeating it changes nothing. It works on nodes that do not vote, and does not count as use of a list by a proxy.
if not word then return refusal end
local how, following = ARGV[5], following()
if how == 'set' then
  local epoch = tonumber(redis.call('HMGET', KEYS[3], 'epoch')[1])
  local to = tonumber(ARGV[6])
  if to < epoch or to == epoch and not (same(ARGV[7], word) and (same(ARGV[9], following) or ARGV[9] == '' and not following)) then
    return {0, epoch}
  end
  if to > epoch then
    redis.call('HSET', KEYS[3], 'epoch', to, 'word', stored(ARGV[7]), 'list', ARGV[8], 'changed', now)
    if ARGV[9] == '' then
      redis.call('HDEL', KEYS[3], 'next', 'nextlist')
    else
      redis.call('HSET', KEYS[3], 'next', stored(ARGV[9]), 'nextlist', ARGV[10])
    end
  end
elseif how == 'floor' then
  local at = tonumber(ARGV[6])
  if at > floor then redis.call('HSET', KEYS[3], 'floor', int(at)) end
  if at > largest then redis.call('HSET', KEYS[3], 'g', int(at)) end
end
local votes = (not refusal or refusal[1] == -4 and kept_id == replid and kept_sync == '1' and now >= tonumber(kept_until)) and 1 or 0
if how == 'leases' then
  if votes == 0 then return refusal end
  local prefix = string.sub(KEYS[3], 1, -5)
  local epoch, changed = unpack(redis.call('HMGET', KEYS[3], 'epoch', 'changed'))
  if epoch ~= ARGV[8] then return {0, tonumber(epoch)} end
  changed = tonumber(changed or '0')
  local page, longest, which = redis.call('SCAN', ARGV[6], 'MATCH', ARGV[7], 'COUNT', '500'), 0, ''
  for _, key in ipairs(page[2]) do
    local tail = string.sub(key, #prefix + 1)
    local kind = string.match(tail, '^%a+')
    local ms = (kind == 'lock' or kind == 'read' or kind == 'doubt') and redis.call('PTTL', key) or 0
    if ms > longest and kind ~= 'doubt' and tonumber(redis.call('HMGET', key, 'g')[1] or '0') > changed then ms = 0 end
    if ms > longest then longest, which = ms, tail end
  end
  return {1, page[1], int(longest), which}
elseif how == 'over' then
  local epoch, kept = unpack(redis.call('HMGET', KEYS[3], 'epoch', 'over'))
  if epoch ~= ARGV[6] then return {0, tonumber(epoch)} end
  local of, at, last = string.match(kept or '', '^(%d+) (%d+) %d+ (.*)$')
  if of ~= epoch or tonumber(at) > now + ARGV[7] then at, last = int(now + ARGV[7]), ARGV[8] end
  redis.call('HSET', KEYS[3], 'over', epoch .. ' ' .. at .. ' ' .. int(now) .. ' ' .. last)
end
local changed = now - tonumber(redis.call('HMGET', KEYS[3], 'changed')[1] or '0')
local all = redis.call('HGETALL', KEYS[3])
for i = 1, #all, 2 do
  if all[i] == 'word' or all[i] == 'next' then all[i + 1] = plain(all[i + 1]) end
end
return {1, math.max(largest, floor), maxttl, votes, changed, now, unpack(all)}
