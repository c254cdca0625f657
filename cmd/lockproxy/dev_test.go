package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/cmd/lockproxy/exit"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A started is a long-running command line of a test.
type started struct {
	socket         string // where it listens
	stdout, stderr buffer
	cancel         context.CancelFunc
	ended          chan struct{}
	code           int // once ended is closed
}

// stop ends it, as a signal does, and returns its exit code. It may be called again.
func (s *started) stop() int {
	s.cancel()
	<-s.ended
	return s.code
}

// start runs a command that listens on a socket of the test's own, until stop is
// called or the test ends.
func start(t *testing.T, args ...string) *started {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &started{socket: filepath.Join(t.TempDir(), "s"), cancel: cancel, ended: make(chan struct{})}
	p := program{
		env:    func(string) (string, bool) { return "", false },
		stdout: &s.stdout, stderr: &s.stderr,
	}
	go func() {
		defer close(s.ended)
		s.code = p.run(ctx, append(append([]string{"lockproxy"}, args...), "--listen", s.socket))
	}()
	t.Cleanup(func() { s.stop() })
	return s
}

// dial connects, once that is possible.
func (s *started) dial(t *testing.T) *inline {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("unix", s.socket)
		if err == nil {
			t.Cleanup(func() { conn.Close() })
			conn.SetDeadline(time.Now().Add(2 * time.Minute))
			return &inline{t, conn, bufio.NewReader(conn)}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v\n%s", err, s.stderr.String())
		}
	}
}

// voting waits until the embedded lock nodes vote. They compile the scripts first, which takes a busy machine longer than a LOCK waits.
func (s *started) voting(t *testing.T) {
	t.Helper()
	redistest.Eventually(t, 5*time.Minute, "all lock nodes vote", func() bool {
		return strings.HasSuffix(s.dial(t).do("INFO lockproxy", 11), " lockproxy_lock_nodes:5 lockproxy_lock_nodes_voting:5")
	})
}

// An inline sends inline commands and reads the lines of their replies.
type inline struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

// do sends a command until a majority of the lock nodes answers, which may take some time on a busy machine, and returns so many lines of
// the reply, joined by spaces, or that of an error.
func (c *inline) do(command string, lines int) (got string) {
	c.t.Helper()
	for late := time.Now().Add(time.Minute); ; {
		if got = c.once(command, lines); !strings.HasPrefix(got, "-NOQUORUM") || time.Now().After(late) {
			return got
		}
	}
}

// once is do without asking again.
func (c *inline) once(command string, lines int) string {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.conn, "%s\r\n", command); err != nil {
		c.t.Fatalf("%s: %v", command, err)
	}
	var got []string
	for range lines {
		line, err := c.r.ReadString('\n')
		if err != nil {
			c.t.Fatalf("%s: %v", command, err)
		}
		got = append(got, strings.TrimRight(line, "\r\n"))
		if strings.HasPrefix(got[0], "-") {
			break
		}
	}
	return strings.Join(got, " ")
}

