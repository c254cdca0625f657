// Package memstore is a locks.Store in the memory of one process. It is for tests: of what a Service does
// whatever its Store, and as the smallest example of one. No program is to use it, since nothing of it outlives the
// process, and it forgets no name.
//
// It has no goroutines. Its mutex is taken inside that of the locks.Keepalive, and none inside it.
package memstore

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// A Store is in memory. It is made by New and safe for concurrent use. It keeps leases for as long as it says,
// since there is one clock.
type Store struct {
	maxTTL time.Duration
	now    func() time.Duration
	host   *locks.Host

	mu      sync.Mutex
	names   map[locks.Key]*record
	intents map[locks.Key]writerIntent // of writers that wait for readers, by name
	waits   map[locks.Key]intent       // requests for several names, by name
	fence   int64                      // the largest
	ids     int                        // of holds
	stats   locks.Stats
}

// A record is what is known of a name.
type record struct {
	owner  string // of the last grant
	info   string
	fence  int64         // of that grant
	open   bool          // the lease has no end
	permit bool          // it is one of a limited number
	since  time.Duration // when it was granted
	holds  []hold        // of that grant; those that have ended are left out by Store.record

	lastOwner string // of the grant given back last
	lastFence int64

	granted  map[request]int64 // fences, by LOCK; kept when it is given back
	released map[request]int   // holds that were left, by UNLOCK
}

// A hold is one LOCK that was granted.
type hold struct {
	id    string
	req   string // of the LOCK
	until time.Duration
}

// A request is one with an id.
type request struct{ owner, req string }

// New makes a Store with leases of maxTTL at most. Its clock is that of locks.SinceStart if now is nil.
func New(maxTTL time.Duration, now func() time.Duration) *Store {
	if now == nil {
		now = locks.SinceStart
	}
	return &Store{maxTTL: maxTTL, now: now, names: map[locks.Key]*record{}, intents: map[locks.Key]writerIntent{}, waits: map[locks.Key]intent{}}
}

// Attach implements locks.Store.
func (s *Store) Attach(h *locks.Host) { s.host = h }

// Run implements locks.Store.
func (s *Store) Run(ctx context.Context) { <-ctx.Done() }

// Idle implements locks.Store.
func (s *Store) Idle() bool { return true }

// Close implements locks.Store.
func (s *Store) Close() error { return nil }

// Now implements locks.Store.
func (s *Store) Now() time.Duration { return s.now() }

// MaxTTL implements locks.Store.
func (s *Store) MaxTTL() time.Duration { return s.maxTTL }

// Stats implements locks.Store.
func (s *Store) Stats() locks.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// record is what is known of a name now. The caller has mu.
func (s *Store) record(k locks.Key) *record {
	r := s.names[k]
	if r == nil {
		r = &record{granted: map[request]int64{}, released: map[request]int{}}
		s.names[k] = r
	}
	now := s.now()
	r.holds = slices.DeleteFunc(r.holds, func(h hold) bool { return h.until <= now })
	return r
}

// held reports whether owner has the name, under this fence if that is not 0.
func (r *record) held(owner string, fence int64) bool {
	return len(r.holds) > 0 && r.owner == owner && (fence == 0 || r.fence == fence)
}

// until is the end of the lease; 0 if the name is free.
func (r *record) until() (until time.Duration) {
	for _, h := range r.holds {
		until = max(until, h.until)
	}
	return until
}

// count is how many LOCKs the holds are of: the attempts of one request are one.
func (r *record) count() (n int) {
	for i, h := range r.holds {
		if h.req == "" || !slices.ContainsFunc(r.holds[:i], func(x hold) bool { return x.req == h.req }) {
			n++
		}
	}
	return n
}

// refusal is the answer to a LOCK where another owner has the name, or may not re-enter.
func (s *Store) refusal(r *record) locks.Decision {
	if len(r.holds) == 0 {
		return locks.Decision{}
	}
	return locks.Decision{Holder: r.owner, Remaining: r.until() - s.now(), Fence: r.fence}
}

// Acquire implements locks.Store.
func (s *Store) Acquire(ctx context.Context, a locks.Attempt) (locks.Decision, error) {
	if err := ctx.Err(); err != nil {
		return locks.Decision{}, err
	}
	s.host.Keepalive.Lock()
	defer s.host.Keepalive.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(a.Others) > 0 {
		return s.acquireAll(&a)
	}
	l, err := s.look(&a)
	if err != nil || !l.granted {
		return l.refused, err
	}
	return locks.Decision{Granted: true, Grant: s.take(&a, l)}, nil
}

// What a look at a name says of an attempt.
type look struct {
	granted  bool
	refused  locks.Decision // if not
	taken    bool           // the owner has a hold of this request
	ended    bool           // it had one, and has given it back
	replaces bool           // it takes another's place
}

