-- handover: give back holds, and right behind that ask for the name for whoever is next. It is a call of release and one of
-- acquire at one instant: the two files stand before this one, as functions without arguments (see Compose in scripts.go), and
-- `ARGV` is a local of the script, so that each finds its own arguments there.
--   ARGV[5]  how many arguments of the release follow: those from ARGV[5] on in its file
--   ARGV[6..]  these, then those of the acquire
--   {reply of the release, reply of the acquire}   each as in its file
-- What the prologue has read is as it would be for the acquire alone: a release stores neither the node's largest fence nor its
-- floor, and what it stores of the proxy in the node record, the acquire stores once more.
-- An error of the release is the reply, and nothing of the acquire was done. Since Redis refuses only the first write of a
-- script (OOM), an acquire behind a release that freed the name is done on a full node too: its record takes the place of
-- the one that has gone.
local function pass(from, to) ARGV = {ARGV[1], ARGV[2], ARGV[3], ARGV[4], unpack(whole, from, to)} end

local last = 5 + whole[5]
pass(6, last)
local released = release()
pass(last + 1)
return {released, acquire()}
