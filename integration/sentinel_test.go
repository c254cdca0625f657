package integration

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// awaitBehind returns when the proxy sends commands to the server.
func awaitBehind(t *testing.T, p *redistest.Proxy, s *redistest.Server) {
	t.Helper()
	_, port, _ := strings.Cut(s.Addr(), ":")
	c := redistest.Open(t, p.Addr())
	eventually(t, 20*time.Second, "the proxy follows", func() bool {
		v := c.Do(t, "CONFIG", "GET", "port")
		return len(v.Elems) == 2 && v.Elems[1].Text == port
	})
}

// TestSentinelFailover: a failover under load costs errors for its duration and
// nothing else, whether the master dies or only hangs.
func TestSentinelFailover(t *testing.T) {
	for name, old := range failures {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failOver(t, old.end, old.back)
		})
	}
}

func failOver(t *testing.T, end func(*redistest.Server), back func(*redistest.Server) error) {
	t.Helper()
	s := redistest.StartSentinel(t, 3, 3)
	p := redistest.StartProxy(t, s, []*redistest.Server{redistest.Start(t)})
	l := startLoad(t, p.Addr(), 8)
	l.awaitProgress(t, "before", 50)

	subscribed, watching, blocked := redistest.Open(t, p.Addr()), redistest.Open(t, p.Addr()), redistest.Open(t, p.Addr())
	subscribed.Do(t, "SUBSCRIBE", "c")
	watching.Do(t, "WATCH", "k")
	blocked.Send(t, redistest.Command("BLPOP", "nothing", "60"))

	old := s.Master(t)
	ended := time.Now()
	end(old)
	now := s.AwaitFailover(t, old)
	awaitBehind(t, p, now)
	l.awaitProgress(t, "after the failover", 2)
	recovered := time.Now()
	for name, c := range map[string]*redistest.Conn{"subscribed": subscribed, "watching": watching} {
		if got, closed := c.ReadUntilQuiet(redistest.ReplyTimeout); got != "" || !closed {
			t.Errorf("a client that is %s gets %q, disconnected: %v", name, got, closed)
		}
	}
	if v := blocked.Read(t); !strings.HasPrefix(v.Text, "UPSTREAMDOWN ") {
		t.Errorf("BLPOP answers %v", v)
	}
	if v := blocked.Do(t, "PING"); v.Text != "PONG" {
		t.Errorf("after BLPOP: %v", v)
	}
	if err := back(old); err != nil { // as a master, until the sentinels see it
		t.Fatal(err)
	}
	s.AwaitWatch(t)
	s.Sentinels[0].Kill()
	l.awaitProgress(t, "with a sentinel less", 200)
	l.end()
	l.checkErrors(t, ended, recovered)
	if s.Master(t) != now {
		t.Fatal("there was another failover")
	}
	l.check(t, now.Addr(), recovered)
}

// TestSentinelFailover_Coordinated: the demoted master is up all the time, and must not be used.
func TestSentinelFailover_Coordinated(t *testing.T) {
	s := redistest.StartSentinel(t, 2, 3)
	p := redistest.StartProxy(t, s, []*redistest.Server{redistest.Start(t)}, "--read-from", "any")
	l := startLoad(t, p.Addr(), 4)
	var reads, wrong atomic.Int64
	for range 4 {
		c := redistest.Open(t, p.Addr())
		l.wg.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				default:
				}
				v, err := c.Try("LLEN", "list:0")
				reads.Add(1)
				if err != nil || v.IsError() && !strings.HasPrefix(v.Text, "UPSTREAMDOWN ") {
					t.Errorf("a read: %v %v", v, err)
					return
				}
				if v.IsError() {
					wrong.Add(1)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	l.awaitProgress(t, "before", 50)
	asked := time.Now()
	now := s.Failover(t)
	awaitBehind(t, p, now)
	l.awaitProgress(t, "after the failover", 2)
	recovered := time.Now()
	s.AwaitWatch(t)
	l.awaitProgress(t, "when all is in sync", 100)
	l.end()
	l.checkErrors(t, asked, recovered)
	t.Logf("the failover took %v; %d of %d reads failed", recovered.Sub(asked), wrong.Load(), reads.Load())
	l.check(t, now.Addr(), recovered)
}
