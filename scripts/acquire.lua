-- acquire: may this owner have the name? A re-entry is the same question.
--   ARGV  owner, ttl in ms, proposed fence, info, lineage, number, the new hold
--   {1, fence, fence kept, ms left, holds, lineage, number}  granted. fence kept is 0 for a new grant; else the owner was
--       in, fence is only proposed and nothing carries it before a settle: fence kept is that of the grant the owner was
--       in, or -1 when this node was only told of it by a renewal and cannot vouch for it
--   {2, fence}  this request was granted before, with this fence, and given back; nothing was written
--   {0, owner, ms left, fence}  another owner's; nothing was written
-- Repeating it changes nothing but the end. The lease belongs to the owner: it ends ttl from now for all its holds,
-- or later if it did. The version afterwards is one that no renewal under way replaces: the one given, where that
-- follows the one here, else one that this node makes.
if refusal then return refusal end
local owner, ttl, proposal = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local lineage, number, hold = ARGV[9], ARGV[10], ARGV[11]
local over = tag(hold) and recall('L' .. tag(hold))
if over then return {2, tonumber(over)} end
local h = holder(11)
if h and h.owner ~= owner then return {0, h.owner, h.rest, h.fence} end

local c, seen, last = fences()
local fence = math.max(c + 1, math.min(math.max(proposal, us - skew), us + skew))
if h then
  if h.lineage ~= lineage or tonumber(number) <= h.number then
    lineage, number = hold .. '@' .. int(us), '0'
  end
  local rest = math.max(h.rest, ttl)
  if h.present == 0 then redis.call('HSET', KEYS[1], hold, now) end
  extend(now + rest, lineage, number)
  return {1, fence, h.told and -1 or h.fence, rest, holds(), lineage, tonumber(number)}
end

create(11, owner, now + ttl, fence, lineage, number, ARGV[8], '0')
if last == owner then redis.call('HSET', KEYS[2], 'n', '1') end
raise(fence, seen)
return {1, fence, 0, ttl, 1, lineage, tonumber(number)}
