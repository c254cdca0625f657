package mutants

import "slices"

// All are the mutants.
var All = slices.Concat(engine, adopted, replacing)

// engine are those of the engine.
var engine = []Mutant{
	{
		Name:   "quorum-less-one",
		Breaks: "a majority decides: half of the nodes, or fewer, grant to one owner while the others grant to another",
		Edits: []Edit{
			{"backends/locks/voters/set.go", "Quorum: len(o.Nodes)/2 + 1,", "Quorum: max(1, len(o.Nodes)/2),"},
		},
	},
	{
		Name:   "undo-by-owner",
		Breaks: "an undo removes exactly the hold of its attempt: a late one takes the owner's other holds with it",
		Edits: []Edit{
			{"scripts/release.lua", "local removed, left, reinstated, listeners, freed = 0, 0, false, 0, false\n", `if mine and not unlock then
  for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do
    if #id > 1 then given[#given + 1] = id end
  end
  h.present = 1
end
local removed, left, reinstated, listeners, freed = 0, 0, false, 0, false
`},
		},
	},
	{
		Name:   "no-second-round",
		Breaks: "a quorum carries the fence of a grant before it is told: the next quorum may not have seen it, and fences go backwards",
		Edits: []Edit{
			{"backends/locks/quorum/acquire.go", "if err := s.settle(ctx, a, votes, t.Fence); err != nil {", "if err := error(nil); err != nil {"},
			{"backends/locks/quorum/acquire.go", "if tally.LacksFence(v, fence) {\n\t\ts.set.Members[i].Push(", "if false {\n\t\ts.set.Members[i].Push("},
		},
	},
	{
		Name:   "no-quarantine",
		Breaks: "a node that may have forgotten leases does not vote for max-ttl: it grants what another still has",
		Edits: []Edit{
			{"scripts/prologue.lua", "if kept_id ~= replid and lenient(ARGV[4]) and lenient(word) and lenient(following()) then", "if kept_id ~= replid then"},
			{"scripts/register.lua", "if how == 'forgot' and not (lenient", "if false and not (lenient"},
		},
	},
	{
		Name:   "renewal-after-validity",
		Breaks: "a renewal counts only before the old validity ended: a lease that has lapsed on a quorum is put back there",
		Edits:  lateRenewals,
	},
	{
		Name:   "revival",
		Breaks: "a renewal counts only in time, and puts back nothing that another has had since: a lock comes back with a smaller fence",
		Edits: append([]Edit{
			{"scripts/renew.lua", "(seen and seen > fence)", "false"},
		}, lateRenewals...),
	},
	{
		Name:   "relative-holds",
		Breaks: "holds are a set of ids: a repeated release, or the undo of a re-entry that a node never saw, takes another hold away",
		Edits: []Edit{
			{"scripts/release.lua", "local removed, left, reinstated, listeners, freed = 0, 0, false, 0, false\n", `if mine then
  local n = #given
  given = {}
  for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do
    if #id > 1 and #given < n then given[#given + 1] = id end
  end
  h.present = 1
end
local removed, left, reinstated, listeners, freed = 0, 0, false, 0, false
`},
		},
	},
	{
		Name:   "validity-from-the-reply",
		Breaks: "the clock of a grant starts before the first byte is sent: a slow round is told as much validity as a fast one",
		Edits: []Edit{
			{"backends/locks/quorum/acquire.go", "validity := t.Rest - (now - a.began) - locks.Drift(t.Rest)", "validity := t.Rest"},
		},
	},
	// Exclusion.
	{
		Name:    "kept-by-one",
		Breaks:  "a re-entry keeps a fence that a quorum knows: by the word of one node an older fence comes back",
		Profile: "clocks apart",
		Edits:   []Edit{{"backends/locks/tally/tally.go", "\tcase reenteredBy >= q:\n", "\tcase reenteredBy > 0 && yeses >= q:\n"}},
	},
	{
		Name:    "no-drift",
		Breaks:  "validity is less than the lease by what clocks may differ: a fast node frees the lock before",
		Profile: "long leases",
		Edits:   []Edit{{"backends/locks/clock.go", "return d/100 + 2*time.Millisecond }", "return 0 * d }"}},
	},
	{
		Name:    "unlock-by-owner",
		Breaks:  "an unlock gives back one hold: the owner's others go with it",
		Profile: "majorities",
		Edits:   []Edit{{"scripts/release.lua", "  local ends, n, later = ending_without()\n", "  local ends, n, later = ending_without()\n  if by_owner then ends, n = 0, 0 end\n"}},
	},
	{
		Name:   "lease-cut-short",
		Breaks: "a node keeps a lease to its end: freed 50 ms before, the name is another's while the validity that was told runs",
		Edits: []Edit{{"scripts/acquire.lua", "if h and h.owner ~= owner and not replaces then return", `if h and h.owner ~= owner and not replaces and h.rest < 50 then
  redis.call('DEL', KEYS[1])
  h = nil
end
if h and h.owner ~= owner and not replaces then return`}},
	},
	{
		Name:   "fence-of-the-first",
		Breaks: "a new grant has the largest fence that a node of the quorum gave it: the first one's may be below one told before",
		Edits:  []Edit{{"backends/locks/tally/tally.go", "t.Fence = max(t.Fence, votes[i].Fence)\n", "t.Fence = cmp.Or(t.Fence, votes[i].Fence)\n"}, {"backends/locks/tally/tally.go", "import (\n", "import (\n\t\"cmp\"\n"}},
	},
	{
		Name:    "force-unnoted",
		Breaks:  "FORCE notes the grant on a quorum before it takes it: an UNLOCK by the owner's proxy takes a rival's try for a release in time",
		Profile: "force",
		Edits: []Edit{{"backends/locks/quorum/force.go", "noted, err := s.noteShortening(ctx, h, t.fence, limits)",
			"noted, err := slices.Repeat([]vote.Vote{{Kind: vote.Yes}}, len(s.set.Members)), error(nil)"}},
	},
	// Holds.
	{
		Name:    "renewal-of-all-or-none",
		Breaks:  "a renewal is applied where the grant is, and adds the holds that the node lacks: re-entries over different majorities make every RENEW fail",
		Profile: "majorities",
		Edits:   []Edit{{"scripts/renew.lua", "if #named == 0 then return refusal or {4} end", "if h.present <= #ARGV - 14 then return refusal or {4} end"}},
	},
	{
		Name:    "told-votes",
		Breaks:  "beside a note, a record that a renewal put back proves nothing: a lease that was shortened and lapsed comes back",
		Profile: "at once",
		Edits:   []Edit{{"backends/locks/tally/outcome.go", "done = func(v *vote.Vote) bool { return v.Kind == vote.Yes && !v.Reinstated }", "done = func(v *vote.Vote) bool { return v.Kind == vote.Yes }"}},
	},
	{
		Name:   "unlock-goes-on-while-it-is-done",
		Breaks: "an UNLOCK that a node may still do gives back no other hold: a node that numbers the grant otherwise is no later grant",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestUnlock_OneHoldThoughANodeIsLate$"},
		Edits:  []Edit{{"backends/locks/quorum/unlock.go", "u.Fence != 0 {\n				s.grants.invalidate", "u.Fence >= 0 {\n				s.grants.invalidate"}},
	},
	{
		Name:   "late-unlock-takes-another",
		Breaks: "an UNLOCK whose own hold was given back gives back no other: a late copy of it releases what its owner has taken since",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestReq_Late"},
		Edits:  []Edit{{"scripts/release.lua", "if by_owner and request ~= '' and not done and not tags[request] and recall('L' .. request)", "if false"}},
	},
	{
		Name:   "session-forgets-the-shorter-lease",
		Breaks: "a session renews in time for the hold that ends first: else it has lost the lock, untold, when the one that ends last is given back",
		Rare:   true,
		Units:  Units{"backends/locks", "^TestSession_HoldsOf"},
		Edits:  []Edit{{"backends/locks/keepalive_schedule.go", "t = min(t, at(h))", "t = max(t, at(h))"}},
	},
	{
		Name:   "unlock-by-the-fence-of-a-quorum",
		Breaks: "a hold that a quorum has under different fences is given back: else the name stays held until its lease ends",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestUnlock_AfterAReentry"},
		Edits:  []Edit{{"backends/locks/quorum/unlock.go", "result == tally.Undecided && u.Fence == 0 && tally.BetweenRounds", "false && tally.BetweenRounds"}},
	},
	{
		Name:   "lock-over-before-its-answer",
		Breaks: "a LOCK whose hold ends with a lease that is over, since a RENEW is under way, is tried again: else it is NOQUORUM, and the hold stays",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestLock_BesideARenew"},
		Edits:  []Edit{{"backends/locks/quorum/grantcache.go", "p.until()); taken.until <= now {", "p.until()); false {"}},
	},
	{
		Name:   "session-retries-by-the-longer-lease",
		Breaks: "a renewal that failed is tried again in time for the hold that ends first",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestSession_MissedRenewalsOf"},
		Edits:  []Edit{{"backends/locks/keepalive_schedule.go", "(l.until()-now)/3", "l.ttl/3"}},
	},
	{
		Name:   "session-counts-on-the-longest-hold",
		Breaks: "a hold that is renewed beside a longer one ends when its own renewal says: else it lapses, and its session believes in the end of the other",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestSession_HoldBeside"},
		Edits:  []Edit{{"backends/locks/quorum/renew.go", "if *at = max(*at, until);", "if *at = max(g.until(), until);"}},
	},
	{
		Name:   "session-counts-on-silent-nodes",
		Breaks: "a hold that no quorum was seen to have is not taken to be renewed with the others",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestExtend_HoldOf"},
		Edits:  []Edit{{"backends/locks/quorum/extend.go", "if len(there)+len(gone) < len(ids) {", "if false {"}},
	},
	{
		Name:   "unlock-by-another-hold",
		Breaks: "an UNLOCK goes by the validity of the hold that it gives back: by that of another hold it succeeds after a rival's grant",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestUnlock_GoesByTheHoldsOwnValidity$"},
		Edits:  []Edit{{"backends/locks/quorum/unlock.go", "if g.firstEnd(holds) > s.Now() {", "if len(g.holds) > 0 && lastEnd(g.holds) > s.Now() {"}},
	},
	{
		Name:   "request-known-by-one-hold",
		Breaks: "an UNLOCK of a request that was given back by its other hold gives back what is left: else the owner keeps a hold that it has given back",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestReq_UnlockOfEach"},
		Edits:  []Edit{{"scripts/release.lua", "  return recall('H' .. hold) or t and recall('H' .. t)\n", "  return recall('H' .. hold)\n"}},
	},
	{
		Name:   "stray-hold-stays",
		Breaks: "an UNLOCK removes what its request has left on a node that lacked the grant: else the node refuses everybody for the lease",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestReq_NodeWithout"},
		Edits:  []Edit{{"backends/locks/quorum/unlock.go", "if len(v.Release.Strays) > 0 {", "if false {"}},
	},
	{
		Name:   "stray-hold-of-a-later-grant",
		Breaks: "holds of the request under a larger fence are undone only if a quorum gave back those of the grant: else they may be those of a later one",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestReq_UnlockOfAnEarlierGrant"},
		Edits:  []Edit{{"backends/locks/quorum/unlock.go", "over = tally.RequestOver(votes, s.set.Quorum)", "over = true"}},
	},
	{
		Name:   "finished-and-forgotten",
		Breaks: "an UNLOCK that was finished is remembered by all: sent again after another grant, it is answered that the lock was lost",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestReq_Unlock"},
		Edits:  []Edit{{"scripts/release.lua", "if ARGV[7] == 'finish' then", "if false then"}},
	},
	{
		Name:   "lapses-and-returns",
		Breaks: "a node where a lease was made shorter reinstates it no more: one that was given an end, which is over, is kept on",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestRenewEndless_Lapsed"},
		Edits:  []Edit{{"scripts/renew.lua", "if shorten and fence > last then", "if false then"}},
	},
	// Quarantine.
	{
		Name:    "short-quarantine",
		Breaks:  "a node that may have forgotten leases does not vote for max-ttl: after a quarter of it a lease still runs",
		Profile: "long leases",
		Edits: []Edit{
			{"scripts/prologue.lua", "quarantine, synced, gen = now + maxttl, false", "quarantine, synced, gen = now + math.floor(maxttl / 4), false"},
			{"scripts/restore.lua", "if now < since + maxttl then", "if now < since + maxttl / 4 then"},
		},
	},
	{
		Name:   "restart-unseen",
		Breaks: "a node that restarted may have forgotten leases, also with the record that says who it was: it does not vote for max-ttl",
		Edits:  []Edit{{"scripts/prologue.lua", "if at then replid = string.sub(info, at + 14, at + 53) end", ""}},
	},
	{
		Name:    "enlisted-at-once",
		Breaks:  "a node without a record next to others that have one has forgotten: taken for new it votes at once",
		Profile: "long leases",
		Edits:   []Edit{{"scripts/register.lua", "if how == 'forgot' and not (lenient", "if false and not (lenient"}},
	},
	// Renewal.
	{
		Name:    "shortened-unnoted",
		Breaks:  "a renewal that may shorten is noted, by a quorum before it is sent and where it is done: another proxy that remembers a longer validity unlocks after a rival's grant",
		Profile: "at once",
		Edits: []Edit{{"backends/locks/quorum/renew.go", "if r.change == shortens {", "if false {"},
			{"scripts/renew.lua", "if shorten and fence > last then", "if false then"}},
	},
	{
		Name:    "note-ignored",
		Breaks:  "a release counts a node with a note only by the hold itself: what the proxy remembers of the validity was shortened",
		Profile: "force",
		Edits:   []Edit{{"backends/locks/tally/outcome.go", "v.Kind != vote.VersionConflict && !v.Noted &&", "v.Kind != vote.VersionConflict &&"}},
	},
	{
		Name:   "renewal-by-one",
		Breaks: "a majority decides of a renewal: where one node moved the lease, the others free it before",
		Edits:  []Edit{{"backends/locks/tally/outcome.go", "done = func(v *vote.Vote) bool { return v.Kind == vote.Yes && !v.Reinstated }\n\t}\n\treturn countOutcome(votes, q,", "done = func(v *vote.Vote) bool { return v.Kind == vote.Yes && !v.Reinstated }\n\t}\n\treturn countOutcome(votes, 1,"}},
	},
	{
		Name:   "renewal-of-some-holds",
		Breaks: "a renewal names all holds of the owner: one that its proxy has not heard of stays as it was where the renewal does not come, and the owner is told of a new end",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestRenew_HoldOfAnotherProxy$"},
		Edits:  []Edit{{"scripts/renew.lua", "if #others > 0 and expected == '' and not grow then follows = false end\n", ""}},
	},
	{
		Name:   "remembers-what-was-given-back",
		Breaks: "a hold that another proxy has given back is remembered no more after a RENEW that heard of it: else it is brought back when the nodes have forgotten that",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestRenew_ForgetsAHoldGivenBackElsewhere$"},
		Edits:  []Edit{{"backends/locks/quorum/renew.go", "!tally.GivenBack(votes) {\n\t\t\t\treturn until", "true {\n\t\t\t\treturn until"}},
	},
	{
		Name:   "lost-under-two-fences",
		Breaks: "a lock that a quorum has under two fences is not lost",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestRenew_UnderTwoFences$"},
		Edits:  []Edit{{"backends/locks/quorum/read.go", "\t\tcase tally.BetweenRounds(votes, s.set.Quorum, h.Owner): // or re-entered on two majorities, and one hold was given back\n\t\t\treturn grant{}, tally.Undecided\n", ""}},
	},
	{
		Name:   "renumbered-release-is-no-vote",
		Breaks: "a hold is released where a later LOCK has numbered its record anew: else the UNLOCK goes on and gives back another",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestUnlock_OneHoldOnTwoMajorities$"},
		Edits:  []Edit{{"scripts/release.lua", " or how == 'unlock' and h.grant ~= ARGV[first]", ""}},
	},
	{
		Name:   "unlock-beside-a-rival",
		Breaks: "an UNLOCK by memory that nodes call too late, naming a rival, is read again: a third proxy may have given the lease back",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestUnlock_BesideARivalThroughAThirdProxy$"},
		Edits:  []Edit{{"backends/locks/quorum/unlock.go", "tally.LostToRival(votes, s.set.Quorum, u.Owner)", "false"}},
	},
	{
		Name:   "forced-without-a-word",
		Breaks: "a session whose lock is taken away through another proxy is told that an operator did it",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestForce_TellsTheSession$"},
		Edits:  []Edit{{"scripts/release.lua", "    alert(owner, 'forced ') -- proxies of an older version do not read it\n", ""}},
	},
	{
		Name:   "given-back-without-a-word",
		Breaks: "a session whose lock its owner gives back through another proxy is not told of a loss, though others have had it since",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestSession_GivenBackElsewhereAndTaken$"},
		Edits:  []Edit{{"scripts/release.lua", "    if how == 'strict' then alert(owner, 'given ' .. int(h.fence) .. ' ') end -- a session at another proxy may keep it\n", ""}},
	},
	{
		Name:   "unlock-of-a-request-takes-another",
		Breaks: "an UNLOCK with the id of a LOCK gives back the hold of that, though a node that has it is silent",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestUnlock_HoldOfItsRequestOnASilentNode$"},
		Edits:  []Edit{{"backends/locks/quorum/unlock.go", "if u.tag != \"\" && !slices.ContainsFunc(ids, holdid.HasTag(u.tag)) { // a node", "if false { // a node"}},
	},
	{
		Name:   "unlock-before-a-quorum-names-another",
		Breaks: "an UNLOCK whose hold two others gave back, each first at other nodes, waits until a quorum names one of them, and gives back the hold of before",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestUnlock_WhereNodesNameOthers$"},
		Edits:  []Edit{{"backends/locks/tally/outcome.go", "named > 0 && named < q && named+due >= q", "false && named+due >= q"}},
	},
	{
		Name:   "unlock-of-the-longer-hold",
		Breaks: "a hold taken last through another proxy takes over the end of the one that is given back in its place",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestUnlock_LeavesTheLongerLease$"},
		Edits:  []Edit{{"scripts/release.lua", "if #later > 0 then redis.call('HSET', KEYS[1], unpack(later)) end\n", ""}},
	},
	{
		Name:   "shorter-hold-stays-short",
		Breaks: "the same: the lease lasts for as long",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestUnlock_LeavesTheLongerLease$"},
		Edits:  []Edit{{"scripts/release.lua", "      if its < at and not named", "      if false and not named"}},
	},
	{
		Name:   "earlier-hold-lasts-longer",
		Breaks: "a hold that was taken first lasts no longer when the last one is given back",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestUnlock_OfTheLastLeavesTheFirst$"},
		Edits:  []Edit{{"scripts/release.lua", " and taken(values[id]) > last then", " then"}},
	},
	{
		Name:   "new-once-more",
		Breaks: "nodes that had records are not new when all of them are empty: what was held is granted again",
		Rare:   true,
		Units:  Units{"backends/locks/quorum", "^TestRecovery_NotNewAgain$"},
		Edits:  []Edit{{"backends/locks/voters/repair.go", "		o.Bootstrap = BootstrapStrict\n", ""}},
	},
	{
		Name:   "sentinels-from-the-reply",
		Breaks: "what sentinels answer counts from when they were asked: after a sleep of the machine a server votes whose place another has taken",
		Rare:   true,
		Units:  Units{"backends/locks/voters", "^TestNode_AnswersOfSentinelsAge"},
		Edits:  []Edit{{"backends/locks/voters/failover.go", "tracker.answeredAt = tracker.askedAt", "tracker.answeredAt = n.set.Clock()"}},
	},
	{
		Name:    "renewal-from-the-reply",
		Breaks:  "the clock of a renewal starts before the first byte is sent: a slow one is told as much validity as a fast one",
		Profile: "at once",
		Units:   Units{"backends/locks/quorum", "^TestValidity_"},
		Edits:   []Edit{{"backends/locks/quorum/renew.go", "until = r.began + r.ttl - locks.Drift(r.ttl)\n", "until = s.Now() + r.ttl - locks.Drift(r.ttl)\n"}},
	},
	{
		Name:    "session-to-the-end",
		Breaks:  "a session is told before its validity ends: it counts on a lock that another may have",
		Profile: "clocks apart",
		Edits:   []Edit{{"backends/locks/keepalive.go", "last := k.svc.store.Now(), l.first((*sessionHold).giveUpAt)", "last := k.svc.store.Now(), l.until()+l.ttl"}},
	},
}

// lateRenewals lets the proxy renew what it remembers, however long ago it ended.
var lateRenewals = []Edit{
	{"backends/locks/quorum/grantcache.go", "p.until() <= now || (r.Fence != 0 && p.fence != r.Fence)", "(r.Fence != 0 && p.fence != r.Fence)"},
	{"backends/locks/quorum/grantcache.go", "\tg = p.copy()\n\tg.holds = liveHolds(g.holds, now)\n", "\tg = p.copy()\n"},
	{"backends/locks/quorum/grantcache.go", "liveHolds(only(p.holds, ids), now)", "only(p.holds, ids)"},
	{"backends/locks/quorum/renew.go", "\tif r.began >= r.grant.until() {\n\t\treturn 0, tally.Lost, nil, nil\n\t}\n", ""},
	{"backends/locks/quorum/renew.go", "case now >= r.grant.until() || now >= until:", "case now >= until:"},
}
