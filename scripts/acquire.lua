-- acquire: grant the owner a hold of the name, unless another owner has it. A re-entry asks in the same way.
--   ARGV[5..12]  owner, ttl in ms, proposed fence, info, mode, id of the new hold, then the fence and the grant that the
--         proxy knows the owner to have (0 and empty: none); to replace, the fence and the owner of what is replaced
--   ARGV[13..]   pairs: another hold of that grant, and the ms it has left
--   {1, fence, kept fence, ms left of the new hold, holds, lineage, number, grant}  granted. kept fence is 0 for a new
--       grant. On a re-entry fence is only a proposal, and no grant has it before a settle; kept fence is that of the
--       owner's grant, or -1 if a renewal reinstated the grant here, so that this node cannot vouch for it
--   {2, fence}  this request was granted before, with this fence, and given back; fence 0: this very hold was
--   {3, holds}  the owner has as many holds as it may have
--   {0, owner, ms left, fence}  another owner has the name; to replace also: the grant that is to be replaced is not here,
--       and owner is empty if the name is free
-- Without a grant nothing is written, except that what has ended is removed. Repeating the call changes nothing. The new hold
-- ends ttl from now and prolongs no other hold; the version of the lease stays. Known holds of the grant that are missing
-- here are added: see add in the prologue.
-- The modes:
--   plain  as above
--   fresh  if the owner's fence here is not above the known one, which a quorum has noted, its holds are dropped, their
--          requests are over, and the grant is a new one. A late message finds a larger fence, and is refused
--   alone  refused also if this owner has the name, except for holds of the same request
--   replace  granted only if exactly the grant named in ARGV[11..12], which a quorum has noted, is here, or holds of the
--          same request. Its holds are dropped and remembered as given back, and it is noted here too. Where the name is
--          free nothing is granted: else a grant that was given back, or was replaced already, could be replaced once more
if refusal then return refusal end
local owner, ttl, proposal, how = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[9]
local hold, known = ARGV[10], tonumber(ARGV[11])
local request = tag(hold)
local over = request and recall('L' .. request)
if over then return {2, tonumber(over)} end
if recall('H' .. hold) then return {2, 0} end
local h = holder(10, 10)
local replaces = how == 'replace'
if h and h.owner ~= owner and not replaces then return {0, h.owner, h.rest, h.fence} end

if h and h.present == 0 and how ~= 'plain' then
  local same = false
  for _, id in ipairs(request and h.owner == owner and redis.call('HKEYS', KEYS[1]) or {}) do same = same or tag(id) == request end
  local other = h.fence > known
  if replaces then other = h.fence ~= known or h.owner ~= ARGV[12] end
  if not same and (how == 'alone' or other) then return {0, h.owner, h.rest, h.fence} end
  if not same then
    for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do
      if replaces and #id > 1 then
        remember('H' .. id, hold)
      elseif tag(id) then
        remember('L' .. tag(id), int(h.fence))
      end
    end
    if replaces then
      local _, _, noted = fences('m')
      if known > tonumber(noted or '0') then redis.call('HSET', KEYS[2], 'm', ARGV[11]) end
      alert(h.owner)
    end
    redis.call('DEL', KEYS[1])
    h = nil
  end
elseif not h and replaces then
  return {0, '', 0, (fences())}
end

local c, seen, last = fences('o')
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
    redis.call('HSET', KEYS[1], hold, (now + ttl) .. ' ' .. now, 'p', entered(h))
    if ends > h.ends then extend(ends) end
  else -- a RENEW has added it, maybe with less time
    ttl = math.min(ttl, ending(h.values[10]) - taken(h.values[10]))
  end
  return {1, fence, h.told and -1 or h.fence, ttl, holds(ends), h.lineage, h.number, h.grant}
end

create({hold}, hold, owner, now + ttl, fence, hold, '0', ARGV[8], '0 ' .. int(math.max(seen or 0, floor)))
if last == owner then raise(fence, seen, 'n', '1') else raise(fence, seen) end
return {1, fence, 0, ttl, 1, hold, 0, hold}
