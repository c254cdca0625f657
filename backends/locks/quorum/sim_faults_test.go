package quorum

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks/voters"
)

// A simProfile is a kind of run: how large the world is, what its clients do and what goes
// wrong. Rare faults of the algorithm need worlds that are made for them.
type simProfile struct {
	name              string
	nodes, proxies    int
	names, clients    int
	long              time.Duration // until the faults end
	think             time.Duration // between two acts of a client, on average
	gap               time.Duration // between two faults, on average
	shortest, longest time.Duration // lease
	loss              float64       // share of segments that have to be sent again
	clocks            time.Duration // by how much clocks are off, at most
	skew              time.Duration // by how much proxies suppose that they are
	timeouts          []time.Duration
	shares            bool          // most clients read
	permits           bool          // and most of those with permits
	several           bool          // some take several names at once, of three at least
	maxTTL            time.Duration // 0: simMaxTTL
	maxHold           time.Duration // proxies look after locks without an end, for so long; 0: there are none
	acts              []weighted[func(*simClient)]
	faults            []weighted[simFault]
}

// A simFault begins to harm the world, and ends it after a while.
type simFault func(w *simWorld, r *rand.Rand)

type weighted[T any] struct {
	weight int
	what   T
}

// pick is one of all, by weight.
func pick[T any](r *rand.Rand, all []weighted[T]) T {
	sum := 0
	for _, a := range all {
		sum += a.weight
	}
	at := r.IntN(sum)
	for _, a := range all {
		if at -= a.weight; at < 0 {
			return a.what
		}
	}
	panic("no weights")
}

const simMaxTTL = 2 * time.Second

func profileOf(seed uint64) *simProfile {
	switch {
	case seed >= copySeeds:
		return copyProfiles[seed%uint64(len(copyProfiles))]
	case seed >= severalSeeds:
		return severalProfiles[seed%uint64(len(severalProfiles))]
	case seed >= permitSeeds:
		return permitProfiles[seed%uint64(len(permitProfiles))]
	case seed >= sharedSeeds:
		return sharedProfiles[seed%uint64(len(sharedProfiles))]
	case seed >= keptSeeds:
		return keptProfiles[seed%uint64(len(keptProfiles))]
	case seed >= adoptedSeeds:
		return adoptedProfiles[seed%uint64(len(adoptedProfiles))]
	}
	return simProfiles[seed%uint64(len(simProfiles))]
}

func (p *simProfile) act(r *rand.Rand) func(*simClient) { return pick(r, p.acts) }

func (p *simProfile) options(r *rand.Rand) testOptions {
	return testOptions{
		MaxTTL: cmp.Or(p.maxTTL, simMaxTTL), Bootstrap: voters.BootstrapStrict, Skew: p.skew,
		NodeTimeout:  p.timeouts[r.IntN(len(p.timeouts))],
		SessionGrace: time.Duration(r.IntN(2)) * 150 * time.Millisecond,
		RenewEndless: p.maxHold > 0, MaxHold: p.maxHold,
	}
}

// offset is how far off a clock is.
func (p *simProfile) offset(r *rand.Rand) time.Duration {
	return time.Duration(r.Int64N(int64(2*p.clocks))) - p.clocks
}

var (
	everyAct = []weighted[func(*simClient)]{
		{6, (*simClient).plain}, {4, (*simClient).reentrant}, {4, (*simClient).session},
		{3, (*simClient).resend}, {2, (*simClient).impatient},
	}
	everyFault = []weighted[simFault]{
		{3, loseNode}, {1, flush}, {1, flushScripts}, {3, pauseNode}, {3, cutLink}, {2, cutNode}, {2, pauseProxy},
		{3, slowLinks}, {3, breakConnections}, {2, restartProxy}, {1, stepBack}, {1, saveNode},
	}
)

