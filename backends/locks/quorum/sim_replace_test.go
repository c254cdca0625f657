package quorum

import (
	"errors"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
)

// simReplaced is what has been replaced, or was to be, of one name.
type simReplaced struct {
	dropped map[int64]bool   // fences of grants that a node has dropped to make room for another: their owners are no longer believed
	givenUp map[int64]string // fences of grants that were given up, and to what
}

// dropped notes that a node has dropped a grant for one that replaces it.
func (h *simHistory) dropped(key, owner, fence string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f, err := strconv.ParseInt(fence, 10, 64)
	if err != nil {
		panic(err)
	}
	for name, n := range h.names {
		if nodekeys.Lock("lockproxy:", locks.Key{Name: name}) != key {
			continue
		}
		if n.dropped == nil {
			n.dropped = map[int64]bool{}
		}
		n.dropped[f] = true
		for _, b := range n.beliefs {
			if b.owner == owner && b.fence <= f { // a copy of its LOCK may have been told of a smaller one
				b.over, n.dropped[b.fence] = true, true
			}
		}
	}
}

// hasDropped reports whether a node has dropped the grant for another.
func (h *simHistory) hasDropped(b *simBelief) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nameLocked(b.name).dropped[b.fence]
}

// gaveUp notes that the grant with this fence was given up, and blames that if it had been before.
func (h *simHistory) gaveUp(name string, fence int64, to string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.nameLocked(name)
	if n.givenUp == nil {
		n.givenUp = map[int64]string{}
	}
	if before, was := n.givenUp[fence]; was {
		h.blameLocked(name, "fence %d was given up to %s, and to %s", fence, before, to)
	}
	n.givenUp[fence] = to
}

// replace takes the place of the one that has the name, perhaps a while after it read who that is, or of several
// at once with others. It gives back what it was granted, if it is not replaced itself.
func (c *simClient) replace() {
	h, p, name := c.w.history, c.anyProxy(), c.anyName()
	was, err := p.svc.Read(p.life, locks.Key{Name: name})
	if err != nil || !was.Held {
		return
	}
	if c.oneIn(2) {
		c.sleep(c.between(0, 30*time.Millisecond))
	}
	var b *simBelief
	for range 1 + c.r.IntN(2) {
		p = c.sameOr(p)
		giveUp := time.Duration(0)
		if c.oneIn(6) {
			giveUp = c.between(0, 20*time.Millisecond)
		}
		r := locks.LockRequest{Key: locks.Key{Name: name}, Owner: c.owner(), TTL: c.ttl(), Replaces: &locks.GrantRef{Owner: was.Owner, Fence: was.Fence}}
		h.log(c.who, name, "in place of %q fence %d:", was.Owner, was.Fence)
		var a locks.Decision
		b, a, err = c.lock(p, r, giveUp)
		if a.Granted && err == nil {
			h.gaveUp(name, was.Fence, r.Owner)
			h.count("replaced")
			if a.Grant.Fence <= was.Fence {
				h.blame(name, "%s was granted fence %d in place of %d", r.Owner, a.Grant.Fence, was.Fence)
			}
			break
		}
		h.count("not replaced")
	}
	if b == nil {
		return
	}
	for range c.r.IntN(3) {
		c.sleep(c.between(0, c.w.profile.shortest))
		if !c.renew(c.sameOr(p), b, c.ttl(), b.fence) {
			return
		}
	}
	c.sleep(c.between(0, c.w.profile.shortest))
	if c.oneIn(4) {
		return // its lease ends, or somebody replaces it
	}
	h.ended(b)
	if _, _, err := c.unlock(c.sameOr(p), b, locks.UnlockRequest{Fence: b.fence, Once: true}); err == nil {
		h.gaveUp(name, b.fence, "an UNLOCK")
	} else if errors.Is(err, locks.ErrLost) {
		h.count("replaced or lapsed before it was given back")
	}
}
