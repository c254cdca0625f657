-- change: an operator's decision about the set of lock nodes that this node is in.
--   ARGV[5..]  look
--         or   set, epoch, word, list, next word or empty, next list or empty. The largest epoch wins; proxies with
--              either list get votes
--         or   floor, a fence: this node issues no smaller fence from now on
--   {1, largest fence, max-ttl, votes, ms since the last change, now, then all fields of the node record and their values}
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
local changed = now - tonumber(redis.call('HMGET', KEYS[3], 'changed')[1] or '0')
local votes = (not refusal or refusal[1] == -4 and rec[1] == replid and rec[3] == '1' and now >= tonumber(rec[2])) and 1 or 0
local all = redis.call('HGETALL', KEYS[3])
for i = 1, #all, 2 do
  if all[i] == 'word' or all[i] == 'next' then all[i + 1] = plain(all[i + 1]) end
end
return {1, math.max(largest, floor), maxttl, votes, changed, now, unpack(all)}
