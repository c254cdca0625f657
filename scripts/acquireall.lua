-- acquireall: grant the owner a hold of each of several names, or of none of them. It calls acquire for each name, which stands before
-- this file as a function (see Compose in scripts.go); a name is granted when every one of them has been looked at. `ARGV` and
-- `KEYS` are locals of the script, so that acquire finds what is its own there.
--   KEYS[4..]  of a reader the record of the first name; then what KEYS[1], KEYS[2], and of a reader KEYS[4], are for each further name
--   ARGV[5]  how many keys each name has beside KEYS[3]: 2, of a reader 3
--   ARGV[6]  how many ms owners that are new to these names are kept out, if not all are granted; 0: they are not
--   ARGV[7]  since when the owner waits, in us of its proxy's clock: of two who keep others out, who has waited longer does; empty: it
--         has not waited
--   ARGV[8..]  for each name, how many arguments acquire gets from its ARGV[5] on, and these
--   {1, reply, reply ...}  that of acquire for each name, or {4}: it would have been granted, if all had been
-- A node that is in doubt about one of the names refuses as it does for that one.
-- Without the grant of all nothing is written but what acquire writes then, and the intent to have these names.
if refusal then return refusal end
local width, keep_out = tonumber(whole[5]), tonumber(whole[6])
local calls, replies, key, at = {}, {1}, 1, 8
grants, waiting_since = {}, tonumber(whole[7])
while whole[at] do
  local name = key == 1 and 4 or key + 2
  KEYS = {keys[key], keys[key + 1], keys[3], width == 3 and keys[name] or nil}
  key = name + width - 2
  local last = at + tonumber(whole[at])
  ARGV = {ARGV[1], ARGV[2], ARGV[3], ARGV[4], unpack(whole, at + 1, last)}
  calls[#calls + 1] = {keys = KEYS, args = ARGV, refused = acquire()}
  at = last + 1
end

for _, call in ipairs(calls) do
  if call.refused and call.refused[1] < 0 then return call.refused end
end
local all = #grants == #calls
for i, call in ipairs(calls) do
  KEYS, ARGV = call.keys, call.args
  replies[i + 1] = all and grants[i]() or call.refused or {4}
end
if not all and keep_out > 0 then
  for _, call in ipairs(calls) do
    KEYS = call.keys
    local key = beside('fence:')
    local ends, since, whose = string.match(redis.call('HMGET', key, 'x')[1] or '', '^(%d+) (%d+) (.*)$')
    if not ends or tonumber(ends) <= now or whose == call.args[5] or tonumber(since) > waiting_since then
      redis.call('HSET', key, 'x', int(now + keep_out) .. ' ' .. whole[7] .. ' ' .. call.args[5])
      stay(key, retention + keep_out, retention + maxttl)
    end
  end
end
return replies
