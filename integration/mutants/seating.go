package mutants

// Seating are the mutants of permits, which are readers' locks that have a seat each.
var Seating = []Mutant{
	{
		Name:    "seat-of-another",
		Breaks:  "a node gives no owner a seat that another one has",
		Profile: "permits and well",
		Edits:   []Edit{{"scripts/acquire.lua", "    other = seat and sitter(seat, owner)\n", "    other = nil\n"}},
	},
	{
		Name:   "fresh-seat-of-another",
		Breaks: "nor does it to one that drops its own grant for that",
		Rare:   true,
		Units:  permitScriptTests,
		Edits: []Edit{{"scripts/acquire.lua", "not same and (seat and sitter(seat, owner) or permits > 0 and not seat and '')",
			"not same and permits > 0 and not seat and ''"}},
	},
	{
		Name:   "fresh-without-a-seat",
		Breaks: "the new grant needs a seat as well",
		Rare:   true,
		Units:  permitScriptTests,
		Edits: []Edit{{"scripts/acquire.lua", "not same and (seat and sitter(seat, owner) or permits > 0 and not seat and '')",
			"not same and seat and sitter(seat, owner)"}},
	},
	{
		Name:   "permit-without-a-seat",
		Breaks: "a hold that names no seat is given no permit",
		Rare:   true,
		Units:  permitScriptTests,
		Edits:  []Edit{{"scripts/acquire.lua", "    if permits > 0 and not seat then return taken_seats('') end\n", ""}},
	},
	{
		Name:    "reading-is-a-permit",
		Breaks:  "who reads without a permit is not told that it has one",
		Profile: "permits",
		Edits:   []Edit{{"scripts/acquire.lua", "if mine and permits > 0 and how ~= 'fresh' and", "if false and"}},
	},
	{
		Name:   "seat-back-beside-another",
		Breaks: "a renewal puts no permit back whose seat another owner has",
		Rare:   true,
		Units:  permitScriptTests,
		Edits:  []Edit{{"scripts/renew.lua", "    if seat then other, e = sitter(seat, owner) end\n", ""}},
	},
	{
		Name:   "settle-of-another-seat",
		Breaks: "a settle is not done where the grant has another seat than its hold: that would count for both",
		Rare:   true,
		Units:  permitScriptTests,
		Edits:  []Edit{{"scripts/settle.lua", "if KEYS[4] and seat_of(h.grant) ~= seat_of(hold) then return {0} end\n", ""}},
	},
	{
		Name:   "re-entry-whatever-its-seat",
		Breaks: "an owner has a permit if a quorum knows one seat of it, and not only one fence",
		Rare:   true,
		Units:  tallyTests,
		Edits:  []Edit{{"backends/locks/tally/tally.go", "return kept{v.Reentered, SeatOf(v)},", "return kept{v.Reentered, 0},"}},
	},
	{
		Name:   "seat-of-the-index-alone",
		Breaks: "a seat is free if the owner that was given it last has another one now",
		Rare:   true,
		Units:  permitScriptTests,
		Edits:  []Edit{{"scripts/prologue.lua", "if e <= now or seat_of(h[2]) ~= seat then return end", "if e <= now then return end"}},
	},
	{
		Name:   "seat-of-one-that-has-lapsed",
		Breaks: "a seat is free when the lease of its owner has ended",
		Rare:   true,
		Units:  permitScriptTests,
		Edits:  []Edit{{"scripts/prologue.lua", "if e <= now or seat_of(h[2]) ~= seat then return end", "if not h[1] or seat_of(h[2]) ~= seat then return end"}},
	},
	{
		Name:   "seat-in-its-own-way",
		Breaks: "an owner's own seat is in nobody's way",
		Rare:   true,
		Units:  permitScriptTests,
		Edits:  []Edit{{"scripts/prologue.lua", "if not other or other == owner then return end", "if not other then return end"}},
	},
	{
		Name:   "seat-kept-far-ahead",
		Breaks: "a clock that was stepped back does not keep a seat for hours",
		Rare:   true,
		Units:  permitScriptTests,
		Edits: []Edit{{"scripts/prologue.lua", "    redis.call('HSET', key, 'e', int(e))\n    redis.call('PEXPIREAT', key, int(e))\n  end\n  return other, e",
			"  end\n  return other, e"}},
	},
	{
		Name:    "index-without-a-seat",
		Breaks:  "a node knows who has which seat",
		Profile: "permits and well",
		Edits:   []Edit{{"scripts/prologue.lua", "    if seat then redis.call('HSET', beside('locks'), seat, owner) end\n", ""}},
	},
	{
		Name:   "index-of-seats-goes-early",
		Breaks: "for as long as any of them may have it",
		Rare:   true,
		Units:  permitScriptTests,
		Edits:  []Edit{{"scripts/prologue.lua", "if seat then redis.call('PEXPIRE', beside('locks'), int(maxttl)) end", "if seat then redis.call('PEXPIRE', beside('locks'), int(e - now)) end"}},
	},
	{
		Name:   "index-of-seats-misses-renewals",
		Breaks: "also after it has prolonged that",
		Rare:   true,
		Units:  permitScriptTests,
		Edits:  []Edit{{"scripts/prologue.lua", "  if KEYS[4] then reads(owner, e, seat_of(grant)) end\n", "  if KEYS[4] then reads(owner, e) end\n"}},
	},
	{
		Name:   "index-of-seats-keeps-one",
		Breaks: "a seat that was given back is nobody's",
		Rare:   true,
		Units:  permitScriptTests,
		Edits:  []Edit{{"scripts/release.lua", "    if seat then redis.call('HDEL', beside('locks'), seat) end\n", ""}},
	},
	{
		Name:   "permit-tells-nobody",
		Breaks: "those who wait are told of each permit that is given back, though others read on",
		Rare:   true,
		Units:  permitScriptTests,
		Edits:  []Edit{{"scripts/release.lua", "if seat or not (KEYS[4] and reader(owner)) then", "if not (KEYS[4] and reader(owner)) then"}},
	},
	{
		Name:    "permit-with-the-fence-of-readers",
		Breaks:  "the fences of permits increase",
		Profile: "permits and well",
		Edits:   []Edit{{"scripts/acquire.lua", "if name and not seat then", "if name then"}},
	},
	{
		Name:   "permit-below-the-name",
		Breaks: "they are above all fences of the name, whatever clocks say",
		Rare:   true,
		Units:  permitScriptTests,
		Edits:  []Edit{{"scripts/acquire.lua", "  c = math.max(c, largest)\n", ""}},
	},
	{
		Name:   "last-seat-to-lapse",
		Breaks: "a refusal says when the first of the seats lapses, so that a waiter asks again then",
		Rare:   true,
		Units:  permitScriptTests,
		Edits:  []Edit{{"scripts/acquire.lua", "if whose then first = math.min(first, e) else", "if whose then first = first == math.huge and e or math.max(first, e) else"}},
	},
	{
		Name:   "free-at-one-node",
		Breaks: "the next seat that is asked for is one that a quorum may find free",
		Rare:   true,
		Units:  seatTests,
		Edits:  []Edit{{"backends/locks/seats/seats.go", "== max(1, need-others) {", "== 1 {"}},
	},
	{
		Name:   "freed-seat-is-forgotten",
		Breaks: "a seat that was freed here is the next that is asked for",
		Rare:   true,
		Units:  seatTests,
		Edits:  []Edit{{"backends/locks/seats/seats.go", "	n.freed = append(n.freed, seat)\n", ""}},
	},
	{
		Name:   "seat-above-the-permits",
		Breaks: "no seat is asked for that is above the number of permits",
		Rare:   true,
		Units:  seatTests,
		Edits:  []Edit{{"backends/locks/seats/seats.go", "		if seat < permits {\n", "		if true {\n"}},
	},
	{
		Name:   "no-seat-for-one-that-has-read",
		Breaks: "who has had a grant without a seat, which has ended, asks for one as others do",
		Rare:   true,
		Units:  permitTests,
		Edits:  []Edit{{"backends/locks/quorum/seat.go", "known.fence != 0 && known.until() > s.Now()", "known.fence != 0"}},
	},
	{
		Name:   "another-seat-than-its-own",
		Breaks: "an owner that has a seat asks for that one: another could not be settled",
		Rare:   true,
		Units:  permitTests,
		Edits:  []Edit{{"backends/locks/quorum/seat.go", "v.Kind == voters.Yes && v.Reentered != 0 }); n > 0 {", "v.Kind == voters.Yes && v.Reentered != 0 }); n > len(votes) {"}},
	},
	{
		Name:   "known-seat-is-not-asked-for",
		Breaks: "also where only this proxy knows which it is",
		Rare:   true,
		Units:  permitTests,
		Edits:  []Edit{{"backends/locks/quorum/seat.go", "		return seats.Of(known.id)\n", "		return s.seats.Pick(a.Key, max(1, a.Permits), s.set.Opts.Random.Int)\n"}},
	},
	{
		Name:   "seat-of-the-proposal",
		Breaks: "the seat of a re-entry is that of the grant",
		Rare:   true,
		Units:  permitTests,
		Edits: []Edit{{"backends/locks/quorum/acquire.go", "		g.id, _ = tally.Most(votes, func(v *voters.Vote) (string, bool) {\n			return v.Grant, v.Kind == voters.Yes && v.Reentered == t.Fence && tally.SeatOf(v) == t.Seat\n		})\n",
			""}},
	},
}

// Tests of permits: of single nodes, of what a proxy asks for, of votes and of the seats that are proposed.
var (
	permitScriptTests = Units{simulated, "^TestPermitsScript"}
	permitTests       = Units{simulated, "^TestPermits_"}
	tallyTests        = Units{"backends/locks/tally", "^TestAcquire"}
	seatTests         = Units{"backends/locks/seats", "."}
)
