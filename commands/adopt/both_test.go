package adopt

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/metrics"
)

// A beside is a client whose upstream has keys; a nil Adoption goes past the proxies.
type beside struct {
	client
	up     *fakeUpstream
	fail   error             // of the next command to the upstream
	before map[string]func() // what happens at the upstream before it gets a command of that name, once
	others *fleet
}

// A fleet is the other proxies, of which one may have all keys in the mode on.
type fleet struct {
	on  bool
	err error
}

func (f *fleet) May(int) error { return nil }

func (f *fleet) AnyOn(context.Context, int, string) (bool, error) { return f.on, f.err }

func (c *beside) Ask(_ context.Context, args []string) ([]byte, error) {
	if err := c.fail; err != nil {
		c.fail = nil
		return nil, err
	}
	c.asked = append(c.asked, args[0])
	if f := c.before[args[0]]; f != nil {
		delete(c.before, args[0])
		f()
	}
	return c.up.do(args), nil
}

// do runs a command, in which a word of bothScripts stands for its text, and returns the reply in one line.
func (c *beside) do(text string) string {
	c.t.Helper()
	args := strings.Fields(text)
	var words [][]byte
	keys := Keys{[]int{1}, true}
	for i, w := range args {
		if bothScripts[w] != "" {
			args[i] = bothScripts[w]
		}
		words = append(words, []byte(args[i]))
		if i > 1 && (args[0] == "DEL" || args[0] == "EXISTS") {
			keys.At = append(keys.At, i)
		}
	}
	reply, err := []byte(nil), error(nil)
	if c.a == nil {
		reply = c.up.do(args)
	} else {
		var call *Call
		var r Result
		if call, err = c.a.Call(c, words, keys); err == nil {
			r, err = c.a.Decide(c.t.Context(), c, call)
		}
		reply = r.Reply
	}
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(strings.TrimSuffix(string(reply), "\r\n"), "\r\n", " ")
}

var bothScripts = map[string]string{
	"release": simScripts["release"], "extend": simScripts["extend"], "takeOrExtend": simScripts["takeOrExtend"],
	"enter": enterHash, "leave": leaveHash, "extendHash": extendHash,
	"extendAll": extendAll, "compareAndSet": compareAndSet, "takeOrRewrite": simScripts["takeOrRewrite"],
	"takeSorted": takeSorted, "extendSorted": extendSorted, "releaseSorted": releaseSorted,
	"persist":  simScripts["persist"],
	"oddly":    `local v = redis.call('get', KEYS[1]) if not v then return 0 end if #v == 3 then redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) else redis.call('pexpire', KEYS[1], ARGV[2]) end return 1`,
	"keepLeft": `local left = redis.call('pttl', KEYS[1]) if left > 0 and redis.call('get', KEYS[1]) == ARGV[1] then redis.call('set', KEYS[1], ARGV[2], 'PX', left) return 1 end return 0`,
	"readOr":   `if ARGV[1] == 'read' then return redis.call('get', KEYS[1]) end return redis.call('set', KEYS[1], ARGV[2], 'NX', 'PX', 5000)`,
	"extendMe": `if redis.call('get', KEYS[1]) == 'me' then return redis.call('pexpire', KEYS[1], 9000) end return 0`,
	"always":   `if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) end return 'OK'`,
	"takeLeft": `if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', 9000) then return 1 end return redis.call('pttl', KEYS[1])`,
}

// besides are clients by their names.
type besides map[string]*beside

// run runs steps, each WHO COMMAND > REPLY.
func (m besides) run(t *testing.T, steps []string) {
	t.Helper()
	for _, step := range steps {
		said, want, _ := strings.Cut(step, " > ")
		who, command, _ := strings.Cut(said, " ")
		if got := m[who].do(command); got != want {
			t.Fatalf("%s: %s", step, got)
		}
	}
}

// when has f happen before the upstream gets the next command of this name from c.
func (c *beside) when(name string, f func()) {
	if c.before == nil {
		c.before = map[string]func(){}
	}
	c.before[name] = f
}

