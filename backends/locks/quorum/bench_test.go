package quorum

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// BenchmarkLockUnlock is one uncontended LOCK and UNLOCK, on 1, 3 and 5 real masters.
func BenchmarkLockUnlock(b *testing.B) {
	for _, nodes := range []int{1, 3, 5} {
		for _, callers := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("nodes=%d/callers=%d", nodes, callers), func(b *testing.B) {
				s, _ := start(b, nodes)
				lock(b, s, "warm", "", time.Second)
				b.ReportAllocs()
				b.SetParallelism(max(1, callers/2))
				var caller atomic.Int64
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					name := strconv.FormatInt(caller.Add(1), 10)
					for pb.Next() {
						cycle(b, s, name)
					}
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
			})
		}
	}
}

func cycle(b *testing.B, s *proxy, name string) {
	ctx := context.Background()
	a, err := s.Lock(ctx, locks.LockRequest{Key: locks.Key{Name: name}, TTL: 10 * time.Second})
	if err != nil || !a.Granted {
		b.Errorf("LOCK: %+v, %v", a, err)
		return
	}
	if _, err := s.Unlock(ctx, locks.UnlockRequest{Key: locks.Key{Name: name}, Owner: a.Grant.Owner}); err != nil {
		b.Error(err)
	}
}

// BenchmarkContended is fifty callers who hold one name for a millisecond, in turn. It
// reports the extremes of their waits and Jain's index of how many turns each had.
func BenchmarkContended(b *testing.B) {
	const callers, hold = 50, time.Millisecond
	s, nodes := start(b, 5)
	lock(b, s, "warm", "", time.Second)
	var before int
	for _, n := range nodes {
		before += n.Calls(b, "evalsha") + n.Calls(b, "subscribe")
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	var turns [callers]int
	var waits [callers][]time.Duration
	b.ResetTimer()
	for i := range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				asked := time.Now()
				a, err := s.Lock(b.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: 10 * time.Second, Wait: time.Minute})
				if err != nil || !a.Granted {
					b.Errorf("LOCK: %+v, %v", a, err)
					return
				}
				turns[i]++
				waits[i] = append(waits[i], time.Since(asked))
				time.Sleep(hold)
				if _, err := s.Unlock(b.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: a.Grant.Owner}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	var sum, squares float64
	var longest, total time.Duration
	for i, n := range turns {
		sum, squares = sum+float64(n), squares+float64(n)*float64(n)
		for _, w := range waits[i] {
			longest, total = max(longest, w), total+w
		}
	}
	calls := -before
	for _, n := range nodes {
		calls += n.Calls(b, "evalsha") + n.Calls(b, "subscribe")
	}
	b.ReportMetric(sum*sum/callers/squares, "jain")
	b.ReportMetric(float64(longest)/(float64(total)/sum), "longest/mean")
	b.ReportMetric(10*float64(calls)/float64(len(nodes)*b.N)-10, "extra/10/node")
	b.ReportMetric(sum/b.Elapsed().Seconds(), "turns/s")
}

// BenchmarkBurst is 666 callers who want a name at once, of their own or all the same, and
// give it back at once.
func BenchmarkBurst(b *testing.B) {
	for _, same := range []bool{false, true} {
		b.Run(fmt.Sprintf("same=%v", same), func(b *testing.B) {
			s, _ := start(b, 5)
			lock(b, s, "warm", "", time.Second)
			b.ResetTimer()
			for range b.N {
				var wg sync.WaitGroup
				for i := range 666 {
					wg.Go(func() {
						name := "job"
						if !same {
							name = strconv.Itoa(i)
						}
						a, err := s.Lock(b.Context(), locks.LockRequest{Key: locks.Key{Name: name}, TTL: 10 * time.Second, Wait: 10 * time.Second})
						if err != nil || !a.Granted {
							b.Errorf("LOCK: %+v, %v", a, err)
							return
						}
						if _, err := s.Unlock(b.Context(), locks.UnlockRequest{Key: locks.Key{Name: name}, Owner: a.Grant.Owner}); err != nil {
							b.Error(err)
						}
					})
				}
				wg.Wait()
			}
		})
	}
}
