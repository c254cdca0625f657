package quorum

import (
	"slices"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// uneven is a short lease or a long one, so that what shortens one shows.
func (c *simClient) uneven() time.Duration {
	short, long := c.w.profile.shortest, c.w.profile.longest
	if c.oneIn(2) {
		return c.between(short, short*3/2).Truncate(time.Millisecond)
	}
	return c.between(long*3/4, long).Truncate(time.Millisecond)
}

// giveBack gives back so many holds, one after the other, through p and others.
func (c *simClient) giveBack(p *simProxy, b *simBelief, held int) {
	h := c.w.history
	for ; held > 0; held-- {
		if h.gaveBack(b); held == 1 {
			h.ended(b)
		}
		left, _, err := c.unlock(c.sameOr(p), b, locks.UnlockRequest{Fence: c.fenceOr0(b)})
		if err != nil {
			h.ended(b)
			return
		}
		if h.running(b) && left == 0 {
			h.blame(b.name, "%s gave back one of %d holds, and is told that none are left", b.owner, held)
		}
		if left == 0 {
			h.ended(b)
			return
		}
		c.sleep(c.between(0, 10*time.Millisecond))
	}
}

// atOnce is an owner with several threads, which re-enter and renew at the same moment,
// through one proxy and through others, for short and for long.
func (c *simClient) atOnce() {
	p, r := c.anyProxy(), c.request(c.owner())
	r.TTL = c.uneven()
	b, _, _ := c.lock(p, r, 0)
	if r.Wait = 0; b == nil {
		return
	}
	held := 1
	for range 1 + c.r.IntN(3) {
		var threads sync.WaitGroup
		granted := make([]*simBelief, 2+c.r.IntN(2))
		for i := range granted {
			other, at, ttl, renews := c.copy(false), c.sameOr(p), c.uneven(), c.oneIn(2)
			threads.Go(func() {
				if renews {
					other.renew(at, b, ttl, b.fence)
				} else {
					r := r
					r.TTL = ttl
					granted[i], _, _ = other.lock(at, r, 0)
				}
			})
		}
		threads.Wait()
		for _, now := range granted {
			switch {
			case now == nil || now.fence < b.fence:
			case now == b:
				held++
			default: // the lease had ended
				b, held = now, 1
			}
		}
		c.sleep(c.between(0, c.w.profile.shortest*3))
	}
	c.giveBackLate(p, b, held)
}

// giveBackLate is giveBack, perhaps after the lease, and without counting on the numbers.
func (c *simClient) giveBackLate(p *simProxy, b *simBelief, held int) {
	if c.sleep(c.between(0, c.w.profile.shortest)); c.oneIn(3) {
		c.sleep(c.between(0, c.w.profile.longest))
	}
	c.w.history.ended(b)
	for range held {
		if left, _, err := c.unlock(c.sameOr(p), b, locks.UnlockRequest{Fence: b.fence}); err != nil || left == 0 {
			return // asked again, it would repeat its answer
		}
	}
}

// majorities re-enters while each node refuses in turn, so that every hold is on another
// majority, and then renews, or has a session do so, when all nodes are well.
func (c *simClient) majorities() {
	w, h, p, r := c.w, c.w.history, c.anyProxy(), c.request(c.owner())
	r.TTL = c.between(w.profile.longest*3/4, w.profile.longest).Truncate(time.Millisecond)
	plain := r
	if c.oneIn(3) {
		r.Session = p.svc.NewSession(func(l locks.Loss) {
			h.log(c.who, l.Name, "%v lock-lost %q fence %d: %s", p, l.Owner, l.Fence, l.Reason)
			h.lost(l)
		})
		defer r.Session.End()
	}
	b, _, _ := c.lock(p, r, 0)
	if plain.Wait = 0; b == nil {
		return
	}
	held := 1
	for _, i := range c.r.Perm(len(w.nodes)) {
		well := w.refuse(w.nodes[i])
		now, _, _ := c.lock(c.sameOr(p), plain, 0)
		well()
		switch {
		case now == nil:
		case now != b:
			return // the lease has ended
		default:
			held++
		}
		c.sleep(c.between(0, 5*time.Millisecond))
	}
	c.sleep(c.between(0, 20*time.Millisecond))
	if r.Session != nil {
		was := w.well(p)
		if c.sleep(2 * r.TTL); !h.believes(b) && w.stayedWell(p, was) {
			h.blame(b.name, "the session of %s (fence %d) lost its lock, and nothing has failed", b.owner, b.fence)
		}
	}
	for range 1 + c.r.IntN(2) {
		if !c.renew(c.sameOr(p), b, r.TTL, c.fenceOr0(b)) {
			return
		}
	}
	c.giveBack(p, b, held)
}

// refuse has a node answer every script with an error; the result ends it.
func (w *simWorld) refuse(n *simNode) (well func()) {
	heal := w.ail()
	w.with(func() { n.refuses++ })
	w.say("node %d refuses", n.index)
	return func() {
		w.with(func() { n.refuses-- })
		w.say("node %d refuses no more", n.index)
		heal()
	}
}

// besideSession has a session keep a lock that its owner renews and takes through other
// proxies too, for short and for long.
func (c *simClient) besideSession() {
	h, p, r := c.w.history, c.anyProxy(), c.request(c.owner())
	if c.oneIn(2) {
		r.TTL = c.between(c.w.profile.shortest*2, c.w.profile.shortest*4).Truncate(time.Millisecond)
	}
	plain := r
	plain.Wait = 0
	r.Session = p.svc.NewSession(func(l locks.Loss) {
		h.log(c.who, l.Name, "%v lock-lost %q fence %d: %s", p, l.Owner, l.Fence, l.Reason)
		h.lost(l)
	})
	defer r.Session.End()
	b, _, _ := c.lock(p, r, 0)
	if b == nil {
		return
	}
	if c.oneIn(3) { // a long lease beside it, and then a short one, of which the session has to find out
		plain.TTL = c.w.profile.longest
		if now, _, _ := c.lock(p, plain, 0); now == b {
			c.renew(c.w.proxy((p.index+1)%len(c.w.proxies)), b, c.w.profile.shortest, c.fenceOr0(b))
			c.sleep(r.TTL + c.w.profile.longest)
		}
		h.ended(b)
		return
	}
	taken := 0
	for range 1 + c.r.IntN(8) {
		c.sleep(c.between(0, r.TTL*2/3))
		switch c.r.IntN(5) {
		case 0, 1:
			well := func() {}
			if c.oneIn(2) {
				_, well = c.apart(c.oneIn(2))
			}
			c.renew(c.anyProxy(), b, c.uneven(), c.fenceOr0(b))
			if well(); c.oneIn(2) { // and only listens
				c.sleep(r.TTL + c.w.profile.longest)
			}
		case 2:
			plain.TTL = c.uneven()
			well := func() {}
			if c.oneIn(2) {
				well = c.w.refuse(c.w.nodes[c.r.IntN(len(c.w.nodes))])
			}
			now, _, _ := c.lock(c.sameOr(p), plain, 0)
			well()
			switch now {
			case nil:
			case b:
				taken++
			default:
				return // the lease had ended
			}
		case 3:
			if taken > 0 {
				taken--
				h.gaveBack(b)
				_, _, _ = c.unlock(c.sameOr(p), b, locks.UnlockRequest{Fence: b.fence})
				b.unlocked.Store(false)
			}
		}
		if !h.believes(b) {
			return
		}
	}
	h.count("kept")
	h.ended(b)
	if c.oneIn(2) {
		_, _, _ = c.unlock(c.sameOr(p), b, locks.UnlockRequest{Fence: b.fence, All: c.oneIn(2)})
	}
}

// late outstays a lease that another proxy shortened, perhaps on some nodes only, and then
// renews it again and again.
func (c *simClient) late() {
	w, p, r := c.w, c.anyProxy(), c.request(c.owner())
	r.TTL = c.between(w.profile.longest*3/4, w.profile.longest).Truncate(time.Millisecond)
	b, _, _ := c.lock(p, r, 0)
	if b == nil {
		return
	}
	short := c.between(w.profile.shortest, w.profile.shortest*3/2).Truncate(time.Millisecond)
	third, well := c.apart(false)
	c.renew(c.anyProxy(), b, short, c.fenceOr0(b))
	well()
	c.sleep(c.between(short*3/4, short*5/4))
	for i := range 2 + c.r.IntN(3) {
		well := func() {}
		if i == 0 && c.oneIn(2) {
			well = w.refuse(third)
		} else if c.oneIn(3) {
			well = w.refuse(w.nodes[c.r.IntN(len(w.nodes))])
		}
		more := c.renew(c.sameOr(p), b, r.TTL, c.fenceOr0(b))
		if well(); !more {
			return
		}
		c.sleep(c.between(0, 30*time.Millisecond))
	}
	c.giveBackLate(p, b, 1)
}

// apart has one node refuse until another has a note, and that one from then on: so those
// that note a shorter lease and those that have it are not the same. The third does both;
// if it is to, it refuses then too. well ends it.
func (c *simClient) apart(oneOnly bool) (third *simNode, well func()) {
	at := c.r.Perm(len(c.w.nodes))
	noted, third, early := c.w.nodes[at[0]], c.w.nodes[at[2]], c.w.refuse(c.w.nodes[at[1]])
	t := c.w.trap(noted, "note")
	pause := c.between(0, time.Millisecond) // taken here: the client goes on with its chance meanwhile
	end := make(chan func(), 1)
	go func() {
		n := t.wait(c.w, 50*time.Millisecond)
		early()
		switch {
		case n == nil:
			end <- func() {}
		case oneOnly:
			c.sleep(pause)
			first, second := c.w.refuse(noted), c.w.refuse(third)
			end <- func() { first(); second() }
		default:
			end <- c.w.refuse(noted)
		}
	}()
	return third, func() { (<-end)() }
}

// takenAway has FORCE take the name from its holder, who gives it back then through its
// own proxy, while another's try reaches one node only.
func (c *simClient) takenAway() {
	w, at := c.w, c.r.Perm(len(c.w.proxies))
	p, q := w.proxy(at[0]), w.proxy(at[1])
	r := c.request(c.owner())
	b, _, _ := c.lock(p, r, 0)
	if b == nil {
		return
	}
	if was, held := c.forceName(c.sameOr(q), r.Name); !held || was.Fence != b.fence {
		return
	}
	reached := c.r.IntN(len(w.nodes))
	heal := w.block(q.index, func(i int) bool { return i != reached })
	defer heal()
	var rival sync.WaitGroup
	defer rival.Wait()
	other := c.copy(false)
	rival.Go(func() { _, _, _ = other.lock(q, locks.LockRequest{Key: locks.Key{Name: r.Name}, TTL: r.TTL}, 0) })
	c.sleep(c.between(0, time.Millisecond))
	if c.oneIn(3) {
		c.renew(p, b, r.TTL, c.fenceOr0(b))
	}
	_, _, _ = c.unlock(p, b, locks.UnlockRequest{Fence: b.fence})
}

// block lets nothing through from a proxy to those nodes; the result ends it.
func (w *simWorld) block(proxy int, which func(node int) bool) (end func()) {
	heal := w.ail()
	links := slices.Clone(w.links[proxy])
	for i := range links {
		if !which(i) {
			links[i] = nil
		}
	}
	links = slices.DeleteFunc(links, func(l *simLink) bool { return l == nil })
	w.with(func() {
		for _, l := range links {
			l.block(toNode)
		}
	})
	return func() {
		w.with(func() {
			for _, l := range links {
				l.unblock(toNode)
			}
		})
		heal()
	}
}
