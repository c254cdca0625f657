package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

func TestClientKill(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 2)
	r.data.Do(t, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all")
	for _, tt := range []struct {
		name   string
		before []string // commands of the victim
		filter string   // with ADDR and ID for the victim's
		want   string
	}{
		{"by address, the old way", nil, "ADDR", "+OK"},
		{"by address", nil, "ADDR ADDR", ":1"},
		{"by id", nil, "ID ID", ":1"},
		{"a blocked one by id", []string{"BLPOP q 0"}, "ID ID", ":1"},
		{"a monitor by id", []string{"MONITOR"}, "ID ID", ":1"},
		{"by user", []string{"AUTH app pw"}, "USER app", ":1"},
		{"by type", []string{"SUBSCRIBE c"}, "TYPE pubsub", ":1"},
		{"by everything", []string{"AUTH app pw"}, "ID ID USER app ADDR ADDR TYPE normal SKIPME yes", ":1"},
		{"all but me", nil, "SKIPME yes", ":1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := redistest.StartProxy(t, r.data, r.nodes)
			killer, victim := redistest.Open(t, p.Addr()), redistest.Open(t, p.Addr())
			other := redistest.Open(t, r.addr()) // of another proxy
			filter := replaceWords(tt.filter, map[string]string{"ADDR": victim.LocalAddr().String(), "ID": clientID(t, victim)})
			clientID(t, other)
			if victim.Send(t, lines(tt.before...)); tt.before != nil && !strings.HasPrefix(tt.before[0], "BLPOP") {
				victim.Read(t)
			}
			eventually(t, 9*time.Second, "there are these two", func() bool {
				rows, _ := clientRows(t, killer.Do(t, "CLIENT", "LIST"))
				return len(rows) == 2 && (tt.before == nil || rows[1]["cmd"] != "client|id")
			})
			if v := killer.Do(t, append([]string{"CLIENT", "KILL"}, filter...)...); v.String() != tt.want {
				t.Errorf("CLIENT KILL %v: %v, want %s", filter, v, tt.want)
			}
			if _, closed := victim.ReadUntilQuiet(redistest.ReplyTimeout); !closed {
				t.Error("the victim is still connected")
			}
			if rows, _ := clientRows(t, killer.Do(t, "CLIENT", "LIST")); len(rows) != 1 {
				t.Errorf("listed after the kill: %v", rows)
			}
			if v := other.Do(t, "PING"); v.Raw != "+PONG\r\n" {
				t.Errorf("a client that shares a connection got %v", v)
			}
		})
	}
}

// replaceWords puts values in place of every second word, which are those that
// follow a filter's name, or of the only one.
func replaceWords(text string, values map[string]string) []string {
	words := strings.Fields(text)
	for i := range words {
		if v, ok := values[words[i]]; ok && (i%2 == 1 || len(words) == 1) {
			words[i] = v
		}
	}
	return words
}

func TestClientKill_NoMatch(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	a := redistest.Open(t, w.via)
	id, addr := clientID(t, a), a.LocalAddr().String()
	w.compare(t, dialogue{name: "refused", bytes: lines(
		"CLIENT KILL", "CLIENT KILL nobody:1", "CLIENT KILL ID", "CLIENT KILL ID 0", "CLIENT KILL ID x", "CLIENT KILL ID 10 wrong", "CLIENT KILL ID 999999 TYPE",
		"CLIENT KILL TYPE nosuch", "CLIENT KILL USER nosuch", "CLIENT KILL SKIPME perhaps", "CLIENT KILL ADDR 1.2.3.4:5", "CLIENT KILL LADDR 1.2.3.4:5 TYPE normal", "CLIENT KILL ID 999999999",
		"CLIENT LIST TYPE nosuch", "CLIENT LIST ID", "CLIENT LIST ID x", "CLIENT LIST NOSUCH", "CLIENT LIST TYPE master", "CLIENT LIST ID 999999999", "CLIENT INFO x", "CLIENT ID x",
		"CLIENT UNBLOCK", "CLIENT UNBLOCK x", "CLIENT UNBLOCK 999999999", "CLIENT UNBLOCK 999999999 ERROR", "CLIENT UNBLOCK 999999999 WHY",
		"CLIENT TRACKING ON REDIRECT 999999999", "CLIENT TRACKING ON REDIRECT x", "CLIENT TRACKING ON REDIRECT", "CLIENT GETREDIR", "CLIENT TRACKINGINFO",
		"MULTI", "CLIENT KILL nobody:1", "CLIENT UNBLOCK 999999999", "CLIENT KILL ID x", "EXEC",
	)})
	for _, filter := range []string{"ID " + id, "ADDR " + addr, "LADDR " + w.via + " ADDR " + addr, "SKIPME YES ID " + id, "USER default ID " + id} {
		if v := a.Do(t, append([]string{"CLIENT", "KILL"}, strings.Fields(filter)...)...); v.String() != ":0" {
			t.Errorf("CLIENT KILL %s, of the client itself: %v", filter, v)
		}
	}
}

