-- copy: lets a node that has forgotten vote again, by what a quorum of the others hold (see held). It does not get their locks:
-- as a record that votes, a copy would bring back locks that were given back. It is only in doubt about the names that were held, and
-- has no vote about them, until the holds that were copied are given back here, or end.
--   ARGV[5..7]  what, the gen of this node, the id of the copy
--         begin    no other copy is under way, or the other one has done nothing for 5 s. What the others hold is read after this
--         purge    [8] cursor of SCAN [9] pattern of the keys: removes locks that are here, which are of the time before, as
--                  an older snapshot has them
--         install  [8] the number of this part, from 1 on [9] the longest max-ttl of those that were read [10] how many values of
--                  requests follow: L or U and the TAG, value, ms left of each; then for each name: it and its database, an owner,
--                  ms left, how many holds follow, and these
--         commit   [8] how many parts there were [9] as above [10] the largest fence of those that were read
--   {1, largest fence, max-ttl}  the node votes     {1, next cursor}  of purge     {1}  done     {0, ms}  another copy is under way, for
--       so many ms at least, or begin is not needed, as the node votes     else its refusal, also if it has another gen
-- Repeating any of these changes nothing. A copy that stopped is begun anew by any proxy.
if not refusal and gen == ARGV[6] and ARGV[5] ~= 'begin' then return {1, math.max(largest, floor), maxttl} end
if not refusal then return {0, 0} end
if refusal[1] ~= -2 or refusal[4] ~= ARGV[6] or refusal[5] ~= 0 then return refusal end
local what, id = ARGV[5], ARGV[7]
local record = redis.call('HMGET', KEYS[3], 'copy', 'heard', 'purged', 'parts')
local idle = now - tonumber(record[2] or '0')
if what == 'begin' then
  if record[1] and record[1] ~= id and idle >= 0 and idle < 5000 then return {0, 5000 - idle} end
  redis.call('HSET', KEYS[3], 'copy', id, 'heard', now, 'purged', '0', 'parts', '0')
  return {1}
end
if record[1] ~= id then return {0, 0} end

local prefix = string.sub(KEYS[3], 1, -5)
if what == 'purge' then
  local page = redis.call('SCAN', ARGV[8], 'MATCH', ARGV[9], 'COUNT', '500')
  for _, key in ipairs(page[2]) do
    local kind = string.match(string.sub(key, #prefix + 1), '^%a+')
    if kind == 'lock' or kind == 'lockr' or kind == 'locks' or kind == 'read' or kind == 'doubt' then redis.call('DEL', key) end
  end
  redis.call('HSET', KEYS[3], 'heard', now, 'purged', page[1] == '0' and '1' or record[3])
  return {1, page[1]}
end

local part, parts = tonumber(ARGV[8]), tonumber(record[4])
if record[3] ~= '1' then return {0, 0} end
local longest = tonumber(ARGV[9])
if longest > maxttl then -- a lease that is copied may last longer than those of the proxies that this node has heard of since
  redis.call('HSET', KEYS[3], 'ttl', longest, 'm' .. int(longest) .. ' others', now)
  maxttl = longest
end
if what == 'install' then
  if part ~= parts and part ~= parts + 1 then return {0, 0} end
  local at = 11
  for _ = 1, tonumber(ARGV[10]) do
    redis.call('SET', KEYS[3] .. ':' .. ARGV[at], ARGV[at + 1], 'PX', ARGV[at + 2], 'NX')
    at = at + 3
  end
  while ARGV[at] do
    local key, e = prefix .. 'doubt:' .. ARGV[at], math.min(now + tonumber(ARGV[at + 2]) + 2, now + maxttl)
    local last = at + 3 + ARGV[at + 3]
    for i = at + 4, last do
      if not given_back(ARGV[i]) then redis.call('HSET', key, ARGV[i], ARGV[at + 1]) end
    end
    if redis.call('PTTL', key) < e - now then redis.call('PEXPIREAT', key, int(e)) end
    doubt, at = math.max(doubt, e), last + 1
  end
  redis.call('HSET', KEYS[3], 'heard', now, 'parts', part, 'doubt', int(doubt))
  return {1}
end
if part ~= parts then return {0, 0} end
local at = math.max(tonumber(ARGV[10]), largest, floor)
redis.call('HSET', KEYS[3], 'floor', int(at), 'g', int(at), 'copied', int(at), 'sync', '1', 'until', '0')
redis.call('HDEL', KEYS[3], 'copy', 'heard', 'purged', 'parts')
return {1, at, maxttl}
