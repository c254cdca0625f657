package proxy

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestGoWork: as many run at once as there are, few are kept, and none when the server drains.
func TestGoWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{jobs: make(chan func())}
		s.draining, s.drain = context.WithCancel(t.Context())
		var running atomic.Int64
		for _, n := range []int64{1, maxIdleWorkers + 10, 1} {
			end := make(chan struct{})
			for range n {
				s.goWork(func() {
					running.Add(1)
					<-end
					running.Add(-1)
				})
			}
			synctest.Wait()
			if running.Load() != n {
				t.Errorf("%d of %d run", running.Load(), n)
			}
			close(end)
			synctest.Wait()
			if want := min(n, maxIdleWorkers); s.idle.Load() < want || s.idle.Load() > maxIdleWorkers {
				t.Errorf("%d wait after %d", s.idle.Load(), n)
			}
		}
		s.drain()
		s.sessions.Wait()
		if s.goWork(func() {}); s.idle.Load() != 0 {
			t.Errorf("%d wait after the end", s.idle.Load())
		}
		s.sessions.Wait()
	})
}

// TestGoWork_IdleWorkerKeepsNothing: a worker that waits keeps nothing of what it ran.
func TestGoWork_IdleWorkerKeepsNothing(t *testing.T) {
	s := &Server{jobs: make(chan func())}
	s.draining, s.drain = context.WithCancel(t.Context())
	defer s.sessions.Wait()
	defer s.drain()
	freed := make(chan struct{})
	func() {
		last := new([1 << 20]byte)
		runtime.AddCleanup(last, func(c chan struct{}) { close(c) }, freed)
		s.goWork(func() { last[0] = 1 })
	}()
	for s.idle.Load() == 0 {
		runtime.Gosched()
	}
	for late := time.After(time.Minute); ; {
		runtime.GC()
		select {
		case <-freed:
			return
		case <-late:
			t.Fatal("it is kept")
		case <-time.After(time.Millisecond):
		}
	}
}
