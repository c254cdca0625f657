package integration

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestAdopt_Burst: of many acquisitions that one connection sends at once, as those of a client do that sends
// everything over one, a few ask the nodes. What the connection itself does between two of them counts.
func TestAdopt_Burst(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 1)
	p := redistest.StartProxy(t, redistest.Start(t), nodes, "--adopt", "lock:*")
	other, c := redistest.Open(t, p.Addr()), redistest.Open(t, p.Addr())
	wantReplies(t, other, [2]string{"SET lock:held other NX PX 60000", "+OK"})
	for range 20 { // what comes after an answer is not answered by it
		wantReplies(t, other, [2]string{"SET lock:c other NX PX 60000", "+OK"})
		wantReplies(t, c, [2]string{"SET lock:c me NX PX 60000", "$-1"}, [2]string{"GET lock:c", `$"other"`})
		wantReplies(t, other, [2]string{"DEL lock:c", ":1"})
		wantReplies(t, c, [2]string{"SET lock:c me NX PX 60000", "+OK"}, [2]string{"DEL lock:c", ":1"})
	}

	const polls = 300
	before := nodes[0].Calls(t, "evalsha")
	c.Send(t, strings.Repeat(lines("SET lock:held me NX PX 60000"), polls))
	for range polls {
		if v := c.Read(t); v.String() != "$-1" {
			t.Fatalf("a held lock: %v", v)
		}
	}
	if n := nodes[0].Calls(t, "evalsha") - before; n > polls/3 { // a burst is read in parts
		t.Errorf("%d polls asked a node %d times", polls, n)
	}

	const take, held = "SET lock:b me NX PX 60000", "SET lock:b you NX PX 60000"
	for _, tt := range []struct{ name, free, reply string }{
		{"DEL", "DEL lock:b", ":1"},
		{"script", "EVAL return(redis.call('del',KEYS[1])) 1 lock:b", ":1"},
		{"several keys", "DEL x lock:b y", ":1"},
		{"not positive end", "PEXPIRE lock:b 0", ":1"},
		{"LOCKCTL", "LOCKCTL FORCE lock:b", "<...>"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 20 {
				c.Send(t, lines(take, held, held, "GET lock:b", tt.free, held, "GET lock:b", "DEL lock:b", "GET lock:b"))
				var got []string
				for i := range 9 {
					v := c.Read(t)
					if got = append(got, v.String()); i == 4 && tt.reply == "<...>" {
						got[i] = tt.reply
					}
				}
				want := `+OK $-1 $-1 $"me" ` + tt.reply + ` +OK $"you" :1 $-1`
				if all := strings.Join(got, " "); all != want {
					t.Fatalf("got  %s\nwant %s", all, want)
				}
			}
		})
	}
}

// TestAdopt_BurstUndecided: where nobody can tell whether a lock is held, since two of five nodes are dead of which it was on, the commands of one
// connection wait for that together: so the holder's release behind them is done while its lease lasts.
func TestAdopt_BurstUndecided(t *testing.T) {
	t.Parallel()
	r := startRig(t, 5, 1, "--adopt", "lock:*")
	c := redistest.Open(t, r.addr())
	wantReplies(t, c, [2]string{"SET lock:u holder NX PX 60000", "+OK"})
	for _, node := range r.nodes[3:] {
		for _, key := range node.Do(t, "KEYS", "lockproxy:lock:*").Elems {
			node.Do(t, "DEL", key.Text)
		}
	}
	r.nodes[0].Kill()
	r.nodes[1].Kill()
	const polls = 100
	before := r.nodes[2].Calls(t, "evalsha")
	release := func(value string) string { return redistest.Command("EVAL", compareAndDelete, "1", "lock:u", value) }
	c.Send(t, strings.Repeat(lines("SET lock:u me NX PX 60000")+release("me"), polls)+release("holder"))
	for range polls {
		if v := c.Read(t); v.String() != "$-1" {
			t.Fatalf("SET: %v", v)
		}
		if v := c.Read(t); !strings.HasPrefix(v.String(), "-NOQUORUM") {
			t.Fatalf("a release of what it has not: %v", v)
		}
	}
	if v := c.Read(t); v.String() != ":1" {
		t.Errorf("the holder's release: %v", v)
	}
	if n := r.nodes[2].Calls(t, "evalsha") - before; n > 2*polls { // an answer takes many questions
		t.Errorf("%d polls asked a node %d times", polls, n)
	}
}
