package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// boundOf is how much longer than its WAIT a request may take, whatever happens: the
// longest are made of a few rounds and looks at nodes, each of which is bounded.
const boundOf = 15 * time.Second

// errHungUp says that a client never heard the answer.
var errHungUp = errors.New("the client heard nothing")

// A simClient does one thing after another, each with an owner of its own.
type simClient struct {
	w      *simWorld
	r      *rand.Rand
	who    string
	owners int
	deaf   bool // what it is granted nobody hears of

	unheard string // the owner of its last LOCK whose proxy ended: it may have been granted
}

func (w *simWorld) newClient(i int) *simClient {
	return &simClient{w: w, r: w.stream("client", i), who: fmt.Sprintf("c%d", i)}
}

// run acts until the world's faults are over.
func (c *simClient) run(stop <-chan struct{}) {
	for {
		c.sleep(c.between(0, 2*c.w.profile.think))
		select {
		case <-stop:
			return
		default:
			c.w.profile.act(c.r)(c)
		}
	}
}

// ponder lets what the last answer set off come first.
func (c *simClient) ponder() { c.sleep(c.between(0, 100*time.Microsecond)) }

func (c *simClient) sleep(d time.Duration) { time.Sleep(d) }

// between is a random time. No two are the same, so that little happens at one moment.
func (c *simClient) between(least, most time.Duration) time.Duration {
	return least + time.Duration(c.r.Int64N(int64(most-least)+1)) + time.Nanosecond
}

func (c *simClient) oneIn(n int) bool { return c.r.IntN(n) == 0 }

func (c *simClient) anyProxy() *simProxy { return c.w.proxy(c.r.IntN(len(c.w.proxies))) }

// sameOr is p, or now and then another.
func (c *simClient) sameOr(p *simProxy) *simProxy {
	if c.oneIn(3) {
		return c.anyProxy()
	}
	return c.w.proxy(p.index)
}

func (c *simClient) owner() string {
	c.owners++
	return fmt.Sprintf("%s-%d", c.who, c.owners)
}

// request is a LOCK of some name, with or without an owner and WAIT.
func (c *simClient) request(owner string) locks.LockRequest {
	r := locks.LockRequest{Key: locks.Key{Name: fmt.Sprintf("n%d", c.r.IntN(c.w.profile.names))}, Owner: owner, TTL: c.ttl()}
	c.share(&r)
	if !c.oneIn(3) {
		r.Wait = c.between(0, 2*time.Second)
	}
	return r
}

func (c *simClient) ttl() time.Duration {
	return c.between(c.w.profile.shortest, c.w.profile.longest).Truncate(time.Millisecond)
}

// bounded has something done and complains if it takes too long.
func (c *simClient) bounded(name, what string, wait time.Duration, do func()) {
	began := time.Now()
	do()
	if took := time.Since(began); took > wait+boundOf {
		c.w.history.blame(name, "%s: %s took %v", c.who, what, took)
	}
}

