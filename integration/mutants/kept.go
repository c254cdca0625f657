package mutants

// Kept are the mutants of locks without an end. The tests of package quorum notice them.
var Kept = []Mutant{
	{
		Name:   "kept-any-fence",
		Breaks: "the fence of a grant is the one that a quorum has: by that of the node that was asked first the lock lapses where that node has another",
		Edits:  []Edit{{"backends/locks/quorum/open.go", "k := numbered{l.Holder, l.Fence}", "k := numbered{l.Holder, 0}"}},
	},
	{
		Name:   "kept-since-it-was-read",
		Breaks: "max-hold counts from the grant: counted from when another proxy took over, a lock outlives it",
		Edits:  []Edit{{"backends/locks/quorum/renew.go", "g.since = min(g.since, began-v.Read.Age)", "g.since = min(g.since, began)"}},
	},
	{
		Name:   "kept-for-ever",
		Breaks: "the proxy that granted a lock ends it at max-hold as well",
		Edits:  []Edit{{"backends/locks/quorum/open.go", " && s.holdLeft(g, maxHold) > maxTTL", ""}},
	},
	{
		Name:   "kept-by-fewer",
		Breaks: "a lock has no end only if a quorum says so: by fewer, what EXPIRE has changed is renewed",
		Edits:  []Edit{{"backends/locks/quorum/open.go", "case count(true) >= s.set.Quorum:", "case count(true) > 0:"}},
	},
	{
		Name:   "kept-over-an-end",
		Breaks: "only versions without an end are replaced: else an EXPIRE that is under way is undone where it was done",
		Edits:  []Edit{{"backends/locks/quorum/open.go", "if !isOpen(votes[i].Version) {", "if false {"}},
	},
}
