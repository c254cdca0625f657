-- calls: calls of acquire, release and renew, one after the other at one instant. Their files stand before this one, as functions
-- without arguments (see Compose in scripts.go), and `KEYS` and `ARGV` are locals of the script, so that each finds its own there.
--   KEYS[3]  the node record; the others are those of the first call, and behind them, in the same order, of each further call that
--         has keys of its own: the record and the fences, and of a reader the record of the name
--   ARGV[5..]  for each call: acquire, release or renew; how many keys it has of its own, 0 if those of the call before are meant;
--         how many arguments follow; and these: those from ARGV[5] on in its file
--   {reply, reply ...}   each as in its file, or an error, which stops no other call
-- What the prologue has read is for each call as it would be if it came alone, or it changes what was read there.
-- Redis refuses only the first write of a script (OOM), so that what comes behind a release is done on a full node too.
-- An acquire is so only where it takes the place of what the release before it has freed.
local run, replies = {acquire = acquire, release = release, renew = renew}, {}
local key, at = 1, 5
while whole[at] do
  local call, own, last = run[whole[at]], tonumber(whole[at + 1]), at + 2 + whole[at + 2]
  if own > 0 then
    local name = key == 1 and 4 or key + 2
    KEYS = {keys[key], keys[key + 1], keys[3], own == 3 and keys[name] or nil}
    key = name + own - 2
  end
  ARGV = {ARGV[1], ARGV[2], ARGV[3], ARGV[4], unpack(whole, at + 3, last)}
  local done, reply = pcall(call)
  replies[#replies + 1] = (done or type(reply) == 'table') and reply or {err = reply}
  at = last + 1
end
return replies
