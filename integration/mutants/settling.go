package mutants

// Settling are the mutants of nodes that have a grant under another fence than its own. Unit tests of package quorum notice them.
var Settling = []Mutant{
	{
		Name:   "holds-of-another-record",
		Breaks: "holds are counted where the grant is: a node that was out at its LOCK, and has only what came later, tells an UNLOCK too few",
		Rare:   true,
		Edits:  []Edit{{"scripts/release.lua", "left = h.fence == fence and holds(ends) or -1", "left = holds(ends)"}},
	},
}
