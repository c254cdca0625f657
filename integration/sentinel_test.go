package integration

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A writer appends numbers, one after the other, to a list of its own, over one
// connection, and keeps what became of each.
type writer struct {
	list string
	conn *redistest.Conn

	mu       sync.Mutex
	answered []outcome
	broken   error // of the connection
}

type outcome struct {
	n    int
	at   time.Time // when it was answered
	fail string    // the error reply; empty: done
}

// write appends until stop is closed.
func (w *writer) write(stop <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		v, err := w.conn.Try("RPUSH", w.list, strconv.Itoa(n))
		w.mu.Lock()
		o := outcome{n: n, at: time.Now()}
		if v.IsError() {
			o.fail = v.Text
		}
		if w.broken = err; err == nil {
			w.answered = append(w.answered, o)
		}
		w.mu.Unlock()
		if err != nil {
			return
		}
		if v.IsError() {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

func (w *writer) all() []outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.answered
}

// wellSince is when the last error was answered; the zero time: there was none.
func (w *writer) wellSince() (last time.Time) {
	for _, o := range w.all() {
		if o.fail != "" {
			last = o.at
		}
	}
	return last
}

// A load is writers that go on until stopped.
type load struct {
	writers []*writer
	stop    chan struct{}
	wg      sync.WaitGroup
	once    sync.Once
}

func startLoad(t *testing.T, addr string, writers int) *load {
	t.Helper()
	l := &load{stop: make(chan struct{})}
	for i := range writers {
		w := &writer{list: fmt.Sprintf("list:%d", i), conn: redistest.Open(t, addr)}
		l.writers = append(l.writers, w)
		l.wg.Go(func() { w.write(l.stop) })
	}
	t.Cleanup(l.end)
	return l
}

func (l *load) end() {
	l.once.Do(func() { close(l.stop) })
	l.wg.Wait()
}

// awaitProgress returns when every writer has done n more.
func (l *load) awaitProgress(t *testing.T, what string, n int) {
	t.Helper()
	before := make([]int, len(l.writers))
	for i, w := range l.writers {
		before[i] = w.done()
	}
	eventually(t, 30*time.Second, what, func() bool {
		for i, w := range l.writers {
			if w.done() < before[i]+n {
				return false
			}
		}
		return true
	})
}

func (w *writer) done() (n int) {
	for _, o := range w.all() {
		if o.fail == "" {
			n++
		}
	}
	return n
}

// check holds what the writers were told against the lists at the server where all
// writes should be. Before lossless, what was acknowledged may be lost, as replication lags.
func (l *load) check(t *testing.T, at *redistest.Server, lossless time.Time) {
	t.Helper()
	for _, w := range l.writers {
		if w.broken != nil {
			t.Errorf("%s: the client was disconnected: %v", w.list, w.broken)
		}
		times := map[string]int{}
		for _, v := range at.Do(t, "LRANGE", w.list, "0", "-1").Elems {
			if times[v.Text]++; times[v.Text] == 2 {
				t.Errorf("%s: %s was written twice", w.list, v.Text)
			}
		}
		for _, o := range w.all() {
			if o.fail == "" && o.at.After(lossless) && times[strconv.Itoa(o.n)] == 0 {
				t.Errorf("%s: %d was acknowledged and is lost", w.list, o.n)
			}
			if o.fail != "" && !strings.HasPrefix(o.fail, "UPSTREAMDOWN ") && !strings.HasPrefix(o.fail, "READONLY ") {
				t.Errorf("%s: %d: %s", w.list, o.n, o.fail)
			}
		}
	}
}

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
// nothing else.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 3, 3)
	p := redistest.StartProxy(t, s, []*redistest.Server{redistest.Start(t)})
	l := startLoad(t, p.Addr(), 8)
	l.awaitProgress(t, "before", 50)

	old := s.Master(t)
	killed := time.Now()
	old.Kill()
	now := s.AwaitFailover(t, old)
	awaitBehind(t, p, now)
	l.awaitProgress(t, "after the failover", 2)
	recovered := time.Now()
	for _, w := range l.writers {
		for _, o := range w.all() {
			if o.fail != "" && o.at.Before(killed) {
				t.Errorf("%s: an error before the failover: %s", w.list, o.fail)
			}
		}
	}
	if err := old.Restart(); err != nil { // as a master, until the sentinels see it
		t.Fatal(err)
	}
	s.AwaitWatch(t)
	s.Sentinels[0].Kill()
	l.awaitProgress(t, "with a sentinel less", 200)
	l.end()
	for _, w := range l.writers {
		if last := w.wellSince(); last.After(recovered) {
			t.Errorf("%s: an error %v after the failover was over", w.list, last.Sub(recovered))
		}
	}
	if s.Master(t) != now {
		t.Fatal("there was another failover")
	}
	l.check(t, now, recovered)
}

// TestOrderlyFailover: the demoted master is up all the time, and must not be used.
func TestOrderlyFailover(t *testing.T) {
	t.Parallel()
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
	for _, w := range l.writers {
		if last := w.wellSince(); last.After(recovered) {
			t.Errorf("%s: an error %v after the failover was over", w.list, last.Sub(recovered))
		}
	}
	t.Logf("the failover took %v; %d of %d reads failed", recovered.Sub(asked), wrong.Load(), reads.Load())
	l.check(t, now, recovered)
}
