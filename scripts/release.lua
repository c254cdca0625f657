-- release: give back holds. The last one frees the name and publishes "fence how" on the channel KEYS[1]; of readers the
-- last one does, and each that had a seat but for an undo, on the name's.
--   ARGV[5..11]  owner, fence of the grant (0 in an undo), how, TAG of the unlock or empty (in an end: the epoch that the
--         lease must have, or empty for any), the grant or empty, a name of this release, the ms that the lease has left at most as
--         far as the proxy knows
--   ARGV[12..]   the number of holds, these holds, then pairs: another hold of the grant, and the ms it has left
--   {1, noted, holds left, reinstated, listeners}  removed, or missing here although the grant is here; holds left is -1 if
--       some are, and their record has another fence: then this node may lack others; reinstated is 1 if a renewal reinstated
--       the grant here; listeners is the number of subscribers that got the message
--   {2, noted, since}  missing here: the last release of the name was of this grant; since is 1 if it gave back this hold, and
--       the owner has a later grant here
--   {3, noted, holds left, hold}  this unlock gave back that hold before
--   {5, noted, name}  missing here although the grant is here: the release of that name gave the hold, or another one of its request, back before
--   {6, noted}  not removed: the holds of this unlock's request were given back here, and these are another's
--   {4, noted}  not removed: the name would become free, or the lease end earlier, and the lease has another epoch
--   {0, noted, owner or empty, ms left, largest fence, before, hold ...}  missing here; before is 1 if another release gave the hold
--       back here, or a later grant was given back; the holds are those with the same TAGs that are here under a larger fence
-- noted is 1 if a renewal may have shortened the lease of the grant: see note. The values of how:
--   unlock  the owner's, while the proxy knows the grant to be valid
--   handed  the same, and a waiter at this proxy asks for the name next: other proxies need not
--   passed  the same, and this proxy is subscribed at all nodes: without another subscriber nothing is published
--   strict  the owner's, while the proxy does not know that: a reinstated hold proves nothing, and its removal is not
--           remembered as a release
--   finish  as strict, of an UNLOCK that another node has done: it is remembered also where another release was before it
--   force   another one takes the grant away, after a note of it: holds of a later grant stay, and the removal is not
--           remembered as the owner's release
--   end     the session that kept the holds has ended, or the grant reached no client: not remembered as the owner's
--           release either, and a request that the owner sends again is a new one. A lease that another proxy took over is
--           given back only after a note, as by force: that proxy may rely on its validity
--   undo    there was no grant; nothing is remembered, and the fence is forgotten where no other hold has been in the record
-- An undo, a force and an end remove exactly these holds. The other releases remove the owner's holds with the same TAGs as
-- well: one request may have been granted several times, and is over. If only holds with the same TAGs are here, and under
-- a smaller fence, they are removed, but that is no vote: this node may have numbered the grant differently. Under a larger
-- fence they stay, and are named: the request may have been granted anew, after FORCE or the end of the lease. A hold without a TAG that is
-- here under a larger fence is removed. If it made that grant it is no vote either: its LOCK came to this node late, after another owner's grant.
-- If it did not, another LOCK has numbered the record anew while the hold was in it.
-- After all but an undo, if none of the owner's holds is left, the largest fence is above that of the grant, so that no late
-- renewal reinstates the hold; the release is remembered as long as the fences are. Holds without such a trace, as others
-- are left or they were missing here, are remembered one by one as given back, as are all in a quarantine: a copy leaves
-- them out. Other known holds of the grant that are missing here are added: see add in the prologue. The lease ends with the
-- last of the holds left.
-- A release of the owner without a TAG means the hold taken last, and its proxy may not know that: a live hold here that was taken later, and that the
-- message does not name, takes over the end of the one given back, so that what is left lasts as long as its owner counts on.
-- After all but an undo the intents of this owner are over as well, but for that of a reader who waited for several names.
-- Repeating it changes nothing. A node that may not vote does all of it, and replies with its refusal.
local refusal = abstains()
local owner, fence, unlock, request = ARGV[5], tonumber(ARGV[6]), ARGV[7] ~= 'undo', ARGV[8]
local published = ARGV[7] == 'passed' and 'handed' or ARGV[7] == 'finish' and 'strict' or ARGV[7]
local how = published == 'handed' and 'unlock' or published
local force = how == 'force'
local epoch = how == 'end' and request or ''
if how == 'end' then request = '' end
local by_owner = how == 'unlock' or how == 'strict' -- the owner gives back
local grant, name, lease, first = ARGV[9], ARGV[10], tonumber(ARGV[11]), 13
local final = first + tonumber(ARGV[12]) - 1
local h = holder(first, final)
local mine = h and h.owner == owner
if mine then lease = math.max(lease, h.rest) end
local same = mine and h.fence == fence and h.grant == grant
local c, seen, noted, intent, claim = fences('m', 'w', 'x')
if unlock and intent and string.match(intent, '^%d+ (.*)$') == owner then -- other nodes have let it in beside readers here
  redis.call('HDEL', KEYS[2], 'w')
