package integration

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// With --upstream-conns 0 a client is one connection upstream, whatever it does, and
// the upstream can tell clients apart.
func TestUnshared_ConnectionPerClient(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1, "--upstream-conns", "0")
	rows := func() int { return strings.Count(r.data.Do(t, "CLIENT", "LIST").Text, "\n") }
	r.data.Do(t, "ACL", "SETUSER", "ann", "on", ">pw", "~*", "&*", "+@all")
	r.data.Do(t, "RPUSH", "queue", "x")

	const n = 3
	clients := make([]*redistest.Conn, n)
	for i := range clients {
		c := redistest.Open(t, r.addr())
		for _, step := range []struct{ command, want string }{
			{"PING", "+PONG"}, {"EVAL return(1) 0", ":1"}, {"AUTH ann pw", "+OK"}, {"SELECT 3", "+OK"}, {"SELECT 0", "+OK"},
			{"MULTI", "+OK"}, {"EXEC", "*[]"}, {"BRPOPLPUSH queue queue 0", `$"x"`}, {"RESET", "+RESET"},
			{fmt.Sprint("CLIENT SETNAME client", i), "+OK"},
		} {
			if v := c.Do(t, strings.Fields(step.command)...); v.String() != step.want {
				t.Fatalf("%s: %v, want %s", step.command, v, step.want)
			}
		}
		clients[i] = c
	}
	eventually(t, 9*time.Second, "one connection for each client, beside the one that asks", func() bool { return rows() == n+1 })

	r.data.Do(t, "CONFIG", "SET", "slowlog-log-slower-than", "0")
	clients[1].Do(t, "SET", "slow", "1")
	r.data.Do(t, "CONFIG", "SET", "slowlog-log-slower-than", "-1")
	if log := r.data.Do(t, "SLOWLOG", "GET"); !strings.Contains(log.String(), "client1") {
		t.Errorf("the slow log does not know who it was: %v", log)
	}

	for _, row := range strings.Split(r.data.Do(t, "CLIENT", "LIST").Text, "\n") {
		if strings.Contains(row, "name=client1 ") {
			id, _, _ := strings.Cut(strings.TrimPrefix(row, "id="), " ")
			r.data.Do(t, "CLIENT", "KILL", "ID", id)
		}
	}
	if v, err := clients[1].Next(); err == nil {
		t.Errorf("the client whose connection was killed got %v", v)
	}
	for _, i := range []int{0, 2} {
		if v := clients[i].Do(t, "PING"); v.String() != "+PONG" {
			t.Errorf("client %d: %v", i, v)
		}
	}
}

// An upstream that has no room for another client says so itself.
func TestUnshared_UpstreamAtMaxClients(t *testing.T) {
	t.Parallel()
	const most = 12 // enough for the proxy itself
	r := startRig(t, 1, 1, "--upstream-conns", "0")
	r.data.Do(t, "CONFIG", "SET", "maxclients", fmt.Sprint(most))
	for i := 0; ; i++ {
		v := redistest.Open(t, r.addr()).Do(t, "PING")
		if v.String() == "-ERR max number of clients reached" {
			break
		}
		if v.String() != "+PONG" || i > most {
			t.Fatalf("client %d: %v", i, v)
		}
	}
}

// A large command is relayed while it comes in, and arrives complete.
func TestLargeCommand_IsStreamed(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1, "--upstream-conns", "0")
	value := strings.Repeat("0123456789abcdef", 1<<16)
	command := redistest.Command("MSET", "large", value, "small", "1", "larger", value+value)
	for _, in := range []string{"", "MULTI"} {
		c := redistest.Open(t, r.addr())
		c.Do(t, "CLIENT", "SETNAME", "sender"+in)
		if in != "" {
			c.Do(t, in)
		}
		c.Send(t, command[:len(value)*2/3])
		arrived := regexp.MustCompile(`name=sender` + in + ` .* qbuf=(\d+)`)
		eventually(t, 9*time.Second, "most of what was sent arrives", func() bool {
			m := arrived.FindStringSubmatch(r.data.Do(t, "CLIENT", "LIST").Text)
			return m != nil && len(m[1]) == len("600000")
		})
		c.Send(t, command[len(value)*2/3:len(value)*2])
		c.Send(t, command[len(value)*2:]+redistest.Command("PING"))
		want := []string{"+OK", "+PONG"}
		if in != "" {
			want = []string{"+QUEUED", "+QUEUED", "*[+OK +PONG]"}
			c.Send(t, redistest.Command("EXEC"))
		}
		for _, w := range want {
			if v := c.Read(t); v.String() != w {
				t.Fatalf("%s: %.100s, want %s", in, v, w)
			}
		}
		if r.data.Do(t, "GET", "large").Text != value || r.data.Do(t, "GET", "larger").Text != value+value {
			t.Errorf("%s: the values are not what was sent", in)
		}
		r.data.Do(t, "FLUSHALL")
	}

	c := redistest.Open(t, r.addr())
	c.Do(t, "PING")
	end := strings.Index(command, value) + len(value) + len("\r\n")
	c.Send(t, command[:len(value)]) // ends within the value
	c.Send(t, command[len(value):end]+"oops\r\n")
	if v, err := c.Next(); err != nil || !strings.HasPrefix(v.Text, "ERR Protocol error") {
		t.Errorf("a fault behind the beginning: %v, %v", v, err)
	}
	if v := r.data.Do(t, "DBSIZE"); v.Int() != 0 {
		t.Errorf("half a command was executed: %v keys", v)
	}
}

// A user without permission for PING gets replies to its own commands only, also in
// passthrough, where the proxy sends PING.
func TestUser_WithoutPing(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1)
	r.data.Do(t, "ACL", "SETUSER", "ann", "on", ">pw", "~*", "&*", "+@all", "-ping")
	for _, protocol := range []string{"2", "3"} {
		c := redistest.Open(t, r.addr())
		c.Do(t, "HELLO", protocol, "AUTH", "ann", "pw")
		c.Do(t, "SUBSCRIBE", "news")
		c.Do(t, "UNSUBSCRIBE", "news") // replies are not counted any more
		for range 2 {
			if v := c.Do(t, "CLIENT", "LIST"); !strings.Contains(v.Text, "user=ann") {
				t.Fatalf("RESP%s: CLIENT LIST: %v", protocol, v)
			}
			if v := c.Do(t, "PING"); !strings.HasPrefix(v.Text, "NOPERM ") {
				t.Fatalf("RESP%s: PING: %v", protocol, v)
			}
			if v := c.Do(t, "SET", "a", "1"); v.String() != "+OK" {
				t.Fatalf("RESP%s: SET: %v", protocol, v)
			}
		}
	}
}

// The upstream counts an unknown command as one error, also from a client that tried
// AUTH in a transaction.
func TestUnknownCommand_CountsAsOneError(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1)
	c := redistest.Open(t, r.addr())
	c.Send(t, redistest.Command("MULTI")+redistest.Command("AUTH", "wrong")+redistest.Command("EXEC"))
	for range 3 {
		c.Read(t)
	}
	c.Do(t, "PING")
	r.data.Do(t, "CONFIG", "RESETSTAT")
	c.Do(t, "NOSUCHCOMMAND")
	if stats := r.data.Do(t, "INFO", "errorstats").Text; !strings.Contains(stats, "errorstat_ERR:count=1\r") {
		t.Errorf("the upstream counts %q", stats)
	}
}
