package main

import "github.com/lockproxy/lockproxy/integration/model/explore"

// A variant is the sound lock without one of its rules, and a small world in which that shows.
type variant struct {
	name, about string
	take        func(*Rules)
	breaks      string        // the promise it costs, empty if no search found one
	world       func() Config // nil: too large for a test; docs/decisions/0003 has it
}

var variants = []variant{
	{"plain", "renewals are applied in order of arrival",
		func(r *Rules) { r.Version = anyVersion }, "P1", func() Config { return pending(small(), 1) }},
	{"number", "a larger number wins, an equal one is a repeat; a foreign proxy takes the largest it read, plus one",
		func(r *Rules) { r.Version = largerNumber }, "P1", func() Config { return pending(small(), 1) }},
	{"unique-number", "as number, but equal numbers of different rounds are no repeat",
		func(r *Rules) { r.Version = uniqueNumber }, "P1", func() Config { return skipping(pending(small(), 1)) }},
	{"min", "a shortening renewal counts only when it succeeds",
		func(r *Rules) { r.MinOnSend = false }, "P1", func() Config { return pending(small(), 1) }},
	{"guard", "a hold is put back wherever the name is free",
		func(r *Rules) { r.Guard = false }, "P3", session},
	{"burn", "a release leaves the counter alone",
		func(r *Rules) { r.Burn = false }, "P3", session},
	{"fence", "a hold of the owner counts whatever its fence",
		func(r *Rules) { r.FenceMatch = false }, "P2", func() Config { return reacquiring(small()) }},
	{"foreign-quorum", "a foreign round is content with one node",
		func(r *Rules) { r.ReadQuorum = false }, "P2", small},
	{"quarantine", "nodes in quarantine are read and counted",
		func(r *Rules) { r.VotesOnly = false }, "P1", func() Config { return losing(small()) }},
	{"auto-grow", "a renewal nobody asked for may shorten",
		func(r *Rules) { r.AutoGrows = false }, "P1", besideSession},
	{"unlock-asks", "UNLOCK within the remembered validity counts every answer",
		func(r *Rules) { r.UnlockAsks = false }, "P4", unlocking},
	{"notes", "a renewal may shorten without a quorum having noted it",
		func(r *Rules) { r.Notes = false }, "P4", unlocking},
	{"force-notes", "FORCE releases without a quorum having noted it",
		func(r *Rules) { r.ForceNotes = false }, "P5", forcing},
	{"force-burns", "FORCE leaves the counter alone",
		func(r *Rules) { r.ForceBurns = false }, "P5", forcedSession},
	{"read-granted", "a foreign read counts holds that were put back",
		func(r *Rules) { r.ReadsGranted = false }, "P2", nil},
	{"cancel", "a proxy goes on with a request whose client has given up",
		func(r *Rules) { r.CancelSends = false }, "P2", nil},
	{"noted-refuses", "a node with a note of the grant puts it back",
		func(r *Rules) { r.NotedRefuses = false }, "P6", func() Config { return lapsing(2) }},
	{"noted-votes", "votes of records that were put back count beside one that says noted",
		func(r *Rules) { r.NotedVotes, r.ToldVotes = false, false }, "P6", func() Config { return lapsing(2) }},
	{"told-votes", "only votes that put the hold back in this round do not count beside one that says noted",
		func(r *Rules) { r.ToldVotes = false }, "P6", func() Config { return lapsing(3) }},
	{"foreign-repair", "a foreign round puts holds back too",
		func(r *Rules) { r.ForeignRepair = true }, "", nil},
	{"foreign-bound", "a foreign round has no deadline but its own lease",
		func(r *Rules) { r.ForeignBound = false }, "", nil},
	{"own-bound", "an own round has no deadline but its own lease",
		func(r *Rules) { r.OwnBound = false }, "", nil},
}

// small is a world in which nothing is unlocked and three ticks are the long lease.
func small() Config {
	c := defaultConfig()
	c.Long, c.Quarantine, c.Requests = 3, 3, 1
	c.Unlocks, c.ProxiesRemember = false, true
	return c
}

// session is a world in which proxy 0 renews by itself and nobody else wants the lock.
func session() Config {
	c := small()
	c.Requests, c.Autos = 0, 2
	c.Shortens, c.Unlocks, c.NoRival = false, true, true
	return c
}

// besideSession is a world in which the owner of a session renews itself too.
func besideSession() Config {
	c := small()
	c.Autos, c.Shortens = 1, false
	return c
}

func unlocking() Config {
	c := small()
	c.Unlocks = true
	return c
}

// forcedRenewal is a world in which the lock is taken away while it is renewed, and wanted.
func forcedRenewal() Config {
	c := small()
	c.Long, c.Short, c.Drift, c.Quarantine, c.Force = 2, 1, 0, 2, true
	return c
}

// forcing is a world in which an operator may take the lock away and the owner may unlock.
func forcing() Config {
	c := unlocking()
	c.Requests, c.Shortens, c.Force = 0, false, true
	return c
}

// forcedSession is forcing beside a proxy that renews by itself.
func forcedSession() Config {
	c := forcing()
	c.Autos, c.Unlocks, c.NoRival = 2, false, true
	return c
}

// lapsing is a world in which the owner asks for that many renewals, some of them when
// its lease has lapsed. Its acquire arrived everywhere: a node that executes it after the
// lapse makes a record like any other, and a renewal of that is no broken promise.
func lapsing(renewals int) Config {
	c := small()
	c.Long, c.Short, c.Drift, c.Quarantine, c.Requests = 2, 1, 0, 2, renewals
	c.Lapse, c.NoLate, c.NoRival = true, true, true
	return c
}

func pending(c Config, n int) Config  { c.Pending = n; return c }
func skipping(c Config) Config        { c.Skipped = 1; return c }
func reacquiring(c Config) Config     { c.DupAcquire = true; return c }
func losing(c Config) Config          { c.Losses = 1; return c }
func throughOneProxy(c Config) Config { c.OneProxy = true; return c }
func longer(c Config) Config          { c.Long, c.Quarantine = c.Long+1, c.Quarantine+1; return c }

// rulesOf are the rules that a search may do without; taking one away changes r.
func rulesOf(r *Rules) (all []explore.Rule) {
	for _, v := range variants {
		all = append(all, explore.Rule{Name: v.name, About: v.about, Take: func() { v.take(r) }})
	}
	return all
}
