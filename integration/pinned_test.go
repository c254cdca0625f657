package integration

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// eventually is redistest.Eventually.
func eventually(t *testing.T, within time.Duration, what string, cond func() bool) {
	t.Helper()
	redistest.Eventually(t, within, what, cond)
}

var blockedClients = regexp.MustCompile(`blocked_clients:(\d+)`)

// blocked is how many clients a server has in a blocking command.
func blocked(t *testing.T, s *redistest.Server) int {
	t.Helper()
	m := blockedClients.FindStringSubmatch(s.Do(t, "INFO", "clients").Text)
	if m == nil {
		t.Fatal("INFO shows no blocked_clients")
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

func TestBlocking_WakesUp(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	for _, tt := range []struct{ wait, wake, want string }{
		{"BLPOP q 0", "RPUSH q x", `*[$"q" $"x"]`},
		{"BLMOVE q r LEFT LEFT 0", "RPUSH q y", `$"y"`},
		{"BZPOPMIN z 0", "ZADD z 1 m", `*[$"z" $"m" $"1"]`},
		{"XREAD BLOCK 0 STREAMS s $", "XADD s 5-1 f v", `*[*[$"s" *[*[$"5-1" *[$"f" $"v"]]]]]`},
	} {
		waiting, other := redistest.Open(t, w.via), redistest.Open(t, w.via)
		waiting.Send(t, lines(tt.wait, "ECHO behind"))
		eventually(t, 9*time.Second, tt.wait+" is blocked upstream", func() bool { return blocked(t, w.behind) == 1 })
		if v := other.Do(t, strings.Fields(tt.wake)...); v.IsError() {
			t.Fatalf("%s: %v", tt.wake, v)
		}
		if v := waiting.Read(t); v.String() != tt.want {
			t.Errorf("%s: got %v, want %s", tt.wait, v, tt.want)
		}
		if v := waiting.Read(t); v.Text != "behind" {
			t.Errorf("%s: the command behind it got %v", tt.wait, v)
		}
	}
}

// TestBlocking_DoesNotDelayOthers has more waiting clients than any pool of
// connections that could be shared.
func TestBlocking_DoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	const waiting = 50
	for range waiting {
		redistest.Open(t, w.via).Send(t, lines("BLPOP q 0"))
	}
	eventually(t, 9*time.Second, "all are blocked upstream", func() bool { return blocked(t, w.behind) == waiting })
	start := time.Now()
	redistest.Open(t, w.via).Do(t, "SET", "a", "1")
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("SET beside %d blocked clients took %v", waiting, took)
	}
}

// TestBlocking_EndsWithItsClient: an element pushed after the client left must not
// be popped for nobody.
func TestBlocking_EndsWithItsClient(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	for _, command := range []string{"BLPOP q 0", "BLMOVE q r LEFT LEFT 0", "BRPOP x q 100", "BLMPOP 0 1 q LEFT", "XREAD BLOCK 0 STREAMS s $"} {
		c := redistest.Open(t, w.via)
		c.Send(t, lines("SET a 1", command))
		eventually(t, 9*time.Second, command+" is blocked upstream", func() bool { return blocked(t, w.behind) == 1 })
		c.Close()
		eventually(t, 9*time.Second, command+" is gone upstream", func() bool { return blocked(t, w.behind) == 0 })
	}
	if v := w.behind.Do(t, "RPUSH", "q", "x"); v.Int() != 1 {
		t.Fatalf("RPUSH: %v", v)
	}
	if v := w.behind.Do(t, "LLEN", "q"); v.Int() != 1 {
		t.Errorf("the element was popped for a client that had left: LLEN %v", v)
	}
}

// TestTransactionIsAbandonedWithItsClient: what was queued or watched must not
// reach the next user of the connection.
func TestTransactionIsAbandonedWithItsClient(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	for range 20 {
		c := redistest.Open(t, w.via)
		c.Do(t, "SELECT", "1")
		c.Do(t, "WATCH", "x")
		c.Do(t, "MULTI")
		c.Do(t, "SET", "leaked", "1")
		c.Close()
		next := redistest.Open(t, w.via)
		if v := next.Do(t, "INCR", "n"); v.Kind != ':' {
			t.Fatalf("the next client's INCR answered %v", v)
		}
		if v := next.Do(t, "MULTI"); v.Raw != "+OK\r\n" {
			t.Fatalf("the next client's MULTI answered %v", v)
		}
		if v := next.Do(t, "EXEC"); v.String() != "*[]" {
			t.Fatalf("the next client's EXEC answered %v", v)
		}
	}
	if v := w.behind.Do(t, "DBSIZE"); v.Int() != 1 {
		t.Errorf("database 0 has %v keys, want n alone", v)
	}
}

