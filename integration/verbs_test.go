package integration

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// verbScripts say what SPEC says of LOCK, RENEW and UNLOCK, each on a name of its own.
var verbScripts = []script{
	{"a grant in RESP2", []step{
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<29000..29999> :1]`},
		{"a", "UNLOCK <job> me", ":1"},
	}},
	{"a grant in RESP3 is the same array", []step{
		{"a3", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<29000..29999> :1]`},
		{"a3", "RENEW <job> 20s me", ":<19000..19999>"},
		{"a3", "UNLOCK <job> me", ":1"},
	}},
	{"contention is null", []step{
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"b", "LOCK <job> 30s OWNER you", "*-1"},
		{"b3", "LOCK <job> 30s OWNER you", "_"},
		{"b", "LOCK <job> 30s", "*-1"},
		{"a", "UNLOCK <job> me", ":1"},
		{"b", "LOCK <job> 30s OWNER you", `*[:<g> $"you" :<_> :1]`},
		{"less", "f g", ""},
	}},
	{"RETRYAFTER says what is needed to come back", []step{
		{"a", "LOCK <job> 30s OWNER me RETRYAFTER", `*[:<f> $"me" :<_> :1]`},
		{"b", "LOCK <job> 30s OWNER you RETRYAFTER", `*[:0 $"me" :<28000..30000> :0]`},
		{"b3", "LOCK <job> 30s RETRYAFTER OWNER you", `*[:0 $"me" :<28000..30000> :0]`},
	}},
	{"the same owner re-enters, keeps the fence and counts holds", []step{
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :2]`},
		{"b", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :3]`},
		{"c", "LOCK <job> 30s OWNER you", "*-1"},
		{"a", "UNLOCK <job> me", ":0"},
		{"b", "UNLOCK <job> me", ":0"},
		{"c", "LOCK <job> 30s OWNER you", "*-1"},
		{"a", "UNLOCK <job> me", ":1"},
		{"c", "LOCK <job> 30s OWNER you", `*[:<g> $"you" :<_> :1]`},
		{"less", "f g", ""},
	}},
	{"a re-entry extends the lease, and prolongs no other hold", []step{
		{"a", "LOCK <job> 3s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<29000..29999> :2]`},
		{"sleep", "3100ms", ""},
		{"b", "LOCK <job> 30s OWNER you", "*-1"},
		{"a", "UNLOCK <job> me", ":1"},
		{"b", "LOCK <job> 30s OWNER you", `*[:<g> $"you" :<_> :1]`},
	}},
	{"an UNLOCK gives the hold taken last back, also when it has ended", []step{
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"a", "LOCK <job> 2s OWNER me", `*[:<f> $"me" :<1..1999> :2]`},
		{"sleep", "2100ms", ""},
		{"a", "UNLOCK <job> me", ":0"},
		{"b", "LOCK <job> 30s OWNER you", "*-1"},
		{"a", "UNLOCK <job> me", ":1"},
	}},
	{"a re-entry never shortens the lease", []step{
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"a", "LOCK <job> 2s OWNER me", `*[:<f> $"me" :<_> :2]`},
		{"sleep", "2100ms", ""},
		{"b", "LOCK <job> 30s OWNER you", "*-1"},
		{"a", "UNLOCK <job> me", ":0"},
		{"a", "UNLOCK <job> me", ":1"},
	}},
	{"UNLOCK ALL gives every hold back", []step{
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :2]`},
		{"a", "UNLOCK <job> me ALL", ":1"},
		{"b", "LOCK <job> 30s OWNER you", `*[:<g> $"you" :<_> :1]`},
	}},
	{"a repeated UNLOCK repeats its reply", []step{
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"a", "UNLOCK <job> me", ":1"},
		{"a", "UNLOCK <job> me", ":1"},
		{"b", "UNLOCK <job> me FENCE <f>", ":1"},
		{"b", "UNLOCK <job> you", "-LOCKLOST <...>"},
	}},
	{"an expired lock is lost", []step{
		{"a", "LOCK <job> 2s OWNER me", `*[:<f> $"me" :<1000..1999> :1]`},
		{"sleep", "2100ms", ""},
		{"a", "RENEW <job> 30s me", "-LOCKLOST <...>"},
		{"a", "UNLOCK <job> me", "-LOCKLOST <...>"},
		{"b", "LOCK <job> 30s OWNER you", `*[:<g> $"you" :<_> :1]`},
		{"less", "f g", ""},
		{"a", "RENEW <job> 30s me", "-NOTOWNER <...>"},
		{"a", "UNLOCK <job> me", "-NOTOWNER <...>"},
		{"b", "RENEW <job> 30s you", ":<29000..29999>"},
	}},
	{"a lock never taken is lost", []step{
		{"a", "RENEW <job> 30s me", "-LOCKLOST <...>"},
		{"a", "UNLOCK <job> me", "-LOCKLOST <...>"},
		{"a", "UNLOCK <job> me ALL", "-LOCKLOST <...>"},
		{"b", "LOCK <job> 30s OWNER you", `*[:<g> $"you" :<_> :1]`},
	}},
	{"RENEW lengthens", []step{
		{"a", "LOCK <job> 3s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"a", "RENEW <job> 30s me", ":<29000..29999>"},
		{"sleep", "3100ms", ""},
		{"b", "LOCK <job> 30s OWNER you", "*-1"},
		{"a", "UNLOCK <job> me", ":1"},
	}},
	{"RENEW shortens", []step{
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"a", "RENEW <job> 2s me", ":<1000..1999>"},
		{"sleep", "2100ms", ""},
		{"b", "LOCK <job> 30s OWNER you", `*[:<g> $"you" :<_> :1]`},
		{"less", "f g", ""},
	}},
	{"RENEW many times", []step{
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"a", "RENEW <job> 5s me", ":<4000..4999>"},
		{"b", "RENEW <job> 60s me", ":<58000..59999>"},
		{"a", "RENEW <job> 10s me FENCE <f>", ":<9000..9999>"},
		{"a", "UNLOCK <job> me FENCE <f>", ":1"},
	}},
	{"somebody else's lock", []step{
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"b", "RENEW <job> 30s you", "-NOTOWNER <...>"},
		{"b", "UNLOCK <job> you", "-NOTOWNER <...>"},
		{"b", "UNLOCK <job> you FENCE <f>", "-NOTOWNER <...>"},
		{"b", "UNLOCK <job> you ALL", "-NOTOWNER <...>"},
		{"a", "RENEW <job> 30s me", ":<29000..29999>"},
		{"a", "UNLOCK <job> me", ":1"},
	}},
	{"FENCE of another grant does nothing", []step{
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"a", "UNLOCK <job> me FENCE 1", "-LOCKLOST <...>"},
		{"a", "RENEW <job> 200ms me FENCE 1", "-LOCKLOST <...>"},
		{"sleep", "300ms", ""},
		{"b", "LOCK <job> 30s OWNER you", "*-1"},
		{"a", "RENEW <job> 20s me FENCE <f>", ":<19000..19999>"},
		{"a", "UNLOCK <job> me FENCE <f>", ":1"},
	}},
	{"FENCE makes a late duplicate harmless", []step{
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"a", "UNLOCK <job> me FENCE <f>", ":1"},
		{"a", "LOCK <job> 30s OWNER me", `*[:<g> $"me" :<_> :1]`},
		{"less", "f g", ""},
		{"a", "UNLOCK <job> me FENCE <f>", ":1"},
		{"b", "LOCK <job> 30s OWNER you", "*-1"},
		{"a", "UNLOCK <job> me FENCE <g>", ":1"},
		{"b", "LOCK <job> 30s OWNER you", `*[:<h> $"you" :<_> :1]`},
	}},
	{"without OWNER", []step{
		{"a", "LOCK <job> 30s", `*[:<f> $"<owner>" :<_> :1]`},
		{"a", "RENEW <job> 20s", ":<19000..19999>"},
		{"b", "LOCK <job> 30s OWNER you", "*-1"},
		{"a", "UNLOCK <job>", ":1"},
		{"b", "LOCK <job> 30s OWNER you", `*[:<g> $"you" :<_> :1]`},
	}},
	{"a generated owner never re-enters", []step{
		{"a", "LOCK <job> 30s", `*[:<f> $"<owner>" :<_> :1]`},
		{"a", "LOCK <job> 30s", "*-1"},
		{"a", "UNLOCK <job>", ":1"},
	}},
	{"a generated owner may be named", []step{
		{"a", "LOCK <job> 30s", `*[:<f> $"<owner>" :<_> :1]`},
		{"b", "RENEW <job> 20s <owner>", ":<19000..19999>"},
		{"b", "UNLOCK <job> <owner>", ":1"},
	}},
	{"a generated owner that was named is given back all the same", []step{
		{"a", "LOCK <job> 30s", `*[:<f> $"<owner>" :<_> :1]`},
		{"a", "UNLOCK <job> <owner>", ":1"},
		{"a", "LOCK <job> 30s", `*[:<g> $"<next>" :<_> :1]`},
		{"a", "UNLOCK <job> <owner>", ":1"}, // again
		{"a", "RENEW <job> 20s", ":<19000..19999>"},
		{"a", "UNLOCKALL 1 <job> <next>", ":1"},
		{"a", "LOCK <job> 30s", `*[:<h> $"<last>" :<_> :1]`},
		{"a", "UNLOCK <job>", ":1"},
	}},
	{"without OWNER after a loss that UNLOCK has told of", []step{
		{"a", "LOCK <job> 200ms", `*[:<f> $"<owner>" :<_> :1]`},
		{"b", "LOCK <job> 30s OWNER you WAIT 30s", `*[:<g> $"you" :<_> :1]`},
		{"a", "UNLOCK <job>", "-NOTOWNER <...>"},
		{"b", "UNLOCK <job> you", ":1"},
		{"a", "LOCK <job> 30s", `*[:<h> $"<next>" :<_> :1]`},
		{"a", "UNLOCK <job>", ":1"},
	}},
	{"without OWNER on another connection", []step{
		{"a", "LOCK <job> 30s", `*[:<f> $"<owner>" :<_> :1]`},
		{"b", "UNLOCK <job>", "-ERR <...>"},
		{"b", "RENEW <job> 200ms", "-ERR <...>"},
		{"sleep", "300ms", ""},
		{"b", "LOCK <job> 30s", "*-1"},
		{"a", "UNLOCK <job>", ":1"},
	}},
	{"without OWNER for a lock taken with one", []step{
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"a", "UNLOCK <job>", "-ERR <...>"},
		{"a", "RENEW <job> 30s", "-ERR <...>"},
		{"b", "LOCK <job> 30s", "*-1"},
		{"a", "UNLOCK <job> me", ":1"},
	}},
	{"FENCE without OWNER", []step{
		{"a", "LOCK <job> 30s", `*[:<f> $"<owner>" :<_> :1]`},
		{"a", "RENEW <job> 20s FENCE <f>", ":<19000..19999>"},
		{"a", "UNLOCK <job> FENCE <f>", ":1"},
	}},
	{"databases have locks of their own", []step{
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"b", "SELECT 3", "+OK"},
		{"b", "LOCK <job> 30s OWNER you", `*[:<g> $"you" :<_> :1]`},
		{"b", "UNLOCK <job> me", "-NOTOWNER <...>"},
		{"b", "UNLOCK <job> you", ":1"},
		{"c", "LOCK <job> 30s OWNER you", "*-1"},
		{"b", "SELECT 0", "+OK"},
		{"b", "LOCK <job> 30s OWNER you", "*-1"},
		{"a", "UNLOCK <job> me", ":1"},
	}},
	{"a plain lock belongs to the database it was taken in", []step{
		{"a", "LOCK <job> 30s", `*[:<f> $"<o>" :<_> :1]`},
		{"a", "SELECT 3", "+OK"},
		{"a", "UNLOCK <job>", "-ERR <...>"},
		{"a", "SELECT 0", "+OK"},
		{"a", "UNLOCK <job>", ":1"},
	}},
	{"units", []step{
		{"a", "LOCK <job> 30000 OWNER me", `*[:<f> $"me" :<29000..29999> :1]`},
		{"a", "RENEW <job> 5000ms me", ":<4000..4999>"},
		{"a", "RENEW <job> 9s me", ":<8000..8999>"},
		{"a", "RENEW <job> 1m me", ":<58000..59999>"},
		{"a", "RENEW <job> 5000 me", ":<4000..4999>"},
	}},
	{"letters may be small and options in any order", []step{
		{"a", "lock <job> 30s owner me info text retryafter", `*[:<f> $"me" :<_> :1]`},
		{"a", "Lock <job> 30s Info text RetryAfter Owner me", `*[:<f> $"me" :<_> :2]`},
		{"a", "unlock <job> me all fence <f>", ":1"},
	}},
	{"a lock and a key of the same name do not touch", []step{
		{"a", "SET <job> data", "+OK"},
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"a", "GET <job>", `$"data"`},
		{"a", "DEL <job>", ":1"},
		{"b", "LOCK <job> 30s OWNER you", "*-1"},
		{"a", "UNLOCK <job> me", ":1"},
	}},
	{"in a transaction the verbs are refused", []step{
		{"a", "MULTI", "+OK"},
		{"a", "LOCK <job> 30s OWNER me", "-ERR <...>"},
		{"a", "SET <job> 1", "+QUEUED"},
		{"a", "EXEC", "-EXECABORT <...>"},
		{"a", "EXISTS <job>", ":0"},
		{"a", "MULTI", "+OK"},
		{"a", "UNLOCK <job>", "-ERR <...>"},
		{"a", "DISCARD", "+OK"},
		{"a", "MULTI", "+OK"},
		{"a", "RENEW <job> 30s", "-ERR <...>"},
		{"a", "EXEC", "-EXECABORT <...>"},
		{"b", "LOCK <job> 30s OWNER you", `*[:<g> $"you" :<_> :1]`},
	}},
	{"a RESP2 subscriber may not lock", []step{
		{"a", "SUBSCRIBE <job>", `*[$"subscribe" $"<job>" :1]`},
		{"a", "LOCK <job> 30s OWNER me", "-ERR Can't execute 'lock'<...>"},
		{"a", "UNSUBSCRIBE <job>", `*[$"unsubscribe" $"<job>" :0]`},
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :1]`},
	}},
	{"a RESP3 subscriber may lock", []step{
		{"a3", "SUBSCRIBE <job>", `>[$"subscribe" $"<job>" :1]`},
		{"a3", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"a3", "UNLOCK <job> me", ":1"},
	}},
	{"RESET forgets what the connection took", []step{
		{"a", "LOCK <job> 30s", `*[:<f> $"<o>" :<_> :1]`},
		{"a", "RESET", "+RESET"},
		{"a", "UNLOCK <job>", "-ERR <...>"},
		{"b", "UNLOCK <job> <o>", ":1"},
	}},
	{"through another proxy", []step{
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"other.b", "LOCK <job> 30s OWNER you", "*-1"},
		{"other.b", "RENEW <job> 20s you", "-NOTOWNER <...>"},
		{"other.a", "RENEW <job> 20s me", ":<18000..19999>"},
		{"a", "RENEW <job> 30s me", ":<29000..29999>"},
		{"other.a", "RENEW <job> 10s me FENCE <f>", ":<9000..9999>"},
		{"other.a", "UNLOCK <job> me", ":1"},
		{"a", "UNLOCK <job> me", ":1"},
		{"other.b", "LOCK <job> 30s OWNER you", `*[:<g> $"you" :<_> :1]`},
		{"less", "f g", ""},
		{"a", "RENEW <job> 30s me", "-NOTOWNER <...>"},
		{"a", "UNLOCK <job> you", ":1"},
	}},
	{"re-entry through another proxy", []step{
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"other.a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :2]`},
		{"a", "UNLOCK <job> me", ":0"},
		{"other.b", "LOCK <job> 30s OWNER you", "*-1"},
		{"other.a", "UNLOCK <job> me", ":1"},
		{"other.b", "LOCK <job> 30s OWNER you", `*[:<g> $"you" :<_> :1]`},
	}},
	{"a hold that has ended is given back through another proxy", []step{
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"a", "LOCK <job> 2s OWNER me", `*[:<f> $"me" :<_> :2]`},
		{"sleep", "2100ms", ""},
		{"other.a", "UNLOCK <job> me", ":0"},
		{"other.b", "LOCK <job> 30s OWNER you", "*-1"},
		{"a", "UNLOCK <job> me", ":1"},
	}},
	{"a lease shortened through another proxy", []step{
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"other.a", "RENEW <job> 1s me", ":<1..999>"},
		{"sleep", "1200ms", ""},
		{"a", "RENEW <job> 30s me", "-LOCKLOST <...>"},
		{"other.b", "LOCK <job> 30s OWNER you", `*[:<g> $"you" :<_> :1]`},
	}},
	{"a lease shortened through another proxy, and held by another since", []step{
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"other.a", "RENEW <job> 1s me", ":<1..999>"},
		{"sleep", "1200ms", ""},
		{"other.b", "LOCK <job> 30s OWNER you", `*[:<g> $"you" :<_> :1]`},
		{"other.b", "UNLOCK <job> you", ":1"},
		{"a", "RENEW <job> 30s me", "-LOCKLOST <...>"},
	}},
	{"released through another proxy, and renewed late", []step{
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"other.a", "UNLOCK <job> me", ":1"},
		{"a", "RENEW <job> 30s me", "-LOCKLOST <...>"},
		{"a", "RENEW <job> 30s me FENCE <f>", "-LOCKLOST <...>"},
		{"other.b", "LOCK <job> 30s OWNER you", `*[:<g> $"you" :<_> :1]`},
	}},
	{"expiry seen through another proxy", []step{
		{"a", "LOCK <job> 1s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"sleep", "1200ms", ""},
		{"other.a", "RENEW <job> 30s me", "-LOCKLOST <...>"},
		{"other.b", "LOCK <job> 30s OWNER you", `*[:<g> $"you" :<_> :1]`},
		{"less", "f g", ""},
	}},
}

