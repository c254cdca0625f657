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
		Edits:  []Edit{{"scripts/renew.lua", "'s', number, 'p', entered(h)}", "'s', number}"}},
	},
}
