-- prologue: stands before every script. It decides whether this node may vote.
--   KEYS[1]  the lock record, PREFIXlock:DB:NAME. A hash, gone when the name is free:
--            o     owner
--            e     end of the lease, the latest end of a hold, in ms of this node's clock
--            f     fence of the grant
--            a     the hold whose LOCK gave the grant its fence; names the grant
--            l, s  version of the lease: epoch and sequence
--            i     info
--            g     when it was granted, in ms
--            p     "1": this node did not grant it, a renewal reinstated it. Else "0 F" or "0+F", where F is the largest fence that
--                  the name may have had here before it, and the + says that other holds or renewals came since; "0": not known
--            every longer field is the id of one hold, with the value "end taken", both in ms. A hold that has ended
--            stays until e, and is not live: an unlock of the hold taken last means the same whether it has ended or
--            not. A hold that was requested under a request id has the id TAG.id, with a TAG of 16 bytes; holds with
--            one TAG were taken by one request, and count as one
--   KEYS[2]  the name's fences, PREFIXfence:DB:NAME. A hash:
--            c        the largest fence
--            o, a, f  owner, hold and fence of the last release
--            n        1 if that owner has had a grant since
--            m        the largest fence of a grant that a renewal may have shortened
--            w        the intent of a writer that waits for readers: its end in ms and its owner
--            x        the intent of one who waits for several names: its end in ms, since when it waits in us, and its owner
--   KEYS[3]  the node record, PREFIXnode. A hash:
--            id            the master_replid under which it was written
--            since, until  start and end of its quarantine in ms
--            sync          1 when the fence floor is restored
--            floor         that floor
--            g             the largest fence ever stored here
--            ttl           the largest max-ttl in use, in ms
--            m60000 4 safe 9f3c  for this max-ttl and word, the time when a proxy with these last made or kept a lease, in ms
--            readers       1 if any name has had readers
--            word, list    the set of lock nodes that this node is in, as ARGV[4] has it and for people
--            next, nextlist  the set that proxies are changing to
--            epoch, changed  the number of changes by an operator, and the time of the last one in ms
--            over          when the leases from before that one are over, see change: the epoch, the time, when that was found, a key
--            gen           names its last loss of memory
--            copied        its fence floor, if it votes since a copy
--            doubt         the end of the last of its doubts, in ms
--            copy, heard, purged, parts  of a copy that is under way, see copy
--            max           0, by which older proxies know a record of another format
--            about         a text for people of more than 64 bytes: with one Redis keeps the fields in a table, and does not look
--                          through a list for each of those below
--   KEYS[4]  only in a call about the lock of a reader: the lock record of the name. A reader's lock is one of its own, which no
--            other owner can have: KEYS[1] and KEYS[2] are its record and fences, PREFIXread:… and PREFIXreadfence:… A grant with PERMITS is a
--            reader's that has a seat: its name ends with / and the number of the seat
--   Others of a name, see beside:
--   PREFIXlockrDB:NAME  the owners that read it. A sorted set, by the end of the lease of each; so named that one SCAN finds it and KEYS[1]
--   PREFIXlocksDB:NAME  which owner was given a seat last, by seat. A hash; whether that owner still has it, its record says
--   PREFIXdoubt:DB:NAME  what this node is in doubt about: holds that it may have granted before it forgot. A hash by hold id: r, of a
--            reader, or w, and the owner. While it is there, until the last of them ends, this node does not vote about the name
--   Strings, which stay for a minute longer than the lease may run:
--   KEYS[3]:LTAG  a request that is over: the fence of the hold that was given back
--   KEYS[3]:UTAG  an unlock that is over: the holds left, the fence, and the hold that it gave back
--   KEYS[3]:HID   hold ID was given back: here it is neither granted nor reinstated any more; with a TAG, a hold of that request was
--   ARGV[1]  the proxy's max-ttl in ms   [2] skew allowed between clocks in us   [3] retention of fences in ms
--   ARGV[4]  the proxy's word: the format of the records, safe or available (whether a node that restarted goes through a
--            quarantine), and a hash of its list of lock nodes
-- refusal is nil on a node that votes. Else it is the reply of a script that needs a vote:
--   {-1, now ms, master_replid, older}  there is no node record; older 1: one of an older format
--   {-2, ms left, max-ttl, gen, ms}  in quarantine, which a copy may end in so many ms, -1: none may
--   {-3, ms since quarantine, its name, max-ttl}  the floor is not restored     {-4, epoch, list}  in another set than the proxy's
--   {-5, ms left, gen}  of one name: it is in doubt about it. abstains, below, returns this or the refusal
-- A node whose master_replid differs from the recorded one may have lost its memory: its quarantine begins here, in the
-- same atomic step as the call. It ends after max-ttl, or as soon as the node has copied what others know.
-- Scripts have no shebang: without one, Redis refuses the first write of a script that may not write (OOM, READONLY, MISCONF)
-- and no later one, so that nothing is left half done and a release works under OOM.
local t = redis.call('TIME')
local us = t[1] * 1000000 + t[2]
local now = (us - us % 1000) / 1000
local own, skew, retention = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local grants, waiting_since -- of acquireall

