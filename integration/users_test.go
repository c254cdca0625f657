package integration

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// lookedAgain is longer than the proxy believes what it was told about a login.
const lookedAgain = 1100 * time.Millisecond

// login is a client that has authenticated.
func login(t *testing.T, addr, user, password string) *redistest.Conn {
	t.Helper()
	c := redistest.Open(t, addr)
	if v := c.Do(t, "AUTH", user, password); v.Raw != "+OK\r\n" {
		t.Fatalf("AUTH %s: %v", user, v)
	}
	return c
}

// isClosed reports that the proxy has closed a connection; replies still on their
// way are skipped.
func isClosed(c *redistest.Conn) bool {
	_, err := c.Try("PING")
	nerr := net.Error(nil)
	return err != nil && !(errors.As(err, &nerr) && nerr.Timeout())
}

// When the default user gets a password, connected clients keep their access, as at a
// Redis. Later ones must know it, although both would share a connection.
func TestPasswordChange_OfTheDefaultUser(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	before := redistest.Open(t, w.via)
	before3 := redistest.Open3(t, w.via)
	big := append([]string{"RPUSH", "list"}, strings.Split(strings.Repeat("x ", 20), " ")...)
	before.Do(t, big...)
	before3.Do(t, big...)
	redistest.Open(t, w.via).Do(t, "SELECT", "1")
	if v := w.behind.Do(t, "CONFIG", "SET", "requirepass", "secret"); v.IsError() {
		t.Fatal(v)
	}
	time.Sleep(lookedAgain)
	const no = "-NOAUTH Authentication required.\r\n"
	for _, command := range []string{"GET a", "LOCK job 10s", "SELECT 1", "BLPOP list 0", "EVAL x 0", "MULTI", "HELLO 3", "SUBSCRIBE c"} {
		v := redistest.Open(t, w.via).Do(t, strings.Fields(command)...)
		if v.Raw != no && !(command == "HELLO 3" && strings.HasPrefix(v.Text, "NOAUTH HELLO must be called")) {
			t.Errorf("a new client's %s: %v", command, v)
		}
	}
	for _, c := range []*redistest.Conn{before, before3} {
		if v := c.Do(t, big...); v.Kind != ':' {
			t.Errorf("a command of a client that was there before: %v", v)
		}
		mustLock(t, c, "job")
	}
	late := redistest.Open(t, w.via)
	if v := late.Do(t, "AUTH", "wrong"); !strings.HasPrefix(v.Text, "WRONGPASS") {
		t.Errorf("AUTH with a wrong password: %v", v)
	}
	if v := late.Do(t, "AUTH", "secret"); v.Raw != "+OK\r\n" {
		t.Errorf("AUTH: %v", v)
	}
	if v := late.Do(t, "GET", "a"); v.IsError() {
		t.Errorf("GET after AUTH: %v", v)
	}
	late.Do(t, "CONFIG", "SET", "requirepass", "")
	time.Sleep(lookedAgain)
	c := redistest.Open(t, w.via)
	if v := c.Do(t, "GET", "a"); v.IsError() {
		t.Errorf("without a password again: %v", v)
	}
	mustLock(t, c, "other")
}

// A change through the proxy counts for every client once its reply has come.
func TestPasswordChange_ThroughTheProxy(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	admin := redistest.Open(t, w.via)
	admin.Do(t, "ACL", "SETUSER", "u", "on", ">pw", "~*", "&*", "+@all")
	for range 5 {
		if v := redistest.Open(t, w.via).Do(t, "GET", "a"); v.IsError() {
			t.Fatalf("before: %v", v)
		}
		admin.Do(t, "CONFIG", "SET", "requirepass", "secret")
		if v := redistest.Open(t, w.via).Do(t, "GET", "a"); !strings.HasPrefix(v.Text, "NOAUTH") {
			t.Fatalf("after CONFIG SET requirepass: %v", v)
		}
		admin.Do(t, "CONFIG", "SET", "requirepass", "")
		if v := redistest.Open(t, w.via).Do(t, "SELECT", "3"); v.IsError() {
			t.Fatalf("without a password: %v", v)
		}
		admin.Do(t, "ACL", "SETUSER", "default", "off")
		if v := redistest.Open(t, w.via).Do(t, "SELECT", "3"); !strings.HasPrefix(v.Text, "NOAUTH") {
			t.Fatalf("after ACL SETUSER default off: %v", v)
		}
		admin.Do(t, "ACL", "SETUSER", "default", "on")
	}
	c := login(t, w.via, "u", "pw")
	if v := c.Do(t, "ACL", "DELUSER", "u"); v.Raw != ":1\r\n" {
		t.Errorf("DELUSER of oneself: %v", v)
	}
	if _, closed := c.ReadUntilQuiet(redistest.ReplyTimeout); !closed {
		t.Error("who deleted itself is still connected")
	}
}