func TestWatchSeesOthersWrites(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	a, b := redistest.Open(t, w.via), redistest.Open(t, w.via)
	for i, tt := range []struct {
		meddle bool
		want   string
	}{{false, `*[+OK]`}, {true, "*-1"}, {false, `*[+OK]`}} {
		a.Do(t, "WATCH", "k")
		a.Do(t, "MULTI")
		a.Do(t, "SET", "k", "mine")
		if tt.meddle {
			b.Do(t, "SET", "k", "theirs")
		}
		if v := a.Do(t, "EXEC"); v.String() != tt.want {
			t.Errorf("round %d: EXEC answered %v, want %s", i, v, tt.want)
		}
	}
}

func TestSubscribersReceive(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	for _, tt := range []struct {
		name, push string
		open       func(testing.TB, string) *redistest.Conn
	}{{"RESP2", "*", redistest.Open}, {"RESP3", ">", redistest.Open3}} {
		t.Run(tt.name, func(t *testing.T) {
			sub, other := tt.open(t, w.via), redistest.Open(t, w.via)
			want := func(body string) {
				t.Helper()
				if v := sub.Read(t); v.String() != tt.push+body {
					t.Errorf("got %v, want %s%s", v, tt.push, body)
				}
			}
			sub.Send(t, lines("SUBSCRIBE c d", "PSUBSCRIBE p*"))
			want(`[$"subscribe" $"c" :1]`)
			want(`[$"subscribe" $"d" :2]`)
			want(`[$"psubscribe" $"p*" :3]`)
			if v := other.Do(t, "PUBLISH", "c", "one"); v.Int() != 1 {
				t.Errorf("PUBLISH reached %v", v)
			}
			want(`[$"message" $"c" $"one"]`)
			other.Do(t, "PUBLISH", "p1", "two")
			want(`[$"pmessage" $"p*" $"p1" $"two"]`)
			sub.Send(t, lines("UNSUBSCRIBE", "PUNSUBSCRIBE"))
			for range 3 {
				sub.Read(t)
			}
			if v := sub.Do(t, "SET", "a", "1"); v.Raw != "+OK\r\n" {
				t.Errorf("SET after unsubscribing: %v", v)
			}
			sub.Do(t, "SUBSCRIBE", "c")
			sub.Close()
			eventually(t, 9*time.Second, "the subscription ends with its client", func() bool {
				return other.Do(t, "PUBSUB", "NUMSUB", "c").String() == `*[$"c" :0]`
			})
		})
	}
}

// TestRESP3SubscriberMayUseOrdinaryCommands, which RESP2 refuses.
func TestRESP3SubscriberMayUseOrdinaryCommands(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	c := redistest.Open3(t, w.via)
	c.Do(t, "SUBSCRIBE", "c")
	if v := c.Do(t, "SET", "a", "1"); v.Raw != "+OK\r\n" {
		t.Errorf("SET: %v", v)
	}
	redistest.Open(t, w.via).Do(t, "PUBLISH", "c", "m")
	if v := c.Read(t); v.String() != `>[$"message" $"c" $"m"]` {
		t.Errorf("message: %v", v)
	}
	if v := c.Do(t, "GET", "a"); v.String() != `$"1"` {
		t.Errorf("GET: %v", v)
	}
}

// TestWatchOutlivesARefusedDiscard: DISCARD without MULTI ends no WATCH; UNWATCH then
// does, on the connection that watches.
func TestWatchOutlivesARefusedDiscard(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1)
	c := redistest.Open(t, r.addr())
	c.Send(t, lines("MULTI", "EXEC", "WATCH k", "DISCARD"))
	for _, want := range []string{"+OK", "*[]", "+OK", "-ERR DISCARD without MULTI"} {
		if v := c.Read(t); v.String() != want {
			t.Fatalf("got %v, want %s", v, want)
		}
	}
	for _, s := range []step{{"", "SET k v", "+OK"}, {"", "UNWATCH", "+OK"}, {"", "MULTI", "+OK"}, {"", "PING", "+QUEUED"}, {"", "EXEC", "*[+PONG]"}} {
		if v := c.Do(t, strings.Fields(s.command)...); v.String() != s.want {
			t.Fatalf("%s answered %v, want %s", s.command, v, s.want)
		}
	}
}