func TestDev(t *testing.T) {
	s := start(t, "dev", "--node-timeout", "5s")
	s.voting(t)
	c := s.dial(t)
	other := s.dial(t)
	steps := []struct {
		client  *inline
		command string
		lines   int
		prefix  string // of the reply's lines
	}{
		{c, "SET greeting hello", 1, "+OK"},
		{c, "GET greeting", 2, "$5 hello"},
		{c, "LOCK job 30s", 6, "*4 :"},
		{other, "LOCK job 30s", 1, "*-1"},
		{c, "RENEW job 30s", 1, ":29"},
		{c, "MULTI", 1, "+OK"},
		{c, "SET greeting bye", 1, "+QUEUED"},
		{c, "LOCK job 30s", 1, "-ERR LOCK is not allowed inside a transaction"},
		{c, "EXEC", 1, "-EXECABORT"},
		{c, "GET greeting", 2, "$5 hello"},
		{c, "UNLOCK job", 1, ":1"},
		{other, "LOCK brief 1s OWNER o", 6, "*4 :"},
		{c, "SET brief x PX 200", 1, "+OK"},
	}
	for _, step := range steps {
		if got := step.client.do(step.command, step.lines); !strings.HasPrefix(got, step.prefix) {
			t.Fatalf("%s answered %q, want %q…", step.command, got, step.prefix)
		}
	}
	if got := s.dial(t).do("INFO lockproxy", 11); !strings.HasSuffix(got, " lockproxy_lock_nodes:5 lockproxy_lock_nodes_voting:5") {
		t.Errorf("INFO lockproxy answers %s", got)
	}
	if got := c.do("LOCK brief 30s WAIT 30s", 6); !strings.HasPrefix(got, "*4 :") {
		t.Errorf("a lease of 1s, which the embedded servers end, still holds after 30s: LOCK answers %s", got)
	}
	if got := c.do("EXISTS brief", 1); got != ":0" {
		t.Errorf("a key lives for a second with an expiry of 200ms: EXISTS answers %s", got)
	}
	if code := s.stop(); code != exit.OK {
		t.Errorf("exit code %d, want %d\n%s", code, exit.OK, s.stderr.String())
	}
	for _, want := range []string{"memory-only", "redis-cli -s " + s.socket, "LOCK job 30s", "http://127.0.0.1:", "LOCK job 30s SESSION", "Ctrl-C in the first: the second has the lock at once"} {
		if !strings.Contains(s.stdout.String(), want) {
			t.Errorf("the first session does not say %q:\n%s", want, s.stdout.String())
		}
	}
	if log := s.stderr.String(); strings.Contains(log, "level=INFO") {
		t.Errorf("the first session is not alone on the screen:\n%s", log)
	}
}

// TestDev_AnswersClientsAsTheyStart: what clients and tools send as they connect is answered as by a real server.
func TestDev_AnswersClientsAsTheyStart(t *testing.T) {
	s := start(t, "dev", "--node-timeout", "5s")
	s.dial(t)
	info := `^[$=]"(txt:)?# Server\\r\\nredis_version:8[^ ]*\\r\\n.*maxmemory_policy:noeviction\\r\\n.*loading:0\\r\\n.*role:master\\r\\n.*# Keyspace.*# Lockproxy`
	for client, asked := range map[string][][2]string{
		"redis-py, Jedis, Lettuce, go-redis, node-redis": {
			{"HELLO 3", `^%\[\$"server" \$"redis" \$"version" \$"8\.[0-9.]+" \$"proto" :3 \$"id" :\d+ \$"mode" \$"standalone" \$"role" \$"master" `},
			{"CLIENT SETINFO LIB-NAME x", `^\+OK$`}, {"CLIENT SETINFO LIB-VER 1.2", `^\+OK$`}, {"CLIENT ID", `^:\d+$`}, {"ROLE", `^\*\[\$"master" :0 \*\[\]\]$`},
		},
		"ioredis, Sidekiq, BullMQ": {{"INFO", info}, {"SELECT 1", `^\+OK$`}},
		"StackExchange.Redis": {
			{"CLIENT SETNAME here", `^\+OK$`}, {"CONFIG GET slave-read-only", `^\*\[\$"slave-read-only" \$"yes"\]$`}, {"CONFIG GET databases", `^\*\[\$"databases" \$"16"\]$`},
			{"CONFIG GET timeout", `^\*\[\$"timeout" \$"0"\]$`}, {"INFO replication", `^\$"# Replication\\r\\nrole:master\\r\\n`}, {"INFO server", `^\$"# Server\\r\\nredis_version:8`},
			{"CLUSTER NODES", `^-ERR This instance has cluster support disabled$`}, {"GET __Booksleeve_TieBreak", `^\$-1$`}, {"ECHO x", `^\$"x"$`},
			{"SUBSCRIBE __Booksleeve_MasterChanged", `^\*\[\$"subscribe" \$"__Booksleeve_MasterChanged" :1\]$`},
		},
		"health check of Spring Boot": {{"INFO server", `redis_version:8[0-9.]+\\r\\n`}, {"INFO", info}},
		"Laravel, phpredis":           {{"CLIENT SETNAME web", `^\+OK$`}, {"SELECT 0", `^\+OK$`}, {"CLIENT GETNAME", `^\$"web"$`}},
		"redis-cli": {
			{"COMMAND DOCS", `^\*\[\$"acl" .*\$"lock" .*\$"lockctl" `}, {"COMMAND DOCS get", `^\*\[\$"get" \*\[\$"summary" `}, {"COMMAND DOCS lock", `^\*\[\$"lock" \*\[\$"summary" \$"Take a lock`},
			{"COMMAND INFO get lock nosuch", `^\*\[\*\[\$"get" :2 .*\*\[\$"lock" :-3 .* \$-1\]$`}, {"COMMAND GETKEYS LOCK a 1s", `^\*\[\$"a"\]$`}, {"COMMAND GETKEYS GET a", `^\*\[\$"a"\]$`},
			{"COMMAND LIST", `\$"lockctl\|help"\]$`}, {"COMMAND COUNT", `^:2\d\d$`}, {"COMMAND", `^\*\[\*\[\$"acl" `},
		},
		"RedisInsight, redis_exporter": {
			{"INFO all", info}, {"CONFIG GET *", `^\*\[\$"appendonly" `}, {"SLOWLOG LEN", `^:0$`}, {"SLOWLOG GET 10", `^\*\[\]$`}, {"LATENCY LATEST", `^\*\[\]$`}, {"MODULE LIST", `^\*\[\]$`},
			{"DBSIZE", `^:0$`}, {"CLIENT LIST", `^\$"(id=\d+ addr=.* cmd=.*\\n)+"$`}, {"ACL WHOAMI", `^\$"default"$`}, {"MEMORY USAGE nosuch SAMPLES 5", `^\$-1$`},
		},
	} {
		c := redistest.Open(t, s.socket)
		for _, a := range asked {
			if v := c.Do(t, strings.Fields(a[0])...); !regexp.MustCompile(a[1]).MatchString(v.String()) {
				t.Errorf("%s: %s: %.1000v, want %s", client, a[0], v, a[1])
			}
		}
	}
}