end
if unlock and claim and string.match(claim, '^%d+ %d+ (.*)$') == owner then redis.call('HDEL', KEYS[2], 'x') end
-- A node that has copied may have forgotten such a note.
noted = (tonumber(noted or '0') >= fence or not same and fence <= tonumber(copied_floor or '0')) and 1 or 0
local done = request ~= '' and recall('U' .. request)
local had, numbered = h and h.values or {}, h and h.fence or 0
local before
if done then
  local n, hold = string.match(done, '(%S+) %d+ (.*)')
  before = {3, noted, tonumber(n), hold}
  if (tag(hold) or hold) ~= (tag(ARGV[first]) or ARGV[first]) then
    if tag(ARGV[first]) ~= request then return refusal or before end
    before = nil -- an earlier copy of this unlock gave back another hold, before the LOCK with its request id was granted
  end
end

-- released_by returns the name of the release that gave a hold, or another hold of its request, back here; false: none did.
local function released_by(hold)
  local t = tag(hold)
  return recall('H' .. hold) or t and recall('H' .. t)
end

local given, tags = {unpack(ARGV, first, final)}, {}
for i = first, final do
  local t = by_owner and tag(ARGV[i])
  if t then tags[t] = true end
end
if by_owner and request ~= '' and not done and not tags[request] and recall('L' .. request) then return refusal or {6, noted} end
local sole_hold = mine and h.alone and h.present > 0 -- it is given back
local is_vote = mine and (h.fence == fence or h.present > 0 and (h.fence < fence or tag(ARGV[first]) or how == 'unlock' and h.grant ~= ARGV[first]))
if next(tags) and mine and not sole_hold and (h.present > 0 or h.fence <= fence) then
  for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do
    if tags[tag(id) or ''] then given[#given + 1] = id end
  end
end

-- ending_without returns the end of the lease without the holds given back, and the number of holds left then; and, of holds
-- that were taken later through other proxies, the values with which they take over the end of those given back.
local function ending_without()
  if h.alone and sole_hold or #given <= final - first + 1 and h.present == redis.call('HLEN', KEYS[1]) - base then return 0, 0, {} end
  local gone, named, ends, n, later = {}, {}, 0, 0, {}
  for _, id in ipairs(given) do gone[id] = true end
  for i = final + 1, #ARGV, 2 do named[ARGV[i]] = true end
  local last, at = 0, 0 -- when the last of those given back was taken, and the latest of their ends
  for i = first, final do
    local value = by_owner and request == '' and h.values[i]
    if value then last, at = math.max(last, taken(value)), math.max(at, math.min(ending(value), h.ends)) end
  end
  local ids, values = live(h.ends)
  for _, id in ipairs(ids) do
    if not gone[id] then
      local its = ending(values[id])
      if its < at and not named[id] and taken(values[id]) > last then
        its = at
        later[#later + 1] = id
        later[#later + 1] = at .. ' ' .. taken(values[id])
      end
      ends = math.max(ends, its)
      n = n + 1
    end
  end
  return ends, n, later
end

if same then add(h, final + 1) end
if by_owner and not before and same and h.present == 0 and #given == final - first + 1 then
  local by = released_by(ARGV[first])
  if by and by ~= name then return refusal or {5, noted, by} end
end
local before_this = by_owner and not mine and released_by(ARGV[first])
local removed, left, reinstated, listeners, freed = 0, 0, false, 0, false
if mine and (h.present > 0 or #given > final - first + 1) and not (force and h.fence > fence) then
  local ends, n, later = ending_without()
  if epoch ~= '' and h.epoch ~= epoch and ends < h.ends then return refusal or {4, noted} end
  removed, reinstated = 1, h.reinstated
  if force then
    alert(owner, 'forced ') -- proxies of an older version do not read it
    alert(owner)
  end
  if n == 0 then
    if KEYS[4] then redis.call('ZREM', beside('lockr'), owner) end -- first: if it is refused, nothing is done
    local seat = seat_of(h.grant)
    if seat and redis.call('HMGET', beside('locks'), seat)[1] == owner then redis.call('HDEL', beside('locks'), seat) end
    redis.call('DEL', KEYS[1])
    if how == 'strict' then alert(owner, 'given ' .. int(h.fence) .. ' ') end -- a session at another proxy may keep it
    if not unlock and h.alone and seen == h.fence then -- no later grant need be above it
      if h.before > floor then redis.call('HSET', KEYS[2], 'c', int(h.before)) else redis.call('HDEL', KEYS[2], 'c') end
    end
    local subscribers = ARGV[7] == 'passed' and redis.pcall('PUBSUB', 'NUMSUB', KEYS[1])[2] -- an ACL may forbid both
    if seat and unlock or not (KEYS[4] and reader(owner)) then
      listeners = subscribers == 1 and 1 or tonumber(redis.pcall('PUBLISH', KEYS[4] or KEYS[1], int(h.fence) .. ' ' .. published)) or 0
    end
    h, freed = nil, true
  else
    redis.call('HDEL', KEYS[1], unpack(given))
    if #later > 0 then redis.call('HSET', KEYS[1], unpack(later)) end
    if ends < h.ends then
      extend(owner, h.grant, ends)
      shortened(h.fence)
    end
    left = h.fence == fence and holds(ends) or -1
  end
elseif same then
  reinstated, left = h.reinstated, holds(h.ends)
end
no_doubt(given, tags)
local fence_guards = freed and not (refusal and refusal[1] == -2) and (not unlock or math.max(seen or 0, fence + 1) > numbered)
for i = first, final do
  if not (fence_guards and had[i]) and not (force and mine and not freed and h.fence > fence) then remember('H' .. ARGV[i], name, lease) end
end
if not is_vote then removed = 0 end
if unlock and (not h or not mine) and (removed > 0 or fence >= (seen or 0)) then
  local top = int(math.max(seen or largest, fence + 1))
  if removed > 0 and by_owner and (how == 'unlock' or not reinstated) then
    redis.call('HSET', KEYS[2], 'c', top, 'o', owner, 'a', ARGV[first], 'f', int(fence), 'n', '0')
  else
    redis.call('HSET', KEYS[2], 'c', top)
  end
  -- the LOCK of a lease that nobody prolonged has kept the fences for as long as its end and the retention
  if not (sole_hold and seen) then keep(lease) end
end
for t in pairs(tags) do
  remember('L' .. t, int(fence), lease)
  -- another proxy may know the request by another hold; of two releases the first counts, so that nodes name the same
  if not freed and not recall('H' .. t) then remember('H' .. t, name, lease) end
end
local remember_unlock = (removed > 0 or same and h) and not reinstated
if how == 'unlock' then remember_unlock = removed > 0 or same and h or (not h and c <= fence) end
if remember_unlock and request ~= '' and not before then
  remember('U' .. request, left .. ' ' .. int(fence) .. ' ' .. ARGV[first], lease)
end
if refusal then return refusal end
if removed > 0 or same and h then return {1, noted, left, reinstated and 1 or 0, listeners} end
if before then return before end
local _, _, last, lasthold, lastfence = fences('o', 'a', 'f')
lastfence = tonumber(lastfence or '0')
if unlock and last == owner and (lastfence == fence or lasthold == ARGV[first]) then
  if ARGV[7] == 'finish' then remember('U' .. request, '0 ' .. int(fence) .. ' ' .. ARGV[first], lease) end
  return {2, noted, mine and h and h.fence > fence and lasthold == ARGV[first] and 1 or 0}
end
local too_late = (lastfence > fence or before_this and before_this ~= name) and 1 or 0
if not h then return {0, noted, '', 0, c, too_late} end
local reply = {0, noted, h.owner, h.rest, c, too_late}
for _, id in ipairs(mine and next(tags) and redis.call('HKEYS', KEYS[1]) or {}) do
  if tags[tag(id) or ''] then reply[#reply + 1] = id end
end
return reply
