-- read: who has the name, and what was released last? Decides nothing.
--   {1, owner or empty, ms left, fence, lineage, number, owner last released or empty, its fence, info,
--       granted ms ago, 1 if this node was only told of it by a renewal, 1 if the owner last released had a grant since,
--       hold, taken ms ago, hold, taken ms ago, ...}
-- fence is the largest of the name when it is free. Nothing is written but the removal of a lapsed lease.
if refusal then return refusal end
local h = holder(5)
local c, _, owner, fence, _, since = fences()
owner = owner or ''
if not h then return {1, '', 0, c, '', 0, owner, fence, '', 0, 0, since and 1 or 0} end
local all = redis.call('HGETALL', KEYS[1])
local out = {1, h.owner, h.rest, h.fence, h.lineage, h.number, owner, fence, '', 0, h.told and 1 or 0, since and 1 or 0}
for i = 1, #all, 2 do
  if all[i] == 'i' then
    out[9] = all[i + 1]
  elseif all[i] == 'g' then
    out[10] = now - tonumber(all[i + 1])
  elseif #all[i] > 1 then
    out[#out + 1] = all[i]
    out[#out + 1] = now - tonumber(all[i + 1])
  end
end
return out