// TestDev_KillsClients: CLIENT KILL at a prompt ends another's connection, and the lock that depends on it.
func TestDev_KillsClients(t *testing.T) {
	s := start(t, "dev", "--node-timeout", "5s", "--session-grace", "0s")
	s.voting(t)
	holder, other := s.dial(t), s.dial(t)
	if got := holder.do("LOCK job 30s SESSION", 6); !strings.HasPrefix(got, "*4 :") {
		t.Fatalf("LOCK with SESSION answers %s", got)
	}
	id := strings.TrimPrefix(holder.do("CLIENT ID", 1), ":")
	if got := other.do("CLIENT KILL ID "+id, 1); got != ":1" {
		t.Fatalf("CLIENT KILL answers %s", got)
	}
	if got := other.do("LOCK job 30s WAIT 100s", 6); !strings.HasPrefix(got, "*4 :") {
		t.Errorf("LOCK after the holder was killed answers %s", got)
	}
}

// TestAdminHint: where the page cannot be reached from where clients come it says so, as in a container.
func TestAdminHint(t *testing.T) {
	loopback, everywhere := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6381}, &net.TCPAddr{IP: net.IPv6unspecified, Port: 6381}
	socket := &net.UnixAddr{Name: "/tmp/s", Net: "unix"}
	for _, tt := range []struct {
		clients, operators net.Addr
		want               bool
	}{{everywhere, loopback, true}, {everywhere, everywhere, false}, {loopback, loopback, false}, {socket, loopback, false}} {
		if got := adminHint(tt.clients, tt.operators); strings.Contains(got, "LOCKPROXY_ADMIN=") != tt.want || !strings.Contains(got, "http://127.0.0.1:6381/") {
			t.Errorf("clients at %v, operators at %v: %q", tt.clients, tt.operators, got)
		}
	}
}

// TestDev_AdminPort: the page is where the README says, unless something else is there.
func TestDev_AdminPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if got := freeOr(addr); got != "127.0.0.1:0" {
		t.Errorf("where something listens: %s", got)
	}
	l.Close()
	if got := freeOr(addr); got != addr {
		t.Errorf("where nothing listens: %s, want %s", got, addr)
	}
}

