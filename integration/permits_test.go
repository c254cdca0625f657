package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// permitScripts say what owners are told that share a name with a limit, each on a name of its own.
var permitScripts = []script{
	{"as many as there are permits", []step{
		{"a", "LOCK <job> 30s OWNER p1 PERMITS 3", `*[:<f> $"p1" :<29000..29999> :1]`},
		{"b3", "LOCK <job> 30s PERMITS 3 OWNER p2", `*[:<g> $"p2" :<29000..29999> :1]`},
		{"other.c", "LOCK <job> 20s OWNER p3 PERMITS 3", `*[:<h> $"p3" :<19000..19999> :1]`},
		{"less", "f g", ""},
		{"less", "g h", ""},
		{"d", "LOCK <job> 30s OWNER p4 PERMITS 3", "*-1"},
		{"other.d", "LOCK <job> 30s OWNER p4 PERMITS 3 RETRYAFTER", `*[:0 $"<x>" :<18000..20000> :0]`},
		{"a", "UNLOCK <job> p2 SHARED", ":1"},
		{"other.d", "LOCK <job> 30s OWNER p4 PERMITS 3", `*[:<i> $"p4" :<_> :1]`},
		{"less", "h i", ""},
		{"b", "LOCK <job> 30s OWNER p5 PERMITS 3", "*-1"},
	}},
	{"one permit", []step{
		{"a", "LOCK <job> 30s PERMITS 1", `*[:<f> $"<p>" :<_> :1]`},
		{"a", "LOCK <job> 30s PERMITS 1", "*-1"},
		{"other.a", "LOCK <job> 30s OWNER q PERMITS 1", "*-1"},
		{"a", "RENEW <job> 20s", ":<18000..19999>"},
		{"a", "UNLOCK <job>", ":1"},
		{"other.a", "LOCK <job> 30s OWNER q PERMITS 1", `*[:<g> $"q" :<_> :1]`},
		{"less", "f g", ""},
	}},
	{"an owner takes one permit, however often", []step{
		{"a", "LOCK <job> 30s OWNER p1 PERMITS 2", `*[:<f> $"p1" :<_> :1]`},
		{"a", "LOCK <job> 30s OWNER p1 PERMITS 2", `*[:<f> $"p1" :<_> :2]`},
		{"other.a", "LOCK <job> 30s OWNER p1 PERMITS 2", `*[:<f> $"p1" :<_> :<2..3>]`}, // a node may not have heard of the second yet
		{"other.a", "LOCK <job> 30s OWNER p2 PERMITS 2", `*[:<_> $"p2" :<_> :1]`},
		{"b", "LOCK <job> 30s OWNER p3 PERMITS 2", "*-1"},
		{"b", "LOCK <job> 30s OWNER p1 PERMITS 2 NOREENTER", "*-1"},
		{"a", "UNLOCK <job> p1 SHARED", ":0"},
		{"other.a", "UNLOCK <job> p1 SHARED", ":0"},
		{"b", "LOCK <job> 30s OWNER p3 PERMITS 2", "*-1"},
		{"b", "UNLOCK <job> p1 SHARED", ":1"},
		{"b", "LOCK <job> 30s OWNER p3 PERMITS 2", `*[:<_> $"p3" :<_> :1]`},
	}},
	{"FRESH keeps to the permits", []step{
		{"a", "LOCK <job> 30s OWNER p1 PERMITS 2", `*[:<f> $"p1" :<_> :1]`},
		{"b", "LOCK <job> 30s OWNER p2 PERMITS 2", `*[:<_> $"p2" :<_> :1]`},
		{"other.a", "LOCK <job> 30s OWNER p1 PERMITS 2 FRESH", `*[:<g> $"p1" :<_> :1]`},
		{"less", "f g", ""},
		{"c", "LOCK <job> 30s OWNER p3 PERMITS 2", "*-1"},
		{"a", "RENEW <job> 30s p1 SHARED FENCE <f>", "-LOCKLOST <...>"},
		{"a", "RENEW <job> 30s p1 SHARED FENCE <g>", ":<29000..29999>"},
	}},
	{"more permits at once, fewer as they are given back", []step{
		{"a", "LOCK <job> 30s OWNER p1 PERMITS 1", `*[:<_> $"p1" :<_> :1]`},
		{"a", "LOCK <job> 30s OWNER p2 PERMITS 1", "*-1"},
		{"other.a", "LOCK <job> 30s OWNER p2 PERMITS 2", `*[:<_> $"p2" :<_> :1]`},
		{"a", "UNLOCK <job> p1 SHARED", ":1"},
		{"a", "LOCK <job> 30s OWNER p3 PERMITS 1", `*[:<_> $"p3" :<_> :1]`},
		{"a", "LOCK <job> 30s OWNER p4 PERMITS 1", "*-1"},
		{"a", "LOCK <job> 30s OWNER p4 PERMITS 2", "*-1"},
	}},
	{"each lease ends by itself", []step{
		{"a", "LOCK <job> 1s OWNER p1 PERMITS 2", `*[:<_> $"p1" :<_> :1]`},
		{"b", "LOCK <job> 30s OWNER p2 PERMITS 2", `*[:<_> $"p2" :<_> :1]`},
		{"other.c", "LOCK <job> 30s OWNER p3 PERMITS 2 WAIT 20s", `*[:<_> $"p3" :<_> :1]`},
		{"a", "RENEW <job> 30s p1 SHARED", "-LOCKLOST <...>"},
		{"other.b", "RENEW <job> 30s p2 SHARED", ":<29000..29999>"},
		{"c", "LOCK <job> 30s OWNER p4 PERMITS 2", "*-1"},
	}},
	{"nobody has a permit while one has the name", []step{
		{"a", "LOCK <job> 30s OWNER w", `*[:<f> $"w" :<_> :1]`},
		{"b", "LOCK <job> 30s OWNER p PERMITS 2", "*-1"},
		{"a", "UNLOCK <job> w", ":1"},
		{"b", "LOCK <job> 30s OWNER p PERMITS 2", `*[:<g> $"p" :<_> :1]`},
		{"other.a", "LOCK <job> 30s OWNER w", "*-1"},
		{"a", "UNLOCK <job> p", "-LOCKLOST <...> SHARED<...>"},
		{"a", "UNLOCK <job> p SHARED", ":1"},
		{"other.a", "LOCK <job> 30s OWNER w", `*[:<h> $"w" :<_> :1]`},
		{"less", "f g", ""},
		{"less", "g h", ""},
	}},
	{"who only reads needs no permit", []step{
		{"a", "LOCK <job> 30s OWNER p PERMITS 1", `*[:<f> $"p" :<_> :1]`},
		{"b", "LOCK <job> 30s OWNER r SHARED", `*[:<f> $"r" :<_> :1]`},
		{"other.b", "LOCK <job> 30s OWNER q PERMITS 1", "*-1"},
		{"a", "UNLOCK <job> p SHARED", ":1"},
		{"other.b", "LOCK <job> 30s OWNER q PERMITS 1", `*[:<_> $"q" :<_> :1]`},
		{"b", "LOCK <job> 30s OWNER w", "*-1"},
	}},
	{"REQ takes one permit", []step{
		{"a", "LOCK <job> 30s OWNER p PERMITS 2 REQ 1", `*[:<f> $"p" :<_> :1]`},
		{"other.a", "LOCK <job> 30s OWNER p PERMITS 2 REQ 1", `*[:<f> $"p" :<_> :1]`},
		{"other.a", "UNLOCK <job> p SHARED REQ 1", ":1"},
		{"a", "LOCK <job> 30s OWNER p PERMITS 2 REQ 1", `*[:<f> $"p" :0 :0]`},
		{"a", "LOCK <job> 30s OWNER q PERMITS 1", `*[:<_> $"q" :<_> :1]`},
	}},
	{"FORCE takes all", []step{
		{"a", "LOCK <job> 30s OWNER p1 PERMITS 2", `*[:<_> $"p1" :<_> :1]`},
		{"other.b", "LOCK <job> 30s OWNER p2 PERMITS 2", `*[:<_> $"p2" :<_> :1]`},
		{"a", "LOCKCTL FORCE <job>", `*[$"name" $"<job>"<...>$"readers" :2]`},
		{"c", "LOCK <job> 30s OWNER q1 PERMITS 2", `*[:<_> $"q1" :<_> :1]`},
		{"c", "LOCK <job> 30s OWNER q2 PERMITS 2", `*[:<_> $"q2" :<_> :1]`},
		{"a", "RENEW <job> 30s p1 SHARED", "-LOCKLOST <...>"},
		{"other.b", "UNLOCK <job> p2 SHARED", "-LOCKLOST <...>"},
	}},
	{"LOCKCTL lists who has a permit; an owner either reads or has one", []step{
		{"a", "LOCK <job> 30s OWNER p PERMITS 1", `*[:<_> $"p" :<_> :1]`},
		{"b", "LOCKCTL INFO <job>", `*[$"name" $"<job>" $"owner" $""<...>$"readers" :1<...>$"says" $"shared"<...>$"read-by" *[*[$"owner" $"p" $"remaining-ms" :<_>]]]`},
		{"a", "LOCK <job> 30s OWNER p SHARED", `*[:<_> $"p" :<_> :2]`},
		{"b", "LOCK <job> 30s OWNER r SHARED", `*[:<_> $"r" :<_> :1]`},
		{"b", "LOCK <job> 30s OWNER r PERMITS 2", "*-1"},
	}},
	{"what cannot be asked", []step{
		{"a", "LOCK <job> 30s PERMITS 0", "-ERR PERMITS must be a positive integer"},
		{"a", "LOCK <job> 30s PERMITS 1001", "-ERR PERMITS 1001 is over the maximum of 1000"},
		{"a", "LOCK <job> 30s PERMITS", "-ERR option PERMITS needs a value<...>"},
		{"a", "LOCK <job> 30s PERMITS 2 SHARED", "-ERR SHARED and PERMITS exclude each other"},
	}},
}

