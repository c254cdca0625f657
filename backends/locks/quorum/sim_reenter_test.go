package quorum

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// The scripts of clients whose locks are hashes: the holder and its holds.
const (
	simEnter = `if redis.call('exists', KEYS[1]) == 1 then
			if redis.call('type', KEYS[1]).ok ~= 'hash' or redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
		end
		local n = redis.call('hincrby', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], ARGV[2]) return n`
	simLeave = `local first = redis.call('get', KEYS[2]) if first then return tonumber(first) end
		if redis.call('type', KEYS[1]).ok ~= 'hash' or redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end
		local left = redis.call('hincrby', KEYS[1], ARGV[1], -1)
		if left > 0 then redis.call('pexpire', KEYS[1], ARGV[2]) else redis.call('del', KEYS[1]) redis.call('publish', 'free', KEYS[1]) end
		redis.call('set', KEYS[2], left, 'px', 20000) return left`
	simExtendHash = `if redis.call('type', KEYS[1]).ok == 'hash' and redis.call('hexists', KEYS[1], ARGV[1]) == 1 then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0`
)

// A simEntered is one grant of a hash that its client heard of, and by which releases it has given holds back.
type simEntered struct {
	latches []string
	wells   map[*simProxy]simWell // what the world was, for each proxy, before its first hold
}

// asked reports whether a release with this latch was asked for before, and notes that it is.
func (a *simAdopted) asked(g *simAdoptedGrant, latch string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Contains(g.entered.latches, latch) {
		return true
	}
	g.entered.latches = append(g.entered.latches, latch)
	return false
}

// unlockHash is Unlock of a hash whose grant its client has heard of.
func (e simEngine) unlockHash(call *adoptedCall, g *simAdoptedGrant, r locks.UnlockRequest) (left int, err error) {
	h := call.c.w.history
	switch {
	case r.Fence < 0: // it only asks what became of it
	case r.All:
		h.ended(g.simBelief)
	case !call.c.w.adopted.asked(g, r.Req):
		h.gaveBack(g.simBelief)
	}
	left, _, err = call.c.unlock(call.p, g.simBelief, r)
	if err == nil {
		call.released = r.Owner
	}
	return left, err
}

// endOf is the end of the validity of all holds, given back or not; zero: somebody has taken them away.
func (h *simHistory) endOf(b *simBelief) (end time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, x := range b.holds {
		if !b.over && x.until.After(end) {
			end = x.until
		}
	}
	return end
}

// stayedWellSince reports whether nothing has failed for any proxy since before the first hold.
func (c *simClient) stayedWellSince(wells map[*simProxy]simWell) bool {
	for p, was := range wells {
		if !c.w.stayedWell(p, was) {
			return false
		}
	}
	return true
}

// wells are what the world is, for each proxy.
func (c *simClient) wells() map[*simProxy]simWell {
	all := map[*simProxy]simWell{}
	for i := range c.w.proxies {
		p := c.w.proxy(i)
		all[p] = c.w.well(p)
	}
	return all
}

// adoptedEnter takes a lock in a hash, enters it again through any proxy, moves its end, and gives the holds back one by
// one, some releases twice; or crashes. Where nothing fails, it is told each time how many holds there are.
func (c *simClient) adoptedEnter() {
	p, name, field := c.anyProxy(), c.anyName(), c.owner()
	wells := c.wells()
	var g *simAdoptedGrant
	held := 0
	for range 1 + c.r.IntN(3) {
		now := c.enter(c.sameOr(p), name, field, held, g, wells)
		switch {
		case now == nil:
		case now != g:
			g, held = now, 1
		default:
			held++
			c.w.history.count("adopted: entered again")
		}
		if g == nil {
			return
		}
		c.sleep(c.between(0, c.w.profile.shortest/2))
		if c.oneIn(4) {
			ttl := c.ttl()
			call, reply, _ := c.adopted(c.sameOr(p), name, &field, 0, "EVAL", simExtendHash, "1", name, field, inMS(ttl))
			if reply != "" && (reply == ":1") != (call.renewed != "") {
				c.w.history.blame(name, "%s: moving the end answers %q, done to %q", c.who, reply, call.renewed)
			}
			if reply == ":0" {
				return
			}
		}
	}
	if c.oneIn(8) {
		c.w.history.log(c.who, name, "crashes")
		return
	}
	for ; held > 0; held-- {
		if !c.leave(p, g, field, held) {
			return
		}
		c.sleep(c.between(0, 5*time.Millisecond))
	}
}

