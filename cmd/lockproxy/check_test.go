package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/check"
	"github.com/lockproxy/lockproxy/cmd/lockproxy/exit"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A site is an upstream and three lock nodes, each at an address of its own, without a
// finding.
type site struct {
	up    *redistest.Server
	nodes []string // addresses
	srv   []*redistest.Server
}

func startSite(t *testing.T) *site {
	t.Helper()
	s := &site{up: redistest.Start(t)}
	for i := range 3 {
		n := startAt(t, i+1)
		s.srv = append(s.srv, n)
		s.nodes = append(s.nodes, at(n, i+1))
	}
	return s
}

// startAt starts a server that is also reached at 127.0.0.i.
func startAt(t *testing.T, i int, args ...string) *redistest.Server {
	t.Helper()
	bind := []string{"--bind", "127.0.0.1"}
	if i > 1 {
		bind = append(bind, fmt.Sprintf("127.0.0.%d", i))
	}
	return redistest.Start(t, append(bind, args...)...)
}

func at(s *redistest.Server, i int) string {
	_, port, _ := net.SplitHostPort(s.Addr())
	return fmt.Sprintf("127.0.0.%d:%s", i, port)
}

// args are those of a command about the site, with these lock nodes in place of its own
// from the last on.
func (s *site) args(nodes ...string) []string {
	args := []string{"--upstream", s.up.URL(), "--node-timeout", "10s"} // a busy machine may need it
	for _, n := range slices.Concat(s.nodes[:max(0, 3-len(nodes))], nodes) {
		args = append(args, "--lock-node", n)
	}
	return args
}

// enlist lets the nodes vote, so that they have records.
func (s *site) enlist(t *testing.T) {
	t.Helper()
	if code, _, stderr := execute(t, nil, append([]string{"init"}, s.args()...)...); code != exit.OK {
		t.Fatal(stderr)
	}
}

// runCheck runs check and returns its report and exit code.
func runCheck(t *testing.T, args ...string) (check.Report, int) {
	t.Helper()
	code, stdout, stderr := execute(t, nil, append([]string{"check", "--format", "json"}, args...)...)
	var r check.Report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatalf("exit code %d, %v:\n%s%s", code, err, stdout, stderr)
	}
	if r.Servers == nil || r.Findings == nil {
		t.Errorf("a script cannot go through null:\n%s", stdout)
	}
	return r, code
}

// about are the findings but those of each test: a new node, and a password on the command
// line.
func about(r check.Report) (out []string) {
	for _, f := range r.Findings {
		if f.ID == "exposed" && strings.HasPrefix(f.Problem, "lock-node: a password") {
			continue
		}
		if !(f.ID == "forgot" && strings.Contains(f.Problem, "no node record")) {
			out = append(out, string(f.Severity)+" "+f.ID)
		}
	}
	return out
}

func TestCheckFindsNothing(t *testing.T) {
	s := startSite(t)
	s.enlist(t)
	before := dumps(t, s)
	code, stdout, stderr := execute(t, nil, append([]string{"check"}, s.args()...)...)
	if code != exit.OK || !strings.Contains(stdout, "nothing found that would hurt\n") || stderr != "" {
		t.Errorf("exit code %d:\n%s%s", code, stdout, stderr)
	}
	if after := dumps(t, s); before != after {
		t.Errorf("it changed the servers:\n%s\n%s", before, after)
	}
}

// dumps is what a check must not change: data, settings, loaded scripts.
func dumps(t *testing.T, s *site) string {
	t.Helper()
	var all []string
	for _, n := range append(s.srv, s.up) {
		all = append(all, n.Do(t, "DEBUG", "DIGEST").Text, n.Do(t, "CONFIG", "GET", "*").Raw,
			regexp.MustCompile(`(rdb_changes_since_last_save|number_of_cached_scripts|master_repl_offset):\d+`).FindString(n.Do(t, "INFO", "everything").Text))
	}
	return strings.Join(all, "\n")
}

