-- settle: store the fence of a grant that nodes numbered differently.
--   ARGV[5..7]  owner, fence, hold
--   {1}  the hold is here, and no later grant gets this fence
--   {0}  the hold is missing here, or the owner has another seat here than the hold names; nothing was written
-- If this node has given the grant a larger fence, that one is replaced on two conditions: it was given to the LOCK of this
-- hold, and this node had not seen, and cannot have forgotten, another fence of the name above that of the grant. If the
-- name's largest fence is still the larger one, it is replaced too. Repeating it changes nothing.
local refusal = abstains()
if refusal then return refusal end
local h, fence, hold = holder(7, 7), tonumber(ARGV[6]), ARGV[7]
if not h or h.owner ~= ARGV[5] or h.present == 0 then return {0} end
if KEYS[4] and seat_of(h.grant) ~= seat_of(hold) then return {0} end
if fence <= tonumber(copied_floor or '0') then return {0} end -- this node may have forgotten that the grant was given back
local c, seen = fences()
local late = h.grant == hold and h.before and fence >= math.max(h.before, floor)
if fence >= c or late then
  if fence < c and seen == h.fence then redis.call('HSET', KEYS[2], 'c', int(fence)) end
  redis.call('HSET', KEYS[1], 'f', int(fence), 'a', hold, unpack(h.reinstated and {'p', '0'} or {}))
end
raise(h.rest, fence, seen)
if KEYS[4] then
  writer(h.owner) -- for the mark that it leaves on the owner's own record
  raise_name(h.rest, fence, tonumber(redis.call('HMGET', beside('fence:'), 'c')[1] or '0'))
end
return {1}