var simProfiles = []*simProfile{
	{
		name: "mixed", nodes: 3, proxies: 2, names: 2, clients: 5, long: 3 * time.Second,
		think: 40 * time.Millisecond, gap: 300 * time.Millisecond, shortest: 100 * time.Millisecond, longest: 700 * time.Millisecond,
		loss: 0.002, clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{0, 50 * time.Millisecond, 300 * time.Millisecond},
		acts:     everyAct, faults: everyFault,
	},
	{
		name: "five nodes", nodes: 5, proxies: 3, names: 1, clients: 5, long: 3 * time.Second,
		think: 60 * time.Millisecond, gap: 200 * time.Millisecond, shortest: 100 * time.Millisecond, longest: 700 * time.Millisecond,
		loss: 0.002, clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{0, 50 * time.Millisecond, 300 * time.Millisecond},
		acts:     everyAct, faults: everyFault,
	},
	{
		// Nodes number grants by clocks that are far apart, so that the fence of a grant has
		// to be carried to a quorum. None forgets: what a floor is made of is a clock then.
		name: "clocks apart", nodes: 3, proxies: 2, names: 1, clients: 4, long: 3 * time.Second,
		think: 20 * time.Millisecond, gap: 150 * time.Millisecond, shortest: 100 * time.Millisecond, longest: 300 * time.Millisecond,
		loss: 0.001, clocks: 3 * time.Second, skew: time.Millisecond,
		timeouts: []time.Duration{0, 50 * time.Millisecond},
		acts:     everyAct,
		faults:   []weighted[simFault]{{3, pauseNode}, {5, cutLink}, {3, cutNode}, {2, slowLinks}, {2, breakConnections}, {1, restartProxy}},
	},
	{
		// Nodes forget one after the other, while long leases run that others wait for.
		name: "forgetting", nodes: 3, proxies: 2, names: 1, clients: 4, long: 6 * time.Second,
		think: 10 * time.Millisecond, gap: 400 * time.Millisecond, shortest: 500 * time.Millisecond, longest: simMaxTTL,
		loss: 0.001, clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{0, 50 * time.Millisecond},
		acts:     everyAct,
		faults:   []weighted[simFault]{{3, loseNode}, {4, loseNodes}, {1, flush}, {2, cutLink}, {1, cutNode}, {1, stepBack}, {1, saveNode}},
	},
	{
		// Answers come late, and are waited for.
		name: "slow", nodes: 3, proxies: 2, names: 1, clients: 4, long: 3 * time.Second,
		think: 10 * time.Millisecond, gap: 150 * time.Millisecond, shortest: 100 * time.Millisecond, longest: 400 * time.Millisecond,
		loss: 0.01, clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, time.Second},
		acts:     everyAct,
		faults:   []weighted[simFault]{{6, slowLinks}, {2, pauseNode}, {2, cutLink}, {2, pauseProxy}, {3, breakConnections}, {2, stepBack}},
	},
	{
		// One owner's attempts get into each other's way, while connections break.
		name: "attempts", nodes: 3, proxies: 2, names: 1, clients: 3, long: 3 * time.Second,
		think: 10 * time.Millisecond, gap: 80 * time.Millisecond, shortest: 200 * time.Millisecond, longest: 800 * time.Millisecond,
		loss: 0.01, clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{5 * time.Millisecond, 20 * time.Millisecond},
		acts: []weighted[func(*simClient)]{
			{6, (*simClient).reentrant}, {3, (*simClient).resend}, {1, (*simClient).plain}, {1, (*simClient).impatient},
		},
		faults: []weighted[simFault]{{6, breakConnections}, {3, slowLinks}, {3, cutLink}, {2, pauseNode}},
	},
	{
		// Owners do several things at the same moment, while answers overtake each other.
		name: "at once", nodes: 3, proxies: 2, names: 1, clients: 4, long: 3 * time.Second,
		think: 10 * time.Millisecond, gap: 200 * time.Millisecond, shortest: 100 * time.Millisecond, longest: 1500 * time.Millisecond,
		clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{0, 50 * time.Millisecond},
		acts:     []weighted[func(*simClient)]{{3, (*simClient).atOnce}, {4, (*simClient).late}, {2, (*simClient).plain}},
		faults:   []weighted[simFault]{{6, slowLinks}, {1, pauseNode}, {1, cutLink}},
	},
	{
		// Copies of a LOCK run while undos and UNLOCKs of the same request do.
		name: "copies", nodes: 3, proxies: 2, names: 1, clients: 4, long: 3 * time.Second,
		think: 10 * time.Millisecond, gap: 200 * time.Millisecond, shortest: 100 * time.Millisecond, longest: 1500 * time.Millisecond,
		clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{0, 50 * time.Millisecond},
		acts:     []weighted[func(*simClient)]{{6, (*simClient).resendAtOnce}, {1, (*simClient).plain}},
		faults:   []weighted[simFault]{{6, slowLinks}, {1, pauseNode}, {1, cutLink}},
	},
	{
		// Holds of one owner are on different majorities, while little else fails.
		name: "majorities", nodes: 3, proxies: 2, names: 2, clients: 3, long: 4 * time.Second,
		think: 20 * time.Millisecond, gap: 2 * time.Second, shortest: 200 * time.Millisecond, longest: simMaxTTL,
		clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{0, 50 * time.Millisecond},
		acts:     []weighted[func(*simClient)]{{4, (*simClient).majorities}, {1, (*simClient).plain}},
		faults:   []weighted[simFault]{{1, flushScripts}, {1, cutLink}, {1, pauseNode}},
	},
	{
		// What sessions keep is renewed and taken elsewhere too.
		name: "sessions", nodes: 3, proxies: 2, names: 1, clients: 4, long: 4 * time.Second,
		think: 20 * time.Millisecond, gap: 300 * time.Millisecond, shortest: 100 * time.Millisecond, longest: simMaxTTL,
		loss: 0.001, clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{0, 50 * time.Millisecond},
		acts:     []weighted[func(*simClient)]{{5, (*simClient).besideSession}, {1, (*simClient).session}, {3, (*simClient).plain}},
		faults:   []weighted[simFault]{{2, cutLink}, {1, cutNode}, {2, slowLinks}, {1, pauseNode}, {1, breakConnections}, {1, stepBack}},
	},
	{
		// Leases are as long as a node that forgot is out, and nodes forget right after they
		// gave or prolonged one.
		name: "long leases", nodes: 3, proxies: 2, names: 1, clients: 4, long: 8 * time.Second,
		think: 10 * time.Millisecond, gap: 300 * time.Millisecond, shortest: simMaxTTL * 9 / 10, longest: simMaxTTL,
		clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{0, 50 * time.Millisecond},
		acts:     []weighted[func(*simClient)]{{4, (*simClient).plain}, {1, (*simClient).reentrant}, {1, (*simClient).session}},
		faults:   []weighted[simFault]{{2, forgetAfter}, {3, forgetInTurn}, {1, cutLink}, {1, saveNode}},
	},
	{
		// Some take the place of whoever has the name.
		name: "replacing", nodes: 3, proxies: 2, names: 1, clients: 5, long: 3 * time.Second,
		think: 20 * time.Millisecond, gap: 200 * time.Millisecond, shortest: 100 * time.Millisecond, longest: 700 * time.Millisecond,
		loss: 0.002, clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{0, 50 * time.Millisecond},
		acts:     append([]weighted[func(*simClient)]{{14, (*simClient).replace}}, everyAct...),
		faults:   everyFault,
	},
	{
		// An operator takes names away. Then some promises are not made, see simName.forced.
		name: "force", nodes: 3, proxies: 2, names: 2, clients: 5, long: 3 * time.Second,
		think: 20 * time.Millisecond, gap: 300 * time.Millisecond, shortest: 100 * time.Millisecond, longest: 700 * time.Millisecond,
		loss: 0.002, clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{0, 50 * time.Millisecond},
		acts:     append([]weighted[func(*simClient)]{{2, (*simClient).force}, {4, (*simClient).takenAway}}, everyAct...),
		faults:   everyFault,
	},
}

