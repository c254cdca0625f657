package mutants

// Migration are the mutants of locks that upstream and nodes both decide, while programs move. The tests of package
// adopt notice them.
var Migration = []Mutant{
	{
		Name:   "both-upstream-decides",
		Breaks: "a lock that the nodes refuse is not held: without that a program beside one in the mode on has it with that",
		Edits:  []Edit{{"commands/adopt/both.go", "\tcase err == nil && r.did != idiom.Nothing:\n", "\tcase err == nil:\n"}},
	},
	{
		Name:   "both-not-given-back",
		Breaks: "what the nodes refuse is given back at the upstream: otherwise nobody gets the lock until its ttl is over",
		Edits:  []Edit{{"commands/adopt/both.go", "if time.Since(since) >= took.TTL/2 {", "if took.TTL > 0 {"}},
	},
	{
		Name:   "both-given-back-late",
		Breaks: "past half of its lease a key is left to end: it may be another client's, with the same value",
		Edits:  []Edit{{"commands/adopt/both.go", "if time.Since(since) >= took.TTL/2 {", "if took.TTL == 0 {"}},
	},
	{
		Name:   "both-forgets-on",
		Breaks: "a grant made in the mode on is at the nodes alone: taken for one of both it can be neither extended nor released where its proxy was switched back",
		Edits:  []Edit{{"commands/adopt/both.go", "if g.made != madeOn {", "if g.made != elsewhere {"}},
	},
	{
		Name:   "both-without-the-upstream",
		Breaks: "a grant made in both that is gone at the upstream is lost: a program that goes past the proxies may have the lock",
		Edits:  []Edit{{"commands/adopt/both.go", "if g.made != madeOn {", "if g.made == elsewhere {"}},
	},
	{
		Name:   "both-believes-attempts",
		Breaks: "a key that clients in both have at the upstream for a moment is nobody's lock: who has it from the mode on could not extend it",
		Edits:  []Edit{{"commands/adopt/both.go", "const upstreamLooks = 5", "const upstreamLooks = 1"}},
	},
	{
		Name:   "both-copy-of-each",
		Breaks: "only a grant made in both has a copy at the upstream: by value, that of another's grant would be deleted",
		Edits:  []Edit{{"commands/adopt/copy.go", "if g.made != madeBoth ||", "if g.made == elsewhere ||"}},
	},
	{
		Name:   "both-any-reply",
		Breaks: "a reply must tell whether the upstream's key has changed",
		Edits:  []Edit{{"commands/adopt/idiom/replies.go", "case same.do == Nothing && changed.overlaps(&same):", "case same.do == Nothing && changed.overlaps(&same) && c.key == \"\":"}},
	},
	{
		Name:   "both-takes-nothing-over",
		Breaks: "a lock that was taken in off goes on when it is extended in both: without that a migration loses each that is held over the step",
		Edits:  []Edit{{"commands/adopt/both.go", "a.takeOver(ctx, conn, c, u); over || err != nil {", "a.takeOver(ctx, conn, c, u); over && err != nil {"}},
	},
	{
		Name:   "both-over-beside-on",
		Breaks: "while a proxy is on, another may have had the lock at the nodes: its old holder is not told that it has it still",
		Edits:  []Edit{{"commands/adopt/over.go", "AnyOn(ctx, key.DB, key.Name); on || err != nil {", "AnyOn(ctx, key.DB, key.Name); on && err != nil {"}},
	},
	{
		Name:   "both-over-any-value",
		Breaks: "a lock is taken over for who has it by its value: another may have it by now",
		Edits:  []Edit{{"commands/adopt/over.go", "out.Op.Do != idiom.Renew ||", "out.Op.Do > idiom.Release ||"}},
	},
	{
		Name:   "both-over-the-nodes",
		Breaks: "what the nodes have granted to another is not taken over",
		Edits:  []Edit{{"commands/adopt/over.go", "return r.did == idiom.Renew, err", "return r.did <= idiom.Release, err"}},
	},
	{
		Name:   "both-over-by-one-look",
		Breaks: "the upstream must have the lock when the nodes have granted it: it may have been released before that",
		Edits:  []Edit{{"commands/adopt/over.go", "case still.Kind != has.Kind || still.Value != has.Value:", "case still.Kind > idiom.Native:"}},
	},
	{
		Name:   "both-over-not-undone",
		Breaks: "where the upstream has the lock no more the nodes' grant is undone: otherwise nobody gets it until its ttl is over",
		Edits:  []Edit{{"commands/adopt/over.go", "undo(granted)\n\t\treturn false, nil", "return false, nil"}},
	},
	{
		Name:   "both-over-late",
		Breaks: "a lock is not extended by an answer that comes when its lease is over",
		Edits:  []Edit{{"commands/adopt/over.go", "case time.Since(u.began) >= u.lease():", "case u.lease() == 0:"}},
	},
	{
		Name:   "both-over-one-hold",
		Breaks: "a hash is taken over with all its holds: the first release of several must not free it",
		Edits:  []Edit{{"commands/adopt/over.go", "holds <= max(1, has.Count)", "holds <= 1"}},
	},
	{
		Name:   "both-batch-upstream-decides",
		Breaks: "each lock of a script on several is extended by the nodes as well",
		Edits:  []Edit{{"commands/adopt/batch.go", "of[i], err = a.decideAfter(ctx, one, c.parts[i], told[i], theirs[at], began)", "of[i].Reply, _, _ = theirs[at], one, began"}},
	},
	{
		Name:   "both-batch-another-s-reply",
		Breaks: "what a script on several locks has done to one of them is told by the element that is about it",
		Edits:  []Edit{{"commands/adopt/batch.go", "theirs[at], elements = elements[0], elements[1:]", "theirs[at], elements = elements[len(elements)-1], elements[1:]"}},
	},
	{
		Name:   "both-over-all-holds",
		Breaks: "holds of a hash that are given back while it is taken over do not stay at the nodes",
		Edits:  []Edit{{"commands/adopt/over.go", "undo(granted[kept:])", "undo(granted[:0])"}},
	},
}
