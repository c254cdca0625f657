package quorum

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/seats"
)

// permitSeeds is the first seed of runs with permits.
const permitSeeds = 1 << 35

// Clients of these share a name with one, two or three permits, read it without one, or write it alone.
var permitProfiles = []*simProfile{
	{
		name: "permits", shares: true, permits: true, nodes: 3, proxies: 3, names: 2, clients: 8, long: 4 * time.Second,
		think: 30 * time.Millisecond, gap: 300 * time.Millisecond, shortest: 100 * time.Millisecond, longest: 600 * time.Millisecond,
		loss: 0.002, clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{0, 50 * time.Millisecond, 300 * time.Millisecond},
		acts:     permitActs, faults: everyFault,
	},
	{
		name: "permits, five nodes", shares: true, permits: true, nodes: 5, proxies: 2, names: 1, clients: 6, long: 3 * time.Second,
		think: 20 * time.Millisecond, gap: 300 * time.Millisecond, shortest: 100 * time.Millisecond, longest: 400 * time.Millisecond,
		loss: 0.001, clocks: 300 * time.Millisecond, skew: time.Second,
		timeouts: []time.Duration{0, 50 * time.Millisecond},
		acts:     permitActs, faults: everyFault,
	},
	{
		// Nodes number grants by clocks that are far apart. A majority remembers: what a floor is made of is a clock else.
		name: "permits, clocks apart", shares: true, permits: true, nodes: 3, proxies: 2, names: 1, clients: 6, long: 3 * time.Second,
		think: 10 * time.Millisecond, gap: 400 * time.Millisecond, shortest: 100 * time.Millisecond, longest: 300 * time.Millisecond,
		clocks: 3 * time.Second, skew: time.Millisecond,
		timeouts: []time.Duration{0, 50 * time.Millisecond},
		acts:     permitActs, faults: []weighted[simFault]{{3, loseOne}, {2, cutLink}, {1, pauseNode}, {1, slowLinks}, {1, restartProxy}},
	},
	{
		name: "permits and well", shares: true, permits: true, nodes: 3, proxies: 2, names: 1, clients: 8, long: 2 * time.Second,
		think: 10 * time.Millisecond, gap: 1500 * time.Millisecond, shortest: 100 * time.Millisecond, longest: 300 * time.Millisecond,
		clocks: 300 * time.Millisecond, skew: time.Second, timeouts: []time.Duration{0}, acts: permitActs,
		faults: []weighted[simFault]{{1, breakConnections}, {1, cutLink}},
	},
}

var permitActs = []weighted[func(*simClient)]{
	{6, (*simClient).plain}, {3, (*simClient).reentrant}, {4, (*simClient).session}, {3, (*simClient).resend}, {2, (*simClient).impatient},
	{1, (*simClient).downgrade}, {1, (*simClient).upgrade}, {2, (*simClient).readTwice}, {1, (*simClient).force},
	{4, (*simClient).seatedTwice}, {3, (*simClient).permitAndRead}, {2, (*simClient).freshPermit},
}

// sit has most of those that read ask for a permit.
func (c *simClient) sit(r *locks.LockRequest) {
	if c.w.profile.permits && !c.oneIn(5) {
		r.Permits = c.w.permits
	}
}

// unknownSeat is that of a grant of which the proxy does not know it any more.
const unknownSeat = -3

// A simPermit is what a LOCK of a reader asked for, and was told.
type simPermit struct {
	told    int64 // the largest fence that anybody had been told of the name, when it was asked
	permits int   // 0: it did not ask for a permit
	seat    int
}

// A simSeat is the seat of a grant, if it has one.
type simSeat struct {
	there  bool
	number int // may be unknownSeat
}

// simSeats is what has been told about the seats of a name, or to one of its readers.
type simSeats struct {
	sits   map[int]simSitter
	before *int64 // of a reader: what was told when it asked first, since it was told its fence
	twice  bool   // it has asked while another LOCK of its own was under way, so that it may be told an earlier grant later
}

// A simSitter is who was told last that it has a seat.
type simSitter struct {
	owner string
	fence int64
}

// seatOf is the seat of a grant that was told just now, as the proxy has it.
func (p *simProxy) seatOf(r locks.LockRequest, g locks.Grant) int {
	h := locks.Holder{Key: g.Key, Owner: g.Owner}
	if r.Shared {
		h = h.Reading()
	}
	if known := p.svc.grants.lookup(h); known.fence == g.Fence {
		return seats.Of(known.id)
	}
	return unknownSeat
}