// Each row is a fault of one lock node of three.
func TestCheckFindsNodes(t *testing.T) {
	s := startSite(t)
	s.enlist(t)
	tests := []struct {
		name   string
		server string // arguments
		do     string // a command to the server
		user   string // of the URL
		args   string // of check
		want   string // findings, worst first
	}{
		{name: "evicts", server: "--maxmemory 100mb --maxmemory-policy allkeys-lru", want: "error evicts"},
		{name: "may evict", server: "--maxmemory-policy volatile-ttl", want: "warning evicts"},
		{name: "full", server: "--maxmemory 200kb", want: "error memory, error refuses-writes"},
		{name: "snapshots", server: "--save 3600\x001", want: "note forgets"},
		{name: "a second", server: "--appendonly yes --appendfsync everysec", want: "note forgets"},
		{name: "every write", server: "--appendonly yes --appendfsync always", want: "note appendfsync-always"},
		{name: "cluster", server: "--cluster-enabled yes", want: "error role"},
		{name: "password", server: "--requirepass secret", want: "error auth"},
		{name: "another password", server: "--requirepass secret", user: ":wrong@", want: "error auth"},
		{name: "the password", server: "--requirepass secret", user: ":secret@", want: ""},
		{name: "open to all", server: "--protected-mode no", do: "CONFIG SET bind 127.0.0.1\x00127.0.0.3\x00-192.0.2.1", want: "warning no-password"},
		{name: "renamed", server: "--rename-command EVALSHA none", want: "error renamed"},
		{name: "no CONFIG", server: "--rename-command CONFIG none", want: "note could-not-look"},
		{name: "no INFO", server: "--rename-command INFO none", want: "error renamed, warning could-not-look"},
		{name: "permissions", do: "ACL SETUSER locks on >x ~other:* &* +@all -evalsha", user: "locks:x@", want: "error permissions, warning could-not-look"},
		{name: "channels", do: "ACL SETUSER locks on >x ~* resetchannels +@all", user: "locks:x@", want: "error permissions"},
		{name: "documented user", do: documentedUser(t), user: "locks:secret@", want: "note could-not-look"},
		{name: "idle", server: "--timeout 5 --tcp-keepalive 0", want: "note closes-idle, note no-keepalive"},
		{name: "no replicas", server: "--min-replicas-to-write 1", want: "error replicas, error refuses-writes"},
		{name: "slow", do: "DEBUG SLEEP 0.06", args: "--node-timeout 50ms", want: "warning pauses"},
		{name: "wrong type", do: "SET lockproxy:node x", want: "warning could-not-look"},
		{name: "quarantine", do: "EVAL " + enlisted("redis.call('TIME')[1]*1000+30000", "0"), want: "warning quarantine"},
		{name: "no floor", do: "EVAL " + enlisted("0", "0"), want: "warning quarantine"},
		{name: "in order", do: "EVAL " + enlisted("0", "1"), want: ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := startAt(t, 3, fields(tt.server)...)
			if tt.do != "" {
				n.Do(t, fields(tt.do)...)
			}
			args := append(s.args("redis://"+tt.user+at(n, 3)), fields(tt.args)...)
			r, code := runCheck(t, args...)
			if got := strings.Join(about(r), ", "); got != tt.want && !slower(got, tt.want) {
				t.Errorf("%s, want %s\n%v", got, tt.want, r.Findings)
			}
			if want := codeOf(r); code != want {
				t.Errorf("exit code %d, want %d", code, want)
			}
		})
	}
}

// slower reports whether a finding differs only because the test machine is busy.
func slower(got, want string) bool {
	return strings.HasPrefix(want, "warning pauses") && strings.Contains(got, "warning pauses")
}

func codeOf(r check.Report) int {
	return map[check.Severity]int{check.Error: exitErrors, check.Warning: exitWarnings}[r.Worst()]
}

// fields are the words of a line; \x00 stands for a space within one.
func fields(line string) []string {
	words := strings.Fields(line)
	for i, w := range words {
		words[i] = strings.ReplaceAll(w, "\x00", " ")
	}
	return words
}

// enlisted are the arguments of an EVAL that writes a node record as scripts would.
func enlisted(until, sync string) string {
	script := "local id=string.match(redis.call('INFO','replication'),'master_replid:(%w+)') " +
		"return redis.call('HSET','lockproxy:node','id',id,'until'," + until + ",'sync','" + sync + "','ttl','60000')"
	return strings.ReplaceAll(script, " ", "\x00") + " 0"
}

// documentedUser is the ACL SETUSER that docs/configuration.md gives.
func documentedUser(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`ACL SETUSER locks .*`).FindString(string(text))
	if line == "" {
		t.Fatal("docs/configuration.md names no user")
	}
	return line
}

