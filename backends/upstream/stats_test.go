package upstream

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/metrics"
)

// statsSends is the number of sends in statsFixture, of two commands each.
const statsSends = 2 * timedSends

// statsFixture is an Upstream with a borrowed connection on which each send got a
// reply and an error.
func statsFixture(t *testing.T) (u *Upstream, f *fakeServer, c *Conn) {
	t.Helper()
	f = newFakeServer(t, func(word string) string {
		if word == "refused" {
			return "-NOPERM not you\r\n"
		}
		return echo(word)
	})
	srv, err := backends.Parse("redis://" + f.addr)
	if err != nil {
		t.Fatal(err)
	}
	u = New(Options{PoolOptions: PoolOptions{Server: srv, Log: slog.New(slog.DiscardHandler)}})
	t.Cleanup(u.Close)
	c = sharedConn(t, u.Pool())
	h := newRecordingSink()
	for i := range statsSends {
		if err := c.Send(fmt.Appendf(nil, "n%d\r\nrefused\r\n", i), 2, h); err != nil {
			t.Fatal(err)
		}
	}
	h.until(t, "the replies", func() bool { return h.ended == 2*statsSends })
	return u, f, c
}

func TestUpstream_Stats(t *testing.T) {
	u, _, _ := statsFixture(t)
	got := u.Stats()
	if got.Nodes != 1 || got.Down != 0 || got.Identities != 1 || got.Shared != 1 || got.Pinned != 0 || got.Opened != 1 || got.Lost != 0 {
		t.Errorf("connections: %+v", got)
	}
	if counted(u, "writes") == 0 || counted(u, "sent_bytes") < statsSends*float64(len("0\r\nrefused\r\n")) || counted(u, "reads") == 0 || counted(u, "received_bytes") == 0 {
		t.Error("the traffic is not counted")
	}
	reported := metrics.Registry{u}
	noperm, other := reported.Sample("lockproxy_upstream_errors_total", "error", "NOPERM"), reported.Sample("lockproxy_upstream_errors_total", "error", "other")
	if noperm.Value+other.Value != statsSends || noperm.Value == 0 {
		t.Errorf("%v and %v errors counted, want %d", noperm.Value, other.Value, statsSends)
	}
	eventually(t, "the timed sends are counted", func() bool {
		return reported.Sample("lockproxy_upstream_reply_seconds").Durations.Count() == 2
	})
}

func TestUpstream_StatsOfALostConnection(t *testing.T) {
	u, f, c := statsFixture(t)
	sent, writes := counted(u, "sent_bytes"), counted(u, "writes")
	Return(c)
	f.drop()
	eventually(t, "the loss is counted", func() bool { s := u.Stats(); return s.Lost == 1 && s.Shared == 0 })
	if counted(u, "sent_bytes") < sent || counted(u, "writes") < writes || counted(u, "replies") != 2*statsSends {
		t.Errorf("the traffic of an ended connection is missing: %v replies", counted(u, "replies"))
	}
	defer Return(sharedConn(t, u.Pool()))
	if got := u.Stats(); got.Reconnects != 1 || got.Opened != 2 {
		t.Errorf("after the second connection: %+v", got)
	}
}

// counted is a counter of the traffic.
func counted(u *Upstream, what string) float64 {
	return metrics.Registry{u}.Sample("lockproxy_upstream_" + what + "_total").Value
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within 10 s: ", what)
		}
	}
}