// asksLocked notes what had been told of a name when a LOCK was asked for.
func (h *simHistory) asksLocked(a *simAsk) {
	k := keyOf(a.name)
	a.seat = unknownSeat
	if k.Reader == "" || !a.renews.IsZero() {
		return
	}
	n, reader := h.nameLocked(k.Name), h.nameLocked(a.name)
	reader.twice = reader.twice || slices.ContainsFunc(reader.asks, func(other *simAsk) bool { return other.owner == a.owner })
	if a.told = max(n.fence, n.read); reader.before == nil {
		reader.before = &a.told
	}
}

// askedTwice reports whether a reader has asked while another LOCK of its own was under way. Then nodes may know its grant by one or
// the other, and too few of them renew it.
func (h *simHistory) askedTwice(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nameLocked(name).twice
}

// seatedLocked blames a permit while as many others may believe that they have one, or one that it has the same seat; and one
// with a fence that is not above all that were told before its owner asked.
func (h *simHistory) seatedLocked(a *simAsk, g locks.Grant, now time.Time) {
	k := keyOf(g.Name)
	reader := h.nameLocked(g.Name)
	before := reader.before
	if g.Fence > reader.fence {
		reader.before = nil
	}
	if a.permits == 0 && a.seat < 0 || h.forcedLocked(a, g) {
		return
	}
	if g.Fence > reader.fence && before != nil && g.Fence <= *before && !reader.twice {
		h.blameLocked(g.Name, "%s was told that it has a permit under fence %d, after %d was told", g.Owner, g.Fence, *before)
	}
	if a.seat == seats.None {
		h.blameLocked(g.Name, "%s asked for a permit, and was told a grant without a seat, fence %d", g.Owner, g.Fence)
	}
	h.counts["permits"]++
	others := 0
	for name, other := range h.names {
		if !strings.HasPrefix(name, k.Name+readBar) {
			continue
		}
		for _, b := range other.beliefs {
			if b.owner == g.Owner || !b.seat.there {
				continue
			}
			if b.runs(now) {
				others++
			}
			if a.seat >= 0 && b.seat.number == a.seat {
				h.rivalLocked(b, g, now)
			}
		}
	}
	if others >= h.permits {
		h.blameLocked(g.Name, "%s has a permit under fence %d, and %d others have one, of %d", g.Owner, g.Fence, others, h.permits)
	}
	if others > 0 {
		h.counts["permits beside others"]++
	}
	if others == h.permits-1 {
		h.counts["all permits taken"]++
	}
}

// sitsLocked notes the seat of a grant, and blames one that has changed.
func (h *simHistory) sitsLocked(a *simAsk, b *simBelief) {
	if a.permits == 0 && a.seat < 0 || keyOf(b.name).Reader == "" {
		return
	}
	n := h.nameLocked(keyOf(b.name).Name)
	if a.seat < 0 {
		h.counts["permits with a seat that is not known"]++
		if !b.seat.there {
			b.seat = simSeat{true, unknownSeat}
		}
		return
	}
	if b.seat.there && b.seat.number >= 0 && b.seat.number != a.seat {
		h.blameLocked(b.name, "fence %d of %s had the seat %d, and has %d", b.fence, b.owner, b.seat.number, a.seat)
	}
	b.seat = simSeat{true, a.seat}
	if n.sits == nil {
		n.sits = map[int]simSitter{}
	}
	if b.fence > n.sits[a.seat].fence {
		n.sits[a.seat] = simSitter{b.owner, b.fence}
	}
}

// reseatedLocked blames a renewal of a permit whose seat another owner was told to have since.
func (h *simHistory) reseatedLocked(b *simBelief) {
	n := h.nameLocked(keyOf(b.name).Name)
	if s := n.sits[b.seat.number]; b.seat.there && !b.over && s.owner != b.owner && s.fence > b.fence {
		h.blameLocked(b.name, "fence %d of %s was renewed after %s was told that it has the seat %d under %d", b.fence, b.owner, s.owner, b.seat.number, s.fence)
	}
	if b.seat.there {
		h.counts["permits renewed"]++
	}
}

// permitRequest is a LOCK of one owner with permits.
func (c *simClient) permitRequest() locks.LockRequest {
	r := c.request(c.owner())
	r.Shared, r.Permits = true, c.w.permits
	return r
}

