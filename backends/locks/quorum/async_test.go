package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// manyWaiters is how many wait by default at most.
const manyWaiters = 100_000

// TestWait_ManyWaiters: of a hundred thousand that wait in line none has a goroutine, each costs
// little memory, and all are answered when they give up, or the Service ends.
func TestWait_ManyWaiters(t *testing.T) {
	n := manyWaiters
	if testing.Short() {
		n /= 10
	}
	for _, tt := range []struct {
		name string
		end  func(leave, stop func())
		want error
	}{
		{"they leave", func(leave, _ func()) { leave() }, context.Canceled},
		{"the service ends", func(_, stop func()) { stop() }, locks.ErrClosed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			svc, err := newProxy(testOptions{Nodes: nodesAt(t, embedded(t, 1)[0].Addr()), NodeTimeout: patient, MaxTTL: time.Hour, MaxWaiters: n + 100, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			run, stop := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- svc.Run(run) }()
			ctx, leave := context.WithCancel(context.Background())
			defer leave()
			var answers, wrong atomic.Int64
			answered := func(a locks.Decision, err error) {
				if answers.Add(1); a.Granted || !errors.Is(err, tt.want) {
					wrong.Add(1)
				}
			}
			stands(ctx, t, svc, n, answered)
			tt.end(leave, stop)
			eventually(t, time.Minute, "all are answered", func() bool { return answers.Load() == int64(n+100) })
			if wrong.Load() > 0 || svc.waiting.Total() != 0 {
				t.Errorf("%d were not answered %v, %d wait", wrong.Load(), tt.want, svc.waiting.Total())
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// stands has n stand behind the first in line for a hundred names, and checks their cost.
func stands(ctx context.Context, t *testing.T, s *proxy, n int, answered func(locks.Decision, error)) {
	t.Helper()
	const names = 100
	const outlasts = 50 * time.Minute // all of this, on a busy machine, too
	r := locks.LockRequest{TTL: outlasts, Wait: 10 * time.Minute}
	for i := range names {
		r.Name = fmt.Sprint("wanted:", i)
		lock(t, s, r.Name, "holder", outlasts)
		go s.LockAsync(ctx, r, answered) // which asks, and so stays
		inLine(t, s, r.Name, 1)
	}
	before, goroutines := inUse(), runtime.NumGoroutine()
	for i := range n {
		r.Name = fmt.Sprint("wanted:", i%names)
		s.LockAsync(ctx, r, answered)
	}
	if more := runtime.NumGoroutine() - goroutines; more > 50 {
		t.Errorf("%d goroutines for %d that wait", more, n)
	}
	if each := (inUse() - before) / uint64(n); each > 3<<10 {
		t.Errorf("%d bytes for each that waits", each)
	} else {
		t.Logf("%d bytes for each that waits", each)
	}
	if got := s.waiting.Total(); got != n+names {
		t.Fatalf("%d wait of %d", got, n+names)
	}
}

// inUse is how much of the heap is.
func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