// harm lets things go wrong for as long as the profile says, and returns when all is well.
func (w *simWorld) harm() {
	r := w.stream("faults")
	var all sync.WaitGroup
	for end := w.began.Add(w.profile.long); ; {
		time.Sleep(time.Duration(r.ExpFloat64()*float64(w.profile.gap)) + time.Nanosecond)
		if time.Now().After(end) {
			break
		}
		fault, chance := pick(r, w.profile.faults), rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
		all.Go(func() {
			defer w.ail()()
			fault(w, chance)
		})
	}
	all.Wait()
	w.with(func() {
		for _, links := range w.links {
			for _, l := range links {
				l.loss = 0
			}
		}
	})
}

// lasts sleeps for some time up to d.
func lasts(r *rand.Rand, d time.Duration) { time.Sleep(time.Duration(r.Int64N(int64(d))) + 1) }

// with has something done to a random node while the world is locked.
func (w *simWorld) with(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
}

func (w *simWorld) anyNode(r *rand.Rand) *simNode { return w.nodes[r.IntN(len(w.nodes))] }

func (w *simWorld) say(format string, args ...any) { w.history.log("fault", "", format, args...) }

// loseNode kills a node and starts it again, with all it knew, with less, or with nothing,
// and perhaps with another time.
func loseNode(w *simWorld, r *rand.Rand) { w.lose(w.anyNode(r), r, 500*time.Millisecond) }

