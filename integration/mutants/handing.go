package mutants

// Handing are mutants of commands that are several calls, and of the one that gives a name back and takes it for who is next. Unit tests notice them.
var Handing = []Mutant{
	{
		Name:   "hand-over-backwards",
		Breaks: "the release runs first: else the one who is next is refused, since the name is not free yet",
		Units:  handOverTests,
		Edits:  []Edit{{"backends/locks/voters/batch.go", "n.Push(release, acquire)", "n.Push(acquire, release)"}},
	},
	{
		Name:   "hand-over-to-who-has-left",
		Breaks: "who leaves before the call is sent is not asked for: the lock would be on its way to nobody",
		Units:  handOverTests,
		Edits:  []Edit{{"backends/locks/voters/node.go", "j.Round == nil || j.Round.wanted())", "j.Round == nil || j.behind != nil || j.Round.wanted())"}},
	},
	{
		Name:   "release-dropped-with-who-is-next",
		Breaks: "the release is sent whether somebody is next or not: else the name stays taken to the end of the lease",
		Units:  handOverTests,
		Edits: []Edit{{"backends/locks/voters/node.go", "\t\tn.answer(&j, vote.Vote{Err: err, Unsent: !j.sent})\n\t}\n\treturn keep",
			"\t\tn.answer(&j, vote.Vote{Err: err, Unsent: !j.sent})\n\t\tif j.behind != nil {\n\t\t\tkeep = keep[:max(0, len(keep)-1)]\n\t\t}\n\t}\n\treturn keep"}},
	},
	{
		Name:   "hand-over-repeated-late",
		Breaks: "what is repeated until it is done is the release alone: an acquire that comes behind its own undo locks the name for nobody",
		Units:  handOverTests,
		Edits:  []Edit{{"backends/locks/voters/batch.go", "\tacquire.behind = release.Round\n", "\tacquire.behind = release.Round\n\trelease.RetryArgs = (&command{calls: []ScriptCall{release, acquire}}).args()\n"}},
	},
	{
		Name:   "hand-over-not-undone",
		Breaks: "an acquire whose answer is lost may have been done: else it is not undone, and locks the name for nobody",
		Units:  handOverTests,
		Edits:  []Edit{{"backends/locks/voters/node.go", "\t\tcalls[i].sent, calls[i].resent = true, calls[i].sent\n", "\t\tcalls[i].sent = i == 0\n"}},
	},
	{
		Name:   "calls-out-of-order",
		Breaks: "calls about one name stay in order: an undo before its acquire leaves the name locked for nobody",
		Units:  handOverTests,
		Edits:  []Edit{{"backends/locks/voters/batch.go", "max(b.first, b.last[name])", "b.first"}},
	},
	{
		Name:   "calls-join-past-others",
		Breaks: "what is not joined stays in order with all others",
		Units:  handOverTests,
		Edits:  []Edit{{"backends/locks/voters/batch.go", "\t\tb.first = len(b.commands)\n", ""}},
	},
	{
		Name:   "acquires-behind-releases",
		Breaks: "a full node refuses what would make it fuller: it does not behind another write in one command",
		Units:  handOverTests,
		Edits:  []Edit{{"backends/locks/voters/batch.go", "c.acquires == acquires && ", ""}},
	},
	{
		Name:   "one-failure-stops-all",
		Breaks: "a name that is damaged fails alone",
		Units:  callsTests,
		Edits:  []Edit{{"scripts/calls.lua", "pcall(call)", "true, call()"}},
	},
	{
		Name:   "calls-with-the-keys-of-others",
		Breaks: "each call has its own keys",
		Units:  callsTests,
		Edits:  []Edit{{"scripts/calls.lua", "key = name + own - 2", "key = name"}},
	},
}

var (
	handOverTests = Units{"backends/locks/voters", "^TestHandOver|^TestBatch"}
	callsTests    = Units{"backends/locks/quorum", "^TestCalls"}
)
