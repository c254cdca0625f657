package faults

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A fault is one thing that is made to fail for a while.
type fault struct {
	at, lasts time.Duration
	kind      string
	a, b      int           // which node, proxy or client; which node of a link; -1: all
	amount    time.Duration // of a delay or a step
	way       string        // of a link: upstream, downstream, or both if empty; of an aim: when it is hit
	script    string        // of an aim
}

// aims reports whether the fault waits for a message, in which case it may not happen.
func (f fault) aims() bool {
	return slices.Contains([]string{aimedKill, aimedPause, aimedProxy, aimedCut, inTurn}, f.kind)
}

func (f fault) String() string {
	return fmt.Sprintf("%6.2fs %s %d/%d for %v %v %s %s", f.at.Seconds(), f.kind, f.a, f.b, f.lasts.Round(time.Millisecond), f.amount.Round(time.Millisecond), f.way, f.script)
}

// target is what fails; one fault of it at a time.
func (f fault) target() string {
	switch what, _, _ := strings.Cut(f.kind, "-"); what {
	case "node", "script", "step":
		return fmt.Sprint("node", f.a)
	case "proxy", "client":
		return fmt.Sprint(what, f.a)
	case "force", failover:
		return what
	}
	switch f.kind {
	case aimedKill, aimedPause, inTurn:
		return fmt.Sprint("node", f.a)
	case aimedProxy, aimedCut:
		return fmt.Sprint("tap", f.b, f.a)
	}
	return "links" // since one kind of them cannot tell whose it ends
}

// Kinds are what can be made to fail. Drift and skew hold for a whole run. After a step
// forward only fences are promised; it is never part of a mix.
var kinds = []string{
	"node-kill", "node-pause", "node-flush", "script-flush", "proxy-kill", "proxy-pause", "client-kill", "client-pause",
	"partition", "half-open", "delay", "cut", "step-back", "force", "drift", "skew",
	aimedKill, aimedPause, aimedProxy, aimedCut, inTurn,
}

// What happens when a script is called: between the votes of a round, or right after one.
const (
	aimedKill  = "aimed-kill"     // of the node
	aimedPause = "aimed-pause"    // of the node
	aimedProxy = "aimed-proxy"    // which is paused
	aimedCut   = "aimed-cut"      // of the link
	inTurn     = "forget-in-turn" // all nodes, each as soon as the one before votes again
	aimsFor    = 500 * time.Millisecond
)

// Beside the mix: what is unsafe, and what needs a node that Sentinel watches over.
const (
	stepForward = "step-forward"
	failover    = "failover"
)

// size is how much there is to fail.
type size struct {
	nodes, proxies, clients int
	out                     time.Duration // for how long, more or less, a node that forgot does not vote
	spares                  bool          // one more proxy is there, which nothing of this may reach
}

// A planner makes up faults.
type planner struct {
	*rand.Rand
	size
	kinds   []string
	busy    map[string]time.Duration // until when a target fails already
	forgets time.Duration            // before this no node may forget
	back    []time.Duration          // by how much clocks have been stepped back
	pace    time.Duration            // faults are up to so far apart
}

const (
	stormLength = 7 * time.Second
	calmLength  = 4 * time.Second
	mostBack    = 800 * time.Millisecond // less than the skew that proxies allow for
)

// plan is the faults of a run of this length, which follow from the seed. There are storms
// with calms between them, in which more can be said of what clients must be told.
// pace, if it is not 0, is how far apart faults of a storm are at most.
func plan(seed uint64, length time.Duration, s size, only []string, pace time.Duration) []fault {
	p := &planner{Rand: rand.New(rand.NewPCG(seed, 1)), size: s, busy: map[string]time.Duration{},
		back: make([]time.Duration, s.nodes), pace: cmp.Or(pace, 350*time.Millisecond)}
	for _, k := range only {
		if k != "drift" && k != "skew" {
			p.kinds = append(p.kinds, k)
		}
	}
	var all []fault
	for start := time.Second; start < length && len(p.kinds) > 0; start += stormLength + calmLength {
		for at := start; at < min(start+stormLength, length); at += p.upTo(p.pace) {
			if f, ok := p.fault(at); ok {
				all = append(all, f)
			}
		}
	}
	return all
}

