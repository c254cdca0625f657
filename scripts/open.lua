-- open: looks through some records of names for leases without an end: those whose epoch begins with ~.
--   ARGV[5..8]  cursor of SCAN, pattern of the records' keys, how many keys to look at, ms
--   {1, next cursor, n, key, owner, fence, ms left, key, owner, ...}  n leases without an end are among them, and these
--       have less than that many ms left
-- It changes nothing, and is about no lock: KEYS[1] and KEYS[2] are not used.
if refusal then return refusal end
local page = redis.call('SCAN', ARGV[5], 'MATCH', ARGV[6], 'COUNT', ARGV[7])
local reply, n = {1, page[1], 0}, 0
for _, key in ipairs(page[2]) do
  local h = redis.pcall('HMGET', key, 'l', 'e', 'o', 'f') -- a key of another kind is no record
  local e = not h.err and h[1] and string.sub(h[1], 1, 1) == '~' and tonumber(h[2])
  if e and e > now then
    n = n + 1
    if e - now < tonumber(ARGV[8]) then
      for _, field in ipairs({key, h[3], h[4], e - now}) do reply[#reply + 1] = field end
    end
  end
end
reply[3] = n
return reply
