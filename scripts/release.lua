-- release: give back exactly these holds. The last one frees the name and says so on the channel KEYS[1].
--   ARGV  owner, fence of the grant (0 in an undo), unlock or undo, then the holds
--   {1, holds left}  removed     {2}  not here: the last release of the name was of this grant
--   {0, owner or empty, ms left, largest fence}  not here
-- After an unlock that leaves none of the owner's holds the largest fence is above the grant's, so that no late renewal
-- puts the hold back; what was removed is remembered as long as the fences are. An undo is remembered by nobody.
-- Repeating it changes nothing. A node that may not vote does all of it and answers with its refusal.
local owner, fence, unlock = ARGV[5], tonumber(ARGV[6]), ARGV[7] == 'unlock'
local h = holder(8)
local mine = h and h.owner == owner
local removed, left = 0, 0
if mine and h.present > 0 then
  removed, left = h.present, holds() - h.present
  if left > 0 then
    redis.call('HDEL', KEYS[1], unpack(ARGV, 8))
  else
    redis.call('DEL', KEYS[1])
    redis.call('PUBLISH', KEYS[1], '')
    h = nil
  end
end

local c, seen, last, lastfence, lasthold = fences()
if unlock and (not h or not mine) and (removed > 0 or fence >= (seen or 0)) then
  local top = int(math.max(seen or 0, fence + 1))
  if removed > 0 then
    redis.call('HSET', KEYS[2], 'c', top, 'o', owner, 'a', ARGV[8], 'f', int(fence), 'n', '0')
  else
    redis.call('HSET', KEYS[2], 'c', top)
  end
  redis.call('PEXPIRE', KEYS[2], retention + maxttl)
end
if refusal then return refusal end
if removed > 0 then return {1, left} end
if unlock and last == owner and (lastfence == fence or lasthold == ARGV[8]) then return {2} end
if not h then return {0, '', 0, c} end
return {0, h.owner, h.rest, c}
