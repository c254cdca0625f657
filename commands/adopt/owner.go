package adopt

import (
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// ownerOf makes the owner of a new grant.
func (a *Adoption) ownerOf(op idiom.Op) string {
	switch {
	case op.Do == idiom.Enter:
		return locks.NewAdoptedHash(op.Value)
	case op.Kind == idiom.Sorted:
		return locks.NewAdoptedSorted(&a.opt.Random, op.Value)
	}
	return locks.NewAdoptedString(&a.opt.Random, op.Value)
}

// lockKey is the lock of a call.
func lockKey(conn Connection, c *Call) locks.Key {
	return locks.Key{DB: conn.Database(), Name: c.Key()}
}

// A guess is what the proxy last knew of a lock. The zero guess is that nobody has it.
type guess struct {
	owner      string
	fence      int64 // 0: not known; the owner of a string or a sorted set identifies its grant alone
	holds      int
	until      time.Time
	hasReaders bool // somebody reads it
	open       bool // it has no end; until is when it is lost if nobody keeps it
	made       origin
}

// state returns the guessed state at a time. It is Absent once the lease is over.
func (g *guess) state(now time.Time) idiom.State {
	if !now.Before(g.until) && !g.open {
		return idiom.State{}
	}
	return g.confirmedState(now)
}

// confirmedState returns the state at a time by a guess that the nodes have just confirmed. The holder they named has the
// lock, however little is left of the lease.
func (g *guess) confirmedState(now time.Time) idiom.State {
	if g.owner == "" {
		return idiom.State{}
	}
	left := max(time.Millisecond, g.until.Sub(now).Truncate(time.Millisecond))
	if g.open {
		left = idiom.Forever
	}
	s := idiom.State{Left: left}
	switch s.Kind, s.Value = keyOf(g.owner); s.Kind {
	case idiom.Hash:
		s.Count = g.holds
	case idiom.Native:
		s.Value = "lockproxy:" + strconv.FormatInt(g.fence, 10)
	}
	return s
}

// keyOf returns what the key of a lock with that owner would be in Redis, and its value, field or token. It is Native also for
// those who share a lock.
func keyOf(owner string) (kind idiom.Kind, value string) {
	value, adopted := locks.ShownOwner(owner)
	switch adopted {
	case locks.AdoptedString:
		return idiom.String, value
	case locks.AdoptedHash:
		return idiom.Hash, value
	case locks.AdoptedSorted:
		return idiom.Sorted, value
	}
	return idiom.Native, value
}

// saysAll reports whether the owner alone gives the state of a lock, except its end. It does not for a hash, which has a
// count, nor for a native lock, which has a fence.
func saysAll(owner string) bool {
	kind, _ := keyOf(owner)
	return kind == idiom.String || kind == idiom.Sorted
}

func guessOf(r locks.Reading, now time.Time) guess {
	if !r.Held {
		return guess{hasReaders: r.Readers > 0}
	}
	return guess{hasReaders: r.Readers > 0, owner: r.Owner, fence: r.Fence, holds: r.Holds, until: now.Add(r.Remaining), open: r.Open, made: originOf(r.Info)}
}