// modes are clients of one lock: d of the upstream, b through a proxy in the mode both, o through one in the mode on.
func modes(t *testing.T, words string, more ...string) besides {
	up := &fakeUpstream{keys: map[string]fakeKey{}}
	svc, others := lockService(t, locks.Options{}), &fleet{}
	all := besides{"d": {client: client{t: t}, up: up}}
	for name, mode := range map[string]string{"b": "both", "poll": "both", "o": "on"} {
		a, err := New(parsed(t, append([]string{"lock:* mode=" + mode + " " + words}, more...)...), Options{Engine: svc, MinTTL: 100 * time.Millisecond, MaxTTL: time.Minute, Log: slog.New(slog.DiscardHandler), Peers: others})
		if err != nil {
			t.Fatal(err)
		}
		all[name] = &beside{client: client{t: t, a: a, proto: 2}, up: up, others: others}
	}
	return all
}

// TestBoth: what a program is answered in the mode both, beside programs at the upstream and in the mode on.
func TestBoth(t *testing.T) {
	for name, steps := range map[string][]string{
		"who takes it excludes all":              {"b SET lock:a me NX PX 5000 > +OK", "d SET lock:a you NX PX 5000 > $-1", "o SET lock:a you NX PX 5000 > $-1", "b SET lock:a you NX PX 5000 > $-1", "b EVAL release 1 lock:a you > :0", "b EVAL release 1 lock:a me > :1", "d GET lock:a > $-1", "o GET lock:a > $-1"},
		"the upstream has it":                    {"d SET lock:a you NX PX 5000 > +OK", "b SET lock:a me NX PX 5000 > $-1", "d DEL lock:a > :1", "b SET lock:a me NX PX 5000 > +OK"},
		"the nodes have it, and nothing is left": {"o SET lock:a you NX PX 5000 > +OK", "b SET lock:a me NX PX 5000 > $-1", "d EXISTS lock:a > :0", "b SET lock:a you NX PX 5000 > $-1", "d EXISTS lock:a > :0"},
		"reads are the upstream's":               {"b SET lock:a me NX PX 5000 > +OK", "b GET lock:a > $2 me", "b PTTL lock:a > :5000", "b EXISTS lock:a > :1", "b DEL lock:a > :1", "b GET lock:a > $-1"},
		"both are renewed":                       {"b SET lock:a me NX PX 2000 > +OK", "b EVAL extend 1 lock:a me 9000 > :1", "d PTTL lock:a > :9000", "o PTTL lock:a > :9000"},
		"released where the nodes have none":     {"d SET lock:a me NX PX 2000 > +OK", "b EVAL release 1 lock:a me > :1", "d EXISTS lock:a > :0"},
		"lost at the upstream":                   {"b SET lock:a me NX PX 5000 > +OK", "d DEL lock:a > :1", "b EVAL extend 1 lock:a me 9000 > :0", "b EVAL release 1 lock:a me > :0", "o EXISTS lock:a > :1"},
		"taken in on, and then served in both":   {"o SET lock:a me NX PX 5000 > +OK", "b EVAL extend 1 lock:a me 9000 > :1", "o PTTL lock:a > :9000", "b EVAL release 1 lock:a me > :1", "o EXISTS lock:a > :0"},
		"taken in on, and the upstream has one":  {"o SET lock:a me NX PX 5000 > +OK", "d SET lock:a you NX PX 5000 > +OK", "b EVAL extend 1 lock:a me 9000 > :0", "b EVAL release 1 lock:a me > :1", "o EXISTS lock:a > :0"},
		"taken in both, and then served in on": {"b SET lock:a me NX PX 5000 > +OK", "o EVAL extend 1 lock:a me 9000 > :1", "d PTTL lock:a > :9000", "b EVAL extend 1 lock:a me 7000 > :1",
			"o EVAL release 1 lock:a me > :1", "d EXISTS lock:a > :0", "b SET lock:a me NX PX 5000 > +OK"},
		"acquire or extend":               {"b EVAL takeOrExtend 1 lock:a me 5000 > :1", "b EVAL takeOrExtend 1 lock:a me 9000 > :1", "o PTTL lock:a > :9000", "b EVAL takeOrExtend 1 lock:a you 9000 > :0", "o EVAL takeOrExtend 1 lock:a me 7000 > :1", "d PTTL lock:a > :7000"},
		"acquire or extend, taken in on":  {"o EVAL takeOrExtend 1 lock:a me 5000 > :1", "b EVAL takeOrExtend 1 lock:a you 5000 > :0", "d EXISTS lock:a > :0", "b EVAL takeOrExtend 1 lock:a me 9000 > :1", "d PTTL lock:a > :9000"},
		"a hash":                          {"b EVAL enter 1 lock:a 5000 me > $-1", "b EVAL enter 1 lock:a 5000 me > $-1", "d HGET lock:a me > $1 2", "o EVAL enter 1 lock:a 5000 you > :5000", "b EVAL enter 1 lock:a 5000 you > :5000", "b EVAL leave 1 lock:a 5000 me > :0", "o HGET lock:a me > $1 1", "b EVAL extendHash 1 lock:a 9000 me > :1", "o PTTL lock:a > :9000", "b EVAL leave 1 lock:a 5000 me > :1", "o EXISTS lock:a > :0"},
		"a hash that the nodes have":      {"o EVAL enter 1 lock:a 5000 you > $-1", "b EVAL enter 1 lock:a 5000 me > :4950", "d EXISTS lock:a > :0", "b EVAL extendHash 1 lock:a 9000 you > :1", "b EVAL leave 1 lock:a 5000 you > :1", "o EXISTS lock:a > :0"},
		"a hash of both in on":            {"b EVAL enter 1 lock:a 5000 me > $-1", "o EVAL enter 1 lock:a 9000 me > $-1", "d HGET lock:a me > $1 2", "d PTTL lock:a > :9000", "o EVAL leave 1 lock:a 9000 me > :0", "d HGET lock:a me > $1 1", "b EVAL leave 1 lock:a 9000 me > :1", "d EXISTS lock:a > :0", "o EXISTS lock:a > :0"},
		"a hash of both, deleted in on":   {"b EVAL enter 1 lock:a 5000 me > $-1", "b EVAL enter 1 lock:a 5000 me > $-1", "o DEL lock:a > :1", "d EXISTS lock:a > :0"},
		"without compare":                 {"b SET lock:a me NX PX 5000 > +OK", "b EXPIRE lock:a 9 > :1", "o PTTL lock:a > :9000", "b DEL lock:a > :1", "o EXISTS lock:a > :0", "o SET lock:a me NX PX 5000 > +OK", "b DEL lock:a > :1", "o EXISTS lock:a > :0"},
		"several keys":                    {"b SET lock:a me NX PX 5000 > +OK", "b SET lock:b me NX PX 5000 > +OK", "b EXISTS lock:a lock:b lock:c > :2", "b DEL lock:a lock:b lock:c > :2", "o EXISTS lock:a > :0", "o EXISTS lock:b > :0"},
		"its reply does not tell":         {`b EVAL always 1 lock:a me > ADOPTREFUSED EVAL lock:a: its reply does not tell whether it has changed the lock, which mode=both must know; adopted by "lock:*"`},
		"its reply may be another's rest": {`b EVAL takeLeft 1 lock:a me > ADOPTREFUSED EVAL lock:a: its reply does not tell whether it has changed the lock, which mode=both must know; adopted by "lock:*"`, "d EXISTS lock:a > :0"},
		"what the nodes would refuse":     {`b SET lock:a me NX PX 90000 > ADOPTREFUSED SET lock:a: its ttl of 1m30s is over max-ttl, 1m0s; adopted by "lock:*"`, "d EXISTS lock:a > :0"},
		"without an end": {"b SETNX lock:a me > :1", "o TTL lock:a > :-1", "d SETNX lock:a you > :0", "o SETNX lock:a you > :0", "o EXPIRE lock:a 9 > :1", "d PTTL lock:a > :9000", "o TTL lock:a > :9",
			"o PERSIST lock:a > :1", "d PTTL lock:a > :-1", "b EXPIRE lock:a 7 > :1", "o TTL lock:a > :7", "b DEL lock:a > :1", "d EXISTS lock:a > :0", "o EXISTS lock:a > :0"},
		"that it has no end any more": {"b SET lock:a me NX PX 5000 > +OK", "b PERSIST lock:a > :1", "d TTL lock:a > :-1", "o TTL lock:a > :-1", "b PERSIST lock:a > :0", "b EVAL extend 1 lock:a me 9000 > :1", "d PTTL lock:a > :9000", "o PTTL lock:a > :9000",
			"b EVAL persist 1 lock:a you > :0", "b EVAL persist 1 lock:a me > :1", "o TTL lock:a > :-1", "b DEL lock:a > :1", "b PERSIST lock:a > :0", "o EXISTS lock:a > :0"},
		"that has no end any more, taken in on": {"o SET lock:a me NX PX 5000 > +OK", "b PERSIST lock:a > :1", "o TTL lock:a > :-1", "d EXISTS lock:a > :0", "b EVAL extend 1 lock:a me 9000 > :1", "o PTTL lock:a > :9000"},
		"a hash has an end":                     {"b EVAL enter 1 lock:a 5000 me > $-1", `b PERSIST lock:a > ADOPTREFUSED PERSIST lock:a: a hash that has no end: give it a ttl; adopted by "lock:*"`, "d PTTL lock:a > :5000", "o PTTL lock:a > :5000"},
		"a sorted set has an end":               {"b EVAL takeSorted 1 lock:a me 5000 > :1", `b PERSIST lock:a > ADOPTREFUSED PERSIST lock:a: a sorted set without an end; adopted by "lock:*"`, "d PTTL lock:a > :5000", "o PTTL lock:a > :5000"},
		"read and taken by one script":          {"b EVAL readOr 1 lock:a read me > $-1", "b EVAL readOr 1 lock:a take me > +OK", "o GET lock:a > $2 me"},
		"its value stands in the script":        {"b SET lock:a me NX PX 2000 > +OK", "b EVAL extendMe 1 lock:a > :1", "o PTTL lock:a > :9000"},
		"a command that is wrong":               {"b SET lock:a me NX PX x > -ERR value is not an integer or out of range", "o EXISTS lock:a > :0"},
		"the upstream has another kind":         {"d EVAL enter 1 lock:a 5000 you > $-1", "b GET lock:a > -WRONGTYPE Operation against a key holding the wrong kind of value", "b SET lock:a me NX PX 5000 > $-1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				modes(t, "").run(t, steps)
			})
		})
	}
}