// look looks whether an attempt may have its name, and changes nothing. The caller has the Keepalive and mu, as for take.
func (s *Store) look(a *locks.Attempt) (l look, err error) {
	r := s.record(a.Key)
	l.taken = a.Req != "" && r.held(a.Owner, 0) && slices.ContainsFunc(r.holds, func(h hold) bool { return h.req == a.Req })
	_, before := r.granted[request{a.Owner, a.Req}]
	l.ended = a.Req != "" && before && !l.taken
	l.replaces = a.Replaces != nil && !l.taken
	switch {
	case l.ended:
	case l.replaces && !r.held(a.Replaces.Owner, a.Replaces.Fence), len(r.holds) > 0 && r.owner != a.Owner && !l.replaces, a.NoReenter && !l.taken && len(r.holds) > 0:
		l.refused = s.refusal(r)
		return l, nil
	case a.Permits > 0 && !a.Fresh && len(r.holds) > 0 && !r.permit:
		l.refused = s.refusal(r)
		l.refused.Why = locks.Upgrade
		return l, nil
	case (!r.held(a.Owner, 0) || a.Permits > 0 && !r.permit) && s.inTheWay(a, &l.refused):
		return l, nil
	case r.count() >= locks.MaxHolds && !l.taken && !l.replaces:
		return l, &locks.HoldsError{Max: locks.MaxHolds}
	case a.Session != nil && a.Session.EndedLocked():
		return l, locks.ErrSessionEnded
	}
	l.granted = true
	return l, nil
}

// take gives an attempt the name that a look says it may have.
func (s *Store) take(a *locks.Attempt, l look) locks.Grant {
	began, r, id := s.now(), s.record(a.Key), request{a.Owner, a.Req}
	if l.ended {
		s.stats.Repeats++
		return locks.Grant{Key: a.Key, Owner: a.Owner, Fence: r.granted[id]}
	}
	if l.replaces {
		s.host.Keepalive.LoseLocked(locks.Holder{Key: a.Key, Owner: r.owner}, r.fence, locks.LossTaken, locks.ReplacedReason)
	}
	if a.Fresh && len(r.holds) > 0 {
		s.host.Keepalive.SupersedeLocked(locks.Holder{Key: a.Key, Owner: a.Owner}, r.fence, a.Asker)
	}
	if len(r.holds) == 0 || a.Fresh && !l.taken || l.replaces {
		s.fence++
		r.owner, r.info, r.fence, r.open, r.permit, r.since, r.holds = a.Owner, a.Info, s.fence, a.Open, a.Permits > 0, began, nil
	}
	s.ids++
	h := hold{id: strconv.Itoa(s.ids), req: a.Req, until: began + a.TTL}
	r.holds = append(r.holds, h)
	if a.Req != "" {
		r.granted[id] = r.fence
	}
	if a.Session != nil {
		s.host.Keepalive.AddLocked(a, h.id, r.fence, began, h.until)
	}
	return locks.Grant{Key: a.Key, Owner: a.Owner, Fence: r.fence, Validity: a.TTL, Holds: r.count(), Hold: h.id}
}

// Holder implements locks.Store.
func (s *Store) Holder(_ context.Context, k locks.Key) (locks.Decision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.refusal(s.record(k))
	if d.Holder == "" {
		s.inTheWay(&locks.Attempt{LockRequest: locks.LockRequest{Key: k}}, &d)
	}
	return d, nil
}

// Read implements locks.Store.
func (s *Store) Read(_ context.Context, k locks.Key) (locks.Reading, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var reading locks.Reading
	for other, by := range s.names {
		if left := by.until() - s.now(); other.Reader != "" && other.Whole() == k && left > 0 {
			reading.Readers, reading.Reads = reading.Readers+1, max(reading.Reads, left)
		}
	}
	if r := s.record(k); len(r.holds) > 0 {
		reading.Held, reading.Owner, reading.Info, reading.Fence = true, r.owner, r.info, r.fence
		reading.Remaining, reading.Holds, reading.Open = r.until()-s.now(), r.count(), r.open
	}
	return reading, nil
}

// notHeld is the error of a RENEW or an UNLOCK of an owner that does not have the grant.
func (s *Store) notHeld(r *record, owner string) error {
	if len(r.holds) > 0 && r.owner != owner {
		return &locks.NotOwnerError{Remaining: r.until() - s.now()}
	}
	return locks.ErrLost
}

// Renew implements locks.Store.
func (s *Store) Renew(_ context.Context, q locks.RenewRequest) (validity time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.record(q.Key)
	if !r.held(q.Owner, q.Fence) {
		return 0, s.notHeld(r, q.Owner)
	}
	for i := range r.holds {
		r.holds[i].until = s.now() + q.TTL
	}
	r.open = q.Open
	s.stats.Renewals++
	return q.TTL, nil
}

