-- settle: store the fence of a grant that nodes numbered differently.
--   ARGV[5..7]  owner, fence, hold
--   {1}  the hold is here, and no later grant gets this fence     {0}  the hold is missing here; nothing was written
-- Repeating it changes nothing.
if refusal then return refusal end
local h, fence = holder(7, 7), tonumber(ARGV[6])
if not h or h.owner ~= ARGV[5] or h.present == 0 then return {0} end
local c, seen = fences()
if fence >= c then redis.call('HSET', KEYS[1], 'f', int(fence), 'a', ARGV[7], 'p', '0') end
raise(fence, seen)
return {1}