// TestBoth_Replaces: what writes another value than the one that is held does so in both places, and takes the lock from whoever has it
// in either.
func TestBoth_Replaces(t *testing.T) {
	refused := func(command, why string) string {
		return "ADOPTREFUSED " + command + " lock:a: " + why + `; adopted by "lock:*"`
	}
	for name, steps := range map[string][]string{
		"nobody's":                 {"b SET lock:a me PX 5000 > +OK", "d GET lock:a > $2 me", "o GET lock:a > $2 me", "b EVAL release 1 lock:a me > :1", "o EXISTS lock:a > :0"},
		"one of both":              {"b SET lock:a me NX PX 5000 > +OK", "b SET lock:a you PX 9000 > +OK", "d GET lock:a > $3 you", "o GET lock:a > $3 you", "o PTTL lock:a > :9000", "b EVAL extend 1 lock:a me 5000 > :0", "b EVAL release 1 lock:a me > :0", "b EVAL extend 1 lock:a you 8000 > :1", "o PTTL lock:a > :8000", "b EVAL release 1 lock:a you > :1", "d EXISTS lock:a > :0", "o EXISTS lock:a > :0"},
		"the upstream's":           {"d SET lock:a me NX PX 5000 > +OK", "b SET lock:a you PX 9000 > +OK", "d GET lock:a > $3 you", "o GET lock:a > $3 you", "b EVAL extend 1 lock:a me 5000 > :0", "b EVAL release 1 lock:a you > :1"},
		"the nodes'":               {"o SET lock:a me NX PX 5000 > +OK", "b SET lock:a you PX 9000 > +OK", "d GET lock:a > $3 you", "o GET lock:a > $3 you", "b EVAL extend 1 lock:a me 5000 > :0", "o EVAL release 1 lock:a me > :0", "b EVAL release 1 lock:a you > :1", "o EXISTS lock:a > :0"},
		"one of each":              {"o SET lock:a me NX PX 5000 > +OK", "d SET lock:a you NX PX 5000 > +OK", "b SET lock:a third PX 9000 > +OK", "d GET lock:a > $5 third", "o GET lock:a > $5 third"},
		"the same value":           {"b SET lock:a me PX 5000 > +OK", "b SET lock:a me PX 9000 > +OK", "d PTTL lock:a > :9000", "o PTTL lock:a > :9000", "b EVAL release 1 lock:a me > :1", "o EXISTS lock:a > :0"},
		"SETEX":                    {"b SETEX lock:a 5 me > +OK", "b PSETEX lock:a 9000 you > +OK", "o GET lock:a > $3 you", "o PTTL lock:a > :9000"},
		"SET GET":                  {"b SET lock:a me PX 5000 GET > $-1", "b SET lock:a you PX 9000 GET > $2 me", "o GET lock:a > $3 you"},
		"GETSET":                   {"b GETSET lock:a me > $-1", "o TTL lock:a > :-1", "b GETSET lock:a you > $2 me", "o GET lock:a > $3 you", "o TTL lock:a > :-1"},
		"SET XX":                   {"b SET lock:a me XX PX 5000 > $-1", "o EXISTS lock:a > :0", "b SET lock:a me NX PX 5000 > +OK", "b SET lock:a you XX PX 9000 > +OK", "d GET lock:a > $3 you", "o GET lock:a > $3 you", "o PTTL lock:a > :9000", "b SET lock:a you XX PX 7000 > +OK", "o PTTL lock:a > :7000"},
		"SET XX, taken in on":      {"o SET lock:a me NX PX 5000 > +OK", "b SET lock:a me XX PX 9000 > +OK", "o PTTL lock:a > :9000", "d EXISTS lock:a > :0", "b SET lock:a you XX PX 8000 > +OK", "o GET lock:a > $3 you", "d EXISTS lock:a > :0", "b EVAL extend 1 lock:a you 7000 > :1", "b EVAL release 1 lock:a you > :1", "o EXISTS lock:a > :0"},
		"SET XX, and both have it": {"o SET lock:a me NX PX 5000 > +OK", "d SET lock:a you NX PX 5000 > +OK", "b SET lock:a me XX PX 9000 > +OK", "d GET lock:a > $2 me", "o GET lock:a > $2 me", "b EVAL release 1 lock:a me > :1", "o EXISTS lock:a > :0"},
		"a hash":                   {"b EVAL enter 1 lock:a 5000 me > $-1", "b EVAL enter 1 lock:a 5000 me > $-1", "b SET lock:a you PX 9000 > +OK", "d GET lock:a > $3 you", "o GET lock:a > $3 you", "b EVAL release 1 lock:a you > :1", "o EXISTS lock:a > :0"},
		"compare and set":          {"b SET lock:a me NX PX 5000 > +OK", "b EVAL compareAndSet 1 lock:a you x 9000 > :0", "b EVAL compareAndSet 1 lock:a me you 9000 > :1", "d GET lock:a > $3 you", "o GET lock:a > $3 you", "b EVAL release 1 lock:a you > :1", "o EXISTS lock:a > :0"},
		"compare and set in on":    {"b SET lock:a me NX PX 5000 > +OK", "o EVAL compareAndSet 1 lock:a me you 9000 > :1", "d EXISTS lock:a > :0", "b EVAL compareAndSet 1 lock:a me x 9000 > :0", "b EVAL compareAndSet 1 lock:a you x 8000 > :1", "d EXISTS lock:a > :0", "o GET lock:a > $1 x", "b EVAL extend 1 lock:a x 7000 > :1", "b EVAL release 1 lock:a x > :1", "o EXISTS lock:a > :0"},
		"compare, and the upstream has another's": {"o SET lock:a me NX PX 5000 > +OK", "d SET lock:a you NX PX 5000 > +OK", "b EVAL compareAndSet 1 lock:a me x 9000 > :0", "o GET lock:a > $2 me"},
		"take or rewrite":                         {"b EVAL takeOrRewrite 1 lock:a me me 5000 > :1", "b EVAL takeOrRewrite 1 lock:a me you 9000 > :1", "d GET lock:a > $3 you", "o GET lock:a > $3 you", "b EVAL takeOrRewrite 1 lock:a me x 9000 > :0", "o EVAL takeOrRewrite 1 lock:a you x 8000 > :1", "d EXISTS lock:a > :0", "b EVAL takeOrRewrite 1 lock:a x y 7000 > :1", "d GET lock:a > $1 y", "o GET lock:a > $1 y", "b EVAL release 1 lock:a y > :1", "o EXISTS lock:a > :0"},
		"the nodes have another's":                {"o SET lock:a you NX PX 5000 > +OK", "b EVAL takeOrRewrite 1 lock:a me me 5000 > :0", "d EXISTS lock:a > :0"},
		"for what is left":                        {"b SET lock:a me PX 5000 > +OK", "b SET lock:a you KEEPTTL > " + refused("SET", "it would replace a lock for what is left of its lease, which mode=both must know"), "b EVAL keepLeft 1 lock:a me you > " + refused("EVAL", "it would replace a lock for what is left of its lease, which mode=both must know"), "d GET lock:a > $2 me"},
		"a sorted set":                            {"b EVAL takeSorted 1 lock:a me 5000 > :1", "b EVAL takeSorted 1 lock:a you 5000 > $-1", "o EVAL extendSorted 1 lock:a me 9000 > :1", "d PTTL lock:a > :9000", "b EVAL extendSorted 1 lock:a me 8000 > :1", "o PTTL lock:a > :8000", "b SET lock:a you PX 5000 > +OK", "o GET lock:a > $3 you"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				modes(t, "as=full").run(t, steps)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		modes(t, "as=usual").run(t, []string{"o SET lock:a you NX PX 5000 > +OK", "b EVAL oddly 1 lock:a me 5000 > " + refused("EVAL", "it would write another value than the one that is held, and does not compare that: set as=full"), "o GET lock:a > $3 you"})
	})
	synctest.Test(t, func(t *testing.T) {
		modes(t, "no-expiry=refuse").run(t, []string{"b SET lock:a me NX PX 5000 > +OK", "b PERSIST lock:a > " + refused("PERSIST", "it has no end: set no-expiry=keep or no-expiry=lease:DURATION"), "d PTTL lock:a > :5000"})
	})
	synctest.Test(t, func(t *testing.T) {
		modes(t, "as=usual").run(t, []string{
			"b SET lock:a me PX 5000 > " + refused("SET", "OVERWRITE does not compare the value: set as=full"), "b SET lock:a me NX PX 5000 > +OK",
			"b SET lock:a you XX PX 5000 > " + refused("SET", "it would write another value than the one that is held, and does not compare that: set as=full"), "d GET lock:a > $2 me",
			"b EVAL compareAndSet 1 lock:a me you 9000 > :1", "d GET lock:a > $3 you", "o GET lock:a > $3 you",
		})
	})
}