// The findings that no server shows alone.
func TestCheckFindsSets(t *testing.T) {
	s := startSite(t)
	s.enlist(t)
	down := redistest.Reserve(t)
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"two", append(s.args()[:4], "--lock-node", s.nodes[0], "--lock-node", s.nodes[1], "--restart-grace", "safe"), "warning number"},
		{"one", append(s.args()[:4], "--lock-node", s.nodes[0]), "warning forgets, note number"},
		{"one that sits it out", append(s.args()[:4], "--lock-node", s.nodes[0], "--restart-grace", "safe"), "note number"},
		{"the upstream alone", append(s.args()[:4], "--restart-grace", "safe"), "warning shared, note number, note new"},
		{"the upstream too", s.args(s.up.Addr()), "warning shared, warning one-machine"},
		{"one server twice", s.args("127.0.0.1:" + strings.TrimPrefix(s.nodes[1], "127.0.0.2:")), "error same-server, warning one-machine"},
		{"another max-ttl", append(s.args(), "--max-ttl", "30s"), "note other-max-ttl, note other-max-ttl, note other-max-ttl"},
		{"another prefix", append(s.args(), "--key-prefix", "other:"), "note new"},
		{"never enlisted", append(s.args(), "--key-prefix", "other:", "--bootstrap", "strict"), "warning new"},
		{"replicas wanted", append(s.args(), "--replica-acks", "1"), "error replicas, error replicas, error replicas"},
		{"down", s.args(down.Addr()), "error unreachable"},
		{"more clients than connections", append(s.args(), "--upstream-conns", "0", "--max-clients", "20000"), "warning maxclients"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, _ := runCheck(t, tt.args...)
			if got := strings.Join(about(r), ", "); got != tt.want {
				t.Errorf("%s, want %s\n%v", got, tt.want, r.Findings)
			}
		})
	}
}

func TestCheckReplicas(t *testing.T) {
	s := startSite(t)
	s.enlist(t)
	_, port, _ := net.SplitHostPort(s.srv[2].Addr())
	s.srv[2].Do(t, "CONFIG", "SET", "repl-diskless-sync-delay", "0")
	replica := startAt(t, 3, "--replicaof", "127.0.0.1", port)
	deadline := time.Now().Add(20 * time.Second)
	for !strings.Contains(replica.Do(t, "INFO", "replication").Text, "master_link_status:up") {
		if time.Now().After(deadline) {
			t.Fatal("the replica does not connect")
		}
		time.Sleep(20 * time.Millisecond)
	}
	if r, code := runCheck(t, s.args()...); !slices.Contains(about(r), "warning replicas") || code != exitWarnings {
		t.Errorf("a node with a replica: exit code %d, %v", code, r.Findings)
	}
	if r, code := runCheck(t, s.args(at(replica, 3))...); !slices.Contains(about(r), "error role") || code != exitErrors {
		t.Errorf("a replica for a node: exit code %d, %v", code, r.Findings)
	}
	args := append([]string{"--upstream", replica.URL()}, s.args()[2:]...)
	if r, _ := runCheck(t, args...); !slices.Contains(about(r), "error role") {
		t.Errorf("a replica for an upstream: %v", r.Findings)
	}
}

func TestCheckRestart(t *testing.T) {
	s := startSite(t)
	n := startAt(t, 3, "--appendonly", "yes", "--appendfsync", "always")
	s.nodes[2] = at(n, 3)
	s.enlist(t)
	if r, _ := runCheck(t, s.args()...); slices.Contains(about(r), "warning forgot") {
		t.Fatalf("before the restart: %v", r.Findings)
	}
	n.Kill()
	if err := n.Restart(); err != nil {
		t.Fatal(err)
	}
	if r, _ := runCheck(t, s.args()...); !slices.Contains(about(r), "warning forgot") {
		t.Errorf("after it: %v", r.Findings)
	}
}

func TestCheckHungServers(t *testing.T) {
	s := startSite(t)
	for _, n := range s.srv {
		n.Pause()
		defer n.Resume()
	}
	began := time.Now()
	r, code := runCheck(t, s.args()...)
	if got := strings.Join(about(r), ", "); code != exitErrors || got != "error unreachable, error unreachable, error unreachable, error no-quorum" {
		t.Errorf("exit code %d, %s: %v", code, got, r.Findings)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("three servers that hang hold it up for %s", took)
	}
}

func TestCheckClocks(t *testing.T) {
	s := startSite(t)
	s.enlist(t)
	for _, tt := range []struct {
		add  int
		want string
	}{{5, "error clock"}, {-5, "error clock"}} {
		wrong := skewed(t, s.nodes[1], tt.add)
		if r, _ := runCheck(t, append(s.args()[:4], "--lock-node", s.nodes[0], "--lock-node", wrong, "--lock-node", s.nodes[2])...); !slices.Contains(about(r), tt.want) {
			t.Errorf("%+d s: %v", tt.add, r.Findings)
		}
	}
}

// skewed is an address at which a server's TIME is so many seconds off.
func skewed(t *testing.T, addr string, seconds int) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			srv, err := net.Dial("tcp", addr)
			if err != nil {
				c.Close()
				continue
			}
			ended.Go(func() { io.Copy(srv, c); srv.Close() })
			ended.Go(func() { shift(c, srv, seconds); c.Close() })
		}
	})
	t.Cleanup(func() { l.Close(); ended.Wait() })
	return l.Addr().String()
}