func TestPermits(t *testing.T) {
	t.Parallel()
	r := startRig(t, 5, 2, "--node-timeout", "2s")
	for _, sc := range permitScripts {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			r.run(t, sc)
		})
	}
}

// TestPermits_OnOneNode: so it is without lock nodes of their own.
func TestPermits_OnOneNode(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, 2)
	for _, sc := range permitScripts {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			r.run(t, sc)
		})
	}
}

// TestPermits_InLine: who waits for a permit gets it first come, first served, one for each that is given back, through
// whichever proxy.
func TestPermits_InLine(t *testing.T) { onNodesAndEtcd(t, 2, testPermitsInLine) }

func testPermitsInLine(t *testing.T, r *rig) {
	holder := redistest.Open(t, r.addr())
	for i := range 3 {
		wantGrant(t, holder.Do(t, "LOCK", "job", "30s", "OWNER", fmt.Sprint("h", i), "PERMITS", "3"))
	}
	const waiters = 9
	var line []*redistest.Conn
	for i := range waiters {
		c := redistest.Open(t, r.addr())
		c.Send(t, redistest.Command("LOCK", "job", "30s", "WAIT", "1m", "OWNER", fmt.Sprint("p", i), "PERMITS", "3"))
		line = append(line, c)
		awaitWaiters(t, holder, "job", int64(len(line)))
	}
	back := redistest.Open(t, r.proxies[1].Addr())
	give := func(owner string) {
		if v := back.Do(t, "UNLOCK", "job", owner, "SHARED"); v.Raw != ":1\r\n" {
			t.Fatalf("UNLOCK of %s: %v", owner, v)
		}
	}
	give("h1") // one at a time, and then two at once
	last := wantGrant(t, line[0].Read(t))
	awaitWaiters(t, holder, "job", waiters-1)
	time.Sleep(50 * time.Millisecond)
	awaitWaiters(t, holder, "job", waiters-1)
	give("h0")
	give("h2")
	for i := 1; i < waiters; i++ {
		fence := wantGrant(t, line[i].Read(t))
		if fence <= last {
			t.Errorf("waiter %d has fence %d, after %d", i, fence, last)
		}
		last = fence
		if i > 1 {
			give(fmt.Sprint("p", i-2))
		}
	}
}