func TestVerbs(t *testing.T) {
	t.Parallel()
	r := startRig(t, 5, 2, "--node-timeout", "2s")
	for _, sc := range verbScripts {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			r.run(t, sc)
		})
	}
}

// TestVerbsOnOneNode: without lock nodes the upstream is the one.
func TestVerbsOnOneNode(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, 2)
	r.nodes = []*redistest.Server{r.data}
	for _, sc := range verbScripts {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			r.run(t, sc)
		})
	}
}

// TestVerbBytes pins the replies down to the last byte.
func TestVerbBytes(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1)
	for _, tt := range []struct {
		name, null string
		open       func(testing.TB, string) *redistest.Conn
	}{{"RESP2", "*-1\r\n", redistest.Open}, {"RESP3", "_\r\n", redistest.Open3}} {
		t.Run(tt.name, func(t *testing.T) {
			c := tt.open(t, r.addr())
			v := c.Do(t, "LOCK", "job", "30s", "OWNER", "me")
			if len(v.Elems) != 4 || !strings.HasPrefix(v.Raw, "*4\r\n:") || v.Elems[1].Raw != "$2\r\nme\r\n" || v.Elems[3].Raw != ":1\r\n" {
				t.Errorf("LOCK: %q", v.Raw)
			}
			if v := c.Do(t, "LOCK", "job", "30s", "OWNER", "you"); v.Raw != tt.null {
				t.Errorf("LOCK of a held name: %q", v.Raw)
			}
			if v := c.Do(t, "UNLOCK", "job", "me"); v.Raw != ":1\r\n" {
				t.Errorf("UNLOCK: %q", v.Raw)
			}
		})
	}
}

