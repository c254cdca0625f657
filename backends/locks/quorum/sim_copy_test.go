package quorum

import "time"

// copySeeds is the first seed of runs in which leases are longer than a node that forgot is out.
const copySeeds = 1 << 37

// Nodes of these vote again after a copy, while leases run that they have forgotten.
var copyProfiles = []*simProfile{
	{
		name: "copies", nodes: 3, proxies: 2, names: 2, clients: 5, long: 40 * time.Second, maxTTL: time.Minute,
		think: 100 * time.Millisecond, gap: 3 * time.Second, shortest: 2 * time.Second, longest: 12 * time.Second,
		loss: 0.001, clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{0, 50 * time.Millisecond, 300 * time.Millisecond},
		acts:     copyActs, faults: copyFaults,
	},
	{
		name: "copies, five nodes", nodes: 5, proxies: 2, names: 2, clients: 5, long: 40 * time.Second, maxTTL: time.Minute,
		think: 100 * time.Millisecond, gap: 1500 * time.Millisecond, shortest: 2 * time.Second, longest: 12 * time.Second,
		loss: 0.001, clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{0, 50 * time.Millisecond},
		acts:     copyActs, faults: copyFaults,
	},
	{
		// Nodes forget right after they gave or prolonged a lease, in turn, each when the one before votes again.
		name: "copies in turn", nodes: 3, proxies: 2, names: 1, clients: 4, long: 60 * time.Second, maxTTL: time.Minute,
		think: 50 * time.Millisecond, gap: 3 * time.Second, shortest: 4 * time.Second, longest: 25 * time.Second,
		clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{0, 50 * time.Millisecond},
		acts:     copyActs,
		faults:   []weighted[simFault]{{2, forgetAfter}, {3, forgetInTurn}, {1, cutLink}, {1, saveNode}},
	},
	{
		name: "copies and readers", shares: true, nodes: 3, proxies: 2, names: 2, clients: 5, long: 40 * time.Second, maxTTL: time.Minute,
		think: 100 * time.Millisecond, gap: 2 * time.Second, shortest: 2 * time.Second, longest: 12 * time.Second,
		clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{0, 50 * time.Millisecond},
		acts:     sharedActs, faults: copyFaults,
	},
	{
		name: "copies and permits", shares: true, permits: true, nodes: 3, proxies: 2, names: 1, clients: 5, long: 40 * time.Second, maxTTL: time.Minute,
		think: 100 * time.Millisecond, gap: 2 * time.Second, shortest: 2 * time.Second, longest: 12 * time.Second,
		clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{0, 50 * time.Millisecond},
		acts:     permitActs, faults: copyFaults,
	},
	{
		name: "copies and several", nodes: 3, proxies: 2, names: 4, clients: 5, long: 40 * time.Second, maxTTL: time.Minute,
		think: 100 * time.Millisecond, gap: 2 * time.Second, shortest: 2 * time.Second, longest: 12 * time.Second,
		clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{0, 50 * time.Millisecond},
		several:  true, acts: severalActs, faults: copyFaults,
	},
}

var (
	copyActs = []weighted[func(*simClient)]{
		{6, (*simClient).plain}, {3, (*simClient).reentrant}, {5, (*simClient).session}, {2, (*simClient).resend}, {1, (*simClient).impatient},
		{2, (*simClient).force}, {2, (*simClient).takenAway}, {2, (*simClient).besideSession}, {2, (*simClient).replace},
	}
	copyFaults = []weighted[simFault]{
		{4, loseNode}, {2, flush}, {2, forgetAfter}, {1, forgetInTurn}, {1, pauseNode}, {2, cutLink}, {1, cutNode}, {1, pauseProxy}, {1, slowLinks}, {1, breakConnections},
		{2, restartProxy}, {1, stepBack}, {2, saveNode},
	}
)
