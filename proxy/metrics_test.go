package proxy

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/metrics"
)

// What clients send and get is counted, and why they are gone.
func TestServer_Report(t *testing.T) {
	h := open(t, Options{MaxClients: 2})
	g := h.connect(t)
	const pings = 10
	g.send(t, strings.Repeat("PING\r\n", pings))
	g.want(t, strings.Repeat("+PONG\r\n", pings))
	h.until(t, "the traffic of the PINGs", func() bool { // written is counted when it is, and may have been read by then
		return h.Clients() == 1 && h.metric("lockproxy_clients_accepted_total") == 1 && h.metric("lockproxy_client_received_bytes_total") == pings*6 &&
			h.metric("lockproxy_client_sent_bytes_total") == pings*7 && h.metric("lockproxy_client_reads_total") > 0 && h.metric("lockproxy_client_writes_total") > 0
	})

	rude := h.connect(t)
	rude.send(t, "*-5x\r\n")
	rude.want(t, "-ERR Protocol error: invalid multibulk length\r\n")
	rude.wantEnd(t)
	h.goneFor(t, "protocol")
	h.until(t, "room for another", func() bool { return h.Clients() == 1 })

	leaver := h.connect(t)
	leaver.send(t, "PING\r\n")
	leaver.want(t, "+PONG\r\n")
	third := h.connect(t)
	third.want(t, "-ERR max number of clients reached\r\n")
	third.wantEnd(t)
	leaver.Close()
	h.goneFor(t, "client")

	g.send(t, "QUIT\r\n")
	g.want(t, "+OK\r\n")
	g.wantEnd(t)
	h.goneFor(t, "quit")
	h.until(t, "all are gone", func() bool {
		return h.Clients() == 0 && h.metric("lockproxy_clients_accepted_total") == 4 && h.metric("lockproxy_clients_refused_total") == 1
	})
}

func TestServer_ReportsIdleAndSlowClients(t *testing.T) {
	h := open(t, Options{IdleTimeout: 20 * time.Millisecond})
	h.connect(t).wantEnd(t)
	h.goneFor(t, "idle")
	h = open(t, Options{MaxOutput: 1 << 10})
	h.connect(t).send(t, "BIG 16777216\r\n")
	h.goneFor(t, "output")
}

// The log has the client and the reason, and nothing of what was sent.
func TestSession_LogsDisconnection(t *testing.T) {
	var lines buffer
	h := openWithLog(t, Options{MaxOutput: 1 << 10}, slog.New(slog.NewTextHandler(&lines, nil)))
	g := h.connect(t)
	g.send(t, "CLIENT SETNAME worker\r\nAUTH somebody geheim\r\n")
	g.send(t, "BIG 16777216\r\n")
	h.goneFor(t, "output")
	h.until(t, "the line", func() bool { return strings.Contains(lines.String(), "why=output") })
	text := lines.String()
	for _, want := range []string{"level=WARN", `msg="client disconnected"`, "client_id=1", "client=" + g.LocalAddr().String(), "connected="} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %s: %s", want, text)
		}
	}
	if strings.Contains(text, "geheim") {
		t.Errorf("the log has the password: %s", text)
	}
}

// A buffer may be written to while it is read.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// goneFor waits until one client is gone for a reason.
func (h *testServer) goneFor(t *testing.T, why string) {
	t.Helper()
	h.until(t, why, func() bool { return h.metric("lockproxy_clients_closed_total", "reason", why) == 1 })
}

// metric is the value of one of the server's metrics.
func (h *testServer) metric(name string, labels ...string) float64 {
	return metrics.Registry{h.Server}.Sample(name, labels...).Value
}

func (h *testServer) until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", soon, what)
		}
	}
}
