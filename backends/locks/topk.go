package locks

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"
)

const (
	hotNames    = 512                   // of a topK
	hotBytes    = 1 << 10               // of a name; longer ones are not counted
	hotWait     = 10 * time.Millisecond // a LOCK that took less did not wait
	hotHalfLife = time.Minute           // after which counts count half
	hotRebase   = 30 * time.Minute      // after which weights are scaled down again
)

// A HotName is a name that was asked for often in the last minutes, at this proxy. The
// figures are rates per minute; older events count less, and errors are on the small side.
type HotName struct {
	Key
	Grants   float64
	Refusals float64
	Waited   time.Duration // from the calls of LOCK to their answers, all together
}

// topNames are the names that were asked for most and waited for longest. Its methods are safe for concurrent
// use, and their cost does not depend on how many names there are.
type topNames struct {
	mu     sync.Mutex
	asked  topK // by LOCKs
	waited topK // by the time LOCKs took, those only that took hotWait
}

// Hot are the names that were asked for most, and those that were waited for longest, at
// most so many of each, the hottest first. A LOCK that took less than 10 ms did not wait.
func (s *Service) Hot(most int) (asked, waited []HotName) {
	now := s.store.Now()
	s.top.mu.Lock()
	defer s.top.mu.Unlock()
	return s.top.asked.top(most, now), s.top.waited.top(most, now)
}

// answered counts the answer to a LOCK, which took so long.
func (h *topNames) answered(at Key, granted bool, waited, now time.Duration) {
	if len(at.Name) > hotBytes {
		return
	}
	c := topCounts{waited: float64(waited)}
	if granted {
		c.grants = 1
	} else {
		c.refusals = 1
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked.add(at, 1, c, now)
	if waited >= hotWait {
		h.waited.add(at, float64(waited), c, now)
	}
}

// A topK keeps the heaviest of any number of names (Metwally et al., "Space-Saving"): a new name replaces the
// lightest one, and begins with its weight, which is the most that the new name can have had before. Instead of
// letting all counts decay, later ones weigh more, which leaves the order alone (Cormode et al., "Forward
// Decay"). The zero value is ready.
type topK struct {
	origin  time.Duration // when a count weighs 1
	byKey   map[Key]*topEntry
	entries indexHeap[*topEntry] // the lightest first
}

// topEntry is what a topK knows of a name.
type topEntry struct {
	at     Key
	weight float64
	unsure float64 // the part of weight that was taken over from the name before
	topCounts
	index int // in topK.entries
}

// topCounts are the answers for a name since it is known, weighted like its weight.
type topCounts struct{ grants, refusals, waited float64 }

func (s *topK) add(at Key, by float64, c topCounts, now time.Duration) {
	if now-s.origin > hotRebase {
		s.rebase(now)
	}
	f := s.factor(now)
	w := s.byKey[at]
	switch {
	case w != nil:
	case len(s.entries) < hotNames:
		w = &topEntry{at: at, index: -1}
		s.entries.place(w)
	default:
		w = s.entries[0]
		delete(s.byKey, w.at)
		*w = topEntry{at: at, weight: w.weight, unsure: w.weight}
	}
	if s.byKey == nil {
		s.byKey = map[Key]*topEntry{}
	}
	s.byKey[at] = w
	w.weight += by * f
	w.grants += c.grants * f
	w.refusals += c.refusals * f
	w.waited += c.waited * f
	s.entries.place(w)
}

// factor is the weight of one event at the given time.
func (s *topK) factor(now time.Duration) float64 {
	return math.Exp2(float64(now-s.origin) / float64(hotHalfLife))
}

// rebase scales all weights so that an event weighs 1 now, before they grow too large for their type.
func (s *topK) rebase(now time.Duration) {
	f := s.factor(now)
	for _, w := range s.entries {
		w.weight /= f
		w.unsure /= f
		w.grants /= f
		w.refusals /= f
		w.waited /= f
	}
	s.origin = now
}

// top are the heaviest, by the certain part of their weight. Entries that weigh next to nothing are left out.
func (s *topK) top(most int, now time.Duration) []HotName {
	sure := slices.Clone(s.entries)
	slices.SortFunc(sure, func(a, b *topEntry) int {
		return cmp.Or(cmp.Compare(b.weight-b.unsure, a.weight-a.unsure), a.at.Compare(b.at))
	})
	perMinute := math.Ln2 * float64(time.Minute) / float64(hotHalfLife) / s.factor(now)
	var out []HotName
	for _, w := range sure[:min(most, len(sure))] {
		h := HotName{
			Key:    w.at,
			Grants: w.grants * perMinute, Refusals: w.refusals * perMinute, Waited: time.Duration(w.waited * perMinute),
		}
		if h.Grants+h.Refusals >= 0.01 {
			out = append(out, h)
		}
	}
	return out
}

func (e *topEntry) before(other *topEntry) bool { return e.weight < other.weight }
func (e *topEntry) heapIndex() *int             { return &e.index }
