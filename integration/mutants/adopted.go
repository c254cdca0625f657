package mutants

// The tests that notice some of them.
var (
	adoptTests     = Units{"commands/adopt", "^TestTransaction|^TestReplace|^TestHash|^TestFence|^TestClassify|^TestDeadlines|^TestOpen|^TestDecide|^TestFlights"}
	readTests      = Units{"backends/locks/quorum", "^TestRead"}
	scriptTests    = Units{"commands/adopt/idiom", "^TestAccept"}
	sharesTests    = Units{"commands/adopt", "^TestShares"}
	semaphoreTests = Units{"commands/adopt", "^TestPermits"}
)

// adopted are the mutants of adopted locks.
var adopted = []Mutant{
	{
		Name:    "adopted-value-as-owner",
		Breaks:  "a client's value is data: as the owner it lets clients with the same value in together, since an owner re-enters",
		Profile: "adopted",
		Edits: []Edit{{"commands/adopt/owner.go", "locks.NewAdoptedString(&a.opt.Random, op.Value)",
			`locks.NewAdoptedString(&locks.RandSource{NewText: func() string { return "0123456789abcdef" }}, op.Value)`}},
	},
	{
		Name:    "adopted-whoever-is-there",
		Breaks:  "a call changes only the grant that it was run on: without that, what compares one value gives back another's lock",
		Profile: "adopted and well",
		Edits: []Edit{{"commands/adopt/decide.go", "\t\t_, err := d.a.opt.Engine.Unlock(ctx,", `		if r, err := d.a.opt.Engine.Read(ctx, d.key); err == nil && r.Held {
			g = guessOf(r, time.Now())
		}
		_, err := d.a.opt.Engine.Unlock(ctx,`}},
	},
	{
		Name:    "adopted-nobody-from-memory",
		Breaks:  "an answer is the nodes': what a proxy does not remember another may have granted",
		Profile: "adopted",
		Edits:   []Edit{{"commands/adopt/decide.go", "if out.Op.Do == idiom.Nothing && d.lock.answered {", "if out.Op.Do == idiom.Nothing {"}},
	},
	{
		Name:    "adopted-signals-first",
		Breaks:  "signals follow the release: who is woken before finds the lock held, and sleeps until it ends",
		Profile: "adopted and well",
		Edits:   []Edit{{"commands/adopt/decide.go", "next, taken, err := d.do(", "a.signal(ctx, d.conn, out.Signals)\n\t\tnext, taken, err := d.do("}},
	},
	{
		Name:    "adopted-undecided-is-nobody",
		Breaks:  "a read that does not decide says so: a silent node may be the one that makes a majority",
		Profile: "adopted",
		Units:   readTests,
		Edits:   []Edit{{"backends/locks/quorum/read.go", "\tcase who == tally.HeldByNobody:\n\t\treturn reading, nil\n", "\tcase who == tally.HeldByNobody, who == tally.MaybeHeld:\n\t\treturn reading, nil\n"}},
	},
	{
		Name:    "adopted-unguarded",
		Breaks:  "a key that the upstream has counts as held: without that a program that takes the lock there and one that takes it here have it together",
		Profile: "adopted and well",
		Edits:   []Edit{{"commands/adopt/guard.go", "if both || !p.Guard {", "if p != nil {"}},
	},
	{
		Name:    "adopted-answer-older-than-its-call",
		Breaks:  "who shares an answer came before the nodes were asked: what refused another may have been given back since",
		Profile: "adopted and well",
		Edits:   []Edit{{"commands/adopt/flight.go", "if fl = l.open(); fl != nil {", "if fl = l.asking; fl != nil {"}},
	},
	{
		Name:   "adopted-answer-older-than-its-burst",
		Breaks: "a command is answered by a question that was sent after it had come: a client that polls at another's heels would be told what was so before",
		Rare:   true,
		Units:  adoptTests,
		Edits:  []Edit{{"commands/adopt/burst.go", "fl.began.After(b.burst.began)", "!b.burst.began.IsZero()"}},
	},
	{
		Name:   "adopted-answers-out-of-order",
		Breaks: "what a client was told is not followed by an older answer: told that nobody has the lock, it would be refused by who had it before",
		Rare:   true,
		Units:  adoptTests,
		Edits:  []Edit{{"commands/adopt/burst.go", "	return Burst{began: time.Now(), lastAnswer: rests}", "	return b"}},
	},
	{
		Name:   "adopted-answer-older-than-who-waits",
		Breaks: "acquisitions that wait are answered by a question that was sent when the last of them had come: it would be refused by what was so before",
		Rare:   true,
		Units:  adoptTests,
		Edits:  []Edit{{"commands/adopt/flight.go", "&basis{burst: Burst{began: fl.latest}}", "&basis{}"}},
	},
	{
		Name:   "adopted-answer-older-than-a-failed-change",
		Breaks: "what a client was told answers nothing behind a change of its own, also one of which nobody knows whether it was done",
		Rare:   true,
		Units:  adoptTests,
		Edits:  []Edit{{"commands/adopt/burst.go", "if rests == nil || rests.err != err {", "if rests == nil {"}},
	},
	{
		Name:   "adopted-refusal-tells-holds",
		Breaks: "a refusal answers only what it says: of a hash it does not say how often that was entered",
		Rare:   true,
		Units:  adoptTests,
		Edits:  []Edit{{"commands/adopt/take.go", "fl != nil && saysAll(fl.after.owner) && ", "fl != nil && "}},
	},
	{
		Name:    "adopted-exec-whoever-is-there",
		Breaks:  "EXEC changes only the grant that WATCH has found: without that the DEL of a client whose lock has ended gives back the next one's",
		Profile: "adopted and well",
		Edits: []Edit{{"commands/adopt/transaction.go", "d := decision{", `if r, err := a.opt.Engine.Read(ctx, key); err == nil && r.Held {
		g = guessOf(r, time.Now())
	}
	d := decision{`}},
	},
	{
		Name:    "adopted-watched-not-compared",
		Breaks:  "EXEC does nothing if the lock is not what WATCH has found: without that it is done to a lock that was read anew",
		Profile: "adopted and well",
		Units:   adoptTests,
		Edits:   []Edit{{"commands/adopt/transaction.go", "if there.owner != g.owner || there.fence != g.fence {", "if false {"}},
	},
	{
		Name:    "adopted-count-from-memory",
		Breaks:  "how often a hash was entered is what the nodes say: other proxies have entered it, too",
		Profile: "adopted and well",
		Edits:   []Edit{{"commands/adopt/reenter.go", "holds: taken.Holds - 1", "holds: max(1, d.lock.grant.holds)"}},
	},
	{
		Name:    "adopted-leave-all",
		Breaks:  "who gives back one hold of several has the others",
		Profile: "adopted and well",
		Rare:    true,
		Units:   adoptTests,
		Edits:   []Edit{{"commands/adopt/reenter.go", "Fence: g.fence, All: all, Once", "Fence: g.fence, All: true, Once"}},
	},
	{
		Name:    "adopted-latch-forgotten",
		Breaks:  "a release that is sent again is the same one: else it gives back the next hold",
		Profile: "adopted and well",
		Edits:   []Edit{{"commands/adopt/reenter.go", ", Req: ran.Op.Latch}", "}"}},
	},
	{
		Name:    "adopted-outer-hold-lapses",
		Breaks:  "a hash has one end: an outer hold that ended before an inner one would let the next release free the lock",
		Profile: "adopted and well",
		Rare:    true,
		Units:   adoptTests,
		Edits:   []Edit{{"commands/adopt/reenter.go", "if next.holds > 1 {", "if next.holds > locks.MaxHolds {"}},
	},
	{
		Name:    "adopted-replaces-whoever-has-it",
		Breaks:  "a replacement takes the lock from exactly the grant that it was run on: without that, an acquisition takes it from whoever has it by then, who is told nothing",
		Profile: "adopted",
		Rare:    true,
		Units:   adoptTests,
		Edits: []Edit{{"commands/adopt/replace.go", "\tanswer, err := a.opt.Engine.Lock(ctx,", `	if r, err := a.opt.Engine.Read(ctx, key); err == nil && r.Held {
		g = guessOf(r, time.Now())
	}
	answer, err := a.opt.Engine.Lock(ctx,`}},
	},
	{
		Name:    "adopted-overwrites-as-usual",
		Breaks:  "only as=full lets a call replace a lock whose value it has not compared",
		Profile: "adopted",
		Rare:    true,
		Units:   adoptTests,
		Edits:   []Edit{{"commands/adopt/idiom/rule.go", "\tif r.As >= Full {\n\t\treturn nil\n\t}\n", "\tif r.As >= Strict {\n\t\treturn nil\n\t}\n"}},
	},
	{
		Name:   "adopted-class-of-other-arguments",
		Breaks: "a script that read the lock before may take it with other arguments: in mode=both the lock nodes would not be asked",
		Rare:   true,
		Units:  Units{"commands/adopt", "^TestBoth$|^TestClassify_"},
		Edits:  []Edit{{"commands/adopt/classes.go", "c != idiom.ReadOnly && p.As.Allows(c)", "c != idiom.Unclear && p.As.Allows(c)"}},
	},
	{
		Name:   "adopted-read-that-changes",
		Breaks: "a call that is served as a read changes nothing: its client need not have the right to",
		Rare:   true,
		Units:  Units{"commands/adopt", "^TestClassify_"},
		Edits:  []Edit{{"commands/adopt/idiom/call.go", "c.reads && op.Do != Nothing", "c.reads && op.Do == Take"}},
	},
	{
		Name:   "adopted-reader-writes",
		Breaks: "a thread that reads does not get the lock to write, even if nobody else reads: Redisson refuses it",
		Rare:   true,
		Units:  sharesTests,
		Edits:  []Edit{{"commands/adopt/readers/readers.go", "err != nil || own.Held {", "err != nil || own.Holds > locks.MaxHolds {"}},
	},
	{
		Name:   "adopted-last-reader-wakes-nobody",
		Breaks: "whoever is the last to read wakes those who wait to write",
		Rare:   true,
		Units:  sharesTests,
		Edits:  []Edit{{"commands/adopt/readers/readers.go", "s.Others = r.Readers > 0\n", "s.Others = err == nil\n"}},
	},
	{
		Name:   "adopted-reader-beside-the-writing",
		Breaks: "a thread that stops writing and reads still has the lock: nobody is told that it is free",
		Rare:   true,
		Units:  sharesTests,
		Edits:  []Edit{{"commands/adopt/readers/readers.go", "\t\tif own.Held {\n\t\t\ts.Reader, s.Reads = c.thread, own.Holds\n\t\t}\n\t\treturn err\n", "\t\t_ = own\n\t\treturn err\n"}},
	},
	{
		Name:   "adopted-reader-beside-its-own-writing",
		Breaks: "nor if it stops reading and writes still",
		Rare:   true,
		Units:  sharesTests,
		Edits:  []Edit{{"commands/adopt/readers/readers.go", "if r.Held && r.Owner == c.owner {", "if r.Held && r.Owner == \"\" {"}},
	},
	{
		Name:   "adopted-reader-once-forgotten",
		Breaks: "a reader's release that is sent again is the same one: else it gives back the next hold",
		Rare:   true,
		Units:  sharesTests,
		Edits:  []Edit{{"commands/adopt/readers/readers.go", "Once: true, Req: op.Latch, Shared: op.Shared})\n\tif err != nil {", "Once: true, Shared: op.Shared})\n\tif err != nil {"}},
	},
	{
		Name:   "adopted-outer-writing-lapses",
		Breaks: "a writer has one end: what it entered first does not end before what it entered last",
		Rare:   true,
		Units:  sharesTests,
		Edits:  []Edit{{"commands/adopt/readers/readers.go", "if err == nil && !op.Shared && before.Count > 0 {", "if err == nil && !op.Shared && before.Count > locks.MaxHolds {"}},
	},
	{
		Name:   "adopted-reads-beside-a-writer",
		Breaks: "a script that reads beside another's writing is no read lock",
		Rare:   true,
		Units:  scriptTests,
		Edits:  []Edit{{"commands/adopt/idiom/readers.go", "case r.mode == modeWrite && r.of(op.Value+writeSuffix) == nil:", "case r.mode == modeWrite && r.of(op.Value+writeSuffix) == nil && w.readOnly:"}},
	},
	{
		Name:   "adopted-writes-beside-readers",
		Breaks: "a script that writes where others read is no write lock",
		Rare:   true,
		Units:  scriptTests,
		Edits:  []Edit{{"commands/adopt/idiom/readers.go", "case !op.Shared && len(r.before) > 0 &&", "case !op.Shared && w.readOnly &&"}},
	},
	{
		Name:   "adopted-read-hold-stays",
		Breaks: "a release that leaves the key of its hold is none: the next reader's hold would end with that",
		Rare:   true,
		Units:  scriptTests,
		Edits:  []Edit{{"commands/adopt/idiom/readers.go", "case op.Shared && !r.gone(w, field, now+1):", "case op.Shared && w.readOnly:"}},
	},
	{
		Name:   "adopted-permit-too-many",
		Breaks: "a semaphore has as many permits as its script compares with, and not one more",
		Rare:   true,
		Units:  semaphoreTests,
		Edits:  []Edit{{"commands/adopt/idiom/permits.go", "return op.Value, limit, refused", "return op.Value, limit + min(limit, 1), refused"}},
	},
	{
		Name:   "adopted-permit-twice",
		Breaks: "who takes a permit that it has gets what its script would do then, and no second one to outlive the release of the first",
		Rare:   true,
		Units:  semaphoreTests,
		Edits:  []Edit{{"commands/adopt/readers/permits.go", "NoReenter: true, TTL: ttl", "TTL: ttl"}},
	},
	{
		Name:   "adopted-permit-refused-with-anothers-limit",
		Breaks: "a refusal is no answer to who asks with a larger limit",
		Rare:   true,
		Units:  semaphoreTests,
		Edits:  []Edit{{"commands/adopt/shares.go", ", fl.limit < r.Permits:", ":"}},
	},
	{
		Name:   "adopted-permit-refused-with-another",
		Breaks: "who shares the refusal of another may have a permit itself: it would be told that it has none",
		Rare:   true,
		Units:  semaphoreTests,
		Edits:  []Edit{{"commands/adopt/readers/permits.go", "c.Call.Run(permits(member, limit-1), time.Now())", "c.Call.Run(permits(\"\", limit), time.Now())"}},
	},
	{
		Name:   "adopted-permit-of-a-read-lock",
		Breaks: "a member whose score is the end of the key reads: others may as well, as many as there are",
		Rare:   true,
		Units:  scriptTests,
		Edits:  []Edit{{"commands/adopt/idiom/permits.go", "case len(added) == 1 && int64(added[0].score)-", "case len(added) == 1 && w.readOnly && int64(added[0].score)-"}},
	},
	{
		Name:   "adopted-permit-by-its-time",
		Breaks: "when others got their permits is not known: a script that goes by it would be told anything",
		Rare:   true,
		Units:  Units{"commands/adopt/idiom", "^TestAccept|^TestPermits|^TestScripts"},
		Edits:  []Edit{{"commands/adopt/idiom/permits.go", "case w.scoreRead:", "case w.scoreRead && w.readOnly:"}},
	},
	{
		Name:   "once-by-an-earlier-grant",
		Breaks: "an UNLOCK that names no grant is about the one that the owner has, not about an earlier one that this proxy remembers",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestUnlock_OnceOf"},
		Edits:  []Edit{{"backends/locks/quorum/unlock.go", "case u.Once && doneBefore(votes, u.tag) && (u.Fence != 0 || result == tally.Applied && !s.mayHaveAnother(votes)):", "case u.Once && doneBefore(votes, u.tag):"}},
	},
	{
		Name:   "adopted-extends-nobody",
		Breaks: "only what a script finds is extended: else a thread would be told that it has what it has lost",
		Rare:   true,
		Units:  Units{"commands/adopt/idiom", "^TestRenewals"},
		Edits:  []Edit{{"commands/adopt/idiom/renewals.go", "if len(none.each)+len(none.ends) > 0 {", "if len(none.each)+len(none.ends) > len(args)*len(keys) {"}},
	},
}
