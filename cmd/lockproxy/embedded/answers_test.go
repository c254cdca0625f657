package embedded

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestAnswers_AsOfARealServer: the replies that this package makes have the shape of a real server's, in both protocols.
func TestAnswers_AsOfARealServer(t *testing.T) {
	real := startReal(t)
	_, addr := startOne(t)
	for _, open := range []func(testing.TB, string) *redistest.Conn{redistest.Open, redistest.Open3} {
		here, there := open(t, addr), open(t, real.Addr())
		for _, asked := range []string{
			"CONFIG GET maxmem?ry", "CONFIG GET save", "CONFIG GET databases", "CONFIG GET slave-read-only", "CONFIG GET appendonly nosuch", "CONFIG GET nosuch",
			"CONFIG GET notify-keyspace-events", "CLUSTER NODES", "CLUSTER SLOTS", "CLUSTER INFO", "ROLE", "SLOWLOG GET", "SLOWLOG LEN", "SLOWLOG RESET",
			"LATENCY LATEST", "LATENCY HISTORY x", "LATENCY RESET", "MODULE LIST", "ACL WHOAMI", "ACL", "CLIENT GETNAME", "CLIENT SETNAME me", "CLIENT GETNAME", "CLIENT SETNAME",
			"CLIENT LIST TYPE replica", "CLIENT LIST ID 999999", "CLIENT KILL 1.2.3.4:5", "CLIENT KILL ADDR 1.2.3.4:5", "CLIENT KILL ID 9999 ADDR -", "CLIENT KILL ID", "MEMORY USAGE nosuch SAMPLES 5", "SLOWLOG",
		} {
			got, want := here.Do(t, strings.Fields(asked)...), there.Do(t, strings.Fields(asked)...)
			if got.String() != want.String() && (!got.IsError() || !want.IsError()) {
				t.Errorf("%s: %v, from a real server %v", asked, got, want)
			}
		}
		for _, asked := range []string{"CLIENT ID", "LASTSAVE", "HELLO 2", "HELLO 3 SETNAME you", "CLIENT GETNAME", "HELLO", "CLIENT INFO", "CLIENT LIST"} {
			got, want := here.Do(t, strings.Fields(asked)...), there.Do(t, strings.Fields(asked)...)
			if shape(got) != shape(want) {
				t.Errorf("%s: %v, from a real server %v", asked, got, want)
			}
		}
	}
	c := redistest.Open(t, addr)
	for asked, want := range map[string]string{
		"CLIENT SETINFO LIB-NAME x": "+OK", "CLIENT SETINFO LIB-VER 1": "+OK", "CLIENT SETINFO x y": "-ERR Unrecognized option 'x'",
		"CONFIG SET maxmemory 1": "-ERR an embedded server has only CONFIG GET, and no settings to change",
		"CLIENT LIST NOSUCH x":   "-ERR syntax error", "HELLO 4": "-NOPROTO unsupported protocol version",
	} {
		if v := c.Do(t, strings.Fields(asked)...); v.String() != want {
			t.Errorf("%s: %v", asked, v)
		}
	}
}

// shape is a reply with the names in maps, and without other texts and numbers.
func shape(v redistest.Value) string {
	var parts []string
	for i, e := range v.Elems {
		if v.Kind == '%' && i%2 == 0 {
			parts = append(parts, e.Text)
		} else {
			parts = append(parts, shape(e))
		}
	}
	return fmt.Sprintf("%c%s", v.Kind, parts)
}

// TestClients_AreListed: CLIENT LIST shows connections while they are open, with their names and databases.
func TestClients_AreListed(t *testing.T) {
	s, addr := startOne(t)
	a := redistest.Open(t, addr)
	a.Do(t, "PING")
	b := redistest.Open3(t, addr)
	for _, command := range []string{"CLIENT SETNAME first", "CLIENT SETINFO LIB-NAME lib", "CLIENT SETINFO LIB-VER 7", "SELECT 2", "MULTI", "PING"} {
		a.Do(t, strings.Fields(command)...)
	}
	want := regexp.MustCompile(`^txt:id=1 addr=127.0.0.1:0 laddr=127.0.0.1:` + s.port + ` name=first age=\d+ idle=\d+ flags=x db=2 multi=1 cmd=ping user=default redir=-1 resp=2 lib-name=lib lib-ver=7
id=2 addr=127.0.0.1:0 laddr=127.0.0.1:` + s.port + ` name= age=\d+ idle=\d+ flags=N db=0 multi=-1 cmd=client user=default redir=-1 resp=3 lib-name= lib-ver=
$`)
	if got := b.Do(t, "CLIENT", "LIST").Text; !want.MatchString(got) {
		t.Errorf("CLIENT LIST:\n%s", got)
	}
	if got := b.Do(t, "CLIENT", "LIST", "ID", "1").Text; strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "txt:id=1 ") {
		t.Errorf("CLIENT LIST ID 1:\n%s", got)
	}
	a.Do(t, "EXEC")
	if got := a.Do(t, "CLIENT", "INFO").Text; !strings.Contains(got, " flags=N db=2 multi=-1 ") {
		t.Errorf("CLIENT INFO after EXEC: %s", got)
	}
	a.Close()
	for end := time.Now().Add(time.Minute); strings.Contains(b.Do(t, "CLIENT", "LIST").Text, "id=1 "); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("who has left is still listed:\n%s", b.Do(t, "CLIENT", "LIST").Text)
		}
	}
}