// TestBoth_ReplacesNoNative: what LOCK has taken is not replaced, and the upstream does not keep what was to replace it.
func TestBoth_ReplacesNoNative(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := modes(t, "as=full")
		if d, err := m["b"].a.opt.Engine.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "lock:a"}, Owner: "somebody", TTL: time.Minute}); err != nil || !d.Granted {
			t.Fatal(d, err)
		}
		m.run(t, []string{`b SET lock:a me PX 5000 > ADOPTREFUSED SET lock:a: a change of a lock that was taken with LOCK; adopted by "lock:*"`, "d EXISTS lock:a > :0"})
	})
}

// TestBoth_ReplacesInOrder: of two programs of one proxy that overwrite a lock at once, one is the last in both places.
func TestBoth_ReplacesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := modes(t, "as=full")
		m["b"].a.opt.Engine = &delayed{Engine: m["b"].a.opt.Engine, first: time.Second}
		second := &beside{client: client{t: t, a: m["b"].a, proto: 2}, up: m["b"].up}
		var all sync.WaitGroup
		all.Go(func() { m.run(t, []string{"b SET lock:a me PX 5000 > +OK"}) })
		synctest.Wait()
		all.Go(func() { besides{"second": second}.run(t, []string{"second SET lock:a you PX 5000 > +OK"}) })
		all.Wait()
		m.run(t, []string{"d GET lock:a > $3 you", "o GET lock:a > $3 you"})
	})
}

