-- release: give back exactly these holds. The last one frees the name and says so on the channel KEYS[1].
--   ARGV  owner, fence of the grant (0 in an undo), how, then the holds
--   {1, noted, holds left, told}  removed; told is 1 if this node was only told of the grant by a renewal
--   {2, noted}  not here: the last release of the name was of this grant
--   {0, noted, owner or empty, ms left, largest fence}  not here
-- noted is 1 if some renewal may have shortened the lease of the grant, see note.
-- unlock  the proxy knows of the grant that its validity had not ended
-- strict  it does not: a hold that was put back proves nothing, and its removal is not remembered as a release
-- undo    the grant was not made; remembered by nobody
-- After an unlock that leaves none of the owner's holds the largest fence is above the grant's, so that no late renewal
-- puts the hold back; what was removed is remembered as long as the fences are.
-- Repeating it changes nothing. A node that may not vote does all of it and answers with its refusal.
local owner, fence, unlock = ARGV[5], tonumber(ARGV[6]), ARGV[7] ~= 'undo'
local h = holder(8)
local mine = h and h.owner == owner
local removed, left, told = 0, 0, false
if mine and h.present > 0 then
  removed, left, told = h.present, holds() - h.present, h.told
  if left > 0 then
    redis.call('HDEL', KEYS[1], unpack(ARGV, 8))
  else
    redis.call('DEL', KEYS[1])
    redis.call('PUBLISH', KEYS[1], '')
    h = nil
  end
end

local c, seen, last, lastfence, lasthold, _, noted = fences()
noted = noted >= fence and 1 or 0
if unlock and (not h or not mine) and (removed > 0 or fence >= (seen or 0)) then
  local top = int(math.max(seen or 0, fence + 1))
  if removed > 0 and (ARGV[7] == 'unlock' or not told) then
    redis.call('HSET', KEYS[2], 'c', top, 'o', owner, 'a', ARGV[8], 'f', int(fence), 'n', '0')
  else
    redis.call('HSET', KEYS[2], 'c', top)
  end
  redis.call('PEXPIRE', KEYS[2], retention + maxttl)
end
if refusal then return refusal end
if removed > 0 then return {1, noted, left, told and 1 or 0} end
if unlock and last == owner and (lastfence == fence or lasthold == ARGV[8]) then return {2, noted} end
if not h then return {0, noted, '', 0, c} end
return {0, noted, h.owner, h.rest, c}
