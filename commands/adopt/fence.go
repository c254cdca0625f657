package adopt

import (
	"context"
	"strconv"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
)

// fenceOf returns the lock whose fence key is key, and its pattern; nil: it is no fence key.
func (a *Adoption) fenceOf(db int, key string) (lock string, p *pattern.Pattern) {
	for _, p := range a.patterns {
		if lock := p.FenceOf(db, key); lock != "" && a.pattern(db, lock) == p {
			return lock, p
		}
	}
	return "", nil
}

// fences returns a function that finds the lock of a fence key; nil: no pattern has fence keys.
func (a *Adoption) fences(db int) idiom.FenceKey {
	if !a.fenced {
		return nil
	}
	return func(key string) string {
		lock, _ := a.fenceOf(db, key)
		return lock
	}
}

// newFenceCall makes a call of GET of a fence key, and refuses any other command with one. p is nil if there is none.
func (a *Adoption) newFenceCall(c Connection, name string, words []string, keys Keys) (call *Call, p *pattern.Pattern, err error) {
	key, lock := "", ""
	for _, at := range keys.At {
		if lock, p = a.fenceOf(c.Database(), words[at]); p != nil {
			key = words[at]
			break
		}
	}
	switch {
	case p == nil:
		return nil, nil, nil
	case name != "GET" || len(words) != 2:
		return nil, p, &RefusedError{Command: name, Key: key, Why: name + " of the key of a fence", Pattern: p.Glob, Reason: NotForLocks}
	}
	get, err := idiom.Plain([]string{"GET", lock}, c.Protocol())
	return &Call{Call: get, pattern: p, command: name, class: idiom.ReadOnly, words: words, isFence: true}, p, err
}

// decideFence answers GET of a fence key with the fence of the grant that a quorum has. It refuses if there is none.
func (a *Adoption) decideFence(ctx context.Context, conn Connection, c *Call) (Result, error) {
	g, err := a.read(ctx, conn.Burst().basis(), lockKey(conn, c))
	switch {
	case err != nil:
		return Result{}, err
	case g.owner == "":
		return Result{}, c.refused(NotForLocks, "nobody has the lock, so it has no fence")
	}
	return Result{Reply: resp.AppendBulkString(nil, strconv.FormatInt(g.fence, 10)), at: g}, nil
}
