package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
)

// severalSeeds is the first seed of runs in which clients take several names at once.
const severalSeeds = 1 << 36

// Clients of these take two or three names at once, read them or have them alone, beside others that take one.
var severalProfiles = []*simProfile{
	{
		name: "several", nodes: 3, proxies: 3, names: 7, clients: 7, long: 4 * time.Second,
		think: 40 * time.Millisecond, gap: 300 * time.Millisecond, shortest: 100 * time.Millisecond, longest: 600 * time.Millisecond,
		loss: 0.002, clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{0, 50 * time.Millisecond, 300 * time.Millisecond},
		several:  true, acts: severalActs, faults: everyFault,
	},
	{
		name: "several, five nodes", nodes: 5, proxies: 2, names: 5, clients: 5, long: 3 * time.Second,
		think: 30 * time.Millisecond, gap: 300 * time.Millisecond, shortest: 100 * time.Millisecond, longest: 400 * time.Millisecond,
		loss: 0.001, clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{0, 50 * time.Millisecond},
		several:  true, acts: severalActs, faults: everyFault,
	},
	{
		// Nodes number grants by clocks that are far apart. A majority remembers: what a floor is made of is a clock else.
		name: "several, clocks apart", nodes: 3, proxies: 2, names: 4, clients: 5, long: 3 * time.Second,
		think: 10 * time.Millisecond, gap: 400 * time.Millisecond, shortest: 100 * time.Millisecond, longest: 300 * time.Millisecond,
		clocks: 3 * time.Second, skew: time.Millisecond,
		timeouts: []time.Duration{0, 50 * time.Millisecond},
		several:  true, acts: severalActs, faults: []weighted[simFault]{{3, loseOne}, {2, cutLink}, {1, pauseNode}, {1, slowLinks}, {1, restartProxy}},
	},
	{
		name: "several, shared", shares: true, nodes: 3, proxies: 2, names: 3, clients: 6, long: 3 * time.Second,
		think: 20 * time.Millisecond, gap: 300 * time.Millisecond, shortest: 100 * time.Millisecond, longest: 400 * time.Millisecond,
		loss: 0.001, clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{0, 50 * time.Millisecond},
		several:  true, acts: severalActs, faults: everyFault,
	},
	{
		name: "several and well", nodes: 3, proxies: 2, names: 5, clients: 6, long: 2 * time.Second,
		think: 10 * time.Millisecond, gap: 1500 * time.Millisecond, shortest: 100 * time.Millisecond, longest: 300 * time.Millisecond,
		clocks: 300 * time.Millisecond, skew: time.Second, timeouts: []time.Duration{0},
		several: true, acts: severalActs, faults: []weighted[simFault]{{1, breakConnections}, {1, cutLink}},
	},
}

var severalActs = []weighted[func(*simClient)]{
	{8, (*simClient).several}, {3, (*simClient).severalInSession}, {3, (*simClient).severalAgain}, {3, (*simClient).severalAndOne}, {2, (*simClient).severalUnheard},
	{4, (*simClient).plain}, {2, (*simClient).reentrant}, {1, (*simClient).session}, {1, (*simClient).resend}, {1, (*simClient).impatient}, {1, (*simClient).force},
}

// severalRequest is a LOCK of two or three names.
func (c *simClient) severalRequest(owner string) locks.LockRequest {
	r := c.request(owner)
	if c.oneIn(2) {
		r.Wait = 0
	}
	first := keyOf(r.Name).Name
	for _, i := range c.r.Perm(c.w.profile.names) {
		if name := fmt.Sprintf("n%d", i); name != first && len(r.Others) < 2 && (len(r.Others) == 0 || c.oneIn(3)) {
			r.Others = append(r.Others, locks.Key{Name: name})
		}
	}
	return r
}

// each is a request for one of its names.
func each(r locks.LockRequest) (all []locks.LockRequest) {
	for _, k := range r.Names() {
		one := r
		one.Key, one.Others = k, nil
		all = append(all, one)
	}
	return all
}