// loseOne does so if all other nodes vote.
func loseOne(w *simWorld, r *rand.Rand) {
	if !w.losing.TryLock() {
		return
	}
	defer w.losing.Unlock()
	n, others := w.anyNode(r), true
	w.with(func() {
		others = !slices.ContainsFunc(w.nodes, func(o *simNode) bool { return o != n && !o.votes() })
	})
	if others {
		w.lose(n, r, 500*time.Millisecond)
	}
}

// loseNodes does so with all nodes, one shortly after the other.
func loseNodes(w *simWorld, r *rand.Rand) {
	for _, i := range r.Perm(len(w.nodes)) {
		w.lose(w.nodes[i], r, 50*time.Millisecond)
		lasts(r, 50*time.Millisecond)
	}
}

// forgetAfter has a node lose its memory right after it gave or prolonged a lease: the
// proxy may have heard of it, or not.
func forgetAfter(w *simWorld, r *rand.Rand) {
	n := w.trap(nil, []string{"acquire", "renew", "settle"}[r.IntN(3)]).wait(w, time.Second)
	if n != nil {
		lasts(r, 500*time.Microsecond)
		w.lose(n, r, 20*time.Millisecond)
	}
}

// forgetInTurn has all nodes lose their memory, the first right after it gave or prolonged
// a lease, each of the others as soon as the one before votes again.
func forgetInTurn(w *simWorld, r *rand.Rand) {
	n := w.trap(nil, []string{"acquire", "renew"}[r.IntN(2)]).wait(w, time.Second)
	if n == nil {
		return
	}
	lasts(r, 500*time.Microsecond)
	w.lose(n, r, 5*time.Millisecond)
	for _, i := range r.Perm(len(w.nodes)) {
		next, votes := w.nodes[i], false
		for end := time.Now().Add(w.opts.MaxTTL * 3 / 2); !votes && next != n && time.Now().Before(end); lasts(r, 10*time.Millisecond) {
			w.with(func() { votes = n.votes() })
		}
		if votes {
			n = next
			w.lose(n, r, 5*time.Millisecond)
		}
	}
}

func (w *simWorld) lose(n *simNode, r *rand.Rand, downFor time.Duration) {
	told, memory := r.IntN(3) > 0, r.IntN(4)
	kept := map[string]*simKey{}
	down := false
	w.with(func() {
		if down = n.down; down {
			return
		}
		n.kill(told)
		switch memory {
		case 0, 1:
			kept = maps.Clone(n.old)
		case 2:
			kept = n.copyKeys()
		}
	})
	if down {
		return
	}
	w.say("node %d is killed, proxies are told: %v", n.index, told)
	lasts(r, downFor)
	var clock time.Duration
	w.with(func() {
		n.restart(kept)
		n.old = n.copyKeys()
		if r.IntN(4) == 0 {
			n.offset = w.profile.offset(r)
		}
		clock = n.offset
	})
	w.say("node %d is back, with %s, its clock at %v", n.index, [...]string{"a snapshot", "a snapshot", "all it knew", "nothing"}[memory], clock)
}

// saveNode has a node make the snapshot from which it may start again.
func saveNode(w *simWorld, r *rand.Rand) {
	n := w.anyNode(r)
	w.with(func() { n.old = n.copyKeys() })
	w.say("node %d saves", n.index)
}

func flush(w *simWorld, r *rand.Rand) {
	n, renamed := w.anyNode(r), r.IntN(2) == 0
	w.with(func() {
		if !n.down {
			clear(n.keys)
		}
		if renamed {
			n.replid = w.hex()
		}
	})
	w.say("node %d is flushed, replication id changed: %v", n.index, renamed)
}