// TestRevokedLogin_UnderLoad: up to the end no client gets an answer that is another's, though
// some servers leave out that to an AUTH which they refuse.
func TestRevokedLogin_UnderLoad(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	w.behind.Do(t, "ACL", "SETUSER", "u", "on", ">old", "~*", "&*", "+@all")
	ended := make(chan error, 8)
	begun := make(chan struct{}, 1)
	for i := range 8 {
		c := login(t, w.via, "u", "old")
		go func() {
			for round := 0; ; round++ {
				var burst strings.Builder
				for k := range 50 {
					burst.WriteString(redistest.Command("ECHO", fmt.Sprint(i, "-", round, "-", k)))
				}
				if _, err := io.WriteString(c.Conn, burst.String()); err != nil {
					ended <- nil
					return
				}
				for k := range 50 {
					v, err := c.Next()
					if err != nil || v.IsError() { // disconnected, or about to be
						ended <- nil
						return
					}
					if want := fmt.Sprint(i, "-", round, "-", k); v.Text != want {
						ended <- fmt.Errorf("%s was answered with %v", want, v)
						return
					}
				}
				select {
				case begun <- struct{}{}:
				default:
				}
			}
		}()
	}
	for range 20 {
		<-begun
	}
	w.behind.Do(t, "ACL", "SETUSER", "u", "resetpass", ">new")
	for range 8 {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("a client is still connected")
		}
	}
}

// TestRevokedLogin_EndsClients: who authenticated with what the upstream no longer takes loses the
// connection within seconds, wherever it is, and nobody else does. Redis itself
// closes connections only of users who were deleted.
func TestRevokedLogin_EndsClients(t *testing.T) {
	t.Parallel()
	for _, change := range []string{"SETUSER u off", "SETUSER u resetpass >new", "DELUSER u"} {
		t.Run(change, func(t *testing.T) {
			t.Parallel()
			w := startTwin(t)
			for _, user := range []string{"u", "other"} {
				w.behind.Do(t, "ACL", "SETUSER", user, "on", ">old", "~*", "&*", "+@all")
			}
			other := login(t, w.via, "other", "old")
			clients := map[string]struct {
				c       *redistest.Conn
				command string
			}{
				"on the shared connection": {login(t, w.via, "u", "old"), "GET a"},
				"in RESP3":                 {login(t, w.via, "u", "old"), "HELLO 3 AUTH u old"},
				"with scripts":             {login(t, w.via, "u", "old"), "EVAL return(1) 0"},
				"with blocking commands":   {login(t, w.via, "u", "old"), "BLPOP none 0.01"},
				"with a connection":        {login(t, w.via, "u", "old"), "CLIENT ID"},
				"in a transaction":         {login(t, w.via, "u", "old"), "MULTI"},
				"with locks":               {login(t, w.via, "u", "old"), "LOCK job 10s OWNER me"},
				"in another database":      {login(t, w.via, "u", "old"), "SELECT 2"},
			}
			for name, client := range clients {
				if v := client.c.Do(t, strings.Fields(client.command)...); v.IsError() {
					t.Fatalf("%s: %v", name, v)
				}
			}
			listening := login(t, w.via, "u", "old")
			listening.Do(t, "SUBSCRIBE", "news")
			w.behind.Do(t, append([]string{"ACL"}, strings.Fields(change)...)...)
			w.behind.Do(t, "PUBLISH", "news", "now")
			for name, client := range clients {
				eventually(t, 9*time.Second, name+": the client is disconnected", func() bool {
					command := client.command
					if name == "in RESP3" {
						command = "GET a" // the other would be a new attempt, and only be refused
					}
					_, err := client.c.Try(strings.Fields(command)...)
					return err != nil
				})
			}
			listening.SetReadDeadline(time.Now().Add(5 * time.Second))
			if _, closed := listening.ReadUntilQuiet(redistest.ReplyTimeout); !closed {
				t.Error("the subscriber is still connected")
			}
			c := redistest.Open(t, w.via)
			if v := c.Do(t, "AUTH", "u", "old"); !strings.HasPrefix(v.Text, "WRONGPASS") {
				t.Errorf("AUTH with what no longer holds: %v", v)
			}
			if v := c.Do(t, "GET", "a"); v.IsError() {
				t.Errorf("the default user: %v", v)
			}
			if v := other.Do(t, "GET", "a"); v.IsError() {
				t.Errorf("another user: %v", v)
			}
		})
	}
}

