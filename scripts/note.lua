-- note: announces a renewal that may shorten the lease of a grant.
--   ARGV[5]  fence of the grant
--   {1}  noted: replies about this or an earlier grant have noted = 1 from now on
-- Repeating it changes nothing. A node that may not vote does it as well, and replies with its refusal.
local refusal, fence = abstains(), tonumber(ARGV[5])
local _, _, noted = fences('m')
if fence > tonumber(noted or '0') then redis.call('HSET', KEYS[2], 'm', int(fence)) end
keep(maxttl) -- of the longest lease: others may know a longer one of this grant than who notes it
return refusal or {1}