func flushScripts(w *simWorld, r *rand.Rand) {
	n := w.anyNode(r)
	w.with(func() { clear(n.scripts) })
	w.say("scripts of node %d are flushed", n.index)
}

// pauseNode stops a node, which executes later what arrives meanwhile.
func pauseNode(w *simWorld, r *rand.Rand) {
	n := w.anyNode(r)
	run := ""
	w.with(func() {
		if !n.stopped && !n.down {
			n.stopped, run = true, n.runID
		}
	})
	if run == "" {
		return
	}
	w.say("node %d stands still", n.index)
	lasts(r, time.Second)
	w.with(func() {
		if n.runID == run && !n.down {
			n.resume()
		}
	})
	w.say("node %d goes on", n.index)
}

// cut blocks links for a while: both ways, or one.
func (w *simWorld) cut(what string, links []*simLink, r *rand.Rand, d time.Duration) {
	ways := [][]int{{toNode, toProxy}, {toNode, toProxy}, {toNode}, {toProxy}}[r.IntN(4)]
	w.with(func() {
		for _, l := range links {
			for _, way := range ways {
				l.block(way)
			}
		}
	})
	w.say("%s: nothing arrives, ways %v", what, ways)
	lasts(r, d)
	w.with(func() {
		for _, l := range links {
			for _, way := range ways {
				l.unblock(way)
			}
		}
	})
	w.say("%s: arrives again", what)
}

func (w *simWorld) anyLink(r *rand.Rand) (name string, l *simLink) {
	p, n := r.IntN(len(w.links)), r.IntN(len(w.nodes))
	return linkName(p, n), w.links[p][n]
}

func cutLink(w *simWorld, r *rand.Rand) {
	name, l := w.anyLink(r)
	w.cut(name, []*simLink{l}, r, time.Second)
}

func cutNode(w *simWorld, r *rand.Rand) {
	n := w.anyNode(r)
	var links []*simLink
	for p := range w.links {
		links = append(links, w.links[p][n.index])
	}
	w.cut(nodeName(n.index), links, r, time.Second)
}

// pauseProxy stops a proxy as far as nodes see it: its own timers run on.
func pauseProxy(w *simWorld, r *rand.Rand) {
	p := r.IntN(len(w.links))
	w.cut(proxyName(p), w.links[p], r, 700*time.Millisecond)
}

// slowLinks delays what moves on some links, differently each time.
func slowLinks(w *simWorld, r *rand.Rand) {
	slow := time.Duration(r.Int64N(int64([]time.Duration{5 * time.Millisecond, 50 * time.Millisecond, 400 * time.Millisecond}[r.IntN(3)]))) + 1
	for range 1 + r.IntN(3) {
		_, l := w.anyLink(r)
		w.with(func() { l.slow = slow })
		w.say("%s: takes up to %v", linkName(l.proxy, l.node.index), slow)
		defer w.with(func() { l.slow = 0 })
	}
	lasts(r, time.Second)
}

// breakConnections resets those of one link: what is on its way back is lost.
func breakConnections(w *simWorld, r *rand.Rand) {
	name, l := w.anyLink(r)
	w.with(func() {
		for _, c := range l.conns {
			if !c.closed {
				c.inErr = syscall.ECONNRESET
				c.rouse()
			}
		}
	})
	w.say("%s: connections break", name)
}

// restartProxy kills a proxy, or has it stop by itself, and starts it again.
func restartProxy(w *simWorld, r *rand.Rand) {
	p := w.proxy(r.IntN(len(w.links)))
	if p.life.Err() != nil {
		return
	}
	kill := r.IntN(3) > 0
	w.say("%v ends, killed: %v", p, kill)
	if kill {
		p.kill()
	} else {
		p.stop()
	}
	lasts(r, 300*time.Millisecond)
	w.say("%v starts", p.start())
}

// stepBack sets a node's clock back: leases last longer there. A step forward ends them
// early, which no proxy can notice: the one thing about clocks that is not promised.
func stepBack(w *simWorld, r *rand.Rand) {
	n := w.anyNode(r)
	var clock time.Duration
	w.with(func() {
		n.offset = min(n.offset, w.profile.offset(r))
		clock = n.offset
	})
	w.say("the clock of node %d is set back to %v", n.index, clock)
}