// A delayed engine lets the first LOCK wait.
type delayed struct {
	Engine
	first time.Duration
}

func (e *delayed) Lock(ctx context.Context, r locks.LockRequest) (locks.Decision, error) {
	wait := e.first
	e.first = 0
	time.Sleep(wait)
	return e.Engine.Lock(ctx, r)
}

// An unread engine cannot be asked what it has.
type unread struct {
	Engine
	why error
}

func (e unread) Read(context.Context, locks.Key) (locks.Reading, error) {
	return locks.Reading{}, e.why
}

// TestBoth_ReplaceFails: the reply says that the lock may be lost, since the upstream has it no more.
func TestBoth_ReplaceFails(t *testing.T) {
	for command, forgets := range map[string]bool{"SET lock:a you PX 5000": false, "EVAL compareAndSet 1 lock:a me you 5000": true} {
		synctest.Test(t, func(t *testing.T) {
			m := modes(t, "as=full")
			b := m["b"]
			m.run(t, []string{"b SET lock:a me NX PX 5000 > +OK"})
			few := &locks.QuorumError{Op: "LOCK", Name: "lock:a", Nodes: 3, Need: 2, Got: 1}
			b.a.opt.Engine = unread{&scripted{lock: func(locks.LockRequest) (locks.Decision, error) { return locks.Decision{}, few }}, few}
			if forgets {
				b.a.guesses.Purge()
			}
			args := strings.Fields(command)
			for i, w := range args {
				args[i] = cmp.Or(bothScripts[w], w)
			}
			var words [][]byte
			for _, w := range args {
				words = append(words, []byte(w))
			}
			call, err := b.a.Call(b, words, Keys{[]int{1}, true})
			if err != nil {
				t.Fatal(err)
			}
			_, err = b.a.Decide(t.Context(), b, call)
			partial, isPartial := err.(*PartialError)
			if !isPartial || string(partial.Amend([]byte("-NOQUORUM why\r\n"))) != "-NOQUORUM why (the lock that it was to replace may be lost)\r\n" {
				t.Errorf("%s: %v", command, err)
			}
			if got := m["d"].do("GET lock:a"); got != "$3 you" {
				t.Errorf("%s: the upstream has %s; its client may have it still", command, got)
			}
		})
	}
}

