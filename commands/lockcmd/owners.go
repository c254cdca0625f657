package lockcmd

import (
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// owners are the implicit owners of a connection: the generated owners of the locks that
// it took without OWNER, so that RENEW and UNLOCK need not name them. The zero value is
// empty. It is not safe for concurrent use.
type owners struct {
	byName map[locks.Key][]implicitLock
	count  int
	bytes  int // of the names added since the last shrink
}

type implicitLock struct {
	owner    string
	fence    int64
	shared   bool
	released bool // remembered all the same: a repeated UNLOCK repeats its reply
	at       time.Time
}

// Beyond maxOwners locks or maxOwnerBytes of names, those taken longest ago are forgotten:
// a client that never unlocks must not fill the memory.
const (
	maxOwners     = 4096
	maxOwnerBytes = 4 << 20
	ownerAge      = time.Hour
)

// Add remembers a grant, and forgets the released locks of its name.
func (o *owners) Add(g locks.Grant) {
	if o.byName == nil {
		o.byName = map[locks.Key][]implicitLock{}
	}
	if o.bytes += len(g.Name); o.count >= maxOwners || o.bytes > maxOwnerBytes {
		o.shrink()
		o.bytes += len(g.Name)
	}
	all := o.byName[g.Whole()]
	live := slices.DeleteFunc(all, func(l implicitLock) bool { return l.released })
	o.count += len(live) + 1 - len(all)
	o.byName[g.Whole()] = append(live, implicitLock{owner: g.Owner, fence: g.Fence, shared: g.Reader != "", at: time.Now()})
}

// Find returns the lock of an implicit owner, the one with that fence if it is not 0, of a reader if shared, and
// how many there are to choose from: locks still held, or else the one released last.
func (o *owners) Find(k locks.Key, fence int64, shared bool) (found implicitLock, n int) {
	var last implicitLock
	for _, l := range o.byName[k] {
		if fence != 0 && l.fence != fence || shared && !l.shared {
			continue
		}
		if l.released {
			last = l
			continue
		}
		found, n = l, n+1
	}
	if n == 0 && last.owner != "" {
		return last, 1
	}
	return found, n
}

// Holds reports whether a lock of that name was taken and not released.
func (o *owners) Holds(k locks.Key) bool {
	return slices.ContainsFunc(o.byName[k], func(l implicitLock) bool { return !l.released })
}

// Owns reports whether owner is an implicit owner of that name.
func (o *owners) Owns(k locks.Key, owner string) bool {
	return slices.ContainsFunc(o.byName[k], func(l implicitLock) bool { return l.owner == owner })
}

// Released notes that a lock, that of a reader if shared, is no longer held.
func (o *owners) Released(k locks.Key, owner string, shared bool) {
	ls := o.byName[k]
	for i := range ls {
		if ls[i].owner == owner && ls[i].shared == shared {
			ls[i].released = true
		}
	}
}

// shrink forgets what was released and what is older than ownerAge, and if that does not
// suffice everything.
func (o *owners) shrink() {
	o.count, o.bytes = 0, 0
	for k, ls := range o.byName {
		keep := slices.DeleteFunc(ls, func(l implicitLock) bool { return l.released || time.Since(l.at) >= ownerAge })
		if o.byName[k] = keep; len(keep) == 0 {
			delete(o.byName, k)
		}
		o.count += len(keep)
		o.bytes += len(keep) * len(k.Name)
	}
	if o.count >= maxOwners || o.bytes > maxOwnerBytes/2 {
		clear(o.byName)
		o.count, o.bytes = 0, 0
	}
}
