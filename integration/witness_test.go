package integration

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// A witness sees what clients are told of locks, and says what must not be. What a client
// was told counts from before it asked, so that a slow machine accuses nobody.
type witness struct {
	mu     sync.Mutex
	names  map[string]*testimony
	counts map[string]int
	faults []string
}

// A testimony is what is known of one name.
type testimony struct {
	owner   string // of the largest fence that somebody was told
	fence   int64
	end     time.Time // of what that owner was told, or earlier: until then it believes to have the lock
	session *holding  // which has no such end
	forced  time.Time // when the last FORCE was over
	forcing int       // that are under way
}

// A question is a command about a lock that was sent, and what was known before.
type question struct {
	name, owner string
	at          time.Time
	fence       int64 // the largest that somebody had been told
	from        string
}

// A holding is a lock that a session keeps.
type holding struct {
	overtaken chan struct{} // closed when another owner has the lock
	once      sync.Once
}

func newWitness() *witness { return &witness{names: map[string]*testimony{}, counts: map[string]int{}} }

func (w *witness) name(name string) *testimony {
	if w.names[name] == nil {
		w.names[name] = &testimony{}
	}
	return w.names[name]
}

func (w *witness) accuse(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

// count counts what has happened, so that a run can be too short to show anything.
func (w *witness) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

// asks is called before a command is sent.
func (w *witness) asks(name, owner string) question {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.name(name)
	return question{name: name, owner: owner, at: time.Now(), fence: t.fence, from: t.owner}
}

// granted is called when a LOCK was answered: the lock is had for so long. kept is not nil
// if a session keeps it.
func (w *witness) granted(q question, fence int64, validity time.Duration, kept *holding) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t, now := w.name(q.name), time.Now()
	if fence < q.fence || fence == q.fence && q.owner != q.from {
		w.accuse("%s: %s was granted fence %d after %s had been told %d", q.name, q.owner, fence, q.from, q.fence)
	}
	w.believes(t, q, validity, now)
	if fence < t.fence {
		return
	}
	if t.session != nil && t.owner != q.owner {
		t.session.once.Do(func() { close(t.session.overtaken) })
		t.session = nil
	}
	if t.fence != fence {
		t.end = time.Time{}
	}
	t.owner, t.fence = q.owner, fence
	if end := q.at.Add(validity); end.After(t.end) && t.believable(q) {
		t.end = end
	}
	if kept != nil {
		t.session = kept
	}
}

// believes accuses if two believe now that they have the lock.
func (w *witness) believes(t *testimony, q question, validity time.Duration, now time.Time) {
	if t.owner != q.owner && now.Before(t.end) && now.Before(q.at.Add(validity)) && t.believable(q) {
		w.accuse("%s: %s is told to have it for %v, %s has it for %v", q.name, q.owner, q.at.Add(validity).Sub(now), t.owner, t.end.Sub(now))
	}
}

// believable says that no FORCE can have taken away what was asked for then.
func (t *testimony) believable(q question) bool { return t.forcing == 0 && q.at.After(t.forced) }

// renews is called before a RENEW of a grant is sent: from now on it may be shorter.
func (w *witness) renews(q question, fence int64, ttl time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.name(q.name)
	if end := q.at.Add(ttl - ttl/100 - 2*time.Millisecond); t.owner == q.owner && t.fence == fence && end.Before(t.end) {
		t.end = end
	}
}

// renewed is called when a RENEW was answered with a validity. sure says that the owner
// has no grant that it does not know of.
func (w *witness) renewed(q question, fence int64, validity time.Duration, sure bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !sure {
		return
	}
	t := w.name(q.name)
	if q.fence > fence {
		w.accuse("%s: the grant %d of %s was renewed after %s had been told %d", q.name, fence, q.owner, q.from, q.fence)
	}
	w.believes(t, q, validity, time.Now())
	if t.owner == q.owner && t.fence == fence && t.believable(q) {
		t.end = q.at.Add(validity)
	}
}

// leaves is called before an owner gives a lock back, or does not count on it any more.
func (w *witness) leaves(name, owner string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.name(name); t.owner == owner {
		t.end, t.session = time.Time{}, nil
	}
}

// released is called when a first UNLOCK was answered: the lock was had until then.
func (w *witness) released(q question, fence int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q.fence > fence {
		w.accuse("%s: the grant %d of %s was given back after %s had been told %d", q.name, fence, q.owner, q.from, q.fence)
	}
}

