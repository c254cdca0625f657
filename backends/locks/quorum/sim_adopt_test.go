package quorum

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
	"github.com/lockproxy/lockproxy/commands/adopt"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
)

// adoptedSeeds is the first seed of runs with adopted clients.
const adoptedSeeds = 1 << 32

// Clients of these send SET NX and scripts, through an Adoption at each proxy, beside clients of the verbs on
// the same names and programs that take them at the upstream.
var adoptedProfiles = []*simProfile{
	{
		name: "adopted", nodes: 3, proxies: 2, names: 1, clients: 6, long: 3 * time.Second,
		think: 25 * time.Millisecond, gap: 300 * time.Millisecond, shortest: 100 * time.Millisecond, longest: 700 * time.Millisecond,
		loss: 0.002, clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{0, 50 * time.Millisecond, 300 * time.Millisecond},
		acts:     append(adoptedActs, everyAct...), faults: everyFault,
	},
	{
		// Little fails, so that every answer must be the right one.
		name: "adopted and well", nodes: 5, proxies: 3, names: 2, clients: 6, long: 2 * time.Second,
		think: 25 * time.Millisecond, gap: time.Second, shortest: 100 * time.Millisecond, longest: 400 * time.Millisecond,
		clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{50 * time.Millisecond, 300 * time.Millisecond},
		acts:     append(adoptedActs, weighted[func(*simClient)]{2, (*simClient).plain}),
		faults:   []weighted[simFault]{{1, cutLink}, {1, pauseNode}, {1, breakConnections}},
	},
}

var adoptedActs = []weighted[func(*simClient)]{
	{40, (*simClient).adoptedHold}, {16, (*simClient).adoptedRead}, {12, (*simClient).adoptedKeep}, {8, (*simClient).adoptedTakeAway},
	{8, (*simClient).adoptedWatch}, {14, (*simClient).adoptedEnter}, {6, (*simClient).adoptedLeave}, {4, (*simClient).atUpstream},
}

