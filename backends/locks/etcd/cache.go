package etcd

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/chores"
)

// A cache is what this proxy has seen of names that are held. It is a hint, except for the ends of holds: these are
// counted from when a hold was first seen as it is.
type cache struct {
	mu    sync.Mutex
	names *simplelru.LRU[locks.Key, *seen]
	base  atomic.Int64 // of the fences
}

// A seen is a name as it was seen last.
type seen struct {
	at    int64 // when it was so: the fence of that revision, since an etcd that was emptied counts these anew
	rec   *record
	mod   int64
	holds map[string]seenHold

	expiry *chores.Chore // looks at it when a hold has ended; nil: there is none

	here   int64         // the fence of the grant that was made through this proxy; 0: it was not
	waited time.Duration // from its LOCK to the grant
}

type seenHold struct {
	n     int           // of the hold
	end   time.Duration // no later than this the lease is over
	valid time.Duration // its owner may count on it until then; 0: another proxy wrote it
}

// newCache remembers so many names. It drops the expiry of one that it forgets.
func newCache(size int, drop func(*chores.Chore)) *cache {
	names, err := simplelru.NewLRU(size, func(_ locks.Key, s *seen) {
		if s.expiry != nil {
			drop(s.expiry)
		}
	})
	if err != nil {
		panic(err) // the size is positive
	}
	return &cache{names: names}
}

// view is what is remembered of a name.
func (c *cache) view(k locks.Key, now time.Duration) *view {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := &view{now: now}
	if s, ok := c.names.Get(k); ok {
		s.show(v)
	}
	return v
}

// show fills in what a view shows of the record.
func (s *seen) show(v *view) {
	v.rec, v.mod, v.fence = s.rec, s.mod, s.rec.fence(s.mod)
	for _, h := range s.rec.Holds {
		if e := s.holds[h.ID]; e.end > v.now && !h.Over {
			v.holds = append(v.holds, liveHold{h, e.end, e.valid})
		}
	}
}

// An ownWrite is a change of this proxy's own: what it wrote, and when it began.
type ownWrite struct {
	began time.Duration
	ids   []string // of the holds whose ends it moved
}

// learn notes a record, or that there is none, as it was at a revision, and fills in what v shows of it; v may be nil if there is none. w is nil
// unless this proxy has just written it.
func (c *cache) learn(k locks.Key, rec *record, mod, at int64, w *ownWrite, v *view) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at += c.base.Load()
	old, known := c.names.Peek(k)
	if !known {
		old = &seen{at: at}
	}
	newer := at >= old.at
	if rec == nil {
		if newer {
			c.names.Remove(k)
		}
		return
	}
	s := &seen{at: at, rec: rec, mod: mod, holds: make(map[string]seenHold, len(rec.Holds)), expiry: old.expiry}
	for _, h := range rec.Holds {
		s.holds[h.ID] = old.hold(h, v.now, w)
	}
	if old.here == rec.fence(mod) {
		s.here, s.waited = old.here, old.waited
	}
	if newer {
		c.names.Add(k, s)
	}
	s.show(v)
}

// hold returns what to remember of h, which a record shows now. Its ends are those that s has, unless it was written since s: by w, or by
// another proxy.
func (s *seen) hold(h hold, now time.Duration, w *ownWrite) seenHold {
	switch before, same := s.holds[h.ID]; {
	case w != nil && slices.Contains(w.ids, h.ID): // it may have been read already
		return seenHold{h.N, now + h.ttl(), w.began + h.ttl() - locks.Drift(h.ttl())}
	case same && before.n == h.N:
		return before
	}
	return seenHold{n: h.N, end: now + h.ttl() + locks.Drift(h.ttl())}
}

// nextEnd is when the first of the holds ends that this proxy wrote; 0: there is none.
func (s *seen) nextEnd(now time.Duration) (next time.Duration) {
	for _, h := range s.holds {
		if h.valid != 0 && h.end > now && (next == 0 || h.end < next) {
			next = h.end
		}
	}
	return next
}

// note remembers that a grant was made here.
func (c *cache) note(k locks.Key, fence int64, waited time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.names.Peek(k); ok && s.rec.fence(s.mod) == fence && s.here != fence {
		s.here, s.waited = fence, waited
	}
}

// made reports whether the grant was made here, and how long that took.
func (c *cache) made(k locks.Key, fence int64) (waited time.Duration, here bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.names.Peek(k); ok && s.here == fence {
		return s.waited, true
	}
	return 0, false
}
