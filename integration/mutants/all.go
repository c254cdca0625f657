package mutants

// All are the mutants.
var All = []Mutant{
	{
		Name:   "quorum-less-one",
		Breaks: "a majority decides: half of the nodes, or fewer, grant to one owner while the others grant to another",
		Edits: []Edit{
			{"backends/locks/service.go", "quorum: len(o.Nodes)/2 + 1,", "quorum: max(1, len(o.Nodes)/2),"},
		},
	},
	{
		Name:   "undo-by-owner",
		Breaks: "an undo removes exactly the hold of its attempt: a late one takes the owner's other holds with it",
		Edits: []Edit{
			{"scripts/release.lua", "local removed, left, told, listeners = 0, 0, false, 0\n", `if mine and not unlock then
  for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do
    if #id > 1 then given[#given + 1] = id end
  end
  h.present = 1
end
local removed, left, told, listeners = 0, 0, false, 0
`},
		},
	},
	{
		Name:   "no-second-round",
		Breaks: "a quorum carries the fence of a grant before it is told: the next quorum may not have seen it, and fences go backwards",
		Edits: []Edit{
			{"backends/locks/lock.go", "if err := s.settle(ctx, a, votes, t.fence); err != nil {", "if err := error(nil); err != nil {"},
			{"backends/locks/lock.go", "if v.ballot == yes && !carries(v, fence) {\n\t\ts.nodes[i].push(", "if false {\n\t\ts.nodes[i].push("},
		},
	},
	{
		Name:   "no-quarantine",
		Breaks: "a node that may have forgotten leases does not vote for max-ttl: it grants what another still has",
		Edits: []Edit{
			{"scripts/prologue.lua", "local available = ARGV[4] == 'available'", "local available = true"},
		},
	},
	{
		Name:   "renewal-after-validity",
		Breaks: "a renewal counts only before the old validity ended: a lease that has lapsed on a quorum is put back there",
		Edits:  lateRenewals,
	},
	{
		Name:   "revival",
		Breaks: "a renewal counts only in time, and puts back nothing that another has had since: a lock comes back with a smaller fence",
		Edits: append([]Edit{
			{"scripts/renew.lua", "(seen and seen > fence)", "false"},
		}, lateRenewals...),
	},
	{
		Name:   "relative-holds",
		Breaks: "holds are a set of ids: a repeated release, or the undo of a re-entry that a node never saw, takes another hold away",
		Edits: []Edit{
			{"scripts/release.lua", "local removed, left, told, listeners = 0, 0, false, 0\n", `if mine then
  local n = #given
  given = {}
  for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do
    if #id > 1 and #given < n then given[#given + 1] = id end
  end
  h.present = 1
end
local removed, left, told, listeners = 0, 0, false, 0
`},
		},
	},
	{
		Name:   "validity-from-the-reply",
		Breaks: "the clock of a grant starts before the first byte is sent: a slow round is told as much validity as a fast one",
		Edits: []Edit{
			{"backends/locks/lock.go", "validity := t.rest - (now - a.began) - drift(t.rest)", "validity := t.rest"},
		},
	},
}

// lateRenewals lets the proxy renew what it remembers, however long ago it ended.
var lateRenewals = []Edit{
	{"backends/locks/memory.go", "p.until <= now || (fence != 0 && p.fence != fence)", "(fence != 0 && p.fence != fence)"},
	{"backends/locks/memory.go", "p.until <= now || p.fence != fence", "p.fence != fence"},
	{"backends/locks/renew.go", "\tif began >= g.until {\n\t\treturn 0, gone, nil, nil\n\t}\n", ""},
	{"backends/locks/renew.go", "(now >= g.until || now >= until)", "now >= until"},
}