func TestDev_LocksOnEmbeddedServers(t *testing.T) {
	s := start(t, "dev", "--max-hold", "30s", "--on-loss", "keep", "--node-timeout", "5s")
	s.voting(t)
	c, next := s.dial(t), s.dial(t)
	if got := c.do("LOCK job 30s OWNER me SESSION MAXHOLD 20s", 6); !strings.HasPrefix(got, "*4 :") {
		t.Fatalf("LOCK with SESSION answers %s", got)
	}
	if _, err := fmt.Fprint(next.conn, "LOCK job 30s WAIT 100s OWNER you REQ 1\r\n"); err != nil {
		t.Fatal(err)
	}
	for late := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if got := c.do("LOCK job 30s OWNER other RETRYAFTER", 6); strings.HasSuffix(got, " :1") {
			break
		} else if time.Now().After(late) {
			t.Fatalf("nobody waits: %s", got)
		}
	}
	if got := c.do("QUIT", 1); got != "+OK" {
		t.Fatalf("QUIT answers %s", got)
	}
	granted := next.do("PING", 6)
	if !strings.HasPrefix(granted, "*4 :") || !strings.HasSuffix(granted, " :1") {
		t.Fatalf("the LOCK that waited was answered %s", granted)
	}
	if got := next.do("LOCK job 30s WAIT 100s OWNER you REQ 1", 1); got != "+PONG" {
		t.Fatalf("PING behind it was answered %s", got)
	}
	fence := strings.Fields(granted)[1]
	if again := next.do("UNLOCK job you REQ 2", 6); !strings.HasPrefix(again, "*4 "+fence) || !strings.HasSuffix(again, " :1") {
		t.Errorf("the LOCK sent again was answered %s, the first %s", again, granted)
	}
	if got := next.do("UNLOCK job you REQ 2", 1); got != ":1" {
		t.Errorf("UNLOCK answers %s", got)
	}
	if got := next.do("LOCKCTL WAITERS job", 1); got != ":1" {
		t.Errorf("UNLOCK sent again answers %s", got)
	}
}

func TestServe_NoServerReachable(t *testing.T) {
	dead := filepath.Join(t.TempDir(), "dead")
	s := start(t, "serve", "--upstream", "unix://:hunter2@"+dead)
	c := s.dial(t)
	if got := c.do("PING", 1); !strings.HasPrefix(got, "-UPSTREAMDOWN ") {
		t.Errorf("PING answers %q", got)
	}
	if got := c.once("LOCK a 30s", 1); !strings.HasPrefix(got, "-NOQUORUM 0 of 1 answered, 1 needed: ") {
		t.Errorf("LOCK answers %q", got)
	}
	if code, _, stderr := execute(t, nil, "healthcheck", "--listen", s.socket); code != exit.Failed || !strings.Contains(stderr, "UPSTREAMDOWN") {
		t.Errorf("healthcheck: exit code %d, %q", code, stderr)
	}
	if log := s.stderr.String(); !strings.Contains(log, "serving anyway") || strings.Contains(log, "hunter2") {
		t.Errorf("log:\n%s", log)
	}
}

func TestServe_CannotListen(t *testing.T) {
	code, _, stderr := execute(t, nil, "serve", "--upstream", "unix:///none/such", "--listen", "/none/such/s")
	if code != exit.Failed || !strings.Contains(stderr, "/none/such/s") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

// A container's published port may be one of IPv4 alone.
func TestDialHints_AllAddresses(t *testing.T) {
	for listen, want := range map[string]string{
		"0.0.0.0:6380":   "redis-cli -h 127.0.0.1 -p 6380",
		"[::]:6380":      "redis-cli -h 127.0.0.1 -p 6380",
		"[::1]:6380":     "redis-cli -h ::1 -p 6380",
		"10.0.0.1:16380": "redis-cli -h 10.0.0.1 -p 16380",
	} {
		addr, err := net.ResolveTCPAddr("tcp", listen)
		if err != nil {
			t.Fatal(err)
		}
		if cli, _ := dialHints(addr); cli != want {
			t.Errorf("%s: %q, want %q", listen, cli, want)
		}
	}
}
