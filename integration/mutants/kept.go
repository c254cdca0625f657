package mutants

// Kept are the mutants of locks without an end. Unit tests of package quorum notice them, and the simulation those that are not rare.
var Kept = []Mutant{
	{
		Name:    "kept-any-fence",
		Breaks:  "the fence of a grant is the one that a quorum has: by that of the node that was asked first the lock lapses where that node has another",
		Profile: "kept and clocks apart",
		Edits:   []Edit{{"backends/locks/quorum/open.go", "k := numbered{l.Holder, l.Fence}", "k := numbered{l.Holder, 0}"}},
	},
	{
		Name:    "kept-since-it-was-read",
		Breaks:  "max-hold counts from the grant: counted from when another proxy took over, a lock outlives it",
		Profile: "kept",
		Edits:   []Edit{{"backends/locks/quorum/read.go", "g.since = min(g.since, began-v.Read.Age)", "g.since = min(g.since, began)"}},
	},
	{
		Name:    "kept-for-ever",
		Breaks:  "the proxy that granted a lock ends it at max-hold as well",
		Profile: "kept",
		Edits:   []Edit{{"backends/locks/quorum/open.go", " && s.holdLeft(g, maxHold) > maxTTL", ""}},
	},
	{
		Name:   "kept-by-fewer",
		Breaks: "a lock has no end only if a quorum says so: by fewer, what EXPIRE has changed is renewed",
		Rare:   true,
		Edits:  []Edit{{"backends/locks/quorum/open.go", "case count(true) >= s.set.Quorum:", "case count(true) > 0:"}},
	},
	{
		Name:   "kept-over-an-end",
		Breaks: "only versions without an end are replaced: else an EXPIRE that is under way is undone where it was done",
		Rare:   true,
		Edits:  []Edit{{"backends/locks/quorum/open.go", "if !isOpen(votes[i].Version) {", "if false {"}},
	},
}
