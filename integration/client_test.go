package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// clientID is what CLIENT ID says.
func clientID(t *testing.T, c *redistest.Conn) string {
	t.Helper()
	v := c.Do(t, "CLIENT", "ID")
	if v.Kind != ':' {
		t.Fatalf("CLIENT ID answered %v", v)
	}
	return v.Text
}

// A clientRow is a line of CLIENT LIST or INFO.
type clientRow map[string]string

// clientRows are the lines of a reply, and the names of the fields of the first.
func clientRows(t *testing.T, v redistest.Value) (rows []clientRow, fields []string) {
	t.Helper()
	if v.Kind != '$' && v.Kind != '=' {
		t.Fatalf("a list was answered with %v", v)
	}
	for line := range strings.Lines(strings.TrimPrefix(v.Text, "txt:")) {
		r := clientRow{}
		for _, f := range strings.Fields(line) {
			key, value, _ := strings.Cut(f, "=")
			r[key] = value
			if len(rows) == 0 {
				fields = append(fields, key)
			}
		}
		rows = append(rows, r)
	}
	return rows, fields
}

// rowOf is the line that a client's CLIENT LIST has of another; nil if none.
func rowOf(t *testing.T, c *redistest.Conn, id string) clientRow {
	t.Helper()
	rows, _ := clientRows(t, c.Do(t, "CLIENT", "LIST"))
	for _, r := range rows {
		if r["id"] == id {
			return r
		}
	}
	return nil
}

// TestClientID: one id, wherever a client meets it, and never that of another.
func TestClientID(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1)
	r.data.Do(t, "CLIENT", "ID") // the upstream's numbers are ahead of the proxy's
	seen := map[string]bool{}
	for _, tt := range []struct {
		name   string
		before []string // commands that lead to another connection
	}{
		{"on a shared connection", nil},
		{"on its own", []string{"WATCH k"}},
		{"for good on its own", []string{"CLIENT NO-EVICT ON"}},
		{"as a subscriber", []string{"HELLO 3", "SUBSCRIBE c"}},
		{"after RESET", []string{"SUBSCRIBE c", "RESET"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := redistest.Open(t, r.addr())
			want := clientID(t, c)
			if seen[want] {
				t.Errorf("%s was another's id", want)
			}
			seen[want] = true
			for _, command := range tt.before {
				if v := c.Do(t, strings.Fields(command)...); v.IsError() {
					t.Fatalf("%s: %v", command, v)
				}
			}
			for _, command := range []string{"CLIENT ID", "HELLO", "HELLO 3", "CLIENT INFO", "CLIENT LIST ID " + want} {
				v := c.Do(t, strings.Fields(command)...)
				if got := idIn(t, v); got != want {
					t.Errorf("%s: id %s, was %s, in %v", command, got, want, v)
				}
			}
		})
	}
}

// idIn is the id in a reply to HELLO, CLIENT ID, INFO or LIST.
func idIn(t *testing.T, v redistest.Value) string {
	t.Helper()
	switch v.Kind {
	case ':':
		return v.Text
	case '$', '=':
		rows, _ := clientRows(t, v)
		return rows[0]["id"]
	}
	for i := 0; i+1 < len(v.Elems); i += 2 {
		if v.Elems[i].Text == "id" {
			return v.Elems[i+1].Text
		}
	}
	t.Fatalf("no id in %v", v)
	return ""
}

