package integration

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A secureRig is a proxy to which everything speaks TLS: its clients, its upstream
// and three lock nodes, each with certificates of the same authority.
type secureRig struct {
	ca    *redistest.Authority
	proxy *redistest.Proxy
	cert  string // of the proxy
}

// startTLSRig starts everything; servers ask the proxy for a certificate, and args
// are further ones of the proxy.
func startTLSRig(t *testing.T, args ...string) *secureRig {
	t.Helper()
	r := &secureRig{ca: redistest.NewAuthority(t)}
	all := []string{"--upstream", startTLS(t, r.ca)}
	for range 3 {
		all = append(all, "--lock-node", startTLS(t, r.ca))
	}
	server, serverKey := r.ca.Issue(t, "to-servers")
	var key string
	r.cert, key = r.ca.Issue(t, "proxy")
	all = append(all, "--tls-ca", r.ca.File, "--tls-server-cert", server, "--tls-server-key", serverKey,
		"--tls-cert", r.cert, "--tls-key", key, "--log-level", "debug")
	r.proxy = redistest.StartServe(t, freeAddr(t), append(all, args...)...)
	return r
}

// startTLS starts a Redis with a certificate of ca's, which demands one, and returns
// its rediss:// URL.
func startTLS(t *testing.T, ca *redistest.Authority) string {
	t.Helper()
	_, url := redistest.StartTLS(t, ca)
	return url
}

func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := redistest.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// open connects as a client of this configuration.
func (r *secureRig) open(t *testing.T, conf *tls.Config) (*redistest.Conn, error) {
	t.Helper()
	nc, err := tls.Dial("tcp", r.proxy.Addr(), conf)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { nc.Close() })
	return redistest.NewConn(nc), nil
}

