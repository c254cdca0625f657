package locks

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	sweepEvery = time.Second // between two sweeps of unused subscriptions and of places in line
	drainFor   = time.Second // how long Run, when it ends, lets undos and releases go out
)

// A Service answers LOCK, RENEW and UNLOCK by what a Store decides, lets callers wait in line, and renews the
// locks of sessions. It is made by New and safe for concurrent use. Run owns its goroutines.
type Service struct {
	options   Options
	store     Store
	inspector Inspector // the Store, if it is one, else nil

	keepalive *Keepalive
	requests  requests
	waiting   *Lines
	counters  counters
	endless   endlessCounters
	top       topNames
	watcher   atomic.Pointer[func(Event)]
}

// New makes a Service that decides by st, which no other Service may use. It reports all invalid options at once.
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
	renewing := make(chan struct{})
	go func() {
		defer close(renewing)
		s.renewEndless(ctx)
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
	<-renewing
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
		return err // goroutines that wait for the Store may not end either
	}
	s.keepalive.group.Wait()
	s.waiting.Wait()
	return nil
}

// CutKey is subscribed to like a name, but stands for the leases of sessions: when one of them was cut, which
// means that it ends earlier than before, the Store calls Keepalive.RecheckIn. No name is empty.
var CutKey = Key{}

// watchCuts subscribes to CutKey, or lets the subscription end after a while. A message is a hint that may get
// lost: then the next renewal finds out.
func (s *Service) watchCuts(wanted bool) { s.waiting.Watch(CutKey, wanted) }
