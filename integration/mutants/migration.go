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
		Edits:  []Edit{{"commands/adopt/both.go", "a.takeOver(ctx, conn, c, u, r.at); takenOver || err != nil {", "a.takeOver(ctx, conn, c, u, r.at); takenOver && err != nil {"}},
	},
	{
		Name:   "both-over-beside-on",
		Breaks: "while a proxy is on, another may have had the lock at the nodes: its old holder is not told that it has it still",
		Edits:  []Edit{{"commands/adopt/takeover.go", "AnyOn(ctx, key.DB, key.Name); on || err != nil {", "AnyOn(ctx, key.DB, key.Name); on && err != nil {"}},
	},
	{
		Name:   "both-over-any-value",
		Breaks: "a lock is taken over for who has it by its value: another may have it by now",
		Edits:  []Edit{{"commands/adopt/takeover.go", "out.Op.Do != idiom.Renew && !written ||", "out.Op.Do > idiom.Release && !written ||"}},
	},
	{
		Name:   "both-over-the-nodes",
		Breaks: "what the nodes have granted to another is not taken over",
		Edits:  []Edit{{"commands/adopt/takeover.go", "return r.did != idiom.Nothing, err", "return r.did <= idiom.Release, err"}},
	},
	{
		Name:   "both-over-by-one-look",
		Breaks: "the upstream must have the lock when the nodes have granted it: it may have been released before that",
		Edits:  []Edit{{"commands/adopt/takeover.go", "case still.Kind != has.Kind || still.Value != has.Value:", "case still.Kind > idiom.Native:"}},
	},
	{
		Name:   "both-over-not-undone",
		Breaks: "where the upstream has the lock no more the nodes' grant is undone: otherwise nobody gets it until its ttl is over",
		Edits:  []Edit{{"commands/adopt/takeover.go", "undo(granted)\n\t\treturn false, nil", "return false, nil"}},
	},
	{
		Name:   "both-over-late",
		Breaks: "a lock is not extended by an answer that comes when its lease is over",
		Edits:  []Edit{{"commands/adopt/takeover.go", "case time.Since(u.began) >= u.lease():", "case u.lease() == 0:"}},
	},
	{
		Name:   "both-over-one-hold",
		Breaks: "a hash is taken over with all its holds: the first release of several must not free it",
		Edits:  []Edit{{"commands/adopt/takeover.go", "holds <= max(1, has.Count)", "holds <= 1"}},
	},
	{
		Name:   "both-batch-upstream-decides",
		Breaks: "each lock of a script on several is extended by the nodes as well",
		Edits:  []Edit{{"commands/adopt/batch.go", "of[i], err = a.decideAfter(ctx, one, c.parts[i], possible[i], theirs[at], began)", "of[i].Reply, _, _ = theirs[at], one, began"}},
	},
	{
		Name:   "both-batch-another-s-reply",
		Breaks: "what a script on several locks has done to one of them is told by the element that is about it",
		Edits:  []Edit{{"commands/adopt/batch.go", "theirs[at], elements = elements[0], elements[1:]", "theirs[at], elements = elements[len(elements)-1], elements[1:]"}},
	},
	{
		Name:   "both-replaces-as-usual",
		Breaks: "what is not allowed to replace a lock is refused before the upstream has done it",
		Edits:  []Edit{{"commands/adopt/both.go", "a.mayReplace(c); err != nil {\n\t\t\t\treturn nil, err", "a.mayReplace(c); err != nil && c == nil {\n\t\t\t\treturn nil, err"}},
	},
	{
		Name:   "both-replaces-in-any-order",
		Breaks: "of two programs of one proxy that overwrite a lock, one is the last in both places: else the upstream has one's value and the nodes the other's",
		Edits:  []Edit{{"commands/adopt/both.go", "if replies.May(idiom.Replace) {", "if replies.May(idiom.Replace) && c == nil {"}},
	},
	{
		Name:   "both-replaces-for-what-is-left",
		Breaks: "how long the upstream keeps what was written must be known",
		Edits:  []Edit{{"commands/adopt/idiom/replies.go", "if out.Op.Do == Replace && out.LeftRead {", "if out.Op.Do == Replace && out.Reply == nil {"}},
	},
	{
		Name:   "both-replaces-alone-for-both",
		Breaks: "what the nodes alone replace is at the nodes alone: taken for a grant of both it can be neither extended nor released",
		Edits:  []Edit{{"commands/adopt/both.go", "c.alone = true", "c.alone = false"}},
	},
	{
		Name:   "both-replaces-alone-as-usual",
		Breaks: "the nodes alone do not replace a lock either, where that is not allowed",
		Edits:  []Edit{{"commands/adopt/both.go", "\tif out.Op.Do == idiom.Replace {", "\tif out.Op.Do == idiom.Replace && c == nil {"}},
	},
	{
		Name:   "both-replaced-goes-silently",
		Breaks: "who has overwritten a lock at the upstream is told that it may be lost, though the nodes do not decide",
		Edits:  []Edit{{"commands/adopt/both.go", "err = mayBeLost(c.Key(), err)", "_ = mayBeLost(c.Key(), err)"}},
	},
	{
		Name:   "both-refused-not-given-back",
		Breaks: "what the nodes refuse to replace is given back at the upstream",
		Edits:  []Edit{{"commands/adopt/both.go", "errors.As(err, &refused) || ", "errors.As(err, &refused) && err == nil || "}},
	},
	{
		Name:   "both-replaced-not-given-back",
		Breaks: "what a client that has left has written over a lock is given back at the upstream as well",
		Edits:  []Edit{{"commands/adopt/both.go", "o.Do == idiom.Take || o.Do == idiom.Enter || o.Do == idiom.Replace {\n\t\t\top = o", "o.Do == idiom.Take || o.Do == idiom.Enter {\n\t\t\top = o"}},
	},
	{
		Name:   "both-over-beside-the-lost",
		Breaks: "a grant of both whose value the upstream has not any more is in nobody's way: else a lock of off that came after it is lost when it is extended",
		Edits:  []Edit{{"commands/adopt/takeover.go", "at.made == madeBoth && at.fence != 0", "at.made == madeBoth && at.fence < 0"}},
	},
	{
		Name:   "both-over-those-of-on",
		Breaks: "a grant of on is at the nodes alone, and not lost: nothing is taken over in its place",
		Edits:  []Edit{{"commands/adopt/takeover.go", "at.made == madeBoth && at.fence != 0", "at.made != elsewhere && at.fence != 0"}},
	},
	{
		Name:   "both-over-not-what-was-written",
		Breaks: "a lock of off goes on when its holder writes another value in both",
		Edits:  []Edit{{"commands/adopt/takeover.go", "!written ||", "!written || written ||"}},
	},
	{
		Name:   "both-persists-any-lock",
		Breaks: "PERSIST of a lock that the nodes would not keep without an end is refused before the upstream has done it",
		Edits:  []Edit{{"commands/adopt/both.go", "TTL: idiom.Forever}) {", "TTL: idiom.Forever}) && c == nil {"}},
	},
	{
		Name:   "both-over-persisted",
		Breaks: "a lock of off goes on when PERSIST takes its end away in both",
		Edits:  []Edit{{"commands/adopt/takeover.go", "was.Left = min(has.Left, a.opt.MaxTTL)", "was.Left = max(has.Left, a.opt.MinTTL)"}},
	},
	{
		Name:   "both-over-with-an-end",
		Breaks: "a lock that has no end at the upstream is taken over without one",
		Edits:  []Edit{{"commands/adopt/takeover.go", "Open: open, Info", "Open: false, Info"}},
	},
	{
		Name:   "both-holds-of-off",
		Breaks: "a hash of off that is entered again has all its holds at the nodes: else giving back the inner one frees it there",
		Edits:  []Edit{{"commands/adopt/takeover.go", "n < holds && err == nil; n++ {", "n < holds && n > mostHolds; n++ {"}},
	},
	{
		Name:   "both-holds-of-on",
		Breaks: "a hash of on that is entered again has all its holds at the upstream: else giving back the inner one frees it there",
		Edits:  []Edit{{"commands/adopt/takeover.go", "n < taken.Holds && g.made == madeOn; n++ {", "n < taken.Holds && g.made == elsewhere; n++ {"}},
	},
	{
		Name:   "both-holds-not-given-back",
		Breaks: "what was entered is given back where the holds cannot be made the same",
		Edits:  []Edit{{"commands/adopt/both.go", "err = a.equalizeHolds(ctx, conn, c, u, r.Taken); err != nil {", "err = a.equalizeHolds(ctx, conn, c, u, r.Taken); err != nil && c == nil {"}},
	},
	{
		Name:   "both-over-all-holds",
		Breaks: "holds of a hash that are given back while it is taken over do not stay at the nodes",
		Edits:  []Edit{{"commands/adopt/takeover.go", "undo(granted[kept:])", "undo(granted[:0])"}},
	},
}
