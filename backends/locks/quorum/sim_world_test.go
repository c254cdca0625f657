package quorum

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
	"github.com/lockproxy/lockproxy/commands/adopt"
)

// A simWorld is one run: proxies, which are real Services with real clients of rueidis,
// simulated nodes and the links between them. All that is random comes from the seed, in
// streams of their own for whoever acts, so that what happens at one moment may happen in
// any order.
type simWorld struct {
	seed    uint64
	profile *simProfile
	opts    testOptions
	began   time.Time
	history *simHistory
	trace   bool // the history has what nodes do

	mu      sync.Mutex // taken after those of a Service's nodes, and before none
	losing  sync.Mutex // held by loseOne
	ill     int        // so many faults are under way
	ills    int        // so many began
	traps   []*simTrap
	post    *simPost
	chance  *rand.Rand // of nodes
	nodes   []*simNode
	links   [][]*simLink // by proxy and node
	proxies []*simProxy

	adopted simAdopted
	permits int // of each name
}

// stream is a source of chance for whoever is named.
func (w *simWorld) stream(who string, numbers ...int) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, who, numbers)
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

// hex is a new replication or run id. The caller holds w.mu, or the world is being made.
func (w *simWorld) hex() string {
	return fmt.Sprintf("%016x%016x%08x", w.chance.Uint64(), w.chance.Uint64(), w.chance.Uint32())
}

// newSimWorld makes what the seed describes. Nothing runs yet.
func newSimWorld(seed uint64) *simWorld {
	w := &simWorld{seed: seed, began: time.Now(), profile: profileOf(seed), adopted: newSimAdopted()}
	w.history = newSimHistory(w.began)
	w.post = &simPost{mu: &w.mu, timer: time.NewTimer(time.Hour), stop: make(chan struct{})}
	w.chance = w.stream("world")
	w.permits = 1 + w.stream("permits").IntN(3)
	w.history.permits = w.permits
	w.opts = w.profile.options(w.stream("options"))
	r := w.stream("clocks")
	for i := range w.profile.nodes {
		n := &simNode{w: w, index: i, rate: 1 + 0.0045*(2*r.Float64()-1), offset: w.profile.offset(r)}
		n.restart(map[string]*simKey{})
		w.nodes = append(w.nodes, n)
	}
	for p := range w.profile.proxies {
		var links []*simLink
		for _, n := range w.nodes {
			links = append(links, &simLink{
				w: w, proxy: p, node: n, loss: w.profile.loss,
				base:   20*time.Microsecond + time.Duration(r.Int64N(int64(200*time.Microsecond))),
				chance: [2]*rand.Rand{w.stream("to node", p, n.index), w.stream("to proxy", p, n.index)},
			})
		}
		w.links = append(w.links, links)
		w.proxies = append(w.proxies, &simProxy{w: w, index: p, rate: 1 + 0.0045*(2*r.Float64()-1)})
	}
	return w
}

// A simProxy is one proxy, again and again.
type simProxy struct {
	w          *simWorld
	index      int
	generation int
	rate       float64 // of its clock; 1 is true

	dead     bool // guarded by simWorld.mu: nothing leaves or arrives any more
	svc      *proxy
	adoption *adopt.Adoption // of the names that profiles with adopted clients use
	life     context.Context // of svc: ends when it is killed, or told to stop
	stop     context.CancelFunc
	done     chan error // Run's result
}

func (p *simProxy) String() string { return fmt.Sprintf("p%d.%d", p.index, p.generation) }

// start begins a new process. The world's conductor calls it, clients see it from then on.
func (p *simProxy) start() *simProxy {
	w := p.w
	next := &simProxy{w: w, index: p.index, generation: p.generation + 1, rate: p.rate, done: make(chan error, 1)}
	o := w.opts
	for i := range w.nodes {
		o.Nodes = append(o.Nodes, simServers[i])
	}
	o.Log = slog.New(slog.DiscardHandler)
	o.now = func() time.Duration {
		return time.Hour + time.Duration(float64(time.Since(w.began))*p.rate)
	}
	o.random = newSimChance(w.stream("ids", p.index, next.generation), w.stream("pauses", p.index, next.generation))
	o.Tune = func(c *rueidis.ClientOption) {
		c.RingScaleEachConn = 2
		c.ReadBufferEachConn, c.WriteBufferEachConn = 2<<10, 64<<10
		c.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			_, port, _ := net.SplitHostPort(addr)
			i, _ := strconv.Atoi(port)
			return w.links[p.index][i-1].dial(ctx, next)
		}
	}
	svc, err := newProxy(o)
	if err != nil {
		panic(err)
	}
	next.svc, next.adoption = svc, newSimAdoption(next, svc)
	next.life, next.stop = context.WithCancel(context.Background())
	go func() { next.done <- svc.Run(next.life) }()
	w.mu.Lock()
	w.proxies[p.index] = next
	w.mu.Unlock()
	return next
}

