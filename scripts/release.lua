-- release: give back exactly these holds. The last one frees the name and says so on the channel KEYS[1].
--   ARGV  owner, fence of the grant or 0, unlock or undo, then the holds
--   {1, holds left}  removed     {2}  not here: the last release of the name was of this grant
--   {0, owner or empty, ms left, largest fence}  not here
-- After an unlock that leaves the name free the largest fence is above the grant's, so that no late renewal puts the
-- hold back, and the release is remembered as long as the fences are. An undo is remembered by nobody.
-- Repeating it changes nothing. A node that may not vote does all of it and answers with its refusal.
local owner, fence, unlock = ARGV[5], tonumber(ARGV[6]), ARGV[7] == 'unlock'
local h = holder()
local mine = h and h.owner == owner
local removed, left = 0, 0
if mine then
  for i = 8, #ARGV do removed = removed + redis.call('HDEL', KEYS[1], ARGV[i]) end
  left = holds()
end
if mine and left <= 0 then
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', KEYS[1], '')
end

local c = counter()
local freed = not h or (mine and left <= 0)
if unlock and freed and (fence > 0 or removed > 0) then
  if fence == 0 then fence = h.fence end
  if removed > 0 then redis.call('HSET', KEYS[2], 'o', owner, 'a', ARGV[8], 'f', int(fence)) end
  raise(fence + 1, c)
end
if refusal then return refusal end
if removed > 0 then return {1, left} end
local last = redis.call('HMGET', KEYS[2], 'o', 'a', 'f')
if unlock and last[1] == owner and (tonumber(last[3]) == fence or last[2] == ARGV[8]) then return {2} end
if not h or (mine and left <= 0) then return {0, '', 0, c} end
return {0, h.owner, h.rest, c}
