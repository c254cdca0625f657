package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// lockAllScripts say what is told of several names at once, each on names of its own.
var lockAllScripts = []script{
	{"three names", []step{
		{"a", "LOCKALL 3 <job>c <job>a <job>b 30s OWNER me", `*[:<20000..29999> $"me" *[$"<job>c" :<c> :1] *[$"<job>a" :<a> :1] *[$"<job>b" :<b> :1]]`},
		{"other.b3", "LOCKALL 2 <job>a <job>d 30s OWNER you", "_"},
		{"b", "LOCK <job>c 30s OWNER you", "*-1"},
		{"other.a", "RENEW <job>a 20s me FENCE <a>", ":<10000..19999>"},
		{"other.a", "RENEWALL 3 <job>a <job>b <job>c 25s me", ":<15000..24999>"},
		{"a", "UNLOCKALL 3 <job>a <job>b <job>c me", ":1"},
		{"other.b3", "LOCKALL 3 <job>a <job>b <job>c 30s OWNER you", `*[:<_> $"you" *[$"<job>a" :<a2> :1] *[$"<job>b" :<b2> :1] *[$"<job>c" :<c2> :1]]`},
		{"less", "a a2", ""},
		{"less", "b b2", ""},
		{"less", "c c2", ""},
	}},
	{"all or nothing", []step{
		{"a", "LOCK <job>b 30s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"b", "LOCKALL 3 <job>a <job>b <job>c 30s OWNER you", "*-1"},
		{"b", "LOCKALL 3 <job>c <job>b <job>a 30s OWNER you RETRYAFTER", `*[:0 $"me" :<10000..30000> :0 $"<job>b"]`},
		{"other.c", "LOCK <job>a 30s OWNER they", `*[:<_> $"they" :<_> :1]`},
		{"other.c", "LOCK <job>c 30s OWNER they", `*[:<_> $"they" :<_> :1]`},
		{"b", "LOCKALL 3 <job>c <job>b <job>a 30s OWNER you RETRYAFTER", `*[:0 $"<...>" :<10000..30000> :0 $"<job><...>"]`}, // one of them,
	}},
	{"without an owner", []step{
		{"a", "LOCKALL 2 <job>a <job>b 30s", `*[:<_> $"<o>" *[$"<job>a" :<f> :1] *[$"<job>b" :<_> :1]]`},
		{"a", "LOCK <job>c 30s", `*[:<_> $"<p>" :<_> :1]`},
		{"b", "UNLOCKALL 2 <job>a <job>b", "-ERR this connection has not taken '<job>a' without OWNER; UNLOCKALL must name the owner, which LOCK answered"},
		{"a", "RENEWALL 3 <job>c <job>b <job>a 20s", ":<10000..19999>"},
		{"a", "RENEWALL 2 <job>a <job>d 20s", "-ERR this connection has not taken '<job>d' <...>"},
		{"other.b", "RENEWALL 2 <job>b <job>a 20s <o>", ":<10000..19999>"},
		{"a", "UNLOCK <job>b", ":1"},
		{"a", "UNLOCKALL 2 <job>a <job>c", ":1"},
		{"b", "LOCKALL 3 <job>a <job>b <job>c 30s OWNER you", `*[:<_> $"you" <...>`},
	}},
	{"one name given back early", []step{
		{"a", "LOCKALL 3 <job>a <job>b <job>c 30s OWNER me", `*[:<_> $"me" *[$"<job>a" :<a> :1] *[$"<job>b" :<b> :1] *[$"<job>c" :<_> :1]]`},
		{"other.a", "UNLOCK <job>b me FENCE <b>", ":1"},
		{"b", "LOCK <job>b 30s OWNER you", `*[:<b2> $"you" :<_> :1]`},
		{"less", "b b2", ""},
		{"a", "RENEWALL 2 <job>a <job>c 20s me", ":<10000..19999>"},
		{"other.a", "UNLOCKALL 2 <job>c <job>a me", ":1"},
	}},
	{"names that are lost", []step{
		{"a", "LOCKALL 4 <job>a <job>b <job>c <job>d 30s OWNER me", `*[:<_> $"me" <...>`},
		{"other.b", "LOCKCTL FORCE <job>b", `*[$"name" $"<job>b"<...>`},
		{"b", "LOCKCTL FORCE <job>d", `*[$"name" $"<job>d"<...>`},
		{"b", "LOCK <job>d 30s OWNER you", `*[:<_> $"you" :<_> :1]`},
		{"a", "RENEWALL 4 <job>d <job>c <job>b <job>a 20s me", "-LOCKLOST <job>b: <...> may be compromised. NOTOWNER <job>d: another owner holds the lock for <_>ms. The other 2 names were renewed"},
		{"b", "LOCK <job>a 30s OWNER you RETRYAFTER", `*[:0 $"me" :<5000..20000> :0]`},
		{"a", "UNLOCKALL 3 <job>b <job>c <job>a me", "-LOCKLOST <job>b: <...> may be compromised. The other 2 names were given back"},
		{"other.b", "LOCKALL 3 <job>a <job>b <job>c 30s OWNER you", `*[:<_> $"you" <...>`},
		{"a", "UNLOCKALL 2 <job>d <job>a me", "-NOTOWNER <job>d: another owner holds the lock for <_>ms. The other name was given back"}, // again
	}},
	{"re-entry", []step{
		{"a", "LOCK <job>b 30s OWNER me", `*[:<b> $"me" :<_> :1]`},
		{"other.a", "LOCKALL 2 <job>a <job>b 20s OWNER me", `*[:<10000..19999> $"me" *[$"<job>a" :<a> :1] *[$"<job>b" :<b> :2]]`},
		{"a", "LOCKALL 2 <job>b <job>a 30s OWNER me NOREENTER RETRYAFTER", `*[:0 $"me" :<_> :0 $"<job><...>"]`},
		{"a", "UNLOCKALL 2 <job>a <job>b me", ":0"},
		{"b", "LOCK <job>a 30s OWNER you", `*[:<_> $"you" :<_> :1]`},
		{"b", "LOCK <job>b 30s OWNER you", "*-1"},
		{"other.a", "LOCKALL 2 <job>b <job>c 30s OWNER me FRESH", `*[:<_> $"me" *[$"<job>b" :<b2> :1] *[$"<job>c" :<_> :1]]`},
		{"less", "b b2", ""},
		{"a", "RENEW <job>b 30s me FENCE <b>", "-LOCKLOST <...>"},
		{"a", "LOCKALL 2 <job>a <job>b 30s OWNER me FRESH", "*-1"},
		{"a", "RENEW <job>b 30s me FENCE <b2>", ":<20000..29999>"},
		{"a", "LOCKALL 2 <job>c <job>b 30s OWNER me", `*[:<_> $"me" *[$"<job>c" :<_> :2] *[$"<job>b" :<b2> :2]]`},
		{"a", "UNLOCKALL 2 <job>b <job>c me ALL", ":1"},
	}},
	{"REQ", []step{
		{"a", "LOCKALL 2 <job>a <job>b 30s OWNER me REQ 1", `*[:<_> $"me" *[$"<job>a" :<a> :1] *[$"<job>b" :<b> :1]]`},
		{"other.a", "LOCKALL 2 <job>a <job>b 30s OWNER me REQ 1", `*[:<_> $"me" *[$"<job>a" :<a> :1] *[$"<job>b" :<b> :1]]`},
		{"other.a", "UNLOCKALL 2 <job>a <job>b me REQ 1", ":1"},
		{"a", "UNLOCKALL 2 <job>a <job>b me REQ 1", ":1"},
		{"a", "LOCKALL 2 <job>a <job>b 30s OWNER me REQ 1", `*[:0 $"me" *[$"<job>a" :<a> :0] *[$"<job>b" :<b> :0]]`},
		{"b", "LOCKALL 2 <job>b <job>a 30s OWNER you REQ 1", `*[:<_> $"you" *[$"<job>b" :<b2> :1] *[$"<job>a" :<a2> :1]]`},
		{"less", "a a2", ""},
		{"less", "b b2", ""},
	}},
	{"REQ of which one name was given back", []step{
		{"a", "LOCKALL 2 <job>a <job>b 30s OWNER me REQ 1", `*[:<_> $"me" *[$"<job>a" :<a> :1] *[$"<job>b" :<b> :1]]`},
		{"a", "UNLOCK <job>b me REQ 1", ":1"},
		{"other.a", "LOCKALL 2 <job>a <job>b 30s OWNER me REQ 1", "-LOCKLOST <...>: this request was granted before, and some of its names were given back since"},
		{"other.b", "LOCK <job>b 30s OWNER you", `*[:<b2> $"you" :<_> :1]`},
		{"a", "UNLOCK <job>a me", ":1"},
	}},
	{"readers", []step{
		{"a", "LOCKALL 2 <job>a <job>b 30s OWNER r1 SHARED", `*[:<_> $"r1" *[$"<job>a" :<a> :1] *[$"<job>b" :<_> :1]]`},
		{"other.b", "LOCKALL 2 <job>b <job>c 30s OWNER r2 SHARED", `*[:<_> $"r2" *[$"<job>b" :<_> :1] *[$"<job>c" :<_> :1]]`}, // a node that has not heard of r1 numbers b later
		{"c", "LOCKALL 2 <job>d <job>b 30s OWNER w", "*-1"},
		{"c", "LOCK <job>d 30s OWNER w", `*[:<_> $"w" :<_> :1]`},
		{"a", "UNLOCKALL 2 <job>a <job>b r1", "-LOCKLOST <job>a, <job>b: <...> say SHARED for that"},
		{"a", "RENEWALL 2 <job>a <job>b 20s r1 SHARED", ":<10000..19999>"},
		{"a", "LOCKALL 2 <job>d <job>a 30s OWNER r1 SHARED", "*-1"},
		{"other.a", "UNLOCKALL 2 <job>a <job>b r1 SHARED", ":1"},
		{"c", "LOCKALL 2 <job>d <job>a 30s OWNER w", `*[:<_> $"w" *[$"<job>d" :<_> :2] *[$"<job>a" :<a2> :1]]`},
		{"less", "a a2", ""},
	}},
	{"a permit is in the way", []step{
		{"a", "LOCK <job>b 30s OWNER p PERMITS 2", `*[:<_> $"p" :<_> :1]`},
		{"b", "LOCKALL 2 <job>a <job>b 30s OWNER w", "*-1"},
		{"b", "LOCKALL 2 <job>a <job>c 30s OWNER w", `*[:<_> $"w" <...>`},
		{"a", "LOCK <job>a 30s OWNER p PERMITS 2", "*-1"},
	}},
	{"databases", []step{
		{"a", "LOCKALL 2 <job>a <job>b 30s OWNER me", `*[:<_> $"me" <...>`},
		{"a", "SELECT 3", "+OK"},
		{"a", "LOCKALL 2 <job>b <job>a 30s OWNER you", `*[:<_> $"you" <...>`},
		{"a", "LOCK <job>c 30s", `*[:<_> $"<o>" <...>`},
		{"a", "SELECT 0", "+OK"},
		{"a", "UNLOCKALL 1 <job>c", "-ERR this connection has not taken <...>"},
		{"a", "RENEWALL 2 <job>a <job>b 30s you", "-NOTOWNER <job>a<...>"},
		{"a", "UNLOCKALL 2 <job>a <job>b me", ":1"},
	}},
	{"one name", []step{
		{"a", "LOCKALL 1 <job> 30s OWNER me", `*[:<_> $"me" *[$"<job>" :<f> :1]]`},
		{"other.b", "LOCKALL 1 <job> 30s OWNER you RETRYAFTER", `*[:0 $"me" :<10000..30000> :0 $"<job>"]`},
		{"b", "LOCK <job> 30s OWNER you RETRYAFTER", `*[:0 $"me" :<10000..30000> :0]`},
		{"a", "RENEWALL 1 <job> 30s me", ":<20000..29999>"},
		{"a", "UNLOCKALL 1 <job> me", ":1"},
	}},
	{"what cannot be asked", []step{
		{"a", "LOCKALL 2 <job>a <job>b <job>c 30s", "-ERR ttl <...> is not a time<...>"},
		{"a", "LOCKALL 3 <job>a <job>b 30s", "-ERR fewer arguments than for 3 names; usage: <...>"},
		{"a", "LOCKALL 2 <job>a <job>a 30s", "-ERR the name '<job>a' was given twice"},
		{"a", "LOCKALL 0 30s OWNER", "-ERR '0' is not a number of names; usage: <...>"},
		{"a", "LOCKALL 2 <job>a <job>b 30s PERMITS 2", "-ERR LOCKALL takes no PERMITS: <...>"},
		{"a", "LOCKALL 2 <job>a <job>b 30s OWNER me REQ 1 WAIT 1s ASYNC", "-ERR LOCKALL takes no ASYNC: <...>"},
		{"a", "UNLOCKALL 2 <job>a <job>b me FENCE 1", "-ERR UNLOCKALL takes no FENCE: <...>"},
		{"a", "LOCKALL", "-ERR wrong number of arguments for 'lockall' command; usage: LOCKALL <...>"},
		{"a", "LOCK <job>a 30s OWNER you", `*[:<_> $"you" :<_> :1]`}, // nothing was taken
	}},
	{"in a transaction", []step{
		{"a", "MULTI", "+OK"},
		{"a", "LOCKALL 2 <job>a <job>b 30s", "-ERR LOCKALL is not allowed inside a transaction"},
		{"a", "EXEC", "-EXECABORT <...>"},
		{"a", "MULTI", "+OK"},
		{"a", "UNLOCKALL 2 <job>a <job>b me", "-ERR UNLOCKALL is not allowed inside a transaction"},
		{"a", "RENEWALL 2 <job>a <job>b 30s me", "-ERR RENEWALL is not allowed inside a transaction"},
		{"a", "DISCARD", "+OK"},
		{"a", "LOCKALL 2 <job>a <job>b 30s OWNER me", `*[:<_> $"me" <...>`},
		{"a", "SUBSCRIBE news", `*[$"subscribe" $"news" :1]`},
		{"a", "UNLOCKALL 2 <job>a <job>b me", "-ERR Can't execute 'unlockall': <...>"},
		{"b3", "SUBSCRIBE news", `>[$"subscribe" $"news" :1]`},
		{"b3", "UNLOCKALL 2 <job>a <job>b me", ":1"},
	}},
}

func TestLockAll(t *testing.T) {
	t.Parallel()
	r := startRig(t, 5, 2, "--node-timeout", "2s")
	for _, sc := range lockAllScripts {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			r.run(t, sc)
		})
	}
}

