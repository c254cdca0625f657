package faults

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// readBar stands between the name and the owner in what the judge calls the lock of a reader: it is one of its own.
const readBar = "|"

// whole is the name that is read, if the lock is that of a reader.
func whole(lock string) string {
	name, _, _ := strings.Cut(lock, readBar)
	return name
}

// splitReaders gives the locks of readers names of their own.
func (j *judge) splitReaders() {
	for _, e := range j.events {
		if e.Shared && !strings.Contains(e.Name, readBar) {
			e.Name += readBar + e.Owner
		}
	}
}

// inReach are the beliefs that an event may have ended: FORCE those of readers as well.
func (j *judge) inReach(e *Event) []*belief {
	all := j.beliefs[e.Name]
	for lock, readings := range j.beliefs {
		if e.Op == opForce && lock != e.Name && whole(lock) == e.Name {
			all = append(all[:len(all):len(all)], readings...)
		}
	}
	return all
}

// reads is a command, which says whether it is about what the owner reads.
func (e *Event) reads(args ...string) []string {
	if e.Shared {
		args = append(args, "SHARED")
	}
	return args
}

// sharedRead answers {1, set} unless the set has been used under a larger fence, else {0}. Readers leave no fence there: that
// of another one may be smaller.
const sharedRead = `if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'fence') or '0') then return {0} end
return {1, redis.call('HGET', KEYS[1], 'set') or ''}`

// look reads the set that the lock protects. It reports whether the owner still has the lock, as far as it knows.
func (w *worker) look(c *claim) bool {
	if !isFenced(c.Name) {
		w.think(c)
		return true
	}
	e := Event{Op: opRead, Name: c.Name, Owner: c.Owner, Fence: c.fence, Shared: true, Key: setKey(c.Name, now())}
	l, done := w.other(c)
	defer done()
	taken := func(v redistest.Value) bool { return len(v.Elems) > 0 && v.Elems[0].Int() == 1 }
	l.work(&e, taken, "EVAL", sharedRead, "1", e.Key, strconv.FormatInt(c.fence, 10))
	return e.Reply != stale
}

// hasBoth has who writes read as well, so that nobody writes when it has given back what it writes; and who reads write, if nobody
// else reads.
func (w *worker) hasBoth(c *claim) (done func()) {
	r := &claim{Event: Event{Op: opLock, Name: c.Name, Owner: c.Owner, TTL: w.lease(), Shared: !c.Shared}}
	w.maySit(&r.Event)
	if !w.lock(r) {
		return func() {}
	}
	return func() {
		if w.hold(r) {
			w.unlock(r)
		}
		w.hangUp(r)
	}
}

// besides accuses readers and writers that believed at one time to have a name, and fences in the wrong order: that of a
// writer is above all that were told before it asked, that of a reader not below them.
func (j *judge) besides() {
	for lock, readings := range j.beliefs {
		if name := whole(lock); name != lock {
			for _, w := range j.beliefs[name] {
				for _, r := range readings {
					j.beside(w, r)
				}
			}
		}
	}
	j.keptBeside()
}

func (j *judge) beside(w, r *belief) {
	switch both := w.owner != r.owner && max(w.from, r.from) < min(w.until, r.until); {
	case both && j.unsafe:
		j.overlaps++
	case both:
		j.accuse("%s: %s writes under fence %d and %s reads under fence %d, both valid for %v", w.name, w.owner, w.fence, r.owner, r.fence,
			time.Duration(min(w.until, r.until)-max(w.from, r.from)))
	}
	switch {
	case w.fence == 0: // it is not known
	case w.fence <= r.fence && r.from < j.asked(w):
		j.accuse("%s: %s writes under fence %d, after %s was told that it reads under %d", w.name, w.owner, w.fence, r.owner, r.fence)
	case r.fence < w.fence && w.from < j.asked(r):
		j.accuse("%s: %s reads under fence %d, after %s was told that it writes under %d", w.name, r.owner, r.fence, w.owner, w.fence)
	}
}

// asked is when the owner first asked for what it has under this fence.
func (j *judge) asked(b *belief) instant {
	at := b.first
	for _, other := range j.beliefs[b.name] {
		if other.owner == b.owner && other.fence == b.fence {
			at = min(at, other.first)
		}
	}
	return at
}

// keptBeside accuses where a session heard nothing of the loss of a lock, though another was let in well before.
func (j *judge) keptBeside() {
	for _, e := range j.events {
		if e.Op != opKeep || e.Reply != carried || j.unsafe {
			continue
		}
		for lock, all := range j.beliefs {
			if whole(lock) != whole(e.Name) || (lock == whole(lock)) != e.Shared {
				continue
			}
			i := slices.IndexFunc(all, func(b *belief) bool { return b.owner != e.Owner && b.fence > e.Fence && b.from.add(lateBy) < e.End })
			if i >= 0 {
				j.accuse("%s: the session of %s was not told that it lost fence %d, though %s had %d since %v", e.Name,
					e.Owner, e.Fence, all[i].owner, all[i].fence, time.Duration(e.End-all[i].from))
			}
		}
	}
}
