package integration

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A clientSet is the connections of setMembers to one address of a twin, by name; "asks"
// sends the CLIENT commands.
type clientSet struct {
	addr    string
	clients map[string]*redistest.Conn
	ids     map[string]string // by name
}

// setMembers are clients by name, and the commands that they have sent.
var setMembers = map[string][]string{
	"asks":      nil,
	"plain":     nil,
	"named":     {"CLIENT SETNAME n"},
	"app":       {"AUTH app pw", "SELECT 2"},
	"library":   {"CLIENT SETINFO LIB-NAME lib", "CLIENT SETINFO LIB-VER 1.2", "CLIENT SETNAME n"},
	"older":     {"CLIENT SETINFO LIB-NAME lib", "SELECT 2"},
	"listener":  {"SUBSCRIBE c"},
	"in a tx":   {"MULTI", "GET k"},
	"watching":  {"CLIENT SETINFO LIB-NAME lib", "WATCH k"},
	"kept":      {"CLIENT NO-EVICT ON", "CLIENT SETNAME n"},
	"tracking":  {"HELLO 3", "CLIENT TRACKING ON"},
	"capable":   {"CLIENT CAPA REDIRECT", "CLIENT SETNAME kept"},
	"monitor":   {"MONITOR"},
	"blocked":   {"BLPOP q 0"},
	"wrongname": {"HELLO 3 SETNAME wrong BADOPT"},
}

// connectAll connects the clients, in the order of their names.
func connectAll(t *testing.T, addr string) *clientSet {
	t.Helper()
	c := &clientSet{addr: addr, clients: map[string]*redistest.Conn{}, ids: map[string]string{}}
	for _, name := range names() {
		c.connect(t, name)
	}
	return c
}

