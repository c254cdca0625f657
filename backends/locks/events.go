package locks

import (
	"fmt"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks/waitq"
)

// An EventKind is what happened to a name.
type EventKind string

const (
	EventGranted EventKind = "granted"
	EventRefused EventKind = "refused" // also after waiting
	EventGiven   EventKind = "given back"
	EventLeft    EventKind = "left"   // the session ended, and what it held is given back
	EventForced  EventKind = "forced" // an operator took it away through this proxy
	EventLost    EventKind = "lost"   // its owner was told that it is lost
)

// An Event is what this Service did, or was told by the nodes, about a name. Other proxies have their own events.
type Event struct {
	Kind EventKind
	Key
	At     time.Time     // of a release, when it was asked for: the next grant may be known before its answer
	Owner  string        // whose grant it is, or who was refused it
	Client string        // of the LockRequest
	Fence  int64         // 0: not known
	Waited time.Duration // EventGranted, EventRefused: from the call of LOCK
	Handed bool          // EventGranted: the LOCK was next in line at this proxy, and woken by a release
	Holds  int           // EventGranted, EventGiven: that the owner has now
	Why    string        // EventLost; EventForced of several readers, of whom this is one
	Shared bool          // its owner reads, or wanted to
}

// Watch has f called with every event from now on, in place of an earlier function; nil ends that. f must neither
// block nor call the Service.
func (s *Service) Watch(f func(Event)) {
	if f == nil {
		s.watcher.Store(nil)
		return
	}
	s.watcher.Store(&f)
}

// emit passes on an event; its key may be that of a reader.
func (s *Service) emit(e Event) {
	e.Shared, e.Key = e.Reader != "", e.Whole()
	if f := s.watcher.Load(); f != nil {
		(*f)(e)
	}
}

// emitDecision emits the answer to a LOCK, for each of its names.
func (s *Service) emitDecision(r *Attempt, a Decision, err error, took time.Duration) {
	if err != nil {
		return
	}
	e := Event{Kind: EventRefused, Key: r.Key, At: time.Now(), Owner: r.Owner, Client: r.Client, Waited: took}
	for i := range 1 + len(r.Others) {
		if i > 0 {
			e.Key = r.Others[i-1]
		}
		if a.Granted {
			g := a.grantOf(i)
			e.Kind, e.Fence, e.Holds, e.Handed = EventGranted, g.Fence, g.Holds, a.trigger == waitq.Handed || a.trigger == waitq.Woken
		}
		s.emit(e)
	}
}

// emitRelease emits the answer to an UNLOCK that came at the given time.
func (s *Service) emitRelease(r UnlockRequest, at time.Time, holdsLeft int, err error) {
	if err == nil {
		s.emit(Event{Kind: EventGiven, Key: r.Key, At: at, Owner: r.Owner, Fence: r.Fence, Holds: holdsLeft})
		return
	}
	s.emitLost(r.Key, r.Owner, r.Fence, "UNLOCK", err)
}

// emitLost emits a loss, if err reports to an owner that it no longer has the lock.
func (s *Service) emitLost(k Key, owner string, fence int64, asked string, err error) {
	if NotHeld(err) {
		s.emit(Event{Kind: EventLost, Key: k, At: time.Now(), Owner: owner, Fence: fence, Why: "so its " + asked + " was told"})
	}
}

// emitForced emits that a lock was taken away.
func (s *Service) emitForced(k Key, was Holding, held bool, err error) (Holding, bool, error) {
	if held && err == nil {
		k.Reader = was.Reader
		e := Event{Kind: EventForced, Key: k, At: time.Now(), Owner: was.Owner, Fence: was.Fence}
		if was.Reader != "" && was.Readers > 1 {
			e.Why = fmt.Sprintf("one of %d that shared it", was.Readers)
		}
		s.emit(e)
	}
	return was, held, err
}
