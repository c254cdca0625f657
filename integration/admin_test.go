package integration

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// adminGet is the status and the body of a GET; 0 if there is no answer.
func adminGet(t *testing.T, url string) (code int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// A load balancer hears at once that the proxy drains, and can ask until the last client
// has its reply.
func TestAdmin_WhileDraining(t *testing.T) {
	up, nodes, admin := redistest.Start(t), redistest.StartNodes(t, 3), freeAddr(t)
	p := redistest.StartProxy(t, up, nodes, "--admin", admin, "--drain-timeout", "30s")
	is := func(want int, says string) func() bool {
		return func() bool {
			code, body := adminGet(t, "http://"+admin+"/readyz?verbose")
			return code == want && strings.Contains(body, says)
		}
	}
	eventually(t, 20*time.Second, "ready", is(200, "[+] lock nodes: 3 of 3 vote, 2 needed"))
	c := redistest.Open(t, p.Addr())
	c.Do(t, "SET", "k", "v")
	eventually(t, 10*time.Second, "the client is counted", is(200, "1 connected"))

	up.Do(t, "CLIENT", "PAUSE", "60000", "WRITE")
	c.Send(t, redistest.Command("SET", "k", "w"))
	eventually(t, 10*time.Second, "the upstream has the command", func() bool {
		return strings.Contains(up.Do(t, "CLIENT", "LIST").Text, " flags=b ")
	})
	ended := make(chan error, 1)
	go func() {
		_, status := p.Terminate(60 * time.Second)
		ended <- status
	}()
	eventually(t, 10*time.Second, "draining is said", is(503, "[-] clients: draining, 1 left"))
	if code, _ := adminGet(t, "http://"+admin+"/healthz"); code != 200 {
		t.Errorf("healthz while draining: %d", code)
	}
	if _, body := adminGet(t, "http://"+admin+"/metrics"); !strings.Contains(body, "\nlockproxy_draining 1\n") {
		t.Error("metrics do not show it")
	}
	up.Do(t, "CLIENT", "UNPAUSE")
	if v := c.Read(t); v.Text != "OK" {
		t.Errorf("SET: %v", v)
	}
	if status := <-ended; status != nil {
		t.Error(status)
	}
	if code, _ := adminGet(t, "http://"+admin+"/healthz"); code != 0 {
		t.Errorf("after the end: %d", code)
	}
}

// What an operator can read has no passwords: not the log, not metrics, not profiles, not
// what is said of faults.
func TestAdmin_ShowsNoSecrets(t *testing.T) {
	const admins, ups = "password-of-operators", "password-of-upstream"
	up := redistest.Start(t, "--requirepass", ups)
	dir, admin := t.TempDir(), freeAddr(t)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	p := redistest.StartServe(t, freeAddr(t),
		"--upstream-file", write("up", "redis://:"+ups+"@"+up.Addr()+"\n"), "--admin", admin,
		"--admin-password-file", write("admin", admins+"\n"), "--admin-pprof", "--log-level", "debug")
	eventually(t, 20*time.Second, "ready", func() bool {
		code, _ := adminGet(t, "http://"+admin+"/readyz")
		return code == 200
	})
	c := redistest.Open(t, p.Addr())
	c.Do(t, "SET", "k", "v")
	c.Do(t, "LOCK", "private-name", "30s", "OWNER", "private-owner")

	host, _, err := net.SplitHostPort(admin)
	if err != nil || host == "" {
		t.Fatal(err)
	}
	inside := "http://anybody:" + admins + "@" + admin
	for _, tt := range []struct {
		url  string
		want int
	}{
		{"http://" + admin + "/", 401},
		{"http://anybody:wrong@" + admin + "/", 401},
		{inside + "/", 200},
		{inside + "/debug/pprof/", 200},
		{inside + "/debug/pprof/cmdline", 404},
		{inside + "/debug/pprof/goroutine?debug=2", 200},
		{inside + "/debug/pprof/heap?debug=1", 200},
		{"http://" + admin + "/metrics", 200},
		{"http://" + admin + "/readyz?verbose", 200},
	} {
		code, body := adminGet(t, tt.url)
		if code != tt.want {
			t.Errorf("%s: %d, want %d", tt.url, code, tt.want)
		}
		for _, secret := range []string{admins, ups} {
			if strings.Contains(body, secret) {
				t.Errorf("%s shows %s", tt.url, secret)
			}
		}
		if open := !strings.HasPrefix(tt.url, inside); open && strings.Contains(body, "private-") {
			t.Errorf("%s shows a lock to everybody", tt.url)
		}
	}
	_, body := adminGet(t, "http://"+admin+"/metrics")
	for _, want := range []string{`commands_total{family="write"} 1`, `commands_total{family="lock"} 1`, `lock_requests_total{outcome="granted"} 1`} {
		if !strings.Contains(body, "\nlockproxy_"+want+"\n") {
			t.Errorf("metrics do not say %s", want)
		}
	}
	for _, secret := range []string{admins, ups} {
		if strings.Contains(p.Log(), secret) {
			t.Errorf("the log has %s", secret)
		}
	}
}