// kill ends the process as kill -9 does: what is on its way may still arrive at nodes.
func (p *simProxy) kill() {
	p.w.mu.Lock()
	p.dead = true
	for _, l := range p.w.links[p.index] {
		for _, c := range l.conns {
			c.close()
		}
		l.conns = nil
	}
	p.w.mu.Unlock()
	p.stop()
}

// proxy is the process that a client that connects to proxy i meets.
func (w *simWorld) proxy(i int) *simProxy {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.proxies[i]
}

// newSimChance makes a Service's chance of two streams, so that an id and a pause that are
// asked for at one moment do not depend on which comes first.
func newSimChance(ids, pauses *rand.Rand) locks.RandSource {
	var mu sync.Mutex
	return locks.RandSource{
		NewText: func() string {
			mu.Lock()
			defer mu.Unlock()
			return fmt.Sprintf("%016x%08x", ids.Uint64(), ids.Uint32())
		},
		Below: func(d int64) int64 {
			mu.Lock()
			defer mu.Unlock()
			return pauses.Int64N(d)
		},
	}
}

// begin starts the proxies, and has an operator say that the nodes are new.
func (w *simWorld) begin() error {
	go w.post.run()
	r := w.stream("begin")
	for i := range w.proxies {
		w.proxy(i).start()
		time.Sleep(time.Duration(r.Int64N(int64(50 * time.Millisecond))))
	}
	for range 5 {
		if err := w.proxy(0).svc.Init(context.Background()); err == nil {
			return nil
		}
		time.Sleep(time.Second)
	}
	return errors.New("the nodes could not be initialised")
}

// voting waits until every proxy has seen every node vote, about every name, and reports whether they all have.
func (w *simWorld) voting(within time.Duration) bool {
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(250 * time.Millisecond) {
		all := true
		w.with(func() {
			for _, n := range w.nodes {
				all = all && !n.inDoubt()
			}
		})
		for i := range w.proxies {
			for _, n := range w.proxy(i).svc.Nodes() {
				all = all && n.State == locks.NodeVoting
			}
		}
		if all {
			return true
		}
	}
	return false
}

// states is what the proxies say of the nodes.
func (w *simWorld) states() string {
	var b strings.Builder
	for i := range w.proxies {
		fmt.Fprintf(&b, "\n  %v:", w.proxy(i))
		for _, n := range w.proxy(i).svc.Nodes() {
			fmt.Fprintf(&b, " %s", n.State)
			if n.Err != nil {
				fmt.Fprintf(&b, " (%v)", n.Err)
			}
		}
	}
	return b.String()
}

// end stops the proxies, and reports which did not end.
func (w *simWorld) end() (errs []error) {
	defer close(w.post.stop)
	for i := range w.proxies {
		w.proxy(i).stop()
	}
	for i := range w.proxies {
		p := w.proxy(i)
		select {
		case err := <-p.done:
			if err != nil {
				errs = append(errs, fmt.Errorf("%v: %w", p, err))
			}
		case <-time.After(time.Minute):
			errs = append(errs, fmt.Errorf("%v does not end", p))
		}
	}
	return errs
}

// live counts the nodes on which the grant's lease runs, by their clocks.
func (w *simWorld) live(name, owner string, fence int64) int {
	return w.count(name, owner, fence, func(_ *simNode, has *simKey) bool { return has != nil })
}

// mayLive is live, and counts nodes that do not vote about the name since they forgot: another owner cannot have it by them.
func (w *simWorld) mayLive(name, owner string, fence int64) int {
	doubt := "lockproxy:doubt:0:" + keyOf(name).Name
	return w.count(name, owner, fence, func(n *simNode, has *simKey) bool { return has != nil || !n.remembers() || n.key(doubt) != nil })
}

// vouched counts the nodes that have a grant otherwise than by a renewal that reinstates it.
func (w *simWorld) vouched(name, owner string, fence int64) int {
	return w.count(name, owner, fence, func(_ *simNode, has *simKey) bool { return has != nil && !has.is("p", "1") })
}

// firstEnd is for how long the nodes that have a grant have it, the first of them; for ever if none has.
func (w *simWorld) firstEnd(name, owner string, fence int64) time.Duration {
	first := time.Duration(math.MaxInt64)
	w.count(name, owner, fence, func(n *simNode, has *simKey) bool {
		if has != nil && has.until != 0 {
			first = min(first, time.Duration(has.until-n.micros()/1000)*time.Millisecond)
		}
		return has != nil
	})
	return first
}

