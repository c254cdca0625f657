package locks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// A simHistory is what happened in a run, and what of it must not have.
type simHistory struct {
	began time.Time

	mu     sync.Mutex
	events []simEvent
	names  map[string]*simName
	wrong  []simWrong
	grants int // of new holders
	counts map[string]int
}

// A simEvent is one line of a history.
type simEvent struct {
	at         time.Duration
	who        string
	name, text string // name is empty if it concerns all
}

// A simWrong is a broken promise.
type simWrong struct {
	at         time.Duration
	name, text string
}

// A simName is what has been told about one name.
type simName struct {
	fence   int64 // of the latest grant
	owner   string
	forced  bool           // at any time
	forcing int            // so many do now
	lost    map[int64]bool // fences of grants of which a session was told that they are lost
	beliefs []*simBelief
}

// A simBelief is one grant, and how long its owner may believe in it, in true time: until
// the end of the validity it was told last; or, in a session, until it is told of the loss
// or gives it up.
type simBelief struct {
	name, owner string
	fence       int64
	until       time.Time
	session     bool
	over        bool      // given up, lost, or taken away
	proxy       *simProxy // of the session
	unlocked    bool      // its client has asked to give it back; only that uses it
}

func newSimHistory(began time.Time) *simHistory {
	return &simHistory{began: began, names: map[string]*simName{}, counts: map[string]int{}}
}

// log notes an event.
func (h *simHistory) log(who, name, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.logLocked(who, name, format, args...)
}

func (h *simHistory) logLocked(who, name, format string, args ...any) {
	h.events = append(h.events, simEvent{time.Since(h.began), who, name, fmt.Sprintf(format, args...)})
}

// blame notes a broken promise.
func (h *simHistory) blame(name, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.blameLocked(name, format, args...)
}

func (h *simHistory) blameLocked(name, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	h.logLocked("BROKEN", name, "%s", text)
	h.wrong = append(h.wrong, simWrong{time.Since(h.began), name, text})
}

// count counts what a run must have some of to show anything.
func (h *simHistory) count(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[what]++
}

func (h *simHistory) nameLocked(name string) *simName {
	n := h.names[name]
	if n == nil {
		n = &simName{}
		h.names[name] = n
	}
	return n
}

func (b *simBelief) runs(now time.Time) bool {
	if b.session {
		return !b.over && b.proxy.life.Err() == nil // else its connection is closed
	}
	return !b.over && now.Before(b.until)
}

// granted notes that the owner was told of a grant now. It returns what it may believe.
func (h *simHistory) granted(p *simProxy, g Grant, session bool) *simBelief {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, n := time.Now(), h.nameLocked(g.Name)
	var mine *simBelief
	n.beliefs = slices.DeleteFunc(n.beliefs, func(b *simBelief) bool { return !b.runs(now) && b.owner != g.Owner })
	for _, b := range n.beliefs {
		switch {
		case b.owner != g.Owner && b.session:
			h.blameLocked(g.Name, "two holders: %s has it, and the session of %s (fence %d) was not told that it is lost", g.Owner, b.owner, b.fence)
		case b.owner != g.Owner:
			h.blameLocked(g.Name, "two holders: %s has it, and %s (fence %d) was told that it has for %v more", g.Owner, b.owner, b.fence, b.until.Sub(now))
		case b.fence == g.Fence:
			mine = b
		default: // the nodes that were reached did not agree about the grant that the owner had
			b.over = true
		}
	}
	switch {
	case g.Fence > n.fence:
		n.fence, n.owner = g.Fence, g.Owner
		h.grants++
	case g.Fence == n.fence && n.owner == g.Owner:
	default:
		h.blameLocked(g.Name, "%s was granted fence %d after %d of %s", g.Owner, g.Fence, n.fence, n.owner)
	}
	until := now.Add(p.trueTime(g.Validity))
	if mine == nil {
		over := n.forcing > 0 || n.lost[g.Fence]
		mine = &simBelief{name: g.Name, owner: g.Owner, fence: g.Fence, until: until, session: session, over: over, proxy: p}
		n.beliefs = append(n.beliefs, mine)
	} else if !mine.over && until.After(mine.until) {
		mine.until = until
	}
	return mine
}

// renewing notes that a renewal to ttl is asked for: it may shorten from now on.
func (h *simHistory) renewing(b *simBelief, ttl time.Duration) (late bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	late = !now.Before(b.until)
	if until := now.Add(ttl - drift(ttl)); until.Before(b.until) {
		b.until = until
	}
	return late
}

// renewed notes that the owner was told of a renewal now. lapsed says that the lease had
// ended, by the owner's validity and on a majority of nodes, when it was asked for.
func (h *simHistory) renewed(b *simBelief, validity time.Duration, lapsed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.nameLocked(b.name)
	switch {
	case n.forced:
	case n.fence > b.fence:
		h.blameLocked(b.name, "fence %d of %s was renewed after %d was granted to %s", b.fence, b.owner, n.fence, n.owner)
	case lapsed:
		h.blameLocked(b.name, "fence %d of %s was renewed after its validity had ended and most nodes had freed it", b.fence, b.owner)
	}
	if !b.over {
		b.until = time.Now().Add(validity)
	}
}

// ended notes that the owner believes no more.
func (h *simHistory) ended(b *simBelief) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b.over = true
}

// running reports whether the owner may believe that it has the lock.
func (h *simHistory) running(b *simBelief) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !b.over && time.Now().Before(b.until)
}

// later reports whether a larger fence than the belief's has been granted.
func (h *simHistory) later(b *simBelief) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.nameLocked(b.name)
	return n.fence > b.fence && !n.forced
}

// believes reports whether the owner has not heard that it has lost the lock.
func (h *simHistory) believes(b *simBelief) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !b.over && (!b.session || b.runs(time.Now()))
}

// lost notes that a session was told of a loss. It may be told before the grant.
func (h *simHistory) lost(l Loss) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.nameLocked(l.Name)
	if n.lost == nil {
		n.lost = map[int64]bool{}
	}
	n.lost[l.Fence] = true
	for _, b := range n.beliefs {
		b.over = b.over || b.fence == l.Fence
	}
}

// force notes that somebody begins to take the name away (1), or has ended to (-1).
func (h *simHistory) force(name string, by int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.nameLocked(name)
	n.forced = true
	n.forcing += by
	for _, b := range n.beliefs {
		b.over = true
	}
}

// sorted is the history in an order that does not depend on what ran first at one moment.
func (h *simHistory) sorted() []simEvent {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := slices.Clone(h.events)
	slices.SortStableFunc(all, func(a, b simEvent) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.who, b.who)) })
	return all
}

// excerpt is the end of the history as far as it concerns a name, up to a moment.
func (h *simHistory) excerpt(name string, until time.Duration, lines int) string {
	var out []string
	for _, e := range h.sorted() {
		if e.at <= until && (e.name == name || e.name == "") {
			out = append(out, e.String())
		}
	}
	return strings.Join(out[max(0, len(out)-lines):], "\n")
}

func (e simEvent) String() string {
	return fmt.Sprintf("%14.6fms %-7s %s", float64(e.at)/1e6, e.who, strings.TrimSpace(e.name+" "+e.text))
}