// TestPasswordRotation: a client that has given the new password on its old connection, as
// libraries with tokens do, is not disconnected with the old one.
func TestPasswordRotation(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	w.behind.Do(t, "ACL", "SETUSER", "u", "on", ">old", ">new", "~*", "&*", "+@all")
	shared, own, raw := login(t, w.via, "u", "old"), login(t, w.via, "u", "old"), login(t, w.via, "u", "old")
	own.Do(t, "CLIENT", "NO-EVICT", "on")
	raw.Do(t, "HELLO", "3")
	raw.Do(t, "SUBSCRIBE", "c")
	for _, c := range []*redistest.Conn{shared, own, raw} {
		if v := c.Do(t, "AUTH", "u", "new"); v.Raw != "+OK\r\n" {
			t.Fatalf("AUTH: %v", v)
		}
	}
	witness := login(t, w.via, "u", "old")
	w.behind.Do(t, "ACL", "SETUSER", "u", "<old")
	eventually(t, 9*time.Second, "the old password is out of use", func() bool { return isClosed(witness) })
	for _, c := range []*redistest.Conn{shared, own, raw} {
		if v := c.Do(t, "GET", "a"); v.IsError() {
			t.Errorf("with the new password: %v", v)
		}
	}
}

// TestLoginChecks_NotForIdleClients: no question of the proxy's own disturbs an
// upstream that nobody uses.
func TestLoginChecks_NotForIdleClients(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	w.behind.Do(t, "ACL", "SETUSER", "u", "on", ">pw", "~*", "&*", "+@all")
	c, listening := login(t, w.via, "u", "pw"), login(t, w.via, "u", "pw")
	c.Do(t, "GET", "a")
	listening.Do(t, "SUBSCRIBE", "news")
	redistest.Open(t, w.via).Do(t, "GET", "a")
	time.Sleep(3 * time.Second) // the last question about that
	w.behind.Do(t, "CONFIG", "RESETSTAT")
	time.Sleep(5 * time.Second)
	stats := w.behind.Do(t, "INFO", "commandstats").Text
	if strings.Contains(stats, "cmdstat_auth") || strings.Contains(stats, "cmdstat_ping") {
		t.Errorf("asked of an idle upstream:\n%s", stats)
	}
	start := time.Now()
	for time.Since(start) < 5*time.Second {
		c.Do(t, "GET", "a")
		time.Sleep(20 * time.Millisecond)
	}
	most := int(time.Since(start)/(2*time.Second)) + 1
	_, auth, _ := strings.Cut(w.behind.Do(t, "INFO", "commandstats").Text, "cmdstat_auth:calls=")
	calls, _, _ := strings.Cut(auth, ",")
	if n, _ := strconv.Atoi(calls); n == 0 || n > most {
		t.Errorf("asked %d times in %v of use", n, time.Since(start))
	}
}

