package mutants

// Decisions are mutants of what an adopted command does to a lock, and answers. Unit tests notice them.
var Decisions = []Mutant{
	{
		Name:   "clock-stops-in-suspend",
		Breaks: "a lease goes on while the machine of its proxy is suspended",
		Rare:   true,
		Units:  Units{"backends/locks", "^TestBootClock$"},
		Edits:  []Edit{{"backends/locks/clock.go", " && (wall-l.wall-passed).Abs() < wallMoved", ""}},
	},
	{
		Name:   "clock-counts-from-a-slow-reading",
		Breaks: "the proxy's clock is not ahead by what a reading of it took",
		Rare:   true,
		Units:  Units{"backends/locks", "^TestBootClock$"},
		Edits:  []Edit{{"backends/locks/clock.go", "if _, after := c.now(); after-awake < bootTook {", "if true {"}},
	},
	{
		Name:   "fence-of-another",
		Breaks: "INCR beside a lock counts grants of that lock: the key of another's fence would answer a number that is smaller than its last",
		Units:  scriptTests,
		Edits:  []Edit{{"commands/adopt/idiom/fence.go", "case w.fenceOf(args[1]) != w.key:", "case w.fenceOf(args[1]) == w.key+w.key:"}},
	},
	{
		Name:   "fence-without-a-grant",
		Breaks: "INCR answers the fence of the grant that the script takes: where it takes none there is nothing to answer",
		Units:  scriptTests,
		Edits:  []Edit{{"commands/adopt/idiom/fence.go", "if w.fenced && op.Do != Enter {", "if w.fenced && op.Do > Release {"}},
	},
	{
		Name:   "fence-of-the-last-holder",
		Breaks: "INCR answers the fence of this grant: the one that the proxy remembers is another's",
		Units:  adoptTests,
		Edits:  []Edit{{"commands/adopt/reenter.go", "c.Granted(taken.Fence)", "c.Granted(max(1, d.lock.grant.fence))"}},
	},
	{
		Name:   "fence-of-nobody",
		Breaks: "GET of a fence is refused where nobody has the lock: data that checks it would take 0 for the first",
		Units:  adoptTests,
		Edits:  []Edit{{"commands/adopt/fence.go", "case g.owner == \"\":", "case g.fence < 0:"}},
	},
	{
		Name:   "fence-by-any-command",
		Breaks: "the key of a fence is for INCR by a script and for GET: SET, DEL and EXPIRE of it have no meaning",
		Units:  adoptTests,
		Edits:  []Edit{{"commands/adopt/fence.go", "case name != \"GET\" || len(words) != 2:", "case name == \"INCR\":"}},
	},
	{
		Name:   "check-without-ends-of-the-nodes",
		Breaks: "a lock that ends at the nodes first will be at the upstream alone: programs that go on then have it as well",
		Units:  Units{"commands/adopt/migrate", "^TestCheck$"},
		Edits:  []Edit{{"commands/adopt/migrate/check.go", "stays && !r.Open && late > endsWithin", "stays && !r.Open && late == endsWithin"}},
	},
	{
		Name:   "check-without-ends-of-the-upstream",
		Breaks: "a lock that ends at the upstream first will be at the nodes alone: programs that go off then have it as well",
		Units:  Units{"commands/adopt/migrate", "^TestCheck$"},
		Edits:  []Edit{{"commands/adopt/migrate/check.go", "r.Open || late.Abs() > endsWithin", "r.Open || late > endsWithin"}},
	},
	{
		Name:   "counter-is-a-lock",
		Breaks: "a script that stores a number and wakes who waits sets permits, or a count: as a lock it would let one in",
		Units:  adoptTests,
		Edits:  []Edit{{"commands/adopt/idiom/world.go", "return isInt && slices.ContainsFunc(w.signals,", "return len(w.signals) > maxSignals && isInt && slices.ContainsFunc(w.signals,"}},
	},
	{
		Name:   "number-is-a-counter",
		Breaks: "a lock may have a number as its value, if nobody is told of it: SETNX of 1, or of a deadline",
		Units:  Units{"commands/adopt", "^TestDeadlines$"},
		Edits: []Edit{
			{"commands/adopt/idiom/world.go", "	if len(w.signals) == 0 {\n", "	if len(w.signals) < 0 {\n"},
			{"commands/adopt/idiom/world.go", "return isInt && slices.ContainsFunc(w.signals,", "return isInt || slices.ContainsFunc(w.signals,"},
		},
	},
	{
		Name:   "exec-compares-the-value",
		Breaks: "WATCH compares the grant, not the value: a client whose lock has ended would release the next one's, if all store the same",
		Units:  adoptTests,
		Edits: []Edit{
			{"commands/adopt/transaction.go", "if there.owner != g.owner || there.fence != g.fence {", "if there.confirmedState(now).Value != g.confirmedState(now).Value {"},
			{"commands/adopt/transaction.go", "d := decision{", `if there, err := a.read(ctx, newBurst().basis(), key); err == nil && there.confirmedState(now).Value == g.confirmedState(now).Value {
		g = there
	}
	d := decision{`},
		},
	},
	{
		Name:   "exec-without-the-fence",
		Breaks: "EXEC is done to one grant, which its fence tells from those of the same owner: a hash that has been left and entered anew is another lock",
		Units:  adoptTests,
		Edits:  []Edit{{"commands/adopt/reenter.go", "Owner: g.owner, Fence: g.fence, All: all,", "Owner: g.owner, All: all,"}},
	},
	{
		Name:   "watch-from-memory",
		Breaks: "WATCH asks the nodes: what another proxy has granted is not what this one remembers",
		Units:  adoptTests,
		Edits:  []Edit{{"commands/adopt/transaction.go", "found, err := a.read(ctx, conn.Burst().basis(), key)", "found, _ := a.guesses.Get(key)\n\tvar err error"}},
	},
	{
		Name:   "exec-beside-other-keys",
		Breaks: "a lock and a key of the upstream are not changed in one step, so both in a transaction are refused",
		Units:  adoptTests,
		Edits:  []Edit{{"commands/adopt/transaction.go", "case b.Queued:", "case b.Queued && b.Watched:"}},
	},
	{
		Name:   "deadline-taken-over",
		Breaks: "GETSET of a lock that somebody has changes nothing: by a client's clock that is ahead it would be taken away",
		Units:  adoptTests,
		Edits:  []Edit{{"commands/adopt/idiom/strings.go", "case w.deadlines.unit != NoDeadlines && before != nil:", "case w.deadlines.unit != NoDeadlines && before == args[0]:"}},
	},
	{
		Name:   "deadline-of-any-length",
		Breaks: "a lock is taken until a time that is not over max-ttl away, or refused: with less it would end before its holder thinks",
		Units:  adoptTests,
		Edits:  []Edit{{"commands/adopt/idiom/deadline.go", "if left < d.least || left > d.most {", "if left = min(left, d.most); left < d.least {"}},
	},
	{
		Name:   "endless-with-an-end",
		Breaks: "a lock that is taken without an end is kept: with one lease it ends while its holder works",
		Units:  adoptTests,
		Edits:  []Edit{{"commands/adopt/take.go", "return a.opt.MaxTTL, true, nil", "return a.opt.MaxTTL, false, nil"}},
	},
}
