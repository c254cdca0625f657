package mutants

// Several are mutants of LOCK, RENEW and UNLOCK of several names. Those of the lines are in Lining, those of etcd in Etcd.
var Several = []Mutant{
	// On a node.
	{
		Name:   "several-in-part",
		Breaks: "a node grants all names or none: of what is in part on nodes others are refused, though nobody gets it",
		Rare:   true,
		Units:  severalScriptTests,
		Edits:  []Edit{{"scripts/acquireall.lua", "all and grants[i]() or call.refused or {4}", "call.refused or table.remove(grants, 1)()"}},
	},
	{
		Name:   "several-written-unseen",
		Breaks: "a node writes nothing before it has looked at every name: else a refusal leaves those that it looked at first",
		Rare:   true,
		Units:  severalScriptTests,
		Edits: []Edit{{"scripts/acquireall.lua", "  at = last + 1\n", `  at = last + 1
  if not calls[#calls].refused then
    local reply = grants[#grants]()
    grants[#grants] = function() return reply end
  end
`}},
	},
	{
		Name:   "several-by-one-fence",
		Breaks: "each name is numbered by its own fences: else one goes back",
		Rare:   true,
		Units:  severalScriptTests,
		Edits:  []Edit{{"scripts/acquireall.lua", "KEYS = {keys[key], keys[key + 1],", "KEYS = {keys[key], keys[2],"}},
	},
	{
		Name:   "several-readers-with-keys-of-others",
		Breaks: "so is that of readers, who have a key more for each name",
		Rare:   true,
		Units:  severalScriptTests,
		Edits:  []Edit{{"scripts/acquireall.lua", "key = name + width - 2", "key = name"}},
	},
	{
		Name:   "several-refused-by-its-intent",
		Breaks: "an intent keeps out others: who left it would wait for itself",
		Rare:   true,
		Units:  severalScriptTests,
		Edits:  []Edit{{"scripts/acquire.lua", "whose == owner or waiting_since and", "waiting_since and"}},
	},
	{
		Name:   "several-refused-by-the-younger",
		Breaks: "who has waited longer is not refused by the intent of who has not: each of two might have some of the nodes for ever",
		Rare:   true,
		Units:  severalScriptTests,
		Edits:  []Edit{{"scripts/acquire.lua", " or waiting_since and waiting_since < tonumber(since) then", " then"}},
	},
	{
		Name:   "several-the-first-intent-stays",
		Breaks: "the intent of who has waited longer takes the place of the other: else each of three might have one node",
		Rare:   true,
		Units:  severalScriptTests,
		Edits:  []Edit{{"scripts/acquireall.lua", " or tonumber(since) > waiting_since then", " then"}},
	},
	{
		Name:   "several-the-last-intent-counts",
		Breaks: "that of who has waited less long does not: two would refuse each other in turn",
		Rare:   true,
		Units:  severalScriptTests,
		Edits:  []Edit{{"scripts/acquireall.lua", "tonumber(since) > waiting_since then", "tonumber(since) ~= waiting_since then"}},
	},
	{
		Name:   "several-intent-on-the-name-in-the-way",
		Breaks: "a request keeps others out of all its names: else they take those that are free in turn",
		Rare:   true,
		Units:  severalScriptTests,
		Edits:  []Edit{{"scripts/acquireall.lua", "    local ends, since, whose =", "    if not call.refused then break end\n    local ends, since, whose ="}},
	},
	{
		Name:   "several-intent-ends-with-a-grant",
		Breaks: "an intent stays where a node grants: others would be there first when that is undone",
		Rare:   true,
		Units:  severalScriptTests,
		Edits:  []Edit{{"scripts/acquire.lua", "  if h then return enter() end\n", "  if grants and string.match(claim or '', '^%d+ %d+ (.*)$') == owner then redis.call('HDEL', KEYS[2], 'x') end\n  if h then return enter() end\n"}},
	},
	{
		Name:   "several-intent-ends-with-an-undo",
		Breaks: "nor does an undo end an intent",
		Rare:   true,
		Units:  severalScriptTests,
		Edits:  []Edit{{"scripts/release.lua", "if unlock and claim and", "if claim and"}},
	},
	{
		Name:   "several-intent-outlives-the-lock",
		Breaks: "an UNLOCK does: else others are kept out of a name that nobody waits for",
		Rare:   true,
		Units:  severalScriptTests,
		Edits:  []Edit{{"scripts/release.lua", "if unlock and claim and", "if false and claim and"}},
	},
	{
		Name:   "several-intent-without-an-end",
		Breaks: "an intent that ends later than any is from before the clock was stepped back: it would keep others out for as long",
		Rare:   true,
		Units:  severalScriptTests,
		Edits:  []Edit{{"scripts/acquire.lua", "if ends <= now or ends > now + longest_intent or whose", "if ends <= now or whose"}},
	},
	{
		Name:   "several-let-in-by-another",
		Breaks: "who gives up ends only its own intents",
		Rare:   true,
		Units:  severalScriptTests,
		Edits:  []Edit{{"scripts/dropintent.lua", "string.match(intents[2], '^%d+ %d+ (.*)$') == ARGV[5]", "string.match(intents[2], '^%d+ %d+ (.*)$') ~= ''"}},
	},

	// Of the votes.
	{
		Name:   "several-by-the-votes-on-the-first",
		Breaks: "each name is decided by its own votes",
		Rare:   true,
		Units:  tallyTests,
		Edits:  []Edit{{"backends/locks/tally/several.go", "*OfName(&votes[k], i)", "*OfName(&votes[k], 0)"}},
	},
	{
		Name:   "several-granted-for-one",
		Breaks: "they are granted when each of them is: else one is told granted that a quorum does not vouch for",
		Rare:   true,
		Units:  tallyTests,
		Edits:  []Edit{{"backends/locks/tally/several.go", "case of[Granted] == names:", "case of[Granted] > 0:"}},
	},
	{
		Name:   "several-withheld-is-yes",
		Breaks: "a node that withholds a name has not granted it",
		Rare:   true,
		Units:  tallyTests,
		Edits:  []Edit{{"backends/locks/tally/several.go", "			one[k] = *OfName(&votes[k], i)\n", "			one[k] = *OfName(&votes[k], i)\n			if one[k].Kind == vote.Withheld {\n				one[k].Kind = vote.Yes\n			}\n"}},
	},
	{
		Name:   "several-given-back-in-part-too-early",
		Breaks: "that some names were given back is said when a quorum has said so of some and a quorum denies it of the others: a node may be late",
		Rare:   true,
		Units:  tallyTests,
		Edits:  []Edit{{"backends/locks/tally/several.go", "	if of[Ended]+there < names {\n", "	if of[Ended]+there < 0 {\n"}},
	},
	{
		Name:   "several-withheld-is-no",
		Breaks: "nor has it refused that name: nobody is in the way there",
		Rare:   true,
		Units:  tallyTests,
		Edits:  []Edit{{"backends/locks/tally/several.go", "			one[k] = *OfName(&votes[k], i)\n", "			one[k] = *OfName(&votes[k], i)\n			if one[k].Kind == vote.Withheld {\n				one[k].Kind = vote.No\n			}\n"}},
	},
	{
		Name:   "several-with-the-largest-fence",
		Breaks: "each name has a fence of its own: by that of another it is told one that no node has stored",
		Rare:   true,
		Units:  tallyTests,
		Edits: []Edit{{"backends/locks/tally/several.go", "		t.Names[i] = Acquire(one, q, stage)\n", `		t.Names[i] = Acquire(one, q, stage)
		t.Names[i].Fence = max(t.Names[i].Fence, t.Names[0].Fence)
`}},
	},

	// In the quorum.
	{
		Name:    "several-the-first-undone",
		Breaks:  "what is refused is undone for each name",
		Profile: "several and well",
		Edits:   []Edit{{"backends/locks/quorum/undo.go", "			for _, a := range all {\n				s.set.Members[i].Push(s.undoCall(", "			for _, a := range all[:1] {\n				s.set.Members[i].Push(s.undoCall("}},
	},
	{
		Name:   "several-kept-where-one-fails",
		Breaks: "if one name cannot be told to the client, the others are undone",
		Rare:   true,
		Units:  severalStoreTests,
		Edits:  []Edit{{"backends/locks/quorum/several.go", "			if g.Hold != \"\" {", "			if g.Hold == \"none\" {"}},
	},
	{
		Name:    "several-settled-for-one",
		Breaks:  "a quorum stores the fence of each name before it is told",
		Profile: "several, clocks apart",
		Edits: []Edit{{"backends/locks/quorum/several.go", "			its[i] = *tally.OfName(&votes[i], k)\n", `			if its[i] = *tally.OfName(&votes[i], k); k > 0 {
				its[i].Fence = names[k].Fence
			}
`}},
	},
	{
		Name:    "several-with-one-hold",
		Breaks:  "each name has an id of its own for its hold: a node remembers those that are over without their names, and would take back none of the others",
		Profile: "several",
		Edits: []Edit{{"backends/locks/quorum/several.go", "		all, calls = append(all, a), append(calls, one)\n", `		if all, calls = append(all, a), append(calls, one); i > 0 {
			one.Args[slices.Index(one.Args, a.id)], a.id = all[0].id, all[0].id
		}
`}},
	},
	{
		Name:   "several-as-long-as-the-last-takes",
		Breaks: "the validity of a name runs while the others are settled",
		Rare:   true,
		Units:  severalStoreTests,
		Edits:  []Edit{{"backends/locks/quorum/several.go", "grants[k].Validity -= now - at[k];", "grants[k].Validity -= now - now;"}},
	},
	{
		Name:    "several-granted-again-in-part",
		Breaks:  "a request that was given back in part is lost: neither what it was told is true nor a new grant would be",
		Profile: "several",
		Edits:   []Edit{{"backends/locks/quorum/several.go", "		if names[i].Verdict != tally.Ended {\n", "		if names[i].Verdict == tally.Granted {\n"}},
	},

	// In the Service.
	{
		Name:   "several-named-twice",
		Breaks: "no name is there twice: a node would grant it two holds that end one another",
		Rare:   true,
		Units:  severalTests,
		Edits:  []Edit{{"backends/locks/several.go", "		if seen[k.Name] {\n", "		if seen[\"\"] {\n"}},
	},
	{
		Name:   "several-renewed-for-the-longest",
		Breaks: "RENEWALL tells the smallest validity",
		Rare:   true,
		Units:  severalTests,
		Edits:  []Edit{{"backends/locks/several.go", "slices.Min(ends) - s.store.Now()", "slices.Max(ends) - s.store.Now()"}},
	},
	{
		Name:   "several-renewed-while-others-are",
		Breaks: "the validity of a name runs while the others are renewed",
		Rare:   true,
		Units:  severalTests,
		Edits:  []Edit{{"backends/locks/several.go", "		ends[i] = s.store.Now() + left\n", "		ends[i] = left\n"}, {"backends/locks/several.go", "slices.Min(ends) - s.store.Now()", "slices.Min(ends)"}},
	},
	{
		Name:   "several-up-to-the-first-lost",
		Breaks: "each name is renewed, and given back, whatever happens to the others",
		Rare:   true,
		Units:  severalTests,
		Edits: []Edit{{"backends/locks/several.go", "		all.Go(func() { errs[i] = do(i, k) })\n", `		if errs[i] = do(i, k); errs[i] != nil {
			break
		}
`}},
	},
	{
		Name:   "several-let-into-the-first",
		Breaks: "who has waited for several names lets others into all of them",
		Rare:   true,
		Units:  severalTests,
		Edits:  []Edit{{"backends/locks/wait.go", "			for _, k := range r.Names() {\n				s.store.DropIntent", "			for _, k := range r.Names()[:1] {\n				s.store.DropIntent"}},
	},
	{
		Name:   "several-of-which-one-is-over",
		Breaks: "all names are granted or none: one whose lease ends while others are settled is told with a validity below 0",
		Rare:   true,
		Units:  severalStoreTests,
		Edits:  []Edit{{"backends/locks/quorum/several.go", "errs[k] == nil && grants[k].Validity <= 0 {", "false {"}},
	},
	{
		Name:   "several-kept-out-all-the-time",
		Breaks: "others are kept out for a quarter of the time: a name that is held for long stops those who want the others",
		Rare:   true,
		Units:  severalTests,
		Edits:  []Edit{{"backends/locks/waitall.go", "now + (1+intentRest)*p.length", "now + p.length"}},
	},
	{
		Name:   "several-in-part-in-memory",
		Breaks: "the Store of tests grants all names or none as well",
		Rare:   true,
		Units:  severalTests,
		Edits:  []Edit{{"backends/locks/memstore/several.go", "		looks = append(looks, l)\n", "		if looks = append(looks, l); l.granted && !l.ended {\n			s.take(a.For(k), l)\n		}\n"}},
	},

	// In the answer.
	{
		Name:   "several-for-the-longest",
		Breaks: "LOCKALL tells the smallest validity",
		Rare:   true,
		Units:  severalAnswerTests,
		Edits:  []Edit{{"commands/lockcmd/several.go", "least = min(least, g.Validity)", "least = max(least, g.Validity)"}},
	},
	{
		Name:   "several-told-the-fence-of-another",
		Breaks: "LOCKALL tells the fence of each name with that name",
		Rare:   true,
		Units:  severalAnswerTests,
		Edits:  []Edit{{"commands/lockcmd/several.go", "		b = resp.AppendInt(b, g.Fence)\n", "		b = resp.AppendInt(b, a.Grant.Fence)\n"}},
	},
}

var (
	severalScriptTests = Units{simulated, "^TestAcquireAll"}
	severalStoreTests  = Units{simulated, "^TestAll_(OneUnsettled|OneOver|ValidityWhileOthersAreSettled)"}
	severalTests       = Units{"backends/locks", "^(TestSeveral_(AllOrNone|Refuses|SomeLost)|TestSeveralWait_(KeepsOthersOut|LetsIn)|TestRenewAll_EndsWithTheFirst)$/^memory$"}
	severalAnswerTests = Units{"commands/lockcmd", "^TestAppendGrants$"}
)
