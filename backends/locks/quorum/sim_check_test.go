package quorum

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// hearsAfter is how much later than by its lease a session may hear of a loss: it gives up
// before, but is told in its turn.
const hearsAfter = 50 * time.Millisecond

// A simHistory is what happened in a run, and what of it must not have.
type simHistory struct {
	began time.Time

	mu     sync.Mutex
	events []simEvent
	names  map[string]*simName
	wrong  []simWrong
	grants int // of new holders
	counts map[string]int

	permits int // of each name

	acquirers map[string][]string // owners of LOCKs that a node has done or settled, by key of the nodes
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
	taken   int64          // the largest fence that FORCE has said it took away
	lost    map[int64]bool // fences of grants of which a session was told that they are lost
	beliefs []*simBelief
	asks    []*simAsk
	read    int64     // the largest fence that was told to a reader of the name
	cleared time.Time // when a FORCE was answered that may have taken it from its readers
	simReplaced
	simSeats
}

// A simBelief is one grant: what its owner may believe about it. It has the name as long
// as one of its holds runs.
type simBelief struct {
	name, owner string
	fence       int64
	holds       []*simHold
	over        bool        // given up, lost, or taken away
	unlocked    atomic.Bool // a client has asked to give it back; of adopted ones, any may
	freed       bool        // a RENEW that was too late found that most nodes had freed it
	seat        simSeat
}

// A simHold is one hold of a grant. It runs until the end of the validity it was told
// last, in true time; in a session, until its client is told of the loss or gives it up.
type simHold struct {
	until           time.Time // in a session zero, unless a RENEW may have shortened the lease
	told            time.Time // until, as it was told: no RENEW has shortened it that was not answered
	over            bool
	assumedReleased bool // an UNLOCK is taken to have given it back, but may have given back another

	proxy  *simProxy // of the session, else nil
	ttl    time.Duration
	hears  time.Time // if until is not zero: when the session has heard of the shorter lease
	rival  string    // who was granted the name between until and hears
	silent bool      // it was blamed that the session has not
}

// A simAsk is a LOCK or RENEW of an owner that is under way. What it is told may be cut by
// a RENEW that is under way at the same time: the nodes may do that one last. Only where
// one proxy has answered both, the later answer takes the other into account.
type simAsk struct {
	name, owner string
	proxy       *simProxy
	at          time.Time // when it was sent
	renews      time.Time // the end that it asks for at the earliest, if it is a RENEW
	bound       time.Time // of what it is told, if not zero
	carried     bool      // it is a RENEW that was answered with a validity
	alone       bool      // the owner asked for nothing else meanwhile
	taken       int64     // see simName, when it was asked
	latest      int64     // the fence of the latest grant, when it was asked
	written     int64     // of a reader: that of the latest grant of the name to a writer, when it was asked
	simPermit
}

