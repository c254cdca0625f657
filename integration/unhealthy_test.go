package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// surprises are the states of an upstream in which it answers an error: what brings
// them about is in sicknesses, unless said here, and heal ends them.
var surprises = []struct {
	word    string
	infect  string // on the upstream; empty: as a lock node falls sick
	command string // what is answered so
	heal    string
}{
	{word: "OOM", command: "SET k 1", heal: "CONFIG SET maxmemory 0"},
	{word: "READONLY", command: "SET k 1", heal: "REPLICAOF NO ONE"},
	{word: "NOREPLICAS", command: "SET k 1", heal: "CONFIG SET min-replicas-to-write 0"},
	{word: "MISCONF", command: "SET k 1", heal: "CONFIG SET stop-writes-on-bgsave-error no"},
	{word: "MASTERDOWN", infect: "CONFIG SET replica-serve-stale-data no|REPLICAOF 127.0.0.1 1", command: "GET k", heal: "REPLICAOF NO ONE"},
	{word: "NOPERM", infect: "ACL SETUSER operator on nopass +@all ~* &*|ACL SETUSER default -set", command: "SET k 1", heal: "ACL SETUSER default +set"},
	{word: "LOADING", command: "GET k"},
}

// Error replies of an upstream in trouble reach its clients as they are, on every kind
// of connection. Clients stay connected, and are served when the trouble is over.
func TestUnhealthyUpstream_RepliesAreRelayed(t *testing.T) {
	t.Parallel()
	for _, tt := range surprises {
		t.Run(tt.word, func(t *testing.T) {
			t.Parallel()
			sick := nodeFaults[0]
			for _, s := range nodeFaults {
				if s.word == tt.word {
					sick = s
				}
			}
			data := redistest.Start(t, sick.args...)
			p := redistest.StartProxy(t, data, redistest.StartNodes(t, 1))
			before, own := redistest.Open(t, p.Addr()), redistest.Open3(t, p.Addr())
			before.Do(t, "SET", "k", "1")
			own.Do(t, "CLIENT", "ID")
			if tt.infect == "" {
				sick.infect(t, data)
			}
			do(t, data, tt.infect)
			command := strings.Fields(tt.command)
			want := redistest.Open(t, data.Addr()).Do(t, command...)
			if !strings.HasPrefix(want.Text, tt.word+" ") {
				t.Fatalf("the upstream is well: %v", want)
			}
			clients := []*redistest.Conn{before, redistest.Open(t, p.Addr()), redistest.Open3(t, p.Addr())}
			if tt.word != "LOADING" { // its connection did not survive the restart
				clients = append(clients, own)
			}
			for i, c := range clients {
				v := c.Do(t, command...)
				if strings.HasPrefix(v.Text, "UPSTREAMDOWN") && tt.word == "LOADING" {
					v = c.Do(t, command...)
				}
				if v.Raw != want.Raw {
					t.Errorf("client %d: %v, the upstream says %v", i, v, want)
				}
				if v := c.Do(t, "MULTI"); v.Raw != "+OK\r\n" {
					t.Errorf("client %d: MULTI: %v", i, v)
				} else if v := c.Do(t, "DISCARD"); v.Raw != "+OK\r\n" {
					t.Errorf("client %d: DISCARD: %v", i, v)
				}
				c.Do(t, "PING") // the transaction is over, as far as the proxy knows
			}
			do(t, data, tt.heal)
			if tt.heal == "" {
				data.Kill() // it would take long
				if err := data.Restart(); err != nil {
					t.Fatal(err)
				}
			}
			for i, c := range clients {
				eventually(t, 9*time.Second, "a healthy upstream is used", func() bool { return !c.Do(t, command...).IsError() })
				if v := c.Do(t, "SET", "k", "2"); v.Raw != "+OK\r\n" {
					t.Errorf("client %d afterwards: %v", i, v)
				}
			}
		})
	}
}

// do runs commands on a server, which must succeed: words between spaces, commands
// between bars.
func do(t *testing.T, s *redistest.Server, commands string) {
	t.Helper()
	for _, command := range strings.Split(commands, "|") {
		if command == "" {
			continue
		}
		s.Do(t, strings.Fields(command)...)
	}
}