// TestVerbsInAPipeline: replies come in the order of the commands, ordinary ones
// among them.
func TestVerbsInAPipeline(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1)
	c := redistest.Open(t, r.addr())
	const rounds = 200
	c.Send(t, strings.Repeat(lines("INCR n", "LOCK job 30s OWNER me", "GET n", "UNLOCK job me", "ECHO x"), rounds))
	last := int64(0)
	for i := range rounds {
		n, lock, get, unlock, echo := c.Read(t), c.Read(t), c.Read(t), c.Read(t), c.Read(t)
		if n.Int() != int64(i+1) || len(lock.Elems) != 4 || get.Text != n.Text || unlock.Raw != ":1\r\n" || echo.Text != "x" {
			t.Fatalf("round %d: %v %v %v %v %v", i, n, lock, get, unlock, echo)
		}
		if fence := lock.Elems[0].Int(); fence <= last {
			t.Fatalf("round %d: fence %d after %d", i, fence, last)
		} else {
			last = fence
		}
	}
}

// TestVerbsInAPipelinedTransaction: the refusal comes in its place, and aborts.
func TestVerbsInAPipelinedTransaction(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1)
	c := redistest.Open(t, r.addr())
	const rounds = 50
	c.Send(t, strings.Repeat(lines("MULTI", "SET x 1", "LOCK job 30s OWNER me", "GET x", "EXEC", "EXISTS x"), rounds))
	for i := range rounds {
		var got []string
		for range 6 {
			v := c.Read(t)
			if !checkWords(t, v) {
				t.FailNow()
			}
			word, _, _ := strings.Cut(v.String(), " ")
			got = append(got, word)
		}
		if all := strings.Join(got, " "); all != "+OK +QUEUED -ERR +QUEUED -EXECABORT :0" {
			t.Fatalf("round %d: %s", i, all)
		}
	}
}

func TestVerbsNeedAuthentication(t *testing.T) {
	t.Parallel()
	data := redistest.Start(t, secured...)
	p := redistest.StartProxy(t, data, redistest.StartNodes(t, 3))
	c := redistest.Open(t, p.Addr())
	for _, command := range []string{"LOCK job 30s", "RENEW job 30s me", "UNLOCK job me", "LOCK"} {
		if v := c.Do(t, strings.Fields(command)...); !strings.HasPrefix(v.Raw, "-NOAUTH ") {
			t.Errorf("%s before AUTH: %v", command, v)
		}
	}
	c.Do(t, "AUTH", "secret")
	if v := c.Do(t, "LOCK", "job", "30s"); len(v.Elems) != 4 {
		t.Errorf("LOCK after AUTH: %v", v)
	}
}

func TestRequireOwner(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1, "--require-owner")
	r.run(t, script{"require owner", []step{
		{"a", "LOCK <job> 30s", `*[:<f> $"<owner>" :<_> :1]`},
		{"a", "RENEW <job> 30s", "-ERR <...>"},
		{"a", "UNLOCK <job>", "-ERR <...>"},
		{"a", "UNLOCK <job> <owner>", ":1"},
	}})
}
