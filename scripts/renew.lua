-- renew: let the lease of a grant end ttl from now, also earlier than it would have unless it only grows.
--   ARGV  owner, ttl in ms, fence of the grant, lineage, number, version it replaces (lineage:number, or empty),
--         1 to put back where the name is free, 1 to let it grow only: never end earlier, then the owner's holds
--   {1, noted} moved, or was by this very renewal; noted is 1 if some renewal may have shortened the lease, see note
--   {2} put back
--   {3, lineage, number}  not applied: the version here is another one     {4}  not applied: a hold is missing
--   {0, owner or empty, ms left, fence}  not applied: free, another owner's, or another grant
-- A renewal applies over a smaller number of its own lineage, or over exactly the version it replaces: one that comes
-- late cannot cut a lease that was made longer since. Holds are put back only where the name is free and no fence above
-- the grant's was seen, so none comes back after its release, and nothing was noted of the grant: a lease that was
-- shortened and lapsed stays lapsed. The record stays marked as told. A node that may not vote does all of it and answers with its refusal.
if refusal and refusal[1] ~= -2 and refusal[1] ~= -3 then return refusal end
local owner, ttl, fence = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local lineage, number, base, repair, grow = ARGV[8], ARGV[9], ARGV[10], ARGV[11] == '1', ARGV[12] == '1'
local h = holder(13)
if h and (h.owner ~= owner or h.fence ~= fence) then return refusal or {0, h.owner, h.rest, h.fence} end

local _, seen, _, _, _, _, last = fences()
local noted = last >= fence and 1 or 0
if not h then
  if not repair or (seen and seen > fence) or noted == 1 then return refusal or {0, '', 0, 0} end
  create(13, owner, now + ttl, fence, lineage, number, '', '1')
  raise(fence, seen)
  return refusal or {2}
end

if h.lineage == lineage and tonumber(number) == h.number then return refusal or {1, noted} end
local follows = h.lineage == lineage and tonumber(number) > h.number
if not follows and base ~= h.lineage .. ':' .. int(h.number) then return refusal or {3, h.lineage, h.number} end
if h.present <= #ARGV - 13 then return refusal or {4} end
if grow then ttl = math.max(ttl, h.rest) end
extend(now + ttl, lineage, number)
raise(fence, seen)
return refusal or {1, noted}
