package adopt

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/metrics"
)

// takenOver is how often a proxy has taken a lock over.
func (c *beside) takenOver() float64 {
	return (metrics.Registry{c.a}).Sample("lockproxy_adopt_taken_over_total").Value
}

// TestBoth_TakesOver: a lock that was taken in off is extended in both, and then is at the nodes as well.
func TestBoth_TakesOver(t *testing.T) {
	for name, steps := range map[string][]string{
		"by a script":  {"d SET lock:a me NX PX 2000 > +OK", "b EVAL extend 1 lock:a me 9000 > :1", "d PTTL lock:a > :9000", "o PTTL lock:a > :9000", "o SET lock:a you NX PX 5000 > $-1", "b EVAL extend 1 lock:a me 8000 > :1", "o PTTL lock:a > :8000", "b EVAL release 1 lock:a me > :1", "d EXISTS lock:a > :0", "o EXISTS lock:a > :0"},
		"by a command": {"d SET lock:a me NX PX 2000 > +OK", "b PEXPIRE lock:a 9000 > :1", "o GET lock:a > $2 me", "o PTTL lock:a > :9000", "b DEL lock:a > :1", "o EXISTS lock:a > :0"},
		"a hash":       {"d EVAL enter 1 lock:a 2000 me > $-1", "b EVAL extendHash 1 lock:a 9000 me > :1", "o HGET lock:a me > $1 1", "o PTTL lock:a > :9000", "o EVAL enter 1 lock:a 5000 you > :9000", "b EVAL leave 1 lock:a 5000 me > :1", "o EXISTS lock:a > :0"},
		"a hash with three holds": {"d EVAL enter 1 lock:a 2000 me > $-1", "d EVAL enter 1 lock:a 2000 me > $-1", "d EVAL enter 1 lock:a 2000 me > $-1", "b EVAL extendHash 1 lock:a 9000 me > :1", "o HGET lock:a me > $1 3", "o PTTL lock:a > :9000",
			"b EVAL leave 1 lock:a 9000 me > :0", "b EVAL leave 1 lock:a 9000 me > :0", "o HGET lock:a me > $1 1", "b EVAL leave 1 lock:a 9000 me > :1", "o EXISTS lock:a > :0", "d EXISTS lock:a > :0"},
		"with another value":        {"d SET lock:a me NX PX 2000 > +OK", "b EVAL compareAndSet 1 lock:a me you 9000 > :1", "d PTTL lock:a > :9000", "o PTTL lock:a > :9000", "b EVAL extend 1 lock:a you 8000 > :1", "o PTTL lock:a > :8000", "b EVAL release 1 lock:a you > :1", "o EXISTS lock:a > :0"},
		"that has no end":           {"d SET lock:a me NX PX 2000 > +OK", "b PERSIST lock:a > :1", "o GET lock:a > $2 me", "o TTL lock:a > :-1", "b EVAL extend 1 lock:a me 8000 > :1", "o PTTL lock:a > :8000"},
		"by SET XX":                 {"d SET lock:a me NX PX 2000 > +OK", "b SET lock:a me XX PX 9000 > +OK", "o GET lock:a > $2 me", "o PTTL lock:a > :9000"},
		"from another by SET XX":    {"d SET lock:a me NX PX 2000 > +OK", "b SET lock:a you XX PX 9000 > +OK", "d GET lock:a > $3 you", "o GET lock:a > $3 you", "b EVAL release 1 lock:a you > :1", "o EXISTS lock:a > :0"},
		"a sorted set":              {"d EVAL takeSorted 1 lock:a me 2000 > :1", "b EVAL extendSorted 1 lock:a me 9000 > :1", "o PTTL lock:a > :9000", "b EVAL releaseSorted 1 lock:a me > :2", "o EXISTS lock:a > :0"},
		"where one of both is lost": {"b SET lock:a you NX PX 8000 > +OK", "d DEL lock:a > :1", "d SET lock:a me NX PX 2000 > +OK", "b EVAL extend 1 lock:a me 9000 > :1", "o GET lock:a > $2 me", "o PTTL lock:a > :9000", "b EVAL release 1 lock:a you > :0", "b EVAL release 1 lock:a me > :1", "o EXISTS lock:a > :0"},
		"a hash where one of both is lost": {"b EVAL enter 1 lock:a 8000 you > $-1", "b EVAL enter 1 lock:a 8000 you > $-1", "d DEL lock:a > :1", "d EVAL enter 1 lock:a 2000 me > $-1", "d EVAL enter 1 lock:a 2000 me > $-1", "b EVAL extendHash 1 lock:a 9000 me > :1", "o HGET lock:a me > $1 2", "o PTTL lock:a > :9000",
			"b EVAL leave 1 lock:a 9000 me > :0", "b EVAL leave 1 lock:a 9000 me > :1", "o EXISTS lock:a > :0"},
		"a hash by a command": {"d EVAL enter 1 lock:a 2000 me > $-1", "b PEXPIRE lock:a 9000 > :1", "o HGET lock:a me > $1 1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := modes(t, "guard=no as=full")
				m.run(t, steps)
				if n := m["b"].takenOver(); n != 1 {
					t.Errorf("%v locks were taken over", n)
				}
			})
		})
	}
}