// enter takes one hold of a hash, of which the client has so many by g. It returns what it may believe: g, or another
// grant; nil: it has no hold more than before.
func (c *simClient) enter(p *simProxy, name, field string, held int, g *simAdoptedGrant, wells map[*simProxy]simWell) *simAdoptedGrant {
	h, a, ttl := c.w.history, &c.w.adopted, c.ttl()
	ended := g != nil && h.hasEnded(g.simBelief)
	call, reply, taken := c.adopted(p, name, &field, 0, "EVAL", simEnter, "1", name, field, inMS(ttl))
	count, _ := strconv.Atoi(reply[min(1, len(reply)):])
	if (count > 0) != (taken.Fence != 0) {
		h.blame(name, "%s: entering answers %q, and has taken fence %d", c.who, reply, taken.Fence)
	}
	if taken.Fence == 0 {
		return nil
	}
	a.mu.Lock()
	changed := a.unheard[unheardHash(taken.Owner, taken.Fence)]
	a.mu.Unlock()
	if changed || g != nil && g.fence == taken.Fence && !ended && h.hasEnded(g.simBelief) { // by DEL of others
		h.count("adopted: changed before they were heard of")
		if g != nil && g.fence != taken.Fence { // the grant that it had is over, as it has heard
			h.ended(g.simBelief)
		}
		return nil
	}
	expected := 1
	if g != nil && g.fence == taken.Fence {
		if expected = held + 1; !h.running(g.simBelief) { // holds may have ended
			expected = count
		}
	}
	b := h.granted(call.asks[len(call.asks)-1], locks.LockRequest{TTL: ttl}, taken)
	switch {
	case b == nil:
		return nil
	case g == nil || g.simBelief != b:
		g = &simAdoptedGrant{simBelief: b, value: field, entered: &simEntered{wells: wells}}
		a.mu.Lock()
		a.grants[taken.Owner] = g
		a.mu.Unlock()
		h.count("adopted: grants")
	}
	if count != expected && c.stayedWellSince(wells) {
		h.blame(name, "%s: entering answers that there are %d holds, and there are %d", c.who, count, expected)
	}
	return g
}

// leave gives one of so many holds back, and perhaps sends that again. It reports whether the client goes on.
func (c *simClient) leave(p *simProxy, g *simAdoptedGrant, field string, held int) bool {
	h := c.w.history
	latch := fmt.Sprintf("latch:%s:%d", field, len(g.entered.latches))
	ends := h.endOf(g.simBelief)
	first := ""
	for range 1 + c.r.IntN(3) {
		call, reply, _ := c.adopted(c.sameOr(p), g.name, &field, 0, "EVAL", simLeave, "2", g.name, latch, field, inMS(c.ttl()))
		well := c.stayedWellSince(g.entered.wells)
		inTime := time.Now().Before(ends) && time.Now().Before(h.endOf(g.simBelief))
		switch {
		case reply == "": // it did not hear it, and sends it again
			continue
		case (reply == "$-1") != (call.released == ""):
			h.blame(g.name, "%s: giving a hold back answers %q, done to %q", c.who, reply, call.released)
		case first != "" && reply != first && well:
			h.blame(g.name, "%s: giving a hold back answers %q, and %q when it is sent again", c.who, first, reply)
		case inTime && well && reply != fmt.Sprint(":", held-1):
			h.blame(g.name, "%s gave back one of %d holds in time, and is told %q", field, held, reply)
		}
		first = reply
		c.sleep(c.between(0, 5*time.Millisecond))
	}
	if first == ":0" || first == "$-1" || first == "" {
		h.ended(g.simBelief)
		return false
	}
	h.count("adopted: holds given back")
	return true
}

// unheardHash names a grant of a hash, whose owner has others.
func unheardHash(owner string, fence int64) string { return fmt.Sprint(owner, "\x00", fence) }
