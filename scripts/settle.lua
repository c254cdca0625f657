-- settle: store the fence of a grant that nodes numbered differently.
--   ARGV[5..7]  owner, fence, hold
--   {1}  the hold is here, and no later grant gets this fence     {0}  the hold is missing here; nothing was written
-- A larger fence gives way where it was given to this hold, and nothing else: neither had this node seen, or may it have
-- forgotten, one above that of the grant, nor is it that of another LOCK. So does the counter, if it is still that one.
-- Repeating it changes nothing.
if refusal then return refusal end
local h, fence, hold = holder(7, 7), tonumber(ARGV[6]), ARGV[7]
if not h or h.owner ~= ARGV[5] or h.present == 0 then return {0} end
local c, seen = fences()
local late = h.grant == hold and h.before and fence >= math.max(h.before, floor)
if fence >= c or late then
  if fence < c and seen == h.fence then redis.call('HSET', KEYS[2], 'c', int(fence)) end
  redis.call('HSET', KEYS[1], 'f', int(fence), 'a', hold, unpack(h.told and {'p', '0'} or {}))
end
raise(fence, seen)
return {1}