// TestBoth_ReplacementIsUndoneForVanishedClient: what a client has written over a lock is in neither place after the client
// has left.
func TestBoth_ReplacementIsUndoneForVanishedClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := modes(t, "as=full")
		b := m["b"]
		m.run(t, []string{"b SET lock:a me NX PX 5000 > +OK"})
		call, err := b.a.Call(b, [][]byte{[]byte("EVAL"), []byte(compareAndSet), []byte("1"), []byte("lock:a"), []byte("me"), []byte("you"), []byte("5000")}, Keys{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := b.a.Decide(t.Context(), b, call)
		if err != nil {
			t.Fatal(err)
		}
		b.a.GiveBack(b, r)
		m.run(t, []string{"d EXISTS lock:a > :0", "o EXISTS lock:a > :0"})
	})
}

// TestBoth_AwaitsReleaseAtNodes: a call waits for a release that has reached the upstream and not yet the nodes.
func TestBoth_AwaitsReleaseAtNodes(t *testing.T) {
	for name, steps := range map[string][]string{
		"to take it":      {"b SET lock:a me NX PX 5000 > +OK"},
		"to take it over": {"d SET lock:a me NX PX 5000 > +OK", "b EVAL extend 1 lock:a me 9000 > :1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := modes(t, "guard=no")
				m["o"].do("SET lock:a you NX PX 5000")
				go func() {
					time.Sleep(lag / 2)
					m["o"].do("EVAL release 1 lock:a you")
				}()
				m.run(t, steps)
				synctest.Wait()
			})
		})
	}
}