// lockAll is lock for several names: all is what the owner may believe about each, nil if nothing was granted that it still has.
func (c *simClient) lockAll(p *simProxy, r locks.LockRequest, giveUp time.Duration) (all []*simBelief, a locks.Decision, err error) {
	c.ponder()
	h, well, ones := c.w.history, c.w.well(p), each(r)
	var asks []*simAsk
	for _, one := range ones {
		ask := h.ask(p, lockOf(one), r.Owner, 0)
		asks = append(asks, ask)
		defer h.answered(ask)
		h.log(c.who, lockOf(one), "%v LOCKALL %v %v owner %q wait %v req %q session %v shared %v", p, r.Names(), r.TTL, r.Owner, r.Wait, r.Req, r.Session != nil, r.Shared)
	}
	ctx, cancel := context.WithCancel(p.life)
	defer cancel()
	if giveUp > 0 {
		defer time.AfterFunc(giveUp, cancel).Stop()
	}
	c.bounded(r.Name, "LOCKALL", r.Wait, func() { a, err = p.svc.Lock(ctx, r) })
	if ctx.Err() != nil {
		if a.Granted && p.life.Err() == nil {
			c.undoAll(p, &a)
		}
		a, err = locks.Decision{}, errHungUp
	}
	for i, one := range ones {
		switch {
		case err != nil:
			h.log(c.who, lockOf(one), "%v -> %v", p, err)
		case a.Granted:
			g := a.All()[i]
			h.log(c.who, lockOf(one), "%v -> granted %q fence %d for %v, holds %d", p, g.Owner, g.Fence, g.Validity, g.Holds)
		default:
			h.log(c.who, lockOf(one), "%v -> %v held by %q for %v, in the way %d", p, a.Of, a.Holder, a.Remaining, a.Why)
		}
	}
	switch {
	case err != nil && !c.deaf:
		c.explain(p, lockOf(r), well, err)
	case err == nil && a.Granted && !c.deaf:
		all = c.grantedAll(asks, ones, &a)
	case err == nil && !a.Granted && a.Holder != "" && !slices.Contains(r.Names(), a.Of.Whole()):
		h.blame(r.Name, "%s wants %v, and is refused because of %v", c.who, r.Names(), a.Of)
	}
	return all, a, err
}

// grantedAll notes that all names were granted, each for the smallest validity.
func (c *simClient) grantedAll(asks []*simAsk, ones []locks.LockRequest, a *locks.Decision) (all []*simBelief) {
	h, grants := c.w.history, a.All()
	if len(grants) != len(ones) {
		h.blame(ones[0].Name, "%s was granted %d of %d names", c.who, len(grants), len(ones))
		return nil
	}
	over := 0
	validity := slices.MinFunc(grants, func(a, b locks.Grant) int { return int(a.Validity - b.Validity) }).Validity
	for i, g := range grants {
		if g.Holds == 0 {
			over++
			continue
		}
		asks[i].seat = unknownSeat
		g.Name, g.Validity = lockOf(ones[i]), validity
		all = append(all, h.granted(asks[i], ones[i], g))
	}
	switch {
	case over > 0 && over < len(grants):
		h.blame(ones[0].Name, "%s was told that %d of %d names were granted and given back before, and the others are granted", c.who, over, len(grants))
	case slices.Contains(all, nil):
		return nil
	}
	h.count("several granted")
	return all
}

func (c *simClient) undoAll(p *simProxy, a *locks.Decision) {
	for _, g := range a.All() {
		p.svc.Undo(g)
	}
}

