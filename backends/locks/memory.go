package locks

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/lockproxy/lockproxy/backends/meter"
)

// A holder is one owner of one name.
type holder struct {
	db          int
	name, owner string
}

// A grant is what this proxy knows about what a holder has. It is a hint: what is
// forgotten can be read from a quorum.
type grant struct {
	fence   int64
	holds   []string      // ids, the oldest first
	until   time.Duration // end of the validity, by the Service's clock
	version version       // the largest that was given out
	origin  string        // lineage of the version under which this proxy was granted it; empty if it was not, or that is not known
	since   time.Duration // when this proxy was granted it; 0: that is not known
	partial bool          // there are, or may be, holds or a version made through another proxy
	here    bool          // this proxy was granted it
	waited  time.Duration // if here: from the call of LOCK to the grant
}

// memory is a bounded LRU of grants. All methods are safe for concurrent use.
type memory struct {
	mu     sync.Mutex
	grants *simplelru.LRU[holder, *grant]

	now  func() time.Duration
	held *meter.Histogram // for how long grants were held that are over
}

func newMemory(size int, now func() time.Duration, held *meter.Histogram) (*memory, error) {
	m := &memory{now: now, held: held}
	var err error
	m.grants, err = simplelru.NewLRU(size, func(_ holder, g *grant) { m.over(g) })
	return m, err
}

// over counts a grant that is: it was given back or lost, or forgotten because nobody
// came back for it. It was counted before, or cannot be, if since is 0.
func (m *memory) over(g *grant) {
	if g.since != 0 {
		m.held.Observe(min(m.now(), max(g.until, g.since)) - g.since)
		g.since = 0
	}
}

func (g *grant) copy() grant {
	c := *g
	c.holds = slices.Clone(g.holds)
	return c
}

func (g *grant) remove(holds []string) {
	g.holds = slices.DeleteFunc(g.holds, func(id string) bool { return slices.Contains(holds, id) })
}

// claim takes the holds to give back out of memory, so that no second unlock gives
// back the same: all, or that of the request with this tag, or else the last one. g is the grant as it was. ok is false when
// the grant must be read first.
func (m *memory) claim(h holder, fence int64, all bool, tag string) (g grant, holds []string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.grants.Get(h)
	if !ok || (fence != 0 && p.fence != fence) || (all && p.partial) {
		return g, nil, false
	}
	g = p.copy()
	holds = g.holds
	if !all {
		holds = takenBy(tag, g.holds)
	}
	if p.remove(holds); len(p.holds) == 0 {
		p.since = 0 // whoever releases it says when it is over
		m.grants.Remove(h)
	}
	return g, holds, true
}

// knows reports whether a hold of h that the request with this tag took is remembered.
func (m *memory) knows(h holder, tag string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.grants.Get(h)
	return ok && slices.ContainsFunc(p.holds, tagged(tag))
}

// taken are the holds of h that are remembered and were taken by the requests that took
// these.
func (m *memory) taken(h holder, ids ...string) (holds []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.grants.Get(h)
	if !ok {
		return nil
	}
	for _, id := range p.holds {
		if slices.ContainsFunc(ids, func(o string) bool { return takenAs(o) == takenAs(id) }) {
			holds = append(holds, id)
		}
	}
	return holds
}

// unclaim puts holds back whose release is undecided.
func (m *memory) unclaim(h holder, g grant, holds []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.grants.Get(h)
	switch {
	case ok && p.fence == g.fence:
		p.remove(holds) // a RENEW may have read them meanwhile
		p.holds = append(p.holds, holds...)
		p.since = max(p.since, g.since)
	case !ok || p.fence < g.fence: // else the owner has had another grant since
		g.holds = holds
		m.grants.Add(h, &g)
	}
}

// enter gives an acquisition its version: the next of a grant whose validity runs,
// or the first of a new lineage, which hold, its id, names.
func (m *memory) enter(h holder, hold string, now time.Duration) version {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.grants.Get(h)
	if !ok || p.until <= now || p.partial {
		return version{lineage: hold}
	}
	p.version.number++
	return p.version
}

// has reports whether h is remembered to have the name now.
func (m *memory) has(h holder, now time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.grants.Get(h)
	return ok && p.until > now
}

// holds are the ids that are remembered of the grant with this fence.
func (m *memory) holds(h holder, fence int64) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.grants.Peek(h); ok && p.fence == fence {
		return slices.Clone(p.holds)
	}
	return nil
}

