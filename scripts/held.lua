-- held: looks through some keys for what a node that has forgotten has to know of them, see copy.
--   ARGV[5..7]  cursor of SCAN, pattern of the keys, how many to look at
--   {0}  a proxy that may count votes later than rounds has been heard within max-ttl
--   {1, next cursor, gen or empty, largest fence, holds, requests, max-ttl}  of the names that are held, or in doubt, one after the
--         other: the name with its database, its owner as a doubt has it, ms left, how many holds follow, and these; of what is
--         remembered of requests, see the prologue: L or U and the TAG, value, ms left. Both are as copy takes them
-- It writes nothing, and is about no lock: KEYS[1] and KEYS[2] are not used.
if refusal then return refusal end
if not bounded then return {0} end
local prefix, page = string.sub(KEYS[3], 1, -5), redis.call('SCAN', ARGV[5], 'MATCH', ARGV[6], 'COUNT', ARGV[7])
local holds, size, requests = {}, 0, {}

-- head sets what stands before n holds that are in their place.
local function head(name, owner, left, n)
  holds[size + 1], holds[size + 2], holds[size + 3], holds[size + 4] = name, owner, int(left), int(n)
  size = size + 4 + n
end

-- record adds the live holds of the record of a name, or of a reader of it. Most records have one, which gave the grant: these are
-- not read whole.
local function record(key, name, kind)
  local h = redis.call('HMGET', key, 'o', 'e', 'a', 'p')
  local left, n = math.min((h[2] or 0) - now, maxttl), 0
  if left <= 0 then return end
  if string.sub(h[4] or '', 1, 2) == '0 ' or redis.call('HLEN', key) == base + 1 and redis.call('HMGET', key, h[3])[1] then
    n, holds[size + 5] = 1, h[3]
  else
    local all = redis.call('HGETALL', key)
    for i = 1, #all, 2 do
      if #all[i] > 1 and ending(all[i + 1]) > now then
        n = n + 1
        holds[size + 4 + n] = all[i]
      end
    end
  end
  if n > 0 then head(name, kind .. h[1], left, n) end
end

for _, key in ipairs(page[2]) do
  local kind, name = string.match(key, '^(%a+):(.*)$', #prefix + 1)
  if kind == 'lock' then
    record(key, name, 'w')
  elseif kind == 'read' then
    local db, length, rest = string.match(name, '^(%d+):(%d+):(.*)$')
    record(key, db .. ':' .. string.sub(rest, 1, length), 'r')
  elseif kind == 'doubt' then
    local left, all = math.min(redis.call('PTTL', key), maxttl), redis.call('HGETALL', key)
    for i = 1, #all, 2 do
      holds[size + 5] = all[i]
      head(name, all[i + 1], left, 1)
    end
  elseif kind == 'node' and (string.sub(name, 1, 1) == 'L' or string.sub(name, 1, 1) == 'U') then
    for _, v in ipairs({name, redis.call('GET', key), int(redis.call('PTTL', key))}) do requests[#requests + 1] = v end
  end
end
return {1, page[1], gen or '', int(math.max(largest, floor)), holds, requests, maxttl}