// renewAll is RENEW for all names that were granted together.
func (c *simClient) renewAll(p *simProxy, all []*simBelief, ttl time.Duration) {
	c.ponder()
	h := c.w.history
	asks, lapsed := make([]*simAsk, len(all)), make([]bool, len(all))
	var names []locks.Key
	for i, b := range all {
		_, lapsed[i] = c.lapsed(b)
		asks[i] = h.ask(p, b.name, b.owner, ttl)
		defer h.answered(asks[i])
		h.log(c.who, b.name, "%v RENEWALL %v owner %q fence %d, lapsed %v", p, ttl, b.owner, b.fence, lapsed[i])
		names = append(names, keyOf(b.name).Whole())
	}
	v, err := time.Duration(0), error(nil)
	shared := keyOf(all[0].name).Reader != ""
	c.bounded(all[0].name, "RENEWALL", 0, func() {
		v, err = p.svc.RenewAll(p.life, names, locks.RenewRequest{Owner: all[0].owner, TTL: ttl, Shared: shared})
	})
	if p.life.Err() != nil {
		err = errHungUp
	}
	failed := (*locks.NamesError)(nil)
	if errors.As(err, &failed) && len(failed.Failed) == 0 {
		h.blame(all[0].name, "%s: RENEWALL failed for no name: %v", c.who, err)
	}
	for i, b := range all {
		h.log(c.who, b.name, "%v -> %v, %v", p, v, err)
		switch foreign := (*locks.NotOwnerError)(nil); {
		case err == nil:
			h.renewed(asks[i], b, p.trueTime(v), lapsed[i] && asks[i].alone)
			h.count("renewals of several")
		case failed == nil:
		default:
			for _, f := range failed.Failed {
				if f.Key == names[i] && (errors.Is(f.Err, locks.ErrLost) || errors.As(f.Err, &foreign)) {
					h.ended(b)
				}
			}
		}
	}
}

// unlockAll gives all names back, in one command or one by one.
func (c *simClient) unlockAll(p *simProxy, all []*simBelief, req string) {
	h := c.w.history
	due := true
	for _, b := range all {
		due = due && h.running(b)
		h.ended(b)
	}
	if req == "" && c.oneIn(2) {
		for _, b := range all {
			_, _, _ = c.unlock(c.sameOr(p), b, locks.UnlockRequest{Fence: c.fenceOr0(b)})
		}
		return
	}
	c.ponder()
	well := c.w.well(p)
	var names []locks.Key
	for _, b := range all {
		names = append(names, keyOf(b.name).Whole())
		h.log(c.who, b.name, "%v UNLOCKALL %q fence %d req %q", p, b.owner, b.fence, req)
		b.unlocked.Store(true)
	}
	left, err := 0, error(nil)
	shared := keyOf(all[0].name).Reader != ""
	c.bounded(all[0].name, "UNLOCKALL", 0, func() {
		left, err = p.svc.UnlockAll(p.life, names, locks.UnlockRequest{Owner: all[0].owner, Shared: shared, Req: req})
	})
	for _, b := range all {
		h.log(c.who, b.name, "%v -> %d, %v", p, left, err)
	}
	if due && (err != nil || left != 0) && c.w.stayedWell(p, well) {
		h.blame(all[0].name, "%s: UNLOCKALL in time, and nothing has failed: %d left, %v", c.who, left, err)
	}
}

// several takes names, renews them together or one of them, and gives all back, or crashes. What was refused leaves nothing where
// nothing fails.
func (c *simClient) several() {
	owner := ""
	if c.oneIn(3) {
		owner = c.owner()
	}
	p, r := c.anyProxy(), c.severalRequest(owner)
	if owner != "" && c.oneIn(3) {
		r.Req = owner + "-req"
	}
	well := c.w.well(p)
	all, a, err := c.lockAll(p, r, 0)
	if len(all) == 0 {
		if err == nil && !a.Granted && r.Owner != "" {
			c.leavesNothing(p, r, well)
		}
		return
	}
	ttl := r.TTL
	for range c.r.IntN(4) {
		c.sleep(c.between(0, ttl*11/10))
		ttl = c.ttl()
		if c.oneIn(2) {
			c.renewAll(c.sameOr(p), all, ttl)
		} else {
			b := all[c.r.IntN(len(all))]
			c.renew(c.sameOr(p), b, ttl, c.fenceOr0(b))
		}
		if all = slices.DeleteFunc(all, func(b *simBelief) bool { return !c.w.history.believes(b) }); len(all) == 0 {
			return
		}
	}
	c.sleep(c.between(0, ttl*3/4))
	if c.oneIn(8) {
		c.w.history.log(c.who, all[0].name, "crashes")
		return
	}
	c.unlockAll(c.sameOr(p), all, r.Req)
}