// lock is LOCK by a client that leaves after giveUp, if that is not 0. What it never heard
// of has been undone then, as for a connection that has closed. b is what the owner may
// believe, nil if it was not granted anything that it still has.
func (c *simClient) lock(p *simProxy, r locks.LockRequest, giveUp time.Duration) (b *simBelief, a locks.Decision, err error) {
	c.ponder()
	if !r.Shared {
		r.Permits = 0
	}
	h, well, name := c.w.history, c.w.well(p), lockOf(r)
	ask := h.ask(p, name, r.Owner, 0)
	defer h.answered(ask)
	h.log(c.who, name, "%v LOCK %v owner %q wait %v req %q session %v permits %d", p, r.TTL, r.Owner, r.Wait, r.Req, r.Session != nil, r.Permits)
	ctx, cancel := context.WithCancel(p.life)
	defer cancel()
	if giveUp > 0 {
		defer time.AfterFunc(giveUp, cancel).Stop()
	}
	c.bounded(r.Name, "LOCK", r.Wait, func() { a, err = p.svc.Lock(ctx, r) })
	if ctx.Err() != nil {
		if a.Granted && p.life.Err() == nil {
			p.svc.Undo(a.Grant)
		}
		if p.life.Err() != nil {
			c.unheard = r.Owner
		}
		a, err = locks.Decision{}, errHungUp
	}
	switch {
	case err != nil:
		h.log(c.who, name, "%v -> %v", p, err)
		if !c.deaf { // a copy may come while the request's UNLOCK removes the holds that it counts on
			c.explain(p, name, well, err)
		}
	case a.Granted:
		h.log(c.who, name, "%v -> granted %q fence %d for %v, holds %d", p, a.Grant.Owner, a.Grant.Fence, a.Grant.Validity, a.Grant.Holds)
		if a.Grant.Holds > 0 && !c.deaf { // else it is over, and this is the first reply again
			g := a.Grant
			ask.permits, ask.seat = r.Permits, p.seatOf(r, g)
			g.Name = name
			b = h.granted(ask, r, g)
		}
	default:
		h.log(c.who, name, "%v -> held by %q for %v, in the way %d", p, a.Holder, a.Remaining, a.Why)
	}
	return b, a, err
}

// explain blames an answer that too few nodes voted where nothing has failed: well is what
// the world was when it was asked for.
func (c *simClient) explain(p *simProxy, name string, well simWell, err error) {
	short := (*locks.QuorumError)(nil)
	if errors.As(err, &short) && c.w.stayedWell(p, well) {
		c.w.history.blame(name, "%s: NOQUORUM, and nothing has failed: %v", c.who, err)
	}
}

// trueTime is how long d by the proxy's clock is.
func (p *simProxy) trueTime(d time.Duration) time.Duration {
	return time.Duration(float64(d) / p.rate)
}

// renew is RENEW. It reports whether the owner has the lock as far as it knows.
func (c *simClient) renew(p *simProxy, b *simBelief, ttl time.Duration, fence int64) bool {
	_, _ = c.renewal(p, b, ttl, fence)
	return c.w.history.believes(b)
}

// lapsed reports whether the owner's validity has ended, and whether the lease has, on so many nodes that no RENEW may
// bring it back. Where the owner only asked to shorten it, of which no node may have heard, nodes that forgot have freed nothing.
func (c *simClient) lapsed(b *simBelief) (late, lapsed bool) {
	h, live := c.w.history, c.w.live
	if h.told(b) {
		live = c.w.mayLive
	}
	late = h.late(b) || h.hasDropped(b)
	return late, h.freed(b, late && live(b.name, b.owner, b.fence) <= len(c.w.nodes)/2)
}

// renewal is RENEW, and what it answers.
func (c *simClient) renewal(p *simProxy, b *simBelief, ttl time.Duration, fence int64) (v time.Duration, err error) {
	c.ponder()
	h, well := c.w.history, c.w.well(p)
	late, lapsed := c.lapsed(b)
	// Due by what it was told before. What renewals have put back proves nothing to another proxy.
	due := h.running(b) && !h.askedTwice(b.name) && c.w.vouched(b.name, b.owner, b.fence) > len(c.w.nodes)/2
	ask := h.ask(p, b.name, b.owner, ttl)
	defer h.answered(ask)
	h.log(c.who, b.name, "%v RENEW %v owner %q fence %d, late %v lapsed %v", p, ttl, b.owner, fence, late, lapsed)
	c.bounded(b.name, "RENEW", 0, func() {
		v, err = p.svc.Renew(p.life, locks.RenewRequest{Key: keyOf(b.name).Whole(), Owner: b.owner, TTL: ttl, Fence: fence, Shared: keyOf(b.name).Reader != ""})
	})
	if p.life.Err() != nil {
		err = errHungUp
	}
	h.log(c.who, b.name, "%v -> %v, %v", p, v, err)
	// Another proxy than the one that told the owner goes by what it has read: whole ms, less the drift of two clocks.
	if due && err != nil && h.runningFor(b, locks.Drift(0)+2*time.Millisecond) && ask.alone && c.w.stayedWell(p, well) {
		h.blame(b.name, "%s: RENEW of fence %d in time, and nothing has failed: %v", c.who, b.fence, err)
	}
	switch foreign := (*locks.NotOwnerError)(nil); {
	case err == nil:
		h.renewed(ask, b, p.trueTime(v), lapsed && ask.alone)
		h.count("renewals")
	case errors.Is(err, locks.ErrLost), errors.As(err, &foreign):
		h.ended(b)
	}
	return v, err
}

