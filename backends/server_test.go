package backends

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

func TestServer_WriteTimeout(t *testing.T) {
	for url, want := range map[string]time.Duration{"redis://h:1": DefaultWriteTimeout, "redis://h:1?write_timeout=2s": 2 * time.Second} {
		if s, err := Parse(url); err != nil || s.WriteTimeout() != want {
			t.Errorf("%s: %v, %v", url, s.WriteTimeout(), err)
		}
	}
}

func TestParse(t *testing.T) {
	tests := []struct {
		url, name      string
		secure         bool
		user, password string
		db             int
	}{
		{"redis://h:1", "h:1", false, "", "", 0},
		{"h:1", "h:1", false, "", "", 0},
		{"h", "h:6379", false, "", "", 0},
		{"redis://u:p%40@h:1/3", "h:1", false, "u", "p@", 3},
		{"rediss://:p@h", "h:6379", true, "", "p", 0},
		{"rediss://h:1?skip_verify=true", "h:1", true, "", "", 0},
		{"redis://h:1?addr=h:2&addr=h:1&addr=:3", "h:1 h:2 h:3", false, "", "", 0},
		{"redis://:p@h:1?addr=h:2&master_set=main", "main of h:1 h:2", false, "", "p", 0},
		{"unix:///run/r.sock", "/run/r.sock", false, "", "", 0},
		{"unix://u:p@/run/r.sock?db=2", "/run/r.sock", false, "u", "p", 2},
	}
	for _, tt := range tests {
		s, err := Parse(tt.url)
		if err != nil {
			t.Errorf("%s: %v", tt.url, err)
			continue
		}
		user, password := s.Credentials()
		if s.String() != tt.name || s.Secure() != tt.secure || user != tt.user || password != tt.password || s.DB() != tt.db {
			t.Errorf("%s: %s, secure %v, %q %q, database %d", tt.url, s, s.Secure(), user, password, s.DB())
		}
	}
}

func TestParse_Faults(t *testing.T) {
	for url, want := range map[string]string{
		"http://h:1":                "not a Redis URL: ",
		"redis://h:1/x":             "not a Redis URL: ",
		"redis://h:1/-1":            "is negative",
		"redis://u:hunter2@h:1/x":   "percent-encoded",
		"unix:///s?addr=h:2":        "a socket is one server",
		"unix:///s?master_set=main": "a socket is one server",
		"h:1,h:2":                   "a list with commas",
		"redis://u:hunter2@h:1,h:2": "a list with commas",
		"redis://u:hunter2#@h:1":    "percent-encoded",
		"redis://:hunter2":          "percent-encoded",
		"u:hunter2":                 "percent-encoded",
		"redis://u:12#hunter2@h:1":  "percent-encoded",
		"redis://u:12?hunter2@h:1":  "percent-encoded",
	} {
		if _, err := Parse(url); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want an error that says %q", url, err, want)
		}
	}
}

// A silent listener is a server that hangs in the TLS handshake.
func TestServer_DialTimeoutInTLSHandshake(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	s := parse(t, "rediss://"+ln.Addr().String()+"?dial_timeout=100ms").WithTLS(&TLS{})
	start := time.Now()
	if nc, err := s.Dial(t.Context()); err == nil {
		nc.Close()
		t.Fatal("a silent listener passed for a TLS server")
	}
	if took := time.Since(start); took > DefaultDialTimeout {
		t.Errorf("took %v", took)
	}
}

func TestServer_TLS(t *testing.T) {
	ours, strangers := redistest.NewAuthority(t), redistest.NewAuthority(t)
	_, url := redistest.StartTLS(t, ours, "--bind", "127.0.0.1 127.0.0.2") // the certificate is not for 127.0.0.2
	client := keyPair(t, ours, "client")
	tests := []struct {
		name string
		url  string
		tls  *TLS
		ok   bool
		want string // in the error; a server that refuses may hang up before its reason is read
	}{
		{"trusted, and shows a certificate", url, &TLS{KeyPair: client, CA: authorities(t, ours)}, true, ""},
		{"not verified on request", url + "?skip_verify=true", &TLS{KeyPair: client}, true, ""},
		{"shows none", url, &TLS{CA: authorities(t, ours)}, false, ""},
		{"shows a stranger's", url, &TLS{KeyPair: keyPair(t, strangers, "x"), CA: authorities(t, ours)}, false, ""},
		{"system roots do not know it", url, &TLS{KeyPair: client}, false, "unknown authority"},
		{"trusts strangers", url, &TLS{KeyPair: client, CA: authorities(t, strangers)}, false, "unknown authority"},
		{"wrong name", strings.Replace(url, "127.0.0.1", "127.0.0.2", 1), &TLS{KeyPair: client, CA: authorities(t, ours)}, false, "127.0.0.2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := parse(t, tt.url).WithTLS(tt.tls)
			for how, ping := range map[string]func(context.Context, *Server) error{"dial": pingBare, "client": pingClient} {
				err := ping(t.Context(), s)
				if (err == nil) != tt.ok || err != nil && !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%s: %v, want %q", how, err, tt.want)
				}
			}
		})
	}
}

func TestServer_At(t *testing.T) {
	s := parse(t, "rediss://u:p@h:1/3?addr=h:2&master_set=m").At("g:7")
	user, password := s.Credentials()
	if s.String() != "g:7" || !s.Single() || user != "u" || password != "p" || s.DB() != 3 || s.opt.TLSConfig.ServerName != "g" {
		t.Errorf("%s, %s %s, database %d, over TLS as %s", s, user, password, s.DB(), s.opt.TLSConfig.ServerName)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	nc, err := parse(t, "unix:///none/such").At(ln.Addr().String()).Dial(t.Context())
	if err != nil {
		t.Fatalf("another host is dialed as a socket: %v", err)
	}
	nc.Close()
}

func TestServer_UnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	redistest.Start(t, "--unixsocket", path)
	s := parse(t, "unix://"+path)
	if s.WithTLS(&TLS{}) != s {
		t.Error("a socket is reached over TLS")
	}
	if err := pingBare(t.Context(), s); err != nil {
		t.Error(err)
	}
	if err := pingClient(t.Context(), s); err != nil {
		t.Error(err)
	}
}

func pingBare(ctx context.Context, s *Server) error {
	nc, err := s.Dial(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	if _, err := io.WriteString(nc, "PING\r\n"); err != nil {
		return err
	}
	_, err = io.ReadFull(nc, make([]byte, len("+PONG\r\n")))
	return err
}

func pingClient(ctx context.Context, s *Server) error {
	c, err := s.Client(nil)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Do(ctx, c.B().Ping().Build()).Error()
}

func parse(t *testing.T, url string) *Server {
	t.Helper()
	s, err := Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func keyPair(t *testing.T, ca *redistest.Authority, name string) *KeyPair {
	t.Helper()
	k, err := ReadKeyPair(ca.Issue(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func authorities(t *testing.T, ca *redistest.Authority) *Authorities {
	t.Helper()
	a, err := ReadAuthorities(ca.File)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
