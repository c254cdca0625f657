package admin

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

const secret = "correct horse"

func basic(user, password string) string {
	r := &http.Request{Header: http.Header{}}
	r.SetBasicAuth(user, password)
	return r.Header.Get("Authorization")
}

func TestRequireOperator(t *testing.T) {
	tests := []struct {
		name   string
		opt    Options
		public bool // other machines reach it
		header []string
		want   int
		says   string
	}{
		{"loopback", Options{}, false, nil, 200, "lockproxy"},
		{"by the name of this machine", Options{}, false, []string{"Host", "localhost:80"}, 200, ""},
		{"by another name", Options{}, false, []string{"Host", "evil.example:80"}, 403, "by its address"},
		{"IPv6 address", Options{}, false, []string{"Host", "[::1]:80"}, 200, ""},
		{"no password said", Options{Password: secret}, false, nil, 401, "needs the admin-password"},
		{"password", Options{Password: secret}, false, []string{"Authorization", basic("anybody", secret)}, 200, ""},
		{"by another name with the password", Options{Password: secret}, false, []string{"Host", "proxy.example", "Authorization", basic("", secret)}, 200, ""},
		{"wrong password", Options{Password: secret}, false, []string{"Authorization", basic("anybody", secret+"s")}, 401, ""},
		{"beginning of the password", Options{Password: secret}, false, []string{"Authorization", basic("anybody", secret[:8])}, 401, ""},
		{"empty password", Options{Password: secret}, false, []string{"Authorization", basic("anybody", "")}, 401, ""},
		{"other scheme", Options{Password: secret}, false, []string{"Authorization", "Bearer " + secret}, 401, ""},
		{"everywhere without a password", Options{}, true, nil, 403, "no admin-password"},
		{"everywhere with it", Options{Password: secret}, true, []string{"Authorization", basic("", secret)}, 200, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := open(t, tt.opt, nowhere, nowhere)
			log := d.log
			if tt.public {
				d = serveHandler(t, (&Server{opt: d.opt, logins: newLoginThrottle(), pinger: d.pinger, feed: d.feed, history: d.history, conns: newConnLimit()}).routes())
			}
			for _, path := range []string{"/", "/debug/pprof/", "/nothing"} {
				code, body := d.get(t, path, tt.header...)
				if code == 404 && path != "/" {
					code = 200 // it was let through, to what there is not
				}
				if code != tt.want || path == "/" && !strings.Contains(body, tt.says) {
					t.Errorf("%s: %d %q, want %d %q", path, code, body, tt.want, tt.says)
				}
				if strings.Contains(body, secret) {
					t.Errorf("%s shows the password", path)
				}
			}
			for _, path := range []string{"/healthz", "/metrics"} {
				if code, body := d.get(t, path, "Host", "anything.example"); code != 200 {
					t.Errorf("%s: %d %q; it is for everybody", path, code, body)
				}
			}
			if log := log.String(); strings.Contains(log, secret) {
				t.Errorf("the log has the password:\n%s", log)
			}
		})
	}
}

func TestIsLoopback(t *testing.T) {
	tests := []struct {
		addr net.Addr
		want bool
	}{
		{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, true},
		{&net.TCPAddr{IP: net.IPv4(127, 1, 2, 3)}, true},
		{&net.TCPAddr{IP: net.IPv6loopback}, true},
		{&net.UnixAddr{Name: "/run/admin", Net: "unix"}, true},
		{&net.TCPAddr{}, false},
		{&net.TCPAddr{IP: net.IPv4zero}, false},
		{&net.TCPAddr{IP: net.IPv6unspecified}, false},
		{&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, false},
	}
	for _, tt := range tests {
		if got := isLoopback(tt.addr); got != tt.want {
			t.Errorf("%v: %t", tt.addr, got)
		}
	}
}

func TestRequireOperator_UnixSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "admin") // short, as a socket's path must be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	d := open(t, Options{Listen: path}, nowhere, nowhere)
	d.http.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	d.url = "http://localhost"
	if code, body := d.get(t, "/"); code != 200 {
		t.Errorf("%d %q", code, body)
	}
}

