package main

import (
	"crypto/tls"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/cmd/lockproxy/exit"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

func TestTLSFaults(t *testing.T) {
	ca := redistest.NewAuthority(t)
	cert, key := ca.Issue(t, "a")
	_, other := ca.Issue(t, "b")
	none := filepath.Join(t.TempDir(), "none")
	tests := []struct {
		name string
		said config // besides the upstream
		want []string
	}{
		{"all of it", fromFlagsOf("upstream", "rediss://u:1", "tls-cert", cert, "tls-key", key, "tls-client-ca", ca.File,
			"tls-ca", ca.File, "tls-server-cert", cert, "tls-server-key", key), nil},
		{"a lock node is enough", fromFlagsOf("lock-node", "rediss://a:1", "tls-ca", ca.File), nil},
		{"no key", fromFlagsOf("tls-cert", cert), []string{"tls-cert: needs tls-key"}},
		{"no certificate", fromFlagsOf("tls-key", key), []string{"tls-key: needs tls-cert"}},
		{"no server key", fromFlagsOf("tls-server-cert", cert), []string{"tls-server-cert: needs tls-server-key"}},
		{"empty", fromFlagsOf("tls-cert", "", "tls-key", ""), []string{"tls-cert: is empty", "tls-key: is empty"}},
		{"authority alone", fromFlagsOf("tls-client-ca", ca.File), []string{"tls-client-ca: needs tls-cert and tls-key"}},
		{"no such file", fromFlagsOf("tls-cert", none, "tls-key", key), []string{"tls-cert, tls-key: open " + none}},
		{"another's key", fromFlagsOf("tls-cert", cert, "tls-key", other), []string{"private key does not match"}},
		{"swapped", fromFlagsOf("tls-cert", key, "tls-key", cert), []string{key + " holds no certificate in PEM"}},
		{"no authority", fromFlagsOf("tls-cert", cert, "tls-key", key, "tls-client-ca", key), []string{"tls-client-ca: " + key + " holds no certificate in PEM"}},
		{"a socket", fromFlagsOf("listen", "/run/s", "tls-cert", cert, "tls-key", key), []string{"listen is the Unix socket /run/s, which carries no TLS"}},
		{"for nobody", fromFlagsOf("tls-ca", ca.File), []string{"neither the upstream nor a lock node is a rediss:// URL"}},
		{"all at once", fromFlagsOf("tls-cert", none, "tls-key", key, "tls-client-ca", none, "tls-server-key", key, "tls-ca", none, "min-ttl", "30"),
			[]string{"min-ttl: ", "tls-cert, tls-key: ", "tls-client-ca: ", "tls-server-key: needs", "tls-ca: "}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, ok := tt.said["upstream"]; !ok {
				tt.said["upstream"] = given{values: []string{"u:1"}}
			}
			_, bad := validated(tt.said, nil)
			if len(bad) != len(tt.want) {
				t.Fatalf("%d faults, want %d: %v", len(bad), len(tt.want), bad)
			}
			for i, want := range tt.want {
				if !strings.Contains(bad[i].Error(), want) {
					t.Errorf("fault %d: %q does not say %q", i, bad[i], want)
				}
			}
		})
	}
}

func TestHealthcheckOverTLS(t *testing.T) {
	ca := redistest.NewAuthority(t)
	cert, key := ca.Issue(t, "a")
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	open := &tls.Config{Certificates: []tls.Certificate{pair}}
	closed := &tls.Config{Certificates: open.Certificates, ClientAuth: tls.RequireAnyClientCert}
	older := closed.Clone()
	older.MaxVersion = tls.VersionTLS12
	tests := []struct {
		name   string
		server *tls.Config // nil: plain text
		reply  string
		said   []string
		code   int
	}{
		{"PONG", open, "+PONG\r\n", []string{"--tls-cert", cert}, exit.OK},
		{"upstream down", open, "-UPSTREAMDOWN\r\n", []string{"--tls-cert", cert}, exit.Failed},
		{"plain text", nil, "+PONG\r\n", []string{"--tls-cert", cert}, exit.Failed},
		{"asked for a certificate", closed, "", []string{"--tls-cert", cert, "--tls-client-ca", ca.File}, exit.OK},
		{"asked for a certificate, TLS 1.2", older, "", []string{"--tls-cert", cert, "--tls-client-ca", ca.File}, exit.OK},
		{"let in without", open, "+PONG\r\n", []string{"--tls-cert", cert, "--tls-client-ca", ca.File}, exit.Failed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			addr := answerOverTLS(t, tt.server, tt.reply)
			args := append([]string{"healthcheck", "--listen", addr}, tt.said...)
			if code, _, stderr := execute(t, nil, args...); code != tt.code {
				t.Errorf("exit code %d, want %d (%s)", code, tt.code, stderr)
			}
		})
	}
}

// answerOverTLS listens and gives its first client one reply.
func answerOverTLS(t *testing.T, conf *tls.Config, reply string) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		if conf != nil {
			c = tls.Server(c, conf)
		}
		defer c.Close()
		if reply == "" {
			c.Read(make([]byte, 64))
			return
		}
		if strings.HasPrefix(reply, "HTTP/") { // no client takes an answer to what it has not asked
			c.Read(make([]byte, 4<<10))
		}
		c.Write([]byte(reply))
		c.Read(make([]byte, 64))
	}()
	return l.Addr().String()
}