// unlock is UNLOCK. lost says that the owner does not have the lock any more.
func (c *simClient) unlock(p *simProxy, b *simBelief, r locks.UnlockRequest) (left int, lost bool, err error) {
	c.ponder()
	h, well := c.w.history, c.w.well(p)
	r.Key, r.Owner, r.Shared = keyOf(b.name).Whole(), b.owner, keyOf(b.name).Reader != ""
	// The next UNLOCK through another proxy may name a hold that was given back before, and repeats
	// that answer, whatever became of the others.
	later := r.Req == "" && !b.unlocked.Load() && h.later(b)
	if r.Fence == 0 && c.unheard == b.owner { // it may be that grant which is given back
		later = false
	}
	h.log(c.who, b.name, "%v UNLOCK %q fence %d req %q all %v", p, r.Owner, r.Fence, r.Req, r.All)
	began, ends := time.Now(), c.w.firstEnd(b.name, b.owner, b.fence)
	c.bounded(b.name, "UNLOCK", 0, func() { left, err = p.svc.Unlock(p.life, r) })
	if p.life.Err() != nil {
		err = errHungUp
	}
	h.log(c.who, b.name, "%v -> %d, %v", p, left, err)
	if err == nil && later {
		h.blame(b.name, "%s: fence %d of %s was given back after a later one had been granted, or FORCE had taken it away", c.who, b.fence, b.owner)
	}
	if time.Since(began)+locks.Drift(c.w.profile.longest) < ends { // else the lease ends meanwhile, on one node after the other
		c.explain(p, b.name, well, err)
	}
	if r.Req == "" {
		b.unlocked.Store(true)
	}
	foreign := (*locks.NotOwnerError)(nil)
	return left, errors.Is(err, locks.ErrLost) || errors.As(err, &foreign), err
}

// fenceOr0 is the grant's fence, or now and then none.
func (c *simClient) fenceOr0(b *simBelief) int64 {
	if c.oneIn(2) {
		return b.fence
	}
	return 0
}

// plain locks, works, renews in time or late, through this proxy or another, and gives the
// lock back, once or twice; or it crashes, and its lease has to end by itself.
func (c *simClient) plain() {
	owner := ""
	if c.oneIn(3) {
		owner = c.owner()
	}
	p, r := c.anyProxy(), c.request(owner)
	b, _, _ := c.lock(p, r, 0)
	if b == nil {
		return
	}
	ttl := r.TTL
	for range c.r.IntN(4) {
		c.sleep(c.between(0, ttl*12/10))
		ttl = c.ttl()
		if !c.renew(c.sameOr(p), b, ttl, c.fenceOr0(b)) {
			break
		}
	}
	c.sleep(c.between(0, ttl*3/4))
	if c.oneIn(8) {
		c.w.history.log(c.who, b.name, "crashes")
		return
	}
	c.w.history.ended(b)
	for range 1 + c.r.IntN(2) {
		if _, _, err := c.unlock(c.sameOr(p), b, locks.UnlockRequest{Fence: c.fenceOr0(b)}); err != nil {
			return
		}
	}
}

