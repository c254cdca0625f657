package observe

import (
	"time"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// A key is a key that is followed. It is guarded by the Observer's mu.
type key struct {
	db   int
	name string
	hash uint64
	row  *row

	last, before grant // the last ones
}

// A grant is one acquisition of a lock, as far as it was seen. The zero grant is none.
type grant struct {
	by       *Client
	value    uint64 // its hash
	at, ends time.Time
	endless  bool // it has no end so far
	setNX    bool // it was taken by SETNX
	judged   bool // it has been counted as one without an end
	released bool
	late     bool // it has been counted as held too long
}

// endlessAfter is how long a lock may be without an end.
const endlessAfter = time.Second

// held reports whether a grant may still be in force.
func (g *grant) held(now time.Time) bool {
	return g.by != nil && !g.released && (g.endless || now.Before(g.ends))
}

// over reports whether the holder's ttl ran out before it gave the lock back.
func (g *grant) over(now time.Time) bool {
	return g.by != nil && !g.released && !g.endless && now.After(g.ends)
}

// judge counts a grant that is without an end for too long.
func (k *key) judge(now time.Time) {
	if g := &k.last; g.by != nil && g.endless && !g.judged && !now.Before(g.at.Add(endlessAfter)) {
		g.judged = true
		k.row.hazard(noExpiry, k.name)
		if g.setNX {
			k.row.hazard(setNXAlone, k.name)
		}
	}
}

// granted notes an acquisition.
func (k *key) granted(t *Tap, now, began time.Time) {
	r := k.row
	g := grant{by: t.by, value: t.value, at: now, endless: t.ttl == idiom.Forever, setNX: t.setNX}
	if !g.endless {
		g.ends = now.Add(t.ttl)
	}
	if !k.last.released {
		k.before = k.last
	}
	k.last = g
	r.taken++
	r.rate.note(now.Sub(began))
	r.noteTTL(t.ttl)
	if h, is := r.values.note(t.value, t.by.ID); is {
		r.hazard(h, k.name)
	}
	r.guess.value(t.form, t.sign)
}

// refused notes an acquisition while another had the lock.
func (k *key) refused(t *Tap, now time.Time) {
	k.row.contended++
	if g := &k.last; g.held(now) && g.value == t.value && g.by != t.by && g.by.closed.Load() {
		k.row.hazard(askedAgain, k.name)
	}
}

// released notes a release that was done.
func (k *key) released(t *Tap, now time.Time) {
	g := &k.last
	if t.force {
		k.row.hazard(delUncompared, k.name)
		k.touchedNext(t, now)
	}
	if g.by == nil || g.released {
		return
	}
	if g.by != t.by {
		k.row.hazard(otherConnection, k.name)
	}
	g.released = true
	k.row.held.note(now.Sub(g.at))
}

// extended notes that the end was moved.
func (k *key) extended(t *Tap, now time.Time) {
	g := &k.last
	if t.force && !(g.endless && g.by == t.by) {
		k.row.hazard(expireUncompared, k.name)
	}
	if t.force {
		k.touchedNext(t, now)
	}
	if g.by == nil || g.released {
		return
	}
	if g.endless = t.ttl == idiom.Forever; !g.endless {
		g.ends = now.Add(t.ttl)
		k.row.noteTTL(t.ttl)
	}
}

// touchedNext notes that a client whose lock had ended touched the next holder's.
func (k *key) touchedNext(t *Tap, now time.Time) {
	if k.last.by != t.by {
		k.tooLate(&k.before, t, now)
	}
}

// missed notes a release or an extension that found no lock, or another's.
func (k *key) missed(t *Tap, now time.Time) {
	k.tooLate(&k.last, t, now)
	k.tooLate(&k.before, t, now)
}

// tooLate notes that the holder of a grant uses it after its ttl has run out.
func (k *key) tooLate(g *grant, t *Tap, now time.Time) {
	mine := g.value == t.value
	if t.force { // which names no value
		mine = g.by == t.by
	}
	if mine && g.over(now) && !g.late {
		g.late = true
		k.row.hazard(heldTooLong, k.name)
		k.row.held.note(now.Sub(g.at))
	}
}
