package locks_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

func TestWatch(t *testing.T) { onEach(t, locks.Options{}, testWatch) }

func testWatch(t *testing.T, s *locks.Service) {
	expect := watching(t, s)
	g := lock(t, s, locks.LockRequest{Owner: "alice", Client: "here"})
	expect("a grant", locks.Event{Kind: locks.EventGranted, Owner: "alice", Client: "here", Fence: g.Fence, Holds: 1})
	refused(t, s, "job", "bob")
	expect("a refusal", locks.Event{Kind: locks.EventRefused, Owner: "bob"})
	next := inLine(t, s, "job", "carol")
	unlock(t, s, locks.UnlockRequest{Owner: "alice", Fence: g.Fence}, 0)
	handed := granting(t, next)
	given := expect("what is given back", locks.Event{Kind: locks.EventGiven, Owner: "alice", Fence: g.Fence})
	if e := expect("a hand-over", locks.Event{Kind: locks.EventGranted, Owner: "carol", Fence: handed.Grant.Fence, Holds: 1, Handed: true}); e.At.Before(given.At) {
		t.Errorf("granted at %v, before the release at %v", e.At, given.At)
	}
	if s.Nodes() == nil { // in memory nothing is forced
		unlock(t, s, locks.UnlockRequest{Owner: "carol"}, 0)
		expect("what carol gave back", locks.Event{Kind: locks.EventGiven, Owner: "carol"})
	} else {
		if _, held, err := s.Force(t.Context(), job); err != nil || !held {
			t.Fatal(held, err)
		}
		expect("what is forced", locks.Event{Kind: locks.EventForced, Owner: "carol", Fence: handed.Grant.Fence})
	}
	if _, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: job, Owner: "carol", Once: true}); err == nil {
		t.Error("what was forced was given back")
	}
	expect("who is told", locks.Event{Kind: locks.EventLost, Owner: "carol"})
	c := newClient(s)
	kept := lock(t, s, locks.LockRequest{Owner: "dave", Session: c.Session})
	c.End()
	expect("a session that left", locks.Event{Kind: locks.EventLeft, Owner: "dave", Fence: kept.Fence})
}

// TestWatch_Readers: what is told of readers is told under the name itself.
func TestWatch_Readers(t *testing.T) { onEach(t, locks.Options{}, testWatchReaders) }

func testWatchReaders(t *testing.T, s *locks.Service) {
	expect := watching(t, s)
	reader := newClient(s)
	read := lock(t, s, locks.LockRequest{Owner: "erin", Shared: true, Session: reader.Session})
	expect("a reader", locks.Event{Kind: locks.EventGranted, Owner: "erin", Fence: read.Fence, Holds: 1, Shared: true})
	refused(t, s, "job", "bob")
	expect("a writer who is refused", locks.Event{Kind: locks.EventRefused, Owner: "bob"})
	again := lock(t, s, locks.LockRequest{Owner: "frank", Shared: true})
	unlock(t, s, locks.UnlockRequest{Owner: "frank", Shared: true, Fence: again.Fence}, 0)
	expect("a reader who reads no more", locks.Event{Kind: locks.EventGiven, Owner: "frank", Fence: again.Fence, Shared: true})
	if s.Nodes() != nil { // in memory nothing is forced
		watchForcedReaders(t, s, expect, read)
		read = lock(t, s, locks.LockRequest{Owner: "erin", Shared: true, Session: reader.Session})
	}
	reader.End()
	expect("a reader whose session left", locks.Event{Kind: locks.EventLeft, Owner: "erin", Fence: read.Fence, Shared: true})
}

// watchForcedReaders takes the name away from erin, who reads it, and then from two.
func watchForcedReaders(t *testing.T, s *locks.Service, expect func(string, locks.Event) locks.Event, read locks.Grant) {
	t.Helper()
	if _, held, err := s.ForceReaders(t.Context(), job); err != nil || !held {
		t.Fatal(held, err)
	}
	if e := expect("a reader who was forced", locks.Event{Kind: locks.EventForced, Owner: "erin", Fence: read.Fence, Shared: true}); e.Why != "" {
		t.Errorf("one of how many: %q", e.Why)
	}
	lock(t, s, locks.LockRequest{Owner: "grace", Shared: true})
	lock(t, s, locks.LockRequest{Owner: "erin", Shared: true})
	was, held, err := s.Force(t.Context(), job)
	if err != nil || !held {
		t.Fatal(held, err)
	}
	if e := expect("one of two", locks.Event{Kind: locks.EventForced, Owner: was.Owner, Fence: was.Fence, Shared: true}); e.Why != "one of 2 that shared it" {
		t.Errorf("one of how many: %q", e.Why)
	}
}

// watching returns a function that waits for an event and holds it to what is wanted.
func watching(t *testing.T, s *locks.Service) func(what string, wanted locks.Event) locks.Event {
	var mu sync.Mutex
	var told []locks.Event
	s.Watch(func(e locks.Event) { mu.Lock(); defer mu.Unlock(); told = append(told, e) })
	return func(what string, wanted locks.Event) (got locks.Event) {
		t.Helper()
		eventually(t, what, func() bool {
			mu.Lock()
			defer mu.Unlock()
			for i, e := range told {
				if e.Kind == wanted.Kind && e.Owner == wanted.Owner && e.Shared == wanted.Shared {
					got, told = e, slices.Delete(told, i, i+1)
					return true
				}
			}
			return false
		})
		if got.Key != job || got.Fence != wanted.Fence || got.Client != wanted.Client || got.Holds != wanted.Holds || got.Handed != wanted.Handed || time.Since(got.At) > time.Minute {
			t.Errorf("%s: %+v, want %+v", what, got, wanted)
		}
		return got
	}
}
