package quorum

import (
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// sharedSeeds is the first seed of runs with readers.
const sharedSeeds = 1 << 34

// Clients of these read a name together, or write it alone, and rival with each other for that.
var sharedProfiles = []*simProfile{
	{
		name: "shared", shares: true, nodes: 3, proxies: 3, names: 2, clients: 7, long: 4 * time.Second,
		think: 40 * time.Millisecond, gap: 300 * time.Millisecond, shortest: 100 * time.Millisecond, longest: 600 * time.Millisecond,
		loss: 0.002, clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{0, 50 * time.Millisecond, 300 * time.Millisecond},
		acts:     sharedActs, faults: everyFault,
	},
	{
		name: "shared, five nodes", shares: true, nodes: 5, proxies: 2, names: 1, clients: 6, long: 3 * time.Second,
		think: 20 * time.Millisecond, gap: 300 * time.Millisecond, shortest: 100 * time.Millisecond, longest: 400 * time.Millisecond,
		loss: 0.001, clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{0, 50 * time.Millisecond},
		acts:     sharedActs, faults: everyFault,
	},
	{
		// Nodes number grants by clocks that are far apart. A majority remembers: what a floor is made of is a clock else.
		name: "shared, clocks apart", shares: true, nodes: 3, proxies: 2, names: 1, clients: 6, long: 3 * time.Second,
		think: 10 * time.Millisecond, gap: 400 * time.Millisecond, shortest: 100 * time.Millisecond, longest: 300 * time.Millisecond,
		clocks: 3 * time.Second, skew: time.Millisecond,
		timeouts: []time.Duration{0, 50 * time.Millisecond},
		acts:     sharedActs, faults: []weighted[simFault]{{3, loseOne}, {2, cutLink}, {1, pauseNode}, {1, slowLinks}, {1, restartProxy}},
	},
	{
		name: "shared and well", shares: true, nodes: 3, proxies: 2, names: 1, clients: 8, long: 2 * time.Second,
		think: 10 * time.Millisecond, gap: 1500 * time.Millisecond, shortest: 100 * time.Millisecond, longest: 300 * time.Millisecond,
		clocks: 300 * time.Millisecond, skew: time.Second, timeouts: []time.Duration{0}, acts: sharedActs,
		faults: []weighted[simFault]{{1, breakConnections}, {1, cutLink}},
	},
}

var sharedActs = []weighted[func(*simClient)]{
	{6, (*simClient).plain}, {3, (*simClient).reentrant}, {4, (*simClient).session}, {3, (*simClient).resend}, {2, (*simClient).impatient},
	{3, (*simClient).downgrade}, {2, (*simClient).upgrade}, {2, (*simClient).readTwice}, {1, (*simClient).force},
}

// readBar stands between the name and the owner in what the history calls the lock of a reader.
const readBar = "|"

// lockName is what the history calls a lock.
func lockName(k locks.Key) string {
	if k.Reader != "" {
		return k.Name + readBar + k.Reader
	}
	return k.Name
}

// keyOf is the reverse of lockName.
func keyOf(name string) locks.Key {
	name, reader, _ := strings.Cut(name, readBar)
	return locks.Key{Name: name, Reader: reader}
}

func lockOf(r locks.LockRequest) string {
	if r.Shared {
		r.Reader = r.Owner
	}
	return lockName(r.Key)
}

// share has most requests read.
func (c *simClient) share(r *locks.LockRequest) {
	if c.w.profile.shares && !c.oneIn(3) {
		if r.Shared = true; r.Owner == "" {
			r.Owner = c.owner()
		}
		c.sit(r)
	}
}

// besideLocked blames a grant while others believe what excludes it, and fences in the wrong order: that of a writer is above
// all that readers were told, and that of a reader is not below that of any writer before it.
func (h *simHistory) besideLocked(a *simAsk, g locks.Grant, now time.Time) {
	k := keyOf(g.Name)
	if k.Reader != "" {
		n := h.nameLocked(k.Name)
		for _, b := range n.beliefs {
			if b.owner != g.Owner {
				h.rivalLocked(b, g, now)
			}
		}
		if g.Fence < a.written {
			h.blameLocked(g.Name, "%s reads under fence %d, after a writer had %d", g.Owner, g.Fence, a.written)
		}
		h.seatedLocked(a, g, now)
		n.read = max(n.read, g.Fence)
		h.counts["readings"]++
		if n.owner == g.Owner && g.Fence == n.fence {
			h.counts["readings inside"]++
		}
		return
	}
	n := h.nameLocked(k.Name)
	if (g.Fence != n.fence || g.Owner != n.owner) && g.Fence <= n.read && a.alone {
		h.blameLocked(g.Name, "%s was granted fence %d after a reader had %d", g.Owner, g.Fence, n.read)
	}
	for name, other := range h.names {
		if !strings.HasPrefix(name, k.Name+readBar) {
			continue
		}
		for _, b := range other.beliefs {
			if b.owner != g.Owner {
				h.rivalLocked(b, g, now)
			} else if b.runs(now) {
				h.counts["upgrades"]++
			}
		}
	}
}

// forcedLocked reports whether a FORCE may have taken a reader's lock before its owner heard of it.
func (h *simHistory) forcedLocked(a *simAsk, g locks.Grant) bool {
	k := keyOf(g.Name)
	n := h.nameLocked(k.Name)
	return n.forcing > 0 || k.Reader != "" && a.at.Before(n.cleared)
}

// forceReaders notes a FORCE that takes a name from its readers, if nobody has it for itself.
func (h *simHistory) forceReaders(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nameLocked(name).cleared = time.Now()
	for reader, n := range h.names {
		if strings.HasPrefix(reader, name+readBar) {
			n.forced = true
			for _, b := range n.beliefs {
				b.over = true
			}
		}
	}
}

// downgrade writes, reads as well, and gives the first back: nobody else writes in between.
func (c *simClient) downgrade() {
	p := c.anyProxy()
	r := c.request(c.owner())
	r.Shared = false
	b, _, _ := c.lock(p, r, 0)
	if b == nil {
		return
	}
	c.sleep(c.between(0, r.TTL/2))
	r.Shared, r.Wait, r.TTL = true, 0, c.ttl()
	reading, _, _ := c.lock(c.sameOr(p), r, 0)
	c.w.history.ended(b)
	_, _, _ = c.unlock(c.sameOr(p), b, locks.UnlockRequest{Fence: c.fenceOr0(b)})
	if reading == nil {
		return
	}
	c.w.history.count("downgrades")
	c.sleep(c.between(0, r.TTL*3/4))
	c.w.history.ended(reading)
	_, _, _ = c.unlock(c.sameOr(p), reading, locks.UnlockRequest{Fence: c.fenceOr0(reading)})
}

// upgrade reads, tries to write, which waits for nobody, and gives back what it has got.
func (c *simClient) upgrade() {
	p := c.anyProxy()
	r := c.request(c.owner())
	r.Shared = true
	reading, _, _ := c.lock(p, r, 0)
	if reading == nil {
		return
	}
	c.sleep(c.between(0, r.TTL/2))
	r.Shared, r.TTL = false, c.ttl()
	b, _, _ := c.lock(c.sameOr(p), r, 0)
	if b != nil {
		c.sleep(c.between(0, r.TTL/2))
		c.w.history.ended(b)
		_, _, _ = c.unlock(c.sameOr(p), b, locks.UnlockRequest{Fence: c.fenceOr0(b)})
	}
	c.w.history.ended(reading)
	_, _, _ = c.unlock(c.sameOr(p), reading, locks.UnlockRequest{Fence: c.fenceOr0(reading)})
}

// readTwice reads, and once more when that is over: the second fence is above the first.
func (c *simClient) readTwice() {
	r := c.request(c.owner())
	r.Shared = true
	for range 2 {
		p := c.anyProxy()
		b, _, _ := c.lock(p, r, 0)
		if b == nil {
			return
		}
		c.sleep(c.between(0, r.TTL/4))
		c.w.history.ended(b)
		if _, _, err := c.unlock(c.sameOr(p), b, locks.UnlockRequest{Fence: c.fenceOr0(b)}); err != nil {
			return
		}
	}
	c.w.history.count("read twice")
}

// readTogether has two owners read a name through two proxies, where nothing fails, and a writer that waits for both. While it
// waits nobody else is let in, and an owner that reads may not wait to write.
func (c *simClient) readTogether(p, other *simProxy, name string) {
	h := c.w.history
	ask := func(p *simProxy, owner string, shared bool, wait time.Duration) (*simBelief, locks.Decision) {
		b, a, err := c.lock(p, locks.LockRequest{Key: locks.Key{Name: name}, Owner: owner, Shared: shared, TTL: time.Second, Wait: wait}, 0)
		if err != nil {
			h.blame(name, "after the faults: %v", err)
		}
		return b, a
	}
	first, second, writer, late := c.owner(), c.owner(), c.owner(), c.owner()
	one, _ := ask(p, first, true, 0)
	two, _ := ask(other, second, true, 0)
	if one == nil || two == nil {
		h.blame(name, "two cannot read it together")
		return
	}
	if b, a := ask(other, first, false, time.Second); b != nil || a.Why != locks.Upgrade {
		h.blame(name, "who reads it waited to write: %+v", a)
	}
	type answer struct {
		b *simBelief
		a locks.Decision
	}
	written, aside := make(chan answer, 1), c.copy(false)
	go func() {
		b, a := aside.askAs(p, name, writer, 900*time.Millisecond)
		written <- answer{b, a}
	}()
	c.sleep(50 * time.Millisecond)
	if b, a := ask(other, late, true, 0); b != nil || a.Why != locks.Intent && a.Why != locks.Held {
		h.blame(name, "a reader was let in while a writer waits: %+v", a)
	}
	if b, a := ask(other, first, true, 0); b != one {
		h.blame(name, "who reads it cannot enter again while a writer waits: %+v", a)
	}
	for i, b := range []*simBelief{one, two, one} {
		if i > 0 {
			h.ended(b)
		}
		if _, _, err := c.unlock(p, b, locks.UnlockRequest{}); err != nil {
			h.blame(name, "a reader cannot give it back: %v", err)
		}
	}
	if w := <-written; w.b == nil {
		h.blame(name, "the writer was not let in when all readers had gone: %+v", w.a)
	} else {
		h.ended(w.b)
		_, _, _ = c.unlock(other, w.b, locks.UnlockRequest{})
	}
}

func (c *simClient) askAs(p *simProxy, name, writer string, wait time.Duration) (*simBelief, locks.Decision) {
	b, a, _ := c.lock(p, locks.LockRequest{Key: locks.Key{Name: name}, Owner: writer, TTL: time.Second, Wait: wait}, 0)
	return b, a
}
