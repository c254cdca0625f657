package commands

import (
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// implicitOwners remembers the locks that a connection took with a generated owner, so
// that RENEW and UNLOCK need not name it. The zero value is empty.
type implicitOwners struct {
	byName map[lockKey][]implicitLock
	count  int
	bytes  int // of all names that were added since the last shrink
}

type lockKey struct {
	db   int
	name string
}

type implicitLock struct {
	owner    string
	fence    int64
	released bool // kept so that a repeated UNLOCK repeats its reply
	at       time.Time
}

// Beyond maxTaken locks or maxBytes of names a connection, those taken longest ago are forgotten: a
// client that never unlocks must not fill the memory.
const (
	maxImplicit      = 4096
	maxImplicitBytes = 4 << 20
	keepImplicit     = time.Hour
)

// add remembers a grant. What was released of the name is forgotten.
func (t *implicitOwners) add(g locks.Grant) {
	if t.byName == nil {
		t.byName = map[lockKey][]implicitLock{}
	}
	if t.bytes += len(g.Name); t.count >= maxImplicit || t.bytes > maxImplicitBytes {
		t.shrink()
		t.bytes += len(g.Name)
	}
	k := lockKey{g.DB, g.Name}
	live := t.byName[k][:0]
	for _, l := range t.byName[k] {
		if !l.released {
			live = append(live, l)
		}
	}
	t.count += len(live) + 1 - len(t.byName[k])
	t.byName[k] = append(live, implicitLock{owner: g.Owner, fence: g.Fence, at: time.Now()})
}

// find returns what the connection is the owner of, by fence if that is not 0, and
// how many there are to choose from: those still held if there are any, else the
// one released last.
func (t *implicitOwners) find(db int, name string, fence int64) (owner string, f int64, n int) {
	var last implicitLock
	for _, l := range t.byName[lockKey{db, name}] {
		if fence != 0 && l.fence != fence {
			continue
		}
		if l.released {
			last = l
			continue
		}
		owner, f, n = l.owner, l.fence, n+1
	}
	if n == 0 && last.owner != "" {
		return last.owner, last.fence, 1
	}
	return owner, f, n
}

// holds says that a lock of that name was taken and not released.
func (t *implicitOwners) holds(db int, name string) bool {
	for _, l := range t.byName[lockKey{db, name}] {
		if !l.released {
			return true
		}
	}
	return false
}

// owns says that the connection has taken that lock as this owner.
func (t *implicitOwners) owns(db int, name, owner string) bool {
	for _, l := range t.byName[lockKey{db, name}] {
		if l.owner == owner {
			return true
		}
	}
	return false
}

// released notes that a lock is not held any more.
func (t *implicitOwners) released(db int, name, owner string) {
	ls := t.byName[lockKey{db, name}]
	for i := range ls {
		if ls[i].owner == owner {
			ls[i].released = true
		}
	}
}

// shrink forgets what was released, what is older than keepTaken, and if that is
// not enough everything.
func (t *implicitOwners) shrink() {
	t.count, t.bytes = 0, 0
	for k, ls := range t.byName {
		keep := ls[:0]
		for _, l := range ls {
			if !l.released && time.Since(l.at) < keepImplicit {
				keep = append(keep, l)
			}
		}
		if t.byName[k] = keep; len(keep) == 0 {
			delete(t.byName, k)
		}
		t.count += len(keep)
		t.bytes += len(keep) * len(k.name)
	}
	if t.count >= maxImplicit || t.bytes > maxImplicitBytes/2 {
		clear(t.byName)
		t.count, t.bytes = 0, 0
	}
}