func TestClientIDInTransactions(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1)
	c, other := redistest.Open(t, r.addr()), redistest.Open(t, r.addr())
	id, otherID := clientID(t, c), clientID(t, other)
	commands := []string{"MULTI", "SET k v", "CLIENT ID", "MULTI", "HELLO 2", "CLIENT LIST ID " + otherID, "CLIENT KILL ID " + otherID, "GET k"}
	other.Do(t, "MULTI")
	other.Do(t, "MULTI")
	if other.Do(t, "EXEC").IsError() { // Valkey from 8.1 on aborts because of the second
		commands = slices.Delete(commands, 3, 4)
	}
	for _, command := range commands {
		c.Do(t, strings.Fields(command)...)
	}
	v := c.Do(t, "EXEC")
	if len(v.Elems) != 6 {
		t.Fatalf("EXEC: %v", v)
	}
	if got := v.Elems[1].Text; got != id {
		t.Errorf("CLIENT ID: %s, want %s", got, id)
	}
	if got := idIn(t, v.Elems[2]); got != id {
		t.Errorf("HELLO: id %s, want %s", got, id)
	}
	if got := idIn(t, v.Elems[3]); got != otherID {
		t.Errorf("CLIENT LIST: id %s, want %s", got, otherID)
	}
	if v.Elems[4].Int() != 1 || v.Elems[5].Text != "v" {
		t.Errorf("EXEC: %v", v)
	}
	if _, err := other.Next(); err == nil {
		t.Error("the killed client got a reply")
	}
}

// TestClientListHasRedisFields holds the rows of clients with and without a
// connection of their own against Redis's own.
func TestClientListHasRedisFields(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1)
	plain, viaTCP := redistest.Open(t, r.data.Addr()), redistest.Open(t, r.addr())
	_, want := clientRows(t, plain.Do(t, "CLIENT", "LIST"))
	for _, state := range []string{"PING", "WATCH k", "CLIENT SETNAME n"} {
		viaTCP.Do(t, strings.Fields(state)...)
		for _, command := range []string{"LIST", "INFO"} {
			rows, got := clientRows(t, viaTCP.Do(t, "CLIENT", command))
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("CLIENT %s after %s: fields %v, Redis has %v", command, state, got, want)
			}
			if cmd := rows[len(rows)-1]["cmd"]; cmd != "client|"+strings.ToLower(command) {
				t.Errorf("CLIENT %s after %s: cmd=%s", command, state, cmd)
			}
		}
	}
}

func TestClientListShowsTheProxysClients(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 2)
	r.data.Do(t, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all")
	watcher := redistest.Open(t, r.addr())
	elsewhere := redistest.Open(t, r.proxies[1].Addr())
	elsewhere.Do(t, "CLIENT", "SETNAME", "elsewhere")
	for _, tt := range []struct {
		name     string
		commands []string
		want     clientRow
	}{
		{"fresh", nil, clientRow{"flags": "N", "db": "0", "user": "default", "cmd": "client|id", "resp": "2", "name": "", "multi": "-1"}},
		{"named", []string{"CLIENT SETNAME me", "SELECT 3"}, clientRow{"name": "me", "db": "3", "cmd": "select"}},
		{"user", []string{"HELLO 3 AUTH app pw SETNAME you"}, clientRow{"user": "app", "resp": "3", "name": "you", "cmd": "hello"}},
		{"blocked", []string{"BLPOP q 0"}, clientRow{"flags": "b", "cmd": "blpop"}},
		{"blocked with a name", []string{"CLIENT SETNAME me", "SELECT 2", "BLPOP q 0"}, clientRow{"flags": "b", "db": "2", "name": "me"}},
		{"transaction", []string{"MULTI", "GET a", "GET b"}, clientRow{"flags": "x", "multi": "2", "cmd": "get"}},
		{"subscriber", []string{"SUBSCRIBE a b", "PSUBSCRIBE p*"}, clientRow{"flags": "P", "sub": "2", "psub": "1", "cmd": "psubscribe"}},
		{"monitor", []string{"MONITOR"}, clientRow{"flags": "O", "cmd": "monitor"}},
		{"kept", []string{"CLIENT NO-EVICT ON"}, clientRow{"flags": "e"}},
		{"a name", []string{"CLIENT NO-EVICT ON", "CLIENT SETNAME late"}, clientRow{"name": "late"}},
		{"verb", []string{"LOCK l PX 5000"}, clientRow{"cmd": "lock"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := redistest.Open(t, r.addr())
			id := clientID(t, c)
			c.Send(t, lines(tt.commands...))
			tt.want["addr"], tt.want["laddr"] = c.LocalAddr().String(), r.addr()
			eventually(t, 9*time.Second, fmt.Sprintf("a row with %v", tt.want), func() bool {
				row := rowOf(t, watcher, id)
				for key, value := range tt.want {
					if row[key] != value {
						return false
					}
				}
				return true
			})
			c.Close()
			eventually(t, 9*time.Second, "the row goes with the client", func() bool { return rowOf(t, watcher, id) == nil })
		})
	}
	if v := watcher.Do(t, "CLIENT", "LIST"); strings.Contains(v.Text, "elsewhere") {
		t.Errorf("a client of another proxy is listed: %v", v)
	}
}

