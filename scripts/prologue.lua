-- prologue: stands before every script. Is this node entitled to vote?
--   KEYS[1]  the lock record   hash, gone when the name is free: o owner, e end of the lease in ms of this node's clock,
--            the latest end of a hold, f fence of the grant, a the hold whose LOCK gave the grant its fence, l and s
--            version of the lease (lineage, number), i info, g when granted in ms, p 1 when this node did not grant it
--            but was told of it by a renewal; every longer field is the id of one hold, its value "end taken", both in
--            ms. A hold ends by itself, and never after e; it is still there then, and not live, so that an unlock of the
--            hold taken last means the same whether it has ended or not. A hold that was asked for under a request id is called
--            TAG.id, 16 bytes of TAG; holds of one TAG were taken by one request and count as one
--   KEYS[2]  the name's fences   hash: c largest fence; o, a, f owner, hold and fence of the last release, n 1 when that
--            owner had a grant since; m largest fence of a grant that a renewal may have shortened
--   KEYS[3]  the node record     hash: id the master_replid it was written under, since and until when its quarantine
--            began and ends in ms, sync 1 when the fence floor is restored, floor, g largest fence ever stored here; ttl the
--            largest max-ttl in use in ms; word and list the set of lock nodes that this one is in, as ARGV[4] says it and to
--            read, next and nextlist the set that proxies are changing to, epoch how often an operator changed that and
--            changed when, in ms; max 0, by which older proxies take it for one that is not theirs; and when a proxy with a
--            max-ttl and a word last made or kept a lease: "m60000 2 safe 9f3c"
--   KEYS[3]:LTAG and KEYS[3]:UTAG  requests that are over, for a minute more than max-ttl: strings; the fence of a hold
--            that was given back; of an unlock, the holds left, the fence and the hold it gave back
--   KEYS[3]:HID  hold ID was given back, for as long: it is not taken, nor put back, here any more
--   ARGV[1]  the proxy's max-ttl in ms   [2] skew allowed between clocks in us   [3] retention of fences in ms
--   ARGV[4]  the proxy's word: format of the records, safe or available (whether a node that restarted sits out a
--            quarantine), and a hash of the list of its lock nodes
-- refusal is nil on a node that votes, else the reply of a script that needs a vote:
--   {-1, now ms, master_replid, older}  no node record, or where older is 1 one of an older format
--   {-2, ms left, max-ttl}  in quarantine     {-4, epoch, list}  in another set than the proxy's
--   {-3, ms since quarantine, its name, max-ttl}  floor not restored
-- A node whose master_replid is not the recorded one may have forgotten: its quarantine begins here, in the same
-- atomic step as the question. Scripts carry no shebang: then Redis refuses the first write of a script that may not
-- write (OOM, READONLY, MISCONF) and none after it, so nothing is left half done, and a release still works under OOM.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local us = t[1] * 1000000 + t[2]
local own, skew, retention = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

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

local rec = redis.call('HMGET', KEYS[3], 'id', 'until', 'sync', 'g', 'floor', 'since', 'ttl', 'word', 'next',
  'm' .. ARGV[1] .. ' ' .. ARGV[4])
local largest, floor = tonumber(rec[4] or '0'), tonumber(rec[5] or '0')
local since, longest = tonumber(rec[6] or '0'), tonumber(rec[7] or '0')

