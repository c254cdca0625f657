package mutants

// Lining are mutants of the lines in which LOCKs of several names wait. Unit tests notice them.
var Lining = []Mutant{
	{
		Name:   "waits-for-the-end-before-a-renewal",
		Breaks: "who waits hears of a RENEW that has the lease end earlier",
		Rare:   true,
		Units:  shorteningTests,
		Edits:  []Edit{{"scripts/renew.lua", "if ends < h.ends then shortened(fence) end\n", ""}},
	},
	{
		Name:   "waits-for-the-end-of-a-hold-given-back",
		Breaks: "so it does of an UNLOCK of the hold that ended last",
		Rare:   true,
		Units:  shorteningTests,
		Edits:  []Edit{{"scripts/release.lua", "      shortened(h.fence)\n", ""}},
	},
	{
		Name:   "waits-for-the-end-that-it-was-told",
		Breaks: "and asks again at once, since it was told another end",
		Rare:   true,
		Units:  shorteningTests,
		Edits:  []Edit{{"backends/locks/hints/hints.go", "		kind = locks.Shortened\n", "		return\n"}},
	},
	{
		Name:   "sharing-goes-from-line-to-line",
		Breaks: "who shares several names asks beside those who share them as well and have not been refused: else it goes from line to line and takes a processor meanwhile",
		Rare:   true,
		Units:  Units{"backends/locks/waitq", "^TestMove_Beside$"},
		Edits:  []Edit{{"backends/locks/waitq/move.go", "l == w.line || l.letsIn(w) || ", "l == w.line || "}},
	},
	{
		Name:   "stands-where-it-stood",
		Breaks: "who waits stands in the line of the name in the way: else it keeps others from one that is free",
		Units:  severalWaitTests,
		Edits:  []Edit{{"backends/locks/wait.go", "	if of == w.Key {\n", "	if true {\n"}},
	},
	{
		Name:   "another-number-where-it-moves",
		Breaks: "it keeps its number: else those who come later pass it time and again",
		Units:  Units{"backends/locks/waitq", "^TestMove_InFront"},
		Edits:  []Edit{{"backends/locks/waitq/move.go", "	q.remove(w)\n", "	q.remove(w)\n	q.numbers++\n	w.number = q.numbers\n"}},
	},
	{
		Name:   "asks-before-who-came-first",
		Breaks: "it asks when nobody who came before it stands in the line of another of its names",
		Units:  moveTests,
		Edits:  []Edit{{"backends/locks/waitq/ask.go", " || q.goBehind(w, others)", ""}},
	},
	{
		Name:   "behind-its-own-owner",
		Breaks: "it waits for no name that its owner has, nor for those who wait for that",
		Units:  moveTests,
		Edits:  []Edit{{"backends/locks/waitq/move.go", "l.known.Holder == w.owner || ", ""}},
	},
	{
		Name:   "a-release-is-missed-on-the-way",
		Breaks: "who moves into a line where nobody stood has heard of no release there, and asks again soon",
		Units:  moveTests,
		Edits:  []Edit{{"backends/locks/waitq/move.go", "		l.askAt = q.opt.Now() + q.opt.Random(nobodyPause)\n", ""}},
	},
	{
		Name:   "order-of-heads",
		Breaks: "a head that was refused goes behind who came before it",
		Units:  moveTests,
		Edits:  []Edit{{"backends/locks/waitq/ask.go", "	q.tell(w, k)\n	q.stepBack(w)\n", "	q.tell(w, k)\n"}},
	},
	{
		Name:   "intents-after-the-grant",
		Breaks: "when all names are granted its intents go: nodes leave them where they grant",
		Units:  severalWaitTests,
		Edits:  []Edit{{"backends/locks/wait.go", "plan.any && (!d.Granted || len(r.Others) > 0)", "plan.any && !d.Granted"}},
	},
}

var (
	shorteningTests  = Units{"backends/locks/quorum", "^TestNotify_LeaseShortened$"}
	moveTests        = Units{"backends/locks/waitq", "^TestMove"}
	severalWaitTests = Units{"backends/locks", "^TestSeveralWait_(HoldsUpNobody|LetsIn)$/^memory$"}
)