// undoneWithin is how long an undo may take where nothing fails.
const undoneWithin = 20 * time.Millisecond

// leavesNothing blames a lock that is on a node though its owner was refused.
func (c *simClient) leavesNothing(p *simProxy, r locks.LockRequest, well simWell) {
	c.sleep(undoneWithin)
	if !c.w.stayedWell(p, well) {
		return
	}
	c.w.history.count("refusals that left nothing")
	for _, one := range each(r) {
		if n := c.w.owned(lockOf(one), r.Owner); n > 0 {
			c.w.history.blame(lockOf(one), "%s: %d nodes have a lock of %s, which was refused", c.who, n, r.Owner)
		}
	}
}

// owned counts the nodes that have a record of a lock for this owner.
func (w *simWorld) owned(name, owner string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, node := range w.nodes {
		k := node.hash(nodekeys.Lock("lockproxy:", keyOf(name)))
		if i := k.field("o"); i >= 0 && k.fields[i].value == owner {
			n++
		}
	}
	return n
}

// severalInSession has names kept for it, gives them back, or goes.
func (c *simClient) severalInSession() {
	h, p := c.w.history, c.anyProxy()
	r := c.severalRequest("")
	if c.oneIn(3) {
		r.Owner = c.owner()
	}
	r.Session = p.svc.NewSession(func(l locks.Loss) {
		h.log(c.who, lockName(l.Key), "%v lock-lost %q fence %d: %s", p, l.Owner, l.Fence, l.Reason)
		h.lost(l)
	})
	defer r.Session.End()
	all, _, _ := c.lockAll(p, r, 0)
	for range c.r.IntN(12) {
		c.sleep(c.between(0, r.TTL*2/3))
	}
	if all = slices.DeleteFunc(all, func(b *simBelief) bool { return !h.believes(b) }); len(all) == 0 {
		return
	}
	h.count("several kept")
	if c.oneIn(2) {
		c.unlockAll(c.sameOr(p), all, "")
		return
	}
	for _, b := range all {
		h.ended(b)
	}
	if c.oneIn(2) {
		r.Session.Abandon()
	}
}

// severalAgain sends a LOCK with a request id again, through other proxies and at the same time, and gives back all names, or one of
// them: then it is not granted anew where nothing fails.
func (c *simClient) severalAgain() {
	h := c.w.history
	r := c.severalRequest(c.owner())
	r.Req = r.Owner + "-req"
	var all []*simBelief
	for range 3 {
		var copies sync.WaitGroup
		if c.oneIn(3) {
			other, at, giveUp := c.copy(true), c.anyProxy(), c.between(0, 30*time.Millisecond)
			copies.Go(func() { _, _, _ = other.lockAll(at, r, giveUp) })
		}
		now, a, _ := c.lockAll(c.anyProxy(), r, 0)
		copies.Wait()
		for _, g := range a.All() {
			if len(now) > 0 && g.Holds != 1 {
				h.blame(r.Name, "one request of %s for several names has %d holds of %v", r.Owner, g.Holds, g.Key)
			}
		}
		if len(now) > 0 && !c.oneIn(3) {
			all = now
			break
		}
	}
	if all == nil {
		return
	}
	h.count("several sent again")
	c.sleep(c.between(0, r.TTL/2))
	if c.oneIn(2) {
		c.unlockAll(c.anyProxy(), all, r.Req)
		return
	}
	one := all[c.r.IntN(len(all))]
	p, due := c.anyProxy(), h.running(one)
	well := c.w.well(p)
	h.ended(one)
	_, lost, err := c.unlock(p, one, locks.UnlockRequest{Req: r.Req})
	if _, a, _ := c.lockAll(p, r, 0); due && err == nil && !lost && a.Granted && c.w.stayedWell(p, well) {
		h.blame(one.name, "%s: a request of which one name was given back is granted: %+v", c.who, a)
	}
	h.count("several given back in part")
	for _, b := range all {
		if b != one && h.running(b) {
			h.ended(b)
			_, _, _ = c.unlock(c.anyProxy(), b, locks.UnlockRequest{})
		}
	}
}