// granted remembers a new hold and returns how many there are. v is the version that
// the acquisition gave, if a quorum took it; count is how many holds a quorum counts. The
// first hold waited so long.
func (m *memory) granted(h holder, hold string, fence int64, until time.Duration, v *version, count int, waited time.Duration) (holds int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.grants.Get(h)
	if !ok || p.fence != fence {
		if ok {
			m.over(p)
		}
		p = &grant{fence: fence, here: count <= 1, waited: waited}
		if p.here {
			p.since = m.now()
		}
		if v != nil {
			p.version, p.origin = *v, v.lineage
		}
		m.grants.Add(h, p)
	}
	p.holds = append(p.holds, hold)
	p.until = max(p.until, until)
	if v == nil || p.version.lineage != v.lineage || count > countHolds(p.holds) {
		p.partial = true
	}
	return max(count, countHolds(p.holds))
}

// renew gives a renewal its version. until is the validity it aims for: if that
// is earlier than the one that runs, it counts from now on, also if the renewal
// fails, since some node may apply it, and shortens is true. ok is false when nothing
// is known that could be renewed without reading: the validity that is remembered may
// have ended while another proxy renewed the grant.
func (m *memory) renew(h holder, fence int64, now, until time.Duration) (g grant, shortens, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.grants.Get(h)
	if !ok || p.partial || p.until <= now || (fence != 0 && p.fence != fence) {
		return g, false, false
	}
	p.version.number++
	shortens = until < p.until
	p.until = min(p.until, until)
	return p.copy(), shortens, true
}

// renewed stores the validity that the renewal of g with its version won, and returns
// the one that counts: a later renewal may already have shortened it.
func (m *memory) renewed(h holder, g grant, until time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.grants.Get(h)
	if !ok || p.fence != g.fence {
		return until
	}
	if p.version != g.version {
		until = min(until, p.until)
	}
	p.until = until
	return until
}

// grow gives the renewal of a grant that nobody asked for its version. What is
// remembered of the validity changes only when it succeeds: it can but grow. ok is as in
// renew.
func (m *memory) grow(h holder, fence int64, now time.Duration) (g grant, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.grants.Get(h)
	if !ok || p.partial || p.until <= now || p.fence != fence {
		return g, false
	}
	p.version.number++
	return p.copy(), true
}

// grown stores the validity that grow's renewal of g with its version won, unless another
// was sent since, which may have shortened it, and returns the one that counts.
func (m *memory) grown(h holder, g grant, until time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.grants.Get(h)
	if !ok || p.fence != g.fence {
		return until
	}
	if p.version == g.version {
		p.until = max(p.until, until)
	}
	return p.until
}

// until is the end of the validity that is remembered of the grant with this fence.
func (m *memory) until(h holder, fence int64) (until time.Duration, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.grants.Peek(h)
	if !ok || p.fence != fence {
		return 0, false
	}
	return p.until, true
}

// waited is how long the first hold of the grant with this fence waited; ok is false if
// another proxy granted it, or that is not known any more.
func (m *memory) waited(h holder, fence int64) (waited time.Duration, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, found := m.grants.Peek(h); found && p.fence == fence {
		return p.waited, p.here
	}
	return 0, false
}

// origin is the lineage that leases of the grant with this fence have until another proxy
// changes it; empty if that is not known.
func (m *memory) origin(h holder, fence int64) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.grants.Peek(h); ok && p.fence == fence {
		return p.origin
	}
	return ""
}

// recall is what is remembered of a holder, the zero grant if nothing is.
func (m *memory) recall(h holder) grant {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.grants.Peek(h); ok {
		return p.copy()
	}
	return grant{}
}

// doubt notes that the grant changed through another proxy.
func (m *memory) doubt(h holder) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.grants.Get(h); ok {
		p.partial = true
	}
}

// replace stores a grant that was read from a quorum in the place of what was remembered
// before it was read. What changed since stays, and is doubted.
func (m *memory) replace(h holder, before, g grant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var now grant
	p, ok := m.grants.Peek(h)
	if ok {
		now = *p
	}
	if now.fence == before.fence && now.version == before.version && slices.Equal(now.holds, before.holds) {
		if now.fence == g.fence {
			g.here, g.waited = now.here, now.waited
			g.since = now.since
		} else if ok {
			m.over(p)
		}
		m.grants.Add(h, &g)
	} else if ok {
		p.partial = true
		if p.fence == g.fence { // this renewal may have shortened it
			p.until = min(p.until, g.until)
		}
	}
}

// drop removes holds; with the last one the grant is forgotten.
func (m *memory) drop(h holder, holds ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.grants.Get(h)
	if !ok {
		return
	}
	if p.remove(holds); len(p.holds) == 0 {
		m.grants.Remove(h)
	}
}

// forgetGrant removes the grant with this fence, which is lost, or an earlier one.
func (m *memory) forgetGrant(h holder, fence int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.grants.Peek(h); ok && p.fence <= fence {
		m.grants.Remove(h)
	}
}
