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

// A guess is what a key is taken for. The zero guess is that nobody has it.
type guess struct {
	owner string
	fence int64 // 0: not known; the owner of a string or a sorted set names its grant alone
	holds int
	until time.Time
	open  bool // it has no end; until is when it is lost if nobody keeps it
	made  origin
}

// state is what the key is taken for at a time: nothing, if the lease is over by then.
func (g *guess) state(now time.Time) idiom.State {
	if !now.Before(g.until) && !g.open {
		return idiom.State{}
	}
	return g.read(now)
}

// read is what the key is at a time by a guess that the nodes have just answered. Who had it when they answered
// has it, however little is left of the lease.
func (g *guess) read(now time.Time) idiom.State {
	if g.owner == "" {
		return idiom.State{}
	}
	left := max(time.Millisecond, g.until.Sub(now).Truncate(time.Millisecond))
	if g.open {
		left = idiom.Forever
	}
	switch value, kind := locks.ShownOwner(g.owner); kind {
	case locks.AdoptedString:
		return idiom.State{Kind: idiom.String, Value: value, Left: left}
	case locks.AdoptedHash:
		return idiom.State{Kind: idiom.Hash, Value: value, Count: g.holds, Left: left}
	case locks.AdoptedSorted:
		return idiom.State{Kind: idiom.Sorted, Value: value, Left: left}
	}
	return idiom.State{Kind: idiom.Native, Value: "lockproxy:" + strconv.FormatInt(g.fence, 10), Left: left}
}

// saysAll reports whether an owner says what its lock is, but for the end: of a hash the count is not known, nor of a native
// lock the fence.
func saysAll(owner string) bool {
	_, kind := locks.ShownOwner(owner)
	return kind == locks.AdoptedString || kind == locks.AdoptedSorted
}

func guessOf(r locks.Reading, now time.Time) guess {
	if !r.Held {
		return guess{}
	}
	return guess{owner: r.Owner, fence: r.Fence, holds: r.Holds, until: now.Add(r.Remaining), open: r.Open, made: originOf(r.Info)}
}

// refusalOf is what a key is by a refusal of the nodes that named the holder. They do not tell its holds: it is taken to have one.
func refusalOf(holder locks.Grant, now time.Time) guess {
	return guess{owner: holder.Owner, holds: 1, until: now.Add(holder.Validity)}
}