// seatedTwice has one owner ask for a permit several times at the same moment, through any proxies, which propose different
// seats. It believes the latest grant, may renew it, and gives back.
func (c *simClient) seatedTwice() {
	r := c.permitRequest()
	if c.oneIn(2) {
		r.Wait = 0
	}
	soon := []time.Duration{10 * time.Microsecond, time.Millisecond, 20 * time.Millisecond}[c.r.IntN(3)]
	var threads sync.WaitGroup
	granted := make([]*simBelief, 2+c.r.IntN(2))
	for i := range granted {
		other, at, begin, r := c.copy(false), c.anyProxy(), c.between(0, soon), r
		if c.oneIn(4) {
			r.Permits = 0 // it only reads
		}
		threads.Go(func() {
			other.sleep(begin)
			granted[i], _, _ = other.lock(at, r, 0)
		})
	}
	threads.Wait()
	var b *simBelief
	held := 0
	for _, now := range granted {
		switch {
		case now == nil || b != nil && now.fence < b.fence:
		case now == b:
			held++
		default:
			b, held = now, 1
		}
	}
	if b == nil {
		return
	}
	if held > 1 {
		c.w.history.count("permits taken twice")
	}
	for range c.r.IntN(3) {
		c.sleep(c.between(0, r.TTL))
		if !c.renew(c.anyProxy(), b, c.ttl(), c.fenceOr0(b)) {
			return
		}
	}
	c.giveBackLate(c.anyProxy(), b, held)
}

// permitAndRead has one owner ask for a permit and to read only, in one order or the other. Whatever it was told, it has a permit if
// it was told of one.
func (c *simClient) permitAndRead() {
	p, r := c.anyProxy(), c.permitRequest()
	if c.oneIn(2) {
		r.Permits = 0
	}
	first, _, _ := c.lock(p, r, 0)
	if first == nil {
		return
	}
	c.sleep(c.between(0, r.TTL/2))
	r.Permits, r.Wait, r.TTL = c.w.permits-r.Permits, 0, c.ttl()
	b, _, _ := c.lock(c.sameOr(p), r, 0)
	if b != nil {
		c.w.history.count("permits of one who reads")
	} else {
		b = first
	}
	if c.oneIn(2) {
		c.sleep(c.between(0, r.TTL/2))
		if !c.renew(c.sameOr(p), b, c.ttl(), c.fenceOr0(b)) {
			return
		}
	}
	c.giveBackLate(p, b, 2)
}

// freshPermit has an owner drop its grant for a new one, perhaps with another seat.
func (c *simClient) freshPermit() {
	p, r := c.anyProxy(), c.permitRequest()
	if c.oneIn(4) {
		r.Permits = 0
	}
	b, _, _ := c.lock(p, r, 0)
	if b == nil {
		return
	}
	r.Permits, r.Wait, r.Fresh = c.w.permits, 0, true
	for range 1 + c.r.IntN(2) {
		c.sleep(c.between(0, r.TTL/2))
		c.w.history.ended(b) // it is dropped, whatever is answered
		if b, _, _ = c.lock(c.sameOr(p), r, 0); b == nil {
			return
		}
		c.w.history.count("permits made fresh")
	}
	c.giveBackLate(p, b, 1)
}

// permitsTogether has as many owners as may share a name through two proxies, where nothing fails; one more is refused until one
// of them gives back.
func (c *simClient) permitsTogether(p, other *simProxy, name string) {
	h := c.w.history
	ask := func(p *simProxy, wait time.Duration) (*simBelief, locks.Decision) {
		r := locks.LockRequest{Key: locks.Key{Name: name}, Owner: c.owner(), Shared: true, Permits: c.w.permits, TTL: time.Second, Wait: wait}
		b, a, err := c.lock(p, r, 0)
		if err != nil {
			h.blame(name, "after the faults: %v", err)
		}
		return b, a
	}
	both := []*simProxy{p, other}
	var have []*simBelief
	for i := range c.w.permits {
		b, a := ask(both[i%2], 0)
		if b == nil {
			h.blame(name, "there are %d permits, and the next after %d is refused: %+v", c.w.permits, i, a)
			return
		}
		have = append(have, b)
	}
	if b, a := ask(other, 0); b != nil || a.Why != locks.Permits {
		h.blame(name, "one more than %d: %+v", c.w.permits, a)
	}
	waited, aside := make(chan *simBelief, 1), c.copy(false)
	go func() {
		r := locks.LockRequest{Key: locks.Key{Name: name}, Owner: "late", Shared: true, Permits: c.w.permits, TTL: time.Second, Wait: 700 * time.Millisecond}
		b, _, _ := aside.lock(p, r, 0)
		waited <- b
	}()
	c.sleep(50 * time.Millisecond)
	for i, b := range have {
		h.ended(b)
		if _, _, err := c.unlock(both[(i+1)%2], b, locks.UnlockRequest{}); err != nil {
			h.blame(name, "a permit cannot be given back: %v", err)
		}
		if i > 0 {
			continue
		}
		late := <-waited
		if late == nil {
			h.blame(name, "who waits for a permit does not get the one that was given back")
			return
		}
		h.ended(late)
		_, _, _ = c.unlock(p, late, locks.UnlockRequest{})
	}
}
