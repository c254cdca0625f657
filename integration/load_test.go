package integration

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
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
		time.Sleep(time.Millisecond) // a load, no measurement
	}
}

func (w *writer) all() []outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.answered
}

// A load is writers that go on until stopped. Tests with one run alone: others have
// servers that must answer in time.
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

// checkErrors allows errors from a time on, and until another.
func (l *load) checkErrors(t *testing.T, from, until time.Time) {
	t.Helper()
	for _, w := range l.writers {
		for _, o := range w.all() {
			switch word, _, _ := strings.Cut(o.fail, " "); {
			case o.fail == "":
			case o.at.Before(from):
				t.Errorf("%s: %v too early: %s", w.list, from.Sub(o.at), o.fail)
			case o.at.After(until):
				t.Errorf("%s: %v too late: %s", w.list, o.at.Sub(until), o.fail)
			case word != "UPSTREAMDOWN" && word != "READONLY" && word != "CLUSTERDOWN":
				t.Errorf("%s: %s", w.list, o.fail)
			}
		}
	}
}

// check holds what the writers were told against the lists, as they are read at addr.
// Before lossless, what was acknowledged may be lost, as replication lags.
func (l *load) check(t *testing.T, addr string, lossless time.Time) {
	t.Helper()
	c := redistest.Open(t, addr)
	for _, w := range l.writers {
		if w.broken != nil {
			t.Errorf("%s: the client was disconnected: %v", w.list, w.broken)
		}
		times := map[string]int{}
		for _, v := range c.Do(t, "LRANGE", w.list, "0", "-1").Elems {
			if times[v.Text]++; times[v.Text] == 2 {
				t.Errorf("%s: %s was written twice", w.list, v.Text)
			}
		}
		for _, o := range w.all() {
			if o.fail == "" && o.at.After(lossless) && times[strconv.Itoa(o.n)] == 0 {
				t.Errorf("%s: %d was acknowledged and is lost", w.list, o.n)
			}
		}
	}
}

// failures are how a master may fail, and how it comes back.
var failures = map[string]struct {
	end  func(*redistest.Server)
	back func(*redistest.Server) error
}{
	"killed":  {(*redistest.Server).Kill, func(s *redistest.Server) error { return s.Restart() }},
	"hanging": {(*redistest.Server).Pause, func(s *redistest.Server) error { s.Resume(); return nil }},
}
