// Package etcd decides who holds a lock, by transactions of an etcd cluster.
//
// A name that is held is one key, whose value is the grant with its holds (record). Every change is one transaction
// that is guarded by the revision of that key, and is decided anew when the guard fails (change). The fence is a floor,
// kept in etcd too, plus the revisions since to that of the transaction that made the grant.
//
//	LOCK ──▶ decide on what is remembered ──▶ transaction: unchanged since? ──yes──▶ answer
//	                    ▲                                                   └─no, and this is it now─┐
//	                    └────────────────────────────────────────────────────────────────────────────┘
//
// No clock of etcd's is read. A hold has ended for a proxy when it has seen it unchanged for as long as it lasts,
// by that proxy's own clock (cache): the proxy that granted it removes it then. If that proxy is gone, another one that
// wants the name does, or the lease of etcd that the key is under ends: it is longer, and never renewed (leases).
//
// etcd is asked over its JSON gateway, see docs/decisions/0037. Where a mutex is taken while another is held, the order
// is: locks.Keepalive, cache, that of the chores.
//
// Its files:
//
//	LOCK       acquire (what it writes, and its answer), several (LOCKALL), shared (readers beside a writer), permits (PERMITS)
//	RENEW      renew (by an owner, and for a session), endless (locks without an end)
//	UNLOCK     release (by an owner, and of a session that has ended), chores (what is done later: an undo, a hold that has ended)
//	LOCKCTL    inspect, members (how they are), look (when an operator asks them), notices
//	and        change (from a decision to a transaction, and what it reads), record (values and keys in etcd, and the view of a
//	           name), cache (what this proxy has seen), leases (of etcd, and the floor of fences), watch (etcd tells of releases),
//	           client and wire (how etcd is asked), target (its URL), report (metrics)
package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/chores"
	"github.com/lockproxy/lockproxy/backends/locks/inflight"
	"github.com/lockproxy/lockproxy/backends/locks/seats"
	"github.com/lockproxy/lockproxy/backends/loglimit"
	"github.com/lockproxy/lockproxy/backends/metrics"
)

// Options configure a Store.
type Options struct {
	Target
	TLS         func() *tls.Config // for a connection to a member, if Target.Secure; nil: the system's
	MaxTTL      time.Duration      // the longest lease; default 60 s
	NodeTimeout time.Duration      // how long a member may take to answer, before the next one is asked; default 1 s
	Memory      int                // names remembered; a forgotten one costs a read; default 100,000
	Random      locks.RandSource   // for tests
	Log         *slog.Logger       // nil: slog.Default()
}

// A Store is a locks.Store in etcd, together with every other proxy that uses the same cluster and prefix. It is made by
// New.
type Store struct {
	opts     Options
	client   *client
	host     *locks.Host
	cache    *cache
	seats    *seats.Book
	leases   leases
	floor    floor
	chores   *chores.List
	changing inflight.Changes
	stats    storeCounters
	status   statuses

	ctx    context.Context // of everything that no caller waits for
	cancel context.CancelFunc
	group  sync.WaitGroup
}

// storeCounters are what Stats says of a Store.
type storeCounters struct{ renewals, undos, repeats, forces, rounds atomic.Int64 }

// New makes a Store. It needs no network.
func New(o Options) (*Store, error) {
	o.MaxTTL = cmp.Or(o.MaxTTL, time.Minute)
	o.NodeTimeout = cmp.Or(o.NodeTimeout, time.Second)
	o.Log = cmp.Or(o.Log, slog.Default())
	if len(o.Members) == 0 {
		return nil, errors.New("no member of etcd is named")
	}
	if o.MaxTTL < time.Second {
		return nil, errors.New("max-ttl is under a second")
	}
	s := &Store{opts: o, client: newClient(&o), chores: chores.New(locks.SinceStart), leases: leases{kinds: map[int64]*lease{}}}
	s.client.leaseGone = s.leases.forget
	remembers := cmp.Or(o.Memory, 100_000)
	s.cache = newCache(remembers, s.chores.Drop)
	var err error
	if s.seats, err = seats.NewBook(remembers); err != nil {
		return nil, err
	}
	s.status.all, s.status.lines = make([]locks.NodeStatus, len(o.Members)), make([]loglimit.Limit, len(o.Members))
	for i, m := range o.Members {
		s.status.all[i] = locks.NodeStatus{Address: m, Etcd: true, State: locks.NodeUnknown}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Attach implements locks.Store.
func (s *Store) Attach(h *locks.Host) { s.host = h }

// Idle implements locks.Store.
func (s *Store) Idle() bool { return s.chores.Idle() }

// Close implements locks.Store.
func (s *Store) Close() error {
	s.chores.Close()
	s.cancel()
	s.group.Wait()
	s.client.close()
	return nil
}

// Now implements locks.Store.
func (s *Store) Now() time.Duration { return locks.SinceStart() }

// MaxTTL implements locks.Store.
func (s *Store) MaxTTL() time.Duration { return s.opts.MaxTTL }

// Stats implements locks.Store.
func (s *Store) Stats() locks.Stats {
	c := &s.stats
	st := locks.Stats{
		Renewals: c.renewals.Load(), Undos: c.undos.Load(), Repeats: c.repeats.Load(),
		Forces: c.forces.Load(), Rounds: c.rounds.Load(),
	}
	st.Nodes, st.Voting = len(s.opts.Members), s.voting()
	for i := range s.client.yes {
		st.Each = append(st.Each, locks.NodeStats{Yes: s.client.yes[i].Load(), None: s.client.no[i].Load()})
	}
	return st
}

// Holds implements locks.Store.
func (s *Store) Holds(h locks.Holder) bool {
	return s.cache.view(h.Key, s.Now()).held(h.Owner, 0)
}

// Repeated implements locks.Store.
func (s *Store) Repeated(h locks.Holder, req string) bool {
	v := s.cache.view(h.Key, s.Now())
	return v.held(h.Owner, 0) && v.hasTag(tagOf(h, req))
}

// Until implements locks.Store.
func (s *Store) Until(h locks.Holder, fence int64, ids []string) (until time.Duration, known bool) {
	if v := s.cache.view(h.Key, s.Now()); v.held(h.Owner, fence) {
		until = v.validUntil(ids)
	}
	return until, until != 0
}

var _ interface {
	locks.Store
	locks.Inspector
	locks.Notifier
	locks.Noticeboard
	locks.EndlessRenewer
	metrics.Reporter
} = (*Store)(nil)