// Release implements locks.Store.
func (s *Store) Release(_ context.Context, q locks.UnlockRequest) (holdsLeft int, err error) {
	defer s.host.Lines.Wake(q.Whole())
	s.host.Keepalive.Lock()
	defer s.host.Keepalive.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	r, id := s.record(q.Key), request{q.Owner, q.Req}
	if left, done := r.released[id]; done && q.Req != "" {
		s.stats.Repeats++
		return left, nil
	}
	if !r.held(q.Owner, q.Fence) {
		since := r.owner == q.Owner && r.fence != r.lastFence
		if r.lastOwner == q.Owner && (q.Fence == r.lastFence || q.Fence == 0 && !since) {
			if q.Once {
				return 0, locks.ErrLost
			}
			return 0, nil // a repeat
		}
		return 0, s.notHeld(r, q.Owner)
	}
	s.drop(q.Key, r, r.given(&q))
	left := r.count()
	if q.Req != "" {
		r.released[id] = left
	}
	if left == 0 {
		r.lastOwner, r.lastFence = r.owner, r.fence
	}
	return left, nil
}

// given are the holds that an UNLOCK gives back: all, those of the LOCK with its id, or those of the last LOCK.
func (r *record) given(q *locks.UnlockRequest) (ids []string) {
	last := r.holds[len(r.holds)-1]
	if q.Req != "" && slices.ContainsFunc(r.holds, func(h hold) bool { return h.req == q.Req }) {
		last = hold{req: q.Req}
	}
	for _, h := range r.holds {
		if q.All || h.id == last.id || last.req != "" && h.req == last.req {
			ids = append(ids, h.id)
		}
	}
	return ids
}

// drop ends holds, also in the Keepalive, which is locked like mu.
func (s *Store) drop(k locks.Key, r *record, ids []string) {
	s.host.Keepalive.DropLocked(locks.Holder{Key: k, Owner: r.owner}, ids)
	r.holds = slices.DeleteFunc(r.holds, func(h hold) bool { return slices.Contains(ids, h.id) })
	if len(r.holds) == 0 && s.waits[k.Whole()].owner == r.owner {
		delete(s.waits, k.Whole())
	}
}

// Undo implements locks.Store.
func (s *Store) Undo(g locks.Grant) {
	s.GiveBack(locks.Holder{Key: g.Key, Owner: g.Owner}, g.Fence, []string{g.Hold})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Undos++
	if r := s.record(g.Key); !r.held(g.Owner, g.Fence) {
		for id, fence := range r.granted {
			if id.owner == g.Owner && fence == g.Fence {
				delete(r.granted, id)
			}
		}
	}
}

// GiveBack implements locks.Store.
func (s *Store) GiveBack(h locks.Holder, fence int64, holds []string) {
	defer s.host.Lines.Wake(h.Whole())
	s.host.Keepalive.Lock()
	defer s.host.Keepalive.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.record(h.Key); r.held(h.Owner, fence) {
		s.drop(h.Key, r, holds)
	}
}

// Extend implements locks.Store.
func (s *Store) Extend(ctx context.Context, h locks.Holder, fence int64, t locks.Term, holds []string) (e locks.Extension) {
	if err := ctx.Err(); err != nil {
		return locks.Extension{Result: locks.Undecided, Err: err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.record(h.Key)
	switch {
	case len(r.holds) > 0 && r.owner != h.Owner:
		return locks.Extension{Result: locks.Taken}
	case !r.held(h.Owner, fence):
		return locks.Extension{Result: locks.Gone}
	}
	now := s.now()
	for i := range r.holds {
		if x := &r.holds[i]; slices.Contains(holds, x.id) {
			x.until = max(x.until, now+t.From(now))
			e.Until = max(e.Until, x.until)
		}
	}
	e.Result = locks.Extended
	if e.Until == 0 {
		e.Result = locks.GivenBack
	}
	return e
}

// Until implements locks.Store.
func (s *Store) Until(h locks.Holder, fence int64, holds []string) (until time.Duration, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.record(h.Key); r.held(h.Owner, fence) {
		for _, x := range r.holds {
			if slices.Contains(holds, x.id) {
				until = max(until, x.until)
			}
		}
	}
	return until, until != 0
}

// Holds implements locks.Store.
func (s *Store) Holds(h locks.Holder) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record(h.Key).held(h.Owner, 0)
}

// Repeated implements locks.Store.
func (s *Store) Repeated(h locks.Holder, req string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.record(h.Key)
	return r.held(h.Owner, 0) && slices.ContainsFunc(r.holds, func(x hold) bool { return x.req == req })
}

var _ locks.Store = (*Store)(nil)