func newSimHistory(began time.Time) *simHistory {
	return &simHistory{began: began, names: map[string]*simName{}, counts: map[string]int{}, acquirers: map[string][]string{}}
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

// runs reports whether the owner may believe that it has the lock.
func (b *simBelief) runs(now time.Time) bool {
	return !b.over && slices.ContainsFunc(b.holds, func(x *simHold) bool { return x.runs(now) })
}

func (x *simHold) runs(now time.Time) bool {
	switch {
	case x.over:
		return false
	case x.proxy == nil:
		return now.Before(x.until)
	case x.proxy.life.Err() != nil: // its connection is closed
		return false
	}
	return x.until.IsZero() || now.Before(x.until) || !now.Before(x.hears)
}

// until is the end of the validity of the holds that are in no session.
func (b *simBelief) until() (until time.Time) {
	for _, x := range b.holds {
		if x.proxy == nil && !x.over && x.until.After(until) {
			until = x.until
		}
	}
	return until
}

// kept reports whether a session keeps the lock, and is not told that it is lost.
func (b *simBelief) kept() bool {
	return !b.over && slices.ContainsFunc(b.holds, func(x *simHold) bool { return x.proxy != nil && !x.over && x.proxy.life.Err() == nil })
}

// earlier is the earlier of two times, where zero stands for none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// ask notes that a LOCK is about to be sent, or a RENEW for ttl if that is not 0. A RENEW
// may shorten every hold of the owner from now on, whether it is answered or not.
func (h *simHistory) ask(p *simProxy, name, owner string, ttl time.Duration) *simAsk {
	h.mu.Lock()
	defer h.mu.Unlock()
	a, n := &simAsk{name: name, owner: owner, proxy: p, at: time.Now(), alone: true}, h.nameLocked(name)
	a.taken, a.latest, a.written = n.taken, n.fence, h.nameLocked(keyOf(name).Name).fence
	if ttl > 0 {
		a.renews = time.Now().Add(ttl - locks.Drift(ttl))
	}
	for _, other := range n.asks {
		if other.owner == owner {
			a.alone, other.alone = false, false
			if other.proxy != p {
				a.cut(other)
				other.cut(a)
			}
		}
	}
	h.asksLocked(a)
	n.asks = append(n.asks, a)
	for _, b := range n.beliefs {
		switch {
		case b.owner != owner:
		case ttl > 0:
			b.shorten(a.renews, ttl)
		default:
			b.freed = false
		}
	}
	return a
}

// cut bounds what a is told by a RENEW.
func (a *simAsk) cut(renewal *simAsk) { a.bound = earlier(a.bound, renewal.renews) }

// cutLocked bounds what a is told now by the RENEWs that are still under way.
func (n *simName) cutLocked(a *simAsk) {
	for _, other := range n.asks {
		if other != a && other.owner == a.owner {
			a.cut(other)
		}
	}
}

// shorten notes that the lease may end then. A session finds out when it renews the lease,
// or at the end of what it believes; while it lives on, it has renewed it.
func (b *simBelief) shorten(until time.Time, ttl time.Duration) {
	for _, x := range b.holds {
		if x.until, x.ttl = earlier(x.until, until), max(x.ttl, ttl); x.rival == "" {
			x.hears = time.Now().Add(x.ttl + hearsAfter)
		}
	}
}

// answered notes that a command was answered, or will never be.
func (h *simHistory) answered(a *simAsk) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.nameLocked(a.name)
	n.asks = slices.DeleteFunc(n.asks, func(other *simAsk) bool { return other == a })
	for _, other := range n.asks {
		if other.owner == a.owner && !a.carried {
			other.cut(a)
		}
	}
	for _, b := range n.beliefs {
		if b.owner == a.owner && !a.renews.IsZero() { // a session's renewal may have been before it until now
			b.shorten(time.Time{}, 0)
		}
	}
}

// granted notes that the owner was told of a hold now. It returns what it may believe:
// nothing, if it was told of a later grant of its own that it had asked for at the same time.
func (h *simHistory) granted(a *simAsk, r locks.LockRequest, g locks.Grant) *simBelief {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, n := time.Now(), h.nameLocked(g.Name)
	if g.Owner == n.owner && g.Fence < n.fence && !a.alone {
		return nil
	}
	var mine *simBelief
	h.besideLocked(a, g, now)
	for _, b := range n.beliefs {
		switch {
		case b.owner != g.Owner && (n.dropped[g.Fence] || g.Fence <= n.taken): // it was replaced, or taken away, before its owner heard of it
		case b.owner != g.Owner:
			h.rivalLocked(b, g, now)
		case b.fence == g.Fence:
			mine = b
		default: // the nodes that were reached did not agree about the grant that the owner had
			b.over = true
		}
	}
	n.beliefs = slices.DeleteFunc(n.beliefs, func(b *simBelief) bool { return !b.runs(now) && !b.kept() && b.owner != g.Owner })
	switch {
	case g.Fence > n.fence:
		n.fence, n.owner = g.Fence, g.Owner
		h.grants++
	case g.Fence == n.fence && n.owner == g.Owner:
	case n.dropped[g.Fence]:
	case g.Fence <= n.taken: // FORCE took it before its owner heard of it
	default:
		h.blameLocked(g.Name, "%s was granted fence %d after %d of %s", g.Owner, g.Fence, n.fence, n.owner)
	}
	if mine == nil {
		over := n.forcing > 0 || h.forcedLocked(a, g) || n.lost[g.Fence] || g.Fence <= n.taken || n.dropped[g.Fence]
		mine = &simBelief{name: g.Name, owner: g.Owner, fence: g.Fence, over: over}
		n.beliefs = append(n.beliefs, mine)
	}
	mine.freed = false
	h.sitsLocked(a, mine)
	n.cutLocked(a)
	x := &simHold{told: now.Add(a.proxy.trueTime(g.Validity)), ttl: r.TTL}
	x.until = earlier(x.told, a.bound)
	if r.Session != nil {
		x.proxy, x.until = a.proxy, a.bound
		x.hears = now.Add(r.TTL + hearsAfter)
	}
	mine.holds = append(mine.holds, x)
	return mine
}