func (p *planner) upTo(d time.Duration) time.Duration { return time.Duration(p.Int64N(int64(d)) + 1) }

// between is a random time, more often a short one.
func (p *planner) between(low, high time.Duration) time.Duration {
	return low + min(p.upTo(high-low), p.upTo(high-low))
}

// fault makes up one, if what it would hit does not fail already.
func (p *planner) fault(at time.Duration) (fault, bool) {
	f := fault{at: at, kind: p.kinds[p.IntN(len(p.kinds))], lasts: p.between(30*time.Millisecond, 1200*time.Millisecond)}
	switch f.kind {
	case "node-kill", "node-pause", "node-flush", "script-flush", "step-back", stepForward:
		f.a = p.IntN(p.nodes)
	case "proxy-kill", "proxy-pause":
		f.a = p.IntN(p.proxies)
		if p.spares { // perhaps until a node that voted has forgotten, and votes again
			f.lasts = p.between(time.Second, 5*time.Second)
		}
	case "client-kill", "client-pause":
		f.a = p.IntN(p.clients)
		f.lasts += p.upTo(500 * time.Millisecond)
	case aimedKill, aimedPause, aimedProxy, aimedCut, inTurn:
		f.a, f.b = p.IntN(p.nodes), p.IntN(p.proxies)
		f.script = []string{"acquire", "acquire", "acquire", "renew", "renew", "note", "settle", "release"}[p.IntN(8)]
		f.way = []string{unsent, unanswered, answered}[p.IntN(3)]
		if f.kind == inTurn {
			f.script = []string{"acquire", "renew"}[p.IntN(2)]
		}
	case "partition", "half-open", "delay", "cut":
		f.a, f.b = p.link()
		f.amount = p.between(5*time.Millisecond, 300*time.Millisecond)
		if f.kind == "half-open" || p.IntN(3) == 0 {
			f.way = []string{"upstream", "downstream"}[p.IntN(2)]
		}
	}
	target := f.target()
	if p.busy[target] > at || !p.allowed(&f) {
		return f, false
	}
	p.busy[target] = at + f.lasts + 100*time.Millisecond
	if f.aims() {
		p.busy[target] += aimsFor
	}
	return f, true
}

// link is one, or all of a proxy or of a node.
func (p *planner) link() (proxy, node int) {
	proxy, node = p.IntN(p.proxies), p.IntN(p.nodes)
	switch p.IntN(4) {
	case 0:
		return proxy, -1
	case 1:
		if !p.spares {
			return -1, node
		}
	}
	return proxy, node
}

// allowed keeps faults within what lockproxy promises to bear.
func (p *planner) allowed(f *fault) bool {
	switch f.kind {
	case inTurn:
		if f.at < p.forgets || p.IntN(3) > 0 {
			return false
		}
		p.forgets = f.at + time.Duration(p.nodes)*(p.out+time.Second)
	case "node-kill", "node-flush", aimedKill, failover: // never all of them at once, which looks like new nodes
		if f.at < p.forgets {
			return false
		}
		p.forgets = f.at + f.lasts + p.between(p.out, 3*p.out)
	case "step-back":
		f.amount = p.between(time.Millisecond, mostBack/2)
		if p.back[f.a] += f.amount; p.back[f.a] > mostBack {
			p.back[f.a] -= f.amount
			return false
		}
	case stepForward:
		f.amount = p.between(time.Millisecond, p.out)
	}
	return true
}

// parseKinds reads a list of kinds, separated by commas; all of the mix if it is empty.
func parseKinds(list string) ([]string, error) {
	if list == "" {
		return kinds, nil
	}
	only := strings.Split(list, ",")
	for _, k := range only {
		if k != stepForward && k != failover && !slices.Contains(kinds, k) {
			return nil, fmt.Errorf("no fault %q, only %s, %s and %s", k, strings.Join(kinds, ", "), stepForward, failover)
		}
	}
	return only, nil
}