func TestClientListFilters(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1)
	a, b, sub := redistest.Open(t, r.addr()), redistest.Open3(t, r.addr()), redistest.Open(t, r.addr())
	idA, idB, idSub := clientID(t, a), clientID(t, b), clientID(t, sub)
	sub.Do(t, "SUBSCRIBE", "c")
	asked := idB + " " + idA
	plain := redistest.Open(t, r.data.Addr())
	first, second := clientID(t, plain), clientID(t, redistest.Open(t, r.data.Addr()))
	rows, _ := clientRows(t, plain.Do(t, "CLIENT", "LIST", "ID", second, first))
	if rows[0]["id"] == first { // Valkey lists them in the order in which they came
		asked = idA + " " + idB
	}
	for _, tt := range []struct{ args, want string }{
		{"ID " + idB + " " + idA, asked},
		{"ID 999999 " + idA, idA},
		{"TYPE pubsub", idSub},
		{"TYPE NORMAL", idA + " " + idB},
		{"TYPE replica", ""},
		{"TYPE master", ""},
	} {
		for _, c := range []*redistest.Conn{a, b} {
			rows, _ := clientRows(t, c.Do(t, append([]string{"CLIENT", "LIST"}, strings.Fields(tt.args)...)...))
			var got []string
			for _, row := range rows {
				got = append(got, row["id"])
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("CLIENT LIST %s: %v, want %s", tt.args, got, tt.want)
			}
		}
	}
}

// TestClientList_OmitsEndedClients: the upstream kills, and the next list knows.
func TestClientList_OmitsEndedClients(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1)
	r.data.Do(t, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all")
	watcher := redistest.Open(t, r.addr())
	for i := range 30 {
		c := redistest.Open(t, r.addr())
		c.Do(t, "AUTH", "app", "pw")
		id := clientID(t, c)
		c.Do(t, "SUBSCRIBE", "c")
		if rowOf(t, watcher, id) == nil {
			t.Fatal("not listed")
		}
		if v := watcher.Do(t, "ACL", "SETUSER", "app", "resetchannels"); v.IsError() {
			t.Fatal(v)
		}
		if row := rowOf(t, watcher, id); row != nil {
			t.Fatalf("round %d: listed after the upstream killed it: %v", i, row)
		}
		r.data.Do(t, "ACL", "SETUSER", "app", "allchannels")
	}
}

// TestClientIDBehindALargeCommand: a transaction's replies have their places though one
// of its commands was sent ahead in pieces.
func TestClientIDBehindALargeCommand(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1)
	redistest.Open(t, r.data.Addr()) // the upstream's numbers are ahead of the proxy's
	c := redistest.Open(t, r.addr())
	id := clientID(t, c)
	c.Do(t, "CLIENT", "NO-EVICT", "ON")
	c.Do(t, "MULTI")
	set := redistest.Command("SET", "k", strings.Repeat("v", 1<<20))
	c.Send(t, set[:len(set)/2])
	eventually(t, 9*time.Second, "half of it has been sent ahead", func() bool {
		return rowOf(t, redistest.Open(t, r.addr()), id)["cmd"] == "set"
	})
	c.Send(t, set[len(set)/2:])
	c.Do(t, "CLIENT", "ID") // the reply to SET
	c.Read(t)
	if v := c.Do(t, "EXEC"); v.String() != "*[+OK :"+id+"]" {
		t.Errorf("EXEC: %v, want the id %s", v, id)
	}
}