// forces is called before FORCE is sent, and its result when that is over.
func (w *witness) forces(name string) (over func()) {
	mark := func(n int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		t := w.name(name)
		t.forcing += n
		t.forced, t.end = time.Now(), time.Time{}
	}
	mark(1)
	return func() { mark(-1) }
}

// report fails the test for everything that must not be.
func (w *witness) report(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, f := range w.faults {
		if t.Error(f); i == 20 {
			t.Errorf("and %d more", len(w.faults)-i)
			return
		}
	}
}

// few is what has happened less often than it must.
func (w *witness) few(least map[string]int) (what []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, n := range least {
		if w.counts[k] < n {
			what = append(what, fmt.Sprintf("%s: %d of %d", k, w.counts[k], n))
		}
	}
	return what
}

// TestWitness: what must not be is noticed, and nothing else.
func TestWitness(t *testing.T) {
	const lease = time.Minute
	tests := []struct {
		what  string
		say   func(w *witness)
		wrong int
	}{
		{"one after the other", func(w *witness) {
			w.granted(w.asks("a", "alice"), 1, lease, nil)
			w.leaves("a", "alice")
			w.released(w.asks("a", "alice"), 1)
			w.granted(w.asks("a", "bob"), 2, lease, nil)
		}, 0},
		{"two at once", func(w *witness) {
			w.granted(w.asks("a", "alice"), 1, lease, nil)
			w.granted(w.asks("a", "bob"), 2, lease, nil)
		}, 1},
		{"two at once, the first heard of last", func(w *witness) {
			first := w.asks("a", "alice")
			w.granted(w.asks("a", "bob"), 2, lease, nil)
			w.granted(first, 1, lease, nil)
		}, 1},
		{"after a renewal", func(w *witness) {
			w.granted(w.asks("a", "alice"), 1, 0, nil)
			w.renewed(w.asks("a", "alice"), 1, lease, true)
			w.granted(w.asks("a", "bob"), 2, lease, nil)
		}, 1},
		{"after a renewal that may have shortened it", func(w *witness) {
			w.granted(w.asks("a", "alice"), 1, lease, nil)
			w.renews(w.asks("a", "alice"), 1, 0)
			w.granted(w.asks("a", "bob"), 2, lease, nil)
		}, 0},
		{"renewed when another had it", func(w *witness) {
			w.granted(w.asks("a", "alice"), 1, 0, nil)
			w.granted(w.asks("a", "bob"), 2, 0, nil)
			w.renewed(w.asks("a", "alice"), 1, lease, true)
		}, 1},
		{"given back when another had it", func(w *witness) {
			w.granted(w.asks("a", "alice"), 1, 0, nil)
			w.granted(w.asks("a", "bob"), 2, 0, nil)
			w.released(w.asks("a", "alice"), 1)
		}, 1},
		{"a smaller fence", func(w *witness) {
			w.granted(w.asks("a", "alice"), 2, 0, nil)
			w.granted(w.asks("a", "bob"), 1, lease, nil)
		}, 1},
		{"the same fence", func(w *witness) {
			w.granted(w.asks("a", "alice"), 1, 0, nil)
			w.granted(w.asks("a", "bob"), 1, lease, nil)
		}, 1},
		{"a re-entry", func(w *witness) {
			w.granted(w.asks("a", "alice"), 1, lease, nil)
			w.granted(w.asks("a", "alice"), 1, lease, nil)
		}, 0},
		{"taken away", func(w *witness) {
			early := w.asks("a", "carol")
			w.granted(w.asks("a", "alice"), 1, lease, nil)
			over := w.forces("a")
			w.granted(w.asks("a", "bob"), 2, lease, nil)
			over()
			w.granted(early, 3, lease, nil)
		}, 0},
		{"two at once, later", func(w *witness) {
			w.forces("a")()
			w.granted(w.asks("a", "alice"), 1, lease, nil)
			w.granted(w.asks("a", "bob"), 2, lease, nil)
		}, 1},
	}
	for _, tt := range tests {
		w := newWitness()
		if tt.say(w); len(w.faults) != tt.wrong {
			t.Errorf("%s: %q, want %d", tt.what, w.faults, tt.wrong)
		}
	}
	w := newWitness()
	h := &holding{overtaken: make(chan struct{})}
	w.granted(w.asks("a", "alice"), 1, 0, h)
	w.granted(w.asks("a", "bob"), 2, lease, nil)
	select {
	case <-h.overtaken:
	default:
		t.Error("a session is not said to be overtaken")
	}
}
