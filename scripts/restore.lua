-- restore: give a node whose quarantine is over its fence floor back; then it votes.
--   ARGV  the largest fence of a quorum of nodes that kept their memory, read after the quarantine; or 0 when there is
--         no such quorum: then the floor is the clock + skew, and only max-ttl after the quarantine
--   {1, largest fence}  the node votes     else its refusal
-- Repeating it changes nothing.
if not refusal then return {1, largest} end
if refusal[1] ~= -3 then return refusal end
local at = tonumber(ARGV[5])
if at == 0 then
  if refusal[2] < maxttl then return refusal end
  at = us + skew
end
at = math.max(at, largest)
redis.call('HSET', KEYS[3], 'floor', int(at), 'g', int(at), 'sync', '1')
return {1, at}