// TestLockAll_OnOneNode: so it is without lock nodes of their own.
func TestLockAll_OnOneNode(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, 2)
	for _, sc := range lockAllScripts {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			r.run(t, sc)
		})
	}
}

// lockAll is a LOCKALL of so many names, with options.
func lockAll(names []string, options ...string) []string {
	return append(append([]string{"LOCKALL", fmt.Sprint(len(names))}, names...), append([]string{"30s"}, options...)...)
}

// wantGrants fails unless v grants all names.
func wantGrants(t *testing.T, v redistest.Value, names ...string) {
	t.Helper()
	if v.Kind != '*' || len(v.Elems) != 2+len(names) || v.Elems[0].Int() <= 0 {
		t.Fatalf("not granted: %.500s", v)
	}
	for i, name := range names {
		if g := v.Elems[2+i]; len(g.Elems) != 3 || g.Elems[0].Text != name || g.Elems[1].Int() <= 0 || g.Elems[2].Int() < 1 {
			t.Fatalf("name %d is not granted: %v", i, g)
		}
	}
}

// TestLockAll_ManyNames: 64 of any bytes, not 65.
func TestLockAll_ManyNames(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 2, "--node-timeout", "2s")
	a, b := redistest.Open(t, r.addr()), redistest.Open3(t, r.proxies[1].Addr())
	var names []string
	for i := range 64 {
		names = append(names, fmt.Sprintf("\x00\r\n%c\xff{x}%d:", rune('a'+i%26), i)+strings.Repeat("n", i*100))
	}
	wantGrants(t, a.Do(t, lockAll(names, "OWNER", "me\r\n")...), names...)
	for _, i := range []int{0, 31, 63} {
		if v := b.Do(t, "LOCK", names[i], "30s", "OWNER", "you"); v.Raw != "_\r\n" {
			t.Errorf("name %d: %v", i, v)
		}
	}
	if v := b.Do(t, append(append([]string{"RENEWALL", "64"}, names...), "30s", "me\r\n")...); v.Kind != ':' || v.Int() < 10_000 {
		t.Errorf("RENEWALL: %v", v)
	}
	if v := b.Do(t, lockAll(append(names[10:40:40], "another"), "OWNER", "you", "RETRYAFTER")...); len(v.Elems) != 5 || !slices.Contains(names[10:40], v.Elems[4].Text) {
		t.Errorf("the name in the way: %.300s", v)
	}
	if v := b.Do(t, append(append([]string{"UNLOCKALL", "64"}, names...), "me\r\n")...); v.Raw != ":1\r\n" {
		t.Errorf("UNLOCKALL: %v", v)
	}
	if v := a.Do(t, lockAll(append(names, "another"))...); v.Text != "ERR 65 names are over the maximum of 64" {
		t.Errorf("65 names: %.300s", v)
	}
	wantGrants(t, b.Do(t, lockAll(names)...), names...)
}

