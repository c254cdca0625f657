package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/metrics"
	"github.com/lockproxy/lockproxy/backends/netio"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// configs are those of a server and of a client that trusts it.
func configs(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	ca := redistest.NewAuthority(t)
	pair, err := tls.LoadX509KeyPair(ca.Issue(t, "server"))
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}}, ca.Client(t, "", "")
}

// loopback is the two ends of a TCP connection.
func loopback(t *testing.T) (server, client net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if client, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close(); client.Close() })
	return server, client
}

// agree runs a handshake over both ends of a connection.
func agree(t *testing.T, server, client net.Conn) (s, c *tls.Conn) {
	t.Helper()
	sconf, cconf := configs(t)
	sconf.SessionTicketsDisabled = true // they are written in the handshake, and read later
	s, c = tls.Server(server, sconf), tls.Client(client, cconf)
	failed := make(chan error, 1)
	go func() { failed <- c.Handshake() }()
	if err := errors.Join(s.Handshake(), <-failed); err != nil {
		t.Fatal(err)
	}
	return s, c
}

// TestTLS_NoWritePastTheLibrary: a TLS connection is not written to directly, which would send plain text.
func TestTLS_NoWritePastTheLibrary(t *testing.T) {
	server, client := loopback(t)
	s, c := agree(t, server, client)
	nc := netio.Wrap(s)
	if nc.CanTryWrite() {
		t.Fatal("a TLS connection passes for a socket")
	}
	go func() { io.WriteString(c, "from the client") }()
	buf := make([]byte, 64)
	if n, err := nc.Read(buf); err != nil || string(buf[:n]) != "from the client" {
		t.Errorf("read %q, %v", buf[:n], err)
	}
}

func TestTLS_ReadDeadlineLeavesItUsable(t *testing.T) {
	server, client := loopback(t)
	s, c := agree(t, server, client)
	nc, buf := netio.Wrap(s), make([]byte, 64)
	nc.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := nc.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%v, want a passed deadline", err)
	}
	nc.SetReadDeadline(time.Now().Add(10 * time.Second))
	go io.WriteString(c, "late")
	if n, err := nc.Read(buf); err != nil || string(buf[:n]) != "late" {
		t.Errorf("read %q, %v", buf[:n], err)
	}
}

func TestOutput_TLS(t *testing.T) {
	server, client := loopback(t)
	s, c := agree(t, server, client)
	o := newOutput(netio.Wrap(s), new(metrics.Traffic), 64<<20)
	var want []byte
	for i := range 1000 {
		p := bytes.Repeat([]byte{byte(i)}, i*7)
		want = append(want, p...)
		if !o.Write(p) {
			t.Fatal("refused")
		}
	}
	o.Close()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	got, err := io.ReadAll(c) // nil only if TLS said that this is the end
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes arrived of %d, %v", len(got), len(want), err)
	}
	o.Wait()
	if o.Write([]byte("x")) {
		t.Error("written after the end")
	}
}

func TestOutput_TLSDoesNotWaitForClient(t *testing.T) {
	const limit = 32 << 20
	ends := map[string]func(*output) bool{
		"aborted":        func(o *output) bool { o.Abort(); return true },
		"over its limit": func(o *output) bool { return !o.Write(make([]byte, limit)) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			server, client := loopback(t)
			s, _ := agree(t, server, client)
			o := newOutput(netio.Wrap(s), new(metrics.Traffic), limit)
			if !o.Write(make([]byte, limit)) { // more than any socket buffers
				t.Fatal("refused")
			}
			start := time.Now()
			if !end(o) || !o.Dead() {
				t.Error("not at its end")
			}
			o.Wait()
			if took := time.Since(start); took > 3*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// Closing a connection whose client reads no more does not wait: close_notify is written by
// the writer, within closeGrace.
func TestOutput_TLSCloseHoldsUpNobody(t *testing.T) {
	tests := []struct {
		name  string
		abort time.Duration // when, if at all
		most  time.Duration // until all has ended
	}{
		{"left alone", 0, 5 * time.Second},
		{"aborted", time.Second, time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, client := net.Pipe() // buffers nothing
				s, c := agree(t, server, client)
				o := newOutput(netio.Wrap(s), new(metrics.Traffic), 1<<20)
				o.Write([]byte("all"))
				if _, err := io.ReadFull(c, make([]byte, 3)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				start := time.Now()
				o.Close()
				o.Write([]byte("x"))
				if took := time.Since(start); took != 0 {
					t.Errorf("Close waited %v", took)
				}
				if tt.abort > 0 {
					time.AfterFunc(tt.abort, o.Abort)
				}
				o.Wait()
				if took := time.Since(start); took == 0 || took > tt.most {
					t.Errorf("ended after %v, want within %v and not at once", took, tt.most)
				}
			})
		})
	}
}

func TestServer_SilentHandshakeEnds(t *testing.T) {
	tests := []struct {
		name  string
		drain time.Duration // when the server is told to end; 0: never
		want  time.Duration
	}{
		{"after its time", 0, handshakeTime},
		{"when the server ends", time.Second, time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conf, _ := configs(t)
				var said strings.Builder
				srv := &Server{opt: Options{TLS: conf, Log: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug}))}}
				srv.draining, srv.drain = context.WithCancel(t.Context())
				defer srv.drain()
				if tt.drain > 0 {
					time.AfterFunc(tt.drain, srv.drain)
				}
				server, client := net.Pipe()
				start := time.Now()
				if _, ok := srv.secure(server); ok {
					t.Error("let in")
				}
				if took := time.Since(start); took != tt.want {
					t.Errorf("ended after %v, want %v", took, tt.want)
				}
				if _, err := client.Read(make([]byte, 1)); err != io.EOF {
					t.Errorf("the connection is not closed: %v", err)
				}
				if !strings.Contains(said.String(), "level=DEBUG msg=\"TLS handshake failed\"") {
					t.Errorf("log: %q", said.String())
				}
			})
		})
	}
}

func TestServer_UnixSocketCarriesNoTLS(t *testing.T) {
	conf, _ := configs(t)
	path := filepath.Join(t.TempDir(), "s")
	if _, err := New(Options{Listen: path, TLS: conf}, nil); err == nil {
		t.Error("a Unix socket that is to speak TLS was accepted")
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("it left a socket")
	}
}
