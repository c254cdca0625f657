package quorum

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/holdid"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/metrics"
)

// A hold is one granted LOCK of an owner.
type hold struct {
	id    string
	until time.Duration // end of its validity, by Store.Now
}

// holdIDs are the ids of holds, in their order.
func holdIDs(holds []hold) []string {
	ids := make([]string, len(holds))
	for i := range holds {
		ids[i] = holds[i].id
	}
	return ids
}

// lastEnd is when the last of the holds ends; 0 if there are none.
func lastEnd(holds []hold) (until time.Duration) {
	for i := range holds {
		until = max(until, holds[i].until)
	}
	return until
}

// liveHolds are those that have not ended.
func liveHolds(holds []hold, now time.Duration) []hold {
	return slices.DeleteFunc(slices.Clone(holds), func(h hold) bool { return h.until <= now })
}

// only are the holds with these ids.
func only(holds []hold, ids []string) []hold {
	return slices.DeleteFunc(slices.Clone(holds), func(h hold) bool { return !slices.Contains(ids, h.id) })
}

// without are the holds whose ids are none of these.
func without(holds []hold, ids []string) []hold {
	return slices.DeleteFunc(slices.Clone(holds), func(h hold) bool { return slices.Contains(ids, h.id) })
}

// ofRequests are the ids of the holds that were taken by the requests of these.
func ofRequests(holds []hold, ids []string) []string {
	return slices.DeleteFunc(holdIDs(holds), func(id string) bool {
		return !slices.ContainsFunc(ids, func(of string) bool { return holdid.RequestOf(of) == holdid.RequestOf(id) })
	})
}

// A grant is what this proxy knows of a holder's grant. It is a hint: what is forgotten can be read from a
// quorum.
type grant struct {
	fence     int64
	id        string        // the hold whose LOCK numbered the grant
	holds     []hold        // the oldest first
	version   vote.Version  // the largest that was given out
	renewals  int           // counts the renewals and reads that may have changed the end of its holds
	ownEpoch  string        // the epoch of its version when this proxy was granted it; empty: another proxy was, or it is not known
	since     time.Duration // when the grant was made, by Store.Now; 0: not known
	grantedAt time.Duration // when this proxy was granted it; 0: not known, or observed by heldFor already
	partial   bool          // other proxies took, or may have taken, holds of it, or made a version
	here      bool          // this proxy was granted it
	waited    time.Duration // if here: from the call of LOCK to the grant
}

// until is the end of the validity: that of the hold that ends last.
func (g *grant) until() time.Duration { return lastEnd(g.holds) }

// grantCache is a bounded LRU of grants. All methods are safe for concurrent use.
type grantCache struct {
	mu  sync.Mutex
	lru *simplelru.LRU[locks.Holder, *grant]

	eldest *grant // the one oldest found last; nil: none

	now     func() time.Duration
	heldFor *metrics.Histogram // of grants that are over
}

func newGrantCache(size int, now func() time.Duration, held *metrics.Histogram) (*grantCache, error) {
	m := &grantCache{now: now, heldFor: held}
	var err error
	m.lru, err = simplelru.NewLRU(size, func(_ locks.Holder, g *grant) { m.observeEnd(g) })
	return m, err
}

// observeEnd counts a grant that is over: given back, lost, or forgotten because its owner did not come back.
// One without grantedAt has been counted, or cannot be.
func (m *grantCache) observeEnd(g *grant) {
	if g.grantedAt != 0 {
		m.heldFor.Observe(min(m.now(), max(g.until(), g.grantedAt)) - g.grantedAt)
		g.grantedAt = 0
	}
}

// oldest is the age of the oldest grant through this proxy that still runs; 0 if there is none. One that is older, and seemed
// to be over, may be missing until the one that was found runs no more.
func (m *grantCache) oldest() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if eldest := (*grant)(nil); !m.eldest.runs(now) { // else all others were granted after it
		for i, g := range m.lru.Values() {
			if i%500 == 499 {
				m.mu.Unlock() // for LOCKs that wait for it
				m.mu.Lock()
			}
			if g.runs(now) && (!eldest.runs(now) || g.grantedAt < eldest.grantedAt) {
				eldest = g
			}
		}
		m.eldest = eldest
	}
	if !m.eldest.runs(now) {
		return 0
	}
	return now - m.eldest.grantedAt
}

// runs reports whether this proxy was granted it, and it is not over as far as is known; g may be nil.
func (g *grant) runs(now time.Duration) bool { return g != nil && g.grantedAt != 0 && g.until() > now }

func (g *grant) copy() grant {
	c := *g
	c.holds = slices.Clone(g.holds)
	return c
}