// reentrant locks several times as one owner, and gives all of it back; it goes on as the
// same owner when a LOCK failed. While nodes are out, those that answer may have holds that
// are about to be undone: the numbers are exact only in calm, see balance. They may also
// lack holds, which only a minority has then: docs/torture.md, Known limits. The LOCK
// says so, since its count of holds does not grow, and the client believes that.
func (c *simClient) reentrant() {
	h, p, r := c.w.history, c.anyProxy(), c.request(c.owner())
	var b *simBelief
	held := 0
	for range 2 + c.r.IntN(3) {
		at := c.sameOr(p)
		r.TTL = c.ttl()
		giveUp := time.Duration(0)
		if c.oneIn(5) {
			giveUp = c.between(0, 20*time.Millisecond)
		}
		if now, _, _ := c.lock(at, r, giveUp); now != nil {
			if now != b {
				b, held = now, 0
			}
			held++
			h.count("holds")
		}
		c.sleep(c.between(0, r.TTL/3))
		if b != nil && c.oneIn(4) && !c.renew(c.sameOr(p), b, c.ttl(), c.fenceOr0(b)) {
			return
		}
	}
	if b != nil {
		c.giveBack(p, b, held)
	}
}

// session has the lock kept for it, until it has done, is told that it is lost, or goes.
func (c *simClient) session() {
	h, p := c.w.history, c.anyProxy()
	r := c.request("")
	if c.oneIn(3) {
		r.Owner = c.owner()
	}
	if c.oneIn(4) {
		r.MaxHold = c.between(r.TTL, 3*r.TTL)
	}
	r.Session = p.svc.NewSession(func(l locks.Loss) {
		h.log(c.who, lockName(l.Key), "%v lock-lost %q fence %d: %s", p, l.Owner, l.Fence, l.Reason)
		h.lost(l)
	})
	defer r.Session.End()
	b, _, _ := c.lock(p, r, 0)
	if b == nil {
		return
	}
	for range c.r.IntN(12) {
		if c.sleep(c.between(0, r.TTL*2/3)); !h.believes(b) {
			return
		}
	}
	h.count("kept")
	h.ended(b)
	switch c.r.IntN(3) {
	case 0:
		h.log(c.who, b.name, "is gone")
	case 1:
		h.log(c.who, b.name, "is abandoned")
		r.Session.Abandon()
	default:
		_, _, _ = c.unlock(c.sameOr(p), b, locks.UnlockRequest{Fence: c.fenceOr0(b)})
	}
}

// resend sends LOCK and UNLOCK with a request id again, through other proxies too, and at
// the same time, as clients do that did not hear the reply.
func (c *simClient) resend() {
	h, owner := c.w.history, c.owner()
	r := c.request(owner)
	r.Req = owner + "-req"
	var b *simBelief
	for range 4 {
		p := c.anyProxy()
		copied := make(chan struct{})
		if c.oneIn(3) {
			other, at, giveUp := c.copy(true), c.anyProxy(), c.between(0, 30*time.Millisecond)
			go func() {
				defer close(copied)
				_, _, _ = other.lock(at, r, giveUp)
			}()
		} else {
			close(copied)
		}
		now, a, _ := c.lock(p, r, 0)
		<-copied
		switch {
		case now == nil:
		case a.Grant.Holds != 1:
			h.blame(r.Name, "one request of %s has %d holds", owner, a.Grant.Holds)
		case c.oneIn(3):
			h.log(c.who, r.Name, "did not hear it")
		default:
			b = now
		}
		if b != nil {
			break
		}
	}
	if b == nil {
		return
	}
	h.count("resends")
	c.sleep(c.between(0, r.TTL*3/4))
	h.ended(b)
	for range 4 {
		_, lost, err := c.unlock(c.anyProxy(), b, locks.UnlockRequest{Req: r.Req})
		if lost || err == nil && !c.oneIn(3) {
			return
		}
		c.sleep(c.between(0, 10*time.Millisecond))
	}
}