// rivalLocked blames a grant while another owner may believe that it has the name.
func (h *simHistory) rivalLocked(b *simBelief, g locks.Grant, now time.Time) {
	for _, x := range b.holds {
		switch {
		case b.over || x.over:
		case x.proxy != nil && x.proxy.life.Err() == nil && !x.until.IsZero() && !now.Before(x.until) && now.Before(x.hears):
			x.rival = g.Owner
		case !x.runs(now):
		case x.proxy != nil:
			h.blameLocked(g.Name, "two holders: %s has it, and the session of %s (fence %d) was not told that it is lost", g.Owner, b.owner, b.fence)
		default:
			h.blameLocked(g.Name, "two holders: %s has it, and %s (fence %d) was told that it has for %v more", g.Owner, b.owner, b.fence, x.until.Sub(now))
		}
	}
}

// deafLocked blames a session that has not heard in time that a RENEW has shortened the
// lease, and that another owner was granted the name since.
func (h *simHistory) deafLocked(b *simBelief, now time.Time) {
	for _, x := range b.holds {
		if x.rival != "" && !x.silent && !b.over && x.runs(now) && !now.Before(x.hears) {
			x.silent = true
			h.blameLocked(b.name, "the session of %s (fence %d) was not told in time that it is lost: %s has been granted it", b.owner, b.fence, x.rival)
		}
	}
}

// late reports whether the validity of the belief has ended.
func (h *simHistory) late(b *simBelief) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !b.kept() && !time.Now().Before(b.until())
}

// told reports whether a validity runs that the owner was told, and may have asked to shorten since.
func (h *simHistory) told(b *simBelief) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(b.holds, func(x *simHold) bool { return !x.over && time.Now().Before(x.told) })
}

// freed notes that too few nodes had the grant when a RENEW was asked for too late. The
// owner's next LOCK makes another lease; until then no RENEW may bring this one back.
func (h *simHistory) freed(b *simBelief, now bool) (lapsed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b.freed = now || b.freed
	return b.freed
}

// acquired notes that a node has done a LOCK of the owner, or settled it, perhaps one that was answered
// long ago: that makes a lease like any other.
func (h *simHistory) acquired(key, owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acquirers[key] = append(h.acquirers[key], owner)
	for _, n := range h.names {
		for _, b := range n.beliefs {
			b.freed = b.freed && b.owner != owner
		}
	}
}

// renewed notes that the owner was told of a renewal now: it moves the end of all its holds.
// lapsed says that the lease had ended when it was asked for: by the owner's validity, and
// on a majority of nodes.
func (h *simHistory) renewed(a *simAsk, b *simBelief, validity time.Duration, lapsed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.nameLocked(b.name)
	switch {
	case b.fence > a.taken && n.forced:
	case b.fence <= a.taken:
		h.blameLocked(b.name, "fence %d of %s was renewed after FORCE had taken it away", b.fence, b.owner)
	case (n.dropped[b.fence] || b.over) && a.latest <= b.fence: // it may have been renewed before it was replaced, or given back
	case n.fence > b.fence && (a.alone || n.owner != b.owner): // else the owner was granted it meanwhile
		h.blameLocked(b.name, "fence %d of %s was renewed after %d was granted to %s", b.fence, b.owner, n.fence, n.owner)
	case lapsed && b.freed:
		h.blameLocked(b.name, "fence %d of %s was renewed after its validity had ended and most nodes had freed it", b.fence, b.owner)
	}
	h.reseatedLocked(b)
	n.cutLocked(a)
	a.carried = true
	told := time.Now().Add(validity)
	until := earlier(told, a.bound)
	some, last := b.runs(time.Now()), b.last()
	for _, x := range b.holds {
		x.told = told
		switch {
		case some && !x.until.IsZero() && !time.Now().Before(x.until): // it has ended by itself, others have not
		case !some && x != last: // the nodes had one of them still, and left alone what had ended
		case !a.alone: // one that was taken meanwhile may not have been there yet
			x.until = earlier(x.until, until)
		case x.proxy == nil || !x.until.IsZero():
			x.until = until
		}
	}
}