// TestLockAll_SessionIsRenewed: the lease of every name of it.
func TestLockAll_SessionIsRenewed(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1, "--node-timeout", "2s")
	c, other := redistest.Open(t, r.addr()), redistest.Open(t, r.addr())
	names := []string{"a", "b", "c"}
	wantGrants(t, c.Do(t, "LOCKALL", "3", "a", "b", "c", "20s", "SESSION", "OWNER", "me"), names...)
	for _, name := range names {
		least := int64(20_000)
		eventually(t, time.Minute, name+" is renewed", func() bool {
			v := other.Do(t, "LOCK", name, "30s", "OWNER", "you", "RETRYAFTER")
			if len(v.Elems) != 4 || v.Elems[1].Text != "me" {
				t.Fatalf("%s is not kept: %v", name, v)
			}
			left := v.Elems[2].Int()
			defer func() { least = min(least, left) }()
			return left > least
		})
	}
}

// TestLockAll_MayWriteEveryName: whoever may not write one of them takes none.
func TestLockAll_MayWriteEveryName(t *testing.T) {
	t.Parallel()
	data := redistest.Start(t)
	data.Do(t, "ACL", "SETUSER", "some", "on", ">pw", "~a:*", "~b:*", "+@all")
	addr := redistest.StartProxy(t, data, redistest.StartNodes(t, 1), "--node-timeout", "2s").Addr()
	for _, before := range []string{"PING", "CLIENT NO-EVICT OFF", "WATCH a:1"} { // on each kind of connection
		c := login(t, addr, "some", "pw")
		c.Do(t, strings.Fields(before)...)
		for _, line := range []string{"LOCKALL 3 a:1 b:1 c:1 30s OWNER me", "LOCKALL 2 c:1 a:1 30s OWNER me WAIT 10s"} {
			if v := c.Do(t, strings.Fields(line)...); !strings.HasPrefix(v.Text, "NOPERM ") {
				t.Errorf("%s, %s: %v", before, line, v)
			}
		}
		wantGrants(t, c.Do(t, "LOCKALL", "2", "a:1", "b:1", "30s", "OWNER", "me"), "a:1", "b:1")
		if v := c.Do(t, "UNLOCKALL", "2", "a:1", "b:1", "me"); v.Raw != ":1\r\n" {
			t.Errorf("%s: UNLOCKALL: %v", before, v)
		}
	}
}

// TestLockAll_NoQuorum: the error names the nodes, and nothing is taken where some have answered.
func TestLockAll_NoQuorum(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1, "--node-timeout", "2s")
	c := redistest.Open(t, r.addr())
	wantGrants(t, c.Do(t, lockAll([]string{"a", "b"}, "OWNER", "me")...), "a", "b")
	r.nodes[0].Close()
	r.nodes[1].Close()
	if v := c.Do(t, lockAll([]string{"c", "d"}, "OWNER", "me")...); !strings.HasPrefix(v.Text, "NOQUORUM ") {
		t.Errorf("LOCKALL: %v", v)
	}
	if v := c.Do(t, "RENEWALL", "2", "a", "b", "30s", "me"); !strings.HasPrefix(v.Text, "NOQUORUM a") || !strings.Contains(v.Text, " of 3 answered, 2 needed: ") {
		t.Errorf("RENEWALL: %v", v)
	}
}
