package locks

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	sweepEvery = time.Second // between two looks at what is listened for
	drainFor   = time.Second // how long Run, when it ends, lets undos and releases go out
)

// A Service answers LOCK, RENEW and UNLOCK by what a Store decides, lets callers wait in line, and renews the
// locks of sessions. It is made by New and safe for concurrent use. Run owns its goroutines.
type Service struct {
	options   Options
	store     Store
	inspector Inspector // nil: the Store is none

	keepalive *Keepalive
	requests  requests
	waiting   *Lines
	counters  counters
	fostered  fosterCounters
	top       topNames
	watcher   atomic.Pointer[func(Event)]
}

// New makes a Service with a Store of its own. It refuses options that cannot work, all of them at once.
func New(st Store, o Options) (*Service, error) {
	o, err := o.withDefaults(st.MaxTTL())
	if err != nil {
		return nil, err
	}
	s := &Service{options: o, store: st, waiting: newWaiting(&o, st)}
	s.inspector, _ = st.(Inspector)
	s.keepalive = newKeepalive(s)
	st.Attach(&Host{Keepalive: s.keepalive, Lines: s.waiting})
	return s, nil
}

// Run looks after the Store, the lines and the sessions until ctx ends. Then it lets undos and releases go out
// for a moment, closes the Store and returns nil when every goroutine of the Service has ended. Lock and the
// others work without Run, but not after it. It must be called at most once.
func (s *Service) Run(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.store.Run(ctx)
	}()
	fostering := make(chan struct{})
	go func() {
		defer close(fostering)
		s.foster(ctx)
	}()
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	for ctx.Err() == nil {
		s.watchCuts(s.keepalive.any())
		s.waiting.Sweep()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	<-fostering
	<-ended
	return s.close()
}

// close ends every goroutine. Its error is that of the Store.
func (s *Service) close() error {
	s.keepalive.stop()
	for end := time.Now().Add(drainFor); !(s.keepalive.idle() && s.store.Idle()) && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	s.waiting.Close()
	s.keepalive.close()
	if err := s.store.Close(); err != nil {
		return err // what waits for it may not end either
	}
	s.keepalive.group.Wait()
	s.waiting.Wait()
	return nil
}

// CutKey is listened for like a name, but stands for the leases of sessions: a Source tells when one of them
// was cut, by Keepalive.RecheckIn. No name is empty.
var CutKey = Key{}

// watchCuts has Sources tell when a lease is cut, or after a while no longer. What they tell is a
// hint: it comes sooner than the next renewal would find it, if at all.
func (s *Service) watchCuts(wanted bool) { s.waiting.Watch(CutKey, wanted) }
