-- restore: give a node its fence floor back after its quarantine; it votes afterwards.
--   ARGV[5]  the largest fence of a quorum of nodes with their memory, read after the quarantine; 0 without such a quorum:
--         then the floor is the clock + skew, and only when a minute, or max-ttl if that is shorter, has passed since the quarantine:
--         a quorum may come back that knows the fences
--   ARGV[6]  the name of the quarantine that had ended when they were read
--   ARGV[7]  the largest max-ttl that they know of, or without a quorum any node that replies
--   {1, largest fence, max-ttl}  the node votes     else its refusal, also if its last quarantine is another one
-- A node that knew too small a max-ttl when it lost its memory stays in quarantine for longer: a quorum knows how long the
-- leases may be that it may have lost. Repeating it changes nothing.
if not refusal then return {1, largest, maxttl} end
if refusal[1] ~= -3 or refusal[3] ~= ARGV[6] then return refusal end
local at, heard = tonumber(ARGV[5]), tonumber(ARGV[7])
local since = tonumber(redis.call('HMGET', KEYS[3], 'since')[1] or '0')
if heard > maxttl then
  redis.call('HSET', KEYS[3], 'ttl', heard, 'm' .. int(heard) .. ' others', since)
  maxttl = heard
end
if now < since + maxttl then
  redis.call('HSET', KEYS[3], 'until', since + maxttl)
  return {-2, since + maxttl - now, maxttl, '', -1}
end
if at == 0 then
  local patience = math.min(maxttl, 60000)
  if refusal[2] < patience or now < since + maxttl + patience then return refusal end
  at = us + skew
end
at = math.max(at, largest)
redis.call('HSET', KEYS[3], 'floor', int(at), 'g', int(at), 'sync', '1', 'copied', '0')
return {1, at, maxttl}
