package mutants

// replacing are the mutants of a LOCK that takes the place of a grant.
var replacing = []Mutant{
	{
		Name:    "replace-whoever",
		Breaks:  "a node drops exactly the grant that is named: a late replacement, or one by what was read a while ago, drops a later one",
		Profile: "replacing",
		Edits:   []Edit{{"scripts/acquire.lua", "other = h.fence ~= known or h.owner ~= ARGV[12]", "other = false"}},
	},
	{
		Name:    "replace-where-free",
		Breaks:  "a node without the grant that is named grants nothing, also if the name is free: else it is given up twice",
		Profile: "replacing",
		Edits:   []Edit{{"scripts/acquire.lua", "elseif not h and replaces then", "elseif false then"}},
	},
	{
		Name:    "replace-unnoted",
		Breaks:  "a quorum notes what is to be replaced: else an UNLOCK of it succeeds by what its proxy remembers",
		Profile: "replacing",
		Edits: []Edit{
			{"backends/locks/quorum/acquire.go", "err = s.prepareReplace(ctx, &r)", "err = ctx.Err()"},
			{"scripts/acquire.lua", "if known > tonumber(noted or '0') then", "if false then"},
		},
	},
}
