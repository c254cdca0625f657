package integration

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// Secrets that no other text holds.
const (
	ofUpstream = "hushUpstream1"
	ofNode     = "hushNode2"
	ofNobody   = "hushWrong3"
	ofDead     = "hushDead4"
	ofSentinel = "hushSentinel5"
	ofWatched  = "hushWatched6"
	ofAdmin    = "hushAdmin7"
	ofClient   = "hushClient8"
	ofGuess    = "hushGuess9"
)

// A vault is a proxy that was given secrets in every place that there is, and what it
// has shown.
type vault struct {
	*redistest.Proxy
	admin  string
	node   string // the address of a lock node
	conf   *tls.Config
	args   []string
	shown  map[string]string // by where
	secret map[string]string // by what it is
}

// startVault starts a proxy in front of upstream with lock nodes of which only the
// first is of use, unless well: then all are.
func startVault(t *testing.T, upstream string, node *redistest.Server, well bool) *vault {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := redistest.NewAuthority(t)
	cert, key := ca.Issue(t, "proxy")
	nodes := []string{"redis://:" + ofNode + "@" + node.Addr()}
	if !well {
		nodes = append(nodes,
			"redis://:"+ofNobody+"@localhost:"+portOf(node.Addr()),
			"redis://ann:"+ofDead+"@"+freeAddr(t),
			"redis://:"+ofWatched+"@"+freeAddr(t)+"?master_set=main")
	}
	v := &vault{admin: freeAddr(t), node: node.Addr(), conf: ca.Client(t, "", ""), shown: map[string]string{}, secret: map[string]string{
		"upstream": ofUpstream, "lock node": ofNode, "wrong": ofNobody, "dead": ofDead, "sentinel": ofSentinel,
		"watched": ofWatched, "admin": ofAdmin, "client": ofClient, "guess": ofGuess, "key": secretLine(t, key),
	}}
	args := []string{
		"--upstream-file", write("upstream", upstream), "--lock-node-file", write("nodes", strings.Join(nodes, "\n")),
		"--admin", v.admin, "--admin-pprof", "--admin-force", "--tls-cert", cert, "--tls-key", key, "--log-level", "debug", "--node-timeout", "2s",
	}
	t.Setenv("LOCKPROXY_ADMIN_PASSWORD", ofAdmin)
	if !well {
		args = append(args, "--sentinel-password-file", write("sentinel", ofSentinel), "--log-format", "json")
	}
	v.Proxy = redistest.StartServe(t, freeAddr(t), args...)
	v.args = args
	return v
}

// secretLine is a line from the middle of a private key.
func secretLine(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n")[1]
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// provoke makes clients do and suffer what may be written about.
func (v *vault) provoke(t *testing.T) {
	t.Helper()
	connect := func() *redistest.Conn {
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 30 * time.Second}, "tcp", v.Addr(), v.conf)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return redistest.NewConn(conn)
	}
	c := connect()
	for _, command := range [][]string{
		{"AUTH", ofGuess}, {"AUTH", "ann", ofGuess}, {"HELLO", "3", "AUTH", "ann", ofGuess}, {"AUTH", "ann", ofGuess, "more"},
		{"AUTH", "ann", ofClient}, {"PING"}, {"LOCK", "job", "300ms"}, {"UNLOCK", "job"}, {"LOCK", "job", "300ms", "NO", "SUCH"},
		{"INFO"}, {"INFO", "everything"}, {"CLIENT", "LIST"}, {"CLIENT", "INFO"}, {"CLIENT", "KILL", "ID", "99999"},
		{"LOCKCTL", "NODES"}, {"LOCKCTL", "LIST"}, {"LOCKCTL", "WHY", "job"}, {"LOCKCTL", "INFO", "job"}, {"LOCKCTL", "NONE", "job"},
		{"HELLO", "3", "AUTH", "ann", ofClient, "SETNAME", "me"}, {"LOCKCTL", "NODES"}, {"SELECT", "99"}, {"RESET"}, {"INFO"},
	} {
		reply, err := c.Try(command...)
		if err != nil { // without its upstream the proxy ends the connection behind AUTH
			c = connect()
			reply = c.Do(t, command...)
		}
		v.shown[fmt.Sprintf("%q", command[:min(2, len(command))])] += reply.Raw
	}
	c.Send(t, "*3\r\n$4\r\nAUTH\r\n$3\r\nann\r\n$-7\r\n"+ofGuess+"\r\n")
	rest, _ := c.ReadUntilQuiet(2 * time.Second)
	v.shown["a broken AUTH"] = rest
}

// look reads all that operators are shown.
func (v *vault) look(t *testing.T) {
	t.Helper()
	for _, path := range []string{
		"/", "/healthz", "/readyz", "/metrics", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2",
		"/debug/pprof/heap?debug=1", "/debug/vars", "/none", "/page/lock?name=job&db=0",
	} {
		for _, password := range []string{"", ofGuess, ofAdmin} {
			v.shown["GET "+path] += v.get(t, path, password)
		}
	}
	v.shown["the page's stream"] = v.begin(t, "/page/events", v.node)
	for _, name := range []string{"cmdline", "comm", "status"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", v.PID(), name))
		if err != nil {
			t.Fatal(err)
		}
		v.shown["/proc/PID/"+name] = string(text)
	}
}