// severalAndOne takes one name, and that with others, and gives back either first.
func (c *simClient) severalAndOne() {
	h, p := c.w.history, c.anyProxy()
	r := c.severalRequest(c.owner())
	ones := each(r)
	one := ones[c.r.IntN(len(ones))]
	b, _, _ := c.lock(p, one, 0)
	if b == nil {
		return
	}
	c.sleep(c.between(0, r.TTL/3))
	r.TTL = c.ttl()
	all, _, _ := c.lockAll(c.sameOr(p), r, 0)
	if len(all) > 0 {
		h.count("several beside one")
	}
	c.sleep(c.between(0, r.TTL/3))
	for _, x := range all {
		if x.name != b.name {
			h.ended(x)
			_, _, _ = c.unlock(c.sameOr(p), x, locks.UnlockRequest{})
		} else {
			b = x
		}
	}
	c.giveBack(p, b, 1)
}

// severalUnheard leaves before it is answered, or right when it was granted.
func (c *simClient) severalUnheard() {
	p := c.anyProxy()
	r := c.severalRequest(c.owner())
	if c.oneIn(2) {
		_, _, _ = c.lockAll(p, r, c.between(0, time.Millisecond))
		return
	}
	all, a, _ := c.lockAll(p, r, 0)
	if len(all) == 0 {
		return
	}
	for _, b := range all {
		c.w.history.ended(b)
	}
	c.undoAll(p, &a)
}

// allTogether is, where nothing fails, a LOCK of several names that is refused because of one, which leaves the others free; and of three
// that want two of three names each at the same moment, one that is granted.
func (c *simClient) allTogether(p, other *simProxy) {
	h := c.w.history
	key := func(i int) locks.Key { return locks.Key{Name: fmt.Sprintf("n%d", i%3)} }
	want := func(i int) locks.LockRequest {
		return locks.LockRequest{Key: key(i), Others: []locks.Key{key(i + 1)}, Owner: c.owner(), TTL: time.Second}
	}
	first, _, err := c.lockAll(p, want(0), 0)
	if len(first) == 0 {
		h.blame("n0", "several names are not granted after the faults: %v", err)
		return
	}
	second, a, err := c.lockAll(other, want(1), 0)
	if len(second) > 0 || err != nil || a.Of != key(1) || a.Holder != first[0].owner {
		h.blame("n1", "it is granted beside another, or refused for another reason: %+v, %v", a, err)
	}
	c.sleep(undoneWithin)
	c.progress(other, "n2")
	for _, b := range first {
		h.ended(b)
	}
	c.unlockAll(p, first, "")
	for range 5 {
		c.sleep(undoneWithin)
		var threads sync.WaitGroup
		granted := make([][]*simBelief, 3)
		for i := range granted {
			aside, at, begin, r := c.copy(false), c.anyProxy(), c.between(0, 200*time.Microsecond), want(i)
			threads.Go(func() {
				aside.sleep(begin)
				granted[i], _, _ = aside.lockAll(at, r, 0)
			})
		}
		threads.Wait()
		some := false
		for _, all := range granted {
			if len(all) > 0 {
				some = true
				c.unlockAll(p, all, "")
			}
		}
		if !some {
			h.blame("n0", "of three who wanted two of three names each, all were refused")
		}
	}
}