// TestBoth_TakesNothingOver: a lock that another may have, or may have had meanwhile, is lost, and the nodes are left as they were.
func TestBoth_TakesNothingOver(t *testing.T) {
	extend := func(value string) func(m besides) string {
		return func(m besides) string { return m["b"].do("EVAL extend 1 lock:a " + value + " 9000") }
	}
	for name, tt := range map[string]struct {
		before func(m besides)
		call   func(m besides) string
		want   string // the answer, and whether the nodes have it
	}{
		"another proxy is on":      {func(m besides) { m["b"].others.on = true }, extend("me"), ":0 :0"},
		"that cannot be found out": {func(m besides) { m["b"].others.err = errors.New("NOQUORUM few") }, extend("me"), "NOQUORUM few :0"},
		"the nodes have another's": {func(m besides) { m["o"].do("SET lock:a you NX PX 3000") }, extend("me"), ":0 :1"},
		"it is another's":          {func(besides) {}, extend("you"), ":0 :0"},
		"another proxy is on, and the nodes have one of both": {func(m besides) {
			m["d"].do("DEL lock:a")
			m["b"].do("SET lock:a you NX PX 5000")
			m["d"].do("DEL lock:a")
			m["d"].do("SET lock:a me NX PX 5000")
			m["b"].others.on = true
		}, extend("me"), ":0 :1"},
		"another's since it was": {func(m besides) {
			m["b"].when("GET", func() { m["d"].do("DEL lock:a"); m["d"].do("SET lock:a you NX PX 5000") })
		}, extend("me"), ":0 :0"},
		"gone since it was": {func(m besides) { m["b"].when("GET", func() { m["d"].do("DEL lock:a") }) }, extend("me"), ":0 :0"},
		"gone when the nodes have it": {func(m besides) {
			m["b"].when("PTTL", func() { m["b"].when("GET", func() { m["d"].do("DEL lock:a") }) })
		}, extend("me"), ":0 :0"},
		"another's when the nodes have it": {func(m besides) {
			m["b"].when("PTTL", func() { m["b"].when("GET", func() { m["d"].do("DEL lock:a"); m["d"].do("SET lock:a you NX PX 5000") }) })
		}, extend("me"), ":0 :0"},
		"the upstream is lost then": {func(m besides) {
			m["b"].when("PTTL", func() { m["b"].when("GET", func() { m["b"].fail = errors.New("lost") }) })
		}, extend("me"), "lost :0"},
		"its lease is over then": {func(m besides) {
			m["b"].when("PTTL", func() { m["b"].when("GET", func() { m["d"].do("PEXPIRE lock:a 60000"); time.Sleep(9 * time.Second) }) })
		}, extend("me"), errLate.Error() + " :0"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := modes(t, "guard=no")
				m["d"].do("SET lock:a me NX PX 5000")
				tt.before(m)
				got := tt.call(m)
				synctest.Wait()
				if got += " " + m["o"].do("EXISTS lock:a"); got != tt.want {
					t.Errorf("%s, want %s", got, tt.want)
				}
				if n := m["b"].takenOver(); n != 0 {
					t.Errorf("%v locks were taken over", n)
				}
			})
		})
	}
}

// TestBoth_TakesOverOnce: two calls that extend the same lock at once, through two proxies, both have it extended, and its holds
// are counted once.
func TestBoth_TakesOverOnce(t *testing.T) {
	for _, steps := range []string{
		"SET lock:a me NX PX 2000 > EVAL extend 1 lock:a me 9000",
		"EVAL enter 1 lock:a 2000 me > EVAL extendHash 1 lock:a 9000 me",
	} {
		synctest.Test(t, func(t *testing.T) {
			m := modes(t, "guard=no")
			take, extend, _ := strings.Cut(steps, " > ")
			m["d"].do(take)
			m["b"].when("PTTL", func() {
				if got := m["poll"].do(extend); got != ":1" {
					t.Errorf("the other proxy: %s", got)
				}
			})
			if got := m["b"].do(extend); got != ":1" {
				t.Errorf("%s: %s", steps, got)
			}
			if n := m["b"].takenOver() + m["poll"].takenOver(); n != 1 {
				t.Errorf("%v locks were taken over", n)
			}
			if strings.Contains(take, "enter") && m["o"].do("HGET lock:a me") != "$1 1" {
				t.Errorf("the nodes have %s holds", m["o"].do("HGET lock:a me"))
			}
		})
	}
}

