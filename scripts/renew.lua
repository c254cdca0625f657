-- renew: let the lease of a grant end ttl from now, also earlier than it would have.
--   ARGV  owner, ttl in ms, fence of the grant, lineage, number, version it replaces (lineage:number, or empty),
--         1 to put back what is missing, then the owner's holds
--   {1} moved, or was by this very renewal     {2} put back and moved
--   {3, lineage, number}  not applied: the version here is another one     {4}  not applied: a hold is missing
--   {0, owner or empty, ms left, fence}  not applied: free, another owner's, or another grant
-- A renewal applies over a smaller number of its own lineage, or over exactly the version it replaces: one that comes
-- late cannot cut a lease that was made longer since. A hold is put back only where no fence above the grant's was
-- seen, so none comes back after its release. A node that may not vote does all of it and answers with its refusal.
if refusal and refusal[1] ~= -2 and refusal[1] ~= -3 then return refusal end
local owner, ttl, fence = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local lineage, number, base, repair = ARGV[8], ARGV[9], ARGV[10], ARGV[11] == '1'
local h = holder(12)
if h and (h.owner ~= owner or h.fence ~= fence) then return refusal or {0, h.owner, h.rest, h.fence} end

local c = fences()
if not h then
  if not repair or c > fence then return refusal or {0, '', 0, 0} end
  create(12, owner, now + ttl, fence, lineage, number, '')
  raise(fence, c)
  return refusal or {2}
end

if h.lineage == lineage then
  local stored = tonumber(h.number)
  if tonumber(number) == stored then return refusal or {1} end
  if tonumber(number) < stored then return refusal or {3, h.lineage, stored} end
elseif base ~= h.lineage .. ':' .. h.number then
  return refusal or {3, h.lineage, tonumber(h.number)}
end
local missing = h.present <= #ARGV - 12
if missing and not repair then return refusal or {4} end
extend(12, h, now + ttl, lineage, number)
raise(fence, c)
return refusal or {missing and 2 or 1}
