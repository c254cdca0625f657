package locks

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/metrics"
)

// A lock without an end (open) is a lease of the longest ttl that is renewed by every Service with Options.RenewEndless,
// whoever granted it, until it is given back, is given an end by a Renew, or Options.MaxHold is over. Whether a lease
// has an end is part of its version, so that a renewal which gives it an end cannot be undone by one that did not know
// of it.

// An EndlessRenewer is a Store that has locks without an end, see LockRequest.Open.
type EndlessRenewer interface {
	// RenewEndless goes once through the locks without an end, and renews those that are due: after a third of the lease
	// those that this Store granted or renewed last, after half of it all others. A lease that would run past maxHold,
	// counted from the grant, is made to end then instead. The error says why not all of them were seen.
	RenewEndless(ctx context.Context, maxHold time.Duration) (EndlessRenewals, error)
}

// EndlessRenewals counts the locks without an end that one pass of RenewEndless found.
type EndlessRenewals struct {
	Open    int       // all of them, as counted by the node that has most
	Renewed int       // granted by this Store, and renewed
	Adopted int       // granted elsewhere, and renewed here
	Missed  int       // could not be renewed
	Lapsing []Lapsing // were given an end
}

// A Lapsing is a lock that was without an end, and was given one because Options.MaxHold is nearly over.
type Lapsing struct {
	Key
	Fence int64
	Left  time.Duration
}

// endlessCounters count what RenewEndless did. The zero value is ready, and safe for concurrent use.
type endlessCounters struct {
	open, renewed, adopted, missed, lapsed atomic.Int64

	failing bool // the last pass failed; only renewEndless uses it
}

var errNoEndless = errors.New("this lock store has no locks without an end")

// checkOpen refuses options that a lock without an end cannot have.
func (s *Service) checkOpen(r *LockRequest) error {
	switch {
	case !r.Open:
		return nil
	case r.Session != nil || r.Req != "" || r.Owner == "":
		return errors.New("a lock without an end is of an owner, and neither of a session nor of a request")
	}
	_, err := s.endlessRenewer()
	return err
}

func (s *Service) endlessRenewer() (EndlessRenewer, error) {
	if f, ok := s.store.(EndlessRenewer); ok {
		return f, nil
	}
	return nil, errNoEndless
}

// openTTL is the lease of a lock without an end.
func (s *Service) openTTL() time.Duration { return min(s.store.MaxTTL(), s.options.MaxHold) }

// endlessEvery is how often all locks without an end are looked through.
func endlessEvery(maxTTL time.Duration) time.Duration { return maxTTL / 6 }

// renewEndless looks after locks without an end until ctx ends.
func (s *Service) renewEndless(ctx context.Context) {
	f, err := s.endlessRenewer()
	if err != nil || !s.options.RenewEndless {
		return
	}
	every := endlessEvery(s.store.MaxTTL())
	next := s.store.Now() + s.options.Random.UpTo(every)
	t := time.NewTimer(0)
	defer t.Stop()
	for ; ctx.Err() == nil; next = s.store.Now() + every {
		for wait := next - s.store.Now(); wait > 0 && ctx.Err() == nil; wait = next - s.store.Now() {
			t.Reset(min(wait, maxSleep)) // timers stand still while the machine sleeps
			select {
			case <-t.C:
			case <-ctx.Done():
			}
		}
		if ctx.Err() == nil {
			if found, err := f.RenewEndless(ctx, s.options.MaxHold); ctx.Err() == nil || err == nil {
				s.noteEndless(&found, err)
			}
		}
	}
}

// noteEndless counts what one pass did, and logs the locks that will lapse.
func (s *Service) noteEndless(f *EndlessRenewals, err error) {
	c := &s.endless
	if err == nil {
		c.open.Store(int64(f.Open))
	} else if c.missed.Add(1); !c.failing {
		s.options.Log.LogAttrs(context.Background(), slog.LevelWarn, "locks without an end cannot be looked for, nor renewed", slog.String("error", err.Error()))
	}
	c.failing = err != nil
	c.renewed.Add(int64(f.Renewed))
	c.adopted.Add(int64(f.Adopted))
	c.missed.Add(int64(f.Missed))
	c.lapsed.Add(int64(len(f.Lapsing)))
	for _, l := range f.Lapsing {
		s.options.Log.LogAttrs(context.Background(), slog.LevelError, "lock without an end lapses: max-hold is over",
			slog.String("lock", short64(l.Name)), slog.Int("db", l.DB), slog.Int64("fence", l.Fence), slog.Duration("left", l.Left), slog.Duration("max_hold", s.options.MaxHold))
	}
}

// short64 bounds a name for the log.
func short64(s string) string {
	if len(s) > 64 {
		return s[:64] + "..."
	}
	return s
}

func (c *endlessCounters) report(r *metrics.Report) {
	r.Gauge("lockproxy_lock_open", "Locks without an end that there are, whoever granted them, when this proxy last looked.", float64(c.open.Load()))
	const renewals = "Renewals of locks without an end by this proxy: own, that it had granted; elsewhere, that another proxy had, which may be gone."
	r.Counter("lockproxy_lock_open_renewals_total", renewals, c.renewed.Load(), "granted", "own")
	r.Counter("lockproxy_lock_open_renewals_total", renewals, c.adopted.Load(), "granted", "elsewhere")
	r.Counter("lockproxy_lock_open_misses_total", "Looks through the locks without an end, and renewals of one, that too few lock nodes answered; they are tried again at the next look.", c.missed.Load())
	r.Counter("lockproxy_lock_open_lapsed_total", "Locks without an end to which this proxy gave one, since max-hold would be over: their holders never gave them back.", c.lapsed.Load())
}