// shift passes replies on, those of TIME changed.
func shift(to io.Writer, from io.Reader, seconds int) {
	r := bufio.NewReader(from)
	var before [2]string
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		if s, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && before == [2]string{"*2\r\n", "$10\r\n"} {
			line = strconv.Itoa(s+seconds) + "\r\n"
		}
		before = [2]string{before[1], line}
		if _, err := io.WriteString(to, line); err != nil {
			return
		}
	}
}

func TestCheckTLS(t *testing.T) {
	s := startSite(t)
	s.enlist(t)
	a := redistest.NewAuthority(t)
	_, url := redistest.StartTLS(t, a, "--tls-auth-clients", "no")
	tests := []struct{ url, ca, want string }{
		{url, a.File, ""},
		{url, "", "error unreachable"},
		{url + "?skip_verify=true", "", "warning tls-unverified"},
	}
	for _, tt := range tests {
		args := append(s.args()[2:], "--upstream", tt.url)
		if tt.ca != "" {
			args = append(args, "--tls-ca", tt.ca)
		}
		if r, _ := runCheck(t, args...); strings.Join(about(r), ", ") != tt.want {
			t.Errorf("%s with --tls-ca %q: %v, want %q", tt.url, tt.ca, r.Findings, tt.want)
		}
	}
}

func TestCheckUpstreams(t *testing.T) {
	s := startSite(t)
	s.enlist(t)
	a := redistest.NewAuthority(t)
	cert, key := a.Issue(t, "proxy")
	lonely := redistest.Start(t, "--cluster-enabled", "yes") // serves no slots
	full := redistest.Start(t, "--maxmemory", "200kb")
	guarded := redistest.Start(t, "--requirepass", "secret")
	evicting := redistest.Start(t, "--maxmemory", "200mb", "--maxmemory-policy", "allkeys-lru")
	tests := []struct {
		name, url, want string
		args            []string
	}{
		{"clients bring the password", guarded.URL(), "note could-not-look", []string{"--listen", "0.0.0.0:0", "--tls-cert", cert, "--tls-key", key}},
		{"anybody may come", s.up.URL(), "warning exposed", []string{"--listen", "0.0.0.0:0", "--tls-cert", cert, "--tls-key", key}},
		{"anybody may come and listen", s.up.URL(), "warning exposed, warning exposed", []string{"--listen", "0.0.0.0:0"}},
		{"with a certificate", s.up.URL(), "", []string{"--listen", "0.0.0.0:0", "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", a.File}},
		{"a password for all to see", strings.Replace(guarded.URL(), "//", "//:secret@", 1), "warning exposed", nil},
		{"cluster without slots", lonely.URL(), "error cluster", nil},
		{"full", full.URL(), "warning memory", nil},
		{"a cache", evicting.URL(), "", nil},
		{"no sentinel there", "redis://" + s.up.Addr() + "?master_set=mymaster", "error no-master", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, _ := runCheck(t, slices.Concat([]string{"--upstream", tt.url}, s.args()[2:], tt.args)...)
			if got := strings.Join(about(r), ", "); got != tt.want {
				t.Errorf("%s, want %s\n%v", got, tt.want, r.Findings)
			}
		})
	}
}

func TestCheckCommandLine(t *testing.T) {
	for _, line := range []string{"check", "check --upstream u:1 --format yaml", "check --upstream u:1 now", "check --nothing", "check --upstream u:1 --min-ttl 30"} {
		if code, _, stderr := execute(t, nil, strings.Fields(line)...); code != exit.Misuse || stderr == "" {
			t.Errorf("%s: exit code %d, want %d (%s)", line, code, exit.Misuse, stderr)
		}
	}
}

func TestCheckFindsMasters(t *testing.T) {
	s := startSite(t)
	s.enlist(t)
	cluster := redistest.StartCluster(t, 3, 0)
	watched := redistest.StartSentinel(t, 1, 1)
	watched.Sentinels[0].Do(t, "SENTINEL", "SET", redistest.MasterSet, "down-after-milliseconds", "60000") // nobody is to take over
	tests := []struct {
		name    string
		args    []string
		servers int
		want    string
	}{
		{"a Cluster", append(s.args()[2:], "--upstream", cluster.URL()), 6, ""},
		{"sentinels", append(s.args()[2:], "--upstream", watched.URL()), 4, ""},
		{"sentinels of a lock node", s.args(watched.URL()), 4, "warning replicas"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, _ := runCheck(t, tt.args...)
			if got := strings.Join(about(r), ", "); got != tt.want && got != tt.want+", warning one-machine" || len(r.Servers) != tt.servers {
				t.Errorf("%s, want %s\n%v of %v", got, tt.want, r.Findings, r.Servers)
			}
			for _, l := range r.Servers {
				if l.Version == "" || l.LongestMS == 0 || l.WithinMS == 0 {
					t.Errorf("not looked at: %v", l)
				}
			}
		})
	}
}
