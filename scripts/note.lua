-- note: a renewal that may shorten the lease of this grant is about to be sent.
--   ARGV  fence of the grant
--   {1}  noted: a release of this or an earlier grant is answered so from now on
-- Repeating it changes nothing. A node that may not vote does it and answers with its refusal.
local fence = tonumber(ARGV[5])
local _, _, _, _, _, _, noted = fences()
if fence > noted then redis.call('HSET', KEYS[2], 'm', int(fence)) end
redis.call('PEXPIRE', KEYS[2], retention + maxttl)
return refusal or {1}
