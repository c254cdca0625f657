-- read: who has the name, and what was released last? Decides nothing.
--   ARGV  TAG of an unlock, or empty
--   {1, owner or empty, ms left, fence, lineage, number, owner last released or empty, its fence, info,
--       granted ms ago, 1 if this node was only told of it by a renewal, 1 if the owner last released had a grant since,
--       what is remembered of the unlock or empty: holds left, fence and hold, with spaces between, the grant,
--       hold, taken ms ago, ms left or 0, hold, taken ms ago, ms left or 0, ...}
-- fence is the largest of the name when it is free. Nothing is written but the removal of what has lapsed.
if refusal then return refusal end
local h = holder(1, 0)
local c, _, owner, fence, _, since = fences()
owner = owner or ''
local before = (ARGV[5] or '') ~= '' and recall('U' .. ARGV[5]) or ''
if not h then return {1, '', 0, c, '', 0, owner, fence, '', 0, 0, since and 1 or 0, before, ''} end
local text = redis.call('HMGET', KEYS[1], 'i', 'g')
local out = {1, h.owner, h.rest, h.fence, h.lineage, h.number, owner, fence, text[1], now - tonumber(text[2]), h.told and 1 or 0,
  since and 1 or 0, before, h.grant}
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  if #all[i] > 1 then
    out[#out + 1] = all[i]
    out[#out + 1] = now - taken(all[i + 1])
    out[#out + 1] = math.max(math.min(ending(all[i + 1]), h.ends) - now, 0)
  end
end
return out
