package mutants

// Etcd are the mutants of locks in etcd. Tests of its package notice them; the simulation is of lock nodes.
var Etcd = []Mutant{
	{
		Name:   "etcd-unguarded",
		Breaks: "a name is written only if it is as it was decided on: else two owners have it",
		Rare:   true,
		Units:  Units{"backends/locks/etcd", "^Test(Contended|Torture)$"},
		Edits:  []Edit{{"backends/locks/etcd/change.go", "t.Compare = []compare{modIs(k.lock(q.key), v.mod), modIs(k.floor(), floorMod)}", "t.Compare = []compare{modIs(k.floor(), floorMod)}"}},
	},
	{
		Name:   "etcd-validity-from-the-answer",
		Breaks: "validity is counted from before the question: from the answer on, it outlives what others wait for",
		Rare:   true,
		Units:  Units{"backends/locks/etcd", "^TestValidity"},
		Edits:  []Edit{{"backends/locks/etcd/acquire.go", "until := d.began + a.TTL", "until := d.now + a.TTL"}},
	},
	{
		Name:   "etcd-validity-from-the-lease",
		Breaks: "validity is counted from before leases of etcd are looked for: else one ends before what is under it",
		Rare:   true,
		Units:  Units{"backends/locks/etcd", "^TestValidity"},
		Edits:  []Edit{{"backends/locks/etcd/change.go", "request, err := s.transaction(ctx, q, v, w, id, end-s.Now())", "request, err := s.transaction(ctx, q, v, w, id, end-s.Now())\n\t\td.began = s.Now()"}},
	},
	{
		Name:   "etcd-fence-of-the-proxy",
		Breaks: "the fence is of etcd: counted by each proxy, it goes back at another one",
		Rare:   true,
		Units:  Units{"backends/locks/etcd", "^Test(Fence|Contended|Torture)$"},
		Edits:  []Edit{{"backends/locks/etcd/change.go", "w.rec.Base = base", "w.rec.Base = base + s.stats.rounds.Load()<<10"}},
	},
	{
		Name:   "etcd-floor-is-believed",
		Breaks: "the floor of fences is checked by every change: where etcd was emptied, the one that is remembered is too low",
		Rare:   true,
		Units:  Units{"backends/locks/etcd", "^TestEmptied$"},
		Edits:  []Edit{{"backends/locks/etcd/change.go", "modIs(k.lock(q.key), v.mod), modIs(k.floor(), floorMod)}", "modIs(k.lock(q.key), v.mod)}\n\t_ = floorMod"}},
	},
	{
		Name:   "etcd-all-revisions",
		Breaks: "a fence is the floor and the revisions since: with those before, a floor that is made soon after may be below fences",
		Rare:   true,
		Units:  Units{"backends/locks/etcd", "^TestFence_"},
		Edits:  []Edit{{"backends/locks/etcd/leases.go", "f.base, f.mod = value-mod, mod", "f.base, f.mod = value, mod"}},
	},
	{
		Name:   "etcd-renewal-is-missed",
		Breaks: "a renewal voids what was seen before: else another proxy ends a hold that was renewed",
		Rare:   true,
		Units:  Units{"backends/locks/etcd", "^TestRenew"},
		Edits:  []Edit{{"backends/locks/etcd/memory.go", "same = same && e.n == h.N", "same = same && e.n <= h.N"}},
	},
	{
		Name:   "etcd-short-lease",
		Breaks: "a lease of etcd lasts longer than what is under it",
		Rare:   true,
		Units:  Units{"backends/locks/etcd", "^TestProxyIsGone$"},
		Edits:  []Edit{{"backends/locks/etcd/change.go", "put(k.lock(q.key), w.rec, w.need)", "put(k.lock(q.key), w.rec, 0)"}},
	},
	{
		Name:   "etcd-two-given-back",
		Breaks: "an UNLOCK whose answer was lost gives back one hold",
		Rare:   true,
		Units:  Units{"backends/locks/etcd", "^TestLostAnswers$"},
		Edits:  []Edit{{"backends/locks/etcd/release.go", "case v.resent && slices", "case false && slices"}},
	},
	{
		Name:   "etcd-request-unguarded",
		Breaks: "what became of a request is part of what a change is decided from: else a late LOCK takes what its UNLOCK gave back",
		Rare:   true,
		Units:  Units{"backends/locks/etcd", "^TestRequests$"},
		Edits: []Edit{{"backends/locks/etcd/change.go", `if q.tag != "" {
		t.Compare =`, `if q.tag == "-" {
		t.Compare =`}},
	},
	{
		Name:   "etcd-never-undone",
		Breaks: "a LOCK that was not answered is undone",
		Rare:   true,
		Units:  Units{"backends/locks/etcd", "^TestLostAnswers$"},
		Edits:  []Edit{{"backends/locks/etcd/chores.go", "freed, err := s.take(ctx, k, ids)", "freed, err := s.take(ctx, k, nil)"}},
	},
	{
		Name:   "etcd-hold-of-others-shortened",
		Breaks: "a re-entry keeps the key for as long as the longest hold",
		Rare:   true,
		Units:  Units{"backends/locks/etcd", "^TestLongestHold$"},
		Edits:  []Edit{{"backends/locks/etcd/acquire.go", "need: max(a.TTL, v.rest())", "need: a.TTL"}},
	},
	{
		Name:   "etcd-done-twice",
		Breaks: "a LOCK of a free name is done once: a member that wakes does it again, and the name was given back since",
		Rare:   true,
		Units:  Units{"backends/locks/etcd", "^TestLateLock$"},
		Edits:  []Edit{{"backends/locks/etcd/change.go", "t.Compare = append(t.Compare, modIs(w.once, 0))", "_ = 0"}},
	},
	{
		Name:   "etcd-refused-then-done",
		Breaks: "nor is it done when it was refused before",
		Rare:   true,
		Units:  Units{"backends/locks/etcd", "^TestLateLock$"},
		Edits:  []Edit{{"backends/locks/etcd/change.go", "t.Success, t.Failure = append(t.Success, mark), append(t.Failure, mark)", "t.Success = append(t.Success, mark)"}},
	},
	{
		Name:   "etcd-undone-then-done",
		Breaks: "nor when it was undone before",
		Rare:   true,
		Units:  Units{"backends/locks/etcd", "^TestLateLock$"},
		Edits:  []Edit{{"backends/locks/etcd/chores.go", "w == nil || w.once == nil", "true"}},
	},
}