// resendAtOnce sends a LOCK through several proxies and hears one of them, while others are
// under way or undone, and gives it back through several; its owner may have the name already.
// While nothing fails, every UNLOCK in time succeeds and leaves what was there before.
func (c *simClient) resendAtOnce() {
	h, r := c.w.history, c.request(c.owner())
	soon := []time.Duration{200 * time.Microsecond, 2 * time.Millisecond, 20 * time.Millisecond}[c.r.IntN(3)]
	var outer *simBelief
	var outerEnds time.Time
	before := 0
	if c.oneIn(2) {
		var a locks.Decision
		p := c.anyProxy()
		if outer, a, _ = c.lock(p, r, 0); outer == nil {
			return
		}
		outerEnds, before, r.Wait = time.Now().Add(p.trueTime(a.Grant.Validity)), 1, 0
	}
	r.Req = r.Owner + "-req"
	var under sync.WaitGroup
	for range 2 + c.r.IntN(4) {
		other, at, begin, giveUp := c.copy(true), c.anyProxy(), c.between(0, soon), c.between(1, 2*soon)
		under.Go(func() {
			other.sleep(begin)
			_, _, _ = other.lock(at, r, giveUp)
		})
	}
	b, _, _ := c.lock(c.anyProxy(), r, 0)
	if b == nil {
		under.Wait()
		return
	}
	c.sleep(c.between(0, soon))
	due := h.running(b)
	h.ended(b)
	for range 2 + c.r.IntN(4) {
		other, p, begin := c.copy(true), c.anyProxy(), c.between(0, soon)
		under.Go(func() {
			other.sleep(begin)
			well := c.w.well(p)
			left, _, err := other.unlock(p, b, locks.UnlockRequest{Req: r.Req})
			counts := outer == nil || outer == b && time.Now().Before(outerEnds)
			if due && err == nil && outer == nil && left != before {
				h.blame(r.Name, "%s: UNLOCK of the only request of %s leaves %d holds", c.who, r.Owner, left)
			}
			if due && counts && (left != before || err != nil) && c.w.stayedWell(p, well) {
				h.blame(r.Name, "%s: UNLOCK of the request of %s, in time, and nothing has failed: %d holds left instead of %d, %v", c.who, r.Owner, left, before, err)
			}
			h.count("resends")
		})
	}
	under.Wait()
	if b.unlocked.Store(true); outer != nil {
		_, _, _ = c.unlock(c.anyProxy(), b, locks.UnlockRequest{})
	}
}

// copy is the same client at another place, whose events do not mix with its own.
func (c *simClient) copy(deaf bool) *simClient {
	return &simClient{w: c.w, r: rand.New(rand.NewPCG(c.r.Uint64(), 0)), who: c.who + "'", deaf: deaf}
}

// impatient leaves while it waits, or right when it is granted.
func (c *simClient) impatient() {
	p, owner := c.anyProxy(), ""
	if c.oneIn(2) {
		owner = c.owner()
	}
	r := c.request(owner)
	r.Wait = time.Second
	if c.oneIn(2) {
		_, _, _ = c.lock(p, r, c.between(0, 50*time.Millisecond))
	} else if b, a, _ := c.lock(p, r, 0); b != nil {
		c.w.history.log(c.who, r.Name, "is gone before it heard it")
		c.w.history.ended(b)
		p.svc.Undo(a.Grant)
	}
}

// force is an operator who takes a name away.
func (c *simClient) force() {
	c.forceName(c.anyProxy(), fmt.Sprintf("n%d", c.r.IntN(c.w.profile.names)))
}

func (c *simClient) forceName(p *simProxy, name string) (was locks.Holding, held bool) {
	h, well := c.w.history, c.w.well(p)
	h.log(c.who, name, "%v FORCE", p)
	owner, fence := h.force(name, +1, was)
	h.forceReaders(name)
	var err error
	c.bounded(name, "FORCE", 0, func() { was, held, err = p.svc.Force(p.life, locks.Key{DB: 0, Name: name}) })
	h.log(c.who, name, "%v -> %q, %v, %v", p, was.Owner, held, err)
	c.explain(p, name, well, err)
	if held = held && err == nil && p.life.Err() == nil; !held {
		was = locks.Holding{}
	}
	h.forceReaders(name)
	if was.Readers > 0 { // it may be a reader's
		was = locks.Holding{}
	}
	if held && was.Fence == 0 { // most nodes were in doubt
		h.count("taken of nodes in doubt")
		if was.Owner == owner {
			was.Fence = fence
		}
	}
	h.force(name, -1, was)
	return was, held
}