func (r *secureRig) mustOpen(t *testing.T) *redistest.Conn {
	t.Helper()
	c, err := r.open(t, r.ca.Client(t, "", ""))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTLSEndToEnd(t *testing.T) {
	t.Parallel()
	r := startTLSRig(t)
	t.Run("verbs and state", func(t *testing.T) {
		c := r.mustOpen(t)
		for _, step := range []struct{ command, want string }{
			{"SET a 1", "+OK"},
			{"INCR a", ":2"},
			{"MULTI", "+OK"},
			{"INCR a", "+QUEUED"},
			{"EXEC", "*[:3]"},
			{"LOCK job 30s OWNER me", `*[:`},
			{"RENEW job 30s me", ":29"},
			{"UNLOCK job me", ":1"},
			{"SUBSCRIBE c", `*[$"subscribe" $"c" :1]`},
		} {
			if v := c.Do(t, strings.Fields(step.command)...); !strings.HasPrefix(v.String(), step.want) {
				t.Errorf("%s: %v, want %s", step.command, v, step.want)
			}
		}
	})
	t.Run("large values both ways", func(t *testing.T) {
		c, value := r.mustOpen(t), strings.Repeat("0123456789abcdef", 1<<20)
		c.Do(t, "SET", "large", value)
		if v := c.Do(t, "GET", "large"); v.Text != value {
			t.Errorf("%d bytes came back of %d", len(v.Text), len(value))
		}
	})
	t.Run("pipeline, one byte a record", func(t *testing.T) {
		c := r.mustOpen(t)
		for _, b := range []byte(redistest.Command("ECHO", "x") + "PING\r\n") {
			c.Send(t, string(b))
		}
		if a, b := c.Read(t), c.Read(t); a.Text != "x" || b.Text != "PONG" {
			t.Errorf("got %v and %v", a, b)
		}
	})
	t.Run("quit ends in TLS too", func(t *testing.T) {
		nc, err := tls.Dial("tcp", r.proxy.Addr(), r.ca.Client(t, "", ""))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		io.WriteString(nc, "QUIT\r\n")
		nc.SetReadDeadline(time.Now().Add(redistest.ReplyTimeout))
		if got, err := io.ReadAll(nc); string(got) != "+OK\r\n" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("redis-cli", func(t *testing.T) {
		out := r.redisCLI(t, "--cacert", r.ca.File, "SET", "cli", "1")
		if out != "OK\n" {
			t.Errorf("redis-cli says %q", out)
		}
		if out := r.redisCLI(t, "--cacert", r.ca.File, "-3", "LOCK", "cli", "30s", "OWNER", "cli"); !strings.Contains(out, `2) "cli"`) && !strings.Contains(out, "\ncli\n") {
			t.Errorf("redis-cli says %q", out)
		}
	})
	t.Run("plain text", func(t *testing.T) {
		c := redistest.Open(t, r.proxy.Addr())
		c.Send(t, "PING\r\n")
		if got, closed := c.ReadUntilQuiet(redistest.ReplyTimeout); !closed || strings.Contains(got, "PONG") {
			t.Errorf("got %q, closed %v", got, closed)
		}
		r.awaitLog(t, `level=DEBUG msg="TLS handshake failed"`)
	})
}

// TestTLSIdle: a client is not idle while it waits for a reply, and has the whole idle timeout after it.
func TestTLSIdle(t *testing.T) {
	t.Parallel()
	const timeout, wait = 2 * time.Second, 4500 * time.Millisecond // 0.5 s after two of them
	r := startTLSRig(t, "--idle-timeout", timeout.String())
	for {
		c := r.mustOpen(t)
		start := time.Now()
		if v := c.Do(t, "BLPOP", "nothing", "4.5"); v.Raw != "*-1\r\n" {
			t.Fatalf("BLPOP: %v", v)
		}
		if took := time.Since(start); took < wait-100*time.Millisecond {
			t.Errorf("BLPOP answered after %v", took)
		}
		time.Sleep(timeout * 9 / 10)
		v, err := c.Try("PING")
		if took := time.Since(start); err != nil && took > wait+timeout {
			t.Logf("asked too late, %v after it began", took)
			continue
		}
		if err != nil || v.Text != "PONG" {
			t.Fatalf("within the timeout after a reply: %v, %v", v, err)
		}
		if got, closed := c.ReadUntilQuiet(time.Minute); got != "" || !closed {
			t.Errorf("idle: got %q, closed %v", got, closed)
		}
		return
	}
}

// redisCLI is what redis-cli prints, over TLS.
func (r *secureRig) redisCLI(t *testing.T, args ...string) string {
	t.Helper()
	host, port, _ := net.SplitHostPort(r.proxy.Addr())
	ctx, cancel := context.WithTimeout(t.Context(), redistest.ReplyTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "redis-cli", append([]string{"-h", host, "-p", port, "--tls"}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%s%v\n", out, err)
	}
	return string(out)
}

func (r *secureRig) awaitLog(t *testing.T, want string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(r.proxy.Log(), want); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the log never says %q", want)
		}
	}
}

// TestTLSDrain: commands that run when the proxy is told to end are answered, also
// to a client that reads the answers late, and the end is said in TLS.
func TestTLSDrain(t *testing.T) {
	t.Parallel()
	r := startTLSRig(t, "--drain-timeout", "60s")
	nc, err := tls.Dial("tcp", r.proxy.Addr(), r.ca.Client(t, "", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c := redistest.NewConn(nc)
	silent := redistest.Open(t, r.proxy.Addr()) // in the middle of its handshake for ever
	if v := c.Do(t, "PING"); v.Text != "PONG" {
		t.Fatal(v)
	}
	large := strings.Repeat("x", 32<<20) // more than sockets buffer
	c.Do(t, "SET", "large", large)
	c.Send(t, redistest.Command("DEBUG", "SLEEP", "0.7")+redistest.Command("GET", "large"))
	time.Sleep(200 * time.Millisecond) // so that it runs
	ended := make(chan string, 1)
	go func() {
		ok, status := r.proxy.Terminate(90 * time.Second)
		ended <- fmt.Sprintf("ended %v, status %v", ok, status)
	}()
	time.Sleep(1500 * time.Millisecond)
	if v := c.Read(t); v.Text != "OK" {
		t.Errorf("the running command is answered %v", v)
	}
	if v := c.Read(t); v.Text != large {
		t.Errorf("%d bytes arrived of %d", len(v.Text), len(large))
	}
	if _, err := nc.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the end was not said: %v", err)
	}
	if got := <-ended; got != "ended true, status <nil>" {
		t.Errorf("SIGTERM: %s", got)
	}
	if got, closed := silent.ReadUntilQuiet(10 * time.Second); got != "" || !closed {
		t.Errorf("the silent one: got %q, closed %v", got, closed)
	}
}

// A client that never finishes its handshake keeps nobody else out.
func TestTLS_PendingHandshakesDoNotBlockOthers(t *testing.T) {
	t.Parallel()
	r := startTLSRig(t, "--max-clients", "11")
	for range 10 {
		redistest.Open(t, r.proxy.Addr()).Send(t, "\x16\x03\x01") // the beginning of a record
	}
	start := time.Now()
	var last *redistest.Conn // the one place left, once whoever looked for the proxy has gone
	eventually(t, 8*time.Second, "one more client is served", func() bool {
		c, err := r.open(t, r.ca.Client(t, "", ""))
		if err != nil {
			return false
		}
		last = c
		v, err := c.Try("PING")
		return err == nil && v.Text == "PONG"
	})
	defer last.Close()
	if took := time.Since(start); took > 8*time.Second {
		t.Errorf("took %v", took)
	}
	if c, err := r.open(t, r.ca.Client(t, "", "")); err == nil {
		if v, err := c.Try("PING"); err == nil {
			t.Errorf("one client too many is answered %v", v)
		}
	}
}

func TestClientCertificates(t *testing.T) {
	t.Parallel()
	clients, strangers := redistest.NewAuthority(t), redistest.NewAuthority(t)
	r := startTLSRig(t, "--tls-client-ca", clients.File)
	cert, key := clients.Issue(t, "client")
	scert, skey := strangers.Issue(t, "client")
	tests := []struct {
		name      string
		cert, key string
		ok        bool
	}{
		{"signed", cert, key, true},
		{"none", "", "", false},
		{"a stranger's", scert, skey, false},
		{"signed by who signs the proxy's", r.cert, strings.TrimSuffix(r.cert, ".pem") + ".key", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := r.open(t, r.ca.Client(t, tt.cert, tt.key))
			var v redistest.Value
			if err == nil {
				v, err = c.Try("PING")
			}
			if ok := err == nil && v.Text == "PONG"; ok != tt.ok {
				t.Errorf("PING over TLS: %v, %v", v, err)
			}
			args := []string{"--cacert", r.ca.File}
			if tt.cert != "" {
				args = append(args, "--cert", tt.cert, "--key", tt.key)
			}
			if out := r.redisCLI(t, append(args, "PING")...); (out == "PONG\n") != tt.ok {
				t.Errorf("redis-cli says %q", out)
			}
		})
	}
}

// TestCertificateRenewal replaces the files under a running proxy.
func TestCertificateRenewal(t *testing.T) {
	t.Parallel()
	r := startTLSRig(t)
	old := r.mustOpen(t)
	before := r.serial(t)
	r.ca.Issue(t, "proxy")
	if after := r.serial(t); after == before {
		t.Errorf("the proxy still shows certificate %s", after)
	}
	if err := os.WriteFile(r.cert, []byte("half of it"), 0o600); err != nil {
		t.Fatal(err)
	}
	if v := r.mustOpen(t).Do(t, "PING"); v.Text != "PONG" {
		t.Errorf("with a broken file: %v", v)
	}
	r.awaitLog(t, "what was read before stays in use")
	if v := old.Do(t, "PING"); v.Text != "PONG" {
		t.Errorf("a client from before: %v", v)
	}
}

// serial is the number of the certificate that the proxy shows.
func (r *secureRig) serial(t *testing.T) string {
	t.Helper()
	nc, err := tls.Dial("tcp", r.proxy.Addr(), r.ca.Client(t, "", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	return nc.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// TestUntrustedServers: a proxy that must not trust its servers says so and serves
// on, as with servers that are down.
func TestUntrustedServers(t *testing.T) {
	t.Parallel()
	servers, others := redistest.NewAuthority(t), redistest.NewAuthority(t)
	url, data := startTLS(t, servers), redistest.Start(t)
	cert, key := servers.Issue(t, "to-servers")
	for name, args := range map[string][]string{
		"not signed by ours":   {"--tls-ca", others.File, "--tls-server-cert", cert, "--tls-server-key", key},
		"shown no certificate": {"--tls-ca", servers.File},
	} {
		t.Run(name, func(t *testing.T) {
			p := redistest.StartServe(t, freeAddr(t), append([]string{"--upstream", url}, args...)...)
			if v := redistest.Open(t, p.Addr()).Do(t, "PING"); !strings.HasPrefix(v.Text, "UPSTREAMDOWN ") {
				t.Errorf("PING: %v", v)
			}
			p = redistest.StartServe(t, freeAddr(t), append([]string{"--upstream", data.URL(), "--lock-node", url}, args...)...)
			if v := redistest.Open(t, p.Addr()).Do(t, "LOCK", "a", "10s"); !strings.HasPrefix(v.Text, "NOQUORUM 0 of 1 answered") {
				t.Errorf("LOCK: %v", v)
			}
		})
	}
}

// TestUnixSockets has a socket on every side.
func TestUnixSockets(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "sockets-") // not TempDir: a socket's path is at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := func(name string) string { return filepath.Join(dir, name) }
	redistest.Start(t, "--unixsocket", path("data"), "--requirepass", "secret")
	args := []string{"--upstream", "unix://:secret@" + path("data") + "?db=3"}
	for i := range 3 {
		name := fmt.Sprint("node", i)
		redistest.Start(t, "--unixsocket", path(name))
		args = append(args, "--lock-node", "unix://"+path(name))
	}
	listen := path("proxy")
	p := redistest.StartServe(t, listen, args...)
	c := redistest.Open(t, listen)
	for _, step := range []struct{ command, want string }{
		{"SET a 1", "+OK"},
		{"GET a", `$"1"`},
		{"BLPOP nothing 0.1", "*-1"},
		{"LOCK job 30s OWNER me", "*[:"},
		{"UNLOCK job me", ":1"},
	} {
		if v := c.Do(t, strings.Fields(step.command)...); !strings.HasPrefix(v.String(), step.want) {
			t.Errorf("%s: %v, want %s", step.command, v, step.want)
		}
	}
	if out, err := exec.Command("redis-cli", "-s", listen, "GET", "a").Output(); err != nil || string(out) != "1\n" {
		t.Errorf("redis-cli says %q, %v", out, err)
	}

	p.Kill() // leaves its socket behind
	if _, err := os.Stat(listen); err != nil {
		t.Fatal(err)
	}
	if err := p.Restart(); err != nil {
		t.Fatal(err)
	}
	if v := redistest.Open(t, listen).Do(t, "GET", "a"); v.Text != "1" {
		t.Errorf("after a restart: %v", v)
	}
	p.Terminate(3 * time.Second)
	if _, err := os.Stat(listen); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// TestCertificates_ExpiryWarning: the proxy warns at its start of those that it shows, and
// /metrics has when they end, of a renewed one too.
func TestCertificates_ExpiryWarning(t *testing.T) {
	t.Parallel()
	ca, now, admin := redistest.NewAuthority(t), time.Now(), freeAddr(t)
	const day = 24 * time.Hour
	cert, key := ca.IssueFor(t, "proxy", now.Add(-85*day), now.Add(5*day))
	toServers, toServersKey := ca.IssueFor(t, "to-servers", now.Add(-2*day), now.Add(-day))
	p := redistest.StartServe(t, freeAddr(t), "--upstream", startTLS(t, ca), "--lock-node", redistest.Start(t).URL(), "--tls-ca", ca.File,
		"--tls-cert", cert, "--tls-key", key, "--tls-server-cert", toServers, "--tls-server-key", toServersKey, "--admin", admin, "--admin-tls")
	ends := now.Add(5 * day).UTC().Format(time.RFC3339)
	for _, want := range []string{
		`level=WARN msg="certificate ends soon: then no new connection is made" setting=tls-cert for="clients operators" ends=` + ends,
		`level=WARN msg="certificate has ended: no new connection is made" setting=tls-server-cert for=servers ends=`,
	} {
		if got := linesWith(p.Log(), want); len(got) != 1 {
			t.Errorf("no line %s in\n%s", want, p.Log())
		}
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: ca.Client(t, "", ""), DisableKeepAlives: true}}
	shows := func(name, use string, at time.Time) bool {
		resp, err := client.Get("https://" + admin + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(body), "\n"+name+`{use="`+use+`"} `)
		value, _, _ := strings.Cut(after, "\n")
		n, err := strconv.ParseFloat(value, 64)
		return err == nil && int64(n) == at.Unix()
	}
	for use, at := range map[string]time.Time{"clients": now.Add(5 * day), "operators": now.Add(5 * day), "servers": now.Add(-day)} {
		if !shows("lockproxy_certificate_ends_timestamp_seconds", use, at) {
			t.Errorf("/metrics does not have the end of the one for %s", use)
		}
	}
	if !shows("lockproxy_certificate_begins_timestamp_seconds", "clients", now.Add(-85*day)) {
		t.Error("/metrics does not have the beginning")
	}
	ca.IssueFor(t, "proxy", now.Add(-time.Hour), now.Add(90*day))
	for _, use := range []string{"clients", "operators"} {
		if !shows("lockproxy_certificate_ends_timestamp_seconds", use, now.Add(90*day)) {
			t.Errorf("/metrics does not have the end of the renewed one for %s", use)
		}
	}
}