// TestBoth_GivesBack: what was taken at the upstream is released there when the nodes refuse it, or when the client has
// left; but not past half of the lease, when the key may be another client's.
func TestBoth_GivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := modes(t, "")
		b := m["b"]
		m["o"].do("SET lock:a you NX PX 5000")
		if got := b.do("SET lock:a me NX PX 90"); got != "$-1" || m["d"].do("EXISTS lock:a") != ":1" {
			t.Errorf("%s; past half of its lease it was given back", got)
		}
		words := [][]byte{[]byte("SET"), []byte("lock:b"), []byte("me"), []byte("NX"), []byte("PX"), []byte("5000")}
		call, err := b.a.Call(b, words, Keys{[]int{1}, true})
		if err != nil {
			t.Fatal(err)
		}
		r, err := b.a.Decide(t.Context(), b, call)
		if err != nil || m["d"].do("EXISTS lock:b") != ":1" {
			t.Fatal(err)
		}
		b.a.GiveBack(b, r)
		for _, who := range []string{"d", "o"} {
			if got := m[who].do("EXISTS lock:b"); got != ":0" {
				t.Errorf("%s: it is still held", who)
			}
		}
		b.fail = errors.New("lost")
		if got := b.do("SET lock:c me NX PX 5000"); got != "lost" || m["o"].do("EXISTS lock:c") != ":0" {
			t.Errorf("the upstream did not answer: %s", got)
		}
	})
}

