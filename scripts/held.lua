-- held: looks through some keys for what a node that has forgotten has to know of them, see copy.
--   ARGV[5..7]  cursor of SCAN, pattern of the keys, how many to look at
--   {0}  a proxy that may count votes later than rounds has been heard within max-ttl
--   {1, next cursor, gen or empty, largest fence, names, requests, max-ttl}  of the names that are held, or in doubt, each {name with its
--         database, owner as a doubt has it, ms left, hold, hold ...}; of what is remembered of requests, see the prologue, each {L or U
--         and the TAG, value, ms left}
-- It writes nothing, and is about no lock: KEYS[1] and KEYS[2] are not used.
if refusal then return refusal end
if not bounded then return {0} end
local prefix, page = string.sub(KEYS[3], 1, -5), redis.call('SCAN', ARGV[5], 'MATCH', ARGV[6], 'COUNT', ARGV[7])
local names, requests = {}, {}

-- record adds the live holds of the record of a name, or of a reader of it.
local function record(key, name, kind)
  local all, owner, left, held = redis.call('HGETALL', key), '', 0, {name, 0, 0}
  for i = 1, #all, 2 do
    local field = all[i]
    if #field > 1 then
      if ending(all[i + 1]) > now then held[#held + 1] = field end
    elseif field == 'o' then
      owner = all[i + 1]
    elseif field == 'e' then
      left = math.min(all[i + 1] - now, maxttl)
    end
  end
  held[2], held[3] = kind .. owner, int(left)
  if left > 0 and held[4] then names[#names + 1] = held end
end

for _, key in ipairs(page[2]) do
  local kind, name = string.match(key, '^(%a+):(.*)$', #prefix + 1)
  if kind == 'lock' then
    record(key, name, 'w')
  elseif kind == 'read' then
    local db, length, rest = string.match(name, '^(%d+):(%d+):(.*)$')
    record(key, db .. ':' .. string.sub(rest, 1, length), 'r')
  elseif kind == 'doubt' then
    local left, all = redis.call('PTTL', key), redis.call('HGETALL', key)
    for i = 1, #all, 2 do names[#names + 1] = {name, all[i + 1], int(math.min(left, maxttl)), all[i]} end
  elseif kind == 'node' and (string.sub(name, 1, 1) == 'L' or string.sub(name, 1, 1) == 'U') then
    requests[#requests + 1] = {name, redis.call('GET', key), int(redis.call('PTTL', key))}
  end
end
return {1, page[1], gen or '', int(math.max(largest, floor)), names, requests, maxttl}