-- int formats a fence, which has more digits than .. keeps, or a time in ms: in two parts, since %.0f, and .., cost five times as
-- much, and %d takes no more than 31 bits everywhere. What is no fence, as in a damaged counter, stays what it is.
local function int(n)
  if not (n >= 0 and n < 2^53) then return string.format('%.0f', n) end
  local low = n % 100000000
  if n == low then return string.format('%d', n) end
  return string.format('%d%08d', (n - low) / 100000000, low)
end

local info = redis.pcall('INFO', 'replication')
local replid = 'embedded' -- a server without this section forgets only with its process
if type(info) == 'string' then
  local at = string.find(info, 'master_replid:', 1, true)
  if at then replid = string.sub(info, at + 14, at + 53) end
elseif not string.find(info.err, 'is not supported', 1, true) then
  return info
end

-- The node record as it was when the call came; false for a field that is missing.
local kept_id, kept_until, kept_sync, kept_largest, kept_floor, kept_ttl, kept_word, spoke_at, had_readers, gen, kept_doubt, copied_floor =
  unpack(redis.call('HMGET', KEYS[3], 'id', 'until', 'sync', 'g', 'floor', 'ttl', 'word', 'm' .. ARGV[1] .. ' ' .. ARGV[4], 'readers',
    'gen', 'doubt', 'copied'))
local largest, floor, longest = tonumber(kept_largest or '0'), tonumber(kept_floor or '0'), tonumber(kept_ttl or '0')

-- A node keeps words with a format by which proxies that would do harm are in another set: 2; 3 when it has had readers, beside whom
-- a proxy that does not know of them would let a writer in; 4 when it has heard of no proxy for max-ttl that may count a vote later
-- than rounds, which a copy relies on. plain is a word as proxies say it, stored as the node keeps it.
local bounded = kept_word and string.sub(kept_word, 1, 1) == '4'
local function plain(kept) return kept and (string.gsub(kept, '^[23]', '4')) end
local function stored(said) return bounded and said or (string.gsub(said, '^4', had_readers and '3' or '2')) end
local word = bounded and kept_word or plain(kept_word)
local rounds = 3000 -- ms after which proxies count no vote on a question, as RoundLimit in voters/round.go

