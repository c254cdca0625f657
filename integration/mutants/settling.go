package mutants

// Settling are the mutants of nodes that have a grant under another fence than its own. Unit tests of package quorum notice them.
var Settling = []Mutant{
	{
		Name:   "holds-of-another-record",
		Breaks: "holds are counted where the grant is: a node that was out at its LOCK, and has only what came later, tells an UNLOCK too few",
		Rare:   true,
		Edits:  []Edit{{"scripts/release.lua", "left = h.fence == fence and holds(ends) or -1", "left = holds(ends)"}},
	},
	{
		Name:   "late-vote-keeps-its-fence",
		Breaks: "a node that voted late under a larger fence takes over that of the grant: else the grant is lost with one other node",
		Rare:   true,
		Edits:  []Edit{{"scripts/settle.lua", "if fence >= c or late then", "if fence >= c then"}},
	},
	{
		Name:   "late-vote-of-a-lost-grant",
		Breaks: "not if it has seen a larger one before: it vouches for a grant that somebody else has had since",
		Rare:   true,
		Edits:  []Edit{{"scripts/settle.lua", " and fence >= math.max(h.before, floor)", ""}},
	},
	{
		Name:   "late-vote-keeps-its-counter",
		Breaks: "its counter goes with the fence: else the next late vote is above what was seen",
		Rare:   true,
		Edits:  []Edit{{"scripts/settle.lua", "if fence < c and seen == h.fence then", "if false then"}},
	},
	{
		Name:   "undo-leaves-its-fence",
		Breaks: "an undo forgets its fence: else no renewal gives the node the grant of the LOCK that won",
		Rare:   true,
		Edits:  []Edit{{"scripts/release.lua", "if not unlock and h.alone and seen == h.fence then", "if false then"}},
	},
	{
		Name:   "undo-forgets-a-told-fence",
		Breaks: "not where others were in the record: a re-entry may have been told the fence, and the next grant gets a smaller one",
		Rare:   true,
		Edits:  []Edit{{"scripts/release.lua", "if not unlock and h.alone and", "if not unlock and h.before and"}},
	},
	{
		Name:   "renewal-leaves-no-trace",
		Breaks: "a renewal that brings a hold counts as an entry",
		Rare:   true,
		Edits:  []Edit{{"scripts/renew.lua", "'s', sequence, 'p', entered(h)}", "'s', sequence}"}},
	},
	{
		Name:   "re-entry-leaves-no-trace",
		Breaks: "a re-entry counts as an entry: else an UNLOCK takes the record for one with a single hold, and frees the name",
		Rare:   true,
		Edits:  []Edit{{"scripts/acquire.lua", "(now + ttl) .. ' ' .. now, 'p', entered(h))", "(now + ttl) .. ' ' .. now)"}},
	},
	{
		Name:   "brought-hold-leaves-no-trace",
		Breaks: "so does a hold that an UNLOCK brings",
		Rare:   true,
		Edits:  []Edit{{"scripts/prologue.lua", "      h.alone = false\n", ""}},
	},
	{
		Name:   "release-of-a-prolonged-lease-keeps-no-fences",
		Breaks: "fences stay for their retention after a release: only of a lease that nobody prolonged has the LOCK seen to that",
		Rare:   true,
		Edits:  []Edit{{"scripts/release.lua", "if not (sole_hold and seen) then keep(", "if not seen then keep("}},
	},
	{
		Name:   "release-of-a-stale-grant-is-all",
		Breaks: "a node that has a later grant of the owner says so: else an UNLOCK that removes the older one at a late node leaves the later one",
		Rare:   true,
		Edits:  []Edit{{"scripts/release.lua", "lasthold == ARGV[first] and 1 or 0", "false and 1 or 0"}},
	},
}
