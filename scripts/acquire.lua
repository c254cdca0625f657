-- acquire: grant the owner a hold of the name, unless another owner has it. A re-entry asks in the same way.
--   ARGV[5..13]  owner, ttl in ms, proposed fence, info, mode, id of the new hold, then the fence and the grant that the
--         proxy knows the owner to have (0 and empty: none); to replace, the fence and the owner of what is replaced; last, how
--         many ms readers are kept out if only readers are in the way; of a reader, the number of permits, 0 where that is not limited
--   ARGV[14..]   pairs: another hold of that grant, and the ms it has left
--   {1, fence, kept fence, ms left of the new hold, holds, epoch, sequence, grant}  granted. kept fence is 0 for a new
--       grant. On a re-entry fence is only a proposal, and no grant has it before a settle; kept fence is that of the
--       owner's grant, or -1 if a renewal reinstated the grant here, so that this node cannot vouch for it
--   {2, fence}  this request was granted before, with this fence, and given back; fence 0: this very hold was
--   {3, holds}  the owner has as many holds as it may have
--   {0, owner, ms left, fence, why}  another owner has the name; to replace also: the grant that is to be replaced is not
--       here, and owner is empty if the name is free. why is there only if the one in the way is not a writer: it is
--       readers, of which owner is the one with the latest end; upgrade, which is readers as well, and this owner is one, or
--       this owner reads without a permit and wants one;
--       intent, of a writer who waits for readers, or of one who waits for several names; or seat: the one that the hold names is another's. Behind that is each seat
--       below the number of permits that is free, and ms left is until the first of the others lapses
-- Without a grant nothing is written, except that what has ended is removed, and the intent of a writer that waits. In a call for
-- several names (acquireall) the grant is not made but left in grants, for when every name has been looked at. Repeating
-- the call changes nothing. The new hold ends ttl from now and prolongs no other hold; the version of the lease stays. Known
-- holds of the grant that are missing here are added: see add in the prologue.
-- A reader is granted its lock beside others, with the largest fence of the name as it stands, which so is not below that of
-- any writer before. It is raised only where this owner has read under as large a fence, so that the fences of an owner's
-- readings increase as well, for as long as its own are kept. With permits it is a larger one, as of a lock that is not read. A
-- writer who already reads the name may have it if nobody else does.
-- The modes:
--   plain  as above
--   fresh  if the owner's fence here is not above the known one, which a quorum has noted, its holds are dropped, their
--          requests are over, and the grant is a new one. A late message finds a larger fence, and is refused
--   alone  refused also if this owner has the name, except for holds of the same request
--   replace  granted only if exactly the grant named in ARGV[11..12], which a quorum has noted, is here, or holds of the
--          same request. Its holds are dropped and remembered as given back, and it is noted here too. Where the name is
--          free nothing is granted: else a grant that was given back, or was replaced already, could be replaced once more
local refusal = abstains()
if refusal then return refusal end
local owner, ttl, proposal, how = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[9]
local hold, known = ARGV[10], tonumber(ARGV[11])
local request = tag(hold)
local over = request and recall('L' .. request)
if over then return {2, tonumber(over)} end
if recall('H' .. hold) then return {2, 0} end
local h = holder(10, 10)
local mine, replaces = h and h.owner == owner, how == 'replace'
if h and h.owner ~= owner and not replaces then return {0, h.owner, h.rest, h.fence} end

local c, seen, last, intent, claim = fences('o', 'w', 'x')
local name -- the largest fence of the name that is read, as this node has seen it
if KEYS[4] then
  local f = redis.call('HMGET', beside('fence:'), 'c', 'w', 'x')
  name, intent, claim = f[1] and tonumber(f[1]), f[2], f[3]
  c = math.max(c, largest)
end
local fence = math.max(c + 1, math.min(math.max(proposal, us - skew), us + skew))
local seat, permits = seat_of(hold), KEYS[4] and tonumber(ARGV[13]) or 0
if name and not seat then -- up to its floor a node that forgot does not know which readings of this owner there were
  fence = math.max(name > floor and name or floor + 1, seen and seen + 1 or 0)
end

