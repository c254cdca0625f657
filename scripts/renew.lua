-- renew: let holds of a grant end ttl from now, also earlier than they would have unless they only grow.
--   ARGV  owner, ttl in ms, fence and grant, lineage, number, version it replaces (lineage:number, or empty), 1 to put back
--         where the name is free, 1 to let them grow only: never end earlier, and the other holds are left alone; then the holds
--   {1, noted, told, given back}  moved, or was by this very renewal; noted is 1 if some renewal may have shortened the lease,
--       see note; told is 1 if a renewal put the grant back here, now or before; so many of the holds were given back here
--   {3, lineage, number}  not applied: the version here is another one     {4}  not applied: all the holds were given back
--   {0, owner or empty, ms left, fence}  not applied: free, another owner's, or another grant
-- A renewal applies over a smaller number of its own lineage, or over exactly the version it replaces: one that comes
-- late cannot cut a lease that was made longer since. Of the owner's other holds, those that would end earlier end with
-- these, unless they only grow. Where the grant is, a hold that is not is added, unless it was given back here. Where the
-- name is free the grant is put back only if no fence above it was seen, so that none comes back after its release, and
-- nothing was noted of it: a lease that was shortened and lapsed stays lapsed. The record stays marked as told. A node that
-- may not vote does all of it and answers with its refusal.
if refusal and refusal[1] ~= -2 and refusal[1] ~= -3 then return refusal end
local owner, ttl, fence, grant = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local lineage, number, base_version, repair, grow = ARGV[9], ARGV[10], ARGV[11], ARGV[12] == '1', ARGV[13] == '1'
local h = holder(14, #ARGV)
if h and (h.owner ~= owner or h.fence ~= fence or h.grant ~= grant) then return refusal or {0, h.owner, h.rest, h.fence} end

local _, seen, _, _, _, _, last = fences()
local noted = last >= fence and 1 or 0
local named, value, given = {}, {}, 0
for i = 14, #ARGV do
  local id = ARGV[i]
  local there = h and h.values[i]
  if there or not given_back(id) then
    named[#named + 1] = id
    value[id] = there or '0 ' .. now
  else
    given = given + 1
  end
end
if not h then
  if not repair or #named == 0 or (seen and seen > fence) or noted == 1 then return refusal or {0, '', 0, 0} end
  create(named, grant, owner, now + ttl, fence, lineage, number, '', '1')
  raise(fence, seen)
  return refusal or {1, 0, 1, given}
end

local told = h.told and 1 or 0
if h.lineage == lineage and tonumber(number) == h.number then return refusal or {1, noted, told, given} end
local follows = h.lineage == lineage and tonumber(number) > h.number
if not follows and base_version ~= h.lineage .. ':' .. int(h.number) then return refusal or {3, h.lineage, h.number} end
if #named == 0 then return refusal or {4} end
local ends, cut, fields = now + ttl, false, {'l', lineage, 's', number}
for _, id in ipairs(named) do
  local at = now + ttl
  if grow then at = math.max(at, ending(value[id])) end
  ends, cut = math.max(ends, at), cut or at < ending(value[id])
  fields[#fields + 1] = id
  fields[#fields + 1] = at .. ' ' .. taken(value[id])
end
if redis.call('HLEN', KEYS[1]) - base > h.present then -- there are others
  local ids, values = live(h.ends)
  for _, id in ipairs(ids) do
    local at = ending(values[id])
    if not value[id] and at < now + ttl and not grow then
      at = now + ttl
      fields[#fields + 1] = id
      fields[#fields + 1] = at .. ' ' .. taken(values[id])
    end
    if not value[id] then ends = math.max(ends, at) end
  end
end
redis.call('HSET', KEYS[1], unpack(fields))
extend(ends)
raise(fence, seen)
if cut then alert(owner) end
return refusal or {1, noted, told, given}
