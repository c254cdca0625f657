-- read: who has the name, and what was released last. It decides nothing.
--   ARGV[5]  TAG of an unlock, or empty
--   {1, owner or empty, ms left, fence, epoch, sequence, owner last released or empty, its fence, info,
--       granted ms ago, 1 if a renewal reinstated the grant here, 1 if the owner last released has had a grant since,
--       the memory of the unlock or empty: holds left, fence and hold, separated by spaces, how many owners read the name,
--       for how many ms longer one of them does, the grant,
--       hold, taken ms ago, ms left or 0, hold, taken ms ago, ms left or 0, ...}
--   {-5, ms left, gen, fence, holds}  it is in doubt about the name, and no grant of these holds has a larger fence; each is
--       followed by r or w and its owner
-- fence is the largest one of the name when it is free. It writes nothing, but removes a record that has lapsed.
local refusal = abstains()
if refusal and refusal[1] == -5 then return {-5, refusal[2], refusal[3], copied_floor, redis.call('HGETALL', beside('doubt:'))} end
if refusal then return refusal end
local h = holder(1, 0)
local c, _, owner, fence, since = fences('o', 'f', 'n')
owner, fence, since = owner or '', tonumber(fence or '0'), since == '1'
local before = (ARGV[5] or '') ~= '' and recall('U' .. ARGV[5]) or ''
local reads, e = reader('')
local readers, longest = 0, 0
if reads then readers, longest = redis.call('ZCOUNT', beside('lockr'), '(' .. now, '+inf'), e - now end
if not h then return {1, '', 0, c, '', 0, owner, fence, '', 0, 0, since and 1 or 0, before, readers, longest, ''} end
local text = redis.call('HMGET', KEYS[1], 'i', 'g')
local out = {1, h.owner, h.rest, h.fence, h.epoch, h.sequence, owner, fence, text[1], now - tonumber(text[2]), h.reinstated and 1 or 0,
  since and 1 or 0, before, readers, longest, h.grant}
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  if #all[i] > 1 then
    out[#out + 1] = all[i]
    out[#out + 1] = now - taken(all[i + 1])
    out[#out + 1] = math.max(math.min(ending(all[i + 1]), h.ends) - now, 0)
  end
end
return out
