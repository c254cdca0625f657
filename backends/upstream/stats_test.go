package upstream

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/metrics"
)

func TestUpstream_Stats(t *testing.T) {
	f := newFakeServer(t, func(word string) string {
		if word == "refused" {
			return "-NOPERM not you\r\n"
		}
		return echo(word)
	})
	srv, err := backends.Parse("redis://" + f.addr)
	if err != nil {
		t.Fatal(err)
	}
	u := New(Options{PoolOptions: PoolOptions{Server: srv, Log: slog.New(slog.DiscardHandler)}})
	defer u.Close()
	c, err := u.Pool().Shared(t.Context(), anonymous, MainClass, 0)
	if err != nil {
		t.Fatal(err)
	}
	h := newRecordingSink()
	const sends = 2 * timedSends
	for i := range sends {
		if err := c.Send(fmt.Appendf(nil, "n%d\r\nrefused\r\n", i), 2, h); err != nil {
			t.Fatal(err)
		}
	}
	h.until(t, "the replies", func() bool { return h.ended == 2*sends })
	got := u.Stats()
	if got.Nodes != 1 || got.Down != 0 || got.Identities != 1 || got.Shared != 1 || got.Pinned != 0 || got.Opened != 1 || got.Lost != 0 {
		t.Errorf("connections: %+v", got)
	}
	if got.Writes == 0 || got.BytesOut < sends*int64(len("0\r\nrefused\r\n")) || got.Reads == 0 || got.BytesIn == 0 {
		t.Errorf("traffic: %+v", got.Traffic)
	}
	reported := metrics.Registry{u}
	noperm, other := reported.Sample("lockproxy_upstream_errors_total", "error", "NOPERM"), reported.Sample("lockproxy_upstream_errors_total", "error", "other")
	if noperm.Value+other.Value != sends || noperm.Value == 0 {
		t.Errorf("%v and %v errors counted, want %d", noperm.Value, other.Value, sends)
	}
	eventually(t, "the timed sends are counted", func() bool {
		return reported.Sample("lockproxy_upstream_reply_seconds").Durations.Count() == 2
	})

	Return(c)
	f.drop()
	eventually(t, "the loss is counted", func() bool { s := u.Stats(); return s.Lost == 1 && s.Shared == 0 })
	if after := u.Stats(); after.BytesOut < got.BytesOut || after.Writes < got.Writes || after.Replies != 2*sends {
		t.Errorf("the traffic of an ended connection is missing: %+v, before %+v", after.Traffic, got.Traffic)
	}
	if c, err = u.Pool().Shared(t.Context(), anonymous, MainClass, 0); err != nil {
		t.Fatal(err)
	}
	defer Return(c)
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