func TestTLS(t *testing.T) {
	ca := redistest.NewAuthority(t)
	cert, key := ca.Issue(t, "proxy")
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	d := open(t, Options{TLS: &tls.Config{Certificates: []tls.Certificate{pair}}}, nowhere, nowhere)
	if code, _ := d.get(t, "/healthz"); code != http.StatusBadRequest {
		t.Errorf("in plain text: %d", code)
	}
	d.http.Transport.(*http.Transport).TLSClientConfig = ca.Client(t, "", "")
	d.url = "https://" + d.Addr().String()
	for _, path := range []string{"/healthz", "/"} {
		if code, body := d.get(t, path); code != http.StatusOK {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
}

// A page of another site must not change anything, not even with the browser's remembered
// password.
func TestCrossSite(t *testing.T) {
	json := []string{"Content-Type", "application/json"}
	tests := []struct {
		name   string
		method string
		header []string
		want   int
	}{
		{"a program", "POST", json, 200},
		{"the page", "POST", append([]string{"Sec-Fetch-Site", "same-origin"}, json...), 200},
		{"another site", "POST", append([]string{"Sec-Fetch-Site", "cross-site"}, json...), 403},
		{"another port", "POST", append([]string{"Sec-Fetch-Site", "same-site"}, json...), 403},
		{"another site, old browser", "POST", append([]string{"Origin", "http://evil.example"}, json...), 403},
		{"a form", "POST", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415},
		{"plain text", "POST", []string{"Content-Type", "text/plain"}, 415},
		{"no type", "DELETE", nil, 415},
		{"a link", "GET", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 200},
		{"typed in", "GET", []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate"}, 200},
		{"a picture elsewhere", "GET", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		{"events elsewhere", "GET", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors"}, 403},
		{"the page's events", "GET", []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "cors"}, 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &Server{loopbackOnly: true, conns: newConnLimit()}
			done := false
			h := s.requireOperator(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { done = true }))
			d := serveHandler(t, h)
			resp, body := d.ask(t, tt.method, "/", tt.header...)
			if resp.StatusCode != tt.want || done != (tt.want == 200) {
				t.Errorf("%d %q, done: %t, want %d", resp.StatusCode, body, done, tt.want)
			}
		})
	}
}

// serveHandler serves h alone until the test ends.
func serveHandler(t *testing.T, h http.Handler) *testServer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	ended := make(chan struct{})
	go func() { defer close(ended); srv.Serve(ln) }()
	t.Cleanup(func() { srv.Close(); <-ended })
	return &testServer{url: "http://" + ln.Addr().String(), http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

func TestConnLimit_SlowClientsAreClosed(t *testing.T) {
	t.Parallel()
	d := open(t, Options{}, nowhere, nowhere)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.url+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Large", strings.Repeat("x", 4*maxHeader))
	if resp, err := d.http.Do(r); err == nil { // else it was closed on us, as is right
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("a large header: %s", resp.Status)
		}
	}
	d.http.CloseIdleConnections()
	for range maxConns {
		c, err := net.Dial("tcp", d.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: "); err != nil {
			t.Fatal(err)
		}
	}
	if code, _ := d.get(t, "/healthz"); code != http.StatusOK {
		t.Errorf("an honest client: %d", code)
	}
}

// Held connections keep nobody out, and an operator's page stays live meanwhile.
func TestConnLimit_HeldConnectionsAreEvicted(t *testing.T) {
	t.Parallel()
	d := open(t, Options{}, nowhere, nowhere)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.url+"/page/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	page, err := d.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer page.Body.Close()
	for range maxConns + 1 {
		c, err := net.Dial("tcp", d.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 1)); n == 0 { // the others are idle from now on
			t.Fatal(err)
		}
	}
	// Less than keepIdle, after which there is room again.
	ctx, cancel := context.WithTimeout(t.Context(), idleTimeout/2)
	defer cancel()
	if r, err = http.NewRequestWithContext(ctx, http.MethodGet, d.url+"/healthz", nil); err != nil {
		t.Fatal(err)
	}
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatalf("an honest client: %v", err)
	}
	answer.Body.Close()
	d.conns.mu.Lock()
	defer d.conns.mu.Unlock()
	kept := 0
	for _, at := range d.conns.open {
		if at.protected {
			kept++
		}
	}
	if n := len(d.conns.open); n > maxConns || kept != 1 {
		t.Errorf("%d connections, %d of them operators'; want %d at most, and the page's", n, kept, maxConns)
	}
}

