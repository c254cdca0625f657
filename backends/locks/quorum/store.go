package quorum

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/copying"
	"github.com/lockproxy/lockproxy/backends/locks/hints"
	"github.com/lockproxy/lockproxy/backends/locks/holdid"
	"github.com/lockproxy/lockproxy/backends/locks/inflight"
	"github.com/lockproxy/lockproxy/backends/locks/seats"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/backends/metrics"
)

// Options configure a quorum Store.
type Options struct {
	voters.Options
	Memory int // grants remembered; a forgotten one costs a quorum read; default 100,000
}

// A Store is a locks.Store that decides by majority vote of the lock nodes, together with every other proxy
// that uses the same nodes and prefix. It is made by New.
type Store struct {
	set      *voters.Set
	host     *locks.Host
	grants   *grantCache
	inflight inflight.Locks
	seats    *seats.Book
	counters storeCounters
}

// storeCounters are what Stats and Report say of a store. They are safe for concurrent use.
type storeCounters struct {
	splits, renewals, undos, repeats, forces atomic.Int64

	held metrics.Histogram
}

var _ interface {
	locks.Store
	locks.Inspector
	locks.Notifier
	locks.Noticeboard
	locks.EndlessRenewer
	metrics.Reporter
} = (*Store)(nil)

// New makes a Store. It reports all invalid options at once, and needs no
// network.
func New(o Options) (*Store, error) {
	v, err := voters.New(o.Options)
	if err != nil {
		return nil, err
	}
	s := &Store{set: v}
	s.counters.held.First = time.Millisecond
	if s.grants, err = newGrantCache(cmp.Or(o.Memory, 100_000), v.Clock, &s.counters.held); err != nil {
		return nil, err
	}
	s.seats, err = seats.NewBook(cmp.Or(o.Memory, 100_000))
	return s, err
}

// Attach implements locks.Store.
func (s *Store) Attach(h *locks.Host) { s.host = h }

// Run implements locks.Store: it looks after the nodes and takes their hints.
func (s *Store) Run(ctx context.Context) {
	hints.Listen(ctx, s.set, s.host)
	s.set.Start(func() { copying.Run(ctx, s.set) })
	s.set.Start(func() { s.restoreKept(ctx) })
	s.set.Run(ctx)
}

// Idle implements locks.Store.
func (s *Store) Idle() bool { return s.set.Idle() }

// Close implements locks.Store. It fails only if a connection cannot be aborted.
func (s *Store) Close() error { return s.set.Close(0) }

// Now implements locks.Store.
func (s *Store) Now() time.Duration { return s.set.Clock() }

// MaxTTL implements locks.Store.
func (s *Store) MaxTTL() time.Duration { return s.set.Opts.MaxTTL }

// Sources implements locks.Notifier: every node is one.
func (s *Store) Sources() (all, need int) { return len(s.set.Members), s.set.Quorum }

// Holds implements locks.Store.
func (s *Store) Holds(h locks.Holder) bool { return s.grants.holds(h, s.Now()) }

// Repeated implements locks.Store.
func (s *Store) Repeated(h locks.Holder, req string) bool {
	return s.grants.hasRequest(h, holdid.TagOf(h, req))
}

// Until implements locks.Store.
func (s *Store) Until(h locks.Holder, fence int64, holds []string) (until time.Duration, known bool) {
	return s.grants.until(h, fence, holds)
}

// Nodes implements locks.Inspector.
func (s *Store) Nodes() []locks.NodeStatus { return s.set.Nodes() }

// Check implements locks.Inspector.
func (s *Store) Check(ctx context.Context) error { return s.set.Check(ctx) }

// Init implements locks.Inspector.
func (s *Store) Init(ctx context.Context) error { return s.set.Init(ctx) }

// Post implements locks.Noticeboard.
func (s *Store) Post(ctx context.Context, r locks.PostRequest) ([]locks.Notice, error) {
	return hints.Post(ctx, s.set, r)
}

// Stats implements locks.Store.
func (s *Store) Stats() locks.Stats {
	c := &s.counters
	st := locks.Stats{
		Splits: c.splits.Load(), Renewals: c.renewals.Load(), Undos: c.undos.Load(),
		Repeats: c.repeats.Load(), Forces: c.forces.Load(),
	}
	s.set.Stats(&st)
	return st
}

// Report implements metrics.Reporter. It asks no node anything.
func (s *Store) Report(r *metrics.Report) {
	r.Histogram("lockproxy_lock_hold_seconds", "From a grant through this proxy to its release through it, its loss, or the end of its validity if nobody came back.", &s.counters.held)
	r.Gauge("lockproxy_lock_oldest_hold_seconds", "Since the oldest grant through this proxy that still runs, as far as it knows; 0 if there is none. One that only grows is a lock that its owner renews without an end, or takes again and again.", s.grants.oldest().Seconds())
	s.set.Report(r)
}
