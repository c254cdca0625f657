package mutants

// The tests that notice some of them.
var (
	adoptTests  = Units{"commands/adopt", "^TestTransaction|^TestReplace|^TestHash|^TestFence|^TestClassify|^TestDeadlines|^TestOpen|^TestDecide|^TestFlights"}
	readTests   = Units{"backends/locks/quorum", "^TestRead"}
	scriptTests = Units{"commands/adopt/idiom", "^TestAccept"}
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
		Edits: []Edit{{"commands/adopt/adopt.go", "\t\t_, err := a.opt.Engine.Unlock(ctx,", `		if r, err := a.opt.Engine.Read(ctx, key); err == nil && r.Held {
			g = guessOf(r, time.Now())
		}
		_, err := a.opt.Engine.Unlock(ctx,`}},
	},
	{
		Name:    "adopted-nobody-from-memory",
		Breaks:  "an answer is the nodes': what a proxy does not remember another may have granted",
		Profile: "adopted",
		Edits:   []Edit{{"commands/adopt/adopt.go", "if out.Op.Do == idiom.Nothing && answered {", "if out.Op.Do == idiom.Nothing {"}},
	},
	{
		Name:    "adopted-signals-first",
		Breaks:  "signals follow the release: who is woken before finds the lock held, and sleeps until it ends",
		Profile: "adopted and well",
		Edits:   []Edit{{"commands/adopt/adopt.go", "next, grant, err := a.do(", "_ = a.signal(ctx, conn, out.Signals)\n\t\tnext, grant, err := a.do("}},
	},
	{
		Name:    "adopted-undecided-is-nobody",
		Breaks:  "a read that does not decide says so: a silent node may be the one that makes a majority",
		Profile: "adopted",
		Units:   readTests,
		Edits:   []Edit{{"backends/locks/quorum/inspect.go", "\tcase who == nobody:\n\t\treturn locks.Reading{}, nil\n", "\tcase who == nobody, who == undecidedHolder:\n\t\treturn locks.Reading{}, nil\n"}},
	},
	{
		Name:    "adopted-unguarded",
		Breaks:  "a key that the upstream has counts as held: without that a program that takes the lock there and one that takes it here have it together",
		Profile: "adopted and well",
		Edits:   []Edit{{"commands/adopt/guard.go", "if !p.Guard {", "if p != nil {"}},
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
		Edits:  []Edit{{"commands/adopt/burst.go", "	return Burst{began: time.Now(), told: rests}", "	return b"}},
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
		Edits:  []Edit{{"commands/adopt/take.go", "fl != nil && saysAll(fl.after.owner) {", "fl != nil {"}},
	},
	{
		Name:    "adopted-exec-whoever-is-there",
		Breaks:  "EXEC changes only the grant that WATCH has found: without that the DEL of a client whose lock has ended gives back the next one's",
		Profile: "adopted and well",
		Edits: []Edit{{"commands/adopt/transaction.go", "next, grant, err := a.do(ctx, conn, newBurst().basis(),", `if r, err := a.opt.Engine.Read(ctx, key); err == nil && r.Held {
		g = guessOf(r, time.Now())
	}
	next, grant, err := a.do(ctx, conn, newBurst().basis(),`}},
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
		Edits:   []Edit{{"commands/adopt/reenter.go", "holds: d.Grant.Holds - 1", "holds: max(1, g.holds)"}},
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
		Edits: []Edit{{"commands/adopt/replace.go", "\td, err := a.opt.Engine.Lock(ctx,", `	if r, err := a.opt.Engine.Read(ctx, key); err == nil && r.Held {
		g = guessOf(r, time.Now())
	}
	d, err := a.opt.Engine.Lock(ctx,`}},
	},
	{
		Name:    "adopted-overwrites-as-usual",
		Breaks:  "only as=full lets a call replace a lock whose value it has not compared",
		Profile: "adopted",
		Rare:    true,
		Units:   adoptTests,
		Edits:   []Edit{{"commands/adopt/idiom/rule.go", "\tif r.As >= Full {\n\t\treturn nil\n\t}\n", "\tif r.As >= Strict {\n\t\treturn nil\n\t}\n"}},
	},
}