// TestClientCommandsNeedPermission, in the upstream's words, and do nothing without.
func TestClientCommandsNeedPermission(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	w.both(t, "ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all", "-client")
	victim := redistest.Open(t, w.via)
	id, addr := clientID(t, victim), victim.LocalAddr().String()
	w.compare(t, dialogue{name: "NOPERM", bytes: lines(
		"AUTH weak pw", "CLIENT ID", "CLIENT LIST", "CLIENT INFO", "CLIENT KILL ID "+id, "CLIENT KILL "+addr, "CLIENT KILL SKIPME YES", "CLIENT UNBLOCK "+id,
		"CLIENT TRACKING ON REDIRECT "+id, "CLIENT GETREDIR", "CLIENT TRACKINGINFO", "HELLO", "MULTI", "CLIENT ID", "EXEC", "HELLO 3", "SUBSCRIBE c", "CLIENT ID", "CLIENT LIST",
	)})
	if v := victim.Do(t, "PING"); v.Raw != "+PONG\r\n" {
		t.Errorf("killed by one that may not: %v", v)
	}
}

// TestClientIDAfterARefusedMulti: commands behind a MULTI that the upstream refuses do not count as part of the next transaction.
func TestClientIDAfterARefusedMulti(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1)
	r.data.Do(t, "ACL", "SETUSER", "weak", "on", ">pw", "~*", "+@all", "-multi")
	c := redistest.Open(t, r.addr())
	id, _ := clientID(t, c), c.Do(t, "AUTH", "weak", "pw")
	c.Send(t, redistest.Command("MULTI")+redistest.Command("GET", "k"))
	if v := c.Read(t); !strings.HasPrefix(v.Text, "NOPERM") {
		t.Fatalf("MULTI: %v", v)
	}
	c.Read(t)
	r.data.Do(t, "ACL", "SETUSER", "weak", "+multi")
	c.Do(t, "MULTI")
	c.Do(t, "CLIENT", "ID")
	if v := c.Do(t, "EXEC"); v.String() != "*[:"+id+"]" {
		t.Errorf("EXEC: %v, want the id %s", v, id)
	}
}

func TestClientListOverUnixSocket(t *testing.T) {
	t.Parallel()
	data, nodes := redistest.Start(t), redistest.StartNodes(t, 1)
	path := t.TempDir() + "/lp.sock"
	redistest.StartServe(t, path, "--upstream", data.URL(), "--lock-node", nodes[0].URL())
	c := redistest.Open(t, path)
	var rows []clientRow
	eventually(t, 30*time.Second, "the connection that saw the proxy start is gone", func() bool {
		rows, _ = clientRows(t, c.Do(t, "CLIENT", "LIST"))
		return len(rows) == 1
	})
	if rows[0]["addr"] != path+":0" || rows[0]["laddr"] != path+":0" || rows[0]["flags"] != "U" {
		t.Errorf("listed as %v", rows)
	}
	if v := c.Do(t, "CLIENT", "KILL", "ADDR", path+":0", "SKIPME", "no"); v.Int() != 1 {
		t.Errorf("CLIENT KILL: %v", v)
	}
}