// TestClientKill_Self: it gets the reply, and nothing that it sent behind is done.
func TestClientKill_Self(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1)
	watcher := redistest.Open(t, r.addr())
	for _, tt := range []struct{ name, before, kill, want string }{
		{"the old way", "", "ADDR", "+OK\r\n"},
		{"by id", "", "SKIPME no ID ID", ":1\r\n"},
		{"on its own connection", "WATCH k", "SKIPME no ID ID", ":1\r\n"},
		{"as a subscriber", "SUBSCRIBE c", "SKIPME no ID ID", ":1\r\n"},
	} {
		c := redistest.Open3(t, r.addr())
		id := clientID(t, c)
		if tt.before != "" {
			c.Do(t, strings.Fields(tt.before)...)
		}
		kill := strings.Join(replaceWords(tt.kill, map[string]string{"ADDR": c.LocalAddr().String(), "ID": id}), " ")
		c.Send(t, lines("CLIENT KILL "+kill, "SET behind 1"))
		if got, closed := c.ReadUntilQuiet(redistest.ReplyTimeout); got != tt.want || !closed {
			t.Errorf("%s: got %q, closed %v", tt.name, got, closed)
		}
		if v := watcher.Do(t, "EXISTS", "behind"); v.Int() != 0 {
			t.Errorf("%s: what came behind it was done", tt.name)
		}
		if row := rowOf(t, watcher, id); row != nil {
			t.Errorf("%s: still listed: %v", tt.name, row)
		}
	}
}

// TestClientKill_Many, some of which have connections of their own.
func TestClientKill_Many(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1)
	killer := redistest.Open(t, r.addr())
	victims := make([]*redistest.Conn, 30)
	for i := range victims {
		victims[i] = redistest.Open(t, r.addr())
		victims[i].Do(t, [][]string{{"PING"}, {"SUBSCRIBE", "c"}, {"WATCH", "k"}}[i%3]...)
	}
	eventually(t, 9*time.Second, "only these clients are there", func() bool {
		rows, _ := clientRows(t, killer.Do(t, "CLIENT", "LIST"))
		return len(rows) == 31
	})
	if v := killer.Do(t, "CLIENT", "KILL", "SKIPME", "yes"); v.Int() != 30 {
		t.Errorf("CLIENT KILL: %v", v)
	}
	if v := killer.Do(t, "PUBLISH", "c", "m"); v.Int() != 0 {
		t.Errorf("a message reached %v that were killed", v)
	}
	for _, c := range victims {
		if _, closed := c.ReadUntilQuiet(redistest.ReplyTimeout); !closed {
			t.Fatal("a victim is still connected")
		}
	}
}

// TestClientKill_BlockedClient: what is pushed after the kill is for others.
func TestClientKill_BlockedClient(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	killer := redistest.Open(t, w.via)
	for range 20 {
		c := redistest.Open(t, w.via)
		id := clientID(t, c)
		c.Send(t, lines("BLPOP q 0"))
		eventually(t, 9*time.Second, "it is blocked", func() bool { return blocked(t, w.behind) == 1 })
		killer.Do(t, "CLIENT", "KILL", "ID", id)
		killer.Do(t, "RPUSH", "q", "x")
		if v := killer.Do(t, "LPOP", "q"); v.Text != "x" {
			t.Fatalf("LPOP: %v", v)
		}
	}
}

func TestClientUnblock(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	a, b := redistest.Open(t, w.via), redistest.Open(t, w.via)
	id := clientID(t, b)
	for _, tt := range []struct{ how, want string }{
		{"", "*-1"}, {"TIMEOUT", "*-1"}, {"error", "-UNBLOCKED client unblocked via CLIENT UNBLOCK"},
	} {
		b.Send(t, lines("BLPOP q 0"))
		eventually(t, 9*time.Second, "it is blocked", func() bool { return blocked(t, w.behind) == 1 })
		if v := a.Do(t, strings.Fields("CLIENT UNBLOCK "+id+" "+tt.how)...); v.Int() != 1 {
			t.Errorf("CLIENT UNBLOCK %s: %v", tt.how, v)
		}
		if v := b.Read(t); v.String() != tt.want {
			t.Errorf("unblocked by %q: %v", tt.how, v)
		}
	}
	for _, id := range []string{id, clientID(t, a), "999999"} {
		if v := a.Do(t, "CLIENT", "UNBLOCK", id); v.String() != ":0" {
			t.Errorf("CLIENT UNBLOCK of one that is not blocked: %v", v)
		}
	}
}