-- maxttl is the largest max-ttl of the leases that may run here and of the proxy: a proxy with a smaller one must neither
-- shorten those leases nor let the quarantine be shorter than they are.
local maxttl, over = own, {}
if longest > own then
  local all = redis.call('HGETALL', KEYS[3])
  for i = 1, #all, 2 do
    local ttl = tonumber((string.match(all[i], '^m(%d+) ')))
    if ttl and tonumber(all[i + 1]) + ttl + 1000 > now then
      maxttl = math.max(maxttl, ttl)
    elseif ttl then
      over[#over + 1] = all[i]
    end
  end
end

-- spoke notes that this proxy makes or keeps a lease (call is redis.call), or may do so (redis.pcall).
local function spoke(call)
  if maxttl == longest and spoke_at and now - spoke_at < 1000 and now >= tonumber(spoke_at) then return end
  if #over > 0 then call('HDEL', KEYS[3], unpack(over)) end
  call('HSET', KEYS[3], 'ttl', maxttl, 'm' .. ARGV[1] .. ' ' .. ARGV[4], now)
end

-- following returns the word of the next set; false: there is none. Few calls need it.
local function following() return plain(redis.call('HMGET', KEYS[3], 'next')[1]) end

-- same reports whether two words name one list. If one says safe and the other available, the stricter one, safe, counts
-- until an operator changes the set.
local function same(a, b) return a and b and string.gsub(a, ' %a+ ', ' ') == string.gsub(b, ' %a+ ', ' ') end

local function lenient(a) return not a or string.find(a, ' available ', 1, true) end

-- listed reports whether the proxy's list is the node's set, or the next one. It stores the proxy's word if that is stricter.
local function listed()
  if ARGV[4] == word then return true end
  local to_come = following()
  if ARGV[4] == to_come then return true end
  if same(ARGV[4], word) then
    if lenient(word) and redis.pcall('HSET', KEYS[3], 'word', stored(ARGV[4])) then word = ARGV[4] end
    return true
  end
  return same(ARGV[4], to_come)
end

-- named_loss returns a name for a loss of this node's memory.
local function named_loss() return int(us) .. ':' .. string.sub(replid, 1, 8) end

-- copied_in returns in how many ms a copy may begin: when no proxy counts a vote any more that this node gave before it forgot, with
-- two percent for the drift of clocks.
local function copied_in()
  if not gen or not bounded then return -1 end
  local since = tonumber(redis.call('HMGET', KEYS[3], 'since')[1])
  if since > now then -- the clock was stepped back
    since = now
    redis.call('HSET', KEYS[3], 'since', now)
  end
  return math.max(since + rounds * 1.02 + 10 - now, 0)
end

local refusal
if not kept_id or not word then
  refusal = {-1, now, replid, kept_id and 1 or 0}
elseif not listed() then
  local set = redis.call('HMGET', KEYS[3], 'epoch', 'list', 'nextlist')
  refusal = {-4, tonumber(set[1]), set[2] .. (set[3] and ', and to come ' .. set[3] or '')}
else
  local quarantine, synced = tonumber(kept_until), kept_sync == '1'
  if kept_id ~= replid and lenient(ARGV[4]) and lenient(word) and lenient(following()) then
    quarantine, synced, floor = 0, true, math.max(largest, us + skew)
    redis.call('HSET', KEYS[3], 'id', replid, 'until', '0', 'sync', '1', 'floor', int(floor))
  elseif kept_id ~= replid then
    quarantine, synced, gen = now + maxttl, false, named_loss()
    redis.call('HSET', KEYS[3], 'id', replid, 'since', now, 'until', quarantine, 'sync', '0', 'gen', gen)
  elseif quarantine > now + maxttl then -- the clock was stepped back
    quarantine = now + maxttl
    redis.call('HSET', KEYS[3], 'since', now, 'until', quarantine)
  end
  if now < quarantine then
    refusal = {-2, quarantine - now, maxttl, gen or '', copied_in()}
  elseif not synced then
    refusal = {-3, now - quarantine, int(quarantine) .. ':' .. replid, maxttl}
  end
end

-- beside is a key of another kind for the same name: fence:, lockr, locks or doubt:.
local function beside(kind)
  local prefix = string.sub(KEYS[3], 1, -5) -- without node
  return prefix .. kind .. string.sub(KEYS[4] or KEYS[1], #prefix + 6) -- without lock:
end

-- tag returns the TAG of a hold; nil: it has none.
local function tag(hold)
  if string.sub(hold, 17, 17) == '.' then return string.sub(hold, 1, 16) end
end

-- abstains returns the refusal of a call about a name; nil: this node votes about it. Ends beyond now + max-ttl are set to that, as in
-- holder.
local doubt = tonumber(kept_doubt or '0')
local function abstains()
  if refusal or doubt <= now then return refusal end
  local key = beside('doubt:')
  local left = redis.call('PTTL', key)
  if left > maxttl then redis.call('PEXPIRE', key, int(maxttl)) end
  if left > 0 then return {-5, left, gen} end
end

-- no_doubt removes holds that were given back from what this node is in doubt about.
local function no_doubt(ids, tags)
  if doubt <= now then return end
  local gone, key = {unpack(ids)}, beside('doubt:')
  for _, id in ipairs(next(tags) and redis.call('HKEYS', key) or {}) do
    if tags[tag(id) or ''] then gone[#gone + 1] = id end
  end
  redis.call('HDEL', key, unpack(gone))
end

-- certain removes all holds of an owner from what this node is in doubt about, those of a reader or the others.
local function certain(owner)
  local key, its = beside('doubt:'), (KEYS[4] and 'r' or 'w') .. owner
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    if all[i + 1] == its then redis.call('HDEL', key, all[i]) end
  end
end

-- reader returns the owner other than this one that reads the name for longest, and the end of its lease; nil: nobody else
-- reads it. Ends beyond now + max-ttl are set to that, as in holder.
local function reader(owner)
  if not had_readers then return end
  local key, limit = beside('lockr'), now + maxttl
  local last = redis.call('ZREVRANGE', key, 0, 1, 'WITHSCORES')
  if last[2] and tonumber(last[2]) > limit then
    for _, far in ipairs(redis.call('ZRANGEBYSCORE', key, '(' .. int(limit), '+inf')) do redis.call('ZADD', key, int(limit), far) end
    last = redis.call('ZREVRANGE', key, 0, 1, 'WITHSCORES')
  end
  for i = 1, #last, 2 do
    local e = tonumber(last[i + 1])
    if last[i] ~= owner and e > now then return last[i], e end
  end
end

-- seat_of returns the seat of a grant; nil: it has none.
local function seat_of(grant) return KEYS[4] and string.match(grant, '/(%d+)$') end

-- sitter returns the owner other than this one that has a seat, and the end of its lease; nil: the seat is free. An end beyond
-- now + max-ttl is set to that, as in holder.
local function sitter(seat, owner)
  local other = redis.call('HMGET', beside('locks'), seat)[1]
  if not other or other == owner then return end
  local key = string.sub(KEYS[1], 1, -1 - #owner) .. other -- the record of its reading
  local h = redis.call('HMGET', key, 'e', 'a')
  local e = tonumber(h[1] or '0')
  if e <= now or seat_of(h[2]) ~= seat then return end
  if e > now + maxttl then
    e = now + maxttl
    redis.call('HSET', key, 'e', int(e))
    redis.call('PEXPIREAT', key, int(e))
  end
  return other, e
end

-- long is whether a key that stays for the longest lease would stay for long after a short one.
local long = 2 * maxttl > retention

-- stay keeps a key for as long as a lease asks for, or where no lease is long for as long as the longest would, which costs no
-- question whether it is kept for longer already.
local function stay(key, ms, longest)
  if long then longest = math.max(ms, redis.call('PTTL', key)) end
  redis.call('PEXPIRE', key, int(longest))
end

-- reads has the set of readers follow the record of a reader whose lease ends at e; seat may be nil. It comes before the record: if it may not
-- write, nothing is written.
local function reads(owner, e, seat)
  local key = beside('lockr')
  redis.call('ZADD', key, int(e), owner)
  stay(key, e - now, maxttl)
  if seat then stay(beside('locks'), e - now, maxttl) end
  if not had_readers then
    had_readers = '1'
    redis.call('HSET', KEYS[3], 'readers', '1', 'word', stored(word))
    if following() then redis.call('HSET', KEYS[3], 'next', stored(following())) end
  end
end

-- writer returns the owner other than this one that has the name for itself, the end of its lease and its fence; nil: there
-- is none. If this owner has it, a fence that its LOCK raised may be told to the reader: no undo and no settle may lower it
-- any more, so what it was before is marked as not known.
local function writer(owner)
  local h = redis.call('HMGET', KEYS[4], 'o', 'e', 'f', 'p')
  if not h[1] or tonumber(h[2]) <= now then return end
  if h[1] ~= owner then return h[1], math.min(tonumber(h[2]), now + maxttl), tonumber(h[3]) end
  if h[4] ~= '0' and h[4] ~= '1' then redis.call('HSET', KEYS[4], 'p', '0') end
end

-- rival returns an owner that keeps this one from having the grant, the end of its lease, and the fence if it has the name for
-- itself; nil: there is none. Who has its seat is not named: that owner has not got the lock of this one. For a reader it matters
-- where its record is here, too: when that has lapsed and others got the name, it may be read again if the clock is stepped back
-- before Redis has removed it. A writer's record is looked at by whoever gets the name next, and so removed.
local function rival(owner, grant)
  if not KEYS[4] then return reader(owner) end
  local other, e, its = writer(owner)
  local seat = not other and seat_of(grant)
  if seat then
    local sits, its_end = sitter(seat, owner)
    return sits and '', its_end
  end
  return other, e, its
end

-- raise_name stores f as the largest fence of the name that is read, if it is above seen; left is as in raise.
local function raise_name(left, f, seen)
  if seen and f <= seen then return end
  redis.call('HSET', beside('fence:'), 'c', int(f))
  stay(beside('fence:'), retention + left, retention + maxttl)
end

-- base is the number of fields of a lock record that are not holds; most is the number of holds that an owner may have.
local base, most = 9, 1000

-- ending and taken read the value of a hold.
local function ending(value) return tonumber(string.match(value, '^%d+')) end
local function taken(value) return tonumber(string.match(value, '%d+$')) end

-- live returns the ids of the owner's live holds, and their values by id. Ends after e, that of the lease, are set to e; with
-- prune, holds that have ended are removed.
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

-- holder reads the lock record: nil if the name is free or the lease has ended. present is the number of the holds
-- ARGV[from] to ARGV[to] that are here, live or not; values has their values, or false. Of the field p, reinstated is true if a
-- renewal reinstated the grant here; before is F, nil if it is not known; alone is true if there is no +. An end beyond
-- now + max-ttl is set to that, so that a clock stepped back does not make a lock last for hours. A record that is alone has
-- one hold: it was made by a LOCK.
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
    if KEYS[4] then reads(h[1], e, seat_of(h[4])) end -- whoever looked at the set before may have stored an earlier end
    redis.call('HSET', KEYS[1], 'e', e)
    redis.call('PEXPIREAT', KEYS[1], e)
    live(e)
  end
  local present, values = 0, {}
  for i = from, to do
    values[i] = h[8 + i - from]
    if values[i] then present = present + 1 end
  end
  local others, before = string.match(h[7] or '', '^0([ +])(%d+)$')
  return {owner = h[1], ends = e, rest = e - now, fence = tonumber(h[3]), grant = h[4], epoch = h[5],
    sequence = tonumber(h[6]), reinstated = h[7] == '1', before = tonumber(before), alone = others == ' ', present = present, values = values}
end

-- entered returns the field p for a record that gets another hold, or a renewal.
local function entered(h) return h.reinstated and '1' or h.before and '0+' .. int(h.before) or '0' end

-- holds returns the number of the owner's live holds; those with one TAG count as one.
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

-- recall returns what this node remembers of a request (L or U, and the TAG) or of a hold (H, and the id); false: nothing.
local function recall(request) return redis.call('GET', KEYS[3] .. ':' .. request) end

-- remember keeps that for a minute longer than the lease in question, which has so many ms left at most.
local function remember(request, value, left)
  redis.call('SET', KEYS[3] .. ':' .. request, value, 'PX', int(math.min(left, maxttl) + 60000))
end

-- given_back reports whether a hold, or the request that took it, was given back here: it must not return, even if other
-- nodes granted the request again.
local function given_back(hold)
  local t = tag(hold)
  return recall('H' .. hold) or t and recall('L' .. t)
end

-- add adds holds of the grant that the proxy knows and this node lacks: pairs of id and ms left from ARGV[from] on. Holds
-- that were given back are left out, and none ends after the lease here, so that nothing is prolonged.
local function add(h, from)
  if from > #ARGV then return end
  local ids = {}
  for i = from, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
  local there = redis.call('HMGET', KEYS[1], unpack(ids))
  for i, id in ipairs(ids) do
    if not there[i] and not given_back(id) then
      redis.call('HSET', KEYS[1], id, math.min(now + tonumber(ARGV[from + 2 * i - 1]), h.ends) .. ' ' .. now, 'p', entered(h))
      h.alone = false
    end
  end
end

-- fences returns the largest fence that may have been issued for the name; the largest that this node has seen of the name,
-- nil if none; and these fields of KEYS[2], false where they are missing.
local function fences(...)
  local h = redis.call('HMGET', KEYS[2], 'c', ...)
  local seen = h[1] and tonumber(h[1]) or nil
  return math.max(seen or largest, floor), seen, unpack(h, 2)
end

-- keep has KEYS[2] stay after its last use, which is about a lease that has so many ms left. That of a reader guards against late
-- messages only: the name's own fences are not below it.
local function keep(left)
  if KEYS[4] then stay(KEYS[2], 60000 + 2 * left, 60000 + 2 * maxttl) else stay(KEYS[2], retention + left, retention + maxttl) end
end

-- raise stores f as the name's largest fence if it is above seen, and keeps the name's fences for their retention, counted
-- from the end of the lease, which has so many ms left, so that a release need not prolong it. A damaged counter, which no proxy
-- accepts, does not become the node's largest fence. With a larger fence other fields of KEYS[2] are stored.
local function raise(left, f, seen, ...)
  local text = int(f)
  if not seen or f > seen then redis.call('HSET', KEYS[2], 'c', text, ...) end
  keep(left)
  if f > largest and f < 2^53 then
    redis.call('HSET', KEYS[3], 'g', text)
    largest = f
  end
end

-- create writes the record of a grant with these holds, which all end at e.
local function create(ids, grant, owner, e, fence, epoch, sequence, text, p)
  local fields, at, since = {}, int(e), int(now)
  for _, id in ipairs(ids) do
    fields[#fields + 1] = id
    fields[#fields + 1] = at .. ' ' .. since
  end
  if KEYS[4] then
    local seat = seat_of(grant)
    if seat then redis.call('HSET', beside('locks'), seat, owner) end
    reads(owner, e, seat)
  end
  redis.call('HSET', KEYS[1], 'o', owner, 'e', at, 'f', int(fence), 'a', grant, 'l', epoch, 's', sequence, 'i', text,
    'g', since, 'p', p, unpack(fields))
  redis.call('PEXPIREAT', KEYS[1], at)
  spoke(redis.call)
end

-- extend sets the end of the owner's lease, under this grant.
local function extend(owner, grant, e)
  local at = int(e)
  if KEYS[4] then reads(owner, e, seat_of(grant)) end
  redis.call('HSET', KEYS[1], 'e', at)
  redis.call('PEXPIREAT', KEYS[1], at)
  spoke(redis.call)
end

-- alert publishes on the channel KEYS[3]:cut that the owner's lease ends earlier than before, without a release: the length
-- of the owner, a space, the owner, KEYS[1]. It is a hint for a proxy that keeps the lock for a session. why may be "forced ", or
-- "given " and the fence of a grant that its owner has given back.
local function alert(owner, why) redis.pcall('PUBLISH', KEYS[3] .. ':cut', (why or '') .. #owner .. ' ' .. owner .. KEYS[1]) end

-- shortened publishes "fence cut" where releases of the name are published: the lease ends earlier than those who wait were told.
local function shortened(fence) redis.pcall('PUBLISH', KEYS[4] or KEYS[1], int(fence) .. ' cut') end