// TestClientCommandsOnACluster: the ids and lists are those of one server, wherever
// on its nodes a client is.
func TestClientCommandsOnACluster(t *testing.T) {
	t.Parallel()
	_, p := startClustered(t, 3, 0)
	a := redistest.Open(t, p.Addr())
	for i, tt := range []struct {
		name, command string
		want          clientRow
		killed        bool
	}{
		{"blocked", "BLPOP q%d 0", clientRow{"flags": "b", "cmd": "blpop"}, false},
		{"blocked and killed", "BLPOP r%d 0", clientRow{"flags": "b"}, true},
		{"transaction", "MULTI", clientRow{"flags": "x", "multi": "0", "cmd": "multi"}, true},
		{"watching", "WATCH k%d", clientRow{"cmd": "watch"}, true},
		{"subscriber", "SUBSCRIBE a b c%d", clientRow{"flags": "P", "sub": "3", "cmd": "subscribe"}, true},
		{"monitor", "MONITOR", clientRow{"flags": "O", "cmd": "monitor"}, true},
	} {
		for key := range 4 { // on whatever node
			b := redistest.Open(t, p.Addr())
			id := clientID(t, b)
			tt.want["addr"] = b.LocalAddr().String()
			command := tt.command
			if strings.Contains(command, "%d") {
				command = fmt.Sprintf(command, 10*i+key)
			}
			b.Send(t, lines(command))
			eventually(t, 9*time.Second, fmt.Sprintf("%s: a row with %v", tt.name, tt.want), func() bool {
				row := rowOf(t, a, id)
				for k, v := range tt.want {
					if row[k] != v {
						return false
					}
				}
				return true
			})
			if !tt.killed {
				eventually(t, 9*time.Second, "it is unblocked", func() bool { return a.Do(t, "CLIENT", "UNBLOCK", id, "ERROR").Int() == 1 })
				if v := b.Read(t); !strings.HasPrefix(v.Text, "UNBLOCKED") {
					t.Errorf("unblocked: %v", v)
				}
			}
			if v := a.Do(t, "CLIENT", "KILL", "ID", id); v.Int() != 1 {
				t.Errorf("%s: CLIENT KILL: %v", tt.name, v)
			}
			if _, closed := b.ReadUntilQuiet(redistest.ReplyTimeout); !closed {
				t.Errorf("%s: still connected", tt.name)
			}
			if row := rowOf(t, a, id); row != nil {
				t.Errorf("%s: still listed: %v", tt.name, row)
			}
		}
	}
	c := redistest.Open(t, p.Addr())
	id := clientID(t, c)
	for _, command := range []string{"MULTI", "CLIENT ID", "SET one 1", "HELLO", "CLIENT LIST"} {
		c.Do(t, strings.Fields(command)...)
	}
	v := c.Do(t, "EXEC")
	if len(v.Elems) != 4 || v.Elems[0].Text != id || idIn(t, v.Elems[2]) != id || !strings.Contains(v.Elems[3].Text, "id="+id+" ") {
		t.Errorf("EXEC: %v, the id is %s", v, id)
	}
}

// TestSubscriber_WithoutPermissionForPing: what the proxy has to know of a connection whose
// replies are not counted it learns from any client, and none hears of it.
func TestSubscriber_WithoutPermissionForPing(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1)
	r.data.Do(t, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-ping")
	c := redistest.Open3(t, r.addr())
	id := clientID(t, c)
	c.Do(t, "AUTH", "app", "pw")
	c.Do(t, "SUBSCRIBE", "c")
	if v := c.Do(t, "CLIENT", "ID"); v.Text != id {
		t.Errorf("CLIENT ID: %v, want %s", v, id)
	}
	if v := c.Do(t, "LOCK", "job", "30s"); v.Kind != '*' {
		t.Errorf("LOCK: %v", v)
	}
	if v := c.Do(t, "ECHO", "end"); v.Text != "end" {
		t.Errorf("the reply to ECHO is %v", v)
	}
}

// TestSubscriber_BlockingCommand: what it sends behind BLPOP waits as long as that does, and
// means the proxy's clients then too.
func TestSubscriber_BlockingCommand(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	other, c := redistest.Open(t, w.via), redistest.Open3(t, w.via)
	id := clientID(t, c)
	c.Do(t, "SUBSCRIBE", "c")
	c.Send(t, lines("BLPOP q 0", "CLIENT ID", "UNLOCK job me", "BLPOP q 0", "RESET", "CLIENT ID"))
	for range 2 {
		eventually(t, 9*time.Second, "it is blocked", func() bool { return blocked(t, w.behind) == 1 })
		time.Sleep(6 * time.Second) // longer than anything that is done in haste
		other.Do(t, "RPUSH", "q", "x")
	}
	for _, want := range []string{`*[$"q" $"x"]`, ":" + id, "-LOCKLOST", `*[$"q" $"x"]`, "+RESET", ":" + id} {
		if v := c.Read(t); !strings.HasPrefix(v.String(), want) {
			t.Errorf("got %v, want %s", v, want)
		}
	}
}
