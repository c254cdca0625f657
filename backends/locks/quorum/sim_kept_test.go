package quorum

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// keptSeeds is the first seed of runs with locks without an end.
const keptSeeds = 1 << 33

// Clients of these take locks without an end, which all proxies look after, beside clients that rival for them.
var keptProfiles = []*simProfile{
	{
		name: "kept", nodes: 3, proxies: 3, names: 3, clients: 6, long: 12 * time.Second, maxHold: 8 * time.Second,
		think: 50 * time.Millisecond, gap: 1500 * time.Millisecond, shortest: 100 * time.Millisecond, longest: 700 * time.Millisecond,
		loss: 0.001, clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{0, 50 * time.Millisecond, 300 * time.Millisecond},
		acts:     keptActs,
		faults: []weighted[simFault]{
			{4, restartProxy}, {2, loseNode}, {1, flush}, {2, cutLink}, {1, cutNode}, {1, pauseNode}, {1, pauseProxy}, {1, slowLinks}, {1, stepBack}, {1, saveNode},
		},
	},
	{
		// Nodes number grants by clocks that are far apart, so that some keep another fence than that of the grant.
		name: "kept and clocks apart", nodes: 3, proxies: 2, names: 3, clients: 6, long: 10 * time.Second, maxHold: 8 * time.Second,
		think: 50 * time.Millisecond, gap: 2 * time.Second, shortest: 100 * time.Millisecond, longest: 400 * time.Millisecond,
		clocks: 3 * time.Second, skew: time.Millisecond,
		timeouts: []time.Duration{0, 50 * time.Millisecond},
		acts:     keptActs,
		faults:   []weighted[simFault]{{4, restartProxy}, {1, cutLink}, {1, pauseNode}, {1, slowLinks}},
	},
}

var keptActs = []weighted[func(*simClient)]{{6, (*simClient).keep}, {4, (*simClient).plain}}

// endsLate is how much later than by its lease a lock may be gone: a renewal may have been under way, and clocks are set back.
const endsLate = 1500 * time.Millisecond

// keep takes a lock without an end and looks now and then whether it still has it. Then it gives it back, or an end, or crashes.
func (c *simClient) keep() {
	h, p := c.w.history, c.anyProxy()
	r := locks.LockRequest{Key: locks.Key{Name: c.anyName()}, Owner: c.owner(), Open: true}
	if c.oneIn(2) {
		r.Wait = c.between(0, time.Second)
	}
	lasts := time.Now().Add(c.w.profile.maxHold - simMaxTTL - endsLate) // nothing ends it before
	b, a, err := c.lock(p, r, 0)
	ends := time.Now().Add(c.w.profile.maxHold + simMaxTTL + endsLate)
	switch {
	case b == nil && err == nil && !a.Granted:
		return
	case b == nil: // it may have been granted all the same
		c.sleep(time.Until(ends))
		return
	}
	h.count("kept: grants")
	since, sure := c.w.well(p), true
	for range c.r.IntN(5) {
		c.sleep(c.between(0, simMaxTTL*3/2))
		at := c.anyProxy()
		now := c.w.well(at)
		held, left := c.hasKept(at, b, lasts)
		due := sure && since.ills == now.ills && c.w.stayedWell(at, now) && time.Now().Before(lasts)
		if due {
			h.count("kept: looks while nothing has failed")
		}
		if due && !held {
			h.blame(b.name, "%s: fence %d has no end, and is lost, and nothing has failed", c.who, b.fence)
		}
		since = now
		sure = now.well && held && left >= simMaxTTL/2 && c.w.vouched(b.name, b.owner, b.fence) > len(c.w.nodes)/2
	}
	h.ended(b)
	what := "it was left"
	switch c.r.IntN(3) {
	case 0:
		if _, lost, err := c.unlock(c.anyProxy(), b, locks.UnlockRequest{Fence: c.fenceOr0(b)}); err == nil || lost {
			what, ends = "it was given back", time.Now().Add(endsLate)
		}
	case 1:
		if ttl := c.ttl(); c.endKept(c.anyProxy(), b, ttl) {
			what, ends = "it was given an end", time.Now().Add(ttl+endsLate)
		}
	}
	c.sleep(time.Until(ends))
	if r, err := c.read(c.anyProxy(), b.name); err == nil && r.Owner == b.owner {
		h.blame(b.name, "%s: fence %d is still there: %s", c.who, b.fence, what)
	}
	h.count("kept: " + strings.TrimPrefix(what, "it was "))
}

// hasKept asks a proxy whether a lock without an end is held still, and for how long if nobody renews it. No other owner may have
// it then, and before lasts it must have no end. An error counts as held.
func (c *simClient) hasKept(p *simProxy, b *simBelief, lasts time.Time) (held bool, left time.Duration) {
	h, others := c.w.history, c.w.rivals(b)
	r, err := c.read(p, b.name)
	held = err == nil && r.Owner == b.owner
	for _, other := range c.w.rivals(b) {
		if held && slices.Contains(others, other) {
			h.blame(b.name, "two holders: %q has it, and %s (fence %d) may count on it all the time", r.Owner, other.owner, other.fence)
		}
	}
	if held && (r.Fence != b.fence || !r.Open && time.Now().Before(lasts)) {
		h.blame(b.name, "%s: fence %d has no end, and is read as %+v", c.who, b.fence, r)
	}
	return held || err != nil, r.Remaining
}

// read asks a proxy who has a lock.
func (c *simClient) read(p *simProxy, name string) (r locks.Reading, err error) {
	c.ponder()
	c.bounded(name, "a look", 0, func() { r, err = p.svc.Read(p.life, locks.Key{Name: name}) })
	c.w.history.log(c.who, name, "%v who has it? %q fence %d for %v, no end: %v, %v", p, r.Owner, r.Fence, r.Remaining, r.Open, err)
	return r, err
}

// rivals are the other owners' grants of the name that may be counted on now.
func (w *simWorld) rivals(b *simBelief) (all []*simBelief) {
	h := w.history
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, other := range h.nameLocked(b.name).beliefs {
		if other.owner != b.owner && other.runs(time.Now()) {
			all = append(all, other)
		}
	}
	return all
}

// endKept gives a lock without an end one, and reports whether that was answered.
func (c *simClient) endKept(p *simProxy, b *simBelief, ttl time.Duration) bool {
	h := c.w.history
	ask := h.ask(p, b.name, b.owner, ttl)
	defer h.answered(ask)
	_, err := p.svc.Renew(p.life, locks.RenewRequest{Key: locks.Key{Name: b.name}, Owner: b.owner, TTL: ttl, Fence: b.fence})
	h.log(c.who, b.name, "%v ends in %v -> %v", p, ttl, err)
	return err == nil && !errors.Is(p.life.Err(), context.Canceled)
}