// pop takes the holds that an UNLOCK gives back out of the cache, so that no second UNLOCK gives back the same: all, or those of
// its request, or else the last one, even if it has ended, since that is the one its owner means. left are the live holds that
// stay, and g is the grant as it was. ok is false when the grant must be read first.
func (m *grantCache) pop(h locks.Holder, r *locks.UnlockRequest, now time.Duration) (g grant, given []string, left []hold, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.lru.Get(h)
	if !ok || (r.Fence != 0 && p.fence != r.Fence) || (r.All && p.partial) {
		return g, nil, nil, false
	}
	g = p.copy()
	given = holdIDs(p.holds)
	if !r.All {
		given = holdid.OfRequest(tagOf(h, r.Req), given)
	}
	p.holds = without(p.holds, given)
	if left = liveHolds(p.holds, now); len(left) == 0 {
		p.grantedAt = 0 // the release observes its end
		m.lru.Remove(h)
	}
	return g, given, left, true
}

// hasRequest reports whether a hold that the request with this tag took is in the cache.
func (m *grantCache) hasRequest(h locks.Holder, tag string) bool {
	return slices.ContainsFunc(holdIDs(m.lookup(h).holds), holdid.HasTag(tag))
}

// restore puts back holds that pop took, when their release is undecided.
func (m *grantCache) restore(h locks.Holder, g grant, ids []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g.holds = only(g.holds, ids)
	p, ok := m.lru.Get(h)
	switch {
	case ok && p.fence == g.fence:
		p.holds = append(without(p.holds, ids), g.holds...) // a RENEW may have read them meanwhile
		p.grantedAt = max(p.grantedAt, g.grantedAt)
	case !ok || p.fence < g.fence: // else the owner has had another grant since
		m.lru.Add(h, &g)
	}
}

// forAcquire is what is known of h when it asks for the name, with the live holds only.
func (m *grantCache) forAcquire(h locks.Holder, now time.Duration) grant {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.lru.Get(h)
	if !ok {
		return grant{}
	}
	g := *p
	g.holds = liveHolds(p.holds, now)
	return g
}

// holds reports whether h is known to have the name now.
func (m *grantCache) holds(h locks.Holder, now time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.lru.Get(h)
	return ok && p.until() > now
}

// liveHolds are the ids of the known live holds of the grant with this fence.
func (m *grantCache) liveHolds(h locks.Holder, fence int64, now time.Duration) []string {
	if g := m.lookup(h); g.fence == fence {
		return holdIDs(liveHolds(g.holds, now))
	}
	return nil
}

// addHold stores a new hold, and returns how many there are and the end of its validity. asked is grant.renewals
// when the LOCK began: if it has changed since, a renewal may have found the hold and shortened it. g is the grant
// by the votes: its fence and, if known, its id, when it was made, and its epoch. count is how many holds a quorum
// counts. waited is stored for a first hold. If the end has come already, nothing is stored.
func (m *grantCache) addHold(h locks.Holder, g grant, taken hold, asked, count int, waited time.Duration) (holds int, until time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	p, ok := m.lru.Get(h)
	switch {
	case !ok || p.fence != g.fence:
		if ok {
			m.observeEnd(p)
		}
		p = &grant{fence: g.fence, id: g.id, since: g.since, here: count <= 1, waited: waited, version: g.version, ownEpoch: g.version.Epoch}
		if p.here {
			p.grantedAt = now
		}
		m.lru.Add(h, p)
	case p.renewals != asked:
		if taken.until = min(taken.until, p.until()); taken.until <= now {
			return 0, taken.until
		}
	}
	if !slices.Contains(holdIDs(p.holds), taken.id) { // else a RENEW has read it meanwhile
		p.holds = append(p.holds, taken)
	}
	if len(p.holds) > locks.MaxHolds {
		p.holds = liveHolds(p.holds, now)
	}
	live := holdid.Count(holdIDs(liveHolds(p.holds, now)))
	if g.version.Epoch == "" || p.version.Epoch != g.version.Epoch || count > live {
		p.partial = true
	}
	return max(count, live), taken.until
}

// beginRenewal gives the renewal r its version. until is the end of the validity that it aims for. If that is earlier
// than the present end, the renewal shortens, and it counts from now on, even if the renewal fails, since some node
// may apply it. ok is false if the grant must be read first: it is not known in full; or its known validity has
// ended, while another proxy may have renewed it; or the renewal gives an end to a lease without one, or takes the
// end away, which needs a new epoch.
func (m *grantCache) beginRenewal(h locks.Holder, r *locks.RenewRequest, now, until time.Duration) (g grant, change leaseChange, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.lru.Get(h)
	if !ok || p.partial || p.until() <= now || (r.Fence != 0 && p.fence != r.Fence) || isOpen(p.version) != r.Open {
		return g, change, false
	}
	p.version.Sequence++
	p.renewals++
	if change = lengthens; until < p.until() {
		change = shortens
	}
	for i := range p.holds {
		p.holds[i].until = min(p.holds[i].until, until)
	}
	g = p.copy()
	g.holds = liveHolds(g.holds, now)
	return g, change, true
}

// endRenewal stores the validity that the renewal of g with its version won, and returns the one that counts:
// a later renewal may already have shortened it.
func (m *grantCache) endRenewal(h locks.Holder, g grant, until time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.lru.Get(h)
	if !ok || p.fence != g.fence {
		return until
	}
	if p.version != g.version {
		until = min(until, p.until())
	}
	p.end(holdIDs(g.holds), func(time.Duration) time.Duration { return until })
	return until
}

