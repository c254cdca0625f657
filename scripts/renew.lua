-- renew: let holds of a grant end ttl from now, earlier than before as well, unless they may only grow.
--   ARGV[5..13]  owner, ttl in ms, fence and grant, epoch, sequence, the version it replaces (epoch:sequence, or empty), 1 to
--         reinstate the grant if the name is free, or the gen of this node: a quorum of the others has renewed it; 1 to grow
--         only: no hold ends earlier, and other holds are left alone; 2 if it may shorten the lease: that is noted here with it,
--         as a quorum has done before
--   ARGV[14..]   the holds
--   {1, noted, reinstated, given back}  applied, now or before; noted is 1 if a renewal may have shortened the lease: see
--       note; reinstated is 1 if a renewal reinstated the grant here, now or before; the last is the number of the holds
--       that were given back here
--   {3, epoch, sequence}  not applied: the lease has another version here, or the owner has a live hold that a renewal by what its
--       proxy remembers does not name     {4}  not applied: all holds were given back
--   {0, owner or empty, ms left, fence}  not applied: the name is free, another owner's, or of another grant
-- A renewal applies over a smaller sequence of its own epoch, or over exactly the version that it replaces: a late one
-- cannot shorten a lease that was made longer since. The owner's other holds that would end earlier end with these, unless
-- they only grow. A renewal by what its proxy remembers, which replaces no version, does not apply where the owner has others: its owner
-- counts with the new end for all, and only one that names them brings it to a quorum. A hold that is missing while the grant is here is added, unless it was given back here. A free name is
-- reinstated only if no fence above that of the grant was seen, so that no grant returns after its release, if no other owner
-- reads it, or for a reader has it for itself or has its seat, and if the grant was not noted: a lease that was shortened and has ended stays
-- so. The record is then marked as reinstated (p). After a copy this node may have forgotten that a grant up to its floor
-- was given back: where it does not know that, it abstains, and reinstates the grant only if a quorum of the others has renewed it, in a round that began when this node voted. What
-- it was in doubt about is in no doubt then, and the lease does not end before the doubt would. A node in doubt does all of it, and
-- replies with its refusal; others that may not vote do nothing.
local refusal = abstains()
if refusal and refusal[1] ~= -5 then return refusal end
local owner, ttl, fence, grant = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local epoch, sequence, expected, reinstate, grow = ARGV[9], ARGV[10], ARGV[11], ARGV[12] ~= '0', ARGV[13] == '1'
local by_quorum = gen and ARGV[12] == gen
local shorten = ARGV[13] == '2'
local h = holder(14, #ARGV)
if h and (h.owner ~= owner or h.fence ~= fence or h.grant ~= grant) then return refusal or {0, h.owner, h.rest, h.fence} end

if reinstate and not by_quorum and ARGV[12] ~= '1' then return refusal or {-5, 0, gen or ''} end -- it has forgotten once more
local _, seen, last = fences('m')
last = tonumber(last or '0')
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
if not h and #named > 0 and not by_quorum and fence <= tonumber(copied_floor or '0') then return refusal or {-5, 0, gen} end
if not h and (not reinstate or #named == 0 or (seen and seen > fence) or noted == 1) then return refusal or {0, '', 0, 0} end
local other, e, its
if not h or KEYS[4] then other, e, its = rival(owner, grant) end
if other then return refusal or {0, other, e - now, its or 0} end
if not h then
  local name
  if KEYS[4] then
    name = tonumber(redis.call('HMGET', beside('fence:'), 'c')[1] or '0')
    if name > fence then return refusal or {0, '', 0, 0} end
  end
  ttl = math.max(ttl, refusal and refusal[2] or 0)
  create(named, grant, owner, now + ttl, fence, epoch, sequence, '', '1')
  raise(ttl, fence, seen)
  if KEYS[4] then raise_name(ttl, fence, name) end
  if by_quorum then certain(owner) end
  return refusal or {1, 0, 1, given}
end

local reinstated = h.reinstated and 1 or 0
if h.epoch == epoch and tonumber(sequence) == h.sequence then return refusal or {1, noted, reinstated, given} end
local follows = h.epoch == epoch and tonumber(sequence) > h.sequence
local others, values = {}, {}
if redis.call('HLEN', KEYS[1]) - base > h.present then
  local ids
  ids, values = live(h.ends)
  for _, id in ipairs(ids) do
    if not value[id] then others[#others + 1] = id end
  end
end
if #others > 0 and expected == '' and not grow then follows = false end
if not follows and expected ~= h.epoch .. ':' .. int(h.sequence) then return refusal or {3, h.epoch, h.sequence} end
if #named == 0 then return refusal or {4} end
local ends, cut, fields = now + ttl, false, {'l', epoch, 's', sequence, 'p', entered(h)}
for _, id in ipairs(named) do
  local at = now + ttl
  if grow then at = math.max(at, ending(value[id])) end
  ends, cut = math.max(ends, at), cut or at < ending(value[id])
  fields[#fields + 1] = id
  fields[#fields + 1] = at .. ' ' .. taken(value[id])
end
for _, id in ipairs(others) do
  local at = ending(values[id])
  if at < now + ttl and not grow then
    at = now + ttl
    fields[#fields + 1] = id
    fields[#fields + 1] = at .. ' ' .. taken(values[id])
  end
  ends = math.max(ends, at)
end
redis.call('HSET', KEYS[1], unpack(fields))
if shorten and fence > last then redis.call('HSET', KEYS[2], 'm', int(fence)) end
extend(owner, grant, ends)
raise(ends - now, fence, seen)
if cut then alert(owner) end
if ends < h.ends then shortened(fence) end
return refusal or {1, noted, reinstated, given}
