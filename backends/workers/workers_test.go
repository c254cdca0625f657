package workers

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestPool: as many run at once as there are, few are kept, and none once the pool has ended.
func TestPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 64
		ctx, end := context.WithCancel(t.Context())
		p := New(most, ctx.Done())
		var running atomic.Int64
		for _, n := range []int64{1, most + 10, 1} {
			end := make(chan struct{})
			for range n {
				p.Go(func() {
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
			if want := min(n, most); p.idle.Load() < want || p.idle.Load() > most {
				t.Errorf("%d wait after %d", p.idle.Load(), n)
			}
		}
		end()
		p.Wait()
		if p.Go(func() {}); p.idle.Load() != 0 {
			t.Errorf("%d wait after the end", p.idle.Load())
		}
		p.Wait()
	})
}

// TestPool_IdleGoroutineKeepsNothing: a goroutine that waits keeps nothing of what it ran.
func TestPool_IdleGoroutineKeepsNothing(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	p := New(1, ctx.Done())
	defer p.Wait()
	defer end()
	freed := make(chan struct{})
	func() {
		last := new([1 << 20]byte)
		runtime.AddCleanup(last, func(c chan struct{}) { close(c) }, freed)
		p.Go(func() { last[0] = 1 })
	}()
	for p.idle.Load() == 0 {
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
