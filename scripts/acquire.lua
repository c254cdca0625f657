-- acquire: may this owner have the name? A re-entry is the same question.
--   ARGV  owner, ttl in ms, proposed fence, info, plain or fresh or alone, the new hold, fence and grant the owner is known
--         to have (0 and empty: none), then other holds of that grant and the ms they have left, in pairs
--   {1, fence, fence kept, ms left of the new hold, holds, lineage, number, grant}  granted. fence kept is 0 for a new grant; else
--       the owner was in, fence is only proposed and nothing carries it before a settle: fence kept is that of the grant
--       the owner was in, or -1 when this node was only told of it by a renewal and cannot vouch for it
--   {2, fence}  this request was granted before, with this fence, and given back, or fence is 0 and this very hold was;
--       nothing was written
--   {3, holds}  the owner has as many holds as it may; nothing was written
--   {0, owner, ms left, fence}  another owner's; nothing was written
-- Repeating it changes nothing. A hold ends ttl from now and prolongs no other; the version of
-- the lease stays. Holds of the grant that are known and not here are added, see add in the prologue.
-- fresh   the owner's holds are dropped where the fence is not above the known one, which a quorum has noted, and the grant is
--         a new one: their requests are over. A message that comes late finds a larger fence, and is refused
-- alone   refused also where this owner has the name, but for holds of the same request
if refusal then return refusal end
local owner, ttl, proposal, how = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[9]
local hold, known = ARGV[10], tonumber(ARGV[11])
local request = tag(hold)
local over = request and recall('L' .. request)
if over then return {2, tonumber(over)} end
if recall('H' .. hold) then return {2, 0} end
local h = holder(10, 10)
if h and h.owner ~= owner then return {0, h.owner, h.rest, h.fence} end

if h and h.present == 0 and how ~= 'plain' then
  local same = false
  for _, id in ipairs(request and redis.call('HKEYS', KEYS[1]) or {}) do same = same or tag(id) == request end
  if not same and (how == 'alone' or h.fence > known) then return {0, h.owner, h.rest, h.fence} end
  if not same then
    for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do
      if tag(id) then remember('L' .. tag(id), int(h.fence)) end
    end
    redis.call('DEL', KEYS[1])
    h = nil
  end
end

local c, seen, last = fences()
local fence = math.max(c + 1, math.min(math.max(proposal, us - skew), us + skew))
if h then
  local ends = h.ends
  if h.present == 0 then
    if redis.call('HLEN', KEYS[1]) - base >= most then
      local n = #live(ends, true)
      if n >= most then return {3, n} end
    end
    if h.fence == known and h.grant == ARGV[12] then add(h, 13) end
    ends = math.max(ends, now + ttl)
    redis.call('HSET', KEYS[1], hold, (now + ttl) .. ' ' .. now)
    if ends > h.ends then extend(ends) end
  else -- a RENEW has added it, maybe for less
    ttl = math.min(ttl, ending(h.values[10]) - taken(h.values[10]))
  end
  return {1, fence, h.told and -1 or h.fence, ttl, holds(ends), h.lineage, h.number, h.grant}
end

create({hold}, hold, owner, now + ttl, fence, hold, '0', ARGV[8], '0')
if last == owner then redis.call('HSET', KEYS[2], 'n', '1') end
raise(fence, seen)
return {1, fence, 0, ttl, 1, hold, 0, hold}