// TestTransactions_QueueAnswers: inside MULTI the replies of this package come with EXEC, and its errors abort it.
func TestTransactions_QueueAnswers(t *testing.T) {
	_, addr := startOne(t)
	c := redistest.Open(t, addr)
	commands := []string{"ROLE", "COMMAND INFO get nosuch", "CONFIG GET maxmemory", "LASTSAVE", "SET a 1", "INFO cluster", "CLIENT SETNAME me", "CLIENT GETNAME"}
	c.Do(t, "MULTI")
	for _, command := range commands {
		if v := c.Do(t, strings.Fields(command)...); v.String() != "+QUEUED" {
			t.Fatalf("%s inside MULTI: %v", command, v)
		}
	}
	got := c.Do(t, "EXEC")
	if len(got.Elems) != len(commands) {
		t.Fatalf("EXEC: %v", got)
	}
	for i, want := range []string{
		`^\*\[\$"master" :0 \*\[\]\]$`, `^\*\[\*\[\$"get" :2 \*\[\$"readonly" \$"fast"\] .* \$-1\]$`, `^\*\[\$"maxmemory" \$"0"\]$`, `^:\d+$`, `^\+OK$`,
		`^\$"# Cluster\\r\\ncluster_enabled:0\\r\\n"$`, `^\$"OK"$`, `^\$"me"$`,
	} {
		if !regexp.MustCompile(want).MatchString(got.Elems[i].String()) {
			t.Errorf("%s inside MULTI: %v, want %s", commands[i], got.Elems[i], want)
		}
	}
	for _, command := range []string{"COMMAND NOSUCH", "LOCK a 1s", "CLUSTER NODES"} {
		c.Do(t, "MULTI")
		c.Do(t, "SET", "a", "2")
		if v := c.Do(t, strings.Fields(command)...); !v.IsError() {
			t.Errorf("%s inside MULTI: %v", command, v)
		}
		if v := c.Do(t, "EXEC"); !strings.HasPrefix(v.Text, "EXECABORT ") || c.Do(t, "GET", "a").Text != "1" {
			t.Errorf("EXEC after %s: %v", command, v)
		}
	}
}

// TestScripts_AskMiniredis: a command in a script does not wait for the lock that the script holds.
func TestScripts_AskMiniredis(t *testing.T) {
	_, addr := startOne(t)
	var all sync.WaitGroup
	for _, command := range []string{
		"EVAL return redis.call('INFO','stats') 0", "EVAL return redis.pcall('CLIENT','LIST') 0", "INFO", "CLIENT LIST", "EVAL return redis.call('SET',KEYS[1],'1') 1 a", "CONFIG GET *",
	} {
		c := redistest.Open(t, addr)
		words := strings.Fields(command)
		if words[0] == "EVAL" {
			words = append([]string{"EVAL", strings.Join(words[1:3], " ")}, words[3:]...)
		}
		all.Go(func() {
			for range 50 {
				if v, err := c.Try(words...); err != nil || v.IsError() && !strings.Contains(command, "CLIENT") {
					t.Errorf("%s: %v, %v", command, v, err)
					return
				}
			}
		})
	}
	all.Wait()
}

// TestClose_WhileCommandsRun: servers that are closed while clients send commands end the connections, and nothing else.
func TestClose_WhileCommandsRun(t *testing.T) {
	for range 20 {
		servers, err := Start(1)
		if err != nil {
			t.Fatal(err)
		}
		var clients sync.WaitGroup
		for range 8 {
			c := redistest.Open(t, strings.TrimPrefix(servers[0].URL(), "redis://"))
			clients.Go(func() {
				for {
					for _, asked := range []string{"GET k", "MEMORY USAGE k", "INFO", "SET k v"} {
						if _, err := c.Try(strings.Fields(asked)...); err != nil {
							return
						}
					}
				}
			})
		}
		time.Sleep(5 * time.Millisecond)
		Close(servers)
		clients.Wait()
	}
}