// TestBoth_CountsHoldsInBothPlaces: a hash that was taken in another mode, and is entered again in both, has as many holds in both
// places: the release of one of them frees it in neither.
func TestBoth_CountsHoldsInBothPlaces(t *testing.T) {
	for name, steps := range map[string][]string{
		"taken in off": {"d EVAL enter 1 lock:a 5000 me > $-1", "d EVAL enter 1 lock:a 5000 me > $-1", "b EVAL enter 1 lock:a 9000 me > $-1", "d HGET lock:a me > $1 3", "o HGET lock:a me > $1 3", "o PTTL lock:a > :9000", "b EVAL leave 1 lock:a 8000 me > :0", "b EVAL enter 1 lock:a 9000 me > $-1", "d HGET lock:a me > $1 3", "o HGET lock:a me > $1 3",
			"b EVAL leave 1 lock:a 8000 me > :0", "b EVAL leave 1 lock:a 8000 me > :0", "o EVAL enter 1 lock:a 5000 you > :8000", "b EVAL leave 1 lock:a 8000 me > :1", "d EXISTS lock:a > :0", "o EXISTS lock:a > :0"},
		"taken in on":   {"o EVAL enter 1 lock:a 5000 me > $-1", "o EVAL enter 1 lock:a 5000 me > $-1", "b EVAL enter 1 lock:a 9000 me > $-1", "d HGET lock:a me > $1 3", "o HGET lock:a me > $1 3", "b EVAL leave 1 lock:a 8000 me > :0", "b EVAL leave 1 lock:a 8000 me > :0", "d EVAL enter 1 lock:a 5000 you > :8000", "b EVAL leave 1 lock:a 8000 me > :1", "d EXISTS lock:a > :0", "o EXISTS lock:a > :0"},
		"taken in both": {"b EVAL enter 1 lock:a 5000 me > $-1", "b EVAL enter 1 lock:a 5000 me > $-1", "o EVAL enter 1 lock:a 5000 me > $-1", "d HGET lock:a me > $1 3", "o HGET lock:a me > $1 3"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { modes(t, "").run(t, steps) })
		})
	}
}

// TestBoth_HoldsThatCannotBeCounted: what was entered is given back where the holds cannot be made the same.
func TestBoth_HoldsThatCannotBeCounted(t *testing.T) {
	lost := errors.New("lost")
	for name, tt := range map[string]struct {
		before func(m besides)
		want   string // the answer, and the holds at the upstream and at the nodes
	}{
		"too many": {func(m besides) {
			for range mostHolds - 1 {
				m["d"].do("EVAL enter 1 lock:a 5000 me")
			}
		}, `ADOPTREFUSED EVAL lock:a: its holder has entered it more than 64 times at the upstream; adopted by "lock:*", $2 64, $-1`},
		"the upstream is lost":     {func(m besides) { m["b"].when("EVAL", func() { m["b"].fail = lost }) }, "lost, $1 1, $-1"},
		"the nodes do not vote":    {func(m besides) { m["b"].a.opt.Engine = &onceOnly{Engine: m["b"].a.opt.Engine, then: lost} }, "lost, $1 1, $-1"},
		"it is released meanwhile": {func(m besides) { m["b"].when("HGET", func() { m["d"].do("DEL lock:a") }) }, "$-1, $-1, $1 1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := modes(t, "")
				m["d"].do("EVAL enter 1 lock:a 5000 me")
				tt.before(m)
				got := m["b"].do("EVAL enter 1 lock:a 5000 me")
				synctest.Wait()
				if got += ", " + m["d"].do("HGET lock:a me") + ", " + m["o"].do("HGET lock:a me"); got != tt.want {
					t.Errorf("%s, want %s", got, tt.want)
				}
			})
		})
	}
}

// A onceOnly engine grants once.
type onceOnly struct {
	Engine
	granted bool
	then    error
}

func (e *onceOnly) Lock(ctx context.Context, r locks.LockRequest) (locks.Decision, error) {
	if e.granted {
		return locks.Decision{}, e.then
	}
	e.granted = true
	return e.Engine.Lock(ctx, r)
}

// TestBoth_TakesOverHoldsThatChange: a hash that is entered again, or left, while it is taken over stays its holder's, with as many
// holds at the nodes as the upstream has.
func TestBoth_TakesOverHoldsThatChange(t *testing.T) {
	for what, want := range map[string]string{"d EVAL leave 1 lock:a 5000 me": "$1 2", "poll EVAL enter 1 lock:a 5000 me": "$1 4"} {
		synctest.Test(t, func(t *testing.T) {
			m := modes(t, "guard=no")
			for range 3 {
				m["d"].do("EVAL enter 1 lock:a 5000 me")
			}
			who, command, _ := strings.Cut(what, " ")
			m["b"].when("PTTL", func() { m["b"].when("GET", func() { m[who].do(command) }) })
			if got := m["b"].do("EVAL extendHash 1 lock:a 9000 me"); got != ":1" {
				t.Errorf("%s: %s", what, got)
			}
			synctest.Wait()
			if nodes, up := m["o"].do("HGET lock:a me"), m["d"].do("HGET lock:a me"); nodes != want || up != want {
				t.Errorf("%s: the nodes have %s holds, the upstream %s, want %s", what, nodes, up, want)
			}
		})
	}
}