// count counts the nodes that are meant; has is the record of the grant, nil where the node does not have it.
func (w *simWorld) count(name, owner string, fence int64, meant func(n *simNode, has *simKey) bool) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, node := range w.nodes {
		k := node.key(nodekeys.Lock("lockproxy:", keyOf(name)))
		if k != nil && !(k.is("o", owner) && k.is("f", strconv.FormatInt(fence, 10))) {
			k = nil
		}
		if meant(node, k) {
			n++
		}
	}
	return n
}

// A simWell says that the world was well at some time.
type simWell struct {
	well bool
	ills int
}

// ail notes that a fault begins; the result ends it.
func (w *simWorld) ail() (heal func()) {
	w.with(func() { w.ill++; w.ills++ })
	return func() { w.with(func() { w.ill-- }) }
}

// well reports whether nothing fails, or has failed so that a proxy still feels it: all
// nodes vote, links lead to them as ever, and the proxy has nothing under way and nobody in
// line, whose last answer, which may be an older NOQUORUM, others would be told.
func (w *simWorld) well(p *simProxy) simWell {
	idle := p.life.Err() == nil && p.svc.waiting.Total() == 0
	for _, n := range p.svc.Members {
		idle = idle && n.Sound()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return simWell{idle && w.healthyLocked(p), w.ills}
}

func (w *simWorld) healthyLocked(p *simProxy) bool {
	healthy := w.ill == 0
	for i, n := range w.nodes {
		l := w.links[p.index][i]
		healthy = healthy && n.votes() && !n.inDoubt() && l.loss == 0 && l.slow == 0 && l.blocked == [2]int{}
		for _, c := range l.conns {
			healthy = healthy && len(c.held[toNode]) == 0 && len(c.held[toProxy]) == 0
		}
	}
	return healthy
}

// stayedWell reports whether nothing has failed since the world was well.
func (w *simWorld) stayedWell(p *simProxy, was simWell) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return was.well && was.ills == w.ills && p.life.Err() == nil && w.healthyLocked(p)
}

// TestSimWorld_MayLive: nodes that forgot, and do not vote about a name, may have had its lease; those that vote have what they have.
func TestSimWorld_MayLive(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		for _, test := range []struct {
			what          string
			change        func(n *simNode)
			live, mayLive int
		}{
			{"it has been given back", func(n *simNode) { n.execute(nil, []string{"DEL", "lockproxy:lock:0:job"}) }, 2, 2},
			{"another owner has it", func(n *simNode) { n.execute(nil, []string{"HSET", "lockproxy:lock:0:job", "o", "b"}) }, 2, 2},
			{"the node was flushed", func(n *simNode) { n.keys = map[string]*simKey{} }, 2, 3},
			{"the node has an older memory", func(n *simNode) { n.restart(map[string]*simKey{"lockproxy:node": n.keys["lockproxy:node"]}) }, 2, 3},
			{"in quarantine", func(n *simNode) {
				n.execute(nil, []string{"DEL", "lockproxy:lock:0:job"})
				n.execute(nil, []string{"HSET", "lockproxy:node", "until", strconv.FormatInt(n.micros()/1000+1, 10), "sync", "0"})
			}, 2, 3},
			{"in quarantine, and reinstated", func(n *simNode) { n.execute(nil, []string{"HSET", "lockproxy:node", "sync", "0"}) }, 3, 3},
			{"in doubt about it", func(n *simNode) {
				n.execute(nil, []string{"DEL", "lockproxy:lock:0:job"})
				n.execute(nil, []string{"HSET", "lockproxy:doubt:0:job", "hold", "wa"})
			}, 2, 3},
			{"in doubt about another", func(n *simNode) {
				n.execute(nil, []string{"DEL", "lockproxy:lock:0:job"})
				n.execute(nil, []string{"HSET", "lockproxy:doubt:0:other", "hold", "wa"})
			}, 2, 2},
		} {
			w := newSimWorld(0)
			for _, n := range w.nodes {
				n.execute(nil, []string{"HSET", "lockproxy:node", "id", n.replid, "until", "0", "sync", "1"})
				n.execute(nil, []string{"HSET", "lockproxy:lock:0:job", "o", "a", "f", "7"})
			}
			test.change(w.nodes[1])
			if live, mayLive := w.live("job", "a", 7), w.mayLive("job", "a", 7); live != test.live || mayLive != test.mayLive {
				t.Errorf("%s: %d nodes have it, and %d may; want %d and %d", test.what, live, mayLive, test.live, test.mayLive)
			}
		}
	})
}