// TestSecretsAreNotLogged, whatever is done with them.
func TestSecretsAreNotLogged(t *testing.T) {
	t.Parallel()
	data := redistest.Start(t)
	p := redistest.StartProxy(t, data, redistest.StartNodes(t, 1), "--log-level", "debug")
	data.Do(t, "ACL", "SETUSER", "u", "on", ">hush-1", "~*", "&*", "+@all")
	c := login(t, p.Addr(), "u", "hush-1")
	for _, command := range []string{"AUTH u hush-2", "AUTH hush-3", "HELLO 3 AUTH u hush-4", "HELLO 3 AUTH hush-5", "AUTH u hush-6 hush-7", "HELLO 3 AUTH u hush-1"} {
		c.Do(t, strings.Fields(command)...)
	}
	c.Do(t, "CLIENT", "ID")
	c.Do(t, "AUTH", "u", "hush-1")
	c.Do(t, "LOCK", "job", "10s", "RETRYAFTER")
	data.Do(t, "ACL", "SETUSER", "u", "off")
	eventually(t, 9*time.Second, "the user is out", func() bool { return isClosed(c) })
	data.Kill()
	c = redistest.Open(t, p.Addr())
	if v := c.Do(t, "AUTH", "u", "hush-1"); !strings.HasPrefix(v.Text, "UPSTREAMDOWN") || strings.Contains(v.Raw, "hush") {
		t.Errorf("AUTH while the upstream is down: %v", v)
	}
	if strings.Contains(p.Log(), "hush") {
		t.Errorf("a secret is in the log:\n%s", p.Log())
	}
	if !strings.Contains(p.Log(), "no longer takes") {
		t.Errorf("the log does not say that a user was refused:\n%s", p.Log())
	}
}

// TestUsersOfACluster: every node of a Cluster has users of its own, and a client
// needs all of them.
func TestUsersOfACluster(t *testing.T) {
	t.Parallel()
	cluster, p := startClustered(t, 3, 0)
	all := func(args ...string) {
		for _, n := range cluster.Nodes {
			n.Do(t, args...)
		}
	}
	all("ACL", "SETUSER", "u", "on", ">pw", "~*", "&*", "+@all")
	c, own, before := login(t, p.Addr(), "u", "pw"), login(t, p.Addr(), "u", "pw"), redistest.Open(t, p.Addr())
	spread := []string{"MSET", "a", "1", "b", "1", "c", "1", "d", "1"}
	for _, c := range []*redistest.Conn{c, before} {
		if v := c.Do(t, spread...); v.Raw != "+OK\r\n" {
			t.Fatalf("MSET: %v", v)
		}
	}
	own.Do(t, "WATCH", "a")
	all("ACL", "SETUSER", "u", "off")
	for _, c := range []*redistest.Conn{c, own} {
		eventually(t, 9*time.Second, "who was switched off is disconnected", func() bool {
			_, err := c.Try("GET", "a")
			return err != nil
		})
	}
	all("CONFIG", "SET", "masterauth", "secret")
	all("CONFIG", "SET", "requirepass", "secret")
	time.Sleep(lookedAgain)
	if v := redistest.Open(t, p.Addr()).Do(t, spread...); !strings.HasPrefix(v.Text, "NOAUTH") {
		t.Errorf("a new client: %v", v)
	}
	if v := before.Do(t, spread...); v.Raw != "+OK\r\n" {
		t.Errorf("a client that was there before: %v", v)
	}
	late := redistest.Open(t, p.Addr())
	late.Do(t, "AUTH", "secret")
	if v := late.Do(t, spread...); v.Raw != "+OK\r\n" {
		t.Errorf("with the password: %v", v)
	}
}

// A client that tried to subscribe before AUTH may send what others may, and is known
// by its user.
func TestAuth_AfterARefusedSubscribe(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	w.both(t, "ACL", "SETUSER", "u", "on", ">pw", "~*", "&*", "+@all")
	w.both(t, "CONFIG", "SET", "requirepass", "secret")
	large := "SET k " + strings.Repeat("v", 20<<10)
	for _, before := range []string{"SUBSCRIBE c", "REPLCONF x y"} {
		for _, login := range []string{"AUTH u pw", "HELLO 2 AUTH u pw", "HELLO 3 AUTH u pw"} {
			w.compare(t, dialogue{name: before, bytes: lines(before, "AUTH u wrong", "HELLO 3 AUTH u wrong", "GET k", login, large, "MSET"+strings.Repeat(" k v", 10), "GET k", "ACL WHOAMI"), refused: true})
		}
	}
	c, admin := redistest.Open(t, w.via), login(t, w.via, "u", "pw")
	c.Do(t, "SUBSCRIBE", "c")
	c.Do(t, "AUTH", "u", "pw")
	c.Do(t, "PING")
	if v := admin.Do(t, "CLIENT", "KILL", "USER", "u"); v.Int() != 1 {
		t.Errorf("CLIENT KILL USER: %v", v)
	}
	if _, closed := c.ReadUntilQuiet(redistest.ReplyTimeout); !closed {
		t.Error("not killed by its name")
	}
}