// gaveBack notes that the owner is about to give one hold back: it counts on those that end
// first.
func (h *simHistory) gaveBack(b *simBelief) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if last := b.last(); last != nil {
		last.over, last.assumedReleased = true, true
	}
}

// last is the hold that the owner counts on for longest, nil if there is none: a session's
// whose proxy lives, or the one that ends last.
func (b *simBelief) last() (last *simHold) {
	kept := func(x *simHold) bool { return x.proxy != nil && x.proxy.life.Err() == nil }
	for _, x := range b.holds {
		if !x.over && (last == nil || !kept(last) && (kept(x) || x.until.After(last.until))) {
			last = x
		}
	}
	return last
}

// ended notes that the owner believes no more.
func (h *simHistory) ended(b *simBelief) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deafLocked(b, time.Now())
	b.over = true
}

// hasEnded reports whether the owner believes no more, or somebody took the grant away.
func (h *simHistory) hasEnded(b *simBelief) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return b.over
}

// running reports whether the owner may believe that it has the lock, by what it was told.
func (h *simHistory) running(b *simBelief) bool { return h.runningFor(b, 0) }

// runningFor reports whether the owner may believe so for some time more.
func (h *simHistory) runningFor(b *simBelief, d time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !b.over && time.Now().Add(d).Before(b.until())
}

// promised reports whether the validity that the owner was told of has not ended, whether or not it has the lock still.
func (h *simHistory) promised(b *simBelief) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Before(b.until())
}

// later reports whether a larger fence than the belief's has been granted, or FORCE has
// taken the grant away.
func (h *simHistory) later(b *simBelief) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.nameLocked(b.name)
	return b.fence <= n.taken || n.fence > b.fence && !n.forced
}

// believes reports whether the owner has not heard that it has lost the lock.
func (h *simHistory) believes(b *simBelief) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	h.deafLocked(b, now)
	return !b.over && (!slices.ContainsFunc(b.holds, func(x *simHold) bool { return x.proxy != nil }) || b.kept() || b.runs(now))
}

// lost notes that a session was told of a loss. It may be told before the grant.
func (h *simHistory) lost(l locks.Loss) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.nameLocked(lockName(l.Key))
	if n.lost == nil {
		n.lost = map[int64]bool{}
	}
	n.lost[l.Fence] = true
	for _, b := range n.beliefs {
		h.deafLocked(b, time.Now())
		for _, x := range b.holds {
			if x.proxy == nil || b.fence != l.Fence {
				continue
			}
			if x.over = true; x.assumedReleased { // the UNLOCK gave another one back, and this one is lost now
				x.assumedReleased = false
				if last := b.last(); last != nil {
					last.over = true
				}
			}
		}
	}
}

// force notes that a FORCE begins (1) or has been answered (-1), and the lock that it took away; the zero Holding: none.
func (h *simHistory) force(name string, by int, was locks.Holding) (owner string, fence int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.nameLocked(name)
	n.forced = true
	n.forcing += by
	if was.Fence == n.fence && was.Owner != n.owner { // it found a LOCK that was undone; nobody was told of its fence, but of another's grant under it
		was.Fence--
	}
	n.taken = max(n.taken, was.Fence)
	for _, b := range n.beliefs {
		b.over = true
	}
	return n.owner, n.fence
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
