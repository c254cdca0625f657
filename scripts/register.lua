-- register: write the node record of a node that has none.
--   ARGV  new, forgot or force; for new: now in ms and master_replid as the node gave them when all nodes had none
--   {1, largest fence}  the node votes     {0}  new, but too long ago: ask all nodes again     else its refusal
-- new     the node never took part: it votes at once, its floor at the clock. Only within a second of the look at it,
--         so that a late order does not enlist a node that took part meanwhile and has forgotten.
-- forgot  it took part and lost its memory: quarantine.
-- force   an operator's word that it is new, also over a quarantine. The only one that changes an existing record.
local how = ARGV[5]
if rec[1] and (how ~= 'force' or not refusal or refusal[1] == -4) then return refusal or {1, largest} end
if how == 'new' then
  local age = now - tonumber(ARGV[6])
  if age < 0 or age > 1000 or replid ~= ARGV[7] then return {0} end
end
if how == 'forgot' and not available then
  redis.call('HSET', KEYS[3], 'id', replid, 'until', now + maxttl, 'sync', '0', 'g', '0', 'floor', '0', 'max', maxttl)
  return {-2, maxttl}
end
local at = how == 'forgot' and us + skew or us
redis.call('HSET', KEYS[3], 'id', replid, 'until', '0', 'sync', '1', 'g', int(at), 'floor', int(at), 'max', maxttl)
return {1, at}
