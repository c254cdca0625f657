package adopt

import (
	"context"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
)

// An origin is the mode in which a grant was made. The grant's info tells it to all proxies.
type origin uint8

const (
	unknownOrigin origin = iota // the nodes were not asked
	elsewhere                   // by LOCK
	madeOn
	madeBoth // the upstream has a copy
)

var origins = map[origin]string{madeOn: "adopted on", madeBoth: "adopted both"}

func (o origin) info() string { return origins[o] }

func originOf(info string) origin {
	for o, text := range origins {
		if text == info {
			return o
		}
	}
	return elsewhere
}

// made returns the origin of the grants that a call makes.
func (c *Call) made() origin {
	if c.pattern.Mode == pattern.Both && !c.alone {
		return madeBoth
	}
	return madeOn
}

// Scripts for the upstream's copy of a grant, KEYS[1]. They change it only if it has that value, field or token.
//
//	ARGV[1]  value, field or token
//	ARGV[2]  ttl in ms; of a string, -1: none; of a hash, 0: unchanged
//	ARGV[3]  change of holds; 0: none; -1: one less, which releases a string or a sorted set; of a hash, all: none is left
//
// The reply is an integer; 0: nothing was changed.
const (
	copyOfString = `if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[3] == '-1' then return redis.call('DEL', KEYS[1]) end
if ARGV[2] == '-1' then return redis.call('PERSIST', KEYS[1]) end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])`
	copyOfHash = `if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
if ARGV[3] == 'all' then return redis.call('DEL', KEYS[1]) end
if ARGV[3] ~= '0' and redis.call('HINCRBY', KEYS[1], ARGV[1], ARGV[3]) < 1 then return redis.call('DEL', KEYS[1]) end
if ARGV[2] ~= '0' then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1`
	copyOfSorted = `if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
if ARGV[3] == '-1' then return redis.call('ZREM', KEYS[1], ARGV[1], '__write__') end
local t = redis.call('TIME')
local ends = t[1] * 1000 + math.floor(t[2] / 1000) + ARGV[2]
redis.call('ZADD', KEYS[1], ends, ARGV[1], ends, '__write__')
return redis.call('PEXPIREAT', KEYS[1], ends)`
)

// changeCopy applies op to the upstream's copy of a grant. It does not wait longer than guardFor, since the copy ends by
// itself. It reports false if there was no answer.
func (a *Adoption) changeCopy(ctx context.Context, conn Connection, key string, kind idiom.Kind, value string, op idiom.Op) bool {
	script, holds := copyOfString, "0"
	switch {
	case kind == idiom.Hash && op.Do == idiom.Release:
		holds = "all"
	case op.Do == idiom.Release, op.Do == idiom.Leave:
		holds = "-1"
	case op.Do == idiom.Enter:
		holds = "1"
	}
	switch kind {
	case idiom.Hash:
		script = copyOfHash
	case idiom.Sorted:
		script = copyOfSorted
	}
	ttl := strconv.FormatInt(op.TTL.Milliseconds(), 10)
	if op.TTL == idiom.Forever {
		ttl = "-1"
	}
	ctx, cancel := context.WithTimeout(ctx, guardFor)
	defer cancel()
	reply, err := conn.Ask(ctx, []string{"EVAL", script, "1", key, value, ttl, holds})
	done := err == nil && len(reply) > 0 && reply[0] == ':'
	if !done {
		a.counters.copiesLeft.Add(1)
	}
	return done
}

// followCopy updates the upstream's copy of a grant that was made in mode both, after a call in mode on (with guard) has
// applied op to the grant: the copy must neither block the next grant nor end before its own. A copy that is about to end is
// left alone: when the request arrives the key may be another client's, with the same value.
//
// next is the state of the key after op.
func (d *decision) followCopy(ctx context.Context, op idiom.Op, next *guess) {
	const last = 2 * guardFor
	a, c, g := d.a, d.c, d.lock.grant
	if c.pattern.Mode != pattern.On || !c.pattern.Guard || op.Do == idiom.Take || op.Do == idiom.Enter && next.holds < 2 {
		return
	}
	if op.Do == idiom.Enter {
		if next.made == unknownOrigin {
			r, err := a.opt.Engine.Read(ctx, d.key)
			if err != nil || r.Fence != next.fence {
				return
			}
			next.made = originOf(r.Info)
		}
		g = *next
	}
	if op.Do == idiom.Replace { // the new grant has no copy
		op = idiom.Op{Do: idiom.Release}
	}
	if g.made != madeBoth || time.Until(g.until) < last && !g.open {
		return
	}
	kind, value := keyOf(g.owner)
	if op.TTL != 0 {
		if lease, open, _ := a.lease(c, kind, op.TTL); !open { // the same as at the nodes
			op.TTL = lease
		}
	}
	if kind != idiom.Native {
		a.changeCopy(ctx, d.conn, c.Key(), kind, value, op)
	}
}

// mustKnowOrigin reports whether op needs the origin of the grant g, and it is not known.
func (c *Call) mustKnowOrigin(op idiom.Op, g guess) bool {
	return g.made == unknownOrigin && c.pattern.Mode == pattern.On && c.pattern.Guard && (op.Do == idiom.Renew || op.Do == idiom.Leave || op.Do == idiom.Release)
}