// The scripts of adopted clients.
const (
	simCompareAndDelete = `if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) redis.call('publish', 'free', KEYS[1]) return 1 end return 0`
	simCompareAndExpire = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0`
	simTakeOrExtend     = `if redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2]) then return 1 end
		if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0`
)

// simAdopted is what is known of adopted grants, and what the upstream has.
type simAdopted struct {
	mu       sync.Mutex
	grants   map[string]*simAdoptedGrant // by owner
	unheard  map[string]bool             // owners of grants that others changed before their client heard of them
	upstream map[string]time.Time        // until when somebody has a name there
	changes  int                         // of upstream
}

// A simAdoptedGrant is one that its client heard of.
type simAdoptedGrant struct {
	*simBelief
	value    string
	released bool        // a release of it was answered
	releases int         // so many were asked for
	entered  *simEntered // of a hash; else nil
}

func newSimAdopted() simAdopted {
	return simAdopted{grants: map[string]*simAdoptedGrant{}, unheard: map[string]bool{}, upstream: map[string]time.Time{}}
}

func (a *simAdopted) grant(owner string) *simAdoptedGrant {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.grants[owner]
}

// releasesOf is how many releases of a grant were asked for.
func (a *simAdopted) releasesOf(g *simAdoptedGrant) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return g.releases
}

// upstreamHas is for how long the upstream has a name; negative: it has not. changes counts what was done there.
func (a *simAdopted) upstreamHas(name string) (left time.Duration, changes int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if until, has := a.upstream[name]; has && time.Now().Before(until) {
		return time.Until(until), a.changes
	}
	return -1, a.changes
}

// newSimAdoption makes the Adoption of a proxy that begins.
func newSimAdoption(p *simProxy, svc *proxy) *adopt.Adoption {
	glob, err := pattern.Parse("n*")
	if err != nil {
		panic(err)
	}
	a, err := adopt.New([]*pattern.Pattern{glob}, adopt.Options{
		Engine: simEngine{svc}, MinTTL: 100 * time.Millisecond, MaxTTL: simMaxTTL, Log: slog.New(slog.DiscardHandler),
		Random: newSimChance(p.w.stream("owners", p.index, p.generation), nil),
	})
	if err != nil {
		panic(err)
	}
	return a
}

// An adoptedCall is one adopted command: its client's connection, and what the engine was asked to do for it.
type adoptedCall struct {
	c       *simClient
	p       *simProxy
	name    string
	compare *string // the value that it compares with; nil: it compares none

	asks              []*simAsk
	renewed, released string         // the owner of the grant to which that was done
	releases          map[string]int // so many were asked for, by owner
}

type adoptedCallKey struct{}

func callOf(ctx context.Context) *adoptedCall { return ctx.Value(adoptedCallKey{}).(*adoptedCall) }

// A simEngine is a Service as an Adoption uses it. What is done to a grant counts as done by its owner.
type simEngine struct{ *proxy }

func (e simEngine) Lock(ctx context.Context, r locks.LockRequest) (locks.Decision, error) {
	call := callOf(ctx)
	call.asks = append(call.asks, call.c.w.history.ask(call.p, r.Name, r.Owner, 0))
	return e.Service.Lock(ctx, r)
}

// toChange is the grant that a call is about to change, nil if nobody has heard of it yet.
func (call *adoptedCall) toChange(owner string, fence int64) *simAdoptedGrant {
	a, id := &call.c.w.adopted, owner
	if _, kind := locks.ShownOwner(owner); kind == locks.AdoptedHash {
		id = unheardHash(owner, fence)
	}
	a.mu.Lock()
	g := a.grants[owner]
	if g != nil && g.entered != nil && g.fence != fence && fence > 0 {
		g = nil
	}
	if g == nil {
		a.unheard[id] = true
	}
	a.mu.Unlock()
	if g != nil && call.compare != nil && g.value != *call.compare {
		call.c.w.history.blame(call.name, "%s: a call that compares with %q changes the grant of %q", call.c.who, *call.compare, g.value)
	}
	return g
}

func (e simEngine) Renew(ctx context.Context, r locks.RenewRequest) (v time.Duration, err error) {
	call := callOf(ctx)
	if g := call.toChange(r.Owner, r.Fence); g == nil {
		v, err = e.Service.Renew(ctx, r)
	} else {
		v, err = call.c.renewal(call.p, g.simBelief, r.TTL, r.Fence)
	}
	if err == nil {
		call.renewed = r.Owner
	}
	return v, err
}

func (e simEngine) Unlock(ctx context.Context, r locks.UnlockRequest) (left int, err error) {
	call := callOf(ctx)
	g := call.toChange(r.Owner, r.Fence)
	switch {
	case g == nil:
		left, err = e.Service.Unlock(ctx, r)
	case g.entered != nil:
		return e.unlockHash(call, g, r)
	default:
		call.c.w.adopted.mu.Lock()
		g.releases++
		call.releases[r.Owner]++
		call.c.w.adopted.mu.Unlock()
		call.c.w.history.ended(g.simBelief)
		left, _, err = call.c.unlock(call.p, g.simBelief, r)
	}
	if err != nil {
		return left, err
	}
	if call.released = r.Owner; g != nil {
		call.c.w.adopted.mu.Lock()
		again := g.released
		g.released = true
		call.c.w.adopted.mu.Unlock()
		if again {
			call.c.w.history.blame(call.name, "%s: fence %d was given back twice", call.c.who, g.fence)
		}
	}
	return left, nil
}

func (e simEngine) Read(ctx context.Context, k locks.Key) (locks.Reading, error) {
	return e.Service.Read(ctx, k)
}

func (e simEngine) Undo(g locks.Grant) { e.Service.Undo(g) }

func (*adoptedCall) Database() int                         { return 0 }
func (*adoptedCall) Protocol() int                         { return 2 }
func (*adoptedCall) Address() string                       { return "" }
func (*adoptedCall) About() []slog.Attr                    { return nil }
func (*adoptedCall) Burst() adopt.Burst                    { return adopt.Burst{} }
func (*adoptedCall) MayLock(context.Context, string) error { return nil }
func (*adoptedCall) Begin([]string) adopt.Answer           { return nil }

func (*adoptedCall) MayAsk(context.Context, []string) error { return nil }

// Ask is the upstream's answer.
func (call *adoptedCall) Ask(ctx context.Context, args []string) ([]byte, error) {
	select {
	case <-time.After(call.c.between(0, 3*time.Millisecond)):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if args[0] != "PTTL" {
		if call.released == "" {
			call.c.w.history.blame(call.name, "%s: %v was sent before anything was given back", call.c.who, args)
		}
		return []byte(":0\r\n"), nil
	}
	left, _ := call.c.w.adopted.upstreamHas(call.name)
	if left < 0 {
		return []byte(":-2\r\n"), nil
	}
	return fmt.Appendf(nil, ":%d\r\n", left.Milliseconds()), nil
}

// A simView is what is known of a name when a call begins.
type simView struct {
	held     *simBelief // somebody who may count on it; nil: nobody
	free     bool       // no node has a record of a lease
	acquired int        // so many acquisitions had been done on nodes
	upstream time.Duration
	changes  int
}

func (w *simWorld) view(name string) (v simView) {
	key := nodekeys.Lock("lockproxy:", locks.Key{Name: name})
	w.with(func() {
		v.free = !slices.ContainsFunc(w.nodes, func(n *simNode) bool { return n.hash(key) != nil })
	})
	h, now := w.history, time.Now()
	h.mu.Lock()
	for _, b := range h.nameLocked(name).beliefs {
		if b.runs(now) && !b.kept() {
			v.held = b
		}
	}
	v.acquired = len(h.acquirers[key])
	h.mu.Unlock()
	v.upstream, v.changes = w.adopted.upstreamHas(name)
	return v
}

// stillFree reports whether nobody can have had the name since: nobody had it, here or at the upstream, and no
// node has done an acquisition but those of the call.
func (w *simWorld) stillFree(call *adoptedCall, was simView) bool {
	now := w.view(call.name)
	if !was.free || was.upstream >= 0 || now.changes != was.changes {
		return false
	}
	h := w.history
	h.mu.Lock()
	defer h.mu.Unlock()
	others := func(owner string) bool {
		return !slices.ContainsFunc(call.asks, func(a *simAsk) bool { return a.owner == owner })
	}
	return !slices.ContainsFunc(h.acquirers[nodekeys.Lock("lockproxy:", locks.Key{Name: call.name})][was.acquired:], others)
}

// stillHeld reports whether who had the name then may still count on it.
func (w *simWorld) stillHeld(was simView) bool {
	return was.held != nil && w.history.running(was.held)
}

// adopted sends a command on a name, by a client that leaves after giveUp if that is not 0. The reply is empty
// where there is none.
func (c *simClient) adopted(p *simProxy, name string, compare *string, giveUp time.Duration, args ...string) (call *adoptedCall, reply string, taken locks.Grant) {
	c.ponder()
	h, was, well := c.w.history, c.w.view(name), c.w.well(p)
	call = &adoptedCall{c: c, p: p, name: name, compare: compare, releases: map[string]int{}}
	defer func() {
		for _, a := range call.asks {
			h.answered(a)
		}
	}()
	ctx, cancel := context.WithCancel(context.WithValue(p.life, adoptedCallKey{}, call))
	defer cancel()
	if giveUp > 0 {
		defer time.AfterFunc(giveUp, cancel).Stop()
	}
	words := make([][]byte, len(args))
	for i, a := range args {
		words[i] = []byte(a)
	}
	shown := slices.Clone(args)
	shown[1] = strings.SplitN(shown[1], "\n", 2)[0]
	h.log(c.who, name, "%v %v", p, shown)
	began := time.Now()
	decided, err := p.adoption.Call(call, words, adopt.Keys{At: []int{1}, Known: true})
	var r adopt.Result
	if err == nil {
		c.bounded(name, args[0], 0, func() { r, err = p.adoption.Decide(ctx, call, decided) })
	}
	if ctx.Err() != nil {
		if r.Taken.Fence != 0 && p.life.Err() == nil {
			p.adoption.Undo(r.Taken)
		}
		h.log(c.who, name, "%v -> nobody heard it", p)
		return call, "", locks.Grant{}
	}
	if err != nil {
		h.log(c.who, name, "%v -> %v", p, err)
		h.count("adopted: errors")
		if c.explain(p, name, well, err); strings.HasPrefix(adopt.ReplyText(err), "NOQUORUM") && c.w.stayedWell(p, well) {
			h.blame(name, "%s: %v, and nothing has failed", c.who, err)
		}
		return call, "", locks.Grant{}
	}
	reply = strings.TrimSuffix(string(r.Reply), "\r\n")
	h.log(c.who, name, "%v -> %q fence %d", p, reply, r.Taken.Fence)
	h.count("adopted")
	c.judge(call, was, args[0], reply)
	if r.Taken.Fence != 0 {
		// It counts from before it asked. The proxy's clock may be the faster one.
		ttl, _ := strconv.Atoi(args[len(args)-1])
		lease := time.Duration(ttl) * time.Millisecond
		r.Taken.Validity = lease - locks.Drift(lease) - time.Duration(float64(time.Since(began))*p.rate)
	}
	return call, reply, r.Taken
}

// judge blames a reply that no state of the name explains which it can have had since the call began.
func (c *simClient) judge(call *adoptedCall, was simView, command, reply string) {
	h := c.w.history
	if command != "SET" && command != "GET" {
		return
	}
	nobody := command == "SET" && reply == "+OK" || command == "GET" && reply == "$-1"
	switch {
	case nobody && c.w.stillHeld(was):
		h.blame(call.name, "%s: %s answers %q, and fence %d of %q was held all the time", c.who, command, reply, was.held.fence, was.held.owner)
	case !nobody && c.w.stillFree(call, was):
		h.blame(call.name, "%s: %s answers %q, and nobody had it all the time", c.who, command, reply)
	case nobody && command == "SET" && was.upstream >= 0:
		if left, changes := c.w.adopted.upstreamHas(call.name); left >= 0 && changes == was.changes {
			h.blame(call.name, "%s: it was granted, and the upstream had it all the time", c.who)
		}
	}
}

// granted is what a client may believe that was told of a grant; nil, if somebody has given that back or moved its
// end before the client heard of it.
func (c *simClient) granted(call *adoptedCall, value string, taken locks.Grant, ttl time.Duration) *simAdoptedGrant {
	h, a := c.w.history, &c.w.adopted
	ask := call.asks[len(call.asks)-1]
	if a.grant(taken.Owner) != nil {
		h.blame(call.name, "two holders: %s was granted fence %d as %q, which had been granted before", c.who, taken.Fence, taken.Owner)
	}
	a.mu.Lock()
	changed := a.unheard[taken.Owner]
	a.mu.Unlock()
	if changed {
		h.count("adopted: changed before they were heard of")
		return nil
	}
	b := h.granted(ask, locks.LockRequest{TTL: ttl}, taken)
	if b == nil {
		return nil
	}
	g := &simAdoptedGrant{simBelief: b, value: value}
	a.mu.Lock()
	a.grants[taken.Owner] = g
	a.mu.Unlock()
	h.count("adopted: grants")
	return g
}

func (c *simClient) anyName() string { return fmt.Sprintf("n%d", c.r.IntN(c.w.profile.names)) }

// value is one that nobody else has, or that all have.
func (c *simClient) value() string {
	if c.oneIn(2) {
		return "1"
	}
	return c.owner()
}

func inMS(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// adoptedTake is SET NX PX. Without a grant it is nil.
func (c *simClient) adoptedTake(p *simProxy, name, value string, giveUp time.Duration) *simAdoptedGrant {
	ttl := c.ttl()
	call, reply, taken := c.adopted(p, name, nil, giveUp, "SET", name, value, "NX", "PX", inMS(ttl))
	if (reply == "+OK") != (taken.Fence != 0) {
		c.w.history.blame(name, "%s: SET answers %q, and has taken fence %d", c.who, reply, taken.Fence)
	}
	if taken.Fence == 0 {
		return nil
	}
	return c.granted(call, value, taken, ttl)
}

// adoptedHold takes a lock, moves its end, and gives it back by its value, once or twice; or crashes.
func (c *simClient) adoptedHold() {
	p, name, value := c.anyProxy(), c.anyName(), c.value()
	g := c.adoptedTake(p, name, value, 0)
	if g == nil {
		return
	}
	for range c.r.IntN(3) {
		ttl := c.ttl()
		c.sleep(c.between(0, ttl*2/3))
		call, reply, _ := c.adopted(c.sameOr(p), name, &value, 0, "EVAL", simCompareAndExpire, "1", name, value, inMS(ttl))
		if (reply == ":1") != (call.renewed != "" && reply != "") {
			c.w.history.blame(name, "%s: moving the end answers %q, done to %q", c.who, reply, call.renewed)
		}
		if reply == ":0" {
			break
		}
	}
	c.sleep(c.between(0, 100*time.Millisecond))
	if c.oneIn(8) {
		c.w.history.log(c.who, name, "crashes")
		return
	}
	for range 1 + c.r.IntN(2) {
		c.adoptedGiveBack(c.sameOr(p), g)
		c.sleep(c.between(0, 5*time.Millisecond))
	}
}

// adoptedGiveBack is compare-and-delete.
func (c *simClient) adoptedGiveBack(p *simProxy, g *simAdoptedGrant) {
	h := c.w.history
	due := h.running(g.simBelief)
	call, reply, _ := c.adopted(p, g.name, &g.value, 0, "EVAL", simCompareAndDelete, "1", g.name, g.value)
	switch {
	case (reply == ":1") != (call.released != "" && reply != ""):
		h.blame(g.name, "%s: giving back answers %q, done to %q", c.who, reply, call.released)
	case g.value != "1" && reply == ":1" && call.released != g.owner:
		h.blame(g.name, "%s: it gave back %q instead of %q", c.who, call.released, g.owner)
	case due && h.promised(g.simBelief) && reply == ":0" && c.w.adopted.releasesOf(g) == call.releases[g.owner]:
		h.blame(g.name, "%s: giving back fence %d in time answers 0, and nobody else has given it back", c.who, g.fence)
	}
}

// adoptedKeep takes a lock with a script that also extends it, again and again, through any proxy.
func (c *simClient) adoptedKeep() {
	name, value := c.anyName(), c.owner()
	var g *simAdoptedGrant
	for range 1 + c.r.IntN(4) {
		p, ttl := c.anyProxy(), c.ttl()
		call, reply, taken := c.adopted(p, name, &value, 0, "EVAL", simTakeOrExtend, "1", name, value, inMS(ttl))
		switch {
		case reply == ":1" && taken.Fence == 0 && call.renewed == "":
			c.w.history.blame(name, "%s: it has the lock, and nothing was done", c.who)
		case taken.Fence != 0:
			g = c.granted(call, value, taken, ttl)
		}
		if reply != ":1" {
			break
		}
		c.sleep(c.between(0, ttl*11/10))
	}
	if g != nil {
		c.adoptedGiveBack(c.anyProxy(), g)
	}
}

// adoptedRead asks who has the lock.
func (c *simClient) adoptedRead() {
	p, name := c.anyProxy(), c.anyName()
	was := c.w.view(name)
	_, reply, _ := c.adopted(p, name, nil, 0, "GET", name)
	if reply == "" || !c.w.stillHeld(was) {
		return
	}
	_, value, _ := strings.Cut(reply, "\r\n")
	right := strings.HasPrefix(value, "lockproxy:")
	switch g := c.w.adopted.grant(was.held.owner); {
	case g != nil && g.entered != nil:
		right = strings.HasPrefix(reply, "-WRONGTYPE")
	case g != nil:
		right = value == g.value
	}
	if !right {
		c.w.history.blame(name, "%s: GET answers %q, and %q has it", c.who, reply, was.held.owner)
	}
}

// adoptedTakeAway is DEL of whatever lock is there.
func (c *simClient) adoptedTakeAway() {
	name := c.anyName()
	call, reply, _ := c.adopted(c.anyProxy(), name, nil, 0, "DEL", name)
	if reply != "" && (reply == ":1") != (call.released != "") {
		c.w.history.blame(name, "%s: DEL answers %q, done to %q", c.who, reply, call.released)
	}
	if call.released != "" && c.oneIn(2) { // it is free now, also for this client
		if g := c.adoptedTake(call.p, name, c.value(), 0); g != nil {
			c.adoptedGiveBack(c.sameOr(call.p), g)
		}
	}
}

// adoptedLeave does not wait for the answer, or is gone when it comes.
func (c *simClient) adoptedLeave() {
	p, name := c.anyProxy(), c.anyName()
	if c.oneIn(2) {
		if g := c.adoptedTake(p, name, c.value(), c.between(0, 10*time.Millisecond)); g != nil {
			c.adoptedGiveBack(p, g)
		}
		return
	}
	_, _, taken := c.adopted(p, name, nil, 0, "SET", name, c.value(), "NX", "PX", inMS(c.ttl()))
	if taken.Fence != 0 {
		c.w.history.log(c.who, name, "is gone before it heard it")
		p.adoption.Undo(taken)
	}
}

// adoptedWatch takes a lock, and gives it back as programs without scripts do: WATCH, GET, and DEL behind MULTI.
func (c *simClient) adoptedWatch() {
	p, name, value := c.anyProxy(), c.anyName(), c.owner()
	g := c.adoptedTake(p, name, value, 0)
	if g == nil {
		return
	}
	c.sleep(c.between(0, 500*time.Millisecond))
	p, h := c.sameOr(p), c.w.history
	c.ponder()
	well := c.w.well(p)
	call := &adoptedCall{c: c, p: p, name: name, compare: &value, releases: map[string]int{}}
	ctx := context.WithValue(p.life, adoptedCallKey{}, call)
	keys := adopt.Keys{At: []int{1}, Known: true}
	words := func(command string) [][]byte { return [][]byte{[]byte(command), []byte(name)} }
	var tx adopt.Transaction
	var r adopt.Result
	var err error
	h.log(c.who, name, "%v WATCH", p)
	c.bounded(name, "WATCH", 0, func() { err = p.adoption.Watch(ctx, call, &tx, words("WATCH"), keys) })
	if err != nil || ctx.Err() != nil {
		return
	}
	if _, reply, _ := c.adopted(p, name, nil, 0, "GET", name); !strings.HasSuffix(reply, "\r\n"+value) {
		return
	}
	if _, err = p.adoption.Queue(call, &tx, words("DEL"), keys, adopt.UpstreamTx{}); err != nil {
		h.blame(name, "%s: DEL is not queued: %v", c.who, err)
		return
	}
	c.sleep(c.between(0, 200*time.Millisecond))
	due := h.running(g.simBelief)
	c.bounded(name, "EXEC", 0, func() { r, err = p.adoption.Exec(ctx, call, &tx) })
	if err != nil || ctx.Err() != nil {
		h.log(c.who, name, "%v EXEC -> %v", p, err)
		return
	}
	h.log(c.who, name, "%v EXEC -> %q", p, r.Reply)
	switch done := string(r.Reply) == "*1\r\n:1\r\n"; {
	case !done && string(r.Reply) != "*-1\r\n" && string(r.Reply) != "*1\r\n:0\r\n": // the latter where WATCH has found nobody
		h.blame(name, "%s: EXEC answers %q", c.who, r.Reply)
	case done != (call.released != ""):
		h.blame(name, "%s: EXEC answers %q, done to %q", c.who, r.Reply, call.released)
	case done && call.released != g.owner:
		h.blame(name, "%s: EXEC gave back %q instead of %q", c.who, call.released, g.owner)
	case due && !done && h.promised(g.simBelief) && c.w.adopted.releasesOf(g) == call.releases[g.owner] && c.w.stayedWell(p, well):
		h.blame(name, "%s: EXEC in time gives fence %d not back, and nothing has failed", c.who, g.fence)
	}
	h.count("adopted: transactions")
}

// atUpstream is a program that takes the lock where it always did.
func (c *simClient) atUpstream() {
	name, a := c.anyName(), &c.w.adopted
	if left, _ := a.upstreamHas(name); left >= 0 {
		return
	}
	c.w.history.log(c.who, name, "takes it at the upstream")
	set := func(until time.Time) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.upstream[name] = until
		a.changes++
	}
	set(time.Now().Add(time.Second))
	c.sleep(c.between(0, 60*time.Millisecond))
	set(time.Time{})
}

var _ adopt.Connection = (*adoptedCall)(nil)