// begin is the beginning of an answer that does not end, until it says a word.
func (v *vault) begin(t *testing.T, path, until string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", "http://"+v.admin+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("operator", ofAdmin)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text := fmt.Sprint(resp.StatusCode, resp.Header)
	for buf := make([]byte, 4<<10); !strings.Contains(text, until); {
		n, err := resp.Body.Read(buf)
		if err != nil {
			t.Fatalf("%v after %s", err, text)
		}
		text += string(buf[:n])
	}
	return text
}

func (v *vault) get(t *testing.T, path, password string) string {
	t.Helper()
	r, err := http.NewRequest("GET", "http://"+v.admin+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if password != "" {
		r.SetBasicAuth("operator", password)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(resp.StatusCode, resp.Header, string(body))
}

// check runs the command of that name with the same settings.
func (v *vault) check(t *testing.T) {
	t.Helper()
	path, err := redistest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	out, _ := exec.Command(path, append([]string{"check"}, v.args...)...).CombinedOutput() // how it ends is not the point
	v.shown["lockproxy check"] = string(out)
}

// judge fails the test where a secret is shown. At least these places must have shown
// something, or nothing was looked at.
func (v *vault) judge(t *testing.T, must map[string]string) {
	t.Helper()
	v.shown["log"] = v.Log()
	for where, part := range must {
		if !strings.Contains(v.shown[where], part) {
			t.Errorf("%s does not show %q:\n%s", where, part, v.shown[where])
		}
	}
	for where, text := range v.shown {
		for what, secret := range v.secret {
			if strings.Contains(text, secret) {
				t.Errorf("%s shows the secret %s (%s)", where, secret, what)
			}
		}
	}
}

func startGuarded(t *testing.T) (up, node *redistest.Server) {
	t.Helper()
	up = redistest.Start(t)
	up.Do(t, "ACL", "SETUSER", "ann", "on", ">"+ofClient, "~*", "&*", "+@all")
	up.Do(t, "CONFIG", "SET", "requirepass", ofUpstream)
	return up, redistest.Start(t, "--requirepass", ofNode)
}

// With servers that are well, that are dead and that take no such password, the proxy
// says a lot, and none of the secrets it was given.
func TestSecretsAreKept(t *testing.T) {
	up, node := startGuarded(t)
	tests := []struct {
		name, upstream string
		well           bool
		must           map[string]string
	}{
		{"well", "redis://:" + ofUpstream + "@" + up.Addr(), true, map[string]string{
			"log": "wrong password for the admin server", `["LOCKCTL" "NODES"]`: "voting", `["INFO"]`: "redis_version",
			"GET /metrics": "lockproxy_", "the page's stream": node.Addr(), "GET /debug/pprof/goroutine?debug=2": "goroutine ", "/proc/PID/cmdline": "--upstream-file",
			"lockproxy check": "looked at",
		}},
		{"lock nodes that are not", "redis://:" + ofUpstream + "@" + up.Addr(), false, map[string]string{
			"log": "WRONGPASS", `["LOCKCTL" "NODES"]`: "WRONGPASS", `["LOCK" "job"]`: "NOQUORUM", "lockproxy check": "unreachable",
		}},
		{"an upstream that takes another password", "redis://:" + ofNobody + "@" + up.Addr(), true, map[string]string{
			"log": "WRONGPASS", "lockproxy check": "[auth]",
		}},
		{"an upstream that is dead", "redis://ann:" + ofDead + "@" + freeAddr(t), true, map[string]string{
			"log": "connection refused", "lockproxy check": "unreachable",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := startVault(t, tt.upstream, node, tt.well)
			v.provoke(t)
			v.look(t)
			v.check(t)
			v.judge(t, tt.must)
		})
	}
}

// A secret on the command line cannot be kept, and that is said.
func TestSecretOnTheCommandLine(t *testing.T) {
	up, node := startGuarded(t)
	p := redistest.StartServe(t, freeAddr(t), "--upstream", "redis://:"+ofUpstream+"@"+up.Addr(), "--lock-node", "redis://:"+ofNode+"@"+node.Addr())
	for _, want := range []string{"upstream: a password on the command line", "lock-node: a password on the command line"} {
		if !strings.Contains(p.Log(), want) {
			t.Errorf("the log does not say %q", want)
		}
	}
	if strings.Contains(p.Log(), "hush") {
		t.Error("the log shows a secret")
	}
}

// The command that runs under a lock does not inherit the proxy's password.
func TestRunKeepsSecrets(t *testing.T) {
	up, node := startGuarded(t)
	t.Setenv("LOCKPROXY_UPSTREAM", "redis://"+up.Addr())
	t.Setenv("LOCKPROXY_LOCK_NODE", "redis://:"+ofNode+"@"+node.Addr())
	p := redistest.StartServe(t, freeAddr(t))
	path, err := redistest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("LOCKPROXY_PROXY", "redis://ann:"+ofClient+"@"+p.Addr())
	out, err := exec.Command(path, "run", "--lock", "job", "--", "env").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "LOCK_FENCE=") {
		t.Fatalf("%v\n%s", err, out)
	}
	if strings.Contains(string(out), "hush") {
		t.Errorf("the command sees a secret:\n%s", out)
	}
	if !strings.Contains(string(out), "LOCKPROXY_UPSTREAM=") {
		t.Error("the command does not see a variable without a password")
	}
}