func TestSecurityHeaders(t *testing.T) {
	d := open(t, Options{}, nowhere, nowhere)
	for _, path := range []string{"/", "/healthz", "/metrics", "/nothing"} {
		resp, _ := d.ask(t, http.MethodGet, path)
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
			"Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
		} {
			if got := resp.Header.Get(name); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s is %q, want %q…", path, name, got, want)
			}
		}
		if csp := resp.Header.Get("Content-Security-Policy"); strings.Contains(csp, "unsafe") || !strings.Contains(csp, "frame-ancestors 'none'") {
			t.Errorf("%s: %s", path, csp)
		}
	}
}

// A blocked client is refused with the right password, too; others are not.
func TestLoginThrottle_BlocksAfterWrongPasswords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{opt: Options{Password: secret, Log: discard()}, logins: newLoginThrottle()}
		try := func(from, password string) int {
			r, _ := http.NewRequest("GET", "/", nil)
			r.RemoteAddr = from
			r.SetBasicAuth("", password)
			w := &codeWriter{}
			s.authorized(w, r)
			return w.code
		}
		for i := range maxFailures {
			if code := try("192.0.2.1:1000", fmt.Sprint("guess", i)); code != 401 {
				t.Fatalf("guess %d: %d", i, code)
			}
		}
		if code := try("192.0.2.1:2000", secret); code != 429 {
			t.Errorf("after %d guesses: %d", maxFailures, code)
		}
		if code := try("192.0.2.2:1000", secret); code != 0 {
			t.Errorf("somebody else: %d", code)
		}
		time.Sleep(throttleTime)
		if code := try("192.0.2.1:3000", secret); code != 0 {
			t.Errorf("a minute later: %d", code)
		}
		for i := range maxFailures {
			try(fmt.Sprintf("[2001:db8::%x]:1", i+1), "wrong")
		}
		if code := try("[2001:db8::ffff:1]:1", secret); code != 429 {
			t.Errorf("after %d guesses from a network, another address in it: %d", maxFailures, code)
		}
		if code := try("[2001:db8:0:1::1]:1", secret); code != 0 {
			t.Errorf("another network: %d", code)
		}
		for i := range 3 * maxThrottled {
			try(fmt.Sprintf("[2001:db8:%x::1]:1", i+1), "wrong")
		}
		if n := s.logins.byClient.Len(); n > maxThrottled {
			t.Errorf("%d guessers are remembered", n)
		}
	})
}

// A codeWriter keeps the code of an answer; 0: there was none.
type codeWriter struct {
	header http.Header
	code   int
}

func (w *codeWriter) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}
func (w *codeWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *codeWriter) WriteHeader(code int)        { w.code = code }

func TestProfiles(t *testing.T) {
	off := open(t, Options{}, nowhere, nowhere)
	if code, body := off.get(t, "/debug/pprof/heap"); code != 404 || !strings.Contains(body, "--admin-pprof") {
		t.Errorf("not wanted: %d %q", code, body)
	}
	on := open(t, Options{Pprof: true}, nowhere, nowhere)
	tests := []struct {
		path string
		want int
		says string
	}{
		{"/debug/pprof/", 200, "heap"},
		{"/debug/pprof/goroutine?debug=1", 200, "goroutine profile"},
		{"/debug/pprof/cmdline", 404, "passwords"},
		{"/debug/pprof/profile?seconds=121", 400, "up to 120"},
		{"/debug/pprof/trace?seconds=NaN", 400, "up to 120"},
		{"/debug/pprof/allocs?seconds=1e9", 400, "up to 120"},
	}
	for _, tt := range tests {
		if code, body := on.get(t, tt.path); code != tt.want || !strings.Contains(body, tt.says) {
			t.Errorf("%s: %d %.200q, want %d %q", tt.path, code, body, tt.want, tt.says)
		}
	}
}

func TestServe_EndsLongRequests(t *testing.T) {
	d := open(t, Options{Pprof: true}, nowhere, nowhere)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.url+"/debug/pprof/profile?seconds=100", nil)
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		resp, err := d.http.Do(r)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		answered <- err
	}()
	eventually(t, "the profile is under way", func() bool { return profiling() })
	began := time.Now()
	if err := d.end(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 50*time.Second {
		t.Errorf("Serve took %v to end", took)
	}
	<-answered
	if profiling() {
		t.Error("the request is still under way")
	}
}

// profiling reports whether a request for a CPU profile is under way in this process.
func profiling() bool {
	stacks := make([]byte, 1<<20)
	return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "net/http/pprof.Profile(")
}