// Commands that the proxy answers itself need permission as well.
func TestNoPermission_CommandsAnsweredByTheProxy(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	w.both(t, "ACL", "SETUSER", "low", "on", ">pw", "~*", "-@all", "+get", "+echo", "+ping", "+acl|whoami")
	for _, command := range []string{"SELECT 0", "SELECT 3", "SELECT 99", "SELECT x", "CLIENT SETNAME me", "CLIENT GETNAME", "RESET", "QUIT"} {
		for _, login := range []string{"AUTH low pw", "HELLO 3 AUTH low pw", "HELLO 3 AUTH low pw SETNAME me"} {
			w.compare(t, dialogue{name: command, bytes: lines(login, command, "ACL WHOAMI", "GET k", command, "AUTH default x", "CLIENT GETNAME"), closes: command == "QUIT"})
		}
	}
}

// Commands behind a refused MULTI take effect at once, and last.
func TestMulti_Refused(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	w.both(t, "ACL", "SETUSER", "low", "on", ">pw", "~*", "+@all", "-multi", "-exec", "-discard")
	w.both(t, "SET", "k", "in 0")
	for _, command := range []string{"SELECT 3", "HELLO 3", "AUTH default x", "CLIENT SETNAME me", "CLIENT NO-EVICT ON", "PING"} {
		for _, pause := range []string{"", "GET k", "EXEC"} {
			before := []string{"AUTH low pw", "MULTI", command}
			if pause != "" {
				before = append(before, pause)
			}
			d := dialogue{name: command, bytes: lines(append(before, "GET k", "ECHO x", "GET k", "ACL WHOAMI", "CLIENT GETNAME", "EVAL return(1) 0", "GET k")...)}
			w.compare(t, d)
			d.chunks = len(d.bytes) / 7
			w.compare(t, d)
		}
	}
}

// A client without authentication or permissions gets the replies of Redis to every
// command, and nothing of these commands is left when it authenticates.
func TestNoPermission_EveryCommand(t *testing.T) {
	t.Parallel()
	w := startTwin(t, strings.Fields("--requirepass secret --user low on >pw ~k* -@all +get +echo +ping --user u on >pw ~* &* +@all")...)
	large := "SET k " + strings.Repeat("v", 20<<10)
	for _, command := range []string{
		"PING", "CLIENT ID", "CLIENT LIST", "CLIENT INFO", "CLIENT KILL ID 1", "CLIENT KILL TYPE normal", "CLIENT UNBLOCK 1", "CLIENT SETNAME x", "CLIENT GETNAME",
		"CLIENT NO-EVICT ON", "CLIENT TRACKING ON", "CLIENT TRACKING ON REDIRECT 1", "CLIENT PAUSE 100000", "CLIENT UNPAUSE", "EXEC", "DISCARD", "WATCH a", "UNWATCH",
		"SUBSCRIBE c", "MONITOR", "SELECT 1", "SELECT x", "SELECT 99", "HELLO 4", "AUTH u wrong", "AUTH", "AUTH a b c", "RESET", "WAIT 0 0", "BLPOP q 0", "EVAL return(1) 0",
		"SCRIPT KILL", "MODULE LOAD x", "ACL SETUSER q on", "ACL WHOAMI", "CONFIG SET requirepass x", "COMMAND", "NOSUCH a", "SHUTDOWN", "XREAD BLOCK 0 STREAMS s 0",
		"CLUSTER INFO", "ASKING", "READONLY", "DEBUG JMAP", "FUNCTION KILL", "OBJECT HELP",
	} {
		for _, as := range []string{"PING", "AUTH low pw", "HELLO 3 AUTH low pw"} {
			for _, login := range []string{"AUTH u pw", "HELLO 3 AUTH u pw"} {
				w.compare(t, dialogue{name: as + ", " + command, bytes: lines(as, command, "GET k", command, login, "CLIENT GETNAME", large, "GET k"), refused: command == "AUTH u wrong"})
			}
		}
	}
}
