package adopt

import (
	"context"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// FenceOf is the lock of which a key is the fence; empty: of none.
func (p *Pattern) FenceOf(db int, key string) (lock string) {
	rest, begins := strings.CutPrefix(key, p.FenceKey)
	if p.FenceKey == "" || !begins {
		return ""
	}
	if inner, tagged := strings.CutPrefix(rest, "{"); tagged { // so that a Redis Cluster has both in one slot
		if name, closed := strings.CutSuffix(inner, "}"); closed && p.Matches(db, name) {
			return name
		}
	}
	if p.Matches(db, rest) {
		return rest
	}
	return ""
}

// fenceOf is the lock of which a key is the fence, and its pattern; nil: it is no such key.
func (a *Adoption) fenceOf(db int, key string) (lock string, p *Pattern) {
	for _, p := range a.patterns {
		if lock := p.FenceOf(db, key); lock != "" && a.pattern(db, lock) == p {
			return lock, p
		}
	}
	return "", nil
}

// fences says of which lock a key is the fence; nil: there are none.
func (a *Adoption) fences(db int) idiom.FenceKey {
	if !a.fenced {
		return nil
	}
	return func(key string) string {
		lock, _ := a.fenceOf(db, key)
		return lock
	}
}

// onFence makes a call of a command that has the key of a fence: of GET. p is nil if it has none.
func (a *Adoption) onFence(c Connection, name string, words []string, keys Keys) (call *Call, p *Pattern, err error) {
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

// decideFence answers GET of the key of a fence: the fence of the grant that a quorum has, or a refusal if there is none.
func (a *Adoption) decideFence(ctx context.Context, conn Connection, c *Call) (Result, error) {
	if err := mayRun(ctx, conn, c); err != nil {
		return Result{}, err
	}
	g, err := a.read(ctx, conn.Burst().basis(), lockKey(conn, c))
	switch {
	case err != nil:
		return Result{}, err
	case g.owner == "":
		return Result{}, c.refused(NotForLocks, "nobody has the lock, so it has no fence")
	}
	return Result{Reply: resp.AppendBulkString(nil, strconv.FormatInt(g.fence, 10)), at: g}, nil
}
