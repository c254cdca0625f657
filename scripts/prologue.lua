-- prologue: stands before every script. Is this node entitled to vote?
--   KEYS[1]  the lock record   hash, gone when the name is free: o owner, e end in ms of this node's clock, f fence of
--            the grant, l and s version of the lease (lineage, number), i info, g when granted in ms, p 1 when this
--            node did not grant it but was told of it by a renewal; every longer field is the id of one hold, its
--            value when it was taken in ms. A hold that was asked for under a request id is called TAG.id, 16 bytes of TAG;
--            holds of one TAG were taken by one request and count as one
--   KEYS[2]  the name's fences   hash: c largest fence; o, a, f owner, hold and fence of the last release, n 1 when that
--            owner had a grant since; m largest fence of a grant that a renewal may have shortened
--   KEYS[3]  the node record     hash: id the master_replid it was written under, until end of quarantine in ms,
--            sync 1 when the fence floor is restored, floor, g largest fence ever stored here, max the max-ttl in ms
--   KEYS[3]:LTAG and KEYS[3]:UTAG  requests that are over, for a minute more than max-ttl: strings; the fence of a hold
--            that was given back; of an unlock, the holds left, the fence and the hold it gave back
--   ARGV[1]  max-ttl in ms   [2] skew allowed between clocks in us   [3] retention of fences in ms
--   ARGV[4]  safe or available: whether a node that restarted sits out a quarantine
-- refusal is nil on a node that votes, else the reply of a script that needs a vote:
--   {-1, now ms, master_replid}  no node record     {-2, ms left}  in quarantine
--   {-3, ms since quarantine}    floor not restored {-4, ms}       recorded under another max-ttl
-- A node whose master_replid is not the recorded one may have forgotten: its quarantine begins here, in the same
-- atomic step as the question. Scripts carry no shebang: then Redis refuses the first write of a script that may not
-- write (OOM, READONLY, MISCONF) and none after it, so nothing is left half done, and a release still works under OOM.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local us = t[1] * 1000000 + t[2]
local maxttl, skew, retention = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local available = ARGV[4] == 'available'

-- int writes a fence, which has more digits than .. would keep. Times in ms are passed to commands as they are.
local function int(n) return string.format('%.0f', n) end

local info = redis.pcall('INFO', 'replication')
local replid = 'embedded' -- a server without this section forgets only with its process
if type(info) == 'string' then
  local at = string.find(info, 'master_replid:', 1, true)
  if at then replid = string.sub(info, at + 14, at + 53) end
elseif not string.find(info.err, 'is not supported', 1, true) then
  return info
end

local rec = redis.call('HMGET', KEYS[3], 'id', 'until', 'sync', 'g', 'floor', 'max')
local largest, floor = tonumber(rec[4] or '0'), tonumber(rec[5] or '0')
local refusal
if not rec[1] then
  refusal = {-1, now, replid}
elseif tonumber(rec[6]) ~= maxttl then
  refusal = {-4, tonumber(rec[6])}
else
  local quarantine, synced = tonumber(rec[2]), rec[3] == '1'
  if rec[1] ~= replid and available then
    quarantine, synced, floor = 0, true, math.max(largest, us + skew)
    redis.call('HSET', KEYS[3], 'id', replid, 'until', '0', 'sync', '1', 'floor', int(floor))
  elseif rec[1] ~= replid then
    quarantine, synced = now + maxttl, false
    redis.call('HSET', KEYS[3], 'id', replid, 'until', quarantine, 'sync', '0')
  elseif quarantine > now + maxttl then -- the clock was stepped back
    quarantine = now + maxttl
    redis.call('HSET', KEYS[3], 'until', quarantine)
  end
  if now < quarantine then
    refusal = {-2, quarantine - now}
  elseif not synced then
    refusal = {-3, now - quarantine}
  end
end

-- holder is who has the name: nil when it is free or the lease has lapsed; present is how many of the holds ARGV[from]
-- and on are there. An end beyond now + max-ttl is brought back, so that a clock stepped back does not make a lock last
-- for hours.
local function holder(from)
  local h = redis.call('HMGET', KEYS[1], 'o', 'e', 'f', 'l', 's', 'p', unpack(ARGV, from))
  if not h[1] then return nil end
  local e = tonumber(h[2])
  if e <= now then
    redis.call('DEL', KEYS[1])
    return nil
  end
  if e > now + maxttl then
    e = now + maxttl
    redis.call('HSET', KEYS[1], 'e', e)
    redis.call('PEXPIREAT', KEYS[1], e)
  end
  local present = 0
  for i = 7, 7 + #ARGV - from do
    if h[i] then present = present + 1 end
  end
  return {owner = h[1], rest = e - now, fence = tonumber(h[3]), lineage = h[4], number = tonumber(h[5]),
    told = h[6] == '1', present = present}
end

-- tag is that of a hold, nil if it has none.
local function tag(hold)
  if string.sub(hold, 17, 17) == '.' then return string.sub(hold, 1, 16) end
end

-- holds is how many holds the owner has.
local function holds()
  local n = redis.call('HLEN', KEYS[1]) - 8
  if n < 2 then return n end
  local seen = {}
  for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do
    local t = tag(id)
    if t and seen[t] then n = n - 1 end
    if t then seen[t] = true end
  end
  return n
end

-- recall is what is remembered of a request (L or U, and the TAG), false if nothing is.
local function recall(request) return redis.call('GET', KEYS[3] .. ':' .. request) end

local function remember(request, value) redis.call('SET', KEYS[3] .. ':' .. request, value, 'PX', maxttl + 60000) end

-- fences are the largest fence this node must assume was issued for the name; the largest it has seen of the name
-- itself, nil if none; the owner, fence and hold of the release it remembers, whether that owner had a grant since, and
-- the largest fence that was noted.
local function fences()
  local h = redis.call('HMGET', KEYS[2], 'c', 'o', 'f', 'a', 'n', 'm')
  local seen = h[1] and tonumber(h[1]) or nil
  return math.max(seen or largest, floor), seen, h[2], tonumber(h[3] or '0'), h[4], h[5] == '1', tonumber(h[6] or '0')
end

-- raise stores f as the name's largest fence if it is above those seen, and keeps the name's fences for their
-- retention: from the end of the longest lease, so that a release need not prolong it.
local function raise(f, seen)
  if not seen or f > seen then redis.call('HSET', KEYS[2], 'c', int(f)) end
  redis.call('PEXPIRE', KEYS[2], retention + maxttl)
  if f > largest then redis.call('HSET', KEYS[3], 'g', int(f)) end
end

-- create makes the record of a grant with the holds ARGV[from] and on. told is 1 in a renewal.
local function create(from, owner, e, fence, lineage, number, text, told)
  local fields = {}
  for i = from, #ARGV do
    fields[#fields + 1] = ARGV[i]
    fields[#fields + 1] = now
  end
  redis.call('HSET', KEYS[1], 'o', owner, 'e', e, 'f', int(fence), 'l', lineage, 's', number, 'i', text, 'g', now,
    'p', told, unpack(fields))
  redis.call('PEXPIREAT', KEYS[1], e)
end

-- extend sets the version and the end.
local function extend(e, lineage, number)
  redis.call('HSET', KEYS[1], 'e', e, 'l', lineage, 's', number)
  redis.call('PEXPIREAT', KEYS[1], e)
end
