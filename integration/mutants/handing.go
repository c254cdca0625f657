package mutants

// Handing are mutants of the one script call that gives a name back and takes it for who is next. Unit tests notice them.
var Handing = []Mutant{
	{
		Name:   "hand-over-backwards",
		Breaks: "the release runs first: else the one who is next is refused, since the name is not free yet",
		Units:  Units{"backends/locks/quorum", "^TestHandOver_Is|^TestHandOver_On"},
		Edits: []Edit{{"scripts/handover.lua", "pass(6, last)\nlocal released = release()\npass(last + 1)\nreturn {released, acquire()}",
			"pass(last + 1)\nlocal acquired = acquire()\npass(6, last)\nreturn {release(), acquired}"}},
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
		Edits: []Edit{{"backends/locks/voters/node.go", "\t\tn.answer(&j, Vote{Err: err, Unsent: !j.sent})\n\t}\n\treturn keep",
			"\t\tn.answer(&j, Vote{Err: err, Unsent: !j.sent})\n\t\tif j.behind != nil {\n\t\t\tkeep = keep[:max(0, len(keep)-1)]\n\t\t}\n\t}\n\treturn keep"}},
	},
	{
		Name:   "hand-over-repeated-late",
		Breaks: "what is repeated until it is done is the release alone: an acquire that comes behind its own undo locks the name for nobody",
		Units:  handOverTests,
		Edits:  []Edit{{"backends/locks/voters/handover.go", "\tfor _, n := range s.Members {\n", "\trelease.RetryArgs = acquire.handOver\n\tfor _, n := range s.Members {\n"}},
	},
	{
		Name:   "hand-over-not-undone",
		Breaks: "an acquire whose answer is lost may have been done: else it is not undone, and locks the name for nobody",
		Units:  handOverTests,
		Edits:  []Edit{{"backends/locks/voters/node.go", "\t\t\tsent[i].sent = true\n", "\t\t\tsent[i].sent = i == 0\n"}},
	},
}

var handOverTests = Units{"backends/locks/voters", "^TestHandOver"}