// TestBoth_Divergence: where upstream and nodes differ is counted.
func TestBoth_Divergence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := modes(t, "")
		m["o"].do("SET lock:a you NX PX 5000")
		m["b"].do("SET lock:a me NX PX 5000") // nodes_held
		m["b"].others.on = true
		m["d"].do("SET lock:b me NX PX 5000")     //
		m["b"].do("EVAL extend 1 lock:b me 5000") // nodes_lack
		m["b"].do("EVAL release 1 lock:b me")     // nodes_lack
		m["b"].do("SET lock:c me NX PX 5000")
		m["d"].do("DEL lock:c")
		m["b"].do("EVAL release 1 lock:c me") // upstream_lacks
		for how, want := range map[string]float64{"nodes_held": 1, "nodes_lack": 2, "upstream_lacks": 1, "unclear": 0} {
			if s := (metrics.Registry{m["b"].a}).Sample("lockproxy_adopt_divergence_total", "pattern", "lock:*", "how", how); s == nil || s.Value != want {
				t.Errorf("%s: %+v", how, s)
			}
		}
	})
}

// TestFollowCopy_NotForGrantsOfModeOn: a grant that was made in mode on has no copy, and the upstream is not asked about
// one.
func TestFollowCopy_NotForGrantsOfModeOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := modes(t, "")["o"]
		o.do("SET lock:a me NX PX 5000")
		o.do("EVAL extend 1 lock:a me 5000")
		o.do("EVAL release 1 lock:a me")
		if got := strings.Join(o.asked, " "); got != "PTTL" {
			t.Errorf("the upstream was asked %s", got)
		}
	})
}

// TestBoth_ServesGrantsOfModeOnWhileOthersPoll: a client that has taken the lock in mode on extends and releases it in
// both, though others poll for it in both, and so have its key at the upstream for a moment.
func TestBoth_ServesGrantsOfModeOnWhileOthersPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := modes(t, "")
		m["o"].do("SET lock:a me NX PX 5000")
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for ctx.Err() == nil {
				m["poll"].do("SET lock:a you NX PX 5000")
				m["poll"].up.do([]string{"SET", "lock:a", "an attempt", "NX", "PX", "4000"}) // the next one's
				time.Sleep(lag / 3)
				m["poll"].up.do([]string{"DEL", "lock:a"})
			}
		}()
		time.Sleep(lag)
		for _, step := range []string{"EVAL extend 1 lock:a me 9000", "EVAL release 1 lock:a me"} {
			if got := m["b"].do(step); got != ":1" {
				t.Errorf("%s: %s", step, got)
			}
		}
		cancel()
		time.Sleep(time.Second)
	})
}

// TestBoth_NoTransactions: they are refused, since the upstream gets nothing of them. EXEC in the mode on deletes the copy
// of a grant that both made.
func TestBoth_NoTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := modes(t, "")
		b, o, words, keys := m["b"], m["o"], [][]byte{[]byte("DEL"), []byte("lock:a")}, Keys{[]int{1}, true}
		watched := &Transaction{}
		if err := b.a.Watch(t.Context(), b, watched, [][]byte{[]byte("WATCH"), []byte("lock:a")}, keys); err == nil || watched.Active() {
			t.Errorf("WATCH: %v", err)
		}
		if queued, err := b.a.Queue(b, watched, words, keys, UpstreamTx{}); err == nil || queued {
			t.Errorf("DEL: %v", err)
		}
		b.do("SET lock:a me NX PX 5000")
		if err := o.a.Watch(t.Context(), o, watched, [][]byte{[]byte("WATCH"), []byte("lock:a")}, keys); err != nil {
			t.Fatal(err)
		}
		if queued, err := o.a.Queue(o, watched, words, keys, UpstreamTx{}); err != nil || !queued {
			t.Fatal(err)
		}
		if r, err := o.a.Exec(t.Context(), o, watched); err != nil || string(r.Reply) != "*1\r\n:1\r\n" || m["d"].do("EXISTS lock:a") != ":0" {
			t.Errorf("EXEC: %q, %v; at the upstream the key exists: %s", r.Reply, err, m["d"].do("EXISTS lock:a"))
		}
	})
}