-- maxttl is the largest max-ttl of which leases may run here, and the proxy's own: one with a smaller one must neither
-- cut those leases nor let the node sit out less than them.
local maxttl, over = own, {}
if longest > own then
  local all = redis.call('HGETALL', KEYS[3])
  for i = 1, #all, 2 do
    local ttl = tonumber(string.match(all[i], '^m(%d+) '))
    if ttl and tonumber(all[i + 1]) + ttl + 1000 > now then
      maxttl = math.max(maxttl, ttl)
    elseif ttl then
      over[#over + 1] = all[i]
    end
  end
end

-- spoke notes that this proxy makes or keeps a lease, or is there to: call is redis.call where it does.
local function spoke(call)
  if maxttl == longest and rec[10] and now - rec[10] < 1000 and now >= tonumber(rec[10]) then return end
  if #over > 0 then call('HDEL', KEYS[3], unpack(over)) end
  call('HSET', KEYS[3], 'ttl', maxttl, 'm' .. ARGV[1] .. ' ' .. ARGV[4], now)
end

local word, following = rec[8], rec[9]

-- same says that two words name one list. The stricter of them counts until an operator changes the set.
local function same(a, b) return a and b and string.gsub(a, ' %a+ ', ' ') == string.gsub(b, ' %a+ ', ' ') end

local function lenient(a) return not a or string.find(a, ' available ', 1, true) end

-- listed reports whether the proxy's list is the set, or that to come, and keeps the stricter word.
local function listed()
  if ARGV[4] == word or ARGV[4] == following then return true end
  if same(ARGV[4], word) then
    if lenient(word) and redis.pcall('HSET', KEYS[3], 'word', ARGV[4]) then word = ARGV[4] end
    return true
  end
  return same(ARGV[4], following)
end

local refusal
if not rec[1] or not word then
  refusal = {-1, now, replid, rec[1] and 1 or 0}
elseif not listed() then
  local set = redis.call('HMGET', KEYS[3], 'epoch', 'list', 'nextlist')
  refusal = {-4, tonumber(set[1]), set[2] .. (set[3] and ', and to come ' .. set[3] or '')}
else
  local quarantine, synced = tonumber(rec[2]), rec[3] == '1'
  if rec[1] ~= replid and lenient(ARGV[4]) and lenient(word) and lenient(following) then
    quarantine, synced, floor = 0, true, math.max(largest, us + skew)
    redis.call('HSET', KEYS[3], 'id', replid, 'until', '0', 'sync', '1', 'floor', int(floor))
  elseif rec[1] ~= replid then
    quarantine, synced = now + maxttl, false
    redis.call('HSET', KEYS[3], 'id', replid, 'since', now, 'until', quarantine, 'sync', '0')
  elseif quarantine > now + maxttl then -- the clock was stepped back
    quarantine = now + maxttl
    redis.call('HSET', KEYS[3], 'since', now, 'until', quarantine)
  end
  if now < quarantine then
    refusal = {-2, quarantine - now, maxttl}
  elseif not synced then
    refusal = {-3, now - quarantine, int(quarantine) .. ':' .. replid, maxttl}
  end
end

-- base is how many fields of a record are not holds; most is how many holds an owner may have.
local base, most = 9, 1000

-- ending and taken read the value of a hold.
local function ending(value) return tonumber(string.match(value, '^%d+')) end
local function taken(value) return tonumber(string.match(value, '%d+$')) end

-- live is the owner's live holds: ids, and the value by id. Ends after that of the lease are brought back to it; with prune,
-- holds that have ended are removed.
local function live(e, prune)
  local all, ids, values = redis.call('HGETALL', KEYS[1]), {}, {}
  for i = 1, #all, 2 do
    local id, value = all[i], all[i + 1]
    if #id > 1 then
      local at = ending(value)
      if at <= now then
        if prune then redis.call('HDEL', KEYS[1], id) end
      else
        if at > e then
          value = e .. ' ' .. taken(value)
          redis.call('HSET', KEYS[1], id, value)
        end
        ids[#ids + 1] = id
        values[id] = value
      end
    end
  end
  return ids, values
end

-- holder is who has the name: nil when it is free or the lease has lapsed; present is how many of the holds ARGV[from]
-- to ARGV[to] are there, live or not, and values are theirs, false for those that are not. An end beyond now + max-ttl is brought back,
-- so that a clock stepped back does not make a lock last for hours.
local function holder(from, to)
  local h = redis.call('HMGET', KEYS[1], 'o', 'e', 'f', 'a', 'l', 's', 'p', unpack(ARGV, from, to))
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
    live(e)
  end
  local present, values = 0, {}
  for i = from, to do
    values[i] = h[8 + i - from]
    if values[i] then present = present + 1 end
  end
  return {owner = h[1], ends = e, rest = e - now, fence = tonumber(h[3]), grant = h[4], lineage = h[5],
    number = tonumber(h[6]), told = h[7] == '1', present = present, values = values}
end

-- tag is that of a hold, nil if it has none.
local function tag(hold)
  if string.sub(hold, 17, 17) == '.' then return string.sub(hold, 1, 16) end
end

-- holds is how many live holds the owner has.
local function holds(e)
  local n = redis.call('HLEN', KEYS[1]) - base
  if n < 2 then return n end
  local ids, seen = live(e), {}
  n = #ids
  for _, id in ipairs(ids) do
    local t = tag(id)
    if t and seen[t] then n = n - 1 end
    if t then seen[t] = true end
  end
  return n
end

-- recall is what is remembered of a request (L or U, and the TAG), false if nothing is.
local function recall(request) return redis.call('GET', KEYS[3] .. ':' .. request) end

local function remember(request, value) redis.call('SET', KEYS[3] .. ':' .. request, value, 'PX', maxttl + 60000) end

-- given_back reports whether a hold, or the request that took it, was given back here: then it stays away, even if
-- other nodes granted the request again.
local function given_back(hold)
  local t = tag(hold)
  return recall('H' .. hold) or t and recall('L' .. t)
end

-- add takes holds that a proxy knows of the grant and this node lacks: pairs of id and ms left from ARGV[from] on. What was
-- given back stays away and none ends after the lease does here, so that nothing is prolonged.
local function add(h, from)
  if from > #ARGV then return end
  local ids = {}
  for i = from, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
  local there = redis.call('HMGET', KEYS[1], unpack(ids))
  for i, id in ipairs(ids) do
    if not there[i] and not given_back(id) then
      redis.call('HSET', KEYS[1], id, math.min(now + tonumber(ARGV[from + 2 * i - 1]), h.ends) .. ' ' .. now)
    end
  end
end

-- fences are the largest fence this node must assume was issued for the name; the largest it has seen of the name
-- itself, nil if none; the owner, fence and hold of the release it remembers, whether that owner had a grant since, and
-- the largest fence that was noted.
local function fences()
  local h = redis.call('HMGET', KEYS[2], 'c', 'o', 'f', 'a', 'n', 'm')
  local seen = h[1] and tonumber(h[1]) or nil
  return math.max(seen or largest, floor), seen, h[2], tonumber(h[3] or '0'), h[4], h[5] == '1', tonumber(h[6] or '0')
end

-- raise stores f as the name's largest fence if it is above those seen, and keeps the name's fences for their
-- retention: from the end of the longest lease, so that a release need not prolong it. A damaged counter, which no proxy
-- accepts, stays that name's.
local function raise(f, seen)
  if not seen or f > seen then redis.call('HSET', KEYS[2], 'c', int(f)) end
  redis.call('PEXPIRE', KEYS[2], retention + maxttl)
  if f > largest and f < 2^53 then redis.call('HSET', KEYS[3], 'g', int(f)) end
end

-- create makes the record of a grant with these holds, which all end at e. told is 1 in a renewal.
local function create(ids, grant, owner, e, fence, lineage, number, text, told)
  local fields = {}
  for _, id in ipairs(ids) do
    fields[#fields + 1] = id
    fields[#fields + 1] = e .. ' ' .. now
  end
  redis.call('HSET', KEYS[1], 'o', owner, 'e', e, 'f', int(fence), 'a', grant, 'l', lineage, 's', number, 'i', text,
    'g', now, 'p', told, unpack(fields))
  redis.call('PEXPIREAT', KEYS[1], e)
  spoke(redis.call)
end

-- extend sets the end of the lease.
local function extend(e)
  redis.call('HSET', KEYS[1], 'e', e)
  redis.call('PEXPIREAT', KEYS[1], e)
  spoke(redis.call)
end

-- alert publishes on the channel KEYS[3]:cut that the owner's lease ends earlier than it did, which no release says: the
-- length of the owner, a space, the owner, KEYS[1]. It is a hint for a proxy that keeps the lock for a session.
local function alert(owner) redis.pcall('PUBLISH', KEYS[3] .. ':cut', #owner .. ' ' .. owner .. KEYS[1]) end