-- taken_seats is the reply to an owner that wants a seat which another one has.
local function taken_seats(other)
  local reply, first = {0, other, 0, 0, 'seat'}, math.huge
  for i = 0, permits - 1 do
    local whose, e = sitter(tostring(i), owner)
    if whose then first = math.min(first, e) else reply[#reply + 1] = i end
  end
  if first < math.huge then reply[3] = first - now end
  return reply
end

-- no_seat is the reply to an owner whose new grant cannot have the seat that the hold names: another has it, or it is not one of
-- the permits, or none is named where one is needed.
local function no_seat()
  if (seat and tonumber(seat) or -1) >= permits or permits > 0 and not seat then return taken_seats('') end
  local other = seat and sitter(seat, owner)
  return other and taken_seats(other)
end

local longest_intent = 10000 -- ms; no proxy asks for as much, so one that ends later is from before the clock was stepped back

-- kept_out returns the end of an intent of one who waits for several names, if it keeps this owner out; nil: it does not.
local function kept_out()
  local ends, since, whose = string.match(claim or '', '^(%d+) (%d+) (.*)$')
  ends = tonumber(ends) or 0
  if ends <= now or ends > now + longest_intent or whose == owner or waiting_since and waiting_since < tonumber(since) then return end
  return ends
end

-- in_the_way is the reply to an owner that does not have the name, if others keep it from getting it.
local function in_the_way()
  local ends, whose = string.match(intent or '', '^(%d+) (.*)$')
  ends = tonumber(ends) or 0
  local waits = ends > now and ends <= now + longest_intent
  if KEYS[4] then
    local other, e, its = writer(owner)
    if other then return {0, other, e - now, its} end
    if waits and whose ~= owner then return {0, '', ends - now, 0, 'intent'} end
    local till = kept_out()
    if till then return {0, '', till - now, 0, 'intent'} end
    return no_seat()
  end
  local other, e = reader(owner)
  local till = not other and kept_out()
  if till then return {0, '', till - now, 0, 'intent'} end
  if not other then
    if whose == owner then redis.call('HDEL', KEYS[2], 'w') end
    return
  end
  if tonumber(redis.call('ZSCORE', beside('lockr'), owner) or '0') > now then return {0, other, e - now, 0, 'upgrade'} end
  local ms = tonumber(ARGV[13])
  if ms > 0 and (not waits or whose == owner) then
    redis.call('HSET', KEYS[2], 'w', int(now + ms) .. ' ' .. owner)
    keep(ms)
  end
  return {0, other, e - now, 0, 'readers'}
end

if not mine then
  local no = in_the_way()
  if no then return no end
elseif KEYS[4] then
  local other, e, its = rival(owner, h.grant)
  if other then return {0, other, e - now, its or 0} end
end

local without = mine and permits > 0 and h.present == 0 and not seat_of(h.grant) -- it reads without the permit that it wants
if without and how ~= 'fresh' then return {0, h.owner, h.rest, h.fence, 'upgrade'} end
local dropped -- the record whose place the grant takes
if h and h.present == 0 and how ~= 'plain' then
  local same = false
  for _, id in ipairs(request and h.owner == owner and redis.call('HKEYS', KEYS[1]) or {}) do same = same or tag(id) == request end
  local other = h.fence > known
  if replaces then other = h.fence ~= known or h.owner ~= ARGV[12] end
  if not same and (how == 'alone' or other) then return {0, h.owner, h.rest, h.fence} end
  if same and without then return {0, h.owner, h.rest, h.fence, 'upgrade'} end
  local no = not same and KEYS[4] and no_seat()
  if no then return no end
  if not same then dropped, h = h, nil end
elseif not h and replaces then
  return {0, '', 0, (fences())}
end

if h and h.present == 0 and redis.call('HLEN', KEYS[1]) - base >= most then
  local n = #live(h.ends, true)
  if n >= most then return {3, n} end
end

-- drop removes the record that is replaced, or begun anew.
local function drop()
  for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do
    if replaces and #id > 1 then
      remember('H' .. id, hold, dropped.rest)
    elseif tag(id) then
      remember('L' .. tag(id), int(dropped.fence), dropped.rest)
    end
  end
  if replaces then
    local _, _, noted = fences('m')
    if known > tonumber(noted or '0') then redis.call('HSET', KEYS[2], 'm', ARGV[11]) end
    alert(dropped.owner)
  end
  redis.call('DEL', KEYS[1])
end

-- enter adds the hold to those of the owner.
local function enter()
  local ends = h.ends
  if h.present == 0 then
    if h.fence == known and h.grant == ARGV[12] then add(h, 14) end
    ends = math.max(ends, now + ttl)
    redis.call('HSET', KEYS[1], hold, (now + ttl) .. ' ' .. now, 'p', entered(h))
    if ends > h.ends then
      extend(owner, h.grant, ends)
      if long then keep(ends - now) end
    end
  else -- a RENEW has added it, maybe with less time
    ttl = math.min(ttl, ending(h.values[10]) - taken(h.values[10]))
  end
  return {1, fence, h.reinstated and -1 or h.fence, ttl, holds(ends), h.epoch, h.sequence, h.grant}
end

local function grant()
  if h then return enter() end
  if dropped then drop() end
  create({hold}, hold, owner, now + ttl, fence, hold, '0', ARGV[8], '0 ' .. int(math.max(seen or 0, floor)))
  if last == owner then raise(ttl, fence, seen, 'n', '1') else raise(ttl, fence, seen) end
  if KEYS[4] then
    raise_name(ttl, fence, name)
    -- those who gave it back are not there any more; not before: behind another write a full node takes the grant
    if us % 16 == 0 then redis.pcall('ZREMRANGEBYSCORE', beside('lockr'), '-inf', now) end
  end
  return {1, fence, 0, ttl, 1, hold, 0, hold}
end

if grants then grants[#grants + 1] = grant else return grant() end
