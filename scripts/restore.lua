-- restore: give a node whose quarantine is over its fence floor back; then it votes.
--   ARGV  the largest fence of a quorum of nodes that kept their memory, read after the quarantine; or 0 when there is
--         no such quorum: then the floor is the clock + skew, and only as long again after the quarantine
--         the name of the quarantine that was seen to be over before they were read
--         the largest max-ttl that they know of, or without a quorum any node that answers
--   {1, largest fence, max-ttl}  the node votes     else its refusal, also where the last quarantine is another one
-- A node that was told of too small a max-ttl when it forgot goes on sitting out: the leases that it may have forgotten
-- are known to a quorum, with how long they may be.
-- Repeating it changes nothing.
if not refusal then return {1, largest, maxttl} end
if refusal[1] ~= -3 or refusal[3] ~= ARGV[6] then return refusal end
local at, heard = tonumber(ARGV[5]), tonumber(ARGV[7])
if heard > maxttl then
  redis.call('HSET', KEYS[3], 'ttl', heard, 'm' .. int(heard) .. ' others', since)
  maxttl = heard
end
if now < since + maxttl then
  redis.call('HSET', KEYS[3], 'until', since + maxttl)
  return {-2, since + maxttl - now, maxttl}
end
if at == 0 then
  if refusal[2] < maxttl or now < since + 2 * maxttl then return refusal end
  at = us + skew
end
at = math.max(at, largest)
redis.call('HSET', KEYS[3], 'floor', int(at), 'g', int(at), 'sync', '1')
return {1, at, maxttl}
