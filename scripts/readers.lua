-- readers: who reads a name.
--   ARGV[5]  how many owners at most
--   {1, how many there are, owner, ms left, owner, ms left, ...}  those whose leases end last
-- It writes nothing.
local refusal = abstains()
if refusal then return refusal end
if not had_readers then return {1, 0} end
local key = beside('lockr')
local out = {1, redis.call('ZCOUNT', key, '(' .. now, '+inf')}
local all = redis.call('ZREVRANGE', key, 0, ARGV[5] - 1, 'WITHSCORES')
for i = 1, #all, 2 do
  local ms = math.min(tonumber(all[i + 1]) - now, maxttl)
  if ms > 0 then
    out[#out + 1] = all[i]
    out[#out + 1] = ms
  end
end
return out