func names() []string {
	var all []string
	for name := range setMembers {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func (c *clientSet) connect(t *testing.T, name string) {
	t.Helper()
	conn := redistest.Open(t, c.addr)
	c.clients[name], c.ids[name] = conn, clientID(t, conn)
	for _, command := range setMembers[name] {
		if conn.Send(t, lines(command)); !strings.HasPrefix(command, "BLPOP") {
			conn.Read(t)
		}
	}
}

// clientCommand sends CLIENT and arguments in which a name in braces stands for that client's id,
// or, behind an @, its address; and tells who is listed, in that order, or the reply. A
// Redis lists clients in an order of its own, unless it is asked for one.
func (c *clientSet) clientCommand(t *testing.T, command string) string {
	t.Helper()
	for name, id := range c.ids {
		command = strings.ReplaceAll(command, "{"+name+"}", id)
		command = strings.ReplaceAll(command, "{@"+name+"}", c.clients[name].LocalAddr().String())
	}
	command = strings.ReplaceAll(command, "{here}", c.addr)
	v := c.clients["asks"].Do(t, strings.Fields("CLIENT "+command)...)
	if v.Kind != '$' && v.Kind != '=' {
		return v.String()
	}
	return c.names(t, v)
}

func (c *clientSet) names(t *testing.T, v redistest.Value) string {
	t.Helper()
	rows, _ := clientRows(t, v)
	var who []string
	for _, r := range rows {
		for name, id := range c.ids {
			if id == r["id"] {
				who = append(who, name)
			}
		}
	}
	return strings.Join(who, ", ")
}

// sorted is a list of names in the order of these.
func sorted(list string) string {
	who := strings.Split(list, ", ")
	slices.Sort(who)
	return strings.Join(who, ", ")
}

// startClientSets are the same clients at both servers of a twin.
func startClientSets(t *testing.T) (w *twin, plain, via *clientSet) {
	t.Helper()
	w = startTwin(t)
	w.both(t, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all")
	plain, via = connectAll(t, w.plain.Addr()), connectAll(t, w.via)
	for _, c := range []*clientSet{plain, via} {
		eventually(t, 9*time.Second, "all are there", func() bool {
			v := c.clients["asks"].Do(t, "CLIENT", "LIST")
			return sorted(c.names(t, v)) == strings.Join(names(), ", ") && strings.Contains(v.Text, "cmd=blpop")
		})
	}
	return w, plain, via
}

// TestClientListFiltersAsUpstream: whichever filters the upstream has, the same clients
// are listed, in the same order; what it has not, it refuses in its words.
func TestClientListFiltersAsUpstream(t *testing.T) {
	t.Parallel()
	_, plain, via := startClientSets(t)
	taken, combined := 0, !strings.HasPrefix(plain.clientCommand(t, "LIST SKIPME no"), "-")
	for _, filter := range []string{
		"ID {plain} {app}", "ID {plain} {app} {plain} 0", "ID {plain} 999999999 {app}", "ID {watching} {app} {plain}", "ID 0", "ID -1", "ID 05", "ID {plain} x", "ID", "ID {plain} {app} TYPE normal", "TYPE pubsub ID {plain} {listener}",
		"NOT-ID {plain} {app}", "NOT-ID x", "NOT-ID 0",
		"TYPE normal", "TYPE primary", "TYPE PRIMARY", "TYPE master", "TYPE nosuch", "TYPE", "NOT-TYPE normal", "NOT-TYPE pubsub", "NOT-TYPE nosuch", "TYPE normal TYPE pubsub",
		"USER app", "USER default", "USER nosuch", "USER", "NOT-USER app", "NOT-USER nosuch", "USER app USER default",
		"ADDR {@plain}", "ADDR 1.2.3.4:5", "NOT-ADDR {@plain}", "LADDR {here}", "LADDR {here} ADDR {@app}", "NOT-LADDR {here}",
		"SKIPME yes", "SKIPME no", "SKIPME maybe", "SKIPME", "USER default SKIPME YES",
		"MAXAGE 1000", "MAXAGE 0", "MAXAGE x", "MAXAGE", "NOT-MAXAGE 1", "IDLE 1000", "IDLE 0", "IDLE x", "NOT-IDLE 5",
		"NAME n", "NAME kept", "NAME wrong", "NAME nobody", "NAME", "NOT-NAME n", "NAME n TYPE normal", "NAME n LIB-NAME lib", "NAME n NOT-LIB-NAME lib", "name N", "NAME ID ID {plain}",
		"LIB-NAME lib", "LIB-NAME lib LIB-VER 1.2", "LIB-VER 1.2", "LIB-VER 9", "NOT-LIB-NAME lib", "NOT-LIB-VER 1.2", "LIB-NAME lib NOT-LIB-VER 1.2",
		"DB 2", "DB 0", "DB 99", "DB -1", "DB x", "DB", "NOT-DB 0", "NOT-DB 99", "DB 2 USER app",
		"CAPA r", "CAPA x", "NOT-CAPA r", "NOT-CAPA q",
		"FLAGS N", "FLAGS P", "FLAGS x", "FLAGS b", "FLAGS t", "FLAGS e", "FLAGS O", "FLAGS S", "FLAGS M", "FLAGS xP", "FLAGS ?", "FLAGS", "NOT-FLAGS N", "NOT-FLAGS P", "NOT-FLAGS xe", "NOT-FLAGS ?",
		"IP 127.0.0.1", "IP 127.0.0", "IP 1.2.3.4", "NOT-IP 127.0.0.1", "NOT-IP 1.2.3.4",
		"NOSUCH x", "x",
	} {
		want, got := plain.clientCommand(t, "LIST "+filter), via.clientCommand(t, "LIST "+filter)
		if !strings.HasPrefix(want, "-") {
			taken++
		}
		if combined || !strings.HasPrefix(filter, "ID") {
			want, got = sorted(want), sorted(got)
		}
		if got != want {
			t.Errorf("CLIENT LIST %s: %s, without a proxy %s", filter, got, want)
		}
	}
	t.Logf("the upstream takes %d", taken)
}

// TestClientKillFiltersAsUpstream: the same clients are killed.
func TestClientKillFiltersAsUpstream(t *testing.T) {
	t.Parallel()
	_, plain, via := startClientSets(t)
	taken := 0
	for _, filter := range []string{
		"ID {plain} {app}", "ID {plain} ID {app}", "ID {plain} {app} ADDR {@app}", "ID {plain} 0", "ID 0", "ID", "NOT-ID {plain} TYPE pubsub", "NOT-ID {listener} TYPE pubsub",
		"NAME n", "NOT-NAME n TYPE pubsub", "NAME wrong", "LIB-NAME lib", "LIB-VER 1.2", "NOT-LIB-NAME lib USER app", "DB 2", "DB 99", "NOT-DB 0",
		"FLAGS P", "FLAGS x", "FLAGS b", "FLAGS t", "FLAGS e", "FLAGS O", "FLAGS ?", "FLAGS N NAME nobody", "NOT-FLAGS N TYPE pubsub", "CAPA r", "NOT-CAPA r NAME n", "IP 1.2.3.4", "NOT-IP 127.0.0.1", "IP 127.0.0.1 USER app",
		"USER app", "NOT-USER default", "TYPE primary", "NOT-TYPE normal", "MAXAGE 1000", "MAXAGE 0", "IDLE 1000", "IDLE x", "SKIPME no NAME nobody", "SKIPME maybe", "LADDR {here} USER app", "NOT-LADDR {here}", "NOSUCH x", "NAME x NOSUCH", "COLOUR ADDR {@app} x",
	} {
		want, got := plain.clientCommand(t, "KILL "+filter), via.clientCommand(t, "KILL "+filter)
		if !strings.HasPrefix(want, "-") {
			taken++
		}
		if got != want {
			t.Errorf("CLIENT KILL %s: %s, without a proxy %s", filter, got, want)
		}
		want, got = sorted(plain.clientCommand(t, "LIST")), sorted(via.clientCommand(t, "LIST"))
		if got != want {
			t.Errorf("CLIENT KILL %s leaves %s, without a proxy %s", filter, got, want)
		}
		for _, name := range names() {
			for _, c := range []*clientSet{plain, via} {
				if !strings.Contains(", "+c.clientCommand(t, "LIST")+",", ", "+name+",") {
					c.connect(t, name)
				}
			}
		}
	}
	t.Logf("the upstream takes %d", taken)
}

// TestClientListFiltersInTransactions, and of a subscriber.
func TestClientListFiltersInTransactions(t *testing.T) {
	t.Parallel()
	_, plain, via := startClientSets(t)
	combined := !strings.HasPrefix(plain.clientCommand(t, "LIST SKIPME no"), "-")
	for _, filter := range []string{"NAME n", "USER app", "USER nosuch", "ID {watching} {plain} {app}", "NOSUCH x", "TYPE pubsub SKIPME yes", "FLAGS x"} {
		answers := map[*clientSet]string{}
		for _, c := range []*clientSet{plain, via} {
			asks := c.clients["asks"]
			asks.Do(t, "MULTI")
			if v := c.clientCommand(t, "LIST "+filter); v != "+QUEUED" {
				t.Errorf("CLIENT LIST %s in a transaction: %v", filter, v)
			}
			v := asks.Do(t, "EXEC")
			if len(v.Elems) != 1 {
				t.Fatalf("EXEC: %v", v)
			}
			if answers[c] = v.Elems[0].String(); v.Elems[0].Kind == '$' {
				answers[c] = c.names(t, v.Elems[0])
			}
		}
		if combined || !strings.HasPrefix(filter, "ID") {
			answers[via], answers[plain] = sorted(answers[via]), sorted(answers[plain])
		}
		if answers[via] != answers[plain] {
			t.Errorf("CLIENT LIST %s in a transaction: %s, without a proxy %s", filter, answers[via], answers[plain])
		}
	}
	for _, c := range []*clientSet{plain, via} {
		asks := redistest.Open3(t, c.addr)
		c.clients["asks"], c.ids["asks"] = asks, clientID(t, asks)
		asks.Do(t, "SUBSCRIBE", "c2")
	}
	for _, filter := range []string{"NAME n", "USER app", "USER nosuch", "ID {watching} {app} {plain}", "NOSUCH x", "TYPE pubsub SKIPME yes"} {
		if got, want := sorted(via.clientCommand(t, "LIST "+filter)), sorted(plain.clientCommand(t, "LIST "+filter)); got != want {
			t.Errorf("CLIENT LIST %s of a subscriber: %s, without a proxy %s", filter, got, want)
		}
	}
}

// TestClientListFiltersBesideSubscriptions: a transaction that begins or ends subscriptions lists whom any other does, before
// and behind them, in both protocols.
func TestClientListFiltersBesideSubscriptions(t *testing.T) {
	t.Parallel()
	_, plain, via := startClientSets(t)
	combined := !strings.HasPrefix(plain.clientCommand(t, "LIST SKIPME no"), "-")
	opens := map[string]func(testing.TB, string) *redistest.Conn{"RESP2": redistest.Open, "RESP3": redistest.Open3}
	for _, filter := range []string{"", "TYPE master", "TYPE pubsub", "TYPE normal", "ID {app} {plain} 0", "ID {asks}", "USER app", "NAME n", "FLAGS x", "TYPE pubsub SKIPME yes", "NOSUCH x"} {
		for _, command := range []string{"SUBSCRIBE c2", "PSUBSCRIBE c*", "SSUBSCRIBE s", "UNSUBSCRIBE c2", "PUNSUBSCRIBE c*", "SUNSUBSCRIBE s", "MONITOR", "SUBSCRIBE c2 c3"} {
			for proto, open := range opens {
				answers := map[*clientSet]string{}
				for _, c := range []*clientSet{plain, via} {
					answers[c] = c.listBeside(t, open(t, c.addr), filter, command, combined)
				}
				if answers[via] != answers[plain] {
					t.Errorf("CLIENT LIST %s before and behind %s with %s: %s, without a proxy %s", filter, command, proto, answers[via], answers[plain])
				}
			}
		}
	}
}

// listBeside tells who is listed, or the errors, by a transaction of a client, with CLIENT LIST, another command, which if it has one
// reply is also followed by CLIENT LIST, and CLIENT ID before both. Of an id it tells whether it is the client's.
func (c *clientSet) listBeside(t *testing.T, asks *redistest.Conn, filter, command string, combined bool) string {
	t.Helper()
	defer asks.Close()
	c.clients["asks"], c.ids["asks"] = asks, clientID(t, asks)
	list := strings.TrimSpace("LIST " + filter)
	asks.Do(t, "MULTI")
	asks.Do(t, "CLIENT", "ID")
	c.clientCommand(t, list)
	asks.Do(t, strings.Fields(command)...)
	if len(strings.Fields(command)) < 3 {
		c.clientCommand(t, list)
	}
	v := asks.Do(t, "EXEC")
	if len(v.Elems) == 0 {
		return v.String()
	}
	var all []string
	for i, e := range v.Elems {
		switch {
		case i == 0:
			all = append(all, "the client's id: "+strconv.FormatBool(e.String() == ":"+c.ids["asks"]))
		case e.Kind == '$' || e.Kind == '=':
			who := c.names(t, e)
			if combined || !strings.HasPrefix(filter, "ID") {
				who = sorted(who)
			}
			all = append(all, who)
		default:
			all = append(all, e.String())
		}
	}
	return strings.Join(all, "; ")
}