// end sets the ends of these holds.
func (g *grant) end(ids []string, at func(was time.Duration) time.Duration) {
	for i := range g.holds {
		if slices.Contains(ids, g.holds[i].id) {
			g.holds[i].until = at(g.holds[i].until)
		}
	}
}

// beginExtension gives a renewal for a session its version, and returns the grant with the holds ids only. Their
// known validity changes only when the renewal succeeds, and only grows. ok is false if the grant must be read
// first, since it is not known in full, or one of the holds is not known or has ended.
func (m *grantCache) beginExtension(h locks.Holder, fence int64, ids []string, now time.Duration) (g grant, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.lru.Get(h)
	if !ok || p.partial || p.fence != fence {
		return g, false
	}
	g = *p
	g.holds = liveHolds(only(p.holds, ids), now)
	if len(g.holds) < len(ids) {
		return grant{}, false
	}
	p.version.Sequence++
	g.version = p.version
	return g, true
}

// endExtension stores the validity that the renewal for a session won, unless another renewal was sent since,
// which may have shortened it, and returns the one that counts.
func (m *grantCache) endExtension(h locks.Holder, g grant, until time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.lru.Get(h)
	if !ok || p.fence != g.fence {
		return until
	}
	ids := holdIDs(g.holds)
	if p.version == g.version {
		p.end(ids, func(was time.Duration) time.Duration { return max(was, until) })
	}
	return p.untilOf(ids)
}

// capEnds has every hold of the grant with this fence end at until, at the latest.
func (m *grantCache) capEnds(h locks.Holder, fence int64, until time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.lru.Get(h); ok && p.fence == fence {
		p.end(holdIDs(p.holds), func(was time.Duration) time.Duration { return min(was, until) })
	}
}

// untilOf is when the last of these holds ends, as far as known.
func (g *grant) untilOf(ids []string) time.Duration {
	return lastEnd(only(g.holds, ids))
}

// firstEnd is when the first of these holds ends, as far as known.
func (g *grant) firstEnd(ids []string) (until time.Duration) {
	for i := range g.holds {
		if h := &g.holds[i]; slices.Contains(ids, h.id) && (until == 0 || h.until < until) {
			until = h.until
		}
	}
	return until
}

// until is the known end of the validity of these holds of the grant with this fence.
func (m *grantCache) until(h locks.Holder, fence int64, ids []string) (until time.Duration, ok bool) {
	if g := m.lookup(h); g.fence == fence {
		until = g.untilOf(ids)
	}
	return until, until != 0
}

// waited is how long the first hold of the grant with this fence waited; ok is false if
// another proxy granted it, or that is not known any more.
func (m *grantCache) waited(h locks.Holder, fence int64) (waited time.Duration, ok bool) {
	if g := m.lookup(h); g.fence == fence {
		return g.waited, g.here
	}
	return 0, false
}

// lookup returns the grant that is known of a holder; the zero grant if none is.
func (m *grantCache) lookup(h locks.Holder) grant {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.lru.Peek(h); ok {
		return p.copy()
	}
	return grant{}
}

// invalidate notes that the grant was, or may have been, changed through another proxy: it must be read.
func (m *grantCache) invalidate(h locks.Holder) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.lru.Get(h); ok {
		p.partial = true
	}
}

// replace stores a grant that was read from a quorum, in place of before, the known one when the read began. If the
// known grant has changed since, it stays and is invalidated.
func (m *grantCache) replace(h locks.Holder, before, g grant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var now grant
	p, ok := m.lru.Peek(h)
	if ok {
		now = *p
	}
	if now.fence == before.fence && now.version == before.version && slices.Equal(holdIDs(now.holds), holdIDs(before.holds)) {
		if now.fence == g.fence {
			g.here, g.waited, g.grantedAt = now.here, now.waited, now.grantedAt
		} else if ok {
			m.observeEnd(p)
		}
		if m.eldest == p {
			m.eldest = &g
		}
		g.renewals = now.renewals + 1
		m.lru.Add(h, &g)
	} else if ok {
		p.partial = true
		if p.fence == g.fence { // this renewal may have shortened it
			p.renewals++
			p.end(holdIDs(g.holds), func(was time.Duration) time.Duration { return min(was, g.until()) })
		}
	}
}

// drop removes holds; with the last one the grant is forgotten.
func (m *grantCache) drop(h locks.Holder, ids ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.lru.Get(h)
	if !ok {
		return
	}
	if p.holds = without(p.holds, ids); len(p.holds) == 0 {
		m.lru.Remove(h)
	}
}

// forgetGrant removes the grant with this fence, which is lost, or an earlier one.
func (m *grantCache) forgetGrant(h locks.Holder, fence int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.lru.Peek(h); ok && p.fence <= fence {
		m.lru.Remove(h)
	}
}
