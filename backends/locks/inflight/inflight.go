// Package inflight knows which LOCKs and changes of names are under way at a proxy.
package inflight

import (
	"maps"
	"slices"
	"sync"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// Locks are the LOCKs of named owners that are under way at this proxy. A RENEW that finds a grant
// by reading may find the hold of a LOCK that was not answered when the RENEW was asked for, and must not
// shorten it to less than the LOCK's answer says. The zero value is ready; all methods are safe for concurrent
// use.
type Locks struct {
	mu     sync.Mutex
	owners map[locks.Holder]*ownerLocks
}

// ownerLocks are the LOCKs of one owner.
type ownerLocks struct {
	locks    map[string]bool // by id of the hold; false: answered, but a RENEW was asked for before that
	renewals int             // RENEWs under way
}

func (u *Locks) of(h locks.Holder) *ownerLocks {
	a := u.owners[h]
	if a == nil {
		if u.owners == nil {
			u.owners = map[locks.Holder]*ownerLocks{}
		}
		a = &ownerLocks{locks: map[string]bool{}}
		u.owners[h] = a
	}
	return a
}

// tidy forgets the LOCKs that no RENEW under way can ask about any more.
func (u *Locks) tidy(h locks.Holder, a *ownerLocks) {
	if a.renewals == 0 {
		maps.DeleteFunc(a.locks, func(_ string, open bool) bool { return !open })
		if len(a.locks) == 0 {
			delete(u.owners, h)
		}
	}
}

// Begin notes a LOCK, until End.
func (u *Locks) Begin(h locks.Holder, hold string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.of(h).locks[hold] = true
}

// End notes that the LOCK is answered. Ending it again changes nothing.
func (u *Locks) End(h locks.Holder, hold string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if a := u.owners[h]; a != nil && a.locks[hold] {
		a.locks[hold] = false
		u.tidy(h, a)
	}
}

// StartRenewal begins a RENEW. holds returns the ids of the holds of all LOCKs that have been under way since. end
// must be called when the RENEW has ended.
func (u *Locks) StartRenewal(h locks.Holder) (holds func() []string, end func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	a := u.of(h)
	a.renewals++
	holds = func() []string {
		u.mu.Lock()
		defer u.mu.Unlock()
		return slices.Collect(maps.Keys(a.locks))
	}
	return holds, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		a.renewals--
		u.tidy(h, a)
	}
}
