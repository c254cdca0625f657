-- acquire: may this owner have the name? A re-entry is the same question.
--   ARGV  owner, ttl in ms, proposed fence, info, lineage, number, the new hold, then the owner's other holds known
--   {1, fence, fence kept or 0, ms left, holds, lineage, number}  granted; fence kept is that of the grant the owner
--       was in already, and then fence is only proposed: nothing carries it before a settle
--   {0, owner, ms left, fence}  another owner's; nothing was written
-- Repeating it changes nothing but the end. The lease belongs to the owner: it ends ttl from now for all its holds,
-- or later if it did. The version is set so that renewals sent before this acquisition no longer apply.
if refusal then return refusal end
local owner, ttl, proposal = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local lineage, number = ARGV[9], ARGV[10]
local h = holder(11)
if h and h.owner ~= owner then return {0, h.owner, h.rest, h.fence} end

local c, last = fences()
local fence = math.max(c + 1, math.min(math.max(proposal, us - skew), us + skew))
if h then
  if h.lineage == lineage then number = int(math.max(tonumber(h.number), tonumber(number))) end
  local rest = math.max(h.rest, ttl)
  extend(11, h, now + rest, lineage, number)
  return {1, fence, h.fence, rest, holds(), lineage, tonumber(number)}
end

create(11, owner, now + ttl, fence, lineage, number, ARGV[8])
if last == owner then redis.call('HDEL', KEYS[2], 'o', 'a', 'f') end
raise(fence, c)
return {1, fence, 0, ttl, #ARGV - 10, lineage, tonumber(number)}