// TestKeyspaceNotifications: a subscriber hears of what other clients do, and of what
// the upstream does by itself.
func TestKeyspaceNotifications(t *testing.T) {
	t.Parallel()
	w := startTwin(t, "--notify-keyspace-events", "KEA")
	for _, tt := range []struct {
		name, push string
		open       func(testing.TB, string) *redistest.Conn
	}{{"RESP2", "*", redistest.Open}, {"RESP3", ">", redistest.Open3}} {
		t.Run(tt.name, func(t *testing.T) {
			sub, other := tt.open(t, w.via), redistest.Open(t, w.via)
			sub.Do(t, "SUBSCRIBE", "__keyevent@0__:set", "__keyevent@0__:expired")
			sub.Read(t)
			sub.Do(t, "PSUBSCRIBE", "__keyspace@*__:k")
			other.Do(t, "SELECT", "0")
			other.Do(t, "SET", "k", "v", "PX", "50")
			for _, want := range []string{
				`[$"pmessage" $"__keyspace@*__:k" $"__keyspace@0__:k" $"set"]`,
				`[$"message" $"__keyevent@0__:set" $"k"]`,
				`[$"pmessage" $"__keyspace@*__:k" $"__keyspace@0__:k" $"expire"]`,
				`[$"pmessage" $"__keyspace@*__:k" $"__keyspace@0__:k" $"expired"]`,
				`[$"message" $"__keyevent@0__:expired" $"k"]`,
			} {
				if v := sub.Read(t); v.String() != tt.push+want {
					t.Errorf("heard %v, want %s%s", v, tt.push, want)
				}
			}
		})
	}
}

// openAfter returns a client that has sent commands, separated by commas, and has their answers.
func openAfter(t *testing.T, addr, commands string) *redistest.Conn {
	t.Helper()
	c := redistest.Open(t, addr)
	for command := range strings.SplitSeq(commands, ", ") {
		c.Do(t, strings.Fields(command)...)
	}
	return c
}

// A restart of the upstream ends the clients whose state it had, and no others.
func TestUpstreamRestart_EndsStatefulClientsOnly(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	stateless := map[string]*redistest.Conn{}
	for _, command := range []string{"GET a", "SELECT 3", "CLIENT SETNAME me", "HELLO 3", "EVAL return(1) 0", "BLPOP none 0.01"} {
		c := redistest.Open(t, w.via)
		c.Do(t, strings.Fields(command)...)
		stateless[command] = c
	}
	for _, commands := range []string{"MULTI, GET a, EXEC", "MULTI, GET a, DISCARD", "MULTI, GET, EXEC", "WATCH a, MULTI, GET a, EXEC"} {
		stateless[commands] = openAfter(t, w.via, commands)
	}
	stateful := map[string]*redistest.Conn{}
	for _, commands := range []string{"MULTI", "WATCH a", "SUBSCRIBE c", "MONITOR", "CLIENT TRACKING on", "CLIENT NO-EVICT on",
		"MULTI, EXEC, MULTI", "MULTI, EXEC, WATCH a", "MULTI, SELECT 1, EXEC"} {
		stateful[commands] = openAfter(t, w.via, commands)
	}
	waiting := redistest.Open(t, w.via)
	waiting.Send(t, lines("BLPOP none 0"))
	eventually(t, 9*time.Second, "BLPOP waits upstream", func() bool { return blocked(t, w.behind) == 1 })
	w.behind.Kill()
	for name, c := range stateful {
		if _, closed := c.ReadUntilQuiet(redistest.ReplyTimeout); !closed {
			t.Errorf("after %s the client is still connected", name)
		}
	}
	if v := waiting.Read(t); !strings.HasPrefix(v.Text, "UPSTREAMDOWN ") {
		t.Errorf("BLPOP: %v", v)
	}
	for name, c := range stateless {
		if v := c.Do(t, "GET", "a"); !strings.HasPrefix(v.Text, "UPSTREAMDOWN ") {
			t.Errorf("after %s: %v", name, v)
		}
	}
	if err := w.behind.Restart(); err != nil {
		t.Fatal(err)
	}
	stateless["BLPOP none 0"] = waiting
	for name, c := range stateless {
		eventually(t, 9*time.Second, name+": it goes on", func() bool { return !c.Do(t, "GET", "a").IsError() })
	}
	if v := stateless["SELECT 3"].Do(t, "SET", "where", "1"); v.IsError() {
		t.Fatal(v)
	}
	if v := w.behind.Do(t, "INFO", "keyspace"); !strings.Contains(v.Text, "db3:keys=1") {
		t.Errorf("the database was forgotten: %v", v)
	}
	if v := stateless["CLIENT SETNAME me"].Do(t, "CLIENT", "GETNAME"); v.Text != "me" {
		t.Errorf("the name was forgotten: %v", v)
	}
	if v := stateless["HELLO 3"].Do(t, "GET", "none"); v.Raw != "_\r\n" {
		t.Errorf("the protocol was forgotten: %v", v)
	}
}
