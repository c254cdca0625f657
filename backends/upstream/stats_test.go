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
	if got.Writes == 0 || got.BytesOut < statsSends*int64(len("0\r\nrefused\r\n")) || got.Reads == 0 || got.BytesIn == 0 {
		t.Errorf("traffic: %+v", got.Traffic)
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
	before := u.Stats()
	Return(c)
	f.drop()
	eventually(t, "the loss is counted", func() bool { s := u.Stats(); return s.Lost == 1 && s.Shared == 0 })
	if after := u.Stats(); after.BytesOut < before.BytesOut || after.Writes < before.Writes || after.Replies != 2*statsSends {
		t.Errorf("the traffic of an ended connection is missing: %+v, before %+v", after.Traffic, before.Traffic)
	}
	defer Return(sharedConn(t, u.Pool()))
	if got := u.Stats(); got.Reconnects != 1 || got.Opened != 2 {
		t.Errorf("after the second connection: %+v", got)
	}
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within 10 s: ", what)
		}
	}
}
